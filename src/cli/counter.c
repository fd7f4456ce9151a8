#include "counter.h"

#include "base/array.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/number.h"
#include "client.h"
#include "counter_text.h"
#include "guard/pid_lookup.h"

#include <gpuward.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCHEME "http://"
/* Reading a counter must not load a model.  Without this parameter, a router of llama.cpp loads
 * the model that the request names. */
#define NO_AUTOLOAD "&autoload=false"
#define ACCEPT      "text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1"

struct url_parts {
	char address[300], path[2048];
	/* the part of the URL that names the counter; NULL: the URL names no counter */
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

/* Returns true if a port follows the host, which may be an address in brackets. */
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

int counter_url_check(const char *url, char *why, size_t size)
{
	struct url_parts url_parts;
	int err = parse_url(url, &url_parts, why, size);

	return err ? err : counter_text_check(url_parts.what, why, size);
}

void counter_url_place(const char *url, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)strcspn(url, "?#"), url);
}

static void describe_error(const char *address, int err, struct counter_reading *ret)
{
	static const struct {
		int err;
		/* text before and after the address of the server */
		const char *before, *after;
	} known[] = {
		{ -GW_E_NOENT, "no server listens on ", "" },
		{ -GW_E_NODEV, "", ": no such host" },
		{ -GW_E_ARG, "'", "' is not HOST:PORT" },
		{ -GW_E_TIMEOUT, "", " did not answer within 10 s" },
		{ -GW_E_STATE, "", " did not answer before the interruption" },
		{ -GW_E_PARSE, "the server on ", " does not speak HTTP" },
		{ -GW_E_SIZE, "the reply of ", " is longer than 16 MiB" },
	};

	for (size_t i = 0; i < COUNT(known); i++)
		if (known[i].err == err) {
			counter_refuse(ret, "%s%s%s", known[i].before, address, known[i].after);
			return;
		}
	counter_refuse(ret, "cannot reach %s: %s", address, gw_strerror(err));
}

/* Stores the error: the status and the text of the server. Adds advice if the server requires a
 * key, or if the text is one of the two that a llama.cpp router with several models sends. */
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

/* Reads the counter, as struct counter_kind describes. */
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

#define RESOLVE_NS (2 * NS_PER_S)

/* True if this machine has the address: only then a socket can be bound to it. */
static bool is_own_address(const struct addrinfo *a)
{
	struct sockaddr_storage at = { 0 };
	bool bound;
	int fd;

	if (a->ai_addrlen > sizeof(at))
		return false;
	memcpy(&at, a->ai_addr, a->ai_addrlen);
	if (at.ss_family == AF_INET)
		((struct sockaddr_in *)&at)->sin_port = 0;
	else if (at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = 0;
	else
		return false;
	fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bound = bind(fd, (struct sockaddr *)&at, a->ai_addrlen) == 0;
	close(fd);
	return bound;
}

/* Splits HOST:PORT.  Returns the port, or 0 if the host is not this machine. */
static unsigned own_port(const char *address, const struct deadline_stop *stop)
{
	const char *colon = strrchr(address, ':');
	const char *from = *address == '[' ? address + 1 : address;
	struct addrinfo *list = NULL;
	struct deadline d;
	bool own = false;
	char host[300];
	long port = colon ? strtol(colon + 1, NULL, 10) : 0;

	if (port < 1 || port > 65535)
		return 0;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - from), from);
	host[strcspn(host, "]")] = '\0';
	deadline_init(&d, RESOLVE_NS, stop);
	if (client_resolve(host, colon + 1, &d, &list) != 0)
		return 0;
	for (const struct addrinfo *a = list; a && !own; a = a->ai_next)
		own = is_own_address(a);
	freeaddrinfo(list);
	return own ? (unsigned)port : 0;
}

/* Finds the processes that listen on the port of the URL. If one of them descends from another,
 * only the ancestor counts. The service manager, which may also have the socket open, is left
 * out. */
