/* progress_marks: what a command reports about itself while it is measured.
 *
 * It writes lines to an inherited descriptor, one mark per line:
 *   begin NAME [T]   a part of the run begins     end NAME [T]   and ends
 *   iteration [N]    one more iteration is done; N is only its number
 *   tokens N         N more tokens were generated
 * T is a time of CLOCK_MONOTONIC in nanoseconds; the default is the arrival of the line.  Other lines are
 * counted and ignored. */
#ifndef GW_CLI_PROGRESS_MARKS_H
#define GW_CLI_PROGRESS_MARKS_H

#include "measure/attribute.h"
#include "measure/stat.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_MARKS_WINDOWS   1000  /* more are counted, not measured                     */
#define PROGRESS_MARKS_LATENCIES 50000 /* of more, a random sample of this size is kept      */
#define PROGRESS_MARKS_LINE      256

struct progress_marks_window {
	char label[64];
	uint64_t begin_ns, end_ns; /* end 0: open                          */
	bool unfinished;           /* the run ended first                  */
	struct gw_window *live;    /* NULL: its energy is computed         */
	struct gw_energy *energy;  /* one per device of the meter; NULL: none */
	struct attribute *who;     /* the same, only for marks.part        */
	/* Marked between its begin and end in the order of the lines, so that lines which are
	 * written late, many at once, still count correctly. */
	uint64_t iterations, tokens;
	uint64_t first; /* private: iterations and tokens before it */
	uint64_t first_tokens;
};

/* Time from the previous iteration to this one. */
struct progress_marks_latency {
	uint64_t number; /* of this one, from 1 */
	double seconds;
};

struct progress_marks {
	struct progress_marks_window *window; /* in the order of their begin */
	unsigned count;
	uint64_t iterations, tokens;
	bool tokens_marked;
	uint64_t bad;     /* lines that are not marks        */
	char reason[128]; /* what was wrong with the first  */
	uint64_t refused; /* windows beyond PROGRESS_MARKS_WINDOWS */
	/* The first two iteration numbers that are not consecutive: perhaps they are meant as
	 * counts.  Both 0: none. */
	uint64_t odd_before, odd_after;
	/* Private: */
	struct gw_meter *meter;
	const char *part;           /* also keep the processes of this part; NULL: none */
	uint64_t begin_ns, last_ns; /* of the run; of the last iteration, 0: none */
	uint64_t number;            /* expected number of the next iteration; 0: any */
	struct progress_marks_latency *latency; /* between iterations                         */
	size_t latencies;                       /* kept                                       */
	uint64_t latency_count;                 /* seen                                       */
	struct random random;
	char line[PROGRESS_MARKS_LINE];
	size_t fill;
	bool skipping; /* the current line is too long */
};

/* Prepares for a run that began at begin_ns.  part is the part to report (NULL: the whole run);
 * meter and part are borrowed until progress_marks_done(). */
void progress_marks_init(struct progress_marks *m, struct gw_meter *meter, const char *part,
			 uint64_t begin_ns);

/* Takes text with its arrival time; it may end in the middle of a line. */
void progress_marks_feed(struct progress_marks *m, const char *text, size_t n, uint64_t now_ns);

/* Computes the parts that ended some seconds ago.  Call it now and then while the command
 * runs. */
void progress_marks_update(struct progress_marks *m, uint64_t now_ns);

/* Ends the open parts and computes all parts, when the run has ended. */
void progress_marks_finish(struct progress_marks *m, uint64_t end_ns);

/* Returns the first finished part of that name, or NULL; *ret_count: how many there are. */
const struct progress_marks_window *progress_marks_find(const struct progress_marks *m,
							const char *name, unsigned *ret_count);

/* Returns the p-quantile of the time between iterations in w (NULL: the whole run); NAN if it
 * has fewer than two marks, or without memory. */
double progress_marks_latency(const struct progress_marks *m,
			      const struct progress_marks_window *w, double p);

/* The struct may be zero. */
void progress_marks_done(struct progress_marks *m);

#endif
