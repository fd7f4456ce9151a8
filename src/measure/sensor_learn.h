/* sensor_learn: declarations that sensor_learn.c and sensor_active.c share. The first file
 * measures a sensor without a load, the second one with our own load.
 *
 * The recorder reads and stores all power sources of one GPU at absolute deadlines. Everything
 * is allocated at the start; if the memory is full, further values are dropped. Times are
 * seconds since recorder_init() on the device's monotonic clock. */
#ifndef GW_MEASURE_SENSOR_LEARN_H
#define GW_MEASURE_SENSOR_LEARN_H

#include "sensor_fit.h"

#include "device/sampler_device.h"

#define RECORDER_POINTS 16384u /* 82 s, even if every poll at RECORDER_POLL has a new value */
#define RECORDER_RING   256u   /* maximum number of entries of a ring buffer */
#define RECORDER_POLL   (5 * NS_PER_MS) /* default time between two polls */

/* The points of one power source. For `instant` and `average`: one point per new value, at the
 * time of the first reading that returned it. For `ring`: every sample, at its own time. */
struct recorder_trace {
	struct fit_point *p;
	unsigned n;
	double last_w; /* the last value */
};

struct recorder_cost { /* durations of one kind of driver call, in seconds */
	double *s;
	unsigned n;
};

struct recorder {
	struct sampler_device *device;
	const struct clock *clock;
	uint64_t zero_ns;          /* time of recorder_init() */
	unsigned average_quantity; /* the quantity of `average`; at first GW_Q_POWER */
	struct report r;           /* report of the last poll */
	struct recorder_trace instant, average, ring;
	struct recorder_cost poll_cost, ring_cost, counter_cost;
	struct power_sample ring_now[RECORDER_RING], ring_before[RECORDER_RING];
	unsigned ring_count; /* entries in ring_before, from the last read */
	int ring_error;      /* error of the last read of the ring buffer; 0: success */
	double ring_age_s;   /* age of the newest sample, if timestamps use the wall clock */
	uint64_t poll_ns;    /* time between two polls */
	uint64_t next_poll_ns, next_drain_ns;
	void *memory; /* the memory for all traces and costs */
};

static inline double recorder_s(const struct recorder *w, uint64_t mono_ns)
{
	return (double)(int64_t)(mono_ns - w->zero_ns) * 1e-9;
}

/* Clears the traces, but not the costs. */
void recorder_clear(struct recorder *w);

/* Takes all readings that are due until mono_ns. */
void recorder_until(struct recorder *w, uint64_t mono_ns);

/* Reads the ring buffer now. */
void recorder_drain(struct recorder *w);

/* Reads the counter. *ret_t_s is the time at the middle of the call. */
void recorder_counter(struct recorder *w, struct sampler_device_counter *ret, double *ret_t_s);

/* Returns the next deadline after at_ns, in steps of step_ns. Skips deadlines that were
 * missed. */
uint64_t recorder_next(uint64_t at_ns, uint64_t step_ns, uint64_t now_ns);

/* The data of one call of sensor_learn(). */
struct learn {
	struct recorder w;
	struct sensor s;
	const struct sensor_plan *plan;
	uint64_t begin_ns; /* when sensor_learn() was called */
	double expected_s; /* expected duration of sensor_learn() */
	char *message;     /* for a sentence about an error */
	size_t size;       /* size of message */
	double work[RECORDER_POINTS], work2[RECORDER_POINTS];
};

/* Reports the current activity and the completed share of the work to plan->progress(). */
void learn_progress(const struct learn *l, const char *what);

/* Computes the period of a polled source from its trace, if the trace has more changes than at
 * the last call. */
void learn_period(struct learn *l, const struct recorder_trace *t, struct sensor_source *s);

/* Approximate duration of sensor_active() in seconds. */
#define ACTIVE_S 62

/* Checks that no process is on the GPU, so that a load may be started. Returns 0, or
 * -GW_E_STATE or -GW_E_NOMEM with a sentence in l->message. */
int sensor_active_alone(struct learn *l);

/* Uses the plan's drive to correct model, window and lag of each source and the counter's lag,
 * and sets SENSOR_ACTIVE. Returns 0. Otherwise writes a sentence to l->message and returns
 * -GW_E_STATE (another process is on the GPU), -GW_E_NOMEM, -GW_E_LOST or the drive's error. */
int sensor_active(struct learn *l);

#endif
