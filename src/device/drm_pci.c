/* drm_pci: finds GPUs on the PCI bus without waking them. */
#include "drm.h"

#include <stdio.h>
#include <string.h>

#define GPUS_MAX 64

static bool read_hex(const struct root *root, const char *pci, const char *file, uint32_t *ret)
{
	char path[128];
	int64_t v;

	root_path(path, sizeof(path), PCI_DEVICES "/%s/%s", pci, file);
	if (root_read_i64(root, path, &v) < 0 || v < 0 || v > UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static bool is_gpu_class(uint32_t class)
{
	/* MI300 and similar boards have the class "processing accelerator". */
	return class >> 16 == 0x03 || class >> 8 == 0x1200;
}

bool drm_asleep(const struct root *root, const char *pci)
{
	char path[128], status[32];

	root_path(path, sizeof(path), PCI_DEVICES "/%s/power/runtime_status", pci);
	root_read_line(root, path, status, sizeof(status));
	return strcmp(status, "suspended") == 0 || strcmp(status, "suspending") == 0;
}

static bool read_pci_gpu(const struct root *root, const char *pci, uint32_t vendor,
			 struct pci_gpu *ret)
{
	char path[128], driver[256];

	if (strlen(pci) >= sizeof(ret->pci))
		return false;
	*ret = (struct pci_gpu){ 0 };
	if (!read_hex(root, pci, "vendor", &ret->vendor) || ret->vendor != vendor ||
	    !read_hex(root, pci, "class", &ret->class) || !is_gpu_class(ret->class))
		return false;
	/* The device id is optional. */
	read_hex(root, pci, "device", &ret->device);
	snprintf(ret->pci, sizeof(ret->pci), "%s", pci);
	root_path(path, sizeof(path), PCI_DEVICES "/%s/driver", pci);
	root_readlink_base(root, path, driver, sizeof(driver));
	snprintf(ret->driver, sizeof(ret->driver), "%.23s", driver);
	ret->asleep = drm_asleep(root, pci);
	return true;
}

/* Inserts g so that out[] stays sorted. If out[] is full, its last row is dropped. */
static void insert_sorted(struct pci_gpu *out, unsigned used, unsigned cap,
			  const struct pci_gpu *g)
{
	unsigned i = used < cap ? used : cap;

	if (i == cap && (cap == 0 || strcmp(g->pci, out[cap - 1].pci) > 0))
		return;
	if (i == cap)
		i--;
	for (; i > 0 && strcmp(out[i - 1].pci, g->pci) > 0; i--)
		out[i] = out[i - 1];
	out[i] = *g;
}

unsigned drm_pci_list(const struct root *root, uint32_t vendor, struct pci_gpu *out,
		      unsigned cap)
{
	DIR *dir = root_opendir(root, PCI_DEVICES);
	unsigned count = 0;
	struct dirent *e;
	struct pci_gpu g;

	if (!dir)
		return 0;
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.' || !read_pci_gpu(root, e->d_name, vendor, &g))
			continue;
		insert_sorted(out, count++, cap, &g);
	}
	closedir(dir);
	return count;
}

static void list_unopened(struct backend *b, unsigned index, const struct pci_gpu *gpu,
			  const char *suspended)
{
	struct device *d = backend_slot(b, NULL, gpu->pci);
	char why[64];

	if (!d)
		return;
	snprintf(why, sizeof(why), "not opened: that would wake %s", suspended);
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

bool drm_list_suspended(struct backend *b, uint32_t vendor)
{
	struct pci_gpu gpu[GPUS_MAX];
	unsigned n = drm_pci_list(b->env->root, vendor, gpu, GPUS_MAX);
	const char *suspended = NULL;

	n = n < GPUS_MAX ? n : GPUS_MAX;
	for (unsigned i = 0; i < n && !suspended; i++)
		if (gpu[i].asleep &&
		    /* vfio: a virtual machine owns the GPU */
		    strncmp(gpu[i].driver, "vfio", 4) != 0)
			suspended = gpu[i].pci;
	if (!suspended || b->env->flags & GW_OPEN_WAKE)
		return false;
	for (unsigned i = 0; i < n; i++)
		list_unopened(b, i, &gpu[i], suspended);
	backend_fail(b, GW_CAUSE_ASLEEP, "%s", suspended);
	return true;
}
