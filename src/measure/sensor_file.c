/* Stores a sensor in a file, so that a card is characterised only once.
 *
 * The first line is a hash of the rest: a file that was cut or edited, or that comes from a
 * failing disk, is ignored. One table names every field; writing and reading are loops over it.
 */
#include "sensor.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/toml.h"
#include "base/toml_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX 16384

enum type { TEXT, REAL, COUNT, TIME, FLAG, WHY, MODEL, ORIGIN };

struct field {
	const char *section, *key; /* section "": the top level */
	enum type type;
	size_t offset;
	bool later; /* older files lack it: 0 */
};

#define TOP(type, name)                                               \
	{                                                             \
		"", #name, type, offsetof(struct sensor, name), false \
	}
#define LATER(type, name)                                            \
	{                                                            \
		"", #name, type, offsetof(struct sensor, name), true \
	}
#define IN(section, type, name)                                                     \
	{                                                                           \
#section, #name, type, offsetof(struct sensor, section.name), false \
	}
#define RATE(section, index, name)                                                     \
	{                                                                              \
		section, #name, REAL, offsetof(struct sensor, rate[index].name), false \
	}
#define SOURCE(s)                                                                           \
	IN(s, WHY, why), IN(s, MODEL, model), IN(s, REAL, period_s), IN(s, REAL, window_s), \
		IN(s, REAL, lag_s), IN(s, COUNT, changes), IN(s, REAL, call_p50_s),         \
		IN(s, REAL, call_p99_s)
#define RATES(s, i) RATE(s, i, every_s), RATE(s, i, counter_w), RATE(s, i, reference_w)

