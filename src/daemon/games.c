#include "games.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

struct watched {
	struct games *games;
	int fd; /* pidfd; -1: none */
	struct loop_source *source;
};

struct games {
	struct loop *loop;
	void (*changed)(void *arg, unsigned count);
	void *arg;
	struct loop_source *timer;
	struct guard_view_game game[GUARD_VIEW_GAMES];
	struct watched watched[GUARD_VIEW_GAMES];
};

/* ---- ends ---- */

static void forget(struct games *g, unsigned i)
{
	struct watched *w = &g->watched[i];

	if (w->source)
		loop_remove(w->source);
	if (w->fd >= 0)
		close(w->fd);
	*w = (struct watched){ .games = g, .fd = -1 };
	g->game[i] = (struct guard_view_game){ .pid = 0 };
}

static void tell(struct games *g)
{
	uint64_t first = UINT64_MAX;
	unsigned n = 0;

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++) {
		n += g->game[i].pid != 0;
		if (g->game[i].pid && g->game[i].until_ns < first)
			first = g->game[i].until_ns;
	}
	loop_set_time(g->timer, first == UINT64_MAX ? 0 : first);
	g->changed(g->arg, n);
}

static void time_is_over(void *arg, uint64_t now_ns)
{
	struct games *g = arg;

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		if (g->game[i].pid && g->game[i].until_ns <= now_ns)
			forget(g, i);
	tell(g);
}

static void process_ended(void *arg, int fd, uint32_t events)
{
	struct watched *w = arg;
	struct games *g = w->games;

	(void)fd;
	(void)events;
	forget(g, (unsigned)(w - g->watched));
	tell(g);
}

/* ---- what is told ---- */

static int place_of(const struct games *g, int64_t pid)
{
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		if (g->game[i].pid == pid)
			return (int)i;
	return -1;
}

static int watch(struct games *g, unsigned i, int64_t pid, uint64_t ttl_ns)
{
	struct watched *w = &g->watched[i];
	int err;

	w->fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (w->fd < 0 && (errno == ESRCH || errno == EINVAL))
		return -GW_E_ARG;
	if (w->fd < 0)
		return ttl_ns == UINT64_MAX ? -GW_E_NOSUPPORT : 0;
	err = loop_add_fd(g->loop, w->fd, EPOLLIN, process_ended, w, &w->source);
	return err ? -GW_E_NOMEM : 0;
}

int games_begin(struct games *g, int64_t pid, uint64_t ttl_ns, int64_t uid, const char *who,
		uint64_t now_ns)
{
	int at = place_of(g, pid), err;

	if (pid <= 0)
		return -GW_E_ARG;
	if (at >= 0)
		forget(g, (unsigned)at);
	else
		at = place_of(g, 0);
	if (at < 0)
		return -GW_E_SIZE;
	err = watch(g, (unsigned)at, pid, ttl_ns);
	if (err) {
		forget(g, (unsigned)at);
		tell(g);
		return err;
	}
	g->game[at] = (struct guard_view_game){
		.pid = pid,
		.uid = uid,
		.since_ns = now_ns,
		.until_ns = ttl_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + ttl_ns,
	};
	snprintf(g->game[at].who, sizeof(g->game[at].who), "%s", who);
	tell(g);
	return 0;
}

int games_end(struct games *g, int64_t pid, int64_t uid)
{
	int at = pid > 0 ? place_of(g, pid) : -1;

	if (at < 0)
		return -GW_E_NOENT;
	if (uid > 0 && g->game[at].uid != uid)
		return -GW_E_PERM;
	forget(g, (unsigned)at);
	tell(g);
	return 0;
}

const struct guard_view_game *games_list(const struct games *g)
{
	return g->game;
}

/* ---- beginning and end ---- */

int games_new(struct loop *loop, void (*changed)(void *arg, unsigned count), void *arg,
	      struct games **ret)
{
	struct games *g = calloc(1, sizeof(*g));

	if (!g)
		return -GW_E_NOMEM;
	g->loop = loop;
	g->changed = changed;
	g->arg = arg;
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		g->watched[i] = (struct watched){ .games = g, .fd = -1 };
	if (loop_add_timer(loop, time_is_over, g, &g->timer) != 0) {
		free(g);
		return -GW_E_NOMEM;
	}
	*ret = g;
	return 0;
}

void games_free(struct games *g)
{
	if (!g)
		return;
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		forget(g, i);
	loop_remove(g->timer);
	free(g);
}
