#include "sensor.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/text.h"
#include "base/toml_write.h"
#include "device/sampler_device.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPLER = 2, MAXWELL, PASCAL, VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL };

struct published {
	double period_s, window_s;
	enum sensor_model model;
};

/* Published properties of sensors. The first row that matches a GPU is used. The numbers are
 * from the SC'24 study of NVIDIA's power sensors (docs/MEASURING.md); ring_gap_s is from
 * published logs. For sensors that behave like a low-pass filter, no time constant is
 * published: 0.1 s is a guess. */
static const struct generation {
	unsigned first, last;          /* range of architectures, in NVML's numbering */
	int capability;                /* CUDA capability, 10 * major + minor; 0: any */
	int driver_first, driver_last; /* range of the driver's major version */
	const char *name;              /* part of the device's name; NULL: any name */
	struct published draw;         /* the power usage that the driver reports */
	struct published instant;      /* the power of NVML field 186 */
	double ring_gap_s;             /* time between two entries of the ring buffer */
} generations[] = {
	{ HOPPER, HOPPER, 0, 0, 9999, "GH200", { 0.1, 1, 0 }, { 0.1, 0.02, 0 }, 0.02 },
	{ HOPPER, HOPPER, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.025, 0 }, 0.02 },
	{ AMPERE, AMPERE, 80, 0, 9999, NULL, { 0.1, 0.025, 0 }, { 0.1, 0.025, 0 }, 0.02 },
	/* Only driver 530 averaged this power value over 0.1 s; other drivers average it over 1
	 * s. */
	{ AMPERE, ADA, 0, 530, 530, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, 1 },
	{ AMPERE, ADA, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.1, 0 }, 1 },
	{ TURING, TURING, 0, 0, 9999, "RTX 8000", { 0.1, 0.02, 0 }, { 0.1, 0.02, 0 }, 0.02 },
	{ TURING, TURING, 0, 0, 9999, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, 0.02 },
	{ PASCAL, VOLTA, 0, 0, 9999, NULL, { 0.02, 0.01, 0 }, { 0.02, 0.01, 0 }, 0.02 },
	{ MAXWELL, MAXWELL, 0, 0, 9999, "M40", { 0.031, 0.014, 0 }, { 0.031, 0.014, 0 }, 0.02 },
	{ KEPLER,
	  MAXWELL,
	  0,
	  0,
	  9999,
	  NULL,
	  { 0.1, 0.1, SENSOR_LOWPASS },
	  { 0.1, 0.1, SENSOR_LOWPASS },
	  0.02 },
	/* Nothing is published about Blackwell and later. They are treated like Ada. */
	{ BLACKWELL, 999, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.1, 0 }, 0.02 },
	/* GPUs of other vendors and unknown GPUs. Their power is assumed to come from a kernel
	 * file that changes ten times per second. */
	{ 0, 999, 0, 0, 9999, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, NAN },
};

/* The ring buffer as measured on an H200: a low-pass filter of 13.5 ms with a delay of 3.5
 * ms. */
#define RING_FILTER_S 0.0135
#define RING_LAG_S    0.017
#define RING_ENTRIES  119
#define TICK_S        0.1 /* time between two updates of the counter */

static double sensor_number(const struct report *r, unsigned q)
{
	return report_has(r, q) ? r->v[q] : 0;
}

static const struct generation *generation_of(const struct report *r)
{
	unsigned architecture = (unsigned)sensor_number(r, GW_Q_ARCHITECTURE);
	int capability = (int)(10 * sensor_number(r, GW_Q_COMPUTE_CAPABILITY_MAJOR) +
			       sensor_number(r, GW_Q_COMPUTE_CAPABILITY_MINOR));
	int driver = atoi(r->text[GW_T_DRIVER]);
	const struct generation *g = generations;

	if (r->vendor != GW_VENDOR_NVIDIA)
		architecture = 0;
	if (driver == 0)
		driver = 9998;
	while (architecture < g->first || architecture > g->last ||
	       (g->capability && capability != g->capability) || driver < g->driver_first ||
	       driver > g->driver_last || (g->name && !strstr(r->text[GW_T_NAME], g->name)))
		g++; /* the last row matches everything */
	return g;
}

