/* gpuward-companion: a small program that runs as root and carries out the guard's requests
 * that need privileges.
 *
 * It accepts connections, checks the uid of the client, and serves each connection in its own
 * process, at most CHILDREN at a time. So a request that hangs in the driver does not delay
 * other requests, and a running request continues after the companion has ended. A companion
 * that systemd started for a connection ends after 30 s without requests. */
#include "allow.h"
#include "serve.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN   16
#define BACKLOG    64
#define READ_MS    2000
#define IDLE_MS    30000
#define FIRST_FD   3 /* Number of the first descriptor that systemd passes. */
#define EXIT_USAGE 2

struct companion {
	struct serve_options options;
	const char *socket; /* NULL if the socket comes from systemd. */
	int listen_fd, signal_fd;
	unsigned children;
	bool stopping;
};

static const char usage[] =
	"Usage: gpuward-companion [--file FILE] [--socket PATH] [--systemctl PATH]\n"
	"Carries out requests of gpuward's guard that need privileges: see "
	"gpuward-companion(8).\n"
	"  --file FILE        the file of rules (/etc/gpuward/companion.conf)\n"
	"  --socket PATH      where to listen; default: the socket passed by systemd\n"
	"  --systemctl PATH   the program that stops and starts units (/usr/bin/systemctl)\n"
	"  --version, --help\n";

static void serve_in_child(struct companion *c, int fd, uid_t uid)
{
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGPIPE };
	sigset_t none;

	/* Ignore signals that would end the process, because a request that has started must be
	 * completed. */
	for (unsigned i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close(c->listen_fd);
	close(c->signal_fd);
	serve(fd, uid, &c->options);
	_exit(EXIT_SUCCESS);
}

/* Checks whether the client is allowed. Returns 0, or a negative gw_error with a sentence in
 * why. */
static int check_peer(const struct companion *c, int fd, uid_t *ret_uid, char *why, size_t size)
{
	static struct allow a;
	struct ucred peer;
	socklen_t n = sizeof(peer);
	int rc;

	*ret_uid = (uid_t)-1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0) {
		snprintf(why, size, "the user of the client is unknown");
		return -GW_E_PERM;
	}
	*ret_uid = peer.uid;
	rc = allow_load(&a, c->options.file, why, size);
	return rc ? rc : allow_client(&a, peer.uid, why, size);
}

static void accept_connection(struct companion *c)
{
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC), rc;
	char why[400];
	uid_t uid;
	pid_t pid;

	if (fd < 0)
		return;
	rc = check_peer(c, fd, &uid, why, sizeof(why));
	pid = rc ? 0 : fork();
	if (!rc && pid == 0)
		serve_in_child(c, fd, uid);
	if (rc || pid < 0)
		serve_refuse(fd, uid, rc ? rc : -GW_E_STATE,
			     rc ? why
				: "the companion cannot start a process for the request; check "
				  "TasksMax= and memory");
	c->children += pid > 0;
	close(fd);
}

static void handle_signals(struct companion *c)
{
	struct signalfd_siginfo info;

	while (read(c->signal_fd, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			c->stopping = true;
	while (c->children > 0 && waitpid(-1, NULL, WNOHANG) > 0)
		c->children--;
}

static int companion_run(struct companion *c)
{
	while (!c->stopping || c->children > 0) {
		bool open = !c->stopping && c->children < CHILDREN;
		bool may_leave = !c->socket && c->children == 0;
		struct pollfd p[] = { { .fd = c->signal_fd, .events = POLLIN },
				      { .fd = open ? c->listen_fd : -1, .events = POLLIN } };
		int n = poll(p, 2, may_leave ? IDLE_MS : -1);

		if (n == 0) /* systemd starts the companion again at the next connection. */
			break;
		if (p[0].revents)
			handle_signals(c);
		if (p[1].revents)
			accept_connection(c);
	}
	return EXIT_SUCCESS;
}

static int companion_fail(const char *what, const char *why)
{
	fprintf(stderr, "gpuward-companion: %s: %s\n", what, why);
	return EXIT_FAILURE;
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct stat st;
	int fd;

	if (strlen(path) >= sizeof(a.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(a.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	umask(0177);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
	    listen(fd, BACKLOG) == 0)
		return fd;
	return -1;
}

/* Returns the socket from systemd (sd_listen_fds(3)). */
static int listen_systemd(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

	errno = ENOTSOCK;
	if (!pid || !count || strtol(pid, NULL, 10) != getpid() || strcmp(count, "1") != 0)
		return -1;
	fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
	fcntl(FIRST_FD, F_SETFL, O_NONBLOCK);
	return FIRST_FD;
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int companion_start(struct companion *c)
{
	c->listen_fd = c->socket ? listen_at(c->socket) : listen_systemd();
	if (c->listen_fd < 0)
		return companion_fail(c->socket ? c->socket
						: "systemd passed no socket; see --socket",
				      strerror(errno));
	c->signal_fd = open_signals();
	c->options.busy_fd = memfd_create("busy", MFD_CLOEXEC);
	if (c->signal_fd < 0 || c->options.busy_fd < 0)
		return companion_fail("cannot start", strerror(errno));
	/* Clear the environment, because the programs that the companion starts must not
	 * depend on it. */
	clearenv();
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	return companion_run(c);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "file", required_argument, NULL, 'f' },
						 { "socket", required_argument, NULL, 's' },
						 { "systemctl", required_argument, NULL, 'c' },
						 { "version", no_argument, NULL, 'v' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	struct companion c = { .options = { .file = "/etc/gpuward/companion.conf",
					    .systemctl = "/usr/bin/systemctl",
					    .read_ms = READ_MS } };
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (o) {
		case 'f': c.options.file = optarg; break;
		case 's': c.socket = optarg; break;
		case 'c': c.options.systemctl = optarg; break;
		case 'v': puts("gpuward-companion " GPUWARD_VERSION); return EXIT_SUCCESS;
		case 'h': fputs(usage, stdout); return EXIT_SUCCESS;
		default: return EXIT_USAGE;
		}
	if (optind < argc) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return companion_start(&c);
}
