#include "runner.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem_trim.h"
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
/* Longest wait for the sample that covers the end of the run. */
#define LAST_NS  (3 * NS_PER_S)
#define MARK_ENV "GPUWARD_MARK_FD"

extern char **environ;

static bool was_open(const struct runner_inherit *in, int fd)
{
	return fd >= RUNNER_FDS || in->open[fd / 8] & 1u << fd % 8;
}

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

/* Sets FD_CLOEXEC on a descriptor that gpuward opened, because the driver's library opens
 * devices without this flag. */
static void close_on_exec(void *arg, int fd)
{
	const struct runner_inherit *in = arg;

	if (!was_open(in, fd))
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Chooses the number of the descriptor for marks. The number has one digit if possible, because
 * sh cannot redirect output to a descriptor with more digits. */
static int mark_number(const struct runner_inherit *in, int fallback)
{
	for (int fd = 9; fd > 2; fd--)
		if (!was_open(in, fd))
			return fd;
	return fallback;
}

/* Returns a copy of the environment in which `variable`, "GPUWARD_MARK_FD=N", replaces an
 * earlier value. Returns NULL if there is no memory. The caller frees the array. */
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

/* The signals that are forwarded to the command. */
static const struct {
	int number;
	bool ends; /* The signal requests the end: no further run is started. */
} forwarded[] = {
	{ SIGINT, true },   { SIGQUIT, true },  { SIGTERM, true },  { SIGHUP, true },
	{ SIGUSR1, false }, { SIGUSR2, false }, { SIGALRM, false }, { SIGCONT, false },
};
#define FORWARDED (sizeof(forwarded) / sizeof(forwarded[0]))

void runner_signals(sigset_t *set)
{
	struct sigaction now;

	/* The parent may ignore SIGCHLD; then the exit status of a child would be lost. */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < FORWARDED; i++)
		if (sigaction(forwarded[i].number, NULL, &now) == 0 &&
		    now.sa_handler != SIG_IGN)
			sigaddset(set, forwarded[i].number);
}

static bool signal_ends(int number)
{
	for (size_t i = 0; i < FORWARDED; i++)
		if (forwarded[i].number == number)
			return forwarded[i].ends;
	return false;
}

int runner_begin(struct runner *r)
{
	sigset_t set;

	r->interrupted = 0;
	runner_signals(&set);
	r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->signal_fd < 0)
		return -GW_E_IO;
	pthread_sigmask(SIG_BLOCK, &set, &r->mask);
	return 0;
}

/* Reads the pending signals, and notes a signal that requests the end. Forwards to the command
 * the signals that the terminal did not already send to it. */
static void read_signals(struct runner *r, pid_t pid)
{
	struct signalfd_siginfo s;

	while (read(r->signal_fd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		int number = (int)s.ssi_signo;
		bool keyboard =
			(number == SIGINT || number == SIGQUIT) && s.ssi_code == SI_KERNEL;

		if (number == SIGCHLD)
			continue; /* SIGCHLD is caught only to end the poll. */
		if (signal_ends(number))
			r->interrupted = number;
		if (pid > 0 && !keyboard)
			kill(pid, number);
	}
}

void runner_end(struct runner *r)
{
	read_signals(r, 0); /* Discard the signals that are still pending. */
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
	/* The loop runs at least once. If until_ns is in the past, the loop only checks for
	 * signals. */
	do {
		struct pollfd fd = { r->signal_fd, POLLIN, 0 };

		if (poll_until(&fd, 1, until_ns) > 0)
			read_signals(r, 0);
	} while (!r->interrupted && clock_mono_ns(clock_real()) < until_ns);
	return r->interrupted != 0;
}

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

struct child {
	pid_t pid;
	int pid_fd;
	int mark_fd; /* Reading end of the pipe for marks. -1: closed. */
};

int runner_spawn(char *const argv[], char *const env[],
		 const posix_spawn_file_actions_t *actions, const sigset_t *mask,
		 bool pipe_ignored, pid_t *ret_pid)
{
	posix_spawnattr_t attr;
	sigset_t reset;
	int err;

	sigemptyset(&reset);
	if (!pipe_ignored)
		sigaddset(&reset, SIGPIPE);
	sigaddset(&reset, SIGXFSZ); /* main() ignores this signal, but the command must not. */
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &reset);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	/* posix_spawnp() returns after exec() has succeeded or failed, and returns the error of
	 * exec(). */
	err = posix_spawnp(ret_pid, argv[0], actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	return err;
}

int runner_spawn_status(int error)
{
	return error == ENOENT || error == ENOTDIR ? 127 : 126;
}

/* Starts the command with the descriptor for marks.  Returns 0 or an errno. */
static int spawn_marked(const struct runner *r, char *const argv[], int mark_fd, pid_t *ret_pid)
{
	char variable[sizeof(MARK_ENV) + 16];
	int number = mark_number(r->inherit, mark_fd), err;
	posix_spawn_file_actions_t actions;
	char **env;

	snprintf(variable, sizeof(variable), MARK_ENV "=%d", number);
	env = with_mark(variable);
	if (!env)
		return ENOMEM;
	each_descriptor(close_on_exec, (void *)(uintptr_t)r->inherit);
	posix_spawn_file_actions_init(&actions);
	for (int fd = 0; fd < 3; fd++)
		if (r->stdio[fd] > 0)
			posix_spawn_file_actions_adddup2(&actions, r->stdio[fd], fd);
	/* dup2() clears FD_CLOEXEC, so the command inherits the descriptor. */
	posix_spawn_file_actions_adddup2(&actions, mark_fd, number);
	err = runner_spawn(argv, env, &actions, &r->mask, r->inherit->pipe_ignored, ret_pid);
	posix_spawn_file_actions_destroy(&actions);
	free(env);
	return err;
}

/* Reads what the command has written to the pipe. One call reads at most as much as a full pipe
 * holds, so that a command that never stops writing cannot block gpuward. */
static void read_marks(struct child *s, struct progress_marks *marks)
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

/* Returns true if the command has ended.  Without a pidfd (kernel before 5.3, some sandboxes),
 * SIGCHLD ends the poll. */
static bool has_ended(const struct child *s, const struct pollfd *fd)
{
	siginfo_t info = { 0 };

	if (s->pid_fd >= 0)
		return fd->revents != 0;
	return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == s->pid;
}

static uint64_t wait_for_end(struct runner *r, struct child *s, struct runner_run *run)
{
	uint64_t every = r->watch_ns ? r->watch_ns : NS_PER_S, due = run->begin_ns + every;
	const uint64_t settled_ns = run->begin_ns + NS_PER_S;
	bool trimmed = false;

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
			read_signals(r, s->pid);
		if (n > 0 && has_ended(s, &fds[0]))
			return now;
		if (now < due)
			continue;
		due = now + every;
		progress_marks_update(&run->marks, now);
		if (r->watch)
			r->watch(r->arg, run->window, &run->marks);
		if (!trimmed && now >= settled_ns)
			trimmed = mem_trim_code() > 0;
	}
}

