/* The table of routes, and the functions that all handlers use: checks of the request, lookup
 * of GPUs.
 *
 * A handler runs only after the query parameters were checked. If the readings are old, the
 * handler runs after a new reading. */
#include "api_parts.h"

#include "json_request.h"
#include "timespec_parse.h"

#include "base/suggest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* True if no parameter before parameter i has the same name. Otherwise replies 400. */
static bool param_is_first(const struct request *q, struct reply *r, unsigned i)
{
	const char *name = request_param_name(q, i);

	for (unsigned k = 0; k < i; k++)
		if (strcmp(request_param_name(q, k), name) == 0) {
			reply_problem(r, 400, "bad-parameter", NULL,
				      "the parameter %s is given twice; give it once", name);
			return false;
		}
	return true;
}

/* True if word (n bytes) is in the space-separated list. */
static bool has_word(const char *list, const char *word, size_t n)
{
	while (*list) {
		size_t len = strcspn(list, " ");

		if (len == n && memcmp(list, word, n) == 0)
			return true;
		list += len + (list[len] == ' ');
	}
	return false;
}

/* Checks that each parameter is known and given once. Returns false after a reply with 400. */
static bool params_known(const struct request *q, struct reply *r, const char *list)
{
	struct json_request_words words;
	const char *name, *near;
	size_t n;

	if (*list == '*')
		return true;
	for (unsigned i = 0; (name = request_param_name(q, i)); i++) {
		if (has_word(list, name, strlen(name))) {
			if (!param_is_first(q, r, i))
				return false;
			continue;
		}
		n = json_request_words(list, &words);
		near = suggest(name, words.word, n, sizeof(words.word[0]));
		if (near)
			reply_problem(r, 400, "unknown-parameter", NULL,
				      "unknown parameter \"%.64s\"; did you mean \"%s\"?", name,
				      near);
		else
			reply_problem(r, 400, "unknown-parameter", "See /openapi.json.",
				      "unknown parameter \"%.64s\"; this route has %s%s", name,
				      *list ? "the parameters " : "no parameters", list);
		return false;
	}
	return true;
}

#define READING_WAIT_NS (10 * NS_PER_MS)
#define READING_WAITS   30
#define STORED_WAIT_NS  (2 * NS_PER_MS)
#define STORED_WAITS    150

void api_follow(const struct api *a)
{
	if (a->view.ops && a->view.ops->watch)
		a->view.ops->watch(a->view.engine, VIEW_WATCH_TICKS);
}

bool api_waits_for_store(const struct api *a, const struct request *q, struct reply *r)
{
	const struct view_ops *ops = a->view.ops;

	if (q->tries >= STORED_WAITS || !ops || !ops->stored || ops->stored(a->view.engine))
		return false;
	reply_again(r, api_now(a) + STORED_WAIT_NS);
	return true;
}

/* Reports the request to the engine. If the readings are old because no client asked for them,
 * the reply waits for a new reading, at most READING_WAITS times READING_WAIT_NS. If counters
 * are not stored yet, the reply waits until they are stored, at most STORED_WAITS times
 * STORED_WAIT_NS. The reply to a request that changes something does not wait. */
static bool waits_for_view(const struct api *a, const struct request *q, struct reply *r,
			   unsigned flags, const char *tag)
{
	const bool scene = strcmp(tag, "guard") == 0 || strcmp(tag, "metrics") == 0;
	const bool rests = view_rests(&a->view, api_now(a), scene);
	const struct view_ops *ops = a->view.ops;

	if ((flags & (ROUTE_ALIVE | ROUTE_STATIC)) || !ops || !ops->watch)
		return false;
	if (q->tries == 0)
		ops->watch(a->view.engine, scene ? VIEW_WATCH_SCENE : VIEW_WATCH_ONCE);
	if (flags & ROUTE_CHANGE)
		return false;
	if (!rests)
		return api_waits_for_store(a, q, r);
	if (q->tries >= READING_WAITS)
		return false;
	reply_again(r, api_now(a) + READING_WAIT_NS);
	return true;
}

