/* log: one line for each GPU and tick, to a file or a pipe.
 *
 * The sampler's thread puts each tick into a ring of its GPU and goes on; this thread makes lines
 * of them and writes.  A reader that is too slow costs lines, which are counted, and never a
 * sample. */
#include "cli.h"
#include "logline.h"
#include "progress.h"
#include "stop.h"

#include "base/clock.h"
#include "base/suggest.h"
#include "measure/meter.h"
#include "measure/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define INTERVAL_NS  (100 * NS_PER_MS)
#define INTERVAL_MIN NS_PER_MS
#define LINE_BYTES   4096 /* not above PIPE_BUF: a pipe that is ready takes it whole */
#define ROWS         4096 /* of a ring; a power of two */
#define DRAW_NS      (200 * NS_PER_MS)
#define LATE_NS      (500 * NS_PER_MS) /* for the last tick                       */
#define GRACE_NS     (2 * NS_PER_S)    /* for a slow reader, when all was sampled */
#define COVER_NS     (5 * NS_PER_S)    /* for the sample that covers the end      */
#define HOLD_NS      (100 * NS_PER_MS) /* a line waits for those of its tick      */
#define TELL_EVERY   100
#define NICE         (-5)

struct given {
	uint64_t interval_ns, duration_ns;
	const char *output, *format;
	struct option_list fields;
	bool force, append;
};

struct row {
	uint64_t t_ns, wall_ns, missed;
	unsigned long tick; /* its number, from 1 */
	double figure[FIGURES];
};

/* One GPU.  The sampler's thread writes what is not atomic below `ring`; it is read when that
 * thread has ended. */
struct source {
	struct log_run *run;
	const struct gw_device *device;
	atomic_uint head, tail; /* rows written and read, ever */
	atomic_ulong collected, slots, dropped;
	unsigned long written; /* tick of the last line, on the writing thread */
	struct row ring[ROWS];
	bool begun;
	uint64_t last_ns;
	uint64_t gone; /* ticks without a line since the last one */
	double longest_s;
	struct moments power;
	struct histogram spread;
	struct gw_energy energy;
};

enum ending { RUNNING, DONE, CLOSED, FAILED };

struct log_run {
	struct cli *cli;
	struct logline_format format;
	uint64_t interval_ns, duration_ns;
	unsigned long limit; /* ticks of each GPU; 0: until it is stopped */
	int fd;
	bool own_fd;
	const char *name;
	int wake; /* eventfd: there are rows */
	uint64_t begin_ns, begin_wall_ns;
	struct gw_meter *meter;
	struct gw_window *window;
	unsigned count;
	struct source *source;
	atomic_bool closing;
	enum ending ending;
	int error; /* errno of what failed */
	bool show, draws, told_slow;
	unsigned long told;
	uint64_t drawn_ns;
};

static struct given *given(const struct cli *c)
{
	return c->own;
}

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* ---- on the sampler's thread ---- */

/* Above others where that is allowed: a tick is a few hundred microseconds and cannot wait. */
static void hurry(void)
{
	(void)!setpriority(PRIO_PROCESS, 0, NICE);
}

static void count(struct source *s, const struct event *e)
{
	double w = e->u.tick.figure[FIGURE_POWER];
	double dt = s->begun ? (double)(e->t_ns - s->last_ns) * 1e-9
			     : (double)s->run->interval_ns * 1e-9;

	if (s->begun)
		s->longest_s = fmax(s->longest_s, dt);
	if (!isnan(w)) {
		moments_add_weighted(&s->power, w, dt);
		histogram_add(&s->spread, w, dt);
	}
	s->begun = true;
	s->last_ns = e->t_ns;
}

/* False: there is no place for it. */
static bool push(struct source *s, const struct event *e, unsigned long tick)
{
	unsigned head = atomic_load_explicit(&s->head, memory_order_relaxed);
	struct row *row = &s->ring[head % ROWS];

	if (head - atomic_load_explicit(&s->tail, memory_order_acquire) == ROWS)
		return false;
	row->t_ns = e->t_ns;
	row->wall_ns = clock_wall_ns(clock_real()) - (now_ns() - e->t_ns);
	row->missed = s->gone;
	row->tick = tick;
	memcpy(row->figure, e->u.tick.figure, sizeof(row->figure));
	atomic_store_explicit(&s->head, head + 1, memory_order_release);
	return true;
}

