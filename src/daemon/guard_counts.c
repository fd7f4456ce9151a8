#include "guard_counts.h"

#include <stdio.h>
#include <string.h>

#define XID_MOST           1024 /* NVIDIA's numbers are below 200 */
#define XID_UNKNOWN_NUMBER 999  /* counted for a larger number */

/* worker NULL: the sum of all workers. */
static void count_key(char *out, size_t size, const char *worker, unsigned cell)
{
	char name[48];

	counters_cell_name(cell, name, sizeof(name));
	snprintf(out, size, "guard%s%s/%s", worker ? "/" : "-all", worker ? worker : "", name);
}

static void counts_load(uint64_t *cell, struct store *s, const char *worker)
{
	char key[192];

	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		count_key(key, sizeof(key), worker, c);
		cell[c] = (uint64_t)store_count_now(s, key);
	}
}

static void counts_save(const uint64_t *cell, struct store *s, const char *worker)
{
	char key[192];

	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		if (!cell[c])
			continue;
		count_key(key, sizeof(key), worker, c);
		store_set_count(s, key, (double)cell[c]);
	}
}

static void xid_key(char *out, size_t size, const char *uuid, unsigned xid)
{
	snprintf(out, size, "xid/%s/%u", uuid, xid);
}

/* A store of an earlier version has no sums; use at least the sum of the current workers. */
static void sum_up(struct guard_counters *t)
{
	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < t->workers; i++)
			sum += t->worker[i].cell[c];
		if (t->all[c] < sum)
			t->all[c] = sum;
	}
}

void guard_counts_load(struct guard_counters *t, struct store *s, const struct policy *p)
{
	counters_fit(t, p);
	counts_load(t->all, s, NULL);
	for (unsigned i = 0; i < p->workers; i++) {
		const char *name = p->worker[i].name;
		struct counters_worker *w =
			counters_find(t, name) ? NULL : counters_worker(t, name);

		if (w)
			counts_load(w->cell, s, name);
	}
	sum_up(t);
}

void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid)
{
	char key[160];

	for (unsigned i = 0; i < t->xids; i++)
		if (strcmp(t->xid[i].uuid, uuid) == 0)
			return;
	for (unsigned n = 0; n < XID_MOST; n++) {
		struct counters_xid *x;
		uint64_t count;

		xid_key(key, sizeof(key), uuid, n);
		count = (uint64_t)store_count(s, key);
		x = count ? counters_xid(t, uuid, n) : NULL;
		if (x)
			x->count = count;
	}
}

void guard_counts_add(struct guard_counters *t, struct store *s, const char *worker,
		      const struct guard_decision *d)
{
	const struct counters_worker *w = counters_add(t, worker, d);

	if (w)
		counts_save(w->cell, s, worker);
	counts_save(t->all, s, NULL);
}

void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid)
{
	const struct counters_xid *x;
	char key[160];

	guard_counts_load_xids(t, s, uuid);
	x = counters_xid(t, uuid, xid < XID_MOST ? xid : XID_UNKNOWN_NUMBER);
	if (!x)
		return;
	xid_key(key, sizeof(key), uuid, x->xid);
	store_set_count(s, key, (double)x->count);
}
