#include "scenario.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "base/suggest.h"
#include "rows.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Pids that belong to nobody: above what Linux hands out by default. */
#define NOBODY_PID       4000000u
#define TRACE_POINTS_MAX 1000000u

struct build {
	struct world *w;
	struct device *d; /* being read */
	uint32_t next_pid;
	const char *path; /* of the scenario, or its name */
};

static struct build *building(struct rows *r)
{
	return r->context;
}

/* One more element at the end of a growing array, zeroed. */
static void *grow(void *array, size_t *n, size_t size)
{
	void **p = array;
	char *grown = reallocarray(*p, *n + 1, size);

	if (grown == NULL)
		return NULL;
	*p = grown;
	memset(grown + *n * size, 0, size);
	return grown + (*n)++ * size;
}

/* Calls `one` for each table of an array of tables. */
static int each(struct rows *r, const struct toml_node *list,
		int (*one)(struct rows *r, const struct toml_node *table))
{
	if (list->type != TOML_ARRAY)
		return rows_want(r, list, "a list of tables");
	for (const struct toml_node *c = list->child; c != NULL; c = c->next)
		if (one(r, c) != 0)
			return -1;
	return 0;
}

static int no_memory(struct rows *r, const struct toml_node *node)
{
	return rows_fail(r, node, "no memory");
}

/* ---- loads ---- */

struct load_words {
	struct load load;
	double level, duty, offset_s;
	unsigned kind, unit;
};

static int add_point(struct rows *r, const struct toml_node *node, struct load *l, double at_s,
		     double level)
{
	uint64_t at_ns = at_s > 0 ? (uint64_t)llround(at_s * 1e9) : 0;

	if (l->n_points != 0 && at_ns < l->points[l->n_points - 1].at_ns)
		return rows_fail(r, node, "times of a load must not go back (%g s)", at_s);
	/* Room in powers of two: a trace can be long. */
	if ((l->n_points & (l->n_points - 1)) == 0) {
		size_t room = l->n_points == 0 ? 1 : 2 * l->n_points;
		struct load_point *grown = reallocarray(l->points, room, sizeof(*grown));

		if (grown == NULL || room > TRACE_POINTS_MAX)
			return no_memory(r, node);
		l->points = grown;
	}
	l->points[l->n_points++] = (struct load_point){ at_ns, level };
	return 0;
}

static int read_pair(struct rows *r, const struct toml_node *pair, double out[2])
{
	if (pair->type != TOML_ARRAY || pair->count != 2 ||
	    !rows_number(pair->child, &out[0]) || !rows_number(pair->child->next, &out[1]))
		return rows_fail(r, pair, "a point is a list of two numbers");
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

/* A trace beside the scenario: lines of "seconds,watts", or of "ON start end" for bursts; what
 * does not look like one is a heading or a remark. */
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
	f = fopen(path, "re");
	if (f == NULL)
		return rows_fail(r, node, "cannot read '%s': %s", path, strerror(errno));
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
		return rows_fail(r, table, "a square load wants a 'period'");
	if (l->kind == LOAD_RAMP && l->ramp_ns == 0)
		return rows_fail(r, table, "a ramp wants a 'length'");
	if ((l->kind == LOAD_STEPS || l->kind == LOAD_BURSTS) && l->n_points == 0)
		return rows_fail(r, table, "'%s' wants 'points', 'on' or a 'file'",
				 kind_words[words->kind]);
	return 0;
}

static int read_load(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct load_words words = { .level = 1, .load.high = 1, .duty = 0.5 };
	struct load *l = grow(&d->loads, &d->n_loads, sizeof(*l));
	const struct toml_node *offset;
	int code;

	if (l == NULL)
		return no_memory(r, table);
	if (toml_get(table, "kind") == NULL)
		return rows_fail(r, table, "a load wants a 'kind'");
	/* It shifts a file, whichever of the two stands first. */
	offset = toml_get(table, "offset");
	if (offset != NULL && !rows_number(offset, &words.offset_s))
		return rows_want(r, offset, "a number");
	code = rows_table(r, table, load_keys, N(load_keys), &words);
	*l = words.load; /* also on failure: its points belong to the device now */
	return code != 0 ? code : finish_load(r, table, &words, l);
}

