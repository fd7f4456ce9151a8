/* measure: measures the energy of a command. */
#include "measure_plan.h"
#include "run_result.h"
#include "session.h"
#include "calibrate.h"
#include "measure_remote.h"
#include "output.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "measure/host_energy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct measurement {
	struct cli *c;
	const struct measure_options *o;
	struct measure_plan plan;
	struct session s;
	struct run_trace *series;
	struct host_meter *host;
	/* Monotonic time of the last reading of the host's energy counters. */
	uint64_t host_ns;
	struct run_baseline *baseline; /* One baseline per device. */
	struct run_progress progress;
	bool cooldown_reported; /* gpuward already reported the current wait. */
	/* gpuward already warned that the iteration numbers are not consecutive. */
	bool numbers_reported;
	bool shared_reported;  /* gpuward already warned that another process uses a GPU. */
	bool known;            /* The GPU values for the result were read. */
	struct bundle *bundle; /* The bundle that is written. NULL: --bundle is not given. */
	/* The connection to the service that measures. NULL: this process measures. */
	struct measure_remote *remote;
	/* The environment for the result. NULL: it was not read yet. */
	struct gw_environment *env;
	struct measured result; /* The result with its runs. */
	struct runner_run *run; /* result.run[i] is made from run[i]. */
	int status;             /* Exit status of the last run. */
	bool part_missing;      /* At least one run did not mark the part that --part names. */
	/* The service did not measure at least one run, or measured only its beginning. */
	bool lost;
	bool count_missing; /* The count of at least one run is unknown. */
	bool counting;      /* The current run is measured. False: it is a warm-up. */
	struct run_count count;
	struct run_calibration calibration;
};

/* On a terminal, shows a line that counts down.  Elsewhere, prints one message per wait. */
static void report_cooldown(void *arg, unsigned gpu, double now_c, double mark_c, double left_s)
{
	struct measurement *m = arg;

	if (progress_possible(m->c->quiet))
		progress_show("GPU %u is at %.0f %s, waiting for %.0f %s; the run starts in at "
			      "most %.0f s",
			      gpu, now_c, term_plain("°C"), mark_c, term_plain("°C"), left_s);
	else if (!m->cooldown_reported && !m->c->quiet)
		cli_error("GPU %u is at %.0f %s, waiting for %.0f %s", gpu, now_c,
			  term_plain("°C"), mark_c, term_plain("°C"));
	m->cooldown_reported = true;
}

static unsigned read_temperatures(void *arg, struct cooldown_gpu ret[static COOLDOWN_DEVICES])
{
	struct measurement *m = arg;

	return measure_remote_temperatures(m->remote, ret);
}

/* Waits until the GPUs are cool. Does this only if there are several runs or if --cooldown-to
 * is given. */
static void cool_down(struct measurement *m)
{
	const struct session_options *o = &m->o->session;

	m->cooldown_reported = false;
	if (!o->no_cooldown && (m->o->trials > 1 || !isnan(o->cooldown_to_c)))
		session_cool_down(&m->s,
				  progress_possible(m->c->quiet) ? progress_clear : NULL);
	if (m->cooldown_reported && progress_possible(m->c->quiet))
		progress_clear();
}

/* Reads the GPU values that the result contains. Reading these values from the driver takes 9
 * ms on an H200, which would delay the start of the command. Therefore this function is called
 * after the sampler has read the values; they are then already known. */
static void read_devices(struct measurement *m)
{
	if (!m->known) /* After an error, the result contains fewer values. */
		m->known = gw_snapshot_take(m->c->snap,
					    GW_TIERS_COMMON & ~(unsigned)GW_TIER_FAST) == 0;
}

/* Returns true if the sampler has read all GPUs, which is certain after two ticks.  A GPU that
 * hangs has no ticks. */
static bool all_sampled(const struct measurement *m)
{
	struct meter_progress p;

	for (unsigned i = 0; i < gw_meter_device_count(m->s.runner.meter); i++) {
		meter_progress(m->s.runner.meter, i, &p);
		if (p.ticks < 2)
			return false;
	}
	return true;
}

