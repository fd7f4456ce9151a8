#include "guard/worker/companion.h"

#include "guard/worker/wire.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NO_LIMIT UINT64_MAX
/* time between attempts to connect while the companion's queue is full */
#define RETRY_NS (20 * NS_PER_MS)
/* time limits for the companion to accept a request, in undo() and companion_recover() */
#define UNDO_WITHIN_NS    (10 * NS_PER_S)
#define RECOVER_WITHIN_NS (30 * NS_PER_S)

static int connect_failed(const char *path, int e, char *message, size_t size)
{
	if (e == EACCES || e == EPERM) {
		snprintf(message, size,
			 "this user may not connect to the companion at %s: add the user to "
			 "the group of that socket",
			 path);
		return -GW_E_PERM;
	}
	snprintf(message, size,
		 "the companion does not run (%s: %s): start it with systemctl enable --now "
		 "gpuward-companion.socket",
		 path, strerror(e));
	return -GW_E_IO;
}

static int connect_once(const struct sockaddr_un *a, int *ret_fd)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e;

	if (fd < 0)
		return errno;
	if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0) {
		*ret_fd = fd;
		return 0;
	}
	e = errno;
	close(fd);
	return e;
}

/* Connects to the companion. Returns a descriptor or a negative gw_error. EAGAIN means that the
 * queue of the socket is full. */
static int connect_until(const char *path, uint64_t deadline_ns, char *message, size_t size)
{
	struct timespec pause = { 0, RETRY_NS };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = -1, e;

	if (strlen(path) >= sizeof(a.sun_path))
		return connect_failed(path, ENAMETOOLONG, message, size);
	memcpy(a.sun_path, path, strlen(path) + 1);
	while ((e = connect_once(&a, &fd)) == EAGAIN || e == EINTR) {
		if (clock_mono_ns(clock_real()) >= deadline_ns) {
			snprintf(message, size, "the companion at %s is busy", path);
			return -GW_E_TIMEOUT;
		}
		nanosleep(&pause, NULL);
	}
	return e ? connect_failed(path, e, message, size) : fd;
}

static int wait_ms(uint64_t deadline_ns)
{
	uint64_t ms = clock_ms_until(clock_real(), deadline_ns);

	return deadline_ns == NO_LIMIT ? -1 : ms > 1000000 ? 1000000 : (int)ms;
}

/* Reads one line without its newline, byte by byte, because lines are short and few. Returns 0,
 * -GW_E_TIMEOUT, or -GW_E_STATE if the connection ends or fails first, or if the line is too
 * long. */
static int read_line(int fd, uint64_t deadline_ns, char line[static WIRE_SIZE])
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	for (;;) {
		ssize_t got = recv(fd, line + n, 1, 0);

		if (got == 1 && line[n] == '\n')
			break;
		if (got == 0 || (got == 1 && ++n == WIRE_SIZE))
			return -GW_E_STATE;
		if (got == 1 || errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -GW_E_STATE;
		if (poll(&p, 1, wait_ms(deadline_ns)) == 0)
			return -GW_E_TIMEOUT;
	}
	line[n] = '\0';
	return 0;
}

static int read_reply(int fd, const struct wire_request *r, uint64_t deadline_ns,
		      struct wire_reply *ret)
{
	bool unlimited = r->verb == WIRE_CHECKPOINT || r->verb == WIRE_RESTORE;
	char line[WIRE_SIZE];
	int rc = read_line(fd, deadline_ns, line);

	if (!rc && strcmp(line, "taken") == 0)
		rc = read_line(fd, unlimited ? NO_LIMIT : deadline_ns, line);
	if (!rc && wire_reply_read(line, ret) != 0)
		rc = -GW_E_STATE;
	return rc;
}

/* Sends a request and reads the reply. Returns 0, or an error with a sentence. After an error,
 * ret->rc is 0 if the companion did not reply. */
static int companion_request(const char *path, const struct wire_request *r,
			     uint64_t deadline_ns, struct wire_reply *ret, char *message,
			     size_t size)
{
	char text[WIRE_SIZE];
	size_t n = wire_write(r, text);
	int fd, rc;

	*ret = (struct wire_reply){ 0 };
	if (n == 0) {
		snprintf(message, size,
			 "match.unit must be the full name of a unit, such as ollama.service");
		return -GW_E_ARG;
	}
	fd = connect_until(path, deadline_ns, message, size);
	if (fd < 0)
		return fd;
	/* The buffer of a new socket holds a whole request. After EPIPE the reply is still
	 * read: the companion may have sent the reason before it closed the connection. */
	rc = send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n || errno == EPIPE ? 0 : -GW_E_STATE;
	rc = rc ? rc : read_reply(fd, r, deadline_ns, ret);
	close(fd);
	if (rc)
		snprintf(message, size, "%s",
			 rc == -GW_E_TIMEOUT ? "the companion did not answer in time"
					     : "the companion ended before it answered (see "
					       "journalctl -u gpuward-companion)");
	else if (ret->rc)
		snprintf(message, size, "%s", ret->words);
	return rc ? rc : ret->rc;
}

