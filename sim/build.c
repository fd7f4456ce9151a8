/* Reads [[gpu]] of a scenario with its [[gpu.load]], [[gpu.process]] and [[gpu.mig]]. */
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/suggest.h"
#include "build.h"

#define TRACE_POINTS_MAX 1000000u

/* The values of the keys of [[gpu.load]]. */
struct load_words {
	struct load load;
	double level, duty, offset_s;
	unsigned kind, unit; /* index into kind_words and unit_words */
};

static int add_point(struct rows *r, const struct toml_node *node, struct load *l, double at_s,
		     double level)
{
	uint64_t at_ns = at_s > 0 ? (uint64_t)llround(at_s * 1e9) : 0;

	if (l->n_points != 0 && at_ns < l->points[l->n_points - 1].at_ns)
		return rows_fail(
			r, node,
			"the times of a load must not decrease, but %g s comes after a "
			"later time",
			at_s);
	if (l->n_points == TRACE_POINTS_MAX)
		return rows_fail(r, node, "a load has at most %u points; remove some",
				 TRACE_POINTS_MAX);
	/* Double the capacity when the array is full, because a trace can be long. */
	if ((l->n_points & (l->n_points - 1)) == 0) {
		size_t room = l->n_points == 0 ? 1 : 2 * l->n_points;
		struct load_point *grown = reallocarray(l->points, room, sizeof(*grown));

		if (grown == NULL)
			return build_no_memory(r, node);
		l->points = grown;
	}
	l->points[l->n_points++] = (struct load_point){ at_ns, level };
	return 0;
}

static int read_pair(struct rows *r, const struct toml_node *pair, double out[2])
{
	if (pair->type != TOML_ARRAY || pair->count != 2 ||
	    !rows_number(pair->child, &out[0]) || !rows_number(pair->child->next, &out[1]))
		return rows_fail(r, pair, "a point must be a list of two numbers");
	return 0;
}

static int read_points(struct rows *r, const struct toml_node *node, void *target)
{
	struct load *l = &((struct load_words *)target)->load;
	double v[2];

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of points");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next)
		if (read_pair(r, c, v) != 0 || add_point(r, c, l, v[0], v[1]) != 0)
			return -1;
	return 0;
}

static int read_bursts(struct rows *r, const struct toml_node *node, void *target)
{
	struct load *l = &((struct load_words *)target)->load;
	double v[2];

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of [start, end]");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next)
		if (read_pair(r, c, v) != 0 || add_point(r, c, l, v[0], 1) != 0 ||
		    add_point(r, c, l, v[1], 0) != 0)
			return -1;
	return 0;
}

/* Reads a trace file; a relative path begins in the folder of the scenario. The lines of the
 * file are "seconds,watts", or "ON start end" for bursts; all other lines are ignored. */
static int read_file(struct rows *r, const struct toml_node *node, void *target)
{
	struct load_words *words = target;
	char path[4096], line[256], *base = strdup(building(r)->path);
	double a, b, shift = words->offset_s;
	FILE *f;
	int result = 0;

	if (node->type != TOML_STRING || base == NULL) {
		free(base);
		return rows_want(r, node, "a string");
	}
	if (node->v.string.text[0] == '/')
		snprintf(path, sizeof(path), "%s", node->v.string.text);
	else
		snprintf(path, sizeof(path), "%s/%s", dirname(base), node->v.string.text);
	free(base);
	f = file_fopen(path);
	if (f == NULL)
		return rows_fail(r, node, "cannot read '%s': %s", path, file_strerror(errno));
	while (result == 0 && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "ON %lf %lf", &a, &b) == 2) {
			result = add_point(r, node, &words->load, a - shift, 1);
			if (result == 0)
				result = add_point(r, node, &words->load, b - shift, 0);
		} else if (sscanf(line, "%lf,%lf", &a, &b) == 2) {
			result = add_point(r, node, &words->load, a - shift, b);
		}
	}
	fclose(f);
	return result;
}

