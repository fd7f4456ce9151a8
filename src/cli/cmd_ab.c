/* ab: finds out which of two commands uses less energy.
 *
 * measure/ab.c decides which command runs next, when to stop, and what the result means.  This
 * file runs the commands one after the other and prints the results. */
#include "ab_text.h"
#include "output.h"
#include "session.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/number.h"
#include "measure/meter.h"
#include "measure/stat.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAIL_LINES   5
#define EXIT_INVALID 12
#define TARGET       0.01 /* Default of --target if --fail-if is not given. */
/* 2^53. Every JSON reader represents integers up to this value exactly. */
#define SEED_MAX 9007199254740992.0

struct ab_options {
	struct session_options session;
	double pairs_max, aa_pairs, seed; /* seed is NAN if --seed is not given. */
	const char *target, *fail_if;
	bool show_output;
};

#define AT(member) offsetof(struct ab_options, member)
static const struct option options[] = {
	OPTION_COUNT_ROW("pairs-max", AT(pairs_max), "largest number of pairs", 2,
			 AB_PAIRS_LIMIT, 40),
	OPTION_ROW(TEXT, 0, "target", AT(target), "PERCENT",
		   "stop when the ratio is known within PERCENT (default: 1%; no target with "
		   "--fail-if)"),
	OPTION_ROW(TEXT, 0, "fail-if", AT(fail_if), "RULE",
		   "condition on B relative to A such as 'energy > +2%' (energy, time, power "
		   "or edp): exit status 10 if it is true, 0 if not, 11 if undecided"),
	OPTION_COUNT_ROW("aa-pairs", AT(aa_pairs),
			 "first compare A with itself N times, to measure the noise", 0,
			 AB_PAIRS_LIMIT, 4),
	SESSION_ITERATIONS(struct ab_options, session),
	SESSION_PART(struct ab_options, session),
	/* By default, each command runs once before the comparison. This run fills caches, and
	 * shows early whether B fails. */
	SESSION_COOLDOWN(struct ab_options, session, 1),
	SESSION_EXCLUSIVE(struct ab_options, session),
	CLEAN_ROOM_OPTIONS(struct ab_options, session.room),
	OPTION_COUNT_ROW(
		"seed", AT(seed),
		"seed for the order and the bootstrap (default: a different one each time)", 0,
		SEED_MAX, NAN),
	OPTION_ROW(FLAG, 0, "show-output", AT(show_output), NULL,
		   "show the output of the commands, which is discarded by default"),
	SESSION_OUTPUT(struct ab_options, session),
	SESSION_KEEP_COMMAND(struct ab_options, session),
	SESSION_PROGRESS(struct ab_options, session),
	OPTION_END,
};

static int parse_target(const char *text, double *ret)
{
	const char *end;
	double v = number_parse(text, &end);

	if (end == text || strcmp(end, "%") != 0 || !(v > 0 && v <= 100))
		return cli_usage(
			"--target takes a percentage above 0 such as 1%% or 0.5%%, not '%s'",
			text);
	*ret = v / 100;
	return EXIT_OK;
}

static int parse_gate(const char *text, struct ab_config *config)
{
	char error[256];

	if (ab_gate_parse(text, &config->gate, error, sizeof(error)) != 0)
		return cli_usage("--fail-if '%s': %s", text, error);
	config->gated = true;
	return EXIT_OK;
}

static double fresh_seed(void)
{
	uint64_t state = clock_wall_ns(clock_real()) ^ (uint64_t)getpid() << 40;

	return (double)(splitmix64(&state) >> 32);
}

/* Checks the options and writes the configuration.  Returns an exit code. */
static int parse_options(const struct ab_options *o, struct ab_config *c)
{
	int code = EXIT_OK;

	ab_config_init(c);
	c->pairs_max = (unsigned)o->pairs_max;
	c->aa_pairs = (unsigned)o->aa_pairs;
	c->seed = (uint64_t)(isnan(o->seed) ? fresh_seed() : o->seed);
	c->require_exclusive = o->session.require_exclusive;
	if (o->fail_if)
		code = parse_gate(o->fail_if, c);
	c->target_ratio = c->gated ? 0 : TARGET;
	if (code == EXIT_OK && o->target)
		code = parse_target(o->target, &c->target_ratio);
	if (code == EXIT_OK)
		code = session_check(&o->session);
	if (code == EXIT_OK)
		code = clean_room_check(&o->session.room);
	return code;
}

