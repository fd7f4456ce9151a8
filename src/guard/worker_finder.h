/* worker_finder: finds the root processes of the configured workers, whether they are on a GPU
 * or not.
 *
 * A worker is found by its pidfile, by its port, or by a search of /proc for name, program,
 * unit and so on. Searches are rare and bounded. A process that was found stays a root while it
 * lives and runs the same program. */
#ifndef GW_GUARD_WORKER_FINDER_H
#define GW_GUARD_WORKER_FINDER_H

#include "process_cache.h"
#include "classify.h"

#include "base/root.h"

#define WORKER_FINDER_ROOTS 4 /* maximum number of roots per worker */
/* maximum number of processes per search; the next search continues where this search ended */
#define WORKER_FINDER_PROCESSES 4096

struct worker_finder;

/* Borrows all arguments. Call pidfd_set_poll() before each scene. self: the pid of the calling
 * process, for workers that live in this process. Returns 0 or -GW_E_NOMEM. */
int worker_finder_new(const struct root *root, const struct classifier *c,
		      const struct policy *p, struct pidfd_set *pidfds, int64_t self,
		      struct worker_finder **ret);
void worker_finder_free(struct worker_finder *f);

/* True if both have the same name and the same match. */
bool worker_finder_same_match(const struct policy_worker *a, const struct policy_worker *b);

/* Copies the roots of `old`, and what `old` knows about pidfiles. Roots of a worker with the
 * same match stay roots; roots of a worker with another match become former roots. The old
 * policy must still exist. old may be NULL. */
void worker_finder_inherit(struct worker_finder *f, const struct worker_finder *old);

/* Adds a root that a worker had in an earlier run. While the process lives and no match finds
 * it, it is a former root. */
void worker_finder_recall(struct worker_finder *f, unsigned worker, struct proc_id id);

/* Adds the living roots and the former roots to a scene that already has its GPUs and
 * processes. appeared: a process is new on a GPU, so search for missing workers sooner. */
void worker_finder_add_roots(struct worker_finder *f, struct scene *s, bool appeared);

/* Returns how often /proc was searched. */
uint64_t worker_finder_searches(const struct worker_finder *f);

#endif
