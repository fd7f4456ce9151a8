/* meter: the inside of struct gw_meter, for the program's own commands.
 *
 * One sampler and one track for each GPU, one thread for each pair.  A track is touched under its
 * device's lock only; drivers are asked outside of it. */
#ifndef GW_MEASURE_METER_H
#define GW_MEASURE_METER_H

#include "event.h"
#include "sensor.h"
#include "window_tracker.h"

#include "base/clock.h"

#include <gpuward.h>

/* Everything that is read, as it is read, on the thread that read it, in the order in which
 * results are made of it.  `device` counts the meter's devices. */
typedef void meter_listener(void *arg, unsigned device, const struct event *e);

struct meter_config {
	const struct gw_meter_options *options; /* NULL: defaults */
	/* How each device will be measured, before its first event; position as in snapshots.  NULL:
	 * nobody asks. */
	void (*about)(void *arg, unsigned device, unsigned position,
		      const struct energy_setup *setup);
	meter_listener *listen; /* NULL: nobody */
	/* What a window gave, when it was waited for, on the thread that did; NULL: nobody asks. */
	void (*result)(void *arg, unsigned device, unsigned id, const char *label,
		       const struct gw_energy *e);
	void *arg;
	bool always;   /* figures at the interval even without a window */
	bool anchored; /* counter readings even without one, hardly any figures */
	bool describe; /* the first window's beginning has all read that a result tells of a GPU */
	const struct sensor *sensor; /* of every device, in place of what is known; for tests */
};

/* gw_meter_start with more to say. */
int meter_start(struct gw_ctx *ctx, const struct meter_config *config,
		struct gw_meter **ret_meter);

/* Whose processes are not foreign from now on: this one and those below it. */
void meter_own(struct gw_meter *m, int64_t pid);

/* Somebody else on a GPU makes windows that end from now on invalid. */
void meter_exclusive(struct gw_meter *m, bool on);

/* Baselines for sharing energy out among processes; NAN: unknown. */
void meter_baseline(struct gw_meter *m, unsigned device, double no_context_w, double context_w);

/* Whose GPUs it measures, and its time. */
struct gw_ctx *meter_context(const struct gw_meter *m);
const struct clock *meter_clock(const struct gw_meter *m);

/* Lets time pass until then: sleeps while the threads work, or, without threads, does what is due
 * and moves the clock on. */
void meter_wait(struct gw_meter *m, uint64_t until_ns);

/* How device i is measured, as of now: a counter that is not there is found out at its first reading. */
struct energy_setup meter_setup(const struct gw_meter *m, unsigned device);

/* Samples so far: for a progress line. */
struct meter_progress {
	uint64_t samples, ticks, missed;
	double power_w; /* latest, NAN unknown */
};
void meter_progress(struct gw_meter *m, unsigned device, struct meter_progress *ret);

/* Is all there that gw_window_wait() would wait for?  Takes no time.  A GPU that does not answer is
 * waited for by nobody.  False while the window is open. */
bool window_done(struct gw_window *w);

/* Before it is closed: somebody waits for it.  If it is shorter than the spacing of samples, the one that is
 * nearest to its end is enough. */
void window_hurry(struct gw_window *w);

/* Its number among the meter's windows, as events have it. */
unsigned window_id(const struct gw_window *w);

/* Evidence for a code, and who took what, of a window that was waited for.  e: its energy, or that
 * of a part of it, whose figures are then told. */
void window_evidence(const struct gw_window *w, unsigned device, const struct gw_energy *e,
		     unsigned code, char *out, size_t size);
const struct attribute *window_processes(const struct gw_window *w, unsigned device);

/* What was ever seen on device i in this window, open or not: was it idle? */
struct window_activity {
	double utilization_max; /* of any tick; NAN: not told           */
	uint64_t reasons;       /* every bit of GW_Q_CLOCK_REASONS      */
	int64_t any, foreign;   /* first pid of anybody, of a stranger; 0: none */
	char any_name[32], foreign_name[32];
	bool hidden; /* there may be others that cannot be seen */
};
void window_activity(struct gw_window *w, unsigned device, struct window_activity *ret);

/* Is a foreign process known to be on device i in this (open) window?  Its pid, or 0. */
int64_t window_foreign(struct gw_window *w, unsigned device);

#endif
