/* Requests to evict, resume, hold or release a worker. They start at once and finish later:
 * 202. */
#include "json_request.h"
#include "guard_doc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum verb { EVICT, RESUME, HOLD, RELEASE };
static const char *const verb_word[] = { "evict", "resume", "hold", "release" };

struct worker_request {
	double ttl_s; /* NAN: not given */
	const char *reason, *state;
	bool force;
};

static bool refuse(char *message, size_t size, const char *key, enum verb verb)
{
	snprintf(message, size, "\"%s\" is not allowed for %s", key, verb_word[verb]);
	return false;
}

static bool read_request(struct json_request *b, enum verb verb, struct worker_request *w,
			 char *message, size_t size)
{
	if (!json_request_number(b, "ttl_s", &w->ttl_s, message, size) ||
	    !json_request_text(b, "reason", &w->reason, message, size) ||
	    !json_request_text(b, "state", &w->state, message, size) ||
	    !json_request_flag(b, "force", &w->force, message, size))
		return false;
	if (!isnan(w->ttl_s) && verb != EVICT && verb != HOLD)
		return refuse(message, size, "ttl_s", verb);
	if (w->state && verb != HOLD)
		return refuse(message, size, "state", verb);
	if (w->force && verb != RESUME)
		return refuse(message, size, "force", verb);
	if (!isnan(w->ttl_s) && !(w->ttl_s >= 0 && w->ttl_s <= GUARD_TTL_MOST_S))
		snprintf(message, size, "\"ttl_s\" must be from 0 (unlimited) to %.0f seconds",
			 GUARD_TTL_MOST_S);
	else if (verb == HOLD && isnan(w->ttl_s))
		snprintf(message, size,
			 "a hold needs \"ttl_s\": the number of seconds, or 0 for unlimited");
	else if (w->state && strcmp(w->state, "evicted") != 0 &&
		 strcmp(w->state, "active") != 0)
		snprintf(message, size, "\"state\" must be \"evicted\" or \"active\"");
	else if (strlen(w->reason) > GUARD_REASON_MAX)
		snprintf(message, size, "\"reason\" is longer than %d bytes", GUARD_REASON_MAX);
	else
		return true;
	return false;
}

static enum guard_ask ask_kind(enum verb verb, const struct worker_request *w)
{
	switch (verb) {
	case EVICT: return ASK_EVICT;
	case RESUME: return w->force ? ASK_RESUME_NOW : ASK_RESUME;
	case RELEASE: return ASK_RELEASE;
	default:
		return w->state && strcmp(w->state, "active") == 0 ? ASK_HOLD_ACTIVE
								   : ASK_HOLD_EVICTED;
	}
}

/* unsaved: why the request is not stored; "": it is. */
static void accepted(const struct api *a, const struct guard_view *g, unsigned worker,
		     const char *unsaved, struct reply *r)
{
	const struct guard_operation *o =
		guard_operation_latest(g->operations, g->policy->worker[worker].name);
	char where[64];
	struct json j;

	if (o) {
		snprintf(where, sizeof(where), "/api/v1/guard/operations/%llu",
			 (unsigned long long)o->id);
		reply_header(r, "Location", where);
	}
	r->status = 202;
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_string(&j, "mode", guard_doc_mode(g->policy->mode));
	guard_doc_worker(&j, g, worker, guard_moment(a));
	json_string(&j, "journal", *unsaved ? unsaved : "ok");
	if (o) {
		json_object(&j, "operation");
		guard_doc_operation(&j, o);
		json_object_end(&j);
	} else {
		json_null(&j, "operation");
	}
	json_object_end(&j);
	json_end(&j);
}

static void held(const struct guard_view *g, int worker, struct reply *r, const char *message)
{
	char remedy[160];

	snprintf(remedy, sizeof(remedy),
		 "POST /api/v1/guard/workers/%.64s/release ends the hold.",
		 g->policy->worker[worker].name);
	reply_problem(r, 409, "held", remedy, "%s", message);
}

static void send_request(const struct api *a, const struct request *q, struct reply *r,
			 const struct guard_view *g, int worker, enum verb verb,
			 const struct worker_request *w)
{
	char message[256] = "", name[256];
	/* Rounded up, because 0 means unlimited. */
	uint64_t ttl = isnan(w->ttl_s) ? 0 : (uint64_t)ceil(w->ttl_s * 1e9);
	int err;

	if (verb == HOLD && ttl == 0)
		ttl = UINT64_MAX;
	guard_doc_who(q, w->reason, name, sizeof(name));
	err = a->view.guard_ops->ask(a->view.guarding, worker, ask_kind(verb, w), ttl,
				     &(struct guard_asker){ name, q->uid, q->peer_pid, 0 },
				     message, sizeof(message));
	if (!err)
		accepted(a, g, (unsigned)worker, message, r);
	else if (err == -GW_E_STATE)
		held(g, worker, r, message);
	else if (err == -GW_E_PERM)
		guard_doc_too_often(a, g, q, r, message);
	else
		reply_problem(r, err == -GW_E_NOENT ? 404 : 400, "not-accepted", NULL, "%s",
			      *message ? message : gw_strerror(err));
}

static void change(const struct api *a, const struct request *q, struct reply *r,
		   enum verb verb)
{
	const struct guard_view *g = guard_doc_may_ask(a, q, r);
	struct worker_request w = { .ttl_s = (double)NAN, .reason = "" };
	char message[256] = "";
	struct json_request *b;
	int worker;

	if (!g || (worker = guard_doc_find(g, r, q->arg[0])) < 0)
		return;
	if (json_request_open(q->body, q->size, "ttl_s reason force state", &b, message,
			      sizeof(message)) != 0) {
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
		return;
	}
	if (read_request(b, verb, &w, message, sizeof(message)))
		send_request(a, q, r, g, worker, verb, &w);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
	json_request_close(b);
}

void api_guard_evict(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, EVICT);
}

void api_guard_resume(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, RESUME);
}

void api_guard_hold(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, HOLD);
}

void api_guard_release(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, RELEASE);
}
