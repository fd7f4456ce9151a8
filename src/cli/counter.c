#include "counter.h"
#include "client.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/number.h"
#include "base/prometheus_text.h"
#include "base/text.h"
#include "guard/pid_lookup.h"

#include <gpuward.h>

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LABELS 16

static const char blank[] = " \t\r\n";

/* The names that known servers give to their counter of generated tokens. NULL or "": a server
 * without such a counter. */
static const char *const known[] = {
#define T(symbol, list, prompt, generated, text) generated,
#include "daemon/token_source.def"
	"tgi_request_generated_tokens_sum", /* The guard has no such kind of worker. */
};

#define MOST_COUNT 1e15 /* A double holds every whole number up to this limit exactly. */

/* Marks the reading as failed and stores the reason. */
static void __attribute__((format(printf, 2, 3)))
counter_refuse(struct counter_reading *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	r->value = NAN;
	r->n = 0;
}

static const struct counter_series *find_series(const struct counter_reading *r, uint64_t id)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->series[i].id == id)
			return &r->series[i];
	return NULL;
}

/* Adds a series to a reading. If the series is not a valid count, marks the reading as failed:
 * its value becomes NAN, and later series are ignored. */
static void counter_add(struct counter_reading *r, uint64_t id, double value)
{
	char number[NUMBER_SIZE] = "not a number (NaN)";

	if (isfinite(value))
		number_format(value, number);
	if (isnan(r->value))
		return; /* An earlier series was not valid. */
	if (!(value >= 0 && value <= MOST_COUNT))
		counter_refuse(r, "the value of the counter is %s, which is not a count",
			       isinf(value) ? "infinite" : number);
	else if (find_series(r, id))
		counter_refuse(r, "one series of the counter appears twice");
	else if (r->n == COUNTER_SERIES)
		counter_refuse(
			r, "the counter has more than %d series; select some by their labels",
			COUNTER_SERIES);
	else
		r->series[r->n++] = (struct counter_series){ id, value, NAN };
	if (!isnan(r->value))
		r->value += value;
}

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

/* Returns a hash as the id of a series. It is very unlikely that two of 256 series have the
 * same id. */
static uint64_t series_id(const char *counter, const struct prometheus_line *l)
{
	return text_hash(text_hash(TEXT_HASH_START, counter, strlen(counter)), l->labels,
			 l->labels_len);
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

/* Writes the name of the metric that contains the counter's start time. Client libraries add
 * this metric to each counter, with the same labels. Returns false if the counter cannot have
 * such a metric. */
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

/* Parses a whole reply.  If the reply has a longer name that begins with the selected name,
 * writes the longer name to `near`, for the error message. */
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
	for (size_t i = 0; i < COUNT(known) && !isnan(ret->value) && ret->n == 0; i++) {
		struct selector w = { .labels = 0 };

		if (!known[i] || !*known[i])
			continue;
		snprintf(w.name, sizeof(w.name), "%s", known[i]);
		parse_text(text, &w, ret, near);
		if (ret->n)
			write_name(&w, ret);
	}
	if (!isnan(ret->value) && ret->n == 0)
		counter_refuse(ret,
			       "the reply has no known token counter; give its name after the "
			       "URL, as in URL#vllm:generation_tokens_total");
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

/* Checks the name of a counter.  Returns 0, or -GW_E_ARG with a sentence in `why`. */
static int check_name(const char *what, char *why, size_t size)
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

#define SCHEME "http://"
/* Reading a counter must not load a model.  Without this parameter, a router of llama.cpp loads
 * the model that the request names. */
#define NO_AUTOLOAD "&autoload=false"
/* The formats of a counter, the preferred one first. */
#define ACCEPT "text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1"

struct url_parts {
	char address[300], path[2048];
	/* The part of the URL that names the counter. NULL: the URL names no counter. */
	const char *what;
};

/* Returns true if all characters may be part of a URL.  Other characters could end the request
 * line. */
static bool is_clean(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || s[i] == 127)
			return false;
	return true;
}

/* Returns true if the host, which may be an address in brackets, is followed by a port. */
static bool has_port(const char *host, size_t n)
{
	const char *bracket = memchr(host, ']', n);
	const char *from = bracket ? bracket : host;

	return memchr(from, ':', n - (size_t)(from - host)) != NULL;
}

