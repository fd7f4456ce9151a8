/* guard_input: functions that create a guard, give it input, and fetch what it decided.
 *
 * In the service only guard_recorder.c includes this header, because guard_recorder.c records
 * every input. */
#ifndef GW_GUARD_GUARD_INPUT_H
#define GW_GUARD_GUARD_INPUT_H

#include "guard.h"

/* Creates a guard. records: the records of the last run, or NULL. p is borrowed. Returns 0 or
 * -GW_E_NOMEM. */
int guard_new(const struct policy *p, const struct guard_record *records, unsigned n,
	      struct guard **ret);
void guard_free(struct guard *g);

/* Replaces the policy; p is borrowed. A worker that both policies name keeps its state. A new
 * worker begins as after a start, with its record if there is one. The state of a removed
 * worker is lost; to keep its record, call guard_worker_record() before. Orders that were not
 * fetched are cancelled, and given again if they are still due. Returns 0. On -GW_E_STATE
 * (guard_orders_underway() is not 0) or -GW_E_NOMEM nothing changes. */
int guard_change_policy(struct guard *g, const struct policy *p,
			const struct guard_record *records, unsigned n, uint64_t now_ns);
/* Makes the ids of orders and reservations begin after last_id. A guard that continues the work
 * of another guard needs this. Call it before the first scene. */
void guard_set_last_id(struct guard *g, uint64_t last_id);
/* Marks the order of a worker as fetched or as not fetched, and does not mark the worker's
 * record. A replay needs this, because an order that was not fetched is cancelled or given
 * again. Has no effect on a dry run. */
void guard_set_fetched(struct guard *g, unsigned worker, bool fetched);

void guard_observe(struct guard *g, const struct scene *s);
void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns);

/* Sets the user who makes the next guard_request(), guard_reserve() or guard_set_games(); the
 * calls after that call have no user. Processes and requests of one user may cause evictions
 * policy.user_evictions times per hour. -1: the call is not limited. */
void guard_set_requester(struct guard *g, int64_t uid);

/* Applies a person's request. worker -1: all workers; if the request is refused for one worker,
 * nothing changes. ttl_ns is the duration of a hold or of REQUEST_EVICT. For a hold, UINT64_MAX
 * means without end; for REQUEST_EVICT, 0 means until the worker is resumed. Returns 0. On an
 * error, writes a sentence and returns -GW_E_NOENT, -GW_E_ARG (a hold without a duration),
 * -GW_E_STATE (a hold forbids the request) or -GW_E_PERM (this user caused too many evictions).
 * The guard decides about a return with the next scene, so build a scene at once. */
int guard_request(struct guard *g, int worker, enum guard_request what, uint64_t ttl_ns,
		  uint64_t now_ns, char *message, size_t size);

/* Reserves memory for a process, and evicts as many workers as necessary. gpu NULL: the GPU
 * where the most memory can become free. ttl_ns 0: until guard_release(). The caller must also
 * call guard_release() when the process exits. Sets *ret_id and returns 0; or returns
 * -GW_E_NODEV (no such GPU), -GW_E_SIZE (too many reservations) or -GW_E_PERM (an eviction is
 * necessary, and this user caused too many evictions). */
int guard_reserve(struct guard *g, const char *gpu, uint64_t bytes, int64_t pid,
		  uint64_t ttl_ns, uint64_t now_ns, uint64_t *ret_id);
void guard_release(struct guard *g, uint64_t id, uint64_t now_ns);
/* Adds a reservation of an earlier run, with its id and end. Call it before the first scene, so
 * that no worker returns into the reserved memory. The reservation's user is the one that
 * guard_set_requester() has set. Returns 0, or -GW_E_STATE: there are too many reservations, or
 * a scene was already observed. */
int guard_reserve_restore(struct guard *g, const struct guard_reservation *room);

/* Sets a reason that health or a budget found on a GPU (UUID); on = false clears the reason. */
void guard_set_reason(struct guard *g, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
/* Sets how and when a reason of guard_set_reason() ends, for guard_explain(). This does not
 * influence decisions. */
void guard_set_reason_end(struct guard *g, const char *gpu, enum guard_reason r,
			  const char *clears, uint64_t clears_ns);

/* Uses a lost GPU again at once, because a person requests this. Without this call, the GPU
 * must first answer for a minute. Returns 0, also if the GPU was not lost; -GW_E_STATE: the GPU
 * does not answer. */
int guard_trust_gpu(struct guard *g, const char *gpu, uint64_t now_ns);

/* Sets how warm a GPU is: a set of enum guard_heat. The value is used from the next scene
 * on. */
void guard_set_heat(struct guard *g, const char *gpu, unsigned heat, const char *why);

/* Notes that another service (holder) acts on this GPU. Then workers on this GPU are only
 * observed. holder is the name of that service for messages; NULL: that service ended. */
void guard_set_foreign(struct guard *g, const char *gpu, const char *holder, uint64_t now_ns);

/* Sets the number of registered games, in addition to the games that scenes contain. The number
 * is used from the next scene on. If the number grows, this counts as a request to evict all
 * workers, by the user that guard_set_requester() has set. latest: the game that was registered
 * last. */
void guard_set_games(struct guard *g, unsigned count, const struct scene_game *latest);

/* Sets after_ns: a worker with idle economy is unloaded when it has idled for this time
 * (UINT64_MAX: never). idle_w and reload_j are the figures from which after_ns was computed
 * (guard/idle.h; reload_j NAN: unknown). */
void guard_set_idle_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j);

/* Prepares for the end of the service. Without policy.restore_on_stop the function does nothing
 * and returns 0. Otherwise, it first waits for orders under way. Then evicted workers without a
 * reason get an order to return, if all checks pass and the workers fit together. A worker that
 * was not unloaded yet admits new work again. No further eviction begins. Returns the number of
 * unsettled workers; wait while guard_unsettled_count() is not 0. */
unsigned guard_stop(struct guard *g, uint64_t now_ns);

/* Call each of the following functions after every input, until it returns false. */

/* Returns the next order. A worker's order waits until the worker's record was fetched. */
bool guard_next_order(struct guard *g, struct guard_order *ret);
bool guard_next_decision(struct guard *g, struct guard_decision *ret);
/* Returns the next record. The caller must write the record to the disk before it carries out
 * any order that is fetched after the record. */
bool guard_next_record(struct guard *g, struct guard_record *ret);

#endif
