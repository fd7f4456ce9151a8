#include "drm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX     64
#define CHANNELS_MAX 16

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
	char why[96];

	if (!d)
		return;
	snprintf(why, sizeof(why),
		 "not opened, because opening it would also wake the sleeping GPU %s",
		 suspended);
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
		/* A GPU with the driver vfio is assigned to a virtual machine. */
		if (gpu[i].asleep && strncmp(gpu[i].driver, "vfio", 4) != 0)
			suspended = gpu[i].pci;
	if (!suspended || b->env->flags & GW_OPEN_WAKE)
		return false;
	for (unsigned i = 0; i < n; i++)
		list_unopened(b, i, &gpu[i], suspended);
	backend_fail(b, GW_CAUSE_ASLEEP, "%s", suspended);
	return true;
}

static struct drm_device *drm_of(const struct device *d)
{
	return d->priv;
}

static const struct root *root_of(const struct device *d)
{
	return d->backend->env->root;
}

/* Writes the path of a file. Returns false if the device has no such folder. */
static bool path_of(const struct device *d, enum drm_place place, const char *file, char *out,
		    size_t size)
{
	const struct drm_device *dd = drm_of(d);
	const char *folder = place == DRM_HWMON ? dd->hwmon : "";

	if (place == DRM_LINK)
		root_path(out, size, PCI_DEVICES "/%s/%s%s", dd->gpu.pci, dd->link, file);
	else if (place == DRM_CARD && dd->card[0])
		root_path(out, size, PCI_DEVICES "/%s/drm/%s/%s", dd->gpu.pci, dd->card, file);
	else if (place == DRM_PCI || (place == DRM_HWMON && folder[0]))
		root_path(out, size, PCI_DEVICES "/%s/%s%s%s", dd->gpu.pci, folder,
			  folder[0] ? "/" : "", file);
	else
		return false;
	return true;
}

static long read_line(const struct device *d, enum drm_place place, const char *file, char *out,
		      size_t size)
{
	char path[256];

	out[0] = '\0';
	if (!path_of(d, place, file, path, sizeof(path)))
		return -GW_E_NOENT;
	return root_read_line(root_of(d), path, out, size);
}

long drm_read_bytes(const struct device *d, enum drm_place place, const char *file, char *out,
		    size_t size)
{
	char path[256];

	if (!path_of(d, place, file, path, sizeof(path)))
		return -GW_E_NOENT;
	return root_read(root_of(d), path, out, size);
}

/* Parses lines such as "0: 500Mhz" or "S: 19Mhz *": gets the highest frequency, or the highest
 * of the lines with an asterisk. */
static int parse_level(const char *text, bool highest, double *ret)
{
	bool found = false;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		size_t n;
		unsigned mhz;

		line += *line == '\n';
		n = strcspn(line, "\n");
		if (sscanf(line, "%*[^:]: %u", &mhz) != 1 ||
		    (!highest && !memchr(line, '*', n)))
			continue;
		if (!found || mhz > *ret)
			*ret = mhz;
		found = true;
	}
	return found ? 0 : -GW_E_PARSE;
}

/* Converts the speed of a link to its PCIe generation. "Unknown" means that the link is
 * down. */
static int parse_speed(const char *text, double *ret)
{
	static const char *const speed[] = { "2.5", "5", "8", "16", "32", "64", "128" };
	size_t n = strcspn(text, " ");

	/* Kernels before 5.0 omit the ".0". */
	if (n > 2 && strncmp(text + n - 2, ".0", 2) == 0)
		n -= 2;
	for (unsigned i = 0; i < COUNT(speed); i++) {
		if (strlen(speed[i]) != n || strncmp(text, speed[i], n) != 0)
			continue;
		*ret = i + 1;
		return 0;
	}
	return -GW_E_PARSE;
}

static int parse_errors(const char *text, const char *key, double *ret)
{
	const char *at = strstr(text, key);
	unsigned long long v;

	if (!at || sscanf(at + strlen(key), ": %llu", &v) != 1)
		return -GW_E_PARSE;
	*ret = (double)v;
	return 0;
}

