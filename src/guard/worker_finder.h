/* look_worker: the processes that configured workers are known by, on a GPU or not.
 *
 * By pidfile, by who listens on a port, by unit, name and the like.  Finding one reads folders of
 * /proc; it is done rarely and within bounds, and what was found is kept while it lives. */
#ifndef GW_GUARD_WORKER_FINDER_H
#define GW_GUARD_WORKER_FINDER_H

#include "pidfd_set.h"
#include "classify.h"

#include "base/root.h"

#define WORKER_FINDER_ROOTS     4    /* of one worker */
#define WORKER_FINDER_PROCESSES 4096 /* looked at by one search; the next goes on from there */

struct worker_finder;

/* Borrows them all.  alive was asked before each look.  self: our own process, for workers that live in it.
 * 0 or -GW_E_NOMEM. */
int worker_finder_new(const struct root *root, const struct classifier *c,
		      const struct policy *p, struct pidfd_set *alive, int64_t self,
		      struct worker_finder **ret);
void worker_finder_free(struct worker_finder *f);

/* Is it the same worker in two policies, sought by the same? */
bool worker_finder_seeks_alike(const struct policy_worker *a, const struct policy_worker *b);

/* What the one before it knew of pidfiles, and whom it found: the roots of a worker that is sought by the same stay
 * roots; of another, who is not found again is told as a former root while it lives.
 * Its policy must still be there.  old may be NULL. */
void worker_finder_inherit(struct worker_finder *f, const struct worker_finder *old);

/* One that a worker was known by in an earlier run: told as a former root while it lives and is not found. */
void worker_finder_recall(struct worker_finder *f, unsigned worker, int64_t pid,
			  uint64_t start_ticks);

/* Adds the roots that live to s, former ones too, whose GPUs are there already.  news: somebody is on a GPU who was not at
 * the last look, so that it is worth asking for those that are missing. */
void worker_finder_take(struct worker_finder *f, struct scene *s, bool news);

/* Folders of /proc that were searched, for those who count. */
uint64_t worker_finder_searches(const struct worker_finder *f);

#endif
