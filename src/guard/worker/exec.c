/* A program of the user's: argv as it stands in the policy, no shell, a fixed environment.  Exit status 0
 * done, 75 (EX_TEMPFAIL) not now, else failed, with the last line that it printed.  One that is not done in
 * time is ended with all that it started. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOOK_NS    (10 * NS_PER_S)
#define EXIT_RETRY 75
#define ARGV_MAX   64

/* env(1) makes the environment empty first: ours may hold what is not the hook's. */
static const char *const prefix[] = {
	"/usr/bin/env", "-i",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"
};
#define PREFIX (sizeof(prefix) / sizeof(*prefix))

struct hook {
	char worker[128], gpu[288], reason[96], bytes[48];
	const char *argv[PREFIX + 4 + ARGV_MAX + 1];
};

static int build(const struct worker_call *c, const char *const *argv, struct hook *h,
		 char *message, size_t size)
{
	const char **to = h->argv;
	size_t n = 0;

	if (!argv || !argv[0]) {
		snprintf(message, size, "no program is named for this");
		return -GW_E_NOSUPPORT;
	}
	while (argv[n])
		n++;
	if (n > ARGV_MAX || strchr(argv[0], '=')) {
		snprintf(message, size, "%s",
			 n > ARGV_MAX ? "more than 64 arguments"
				      : "the program's name has a = in it");
		return -GW_E_ARG;
	}
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

/* 0 and its wait status; its last line. */
static int wait_for(struct child *child, uint64_t deadline_ns, char *last, size_t size,
		    int *ret_status)
{
	const char *line;
	int rc;

	last[0] = '\0';
	/* One that says something without end is not done either. */
	while ((rc = child_line(child, deadline_ns, &line)) > 0) {
		if (line[0])
			utf8_clean(last, size, line);
		if (clock_mono_ns(clock_real()) >= deadline_ns)
			return -GW_E_TIMEOUT;
	}
	return rc ? rc : child_wait(child, deadline_ns, ret_status);
}

/* One that has ended by itself: what it started and left running is what it was for. */
static void let_go(struct child *child)
{
	while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (child->out_fd >= 0)
		close(child->out_fd);
	if (child->pidfd >= 0)
		close(child->pidfd);
}

static int judge(int status, const char *program, const char *last, char *message, size_t size)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	if (code == 0) {
		snprintf(message, size, "%s", last);
		return 0;
	}
	snprintf(message, size, "%.60s: exit status %d%s%s", program, code, last[0] ? ": " : "",
		 last);
	return code == EXIT_RETRY ? -GW_E_STATE : code == 127 ? -GW_E_NOSUPPORT : -GW_E_IO;
}

static int run(struct worker_call *c, const char *const *argv, char *message, size_t size)
{
	uint64_t limit = clock_mono_ns(clock_real()) + HOOK_NS;
	struct child child;
	struct hook hook;
	char last[120];
	int status = 0, rc = build(c, argv, &hook, message, size);

	if (rc)
		return rc;
	rc = child_start(&child, hook.argv, NULL);
	if (rc) {
		snprintf(message, size, "%.60s cannot be started", argv[0]);
		return rc;
	}
	rc = wait_for(&child, limit < c->deadline_ns ? limit : c->deadline_ns, last,
		      sizeof(last), &status);
	if (rc == 0) {
		let_go(&child);
		return judge(status, argv[0], last, message, size);
	}
	child_stop(&child);
	snprintf(message, size, "%.60s: %s", argv[0],
		 rc == -GW_E_TIMEOUT ? "not done in time, ended" : "its output cannot be read");
	return rc;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	return run(c, c->worker->evict_argv, message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	return run(c, c->worker->resume_argv, message, size);
}

const struct worker_ops worker_exec = { .evict = evict, .resume = resume };
