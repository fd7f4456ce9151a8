/* serve: one request of the companion, from the first byte to the last.
 *
 * Who is meant is checked here, whatever the guard has checked before: each process is held by a pidfd, has
 * the start time that the request names, is allowed by a line of the file, and has not ended since. */
#ifndef GW_COMPANION_SERVE_H
#define GW_COMPANION_SERVE_H

#include <sys/types.h>

struct serve_options {
	const char *file;      /* what is allowed */
	const char *systemctl; /* path of the program */
	unsigned read_ms;      /* for a request to arrive */
	int busy_fd;           /* a file whose byte N is locked while process N is worked on */
};

/* Reads, acts and answers on the connection, and writes a line to standard error.  What has begun goes on
 * when the other side hangs up. */
void serve(int fd, uid_t uid, const struct serve_options *o);

/* Answers "no" with a sentence and writes it to standard error. */
void serve_refuse(int fd, uid_t uid, int rc, const char *why);

#endif
