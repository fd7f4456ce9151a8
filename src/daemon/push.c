#include "push.h"

#include "config.h"
#include "push_parts.h"

#include "base/file.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSAL_EVERY (60 * NS_PER_S)
#define STACK_BYTES   (512 * 1024)

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

	/* Also clears the padding, because memcmp() compares it. */
	memset(ret, 0, sizeof(*ret));
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

/* Passes a copy of a record to the writer thread. */
static void hand_over(struct push *p, const struct push_record *r)
{
	struct push_pending x = { .r = *r, .p = malloc(r->n + 1) }, old = { .p = NULL };

	if (!x.p) {
		push_note_dropped(p, r->samples, "out of memory for a record");
		return;
	}
	memcpy(x.p, r->p, r->n);
	mailbox_lock(&p->writer);
	if (p->waiting == PUSH_PENDING_MAX) { /* The disk hangs. */
		old = p->pending[0];
		memmove(p->pending, p->pending + 1, --p->waiting * sizeof(p->pending[0]));
		p->before_next -= p->before_next > 0;
	}
	p->pending[p->waiting++] = x;
	mailbox_wake(&p->writer);
	mailbox_unlock(&p->writer);
	if (old.p)
		push_note_dropped(p, old.r.samples, "the disk of the queue does not respond");
	free(old.p);
}

/* Makes a record of the metrics page. If `end` is true, makes an end record, which marks all
 * series stale. Without an end record, a server shows the last values for five more minutes.
 * The time of the end record is always later than that of the last page, even if the clock was
 * set back. */
