/* guard_trace: all that the guard is told, as lines of a file: what was seen, asked and done, in its order.
 *
 * The guard is pure, so that what was told it decides the same again.  Scenes are written by guard/scene.h; here
 * are the lines between them.  A file may hold several runs of the service: each
 * begins anew.  Another configuration while it runs does not: what is known goes on.
 * Each run says by what policy it decided, each change by what other one; one that was recorded from its midst
 * begins with all that the guard knew. */
#ifndef GW_DAEMON_RECORDING_H
#define GW_DAEMON_RECORDING_H

#include "guard/guard.h"

#include "base/buf.h"

#define GUARD_TRACE_FORM 4 /* of what is written */

/* ---- writing: each adds its line ---- */
/* last_id: guard_last_id(): numbers in the lines that follow are larger.  mode: that is in force. */
void guard_trace_begin(struct buf *out, uint64_t last_id, enum guard_mode mode);
/* After begin or swap: what is decided by from here on (guard/policy_text.h). */
void guard_trace_policy(struct buf *out, const struct policy *p);
/* After the workers of a begin, and what it was told before: guard/guard_state.h. */
void guard_trace_state(struct buf *out, const struct guard *g);
/* After begin or swap, once a worker: the lines that follow name it by its position, whoever reads them has it elsewhere
 * perhaps.  record: what the guard was given or knows of it; NULL: nothing. */
void guard_trace_worker(struct buf *out, unsigned worker, const char *name,
			const struct guard_record *record);
/* Of guard_change_policy(): the one, workers, the other. */
void guard_trace_swap(struct buf *out);
void guard_trace_swapped(struct buf *out, enum guard_mode mode, uint64_t now_ns);
/* worker: whose guard_order_pending() it is; -1: nobody waits for it. */
void guard_trace_outcome(struct buf *out, const struct guard_outcome *o, int worker,
			 uint64_t now_ns);
void guard_trace_stop(struct buf *out, uint64_t now_ns); /* of guard_stop() */
void guard_trace_ask(struct buf *out, int worker, enum guard_request what, uint64_t ttl_ns,
		     uint64_t now_ns);
/* Of guard_set_requester(), before the ask, reserve or games that it is for; -1: for nobody. */
void guard_trace_for(struct buf *out, int64_t uid, uint64_t now_ns);
void guard_trace_reason(struct buf *out, const char *gpu, enum guard_reason r, bool on,
			const char *evidence, uint64_t now_ns);
void guard_trace_trust(struct buf *out, const char *gpu, uint64_t now_ns);
void guard_trace_heat(struct buf *out, const char *gpu, unsigned heat, const char *why,
		      uint64_t now_ns);
void guard_trace_foreign(struct buf *out, const char *gpu, const char *holder, uint64_t now_ns);
/* id: the number that it was given; 0: it was refused. */
void guard_trace_reserve(struct buf *out, const char *gpu, uint64_t bytes, int64_t pid,
			 uint64_t ttl_ns, uint64_t id, uint64_t now_ns);
void guard_trace_room(struct buf *out,
		      const struct guard_reservation *room); /* guard_reserve_restore() */
void guard_trace_release(struct buf *out, uint64_t id, uint64_t now_ns);
void guard_trace_economy(struct buf *out, unsigned worker, uint64_t after_ns, double idle_w,
			 double reload_j, uint64_t now_ns);
void guard_trace_games(struct buf *out, unsigned count, uint64_t now_ns);

/* ---- reading ---- */
struct guard_trace; /* a reader */

/* What policy points to is borrowed.  dry: all is decided by it, and outcomes are left out, as nothing is done; else each part
 * by the policy that was recorded with it, and by this one, which may be NULL, where none was.  0 or -GW_E_NOMEM. */
int guard_trace_new(const struct policy *p, bool dry, struct guard_trace **ret);
void guard_trace_free(struct guard_trace *t);

/* Tells the guard what a line (without its newline) says.  0, -GW_E_PARSE, -GW_E_NOSUPPORT (a run that a later
 * version wrote), -GW_E_NOENT (one without a policy, and none was given) or -GW_E_NOMEM.  Runs of the first form, without names and records, are read as if
 * workers stood where they stand in the policy; the second form had neither rooms of an earlier run nor other services, and
 * began anew with each configuration; up to the third the policy was not told. */
int guard_trace_line(struct guard_trace *t, const char *line);

/* What was decided since; until it returns false.  wall_ns: by the clock of the last scene. */
bool guard_trace_decision(struct guard_trace *t, struct guard_decision *ret,
			  uint64_t *ret_wall_ns);

struct guard_trace_counts {
	uint64_t scenes, runs;
};
struct guard_trace_counts guard_trace_counts(const struct guard_trace *t);
/* By which was decided last. */
const struct policy *guard_trace_by(const struct guard_trace *t);
/* For guard_status(); NULL: nothing was told yet. */
const struct guard *guard_trace_guard(const struct guard_trace *t);

#endif
