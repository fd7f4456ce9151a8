#include "series.h"

#include "base/clock.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUANTITIES_MAX 64
#define POINTS_MAX     (1u << 24)
#define PLACES         65535 /* positions between minimum and maximum */

static const uint64_t span_ns[SERIES_TIERS] = { 0, NS_PER_S, 10 * NS_PER_S, 60 * NS_PER_S };

/* One quantity in a closed bucket. */
struct cell {
	float min, max;
	uint16_t place; /* position of the mean: min + (max - min) * place / PLACES */
	uint16_t count; /* number of values; 65535 means 65535 or more */
};
_Static_assert(sizeof(struct cell) == 12, "series.h says 12 bytes");

/* One quantity in an open bucket. */
struct sum {
	double sum, min, max;
	uint64_t count;
};

/* The ring buffer of one tier: point number n is at n % points. */
struct ring {
	unsigned points;
	uint64_t next;  /* number of the next point */
	uint64_t *t_ns; /* RAW tier: time of each sample */
	/* other tiers: start of each bucket, in units of the bucket length; 32 bits are enough
	 * for 136 years of seconds */
	uint32_t *bucket;
	float *value;      /* RAW tier: one value per point and quantity */
	struct cell *cell; /* other tiers: one cell per point and quantity */
};

struct series {
	unsigned quantities;
	bool any; /* at least one sample was added */
	uint64_t last_ns;
	struct ring ring[SERIES_TIERS];
	/* The buckets that contain last_ns. A sample is added only to the 1 s bucket; a closed
	 * bucket is added to the next tier, so that a sample costs the same for any number of
	 * tiers. The complete content of the open 60 s bucket is therefore the sum of all three
	 * open buckets. */
	struct sum *open[SERIES_TIERS];
};

/* Sets the pointers of s to the parts of the memory block, largest alignment first. Returns the
 * size of the block. */
static size_t lay_out(const struct series_options *o, char *base, struct series *s)
{
	size_t at = sizeof(*s), q = o->quantities;

	for (unsigned t = SERIES_1S; t < SERIES_TIERS; t++) {
		if (s)
			s->open[t] = (struct sum *)(void *)(base + at);
		at += q * sizeof(struct sum);
	}
	if (s)
		s->ring[SERIES_RAW].t_ns = (uint64_t *)(void *)(base + at);
	at += o->points[SERIES_RAW] * sizeof(uint64_t);
	if (s)
		s->ring[SERIES_RAW].value = (float *)(void *)(base + at);
	at += o->points[SERIES_RAW] * q * sizeof(float);
	for (unsigned t = SERIES_1S; t < SERIES_TIERS; t++) {
		if (s)
			s->ring[t].bucket = (uint32_t *)(void *)(base + at);
		at += o->points[t] * sizeof(uint32_t);
		if (s)
			s->ring[t].cell = (struct cell *)(void *)(base + at);
		at += o->points[t] * q * sizeof(struct cell);
	}
	return at;
}

size_t series_bytes(const struct series_options *o)
{
	if (o->quantities < 1 || o->quantities > QUANTITIES_MAX)
		return 0;
	for (unsigned t = 0; t < SERIES_TIERS; t++)
		if (o->points[t] > POINTS_MAX)
			return 0;
	return lay_out(o, NULL, NULL);
}

static void clear_open(struct series *s, unsigned tier)
{
	for (unsigned q = 0; q < s->quantities; q++)
		s->open[tier][q] = (struct sum){ 0, INFINITY, -INFINITY, 0 };
}

int series_new(const struct series_options *options, struct series **ret_series)
{
	size_t bytes = series_bytes(options);
	struct series *s;

	if (bytes == 0)
		return -GW_E_ARG;
	s = malloc(bytes);
	if (!s)
		return -GW_E_NOMEM;
	/* Do not fill with zeros: a compiler may turn malloc() and zeros into calloc(). The
	 * kernel would then provide each page only when it is first written, and the memory of
	 * the service would seem to grow for a day. */
	memset(s, 0xff, bytes);
	memset(s, 0, sizeof(*s));
	s->quantities = options->quantities;
	lay_out(options, (char *)s, s);
	for (unsigned t = 0; t < SERIES_TIERS; t++)
		s->ring[t].points = options->points[t];
	for (unsigned t = SERIES_1S; t < SERIES_TIERS; t++)
		clear_open(s, t);
	*ret_series = s;
	return 0;
}