static void runner_reap(const struct child *s, struct runner_run *run)
{
	int status = 0;

	while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
		;
	run->exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	run->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run_measured(struct runner *r, char *const argv[], const char *label, int mark_fd,
			struct child *s, struct runner_run *run)
{
	int err;

	run->begin_wall_ns = clock_wall_ns(clock_real());
	run->begin_ns = clock_mono_ns(clock_real());
	err = gw_window_open(r->meter, label, run->begin_ns, &run->window);
	if (!err && r->series)
		run_trace_begin(r->series, run->begin_ns);
	if (!err)
		run->error = spawn_marked(r, argv, mark_fd, &s->pid);
	close(mark_fd);
	if (err || run->error)
		return err;
	s->pid_fd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	progress_marks_init(&run->marks, r->meter, r->part, run->begin_ns);
	run->end_ns = wait_for_end(r, s, run);
	window_hurry(run->window);
	gw_window_close(run->window, run->end_ns);
	runner_reap(s, run);
	if (s->pid_fd >= 0)
		close(s->pid_fd);
	run->seconds = (double)(run->end_ns - run->begin_ns) * 1e-9;
	read_marks(s, &run->marks);
	if (r->meanwhile)
		r->meanwhile(r->arg);
	/* If the wait fails, the result has a validity code that says so. */
	run->late = gw_window_wait(run->window, LAST_NS) != 0;
	progress_marks_finish(&run->marks, run->end_ns);
	return 0;
}

int runner_run(struct runner *r, char *const argv[], const char *label, struct runner_run *ret)
{
	struct child s = { .pid = -1, .pid_fd = -1, .mark_fd = -1 };
	struct runner_run run = { .exit_status = -1, .seconds = NAN };
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -GW_E_IO;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	s.mark_fd = fds[0];
	err = run_measured(r, argv, label, fds[1], &s, &run);
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
		return runner_spawn_status(run->error);
	return run->exit_signal ? 128 + run->exit_signal : run->exit_status;
}

#define COOLDOWN_MOST_S 60
/* A GPU may be this many degrees warmer than at the start of the first run. */
#define COOLDOWN_MARGIN_C 2.0

int cooldown_init(struct cooldown *k)
{
	k->waited_s = 0;
	k->late = 0;
	k->now_c = k->late_c = NAN;
	k->late_gpu = -1;
	for (unsigned i = 0; i < COOLDOWN_DEVICES; i++)
		k->mark_c[i] = k->to_c;
	return gw_snapshot_new(k->ctx, &k->snap);
}

void cooldown_done(struct cooldown *k)
{
	gw_snapshot_free(k->snap);
	k->snap = NULL;
}

/* The temperatures of one reading, and the GPU that is farthest above its target. */
struct farthest {
	double over_c, now_c; /* Both are NAN if no GPU has a temperature. */
	unsigned i, index;
	struct cooldown_gpu gpu[COOLDOWN_DEVICES];
	unsigned gpus;
};

static unsigned read_meter(struct cooldown *k, struct cooldown_gpu *ret)
{
	unsigned n = gw_meter_device_count(k->runner->meter), i;

	if (gw_snapshot_take(k->snap, GW_TIER_FAST) != 0)
		return 0;
	for (i = 0; i < n && i < COOLDOWN_DEVICES; i++) {
		const struct gw_device *d =
			gw_snapshot_device(k->snap, gw_meter_device(k->runner->meter, i));

		ret[i] = (struct cooldown_gpu){ d ? d->index : 0, NAN };
		if (d)
			gw_device_value(d, GW_Q_TEMPERATURE_GPU, &ret[i].c);
	}
	return i;
}

static void find_farthest(struct cooldown *k, struct farthest *f)
{
	f->gpus = k->read ? k->read(k->arg, f->gpu) : read_meter(k, f->gpu);
	f->over_c = f->now_c = k->now_c = NAN;
	for (unsigned i = 0; i < f->gpus; i++) {
		double c = f->gpu[i].c;

		if (isnan(c))
			continue;
		k->now_c = fmax(k->now_c, c);
		if (isnan(k->mark_c[i])) /* Set the target at the start of the first run. */
			k->mark_c[i] = c + COOLDOWN_MARGIN_C;
		if (!(c - k->mark_c[i] <= f->over_c)) {
			f->over_c = c - k->mark_c[i];
			f->now_c = c;
			f->i = i;
			f->index = f->gpu[i].index;
		}
	}
}

bool cooldown_wait(struct cooldown *k)
{
	uint64_t begin = clock_mono_ns(clock_real()), now = begin;
	struct farthest f;

	k->late_gpu = -1;
	find_farthest(k, &f);
	while (f.over_c > 0 && now - begin < COOLDOWN_MOST_S * NS_PER_S) {
		if (k->report)
			k->report(k->arg, f.index, f.now_c, k->mark_c[f.i],
				  COOLDOWN_MOST_S - (double)(now - begin) * 1e-9);
		if (runner_sleep(k->runner, now + NS_PER_S / 2))
			break;
		find_farthest(k, &f);
		now = clock_mono_ns(clock_real());
	}
	if (now > begin)
		k->waited_s += (double)(now - begin) * 1e-9;
	if (f.over_c > 0 && !k->runner->interrupted) {
		k->late++;
		k->late_c = f.now_c;
		k->late_gpu = (int)f.index;
		for (unsigned i = 0; i < f.gpus; i++)
			if (f.gpu[i].c > k->mark_c[i])
				k->mark_c[i] = f.gpu[i].c;
	}
	return k->runner->interrupted != 0;
}

int tail_open(struct tail *t)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -GW_E_IO;
	/* Make only the reading end non-blocking. The command gets the writing end and expects
	 * that it blocks. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	t->read_fd = fds[0];
	t->write_fd = fds[1];
	t->fill = 0;
	return 0;
}

void tail_close(struct tail *t)
{
	close(t->read_fd);
	close(t->write_fd);
}

static void tail_append(struct tail *t, const char *text, size_t n)
{
	size_t over;

	if (n > TAIL_BYTES) {
		text += n - TAIL_BYTES;
		n = TAIL_BYTES;
	}
	over = t->fill + n > TAIL_BYTES ? t->fill + n - TAIL_BYTES : 0;
	memmove(t->text, t->text + over, t->fill - over);
	t->fill -= over;
	memcpy(t->text + t->fill, text, n);
	t->fill += n;
}

/* Reads what the command has written to the pipe. One call reads at most as much as a full pipe
 * holds, so that a command that never stops writing cannot block gpuward. */
void tail_drain(struct tail *t)
{
	char text[4096];
	ssize_t n = 1;

	for (unsigned i = 0; i < 16 && n > 0; i++) {
		n = read(t->read_fd, text, sizeof(text));
		if (n > 0)
			tail_append(t, text, (size_t)n);
	}
}

void tail_clear(struct tail *t)
{
	tail_drain(t);
	t->fill = 0;
}

void tail_lines(struct tail *t, unsigned lines, char *out, size_t size)
{
	size_t end, at;
	struct buf b;

	tail_drain(t);
	end = t->fill;
	while (end > 0 && t->text[end - 1] == '\n')
		end--;
	for (at = end; at > 0; at--)
		if (t->text[at - 1] == '\n' && --lines == 0)
			break;
	buf_init_fixed(&b, out, size);
	if (at < end)
		buf_adds(&b, "\n  ");
	for (; at < end; at++) {
		unsigned char c = (unsigned char)t->text[at];

		if (c == '\n')
			buf_adds(&b, "\n  ");
		else if (c >= ' ' && c != 0x7f)
			buf_addc(&b, (char)c);
	}
}