#define FORM "gpuward ab [OPTIONS] -- A... -- B..."

/* Splits argv at "--" into two commands, each ended by NULL.  Changes argv.  Returns an exit
 * code. */
static int split_commands(char **argv, int argc, char **ret[2])
{
	int part = 0;

	while (part < argc && strcmp(argv[part], "--") != 0)
		part++;
	if (argc == 0)
		return cli_usage("two commands are missing: " FORM);
	if (part == argc)
		return cli_usage("the second command is missing: write -- and the second "
				 "command after '%s': " FORM,
				 argv[part - 1]);
	ret[AB_ARM_A] = argv;
	ret[AB_ARM_B] = argv + part + 1;
	argv[part] = NULL;
	for (unsigned i = 0; i < 2; i++)
		if (!ret[i][0] || !*ret[i][0])
			return cli_usage("command %c is empty: " FORM, i ? 'B' : 'A');
	for (char **word = ret[AB_ARM_B]; *word; word++)
		if (strcmp(*word, "--") == 0)
			return cli_usage(
				"there is a third -- after '%s', but ab compares two commands; "
				"wrap a command that needs a -- in sh -c '...'",
				word[-1]);
	return EXIT_OK;
}

struct comparison {
	struct cli *c;
	const struct ab_options *o;
	char **argv[2]; /* Command lines of A and B. */
	char command[2][4096];
	struct ab_config config;
	struct ab *ab;
	struct ab_report report;
	unsigned capacity; /* Number of elements that report.run can hold. */
	/* Index of the first run of the current pair. -1: the next run begins a pair. */
	int half;

	struct session s;
	struct tail tail;
	/* `terminal`: progress is one line that is overwritten. `lines`: progress is one line
	 * per pair. */
	bool terminal, lines;
	uint64_t begin_ns; /* Monotonic time at which the current run started. */
	char line[160];    /* First part of the progress line. */
	char why[512];     /* Why the last unusable run could not be used. */
	/* Per command: gpuward already warned that the command marks several parts with the
	 * name that --part gives. */
	bool parts_reported[2];
};

static const char letters[] = { 'A', 'B' };

static void show_line(const struct comparison *x, const char *text)
{
	if (x->terminal)
		progress_show("%s", text);
}

/* Clears the progress line.  Call it before anything else is printed. */
static void clear_line(const struct comparison *x)
{
	if (x->terminal)
		progress_clear();
}

/* Records that a command failed, and prints an error with the last lines of the command's
 * standard error. */
static void __attribute__((format(printf, 4, 5)))
set_failure(struct comparison *x, enum ab_arm arm, int status, const char *fmt, ...)
{
	struct ab_report *r = &x->report;
	char said[TAIL_BYTES + 64] = "";
	va_list ap;

	r->failed = true;
	r->failed_arm = arm;
	r->failed_status = status;
	va_start(ap, fmt);
	vsnprintf(r->failure, sizeof(r->failure), fmt, ap);
	va_end(ap);
	if (!x->o->show_output)
		tail_lines(&x->tail, TAIL_LINES, said, sizeof(said));
	clear_line(x);
	cli_error("command %c ('%s') %s%s%s", letters[arm], x->argv[arm][0], r->failure,
		  *said ? "; its last lines:" : "", said);
}

static int check_run(struct comparison *x, enum ab_arm arm, const struct runner_run *run)
{
	int status = runner_status(run);

	if (run->error) {
		set_failure(x, arm, status, "cannot be started: %s", strerror(run->error));
		return status;
	}
	if (run->exit_signal)
		set_failure(x, arm, status,
			    "was ended by signal %d (%s); a command that fails is not compared",
			    run->exit_signal, strsignal(run->exit_signal));
	else if (status != 0)
		set_failure(x, arm, status,
			    "ended with status %d; a command that fails is not compared",
			    status);
	return status ? EXIT_INVALID : EXIT_OK;
}

