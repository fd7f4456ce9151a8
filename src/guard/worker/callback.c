/* A worker that lives in this process: called back to let go of its memory and to take it again. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>

static int none(char *message, size_t size)
{
	snprintf(message, size, "no callback is registered for this worker");
	return -GW_E_NOSUPPORT;
}

static int judge(int rc, const char *what, char *message, size_t size)
{
	if (rc == -GW_E_STATE)
		snprintf(message, size, "its %s callback asks to be called again", what);
	else if (rc)
		snprintf(message, size, "its %s callback failed (%d)", what, rc);
	return rc > 0 ? -GW_E_IO : rc;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->evict)
		return none(message, size);
	return judge(b->evict(b->ctx, c->order->bytes, c->deadline_ns), "evict", message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->resume)
		return none(message, size);
	return judge(b->resume(b->ctx, c->deadline_ns), "resume", message, size);
}

const struct worker_ops worker_callback = { .evict = evict, .resume = resume };

static const struct worker_ops *of(enum policy_kind kind)
{
	(void)kind;
	return &worker_callback;
}

static const struct worker_ops *stopper(const struct policy_worker *w)
{
	(void)w;
	return NULL;
}

const struct worker_set worker_own = { .of = of, .stopper = stopper };