/* Warns once, while the command runs, if another process is on a GPU. */
static void warn_foreign(struct measurement *m, struct gw_window *window)
{
	struct window_activity now;
	char name[sizeof(now.foreign_name)];

	for (unsigned i = 0; i < gw_meter_device_count(m->s.runner.meter); i++) {
		window_activity(window, i, &now);
		if (!now.foreign || m->shared_reported)
			continue;
		utf8_clean(name, sizeof(name), now.foreign_name);
		run_progress_clear(&m->progress);
		cli_error("another process (%s%spid %lld) is using GPU %u; its energy is "
			  "included",
			  name, *name ? ", " : "", (long long)now.foreign,
			  session_device(&m->s, i)->index);
		m->shared_reported = true;
	}
}

static void watch_run(void *arg, struct gw_window *window, const struct progress_marks *marks)
{
	struct measurement *m = arg;
	struct host_energy host;

	if (m->remote && m->counting)
		measure_remote_renew(m->remote);
	/* Read the values during the run, because a GPU may be lost when the command ends. */
	if (!m->known && all_sampled(m))
		read_devices(m);
	/* Read the counters of the host before they overflow. */
	if (clock_mono_ns(clock_real()) - m->host_ns > 10 * NS_PER_S) {
		host_meter_read(m->host, &host);
		m->host_ns = clock_mono_ns(clock_real());
	}
	warn_foreign(m, window);
	run_progress_show(&m->progress, window, marks);
}

static bool result_wanted(const struct measurement *m)
{
	return m->c->json || m->o->session.output || m->bundle;
}

/* Does the work that remains after the command: ends the window in the service, reads the
 * counter, and reads the environment. The runner calls this function during its wait for the
 * last sample, which takes about 30 ms. */
static void after_run(void *arg)
{
	struct measurement *m = arg;

	/* Do this first, because the window in the service lasts until this call. */
	if (m->remote && m->counting)
		measure_remote_stop(m->remote);
	if (m->counting)
		run_count_after(&m->count);
	if (m->remote && m->counting)
		measure_remote_describe(m->remote);
	else if (result_wanted(m) && !m->env && !m->remote)
		/* If this fails, save_result() reads the environment again. */
		(void)gw_environment_new(m->c->ctx, &m->env);
}

static void warn_count(const char *name, double given, uint64_t marked, double used)
{
	if (!isnan(given) && marked && given != (double)marked)
		cli_error("--%s is %.0f, but the command marked %llu; the result uses %.0f",
			  name, given, (unsigned long long)marked, used);
}

static void warn_counts(const struct measurement *m, const struct progress_marks *k,
			const struct measured_run *r)
{
	unsigned n;
	const struct progress_marks_window *w =
		r->part ? progress_marks_find(k, r->part, &n) : NULL;

	warn_count("iterations", m->o->session.iterations, w ? w->iterations : k->iterations,
		   r->figures.iterations);
	warn_count("tokens", m->o->tokens, w ? w->tokens : k->tokens, r->figures.tokens);
}

/* Warns if the iteration numbers are not consecutive, because a line may then stand for several
 * iterations. */
static void warn_numbers(struct measurement *m, const struct progress_marks *k,
			 const struct measured_run *r)
{
	if (!k->odd_after || m->numbers_reported || !isnan(m->o->session.iterations) ||
	    (r->count.source && r->count.iterations))
		return;
	m->numbers_reported = true;
	cli_error("the command marked 'iteration %llu' and then 'iteration %llu': each line "
		  "counts as one iteration, whatever its number; if a line stands for several, "
		  "give --iterations, or write one line per iteration",
		  (unsigned long long)k->odd_before, (unsigned long long)k->odd_after);
}

static void warn_marks(const struct progress_marks *k)
{
	if (k->bad)
		cli_error("%llu line%s on GPUWARD_MARK_FD %s ignored; the first: %s",
			  (unsigned long long)k->bad, k->bad == 1 ? "" : "s",
			  k->bad == 1 ? "was" : "were", k->reason);
	if (k->refused)
		cli_error("the command marked more than %d parts; %llu were not measured",
			  PROGRESS_MARKS_WINDOWS, (unsigned long long)k->refused);
}

