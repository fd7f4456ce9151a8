#include "settings.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define ORDERS_MAX  8
#define RESTORE_MAX 256
#define STORE_NS    (5 * NS_PER_S) /* Maximum time to store an old value. */
/* Time between two checks whether the old value is stored. */
#define POLL_NS (5 * NS_PER_MS)
#define DOC_MAX 4096 /* Maximum bytes of a document in the store. */

struct row {
	struct manage_entry e;
	bool pending;             /* An order for this setting is running. */
	bool fresh;               /* The order created the entry. */
	struct manage_entry undo; /* Copy of the entry before the order. */
};

struct manage_journal {
	struct store *store;
	settings_log_fn *log;
	void *arg;
	const struct clock *clock;
	struct row *row;
	unsigned count, cap;
};

/* Returns the entry for an order o that is about to change the value `before`. old is NULL
 * if there is no entry yet. */
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
	/* The value to restore is the value before gpuward's first change, or the value that
	 * another program has set since then. */
	memcpy(e.before, ours ? old->before : before, sizeof(e.before));
	if (ours)
		memcpy(e.earlier, old->after, sizeof(e.earlier));
	return e;
}

/* What happens to the entry of an order. */
enum manage_fate {
	MANAGE_FATE_NONE,  /* There is no entry. */
	MANAGE_FATE_STAYS, /* The entry stays, because the setting must still be restored. */
	MANAGE_FATE_ENDS,  /* The entry is deleted, because there is nothing to restore. */
	/* The order was not carried out. The entry gets back the values that it had before. */
	MANAGE_FATE_UNDONE,
};

static enum manage_fate manage_entry_fate(const struct manage_order *o,
					  const struct manage_result *r)
{
	if (o->restore)
		return r->error == 0 || r->outcome == MANAGE_FOREIGN ? MANAGE_FATE_ENDS
								     : MANAGE_FATE_STAYS;
	if (r->error == 0 && o->keep)
		return MANAGE_FATE_ENDS;
	/* Keep the entry if the driver confirmed the change or never answered. The next
	 * restore finds out what the driver did. */
	return r->outcome >= MANAGE_UNCERTAIN ? MANAGE_FATE_STAYS : MANAGE_FATE_UNDONE;
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

int manage_journal_new(struct store *store, settings_log_fn *log, void *arg,
		       const struct clock *clock, struct manage_journal **ret)
{
	struct manage_journal *j = calloc(1, sizeof(*j));

	if (!j)
		return -GW_E_NOMEM;
	j->store = store;
	j->log = log;
	j->arg = arg;
	j->clock = clock;
	*ret = j;
	return 0;
}

void manage_journal_free(struct manage_journal *j)
{
	if (!j)
		return;
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
	return doc.err ? doc.err
		       : store_put_document(j->store, MANAGE_DOC_KIND, id, doc.p, doc.len);
}

static void load_document(void *arg, const char *id, const char *json)
{
	struct manage_journal *j = arg;
	struct manage_entry e;
	struct row *w;
	char text[256];

	if (manage_entry_read(id, json, &e) != 0) {
		snprintf(text, sizeof(text),
			 "the stored old value of a setting is unreadable and is not restored: "
			 "%s",
			 id);
		j->log(j->arg, NULL, "warning", text);
		return;
	}
	w = row_find(j, e.uuid, e.what);
	w = w ? w : row_add(j);
	if (w)
		*w = (struct row){ .e = e };
}

void manage_journal_load(struct manage_journal *j)
{
	store_each_document(j->store, MANAGE_DOC_KIND, RESTORE_MAX, load_document, j);
}

static int later_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->e.wall_ns < y->e.wall_ns) - (x->e.wall_ns > y->e.wall_ns);
}

unsigned manage_journal_orders(struct manage_journal *j, struct manage_order *out, unsigned max)
{
	unsigned n = 0;

	if (j->count)
		qsort(j->row, j->count, sizeof(*j->row), later_first);
	while (n < j->count && n < max) {
		out[n] = manage_entry_order(&j->row[n].e);
		n++;
	}
	return n;
}

