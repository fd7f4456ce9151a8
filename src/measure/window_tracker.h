/* window_tracker: computes from events everything that is measured on one GPU.
 *
 * Pure: the same events in the same order give the same results to the last bit, live or from a
 * file. It owns the energy engine and the other data of a window: throttling, clocks,
 * temperature, processes. */
#ifndef GW_MEASURE_WINDOW_TRACKER_H
#define GW_MEASURE_WINDOW_TRACKER_H

#include "attribute.h"
#include "energy.h"
#include "event.h"

#define WINDOW_SERIES_ROOM 262144 /* maximum number of readings of each kind, by default */

/* The readings of one GPU during one window, for the caller of gw_window_series(). All memory
 * is reserved when the window opens, so the sampling path does not allocate; pages that hold no
 * reading are never touched. A reading for which there is no room is only counted. The energy
 * is not computed from these readings. */
struct window_series {
	struct gw_series view;        /* the public struct, which points to the arrays below */
	uint64_t next;                /* number of the next power sample to copy */
	uint64_t *power_ns, *tick_ns; /* times of the power samples and of the ticks */
	double *power_w;
	double *column[FIGURES]; /* the figures of each tick */
};

/* Reserves memory for `room` power samples and `room` ticks; the caller frees it with free().
 * Returns NULL if there is no memory, or if `room` is too large. */
struct window_series *window_series_new(size_t room);

/* Bits of GW_Q_CLOCK_REASONS for each cause of throttling. */
extern const uint64_t window_tracker_reason_bits[GW_THROTTLES];

/* The driver's throttling counters and the power limit, read at one boundary of a window. */
struct tracked_limits {
	bool known;                     /* the counters were read */
	double limited_s[GW_THROTTLES]; /* seconds since the driver was loaded; NAN: unknown */
	double limit_w;                 /* power limit; NAN: unknown */
};

/* Throttling in a window, from the clock reasons that were read at each tick. */
struct tracked_throttling {
	bool seen;                      /* at least one tick had clock reasons */
	uint64_t reasons;               /* every bit of GW_Q_CLOCK_REASONS that occurred */
	double limited_s[GW_THROTTLES]; /* seconds in which each cause limited the clocks */
	double limited_j;               /* approximate energy while the clocks were limited */
};

struct tracked_mean {
	double sum;
	uint64_t count;
};

struct tracked_temperature { /* degrees; NAN: unknown */
	double begin, end, max;
};

struct tracked_process {
	int64_t pid; /* 0: there is no such process */
	char name[32];
	uint64_t bytes; /* GPU memory of the process; 0: unknown */
};

struct tracked_window {
	struct tracked_window *next; /* in the list window_tracker.open */
	/* The memory for readings; NULL: readings are not kept. The caller owns it and sets it
	 * before EVENT_OPEN. */
	struct window_series *series;
	unsigned id;
	char label[64];
	struct energy_window e;
	struct tracked_limits begin_limits, end_limits;
	struct tracked_throttling throttling;
	uint64_t ticks, missed; /* numbers of ticks that were read, and missed */
	uint64_t last_tick_ns;  /* time of the last tick; 0: there was none */
	struct tracked_temperature temp;
	double memory_max;               /* maximum of the used memory in bytes; NAN: unknown */
	struct tracked_mean clock;       /* SM clock in hertz */
	struct tracked_mean utilization; /* ratio, 0 to 1 */
	double utilization_max;          /* NAN: unknown */
	uint64_t codes;                  /* codes raised by events */
	struct tracked_process first;    /* first process on the GPU, own or foreign */
	struct tracked_process foreign;  /* first foreign process on the GPU */
	bool hidden;                     /* there may have been processes that we cannot see */
	bool exclusive;                  /* a foreign process makes the window invalid */
	struct attribute shares;         /* energy per process, if processes are read */
	/* The energy up to this point was divided among the processes. */
	struct energy_point shared_to;
	uint64_t shared_ns; /* time of shared_to; 0: the start of the window */
};

#define TRACKED_PROCESSES 64

struct window_tracker_processes { /* the processes at one time */
	uint64_t t_ns;
	unsigned count;
	bool hidden; /* there may be processes that we cannot see */
	struct attribute_use use[TRACKED_PROCESSES];
};

struct window_tracker {
	struct energy energy;
	double interval_s; /* planned time between two ticks */
	/* idle power without and with idle contexts, for dividing energy among processes; NAN:
	 * unknown */
	double no_context_w, context_w;
	/* list of all windows until window_tracker_forget(); the caller owns them */
	struct tracked_window *open;
	double last_tick_w; /* power of the last tick */
	/* the process list that is being filled, and the list before it */
	struct window_tracker_processes processes, previous;
	bool has_previous; /* `previous` is filled in */
};

void window_tracker_init(struct window_tracker *t, const struct energy_setup *set,
			 double interval_s);

/* Adds an event. For EVENT_OPEN, w is the caller's memory for the window, which the tracker
 * uses until window_tracker_forget(). For all other events w is NULL. */
void window_tracker_feed(struct window_tracker *t, const struct event *e,
			 struct tracked_window *w);

/* Returns the window with this id, or NULL. */
struct tracked_window *window_tracker_find(struct window_tracker *t, unsigned id);

/* Returns true if samples cover the end of the window, and the readings for its end are
 * available. */
bool window_tracker_done(const struct window_tracker *t, const struct tracked_window *w);

/* Gets the result of the window so far or, after EVENT_RESULT, the final one. */
void window_tracker_result(struct window_tracker *t, struct tracked_window *w,
			   struct gw_energy *ret);

/* Divides the window's energy among processes; the rows are in w->shares. Call it once, after
 * EVENT_RESULT and window_tracker_result(). */
void window_tracker_share(struct window_tracker *t, struct tracked_window *w,
			  const struct gw_energy *result);

/* Removes the window from the list. Does nothing if it is not in the list. */
void window_tracker_forget(struct window_tracker *t, struct tracked_window *w);

/* Writes the evidence for a code, such as "3.1 s of 12.5 s (24.8 %)". Writes "" if there is
 * nothing to add to the sentence of the code. */
void window_tracker_evidence(const struct tracked_window *w, const struct gw_energy *r,
			     unsigned code, char *out, size_t size);

#endif
