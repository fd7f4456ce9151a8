/* timespec_parse: parses times and durations of a query. */
#ifndef GW_SERVE_TIMESPEC_PARSE_H
#define GW_SERVE_TIMESPEC_PARSE_H

#include <stdint.h>

/* The longest duration. The last accepted time is this many days after the start of 1970. */
#define TIMESPEC_MOST_DAYS 100000
#define TIMESPEC_LAST_YEAR 2243

/* Reads "2026-01-31T12:00:00Z" (also fractions and offsets), seconds since 1970, "now", or a
 * time relative to now: "-90", "-15m", "-1h30m". Returns 0 with *ret_wall_ns in ns since 1970,
 * or -GW_E_PARSE. */
int timespec_parse(const char *text, uint64_t now_wall_ns, uint64_t *ret_wall_ns);

/* Reads "10", "10s", "1m30s", "500ms", "1h", "2d". Returns 0 with *ret_ns, or -GW_E_PARSE. */
int timespec_parse_span(const char *text, uint64_t *ret_ns);

#endif
