/* census: who the driver says is on each GPU, how much memory is in use, and how busy each keeps it; /proc
 * is not asked.
 *
 * Lists are dear: at ten a second on an H200 250 us, memory 70.  Nobody comes to a GPU or leaves it without
 * memory in use changing (it is told to the byte, and stood still over minutes with three idle processes):
 * while it does not, the list is the one of the last time, for at most half a second.
 *
 * For whoever asks ten times a second and remembers the processes.  Calls run on the lanes of the
 * context: a GPU that hangs holds nobody up longer than the deadline. */
#ifndef GW_DEVICE_GPU_USAGE_H
#define GW_DEVICE_GPU_USAGE_H

#include "backend.h"

struct gpu_usage {
	unsigned device; /* position as in a snapshot */
	bool stalled;    /* its call has not returned: nothing else is said */
	enum gw_absence why;
	bool partial;                /* of the list */
	unsigned generation;         /* of the context: grows when GPUs may have come or gone */
	const struct report *report; /* what is known of it; not while it is stalled */
	const struct usage *usage;
	unsigned count;
	const struct process_use *use;
	int uses; /* how many, or why not: as backend_ops.process_use; -GW_E_STATE: not asked */
};

enum gpu_usage_flag {
	GPU_USAGE_MEMORY = 1, /* is read first, of each GPU that answers, into its report */
	GPU_USAGE_LISTS = 2   /* are asked for even where memory says that nothing changed */
};

/* Asks every GPU and hands each answer to fn, which copies what it wants and asks nothing of the
 * context: its lock is held.  flags: set of enum gpu_usage_flag; without memory lists are always asked for.
 * since_us: utilisation since then is asked for too (driver stamps, wall clock); 0: it is not.  0 or
 * -GW_E_NOMEM. */
int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *c), void *arg);

#endif