static void warn_parts(const struct measurement *m, const struct progress_marks *k)
{
	if (m->remote && k->count)
		cli_error("the command marked %u part%s: with --service the time of a part is "
			  "known, but not its energy",
			  k->count, k->count == 1 ? "" : "s");
}

static int print_not_started(const char *name, const struct runner_run *run)
{
	if (run->error == ENOENT && !strchr(name, '/'))
		cli_error("'%s': no such command; nothing was measured", name);
	else
		cli_error("cannot start '%s': %s; nothing was measured", name,
			  strerror(run->error));
	return runner_status(run);
}

static void warn_part(struct measurement *m, const struct measured_run *r)
{
	if (!m->o->session.part)
		return;
	if (!r->part) {
		cli_error("the command did not mark the beginning and end of a part '%s'; the "
			  "result is about the whole run",
			  m->o->session.part);
		m->part_missing = true;
	} else if (r->parts > 1) {
		cli_error("the command marked %u parts named '%s'; the result is about the "
			  "first",
			  r->parts, m->o->session.part);
	}
}

static const char *label_of(const struct measurement *m)
{
	return m->o->label ? m->o->label : m->c->argv[0];
}

/* Gets the measurement from the service.  Returns false if the measurement is lost; the run is
 * then dropped. */
static bool take_remote_result(struct measurement *m, struct runner_run *run,
			       struct run_result_remote *ret)
{
	enum measure_remote_outcome outcome = measure_remote_end(m->remote, ret);

	m->lost = m->lost || outcome != MEASURE_REMOTE_WHOLE;
	if (outcome != MEASURE_REMOTE_LOST)
		return true;
	m->status = runner_status(run);
	runner_run_done(run);
	return false;
}

/* Runs the command and reads the counters of the host before and after.  Returns an exit
 * code. */
static int run_command(struct measurement *m, struct runner_run *run, struct host_energy *ret)
{
	struct host_energy before, after;
	int err;

	host_meter_read(m->host, &before);
	err = m->remote ? measure_remote_begin(m->remote, label_of(m)) : EXIT_OK;
	if (err)
		return err;
	m->counting = true;
	err = runner_run(&m->s.runner, m->c->argv, label_of(m), run);
	m->counting = false;
	host_meter_read(m->host, &after);
	run_progress_clear(&m->progress);
	if (err)
		return cli_fail("cannot measure: %s", gw_strerror(err));
	if (run->error)
		return print_not_started(m->c->argv[0], run);
	host_energy_between(&before, &after, ret);
	if (m->remote && measure_remote_facts(m->remote)->elsewhere)
		*ret = (struct host_energy){ .joules = NAN, .why = GW_ABSENT_NOT_READ };
	return EXIT_OK;
}

/* Makes one measured run.  Returns an exit code. */
static int run_once(struct measurement *m, unsigned number)
{
	struct runner_run *run = &m->run[m->result.runs];
	struct measured_run *result = &m->result.run[m->result.runs];
	struct run_result_remote from_service = { 0 };
	struct host_energy host;
	struct run_result_from from = { .c = m->c,
					.meter = m->s.runner.meter,
					.series = m->series,
					.baseline = m->baseline,
					.iterations = m->o->session.iterations,
					.tokens = m->o->tokens,
					.part = m->o->session.part,
					.remote = m->remote ? &from_service : NULL };
	int err = run_count_before(&m->count, m->result.runs > 0);

	if (err)
		return err;
	m->progress.trial = number - (unsigned)m->o->trial + 1;
	run_progress_begin(&m->progress);
	err = run_command(m, run, &host);
	if (err)
		return err;
	if (m->remote && !take_remote_result(m, run, &from_service))
		return EXIT_OK;
	if (!run->late)
		read_devices(m);
	if (!run_count_take(&m->count, run, &from.count))
		m->count_missing = true;
	err = run_result_make(&from, run, number, &host, result);
	if (err)
		return cli_fail("cannot measure: %s", gw_strerror(err));
	warn_part(m, result);
	warn_counts(m, &run->marks, result);
	warn_numbers(m, &run->marks, result);
	m->result.runs++;
	m->status = runner_status(run);
	m->progress.expected_s = run->seconds;
	warn_marks(&run->marks);
	warn_parts(m, &run->marks);
	return EXIT_OK;
}

