#include "sleeping.h"

#include "drm.h"

#include <stdio.h>
#include <string.h>

#define GPUS_MAX 64

static void list_one(struct backend *b, unsigned index, const struct pci_gpu *gpu,
		     const char *sleeper)
{
	struct device *d = backend_slot(b, NULL, gpu->pci);
	char why[64];

	if (!d)
		return;
	snprintf(why, sizeof(why), "not opened: that would wake %s", sleeper);
	d->r.index = index;
	d->r.provenance = b->env->root->real ? GW_FROM_SYSFS : GW_FROM_SIMULATOR;
	if (!b->env->root->real)
		b->simulated = true;
	report_state(&d->r, gpu->asleep ? GW_DEVICE_ASLEEP : GW_DEVICE_CLOSED, GW_CAUSE_ASLEEP,
		     gpu->asleep ? NULL : why);
	report_absent(&d->r, GW_TIERS_ALL, GW_ABSENT_ASLEEP);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (d->r.text_why[t] != GW_HAVE)
			report_text(&d->r, t, NULL, GW_ABSENT_ASLEEP);
}

bool sleeping_list(struct backend *b, uint32_t vendor)
{
	struct pci_gpu gpu[GPUS_MAX];
	unsigned n = drm_pci_list(b->env->root, vendor, gpu, GPUS_MAX);
	const char *sleeper = NULL;

	n = n < GPUS_MAX ? n : GPUS_MAX;
	for (unsigned i = 0; i < n && !sleeper; i++)
		if (gpu[i].asleep &&
		    strncmp(gpu[i].driver, "vfio", 4) != 0) /* a guest's is no one's here */
			sleeper = gpu[i].pci;
	if (!sleeper || b->env->flags & GW_OPEN_WAKE)
		return false;
	for (unsigned i = 0; i < n; i++)
		list_one(b, i, &gpu[i], sleeper);
	backend_fail(b, GW_CAUSE_ASLEEP, "%s", sleeper);
	return true;
}
