/* Measures the energy of some work in one window, and of its second half in another window.
 *
 *	cc window.c $(pkg-config --cflags --libs gpuward) -lm -o window && ./window
 *
 * In the build tree: build/examples/window.  On a simulated H200:
 *	LD_LIBRARY_PATH=build/sim GPUWARD_SIM=h200 build/examples/window */
#define _POSIX_C_SOURCE 200809L
#include <gpuward.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

/* A placeholder for the work of the GPU. Wait for the GPU before you close the window, because
 * calls that start work return before the work is done. */
static void work(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds,
			      .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };

	nanosleep(&t, NULL);
}

static void show(const char *label, const struct gw_energy *e)
{
	if (isnan(e->joules.best))
		printf("%s, GPU %u: energy unknown\n", label, e->device);
	else
		printf("%s, GPU %u: %.1f J (%.1f to %.1f) in %.2f s; to compare with other "
		       "runs "
		       "on this GPU: %.1f to %.1f\n",
		       label, e->device, e->joules.best, e->joules.low, e->joules.high,
		       e->seconds, e->relative.low, e->relative.high);
	printf("\t%s, %s, two meters: %s, %" PRIu64 " of %" PRIu64 " samples\n",
	       gw_validity_name(e->validity), gw_rung_name(e->rung),
	       gw_verdict_name(e->verdict), e->samples_collected, e->samples_expected);
	for (unsigned c = 0; gw_code_info(c); c++)
		if (e->codes >> c & 1)
			printf("\t%s: %s\n", gw_code_info(c)->key, gw_code_info(c)->sentence);
}

/* Warns the user if the GPUs are simulated. */
static void say_simulated(struct gw_ctx *ctx)
{
	struct gw_snapshot *s;

	if (gw_snapshot_new(ctx, &s))
		return;
	if (gw_snapshot_take(s, 0) == 0 && gw_snapshot_status(s)->simulated)
		printf("SIMULATED: no figure is real\n");
	gw_snapshot_free(s);
}

static void finish(struct gw_window *w)
{
	int err = gw_window_wait(w, 5 * SECOND);

	if (err) /* the result then has the code "truncated" */
		fprintf(stderr, "window: %s\n", gw_strerror(err));
	for (unsigned i = 0; gw_window_energy(w, i); i++)
		show(gw_window_label(w), gw_window_energy(w, i));
	gw_window_free(w);
}

static int measure(struct gw_meter *meter, double seconds)
{
	struct gw_window *all, *half;

	if (gw_window_open(meter, "all", 0, &all))
		return 1;
	work(seconds / 2);
	if (gw_window_open(meter, "second half", 0, &half)) {
		gw_window_free(all);
		return 1;
	}
	work(seconds / 2);
	gw_window_close(half, 0);
	gw_window_close(all, 0);
	finish(all);
	finish(half);
	return 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	struct gw_ctx *ctx = NULL;
	struct gw_meter *meter = NULL;
	int err = gw_open(NULL, &ctx);

	if (!err)
		err = gw_meter_start(ctx, NULL, &meter);
	if (err) {
		fprintf(stderr, "window: %s\n", gw_ctx_error(ctx));
		gw_close(ctx);
		return 1;
	}
	if (gw_meter_device_count(meter) == 0) {
		printf("this machine has no GPU\n");
	} else {
		say_simulated(ctx);
		err = measure(meter, seconds);
	}
	if (gw_meter_stop(meter) == 0) /* an error means that a driver call still uses ctx */
		gw_close(ctx);
	return err;
}
