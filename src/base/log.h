/* log: one line per event to a descriptor, as logfmt or JSON.
 *
 * Only the daemon logs; the layers below return errors. A line is built in
 * a fixed buffer and written with one write(), so that lines of several threads do not mix and
 * nothing is allocated. A line that does not fit is cut and marked with cut=true. A line that
 * cannot be written at once is dropped; a later line reports the number of dropped lines. */
#ifndef GW_BASE_LOG_H
#define GW_BASE_LOG_H

#include "clock.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log {
	int fd;
	enum log_level level; /* lines with a higher number (less urgent) are not written */
	enum log_format format;
	const struct clock *clock;
	/* Number of lines that were dropped since the last line that reports their number. */
	_Atomic uint64_t dropped;
};

/* Sets up a log that writes to fd. If fd is a pipe or a terminal, the log opens it a second
 * time, because O_NONBLOCK on fd would also affect the other programs that use it. The second
 * descriptor is never closed. */
void log_init(struct log *l, int fd, enum log_level level, enum log_format format,
	      const struct clock *clock);

/* One key and value of a line; use the macros below. */
struct log_pair {
	enum { LOG_PAIR_STRING, LOG_PAIR_INT, LOG_PAIR_DOUBLE, LOG_PAIR_BOOL } type;
	const char *key;
	union {
		const char *s;
		int64_t i;
		double d;
		bool b;
	} v;
};
#define LOG_S(k, x) ((struct log_pair){ LOG_PAIR_STRING, k, { .s = (x) } })
#define LOG_I(k, x) ((struct log_pair){ LOG_PAIR_INT, k, { .i = (x) } })
#define LOG_D(k, x) ((struct log_pair){ LOG_PAIR_DOUBLE, k, { .d = (x) } })
#define LOG_B(k, x) ((struct log_pair){ LOG_PAIR_BOOL, k, { .b = (x) } })

/* Writes one line: time=... level=... msg="..." key=value ... pairs may be NULL if n is 0. */
void log_write(struct log *l, enum log_level level, const char *msg,
	       const struct log_pair *pairs, unsigned n);

/* Example: LOG(l, LOG_INFO, "nvml ready", LOG_I("gpus", 2), LOG_S("driver", "580.1")) */
#define LOG(l, level, msg, ...)                                            \
	log_write(l, level, msg, (const struct log_pair[]){ __VA_ARGS__ }, \
		  sizeof((const struct log_pair[]){ __VA_ARGS__ }) / sizeof(struct log_pair))

/* Helps to log a state once when it begins and once when it ends. log_latch() returns true only
 * if `on` has another value than at the last call. It counts the other calls in `repeats`; the
 * caller logs this number when the state ends. */
struct log_latch {
	bool on;
	uint64_t repeats;
};
bool log_latch(struct log_latch *latch, bool on);

/* Parse "error", "warning", "info", "debug" and "logfmt", "json". Return 0 or -GW_E_ARG. */
int log_level_parse(const char *text, enum log_level *ret);
int log_format_parse(const char *text, enum log_format *ret);

#endif