static int parse_number(const char *text, double *ret)
{
	char *end;
	long long v = strtoll(text, &end, 10);

	if (end == text || *end)
		return -GW_E_PARSE;
	*ret = (double)v;
	return 0;
}

static int parse_nonzero(const char *text, double *ret)
{
	int err = parse_number(text, ret);

	return err < 0 || *ret != 0 ? err : -GW_E_NOENT;
}

static int parse_value(enum drm_form form, const char *text, double *ret)
{
	switch (form) {
	case DRM_NONZERO: return parse_nonzero(text, ret);
	case DRM_LEVEL: return parse_level(text, false, ret);
	case DRM_LEVEL_MAX: return parse_level(text, true, ret);
	case DRM_SPEED: return parse_speed(text, ret);
	case DRM_CORRECTED: return parse_errors(text, "ce", ret);
	case DRM_UNCORRECTED: return parse_errors(text, "ue", ret);
	default: return parse_number(text, ret);
	}
}

enum gw_absence drm_absence(long error)
{
	switch (error) {
	case -GW_E_NOENT: return GW_ABSENT_NOT_SUPPORTED;
	case -GW_E_PERM: return GW_ABSENT_NO_PERMISSION;
	case -GW_E_PARSE: return GW_ABSENT_INVALID;
	default: return GW_ABSENT_ERROR;
	}
}

static long read_row(const struct device *d, const struct drm_row *row, unsigned channel,
		     double *ret)
{
	char file[64], text[1024];
	long n;

	if (row->form == DRM_OWN)
		return drm_of(d)->vendor->read_own(d, row, ret);
	snprintf(file, sizeof(file), "%s", row->file);
	if (row->label) {
		const char *at = strstr(row->file, "%u");

		if (channel == 0 || !at)
			return -GW_E_NOENT;
		snprintf(file, sizeof(file), "%.*s%u%s", (int)(at - row->file), row->file,
			 channel, at + 2);
	}
	n = read_line(d, row->place, file, text, sizeof(text));
	if (n >= 0)
		n = parse_value(row->form, text, ret);
	if (n >= 0 && (*ret < 0 || (row->max > 0 && *ret > row->max)))
		n = -GW_E_PARSE;
	return n;
}

long drm_read_quantity(struct device *d, unsigned q, double *ret)
{
	const struct drm_device *dd = drm_of(d);
	long result = -GW_E_NOENT;
	unsigned i = 0;

	for (const struct drm_row *row = dd->vendor->row; row->file; row++, i++) {
		long err = row->q == q ? read_row(d, row, dd->channel[i], ret) : -GW_E_NOENT;

		if (err >= 0) {
			*ret *= row->scale;
			return 0;
		}
		if (result == -GW_E_NOENT)
			result = err;
	}
	return result;
}

/* Reads every row of the tiers and returns how many rows could be read. Sets *ret_denied if one
 * could not be read because of missing permission. */
static unsigned read_rows(struct device *d, unsigned tiers, bool *ret_denied)
{
	const struct drm_device *dd = drm_of(d);
	unsigned good = 0, i = 0;

	report_absent(&d->r, tiers, GW_ABSENT_NOT_SUPPORTED);
	for (const struct drm_row *row = dd->vendor->row; row->file; row++, i++) {
		double v = 0;
		long err;

		if (!(gw_quantity_info(row->q)->tier & tiers) || report_has(&d->r, row->q))
			continue;
		atomic_store_explicit(d->call, row->file, memory_order_relaxed);
		err = read_row(d, row, dd->channel[i], &v);
		atomic_store_explicit(d->call, NULL, memory_order_relaxed);
		if (err >= 0) {
			report_set(&d->r, row->q, v * row->scale);
			good++;
		} else if (d->r.why[row->q] == GW_ABSENT_NOT_SUPPORTED) {
			/* Replace only the reason not_supported. Otherwise a later row with a
			 * missing file would hide a more precise reason. */
			report_miss(&d->r, row->q, drm_absence(err));
		}
		*ret_denied = *ret_denied || err == -GW_E_PERM;
	}
	return good;
}