static const char *const kind_words[] = { "constant", "steps", "square", "ramp",
					  "bursts",   "trace", NULL };
static const char *const unit_words[] = { "load", "watts", NULL };

#define LOAD(member) offsetof(struct load_words, member)
#define LOAD_LEVEL(key, member, highest)                                                \
	{                                                                               \
		.name = key, .kind = KEY_NUMBER, .offset = LOAD(member), .max = highest \
	}
#define LOAD_TIME(key, member)                                                \
	{                                                                     \
		.name = key, .kind = KEY_SECONDS, .offset = LOAD(load.member) \
	}
/* clang-format off */
static const struct key load_keys[] = {
	{ .name = "kind", .kind = KEY_CHOICE, .offset = LOAD(kind), .words = kind_words },
	{ .name = "unit", .kind = KEY_CHOICE, .offset = LOAD(unit), .words = unit_words },
	LOAD_LEVEL("level", level, 1e5),
	LOAD_LEVEL("low", load.low, 1e5),
	LOAD_LEVEL("high", load.high, 1e5),
	LOAD_LEVEL("duty", duty, 1),
	LOAD_LEVEL("offset", offset_s, 1e9),
	LOAD_TIME("from", from_ns),
	LOAD_TIME("until", until_ns),
	LOAD_TIME("period", period_ns),
	LOAD_TIME("length", ramp_ns),
	{ .name = "points", .kind = KEY_READ, .read = read_points },
	{ .name = "on", .kind = KEY_READ, .read = read_bursts },
	{ .name = "file", .kind = KEY_READ, .read = read_file },
};
/* clang-format on */

static int finish_load(struct rows *r, const struct toml_node *table,
		       const struct load_words *words, struct load *l)
{
	static const enum load_kind kinds[] = { LOAD_CONSTANT, LOAD_STEPS,  LOAD_SQUARE,
						LOAD_RAMP,     LOAD_BURSTS, LOAD_STEPS };

	l->kind = kinds[words->kind];
	l->watts = words->unit == 1 || words->kind == 5;
	if (l->kind == LOAD_CONSTANT)
		l->high = words->level;
	l->on_ns = (uint64_t)((double)l->period_ns * words->duty);
	if (l->kind == LOAD_SQUARE && l->period_ns == 0)
		return rows_fail(r, table, "a square load needs a 'period'");
	if (l->period_ns != 0 && l->period_ns < 1000000)
		return rows_fail(r, table, "'period' must be at least 0.001 s");
	if (l->kind == LOAD_RAMP && l->ramp_ns == 0)
		return rows_fail(r, table, "a ramp needs a 'length'");
	if ((l->kind == LOAD_STEPS || l->kind == LOAD_BURSTS) && l->n_points == 0)
		return rows_fail(r, table, "'%s' needs 'points', 'on' or a 'file'",
				 kind_words[words->kind]);
	return 0;
}

static int read_load(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct load_words words = { .level = 1, .load.high = 1, .duty = 0.5 };
	struct load *l = build_grow(&d->loads, &d->n_loads, sizeof(*l));
	const struct toml_node *offset;
	int code;

	if (l == NULL)
		return build_no_memory(r, table);
	if (toml_get(table, "kind") == NULL)
		return rows_fail(r, table, "a load needs a 'kind'");
	/* Read the offset first: it applies to the file even if `file` is before `offset` in
	 * the table. */
	offset = toml_get(table, "offset");
	if (offset != NULL && !rows_number(offset, &words.offset_s))
		return rows_want(r, offset, "a number");
	code = rows_table(r, table, load_keys, COUNT(load_keys), &words);
	/* Copy the load even after a failure: the device then frees the points of the load. */
	*l = words.load;
	return code != 0 ? code : finish_load(r, table, &words, l);
}

