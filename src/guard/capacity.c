#include "capacity.h"

#include "base/clock.h"
#include "base/number.h"
#include "measure/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOPE_NS   (600 * NS_PER_S) /* the slope is computed from the last ten minutes */
#define SLOPE_MIN  10               /* a slope needs at least this many points */
#define SLOPE_SPAN (30 * NS_PER_S)  /* and at least this time from the first to the last */
/* Number of points for ten minutes, a day and a week. There is one more of each, because the
 * oldest point is only partly in the span. */
#define POINTS_1S  601u
#define POINTS_10S 8641u
#define POINTS_60S 10081u
#define KEPT_NS    (8 * 86400 * NS_PER_S) /* longer than the whole history */
/* The history is read in pieces of ten minutes, so that no point is in two pieces. */
#define PIECE_NS     (600 * NS_PER_S)
#define PIECE_POINTS 602

struct capacity {
	struct series *series;
	double low, high; /* least and greatest value; results are limited to them */
	struct series_point point[PIECE_POINTS]; /* buffer for capacity_past() */
};

int capacity_new(struct capacity **ret)
{
	struct series_options o = { .quantities = 1,
				    .points = { 0, POINTS_1S, POINTS_10S, POINTS_60S } };
	struct capacity *c = calloc(1, sizeof(*c));

	if (!c)
		return -GW_E_NOMEM;
	if (series_new(&o, &c->series) != 0) {
		free(c);
		return -GW_E_NOMEM;
	}
	c->low = INFINITY;
	*ret = c;
	return 0;
}

void capacity_free(struct capacity *c)
{
	if (!c)
		return;
	series_free(c->series);
	free(c);
}

void capacity_add(struct capacity *c, uint64_t mono_ns, uint64_t available_bytes)
{
	double v = (double)available_bytes;

	if (series_add(c->series, mono_ns, &v) != 0)
		return;
	c->low = v < c->low ? v : c->low;
	c->high = v > c->high ? v : c->high;
}

static int read_points(struct capacity *c, uint64_t from, uint64_t to)
{
	int n = series_query(c->series, 0, from, to, NS_PER_S, c->point, PIECE_POINTS);

	return n > 0 ? n : 0;
}

static uint64_t bytes_of(const struct capacity *c, double v)
{
	v = v < c->low ? c->low : v > c->high ? c->high : v;
	return v > 0 ? (uint64_t)llround(v) : 0;
}

/* Returns the least-squares slope of bytes over seconds. Bytes and seconds are counted from the
 * first point so that no digits are lost. NAN: too few points. */
static double slope_of(const struct series_point *p, int n)
{
	double st = 0, sv = 0, stt = 0, stv = 0, count = 0;

	if (n < SLOPE_MIN || p[n - 1].begin_ns - p[0].begin_ns < SLOPE_SPAN)
		return NAN;
	for (int i = 0; i < n; i++) {
		double t = (double)(p[i].begin_ns - p[0].begin_ns) * 1e-9;
		double v = p[i].mean - p[0].mean;

		st += t;
		sv += v;
		stt += t * t;
		stv += t * v;
		count++;
	}
	return (count * stv - st * sv) / (count * stt - st * st);
}

static void find_slope(struct capacity *c, uint64_t now, struct capacity_past *ret)
{
	int n = read_points(c, now > SLOPE_NS ? now - SLOPE_NS : 0, now);
	double slope = slope_of(c->point, n);

	ret->slope_bytes_per_s = slope;
	/* a slope of less than one byte per second is a rounding error */
	if (slope < -1)
		ret->full_s = c->point[n - 1].mean / -slope;
}

struct sums {
	double low, high, sum, count;
	uint64_t first_ns;
};

static void add_points(struct sums *t, const struct series_point *p, int n)
{
	for (int i = 0; i < n; i++) {
		if (t->count == 0)
			t->first_ns = p[i].begin_ns;
		t->low = p[i].min < t->low ? p[i].min : t->low;
		t->high = p[i].max > t->high ? p[i].max : t->high;
		t->sum += p[i].mean * p[i].count;
		t->count += p[i].count;
	}
}