static int warm_up(struct measurement *m)
{
	for (unsigned i = 0; i < m->o->session.warmup && !m->s.runner.interrupted; i++) {
		struct runner_run run;
		int err;

		run_progress_begin(&m->progress);
		err = runner_run(&m->s.runner, m->c->argv, "warm-up", &run);
		run_progress_clear(&m->progress);
		if (err)
			return cli_fail("cannot run: %s", gw_strerror(err));
		if (run.error)
			return print_not_started(m->c->argv[0], &run);
		m->status = runner_status(&run);
		runner_run_done(&run);
		if (m->status != 0) {
			cli_error("the warm-up ended with status %d; nothing was measured",
				  m->status);
			return m->status;
		}
	}
	return EXIT_OK;
}

static int run_all(struct measurement *m)
{
	int code = warm_up(m);

	for (unsigned i = 0; i < m->o->trials && code == EXIT_OK; i++) {
		cool_down(m);
		if (m->s.runner.interrupted)
			break;
		code = run_once(m, (unsigned)m->o->trial + i);
		if (code == EXIT_OK && (m->status != 0 || m->lost))
			break; /* A command that fails is not repeated. */
	}
	if (m->result.runs && m->result.runs < m->o->trials)
		cli_error("only %u of %.0f runs were made", m->result.runs, m->o->trials);
	return code;
}

static void fill_result(struct measurement *m, char *command, size_t size)
{
	const struct measure_remote_facts *service =
		m->remote ? measure_remote_facts(m->remote) : NULL;
	struct measured *r = &m->result;

	r->wall_ns = m->result.run[0].begin_wall_ns;
	r->simulated = service ? service->simulated : gw_snapshot_status(m->c->snap)->simulated;
	r->service = service ? service->address : NULL;
	r->environment = service ? service->environment : NULL;
	r->label = m->o->label;
	r->tags = m->o->tag.item;
	r->tag_count = m->o->tag.count;
	r->model_size_bytes = m->plan.model_bytes;
	r->cost = m->plan.cost;
	r->iterations = r->run[0].figures.iterations;
	r->tokens = r->run[0].figures.tokens;
	r->room = clean_room_record(m->s.room);
	r->command_name = session_command_name(m->c->argv[0]);
	if (m->o->session.keep_command) {
		cli_join(command, size, m->c->argv);
		r->command = command;
	}
	for (unsigned i = 0; i < r->runs; i++)
		r->validity =
			r->run[i].validity > r->validity ? r->run[i].validity : r->validity;
}

static int save_result(struct measurement *m)
{
	struct cli_document doc;
	int err = m->env || m->remote ? 0 : gw_environment_new(m->c->ctx, &m->env);

	cli_document_begin(&doc, true);
	render_result(&doc.json, &m->result, m->env, m->c->snap, &m->c->filter);
	return session_write(&m->s, &doc, m->bundle, err);
}

/* Calibrates the result.  Call it after the last run, because the trace covers all runs. */
static void calibrate_result(struct measurement *m)
{
	struct run_calibration *c = &m->calibration;

	if (!c->record)
		return;
	if (run_calibration_end(c, &m->result) != 0) {
		cli_error("--calibrate: %s; the result is not calibrated%s", c->why,
			  m->bundle ? "; use gpuward recompute --calibrate later"
				    : " (with --bundle you could use gpuward recompute "
				      "--calibrate later)");
		return;
	}
	for (unsigned i = 0; i < m->result.runs; i++) {
		run_result_calibrate(&m->result.run[i], &c->sensor, m->baseline);
		run_calibration_marks(c, &m->run[i].marks);
	}
	if (m->bundle) /* bundle_close() reports an error of this call. */
		bundle_file(m->bundle, "calibration.csv", c->fit.trace.text,
			    c->fit.trace.length, c->why, sizeof(c->why));
	if (m->o->calibrate_keep && run_calibration_keep(c) != 0)
		cli_error("--calibrate-keep: the calibration is not saved: %s", c->why);
}

