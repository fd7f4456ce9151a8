#include "result_file.h"

#include "base/array.h"
#include "base/file.h"
#include "base/buf.h"
#include "base/json_doc.h"
#include "measure/sensor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Largest file in bytes. A result has about 1.4 kB per second and GPU, so this is enough for 2
 * days of one GPU or 6 hours of eight GPUs. */
#define RESULT_MAX ((size_t)256 << 20)

struct block {
	struct block *next;
	_Alignas(max_align_t) char data[];
};

struct result_memory {
	/* The parsed document. The strings of the result point into it. */
	struct json_doc *document;
	struct block *blocks;
};

struct reader {
	struct result_file *r;
	/* The place that is being read, for error messages: "runs[0].devices[1].". */
	char where[160];
	char *error;
	size_t size;
	bool failed;
	/* Start of the part that the run describes, as part_begin() returns it. */
	double zero_s;
};

static void __attribute__((format(printf, 2, 3)))
reader_fail(struct reader *rd, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (rd->failed)
		return;
	rd->failed = true;
	n = snprintf(rd->error, rd->size, "%s: ", rd->r->path);
	if (n < 0 || (size_t)n >= rd->size)
		return;
	va_start(ap, fmt);
	vsnprintf(rd->error + n, rd->size - (size_t)n, fmt, ap);
	va_end(ap);
}

/* Returns zeroed memory for count elements, or NULL if count is 0 or after a failure. */
static void *reader_alloc(struct reader *rd, size_t count, size_t size)
{
	struct block *b;

	if (rd->failed || count == 0)
		return NULL;
	b = calloc(1, sizeof(*b) + count * size);
	if (!b) {
		reader_fail(rd, "out of memory");
		return NULL;
	}
	b->next = rd->r->memory->blocks;
	rd->r->memory->blocks = b;
	return b->data;
}

enum field_type { NOTHING, NUMBER, TEXT, TRUTH, BAND, LIST_budget, LIST_throttle };

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
};

static const char *type_word(enum json_doc_type type)
{
	switch (type) {
	case JSON_DOC_OBJECT: return "an object";
	case JSON_DOC_ARRAY: return "an array";
	case JSON_DOC_STRING: return "a text";
	case JSON_DOC_BOOL: return "true or false";
	case JSON_DOC_NUMBER: return "a number";
	case JSON_DOC_NULL:
	case JSON_DOC_ABSENT: break;
	}
	return "null";
}

static bool json_is(const struct json_doc *v, enum json_doc_type type)
{
	return json_doc_type(v, "") == type;
}

/* Returns the member if it has this type, or NULL if it is missing or null.  Another type is an
 * error. */
static const struct json_doc *member(struct reader *rd, const struct json_doc *o,
				     const char *key, enum json_doc_type type)
{
	const struct json_doc *v = json_doc_get(o, key);

	if (!v || json_is(v, JSON_DOC_NULL))
		return NULL;
	if (json_is(v, type))
		return v;
	reader_fail(rd, "%s%s is %s, not %s", rd->where, key, type_word(json_doc_type(v, "")),
		    type_word(type));
	return NULL;
}

#define object(rd, o, key) member(rd, o, key, JSON_DOC_OBJECT)
#define array(rd, o, key)  member(rd, o, key, JSON_DOC_ARRAY)

static double number_or(struct reader *rd, const struct json_doc *o, const char *key,
			double otherwise)
{
	const struct json_doc *v = member(rd, o, key, JSON_DOC_NUMBER);

	return v ? json_doc_number(v, "") : otherwise;
}

static double number(struct reader *rd, const struct json_doc *o, const char *key)
{
	return number_or(rd, o, key, NAN);
}

static const char *text(struct reader *rd, const struct json_doc *o, const char *key)
{
	const struct json_doc *v = member(rd, o, key, JSON_DOC_STRING);

	return v ? json_doc_string(v, "") : NULL;
}