static int read_pid(struct rows *r, const struct toml_node *node, void *target)
{
	struct process *p = target;

	if (node->type == TOML_INTEGER && node->v.integer > 0 && node->v.integer < UINT32_MAX)
		p->pid = (uint32_t)node->v.integer;
	else if (node->type == TOML_STRING && strcmp(node->v.string.text, "self") == 0)
		p->pid = (uint32_t)getpid();
	else if (node->type == TOML_STRING && strcmp(node->v.string.text, "parent") == 0)
		p->pid = (uint32_t)getppid();
	else
		return rows_want(r, node, "a number, \"self\" or \"parent\"");
	return 0;
}

static int read_type(struct rows *r, const struct toml_node *node, void *target)
{
	static const char *const words[] = { "compute", "graphics", "both",
					     "mps",     "unlisted", NULL };
	static const unsigned lists[] = { LIST_COMPUTE, LIST_GRAPHICS,
					  LIST_COMPUTE | LIST_GRAPHICS, LIST_MPS, 0 };
	struct process *p = target;

	for (unsigned i = 0; node->type == TOML_STRING && words[i] != NULL; i++) {
		if (strcmp(words[i], node->v.string.text) == 0) {
			p->lists = lists[i];
			return 0;
		}
	}
	return rows_fail(
		r, node,
		"'type' must be \"compute\", \"graphics\", \"both\", \"mps\" or \"unlisted\"");
}

#define PROCESS(member) offsetof(struct process, member)
/* clang-format off */
static const struct key process_keys[] = {
	{ .name = "pid", .kind = KEY_READ, .read = read_pid },
	{ .name = "name", .kind = KEY_TEXT, .offset = PROCESS(name), .max = 64 },
	{ .name = "type", .kind = KEY_READ, .read = read_type },
	{ .name = "from", .kind = KEY_SECONDS, .offset = PROCESS(from_ns) },
	{ .name = "until", .kind = KEY_SECONDS, .offset = PROCESS(until_ns) },
	{ .name = "memory", .kind = KEY_BYTES, .offset = PROCESS(bytes) },
	{ .name = "growth", .kind = KEY_SKIP },
	{ .name = "max_memory", .kind = KEY_BYTES, .offset = PROCESS(max_bytes) },
	{ .name = "share", .kind = KEY_NUMBER, .offset = PROCESS(share), .max = 1 },
	{ .name = "encoder", .kind = KEY_NUMBER, .offset = PROCESS(encoder), .max = 1 },
	{ .name = "decoder", .kind = KEY_NUMBER, .offset = PROCESS(decoder), .max = 1 },
	{ .name = "sm_percent", .kind = KEY_UINT, .offset = PROCESS(sm_percent), .max = 1e9 },
	{ .name = "hidden", .kind = KEY_BOOL, .offset = PROCESS(hidden) },
	{ .name = "no_memory", .kind = KEY_BOOL, .offset = PROCESS(no_memory) },
	{ .name = "copies", .kind = KEY_UINT, .offset = PROCESS(copies), .min = 1, .max = 100 },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "gpu_instance", .kind = KEY_UINT, .offset = PROCESS(gpu_instance),
	  .max = 64 },
	{ .name = "compute_instance", .kind = KEY_UINT, .offset = PROCESS(compute_instance),
	  .max = 64 },
};
/* clang-format on */

/* The values of two keys of [[gpu.process]] that are not members of struct process. */
struct process_more {
	uint64_t growth;
	unsigned count;
};
/* clang-format off */
static const struct key process_more_keys[] = {
	{ .name = "growth", .kind = KEY_BYTES,
	  .offset = offsetof(struct process_more, growth) },
	{ .name = "count", .kind = KEY_UINT, .offset = offsetof(struct process_more, count),
	  .min = 1, .max = 2000 },
};
/* clang-format on */

static int read_process(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct process_more more = { .count = 1 };

	if (rows_some(r, table, process_more_keys, COUNT(process_more_keys), &more) != 0)
		return -1;
	for (unsigned i = 0; i < more.count; i++) {
		struct process *p =
			build_grow(&b->d->processes, &b->d->n_processes, sizeof(*p));

		if (p == NULL)
			return build_no_memory(r, table);
		*p = (struct process){ .pid = b->next_pid++,
				       .name = "simulated",
				       .lists = LIST_COMPUTE,
				       .bytes = UINT64_C(512) << 20,
				       .copies = 1,
				       .bytes_per_s = (double)more.growth,
				       .gpu_instance = UINT32_MAX,
				       .compute_instance = UINT32_MAX };
		p->share = -1;
		if (rows_table(r, table, process_keys, COUNT(process_keys), p) != 0)
			return -1;
	}
	return 0;
}

