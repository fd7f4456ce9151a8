/* drm_process: the processes that have a GPU open, from the kernel's data on open DRM nodes.
 *
 * A DRM driver answers a read of /proc/pid/fdinfo/N with lines such as "drm-pdev:
 * 0000:03:00.0", "drm-client-id: 42", "drm-resident-vram: 1024 KiB" and "drm-engine-gfx: 123456
 * ns" (kernel documentation, "DRM client usage stats"). */
#include "drm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 256 /* distinct clients per process; more are ignored */

/* The keys for the memory of a client, best first. */
enum { RESIDENT, MEMORY, TOTAL, KEYS };
static const char *const keys[KEYS] = { "drm-resident-", "drm-memory-", "drm-total-" };

struct client {
	char pdev[16]; /* PCI id of the device; "": the driver does not report it */
	uint64_t id;
	bool has_id, busy_compute, busy_other;
	bool has[KEYS];
	uint64_t bytes[KEYS];
};

struct holder { /* one process on one GPU */
	struct usage usage;
	uint64_t known_ids[CLIENTS_MAX];
	unsigned known_count;
	bool found, kfd;
};

static bool drm_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* True for a region of the board's own memory: "vram" (amdgpu), "vram0" (xe), "local0"
 * (i915). */
static bool is_local_region(const char *region)
{
	return drm_starts(region, "vram") || drm_starts(region, "local");
}

static uint64_t parse_bytes(const char *value)
{
	char *end;
	uint64_t v = strtoull(value, &end, 10);

	end += strspn(end, " \t");
	return drm_starts(end, "KiB") ? v << 10 : drm_starts(end, "MiB") ? v << 20 : v;
}

/* Records whether the client used compute or graphics engines. Copy engines are ignored,
 * because every type of process uses them. */
static void note_engine(struct client *c, const char *engine, const char *value)
{
	if (strtoull(value, NULL, 10) == 0 || drm_starts(engine, "copy") ||
	    drm_starts(engine, "dma") || drm_starts(engine, "bcs") ||
	    drm_starts(engine, "capacity-"))
		return;
	if (drm_starts(engine, "compute") || drm_starts(engine, "ccs"))
		c->busy_compute = true;
	else
		c->busy_other = true;
}

static void parse_line(struct client *c, const char *key, const char *value)
{
	if (strcmp(key, "drm-pdev") == 0)
		snprintf(c->pdev, sizeof(c->pdev), "%.15s", value);
	else if (strcmp(key, "drm-client-id") == 0)
		c->has_id = (c->id = strtoull(value, NULL, 10)) > 0;
	else if (drm_starts(key, "drm-engine-"))
		note_engine(c, key + strlen("drm-engine-"), value);
	else if (drm_starts(key, "drm-cycles-"))
		note_engine(c, key + strlen("drm-cycles-"), value);
	for (unsigned w = 0; w < KEYS; w++) {
		if (!drm_starts(key, keys[w]) || !is_local_region(key + strlen(keys[w])))
			continue;
		c->has[w] = true;
		c->bytes[w] += parse_bytes(value);
	}
}

static void parse_fdinfo(char *text, struct client *c)
{
	char *save = NULL;

	*c = (struct client){ 0 };
	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *colon = strchr(line, ':');

		if (!colon)
			continue;
		*colon = '\0';
		parse_line(c, line, colon + 1 + strspn(colon + 1, " \t"));
	}
}

static bool is_known(struct holder *h, const struct client *c)
{
	if (!c->has_id)
		return false;
	for (unsigned i = 0; i < h->known_count; i++)
		if (h->known_ids[i] == c->id)
			return true;
	if (h->known_count == CLIENTS_MAX)
		return true;
	h->known_ids[h->known_count++] = c->id;
	return false;
}