static int read_loads(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_load);
}

/* ---- processes and instances ---- */

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
	static const char *const words[] = { "compute", "graphics", "both", "mps", NULL };
	static const unsigned lists[] = { LIST_COMPUTE, LIST_GRAPHICS,
					  LIST_COMPUTE | LIST_GRAPHICS, LIST_MPS };
	struct process *p = target;

	for (unsigned i = 0; node->type == TOML_STRING && words[i] != NULL; i++) {
		if (strcmp(words[i], node->v.string.text) == 0) {
			p->lists = lists[i];
			return 0;
		}
	}
	return rows_fail(r, node, "'type' is \"compute\", \"graphics\", \"both\" or \"mps\"");
}

#define PROCESS(member) offsetof(struct process, member)
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
	{ .name = "hidden", .kind = KEY_BOOL, .offset = PROCESS(hidden) },
	{ .name = "no_memory", .kind = KEY_BOOL, .offset = PROCESS(no_memory) },
	{ .name = "copies", .kind = KEY_UINT, .offset = PROCESS(copies), .min = 1, .max = 100 },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "gpu_instance",
	  .kind = KEY_UINT,
	  .offset = PROCESS(gpu_instance),
	  .max = 64 },
	{ .name = "compute_instance",
	  .kind = KEY_UINT,
	  .offset = PROCESS(compute_instance),
	  .max = 64 },
};

/* Two keys that are no member as they stand. */
struct process_more {
	uint64_t growth;
	unsigned count;
};
static const struct key process_more_keys[] = {
	{ .name = "growth",
	  .kind = KEY_BYTES,
	  .offset = offsetof(struct process_more, growth) },
	{ .name = "count",
	  .kind = KEY_UINT,
	  .offset = offsetof(struct process_more, count),
	  .min = 1,
	  .max = 2000 },
};

/* Reads only those members of the table that have a row. */
static int read_some(struct rows *r, const struct toml_node *table, const struct key *keys,
		     size_t n, void *target)
{
	for (size_t i = 0; i < n; i++) {
		const struct toml_node *node = toml_get(table, keys[i].name);
		struct toml_node only, holder;

		if (node == NULL)
			continue;
		only = *node;
		only.next = NULL;
		holder = *table;
		holder.child = &only;
		if (rows_table(r, &holder, keys, n, target) != 0)
			return -1;
	}
	return 0;
}

static int read_process(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct process_more more = { .count = 1 };

	if (read_some(r, table, process_more_keys, N(process_more_keys), &more) != 0)
		return -1;
	for (unsigned i = 0; i < more.count; i++) {
		struct process *p = grow(&b->d->processes, &b->d->n_processes, sizeof(*p));

		if (p == NULL)
			return no_memory(r, table);
		*p = (struct process){ .pid = b->next_pid++,
				       .name = "simulated",
				       .lists = LIST_COMPUTE,
				       .bytes = UINT64_C(512) << 20,
				       .copies = 1,
				       .bytes_per_s = (double)more.growth,
				       .gpu_instance = UINT32_MAX,
				       .compute_instance = UINT32_MAX };
		p->share = -1;
		if (rows_table(r, table, process_keys, N(process_keys), p) != 0)
			return -1;
	}
	return 0;
}

static int read_processes(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_process);
}

