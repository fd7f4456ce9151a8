/* What the files of the meter share; nobody else includes this.
 *
 *   meter.c         a sampler, a track and a thread for each GPU
 *   meter_window.c  windows over all of them
 */
#ifndef GW_MEASURE_METER_PARTS_H
#define GW_MEASURE_METER_PARTS_H

#include "meter.h"
#include "sampler.h"

#include <pthread.h>

struct meter_device {
	struct gw_meter *meter;
	unsigned number;            /* in the meter                           */
	unsigned position;          /* in snapshots                           */
	bool stalled;               /* it hung when we came: it is not measured */
	struct sampler_options opt; /* for its beginning; with copies of what is borrowed */
	struct sensor known;
	char *cache_dir;
	struct sampler sampler;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of all that follows                */
	pthread_cond_t wake;  /* for the thread                     */
	pthread_cond_t news;  /* for those who wait for a window    */
	struct window_tracker track;
	bool edge;       /* a window began or ended            */
	uint64_t end_ns; /* of the last that ended, to be told; 0: none */
	bool brief;      /* it was the only one, and shorter than a sample */
	bool begun;      /* the sampler has looked at it, ... */
	int error;       /* ... with this result             */
	bool go;         /* it may begin to sample            */
	bool stop, gone;
	bool deaf; /* whoever listened is gone */
	uint64_t samples, ticks, missed;
};

struct gw_meter {
	struct gw_ctx *ctx;
	const struct clock *clock;
	bool manual, exclusive;
	void (*about)(void *arg, unsigned device, unsigned position,
		      const struct energy_setup *setup);
	meter_listener *listen;
	void (*result)(void *arg, unsigned device, unsigned id, const char *label,
		       const struct gw_energy *e);
	void *arg;
	unsigned count;
	struct meter_device **device;
	pthread_mutex_t lock; /* of what follows */
	struct gw_window *windows;
	unsigned ids;
};

/* To the track, and to whoever listens, so that he can do it all again.  Under the device's lock. */
void meter_record(struct meter_device *d, const struct event *e, struct tracked_window *w);
/* Waits for something to be recorded.  False: it is until_ns.  Under the device's lock. */
bool meter_wait_news(struct meter_device *d, uint64_t until_ns);

#endif
