/* metrics_process: memory of the programs on a GPU, bounded.
 *
 * Processes with the same name and user are one row; pids and command lines are no labels.
 * There are at most GROUPS rows; the rest counts as "other". */
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

static struct group *find_group(struct groups *g, const char *name, const char *user)
{
	for (unsigned i = 0; i < g->count; i++)
		if (strcmp(g->row[i].name, name) == 0 && strcmp(g->row[i].user, user) == 0)
			return &g->row[i];
	if (g->count == GROUPS)
		return NULL;
	g->row[g->count] = (struct group){ .name = name, .user = user };
	return &g->row[g->count++];
}

static void add_process(struct groups *g, const struct gw_process *p)
{
	const char *name = p->name && *p->name ? p->name : "unknown";
	const char *user = p->user ? p->user : "";
	struct group *row;

	/* A program that is named like the remainder is part of it. */
	row = strcmp(name, "other") == 0 && !*user ? NULL : find_group(g, name, user);
	if (row)
		row->bytes += p->memory_bytes;
	else
		g->other += p->memory_bytes;
}

static struct group *largest(struct groups *g)
{
	struct group *best = NULL;

	for (unsigned i = 0; i < g->count; i++)
		if (!g->row[i].shown && (!best || g->row[i].bytes > best->bytes))
			best = &g->row[i];
	return best;
}

static void put_row(struct metrics_text *t, const char *base, const char *name,
		    const char *user, uint64_t bytes)
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
			add_process(&g, p);
	}
	for (unsigned i = 0; i < top && (row = largest(&g)); i++) {
		row->shown = true;
		put_row(t, base, row->name, row->user, row->bytes);
	}
	for (row = g.row; row < g.row + g.count; row++)
		g.other += row->shown ? 0 : row->bytes;
	put_row(t, base, "other", "", g.other);
}