void capacity_past(struct capacity *c, uint64_t now_ns, uint64_t span_ns,
		   struct capacity_past *ret)
{
	uint64_t span = span_ns < KEPT_NS ? span_ns : KEPT_NS;
	uint64_t from = now_ns > span ? now_ns - span : 0, next;
	struct sums t = { .low = INFINITY };

	*ret = (struct capacity_past){ .mean_bytes = NAN,
				       .slope_bytes_per_s = NAN,
				       .full_s = NAN };
	for (uint64_t at = from; at <= now_ns; at = next) {
		next = (at / PIECE_NS + 1) * PIECE_NS;
		add_points(&t, c->point,
			   read_points(c, at, next <= now_ns ? next - 1 : now_ns));
	}
	if (t.count == 0)
		return;
	ret->min_bytes = bytes_of(c, t.low);
	ret->max_bytes = bytes_of(c, t.high);
	/* the values are rounded, so their mean may be outside the bounds */
	ret->mean_bytes =
		fmin(fmax(t.sum / t.count, (double)ret->min_bytes), (double)ret->max_bytes);
	ret->span_ns = now_ns - (t.first_ns > from ? t.first_ns : from);
	find_slope(c, now_ns, ret);
}

uint64_t capacity_available(const struct capacity_gpu *g)
{
	uint64_t kept = g->headroom_bytes + g->reserved_bytes;

	if (!g->known || kept < g->headroom_bytes || kept >= g->free_bytes)
		return 0;
	return g->free_bytes - kept;
}

static void explain_fit(const struct capacity_gpu *g, struct capacity_answer *a, uint64_t most)
{
	char names[120] = "";
	size_t used = 0;

	for (unsigned i = 0; i < a->evicts; i++) {
		int n = snprintf(names + used, sizeof(names) - used, "%s%.40s", i ? ", " : "",
				 g->worker[a->evict[i]].name);

		if (n < 0 || (size_t)n >= sizeof(names) - used)
			break;
		used += (size_t)n;
	}
	switch (a->fit) {
	case FIT_NOW:
		snprintf(a->why, sizeof(a->why), "%.2f GiB of %.2f GiB available",
			 (double)a->needed_bytes / GIB, (double)a->available_bytes / GIB);
		break;
	case FIT_AFTER_EVICTION:
		snprintf(a->why, sizeof(a->why),
			 "%.2f GiB available now, %.2f GiB after evicting %s",
			 (double)a->available_bytes / GIB, (double)most / GIB, names);
		break;
	case FIT_NEVER:
		snprintf(a->why, sizeof(a->why),
			 g->known ? "%.2f GiB needed, %.2f GiB available, %.2f GiB with every "
				    "worker evicted"
				  : "%.2f GiB needed, but its memory is unknown",
			 (double)a->needed_bytes / GIB, (double)a->available_bytes / GIB,
			 (double)most / GIB);
	}
}

/* Returns the bytes that would be available if `freed` more bytes were free. */
static uint64_t available_with(const struct capacity_gpu *g, uint64_t freed)
{
	struct capacity_gpu h = { .known = g->known,
				  .free_bytes = g->free_bytes,
				  .headroom_bytes = g->headroom_bytes,
				  .reserved_bytes = g->reserved_bytes };

	h.free_bytes = freed > UINT64_MAX - h.free_bytes ? UINT64_MAX : h.free_bytes + freed;
	if (g->total_bytes && h.free_bytes > g->total_bytes)
		h.free_bytes =
			/* the sum of the processes' bytes may exceed the total memory */
			g->total_bytes;
	return capacity_available(&h);
}

static bool is_movable(const struct capacity_gpu *g, unsigned i)
{
	return g->worker[i].movable && g->worker[i].bytes > 0;
}

/* Chooses the workers that must leave. First adds workers, from the lowest priority up, until
 * the bytes fit. Then removes the workers that need not leave, from the highest priority down.
 * False: the bytes do not fit even if all movable workers leave. */
static bool choose_evictions(const struct capacity_gpu *g, uint64_t bytes,
			     struct capacity_answer *a, uint64_t *ret_most)
{
	bool out[POLICY_WORKERS] = { false };
	uint64_t freed = 0;
	unsigned last = 0;

