#include "fleet_watch.h"

#include "config.h"

#include "base/mailbox.h"

#include <gpuward.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS (20 * NS_PER_S)
#define KEEP_NS    (60 * NS_PER_S)
#define END_NS     (2 * NS_PER_S)
#define ROWS       200 /* Maximum number of rows per list: attention, workloads, models. */

struct fleet_watch {
	struct mailbox box;
	const struct clock *clock;
	struct fleet_server server;
	char job[600];
	atomic_bool stop;
	struct fleet_source source;
	/* These members are shared with the thread. The lock of the mailbox protects them. */
	bool asking;
	struct fleet *fresh; /* The result that the main thread has not taken yet. */
	uint64_t fresh_ns;   /* Monotonic time at which the request for that result was sent. */
	int error;           /* -GW_E_NOMEM if there was no memory for the result, else 0. */
	/* These members are used by the main thread only. */
	bool started;
	uint64_t asked_ns, look_ns;
	struct fleet_state last;
};

static void watch_free(void *arg)
{
	struct fleet_watch *w = arg;

	fleet_free(w->fresh);
	fleet_free(w->last.fleet);
	mailbox_done(&w->box);
	free(w);
}

static void watch_ask(struct fleet_watch *w)
{
	const struct fleet_question x = { .job = *w->job ? w->job : NULL,
					  .range_s = FLEET_RANGE_S,
					  .top = ROWS };
	uint64_t sent_ns = clock_mono_ns(w->clock);
	struct fleet *f = NULL;
	int err = fleet_ask(&w->server, &x, TIMEOUT_NS, &w->stop, &f);

	mailbox_lock(&w->box);
	fleet_free(w->fresh);
	w->fresh = f;
	w->fresh_ns = sent_ns;
	w->error = err;
	w->asking = false;
	mailbox_unlock(&w->box);
}

static void watch_run(void *arg)
{
	struct fleet_watch *w = arg;

	mailbox_lock(&w->box);
	while (!w->box.stop) {
		if (!w->asking) {
			mailbox_wait(&w->box, UINT64_MAX);
			continue;
		}
		mailbox_unlock(&w->box);
		watch_ask(w);
		mailbox_lock(&w->box);
	}
	mailbox_unlock(&w->box);
}

/* Takes the result of the thread. If the result has no fleet, clients continue to get the fleet
 * of the previous request, with the age of that fleet. The caller holds the lock. */
static void watch_take(struct fleet_watch *w)
{
	struct fleet_state *s = &w->last;

	if (w->error)
		snprintf(s->problem, sizeof(s->problem), "%s", gw_strerror(w->error));
	w->error = 0;
	if (!w->fresh)
		return;
	s->problem[0] = '\0';
	if (fleet_is_empty(w->fresh, s->problem, sizeof(s->problem))) {
		fleet_free(w->fresh);
	} else {
		fleet_free(s->fleet);
		s->fleet = w->fresh;
		s->mono_ns = w->fresh_ns;
	}
	w->fresh = NULL;
}

static void watch_look(void *arg, struct fleet_state *ret)
{
	struct fleet_watch *w = arg;
	uint64_t now_ns = clock_mono_ns(w->clock);

	w->look_ns = now_ns;
	mailbox_lock(&w->box);
	watch_take(w);
	if (!w->asking && (!w->asked_ns || now_ns - w->asked_ns >= FLEET_FRESH_NS)) {
		if (!w->started)
			w->started = mailbox_start(&w->box, 0, watch_run, watch_free, w) == 0;
		if (w->started) {
			w->asking = true;
			w->asked_ns = now_ns;
			mailbox_wake(&w->box);
		} else {
			snprintf(w->last.problem, sizeof(w->last.problem), "%s",
				 gw_strerror(-GW_E_NOMEM));
		}
	}
	w->last.asking = w->asking;
	mailbox_unlock(&w->box);
	*ret = w->last;
}

int fleet_watch_new(const struct fleet_server *server, const char *job,
		    const struct clock *clock, struct fleet_watch **ret)
{
	struct fleet_watch *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -GW_E_NOMEM;
	w->clock = clock;
	w->server = *server;
	snprintf(w->job, sizeof(w->job), "%s", job ? job : "");
	atomic_init(&w->stop, false);
	w->source = (struct fleet_source){ .arg = w, .url = w->server.url, .look = watch_look };
	err = mailbox_init(&w->box, 0);
	if (err)
		watch_free(w);
	else
		*ret = w;
	return err;
}

void fleet_watch_free(struct fleet_watch *w)
{
	if (!w)
		return;
	atomic_store(&w->stop, true);
	if (mailbox_stop(&w->box, END_NS) == 0)
		watch_free(w);
}

static bool watch_is(const struct fleet_watch *w, const struct fleet_server *server,
		     const char *job)
{
	return strcmp(w->server.url, server->url) == 0 &&
	       strcmp(w->server.token_file, server->token_file) == 0 &&
	       strcmp(w->server.ca_file, server->ca_file) == 0 &&
	       strcmp(w->job, job ? job : "") == 0;
}

int fleet_watch_apply(struct fleet_watch **w, const struct config *c, const struct clock *clock)
{
	struct fleet_server server = { .url = "" };

	snprintf(server.url, sizeof(server.url), "%s",
		 c->fleet_prometheus ? c->fleet_prometheus : "");
	snprintf(server.token_file, sizeof(server.token_file), "%s",
		 c->fleet_token_file ? c->fleet_token_file : "");
	snprintf(server.ca_file, sizeof(server.ca_file), "%s",
		 c->fleet_ca_file ? c->fleet_ca_file : "");
	if (*w && watch_is(*w, &server, c->fleet_job))
		return 0;
	fleet_watch_free(*w);
	*w = NULL;
	return *server.url ? fleet_watch_new(&server, c->fleet_job, clock, w) : 0;
}

const struct fleet_source *fleet_watch_source(struct fleet_watch *w)
{
	return &w->source;
}

void fleet_watch_tick(struct fleet_watch *w)
{
	bool asking;

	if (!w->asked_ns || clock_mono_ns(w->clock) - w->look_ns < KEEP_NS)
		return;
	mailbox_lock(&w->box);
	asking = w->asking;
	if (!asking)
		/* Take a result that arrived after the last request of a client. */
		watch_take(w);
	mailbox_unlock(&w->box);
	if (asking)
		return; /* The thread still writes the answer. The next tick tries again. */
	fleet_free(w->last.fleet);
	w->last = (struct fleet_state){ .fleet = NULL };
	w->asked_ns = 0;
	malloc_trim(0); /* The answers of a large fleet take megabytes. */
}