static struct sensor_source source_of(const struct published *p, enum gw_absence why)
{
	return (struct sensor_source){ .why = why,
				       .model = p->model,
				       .period_s = p->period_s,
				       .window_s = p->window_s,
				       .lag_s = p->model == SENSOR_BOXCAR ? p->window_s / 2
									  : p->window_s,
				       .call_p50_s = NAN,
				       .call_p99_s = NAN };
}

static bool has_nvml(const struct report *r)
{
	return r->vendor == GW_VENDOR_NVIDIA &&
	       (r->provenance == GW_FROM_DRIVER || r->provenance == GW_FROM_SIMULATOR);
}

/* Returns true if all GPUs of this architecture report every power value. It is then not
 * necessary to read a value in order to know that it exists. */
static bool kind_has_power(const struct report *r)
{
	return has_nvml(r) && sensor_number(r, GW_Q_ARCHITECTURE) >= HOPPER;
}

/* Returns GW_HAVE if the value exists, or the reason why the value does not exist. A value that
 * was not read yet exists if all GPUs of this architecture have it. */
static enum gw_absence value_absence(const struct report *r, unsigned quantity)
{
	enum gw_absence why = (enum gw_absence)r->why[quantity];

	return why == GW_ABSENT_NOT_READ && kind_has_power(r) ? GW_HAVE : why;
}

static void assume_ring(struct sensor *s, const struct generation *g, const struct report *r)
{
	s->ring = source_of(&g->instant, has_nvml(r) ? GW_HAVE : GW_ABSENT_NOT_SUPPORTED);
	s->ring.period_s = g->ring_gap_s;
	if (g->first == HOPPER) {
		s->ring.model = SENSOR_LOWPASS;
		s->ring.window_s = RING_FILTER_S;
		s->ring.lag_s = RING_LAG_S;
	}
	s->ring_wall = true;
	s->ring_entries = has_nvml(r) ? RING_ENTRIES : 0;
	s->ring_span_s = has_nvml(r) ? (RING_ENTRIES - 1) * g->ring_gap_s : NAN;
	s->ring_gap_p10_s = s->ring_gap_p90_s = NAN;
}

static void assume_counter(struct sensor *s, const struct report *r)
{
	bool volta = has_nvml(r) && sensor_number(r, GW_Q_ARCHITECTURE) >= VOLTA;

	s->counter = (enum gw_absence)r->why[GW_Q_ENERGY];
	if (s->counter == GW_ABSENT_NOT_READ && volta)
		s->counter = GW_HAVE;
	s->tick_s = TICK_S;
	s->counter_lag_s = 0;
	s->counter_safe_s = 1;
	s->counter_p50_s = s->counter_p99_s = NAN;
	for (unsigned i = 0; i < SENSOR_RATES; i++)
		s->rate[i] = (struct sensor_rate){ NAN, NAN, NAN };
}

unsigned sensor_average_quantity(const struct report *r)
{
	return report_has(r, GW_Q_POWER_AVERAGE) ? GW_Q_POWER_AVERAGE : GW_Q_POWER;
}

void sensor_assume(struct sensor *ret, const struct report *r)
{
	const struct generation *g = generation_of(r);

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", r->text[GW_T_UUID]);
	snprintf(ret->driver, sizeof(ret->driver), "%s", r->text[GW_T_DRIVER]);
	snprintf(ret->vbios, sizeof(ret->vbios), "%s", r->text[GW_T_VBIOS]);
	ret->instant = source_of(&g->instant, value_absence(r, GW_Q_POWER_INSTANT));
	ret->average = source_of(&g->draw, value_absence(r, sensor_average_quantity(r)));
	assume_ring(ret, g, r);
	assume_counter(ret, r);
	ret->module_scope = strstr(r->text[GW_T_NAME], "GH200") != NULL;
	ret->calibration = (struct sensor_calibration){ .gain = 1,
							.gain_u = SENSOR_GAIN_U,
							.offset_u_w = SENSOR_OFFSET_U_W };
}

