/* serve: handles one request of the companion, from the first byte to the last.
 *
 * It checks every target itself, whatever the guard has checked: a process is held by a pidfd,
 * has the start time in the request, is allowed by a line of the file, and has not ended since.
 */
#ifndef GW_COMPANION_SERVE_H
#define GW_COMPANION_SERVE_H

#include <sys/types.h>

struct serve_options {
	const char *file;      /* the rules */
	const char *systemctl; /* path of the program */
	unsigned read_ms;      /* timeout of a request */
	int busy_fd;           /* byte N is locked while a request works on process N */
};

/* Reads, acts and replies on the connection, and writes a line to standard error. A request
 * that has started continues when the client closes the connection. */
void serve(int fd, uid_t uid, const struct serve_options *o);

/* Replies with a refusal and writes it to standard error. */
void serve_refuse(int fd, uid_t uid, int rc, const char *why);

#endif
