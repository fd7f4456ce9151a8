#include "token_counter.h"

#include "token_source.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/mailbox.h"
#include "base/root.h"
#include "base/text.h"
#include "device/context.h"
#include "serve/guard_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Interval at which energy is charged to models if servers are not queried. */
#define SETTLE_NS (15 * NS_PER_S)
/* Longest pause after failures. Also the pause for a server that has no counters. */
#define RETRY_NS (300 * NS_PER_S)
#define DOCUMENT "model" /* Kind of the documents in the store, one per row. */
/* An idle server uses less than this share of a core; a server that generates tokens uses
 * more. */
#define IDLE_CORES 0.01

/* What the service remembers about a server between ticks. */
struct token_server {
	char name[MODEL_WORKER];
	struct model_list *list; /* Models of the last answer. NULL if they are unknown. */
	/* Monotonic time of the next query to the server, or of the next charge of its
	 * energy to its models. */
	uint64_t due_ns;
	uint64_t ask_ns;   /* The server is not queried before this monotonic time. */
	uint64_t count_ns; /* The counters are not read before this monotonic time. */
	uint64_t pause_ns; /* Pause after a failure. 0 if the last query succeeded. */
	bool present;      /* The server has processes on a GPU at this tick. */
	bool active;       /* One of its processes is not idle. */
	bool worked;       /* The server was active since the last reading of its counters. */
	bool fresh;        /* All its processes are younger than the service. */
	bool logged;       /* The reason why its tokens are unknown was logged. */
	struct token_process process[TOKEN_SOURCE_PROCESSES];
	unsigned processes;
};

struct token_counter {
	struct token_counter_config config;
	struct model_energy models;
	struct token_server server[MODEL_ENERGY_WORKERS];
	unsigned servers;
	unsigned turn; /* Counts the ticks. */
	struct loop_source *source;
	struct root root;
	uint64_t begin_ns;
	struct mailbox box;
	atomic_bool cancelled;
	/* The lock of the mailbox protects the query and the answer. There is one query at a
	 * time. */
	enum { TOKEN_IDLE, TOKEN_ASKED, TOKEN_ANSWERED } state;
	struct token_query query;
	struct token_answer answer;
	/* Used by the main thread only: the server of the current query. */
	char asked[MODEL_WORKER];
	bool asked_active; /* The server was active when the query began. */
};

/* Returns the time between two queries to a server, or between two charges of its energy. */
static uint64_t token_interval_ns(const struct token_counter *t)
{
	return t->config.interval_s > 0 ? (uint64_t)(t->config.interval_s * 1e9) : SETTLE_NS;
}

static void token_thread(void *arg)
{
	struct token_counter *t = arg;

	mailbox_lock(&t->box);
	while (!t->box.stop) {
		if (t->state != TOKEN_ASKED) {
			mailbox_wait(&t->box, UINT64_MAX);
			continue;
		}
		mailbox_unlock(&t->box);
		token_source_ask(&t->query, &t->root, &t->cancelled, &t->answer);
		mailbox_lock(&t->box);
		t->state = TOKEN_ANSWERED;
		mailbox_notify(&t->box);
	}
	mailbox_unlock(&t->box);
}

static void token_counter_release(void *arg)
{
	struct token_counter *t = arg;

	for (unsigned i = 0; i < t->servers; i++)
		free(t->server[i].list);
	root_close(&t->root);
	mailbox_done(&t->box);
	free(t);
}

static void row_write(struct token_counter *t, const struct model_row *r, unsigned id)
{
	char number[8];
	struct buf b;
	struct json j;

	buf_init(&b, VIEW_DOCUMENT_MAX);
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, "worker", r->worker);
	json_string(&j, "model", r->model);
	json_bool(&j, "counted", r->counted);
	for (unsigned d = 0; d < MODEL_DIRECTIONS; d++)
		json_double(&j, model_direction_name(d), r->tokens[d]);
	json_array(&j, "gpus");
	for (unsigned g = 0; g < t->models.gpus; g++) {
		if (!(r->joules[g] > 0))
			continue;
		json_object(&j, NULL);
		json_string(&j, "uuid", t->models.gpu[g]);
		json_double(&j, "joules", r->joules[g]);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	snprintf(number, sizeof(number), "%u", id);
	if (!b.err)
		store_put_document(t->config.store, DOCUMENT, number, b.p, b.len);
	buf_done(&b);
}

