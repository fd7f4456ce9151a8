#include "counter_text.h"

#include "base/buf.h"
#include "base/json_doc.h"
#include "base/number.h"

#include <gpuward.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABELS 16

static const char blank[] = " \t\r\n";

/* The tokens that a server generated, as it calls them. */
static const char *const known[] = {
	"vllm:generation_tokens_total",
	"llamacpp:tokens_predicted_total",
	"sglang:generation_tokens_total",
	"tgi_request_generated_tokens_sum",
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

struct label {
	char key[128], value[512];
};

struct wanted {
	char name[256];
	struct label label[LABELS];
	unsigned labels;
};

/* ---- names and labels ---- */

static const char *skip_blank(const char *p)
{
	return p + strspn(p, " \t");
}

/* A value in quotes at *p, which is moved past it.  False: it is none, or does not fit. */
static bool quoted(const char **p, char *out, size_t size)
{
	const char *s = *p;
	size_t n = 0;

	if (*s++ != '"')
		return false;
	for (; *s && *s != '"' && *s != '\n'; s++) {
		char c = *s;

		if (c == '\\' && s[1] && s[1] != '\n')
			c = *++s == 'n' ? '\n' : *s;
		if (n + 1 >= size)
			return false;
		out[n++] = c;
	}
	out[n] = '\0';
	*p = s + (*s == '"');
	return *p > s;
}

/* The next of key="value", ...} at *p.  1: there was one; 0: the end, *p is behind it; -1: it
 * is malformed. */
static int next_label(const char **p, struct label *ret)
{
	size_t n;

	*p = skip_blank(*p);
	if (**p == ',')
		*p = skip_blank(*p + 1);
	if (**p == '}') {
		(*p)++;
		return 0;
	}
	n = strcspn(*p, "=,{}\" \t\n");
	if (n == 0 || n >= sizeof(ret->key))
		return -1;
	memcpy(ret->key, *p, n);
	ret->key[n] = '\0';
	*p = skip_blank(*p + n);
	if (**p != '=')
		return -1;
	*p = skip_blank(*p + 1);
	return quoted(p, ret->value, sizeof(ret->value)) ? 1 : -1;
}

/* "name" or "name{...}" */
static bool parse_wanted(const char *what, struct wanted *w)
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
		more = next_label(&p, &w->label[w->labels]);
	}
	return more == 0 && !*p;
}

/* ---- Prometheus' text ---- */

/* Has the series, whose labels begin at *p, all that are wanted?  *p is moved behind them.  -1:
 * malformed. */
static int has_labels(const char **p, const struct wanted *w)
{
	unsigned found = 0;
	struct label l;
	int more;

	while ((more = next_label(p, &l)) == 1)
		for (unsigned i = 0; i < w->labels; i++)
			found += strcmp(l.key, w->label[i].key) == 0 &&
				 strcmp(l.value, w->label[i].value) == 0;
	return more < 0 ? -1 : found == w->labels;
}

/* FNV-1a: of 256 labels no two are alike by chance. */
static uint64_t hash(uint64_t h, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Of a counter the series with these labels, as they are written. */
static uint64_t series_id(const char *counter, const char *labels, const char *end)
{
	uint64_t h = hash(UINT64_C(0xcbf29ce484222325), counter, strlen(counter));

	return hash(h, labels, (size_t)(end - labels));
}

/* A line that begins with the name: is it a series that is wanted, and what does it say? */
static void take_line(const char *line, size_t name, const struct wanted *w,
		      struct counter_reading *ret)
{
	const char *p = line + name, *labels, *end;
	int has = w->labels == 0;
	double v;

	if (*p == '{') {
		p++;
		has = has_labels(&p, w);
	}
	if (has == 0)
		return;
	labels = p;
	end = p = skip_blank(p);
	v = has < 0 || !*p || *p == '\n' ? NAN : number_parse(p, &end);
	if (end == p || (*end && !strchr(blank, *end)))
		counter_refuse(ret, "its answer has a line of '%.100s' that cannot be read",
			       w->name);
	else
		counter_add(ret, series_id(w->name, line + name, labels), v);
}

/* When its series began: client libraries tell it beside a counter, with the same labels.
 * False: no counter has it. */
static bool created_name(const char *counter, char out[static 256])
{
	static const char *const ends[] = { "_total", "_sum", "_count" };
	size_t n = strlen(counter);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t end = strlen(ends[i]);

		if (n > end && strcmp(counter + n - end, ends[i]) == 0)
			return snprintf(out, 256, "%.*s_created", (int)(n - end), counter) <
			       256;
	}
	return false;
}

static void take_created_line(const char *line, size_t name, const char *counter,
			      struct counter_reading *ret)
{
	static const struct wanted any = { .labels = 0 };
	const char *p = line + name, *labels, *end;
	uint64_t id;
	double v;

