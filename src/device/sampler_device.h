/* tap: one GPU of a context, for a thread that samples it.
 *
 * A tap holds the GPU only while it asks it, and never the context's lock: GPUs are sampled
 * side by side, and snapshots are taken meanwhile.  A call that hangs hangs its thread alone.
 * A tap is used by one thread at a time; it borrows the context, which outlives it. */
#ifndef GW_DEVICE_SAMPLER_DEVICE_H
#define GW_DEVICE_SAMPLER_DEVICE_H

#include "backend.h"
#include "proc.h"

struct slot;

struct sampler_device {
	struct gw_ctx *ctx;
	struct slot *slot;
	const struct clock *clock;
	unsigned opened;     /* of the backend, as of the last call: grows when the driver was
				opened anew, and then counters and limits may have begun anew */
	uint64_t refresh_ns; /* when the driver was last looked for */
};

/* Position as in a snapshot.  0 or -GW_E_NODEV. */
int sampler_device_init(struct sampler_device *t, struct gw_ctx *ctx, unsigned position);

/* Reads the tiers that are due, or, with force, all of them, and copies what is known.  A driver
 * that went away is looked for again, at most once a second. */
void sampler_device_read(struct sampler_device *t, unsigned tiers, bool force,
			 struct report *ret);

/* A reading of the energy counter, asked for in any case: whoever calls keeps to the ceiling of
 * one a second. */
struct sampler_device_counter {
	uint64_t before_ns, after_ns; /* monotonic, around the call */
	double joules;
	enum gw_absence why; /* GW_HAVE, or why there is none */
};
void sampler_device_counter(struct sampler_device *t, struct sampler_device_counter *ret);

/* The driver's power ring, all of it, oldest first.  How many, or as backend_ops.power_samples. */
int sampler_device_ring(struct sampler_device *t, struct power_sample *out, unsigned cap);

/* Who is on it; l->count is set to 0 first and its memory used again.  As backend_ops.processes. */
enum gw_absence sampler_device_processes(struct sampler_device *t, struct usage_list *l,
					 int *ret_error);

/* As backend_ops.process_use; -GW_E_NOSUPPORT where there is none. */
int sampler_device_process_use(struct sampler_device *t, uint64_t since_us,
			       struct process_use *out, unsigned cap);

/* Start of a process, 0 when it is not known. */
uint64_t sampler_device_start_ticks(const struct sampler_device *t, int64_t pid);

/* Is pid the process `ancestor` or below it? */
bool sampler_device_in_tree(const struct sampler_device *t, int64_t pid, int64_t ancestor);

/* What the kernel calls it, cleaned for printing; "" when it is not known. */
void sampler_device_process_name(const struct sampler_device *t, int64_t pid, char *out,
				 size_t size);

#endif