static void on_event(void *arg, unsigned device, const struct event *e)
{
	struct log_run *run = arg;
	struct source *s = &run->source[device];
	unsigned long tick;

	if (e->type != EVENT_TICK || atomic_load(&run->closing) ||
	    (run->limit && atomic_load(&s->slots) >= run->limit))
		return;
	if (!s->begun)
		hurry();
	count(s, e);
	tick = atomic_load(&s->slots) + 1 + e->u.tick.missed;
	s->gone += e->u.tick.missed;
	if (push(s, e, tick)) {
		s->gone = 0;
	} else {
		atomic_fetch_add(&s->dropped, 1);
		s->gone++;
	}
	atomic_fetch_add(&s->collected, 1);
	/* Last: who sees that all are taken writes what is there and ends. */
	atomic_store(&s->slots, tick);
	eventfd_write(run->wake, 1);
}

/* ---- writing ---- */

/* Until then a slow reader is waited for. */
static uint64_t patience_ns(const struct log_run *run)
{
	if (stop_asked() || atomic_load(&run->closing))
		return now_ns() + GRACE_NS;
	return run->limit ? run->begin_ns + run->duration_ns + LATE_NS + GRACE_NS : UINT64_MAX;
}

static void tell_slow(struct log_run *run)
{
	unsigned long dropped = 0;

	for (unsigned i = 0; i < run->count; i++)
		dropped += atomic_load(&run->source[i].dropped);
	if (dropped && !run->told_slow && !run->cli->quiet) {
		cli_error("whoever reads the log is too slow: lines are left out and counted");
		run->told_slow = true;
	}
}

/* True: it takes a line now. */
static bool writable(struct log_run *run)
{
	struct pollfd p = { .fd = run->fd, .events = POLLOUT };
	uint64_t until = patience_ns(run);

	for (;;) {
		int n = poll(&p, 1, 100);

		if (n > 0)
			return true; /* or an error, which write() will name */
		if (n < 0 && errno != EINTR)
			return true;
		if (stop_asked() && until == UINT64_MAX)
			until = now_ns() + GRACE_NS;
		if (now_ns() >= until)
			return false;
		tell_slow(run);
	}
}

static void write_text(struct log_run *run, const char *p, size_t n)
{
	while (n > 0 && run->ending == RUNNING) {
		ssize_t done;

		if (!writable(run)) {
			run->ending = DONE;
			return;
		}
		done = write(run->fd, p, n);
		if (done < 0 && errno == EPIPE) {
			run->ending = CLOSED;
		} else if (done < 0 && errno != EINTR && errno != EAGAIN) {
			run->error = errno;
			run->ending = FAILED;
		} else if (done > 0) {
			p += done;
			n -= (size_t)done;
		}
	}
}

static void write_row(struct log_run *run, const struct source *s, const struct row *row)
{
	char text[LINE_BYTES];
	struct logline l = { .wall_ns = row->wall_ns,
			     .elapsed_s = (double)((int64_t)(row->t_ns - run->begin_ns)) * 1e-9,
			     .index = s->device->index,
			     .uuid = gw_device_text(s->device, GW_T_UUID),
			     .provenance = gw_provenance_name(s->device->provenance),
			     .missed = row->missed };
	struct buf b;

	memcpy(l.figure, row->figure, sizeof(l.figure));
	buf_init_fixed(&b, text, sizeof(text));
	logline_write(&run->format, &l, &b);
	write_text(run, b.p, b.len);
}

/* The next row of a source, NULL: none is there. */
static const struct row *peek(const struct source *s)
{
	unsigned tail = atomic_load_explicit(&s->tail, memory_order_relaxed);

	return tail == atomic_load_explicit(&s->head, memory_order_acquire)
		       ? NULL
		       : &s->ring[tail % ROWS];
}

