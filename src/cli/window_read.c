#include "window_read.h"

#include "measure/energy.h"
#include "serve/render_sensor.h"
#include "serve/timespec_parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 96 /* Size of each string of a device and of its sensor. */

/* Returns a count, or 0 if the value is not a count. */
static double count(const struct json_doc *o, const char *path)
{
	double v = json_doc_figure(o, path);

	return v >= 0 && v < 0x1p63 ? v : 0;
}

static unsigned small_count(const struct json_doc *o, const char *path)
{
	return (unsigned)fmin(count(o, path), 1e9);
}

/* Returns the index of a word in a table, or `otherwise` if the table does not have the
 * word. */
static unsigned word(const struct json_doc *o, const char *path, const char *(*name)(unsigned),
		     unsigned n, unsigned otherwise)
{
	const char *s = json_doc_string(o, path);

	for (unsigned i = 0; s && i < n; i++)
		if (strcmp(name(i), s) == 0)
			return i;
	return otherwise;
}

static uint64_t read_codes(const struct json_doc *o, const char *path)
{
	uint64_t codes = 0;

	for (size_t i = 0; i < json_doc_count(o, path); i++) {
		const char *key = json_doc_string(json_doc_at(o, path, i), "");

		for (unsigned c = 0; key && c < GW_CODES; c++)
			if (strcmp(gw_code_info(c)->key, key) == 0)
				codes |= UINT64_C(1) << c;
	}
	return codes;
}

static struct gw_interval interval(const struct json_doc *o, const char *path)
{
	const struct json_doc *v = json_doc_get(o, path);

	return (struct gw_interval){ json_doc_figure(v, "low"), json_doc_figure(v, "best"),
				     json_doc_figure(v, "high") };
}

/* Reads one value per word of a list. '*' in the path is replaced with the word. */
static void read_list(const struct json_doc *o, const struct gw_energy_field *f, double *v)
{
	const char *star = strchr(f->key, '*');
	char path[96];

	for (unsigned i = 0; i < f->count; i++) {
		snprintf(path, sizeof(path), "%.*s%s%s", (int)(star - f->key), f->key,
			 f->name(i), star + 1);
		v[i] = json_doc_figure(o, path);
	}
}

static void read_field(const struct json_doc *o, const struct gw_energy_field *f, void *at)
{
	switch (f->kind) {
	case GW_FIELD_INDEX: *(unsigned *)at = small_count(o, f->key); break;
	case GW_FIELD_FLAG: *(int *)at = json_doc_true(o, f->key); break;
	case GW_FIELD_TIME:
	case GW_FIELD_COUNT: *(uint64_t *)at = (uint64_t)count(o, f->key); break;
	case GW_FIELD_CODES: *(uint64_t *)at = read_codes(o, f->key); break;
	case GW_FIELD_NUMBER: *(double *)at = json_doc_figure(o, f->key); break;
	case GW_FIELD_INTERVAL: *(struct gw_interval *)at = interval(o, f->key); break;
	case GW_FIELD_WORD:
		*(unsigned *)at = word(o, f->key, f->name, f->count, f->missing);
		break;
	case GW_FIELD_LIST: read_list(o, f, at); break;
	}
}

static void read_energy(const struct json_doc *o, struct gw_energy *e)
{
	const struct gw_energy_field *f;

	energy_unknown(e);
	for (unsigned i = 0; (f = gw_energy_field(i)); i++)
		if (*f->key)
			read_field(o, f, (char *)e + f->offset);
}

/* Returns GW_HAVE if the row `why` says that the sensor has this power source. Otherwise
 * returns the absence reason of the first figure of this source. */
static enum gw_absence absence(const struct json_doc *o, const struct sensor_field *why)
{
	const struct sensor_field *figure = why;
	const int part = (int)strcspn(why->key, ".");
	char path[64];

	if (json_doc_true(o, why->key))
		return GW_HAVE;
	while (figure->kind != SENSOR_REAL)
		figure++;
	snprintf(path, sizeof(path), "%.*s.absent%s", part, why->key, figure->key + part);
	return (enum gw_absence)word(o, path, gw_absence_key, GW_ABSENCES, GW_ABSENT_NOT_READ);
}