void manage_journal_fill(struct manage_journal *j, struct manage_order *o)
{
	struct row *w = o->restore ? row_find(j, o->uuid, o->what) : NULL;
	struct manage_order known;

	if (!w)
		return;
	known = manage_entry_order(&w->e);
	memcpy(known.who, o->who, sizeof(known.who));
	*o = known;
}

int manage_journal_begin(struct manage_journal *j, const struct manage_order *o,
			 const double before[2])
{
	struct row *w = row_find(j, o->uuid, o->what);

	if (!w) {
		w = row_add(j);
		if (!w)
			return -GW_E_NOMEM;
		*w = (struct row){ .fresh = true };
	} else if (!w->pending) {
		w->undo = w->e;
	}
	w->pending = true;
	w->e = manage_entry_begin(w->fresh ? NULL : &w->undo, o, before,
				  clock_wall_ns(j->clock));
	return row_save(j, &w->e);
}

static void row_end(struct manage_journal *j, struct row *w)
{
	char id[MANAGE_DOC_ID_SIZE];

	manage_entry_id(&w->e, id);
	store_delete_document(j->store, MANAGE_DOC_KIND, id);
	row_drop(j, w);
}

/* Restores the entry of an order that was not carried out. If the order was refused before the
 * entry was changed, the row is not pending, and there is nothing to restore. */
static void row_undo(struct manage_journal *j, struct row *w)
{
	if (!w->pending)
		return;
	if (w->fresh) {
		row_end(j, w);
		return;
	}
	*w = (struct row){ .e = w->undo };
	/* If this fails, the document with the value of the order stays in the store. It also
	 * allows a restore; see manage_entry.earlier. */
	row_save(j, &w->e);
}

/* Completes the entry of an order that was, or may have been, carried out. */
static void row_commit(struct manage_journal *j, struct row *w, const struct manage_result *r)
{
	enum manage_what what = w->e.what;

	if (!w->pending)
		return;
	w->pending = w->fresh = false;
	if (r->error == 0 && manage_info(what)->readable &&
	    manage_same(what, w->e.before, w->e.after)) {
		row_end(j, w); /* The setting has its old value again. */
	} else if (r->outcome == MANAGE_CHANGED && r->error && !isnan(r->after[0])) {
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
			 r->restored_on_exit
				 ? "; the old value is restored when the service stops"
			 : o->keep ? "; the new value stays when the service stops"
				   : "");
	j->log(j->arg, o->uuid, r->error ? "warning" : "info", text);
}

void manage_journal_done(struct manage_journal *j, const struct manage_order *o,
			 struct manage_result *r)
{
	struct row *w = row_find(j, o->uuid, o->what);

	switch (w ? manage_entry_fate(o, r) : MANAGE_FATE_NONE) {
	case MANAGE_FATE_ENDS: row_end(j, w); break;
	case MANAGE_FATE_UNDONE: row_undo(j, w); break;
	case MANAGE_FATE_STAYS: row_commit(j, w, r); break;
	case MANAGE_FATE_NONE: break;
	}
	r->restored_on_exit = row_find(j, o->uuid, o->what) != NULL;
	log_outcome(j, o, r);
}

enum order_state {
	ORDER_FREE,
	ORDER_WAITING,
	ORDER_ACTIVE, /* See enum settings_state. */
	ORDER_DONE,   /* The client has not collected the result. */
};

struct order {
	enum order_state state;
	int ticket;
	uint64_t done_ns;
	struct manage_order order;
	struct manage_result result;
};

/* One batch of orders is carried out at a time: one order of a client, or the orders that
 * restore everything. */
enum settings_state {
	SETTINGS_IDLE,
	/* The reader thread runs the orders. Only that thread uses order, result and stored. */
	SETTINGS_RUNNING,
	/* The reader thread has checked the order, and the old value is being stored. */
	SETTINGS_STORING,
};

struct settings {
	struct settings_config config;
	struct manage_journal *journal;
	struct loop_source *source, *timer;
	enum settings_state state;
	bool restoring; /* Everything is restored as soon as the state is idle. */
	bool closing;   /* The loop has stopped. No new changes are allowed. */
	struct order slot[ORDERS_MAX];
	int tickets;
	struct order *active; /* The order of the batch. NULL if everything is restored. */
	struct manage_order order[RESTORE_MAX];
	struct manage_result result[RESTORE_MAX];
	unsigned count;
	double before[2];     /* The old value of the order, which is stored. */
	const double *stored; /* `before`, or NULL if nothing is stored yet. */
	uint64_t until_ns;    /* The end of SETTINGS_STORING. */
	/* Connects the reader thread and the main thread. Its lock protects `returned`. */
	struct mailbox box;
	bool returned; /* The reader thread has finished the batch. */
};

