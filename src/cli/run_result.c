#include "run_result.h"

#include "measure/energy.h"
#include "measure/meter.h"
#include "base/clock.h"
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct measured_baseline no_baseline = { .power_w = NAN,
						      .u_w = NAN,
						      .age_s = NAN,
						      .seconds = NAN,
						      .net_joules = { NAN, NAN, NAN },
						      .adjusted_joules = NAN };

#define TTL_S 3600.0

static bool continue_unless_interrupted(void *ctx, double seconds, double power_w,
					double half_width_w)
{
	struct runner *r = ctx;

	(void)seconds;
	(void)power_w;
	(void)half_width_w;
	return !runner_sleep(r, 0);
}

/* Loads a stored baseline of this card, driver, power limit and mode, whatever its age and
 * temperature. */
static void load_old(const char *dir, struct run_baseline *ret)
{
	struct baseline any = ret->b;
	char why[200];

	any.temperature_c = NAN;
	if (baseline_load(&any, dir, INFINITY, clock_wall_ns(clock_real()), why, sizeof(why)) !=
	    0)
		return;
	ret->b = any;
	ret->have = ret->stale = true;
}

static void measure_baseline(struct runner *r, unsigned i, const char *dir,
			     struct run_baseline *ret)
{
	struct baseline_plan plan = { .kind = GW_BASELINE_NO_CONTEXT,
				      .max_s = 30,
				      .min_s = 10,
				      .half_width_w = 1,
				      .progress = continue_unless_interrupted,
				      .ctx = r };
	char message[160];
	int err = baseline_take(r->meter, i, &plan, &ret->b);

	ret->why[0] = '\0'; /* No stored baseline is used, so remove the text about it. */
	if (err)
		snprintf(ret->why, sizeof(ret->why), "it could not be measured: %s",
			 gw_strerror(err));
	else if (ret->b.codes)
		snprintf(ret->why, sizeof(ret->why), "the GPU was not idle: %s",
			 ret->b.evidence);
	ret->have = !err && !ret->b.codes;
	/* If saving fails, the next measurement measures the baseline again. */
	if (ret->have && dir)
		baseline_save(&ret->b, dir, message, sizeof(message));
}

void run_baseline_get(struct runner *r, unsigned i, const struct gw_device *d,
		      enum run_baseline_mode mode, struct run_baseline *ret)
{
	char dir[512];
	bool kept = baseline_directory(dir, sizeof(dir)) == 0;

	*ret = (struct run_baseline){ .have = false };
	if (mode == RUN_BASELINE_NONE)
		return;
	baseline_key(d, GW_BASELINE_NO_CONTEXT, &ret->b);
	if (mode != RUN_BASELINE_NEW && kept)
		ret->have = baseline_load(&ret->b, dir, TTL_S, clock_wall_ns(clock_real()),
					  ret->why, sizeof(ret->why)) == 0;
	if (!ret->have && mode == RUN_BASELINE_OLD && kept)
		load_old(dir, ret);
	if (!ret->have && (mode == RUN_BASELINE_AUTO || mode == RUN_BASELINE_NEW))
		measure_baseline(r, i, kept ? dir : NULL, ret);
	if (ret->have)
		meter_set_baseline(r->meter, i, ret->b.power_w, NAN);
}

/* Computes the energy above the baseline.  sensor is the sensor that measured `gross`. */
static void run_baseline_net(const struct run_baseline *b, const struct gw_energy *gross,
			     const struct sensor *sensor, struct measured_baseline *ret)
{
	struct baseline_net net;

	*ret = no_baseline;
	if (!b->have)
		return;
	baseline_net(gross, sensor, &b->b, NULL, &net);
	ret->kind = gw_baseline_kind_name(b->b.kind);
	ret->power_w = b->b.power_w;
	ret->u_w = b->b.u_w;
	ret->seconds = b->b.seconds;
	ret->age_s = ((double)clock_wall_ns(clock_real()) - (double)b->b.wall_ns) * 1e-9;
	ret->net_joules = net.joules;
	ret->adjusted_joules = net.adjusted_joules;
	ret->floored = net.floored;
}

