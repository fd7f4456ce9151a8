#include "serve.h"

#include "allow.h"

#include "guard/worker/wire.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct serving {
	const struct serve_options *o;
	int fd;
	struct allow allow;
	struct root root;
	struct wire_request request;
	struct wire_reply reply;
	int pidfd[WIRE_TARGETS]; /* one per element of request.target */
};

/* Writes the log line before the reply, so that the line is in the log when the client
 * receives the reply. */
static void send_reply(int fd, uid_t uid, const char *what, const struct wire_reply *r)
{
	char text[WIRE_SIZE], line[2 * WIRE_WORDS], words[WIRE_WORDS];
	size_t size;
	int length;

	/* Remove control characters, because a process can choose its own name, and the entry
	 * in the log must stay on one line. */
	utf8_clean(words, sizeof(words), r->words);
	length = snprintf(line, sizeof(line), "gpuward-companion: uid %u: %s: %s%s%s\n", uid,
			  what, r->rc ? "refused or failed" : "done", words[0] ? ": " : "",
			  words);
	/* Errors are ignored: if the log line cannot be written, the reply is still sent, and
	 * if the reply cannot be sent, the log line is still written. */
	(void)!write(STDERR_FILENO, line, (size_t)length);
	size = wire_reply_write(r, text);
	send(fd, text, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void serve_refuse(int fd, uid_t uid, int rc, const char *why)
{
	struct wire_reply r = { .rc = rc };

	snprintf(r.words, sizeof(r.words), "%s", why);
	send_reply(fd, uid, "request", &r);
}

static uint64_t in_ms(unsigned ms)
{
	return clock_mono_ns(clock_real()) + ms * NS_PER_MS;
}

/* Reads until a newline, a full buffer or the timeout. Returns the number of bytes. */
static size_t receive(int fd, unsigned ms, char text[static WIRE_SIZE])
{
	uint64_t now, until = in_ms(ms);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	while ((now = clock_mono_ns(clock_real())) < until && n < WIRE_SIZE &&
	       !memchr(text, '\n', n)) {
		ssize_t got = recv(fd, text + n, WIRE_SIZE - n, MSG_DONTWAIT);

		if (got > 0)
			n += (size_t)got;
		else if (got == 0 || (errno != EAGAIN && errno != EINTR))
			break;
		else
			poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1);
	}
	return n;
}

/* Reads the request. Returns 0 or an error. Returns 1 if there is no request: the client only
 * checked that the companion exists, or the client sent nothing in time. */
static int read_request(struct serving *s)
{
	char text[WIRE_SIZE] = "";
	size_t n = receive(s->fd, s->o->read_ms, text);
	const char *why;

	if (n == 0)
		return 1;
	if (n < WIRE_SIZE && !memchr(text, '\n', n))
		snprintf(s->reply.words, sizeof(s->reply.words), "the request is incomplete");
	else if (wire_read(text, n, &s->request, &why) == 0)
		return 0;
	else
		snprintf(s->reply.words, sizeof(s->reply.words), "the request is invalid: %s",
			 why);
	return -GW_E_ARG;
}

static int refuse_process(struct serving *s, int rc, int64_t pid, const char *why)
{
	snprintf(s->reply.words, sizeof(s->reply.words), "process %" PRId64 " %s", pid, why);
	return rc;
}

static bool has_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* Locks the process `pid` for this request, because only one request at a time may work on a
 * process. The lock is released when the process that serves the request exits. */
static bool lock_process(const struct serving *s, int64_t pid)
{
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)pid, .l_len = 1
	};

	return fcntl(s->o->busy_fd, F_SETLK, &l) == 0;
}

static int refuse_thread(struct serving *s, int64_t pid, int64_t process)
{
	char why[80];

	snprintf(why, sizeof(why), "is a thread of process %" PRId64 ": use that pid", process);
	return refuse_process(s, -GW_E_ARG, pid, why);
}

/* Opens a pidfd for a target, reads and checks the target, and then checks that the process of
 * the pidfd has not ended. So everything that was read belongs to one running process. Returns
 * 0; -GW_E_NOENT if the target has ended or its pid was reused; or another error, for example
 * if no line of the file of rules allows the target. */
