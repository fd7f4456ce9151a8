#include "push.h"

#include "config.h"
#include "push_protobuf.h"
#include "push_queue.h"

#include "base/mailbox.h"
#include "serve/view.h"

#include <gpuward.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING_MAX   64         /* pages while the disk hangs */
#define BATCH_BYTES   (1u << 20) /* before compression */
#define TIMEOUT_NS    (30 * NS_PER_S)
#define STOP_NS       (2 * NS_PER_S)
#define RETRY_MAX_S   3600
#define REFUSAL_EVERY (60 * NS_PER_S)
#define STACK_BYTES   (512 * 1024)
#define BODY_MAX      (64u << 20)

/* A record outside the queue; it owns its payload. */
struct push_pending {
	struct push_record r;
	char *p; /* NULL: none */
};

struct push {
	struct push_settings settings;
	struct push_config config;
	struct push_queue *queue;
	_Atomic uint64_t until_ns; /* a request ends at this time at the latest */

	struct { /* main thread only */
		struct loop_source *timer;
		struct push_encoder *encoder;
		uint64_t due_ns;
		int64_t last_ms;
		uint32_t samples; /* of the last record */
		struct log_latch problem, clock_back;
		uint64_t refusal_ns; /* when the last refusal was logged */
		struct view_push shown;
	} main;

	struct mailbox writer; /* its lock protects pending */
	struct push_pending pending[PENDING_MAX];
	unsigned waiting;

	struct mailbox sender; /* its lock protects status, refusal, loose and dropped */
	struct view_push status;
	char refusal[600];         /* why samples were dropped last; "": logged */
	struct push_pending loose; /* the newest record, if the disk refused it */
	uint64_t dropped;          /* samples, without those that the queue dropped */

	struct { /* sender thread only */
		struct push_http *http;
		unsigned failures; /* in a row */
		unsigned singles;  /* records to send one by one */
		uint64_t retry_ns; /* no request before this time; 0: now */
		uint64_t chance;   /* state of the random numbers */
	} send;
};

/* ---- settings ---- */

static void set_labels(const struct config *c, struct push_identity *id)
{
	for (unsigned i = 0; i < c->push_labels.count && i < PUSH_LABELS_MAX; i++) {
		const char *text = c->push_labels.item[i], *equal = strchr(text, '=');

		if (!equal)
			continue;
		snprintf(id->label[id->labels].name, PUSH_TEXT_MAX, "%.*s", (int)(equal - text),
			 text);
		snprintf(id->label[id->labels++].value, PUSH_TEXT_MAX, "%s", equal + 1);
	}
}

void push_settings_make(const struct config *c, const char *state_dir, bool simulated,
			struct push_settings *ret)
{
	struct push_identity *id = &ret->id;
	struct push_server *s = &ret->server;

	memset(ret, 0, sizeof(*ret)); /* also the padding, for memcmp() */
	if (gethostname(id->host, sizeof(id->host) - 1) != 0)
		snprintf(id->host, sizeof(id->host), "localhost");
#define COPY(to, from) snprintf(to, sizeof(to), "%s", (from) ? (from) : "")
	COPY(s->url, c->push_url);
	COPY(s->user, c->push_user);
	COPY(s->token_file, c->push_token_file);
	COPY(s->password_file, c->push_password_file);
	COPY(s->ca_file, c->push_ca_file);
	COPY(id->job, c->push_job);
	COPY(id->instance, c->push_instance ? c->push_instance : id->host);
	COPY(ret->dir, c->push_queue_dir);
#undef COPY
	set_labels(c, id);
	if (!*ret->dir && state_dir)
		snprintf(ret->dir, sizeof(ret->dir), "%s/%s", state_dir,
			 simulated ? "push-simulated" : "push");
	ret->protocol = strcmp(c->push_protocol, "otlp") == 0 ? PUSH_OTLP : PUSH_REMOTE_WRITE;
	ret->interval_ns = (uint64_t)(c->push_interval_s * 1e9);
	ret->queue_bytes = c->push_queue_bytes;
}

/* ---- status ---- */

/* Copies the figures of the queue. Call it with the lock of the sender. */
static void update_status(struct push *p)
{
	struct push_queue_status q;

	push_queue_status(p->queue, &q);
	p->status.queue_bytes = q.bytes;
	p->status.dropped = p->dropped + q.dropped;
}

