#include "guard_counts.h"

#include <stdio.h>
#include <string.h>

#define XID_MOST           1024 /* NVIDIA's numbers are below 200 ...            */
#define XID_UNKNOWN_NUMBER 999  /* ... and this stands for one that it has no name for */

static void key_of(char *out, size_t size, const char *worker, unsigned cell)
{
	char name[48];

	tally_cell_name(cell, name, sizeof(name));
	snprintf(out, size, "guard/%s/%s", worker, name);
}

static void key_of_xid(char *out, size_t size, const char *uuid, unsigned xid)
{
	snprintf(out, size, "xid/%s/%u", uuid, xid);
}

void guard_counts_load(struct tally *t, struct store *s, const struct policy *p)
{
	char key[192];

	for (unsigned i = 0; i < p->workers; i++) {
		const char *name = p->worker[i].name;
		struct tally_worker *w = tally_find(t, name) ? NULL : tally_worker(t, name);

		for (unsigned c = 0; w && c < TALLY_CELLS; c++) {
			key_of(key, sizeof(key), name, c);
			w->cell[c] = (uint64_t)store_count(s, key);
		}
	}
}

void guard_counts_load_xids(struct tally *t, struct store *s, const char *uuid)
{
	char key[160];

	for (unsigned i = 0; i < t->xids; i++)
		if (strcmp(t->xid[i].uuid, uuid) == 0)
			return;
	for (unsigned n = 0; n < XID_MOST; n++) {
		struct tally_xid *x;
		uint64_t count;

		key_of_xid(key, sizeof(key), uuid, n);
		count = (uint64_t)store_count(s, key);
		x = count ? tally_xid(t, uuid, n) : NULL;
		if (x)
			x->count = count;
	}
}

void guard_counts_add(struct tally *t, struct store *s, const char *worker,
		      const struct guard_decision *d)
{
	const struct tally_worker *w = tally_add(t, worker, d);
	char key[192];

	for (unsigned c = 0; w && c < TALLY_CELLS; c++) {
		if (!w->cell[c])
			continue;
		key_of(key, sizeof(key), worker, c);
		store_set_count(s, key, (double)w->cell[c]);
	}
}

void guard_counts_add_xid(struct tally *t, struct store *s, const char *uuid, unsigned xid)
{
	const struct tally_xid *x;
	char key[160];

	guard_counts_load_xids(t, s, uuid);
	x = tally_xid(t, uuid, xid < XID_MOST ? xid : XID_UNKNOWN_NUMBER);
	if (!x)
		return;
	key_of_xid(key, sizeof(key), uuid, x->xid);
	store_set_count(s, key, (double)x->count);
}
