/* count: what a command of the user counted from one moment to another.
 *
 * A server counts the tokens that it makes; a command asks it before and after a run, and the
 * difference is of the run.  It is asked a little before the beginning and a little after the
 * end, and what was made in between is counted too: at most that much is off. */
#ifndef GW_CLI_COUNT_H
#define GW_CLI_COUNT_H

#include <stddef.h>
#include <stdint.h>

struct count_reading {
	double value;                 /* NAN: it was not told; */
	char why[200];                /* why not               */
	uint64_t before_ns, after_ns; /* monotonic, around it  */
};

struct count {
	double number; /* NAN: unknown          */
	double edge;   /* so many may be too many */
	char why[200]; /* why it is unknown     */
};

/* Runs the command with /bin/sh, ten seconds at most.  It prints one number. */
void count_read(const char *command, struct count_reading *ret);

/* Pure: of a run from begin to end. */
void count_between(const struct count_reading *first, const struct count_reading *last,
		   uint64_t begin_ns, uint64_t end_ns, struct count *ret);

#endif