static void add_client(struct holder *h, struct client *c)
{
	h->found = true;
	if (is_known(h, c))
		return;
	h->usage.type |= (c->busy_compute ? GW_PROCESS_COMPUTE : 0u) |
			 (c->busy_other ? GW_PROCESS_GRAPHICS : 0u);
	for (unsigned w = 0; w < KEYS; w++) {
		if (!c->has[w])
			continue;
		h->usage.memory_why = GW_HAVE;
		h->usage.memory_bytes += c->bytes[w];
		break;
	}
}

/* Reads one descriptor that is a DRM node. If the driver does not report the PCI device of the
 * descriptor, the name of the node identifies the device. */
static void read_descriptor(const struct device *d, struct holder *h, const char *pid,
			    const char *fd, const char *node)
{
	const struct drm_device *dd = d->priv;
	char path[64], text[4096];
	struct client c;

	root_path(path, sizeof(path), "proc/%.12s/fdinfo/%.12s", pid, fd);
	if (root_read(d->backend->env->root, path, text, sizeof(text)) < 0)
		return;
	parse_fdinfo(text, &c);
	if (c.pdev[0] ? strcmp(c.pdev, dd->gpu.pci) == 0
		      : strcmp(node, dd->card) == 0 || strcmp(node, dd->render) == 0)
		add_client(h, &c);
}

/* Reads the open DRM nodes of a process. Returns false if we may not inspect the process. */
static bool scan_process(const struct device *d, struct holder *h, const char *pid)
{
	const struct root *root = d->backend->env->root;
	char path[64], link[256];
	struct dirent *e;
	DIR *dir;

	root_path(path, sizeof(path), "proc/%.12s/fd", pid);
	dir = root_opendir(root, path);
	if (!dir)
		return !root_exists(root, path);
	while ((e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		root_path(path, sizeof(path), "proc/%.12s/fd/%.12s", pid, e->d_name);
		root_readlink(root, path, link, sizeof(link));
		if (drm_starts(link, "/dev/dri/"))
			read_descriptor(d, h, pid, e->d_name, link + strlen("/dev/dri/"));
		else if (strcmp(link, "/dev/kfd") == 0)
			h->kfd = true;
	}
	closedir(dir);
	return true;
}

/* Decides whether the process does compute or graphics. Compute on AMD bypasses the engines
 * that DRM counts and uses /dev/kfd. A process that did no work yet and does not use /dev/kfd
 * counts as graphics, like the programs of a desktop. */
static void decide_type(struct holder *h)
{
	if (h->kfd)
		h->usage.type |= GW_PROCESS_COMPUTE;
	if (h->usage.type == 0)
		h->usage.type = GW_PROCESS_GRAPHICS;
}

enum gw_absence drm_processes(struct device *d, struct usage_list *l, int *ret_error)
{
	DIR *dir;
	bool all = true;
	struct dirent *e;

	*ret_error = 0;
	if (!d->priv || d->r.state == GW_DEVICE_LOST)
		return GW_ABSENT_LOST;
	/* Do not ask about a suspended GPU, because some drivers wake the GPU to answer. */
	if (!(d->backend->env->flags & GW_OPEN_WAKE) &&
	    drm_asleep(d->backend->env->root, ((struct drm_device *)d->priv)->gpu.pci))
		return GW_ABSENT_ASLEEP;
	dir = root_opendir(d->backend->env->root, "proc");
	if (!dir)
		return GW_ABSENT_NOT_PRESENT;
	while (!*ret_error && (e = readdir(dir))) {
		struct holder h;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		h.usage = (struct usage){ .pid = strtoll(e->d_name, NULL, 10),
					  .gpu_instance = -1,
					  .memory_why = GW_ABSENT_NOT_SUPPORTED };
		h.known_count = 0;
		h.found = h.kfd = false;
		all = scan_process(d, &h, e->d_name) && all;
		if (!h.found)
			continue;
		decide_type(&h);
		*ret_error = usage_add(l, &h.usage);
	}
	closedir(dir);
	if (*ret_error)
		return GW_ABSENT_ERROR;
	return all ? GW_HAVE : GW_ABSENT_NO_PERMISSION;
}
