#include "settings.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define CHANGES_MAX 8
#define RESTORE_MAX 256
#define STORE_NS    (5 * NS_PER_S) /* Maximum time to store an old value. */
/* Interval at which the service checks whether the old value is stored. */
#define POLL_NS (5 * NS_PER_MS)
#define DOC_MAX 4096 /* Maximum bytes of a document in the store. */

struct row {
	struct manage_entry e;
	bool pending;             /* A change for this setting is running. */
	bool fresh;               /* The change created the entry. */
	struct manage_entry undo; /* Copy of the entry before the change. */
};

struct manage_journal {
	struct store *store;
	settings_log_fn *log;
	void *arg;
	const struct clock *clock;
	struct row *row;
	unsigned count, cap;
};

/* Returns the journal entry of the change c. Call it before the change replaces the value
 * `before`. old is the existing entry of the setting; NULL if there is none. */
static struct manage_entry manage_entry_begin(const struct manage_entry *old,
					      const struct manage_change *c,
					      const double before[2], uint64_t wall_ns)
{
	struct manage_entry e = { .what = c->what,
				  .earlier = { NAN, NAN },
				  .wall_ns = wall_ns };
	bool ours = old && (!manage_info(c->what)->readable ||
			    manage_same(c->what, before, old->after) ||
			    manage_same(c->what, before, old->earlier) ||
			    manage_same(c->what, before, old->before));

	snprintf(e.uuid, sizeof(e.uuid), "%s", c->uuid);
	snprintf(e.who, sizeof(e.who), "%s", c->who);
	memcpy(e.after, c->value, sizeof(e.after));
	/* The value to restore is the value before gpuward's first change, or the value that
	 * another program has set since then. */
	memcpy(e.before, ours ? old->before : before, sizeof(e.before));
	if (ours)
		memcpy(e.earlier, old->after, sizeof(e.earlier));
	return e;
}

/* What happens to the journal entry after a change. */
enum manage_fate {
	MANAGE_FATE_NONE,  /* There is no entry. */
	MANAGE_FATE_STAYS, /* The entry stays, because the setting must still be restored. */
	MANAGE_FATE_ENDS,  /* The entry is deleted, because there is nothing to restore. */
	/* The change was not carried out. The entry gets back the values that it had before the
	 * change. */
	MANAGE_FATE_UNDONE,
};

static enum manage_fate manage_entry_fate(const struct manage_change *c,
					  const struct manage_result *r)
{
	if (c->restore)
		return r->error == 0 || r->outcome == MANAGE_FOREIGN ? MANAGE_FATE_ENDS
								     : MANAGE_FATE_STAYS;
	if (r->error == 0 && c->keep)
		return MANAGE_FATE_ENDS;
	/* Keep the entry if the driver confirmed the change, or if it never answered. In the
	 * second case, the next restore finds out what the driver did. */
	return r->outcome >= MANAGE_UNCERTAIN ? MANAGE_FATE_STAYS : MANAGE_FATE_UNDONE;
}

/* Returns the change that restores an entry. */
static struct manage_change manage_entry_change(const struct manage_entry *e)
{
	struct manage_change c = { .what = e->what, .restore = true, .kept = true };

