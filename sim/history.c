#include "history.h"

#include <math.h>
#include <stdlib.h>

static struct piece *history_slot(const struct history *h, uint64_t i)
{
	return &h->piece[i % HISTORY_PIECES];
}

int history_init(struct history *h, double watts)
{
	h->piece = calloc(HISTORY_PIECES, sizeof(*h->piece));
	if (h->piece == NULL)
		return -1;
	h->n = 1;
	h->piece[0].watts = watts;
	for (int i = 0; i < HISTORY_FILTERS; i++)
		h->piece[0].filtered_w[i] = watts;
	h->piece[0].celsius = h->ambient_c + h->c_per_w * watts;
	return 0;
}

void history_done(struct history *h)
{
	free(h->piece);
	h->piece = NULL;
	h->n = 0;
}

const struct piece *history_last(const struct history *h)
{
	return history_slot(h, h->n - 1);
}

/* Returns the seconds from the start of p to t; negative if t is before the oldest piece. */
static double seconds_since(const struct piece *p, uint64_t t_ns)
{
	return t_ns >= p->at_ns ? (double)(t_ns - p->at_ns) * 1e-9
				: -(double)(p->at_ns - t_ns) * 1e-9;
}

/* Returns the output of a first-order filter that had the output `from` and then the input `to`
 * for this many seconds. */
static double history_approach(double from, double to, double seconds, double constant_s)
{
	if (constant_s <= 0)
		return to;
	if (seconds <= 0)
		return from;
	return to + (from - to) * exp(-seconds / constant_s);
}

const struct piece *history_at(const struct history *h, uint64_t t_ns)
{
	uint64_t first = h->n > HISTORY_PIECES ? h->n - HISTORY_PIECES : 0;
	uint64_t low = first, high = h->n;

	/* Try the last piece first, because most queries are about the present. */
	if (history_slot(h, h->n - 1)->at_ns <= t_ns)
		return history_slot(h, h->n - 1);
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (history_slot(h, middle)->at_ns <= t_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return history_slot(h, low == first ? first : low - 1);
}

void history_add(struct history *h, uint64_t t_ns, double watts, double load, double clock)
{
	const struct piece *last = history_last(h);
	struct piece next = {
		.at_ns = t_ns,
		.watts = watts,
		.load = load,
		.clock = clock,
		.joules = history_joules(h, t_ns),
		.busy_s = history_busy_s(h, t_ns),
		.celsius = history_celsius(h, t_ns),
	};

	for (unsigned i = 0; i < HISTORY_FILTERS; i++)
		next.filtered_w[i] = history_filtered_w(h, (enum history_filter)i, t_ns);
	if (last->at_ns == t_ns)
		h->n--;
	*history_slot(h, h->n) = next;
	h->n++;
}

double history_joules(const struct history *h, uint64_t t_ns)
{
	const struct piece *p = history_at(h, t_ns);

	return p->joules + p->watts * seconds_since(p, t_ns);
}

double history_busy_s(const struct history *h, uint64_t t_ns)
{
	const struct piece *p = history_at(h, t_ns);

	return p->busy_s + p->load * seconds_since(p, t_ns);
}

double history_filtered_w(const struct history *h, enum history_filter filter, uint64_t t_ns)
{
	const struct piece *p = history_at(h, t_ns);

	return history_approach(p->filtered_w[filter], p->watts, seconds_since(p, t_ns),
				h->filter_s[filter]);
}

double history_celsius(const struct history *h, uint64_t t_ns)
{
	const struct piece *p = history_at(h, t_ns);

	return history_approach(p->celsius, h->ambient_c + h->c_per_w * p->watts,
				seconds_since(p, t_ns), h->thermal_s);
}

/* Returns the mean over a window. For the part of the window before the start of the world, the
 * value of the first piece is used. */
static double window_mean(double then, double now, uint64_t t_ns, uint64_t window_ns,
			  double first)
{
	double window_s = (double)window_ns * 1e-9;
	double missing_s = window_ns > t_ns ? (double)(window_ns - t_ns) * 1e-9 : 0;

	return (now - then + first * missing_s) / window_s;
}

double history_mean_w(const struct history *h, uint64_t t_ns, uint64_t window_ns)
{
	uint64_t then_ns = window_ns < t_ns ? t_ns - window_ns : 0;

	if (window_ns == 0)
		return history_at(h, t_ns)->watts;
	return window_mean(history_joules(h, then_ns), history_joules(h, t_ns), t_ns, window_ns,
			   history_at(h, then_ns)->watts);
}

double history_mean_load(const struct history *h, uint64_t t_ns, uint64_t window_ns)
{
	uint64_t then_ns = window_ns < t_ns ? t_ns - window_ns : 0;

	if (window_ns == 0)
		return history_at(h, t_ns)->load;
	return window_mean(history_busy_s(h, then_ns), history_busy_s(h, t_ns), t_ns, window_ns,
			   history_at(h, then_ns)->load);
}