static void make_record(struct push *p, bool end)
{
	struct metrics_sink sink = { push_encoder_sample, p->main.encoder };
	int64_t wall_ms = (int64_t)(clock_wall_ns(p->config.clock) / NS_PER_MS);
	struct push_record r;
	int64_t t;

	mailbox_lock(&p->sender);
	if (p->opened_ms > p->main.last_ms)
		p->main.last_ms = p->opened_ms;
	p->opened_ms = 0;
	mailbox_unlock(&p->sender);
	t = end ? p->main.last_ms + 1 : push_time(p->main.last_ms, wall_ms);
	if (end && wall_ms > t)
		t = wall_ms;
	if (log_latch(&p->main.clock_back, t < 0))
		p->config.log(
			p->config.arg, t < 0 ? LOG_WARNING : LOG_INFO,
			t < 0 ? "push: the clock was set back; nothing is pushed until it "
				"has reached the time of the last sample"
			      : "push: the clock has reached the time of the last sample; "
				"metrics are pushed again");
	if (t < 0) {
		push_note_dropped(p, p->main.samples, "");
		return;
	}
	push_encoder_begin(p->main.encoder, t);
	if (!end)
		p->config.page(p->config.arg, &sink);
	if (push_encoder_end(p->main.encoder, &r) != 0) {
		push_note_dropped(p, r.samples,
				  "a metrics page is too large, or memory ran out");
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
	uint64_t step = p->main.settings.interval_ns;

	make_record(p, false);
	push_look(p);
	p->main.due_ns += step;
	if (p->main.due_ns <= now_ns) /* The timer is late. Missed records are skipped. */
		p->main.due_ns = now_ns + step;
	loop_set_time(p->main.timer, p->main.due_ns);
}

/* Logs a problem when it begins. When the problem ends, logs the text `good`, unless `good` is
 * "". */
static void log_problem(struct push *p, struct log_latch *latch, const char *problem,
			const char *effect, const char *good)
{
	bool bad = *problem;
	char line[1200];

	if (!log_latch(latch, bad) || (!bad && !*good))
		return;
	snprintf(line, sizeof(line), "push: %s%s", problem, effect);
	p->config.log(p->config.arg, bad ? LOG_WARNING : LOG_INFO, bad ? line : good);
}

const struct view_push *push_look(struct push *p)
{
	uint64_t now = clock_mono_ns(clock_real());
	char refusal[sizeof(p->refusal)] = "", notice[sizeof(p->notice)], line[1200];
	char *rest = notice, *one;

	mailbox_lock(&p->sender);
	p->main.shown = p->status;
	if (p->refusal[0] && now - p->main.refusal_ns >= REFUSAL_EVERY) {
		snprintf(refusal, sizeof(refusal), "%s", p->refusal);
		p->refusal[0] = '\0';
		p->main.refusal_ns = now;
	}
	snprintf(notice, sizeof(notice), "%s", p->notice);
	p->notice[0] = '\0';
	mailbox_unlock(&p->sender);
	log_problem(p, &p->main.problem, p->main.shown.problem, "; samples wait in the queue",
		    p->main.shown.success_wall_ns ? "push: the server accepts samples again"
						  /* The text does not contain "again", because
						   * the server has accepted no sample
						   * before. */
						  : "");
	log_problem(p, &p->main.queue_problem, p->main.shown.queue_problem, "",
		    "push: the queue takes records again");
	while ((one = strsep(&rest, "\n")) && *one) {
		snprintf(line, sizeof(line), "push: %s", one);
		p->config.log(p->config.arg, LOG_WARNING, line);
	}
	if (*refusal) {
		snprintf(line, sizeof(line), "push: samples were dropped: %s", refusal);
		p->config.log(p->config.arg, LOG_WARNING, line);
	}
	return &p->main.shown;
}

/* Changes the settings (copied) without waiting. The threads first finish their work with the
 * old settings, which takes some seconds if the server hangs. Then they open the queue of the
 * new settings. push_look() reports problems. The url "" ends the push. Returns 0, or
 * -GW_E_NOMEM; after this error nothing is pushed. */
static int push_apply(struct push *p, const struct push_settings *settings)
{
	struct push_settings *next = malloc(sizeof(*next)), *old;
	uint64_t now = clock_mono_ns(clock_real());
	int err = next ? 0 : -GW_E_NOMEM;

	loop_set_time(p->main.timer, 0);
	if (p->main.encoder)
		make_record(p, true);
	push_encoder_free(p->main.encoder);
	p->main.encoder = NULL;
	memcpy(&p->main.settings, settings, sizeof(*settings));
	if (!err && *settings->server.url)
		err = push_encoder_new(settings->protocol, &p->main.settings.id,
				       clock_wall_ns(p->config.clock), &p->main.encoder);
	if (err) {
		free(next);
		return err;
	}
	memcpy(next, settings, sizeof(*next));
	mailbox_lock(&p->writer);
	old = p->next;
	p->next = next;
	p->before_next = p->waiting;
	mailbox_wake(&p->writer);
	mailbox_unlock(&p->writer);
	free(old);
	/* Use a random delay: services that all start at the same time after a power cut must
	 * not all push at the same time. */
	p->main.due_ns =
		now + (uint64_t)((double)settings->interval_ns * push_chance(&p->main.chance));
	if (p->main.encoder)
		loop_set_time(p->main.timer, p->main.due_ns);
	return 0;
}

static void push_release(struct push *p)
{
	loop_remove(p->main.timer);
	push_encoder_free(p->main.encoder);
	push_close(p);
	mailbox_done(&p->writer);
	mailbox_done(&p->sender);
	for (unsigned i = 0; i < p->waiting; i++)
		free(p->pending[i].p);
	free(p->loose.p);
	free(p->next);
	free(p);
}

/* Starts the threads. Nothing is pushed before push_apply(). Returns 0, -GW_E_NOMEM or
 * -GW_E_IO. */
static int push_new(const struct push_config *config, struct push **ret)
{
	struct push *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -GW_E_NOMEM;
	p->config = *config;
	p->state = PUSH_PAUSED; /* The sender pauses until push_apply() sets the settings. */
	p->main.refusal_ns = clock_mono_ns(clock_real()) - REFUSAL_EVERY;
	p->main.chance = clock_wall_ns(config->clock);
	p->send.chance = ~p->main.chance;
	err = mailbox_init(&p->writer, 0) | mailbox_init(&p->sender, 0);
	if (!err)
		err = loop_add_timer(config->loop, push_timer, p, &p->main.timer);
	if (!err)
		err = mailbox_start(&p->writer, STACK_BYTES, push_writer_run, NULL, p);
	if (!err)
		err = mailbox_start(&p->sender, STACK_BYTES, push_sender_run, NULL, p);
	if (err) {
		(void)mailbox_stop(&p->writer, PUSH_STOP_NS);
		push_release(p);
		return err;
	}
	*ret = p;
	return 0;
}

int push_change(struct push **p, const struct push_config *config,
		const struct push_settings *settings, bool *ret_changed)
{
	int err = 0;

	*ret_changed = *p ? memcmp(&(*p)->main.settings, settings, sizeof(*settings)) != 0
			  : *settings->server.url != '\0';
	if (!*ret_changed)
		return 0;
	if (!*p)
		err = push_new(config, p);
	if (!err)
		err = push_apply(*p, settings);
	/* Set the settings to zero. Valid settings are never all zero, so the next call sees a
	 * change and tries again. */
	if (err && *p)
		memset(&(*p)->main.settings, 0, sizeof((*p)->main.settings));
	return err;
}

void push_free(struct push *p)
{
	bool hangs;

	if (!p)
		return;
	loop_set_time(p->main.timer, 0);
	if (p->main.encoder)
		make_record(p, true);
	hangs = mailbox_stop(&p->writer, 2 * PUSH_STOP_NS) != 0;
	atomic_store(&p->until_ns, clock_mono_ns(clock_real()) + PUSH_STOP_NS);
	hangs |= mailbox_stop(&p->sender, 2 * PUSH_STOP_NS) != 0;
	if (hangs)
		loop_remove(p->main.timer); /* The threads still use the other members. */
	else
		push_release(p);
}

int textfile_init(struct textfile *f, const char *path, char *message, size_t size)
{
	size_t n = strlen(path);

	if (n >= sizeof(f->path)) {
		snprintf(message, size, "the path of the metrics file is too long");
		return -GW_E_SIZE;
	}
	memcpy(f->path, path, n + 1);
	snprintf(f->temp, sizeof(f->temp), "%s.tmp", path);
	f->error = 0;
	return 0;
}

static int write_temp(const struct textfile *f, const char *text, size_t n)
{
	int fd, err;

	/* Another user, such as node_exporter, may own the folder and may have put a file
	 * there. Remove such a file instead of opening it. */
	if (unlink(f->temp) != 0 && errno != ENOENT)
		return -1;
	fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	err = file_write_all(fd, text, n);
	return close(fd) != 0 ? -1 : err;
}

int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size)
{
	int err = 0;

	message[0] = '\0';
	if (write_temp(f, text, n) != 0 || rename(f->temp, f->path) != 0) {
		err = file_failed(message, size, f->path, "written");
		unlink(f->temp);
	}
	*ret_news = err != f->error;
	f->error = err;
	return err;
}

void textfile_done(struct textfile *f)
{
	if (f->path[0])
		unlink(f->path);
	f->path[0] = '\0';
}
