/* baseline: measures, shows and deletes the idle power of GPUs. */
#include "cli.h"
#include "term.h"
#include "table.h"

#include "base/clock.h"
#include "measure/baseline.h"
#include "measure/distribution.h"
#include "measure/cuda.h"
#include "measure/meter.h"
#include "serve/render_result.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_S   10  /* Shortest measurement in seconds. */
#define MOST_S    30  /* Longest measurement in seconds if --time is not given. */
#define LONGEST_S 600 /* Largest value of --time in seconds. */
#define HALF_W    1.0 /* The measurement ends when the mean is known within this many watts. */
#define DRAW_NS   (200 * NS_PER_MS)
/* Time to wait after a context is created.  Creating a context loads the GPU, and the reported
 * utilisation is a mean over 1 s. */
#define SETTLE_NS (2 * NS_PER_S)

struct given {
	const char *kind, *pid;
	uint64_t time_ns, ttl_ns;
	bool show, clear;
};

#define given(cli) ((struct given *)(cli)->own)

struct job {
	const struct gw_device *device;
	struct baseline_plan plan;
	int64_t own_pid; /* The process with this pid, and its children, may use the GPU. */
	const char *dir; /* The folder for the baseline. "": the baseline is not saved. */
	struct gw_meter *meter;
	pthread_t thread;
	bool started; /* The thread was started. */
	bool have;    /* `b` has the power. `b` is saved only if the GPU was idle. */
	bool kept;    /* `b` is saved in dir. */
	struct baseline b;
	char message[512]; /* Why there is no baseline, or why it is not saved. */
	/* `lock` protects the members after it. */
	pthread_mutex_t lock;
	bool done;
	double seconds, power_w, half_width_w;
};

struct jobs {
	unsigned count;
	struct job *job;
	char dir[512];
};

static double half_width(const struct baseline *b)
{
	return b->seconds >= 2 ? student_factor(0.05, b->seconds - 1) * b->u_w : NAN;
}

static double age_s(const struct baseline *b)
{
	return ((double)clock_wall_ns(clock_real()) - (double)b->wall_ns) * 1e-9;
}

static bool on_progress(void *ctx, double seconds, double power_w, double half_width_w)
{
	struct job *j = ctx;

	pthread_mutex_lock(&j->lock);
	j->seconds = seconds;
	j->power_w = power_w;
	j->half_width_w = half_width_w;
	pthread_mutex_unlock(&j->lock);
	return !stop_requested();
}

static struct cuda_load *make_context(struct job *j)
{
	const char *pci = gw_device_text(j->device, GW_T_PCI);
	struct cuda_load *load = NULL;

	if (j->plan.kind != GW_BASELINE_CONTEXT_IDLE || j->own_pid != getpid() ||
	    j->device->provenance == GW_FROM_SIMULATOR || !pci)
		return NULL;
	if (cuda_load_open(pci, clock_real(), &load, j->message, sizeof(j->message)) != 0)
		return NULL;
	clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + SETTLE_NS);
	return load;
}

static void set_reason(struct job *j, int err)
{
	char cuda[256];

	/* If there is no CUDA context, j->message says why. */
	snprintf(cuda, sizeof(cuda), "%s", j->message);
	if (err == -GW_E_STATE)
		snprintf(j->message, sizeof(j->message),
			 "interrupted before the baseline was known");
	else if (err == -GW_E_NOSUPPORT)
		snprintf(j->message, sizeof(j->message), "the GPU does not report its power");
	else if (err)
		snprintf(j->message, sizeof(j->message), "%s", gw_strerror(err));
	else if (j->plan.kind == GW_BASELINE_CONTEXT_IDLE && j->own_pid == getpid())
		snprintf(j->message, sizeof(j->message),
			 "%s%s%s (with --pid you can name a process with an idle context)",
			 j->b.evidence, *cuda ? ": " : "", cuda);
	else
		snprintf(j->message, sizeof(j->message), "the GPU was not idle: %s",
			 j->b.evidence);
}