static int finish_result(struct measurement *m)
{
	bool shared = false;
	char command[4096];
	int code = EXIT_OK;

	if (m->result.runs == 0 && m->lost && m->status)
		return m->status;
	if (m->result.runs == 0)
		return m->s.runner.interrupted ? 128 + m->s.runner.interrupted : EXIT_FAILED;
	calibrate_result(m);
	fill_result(m, command, sizeof(command));
	if (!m->c->quiet || !result_wanted(m))
		run_result_print(&m->result, m->c);
	if (result_wanted(m))
		code = save_result(m);
	/* The result could not be saved. Print it, so that it is not lost. */
	if (code != EXIT_OK && m->c->quiet)
		run_result_print(&m->result, m->c);
	for (unsigned i = 0; i < m->result.runs; i++)
		shared = shared || run_result_shared(&m->result.run[i]);
	if (code != EXIT_OK)
		return code;
	if (shared && m->o->session.require_exclusive)
		return EXIT_SHARED;
	if (m->s.room && !measured_room_kept(clean_room_record(m->s.room)))
		return EXIT_SHARED;
	if (m->status == 0 && m->s.runner.interrupted && m->result.runs < m->o->trials)
		return 128 + m->s.runner.interrupted;
	if (m->status == 0 && m->calibration.record && !m->calibration.fitted)
		return EXIT_FAILED;
	return m->status == 0 && (m->part_missing || m->count_missing || m->lost) ? EXIT_FAILED
										  : m->status;
}

static void on_event(void *arg, unsigned i, const struct event *e)
{
	struct measurement *m = arg;

	run_trace_event(m->series, i, e);
	if (i == 0)
		run_calibration_event(&m->calibration, e);
	if (m->bundle)
		bundle_event(m->bundle, i, e);
}

static void window_result(void *arg, unsigned i, unsigned id, const char *label,
			  const struct gw_energy *e)
{
	struct measurement *m = arg;

	if (m->bundle)
		bundle_window(m->bundle, i, id, label, e);
}

static void on_device(void *arg, unsigned i, unsigned position,
		      const struct energy_setup *setup)
{
	struct measurement *m = arg;
	const struct gw_device *d = gw_snapshot_device(m->c->snap, position);
	struct bundle_gpu gpu = { .uuid = gw_device_text(d, GW_T_UUID),
				  .name = gw_device_text(d, GW_T_NAME),
				  .driver = gw_device_text(d, GW_T_DRIVER),
				  .setup = setup,
				  .interval_s = m->o->interval_ns
							? (double)m->o->interval_ns * 1e-9
							: 0.1 };
	char message[512];

	if (m->bundle) /* bundle_close() reports an error of this call. */
		bundle_add(m->bundle, i, &gpu, message, sizeof(message));
}

static int open_bundle(struct measurement *m)
{
	struct bundle_about what = { .label = m->o->label,
				     .command = m->c->argv[0],
				     .wall_ns = clock_wall_ns(clock_real()),
				     .mono_ns = clock_mono_ns(clock_real()),
				     .simulated = gw_snapshot_status(m->c->snap)->simulated };
	char joined[4096], message[5000];

	if (!m->o->bundle)
		return EXIT_OK;
	if (m->o->session.keep_command) {
		cli_join(joined, sizeof(joined), m->c->argv);
		what.command = joined;
	}
	if (bundle_create(m->o->bundle, &what, &m->bundle, message, sizeof(message)) == 0)
		return EXIT_OK;
	return cli_fail("--bundle: %s", message);
}

/* Closes the bundle.  Call it after the meter has stopped, because then no more events come. */
static int close_bundle(struct measurement *m)
{
	char message[5000];

	if (!m->bundle || bundle_close(m->bundle, message, sizeof(message)) == 0)
		return EXIT_OK;
	return cli_fail("the bundle is incomplete: %s", message);
}

