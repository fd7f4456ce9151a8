/* drm_pci: GPUs on the PCI bus, found without waking any. */
#include "drm.h"

#include <stdio.h>
#include <string.h>

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
	/* MI300 and its like call themselves processing accelerators. */
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
	/* Without a device id it is still a GPU. */
	read_hex(root, pci, "device", &ret->device);
	snprintf(ret->pci, sizeof(ret->pci), "%s", pci);
	root_path(path, sizeof(path), PCI_DEVICES "/%s/driver", pci);
	root_readlink_base(root, path, driver, sizeof(driver));
	snprintf(ret->driver, sizeof(ret->driver), "%.23s", driver);
	ret->asleep = drm_asleep(root, pci);
	return true;
}

/* Keeps out[] sorted; the last one falls off a full array. */
static void insert(struct pci_gpu *out, unsigned used, unsigned cap, const struct pci_gpu *g)
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
		insert(out, count++, cap, &g);
	}
	closedir(dir);
	return count;
}
