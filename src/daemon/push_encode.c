#include "push_encode.h"

#include "base/text.h"

#include "push_wire.h"

#include "base/utf8.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define RECORD_MAX (32u << 20) /* Maximum bytes of one page, before compression. */
/* Maximum number of labels of one series: those of metrics_text.h, the identity and the
 * name. */
#define LABELS_MAX 64

/* A series in one block of memory: its type, its name, and its labels sorted by name. Each
 * string ends with a NUL; an empty label name ends the series. The block identifies the series,
 * and the staleness marker of a series that disappears is made from its block. */
struct push_series {
	const char *p;
	size_t n;
};

struct push_label {
	const char *name, *value;
};

/* The series of one page, with a hash table to find them. */
struct push_page {
	struct buf series;
	uint64_t *hash; /* Open addressing. A free slot is 0. */
	size_t slots, used;
};

struct push_encoder {
	enum push_protocol protocol;
	const struct push_identity *id;
	uint64_t start_ns;
	int64_t time_ms;
	uint32_t samples;
	struct push_page page, last;
	struct buf raw, packed;
	int err;
	struct {
		/* Position of each OTLP message that is open. 0 for a message that is not
		 * open. */
		size_t resource, scope, metric, data;
		char name[PUSH_TEXT_MAX]; /* Name of the open metric. */
		enum metric_type type;
	} otlp;
};

/* Prometheus compares the bits of this NaN (pkg/value in its source). */
static double stale_marker(void)
{
	const uint64_t bits = UINT64_C(0x7ff0000000000002);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

int64_t push_time(int64_t last_ms, int64_t wall_ms)
{
	if (wall_ms > last_ms || last_ms - wall_ms > PUSH_CLOCK_BACK_MS)
		return wall_ms;
	return -1;
}

static uint64_t series_hash(const char *p, size_t n)
{
	const uint64_t h = text_hash(TEXT_HASH_START, p, n);

	return h ? h : 1; /* A hash must not be 0, because 0 marks a free slot. */
}

/* Returns the slot of a hash, or the free slot where the hash belongs. */
static uint64_t *page_slot(const struct push_page *p, uint64_t hash)
{
	size_t i = hash & (p->slots - 1);

	while (p->hash[i] && p->hash[i] != hash)
		i = (i + 1) & (p->slots - 1);
	return &p->hash[i];
}

static bool page_has(const struct push_page *p, uint64_t hash)
{
	return p->slots && *page_slot(p, hash);
}

static int page_grow(struct push_page *p)
{
	struct push_page wider = { .slots = p->slots ? 2 * p->slots : 512 };

	wider.hash = calloc(wider.slots, sizeof(*wider.hash));
	if (!wider.hash)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < p->slots; i++)
		if (p->hash[i])
			*page_slot(&wider, p->hash[i]) = p->hash[i];
	free(p->hash);
	p->hash = wider.hash;
	p->slots = wider.slots;
	return 0;
}

/* Adds a hash to the page. Returns 1, 0 if the page already has this hash, or -GW_E_NOMEM. */
static int page_add(struct push_page *p, uint64_t hash)
{
	if (page_has(p, hash))
		return 0;
	if (2 * (p->used + 1) > p->slots && page_grow(p) != 0)
		return -GW_E_NOMEM;
	*page_slot(p, hash) = hash;
	p->used++;
	return 1;
}

static void page_clear(struct push_page *p)
{
	buf_clear(&p->series);
	if (p->slots)
		memset(p->hash, 0, p->slots * sizeof(*p->hash));
	p->used = 0;
}

static void sort_labels(struct push_label *l, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		for (unsigned k = i; k > 0 && strcmp(l[k].name, l[k - 1].name) < 0; k--) {
			struct push_label x = l[k];

			l[k] = l[k - 1];
			l[k - 1] = x;
		}
}

