/* sensor_watch: all sources of power of one GPU, read on absolute deadlines and recorded.
 *
 * Everything is allocated at the start; when a record is full the rest is not kept.  Times are
 * seconds since watch_init() on the tap's monotonic clock. */
#ifndef GW_MEASURE_SENSOR_WATCH_H
#define GW_MEASURE_SENSOR_WATCH_H

#include "sensor_fit.h"

#include "device/sampler_device.h"

#define WATCH_POINTS 16384u /* over a minute of a value that is new at every poll */
#define WATCH_RING   256u
#define WATCH_POLL   (5 * NS_PER_MS)

struct watch_trace { /* values when they were first seen */
	struct fit_point *p;
	unsigned n;
	double last_w;
};

struct watch_cost {
	double *s;
	unsigned n;
};

struct event_watch {
	struct sampler_device *tap;
	const struct clock *clock;
	uint64_t zero_ns;
	unsigned average_quantity; /* the caller's choice; GW_Q_POWER until then */
	struct report r;           /* as of the last poll */
	struct watch_trace instant, average, ring;
	struct watch_cost poll_cost, ring_cost, counter_cost;
	struct power_sample ring_now[WATCH_RING], ring_before[WATCH_RING];
	unsigned ring_count; /* of ring_before: the last drain */
	int ring_error;      /* of the last drain, 0 when it went well */
	double ring_age_s;   /* of its newest sample, if stamps are of the wall clock */
	uint64_t poll_ns;    /* between polls */
	uint64_t next_poll_ns, next_drain_ns;
	void *memory;
};

/* 0 or -GW_E_NOMEM.  watch_done() in any case. */
int watch_init(struct event_watch *w, struct sampler_device *t);
void watch_done(struct event_watch *w);

static inline double watch_s(const struct event_watch *w, uint64_t mono_ns)
{
	return (double)(int64_t)(mono_ns - w->zero_ns) * 1e-9;
}

static inline uint64_t watch_ns(const struct event_watch *w, double t_s)
{
	return w->zero_ns + (uint64_t)(int64_t)(t_s * 1e9);
}

/* Forgets the traces, or those of the two values alone; not the costs. */
void watch_clear(struct event_watch *w);
void watch_clear_values(struct event_watch *w);

/* Does what is due now, and says when the next thing is. */
uint64_t watch_due(struct event_watch *w);

/* Does what is due until then. */
void watch_until(struct event_watch *w, uint64_t mono_ns);

/* The ring, now. */
void watch_drain(struct event_watch *w);

/* A reading of the counter.  Its time is the middle of the call. */
void watch_counter(struct event_watch *w, struct sampler_device_counter *ret, double *ret_t_s);

/* Next deadline after one at `at`, on the same grid: those that were missed are left out. */
uint64_t watch_next(uint64_t at_ns, uint64_t step_ns, uint64_t now_ns);

#endif