#define MIG(member) offsetof(struct mig, member)
/* clang-format off */
static const struct key mig_keys[] = {
	{ .name = "index", .kind = KEY_UINT, .offset = MIG(index), .max = WORLD_MIGS_MAX - 1 },
	{ .name = "gpu_instance", .kind = KEY_UINT, .offset = MIG(gpu_instance), .max = 64 },
	{ .name = "compute_instance", .kind = KEY_UINT, .offset = MIG(compute_instance),
	  .max = 64 },
	{ .name = "slices", .kind = KEY_UINT, .offset = MIG(slices), .min = 1, .max = 8 },
	{ .name = "memory", .kind = KEY_BYTES, .offset = MIG(bytes) },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = MIG(uuid), .max = 64 },
	{ .name = "profile", .kind = KEY_TEXT, .offset = MIG(profile), .max = 16 },
};
/* clang-format on */

static int read_mig(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct mig *m;

	if (d->n_migs == WORLD_MIGS_MAX)
		return rows_fail(r, table, "a GPU can have at most %d MIG instances",
				 WORLD_MIGS_MAX);
	m = &d->migs[d->n_migs];
	*m = (struct mig){ .gpu_instance = d->n_migs + 1,
			   .index = d->n_migs,
			   .slices = 1,
			   .bytes = d->p.memory_mib / 8 << 20 };
	snprintf(m->uuid, sizeof(m->uuid), "MIG-%08x-51d0-5000-8000-%012x",
		 0x51000000u + d->id.index * 0x01010101u, d->n_migs + 1);
	if (rows_table(r, table, mig_keys, COUNT(mig_keys), m) != 0)
		return -1;
	if (m->profile[0] == 0)
		snprintf(m->profile, sizeof(m->profile), "%ug.%ugb", m->slices & 15,
			 (unsigned)(m->bytes >> 30) & 0xffff);
	d->mig_enabled = true;
	d->n_migs++;
	return 0;
}

#define SENSOR(member) offsetof(struct sensor_params, member)
#define SENSOR_MS(member)                                                                 \
	{                                                                                 \
		.name = #member, .kind = KEY_NUMBER, .offset = SENSOR(member), .max = 1e5 \
	}
#define SENSOR_PART_MS(part, member)                                                          \
	{                                                                                     \
		.name = #part "_" #member, .kind = KEY_NUMBER, .offset = SENSOR(part.member), \
		.max = 1e5                                                                    \
	}
#define SENSOR_BOOL(member)                                                 \
	{                                                                   \
		.name = #member, .kind = KEY_BOOL, .offset = SENSOR(member) \
	}