/* Allocates what the measurement needs and starts the meter.  Returns an exit code. */
static int start_meter(struct measurement *m)
{
	struct meter_config config = { .on_setup = on_device,
				       .on_event = on_event,
				       .on_result = window_result,
				       .describe = true,
				       .arg = m };
	unsigned n = gw_snapshot_device_count(m->c->snap);
	size_t trials = (size_t)m->o->trials;

	m->series = run_trace_new(n);
	m->baseline = calloc(n + 1, sizeof(*m->baseline));
	m->host = host_meter_new(m->c->ctx);
	m->run = calloc(trials, sizeof(*m->run));
	m->result.run = calloc(trials, sizeof(*m->result.run));
	if (!m->series || !m->baseline || !m->host || !m->run || !m->result.run ||
	    run_calibration_init(&m->calibration, m->o->calibrate, m->plan.accuracy) != 0)
		return cli_fail("cannot measure: %s", gw_strerror(-GW_E_NOMEM));
	m->s.runner.series = m->series;
	m->s.cool.read = m->remote ? read_temperatures : NULL;
	return session_start(&m->s, &config, m->o->interval_ns);
}

/* Returns true if a baseline will be measured, or if a stored one may be used. The state of the
 * GPUs must then be read, because this state decides whether a baseline fits. */
static bool state_matters(const struct measurement *m)
{
	char dir[512];
	bool kept = baseline_directory(dir, sizeof(dir)) == 0, any = false;

	if (m->plan.baseline != RUN_BASELINE_KEPT && m->plan.baseline != RUN_BASELINE_OLD)
		return m->plan.baseline != RUN_BASELINE_NONE;
	for (unsigned i = 0; kept && i < gw_meter_device_count(m->s.runner.meter); i++)
		any |= baseline_kept(gw_device_text(session_device(&m->s, i), GW_T_UUID),
				     GW_BASELINE_NO_CONTEXT, dir);
	return any;
}

static void get_baselines(struct measurement *m)
{
	if (state_matters(m)) /* After an error, no baseline is used. */
		(void)gw_snapshot_take(m->c->snap,
				       GW_TIER_FAST | GW_TIER_HEALTH | GW_TIER_LIMITS);
	for (unsigned i = 0; i < gw_meter_device_count(m->s.runner.meter); i++) {
		const struct gw_device *d = session_device(&m->s, i);

		if (m->plan.baseline == RUN_BASELINE_NEW && !m->c->quiet)
			cli_error("measuring the idle power of GPU %u", d->index);
		run_baseline_get(&m->s.runner, i, d, m->plan.baseline, &m->baseline[i]);
		if (*m->baseline[i].why && m->plan.baseline != RUN_BASELINE_KEPT)
			cli_error("GPU %u has no %sbaseline: %s%s", d->index,
				  m->baseline[i].stale ? "suitable " : "", m->baseline[i].why,
				  m->baseline[i].stale ? "; the stored one is used nevertheless"
						       : "");
	}
}

static int measure_runs(struct measurement *m)
{
	int code = session_begin(&m->s);

	if (code != EXIT_OK)
		return code;
	run_progress_init(&m->progress, m->s.runner.meter, m->o->session.progress, m->c->quiet);
	m->progress.trials = (unsigned)m->o->trials;
	m->progress.iterations = m->o->session.iterations;
	get_baselines(m);
	runner_ready(&m->s.runner);
	code = m->s.runner.interrupted ? 128 + m->s.runner.interrupted : run_all(m);
	clean_room_end(m->s.room);
	if (code == EXIT_OK)
		code = finish_result(m);
	else if (m->result.runs) /* Report the runs before the error. */
		(void)finish_result(m);
	session_end(&m->s);
	return code;
}

static void free_measurement(struct measurement *m)
{
	for (unsigned i = 0; m->result.run && i < m->result.runs; i++) {
		run_result_done(&m->result.run[i]);
		runner_run_done(&m->run[i]);
	}
	session_stop(&m->s);
	gw_environment_free(m->env);
	free(m->result.run);
	free(m->run);
	run_trace_free(m->series);
	free(m->baseline);
	host_meter_free(m->host);
	run_calibration_done(&m->calibration);
}

/* Checks that --calibrate can work.  The trace belongs to one GPU.  The trace must be a regular
 * file, because it is read at the end, and a pipe without a writer would block. */