static void write_one(struct log_run *run, struct source *s)
{
	unsigned tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
	struct row row = s->ring[tail % ROWS];

	atomic_store_explicit(&s->tail, tail + 1, memory_order_release);
	s->written = row.tick;
	write_row(run, s, &row);
	if (run->ending == DONE) /* nobody took it in time */
		atomic_fetch_add(&s->dropped, 1);
}

/* May a GPU that had no row, and came as far as this tick, still bring one that belongs before it? */
static bool awaited(const struct log_run *run, const struct row *row, unsigned long behind)
{
	return behind < row->tick && !atomic_load(&run->closing) &&
	       now_ns() - row->t_ns < HOLD_NS;
}

/* The source whose row comes next: the earliest tick, in it the first GPU.  NULL: none, or it
 * waits for others.  Each ring is looked at once: a row that comes meanwhile is awaited, and not
 * overtaken because it is there when one asks again. */
static struct source *next_source(struct log_run *run)
{
	const struct row *first = NULL;
	struct source *next = NULL;
	unsigned long behind = ULONG_MAX;

	for (unsigned i = 0; i < run->count; i++) {
		struct source *s = &run->source[i];
		const struct row *row = peek(s);

		if (!row && s->written < behind)
			behind = s->written;
		if (row && (!first || row->tick < first->tick)) {
			first = row;
			next = s;
		}
	}
	return first && !awaited(run, first, behind) ? next : NULL;
}

/* Lines of one tick stand together, in the order of the GPUs. */
static void write_rows(struct log_run *run)
{
	struct source *s;

	while (run->ending == RUNNING && (s = next_source(run)))
		write_one(run, s);
}

/* ---- how far it is ---- */

static unsigned long most_collected(const struct log_run *run, unsigned *ret_which)
{
	unsigned long most = 0;

	*ret_which = 0;
	for (unsigned i = 0; i < run->count; i++)
		if (atomic_load(&run->source[i].collected) > most) {
			most = atomic_load(&run->source[i].collected);
			*ret_which = i;
		}
	return most;
}

static void status_text(const struct log_run *run, char *out, size_t size)
{
	unsigned which;
	unsigned long n = most_collected(run, &which);
	struct meter_progress p;
	char of[32] = "", watts[32] = "";

	meter_progress(run->meter, which, &p);
	if (run->limit)
		snprintf(of, sizeof(of), " of %lu", run->limit);
	if (!isnan(p.power_w))
		snprintf(watts, sizeof(watts), "  %.1f W", p.power_w);
	snprintf(out, size, "%lu%s samples%s  %.1f s", n, of, watts,
		 (double)(now_ns() - run->begin_ns) * 1e-9);
}

static void draw(struct log_run *run)
{
	unsigned which;
	unsigned long n = most_collected(run, &which);
	char text[160], bar[64] = "";

	if (!run->show ||
	    (run->draws ? now_ns() < run->drawn_ns + DRAW_NS : n < run->told + TELL_EVERY))
		return;
	status_text(run, text, sizeof(text));
	run->drawn_ns = now_ns();
	run->told = n - n % TELL_EVERY;
	if (!run->draws) {
		cli_error("%s", text);
		return;
	}
	if (run->limit) {
		progress_bar(bar, 32, (double)n / (double)run->limit);
		strcat(bar, " ");
	}
	progress_show("%s%s", bar, text);
}

/* ---- the run ---- */

static bool all_taken(const struct log_run *run)
{
	for (unsigned i = 0; i < run->count; i++)
		if (atomic_load(&run->source[i].slots) < run->limit)
			return false;
	return true;
}

static bool time_is_up(const struct log_run *run)
{
	uint64_t end = run->begin_ns + run->duration_ns, now = now_ns();

	if (stop_asked())
		return true;
	return run->limit && now >= end &&
	       (all_taken(run) || now >= end + run->interval_ns + LATE_NS);
}