static void rows_save(struct token_counter *t)
{
	for (unsigned i = 0; i <= MODEL_ENERGY_ROWS; i++) {
		struct model_row *r = &t->models.row[i];

		if (r->changed)
			row_write(t, r, i);
		r->changed = false;
	}
}

static void row_read(void *arg, const char *id, const char *text)
{
	struct token_counter *t = arg;
	struct json_doc *doc = NULL;
	struct model_row *r = NULL;
	const char *worker, *model;
	char message[160];

	(void)id;
	if (json_doc_new(text, strlen(text), &doc, message, sizeof(message)) != 0)
		return;
	worker = json_doc_string(doc, "worker");
	model = json_doc_string(doc, "model");
	if (worker && model)
		r = model_energy_restore(&t->models, worker, model);
	for (unsigned d = 0; r && d < MODEL_DIRECTIONS; d++)
		r->tokens[d] = json_doc_number(doc, model_direction_name(d));
	for (size_t i = 0; r && i < json_doc_count(doc, "gpus"); i++) {
		const struct json_doc *x = json_doc_at(doc, "gpus", i);
		const char *uuid = json_doc_string(x, "uuid");
		const int gpu = uuid ? model_energy_gpu(&t->models, uuid) : -1;

		if (gpu >= 0)
			r->joules[gpu] = json_doc_number(x, "joules");
	}
	if (r) {
		r->counted = json_doc_true(doc, "counted");
		/* Store the row again, because its number may differ from the number in the
		 * store. */
		r->changed = true;
		model_energy_restored(r);
	}
	json_doc_free(doc);
}

static struct token_server *server_find(struct token_counter *t, const char *name)
{
	for (unsigned i = 0; i < t->servers; i++)
		if (strcmp(t->server[i].name, name) == 0)
			return &t->server[i];
	return NULL;
}

static const struct model_list nothing_loaded;

/* Charges the waiting energy (model_energy.h) to the models in the server's last list. Counts
 * no tokens, because the server did no work or does not answer. If there is no list: does
 * nothing if servers are queried, because a list may still come; otherwise charges the energy
 * as if no model were loaded. */
static void server_settle(struct token_counter *t, struct token_server *s, uint64_t now_ns)
{
	struct model_worker *w = model_energy_worker(&t->models, s->name);

	if (!w || (!s->list && t->config.interval_s > 0))
		return;
	if (!s->list) {
		model_energy_settle(&t->models, w, &nothing_loaded, now_ns);
		return;
	}
	for (unsigned i = 0; i < s->list->count; i++)
		s->list->of[i].tokens[MODEL_PROMPT] = s->list->of[i].tokens[MODEL_GENERATED] =
			NAN;
	model_energy_settle(&t->models, w, s->list, now_ns);
}

/* Charges the waiting energy of a server that ended or is no longer configured. Such a server
 * has no loaded models, and its counters will begin with 0 at its next start. */
static void server_settle_gone(struct token_counter *t, struct token_server *s, uint64_t now_ns)
{
	struct model_worker *w = model_energy_worker(&t->models, s->name);

	server_settle(t, s, now_ns);
	if (w && (s->list || w->pendings))
		model_energy_settle(&t->models, w, &nothing_loaded, now_ns);
	free(s->list);
	s->list = NULL;
	s->due_ns = s->ask_ns = s->count_ns = s->pause_ns = 0;
	s->worked = false;
}

/* Logs once why the tokens of a server are unknown. */
static void server_log(struct token_counter *t, struct token_server *s, const char *why)
{
	char text[400];

	if (s->logged)
		return;
	s->logged = true;
	snprintf(text, sizeof(text), "worker %s: its tokens are not counted: %s", s->name, why);
	t->config.emit(
		t->config.arg,
		&(struct view_event){ .kind = "guard", .severity = "warning", .text = text });
}