/* Lowers the maximum PCIe generation and width to those of the PCI bridge above the device, if
 * they are lower. A device on the root bus has no bridge above it. */
static void limit_by_slot(struct device *d)
{
	static const struct {
		uint8_t q;
		const char *file;
		enum drm_form form;
	} row[] = {
		{ GW_Q_PCIE_GENERATION_MAX, "../max_link_speed", DRM_SPEED },
		{ GW_Q_PCIE_WIDTH_MAX, "../max_link_width", DRM_NUMBER },
	};
	char text[64];
	double v;

	for (unsigned i = 0; i < COUNT(row); i++)
		if (report_has(&d->r, row[i].q) &&
		    read_line(d, DRM_LINK, row[i].file, text, sizeof(text)) > 0 &&
		    parse_value(row[i].form, text, &v) == 0 && v > 0 && v < d->r.v[row[i].q])
			report_set(&d->r, row[i].q, v);
}

/* Computes used memory from total and free memory, or free memory from total and used memory,
 * because the driver has no file for the computed value. */
static void derive_memory(struct report *r, unsigned wanted)
{
	unsigned known = wanted == GW_Q_MEMORY_USED ? GW_Q_MEMORY_FREE : GW_Q_MEMORY_USED;
	unsigned missing = report_has(r, GW_Q_MEMORY_TOTAL) ? known : GW_Q_MEMORY_TOTAL;

	if (!report_has(r, missing))
		report_miss(r, wanted, (enum gw_absence)r->why[missing]);
	else if (r->v[known] > r->v[GW_Q_MEMORY_TOTAL])
		report_miss(r, wanted, GW_ABSENT_INVALID);
	else
		report_set(r, wanted, r->v[GW_Q_MEMORY_TOTAL] - r->v[known]);
}

static void name_device(struct device *d)
{
	const struct drm_device *dd = drm_of(d);
	const struct drm_name *n = dd->vendor->name;
	char name[DEVICE_TEXT_SIZE];

	if (d->r.text_why[GW_T_NAME] == GW_HAVE)
		return;
	while (n->name && n->device != dd->gpu.device)
		n++;
	if (n->name)
		snprintf(name, sizeof(name), "%s", n->name);
	else
		snprintf(name, sizeof(name), "%s GPU 0x%04x", dd->vendor->brand,
			 dd->gpu.device);
	report_text(&d->r, GW_T_NAME, name, GW_ABSENT_NO_DATA);
}

static void leave_asleep(struct device *d, unsigned tiers)
{
	report_state(&d->r, GW_DEVICE_ASLEEP, GW_CAUSE_ASLEEP, NULL);
	/* Values of the STATIC tier that were read while the GPU was awake are still valid. */
	if (d->r.tier_ns[0])
		tiers &= ~(unsigned)GW_TIER_STATIC;
	report_absent(&d->r, tiers, GW_ABSENT_ASLEEP);
	/* The name is made from the PCI id, which is known without waking the GPU. */
	name_device(d);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (d->r.text_why[t] != GW_HAVE)
			report_text(&d->r, t, NULL, GW_ABSENT_ASLEEP);
}

static void mark_lost(struct device *d, const char *detail)
{
	report_state(&d->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST, detail);
	report_absent(&d->r, GW_TIERS_ALL, GW_ABSENT_LOST);
	memset(d->r.tier_ns, 0, sizeof(d->r.tier_ns));
}

static bool is_driver_of(const struct drm_vendor *vendor, const char *driver)
{
	for (const char *const *p = vendor->driver; *p; p++)
		if (strcmp(*p, driver) == 0)
			return true;
	return false;
}

/* True if the device is still present with its driver. If a lost device has appeared again,
 * returns false, because it may be another board: the backend must be opened again. */