const char *sensor_model_name(unsigned model)
{
	return model == SENSOR_LOWPASS ? "lowpass" : "boxcar";
}

const char *sensor_origin_words(enum sensor_origin origin)
{
	static const char *const words[] = {
		[SENSOR_ASSUMED] = "sensor not characterised",
		[SENSOR_PASSIVE] = "sensor periods measured",
		[SENSOR_ACTIVE] = "sensor characterised",
	};

	return words[origin];
}

const char *sensor_origin_words_of(const char *name)
{
	for (unsigned i = SENSOR_PASSIVE; i <= SENSOR_ACTIVE; i++)
		if (strcmp(name, sensor_origin_name(i)) == 0)
			return sensor_origin_words((enum sensor_origin)i);
	return sensor_origin_words(SENSOR_ASSUMED);
}

const char *sensor_origin_name(unsigned origin)
{
	static const char *const names[] = { "assumed", "passive", "active" };

	return names[origin];
}

const char *sensor_source_note(const struct sensor_source *s)
{
	if (s->why != GW_HAVE)
		return gw_absence_text(s->why);
	if (s->changes >= SENSOR_CHANGES)
		return NULL;
	if (s->changes == 0)
		return "assumed; no change was observed";
	return "few changes were observed: an idle GPU repeats its values, or the sensor is "
	       "slow";
}

void sensor_note_ring(struct sensor *s, int n)
{
	if (s->origin != SENSOR_ASSUMED || s->ring.why != GW_HAVE || n >= 0)
		return;
	s->ring.why = n == -GW_E_NOSUPPORT ? GW_ABSENT_NOT_SUPPORTED : GW_ABSENT_LOST;
	s->ring_entries = 0;
}

int sensor_known_device(struct sampler_device *sd, const char *dir, struct sensor *ret,
			char *note, size_t size)
{
	struct report r;
	struct sensor kept;
	int err = -GW_E_NOENT;

	if (size)
		note[0] = '\0';
	sampler_device_read(sd, 0, false, &r);
	/* The architecture was usually read together with the name. */
	if (!report_has(&r, GW_Q_ARCHITECTURE))
		sampler_device_read(sd, GW_TIER_STATIC, false, &r);
	if (!kind_has_power(&r))
		sampler_device_read(sd, GW_TIER_FAST, false, &r);
	sensor_assume(ret, &r);
	kept = *ret;
	if (dir)
		err = sensor_load(&kept, dir, note, size);
	if (!err && kept.origin == SENSOR_ASSUMED)
		/* Use only the calibration from the file. This version of gpuward may assume
		 * better values than the version that wrote the file. */
		ret->calibration = kept.calibration;
	else if (!err)
		*ret = kept;
	if (err == -GW_E_NOENT && size)
		note[0] = '\0';
	return 0;
}

int sensor_known(struct gw_ctx *ctx, unsigned position, const char *dir, struct sensor *ret,
		 char *note, size_t size)
{
	struct sampler_device sd;
	struct power_sample sample[4];
	struct report r;
	int err = sampler_device_init(&sd, ctx, position);

	if (!err) {
		sampler_device_read(&sd, GW_TIER_FAST, false, &r);
		err = sensor_known_device(&sd, dir, ret, note, size);
	}
	if (!err)
		sensor_note_ring(ret, sampler_device_ring(&sd, sample, 4));
	return err;
}

int sensor_characterise(struct gw_ctx *ctx, unsigned position, const struct sensor_plan *plan,
			struct sensor *ret, char *message, size_t size)
{
	struct sampler_device sd;
	int err = sampler_device_init(&sd, ctx, position);

	if (err)
		snprintf(message, size, "the driver lists no GPU at position %u", position);
	return err ? err : sensor_learn(&sd, plan, ret, message, size);
}

