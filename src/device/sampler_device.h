/* sampler_device: one GPU of a context, for a thread that samples it.
 *
 * It holds the GPU only during a call, and never the context's lock: GPUs are sampled in
 * parallel, and snapshots can be taken meanwhile. A call that hangs blocks only its own thread.
 * One thread uses it at a time; the context is borrowed and outlives it. */
#ifndef GW_DEVICE_SAMPLER_DEVICE_H
#define GW_DEVICE_SAMPLER_DEVICE_H

#include "backend.h"
#include "proc.h"

#include "base/proc_id.h"

struct slot;

struct sampler_device {
	struct gw_ctx *ctx;
	struct slot *slot;
	const struct clock *clock;
	/* Copy of backend.opened. It grows when the driver was opened again; counters and limits
	 * may have restarted then. */
	unsigned opened;
	uint64_t refresh_ns; /* when the driver was last searched for */
};

/* Position as in a snapshot. Returns 0 or -GW_E_NODEV. */
int sampler_device_init(struct sampler_device *sd, struct gw_ctx *ctx, unsigned position);

/* Reads the tiers that are due or, with force, all of them, and copies the known values.
 * Searches for a driver that went away at most once per second. */
void sampler_device_read(struct sampler_device *sd, unsigned tiers, bool force,
			 struct report *ret);

/* Reads the energy counter now. The caller must not read it more than once per second. */
struct sampler_device_counter {
	uint64_t before_ns, after_ns; /* monotonic, before and after the call */
	double joules;
	enum gw_absence why; /* GW_HAVE, or why there is no value */
};
void sampler_device_counter(struct sampler_device *sd, struct sampler_device_counter *ret);

/* Reads the driver's whole power ring buffer, oldest first. Returns as
 * backend_ops.power_samples. */
int sampler_device_ring(struct sampler_device *sd, struct power_sample *out, unsigned cap);

/* Lists its processes; l->count is set to 0 first and its memory is reused. Returns as
 * backend_ops.processes. */
enum gw_absence sampler_device_processes(struct sampler_device *sd, struct usage_list *l,
					 int *ret_error);

/* As backend_ops.process_use; -GW_E_NOSUPPORT if there is none. */
int sampler_device_process_use(struct sampler_device *sd, uint64_t since_us,
			       struct process_use *out, unsigned cap);

/* Adds the start time to a pid, 0 if unknown. */
struct proc_id sampler_device_proc_id(const struct sampler_device *sd, int64_t pid);

/* Is pid the process `ancestor` or one of its descendants? */
bool sampler_device_in_tree(const struct sampler_device *sd, int64_t pid, int64_t ancestor);

/* The kernel's name for it, cleaned for printing; "" if unknown. */
void sampler_device_process_name(const struct sampler_device *sd, int64_t pid, char *out,
				 size_t size);

#endif