	snprintf(c.uuid, sizeof(c.uuid), "%s", e->uuid);
	snprintf(c.who, sizeof(c.who), "gpuward");
	memcpy(c.value, e->before, sizeof(c.value));
	memcpy(c.ours, e->after, sizeof(c.ours));
	memcpy(c.earlier, e->earlier, sizeof(c.earlier));
	return c;
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

unsigned manage_journal_changes(struct manage_journal *j, struct manage_change *out,
				unsigned max)
{
	unsigned n = 0;

	if (j->count)
		qsort(j->row, j->count, sizeof(*j->row), later_first);
	while (n < j->count && n < max) {
		out[n] = manage_entry_change(&j->row[n].e);
		n++;
	}
	return n;
}

void manage_journal_fill(struct manage_journal *j, struct manage_change *c)
{
	struct row *w = c->restore ? row_find(j, c->uuid, c->what) : NULL;
	struct manage_change known;

	if (!w)
		return;
	known = manage_entry_change(&w->e);
	memcpy(known.who, c->who, sizeof(known.who));
	*c = known;
}

int manage_journal_begin(struct manage_journal *j, const struct manage_change *c,
			 const double before[2])
{
	struct row *w = row_find(j, c->uuid, c->what);

	if (!w) {
		w = row_add(j);
		if (!w)
			return -GW_E_NOMEM;
		*w = (struct row){ .fresh = true };
	} else if (!w->pending) {
		w->undo = w->e;
	}
	w->pending = true;
	w->e = manage_entry_begin(w->fresh ? NULL : &w->undo, c, before,
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

/* Sets the entry back to the state before a change that was not carried out. If the row is not
 * pending, the change was refused before the entry was changed, so there is nothing to do. */
static void row_undo(struct manage_journal *j, struct row *w)
{
	if (!w->pending)
		return;
	if (w->fresh) {
		row_end(j, w);
		return;
	}
	*w = (struct row){ .e = w->undo };
	/* If this fails, the store keeps the document with the value of the change. The setting
	 * can be restored with this document too; see manage_entry.earlier. */
	row_save(j, &w->e);
}

/* Completes the entry of a change that was, or may have been, carried out. */
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
		/* The driver set another value than the requested one. Store the driver's value
		 * as the value that gpuward set. */
		memcpy(w->e.after, r->after, sizeof(w->e.after));
		row_save(j, &w->e);
	}
}

static void log_outcome(struct manage_journal *j, const struct manage_change *c,
			const struct manage_result *r)
{
	char text[512];

	if (r->error)
		snprintf(text, sizeof(text), "%s: %s", c->who, r->message);
	else
		snprintf(text, sizeof(text), "%s: %s%s", c->who, r->message,
			 r->restored_on_exit
				 ? "; the old value is restored when the service stops"
			 : c->keep ? "; the new value stays when the service stops"
				   : "");
	j->log(j->arg, c->uuid, r->error ? "warning" : "info", text);
}

void manage_journal_done(struct manage_journal *j, const struct manage_change *c,
			 struct manage_result *r)
{
	struct row *w = row_find(j, c->uuid, c->what);

	switch (w ? manage_entry_fate(c, r) : MANAGE_FATE_NONE) {
	case MANAGE_FATE_ENDS: row_end(j, w); break;
	case MANAGE_FATE_UNDONE: row_undo(j, w); break;
	case MANAGE_FATE_STAYS: row_commit(j, w, r); break;
	case MANAGE_FATE_NONE: break;
	}
	r->restored_on_exit = row_find(j, c->uuid, c->what) != NULL;
	log_outcome(j, c, r);
}

enum change_state {
	CHANGE_FREE,
	CHANGE_WAITING,
	CHANGE_ACTIVE, /* See enum settings_state. */
	/* The change has ended, and the client has not collected its result yet. */
	CHANGE_DONE,
};

struct change {
	enum change_state state;
	int ticket;
	uint64_t done_ns;
	struct manage_change change;
	struct manage_result result;
};

/* One batch of changes is carried out at a time: one change of a client, or the changes that
 * restore everything. */
enum settings_state {
	SETTINGS_IDLE,
	/* The reader thread runs the changes. Only that thread uses change, result and stored. */
	SETTINGS_RUNNING,
	/* The reader thread has checked the change, and the old value is being stored. */
	SETTINGS_STORING,
};

struct settings {
	struct settings_config config;
	struct manage_journal *journal;
	struct loop_source *source, *timer;
	enum settings_state state;
	bool restoring; /* Everything is restored as soon as the state is idle. */
	bool closing;   /* The loop has stopped. No new changes are allowed. */
	struct change slot[CHANGES_MAX];
	int tickets;
	/* The change of the batch. NULL if the batch restores everything. */
	struct change *active;
	struct manage_change change[RESTORE_MAX];
	struct manage_result result[RESTORE_MAX];
	unsigned count;
	double before[2]; /* The old value of the change, which is stored. */
	/* Points to `before` when that value is stored. NULL if nothing is stored yet. */
	const double *stored;
	uint64_t until_ns; /* The end of SETTINGS_STORING. */
	/* Connects the reader thread and the main thread. The lock of the mailbox protects
	 * `returned`. */
	struct mailbox box;
	bool returned; /* The reader thread has finished the batch. */
};

static void settings_run(struct settings *s);

static void batch_run(void *arg, struct gw_ctx *ctx)
{
	struct settings *s = arg;

	for (unsigned i = 0; i < s->count; i++)
		manage_run(ctx, &s->change[i], s->stored, &s->result[i]);
	mailbox_lock(&s->box);
	s->returned = true;
	mailbox_notify(&s->box);
	mailbox_unlock(&s->box);
}

static struct change *change_find(struct settings *s, enum change_state state)
{
	struct change *first = NULL;