/* A sensor is stored in a file, so that a GPU is characterised only once. The first line of the
 * file is a hash of the other lines: a file that was truncated or edited, or that comes from a
 * failing disk, is ignored. */
#define FILE_MAX 16384

#define RATE(section, i, name) TOML_FIELD(REAL, section, #name, struct sensor, rate[i].name)
#define RATES(s, i)            RATE(s, i, every_s), RATE(s, i, counter_w), RATE(s, i, reference_w)

#define FILE_TEXT(section, key, member) TOML_FIELD(TEXT, section, key, struct sensor, member)
#define FILE_UINT(section, key, member) TOML_FIELD(UINT, section, key, struct sensor, member)
#define FILE_BOOL(section, key, member) TOML_FIELD(BOOL, section, key, struct sensor, member)
#define FILE_REAL(section, key, member) TOML_FIELD(REAL, section, key, struct sensor, member)
#define FILE_LATER(section, key, member) \
	TOML_OPTIONAL(REAL, section, key, struct sensor, member)
#define FILE_TIME(section, key, member)  TOML_FIELD(U64, section, key, struct sensor, member)
#define FILE_SCOPE(section, key, member) FILE_BOOL(section, key, member)
#define FILE_WHY(section, key, member) \
	TOML_ENUM(section, key, struct sensor, member, gw_absence_key, GW_ABSENCES)
#define FILE_MODEL(section, key, member) \
	TOML_ENUM(section, key, struct sensor, member, sensor_model_name, SENSOR_LOWPASS + 1)
#define FILE_ORIGIN(section, key, member) \
	TOML_ENUM(section, key, struct sensor, member, sensor_origin_name, SENSOR_ACTIVE + 1)

/* In TOML, the keys of the top level come first. */
static const struct toml_field fields[] = {
#define SENSOR(kind, file, member, key, diff) FILE_##kind("", #file, member),
#define SENSOR_IN(kind, part, name, key, diff)
#include "sensor.def"
#define SENSOR(kind, file, member, key, diff)
#define SENSOR_IN(kind, part, name, key, diff) FILE_##kind(#part, #name, part.name),
#include "sensor.def"
	RATES("rate_1_hz", SENSOR_1_HZ),     RATES("rate_10_hz", SENSOR_10_HZ),
	RATES("rate_100_hz", SENSOR_100_HZ), RATES("rate_flat_out", SENSOR_FLAT_OUT),
	RATES("rate_10_s", SENSOR_10_S),
};
#define FIELDS COUNT(fields)

int sensor_directory(char *out, size_t size)
{
	return file_cache_directory("sensor", out, size);
}

void sensor_add_uuid(struct buf *b, const char *uuid)
{
	for (; *uuid; uuid++) {
		bool plain = (*uuid >= '0' && *uuid <= '9') || (*uuid >= 'a' && *uuid <= 'z') ||
			     (*uuid >= 'A' && *uuid <= 'Z') || *uuid == '-';

		buf_addc(b, plain ? *uuid : '_');
	}
}

int sensor_key(const struct sensor *s, const char *dir, char *out, size_t size)
{
	uint64_t h = TEXT_HASH_START;
	struct buf b;

	if (!*s->uuid)
		return -GW_E_NOSUPPORT;
	h = text_hash(h, s->uuid, strlen(s->uuid) + 1);
	h = text_hash(h, s->driver, strlen(s->driver) + 1);
	h = text_hash(h, s->vbios, strlen(s->vbios) + 1);
	buf_init_fixed(&b, out, size);
	buf_addf(&b, "%s/", dir);
	sensor_add_uuid(&b, s->uuid);
	buf_addf(&b, ".%016" PRIx64 ".v%d.toml", h, SENSOR_SCHEMA);
	return b.err;
}

