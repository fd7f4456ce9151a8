#include "power_record.h"

#include <string.h>

#define HOLE_S 2.5 /* samples further apart say nothing of what was between them */

void power_record_init(struct power_record *r)
{
	memset(r, 0, sizeof(*r));
	r->every = 1;
}

static void thin(struct power_record *r)
{
	for (size_t i = 0; 2 * i < r->n; i++)
		r->point[i] = r->point[2 * i];
	r->n = (r->n + 1) / 2;
	r->every *= 2;
}

void power_record_add(struct power_record *r, double t_s, double watts)
{
	struct power_record_point p = r->last;
	double step_s = t_s - p.t_s;

	if (r->samples && !(step_s > 0))
		return;
	if (r->samples && step_s > HOLE_S)
		p.hole_s += step_s;
	else if (r->samples)
		p.joules += 0.5 * (r->last_w + watts) * step_s;
	p.t_s = t_s;
	r->last = p;
	r->last_w = watts;
	if (r->samples++ % r->every != 0)
		return;
	if (r->n == POWER_RECORD_POINTS)
		thin(r);
	r->point[r->n++] = p;
}

bool power_record_span(const struct power_record *r, double *ret_from_s, double *ret_to_s)
{
	if (r->samples < 2)
		return false;
	*ret_from_s = r->point[0].t_s;
	*ret_to_s = r->last.t_s;
	return true;
}

/* The integral at t, which lies inside. */
static struct power_record_point at(const struct power_record *r, double t_s)
{
	size_t low = 0, high = r->n;
	struct power_record_point a, b;
	double share;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (r->point[middle].t_s <= t_s)
			low = middle;
		else
			high = middle;
	}
	a = r->point[low];
	b = high < r->n ? r->point[high] : r->last;
	share = b.t_s > a.t_s ? (t_s - a.t_s) / (b.t_s - a.t_s) : 0;
	return (struct power_record_point){ t_s, a.joules + share * (b.joules - a.joules),
					    a.hole_s + share * (b.hole_s - a.hole_s) };
}

bool power_record_mean(const struct power_record *r, double from_s, double to_s, double *ret_w)
{
	double first, last;
	struct power_record_point a, b;

	if (!power_record_span(r, &first, &last) || !(to_s > from_s) || from_s < first ||
	    to_s > last)
		return false;
	a = at(r, from_s);
	b = at(r, to_s);
	if (b.hole_s > a.hole_s)
		return false;
	*ret_w = (b.joules - a.joules) / (to_s - from_s);
	return true;
}
