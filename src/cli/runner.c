#include "runner.h"

#include "base/clock.h"
#include "measure/meter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_NS (100 * NS_PER_MS)
#define LAST_NS  (3 * NS_PER_S) /* for the sample that covers the end */
#define MARK_ENV "GPUWARD_MARK_FD"

extern char **environ;

/* ---- what is handed on ---- */

static bool was_open(const struct runner_inherit *in, int fd)
{
	return fd >= RUNNER_FDS || in->open[fd / 8] & 1u << fd % 8;
}

/* Calls what for each descriptor of ours. */
static void each_descriptor(void (*what)(void *arg, int fd), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(dir))
			what(arg, atoi(e->d_name));
	if (dir)
		closedir(dir);
}

static void note_open(void *arg, int fd)
{
	struct runner_inherit *in = arg;

	if (fd < RUNNER_FDS)
		in->open[fd / 8] |= (unsigned char)(1u << fd % 8);
}

void runner_inherit(struct runner_inherit *in, bool pipe_ignored)
{
	memset(in, 0, sizeof(*in));
	in->pipe_ignored = pipe_ignored;
	each_descriptor(note_open, in);
}

/* A driver's library opens devices without saying that they end with exec. */
static void keep_ours(void *arg, int fd)
{
	const struct runner_inherit *in = arg;

	if (!was_open(in, fd))
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* The number that marks get in the command: one digit, as sh can write to no other. */
static int mark_number(const struct runner_inherit *in, int fallback)
{
	for (int fd = 9; fd > 2; fd--)
		if (!was_open(in, fd))
			return fd;
	return fallback;
}

/* The environment and one variable more; the caller frees the array. */
static char **with_mark(const char *variable)
{
	size_t n = 0, keep = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 2, sizeof(char *));
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], MARK_ENV "=", sizeof(MARK_ENV)) != 0)
			env[keep++] = environ[i];
	if (env)
		memcpy(&env[keep], &variable, sizeof(char *));
	return env;
}

/* ---- signals ---- */

/* One that is ignored (nohup, a background job of sh) stays so, for us and for the command. */
static void wanted_signals(sigset_t *set)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD };
	struct sigaction now;

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
}

int runner_begin(struct runner *r)
{
	sigset_t set;

	r->interrupted = 0;
	/* Whoever started us may ignore SIGCHLD, and then no status of a child can be had. */
	signal(SIGCHLD, SIG_DFL);
	wanted_signals(&set);
	r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->signal_fd < 0)
		return -GW_E_IO;
	pthread_sigmask(SIG_BLOCK, &set, &r->mask);
	return 0;
}

/* Takes the signals that have come; those that the command has not got are sent to it. */
static void take_signals(struct runner *r, pid_t pid)
{
	struct signalfd_siginfo s;

	while (read(r->signal_fd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		int number = (int)s.ssi_signo;
		bool keyboard =
			(number == SIGINT || number == SIGQUIT) && s.ssi_code == SI_KERNEL;

		if (number == SIGCHLD)
			continue; /* it has woken us, that is all */
		r->interrupted = number;
		if (pid > 0 && !keyboard)
			kill(pid, number);
	}
}

void runner_end(struct runner *r)
{
	take_signals(r, 0); /* they have had their effect */
	close(r->signal_fd);
	pthread_sigmask(SIG_SETMASK, &r->mask, NULL);
}

static int poll_until(struct pollfd *fds, nfds_t n, uint64_t until_ns)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t left = until_ns > now ? until_ns - now : 0;
	struct timespec t = clock_timespec(left);

	return ppoll(fds, n, &t, NULL);
}

bool runner_sleep(struct runner *r, uint64_t until_ns)
{
	do { /* once in any case: whoever does not sleep asks whether a signal came */
		struct pollfd fd = { r->signal_fd, POLLIN, 0 };

		if (poll_until(&fd, 1, until_ns) > 0)
			take_signals(r, 0);
	} while (!r->interrupted && clock_mono_ns(clock_real()) < until_ns);
	return r->interrupted != 0;
}

/* ---- a run ---- */

static bool all_ready(struct runner *r)
{
	struct meter_progress p;

	for (unsigned i = 0; i < gw_meter_device_count(r->meter); i++) {
		meter_progress(r->meter, i, &p);
		if (meter_setup(r->meter, i).shape != SHAPE_NONE && p.samples == 0)
			return false;
	}
	return true;
}

void runner_ready(struct runner *r)
{
	uint64_t now = clock_mono_ns(clock_real()), until = now + READY_NS;

	while (!all_ready(r) && now < until && !runner_sleep(r, now + NS_PER_MS / 4))
		now = clock_mono_ns(clock_real());
}

struct started {
	pid_t pid;
	int pid_fd;
	int mark_fd; /* what the command writes there is read here; -1: it was closed */
};

