/* metrics_process: who holds the memory of a GPU, bounded.
 *
 * Processes of the same name and user are one row: pids and command lines are no labels.  Rows are
 * kept for at most GROUPS names; what comes after them goes to the remainder. */
#include "metrics_text.h"

#include <string.h>

#define GROUPS 256

struct group {
	const char *name, *user;
	uint64_t bytes;
	bool shown;
};

struct groups {
	struct group row[GROUPS];
	unsigned count;
	uint64_t other;
};

static struct group *find(struct groups *g, const char *name, const char *user)
{
	for (unsigned i = 0; i < g->count; i++)
		if (strcmp(g->row[i].name, name) == 0 && strcmp(g->row[i].user, user) == 0)
			return &g->row[i];
	if (g->count == GROUPS)
		return NULL;
	g->row[g->count] = (struct group){ .name = name, .user = user };
	return &g->row[g->count++];
}

static void add(struct groups *g, const struct gw_process *p)
{
	const char *name = p->name && *p->name ? p->name : "unknown";
	const char *user = p->user ? p->user : "";
	struct group *row;

	/* One that would be mistaken for the remainder is part of it. */
	row = strcmp(name, "other") == 0 && !*user ? NULL : find(g, name, user);
	if (row)
		row->bytes += (uint64_t)p->memory_bytes;
	else
		g->other += (uint64_t)p->memory_bytes;
}

static struct group *largest(struct groups *g)
{
	struct group *best = NULL;

	for (unsigned i = 0; i < g->count; i++)
		if (!g->row[i].shown && (!best || g->row[i].bytes > best->bytes))
			best = &g->row[i];
	return best;
}

static void show(struct metrics_text *t, const char *base, const char *name, const char *user,
		 uint64_t bytes)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "name", name);
	labels_add(&l, "user", user);
	metrics_sample(t, base, l.text, (double)bytes);
}

void metrics_processes(struct metrics_text *t, const char *base,
		       const struct gw_process_list *list, unsigned device, unsigned top)
{
	struct groups g = { .count = 0 };
	struct group *row;

	if (!list || gw_process_list_absence(list, device) != GW_HAVE)
		return;
	for (unsigned i = 0; i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		if (p->device == device && p->memory_absence == GW_HAVE)
			add(&g, p);
	}
	for (unsigned i = 0; i < top && (row = largest(&g)); i++) {
		row->shown = true;
		show(t, base, row->name, row->user, row->bytes);
	}
	for (row = g.row; row < g.row + g.count; row++)
		g.other += row->shown ? 0 : row->bytes;
	show(t, base, "other", "", g.other);
}
