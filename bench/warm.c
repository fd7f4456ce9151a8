/* warm: measures what one more snapshot costs, compared with the same calls in a bare loop.
 *
 *   warm [LIBRARY]      prints "name value" lines; times are in ns per round
 *
 * Snapshot and bare loop alternate in blocks of half a ms, so that a slow machine affects both
 * equally. The result is the first decile of the blocks. It ignores the blocks in which the
 * driver updated its sensors, and those that other programs interrupted. */
#include "bare.h"
#include "count.h"
#include "stats.h"

#include "base/clock.h"
#include "device/context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define BLOCKS   401
#define BLOCK_NS 5e5

struct subject {
	const char *name;
	void (*round)(struct subject *s);
	struct bare *bare;
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;
	struct gw_process_list *list;
	unsigned rounds; /* number of rounds per block */
	double block[BLOCKS];
};

static void round_bare(struct subject *s)
{
	bare_read(s->bare);
}

static void round_bare_processes(struct subject *s)
{
	bare_processes(s->bare);
}

static void round_snapshot(struct subject *s)
{
	gw_snapshot_take(s->snap, GW_TIERS_COMMON);
}

static void round_processes(struct subject *s)
{
	gw_process_list_take(s->list);
}

static double run_block(struct subject *s)
{
	double start = stats_now_ns();

	for (unsigned i = 0; i < s->rounds; i++)
		s->round(s);
	return (stats_now_ns() - start) / s->rounds;
}

static void size_block(struct subject *s)
{
	s->rounds = 20;
	s->rounds = 1 + (unsigned)(BLOCK_NS / run_block(s));
}

static void compare(struct subject *const *subject, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		size_block(subject[i]);
	for (unsigned b = 0; b < BLOCKS; b++)
		for (unsigned i = 0; i < n; i++)
			subject[i]->block[b] = run_block(subject[i]);
	for (unsigned i = 0; i < n; i++)
		printf("%s_ns %.1f\n", subject[i]->name,
		       stats_tenth(subject[i]->block, BLOCKS));
}

static int open_library(struct subject *s, const char *library, uint64_t deadline_ns)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = library,
				.deadline_ns = deadline_ns };
	double give_up = stats_now_ns() + 2e9, cpu;

	if (gw_open(&o, &s->ctx) != 0 || gw_snapshot_new(s->ctx, &s->snap) != 0 ||
	    gw_process_list_new(s->ctx, &s->list) != 0)
		return -1;
	do /* until the host's CPU utilisation is known, which needs two readings */
		gw_snapshot_take(s->snap, GW_TIERS_COMMON);
	while (gw_snapshot_host(s->snap, GW_H_CPU_UTILIZATION, &cpu) != GW_HAVE &&
	       stats_now_ns() < give_up);
	return gw_snapshot_device_count(s->snap) > 0 ? 0 : -1;
}

static void close_library(struct subject *s)
{
	gw_process_list_free(s->list);
	gw_snapshot_free(s->snap);
	gw_close(s->ctx);
}

/* Counts the allocations of 1000 snapshots, 100 ms apart on a stepped clock, so that every tier
 * and the host's values become due many times. */
static void count_allocations(const char *library)
{
	struct gw_options o = { .size = sizeof(o), .backend = "nvml", .nvml_library = library };
	struct clock_stepped clock;
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;

	clock_stepped_init(&clock, NS_PER_S, NS_PER_S);
	if (context_open(&o, &clock.clock, &ctx) != 0 || gw_snapshot_new(ctx, &snap) != 0)
		return;
	for (unsigned i = 0; i < 1100; i++) {
		if (i == 100)
			count_start();
		clock_step(&clock, 100 * NS_PER_MS);
		gw_snapshot_take(snap, GW_TIERS_COMMON);
	}
	printf("mallocs %lu\n", count_ours);
	printf("mallocs_of_driver %lu\n", count_others);
	count_start();
	gw_snapshot_free(snap);
	if (gw_snapshot_new(ctx, &snap) == 0 && count_ours == 0)
		printf("mallocs -1\n"); /* the counter missed a known allocation */
	gw_snapshot_free(snap);
	gw_close(ctx);
}

/* The simulator counts calls: the bare loop and the snapshot must make the same number of
 * calls. */
static void count_calls(struct subject *bare, struct subject *snapshot)
{
	uint64_t (*calls)(const char *);
	void *sym = dlsym(bare->bare->lib, "gpuward_sim_calls");
	uint64_t before, between;

	if (!sym)
		return;
	memcpy(&calls, &sym, sizeof(sym));
	snapshot->round(snapshot); /* now no slower tier is due for a while */
	before = calls(NULL);
	bare->round(bare);
	between = calls(NULL);
	snapshot->round(snapshot);
	printf("bare_calls %llu\n", (unsigned long long)(between - before));
	printf("snapshot_calls %llu\n", (unsigned long long)(calls(NULL) - between));
}

int main(int argc, char **argv)
{
	const char *library = argc > 1 ? argv[1] : NULL;
	struct bare bare_nvml;
	struct subject bare = { .name = "bare", .round = round_bare, .bare = &bare_nvml };
	struct subject snapshot = { .name = "snapshot", .round = round_snapshot };
	struct subject deadline = { .name = "snapshot_deadline", .round = round_snapshot };
	struct subject bare_list = { .name = "bare_processes",
				     .round = round_bare_processes,
				     .bare = &bare_nvml };
	struct subject list;

	/* make a simulated driver that sleeps 5 us really sleep 5 us */
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (bare_open(&bare_nvml, library) != 0)
		return 1;
	if (open_library(&snapshot, library, 0) != 0 ||
	    open_library(&deadline, library, NS_PER_S) != 0) {
		fprintf(stderr, "warm: no GPU\n");
		return 1;
	}
	bare_read(&bare_nvml);
	count_calls(&bare, &snapshot);
	compare((struct subject *[]){ &bare, &snapshot, &deadline }, 3);
	list = snapshot;
	list.name = "processes";
	list.round = round_processes;
	compare((struct subject *[]){ &bare_list, &list }, 2);
	printf("processes %u\n", bare_processes(&bare_nvml));
	close_library(&deadline);
	close_library(&snapshot);
	count_allocations(library);
	bare_close(&bare_nvml);
	return 0;
}
