#include "energy_total.h"

#include <math.h>
#include <string.h>

#define HOLE_STEPS 3.0 /* same as ENERGY_HOLE_STEPS */

void energy_total_init(struct energy_total *t, double spacing_s)
{
	memset(t, 0, sizeof(*t));
	t->spacing_s = spacing_s;
}

static double energy_total_seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

static void energy_total_sample(struct energy_total *t, uint64_t t_ns, double w)
{
	double dt = energy_total_seconds(t->last_ns, t_ns), part;

	if (!(w >= 0) || (t->sampled && t_ns <= t->last_ns))
		return;
	if (t->sampled && dt <= HOLE_STEPS * t->spacing_s) {
		/* The counter covers the time before its last reading. */
		uint64_t from =
			t->read && t->reading_ns > t->last_ns ? t->reading_ns : t->last_ns;
		double begin_w;

		part = energy_total_seconds(from, t_ns);
		begin_w = w + (t->last_w - w) * part / dt;
		t->since_j += 0.5 * (begin_w + w) * part;
		t->measured_s += part;
	}
	t->sampled = true;
	t->last_ns = t_ns;
	t->last_w = w;
}

static void energy_total_read(struct energy_total *t, uint64_t t_ns, double joules)
{
	if (t->read && joules >= t->reading_j) {
		/* The difference includes the energy of the samples since then. */
		t->counted_j += joules - t->reading_j;
		t->since_j = 0;
	} else {
		/* The first reading, or the counter was reset: keep the sum so far. */
		t->counted_j += t->since_j;
		t->since_j = 0;
	}
	t->read = true;
	t->reading_j = joules;
	t->reading_ns = t_ns;
}

void energy_total_feed(struct energy_total *t, const struct event *e)
{
	if (e->type == EVENT_POWER)
		energy_total_sample(t, e->t_ns, e->u.power_w);
	else if (e->type == EVENT_COUNTER)
		energy_total_read(t, e->t_ns, e->u.counter.joules);
}

double energy_total_joules(struct energy_total *t)
{
	t->shown_j = fmax(t->shown_j, t->counted_j + t->since_j);
	return t->shown_j;
}
