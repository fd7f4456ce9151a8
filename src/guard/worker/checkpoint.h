/* checkpoint: makes the driver move the GPU memory of a CUDA process into host memory, and
 * back. The program need not help.
 *
 * libcuda.so.1 is loaded at the first use. A checkpoint that fails half way is undone at once,
 * because a process that stays locked hangs. The adapter in checkpoint.c first checks whether a
 * checkpoint can succeed (persistence mode, host memory, ...). A process of another user needs
 * root: the companion calls the same functions. */
#ifndef GW_GUARD_WORKER_CHECKPOINT_H
#define GW_GUARD_WORKER_CHECKPOINT_H

#include "guard/worker_stats.h"

#include "base/proc_id.h"
#include "base/root.h"

#include <stddef.h>
#include <stdint.h>

/* Returns 0 if the driver can checkpoint, or -GW_E_NOSUPPORT with a sentence. */
int checkpoint_usable(char *message, size_t size);

/* Checkpoints all n processes or none. A process with a start time that differs from its
 * proc_id is never touched. All processes are locked before the first is checkpointed; then up
 * to eight are checkpointed at the same time. The deadline limits only the locking: a
 * checkpoint that has begun is never interrupted. Returns 0; -GW_E_STATE (a process has ended,
 * or another program locked it), -GW_E_PERM, -GW_E_NOSUPPORT, -GW_E_TIMEOUT or -GW_E_IO, with a
 * sentence. */
int checkpoint_create(const struct root *root, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size);

/* Restores all processes that are checkpointed or locked, also after a crash of this program.
 * Up to eight are restored at the same time. Skips processes that have ended or already run.
 * Tries all processes, and returns 0 or the first failure with a sentence. There is no
 * deadline. */
int checkpoint_restore(const struct root *root, const struct proc_id *id, unsigned n,
		       char *message, size_t size);

/* The functions below read /proc and /sys to find whether host memory can hold a checkpoint,
 * and whether the checkpoint will be fast. */

/* Returns the mode of transparent_hugepage. */
enum host_pages host_memory_pages(const struct root *root);
/* Returns the mode of this machine, even if the GPUs are simulated, because workers are
 * processes of this machine. */
enum host_pages host_memory_pages_now(void);

/* Returns the free host memory in bytes that a checkpoint of this much GPU memory needs. */
double host_memory_need(uint64_t gpu_bytes);

/* Returns the host memory in bytes that a checkpoint of these processes can use: the available
 * memory of the machine, or less if their control groups have a lower limit. NAN: unknown. */
double host_memory_free(const struct root *root, const struct proc_id *id, unsigned n);

#endif
