/* Measures what the store costs: writes one reading per second of eight GPUs for a day, as fast
 * as possible.
 *
 * bench-store FILE [HOURS]
 *
 * Prints the size of the file, resident memory, the time of a query and the CPU time of a tick.
 */
#include "daemon/store.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8
#define T0   (UINT64_C(20000) * 86400 * NS_PER_S)

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Returns a line of /proc/self/status in KiB: VmRSS, RssAnon (our memory) or RssFile (code). */
static long resident_kib(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, field, strlen(field)) == 0)
			kib = strtol(line + strlen(field) + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

static double random_up_to(double most)
{
	return most * (double)rand() / RAND_MAX;
}

/* Values with the resolution of a driver. */
static void make_values(double *v, unsigned i)
{
	double load = 0.5 + 0.5 * sin((double)i / 300);

	v[VIEW_H_POWER] = floor(1000 * (80 + 500 * load + random_up_to(20))) / 1000;
	v[VIEW_H_POWER_LIMIT] = 700;
	v[VIEW_H_TEMPERATURE_GPU] = floor(35 + 30 * load + random_up_to(2));
	v[VIEW_H_TEMPERATURE_MEMORY] = floor(40 + 30 * load + random_up_to(2));
	v[VIEW_H_UTILIZATION_GPU] = floor(100 * load) / 100;
	v[VIEW_H_UTILIZATION_MEMORY] = floor(60 * load + random_up_to(5)) / 100;
	v[VIEW_H_MEMORY_USED] = 1048576 * floor(40000 + 2000 * load + random_up_to(50));
	v[VIEW_H_CLOCK_SM] = 1e6 * floor(1200 + 780 * load + random_up_to(20));
	v[VIEW_H_CLOCK_MEMORY] = 3201e6;
	v[VIEW_H_FAN_SPEED] = NAN;
}

static void tick(struct store *s, unsigned i)
{
	double v[VIEW_HISTORIES];
	char name[32];

	for (unsigned g = 0; g < GPUS; g++) {
		uint64_t jitter = (uint64_t)random_up_to(3e6);

		make_values(v, i + g * 100);
		snprintf(name, sizeof(name), "GPU-%u", g);
		store_add_reading(s, name, T0 + i * NS_PER_S + jitter, v);
		store_set_count(s, name, 100.0 * i);
	}
	store_commit(s);
	store_flush(s, 10 * NS_PER_S);
}

static void query(struct store *s, const char *what, uint64_t from, uint64_t step)
{
	static struct view_point p[90000];
	uint64_t begin = clock_mono_ns(clock_real()), given;
	int n = 0;

	for (unsigned k = 0; k < 10; k++)
		n = store_history(s, "GPU-3", VIEW_H_POWER, from, UINT64_MAX, step, p, 90000,
				  &given);
	printf("%-28s %7.3f ms, %d points\n", what,
	       1e-7 * (double)(clock_mono_ns(clock_real()) - begin), n);
}

int main(int argc, char **argv)
{
	unsigned ticks = argc > 2 ? (unsigned)(3600 * atof(argv[2])) : 86400;
	long own = resident_kib("RssAnon"), code = resident_kib("RssFile");
	struct store *s;
	char message[512];
	double begin;

	if (argc < 2 || store_open(argv[1], UINT64_C(1) << 30, &s, message, sizeof(message)))
		return 2;
	begin = cpu_s();
	for (unsigned i = 0; i < ticks; i++)
		tick(s, i);
	begin = cpu_s() - begin;
	printf("%-28s %7.1f us of processor time\n", "tick of 8 GPUs", 1e6 * begin / ticks);
	printf("%-28s %7.0f kB\n", "file, per GPU and day",
	       (double)store_bytes(s) / GPUS / ticks * 86400 / 1000);
	printf("%-28s %7ld KiB, and %ld KiB of code\n", "resident",
	       resident_kib("RssAnon") - own, resident_kib("RssFile") - code);
	query(s, "a day at 60 s", T0 + (ticks - (ticks < 86400 ? ticks : 86400)) * NS_PER_S,
	      60 * NS_PER_S);
	query(s, "a day at 90 s", T0, 90 * NS_PER_S);
	query(s, "an hour at 1 s", T0 + (ticks - 3600) * NS_PER_S, NS_PER_S);
	query(s, "all readings", T0, 0);
	printf("dropped %llu, %s\n", (unsigned long long)store_dropped(s), store_state(s));
	store_close(s);
	return 0;
}