#define R(id, method, path, handler, flags, tag, params, ...)                             \
	static void checked_##id(void *arg, const struct request *q, struct reply *r)     \
	{                                                                                 \
		if (params_known(q, r, params) && !waits_for_view(arg, q, r, flags, tag)) \
			api_##handler(arg, q, r);                                         \
	}
#include "routes.def"
#undef R

const struct route api_routes[] = {
#define R(id, method, path, handler, flags, ...) { HTTP_##method, path, checked_##id, flags },
#include "routes.def"
#undef R
};
const unsigned api_route_count = sizeof(api_routes) / sizeof(api_routes[0]);

void api_mark(void *arg, struct reply *r)
{
	const struct api *a = arg;

	if (view_simulated(&a->view))
		reply_header(r, "X-Gpuward-Simulated", "true");
}

void api_done(struct api *a)
{
	api_guard_simulate_done(a);
}

double api_figure(const struct gw_device *d, unsigned quantity)
{
	double v;

	return gw_device_value(d, quantity, &v) == GW_HAVE ? v : (double)NAN;
}

uint64_t api_now(const struct api *a)
{
	return clock_mono_ns(a->clock);
}

bool api_has_reading(const struct api *a, struct reply *r)
{
	char why[512];

	if (a->view.tick && a->view.snap)
		return true;
	return api_was_read(NULL, r, view_stale(&a->view, api_now(a), why, sizeof(why)));
}

bool api_was_read(const void *what, struct reply *r, const char *why)
{
	if (!what)
		reply_problem(r, 503, "no-reading", "Try again in a moment.", "%s", why);
	return what;
}

void api_begin(struct json *j, const struct api *a, struct reply *r)
{
	json_init(j, &r->body, false);
	json_object(j, NULL);
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(j, "time_utc", clock_wall_ns(a->clock));
	json_bool(j, "simulated", view_simulated(&a->view));
}

void api_end(struct json *j)
{
	json_object_end(j);
	json_end(j);
}

/* Writes "there are GPU 0 (GPU-...), GPU 1 (GPU-...)", with as many GPUs as fit. */
static void list_gpus(const struct gw_snapshot *snap, char *out, size_t size)
{
	unsigned n = gw_snapshot_device_count(snap);
	size_t len = 0;

	snprintf(out, size, "there is no GPU: %s", gw_snapshot_status(snap)->message);
	for (unsigned i = 0; i < n && len < size; i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);

		if (len + 64 > size) {
			snprintf(out + len, size - len, ", ...");
			break;
		}
		len += (size_t)snprintf(out + len, size - len, "%sGPU %u (%s)",
					i       ? ", "
					: n > 1 ? "there are "
						: "there is ",
					d->index, uuid ? uuid : "no uuid");
	}
}

static void no_such_device(const struct api *a, struct reply *r, int status,
			   const char *selector)
{
	char there[512];

	if (strncasecmp(selector, "GPU-", 4) == 0 && strlen(selector) < 8) {
		reply_problem(r, 400, "selector-too-short", "Use more of the UUID.",
			      "\"%.96s\" is too short: give at least 4 characters after GPU-",
			      selector);
		return;
	}
	list_gpus(a->view.snap, there, sizeof(there));
	reply_problem(r, status, "no-such-device",
		      "Use the index of a GPU, its UUID or the first characters of its UUID, "
		      "or its PCI id.",
		      "no GPU matches \"%.96s\"; %s", selector, there);
}

/* Selects the GPUs that match the selector. Returns their number. */
static unsigned select_by(const struct gw_snapshot *snap, const char *selector,
			  struct render_filter *f)
{
	unsigned found = 0;

	for (unsigned i = 0; i < gw_snapshot_device_count(snap) && i < 256; i++)
		if (gw_device_matches(gw_snapshot_device(snap, i), selector) == 1) {
			f->selected[i] = true;
			found++;
		}
	return found;
}

bool api_select(const struct api *a, struct reply *r, int status, const char *selector,
		struct render_filter *filter)
{
	if (select_by(a->view.snap, selector, filter) > 0)
		return true;
	no_such_device(a, r, status, selector);
	return false;
}

