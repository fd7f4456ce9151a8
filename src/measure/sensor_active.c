/* Learns the averaging windows and lags of the power sources under our own load. */
#include "sensor_learn.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BURSTS 1024u

struct active {
	struct learn *l;
	double on_s[BURSTS], off_s[BURSTS]; /* start and end of each burst */
	struct fit_bursts bursts;
	struct fit_point point[RECORDER_POINTS]; /* points of one source at a time */
	uint64_t at_ns;                          /* when the next burst is due */
	uint64_t random;                         /* state of random_ratio() */
	bool counting;  /* read the counter instead of the power values */
	double tick_s;  /* time of the last observed update of the counter; NAN: none */
	double tick_j;  /* reading of the counter after that update; NAN: none */
	double last_s;  /* time of the previous reading of the counter */
	unsigned ticks; /* number of updates of the counter in `point` */
};

static double random_ratio(struct active *a)
{
	a->random = a->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(a->random >> 33) / (double)(UINT64_C(1) << 31);
}

/* Reads the counter and records each update as a point: the time of the update, and the mean
 * power since the previous update. */
static void read_step(struct active *a)
{
	struct recorder *w = &a->l->w;
	struct sampler_device_counter c;
	double t_s, step_s;

	recorder_counter(w, &c, &t_s);
	if (c.why != GW_HAVE || c.joules == a->tick_j)
		goto seen;
	step_s = (a->last_s + t_s) / 2;
	if (!isnan(a->tick_s) && c.joules > a->tick_j && a->ticks < RECORDER_POINTS)
		a->point[a->ticks++] =
			(struct fit_point){ step_s,
					    (c.joules - a->tick_j) / (step_s - a->tick_s) };
	/* Ignore the first observed update: the time of the previous update is unknown, so the
	 * mean power is unknown. */
	a->tick_s = isnan(a->tick_j) ? NAN : step_s;
	a->tick_j = c.joules;
seen:
	a->last_s = t_s;
}

static void record_until(struct active *a, uint64_t until_ns)
{
	const struct clock *clock = a->l->w.clock;
	uint64_t next = clock_mono_ns(clock);

	if (!a->counting) {
		recorder_until(&a->l->w, until_ns);
		return;
	}
	while (clock_mono_ns(clock) < until_ns) {
		read_step(a);
		next = recorder_next(next, RECORDER_POLL, clock_mono_ns(clock));
		clock_sleep_until(clock, next < until_ns ? next : until_ns);
	}
}

/* Runs one burst at its planned time, or as soon as the readings allow, and plans the next
 * burst after a pause of off_s. Stores the actual times of the burst. */
static int active_burst(struct active *a, double on_s, double off_s)
{
	const struct sensor_drive *d = a->l->plan->drive;
	uint64_t off_ns = a->at_ns + (uint64_t)(on_s * 1e9), begin_ns;
	int err;

	record_until(a, a->at_ns);
	if (clock_mono_ns(a->l->w.clock) < off_ns && a->bursts.n < BURSTS) {
		err = d->on(d->ctx, off_ns, &begin_ns);
		if (err)
			return err;
		a->on_s[a->bursts.n] = recorder_s(&a->l->w, begin_ns);
		a->off_s[a->bursts.n++] = recorder_s(&a->l->w, off_ns);
	}
	record_until(a, off_ns);
	a->at_ns = off_ns + (uint64_t)(off_s * 1e9);
	return 0;
}

/* Runs bursts of random length, which cover every phase of any period. */
static int active_irregular(struct active *a)
{
	int err = 0;

	learn_progress(a->l, "measuring under irregular load");
	for (unsigned i = 0; i < 64 && !err; i++)
		err = active_burst(a, 0.008 + 0.1 * random_ratio(a),
				   0.008 + 0.1 * random_ratio(a));
	return err;
}

/* Runs bursts that are long enough for a mean over one second. */
static int active_steps(struct active *a)
{
	int err = 0;

	for (unsigned i = 0; i < 8 && !err; i++) {
		learn_progress(a->l, "measuring under load steps");
		err = active_burst(a, 1.3 + 0.1 * random_ratio(a), 1.3 + 0.1 * random_ratio(a));
	}
	return err;
}

static int active_waves(struct active *a, double period_s)
{
	static const double ratio[] = {
		1. / 2, 2. / 3, 3. / 4, 4. / 5, 6. / 5, 5. / 4, 4. / 3
	};
	int err = 0;

	for (unsigned i = 0; i < COUNT(ratio) && !err; i++) {
		double half = period_s * ratio[i] / 2;

		learn_progress(a->l, "measuring under square waves");
		for (unsigned k = 0; k < 32 && !err; k++)
			err = active_burst(a, half, half);
		a->at_ns += (uint64_t)(random_ratio(a) * period_s * 1e9);
	}
	return err;
}

static int counter_steps(struct active *a)
{
	int err = 0;

	a->counting = true;
	a->tick_s = a->tick_j = NAN;
	for (unsigned i = 0; i < 6 && !err; i++) {
		learn_progress(a->l, "measuring the delay of the counter");
		err = active_burst(a, 0.6 + 0.1 * random_ratio(a), 0.6 + 0.1 * random_ratio(a));
	}
	return err;
}

