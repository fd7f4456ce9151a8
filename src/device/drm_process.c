/* drm_process: lists the processes that have a GPU open, and sums up their use of the GPU. The
 * data comes from the kernel, which reports the use of the GPU for each open DRM node (a
 * client).
 *
 * A DRM driver answers a read of /proc/pid/fdinfo/N with lines such as "drm-pdev:
 * 0000:03:00.0", "drm-client-id: 42", "drm-resident-vram: 1024 KiB" and "drm-engine-gfx: 123456
 * ns" (kernel documentation, "DRM client usage stats"). */
#include "drm.h"

#include "proc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 256 /* maximum number of clients per process; further clients are ignored */

/* The time between two walks through /proc is USE_PERIOD_NS, or USE_COST times the duration of
 * a walk if that is longer. The second walk follows after USE_SECOND_NS, so that a command that
 * ends soon can show the utilisation. */
#define USE_PERIOD_NS NS_PER_S
#define USE_COST      200
#define USE_SECOND_NS (50 * NS_PER_MS)

/* Maximum number of clients per GPU. If there are more, no utilisation is reported. */
#define USE_CLIENTS_MAX 1024

/* The keys that report the memory of a client. If the driver writes several of them, the first
 * one in this order is used. */
enum { RESIDENT, MEMORY, TOTAL, KEYS };
static const char *const keys[KEYS] = { "drm-resident-", "drm-memory-", "drm-total-" };

/* The groups of engines that make up the utilisation. */
enum { RENDER, COMPUTE, GROUPS };

struct client {
	char pdev[16]; /* PCI id of the device; "": the driver does not report it */
	uint64_t id;
	bool has_id, has_engines, busy_compute, busy_other;
	/* Time that each group of engines worked for the client: in nanoseconds or, with the
	 * driver xe, in cycles of a clock of the GPU. */
	uint64_t busy[GROUPS];
	unsigned capacity[GROUPS]; /* number of engines in the group; 0 means one */
	/* present value of the GPU's clock; 0: busy is in nanoseconds */
	uint64_t total_cycles;
	bool has[KEYS];
	uint64_t bytes[KEYS];
};

/* One process on one GPU. */
struct holder {
	struct usage usage;
	uint64_t known_ids[CLIENTS_MAX];
	unsigned known_count;
	bool found; /* The process has a DRM node of the GPU open. */
	bool kfd;   /* The process has /dev/kfd open. */
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

static int group_of(const char *engine)
{
	if (strcmp(engine, "render") == 0 || strcmp(engine, "rcs") == 0)
		return RENDER;
	return strcmp(engine, "compute") == 0 || strcmp(engine, "ccs") == 0 ? COMPUTE : -1;
}

/* Records how long the client used an engine. Copy engines are ignored, because every type of
 * process uses them. */
static void note_engine(struct client *c, const char *engine, const char *value)
{
	uint64_t busy = strtoull(value, NULL, 10);
	int group = group_of(engine);

	c->has_engines = true;
	if (group >= 0)
		c->busy[group] += busy;
	if (busy == 0 || drm_starts(engine, "copy") || drm_starts(engine, "dma") ||
	    drm_starts(engine, "bcs"))
		return;
	if (drm_starts(engine, "compute") || drm_starts(engine, "ccs"))
		c->busy_compute = true;
	else
		c->busy_other = true;
}

static void note_capacity(struct client *c, const char *engine, const char *value)
{
	int group = group_of(engine);

	if (group >= 0)
		c->capacity[group] = (unsigned)strtoul(value, NULL, 10);
}

static void note_total(struct client *c, const char *value)
{
	uint64_t total = strtoull(value, NULL, 10);

	if (total > c->total_cycles)
		c->total_cycles = total;
}

static void parse_line(struct client *c, const char *key, const char *value)
{
	if (strcmp(key, "drm-pdev") == 0)
		snprintf(c->pdev, sizeof(c->pdev), "%.15s", value);
	else if (strcmp(key, "drm-client-id") == 0)
		c->has_id = (c->id = strtoull(value, NULL, 10)) > 0;
	else if (drm_starts(key, "drm-engine-capacity-"))
		note_capacity(c, key + strlen("drm-engine-capacity-"), value);
	else if (drm_starts(key, "drm-total-cycles-"))
		note_total(c, value);
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

/* Notes the id of a client. Returns false if it was noted before, or if there is no room. */
static bool note_client(struct holder *h, const struct client *c)
{
	if (!c->has_id)
		return true;
	for (unsigned i = 0; i < h->known_count; i++)
		if (h->known_ids[i] == c->id)
			return false;
	if (h->known_count == CLIENTS_MAX)
		return false;
	h->known_ids[h->known_count++] = c->id;
	return true;
}

/* Gets the client's memory on the board. Returns false if the driver does not report it. */
static bool client_memory(const struct client *c, uint64_t *ret)
{
	for (unsigned w = 0; w < KEYS; w++) {
		*ret = c->bytes[w];
		if (c->has[w])
			return true;
	}
	return false;
}

static void add_client(void *arg, const struct client *c)
{
	struct holder *h = arg;
	uint64_t bytes;

	h->found = true;
	if (!note_client(h, c))
		return;
	h->usage.type |= (c->busy_compute ? GW_PROCESS_COMPUTE : 0u) |
			 (c->busy_other ? GW_PROCESS_GRAPHICS : 0u);
	if (client_memory(c, &bytes)) {
		h->usage.memory_why = GW_HAVE;
		h->usage.memory_bytes += bytes;
	}
}

typedef void client_fn(void *arg, const struct client *c);

/* Reads one descriptor that is a DRM node. If the driver does not report the PCI device of the
 * descriptor, the name of the node identifies the device. */
static void read_descriptor(const struct device *d, const char *pid, const char *fd,
			    const char *node, client_fn *fn, void *arg)
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
		fn(arg, &c);
}

/* Calls fn for each open DRM node of a process, and sets *ret_kfd if the process has /dev/kfd
 * open. Returns false if we have no permission to inspect the process. */
static bool scan_process(const struct device *d, const char *pid, client_fn *fn, void *arg,
			 bool *ret_kfd)
{
	const struct root *root = d->backend->env->root;
	char path[64], link[256];
	bool all = true;
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
		/* CAP_DAC_READ_SEARCH alone opens the folder, but does not read the links. */
		if (root_readlink(root, path, link, sizeof(link)) == -GW_E_PERM)
			all = false;
		if (drm_starts(link, "/dev/dri/"))
			read_descriptor(d, pid, e->d_name, link + strlen("/dev/dri/"), fn, arg);
		else if (strcmp(link, "/dev/kfd") == 0)
			*ret_kfd = true;
	}
	closedir(dir);
	return all;
}

