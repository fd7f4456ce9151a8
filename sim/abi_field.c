/* NVML field values, the driver's sample buffers, and GPM (metrics that are computed between
 * two GPM samples). */
#include <math.h>
#include <stdlib.h>

#include "abi.h"

#include "base/clock.h"

/* Fields with consecutive ids. */
struct field {
	unsigned first, last; /* first and last id */
	enum abi_value_type type;
	unsigned needs; /* set of enum profile_trait that the GPU must have */
	/* Returns the value, or NAN if the field is not supported (code 3). */
	double (*value)(struct ctx *c, unsigned scope, unsigned id);
};

static double limited(struct ctx *c, unsigned scope, unsigned id)
{
	const uint64_t *ns = c->d->control.limited_ns;

	(void)scope;
	switch (id) {
	case ABI_FIELD_LIMITED_POWER: return (double)ns[LIMITED_POWER];
	case ABI_FIELD_LIMITED_THERMAL: return (double)ns[LIMITED_THERMAL];
	case ABI_FIELD_LIMITED_SYNC_BOOST: return (double)ns[LIMITED_SYNC_BOOST];
	case ABI_FIELD_LIMITED_THERMAL_SOFTWARE: return (double)ns[LIMITED_SOFTWARE_THERMAL];
	case ABI_FIELD_LIMITED_THERMAL_HARDWARE: return (double)ns[LIMITED_HARDWARE_THERMAL];
	case ABI_FIELD_LIMITED_POWER_BRAKE: return (double)ns[LIMITED_BRAKE];
	default: return NAN;
	}
}

static double zero(struct ctx *c, unsigned scope, unsigned id)
{
	(void)c, (void)scope, (void)id;
	return 0;
}

static double memory_c(struct ctx *c, unsigned scope, unsigned id)
{
	(void)scope, (void)id;
	return floor(history_celsius(&c->d->history, c->d->now_ns) + 1);
}

/* Returns 0 if the counter exists, else NAN. The value itself is read elsewhere, because a
 * double cannot hold the 64 bits of the counter. */
static double has_energy(struct ctx *c, unsigned scope, unsigned id)
{
	(void)id;
	if (c->d->sensor.p.no_counter || scope != ABI_SCOPE_GPU)
		return NAN;
	return 0;
}

/* Returns the power of the memory: 45 W when idle, 62 W with a context, and more under load. */
static double memory_mw(const struct device *d)
{
	double load = history_mean_load(&d->history, d->now_ns, NS_PER_S);

	return 1e3 * ((d->control.reasons & ABI_REASON_IDLE ? 45 : 62) + 60 * load);
}

static double average_mw(struct ctx *c, unsigned scope, unsigned id)
{
	(void)id;
	if (scope == ABI_SCOPE_MEMORY && c->d->p.traits & TRAIT_MEMORY_POWER)
		return memory_mw(c->d);
	if (c->d->sensor.p.no_average || (scope != 0 && !(c->d->p.traits & TRAIT_MODULE)))
		return NAN;
	sensor_refresh(&c->d->sensor, &c->d->history, c->d->now_ns);
	return 1e3 * c->d->sensor.average_w;
}

static double instant_mw(struct ctx *c, unsigned scope, unsigned id)
{
	(void)id;
	if (c->d->sensor.p.no_instant ||
	    (scope != 0 && !(scope == ABI_SCOPE_MODULE && c->d->p.traits & TRAIT_MODULE)))
		return NAN;
	sensor_refresh(&c->d->sensor, &c->d->history, c->d->now_ns);
	return 1e3 * c->d->sensor.instant_w;
}

static double limit_mw(struct ctx *c, unsigned scope, unsigned id)
{
	const struct device *d = c->d;

	if (scope != 0 || d->p.traits & TRAIT_NO_LIMIT)
		return NAN;
	if (id == ABI_FIELD_POWER_MIN)
		return d->p.limit.min_w * 1e3;
	if (id == ABI_FIELD_POWER_MAX)
		return d->p.limit.max_w * 1e3;
	return (id == ABI_FIELD_POWER_DEFAULT ? d->p.limit.default_w : d->set.limit_w) * 1e3;
}

