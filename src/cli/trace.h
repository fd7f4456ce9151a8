/* trace: reads the CSV file of an external power meter.
 *
 * The first line names the columns.  The column of the time is named time, timestamp, time_utc,
 * timestamp_utc or unix_s; a time is RFC 3339 or seconds since 1970.  The column of the power
 * is named power_w, power_watts, watts or power.  "Time (UTC)" and "Power (W)" are also
 * accepted, and other columns are ignored.  A time without an offset is accepted only if the
 * name of its column says UTC.  The separator is a comma, semicolon or tab. */
#ifndef GW_CLI_TRACE_H
#define GW_CLI_TRACE_H

#include <stddef.h>

struct trace_point {
	double t_s, w; /* Time in seconds since 1970, and power in watts. */
};

struct trace {
	struct trace_point *point; /* n points in ascending time order. */
	size_t n;
	/* Number of ignored lines: they have no time or power, or are not later than the line
	 * before. */
	size_t passed_over;
	char *text; /* Content of the file. */
	size_t length;
	char sha256[65];
};

/* Reads a file.  Returns 0; then call trace_done().  On error returns a negative code with a
 * sentence in `why`. */
int trace_read(struct trace *t, const char *path, char *why, size_t size);

/* Parses a string of n bytes that is followed by a NUL.  The string must come from malloc(),
 * and the trace then owns it.  path is used only in error messages. */
int trace_parse(struct trace *t, const char *path, char *text, size_t n, char *why,
		size_t size);

/* Checks the first line of a file, which may not exist yet or may still grow.  Returns 0 if the
 * line is good or does not exist yet.  Otherwise returns -GW_E_PARSE with a sentence in
 * `why`. */
int trace_check(const char *path, char *why, size_t size);
void trace_done(struct trace *t);

#endif
