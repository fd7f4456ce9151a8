/* Backoff: longer waits after repeated evictions, after failed returns, and when clients load a
 * worker while it is evicted. */
#include "guard_internal.h"

/* Doubles the quiet time after each flap. A flap is an eviction for contention that begins less
 * than min_resident_s after the return, or that is the third eviction within FLAP_NS. A longer
 * quiet time delays only the return, never an eviction, because a contender cannot wait. */
void guard_count_flap(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;
	const bool early = w->intent.begun_ns < b->resident_ns;
	unsigned recent = 1;

	if (!worker_has_contention(w) || b->storm)
		return;
	for (unsigned i = 0; i < GUARD_FLAPS && i < b->flaps; i++)
		if (g->now_ns - b->flap[i] <= FLAP_NS)
			recent++;
	b->flap[b->flaps++ % GUARD_FLAPS] = g->now_ns;
	if (recent == 1)
		b->quiet_factor = 1;
	if ((recent < 3 && !early) || worker_quiet_ns(w) == LONGEST_NS)
		return;
	b->quiet_factor *= 2;
	guard_report(g, w, "flapping", "%u evictions in 15 min: quiet time is now %llu s",
		     recent, (unsigned long long)(worker_quiet_ns(w) / NS_PER_S));
}

void guard_back_off(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;

	b->failed_ns = b->failed_ns ? 2 * b->failed_ns : 2 * w->knobs.quiet_ns;
	if (b->failed_ns > LONGEST_NS)
		b->failed_ns = LONGEST_NS;
	b->resume_ns = g->now_ns + b->failed_ns;
}

/* ---- a worker loads its model again while it is evicted: row 25 of GUARD-MACHINE.md ---- */

bool guard_is_loaded_again(const struct guard_worker *w)
{
	const uint64_t tenth = w->observed.need_bytes / 10;

	return w->observed.bytes >
	       w->intent.residue_bytes + (tenth > SLACK_BYTES ? tenth : SLACK_BYTES);
}

/* Counts one more reload. True if there were three reloads within RELOAD_NS. */
static bool is_reload_storm(struct guard *g, struct worker_backoff *b)
{
	const unsigned n = sizeof(b->reload) / sizeof(b->reload[0]);
	unsigned recent = 0;

	b->reload[b->reloads++ % n] = g->now_ns;
	for (unsigned i = 0; i < n && i < b->reloads; i++)
		recent += g->now_ns - b->reload[i] <= RELOAD_NS;
	return recent == n;
}

void guard_loaded_again(struct guard *g, struct guard_worker *w)
{
	const unsigned long long mib = w->observed.bytes / MIB;
	unsigned stop = guard_level_first(w);
	bool storm;

	if (!worker_kept_out(w)) {
		worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
		guard_report(g, w, "returned without an order", "%llu MiB", mib);
		return;
	}
	storm = w->backoff.storm = is_reload_storm(g, &w->backoff);
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, storm ? "reload-storm" : "reloaded while evicted",
		     "%llu MiB loaded, %llu MiB needed%s", mib,
		     (unsigned long long)(w->observed.need_bytes / MIB),
		     storm ? ": stop its clients, or let the guard stop its unit (kind = "
			     "\"systemd\")"
			   : "");
	while (storm && stop && stop < LEVEL_STOP)
		stop = guard_level_next(w, stop);
	if (storm && stop == LEVEL_STOP)
		w->intent.level = stop;
	else if (storm && w->door == DOOR_CLOSED)
		/* the guard orders the worker again to refuse new work */
		w->door = DOOR_UNVERIFIED;
}
