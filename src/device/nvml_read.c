/* nvml_read: reads the values of one device, tier by tier.
 *
 * The table nvml_readers.def says which call returns which quantity; a new quantity with its
 * own call is one row. A row that the device refuses for good is not read again until the
 * driver is opened again. */
#include "nvml_reader.h"

#include "base/array.h"

#include <stdio.h>
#include <string.h>

static const struct nvml_reader readers[] = {
#define READ(tier, shape, call, which, scale, most, older, ...)                           \
	{ GW_TIER_##tier, SHAPE_##shape, CALL_##call, CALL_##older,                       \
	  which,          scale,         most,        sizeof((uint8_t[]){ __VA_ARGS__ }), \
	  { __VA_ARGS__ } },
#include "nvml_readers.def"
#undef READ
};
#define READERS COUNT(readers)
_Static_assert(READERS <= NVML_READERS_MAX, "a plan must hold every row");

static unsigned tier_bit(enum gw_tier tier)
{
	return (unsigned)__builtin_ctz(tier);
}

void nvml_plan(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);

	memset(nd->planned, 0, sizeof(nd->planned));
	for (unsigned i = 0; i < READERS; i++) {
		unsigned t = tier_bit(readers[i].tier);

		nd->plan[t][nd->planned[t]++] = (uint8_t)i;
	}
}

void nvml_missing(const struct nvml *n, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < READERS; i++) {
		const struct nvml_reader *row = &readers[i];
		const char *name = nvml_symbol[row->call];

		if (n->any[row->call] || (row->older != CALL_none && n->any[row->older]) ||
		    strstr(out, name))
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "",
					 name);
		if (used >= size)
			return;
	}
}

static bool try_older(abi_return code)
{
	return code == ABI_FUNCTION_NOT_FOUND || code == ABI_DEPRECATED ||
	       code == ABI_ARGUMENT_VERSION_MISMATCH || code == ABI_NOT_SUPPORTED;
}

static abi_return read_row(struct device *d, const struct nvml_reader *row)
{
	const struct nvml *n = nvml_of(d);
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (n->any[row->call])
		code = nvml_shape_read(d, row, row->call);
	if (row->older != CALL_none && n->any[row->older] && try_older(code))
		code = nvml_shape_read(d, row, row->older);
	return code;
}

struct outcome {
	unsigned good, bad;
	abi_return first_bad; /* the first error that concerns only a value, not the device */
	abi_return fault;     /* hardware fault that the driver reported */
	bool stop;            /* the device or the driver is gone; all values are absent */
};

static void row_failed(struct device *d, const struct nvml_reader *row, abi_return code,
		       struct outcome *o)
{
	const struct nvml_meaning *m = nvml_meaning(code);

	nvml_shape_absent(d, row, m->absence);
	if (m->reaction == REACT_FAULT)
		o->fault = code;
	if (m->absence == GW_ABSENT_ERROR && o->bad++ == 0)
		o->first_bad = code;
	o->stop = nvml_react(d, code);
}

/* True if this row need not be read: a value of STATIC does not change. */
static bool row_is_known(const struct device *d, const struct nvml_reader *row)
{
	return row->tier == GW_TIER_STATIC && report_has(&d->r, row->q[0]);
}

/* True if values of STATIC are absent because a call failed that may work later. Rows that the
 * driver refused for good are not in the plan. */
static bool lacks_static(struct device *d)
{
	const struct nvml_device *nd = nvml_device_of(d);
	const unsigned t = tier_bit(GW_TIER_STATIC);

	if (!d->r.tier_ns[t]) /* not requested so far */
		return false;
	for (unsigned i = 0; i < nd->planned[t]; i++) {
		const uint8_t why = d->r.why[readers[nd->plan[t][i]].q[0]];

		if (why != GW_HAVE && why != GW_ABSENT_INVALID)
			return true;
	}
	return nvml_lacks_texts(d);
}

static void read_tier(struct device *d, unsigned t, struct outcome *o)
{
	struct nvml_device *nd = nvml_device_of(d);
	unsigned kept = 0, i;

	for (i = 0; i < nd->planned[t] && !o->stop; i++) {
		uint8_t at = nd->plan[t][i];
		abi_return code =
			row_is_known(d, &readers[at]) ? ABI_SUCCESS : read_row(d, &readers[at]);

		if (code == ABI_SUCCESS)
			o->good++;
		else
			row_failed(d, &readers[at], code, o);
		if (nvml_meaning(code)->reaction != REACT_FORGET)
			nd->plan[t][kept++] = at;
	}
	while (i < nd->planned[t])
		nd->plan[t][kept++] = nd->plan[t][i++];
	nd->planned[t] = (uint8_t)kept;
	nd->fault[t] = o->fault;
	o->fault = ABI_SUCCESS;
}