bool api_filter(const struct api *a, const struct request *q, struct reply *r,
		struct render_filter *filter, const struct render_filter **ret)
{
	const char *list = request_param(q, "gpu");
	char word[128];

	*ret = NULL;
	if (!list)
		return true;
	memset(filter, 0, sizeof(*filter));
	do {
		size_t n = strcspn(list, ",");

		snprintf(word, sizeof(word), "%.*s", (int)(n < 100 ? n : 100), list);
		if (!api_select(a, r, 404, word, filter))
			return false;
		list += n;
	} while (*list++);
	*ret = filter;
	return true;
}

int api_find(const struct api *a, struct reply *r, int status, const char *selector)
{
	struct render_filter f = { { false } };
	unsigned n = select_by(a->view.snap, selector, &f);

	if (n == 0) {
		no_such_device(a, r, status, selector);
		return -1;
	}
	if (n > 1) {
		reply_problem(r, 400, "ambiguous-device", "Use more of the UUID.",
			      "\"%.96s\" matches %u GPUs", selector, n);
		return -1;
	}
	for (int i = 0;; i++)
		if (f.selected[i])
			return i;
}

bool api_number(const struct request *q, struct reply *r, const char *name, uint64_t standard,
		uint64_t most, uint64_t *ret)
{
	const char *text = request_param(q, name);
	char *end;
	unsigned long long v;

	*ret = standard;
	if (!text)
		return true;
	v = strtoull(text, &end, 10);
	if (end == text || *end || *text == '-' || v > most) {
		reply_problem(r, 400, "bad-parameter", NULL,
			      "%s must be a whole number from 0 to %llu, not \"%.64s\"", name,
			      (unsigned long long)most, text);
		return false;
	}
	*ret = v;
	return true;
}

bool api_time(const struct api *a, const struct request *q, struct reply *r, const char *name,
	      uint64_t standard, uint64_t *ret_wall_ns)
{
	const char *text = request_param(q, name);

	*ret_wall_ns = standard;
	if (!text || timespec_parse(text, clock_wall_ns(a->clock), ret_wall_ns) == 0)
		return true;
	reply_problem(r, 400, "bad-parameter",
		      "Write 2026-01-31T12:00:00Z, seconds since 1970, or -1h for one hour "
		      "ago; in a URL, + is written %2B.",
		      "%s=\"%.64s\" is not a time from 1970 to %d", name, text,
		      TIMESPEC_LAST_YEAR);
	return false;
}

void api_no_memory(struct reply *r)
{
	reply_problem(r, 503, "no-memory", "Free some memory on this machine, then try again.",
		      "the service is out of memory");
}

bool api_flag(const struct request *q, struct reply *r, const char *name, bool standard,
	      bool *ret)
{
	static const struct {
		const char *word;
		bool value;
	} row[] = {
		{ "", true },   { "1", true },      { "true", true },
		{ "0", false }, { "false", false },
	};
	const char *text = request_param(q, name);

	*ret = standard;
	if (!text)
		return true;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (strcmp(text, row[i].word) == 0) {
			*ret = row[i].value;
			return true;
		}
	reply_problem(r, 400, "bad-parameter", NULL,
		      "%s must be 1, true, 0 or false, not \"%.64s\"", name, text);
	return false;
}

struct json_request *api_body(const struct request *q, struct reply *r, const char *keys)
{
	struct json_request *b;
	char message[256] = "";
	int err = json_request_open(q->body, q->size, keys, &b, message, sizeof(message));

	if (!err)
		return b;
	if (err == -GW_E_NOMEM)
		api_no_memory(r);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
	return NULL;
}

bool api_no_body(const struct request *q, struct reply *r)
{
	struct json_request *b = NULL;
	char message[256] = "";
	int err = json_request_open(q->body, q->size, "", &b, message, sizeof(message));

	json_request_close(b);
	if (err == -GW_E_NOMEM)
		api_no_memory(r);
	else if (err)
		reply_problem(r, 400, "bad-body", "Omit the body, or send {}.", "%s", message);
	return err == 0;
}