void series_free(struct series *s)
{
	free(s);
}

static bool is_present(double v)
{
	return fabs(v) <= FLT_MAX; /* false for NAN */
}

static void merge_sum(struct sum *to, const struct sum *from)
{
	to->sum += from->sum;
	to->min = fmin(to->min, from->min);
	to->max = fmax(to->max, from->max);
	to->count += from->count;
}

static void pack_cell(const struct sum *s, struct cell *c)
{
	double place = 0;

	if (s->count && s->max > s->min)
		place = (s->sum / (double)s->count - s->min) / (s->max - s->min);
	*c = (struct cell){
		.min = s->count ? (float)s->min : NAN,
		.max = s->count ? (float)s->max : NAN,
		.place = (uint16_t)lround(fmin(fmax(place, 0), 1) * PLACES),
		.count = (uint16_t)(s->count < UINT16_MAX ? s->count : UINT16_MAX),
	};
}

/* Ends the open bucket of a tier: stores it and adds it to the next tier. */
static void end_bucket(struct series *s, unsigned tier)
{
	struct ring *r = &s->ring[tier];

	if (r->points) {
		size_t slot = r->next++ % r->points;

		r->bucket[slot] = (uint32_t)(s->last_ns / span_ns[tier]);
		for (unsigned q = 0; q < s->quantities; q++)
			pack_cell(&s->open[tier][q], &r->cell[slot * s->quantities + q]);
	}
	if (tier + 1 < SERIES_TIERS)
		for (unsigned q = 0; q < s->quantities; q++)
			merge_sum(&s->open[tier + 1][q], &s->open[tier][q]);
	clear_open(s, tier);
}

/* Ends all buckets that are over at t_ns. Each bucket is part of one bucket of the next tier,
 * so the search ends at the first bucket that is not over. */
static void end_buckets(struct series *s, uint64_t t_ns)
{
	for (unsigned t = SERIES_1S; t < SERIES_TIERS; t++) {
		if (t_ns / span_ns[t] == s->last_ns / span_ns[t])
			break;
		end_bucket(s, t);
	}
}

static void store_raw(struct series *s, uint64_t t_ns, const double *values)
{
	struct ring *r = &s->ring[SERIES_RAW];
	size_t slot;

	if (r->points == 0)
		return;
	slot = r->next++ % r->points;
	r->t_ns[slot] = t_ns;
	for (unsigned q = 0; q < s->quantities; q++)
		r->value[slot * s->quantities + q] =
			is_present(values[q]) ? (float)values[q] : NAN;
}

int series_add(struct series *s, uint64_t t_ns, const double *values)
{
	if (s->any && t_ns <= s->last_ns)
		return -GW_E_ARG;
	if (s->any)
		end_buckets(s, t_ns);
	store_raw(s, t_ns, values);
	for (unsigned q = 0; q < s->quantities; q++) {
		struct sum *o = &s->open[SERIES_1S][q];
		double v = values[q];

		if (!is_present(v))
			continue;
		o->sum += v;
		o->min = v < o->min ? v : o->min;
		o->max = v > o->max ? v : o->max;
		o->count++;
	}
	s->any = true;
	s->last_ns = t_ns;
	return 0;
}

/* Returns the number of the first point. Points of a tier are numbered first_point() to
 * end_point() - 1; the last bucket is the open one. */
static uint64_t first_point(const struct ring *r)
{
	return r->next > r->points ? r->next - r->points : 0;
}

static uint64_t end_point(const struct series *s, unsigned tier)
{
	return s->ring[tier].next + (tier != SERIES_RAW && s->any ? 1 : 0);
}

static uint64_t begin_of(const struct series *s, unsigned tier, uint64_t number)
{
	const struct ring *r = &s->ring[tier];

	if (tier == SERIES_RAW)
		return r->t_ns[number % r->points];
	if (number == r->next)
		return s->last_ns / span_ns[tier] * span_ns[tier];
	return (uint64_t)r->bucket[number % r->points] * span_ns[tier];
}