static bool truth(struct reader *rd, const struct json_doc *o, const char *key)
{
	const struct json_doc *v = member(rd, o, key, JSON_DOC_BOOL);

	return v && json_doc_true(v, "");
}

static struct gw_interval band(struct reader *rd, const struct json_doc *o, const char *key)
{
	const struct json_doc *v = object(rd, o, key);

	return (struct gw_interval){ number(rd, v, "low"), number(rd, v, "best"),
				     number(rd, v, "high") };
}

/* Reads one number per word of a list. '*' in the key is replaced with the word. */
static void fill_list(struct reader *rd, const struct json_doc *o, const char *key,
		      const char *(*name)(unsigned), unsigned count, double *v)
{
	const char *star = strchr(key, '*');
	char word[64];

	for (unsigned i = 0; i < GW_LIST_SIZE; i++) {
		snprintf(word, sizeof(word), "%.*s%s%s", (int)(star - key), key, name(i),
			 star + 1);
		v[i] = i < count ? number(rd, o, word) : NAN;
	}
}

/* Reads the fields of a table into target. A key with a dot, such as "a.b", names a member of
 * an inner object. If o is NULL, every field is absent. */
static void reader_fill(struct reader *rd, const struct json_doc *o, const struct field *f,
			void *target)
{
	for (; f->key; f++) {
		void *at = (char *)target + f->offset;
		const char *dot = strchr(f->key, '.'), *key = dot ? dot + 1 : f->key;
		const struct json_doc *in = o;
		size_t length = strlen(rd->where);
		char part[48];

		if (dot) {
			snprintf(part, sizeof(part), "%.*s", (int)(dot - f->key), f->key);
			in = object(rd, o, part);
			snprintf(rd->where + length, sizeof(rd->where) - length, "%s.", part);
		}
		switch (*key ? f->type : NOTHING) {
		case NOTHING: break;
		case NUMBER: *(double *)at = number(rd, in, key); break;
		case TEXT: *(const char **)at = text(rd, in, key); break;
		case TRUTH: *(bool *)at = truth(rd, in, key); break;
		case BAND: *(struct gw_interval *)at = band(rd, in, key); break;
		case LIST_budget: fill_list(rd, in, key, gw_budget_name, GW_BUDGETS, at); break;
		case LIST_throttle:
			fill_list(rd, in, key, gw_throttle_name, GW_THROTTLES, at);
			break;
		}
		rd->where[length] = '\0';
	}
}

/* The type of the JSON value for each kind of field in energy.def and run_figure.def. */
#define TYPE_INDEX    NUMBER
#define TYPE_TIME     NUMBER
#define TYPE_FLAG     TRUTH
#define TYPE_COUNT    NUMBER
#define TYPE_CODES    NOTHING
#define TYPE_NUMBER   NUMBER
#define TYPE_INTERVAL BAND
#define TYPE_TEXT     TEXT

#define R(member) offsetof(struct result_file, member)
static const struct field result_fields[] = {
	{ "label", TEXT, R(label) },
	{ "time", TEXT, R(time) },
	{ "tool.version", TEXT, R(tool_version) },
	{ "command_name", TEXT, R(command_name) },
	{ "simulated", TRUTH, R(simulated) },
	{ "model_size_bytes", NUMBER, R(model_size_bytes) },
	{ "iterations", NUMBER, R(iterations) },
	{ "tokens", NUMBER, R(tokens) },
	{ NULL, 0, 0 },
};

#define N(member) offsetof(struct result_run, member)
static const struct field run_fields[] = {
	{ "trial", NUMBER, N(trial) },        { "seconds", NUMBER, N(seconds) },
	{ "validity", TEXT, N(validity) },    { "part", TEXT, N(part) },
#define RUN_FIGURE(kind, member, key, help)      { key, TYPE_##kind, N(figures.member) },
#define RUN_ENERGY_PER(items, member, key, help) { key, BAND, N(figures.member) },
#include "serve/run_figure.def"
	{ "host.joules", NUMBER, N(host_j) }, { NULL, 0, 0 },
};