/* Runs a command to its end.  Returns EXIT_OK; then call runner_run_done().  Otherwise returns
 * an exit code.  After a signal, the exit status of the command is not checked. */
static int run_command(struct comparison *x, enum ab_arm arm, struct runner_run *run)
{
	int err, code;

	tail_clear(&x->tail);
	x->begin_ns = clock_mono_ns(clock_real());
	err = runner_run(&x->s.runner, x->argv[arm], arm == AB_ARM_A ? "A" : "B", run);
	if (err) {
		clear_line(x);
		return cli_fail("cannot measure: %s", gw_strerror(err));
	}
	if (x->s.runner.interrupted)
		return EXIT_OK;
	code = check_run(x, arm, run);
	if (code != EXIT_OK)
		runner_run_done(run);
	return code;
}

/* Writes "pair 3 of at most 40". */
static void describe_pair(const struct comparison *x, const struct ab_step *step, char *out,
			  size_t size)
{
	bool aa = step->phase == AB_PHASE_AA;

	snprintf(out, size, "%s %u of %s%u", aa ? "A/A pair" : "pair", step->pair + 1,
		 aa ? "" : "at most ", aa ? x->config.aa_pairs : x->config.pairs_max);
}

static void describe_so_far(const struct comparison *x, char *out, size_t size)
{
	enum ab_metric m = x->config.gated ? x->config.gate.metric : AB_ENERGY;
	char change[80];

	out[0] = '\0';
	if (x->report.result.ab[m].n == 0)
		return;
	ab_text_change(change, sizeof(change), &x->report.result.ab[m]);
	snprintf(out, size, "; %s of B so far %s", ab_metric_name(m), change);
}

static void begin_line(struct comparison *x, const struct ab_step *step)
{
	char pair[64], so_far[120];

	describe_pair(x, step, pair, sizeof(pair));
	describe_so_far(x, so_far, sizeof(so_far));
	snprintf(x->line, sizeof(x->line), "%s: run of %c%s", pair, letters[step->command],
		 so_far);
	show_line(x, x->line);
}

static void watch_run(void *arg, struct gw_window *window, const struct progress_marks *marks)
{
	struct comparison *x = arg;
	char text[256];
	double seconds = (double)(clock_mono_ns(clock_real()) - x->begin_ns) * 1e-9;

	(void)window;
	(void)marks;
	snprintf(text, sizeof(text), "%s; %.1f s", x->line, seconds);
	show_line(x, text);
}

static void drain_stderr(void *arg)
{
	struct comparison *x = arg;

	tail_drain(&x->tail);
}

static void report_cooldown(void *arg, unsigned gpu, double now_c, double mark_c, double left_s)
{
	struct comparison *x = arg;
	char text[256];

	snprintf(text, sizeof(text),
		 "%s; GPU %u is at %.0f %s, waiting for %.0f %s, at most %.0f s", x->line, gpu,
		 now_c, term_plain("°C"), mark_c, term_plain("°C"), left_s);
	show_line(x, text);
}

static void print_plan(struct comparison *x)
{
	char text[400];

	ab_text_plan(text, sizeof(text), &x->report);
	if (!*text || x->c->quiet)
		return;
	clear_line(x);
	cli_error("%s", text);
}

static void print_pair(const struct comparison *x, const struct ab_step *step)
{
	char pair[64], so_far[120];

	if (!x->lines)
		return;
	describe_pair(x, step, pair, sizeof(pair));
	describe_so_far(x, so_far, sizeof(so_far));
	fprintf(stderr, "gpuward: %s%s\n", pair, so_far);
}

static void print_dropped(struct comparison *x, const struct ab_step *step)
{
	if (x->c->quiet)
		return;
	clear_line(x);
	cli_error("a run of %c is not usable, so its pair is dropped: %s",
		  letters[step->command], x->why);
}

/* Warns that a command marks several parts with the same name. Warns only once per command,
 * because each run of a command marks the same parts. */
static void warn_parts(struct comparison *x, enum ab_arm command, unsigned parts)
{
	if (parts < 2 || x->parts_reported[command])
		return;
	x->parts_reported[command] = true;
	clear_line(x);
	cli_error("command %c marked %u parts named '%s'; the first is used", letters[command],
		  parts, x->o->session.part);
}