static bool still_present(struct device *d)
{
	const struct drm_device *dd = drm_of(d);
	char path[128], driver[256];
	bool bound;

	root_path(path, sizeof(path), PCI_DEVICES "/%s/driver", dd->gpu.pci);
	root_readlink_base(root_of(d), path, driver, sizeof(driver));
	bound = is_driver_of(dd->vendor, driver);
	if (bound && d->r.state != GW_DEVICE_LOST)
		return true;
	if (bound)
		atomic_store(&d->backend->reopen, true);
	root_path(path, sizeof(path), PCI_DEVICES "/%s/vendor", dd->gpu.pci);
	mark_lost(d, bound ? "the GPU is back and will be opened again"
		     : root_exists(root_of(d), path) ? "no driver of its vendor is bound to it"
						     : "it is no longer on the PCI bus");
	return false;
}

/* Finds the folder of the sensors: the one with the name of the driver. i915 has additional
 * folders with other names, one per tile. */
static void find_hwmon(struct device *d)
{
	struct drm_device *dd = drm_of(d);
	char path[128];
	struct dirent *e;
	DIR *dir;

	dd->hwmon[0] = '\0';
	root_path(path, sizeof(path), PCI_DEVICES "/%s/hwmon", dd->gpu.pci);
	dir = root_opendir(root_of(d), path);
	while (dir && !dd->hwmon[0] && (e = readdir(dir))) {
		char name[64];

		if (strncmp(e->d_name, "hwmon", 5) != 0 || strlen(e->d_name) > 16)
			continue;
		root_path(path, sizeof(path), PCI_DEVICES "/%s/hwmon/%.16s/name", dd->gpu.pci,
			  e->d_name);
		root_read_line(root_of(d), path, name, sizeof(name));
		if (is_driver_of(dd->vendor, name))
			snprintf(dd->hwmon, sizeof(dd->hwmon), "hwmon/%.16s", e->d_name);
	}
	if (dir)
		closedir(dir);
}

static void find_nodes(struct device *d)
{
	struct drm_device *dd = drm_of(d);
	char path[128];
	struct dirent *e;
	DIR *dir;

	dd->card[0] = dd->render[0] = '\0';
	root_path(path, sizeof(path), PCI_DEVICES "/%s/drm", dd->gpu.pci);
	dir = root_opendir(root_of(d), path);
	while (dir && (e = readdir(dir))) {
		unsigned n;
		int end = 0;

		if (sscanf(e->d_name, "card%u%n", &n, &end) == 1 && !e->d_name[end])
			snprintf(dd->card, sizeof(dd->card), "card%u", n);
		else if (sscanf(e->d_name, "renderD%u", &n) == 1)
			snprintf(dd->render, sizeof(dd->render), "renderD%u", n);
	}
	if (dir)
		closedir(dir);
}

/* Finds the channel with the label of the row, because each driver numbers its channels
 * differently. */
static unsigned find_channel(const struct device *d, const struct drm_row *row)
{
	char file[32], label[32];
	int prefix = (int)strcspn(row->file, "%");

	for (unsigned i = 1; i <= CHANNELS_MAX; i++) {
		double v = 0;

		snprintf(file, sizeof(file), "%.*s%u_label", prefix, row->file, i);
		if (read_line(d, row->place, file, label, sizeof(label)) > 0 &&
		    strcmp(label, row->label) == 0)
			return row->form != DRM_COUNTER ||
					       (read_row(d, row, i, &v) >= 0 && v > 0)
				       ? i
				       : 0;
	}
	return 0;
}

/* Finds the PCI device with the link to the slot. If the board contains a PCIe switch, this
 * device is the upstream port of the switch, two levels above the GPU. */
static void find_link(struct device *d)
{
	struct drm_device *dd = drm_of(d);
	const uint32_t *id = dd->vendor->board_switch;
	int64_t vendor, device;
	char path[128];

	dd->link = "";
	root_path(path, sizeof(path), PCI_DEVICES "/%s/../../vendor", dd->gpu.pci);
	if (root_read_i64(root_of(d), path, &vendor) < 0 || vendor != dd->vendor->vendor)
		return;
	root_path(path, sizeof(path), PCI_DEVICES "/%s/../../device", dd->gpu.pci);
	if (root_read_i64(root_of(d), path, &device) < 0)
		return;
	while (*id && *id != device)
		id++;
	if (*id)
		dd->link = "../../";
}

