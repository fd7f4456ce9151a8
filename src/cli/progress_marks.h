/* marks: what a command tells of itself while it is measured.
 *
 * Lines on an inherited descriptor, one mark each:
 *   begin NAME [T]   a part of the run begins     end NAME [T]   and ends
 *   iteration [N]    one more iteration is done, whatever N is: it is its number, for people
 *   tokens N         N more tokens were made
 * T is a moment of CLOCK_MONOTONIC in nanoseconds; without it the line's arrival counts.  A line
 * that is none of these is counted and passed over; nothing that a command writes can do harm. */
#ifndef GW_CLI_PROGRESS_MARKS_H
#define GW_CLI_PROGRESS_MARKS_H

#include "measure/attribute.h"
#include "measure/random.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_MARKS_WINDOWS   1000  /* more are counted, not measured                     */
#define PROGRESS_MARKS_LATENCIES 50000 /* of more, so many are kept, each as likely          */
#define PROGRESS_MARKS_LINE      256

struct progress_marks_window {
	char label[64];
	uint64_t begin_ns, end_ns; /* end 0: open                          */
	bool unfinished;           /* the run ended before it did          */
	struct gw_window *live;    /* NULL: worked out                     */
	struct gw_energy *energy;  /* one a device of the meter; NULL: none */
	struct attribute *who;     /* the same, of marks.part alone        */
	/* Marked between its begin and its end, in the order of the lines: a command that
	 * writes them late, many at once, still counts right. */
	uint64_t iterations, tokens;
	uint64_t first; /* its own: iterations and tokens before it */
	uint64_t first_tokens;
};

/* From the iteration before to this one. */
struct progress_marks_latency {
	uint64_t number; /* of this one, from 1 */
	double seconds;
};

struct progress_marks {
	struct progress_marks_window *window; /* in the order of their beginnings */
	unsigned count;
	uint64_t iterations, tokens;
	bool tokens_told;
	uint64_t bad;     /* lines that were no marks       */
	char reason[128]; /* what was wrong with the first  */
	uint64_t refused; /* windows past PROGRESS_MARKS_WINDOWS     */
	/* The first two numbers of iterations that do not follow each other: somebody may mean
	 * how many they were.  Both 0: there are none. */
	uint64_t odd_before, odd_after;
	/* Its own: */
	struct gw_meter *meter;
	const char *part;           /* whose processes are kept too; NULL: none           */
	uint64_t begin_ns, last_ns; /* of the run; of the last iteration, 0: none */
	uint64_t number;            /* that the next iteration should have, 0: any        */
	struct progress_marks_latency *latency; /* between iterations                         */
	size_t latencies;                       /* kept                                       */
	uint64_t latency_count;                 /* seen                                       */
	struct random random;
	char line[PROGRESS_MARKS_LINE];
	size_t fill;
	bool skipping; /* in a line that is too long */
};

/* For a run that began then.  The meter and part, the name of the part that the run is about
 * (NULL: all of it), are borrowed until progress_marks_done(). */
void progress_marks_init(struct progress_marks *m, struct gw_meter *meter, const char *part,
			 uint64_t begin_ns);

/* Text as it comes, whole lines or not, and when. */
void progress_marks_feed(struct progress_marks *m, const char *text, size_t n, uint64_t now_ns);

/* Works out the parts that ended some seconds ago; now and then while the command runs. */
void progress_marks_tend(struct progress_marks *m, uint64_t now_ns);

/* The run ended: so does what is open, and all is worked out. */
void progress_marks_finish(struct progress_marks *m, uint64_t end_ns);

/* The first part of that name that has begun and ended; *ret_count: how many there are.  NULL:
 * none. */
const struct progress_marks_window *progress_marks_find(const struct progress_marks *m,
							const char *name, unsigned *ret_count);

/* Time from one iteration to the next that the share p of them did not exceed, in w (NULL: in
 * the whole run); NAN: fewer than two marks there, or no memory. */
double progress_marks_latency(const struct progress_marks *m,
			      const struct progress_marks_window *w, double p);

/* A struct that is zero is fine. */
void progress_marks_done(struct progress_marks *m);

#endif
