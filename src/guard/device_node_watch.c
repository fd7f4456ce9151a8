/* Watches each device node, and the creation of files in the folders of the nodes. It does not
 * watch all opens in /dev, because then each terminal would wake the service. */
#include "device_node_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders of the nodes, and the beginnings of the nodes' names. */
static const struct {
	const char *folder, *prefix;
} places[] = {
	{ "dev", "nvidia" }, /* nvidia0, nvidiactl, nvidia-uvm, ... */
	{ "dev/dri", "renderD" },
};

/* Watching a node needs the right to read it. That right may be granted after the node was
 * created (IN_ATTRIB). */
#define NODE_EVENTS   (IN_OPEN | IN_CLOSE)
#define FOLDER_EVENTS (IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR)
#define PLACES        (sizeof(places) / sizeof(places[0]))

/* Watches a path. If the root folder is not "/", the path for inotify leads through the
 * descriptor of the root folder. */
static void add_watch(struct device_node_watch *w, const char *path, uint32_t events)
{
	char full[600];

	if (w->root->real)
		snprintf(full, sizeof(full), "/%s", path);
	else
		snprintf(full, sizeof(full), "/proc/self/fd/%d/%s", w->root->fd, path);
	if (inotify_add_watch(w->fd, full, events) >= 0 && events == NODE_EVENTS)
		w->nodes++;
}

struct place {
	struct device_node_watch *w;
	unsigned i;
};

static bool add_node(void *arg, const char *name)
{
	struct place *at = arg;
	char path[512];
	struct stat st;

	if (strncmp(name, places[at->i].prefix, strlen(places[at->i].prefix)) != 0)
		return true;
	root_path(path, sizeof(path), "%s/%s", places[at->i].folder, name);
	if (fstatat(at->w->root->fd, path, &st, 0) == 0 && !S_ISDIR(st.st_mode))
		add_watch(at->w, path, NODE_EVENTS);
	return at->w->nodes < WATCH_NODES;
}

/* Watches all nodes. Watching a node a second time changes nothing. The kernel ends the watch
 * of a node that is removed. */
static void add_all_nodes(struct device_node_watch *w)
{
	w->nodes = 0;
	for (unsigned i = 0; i < PLACES; i++) {
		struct place at = { w, i };

		add_watch(w, places[i].folder, FOLDER_EVENTS);
		(void)root_each_name(w->root, places[i].folder, add_node, &at);
	}
}

void device_node_watch_init(struct device_node_watch *w, const struct root *root)
{
	*w = (struct device_node_watch){ .root = root,
					 .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC) };
	if (w->fd >= 0)
		add_all_nodes(w);
}

void device_node_watch_done(struct device_node_watch *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

static bool is_gpu_node(const char *name)
{
	if (strcmp(name, "dri") == 0)
		return true;
	for (unsigned i = 0; i < PLACES; i++)
		if (strncmp(name, places[i].prefix, strlen(places[i].prefix)) == 0)
			return true;
	return false;
}

static bool read_events(struct device_node_watch *w)
{
	_Alignas(struct inotify_event) char buf[8192];
	bool triggered = false, changed = false;
	ssize_t n;

	while (w->fd >= 0 && (n = read(w->fd, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *e = (const void *)(buf + at);

			at += (ssize_t)(sizeof(*e) + e->len);
			w->events++;
			triggered |= (e->mask & NODE_EVENTS) != 0;
			/* After an overflow of the queue, a new node may have been missed. */
			changed |=
				(e->mask & IN_Q_OVERFLOW) || (e->len && is_gpu_node(e->name));
		}
	}
	if (changed)
		add_all_nodes(w);
	return triggered || changed;
}

bool device_node_watch_triggered(struct device_node_watch *w, uint64_t now_ns)
{
	const uint64_t since_ns = now_ns - w->last_ns;

	w->pending |= read_events(w);
	if (!w->pending || (w->last_ns && since_ns < w->spacing_ns))
		return false;
	if (!w->last_ns || since_ns >= WATCH_CALM_NS)
		w->spacing_ns = WATCH_SPACING_NS;
	else if (2 * w->spacing_ns <= WATCH_MOST_NS)
		w->spacing_ns *= 2;
	else
		w->spacing_ns = WATCH_MOST_NS;
	w->pending = false;
	w->last_ns = now_ns;
	return true;
}

uint64_t device_node_watch_due_ns(const struct device_node_watch *w)
{
	return w->pending ? w->last_ns + w->spacing_ns : 0;
}
