#include "clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t real_mono(void *ctx)
{
	(void)ctx;
	return read_ns(CLOCK_MONOTONIC);
}

static uint64_t real_wall(void *ctx)
{
	(void)ctx;
	return read_ns(CLOCK_REALTIME);
}

static void real_sleep(void *ctx, uint64_t mono_ns)
{
	struct timespec ts = clock_timespec(mono_ns);

	(void)ctx;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

const struct clock *clock_real(void)
{
	static const struct clock real = { real_mono, real_wall, NULL, real_sleep };

	return &real;
}

static uint64_t stepped_mono(void *ctx)
{
	struct clock_stepped *c = ctx;

	return atomic_load(&c->mono_ns);
}

static uint64_t stepped_wall(void *ctx)
{
	struct clock_stepped *c = ctx;

	return atomic_load(&c->wall_ns);
}

static void stepped_sleep(void *ctx, uint64_t mono_ns)
{
	struct clock_stepped *c = ctx;
	uint64_t now = atomic_load(&c->mono_ns);

	if (mono_ns > now)
		clock_step(c, mono_ns - now);
}

void clock_stepped_init(struct clock_stepped *c, uint64_t mono_ns, uint64_t wall_ns)
{
	c->clock = (struct clock){ stepped_mono, stepped_wall, c, stepped_sleep };
	atomic_init(&c->mono_ns, mono_ns);
	atomic_init(&c->wall_ns, wall_ns);
}

void clock_step(struct clock_stepped *c, uint64_t ns)
{
	atomic_fetch_add(&c->mono_ns, ns);
	atomic_fetch_add(&c->wall_ns, ns);
}

void clock_format_rfc3339(uint64_t wall_ns, char out[static CLOCK_RFC3339_SIZE])
{
	time_t s = (time_t)(wall_ns / NS_PER_S);
	unsigned ms = (unsigned)(wall_ns % NS_PER_S / NS_PER_MS);
	struct tm tm;
	char date[24];

	gmtime_r(&s, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, CLOCK_RFC3339_SIZE, "%s.%03uZ", date, ms);
}
