/* The table of all adapters. It also chooses the adapter that stops a worker if the worker's
 * own kind cannot. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

static const struct worker_ops *const adapters[WORKER_KINDS] = {
#define K(symbol, name, url, level, stop_s, traits, help) &worker_##name,
#include "guard/kind.def"
};

static const struct worker_ops *worker_adapter(enum policy_kind kind)
{
	return adapters[kind];
}

static const struct worker_ops *worker_stopper(const struct policy_worker *w)
{
	if (policy_kind_is(w->kind, KIND_UNIT | KIND_CONTAINER))
		return adapters[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}

static int worker_begin(struct worker_call *c)
{
	return worker_http_new(c->worker, c->deadline_ns, &c->http);
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
