/* The two short documents; their keys and types never change. */
#include "api_parts.h"

#include <math.h>
#include <string.h>

/* "mb" is 2^20 bytes, as in the programs that use these keys. */
#define MB 1048576.0

static void whole(struct json *j, const char *key, const struct gw_device *d, unsigned quantity,
		  double unit)
{
	double v;

	if (gw_device_value(d, quantity, &v) == GW_HAVE)
		json_int(j, key, (int64_t)llround(v / unit));
	else
		json_null(j, key);
}

static void short_device(struct json *j, const struct gw_device *d)
{
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	json_string(j, "name", gw_device_text(d, GW_T_NAME));
	whole(j, "total_memory_mb", d, GW_Q_MEMORY_TOTAL, MB);
	whole(j, "free_memory_mb", d, GW_Q_MEMORY_FREE, MB);
	whole(j, "used_memory_mb", d, GW_Q_MEMORY_USED, MB);
	whole(j, "utilization_percent", d, GW_Q_UTILIZATION_GPU, 0.01);
	whole(j, "temperature_c", d, GW_Q_TEMPERATURE_GPU, 1);
	json_bool(j, "is_available", d->state == GW_DEVICE_OK);
	json_string(j, "error_message", *d->message ? d->message : NULL);
	json_object_end(j);
}

void api_gpu_devices(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct gw_snapshot *snap = a->view.tick ? a->view.snap : NULL;
	unsigned n = snap ? gw_snapshot_device_count(snap) : 0;
	struct json j;

	(void)q;
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_array(&j, "devices");
	for (unsigned i = 0; i < n; i++)
		short_device(&j, gw_snapshot_device(snap, i));
	json_array_end(&j);
	json_uint(&j, "count", n);
	json_object_end(&j);
	json_end(&j);
}

/* Why there are no versions; NULL: there are. */
static const char *no_versions(const struct api *a, char *out, size_t size)
{
	const struct gw_status *s;

	if (!a->view.tick || !a->view.snap)
		return view_stale(&a->view, api_now(a), out, size);
	s = gw_snapshot_status(a->view.snap);
	/* A driver that was removed has no version either. */
	if (a->view.devices && !view_answers(&a->view))
		return gw_snapshot_device(a->view.snap, 0)->message;
	if (s->driver_version || s->nvml_version)
		return NULL;
	return *s->message ? s->message : "no NVIDIA driver is in use";
}

void api_gpu_driver(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char out[512];
	const char *why = no_versions(a, out, sizeof(out));
	const struct gw_status *s = why ? NULL : gw_snapshot_status(a->view.snap);
	struct json j;

	(void)q;
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_string(&j, "driver_version", s ? s->driver_version : NULL);
	json_string(&j, "cuda_driver_version", s ? s->cuda_version : NULL);
	json_string(&j, "nvml_version", s ? s->nvml_version : NULL);
	if (why)
		json_string(&j, "error_message", why);
	json_object_end(&j);
	json_end(&j);
}