static int hold_target(struct serving *s, unsigned i, enum allow_kind kind)
{
	const struct proc_id *t = &s->request.target[i];
	struct proc p;
	int rc;

	if (t->pid <= 1 || t->pid == getpid() || t->pid == getppid())
		return refuse_process(
			s, -GW_E_PERM, t->pid,
			"cannot be a target: it is process 1 or part of the companion");
	s->pidfd[i] = (int)syscall(SYS_pidfd_open, (pid_t)t->pid, 0);
	if (s->pidfd[i] < 0 && errno == ENOSYS)
		return refuse_process(
			s, -GW_E_NOSUPPORT, t->pid,
			"cannot be opened as a pidfd: this needs Linux 5.3 or newer");
	if (proc_read(&s->root, t->pid, &p) != 0)
		return refuse_process(s, -GW_E_NOENT, t->pid, "has ended");
	if (p.pid != t->pid)
		return refuse_thread(s, t->pid, p.pid);
	if (s->pidfd[i] < 0)
		return refuse_process(s, -GW_E_NOENT, t->pid, "has ended");
	if (p.kernel)
		return refuse_process(
			s, -GW_E_PERM, t->pid,
			"is a kernel thread; requests for kernel threads are refused");
	if (p.start_ticks != t->start_ticks)
		return refuse_process(s, -GW_E_NOENT, t->pid,
				      "has ended, and another process has its pid");
	rc = allow_process(&s->allow, kind, &p, s->reply.words, sizeof(s->reply.words));
	if (rc)
		return rc;
	if (has_ended(s->pidfd[i]))
		return refuse_process(s, -GW_E_NOENT, t->pid, "has ended");
	if (kind == ALLOW_CHECKPOINT && !lock_process(s, t->pid))
		return refuse_process(s, -GW_E_STATE, t->pid, "is in use by another request");
	return 0;
}

/* Removes targets that have ended, and targets with a pid that was reused. Returns 0, or the
 * error of the first remaining target that cannot be used, for example because no rule allows
 * it. */
static int hold_running_targets(struct serving *s, enum allow_kind kind)
{
	struct wire_request *r = &s->request;
	unsigned kept = 0;
	int first = 0, rc;
	char words[WIRE_WORDS] = "";

	for (unsigned i = 0; i < r->targets; i++) {
		rc = hold_target(s, i, kind);
		if (rc && rc != -GW_E_NOENT && !first) {
			first = rc;
			memcpy(words, s->reply.words, sizeof(words));
		}
		if (rc)
			continue;
		r->target[kept] = r->target[i];
		s->pidfd[kept++] = s->pidfd[i];
	}
	r->targets = kept;
	memcpy(s->reply.words, words, sizeof(words));
	return first;
}

/* Confirms to the client that the request starts. From then on the request is carried out even
 * if the client stops waiting. If the client has already closed the connection, nothing is
 * done. Returns 0 or -GW_E_TIMEOUT. */
static int confirm_start(struct serving *s)
{
	struct pollfd p = { .fd = s->fd };

	if (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP)) {
		snprintf(s->reply.words, sizeof(s->reply.words),
			 "the client closed the connection: nothing was done");
		return -GW_E_TIMEOUT;
	}
	send(s->fd, WIRE_TAKEN, strlen(WIRE_TAKEN), MSG_NOSIGNAL | MSG_DONTWAIT);
	return 0;
}

static int do_checkpoint(struct serving *s)
{
	struct wire_request *r = &s->request;
	int rc = 0;

	for (unsigned i = 0; i < r->targets && !rc; i++)
		rc = hold_target(s, i, ALLOW_CHECKPOINT);
	if (rc)
		return rc == -GW_E_NOENT ? -GW_E_STATE : rc;
	rc = confirm_start(s);
	if (rc)
		return rc;
	s->reply.count = r->targets;
	return checkpoint_create(&s->root, r->target, r->targets, in_ms(r->timeout_ms),
				 s->reply.words, sizeof(s->reply.words));
}

/* Restores the processes that are allowed, even if another process of the request is not
 * allowed. */
