/* sampler: reads one GPU when a reading is due and emits events; it does not know windows.
 *
 * A boundary is the start or the end of a
 * window; an anchor is a regular counter reading, every anchor_ns. The sampler reads:
 * - the driver's power ring buffer every 1.5 s, or a polled value if there is no ring buffer
 * - other values at the interval
 * - the energy counter at boundaries and anchors, at most once per second
 * - the throttle counters at boundaries
 * All deadlines are absolute, so delays do not add up. */
#ifndef GW_MEASURE_SAMPLER_H
#define GW_MEASURE_SAMPLER_H

#include "energy.h"
#include "event.h"

#include "device/sampler_device.h"

#define SAMPLER_RING 256 /* maximum number of entries of the ring buffer */
#define SAMPLER_TAIL 8
#define SAMPLER_USES 64 /* maximum number of rows of utilisation */

struct sampler_options {
	uint64_t interval_ns; /* time between two ticks */
	uint64_t anchor_ns;   /* time between two anchors */
	bool processes;       /* list the processes */
	bool always;          /* read values at the interval even if no window is open */
	/* for a service: read the counter even without a window, but fewer other values */
	bool service;
	/* when the first window begins, read everything that a result reports about the GPU */
	bool describe;
	int64_t own_pid; /* this process and its descendants are not foreign */
	/* these processes and their descendants are not foreign either; 0: none */
	int64_t server_pid[METER_SERVERS];
	const char *cache_dir; /* folder with what was learned about sensors */
	/* NULL: use what is known about the GPU; borrowed during init */
	const struct sensor *sensor;
};

/* When each reading is due next (monotonic ns). */
struct sampler_due {
	uint64_t tick_ns, poll_ns, drain_ns, anchor_ns, processes_ns;
};

/* The driver's power ring buffer. Each read returns the whole ring; only entries that the read
 * before did not have are processed. */
struct sampler_ring {
	struct power_sample entry[SAMPLER_RING];
	int fetched;         /* number of entries that are not processed yet */
	uint64_t fetched_ns; /* when the unprocessed entries were read */
	struct power_sample tail[SAMPLER_TAIL]; /* the newest processed entries, oldest first */
	unsigned tail_count;
	int64_t offset_ns; /* wall clock minus monotonic clock at the last drain */
	bool offset_known;
	bool broken;         /* the ring buffer stopped answering */
	uint64_t last_ns;    /* time of the newest sample, monotonic */
	uint64_t covered_ns; /* a sample with this timestamp covers the last boundary */
	/* by this time, the sample that covers the last boundary is available */
	uint64_t drain_until_ns;
};

/* The energy counter. */
struct sampler_counter {
	struct sampler_device_counter first; /* reading by sampler_init(), if any */
	uint64_t read_ns;                    /* last reading; 0: none */
	uint64_t returned_ns;                /* when that reading returned */
	bool due;                            /* a reading is due */
	unsigned anchors;                    /* number of anchors so far */
};

/* Utilisation per process. */
struct sampler_use {
	struct process_use row[SAMPLER_USES];
	int count;          /* number of rows */
	uint64_t read_ns;   /* when the rows were read */
	uint64_t newest_us; /* timestamp of the newest sample */
};

struct sampler {
	struct sampler_device device;
	struct sampler_options opt;
	struct energy_setup setup; /* how power is sampled here; for the window tracker */
	void (*emit)(void *arg, const struct event *e);
	void *arg;
	struct report r;      /* the last reading */
	_Atomic bool answers; /* the device answered the last read; other threads read this */
	unsigned opened;      /* sampler_device.opened at the last reading */
	bool polled;          /* no ring buffer: power comes from polling a quantity */
	unsigned quantity;    /* the polled quantity */
	uint64_t poll_ns;     /* the polling period */
	bool active;          /* a window is open */
	struct sampler_due due;
	struct sampler_ring ring;
	struct sampler_counter counter;
	struct sampler_use use;
	struct usage_list usage;
	double application_hz; /* application clock at the last boundary or anchor; NAN: unknown */
	uint64_t application_ns; /* when application_hz was read */
};

/* Reads the device and decides how to measure it. Only one thread at a time may use a sampler,
 * and later calls allocate memory only for a process list that is longer than all earlier
 * lists. Returns 0 or -GW_E_NODEV. */
int sampler_init(struct sampler *s, struct gw_ctx *ctx, unsigned position,
		 const struct sampler_options *options,
		 void (*emit)(void *arg, const struct event *e), void *arg);
void sampler_done(struct sampler *s);

/* Takes the readings that are due, and returns the time of the next reading (monotonic ns).
 * active: a window is open. */
uint64_t sampler_step(struct sampler *s, bool active);

/* Takes the readings for a boundary: a window begins (end_ns is 0), or a window ended at
 * end_ns. After the end of a window, a caller waits for the sample that covers the end, so the
 * sampler reads this sample as soon as it can be available. brief: the window has ended and is
 * so short that a counter reading would not improve its result. */
void sampler_boundary(struct sampler *s, uint64_t end_ns, bool brief);

#endif