/* Returns true if the query between path and end has a parameter of this name. */
static bool has_parameter(const char *path, const char *end, const char *name)
{
	const size_t n = strlen(name);

	for (const char *p = memchr(path, '?', (size_t)(end - path)); p;
	     p = memchr(p + 1, '&', (size_t)(end - p - 1)))
		if ((size_t)(end - p - 1) > n && strncmp(p + 1, name, n) == 0 &&
		    p[1 + n] == '=')
			return true;
	return false;
}

static int parse_url(const char *url, struct url_parts *ret, char *why, size_t size)
{
	bool plain = strncmp(url, SCHEME, strlen(SCHEME)) == 0;
	const char *host = plain ? url + strlen(SCHEME) : url, *path, *end;
	size_t n = plain ? strcspn(host, "/?#") : 0;

	if (strncmp(url, "https://", 8) == 0) {
		snprintf(why, size,
			 "https is not supported: '%.100s'; use --count-cmd with curl", url);
		return -GW_E_ARG;
	}
	path = host + n;
	end = path + strcspn(path, "#");
	if (n == 0 || n > 256 || !is_clean(host, (size_t)(end - host)) ||
	    (size_t)(end - path) >= sizeof(ret->path) - sizeof(NO_AUTOLOAD)) {
		snprintf(why, size,
			 "'%.100s' is not a URL such as http://localhost:8000/metrics", url);
		return -GW_E_ARG;
	}
	if (memchr(host, '@', n)) {
		snprintf(why, size,
			 "a URL with a user name is not supported; use --count-cmd with curl");
		return -GW_E_ARG;
	}
	snprintf(ret->address, sizeof(ret->address), "%.*s%s", (int)n, host,
		 has_port(host, n) ? "" : ":80");
	snprintf(ret->path, sizeof(ret->path), "%s%.*s%s", *path == '/' ? "" : "/",
		 (int)(end - path), path,
		 has_parameter(path, end, "model") && !has_parameter(path, end, "autoload")
			 ? NO_AUTOLOAD
			 : "");
	ret->what = *end && end[1] ? end + 1 : NULL;
	return 0;
}

static int counter_url_check(const char *url, char *why, size_t size)
{
	struct url_parts url_parts;
	int err = parse_url(url, &url_parts, why, size);

	return err ? err : check_name(url_parts.what, why, size);
}

/* Copies the URL without the query, which may be secret, and without the name of the
 * counter. */
static void counter_url_place(const char *url, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)strcspn(url, "?#"), url);
}

static void describe_error(const char *address, int err, struct counter_reading *ret)
{
	static const struct {
		int err;
		/* The texts before and after the address of the server. */
		const char *before, *after;
	} errors[] = {
		{ -GW_E_NOENT, "no server listens on ", "" },
		{ -GW_E_NODEV, "", ": no such host" },
		{ -GW_E_ARG, "'", "' is not HOST:PORT" },
		{ -GW_E_TIMEOUT, "", " did not answer within 10 s" },
		{ -GW_E_STATE, "", " did not answer before the interruption" },
		{ -GW_E_PARSE, "the server on ", " does not speak HTTP" },
		{ -GW_E_SIZE, "the reply of ", " is longer than 16 MiB" },
	};

	for (size_t i = 0; i < COUNT(errors); i++)
		if (errors[i].err == err) {
			counter_refuse(ret, "%s%s%s", errors[i].before, address,
				       errors[i].after);
			return;
		}
	counter_refuse(ret, "cannot reach %s: %s", address, gw_strerror(err));
}

/* Stores the error: the status and the text of the server. Adds advice if the server requires a
 * key, or if the text is one of two errors of a llama.cpp router with several models. */
static void describe_status(const struct url_parts *u, int status, const struct buf *body,
			    struct counter_reading *ret)
{
	char text[120];
	const char *advice = "";

	json_doc_error_text(body->len ? body->p : "", body->len, text, sizeof(text));
	if (strstr(text, "model name is missing"))
		advice = "; add the model to the URL: ?model=NAME";
	else if (strstr(text, "model is not loaded"))
		advice = "; load the model before the measurement";
	else if (status == 401 || status == 403)
		advice = "; --count-url sends no key: use --count-cmd with curl";
	counter_refuse(ret, "%s replied with status %d%s%s%s", u->address, status,
		       text[0] ? ": " : "", text, advice);
}

