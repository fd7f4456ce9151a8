#include "energy_parts.h"
#include "event.h"

#include <math.h>
#include <string.h>

#define BUCKET_MIN_W 0.01
#define BUCKET_STEP  0.005

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
	double min = s->w, max = min, low, high;

	if (energy_extremes(e, last->t_ns > ENERGY_NEAR_NS ? last->t_ns - ENERGY_NEAR_NS : 0,
			    last->t_ns, &low, &high)) {
		min = fmin(min, low);
		max = fmax(max, high);
	}
	s->hole_s += dt;
	s->hole_j += dt * 0.5 * (last->w + s->w);
	s->hole_var += sq(dt * (max - min)) / 12;
}

/* Returns true if the board can have this power. The bound is twice the bound for the mean
 * power between two counter readings (ENERGY_OVER_LIMIT), because a single sample can be
 * higher. */
static bool energy_power_possible(const struct energy_setup *set, double w)
{
	return w >= 0 && w <= (isnan(set->limit_w) ? ENERGY_MOST_W
						   : 2 * ENERGY_OVER_LIMIT * set->limit_w);
}

int energy_add(struct energy *e, uint64_t stamp_ns, double w)
{
	uint64_t lag = (uint64_t)llround(e->set.lag_s * 1e9);
	uint64_t t = stamp_ns > lag ? stamp_ns - lag : 0;
	struct energy_sample *s = &e->sample[e->samples % ENERGY_SAMPLES], last;

	if (!energy_power_possible(&e->set, w))
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
		/* A gap is counted, not bridged: a straight line across it would add joules
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

static void energy_at_sample(const struct energy_sample *s, uint64_t number,
			     struct energy_point *ret)
{
	*ret = (struct energy_point){ s->joules, s->square,   s->hole_s,
				      s->hole_j, s->hole_var, number };
}

/* Interpolates the integrals between two samples. The caller has set ret->number. */
static void sample_between(const struct energy_sample *a, const struct energy_sample *b,
			   uint64_t t_ns, struct energy_point *ret)
{
	double whole = span_s(a->t_ns, b->t_ns), dt = span_s(a->t_ns, t_ns);
	double part = dt / whole;

	energy_at_sample(a, ret->number, ret);
	if (b->hole_s > a->hole_s) {
		ret->hole_s += dt;
		ret->hole_j += part * (b->hole_j - a->hole_j);
		ret->hole_var += part * (b->hole_var - a->hole_var);
	} else {
		double w = a->w + part * (b->w - a->w);

		ret->joules += 0.5 * (a->w + w) * dt;
		ret->square += (sq(a->w) + a->w * w + sq(w)) / 3 * dt;
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
			/* This time is too short to be a gap: assume the power of the first
			 * sample. */
			ret->joules -= before * s->w;
			ret->square -= before * sq(s->w);
		} else {
			ret->hole_s -= before;
			ret->hole_j -= before * s->w;
			ret->hole_var -= sq(before * s->w) / 12;
		}
		return 0;
	}
	sample_between(energy_number(e, n - 1), s, t_ns, ret);
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

/* Adds sample n, and the time between sample n - 1 and sample n, to the window. Parts outside
 * the window are ignored. */
static void window_take_sample(const struct energy *e, struct energy_window *w, uint64_t n)
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
		return; /* the sample itself is after the end of the window */
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

/* Processes the stored samples again if the window ends before a sample that was already
 * processed. */
static void window_start_over(const struct energy *e, struct energy_window *w)
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
	window_start_over(e, w);
	if (!w->begin.known) {
		if (energy_at(e, w->begin_ns, &w->begin.point) != 0)
			return false;
		w->begin.known = true;
		w->next = w->begin.point.number;
		w->begin.slope_w = energy_swing(e, w->begin_ns, energy_reach_s(e));
		w->begin_w = energy_watts(e, w->begin_ns);
	}
	/* The counter reading that belongs to the start of the window may be after the start,
	 * but not much later. */
	if (e->reads && e->samples &&
	    (first || energy_number(e, e->samples - 1)->t_ns <
			      w->begin_ns + 2 * ENERGY_NEAR_NS + NS_PER_S))
		energy_take_read(e, w->begin_ns, &w->begin);
	if (w->next < energy_oldest(e))
		w->next = energy_oldest(e);
	for (n = w->next; n < e->samples; n++) {
		window_take_sample(e, w, n);
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

/* Computes the integrals at t, which is not before the last sample. Assumes that the power of
 * the last sample continues until t. */
static void hold_last(const struct energy *e, uint64_t t_ns, struct energy_point *ret)
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
		hold_last(e, w->begin_ns, &w->begin.point);
	hold_last(e, w->end_ns, &w->end.point);
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
	w->cut = true;
	if (last->t_ns > w->end_ns) /* the end is before the oldest stored sample */
		return;
	if (!w->begin.known) { /* the last sample is before the window */
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
	w->end.known = true;
}

void energy_unknown(struct gw_energy *e)
{
	const struct gw_energy_field *f;

	*e = (struct gw_energy){ .device = e->device };
	for (unsigned i = 0; (f = gw_energy_field(i)); i++) {
		void *at = (char *)e + f->offset;
		double *v = at;

		if (f->kind == GW_FIELD_WORD)
			*(unsigned *)at = f->missing;
		else if (f->kind == GW_FIELD_NUMBER)
			*v = NAN;
		else if (f->kind == GW_FIELD_INTERVAL)
			*(struct gw_interval *)at = (struct gw_interval){ NAN, NAN, NAN };
		else if (f->kind == GW_FIELD_LIST)
			for (unsigned k = 0; k < GW_LIST_SIZE; k++)
				v[k] = NAN;
	}
}

void energy_total_init(struct energy_total *t, const struct energy_setup *set,
		       uint64_t begin_ns)
{
	memset(t, 0, sizeof(*t));
	t->set = *set;
	t->begin_ns = begin_ns;
}

static void energy_total_sample(struct energy_total *t, uint64_t t_ns, double w)
{
	double dt = span_s(t->last_ns, t_ns), part;

	if (!energy_power_possible(&t->set, w) || (t->sampled && t_ns <= t->last_ns))
		return;
	if (t->sampled && dt <= ENERGY_HOLE_STEPS * t->set.spacing_s) {
		/* The counter already covers the time before its last reading. */
		uint64_t from = t->last_ns > t->begin_ns ? t->last_ns : t->begin_ns;
		double begin_w;

		if (t->read && t->reading_ns > from)
			from = t->reading_ns;
		part = fmax(0, span_s(from, t_ns));
		begin_w = w + (t->last_w - w) * part / dt;
		t->since_j += 0.5 * (begin_w + w) * part;
		t->since_s += part;
	}
	t->sampled = true;
	t->last_ns = t_ns;
	t->last_w = w;
}

/* Returns true if the difference to the last reading can be the energy since that reading. A
 * counter that gained much less than the samples was reset in between. */
static bool energy_total_plausible(const struct energy_total *t, uint64_t after_ns,
				   double joules)
{
	double gained_j = joules - t->reading_j;

	return t->read && gained_j >= 0 && gained_j >= ENERGY_RESET_RATIO * t->since_j &&
	       gained_j <= energy_most_joules(&t->set, span_s(t->reading_ns, after_ns));
}

static void energy_total_read(struct energy_total *t, uint64_t t_ns, uint64_t after_ns,
			      double joules)
{
	if (energy_total_plausible(t, after_ns, joules)) {
		/* The difference includes the energy of the samples since the last reading. */
		t->counted_j += joules - t->reading_j;
		t->counted_s += span_s(t->reading_ns, t_ns);
	} else {
		/* This is the first reading, or the counter was reset or jumped. Count the
		 * samples instead. */
		t->counted_j += t->since_j;
		t->counted_s += t->since_s;
	}
	t->since_j = t->since_s = 0;
	t->read = true;
	t->reading_j = joules;
	t->reading_ns = t_ns;
}

void energy_total_feed(struct energy_total *t, const struct event *e)
{
	if (e->type == EVENT_POWER)
		energy_total_sample(t, e->t_ns, e->u.power_w);
	else if (e->type == EVENT_COUNTER)
		energy_total_read(t, e->t_ns, e->u.counter.after_ns, e->u.counter.joules);
}

double energy_total_joules(struct energy_total *t)
{
	t->shown_j = fmax(t->shown_j, t->counted_j + t->since_j);
	return t->shown_j;
}

double energy_total_seconds(struct energy_total *t)
{
	t->shown_s = fmax(t->shown_s, t->counted_s + t->since_s);
	return t->shown_s;
}
