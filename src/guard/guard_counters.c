#include "guard_counters.h"

#include <stdio.h>
#include <string.h>

unsigned counters_eviction(unsigned level, enum guard_result result)
{
	unsigned l = level < GUARD_LEVELS ? level : GUARD_LEVELS - 1;

	return COUNTERS_EVICTIONS + l * GUARD_RESULTS + (unsigned)result;
}

void counters_cell_name(unsigned cell, char *out, size_t size)
{
	static const char *const word[] = { "resumes", "would-evict", "freed-bytes" };

	if (cell < COUNTERS_BLOCKED)
		snprintf(out, size, "%s", word[cell]);
	else if (cell < COUNTERS_EVICTIONS)
		snprintf(out, size, "blocked/%s", guard_block_name(cell - COUNTERS_BLOCKED));
	else
		snprintf(out, size, "evictions/%u/%s",
			 (cell - COUNTERS_EVICTIONS) / GUARD_RESULTS,
			 guard_result_name((cell - COUNTERS_EVICTIONS) % GUARD_RESULTS));
}

const struct counters_worker *counters_find(const struct guard_counters *t, const char *name)
{
	for (unsigned i = 0; t && i < t->workers; i++)
		if (strcmp(t->worker[i].name, name) == 0)
			return &t->worker[i];
	return NULL;
}

struct counters_worker *counters_worker(struct guard_counters *t, const char *name)
{
	struct counters_worker *w = (struct counters_worker *)counters_find(t, name);

	if (w || !t || t->workers == POLICY_WORKERS)
		return w;
	w = &t->worker[t->workers++];
	memset(w, 0, sizeof(*w));
	snprintf(w->name, sizeof(w->name), "%s", name);
	return w;
}

void counters_fit(struct guard_counters *t, const struct policy *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->workers; i++)
		if (policy_find_worker(p, t->worker[i].name) >= 0)
			t->worker[n++] = t->worker[i];
	t->workers = n;
}

uint64_t counters_evictions(const uint64_t cell[COUNTERS_CELLS])
{
	uint64_t n = 0;

	for (unsigned l = 0; l < GUARD_LEVELS; l++)
		n += cell[counters_eviction(l, RESULT_FREED)];
	return n;
}

static void add_result(uint64_t *cell, const struct guard_decision *d)
{
	if (d->result == RESULT_WITHHELD || (d->dry && d->result == RESULT_FREED))
		cell[COUNTERS_WOULD_EVICT]++;
	if (d->dry || d->result == RESULT_WITHHELD)
		return;
	cell[counters_eviction(d->level, d->result)]++;
	cell[COUNTERS_FREED_BYTES] += d->freed_bytes;
}

static void counter_add(uint64_t *cell, const struct guard_decision *d, bool back)
{
	cell[COUNTERS_RESUMES] += back;
	for (unsigned b = 0; b < GUARD_BLOCKS; b++)
		cell[COUNTERS_BLOCKED + b] += d->blocked >> b & 1;
	if (d->result != RESULT_NONE)
		add_result(cell, d);
}

struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d)
{
	bool back = d->from == STATE_VERIFY_UP && d->to == STATE_ACTIVE && !d->dry;
	struct counters_worker *w;

	if (!back && !d->blocked && d->result == RESULT_NONE)
		return NULL;
	counter_add(t->all, d, back);
	w = counters_worker(t, name);
	if (w)
		counter_add(w->cell, d, back);
	return w;
}

struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid)
{
	struct counters_xid *x = NULL;

	for (unsigned i = 0; i < t->xids && !x; i++)
		if (t->xid[i].xid == xid && strcmp(t->xid[i].uuid, uuid) == 0)
			x = &t->xid[i];
	if (!x && t->xids == COUNTERS_XIDS)
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