/* Implements counter_kind.read for COUNTER_URL. */
static void counter_url_read(const char *url, const struct deadline_stop *stop,
			     struct counter_reading *ret)
{
	struct url_parts url_parts;
	struct client_request q = { .address = url_parts.address,
				    .method = "GET",
				    .path = url_parts.path,
				    .accept = ACCEPT,
				    .stop = stop };
	char why[COUNTER_WHY];
	struct buf body;
	int status = 0, err;

	if (parse_url(url, &url_parts, why, sizeof(why)) != 0) {
		counter_refuse(ret, "%s", why);
		return;
	}
	buf_init(&body, CLIENT_REPLY_MAX);
	err = client_request_reply(&q, COUNTER_MOST_NS, &status, &body);
	if (err)
		describe_error(url_parts.address, err, ret);
	else if (status < 200 || status > 299)
		describe_status(&url_parts, status, &body, ret);
	else
		counter_text(body.p, body.len, url_parts.what, ret);
	buf_done(&body);
}

/* Finds the processes that listen on the port of the URL. If one of them is a descendant of
 * another, only the ancestor is returned. The service manager is left out, because it may also
 * have the socket open. */
static unsigned counter_url_servers(const char *url, const struct deadline_stop *stop,
				    int64_t ret_pid[static METER_SERVERS])
{
	char why[COUNTER_WHY];
	struct url_parts u;
	struct root root;
	unsigned port, n;

	port = parse_url(url, &u, why, sizeof(why)) == 0 ? client_own_port(u.address, stop) : 0;
	if (!port || root_open(&root, NULL) != 0)
		return 0;
	n = port_owner_servers(&root, port, getpid(), ret_pid, METER_SERVERS);
	root_close(&root);
	return n;
}

/* Allowed difference in seconds between the clocks of the server and of this machine. */
#define CLOCKS_S 2.0

/* Time between two checks whether a stop is requested. */
#define STOP_CHECK_NS (50 * NS_PER_MS)

/* Returns the time at which to check again whether a stop is requested. Returns 0 if the
 * deadline has passed. */
static uint64_t next_stop_check(struct deadline *p)
{
	uint64_t now = clock_mono_ns(clock_real()), next = now + STOP_CHECK_NS;

	deadline_check_stop(p);
	if (now >= p->until_ns)
		return 0;
	return next < p->until_ns ? next : p->until_ns;
}

/* Reads the output to its end. Ignores bytes that do not fit into the buffer, because a number
 * is shorter than the buffer. */
static int read_output(struct child *c, struct deadline *p, char *out, size_t size)
{
	char rest[512] = "";
	size_t used = 0;
	long n = 1;

	while (n > 0 || n == -GW_E_TIMEOUT) {
		bool fits = used < size - 1;
		uint64_t until = next_stop_check(p);

		if (!until)
			return deadline_error(p);
		n = child_read(c, until, fits ? out + used : rest,
			       fits ? size - 1 - used : sizeof(rest));
		if (n > 0 && fits)
			used += (size_t)n;
	}
	out[used] = '\0';
	return (int)n;
}

