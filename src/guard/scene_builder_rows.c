/* Stores what drivers report about processes as rows, and finds the process of each row.
 *
 * The number of rows is limited. If there are too many, the rows with the least memory are left
 * out. */
#include "scene_builder_internal.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Drivers before this version list pids of the host, even in a container. */
#define TRANSLATES_MAJOR 535
#define TRANSLATES_MINOR 113

static bool read_bytes(const struct gw_device *d, unsigned q, uint64_t *ret)
{
	double v;

	if (gw_device_value(d, q, &v) != GW_HAVE)
		return false;
	*ret = (uint64_t)v;
	return true;
}

static double value_of(const struct gw_device *d, unsigned q)
{
	double v = NAN;

	(void)gw_device_value(d, q, &v);
	return v;
}

static void copy_text(const struct gw_device *d, enum gw_text t, char *out, size_t size)
{
	const char *text = gw_device_text(d, t);

	snprintf(out, size, "%s", text ? text : "");
}

static enum scene_health health_of(const struct gw_device *d)
{
	switch (d->state) {
	case GW_DEVICE_ASLEEP: return SCENE_ASLEEP;
	case GW_DEVICE_LOST: return SCENE_LOST;
	/* A driver error that names no GPU does not mean that the GPU is lost: a container
	 * without its device nodes gets error 999. Such failed readings are counted, and many
	 * of them make the GPU blind. */
	case GW_DEVICE_FAULT: return d->cause == GW_CAUSE_DRIVER_ERROR ? SCENE_OK : SCENE_LOST;
	case GW_DEVICE_STALLED: return SCENE_HUNG;
	default: return SCENE_OK;
	}
}

static void fill_gpu(const struct scene_builder *b, struct scene_gpu *g,
		     const struct gw_device *d)
{
	memset(g, 0, sizeof(*g));
	copy_text(d, GW_T_UUID, g->uuid, sizeof(g->uuid));
	copy_text(d, GW_T_PCI, g->pci, sizeof(g->pci));
	g->index = d->index;
	g->cuda = d->cuda_ordinal;
	g->health = health_of(d);
	g->simulated = d->provenance == GW_FROM_SIMULATOR;
	g->display = value_of(d, GW_Q_DISPLAY_ACTIVE) == 1;
	g->hidden = b->own.hidden;
	g->memory_known = read_bytes(d, GW_Q_MEMORY_TOTAL, &g->total_bytes) &&
			  read_bytes(d, GW_Q_MEMORY_USED, &g->used_bytes) &&
			  read_bytes(d, GW_Q_MEMORY_FREE, &g->free_bytes);
	if (!g->memory_known)
		g->total_bytes = g->used_bytes = g->free_bytes = 0;
	g->temperature_c = value_of(d, GW_Q_TEMPERATURE_GPU);
	g->margin_c = value_of(d, GW_Q_TEMPERATURE_MARGIN);
}

void scene_builder_gpus(struct scene_builder *b)
{
	unsigned n = gw_snapshot_device_count(b->snap);

	b->full.gpus = n < SCENE_GPUS ? n : SCENE_GPUS;
	for (unsigned i = 0; i < b->full.gpus; i++) {
		const struct gw_device *d = gw_snapshot_device(b->snap, i);
		double unused;

		fill_gpu(b, &b->full.gpu[i], d);
		b->draft.memory_failed[i] =
			gw_device_value(d, GW_Q_MEMORY_USED, &unused) == GW_ABSENT_ERROR;
	}
}

/* Updates the values that a light scene reads. */
static void update_gpu(struct scene_gpu *g, const struct report *r)
{
	g->memory_known = report_has(r, GW_Q_MEMORY_TOTAL) && report_has(r, GW_Q_MEMORY_USED) &&
			  report_has(r, GW_Q_MEMORY_FREE);
	g->total_bytes = g->memory_known ? (uint64_t)r->v[GW_Q_MEMORY_TOTAL] : 0;
	g->used_bytes = g->memory_known ? (uint64_t)r->v[GW_Q_MEMORY_USED] : 0;
	g->free_bytes = g->memory_known ? (uint64_t)r->v[GW_Q_MEMORY_FREE] : 0;
	if (report_has(r, GW_Q_TEMPERATURE_GPU))
		g->temperature_c = r->v[GW_Q_TEMPERATURE_GPU];
}