static void keep_estimate(struct comparison *x)
{
	const struct ab_estimate *e = ab_last_interim(x->ab);
	struct ab_report *r = &x->report;

	if (e && r->looks < AB_LOOKS && (!r->looks || r->look[r->looks - 1].n != e->n))
		r->look[r->looks++] = *e;
}

/* Adds a run to the comparison.  Marks both runs of the pair as used when the pair is complete;
 * drops the pair if the run is not usable. */
static void add_run(struct comparison *x, unsigned at)
{
	struct ab_record *r = &x->report.run[at];
	bool foreign = r->codes & UINT64_C(1) << GW_CODE_FOREIGN_PROCESS;
	struct ab_run run = { .energy_j = r->energy.best,
			      .seconds = r->seconds,
			      .power_w = r->power_w,
			      .valid = r->validity < GW_INVALID,
			      .exclusive = !(foreign && x->config.require_exclusive) };
	int dropped = ab_add(x->ab, r->step.phase, r->step.arm, &run);

	if (dropped) {
		x->half = -1;
		print_dropped(x, &r->step);
	} else if (x->half < 0) {
		x->half = (int)at;
	} else {
		x->report.run[x->half].used = r->used = true;
		x->half = -1;
		keep_estimate(x);
		ab_result(x->ab, &x->report.result);
		print_pair(x, &r->step);
		if (r->step.phase == AB_PHASE_AA && r->step.pair + 1 == x->config.aa_pairs)
			print_plan(x);
	}
}

/* Returns the energy of device i in part w of the run, or in the whole run if w is NULL. */
static const struct gw_energy *energy_of(const struct runner_run *run,
					 const struct progress_marks_window *w, unsigned i)
{
	return w ? &w->energy[i] : gw_window_energy(run->window, i);
}

/* Fills in time and energy of the run, or of its part w if w is not NULL, summed over the
 * GPUs. */
static void fill_record(const struct comparison *x, const struct runner_run *run,
			const struct progress_marks_window *w, struct ab_record *r)
{
	double variance = 0, counter_j = 0, samples_j = 0;
	bool one_source = false; /* True: at least one GPU has only one energy source. */

	r->seconds = w ? (double)(w->end_ns - w->begin_ns) * 1e-9 : run->seconds;
	r->temperature_c = NAN;
	for (unsigned i = 0; i < gw_meter_device_count(x->s.runner.meter); i++) {
		const struct gw_energy *e = energy_of(run, w, i);

		energy_interval_add(&r->energy, &e->relative, false);
		energy_interval_add(&r->absolute, &e->joules, true);
		variance += pow(e->u_relative, 2);
		counter_j += e->counter_joules;
		samples_j += e->samples_joules;
		one_source = one_source || isnan(e->residual_ratio);
		r->temperature_c = fmax(r->temperature_c, e->temperature_begin);
		r->validity = e->validity > r->validity ? e->validity : r->validity;
		r->codes |= e->codes;
	}
	r->u_j = sqrt(variance);
	r->power_w = r->energy.best / r->seconds;
	r->residual_ratio = one_source ? NAN : samples_j / counter_j - 1;
	/* A short run may have no temperature reading. Then use the temperature from before the
	 * run. */
	if (isnan(r->temperature_c))
		r->temperature_c = x->s.cool.now_c;
}

/* Writes to x->why the reason why the energy of the run, or of its part w, is not fully valid:
 * for each GPU, the sentence of each code and its evidence. */
static void describe_codes(struct comparison *x, const struct runner_run *run,
			   const struct progress_marks_window *w)
{
	char evidence[200];
	struct buf b;

	buf_init_fixed(&b, x->why, sizeof(x->why));
	for (unsigned i = 0; i < gw_meter_device_count(x->s.runner.meter); i++) {
		const struct gw_energy *e = energy_of(run, w, i);

		for (unsigned c = 0; c < GW_CODES; c++) {
			const struct gw_code_info *info = gw_code_info(c);

			if (!(e->codes & UINT64_C(1) << c) || info->level == GW_VALID)
				continue;
			window_evidence(run->window, i, e, c, evidence, sizeof(evidence));
			buf_addf(&b, "%sGPU %u: %s%s%s", b.len ? "; " : "",
				 session_device(&x->s, i)->index, info->sentence,
				 *evidence ? ", " : "", evidence);
		}
	}
	if (b.len == 0)
		buf_adds(&b, "the energy of the run is unknown");
}

