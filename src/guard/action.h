/* action: carries out orders. No other part of the guard changes anything outside the guard.
 *
 * Each worker has one order at a time, and orders run on at most eight threads. If eight
 * workers hang, other workers wait until one of the eight deadlines has passed. An action
 * touches only processes that the policy names, never a contender, and only if the policy's
 * mode is enforce. */
#ifndef GW_GUARD_ACTION_H
#define GW_GUARD_ACTION_H

#include "guard.h"
#include "worker.h"

struct action;

/* Creates an action. The action borrows the policy, and writes to notify_fd (an eventfd; -1:
 * none) when an outcome is ready. Threads start with the first orders. Returns 0, -GW_E_NOMEM
 * or -GW_E_IO. */
int action_new(const struct policy *p, const struct worker_set *set, int notify_fd,
	       struct action **ret);
/* Drops orders that have not begun. Waits for running orders at most timeout_ns, but without
 * limit for a checkpoint. Returns 0. Returns -GW_E_STATE and frees nothing if an order still
 * runs, because the order uses the action and the policy. a may be NULL. */
int action_free(struct action *a, uint64_t timeout_ns);

/* Replaces the policy, which is borrowed. Worker i takes the notes and callbacks of worker
 * from[i] of the old policy; from[i] is -1 for a new worker. Returns 0, or -GW_E_STATE if the
 * action is not idle. */
int action_policy(struct action *a, const struct policy *p, const int *from);
/* True if no order is queued, no order runs, and no outcome waits to be fetched. */
bool action_idle(struct action *a);

/* Queues a copy of an order; its deadline_ns is on CLOCK_MONOTONIC. Returns 0; -GW_E_STATE: the
 * outcome of the worker's last order was not fetched; -GW_E_ARG: no such worker; -GW_E_NOMEM:
 * no thread can be started. */
int action_order(struct action *a, const struct guard_order *o);
/* If the adapter is waiting for the worker, makes the worker's order fail soon. */
void action_cancel(struct action *a, unsigned worker);
bool action_next_outcome(struct action *a, struct guard_outcome *ret);

/* Get and set the notes that a worker needs between eviction and resume: a string of less than
 * WORKER_NOTES_SIZE bytes. The caller writes the notes to the journal before an eviction
 * continues and after each outcome. After a restart, it sets them before the first order. */
void action_notes(struct action *a, unsigned worker, char *out, size_t size);
void action_set_notes(struct action *a, unsigned worker, const char *notes);

/* If the service is killed while a worker unloads, the journal must say what to load again. So
 * the adapter first notes what it will unload. If the notes change, the order waits, and
 * notify_fd becomes readable. The caller then does three things. It calls action_learnt(),
 * which returns true and writes the waiting order to *ret. It writes the notes to the journal.
 * It calls action_go_on(). If why_not is NULL, the order continues; otherwise the order fails
 * with why_not as its message. */
bool action_learnt(struct action *a, unsigned worker, struct guard_order *ret);
void action_go_on(struct action *a, unsigned worker, const char *why_not);

/* Sets the callbacks of a WORKER_CALLBACK; NULL removes them. Returns -GW_E_STATE while an
 * order for this worker runs. */
int action_set_callbacks(struct action *a, unsigned worker, const struct worker_callbacks *c);
/* Sets the facts about GPUs that decide whether a process can be checkpointed. Until the first
 * call these facts are unknown. */
void action_set_facts(struct action *a, const struct worker_facts *f);

#endif
