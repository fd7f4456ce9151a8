/* Energy windows over HTTP: opens, marks, ends and lists them. */
#include "api_parts.h"
#include "json_request.h"
#include "windows.h"

#include "measure/meter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After a window has ended, the service checks every POLL_NS whether the window is complete,
 * because the last sample usually arrives within 50 ms. After POLLS checks, the service checks
 * only every LATE_NS. */
#define POLL_NS       (2 * NS_PER_MS)
#define LATE_NS       (20 * NS_PER_MS)
#define POLLS         50
#define LIMIT_S       3600.0
#define LEASE_LEAST_S 2.0 /* minimum lease in seconds; leases are checked once per second */
#define GPUS_MAX      64
#define LABEL_MAX     (WINDOWS_LABEL - 1)
#define LIST_BYTES    (16u << 20) /* maximum bytes of a list; a longer list is truncated */

/* True if the client may use windows. An untrusted client may use them only if the
 * configuration allows that. Returns false after an error reply. */
static bool api_may_measure(const struct api *a, const struct request *q, struct reply *r)
{
	if (!q->trusted && !a->windows_open) {
		reply_header(r, "WWW-Authenticate", "Bearer realm=\"gpuward\"");
		reply_problem(r, 401, "token-needed",
			      "Send Authorization: Bearer TOKEN, or use the UNIX socket.",
			      "this service requires the token for energy windows");
		return false;
	}
	return true;
}

static struct windows_entry *find_window(const struct api *a, const struct request *q,
					 struct reply *r)
{
	struct windows_entry *e = windows_find(a->windows, q->arg[0]);

	if (e)
		windows_asked(e, api_now(a));
	else
		reply_problem(
			r, 404, "no-such-window", "GET /api/v1/windows lists them.",
			"no window \"%.64s\"; the service keeps the latest %u ended windows",
			q->arg[0], WINDOWS_ENDED_MAX);
	return e;
}

static void send_window(struct reply *r, struct windows_entry *e)
{
	struct json j;

	json_init(&j, &r->body, false);
	windows_json(&j, e, WINDOWS_WHOLE);
	json_end(&j);
}

/* Adds a header if the change is not on disk, although the reply has waited until it should be.
 * e is NULL if the window was deleted. */
static void mark_unstored(const struct api *a, struct reply *r, struct windows_entry *e)
{
	if (!windows_stored(&a->view, e))
		reply_header(r, "X-Gpuward-Stored", "false");
}

struct window_request {
	struct windows_ask ask;
	const char *gpu[GPUS_MAX];
	unsigned gpus;
	struct render_filter chosen;
};

static bool read_request(struct json_request *b, struct window_request *w)
{
	double limit_s = LIMIT_S, lease_s = 0;
	unsigned gpus = UINT_MAX; /* UINT_MAX: the key is absent */

	if (!json_request_text(b, "label", LABEL_MAX, &w->ask.label) ||
	    !json_request_texts(b, "gpus", w->gpu, GPUS_MAX, &gpus) ||
	    !json_request_number(b, "limit_seconds", &limit_s) ||
	    !json_request_number(b, "lease_seconds", &lease_s) ||
	    !json_request_pairs(b, "tags", w->ask.tag, w->ask.value, WINDOWS_TAGS_MAX,
				&w->ask.tags))
		return false;
	if (gpus == 0)
		return json_request_wrong(b, "\"gpus\" is an empty array; name a GPU, or omit "
					     "the key for all GPUs");
	w->gpus = gpus == UINT_MAX ? 0 : gpus;
	if (!(limit_s > 0 && limit_s <= WINDOWS_LIMIT_MOST_S))
		return json_request_wrong(b,
					  "\"limit_seconds\" must be above 0 and at most %.0f",
					  WINDOWS_LIMIT_MOST_S);
	if (lease_s != 0 && !(lease_s >= LEASE_LEAST_S && lease_s <= WINDOWS_LIMIT_MOST_S))
		return json_request_wrong(
			b, "\"lease_seconds\" must be %.0f to %.0f, or 0 for no lease",
			LEASE_LEAST_S, WINDOWS_LIMIT_MOST_S);
	w->ask.limit_ns = (uint64_t)(limit_s * 1e9);
	w->ask.lease_ns = (uint64_t)(lease_s * 1e9);
	return true;
}

