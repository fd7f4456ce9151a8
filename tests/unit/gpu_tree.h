/* gpu_tree: a backend over a tree of files, for tests of backends that read /sys. */
#ifndef GW_TEST_GPU_TREE_H
#define GW_TEST_GPU_TREE_H

#include "device/backend.h"

#include "tree.h"

#include "test.h"

#include <sys/inotify.h>

#define PCI "sys/bus/pci/devices/"

struct world {
	struct tree tree;
	struct clock_stepped clock;
	struct backend_env env;
	struct backend b;
};

/* The world of the current test, with the report that was read last. */
static struct world the_world, *const w = &the_world;
static struct report *r;

static inline void world_init(const struct backend_ops *ops)
{
	memset(w, 0, sizeof(*w));
	tree_init(&w->tree);
	clock_stepped_init(&w->clock, NS_PER_S, NS_PER_S);
	w->env = (struct backend_env){ .clock = &w->clock.clock, .root = &w->tree.root };
	w->b = (struct backend){ .ops = ops, .env = &w->env };
}

static inline int world_teardown(void **state)
{
	w->b.ops->close(&w->b);
	backend_done(&w->b);
	tree_done(&w->tree);
	return 0;
}

static inline void world_fill(const char *prefix, const struct tree_row *rows)
{
	tree_fill(&w->tree, prefix, rows);
}

static inline void world_put(const char *path, const char *text)
{
	tree_put(&w->tree, path, text);
}

/* Closes and opens the backend, as a context does. */
static inline void world_open(unsigned want)
{
	w->b.ops->close(&w->b);
	assert_int_equal(w->b.ops->open(&w->b), 0);
	assert_int_equal(w->b.count, want);
}

static inline struct report *world_read(unsigned i, unsigned tiers)
{
	w->b.ops->read(w->b.slot[i], tiers);
	return &w->b.slot[i]->r;
}

static inline void assert_value(const struct report *report, unsigned q, double want)
{
	if (report->why[q] != GW_HAVE)
		fail_msg("%s is absent: %s", gw_quantity_info(q)->key,
			 gw_absence_key(report->why[q]));
	if (report->v[q] < want - 1e-9 * want - 1e-12 ||
	    report->v[q] > want + 1e-9 * want + 1e-12)
		fail_msg("%s is %g, not %g", gw_quantity_info(q)->key, report->v[q], want);
}

static inline void assert_absent(const struct report *report, unsigned q, enum gw_absence why)
{
	if (report->why[q] != why)
		fail_msg("%s is \"%s\", not \"%s\"", gw_quantity_info(q)->key,
			 gw_absence_key(report->why[q]), gw_absence_key(why));
}

static inline void assert_text(const struct report *report, enum gw_text t, const char *want)
{
	assert_int_equal(report->text_why[t], GW_HAVE);
	assert_string_equal(report->text[t], want);
}

/* A witness records which files of the watched folders are opened. */
struct witness {
	int fd;
};

static inline void witness_init(struct witness *eye)
{
	eye->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	assert_true(eye->fd >= 0);
}

static inline void witness_watch(struct witness *eye, const struct tree *t, const char *folder)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", t->path, folder);
	assert_true(inotify_add_watch(eye->fd, path, IN_OPEN | IN_ACCESS) >= 0);
}

/* Fails if a file was opened that is not allowed; returns how many were opened. */
static inline unsigned witness_ask(struct witness *eye, const char *const *allowed)
{
	_Alignas(struct inotify_event) char buf[8192];
	unsigned seen = 0;
	ssize_t n;

	while ((n = read(eye->fd, buf, sizeof(buf))) > 0) {
		for (char *p = buf; p < buf + n;) {
			struct inotify_event *e = (struct inotify_event *)(void *)p;
			const char *const *a = allowed;

			while (*a && (!e->len || strcmp(*a, e->name) != 0))
				a++;
			if (!*a)
				fail_msg("touched %s", e->len ? e->name : "a folder");
			seen++;
			p += sizeof(*e) + e->len;
		}
	}
	close(eye->fd);
	return seen;
}

#endif
