/* guard_input: functions that make a guard and change what it decides, and those that fetch what it decided.
 *
 * In the service only guard_recorder.c includes this, because it records every input. */
#ifndef GW_GUARD_GUARD_INPUT_H
#define GW_GUARD_GUARD_INPUT_H

#include "guard.h"

/* records: of the last run, or NULL.  p is borrowed.  0 or -GW_E_NOMEM. */
int guard_new(const struct policy *p, const struct guard_record *records, unsigned n,
	      struct guard **ret);
void guard_free(struct guard *g);

/* Replaces the policy; p is borrowed.  A worker that is in both policies by name keeps everything that is known of it.  A
 * new one begins as at a start, with its record if there is one.  What is known of a removed one is lost
 * (guard_worker_record() before).  Orders that were not fetched are taken back, and given again if they are still due.
 * 0, or -GW_E_STATE (guard_orders_underway()) or -GW_E_NOMEM, and nothing changed. */
int guard_change_policy(struct guard *g, const struct policy *p,
			const struct guard_record *records, unsigned n, uint64_t now_ns);
/* Before the first scene, of a guard that continues another one: ids of orders and reservations begin after last_id. */
void guard_set_last_id(struct guard *g, uint64_t last_id);

void guard_observe(struct guard *g, const struct scene *s);
void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns);

/* The user of the next guard_request(), guard_reserve() or guard_set_games(), and of that call alone: processes and
 * requests of one user may cause policy.user_evictions evictions per hour.  -1: not limited. */
void guard_set_requester(struct guard *g, int64_t uid);

/* worker -1: all, or none if one refuses.  ttl_ns: of a hold UINT64_MAX for ever; of REQUEST_EVICT 0 until it is resumed.
 * 0, or with a sentence: -GW_E_NOENT, -GW_E_ARG (a hold without a duration), -GW_E_STATE (a hold excludes it) or
 * -GW_E_PERM (this user requested too often). */
int guard_request(struct guard *g, int worker, enum guard_request what, uint64_t ttl_ns,
		  uint64_t now_ns, char *message, size_t size);

/* Keeps memory free for a process, and evicts as many workers as that takes.  gpu NULL: where most can be free.  ttl_ns 0:
 * until guard_release(), which the caller must also call when the process exits.  0 and *ret_id, -GW_E_NODEV (no such
 * GPU), -GW_E_SIZE (too many reservations) or -GW_E_PERM (it would evict, and this user caused too many evictions). */
int guard_reserve(struct guard *g, const char *gpu, uint64_t bytes, int64_t pid,
		  uint64_t ttl_ns, uint64_t now_ns, uint64_t *ret_id);
void guard_release(struct guard *g, uint64_t id, uint64_t now_ns);
/* A reservation of an earlier run, with its id and end; before the first scene, so that no worker returns into it.  0, or
 * -GW_E_STATE: there is no place, or it is too late. */
int guard_reserve_restore(struct guard *g, const struct guard_reservation *room);

/* Reasons that health and budgets find.  on false clears.  gpu: UUID. */
void guard_set_reason(struct guard *g, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
/* What ends such a reason, for guard_explain().  Nothing is decided by it. */
void guard_set_reason_end(struct guard *g, const char *gpu, enum guard_reason r,
			  const char *clears, uint64_t clears_ns);

/* An operator trusts a GPU that was lost and answers again: it need not answer for a minute first.  0, also if it was not
 * lost; -GW_E_STATE: it does not answer. */
int guard_trust_gpu(struct guard *g, const char *gpu, uint64_t now_ns);

/* How warm a GPU is: a set of enum guard_heat.  Counts from the next scene on. */
void guard_set_heat(struct guard *g, const char *gpu, unsigned heat, const char *why);

/* Another service acts on this GPU: its workers are only observed.  holder: its name for messages; NULL: it ended. */
void guard_set_foreign(struct guard *g, const char *gpu, const char *holder, uint64_t now_ns);

/* How many games are registered, in addition to those of the scenes.  Counts from the next scene on.  One more counts as a
 * request of guard_set_requester() to evict all workers. */
void guard_set_games(struct guard *g, unsigned count);

/* For a worker with idle economy: it is unloaded after after_ns of idling (UINT64_MAX: never), because of these figures
 * (guard/economy.h; reload_j NAN: unknown). */
void guard_set_idle_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j);

/* The service ends.  With policy.restore_on_stop workers that no reason keeps out get their order to return, if all checks
 * pass and they fit together; a worker that was not unloaded yet gets its door opened; orders under way are waited for
 * first.  No worker is evicted any more.  Returns how many are unsettled; wait while guard_unsettled_count() is not 0. */
unsigned guard_stop(struct guard *g, uint64_t now_ns);

/* ---- what was decided: fetch until they return false ---- */

/* The order of a worker waits until its record was fetched. */
bool guard_next_order(struct guard *g, struct guard_order *ret);
bool guard_next_decision(struct guard *g, struct guard_decision *ret);
/* Must be on the disk before orders that are fetched after it are carried out. */
bool guard_next_record(struct guard *g, struct guard_record *ret);

#endif
