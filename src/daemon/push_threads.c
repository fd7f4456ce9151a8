/* The two threads of the push: the writer stores each record in the queue on disk, and the
 * sender sends the records of the queue. push.c starts and stops both threads. */
#include "push_parts.h"

#include "push_wire.h"
#include "push_segment.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES (1u << 20) /* Maximum size of one request before compression. */
#define TIMEOUT_NS  (30 * NS_PER_S)
#define RETRY_MAX_S 3600
#define BODY_MAX    (64u << 20)

/* Copies the figures of the queue to the status. The caller holds the lock of the sender. */
static void update_status(struct push *p)
{
	struct push_queue_status q = { 0 };

	if (p->queue)
		push_queue_status(p->queue, &q);
	p->status.queue_bytes = q.bytes;
	p->status.dropped = p->dropped + q.dropped;
}

void push_note_dropped(struct push *p, uint64_t samples, const char *why)
{
	mailbox_lock(&p->sender);
	p->dropped += samples;
	if (*why)
		snprintf(p->refusal, sizeof(p->refusal), "%s", why);
	update_status(p);
	mailbox_unlock(&p->sender);
}

/* Adds a line to the notice, which the main thread logs. */
static void add_notice(struct push *p, const char *line)
{
	size_t n;

	if (!*line)
		return;
	mailbox_lock(&p->sender);
	n = strlen(p->notice);
	snprintf(p->notice + n, sizeof(p->notice) - n, "%s%s", n ? "\n" : "", line);
	mailbox_unlock(&p->sender);
}

/* Sets or clears the problem "records are not written to the disk" in the status. err is the
 * error of the queue, or 0 if records are written. */
static void set_queue_problem(struct push *p, int err, const char *why)
{
	bool has_remedy = err == -GW_E_STATE || err == -GW_E_SIZE || err == -GW_E_ARG;

	mailbox_lock(&p->sender);
	p->status.queue_problem[0] = '\0';
	if (err)
		snprintf(p->status.queue_problem, sizeof(p->status.queue_problem),
			 "the queue cannot take records: %.340s%s; %s", why,
			 has_remedy ? ""
				    : "; make this folder writable and free some disk space, "
				      "or set push.queue_dir to another folder",
			 err == -GW_E_STATE ? "nothing is pushed until then"
					    : "until then samples are lost when the server "
					      "does not answer");
	mailbox_unlock(&p->sender);
}

/* Opens the queue of the settings. Returns 0 or an error of push_queue_open(). */
static int open_queue(struct push *p)
{
	struct push_queue_status q;
	struct push_queue *queue = NULL;
	char message[sizeof(p->notice)] = "";
	int err = -GW_E_ARG;

	if (*p->settings.dir)
		err = push_queue_open(p->settings.dir, p->settings.queue_bytes, &queue, message,
				      sizeof(message));
	else
		snprintf(message, sizeof(message),
			 "no state directory is known; set push.queue_dir");
	set_queue_problem(p, err, message);
	if (err)
		return err;
	push_queue_status(queue, &q);
	mailbox_lock(&p->sender);
	p->queue = queue;
	p->opened_ms = q.last_ms;
	update_status(p);
	mailbox_unlock(&p->sender);
	add_notice(p, message);
	return 0;
}

void push_close(struct push *p)
{
	struct push_queue_status q = { 0 };
	struct push_queue *queue;

	mailbox_lock(&p->sender);
	queue = p->queue;
	if (queue)
		push_queue_status(queue, &q);
	p->queue = NULL;
	p->dropped += q.dropped;
	update_status(p);
	mailbox_unlock(&p->sender);
	push_queue_close(queue);
	push_http_free(p->send.http);
	p->send.http = NULL;
}

/* Makes the sender pause and waits for that. The sender has two seconds to send the waiting
 * records first. */
static void pause_sender(struct push *p)
{
	atomic_store(&p->until_ns, clock_mono_ns(clock_real()) + PUSH_STOP_NS);
	mailbox_lock(&p->sender);
	if (p->state == PUSH_SENDS)
		p->state = PUSH_PAUSES;
	mailbox_wake(&p->sender);
	while (p->state != PUSH_PAUSED)
		mailbox_wait_news(&p->sender, UINT64_MAX);
	mailbox_unlock(&p->sender);
}

