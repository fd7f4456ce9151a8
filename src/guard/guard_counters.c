#include "guard_counters.h"

#include <stdio.h>
#include <string.h>

unsigned tally_eviction(unsigned level, enum guard_result result)
{
	unsigned l = level < GUARD_LEVELS ? level : GUARD_LEVELS - 1;

	return TALLY_EVICTIONS + l * GUARD_RESULTS + (unsigned)result;
}

void tally_cell_name(unsigned cell, char *out, size_t size)
{
	static const char *const word[] = { "resumes", "would-evict", "freed-bytes" };

	if (cell < TALLY_BLOCKED)
		snprintf(out, size, "%s", word[cell]);
	else if (cell < TALLY_EVICTIONS)
		snprintf(out, size, "blocked/%s", guard_block_name(cell - TALLY_BLOCKED));
	else
		snprintf(out, size, "evictions/%u/%s", (cell - TALLY_EVICTIONS) / GUARD_RESULTS,
			 guard_result_name((cell - TALLY_EVICTIONS) % GUARD_RESULTS));
}

const struct tally_worker *tally_find(const struct tally *t, const char *name)
{
	for (unsigned i = 0; t && i < t->workers; i++)
		if (strcmp(t->worker[i].name, name) == 0)
			return &t->worker[i];
	return NULL;
}

struct tally_worker *tally_worker(struct tally *t, const char *name)
{
	struct tally_worker *w = (struct tally_worker *)tally_find(t, name);

	if (w || t->workers == POLICY_WORKERS)
		return w;
	w = &t->worker[t->workers++];
	memset(w, 0, sizeof(*w));
	snprintf(w->name, sizeof(w->name), "%s", name);
	return w;
}

static bool is_named(const struct policy *p, const char *name)
{
	for (unsigned i = 0; i < p->workers; i++)
		if (strcmp(p->worker[i].name, name) == 0)
			return true;
	return false;
}

void tally_fit(struct tally *t, const struct policy *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->workers; i++)
		if (is_named(p, t->worker[i].name))
			t->worker[n++] = t->worker[i];
	t->workers = n;
}

uint64_t tally_evictions(const uint64_t cell[TALLY_CELLS])
{
	uint64_t n = 0;

	for (unsigned l = 0; l < GUARD_LEVELS; l++)
		n += cell[tally_eviction(l, RESULT_FREED)];
	return n;
}

static void add_result(uint64_t *cell, const struct guard_decision *d)
{
	if (d->result == RESULT_WITHHELD || (d->dry && d->result == RESULT_FREED))
		cell[TALLY_WOULD_EVICT]++;
	if (d->dry || d->result == RESULT_WITHHELD)
		return;
	cell[tally_eviction(d->level, d->result)]++;
	cell[TALLY_FREED_BYTES] += d->freed_bytes;
}

static void add(uint64_t *cell, const struct guard_decision *d, bool back)
{
	cell[TALLY_RESUMES] += back;
	for (unsigned b = 0; b < GUARD_BLOCKS; b++)
		cell[TALLY_BLOCKED + b] += d->blocked >> b & 1;
	if (d->result != RESULT_NONE)
		add_result(cell, d);
}

struct tally_worker *tally_add(struct tally *t, const char *name,
			       const struct guard_decision *d)
{
	bool back = d->from == STATE_VERIFY_UP && d->to == STATE_ACTIVE && !d->dry;
	struct tally_worker *w;

	if (!back && !d->blocked && d->result == RESULT_NONE)
		return NULL;
	add(t->all, d, back);
	w = tally_worker(t, name);
	if (w)
		add(w->cell, d, back);
	return w;
}

struct tally_xid *tally_xid(struct tally *t, const char *uuid, unsigned xid)
{
	struct tally_xid *x = NULL;

	for (unsigned i = 0; i < t->xids && !x; i++)
		if (t->xid[i].xid == xid && strcmp(t->xid[i].uuid, uuid) == 0)
			x = &t->xid[i];
	if (!x && t->xids == TALLY_XIDS)
		return NULL;
	if (!x) {
		x = &t->xid[t->xids++];
		memset(x, 0, sizeof(*x));
		snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
		x->xid = xid;
	}
	x->count++;
	return x;
}