static double tlimit_c(struct ctx *c, unsigned scope, unsigned id)
{
	const struct profile *p = &c->d->p;

	(void)scope;
	if (id == ABI_FIELD_TLIMIT_SHUTDOWN)
		return p->heat.gpu_max_c - p->heat.shutdown_c;
	return id == ABI_FIELD_TLIMIT_SLOWDOWN ? p->heat.gpu_max_c - p->heat.slowdown_c : 0;
}

/* Returns the bytes since the world began. The field has only the low 32 bits, so it wraps at
 * 4 GiB. */
static double pcie_bytes(struct ctx *c, unsigned scope, unsigned id)
{
	double busy = history_busy_s(&c->d->history, c->d->now_ns);
	double bytes = 4.5e5 * (double)c->d->now_ns * 1e-9 +
		       busy * (id == ABI_FIELD_PCIE_SENT ? 2.0e8 : 1.4e9);

	(void)scope;
	return fmod(bytes, 4294967296.0);
}

static double health(struct ctx *c, unsigned scope, unsigned id)
{
	const struct device *d = c->d;

	(void)scope;
	switch (id) {
	case ABI_FIELD_PCIE_REPLAYS: return d->errors.replays;
	case ABI_FIELD_REMAPPED_UNCORRECTABLE: return d->errors.remapped;
	case ABI_FIELD_REMAPPED_PENDING: return d->errors.remap_pending;
	case ABI_FIELD_REMAPPED_FAILURE: return d->errors.remap_failed;
	case ABI_FIELD_RECOVERY_ACTION: return d->errors.recovery_action;
	default: return 0;
	}
}

static const struct field fields[] = {
	{ 74, 76, ABI_VALUE_U64, 0, limited },
	{ 77, 81, ABI_VALUE_U64, 0, zero },
	{ 82, 82, ABI_VALUE_U32, TRAIT_MEMORY_SENSOR, memory_c },
	{ 83, 83, ABI_VALUE_U64, 0, has_energy },
	{ 94, 95, ABI_VALUE_U32, 0, health },
	{ 142, 145, ABI_VALUE_U32, TRAIT_ROWS, health },
	{ 185, 185, ABI_VALUE_U32, 0, average_mw },
	{ 186, 186, ABI_VALUE_U32, 0, instant_mw },
	{ 187, 190, ABI_VALUE_U32, 0, limit_mw },
	{ 191, 191, ABI_VALUE_U64, 0, has_energy },
	{ 192, 192, ABI_VALUE_U32, 0, limit_mw },
	{ 193, 196, ABI_VALUE_I32, TRAIT_TLIMIT, tlimit_c },
	{ 197, 198, ABI_VALUE_U32, TRAIT_PCIE_COUNTERS, pcie_bytes },
	{ 230, 230, ABI_VALUE_U32, TRAIT_ROWS, health },
	{ 269, 271, ABI_VALUE_U64, 0, limited },
};

static const struct field *find_field(unsigned id)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (id >= fields[i].first && id <= fields[i].last)
			return &fields[i];
	return NULL;
}

static void fill_field(struct ctx *c, struct abi_field_value *v)
{
	const struct field *f = find_field(v->field);
	struct fault fault = abi_field_fault(c, v->field);
	double value;

	v->timestamp_us = (int64_t)abi_us(c, c->now_ns);
	v->latency_us = 0;
	v->code = ABI_NOT_SUPPORTED;
	if (fault.has_code) {
		v->code = fault.code;
		return;
	}
	if (f == NULL || (c->d->p.traits & f->needs) != f->needs)
		return;
	value = f->value(c, v->scope, v->field);
	if (isnan(value))
		return;
	v->code = ABI_SUCCESS;
	v->type = (int32_t)f->type;
	/* Only the bytes of the type are written; the other bytes of the union stay
	 * unchanged. */
	if (fault.has_value && f->type == ABI_VALUE_U64)
		v->value.u64 = fault.value;
	else if (f->type == ABI_VALUE_U64)
		v->value.u64 =
			f->value == has_energy ? device_counter_mj(c->d) : (uint64_t)value;
	else if (f->type == ABI_VALUE_I32)
		v->value.i32 = fault.has_value ? (int32_t)fault.value : (int32_t)value;
	else
		v->value.u32 =
			fault.has_value ? (uint32_t)fault.value : (uint32_t)llround(value);
}

DEVICE_CALL(nvmlDeviceGetFieldValues, (int n, struct abi_field_value *values), n, values)
{
	if (n <= 0 || values == NULL)
		return ABI_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++)
		fill_field(c, &values[i]);
	return ABI_SUCCESS;
}

