/* NVML GPM: metrics between two samples. */
#include <stdlib.h>

#include "abi.h"

struct gpm_sample {
	bool taken;
	unsigned device;
	uint64_t at_ns;
	double busy_s;
};

/* Values under full load: roughly a matrix product on an H200. */
static const struct {
	unsigned id;
	double percent;
	const char *name, *unit;
} metrics[] = {
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

static void fill_metric(struct abi_gpm_metric_value *m, double share)
{
	m->code = ABI_NOT_SUPPORTED;
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		if (metrics[i].id != m->id)
			continue;
		m->code = ABI_SUCCESS;
		m->value = metrics[i].percent * share;
		m->short_name = m->long_name = metrics[i].name;
		m->unit = metrics[i].unit;
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
		fill_metric(&m->metric[i],
			    (b->busy_s - a->busy_s) / ((double)(b->at_ns - a->at_ns) * 1e-9));
	return ABI_SUCCESS;
}
