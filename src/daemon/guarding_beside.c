/* guarding_beside: what is found beside the looks (beside.h) is recorded, and told to the guard. */
#include "guarding_parts.h"

#include <math.h>

static void found_xid(void *arg, const struct watch_event *e, bool past)
{
	guarding_xid(arg, e, past);
}

static void found_reason(void *arg, const char *uuid, enum guard_reason r, bool on,
			 const char *why)
{
	guarding_reason(arg, uuid, r, on, why, guarding_time_ns(arg));
}

static void found_games(void *arg, unsigned count)
{
	struct guarding *g = arg;

	guarding_games(g, count);
	if (g->looker) /* those of an earlier run come before it */
		looker_now(g->looker);
}

/* What an idling model costs is known better now.  In whole numbers, as it is written: the same decides again. */
static void found_economy(void *arg, unsigned worker, const struct economy_figures *f)
{
	guarding_economy(arg, worker, f->after_ns, rint(f->idle_w), rint(f->reload_j));
}

static uint64_t tell(void *arg, const struct view_event *e)
{
	struct guarding *g = arg;

	return g->config.tell(g->config.arg, e);
}

int guarding_beside_open(struct guarding *g)
{
	const struct beside_calls calls = { found_xid,     found_reason, found_games,
					    found_economy, tell,         g };

	return beside_new(g->config.loop, g->config.ctx, g->config.store, g->settings, &calls,
			  &g->beside);
}
