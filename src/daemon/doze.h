/* doze: lets the drivers go before the machine sleeps, and opens them when it is awake.
 *
 * A driver that is open during a suspend is not always well afterwards, and holds the suspend up.  Who let the drivers
 * go before finds them so after it.  On the main thread; logind.h says when. */
#ifndef GW_DAEMON_DOZE_H
#define GW_DAEMON_DOZE_H

#include "engine.h"

struct doze;

/* engine is borrowed.  0 or -GW_E_NOMEM. */
int doze_new(struct loop *loop, struct engine *engine, struct doze **ret);
void doze_free(struct doze *d); /* NULL is fine */

/* There is a new view: is what was asked for done?  d may be NULL. */
void doze_tick(struct doze *d);

#endif
