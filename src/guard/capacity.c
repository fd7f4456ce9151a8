#include "capacity.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOPE_NS   (600 * NS_PER_S) /* the slope is fitted to the last ten minutes */
#define SLOPE_MIN  10 /* a slope needs at least this many points, over at least SLOPE_SPAN */
#define SLOPE_SPAN (30 * NS_PER_S) /* least time from the first to the last point */

/* The values of one second, minute or ten minutes. */
struct bucket {
	uint64_t min, max; /* bytes */
	double sum;
	uint32_t number; /* The bucket begins at this number times the width of its tier. */
	uint32_t count;  /* Number of values. 0: the bucket is empty. */
};

/* Numbers of buckets: seconds for ten minutes, minutes for a day, and tens of minutes for a
 * week. Each tier has one more bucket, because the oldest bucket is only partly in the span. */
enum { SECONDS = 601, MINUTES = 1441, TENS = 1009 };
static const struct tier {
	uint64_t width_ns;
	unsigned first, count; /* position and number of its buckets */
} tiers[] = {
	{ NS_PER_S, 0, SECONDS },
	{ 60 * NS_PER_S, SECONDS, MINUTES },
	{ 600 * NS_PER_S, SECONDS + MINUTES, TENS },
};

struct capacity {
	uint64_t first_ns, last_ns; /* Times of the first and last value. 0: no value yet. */
	struct bucket bucket[SECONDS + MINUTES + TENS];
};

int capacity_new(struct capacity **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -GW_E_NOMEM;
}

void capacity_free(struct capacity *c)
{
	free(c);
}

static struct bucket *bucket_of(struct capacity *c, const struct tier *t, uint64_t number)
{
	return &c->bucket[t->first + number % t->count];
}

void capacity_add(struct capacity *c, uint64_t mono_ns, uint64_t available_bytes)
{
	if (mono_ns <= c->last_ns)
		return;
	if (!c->last_ns)
		c->first_ns = mono_ns;
	c->last_ns = mono_ns;
	for (unsigned i = 0; i < COUNT(tiers); i++) {
		uint32_t number = (uint32_t)(mono_ns / tiers[i].width_ns);
		struct bucket *b = bucket_of(c, &tiers[i], number);

		if (b->number != number || !b->count)
			*b = (struct bucket){ .min = UINT64_MAX, .number = number };
		b->min = available_bytes < b->min ? available_bytes : b->min;
		b->max = available_bytes > b->max ? available_bytes : b->max;
		b->sum += (double)available_bytes;
		b->count++;
	}
}

/* Fits a line to the means of the last ten minutes (least squares). Bytes and seconds are
 * counted from the first point so that no digits are lost. */
static void find_slope(struct capacity *c, uint64_t now_ns, struct capacity_past *ret)
{
	double st = 0, sv = 0, stt = 0, stv = 0, first = NAN, last = NAN;
	uint64_t begin = (now_ns > SLOPE_NS ? now_ns - SLOPE_NS : 0) / NS_PER_S, end = begin;
	unsigned n = 0;

	for (uint64_t k = begin; k <= now_ns / NS_PER_S; k++) {
		const struct bucket *b = bucket_of(c, &tiers[0], k);
		double t, v;

		if (b->number != k || !b->count)
			continue;
		last = b->sum / b->count;
		if (n == 0) {
			first = last;
			begin = k;
		}
		end = k;
		t = (double)(k - begin);
		v = last - first;
		st += t;
		sv += v;
		stt += t * t;
		stv += t * v;
		n++;
	}
	if (n < SLOPE_MIN || (end - begin) * NS_PER_S < SLOPE_SPAN)
		return;
	ret->slope_bytes_per_s = (n * stv - st * sv) / (n * stt - st * st);
	/* Less than one byte per second is rounding, not a trend. */
	if (ret->slope_bytes_per_s < -1)
		ret->full_s = last / -ret->slope_bytes_per_s;
}