/* Stores the version of the driver. A driver that is part of the kernel has the kernel's
 * version. */
static void name_driver(struct device *d)
{
	char path[128], text[DEVICE_TEXT_SIZE];

	root_path(path, sizeof(path), "sys/module/%s/version", drm_of(d)->gpu.driver);
	if (root_read_line(root_of(d), path, text, sizeof(text)) <= 0)
		root_read_line(root_of(d), "proc/sys/kernel/osrelease", text, sizeof(text));
	report_text(&d->r, GW_T_DRIVER, text, GW_ABSENT_NO_DATA);
	snprintf(d->backend->driver_version, sizeof(d->backend->driver_version), "%.79s", text);
}

/* Makes a UUID: "AMD-0123..." from the board's unique number, or "PCI-0000:01:00.0" if the
 * board has no such number. The second form changes if the board moves to another slot. */
static void make_uuid(const struct root *root, const struct drm_vendor *vendor, const char *pci,
		      char *out, size_t size)
{
	char path[128], id[48] = "";

	if (vendor->unique_id) {
		root_path(path, sizeof(path), PCI_DEVICES "/%s/%s", pci, vendor->unique_id);
		root_read_line(root, path, id, sizeof(id));
	}
	if (strspn(id, "0x") < strlen(id))
		snprintf(out, size, "%s-%s", vendor->brand, id);
	else
		snprintf(out, size, "PCI-%s", pci);
}

/* Finds the files and names of a GPU that is awake. */
static void attach_device(struct device *d)
{
	struct drm_device *dd = drm_of(d);
	char text[DEVICE_TEXT_SIZE];
	unsigned i = 0;

	find_hwmon(d);
	find_nodes(d);
	find_link(d);
	for (const struct drm_row *row = dd->vendor->row; row->file; row++, i++)
		dd->channel[i] = (uint8_t)(row->label ? find_channel(d, row) : 0);
	make_uuid(root_of(d), dd->vendor, dd->gpu.pci, text, sizeof(text));
	report_text(&d->r, GW_T_UUID, text, GW_ABSENT_NO_DATA);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (t != GW_T_UUID && t != GW_T_PCI)
			report_text(&d->r, t, NULL, GW_ABSENT_NOT_SUPPORTED);
	for (const struct drm_text *t = dd->vendor->text; t->file; t++) {
		long n = read_line(d, DRM_PCI, t->file, text, sizeof(text));

		report_text(&d->r, t->text, text, n < 0 ? drm_absence(n) : GW_ABSENT_NO_DATA);
	}
	name_device(d);
	name_driver(d);
	memset(d->r.tier_ns, 0, sizeof(d->r.tier_ns));
	report_absent(&d->r, GW_TIERS_ALL, GW_ABSENT_NOT_READ);
	dd->energy_ns = 0;
	drm_client_use_restart(dd->use);
	dd->attached = true;
}

void drm_read(struct device *d, unsigned tiers)
{
	const struct clock *clock = d->backend->env->clock;
	struct drm_device *dd = drm_of(d);
	uint64_t begin = clock_mono_ns(clock);
	bool denied = false;

	if (!dd || !still_present(d))
		return;
	if (!(d->backend->env->flags & GW_OPEN_WAKE) && drm_asleep(root_of(d), dd->gpu.pci)) {
		leave_asleep(d, tiers);
		dd->energy_ns = 0;
		drm_client_use_restart(dd->use);
		return;
	}
	if (!dd->attached) {
		attach_device(d);
		tiers |= GW_TIER_STATIC;
	}
	if (read_rows(d, tiers, &denied) > 0)
		report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
	else if (denied && tiers & GW_TIER_FAST)
		report_state(&d->r, GW_DEVICE_DENIED, GW_CAUSE_NO_PERMISSION, dd->gpu.pci);
	if (tiers & GW_TIER_STATIC)
		limit_by_slot(d);
	if (tiers & GW_TIER_FAST) {
		derive_memory(&d->r, dd->vendor->derived_memory);
		if (dd->vendor->derive)
			dd->vendor->derive(d);
	}
	report_stamp(&d->r, tiers, begin);
	if (tiers & GW_TIER_FAST) {
		d->r.begin_ns = begin;
		d->r.end_ns = clock_mono_ns(clock);
		if (dd->vendor->use_from_clients)
			drm_client_use(d);
	}
}

