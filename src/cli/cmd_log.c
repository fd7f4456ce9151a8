/* log: writes one line per GPU and tick to a file or a pipe.
 *
 * The sampler's thread puts each tick into the ring of its GPU and does not wait.  The main
 * thread writes the lines.  If the reader of a pipe is too slow, lines are dropped and counted,
 * but no sample is lost. */
#include "cli.h"
#include "log_text.h"
#include "output.h"
#include "term.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem_trim.h"
#include "base/text.h"
#include "measure/meter.h"
#include "measure/stat.h"
#include "serve/render_result.h"

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
/* Longest line. It is at most PIPE_BUF, so that a pipe that is ready accepts the whole line. */
#define LINE_BYTES 4096
#define ROWS       4096 /* Number of rows in a ring. It must be a power of two. */
#define DRAW_NS    (200 * NS_PER_MS)
#define LATE_NS    (500 * NS_PER_MS) /* Longest wait for the last tick at the end. */
#define GRACE_NS   (2 * NS_PER_S)    /* Longest wait for a slow reader at the end. */
/* Longest wait for the sample that covers the end of the log. */
#define COVER_NS (5 * NS_PER_S)
/* A line waits at most this long for the lines of other GPUs with the same tick. */
#define HOLD_NS      (100 * NS_PER_MS)
#define REPORT_EVERY 100
#define NICE         (-5)

struct given {
	uint64_t interval_ns, duration_ns;
	const char *output, *format, *summary;
	struct option_list fields;
	struct cost_options cost;
	bool force, append;
};

/* One tick of one GPU, which becomes a line. */
struct row {
	uint64_t t_ns;      /* Time of the tick on the monotonic clock. */
	uint64_t wall_ns;   /* Time of the tick on the wall clock. */
	uint64_t missed;    /* Number of ticks directly before this tick that have no line. */
	unsigned long tick; /* Number of the tick, from 1. */
	double figure[FIGURES];
};

/* One GPU. The sampler's thread writes `ring` and the members after it. The main thread reads
 * the members after `ring` only after the sampler's thread has ended. */
struct source {
	struct log_run *run;
	/* `head` is the number of rows that were written to the ring, `tail` the number of rows
	 * that were read from it. */
	atomic_uint head, tail;
	/* Numbers of ticks: `collected` have a sample; `slots` are all ticks, including those
	 * that the sampler missed; `dropped` have a sample, but the reader of the output did
	 * not get their lines. */
	atomic_ulong collected, slots, dropped;
	unsigned long written; /* Tick of the last line. Only the main thread uses it. */
	struct row ring[ROWS];
	uint64_t last_ns; /* Time of the last tick. 0: there was no tick yet. */
	/* Number of ticks since the last row in the ring. These ticks have no line. */
	uint64_t gone;
	struct log_gpu gpu; /* finish_source() sets the numbers of ticks. */
};

enum ending {
	RUNNING,
	DONE,   /* The reader of the output was too slow at the end. */
	CLOSED, /* The reader closed the pipe. */
	FAILED, /* A write failed. log_run.error has the reason. */
};

struct log_run {
	struct cli *cli;
	struct log_format format;
	uint64_t interval_ns, duration_ns;
	unsigned long limit; /* Number of ticks per GPU. 0: no limit. */
	int fd;              /* Descriptor of the output. */
	bool own_fd;         /* fd is a file that this command opened, not standard output. */
	const char *name;    /* Name of the output, for error messages. */
	int wake;            /* An eventfd. It is readable if rows are ready. */
	uint64_t begin_ns, begin_wall_ns;
	struct gw_meter *meter;
	struct gw_window *window;
	unsigned count;
	struct source *source;
	atomic_bool closing;
	enum ending ending;
	int error;              /* errno of the first write that failed. */
	bool show;              /* Print the progress. */
	bool draws;             /* The progress is one line that is overwritten. */
	bool warned_slow;       /* gpuward already warned about a slow reader. */
	unsigned long reported; /* Number of ticks at the last progress line. */
	uint64_t drawn_ns;      /* Time of the last progress line. */
	double program_s; /* CPU time of nvidia-smi in seconds. NAN: nvidia-smi is not used. */
	struct energy_cost cost;
};