/* Reads pairs such as a="x",b="y" as metrics_text.c writes them. Copies names and values to
 * `at`, which must have as many bytes as `pairs`. Skips a label with an empty value. Returns
 * the end of the copied text. */
static char *parse_pairs(const char *pairs, char *at, struct push_label *ret, unsigned *n)
{
	while (pairs && *pairs) {
		struct push_label l = { .name = at };

		while (*pairs && *pairs != '=')
			*at++ = *pairs++;
		*at++ = '\0';
		l.value = at;
		pairs += strlen(pairs) < 2 ? strlen(pairs) : 2; /* Skips the characters =". */
		for (; *pairs && *pairs != '"'; pairs++) {
			bool escaped = *pairs == '\\' && pairs[1];

			pairs += escaped;
			*at++ = (char)(escaped && *pairs == 'n' ? '\n' : *pairs);
		}
		*at++ = '\0';
		pairs += *pairs == '"';
		pairs += *pairs == ',';
		if (*l.value && *n < LABELS_MAX)
			ret[(*n)++] = l;
	}
	return at;
}

/* Appends the name and the labels of a sample to out as a series. */
static struct push_series series_add(struct buf *out, const struct metric *m, const char *base,
				     const char *more)
{
	/* In `text`, names and values end with a NUL instead of quotes. Therefore `text` is
	 * never longer than the pairs. */
	char text[2 * METRIC_LABELS_SIZE + 2];
	struct push_label l[LABELS_MAX];
	unsigned n = 0;
	size_t begin = out->len;

	parse_pairs(more, parse_pairs(base, text, l, &n), l, &n);
	sort_labels(l, n);
	buf_addc(out, (char)m->type);
	buf_adds(out, m->name);
	buf_adds(out, metric_suffix(m->type));
	buf_addc(out, '\0');
	for (unsigned i = 0; i < n; i++) {
		if (i > 0 && strcmp(l[i].name, l[i - 1].name) == 0)
			continue; /* A series must not have two labels with the same name. */
		buf_add(out, l[i].name, strlen(l[i].name) + 1);
		buf_add(out, l[i].value, strlen(l[i].value) + 1);
	}
	buf_addc(out, '\0');
	return (struct push_series){ out->p + begin, out->len - begin };
}

/* Reads a series that series_add() wrote. Returns its name. */
static const char *series_read(const char *p, struct push_label *ret, unsigned *n)
{
	const char *name = ++p;

	*n = 0;
	for (p += strlen(p) + 1; *p && *n < LABELS_MAX; (*n)++) {
		ret[*n].name = p;
		p += strlen(p) + 1;
		ret[*n].value = p;
		p += strlen(p) + 1;
	}
	return name;
}

/* Returns the length of the series at p. Each string of the series ends with NUL. */
static size_t series_length(const char *p)
{
	const char *at = p + 1;

	at += strlen(at) + 1;
	while (*at) {
		at += strlen(at) + 1;
		at += strlen(at) + 1;
	}
	return (size_t)(at + 1 - p);
}

/* Adds a label of the target, such as job or instance. If the series already has a label with
 * this name, renames that label to `renamed`, as Prometheus does with honor_labels = false. */
static void add_target(struct push_label *l, unsigned *n, const char *name, const char *value,
		       const char *renamed)
{
	if (!*value || *n + 1 >= LABELS_MAX)
		return;
	for (unsigned i = 0; i < *n; i++)
		if (strcmp(l[i].name, name) == 0)
			l[i].name = renamed;
	l[(*n)++] = (struct push_label){ name, value };
}

/* Adds a configured label, unless the series already has a label with the same name. The
 * external_labels of Prometheus work in the same way. */
static void add_external(struct push_label *l, unsigned *n, const char *name, const char *value)
{
	for (unsigned i = 0; i < *n; i++)
		if (strcmp(l[i].name, name) == 0)
			return;
	if (*value && *n + 1 < LABELS_MAX)
		l[(*n)++] = (struct push_label){ name, value };
}

