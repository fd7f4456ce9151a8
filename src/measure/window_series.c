#include "window_series.h"

#include "energy_parts.h"

#include <stdlib.h>

struct window_series *window_series_new(size_t room)
{
	const size_t row = sizeof(uint64_t) * 2 + sizeof(double) * (1 + FIGURES);
	struct window_series *s;
	double *at;

	if (room > (SIZE_MAX - sizeof(*s)) / row)
		return NULL;
	s = calloc(1, sizeof(*s) + room * row);
	if (!s)
		return NULL;
	s->power_ns = (uint64_t *)(s + 1);
	s->tick_ns = s->power_ns + room;
	s->power_w = at = (void *)(s->tick_ns + room);
	for (unsigned i = 0; i < FIGURES; i++)
		s->column[i] = at += room;
	s->view = (struct gw_series){ .room = room,
				      .power_ns = s->power_ns,
				      .power_w = s->power_w,
				      .tick_ns = s->tick_ns,
				      .figure_count = FIGURES,
				      .figure_quantity = event_quantity,
				      .figure = (const double *const *)s->column };
	return s;
}

void window_series_free(struct window_series *s)
{
	free(s);
}

/* True if the sample at t_ns replaces the first sample, which is the only one so far and before
 * the window: t_ns is not after the begin of the window, or the time between the two samples is
 * a gap. */
static bool series_replaces_first(const struct window_series *s, uint64_t t_ns,
				  const struct energy *e, const struct energy_window *w)
{
	double hole_ns = ENERGY_HOLE_STEPS * e->set.spacing_s * 1e9;

	return s->view.power_count == 1 && s->power_ns[0] < w->begin_ns &&
	       (t_ns <= w->begin_ns || (double)(t_ns - s->power_ns[0]) > hole_ns);
}

static void series_add_power(struct window_series *s, uint64_t t_ns, double power_w,
			     const struct energy_window *w)
{
	struct gw_series *v = &s->view;

	if (v->power_count && w->end_ns && s->power_ns[v->power_count - 1] >= w->end_ns)
		return;
	if (v->power_count == v->room) {
		v->dropped += !w->end_ns || t_ns <= w->end_ns;
		return;
	}
	s->power_ns[v->power_count] = t_ns;
	s->power_w[v->power_count++] = power_w;
}

void window_series_follow(struct window_series *s, const struct energy *e,
			  const struct energy_window *w)
{
	if (s->next + ENERGY_SAMPLES < e->samples)
		s->next = e->samples - ENERGY_SAMPLES;
	for (; s->next < e->samples; s->next++) {
		const struct energy_sample *p = &e->sample[s->next % ENERGY_SAMPLES];

		if (series_replaces_first(s, p->t_ns, e, w))
			s->view.power_count = 0;
		series_add_power(s, p->t_ns, p->w, w);
	}
}

void window_series_tick(struct window_series *s, const struct event *e)
{
	struct gw_series *v = &s->view;

	if (v->tick_count == v->room) {
		v->dropped++;
		return;
	}
	s->tick_ns[v->tick_count] = e->t_ns;
	for (unsigned i = 0; i < FIGURES; i++)
		s->column[i][v->tick_count] = e->u.tick.figure[i];
	v->tick_count++;
}

void window_series_close(struct window_series *s, const struct energy_window *w)
{
	struct gw_series *v = &s->view;

	while (v->power_count > 1 && s->power_ns[v->power_count - 2] >= w->end_ns)
		v->power_count--;
	while (v->tick_count && s->tick_ns[v->tick_count - 1] > w->end_ns)
		v->tick_count--;
}