/* Writes the whole file: the hash, then the lines that it covers. */
int sensor_compose(struct buf *b, const struct sensor *s)
{
	struct buf body;

	buf_init(&body, FILE_MAX);
	buf_addf(&body,
		 "# Written by gpuward characterise. If this file is edited, it is ignored.\n"
		 "schema = %d\n",
		 SENSOR_SCHEMA);
	toml_write_fields(&body, fields, FIELDS, s);
	buf_addf(b, "hash = \"%016" PRIx64 "\"\n",
		 text_hash(TEXT_HASH_START, body.p, body.len));
	buf_add(b, body.p, body.len);
	buf_done(&body);
	return body.err ? body.err : b->err;
}

int sensor_save(const struct sensor *s, const char *dir, char *message, size_t size)
{
	char path[4096];
	struct buf b;
	int err = sensor_key(s, dir, path, sizeof(path));

	if (err) {
		snprintf(message, size, "%s",
			 err == -GW_E_SIZE
				 ? "the path of the cache is too long"
				 : "the GPU reports no UUID, which is part of the file name");
		return err;
	}
	buf_init(&b, FILE_MAX + 64);
	err = sensor_compose(&b, s);
	if (err)
		snprintf(message, size, "%s", gw_strerror(err));
	else
		err = file_make_directory(dir, message, size);
	if (!err)
		err = file_replace(path, b.p, b.len, message, size);
	buf_done(&b);
	return err;
}

static int read_fields(const struct toml_node *top, struct sensor *s, char *why, size_t size)
{
	const struct toml_node *schema = toml_get(top, "schema");
	const struct toml_field *f;

	if (!schema || schema->type != TOML_INTEGER || schema->v.integer != SENSOR_SCHEMA) {
		snprintf(why, size, "its schema has another version");
		return -GW_E_PARSE;
	}
	f = toml_read_fields(top, fields, FIELDS, s);
	if (f) {
		snprintf(why, size, "%s%s%s is missing or invalid", f->section,
			 *f->section ? "." : "", f->key);
		return -GW_E_PARSE;
	}
	return 0;
}

/* Returns the lines after the hash; NULL if the hash does not match. */
static const char *checked_body(const char *text, size_t n)
{
	char line[64];
	const char *body = memchr(text, '\n', n);

	if (!body)
		return NULL;
	body++;
	snprintf(line, sizeof(line), "hash = \"%016" PRIx64 "\"\n",
		 text_hash(TEXT_HASH_START, body, n - (size_t)(body - text)));
	if (strlen(line) != (size_t)(body - text) || memcmp(line, text, strlen(line)) != 0)
		return NULL;
	return body;
}

int sensor_parse(const char *text, size_t n, struct sensor *s, char *why, size_t size)
{
	const char *body = checked_body(text, n);
	struct toml_error error;
	struct toml *doc;
	int err;

	if (!body) {
		snprintf(why, size, "its hash does not match its content");
		return -GW_E_PARSE;
	}
	err = toml_parse(body, n - (size_t)(body - text), &doc, &error);
	if (err) {
		snprintf(why, size, "%s", err == -GW_E_PARSE ? error.text : gw_strerror(err));
		return err;
	}
	err = read_fields(toml_top(doc), s, why, size);
	toml_free(doc);
	return err;
}

int sensor_load(struct sensor *s, const char *dir, char *message, size_t size)
{
	char path[4096], text[FILE_MAX + 64], why[256] = "";
	struct sensor found;
	ssize_t n;
	int err = sensor_key(s, dir, path, sizeof(path));

	if (err)
		return -GW_E_NOENT;
	n = file_read_regular(path, text, sizeof(text), message, size);
	if (n < 0)
		return (int)n;
	memset(&found, 0, sizeof(found));
	err = sensor_parse(text, (size_t)n, &found, why, sizeof(why));
	if (!err && (strcmp(found.uuid, s->uuid) != 0 || strcmp(found.driver, s->driver) != 0 ||
		     strcmp(found.vbios, s->vbios) != 0)) {
		snprintf(why, sizeof(why), "it belongs to another GPU or driver");
		err = -GW_E_PARSE;
	}
	if (err) {
		snprintf(message, size, "%s is ignored: %s", path, why);
		return err;
	}
	*s = found;
	return 0;
}