static void write_series(struct push_encoder *e, const char *series, double value)
{
	const struct push_identity *id = e->id;
	struct push_label l[LABELS_MAX];
	unsigned n;
	const char *name = series_read(series, l, &n);
	size_t all = protobuf_open(&e->raw, 1), part;

	add_target(l, &n, "job", id->job, "exported_job");
	add_target(l, &n, "instance", id->instance, "exported_instance");
	for (unsigned i = 0; i < id->labels; i++)
		add_external(l, &n, id->label[i].name, id->label[i].value);
	if (n < LABELS_MAX)
		l[n++] = (struct push_label){ "__name__", name };
	sort_labels(l, n);
	for (unsigned i = 0; i < n; i++) {
		part = protobuf_open(&e->raw, 1);
		protobuf_string(&e->raw, 1, l[i].name);
		protobuf_string(&e->raw, 2, l[i].value);
		protobuf_close(&e->raw, part);
	}
	part = protobuf_open(&e->raw, 2);
	protobuf_double(&e->raw, 1, value);
	protobuf_uint(&e->raw, 2, (uint64_t)e->time_ms);
	protobuf_close(&e->raw, part);
	protobuf_close(&e->raw, all);
}

/* Field numbers of opentelemetry/proto: metrics/v1, common/v1 and resource/v1. */
enum {
	REQUEST_RESOURCE_METRICS = 1,
	RESOURCE_METRICS_RESOURCE = 1,
	RESOURCE_METRICS_SCOPE = 2,
	SCOPE_METRICS_SCOPE = 1,
	SCOPE_METRICS_METRICS = 2,
	METRIC_NAME = 1,
	METRIC_DESCRIPTION = 2,
	METRIC_UNIT = 3,
	METRIC_DATA_GAUGE = 5,
	METRIC_DATA_SUM = 7,
	SUM_TEMPORALITY = 2,
	SUM_MONOTONIC = 3,
	POINT_START = 2,
	POINT_TIME = 3,
	POINT_DOUBLE = 4,
	POINT_ATTRIBUTES = 7,
	POINT_FLAGS = 8,
	TEMPORALITY_CUMULATIVE = 2,
	FLAG_NO_RECORDED_VALUE = 1,
};

static void otlp_attribute(struct buf *out, unsigned field, const char *key, const char *value)
{
	size_t pair, text;

	if (!*value)
		return;
	pair = protobuf_open(out, field);
	protobuf_string(out, 1, key);
	text = protobuf_open(out, 2);
	protobuf_string(out, 1, value);
	protobuf_close(out, text);
	protobuf_close(out, pair);
}

static void otlp_begin(struct push_encoder *e)
{
	const struct push_identity *id = e->id;
	size_t part;

	e->otlp.resource = protobuf_open(&e->raw, REQUEST_RESOURCE_METRICS);
	part = protobuf_open(&e->raw, RESOURCE_METRICS_RESOURCE);
	otlp_attribute(&e->raw, 1, "service.name", id->job);
	otlp_attribute(&e->raw, 1, "service.instance.id", id->instance);
	otlp_attribute(&e->raw, 1, "host.name", id->host);
	for (unsigned i = 0; i < id->labels; i++)
		otlp_attribute(&e->raw, 1, id->label[i].name, id->label[i].value);
	protobuf_close(&e->raw, part);
	e->otlp.scope = protobuf_open(&e->raw, RESOURCE_METRICS_SCOPE);
	part = protobuf_open(&e->raw, SCOPE_METRICS_SCOPE);
	protobuf_string(&e->raw, 1, "gpuward");
	protobuf_string(&e->raw, 2, gw_version());
	protobuf_close(&e->raw, part);
	e->otlp.metric = 0;
}