static int check_calibration(const struct measurement *m)
{
	unsigned n = gw_meter_device_count(m->s.runner.meter);
	struct stat st;

	if (!m->o->calibrate)
		return EXIT_OK;
	if (stat(m->o->calibrate, &st) == 0 && !S_ISREG(st.st_mode))
		return cli_usage("--calibrate: %s is not a regular file; gpuward recompute "
				 "--calibrate also reads pipes",
				 m->o->calibrate);
	if (n == 1)
		return EXIT_OK;
	return cli_usage(
		"--calibrate works with one GPU, but %u are measured; select one with --gpu",
		n);
}

/* Makes the measurement. The GPUs are open, and the options are checked, except --calibrate,
 * which needs the open GPUs. */
static int run_open(struct measurement *m)
{
	int code = open_bundle(m), closed;

	if (code != EXIT_OK)
		return code;
	code = start_meter(m);
	if (code == EXIT_OK)
		code = check_calibration(m);
	if (code == EXIT_OK && !m->remote && !m->c->quiet &&
	    gw_meter_device_count(m->s.runner.meter) == 0)
		session_report_no_gpu(&m->s, "the command runs, but its energy is unknown");
	if (code == EXIT_OK)
		code = measure_runs(m);
	free_measurement(m);
	closed = close_bundle(m);
	return closed != EXIT_OK ? closed : code;
}

/* Prepares a measurement by the service.  Opens a context without GPUs, for the counters of the
 * host. */
static int open_service(struct measurement *m)
{
	int code = measure_remote_open(&m->o->session.room.remote, m->c->gpu.item,
				       m->c->gpu.count, &m->remote);

	/* Before the warm-up, check that the service can measure. */
	if (code == EXIT_OK && m->o->session.warmup > 0) {
		code = measure_remote_begin(m->remote, label_of(m));
		if (code == EXIT_OK)
			measure_remote_forget(m->remote);
	}
	m->c->backend = "none";
	/* This context has no GPU, so --gpu must not be matched against it. */
	m->c->gpu.count = 0;
	return code == EXIT_OK ? cli_open(m->c, 0) : code;
}

static int measure_run(struct cli *c)
{
	struct measurement *m = calloc(1, sizeof(*m));
	int code;

	if (!m)
		return cli_no_memory();
	m->c = c;
	m->o = c->own;
	session_init(&m->s, c, &m->o->session, m);
	m->s.runner.watch = watch_run;
	m->s.runner.meanwhile = after_run;
	m->s.cool.report = report_cooldown;
	term_to_stderr(true);
	code = measure_plan_make(c, &m->plan);
	m->count = (struct run_count){ .kind = m->plan.count,
				       .by = m->plan.count_by,
				       .iterations = m->plan.counts_iterations,
				       .runner = &m->s.runner };
	if (code == EXIT_OK)
		code = m->o->service ? open_service(m) : cli_open(c, 0);
	if (code == EXIT_OK)
		code = run_open(m);
	measure_remote_close(m->remote);
	free(m);
	return code;
}

const struct command command_measure = {
	.name = "measure",
	.summary = "measure the energy of a command",
	.description =
		"Runs a command and measures the energy of the GPUs while it runs: joules with "
		"their uncertainty, power, time, temperature, throttling, and other processes "
		"on the GPUs. The command uses the terminal as usual, its output is unchanged, "
		"and gpuward ends with the exit status of the command. The result is printed "
		"on standard error. -o and --json also write it as JSON; -q then leaves out "
		"the printed result. A command can mark parts, iterations and tokens: see "
		"gpuward-measure(1).",
	.examples =
		"  gpuward measure -- python train.py --epochs 1\n"
		"  gpuward measure --label fp16 --iterations 1000 -o fp16.json -- ./infer "
		"fp16\n"
		"  gpuward measure --trials 5 --warmup 1 --baseline -o run.json -- ./bench\n"
		"  gpuward measure --count-url http://localhost:8000/metrics -- sleep 60\n"
		"  gpuward measure --service -- ./infer\n",
	.arguments = "-- COMMAND",
	.runs = 1,
	.verbose = "also print the whole result of each trial",
	.options = measure_plan_options,
	.options_size = sizeof(struct measure_options),
	.run = measure_run,
};
