/* [[gpu]] */
#include <string.h>

#include "base/suggest.h"
#include "build.h"

#define SENSOR(member) offsetof(struct sensor_params, member)
#define SENSOR_MS(member)                                                                 \
	{                                                                                 \
		.name = #member, .kind = KEY_NUMBER, .offset = SENSOR(member), .max = 1e5 \
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
	SENSOR_MS(sample_ms),
	SENSOR_MS(sample_phase_ms),
	SENSOR_MS(sample_age_ms),
	SENSOR_MS(sample_filter_ms),
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
	{ .name = "ring_gap_ms", .kind = KEY_NUMBER, .offset = SENSOR(ring_gap_ms),
	  .min = 1, .max = 1e5 },
	SENSOR_MS(ring_phase_ms),
	SENSOR_MS(ring_age_ms),
	SENSOR_MS(ring_jitter_ms),
	SENSOR_MS(ring_delay_ms),
	SENSOR_MS(ring_filter_ms),
	{ .name = "ring_entries", .kind = KEY_UINT, .offset = SENSOR(ring_entries),
	  .min = 1, .max = 1000 },
	{ .name = "ring_copies", .kind = KEY_UINT, .offset = SENSOR(ring_copies),
	  .min = 1, .max = 10 },
	SENSOR_BOOL(ring_ignores_since),
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

	if (rows_table(r, node, sensor_keys, N_ROWS(sensor_keys), s) != 0)
		return -1;
	if (s->low_pass_ms > 0 && s->sample_ms > 0)
		return rows_fail(r, node,
				 "'low_pass_ms' and 'sample_ms' are two makes of sensor");
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
/* clang-format off */
static const struct key gpu_keys[] = {
	{ .name = "profile", .kind = KEY_SKIP },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "name", .kind = KEY_TEXT, .offset = GPU(name), .max = 96 },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = GPU(uuid), .max = 64 },
	{ .name = "serial", .kind = KEY_TEXT, .offset = GPU(serial), .max = 30 },
	{ .name = "memory", .kind = KEY_READ, .read = read_memory },
	{ .name = "used", .kind = KEY_BYTES, .offset = GPU(base_bytes) },
	{ .name = "follow", .kind = KEY_TEXT, .offset = GPU(follow), .max = 256 },
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
	{ .name = "load", .kind = KEY_READ, .read = build_loads },
	{ .name = "process", .kind = KEY_READ, .read = build_processes },
	{ .name = "mig", .kind = KEY_READ, .read = build_migs },
};
/* clang-format on */

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
/* clang-format off */
static const struct key gpu_head_keys[] = {
	{ .name = "profile", .kind = KEY_TEXT, .offset = offsetof(struct gpu_head, profile),
	  .max = 32 },
	{ .name = "count", .kind = KEY_UINT, .offset = offsetof(struct gpu_head, count),
	  .min = 1, .max = WORLD_DEVICES_MAX },
};
/* clang-format on */

static int read_gpu(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct gpu_head head = { "h200", 1 };
	const struct profile *p;
	unsigned first = b->w->n_devices;

	if (rows_some(r, table, gpu_head_keys, N_ROWS(gpu_head_keys), &head) != 0)
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
		if (rows_table(r, table, gpu_keys, N_ROWS(gpu_keys), b->d) != 0)
			return -1;
		b->d->limit_w = b->d->p.limit_w;
		share_out(b->d);
	}
	return 0;
}

int build_gpus(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return build_each(r, node, read_gpu);
}
