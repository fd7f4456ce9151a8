/* device_node_watch: watches the device nodes of the GPUs with inotify, to trigger the next
 * scene.
 *
 * An event does not name the process, and monitoring programs open the nodes again and again.
 * So the first event triggers a scene at once, and further events trigger scenes at increasing
 * intervals. New nodes are watched too, and removed nodes are dropped. */
#ifndef GW_GUARD_DEVICE_NODE_WATCH_H
#define GW_GUARD_DEVICE_NODE_WATCH_H

#include "base/clock.h"
#include "base/root.h"

#define WATCH_NODES 256 /* maximum number of device nodes that are watched */
/* the time between the first two triggers; each trigger doubles it */
#define WATCH_SPACING_NS UINT64_C(20000000)
/* the longest time between triggers, and between scenes while a worker is present */
#define WATCH_MOST_NS (100 * NS_PER_MS)
/* a pause of this length resets the time between triggers */
#define WATCH_CALM_NS NS_PER_S

struct device_node_watch {
	const struct root *root;
	int fd;              /* -1: inotify is not available */
	unsigned nodes;      /* device nodes that are watched */
	uint64_t events;     /* events of inotify so far */
	bool pending;        /* an event came too soon after the last trigger and waits */
	uint64_t last_ns;    /* when the last trigger was; 0: never */
	uint64_t spacing_ns; /* least time from the last trigger to the next */
};

/* Borrows root. */
void device_node_watch_init(struct device_node_watch *w, const struct root *root);
void device_node_watch_done(struct device_node_watch *w);

/* Reads all events. True if a relevant event is pending (a process opened or closed a GPU, or a
 * node changed) and enough time has passed since the last trigger. */
bool device_node_watch_triggered(struct device_node_watch *w, uint64_t now_ns);

/* Returns when a pending event becomes due; 0: none is pending. */
uint64_t device_node_watch_due_ns(const struct device_node_watch *w);

#endif