/* clang-format off */
static const struct key sensor_keys[] = {
	SENSOR_MS(period_ms),
	SENSOR_MS(average_ms),
	SENSOR_MS(average_lag_ms),
	SENSOR_MS(instant_ms),
	SENSOR_MS(instant_lag_ms),
	{ .name = "sample_ms", .kind = KEY_NUMBER, .offset = SENSOR(sample.gap_ms), .max = 1e5 },
	SENSOR_PART_MS(sample, phase_ms),
	SENSOR_PART_MS(sample, age_ms),
	SENSOR_PART_MS(sample, filter_ms),
	SENSOR_MS(low_pass_ms),
	{ .name = "gain", .kind = KEY_NUMBER, .offset = SENSOR(gain), .min = 0.1, .max = 10 },
	{ .name = "offset_w", .kind = KEY_NUMBER, .offset = SENSOR(offset_w),
	  .min = -100, .max = 100 },
	{ .name = "module_w", .kind = KEY_NUMBER, .offset = SENSOR(module_w), .max = 1e4 },
	SENSOR_MS(tick_ms),
	SENSOR_MS(tick_phase_ms),
	SENSOR_MS(tick_lag_ms),
	SENSOR_MS(read_loss_ms),
	SENSOR_MS(read_safe_ms),
	{ .name = "counter_start_mj", .kind = KEY_BITS, .offset = SENSOR(counter_start_mj) },
	{ .name = "counter_bits", .kind = KEY_UINT, .offset = SENSOR(counter_bits),
	  .min = 8, .max = 64 },
	{ .name = "ring_gap_ms", .kind = KEY_NUMBER, .offset = SENSOR(ring.gap_ms),
	  .min = 1, .max = 1e5 },
	SENSOR_PART_MS(ring, phase_ms),
	SENSOR_PART_MS(ring, age_ms),
	SENSOR_PART_MS(ring, jitter_ms),
	SENSOR_PART_MS(ring, delay_ms),
	SENSOR_PART_MS(ring, filter_ms),
	{ .name = "ring_entries", .kind = KEY_UINT, .offset = SENSOR(ring.entries),
	  .min = 1, .max = 1000 },
	{ .name = "ring_copies", .kind = KEY_UINT, .offset = SENSOR(ring.copies),
	  .min = 1, .max = 10 },
	{ .name = "ring_ignores_since", .kind = KEY_BOOL, .offset = SENSOR(ring.ignores_since) },
	SENSOR_BOOL(power_is_instant),
	SENSOR_BOOL(own_time),
	SENSOR_BOOL(no_average),
	SENSOR_BOOL(no_instant),
	SENSOR_BOOL(no_counter),
	SENSOR_BOOL(no_ring),
};
/* clang-format on */

static int read_sensor(struct rows *r, const struct toml_node *node, void *target)
{
	struct device *d = target;
	struct sensor_params *s = &d->p.sensor;

	if (rows_table(r, node, sensor_keys, COUNT(sensor_keys), s) != 0)
		return -1;
	if (s->low_pass_ms > 0 && s->sample.gap_ms > 0)
		return rows_fail(r, node, "'low_pass_ms' and 'sample_ms' exclude each other");
	if (s->ring.jitter_ms >= s->ring.gap_ms)
		return rows_fail(r, node, "'ring_jitter_ms' must be below 'ring_gap_ms'");
	return 0;
}

static int read_memory(struct rows *r, const struct toml_node *node, void *target)
{
	struct device *d = target;
	uint64_t bytes;

	if (rows_bytes(r, node, &bytes) != 0)
		return -1;
	d->p.memory_mib = bytes >> 20;
	return 0;
}

#define GPU(member) offsetof(struct device, member)
#define GPU_NUMBER(key, member, lowest, highest)                                       \
	{                                                                              \
		.name = key, .kind = KEY_NUMBER, .offset = GPU(member), .min = lowest, \
		.max = highest                                                         \
	}
#define GPU_UINT(key, member, highest)                                               \
	{                                                                            \
		.name = key, .kind = KEY_UINT, .offset = GPU(member), .max = highest \
	}
