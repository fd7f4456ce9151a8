/* nvml_gpm: profiling metrics without a profiler (Hopper and later): the difference of two
 * samples of the driver, which must be more than 100 ms apart. */
#include "nvml_reader.h"

#include <string.h>

static const struct {
	uint8_t q;
	uint32_t metric;
} gpm_metrics[] = {
#define GPM(quantity, metric) { GW_Q_##quantity, ABI_GPM_##metric },
#include "nvml_readers.def"
#undef GPM
};
#define GPM_METRICS (sizeof(gpm_metrics) / sizeof(gpm_metrics[0]))

void nvml_gpm_absent(struct device *d, enum gw_absence why)
{
	for (unsigned i = 0; i < GPM_METRICS; i++)
		report_miss(&d->r, gpm_metrics[i].q, why);
}

static abi_return gpm_prepare(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);
	const struct nvml *n = nvml_of(d);
	struct abi_gpm_support support = { 1, 0 };
	abi_return code;

	if (!n->call.gpm_support || !n->call.gpm_alloc || !n->call.gpm_free ||
	    !n->call.gpm_metrics)
		return ABI_FUNCTION_NOT_FOUND;
	if (nd->gpm[1])
		return ABI_SUCCESS;
	code = NVML(d, gpm_support, nd->handle, &support);
	if (code == ABI_SUCCESS && !support.supported)
		code = ABI_NOT_SUPPORTED;
	for (unsigned i = 0; i < 2 && code == ABI_SUCCESS; i++)
		if (!nd->gpm[i])
			code = NVML(d, gpm_alloc, &nd->gpm[i]);
	return code;
}

static abi_return gpm_difference(struct device *d, double scale)
{
	struct nvml_device *nd = nvml_device_of(d);
	struct abi_gpm_metrics m;
	abi_return code;

	memset(&m, 0, sizeof(m));
	m.version = 1;
	m.count = GPM_METRICS;
	m.first = nd->gpm[0];
	m.second = nd->gpm[1];
	for (unsigned i = 0; i < GPM_METRICS; i++)
		m.metric[i].id = gpm_metrics[i].metric;
	code = NVML(d, gpm_metrics, &m);
	for (unsigned i = 0; i < GPM_METRICS && code == ABI_SUCCESS; i++) {
		double v = m.metric[i].value;

		if (m.metric[i].code != ABI_SUCCESS)
			report_miss(&d->r, gpm_metrics[i].q,
				    nvml_meaning(m.metric[i].code)->absence);
		else if (!(v >= 0 && v <= 101)) /* rounding may pass 100; NaN is no value */
			report_miss(&d->r, gpm_metrics[i].q, GW_ABSENT_INVALID);
		else
			report_set(&d->r, gpm_metrics[i].q, nvml_scaled(v, scale));
	}
	return code;
}

abi_return nvml_gpm_read(struct device *d, const struct reader *row)
{
	struct nvml_device *nd = nvml_device_of(d);
	uint64_t now = clock_mono_ns(d->backend->env->clock);
	abi_return code = gpm_prepare(d);
	abi_gpm_sample swap;

	if (code == ABI_SUCCESS && nd->gpm_ns && now - nd->gpm_ns < 100 * NS_PER_MS) {
		nvml_gpm_absent(d, GW_ABSENT_NO_DATA);
		return code;
	}
	if (code == ABI_SUCCESS)
		code = NVML(d, gpm_get, nd->handle, nd->gpm[1]);
	if (code == ABI_SUCCESS && nd->gpm_ns)
		code = gpm_difference(d, row->scale);
	else if (code == ABI_SUCCESS)
		nvml_gpm_absent(d, GW_ABSENT_FIRST_READING);
	if (code != ABI_SUCCESS) {
		nvml_gpm_absent(d, nvml_meaning(code)->absence);
		return code;
	}
	swap = nd->gpm[0];
	nd->gpm[0] = nd->gpm[1];
	nd->gpm[1] = swap;
	nd->gpm_ns = now;
	return ABI_SUCCESS;
}
