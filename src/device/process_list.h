/* process_list: lists the processes on each GPU as the driver reports them, the memory in use,
 * and the utilisation per process; does not read /proc.
 *
 * A list costs 250 us on an H200 at ten per second, the memory alone only 70 us. A process that
 * arrives or leaves changes the memory in use, so the previous list is reused while that memory
 * stays equal to the byte, for at most half a second. Calls run on the call threads
 * of the context. */
#ifndef GW_DEVICE_PROCESS_LIST_H
#define GW_DEVICE_PROCESS_LIST_H

#include "backend.h"

struct gpu_usage {
	unsigned device; /* position of the GPU in snapshots */
	bool stalled;    /* a call on the GPU has not returned: the other members are not set */
	enum gw_absence why;
	bool partial; /* the list is incomplete */
	/* generation of the context: increases when GPUs may have come or gone */
	unsigned generation;
	const struct report *report; /* known values of the GPU; not set if stalled */
	const struct usage *usage;
	unsigned count;
	const struct process_use *use;
	/* rows in `use`, or an error of backend_ops.process_use; -GW_E_STATE: not requested */
	int uses;
};

enum gpu_usage_flag {
	/* first read the memory in use of each GPU, and read its process list only if that has
	 * changed */
	GPU_USAGE_MEMORY = 1,
	GPU_USAGE_LISTS = 2 /* read the process lists even if the memory shows no change */
};

/* Queries every GPU and passes each result to fn. fn copies what it needs and must not call
 * functions of the context, because the lock of the context is held. flags is a set of enum
 * gpu_usage_flag; without GPU_USAGE_MEMORY, the process lists are always read. If since_us is
 * not 0, also reads the utilisation since then (driver timestamps, wall clock). Returns 0 or
 * -GW_E_NOMEM. */
int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *u), void *arg);

/* Makes `list` compute CPU use since the last take of `other`, for a caller that takes two
 * lists in turn. `other` must outlive `list` and must not be taken at the same time as
 * `list`. */
void process_list_follow(struct gw_process_list *list, const struct gw_process_list *other);

#endif
