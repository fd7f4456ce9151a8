/* checkpoint: an unmodified CUDA process put away into host memory and brought back.
 *
 * libcuda.so.1 is loaded when it is first used.  What cannot go well is refused before anything is
 * touched; what fails half way is undone at once, for a process that stays locked hangs. */
#ifndef GW_GUARD_WORKER_CHECKPOINT_H
#define GW_GUARD_WORKER_CHECKPOINT_H

#include "base/root.h"

#include <stddef.h>
#include <stdint.h>

struct checkpoint_target {
	int64_t pid;
	uint64_t start_ticks; /* of the process that was put away; another is never touched */
};

/* Brings back all that are put away or locked: also after a crash of ours.  Those who have ended, or who
 * run already, are passed over.  0, or the first failure with a sentence; the rest is tried all the
 * same.  Takes as long as it takes. */
int checkpoint_restore(const struct root *root, const struct checkpoint_target *t, unsigned n,
		       char *message, size_t size);

#endif
