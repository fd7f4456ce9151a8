/* suspend: releases the drivers before the machine suspends and opens them after it resumes.
 *
 * A driver that is open during a suspend can fail afterwards, and delays the suspend. If the
 * drivers were already released before, they stay released. Runs on the main thread; logind
 * reports when. */
#ifndef GW_DAEMON_SUSPEND_H
#define GW_DAEMON_SUSPEND_H

#include "engine.h"

struct suspend;

/* engine is borrowed.  0 or -GW_E_NOMEM. */
int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret);
void suspend_free(struct suspend *d); /* NULL is fine */

/* Call after each new view: continues a suspend when the request is done. d may be NULL. */
void suspend_tick(struct suspend *d);

#endif