static void note_dropped(struct push *p, uint64_t samples, const char *why)
{
	mailbox_lock(&p->sender);
	p->dropped += samples;
	if (*why)
		snprintf(p->refusal, sizeof(p->refusal), "%s", why);
	update_status(p);
	mailbox_unlock(&p->sender);
}

/* ---- the writer thread ---- */

static int pending_add(struct push *p, const struct push_pending *x, char *message, size_t size)
{
	struct push_record r = x->r;

	r.p = x->p;
	return push_queue_add(p->queue, &r, message, size);
}

static struct push_pending take_loose(struct push *p)
{
	struct push_pending x;

	mailbox_lock(&p->sender);
	x = p->loose;
	p->loose.p = NULL;
	mailbox_unlock(&p->sender);
	return x;
}

/* Keeps the newest record in memory if the disk refuses it: with a full disk, the server still
 * gets every record as long as it answers. */
static void set_loose(struct push *p, const struct push_pending *x)
{
	struct push_pending old = take_loose(p);

	if (old.p)
		note_dropped(p, old.r.samples, "");
	free(old.p);
	mailbox_lock(&p->sender);
	p->loose = *x;
	mailbox_unlock(&p->sender);
}

static void store_pending(struct push *p, struct push_pending *x)
{
	struct push_pending old = take_loose(p);
	char message[400] = "", why[600];
	bool behind;

	if (old.p && pending_add(p, &old, message, sizeof(message)) != 0)
		note_dropped(p, old.r.samples, message);
	free(old.p);
	if (pending_add(p, x, message, sizeof(message)) == 0) {
		free(x->p);
	} else {
		snprintf(why, sizeof(why), "the queue cannot take a record: %s", message);
		set_loose(p, x);
		note_dropped(p, 0, why);
	}
	mailbox_lock(&p->sender);
	update_status(p);
	behind = p->status.queue_bytes > PUSH_QUEUE_HEAD + x->r.n;
	mailbox_wake(&p->sender);
	mailbox_unlock(&p->sender);
	if (behind) /* a request takes longer than the interval, or fails */
		push_queue_sync(p->queue);
}

static void writer_run(void *arg)
{
	struct push *p = arg;

	mailbox_lock(&p->writer);
	while (p->waiting || !p->writer.stop) {
		struct push_pending x = p->pending[0];

		if (!p->waiting) {
			mailbox_wait(&p->writer, UINT64_MAX);
			continue;
		}
		p->waiting--;
		memmove(p->pending, p->pending + 1, p->waiting * sizeof(p->pending[0]));
		mailbox_unlock(&p->writer);
		store_pending(p, &x);
		mailbox_lock(&p->writer);
	}
	mailbox_unlock(&p->writer);
}

/* ---- the sender thread ---- */

uint64_t push_delay(unsigned failures, uint64_t interval_ns, double chance)
{
	uint64_t least = interval_ns < NS_PER_S ? interval_ns : NS_PER_S;
	uint64_t most = 4 * interval_ns < 60 * NS_PER_S ? 4 * interval_ns : 60 * NS_PER_S;
	uint64_t delay = least << (failures > 7 ? 6 : failures ? failures - 1 : 0);

	delay = delay < most ? delay : most;
	delay = (uint64_t)((double)delay * (0.75 + 0.5 * chance));
	return delay < least ? least : delay > most ? most : delay;
}

static double next_chance(struct push *p)
{
	p->send.chance = p->send.chance * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (double)(p->send.chance >> 11) / 9007199254740992.0;
}

static void send_failed(struct push *p, const struct push_answer *a, uint64_t now_ns)
{
	uint64_t delay,
		after_s = a->retry_after_s < RETRY_MAX_S ? a->retry_after_s : RETRY_MAX_S;

	push_queue_sync(p->queue);
	p->send.failures++;
	delay = push_delay(p->send.failures, p->settings.interval_ns, next_chance(p));
	p->send.retry_ns = now_ns + (delay > after_s * NS_PER_S ? delay : after_s * NS_PER_S);
	mailbox_lock(&p->sender);
	p->status.failures++;
	snprintf(p->status.problem, sizeof(p->status.problem), "%.390s", a->message);
	update_status(p);
	mailbox_unlock(&p->sender);
}

