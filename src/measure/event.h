/* event: one thing that was read of a GPU, or done to a window, and when.
 *
 * A measurement is the list of its events: the sampler makes them, a track turns them into
 * results, a bundle keeps them, and recompute feeds them to a track again. */
#ifndef GW_MEASURE_EVENT_H
#define GW_MEASURE_EVENT_H

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* Figures read at every tick, in this order in files. */
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
extern const unsigned event_quantity[FIGURES]; /* enum gw_quantity of each */

/* An event is a line of words parted by tabs: a letter, the time in ns, and what belongs to its
 * type; "-" is what is not known.  Numbers are written so that they read back to the same bits. */
#define EVENT_LINE_MAX 512

enum event_type {
	EVENT_POWER,   /* a power sample; t is its stamp                                     */
	EVENT_COUNTER, /* a reading of the energy counter; t before, after_ns after the call */
	EVENT_NO_COUNTER, /* its first reading failed: there is none                         */
	EVENT_TICK,    /* the figures above, and how many ticks were missed before it        */
	EVENT_LIMITS,  /* what held the clocks back, and the limit                           */
	EVENT_NOTE,    /* something happened: an enum gw_code                                */
	EVENT_PROCESS, /* one process on the GPU at t                                        */
	EVENT_WHO,     /* closes the processes of t: how many, and whether all were seen     */
	EVENT_OPEN,    /* a window begins                                                    */
	EVENT_CLOSE,   /* it ends                                                            */
	EVENT_RESULT,  /* its result was asked for: from here on nothing changes it          */
	EVENT_IDLE,    /* baselines, for sharing energy out                                  */
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
			double figure[FIGURES]; /* NAN: not known */
			unsigned missed;
		} tick;
		struct {
			double seconds[GW_THROTTLES]; /* since driver load; NAN: not known */
			double limit_w;
		} limits;
		unsigned code;
		struct {
			int64_t pid;
			uint64_t start_ticks;
			uint64_t memory_bytes; /* 0: not known */
			double sm_ratio;       /* NAN: not known */
			int own;               /* of the program that is measured */
			char name[32];
		} process;
		struct {
			unsigned count;
			int hidden; /* there may be others that cannot be seen */
		} who;
		struct {
			unsigned id;
			char label[64];
			double period_s; /* of the load, NAN when its owner does not know */
			int exclusive;   /* somebody else on the GPU makes it invalid     */
		} window;
		struct {
			double no_context_w, context_w; /* NAN: not known */
		} idle;
	} u;
};

struct buf;

/* Appends the line with its newline. */
void event_write(struct buf *out, const struct event *e);

/* Reads a line without its newline.  0 or -GW_E_PARSE. */
int event_read(const char *line, struct event *ret);

#endif