/* Applies the settings in `fresh`, and frees `fresh`. */
static void change_settings(struct push *p, struct push_settings *fresh)
{
	pause_sender(p);
	push_close(p);
	memcpy(&p->settings, fresh, sizeof(p->settings));
	free(fresh);
	p->send.failures = p->send.singles = 0;
	p->send.retry_ns = 0;
	mailbox_lock(&p->sender);
	p->status.problem[0] = '\0';
	p->status.success_wall_ns = 0;
	mailbox_unlock(&p->sender);
	if (!*p->settings.server.url)
		return;
	(void)open_queue(p); /* If this fails, each new record opens the queue again. */
	atomic_store(&p->until_ns, UINT64_MAX);
	mailbox_lock(&p->sender);
	p->state = PUSH_SENDS;
	mailbox_wake(&p->sender);
	mailbox_unlock(&p->sender);
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

/* Call it for a new record that could not be written to the disk. Keeps this record in memory,
 * and drops the record that was kept before. So even if the disk is full, the server gets every
 * record as long as the server answers. */
static void set_loose(struct push *p, const struct push_pending *x)
{
	struct push_pending old = take_loose(p);

	if (old.p)
		push_note_dropped(p, old.r.samples, "");
	free(old.p);
	mailbox_lock(&p->sender);
	p->loose = *x;
	mailbox_unlock(&p->sender);
}

/* Adds a record to the queue. A notice of the queue is logged, and a problem appears in the
 * status. */
static int add_pending(struct push *p, const struct push_pending *x)
{
	struct push_record r = x->r;
	char message[400];
	int err;

	r.p = x->p;
	err = push_queue_add(p->queue, &r, message, sizeof(message));
	set_queue_problem(p, err, message);
	if (!err)
		add_notice(p, message);
	return err;
}

static void store_pending(struct push *p, struct push_pending *x)
{
	struct push_pending old = take_loose(p);
	int err = p->queue ? 0 : open_queue(p);
	bool behind;

	if (old.p && (err || add_pending(p, &old) != 0))
		push_note_dropped(p, old.r.samples, "");
	free(old.p);
	/* Another process uses the queue. That process pushes the same samples. */
	if (err == -GW_E_STATE) {
		push_note_dropped(p, x->r.samples, "");
		free(x->p);
		return;
	}
	if (!err)
		err = add_pending(p, x);
	if (err)
		set_loose(p, x);
	else
		free(x->p);
	mailbox_lock(&p->sender);
	update_status(p);
	behind = p->status.queue_bytes > PUSH_RECORD_HEAD + x->r.n;
	mailbox_wake(&p->sender);
	mailbox_unlock(&p->sender);
	/* If records wait, because a request takes longer than the interval or fails, they must
	 * survive a loss of power. */
	if (behind)
		push_queue_sync(p->queue);
}

void push_writer_run(void *arg)
{
	struct push *p = arg;

	mailbox_lock(&p->writer);
	for (;;) {
		struct push_settings *next = p->before_next == 0 ? p->next : NULL;
		struct push_pending x = p->pending[0];

		if (next && (p->waiting || !p->writer.stop)) {
			p->next = NULL;
			mailbox_unlock(&p->writer);
			change_settings(p, next);
		} else if (p->waiting) {
			p->waiting--;
			p->before_next -= p->before_next > 0;
			memmove(p->pending, p->pending + 1, p->waiting * sizeof(p->pending[0]));
			mailbox_unlock(&p->writer);
			store_pending(p, &x);
		} else if (p->writer.stop) {
			break;
		} else {
			mailbox_wait(&p->writer, UINT64_MAX);
			continue;
		}
		mailbox_lock(&p->writer);
	}
	mailbox_unlock(&p->writer);
}

uint64_t push_delay(unsigned failures, uint64_t interval_ns, double chance)
{
	uint64_t least = interval_ns < NS_PER_S ? interval_ns : NS_PER_S;
	uint64_t most = 4 * interval_ns < 60 * NS_PER_S ? 4 * interval_ns : 60 * NS_PER_S;
	uint64_t delay = least << (failures > 7 ? 6 : failures ? failures - 1 : 0);

	delay = delay < most ? delay : most;
	delay = (uint64_t)((double)delay * (0.75 + 0.5 * chance));
	return delay < least ? least : delay > most ? most : delay;
}

double push_chance(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (double)(*state >> 11) / 9007199254740992.0;
}

/* Returns the queue. Only the writer opens and closes the queue, and closes it only while the
 * sender pauses. */
static struct push_queue *current_queue(struct push *p)
{
	struct push_queue *queue;

	mailbox_lock(&p->sender);
	queue = p->queue;
	mailbox_unlock(&p->sender);
	return queue;
}

static void send_failed(struct push *p, const struct push_answer *a, uint64_t now_ns)
{
	struct push_queue *queue = current_queue(p);
	uint64_t delay,
		after_s = a->retry_after_s < RETRY_MAX_S ? a->retry_after_s : RETRY_MAX_S;

	if (queue)
		push_queue_sync(queue);
	p->send.failures++;
	delay = push_delay(p->send.failures, p->settings.interval_ns,
			   push_chance(&p->send.chance));
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
	push_note_dropped(p, rejected, why);
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
	p->status.problem[0] = '\0'; /* A refusal is an answer, so the connection works. */
	mailbox_unlock(&p->sender);
	if (b->records > 1) {
		/* Only one record of the batch may be bad, and the others must not be lost with
		 * it. Therefore the records are sent again one by one. After kill -9 the batch
		 * may also begin with records that the server already has. */
		p->send.singles = b->records;
		return;
	}
	push_note_dropped(p, b->samples, a->message);
}

/* Sends one batch. body has space for the length at its beginning. Returns true if the batch
 * can be removed from the queue: the server accepted the batch, or refused it and the batch is
 * a single record. Returns false if the batch must be sent again. If the server refused a batch
 * of several records, the records are sent again one by one. */
static bool send_batch(struct push *p, const struct push_batch *b, struct buf *body)
{
	uint64_t now = clock_mono_ns(clock_real()), until = atomic_load(&p->until_ns);
	size_t skip = PROTOBUF_VARINT_MAX;
	char length[PROTOBUF_VARINT_MAX];
	struct push_answer a;
	unsigned n;

	if (b->protocol != p->settings.protocol) {
		push_note_dropped(
			p, b->samples,
			"records that were queued for another push.protocol cannot be sent");
		return true;
	}
	/* A Snappy block begins with its length. */
	if (b->protocol == PUSH_REMOTE_WRITE) {
		n = protobuf_varint(b->raw_bytes, length);
		skip -= n;
		memcpy(body->p + skip, length, n);
	}
	if (!p->send.http &&
	    push_http_new(&p->settings.server, &p->until_ns, &p->send.http) != 0) {
		a = (struct push_answer){ .message = "out of memory for a request" };
		send_failed(p, &a, now);
		return false;
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

/* Sends the record that the disk refused. Returns false if there is no such record. */
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
	replaced = p->loose.p != NULL; /* A newer record has replaced this one. */
	if (!replaced)
		p->loose = x;
	mailbox_unlock(&p->sender);
	if (replaced) {
		push_note_dropped(p, x.r.samples, "");
		free(x.p);
	}
	return true;
}

static void send_next(struct push *p)
{
	static const char room[PROTOBUF_VARINT_MAX];
	bool single = p->send.singles > 0 || p->settings.protocol == PUSH_OTLP;
	struct push_queue *queue = current_queue(p);
	char message[400] = "";
	struct push_batch b;
	struct buf body;
	bool taken;

	buf_init(&body, BODY_MAX);
	buf_add(&body, room, sizeof(room));
	taken = queue && push_queue_take(queue, single ? 0 : BATCH_BYTES, &body, &b, message,
					 sizeof(message));
	add_notice(p, message);
	if (taken) {
		if (send_batch(p, &b, &body)) {
			push_queue_remove(queue, &b);
			p->send.singles -= p->send.singles > 0;
		}
	} else if (!send_loose(p, &body)) {
		/* Nothing was sent, because there is no record or no memory. */
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
	bool go = false;

	mailbox_lock(&p->sender);
	for (;;) {
		bool work = p->status.queue_bytes > 0 || p->loose.p;
		uint64_t now = clock_mono_ns(clock_real());

		if (p->state == PUSH_PAUSED && !p->sender.stop) {
			mailbox_wait(&p->sender, UINT64_MAX);
			continue;
		}
		if (p->sender.stop || p->state == PUSH_PAUSES) {
			/* Send the waiting records before the pause, unless the last request
			 * failed. */
			go = p->state != PUSH_PAUSED && work && !p->send.failures &&
			     now < atomic_load(&p->until_ns);
			if (go || p->sender.stop)
				break;
			p->state = PUSH_PAUSED;
			mailbox_notify(&p->sender);
			continue;
		}
		go = work && now >= p->send.retry_ns;
		if (go)
			break;
		mailbox_wait(&p->sender, work ? p->send.retry_ns : UINT64_MAX);
	}
	mailbox_unlock(&p->sender);
	return go;
}

void push_sender_run(void *arg)
{
	struct push *p = arg;

	while (sender_wait(p))
		send_next(p);
	mailbox_lock(&p->sender);
	p->state = PUSH_PAUSED;
	mailbox_notify(&p->sender);
	mailbox_unlock(&p->sender);
}
