/* serve: handles one request of the companion, from the first byte to the last.
 *
 * It checks every target itself and does not rely on the checks of the guard. A target is held
 * by a pidfd, must have the start time in the request, must be allowed by a line of the file,
 * and must not have ended since. */
#ifndef GW_COMPANION_SERVE_H
#define GW_COMPANION_SERVE_H

#include <sys/types.h>

struct serve_options {
	const char *file;      /* the rules */
	const char *systemctl; /* path of systemctl */
	unsigned read_ms;      /* longest wait for a request in ms */
	int busy_fd; /* file in which byte N is locked while a request works on process N */
};

/* Reads the request, carries it out, replies on the connection, and writes a line to standard
 * error. A request that has started continues if the client closes the connection. */
void serve(int fd, uid_t uid, const struct serve_options *o);

/* Replies with a refusal and writes it to standard error. */
void serve_refuse(int fd, uid_t uid, int rc, const char *why);

#endif
