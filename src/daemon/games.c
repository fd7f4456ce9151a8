#include "games.h"

#include "journal_record.h"
#include "peer_process.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KIND "guard-game" /* Kind of the documents in the store. */

struct watched {
	struct games *games;
	int fd; /* pidfd of the process. -1 if there is none. */
	struct loop_source *source;
};

struct games {
	struct loop *loop;
	struct store *store;
	void (*changed)(void *arg, unsigned count, int64_t latest);
	void *arg;
	struct loop_source *timer;
	struct guard_view_game game[GUARD_VIEW_GAMES];
	struct watched watched[GUARD_VIEW_GAMES];
};

static void game_key(int64_t pid, char out[static 24])
{
	snprintf(out, 24, "%lld", (long long)pid);
}

static bool games_save(struct games *g, unsigned i, uint64_t start_ticks)
{
	const struct guard_game_record r = { g->game[i], start_ticks };
	struct buf text;
	char name[24];
	bool kept;

	game_key(r.game.pid, name);
	buf_init(&text, 4096);
	guard_game_write(&text, &r);
	kept = !text.err && store_put_document(g->store, KIND, name, text.p, text.len) == 0;
	store_commit(g->store);
	buf_done(&text);
	return kept;
}

/* Frees the slot. The document in the store stays. */
static void games_clear(struct games *g, unsigned i)
{
	struct watched *w = &g->watched[i];

	if (w->source)
		loop_remove(w->source);
	if (w->fd >= 0)
		close(w->fd);
	*w = (struct watched){ .games = g, .fd = -1 };
	g->game[i] = (struct guard_view_game){ .pid = 0 };
}

static void games_remove(struct games *g, unsigned i)
{
	char name[24];

	game_key(g->game[i].pid, name);
	store_delete_document(g->store, KIND, name);
	store_commit(g->store);
	games_clear(g, i);
}

static void games_notify(struct games *g)
{
	uint64_t first = UINT64_MAX;
	const struct guard_view_game *latest = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++) {
		const struct guard_view_game *x = &g->game[i];

		if (!x->pid)
			continue;
		n++;
		if (x->until_ns < first)
			first = x->until_ns;
		if (!latest || x->since_ns > latest->since_ns)
			latest = x;
	}
	loop_set_time(g->timer, first == UINT64_MAX ? 0 : first);
	g->changed(g->arg, n, latest ? latest->pid : 0);
}

static void games_expired(void *arg, uint64_t now_ns)
{
	struct games *g = arg;

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		if (g->game[i].pid && g->game[i].until_ns <= now_ns)
			games_remove(g, i);
	games_notify(g);
}

static void process_ended(void *arg, int fd, uint32_t events)
{
	struct watched *w = arg;
	struct games *g = w->games;

	(void)fd;
	(void)events;
	games_remove(g, (unsigned)(w - g->watched));
	games_notify(g);
}

static int games_slot(const struct games *g, int64_t pid)
{
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		if (g->game[i].pid == pid)
			return (int)i;
	return -1;
}

static int games_watch(struct games *g, unsigned i, int64_t pid, uint64_t start_ticks,
		       bool ends)
{
	struct watched *w = &g->watched[i];

	if (peer_process_open((struct proc_id){ pid, start_ticks }, &w->fd) != 0)
		return -GW_E_ARG;
	if (w->fd < 0)
		return ends ? 0 : -GW_E_NOSUPPORT;
	return loop_add_fd(g->loop, w->fd, EPOLLIN, process_ended, w, &w->source) ? -GW_E_NOMEM
										  : 0;
}

/* Adds a game in a free slot. */
static int games_add(struct games *g, const struct guard_view_game *game, uint64_t start_ticks,
		     unsigned *ret_at)
{
	int at = games_slot(g, 0), err;

	if (at < 0)
		return -GW_E_SIZE;
	err = games_watch(g, (unsigned)at, game->pid, start_ticks,
			  game->until_ns != UINT64_MAX);
	if (err)
		games_clear(g, (unsigned)at);
	else
		g->game[at] = *game;
	*ret_at = (unsigned)at;
	return err;
}

/* Replaces the registration in slot i. If the new one cannot be watched, the old registration
 * stays. */
static int games_renew(struct games *g, unsigned i, const struct guard_view_game *game,
		       uint64_t start_ticks)
{
	const struct guard_view_game earlier = g->game[i];
	const struct watched watched = g->watched[i];
	int err;

	g->watched[i] = (struct watched){ .games = g, .fd = -1 };
	err = games_watch(g, i, game->pid, start_ticks, game->until_ns != UINT64_MAX);
	if (err) {
		games_clear(g, i);
		g->watched[i] = watched;
		g->game[i] = earlier;
		return err;
	}
	if (watched.source)
		loop_remove(watched.source);
	if (watched.fd >= 0)
		close(watched.fd);
	g->game[i] = *game;
	return 0;
}

int games_begin(struct games *g, int64_t pid, uint64_t start_ticks, uint64_t ttl_ns,
		int64_t uid, const char *who, uint64_t now_ns, bool *ret_kept)
{
	struct guard_view_game game = {
		.pid = pid,
		.uid = uid,
		.since_ns = now_ns,
		.until_ns = ttl_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + ttl_ns,
	};
	int known = games_slot(g, pid), err;
	unsigned at = (unsigned)known;

	if (pid <= 0)
		return -GW_E_ARG;
	snprintf(game.who, sizeof(game.who), "%s", who);
	err = known >= 0 ? games_renew(g, at, &game, start_ticks)
			 : games_add(g, &game, start_ticks, &at);
	if (err)
		return err;
	*ret_kept = games_save(g, at, start_ticks);
	games_notify(g);
	return 0;
}

int games_end(struct games *g, int64_t pid, int64_t uid)
{
	int at = pid > 0 ? games_slot(g, pid) : -1;

	if (at < 0)
		return -GW_E_NOENT;
	if (uid > 0 && g->game[at].uid != uid)
		return -GW_E_PERM;
	games_remove(g, (unsigned)at);
	games_notify(g);
	return 0;
}

const struct guard_view_game *games_list(const struct games *g)
{
	return g->game;
}

struct games_loading {
	struct games *games;
	uint64_t now_ns;
};

static void games_load(void *arg, const char *id, const char *json)
{
	const struct games_loading *t = arg;
	struct guard_game_record r;
	unsigned at;

	if (guard_game_read(json, &r) != 0 || r.game.until_ns <= t->now_ns ||
	    games_add(t->games, &r.game, r.start_ticks, &at) != 0)
		store_delete_document(t->games->store, KIND, id);
}

int games_new(struct loop *loop, struct store *store,
	      void (*changed)(void *arg, unsigned count, int64_t latest), void *arg,
	      uint64_t now_ns, struct games **ret)
{
	struct games *g = calloc(1, sizeof(*g));

	if (!g)
		return -GW_E_NOMEM;
	g->loop = loop;
	g->store = store;
	g->changed = changed;
	g->arg = arg;
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		g->watched[i] = (struct watched){ .games = g, .fd = -1 };
	if (loop_add_timer(loop, games_expired, g, &g->timer) != 0) {
		free(g);
		return -GW_E_NOMEM;
	}
	store_each_document(store, KIND, GUARD_VIEW_GAMES, games_load,
			    &(struct games_loading){ g, now_ns });
	store_commit(store);
	if (games_slot(g, 0) != 0) /* At least one game was loaded. */
		games_notify(g);
	*ret = g;
	return 0;
}

void games_free(struct games *g)
{
	if (!g)
		return;
	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++)
		games_clear(g, i);
	loop_remove(g->timer);
	free(g);
}
