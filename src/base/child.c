#include "child.h"

#include "clock.h"
#include "file.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to wait for the end of a killed child. A process that hangs in a driver does not end
 * when it is killed; we then stop waiting and leave it behind. */
#define END_NS NS_PER_S

/* Polling interval for the end of the child on kernels without pidfd_open (before 5.3). */
#define POLL_NS (10 * NS_PER_MS)

extern char **environ;

/* True if a string of `extra` ("NAME=value") sets the same variable as `entry`. */
static bool child_overrides(const char *entry, const char *const extra[])
{
	size_t n = strcspn(entry, "=");

	for (size_t i = 0; extra && extra[i]; i++)
		if (strncmp(entry, extra[i], n) == 0 && extra[i][n] == '=')
			return true;
	return false;
}

/* Returns our environment with the overrides in `extra`. The caller frees the array but not the
 * strings. */
static char **environ_new(const char *const extra[])
{
	size_t ours = 0, more = 0, n = 0;
	char *none[] = { NULL }, **own = environ ? environ : none, **env;

	while (own[ours])
		ours++;
	while (extra && extra[more])
		more++;
	env = malloc((ours + more + 1) * sizeof(*env));
	if (!env)
		return NULL;
	for (size_t i = 0; i < ours; i++)
		if (!child_overrides(own[i], extra))
			env[n++] = own[i];
	for (size_t i = 0; i < more; i++)
		env[n++] = (char *)(uintptr_t)extra[i];
	env[n] = NULL;
	return env;
}

static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int e;

	sigemptyset(&none);
	sigfillset(&all);
	e = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						   POSIX_SPAWN_SETSIGDEF);
	e = e ? e : posix_spawnattr_setpgroup(attr, 0);
	e = e ? e : posix_spawnattr_setsigmask(attr, &none);
	return e ? e : posix_spawnattr_setsigdefault(attr, &all);
}

/* Redirects standard output before the other two descriptors. If this program had closed its
 * descriptor 0 or 2, `out` may have that number, and opening /dev/null there would replace
 * `out`. */
static int set_descriptors(posix_spawn_file_actions_t *actions, int out)
{
	int e = posix_spawn_file_actions_adddup2(actions, out, 1);

	e = e ? e : posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
	e = e ? e : posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
	e = e ? e : posix_spawn_file_actions_addclosefrom_np(actions, 3);
#endif
	return e;
}

/* Starts the program with `out` as its standard output. Returns 0 and *ret_pid, or an errno. */
static int child_spawn(const char *const argv[], const char *const extra[], int out,
		       pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char **env = environ_new(extra);
	int e = ENOMEM;

	if (!env)
		return e;
	if (posix_spawnattr_init(&attr) != 0)
		goto free_env;
	if (posix_spawn_file_actions_init(&actions) != 0)
		goto free_attr;
	e = set_attributes(&attr);
	e = e ? e : set_descriptors(&actions, out);
	e = e ? e
	      : posix_spawnp(ret_pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv,
			     env);
	posix_spawn_file_actions_destroy(&actions);
free_attr:
	posix_spawnattr_destroy(&attr);
free_env:
	free(env);
	return e;
}

