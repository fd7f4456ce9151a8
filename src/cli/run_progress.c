#include "run_progress.h"

#include "term.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define LINE_SAMPLES 100
#define FIRST_S      0.5 /* a shorter run shows no line */
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

/* Returns 0 to 1, or NAN if it is unknown. */
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

/* Returns true if the terminal is in line mode and we are in the foreground. */
static bool may_draw(void)
{
	struct termios t;

	return tcgetattr(STDERR_FILENO, &t) == 0 && t.c_lflag & ICANON && t.c_lflag & ECHO &&
	       tcgetpgrp(STDERR_FILENO) == getpgrp();
}

/* Leaves the cursor at the start of the line, so that output of the command overwrites it. */
static void draw_line(struct run_progress *p, const char *text)
{
	unsigned width = term_width();
	char cut[512];

	if (!may_draw())
		return;
	snprintf(cut, sizeof(cut), "%s", text);
	if (strlen(cut) >= width)
		cut[width - 1] = '\0'; /* the text is ASCII */
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
