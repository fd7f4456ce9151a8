/* Sums of a window while samples arrive. */
#include "energy_parts.h"

#include <math.h>
#include <string.h>

#define BUCKET_MIN_W 0.01
#define BUCKET_STEP  0.005

void energy_open(struct energy_window *w, uint64_t begin_ns, double hint_period_s)
{
	memset(w, 0, sizeof(*w));
	w->begin_ns = begin_ns;
	w->hint_period_s = hint_period_s;
	w->period_s = w->min_w = w->max_w = w->begin_w = NAN;
}

void energy_close(struct energy_window *w, uint64_t end_ns)
{
	w->end_ns = end_ns;
}

static unsigned bucket_of(double w)
{
	double b = log(fmax(w, BUCKET_MIN_W) / BUCKET_MIN_W) / log1p(BUCKET_STEP);

	return b < ENERGY_BUCKETS - 1 ? (unsigned)b : ENERGY_BUCKETS - 1;
}

double energy_bucket_watts(unsigned b)
{
	return BUCKET_MIN_W * exp((b + 0.5) * log1p(BUCKET_STEP));
}

/* Adds the part of the time before sample n that is in the window. */
static void take_sample(const struct energy *e, struct energy_window *w, uint64_t n)
{
	const struct energy_sample *s = energy_number(e, n);
	const struct energy_sample *before =
		n > energy_oldest(e) ? energy_number(e, n - 1) : NULL;
	uint64_t from = before && before->t_ns > w->begin_ns ? before->t_ns : w->begin_ns;
	uint64_t to = w->end_ns && s->t_ns > w->end_ns ? w->end_ns : s->t_ns;
	double dt = to > from ? span_s(from, to) : 0;
	bool hole = before && s->hole_s > before->hole_s;

	if (dt > w->longest_s)
		w->longest_s = dt;
	if (to < s->t_ns)
		return; /* beyond the end */
	w->collected++;
	w->min_w = isnan(w->min_w) ? s->w : fmin(w->min_w, s->w);
	w->max_w = isnan(w->max_w) ? s->w : fmax(w->max_w, s->w);
	if (before && !hole && w->collected > 1)
		w->noise_square += sq(s->w - before->w);
	if (hole)
		return;
	w->bucket[bucket_of(s->w)] += (float)dt;
	w->seen_s += dt;
}

/* The window was closed at a time before processed samples: process what is kept of it again. */
static void start_over(const struct energy *e, struct energy_window *w)
{
	if (!w->end_ns || !w->begin.known || w->next == 0 ||
	    w->begin.point.number < energy_oldest(e) ||
	    energy_number(e, w->next - 1)->t_ns <= w->end_ns)
		return;
	memset(w->bucket, 0, sizeof(w->bucket));
	w->collected = 0;
	w->longest_s = w->seen_s = w->noise_square = 0;
	w->min_w = w->max_w = NAN;
	w->next = w->begin.point.number;
}

bool energy_follow(const struct energy *e, struct energy_window *w)
{
	bool first = !w->begin.known;
	uint64_t n;

	if (w->end.known)
		return true;
	start_over(e, w);
	if (!w->begin.known) {
		if (energy_at(e, w->begin_ns, &w->begin.point) != 0)
			return false;
		w->begin.known = true;
		w->next = w->begin.point.number;
		w->begin.slope_w = energy_swing(e, w->begin_ns, energy_reach_s(e));
		w->begin_w = energy_watts(e, w->begin_ns);
	}
	/* Readings near the edge may come after it; later ones are not nearer. */
	if (e->reads && e->samples &&
	    (first || energy_number(e, e->samples - 1)->t_ns <
			      w->begin_ns + 2 * ENERGY_NEAR_NS + NS_PER_S))
		energy_take_read(e, w->begin_ns, &w->begin);
	if (w->next < energy_oldest(e))
		w->next = energy_oldest(e);
	for (n = w->next; n < e->samples; n++) {
		take_sample(e, w, n);
		if (w->end_ns && energy_number(e, n)->t_ns >= w->end_ns)
			break;
	}
	w->next = n;
	if (!w->end_ns || energy_at(e, w->end_ns, &w->end.point) != 0)
		return false;
	w->end.known = true;
	return true;
}

bool energy_is_near(const struct energy *e, const struct energy_window *w)
{
	double spacing = e->set.spacing_s;

	return w->end_ns && e->samples && span_s(w->begin_ns, w->end_ns) < spacing &&
	       energy_number(e, e->samples - 1)->t_ns + (uint64_t)(0.5e9 * spacing) >=
		       w->end_ns;
}

/* At the last sample or after it. */
static void held(const struct energy *e, uint64_t t_ns, struct energy_point *ret)
{
	const struct energy_sample *last = energy_number(e, e->samples - 1);
	double dt = span_s(last->t_ns, t_ns);

	energy_at_sample(last, e->samples - 1, ret);
	ret->joules += dt * last->w;
	ret->square += dt * sq(last->w);
}

bool energy_end_near(const struct energy *e, struct energy_window *w)
{
	if (!energy_is_near(e, w))
		return false;
	if (energy_follow(e, w))
		return true;
	if (!w->begin.known)
		held(e, w->begin_ns, &w->begin.point);
	held(e, w->end_ns, &w->end.point);
	w->begin.known = w->end.known = true;
	return true;
}

void energy_cut(const struct energy *e, struct energy_window *w)
{
	const struct energy_sample *last;
	double missing;

	if (energy_follow(e, w) || e->samples == 0)
		return;
	last = energy_number(e, e->samples - 1);
	if (!w->begin.known) { /* it began after the last sample */
		energy_at_sample(last, e->samples - 1, &w->begin.point);
		w->begin.known = true;
	}
	energy_at_sample(last, e->samples - 1, &w->end.point);
	missing = span_s(last->t_ns > w->begin_ns ? last->t_ns : w->begin_ns, w->end_ns);
	w->end.point.hole_s += missing;
	w->end.point.hole_j += missing * last->w;
	w->end.point.hole_var += sq(missing * last->w) / 12;
	if (missing > w->longest_s)
		w->longest_s = missing;
	w->end.known = w->cut = true;
}