static void send_accepted(struct push *p, const struct push_batch *b,
			  const struct push_answer *a)
{
	char words[450] = "", why[600] = "";
	uint64_t rejected = b->protocol == PUSH_OTLP
				    ? push_otlp_rejected(a->body, a->n, words, sizeof(words))
				    : 0;

	if (rejected > b->samples)
		rejected = b->samples;
	if (rejected)
		snprintf(why, sizeof(why), "the server rejected %llu of %llu samples: %s",
			 (unsigned long long)rejected, (unsigned long long)b->samples, words);
	note_dropped(p, rejected, why);
	p->send.failures = 0;
	p->send.retry_ns = 0;
	mailbox_lock(&p->sender);
	p->status.sent += b->samples - rejected;
	p->status.success_wall_ns = clock_wall_ns(p->config.clock);
	p->status.problem[0] = '\0';
	mailbox_unlock(&p->sender);
}

static void send_refused(struct push *p, const struct push_batch *b,
			 const struct push_answer *a)
{
	p->send.failures = 0;
	p->send.retry_ns = 0;
	mailbox_lock(&p->sender);
	p->status.failures++;
	p->status.problem[0] = '\0'; /* the server answers */
	mailbox_unlock(&p->sender);
	if (b->records > 1) {
		/* One bad record must not take the others with it. After kill -9 the batch may
		 * also begin with records that the server already has. */
		p->send.singles = b->records;
		return;
	}
	note_dropped(p, b->samples, a->message);
}

/* Sends one batch. body has room for the length in front. Returns true if the batch is done
 * with, accepted or refused. */
static bool send_batch(struct push *p, const struct push_batch *b, struct buf *body)
{
	uint64_t now = clock_mono_ns(clock_real()), until = atomic_load(&p->until_ns);
	size_t skip = PROTOBUF_VARINT_MAX;
	char length[PROTOBUF_VARINT_MAX];
	struct push_answer a;
	unsigned n;

	if (b->protocol != p->settings.protocol) {
		note_dropped(
			p, b->samples,
			"records that were queued for another push.protocol cannot be sent");
		return true;
	}
	if (b->protocol == PUSH_REMOTE_WRITE) { /* Snappy: the length of the data comes first */
		n = protobuf_varint(b->raw_bytes, length);
		skip -= n;
		memcpy(body->p + skip, length, n);
	}
	push_http_post(p->send.http, b->protocol, body->p + skip, body->len - skip,
		       until <= now               ? 1
		       : until - now < TIMEOUT_NS ? until - now
						  : TIMEOUT_NS,
		       &a);
	switch (push_http_verdict(a.status)) {
	case PUSH_ACCEPTED: send_accepted(p, b, &a); return true;
	case PUSH_REFUSED: send_refused(p, b, &a); return b->records <= 1;
	case PUSH_AGAIN: break;
	}
	send_failed(p, &a, clock_mono_ns(clock_real()));
	return false;
}

/* Returns false if there is none. */
static bool send_loose(struct push *p, struct buf *body)
{
	struct push_pending x = take_loose(p);
	struct push_batch b = { .protocol = x.r.protocol,
				.records = 1,
				.samples = x.r.samples,
				.raw_bytes = x.r.raw_bytes };
	bool replaced;

	if (!x.p)
		return false;
	buf_add(body, x.p, x.r.n);
	if (!body->err && send_batch(p, &b, body)) {
		free(x.p);
		return true;
	}
	mailbox_lock(&p->sender);
	replaced = p->loose.p != NULL; /* by a newer one */
	if (!replaced)
		p->loose = x;
	mailbox_unlock(&p->sender);
	if (replaced) {
		note_dropped(p, x.r.samples, "");
		free(x.p);
	}
	return true;
}