bool scene_builder_lists_foreign_pids(const struct scene_builder *b)
{
	const char *version = gw_snapshot_status(b->snap)->driver_version;
	unsigned major, minor;

	if (!b->own.hidden || !version || sscanf(version, "%u.%u", &major, &minor) != 2)
		return false;
	return major < TRANSLATES_MAJOR ||
	       (major == TRANSLATES_MAJOR && minor < TRANSLATES_MINOR);
}

/* True if the driver never reports the process list, or if this program may not read it. Such a
 * missing list does not count as a failed reading, but the GPU may have processes that are not
 * visible. */
static bool is_withheld(enum gw_absence why)
{
	return why == GW_ABSENT_NOT_SUPPORTED || why == GW_ABSENT_NO_PERMISSION ||
	       why == GW_ABSENT_NO_SYMBOL;
}

static void update_health(struct scene_builder *b, struct scene_gpu *g,
			  const struct gpu_usage *u)
{
	unsigned *errors = &b->errors[u->device];
	const bool answered = u->why == GW_HAVE || is_withheld(u->why);

	if (u->hung)
		g->health = SCENE_HUNG;
	else if (u->why == GW_ABSENT_LOST)
		g->health = SCENE_LOST;
	g->hidden |= is_withheld(u->why) || u->partial;
	if ((answered && !b->draft.memory_failed[u->device]) || g->health == SCENE_ASLEEP)
		*errors = 0;
	else if (*errors < UINT32_MAX)
		++*errors;
	g->errors = *errors;
	if (*errors > SCENE_BLIND_ERRORS && g->health == SCENE_OK)
		g->health = SCENE_BLIND;
}

/* Returns a row for a process with this many bytes. If all rows are used, returns the row with
 * the least memory if this row has less than `bytes`; else returns NULL, and the process is
 * left out. */
static struct row *new_row(struct scene_builder *b, uint64_t bytes)
{
	struct row *least = &b->draft.row[0];

	if (b->draft.rows < SCENE_PROCESSES)
		return &b->draft.row[b->draft.rows++];
	b->draft.left_out++;
	for (unsigned i = 1; i < b->draft.rows; i++)
		if (b->draft.row[i].bytes < least->bytes)
			least = &b->draft.row[i];
	return least->bytes < bytes ? least : NULL;
}

/* Returns the utilisation of a process from the last query. The driver usually lists processes
 * in the same order, so the search begins at the position of the new row. */
static double last_use(const struct scene_builder *b, unsigned gpu, int64_t pid)
{
	for (unsigned n = 0, i = b->draft.rows; n < b->last_use.count; n++, i++) {
		if (i >= b->last_use.count)
			i = 0;
		if (b->last_use.of[i].gpu == gpu && b->last_use.of[i].listed_pid == pid)
			return b->last_use.of[i].sm_ratio;
	}
	return NAN;
}

/* Returns the utilisation of a process; NAN: unknown. A process that the driver's list of
 * utilisations does not contain was idle. */
static double process_use(const struct scene_builder *b, const struct gpu_usage *u, int64_t pid)
{
	if (b->draft.use_from == USE_LAST)
		return last_use(b, u->device, pid);
	if (u->uses < 0)
		return NAN;
	for (int i = 0; i < u->uses; i++)
		if (u->use[i].pid == pid)
			return u->use[i].sm_ratio;
	return 0;
}

void scene_builder_keep_use(struct scene_builder *b)
{
	b->last_use.mono_ns = b->scene->mono_ns;
	b->last_use.count = b->draft.rows;
	for (unsigned i = 0; i < b->draft.rows; i++) {
		b->last_use.of[i].gpu = b->draft.row[i].gpu;
		b->last_use.of[i].listed_pid = b->draft.row[i].listed_pid;
		b->last_use.of[i].sm_ratio = b->draft.row[i].sm_ratio;
	}
}

