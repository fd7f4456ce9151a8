/* Replies about liveness and readiness of the service and about the health of the GPUs, and
 * clears a quarantine on request. The reply about liveness needs no reading and no guard; the
 * reply about readiness names the problem in one sentence. */
#include "api_parts.h"

#include "guard_doc.h"
#include "json_request.h"

#include <math.h>
#include <string.h>

static void check_push(struct buf *out, const struct view_push *p)
{
	bool both = *p->problem && *p->queue_problem;

	buf_addf(out, "[%c] push %s%s%s\n", *p->problem || *p->queue_problem ? '-' : '+',
		 *p->problem || *p->queue_problem ? p->problem
		 : p->success_wall_ns             ? "ok"
						  : "nothing was sent yet",
		 both ? "; " : "", p->queue_problem);
}

static void checks(struct buf *out, const struct api *a, const char *unready)
{
	const struct view *v = &a->view;
	double age_s = v->tick && v->snap
			       ? (double)(api_now(a) - gw_snapshot_mono_ns(v->snap)) / 1e9
			       : -1;
	const double pace_s = fmax((double)v->pace.next_ns, (double)v->interval_ns) / 1e9;
	unsigned n = v->tick && v->snap ? gw_snapshot_device_count(v->snap) : 0;

	buf_adds(out, "[+] answering ok\n");
	if (age_s >= 0)
		buf_addf(out, "[%c] reading %llu, %.1f s old, every %g s\n",
			 age_s > 2 * pace_s ? '-' : '+', (unsigned long long)v->tick, age_s,
			 pace_s);
	else
		buf_addf(out, "[-] no reading yet%s%s\n", v->unopened ? ": " : "",
			 v->unopened ? v->unopened : "");
	for (unsigned i = 0; i < n; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);

		buf_addf(out, "[%c] GPU %u %s%s%s\n", d->state == GW_DEVICE_OK ? '+' : '-',
			 d->index, gw_device_state_name(d->state), *d->message ? ": " : "",
			 d->message);
	}
	if (v->self.store_state)
		buf_addf(out, "[%c] history %s\n",
			 strcmp(v->self.store_state, "ok") == 0 ? '+' : '-',
			 v->self.store_state);
	if (v->problems.meter)
		buf_addf(out, "[-] energy: %s\n", v->problems.meter);
	if (v->problems.guard)
		buf_addf(out, "[-] guard: %s\n", v->problems.guard);
	if (a->push)
		check_push(out, a->push);
	if (unready)
		buf_addf(out, "not ready: %s\n", unready);
	else
		buf_adds(out, "ready\n");
}

void api_healthy(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char why[512];

	r->type = "text/plain; charset=utf-8";
	if (api_flag(q, "verbose", false))
		checks(&r->body, a, view_unready(&a->view, api_now(a), why, sizeof(why)));
	buf_adds(&r->body, "ok\n");
}

static const char *remedy(const struct view *v)
{
	unsigned cause;

	if (!v->tick || !v->snap)
		return "Try again in a moment.";
	if (v->let_go)
		return "POST /api/v1/resume when the maintenance is done.";
	cause = gw_snapshot_status(v->snap)->cause;
	for (unsigned i = 0; i < gw_snapshot_device_count(v->snap); i++)
		if (gw_snapshot_device(v->snap, i)->state == GW_DEVICE_STALLED)
			cause = GW_CAUSE_STALLED;
	return *gw_cause_info(cause)->remedy ? gw_cause_info(cause)->remedy : NULL;
}

void api_ready(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char why[512];
	const char *unready = view_unready(&a->view, api_now(a), why, sizeof(why));
	bool verbose = api_flag(q, "verbose", false);

	if (unready && !verbose) {
		reply_problem(r, 503, "not-ready", remedy(&a->view), "%s", unready);
		return;
	}
	r->type = "text/plain; charset=utf-8";
	if (unready)
		r->status = 503;
	if (verbose)
		checks(&r->body, a, unready);
	if (!unready)
		buf_adds(&r->body, "ok\n");
}

static void last_xid(struct json *j, const char *key, const struct health *h, unsigned xid)
{
	if (!json_object_if(j, key, xid))
		return;
	json_uint(j, "xid", xid);
	json_string(j, "class", xid_class_name(health_xid_class(h, xid)));
	json_string(j, "text", xid_text(xid));
	json_object_end(j);
}

static void write_known(struct json *j, const struct health *h, const struct health_status *s,
			bool read_log, struct guard_moment now)
{
	json_string(j, "level", health_level_name(s->level));
	json_string(j, "heat", health_level_name(s->heat));
	json_bool(j, "thermal", s->thermal);
	json_bool(j, "quarantine", s->quarantine);
	json_double(j, "margin_celsius", s->margin_c);
	guard_doc_text(j, "margin_source", s->margin_source);
	json_double(j, "evict_at_celsius", s->evict_at_c);
	guard_doc_time(j, "since", s->since_ns, now);
	guard_doc_time(j, "clears", s->worst.clears_ns > now.mono_ns ? s->worst.clears_ns : 0,
		       now);
	json_uint(j, "xids_total", s->xids);
	last_xid(j, "last_xid", h, s->last_xid);
	json_double(j, "xids_before_start", read_log ? s->past_xids : (double)NAN);
	last_xid(j, "last_xid_before_start", h, s->last_past_xid);
	guard_doc_time(j, "last_xid_before_start_at", s->last_past_ns, now);
	guard_doc_text(j, "why", s->worst.why);
	guard_doc_text(j, "advice", s->worst.advice);
}

