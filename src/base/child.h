/* child: runs a program with a deadline and reads what it prints.
 *
 * The child is held by a pidfd, so a number reused by another process is never signalled.  It
 * starts with an empty signal mask and default signals, no descriptors of ours, its own
 * process group, and is killed with its group when its time is up or its owner lets go.
 * No shell is ever involved. */
#ifndef GW_BASE_CHILD_H
#define GW_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int pidfd;
	int out_fd;      /* read end of its standard output, non-blocking; -1 when closed */
	char line[4096]; /* what has come in and was not yet handed out as a line     */
	size_t fill;
	size_t used;   /* of fill: handed out by the last call                        */
	bool skipping; /* inside an over-long line                                    */
};

/* Starts argv[0] (looked up in PATH unless it has a slash), standard input and error on
 * /dev/null.  environ_extra: NULL or "NAME=value" strings ending with NULL that override the
 * environment.  0, -GW_E_NOENT (no such program), -GW_E_PERM, -GW_E_NOMEM or -GW_E_IO. */
int child_start(struct child *c, const char *const argv[], const char *const environ_extra[]);

/* Next line of its output without the newline, NUL-terminated, in c->line's memory until the
 * next call.  Waits until deadline_ns (CLOCK_MONOTONIC).  1 and *ret_line, 0 at end of
 * output, -GW_E_TIMEOUT, or -GW_E_IO.  A line longer than the buffer is passed over whole.
 * Output ends when the child has ended, even if a child of its own still holds the pipe. */
int child_line(struct child *c, uint64_t deadline_ns, const char **ret_line);

/* Its output as it comes, where nobody takes lines of it: the bytes, 0 at its end (as above), -GW_E_TIMEOUT or
 * -GW_E_IO. */
long child_read(struct child *c, uint64_t deadline_ns, char *out, size_t size);

/* Waits for it to end by itself until deadline_ns.  0 and its wait status, or -GW_E_TIMEOUT. */
int child_wait(struct child *c, uint64_t deadline_ns, int *ret_status);

/* Ends it (SIGKILL to the group, and so to children of its own), reaps it, closes everything.
 * One that hangs in the kernel and does not end even then is left behind after a second. */
void child_stop(struct child *c);

/* Would child_start() find this program?  Cheaper than trying. */
bool child_exists(const char *program);

/* child_start, read at most size - 1 bytes of output into out, wait, stop.  The exit status
 * (0-255, or 128 + signal) or a negative gw_error. */
int child_run(const char *const argv[], uint64_t deadline_ns, char *out, size_t size);

#endif
