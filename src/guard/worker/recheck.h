/* recheck: does a process that is about to be touched still belong to the worker?
 *
 * A process keeps its pid and its start time when it executes another program, so the worker's
 * process of the last scene may be something else by now.  The check repeats what the process
 * was found by: its pidfile, its port, or the rest of its match.  A descendant of a worker's
 * root may be any program and is not checked. */
#ifndef GW_GUARD_WORKER_RECHECK_H
#define GW_GUARD_WORKER_RECHECK_H

#include "guard/worker.h"

#include "base/proc_id.h"

/* False also if it cannot be read now; the next order checks again. */
bool recheck_belongs(const struct worker_call *c, const struct guard_target *t);

/* Does the worker's match alone, without pidfile and port, find the process?  False where the
 * match is empty. */
bool recheck_matches(const struct worker_call *c, const struct guard_target *t);

/* Pids are reused; a pid with its start time is not. */
enum recheck_identity { IDENTITY_SAME, IDENTITY_ENDED, IDENTITY_OTHER };
enum recheck_identity recheck_identity(const struct root *root, struct proc_id id);

#endif