static int run_step(struct comparison *x, const struct ab_step *step)
{
	struct ab_report *report = &x->report;
	struct ab_record *r = &report->run[report->runs];
	const char *part = x->o->session.part;
	const struct progress_marks_window *w;
	struct runner_run run;
	unsigned parts = 0; /* Number of parts with the name `part`. */
	int code = run_command(x, step->command, &run);

	if (code != EXIT_OK)
		return code;
	w = part ? progress_marks_find(&run.marks, part, &parts) : NULL;
	*r = (struct ab_record){ .step = *step, .begin_wall_ns = run.begin_wall_ns };
	if (x->s.runner.interrupted) {
		/* Do not use this run, because it may be incomplete. */
	} else if (part && !w) {
		set_failure(x, step->command, 0,
			    "did not mark the beginning and end of a part '%.60s'; see "
			    "gpuward-measure(1)",
			    part);
		code = EXIT_INVALID;
	} else {
		fill_record(x, &run, w, r);
		warn_parts(x, step->command, parts);
		describe_codes(x, &run, w);
		add_run(x, report->runs++);
	}
	runner_run_done(&run);
	return code;
}

static int warm_up(struct comparison *x)
{
	for (unsigned i = 0; i < 2 * x->o->session.warmup; i++) {
		enum ab_arm arm = i % 2 ? AB_ARM_B : AB_ARM_A;
		struct runner_run run;
		int code;

		snprintf(x->line, sizeof(x->line), "warming up, run of %c", letters[arm]);
		show_line(x, x->line);
		code = run_command(x, arm, &run);
		if (code != EXIT_OK)
			return code;
		runner_run_done(&run);
		if (x->s.runner.interrupted)
			break;
	}
	return EXIT_OK;
}

static int run_pairs(struct comparison *x)
{
	struct ab_step step;
	int code = warm_up(x);

	while (code == EXIT_OK && !x->s.runner.interrupted && ab_next(x->ab, &step)) {
		assert(x->report.runs < x->capacity); /* ab.h limits the number of runs. */
		begin_line(x, &step);
		if (!x->o->session.no_cooldown)
			session_cool_down(&x->s, x->terminal ? progress_clear : NULL);
		if (!x->s.runner.interrupted)
			code = run_step(x, &step);
	}
	clear_line(x);
	return code;
}

static void fill_report(struct comparison *x)
{
	const struct session_options *o = &x->o->session;
	struct ab_report *r = &x->report;

	for (unsigned i = 0; i < 2; i++) {
		r->side[i].name = session_command_name(x->argv[i][0]);
		cli_join(x->command[i], sizeof(x->command[i]), x->argv[i]);
		r->side[i].command = x->o->session.keep_command ? x->command[i] : NULL;
	}
	r->iterations = o->iterations;
	r->warmup = (unsigned)o->warmup;
	r->cooled = !o->no_cooldown;
	r->cool_to_c = o->cooldown_to_c;
	r->simulated = gw_snapshot_status(x->c->snap)->simulated;
	r->gate = x->o->fail_if;
	r->part = x->o->session.part;
	r->room = clean_room_record(x->s.room);
	r->interrupted = x->s.runner.interrupted;
	r->cool_s = x->s.cool.waited_s;
	r->cool_late = x->s.cool.late;
	ab_result(x->ab, &r->result);
}

static int save_result(const struct comparison *x)
{
	struct gw_environment *env = NULL;
	struct cli_document doc;
	int err = gw_environment_new(x->c->ctx, &env);

	cli_document_begin(&doc, true);
	render_ab(&doc.json, &x->report, env, x->c->snap, &x->c->filter);
	gw_environment_free(env);
	return session_write(&x->s, &doc, NULL, err);
}