/* Finds the GPUs of the request. Returns false after an error reply. */
static bool find_gpus(const struct api *a, struct reply *r, struct window_request *w)
{
	for (unsigned i = 0; i < w->gpus; i++)
		if (!api_select(a, r, 400, w->gpu[i], &w->chosen))
			return false;
	w->ask.position = w->gpus ? w->chosen.selected : NULL;
	return true;
}

static void no_meter(const struct api *a, struct reply *r)
{
	const struct gw_status *s = gw_snapshot_status(a->view.snap);
	const char *remedy = gw_cause_info(s->cause)->remedy;

	/* There are GPUs, so the meter may start later. */
	if (gw_snapshot_device_count(a->view.snap) > 0)
		reply_header(r, "Retry-After", "1");
	if (a->view.let_go)
		reply_problem(r, 503, "let-go", "POST /api/v1/resume first.",
			      "measuring is not possible: the drivers are released");
	else
		reply_problem(r, 503, "no-gpu", *remedy ? remedy : NULL,
			      "measuring is not possible: %s",
			      *s->message ? s->message : "no GPU has a meter");
}

static void not_opened(const struct api *a, struct reply *r, int error)
{
	switch (error) {
	case -GW_E_NODEV: no_meter(a, r); break;
	case -GW_E_SIZE:
		reply_problem(r, 429, "too-many-windows", "End or delete some.",
			      "%u windows are open, which is the maximum",
			      windows_open_count(a->windows));
		break;
	case -GW_E_ARG:
		reply_problem(r, 422, "key-used", "Use another Idempotency-Key.",
			      "this Idempotency-Key was used with a different request");
		break;
	default:
		reply_problem(r, 503, "not-opened", "Try again.",
			      "the window could not be opened: %s", gw_strerror(error));
	}
}

struct opened {
	char path[64]; /* the value of the header Location, which ends with the id */
	const char *id;
	bool fresh;
};

/* Sends the reply only when the window is stored, so that the window is not lost if the service
 * is killed after the reply. If storing takes too long, the reply has the header of
 * mark_unstored(). */
static void reply_opened(const struct api *a, const struct request *q, struct reply *r)
{
	const struct opened *o = *q->memory;
	struct windows_entry *e = windows_find(a->windows, o->id);

	if (!e) { /* Another client has deleted the window. */
		not_opened(a, r, -GW_E_NOENT);
	} else if (!api_waits_for_store(a, q, r)) {
		reply_header(r, "Location", o->path);
		mark_unstored(a, r, e);
		r->status = o->fresh ? 201 : 200;
		send_window(r, e);
	}
}

static void open_request(const struct api *a, const struct request *q, struct reply *r,
			 struct window_request *w)
{
	struct opened *o = malloc(sizeof(*o));
	struct windows_entry *e;
	int err;

	w->ask.key = request_header(q, "Idempotency-Key");
	w->ask.request = q->body;
	w->ask.request_size = q->size;
	err = o ? windows_open(a->windows, &a->view, &w->ask, api_now(a), &e, &o->fresh)
		: -GW_E_NOMEM;
	if (err) {
		free(o);
		not_opened(a, r, err);
		return;
	}
	snprintf(o->path, sizeof(o->path), "/api/v1/windows/%s", windows_id(e));
	o->id = strrchr(o->path, '/') + 1;
	*q->memory = o;
	reply_opened(a, q, r);
}

void api_window_open(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct window_request w = { .gpus = 0 };
	struct json_request *b;

	if (*q->memory) {
		reply_opened(a, q, r);
		return;
	}
	if (!api_may_measure(a, q, r) || !api_has_reading(a, r))
		return;
	b = api_body(q, r, "label gpus limit_seconds lease_seconds tags");
	if (!b)
		return;
	if (!read_request(b, &w))
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	else if (a->view.let_go || !a->view.meter || gw_meter_device_count(a->view.meter) == 0)
		no_meter(a, r);
	else if (find_gpus(a, r, &w))
		open_request(a, q, r, &w);
	json_request_close(b);
}

struct list {
	struct json *j;
	bool cut; /* The list has reached LIST_BYTES. */
};

