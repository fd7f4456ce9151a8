#include "energy_parts.h"

#include <math.h>
#include <string.h>

void energy_init(struct energy *e, const struct energy_setup *set)
{
	memset(e, 0, sizeof(*e));
	e->set = *set;
}

const struct energy_sample *energy_number(const struct energy *e, uint64_t number)
{
	return &e->sample[number % ENERGY_SAMPLES];
}

uint64_t energy_oldest(const struct energy *e)
{
	return e->samples > ENERGY_SAMPLES ? e->samples - ENERGY_SAMPLES : 0;
}

bool energy_extremes(const struct energy *e, uint64_t from_ns, uint64_t to_ns, double *min,
		     double *max)
{
	bool any = false;

	for (uint64_t n = e->samples; n > energy_oldest(e); n--) {
		const struct energy_sample *s = energy_number(e, n - 1);

		if (s->t_ns < from_ns)
			break;
		if (s->t_ns > to_ns)
			continue;
		*min = any ? fmin(*min, s->w) : s->w;
		*max = any ? fmax(*max, s->w) : s->w;
		any = true;
	}
	return any;
}

static void add_hole(const struct energy *e, struct energy_sample *s,
		     const struct energy_sample *last, double dt)
{
	double min = s->w, max = s->w, low, high;

	if (energy_extremes(e, last->t_ns > ENERGY_NEAR_NS ? last->t_ns - ENERGY_NEAR_NS : 0,
			    last->t_ns, &low, &high)) {
		min = fmin(min, low);
		max = fmax(max, high);
	}
	s->hole_s += dt;
	s->hole_j += dt * 0.5 * (last->w + s->w);
	s->hole_var += sq(dt * (max - min)) / 12;
}

int energy_add(struct energy *e, uint64_t stamp_ns, double w)
{
	uint64_t lag = (uint64_t)llround(e->set.lag_s * 1e9);
	uint64_t t = stamp_ns > lag ? stamp_ns - lag : 0;
	double most =
		isnan(e->set.limit_w) ? ENERGY_MOST_W : 2 * ENERGY_OVER_LIMIT * e->set.limit_w;
	struct energy_sample *s = &e->sample[e->samples % ENERGY_SAMPLES], last;

	if (!(w >= 0 && w <= most))
		return -GW_E_ARG;
	if (e->samples == 0) {
		*s = (struct energy_sample){ .t_ns = t, .w = w };
		e->samples = 1;
		return 0;
	}
	last = *energy_number(e, e->samples - 1);
	if (t <= last.t_ns)
		return -GW_E_ARG;
	*s = last;
	s->t_ns = t;
	s->w = w;
	double dt = span_s(last.t_ns, t);

	if (dt > ENERGY_HOLE_STEPS * e->set.spacing_s) {
		/* A hole is counted, never bridged: a straight line across it would invent joules
		 * that nobody measured. */
		add_hole(e, s, &last, dt);
	} else {
		s->joules += 0.5 * (last.w + w) * dt;
		s->square += (sq(last.w) + last.w * w + sq(w)) / 3 * dt;
	}
	e->samples++;
	if (!e->fitted && e->reads && t > e->read[(e->reads - 1) % ENERGY_READS].after_ns)
		energy_find_phase(e);
	return 0;
}

uint64_t energy_find(const struct energy *e, uint64_t t_ns)
{
	uint64_t low = energy_oldest(e), high = e->samples;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (energy_number(e, mid)->t_ns < t_ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void energy_at_sample(const struct energy_sample *s, uint64_t number, struct energy_point *ret)
{
	*ret = (struct energy_point){ s->joules, s->square,   s->hole_s,
				      s->hole_j, s->hole_var, number };
}

/* Interpolates between two samples. */
static void between(const struct energy_sample *a, const struct energy_sample *b, uint64_t t_ns,
		    struct energy_point *ret)
{
	double whole = span_s(a->t_ns, b->t_ns), dt = span_s(a->t_ns, t_ns);
	double part = dt / whole;

	if (b->hole_s > a->hole_s) {
		ret->hole_s = a->hole_s + dt;
		ret->hole_j = a->hole_j + part * (b->hole_j - a->hole_j);
		ret->hole_var = a->hole_var + part * (b->hole_var - a->hole_var);
		ret->joules = a->joules;
		ret->square = a->square;
	} else {
		double w = a->w + part * (b->w - a->w);

		ret->hole_s = a->hole_s;
		ret->hole_j = a->hole_j;
		ret->hole_var = a->hole_var;
		ret->joules = a->joules + 0.5 * (a->w + w) * dt;
		ret->square = a->square + (sq(a->w) + a->w * w + sq(w)) / 3 * dt;
	}
}

int energy_at(const struct energy *e, uint64_t t_ns, struct energy_point *ret)
{
	uint64_t n = energy_find(e, t_ns);
	const struct energy_sample *s;

	if (n == e->samples)
		return 1;
	s = energy_number(e, n);
	ret->number = n;
	if (s->t_ns == t_ns) {
		energy_at_sample(s, n, ret);
		return 0;
	}
	if (n == energy_oldest(e)) {
		double before = span_s(t_ns, s->t_ns);

		if (n > 0)
			return -GW_E_NOENT;
		/* Before the first sample nothing was measured. */
		energy_at_sample(s, n, ret);
		if (before <= ENERGY_HOLE_STEPS * e->set.spacing_s) {
			ret->joules -= before * s->w; /* within the reach of one sample */
			ret->square -= before * sq(s->w);
		} else {
			ret->hole_s -= before;
			ret->hole_j -= before * s->w;
			ret->hole_var -= sq(before * s->w) / 12;
		}
		return 0;
	}
	between(energy_number(e, n - 1), s, t_ns, ret);
	return 0;
}

double energy_watts(const struct energy *e, uint64_t t_ns)
{
	uint64_t n = energy_find(e, t_ns);
	const struct energy_sample *a, *b;

	if (n == e->samples || n == energy_oldest(e))
		return NAN;
	a = energy_number(e, n - 1);
	b = energy_number(e, n);
	return a->w + (b->w - a->w) * span_s(a->t_ns, t_ns) / span_s(a->t_ns, b->t_ns);
}

double energy_swing(const struct energy *e, uint64_t t_ns, double reach_s)
{
	uint64_t reach = (uint64_t)(reach_s * 1e9);
	double min, max;

	return energy_extremes(e, t_ns > reach ? t_ns - reach : 0, t_ns + reach, &min, &max)
		       ? max - min
		       : 0;
}

double energy_reach_s(const struct energy *e)
{
	return fmax(e->set.spacing_s, e->set.window_s);
}
