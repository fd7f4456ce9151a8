/* notify: what systemd wants to know, and the sockets that it opened for us.
 *
 * The protocol is datagrams of lines to the socket that NOTIFY_SOCKET names; without that variable
 * everything here does nothing.  What was read of the environment is taken out of it, so that
 * programs that we start do not speak in our name: call both functions that read it before there
 * are threads. */
#ifndef GW_DAEMON_NOTIFY_H
#define GW_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int fd; /* -1: nobody listens */
	struct sockaddr_un to;
	socklen_t size;
	uint64_t watchdog_ns; /* 0: no watchdog; else tell it more often than this */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.  0, or -GW_E_ARG, -GW_E_NOSUPPORT or
 * -GW_E_IO with a sentence in message; n may be used in any case. */
int notify_init(struct notify *n, char *message, size_t size);
void notify_done(struct notify *n);

/* Each: was it sent?  false too where nobody listens.  Never blocks. */
bool notify_ready(const struct notify *n);
bool notify_reloading(const struct notify *n, uint64_t mono_ns); /* then notify_ready() again */
bool notify_stopping(const struct notify *n);
bool notify_watchdog(const struct notify *n);
/* What `systemctl status` shows; line breaks become blanks. */
bool notify_status(const struct notify *n, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- socket activation ---- */
#define NOTIFY_SOCKETS 16
struct notify_socket {
	int fd;
	char name[64]; /* of FileDescriptorName=, "" when there is none */
};

/* The sockets of LISTEN_FDS where LISTEN_PID is ours; they are closed in programs that we start.  How
 * many, or -GW_E_ARG with a sentence: the variables make no sense. */
int notify_sockets(struct notify_socket ret[static NOTIFY_SOCKETS], char *message, size_t size);

#endif