/* Completes the type of the process, which add_client() has derived from the engines in use.
 * Compute on AMD uses /dev/kfd and bypasses the engines that DRM counts. A process that has not
 * worked yet and does not use /dev/kfd counts as graphics, like the programs of a desktop. */
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
	/* Do not read fdinfo of a suspended GPU, because some drivers wake the GPU to
	 * answer. */
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
		all = scan_process(d, e->d_name, add_client, &h, &h.kfd) && all;
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

struct seen_client {
	uint64_t id;
	uint64_t busy[GROUPS];
};

/* The use of one GPU by all its clients together, from one walk through /proc. */
struct walk {
	uint64_t ns; /* Monotonic time of the walk. 0: there was no walk. */
	/* The largest total_cycles of all clients. 0: the driver counts nanoseconds, or there
	 * was no client. */
	uint64_t total_cycles;
	unsigned capacity[GROUPS];
	uint64_t memory_bytes;
	bool has_memory; /* The driver reported the memory of at least one client. */
	bool no_engines; /* The driver does not report engines (i915 before Linux 5.19). */
	unsigned count;
	struct seen_client client[USE_CLIENTS_MAX];
};

/* State of drm_client_use(). */
struct client_use {
	struct walk walk[2];
	unsigned newest; /* index into walk */
	uint64_t next_ns;
	enum gw_absence why_walk; /* GW_HAVE, or why the newest walk is not complete */
	enum gw_absence why_utilization;
	double utilization;
};

void drm_client_use_free(struct client_use *use)
{
	free(use);
}

void drm_client_use_restart(struct client_use *use)
{
	if (!use)
		return;
	use->walk[use->newest].ns = 0;
	use->next_ns = 0;
}

static const struct seen_client *find_seen(const struct walk *w, uint64_t id)
{
	for (unsigned i = 0; i < w->count; i++)
		if (w->client[i].id == id)
			return &w->client[i];
	return NULL;
}

/* Adds a client to the walk. A client is added once, even if several processes have it open. */
static void walk_client(void *arg, const struct client *c)
{
	struct walk *w = arg;
	uint64_t bytes;

	if (c->has_id && find_seen(w, c->id))
		return;
	if (w->count < USE_CLIENTS_MAX) {
		w->client[w->count].id = c->id;
		memcpy(w->client[w->count].busy, c->busy, sizeof(c->busy));
	}
	w->count++;
	w->no_engines = w->no_engines || !c->has_engines;
	if (client_memory(c, &bytes)) {
		w->has_memory = true;
		w->memory_bytes += bytes;
	}
	if (c->total_cycles > w->total_cycles)
		w->total_cycles = c->total_cycles;
	for (unsigned g = 0; g < GROUPS; g++)
		if (c->capacity[g] > w->capacity[g])
			w->capacity[g] = c->capacity[g];
}

/* Returns GW_HAVE, or why the walk is not complete. */
static enum gw_absence walk_clients(struct device *d, struct walk *w)
{
	const struct root *root = d->backend->env->root;
	DIR *dir = root_opendir(root, "proc");
	/* A container hides the processes outside the container. The mount option hidepid hides
	 * the processes of other users, such as process 1. */
	bool all = proc_in_child_namespace(root) != 1 &&
		   (!root->real || root_exists(root, "proc/1")),
	     kfd;
	struct dirent *e;

