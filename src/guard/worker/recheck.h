/* recheck: checks whether a process that is about to be touched still belongs to the worker.
 *
 * A process keeps its pid and its start time when it executes another program, so the worker's
 * process of the last scene may be another program now. The check repeats how the process was
 * found: by its pidfile, its port, or the rest of its match. A descendant of a worker's root
 * may be any program and is not checked. */
#ifndef GW_GUARD_WORKER_RECHECK_H
#define GW_GUARD_WORKER_RECHECK_H

#include "guard/worker.h"

#include "base/proc_id.h"

/* True if the process still belongs to the worker. False also if it cannot be read now; the
 * next order checks again. */
bool recheck_belongs(const struct worker_call *c, const struct guard_target *t);

/* True if the worker's match finds the process. False if the match is empty, or if it has a
 * pidfile or a port. */
bool recheck_matches(const struct worker_call *c, const struct guard_target *t);

/* Compares a process with a pid and start time. Pids are reused; a pid with its start time is
 * not. */
enum recheck_identity { IDENTITY_SAME, IDENTITY_ENDED, IDENTITY_OTHER };
enum recheck_identity recheck_identity(const struct root *root, struct proc_id id);

#endif
