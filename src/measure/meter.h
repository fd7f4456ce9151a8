/* meter: functions of struct gw_meter that gpuward.h does not have, for our own programs.
 *
 * Each GPU has one sampler, one window tracker and one thread. A tracker is used only under its
 * device's lock; drivers are called without the lock. */
#ifndef GW_MEASURE_METER_H
#define GW_MEASURE_METER_H

#include "event.h"
#include "sensor.h"
#include "window_tracker.h"

#include "base/clock.h"

#include <gpuward.h>

/* Receives every event on the thread that read it, in the order in which results are computed.
 * `device` is an index into the meter's devices. */
typedef void meter_event_fn(void *arg, unsigned device, const struct event *e);

struct meter_config {
	const struct gw_meter_options *options; /* NULL: defaults */
	/* Called once per device before its first event, with the way in which the device will
	 * be measured. `position` is the GPU's index in snapshots. May be NULL. */
	void (*on_setup)(void *arg, unsigned device, unsigned position,
			 const struct energy_setup *setup);
	meter_event_fn *on_event; /* may be NULL */
	/* Called with the result of a window, on the thread that waited for the window. May be
	 * NULL. */
	void (*on_result)(void *arg, unsigned device, unsigned id, const char *label,
			  const struct gw_energy *e);
	void *arg;
	bool always; /* Read the values at the interval even if no window is open. */
	/* For a service: even if no window is open, read the counter, but read the other values
	 * less often. */
	bool service;
	/* When the first window opens, read everything that a result reports about a GPU. */
	bool describe;
	/* For tests: use this sensor for every device. NULL: use the stored or assumed
	 * sensor. */
	const struct sensor *sensor;
};

/* Like gw_meter_start(), with more options. */
int meter_start(struct gw_ctx *ctx, const struct meter_config *config,
		struct gw_meter **ret_meter);

/* Sets the measured program: from now on, the process `pid` and its descendants are not
 * foreign. */
void meter_set_own_process(struct gw_meter *m, int64_t pid);

/* Sets further processes that are part of the measurement: from now on, these processes and
 * their descendants are not foreign. They replace the processes of the last call. `count` is at
 * most METER_SERVERS. */
void meter_set_servers(struct gw_meter *m, const int64_t *pid, unsigned count);

/* Sets whether a foreign process makes a window invalid, for all windows that end from now
 * on. */
void meter_set_exclusive(struct gw_meter *m, bool on);

/* Sets the idle power of a device without and with idle contexts, which is needed to divide
 * energy among processes; NAN: unknown. */
void meter_set_baseline(struct gw_meter *m, unsigned device, double no_context_w,
			double context_w);

struct gw_ctx *meter_context(const struct gw_meter *m);
const struct clock *meter_clock(const struct gw_meter *m);
/* Returns true if the meter was started with GW_METER_PROCESSES. */
bool meter_reads_processes(const struct gw_meter *m);

/* Waits until until_ns. The threads of the meter sample meanwhile. For a manual meter, this
 * call takes the readings that are due. */
void meter_wait(struct gw_meter *m, uint64_t until_ns);

/* Returns how device i is measured now. This can change: a missing counter is discovered at the
 * first reading. */
struct energy_setup meter_setup(const struct gw_meter *m, unsigned device);

/* What the meter has read so far, for a progress line. */
struct meter_progress {
	uint64_t samples, ticks; /* power samples, and ticks that were read */
	uint64_t missed;         /* ticks that were missed */
	double power_w;          /* latest power; NAN: unknown */
};
void meter_progress(struct gw_meter *m, unsigned device, struct meter_progress *ret);

/* Returns true if gw_window_wait() would return at once, because everything that it waits for
 * is available. Returns false while the window is open. Does not wait. Ignores GPUs that do not
 * answer. */
bool window_done(struct gw_window *w);

/* Makes gw_window_wait() return earlier if the window is shorter than the spacing of samples:
 * it then waits only for the sample nearest to the end of the window. Call it before
 * gw_window_close(). */
void window_hurry(struct gw_window *w);

/* window_evidence() writes the evidence for a code; window_processes() returns the energy per
 * process. Call them only after gw_window_wait(). `e` is the energy of the window, or of a part
 * of it. */
void window_evidence(const struct gw_window *w, unsigned device, const struct gw_energy *e,
		     unsigned code, char *out, size_t size);
const struct attribute *window_processes(const struct gw_window *w, unsigned device);

/* The activity on a device during a window, which may still be open. It shows whether the GPU
 * was idle. */
struct window_activity {
	double utilization_max; /* maximum of all readings; NAN: unknown */
	uint64_t reasons;       /* every bit of GW_Q_CLOCK_REASONS that occurred */
	/* pid of the first process, and of the first foreign process; 0: no such process */
	int64_t first, foreign;
	char first_name[32], foreign_name[32];
	bool hidden; /* there may be processes that we cannot see */
};
void window_activity(struct gw_window *w, unsigned device, struct window_activity *ret);

#endif
