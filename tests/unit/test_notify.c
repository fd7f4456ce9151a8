#include "daemon/notify.h"

#include "test.h"

#include <gpuward.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static char message[300];

static int set_up(void **state)
{
	static const char *const variables[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC",
						 "WATCHDOG_PID",  "LISTEN_FDS",
						 "LISTEN_PID",    "LISTEN_FDNAMES" };

	for (unsigned i = 0; i < 6; i++)
		unsetenv(variables[i]);
	return 0;
}

#define TEST_SETUP set_up

/* Opens a socket that replaces systemd's; its name begins with '@' or '/'. */
static int manager(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
	if (*name == '@')
		a.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (struct sockaddr *)&a, n + (*name == '/')), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static const char *heard(int fd)
{
	static char text[600];
	ssize_t n = recv(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

TEST(sends_every_message_of_the_protocol)
{
	char dir[] = "/tmp/gpuward-notify-XXXXXX", names[2][80];
	struct notify n;

	assert_non_null(mkdtemp(dir));
	snprintf(names[0], sizeof(names[0]), "@gpuward-test-%d", (int)getpid());
	snprintf(names[1], sizeof(names[1]), "%s/socket", dir);
	for (unsigned i = 0; i < 2; i++) {
		int fd = manager(names[i]);

		assert_int_equal(notify_init(&n, message, sizeof(message)), 0);
		assert_true(notify_ready(&n));
		assert_string_equal(heard(fd), "READY=1");
		assert_true(notify_reloading(&n, 5000123));
		assert_string_equal(heard(fd), "RELOADING=1\nMONOTONIC_USEC=5000");
		assert_true(notify_stopping(&n));
		assert_string_equal(heard(fd), "STOPPING=1");
		assert_true(notify_watchdog(&n));
		assert_string_equal(heard(fd), "WATCHDOG=1");
		assert_true(notify_status(&n, "%d GPUs\nREADY=0", 2));
		assert_string_equal(heard(fd), "STATUS=2 GPUs READY=0");
		notify_done(&n);
		assert_false(notify_ready(&n));
		close(fd);
	}
	unlink(names[1]);
	rmdir(dir);
}

TEST(without_a_manager_it_does_nothing)
{
	struct notify n;

	setenv("WATCHDOG_USEC", "1000", 1);
	assert_int_equal(notify_init(&n, message, sizeof(message)), 0);
	assert_string_equal(message, "");
	assert_int_equal(n.watchdog_ns, 0);
	assert_false(notify_ready(&n));
	notify_done(&n);
}

TEST(a_manager_that_disappeared_does_not_matter)
{
	char name[80];
	struct notify n;

	snprintf(name, sizeof(name), "@gpuward-gone-%d", (int)getpid());
	close(manager(name));
	assert_int_equal(notify_init(&n, message, sizeof(message)), 0);
	assert_false(notify_ready(&n));
	notify_done(&n);
}

TEST(invalid_addresses_are_refused_and_reported)
{
	static const char *const names[] = { "vsock:2:1", "relative", "/", "@" };
	char long_name[200];
	struct notify n;

	for (unsigned i = 0; i < 4; i++) {
		setenv("NOTIFY_SOCKET", names[i], 1);
		assert_true(notify_init(&n, message, sizeof(message)) < 0);
		assert_in(message, "NOTIFY_SOCKET: ");
		assert_false(notify_ready(&n));
	}
	memset(long_name, 'a', sizeof(long_name));
	long_name[0] = '/';
	long_name[199] = '\0';
	setenv("NOTIFY_SOCKET", long_name, 1);
	assert_int_equal(notify_init(&n, message, sizeof(message)), -GW_E_ARG);
}

static uint64_t watchdog_of(const char *usec, const char *pid)
{
	struct notify n;
	char name[80];
	int fd;

	snprintf(name, sizeof(name), "@gpuward-dog-%d", (int)getpid());
	fd = manager(name);
	setenv("WATCHDOG_USEC", usec, 1);
	if (pid)
		setenv("WATCHDOG_PID", pid, 1);
	notify_init(&n, message, sizeof(message));
	notify_done(&n);
	/* Programs that we start must not notify systemd. */
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_USEC"));
	assert_null(getenv("WATCHDOG_PID"));
	close(fd);
	return n.watchdog_ns;
}

TEST(the_watchdog_must_name_our_pid)
{
	char name[80], pid[20];
	struct notify n;
	int fd;

	snprintf(name, sizeof(name), "@gpuward-kept-%d", (int)getpid());
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	fd = manager(name);
	setenv("WATCHDOG_USEC", "30000000", 1);
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_init(&n, message, sizeof(message)), 0);
	assert_int_equal(n.watchdog_ns, 30000000000);
	notify_done(&n);
	close(fd);
	assert_int_equal(watchdog_of("1000", "1"), 0);
	assert_int_equal(watchdog_of("0", NULL), 0);
	assert_int_equal(watchdog_of("-5", NULL), 0);
	assert_int_equal(watchdog_of("soon", NULL), 0);
	assert_int_equal(watchdog_of("99999999999999999999", NULL), 0);
}

TEST(sockets_for_another_process_are_ignored)
{
	struct notify_socket s[NOTIFY_SOCKETS];

	assert_int_equal(notify_sockets(s, message, sizeof(message)), 0);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", "1", 1);
	assert_int_equal(notify_sockets(s, message, sizeof(message)), 0);
	assert_null(getenv("LISTEN_FDS"));
}

static int sockets_with(const char *count, struct notify_socket *s)
{
	char pid[20];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", count, 1);
	setenv("LISTEN_FDNAMES", "http:socket", 1);
	return notify_sockets(s, message, sizeof(message));
}

/* Runs in a child process, where the descriptors from 3 on are free. */
static int child_takes_two(void)
{
	struct notify_socket s[NOTIFY_SOCKETS];

	for (int fd = 3; fd <= 4; fd++) {
		int sock = socket(AF_UNIX, SOCK_STREAM, 0);
		struct sockaddr_un a = { .sun_family = AF_UNIX };

		if (bind(sock, (struct sockaddr *)&a, sizeof(sa_family_t)) != 0 ||
		    listen(sock, 1) != 0 || (sock != fd && dup2(sock, fd) != fd))
			return 1;
	}
	if (sockets_with("2", s) != 2)
		return 2;
	if (s[0].fd != 3 || s[1].fd != 4 || strcmp(s[0].name, "http") != 0 ||
	    strcmp(s[1].name, "socket") != 0)
		return 3;
	if (!(fcntl(3, F_GETFD) & FD_CLOEXEC) || !(fcntl(4, F_GETFD) & FD_CLOEXEC))
		return 4;
	return getenv("LISTEN_PID") || getenv("LISTEN_FDNAMES") ? 5 : 0;
}

static int child_refuses(void)
{
	struct notify_socket s[NOTIFY_SOCKETS];

	if (sockets_with("17", s) != -GW_E_ARG || !strstr(message, "LISTEN_FDS must be"))
		return 1;
	if (sockets_with("x", s) != -GW_E_ARG)
		return 2;
	close(3);
	if (sockets_with("1", s) != -GW_E_ARG || !strstr(message, "descriptor 3"))
		return 3;
	dup2(0, 3); /* a descriptor that is not a socket */
	return sockets_with("1", s) == -GW_E_ARG ? 0 : 4;
}

static void in_a_child(int (*body)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(body());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(sockets_are_taken_with_their_names)
{
	in_a_child(child_takes_two);
}

TEST(descriptors_that_are_not_sockets_are_refused)
{
	in_a_child(child_refuses);
}

TEST_MAIN(NULL, NULL)