	if (*p == '{' && (p++, has_labels(&p, &any)) < 0)
		return;
	labels = p;
	p = skip_blank(p);
	v = number_parse(p, &end);
	id = series_id(counter, line + name, labels);
	for (unsigned i = 0; end != p && v > 0 && i < ret->n; i++)
		if (ret->series[i].id == id)
			ret->series[i].created_s = v;
}

static void take_created(const char *text, const char *counter, struct counter_reading *ret)
{
	char wanted[256];

	if (!created_name(counter, wanted))
		return;
	for (const char *line = text; *line; line += *line == '\n') {
		size_t name;

		line = skip_blank(line);
		name = strcspn(line, "{ \t\r\n");
		if (name == strlen(wanted) && memcmp(line, wanted, name) == 0)
			take_created_line(line, name, counter, ret);
		line += strcspn(line, "\n");
	}
}

/* near: a name that begins as the wanted one does, and goes on. */
static void take_text(const char *text, const struct wanted *w, struct counter_reading *ret,
		      char near[static 256])
{
	size_t wanted = strlen(w->name);

	for (const char *line = text; *line; line += *line == '\n') {
		size_t name;

		line = skip_blank(line);
		name = strcspn(line, "{ \t\r\n");
		if (name == wanted && memcmp(line, w->name, name) == 0)
			take_line(line, name, w, ret);
		else if (name > wanted && name < 256 && memcmp(line, w->name, wanted) == 0)
			snprintf(near, 256, "%.*s", (int)name, line);
		line += strcspn(line, "\n");
	}
	if (ret->n)
		take_created(text, w->name, ret);
}

/* "name{label="v"}", as whoever asks for it writes it. */
static void say_name(const struct wanted *w, struct counter_reading *ret)
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

/* Refuses what is not there. */
static void take_named(const char *text, const struct wanted *w, struct counter_reading *ret)
{
	char near[256] = "";

	say_name(w, ret);
	take_text(text, w, ret, near);
	if (isnan(ret->value) || ret->n)
		return;
	if (w->labels)
		counter_refuse(ret, "its answer has no '%.100s' with these labels", w->name);
	else if (*near)
		counter_refuse(ret, "its answer has no '%.100s', but '%.100s'", w->name, near);
	else
		counter_refuse(ret,
			       "its answer has no '%.100s' (some servers tell it from their "
			       "first request on)",
			       w->name);
}

/* Nobody said what: the first counter that is known. */
static void take_known(const char *text, struct counter_reading *ret)
{
	const char *end, *at = text + strspn(text, blank);
	double v = number_parse(at, &end);
	char near[256];

	if (end != at && !end[strspn(end, blank)]) {
		counter_add(ret, 0, v);
		return;
	}
	for (size_t i = 0; i < KNOWN && !isnan(ret->value) && ret->n == 0; i++) {
		struct wanted w = { .labels = 0 };

		snprintf(w.name, sizeof(w.name), "%s", known[i]);
		take_text(text, &w, ret, near);
		if (ret->n)
			say_name(&w, ret);
	}
	if (!isnan(ret->value) && ret->n == 0)
		counter_refuse(ret,
			       "its answer has no counter of tokens that is known: name one "
			       "behind the URL, as in URL#%s",
			       known[0]);
}

/* ---- JSON ---- */

/* One step of a path: the key, or the place in an array. */
static const struct json_doc *json_step(const struct json_doc *v, const char *key)
{
	bool digits = *key && key[strspn(key, "0123456789")] == '\0' && strlen(key) < 10;
	const struct json_doc *in = json_doc_get(v, key);

	if (!in && digits)
		in = json_doc_at(v, "", strtoul(key, NULL, 10));
	return in;
}

static void take_json(const char *text, size_t n, const char *path, struct counter_reading *ret)
{
	struct json_doc *doc = NULL;
	const struct json_doc *v;
	char message[160], key[64];

	if (json_doc_new(text, n, &doc, message, sizeof(message)) != 0) {
		counter_refuse(ret, "the answer is %s", message);
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
		counter_refuse(ret, "its answer is JSON and has no number at '%.100s'", path);
	json_doc_free(doc);
}

/* ---- both ---- */

int counter_text_check(const char *what, char *why, size_t size)
{
	struct wanted w;

	if (!what || parse_wanted(what, &w))
		return 0;
	snprintf(why, size,
		 "'%.100s' is no counter: NAME, NAME{LABEL=\"VALUE\",...} or, of JSON, KEY.KEY",
		 what);
	return -GW_E_ARG;
}

void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret)
{
	char first = text[strspn(text, blank)];
	bool json = first == '{' || first == '[';
	struct wanted w;

	if (json && !what)
		counter_refuse(ret, "its answer is JSON: name the number behind the URL, as in "
				    "URL#usage.tokens");
	else if (json)
		take_json(text, n, what, ret);
	else if (!what)
		take_known(text, ret);
	else if (parse_wanted(what, &w))
		take_named(text, &w, ret);
	else
		counter_refuse(ret, "'%.100s' is no counter", what);
}
