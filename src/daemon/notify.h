/* notify: the systemd notification protocol and socket activation.
 *
 * Sends datagrams to the socket that NOTIFY_SOCKET names; without that variable every function
 * does nothing. Removes the variables from the environment, so that child processes do not use
 * them. Therefore call notify_init() and notify_sockets() before threads start. */
#ifndef GW_DAEMON_NOTIFY_H
#define GW_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int fd; /* Socket to the service manager. -1 if systemd did not start the service. */
	struct sockaddr_un to;
	socklen_t size;
	/* Maximum time between two calls of notify_watchdog(). 0 if there is no watchdog. */
	uint64_t watchdog_ns;
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Returns 0, or -GW_E_ARG, -GW_E_NOSUPPORT
 * or -GW_E_IO with a sentence in message. n is usable in any case. */
int notify_init(struct notify *n, char *message, size_t size);
void notify_done(struct notify *n);

/* The functions below never block. They return true if the datagram was sent. */
bool notify_ready(const struct notify *n);
/* Reports a reload. Call notify_ready() when the reload is done. */
bool notify_reloading(const struct notify *n, uint64_t mono_ns);
bool notify_stopping(const struct notify *n);
bool notify_watchdog(const struct notify *n);
/* Sets the text in `systemctl status`. Line breaks become spaces. */
bool notify_status(const struct notify *n, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define NOTIFY_SOCKETS 16
struct notify_socket {
	int fd;
	char name[64]; /* FileDescriptorName= of the socket unit. "" if it is not set. */
};

/* If LISTEN_PID is the pid of this process, takes the sockets of LISTEN_FDS and sets
 * close-on-exec on them. Returns the number of sockets, or -GW_E_ARG with a sentence in message
 * if the variables are invalid. */
int notify_sockets(struct notify_socket ret[static NOTIFY_SOCKETS], char *message, size_t size);

#endif
