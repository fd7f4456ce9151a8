/* guard_service_inputs: passes the findings of guard_inputs.h to the guard and its recording.
 */
#include "guard_service_parts.h"

#include <math.h>

static void found_xid(void *arg, const struct driver_event *e, bool past)
{
	guard_service_xid(arg, e, past);
}

static void found_reason(void *arg, const char *uuid, enum guard_reason r, bool on,
			 const char *why)
{
	guard_service_reason(arg, uuid, r, on, why, guarding_time_ns(arg));
}

static void found_games(void *arg, unsigned count)
{
	struct guard_service *g = arg;

	guard_service_games(g, count);
	if (g->scenes) /* games of an earlier run are loaded before it exists */
		scene_thread_trigger(g->scenes);
}

/* New figures of an idle model. Rounded as in the recording, so that a replay decides the
 * same. */
static void found_economy(void *arg, unsigned worker, const struct economy_figures *f)
{
	guard_service_economy(arg, worker, f->after_ns, rint(f->idle_w), rint(f->reload_j));
}

static uint64_t emit(void *arg, const struct view_event *e)
{
	struct guard_service *g = arg;

	return g->config.emit(g->config.arg, e);
}

int guard_service_inputs_open(struct guard_service *g)
{
	const struct guard_inputs_calls calls = { found_xid,     found_reason, found_games,
						  found_economy, emit,         g };

	return guard_inputs_new(g->config.loop, g->config.ctx, g->config.store, g->settings,
				&calls, &g->inputs);
}