/* Returns the finest tier that covers the whole span; if no tier does, the coarsest one. */
static const struct tier *tier_of(uint64_t span_ns)
{
	const struct tier *t = tiers;

	while (t < &tiers[COUNT(tiers) - 1] && (t->count - 1) * t->width_ns < span_ns)
		t++;
	return t;
}

void capacity_past(struct capacity *c, uint64_t now_ns, uint64_t span_ns,
		   struct capacity_past *ret)
{
	const struct tier *t = tier_of(span_ns);
	uint64_t kept_ns = (t->count - 1) * t->width_ns;
	uint64_t span = span_ns < kept_ns ? span_ns : kept_ns;
	uint64_t from = now_ns > span ? now_ns - span : 0;
	uint64_t min = UINT64_MAX, max = 0, count = 0;
	double sum = 0;

	*ret = (struct capacity_past){ .mean_bytes = NAN,
				       .slope_bytes_per_s = NAN,
				       .full_s = NAN };
	for (uint64_t k = from / t->width_ns; k <= now_ns / t->width_ns; k++) {
		const struct bucket *b = bucket_of(c, t, k);

		if (b->number != k || !b->count)
			continue;
		min = b->min < min ? b->min : min;
		max = b->max > max ? b->max : max;
		sum += b->sum;
		count += b->count;
	}
	if (count == 0)
		return;
	ret->min_bytes = min;
	ret->max_bytes = max;
	ret->mean_bytes = sum / (double)count;
	ret->span_ns = now_ns - (c->first_ns > from ? c->first_ns : from);
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
	char names[120] = "", needed[BYTES_TEXT], available[BYTES_TEXT], after[BYTES_TEXT];
	size_t used = 0;

	for (unsigned i = 0; i < a->evicts; i++) {
		int n = snprintf(names + used, sizeof(names) - used, "%s%.40s", i ? ", " : "",
				 g->worker[a->evict[i]].name);

		if (n < 0 || (size_t)n >= sizeof(names) - used)
			break;
		used += (size_t)n;
	}
	bytes_text(needed, (double)a->needed_bytes, 2);
	bytes_text(available, (double)a->available_bytes, 2);
	bytes_text(after, (double)most, 2);
	switch (a->fit) {
	case FIT_NOW:
		snprintf(a->why, sizeof(a->why), "%s needed, %s available", needed, available);
		break;
	case FIT_AFTER_EVICTION:
		snprintf(a->why, sizeof(a->why), "%s available now, %s after evicting %s",
			 available, after, names);
		break;
	case FIT_NEVER:
		snprintf(a->why, sizeof(a->why),
			 "%s needed, %s available, %s with every worker evicted", needed,
			 available, after);
		break;
	case FIT_UNKNOWN:
		snprintf(a->why, sizeof(a->why),
			 "%s needed, but the memory of this GPU cannot be read", needed);
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
		out[last] = g->worker[last].movable && g->worker[last].bytes > 0;
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
			/* NAN if the duration of one eviction is unknown */
			a->seconds += g->worker[i].seconds;
		}
	*ret_most = available_with(g, freed);
	return true;
}

void capacity_fit(const struct capacity_gpu *g, uint64_t bytes, struct capacity_answer *ret)
{
	uint64_t most = 0;

	*ret = (struct capacity_answer){ .fit = g->known ? FIT_NEVER : FIT_UNKNOWN,
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
	char fit[sizeof(a->why)], margin[48] = "thermal margin unknown", left[BYTES_TEXT];

	memcpy(fit, a->why, sizeof(fit));
	if (!isnan(g->margin_c))
		snprintf(margin, sizeof(margin), "thermal margin %.0f C",
			 number_without_minus_zero(g->margin_c, 0));
	snprintf(a->why, sizeof(a->why), "place %u: %.130s; %s left over, %s", place, fit,
		 bytes_text(left, (double)leftover(g, a), 2), margin);
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
		if (why || answers[i].fit >= FIT_NEVER)
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