/* 0 or an errno. */
static int spawn(const struct runner *r, char *const argv[], int mark_fd, pid_t *ret_pid)
{
	char variable[sizeof(MARK_ENV) + 16];
	int number = mark_number(r->inherit, mark_fd), err;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t reset;
	char **env;

	snprintf(variable, sizeof(variable), MARK_ENV "=%d", number);
	env = with_mark(variable);
	if (!env)
		return ENOMEM;
	each_descriptor(keep_ours, (void *)(uintptr_t)r->inherit);
	posix_spawn_file_actions_init(&actions);
	for (int fd = 0; fd < 3; fd++)
		if (r->stdio[fd] > 0)
			posix_spawn_file_actions_adddup2(&actions, r->stdio[fd], fd);
	posix_spawn_file_actions_adddup2(&actions, mark_fd, number); /* and it stays open */
	posix_spawnattr_init(&attr);
	sigemptyset(&reset);
	if (!r->inherit->pipe_ignored)
		sigaddset(&reset, SIGPIPE);
	sigaddset(&reset, SIGXFSZ); /* main() ignores it: a file that grows too long is told */
	posix_spawnattr_setsigdefault(&attr, &reset);
	posix_spawnattr_setsigmask(&attr, &r->mask);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	/* It returns when the command runs, or with what exec said. */
	err = posix_spawnp(ret_pid, argv[0], &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	free(env);
	return err;
}

/* At most what a full pipe holds, so that a command that never stops writing cannot keep us. */
static void read_marks(struct started *s, struct progress_marks *marks)
{
	char text[4096];
	ssize_t n = 1;

	for (unsigned i = 0; i < 16 && s->mark_fd >= 0 && n > 0; i++) {
		n = read(s->mark_fd, text, sizeof(text));
		if (n > 0)
			progress_marks_feed(marks, text, (size_t)n,
					    clock_mono_ns(clock_real()));
	}
	if (n == 0) {
		close(s->mark_fd);
		s->mark_fd = -1;
	}
}

/* Where there is no pidfd (a kernel before 5.3, some sandboxes) SIGCHLD wakes us. */
static bool has_ended(const struct started *s, const struct pollfd *fd)
{
	siginfo_t info = { 0 };

	if (s->pid_fd >= 0)
		return fd->revents != 0;
	return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == s->pid;
}

/* Until it has ended; the moment at which that was seen. */
static uint64_t follow(struct runner *r, struct started *s, struct runner_run *run)
{
	uint64_t every = r->watch_ns ? r->watch_ns : NS_PER_S, due = run->begin_ns + every;

	for (;;) {
		struct pollfd fds[] = { { s->pid_fd, POLLIN, 0 },
					{ r->signal_fd, POLLIN, 0 },
					{ s->mark_fd, POLLIN, 0 },
					{ r->drain ? r->drain_fd : -1, POLLIN, 0 } };
		int n = poll_until(fds, 4, due);
		uint64_t now = clock_mono_ns(clock_real());

		if (n > 0 && fds[2].revents)
			read_marks(s, &run->marks);
		if (n > 0 && fds[3].revents)
			r->drain(r->arg);
		if (n > 0 && fds[1].revents)
			take_signals(r, s->pid);
		if (n > 0 && has_ended(s, &fds[0]))
			return now;
		if (now < due)
			continue;
		due = now + every;
		progress_marks_tend(&run->marks, now);
		if (r->watch)
			r->watch(r->arg, run->window, &run->marks);
	}
}

static void reap(const struct started *s, struct runner_run *run)
{
	int status = 0;

	while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
		;
	run->exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	run->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int measure(struct runner *r, char *const argv[], const char *label, int mark_fd,
		   struct started *s, struct runner_run *run)
{
	int err;

	run->begin_wall_ns = clock_wall_ns(clock_real());
	run->begin_ns = clock_mono_ns(clock_real());
	err = gw_window_open(r->meter, label, run->begin_ns, &run->window);
	if (!err && r->series)
		run_trace_begin(r->series, run->begin_ns);
	if (!err)
		run->error = spawn(r, argv, mark_fd, &s->pid);
	close(mark_fd);
	if (err || run->error)
		return err;
	s->pid_fd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	progress_marks_init(&run->marks, r->meter, r->part, run->begin_ns);
	run->end_ns = follow(r, s, run);
	window_hurry(run->window);
	gw_window_close(run->window, run->end_ns);
	reap(s, run);
	if (s->pid_fd >= 0)
		close(s->pid_fd);
	run->seconds = (double)(run->end_ns - run->begin_ns) * 1e-9;
	read_marks(s, &run->marks);
	if (r->meanwhile)
		r->meanwhile(r->arg);
	run->late = gw_window_wait(run->window, LAST_NS) != 0; /* and coded so */
	progress_marks_finish(&run->marks, run->end_ns);
	return 0;
}

int runner_run(struct runner *r, char *const argv[], const char *label, struct runner_run *ret)
{
	struct started s = { .pid = -1, .pid_fd = -1, .mark_fd = -1 };
	struct runner_run run = { .exit_status = -1, .seconds = NAN };
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -GW_E_IO;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	s.mark_fd = fds[0];
	err = measure(r, argv, label, fds[1], &s, &run);
	if (s.mark_fd >= 0)
		close(s.mark_fd);
	if (err || run.error) {
		gw_window_free(run.window);
		run.window = NULL;
	}
	if (!err)
		*ret = run;
	return err;
}

void runner_run_done(struct runner_run *run)
{
	progress_marks_done(&run->marks);
	gw_window_free(run->window);
	run->window = NULL;
}

int runner_status(const struct runner_run *run)
{
	if (run->error)
		return run->error == ENOENT || run->error == ENOTDIR ? 127 : 126;
	return run->exit_signal ? 128 + run->exit_signal : run->exit_status;
}