static void measure_job(struct job *j)
{
	struct cuda_load *load = make_context(j);
	int err = baseline_take(j->meter, 0, &j->plan, &j->b);

	cuda_load_close(load);
	j->have = err == 0;
	if (err || j->b.codes & UINT64_C(1) << GW_CODE_BASELINE_CONTENDED) {
		set_reason(j, err);
		return;
	}
	snprintf(j->message, sizeof(j->message), "%s", j->b.evidence);
	if (!*j->dir)
		snprintf(j->message, sizeof(j->message),
			 "the baseline was measured, but cannot be saved: neither "
			 "XDG_CACHE_HOME nor HOME is set to a folder");
	else
		j->kept = baseline_save(&j->b, j->dir, j->message, sizeof(j->message)) == 0;
}

static void *run_job(void *arg)
{
	struct job *j = arg;

	measure_job(j);
	pthread_mutex_lock(&j->lock);
	j->done = true;
	pthread_mutex_unlock(&j->lock);
	return NULL;
}

/* Starts a meter for one GPU.  Each GPU has its own meter, so that a window on one GPU does not
 * sample the other GPUs. */
static int start_meter(struct cli *c, struct job *j)
{
	const char *uuid = gw_device_text(j->device, GW_T_UUID);
	char index[16];
	const char *gpus[] = { uuid ? uuid : index, NULL };
	struct gw_meter_options o = { .size = sizeof(o),
				      .gpus = gpus,
				      .flags = GW_METER_PROCESSES };

	snprintf(index, sizeof(index), "%u", j->device->index);
	return gw_meter_start(c->ctx, &o, &j->meter);
}

static void start_job(struct cli *c, struct job *j)
{
	int err;

	j->done = true;
	if (j->device->state != GW_DEVICE_OK) {
		snprintf(j->message, sizeof(j->message), "the GPU is %s: %s",
			 gw_device_state_name(j->device->state), j->device->message);
		return;
	}
	err = start_meter(c, j);
	if (!err) {
		meter_set_own_process(j->meter, j->own_pid);
		j->done = false;
		if (pthread_create(&j->thread, NULL, run_job, j) == 0)
			j->started = true;
		else
			err = -GW_E_NOMEM;
	}
	if (err) {
		j->done = true;
		snprintf(j->message, sizeof(j->message), "%s", gw_strerror(err));
	}
}

/* Shows the progress of one job in a line: the running job that has measured for the shortest
 * time. Returns how many jobs still run. */
static unsigned draw_progress(const struct jobs *all, bool show)
{
	unsigned running = 0;
	double seconds = INFINITY, power = NAN, half = NAN, most = 1;
	char bar[64], watts[64] = "";

	for (unsigned i = 0; i < all->count; i++) {
		struct job *j = &all->job[i];

		pthread_mutex_lock(&j->lock);
		running += !j->done;
		if (!j->done && j->seconds < seconds) {
			seconds = j->seconds;
			power = j->power_w;
			half = j->half_width_w;
			most = j->plan.max_s;
		}
		pthread_mutex_unlock(&j->lock);
	}
	if (!show || running == 0)
		return running;
	if (seconds > 0)
		snprintf(watts, sizeof(watts), "  %.1f W", power);
	if (!isnan(half) && seconds > 1)
		snprintf(watts, sizeof(watts), "  %.1f W +- %.2f W", power, half);
	progress_bar(bar, 22, seconds / most);
	progress_show("%s %2.0f s of at most %.0f s%s  (%u of %u GPUs not finished)", bar,
		      seconds, most, watts, running, all->count);
	return running;
}