static void read_sensor_field(const struct json_doc *o, const struct sensor_field *f, void *at)
{
	const char *s = json_doc_string(o, f->key);

	switch (f->kind) {
	case SENSOR_TEXT: json_doc_copy(o, f->key, at, TEXT_SIZE); break;
	case SENSOR_UINT: *(unsigned *)at = small_count(o, f->key); break;
	case SENSOR_BOOL: *(bool *)at = json_doc_true(o, f->key); break;
	case SENSOR_REAL: *(double *)at = json_doc_figure(o, f->key); break;
	case SENSOR_TIME:
		if (!s || timespec_parse(s, 0, at) != 0)
			*(uint64_t *)at = 0;
		break;
	case SENSOR_ORIGIN:
		*(enum sensor_origin *)at =
			word(o, f->key, sensor_origin_name, SENSOR_ACTIVE + 1, SENSOR_ASSUMED);
		break;
	case SENSOR_MODEL:
		*(enum sensor_model *)at =
			word(o, f->key, sensor_model_name, SENSOR_LOWPASS + 1, SENSOR_BOXCAR);
		break;
	case SENSOR_WHY: *(enum gw_absence *)at = absence(o, f); break;
	case SENSOR_SCOPE: *(bool *)at = s && strcmp(s, "module") == 0; break;
	}
}

static void read_rates(const struct json_doc *o, struct sensor *s)
{
	size_t n = json_doc_count(o, "counter.rates");

	for (size_t i = 0; i < SENSOR_RATES; i++) {
		const struct json_doc *r = i < n ? json_doc_at(o, "counter.rates", i) : NULL;

		s->rate[i] = (struct sensor_rate){ json_doc_figure(r, "every_seconds"),
						   json_doc_figure(r, "counter_watts"),
						   json_doc_figure(r, "reference_watts") };
	}
}

static void read_sensor(const struct json_doc *o, struct sensor *s)
{
	for (const struct sensor_field *f = sensor_fields; f->key; f++)
		read_sensor_field(o, f, (char *)s + f->offset);
	read_rates(o, s);
}

/* Reads a row without a pid, which is the idle or the unattributed energy. */
static void read_remainder(const struct json_doc *o, struct attribute *a)
{
	const char *name = json_doc_string(o, "name");

	if (name && strcmp(name, "idle") == 0) {
		a->idle_known = json_doc_is_number(o, "joules");
		a->idle_joules = a->idle_known ? json_doc_number(o, "joules") : 0;
	} else if (name && strcmp(name, "unattributed") == 0) {
		a->unattributed_joules = json_doc_figure(o, "joules");
	}
}

static void read_process(const struct json_doc *o, struct attribute *a)
{
	struct attribute_row *r = &a->row[a->count];

	if (!json_doc_is_number(o, "pid")) {
		read_remainder(o, a);
	} else if (a->count < ATTRIBUTE_ROWS) {
		r->id.pid = (int64_t)count(o, "pid");
		r->id.start_ticks = (uint64_t)count(o, "start_ticks");
		r->joules = json_doc_figure(o, "joules");
		json_doc_copy(o, "name", r->name, sizeof(r->name));
		r->how = word(o, "how", attribute_how_name, ATTRIBUTE_HOWS,
			      ATTRIBUTE_EQUAL_SPLIT);
		a->count++;
	}
}

static void read_processes(const struct json_doc *o, struct measured_device *d)
{
	size_t n = json_doc_count(o, "processes");

	attribute_init(&d->who, NAN, NAN);
	for (size_t i = 0; i < n; i++)
		read_process(json_doc_at(o, "processes", i), &d->who);
	d->processes = n > 0;
}

bool window_read_device(const struct json_doc *window, size_t i, struct measured_device *ret)
{
	const struct json_doc *o = json_doc_at(window, "devices", i);
	const struct json_doc *detail = json_doc_at(window, "details", i);
	bool measured = json_doc_string(o, "validity") != NULL;

	memset(ret, 0, sizeof(*ret));
	ret->index = small_count(o, "index");
	json_doc_copy(o, "uuid", ret->uuid, TEXT_SIZE);
	json_doc_copy(o, "name", ret->name, TEXT_SIZE);
	json_doc_copy(detail, "driver_version", ret->driver, TEXT_SIZE);
	ret->power_limit_w = json_doc_figure(detail, "power_limit_watts");
	ret->provenance = word(o, "provenance", gw_provenance_name, GW_FROM_SIMULATOR + 1,
			       GW_FROM_DRIVER);
	read_energy(o, &ret->energy);
	if (!measured)
		ret->energy.codes |= UINT64_C(1) << GW_CODE_TRUNCATED;
	ret->energy.seconds = json_doc_figure(window, "seconds");
	read_sensor(json_doc_get(detail, "sensor"), &ret->sensor);
	ret->energy.calibrated = ret->sensor.calibration.done;
	ret->energy.gain = ret->sensor.calibration.gain;
	ret->energy.offset_watts = ret->sensor.calibration.offset_w;
	read_processes(detail, ret);
	return measured;
}

void window_read_evidence(const struct json_doc *window, size_t i, unsigned code, char *out,
			  size_t size)
{
	const struct json_doc *all =
		json_doc_get(json_doc_at(window, "details", i), "evidence");

	json_doc_copy(all, gw_code_info(code)->key, out, size);
}