/* Keeps the list of an answer, and charges the energy. */
static void server_take(struct token_counter *t, struct token_server *s, struct model_worker *w,
			struct token_answer *x, uint64_t now_ns)
{
	x->list.fresh = s->fresh;
	if (!s->list)
		s->list = malloc(sizeof(*s->list));
	model_energy_settle(&t->models, w, &x->list, now_ns);
	if (s->list)
		*s->list = x->list;
}

static void token_answered(struct token_counter *t, struct token_answer *x, uint64_t now_ns)
{
	struct token_server *s = server_find(t, t->asked);
	struct model_worker *w = s ? model_energy_worker(&t->models, s->name) : NULL;

	if (!w || !s->present)
		return; /* The server ended before it answered. */
	s->due_ns = now_ns + token_interval_ns(t);
	if (x->result == TOKEN_FAILED || x->result == TOKEN_UNREAD) {
		s->pause_ns = s->pause_ns ? s->pause_ns * 2 : token_interval_ns(t);
		s->pause_ns = s->pause_ns < RETRY_NS ? s->pause_ns : RETRY_NS;
	} else {
		s->pause_ns = 0;
		s->worked = t->asked_active;
	}
	s->ask_ns = now_ns + s->pause_ns;
	if (x->result == TOKEN_FAILED)
		server_settle(t, s, now_ns);
	else
		server_take(t, s, w, x, now_ns);
	if (x->result == TOKEN_OFF)
		s->count_ns = now_ns + RETRY_NS;
	if (x->why[0])
		snprintf(w->why, sizeof(w->why), "%s", x->why);
	else if (x->result == TOKEN_COUNTED)
		w->why[0] = '\0';
	s->logged = s->logged && x->result != TOKEN_COUNTED;
	if (x->result == TOKEN_OFF)
		server_log(t, s, x->why);
	rows_save(t);
	store_commit(t->config.store);
}

static void token_news(void *arg, int fd, uint32_t events)
{
	struct token_counter *t = arg;
	bool answered;

	(void)events;
	if (!mailbox_clear(fd))
		return;
	mailbox_lock(&t->box);
	answered = t->state == TOKEN_ANSWERED;
	mailbox_unlock(&t->box);
	if (!answered)
		return;
	/* No lock is needed, because the thread does not use the answer now. */
	token_answered(t, &t->answer, clock_mono_ns(clock_real()));
	mailbox_lock(&t->box);
	t->state = TOKEN_IDLE;
	mailbox_unlock(&t->box);
}

/* True if the process is busy. Uses the SM and CPU figures of the process if there are any.
 * Otherwise uses the utilisation of the GPU, although another process may cause it. Without any
 * of these figures, the process counts as busy. */
static bool process_works(const struct gw_process *p, const struct gw_device *d)
{
	double ratio = NAN;

	if (p->sm_absence == GW_HAVE && p->sm_ratio > 0)
		return true;
	if (p->cpu_absence == GW_HAVE)
		return p->cpu_cores >= IDLE_CORES;
	if (p->sm_absence == GW_HAVE)
		return false;
	return !d || gw_device_value(d, GW_Q_UTILIZATION_GPU, &ratio) != GW_HAVE || ratio > 0;
}

/* Returns the worker to which the guard has assigned the process, or -1 if there is none. */
static int process_worker(const struct guard_view *g, const struct gw_process *p)
{
	const struct scene *scene = NULL;
	const struct verdict *v = guard_verdicts(g->guard, &scene);

	for (unsigned i = 0; scene && i < scene->processes; i++)
		if (v[i].class == CLASS_WORKER && scene->process[i].id.pid == p->pid &&
		    scene->process[i].id.start_ticks == p->start_ticks)
			return v[i].worker;
	return -1;
}

