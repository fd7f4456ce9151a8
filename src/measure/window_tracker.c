#include "window_tracker.h"

#include "energy_parts.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Throttling gives a code if it lasted for a larger share of the window than this. */
#define THROTTLE_SHARE 0.01
/* Thermal throttling and the power brake make the window invalid above this share. */
#define THROTTLE_INVALID 0.10
#define COVERAGE_INVALID 0.90 /* a lower coverage makes the window invalid */
#define DRIFT_C          10.0 /* a larger change of temperature gives the code temp-drift */
#define SHORT_S          10.0 /* a shorter window has the code short */

const uint64_t window_tracker_reason_bits[GW_THROTTLES] = {
	[GW_THROTTLE_POWER] = 0x4,
	[GW_THROTTLE_SYNC_BOOST] = 0x10,
	[GW_THROTTLE_THERMAL_SOFTWARE] = 0x20,
	[GW_THROTTLE_THERMAL_HARDWARE] = 0x40,
	[GW_THROTTLE_BRAKE] = 0x80,
};

/* The code for each cause of throttling. */
static const enum gw_code throttle_code[GW_THROTTLES] = {
	[GW_THROTTLE_POWER] = GW_CODE_THROTTLE_POWER,
	[GW_THROTTLE_SYNC_BOOST] = GW_CODE_THROTTLE_POWER,
	[GW_THROTTLE_THERMAL_SOFTWARE] = GW_CODE_THROTTLE_THERMAL,
	[GW_THROTTLE_THERMAL_HARDWARE] = GW_CODE_THROTTLE_THERMAL,
	[GW_THROTTLE_BRAKE] = GW_CODE_THROTTLE_BRAKE,
};

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

/* Returns true if the sample at t_ns replaces the first sample of the series. The first sample
 * must be the only one, and it must be before the window. In addition, either t_ns must not be
 * after the start of the window, or the time between the two samples must be a gap. */
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

/* Copies new power samples of the energy engine: the samples in the window, the last one before
 * the window and the first one after the window. */
