/* Kinds and their adapters, and who stops a worker whose own kind does not. */
#include "guard/worker/kinds.h"

static const struct worker_ops *const table[WORKER_KINDS] = {
#define K(symbol, name, url, level, traits, help) &worker_##name,
#include "guard/kind.def"
};

const struct worker_ops *worker_ops_of(enum policy_kind kind)
{
	return table[kind];
}

const struct worker_ops *worker_stopper(const struct policy_worker *w)
{
	if (policy_kind_is(w->kind, KIND_UNIT | KIND_CONTAINER))
		return table[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}
