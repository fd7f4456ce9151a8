/* loop: waits for descriptors, times and signals, and calls whoever asked.
 *
 * One thread.  Callbacks may add and remove sources, their own too.  What a callback does is done
 * before anything else is looked at, so none may block.  Times are of CLOCK_MONOTONIC, kept in
 * a heap and waited for with the epoll timeout: no descriptor a timer. */
#ifndef GW_BASE_LOOP_H
#define GW_BASE_LOOP_H

#include <stdint.h>

struct loop;
struct loop_source;

/* events: EPOLLIN, EPOLLOUT, ... as of epoll(7). */
typedef void loop_fd_fn(void *arg, int fd, uint32_t events);
typedef void loop_timer_fn(void *arg, uint64_t now_ns);
typedef void loop_signal_fn(void *arg, int signal);

/* 0, -GW_E_NOMEM or -GW_E_IO (no descriptors left). */
int loop_new(struct loop **ret);
void loop_free(struct loop *l);

/* Watches fd (borrowed: remove the source before closing it).  0, -GW_E_NOMEM or -GW_E_IO. */
int loop_add_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn *fn, void *arg,
		struct loop_source **ret);
int loop_set_events(struct loop_source *s, uint32_t events);

/* A timer that is off until loop_set_time(): fires once at that time (0: off). */
int loop_add_timer(struct loop *l, loop_timer_fn *fn, void *arg, struct loop_source **ret);
void loop_set_time(struct loop_source *s, uint64_t at_ns);

/* From now on these signals are blocked for the process's threads to come and this one, and come
 * to fn, by signalfd.  signals ends with 0.  Call before threads are started. */
int loop_add_signals(struct loop *l, const int *signals, loop_signal_fn *fn, void *arg,
		     struct loop_source **ret);

/* NULL is fine.  Its callback is not called again, even when it was already due. */
void loop_remove(struct loop_source *s);

/* Runs until loop_stop().  loop_once: one round of at most timeout_ns (UINT64_MAX: for ever). */
void loop_run(struct loop *l);
void loop_once(struct loop *l, uint64_t timeout_ns);
void loop_stop(struct loop *l);

/* Rounds so far: how often we woke up. */
uint64_t loop_wakeups(const struct loop *l);

#endif
