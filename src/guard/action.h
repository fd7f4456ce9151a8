/* action: carries orders out.  The only part of the guard that has effects.
 *
 * One order a worker at a time, each on a thread of its own, at most eight threads: a worker that hangs
 * holds up none of the others until eight hang, and then no longer than its deadline.  What a worker's
 * kind can do is a row of its adapter (guard/worker.h).  Touches what the policy names and nothing
 * else: signals go through a pidfd to a process whose start time is still the order's, contenders are
 * never touched.  Nothing is done unless the policy's mode is enforce. */
#ifndef GW_GUARD_ACTION_H
#define GW_GUARD_ACTION_H

#include "guard.h"
#include "worker.h"

struct action;

/* For a policy that is borrowed, with the adapters of a set.  notify_fd is written to (an eventfd; -1: none) when outcomes wait.
 * Threads are started with the first orders.  0, -GW_E_NOMEM or -GW_E_IO. */
int action_new(const struct policy *p, const struct worker_set *set, int notify_fd,
	       struct action **ret);
/* Drops orders that have not begun; waits for those under way at most timeout_ns, but for a checkpoint
 * as long as it takes.  0, or -GW_E_STATE: one is still under way and is left behind, with the memory and
 * the policy that it uses.  NULL is fine. */
int action_free(struct action *a, uint64_t timeout_ns);

/* Another policy, borrowed: worker i of it is worker from[i] of the old one (-1: it is new), and has its
 * notes and callbacks.  0, or -GW_E_STATE: an order is under way, or an outcome was not fetched. */
int action_policy(struct action *a, const struct policy *p, const int *from);
bool action_idle(struct action *a); /* none is under way, no outcome waits */

/* Queues an order, which is copied; its deadline_ns is on CLOCK_MONOTONIC.  0; -GW_E_STATE: the worker
 * has one whose outcome was not fetched; -GW_E_ARG: no such worker; -GW_E_NOMEM: no thread. */
int action_order(struct action *a, const struct guard_order *o);
bool action_next_outcome(struct action *a, struct guard_outcome *ret);

/* What a worker remembers between eviction and return, a text of less than WORKER_NOTES_SIZE bytes.  To be
 * kept with the record before an order to leave goes on, and after each outcome; given back after a restart
 * before the first order. */
void action_notes(struct action *a, unsigned worker, char *out, size_t size);
void action_set_notes(struct action *a, unsigned worker, const char *notes);

/* Whoever is killed while a worker unloads must know afterwards what to bring back.  So an order to leave first
 * learns what it will undo; where that is more than the notes had, it waits, and notify_fd is written to.
 * action_learnt: does this worker's?  And which order.  action_go_on, when the notes are kept: with NULL it is
 * carried out, else nothing is done and this is its outcome. */
bool action_learnt(struct action *a, unsigned worker, struct guard_order *ret);
void action_go_on(struct action *a, unsigned worker, const char *why_not);

/* For WORKER_CALLBACK; NULL takes them away.  -GW_E_STATE while an order for it is under way. */
int action_set_callbacks(struct action *a, unsigned worker, const struct worker_callbacks *c);
/* What checkpoints are refused by; nothing is known until it is told. */
void action_set_facts(struct action *a, const struct worker_facts *f);

#endif
