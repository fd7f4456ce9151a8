/* look_watch: somebody opened or closed a GPU: look now.
 *
 * Watches the device nodes by inotify.  An open is a trigger and no proof: it does not say who, and a
 * program that only asks for figures opens them too, again and again.  So the first counts at once, more
 * of them only every so often.  Nodes that come and go are followed. */
#ifndef GW_GUARD_DEVICE_NODE_WATCH_H
#define GW_GUARD_DEVICE_NODE_WATCH_H

#include "base/root.h"

#define WATCH_NODES      256
#define WATCH_SPACING_NS UINT64_C(20000000)  /* between two, doubled while they go on ... */
#define WATCH_MOST_NS    UINT64_C(100000000) /* ... up to this: the pace of a poll       */
#define WATCH_CALM_NS    UINT64_C(1000000000)

struct device_node_watch {
	const struct root *root;
	int fd; /* -1: the kernel gives none, and only polling is left */
	unsigned nodes;
	uint64_t events; /* since the start */
	bool pending;    /* something came too soon after the last */
	uint64_t last_ns, spacing_ns;
};

/* Borrows root. */
void device_node_watch_init(struct device_node_watch *w, const struct root *root);
void device_node_watch_done(struct device_node_watch *w);

/* Takes all that waits.  Was a GPU opened or closed, or is there a new one, and is it time to look? */
bool device_node_watch_ask(struct device_node_watch *w, uint64_t now_ns);

/* When to ask again though nothing new came; 0: no need. */
uint64_t device_node_watch_due_ns(const struct device_node_watch *w);

#endif
