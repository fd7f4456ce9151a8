/* Shared by the files of the meter: meter.c (a sampler, a window tracker and a thread per GPU)
 * and meter_window.c (windows over all GPUs). No other file includes it. */
#ifndef GW_MEASURE_METER_PARTS_H
#define GW_MEASURE_METER_PARTS_H

#include "meter.h"
#include "sampler.h"

#include <pthread.h>

/* The life of a device's sampler. Only meter.c changes it, under the device's lock. */
enum meter_phase {
	METER_STARTING, /* sampler_init() has not returned */
	METER_READY,    /* sampler_init() has returned; other devices may still be starting */
	METER_SAMPLING, /* the thread, or the caller of gw_meter_poll(), takes readings */
	/* The device is not measured, because a driver call hangs: sampler_init() did not
	 * return in time, or the device was hung before. A hung device stays hung. */
	METER_HUNG,
	METER_STOPPING, /* gw_meter_stop() was called */
};

enum meter_thread {
	METER_NO_THREAD,
	METER_RUNNING,
	METER_ENDED, /* the thread has ended and must be joined */
	/* gw_meter_stop() no longer waits, because the thread hangs in a driver call. The
	 * thread is detached and must not call on_event(). */
	METER_LEFT_BEHIND,
};

/* A start or end of a window for which the thread has not taken the readings yet. */
enum meter_boundary {
	METER_NO_BOUNDARY,
	METER_BOUNDARY,
	/* The only open window has ended, and it was shorter than the spacing of samples. */
	METER_BRIEF_END,
};

struct meter_device {
	struct gw_meter *meter;
	unsigned number;            /* index in the meter */
	unsigned position;          /* index in snapshots */
	struct sampler_options opt; /* copy of the caller's options */
	struct sensor known;        /* opt.sensor points to this copy */
	char *cache_dir;            /* opt.cache_dir points to this copy */
	struct sampler sampler;
	pthread_t thread;
	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t wake;  /* wakes the thread */
	pthread_cond_t news;  /* wakes callers that wait for a window */
	struct window_tracker tracker;
	enum meter_phase phase;
	enum meter_thread thread_state;
	int error; /* result of sampler_init(); -GW_E_STATE until it returns */
	enum meter_boundary boundary;
	/* The latest end of a window for which the thread has not taken the readings yet; 0:
	 * none. */
	uint64_t end_ns;
	struct meter_progress count; /* without power_w */
};

struct gw_meter {
	struct gw_ctx *ctx;
	const struct clock *clock;
	bool manual;    /* there are no threads: gw_meter_poll() takes the readings */
	bool processes; /* the meter reads the processes on the GPUs */
	bool exclusive; /* a foreign process makes a window invalid */
	void (*on_setup)(void *arg, unsigned device, unsigned position,
			 const struct energy_setup *setup);
	meter_event_fn *on_event;
	void (*on_result)(void *arg, unsigned device, unsigned id, const char *label,
			  const struct gw_energy *e);
	void *arg;
	unsigned count;
	struct meter_device **device;
	pthread_mutex_t lock; /* guards the members below */
	struct gw_window *windows;
	unsigned ids; /* id of the newest window; ids begin with 1 */
};

/* Passes an event to the tracker and to on_event(). These events are enough to compute all
 * results again. Needs the device's lock. */
void meter_record(struct meter_device *d, const struct event *e, struct tracked_window *w);
/* Waits until an event is recorded or the state of the device changes. Returns false if
 * until_ns has passed. Needs the device's lock. */
bool meter_wait_news(struct meter_device *d, uint64_t until_ns);

#endif
