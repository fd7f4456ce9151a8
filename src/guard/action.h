/* action: carries orders out.  The only part of the guard that has effects.
 *
 * One thread, one order a worker at a time; what a worker's kind can do is a row of its adapter
 * (guard/worker.h).  Touches what the policy names and nothing else: signals go through a pidfd to a
 * process whose start time is still the order's, contenders are never touched. */
#ifndef GW_GUARD_ACTION_H
#define GW_GUARD_ACTION_H

#include "guard.h"

struct action;

/* For a policy that is borrowed.  notify is written to (an eventfd) when outcomes wait.  0, -GW_E_NOMEM. */
int action_new(const struct policy *p, int notify_fd, struct action **ret);
/* Waits for the order under way at most timeout_ns; a checkpoint is never cut short.  0 or -GW_E_STATE. */
int action_free(struct action *a, uint64_t timeout_ns);

/* Queues an order.  0, or -GW_E_STATE: the worker has one under way. */
int action_order(struct action *a, const struct guard_order *o);
bool action_next_outcome(struct action *a, struct guard_outcome *ret);

#endif
