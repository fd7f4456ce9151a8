/* Kills the process when the guard writes its n-th record to its journal, for A11 of the
 * acceptance list.
 *
 *     LD_PRELOAD=libkill_at_write.so KILL_AT=3 KILL_WHEN=before gpuward serve ...
 *
 * A record is recognised by a word that every record has and nothing else in the file has.
 * KILL_WHEN says when to kill: "before" the write; "torn", when half of the record is written;
 * or "after" the transaction, when its lock is released and its order is not carried out yet.
 * KILL_WHEN=full kills nothing; the disk is full from this write on. KILL_LOG names a file that
 * gets a w for each write of a record and an s for each fdatasync. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORD "\"put_away\":["

static atomic_long writes;
static atomic_bool in_file; /* the record is written, but its transaction is not committed */

static void note(const char *what)
{
	const char *name = getenv("KILL_LOG");
	int fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	if (write(fd, what, 1) != 1)
		abort();
	close(fd);
}

#pragma GCC visibility push(default)
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at);
int fcntl64(int fd, int command, ...);
int fdatasync(int fd);
#pragma GCC visibility pop

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off64_t);
	const char *when = getenv("KILL_WHEN"), *count = getenv("KILL_AT");
	ssize_t done;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
	if (when && count && strcmp(when, "full") == 0 && writes >= atol(count)) {
		errno = ENOSPC;
		return -1;
	}
	if (!when || !count || !memmem(p, n, WORD, strlen(WORD)))
		return real(fd, p, n, at);
	note("w");
	if (++writes != atol(count) || strcmp(when, "full") == 0)
		return real(fd, p, n, at);
	in_file = strcmp(when, "after") == 0;
	done = in_file                     ? real(fd, p, n, at)
	       : strcmp(when, "torn") == 0 ? real(fd, p, n / 2, at)
					   : 0;
	if (!in_file)
		kill(getpid(), SIGKILL);
	return done;
}

int fcntl64(int fd, int command, ...)
{
	static int (*real)(int, int, ...);
	va_list args;
	void *arg;

	va_start(args, command);
	arg = va_arg(args, void *);
	va_end(args);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "fcntl64");
	if (in_file && command == F_SETLK && ((const struct flock64 *)arg)->l_type == F_UNLCK)
		kill(getpid(), SIGKILL);
	return real(fd, command, arg);
}

int fdatasync(int fd)
{
	static int (*real)(int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
	note("s");
	return real(fd);
}
