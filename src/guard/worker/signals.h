/* signals: the only place that signals a process, itself or through the companion.
 *
 * Through a pidfd, and only where the start time read after the pidfd was opened is the one that the
 * order names: a number given to another process is never signalled.  Nor is one that is another program by now
 * (still.h). */
#ifndef GW_GUARD_WORKER_SIGNALS_H
#define GW_GUARD_WORKER_SIGNALS_H

#include "guard/worker.h"

/* Sends to each target of the order; *ret_sent: to how many.  Targets that have ended, whose number
 * is another's now, or that are no longer the worker's are passed over.  0, -GW_E_PERM, -GW_E_STATE or -GW_E_NOSUPPORT, with a sentence. */
int signals_send(const struct worker_call *c, int signal, unsigned *ret_sent, char *message,
		 size_t size);

/* Levels 5 (SIGTERM) and 6 (SIGTERM, then SIGKILL to those who are still there after a grace): with
 * allow_kill only, else -GW_E_PERM. */
int worker_kill(const struct worker_call *c, char *message, size_t size);

#endif
