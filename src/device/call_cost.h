/* cost: what each call of NVIDIA's library costs us.
 *
 * Counts, codes and times of every call that the NVML backend makes, since the context was opened:
 * they outlive a driver that is opened again.  Whoever calls adds with relaxed atomics and two
 * readings of the clock; whoever asks takes no lock, so that the figures can be had while a call
 * hangs.  Waiting for driver events is no call in this sense: it is meant to take long. */
#ifndef GW_DEVICE_CALL_COST_H
#define GW_DEVICE_CALL_COST_H

#include <gpuward.h>

#include <stdatomic.h>
#include <stdint.h>

#define CALL_COST_CALLS 128
#define CALL_COST_CODES 32 /* NVML's codes 0 to 30; the last row is any other */

struct call_cost {
	const char *name; /* of the symbol: "nvmlDeviceGetPowerUsage"; lives for ever */
	uint64_t count;   /* calls that returned */
	uint64_t errors;  /* of these, with another code than success */
	uint64_t total_ns, max_ns;
	uint32_t
		code[CALL_COST_CODES]; /* how often each error was returned; [0]: not counted */
};

/* Calls that were made at least once, in the order of the backend's table; at most max.  ctx NULL:
 * none.  From any thread, without the context's lock, as long as ctx is open.  Returns how many. */
unsigned call_cost_list(struct gw_ctx *ctx, struct call_cost *out, unsigned max);

/* "GPU_IS_LOST"; "UNKNOWN" for the last and past the end. */
const char *call_cost_code_name(unsigned code);

/* ---- for the backend ---- */

struct call_cost_row {
	_Atomic uint64_t count, total_ns, max_ns;
	_Atomic uint32_t code[CALL_COST_CODES];
};

struct call_cost_table {
	struct call_cost_row row[CALL_COST_CALLS];
};

/* The machine's monotonic clock, whatever clock the context was given: a call takes real time. */
uint64_t call_cost_now_ns(void);

/* A call that began at began_ns returned now.  c NULL: nobody counts. */
void call_cost_add(struct call_cost_table *c, unsigned call, int code, uint64_t began_ns);

#endif
