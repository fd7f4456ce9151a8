/* sampler: asks one GPU when it is due, and makes events of what it says.
 *
 * It knows the cadences and nothing of windows: power samples from the driver's ring every 1.5 s
 * (or polled, where there is no ring), figures at the interval, the energy counter at edges and
 * anchors, never more than once a second, the throttle counters at edges.  All deadlines are
 * absolute, so that lateness does not add up.  One thread at a time; nothing is allocated after
 * the first process list of a size. */
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
	bool always;     /* figures at the interval even while nobody has a window open */
	bool anchored;   /* counter readings even then, and hardly any figures: a service's */
	bool describe;   /* at the first edge all else is read that a result tells of the GPU */
	int64_t own_pid; /* whose processes are not foreign */
	const char *cache_dir;
	const struct sensor *sensor; /* NULL: what is known of the card; borrowed for init */
};

struct sampler {
	struct sampler_device tap;
	struct sampler_options opt;
	struct energy_setup set; /* how power is sampled here; for the track */
	void (*emit)(void *arg, const struct event *e);
	void *arg;
	struct report r;
	_Atomic bool answers; /* the device did, last time; read by those who wait */
	bool broken;          /* its ring stopped answering */
	unsigned opened;
	bool polled;       /* no ring: the shape comes from reading a figure */
	unsigned quantity; /* which */
	uint64_t poll_ns;  /* and how often */
	uint64_t tick_ns, poll_due_ns, drain_ns, anchor_due_ns, who_ns; /* next due */
	uint64_t covered_ns;     /* a sample with this stamp covers the last edge ... */
	uint64_t drain_until_ns; /* ... and is there by then */
	bool active;             /* somebody has a window open */
	struct sampler_device_counter
		first;       /* reading of the energy counter, if init made one */
	uint64_t counter_ns; /* last reading of the energy counter; 0: none */
	bool owed;           /* one is to be made */
	uint64_t counted_ns; /* when it had answered */
	unsigned anchors;
	double given_hz;   /* application clock at the last edge or anchor; NAN: unknown */
	uint64_t given_ns; /* when it was read */
	/* Joining one fetch of the ring to the next. */
	struct power_sample ring[SAMPLER_RING];
	int fetched;         /* readings in it that were not looked at yet ... */
	uint64_t fetched_ns; /* ... of then */
	struct power_sample tail[SAMPLER_TAIL]; /* newest of what was taken, oldest first */
	unsigned tails;
	int64_t offset_ns; /* wall clock less monotonic clock, at the last drain */
	bool offset_known;
	uint64_t last_ns; /* of the newest sample, monotonic */
	uint64_t use_us;  /* stamp of the newest process utilisation */
	struct process_use use[SAMPLER_USES];
	int uses;
	uint64_t uses_ns; /* when they were told */
	struct usage_list usage;
	/* Its own cost. */
	_Atomic uint64_t ticks, missed; /* read for a progress line */
	uint64_t calls;
};

/* Looks at the device and decides how to measure it.  0 or -GW_E_NODEV. */
int sampler_init(struct sampler *s, struct gw_ctx *ctx, unsigned position,
		 const struct sampler_options *options,
		 void (*emit)(void *arg, const struct event *e), void *arg);
void sampler_done(struct sampler *s);

/* Does what is due and returns when to come again (monotonic ns).  active: a window is open. */
uint64_t sampler_step(struct sampler *s, bool active);

/* A window begins or ends now: reads what its edge needs.  end_ns: when it ended; then
 * somebody waits for the sample that covers it, which is looked for as soon as it can be there
 * (0: it began).  brief: it is over, and too short for a reading of the counter to tell anything. */
void sampler_edge(struct sampler *s, uint64_t end_ns, bool brief);

#endif