static int wait_ms(const struct log_run *run)
{
	uint64_t now = now_ns(), until = now + DRAW_NS, end = run->begin_ns + run->duration_ns;

	if (run->limit && end > now && end < until)
		until = end;
	return (int)((until - now) / NS_PER_MS) + 1;
}

static void follow(struct log_run *run)
{
	struct pollfd p = { .fd = run->wake, .events = POLLIN };
	eventfd_t rows;

	while (run->ending == RUNNING && !time_is_up(run)) {
		if (poll(&p, 1, wait_ms(run)) > 0)
			eventfd_read(run->wake, &rows);
		write_rows(run);
		tell_slow(run);
		draw(run);
	}
	atomic_store(&run->closing, true);
	write_rows(run);
}

static int start(struct log_run *run)
{
	struct cli *c = run->cli;
	const char *gpus[OPTION_LIST_MAX + 1] = { NULL };
	struct gw_meter_options o = { .size = sizeof(o),
				      .interval_ns = run->interval_ns,
				      .gpus = c->gpu.count ? gpus : NULL };
	struct meter_config config = {
		.options = &o, .on_event = on_event, .arg = run, .always = true
	};
	int err;

	for (unsigned i = 0; i < c->gpu.count; i++)
		gpus[i] = c->gpu.item[i];
	run->begin_ns = now_ns();
	err = meter_start(c->ctx, &config, &run->meter);
	if (!err)
		err = gw_window_open(run->meter, "log", 0, &run->window);
	if (err)
		cli_error("cannot start: %s", gw_strerror(err));
	return err ? EXIT_FAILED : EXIT_OK;
}

/* The window around the log, then the threads, which nobody needs any more. */
static void finish(struct log_run *run)
{
	uint64_t end = run->begin_ns + run->duration_ns;

	if (run->window) {
		gw_window_close(run->window, run->limit && end < now_ns() ? end : 0);
		gw_window_wait(run->window, run->ending == CLOSED ? 0 : COVER_NS);
		for (unsigned i = 0; i < run->count; i++)
			run->source[i].energy = *gw_window_energy(run->window, i);
		gw_window_free(run->window);
	}
	gw_meter_stop(run->meter);
	write_rows(
		run); /* one that was being put there when it closed is counted: it is written, too */
}

/* ---- what came of it ---- */

static void print_power(const struct source *s)
{
	const struct moments *m = &s->power;

	if (m->count == 0) {
		fputs("  power     not told\n", stderr);
		return;
	}
	fprintf(stderr,
		"  power     mean %.2f W, s.d. %.2f W, %.2f to %.2f W, p50 %.1f W, p95 %.1f "
		"W\n",
		moments_mean(m), sqrt(moments_variance_in_time(m)), m->min, m->max,
		histogram_percentile(&s->spread, 0.5), histogram_percentile(&s->spread, 0.95));
}

static void print_energy(const struct gw_energy *e)
{
	bool first = true;

	if (isnan(e->joules.best))
		fputs("  energy    not known", stderr);
	else
		fprintf(stderr,
			"  energy    %.1f J (%.1f to %.1f J) in %.2f s, %.2f W, of the window "
			"by %s",
			e->joules.best, e->joules.low, e->joules.high, e->seconds,
			e->joules.best / e->seconds, gw_rung_name(e->rung));
	for (unsigned i = 0; i < GW_CODES; i++)
		if (e->codes & UINT64_C(1) << i) {
			fprintf(stderr, "%s %s", first ? ";" : ",", gw_code_info(i)->key);
			first = false;
		}
	fputc('\n', stderr);
}

static void print_throttle(const struct gw_energy *e)
{
	bool any = false, known = false;

	fputs("  throttle ", stderr);
	for (unsigned i = 0; i < GW_THROTTLES; i++) {
		known |= !isnan(e->throttle_seconds[i]);
		if (!(e->throttle_seconds[i] > 0))
			continue;
		fprintf(stderr, "%s %s %.2f s (%.1f %%)", any ? "," : "", gw_throttle_name(i),
			e->throttle_seconds[i], 100 * e->throttle_seconds[i] / e->seconds);
		any = true;
	}
	if (!any)
		fputs(known ? " none" : " not known", stderr);
	if (!isnan(e->temperature_max))
		fprintf(stderr, "; highest temperature %.0f %s", e->temperature_max,
			term_plain("°C"));
	fputc('\n', stderr);
}