static void send_next(struct push *p)
{
	static const char room[PROTOBUF_VARINT_MAX];
	bool single = p->send.singles > 0 || p->settings.protocol == PUSH_OTLP;
	struct push_batch b;
	struct buf body;

	buf_init(&body, BODY_MAX);
	buf_add(&body, room, sizeof(room));
	if (push_queue_take(p->queue, single ? 0 : BATCH_BYTES, &body, &b)) {
		if (send_batch(p, &b, &body)) {
			push_queue_remove(p->queue, &b);
			p->send.singles -= p->send.singles > 0;
		}
	} else if (!send_loose(p, &body)) { /* no record, or no memory for one now */
		p->send.retry_ns = clock_mono_ns(clock_real()) + NS_PER_S;
	}
	buf_done(&body);
	mailbox_lock(&p->sender);
	update_status(p);
	mailbox_unlock(&p->sender);
}

/* Waits until a record may be sent. Returns false when the thread should end. */
static bool sender_wait(struct push *p)
{
	bool go;

	mailbox_lock(&p->sender);
	for (;;) {
		bool work = p->status.queue_bytes > 0 || p->loose.p;
		uint64_t now = clock_mono_ns(clock_real());

		if (p->sender.stop) { /* the last chance, if the server answers */
			go = work && !p->send.failures && now < atomic_load(&p->until_ns);
			break;
		}
		go = work && now >= p->send.retry_ns;
		if (go)
			break;
		mailbox_wait(&p->sender, work ? p->send.retry_ns : UINT64_MAX);
	}
	mailbox_unlock(&p->sender);
	return go;
}

static void sender_run(void *arg)
{
	struct push *p = arg;

	while (sender_wait(p))
		send_next(p);
}

/* ---- the main thread ---- */

/* Gives a copy of a record to the writer. */
static void hand_over(struct push *p, const struct push_record *r)
{
	struct push_pending x = { .r = *r, .p = malloc(r->n + 1) }, old = { .p = NULL };

	if (!x.p) {
		note_dropped(p, r->samples, "out of memory for a record");
		return;
	}
	memcpy(x.p, r->p, r->n);
	mailbox_lock(&p->writer);
	if (p->waiting == PENDING_MAX) { /* the disk hangs */
		old = p->pending[0];
		memmove(p->pending, p->pending + 1, --p->waiting * sizeof(p->pending[0]));
	}
	p->pending[p->waiting++] = x;
	mailbox_wake(&p->writer);
	mailbox_unlock(&p->writer);
	if (old.p)
		note_dropped(p, old.r.samples, "the disk of the queue does not respond");
	free(old.p);
}

/* Makes a record: of the page, or at the end of one that marks all series stale. The end comes
 * after the last page whatever the clock shows: without it a server shows the last values for
 * five more minutes. */
static void make_record(struct push *p, bool end)
{
	struct metrics_sink sink = { push_encoder_sample, p->main.encoder };
	int64_t wall_ms = (int64_t)(clock_wall_ns(p->config.clock) / NS_PER_MS);
	int64_t t = end ? p->main.last_ms + 1 : push_time(p->main.last_ms, wall_ms);
	struct push_record r;

	if (end && wall_ms > t)
		t = wall_ms;
	if (log_latch(&p->main.clock_back, t < 0))
		p->config.log(
			p->config.arg, t < 0 ? LOG_WARNING : LOG_INFO,
			t < 0 ? "push: the clock was set back; nothing is pushed until it "
				"has reached the time of the last sample"
			      : "push: the clock has reached the last sample again");
	if (t < 0) {
		note_dropped(p, p->main.samples, "");
		return;
	}
	push_encoder_begin(p->main.encoder, t);
	if (!end)
		p->config.page(p->config.arg, &sink);
	if (push_encoder_end(p->main.encoder, &r) != 0) {
		note_dropped(p, r.samples, "a metrics page is too large, or memory is missing");
		return;
	}
	p->main.last_ms = t;
	p->main.samples = r.samples;
	if (r.samples)
		hand_over(p, &r);
}

static void push_timer(void *arg, uint64_t now_ns)
{
	struct push *p = arg;
	uint64_t step = p->settings.interval_ns;

	make_record(p, false);
	push_look(p);
	p->main.due_ns += step;
	if (p->main.due_ns <= now_ns) /* late: missed times are not made up for */
		p->main.due_ns = now_ns + step;
	loop_set_time(p->main.timer, p->main.due_ns);
}

