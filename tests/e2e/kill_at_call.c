/* Kills the process before its n-th call that changes a file or folder, to interrupt `gpuward
 * setup` at every point.
 *
 *     LD_PRELOAD=libkill_at_call.so KILL_AT=3 gpuward setup ...
 *
 * With KILL_SIGNAL=STOP, the process is stopped instead, until the test continues it.
 *
 * Counts mkdir, mkdirat, linkat, renameat, unlink, unlinkat, rmdir, fchmod and fsync. Each
 * process counts its own calls; a forked child starts with the count of its parent. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static long calls;

static void count_call(void)
{
	const char *at = getenv("KILL_AT");

	if (at && ++calls == atol(at))
		kill(getpid(), getenv("KILL_SIGNAL") ? SIGSTOP : SIGKILL);
}

#define CALL(type, name, arguments, ...)                           \
	type name arguments;                                       \
	type name arguments                                        \
	{                                                          \
		static type(*real) arguments;                      \
                                                                   \
		if (!real)                                         \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		count_call();                                      \
		return real(__VA_ARGS__);                          \
	}

#pragma GCC visibility push(default)
CALL(int, mkdir, (const char *path, mode_t mode), path, mode)
CALL(int, mkdirat, (int fd, const char *path, mode_t mode), fd, path, mode)
CALL(int, linkat, (int a, const char *from, int b, const char *to, int flags), a, from, b, to,
     flags)
CALL(int, renameat, (int a, const char *from, int b, const char *to), a, from, b, to)
CALL(int, unlink, (const char *path), path)
CALL(int, unlinkat, (int fd, const char *path, int flags), fd, path, flags)
CALL(int, rmdir, (const char *path), path)
CALL(int, fchmod, (int fd, mode_t mode), fd, mode)
CALL(int, fsync, (int fd), fd)
#pragma GCC visibility pop