static const struct gw_interval unknown = { NAN, NAN, NAN };

static void add_code(struct measured_run *r, unsigned code, enum gw_validity level, int device,
		     const char *evidence)
{
	struct measured_code *c = &r->code[r->codes];

	/* Keep the last two entries free for codes of the whole run. */
	if (r->codes + (device >= 0 ? 2 : 0) >= MEASURED_CODES)
		return;
	r->codes++;
	*c = (struct measured_code){ .code = code, .level = level, .device = device };
	snprintf(c->evidence, sizeof(c->evidence), "%s", evidence);
}

/* Returns true if the code has several degrees of severity.  A severe case makes the window
 * less valid than the usual level of the code. */
static bool has_degrees(unsigned code)
{
	return code == GW_CODE_FOREIGN_PROCESS || code == GW_CODE_THROTTLE_THERMAL ||
	       code == GW_CODE_THROTTLE_BRAKE || code == GW_CODE_LOW_COVERAGE;
}

static void evidence_local(const void *of, unsigned i, const struct gw_energy *e, unsigned code,
			   char *out, size_t size)
{
	window_evidence(of, i, e, code, out, size);
}

void run_result_codes(struct measured_run *r, unsigned i, run_result_evidence *evidence_for,
		      const void *of)
{
	const struct gw_energy *e = &r->device[i].energy;
	enum gw_validity worst = energy_validity(e->codes);
	char evidence[200];

	for (unsigned c = 0; c < GW_CODES; c++) {
		enum gw_validity level = gw_code_info(c)->level;

		if (!(e->codes & UINT64_C(1) << c))
			continue;
		if (worst < e->validity && has_degrees(c))
			level = e->validity;
		evidence_for(of, i, e, c, evidence, sizeof(evidence));
		add_code(r, c, level, (int)i, evidence);
	}
}

/* Adds a code if the baseline is too old or was measured at another temperature. The energy
 * above the baseline is then suspect. */
static void baseline_code(struct measured_run *r, const struct run_baseline *b, int device)
{
	struct gw_energy *e = &r->device[device].energy;

	if (!b->have || !b->stale)
		return;
	e->codes |= UINT64_C(1) << GW_CODE_BASELINE_STALE;
	e->validity = e->validity > GW_SUSPECT ? e->validity : GW_SUSPECT;
	add_code(r, GW_CODE_BASELINE_STALE, GW_SUSPECT, device, b->why);
}

static void run_codes(struct measured_run *r, const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	char evidence[200];

	if (r->devices == 0) {
		add_code(r, GW_CODE_NO_SOURCE, GW_NO_RESULT, -1,
			 *s->message ? s->message : "there is no GPU");
		r->validity = GW_NO_RESULT;
	}
	if (r->exit_signal)
		snprintf(evidence, sizeof(evidence), "killed by signal %d (%s)", r->exit_signal,
			 strsignal(r->exit_signal));
	else
		snprintf(evidence, sizeof(evidence), "exit status %d", r->exit_status);
	if (r->exit_signal || r->exit_status != 0) {
		add_code(r, GW_CODE_CHILD_FAILED, GW_INVALID, -1, evidence);
		r->validity = r->validity > GW_INVALID ? r->validity : GW_INVALID;
	}
}

bool run_result_shared(const struct measured_run *r)
{
	for (unsigned i = 0; i < r->devices; i++)
		if (r->device[i].energy.codes & UINT64_C(1) << GW_CODE_FOREIGN_PROCESS)
			return true;
	return false;
}

static void copy_identity(const struct gw_device *d, const struct gw_status *s,
			  struct measured_device *ret)
{
	const char *uuid = gw_device_text(d, GW_T_UUID), *name = gw_device_text(d, GW_T_NAME);

