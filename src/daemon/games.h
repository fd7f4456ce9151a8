/* games: processes that are registered as games, until they unregister, exit or reach their
 * time limit.
 *
 * GameMode's scripts and launchers register games with gpuward guard game. Each game is
 * identified by its process: the end of one game does not end another, and a crashed game is
 * removed. Registrations are in the store. After a restart of the service, the games that still
 * run are loaded before the guard observes the first scene. */
#ifndef GW_DAEMON_GAMES_H
#define GW_DAEMON_GAMES_H

#include "store.h"

#include "base/loop.h"
#include "serve/guard_view.h"

struct games;

/* Borrows the store. Calls changed() each time the number of games changes. games_new() itself
 * calls changed() if stored games still run. latest is the pid of the game that was registered
 * last, or 0 if no game runs. Returns 0 or -GW_E_NOMEM. */
int games_new(struct loop *loop, struct store *store,
	      void (*changed)(void *arg, unsigned count, int64_t latest), void *arg,
	      uint64_t now_ns, struct games **ret);
void games_free(struct games *g);

/* Registers a process as a game. If this pid is already registered, replaces the
 * registration. start_ticks is the start time of the process. With ttl_ns UINT64_MAX, the
 * game lasts until the process exits. uid is the caller, or -1 for a caller with the token.
 * *ret_kept is true if the game is in the store and survives a restart.
 * Returns 0, -GW_E_ARG (no such process), -GW_E_NOSUPPORT (this kernel cannot watch the
 * process and no ttl was given) or -GW_E_SIZE (too many games). */
int games_begin(struct games *g, int64_t pid, uint64_t start_ticks, uint64_t ttl_ns,
		int64_t uid, const char *who, uint64_t now_ns, bool *ret_kept);
/* Ends a game. uid is the caller. A caller with uid 0 or -1 may end any game. Returns 0,
 * -GW_E_NOENT or -GW_E_PERM. */
int games_end(struct games *g, int64_t pid, int64_t uid);

/* Returns an array of GUARD_VIEW_GAMES slots. A slot with pid 0 is free. */
const struct guard_view_game *games_list(const struct games *g);

#endif