	w->total_cycles = w->memory_bytes = w->count = 0;
	memset(w->capacity, 0, sizeof(w->capacity));
	w->has_memory = w->no_engines = false;
	if (!dir)
		return GW_ABSENT_NOT_PRESENT;
	/* If one process cannot be inspected, the sums would be incomplete, so the walk ends.
	 * Without privileges this already happens at process 1. */
	while (all && (e = readdir(dir)))
		if (isdigit((unsigned char)e->d_name[0]))
			all = scan_process(d, e->d_name, walk_client, w, &kfd);
	closedir(dir);
	if (w->count > USE_CLIENTS_MAX)
		return GW_ABSENT_TOO_MANY;
	return all ? GW_HAVE : GW_ABSENT_NO_PERMISSION;
}

/* Computes the busier group's share of the time between two walks. A client that is not in the
 * older walk is new, so all of its time is added. */
static enum gw_absence compare_walks(const struct walk *a, const struct walk *b, double *ret)
{
	double busy[GROUPS] = { 0 }, time;

	*ret = 0;
	if (b->no_engines)
		return GW_ABSENT_NOT_SUPPORTED;
	if (a->ns == 0)
		return GW_ABSENT_FIRST_READING;
	if (b->count == 0)
		return GW_HAVE;
	/* Only clients report the GPU's clock, so it is unknown in a walk without a client. */
	if (b->total_cycles && (a->total_cycles == 0 || b->total_cycles <= a->total_cycles))
		return GW_ABSENT_FIRST_READING;
	time = b->total_cycles ? (double)(b->total_cycles - a->total_cycles)
			       : (double)(b->ns - a->ns);
	for (unsigned i = 0; i < b->count; i++) {
		const struct seen_client *now = &b->client[i], *before = find_seen(a, now->id);

		for (unsigned g = 0; g < GROUPS; g++) {
			uint64_t from = before ? before->busy[g] : 0;

			/* The counter of a driver may decrease for a while. */
			if (now->busy[g] > from)
				busy[g] += (double)(now->busy[g] - from);
		}
	}
	for (unsigned g = 0; g < GROUPS; g++) {
		double ratio = busy[g] / time / (b->capacity[g] ? b->capacity[g] : 1);

		*ret = ratio > *ret ? ratio : *ret;
	}
	*ret = *ret < 1 ? *ret : 1;
	return GW_HAVE;
}

static void take_walk(struct device *d, struct client_use *use)
{
	const struct clock *clock = d->backend->env->clock;
	const struct walk *before = &use->walk[use->newest];
	struct walk *now = &use->walk[!use->newest];
	uint64_t end;
	enum gw_absence why;

	now->ns = clock_mono_ns(clock);
	why = walk_clients(d, now);
	end = clock_mono_ns(clock);
	use->why_walk = why;
	use->why_utilization =
		why == GW_HAVE ? compare_walks(before, now, &use->utilization) : why;
	use->next_ns =
		now->ns + (use->why_utilization == GW_ABSENT_FIRST_READING ? USE_SECOND_NS
			   : USE_COST * (end - now->ns) > USE_PERIOD_NS
				   ? USE_COST * (end - now->ns)
				   : USE_PERIOD_NS);
	if (why != GW_HAVE)
		now->ns = 0;
	use->newest = !use->newest;
}

/* Reports the memory if the driver has no better figure for it. If there is no client, 0 bytes
 * are in use; this is reported only if the total is known, because otherwise the board may have
 * no memory of its own. */
static void report_client_memory(struct report *r, const struct client_use *use)
{
	const struct walk *w = &use->walk[use->newest];
	bool has_total = report_has(r, GW_Q_MEMORY_TOTAL);
	double bytes = (double)w->memory_bytes;

	if (report_has(r, GW_Q_MEMORY_USED))
		return;
	if (use->why_walk != GW_HAVE)
		report_miss(r, GW_Q_MEMORY_USED, use->why_walk);
	else if (!w->has_memory && !(has_total && w->count == 0))
		report_miss(r, GW_Q_MEMORY_USED, GW_ABSENT_NOT_SUPPORTED);
	else if (has_total && bytes > r->v[GW_Q_MEMORY_TOTAL])
		report_miss(r, GW_Q_MEMORY_USED, GW_ABSENT_INVALID);
	else
		report_set(r, GW_Q_MEMORY_USED, bytes);
}

void drm_client_use(struct device *d)
{
	struct drm_device *dd = d->priv;

	if (!dd->use)
		dd->use = calloc(1, sizeof(*dd->use));
	if (!dd->use) {
		report_miss(&d->r, GW_Q_UTILIZATION_GPU, GW_ABSENT_ERROR);
		return;
	}
	if (clock_mono_ns(d->backend->env->clock) >= dd->use->next_ns)
		take_walk(d, dd->use);
	if (dd->use->why_utilization == GW_HAVE)
		report_set(&d->r, GW_Q_UTILIZATION_GPU, dd->use->utilization);
	else
		report_miss(&d->r, GW_Q_UTILIZATION_GPU, dd->use->why_utilization);
	report_client_memory(&d->r, dd->use);
}
