/* Liveness and readiness. Liveness depends on nothing; readiness names the problem in one
 * sentence. */
#include "api_parts.h"

#include <string.h>

static void checks(struct buf *out, const struct api *a, const char *unready)
{
	const struct view *v = &a->view;
	double age_s = v->tick && v->snap
			       ? (double)(api_now(a) - gw_snapshot_mono_ns(v->snap)) / 1e9
			       : -1;
	unsigned n = v->tick && v->snap ? gw_snapshot_device_count(v->snap) : 0;

	buf_adds(out, "[+] answering ok\n");
	if (age_s >= 0)
		buf_addf(out, "[%c] reading %llu, %.1f s old, every %g s\n",
			 age_s * 1e9 > 2 * (double)v->interval_ns ? '-' : '+',
			 (unsigned long long)v->tick, age_s, (double)v->interval_ns / 1e9);
	else
		buf_adds(out, "[-] no reading yet\n");
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