static void print_ending(const struct comparison *x)
{
	switch (x->report.result.outcome) {
	case AB_INVALID:
		cli_error("no conclusion, because too many runs were not usable; the last of "
			  "them: %s",
			  x->why);
		break;
	case AB_SHARED: cli_error("other processes used the GPUs: %s", x->why); break;
	case AB_RUNNING:
		if (x->s.runner.interrupted)
			cli_error("interrupted by signal %d (%s)", x->s.runner.interrupted,
				  strsignal(x->s.runner.interrupted));
		break;
	default: break;
	}
}

static const char *device_name(const struct comparison *x, unsigned i)
{
	const char *name = gw_device_text(session_device(&x->s, i), GW_T_NAME);

	return name ? name : "";
}

/* Prints the result. Names the GPUs if there are several. */
static void print_report(const struct comparison *x)
{
	const unsigned n = gw_meter_device_count(x->s.runner.meter);
	char gpus[1000] = "";
	struct buf b;

	buf_init_fixed(&b, gpus, sizeof(gpus));
	for (unsigned i = 0; i < n && n > 1; i++)
		figure_add_gpu(&b, session_device(&x->s, i)->index, device_name(x, i),
			       i + 1 < n ? device_name(x, i + 1) : NULL);
	ab_text_print(&x->report, x->command[0], x->command[1], gpus, x->c);
}

static int finish_report(struct comparison *x, int code)
{
	bool print =
		x->c->json || (x->o->session.output && strcmp(x->o->session.output, "-") == 0);
	int saved = EXIT_OK;

	fill_report(x);
	if (code == EXIT_OK)
		code = x->s.runner.interrupted ? 128 + x->s.runner.interrupted
		       : x->s.room && !measured_room_kept(clean_room_record(x->s.room))
			       ? EXIT_SHARED
			       : ab_exit_code(x->ab);
	x->report.exit_code = code;
	print_ending(x);
	if (!print && x->report.runs > 0)
		print_report(x);
	if (x->c->json || x->o->session.output)
		saved = save_result(x);
	return saved == EXIT_OK ? code : saved;
}

/* Checks that the energy of every GPU can be read, because the sum is unknown if the energy of
 * one GPU is unknown. */
static int check_meters(const struct comparison *x)
{
	unsigned n = gw_meter_device_count(x->s.runner.meter);

	if (n == 0) {
		session_report_no_gpu(&x->s, "no energy can be compared");
		return EXIT_NO_GPU;
	}
	for (unsigned i = 0; i < n; i++) {
		struct energy_setup set = meter_setup(x->s.runner.meter, i);
		const struct gw_device *d = session_device(&x->s, i);

		if (set.shape != SHAPE_NONE || set.counter)
			continue;
		cli_error("GPU %u is %s and its energy cannot be read; select other GPUs with "
			  "--gpu, or see gpuward doctor",
			  d->index, gw_device_state_name(d->state));
		return EXIT_NO_GPU;
	}
	return EXIT_OK;
}

/* Returns the uncertainty of the power at 0 W, summed over the GPUs.  The uncertainties are
 * added, not their squares, because boards of the same model have the same error. */
static double offset_u_w(const struct gw_meter *meter)
{
	double sum = 0;

	for (unsigned i = 0; i < gw_meter_device_count(meter); i++) {
		struct sensor s = meter_setup(meter, i).sensor;

		/* offset_u_w is the uncertainty at the pivot. At 0 W, the uncertainty of the
		 * gain is added to this uncertainty. */
		sum += hypot(s.calibration.offset_u_w,
			     s.calibration.gain_u * s.calibration.pivot_w);
	}
	return sum;
}

static int start_comparison(struct comparison *x)
{
	const struct ab_config *c = &x->config;
	int err;

	x->config.offset_w = offset_u_w(x->s.runner.meter);
	x->report.config = c;
	x->report.wall_ns = clock_wall_ns(clock_real());
	x->capacity = 2 * (c->aa_pairs + c->pairs_max + c->repeats_max + 1);
	x->report.run = calloc(x->capacity, sizeof(*x->report.run));
	err = x->report.run ? ab_new(c, &x->ab) : -GW_E_NOMEM;
	return err ? cli_fail("cannot compare: %s", gw_strerror(err)) : EXIT_OK;
}