#define C(member) offsetof(struct result_code, member)
static const struct field code_fields[] = {
	{ "code", TEXT, C(code) },         { "level", TEXT, C(level) },
	{ "sentence", TEXT, C(sentence) }, { "evidence", TEXT, C(evidence) },
	{ "device", NUMBER, C(device) },   { NULL, 0, 0 },
};

#define W(member) offsetof(struct result_worker, member)
static const struct field worker_fields[] = {
	{ "name", TEXT, W(name) },
	{ "held_by", TEXT, W(held_by) },
	{ "broken", TEXT, W(broken) },
	{ NULL, 0, 0 },
};

#define P(member) offsetof(struct result_window, member)
static const struct field window_fields[] = {
	{ "label", TEXT, P(label) },
	{ "begin_seconds", NUMBER, P(begin_s) },
	{ "seconds", NUMBER, P(seconds) },
	{ "unfinished", TRUTH, P(unfinished) },
	{ NULL, 0, 0 },
};

#define D(member) offsetof(struct result_device, member)
static const struct field device_fields[] = {
	{ "index", NUMBER, D(index) },
	{ "uuid", TEXT, D(uuid) },
	{ "name", TEXT, D(name) },
	{ "provenance", TEXT, D(provenance) },
	{ "driver_version", TEXT, D(driver_version) },
	{ "baseline.kind", TEXT, D(baseline_kind) },
	{ "baseline.power_watts", NUMBER, D(baseline_w) },
	{ "baseline.age_seconds", NUMBER, D(baseline_age_s) },
	{ "power_limit_watts", NUMBER, D(power_limit_w) },
	{ NULL, 0, 0 },
};

static const struct field energy_fields[] = {
#define GW_FIELD(kind, member, key, help, diff)         { key, TYPE_##kind, D(energy.member) },
#define GW_WORD(list, member, key, missing, help, diff) { key, TEXT, D(energy.member) },
#define GW_LIST(list, member, key, help, diff)          { key, LIST_##list, D(energy.member) },
#include <gpuward/energy.def>
	{ NULL, 0, 0 },
};

#define FACTS_DEPTH 4

/* Returns true if the value of the key is not a fact about the environment: it differs in each
 * run, is elsewhere in the document, or says why other values are absent. */
static bool no_fact(const char *key)
{
	static const char *const skipped[] = {
		"absent",   "devices",           "schema_version",
		"time_utc", "monotonic_seconds", "uptime_seconds"
	};

	for (size_t i = 0; i < COUNT(skipped); i++)
		if (strcmp(key, skipped[i]) == 0)
			return true;
	return false;
}

static const char *fact_text(struct reader *rd, const struct json_doc *v)
{
	char *s;

	if (json_is(v, JSON_DOC_STRING))
		return json_doc_string(v, "");
	if (json_is(v, JSON_DOC_BOOL))
		return json_doc_true(v, "") ? "yes" : "no";
	s = reader_alloc(rd, 32, 1);
	if (s)
		snprintf(s, 32, "%.10g", json_doc_number(v, ""));
	return s ? s : "";
}

/* Adds the facts of an object to `facts`, and their number to *n.  If facts is NULL, only
 * counts them. */