static void add_row(struct scene_builder *b, const struct gpu_usage *u, const struct usage *one)
{
	const uint64_t bytes = one->memory_why == GW_HAVE ? one->memory_bytes : 0;
	const double sm_ratio = process_use(b, u, one->pid);
	struct row *r = new_row(b, bytes);

	if (!r)
		return;
	*r = (struct row){ .gpu = u->device,
			   .listed_pid = one->pid,
			   .instance = one->gpu_instance,
			   .type = one->type,
			   .bytes = bytes,
			   .bytes_known = one->memory_why == GW_HAVE,
			   .sm_ratio = sm_ratio };
	memcpy(r->name, one->name, sizeof(r->name));
}

void scene_builder_add_full(void *arg, const struct gpu_usage *u)
{
	struct scene_builder *b = arg;

	if (u->generation != b->full.generation)
		b->full.mono_ns = 0;
	b->full.generation = u->generation;
	/* the GPU appeared after the snapshot; the next scene will contain it */
	if (u->device >= b->scene->gpus)
		return;
	update_health(b, &b->scene->gpu[u->device], u);
	if (b->scene->gpu[u->device].health != SCENE_OK || b->errors[u->device])
		b->full.mono_ns = 0;
	for (unsigned i = 0; i < u->count; i++)
		add_row(b, u, &u->usage[i]);
}

/* True if the GPU answers and nothing about it has changed since the last full scene. */
static bool is_unchanged(const struct scene_builder *b, const struct gpu_usage *u)
{
	return u->generation == b->full.generation && u->device < b->scene->gpus && !u->hung &&
	       (u->why == GW_HAVE || is_withheld(u->why)) && u->report->state == GW_DEVICE_OK &&
	       u->report->why[GW_Q_MEMORY_USED] != GW_ABSENT_ERROR;
}

void scene_builder_add_light(void *arg, const struct gpu_usage *u)
{
	struct scene_builder *b = arg;

	b->draft.changed |= !is_unchanged(b, u);
	if (b->draft.changed)
		return;
	update_gpu(&b->scene->gpu[u->device], u->report);
	scene_builder_add_full(b, u);
}

static struct scene_process *add_process(struct scene_builder *b, const struct row *r,
					 const struct scene_process *from,
					 struct cached_process *cached)
{
	struct scene *s = b->scene;
	struct scene_process *p = &s->process[s->processes];

	b->draft.cached[s->processes] = cached;
	b->draft.instance[s->processes++] = r->instance;
	*p = *from;
	if (p->command_match == COMMAND_UNMATCHED)
		classifier_match_command(b->classifier, p);
	p->gpu = r->gpu;
	p->type = r->type;
	p->bytes = r->bytes;
	p->bytes_known = r->bytes_known;
	p->sm_ratio = r->sm_ratio;
	return p;
}

/* Adds a process that is known only from the driver's row. */
static void add_unknown(struct scene_builder *b, const struct row *r, bool orphan)
{
	struct scene_process *p = add_process(
		b, r, &(const struct scene_process){ .id.pid = r->listed_pid, .uid = -1 },
		NULL);

	p->orphan = orphan;
	utf8_clean(p->name, sizeof(p->name), r->name);
}

/* Merges a row into a process that already has a row. A thread repeats the bytes of its
 * process; another GPU instance has its own bytes. False: the process has no row yet. */
static bool merge_row(struct scene_builder *b, const struct row *r, int64_t pid)
{
	for (unsigned i = 0; b->draft.several_rows && i < b->scene->processes; i++) {
		struct scene_process *p = &b->scene->process[i];

		if (p->id.pid != pid || p->gpu != r->gpu || p->orphan)
			continue;
		p->type |= r->type;
		p->bytes_known |= r->bytes_known;
		if (b->draft.instance[i] != r->instance)
			p->bytes += r->bytes;
		else if (r->bytes > p->bytes)
			p->bytes = r->bytes;
		if (isnan(p->sm_ratio) || r->sm_ratio > p->sm_ratio)
			p->sm_ratio = r->sm_ratio;
		return true;
	}
	return false;
}

/* True if the process exists only in the simulator and never was in /proc. */
static bool is_simulated(const struct scene_builder *b, const struct row *r,
			 const struct cached_process *c)
{
	return b->scene->gpu[r->gpu].simulated && r->name[0] && !c->listed.start_ticks;
}