static void window_series_follow(struct window_series *s, const struct energy *e,
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

/* Adds the readings of a tick to the series. */
static void window_series_tick(struct window_series *s, const struct event *e)
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

/* The end of a window may be in the past. Removes the readings after the end, except the first
 * power sample. */
static void window_series_close(struct window_series *s, const struct energy_window *w)
{
	struct gw_series *v = &s->view;

	while (v->power_count > 1 && s->power_ns[v->power_count - 2] >= w->end_ns)
		v->power_count--;
	while (v->tick_count && s->tick_ns[v->tick_count - 1] > w->end_ns)
		v->tick_count--;
}

void window_tracker_init(struct window_tracker *t, const struct energy_setup *set,
			 double interval_s)
{
	memset(t, 0, sizeof(*t));
	energy_init(&t->energy, set);
	t->interval_s = interval_s;
	t->no_context_w = t->context_w = t->last_tick_w = NAN;
}

struct tracked_window *window_tracker_find(struct window_tracker *t, unsigned id)
{
	for (struct tracked_window *w = t->open; w; w = w->next)
		if (w->id == id)
			return w;
	return NULL;
}

void window_tracker_forget(struct window_tracker *t, struct tracked_window *w)
{
	for (struct tracked_window **p = &t->open; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			return;
		}
}

static void open_window(struct window_tracker *t, const struct event *e,
			struct tracked_window *w)
{
	struct window_series *series = w->series;

	memset(w, 0, sizeof(*w));
	w->series = series;
	w->id = e->u.window.id;
	snprintf(w->label, sizeof(w->label), "%s", e->u.window.label);
	energy_open(&w->e, e->t_ns, e->u.window.period_s);
	w->begin_limits.limit_w = w->end_limits.limit_w = NAN;
	w->temp.begin = w->temp.end = w->temp.max = w->memory_max = w->utilization_max = NAN;
	attribute_init(&w->shares, t->no_context_w, t->context_w);
	w->next = t->open;
	t->open = w;
}

static bool tracker_covers(const struct tracked_window *w, uint64_t t_ns)
{
	return t_ns >= w->e.begin_ns && (!w->e.end_ns || t_ns <= w->e.end_ns);
}

static double max_known(double old, double v)
{
	return isnan(old) ? v : isnan(v) ? old : fmax(old, v);
}

static void throttling_add(struct tracked_throttling *t, uint64_t reasons, double dt,
			   double power_w)
{
	bool limited = false;

	t->seen = true;
	t->reasons |= reasons;
	for (unsigned i = 0; i < GW_THROTTLES; i++)
		if (reasons & window_tracker_reason_bits[i]) {
			t->limited_s[i] += dt;
			limited = true;
		}
	if (limited && !isnan(power_w))
		t->limited_j += power_w * dt;
}

static void mean_add(struct tracked_mean *m, double v)
{
	if (isnan(v))
		return;
	m->sum += v;
	m->count++;
}

static double mean_of(const struct tracked_mean *m)
{
	return m->count ? m->sum / (double)m->count : NAN;
}

static void tracker_tick(struct tracked_window *w, const struct event *e)
{
	const double *f = e->u.tick.figure;
	uint64_t from = w->last_tick_ns ? w->last_tick_ns : w->e.begin_ns;
	double temp = f[FIGURE_TEMPERATURE_GPU];

	w->ticks++;
	w->missed += e->u.tick.missed;
	w->last_tick_ns = e->t_ns;
	if (isnan(w->temp.begin))
		w->temp.begin = temp;
	if (!isnan(temp))
		w->temp.end = temp;
	w->temp.max = max_known(w->temp.max, temp);
	w->memory_max = max_known(w->memory_max, f[FIGURE_MEMORY_USED]);
	mean_add(&w->clock, f[FIGURE_CLOCK_SM]);
	mean_add(&w->utilization, f[FIGURE_UTILIZATION_GPU]);
	w->utilization_max = max_known(w->utilization_max, f[FIGURE_UTILIZATION_GPU]);
	if (!isnan(f[FIGURE_CLOCK_REASONS]))
		throttling_add(&w->throttling, (uint64_t)f[FIGURE_CLOCK_REASONS],
			       fmax(0, span_s(from, e->t_ns)), f[FIGURE_POWER]);
}

/* Stores a reading of the throttle counters. The first reading at or after the start of a
 * window is used for the start, and the first one at or after its end is used for the end. */
static void tracker_limits(struct tracked_window *w, const struct event *e)
{
	struct tracked_limits now = { .known = true, .limit_w = e->u.limits.limit_w };

	if (e->t_ns < w->e.begin_ns || w->end_limits.known)
		return;
	memcpy(now.limited_s, e->u.limits.seconds, sizeof(now.limited_s));
	if (!w->begin_limits.known)
		w->begin_limits = now;
	w->end_limits = now;
	w->end_limits.known = w->e.end_ns && e->t_ns >= w->e.end_ns;
}

static void tracker_note_process(struct tracked_process *p, const struct event *e)
{
	if (p->pid)
		return;
	p->pid = e->u.process.id.pid;
	p->bytes = e->u.process.memory_bytes;
	memcpy(p->name, e->u.process.name, sizeof(p->name));
}

static void tracker_process(struct window_tracker *t, const struct event *e)
{
	if (t->processes.count < TRACKED_PROCESSES) {
		struct attribute_use *u = &t->processes.use[t->processes.count++];

		*u = (struct attribute_use){ .id = e->u.process.id,
					     .sm_ratio = e->u.process.sm_ratio };
		memcpy(u->name, e->u.process.name, sizeof(u->name));
	} else {
		t->processes.hidden = true;
	}
	for (struct tracked_window *w = t->open; w; w = w->next) {
		if (!tracker_covers(w, e->t_ns))
			continue;
		tracker_note_process(&w->first, e);
		if (e->u.process.own)
			continue;
		w->codes |= code_bit(GW_CODE_FOREIGN_PROCESS);
		tracker_note_process(&w->foreign, e);
	}
}

/* Divides the window's energy up to `to_ns` among the processes in the list. */
static void share_until(struct window_tracker *t, struct tracked_window *w, uint64_t to_ns,
			const struct window_tracker_processes *list)
{
	uint64_t from = w->shared_ns ? w->shared_ns : w->e.begin_ns;
	struct energy_point p;

	if (w->e.end_ns && to_ns > w->e.end_ns)
		to_ns = w->e.end_ns;
	if (!w->e.begin.known || to_ns <= from)
		return;
	if (w->e.end.known && to_ns == w->e.end_ns)
		p = w->e.end.point;
	else if (energy_at(&t->energy, to_ns, &p) != 0)
		return;
	if (!w->shared_ns)
		w->shared_to = w->e.begin.point;
	attribute_add(&w->shares,
		      p.joules + p.hole_j - w->shared_to.joules - w->shared_to.hole_j,
		      span_s(from, to_ns), list->use, list->count, list->hidden);
	w->shared_to = p;
	w->shared_ns = to_ns;
}

/* Ends a process list. The power samples for the time of a list arrive after the list, so a
 * list is used when the next one arrives. */
static void tracker_process_list(struct window_tracker *t, const struct event *e)
{
	t->processes.t_ns = e->t_ns;
	t->processes.hidden |= e->u.process_list.hidden;
	for (struct tracked_window *w = t->open; w; w = w->next)
		w->hidden |= tracker_covers(w, e->t_ns) && e->u.process_list.hidden;
	if (t->has_previous)
		for (struct tracked_window *w = t->open; w; w = w->next)
			share_until(t, w, t->previous.t_ns, &t->previous);
	t->previous = t->processes;
	t->has_previous = true;
	memset(&t->processes, 0, sizeof(t->processes));
}

static void tracker_power(struct window_tracker *t, const struct event *e)
{
	if (energy_add(&t->energy, e->t_ns, e->u.power_w) != 0)
		return;
	for (struct tracked_window *w = t->open; w; w = w->next) {
		energy_follow(&t->energy, &w->e);
		if (w->series)
			window_series_follow(w->series, &t->energy, &w->e);
	}
}

/* Sets the end of a window. Samples from before its end may still arrive. */
static void end_window(struct window_tracker *t, struct tracked_window *w, uint64_t t_ns)
{
	if (w->e.end_ns)
		return;
	energy_close(&w->e, t_ns);
	energy_follow(&t->energy, &w->e);
	if (w->series)
		window_series_close(w->series, &w->e);
}

/* Closes a window for which no more events will come; missing data stays missing. */
static void close_window(struct window_tracker *t, struct tracked_window *w,
			 const struct event *e)
{
	w->exclusive = e->u.window.exclusive;
	if (!w->e.end_ns)
		energy_close(&w->e, e->t_ns);
	if (!window_tracker_done(t, w) && !energy_end_near(&t->energy, &w->e)) {
		energy_cut(&t->energy, &w->e);
		w->codes |= code_bit(GW_CODE_TRUNCATED);
	}
}

void window_tracker_feed(struct window_tracker *t, const struct event *e,
			 struct tracked_window *memory)
{
	struct tracked_window *w;
	int code;

	switch (e->type) {
	case EVENT_POWER: tracker_power(t, e); break;
	case EVENT_COUNTER:
		code = energy_count(&t->energy, e->t_ns, e->u.counter.after_ns,
				    e->u.counter.joules);
		for (w = t->open; code >= 0 && w; w = w->next)
			if (tracker_covers(w, e->t_ns))
				w->codes |= code_bit((unsigned)code);
		break;
	case EVENT_NO_COUNTER: energy_no_counter(&t->energy, e->u.absence); break;
	case EVENT_TICK:
		for (w = t->open; w; w = w->next)
			if (tracker_covers(w, e->t_ns)) {
				tracker_tick(w, e);
				if (w->series)
					window_series_tick(w->series, e);
			}
		t->last_tick_w = e->u.tick.figure[FIGURE_POWER];
		break;
	case EVENT_LIMITS:
		/* Keep the highest limit, because samples from before the limit was lowered may
		 * still arrive. */
		if (!(e->u.limits.limit_w <= t->energy.set.limit_w) &&
		    !isnan(e->u.limits.limit_w))
			t->energy.set.limit_w = e->u.limits.limit_w;
		for (w = t->open; w; w = w->next)
			tracker_limits(w, e);
		break;
	case EVENT_NOTE:
		energy_note(&t->energy, e->t_ns, e->u.code);
		for (w = t->open; w; w = w->next)
			if (tracker_covers(w, e->t_ns))
				w->codes |= code_bit(e->u.code);
		break;
	case EVENT_PROCESS: tracker_process(t, e); break;
	case EVENT_PROCESS_LIST: tracker_process_list(t, e); break;
	case EVENT_OPEN: open_window(t, e, memory); break;
	case EVENT_CLOSE:
		w = window_tracker_find(t, e->u.window.id);
		if (w)
			end_window(t, w, e->t_ns);
		break;
	case EVENT_RESULT:
		w = window_tracker_find(t, e->u.window.id);
		if (w)
			close_window(t, w, e);
		break;
	case EVENT_IDLE:
		t->no_context_w = e->u.idle.no_context_w;
		t->context_w = e->u.idle.context_w;
		break;
	case EVENT_TYPES: break;
	}
}

bool window_tracker_done(const struct window_tracker *t, const struct tracked_window *w)
{
	const struct energy *e = &t->energy;

	if (!w->e.end_ns || e->set.shape == SHAPE_NONE)
		return w->e.end_ns;
	/* Samples must also cover the counter reading at the end, so that the time of the last
	 * counter update before it is known. */
	return w->e.end.known && (e->fitted || !e->reads);
}

/* Returns the throttled seconds by the driver's counters; NAN if they were not read at both the
 * start and the end of the window. */
static double counted_s(const struct tracked_window *w, unsigned cause)
{
	if (!w->begin_limits.known || (w->e.end_ns && !w->end_limits.known))
		return NAN;
	return w->end_limits.limited_s[cause] - w->begin_limits.limited_s[cause];
}

static void fill_throttling(const struct tracked_window *w, struct gw_energy *r)
{
	const struct tracked_throttling *t = &w->throttling;

	r->throttle_joules = t->seen ? t->limited_j : NAN;
	for (unsigned i = 0; i < GW_THROTTLES; i++) {
		double s = counted_s(w, i), seen = t->seen ? t->limited_s[i] : NAN;

		/* If the driver was reloaded, its counters give no difference. Counters that do
		 * not change while the sampled reasons show throttling are not used. */
		if (!(s >= 0) || (seen > 0.1 * r->seconds && s < 0.2 * seen)) {
			if (!isnan(seen))
				r->throttle_source = GW_THROTTLE_SOURCE_SAMPLED;
			s = seen;
		} else if (r->throttle_source == GW_THROTTLE_SOURCE_UNKNOWN) {
			r->throttle_source = GW_THROTTLE_SOURCE_COUNTERS;
		}
		/* fmin(NAN, x) is x: an unknown time would become the whole window. */
		r->throttle_seconds[i] = isnan(s) ? NAN : fmin(s, r->seconds);
		if (s > THROTTLE_SHARE * r->seconds)
			r->codes |= code_bit(throttle_code[i]);
	}
}

static bool throttled_badly(const struct gw_energy *r)
{
	for (unsigned i = GW_THROTTLE_THERMAL_SOFTWARE; i < GW_THROTTLES; i++)
		if (r->throttle_seconds[i] > THROTTLE_INVALID * r->seconds)
			return true;
	return false;
}

static void fill_circumstances(const struct window_tracker *t, const struct tracked_window *w,
			       struct gw_energy *r)
{
	r->temperature_begin = w->temp.begin;
	r->temperature_end = w->temp.end;
	r->temperature_max = w->temp.max;
	r->memory_used_max = w->memory_max;
	r->clock_sm_mean = mean_of(&w->clock);
	r->utilization_mean = mean_of(&w->utilization);
	r->ticks_collected = w->ticks;
	r->ticks_missed = w->missed;
	r->ticks_expected = w->ticks + w->missed;
	if (fabs(w->temp.end - w->temp.begin) > DRIFT_C)
		r->codes |= code_bit(GW_CODE_TEMP_DRIFT);
	if (fabs(w->end_limits.limit_w - w->begin_limits.limit_w) > 0.5)
		r->codes |= code_bit(GW_CODE_LIMIT_CHANGED);
	if (r->seconds < SHORT_S ||
	    (double)w->e.collected * t->energy.set.spacing_s < 10 * t->energy.set.window_s)
		r->codes |= code_bit(GW_CODE_SHORT);
}

void window_tracker_result(struct window_tracker *t, struct tracked_window *w,
			   struct gw_energy *r)
{
	energy_result(&t->energy, &w->e, r);
	r->codes |= w->codes;
	fill_throttling(w, r);
	fill_circumstances(t, w, r);
	r->validity = energy_validity(r->codes);
	if (throttled_badly(r) || r->coverage_ratio < COVERAGE_INVALID ||
	    (w->exclusive && r->codes & code_bit(GW_CODE_FOREIGN_PROCESS)))
		r->validity = r->validity > GW_INVALID ? r->validity : GW_INVALID;
	if (isnan(r->joules.best))
		r->validity = GW_NO_RESULT;
}

void window_tracker_share(struct window_tracker *t, struct tracked_window *w,
			  const struct gw_energy *r)
{
	if (!t->has_previous)
		return;
	share_until(t, w, r->end_ns, &t->previous);
	if (!isnan(r->joules.best))
		attribute_finish(&w->shares, r->joules.best);
}

/* Returns the longest time of throttling among the causes with this code. */
static double throttled_s(const struct gw_energy *r, unsigned code)
{
	double longest = 0;

	for (unsigned i = 0; i < GW_THROTTLES; i++)
		if (throttle_code[i] == code && r->throttle_seconds[i] > longest)
			longest = r->throttle_seconds[i];
	return longest;
}

/* Writes name, pid and memory of the foreign process. */
static void describe_foreign(const struct tracked_window *w, char *out, size_t size)
{
	char memory[32] = "memory unknown";

	if (w->foreign.bytes)
		snprintf(memory, sizeof(memory), "%.0f MiB",
			 (double)w->foreign.bytes / 1048576);
	snprintf(out, size, "%s (pid %lld), %s",
		 *w->foreign.name ? w->foreign.name : "a process", (long long)w->foreign.pid,
		 memory);
}

void window_tracker_evidence(const struct tracked_window *w, const struct gw_energy *r,
			     unsigned code, char *out, size_t size)
{
	double s;

	out[0] = '\0';
	switch (code) {
	case GW_CODE_FOREIGN_PROCESS: describe_foreign(w, out, size); break;
	case GW_CODE_THROTTLE_POWER:
	case GW_CODE_THROTTLE_THERMAL:
	case GW_CODE_THROTTLE_BRAKE:
		s = throttled_s(r, code);
		snprintf(out, size, "%.2f s of %.2f s (%.1f %%)%s", s, r->seconds,
			 100 * s / r->seconds,
			 r->throttle_source == GW_THROTTLE_SOURCE_SAMPLED ? ", sampled" : "");
		break;
	case GW_CODE_LIMIT_CHANGED:
		snprintf(out, size, "%.0f W at the beginning, %.0f W at the end",
			 w->begin_limits.limit_w, w->end_limits.limit_w);
		break;
	case GW_CODE_LOW_COVERAGE:
		snprintf(out, size,
			 "samples cover %.1f %% of the window; the longest gap is %.3f s",
			 100 * r->coverage_ratio, r->longest_gap_seconds);
		break;
	case GW_CODE_METERS_DISAGREE:
		snprintf(out, size, "%.1f J by the samples, %.1f J by the counter: %+.1f %%",
			 r->samples_joules, r->counter_joules, 100 * r->residual_ratio);
		break;
	case GW_CODE_ALIAS_SUSPECTED:
		if (!isnan(r->load_period_seconds))
			snprintf(out, size,
				 "the load repeats every %.0f ms, samples come every %.0f ms",
				 1e3 * r->load_period_seconds, 1e3 * r->sample_spacing_seconds);
		break;
	case GW_CODE_TEMP_DRIFT:
		snprintf(out, size, "from %.0f to %.0f degrees Celsius", r->temperature_begin,
			 r->temperature_end);
		break;
	case GW_CODE_SUB_PERIOD:
		snprintf(out, size,
			 "the window is %.1f ms long, and samples come every %.0f ms",
			 1e3 * r->seconds, 1e3 * r->sample_spacing_seconds);
		break;
	case GW_CODE_SHORT: snprintf(out, size, "the window is %.2f s long", r->seconds); break;
	default: break;
	}
}
