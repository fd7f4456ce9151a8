/* nvml_event: receives events of the driver, and reads its ring buffer of power readings. */
#include "nvml.h"

#include <stdlib.h>

/* The ring held 119 or 120 readings on every GPU we measured; we request twice that. */
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
			continue; /* some drivers return entries that were returned before */
		out[used].wall_us = ring[i].timestamp_us;
		out[used++].power_w = ring[i].value.u32 * 1e-3;
	}
	return (int)used;
}

/* P-state and clock events occur every 100 ms (measured), and nobody uses them. */
#define NOISE       (ABI_EVENT_PSTATE | ABI_EVENT_CLOCK)
#define MEMBERS_MAX 256 /* maximum number of GPUs in a set; open_devices() opens no more */

/* The driver's event set and the handles of the GPUs in it. The handles are copied here,
 * because an event names a handle, and the handle of a device may change meanwhile. */
struct events {
	abi_set set;
	struct {
		struct device *device;
		abi_device handle;
		unsigned attached;
		bool accepted; /* false: the driver refused this GPU and is not asked again */
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
		return 0; /* lost: it may come back */
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