bool nvml_mig_memory(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);
	bool same = true;

	for (unsigned i = 0; i < d->r.mig_count; i++) {
		struct gw_mig *g = &d->r.mig[i];
		struct abi_memory m;
		abi_return code = ABI_FUNCTION_NOT_FOUND;

		memset(&m, 0xFF, sizeof(m));
		if (nvml_of(d)->call.memory)
			code = NVML(d, memory, nd->mig[i], &m);
		g->memory_absence = nvml_meaning(code)->absence;
		same &= code != ABI_INVALID_ARGUMENT && code != ABI_NOT_FOUND;
		if (code == ABI_SUCCESS &&
		    (m.total == ABI_NO_U64 || m.used == ABI_NO_U64 || m.free == ABI_NO_U64))
			g->memory_absence = GW_ABSENT_INVALID;
		g->memory_total_bytes = g->memory_used_bytes = g->memory_free_bytes = -1;
		if (g->memory_absence != GW_HAVE)
			continue;
		g->memory_total_bytes = (int64_t)m.total;
		g->memory_used_bytes = (int64_t)m.used;
		g->memory_free_bytes = (int64_t)m.free;
	}
	return same;
}

bool nvml_read_one(struct device *d, unsigned quantity)
{
	struct outcome o = { 0 };

	for (unsigned i = 0; i < READERS; i++) {
		abi_return code;

		if (!memchr(readers[i].q, (int)quantity, readers[i].count))
			continue;
		code = read_row(d, &readers[i]);
		if (code != ABI_SUCCESS)
			row_failed(d, &readers[i], code, &o);
		break;
	}
	return !o.stop;
}

void nvml_read_memory(struct device *d)
{
	if (d->priv && nvml_device_of(d)->handle)
		nvml_read_one(d, GW_Q_MEMORY_USED);
}

static void set_state(struct device *d, const struct outcome *o)
{
	abi_return fault = ABI_SUCCESS;
	char code[24];

	/* A fault stays until its tier is read again without a fault. */
	for (unsigned t = 0; t < TIER_COUNT && !fault; t++)
		fault = nvml_device_of(d)->fault[t];
	if (fault)
		report_state(&d->r, GW_DEVICE_FAULT, GW_CAUSE_GPU_FAULT,
			     nvml_code_name(fault, code));
	else if (o->good == 0 && o->bad > 0) /* the device answers, but every call fails */
		report_state(&d->r, GW_DEVICE_FAULT, GW_CAUSE_DRIVER_ERROR,
			     nvml_code_name(o->first_bad, code));
	else
		report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
}

void nvml_read(struct device *d, unsigned tiers)
{
	const struct clock *clock = d->backend->env->clock;
	struct outcome o = { 0 };
	uint64_t begin = clock_mono_ns(clock);

	if (d->r.state != GW_DEVICE_OK)
		nvml_find_again(d);
	if (d->fresh && d->priv && nvml_device_of(d)->handle)
		nvml_identify(d);
	if (!d->priv || !nvml_device_of(d)->handle)
		return;
	/* STATIC is read once. Values of STATIC that failed temporarily are tried again with
	 * HEALTH. */
	if (tiers & GW_TIER_HEALTH && lacks_static(d))
		tiers |= GW_TIER_STATIC;
	d->series_ns = call_cost_now_ns();
	for (unsigned t = 0; t < TIER_COUNT; t++)
		if (tiers & 1u << t)
			read_tier(d, t, &o);
	d->series_ns = 0;
	if (o.stop)
		return;
	if (tiers & GW_TIER_STATIC)
		nvml_read_texts(d);
	/* MIG instances can change at any time: check with HEALTH, or when an instance fails. */
	if (tiers & GW_TIER_HEALTH ||
	    (d->r.mig_count && tiers & GW_TIER_SLOW && !nvml_mig_memory(d)))
		nvml_instances(d);
	/* the GPU was lost meanwhile: its state is already set */
	if (!nvml_device_of(d)->handle)
		return;
	set_state(d, &o);
	report_stamp(&d->r, tiers, begin);
	if (tiers & GW_TIER_FAST) {
		d->r.begin_ns = begin;
		d->r.end_ns = clock_mono_ns(clock);
	}
}