static void otlp_close_metric(struct push_encoder *e)
{
	if (!e->otlp.metric)
		return;
	if (e->otlp.type == METRIC_COUNTER) {
		protobuf_uint(&e->raw, SUM_TEMPORALITY, TEMPORALITY_CUMULATIVE);
		protobuf_uint(&e->raw, SUM_MONOTONIC, 1);
	}
	protobuf_close(&e->raw, e->otlp.data);
	protobuf_close(&e->raw, e->otlp.metric);
	e->otlp.metric = 0;
}

/* Returns the unit of a metric in UCUM, which OTLP uses. */
static const char *otlp_unit(const char *unit)
{
	static const char *const units[][2] = {
		{ "bytes", "By" },    { "watts", "W" },   { "joules", "J" },
		{ "celsius", "Cel" }, { "hertz", "Hz" },  { "ratio", "1" },
		{ "seconds", "s" },   { "percent", "%" }, { "bytes_per_second", "By/s" },
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(units[i][0], unit) == 0)
			return units[i][1];
	return "";
}

/* Begins a metric, unless it is already open. m is NULL for a series that disappeared. */
static void otlp_open_metric(struct push_encoder *e, const char *name, enum metric_type type,
			     const struct metric *m)
{
	if (e->otlp.metric && strcmp(e->otlp.name, name) == 0)
		return;
	otlp_close_metric(e);
	snprintf(e->otlp.name, sizeof(e->otlp.name), "%s", name);
	e->otlp.type = type;
	e->otlp.metric = protobuf_open(&e->raw, SCOPE_METRICS_METRICS);
	protobuf_string(&e->raw, METRIC_NAME, name);
	if (m)
		protobuf_string(&e->raw, METRIC_DESCRIPTION, m->help);
	if (m && *otlp_unit(metric_unit(m->name)))
		protobuf_string(&e->raw, METRIC_UNIT, otlp_unit(metric_unit(m->name)));
	e->otlp.data = protobuf_open(&e->raw, type == METRIC_COUNTER ? METRIC_DATA_SUM
								     : METRIC_DATA_GAUGE);
}

static void otlp_series(struct push_encoder *e, const char *series, const struct metric *m,
			double value)
{
	enum metric_type type = (enum metric_type)series[0];
	struct push_label l[LABELS_MAX];
	unsigned n;
	size_t point;

	otlp_open_metric(e, series_read(series, l, &n), type, m);
	point = protobuf_open(&e->raw, 1);
	if (type == METRIC_COUNTER)
		protobuf_fixed64(&e->raw, POINT_START, e->start_ns);
	protobuf_fixed64(&e->raw, POINT_TIME, (uint64_t)e->time_ms * 1000000);
	if (m)
		protobuf_double(&e->raw, POINT_DOUBLE, value);
	for (unsigned i = 0; i < n; i++)
		otlp_attribute(&e->raw, POINT_ATTRIBUTES, l[i].name, l[i].value);
	if (!m)
		protobuf_uint(&e->raw, POINT_FLAGS, FLAG_NO_RECORDED_VALUE);
	protobuf_close(&e->raw, point);
}

uint64_t push_otlp_rejected(const char *p, size_t n, char *message, size_t size)
{
	struct protobuf_field f, part;
	uint64_t rejected = 0;

	message[0] = '\0';
	for (const char *end = p + n; protobuf_next(&p, end, &f);) {
		if (f.number != 1 || !f.p) /* Field 1 is partial_success. */
			continue;
		for (const char *at = f.p; protobuf_next(&at, f.p + f.n, &part);) {
			if (part.number == 1 && !part.p && part.v <= INT64_MAX)
				rejected = part.v;
			else if (part.number == 2 && part.p)
				snprintf(message, size, "%.*s",
					 (int)(part.n < 400 ? part.n : 400), part.p);
		}
	}
	return rejected;
}