/* The sample buffers. Power comes from the sensor's ring. Utilisation and clocks have
 * SLOW_ENTRIES entries that are SLOW_GAP_NS apart. */
#define SLOW_ENTRIES 71
#define SLOW_GAP_NS  UINT64_C(200000000)

static struct abi_sample slow_sample(const struct ctx *c, unsigned type, uint64_t k)
{
	const struct history *h = &c->d->history;
	uint64_t at_ns = k * SLOW_GAP_NS;
	struct abi_sample s = { .timestamp_us = abi_us(c, at_ns) };
	double value = 0;

	if (type == ABI_SAMPLE_GPU || type == ABI_SAMPLE_MEMORY)
		value = (type == ABI_SAMPLE_GPU ? 100 : 55) *
			history_mean_load(h, at_ns, SLOW_GAP_NS);
	else if (type == ABI_SAMPLE_SM_CLOCK)
		value = history_at(h, at_ns)->clock;
	else if (type == ABI_SAMPLE_MEMORY_CLOCK)
		value = device_memory_mhz(c->d);
	s.value.u32 = (uint32_t)llround(value);
	return s;
}

static struct abi_sample buffer_sample(const struct ctx *c, unsigned type, uint64_t k)
{
	struct sensor_sample r;
	struct abi_sample s = { 0 };

	if (type != ABI_SAMPLE_POWER)
		return slow_sample(c, type, k);
	r = sensor_ring_sample(&c->d->sensor, &c->d->history, k);
	s.timestamp_us = abi_us(c, r.at_ns);
	s.value.u32 = (uint32_t)llround(1e3 * r.watts);
	return s;
}

/* Sets *first to the number of the oldest stored sample and *end to the number of the first
 * sample that is not available yet. */
static void stored_range(const struct ctx *c, unsigned type, uint64_t *first, uint64_t *end)
{
	const struct sensor *s = &c->d->sensor;
	uint64_t entries = SLOW_ENTRIES;
	double gap_ns = (double)SLOW_GAP_NS;

	if (type == ABI_SAMPLE_POWER) {
		*end = sensor_ring_count(s, c->now_ns);
		entries = s->p.ring.entries;
		gap_ns = s->p.ring.gap_ms * 1e6;
	} else {
		*end = c->now_ns / SLOW_GAP_NS + 1;
	}
	*first = *end > entries ? *end - entries : 0;
	/* Samples from before the driver started are lost. */
	if (s->epoch_ns != 0 && (double)*first * gap_ns < (double)s->epoch_ns)
		*first = (uint64_t)((double)s->epoch_ns / gap_ns) + 1;
}

