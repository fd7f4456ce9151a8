/* logind: reports before the machine suspends and after it resumes.
 *
 * It receives PrepareForSleep on the system bus and holds a delay lock, so that logind waits
 * for us (a few seconds at most: InhibitDelayMaxSec=). Without a bus or logind nothing
 * happens; the connection is retried every minute. Runs on the loop's thread and never
 * blocks. */
#ifndef GW_DAEMON_LOGIND_H
#define GW_DAEMON_LOGIND_H

#include "base/loop.h"

#include <stdbool.h>

struct logind;

/* sleeps(true): the machine is about to suspend; call logind_ready() when it may.
 * sleeps(false): it is awake. 0 or -GW_E_NOMEM. */
int logind_new(struct loop *loop, void (*sleeps)(void *arg, bool going), void *arg,
	       struct logind **ret);
void logind_free(struct logind *l); /* NULL is fine */

/* Releases the delay lock: the machine may suspend. */
void logind_ready(struct logind *l);

#endif
