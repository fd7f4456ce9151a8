/* spawn: compares how long two programs take from start to end.
 *
 * spawn RUNS PROGRAM [ARG...] -- PROGRAM [ARG...]
 *
 * Runs the programs in turn, with their output to /dev/null. Prints "name value" lines: the
 * median time and the largest resident size of each program. */
#include "stats.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

struct program {
	char **argv;
	double *ns;
	long maxrss_kib;
	int status;
};

static int run_program(struct program *p, unsigned i, posix_spawn_file_actions_t *quiet)
{
	double start = stats_now_ns();
	struct rusage u;
	pid_t pid;

	if (posix_spawnp(&pid, p->argv[0], quiet, NULL, p->argv, environ) != 0) {
		fprintf(stderr, "spawn: cannot start %s\n", p->argv[0]);
		return -1;
	}
	if (wait4(pid, &p->status, 0, &u) != pid)
		return -1;
	p->ns[i] = stats_now_ns() - start;
	if (u.ru_maxrss > p->maxrss_kib)
		p->maxrss_kib = u.ru_maxrss;
	return 0;
}

int main(int argc, char **argv)
{
	unsigned runs = argc > 1 ? (unsigned)atoi(argv[1]) : 0, n = 0;
	struct program p[2] = { { .argv = argv + 2 }, { 0 } };
	posix_spawn_file_actions_t quiet;

	for (int i = 2; i < argc && !p[1].argv; i++)
		if (strcmp(argv[i], "--") == 0) {
			argv[i] = NULL;
			p[1].argv = argv + i + 1;
		}
	if (runs == 0 || !p[1].argv || !p[0].argv[0] || !p[1].argv[0]) {
		fprintf(stderr, "usage: spawn RUNS PROGRAM... -- PROGRAM...\n");
		return 2;
	}
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	for (unsigned k = 0; k < 2; k++)
		p[k].ns = calloc(runs, sizeof(double));
	for (n = 0; n < runs; n++)
		for (unsigned k = 0; k < 2; k++)
			if (!p[k].ns || run_program(&p[k], n, &quiet) != 0)
				return 1;
	for (unsigned k = 0; k < 2; k++) {
		printf("%c_ns %.0f\n", 'a' + (int)k, stats_median(p[k].ns, runs));
		printf("%c_maxrss_kib %ld\n", 'a' + (int)k, p[k].maxrss_kib);
		printf("%c_status %d\n", 'a' + (int)k,
		       WIFEXITED(p[k].status) ? WEXITSTATUS(p[k].status) : -1);
	}
	return 0;
}
