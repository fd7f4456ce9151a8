/* progress_marks: reads what a command reports about itself while it is measured.
 *
 * The command writes lines to an inherited descriptor, one mark per line:
 *   begin NAME [T]   a part of the run begins
 *   end NAME [T]     the part ends
 *   iteration [N]    one more iteration is done; N is only its number
 *   tokens N         N more tokens were generated
 * T is a time of CLOCK_MONOTONIC in nanoseconds; the default is the arrival of the line.  Other
 * lines are counted and ignored. */
#ifndef GW_CLI_PROGRESS_MARKS_H
#define GW_CLI_PROGRESS_MARKS_H

#include "measure/attribute.h"
#include "measure/stat.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_MARKS_WINDOWS 1000 /* Parts above this limit are counted, but not measured. */
/* Largest number of stored latencies. If there are more, a random sample of this size is
 * kept. */
#define PROGRESS_MARKS_LATENCIES 50000
#define PROGRESS_MARKS_LINE      256
/* Bytes of the name of a part, with its NUL. A longer name is cut. */
#define PROGRESS_MARKS_LABEL 64

struct progress_marks_window {
	char label[PROGRESS_MARKS_LABEL];
	uint64_t begin_ns, end_ns; /* end_ns is 0 until the part has ended. */
	bool unfinished;           /* The run ended before the part ended. */
	/* The window of the part. NULL: it is freed, and `energy` is known. */
	struct gw_window *live;
	/* Energy of the part, one per device of the meter. NULL: unknown. */
	struct gw_energy *energy;
	/* Energy of each process, one struct per device. Set only if the label is
	 * progress_marks.part. */
	struct attribute *who;
	/* Number of iterations and tokens in the lines between begin and end. The order of the
	 * lines decides, so the counts are correct even if many lines arrive late and
	 * together. */
	uint64_t iterations, tokens;
	/* Private: number of iterations and of tokens before the part. */
	uint64_t first;
	uint64_t first_tokens;
};

/* A latency: the time from the previous iteration to this iteration. */
struct progress_marks_latency {
	uint64_t number; /* Number of this iteration, from 1. */
	double seconds;
};

struct progress_marks {
	struct progress_marks_window *window; /* The parts, in the order in which they began. */
	unsigned count;
	uint64_t iterations, tokens;
	uint64_t bad;     /* Number of lines that are not marks. */
	char reason[128]; /* What was wrong with the first line that is not a mark. */
	uint64_t refused; /* Number of parts above the limit PROGRESS_MARKS_WINDOWS. */
	/* The first two neighbouring iteration numbers of which the second is not the first
	 * plus one: perhaps one line stands for several iterations. Both 0: none. */
	uint64_t odd_before, odd_after;
	/* Private: */
	struct gw_meter *meter;
	/* Also keep the energy of each process for parts with this name. NULL: for no part. */
	const char *part;
	/* Start of the run, and time of the last iteration (0: no iteration yet). */
	uint64_t begin_ns, last_ns;
	uint64_t number; /* Expected number of the next iteration. 0: any number. */
	struct progress_marks_latency *latency; /* The stored latencies. */
	size_t latencies;                       /* Number of stored latencies. */
	/* Number of all latencies, including those that are not stored. */
	uint64_t latency_count;
	struct random random;
	char line[PROGRESS_MARKS_LINE];
	size_t fill;
	bool skipping; /* The current line is too long, and is skipped up to its end. */
};

/* Prepares for a run that began at begin_ns.  part is the name of the part to report (NULL: the
 * whole run).  meter and part are borrowed until progress_marks_done(). */
void progress_marks_init(struct progress_marks *m, struct gw_meter *meter, const char *part,
			 uint64_t begin_ns);

/* Reads n bytes that arrived at now_ns.  They may end in the middle of a line. */
void progress_marks_feed(struct progress_marks *m, const char *text, size_t n, uint64_t now_ns);

/* Computes the energy of the parts that ended more than three seconds ago.  Call it repeatedly
 * while the command runs. */
void progress_marks_update(struct progress_marks *m, uint64_t now_ns);

/* Ends the open parts and computes the energy of all parts.  Call it when the run has ended. */
void progress_marks_finish(struct progress_marks *m, uint64_t end_ns);

/* Returns the first finished part with that name, or NULL.  Sets *ret_count to the number of
 * finished parts with that name. */
const struct progress_marks_window *progress_marks_find(const struct progress_marks *m,
							const char *name, unsigned *ret_count);

/* Returns the p-quantile of the time between iterations in w (NULL: in the whole run).  Returns
 * NAN if there are fewer than two marks, or if memory is short. */
double progress_marks_latency(const struct progress_marks *m,
			      const struct progress_marks_window *w, double p);

/* Frees everything that m owns.  m may be all zeros. */
void progress_marks_done(struct progress_marks *m);

#endif