#define given(cli) ((struct given *)(cli)->own)

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

static void count_tick(struct source *s, const struct event *e)
{
	double w = e->u.tick.figure[FIGURE_POWER];
	double dt = s->last_ns ? (double)(e->t_ns - s->last_ns) * 1e-9
			       : (double)s->run->interval_ns * 1e-9;

	if (s->last_ns)
		s->gpu.longest_s = fmax(s->gpu.longest_s, dt);
	if (!isnan(w)) {
		moments_add_weighted(&s->gpu.power, w, dt);
		histogram_add(&s->gpu.spread, w, dt);
	}
	s->last_ns = e->t_ns;
}

/* Adds a row to the ring.  Returns false if the ring is full. */
static bool push_row(struct source *s, const struct event *e, unsigned long tick)
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
	/* Raise the priority of the sampler's thread if that is allowed.  A tick takes a few
	 * hundred microseconds and must not be late. */
	if (!s->last_ns)
		(void)!setpriority(PRIO_PROCESS, 0, NICE);
	count_tick(s, e);
	tick = atomic_load(&s->slots) + 1 + e->u.tick.missed;
	s->gone += e->u.tick.missed;
	if (push_row(s, e, tick)) {
		s->gone = 0;
	} else {
		atomic_fetch_add(&s->dropped, 1);
		s->gone++;
	}
	atomic_fetch_add(&s->collected, 1);
	/* This must come after push_row(): the main thread stops writing when all ticks are
	 * counted, so the last row must already be in the ring. */
	atomic_store(&s->slots, tick);
	eventfd_write(run->wake, 1);
}

/* Returns the time at which to stop waiting for a slow reader. */
static uint64_t write_deadline_ns(const struct log_run *run)
{
	if (stop_requested() || atomic_load(&run->closing))
		return now_ns() + GRACE_NS;
	return run->limit ? run->begin_ns + run->duration_ns + LATE_NS + GRACE_NS : UINT64_MAX;
}

static void warn_slow(struct log_run *run)
{
	unsigned long dropped = 0;

	for (unsigned i = 0; i < run->count; i++)
		dropped += atomic_load(&run->source[i].dropped);
	if (dropped && !run->warned_slow && !run->cli->quiet) {
		cli_error("the program that reads the log is too slow: some lines are dropped "
			  "and counted");
		run->warned_slow = true;
	}
}

/* Waits until the output accepts a line.  Returns false if write_deadline_ns() has passed. */
static bool wait_writable(struct log_run *run)
{
	struct pollfd p = { .fd = run->fd, .events = POLLOUT };
	uint64_t until = write_deadline_ns(run);

	for (;;) {
		int n = poll(&p, 1, 100);

		if (n > 0)
			/* The output is ready, or has an error that write() will return. */
			return true;
		if (n < 0 && errno != EINTR)
			return true;
		if (stop_requested() && until == UINT64_MAX)
			until = now_ns() + GRACE_NS;
		if (now_ns() >= until)
			return false;
		warn_slow(run);
	}
}