static abi_return samples_refused(const struct ctx *c, unsigned type, uint32_t *value_type,
				  uint32_t *count)
{
	if (value_type == NULL || count == NULL || type > ABI_SAMPLE_OFA ||
	    type == ABI_SAMPLE_MODULE_POWER)
		return ABI_INVALID_ARGUMENT;
	if (type == ABI_SAMPLE_POWER ? c->d->sensor.p.no_ring : c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetSamples,
	    (uint32_t type, uint64_t last_us, uint32_t *value_type, uint32_t *count,
	     struct abi_sample *out),
	    type, last_us, value_type, count, out)
{
	abi_return code;
	uint64_t first, end;
	uint32_t n = 0;
	unsigned copies = 1;

	code = samples_refused(c, type, value_type, count);
	if (code != ABI_SUCCESS)
		return code;
	*value_type = ABI_VALUE_U32;
	stored_range(c, type, &first, &end);
	if (type == ABI_SAMPLE_POWER) {
		const struct sensor_params *p = &c->d->sensor.p;

		copies = p->ring.copies > 1 ? p->ring.copies : 1;
		last_us = p->ring.ignores_since ? 0 : last_us;
	}
	if (out == NULL) {
		*count = type == ABI_SAMPLE_POWER ? c->d->sensor.p.ring.entries * copies + 1
						  : SLOW_ENTRIES + 1;
		return ABI_SUCCESS;
	}
	for (uint64_t k = first; k < end && n < *count; k++) {
		struct abi_sample s = buffer_sample(c, type, k);

		for (unsigned i = 0; i < copies && n < *count; i++)
			if (s.timestamp_us > last_us)
				out[n++] = s;
	}
	*count = n;
	return n != 0 ? ABI_SUCCESS : ABI_NOT_FOUND;
}

struct gpm_sample {
	bool taken;      /* A sample was taken: the members below are valid. */
	unsigned device; /* index of the GPU */
	uint64_t at_ns;
	double busy_s; /* busy seconds of the GPU since the world began */
};

/* The GPM metrics, with their values under full load: roughly those of a matrix product on an
 * H200. */
static const struct {
	unsigned id;
	double percent;
	const char *name, *unit;
} gpm_metrics[] = {
	{ 1, 100, "graphics_util", "%" },
	{ 2, 98, "sm_util", "%" },
	{ 3, 42, "sm_occupancy", "%" },
	{ 4, 8, "integer_util", "%" },
	{ 5, 81, "any_tensor_util", "%" },
	{ 6, 0, "dfma_tensor_util", "%" },
	{ 7, 81, "hmma_tensor_util", "%" },
	{ 9, 0, "imma_tensor_util", "%" },
	{ 10, 55, "dram_bw_util", "%" },
	{ 11, 0, "fp64_util", "%" },
	{ 12, 11, "fp32_util", "%" },
	{ 13, 3, "fp16_util", "%" },
	{ 20, 190, "pcie_tx_per_sec", "MiB/s" },
	{ 21, 1300, "pcie_rx_per_sec", "MiB/s" },
};

DEVICE_CALL(nvmlGpmQueryDeviceSupport, (struct abi_gpm_support * out), out)
{
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (out->version != 1)
		return ABI_ARGUMENT_VERSION_MISMATCH;
	out->supported = (c->d->p.traits & TRAIT_GPM) != 0;
	return ABI_SUCCESS;
}

SYSTEM_CALL(nvmlGpmSampleAlloc, (abi_gpm_sample * out), out)
{
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	*out = calloc(1, sizeof(struct gpm_sample));
	return *out != NULL ? ABI_SUCCESS : ABI_MEMORY;
}

INIT_CALL(nvmlGpmSampleFree, (abi_gpm_sample sample), sample)
{
	free(sample);
	return sample != NULL ? ABI_SUCCESS : ABI_INVALID_ARGUMENT;
}

static abi_return gpm_take(const struct ctx *c, struct gpm_sample *s)
{
	if (s == NULL)
		return ABI_INVALID_ARGUMENT;
	if (!(c->d->p.traits & TRAIT_GPM))
		return ABI_NOT_SUPPORTED;
	*s = (struct gpm_sample){ true, c->d->id.index, c->now_ns,
				  history_busy_s(&c->d->history, c->now_ns) };
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlGpmSampleGet, (abi_gpm_sample sample), sample)
{
	return gpm_take(c, sample);
}

DEVICE_CALL(nvmlGpmMigSampleGet, (uint32_t gpu_instance, abi_gpm_sample sample), gpu_instance,
	    sample)
{
	(void)gpu_instance;
	return gpm_take(c, sample);
}

static void gpm_fill(struct abi_gpm_metric_value *m, double share)
{
	m->code = ABI_NOT_SUPPORTED;
	for (size_t i = 0; i < sizeof(gpm_metrics) / sizeof(gpm_metrics[0]); i++) {
		if (gpm_metrics[i].id != m->id)
			continue;
		m->code = ABI_SUCCESS;
		m->value = gpm_metrics[i].percent * share;
		m->short_name = m->long_name = gpm_metrics[i].name;
		m->unit = gpm_metrics[i].unit;
	}
}

SYSTEM_CALL(nvmlGpmMetricsGet, (struct abi_gpm_metrics * m), m)
{
	const struct gpm_sample *a, *b;

	if (m == NULL || m->count > ABI_GPM_METRICS_MAX)
		return ABI_INVALID_ARGUMENT;
	if (m->version != 1)
		return ABI_ARGUMENT_VERSION_MISMATCH;
	a = m->first;
	b = m->second;
	if (a == NULL || b == NULL || !a->taken || !b->taken || a->device != b->device ||
	    a->at_ns >= b->at_ns)
		return ABI_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < m->count; i++)
		gpm_fill(&m->metric[i],
			 (b->busy_s - a->busy_s) / ((double)(b->at_ns - a->at_ns) * 1e-9));
	return ABI_SUCCESS;
}
