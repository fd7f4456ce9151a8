/* economy_learner: learns what each idle model draws and what loading it costs.
 *
 * Only for workers that take part in the idle economy (guard/economy.h). What was learned is
 * lost when the service stops. */
#ifndef GW_DAEMON_ECONOMY_LEARNER_H
#define GW_DAEMON_ECONOMY_LEARNER_H

#include "guard/economy.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct economy_learner;

/* policy is borrowed.  0 or -GW_E_NOMEM. */
int economy_learner_new(const struct policy *p, struct economy_learner **ret);
void economy_learner_free(struct economy_learner *e);

/* Calls found when the figures of a worker have changed by 10 % or more. */
void economy_learner_tick(struct economy_learner *e, const struct guard *guard,
			  const struct view *v, uint64_t now_ns,
			  void (*found)(void *arg, unsigned worker,
					const struct economy_figures *f),
			  void *arg);

/* Sums what all workers saved and spent. */
void economy_learner_count(const struct economy_learner *e, struct guard_view_counts *ret);

#endif