#define MIG(member) offsetof(struct mig, member)
static const struct key mig_keys[] = {
	{ .name = "index", .kind = KEY_UINT, .offset = MIG(index), .max = WORLD_MIGS_MAX - 1 },
	{ .name = "gpu_instance", .kind = KEY_UINT, .offset = MIG(gpu_instance), .max = 64 },
	{ .name = "compute_instance",
	  .kind = KEY_UINT,
	  .offset = MIG(compute_instance),
	  .max = 64 },
	{ .name = "slices", .kind = KEY_UINT, .offset = MIG(slices), .min = 1, .max = 8 },
	{ .name = "memory", .kind = KEY_BYTES, .offset = MIG(bytes) },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = MIG(uuid), .max = 64 },
	{ .name = "profile", .kind = KEY_TEXT, .offset = MIG(profile), .max = 16 },
};

static int read_mig(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct mig *m;

	if (d->n_migs == WORLD_MIGS_MAX)
		return rows_fail(r, table, "a GPU has at most %d instances", WORLD_MIGS_MAX);
	m = &d->migs[d->n_migs];
	*m = (struct mig){ .gpu_instance = d->n_migs + 1,
			   .index = d->n_migs,
			   .slices = 1,
			   .bytes = d->p.memory_mib / 8 << 20 };
	snprintf(m->uuid, sizeof(m->uuid), "MIG-%08x-51d0-5000-8000-%012x",
		 0x51000000u + d->index * 0x01010101u, d->n_migs + 1);
	if (rows_table(r, table, mig_keys, N(mig_keys), m) != 0)
		return -1;
	if (m->profile[0] == 0)
		snprintf(m->profile, sizeof(m->profile), "%ug.%ugb", m->slices & 15,
			 (unsigned)(m->bytes >> 30) & 0xffff);
	d->mig_enabled = true;
	d->n_migs++;
	return 0;
}

static int read_migs(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_mig);
}

/* ---- GPUs ---- */

#define SENSOR(member) offsetof(struct sensor_params, member)
#define SENSOR_MS(member)                                                                 \
	{                                                                                 \
		.name = #member, .kind = KEY_NUMBER, .offset = SENSOR(member), .max = 1e5 \
	}
#define SENSOR_BOOL(member)                                                 \
	{                                                                   \
		.name = #member, .kind = KEY_BOOL, .offset = SENSOR(member) \
	}
static const struct key sensor_keys[] = {
	SENSOR_MS(period_ms),
	SENSOR_MS(average_ms),
	SENSOR_MS(average_lag_ms),
	SENSOR_MS(instant_ms),
	SENSOR_MS(instant_lag_ms),
	SENSOR_MS(sample_ms),
	SENSOR_MS(sample_phase_ms),
	SENSOR_MS(sample_age_ms),
	SENSOR_MS(sample_filter_ms),
	{ .name = "gain", .kind = KEY_NUMBER, .offset = SENSOR(gain), .min = 0.1, .max = 10 },
	{ .name = "offset_w",
	  .kind = KEY_NUMBER,
	  .offset = SENSOR(offset_w),
	  .min = -100,
	  .max = 100 },
	SENSOR_MS(tick_ms),
	SENSOR_MS(tick_phase_ms),
	SENSOR_MS(tick_lag_ms),
	SENSOR_MS(read_loss_ms),
	{ .name = "ring_gap_ms",
	  .kind = KEY_NUMBER,
	  .offset = SENSOR(ring_gap_ms),
	  .min = 1,
	  .max = 1e5 },
	SENSOR_MS(ring_phase_ms),
	SENSOR_MS(ring_age_ms),
	SENSOR_MS(ring_jitter_ms),
	SENSOR_MS(ring_delay_ms),
	SENSOR_MS(ring_filter_ms),
	{ .name = "ring_entries",
	  .kind = KEY_UINT,
	  .offset = SENSOR(ring_entries),
	  .min = 1,
	  .max = 1000 },
	SENSOR_BOOL(power_is_instant),
	SENSOR_BOOL(no_average),
	SENSOR_BOOL(no_instant),
	SENSOR_BOOL(no_counter),
	SENSOR_BOOL(no_ring),
};

