/* probe: windows on the first GPU, one JSON line each, for tests on real hardware.
 *
 *         probe windows COUNT SECONDS [WARM_S [EVERY_S]]
 *                 windows one after the other, or one every EVERY_S (then they overlap), and
 *                 one window around all of them
 *         probe engine SECONDS [FIGURES_S]
 *                 one window, figures every FIGURES_S: the cost of the engine
 *         probe samples SECONDS                  no window: the cost of collecting power samples
 *         probe record SECONDS INTERVAL_MS FILE  every event of a meter, as lines
 *
 * Uses the library as any program would; record receives events as a bundle does. */
#include "base/buf.h"
#include "base/clock.h"
#include "measure/meter.h"

#include <gpuward.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void number(const char *key, double v)
{
	if (isfinite(v))
		printf(", \"%s\": %.9g", key, v);
	else
		printf(", \"%s\": null", key);
}

static void line(const char *what, const struct gw_energy *e, double cpu_s)
{
	bool first = true;

	printf("{\"what\": \"%s\", \"meter\": \"%s\", \"rung\": \"%s\", \"verdict\": \"%s\", "
	       "\"validity\": \"%s\"",
	       what, gw_meter_kind_name(e->meter), gw_rung_name(e->rung),
	       gw_verdict_name(e->verdict), gw_validity_name(e->validity));
	number("begin", (double)e->begin_ns * 1e-9);
	number("seconds", e->seconds);
	number("joules", e->joules.best);
	number("low", e->joules.low);
	number("high", e->joules.high);
	number("relative_low", e->relative.low);
	number("relative_high", e->relative.high);
	number("counter", e->counter_joules);
	number("samples", e->samples_joules);
	number("residual", e->residual_ratio);
	number("anchor", e->anchor_ratio);
	number("mean", e->power_mean);
	number("sd", e->power_sd);
	number("min", e->power_min);
	number("max", e->power_max);
	number("coverage", e->coverage_ratio);
	number("gap", e->longest_gap_seconds);
	number("expected", (double)e->samples_expected);
	number("collected", (double)e->samples_collected);
	number("ticks", (double)e->ticks_collected);
	number("ticks_missed", (double)e->ticks_missed);
	number("throttle_power", e->throttle_seconds[GW_THROTTLE_POWER]);
	number("throttle_joules", e->throttle_joules);
	number("period", e->load_period_seconds);
	number("cpu", cpu_s);
	printf(", \"codes\": [");
	for (unsigned c = 0; c < GW_CODES; c++)
		if (e->codes >> c & 1) {
			printf("%s\"%s\"", first ? "" : ", ", gw_code_info(c)->key);
			first = false;
		}
	printf("]}\n");
	fflush(stdout);
}

/* Returns the CPU time of all threads of this process. */
static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_for(double s)
{
	clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + (uint64_t)(s * 1e9));
}

/* Number, length and spacing of the windows. Spacing 0: the windows are consecutive, with
 * pauses of up to a tenth of a second, so that they begin at any phase of the sensors. */
struct plan {
	unsigned count;
	double seconds, warm, every;
	uint64_t interval_ns;
};

static void end_one(struct gw_window *w)
{
	gw_window_close(w, 0);
	gw_window_wait(w, 5 * NS_PER_S);
	line("one", gw_window_energy(w, 0), NAN);
	gw_window_free(w);
}

static void in_turn(struct gw_meter *m, const struct plan *p)
{
	struct gw_window *w;

	for (unsigned i = 0; i < p->count; i++) {
		gw_window_open(m, "one", 0, &w);
		pause_for(p->seconds);
		end_one(w);
		pause_for(0.001 * (rand() % 100));
	}
}

/* Opens a window every p->every seconds. Each window ends when the window that is `deep`
 * positions later begins. */
static void overlapping(struct gw_meter *m, const struct plan *p)
{
	unsigned deep = (unsigned)lround(p->seconds / p->every);
	struct gw_window *open[64] = { NULL };

	deep = deep < 64 ? deep : 63;
	for (unsigned i = 0; i < p->count + deep; i++) {
		uint64_t next = clock_mono_ns(clock_real()) + (uint64_t)(p->every * 1e9);

		if (i >= deep)
			end_one(open[(i - deep) % 64]);
		if (i < p->count)
			gw_window_open(m, "one", 0, &open[i % 64]);
		if (i + 1 < p->count + deep)
			clock_sleep_until(clock_real(), next);
	}
}