static void settings_run(struct settings *s);

static void batch_run(void *arg, struct gw_ctx *ctx)
{
	struct settings *s = arg;

	for (unsigned i = 0; i < s->count; i++)
		manage_run(ctx, &s->order[i], s->stored, &s->result[i]);
	mailbox_lock(&s->box);
	s->returned = true;
	mailbox_notify(&s->box);
	mailbox_unlock(&s->box);
}

static struct order *order_find(struct settings *s, enum order_state state)
{
	struct order *first = NULL;

	for (unsigned i = 0; i < ORDERS_MAX; i++) {
		struct order *o = &s->slot[i];

		if (o->state == state && (!first || o->ticket < first->ticket))
			first = o;
	}
	return first;
}

/* Begins the next batch if the state is idle. */
static void settings_next(struct settings *s)
{
	struct order *o;

	if (s->state != SETTINGS_IDLE)
		return;
	s->active = NULL;
	s->stored = NULL;
	s->count = s->restoring ? manage_journal_orders(s->journal, s->order, RESTORE_MAX) : 0;
	s->restoring = false;
	o = s->count ? NULL : order_find(s, ORDER_WAITING);
	if (o) {
		o->state = ORDER_ACTIVE;
		s->active = o;
		s->order[0] = o->order;
		manage_journal_fill(s->journal, &s->order[0]);
		s->count = 1;
	}
	if (s->count)
		settings_run(s);
}

/* Ends the batch with the results, and begins the next one. */
static void batch_end(struct settings *s)
{
	for (unsigned i = 0; i < s->count; i++)
		manage_journal_done(s->journal, &s->order[i], &s->result[i]);
	if (s->active) {
		s->active->result = s->result[0];
		s->active->state = ORDER_DONE;
		s->active->done_ns = clock_mono_ns(clock_real());
	}
	s->state = SETTINGS_IDLE;
	settings_next(s);
}

static void batch_refuse(struct settings *s, int error, const char *remedy, const char *why)
{
	for (unsigned i = 0; i < s->count; i++) {
		struct manage_result *r = &s->result[i];

		r->error = error;
		r->outcome = MANAGE_UNCHANGED;
		r->remedy = remedy;
		snprintf(r->message, sizeof(r->message), "%s, so %s was not changed", why,
			 manage_info(s->order[i].what)->name);
	}
	batch_end(s);
}

static void settings_run(struct settings *s)
{
	s->state = SETTINGS_RUNNING;
	if (reader_do(s->config.reader, batch_run, s) == 0)
		return;
	for (unsigned i = 0; !s->stored && i < s->count; i++)
		s->result[i] =
			(struct manage_result){ .before = { NAN, NAN }, .after = { NAN, NAN } };
	batch_refuse(s, -GW_E_TIMEOUT, "try again in a few seconds",
		     "too many requests wait for the GPUs");
}

static void refuse_unstored(struct settings *s)
{
	batch_refuse(s, -GW_E_IO,
		     "make the state directory writable, or set \"keep\": true so that gpuward "
		     "does not restore the old value",
		     "the old value could not be stored");
}

static void storing_poll(void *arg, uint64_t now_ns)
{
	struct settings *s = arg;
	int err;

	if (s->state != SETTINGS_STORING)
		return;
	err = store_flush(s->config.store, 0);
	if (err == -GW_E_TIMEOUT && now_ns < s->until_ns) {
		loop_set_time(s->timer, now_ns + POLL_NS);
	} else if (err) {
		refuse_unstored(s);
	} else {
		s->stored = s->before;
		settings_run(s);
	}
}

/* Stores the old value of the order, so that a start after a crash finds it. Then the order
 * runs again. If another program changes the setting in between, its new value is stored
 * too. */
