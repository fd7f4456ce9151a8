/* suspend: releases the drivers before the machine suspends and opens them after it resumes.
 *
 * A driver that is open during a suspend delays the suspend and can fail after it. If the
 * drivers were already released before the suspend, they stay released after it. The module
 * runs on the main thread. logind reports when the machine suspends and resumes. */
#ifndef GW_DAEMON_SUSPEND_H
#define GW_DAEMON_SUSPEND_H

#include "engine.h"

struct suspend;

/* Borrows engine. Returns 0 or -GW_E_NOMEM. */
int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret);
void suspend_free(struct suspend *d); /* d may be NULL. */

/* Continues a suspend when the drivers are released. Call it after each new view. d may be
 * NULL. */
void suspend_tick(struct suspend *d);

#endif
