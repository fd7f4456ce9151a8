/* guard_feed: the guard is made, told what happens, and gives what follows.
 *
 * Whoever includes this changes what is decided: in the service guard_recorder.c alone, which records it all. */
#ifndef GW_GUARD_GUARD_INPUT_H
#define GW_GUARD_GUARD_INPUT_H

#include "guard.h"

/* records: as of the last run, or NULL.  policy is borrowed.  0 or -GW_E_NOMEM. */
int guard_new(const struct policy *p, const struct guard_record *records, unsigned n,
	      struct guard **ret);
void guard_free(struct guard *g);

/* Another policy, borrowed, takes the place of the one it has.  Workers that are in both by name keep all that is
 * known of them; one that is new begins as at a start, with its record if there is one; of one that is gone
 * nothing is known afterwards (guard_worker_record() before).  Orders that were not fetched yet are taken
 * back and given anew if need be; of those that were fetched the outcomes must have come.  0, or
 * -GW_E_STATE (guard_orders_underway()) or -GW_E_NOMEM: everything is as before. */
int guard_change_policy(struct guard *g, const struct policy *p,
			const struct guard_record *records, unsigned n, uint64_t now_ns);
/* Orders and reservations that come have higher numbers than this: before the first look, of a guard that goes
 * on where another was. */
void guard_set_last_id(struct guard *g, uint64_t last_id);

void guard_observe(struct guard *g, const struct scene *s);
void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns);

/* Whose wish the next guard_request(), guard_reserve() or guard_set_games() is: a user may move workers policy.user_evictions times
 * an hour, by processes and wishes together.  For that one call; -1, as without: nobody who is limited. */
void guard_set_requester(struct guard *g, int64_t uid);

/* What people ask.  worker -1: all, or none where one refuses.  ttl_ns of a hold: UINT64_MAX for ever;
 * of REQUEST_EVICT 0: until it is resumed.  0, -GW_E_NOENT, -GW_E_ARG (a hold without a time),
 * -GW_E_STATE: it cannot be, or -GW_E_PERM: this user asked too often; with a sentence. */
int guard_request(struct guard *g, int worker, enum guard_request what, uint64_t ttl_ns,
		  uint64_t now_ns, char *message, size_t size);

/* Room for somebody: evicts as many as it takes.  gpu NULL: where most can be free.  ttl_ns 0: until it
 * is released, which is also for the caller to do when the owner exits.  0 and *ret_id, -GW_E_NODEV
 * (no such GPU was seen), -GW_E_SIZE (too many at once) or
 * -GW_E_PERM (workers would have to leave, and this user let them too often). */
int guard_reserve(struct guard *g, const char *gpu, uint64_t bytes, int64_t pid,
		  uint64_t ttl_ns, uint64_t now_ns, uint64_t *ret_id);
void guard_release(struct guard *g, uint64_t id, uint64_t now_ns);
/* One of an earlier run, with its number and its end: before the first look, so that nobody comes back into it.  0, or
 * -GW_E_STATE: there is no place, or it is too late. */
int guard_reserve_restore(struct guard *g, const struct guard_reservation *room);

/* Reasons that others find: heat, faults and budgets.  on false clears.  gpu: uuid. */
void guard_set_reason(struct guard *g, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
/* What ends such a reason that holds, as who found it knows: clears and clears_ns of guard_explain().  Nothing is decided
 * by it. */
void guard_set_reason_end(struct guard *g, const char *gpu, enum guard_reason r,
			  const char *clears, uint64_t clears_ns);

/* An operator trusts a GPU that was lost and answers again: it need not prove itself for a minute.  Also 0
 * where it was not lost; -GW_E_STATE: it does not answer. */
int guard_trust_gpu(struct guard *g, const char *gpu, uint64_t now_ns);

/* How warm a GPU is: a set of enum guard_heat.  Counts from the next look on. */
void guard_set_heat(struct guard *g, const char *gpu, unsigned heat, const char *why);

/* Another service acts on this GPU (holder: who, as a part of a sentence): its workers are only observed.  NULL: none
 * does any more.  Before the first look, too. */
void guard_set_foreign(struct guard *g, const char *gpu, const char *holder, uint64_t now_ns);

/* How many tell that they play, beside those of the scenes; counts from the next look on.  One more counts as a wish
 * of who guard_set_requester() named that all leave. */
void guard_set_games(struct guard *g, unsigned count);

/* Of a worker that takes part in the idle economy: it is unloaded when it has idled for after_ns (UINT64_MAX:
 * never), because of these figures (guard/economy.h; reload_j NAN: not known). */
void guard_set_idle_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j);

/* The end is near: with policy.restore_on_stop, workers that are out for no reason that still holds
 * get their order to return, if every check passes: all whose needs fit together.  Who was not unloaded yet
 * gets its door opened, and what is under way is waited for first; looks go on.  Nobody is told to leave any
 * more.  How many there are; they are worth waiting for while guard_unsettled_count() counts any. */
unsigned guard_stop(struct guard *g, uint64_t now_ns);

/* ---- what follows ---- */

/* Fetched until they return false.  An order waits until the record of its worker was fetched. */
bool guard_next_order(struct guard *g, struct guard_order *ret);
bool guard_next_decision(struct guard *g, struct guard_decision *ret);
/* Must be on the disk before the orders fetched after it are carried out. */
bool guard_next_record(struct guard *g, struct guard_record *ret);

#endif
