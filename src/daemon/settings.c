#include "settings.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mailbox.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define ORDERS_MAX  8
#define RESTORE_MAX 256
#define KEEP_NS     (5 * NS_PER_S) /* Maximum time to store an old value. */
/* Time between two checks whether the old value is stored. */
#define POLL_NS (5 * NS_PER_MS)
#define DOC_MAX 4096 /* Maximum bytes of a document in the store. */

struct row {
	struct manage_entry e;
	/* An order for this setting is running on the reader thread. */
	bool pending;
	bool fresh;               /* The order created the entry. */
	struct manage_entry undo; /* Copy of the entry before the order. */
};

struct manage_journal {
	const struct manage_journal_ops *ops;
	void *arg;
	const struct clock *clock;
	pthread_mutex_t lock;
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
	/* `before` is the value before gpuward's first change. If another program changed the
	 * setting since then, `before` is the value that the other program set. */
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
	/* The order was not carried out: the entry is again as it was before the order. */
	MANAGE_FATE_UNDONE,
};

static enum manage_fate manage_entry_fate(const struct manage_order *o,
					  const struct manage_result *r)
{
	if (o->restore)
		return r->error == 0 || r->outcome == MANAGE_FOREIGN ? MANAGE_FATE_ENDS
								     : MANAGE_FATE_STAYS;
	if (r->error == 0)
		return o->keep ? MANAGE_FATE_ENDS : MANAGE_FATE_STAYS;
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

static int keep_old_value(void *arg, const struct manage_order *o, const double before[2])
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
	return (struct manage_keeper){ keep_old_value, j };
}

static void row_end(struct manage_journal *j, struct row *w)
{
	char id[MANAGE_DOC_ID_SIZE];

	manage_entry_id(&w->e, id);
	j->ops->forget(j->arg, id);
	row_drop(j, w);
}

/* Undoes the entry of an order that was not carried out. If the order was refused before
 * anything was stored, it is not pending, and there is nothing to undo. */
