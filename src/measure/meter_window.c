/* Opens and closes windows on all GPUs of the meter at once, and gets their results from the
 * trackers. */
#include "meter_parts.h"

#include "device/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gw_window {
	struct gw_meter *meter;
	struct gw_window *next, **link; /* in the list gw_meter.windows */
	unsigned id;
	char label[64];
	bool hurry;     /* window_hurry() was called */
	bool waited;    /* gw_window_wait() has computed the final result */
	int wait_error; /* the result of gw_window_wait(), if `waited` is true */
	atomic_bool closed;
	struct tracked_window *tracked; /* one per device */
	struct gw_energy *energy;       /* the results, one per device */
	/* one per device: the series that gw_window_series() returned last; NULL: the window is
	 * not recorded */
	struct gw_series *seen;
};

/* Records the start or end of a window, and wakes the thread, which takes the readings for
 * it. */
static void record_boundary(struct meter_device *d, const struct event *e,
			    struct tracked_window *w, uint64_t early_ns)
{
	pthread_mutex_lock(&d->lock);
	meter_record(d, e, w);
	if (e->type == EVENT_CLOSE && e->t_ns - early_ns > d->end_ns)
		d->end_ns = e->t_ns - early_ns;
	d->boundary = early_ns && d->tracker.open && !d->tracker.open->next ? METER_BRIEF_END
									    : METER_BOUNDARY;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

static void link_window(struct gw_meter *m, struct gw_window *w)
{
	pthread_mutex_lock(&m->lock);
	w->id = ++m->ids;
	w->next = m->windows;
	w->link = &m->windows;
	if (w->next)
		w->next->link = &w->next;
	m->windows = w;
	pthread_mutex_unlock(&m->lock);
}

static void window_free_memory(struct gw_window *w)
{
	for (unsigned i = 0; w->tracked && i < w->meter->count; i++)
		free(w->tracked[i].series);
	free(w->tracked);
	free(w->energy);
	free(w->seen);
	free(w);
}

/* Allocates a window with memory for `room` readings. If room is 0, the window is not
 * recorded. */
static struct gw_window *window_new(struct gw_meter *m, size_t room)
{
	struct gw_window *w = calloc(1, sizeof(*w));
	bool ok;

	if (!w)
		return NULL;
	w->meter = m;
	w->tracked = calloc(m->count + 1, sizeof(*w->tracked));
	w->energy = calloc(m->count + 1, sizeof(*w->energy));
	w->seen = room ? calloc(m->count + 1, sizeof(*w->seen)) : NULL;
	ok = w->tracked && w->energy && (w->seen || !room);
	for (unsigned i = 0; ok && room && i < m->count; i++)
		ok = (w->tracked[i].series = window_series_new(room)) != NULL;
	if (ok)
		return w;
	window_free_memory(w);
	return NULL;
}

/* Copies a label. A long label is cut between two UTF-8 characters. */
static void copy_label(char *out, size_t size, const char *label)
{
	size_t n = strlen(label);

	if (n >= size)
		for (n = size - 1; n > size - 4 && (label[n] & 0xc0) == 0x80; n--)
			; /* label[n] is not the first byte of a character */
	snprintf(out, size, "%.*s", (int)n, label);
}

static int window_open(struct gw_meter *m, const char *label, uint64_t begin_ns, size_t room,
		       struct gw_window **ret_window)
{
	struct event e = { .type = EVENT_OPEN };
	uint64_t now = m ? clock_mono_ns(m->clock) : 0;
	struct gw_window *w;

