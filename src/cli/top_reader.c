#include "top_reader.h"

#include "cli.h"
#include "client.h"
#include "remote.h"
#include "top_driver.h"

#include "base/clock.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "base/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_NS  (3 * NS_PER_S) /* limit for one request */
#define STOP_NS     NS_PER_S
#define STACK_BYTES (256u << 10)
/* With more than CLASS_GPUS GPUs, classes are read only with every CLASS_TICKS-th reading. */
#define CLASS_GPUS  8
#define CLASS_TICKS 8
#define HOST_TICKS  2 /* CPU and memory are read with every second reading */
#define GUARD_TICKS 5 /* a guard without workers is read with every fifth reading */

struct top_reader {
	struct top_reader_options o;
	struct top_model work;     /* used by the thread only */
	struct top_driver *driver; /* NULL: the source is the service */
	unsigned readings;         /* number of new readings from the service */
	struct buf last;           /* the last reply to /api/v1/devices */
	struct deadline_stop stop;
	struct mailbox box;
	/* The lock of the mailbox protects the following members. */
	struct top_model ready; /* copy of `work` for top_reader_take() */
	bool fresh;             /* `ready` is new */
	bool paused, zoom;
	bool now; /* read immediately, because the zoom began */
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

static bool reader_stopping(void *arg)
{
	struct top_reader *r = arg;

	return mailbox_stopping(&r->box);
}

/* Fetches a document. Returns 0 if the service replied with status 200, else a negative error
 * with a sentence in work.problem. */
static int service_fetch(struct top_reader *r, const char *path)
{
	struct remote *remote = r->o.remote;
	int err = remote_fetch(remote, path, &r->stop, REQUEST_NS, r->work.problem,
			       sizeof(r->work.problem));

	if (err || remote->status == 200)
		return err;
	remote_parse(remote);
	remote_refusal(remote, r->work.problem, sizeof(r->work.problem));
	return -GW_E_STATE;
}

static int not_a_service(struct top_reader *r)
{
	snprintf(r->work.problem, sizeof(r->work.problem),
		 "the server on %s is not a gpuward service", r->o.remote->address);
	return -GW_E_PARSE;
}

/* Fetches a document like service_fetch() and parses it. */
static int service_get(struct top_reader *r, const char *path)
{
	int err = service_fetch(r, path);

	if (err)
		return err;
	remote_parse(r->o.remote);
	return r->o.remote->reply ? 0 : not_a_service(r);
}

#define SELECTED_PATH 2048

/* Writes the route and, if --gpu was given, the parameter "gpu=" with its values. `before` is
 * '?' or '&'. Returns out. */
static const char *selected_path(const struct top_reader *r, const char *route, char before,
				 char out[static SELECTED_PATH])
{
	const struct option_list *gpu = &r->o.c->gpu;
	struct buf path;

	buf_init_fixed(&path, out, SELECTED_PATH);
	buf_adds(&path, route);
	for (unsigned i = 0; i < gpu->count; i++) {
		if (i == 0)
			buf_addf(&path, "%cgpu=", before);
		else
			buf_addc(&path, ',');
		url_escape(&path, gpu->item[i]);
	}
	return out;
}

static int get_selected(struct top_reader *r, const char *route, char before)
{
	char path[SELECTED_PATH];

	return service_get(r, selected_path(r, route, before, path));
}

/* Reads the class of each process if the guard has workers. */
static int read_classes(struct top_reader *r)
{
	struct top_model *m = &r->work;
	bool used[256] = { false };
	char path[160];

	if (!m->workers || (m->gpus > CLASS_GPUS && r->readings % CLASS_TICKS != 0))
		return 0;
	for (unsigned i = 0; i < m->processes; i++)
		used[m->process[i].gpu] = true;
	for (unsigned i = 0; i < m->gpus; i++) {
		if (!used[i])
			continue;
		snprintf(path, sizeof(path), "/api/v1/guard/gpus/%s", m->gpu[i].uuid);
		if (service_get(r, path) == 0)
			top_read_guard_gpu(m, r->o.remote->reply);
	}
	return 0;
}

/* Reads the documents that change only when the service reads the GPUs again: processes, host,
 * guard and classes. */
static int read_rest(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	int err = get_selected(r, "/api/v1/processes", '?');

	if (!err)
		err = top_read_processes(&r->work, remote->reply);
	if (!err && r->readings % HOST_TICKS == 0 &&
	    service_get(r, "/api/v1/snapshot?processes=false&gpu=0") == 0)
		top_read_host(&r->work, remote->reply);
	/* A guard without workers is read less often, because workers are added only by a new
	 * configuration. */
	if (!err && (r->work.workers || r->readings % GUARD_TICKS == 0) &&
	    service_get(r, "/api/v1/guard?limit=1") == 0)
		err = top_read_guard(&r->work, remote->reply);
	return err ? err : read_classes(r);
}

/* Reads the history of the service, and how often the service reads the GPUs. This is done
 * once. */
static void read_past(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	double s;

	if (service_get(r, "/api/v1/self") == 0) {
		s = json_doc_number(remote->reply, "interval_seconds");
		r->work.interval_ns = s > 0 ? (uint64_t)(s * 1e9) : NS_PER_S;
	}
	if (get_selected(r,
			 "/api/v1/series?quantity=power_watts,utilization_gpu_ratio,"
			 "memory_used_bytes,temperature_gpu_celsius&from=-10m&tier=second",
			 '&') == 0)
		top_read_series(&r->work, remote->reply);
}

static int read_service(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	char path[SELECTED_PATH];
	struct buf old;
	int err = service_fetch(r, selected_path(r, "/api/v1/devices", '?', path));

	if (err)
		return err;
	if (r->work.read_ns && !*r->work.problem && r->last.len == remote->body.len &&
	    memcmp(r->last.p, remote->body.p, r->last.len) == 0)
		return 0; /* the reply is the same: the service has not read the GPUs again */
	remote_parse(remote);
	if (!remote->reply || json_doc_type(remote->reply, "devices") != JSON_DOC_ARRAY)
		return not_a_service(r);
	top_model_add_gap(&r->work, now_ns());
	err = top_read_devices(&r->work, remote->reply);
	old = r->last;
	r->last = remote->body;
	remote->body = old;
	snprintf(r->work.source, sizeof(r->work.source), "service %s", remote->address);
	r->work.local = r->o.local;
	r->work.read_ns = now_ns();
	if (!err)
		err = read_rest(r);
	if (!err && r->readings++ == 0)
		read_past(r);
	return err;
}

static void publish(struct top_reader *r)
{
	mailbox_lock(&r->box);
	if (top_model_copy(&r->ready, &r->work) == 0)
		r->fresh = true;
	mailbox_unlock(&r->box);
	mailbox_notify(&r->box);
}

/* Waits until the time due_ns, and until the reader is not paused. Returns false if the thread
 * must end. */
static bool wait_until_due(struct top_reader *r, uint64_t due_ns)
{
	bool run;

	mailbox_lock(&r->box);
	while (!r->box.stop && (r->paused || (!r->now && now_ns() < due_ns)))
		mailbox_wait(&r->box, r->paused ? UINT64_MAX : due_ns);
	run = !r->box.stop;
	r->now = false;
	if (r->driver)
		top_driver_zoom(r->driver, r->zoom);
	/* Clear the descriptor, because deadline_poll() also waits for it during a request. */
	mailbox_clear(r->box.wake_fd);
	mailbox_unlock(&r->box);
	return run;
}

/* Returns the time until the next reading. A service has nothing new before its own interval is
 * over. If the last reply was not new, the next attempt follows soon. */
static uint64_t step_ns(const struct top_reader *r, bool fresh)
{
	if (!r->o.remote || *r->work.problem || r->work.interval_ns < r->o.interval_ns ||
	    /* The service has a long interval: send requests more often, to notice soon if the
	     * service ends. */
	    r->work.interval_ns > 2 * NS_PER_S)
		return r->o.interval_ns;
	return fresh ? r->work.interval_ns : r->o.interval_ns / 4;
}

static void reader_run(void *arg)
{
	struct top_reader *r = arg;
	uint64_t due_ns = now_ns();

	while (wait_until_due(r, due_ns)) {
		char before[sizeof(r->work.problem)];
		uint64_t read_ns = r->work.read_ns;
		int err;

		memcpy(before, r->work.problem, sizeof(before));
		err = r->driver ? top_driver_read(r->driver, &r->work) : read_service(r);
		if (!err)
			r->work.problem[0] = '\0';
		if (err || read_ns != r->work.read_ns || strcmp(before, r->work.problem) != 0)
			publish(r);
		/* If due_ns is in the future, this was an additional reading because of the
		 * zoom. */
		if (due_ns <= now_ns())
			due_ns += step_ns(r, read_ns != r->work.read_ns);
		if (due_ns < now_ns()) /* skip missed readings */
			due_ns = now_ns();
	}
}

static void reader_free(struct top_reader *r)
{
	top_driver_free(r->driver);
	top_model_done(&r->work);
	top_model_done(&r->ready);
	buf_done(&r->last);
	mailbox_done(&r->box);
	free(r);
}

int top_reader_start(const struct top_reader_options *o, struct top_reader **ret)
{
	struct top_reader *r = calloc(1, sizeof(*r));
	int err = 0;

	if (!r)
		return -GW_E_NOMEM;
	r->o = *o;
	top_model_init(&r->work);
	top_model_init(&r->ready);
	buf_init(&r->last, CLIENT_REPLY_MAX);
	r->work.interval_ns = o->interval_ns;
	if (mailbox_init(&r->box, MAILBOX_NEWS_FD | MAILBOX_WAKE_FD) != 0)
		err = -GW_E_IO;
	r->stop = (struct deadline_stop){ reader_stopping, r, r->box.wake_fd };
	if (!err && !o->remote)
		err = top_driver_new(o->c, clock_real(), &r->driver);
	if (!err)
		err = mailbox_start(&r->box, STACK_BYTES, reader_run, NULL, r);
	if (err)
		reader_free(r);
	else
		*ret = r;
	return err;
}

int top_reader_fd(const struct top_reader *r)
{
	return r->box.news_fd;
}

bool top_reader_take(struct top_reader *r, struct top_model *m)
{
	bool fresh;

	mailbox_clear(r->box.news_fd);
	mailbox_lock(&r->box);
	fresh = r->fresh && top_model_copy(m, &r->ready) == 0;
	r->fresh = false;
	mailbox_unlock(&r->box);
	return fresh;
}

void top_reader_pause(struct top_reader *r, bool paused)
{
	mailbox_lock(&r->box);
	r->paused = paused;
	mailbox_unlock(&r->box);
	mailbox_wake(&r->box);
}

void top_reader_zoom(struct top_reader *r, bool zoom)
{
	bool now;

	mailbox_lock(&r->box);
	now = zoom && !r->zoom && r->driver;
	r->zoom = zoom;
	r->now = r->now || now;
	mailbox_unlock(&r->box);
	if (now)
		mailbox_wake(&r->box);
}

int top_reader_stop(struct top_reader *r)
{
	int err = mailbox_stop(&r->box, STOP_NS);

	if (!err)
		reader_free(r);
	return err;
}