/* Connects and sends no request. The companion checks the user before it reads a request, so it
 * refuses a forbidden user at once. */
int companion_reach(const char *path, uint64_t deadline_ns, char *message, size_t size)
{
	int fd = connect_until(path, deadline_ns, message, size), rc;
	char line[WIRE_SIZE];
	struct wire_reply reply;

	if (fd < 0)
		return fd;
	shutdown(fd, SHUT_WR);
	rc = read_line(fd, deadline_ns, line);
	close(fd);
	if (rc == -GW_E_TIMEOUT)
		snprintf(message, size, "the companion at %s does not answer", path);
	if (rc)
		return rc == -GW_E_TIMEOUT ? rc : 0;
	rc = wire_reply_read(line, &reply);
	snprintf(message, size, "%s",
		 rc ? "the program at this socket is not a companion" : reply.words);
	return rc ? rc : reply.rc;
}

static unsigned timeout_ms(uint64_t deadline_ns)
{
	int ms = wait_ms(deadline_ns);

	return ms < 1 ? 1 : ms > WIRE_TIMEOUT_MS ? WIRE_TIMEOUT_MS : (unsigned)ms;
}

static bool has_target(const struct wire_request *r, int64_t pid)
{
	for (unsigned i = 0; i < r->targets; i++)
		if (r->target[i].pid == pid)
			return true;
	return false;
}

/* Copies the valid processes to the request, each once, until the request is full. Returns how
 * many entries of id were read. */
static unsigned add_targets(struct wire_request *r, const struct proc_id *id, unsigned n)
{
	unsigned read = 0;

	for (r->targets = 0; read < n && r->targets < WIRE_TARGETS; read++)
		if (id[read].pid > 1 && id[read].pid <= INT32_MAX &&
		    id[read].start_ticks != 0 && !has_target(r, id[read].pid))
			r->target[r->targets++] = id[read];
	return read;
}

int companion_restore(const char *path, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size)
{
	struct wire_request r = { .verb = WIRE_RESTORE };
	char why[WIRE_WORDS];
	struct wire_reply reply;
	int first = 0, rc;

	while (n > 0) {
		unsigned read = add_targets(&r, id, n);

		id += read;
		n -= read;
		if (r.targets == 0)
			continue;
		r.timeout_ms = timeout_ms(deadline_ns);
		rc = companion_request(path, &r, deadline_ns, &reply, why, sizeof(why));
		if (rc && !first) {
			snprintf(message, size, "%s", why);
			first = rc;
		}
	}
	return first;
}

int companion_recover(const char *path, const struct root *root, const struct proc_id *id,
		      unsigned n, char *message, size_t size)
{
	uint64_t until = clock_mono_ns(clock_real()) + RECOVER_WITHIN_NS;
	int rc = *path ? companion_restore(path, id, n, until, message, size) : 0;

	if (*path && (rc == 0 || geteuid() != 0))
		return rc;
	return checkpoint_restore(root, id, n, message, size);
}

/* Restores the processes of a checkpoint after the companion ended, because a process that
 * stays locked hangs for ever. */
static void undo(const char *path, const struct wire_request *r)
{
	uint64_t until = clock_mono_ns(clock_real()) + UNDO_WITHIN_NS;
	char unused[200];

	companion_restore(path, r->target, r->targets, until, unused, sizeof(unused));
}

int companion_checkpoint(const char *path, const struct proc_id *id, unsigned n,
			 uint64_t deadline_ns, char *message, size_t size)
{
	struct wire_request r = { .verb = WIRE_CHECKPOINT,
				  .timeout_ms = timeout_ms(deadline_ns) };
	struct wire_reply reply;
	int rc;

	if (add_targets(&r, id, n) != n || r.targets == 0) {
		snprintf(message, size,
			 "it has no process that can be checkpointed, or more than 64 "
			 "processes");
		return -GW_E_STATE;
	}
	rc = companion_request(path, &r, deadline_ns, &reply, message, size);
	if (rc == -GW_E_STATE && reply.rc == 0)
		undo(path, &r);
	return rc;
}

int companion_signal(const char *path, int signal, const struct proc_id *id, unsigned n,
		     uint64_t deadline_ns, unsigned *ret_sent, char *message, size_t size)
{
	struct wire_request r = { .verb = WIRE_SIGNAL, .signal = (unsigned)signal };
	struct wire_reply reply = { 0 };
	int rc = 0;

	add_targets(&r, id, n);
	if (r.targets > 0)
		rc = companion_request(path, &r, deadline_ns, &reply, message, size);
	*ret_sent = reply.count;
	return rc;
}

int companion_unit(const char *path, const char *unit, bool start, uint64_t deadline_ns,
		   char *message, size_t size)
{
	struct wire_request r = { .verb = WIRE_UNIT_VERB,
				  .start = start,
				  .timeout_ms = timeout_ms(deadline_ns) };
	struct wire_reply reply;

	snprintf(r.unit, sizeof(r.unit), "%s", strlen(unit) < WIRE_UNIT ? unit : "");
	return companion_request(path, &r, deadline_ns, &reply, message, size);
}
