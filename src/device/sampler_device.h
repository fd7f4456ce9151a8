/* sampler_device: one GPU of a context, for a thread that samples it.
 *
 * Each function uses the GPU exclusively, but only until the function returns, and does not
 * hold the context's lock during a driver call. So GPUs are sampled in parallel, and snapshots
 * can be taken meanwhile. A driver call that hangs blocks only its own thread. Only one thread
 * may use a sampler_device at a time; the context is borrowed and must outlive it. */
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
	/* Copy of backend.opened. It increases when the driver is opened again; counters and
	 * limits may have restarted then. */
	unsigned opened;
	uint64_t refresh_ns; /* when the driver was last searched for */
};

/* Initialises sd for the GPU at this position of a snapshot. Returns 0 or -GW_E_NODEV. */
int sampler_device_init(struct sampler_device *sd, struct gw_ctx *ctx, unsigned position);

/* Reads the tiers that are due or, with force, all of them, and copies the known values. At
 * most once per second, searches for a driver that went away. */
void sampler_device_read(struct sampler_device *sd, unsigned tiers, bool force,
			 struct report *ret);

/* sampler_device_counter() reads the energy counter now. The caller must not call it more than
 * once per second. */
struct sampler_device_counter {
	uint64_t before_ns, after_ns; /* monotonic, before and after the call */
	double joules;
	enum gw_absence why; /* GW_HAVE, or why there is no value */
};
void sampler_device_counter(struct sampler_device *sd, struct sampler_device_counter *ret);

/* Reads the driver's whole power ring buffer, oldest entry first. Returns the same as
 * backend_ops.power_samples. */
int sampler_device_ring(struct sampler_device *sd, struct power_sample *out, unsigned cap);

/* Lists the processes on the GPU. Sets l->count to 0 first and reuses the memory of l. Returns
 * the same as backend_ops.processes. */
enum gw_absence sampler_device_processes(struct sampler_device *sd, struct usage_list *l,
					 int *ret_error);

/* Calls backend_ops.process_use; returns -GW_E_NOSUPPORT if the backend does not have it. */
int sampler_device_process_use(struct sampler_device *sd, uint64_t since_us,
			       struct process_use *out, unsigned cap);

/* Returns the pid with the start time of the process. The start time is 0 if it is unknown. */
struct proc_id sampler_device_proc_id(const struct sampler_device *sd, int64_t pid);

/* True if pid is the process `ancestor` or one of its descendants. */
bool sampler_device_in_tree(const struct sampler_device *sd, int64_t pid, int64_t ancestor);

/* Writes the kernel's name of the process, cleaned for printing; "" if unknown. */
void sampler_device_process_name(const struct sampler_device *sd, int64_t pid, char *out,
				 size_t size);

#endif
