/* event: one reading of a GPU, or one change of a window, with its time.
 *
 * A measurement is the list of its events: the sampler emits them, a window tracker turns them
 * into results, a bundle stores them, and bundle_recompute() feeds them to a tracker again. */
#ifndef GW_MEASURE_EVENT_H
#define GW_MEASURE_EVENT_H

#include "base/proc_id.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* A tick is a regular reading of clocks, temperature and other values. These are the values, in
 * the order in which files store them: append, never move. In an older file, the line of a tick
 * ends after the values that existed then; the other values are unknown. */
#define EVENT_FIGURES_FIRST 10 /* number of figures in the first version of the file format */
#define EVENT_FIGURES(F)   \
	F(POWER)           \
	F(POWER_AVERAGE)   \
	F(POWER_INSTANT)   \
	F(TEMPERATURE_GPU) \
	F(UTILIZATION_GPU) \
	F(UTILIZATION_MEMORY) F(CLOCK_SM) F(CLOCK_MEMORY) F(MEMORY_USED) F(CLOCK_REASONS)
enum event_figure {
#define F(q) FIGURE_##q,
	EVENT_FIGURES(F)
#undef F
		FIGURES
};
extern const unsigned event_quantity[FIGURES]; /* enum gw_quantity of each figure */

/* In a file, an event is a line of words separated by tabs: a letter, the time in ns, and the
 * fields of its type. "-" means unknown. A number that is written and read again has the same
 * bits. */
#define EVENT_LINE_MAX 512

/* At most this many processes, in addition to the command, are part of a measurement. */
#define METER_SERVERS 4

enum event_type {
	EVENT_POWER, /* a power sample; t_ns is its timestamp */
	/* a reading of the energy counter; t_ns is the time before the driver call, after_ns
	 * the time after it */
	EVENT_COUNTER,
	EVENT_NO_COUNTER, /* the first reading failed: there is no energy counter */
	/* the values that are read at every tick, and how many ticks were missed before this
	 * one */
	EVENT_TICK,
	EVENT_LIMITS,  /* the power limit, and how long each cause limited the clocks */
	EVENT_NOTE,    /* an enum gw_code that applies to the windows that contain t_ns */
	EVENT_PROCESS, /* one process on the GPU at t_ns */
	/* the end of the list of processes at t_ns, with their number and whether some may be
	 * hidden */
	EVENT_PROCESS_LIST,
	EVENT_OPEN,   /* a window begins */
	EVENT_CLOSE,  /* a window ends */
	EVENT_RESULT, /* a caller requested the result of a window, which is now final */
	EVENT_IDLE,   /* the baselines that are used to divide energy among processes */
	EVENT_TYPES
};

struct event {
	enum event_type type;
	uint64_t t_ns; /* monotonic */
	union {
		double power_w;
		struct {
			uint64_t after_ns;
			double joules;
		} counter;
		unsigned absence; /* enum gw_absence */
		struct {
			double figure[FIGURES]; /* NAN: unknown */
			unsigned missed;        /* ticks that were missed before this one */
		} tick;
		struct {
			double seconds[GW_THROTTLES]; /* since driver load; NAN: unknown */
			double limit_w;               /* power limit; NAN: unknown */
		} limits;
		unsigned code; /* enum gw_code */
		struct {
			struct proc_id id;
			uint64_t memory_bytes; /* 0: unknown */
			double sm_ratio;       /* NAN: unknown */
			/* 1: the process belongs to the measured program */
			int own;
			char name[32];
		} process;
		struct {
			unsigned count;
			int hidden; /* there may be processes that we cannot see */
		} process_list;
		struct {
			unsigned id;
			char label[64];
			double period_s; /* period of the load; NAN: unknown */
			/* a foreign process on the GPU makes the window invalid */
			int exclusive;
		} window;
		struct {
			double no_context_w, context_w; /* NAN: unknown */
		} idle;
	} u;
};

struct buf;

/* Appends the event as a line with its newline. */
void event_write(struct buf *out, const struct event *e);

/* Reads a line without its newline. Returns 0 or -GW_E_PARSE. */
int event_read(const char *line, struct event *ret);

#endif
