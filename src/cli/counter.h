/* count: what was counted from one moment to another.
 *
 * A server counts the tokens that it makes.  It is asked before and after a run, by a command
 * of the user or by its URL, and the difference is of the run.  It is asked a little before the
 * beginning and a little after the end, and what was made in between is counted too: at most
 * that much is off. */
#ifndef GW_CLI_COUNTER_H
#define GW_CLI_COUNTER_H

#include "client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTER_SERIES  256
#define COUNTER_WHY     320
#define COUNTER_MOST_NS (10 * UINT64_C(1000000000)) /* for one answer */

/* One of those that a server's counter is made of: one a model, an engine, ... */
struct counter_series {
	uint64_t id; /* of its labels */
	double value;
	double created_s; /* when it began at 0, by the server's own wall clock; NAN: it does not tell */
};

#define COUNTER_NAME 640

struct counter_reading {
	char name[COUNTER_NAME]; /* of the counter, with the labels that choose; "": none */
	double value;            /* of all series; NAN: it was not told; */
	char why[COUNTER_WHY];   /* why not                              */
	uint64_t before_ns, after_ns; /* monotonic, around it                 */
	double wall_s;                /* at before_ns                         */
	struct counter_series series[COUNTER_SERIES];
	unsigned n;
};

struct counter {
	double number; /* NAN: unknown            */
	double edge;   /* so many may be too many */
	/* Series that were not told before, counted whole: */
	unsigned fresh;
	double fresh_number;
	bool fresh_assumed; /* of one of them the server does not say that it began in the run */
	char why[COUNTER_WHY];
};

/* A way to ask. */
struct counter_kind {
	const char *option; /* without its dashes */
	/* What was asked, for the result: nothing secret may be in it.  NULL: it is not
	 * told. */
	void (*place)(const char *text, char *out, size_t size);
	/* Can it be asked at all?  0, or -GW_E_ARG with a sentence. */
	int (*check)(const char *text, char *why, size_t size);
	/* Sets value, or why, and the series; ten seconds at most, and a moment once the asker
	 * (NULL: nobody) asked. */
	void (*read)(const char *text, const struct deadline_stop *stop,
		     struct counter_reading *ret);
};
enum { COUNTER_CMD, COUNTER_URL, COUNTER_KINDS };
extern const struct counter_kind counter_kinds[COUNTER_KINDS];

/* Adds a series to a reading whose value is not NAN; one that cannot count makes it so. */
void counter_add(struct counter_reading *r, uint64_t id, double value);

/* The reading is none: why. */
void counter_refuse(struct counter_reading *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void counter_read(const struct counter_kind *kind, const char *text,
		  const struct deadline_stop *stop, struct counter_reading *ret);

/* Pure: of a run from begin to end.  A series that is there at the end alone counts whole: a
 * counter begins at 0 and is told from then on.  Not so where the server says that it began
 * earlier. */
void counter_between(const struct counter_reading *first, const struct counter_reading *last,
		     uint64_t begin_ns, uint64_t end_ns, struct counter *ret);

#endif