static unsigned counter_url_servers(const char *url, const struct deadline_stop *stop,
				    int64_t ret_pid[static METER_SERVERS])
{
	char why[COUNTER_WHY];
	struct url_parts u;
	struct root root;
	unsigned port, n;

	port = parse_url(url, &u, why, sizeof(why)) == 0 ? own_port(u.address, stop) : 0;
	if (!port || root_open(&root, NULL) != 0)
		return 0;
	n = port_owner_servers(&root, port, getpid(), ret_pid, METER_SERVERS);
	root_close(&root);
	return n;
}

#define MOST_COUNT 1e15 /* a double holds every whole number up to this limit exactly */

/* allowed difference between the clocks of the server and of this machine */
#define CLOCKS_S 2.0

#define STOP_CHECK_NS (50 * NS_PER_MS) /* time between two checks whether a stop is requested */

static const char space[] = " \t\r\n";

void counter_refuse(struct counter_reading *r, const char *fmt, ...)
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

void counter_add(struct counter_reading *r, uint64_t id, double value)
{
	char number[NUMBER_SIZE] = "not a number (NaN)";

	if (isfinite(value))
		number_format(value, number);
	if (isnan(r->value))
		return; /* an earlier series was not valid */
	if (!(value >= 0 && value <= MOST_COUNT))
		counter_refuse(r, "its value is %s, which is not a count",
			       isinf(value) ? "infinite" : number);
	else if (find_series(r, id))
		counter_refuse(r, "one of its series appears twice");
	else if (r->n == COUNTER_SERIES)
		counter_refuse(r, "it has more than %d series; select some by their labels",
			       COUNTER_SERIES);
	else
		r->series[r->n++] = (struct counter_series){ id, value, NAN };
	if (!isnan(r->value))
		r->value += value;
}

/* Returns the time of the next check for a requested stop, or 0 if the deadline is over. */
static uint64_t next_stop_check(struct deadline *p)
{
	uint64_t now = clock_mono_ns(clock_real()), next = now + STOP_CHECK_NS;

	deadline_check_stop(p);
	if (now >= p->until_ns)
		return 0;
	return next < p->until_ns ? next : p->until_ns;
}

/* Reads the output to its end. Ignores bytes that do not fit into the buffer: a number is
 * shorter than the buffer. */
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
	const char *text = out + strspn(out, space), *end;
	double v = number_parse(text, &end);

	if (status == -GW_E_STATE) {
		counter_refuse(ret, "interrupted before the command ended");
	} else if (status < 0) {
		counter_refuse(ret, "%s", gw_strerror(status));
	} else if (status > 0) {
		counter_refuse(ret, "it ended with status %d", status);
	} else if (end == text || end[strspn(end, space)] || !(v >= 0 && v <= MOST_COUNT)) {
		out[strcspn(out, "\r\n")] = '\0';
		counter_refuse(ret, "it printed '%.60s' instead of one number", out);
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
 * the run, because it is unknown how much of its value belongs to the run. */
static bool add_new_series(const struct counter_reading *first,
			   const struct counter_reading *last, struct counter *ret)
{
	for (unsigned i = 0; i < last->n; i++) {
		const struct counter_series *s = &last->series[i];

		if (find_series(first, s->id))
			continue;
		if (s->created_s < first->wall_s - CLOCKS_S) {
			snprintf(ret->why, sizeof(ret->why),
				 "one of its series (now %.0f) was missing before the run, "
				 "although the server's clock says that it started %.0f s "
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
				 "one of its series (%.0f before the run) is missing after the "
				 "run",
				 a->value);
		else if (b->value >= a->value)
			snprintf(ret->why, sizeof(ret->why),
				 "it was restarted during the run; the count before (%.0f) is "
				 "lost",
				 a->value);
		else
			snprintf(ret->why, sizeof(ret->why),
				 "it fell from %.0f to %.0f; perhaps the server was restarted",
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
			 "it did not grow: %.0f before and %.0f after the run", first->value,
			 last->value);
	} else {
		ret->number = made;
		ret->edge = made * around / seconds(first->before_ns, last->after_ns);
		return;
	}
	ret->fresh = 0;
	ret->fresh_number = 0;
	ret->fresh_assumed = false;
}
