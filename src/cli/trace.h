/* trace: reads the CSV file of an external power meter.
 *
 * The first line names the columns: time, timestamp, time_utc or unix_s (RFC 3339, or seconds
 * since 1970), and power_w, power_watts, watts or power; also "Power (W)" and "Time (UTC)".
 * Other columns are ignored.  Times without an offset are accepted only if the name of their
 * column says UTC.  The separator is a comma, semicolon or tab. */
#ifndef GW_CLI_TRACE_H
#define GW_CLI_TRACE_H

#include "calibrate.h"

struct trace {
	struct calibrate_point *point; /* t_s: seconds since 1970 */
	size_t n,
		passed_over; /* ignored lines: without both, or not later than the one before */
	char *text;          /* content of the file */
	size_t length;
	char sha256[65];
};

/* Returns 0, then call trace_done(); or an error with a sentence in why. */
int trace_read(struct trace *t, const char *path, char *why, size_t size);
/* The same for a text from malloc() of n bytes and a NUL, which the trace then owns.  path is
 * only its name. */
int trace_parse(struct trace *t, const char *path, char *text, size_t n, char *why,
		size_t size);
/* Checks the first line of a file that may not exist yet and may still grow.  Returns 0 if it
 * is good or not there yet, or -GW_E_PARSE with a sentence in why. */
int trace_check(const char *path, char *why, size_t size);
void trace_done(struct trace *t);

#endif