static void free_priv(struct device *d)
{
	struct drm_device *dd = drm_of(d);

	if (dd)
		drm_client_use_free(dd->use);
	free(dd);
	d->priv = NULL;
}

static int open_gpu(struct backend *b, const struct drm_vendor *vendor,
		    const struct pci_gpu *gpu, unsigned index)
{
	bool asleep = gpu->asleep && !(b->env->flags & GW_OPEN_WAKE);
	char uuid[64];
	struct drm_device *dd;
	struct device *d;

	/* A suspended GPU does not report its unique number, so use its PCI id. */
	if (!asleep)
		make_uuid(b->env->root, vendor, gpu->pci, uuid, sizeof(uuid));
	d = backend_slot(b, asleep ? NULL : uuid, gpu->pci);
	if (!d)
		return -GW_E_NOMEM;
	dd = calloc(1, sizeof(*dd));
	if (!dd)
		return -GW_E_NOMEM;
	free_priv(d);
	d->priv = dd;
	dd->vendor = vendor;
	dd->link = "";
	dd->gpu = *gpu;
	d->r.index = index;
	d->r.provenance = b->env->root->real ? GW_FROM_SYSFS : GW_FROM_SIMULATOR;
	b->simulated = !b->env->root->real;
	report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
	report_text(&d->r, GW_T_PCI, gpu->pci, GW_ABSENT_NO_DATA);
	/* Also read FAST, because `gpuward list` shows the memory. */
	drm_read(d, GW_TIER_STATIC | GW_TIER_FAST);
	return 0;
}

static void explain_none(struct backend *b, const struct pci_gpu *gpu, unsigned n)
{
	if (b->count)
		backend_fail(b, GW_CAUSE_GPU_LOST, "no GPU of this driver is left");
	else if (n == 0)
		backend_fail(b, GW_CAUSE_NO_GPU, "no GPU of this vendor is on the PCI bus");
	else
		backend_fail(b, GW_CAUSE_NO_GPU, "%s has %s%s", gpu[0].pci,
			     gpu[0].driver[0] ? "another driver: " : "no driver",
			     gpu[0].driver);
}

bool drm_present(struct backend *b)
{
	const struct drm_vendor *vendor = b->ops->tables;

	if (b->count || drm_pci_list(b->env->root, vendor->vendor, NULL, 0) > 0)
		return true;
	explain_none(b, NULL, 0);
	return false;
}

int drm_open(struct backend *b)
{
	const struct drm_vendor *vendor = b->ops->tables;
	struct pci_gpu gpu[GPUS_MAX];
	unsigned n = drm_pci_list(b->env->root, vendor->vendor, gpu, GPUS_MAX), found = 0;

	/* Mark every device as lost. Those that are found below are marked as present again. */
	for (unsigned i = 0; i < b->count; i++)
		mark_lost(b->slot[i], "it is no longer in the list of PCI devices");
	for (unsigned i = 0; i < n && i < GPUS_MAX; i++) {
		if (!is_driver_of(vendor, gpu[i].driver))
			continue;
		if (open_gpu(b, vendor, &gpu[i], found++) < 0)
			return -GW_E_NOMEM;
	}
	b->open = found > 0;
	if (found)
		backend_fail(b, GW_CAUSE_NONE, NULL);
	else
		explain_none(b, gpu, n);
	return 0;
}

void drm_close(struct backend *b)
{
	for (unsigned i = 0; i < b->count; i++)
		free_priv(b->slot[i]);
	b->open = false;
}