static void row_undo(struct manage_journal *j, struct row *w)
{
	if (!w->pending)
		return;
	if (w->fresh) {
		row_end(j, w);
		return;
	}
	*w = (struct row){ .e = w->undo };
	/* If this fails, the store keeps the newer document, which also allows a restore;
	 * see manage_entry.earlier. */
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

/* Messages from the reader thread. The main thread handles them in order. */
enum message_kind { MESSAGE_KEEP, MESSAGE_FORGET, MESSAGE_LOG };
struct message {
	struct message *next;
	enum message_kind kind;
	/* The id of a document. For MESSAGE_LOG, the UUID of the GPU. */
	char id[MANAGE_DOC_ID_SIZE];
	char severity[16];
	size_t size;
	char text[];
};

struct order {
	int ticket; /* 0 if the slot is free. */
	bool done;
	struct manage_order order;
	struct manage_result result;
	struct settings *settings;
};

struct settings {
	struct settings_config config;
	struct manage_journal *journal;
	struct loop_source *source, *timer;
	/* Connects the reader thread and the main thread. Its lock protects the members
	 * below. */
	struct mailbox box;
	bool closing; /* The loop has stopped. No new changes are allowed. */
	struct message *first, **last;
	bool keeping;   /* The reader thread waits for the store. */
	int keep_error; /* The result of that wait. */
	struct order order[ORDERS_MAX];
	int tickets;
	/* Used by the reader thread. It is part of the struct, so that a restore needs no
	 * memory. */
	struct manage_order restore[RESTORE_MAX];
};

static void message_post(struct settings *s, enum message_kind kind, const char *id,
			 const char *severity, const char *text, size_t size)
{
	struct message *m = calloc(1, sizeof(*m) + size + 1);

	if (!m)
		return;
	m->kind = kind;
	m->size = size;
	snprintf(m->id, sizeof(m->id), "%s", id ? id : "");
	snprintf(m->severity, sizeof(m->severity), "%s", severity);
	memcpy(m->text, text, size);
	mailbox_lock(&s->box);
	*s->last = m;
	s->last = &m->next;
	mailbox_unlock(&s->box);
	mailbox_notify(&s->box);
}

/* Stores a document. Returns 0 only if it is stored, so that a start after a crash finds it. */
static int journal_keep(void *arg, const char *id, const char *json, size_t size)
{
	struct settings *s = arg;
	uint64_t until_ns = clock_mono_ns(clock_real()) + KEEP_NS;
	int err;

	if (!store_lasting(s->config.store))
		return -GW_E_NOSUPPORT; /* A document in memory does not survive a crash. */
	mailbox_lock(&s->box);
	s->keeping = !s->closing;
	s->keep_error = s->closing ? -GW_E_STATE : -GW_E_TIMEOUT;
	mailbox_unlock(&s->box);
	message_post(s, MESSAGE_KEEP, id, "", json, size);
	mailbox_lock(&s->box);
	while (s->keeping && mailbox_wait(&s->box, until_ns))
		;
	s->keeping = false;
	err = s->keep_error;
	mailbox_unlock(&s->box);
	return err;
}

static void journal_forget(void *arg, const char *id)
{
	message_post(arg, MESSAGE_FORGET, id, "", "", 0);
}

static void journal_log(void *arg, const char *uuid, const char *severity, const char *text)
{
	message_post(arg, MESSAGE_LOG, uuid, severity, text, strlen(text));
}

static const struct manage_journal_ops journal_ops = { journal_keep, journal_forget,
						       journal_log };

static void run_order(void *arg, struct gw_ctx *ctx)
{
	struct order *o = arg;
	struct settings *s = o->settings;
	struct manage_keeper keeper = manage_journal_keeper(s->journal);

	manage_journal_fill(s->journal, &o->order);
	manage_run(ctx, &o->order, &keeper, &o->result);
	manage_journal_done(s->journal, &o->order, &o->result);
	mailbox_lock(&s->box);
	o->done = true;
	mailbox_unlock(&s->box);
}

static void run_restore(void *arg, struct gw_ctx *ctx)
{
	struct settings *s = arg;
	struct manage_order *orders = s->restore;
	unsigned n = manage_journal_orders(s->journal, orders, RESTORE_MAX);

	for (unsigned i = 0; i < n; i++) {
		struct manage_result r;

		manage_run(ctx, &orders[i], NULL, &r);
		manage_journal_done(s->journal, &orders[i], &r);
	}
}

static void keep_answer(struct settings *s, int error)
{
	mailbox_lock(&s->box);
	if (s->keeping) {
		s->keeping = false;
		s->keep_error = error;
		mailbox_wake(&s->box);
	}
	mailbox_unlock(&s->box);
}

static void keep_poll(void *arg, uint64_t now_ns)
{
	struct settings *s = arg;
	int err = store_flush(s->config.store, 0);

	if (err == -GW_E_TIMEOUT)
		loop_set_time(s->timer, now_ns + POLL_NS);
	else
		keep_answer(s, err);
}

static void keep_document(struct settings *s, const struct message *m)
{
	int err = store_put_document(s->config.store, MANAGE_DOC_KIND, m->id, m->text, m->size);

	store_commit(s->config.store);
	if (err)
		keep_answer(s, err);
	else
		keep_poll(s, clock_mono_ns(clock_real()));
}

static void message_handle(struct settings *s, const struct message *m)
{
	struct store *store = s->config.store;

	switch (m->kind) {
	case MESSAGE_KEEP: keep_document(s, m); break;
	case MESSAGE_FORGET: store_delete_document(store, MANAGE_DOC_KIND, m->id); break;
	case MESSAGE_LOG:
		s->config.log(s->config.arg, *m->id ? m->id : NULL, m->severity, m->text);
		break;
	}
}

static void messages_handle(struct settings *s)
{
	struct message *m, *next;

	mailbox_lock(&s->box);
	m = s->first;
	s->first = NULL;
	s->last = &s->first;
	mailbox_unlock(&s->box);
	for (; m; m = next) {
		next = m->next;
		message_handle(s, m);
		free(m);
	}
}

static void messages_ready(void *arg, int fd, uint32_t events)
{
	(void)events;
	if (mailbox_clear(fd))
		messages_handle(arg);
}

static void load_document(void *arg, const char *id, const char *json)
{
	struct settings *s = arg;

	/* An unreadable document is logged and stays in the store. */
	manage_journal_load(s->journal, id, json);
}

void settings_load(struct settings *s)
{
	store_each_document(s->config.store, MANAGE_DOC_KIND, RESTORE_MAX, load_document, s);
}

int settings_new(const struct settings_config *config, struct settings **ret)
{
	struct settings *s = calloc(1, sizeof(*s));
	int err = -GW_E_NOMEM;

	if (!s)
		return err;
	s->config = *config;
	s->last = &s->first;
	err = mailbox_init(&s->box, MAILBOX_NEWS_FD);
	if (!err)
		err = manage_journal_new(&journal_ops, s, clock_real(), &s->journal);
	if (!err)
		err = loop_add_timer(config->loop, keep_poll, s, &s->timer);
	if (!err)
		err = loop_add_fd(config->loop, s->box.news_fd, EPOLLIN, messages_ready, s,
				  &s->source);
	if (err) {
		settings_free(s);
		return err;
	}
	settings_load(s);
	*ret = s;
	return 0;
}

void settings_close(struct settings *s)
{
	mailbox_lock(&s->box);
	s->closing = true;
	mailbox_unlock(&s->box);
	keep_answer(s, -GW_E_STATE);
	settings_restore(s);
}

void settings_free(struct settings *s)
{
	if (!s)
		return;
	messages_handle(s);
	loop_remove(s->source);
	loop_remove(s->timer);
	manage_journal_free(s->journal);
	mailbox_done(&s->box);
	free(s);
}

void settings_restore(struct settings *s)
{
	if (s && manage_journal_count(s->journal) > 0)
		reader_do(s->config.reader, run_restore, s);
}

static struct order *order_find(struct settings *s, int ticket)
{
	for (unsigned i = 0; i < ORDERS_MAX; i++)
		if (s->order[i].ticket == ticket)
			return &s->order[i];
	return NULL;
}

/* Returns a free slot, or the slot of a finished order that no client collected. */
static struct order *order_free(struct settings *s)
{
	struct order *o = order_find(s, 0);

	for (unsigned i = 0; !o && i < ORDERS_MAX; i++) {
		mailbox_lock(&s->box);
		if (s->order[i].done)
			o = &s->order[i];
		mailbox_unlock(&s->box);
	}
	return o;
}

int settings_order(struct settings *s, const struct manage_order *order)
{
	struct order *o = order_free(s);

	if (!o)
		return -GW_E_STATE;
	memset(o, 0, sizeof(*o));
	o->order = *order;
	o->settings = s;
	if (reader_do(s->config.reader, run_order, o) != 0)
		return -GW_E_STATE;
	o->ticket = ++s->tickets;
	return o->ticket;
}

int settings_result(struct settings *s, int ticket, struct manage_result *ret)
{
	struct order *o = ticket > 0 ? order_find(s, ticket) : NULL;
	bool done;

	if (!o)
		return -GW_E_NOENT;
	mailbox_lock(&s->box);
	done = o->done;
	mailbox_unlock(&s->box);
	if (!done)
		return 0;
	*ret = o->result;
	o->ticket = 0;
	o->done = false;
	return 1;
}