/* Ticks that there should have been. */
static unsigned long expected(const struct log_run *run, const struct source *s)
{
	uint64_t length = s->energy.end_ns - run->begin_ns;
	unsigned long n = (unsigned long)(length / run->interval_ns);
	unsigned long seen = atomic_load(&s->slots);

	if (run->limit && length >= run->duration_ns)
		return run->limit;
	return n > seen ? n : seen; /* it was stopped */
}

/* Between two ticks, or from the last one to the end. */
static double largest_gap_s(const struct source *s)
{
	uint64_t end = s->energy.end_ns;

	return end > s->last_ns ? fmax(s->longest_s, (double)(end - s->last_ns) * 1e-9)
				: s->longest_s;
}

static void print_source(const struct log_run *run, const struct source *s)
{
	unsigned long n = expected(run, s), got = atomic_load(&s->collected);
	unsigned long dropped = atomic_load(&s->dropped);

	fprintf(stderr, "GPU %u: %lu of %lu samples, %lu missed", s->device->index, got, n,
		n > got ? n - got : 0);
	if (got > 1)
		fprintf(stderr, ", largest gap %.3f s", largest_gap_s(s));
	if (dropped)
		fprintf(stderr, "; %lu lines left out: the reader was too slow", dropped);
	fputc('\n', stderr);
	print_power(s);
	print_energy(&s->energy);
	print_throttle(&s->energy);
}

/* Whoever reads it and goes has seen enough: no word about that. */
static int say_ending(const struct log_run *run)
{
	if (run->ending == FAILED)
		cli_error("cannot write %s: %s", run->name, strerror(run->error));
	return run->ending == FAILED ? EXIT_FAILED : EXIT_OK;
}

static bool was_lost(const struct source *s)
{
	uint64_t lost = UINT64_C(1) << GW_CODE_GPU_LOST | UINT64_C(1) << GW_CODE_TRUNCATED;

	return s->energy.codes & lost || atomic_load(&s->collected) == 0;
}

static int conclude(const struct log_run *run)
{
	bool lost = false;
	int code;

	if (run->draws)
		progress_clear();
	code = say_ending(run);
	if (run->ending == CLOSED)
		return code;
	if (gw_snapshot_status(run->cli->snap)->simulated && !run->cli->quiet)
		fprintf(stderr, "%s SIMULATED %s no figure of these GPUs is real\n",
			term_on(TERM_MARK), term_off());
	for (unsigned i = 0; i < run->count; i++) {
		const struct source *s = &run->source[i];

		if (!run->cli->quiet)
			print_source(run, s);
		lost |= was_lost(s);
	}
	if (!run->cli->quiet)
		fputs("power is what the lines say, as the driver tells it: often the mean of "
		      "a "
		      "second; energy is of all samples of the window\n",
		      stderr);
	return code == EXIT_OK && lost ? EXIT_PARTIAL : code;
}

/* ---- the command ---- */

static void unknown_field(const char *name)
{
	const char *known[LOGLINE_FIELDS], *near;
	char list[512] = "";
	unsigned n = 0;

	for (; n < LOGLINE_FIELDS && logline_field_name(n); n++) {
		known[n] = logline_field_name(n);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			 n ? ", " : "", known[n]);
	}
	near = suggest(name, known, n, sizeof(known[0]));
	if (near)
		cli_error("--fields: no field '%s' (did you mean '%s'?)", name, near);
	else
		cli_error("--fields: no field '%s'; there are %s", name, list);
}

static int choose_fields(const struct cli *c, struct logline_format *f)
{
	const struct given *g = given(c);

	logline_defaults(f, c->json || (g->format && strcmp(g->format, "jsonl") == 0));
	if (g->fields.count)
		f->count = 0;
	for (unsigned i = 0; i < g->fields.count; i++) {
		int err = logline_add_field(f, g->fields.item[i]);

		if (err == -GW_E_NOENT)
			unknown_field(g->fields.item[i]);
		else if (err)
			cli_error("--fields: '%s' is named twice", g->fields.item[i]);
		if (err)
			return EXIT_USAGE;
	}
	return EXIT_OK;
}

