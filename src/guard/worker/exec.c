/* Kind "exec": runs a program from the worker's configuration, without a shell and with a fixed
 * environment.
 *
 * Exit status 0 means done, 75 (EX_TEMPFAIL) means not now, all others mean failed. The message
 * contains the last line of the program's output. A program that is not done in time is killed
 * with all its children. */
#include "guard/worker/common.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOOK_NS    (10 * NS_PER_S) /* time limit of the program */
#define EXIT_RETRY 75              /* EX_TEMPFAIL of sysexits.h */
#define ARGV_MAX   64

/* env(1) empties the environment first, because the service's environment may contain
 * secrets. */
static const char *const prefix[] = {
	"/usr/bin/env", "-i",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"
};
#define PREFIX (sizeof(prefix) / sizeof(*prefix))

static bool is_interpreter(const char *program)
{
	static const char *const names[] = { "*/*sh", "*/python*", "*/perl*", "*/env" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (fnmatch(names[i], program, 0) == 0)
			return true;
	return false;
}

const char *worker_hook_unsafe(const char *const *argv)
{
	size_t script = 1; /* the first argument that is not an option */

	if (!argv || !argv[0])
		return NULL;
	if (file_is_unsafe_for_root(argv[0]))
		return argv[0];
	while (argv[script] && argv[script][0] == '-')
		script++;
	return argv[script] && is_interpreter(argv[0]) && file_is_unsafe_for_root(argv[script])
		       ? argv[script]
		       : NULL;
}

struct hook {
	char worker[128], gpu[288], reason[96], bytes[48];
	const char *argv[PREFIX + 4 + ARGV_MAX + 1];
};

static int build_hook(const struct worker_call *c, const char *const *argv, struct hook *h)
{
	const char **to = h->argv, *unsafe = worker_hook_unsafe(argv);
	size_t n = 0;

	if (!argv || !argv[0])
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no program is configured for this order");
	while (argv[n])
		n++;
	if (n > ARGV_MAX)
		return worker_fail(c, -GW_E_ARG, "the program has more than 64 arguments");
	if (strchr(argv[0], '=')) /* env(1) would read such a name as a variable */
		return worker_fail(c, -GW_E_ARG, "the name of the program contains '='");
	if (unsafe)
		return worker_fail(c, -GW_E_PERM,
				   "other users can change %.100s, which would run as "
				   "root; " WORKER_HOOK_REMEDY,
				   unsafe);
	snprintf(h->worker, sizeof(h->worker), "GPUWARD_WORKER=%s", c->worker->name);
	snprintf(h->gpu, sizeof(h->gpu), "GPUWARD_GPU=%s", c->order->gpus);
	snprintf(h->reason, sizeof(h->reason), "GPUWARD_REASON=%s", c->order->reason);
	snprintf(h->bytes, sizeof(h->bytes), "GPUWARD_BYTES=%llu",
		 (unsigned long long)c->order->bytes);
	memcpy(to, prefix, sizeof(prefix));
	to += PREFIX;
	*to++ = h->worker;
	*to++ = h->gpu;
	*to++ = h->reason;
	*to++ = h->bytes;
	memcpy(to, argv, (n + 1) * sizeof(*argv));
	return 0;
}

/* Waits for the program. Returns 0 with its wait status and the last line of its output. */
static int wait_for_hook(struct child *child, uint64_t deadline_ns, char *last, size_t size,
			 int *ret_status)
{
	const char *line;
	int rc;

	last[0] = '\0';
	/* check the deadline here too, because the program may print without end */
	while ((rc = child_line(child, deadline_ns, &line)) > 0) {
		if (line[0])
			utf8_clean(last, size, line);
		if (clock_mono_ns(clock_real()) >= deadline_ns)
			return -GW_E_TIMEOUT;
	}
	return rc ? rc : child_wait(child, deadline_ns, ret_status);
}

/* Frees a child that has exited. Its own children may continue to run, because to start them
 * may be the purpose of the program. */
static void reap_hook(struct child *child)
{
	while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (child->out_fd >= 0)
		close(child->out_fd);
	if (child->pidfd >= 0)
		close(child->pidfd);
}

static int hook_result(const struct worker_call *c, int status, const char *program,
		       const char *last)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	if (code == 0)
		return worker_ok(c, "%s", last);
	return worker_fail(c,
			   code == EXIT_RETRY ? -GW_E_STATE
			   : code == 127      ? -GW_E_NOSUPPORT
					      : -GW_E_IO,
			   "%.60s: exit status %d%s%s", program, code, last[0] ? ": " : "",
			   last);
}

static int run_hook(struct worker_call *c, const char *const *argv)
{
	uint64_t limit = clock_mono_ns(clock_real()) + HOOK_NS;
	struct child child;
	struct hook hook;
	char last[120];
	int status = 0, rc = build_hook(c, argv, &hook);

	if (rc)
		return rc;
	rc = child_start(&child, hook.argv, NULL);
	if (rc)
		return worker_fail(c, rc, "%.60s cannot be started", argv[0]);
	rc = wait_for_hook(&child, limit < c->deadline_ns ? limit : c->deadline_ns, last,
			   sizeof(last), &status);
	if (rc == 0) {
		reap_hook(&child);
		return hook_result(c, status, argv[0], last);
	}
	child_stop(&child);
	return worker_fail(c, rc, "%.60s: %s", argv[0],
			   rc == -GW_E_TIMEOUT ? "not done in time, so it was killed"
					       : "its output cannot be read");
}

static int exec_evict(struct worker_call *c)
{
	return run_hook(c, c->worker->evict_argv);
}

static int exec_resume(struct worker_call *c)
{
	return run_hook(c, c->worker->resume_argv);
}

const struct worker_ops worker_exec = { .evict = exec_evict, .resume = exec_resume };
