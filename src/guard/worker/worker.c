/* Kinds and their adapters, and who stops a worker whose own kind does not. */
#include "guard/worker/http.h"
#include "guard/worker/kinds.h"
#include "guard/worker/signals.h"

static const struct worker_ops *const table[WORKER_KINDS] = {
#define K(symbol, name, url, level, traits, help) &worker_##name,
#include "guard/kind.def"
};

static const struct worker_ops *of(enum policy_kind kind)
{
	return table[kind];
}

static const struct worker_ops *stopper(const struct policy_worker *w)
{
	if (policy_kind_is(w->kind, KIND_UNIT | KIND_CONTAINER))
		return table[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}

static int begin(struct worker_call *c)
{
	return worker_http_new(c->worker, c->deadline_ns, &c->http);
}

static void started(struct worker_call *c)
{
	worker_http_socket(c->http, NULL);
}

static void end(struct worker_call *c)
{
	worker_http_free(c->http);
}

const struct worker_set worker_all = { of, stopper, worker_kill, begin, started, end };