static void add_facts(struct reader *rd, const struct json_doc *o, const char *prefix,
		      unsigned depth, struct result_fact *facts, size_t *n)
{
	const char *key;
	const struct json_doc *v;
	void *iter = NULL;

	while (json_doc_next(o, &iter, &key, &v)) {
		size_t size = strlen(prefix) + strlen(key) + 2;
		char *name = NULL;
		bool deeper = json_is(v, JSON_DOC_OBJECT) && depth < FACTS_DEPTH;

		if (no_fact(key) ||
		    (!deeper && !json_is(v, JSON_DOC_STRING) && !json_is(v, JSON_DOC_NUMBER) &&
		     !json_is(v, JSON_DOC_BOOL)))
			continue;
		if (facts) {
			name = reader_alloc(rd, size, 1);
			if (!name)
				return;
			snprintf(name, size, "%s%s%s", prefix, *prefix ? "." : "", key);
		}
		if (deeper) {
			add_facts(rd, v, name ? name : "", depth + 1, facts, n);
		} else {
			if (facts)
				facts[*n] = (struct result_fact){ name, fact_text(rd, v) };
			++*n;
		}
	}
}

static struct result_facts facts_of(struct reader *rd, const struct json_doc *o,
				    const char *key)
{
	const struct json_doc *v = object(rd, o, key);
	struct result_facts ret = { NULL, 0 };
	struct result_fact *facts;
	size_t n = 0;

	add_facts(rd, v, "", 0, NULL, &n);
	facts = reader_alloc(rd, n, sizeof(*facts));
	if (facts)
		add_facts(rd, v, "", 0, facts, &ret.n);
	ret.v = facts;
	return ret;
}

/* Returns the first n numbers of an array.  An element that is not a number becomes NAN.
 * Returns NULL if there is no such array. */
static double *numbers(struct reader *rd, const struct json_doc *o, const char *key, size_t n)
{
	const struct json_doc *a = array(rd, o, key);
	double *v = a ? reader_alloc(rd, n, sizeof(*v)) : NULL;

	for (size_t i = 0; v && i < n; i++) {
		const struct json_doc *e = json_doc_at(a, "", i);

		v[i] = json_is(e, JSON_DOC_NUMBER) ? json_doc_number(e, "") : NAN;
	}
	return v;
}

static const double *times(struct reader *rd, const struct json_doc *o, double begin, size_t n)
{
	double *t = numbers(rd, o, "t_seconds", n);

	for (size_t i = 0; t && i < n; i++)
		t[i] += begin - rd->zero_s;
	return t;
}

static const char *const *words(struct reader *rd, const struct json_doc *o, const char *key,
				size_t n)
{
	const struct json_doc *a = array(rd, o, key);
	const char **v = a ? reader_alloc(rd, n, sizeof(*v)) : NULL;

	for (size_t i = 0; v && i < n; i++) {
		const char *s = json_doc_string(json_doc_at(a, "", i), "");

		v[i] = s && *s ? s : NULL;
	}
	return v;
}

/* Reads the series of a device. t_seconds are relative to begin_seconds of the same object. If
 * the ticks have no begin_seconds, begin_seconds of the power is used. begin_seconds is
 * relative to the start of the window, so readings before the window have negative times. */
static void read_series(struct reader *rd, const struct json_doc *device,
			struct result_series *s)
{
	const struct json_doc *series = object(rd, device, "series");
	const struct json_doc *power = object(rd, series, "power"),
			      *ticks = object(rd, series, "ticks");
	double begin = number_or(rd, power, "begin_seconds", 0);

	s->power_n = json_doc_count(array(rd, power, "t_seconds"), "");
	s->power_t = times(rd, power, begin, s->power_n);
	s->power_w = numbers(rd, power, "watts", s->power_n);
	if (!s->power_t || !s->power_w)
		s->power_n = 0;
	s->tick_n = json_doc_count(array(rd, ticks, "t_seconds"), "");
	s->tick_t = times(rd, ticks, number_or(rd, ticks, "begin_seconds", begin), s->tick_n);
	s->temperature_c = numbers(rd, ticks, "temperature_celsius", s->tick_n);
	s->throttle = words(rd, ticks, "throttle", s->tick_n);
	if (!s->tick_t)
		s->tick_n = 0;
}

/* Reads the members of an array element that are not in the table of fields. */
typedef void read_rest(struct reader *rd, const struct json_doc *o, void *target);

