#include "render_sensor.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct sensor_field sensor_fields[] = {
#define SENSOR(kind, file, member, key, diff) \
	{ SENSOR_##kind, key, offsetof(struct sensor, member) },
#define SENSOR_IN(kind, part, name, key, diff) SENSOR(kind, name, part.name, key, diff)
#include "measure/sensor.def"
	{ .key = NULL },
};

/* Returns the part of the key after the name of the object. */
static const char *last_of(const struct sensor_field *f)
{
	const char *dot = strchr(f->key, '.');

	return dot ? dot + 1 : f->key;
}

static bool same_part(const struct sensor_field *f, const struct sensor_field *head)
{
	return strncmp(f->key, head->key, strcspn(head->key, ".") + 1) == 0;
}

static void write_field(struct json *j, const struct sensor_field *f, const struct sensor *s)
{
	const void *at = (const char *)s + f->offset;
	const char *key = last_of(f);

	switch (f->kind) {
	case SENSOR_TEXT: render_text(j, key, at); break;
	case SENSOR_UINT: json_uint(j, key, *(const unsigned *)at); break;
	case SENSOR_BOOL: json_bool(j, key, *(const bool *)at); break;
	case SENSOR_REAL: json_double(j, key, *(const double *)at); break;
	case SENSOR_TIME: json_time(j, key, *(const uint64_t *)at); break;
	case SENSOR_WHY: json_bool(j, key, *(const enum gw_absence *)at == GW_HAVE); break;
	case SENSOR_ORIGIN:
		json_string(j, key, sensor_origin_name(*(const enum sensor_origin *)at));
		break;
	case SENSOR_MODEL:
		json_string(j, key, sensor_model_name(*(const enum sensor_model *)at));
		break;
	case SENSOR_SCOPE: json_string(j, key, *(const bool *)at ? "module" : "board"); break;
	}
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

static double figure_of(const struct sensor_field *f, const struct sensor *s)
{
	double v;

	memcpy(&v, (const char *)s + f->offset, sizeof(v));
	return v;
}

/* Returns the power source that has the member `why` at this offset; NULL: this is the offset
 * of the counter. */
static const struct sensor_source *source_at(const struct sensor *s, size_t offset)
{
	switch (offset) {
	case offsetof(struct sensor, ring.why): return &s->ring;
	case offsetof(struct sensor, instant.why): return &s->instant;
	case offsetof(struct sensor, average.why): return &s->average;
	default: return NULL;
	}
}

/* Writes one object of the sensor, which describes one source. `head` is the first row of the
 * object and has the kind WHY. The key "absent" has the reason for each null. If `why` is not
 * GW_HAVE, the source is not available, and all values are null for this reason. If the source
 * is available, a value that is missing was not measured. */
static void write_part(struct json *j, const struct sensor_field *head, const struct sensor *s)
{
	const enum gw_absence why = *(const enum gw_absence *)((const char *)s + head->offset);
	const struct sensor_source *source = source_at(s, head->offset);
	const struct sensor_field *f;
	char part[16];

	snprintf(part, sizeof(part), "%.*s", (int)strcspn(head->key, "."), head->key);
	json_object(j, part);
	for (f = head; f->key && same_part(f, head); f++) {
		if (f->kind != SENSOR_REAL)
			write_field(j, f, s);
		if (source && strcmp(last_of(f), "changes") == 0)
			json_string(j, "message", sensor_source_note(source));
	}
	for (f = head; f->key && same_part(f, head); f++)
		if (f->kind == SENSOR_REAL)
			json_double(j, last_of(f),
				    why == GW_HAVE ? figure_of(f, s) : (double)NAN);
	json_object(j, "absent");
	for (f = head; f->key && same_part(f, head); f++)
		if (f->kind == SENSOR_REAL && (why != GW_HAVE || isnan(figure_of(f, s))))
			json_string(j, last_of(f),
				    gw_absence_key(why == GW_HAVE ? GW_ABSENT_NOT_READ : why));
	json_object_end(j);
	if (!source)
		write_rates(j, s);
	json_object_end(j);
}

void sensor_json(struct json *j, const char *key, const struct sensor *s)
{
	json_object(j, key);
	for (const struct sensor_field *f = sensor_fields; f->key; f++)
		if (!strchr(f->key, '.'))
			write_field(j, f, s);
		else if (f->kind == SENSOR_WHY)
			write_part(j, f, s);
	json_object_end(j);
}

/* Writes for each of these quantities whether it is supported, or why it is not. */
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