const struct view_push *push_look(struct push *p)
{
	uint64_t now = clock_mono_ns(clock_real());
	char refusal[sizeof(p->refusal)] = "", line[700];
	bool bad;

	mailbox_lock(&p->sender);
	p->main.shown = p->status;
	if (p->refusal[0] && now - p->main.refusal_ns >= REFUSAL_EVERY) {
		snprintf(refusal, sizeof(refusal), "%s", p->refusal);
		p->refusal[0] = '\0';
		p->main.refusal_ns = now;
	}
	mailbox_unlock(&p->sender);
	bad = *p->main.shown.problem;
	if (log_latch(&p->main.problem, bad)) {
		snprintf(line, sizeof(line), "push: %s; samples wait in the queue",
			 p->main.shown.problem);
		p->config.log(p->config.arg, bad ? LOG_WARNING : LOG_INFO,
			      bad ? line : "push: the server accepts samples again");
	}
	if (*refusal) {
		snprintf(line, sizeof(line), "push: samples were dropped: %s", refusal);
		p->config.log(p->config.arg, LOG_WARNING, line);
	}
	return &p->main.shown;
}

static void push_release(struct push *p)
{
	loop_remove(p->main.timer);
	push_encoder_free(p->main.encoder);
	push_http_free(p->send.http);
	push_queue_close(p->queue);
	mailbox_done(&p->writer);
	mailbox_done(&p->sender);
	for (unsigned i = 0; i < p->waiting; i++)
		free(p->pending[i].p);
	free(p->loose.p);
	free(p);
}

static int push_start(struct push *p)
{
	const struct push_settings *s = &p->settings;
	uint64_t wall = clock_wall_ns(p->config.clock);
	struct push_queue_status q;
	int err = push_encoder_new(s->protocol, &s->id, wall, &p->main.encoder);

	push_queue_status(p->queue, &q);
	p->main.last_ms = q.last_ms;
	p->status.queue_bytes = q.bytes;
	if (!err)
		err = push_http_new(&s->server, &p->until_ns, &p->send.http);
	if (!err)
		err = loop_add_timer(p->config.loop, push_timer, p, &p->main.timer);
	if (!err)
		err = mailbox_start(&p->writer, STACK_BYTES, writer_run, NULL, p);
	if (!err)
		err = mailbox_start(&p->sender, STACK_BYTES, sender_run, NULL, p);
	return err;
}

int push_new(const struct push_config *config, struct push **ret, char *message, size_t size)
{
	struct push *p = calloc(1, sizeof(*p));
	int err = p ? 0 : -GW_E_NOMEM;

	message[0] = '\0';
	if (!p)
		return err;
	memcpy(&p->settings, config->settings, sizeof(p->settings));
	p->config = *config;
	p->config.settings = &p->settings;
	atomic_store(&p->until_ns, UINT64_MAX);
	p->main.refusal_ns = clock_mono_ns(clock_real()) - REFUSAL_EVERY;
	p->send.chance = clock_wall_ns(config->clock);
	/* Services that start together, as after a power cut, do not push together. */
	p->main.due_ns = clock_mono_ns(clock_real()) +
			 (uint64_t)((double)p->settings.interval_ns * next_chance(p));
	err = mailbox_init(&p->writer, 0) | mailbox_init(&p->sender, 0);
	if (!err && !*p->settings.dir) {
		snprintf(message, size, "no state directory is known; set push.queue_dir");
		err = -GW_E_NOENT;
	}
	if (!err)
		err = push_queue_open(p->settings.dir, p->settings.queue_bytes, &p->queue,
				      message, size);
	if (!err && (err = push_start(p)) != 0)
		snprintf(message, size, "%s", gw_strerror(err));
	if (err) {
		(void)mailbox_stop(&p->writer, STOP_NS);
		push_release(p);
		return err;
	}
	loop_set_time(p->main.timer, p->main.due_ns);
	*ret = p;
	return 0;
}

void push_free(struct push *p)
{
	bool hangs;

	if (!p)
		return;
	loop_set_time(p->main.timer, 0);
	make_record(p, true);
	hangs = mailbox_stop(&p->writer, STOP_NS) != 0;
	atomic_store(&p->until_ns, clock_mono_ns(clock_real()) + STOP_NS);
	hangs |= mailbox_stop(&p->sender, 2 * STOP_NS) != 0;
	if (hangs)
		loop_remove(p->main.timer); /* the threads still use the rest */
	else
		push_release(p);
}