static void server_add_process(struct token_counter *t, struct token_server *s,
			       const struct view *v, unsigned k)
{
	const struct gw_process *p = gw_process_list_get(v->processes, k);
	const struct gw_device *d = gw_snapshot_device(v->snap, p->device);
	const char *uuid = d ? gw_device_text(d, GW_T_UUID) : NULL;
	struct model_worker *w = model_energy_worker(&t->models, s->name);
	const double age_s = (double)(clock_mono_ns(clock_real()) - t->begin_ns) * 1e-9;
	const bool active = process_works(p, d);

	if (!s->present)
		s->fresh = true;
	s->present = true;
	s->active = s->active || active;
	s->worked = s->worked || active;
	s->fresh = s->fresh && p->run_seconds < age_s;
	if (s->processes < TOKEN_SOURCE_PROCESSES)
		s->process[s->processes++] = (struct token_process){ p->pid, active };
	if (w && uuid && v->process && v->process[k].absence == GW_HAVE)
		model_energy_add(&t->models, w, p->pid, uuid, v->process[k].step_joules,
				 attribute_how_name(v->process[k].how));
}

static bool is_counted(const struct policy_worker *p)
{
	return token_kind(p->kind)->known && p->url;
}

/* True if the worker is configured and its energy is charged to models. */
static bool is_configured(const struct policy *p, const char *name)
{
	const int worker = policy_find_worker(p, name);

	return worker >= 0 && is_counted(&p->worker[worker]);
}

/* Returns the server of a configured worker. A new server may take the place of a worker that
 * the configuration no longer names. */
static struct token_server *server_of(struct token_counter *t, const struct policy *policy,
				      const struct policy_worker *p)
{
	struct token_server *s = server_find(t, p->name);
	struct model_worker *w;

	if (!is_counted(p))
		return NULL;
	w = model_energy_worker(&t->models, p->name);
	if (!w)
		return NULL;
	w->present = true;
	if (s)
		return s;
	if (!token_kind(p->kind)->counter[MODEL_GENERATED])
		snprintf(w->why, sizeof(w->why), "%s", token_kind(p->kind)->text);
	for (unsigned i = 0; i < t->servers && !s; i++)
		if (!is_configured(policy, t->server[i].name) && !t->server[i].list)
			s = &t->server[i];
	if (t->servers < MODEL_ENERGY_WORKERS)
		s = &t->server[t->servers++];
	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s", p->name);
	return s;
}

/* True if the server may be queried: the guard sees it on the GPU and is not moving it. In a
 * dry run the guard moves no worker, even if the state says so. */
static bool server_may_ask(const struct guard *g, unsigned worker)
{
	struct guard_status s;

	if (guard_status(g, worker, &s) != 0 || s.resident_bytes == 0)
		return false;
	return s.dry != DRY_NOT || s.state == STATE_ACTIVE || s.state == STATE_SUSPECT;
}

/* Passes a query to the thread. Returns false if the thread is busy. */
static bool server_ask(struct token_counter *t, struct token_server *s,
		       const struct policy_worker *p, bool count)
{
	struct token_query *q = &t->query;
	bool idle;

	mailbox_lock(&t->box);
	idle = t->state == TOKEN_IDLE &&
	       (t->box.started ||
		mailbox_start(&t->box, 0, token_thread, token_counter_release, t) == 0);
	mailbox_unlock(&t->box);
	if (!idle)
		return false;
	memset(q, 0, sizeof(*q));
	q->kind = p->kind;
	q->count = count;
	text_fit(q->url, sizeof(q->url), "%s", p->url);
	text_fit(q->token_file, sizeof(q->token_file), "%s",
		 p->token_file ? p->token_file : "");
	memcpy(q->process, s->process, sizeof(q->process));
	q->processes = s->processes;
	text_fit(t->asked, sizeof(t->asked), "%s", s->name);
	t->asked_active = s->active;
	mailbox_lock(&t->box);
	t->state = TOKEN_ASKED;
	mailbox_unlock(&t->box);
	mailbox_wake(&t->box);
	return true;
}

