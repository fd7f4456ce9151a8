/* host_memory: finds whether the host can hold a checkpoint (free memory for the copy) and
 * whether the checkpoint will be fast (pages of 2 MiB). Only reads /proc and /sys. */
#ifndef GW_GUARD_WORKER_HOST_MEMORY_H
#define GW_GUARD_WORKER_HOST_MEMORY_H

#include "guard/move_speed.h"

#include "base/proc_id.h"
#include "base/root.h"

/* Returns the mode of transparent_hugepage. */
enum host_pages host_memory_pages(const struct root *root);

/* Returns the free host memory in bytes that a checkpoint of this much GPU memory needs. */
double host_memory_need(uint64_t gpu_bytes);

/* Returns the host memory in bytes that a checkpoint of these processes can use: the available
 * memory of the machine, or less if their control groups have a lower limit. NAN: unknown. */
double host_memory_free(const struct root *root, const struct proc_id *id, unsigned n);

#endif
