#include "energy.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

#define HOLE_STEPS   3.0 /* samples further apart than this many spacings leave a hole   */
#define OVER_LIMIT   1.5 /* "above the limit" is no error; above this much of it is      */
#define MOST_W       20000.0
#define AGREE_RATIO  0.02 /* meters agree within this, or three sigma                     */
#define UNANCHORED   0.01 /* the two meters of a card differed by up to 1.5 % (H200)      */
#define ANCHOR_NS    (10 * NS_PER_S)
#define NEAR_NS      (2 * NS_PER_S)
#define FIT_NS       (60 * NS_PER_S) /* ticks drift by 1e-4 of the time: 6 ms in this     */
#define FIT_READS    6
#define FIT_STEPS    100
#define COVERAGE_LOW 0.98
#define K95          1.96
#define BUCKET_MIN_W 0.01
#define BUCKET_STEP  0.005
#define SPECTRUM     512
#define LAG_U_S      0.003 /* how late a counter or a sample is, is known to a few ms */

static double seconds_between(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns >= a_ns ? (double)(b_ns - a_ns) * 1e-9 : -((double)(a_ns - b_ns) * 1e-9);
}

static double sq(double x)
{
	return x * x;
}

void energy_init(struct energy *e, const struct energy_setup *set)
{
	memset(e, 0, sizeof(*e));
	e->set = *set;
}

/* ---- samples ---- */

static const struct energy_sample *sample(const struct energy *e, uint64_t number)
{
	return &e->sample[number % ENERGY_SAMPLES];
}

static uint64_t oldest(const struct energy *e)
{
	return e->samples > ENERGY_SAMPLES ? e->samples - ENERGY_SAMPLES : 0;
}

