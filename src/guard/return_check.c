/* Checks whether a worker may return, when no reason keeps it out (GUARD-MACHINE.md, Before it
 * returns). */
#include "guard_internal.h"

#include <string.h>

static bool waits_to_return(const struct guard *g, const struct guard_worker *o)
{
	const struct worker_backoff *b = &o->backoff;
	const enum guard_state s = worker_state(o);
	bool deaf = b->blocked == BIT(BLOCK_ENDPOINT) && g->now_ns < b->check_ns;

	return (s == STATE_EVICTED || s == STATE_QUIET) && !worker_kept_out(o) &&
	       g->now_ns >= b->resume_ns && !deaf &&
	       (b->request != RESUME_NOT_REQUESTED || o->policy->resume != RESUME_NEVER);
}

/* True if another worker returns first: one at a time per GPU, the highest priority first. */
static bool is_not_its_turn(const struct guard *g, const struct guard_worker *w)
{
	bool after = false;

	for (unsigned i = 0; !g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[g->order[i]];

		if (o == w) {
			after = true;
			continue;
		}
		if (!(o->observed.gpus & w->observed.gpus))
			continue;
		if (worker_is_coming_back(o) || (after && waits_to_return(g, o)))
			return true;
	}
	return false;
}

/* Returns the bytes that other returning workers will still take. They count only when the
 * service ends, because then no later scene may show them. */
static uint64_t others_take(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[i];
		const uint64_t need = o->observed.need_on[gpu], held = o->observed.held[gpu];

		if (o != w && worker_is_coming_back(o) && !o->dry && need > held)
			sum += need - held;
	}
	return sum;
}

static uint32_t check_gpus(const struct guard *g, const struct guard_worker *w, char *out,
			   size_t size)
{
	uint32_t bad = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];
		const uint64_t held = w->observed.held[i];
		uint64_t need = w->observed.need_on[i];

		if (!has(w->observed.gpus, i))
			continue;
		if (u->heat & HEAT_WARM)
			bad |= BIT(BLOCK_THERMAL);
		if (need <= held)
			continue;
		if (!u->now || !u->now->memory_known) {
			bad |= BIT(BLOCK_UNKNOWN);
			continue;
		}
		need += demand_headroom(&w->knobs, u->now->total_bytes) + u->promised +
			others_take(g, w, i) - held;
		if (u->free_bytes < need) {
			bad |= BIT(BLOCK_ROOM);
			text_fit(out, size, "needs %llu MiB with headroom, %llu MiB are free",
				 (unsigned long long)(need / MIB),
				 (unsigned long long)(u->free_bytes / MIB));
		}
	}
	return bad;
}

/* Returns the host memory that loading needs. Memory that was moved to the host (a checkpoint,
 * vLLM asleep at level 1) is already there. */
static uint64_t host_need(const struct guard_worker *w)
{
	bool drops = w->policy->level == 2 && policy_kind_is(w->policy->kind, KIND_DROPS_AT_2);
	bool there = w->intent.level != LEVEL_STOP &&
		     policy_kind_is(w->policy->kind, KIND_TO_HOST) && !drops;

	return there ? 0 : STAGING;
}

uint32_t guard_check_return(const struct guard *g, const struct guard_worker *w, char *out,
			    size_t size)
{
	const uint64_t host = g->scene.host_free_bytes;
	const bool fails[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = g->now_ns < w->backoff.resume_ns,
		[BLOCK_HOST] = host && host < host_need(w),
		[BLOCK_GONE] =
			!worker_is_present(w) && !worker_is_moved(w) && !w->policy->managed,
		[BLOCK_DEMAND] = w->demand.pressing && worker_heeds_demand(w),
		[BLOCK_TURN] = is_not_its_turn(g, w),
		[BLOCK_BUSY] = worker_has_order(w),
		[BLOCK_NEVER] = w->policy->resume == RESUME_NEVER &&
				w->backoff.request == RESUME_NOT_REQUESTED,
	};
	char room[100] = "";
	uint32_t bad = check_gpus(g, w, room, sizeof(room));
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < GUARD_BLOCKS; i++) {
		bad |= fails[i] ? BIT(i) : 0;
		if (!(bad & BIT(i)))
			continue;
		text_fit(out + len, size - len, "%s%s", len ? "; " : "",
			 i == BLOCK_ROOM ? room : guard_block_text(i));
		len += strlen(out + len);
	}
	return bad;
}