static void add_row_process(struct scene_builder *b, const struct row *r)
{
	struct cached_process *c;

	if (b->full.foreign_pids) {
		add_unknown(b, r, true);
		return;
	}
	c = process_cache_find(b->cache, r->listed_pid, b->scene->mono_ns);
	if (!c) {
		b->draft.left_out++;
		return;
	}
	if (c->state == PROCESS_FOUND) {
		b->draft.several_rows |= c->process.id.pid != r->listed_pid || r->instance >= 0;
		if (c->process.command_match == COMMAND_UNMATCHED)
			classifier_match_command(b->classifier, &c->process);
		if (!merge_row(b, r, c->process.id.pid))
			add_process(b, r, &c->process, c);
	} else if (is_simulated(b, r, c) || c->state == PROCESS_ORPHAN) {
		add_unknown(b, r, !is_simulated(b, r, c));
	} else {
		b->total.vanished++;
	}
}

void scene_builder_add_processes(struct scene_builder *b)
{
	b->draft.several_rows = false;
	for (unsigned i = 0; i < b->draft.rows; i++)
		add_row_process(b, &b->draft.row[i]);
	b->scene->left_out = b->draft.left_out;
	b->total.left_out += b->draft.left_out;
}

/* Returns how many generations p is below gpuward's own process; SCENE_FAR: p is not below it.
 * If gpuward is pid 1 of a container, gpuward is the ancestor of every process there, even of a
 * process that does not belong to gpuward. So the result is then SCENE_FAR too. */
static unsigned below_self(const struct scene_builder *b, const struct scene_process *p)
{
	return b->own.pid > 1 ? scene_generations(p, b->own.pid) : SCENE_FAR;
}

static unsigned below_root(const struct scene *s, const struct scene_process *p,
			   unsigned worker)
{
	unsigned best = SCENE_FAR;

	for (unsigned i = 0; i < s->roots; i++) {
		unsigned n = scene_root_of(&s->root[i], worker)
				     ? scene_generations(p, s->root[i].id.pid)
				     : SCENE_FAR;

		best = n < best ? n : best;
	}
	return best;
}

/* Returns the worker of p, or -1. If the parents of a root's descendant end, the descendant
 * becomes a root of the same worker. If a root was found by its program and executes another
 * program, it may belong to no worker. */
static int worker_of(struct scene_builder *b, const struct scene_process *p,
		     struct cached_process *c)
{
	struct scene *s = b->scene;
	int worker = classifier_worker(b->classifier, s, p);

	if (worker >= 0) {
		unsigned n = below_root(s, p, (unsigned)worker);

		if (c && n != 0 && n != SCENE_FAR)
			c->worker = worker;
		return worker;
	}
	if (!c || c->worker < 0 || s->roots == SCENE_ROOTS)
		return -1;
	s->root[s->roots++] = (struct scene_root){ .worker = (unsigned)c->worker,
						   .how = ROOT_KEPT,
						   .id = p->id };
	return c->worker;
}

/* True if p belongs to this program. If p is below this program and also below a worker's root,
 * the nearer of the two decides. */
static bool is_own(const struct scene_builder *b, const struct scene_process *p, int worker)
{
	unsigned root;

	if (p->orphan)
		return false;
	if (b->own.pid && p->id.pid == b->own.pid)
		return worker < 0 || !policy_kind_is(b->policy->worker[worker].kind, KIND_SELF);
	if (worker < 0)
		return (b->own.cgroup[0] && proc_in_cgroup(p->cgroup, b->own.cgroup)) ||
		       below_self(b, p) != SCENE_FAR;
	root = below_root(b->scene, p, (unsigned)worker);
	return below_self(b, p) < (root == SCENE_FAR ? 0 : root);
}

void scene_builder_mark_own(struct scene_builder *b)
{
	struct scene *s = b->scene;

	for (unsigned i = 0; i < s->processes; i++) {
		struct scene_process *p = &s->process[i];

		p->self = is_own(b, p, worker_of(b, p, b->draft.cached[i]));
	}
}
