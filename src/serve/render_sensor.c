#include "render_sensor.h"

#include "base/array.h"
#include "base/clock.h"

#include <math.h>

struct figure {
	const char *key;
	double v; /* NAN: unknown */
};

/* Writes the values of a source; "absent" has the reason for each null. If `why` is not
 * GW_HAVE, the source is not available: all values are null for this reason. If the source is
 * available, a missing value was not measured. */
static void write_figures(struct json *j, const struct figure *f, unsigned n,
			  enum gw_absence why)
{
	enum gw_absence missing = why == GW_HAVE ? GW_ABSENT_NOT_READ : why;

	for (unsigned i = 0; i < n; i++)
		json_double(j, f[i].key, why == GW_HAVE ? f[i].v : (double)NAN);
	json_object(j, "absent");
	for (unsigned i = 0; i < n; i++)
		if (why != GW_HAVE || isnan(f[i].v))
			json_string(j, f[i].key, gw_absence_key(missing));
	json_object_end(j);
}

static void source_head(struct json *j, const char *key, const struct sensor_source *s)
{
	json_object(j, key);
	json_bool(j, "supported", s->why == GW_HAVE);
	json_string(j, "model", sensor_model_name(s->model));
	json_uint(j, "changes", s->changes);
	json_string(j, "message", sensor_source_note(s));
}

#define SOURCE_FIGURES(s)                                                               \
	{ "period_seconds", (s)->period_s }, { "window_seconds", (s)->window_s },       \
		{ "lag_seconds", (s)->lag_s }, { "call_p50_seconds", (s)->call_p50_s }, \
	{                                                                               \
		"call_p99_seconds", (s)->call_p99_s                                     \
	}

static void write_source(struct json *j, const char *key, const struct sensor_source *s)
{
	const struct figure f[] = { SOURCE_FIGURES(s) };

	source_head(j, key, s);
	write_figures(j, f, COUNT(f), s->why);
	json_object_end(j);
}

static void write_ring(struct json *j, const struct sensor *s)
{
	const struct figure f[] = { SOURCE_FIGURES(&s->ring),
				    { "span_seconds", s->ring_span_s },
				    { "gap_p10_seconds", s->ring_gap_p10_s },
				    { "gap_p90_seconds", s->ring_gap_p90_s } };

	source_head(j, "ring", &s->ring);
	json_uint(j, "entries", s->ring_entries);
	json_bool(j, "wall_clock_stamps", s->ring_wall);
	write_figures(j, f, COUNT(f), s->ring.why);
	json_object_end(j);
}

static void write_rates(struct json *j, const struct sensor *s)
{
	json_array(j, "rates");
	for (unsigned i = 0; i < SENSOR_RATES; i++) {
		const struct sensor_rate *r = &s->rate[i];

		if (isnan(r->every_s)) /* The rate was not measured. */
			continue;
		json_object(j, NULL);
		json_double(j, "every_seconds", r->every_s);
		json_double(j, "counter_watts", r->counter_w);
		json_double(j, "reference_watts", r->reference_w);
		json_double(j, "difference_ratio", r->counter_w / r->reference_w - 1);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_counter(struct json *j, const struct sensor *s)
{
	const struct figure f[] = { { "tick_seconds", s->tick_s },
				    { "lag_seconds", s->counter_lag_s },
				    { "safe_seconds", s->counter_safe_s },
				    { "call_p50_seconds", s->counter_p50_s },
				    { "call_p99_seconds", s->counter_p99_s } };

	json_object(j, "counter");
	json_bool(j, "supported", s->counter == GW_HAVE);
	json_uint(j, "ticks", s->ticks);
	json_bool(j, "unsafe", s->counter_unsafe);
	write_figures(j, f, COUNT(f), s->counter);
	write_rates(j, s);
	json_object_end(j);
}

void sensor_json(struct json *j, const char *key, const struct sensor *s)
{
	json_object(j, key);
	render_text(j, "uuid", s->uuid);
	render_text(j, "driver_version", s->driver);
	render_text(j, "vbios_version", s->vbios);
	json_string(j, "origin", sensor_origin_name(s->origin));
	json_time(j, "learned_utc", s->wall_ns);
	write_ring(j, s);
	write_source(j, "instant", &s->instant);
	write_source(j, "average", &s->average);
	write_counter(j, s);
	json_string(j, "scope", s->module_scope ? "module" : "board");
	json_bool(j, "calibrated", s->calibration.done);
	json_double(j, "gain", s->calibration.gain);
	json_double(j, "offset_watts", s->calibration.offset_w);
	json_double(j, "gain_uncertainty", s->calibration.gain_u);
	json_double(j, "offset_uncertainty_watts", s->calibration.offset_u_w);
	json_double(j, "pivot_watts", s->calibration.pivot_w);
	json_double(j, "reference_uncertainty", s->calibration.reference_u);
	json_object_end(j);
}

/* Writes which quantities are supported, or why not. */
static void write_support(struct json *j, const struct gw_device *d)
{
	static const unsigned quantities[] = { GW_Q_POWER,
					       GW_Q_POWER_AVERAGE,
					       GW_Q_POWER_INSTANT,
					       GW_Q_POWER_MEMORY,
					       GW_Q_ENERGY,
					       GW_Q_LIMITED_POWER,
					       GW_Q_LIMITED_SYNC_BOOST,
					       GW_Q_LIMITED_THERMAL,
					       GW_Q_LIMITED_THERMAL_SOFTWARE,
					       GW_Q_LIMITED_THERMAL_HARDWARE,
					       GW_Q_LIMITED_POWER_BRAKE };
	double unused;

	json_object(j, "support");
	for (unsigned i = 0; i < COUNT(quantities); i++)
		json_string(j, gw_quantity_info(quantities[i])->key,
			    gw_absence_key(gw_device_value(d, quantities[i], &unused)));
	json_object_end(j);
}

static void write_learned(struct json *j, const struct gw_snapshot *snap,
			  const struct render_learned *l)
{
	const struct gw_device *d = gw_snapshot_device(snap, l->device);

	json_object(j, NULL);
	json_uint(j, "index", d->index);
	json_string(j, "uuid", gw_device_text(d, GW_T_UUID));
	json_string(j, "name", gw_device_text(d, GW_T_NAME));
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	write_support(j, d);
	if (l->sensor)
		sensor_json(j, "sensor", l->sensor);
	else
		json_null(j, "sensor");
	json_string(j, "message", l->message);
	json_string(j, "path", l->path);
	json_object_end(j);
}

void render_characterise(struct json *j, const struct gw_snapshot *snap,
			 const struct render_learned *l, unsigned n)
{
	render_head(j, snap);
	json_array(j, "devices");
	for (unsigned i = 0; i < n; i++)
		write_learned(j, snap, &l[i]);
	json_array_end(j);
	render_source(j, snap);
	json_object_end(j);
}