static const struct field fields[] = {
	TOP(TEXT, uuid),
	TOP(TEXT, driver),
	TOP(TEXT, vbios),
	TOP(ORIGIN, origin),
	TOP(TIME, wall_ns),
	TOP(COUNT, ring_entries),
	TOP(REAL, ring_span_s),
	TOP(REAL, ring_gap_p10_s),
	TOP(REAL, ring_gap_p90_s),
	TOP(FLAG, ring_wall),
	TOP(WHY, counter),
	TOP(REAL, tick_s),
	TOP(REAL, counter_lag_s),
	TOP(REAL, counter_safe_s),
	TOP(FLAG, counter_unsafe),
	TOP(COUNT, ticks),
	TOP(REAL, counter_p50_s),
	TOP(REAL, counter_p99_s),
	TOP(FLAG, module_scope),
	TOP(FLAG, calibrated),
	TOP(REAL, gain),
	TOP(REAL, offset_w),
	TOP(REAL, gain_u),
	TOP(REAL, offset_u_w),
	LATER(REAL, pivot_w),
	LATER(REAL, reference_u),
	SOURCE(ring),
	SOURCE(instant),
	SOURCE(average),
	RATES("rate_1_hz", SENSOR_1_HZ),
	RATES("rate_10_hz", SENSOR_10_HZ),
	RATES("rate_100_hz", SENSOR_100_HZ),
	RATES("rate_flat_out", SENSOR_FLAT_OUT),
	RATES("rate_10_s", SENSOR_10_S),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

int sensor_directory(char *out, size_t size)
{
	return file_cache_directory("sensor", out, size);
}

int sensor_key(const struct sensor *s, const char *dir, char *out, size_t size)
{
	char name[sizeof(s->uuid)];
	uint64_t h = TOML_SUM_START;
	size_t i;

	if (!*s->uuid)
		return -GW_E_NOSUPPORT;
	for (i = 0; s->uuid[i]; i++) { /* a name that cannot leave the folder */
		char c = s->uuid[i];
		bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
			     (c >= 'A' && c <= 'Z') || c == '-';

		name[i] = plain ? c : '_';
	}
	name[i] = '\0';
	h = toml_sum(h, s->uuid, strlen(s->uuid) + 1);
	h = toml_sum(h, s->driver, strlen(s->driver) + 1);
	h = toml_sum(h, s->vbios, strlen(s->vbios) + 1);
	return snprintf(out, size, "%s/%s.%016" PRIx64 ".v%d.toml", dir, name, h,
			SENSOR_SCHEMA) < (int)size
		       ? 0
		       : -GW_E_SIZE;
}

static void add_field(struct buf *b, const struct field *f, const struct sensor *s)
{
	const void *p = (const char *)s + f->offset;

	switch (f->type) {
	case TEXT: toml_write_text(b, f->key, p); break;
	case REAL: toml_write_real(b, f->key, *(const double *)p); break;
	case COUNT: buf_addf(b, "%s = %u\n", f->key, *(const unsigned *)p); break;
	case TIME: buf_addf(b, "%s = %" PRIu64 "\n", f->key, *(const uint64_t *)p); break;
	case FLAG: buf_addf(b, "%s = %s\n", f->key, *(const bool *)p ? "true" : "false"); break;
	case WHY:
		toml_write_text(b, f->key, gw_absence_key(*(const enum gw_absence *)p));
		break;
	case MODEL:
		toml_write_text(b, f->key, sensor_model_name(*(const enum sensor_model *)p));
		break;
	case ORIGIN:
		toml_write_text(b, f->key, sensor_origin_name(*(const enum sensor_origin *)p));
		break;
	}
}

/* The whole text: the hash, then the text that it covers. */
int sensor_compose(struct buf *b, const struct sensor *s)
{
	struct buf body;
	const char *section = "";

	buf_init(&body, FILE_MAX);
	buf_addf(&body,
		 "# What gpuward characterise learned.  Changed by hand, it is ignored.\n"
		 "schema = %d\n",
		 SENSOR_SCHEMA);
	for (size_t i = 0; i < FIELDS; i++) {
		if (strcmp(section, fields[i].section) != 0)
			buf_addf(&body, "\n[%s]\n", fields[i].section);
		section = fields[i].section;
		add_field(&body, &fields[i], s);
	}
	buf_addf(b, "hash = \"%016" PRIx64 "\"\n", toml_sum(TOML_SUM_START, body.p, body.len));
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
				 : "the GPU reports no UUID, which the name of the file needs");
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

static bool read_word(const struct toml_node *v, const char *(*name)(unsigned), unsigned n,
		      void *p)
{
	if (v->type != TOML_STRING)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (strcmp(v->v.string.text, name(i)) == 0) {
			memcpy(p, &i, sizeof(i));
			return true;
		}
	return false;
}

static const char *model_name(unsigned i)
{
	return sensor_model_name((enum sensor_model)i);
}

static const char *origin_name(unsigned i)
{
	return sensor_origin_name((enum sensor_origin)i);
}

static bool read_real(const struct toml_node *v, double *ret)
{
	if (v->type == TOML_FLOAT)
		*ret = v->v.real;
	else if (v->type == TOML_INTEGER)
		*ret = (double)v->v.integer;
	else
		return false;
	return true;
}

static bool read_text(const struct toml_node *v, char *out)
{
	if (v->type != TOML_STRING || v->v.string.len >= sizeof(((struct sensor *)0)->uuid))
		return false;
	snprintf(out, sizeof(((struct sensor *)0)->uuid), "%s", v->v.string.text);
	return true;
}

static bool read_field(const struct toml_node *v, const struct field *f, struct sensor *s)
{
	void *p = (char *)s + f->offset;

	switch (f->type) {
	case TEXT: return read_text(v, p);
	case REAL: return read_real(v, p);
	case COUNT:
		*(unsigned *)p = (unsigned)v->v.integer;
		return v->type == TOML_INTEGER && v->v.integer >= 0 &&
		       v->v.integer <= UINT32_MAX;
	case TIME:
		*(uint64_t *)p = (uint64_t)v->v.integer;
		return v->type == TOML_INTEGER && v->v.integer >= 0;
	case FLAG: *(bool *)p = v->v.boolean; return v->type == TOML_BOOL;
	case WHY: return read_word(v, gw_absence_key, GW_ABSENCES, p);
	case MODEL: return read_word(v, model_name, SENSOR_LOWPASS + 1, p);
	case ORIGIN: return read_word(v, origin_name, SENSOR_ACTIVE + 1, p);
	}
	return false;
}

static int read_fields(const struct toml_node *top, struct sensor *s, char *why, size_t size)
{
	const struct toml_node *schema = toml_get(top, "schema");

	if (!schema || schema->type != TOML_INTEGER || schema->v.integer != SENSOR_SCHEMA) {
		snprintf(why, size, "it has another version");
		return -GW_E_PARSE;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		const struct field *f = &fields[i];
		const struct toml_node *v =
			toml_get(*f->section ? toml_get(top, f->section) : top, f->key);

		if (!v && f->later)
			continue;
		if (!v || !read_field(v, f, s)) {
			snprintf(why, size, "%s%s%s is missing or invalid", f->section,
				 *f->section ? "." : "", f->key);
			return -GW_E_PARSE;
		}
	}
	return 0;
}

/* The text after the line with the hash, or NULL if the hash does not match. */
static const char *checked_body(const char *text, size_t n)
{
	char line[64];
	const char *body = memchr(text, '\n', n);

	if (!body)
		return NULL;
	body++;
	snprintf(line, sizeof(line), "hash = \"%016" PRIx64 "\"\n",
		 toml_sum(TOML_SUM_START, body, n - (size_t)(body - text)));
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
	n = file_read(path, text, sizeof(text), message, size);
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
