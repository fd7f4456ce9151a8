/* logind: knows before the machine goes to sleep, and when it is awake again.
 *
 * Listens on the system bus for PrepareForSleep and holds a delay lock, so that logind waits for us (some seconds at
 * most: InhibitDelayMaxSec=).  Where there is no bus, or nobody on it, nothing happens; it is tried again every
 * minute.  On the loop's thread; never blocks. */
#ifndef GW_DAEMON_LOGIND_H
#define GW_DAEMON_LOGIND_H

#include "base/loop.h"

#include <stdbool.h>

struct logind;

/* `sleeps`: true: it is about to; call logind_ready() when it may.  false: it is awake.  0 or -GW_E_NOMEM. */
int logind_new(struct loop *loop, void (*sleeps)(void *arg, bool going), void *arg,
	       struct logind **ret);
void logind_free(struct logind *l); /* NULL is fine */

/* As far as we are concerned it may sleep. */
void logind_ready(struct logind *l);

#endif
