/* tap: one GPU of a context, for a thread that samples it.
 *
 * A tap holds the GPU only while it asks it, and never the context's lock: GPUs are sampled
 * side by side, and snapshots are taken meanwhile.  A call that hangs hangs its thread alone.
 * A tap is used by one thread at a time; it borrows the context, which outlives it. */
#ifndef GW_DEVICE_TAP_H
#define GW_DEVICE_TAP_H

#include "backend.h"
#include "proc.h"

struct slot;

struct tap {
	struct gw_ctx *ctx;
	struct slot *slot;
	const struct clock *clock;
	unsigned opened;     /* of the backend, as of the last call: grows when the driver was
				opened anew, and then counters and limits may have begun anew */
	uint64_t refresh_ns; /* when the driver was last looked for */
};

/* Position as in a snapshot.  0 or -GW_E_NODEV. */
int tap_init(struct tap *t, struct gw_ctx *ctx, unsigned position);

/* Reads the tiers that are due, or, with force, all of them, and copies what is known.  A driver
 * that went away is looked for again, at most once a second. */
void tap_read(struct tap *t, unsigned tiers, bool force, struct report *ret);

/* A reading of the energy counter, asked for in any case: whoever calls keeps to the ceiling of
 * one a second. */
struct tap_counter {
	uint64_t before_ns, after_ns; /* monotonic, around the call */
	double joules;
	enum gw_absence why; /* GW_HAVE, or why there is none */
};
void tap_counter(struct tap *t, struct tap_counter *ret);

/* The driver's power ring, all of it, oldest first.  How many, or as backend_ops.power_samples. */
int tap_ring(struct tap *t, struct power_sample *out, unsigned cap);

/* Who is on it; l->count is set to 0 first and its memory used again.  As backend_ops.processes. */
enum gw_absence tap_processes(struct tap *t, struct usage_list *l, int *ret_error);

/* As backend_ops.process_use; -GW_E_NOSUPPORT where there is none. */
int tap_process_use(struct tap *t, uint64_t since_us, struct process_use *out, unsigned cap);

/* Start of a process, 0 when it is not known. */
uint64_t tap_start_ticks(const struct tap *t, int64_t pid);

/* Is pid the process `ancestor` or below it? */
bool tap_in_tree(const struct tap *t, int64_t pid, int64_t ancestor);

/* What the kernel calls it, cleaned for printing; "" when it is not known. */
void tap_process_name(const struct tap *t, int64_t pid, char *out, size_t size);

#endif
