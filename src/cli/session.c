#include "session.h"

#include "output.h"

#include "base/buf.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define WATCH_NS (250 * NS_PER_MS)

int session_check(const struct session_options *o)
{
	if (!isnan(o->cooldown_to_c) && o->no_cooldown)
		return cli_usage(
			"--cooldown-to and --no-cooldown exclude each other: give one of them");
	if (o->part && !*o->part)
		return cli_usage("--part: the name is empty");
	if (o->part && strlen(o->part) >= PROGRESS_MARKS_LABEL)
		return cli_usage("--part: the name has %zu bytes, but the name of a part has "
				 "at most %d; mark the part with a shorter name",
				 strlen(o->part), PROGRESS_MARKS_LABEL - 1);
	return EXIT_OK;
}

void session_init(struct session *s, struct cli *c, const struct session_options *o, void *arg)
{
	*s = (struct session){ .c = c, .o = o };
	runner_inherit(&s->inherit, c->pipe_ignored);
	s->runner = (struct runner){
		.inherit = &s->inherit, .part = o->part, .arg = arg, .watch_ns = WATCH_NS
	};
	s->cool =
		(struct cooldown){ .runner = &s->runner, .to_c = o->cooldown_to_c, .arg = arg };
}

int session_start(struct session *s, const struct meter_config *config, uint64_t interval_ns)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .interval_ns = interval_ns,
				      .gpus = s->c->gpu.count ? s->c->gpu.item : NULL,
				      .flags = GW_METER_PROCESSES };
	struct meter_config all = *config;
	int err;

	all.options = &o;
	s->cool.ctx = s->c->ctx;
	err = cooldown_init(&s->cool);
	if (!err)
		err = meter_start(s->c->ctx, &all, &s->runner.meter);
	if (err)
		return cli_fail("cannot measure: %s", gw_strerror(err));
	meter_set_exclusive(s->runner.meter, s->o->require_exclusive);
	return EXIT_OK;
}

void session_stop(struct session *s)
{
	gw_meter_stop(s->runner.meter);
	cooldown_done(&s->cool);
}

int session_begin(struct session *s)
{
	int code;

	if (runner_begin(&s->runner) != 0)
		return cli_fail("cannot watch for signals: %s", strerror(errno));
	code = clean_room_new(s->c, &s->o->room, &s->runner, &s->room);
	if (code != EXIT_OK)
		session_end(s);
	return code;
}

void session_end(struct session *s)
{
	clean_room_free(s->room);
	s->room = NULL;
	runner_end(&s->runner);
}

void session_cool_down(struct session *s, void (*clear)(void))
{
	cooldown_wait(&s->cool);
	if (s->cool.late_gpu < 0)
		return;
	if (clear)
		clear();
	cli_error("GPU %d was still at %.0f %s after a minute of cooling; later runs begin at "
		  "this temperature or below",
		  s->cool.late_gpu, s->cool.late_c, term_plain("°C"));
}

void session_report_no_gpu(const struct session *s, const char *effect)
{
	const struct gw_status *status = gw_snapshot_status(s->c->snap);
	const char *remedy = gw_cause_info(status->cause)->remedy;

	if (status->cause == GW_CAUSE_NONE || status->cause == GW_CAUSE_NO_GPU)
		remedy = s->c->simulate ? "" : "To try it on simulated GPUs, add --simulate.";
	cli_error("%s; %s", *status->message ? status->message : "no GPU was found", effect);
	if (*remedy)
		cli_error("%s", remedy);
}

const struct gw_device *session_device(const struct session *s, unsigned i)
{
	return gw_snapshot_device(s->c->snap, gw_meter_device(s->runner.meter, i));
}

const char *session_command_name(const char *command)
{
	const char *slash = strrchr(command, '/');

	return slash && slash[1] ? slash + 1 : command;
}

int session_write(const struct session *s, struct cli_document *doc, struct bundle *bundle,
		  int err)
{
	char message[512];
	int code;

	if (!err)
		err = json_end(&doc->json);
	code = err ? cli_fail("cannot build the result: %s", gw_strerror(err))
		   : output_result(s->o->output, s->c->json, &doc->buf, s->c->quiet);
	if (bundle && !err) /* bundle_close() reports an error of this call. */
		bundle_file(bundle, "result.json", doc->buf.p, doc->buf.len, message,
			    sizeof(message));
	buf_done(&doc->buf);
	return code;
}

#define LINE_SAMPLES 100
#define FIRST_S      0.5 /* A run that is shorter than this shows no progress line. */
#define BAR          16

void run_progress_init(struct run_progress *p, struct gw_meter *meter, bool requested,
		       bool quiet)
{
	memset(p, 0, sizeof(*p));
	p->meter = meter;
	p->trial = p->trials = 1;
	p->expected_s = p->iterations = NAN;
	p->terminal = progress_possible(false);
	p->on = !quiet && (requested || p->terminal);
}

