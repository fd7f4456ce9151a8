/* nvml_event: events of the driver, and the ring of power readings it keeps by itself. */
#include "nvml.h"

#include <stdlib.h>

/* The ring held 119 or 120 readings wherever it was looked at; twice that is asked for. */
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
			continue; /* some drivers answer with what was seen before */
		out[used].wall_us = ring[i].timestamp_us;
		out[used++].power_w = ring[i].value.u32 * 1e-3;
	}
	return (int)used;
}

/* P-state and clock events come every 100 ms (measured): they would only wake us. */
#define NOISE (ABI_EVENT_PSTATE | ABI_EVENT_CLOCK)

int nvml_events_open(struct backend *b, void **ret_events)
{
	struct nvml *n = b->priv;
	unsigned registered = 0;
	abi_set set = NULL;

	if (!n || !n->call.event_set_create || !n->call.event_register || !n->call.event_wait ||
	    !n->call.event_set_free || n->call.event_set_create(&set) != ABI_SUCCESS)
		return -GW_E_NOSUPPORT;
	for (unsigned i = 0; i < b->count; i++) {
		struct nvml_device *nd = b->slot[i]->priv;
		uint64_t types = ABI_EVENT_XID;

		if (!nd || !nd->handle)
			continue;
		if (n->call.event_types &&
		    n->call.event_types(nd->handle, &types) != ABI_SUCCESS)
			continue;
		types &= ~(uint64_t)NOISE;
		if (types && n->call.event_register(nd->handle, types, set) == ABI_SUCCESS)
			registered++;
	}
	if (registered == 0) {
		n->call.event_set_free(set);
		return -GW_E_NOSUPPORT;
	}
	*ret_events = set;
	return 0;
}

static struct device *device_of(struct backend *b, abi_device handle)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct nvml_device *nd = b->slot[i]->priv;

		if (nd && nd->handle == handle)
			return b->slot[i];
	}
	return NULL;
}

int nvml_events_wait(struct backend *b, void *events, unsigned timeout_ms,
		     struct device_event *ret)
{
	struct nvml *n = b->priv;
	struct abi_event_data data = { 0 };
	abi_return code;

	data.gpu_instance = ABI_NO_U32;
	code = n->call.event_wait(events, &data, timeout_ms);
	if (code == ABI_TIMEOUT)
		return 0;
	if (code != ABI_SUCCESS)
		return -GW_E_LOST;
	ret->device = device_of(b, data.device);
	ret->type = data.type;
	ret->data = data.data;
	ret->gpu_instance =
		data.gpu_instance == ABI_NO_U32 ? -1 : (int)(data.gpu_instance & 0xFFFF);
	return 1;
}

void nvml_events_close(struct backend *b, void *events)
{
	struct nvml *n = b->priv;

	if (n && events)
		n->call.event_set_free(events);
}
