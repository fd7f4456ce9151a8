/* checkpoint: unmodified CUDA processes put away into host memory and brought back, by the driver.
 *
 * libcuda.so.1 is loaded when it is first used.  What fails half way is undone at once, for a process that
 * stays locked hangs.  Whether it can go well at all (persistence mode, host memory, ...) is asked before,
 * by the adapter in checkpoint.c.  Needs root where the process is another user's: the companion calls the
 * same functions. */
#ifndef GW_GUARD_WORKER_CHECKPOINT_H
#define GW_GUARD_WORKER_CHECKPOINT_H

#include "base/root.h"

#include <stddef.h>
#include <stdint.h>

struct checkpoint_target {
	int64_t pid;
	uint64_t start_ticks; /* of the process that was put away; another is never touched */
};

/* Can the driver do it at all?  0, or -GW_E_NOSUPPORT with a sentence. */
int checkpoint_usable(char *message, size_t size);

/* Puts all of them away, or none.  All are locked before the first is put away; the deadline is for their
 * locks alone, and what has begun is never cut short.  0; -GW_E_STATE (one has ended, or is somebody
 * else's to unlock), -GW_E_PERM, -GW_E_NOSUPPORT, -GW_E_TIMEOUT, -GW_E_IO; with a sentence. */
int checkpoint_put_away(const struct root *root, const struct checkpoint_target *t, unsigned n,
			uint64_t deadline_ns, char *message, size_t size);

/* Brings back all that are put away or locked: also after a crash of ours.  Those who have ended, or who
 * run already, are passed over.  0, or the first failure with a sentence; the rest is tried all the
 * same.  Takes as long as it takes. */
int checkpoint_restore(const struct root *root, const struct checkpoint_target *t, unsigned n,
		       char *message, size_t size);

#endif
