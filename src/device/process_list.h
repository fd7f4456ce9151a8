/* process_list: lists the processes on each GPU as the driver reports them, the memory in use,
 * and the utilisation per process. It does not read /proc.
 *
 * On an H200 that is read ten times per second, a list costs 250 us, and the memory in use
 * alone only 70 us. A process that starts or ends changes the memory in use. So the previous
 * list is used again for at most half a second, as long as exactly the same number of bytes is
 * in use. Calls run on the call threads of the context. */
#ifndef GW_DEVICE_PROCESS_LIST_H
#define GW_DEVICE_PROCESS_LIST_H

#include "backend.h"

struct gpu_usage {
	unsigned device; /* position of the GPU in snapshots */
	bool hung; /* A call on the GPU has not returned. `report` and the lists are not set. */
	enum gw_absence why;           /* GW_HAVE, or why there is no list */
	bool partial;                  /* The list is incomplete. */
	unsigned generation;           /* increases when GPUs may have been added or removed */
	const struct report *report;   /* known values of the GPU */
	const struct usage *usage;     /* the processes */
	unsigned count;                /* number of processes */
	const struct process_use *use; /* utilisation per process */
	/* Number of rows in `use`, or an error of backend_ops.process_use. -GW_E_STATE: the
	 * utilisation was not requested. */
	int uses;
};

enum gpu_usage_flag {
	/* First read the memory in use of each GPU, and read its process list only if that
	 * memory has changed. */
	GPU_USAGE_MEMORY = 1,
	GPU_USAGE_LISTS = 2 /* Read the process lists even if the memory has not changed. */
};

/* Queries every GPU and passes each result to fn. fn copies what it needs and must not call
 * functions of the context, because the lock of the context is held. flags is a set of enum
 * gpu_usage_flag; without GPU_USAGE_MEMORY, the process lists are always read. If since_us is
 * not 0, also reads the utilisation since then (driver timestamps, wall clock). Returns 0 or
 * -GW_E_NOMEM. */
int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *u), void *arg);

/* Makes `list` compute CPU use since `other` was last taken (gw_process_list_take()), for a
 * caller that takes two lists in turn. `other` must outlive `list` and must not be taken at the
 * same time as `list`. */
void process_list_follow(struct gw_process_list *list, const struct gw_process_list *other);

#endif
