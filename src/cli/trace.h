/* trace: what an outside meter said, out of a CSV file.
 *
 * A head line names the columns: time, timestamp, time_utc or unix_s (RFC 3339, or seconds
 * since 1970) and power_w, power_watts, watts or power, also as "Power (W)" and "Time (UTC)";
 * others are passed over.  Times without an offset are read where their column is said to be
 * UTC, and there alone.  Commas, semicolons or tabs part them. */
#ifndef GW_CLI_TRACE_H
#define GW_CLI_TRACE_H

#include "calibrate.h"

struct trace {
	struct calibrate_point *point; /* t_s: seconds since 1970 */
	size_t n, passed_over; /* lines without both, or not later than the one before */
	char *text;            /* the file itself */
	size_t length;
	char sha256[65];
};

/* 0 and trace_done() ends it; else nothing is left to end: a gw_error with a sentence in
 * why. */
int trace_read(struct trace *t, const char *path, char *why, size_t size);
/* The same of a text of n bytes and a NUL, from malloc(); it is the trace's from now on.  path
 * only names it. */
int trace_parse(struct trace *t, const char *path, char *text, size_t n, char *why,
		size_t size);
/* Of a file that may be there already and may still grow: is its head one?  0 where there is
 * nothing to say yet, or -GW_E_PARSE with a sentence in why. */
int trace_check(const char *path, char *why, size_t size);
void trace_done(struct trace *t);

#endif
