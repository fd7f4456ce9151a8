/* Releases and reopens the drivers. The engine does it on another thread; the handler sends a
 * request and checks each view whether it is done. */
#include "api_parts.h"

#include <stdlib.h>

#define POLL_NS (50 * NS_PER_MS)
#define MOST_NS (10 * NS_PER_S)

struct wait {
	int number;        /* of the request */
	uint64_t until_ns; /* deadline */
};

static void state(const struct api *a, struct reply *r)
{
	const struct gw_snapshot *snap = a->view.snap;
	struct json j;

	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_bool(&j, "let_go", a->view.let_go);
	json_array(&j, "devices");
	for (unsigned i = 0; snap && i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);

		json_object(&j, NULL);
		json_uint(&j, "index", d->index);
		json_string(&j, "uuid", gw_device_text(d, GW_T_UUID));
		json_string(&j, "state", gw_device_state_name(d->state));
		json_string(&j, "message", *d->message ? d->message : NULL);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	json_end(&j);
}

static void change_failed(const struct api *a, struct reply *r, int error)
{
	char why[512];
	const char *stale = view_stale(&a->view, api_now(a), why, sizeof(why));

	if (error == -GW_E_STATE)
		reply_problem(r, 409, "driver-busy",
			      "End the process that hangs in the driver, or wait; the handles "
			      "that were closed are opened again.",
			      "a driver call has not returned and keeps the driver open%s%s",
			      stale ? ": " : "", stale ? stale : "");
	else
		reply_problem(r, 503, "not-done", "Try again.", "the request failed: %s",
			      gw_strerror(error));
}

static void change_begin(const struct api *a, const struct request *q, struct reply *r,
			 enum view_request what)
{
	struct wait *w;
	int number;

	if (!a->view.ops || !a->view.ops->ask) {
		reply_problem(r, 503, "not-done", NULL,
			      "the drivers cannot be released or opened yet");
		return;
	}
	w = malloc(sizeof(*w));
	*q->memory = w;
	number = w ? a->view.ops->ask(a->view.engine, what) : -GW_E_NOMEM;
	if (number < 0) {
		change_failed(a, r, number);
		return;
	}
	*w = (struct wait){ number, api_now(a) + MOST_NS };
	reply_again(r, api_now(a) + POLL_NS);
}

static void change(const struct api *a, const struct request *q, struct reply *r,
		   enum view_request what)
{
	const struct wait *w = *q->memory;
	uint64_t now = api_now(a);

	if (!w && !api_no_body(q, r))
		return;
	if (!w && a->view.tick && a->view.let_go == (what == VIEW_LET_GO))
		state(a, r); /* already in this state */
	else if (!w)
		change_begin(a, q, r, what);
	else if (view_asked(&a->view, w->number) && a->view.ask_error)
		change_failed(a, r, a->view.ask_error);
	else if (view_asked(&a->view, w->number))
		state(a, r);
	else if (now >= w->until_ns)
		change_failed(a, r, -GW_E_TIMEOUT);
	else
		reply_again(r, now + POLL_NS);
}

void api_let_go(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, VIEW_LET_GO);
}

void api_resume(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, VIEW_RESUME);
}
