/* worker_finder: finds the root processes of the configured workers, whether they are on a GPU
 * or not.
 *
 * A worker is found by its pidfile, by its port, or by name, program, unit and so on, which
 * searches /proc.  A search is rare and bounded, and a process that was found stays a root
 * while it lives and is the same program. */
#ifndef GW_GUARD_WORKER_FINDER_H
#define GW_GUARD_WORKER_FINDER_H

#include "process_cache.h"
#include "classify.h"

#include "base/root.h"

#define WORKER_FINDER_ROOTS     4    /* per worker */
#define WORKER_FINDER_PROCESSES 4096 /* per search; the next search continues there */

struct worker_finder;

/* Borrows all; pidfd_set_poll() runs before each scene.  self: our own pid, for workers that
 * live in this process.  0 or -GW_E_NOMEM. */
int worker_finder_new(const struct root *root, const struct classifier *c,
		      const struct policy *p, struct pidfd_set *pidfds, int64_t self,
		      struct worker_finder **ret);
void worker_finder_free(struct worker_finder *f);

/* Do two policies have the same worker, found by the same match? */
bool worker_finder_same_match(const struct policy_worker *a, const struct policy_worker *b);

/* Takes over what the finder of the old policy knew about pidfiles, and its roots: those of a
 * worker with the same match stay roots; those of another become former roots.  The old policy
 * must still exist.  old may be NULL. */
void worker_finder_inherit(struct worker_finder *f, const struct worker_finder *old);

/* A root of a worker in an earlier run: a former root while it lives and is not found. */
void worker_finder_recall(struct worker_finder *f, unsigned worker, struct proc_id id);

/* Adds the roots that live, and the former ones, to a scene that already has its GPUs.
 * appeared: a process is new on a GPU, so it is worth looking for workers that are missing. */
void worker_finder_add_roots(struct worker_finder *f, struct scene *s, bool appeared);

/* How often /proc was searched. */
uint64_t worker_finder_searches(const struct worker_finder *f);

#endif
