/* checkpoint: the driver moves the GPU memory of an unmodified CUDA process into host memory,
 * and back.
 *
 * libcuda.so.1 is loaded at the first use.  What fails half way is undone at once, because a
 * process that stays locked hangs.  The adapter in checkpoint.c checks first whether it can
 * succeed (persistence mode, host memory, ...).  The process of another user needs root: the
 * companion calls the same functions. */
#ifndef GW_GUARD_WORKER_CHECKPOINT_H
#define GW_GUARD_WORKER_CHECKPOINT_H

#include "base/proc_id.h"
#include "base/root.h"

#include <stddef.h>
#include <stdint.h>

/* Can the driver do it at all?  0, or -GW_E_NOSUPPORT with a sentence. */
int checkpoint_usable(char *message, size_t size);

/* Checkpoints all n processes or none; a process with another start time is never touched.  All
 * are locked before the first is checkpointed.  The deadline limits the locking only: a
 * checkpoint that has begun is never interrupted.  0; -GW_E_STATE (a process has ended, or
 * someone else locked it), -GW_E_PERM, -GW_E_NOSUPPORT, -GW_E_TIMEOUT, -GW_E_IO; with a
 * sentence. */
int checkpoint_create(const struct root *root, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size);

/* Restores all that are checkpointed or locked, also after our own crash.  Processes that have
 * ended or already run are skipped.  0, or the first failure with a sentence, after all were
 * tried.  It has no deadline. */
int checkpoint_restore(const struct root *root, const struct proc_id *id, unsigned n,
		       char *message, size_t size);

#endif
