/* sampler: reads one GPU when a reading is due and emits events. It does not know windows.
 *
 * A boundary is the start or the end of a window. An anchor is a regular counter reading, every
 * anchor_ns. The sampler reads:
 * - the driver's power ring buffer every 1.5 s, or a polled value if there is no ring buffer
 * - clocks, temperature and the other values of a tick every interval_ns
 * - the energy counter at boundaries and anchors, at most once per second
 * - the throttle counters at boundaries
 * All deadlines are absolute, so delays do not add up. */
#ifndef GW_MEASURE_SAMPLER_H
#define GW_MEASURE_SAMPLER_H

#include "energy.h"
#include "event.h"

#include "device/sampler_device.h"

#define SAMPLER_RING 256 /* maximum number of entries of the ring buffer */
#define SAMPLER_TAIL 8   /* number of processed entries that are kept */
#define SAMPLER_USES 64  /* maximum number of processes with a utilisation */

struct sampler_options {
	uint64_t interval_ns; /* time between two ticks */
	uint64_t anchor_ns;   /* time between two anchors */
	bool processes;       /* read the processes on the GPU */
	/* These three are as in struct meter_config. */
	bool always, service, describe;
	int64_t own_pid; /* the process with this pid and its descendants are not foreign */
	/* These processes and their descendants are not foreign, either. 0: the element is not
	 * used. */
	int64_t server_pid[METER_SERVERS];
	const char *cache_dir; /* folder with the stored sensors; NULL: default; "": none */
	/* The sensor to use; NULL: the stored or assumed sensor. Only sampler_init() reads
	 * it. */
	const struct sensor *sensor;
};

/* When each reading is due next (monotonic ns). */
struct sampler_due {
	uint64_t tick_ns;      /* the values of a tick */
	uint64_t poll_ns;      /* the polled power, if there is no ring buffer */
	uint64_t drain_ns;     /* the ring buffer */
	uint64_t anchor_ns;    /* the energy counter */
	uint64_t processes_ns; /* the processes on the GPU */
};

/* The driver's power ring buffer. Each read returns the whole ring; only entries that the
 * previous read did not return are processed. */
struct sampler_ring {
	struct power_sample entry[SAMPLER_RING];
	int fetched;         /* number of entries that are not processed yet */
	uint64_t fetched_ns; /* when the unprocessed entries were read */
	struct power_sample tail[SAMPLER_TAIL]; /* the newest processed entries, oldest first */
	unsigned tail_count;
	int64_t offset_ns; /* wall clock minus monotonic clock when the ring was last read */
	bool offset_known;
	bool broken;         /* the driver no longer returns the ring buffer */
	uint64_t last_ns;    /* monotonic time of the newest sample */
	uint64_t covered_ns; /* a sample at this time covers the newest end of a window */
	/* The sample that covers the newest end of a window is available by this time. */
	uint64_t drain_until_ns;
};

/* The energy counter. */
struct sampler_counter {
	/* the reading of sampler_init(); before_ns is 0 if sampler_init() did not read */
	struct sampler_device_counter first;
	uint64_t read_ns;     /* time before the last reading; 0: there is none */
	uint64_t returned_ns; /* time after the last reading */
	bool due;             /* the next step must read the counter */
	unsigned anchors;     /* number of anchors so far */
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
	/* how power is sampled on this GPU; for the window tracker */
	struct energy_setup setup;
	void (*emit)(void *arg, const struct event *e);
	void *arg;
	struct report r;      /* the values of the last reading */
	_Atomic bool answers; /* The device answered the last read. Other threads read this. */
	unsigned opened;      /* sampler_device.opened at the last reading */
	bool polled;          /* power is polled, because there is no ring buffer */
	unsigned quantity;    /* the polled quantity, an enum gw_quantity */
	uint64_t poll_ns;     /* the polling period */
	bool active;          /* a window is open */
	struct sampler_due due;
	struct sampler_ring ring;
	struct sampler_counter counter;
	struct sampler_use use;
	struct usage_list usage;
	double application_hz;   /* clock at the last boundary or anchor; NAN: unknown */
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
 * `active` is true if a window is open. */
uint64_t sampler_step(struct sampler *s, bool active);

/* Takes the readings for a boundary: a window begins (end_ns is 0), or a window ended at
 * end_ns. After the end of a window, a caller waits for the sample that covers the end, so the
 * sampler reads this sample as soon as it can be available. `brief` is true if the window has
 * ended and is so short that a counter reading would not improve its result. */
void sampler_boundary(struct sampler *s, uint64_t end_ns, bool brief);

#endif
