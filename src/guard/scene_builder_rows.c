/* look_list: what drivers tell of their GPUs and of who is on them, as rows.  Bounded: when there are too many, who
 * holds much is kept. */
#include "scene_builder_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Drivers before it tell the host's numbers, wherever they are asked. */
#define TRANSLATES_MAJOR 535
#define TRANSLATES_MINOR 113

/* ---- GPUs ---- */

static bool bytes_of(const struct gw_device *d, unsigned q, uint64_t *ret)
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
	/* A driver that fails without naming the GPU has not lost it (a container whose device nodes are
	 * gone is told 999): readings that fail are counted, and make it blind. */
	case GW_DEVICE_FAULT: return d->cause == GW_CAUSE_DRIVER_ERROR ? SCENE_OK : SCENE_LOST;
	case GW_DEVICE_STALLED: return SCENE_HUNG;
	default: return SCENE_OK;
	}
}

static void fill_gpu(const struct scene_builder *l, struct scene_gpu *g,
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
	g->hidden = l->hidden;
	g->memory_known = bytes_of(d, GW_Q_MEMORY_TOTAL, &g->total_bytes) &&
			  bytes_of(d, GW_Q_MEMORY_USED, &g->used_bytes) &&
			  bytes_of(d, GW_Q_MEMORY_FREE, &g->free_bytes);
	if (!g->memory_known)
		g->total_bytes = g->used_bytes = g->free_bytes = 0;
	g->temperature_c = value_of(d, GW_Q_TEMPERATURE_GPU);
	g->margin_c = value_of(d, GW_Q_TEMPERATURE_MARGIN);
}

void scene_builder_gpus(struct scene_builder *l)
{
	unsigned n = gw_snapshot_device_count(l->snap);

	l->gpus = n < SCENE_GPUS ? n : SCENE_GPUS;
	for (unsigned i = 0; i < l->gpus; i++) {
		const struct gw_device *d = gw_snapshot_device(l->snap, i);
		double unused;

		fill_gpu(l, &l->gpu[i], d);
		l->failed[i] = gw_device_value(d, GW_Q_MEMORY_USED, &unused) == GW_ABSENT_ERROR;
	}
}

static uint64_t bytes_in(const struct report *r, unsigned q)
{
	return (uint64_t)r->v[q];
}

/* Of a light look: what else is known is as it was. */
static void renew_gpu(struct scene_gpu *g, const struct report *r)
{
	g->memory_known = report_has(r, GW_Q_MEMORY_TOTAL) && report_has(r, GW_Q_MEMORY_USED) &&
			  report_has(r, GW_Q_MEMORY_FREE);
	g->total_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_TOTAL) : 0;
	g->used_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_USED) : 0;
	g->free_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_FREE) : 0;
	if (report_has(r, GW_Q_TEMPERATURE_GPU))
		g->temperature_c = r->v[GW_Q_TEMPERATURE_GPU];
}

bool scene_builder_tells_foreign(const struct scene_builder *l)
{
	const char *version = gw_snapshot_status(l->snap)->driver_version;
	unsigned major, minor;

	if (!l->hidden || !version || sscanf(version, "%u.%u", &major, &minor) != 2)
		return false;
	return major < TRANSLATES_MAJOR ||
	       (major == TRANSLATES_MAJOR && minor < TRANSLATES_MINOR);
}

/* ---- the driver's lists ---- */

/* Some drivers and some rights keep the list from us for good: that is no failure, but others may
 * be there. */
static bool is_withheld(enum gw_absence why)
{
	return why == GW_ABSENT_NOT_SUPPORTED || why == GW_ABSENT_NO_PERMISSION ||
	       why == GW_ABSENT_NO_SYMBOL;
}

static void judge(struct scene_builder *l, struct scene_gpu *g, const struct gpu_usage *c)
{
	unsigned *errors = &l->errors[c->device];
	const bool told = c->why == GW_HAVE || is_withheld(c->why);

	if (c->stalled)
		g->health = SCENE_HUNG;
	else if (c->why == GW_ABSENT_LOST)
		g->health = SCENE_LOST;
	g->hidden |= is_withheld(c->why) || c->partial;
	if ((told && !l->failed[c->device]) || g->health == SCENE_ASLEEP)
		*errors = 0;
	else if (*errors < UINT32_MAX)
		++*errors;
	g->errors = *errors;
	if (*errors > SCENE_BUILDER_BLIND && g->health == SCENE_OK)
		g->health = SCENE_BLIND;
}