	for (; last < g->workers && available_with(g, freed) < bytes; last++) {
		out[last] = is_movable(g, last);
		freed += out[last] ? g->worker[last].bytes : 0;
	}
	*ret_most = available_with(g, freed);
	if (*ret_most < bytes)
		return false;
	for (unsigned i = last; i-- > 0;)
		if (out[i] && available_with(g, freed - g->worker[i].bytes) >= bytes) {
			out[i] = false;
			freed -= g->worker[i].bytes;
		}
	for (unsigned i = 0; i < last; i++)
		if (out[i]) {
			a->evict[a->evicts++] = i;
			/* NAN if the time of one worker is unknown */
			a->seconds += g->worker[i].seconds;
		}
	*ret_most = available_with(g, freed);
	return true;
}

void capacity_fit(const struct capacity_gpu *g, uint64_t bytes, struct capacity_answer *ret)
{
	uint64_t most = 0;

	*ret = (struct capacity_answer){ .fit = FIT_NEVER,
					 .needed_bytes = bytes,
					 .available_bytes = capacity_available(g),
					 .seconds = NAN };
	if (g->known && bytes <= ret->available_bytes) {
		ret->fit = FIT_NOW;
		ret->seconds = 0;
	} else if (g->known) {
		ret->seconds = 0;
		if (choose_evictions(g, bytes, ret, &most))
			ret->fit = FIT_AFTER_EVICTION;
		else
			ret->seconds = NAN;
	}
	explain_fit(g, ret, most);
}

static const char *why_excluded(const struct capacity_gpu *g)
{
	if (g->quarantine)
		return "excluded: the GPU is in quarantine";
	if (g->blind)
		return "excluded: its processes cannot be read";
	return g->warm ? "excluded: the GPU is too warm" : NULL;
}

/* Returns the bytes that would be left over after the evictions. */
static uint64_t leftover(const struct capacity_gpu *g, const struct capacity_answer *a)
{
	uint64_t freed = 0;

	for (unsigned i = 0; i < a->evicts; i++)
		freed += g->worker[a->evict[i]].bytes;
	return available_with(g, freed) - a->needed_bytes;
}

/* True if GPU a is a better place than GPU b. Equal GPUs keep their order. */
static bool is_better(const struct capacity_gpu *g, const struct capacity_answer *answers,
		      unsigned a, unsigned b)
{
	uint64_t left_a, left_b;
	double margin_a = g[a].margin_c, margin_b = g[b].margin_c;

	if (answers[a].fit != answers[b].fit)
		return answers[a].fit < answers[b].fit;
	left_a = leftover(&g[a], &answers[a]);
	left_b = leftover(&g[b], &answers[b]);
	if (left_a != left_b)
		return left_a < left_b;
	return margin_a > margin_b || (isnan(margin_b) && !isnan(margin_a));
}

static void explain_place(const struct capacity_gpu *g, struct capacity_answer *a,
			  unsigned place)
{
	char fit[sizeof(a->why)], margin[48] = "thermal margin unknown";

	memcpy(fit, a->why, sizeof(fit));
	if (!isnan(g->margin_c))
		snprintf(margin, sizeof(margin), "thermal margin %.0f C", g->margin_c);
	snprintf(a->why, sizeof(a->why), "%u: %.130s; %.2f GiB left over, %s", place, fit,
		 (double)leftover(g, a) / GIB, margin);
}

unsigned capacity_place(const struct capacity_gpu *g, unsigned n, uint64_t bytes,
			unsigned *order, struct capacity_answer *answers)
{
	unsigned can = 0, out = n;

	for (unsigned i = 0; i < n; i++) {
		const char *why = why_excluded(&g[i]);
		unsigned at;

		capacity_fit(&g[i], bytes, &answers[i]);
		if (why)
			snprintf(answers[i].why, sizeof(answers[i].why), "%s", why);
		if (why || answers[i].fit == FIT_NEVER)
			continue;
		for (at = can++; at > 0 && is_better(g, answers, i, order[at - 1]); at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	for (unsigned i = 0; i < can; i++)
		explain_place(&g[order[i]], &answers[order[i]], i + 1);
	/* GPUs that cannot take the bytes follow in their original order */
	for (unsigned i = n; i-- > 0;) {
		bool taken = false;

		for (unsigned k = 0; k < can && !taken; k++)
			taken = order[k] == i;
		if (!taken)
			order[--out] = i;
	}
	return can;
}