static int wait_for_end(struct child *c, struct deadline *p)
{
	int status = 0;
	uint64_t until;

	do {
		until = next_stop_check(p);
		if (!until)
			return deadline_error(p);
	} while (child_wait(c, until, &status) != 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Works like child_run(), but returns -GW_E_STATE if a stop is requested before the command
 * ends. */
static int run_command(const char *command, const struct deadline_stop *stop, char *out,
		       size_t size)
{
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	struct deadline p;
	struct child c;
	int status = child_start(&c, argv, NULL);

	if (status < 0)
		return status;
	deadline_init(&p, COUNTER_MOST_NS, stop);
	status = read_output(&c, &p, out, size);
	if (status == 0)
		status = wait_for_end(&c, &p);
	child_stop(&c);
	return status;
}

static void read_command(const char *command, const struct deadline_stop *stop,
			 struct counter_reading *ret)
{
	char out[256] = "";
	int status = run_command(command, stop, out, sizeof(out));
	const char *text = out + strspn(out, blank), *end;
	double v = number_parse(text, &end);

	if (status == -GW_E_STATE) {
		counter_refuse(ret, "interrupted before the command ended");
	} else if (status < 0) {
		counter_refuse(ret, "%s", gw_strerror(status));
	} else if (status > 0) {
		counter_refuse(ret, "the command ended with status %d", status);
	} else if (end == text || end[strspn(end, blank)] || !(v >= 0 && v <= MOST_COUNT)) {
		out[strcspn(out, "\r\n")] = '\0';
		counter_refuse(ret, "the command printed '%.60s' instead of one number", out);
	} else {
		counter_add(ret, 0, v);
	}
}

static int check_command(const char *command, char *why, size_t size)
{
	if (*command)
		return 0;
	snprintf(why, size, "the command is empty");
	return -GW_E_ARG;
}

const struct counter_kind counter_kinds[COUNTER_KINDS] = {
	[COUNTER_CMD] = { "count-cmd", NULL, check_command, read_command, NULL },
	[COUNTER_URL] = { "count-url", counter_url_place, counter_url_check, counter_url_read,
			  counter_url_servers },
};

void counter_read(const struct counter_kind *kind, const char *text,
		  const struct deadline_stop *stop, struct counter_reading *ret)
{
	ret->value = 0;
	ret->n = 0;
	ret->why[0] = ret->name[0] = '\0';
	ret->before_ns = clock_mono_ns(clock_real());
	ret->wall_s = (double)clock_wall_ns(clock_real()) * 1e-9;
	kind->read(text, stop, ret);
	ret->after_ns = clock_mono_ns(clock_real());
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* Returns true if the series was restarted between the two readings, according to the start
 * time that the server reports. */
static bool was_restarted(const struct counter_series *a, const struct counter_series *b)
{
	return b->created_s > a->created_s + CLOCKS_S;
}

/* Adds series that are only in the last reading.  Returns false if such a series started before
 * the run, because it is unknown which part of its value belongs to the run. */
static bool add_new_series(const struct counter_reading *first,
			   const struct counter_reading *last, struct counter *ret)
{
	for (unsigned i = 0; i < last->n; i++) {
		const struct counter_series *s = &last->series[i];

		if (find_series(first, s->id))
			continue;
		if (s->created_s < first->wall_s - CLOCKS_S) {
			snprintf(ret->why, sizeof(ret->why),
				 "one series of the counter (now %.0f) was missing before the "
				 "run, although the server's clock says that it started %.0f s "
				 "before the run",
				 s->value, first->wall_s - s->created_s);
			return false;
		}
		ret->fresh++;
		ret->fresh_number += s->value;
		ret->fresh_assumed = ret->fresh_assumed || isnan(s->created_s);
	}
	return true;
}

static bool went_back(const struct counter_reading *first, const struct counter_reading *last,
		      struct counter *ret)
{
	for (unsigned i = 0; i < first->n; i++) {
		const struct counter_series *a = &first->series[i],
					    *b = find_series(last, a->id);

		if (b && b->value >= a->value && !was_restarted(a, b))
			continue;
		if (!b)
			snprintf(ret->why, sizeof(ret->why),
				 "one series of the counter (%.0f before the run) is missing "
				 "after the run",
				 a->value);
		else if (b->value >= a->value)
			snprintf(ret->why, sizeof(ret->why),
				 "the counter was restarted during the run; its count from "
				 "before the restart (%.0f) is lost",
				 a->value);
		else
			snprintf(ret->why, sizeof(ret->why),
				 "the counter fell from %.0f to %.0f; perhaps the server was "
				 "restarted",
				 a->value, b->value);
		return true;
	}
	return false;
}

void counter_between(const struct counter_reading *first, const struct counter_reading *last,
		     uint64_t begin_ns, uint64_t end_ns, struct counter *ret)
{
	double around = seconds(first->before_ns, begin_ns) + seconds(end_ns, last->after_ns);
	double made = last->value - first->value;

	*ret = (struct counter){ .number = NAN, .edge = 0 };
	if (isnan(made)) {
		snprintf(ret->why, sizeof(ret->why), "%s",
			 *first->why ? first->why : last->why);
	} else if (went_back(first, last, ret) || !add_new_series(first, last, ret)) {
		;
	} else if (!(made > 0)) {
		snprintf(ret->why, sizeof(ret->why),
			 "the counter did not grow: %.0f before and %.0f after the run",
			 first->value, last->value);
	} else {
		ret->number = made;
		ret->edge = made * around / seconds(first->before_ns, last->after_ns);
		return;
	}
	ret->fresh = 0;
	ret->fresh_number = 0;
	ret->fresh_assumed = false;
}
