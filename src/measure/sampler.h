/* sampler: reads one GPU when a reading is due and emits events.
 *
 * It knows the cadences but no windows: the driver's power ring buffer every 1.5 s (or a polled
 * value, if there is no ring), other values at the interval, the energy counter at edges and
 * anchors but at most once per second, and the throttle counters at edges. All deadlines are
 * absolute, so delays do not add up. One thread uses it at a time; after the first process list
 * of a size nothing is allocated. */
#ifndef GW_MEASURE_SAMPLER_H
#define GW_MEASURE_SAMPLER_H

#include "energy.h"
#include "event.h"

#include "device/sampler_device.h"

#define SAMPLER_RING 256
#define SAMPLER_TAIL 8
#define SAMPLER_USES 64

struct sampler_options {
	uint64_t interval_ns, anchor_ns;
	bool processes;
	bool always;  /* read values at the interval even if no window is open */
	bool service; /* for a service: read the counter even then, but few other values */
	/* at the first edge read everything that a result reports about the GPU */
	bool describe;
	int64_t own_pid; /* processes below this one are not foreign */
	const char *cache_dir;
	/* NULL: use what is known about the card; borrowed during init */
	const struct sensor *sensor;
};

struct sampler {
	struct sampler_device device;
	struct sampler_options opt;
	struct energy_setup setup; /* how power is sampled here; for the window tracker */
	void (*emit)(void *arg, const struct event *e);
	void *arg;
	struct report r;
	_Atomic bool answers; /* the device answered the last read; waiting threads read it */
	bool broken;          /* its ring stopped answering */
	unsigned opened;
	bool polled;       /* no ring: power comes from polling a quantity */
	unsigned quantity; /* the polled quantity */
	uint64_t poll_ns;  /* the polling period */
	uint64_t tick_ns, poll_due_ns, drain_ns, anchor_due_ns,
		processes_ns;    /* next due times */
	uint64_t covered_ns;     /* a sample with this timestamp covers the last edge ... */
	uint64_t drain_until_ns; /* ... and is available by this time */
	bool active;             /* a window is open */
	struct sampler_device_counter first; /* reading of the energy counter by init, if any */
	uint64_t counter_ns;                 /* last reading of the energy counter; 0: none */
	bool counter_due;                    /* a counter reading is due */
	uint64_t counted_ns;                 /* when that reading returned */
	unsigned anchors;
	double application_hz; /* application clock at the last edge or anchor; NAN: unknown */
	uint64_t application_ns; /* when it was read */
	/* Joins one read of the ring to the next. */
	struct power_sample ring[SAMPLER_RING];
	int fetched;         /* entries in it that are not processed yet ... */
	uint64_t fetched_ns; /* ... and when they were read */
	/* the newest processed entries, oldest first */
	struct power_sample tail[SAMPLER_TAIL];
	unsigned tail_count;
	int64_t offset_ns; /* wall clock minus monotonic clock at the last drain */
	bool offset_known;
	uint64_t last_ns; /* time of the newest sample, monotonic */
	uint64_t use_us;  /* timestamp of the newest process utilisation */
	struct process_use use[SAMPLER_USES];
	int use_count;
	uint64_t use_ns; /* when they were read */
	struct usage_list usage;
	/* Its own cost. */
	_Atomic uint64_t ticks, missed; /* read by a progress line */
	uint64_t calls;
};

/* Reads the device and decides how to measure it. Returns 0 or -GW_E_NODEV. */
int sampler_init(struct sampler *s, struct gw_ctx *ctx, unsigned position,
		 const struct sampler_options *options,
		 void (*emit)(void *arg, const struct event *e), void *arg);
void sampler_done(struct sampler *s);

/* Does what is due and returns the next due time (monotonic ns). active: a window is open. */
uint64_t sampler_step(struct sampler *s, bool active);

/* A window begins (end_ns 0) or ended at end_ns: reads what the edge needs. After an end,
 * someone waits for the sample that covers it, so it is fetched as soon as it can be available.
 * brief: the window is over and too short for a counter reading to help. */
void sampler_edge(struct sampler *s, uint64_t end_ns, bool brief);

#endif
