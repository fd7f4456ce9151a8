/* budgets: caps of power and energy for each GPU, from the ticks of the service.
 *
 * What was used today is known again after a restart: where the day began is a count in the store. */
#ifndef GW_DAEMON_BUDGETS_H
#define GW_DAEMON_BUDGETS_H

#include "store.h"

#include "guard/budget.h"
#include "serve/view.h"

struct budgets;

/* The store is borrowed.  0 or -GW_E_NOMEM. */
int budgets_new(const struct budget_options *o, struct store *store, struct budgets **ret);
void budgets_free(struct budgets *b);

/* Calls changed at first, and where a cap of a GPU was exceeded, or that is over. */
void budgets_tick(struct budgets *b, const struct view *v, uint64_t now_ns,
		  void (*changed)(void *arg, const char *uuid, bool over, const char *why),
		  void *arg);

#endif
