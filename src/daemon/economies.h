/* economies: learns from the ticks what an idling model of each worker draws and what loading it takes.
 *
 * Of workers that take part in the idle economy alone (guard/economy.h); what was learned is lost with the
 * service. */
#ifndef GW_DAEMON_ECONOMIES_H
#define GW_DAEMON_ECONOMIES_H

#include "guard/economy.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct economies;

/* policy is borrowed.  0 or -GW_E_NOMEM. */
int economies_new(const struct policy *p, struct economies **ret);
void economies_free(struct economies *e);

/* Calls found where the figures of a worker have changed by a tenth or more. */
void economies_tick(struct economies *e, const struct guard *guard, const struct view *v,
		    uint64_t now_ns,
		    void (*found)(void *arg, unsigned worker, const struct economy_figures *f),
		    void *arg);

/* Adds up what was saved and spent. */
void economies_count(const struct economies *e, struct guard_view_counts *ret);

#endif