/* Adds a point for each period in which the value did not change, because a value that stayed
 * low shows as much about the lag as a value that became high. */
static unsigned with_repeats(struct active *a, const struct recorder_trace *t, double period_s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++) {
		double gap = i + 1 < t->n ? t->p[i + 1].t_s - t->p[i].t_s : 0;
		unsigned k = gap < 5 ? (unsigned)fmax(round(gap / period_s), 1) : 1;

		for (unsigned j = 0; j < k && n < RECORDER_POINTS; j++)
			a->point[n++] =
				(struct fit_point){ t->p[i].t_s + j * gap / k, t->p[i].w };
	}
	return n;
}

static void apply_fit(struct active *a, unsigned n, struct sensor_source *s)
{
	struct fit_response f;

	if (fit_response(a->point, n, &a->bursts, a->l->work, &f) != 0)
		return; /* the fit failed: keep the assumed values */
	s->model = f.model;
	s->window_s = f.window_s;
	s->lag_s = fit_lag_s(&f);
}

static void fit_sources(struct active *a)
{
	struct learn *l = a->l;
	struct sensor *s = &l->s;

	learn_progress(l, "computing the result");
	if (s->instant.why == GW_HAVE)
		apply_fit(a, with_repeats(a, &l->w.instant, s->instant.period_s), &s->instant);
	if (s->average.why == GW_HAVE)
		apply_fit(a, with_repeats(a, &l->w.average, s->average.period_s), &s->average);
	if (s->ring.why == GW_HAVE && s->ring_wall)
		apply_fit(a, with_repeats(a, &l->w.ring, INFINITY), &s->ring);
}

static int counter_part(struct active *a)
{
	struct sensor *s = &a->l->s;
	struct fit_response f;
	int err;

	if (s->counter != GW_HAVE || s->counter_unsafe)
		return 0;
	err = counter_steps(a);
	if (!err && fit_delay(a->point, a->ticks, &a->bursts, s->tick_s, a->l->work, &f) == 0)
		s->counter_lag_s = f.delay_s;
	return err;
}

static double wave_period_s(const struct sensor *s)
{
	double t = s->instant.why == GW_HAVE ? s->instant.period_s : s->average.period_s;

	return fmin(fmax(t, 0.01), 0.2);
}

static int run_drive(struct active *a)
{
	struct learn *l = a->l;
	int err;

	l->w.poll_ns = RECORDER_POLL;
	recorder_until(&l->w, clock_mono_ns(l->w.clock) + 3 * NS_PER_S / 2);
	/* The load is certainly off now: begin to record again. */
	recorder_clear(&l->w);
	a->at_ns = clock_mono_ns(l->w.clock) + NS_PER_S / 2;
	err = active_irregular(a);
	learn_period(l, &l->w.instant, &l->s.instant);
	learn_period(l, &l->w.average, &l->s.average);
	if (!err)
		err = active_steps(a);
	if (!err)
		err = active_waves(a, wave_period_s(&l->s));
	if (err)
		return err;
	recorder_until(&l->w, clock_mono_ns(l->w.clock) + 3 * NS_PER_S / 2);
	recorder_drain(&l->w);
	fit_sources(a);
	a->at_ns = clock_mono_ns(l->w.clock) + NS_PER_S / 2;
	err = counter_part(a);
	if (!err)
		l->s.origin = SENSOR_ACTIVE;
	return err;
}

int sensor_active_alone(struct learn *l)
{
	struct usage_list list = { 0 };
	int err;
	enum gw_absence why = sampler_device_processes(l->w.device, &list, &err);

	if (!err && why != GW_HAVE) {
		snprintf(l->message, l->size,
			 "the processes on the GPU are unknown (%s), so no load is started",
			 gw_absence_text(why));
		err = -GW_E_STATE;
	} else if (!err && list.count) {
		snprintf(l->message, l->size,
			 "%u process%s on the GPU (pid %lld%s), but the load must run alone; "
			 "end "
			 "the other programs first",
			 list.count, list.count == 1 ? " is" : "es are",
			 (long long)list.p[0].pid, list.count == 1 ? "" : ", ...");
		err = -GW_E_STATE;
	}
	usage_done(&list);
	return err;
}

int sensor_active(struct learn *l)
{
	const struct sensor_drive *d = l->plan->drive;
	struct active *a;
	int err = sensor_active_alone(l); /* check again: half a minute has passed */

	if (err)
		return err;
	err = d->open(d->ctx, l->w.r.text[GW_T_PCI], l->message, l->size);
	if (err)
		return err;
	a = calloc(1, sizeof(*a));
	err = -GW_E_NOMEM;
	if (a) {
		a->l = l;
		a->random = 1;
		a->bursts = (struct fit_bursts){ a->on_s, a->off_s, 0 };
		err = run_drive(a);
		if (err && !*l->message)
			snprintf(l->message, l->size, "the load cannot be started on the GPU");
	}
	d->close(d->ctx);
	free(a);
	return err;
}