/* Writes null for all values, because the health of the GPU is not monitored. */
static void write_unknown(struct json *j, struct guard_moment now)
{
	static const char *const keys[] = { "level",           "heat",
					    "thermal",         "quarantine",
					    "margin_celsius",  "margin_source",
					    "evict_at_celsius" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		json_null(j, keys[i]);
	guard_doc_time(j, "since", 0, now);
	guard_doc_time(j, "clears", 0, now);
	json_null(j, "xids_total");
	json_null(j, "last_xid");
	json_null(j, "xids_before_start");
	json_null(j, "last_xid_before_start");
	guard_doc_time(j, "last_xid_before_start_at", 0, now);
	json_string(j, "why", "the health of this GPU is not monitored");
	json_string(j, "advice", "Set enabled = true in [health].");
	json_null(j, "ghost");
}

static void write_one(struct json *j, const struct api *a, unsigned i)
{
	const struct guard_moment now = guard_moment(a);
	const struct gw_device *d = gw_snapshot_device(a->view.snap, i);
	const struct guard_view *g = a->view.guard;
	struct health_status s;

	json_uint(j, "index", d->index);
	json_string(j, "uuid", gw_device_text(d, GW_T_UUID));
	json_string(j, "name", gw_device_text(d, GW_T_NAME));
	json_string(j, "state", gw_device_state_name(d->state));
	if (i >= g->devices || !g->health[i]) {
		write_unknown(j, now);
		return;
	}
	health_status(g->health[i], now.mono_ns, &s);
	write_known(j, g->health[i], &s, g->kernel_log && strcmp(g->kernel_log, "ok") == 0,
		    now);
	guard_doc_text(j, "ghost", g->ghost ? g->ghost[i] : "");
}

/* Returns the worst level of all monitored GPUs; NULL: none is monitored. */
static const char *worst(const struct api *a, uint64_t now_ns)
{
	const struct guard_view *g = a->view.guard;
	unsigned n = gw_snapshot_device_count(a->view.snap);
	int level = -1;

	for (unsigned i = 0; i < n && i < g->devices; i++) {
		struct health_status s;

		if (!g->health[i])
			continue;
		health_status(g->health[i], now_ns, &s);
		level = (int)s.level > level ? (int)s.level : level;
	}
	return level < 0 ? NULL : health_level_name((unsigned)level);
}

static void write_head(struct json *j, const struct api *a)
{
	json_string(j, "level", worst(a, guard_moment(a).mono_ns));
	json_string(j, "xid_catalogue", xid_table_version());
	json_string(j, "kernel_log", a->view.guard->kernel_log);
}

void api_health(void *arg, const struct request *q, struct reply *r)
{
	guard_doc_gpus(arg, q, r, write_head, write_one);
}

static void reply_one(const struct api *a, unsigned i, struct reply *r)
{
	struct json j;

	api_begin(&j, a, r);
	write_one(&j, a, i);
	api_end(&j);
}

void api_health_gpu(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	int i;

	if (guard_doc_there(a, r) && api_has_reading(a, r) &&
	    (i = api_find(a, r, 404, q->arg[0])) >= 0)
		reply_one(a, (unsigned)i, r);
}

static void clear_device(const struct api *a, const struct request *q, struct reply *r,
			 unsigned i, const char *reason)
{
	const char *uuid = gw_device_text(gw_snapshot_device(a->view.snap, i), GW_T_UUID);
	char message[256] = "", who[256];
	int err;

	guard_doc_who(q, reason, who, sizeof(who));
	err = a->view.guard_ops->clear(a->view.guarding, uuid ? uuid : "", who, message,
				       sizeof(message));
	if (!err)
		reply_one(a, i, r);
	else if (err == -GW_E_STATE)
		reply_problem(r, 409, "not-past",
			      "Fix the cause first. The quarantine then ends automatically, or "
			      "you can clear it.",
			      "the cause of the quarantine still exists: %s", message);
	else
		reply_problem(r, 404, "not-watched", "Set enabled = true in [health].",
			      "the health of this GPU is not monitored");
}

void api_health_clear(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const char *reason = "";
	struct json_request *b;
	int i;

	if (!guard_doc_may_ask(a, q, r) || !api_has_reading(a, r) ||
	    (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	b = api_body(q, r, "reason");
	if (!b)
		return;
	if (!json_request_text(b, "reason", &reason))
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	else if (strlen(reason) > GUARD_REASON_MAX)
		reply_problem(r, 400, "bad-body", NULL, "\"reason\" is longer than %d bytes",
			      GUARD_REASON_MAX);
	else
		clear_device(a, q, r, (unsigned)i, reason);
	json_request_close(b);
}