	ret->index = d->index;
	ret->provenance = d->provenance;
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid ? uuid : "");
	snprintf(ret->name, sizeof(ret->name), "%s", name ? name : "");
	snprintf(ret->driver, sizeof(ret->driver), "%s",
		 s->driver_version ? s->driver_version : "");
	ret->power_limit_w = NAN;
	gw_device_value(d, GW_Q_POWER_LIMIT, &ret->power_limit_w);
}

/* Removes samples from more than RUN_TRACE_AROUND_S before the part. */
static void trim_series(struct run_trace_copy *s, uint64_t begin_ns)
{
	uint64_t from_ns = begin_ns - (uint64_t)(RUN_TRACE_AROUND_S * 1e9);
	size_t power = 0, tick = 0;

	while (power < s->powers && s->power[power].t_ns < from_ns)
		power++;
	while (tick < s->ticks && s->tick[tick].t_ns < from_ns)
		tick++;
	s->powers -= power;
	s->ticks -= tick;
	if (s->powers)
		memmove(s->power, s->power + power, s->powers * sizeof(*s->power));
	if (s->ticks)
		memmove(s->tick, s->tick + tick, s->ticks * sizeof(*s->tick));
}

/* Adds device i with its codes.  If part is not NULL, the energy is that of the part. */
static int add_device(const struct run_result_from *from, const struct runner_run *run,
		      const struct progress_marks_window *part, unsigned i,
		      struct measured_run *r)
{
	struct measured_device *ret = &r->device[r->devices++];
	const struct gw_snapshot *snap = from->c->snap;
	const struct attribute *who = !part       ? window_processes(run->window, i)
				      : part->who ? &part->who[i]
						  : NULL;
	int err = 0;

	copy_identity(gw_snapshot_device(snap, gw_meter_device(from->meter, i)),
		      gw_snapshot_status(snap), ret);
	ret->energy = part ? part->energy[i] : *gw_window_energy(run->window, i);
	ret->sensor = meter_setup(from->meter, i).sensor;
	if (who) {
		ret->who = *who;
		ret->processes =
			who->count > 0 || who->idle_joules > 0 || who->unattributed_joules > 0;
	}
	run_baseline_net(&from->baseline[i], &ret->energy, &ret->sensor, &ret->baseline);
	if (from->series)
		err = run_trace_copy(from->series, i, part ? part->end_ns : run->end_ns,
				     &ret->series);
	if (!err && part && from->series)
		trim_series(&ret->series, part->begin_ns);
	run_result_codes(r, i, evidence_local, run->window);
	baseline_code(r, &from->baseline[i], (int)i);
	return err;
}

struct remote_evidence {
	const struct run_result_remote *remote;
	/* The window of the service is this much longer than the run, in seconds. */
	double late_s;
};

static void evidence_remote(const void *of, unsigned i, const struct gw_energy *e,
			    unsigned code, char *out, size_t size)
{
	const struct remote_evidence *w = of;

	if (code == GW_CODE_LATE_EDGES)
		snprintf(out, size, "by %.3f s", w->late_s);
	else
		w->remote->evidence(w->remote->of, i, e, code, out, size);
}

/* Adds device i, which the service measured.  It has no baseline. */
static void add_remote_device(const struct run_result_remote *remote, unsigned i,
			      struct measured_run *r)
{
	static const struct run_baseline none;
	struct remote_evidence of = { remote, remote->seconds - r->seconds };
	struct measured_device *d = &r->device[r->devices++];

	*d = remote->device[i];
	energy_late(&d->energy, of.late_s);
	run_baseline_net(&none, &d->energy, &d->sensor, &d->baseline);
	run_result_codes(r, i, evidence_remote, &of);
}

/* Sums an energy over all devices. `energy` is its offset in struct measured_device. If `alike`
 * is true, the devices have the same error, so the errors are added and not their squares. */
