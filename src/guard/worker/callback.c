/* A worker that lives in this process. The guard calls functions of the program to release
 * memory and to take it again. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

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
				   "no evict callback is registered for this worker");
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