static int check(const struct cli *c)
{
	const struct given *g = given(c);
	uint64_t every = g->interval_ns ? g->interval_ns : INTERVAL_NS;

	if (every < INTERVAL_MIN)
		cli_error("--interval is 1ms or more");
	else if (g->duration_ns && g->duration_ns < every)
		cli_error("--duration is shorter than the interval");
	else if (g->force && g->append)
		cli_error("--force and --append exclude each other: give one of them");
	else if (c->json && g->format && strcmp(g->format, "csv") == 0)
		cli_error("--json and --format csv exclude each other: give one of them");
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

/* 1: the file has this heading, 0: it is empty, -1: it is something else. */
static int has_heading(int fd, const struct buf *heading)
{
	char text[LINE_BYTES];
	ssize_t n = pread(fd, text, heading->len, 0);

	if (n == 0)
		return 0;
	return n == (ssize_t)heading->len && memcmp(text, heading->p, heading->len) == 0 ? 1
											 : -1;
}

static int open_output(struct log_run *run)
{
	const struct given *g = given(run->cli);
	int how = g->append ? O_APPEND : g->force ? O_TRUNC : O_EXCL;

	run->fd = STDOUT_FILENO;
	run->name = "the output";
	if (!g->output || strcmp(g->output, "-") == 0)
		return EXIT_OK;
	run->name = g->output;
	run->fd = open(g->output, (g->append ? O_RDWR : O_WRONLY) | O_CREAT | O_CLOEXEC | how,
		       0666);
	run->own_fd = run->fd >= 0;
	if (run->fd >= 0)
		return EXIT_OK;
	if (errno == EEXIST)
		cli_error("%s is there already; --append adds to it, --force replaces it",
			  g->output);
	else
		cli_error("cannot open %s: %s", g->output, strerror(errno));
	return EXIT_FAILED;
}

static int write_heading(struct log_run *run)
{
	char text[LINE_BYTES];
	struct buf b;
	int there = 0;

	buf_init_fixed(&b, text, sizeof(text));
	logline_heading(&run->format, &b);
	if (given(run->cli)->append && run->own_fd && b.len)
		there = has_heading(run->fd, &b);
	if (there < 0) {
		cli_error("%s has other columns: name the same --fields, or another file",
			  run->name);
		return EXIT_FAILED;
	}
	if (there == 0)
		write_text(run, b.p, b.len);
	return EXIT_OK;
}

/* One source for each GPU that the meter will have, in its order. */
static int make_sources(struct log_run *run)
{
	struct cli *c = run->cli;
	unsigned n = gw_snapshot_device_count(c->snap);

	run->source = calloc(n + 1, sizeof(*run->source));
	if (!run->source) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return EXIT_FAILED;
	}
	for (unsigned i = 0; i < n; i++) {
		struct source *s = &run->source[run->count];

		if (!render_shows(&c->filter, i))
			continue;
		s->run = run;
		s->device = gw_snapshot_device(c->snap, i);
		moments_init(&s->power);
		histogram_init(&s->spread);
		run->count++;
	}
	if (run->count == 0) {
		const char *why = gw_snapshot_status(c->snap)->message;

		cli_error("no GPU to log%s%s", *why ? ": " : "", why);
		return EXIT_NO_GPU;
	}
	return EXIT_OK;
}

static void plan(struct log_run *run)
{
	const struct given *g = given(run->cli);

	run->interval_ns = g->interval_ns ? g->interval_ns : INTERVAL_NS;
	run->duration_ns = g->duration_ns;
	run->limit =
		(unsigned long)((g->duration_ns + run->interval_ns / 2) / run->interval_ns);
	run->draws =
		progress_possible(run->cli->quiet) && (run->own_fd || !isatty(STDOUT_FILENO));
	run->show = run->draws || (!run->cli->quiet && !isatty(STDERR_FILENO));
}

