#include "settings.h"

#include "manage_journal.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ORDERS_MAX  8
#define RESTORE_MAX 256
#define KEEP_NS     (5 * NS_PER_S)  /* so long an old value may take to get into the file */
#define LOOK_NS     (5 * NS_PER_MS) /* between looks whether it is */

/* From the reader's thread, done by the main thread in order. */
enum message_kind { MESSAGE_KEEP, MESSAGE_FORGET, MESSAGE_TELL };
struct message {
	struct message *next;
	enum message_kind kind;
	char id[MANAGE_DOC_ID_SIZE]; /* of a document, or the GPU of a TELL */
	char severity[16];
	size_t size;
	char text[];
};

struct order { /* 0: free */
	int ticket;
	bool done;
	struct manage_order order;
	struct manage_result result;
	struct settings *settings;
};

struct settings {
	struct settings_config config;
	struct manage_journal *journal;
	int event_fd;
	struct loop_source *source, *timer;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t kept;
	bool closing; /* the loop runs no more, and nothing new is changed */
	struct message *first, **last;
	bool keeping;   /* the reader's thread waits for the store ... */
	int keep_error; /* ... and that came of it */
	struct order order[ORDERS_MAX];
	int tickets;
	/* The reader's thread's: room for putting all back, taken while there is memory. */
	struct manage_order restore[RESTORE_MAX];
};

/* ---- the reader's thread ---- */

static void post(struct settings *s, enum message_kind kind, const char *id,
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
	pthread_mutex_lock(&s->lock);
	*s->last = m;
	s->last = &m->next;
	pthread_mutex_unlock(&s->lock);
	if (eventfd_write(s->event_fd, 1) != 0)
		return; /* it was told already */
}

/* 0 only when the document is in the file: a crash after that finds it. */
static int journal_keep(void *arg, const char *id, const char *json, size_t size)
{
	struct settings *s = arg;
	uint64_t until_ns = clock_mono_ns(clock_real()) + KEEP_NS;
	struct timespec until = clock_timespec(until_ns);
	int err;

	if (!store_lasting(s->config.store))
		return -GW_E_NOSUPPORT; /* what is in memory alone does not outlive a crash */
	pthread_mutex_lock(&s->lock);
	s->keeping = !s->closing;
	s->keep_error = s->closing ? -GW_E_STATE : -GW_E_TIMEOUT;
	pthread_mutex_unlock(&s->lock);
	post(s, MESSAGE_KEEP, id, "", json, size);
	pthread_mutex_lock(&s->lock);
	while (s->keeping &&
	       pthread_cond_clockwait(&s->kept, &s->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	s->keeping = false;
	err = s->keep_error;
	pthread_mutex_unlock(&s->lock);
	return err;
}

static void journal_forget(void *arg, const char *id)
{
	post(arg, MESSAGE_FORGET, id, "", "", 0);
}

static void journal_tell(void *arg, const char *uuid, const char *severity, const char *text)
{
	post(arg, MESSAGE_TELL, uuid, severity, text, strlen(text));
}

static const struct manage_journal_ops journal_ops = { journal_keep, journal_forget,
						       journal_tell };

static void carry_out(void *arg, struct gw_ctx *ctx)
{
	struct order *o = arg;
	struct settings *s = o->settings;
	struct manage_keeper keeper = manage_journal_keeper(s->journal);

	manage_journal_fill(s->journal, &o->order);
	manage_run(ctx, &o->order, &keeper, &o->result);
	manage_journal_done(s->journal, &o->order, &o->result);
	pthread_mutex_lock(&s->lock);
	o->done = true;
	pthread_mutex_unlock(&s->lock);
}

static void put_back(void *arg, struct gw_ctx *ctx)
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

/* ---- the main thread ---- */

static void answer(struct settings *s, int error)
{
	pthread_mutex_lock(&s->lock);
	if (s->keeping) {
		s->keeping = false;
		s->keep_error = error;
		pthread_cond_signal(&s->kept);
	}
	pthread_mutex_unlock(&s->lock);
}

static void look(void *arg, uint64_t now_ns)
{
	struct settings *s = arg;
	int err = store_flush(s->config.store, 0);

	if (err == -GW_E_TIMEOUT)
		loop_set_time(s->timer, now_ns + LOOK_NS);
	else
		answer(s, err);
}

static void keep(struct settings *s, const struct message *m)
{
	int err = store_keep(s->config.store, MANAGE_DOC_KIND, m->id, m->text, m->size);

	store_commit(s->config.store);
	if (err)
		answer(s, err);
	else
		look(s, clock_mono_ns(clock_real()));
}

static void obey(struct settings *s, const struct message *m)
{
	struct store *store = s->config.store;

	switch (m->kind) {
	case MESSAGE_KEEP: keep(s, m); break;
	case MESSAGE_FORGET: store_forget(store, MANAGE_DOC_KIND, m->id); break;
	case MESSAGE_TELL:
		s->config.tell(s->config.arg, *m->id ? m->id : NULL, m->severity, m->text);
		break;
	}
}

static void obey_all(struct settings *s)
{
	struct message *m, *next;

	pthread_mutex_lock(&s->lock);
	m = s->first;
	s->first = NULL;
	s->last = &s->first;
	pthread_mutex_unlock(&s->lock);
	for (; m; m = next) {
		next = m->next;
		obey(s, m);
		free(m);
	}
}

static void told(void *arg, int fd, uint32_t events)
{
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) == 0)
		obey_all(arg);
}