static void measure_all(struct cli *c, struct jobs *all)
{
	bool show = progress_possible(c->quiet);

	stop_catch();
	for (unsigned i = 0; i < all->count; i++)
		start_job(c, &all->job[i]);
	while (draw_progress(all, show) > 0)
		clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + DRAW_NS);
	if (show)
		progress_clear();
	for (unsigned i = 0; i < all->count; i++) {
		if (all->job[i].started)
			pthread_join(all->job[i].thread, NULL);
		gw_meter_stop(all->job[i].meter);
	}
}

static void load_all(struct jobs *all, double ttl_s)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct job *j = &all->job[i];

		baseline_key(j->device, j->plan.kind, &j->b);
		if (*all->dir)
			j->have = j->kept = baseline_load(&j->b, all->dir, ttl_s,
							  clock_wall_ns(clock_real()),
							  j->message, sizeof(j->message)) == 0;
		else
			snprintf(j->message, sizeof(j->message),
				 "neither XDG_CACHE_HOME nor HOME is set to a folder");
	}
}

#define COLUMNS(X)                             \
	X(GPU, "GPU", 0, true, false)          \
	X(NAME, "NAME", 3, false, true)        \
	X(KIND, "KIND", 0, false, false)       \
	X(POWER, "POWER", 0, true, false)      \
	X(HALF, "95 %", 0, true, false)        \
	X(SECONDS, "DURATION", 4, true, false) \
	X(TEMPERATURE, "TEMP", 5, true, false) \
	X(LIMIT, "LIMIT", 6, true, false)      \
	X(AGE, "AGE", 2, true, false)          \
	X(NOTE, "NOTE", 1, false, TABLE_WRAP)

enum { COLUMNS(TABLE_SYMBOL) };
static const struct table_column columns[] = { COLUMNS(TABLE_COLUMN) TABLE_END };

static void set_figures(struct table *t, const struct baseline *b)
{
	double half = half_width(b);

	table_set(t, POWER, TERM_PLAIN, "%.2f W", b->power_w);
	if (!isnan(half))
		table_set(t, HALF, TERM_PLAIN, "%s%.2f W", term_plain("±"), half);
	table_set(t, SECONDS, TERM_PLAIN, "%.0f s", b->seconds);
	if (!isnan(b->temperature_c))
		table_set(t, TEMPERATURE, TERM_PLAIN, "%.0f %s", b->temperature_c,
			  term_plain("°C"));
	if (!isnan(b->limit_w))
		table_set(t, LIMIT, TERM_PLAIN, "%.0f W", b->limit_w);
	table_set(t, AGE, TERM_PLAIN, "%.0f min", fmax(0, age_s(b)) / 60);
}

static void print_table(const struct cli *c, const struct jobs *all)
{
	struct table t;

	cli_print_status(c);
	table_init(&t, columns);
	for (unsigned i = 0; i < all->count; i++) {
		const struct job *j = &all->job[i];

		if (!j->kept && !given(c)->show)
			/* print_missing() prints why there is no baseline. */
			continue;
		table_row(&t);
		table_set(&t, GPU, TERM_PLAIN, "%u", j->device->index);
		table_text(&t, NAME, TERM_PLAIN, gw_device_text(j->device, GW_T_NAME));
		table_set(&t, KIND, TERM_PLAIN, "%s", gw_baseline_kind_name(j->plan.kind));
		if (j->have)
			set_figures(&t, &j->b);
		table_text(&t, NOTE, TERM_PLAIN, j->message);
	}
	table_end(&t, term_table_width());
}

