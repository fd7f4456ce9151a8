/* call_cost: what each call of NVIDIA's library costs.
 *
 * Counts, return codes and times of every NVML call since the context was opened; they survive
 * a reopened driver. The caller adds with relaxed atomics and two clock readings; readers take
 * no lock, so the figures are available while a call hangs. Waiting for driver events is not
 * counted, because it is meant to take long. */
#ifndef GW_DEVICE_CALL_COST_H
#define GW_DEVICE_CALL_COST_H

#include <gpuward.h>

#include <stdatomic.h>
#include <stdint.h>

#define CALL_COST_CALLS 128
#define CALL_COST_CODES 32 /* NVML's codes 0 to 30; the last row is for all others */

struct call_cost {
	const char *name; /* name of the symbol: "nvmlDeviceGetPowerUsage"; static */
	uint64_t count;   /* calls that returned */
	uint64_t errors;  /* those that did not return success */
	uint64_t total_ns, max_ns;
	uint32_t code
		[CALL_COST_CODES]; /* how often each error was returned; [0] is not counted */
};

/* Lists the calls that were made at least once, in the order of the backend's table, at most
 * max. ctx NULL: none. Needs no lock and may be called from any thread while ctx is open.
 * Returns the number. */
unsigned call_cost_list(struct gw_ctx *ctx, struct call_cost *out, unsigned max);

/* "GPU_IS_LOST"; "UNKNOWN" for the last code and beyond. */
const char *call_cost_code_name(unsigned code);

struct call_cost_row {
	_Atomic uint64_t count, total_ns, max_ns;
	_Atomic uint32_t code[CALL_COST_CODES];
};

struct call_cost_table {
	struct call_cost_row row[CALL_COST_CALLS];
};

/* The real monotonic clock, even if the context has another: a call takes real time. */
uint64_t call_cost_now_ns(void);

/* Records that a call that began at began_ns returned now. c NULL: does nothing. */
void call_cost_add(struct call_cost_table *c, unsigned call, int code, uint64_t began_ns);

#endif