static void storing_begin(struct settings *s)
{
	uint64_t now_ns = clock_mono_ns(clock_real());

	memcpy(s->before, s->result[0].before, sizeof(s->before));
	/* A document in memory does not survive a crash. */
	if (s->closing || !store_lasting(s->config.store) ||
	    manage_journal_begin(s->journal, &s->order[0], s->before) != 0) {
		refuse_unstored(s);
		return;
	}
	store_commit(s->config.store);
	s->state = SETTINGS_STORING;
	s->until_ns = now_ns + STORE_NS;
	storing_poll(s, now_ns);
}

/* Continues with a batch that the reader thread has finished. Returns false if there is
 * none. */
static bool settings_continue(struct settings *s)
{
	bool returned;

	mailbox_lock(&s->box);
	returned = s->returned;
	s->returned = false;
	mailbox_unlock(&s->box);
	if (!returned)
		return false;
	if (s->active && s->result[0].outcome == MANAGE_UNSTORED)
		storing_begin(s);
	else
		batch_end(s);
	return true;
}

static void reader_returned(void *arg, int fd, uint32_t events)
{
	(void)events;
	if (mailbox_clear(fd))
		settings_continue(arg);
}

int settings_new(const struct settings_config *config, struct settings **ret)
{
	struct settings *s = calloc(1, sizeof(*s));
	int err = -GW_E_NOMEM;

	if (!s)
		return err;
	s->config = *config;
	err = mailbox_init(&s->box, MAILBOX_NEWS_FD);
	if (!err)
		err = manage_journal_new(config->store, config->log, config->arg, clock_real(),
					 &s->journal);
	if (!err)
		err = loop_add_timer(config->loop, storing_poll, s, &s->timer);
	if (!err)
		err = loop_add_fd(config->loop, s->box.news_fd, EPOLLIN, reader_returned, s,
				  &s->source);
	if (err) {
		settings_free(s);
		return err;
	}
	*ret = s;
	return 0;
}

int settings_close(struct settings *s, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns;

	s->closing = true;
	for (unsigned i = 0; i < ORDERS_MAX; i++)
		if (s->slot[i].state == ORDER_WAITING)
			s->slot[i].state = ORDER_FREE;
	s->restoring = true;
	if (s->state == SETTINGS_STORING)
		refuse_unstored(s);
	settings_next(s);
	while (s->state == SETTINGS_RUNNING) {
		bool news;

		if (settings_continue(s))
			continue;
		mailbox_lock(&s->box);
		news = s->returned || mailbox_wait_news(&s->box, until_ns);
		mailbox_unlock(&s->box);
		if (!news)
			return -GW_E_STATE;
	}
	return 0;
}

void settings_free(struct settings *s)
{
	if (!s)
		return;
	loop_remove(s->source);
	loop_remove(s->timer);
	manage_journal_free(s->journal);
	mailbox_done(&s->box);
	free(s);
}

void settings_restore(struct settings *s)
{
	manage_journal_load(s->journal);
	s->restoring = true;
	settings_next(s);
}

/* Returns a free slot, or one whose result no client has collected in time. */
static struct order *order_slot(struct settings *s)
{
	struct order *o = order_find(s, ORDER_FREE);

	if (o)
		return o;
	o = order_find(s, ORDER_DONE);
	return o && clock_mono_ns(clock_real()) - o->done_ns > MANAGE_DOC_WAIT_NS ? o : NULL;
}

int settings_order(struct settings *s, const struct manage_order *order)
{
	struct order *o = s->closing ? NULL : order_slot(s);

	if (!o)
		return -GW_E_STATE;
	*o = (struct order){ .state = ORDER_WAITING, .ticket = ++s->tickets, .order = *order };
	settings_next(s);
	return o->ticket;
}

int settings_result(struct settings *s, int ticket, struct manage_result *ret)
{
	struct order *o = s->slot;

	while (o < s->slot + ORDERS_MAX && (o->state == ORDER_FREE || o->ticket != ticket))
		o++;
	if (o == s->slot + ORDERS_MAX)
		return -GW_E_NOENT;
	if (o->state != ORDER_DONE)
		return 0;
	*ret = o->result;
	o->state = ORDER_FREE;
	return 1;
}