/* Returns the number of the first point that begins at t or later. */
static uint64_t find_point(const struct series *s, unsigned tier, uint64_t t_ns)
{
	uint64_t low = first_point(&s->ring[tier]), high = end_point(s, tier);

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (begin_of(s, tier, mid) < t_ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Returns the time at which the data of a tier begins; 0 if nothing was dropped. */
static uint64_t reach_ns(const struct series *s, unsigned tier)
{
	uint64_t first = first_point(&s->ring[tier]);

	return first == 0 ? 0 : begin_of(s, tier, first);
}

static void fill_sum(const struct sum *sum, struct series_point *p)
{
	p->count = (unsigned)(sum->count < UINT16_MAX ? sum->count : UINT16_MAX);
	if (sum->count == 0)
		return;
	p->mean = sum->sum / (double)sum->count;
	p->min = sum->min;
	p->max = sum->max;
}

static void fill_open(const struct series *s, unsigned tier, unsigned q, struct series_point *p)
{
	struct sum all = s->open[tier][q];

	for (unsigned t = SERIES_1S; t < tier; t++)
		merge_sum(&all, &s->open[t][q]);
	p->open = true;
	fill_sum(&all, p);
}

static void fill_point(const struct series *s, unsigned tier, unsigned q, uint64_t number,
		       struct series_point *p)
{
	const struct ring *r = &s->ring[tier];
	size_t at = number % r->points * s->quantities + q;

	*p = (struct series_point){ .begin_ns = begin_of(s, tier, number),
				    .span_ns = span_ns[tier],
				    .mean = NAN,
				    .min = NAN,
				    .max = NAN };
	if (tier == SERIES_RAW) {
		p->mean = p->min = p->max = (double)r->value[at];
		p->count = isnan(p->mean) ? 0u : 1u;
	} else if (number == r->next) {
		fill_open(s, tier, q, p);
	} else {
		const struct cell *c = &r->cell[at];
		double min = (double)c->min, max = (double)c->max;

		p->count = c->count;
		p->min = min;
		p->max = max;
		p->mean = min + (max - min) * c->place / PLACES;
	}
}

/* The numbers of the points that answer a query. */
struct extent {
	unsigned tier;
	uint64_t begin, end;
};

static struct extent extent_in(const struct series *s, unsigned tier, uint64_t from_ns,
			       uint64_t to_ns)
{
	uint64_t begin_ns = tier == SERIES_RAW ? from_ns : from_ns - from_ns % span_ns[tier];

	return (struct extent){
		.tier = tier,
		.begin = find_point(s, tier, begin_ns),
		.end = to_ns == UINT64_MAX ? end_point(s, tier)
					   : find_point(s, tier, to_ns + 1),
	};
}

/* Returns the tier to start with: the coarsest that is at least as fine as requested. */
static unsigned finest_tier(const struct series *s, uint64_t resolution_ns)
{
	unsigned tier = SERIES_RAW;

	for (unsigned t = SERIES_1S; t < SERIES_TIERS; t++)
		if (s->ring[t].points && span_ns[t] <= resolution_ns)
			tier = t;
	return tier;
}

/* Chooses the first tier that reaches back to from_ns and has at most max points. If there is
 * no such tier, chooses among the tiers with at most max points the one that reaches back
 * furthest. */
static int choose_tier(const struct series *s, uint64_t from_ns, uint64_t to_ns,
		       uint64_t resolution_ns, size_t max, struct extent *ret)
{
	uint64_t furthest_ns = UINT64_MAX;
	bool too_many = false;

	*ret = (struct extent){ SERIES_RAW, 0, 0 };
	for (unsigned t = finest_tier(s, resolution_ns); t < SERIES_TIERS; t++) {
		struct extent x;

		if (s->ring[t].points == 0)
			continue;
		x = extent_in(s, t, from_ns, to_ns);
		if (x.end - x.begin > max) {
			too_many = true;
			continue;
		}
		if (reach_ns(s, t) >= furthest_ns)
			continue;
		*ret = x;
		furthest_ns = reach_ns(s, t);
		if (furthest_ns <= from_ns)
			break;
	}
	return furthest_ns == UINT64_MAX && too_many ? -GW_E_SIZE : 0;
}

int series_query(const struct series *s, unsigned quantity, uint64_t from_ns, uint64_t to_ns,
		 uint64_t resolution_ns, struct series_point *out, size_t max)
{
	struct extent x;
	int r;

	if (quantity >= s->quantities || to_ns < from_ns)
		return -GW_E_ARG;
	r = choose_tier(s, from_ns, to_ns, resolution_ns, max, &x);
	if (r < 0)
		return r;
	for (uint64_t n = x.begin; n < x.end; n++)
		fill_point(s, x.tier, quantity, n, &out[n - x.begin]);
	return (int)(x.end - x.begin);
}