int child_start(struct child *c, const char *const argv[], const char *const environ_extra[])
{
	int ends[2], e;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return file_error(errno);
	e = child_spawn(argv, environ_extra, ends[1], &pid);
	close(ends[1]);
	if (e) {
		close(ends[0]);
		return file_error(e);
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	c->pid = pid;
	c->out_fd = ends[0];
	c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	c->fill = c->used = 0;
	c->skipping = false;
	return 0;
}

/* True if the child has ended; writes its wait status. Does not reap the child: until it is
 * reaped, no other process can get its pid, so its process group can be signalled safely. */
static bool has_ended(const struct child *c, int *ret_status)
{
	siginfo_t info = { 0 };
	int rc;

	do {
		rc = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
	} while (rc != 0 && errno == EINTR);
	if (rc == 0 && info.si_pid == 0)
		return false;
	/* If the calling program ignores SIGCHLD, the kernel reaps the child, and its status is
	 * unknown. */
	if (rc != 0)
		*ret_status = 0;
	else if (info.si_code == CLD_EXITED)
		*ret_status = (info.si_status & 0xff) << 8;
	else
		*ret_status = info.si_status & 0x7f;
	return true;
}

static bool child_expired(uint64_t deadline_ns)
{
	return clock_mono_ns(clock_real()) >= deadline_ns;
}

/* Waits until the child ends or, if `out` is true, until there is output. May return 0 earlier,
 * so the caller must check again. Returns 0, -GW_E_TIMEOUT or -GW_E_IO. */
static int wait_event(const struct child *c, bool out, uint64_t deadline_ns)
{
	struct pollfd p[] = { { .fd = out ? c->out_fd : -1, .events = POLLIN },
			      { .fd = c->pidfd, .events = POLLIN } };
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
	struct timespec ts;
	int n;

	if (c->pidfd < 0 && left > POLL_NS)
		left = POLL_NS;
	ts = clock_timespec(left);
	n = ppoll(p, 2, &ts, NULL);
	if (n < 0)
		return errno == EINTR ? 0 : -GW_E_IO;
	return n == 0 && now >= deadline_ns ? -GW_E_TIMEOUT : 0;
}

long child_read(struct child *c, uint64_t deadline_ns, char *out, size_t size)
{
	int status, rc;

	for (;;) {
		/* Before reading, check whether the child has ended: output that arrives after
		 * its end is from another process. */
		bool ended = has_ended(c, &status);
		ssize_t n = read(c->out_fd, out, size);

		if (n >= 0)
			return n;
		if (errno == EAGAIN && ended)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -GW_E_IO;
		rc = wait_event(c, true, deadline_ns);
		if (rc < 0)
			return rc;
	}
}

int child_wait(struct child *c, uint64_t deadline_ns, int *ret_status)
{
	while (!has_ended(c, ret_status)) {
		int rc = wait_event(c, false, deadline_ns);

		if (rc < 0)
			return -GW_E_TIMEOUT;
	}
	return 0;
}

/* Returns the next complete line of the buffer in *ret_line, or false if there is none. */
static bool next_buffered_line(struct child *c, const char **ret_line)
{
	char *end;

	memmove(c->line, c->line + c->used, c->fill - c->used);
	c->fill -= c->used;
	c->used = 0;
	for (;;) {
		end = memchr(c->line, '\n', c->fill);
		if (!end)
			return false;
		c->used = (size_t)(end + 1 - c->line);
		if (!c->skipping)
			break;
		c->skipping = false;
		c->fill -= c->used;
		memmove(c->line, end + 1, c->fill);
		c->used = 0;
	}
	*end = '\0';
	*ret_line = c->line;
	return true;
}

/* Returns the text after the last newline, if there is any, as one more line. */
static int last_line(struct child *c, const char **ret_line)
{
	if (c->fill == 0 || c->skipping) {
		c->fill = 0;
		return 0;
	}
	c->line[c->fill] = '\0';
	c->used = c->fill;
	*ret_line = c->line;
	return 1;
}

int child_line(struct child *c, uint64_t deadline_ns, const char **ret_line)
{
	while (!next_buffered_line(c, ret_line)) {
		long n;

		if (c->fill == sizeof(c->line) - 1) {
			c->skipping = true;
			c->fill = 0;
		}
		if (c->out_fd < 0)
			return last_line(c, ret_line);
		n = child_read(c, deadline_ns, c->line + c->fill,
			       sizeof(c->line) - 1 - c->fill);
		if (n < 0)
			return (int)n;
		c->fill += (size_t)n;
		if (n == 0) {
			close(c->out_fd);
			c->out_fd = -1;
		} else if (child_expired(deadline_ns) && !memchr(c->line, '\n', c->fill)) {
			return -GW_E_TIMEOUT;
		}
	}
	return 1;
}

void child_stop(struct child *c)
{
	int status;

	/* Do not signal if the kernel has reaped the child: its pid may belong to another
	 * process by now. */
	if (waitid(P_PID, (id_t)c->pid, &(siginfo_t){ 0 }, WEXITED | WNOHANG | WNOWAIT) == 0)
		kill(-c->pid, SIGKILL);
	if (child_wait(c, clock_mono_ns(clock_real()) + END_NS, &status) == 0)
		while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
			;
	if (c->out_fd >= 0)
		close(c->out_fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->out_fd = c->pidfd = -1;
}

/* Reads all output. Stores as much as fits into out and discards the rest, because the child
 * would block if nobody read its output. Returns 0, -GW_E_SIZE if output was discarded, or an
 * error. */
static int read_all(struct child *c, uint64_t deadline_ns, char *out, size_t size)
{
	char rest[512];
	size_t used = 0;
	bool cut = false;
	long n;

	do {
		bool fits = used + 1 < size;

		n = fits ? child_read(c, deadline_ns, out + used, size - 1 - used)
			 : child_read(c, deadline_ns, rest, sizeof(rest));
		if (n > 0 && fits)
			used += (size_t)n;
		cut = cut || (n > 0 && !fits);
	} while (n > 0 && !child_expired(deadline_ns));
	if (out)
		out[used] = '\0';
	if (n != 0)
		return n > 0 ? -GW_E_TIMEOUT : (int)n;
	return out && cut ? -GW_E_SIZE : 0;
}

int child_run(const char *const argv[], uint64_t deadline_ns, char *out, size_t size)
{
	struct child c;
	int status = 0, rc = child_start(&c, argv, NULL), output;

	if (out)
		out[0] = '\0';
	if (rc)
		return rc;
	output = read_all(&c, deadline_ns, out, size);
	if (output == 0 || output == -GW_E_SIZE)
		rc = child_wait(&c, deadline_ns, &status);
	child_stop(&c);
	if (rc || output)
		return rc ? rc : output;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool child_exists(const char *program)
{
	const char *path = getenv("PATH");
	char full[4096];

	if (strchr(program, '/'))
		return access(program, X_OK) == 0;
	for (path = path ? path : "/bin:/usr/bin"; path; path = strchr(path, ':')) {
		path += *path == ':';
		snprintf(full, sizeof(full), "%.*s/%s", (int)strcspn(path, ":"), path, program);
		if (access(full, X_OK) == 0)
			return true;
	}
	return false;
}