static struct gw_interval sum_devices(const struct measured_run *r, bool alike, size_t energy)
{
	struct gw_interval all = { 0, 0, 0 };

	for (unsigned i = 0; i < r->devices; i++)
		energy_interval_add(&all, (const void *)((const char *)&r->device[i] + energy),
				    alike);
	return r->devices == 0 || isnan(all.best) ? unknown : all;
}

struct gw_interval run_result_window_joules(const struct measured_run *r,
					    const struct measured_window *w)
{
	struct gw_interval all = { 0, 0, 0 };

	for (unsigned i = 0; w->energy && i < r->devices; i++)
		energy_interval_add(&all, &w->energy[i].joules, true);
	return !w->energy || r->devices == 0 || isnan(all.best) ? unknown : all;
}

/* Returns the interval per item, for n items. Up to too_many of these items may not belong to
 * the run; this makes the upper end larger. */
static struct gw_interval per_item(const struct gw_interval *v, double n, double too_many)
{
	return isnan(n) || isnan(v->best) ? unknown
					  : (struct gw_interval){ v->low / n, v->best / n,
								  v->high / (n - too_many) };
}

void run_result_sum(struct measured_run *r)
{
	struct run_figures *f = &r->figures;

	f->energy_j = sum_devices(r, true, offsetof(struct measured_device, energy.joules));
	f->energy_relative_j =
		sum_devices(r, false, offsetof(struct measured_device, energy.relative));
	f->energy_net_j =
		sum_devices(r, true, offsetof(struct measured_device, baseline.net_joules));
	f->energy_adjusted_j = f->power_mean_w = r->devices ? 0 : NAN;
	f->energy_adjusted_was_floored = false;
	f->power_sd_w = r->devices == 1 ? r->device[0].energy.power_sd : NAN;
	for (unsigned i = 0; i < r->devices; i++) {
		const struct measured_device *d = &r->device[i];

		f->energy_adjusted_j += d->baseline.adjusted_joules;
		f->energy_adjusted_was_floored |= d->baseline.floored;
		f->power_mean_w += d->energy.power_mean;
		f->baseline_kind = d->baseline.kind ? d->baseline.kind : f->baseline_kind;
		r->validity =
			d->energy.validity > r->validity ? d->energy.validity : r->validity;
	}
}

/* Returns the count from the option, or else the marked count. For a part, the marked count has
 * priority, because the option may give the count of the whole run. */
static double count_of(double given, uint64_t whole, bool in_part, uint64_t part)
{
	if (in_part && whole)
		return part ? (double)part : NAN;
	return isnan(given) && whole ? (double)whole : given;
}

static void take_counts(const struct run_result_from *from, const struct progress_marks *m,
			const struct progress_marks_window *part, struct measured_run *r)
{
	struct run_figures *f = &r->figures;

	f->iterations = count_of(from->iterations, m->iterations, part != NULL,
				 part ? part->iterations : 0);
	f->tokens = count_of(from->tokens, m->tokens, part != NULL, part ? part->tokens : 0);
	/* If a counter was requested, use only its count, even if the count is unknown. */
	if (from->count.source)
		*(from->count.iterations ? &f->iterations : &f->tokens) = from->count.number;
	r->count = from->count;
	f->latency_s = r->seconds / f->iterations;
	f->latency_p50_s = progress_marks_latency(m, part, 0.50);
	f->latency_p95_s = progress_marks_latency(m, part, 0.95);
}

/* Computes the energies per item of run_figure.def. The error of the count (counter.edge)
 * applies only to the item that the counter counts. */
static void set_energy_per_item(struct measured_run *r)
{
	struct run_figures *f = &r->figures;
	const double *counted = r->count.iterations ? &f->iterations : &f->tokens;

#define RUN_FIGURE(kind, member, key, help)
#define RUN_ENERGY_PER(items, member, key, help) \
	f->member = per_item(&f->energy_j, f->items, counted == &f->items ? r->count.edge : 0);
#include "serve/run_figure.def"
}

