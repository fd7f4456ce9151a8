/* doze: lets the drivers go before the machine sleeps, and opens them when it is awake.
 *
 * A driver that is open during a suspend is not always well afterwards, and holds the suspend up.  Who let the drivers
 * go before finds them so after it.  On the main thread; logind.h says when. */
#ifndef GW_DAEMON_SUSPEND_H
#define GW_DAEMON_SUSPEND_H

#include "engine.h"

struct suspend;

/* engine is borrowed.  0 or -GW_E_NOMEM. */
int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret);
void suspend_free(struct suspend *d); /* NULL is fine */

/* There is a new view: is what was asked for done?  d may be NULL. */
void suspend_tick(struct suspend *d);

#endif
