#include "load.h"

#include <stdlib.h>

#define RAMP_STEP_NS UINT64_C(20000000)

/* Returns the index of the last point at or before t, or n_points if there is none. Time
 * usually advances a little, so the last result is tried before a search. */
static size_t point_before(struct load *l, uint64_t t_ns)
{
	size_t i = l->hint;
	size_t low = 0, high = l->n_points;

	if (i < l->n_points && l->points[i].at_ns <= t_ns) {
		if (i + 1 >= l->n_points || l->points[i + 1].at_ns > t_ns)
			return i;
		low = i + 1;
	}
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (l->points[middle].at_ns <= t_ns)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return l->n_points;
	l->hint = low - 1;
	return low - 1;
}

static double steps_at(struct load *l, uint64_t t_ns, uint64_t *until_ns)
{
	uint64_t base = 0;
	size_t i;

	if (l->period_ns != 0) {
		base = t_ns - t_ns % l->period_ns;
		min_time(until_ns, base + l->period_ns);
	}
	i = point_before(l, t_ns - base);
	if (i == l->n_points) {
		if (l->n_points != 0)
			min_time(until_ns, base + l->points[0].at_ns);
		return l->low;
	}
	if (i + 1 < l->n_points)
		min_time(until_ns, base + l->points[i + 1].at_ns);
	if (l->kind == LOAD_BURSTS)
		return l->points[i].level > 0 ? l->high : l->low;
	return l->points[i].level;
}

static double square_at(const struct load *l, uint64_t t_ns, uint64_t *until_ns)
{
	uint64_t phase = t_ns % l->period_ns;

	if (phase < l->on_ns) {
		min_time(until_ns, t_ns - phase + l->on_ns);
		return l->high;
	}
	min_time(until_ns, t_ns - phase + l->period_ns);
	return l->low;
}

static double ramp_at(const struct load *l, uint64_t t_ns, uint64_t *until_ns)
{
	uint64_t step = t_ns - t_ns % RAMP_STEP_NS;

	if (t_ns >= l->ramp_ns)
		return l->high;
	min_time(until_ns, step + RAMP_STEP_NS);
	return l->low + (l->high - l->low) * ((double)step + 0.5 * (double)RAMP_STEP_NS) /
				(double)l->ramp_ns;
}

bool load_at(struct load *l, uint64_t t_ns, double *level, uint64_t *until_ns)
{
	uint64_t until = UINT64_MAX;

	*until_ns = UINT64_MAX;
	*level = 0;
	if (t_ns < l->from_ns) {
		*until_ns = l->from_ns;
		return false;
	}
	if (l->until_ns != 0 && t_ns >= l->until_ns)
		return false;
	t_ns -= l->from_ns;
	switch (l->kind) {
	case LOAD_CONSTANT: *level = l->high; break;
	case LOAD_STEPS:
	case LOAD_BURSTS: *level = steps_at(l, t_ns, &until); break;
	case LOAD_SQUARE: *level = square_at(l, t_ns, &until); break;
	case LOAD_RAMP: *level = ramp_at(l, t_ns, &until); break;
	}
	if (until != UINT64_MAX)
		*until_ns = until + l->from_ns;
	if (l->until_ns != 0)
		min_time(until_ns, l->until_ns);
	return true;
}

void load_done(struct load *l)
{
	free(l->points);
	l->points = NULL;
	l->n_points = 0;
}
