/* serve: handles one request to the companion, from the first byte to the last.
 *
 * serve() checks every target itself and does not rely on the checks of the guard. It opens a
 * pidfd for the target. Three conditions must hold. The target has the start time that the
 * request contains. A line of the file of rules allows the target. The target still runs after
 * these checks. */
#ifndef GW_COMPANION_SERVE_H
#define GW_COMPANION_SERVE_H

#include <sys/types.h>

struct serve_options {
	const char *file;      /* Path of the file of rules. */
	const char *systemctl; /* Path of systemctl. */
	unsigned read_ms;      /* Longest wait for a request, in milliseconds. */
	/* A file. Its byte N is locked while a request works on the process with pid N. */
	int busy_fd;
};

/* Reads the request, carries it out, replies on the connection, and writes a line to standard
 * error. A request that has started continues if the client closes the connection. */
void serve(int fd, uid_t uid, const struct serve_options *o);

/* Replies with a refusal, and writes the refusal to standard error. */
void serve_refuse(int fd, uid_t uid, int rc, const char *why);

#endif