/* Reads an array of objects.  For each object, reads the fields and then calls rest(), which
 * reads the other members and may be NULL. */
static const void *read_all(struct reader *rd, const struct json_doc *o, const char *key,
			    size_t size, const struct field *fields, read_rest *rest,
			    size_t *ret_n)
{
	const struct json_doc *a = array(rd, o, key);
	size_t n = json_doc_count(a, ""), length = strlen(rd->where);
	char *v = reader_alloc(rd, n, size);

	*ret_n = v ? n : 0;
	for (size_t i = 0; v && i < n; i++) {
		const struct json_doc *e = json_doc_at(a, "", i);

		snprintf(rd->where + length, sizeof(rd->where) - length, "%s[%zu].", key, i);
		if (!json_is(e, JSON_DOC_OBJECT))
			reader_fail(rd, "%s[%zu] is %s, not an object", key, i,
				    type_word(json_doc_type(e, "")));
		reader_fill(rd, e, fields, v + i * size);
		if (rest)
			rest(rd, e, v + i * size);
		rd->where[length] = '\0';
	}
	return v;
}

static void read_room(struct reader *rd, const struct json_doc *o)
{
	const struct json_doc *room = object(rd, o, "clean_room");
	struct result_file *r = rd->r;

	if (!room)
		return;
	snprintf(rd->where, sizeof(rd->where), "clean_room.");
	r->room = truth(rd, room, "kept") ? ROOM_KEPT : ROOM_LOST;
	r->workers = read_all(rd, room, "workers", sizeof(*r->workers), worker_fields, NULL,
			      &r->nworkers);
	rd->where[0] = '\0';
}

/* Returns the source of the power readings.  rung names the sources that the measurement used,
 * such as "counter+polled".  "polled" means instant power, or average power if the sensor has
 * no instant power. */
static const char *source_of(struct reader *rd, const struct json_doc *sensor, const char *rung)
{
	if (!rung)
		return NULL;
	if (strstr(rung, "ring"))
		return "ring";
	if (strstr(rung, "polled") && truth(rd, object(rd, sensor, "instant"), "supported"))
		return "instant";
	return strstr(rung, "polled") || strcmp(rung, "mean") == 0 ? "average" : NULL;
}

static void read_sensor(struct reader *rd, const struct json_doc *device, const char *rung,
			struct result_sensor *s)
{
	const struct json_doc *sensor = object(rd, device, "sensor"), *used;

	s->source = source_of(rd, sensor, rung);
	used = s->source ? object(rd, sensor, s->source) : NULL;
	s->origin = text(rd, sensor, "origin");
	s->period_s = number(rd, used, "period_seconds");
	s->window_s = number(rd, used, "window_seconds");
	s->lag_s = number(rd, used, "lag_seconds");
	s->tick_s = number(rd, object(rd, sensor, "counter"), "tick_seconds");
	s->gain = number_or(rd, sensor, "gain", 1);
	s->offset_w = number_or(rd, sensor, "offset_watts", 0);
	s->gain_u = number_or(rd, sensor, "gain_uncertainty", SENSOR_GAIN_U);
	s->offset_u_w = number_or(rd, sensor, "offset_uncertainty_watts", SENSOR_OFFSET_U_W);
	s->pivot_w = number_or(rd, sensor, "pivot_watts", 0);
}

static void read_device(struct reader *rd, const struct json_doc *o, void *target)
{
	struct result_device *d = target;

	reader_fill(rd, o, energy_fields, d);
	read_sensor(rd, o, d->energy.rung, &d->sensor);
	read_series(rd, o, &d->series);
}

static void read_window(struct reader *rd, const struct json_doc *o, void *target)
{
	struct result_window *w = target;
	const struct json_doc *devices = array(rd, o, "devices");
	double sum = json_doc_count(devices, "") ? 0 : NAN;

	for (size_t i = 0; i < json_doc_count(devices, ""); i++)
		sum += band(rd, json_doc_at(devices, "", i), "energy_joules").best;
	w->energy_best_j = sum;
}

