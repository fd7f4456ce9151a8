/* child: runs a program with a deadline and reads its output.
 *
 * A pidfd identifies the child, so a process that reuses its pid is never signalled. The child
 * starts without a shell, with default signals, an empty signal mask, none of our descriptors
 * and its own process group. The whole group is killed at the deadline or by child_stop(). */
#ifndef GW_BASE_CHILD_H
#define GW_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int pidfd;
	int out_fd; /* Read end of the child's standard output, non-blocking. -1: closed. */
	char line[4096]; /* bytes that were received, but not yet returned as a line */
	size_t fill;     /* number of valid bytes in line[] */
	size_t used;     /* number of bytes of line[] that the last call returned */
	bool skipping;   /* The next bytes are the rest of a line that is too long. */
};

/* Starts argv[0] with standard input and standard error on /dev/null. If argv[0] has no slash,
 * the program is searched for in PATH. environ_extra is NULL, or an array of "NAME=value"
 * strings that override the environment; its last element is NULL. Returns 0, -GW_E_NOENT (no
 * such program), -GW_E_PERM, -GW_E_NOMEM or -GW_E_IO. */
int child_start(struct child *c, const char *const argv[], const char *const environ_extra[]);

/* Reads the next line of the child's output. The line has no newline, is NUL-terminated and is
 * valid until the next call. Waits until deadline_ns (CLOCK_MONOTONIC). Returns 1 and
 * *ret_line, 0 at the end of output, -GW_E_TIMEOUT or -GW_E_IO. A line longer than the buffer
 * is skipped. Output ends when the child ends, even if a descendant still holds the pipe. */
int child_line(struct child *c, uint64_t deadline_ns, const char **ret_line);

/* Reads the child's output as bytes instead of lines. Returns the number of bytes, 0 at the end
 * of output (as in child_line()), -GW_E_TIMEOUT or -GW_E_IO. */
long child_read(struct child *c, uint64_t deadline_ns, char *out, size_t size);

/* Waits until the child ends, at most until deadline_ns. Returns 0 and the wait status, or
 * -GW_E_TIMEOUT. */
int child_wait(struct child *c, uint64_t deadline_ns, int *ret_status);

/* Kills the child and its group with SIGKILL, reaps the child and closes the descriptors. A
 * child that hangs in the kernel is left behind after one second. */
void child_stop(struct child *c);

/* True if child_start() would find this program. Costs less than starting the program. */
bool child_exists(const char *program);

/* Runs a program to its end and writes its output to out, NUL-terminated. If out is NULL, the
 * output is discarded. Returns the exit status (0 to 255, or 128 + signal) or a negative
 * gw_error. The error -GW_E_SIZE means that the output is longer than size - 1 bytes; out then
 * holds the first size - 1 bytes. */
int child_run(const char *const argv[], uint64_t deadline_ns, char *out, size_t size);

#endif