/* clang-format off */
static const struct key gpu_keys[] = {
	{ .name = "profile", .kind = KEY_SKIP },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "name", .kind = KEY_TEXT, .offset = GPU(id.name), .max = 96 },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = GPU(id.uuid), .max = 64 },
	{ .name = "serial", .kind = KEY_TEXT, .offset = GPU(id.serial), .max = 30 },
	{ .name = "memory", .kind = KEY_READ, .read = read_memory },
	{ .name = "used", .kind = KEY_BYTES, .offset = GPU(base_bytes) },
	{ .name = "follow", .kind = KEY_TEXT, .offset = GPU(follow), .max = 256 },
	GPU_UINT("minor", id.minor, 255),
	GPU_UINT("domain", id.domain, 0xffff),
	GPU_UINT("bus", id.bus, 255),
	GPU_UINT("slot", id.slot, 31),
	GPU_NUMBER("noise", noise, 0, 1),
	GPU_NUMBER("idle_w", p.idle_w, 0, 1e4),
	GPU_NUMBER("context_w", p.context_w, 0, 1e4),
	GPU_NUMBER("max_w", p.max_w, 1, 1e4),
	GPU_NUMBER("limit_w", p.limit.default_w, 1, 1e4),
	GPU_NUMBER("limit_min_w", p.limit.min_w, 0, 1e4),
	GPU_NUMBER("limit_max_w", p.limit.max_w, 1, 1e4),
	GPU_NUMBER("ambient_c", p.heat.ambient_c, -40, 120),
	GPU_NUMBER("c_per_w", p.heat.c_per_w, 0, 10),
	GPU_NUMBER("thermal_s", p.heat.constant_s, 0, 1e4),
	GPU_UINT("fans", p.fans, 8),
	GPU_UINT("ecc_corrected", errors.ecc_corrected, 1e9),
	GPU_UINT("ecc_uncorrected", errors.ecc_uncorrected, 1e9),
	GPU_UINT("remapped", errors.remapped, 3072),
	GPU_UINT("remap_pending", errors.remap_pending, 1),
	GPU_UINT("remap_failed", errors.remap_failed, 1),
	GPU_UINT("replays", errors.replays, 1e9),
	GPU_UINT("recovery_action", errors.recovery_action, 100),
	GPU_UINT("list_growth", lists.growth, 1000),
	{ .name = "persistence", .kind = KEY_BOOL, .offset = GPU(set.persistence) },
	{ .name = "accounting", .kind = KEY_BOOL, .offset = GPU(set.accounting) },
	{ .name = "sensor", .kind = KEY_READ, .read = read_sensor },
	{ .name = "load", .kind = KEY_EACH, .each = read_load },
	{ .name = "process", .kind = KEY_EACH, .each = read_process },
	{ .name = "mig", .kind = KEY_EACH, .each = read_mig },
};
/* clang-format on */

/* Processes without a given share divide the load equally. */
static void share_out(struct device *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n_processes; i++)
		n += d->processes[i].share < 0;
	for (size_t i = 0; i < d->n_processes; i++)
		if (d->processes[i].share < 0)
			d->processes[i].share = 1 / (double)n;
}

struct gpu_head {
	char profile[32];
	unsigned count;
};
/* clang-format off */
static const struct key gpu_head_keys[] = {
	{ .name = "profile", .kind = KEY_TEXT, .offset = offsetof(struct gpu_head, profile),
	  .max = 32 },
	{ .name = "count", .kind = KEY_UINT, .offset = offsetof(struct gpu_head, count),
	  .min = 1, .max = WORLD_DEVICES_MAX },
};
/* clang-format on */

int build_gpu(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct gpu_head head = { "h200", 1 };
	const struct profile *p;
	unsigned first = b->w->n_devices;

	if (rows_some(r, table, gpu_head_keys, COUNT(gpu_head_keys), &head) != 0)
		return -1;
	p = profile_find(head.profile);
	if (p == NULL) {
		const char *near = suggest(head.profile, &profiles[0].key, n_profiles,
					   sizeof(profiles[0]));

		return rows_fail(r, toml_get(table, "profile"),
				 "no profile is called '%s'; did you mean '%s'?", head.profile,
				 near != NULL ? near : profiles[0].key);
	}
	if (head.count > 1 && toml_get(table, "uuid") != NULL)
		return rows_fail(r, toml_get(table, "uuid"),
				 "several GPUs cannot have the same 'uuid'");
	if (world_add(b->w, p, head.count) == NULL)
		return rows_fail(r, table, "a scenario can have at most %d GPUs",
				 WORLD_DEVICES_MAX);
	for (unsigned i = 0; i < head.count; i++) {
		b->d = &b->w->devices[first + i];
		if (rows_table(r, table, gpu_keys, COUNT(gpu_keys), b->d) != 0)
			return -1;
		b->d->set.limit_w = b->d->p.limit.default_w;
		share_out(b->d);
	}
	return 0;
}
