/* clock: the source of time.
 *
 * Everything that waits, expires or records a time uses a struct clock, so that a test can
 * control the time. Durations and deadlines are monotonic; wall time is only for labels and
 * cache expiry. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

struct clock {
	uint64_t (*mono_ns)(void *ctx); /* never decreases */
	uint64_t (*wall_ns)(void *ctx); /* since 1970-01-01 UTC; may jump in both directions */
	void *ctx;
	/* Sleeps until the time of this clock is at least mono_ns. A stepped clock does not
	 * sleep: it sets its time to mono_ns. NULL if no code sleeps on this clock. */
	void (*sleep_until)(void *ctx, uint64_t mono_ns);
};

/* Returns the machine's own clocks (CLOCK_MONOTONIC, CLOCK_REALTIME). Never NULL. */
const struct clock *clock_real(void);

/* A clock for tests. It advances only when a test calls clock_step() or when code sleeps on it.
 * Several threads may read it. */
struct clock_stepped {
	struct clock clock;
	_Atomic uint64_t mono_ns;
	_Atomic uint64_t wall_ns;
};
void clock_stepped_init(struct clock_stepped *c, uint64_t mono_ns, uint64_t wall_ns);
void clock_step(struct clock_stepped *c, uint64_t ns);

static inline uint64_t clock_mono_ns(const struct clock *c)
{
	return c->mono_ns(c->ctx);
}

static inline uint64_t clock_wall_ns(const struct clock *c)
{
	return c->wall_ns(c->ctx);
}

static inline void clock_sleep_until(const struct clock *c, uint64_t mono_ns)
{
	c->sleep_until(c->ctx, mono_ns);
}

/* Returns the milliseconds until a monotonic time, rounded up; 0 if it has passed. */
static inline uint64_t clock_ms_until(const struct clock *c, uint64_t mono_ns)
{
	uint64_t now = clock_mono_ns(c), left = mono_ns > now ? mono_ns - now : 0;

	return left / NS_PER_MS + (left % NS_PER_MS != 0);
}

/* Converts a time or a duration to a struct timespec, for system calls. */
static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S),
				  .tv_nsec = (long)(ns % NS_PER_S) };
}

/* Writes a wall time as "2026-01-31T12:00:00.123Z" (RFC 3339, UTC, milliseconds). */
#define CLOCK_RFC3339_SIZE 32
void clock_format_rfc3339(uint64_t wall_ns, char out[static CLOCK_RFC3339_SIZE]);

#endif