struct state {
	double seconds, watts, joules;
	uint64_t samples, expected;
	uint64_t codes;
};

static uint64_t samples_of(const struct run_progress *p)
{
	struct meter_progress m;
	uint64_t n = 0;

	for (unsigned i = 0; i < gw_meter_device_count(p->meter); i++) {
		meter_progress(p->meter, i, &m);
		n += m.samples;
	}
	return n;
}

void run_progress_begin(struct run_progress *p)
{
	p->begin_ns = clock_mono_ns(clock_real());
	p->samples = samples_of(p);
	p->lines = 0;
}

static void read_state(const struct run_progress *p, struct gw_window *window, struct state *s)
{
	struct meter_progress m;

	*s = (struct state){ .seconds = (double)(clock_mono_ns(clock_real()) - p->begin_ns) *
					1e-9 };
	for (unsigned i = 0; i < gw_meter_device_count(p->meter); i++) {
		const struct gw_energy *e = gw_window_energy(window, i);

		meter_progress(p->meter, i, &m);
		s->watts += m.power_w;
		s->joules += e->joules.best;
		s->samples += e->samples_collected;
		s->expected += e->samples_expected;
		s->codes |= e->codes;
	}
	if (gw_meter_device_count(p->meter) == 0)
		s->watts = s->joules = NAN;
}

/* Returns the share of the run that is done, from 0 to 1, or NAN if it is unknown. */
static double share_done(const struct run_progress *p, const struct state *s,
			 const struct progress_marks *marks)
{
	double done = NAN;

	if (marks->iterations && p->iterations > 0)
		done = (double)marks->iterations / p->iterations;
	else if (p->expected_s > 0)
		done = s->seconds / p->expected_s;
	return done > 1 ? 1 : done;
}

static void format_state(const struct run_progress *p, const struct state *s,
			 const struct progress_marks *marks, struct buf *b)
{
	double done = share_done(p, s, marks);
	char bar[64];

	if (p->trials > 1)
		buf_addf(b, "run %u of %u  ", p->trial, p->trials);
	if (!isnan(done)) {
		progress_bar(bar, BAR + 2, done);
		buf_addf(b, "%s %3.0f %%  ", bar, 100 * done);
	}
	buf_addf(b, "%.1f s", s->seconds);
	if (gw_meter_device_count(p->meter) > 0)
		buf_addf(b, "  %llu/%llu samples", (unsigned long long)s->samples,
			 (unsigned long long)s->expected);
	if (!isnan(s->watts))
		buf_addf(b, "  %.0f W", s->watts);
	if (!isnan(s->joules))
		buf_addf(b, "  %.1f J", s->joules);
	if (marks->iterations)
		buf_addf(b, "  %llu iterations", (unsigned long long)marks->iterations);
	for (unsigned c = 0; c < GW_CODES; c++)
		if (s->codes & UINT64_C(1) << c && gw_code_info(c)->level > GW_VALID &&
		    gw_code_info(c)->level < GW_NO_RESULT)
			buf_addf(b, "  %s", gw_code_info(c)->key);
}

/* Returns true if the progress line may be drawn: the terminal is in line mode and gpuward is
 * in the foreground. */
static bool may_draw(void)
{
	struct termios t;

	return tcgetattr(STDERR_FILENO, &t) == 0 && t.c_lflag & ICANON && t.c_lflag & ECHO &&
	       tcgetpgrp(STDERR_FILENO) == getpgrp();
}

/* Draws the progress line.  Leaves the cursor at the start of the line, so that the command's
 * output overwrites the line. */
static void draw_line(struct run_progress *p, const char *text)
{
	unsigned width = term_width();
	char cut[512];

	if (!may_draw())
		return;
	snprintf(cut, sizeof(cut), "%s", text);
	if (strlen(cut) >= width)
		cut[width - 1] = '\0'; /* Cutting bytes is correct because the text is ASCII. */
	fprintf(stderr, "\r%s\033[K\r", cut);
	p->shown = true;
}

void run_progress_show(struct run_progress *p, struct gw_window *window,
		       const struct progress_marks *marks)
{
	uint64_t lines = (samples_of(p) - p->samples) / LINE_SAMPLES;
	char text[512];
	struct state s;
	struct buf b;

	if (!p->on || (!p->terminal && lines <= p->lines))
		return;
	p->lines = lines;
	read_state(p, window, &s);
	buf_init_fixed(&b, text, sizeof(text));
	format_state(p, &s, marks, &b);
	if (!p->terminal)
		fprintf(stderr, "gpuward: %s\n", text);
	else if (s.seconds > FIRST_S)
		draw_line(p, text);
}

void run_progress_clear(struct run_progress *p)
{
	if (p->shown && may_draw())
		fputs("\r\033[K", stderr);
	p->shown = false;
}