static int do_restore(struct serving *s)
{
	struct wire_request *r = &s->request;
	char words[WIRE_WORDS] = "";
	int held = hold_running_targets(s, ALLOW_CHECKPOINT), rc = confirm_start(s);

	if (rc || r->targets == 0)
		return rc ? rc : held;
	s->reply.count = r->targets;
	rc = checkpoint_restore(&s->root, r->target, r->targets, words, sizeof(words));
	if (rc)
		memcpy(s->reply.words, words, sizeof(words));
	return rc ? rc : held;
}

static int do_signal(struct serving *s)
{
	struct wire_request *r = &s->request;
	int rc = hold_running_targets(s, ALLOW_SIGNAL);

	rc = rc ? rc : confirm_start(s);
	for (unsigned i = 0; i < r->targets && !rc; i++) {
		if (syscall(SYS_pidfd_send_signal, s->pidfd[i], (int)r->signal, NULL, 0) == 0)
			s->reply.count++;
		else if (errno != ESRCH)
			rc = refuse_process(
				s, errno == EPERM ? -GW_E_PERM : -GW_E_IO, r->target[i].pid,
				errno == EPERM ? "cannot be signalled: it needs CAP_KILL"
					       : "cannot be signalled");
	}
	return rc;
}

static int do_unit(struct serving *s)
{
	const struct wire_request *r = &s->request;
	const char *verb = r->start ? "start" : "stop";
	const char *argv[] = {
		s->o->systemctl, "--no-ask-password", "--quiet", verb, "--", r->unit, NULL
	};
	int rc = allow_unit(&s->allow, r->unit, s->reply.words, sizeof(s->reply.words));

	rc = rc ? rc : confirm_start(s);
	if (rc)
		return rc;
	rc = child_run(argv, in_ms(r->timeout_ms), NULL, 0);
	if (rc == -GW_E_TIMEOUT)
		snprintf(s->reply.words, sizeof(s->reply.words),
			 "systemctl %s %s: not done in time", verb, r->unit);
	else if (rc < 0)
		snprintf(s->reply.words, sizeof(s->reply.words),
			 "%s cannot be run; check --systemctl", s->o->systemctl);
	else if (rc > 0)
		snprintf(s->reply.words, sizeof(s->reply.words),
			 "systemctl %s %s: exit status %d; see systemctl status %s", verb,
			 r->unit, rc, r->unit);
	s->reply.count = rc == 0;
	return rc < 0 ? rc : rc > 0 ? -GW_E_IO : 0;
}

static int (*const verbs[])(struct serving *s) = {
	[WIRE_CHECKPOINT] = do_checkpoint,
	[WIRE_RESTORE] = do_restore,
	[WIRE_SIGNAL] = do_signal,
	[WIRE_UNIT_VERB] = do_unit,
};

/* Describes a request for the log, such as "signal 15 of process 812 and 2 more"
 * or "stop ollama.service". */
static void describe_request(const struct wire_request *r, char *out, size_t size)
{
	int n;

	if (r->verb == WIRE_UNIT_VERB) {
		snprintf(out, size, "%s %s", r->start ? "start" : "stop", r->unit);
		return;
	}
	n = snprintf(out, size, "%s", wire_verb_name(r->verb));
	if (r->verb == WIRE_SIGNAL)
		n += snprintf(out + n, size - (size_t)n, " %u", r->signal);
	n += snprintf(out + n, size - (size_t)n, " of process %" PRId64, r->target[0].pid);
	if (r->targets > 1)
		snprintf(out + n, size - (size_t)n, " and %u more", r->targets - 1);
}

void serve(int fd, uid_t uid, const struct serve_options *o)
{
	/* Each process of the companion serves only one request, so s may be static. */
	static struct serving s;
	char what[WIRE_UNIT + 32] = "request";
	int rc;

	s.o = o;
	s.fd = fd;
	rc = read_request(&s);
	if (rc == 1)
		return;
	if (!rc) {
		describe_request(&s.request, what, sizeof(what));
		rc = allow_load(&s.allow, o->file, s.reply.words, sizeof(s.reply.words));
	}
	rc = rc ? rc : root_open(&s.root, NULL);
	rc = rc ? rc : verbs[s.request.verb](&s);
	s.reply.rc = rc;
	send_reply(fd, uid, what, &s.reply);
}