static int read_sensor(struct rows *r, const struct toml_node *node, void *target)
{
	struct device *d = target;
	struct sensor_params *s = &d->p.sensor;

	if (rows_table(r, node, sensor_keys, N(sensor_keys), s) != 0)
		return -1;
	if (s->ring_jitter_ms >= s->ring_gap_ms)
		return rows_fail(r, node, "'ring_jitter_ms' must be below 'ring_gap_ms'");
	return 0;
}

static int read_memory(struct rows *r, const struct toml_node *node, void *target)
{
	struct device *d = target;
	struct {
		uint64_t bytes;
	} v = { 0 };
	const struct key keys[] = { { .name = "memory", .kind = KEY_BYTES } };
	struct toml_node only = *node, holder = { .type = TOML_TABLE, .child = &only };

	only.next = NULL;
	if (rows_table(r, &holder, keys, 1, &v) != 0)
		return -1;
	d->p.memory_mib = v.bytes >> 20;
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
static const struct key gpu_keys[] = {
	{ .name = "profile", .kind = KEY_SKIP },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "name", .kind = KEY_TEXT, .offset = GPU(name), .max = 96 },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = GPU(uuid), .max = 64 },
	{ .name = "serial", .kind = KEY_TEXT, .offset = GPU(serial), .max = 30 },
	{ .name = "memory", .kind = KEY_READ, .read = read_memory },
	{ .name = "used", .kind = KEY_BYTES, .offset = GPU(base_bytes) },
	GPU_UINT("minor", minor, 255),
	GPU_UINT("domain", domain, 0xffff),
	GPU_UINT("bus", bus, 255),
	GPU_UINT("slot", slot, 31),
	GPU_NUMBER("noise", noise, 0, 1),
	GPU_NUMBER("idle_w", p.idle_w, 0, 1e4),
	GPU_NUMBER("context_w", p.context_w, 0, 1e4),
	GPU_NUMBER("max_w", p.max_w, 1, 1e4),
	GPU_NUMBER("limit_w", p.limit_w, 1, 1e4),
	GPU_NUMBER("limit_min_w", p.limit_min_w, 0, 1e4),
	GPU_NUMBER("limit_max_w", p.limit_max_w, 1, 1e4),
	GPU_NUMBER("ambient_c", p.ambient_c, -40, 120),
	GPU_NUMBER("c_per_w", p.c_per_w, 0, 10),
	GPU_NUMBER("thermal_s", p.thermal_s, 0, 1e4),
	GPU_UINT("fans", p.fans, 8),
	GPU_UINT("ecc_corrected", ecc_corrected, 1e9),
	GPU_UINT("ecc_uncorrected", ecc_uncorrected, 1e9),
	GPU_UINT("remapped", remapped, 3072),
	GPU_UINT("remap_pending", remap_pending, 1),
	GPU_UINT("remap_failed", remap_failed, 1),
	GPU_UINT("replays", replays, 1e9),
	GPU_UINT("recovery_action", recovery_action, 100),
	GPU_UINT("list_growth", list_growth, 1000),
	{ .name = "persistence", .kind = KEY_BOOL, .offset = GPU(persistence) },
	{ .name = "accounting", .kind = KEY_BOOL, .offset = GPU(accounting) },
	{ .name = "sensor", .kind = KEY_READ, .read = read_sensor },
	{ .name = "load", .kind = KEY_READ, .read = read_loads },
	{ .name = "process", .kind = KEY_READ, .read = read_processes },
	{ .name = "mig", .kind = KEY_READ, .read = read_migs },
};

/* Processes whose share was not given have the load to equal parts. */
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
static const struct key gpu_head_keys[] = {
	{ .name = "profile",
	  .kind = KEY_TEXT,
	  .offset = offsetof(struct gpu_head, profile),
	  .max = 32 },
	{ .name = "count",
	  .kind = KEY_UINT,
	  .offset = offsetof(struct gpu_head, count),
	  .min = 1,
	  .max = WORLD_DEVICES_MAX },
};

