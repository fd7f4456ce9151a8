#include "sensor_watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COSTS      8192u
#define DRAIN_NS   NS_PER_S
#define TRACES     3u
#define COST_KINDS 3u

int watch_init(struct event_watch *w, struct sampler_device *t)
{
	struct fit_point *p;
	double *c;

	memset(w, 0, sizeof(*w));
	w->tap = t;
	w->clock = t->clock;
	w->zero_ns = w->next_poll_ns = w->next_drain_ns = clock_mono_ns(w->clock);
	w->poll_ns = WATCH_POLL;
	w->average_quantity = GW_Q_POWER;
	w->memory =
		malloc(TRACES * WATCH_POINTS * sizeof(*p) + COST_KINDS * COSTS * sizeof(*c));
	if (!w->memory)
		return -GW_E_NOMEM;
	p = w->memory;
	w->instant.p = p;
	w->average.p = p + WATCH_POINTS;
	w->ring.p = p + 2 * WATCH_POINTS;
	c = (double *)(p + TRACES * WATCH_POINTS);
	w->poll_cost.s = c;
	w->ring_cost.s = c + COSTS;
	w->counter_cost.s = c + 2 * COSTS;
	watch_clear(w);
	return 0;
}

void watch_done(struct event_watch *w)
{
	free(w->memory);
	w->memory = NULL;
}

void watch_clear_values(struct event_watch *w)
{
	w->instant.n = w->average.n = 0;
	w->instant.last_w = w->average.last_w = NAN;
}

void watch_clear(struct event_watch *w)
{
	watch_clear_values(w);
	w->ring.n = 0;
}

uint64_t watch_next(uint64_t at_ns, uint64_t step_ns, uint64_t now_ns)
{
	at_ns += step_ns;
	if (at_ns < now_ns)
		at_ns += (now_ns - at_ns + step_ns - 1) / step_ns * step_ns;
	return at_ns;
}

static void add_cost(struct watch_cost *c, uint64_t before_ns, uint64_t after_ns)
{
	if (c->n < COSTS)
		c->s[c->n++] = (double)(after_ns - before_ns) * 1e-9;
}

static void add_point(struct watch_trace *t, double t_s, double w)
{
	if (t->n < WATCH_POINTS)
		t->p[t->n++] = (struct fit_point){ t_s, w };
}

static void note_value(struct event_watch *w, struct watch_trace *t, unsigned quantity,
		       double t_s)
{
	double v = w->r.v[quantity];

	if (!report_has(&w->r, quantity) || v == t->last_w)
		return;
	t->last_w = v;
	add_point(t, t_s, v);
}

static void poll(struct event_watch *w)
{
	uint64_t before = clock_mono_ns(w->clock), after;
	double t_s;

	sampler_device_read(w->tap, GW_TIER_FAST, true, &w->r);
	after = clock_mono_ns(w->clock);
	add_cost(&w->poll_cost, before, after);
	t_s = watch_s(w, before + (after - before) / 2);
	note_value(w, &w->instant, GW_Q_POWER_INSTANT, t_s);
	note_value(w, &w->average, w->average_quantity, t_s);
}

/* How many of ring_now were in ring_before: drains are joined where the old one's last sample is
 * found again, by stamp and value, so that a step of the wall clock loses and repeats nothing. */
static unsigned known(const struct event_watch *w, unsigned n)
{
	const struct power_sample *last;

	if (w->ring_count == 0)
		return 0;
	last = &w->ring_before[w->ring_count - 1];
	for (unsigned i = n; i-- > 0;)
		if (w->ring_now[i].wall_us == last->wall_us &&
		    w->ring_now[i].power_w == last->power_w)
			return i + 1;
	return 0;
}

void watch_drain(struct event_watch *w)
{
	uint64_t before = clock_mono_ns(w->clock), after, wall;
	int n = sampler_device_ring(w->tap, w->ring_now, WATCH_RING);
	double offset_s;

	wall = clock_wall_ns(w->clock);
	after = clock_mono_ns(w->clock);
	w->ring_error = n < 0 ? n : 0;
	if (n <= 0)
		return;
	add_cost(&w->ring_cost, before, after);
	w->ring_age_s = (double)(int64_t)(wall / NS_PER_US - w->ring_now[n - 1].wall_us) * 1e-6;
	/* Differences first: a double does not hold ns since 1970. */
	offset_s = watch_s(w, after);
	for (unsigned i = known(w, (unsigned)n); i < (unsigned)n; i++) {
		int64_t ago_ns = (int64_t)(wall - w->ring_now[i].wall_us * NS_PER_US);

		add_point(&w->ring, offset_s - (double)ago_ns * 1e-9, w->ring_now[i].power_w);
	}
	memcpy(w->ring_before, w->ring_now, (unsigned)n * sizeof(w->ring_now[0]));
	w->ring_count = (unsigned)n;
}

void watch_counter(struct event_watch *w, struct sampler_device_counter *ret, double *ret_t_s)
{
	sampler_device_counter(w->tap, ret);
	add_cost(&w->counter_cost, ret->before_ns, ret->after_ns);
	*ret_t_s = watch_s(w, ret->before_ns + (ret->after_ns - ret->before_ns) / 2);
}

uint64_t watch_due(struct event_watch *w)
{
	uint64_t now = clock_mono_ns(w->clock);

	if (now >= w->next_poll_ns) {
		poll(w);
		now = clock_mono_ns(w->clock);
		w->next_poll_ns = watch_next(w->next_poll_ns, w->poll_ns, now);
	}
	if (now >= w->next_drain_ns) {
		watch_drain(w);
		now = clock_mono_ns(w->clock);
		w->next_drain_ns = watch_next(w->next_drain_ns, DRAIN_NS, now);
	}
	return w->next_poll_ns < w->next_drain_ns ? w->next_poll_ns : w->next_drain_ns;
}

void watch_until(struct event_watch *w, uint64_t mono_ns)
{
	while (clock_mono_ns(w->clock) < mono_ns) {
		uint64_t due = watch_due(w);

		clock_sleep_until(w->clock, due < mono_ns ? due : mono_ns);
	}
}
