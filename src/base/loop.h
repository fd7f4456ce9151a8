/* loop: waits for descriptors, times and signals, and calls the registered functions.
 *
 * Everything runs on one thread. A callback must not block, because all other callbacks wait
 * for it; it may add and remove sources, even its own. Times are CLOCK_MONOTONIC. The earliest
 * timer sets the timeout of epoll_wait(), so a timer needs no descriptor. */
#ifndef GW_BASE_LOOP_H
#define GW_BASE_LOOP_H

#include <stdint.h>

struct loop;
struct loop_source;

/* events: EPOLLIN, EPOLLOUT, ... as in epoll(7). */
typedef void loop_fd_fn(void *arg, int fd, uint32_t events);
typedef void loop_timer_fn(void *arg, uint64_t now_ns);
typedef void loop_signal_fn(void *arg, int signal);

/* Returns 0, -GW_E_NOMEM or -GW_E_IO (no descriptors left). */
int loop_new(struct loop **ret);
void loop_free(struct loop *l);

/* Calls fn when fd has one of the events. fd is borrowed: remove the source before you close
 * fd. Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int loop_add_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn *fn, void *arg,
		struct loop_source **ret);
int loop_set_events(struct loop_source *s, uint32_t events);

/* loop_add_timer() adds a timer that is off. loop_set_time() makes the timer fire once at
 * at_ns, or switches it off if at_ns is 0. */
int loop_add_timer(struct loop *l, loop_timer_fn *fn, void *arg, struct loop_source **ret);
void loop_set_time(struct loop_source *s, uint64_t at_ns);

/* Blocks these signals in this thread and all threads that it starts later, and delivers them
 * to fn with a signalfd. `signals` ends with 0. Call this function before any thread is
 * started. */
int loop_add_signals(struct loop *l, const int *signals, loop_signal_fn *fn, void *arg,
		     struct loop_source **ret);

/* Removes a source; NULL is allowed. The callback of the source is not called again, even if it
 * was already due. */
void loop_remove(struct loop_source *s);

/* loop_run() runs rounds until a callback calls loop_stop(). loop_once() runs one round, which
 * waits at most timeout_ns (UINT64_MAX: no limit). */
void loop_run(struct loop *l);
void loop_once(struct loop *l, uint64_t timeout_ns);
void loop_stop(struct loop *l);

/* Returns how many rounds the loop has run. */
uint64_t loop_wakeups(const struct loop *l);

#endif