static void write_text(struct log_run *run, const char *p, size_t n)
{
	while (n > 0 && run->ending == RUNNING) {
		ssize_t done;

		if (!wait_writable(run)) {
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

static const struct row *peek_row(const struct source *s)
{
	unsigned tail = atomic_load_explicit(&s->tail, memory_order_relaxed);

	return tail == atomic_load_explicit(&s->head, memory_order_acquire)
		       ? NULL
		       : &s->ring[tail % ROWS];
}

static void write_one(struct log_run *run, struct source *s)
{
	unsigned tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
	const struct row *row = &s->ring[tail % ROWS];
	struct log_line l = { .wall_ns = row->wall_ns,
			      .elapsed_s =
				      (double)((int64_t)(row->t_ns - run->begin_ns)) * 1e-9,
			      .index = s->gpu.device->index,
			      .uuid = gw_device_text(s->gpu.device, GW_T_UUID),
			      .provenance = gw_provenance_name(s->gpu.device->provenance),
			      .missed = row->missed };
	char text[LINE_BYTES];
	struct buf b;

	memcpy(l.figure, row->figure, sizeof(l.figure));
	s->written = row->tick;
	/* After this line, the sampler's thread may overwrite the row. */
	atomic_store_explicit(&s->tail, tail + 1, memory_order_release);
	buf_init_fixed(&b, text, sizeof(text));
	log_line_write(&run->format, &l, &b);
	write_text(run, b.p, b.len);
	if (run->ending == DONE) /* The reader did not accept the line in time. */
		atomic_fetch_add(&s->dropped, 1);
}

/* Returns true if `row` must wait, because another GPU may still get an earlier row. The ring
 * of that GPU is empty now; `behind` is the number of its last written tick. */
static bool is_row_awaited(const struct log_run *run, const struct row *row,
			   unsigned long behind)
{
	return behind < row->tick && !atomic_load(&run->closing) &&
	       now_ns() - row->t_ns < HOLD_NS;
}

/* Returns the GPU with the row to write next: the row with the earliest tick, and among rows of
 * one tick the row of the first GPU. Returns NULL if there is no row, or if the row must wait
 * for other GPUs. Looks into each ring only once, so that a row that arrives in between cannot
 * come out of order. */
static struct source *next_source(struct log_run *run)
{
	const struct row *first = NULL;
	struct source *next = NULL;
	unsigned long behind = ULONG_MAX;

	for (unsigned i = 0; i < run->count; i++) {
		struct source *s = &run->source[i];
		const struct row *row = peek_row(s);

		if (!row && s->written < behind)
			behind = s->written;
		if (row && (!first || row->tick < first->tick)) {
			first = row;
			next = s;
		}
	}
	return first && !is_row_awaited(run, first, behind) ? next : NULL;
}

/* Writes the rows that need not wait. The lines of one tick are together, in the order of the
 * GPUs. */
static void write_rows(struct log_run *run)
{
	struct source *s;

	while (run->ending == RUNNING && (s = next_source(run)))
		write_one(run, s);
}

/* Shows the progress of the GPU with the most ticks. On a terminal, this is one line that is
 * overwritten. Elsewhere, it is one new line per REPORT_EVERY ticks. */
static void draw_progress(struct log_run *run)
{
	char bar[64] = "", of[32] = "", watts[32] = "", text[160];
	unsigned long n = 0;
	unsigned which = 0;
	struct meter_progress p;

	for (unsigned i = 0; i < run->count; i++)
		if (atomic_load(&run->source[i].collected) > n) {
			n = atomic_load(&run->source[i].collected);
			which = i;
		}
	if (!run->show || (run->draws ? now_ns() < run->drawn_ns + DRAW_NS
				      : n < run->reported + REPORT_EVERY))
		return;
	run->drawn_ns = now_ns();
	run->reported = n - n % REPORT_EVERY;
	meter_progress(run->meter, which, &p);
	if (run->limit)
		snprintf(of, sizeof(of), " of %lu", run->limit);
	if (!isnan(p.power_w))
		snprintf(watts, sizeof(watts), "  %.1f W", p.power_w);
	snprintf(text, sizeof(text), "%lu%s samples%s  %.1f s", n, of, watts,
		 (double)(now_ns() - run->begin_ns) * 1e-9);
	if (run->limit)
		progress_bar(bar, 32, (double)n / (double)run->limit);
	if (run->draws)
		progress_show("%s%s%s", bar, *bar ? " " : "", text);
	else
		cli_error("%s", text);
}

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

	if (stop_requested())
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

static void write_until_done(struct log_run *run)
{
	struct pollfd p = { .fd = run->wake, .events = POLLIN };
	eventfd_t rows;

	for (unsigned rounds = 0; run->ending == RUNNING && !time_is_up(run); rounds++) {
		if (poll(&p, 1, wait_ms(run)) > 0)
			eventfd_read(run->wake, &rows);
		write_rows(run);
		warn_slow(run);
		draw_progress(run);
		if (rounds == 1)
			mem_trim_code();
	}
	atomic_store(&run->closing, true);
	write_rows(run);
}

static int start_meter(struct log_run *run)
{
	struct cli *c = run->cli;
	struct gw_meter_options o = { .size = sizeof(o),
				      .interval_ns = run->interval_ns,
				      .gpus = c->gpu.count ? c->gpu.item : NULL };
	struct meter_config config = {
		.options = &o, .on_event = on_event, .arg = run, .always = true
	};
	int err;

	run->begin_ns = now_ns();
	run->begin_wall_ns = clock_wall_ns(clock_real());
	err = meter_start(c->ctx, &config, &run->meter);
	if (!err)
		err = gw_window_open(run->meter, "log", 0, &run->window);
	return err ? cli_fail("cannot start the measurement: %s", gw_strerror(err)) : EXIT_OK;
}

/* Returns the CPU time of nvidia-smi, or NAN if the values do not come from nvidia-smi.  The
 * kernel adds the CPU time of a child process only after the child has ended, so this function
 * first closes the drivers. */
static double program_seconds(const struct log_run *run)
{
	struct rusage used;

	if (!strstr(gw_snapshot_status(run->cli->snap)->backend, "nvidia-smi") ||
	    gw_ctx_release(run->cli->ctx) != 0 || getrusage(RUSAGE_CHILDREN, &used) != 0)
		return NAN;
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static unsigned long expected_ticks(const struct log_run *run, const struct source *s)
{
	uint64_t length = s->gpu.energy.end_ns - run->begin_ns;
	unsigned long n = (unsigned long)(length / run->interval_ns);
	unsigned long seen = atomic_load(&s->slots);

	if (run->limit && length >= run->duration_ns)
		return run->limit;
	return n > seen ? n : seen; /* There is no --duration, or the log was stopped early. */
}

/* Sets the numbers of the summary.  Call it after the sampler's threads have ended. */
static void finish_source(const struct log_run *run, struct source *s)
{
	struct log_gpu *g = &s->gpu;
	uint64_t end = g->energy.end_ns;

	g->collected = atomic_load(&s->collected);
	g->expected = expected_ticks(run, s);
	g->dropped = atomic_load(&s->dropped);
	if (end > s->last_ns)
		g->longest_s = fmax(g->longest_s, (double)(end - s->last_ns) * 1e-9);
	if (g->collected < 2)
		g->longest_s = NAN;
}

/* Closes the window around the log, then stops the sampling threads. */
static void finish_window(struct log_run *run)
{
	uint64_t end = run->begin_ns + run->duration_ns;

	if (run->window) {
		gw_window_close(run->window, run->limit && end < now_ns() ? end : 0);
		gw_window_wait(run->window, run->ending == CLOSED ? 0 : COVER_NS);
		for (unsigned i = 0; i < run->count; i++)
			run->source[i].gpu.energy = *gw_window_energy(run->window, i);
		gw_window_free(run->window);
	}
	gw_meter_stop(run->meter);
	write_rows(run); /* Write the rows that arrived while the window closed. */
	for (unsigned i = 0; i < run->count; i++)
		finish_source(run, &run->source[i]);
	run->program_s = program_seconds(run);
}

static void render_summary(struct json *j, const struct log_run *run)
{
	render_kept_head(j, "log-summary", NULL, run->begin_wall_ns,
			 gw_snapshot_status(run->cli->snap)->simulated);
	json_double(j, "interval_seconds", (double)run->interval_ns * 1e-9);
	json_double(j, "nvidia_smi_cpu_seconds", run->program_s);
	json_array(j, "devices");
	for (unsigned i = 0; i < run->count; i++)
		log_gpu_render(j, &run->source[i].gpu, &run->cost);
	json_array_end(j);
	json_object_end(j);
}

/* Writes the summary as JSON, as --summary requests.  print_results() prints the same
 * figures. */
static int write_summary(const struct log_run *run)
{
	const char *path = given(run->cli)->summary;
	char message[512];
	struct cli_document doc;
	int err;

	if (!path)
		return EXIT_OK;
	cli_document_begin(&doc, true);
	render_summary(&doc.json, run);
	err = json_end(&doc.json);
	if (!err && strcmp(path, "-") == 0) {
		err = output_write(path, &doc.buf, true);
		buf_done(&doc.buf);
		return err;
	}
	if (!err)
		err = file_replace(path, doc.buf.p, doc.buf.len, message, sizeof(message));
	else
		snprintf(message, sizeof(message), "out of memory");
	buf_done(&doc.buf);
	return err ? cli_fail("--summary: %s", message) : EXIT_OK;
}

/* Prints the error of a failed write. Prints nothing if the reader closed the pipe, because
 * that is not an error. */
static int print_write_error(const struct log_run *run)
{
	if (run->ending == FAILED)
		return cli_fail("cannot write %s: %s", run->name, strerror(run->error));
	return EXIT_OK;
}

static int print_results(const struct log_run *run)
{
	const uint64_t lost_codes =
		UINT64_C(1) << GW_CODE_GPU_LOST | UINT64_C(1) << GW_CODE_TRUNCATED;
	bool lost = false;
	int code;

	if (run->draws)
		progress_clear();
	code = print_write_error(run);
	if (run->ending == CLOSED)
		return code;
	if (gw_snapshot_status(run->cli->snap)->simulated && !run->cli->quiet)
		term_print_simulated(stderr);
	for (unsigned i = 0; i < run->count; i++) {
		const struct source *s = &run->source[i];

		if (!run->cli->quiet)
			log_gpu_print(&s->gpu, &run->cost);
		lost |= s->gpu.energy.codes & lost_codes || s->gpu.collected == 0;
	}
	if (!run->cli->quiet && !isnan(run->program_s))
		fprintf(stderr, "nvidia-smi used %.2f s of CPU time: %.1f %% of one core\n",
			run->program_s,
			100e9 * run->program_s / (double)(now_ns() - run->begin_ns));
	if (!run->cli->quiet)
		fputs("The power figures come from the lines of the log: the driver often "
		      "averages them over one second. The energy comes from all samples of the "
		      "window.\n",
		      stderr);
	return code == EXIT_OK && lost ? EXIT_PARTIAL : code;
}

static int check_options(const struct cli *c)
{
	const struct given *g = given(c);
	uint64_t every = g->interval_ns ? g->interval_ns : INTERVAL_NS;

	if (every < INTERVAL_MIN)
		cli_error("--interval must be at least 1ms");
	else if (g->duration_ns && g->duration_ns < every)
		cli_error("--duration is shorter than the interval");
	else if (g->summary && strcmp(g->summary, "-") == 0 &&
		 (!g->output || strcmp(g->output, "-") == 0))
		cli_error("the lines already go to standard output, so --summary - cannot "
			  "print there: write the lines to a file with -o");
	else if (g->force && g->append)
		cli_error("--force and --append exclude each other: give one of them");
	else if (c->json && g->format && strcmp(g->format, "csv") == 0)
		cli_error("--json and --format csv exclude each other: give one of them");
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

static bool begins_with(int fd, const char *start, size_t n)
{
	char text[LINE_BYTES];

	return pread(fd, text, n, 0) == (ssize_t)n && memcmp(text, start, n) == 0;
}

/* Returns true if the output is the regular file that --summary names. The summary would then
 * replace the log at the end. */
static bool is_summary(const struct log_run *run)
{
	const char *summary = given(run->cli)->summary;
	struct stat out, st;

	return summary && fstat(run->fd, &out) == 0 && S_ISREG(out.st_mode) &&
	       stat(summary, &st) == 0 && st.st_dev == out.st_dev && st.st_ino == out.st_ino;
}

/* Refuses an output that is also the file of --summary. Call it before anything is written.
 * Removes the output if `created` is true: this command has just created it. */
static int refuse_summary(const struct log_run *run, bool created)
{
	char real[PATH_MAX];

	if (!is_summary(run))
		return EXIT_OK;
	if (created && realpath(run->name, real))
		(void)unlink(real);
	return cli_usage("--summary: %s is also the output of the log, which the summary would "
			 "replace; give another file",
			 given(run->cli)->summary);
}

static int open_file(struct log_run *run)
{
	const struct given *g = given(run->cli);
	struct stat st;
	const bool there = stat(g->output, &st) == 0;
	int how = g->append ? O_RDWR | O_APPEND : g->force ? O_WRONLY : O_WRONLY | O_EXCL;

	/* A device, a pipe or a FIFO is not replaced. The log is written to it. */
	run->fd = there && !S_ISREG(st.st_mode)
			  ? file_open_special(g->output)
			  : open(g->output, how | O_CREAT | O_CLOEXEC, 0666);
	run->own_fd = run->fd >= 0;
	if (run->fd < 0 && errno == EEXIST)
		return cli_fail("%s already exists; --append adds to it, --force replaces it",
				g->output);
	if (run->fd < 0)
		return cli_fail("cannot open %s: %s", g->output, file_strerror(errno));
	if (refuse_summary(run, !there) != EXIT_OK)
		return EXIT_USAGE;
	/* Empty the file only now, so that a refused output keeps its content. */
	if (g->force && there && S_ISREG(st.st_mode) && ftruncate(run->fd, 0) != 0)
		return cli_fail("cannot write %s: %s", g->output, strerror(errno));
	return EXIT_OK;
}

static int open_output(struct log_run *run)
{
	const struct given *g = given(run->cli);

	run->fd = STDOUT_FILENO;
	run->name = "the output";
	if (!g->output || strcmp(g->output, "-") == 0)
		return refuse_summary(run, false);
	run->name = g->output;
	return open_file(run);
}

/* Begins a new line if the file of `size` bytes ends within a line, for example because the
 * disk was full. If that line ends within quotes, closes them first: otherwise the quotes would
 * also contain the next line. */
static void finish_line(struct log_run *run, off_t size)
{
	char text[LINE_BYTES];
	off_t begin = size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0;
	ssize_t n = pread(run->fd, text, (size_t)(size - begin), begin), at = n;
	bool quoted = false;

	while (at > 0 && text[at - 1] != '\n')
		quoted ^= text[--at] == '"';
	if (at < n && quoted && !run->format.json)
		write_text(run, "\"", 1);
	if (at < n)
		write_text(run, "\n", 1);
}

static int write_heading(struct log_run *run)
{
	char text[LINE_BYTES];
	struct stat st;
	struct buf b;

	buf_init_fixed(&b, text, sizeof(text));
	log_line_heading(&run->format, &b);
	if (!given(run->cli)->append || !run->own_fd || fstat(run->fd, &st) != 0 ||
	    !S_ISREG(st.st_mode) || st.st_size == 0) {
		write_text(run, b.p, b.len);
		return EXIT_OK;
	}
	if (run->format.json && !begins_with(run->fd, "{", 1))
		return cli_fail("%s does not contain JSON lines: give the same --format, or "
				"another file",
				run->name);
	if (!run->format.json && !begins_with(run->fd, b.p, b.len))
		return cli_fail("%s has other columns: give the same --fields, or another file",
				run->name);
	finish_line(run, st.st_size);
	return EXIT_OK;
}

/* Makes one source per GPU of the meter, in the same order. */
static int make_sources(struct log_run *run)
{
	struct cli *c = run->cli;
	const struct gw_device *d;

	run->source = calloc(gw_snapshot_device_count(c->snap) + 1, sizeof(*run->source));
	if (!run->source)
		return cli_no_memory();
	for (unsigned at = 0; (d = cli_next_device(c, &at));) {
		struct source *s = &run->source[run->count++];

		s->run = run;
		s->gpu.device = d;
		moments_init(&s->gpu.power);
		histogram_init(&s->gpu.spread);
	}
	if (run->count == 0) {
		const char *why = gw_snapshot_status(c->snap)->message;

		cli_error("no GPU to log%s%s", *why ? ": " : "", why);
		return EXIT_NO_GPU;
	}
	return EXIT_OK;
}

static void plan_run(struct log_run *run)
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
	plan_run(run);
	stop_catch();
	code = write_heading(run);
	if (code != EXIT_OK || run->ending != RUNNING)
		return code != EXIT_OK ? code : print_write_error(run);
	code = start_meter(run);
	if (code == EXIT_OK)
		write_until_done(run);
	finish_window(run);
	if (code == EXIT_OK)
		code = print_results(run);
	return code == EXIT_OK || code == EXIT_PARTIAL
		       ? (write_summary(run) == EXIT_OK ? code : EXIT_FAILED)
		       : code;
}

static int close_output(const struct log_run *run, int code)
{
	if (!run->own_fd || close(run->fd) == 0)
		return code;
	return cli_fail("cannot write %s: %s", run->name, strerror(errno));
}

/* Frees everything. If a thread hangs in the driver, frees nothing, because the thread may
 * continue later and use this memory. */
static void free_run(struct log_run *r)
{
	struct cli *c = r->cli;

	if (r->meter && gw_snapshot_take(c->snap, GW_TIER_FAST) == 0 && cli_hung(c))
		return;
	free(r->source);
	free(r);
}

static int run_with_gpus(struct log_run *r)
{
	struct cli *c = r->cli;
	const struct given *g = given(c);
	int code = log_line_choose(&r->format, c->json || text_same(g->format, "jsonl"),
				   &g->fields);

	if (code == EXIT_OK)
		code = cli_open(c, GW_TIERS_COMMON);
	if (code == EXIT_OK)
		code = make_sources(r);
	if (code != EXIT_OK)
		return code;
	r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake < 0)
		return cli_fail("cannot start the log: %s", strerror(errno));
	return close_output(r, run_log(r));
}

static int log_run_command(struct cli *c)
{
	struct log_run *r;
	struct energy_cost cost;
	int code = check_options(c);

	if (code == EXIT_OK)
		code = cost_options_read(&given(c)->cost, &cost);
	if (code != EXIT_OK)
		return code;
	r = calloc(1, sizeof(*r));
	if (!r)
		return cli_no_memory();
	r->cli = c;
	r->cost = cost;
	r->fd = r->wake = -1;
	code = run_with_gpus(r);
	if (r->wake >= 0)
		close(r->wake);
	free_run(r);
	return code;
}

static const char *const formats[] = { "csv", "jsonl", NULL };

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(DURATION, 'i', "interval", AT(interval_ns), "TIME",
		   "write a line every TIME (default: 100ms, at least 1ms)"),
	OPTION_ROW(DURATION, 'd', "duration", AT(duration_ns), "TIME",
		   "end after TIME (default: run until it is stopped)"),
	OPTION_ROW(
		TEXT, 'o', "output", AT(output), "FILE",
		"write to FILE instead of standard output; a regular file must not exist yet"),
	OPTION_ROW(FLAG, 0, "force", AT(force), NULL, "replace FILE if it exists"),
	OPTION_ROW(FLAG, 0, "append", AT(append), NULL, "add to FILE if it exists"),
	OPTION_CHOICE_ROW(0, "format", AT(format), "FORMAT",
			  "csv (the default) or jsonl, one JSON object per line", formats),
	OPTION_ROW(TEXT, 0, "summary", AT(summary), "FILE",
		   "at the end, write the summary to FILE as JSON; -: print it"),
	COST_OPTIONS(struct given, cost),
	OPTION_WORDS_ROW(0, "fields", AT(fields), "NAMES",
			 "write these fields in this order; an unknown name prints the list of "
			 "all fields",
			 log_line_field_name),
	OPTION_END,
};

const struct command command_log = {
	.name = "log",
	.summary = "log power and other figures, one line per tick",
	.description = "Writes one line per GPU and tick, until you stop it or --duration is "
		       "over. Ticks are at fixed times, so the log does not drift. At the end, "
		       "prints on standard error how complete the log is, and the power and "
		       "energy. An unknown value is empty in CSV and null in JSON.",
	.examples = "  gpuward log -d 80s -o power.csv\n"
		    "  gpuward log -i 1s --format jsonl | jq .power_watts\n"
		    "  gpuward log -d 80s -o power.csv --summary power.json\n"
		    "  gpuward log --gpu 0 --fields elapsed_seconds,power_watts\n",
	.options = options,
	.options_size = sizeof(struct given),
	.run = log_run_command,
};