/* Returns the start of the part that the run describes, in seconds on the clock of the run's
 * windows. Returns 0 if the run describes the whole command, or if its windows do not contain
 * the part. */
static double part_begin(const struct result_run *run)
{
	const struct result_window *first = NULL;

	for (size_t i = 0; run->part && i < run->nwindows; i++) {
		const struct result_window *w = &run->windows[i];

		if (!w->label || strcmp(w->label, run->part) != 0 || isnan(w->begin_s))
			continue;
		if (fabs(w->seconds - run->seconds) < 1e-6)
			return w->begin_s;
		first = first ? first : w;
	}
	return first ? first->begin_s : 0;
}

static void read_run(struct reader *rd, const struct json_doc *o, void *target)
{
	struct result_run *run = target;

	if (isnan(run->figures.iterations))
		run->figures.iterations = rd->r->iterations;
	if (isnan(run->figures.tokens))
		run->figures.tokens = rd->r->tokens;
	run->codes =
		read_all(rd, o, "codes", sizeof(*run->codes), code_fields, NULL, &run->ncodes);
	run->windows = read_all(rd, o, "windows", sizeof(*run->windows), window_fields,
				read_window, &run->nwindows);
	rd->zero_s = run->zero_s = part_begin(run);
	run->devices = read_all(rd, o, "devices", sizeof(*run->devices), device_fields,
				read_device, &run->ndevices);
}

/* Returns the file name without folder and suffix: "fp16" for "runs/fp16.json". */
static const char *name_of_file(struct reader *rd)
{
	const char *path = rd->r->path, *base = strrchr(path, '/');
	char *name = reader_alloc(rd, strlen(path) + 1, 1);
	size_t n;

	base = base && base[1] ? base + 1 : path;
	n = strlen(base);
	if (n > 5 && strcmp(base + n - 5, ".json") == 0)
		n -= 5;
	if (name)
		memcpy(name, base, n);
	return name ? name : path;
}

static void read_result(struct reader *rd, const struct json_doc *o)
{
	struct result_file *r = rd->r;

	reader_fill(rd, o, result_fields, r);
	if (!r->label || !*r->label)
		r->label = name_of_file(rd);
	r->tags = facts_of(rd, o, "tags");
	r->environment = facts_of(rd, o, "environment");
	read_room(rd, o);
	r->runs = read_all(rd, o, "runs", sizeof(*r->runs), run_fields, read_run, &r->nruns);
}

static bool is_ours(struct reader *rd, const struct json_doc *o)
{
	const struct json_doc *version = json_doc_get(o, "schema_version");
	const char *kind = json_doc_string(o, "kind");

	if (!json_is(o, JSON_DOC_OBJECT) || !kind || !json_is(version, JSON_DOC_NUMBER))
		reader_fail(rd, "this is JSON, but not a result of gpuward measure");
	else if (strcmp(kind, "measurement") != 0)
		reader_fail(rd, "this is a %.40s, not a result of gpuward measure", kind);
	else if (json_doc_number(version, "") > RESULT_SCHEMA_VERSION)
		reader_fail(rd,
			    "its schema_version is %.15g, and this gpuward reads up to %d: "
			    "read it with a newer gpuward",
			    json_doc_number(version, ""), RESULT_SCHEMA_VERSION);
	return !rd->failed;
}

/* Opens the file, or result.json if path is a bundle.  If path is a folder without result.json,
 * opens the folder. */
static int open_path(const char *path)
{
	int fd = file_open(path);
	int in = fd < 0 ? -1 : openat(fd, "result.json", O_RDONLY | O_CLOEXEC);

	if (in < 0)
		return fd;
	close(fd);
	return in;
}

#define PART_BYTES 65536

/* Returns true if b, the beginning of a file, can be the beginning of a JSON object. A device
 * such as /dev/zero and endless white space are therefore rejected after the first bytes. */
