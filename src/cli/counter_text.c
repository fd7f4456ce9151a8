#include "counter_text.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/json_doc.h"
#include "base/number.h"
#include "base/prometheus_text.h"

#include <gpuward.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABELS 16

static const char blank[] = " \t\r\n";

/* Names of the counters of generated tokens in known servers. */
static const char *const known[] = {
	"vllm:generation_tokens_total",
	"llamacpp:tokens_predicted_total",
	"sglang:generation_tokens_total",
	"tgi_request_generated_tokens_sum",
};
#define KNOWN (COUNT(known))

struct selector {
	char name[256];
	struct prometheus_label label[LABELS];
	unsigned labels;
};

/* Parses a selector: "name" or "name{...}". */
static bool parse_wanted(const char *what, struct selector *w)
{
	size_t n = strcspn(what, "{");
	const char *p = what + n;
	int more = *p ? 1 : 0;

	w->labels = 0;
	if (n == 0 || n >= sizeof(w->name))
		return false;
	memcpy(w->name, what, n);
	w->name[n] = '\0';
	for (p += more; more == 1; w->labels += more == 1) {
		if (w->labels == LABELS)
			return false;
		more = prometheus_label_next(&p, &w->label[w->labels]);
	}
	return more == 0 && !*p;
}

/* Returns true if the labels of the line include all labels of the selector. */
static bool has_labels(const struct prometheus_line *l, const struct selector *w)
{
	const char *p = l->labels + 1;
	struct prometheus_label label;
	unsigned found = 0;

	while (l->labels_len && prometheus_label_next(&p, &label) == 1)
		for (unsigned i = 0; i < w->labels; i++)
			found += strcmp(label.key, w->label[i].key) == 0 &&
				 strcmp(label.value, w->label[i].value) == 0;
	return found == w->labels;
}

/* FNV-1a: a collision among 256 series is practically impossible. */
static uint64_t hash_bytes(uint64_t h, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
	return h;
}

static uint64_t series_id(const char *counter, const struct prometheus_line *l)
{
	uint64_t h = hash_bytes(UINT64_C(0xcbf29ce484222325), counter, strlen(counter));

	return hash_bytes(h, l->labels, l->labels_len);
}

/* Adds the series of a line if its labels match. Malformed labels are an error, because it is
 * unknown whether they match. */
static void parse_line(const struct prometheus_line *l, const struct selector *w,
		       struct counter_reading *ret)
{
	const bool malformed = *l->labels == '{' && !l->labels_len;

	if (!malformed && !has_labels(l, w))
		return;
	if (!l->valid)
		counter_refuse(ret, "the reply has a malformed line of '%.100s'", w->name);
	else
		counter_add(ret, series_id(w->name, l), l->value);
}

/* Writes the name of the metric with the counter's start time.  Client libraries add this
 * metric, with the same labels.  Returns false if the counter cannot have such a metric. */
static bool created_name(const char *counter, char out[static 256])
{
	static const char *const ends[] = { "_total", "_sum", "_count" };
	size_t n = strlen(counter);

	for (size_t i = 0; i < COUNT(ends); i++) {
		size_t end = strlen(ends[i]);

		if (n > end && strcmp(counter + n - end, ends[i]) == 0)
			return snprintf(out, 256, "%.*s_created", (int)(n - end), counter) <
			       256;
	}
	return false;
}

static void parse_created(const char *text, const char *counter, struct counter_reading *ret)
{
	struct prometheus_line l;
	char created[256];

	if (!created_name(counter, created))
		return;
	while (prometheus_text_next(&text, &l)) {
		if (!prometheus_line_is(&l, created) || !(l.value > 0))
			continue;
		for (unsigned i = 0; i < ret->n; i++)
			if (ret->series[i].id == series_id(counter, &l))
				ret->series[i].created_s = l.value;
	}
}

/* Parses a whole reply.  near: receives a longer name in the reply that begins with the
 * selected name, for the error message. */
static void parse_text(const char *text, const struct selector *w, struct counter_reading *ret,
		       char near[static 256])
{
	const size_t selector = strlen(w->name);
	const char *rest = text;
	struct prometheus_line l;

	while (prometheus_text_next(&rest, &l)) {
		if (prometheus_line_is(&l, w->name))
			parse_line(&l, w, ret);
		else if (l.name_len > selector && l.name_len < 256 &&
			 memcmp(l.name, w->name, selector) == 0)
			snprintf(near, 256, "%.*s", (int)l.name_len, l.name);
	}
	if (ret->n)
		parse_created(text, w->name, ret);
}

