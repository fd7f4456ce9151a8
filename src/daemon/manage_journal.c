#include "manage_journal.h"

#include "base/buf.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOC_MAX 4096

struct row {
	struct manage_entry e;
	bool pending;             /* an order is under way */
	bool fresh;               /* the order created the entry */
	struct manage_entry undo; /* copy of the entry before the order */
};

struct manage_journal {
	const struct manage_journal_ops *ops;
	void *arg;
	const struct clock *clock;
	pthread_mutex_t lock;
	struct row *row;
	unsigned count, cap;
};

/* Returns the entry for an order o that is about to change the value `before`. old NULL: no
 * entry yet. */
static struct manage_entry manage_entry_begin(const struct manage_entry *old,
					      const struct manage_order *o,
					      const double before[2], uint64_t wall_ns)
{
	struct manage_entry e = { .what = o->what,
				  .earlier = { NAN, NAN },
				  .wall_ns = wall_ns };
	bool ours = old && (!manage_info(o->what)->readable ||
			    manage_same(o->what, before, old->after) ||
			    manage_same(o->what, before, old->earlier) ||
			    manage_same(o->what, before, old->before));

	snprintf(e.uuid, sizeof(e.uuid), "%s", o->uuid);
	snprintf(e.who, sizeof(e.who), "%s", o->who);
	memcpy(e.after, o->value, sizeof(e.after));
	/* `before` is the value before gpuward's first change. If another program changed the
	 * setting since then, `before` is the value that the other program set. */
	memcpy(e.before, ours ? old->before : before, sizeof(e.before));
	if (ours)
		memcpy(e.earlier, old->after, sizeof(e.earlier));
	return e;
}

/* What happens to the entry of an order. */
enum manage_fate {
	MANAGE_FATE_NONE,  /* there is no entry */
	MANAGE_FATE_STAYS, /* entry stays: the setting must still be restored */
	MANAGE_FATE_ENDS,  /* entry is deleted: nothing to restore */
	/* the order was not carried out: the entry returns to its state before the order */
	MANAGE_FATE_UNDONE,
};

static enum manage_fate manage_entry_fate(const struct manage_order *o,
					  const struct manage_result *r)
{
	if (o->restore)
		return r->error == 0 || r->foreign ? MANAGE_FATE_ENDS : MANAGE_FATE_STAYS;
	if (r->error == 0)
		return o->keep ? MANAGE_FATE_ENDS : MANAGE_FATE_STAYS;
	/* Keep the entry if the driver confirmed the change or never answered. The restore
	 * finds out what the driver did. */
	return r->changed || r->uncertain ? MANAGE_FATE_STAYS : MANAGE_FATE_UNDONE;
}

/* Returns the order that restores an entry. */
static struct manage_order manage_entry_order(const struct manage_entry *e)
{
	struct manage_order o = { .what = e->what, .restore = true, .kept = true };

	snprintf(o.uuid, sizeof(o.uuid), "%s", e->uuid);
	snprintf(o.who, sizeof(o.who), "gpuward");
	memcpy(o.value, e->before, sizeof(o.value));
	memcpy(o.ours, e->after, sizeof(o.ours));
	memcpy(o.earlier, e->earlier, sizeof(o.earlier));
	return o;
}

int manage_journal_new(const struct manage_journal_ops *ops, void *arg,
		       const struct clock *clock, struct manage_journal **ret)
{
	struct manage_journal *j = calloc(1, sizeof(*j));

	if (!j)
		return -GW_E_NOMEM;
	j->ops = ops;
	j->arg = arg;
	j->clock = clock;
	pthread_mutex_init(&j->lock, NULL);
	*ret = j;
	return 0;
}

void manage_journal_free(struct manage_journal *j)
{
	if (!j)
		return;
	pthread_mutex_destroy(&j->lock);
	free(j->row);
	free(j);
}

static struct row *row_find(struct manage_journal *j, const char *uuid, enum manage_what what)
{
	for (unsigned i = 0; i < j->count; i++)
		if (j->row[i].e.what == what && strcmp(j->row[i].e.uuid, uuid) == 0)
			return &j->row[i];
	return NULL;
}

static struct row *row_add(struct manage_journal *j)
{
	if (j->count == j->cap) {
		unsigned cap = j->cap ? 2 * j->cap : 8;
		struct row *p = realloc(j->row, cap * sizeof(*p));

		if (!p)
			return NULL;
		j->row = p;
		j->cap = cap;
	}
	return &j->row[j->count++];
}

static void row_drop(struct manage_journal *j, struct row *w)
{
	*w = j->row[--j->count];
}

static int row_save(struct manage_journal *j, const struct manage_entry *e)
{
	char id[MANAGE_DOC_ID_SIZE], text[DOC_MAX];
	struct buf doc;

	manage_entry_id(e, id);
	buf_init_fixed(&doc, text, sizeof(text));
	manage_entry_write(&doc, e);
	return doc.err ? doc.err : j->ops->keep(j->arg, id, doc.p, doc.len);
}

static void row_forget(struct manage_journal *j, const struct manage_entry *e)
{
	char id[MANAGE_DOC_ID_SIZE];

	manage_entry_id(e, id);
	j->ops->forget(j->arg, id);
}

