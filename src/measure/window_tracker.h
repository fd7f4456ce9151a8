/* track: all that is measured on one GPU, made of events.
 *
 * Pure: the same events in the same order give the same results to the bit, live or from a
 * file.  It owns the energy engine and what a window knows beside joules: throttling, clocks,
 * temperature, who was there. */
#ifndef GW_MEASURE_WINDOW_TRACKER_H
#define GW_MEASURE_WINDOW_TRACKER_H

#include "attribute.h"
#include "energy.h"
#include "event.h"

/* Bits of GW_Q_CLOCK_REASONS for each cause. */
extern const uint64_t track_reason_bits[GW_THROTTLES];

struct tracked_window {
	struct tracked_window *next;
	unsigned id;
	char label[64];
	struct energy_window e;
	bool limits_begun, limits_ended;
	double limited_begin[GW_THROTTLES], limited_end[GW_THROTTLES];
	double limit_begin_w, limit_end_w;
	double sampled_s[GW_THROTTLES]; /* from the reasons seen at each tick */
	bool reasons_seen;
	double held_j; /* in ticks that were held back */
	uint64_t ticks, missed, last_tick_ns;
	double temp_begin, temp_end, temp_max, memory_max;
	double clock_sum, util_sum;
	uint64_t clocks, utils;
	uint64_t codes; /* raised by events */
	int64_t foreign_pid;
	uint64_t foreign_start, foreign_bytes;
	char foreign_name[32];
	bool exclusive;
	/* Whether it was idle: all that was ever seen. */
	double util_max;  /* NAN: not told            */
	uint64_t reasons; /* of the clocks            */
	int64_t any_pid;  /* first on it, own or not  */
	char any_name[32];
	bool hidden; /* there may have been others that cannot be seen */
	/* Who took what; only where processes are asked for. */
	struct attribute who;
	struct energy_point who_from; /* up to where it was shared out */
	uint64_t who_ns;              /* 0: from the beginning         */
};

#define TRACKED_PROCESSES 64

struct window_tracker_processes { /* the processes of one moment */
	uint64_t t_ns;
	unsigned count;
	bool hidden;
	struct attribute_use use[TRACKED_PROCESSES];
};

struct window_tracker {
	struct energy energy;
	double interval_s;
	double no_context_w, context_w; /* baselines, NAN unknown; for sharing out        */
	struct tracked_window *open;    /* windows that are not done; borrowed            */
	double last_tick_w;
	struct window_tracker_processes who,
		before; /* being filled; the one before                     */
	bool whos;      /* there was one before                             */
};

void window_tracker_init(struct window_tracker *t, const struct energy_setup *set,
			 double interval_s);

/* Takes an event.  EVENT_OPEN and EVENT_CLOSE need the window's memory: the caller's, for OPEN
 * (borrowed until window_tracker_forget), NULL for all others. */
void window_tracker_feed(struct window_tracker *t, const struct event *e,
			 struct tracked_window *w);

/* The window with this id, or NULL. */
struct tracked_window *window_tracker_find(struct window_tracker *t, unsigned id);

/* Is the window's end covered by samples, and what was read for its end there? */
bool window_tracker_done(const struct window_tracker *t, const struct tracked_window *w);

/* What the window took, so far or, after EVENT_RESULT, for good. */
void window_tracker_result(struct window_tracker *t, struct tracked_window *w,
			   struct gw_energy *ret);

/* Shares the window's energy out among processes; rows in w->who.  Once, after EVENT_RESULT and
 * window_tracker_result. */
void window_tracker_share(struct window_tracker *t, struct tracked_window *w,
			  const struct gw_energy *result);

void window_tracker_forget(struct window_tracker *t, struct tracked_window *w);

/* Evidence for a code in words: "3.1 s of 12.5 s (24.8 %)"; "" where the code says it all. */
void window_tracker_evidence(const struct tracked_window *w, const struct gw_energy *r,
			     unsigned code, char *out, size_t size);

#endif
