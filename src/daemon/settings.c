#include "settings.h"

#include "manage_journal.h"

#include "base/clock.h"
#include "base/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define ORDERS_MAX  8
#define RESTORE_MAX 256
#define KEEP_NS     (5 * NS_PER_S)  /* maximum time to store an old value */
#define POLL_NS     (5 * NS_PER_MS) /* time between checks whether the old value is stored */

/* Messages from the reader thread; the main thread handles them in order. */
enum message_kind { MESSAGE_KEEP, MESSAGE_FORGET, MESSAGE_LOG };
struct message {
	struct message *next;
	enum message_kind kind;
	char id[MANAGE_DOC_ID_SIZE]; /* id of a document, or the GPU of MESSAGE_LOG */
	char severity[16];
	size_t size;
	char text[];
};

struct order { /* ticket 0: free slot */
	int ticket;
	bool done;
	struct manage_order order;
	struct manage_result result;
	struct settings *settings;
};

struct settings {
	struct settings_config config;
	struct manage_journal *journal;
	struct loop_source *source, *timer;
	/* connects the reader thread and the main thread; its lock protects the members
	 * below */
	struct mailbox box;
	bool closing; /* the loop has stopped; no new changes are allowed */
	struct message *first, **last;
	bool keeping;   /* the reader thread waits for the store */
	int keep_error; /* the result of that wait */
	struct order order[ORDERS_MAX];
	int tickets;
	/* Used by the reader thread. Allocated early, so that a restore needs no memory. */
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
		return -GW_E_NOSUPPORT; /* a document in memory does not survive a crash */
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

	/* an unreadable document is logged and stays in the store */
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