static int windows(struct gw_ctx *ctx, const struct plan *p)
{
	struct gw_meter_options o = { .size = sizeof(o), .interval_ns = p->interval_ns };
	struct gw_meter *m;
	struct gw_window *all;
	double used;

	if (gw_meter_start(ctx, &o, &m) != 0 || gw_meter_device_count(m) == 0)
		return 1;
	pause_for(p->warm);
	gw_window_open(m, "all", 0, &all);
	used = cpu();
	if (p->every > 0)
		overlapping(m, p);
	else
		in_turn(m, p);
	used = cpu() - used;
	gw_window_close(all, 0);
	gw_window_wait(all, 5 * NS_PER_S);
	line("all", gw_window_energy(all, 0), used);
	gw_meter_stop(m);
	return 0;
}

/* A meter without an open window does little more than sampling. */
static int samples(struct gw_ctx *ctx, double seconds)
{
	struct gw_meter_options o = { .size = sizeof(o) };
	struct gw_meter *m;
	struct meter_progress first, last;
	double used;

	if (gw_meter_start(ctx, &o, &m) != 0 || gw_meter_device_count(m) == 0)
		return 1;
	pause_for(2);
	meter_progress(m, 0, &first);
	used = cpu();
	pause_for(seconds);
	used = cpu() - used;
	meter_progress(m, 0, &last);
	printf("{\"what\": \"samples\", \"seconds\": %.3f, \"cpu\": %.9f, \"collected\": "
	       "%llu}\n",
	       seconds, used, (unsigned long long)(last.samples - first.samples));
	gw_meter_stop(m);
	return 0;
}

static double argument(int argc, char **argv, int i, double otherwise)
{
	return argc > i ? atof(argv[i]) : otherwise;
}

static void hear(void *arg, unsigned device, const struct event *e)
{
	struct buf b;
	char text[EVENT_LINE_MAX];

	if (device != 0)
		return;
	buf_init_fixed(&b, text, sizeof(text));
	event_write(&b, e);
	fputs(text, arg);
}

static int record(struct gw_ctx *ctx, double seconds, double interval_ms, const char *file)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .interval_ns = (uint64_t)(interval_ms * 1e6) };
	struct meter_config c = { .options = &o, .on_event = hear, .always = true };
	struct gw_meter *m;
	struct gw_window *w;

	c.arg = fopen(file, "w");
	if (!c.arg || meter_start(ctx, &c, &m) != 0)
		return 1;
	gw_window_open(m, "all", 0, &w);
	pause_for(seconds);
	gw_window_close(w, 0);
	gw_window_wait(w, 5 * NS_PER_S);
	line("record", gw_window_energy(w, 0), NAN);
	gw_meter_stop(m);
	return fclose(c.arg);
}

int main(int argc, char **argv)
{
	struct gw_ctx *ctx;
	int code = 2;

	if (gw_open(NULL, &ctx) != 0)
		return 1;
	if (argc > 3 && strcmp(argv[1], "windows") == 0)
		code = windows(ctx, &(struct plan){ .count = (unsigned)atoi(argv[2]),
						    .seconds = atof(argv[3]),
						    .warm = argument(argc, argv, 4, 0),
						    .every = argument(argc, argv, 5, 0) });
	else if (argc > 2 && strcmp(argv[1], "engine") == 0)
		code = windows(
			ctx,
			&(struct plan){ .count = 1,
					.seconds = atof(argv[2]),
					.warm = 0.5,
					.interval_ns =
						(uint64_t)(1e9 * argument(argc, argv, 3, 1)) });
	else if (argc > 2 && strcmp(argv[1], "samples") == 0)
		code = samples(ctx, atof(argv[2]));
	else if (argc > 4 && strcmp(argv[1], "record") == 0)
		code = record(ctx, atof(argv[2]), atof(argv[3]), argv[4]);
	gw_close(ctx);
	return code;
}