/* Opens the standard streams of the commands.  Standard input is empty.  Output is discarded
 * unless --show-output is given, but the end of standard error is kept for error messages. */
static int open_stdio(struct comparison *x)
{
	struct runner *r = &x->s.runner;

	r->stdio[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (r->stdio[0] < 0 || tail_open(&x->tail) != 0) {
		cli_error("cannot open /dev/null or a pipe for the commands: %s",
			  strerror(errno));
		if (r->stdio[0] >= 0)
			close(r->stdio[0]);
		return EXIT_FAILED;
	}
	if (!x->o->show_output) {
		r->stdio[1] = r->stdio[0];
		r->stdio[2] = x->tail.write_fd;
	}
	r->drain = drain_stderr;
	r->drain_fd = x->tail.read_fd;
	return EXIT_OK;
}

static int run_started(struct comparison *x)
{
	int code = session_begin(&x->s);

	if (code != EXIT_OK)
		return code;
	runner_ready(&x->s.runner);
	code = run_pairs(x);
	clean_room_end(x->s.room);
	code = finish_report(x, code);
	session_end(&x->s);
	return code;
}

static int run_open(struct comparison *x)
{
	static const struct meter_config no_callbacks;
	int code = session_start(&x->s, &no_callbacks, 0);

	if (code == EXIT_OK)
		code = check_meters(x);
	if (code == EXIT_OK)
		code = start_comparison(x);
	if (code == EXIT_OK)
		code = open_stdio(x);
	if (code == EXIT_OK) {
		code = run_started(x);
		close(x->s.runner.stdio[0]);
		tail_close(&x->tail);
	}
	ab_free(x->ab);
	free(x->report.run);
	session_stop(&x->s);
	return code;
}

static int ab_run(struct cli *c)
{
	struct comparison *x = calloc(1, sizeof(*x));
	int code;

	if (!x)
		return cli_no_memory();
	x->c = c;
	x->o = c->own;
	x->half = -1;
	session_init(&x->s, c, &x->o->session, x);
	x->s.runner.watch = watch_run;
	x->s.cool.report = report_cooldown;
	x->terminal = progress_possible(c->quiet) && !x->o->show_output;
	x->lines = x->o->session.progress && !x->terminal && !c->quiet;
	code = parse_options(x->o, &x->config);
	if (code == EXIT_OK)
		code = split_commands(c->argv, c->argc, x->argv);
	if (code == EXIT_OK)
		code = output_possible(x->o->session.output);
	if (code == EXIT_OK)
		code = cli_open(c, GW_TIERS_COMMON);
	if (code == EXIT_OK)
		code = run_open(x);
	free(x);
	return code;
}

const struct command command_ab = {
	.name = "ab",
	.summary = "find out which of two commands uses less energy",
	.description =
		"Runs two commands, A and B, alternately, in random order and from the same "
		"temperature, and prints the ratio of their energy (and of time, mean power, "
		"energy times delay) with a 95 % interval that stays valid although it is "
		"checked several times. First A is compared with itself, to measure the noise. "
		"The comparison ends when the interval shows which command uses less (with "
		"--fail-if: whether the gate passed), when it is as narrow as --target, or "
		"after --pairs-max pairs. With --fail-if the exit status is the verdict: 0 "
		"(passed), 10 (failed) or 11 (undecided). 12 means that the data are not "
		"usable, and 13 that other processes used the GPUs.",
	.examples =
		"  gpuward ab -- ./infer fp16 -- ./infer int8\n"
		"  gpuward ab --fail-if 'energy > +2%' -o ab.json -- ./old -- ./new\n"
		"  gpuward ab --target 0.5% --pairs-max 100 --part decode -- ./a -- ./b\n"
		"  gpuward ab --simulate=slow-driver --no-cooldown -- sleep 0.5 -- sleep 0.6\n",
	.arguments = "-- A... -- B...",
	.runs = 2,
	.options = options,
	.options_size = sizeof(struct ab_options),
	.run = ab_run,
};
