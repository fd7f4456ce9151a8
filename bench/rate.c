/* rate: measures what continuous reading costs, as a share of one core.
 *
 * rate snapshot|bare SECONDS HERTZ [LIBRARY]        prints "name value" lines
 *
 * Measures the CPU time of the whole process while it reads at a fixed rate. Opening the
 * library and the first reading are not included. */
#include "bare.h"
#include "stats.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static double used_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Returns the peak resident size in KiB. getrusage() is not used, because its value includes
 * the parent's size before the exec. */
static long peak_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = atol(line + 6);
	if (f)
		fclose(f);
	return kib;
}

static void sleep_until(double at_ns)
{
	struct timespec t = { (time_t)(at_ns / 1e9), 0 };

	t.tv_nsec = (long)(at_ns - (double)t.tv_sec * 1e9);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
		;
}

static void read_once(struct bare *bare, struct gw_snapshot *snap)
{
	if (bare)
		bare_read(bare);
	else
		gw_snapshot_take(snap, GW_TIERS_COMMON);
}

int main(int argc, char **argv)
{
	bool plain = argc > 1 && strcmp(argv[1], "bare") == 0;
	double seconds = argc > 2 ? atof(argv[2]) : 20, hertz = argc > 3 ? atof(argv[3]) : 10;
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = argc > 4 ? argv[4] : NULL };
	unsigned ticks = (unsigned)(seconds * hertz);
	struct bare bare;
	struct gw_ctx *ctx;
	struct gw_snapshot *snap = NULL;
	double start, cpu, busy = 0;

	if (plain ? bare_open(&bare, o.nvml_library)
		  : gw_open(&o, &ctx) || gw_snapshot_new(ctx, &snap))
		return 1;
	/* the first reading also reads the values that never change */
	read_once(plain ? &bare : NULL, snap);
	start = stats_now_ns();
	cpu = used_s();
	for (unsigned i = 0; i < ticks; i++) {
		double at = stats_now_ns();

		read_once(plain ? &bare : NULL, snap);
		busy += stats_now_ns() - at;
		sleep_until(start + (i + 1) * 1e9 / hertz);
	}
	cpu = used_s() - cpu;
	printf("share %.6f\n", cpu / ((stats_now_ns() - start) * 1e-9));
	printf("tick_ns %.0f\n", busy / ticks);
	printf("maxrss_kib %ld\n", peak_kib());
	return 0;
}