/* Copies the marked parts into the result.  If `measured` is false, their energies are
 * unknown. */
static int take_windows(const struct progress_marks *m, bool measured, struct measured_run *r)
{
	if (m->count == 0)
		return 0;
	r->window = calloc(m->count, sizeof(*r->window));
	if (!r->window)
		return -GW_E_NOMEM;
	r->windows = m->count;
	for (unsigned i = 0; i < m->count; i++) {
		const struct progress_marks_window *w = &m->window[i];

		r->window[i] = (struct measured_window){
			.label = w->label,
			.begin_s = (double)(int64_t)(w->begin_ns - r->begin_ns) * 1e-9,
			.seconds = (double)(w->end_ns - w->begin_ns) * 1e-9,
			.unfinished = w->unfinished,
			.energy = measured ? w->energy : NULL,
		};
	}
	return 0;
}

static void narrow_to_part(struct measured_run *r, const struct progress_marks_window *part)
{
	r->part = part->label;
	r->begin_wall_ns += part->begin_ns - r->begin_ns;
	r->begin_ns = part->begin_ns;
	r->seconds = (double)(part->end_ns - part->begin_ns) * 1e-9;
	/* The counters of the host are known only for the whole run. */
	r->host = (struct host_energy){ .joules = NAN, .why = GW_ABSENT_NOT_READ };
}

int run_result_make(const struct run_result_from *from, struct runner_run *run, unsigned trial,
		    const struct host_energy *host, struct measured_run *ret)
{
	struct measured_run r = { .trial = trial,
				  .begin_ns = run->begin_ns,
				  .begin_wall_ns = run->begin_wall_ns,
				  .seconds = run->seconds,
				  .exit_status = run->exit_status,
				  .exit_signal = run->exit_signal,
				  .figures = run_figures_unknown,
				  .host = *host };
	const struct progress_marks_window *part =
		from->part ? progress_marks_find(&run->marks, from->part, &r.parts) : NULL;
	unsigned n = from->remote ? from->remote->devices : gw_meter_device_count(from->meter);
	int err = 0;

	if (from->remote)
		r.window_s = from->remote->seconds;
	if (part)
		narrow_to_part(&r, part);
	r.device = calloc(n ? n : 1, sizeof(*r.device));
	if (!r.device)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < n && !err; i++)
		if (from->remote)
			add_remote_device(from->remote, i, &r);
		else
			err = add_device(from, run, part, i, &r);
	run_result_sum(&r);
	run_codes(&r, from->c);
	take_counts(from, &run->marks, part, &r);
	if (!err)
		err = take_windows(&run->marks, !from->remote, &r);
	set_energy_per_item(&r);
	if (err)
		run_result_done(&r);
	else
		*ret = r;
	return err;
}

/* Computes the energy per item again after the energy of the run changed. The upper end changes
 * by another factor than the best value, because only the upper end includes the uncertainty of
 * the count. */
static void rescale_per_item(struct gw_interval *v, const struct gw_interval *before,
			     const struct gw_interval *now)
{
	if (isnan(v->best))
		return;
	*v = (struct gw_interval){ now->low * (v->best / before->best),
				   now->best * (v->best / before->best),
				   now->high * (v->high / before->high) };
}

static void calibrate_device(struct measured_device *d, const struct sensor *to,
			     const struct run_baseline *baseline)
{
	energy_calibrate(&d->energy, &to->calibration);
	d->sensor.calibration = to->calibration;
	if (d->processes && !isnan(d->energy.joules.best))
		(void)attribute_finish(&d->who, d->energy.joules.best);
	run_baseline_net(baseline, &d->energy, &d->sensor, &d->baseline);
}