static int run_log(struct log_run *run)
{
	int code = open_output(run);

	if (code != EXIT_OK)
		return code;
	plan(run);
	stop_catch();
	code = write_heading(run);
	if (code != EXIT_OK || run->ending != RUNNING)
		return code != EXIT_OK ? code : say_ending(run);
	code = start(run);
	if (code == EXIT_OK)
		follow(run);
	finish(run);
	return code == EXIT_OK ? conclude(run) : code;
}

static int close_output(const struct log_run *run, int code)
{
	if (!run->own_fd || close(run->fd) == 0)
		return code;
	cli_error("cannot write %s: %s", run->name, strerror(errno));
	return EXIT_FAILED;
}

/* A thread that hangs in the driver may come back and find its listener: what it would touch is
 * then left behind, and the program ends without asking the driver again. */
static void let_go(struct log_run *r)
{
	struct cli *c = r->cli;

	if (r->meter && gw_snapshot_take(c->snap, GW_TIER_FAST) == 0 && cli_stalled(c))
		return;
	free(r->source);
	free(r);
}

static int run_in(struct log_run *r)
{
	struct cli *c = r->cli;
	int code = choose_fields(c, &r->format);

	if (code == EXIT_OK)
		code = cli_open(c, GW_TIERS_COMMON);
	if (code == EXIT_OK)
		code = make_sources(r);
	if (code != EXIT_OK)
		return code;
	r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake < 0) {
		cli_error("cannot start: %s", strerror(errno));
		return EXIT_FAILED;
	}
	return close_output(r, run_log(r));
}

static int run(struct cli *c)
{
	struct log_run *r;
	int code = check(c);

	if (code != EXIT_OK)
		return code;
	r = calloc(1, sizeof(*r));
	if (!r) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return EXIT_FAILED;
	}
	r->cli = c;
	r->fd = r->wake = -1;
	code = run_in(r);
	if (r->wake >= 0)
		close(r->wake);
	let_go(r);
	return code;
}

static const char *const formats[] = { "csv", "jsonl", NULL };

static const struct option options[] = {
	{ "interval", 'i', OPTION_DURATION, offsetof(struct given, interval_ns), "TIME",
	  "a line every TIME (default: 100ms, at least 1ms)", NULL, NULL },
	{ "duration", 'd', OPTION_DURATION, offsetof(struct given, duration_ns), "TIME",
	  "end after this long (default: when it is stopped)", NULL, NULL },
	{ "output", 'o', OPTION_TEXT, offsetof(struct given, output), "FILE",
	  "write to FILE instead of standard output; one that is there is left alone", NULL,
	  NULL },
	{ "force", 0, OPTION_FLAG, offsetof(struct given, force), NULL,
	  "replace FILE where it is there", NULL, NULL },
	{ "append", 0, OPTION_FLAG, offsetof(struct given, append), NULL,
	  "add to FILE where it is there", NULL, NULL },
	{ "format", 0, OPTION_CHOICE, offsetof(struct given, format), "FORMAT",
	  "csv (the default) or jsonl, one JSON object a line", formats, NULL },
	{ "fields", 0, OPTION_LIST, offsetof(struct given, fields), "NAMES",
	  "these fields, in this order; a wrong name lists them", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct command command_log = {
	.name = "log",
	.summary = "power and other figures as lines, one each tick",
	.description =
		"Writes one line for each GPU and tick, on absolute deadlines, until it is "
		"stopped or the time is over, and then says on standard error how complete the "
		"log is, what the power was and what energy it took. What is not known is "
		"empty "
		"in CSV and null in JSON.",
	.examples = "  gpuward log -d 80s -o power.csv\n"
		    "  gpuward log -i 1s --format jsonl | jq .power_watts\n"
		    "  gpuward log --gpu 0 --fields elapsed_seconds,power_watts\n",
	.options = options,
	.options_size = sizeof(struct given),
	.lasts = true,
	.run = run,
};