/* Writes "name{label="v"}", in the syntax of the option. */
static void write_name(const struct selector *w, struct counter_reading *ret)
{
	struct buf b;

	buf_init_fixed(&b, ret->name, sizeof(ret->name));
	buf_adds(&b, w->name);
	for (unsigned i = 0; i < w->labels; i++) {
		buf_addf(&b, "%s%s=\"", i ? "," : "{", w->label[i].key);
		for (const char *p = w->label[i].value; *p; p++) {
			if (*p == '"' || *p == '\\' || *p == '\n')
				buf_addc(&b, '\\');
			buf_addc(&b, *p == '\n' ? 'n' : *p);
		}
		buf_addc(&b, '"');
	}
	if (w->labels)
		buf_addc(&b, '}');
}

static void parse_named(const char *text, const struct selector *w, struct counter_reading *ret)
{
	char near[256] = "";

	write_name(w, ret);
	parse_text(text, w, ret, near);
	if (isnan(ret->value) || ret->n)
		return;
	if (w->labels)
		counter_refuse(ret, "the reply has no '%.100s' with these labels", w->name);
	else if (*near)
		counter_refuse(ret, "the reply has no '%.100s', but it has '%.100s'", w->name,
			       near);
	else
		counter_refuse(ret,
			       "the reply has no '%.100s' (some servers add it after their "
			       "first request)",
			       w->name);
}

/* Parses a reply if no name is given: a single number, or the first known counter. */
static void parse_known(const char *text, struct counter_reading *ret)
{
	const char *end, *at = text + strspn(text, blank);
	double v = number_parse(at, &end);
	char near[256];

	if (end != at && !end[strspn(end, blank)]) {
		counter_add(ret, 0, v);
		return;
	}
	for (size_t i = 0; i < KNOWN && !isnan(ret->value) && ret->n == 0; i++) {
		struct selector w = { .labels = 0 };

		snprintf(w.name, sizeof(w.name), "%s", known[i]);
		parse_text(text, &w, ret, near);
		if (ret->n)
			write_name(&w, ret);
	}
	if (!isnan(ret->value) && ret->n == 0)
		counter_refuse(ret,
			       "the reply has no known token counter; give its name after the "
			       "URL, as in URL#%s",
			       known[0]);
}

/* Follows one step of a path: a key, or a position in an array. */
static const struct json_doc *json_step(const struct json_doc *v, const char *key)
{
	bool digits = *key && key[strspn(key, "0123456789")] == '\0' && strlen(key) < 10;
	const struct json_doc *in = json_doc_get(v, key);

	if (!in && digits)
		in = json_doc_at(v, "", strtoul(key, NULL, 10));
	return in;
}

static void parse_json(const char *text, size_t n, const char *path,
		       struct counter_reading *ret)
{
	struct json_doc *doc = NULL;
	const struct json_doc *v;
	char message[160], key[64];

	if (json_doc_new(text, n, &doc, message, sizeof(message)) != 0) {
		counter_refuse(ret, "the reply is %s", message);
		return;
	}
	snprintf(ret->name, sizeof(ret->name), "%s", path);
	v = doc;
	for (const char *p = path; v && *p; p += *p == '.') {
		size_t len = strcspn(p, ".");

		snprintf(key, sizeof(key), "%.*s", (int)(len < sizeof(key) ? len : 0), p);
		v = json_step(v, key);
		p += len;
	}
	if (v && json_doc_is_number(v, ""))
		counter_add(ret, 0, json_doc_number(v, ""));
	else
		counter_refuse(ret, "the reply is JSON and has no number at '%.100s'", path);
	json_doc_free(doc);
}

int counter_text_check(const char *what, char *why, size_t size)
{
	struct selector w;

	if (!what || parse_wanted(what, &w))
		return 0;
	snprintf(why, size,
		 "'%.100s' is not a counter; give NAME, NAME{LABEL=\"VALUE\",...} or, for "
		 "JSON, KEY.KEY",
		 what);
	return -GW_E_ARG;
}

void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret)
{
	char first = text[strspn(text, blank)];
	bool json = first == '{' || first == '[';
	struct selector w;

	if (json && !what)
		counter_refuse(ret, "the reply is JSON; give the path of the number after the "
				    "URL, as in URL#usage.tokens");
	else if (json)
		parse_json(text, n, what, ret);
	else if (!what)
		parse_known(text, ret);
	else if (parse_wanted(what, &w))
		parse_named(text, &w, ret);
	else
		counter_refuse(ret, "'%.100s' is not a counter", what);
}
