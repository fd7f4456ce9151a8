/* still: is a process that is about to be touched still the worker's?
 *
 * Its number and its start stay when it becomes another program, so that who was the worker at the last look may be
 * somebody else's by now.  What is asked is what it was found by: its pidfile, its port, or the rest of its match.
 * Those that are the worker's by who is above them are not asked: they may be any program. */
#ifndef GW_GUARD_WORKER_RECHECK_H
#define GW_GUARD_WORKER_RECHECK_H

#include "guard/worker.h"

/* Also false where it cannot be told: it is asked again with the next order. */
bool still_its(const struct worker_call *c, const struct guard_target *t);

/* Does the match of the worker alone, without pidfile and port, find pid?  False where it says nothing. */
bool still_matches(const struct worker_call *c, const struct guard_target *t);

#endif