static void put_job(struct json *out, const struct job *j)
{
	const struct baseline *b = &j->b;
	char taken[CLOCK_RFC3339_SIZE];

	json_object(out, NULL);
	json_uint(out, "device_index", j->device->index);
	json_string(out, "device_uuid", gw_device_text(j->device, GW_T_UUID));
	json_string(out, "kind", gw_baseline_kind_name(j->plan.kind));
	json_bool(out, "kept", j->kept);
	json_string(out, "message", *j->message ? j->message : NULL);
	json_double(out, "power_watts", j->have ? b->power_w : NAN);
	json_double(out, "standard_error_watts", j->have ? b->u_w : NAN);
	json_double(out, "half_width_watts", j->have ? half_width(b) : NAN);
	json_double(out, "duration_seconds", j->have ? b->seconds : NAN);
	json_double(out, "temperature_celsius", j->have ? b->temperature_c : NAN);
	json_double(out, "power_limit_watts", j->have ? b->limit_w : NAN);
	if (j->have && b->persistence >= 0)
		json_bool(out, "persistence_mode", b->persistence);
	else
		json_null(out, "persistence_mode");
	if (j->have)
		clock_format_rfc3339(b->wall_ns, taken);
	json_string(out, "taken_utc", j->have ? taken : NULL);
	json_double(out, "age_seconds", j->have ? age_s(b) : NAN);
	render_codes(out, j->have ? b->codes : 0);
	json_object_end(out);
}

static int print_json(const struct cli *c, const struct jobs *all)
{
	struct cli_document doc;

	cli_document_begin(&doc, true);
	render_head(&doc.json, c->snap);
	json_array(&doc.json, "baselines");
	for (unsigned i = 0; i < all->count; i++)
		put_job(&doc.json, &all->job[i]);
	json_array_end(&doc.json);
	render_source(&doc.json, c->snap);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

/* Makes one job per GPU and requested kind of baseline.  Without --kind, these are all kinds if
 * --show is given, else only no-context. */
static int list_jobs(struct cli *c, struct jobs *all)
{
	const char *kind = given(c)->kind;
	const struct gw_device *d;
	size_t most = GW_BASELINE_KINDS * (size_t)gw_snapshot_device_count(c->snap);

	all->job = calloc(most + 1, sizeof(*all->job));
	if (!all->job)
		return cli_no_memory();
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		for (unsigned k = 0; k < GW_BASELINE_KINDS; k++) {
			struct job *j = &all->job[all->count];

			if (kind ? strcmp(kind, gw_baseline_kind_name(k)) != 0
				 : !given(c)->show && k != GW_BASELINE_NO_CONTEXT)
				continue;
			j->device = d;
			j->plan.kind = (enum gw_baseline_kind)k;
			all->count++;
		}
	return EXIT_OK;
}

static void plan_jobs(const struct cli *c, struct jobs *all, int64_t own_pid)
{
	uint64_t ns = given(c)->time_ns;
	double most = ns ? (double)ns * 1e-9 : MOST_S;

	for (unsigned i = 0; i < all->count; i++) {
		struct job *j = &all->job[i];

		j->own_pid = own_pid;
		j->dir = all->dir;
		j->plan.max_s = most;
		j->plan.min_s = LEAST_S;
		j->plan.half_width_w = HALF_W;
		j->plan.progress = on_progress;
		j->plan.ctx = j;
		pthread_mutex_init(&j->lock, NULL);
	}
}

static int print_missing(const struct jobs *all)
{
	bool bad = false;

	for (unsigned i = 0; i < all->count; i++) {
		const struct job *j = &all->job[i];

		if (j->kept)
			continue;
		bad = true;
		cli_error("no %s baseline of GPU %u was stored: %s",
			  gw_baseline_kind_name(j->plan.kind), j->device->index, j->message);
	}
	return !bad ? EXIT_OK : stop_signal() ? 128 + stop_signal() : EXIT_FAILED;
}

static int measure_or_show(struct cli *c, struct jobs *all, int64_t own_pid)
{
	double ttl_s = given(c)->ttl_ns ? (double)given(c)->ttl_ns * 1e-9 : 3600;
	int code, failed = EXIT_OK;

	if (given(c)->show) {
		load_all(all, ttl_s);
	} else {
		plan_jobs(c, all, own_pid);
		measure_all(c, all);
	}
	code = c->json ? print_json(c, all) : (print_table(c, all), EXIT_OK);
	if (!given(c)->show)
		failed = print_missing(all);
	return code != EXIT_OK ? code : failed;
}

static int clear_baselines(const struct cli *c, const char *dir)
{
	const struct gw_device *d;
	unsigned gone = 0;

	if (c->gpu.count == 0)
		gone = baseline_clear(NULL, dir);
	for (unsigned at = 0; c->gpu.count && (d = cli_next_device(c, &at));)
		if (gw_device_text(d, GW_T_UUID))
			gone += baseline_clear(gw_device_text(d, GW_T_UUID), dir);
	if (!c->quiet)
		printf("%u baseline%s deleted\n", gone, gone == 1 ? "" : "s");
	return EXIT_OK;
}

static int print_no_gpu(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);

	cli_error("%s", *s->message ? s->message : "there is no GPU to measure");
	if (!c->json)
		cli_print_try(c);
	return EXIT_NO_GPU;
}