int manage_journal_load(struct manage_journal *j, const char *id, const char *json)
{
	struct manage_entry e;
	struct row *w = NULL;
	char text[256];
	int err = manage_entry_read(id, json, &e);

	if (err) {
		snprintf(text, sizeof(text),
			 "the stored old value of a setting is unreadable and is not restored: "
			 "%s",
			 id);
		j->ops->log(j->arg, NULL, "warning", text);
		return err;
	}
	pthread_mutex_lock(&j->lock);
	w = row_find(j, e.uuid, e.what);
	w = w ? w : row_add(j);
	if (w)
		*w = (struct row){ .e = e };
	pthread_mutex_unlock(&j->lock);
	return w ? 0 : -GW_E_NOMEM;
}

unsigned manage_journal_count(struct manage_journal *j)
{
	unsigned n;

	pthread_mutex_lock(&j->lock);
	n = j->count;
	pthread_mutex_unlock(&j->lock);
	return n;
}

static int later_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->e.wall_ns < y->e.wall_ns) - (x->e.wall_ns > y->e.wall_ns);
}

unsigned manage_journal_orders(struct manage_journal *j, struct manage_order *out, unsigned max)
{
	unsigned n = 0;

	pthread_mutex_lock(&j->lock);
	if (j->count)
		qsort(j->row, j->count, sizeof(*j->row), later_first);
	while (n < j->count && n < max) {
		out[n] = manage_entry_order(&j->row[n].e);
		n++;
	}
	pthread_mutex_unlock(&j->lock);
	return n;
}

void manage_journal_fill(struct manage_journal *j, struct manage_order *o)
{
	struct row *w;

	if (!o->restore)
		return;
	pthread_mutex_lock(&j->lock);
	w = row_find(j, o->uuid, o->what);
	if (w) {
		struct manage_order known = manage_entry_order(&w->e);

		memcpy(known.who, o->who, sizeof(known.who));
		*o = known;
	}
	pthread_mutex_unlock(&j->lock);
}

static int journal_keep(void *arg, const struct manage_order *o, const double before[2])
{
	struct manage_journal *j = arg;
	struct row *w;
	int err = -GW_E_NOMEM;

	pthread_mutex_lock(&j->lock);
	w = row_find(j, o->uuid, o->what);
	if (w) {
		w->undo = w->e;
		w->fresh = false;
	} else {
		w = row_add(j);
		if (!w)
			goto out;
		*w = (struct row){ .fresh = true };
	}
	w->pending = true;
	w->e = manage_entry_begin(w->fresh ? NULL : &w->undo, o, before,
				  clock_wall_ns(j->clock));
	err = row_save(j, &w->e);
	if (!err)
		goto out;
	if (w->fresh)
		row_drop(j, w);
	else
		*w = (struct row){ .e = w->undo };
out:
	pthread_mutex_unlock(&j->lock);
	return err;
}

struct manage_keeper manage_journal_keeper(struct manage_journal *j)
{
	return (struct manage_keeper){ journal_keep, j };
}

static void row_end(struct manage_journal *j, struct row *w)
{
	row_forget(j, &w->e);
	row_drop(j, w);
}

/* Undoes the entry of an order that was not carried out. An order that was refused before
 * anything was stored is not pending. */
static void row_undo(struct manage_journal *j, struct row *w)
{
	if (!w->pending)
		return;
	if (w->fresh) {
		row_end(j, w);
		return;
	}
	*w = (struct row){ .e = w->undo };
	/* if this fails, the store keeps the newer document, which also allows a restore: see
	 * manage_entry.earlier */
	row_save(j, &w->e);
}

/* Completes the entry of an order that was, or may have been, carried out. */
static void row_commit(struct manage_journal *j, struct row *w, const struct manage_result *r)
{
	enum manage_what what = w->e.what;

	if (!w->pending)
		return;
	w->pending = false;
	if (r->error == 0 && manage_info(what)->readable &&
	    manage_same(what, w->e.before, w->e.after)) {
		row_end(j, w); /* the setting has its old value again */
	} else if (r->changed && r->error && !isnan(r->after[0])) {
		/* The driver set a different value than requested. Store that value as the one
		 * that gpuward set. */
		memcpy(w->e.after, r->after, sizeof(w->e.after));
		row_save(j, &w->e);
	}
}

static void log_outcome(struct manage_journal *j, const struct manage_order *o,
			const struct manage_result *r)
{
	char text[512];

	if (r->error)
		snprintf(text, sizeof(text), "%s: %s", o->who, r->message);
	else
		snprintf(text, sizeof(text), "%s: %s%s", o->who, r->message,
			 r->restored_on_exit ? "; restored when the service stops"
			 : o->keep           ? "; kept when the service stops"
					     : "");
	j->ops->log(j->arg, o->uuid, r->error ? "warning" : "info", text);
}

void manage_journal_done(struct manage_journal *j, const struct manage_order *o,
			 struct manage_result *r)
{
	struct row *w;

	pthread_mutex_lock(&j->lock);
	w = row_find(j, o->uuid, o->what);
	switch (w ? manage_entry_fate(o, r) : MANAGE_FATE_NONE) {
	case MANAGE_FATE_ENDS: row_end(j, w); break;
	case MANAGE_FATE_UNDONE: row_undo(j, w); break;
	case MANAGE_FATE_STAYS: row_commit(j, w, r); break;
	case MANAGE_FATE_NONE: break;
	}
	r->restored_on_exit = row_find(j, o->uuid, o->what) != NULL;
	pthread_mutex_unlock(&j->lock);
	log_outcome(j, o, r);
}