static int read_gpu(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct gpu_head head = { "h200", 1 };
	const struct profile *p;
	unsigned first = b->w->n_devices;

	if (read_some(r, table, gpu_head_keys, N(gpu_head_keys), &head) != 0)
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
				 "several GPUs cannot have one 'uuid'");
	if (world_add(b->w, p, head.count) == NULL)
		return rows_fail(r, table, "a world has at most %d GPUs", WORLD_DEVICES_MAX);
	for (unsigned i = 0; i < head.count; i++) {
		b->d = &b->w->devices[first + i];
		if (rows_table(r, table, gpu_keys, N(gpu_keys), b->d) != 0)
			return -1;
		b->d->limit_w = b->d->p.limit_w;
		share_out(b->d);
	}
	return 0;
}

static int read_gpus(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_gpu);
}

/* ---- faults and timeline ---- */

/* Number of a call; -1: "*"; -2 and the sentence: there is none. */
static int read_symbol(struct rows *r, const struct toml_node *node)
{
	const char *near;
	int call;

	if (node->type != TOML_STRING) {
		rows_want(r, node, "the name of an NVML function");
		return -2;
	}
	if (strcmp(node->v.string.text, "*") == 0)
		return -1;
	call = call_find(node->v.string.text);
	if (call >= 0)
		return call;
	near = suggest(node->v.string.text, call_symbols, N_CALLS, sizeof(call_symbols[0]));
	if (near != NULL)
		rows_fail(r, node, "no function is called '%s'; did you mean '%s'?",
			  node->v.string.text, near);
	else
		rows_fail(r, node, "no function is called '%s'", node->v.string.text);
	return -2;
}

static int read_call(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	f->call = read_symbol(r, node);
	return f->call < -1 ? -1 : 0;
}

static int read_code(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	if (node->type != TOML_INTEGER || node->v.integer < 0 || node->v.integer > 100000)
		return rows_want(r, node, "an NVML return code");
	f->has_code = true;
	f->code = (int)node->v.integer;
	return 0;
}

static int read_sentinel(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	if (node->type != TOML_INTEGER)
		return rows_want(r, node, "a whole number");
	f->has_value = true;
	f->value = (uint64_t)node->v.integer;
	return 0;
}

#define FAULT(member) offsetof(struct fault, member)
static const struct key fault_keys[] = {
	{ .name = "call", .kind = KEY_READ, .read = read_call },
	{ .name = "gpu",
	  .kind = KEY_INT,
	  .offset = FAULT(device),
	  .max = WORLD_DEVICES_MAX - 1 },
	{ .name = "field", .kind = KEY_UINT, .offset = FAULT(field), .max = 100000 },
	{ .name = "from", .kind = KEY_SECONDS, .offset = FAULT(from_ns) },
	{ .name = "until", .kind = KEY_SECONDS, .offset = FAULT(until_ns) },
	{ .name = "code", .kind = KEY_READ, .read = read_code },
	{ .name = "delay", .kind = KEY_SECONDS, .offset = FAULT(delay_ns) },
	{ .name = "hang", .kind = KEY_BOOL, .offset = FAULT(hang) },
	{ .name = "value", .kind = KEY_READ, .read = read_sentinel },
};

static int read_fault(struct rows *r, const struct toml_node *table)
{
	struct world *w = building(r)->w;
	struct fault *f = grow(&w->faults, &w->n_faults, sizeof(*f));

	if (f == NULL)
		return no_memory(r, table);
	f->call = -2;
	f->device = -1;
	if (rows_table(r, table, fault_keys, N(fault_keys), f) != 0)
		return -1;
	if (f->field != 0 && f->call == -2)
		f->call = CALL_nvmlDeviceGetFieldValues;
	if (f->call == -2)
		return rows_fail(r, table, "a fault wants a 'call' (or a 'field')");
	return 0;
}

static int read_faults(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_fault);
}

