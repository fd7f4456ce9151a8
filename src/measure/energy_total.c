#include "energy_total.h"

#include "energy_parts.h"

#include <math.h>
#include <string.h>

void energy_total_init(struct energy_total *t, double spacing_s)
{
	memset(t, 0, sizeof(*t));
	t->spacing_s = spacing_s;
}

static void energy_total_sample(struct energy_total *t, uint64_t t_ns, double w)
{
	double dt = span_s(t->last_ns, t_ns), part;

	if (!(w >= 0) || (t->sampled && t_ns <= t->last_ns))
		return;
	if (t->sampled && dt <= ENERGY_HOLE_STEPS * t->spacing_s) {
		/* The counter already covers the time before its last reading. */
		uint64_t from =
			t->read && t->reading_ns > t->last_ns ? t->reading_ns : t->last_ns;
		double begin_w;

		part = fmax(0, span_s(from, t_ns));
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
		/* The difference includes the energy of the samples since the last reading. */
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