/* Lowest and highest sample in [from, to]; false when there is none. */
static bool extremes(const struct energy *e, uint64_t from_ns, uint64_t to_ns, double *min,
		     double *max)
{
	bool any = false;

	for (uint64_t n = e->samples; n > oldest(e); n--) {
		const struct energy_sample *s = sample(e, n - 1);

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

	if (extremes(e, last->t_ns > NEAR_NS ? last->t_ns - NEAR_NS : 0, last->t_ns, &low,
		     &high)) {
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
	double most = isnan(e->set.limit_w) ? MOST_W : 2 * OVER_LIMIT * e->set.limit_w;
	struct energy_sample *s = &e->sample[e->samples % ENERGY_SAMPLES], last;

	if (!(w >= 0 && w <= most))
		return -GW_E_ARG;
	if (e->samples == 0) {
		*s = (struct energy_sample){ .t_ns = t, .w = w };
		e->samples = 1;
		return 0;
	}
	last = *sample(e, e->samples - 1);
	if (t <= last.t_ns)
		return -GW_E_ARG;
	*s = last;
	s->t_ns = t;
	s->w = w;
	double dt = seconds_between(last.t_ns, t);

	if (dt > HOLE_STEPS * e->set.spacing_s) {
		/* A hole is counted, never bridged: a straight line across it would invent joules
		 * that nobody measured. */
		add_hole(e, s, &last, dt);
	} else {
		s->joules += 0.5 * (last.w + w) * dt;
		s->square += (sq(last.w) + last.w * w + sq(w)) / 3 * dt;
	}
	e->samples++;
	return 0;
}

/* Number of the first sample at or after t; e->samples when there is none. */
static uint64_t find(const struct energy *e, uint64_t t_ns)
{
	uint64_t low = oldest(e), high = e->samples;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (sample(e, mid)->t_ns < t_ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void at_sample(const struct energy_sample *s, uint64_t number, struct energy_point *ret)
{
	*ret = (struct energy_point){ s->joules, s->square,   s->hole_s,
				      s->hole_j, s->hole_var, number };
}

/* Part of the way from one sample to the next. */
static void between(const struct energy_sample *a, const struct energy_sample *b, uint64_t t_ns,
		    struct energy_point *ret)
{
	double whole = seconds_between(a->t_ns, b->t_ns), dt = seconds_between(a->t_ns, t_ns);
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
	uint64_t n = find(e, t_ns);
	const struct energy_sample *s;

	if (n == e->samples)
		return 1;
	s = sample(e, n);
	ret->number = n;
	if (s->t_ns == t_ns) {
		at_sample(s, n, ret);
		return 0;
	}
	if (n == oldest(e)) {
		double before = seconds_between(t_ns, s->t_ns);

		if (n > 0)
			return -GW_E_NOENT;
		/* Before the first sample nothing was measured. */
		at_sample(s, n, ret);
		if (before <= HOLE_STEPS * e->set.spacing_s) {
			ret->joules -= before * s->w; /* one sample's reach */
			ret->square -= before * sq(s->w);
		} else {
			ret->hole_s -= before;
			ret->hole_j -= before * s->w;
			ret->hole_var -= sq(before * s->w) / 12;
		}
		return 0;
	}
	between(sample(e, n - 1), s, t_ns, ret);
	return 0;
}

double energy_watts(const struct energy *e, uint64_t t_ns)
{
	uint64_t n = find(e, t_ns);
	const struct energy_sample *a, *b;

	if (n == e->samples || n == oldest(e))
		return NAN;
	a = sample(e, n - 1);
	b = sample(e, n);
	return a->w + (b->w - a->w) * seconds_between(a->t_ns, t_ns) /
			      seconds_between(a->t_ns, b->t_ns);
}

/* ---- the counter ---- */

void energy_tell(struct energy *e, uint64_t t_ns, unsigned code)
{
	e->note[e->notes++ % ENERGY_NOTES] = (struct energy_note){ t_ns, code };
}

static uint64_t middle(const struct energy_read *r)
{
	return r->before_ns + (r->after_ns - r->before_ns) / 2;
}

static int fault_of(const struct energy *e, const struct energy_read *last,
		    const struct energy_read *now)
{
	double dt = seconds_between(last->before_ns, now->after_ns) + e->set.sensor.tick_s;
	double most = isnan(e->set.limit_w) ? MOST_W : OVER_LIMIT * e->set.limit_w;

	if (now->joules < last->joules)
		return now->joules < 0.5 * last->joules ? GW_CODE_COUNTER_RESET
							: GW_CODE_COUNTER_BACKWARDS;
	if (now->joules - last->joules > most * dt)
		return GW_CODE_COUNTER_JUMP;
	return -1;
}

/* Time of the last tick that a reading made at t holds, were the ticks at this phase. */
static uint64_t tick_before(const struct energy *e, uint64_t t_ns, double phase_s)
{
	double tick = e->set.sensor.tick_s, t = (double)t_ns * 1e-9;
	double age = fmod(t - phase_s, tick);

	if (age < 0)
		age += tick;
	return t_ns - (uint64_t)llround(age * 1e9) -
	       (uint64_t)llround(e->set.sensor.counter_lag_s * 1e9);
}

/* Readings that a phase can be fitted to: of this epoch, lately, with samples around them. */
static unsigned fit_readings(const struct energy *e, const struct energy_read *out[])
{
	uint64_t first = e->reads > ENERGY_READS ? e->reads - ENERGY_READS : 0;
	const struct energy_read *last = &e->read[(e->reads - 1) % ENERGY_READS];
	uint64_t tick = (uint64_t)(e->set.sensor.tick_s * 1e9);
	unsigned n = 0;

	for (uint64_t i = first; i < e->reads; i++) {
		const struct energy_read *r = &e->read[i % ENERGY_READS];

		if (r->epoch == e->epoch && last->before_ns - r->before_ns < FIT_NS &&
		    e->samples && r->before_ns > sample(e, oldest(e))->t_ns + 2 * tick &&
		    r->after_ns < sample(e, e->samples - 1)->t_ns)
			out[n++] = r;
	}
	return n;
}

struct fit {
	double error_s; /* s.d. of the ticks' times left over */
	double gain;
};

/* Were the ticks at this phase, how well would C = c + gain I(tick) hold? */
static struct fit fit_phase(const struct energy *e, const struct energy_read *const r[],
			    unsigned n, double phase_s)
{
	double si = 0, sc = 0, sii = 0, sic = 0, scc = 0, rest, watts;
	struct energy_point first = { 0 }, p = { 0 };

	for (unsigned k = 0; k < n; k++) {
		double i, c;

		if (energy_at(e, tick_before(e, middle(r[k]), phase_s), &p) != 0)
			return (struct fit){ INFINITY, NAN };
		if (k == 0)
			first = p;
		i = p.joules - first.joules + p.hole_j - first.hole_j;
		c = r[k]->joules - r[0]->joules;
		si += i;
		sc += c;
		sii += i * i;
		sic += i * c;
		scc += c * c;
	}
	sii -= si * si / n;
	sic -= si * sc / n;
	scc -= sc * sc / n;
	watts = (p.joules - first.joules) /
		fmax(1e-9, seconds_between(middle(r[0]), middle(r[n - 1])));
	if (!(sii > 0) || !(watts > 0))
		return (struct fit){ INFINITY, NAN };
	rest = fmax(0, scc - sic * sic / sii);
	return (struct fit){ sqrt(rest / (n - 2)) / watts, sic / sii };
}

/* Ticks come at a fixed phase of the monotonic clock (H200: 1 ms of jitter); which, follows from
 * readings made at odd moments: at the right one, counter and integral lie on a line. */
static void track_phase(struct energy *e)
{
	const struct energy_read *r[ENERGY_READS];
	unsigned n = e->reads ? fit_readings(e, r) : 0;
	double tick = e->set.sensor.tick_s, best = INFINITY, at = 0, age_min = tick,
	       age_max = 0;

	e->phase_known = false;
	if (n < FIT_READS || !(tick > 0))
		return;
	for (unsigned k = 0; k < FIT_STEPS; k++) {
		double phase = tick * k / FIT_STEPS;
		struct fit f = fit_phase(e, r, n, phase);

		if (f.error_s < best) {
			best = f.error_s;
			at = phase;
		}
	}
	for (int k = -9; k <= 9; k++) { /* and finer around it */
		double phase = at + tick * k / (10 * FIT_STEPS);
		struct fit f = fit_phase(e, r, n, phase);

		if (f.error_s < best) {
			best = f.error_s;
			at = phase;
		}
	}
	for (unsigned k = 0; k < n; k++) {
		double age = fmod((double)middle(r[k]) * 1e-9 - at + tick, tick);

		age_min = fmin(age_min, age);
		age_max = fmax(age_max, age);
	}
	/* Readings that are all of one age fit every phase. */
	if (best > tick / 20 || age_max - age_min < tick / 3)
		return;
	e->phase_known = true;
	e->phase_s = fmod(at + tick, tick);
	/* No reading can tell where in the widest stretch without one a tick lies. */
	e->phase_u_s = fmax(best, tick / (2 * FIT_READS * sqrt(12)) * FIT_READS / n);
}

int energy_count(struct energy *e, uint64_t before_ns, uint64_t after_ns, double joules)
{
	struct energy_read now = { before_ns, after_ns, joules, e->epoch };
	int code = -1;

	if (e->reads) {
		const struct energy_read *last = &e->read[(e->reads - 1) % ENERGY_READS];

		if (before_ns <= last->after_ns)
			return -1;
		code = fault_of(e, last, &now);
	}
	if (code >= 0) {
		now.epoch = ++e->epoch;
		e->phase_known = false;
		energy_tell(e, after_ns, (unsigned)code);
	}
	e->read[e->reads++ % ENERGY_READS] = now;
	if (code < 0)
		track_phase(e);
	return code;
}

/* ---- following a window ---- */

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

static double bucket_watts(unsigned b)
{
	return BUCKET_MIN_W * exp((b + 0.5) * log1p(BUCKET_STEP));
}

/* The stretch that ends with sample n, as far as it lies in the window. */
static void take_sample(const struct energy *e, struct energy_window *w, uint64_t n)
{
	const struct energy_sample *s = sample(e, n);
	const struct energy_sample *before = n > oldest(e) ? sample(e, n - 1) : NULL;
	uint64_t from = before && before->t_ns > w->begin_ns ? before->t_ns : w->begin_ns;
	uint64_t to = w->end_ns && s->t_ns > w->end_ns ? w->end_ns : s->t_ns;
	double dt = to > from ? seconds_between(from, to) : 0;
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

static const struct energy_read *nearest_read(const struct energy *e, uint64_t t_ns)
{
	const struct energy_read *best = NULL;
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;
	uint64_t apart = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct energy_read *r = &e->read[i];
		uint64_t m = middle(r), d = m > t_ns ? m - t_ns : t_ns - m;

		if (!best || d < apart) {
			best = r;
			apart = d;
		}
	}
	return best;
}

static double swing(const struct energy *e, uint64_t t_ns, double reach_s)
{
	uint64_t reach = (uint64_t)(reach_s * 1e9);
	double min, max;

	return extremes(e, t_ns > reach ? t_ns - reach : 0, t_ns + reach, &min, &max)
		       ? max - min
		       : 0;
}

/* Reach of one sample: around an edge power is known no finer than this. */
static double reach_s(const struct energy *e)
{
	return fmax(e->set.spacing_s, e->set.window_s);
}

/* The reading for an edge, and the integral at the tick that it tells of. */
static void take_read(const struct energy *e, uint64_t edge_ns, struct energy_read *read,
		      struct energy_point *tick, bool *known, double *slope_w)
{
	const struct energy_read *r = nearest_read(e, edge_ns);
	uint64_t t, half = (uint64_t)(e->set.sensor.tick_s * 0.5e9);

	if (!r)
		return;
	*read = *r;
	*known = e->phase_known;
	t = e->phase_known ? tick_before(e, middle(r), e->phase_s)
			   : middle(r) - half - (uint64_t)(e->set.sensor.counter_lag_s * 1e9);
	if (energy_at(e, t, tick) != 0)
		read->before_ns = 0;
	*slope_w = swing(e, t, fmax(reach_s(e), e->set.sensor.tick_s));
}

bool energy_follow(const struct energy *e, struct energy_window *w)
{
	uint64_t n;

	if (w->ended)
		return true;
	if (!w->begun) {
		if (energy_at(e, w->begin_ns, &w->begin) != 0)
			return false;
		w->begun = true;
		w->next = w->begin.number;
		w->begin_slope_w = swing(e, w->begin_ns, reach_s(e));
		w->begin_w = energy_watts(e, w->begin_ns);
	}
	/* Readings near the edge may come after it; later ones are never nearer. */
	if (e->reads && e->samples &&
	    sample(e, e->samples - 1)->t_ns < w->begin_ns + 2 * NEAR_NS + NS_PER_S)
		take_read(e, w->begin_ns, &w->begin_read, &w->begin_tick, &w->begin_tick_known,
			  &w->begin_tick_slope_w);
	if (w->next < oldest(e))
		w->next = oldest(e);
	for (n = w->next; n < e->samples; n++) {
		take_sample(e, w, n);
		if (w->end_ns && sample(e, n)->t_ns >= w->end_ns)
			break;
	}
	w->next = n;
	if (!w->end_ns || energy_at(e, w->end_ns, &w->end) != 0)
		return false;
	w->ended = true;
	return true;
}

void energy_cut(const struct energy *e, struct energy_window *w)
{
	const struct energy_sample *last;
	double missing;

	if (energy_follow(e, w) || e->samples == 0)
		return;
	last = sample(e, e->samples - 1);
	if (!w->begun) { /* it began after the last sample */
		at_sample(last, e->samples - 1, &w->begin);
		w->begun = true;
	}
	at_sample(last, e->samples - 1, &w->end);
	missing =
		seconds_between(last->t_ns > w->begin_ns ? last->t_ns : w->begin_ns, w->end_ns);
	w->end.hole_s += missing;
	w->end.hole_j += missing * last->w;
	w->end.hole_var += sq(missing * last->w) / 12;
	if (missing > w->longest_s)
		w->longest_s = missing;
	w->ended = w->cut = true;
}

/* ---- the load's own period ---- */

/* Strongest line of the spectrum of the last samples in the window; NAN when none stands out.
 * Samples are spaced evenly enough: single gaps of a ring are 9 to 30 ms about a mean of 20. */
static double load_period(const struct energy *e, const struct energy_window *w)
{
	double x[SPECTRUM], mean = 0, total = 0, best = 0, period = NAN, spacing;
	uint64_t end = find(e, w->end_ns), first = find(e, w->begin_ns), n;

	if (end < first + 32)
		return NAN;
	if (end - first > SPECTRUM)
		first = end - SPECTRUM;
	n = end - first;
	spacing = seconds_between(sample(e, first)->t_ns, sample(e, end - 1)->t_ns) /
		  (double)(n - 1);
	for (uint64_t i = 0; i < n; i++)
		mean += x[i] = sample(e, first + i)->w;
	mean /= (double)n;
	for (uint64_t i = 0; i < n; i++) {
		x[i] -= mean;
		total += sq(x[i]);
		x[i] *= 0.5 - 0.5 * cos(2 * M_PI * ((double)i + 0.5) / (double)n);
	}
	if (sqrt(total / (double)n) < 0.03 * mean)
		return NAN; /* steady */
	/* Three cycles at least, or it is a trend. */
	for (uint64_t k = 3; k <= n / 2; k++) {
		double c = 2 * cos(2 * M_PI * (double)k / (double)n), s0 = 0, s1 = 0, s2 = 0, p;

		for (uint64_t i = 0; i < n; i++) { /* Goertzel */
			s0 = x[i] + c * s1 - s2;
			s2 = s1;
			s1 = s0;
		}
		p = s1 * s1 + s2 * s2 - c * s1 * s2;
		if (p > best) {
			best = p;
			period = (double)n * spacing / (double)k;
		}
	}
	/* Of the variance (Hann: 3/8), a line holds n/4 x 3/8 x amplitude^2/2 ...: a fifth will do. */
	return best > 0.2 * total * (double)n * 3 / 32 ? period : NAN;
}

/* Within 3 % of a simple ratio of the sensor's period? */
static bool resonant(double period_s, double sensor_s)
{
	for (int m = 1; m <= 4; m++)
		for (int n = 1; n <= 4; n++)
			if (fabs(period_s * n / (sensor_s * m) - 1) < 0.03)
				return true;
	return false;
}

static bool alias_suspected(const struct energy *e, const struct energy_window *w,
			    const struct gw_energy *r)
{
	double period = isnan(w->hint_period_s) ? w->period_s : w->hint_period_s;
	double sensor = e->set.sensor.instant.period_s;

	switch (e->set.shape) {
	case SHAPE_RING: return period <= 3 * e->set.spacing_s;
	case SHAPE_INSTANT:
	case SHAPE_TEXT:
		if (e->set.look_ratio >= 1)
			return false;
		/* Polled at odd phases, a load that beats shows as a spread. */
		if (r->power_sd > 0.05 * r->power_mean)
			return true;
		if (fabs(r->residual_ratio) > 0.05)
			return true;
		return sensor > 0 && (period < 2 * sensor || resonant(period, sensor));
	default: return false;
	}
}

/* ---- results ---- */

enum gw_validity energy_validity(uint64_t codes)
{
	enum gw_validity worst = GW_VALID;

	for (unsigned c = 0; c < GW_CODES; c++)
		if (codes >> c & 1 && gw_code_info(c)->level > worst)
			worst = gw_code_info(c)->level;
	return worst;
}

static void code(struct gw_energy *r, unsigned c)
{
	r->codes |= UINT64_C(1) << c;
}

static bool has(const struct gw_energy *r, unsigned c)
{
	return r->codes >> c & 1;
}

static double percentile(const struct energy_window *w, double share)
{
	double want = share * w->seen_s, sum = 0;

	if (!(w->seen_s > 0))
		return NAN;
	for (unsigned b = 0; b < ENERGY_BUCKETS; b++) {
		sum += (double)w->bucket[b];
		if (sum >= want && sum > 0)
			return fmin(fmax(bucket_watts(b), w->min_w), w->max_w);
	}
	return w->max_w;
}

struct meters {                      /* what each of the two says, and how sure */
	double counter_j, samples_j; /* NAN: it says nothing   */
	double counter_u, samples_u; /* edges, gaps, coverage  */
	double edges_counter, edges_samples, gaps, coverage, anchor_u;
};

static void notes_inside(const struct energy *e, const struct energy_window *w,
			 struct gw_energy *r)
{
	uint64_t n = e->notes < ENERGY_NOTES ? e->notes : ENERGY_NOTES;

	for (uint64_t i = 0; i < n; i++)
		if (e->note[i].t_ns >= w->begin_ns &&
		    (!w->end_ns || e->note[i].t_ns <= r->end_ns + NS_PER_S))
			code(r, e->note[i].code);
}

static void power_figures(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	double seen = r->seconds - (w->end.hole_s - w->begin.hole_s);
	double joules = w->end.joules - w->begin.joules;
	double expected = r->seconds / e->set.spacing_s;

	r->coverage_ratio = fmax(0, fmin(1, seen / r->seconds));
	r->longest_gap_seconds = w->longest_s;
	r->sample_spacing_seconds = e->set.spacing_s;
	r->samples_collected = w->collected;
	r->samples_expected = (uint64_t)llround(expected);
	r->samples_missed =
		(uint64_t)llround((w->end.hole_s - w->begin.hole_s) / e->set.spacing_s);
	if (!(seen > 0))
		return;
	r->power_mean = joules / seen;
	r->power_sd =
		sqrt(fmax(0, (w->end.square - w->begin.square) / seen - sq(r->power_mean)));
	r->power_min = w->min_w;
	r->power_max = w->max_w;
	r->power_p5 = percentile(w, 0.05);
	r->power_p50 = percentile(w, 0.5);
	r->power_p95 = percentile(w, 0.95);
}

/* Counter over the anchors around the window, or the nearest before it. */
static double anchor_ratio(const struct energy *e, const struct energy_window *w,
			   uint64_t end_ns, double *ret_u)
{
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;
	uint64_t half = (uint64_t)(e->set.sensor.tick_s * 0.5e9);
	double best_u = INFINITY, ratio = 1;

	for (uint64_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < n; k++) {
			const struct energy_read *a = &e->read[i], *b = &e->read[k];
			struct energy_point pa, pb;
			uint64_t ta, tb;
			double span, joules, u;

			if (a->epoch != b->epoch || a->epoch != e->epoch ||
			    b->before_ns < a->before_ns + ANCHOR_NS)
				continue;
			/* They span the window, or end no longer ago than they are long. */
			if (a->before_ns > w->begin_ns ||
			    (b->before_ns < end_ns &&
			     end_ns - b->before_ns > b->before_ns - a->before_ns))
				continue;
			ta = e->phase_known ? tick_before(e, middle(a), e->phase_s)
					    : middle(a) - half;
			tb = e->phase_known ? tick_before(e, middle(b), e->phase_s)
					    : middle(b) - half;
			if (energy_at(e, ta, &pa) != 0 || energy_at(e, tb, &pb) != 0 ||
			    pb.hole_s > pa.hole_s)
				continue;
			span = seconds_between(ta, tb);
			joules = pb.joules - pa.joules;
			if (!(joules > 0))
				continue;
			u = M_SQRT2 *
			    (e->phase_known ? e->phase_u_s : e->set.sensor.tick_s / sqrt(12)) /
			    span;
			if (u < best_u) {
				best_u = u;
				ratio = (b->joules - a->joules) / joules;
			}
		}
	*ret_u = isinf(best_u) ? UNANCHORED : best_u;
	return isinf(best_u) || fabs(ratio - 1) > 0.1 ? 1 : ratio;
}

static double edge_u(const struct energy *e, const struct energy_read *r, bool phase_known,
		     double slope_w, double watts)
{
	double width = seconds_between(r->before_ns, r->after_ns) / sqrt(12) * watts;
	double tick = e->set.sensor.tick_s;
	double phase = phase_known ? hypot(slope_w * tick / sqrt(12), watts * e->phase_u_s)
				   : watts * tick / sqrt(12);

	return hypot(width, phase);
}

/* A window that is shifted as a whole gains at one end what it loses at the other. */
static double lateness_u(const struct energy *e, const struct energy_window *w)
{
	double change = fabs(energy_watts(e, w->end_ns) - w->begin_w);

	return isnan(change) ? 0 : change * LAG_U_S;
}

/* What the counter says of the window, with the samples between ticks and edges. */
static void counter_meter(const struct energy *e, const struct energy_window *w,
			  const struct gw_energy *r, struct meters *m)
{
	const struct energy_read *a = &w->begin_read, *b = &w->end_read;
	double tail_a, tail_b, watts;

	if (!e->set.counter || !a->before_ns || !b->before_ns || a->epoch != b->epoch ||
	    b->before_ns <= a->before_ns)
		return;
	tail_a =
		w->begin.joules - w->begin_tick.joules + w->begin.hole_j - w->begin_tick.hole_j;
	tail_b = w->end.joules - w->end_tick.joules + w->end.hole_j - w->end_tick.hole_j;
	m->counter_j = fmax(0, b->joules - a->joules + tail_b - tail_a);
	watts = isnan(r->power_mean) ? m->counter_j / r->seconds : r->power_mean;
	m->edges_counter =
		hypot(edge_u(e, a, w->begin_tick_known, w->begin_tick_slope_w, watts),
		      edge_u(e, b, w->end_tick_known, w->end_tick_slope_w, watts));
	/* Readings shared with somebody else lie off the edge; the samples fill in, and may be off. */
	m->edges_counter = hypot(m->edges_counter, UNANCHORED * hypot(tail_a, tail_b));
	m->edges_counter = hypot(m->edges_counter, lateness_u(e, w));
	m->counter_u = m->edges_counter;
}

/* A counter without samples at all: its readings are the window. */
static void bare_counter(const struct energy *e, const struct energy_window *w,
			 const struct gw_energy *r, struct meters *m)
{
	const struct energy_read *a = nearest_read(e, w->begin_ns);
	const struct energy_read *b = nearest_read(e, r->end_ns);
	double apart, watts;

	if (!e->set.counter || !a || !b || a->epoch != b->epoch || b->before_ns <= a->before_ns)
		return;
	apart = seconds_between(middle(a), middle(b));
	watts = (b->joules - a->joules) / apart;
	m->counter_j = watts * r->seconds;
	m->edges_counter = M_SQRT2 * watts * e->set.sensor.tick_s / sqrt(12) +
			   watts * fabs(apart - r->seconds);
	m->counter_u = m->edges_counter;
}

/* A sum of samples mistakes for a mean only what swings at the sampling rate itself; the sensor's
 * own filter lets this share of it through. */
static double leak(const struct energy *e)
{
	double x = e->set.window_s / e->set.spacing_s;

	if (e->set.shape == SHAPE_RING && e->set.sensor.ring.model == SENSOR_LOWPASS)
		return 1 / sqrt(1 + sq(2 * M_PI * x));
	return x > 1e-3 && x < 1 ? fabs(sin(M_PI * x) / (M_PI * x)) : x < 1 ? 1 : 0.1;
}

static void samples_meter(const struct energy *e, const struct energy_window *w,
			  const struct gw_energy *r, struct meters *m)
{
	double reach = reach_s(e), n = fmax(1, (double)w->collected), sampling;

	if (!w->begun || !(r->coverage_ratio > 0))
		return;
	m->samples_j = w->end.joules - w->begin.joules;
	m->edges_samples = hypot(hypot(w->begin_slope_w, w->end_slope_w) * reach / sqrt(12),
				 lateness_u(e, w));
	m->gaps = sqrt(fmax(0, w->end.hole_var - w->begin.hole_var));
	sampling = leak(e) * sqrt(w->noise_square / (2 * n)) * r->seconds / sqrt(n);
	m->coverage =
		hypot(sampling, (1 - e->set.look_ratio) * r->power_sd * r->seconds / sqrt(n));
	m->samples_u = sqrt(sq(m->edges_samples) + sq(m->gaps) + sq(m->coverage));
}

static enum gw_rung rung_of(const struct energy *e, bool counter)
{
	switch (e->set.shape) {
	case SHAPE_RING: return counter ? GW_RUNG_COUNTER_RING : GW_RUNG_RING;
	case SHAPE_INSTANT: return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_POLLED;
	case SHAPE_MEAN: return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_MEAN;
	case SHAPE_TEXT: return GW_RUNG_TEXT;
	case SHAPE_SYSFS: return GW_RUNG_SYSFS;
	case SHAPE_NONE: break;
	}
	return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_NONE;
}

static enum gw_verdict single_verdict(const struct energy *e, bool counter)
{
	static const enum gw_verdict of[] = {
		[SHAPE_NONE] = GW_VERDICT_COUNTER_ONLY, [SHAPE_RING] = GW_VERDICT_SAMPLES_ONLY,
		[SHAPE_INSTANT] = GW_VERDICT_POLLED,    [SHAPE_MEAN] = GW_VERDICT_MEAN_ONLY,
		[SHAPE_TEXT] = GW_VERDICT_TEXT,         [SHAPE_SYSFS] = GW_VERDICT_SYSFS,
	};

	if (e->set.shape == SHAPE_SYSFS)
		return GW_VERDICT_SYSFS;
	return counter ? GW_VERDICT_COUNTER_ONLY : of[e->set.shape];
}

/* Neither is asked for more than it can know: the smaller uncertainty wins, ties and quarrels go
 * to the counter, which is only here when it is safe and kept its order. */
static void choose(const struct energy *e, const struct energy_window *w, struct gw_energy *r,
		   struct meters *m)
{
	bool counter = !isnan(m->counter_j), samples = !isnan(m->samples_j);
	double filled = samples ? m->samples_j + r->gap_joules : NAN;

	r->counter_joules = m->counter_j;
	r->samples_joules = m->samples_j;
	if (counter && samples) {
		double sigma = hypot(m->counter_u, m->samples_u) / fmax(m->counter_j, 1e-9);

		r->residual_ratio = m->counter_j > 0 ? filled / m->counter_j - 1 : NAN;
		if (fabs(r->residual_ratio) <= fmax(AGREE_RATIO, 3 * sigma)) {
			r->verdict = GW_VERDICT_AGREE;
		} else {
			r->verdict = GW_VERDICT_DISAGREE;
			code(r, GW_CODE_METERS_DISAGREE);
		}
		if (fabs(m->counter_j - filled) > 2 * sigma * m->counter_j)
			r->budget[GW_U_RESIDUAL] = fabs(m->counter_j - filled) / sqrt(3);
	} else {
		r->verdict = counter || samples ? single_verdict(e, counter) : GW_VERDICT_NONE;
	}
	if (samples) {
		r->anchor_ratio =
			e->set.counter ? anchor_ratio(e, w, r->end_ns, &m->anchor_u) : 1;
		if (!e->set.counter)
			m->anchor_u = 0; /* nothing to anchor to: the gain is all there is */
		m->samples_u = hypot(m->samples_u, m->anchor_u * filled);
	}
	if (counter &&
	    (!samples || r->verdict == GW_VERDICT_DISAGREE || m->counter_u <= m->samples_u)) {
		r->meter = GW_METER_COUNTER;
		r->joules.best = m->counter_j;
		r->budget[GW_U_EDGES] = m->edges_counter;
	} else if (samples) {
		r->meter = GW_METER_SAMPLES;
		r->joules.best = filled * r->anchor_ratio;
		r->budget[GW_U_EDGES] = m->edges_samples;
		r->budget[GW_U_GAPS] = m->gaps;
		r->budget[GW_U_COVERAGE] = m->coverage;
		r->budget[GW_U_RESIDUAL] = fmax(r->budget[GW_U_RESIDUAL], m->anchor_u * filled);
	}
}

static void sum_up(const struct energy *e, struct gw_energy *r)
{
	double best = r->joules.best;

	r->budget[GW_U_GAIN] = e->set.sensor.gain_u * best;
	r->budget[GW_U_OFFSET] = e->set.sensor.offset_u_w * r->seconds;
	r->u_relative = r->u_absolute = 0;
	for (unsigned i = 0; i < GW_U_COUNT; i++) {
		r->u_absolute = hypot(r->u_absolute, r->budget[i]);
		if (i != GW_U_GAIN && i != GW_U_OFFSET)
			r->u_relative = hypot(r->u_relative, r->budget[i]);
	}
	r->relative = (struct gw_interval){ fmax(0, best - K95 * r->u_relative), best,
					    best + K95 * r->u_relative };
	r->joules = (struct gw_interval){ fmax(0, best - K95 * r->u_absolute), best,
					  best + K95 * r->u_absolute };
}

/* Shorter than the sensor can see: local power, and bounds from all that was near. */
static void below_period(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	double floor_w, ceiling_w, watts;

	code(r, GW_CODE_SUB_PERIOD);
	if (!extremes(e, w->begin_ns > NEAR_NS ? w->begin_ns - NEAR_NS : 0,
		      w->begin_ns + NEAR_NS, &floor_w, &ceiling_w))
		return;
	watts = w->begun && w->ended && r->seconds > 0
			? (w->end.joules - w->begin.joules + r->gap_joules) / r->seconds
			: energy_watts(e, w->begin_ns);
	if (isnan(watts))
		watts = 0.5 * (floor_w + ceiling_w);
	/* Samples are smoothed: the truth may lie a little beyond them. */
	floor_w *= 0.98;
	ceiling_w *= 1.02;
	r->meter = GW_METER_SAMPLES;
	r->joules.best = watts * r->seconds;
	sum_up(e, r);
	r->relative.low = fmin(r->relative.low, floor_w * r->seconds);
	r->relative.high = fmax(r->relative.high, ceiling_w * r->seconds);
	r->joules.low = fmin(r->joules.low, r->relative.low);
	r->joules.high = fmax(r->joules.high, r->relative.high);
}

static void unknown(struct gw_energy *r)
{
	static const struct gw_interval none = { NAN, NAN, NAN };

	r->joules = r->relative = none;
	r->u_absolute = r->u_relative = NAN;
	r->counter_joules = r->samples_joules = r->residual_ratio = NAN;
	r->power_mean = r->power_sd = r->power_min = r->power_max = NAN;
	r->power_p5 = r->power_p50 = r->power_p95 = NAN;
	r->load_period_seconds = NAN;
	r->anchor_ratio = 1;
	r->gap_joules = 0;
}

/* Did the counter stand still where the samples saw energy? */
static bool frozen(const struct energy *e, const struct energy_window *w, uint64_t end_ns)
{
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;

	for (uint64_t i = 0; i + 1 < n; i++) {
		const struct energy_read *a = &e->read[(e->reads - n + i) % ENERGY_READS];
		const struct energy_read *b = &e->read[(e->reads - n + i + 1) % ENERGY_READS];
		struct energy_point pa, pb;

		if (a->epoch != b->epoch || b->joules > a->joules ||
		    b->after_ns < w->begin_ns || a->before_ns > end_ns ||
		    seconds_between(a->after_ns, b->before_ns) < 3 * e->set.sensor.tick_s)
			continue;
		if (energy_at(e, a->after_ns, &pa) == 0 &&
		    energy_at(e, b->before_ns, &pb) == 0 && pb.joules - pa.joules > 1)
			return true;
	}
	return false;
}

static void judge(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	if (r->coverage_ratio < COVERAGE_LOW)
		code(r, GW_CODE_LOW_COVERAGE);
	if (w->cut)
		code(r, GW_CODE_TRUNCATED);
	if (alias_suspected(e, w, r))
		code(r, GW_CODE_ALIAS_SUSPECTED);
	if (e->set.mig)
		code(r, GW_CODE_MIG_WHOLE_BOARD);
	if (e->set.sensor.module_scope)
		code(r, GW_CODE_MODULE_SCOPE);
	if (e->set.sensor.counter == GW_HAVE && e->set.sensor.counter_unsafe)
		code(r, GW_CODE_COUNTER_RATE_UNSAFE);
	if (e->set.sensor.counter == GW_ABSENT_INVALID)
		code(r, GW_CODE_COUNTER_INVALID);
}

void energy_result(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	struct energy_window now; /* of an open window, as if it ended with the last sample */
	struct meters m = { .counter_j = NAN, .samples_j = NAN };

	unknown(r);
	if (!w->end_ns) {
		if (e->samples == 0 || sample(e, e->samples - 1)->t_ns <= w->begin_ns)
			return;
		now = *w;
		energy_close(&now, sample(e, e->samples - 1)->t_ns);
		w = &now;
	}
	energy_follow(e, w);
	r->begin_ns = w->begin_ns;
	r->end_ns = w->end_ns;
	r->seconds = seconds_between(w->begin_ns, w->end_ns);
	notes_inside(e, w, r);
	r->rung = rung_of(e, e->set.counter);
	r->sample_spacing_seconds = e->set.spacing_s;
	if (!(r->seconds > 0))
		return;
	if (w->begun && w->ended) {
		take_read(e, w->end_ns, &w->end_read, &w->end_tick, &w->end_tick_known,
			  &w->end_tick_slope_w);
		w->end_slope_w = swing(e, w->end_ns, reach_s(e));
		power_figures(e, w, r);
		r->gap_joules = w->end.hole_j - w->begin.hole_j;
		w->period_s = load_period(e, w);
		r->load_period_seconds = w->period_s;
		samples_meter(e, w, r, &m);
		counter_meter(e, w, r, &m);
	} else if (e->samples == 0) {
		bare_counter(e, w, r, &m);
	}
	if (!isnan(m.counter_j) && frozen(e, w, r->end_ns)) {
		code(r, GW_CODE_COUNTER_FROZEN);
		m.counter_j = NAN;
	}
	if (e->samples && r->seconds < e->set.spacing_s) {
		below_period(e, w, r);
	} else {
		choose(e, w, r, &m);
		if (!isnan(r->joules.best))
			sum_up(e, r);
	}
	judge(e, w, r);
	if (isnan(r->joules.best) && !has(r, GW_CODE_NO_SOURCE))
		code(r, e->set.shape == SHAPE_NONE && !e->set.counter ? GW_CODE_NO_SOURCE
								      : GW_CODE_NO_DATA);
}
