/* look_watch: somebody opened or closed a GPU: look now.
 *
 * Watches the device nodes by inotify.  An open is a trigger and no proof: it does not say who, and a
 * program that only asks for figures opens them too.  Nodes that come and go are followed. */
#ifndef GW_GUARD_LOOK_WATCH_H
#define GW_GUARD_LOOK_WATCH_H

#include "base/root.h"

#define WATCH_NODES 256

struct watch {
	const struct root *root;
	int fd; /* -1: the kernel gives none, and only polling is left */
	unsigned nodes;
	uint64_t events; /* since the start */
};

/* Borrows root. */
void look_watch_init(struct watch *w, const struct root *root);
void look_watch_done(struct watch *w);

/* Takes all that waits.  Was a GPU opened or closed, or is there a new one? */
bool look_watch_drain(struct watch *w);

#endif