static int check_options(const struct given *g, int64_t *ret_pid)
{
	char *end;

	*ret_pid = getpid();
	if (g->show && g->clear)
		return cli_usage("--show and --clear exclude each other: give one of them");
	if (g->time_ns && (g->time_ns < 2 * NS_PER_S || g->time_ns > LONGEST_S * NS_PER_S))
		return cli_usage("--time must be from 2s to %um", LONGEST_S / 60);
	if (g->pid) {
		*ret_pid = strtoll(g->pid, &end, 10);
		if (*end || *ret_pid <= 0)
			return cli_usage("--pid takes a process id, not '%s'", g->pid);
	}
	return EXIT_OK;
}

static int baseline_run(struct cli *c)
{
	struct jobs all = { 0 };
	int64_t own_pid;
	int code = check_options(given(c), &own_pid);

	if (code == EXIT_OK)
		code = cli_open(c, GW_TIERS_COMMON);
	if (code != EXIT_OK)
		return code;
	if (baseline_directory(all.dir, sizeof(all.dir)) != 0)
		all.dir[0] = '\0';
	if (given(c)->clear)
		return clear_baselines(c, all.dir);
	code = list_jobs(c, &all);
	if (code == EXIT_OK)
		code = all.count ? measure_or_show(c, &all, own_pid) : print_no_gpu(c);
	free(all.job);
	return code;
}

static const char *const kinds[] = { "no-context", "context-idle", "hot-idle", NULL };

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_CHOICE_ROW(
		0, "kind", AT(kind), "KIND",
		"no-context (the default: no program uses the GPU), context-idle (one program "
		"has a context and is idle) or hot-idle (right after a load)",
		kinds),
	OPTION_ROW(DURATION, 0, "time", AT(time_ns), "TIME",
		   "measure for at most TIME (default: 30s); ends earlier if the mean is known "
		   "within 1 W, but not before 10 s"),
	OPTION_ROW(TEXT, 0, "pid", AT(pid), "PID",
		   "let this process and its children use the GPU; has no effect with --kind "
		   "no-context"),
	OPTION_ROW(FLAG, 0, "show", AT(show), NULL,
		   "show the stored baselines that can be used now"),
	OPTION_ROW(FLAG, 0, "clear", AT(clear), NULL,
		   "delete the stored baselines of the selected GPUs (default: of all GPUs)"),
	OPTION_ROW(
		DURATION, 0, "ttl", AT(ttl_ns), "TIME",
		"with --show: show only baselines that are not older than TIME (default: 1h)"),
	OPTION_END,
};

const struct command command_baseline = {
	.name = "baseline",
	.summary = "measure and store the idle power of GPUs",
	.description = "Measures the idle power of the selected GPUs and stores it for an "
		       "hour, so that the energy of a program above idle is known. A GPU that "
		       "is not idle gets no baseline: the command prints which process used it "
		       "and exits with status 1.",
	.examples = "  gpuward baseline\n"
		    "  gpuward baseline --kind context-idle --pid $PID\n"
		    "  gpuward baseline --show --json\n",
	.options = options,
	.options_size = sizeof(struct given),
	.run = baseline_run,
};
