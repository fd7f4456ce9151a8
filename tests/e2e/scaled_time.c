/* Makes time pass faster in the service, so that tests/soak runs a week in an hour.
 *
 *     LD_PRELOAD=libscaled_time.so TIME_RATE=168 gpuward serve ...
 *
 * From the start of the process every clock runs TIME_RATE times as fast, and every wait is
 * TIME_RATE times shorter. libcurl uses the true time, because the servers that it asks are not
 * accelerated. Programs that are not named gpuward, such as children of the service, also use
 * the true time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS INT64_C(1000000000)

enum { MONO, WALL, BOOT, N_CLOCKS };

static int64_t scaled_rate = 1;
static int64_t scaled_start_ns[N_CLOCKS];
static uintptr_t scaled_program[2]; /* address range of the program; the end is exclusive */

/* Finds the function that this library replaces. Each caller stores the pointer in `real`. */
#define REAL(name)                     \
	static __typeof__(&name) real; \
	if (!real)                     \
	*(void **)&real = dlsym(RTLD_NEXT, #name)

static int64_t to_ns(const struct timespec *t)
{
	if (t->tv_sec >= INT64_MAX / NS) /* means "for ever" */
		return INT64_MAX;
	return t->tv_sec * NS + t->tv_nsec;
}

static struct timespec from_ns(int64_t ns)
{
	return (struct timespec){ .tv_sec = ns / NS, .tv_nsec = ns % NS };
}

/* Returns the index of the clock; -1: the clock counts CPU time, which is not scaled. */
static int clock_of(clockid_t id)
{
	switch (id) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE: return WALL;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_MONOTONIC_COARSE: return MONO;
	case CLOCK_BOOTTIME: return BOOT;
	default: return -1;
	}
}

static int64_t scaled_ns(int clock, int64_t true_ns)
{
	return scaled_start_ns[clock] + (true_ns - scaled_start_ns[clock]) * scaled_rate;
}

/* Converts a deadline of the scaled clock to true time. */
static struct timespec true_deadline(int clock, const struct timespec *t)
{
	int64_t start_ns = scaled_start_ns[clock];
	int64_t ns = to_ns(t);

	return from_ns(ns <= start_ns ? ns : start_ns + (ns - start_ns) / scaled_rate);
}

/* Converts a duration. A short duration does not become 0, which would mean "do not wait". */
static struct timespec true_duration(const struct timespec *t)
{
	int64_t ns = to_ns(t);

	return from_ns(ns > 0 && ns < scaled_rate ? 1 : ns / scaled_rate);
}

static struct timespec true_ms(int ms)
{
	struct timespec t = from_ns((int64_t)ms * (NS / 1000));

	return true_duration(&t);
}

static bool is_true_time(const void *caller)
{
	const uintptr_t at = (uintptr_t)caller;
	Dl_info info;

	if (scaled_rate == 1)
		return true;
	if (at >= scaled_program[0] && at < scaled_program[1])
		return false;
	return dladdr(caller, &info) != 0 && info.dli_fname &&
	       strstr(info.dli_fname, "libcurl");
}
#define TRUE_TIME is_true_time(__builtin_return_address(0))

static int find_program(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
			scaled_program[0] = info->dlpi_addr + p->p_vaddr;
			scaled_program[1] = scaled_program[0] + p->p_memsz;
		}
	}
	return 1; /* the first object is the program */
}

__attribute__((constructor)) static void scaled_begin(void)
{
	static const clockid_t ids[N_CLOCKS] = { CLOCK_MONOTONIC, CLOCK_REALTIME,
						 CLOCK_BOOTTIME };
	const char *rate = getenv("TIME_RATE");
	struct timespec t;

	for (int i = 0; i < N_CLOCKS; i++) {
		syscall(SYS_clock_gettime, ids[i], &t);
		scaled_start_ns[i] = to_ns(&t);
	}
	dl_iterate_phdr(find_program, NULL);
	if (rate && atoi(rate) > 0 && strcmp(program_invocation_short_name, "gpuward") == 0)
		scaled_rate = atoi(rate);
}

#pragma GCC visibility push(default)
int clock_gettime(clockid_t id, struct timespec *ret)
{
	const int clock = clock_of(id);
	REAL(clock_gettime);
	const int err = real(id, ret);

	if (err == 0 && clock >= 0 && !TRUE_TIME)
		*ret = from_ns(scaled_ns(clock, to_ns(ret)));
	return err;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec t;
	REAL(gettimeofday);
	const int err = real(ret, zone);

	if (err == 0 && !TRUE_TIME) {
		t = from_ns(scaled_ns(WALL, ret->tv_sec * NS + ret->tv_usec * 1000));
		*ret = (struct timeval){ .tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000 };
	}
	return err;
}

time_t time(time_t *ret)
{
	struct timespec t;

	/* this library is the caller, so the time is scaled */
	clock_gettime(CLOCK_REALTIME, &t);
	if (ret)
		*ret = t.tv_sec;
	return t.tv_sec;
}

int nanosleep(const struct timespec *want, struct timespec *left)
{
	struct timespec t = TRUE_TIME ? *want : true_duration(want);
	REAL(nanosleep);

	return real(&t, left); /* after a signal, `left` is too short, but no caller reads it */
}

int usleep(useconds_t us)
{
	struct timespec t = from_ns((int64_t)us * 1000);

	return nanosleep(&t, NULL);
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *want, struct timespec *left)
{
	const int clock = clock_of(id);
	struct timespec t = *want;
	REAL(clock_nanosleep);

	if (clock >= 0 && !TRUE_TIME)
		t = flags & TIMER_ABSTIME ? true_deadline(clock, want) : true_duration(want);
	return real(id, flags, &t, left);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *want, const sigset_t *mask)
{
	struct timespec t;
	REAL(ppoll);

	if (want)
		t = TRUE_TIME ? *want : true_duration(want);
	return real(fds, n, want ? &t : NULL, mask);
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec t = true_ms(ms);
	REAL(ppoll);

	if (TRUE_TIME)
		t = from_ns((int64_t)ms * (NS / 1000));
	return real(fds, n, ms < 0 ? NULL : &t, NULL);
}

int epoll_wait(int fd, struct epoll_event *ret, int n, int ms)
{
	struct timespec t = true_ms(ms);

	return epoll_pwait2(fd, ret, n, ms < 0 ? NULL : &t, NULL);
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id,
			   const struct timespec *until)
{
	struct timespec t = TRUE_TIME ? *until : true_deadline(clock_of(id), until);
	REAL(pthread_cond_clockwait);

	return real(c, m, id, &t);
}

/* A condition does not reveal its clock, so a time after 2001 is taken as wall time. */
int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
	const bool wall = until->tv_sec > 1000000000;
	struct timespec t = TRUE_TIME ? *until : true_deadline(wall ? WALL : MONO, until);
	REAL(pthread_cond_clockwait);

	return real(c, m, wall ? CLOCK_REALTIME : CLOCK_MONOTONIC, &t);
}

int sem_clockwait(sem_t *s, clockid_t id, const struct timespec *until)
{
	struct timespec t = TRUE_TIME ? *until : true_deadline(clock_of(id), until);
	REAL(sem_clockwait);

	return real(s, id, &t);
}
#pragma GCC visibility pop
