/* Measures a loop of steps: the energy of each step, the energy above idle, and the highest
 * power.
 *
 *	cc loop.c $(pkg-config --cflags --libs gpuward) -lm -o loop && ./loop 5 readings.csv
 *
 * In the build tree: build/examples/loop.  On a simulated H200:
 *	LD_LIBRARY_PATH=build/sim GPUWARD_SIM=h200 build/examples/loop 5 readings.csv */
#define _POSIX_C_SOURCE 200809L
#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

/* A placeholder for one step. A real step must wait for the GPU at its end, because calls that
 * start work return before the work is done. */
static void step(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
}

static void show(const char *what, const struct gw_energy *e)
{
	if (isnan(e->joules.best))
		printf("%s: energy unknown\n", what);
	else
		printf("%s: %.1f J (%.1f to %.1f) in %.2f s, %s\n", what, e->joules.best,
		       e->joules.low, e->joules.high, e->seconds,
		       gw_validity_name(e->validity));
}

/* Warns the user if the GPUs are simulated. */
static void show_simulated(struct gw_ctx *ctx)
{
	struct gw_snapshot *s;

	if (gw_snapshot_new(ctx, &s))
		return;
	if (gw_snapshot_take(s, 0) == 0 && gw_snapshot_status(s)->simulated)
		printf("SIMULATED: no figure is real\n");
	gw_snapshot_free(s);
}

static void show_sensor(struct gw_meter *meter)
{
	struct gw_sensor s = { .size = sizeof(s) };

	if (gw_meter_sensor(meter, 0, &s) == 0)
		printf("sensor: %s, %s, a value every %.3f s, averaged over %.3f s, %.3f s "
		       "late\n",
		       gw_rung_name(s.rung), s.origin, s.period_s, s.window_s, s.lag_s);
}

/* Writes one line per power sample, and one line with the temperature per tick. */
static void write_csv(const struct gw_series *s, const char *path)
{
	FILE *f = fopen(path, "w");
	struct gw_reading r = { 0 };
	unsigned column = 0;

	if (!f) {
		perror(path);
		return;
	}
	while (column < s->figure_count && s->figure_quantity[column] != GW_Q_TEMPERATURE_GPU)
		column++;
	fprintf(f, "seconds,power_watts,temperature_celsius\n");
	while (gw_series_next(s, &r)) {
		double seconds = ((double)r.t_ns - (double)s->begin_ns) * 1e-9;

		if (r.tick == SIZE_MAX)
			fprintf(f, "%.6f,%.3f,\n", seconds, r.power_w);
		else if (column < s->figure_count && !isnan(s->figure[column][r.tick]))
			fprintf(f, "%.6f,,%.0f\n", seconds, s->figure[column][r.tick]);
	}
	if (fclose(f))
		perror(path);
}

static void show_series(const struct gw_series *s, const char *csv)
{
	size_t peak = 0;

	for (size_t k = 1; k < s->power_count; k++)
		peak = s->power_w[k] > s->power_w[peak] ? k : peak;
	if (s->power_count)
		printf("peak: %.1f W after %.2f s; %zu power samples, %zu ticks\n",
		       s->power_w[peak],
		       ((double)s->power_ns[peak] - (double)s->begin_ns) * 1e-9, s->power_count,
		       s->tick_count);
	if (s->dropped)
		printf("there was no room for %llu readings: the series is not complete\n",
		       (unsigned long long)s->dropped);
	if (csv)
		write_csv(s, csv);
}

/* Subtracts the stored baseline of the GPU, if there is one. */
static void show_net(struct gw_ctx *ctx, struct gw_meter *meter, const struct gw_energy *e)
{
	struct gw_net_energy net = { .size = sizeof(net) };
	struct gw_baseline *baseline = NULL;

	if (gw_baseline_load(meter, 0, GW_BASELINE_NO_CONTEXT, 0, NULL, &baseline) ||
	    gw_baseline_apply(meter, e, baseline, NULL, &net))
		printf("above idle: unknown (%s)\n", gw_ctx_error(ctx));
	else
		printf("above idle: %.1f J (%.1f to %.1f)\n", net.net.best, net.net.low,
		       net.net.high);
	gw_baseline_free(baseline);
}

static int measure(struct gw_ctx *ctx, struct gw_meter *meter, int steps, const char *csv)
{
	struct gw_window *all, *one;
	const struct gw_energy *e;
	int err = gw_window_open_recorded(meter, "all", 0, 0, &all);

	for (int i = 0; !err && i < steps; i++) {
		err = gw_window_open(meter, "step", 0, &one);
		if (err)
			break;
		step();
		gw_window_close(one, 0);
		gw_window_wait(one, 5 * SECOND); /* takes about 60 ms on an H200 */
		show("step", gw_window_energy(one, 0));
		gw_window_free(one);
	}
	if (err)
		return err;
	gw_window_close(all, 0);
	err = gw_window_wait(all, 5 * SECOND);
	e = gw_window_energy(all, 0);
	show("all", e);
	show_net(ctx, meter, e);
	show_series(gw_window_series(all, 0), csv);
	gw_window_free(all);
	return err;
}

int main(int argc, char **argv)
{
	const char *const first[] = { "0", NULL };
	struct gw_meter_options o = { .size = sizeof(o), .gpus = first };
	struct gw_ctx *ctx = NULL;
	struct gw_meter *meter = NULL;
	int err = gw_open(NULL, &ctx);

	if (!err)
		err = gw_meter_start(ctx, &o, &meter);
	if (!err) {
		show_simulated(ctx);
		show_sensor(meter);
		err = measure(ctx, meter, argc > 1 ? atoi(argv[1]) : 5,
			      argc > 2 ? argv[2] : NULL);
	}
	if (err)
		fprintf(stderr, "loop: %s\n", gw_ctx_error(ctx));
	if (gw_meter_stop(meter) == 0) /* an error means that a driver call still uses ctx */
		gw_close(ctx);
	return err ? 1 : 0;
}
