/* counter: computes how much a counter of a server grew during a run, such as its number of
 * generated tokens.
 *
 * A command of the user or a request to a URL reads the counter shortly before the start and
 * shortly after the end.  Between a reading and the run, the server may count something that
 * does not belong to the run; `edge` estimates this error. */
#ifndef GW_CLI_COUNTER_H
#define GW_CLI_COUNTER_H

#include "client.h"

#include "base/clock.h"
#include "measure/meter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTER_SERIES  256
#define COUNTER_WHY     320
#define COUNTER_MOST_NS (10 * NS_PER_S) /* Longest time for one reading. */

/* One series of a counter; a server may have one per model or engine. */
struct counter_series {
	uint64_t id; /* Hash of its labels. */
	double value;
	/* Time at which the value was 0, in seconds since 1970 on the server's clock. NAN:
	 * unknown. */
	double created_s;
};

#define COUNTER_NAME 640

struct counter_reading {
	/* Name of the counter, with the labels that select its series. "": the counter has no
	 * name. */
	char name[COUNTER_NAME];
	double value;          /* Sum of all series. NAN: the counter could not be read. */
	char why[COUNTER_WHY]; /* Why the counter could not be read. */
	/* Monotonic times just before and just after the reading. */
	uint64_t before_ns, after_ns;
	double wall_s; /* Wall clock at before_ns, in seconds since 1970. */
	struct counter_series series[COUNTER_SERIES];
	unsigned n;
};

struct counter {
	double number; /* Growth of the counter during the run. NAN: unknown. */
	/* Estimated part of `number` that was counted just before or just after the run and
	 * does not belong to it. */
	double edge;
	/* Number of series that were not in the first reading, and the sum of their values. The
	 * whole sum is part of `number`. */
	unsigned fresh;
	double fresh_number;
	/* The start time of at least one series that was not in the first reading is
	 * unknown. */
	bool fresh_assumed;
	char why[COUNTER_WHY]; /* Why `number` is unknown. */
};

/* A way to read a counter. For COUNTER_CMD, the text is a shell command. For COUNTER_URL, it is
 * http://HOST[:PORT][/PATH][#NAME]; counter_text() describes NAME. */
struct counter_kind {
	const char *option; /* Name of the option without the dashes. */
	/* Writes the name of the source for the result, without secrets.  NULL: the result does
	 * not name the source. */
	void (*place)(const char *text, char *out, size_t size);
	/* Checks the value of the option.  Returns 0, or -GW_E_ARG with a sentence in `why`. */
	int (*check)(const char *text, char *why, size_t size);
	/* Sets value and series, or why.  Takes at most ten seconds.  `stop` (may be NULL) ends
	 * the reading earlier. */
	void (*read)(const char *text, const struct deadline_stop *stop,
		     struct counter_reading *ret);
	/* Finds the processes on this machine that own the counter, and returns their number.
	 * Returns 0 if they are unknown or on another machine.  NULL: this kind of counter
	 * cannot find them. */
	unsigned (*find_servers)(const char *text, const struct deadline_stop *stop,
				 int64_t ret_pid[static METER_SERVERS]);
};
enum { COUNTER_CMD, COUNTER_URL, COUNTER_KINDS };
extern const struct counter_kind counter_kinds[COUNTER_KINDS];

void counter_read(const struct counter_kind *kind, const char *text,
		  const struct deadline_stop *stop, struct counter_reading *ret);

/* Computes the count of a run from two readings. If a series is only in the last reading, its
 * whole value is added to the count, because a counter starts at 0. If the server says that
 * such a series started before the run, the count is unknown. The function is pure. */
void counter_between(const struct counter_reading *first, const struct counter_reading *last,
		     uint64_t begin_ns, uint64_t end_ns, struct counter *ret);

/* Finds a counter in the reply of a server: Prometheus text (or OpenMetrics), JSON, or a single
 * number.  Adds each series to the reading, or marks the reading as failed.  text has n bytes,
 * and text[n] must be NUL.  The function is pure.
 *
 * `what` selects the series.  In Prometheus text, `name` selects all series of the counter, and
 * `name{label="v",...}` the series with these labels.  In JSON, `what` is the path of a number:
 * keys and array indexes separated by dots.  NULL selects the counter of generated tokens of a
 * known server, or the single number. */
void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret);

#endif