static void load(void *arg, const char *id, const char *json)
{
	struct settings *s = arg;

	manage_journal_load(s->journal, id,
			    json); /* one that cannot be read is told, and stays */
}

void settings_load(struct settings *s)
{
	store_kept(s->config.store, MANAGE_DOC_KIND, RESTORE_MAX, load, s);
}

int settings_new(const struct settings_config *config, struct settings **ret)
{
	struct settings *s = calloc(1, sizeof(*s));
	int err = -GW_E_NOMEM;

	if (!s)
		return err;
	s->config = *config;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->kept, NULL);
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0)
		err = -GW_E_IO;
	else
		err = manage_journal_new(&journal_ops, s, clock_real(), &s->journal);
	if (!err)
		err = loop_add_timer(config->loop, look, s, &s->timer);
	if (!err)
		err = loop_add_fd(config->loop, s->event_fd, EPOLLIN, told, s, &s->source);
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
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_mutex_unlock(&s->lock);
	answer(s, -GW_E_STATE);
	settings_restore(s);
}

void settings_free(struct settings *s)
{
	if (!s)
		return;
	obey_all(s);
	loop_remove(s->source);
	loop_remove(s->timer);
	if (s->event_fd >= 0)
		close(s->event_fd);
	manage_journal_free(s->journal);
	pthread_cond_destroy(&s->kept);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void settings_restore(struct settings *s)
{
	if (s && manage_journal_count(s->journal) > 0)
		reader_do(s->config.reader, put_back, s);
}

static struct order *find(struct settings *s, int ticket)
{
	for (unsigned i = 0; i < ORDERS_MAX; i++)
		if (s->order[i].ticket == ticket)
			return &s->order[i];
	return NULL;
}

/* One that is done and that nobody asked for: its client has gone. */
static struct order *find_room(struct settings *s)
{
	struct order *o = find(s, 0);

	for (unsigned i = 0; !o && i < ORDERS_MAX; i++) {
		pthread_mutex_lock(&s->lock);
		if (s->order[i].done)
			o = &s->order[i];
		pthread_mutex_unlock(&s->lock);
	}
	return o;
}

int settings_order(struct settings *s, const struct manage_order *order)
{
	struct order *o = find_room(s);

	if (!o)
		return -GW_E_STATE;
	memset(o, 0, sizeof(*o));
	o->order = *order;
	o->settings = s;
	if (reader_do(s->config.reader, carry_out, o) != 0)
		return -GW_E_STATE;
	o->ticket = ++s->tickets;
	return o->ticket;
}

int settings_result(struct settings *s, int ticket, struct manage_result *ret)
{
	struct order *o = ticket > 0 ? find(s, ticket) : NULL;
	bool done;

	if (!o)
		return -GW_E_NOENT;
	pthread_mutex_lock(&s->lock);
	done = o->done;
	pthread_mutex_unlock(&s->lock);
	if (!done)
		return 0;
	*ret = o->result;
	o->ticket = 0;
	o->done = false;
	return 1;
}