/* Room for one more: when there is none, the place of the smallest goes to a larger one.  Who holds
 * much must not be pushed out by many that hold little. */
static struct row *place_for(struct scene_builder *l, uint64_t bytes)
{
	struct row *least = &l->row[0];

	if (l->rows < SCENE_PROCESSES)
		return &l->row[l->rows++];
	l->left_out++;
	for (unsigned i = 1; i < l->rows; i++)
		if (l->row[i].bytes < least->bytes)
			least = &l->row[i];
	return least->bytes < bytes ? least : NULL;
}

/* What was said last.  Lists keep their order, so that it is mostly where it was. */
static double use_before(const struct scene_builder *l, unsigned gpu, int64_t pid)
{
	for (unsigned n = 0, i = l->rows; n < l->uses; n++, i++) {
		if (i >= l->uses)
			i = 0;
		if (l->use[i].gpu == gpu && l->use[i].listed == pid)
			return l->use[i].sm_ratio;
	}
	return NAN;
}

/* Whom the driver tells nothing of did nothing. */
static double process_use(const struct scene_builder *l, const struct gpu_usage *c, int64_t pid)
{
	if (l->reuse)
		return use_before(l, c->device, pid);
	if (c->uses < 0)
		return NAN;
	for (int i = 0; i < c->uses; i++)
		if (c->use[i].pid == pid)
			return c->use[i].sm_ratio;
	return 0;
}

void scene_builder_keep_uses(struct scene_builder *l)
{
	l->use_ns = l->scene->mono_ns;
	l->uses = l->rows;
	for (unsigned i = 0; i < l->rows; i++) {
		l->use[i].gpu = l->row[i].gpu;
		l->use[i].listed = l->row[i].listed;
		l->use[i].sm_ratio = l->row[i].sm_ratio;
	}
}

static void take_row(struct scene_builder *l, const struct gpu_usage *c, const struct usage *u)
{
	const uint64_t bytes = u->memory_why == GW_HAVE ? u->memory_bytes : 0;
	const double sm_ratio = process_use(l, c, u->pid);
	struct row *r = place_for(l, bytes);

	if (!r)
		return;
	*r = (struct row){ .gpu = c->device,
			   .listed = u->pid,
			   .instance = u->gpu_instance,
			   .type = u->type,
			   .bytes = bytes,
			   .bytes_known = u->memory_why == GW_HAVE,
			   .sm_ratio = sm_ratio };
	memcpy(r->name, u->name, sizeof(r->name));
}

void scene_builder_take_list(void *arg, const struct gpu_usage *c)
{
	struct scene_builder *l = arg;

	if (c->generation != l->generation)
		l->whole_ns = 0; /* next time */
	l->generation = c->generation;
	if (c->device >= l->scene->gpus) /* it came after the snapshot: next time */
		return;
	judge(l, &l->scene->gpu[c->device], c);
	if (l->scene->gpu[c->device].health != SCENE_OK || l->errors[c->device])
		l->whole_ns = 0;
	for (unsigned i = 0; i < c->count; i++)
		take_row(l, c, &c->usage[i]);
}

/* Is it there, does it answer, and all as at the last whole look? */
static bool is_as_it_was(const struct scene_builder *l, const struct gpu_usage *c)
{
	return c->generation == l->generation && c->device < l->scene->gpus && !c->stalled &&
	       (c->why == GW_HAVE || is_withheld(c->why)) && c->report->state == GW_DEVICE_OK &&
	       c->report->why[GW_Q_MEMORY_USED] != GW_ABSENT_ERROR;
}

/* The same of a light look, which says nothing where anything is new. */
void scene_builder_take_light(void *arg, const struct gpu_usage *c)
{
	struct scene_builder *l = arg;

	l->odd |= !is_as_it_was(l, c);
	if (l->odd)
		return;
	renew_gpu(&l->scene->gpu[c->device], c->report);
	scene_builder_take_list(l, c);
}
