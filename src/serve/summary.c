#include "summary.h"

#include "device/device.h"

#include <string.h>

#define GIB 1073741824.0

/* Why nothing is known if no GPU responds. */
static enum gw_absence silence(const struct gw_snapshot *snap)
{
	const struct gw_device *d = gw_snapshot_device(snap, 0);
	enum gw_cause cause = gw_snapshot_status(snap)->cause;

	if (d)
		return device_silence(d->state, d->cause);
	if (cause == GW_CAUSE_STALLED)
		return GW_ABSENT_STALLED;
	return gw_cause_info(cause)->severity == GW_SEVERITY_ERROR ? GW_ABSENT_NO_DRIVER
								   : GW_ABSENT_NOT_PRESENT;
}

static struct summary_figure figure(const struct summary *s, unsigned q, double scale)
{
	const struct gw_device *d = s->device;
	struct summary_figure f = { 0, s->silence };

	if (d)
		f.why = gw_device_value(d, q, &f.v);
	f.v *= scale;
	return f;
}

void summary_of(const struct gw_snapshot *snap, struct summary *ret)
{
	const struct gw_device *first = NULL;

	memset(ret, 0, sizeof(*ret));
	ret->gpu_count = gw_snapshot_device_count(snap);
	for (unsigned i = 0; i < ret->gpu_count; i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);

		if (d->state != GW_DEVICE_OK)
			continue;
		first = first ? first : d;
		ret->cuda_available |= d->vendor == GW_VENDOR_NVIDIA;
	}
	ret->device = first;
	ret->silence = first ? GW_HAVE : silence(snap);
	ret->gpu_available = first != NULL;
	ret->gpu_name = first ? gw_device_text(first, GW_T_NAME) : NULL;
	ret->total_vram_gb = figure(ret, GW_Q_MEMORY_TOTAL, 1 / GIB);
	ret->used_vram_gb = figure(ret, GW_Q_MEMORY_USED, 1 / GIB);
	ret->free_vram_gb = figure(ret, GW_Q_MEMORY_FREE, 1 / GIB);
	ret->utilization_percent = figure(ret, GW_Q_UTILIZATION_GPU, 100);
	ret->temperature_c = figure(ret, GW_Q_TEMPERATURE_GPU, 1);
}