/* Appends p as one gzip member. Returns 0 or -GW_E_NOMEM. */
static int add_gzip(struct buf *out, const char *p, size_t n)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n };
	char part[8192];
	int rc = deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);

	if (rc != Z_OK)
		return -GW_E_NOMEM;
	do {
		z.next_out = (Bytef *)part;
		z.avail_out = sizeof(part);
		rc = deflate(&z, Z_FINISH);
		buf_add(out, part, sizeof(part) - z.avail_out);
	} while (rc == Z_OK || rc == Z_BUF_ERROR);
	deflateEnd(&z);
	return rc == Z_STREAM_END ? out->err : -GW_E_NOMEM;
}

int push_encoder_new(enum push_protocol protocol, const struct push_identity *id,
		     uint64_t start_ns, struct push_encoder **ret)
{
	struct push_encoder *e = calloc(1, sizeof(*e));

	if (!e)
		return -GW_E_NOMEM;
	e->protocol = protocol;
	e->id = id;
	e->start_ns = start_ns;
	buf_init(&e->page.series, RECORD_MAX);
	buf_init(&e->last.series, RECORD_MAX);
	buf_init(&e->raw, RECORD_MAX);
	buf_init(&e->packed, RECORD_MAX + RECORD_MAX / 6 + 64);
	*ret = e;
	return 0;
}

void push_encoder_free(struct push_encoder *e)
{
	if (!e)
		return;
	buf_done(&e->page.series);
	buf_done(&e->last.series);
	buf_done(&e->raw);
	buf_done(&e->packed);
	free(e->page.hash);
	free(e->last.hash);
	free(e);
}

void push_encoder_begin(struct push_encoder *e, int64_t time_ms)
{
	struct push_page old = e->last;

	e->last = e->page;
	e->page = old;
	page_clear(&e->page);
	buf_clear(&e->raw);
	buf_clear(&e->packed);
	e->time_ms = time_ms;
	e->samples = 0;
	e->err = 0;
	if (e->protocol == PUSH_OTLP)
		otlp_begin(e);
}

static void write_one(struct push_encoder *e, const char *series, const struct metric *m,
		      double value)
{
	if (e->protocol == PUSH_OTLP)
		otlp_series(e, series, m, value);
	else
		write_series(e, series, m ? value : stale_marker());
	e->samples++;
}

void push_encoder_sample(void *arg, const struct metric *m, const char *base, const char *more,
			 double value)
{
	struct push_encoder *e = arg;
	size_t before = e->page.series.len;
	struct push_series s = series_add(&e->page.series, m, base, more);
	int added = e->page.series.err ? e->page.series.err
				       : page_add(&e->page, series_hash(s.p, s.n));

	if (added <= 0)
		e->page.series.len = before;
	if (added < 0)
		e->err = added;
	if (added > 0)
		write_one(e, s.p, m, value);
}

static void mark_stale(struct push_encoder *e)
{
	const char *p = e->last.series.p, *end = p + e->last.series.len;
	size_t n;

	for (; p < end; p += n) {
		n = series_length(p);
		if (!page_has(&e->page, series_hash(p, n)))
			write_one(e, p, NULL, 0);
	}
}

/* After the record is made, also frees the memory that was needed only to make it. */
int push_encoder_end(struct push_encoder *e, struct push_record *ret)
{
	mark_stale(e);
	if (e->protocol == PUSH_OTLP) {
		otlp_close_metric(e);
		protobuf_close(&e->raw, e->otlp.scope);
		protobuf_close(&e->raw, e->otlp.resource);
	}
	if (!e->err)
		e->err = e->raw.err;
	if (!e->err && e->protocol == PUSH_OTLP)
		e->err = add_gzip(&e->packed, e->raw.p, e->raw.len);
	else if (!e->err)
		push_snappy_add(&e->packed, e->raw.p, e->raw.len);
	if (!e->err)
		e->err = e->packed.err;
	*ret = (struct push_record){ .protocol = e->protocol,
				     .time_ms = e->time_ms,
				     .samples = e->samples,
				     .raw_bytes = (uint32_t)e->raw.len,
				     .p = e->packed.p,
				     .n = e->packed.len };
	buf_done(&e->raw);
	buf_done(&e->last.series);
	return e->err;
}