	for (unsigned i = 0; i < CHANGES_MAX; i++) {
		struct change *c = &s->slot[i];

		if (c->state == state && (!first || c->ticket < first->ticket))
			first = c;
	}
	return first;
}

/* Begins the next batch if the state is idle. */
static void settings_next(struct settings *s)
{
	struct change *c;

	if (s->state != SETTINGS_IDLE)
		return;
	s->active = NULL;
	s->stored = NULL;
	s->count =
		s->restoring ? manage_journal_changes(s->journal, s->change, RESTORE_MAX) : 0;
	s->restoring = false;
	c = s->count ? NULL : change_find(s, CHANGE_WAITING);
	if (c) {
		c->state = CHANGE_ACTIVE;
		s->active = c;
		s->change[0] = c->change;
		manage_journal_fill(s->journal, &s->change[0]);
		s->count = 1;
	}
	if (s->count)
		settings_run(s);
}

/* Ends the batch with the results, and begins the next one. */
static void batch_end(struct settings *s)
{
	for (unsigned i = 0; i < s->count; i++)
		manage_journal_done(s->journal, &s->change[i], &s->result[i]);
	if (s->active) {
		s->active->result = s->result[0];
		s->active->state = CHANGE_DONE;
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
			 manage_info(s->change[i].what)->name);
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

/* Stores the old value of the change, so that the service finds the value when it starts after
 * a crash. Then the change runs again. If another program has set a new value since then, that
 * value is stored too. */
static void storing_begin(struct settings *s)
{
	uint64_t now_ns = clock_mono_ns(clock_real());

	memcpy(s->before, s->result[0].before, sizeof(s->before));
	/* A document in memory does not survive a crash. */
	if (s->closing || !store_lasting(s->config.store) ||
	    manage_journal_begin(s->journal, &s->change[0], s->before) != 0) {
		refuse_unstored(s);
		return;
	}
	store_commit(s->config.store);
	s->state = SETTINGS_STORING;
	s->until_ns = now_ns + STORE_NS;
	storing_poll(s, now_ns);
}

/* If the reader thread has finished a batch, continues with that batch. Otherwise returns
 * false. */
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
	for (unsigned i = 0; i < CHANGES_MAX; i++)
		if (s->slot[i].state == CHANGE_WAITING)
			s->slot[i].state = CHANGE_FREE;
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

/* Returns a free slot, or else a slot with a result that its client has not collected in
 * time. */
static struct change *change_slot(struct settings *s)
{
	struct change *c = change_find(s, CHANGE_FREE);

	if (c)
		return c;
	c = change_find(s, CHANGE_DONE);
	return c && clock_mono_ns(clock_real()) - c->done_ns > MANAGE_DOC_WAIT_NS ? c : NULL;
}

int settings_change(struct settings *s, const struct manage_change *change)
{
	struct change *c = s->closing ? NULL : change_slot(s);

	if (!c)
		return -GW_E_STATE;
	*c = (struct change){ .state = CHANGE_WAITING,
			      .ticket = ++s->tickets,
			      .change = *change };
	settings_next(s);
	return c->ticket;
}

int settings_result(struct settings *s, int ticket, struct manage_result *ret)
{
	struct change *c = s->slot;

	while (c < s->slot + CHANGES_MAX && (c->state == CHANGE_FREE || c->ticket != ticket))
		c++;
	if (c == s->slot + CHANGES_MAX)
		return -GW_E_NOENT;
	if (c->state != CHANGE_DONE)
		return 0;
	*ret = c->result;
	c->state = CHANGE_FREE;
	return 1;
}