static void server_tick(struct token_counter *t, struct token_server *s, const struct view *v,
			unsigned worker, uint64_t now_ns)
{
	const struct policy_worker *p = &v->guard->policy->worker[worker];
	const bool counts = token_kind(p->kind)->counter[MODEL_GENERATED] != NULL;
	const bool wanted = t->config.interval_s > 0 && (s->worked || !s->list);

	if (now_ns < s->due_ns)
		return;
	if (wanted && now_ns >= s->ask_ns && server_may_ask(v->guard->guard, worker)) {
		if (server_ask(t, s, p, counts && s->worked && now_ns >= s->count_ns))
			s->due_ns = now_ns + token_interval_ns(t);
		return;
	}
	server_settle(t, s, now_ns);
	s->due_ns = now_ns + token_interval_ns(t);
}

/* Handles a server without a process on a GPU: the guard moved the server, the server has
 * loaded nothing, or it ended. */
static void server_tick_away(struct token_counter *t, struct token_server *s,
			     const struct guard_view *g, int worker, uint64_t now_ns)
{
	const struct model_worker *w = model_energy_worker(&t->models, s->name);
	struct guard_status status;

	s->worked = false;
	if (worker < 0 || (guard_status(g->guard, (unsigned)worker, &status) == 0 &&
			   status.state == STATE_ABSENT))
		server_settle_gone(t, s, now_ns);
	else if (w && w->pendings)
		server_settle(t, s, now_ns);
}

void token_counter_tick(struct token_counter *t, struct view *v)
{
	const struct policy *p = v->guard ? v->guard->policy : NULL;
	struct token_server *of[POLICY_WORKERS] = { NULL };
	const uint64_t now = clock_mono_ns(clock_real());

	v->models = &t->models;
	if (!p || !v->processes)
		return;
	for (unsigned i = 0; i < t->models.workers; i++)
		t->models.worker[i].present = is_configured(p, t->models.worker[i].name);
	for (unsigned i = 0; i < t->servers; i++) {
		t->server[i].present = t->server[i].active = false;
		t->server[i].processes = 0;
	}
	for (unsigned i = 0; i < p->workers; i++)
		of[i] = server_of(t, p, &p->worker[i]);
	for (unsigned k = 0; k < gw_process_list_count(v->processes); k++) {
		const int worker =
			process_worker(v->guard, gw_process_list_get(v->processes, k));

		if (worker >= 0 && of[worker])
			server_add_process(t, of[worker], v, k);
	}
	/* Each tick begins with another server, because only one can be queried at a time. */
	t->turn++;
	for (unsigned i = 0; i < t->servers; i++) {
		struct token_server *server = &t->server[(t->turn + i) % t->servers];
		const int worker = policy_find_worker(p, server->name);

		if (server->present)
			server_tick(t, server, v, (unsigned)worker, now);
		else
			server_tick_away(t, server, v->guard, worker, now);
	}
	rows_save(t);
}

void token_counter_set_interval(struct token_counter *t, double interval_s)
{
	t->config.interval_s = interval_s;
}

int token_counter_new(const struct token_counter_config *config, struct token_counter **ret)
{
	struct token_counter *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -GW_E_NOMEM;
	t->config = *config;
	t->begin_ns = clock_mono_ns(clock_real());
	err = mailbox_init(&t->box, MAILBOX_NEWS_FD);
	if (root_open(&t->root, NULL) != 0)
		err = -GW_E_IO;
	if (!err)
		err = loop_add_fd(config->loop, t->box.news_fd, EPOLLIN, token_news, t,
				  &t->source);
	if (err) {
		loop_remove(t->source);
		token_counter_release(t);
		return err;
	}
	store_each_document(config->store, DOCUMENT, MODEL_ENERGY_ROWS + 1, row_read, t);
	*ret = t;
	return 0;
}

void token_counter_free(struct token_counter *t, uint64_t timeout_ns)
{
	if (!t)
		return;
	for (unsigned i = 0; i < t->servers; i++)
		server_settle(t, &t->server[i], clock_mono_ns(clock_real()));
	rows_save(t);
	loop_remove(t->source);
	t->source = NULL;
	atomic_store(&t->cancelled, true);
	if (mailbox_stop(&t->box, timeout_ns) == 0)
		/* If the thread has not ended, the thread frees t when its request ends. */
		token_counter_release(t);
}
