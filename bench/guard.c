/* guard: measures what the guard's observations cost, as a share of one core.
 *
 *     bench-guard SECONDS GPUS PROCESSES LIBRARY        on the simulator
 *     bench-guard SECONDS                               on the real GPUs
 *
 * Prints "name value" lines. It observes and decides every 100 ms like the service, with call
 * threads for the driver. The simulated processes are sleeping child processes, so that /proc
 * is read as usual. Time in driver calls is shown separately, because it differs between
 * machines; the number of calls does not. */
#include "count.h"
#include "stats.h"

#include "base/clock.h"
#include "device/driver_call.h"
#include "guard/guard_input.h"
#include "guard/scene_builder.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_NS      (100 * NS_PER_MS)
#define CHILDREN_MAX 256
#define HOT_ROUNDS   2000 /* rounds without a pause and with warm caches: shows our own work */

static pid_t child[CHILDREN_MAX];
static unsigned children;

static void sleeping_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	if (pid > 0)
		child[children++] = pid;
}

/* Each process holds one GiB; they are distributed over the GPUs. */
static bool simulate(unsigned gpus, unsigned processes, const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	for (unsigned i = 0; i < processes && children < CHILDREN_MAX; i++)
		sleeping_child();
	for (unsigned i = 0; i < gpus; i++) {
		fprintf(f, "[[gpu]]\nprofile = \"h200\"\n");
		for (unsigned k = i; k < children; k += gpus)
			fprintf(f, "[[gpu.process]]\npid = %d\nmemory = 1073741824\n",
				(int)child[k]);
	}
	return fclose(f) == 0 && setenv("GPUWARD_SIM", path, 1) == 0;
}

static void end_children(void)
{
	for (unsigned i = 0; i < children; i++)
		kill(child[i], SIGKILL);
	for (unsigned i = 0; i < children; i++)
		waitpid(child[i], NULL, 0);
}

/* One worker, which is one of the processes, and rules of each kind. */
static void make_policy(struct policy *p)
{
	struct policy_worker *w = &p->worker[0];

	policy_init(p);
	policy_worker_init(w);
	w->name = "one";
	w->kind = WORKER_SIGNAL;
	w->match.command = "bench-guard|python";
	p->workers = 1;
	p->rule[0] = (struct policy_rule){ { .name = "game*", .uid = -1 }, GUARD_CONTEND, "1" };
	p->rule[1] = (struct policy_rule){ { .command = "steam.*-game", .uid = -1 },
					   GUARD_CONTEND,
					   "2" };
	p->rules = 2;
}

struct used {
	double cpu_s, calls, driver_s, switches;
};

static struct used read_use(struct gw_ctx *ctx)
{
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = call_cost_list(ctx, cost, CALL_COST_CALLS);
	struct used u = { 0 };
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	u.cpu_s = (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
		  (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
	u.switches = (double)(r.ru_nvcsw + r.ru_nivcsw);
	for (unsigned i = 0; i < n; i++) {
		u.calls += (double)cost[i].count;
		u.driver_s += (double)cost[i].total_ns * 1e-9;
	}
	return u;
}

static void observe_once(struct scene_builder *builder, struct guard *g, struct scene *s)
{
	struct guard_decision d;
	struct guard_record r;

	if (scene_builder_take(builder, s, false) != 0)
		return;
	guard_observe(g, s);
	while (guard_next_decision(g, &d))
		;
	while (guard_next_record(g, &r))
		;
}

static void report(const struct used *a, const struct used *b, double seconds, unsigned rounds,
		   const struct scene *s)
{
	printf("gpus %u\nprocesses %u\n", s->gpus, s->processes);
	printf("share %g\n", (b->cpu_s - a->cpu_s) / seconds);
	printf("cpu_us %g\n", (b->cpu_s - a->cpu_s) / rounds * 1e6);
	printf("driver_us %g\n", (b->driver_s - a->driver_s) / rounds * 1e6);
	printf("driver_calls %g\n", (b->calls - a->calls) / rounds);
	printf("switches %g\n", (b->switches - a->switches) / rounds);
	printf("mallocs %g\n", (double)count_ours / rounds);
}

static int measure(struct gw_ctx *ctx, double seconds)
{
	static struct policy policy;
	struct scene *s = calloc(1, sizeof(*s));
	struct scene_builder *builder = NULL;
	struct guard *g = NULL;
	unsigned rounds = (unsigned)(seconds * NS_PER_S / POLL_NS);
	struct used from, to;
	uint64_t start;

	make_policy(&policy);
	if (!s || scene_builder_new(ctx, &policy, &builder) != 0 ||
	    guard_new(&policy, NULL, 0, &g) != 0)
		return 1;
	/* the first rounds also read the values that are read only once */
	for (unsigned i = 0; i < 10; i++)
		observe_once(builder, g, s);
	count_start();
	from = read_use(ctx);
	start = clock_mono_ns(clock_real());
	for (unsigned i = 0; i < rounds; i++) {
		clock_sleep_until(clock_real(), start + (i + 1) * POLL_NS);
		observe_once(builder, g, s);
	}
	to = read_use(ctx);
	seconds = (double)(clock_mono_ns(clock_real()) - start) * 1e-9;
	report(&from, &to, seconds, rounds, s);
	from = read_use(ctx);
	for (unsigned i = 0; i < HOT_ROUNDS; i++)
		observe_once(builder, g, s);
	to = read_use(ctx);
	printf("hot_cpu_us %g\n", (to.cpu_s - from.cpu_s) / HOT_ROUNDS * 1e6);
	printf("hot_driver_us %g\n", (to.driver_s - from.driver_s) / HOT_ROUNDS * 1e6);
	guard_free(g);
	scene_builder_free(builder);
	free(s);
	return 0;
}

int main(int argc, char **argv)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = argc > 4 ? argv[4] : NULL,
				.deadline_ns = 2 * NS_PER_S };
	double seconds = argc > 1 ? atof(argv[1]) : 10;
	char path[] = "/tmp/bench-guard.XXXXXX";
	struct gw_ctx *ctx;
	int fd, failed = 1;

	if (argc > 4) {
		fd = mkstemp(path);
		if (fd < 0 || !simulate((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), path))
			return 1;
		close(fd);
	}
	if (gw_open(&o, &ctx) == 0) {
		failed = measure(ctx, seconds);
		gw_close(ctx);
	}
	if (argc > 4)
		unlink(path);
	end_children();
	return failed;
}
