/* check_ring: drains the driver's power ring like the daemon does, and waits for an event.
 *
 *         check_ring SECONDS [LIBRARY]        prints "name value" lines; exit status 1: the
 * 	test was not possible
 *
 * Uses the backend under the public library; it is compiled against a build folder. */
#include "device/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CAP 256

struct ring_samples {
	/* disorder: samples that are not newer than the sample before */
	unsigned samples, disorder;
	uint64_t first_us, last_us;
	double gap_max_ms, watts;
	double gap_ms[8192];
	unsigned gaps;
};

static void add(struct ring_samples *t, const struct power_sample *s)
{
	if (t->samples++ == 0) {
		t->first_us = t->last_us = s->wall_us;
		return;
	}
	if (s->wall_us <= t->last_us) {
		t->disorder++;
		return;
	}
	if (t->gaps < 8192)
		t->gap_ms[t->gaps++] = (double)(s->wall_us - t->last_us) * 1e-3;
	t->watts += s->power_w;
	t->last_us = s->wall_us;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int drain(struct device *d, struct ring_samples *t)
{
	struct power_sample out[CAP];
	int n = d->backend->ops->power_samples(d, t->last_us, out, CAP);

	for (int i = 0; i < n; i++)
		add(t, &out[i]);
	return n;
}

static int check_samples(struct device *d, unsigned seconds)
{
	static struct ring_samples t;
	int n = drain(d, &t);

	printf("first_drain %d\n", n);
	memset(&t, 0, sizeof(t));
	drain(d, &t); /* these samples are from before this run */
	t = (struct ring_samples){ .last_us = t.last_us };
	for (unsigned i = 0; i < seconds; i++) {
		sleep(1);
		n = drain(d, &t);
		if (n < 0) {
			printf("error %d\n", n);
			return 1;
		}
	}
	qsort(t.gap_ms, t.gaps, sizeof(double), by_size);
	printf("samples %u\n", t.samples);
	printf("disorder %u\n", t.disorder);
	printf("gap_median_ms %.3f\n", t.gaps ? t.gap_ms[t.gaps / 2] : 0);
	printf("gap_max_ms %.3f\n", t.gaps ? t.gap_ms[t.gaps - 1] : 0);
	printf("watts %.3f\n", t.gaps ? t.watts / t.gaps : 0);
	printf("age_ms %.3f\n",
	       ((double)clock_wall_ns(clock_real()) * 1e-3 - (double)t.last_us) * 1e-3);
	return 0;
}

static void check_events(struct backend *b)
{
	struct device_event e = { 0 };
	uint64_t start = clock_mono_ns(clock_real());
	void *events = NULL;
	int rc = b->ops->events_open ? b->ops->events_open(b, &events) : -GW_E_NOSUPPORT;

	printf("events_open %d\n", rc);
	if (rc != 0)
		return;
	for (unsigned i = 0; i < b->count; i++)
		b->ops->events_add(b->slot[i], events);
	rc = b->ops->events_wait(b, events, 1000, &e);
	printf("events_wait %d\n", rc);
	printf("events_waited_ms %.1f\n", (double)(clock_mono_ns(clock_real()) - start) * 1e-6);
	b->ops->events_close(b, events);
}

int main(int argc, char **argv)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = argc > 2 ? argv[2] : NULL };
	struct gw_ctx *ctx;
	int rc;

	if (gw_open(&o, &ctx) != 0 || ctx->slots == 0) {
		fprintf(stderr, "check_ring: no GPU\n");
		return 1;
	}
	rc = check_samples(ctx->slot[0]->d, argc > 1 ? (unsigned)atoi(argv[1]) : 5);
	check_events(ctx->slot[0]->d->backend);
	gw_close(ctx);
	return rc;
}
