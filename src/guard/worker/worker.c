/* The two sets of adapters: every kind, for the service; and only the kind "callback", for a
 * program that guards itself. */
#include "guard/worker/common.h"

/* The guard calls functions of the program to release memory and to take it again. */

static int callback_result(const struct worker_call *c, int rc, const char *what)
{
	if (rc == -GW_E_STATE)
		return worker_fail(c, rc, "its %s callback is busy and will be called again",
				   what);
	if (rc)
		return worker_fail(c, rc > 0 ? -GW_E_IO : rc, "its %s callback failed (%d)",
				   what, rc);
	return 0;
}

static int callback_evict(struct worker_call *c)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->evict)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no evict callback is registered for this worker");
	return callback_result(c, b->evict(b->ctx, c->order->bytes, c->deadline_ns), "evict");
}

static int callback_resume(struct worker_call *c)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->resume)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no resume callback is registered for this worker");
	return callback_result(c, b->resume(b->ctx, c->deadline_ns), "resume");
}

const struct worker_ops worker_callback = { .evict = callback_evict,
					    .resume = callback_resume };

static const struct worker_ops *callback_of(enum policy_kind kind)
{
	(void)kind;
	return &worker_callback;
}

static const struct worker_ops *callback_stopper(const struct policy_worker *w)
{
	(void)w;
	return NULL;
}

const struct worker_set worker_own = { .of = callback_of, .stopper = callback_stopper };

static const struct worker_ops *const adapters[WORKER_KINDS] = {
#define K(symbol, name, url, level, stop_s, traits, help) &worker_##name,
#include "guard/kind.def"
};

static const struct worker_ops *worker_adapter(enum policy_kind kind)
{
	return adapters[kind];
}

/* Chooses the adapter for a worker of a kind that cannot stop it. */
static const struct worker_ops *worker_stopper(const struct policy_worker *w)
{
	if (policy_kind_is(w->kind, KIND_UNIT | KIND_CONTAINER))
		return adapters[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}

static int worker_begin(struct worker_call *c)
{
	int rc = worker_http_new(c->worker, c->deadline_ns, &c->http);

	if (!rc)
		worker_http_cancel(c->http, c->cancelled);
	return rc;
}

static void worker_started(struct worker_call *c)
{
	worker_http_socket(c->http, NULL);
}

static void worker_end(struct worker_call *c)
{
	worker_http_free(c->http);
}

const struct worker_set worker_all = {
	.of = worker_adapter,
	.stopper = worker_stopper,
	.kill = worker_kill,
	.begin = worker_begin,
	.started = worker_started,
	.end = worker_end,
	.get = worker_get,
	.post_all = worker_post_all,
	.busy = worker_busy,
	.load_noted = worker_load_noted,
};