/* The words of a timeline, what they do and which event they send. */
static const struct {
	const char *word;
	enum action_kind kind;
	uint64_t type;
} actions[] = {
	{ "event", ACTION_EVENT, 0 },
	{ "xid", ACTION_EVENT, ABI_EVENT_XID },
	{ "lose", ACTION_LOSE, 0 },
	{ "heal", ACTION_HEAL, 0 },
	{ "reload", ACTION_RELOAD, 0 },
	{ "wall-step", ACTION_WALL, 0 },
	{ "counter-reset", ACTION_COUNTER, 0 },
	{ "counter-step", ACTION_COUNTER, 0 },
	{ "counter-freeze", ACTION_FREEZE, 0 },
	{ "counter-thaw", ACTION_THAW, 0 },
	{ "ecc-corrected", ACTION_ECC, ABI_EVENT_ECC_SINGLE },
	{ "ecc-uncorrected", ACTION_ECC, ABI_EVENT_ECC_DOUBLE },
	{ "recovery", ACTION_RECOVERY, ABI_EVENT_RECOVERY_ACTION },
	{ "mig-change", ACTION_EVENT, ABI_EVENT_MIG_CHANGE },
};

static int read_do(struct rows *r, const struct toml_node *node, void *target)
{
	struct action *a = target;
	const char *near;

	if (node->type != TOML_STRING)
		return rows_want(r, node, "a word");
	for (size_t i = 0; i < N(actions); i++) {
		if (strcmp(actions[i].word, node->v.string.text) != 0)
			continue;
		a->kind = actions[i].kind;
		if (actions[i].type != 0)
			a->type = actions[i].type;
		return 0;
	}
	near = suggest(node->v.string.text, &actions[0].word, N(actions), sizeof(actions[0]));
	return rows_fail(r, node, "nothing called '%s' can be done; did you mean '%s'?",
			 node->v.string.text, near != NULL ? near : actions[0].word);
}

#define ACTION(member) offsetof(struct action, member)
static const struct key action_keys[] = {
	{ .name = "at", .kind = KEY_SECONDS, .offset = ACTION(at_ns) },
	{ .name = "do", .kind = KEY_READ, .read = read_do },
	{ .name = "gpu",
	  .kind = KEY_INT,
	  .offset = ACTION(device),
	  .max = WORLD_DEVICES_MAX - 1 },
	{ .name = "type", .kind = KEY_BITS, .offset = ACTION(type) },
	{ .name = "data", .kind = KEY_BITS, .offset = ACTION(data) },
	{ .name = "length", .kind = KEY_SECONDS, .offset = ACTION(length_ns) },
	{ .name = "step", .kind = KEY_STEP, .offset = ACTION(step_ns) },
	{ .name = "joules",
	  .kind = KEY_NUMBER,
	  .offset = ACTION(step_j),
	  .min = -1e9,
	  .max = 1e9 },
	{ .name = "version", .kind = KEY_TEXT, .offset = ACTION(version), .max = 32 },
};

static int read_action(struct rows *r, const struct toml_node *table)
{
	struct world *w = building(r)->w;
	struct action *a = grow(&w->actions, &w->n_actions, sizeof(*a));

	if (a == NULL)
		return no_memory(r, table);
	a->device = -1;
	if (table->type == TOML_TABLE && toml_get(table, "do") == NULL)
		return rows_fail(r, table, "an entry of the timeline wants a 'do'");
	if (rows_table(r, table, action_keys, N(action_keys), a) != 0)
		return -1;
	if (a->version[0] != 0)
		snprintf(a->nvml, sizeof(a->nvml), "13.%.28s", a->version);
	return 0;
}

static int read_timeline(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return each(r, node, read_action);
}

/* ---- driver, time, top ---- */

