/* action: carries out orders; the only part of the guard that has effects.
 *
 * Each worker has one order at a time.  Orders run on at most eight threads, so a worker that
 * hangs delays others only if eight hang, and then until its deadline.  Only processes that the
 * policy names are touched, never a contender, and only if the policy's mode is enforce. */
#ifndef GW_GUARD_ACTION_H
#define GW_GUARD_ACTION_H

#include "guard.h"
#include "worker.h"

struct action;

/* Borrows the policy.  Writes to notify_fd (an eventfd; -1: none) when an outcome is ready.
 * Starts threads with the first orders.  0, -GW_E_NOMEM or -GW_E_IO. */
int action_new(const struct policy *p, const struct worker_set *set, int notify_fd,
	       struct action **ret);
/* Drops orders that have not begun, and waits for the running ones at most timeout_ns, but for
 * a checkpoint without limit.  0, or -GW_E_STATE: an order still runs, and it keeps the memory
 * and the policy that it uses.  a may be NULL. */
int action_free(struct action *a, uint64_t timeout_ns);

/* Changes the policy, which is borrowed: worker i takes the notes and callbacks of worker
 * from[i] of the old one (-1: it is new).  0, or -GW_E_STATE: not idle. */
int action_policy(struct action *a, const struct policy *p, const int *from);
bool action_idle(struct action *a); /* no order runs, no outcome is ready */

/* Queues a copy of an order; its deadline_ns is on CLOCK_MONOTONIC.  0; -GW_E_STATE: the worker
 * has an order whose outcome was not fetched; -GW_E_ARG: no such worker; -GW_E_NOMEM: no
 * thread. */
int action_order(struct action *a, const struct guard_order *o);
bool action_next_outcome(struct action *a, struct guard_outcome *ret);

/* The notes of a worker between eviction and resume, a text of less than WORKER_NOTES_SIZE
 * bytes.  The caller writes them to the journal before an eviction continues and after each
 * outcome, and sets them again after a restart before the first order. */
void action_notes(struct action *a, unsigned worker, char *out, size_t size);
void action_set_notes(struct action *a, unsigned worker, const char *notes);

/* If the service is killed while a worker unloads, the journal must say what to load again.  So
 * an eviction first learns what it will unload; if that adds notes, the order waits and
 * notify_fd is written to.  action_learnt(): does the order of this worker wait, and which is
 * it?  action_go_on(), after the notes were written: why_not NULL carries it out, else it is
 * not carried out and why_not is the message of its outcome. */
bool action_learnt(struct action *a, unsigned worker, struct guard_order *ret);
void action_go_on(struct action *a, unsigned worker, const char *why_not);

/* For WORKER_CALLBACK; NULL removes them.  -GW_E_STATE while an order for it runs. */
int action_set_callbacks(struct action *a, unsigned worker, const struct worker_callbacks *c);
/* Facts by which checkpoints are refused; unknown until they are set. */
void action_set_facts(struct action *a, const struct worker_facts *f);

#endif
