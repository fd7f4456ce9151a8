/* games: who told that it plays, until it says otherwise, its process ends or its time is over.
 *
 * GameMode's scripts and launchers tell through gpuward guard game.  Each is known by its process, so that the
 * end of one game is not the end of another, and one that crashes is over with its process.  Each is a document of the
 * store: after a restart of the service one whose process lives plays still, before the guard looks. */
#ifndef GW_DAEMON_GAMES_H
#define GW_DAEMON_GAMES_H

#include "store.h"

#include "base/loop.h"
#include "serve/guard_view.h"

struct games;

/* changed is called when their number has changed, also during this call where some play still.  The store is borrowed.  0
 * or -GW_E_NOMEM. */
int games_new(struct loop *loop, struct store *store,
	      void (*changed)(void *arg, unsigned count), void *arg, uint64_t now_ns,
	      struct games **ret);
void games_free(struct games *g);

/* start_ticks: when the process began.  ttl_ns UINT64_MAX: as long as the process.  One that is known begins anew.  uid: who
 * tells, -1: one with the token.  0; -GW_E_ARG: there is no such process (any more); -GW_E_NOSUPPORT: this kernel cannot
 * watch it and no time was given; -GW_E_SIZE: too many.  *ret_kept: the store has taken it, a restart knows it. */
int games_begin(struct games *g, int64_t pid, uint64_t start_ticks, uint64_t ttl_ns,
		int64_t uid, const char *who, uint64_t now_ns, bool *ret_kept);
/* uid: who asks; -1 and 0 may end those of others.  0, -GW_E_NOENT or -GW_E_PERM. */
int games_end(struct games *g, int64_t pid, int64_t uid);

/* Place i of GUARD_VIEW_GAMES; pid 0: it is free. */
const struct guard_view_game *games_list(const struct games *g);

#endif