void run_result_calibrate(struct measured_run *r, const struct sensor *to,
			  const struct run_baseline *baseline)
{
	const struct gw_interval before = r->figures.energy_j;
	struct run_figures *f = &r->figures;

	for (unsigned i = 0; i < r->devices; i++)
		calibrate_device(&r->device[i], to, &baseline[i]);
	run_result_sum(r);
#define RUN_FIGURE(kind, member, key, help)
#define RUN_ENERGY_PER(items, member, key, help) \
	rescale_per_item(&f->member, &before, &f->energy_j);
#include "serve/run_figure.def"
}

void run_result_done(struct measured_run *r)
{
	for (unsigned i = 0; i < r->devices; i++)
		run_trace_copy_done(&r->device[i].series);
	free(r->device);
	free(r->window);
	memset(r, 0, sizeof(*r));
}

static bool is_interrupted(void *arg)
{
	return runner_sleep(arg, 0);
}

/* Finds the processes of the server that owns the counter. These processes work for the
 * command, so they are not foreign. */
static void find_servers(struct run_count *c)
{
	c->servers = c->kind->find_servers
			     ? c->kind->find_servers(c->by, &c->stop, c->server_pid)
			     : 0;
	if (c->runner->meter)
		meter_set_servers(c->runner->meter, c->server_pid, c->servers);
}

int run_count_before(struct run_count *c, bool more)
{
	if (!c->kind)
		return EXIT_OK;
	if (c->kind->place)
		c->kind->place(c->by, c->place, sizeof(c->place));
	c->stop = (struct deadline_stop){ is_interrupted, c->runner, c->runner->signal_fd };
	/* Search before the counter is read, because the search takes milliseconds, and the
	 * server may count something in this time. */
	find_servers(c);
	counter_read(c->kind, c->by, &c->stop, &c->first);
	if (*c->first.why)
		cli_error("--%s: %s; %s", c->kind->option, c->first.why,
			  more ? "this run was not started" : "nothing was measured");
	/* After a signal, do not start the run, even if the counter was read. */
	if (is_interrupted(c->runner))
		return 128 + c->runner->interrupted;
	return *c->first.why ? EXIT_FAILED : EXIT_OK;
}

void run_count_after(struct run_count *c)
{
	if (c->kind)
		counter_read(c->kind, c->by, &c->stop, &c->last);
}

static void warn_fresh(const struct run_count *c, const struct counter *n)
{
	if (!n->fresh_assumed)
		return;
	cli_error("--%s: %u of %u series appeared during the run; all of %s %.0f %s are "
		  "counted, because a new series is assumed to start at 0",
		  c->kind->option, n->fresh, c->last.n, n->fresh == 1 ? "its" : "their",
		  n->fresh_number, c->iterations ? "iterations" : "tokens");
}

bool run_count_take(struct run_count *c, const struct runner_run *run,
		    struct measured_count *ret)
{
	struct counter n;

	if (!c->kind)
		return true;
	counter_between(&c->first, &c->last, run->begin_ns, run->end_ns, &n);
	*ret = (struct measured_count){ .source = c->kind->option,
					.iterations = c->iterations,
					.number = n.number,
					.edge = n.edge,
					.fresh = n.fresh,
					.fresh_number = n.fresh_number,
					.fresh_assumed = n.fresh_assumed };
	if (c->kind->place) {
		ret->place = c->place;
		ret->servers = c->servers;
		memcpy(ret->server_pid, c->server_pid, sizeof(ret->server_pid));
		ret->series = c->last.n ? c->last.n : c->first.n;
		snprintf(ret->name, sizeof(ret->name), "%s", c->first.name);
	}
	if (!isnan(n.number)) {
		warn_fresh(c, &n);
		return true;
	}
	snprintf(ret->why, sizeof(ret->why), "%s", n.why);
	cli_error("--%s: %s; the count is unknown", c->kind->option, n.why);
	return false;
}