static bool begins_object(const struct buf *b)
{
	size_t n = b->len ? strspn(b->p, " \t\r\n") : 0;

	return n == b->len ? n < PART_BYTES : b->p[n] == '{';
}

static void reader_fail_size(struct reader *rd)
{
	reader_fail(rd,
		    "too large for a result: the limit is %zu MiB; measure for a shorter time, "
		    "or read its bundle with gpuward recompute",
		    RESULT_MAX >> 20);
}

/* Adds the whole file to b. */
static void read_file(struct reader *rd, struct buf *b)
{
	int fd = open_path(rd->r->path);
	struct stat st;
	char part[PART_BYTES];
	ssize_t n = 0;

	if (fd < 0 || fstat(fd, &st) != 0) {
		reader_fail(rd, "%s", file_strerror(errno));
	} else if (S_ISDIR(st.st_mode)) {
		reader_fail(rd, "%s, and not a finished bundle: there is no result.json in it",
			    strerror(EISDIR));
	} else if (st.st_size > (off_t)RESULT_MAX) {
		reader_fail_size(rd);
	} else {
		while (!b->err && begins_object(b) && (n = read(fd, part, sizeof(part))) > 0)
			buf_add(b, part, (size_t)n);
		if (n < 0)
			reader_fail(rd, "cannot be read");
		else if (!begins_object(b))
			reader_fail(
				rd,
				"not a result: a result of gpuward is JSON and begins with {");
		else if (b->err == -GW_E_SIZE)
			reader_fail_size(rd);
		else if (b->err)
			reader_fail(rd, "%s", gw_strerror(b->err));
	}
	if (fd >= 0)
		close(fd);
}

static struct json_doc *reader_parse(struct reader *rd, const char *text, size_t n)
{
	struct json_doc *doc = NULL;
	struct json_doc_error e;
	int err = json_doc_new_lenient(text, n, &doc, &e);

	if (err == -GW_E_NOSUPPORT)
		reader_fail(rd, "%s", e.text);
	if (err == -GW_E_PARSE) {
		snprintf(rd->error, rd->size, "%s:%d:%d: not a valid JSON document: %s",
			 rd->r->path, e.line, e.column, e.text);
		rd->failed = true;
	}
	return doc;
}

int result_file_read(struct result_file *ret, const char *path, const char *text, size_t n,
		     char *error, size_t size)
{
	struct reader rd = { .r = ret, .error = error, .size = size };
	struct buf file;

	buf_init(&file, RESULT_MAX);
	*ret = (struct result_file){ .path = path };
	ret->memory = calloc(1, sizeof(*ret->memory));
	if (!ret->memory) {
		reader_fail(&rd, "out of memory");
		return -1;
	}
	if (!text)
		read_file(&rd, &file);
	if (!rd.failed)
		ret->memory->document =
			text ? reader_parse(&rd, text, n) : reader_parse(&rd, file.p, file.len);
	buf_done(&file);
	if (ret->memory->document && is_ours(&rd, ret->memory->document))
		read_result(&rd, ret->memory->document);
	if (!rd.failed)
		return 0;
	result_file_free(ret);
	return -1;
}

void result_file_free(struct result_file *r)
{
	if (!r->memory)
		return;
	for (struct block *b = r->memory->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	json_doc_free(r->memory->document);
	free(r->memory);
	r->memory = NULL;
}

const struct json_doc *result_file_document(const struct result_file *r)
{
	return r->memory->document;
}

bool result_file_same(const struct result_file *a, const struct result_file *b)
{
	return json_doc_equal(a->memory->document, b->memory->document);
}

const char *result_code_level(const struct result_code *code)
{
	return !code->level || strcmp(code->level, "valid") == 0 ? "note" : code->level;
}

bool result_run_usable(const struct result_run *run)
{
	return !run->validity || strcmp(run->validity, "invalid") != 0;
}
