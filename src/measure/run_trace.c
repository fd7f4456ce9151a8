#include "run_trace.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define AROUND_NS ((uint64_t)(RUN_TRACE_AROUND_S * 1e9))
/* While no run is measured, only the data of this last period is kept. */
#define WAITING_NS (4 * AROUND_NS)

struct device {
	pthread_mutex_t lock;
	bool running;
	struct run_trace_power power[RUN_TRACE_POINTS];
	size_t powers;
	/* Number of samples that become two points. If it is 1, each sample is a point. */
	unsigned group;
	unsigned in_group;                /* number of samples in the current group */
	struct run_trace_power low, high; /* lowest and highest sample of the current group */
	struct run_trace_tick tick[RUN_TRACE_POINTS];
	size_t ticks;
	unsigned stride; /* one of every `stride` ticks is kept */
	unsigned passed; /* number of ticks since `stride` was last set */
};

struct run_trace {
	unsigned count;
	struct device *device;
};

struct run_trace *run_trace_new(unsigned devices)
{
	struct run_trace *s = calloc(1, sizeof(*s));

	if (s)
		s->device = calloc(devices ? devices : 1, sizeof(*s->device));
	if (!s || !s->device) {
		free(s);
		return NULL;
	}
	s->count = devices;
	for (unsigned i = 0; i < devices; i++) {
		pthread_mutex_init(&s->device[i].lock, NULL);
		s->device[i].group = s->device[i].stride = 1;
	}
	return s;
}

void run_trace_free(struct run_trace *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->count; i++)
		pthread_mutex_destroy(&s->device[i].lock);
	free(s->device);
	free(s);
}

static void take_extremes(struct device *d, const struct run_trace_power *p)
{
	if (d->in_group == 0)
		d->low = d->high = *p;
	if (p->w < d->low.w)
		d->low = *p;
	if (p->w > d->high.w)
		d->high = *p;
	d->in_group++;
}

/* Writes the group's lowest and highest sample, in their order in time. */
static void write_extremes(struct device *d)
{
	bool rising = d->low.t_ns <= d->high.t_ns;

	d->power[d->powers++] = rising ? d->low : d->high;
	if (d->low.t_ns != d->high.t_ns)
		d->power[d->powers++] = rising ? d->high : d->low;
	d->in_group = 0;
}

/* Halves the number of points: four points (two groups, or four samples) become two points. */
static void thin_power(struct device *d)
{
	size_t n = d->powers;

	d->powers = 0;
	d->in_group = 0;
	for (size_t i = 0; i < n; i++) {
		take_extremes(d, &d->power[i]);
		if (d->in_group == 4)
			write_extremes(d);
	}
	if (d->in_group > 0)
		write_extremes(d);
	d->group *= d->group == 1 ? 4 : 2;
}

static void add_power(struct device *d, uint64_t t_ns, double w)
{
	struct run_trace_power p = { t_ns, (float)w };

	if (d->powers + 2 > RUN_TRACE_POINTS)
		thin_power(d);
	if (d->group == 1) {
		d->power[d->powers++] = p;
		return;
	}
	take_extremes(d, &p);
	if (d->in_group >= d->group)
		write_extremes(d);
}

static void add_tick(struct device *d, const struct event *e)
{
	const double *f = e->u.tick.figure;

	if (d->passed++ % d->stride != 0)
		return;
	if (d->ticks == RUN_TRACE_POINTS) {
		d->ticks = 0;
		for (size_t i = 0; i < RUN_TRACE_POINTS; i += 2)
			d->tick[d->ticks++] = d->tick[i];
		d->stride *= 2;
		d->passed = 1;
	}
	d->tick[d->ticks++] = (struct run_trace_tick){
		.t_ns = e->t_ns,
		.temperature_c = (float)f[FIGURE_TEMPERATURE_GPU],
		.clock_sm_hz = (float)f[FIGURE_CLOCK_SM],
		.utilization = (float)f[FIGURE_UTILIZATION_GPU],
		.memory_bytes = f[FIGURE_MEMORY_USED],
		.reasons = f[FIGURE_CLOCK_REASONS],
	};
}

static void delete_before(struct device *d, uint64_t t_ns)
{
	size_t p = 0, t = 0;

	while (p < d->powers && d->power[p].t_ns < t_ns)
		p++;
	while (t < d->ticks && d->tick[t].t_ns < t_ns)
		t++;
	memmove(d->power, d->power + p, (d->powers - p) * sizeof(*d->power));
	memmove(d->tick, d->tick + t, (d->ticks - t) * sizeof(*d->tick));
	d->powers -= p;
	d->ticks -= t;
}

void run_trace_event(void *arg, unsigned i, const struct event *e)
{
	struct run_trace *s = arg;
	struct device *d;

	if (i >= s->count || (e->type != EVENT_POWER && e->type != EVENT_TICK))
		return;
	d = &s->device[i];
	pthread_mutex_lock(&d->lock);
	if (!d->running && d->powers && d->power[0].t_ns + WAITING_NS < e->t_ns)
		delete_before(d, e->t_ns - AROUND_NS);
	if (e->type == EVENT_POWER)
		add_power(d, e->t_ns, e->u.power_w);
	else
		add_tick(d, e);
	pthread_mutex_unlock(&d->lock);
}

void run_trace_begin(struct run_trace *s, uint64_t begin_ns)
{
	for (unsigned i = 0; i < s->count; i++) {
		struct device *d = &s->device[i];

		pthread_mutex_lock(&d->lock);
		delete_before(d, begin_ns > AROUND_NS ? begin_ns - AROUND_NS : 0);
		d->group = d->stride = 1;
		d->in_group = d->passed = 0;
		d->running = true;
		pthread_mutex_unlock(&d->lock);
	}
}

int run_trace_copy(struct run_trace *s, unsigned i, uint64_t end_ns, struct run_trace_copy *ret)
{
	struct device *d = &s->device[i];
	struct run_trace_copy c = { .power = malloc(sizeof(d->power)),
				    .tick = malloc(sizeof(d->tick)) };

	if (!c.power || !c.tick) {
		run_trace_copy_done(&c);
		return -GW_E_NOMEM;
	}
	pthread_mutex_lock(&d->lock);
	if (d->in_group > 0 && d->powers + 2 <= RUN_TRACE_POINTS)
		write_extremes(d);
	while (c.powers < d->powers && d->power[c.powers].t_ns <= end_ns + AROUND_NS)
		c.powers++;
	while (c.ticks < d->ticks && d->tick[c.ticks].t_ns <= end_ns + AROUND_NS)
		c.ticks++;
	memcpy(c.power, d->power, c.powers * sizeof(*c.power));
	memcpy(c.tick, d->tick, c.ticks * sizeof(*c.tick));
	d->running = false;
	d->group = d->stride = 1;
	pthread_mutex_unlock(&d->lock);
	*ret = c;
	return 0;
}

void run_trace_copy_done(struct run_trace_copy *c)
{
	free(c->power);
	free(c->tick);
	memset(c, 0, sizeof(*c));
}