static int read_missing(struct rows *r, const struct toml_node *node, void *target)
{
	struct world *w = target;

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of NVML functions");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next) {
		int call = read_symbol(r, c);
		char **name;

		if (call < 0)
			return call == -1 ? rows_fail(r, c, "not everything can be missing")
					  : -1;
		name = grow(&w->missing, &w->n_missing, sizeof(*name));
		if (name == NULL || (*name = strdup(call_symbols[call])) == NULL)
			return no_memory(r, c);
	}
	return 0;
}

static int read_stride(struct rows *r, const struct toml_node *node, void *target)
{
	struct world *w = target;

	if (node->type != TOML_INTEGER ||
	    (node->v.integer != 16 && node->v.integer != 24 && node->v.integer != 32))
		return rows_fail(r, node, "'process_bytes' is 16, 24 or 32");
	w->stride = (unsigned)node->v.integer;
	return 0;
}

#define WORLD(member) offsetof(struct world, member)
static const struct key driver_keys[] = {
	{ .name = "version", .kind = KEY_TEXT, .offset = WORLD(driver), .max = 32 },
	{ .name = "nvml", .kind = KEY_TEXT, .offset = WORLD(nvml), .max = 32 },
	{ .name = "cuda", .kind = KEY_INT, .offset = WORLD(cuda), .max = 100000 },
	{ .name = "process_bytes", .kind = KEY_READ, .read = read_stride },
	{ .name = "privileged", .kind = KEY_BOOL, .offset = WORLD(privileged) },
	{ .name = "stub", .kind = KEY_BOOL, .offset = WORLD(stub) },
	{ .name = "measured_latency", .kind = KEY_BOOL, .offset = WORLD(measured_latency) },
	{ .name = "utilization_entries",
	  .kind = KEY_UINT,
	  .offset = WORLD(utilization_entries),
	  .max = 1000 },
	{ .name = "missing", .kind = KEY_READ, .read = read_missing },
};

static const char *const mode_words[] = { "real", "scaled", "stepped", NULL };
static const struct key time_keys[] = {
	{ .name = "mode", .kind = KEY_CHOICE, .offset = WORLD(mode), .words = mode_words },
	{ .name = "rate",
	  .kind = KEY_NUMBER,
	  .offset = WORLD(rate),
	  .min = 0.001,
	  .max = 100000 },
	{ .name = "wall", .kind = KEY_SECONDS, .offset = WORLD(wall_ns), .max = 9e9 },
};

static int read_driver(struct rows *r, const struct toml_node *node, void *target)
{
	return rows_table(r, node, driver_keys, N(driver_keys), target);
}

static int read_time(struct rows *r, const struct toml_node *node, void *target)
{
	return rows_table(r, node, time_keys, N(time_keys), target);
}

static const struct key top_keys[] = {
	{ .name = "time", .kind = KEY_READ, .read = read_time },
	{ .name = "driver", .kind = KEY_READ, .read = read_driver },
	{ .name = "gpu", .kind = KEY_READ, .read = read_gpus },
	{ .name = "fault", .kind = KEY_READ, .read = read_faults },
	{ .name = "timeline", .kind = KEY_READ, .read = read_timeline },
};

struct world *scenario_parse(const char *name, const char *text, size_t size, char *error,
			     size_t error_size)
{
	struct build b = { .w = world_new(), .next_pid = NOBODY_PID, .path = name };
	struct rows r = { name, error, error_size, &b };
	struct toml_error where;
	struct toml *doc = NULL;
	int code;

	if (b.w == NULL) {
		snprintf(error, error_size, "%s:0:0: no memory", name);
		return NULL;
	}
	code = toml_parse(text, size, &doc, &where);
	if (code != 0)
		snprintf(error, error_size, "%s:%u:%u: %s", name, where.line, where.column,
			 where.text);
	else
		code = rows_table(&r, toml_top(doc), top_keys, N(top_keys), b.w);
	toml_free(doc);
	if (code == 0 && (code = world_start(b.w)) != 0)
		snprintf(error, error_size, "%s:0:0: no memory", name);
	if (code == 0)
		return b.w;
	world_free(b.w);
	return NULL;
}
