/* budgets: compares power and energy of each GPU with its caps at every tick.
 *
 * The store keeps where the day began, so that a restart does not lose what was used today. */
#ifndef GW_DAEMON_BUDGETS_H
#define GW_DAEMON_BUDGETS_H

#include "store.h"

#include "guard/budget.h"
#include "serve/view.h"

struct budgets;

/* The store is borrowed.  0 or -GW_E_NOMEM. */
int budgets_new(const struct budget_options *o, struct store *store, struct budgets **ret);
void budgets_free(struct budgets *b);

/* Calls changed at the first tick of a GPU, when a cap is exceeded, and when it no longer is.
 */
void budgets_tick(struct budgets *b, const struct view *v, uint64_t now_ns,
		  void (*changed)(void *arg, const char *uuid, bool over, const char *why),
		  void *arg);

#endif