	if (!m || !ret_window)
		return context_fail(m ? m->ctx : NULL, -GW_E_ARG,
				    "a window cannot be opened: %s must not be NULL",
				    m ? "ret_window" : "meter");
	if (begin_ns > now || (begin_ns && now - begin_ns > 30 * NS_PER_S))
		return context_fail(
			m->ctx, -GW_E_ARG,
			"a window cannot begin in the future or more than 30 s ago");
	w = window_new(m, room);
	if (!w)
		return room ? context_fail(m->ctx, -GW_E_NOMEM,
					   "no memory for a window with %zu points per GPU; "
					   "use fewer points",
					   room)
			    : context_fail(m->ctx, -GW_E_NOMEM, NULL);
	copy_label(w->label, sizeof(w->label), label ? label : "");
	link_window(m, w);
	e.t_ns = begin_ns ? begin_ns : now;
	e.u.window.id = w->id;
	e.u.window.period_s = NAN;
	memcpy(e.u.window.label, w->label, sizeof(e.u.window.label));
	for (unsigned i = 0; i < m->count; i++) {
		if (room) {
			struct gw_series *v = &w->tracked[i].series->view;

			v->begin_ns = e.t_ns;
			v->begin_wall_ns = clock_wall_ns(m->clock) - (now - e.t_ns);
		}
		record_boundary(m->device[i], &e, &w->tracked[i], 0);
	}
	*ret_window = w;
	return 0;
}

int gw_window_open(struct gw_meter *m, const char *label, uint64_t begin_ns,
		   struct gw_window **ret_window)
{
	return window_open(m, label, begin_ns, 0, ret_window);
}

int gw_window_open_recorded(struct gw_meter *m, const char *label, uint64_t begin_ns,
			    size_t points, struct gw_window **ret_window)
{
	return window_open(m, label, begin_ns, points ? points : WINDOW_SERIES_ROOM,
			   ret_window);
}

void window_hurry(struct gw_window *w)
{
	w->hurry = true;
}

/* Returns how long before the end of the window the last sample may be: half a spacing for a
 * short window after window_hurry(), otherwise 0. */
static uint64_t early_ns(const struct gw_window *w, unsigned i, uint64_t end_ns)
{
	double spacing = w->meter->device[i]->tracker.energy.set.spacing_s;
	uint64_t length = end_ns - w->tracked[i].e.begin_ns;

	return w->hurry && (double)length < 1e9 * spacing ? (uint64_t)(0.5e9 * spacing) : 0;
}

int gw_window_close(struct gw_window *w, uint64_t end_ns)
{
	struct event e = { .type = EVENT_CLOSE };
	uint64_t now = w ? clock_mono_ns(w->meter->clock) : 0;

	if (!w)
		return context_fail_null(NULL, "window");
	e.t_ns = end_ns ? end_ns : now;
	if (!w->closed &&
	    (e.t_ns > now || (w->meter->count && e.t_ns < w->tracked[0].e.begin_ns)))
		return context_fail(w->meter->ctx, -GW_E_ARG,
				    "the window \"%s\" cannot end in the future or before it "
				    "begins",
				    w->label);
	if (w->meter->count && e.t_ns == w->tracked[0].e.begin_ns)
		e.t_ns++;                      /* a window must be longer than 0 */
	if (atomic_exchange(&w->closed, true)) /* two threads may close the window at once */
		return context_fail(w->meter->ctx, -GW_E_STATE,
				    "the window \"%s\" is already closed", w->label);
	e.u.window.id = w->id;
	for (unsigned i = 0; i < w->meter->count; i++)
		record_boundary(w->meter->device[i], &e, NULL, early_ns(w, i, e.t_ns));
	return 0;
}

static bool device_done(const struct gw_window *w, unsigned i)
{
	const struct meter_device *d = w->meter->device[i];

	return d->phase == METER_HUNG || window_tracker_done(&d->tracker, &w->tracked[i]) ||
	       !d->sampler.answers ||
	       (w->hurry && energy_is_near(&d->tracker.energy, &w->tracked[i].e));
}

/* Waits for the sample that covers the end of the window on device i. */
static bool wait_device(struct gw_window *w, unsigned i, uint64_t until_ns)
{
	struct meter_device *d = w->meter->device[i];
	bool ok;

	if (w->meter->manual) {
		uint64_t now = clock_mono_ns(w->meter->clock);

		while (!device_done(w, i) && now < until_ns) {
			uint64_t due = gw_meter_poll(w->meter);

			if (device_done(w, i))
				break;
			clock_sleep_until(w->meter->clock, due < until_ns ? due : until_ns);
			now = clock_mono_ns(w->meter->clock);
		}
		return device_done(w, i);
	}
	pthread_mutex_lock(&d->lock);
	while (!(ok = device_done(w, i)) && meter_wait_news(d, until_ns))
		;
	pthread_mutex_unlock(&d->lock);
	return ok;
}

bool window_done(struct gw_window *w)
{
	bool all = w->closed;

	for (unsigned i = 0; all && !w->waited && i < w->meter->count; i++) {
		struct meter_device *d = w->meter->device[i];

		pthread_mutex_lock(&d->lock);
		all = device_done(w, i);
		pthread_mutex_unlock(&d->lock);
	}
	return all;
}

static void compute_result(struct gw_window *w, unsigned i, bool last)
{
	struct meter_device *d = w->meter->device[i];

	pthread_mutex_lock(&d->lock);
	w->energy[i].device = i;
	if (last)
		meter_record(
			d,
			&(struct event){ .type = EVENT_RESULT,
					 .t_ns = clock_mono_ns(w->meter->clock),
					 .u.window = { .id = w->id,
						       .period_s = NAN,
						       .exclusive = w->meter->exclusive } },
			NULL);
	window_tracker_result(&d->tracker, &w->tracked[i], &w->energy[i]);
	if (last) {
		if (w->meter->on_result)
			w->meter->on_result(w->meter->arg, i, w->id, w->label, &w->energy[i]);
		window_tracker_share(&d->tracker, &w->tracked[i], &w->energy[i]);
		window_tracker_forget(&d->tracker, &w->tracked[i]);
	}
	pthread_mutex_unlock(&d->lock);
}

int gw_window_wait(struct gw_window *w, uint64_t timeout_ns)
{
	uint64_t now = w ? clock_mono_ns(w->meter->clock) : 0;
	uint64_t until = timeout_ns < UINT64_MAX / 2 - now ? now + timeout_ns : UINT64_MAX / 2;

	if (!w)
		return context_fail_null(NULL, "window");
	if (!w->closed)
		return context_fail(w->meter->ctx, -GW_E_STATE,
				    "the window \"%s\" is still open; close it first",
				    w->label);
	for (unsigned i = 0; !w->waited && i < w->meter->count; i++) {
		if (!wait_device(w, i, until))
			w->wait_error = -GW_E_TIMEOUT;
		compute_result(w, i, true);
	}
	w->waited = true;
	return w->wait_error
		       ? context_fail(
				 w->meter->ctx, w->wait_error,
				 "no sample covered the end of the window \"%s\" in time; its "
				 "result is truncated",
				 w->label)
		       : 0;
}

const struct gw_energy *gw_window_energy(struct gw_window *w, unsigned i)
{
	if (i >= w->meter->count)
		return NULL;
	if (!w->waited)
		compute_result(w, i, false);
	return &w->energy[i];
}

const struct gw_series *gw_window_series(struct gw_window *w, unsigned i)
{
	struct meter_device *d;

	if (!w->seen || i >= w->meter->count)
		return NULL;
	d = w->meter->device[i];
	pthread_mutex_lock(&d->lock);
	w->seen[i] = w->tracked[i].series->view;
	pthread_mutex_unlock(&d->lock);
	return &w->seen[i];
}

const char *gw_window_label(const struct gw_window *w)
{
	return w->label;
}

void gw_window_free(struct gw_window *w)
{
	if (!w)
		return;
	for (unsigned i = 0; i < w->meter->count; i++) {
		struct meter_device *d = w->meter->device[i];

		pthread_mutex_lock(&d->lock);
		window_tracker_forget(&d->tracker, &w->tracked[i]);
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_lock(&w->meter->lock);
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	pthread_mutex_unlock(&w->meter->lock);
	window_free_memory(w);
}

void window_evidence(const struct gw_window *w, unsigned i, const struct gw_energy *e,
		     unsigned code, char *out, size_t size)
{
	window_tracker_evidence(&w->tracked[i], e, code, out, size);
}

const struct attribute *window_processes(const struct gw_window *w, unsigned i)
{
	return &w->tracked[i].shares;
}

void window_activity(struct gw_window *w, unsigned i, struct window_activity *ret)
{
	struct meter_device *d = w->meter->device[i];
	const struct tracked_window *t = &w->tracked[i];

	pthread_mutex_lock(&d->lock);
	*ret = (struct window_activity){ .utilization_max = t->utilization_max,
					 .reasons = t->throttling.reasons,
					 .first = t->first.pid,
					 .foreign = t->foreign.pid,
					 .hidden = t->hidden };
	memcpy(ret->first_name, t->first.name, sizeof(ret->first_name));
	memcpy(ret->foreign_name, t->foreign.name, sizeof(ret->foreign_name));
	pthread_mutex_unlock(&d->lock);
}