static bool list_one(void *arg, const struct windows_entry *e)
{
	struct list *l = arg;

	l->cut = l->j->out->len > LIST_BYTES;
	if (l->cut)
		return false;
	windows_json(l->j, e, WINDOWS_SHORT);
	return true;
}

/* Reads ?state=open|ended. If the parameter is absent, sets both results to true. Returns false
 * after an error reply. */
static bool read_states(const struct request *q, struct reply *r, bool *ret_open,
			bool *ret_ended)
{
	const char *state = request_param(q, "state");

	*ret_open = !state || strcmp(state, "open") == 0;
	*ret_ended = !state || strcmp(state, "ended") == 0;
	if (*ret_open || *ret_ended)
		return true;
	reply_problem(r, 400, "bad-parameter",
		      "Use state=open or state=ended, or omit the parameter.",
		      "state=\"%.64s\" is not a window state", state);
	return false;
}

void api_windows_list(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	bool open, ended, more;
	uint64_t limit;
	struct json j;
	struct list l = { &j, false };

	if (!api_number(q, r, "limit", WINDOWS_ENDED_MAX, WINDOWS_ENDED_MAX, &limit) ||
	    !read_states(q, r, &open, &ended))
		return;
	api_begin(&j, a, r);
	json_uint(&j, "open", windows_open_count(a->windows));
	json_array(&j, "windows");
	more = windows_each(a->windows, open, ended ? (unsigned)limit : 0, list_one, &l);
	json_array_end(&j);
	json_bool(&j, "more", l.cut || (ended && more));
	api_end(&j);
}

void api_window_get(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct windows_entry *e = find_window(a, q, r);

	if (e)
		send_window(r, e);
}

void api_window_forget(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct windows_entry *e;

	if (!*q->memory) {
		if (!api_may_measure(a, q, r) || !(e = find_window(a, q, r)))
			return;
		*q->memory = strdup(windows_id(e)); /* The window is deleted. */
		windows_forget(a->windows, &a->view, e);
	}
	if (*q->memory && api_waits_for_store(a, q, r))
		return;
	mark_unstored(a, r, NULL);
	r->status = 204;
}

/* Replies with only the new mark, not with the window, because the document of a window with
 * many marks is long. */
static void answer_mark(struct reply *r, const struct windows_entry *e)
{
	struct json j;

	r->status = 201;
	json_init(&j, &r->body, false);
	windows_mark_json(&j, e);
	json_end(&j);
}

static void add_mark(const struct api *a, struct reply *r, struct windows_entry *e,
		     const char *label)
{
	int err = windows_mark(a->windows, &a->view, e, label, api_now(a));

	if (err == -GW_E_STATE)
		reply_problem(r, 409, "window-ended", NULL, "window %s has ended",
			      windows_id(e));
	else if (err == -GW_E_SIZE)
		reply_problem(r, 429, "too-many-marks", "Open another window.",
			      "a window can have at most %u marks, and all open windows "
			      "together at most %u",
			      WINDOWS_MARKS_MAX, WINDOWS_PARTS_MAX);
	else if (err)
		reply_problem(r, 503, "not-marked", "Try again.",
			      "the window could not be marked: %s", gw_strerror(err));
	else
		answer_mark(r, e);
}

void api_window_mark(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const char *label = NULL;
	struct windows_entry *e;
	struct json_request *b;

	if (!api_may_measure(a, q, r) || !(e = find_window(a, q, r)))
		return;
	b = api_body(q, r, "label");
	if (!b)
		return;
	if (!json_request_text(b, "label", LABEL_MAX, &label) || !label || !*label)
		reply_problem(r, 400, "bad-body", "Send {\"label\": \"decode\"}.", "%s",
			      *json_request_message(b)
				      ? json_request_message(b)
				      : "\"label\" must be a string of 1 to 63 bytes");
	else
		add_mark(a, r, e, label);
	json_request_close(b);
}

void api_window_stop(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct windows_entry *e;

	if (!api_may_measure(a, q, r) || !api_no_body(q, r) || !(e = find_window(a, q, r)))
		return;
	if (windows_stop(a->windows, &a->view, e, api_now(a))) {
		if (!api_waits_for_store(a, q, r)) {
			mark_unstored(a, r, e);
			send_window(r, e);
		}
	} else
		reply_again(r, api_now(a) + (q->tries < POLLS ? POLL_NS : LATE_NS));
}
