/* nvml_read: reads from the driver the values of one device (tier by tier), the ring buffer of
 * power readings, and events.
 *
 * The table nvml_readers.def says which call returns which quantity; a new quantity with its
 * own call is one row. A row that the device refuses permanently is not read again until the
 * driver is opened again. */
#include "nvml_reader.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
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

/* The result of reading rows. */
struct outcome {
	unsigned good;        /* number of rows that were read */
	unsigned bad;         /* number of rows that now have the absence reason "error" */
	abi_return first_bad; /* code that the first of these rows returned */
	abi_return fault;     /* code of the last hardware fault; ABI_SUCCESS: none */
	bool stop;            /* The device or the driver is gone; all values are absent. */
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

/* True if this row need not be read again, because a value of the STATIC tier does not
 * change. */
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

	if (!d->r.tier_ns[t]) /* The tier has not been requested so far. */
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
	/* MIG instances can change at any time: check with HEALTH, or when an instance
	 * fails. */
	if (tiers & GW_TIER_HEALTH ||
	    (d->r.mig_count && tiers & GW_TIER_SLOW && !nvml_mig_memory(d)))
		nvml_instances(d);
	if (!nvml_device_of(d)->handle)
		return; /* The GPU was lost during the reading; its state is already set. */
	set_state(d, &o);
	report_stamp(&d->r, tiers, begin);
	if (tiers & GW_TIER_FAST) {
		d->r.begin_ns = begin;
		d->r.end_ns = clock_mono_ns(clock);
	}
}

/* The ring held 119 or 120 readings on every GPU that we measured; we request twice that. */
#define RING_MAX 256

int nvml_power_samples(struct device *d, uint64_t since_us, struct power_sample *out,
		       unsigned cap)
{
	struct nvml_device *nd = nvml_device_of(d);
	struct abi_sample ring[RING_MAX];
	uint32_t type = ABI_VALUE_U32, n = RING_MAX;
	unsigned used = 0;
	abi_return code;

	if (!nd || !nd->handle)
		return -GW_E_LOST;
	if (!nvml_of(d)->call.samples)
		return -GW_E_NOSUPPORT;
	code = NVML(d, samples, nd->handle, ABI_SAMPLE_POWER, since_us, &type, &n, ring);
	if (code == ABI_NOT_FOUND || code == ABI_NO_DATA)
		return 0;
	if (nvml_react(d, code))
		return -GW_E_LOST;
	if (code != ABI_SUCCESS)
		return -GW_E_NOSUPPORT;
	for (uint32_t i = 0; i < n && i < RING_MAX && used < cap; i++) {
		if (ring[i].timestamp_us <= since_us || ring[i].value.u32 == ABI_NO_U32)
			continue; /* Some drivers return the same entry several times. */
		out[used].wall_us = ring[i].timestamp_us;
		out[used++].power_w = ring[i].value.u32 * 1e-3;
	}
	return (int)used;
}

/* Events that are not requested: they occur every 100 ms (measured), and no code uses them. */
#define NOISE       (ABI_EVENT_PSTATE | ABI_EVENT_CLOCK)
#define MEMBERS_MAX 256 /* maximum number of GPUs in a set; nvml.c opens no more GPUs */

/* The driver's event set and the handles of the GPUs in it. The handles are copied here,
 * because an event names a handle, and the handle of a device may change meanwhile. */
struct events {
	abi_set set;
	struct {
		struct device *device;
		abi_device handle;
		unsigned attached;
		bool accepted; /* false: the driver refused this GPU; it is not tried again */
	} member[MEMBERS_MAX];
	unsigned count;
};

bool nvml_has_events(const struct backend *b)
{
	const struct nvml *n = b->priv;

	return n && n->call.event_set_create && n->call.event_register && n->call.event_wait &&
	       n->call.event_set_free;
}

int nvml_events_open(struct backend *b, void **ret_events)
{
	struct nvml *n = b->priv;
	struct events *e;
	abi_return code;

	if (!nvml_has_events(b))
		return -GW_E_NOSUPPORT;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -GW_E_NOMEM;
	code = n->call.event_set_create(&e->set);
	if (code != ABI_SUCCESS) {
		free(e);
		return code == ABI_NOT_SUPPORTED ? -GW_E_NOSUPPORT : -GW_E_LOST;
	}
	*ret_events = e;
	return 0;
}

static abi_return register_events(const struct nvml *n, abi_device handle, abi_set set)
{
	uint64_t types = ABI_EVENT_XID;
	abi_return code = ABI_SUCCESS;

	if (n->call.event_types)
		code = n->call.event_types(handle, &types);
	if (code != ABI_SUCCESS)
		return code;
	types &= ~(uint64_t)NOISE;
	return types ? n->call.event_register(handle, types, set) : ABI_NOT_SUPPORTED;
}

int nvml_events_add(struct device *d, void *events)
{
	struct nvml_device *nd = nvml_device_of(d);
	struct events *e = events;
	abi_return code;

	if (!nd || !nd->handle)
		return 0; /* The GPU is lost, but it may come back. */
	for (unsigned i = 0; i < e->count; i++)
		if (e->member[i].device == d)
			return e->member[i].attached == nd->attached ? e->member[i].accepted
								     : -GW_E_STATE;
	if (e->count == MEMBERS_MAX)
		return 0;
	code = register_events(nvml_of(d), nd->handle, e->set);
	if (code != ABI_SUCCESS && nvml_meaning(code)->reaction != REACT_FORGET)
		return 0;
	e->member[e->count].device = d;
	e->member[e->count].handle = nd->handle;
	e->member[e->count].attached = nd->attached;
	e->member[e->count++].accepted = code == ABI_SUCCESS;
	return code == ABI_SUCCESS;
}

int nvml_events_wait(struct backend *b, void *events, unsigned timeout_ms,
		     struct device_event *ret)
{
	struct nvml *n = b->priv;
	struct events *e = events;
	struct abi_event_data data = { 0 };
	abi_return code;

	data.gpu_instance = ABI_NO_U32;
	code = n->call.event_wait(e->set, &data, timeout_ms);
	if (code == ABI_TIMEOUT)
		return 0;
	if (nvml_meaning(code)->reaction == REACT_REOPEN)
		atomic_store(&b->reopen, true);
	if (code != ABI_SUCCESS)
		return -GW_E_LOST;
	*ret = (struct device_event){ .type = data.type, .data = data.data };
	for (unsigned i = 0; i < e->count && !ret->device; i++)
		if (e->member[i].handle == data.device)
			ret->device = e->member[i].device;
	ret->gpu_instance =
		data.gpu_instance == ABI_NO_U32 ? -1 : (int)(data.gpu_instance & 0xFFFF);
	return 1;
}

void nvml_events_close(struct backend *b, void *events)
{
	struct nvml *n = b->priv;
	struct events *e = events;

	if (!e)
		return;
	if (n)
		n->call.event_set_free(e->set);
	free(e);
}
