/* driver_call: the threads on which calls of a driver run (call_thread), and what the calls
 * cost (call_cost). */
#ifndef GW_DEVICE_DRIVER_CALL_H
#define GW_DEVICE_DRIVER_CALL_H

#include <gpuward.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A call thread runs one call at a time for a caller that must not wait forever. A vendor's
 * call can hang and cannot be killed. The caller gets the result or, if the deadline passes
 * first, the answer that the call still runs. In that case the thread stays busy until the call
 * returns. Until then it accepts no other call, and no second thread is started. */

struct call_thread;

/* Starts the thread, with all signals blocked and a small stack. Returns NULL if there is no
 * memory or no thread left. */
struct call_thread *call_thread_new(void);

/* Makes the thread call fn(arg). arg belongs to the thread until the thread is idle again.
 * Returns false if the thread is still busy. */
bool call_thread_post(struct call_thread *l, void (*fn)(void *arg), void *arg);

/* Waits until the thread is idle, at most until deadline_ns (CLOCK_MONOTONIC). Returns true if
 * the thread is idle. */
bool call_thread_wait(struct call_thread *l, uint64_t deadline_ns);

/* Ends an idle thread and returns true. Returns false if the thread is busy: the thread then
 * keeps running and still uses what arg points to, so do not free that. */
bool call_thread_free(struct call_thread *l);

/* The context counts calls, return codes and times of every NVML call since the context was
 * opened. The counts continue when the driver is opened again. The thread that makes a call
 * adds the cost of the call with relaxed atomics and one or two clock readings. Readers take no
 * lock, so the figures are available even while a call hangs. Waiting for driver events is not
 * counted, because it is meant to take long. */

#define CALL_COST_CALLS 128
#define CALL_COST_CODES 32 /* NVML's codes 0 to 30; the last element is for all other codes */

struct call_cost {
	/* Symbol of the call, such as "nvmlDeviceGetPowerUsage". A static string. */
	const char *name;
	uint64_t count;  /* calls that returned */
	uint64_t errors; /* calls that returned an error */
	uint64_t total_ns, max_ns;
	/* How often each code was returned. Element 0 (success) is not counted. */
	uint32_t code[CALL_COST_CODES];
};

/* Lists at most max calls that were made at least once, in the order of the backend's table.
 * Returns their number; 0 if ctx is NULL. Needs no lock and may be called from any thread while
 * ctx is open. */
unsigned call_cost_list(struct gw_ctx *ctx, struct call_cost *out, unsigned max);

/* Returns the name of a code, such as "GPU_IS_LOST"; "UNKNOWN" from CALL_COST_CODES - 1 on. */
const char *call_cost_code_name(unsigned code);

struct call_cost_row {
	_Atomic uint64_t count, total_ns, max_ns;
	_Atomic uint32_t code[CALL_COST_CODES];
};

struct call_cost_table {
	struct call_cost_row row[CALL_COST_CALLS];
};

/* Returns the real monotonic time, even if the context uses another clock, because a call takes
 * real time. */
uint64_t call_cost_now_ns(void);

/* Records that a call that began at began_ns returned now. If c is NULL, records nothing.
 * Returns the present time. */
uint64_t call_cost_add(struct call_cost_table *c, unsigned call, int code, uint64_t began_ns);

#endif
