#include "token_source.h"

#include "base/array.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "base/prometheus_text.h"
#include "base/root.h"
#include "guard/worker/common.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A running request to a server. */
struct token_ask {
	struct worker_call call;
	struct policy_worker worker;
	const struct token_query *q;
	const struct root *root;
	struct token_answer *ret;
};

static const struct token_kind token_kinds[WORKER_KINDS] = {
#define T(symbol, list, prompt, generated, text) \
	[WORKER_##symbol] = { true, { prompt, generated }, text },
#include "token_source.def"
};

const struct token_kind *token_kind(enum policy_kind kind)
{
	return &token_kinds[kind];
}

/* Finds the model in the list, or adds it. Returns NULL if the list is full or the name is
 * unusable. */
static struct model_report *list_model(struct model_list *l, const char *name)
{
	struct model_report *x;

	if (!name || !*name || strlen(name) >= MODEL_NAME)
		return NULL;
	for (unsigned i = 0; i < l->count; i++)
		if (strcmp(l->of[i].model, name) == 0)
			return &l->of[i];
	if (l->count == COUNT(l->of))
		return NULL;
	x = &l->of[l->count++];
	*x = (struct model_report){ .tokens = { NAN, NAN } };
	memcpy(x->model, name, strlen(name) + 1);
	return x;
}

/* Returns the direction (prompt or generated) of the tokens that a line of /metrics counts, or
 * -1 if the line counts no tokens. For a router, compares the line with the counters of all
 * kinds, because the servers behind a router can be of any kind. */
static int line_direction(enum policy_kind kind, const struct prometheus_line *l)
{
	const bool any = token_kinds[kind].counter[0] && !*token_kinds[kind].counter[0];

	for (unsigned k = 0; k < WORKER_KINDS; k++)
		for (unsigned d = 0; (any || k == kind) && d < MODEL_DIRECTIONS; d++)
			if (token_kinds[k].counter[d] && *token_kinds[k].counter[d] &&
			    prometheus_line_is(l, token_kinds[k].counter[d]))
				return (int)d;
	return -1;
}

/* Adds the counters in the text of /metrics to the models in the list. If `only` is not NULL,
 * adds all of them to the model `only`; otherwise adds each to the model in its label
 * model_name. Returns the number of lines that were counted. */
static unsigned token_source_read(enum policy_kind kind, const char *text, const char *only,
				  struct model_list *l)
{
	struct prometheus_line line;
	char name[MODEL_NAME];
	unsigned found = 0;

	while (prometheus_text_next(&text, &line)) {
		const int d = line_direction(kind, &line);
		struct model_report *x;

		if (d < 0 || !line.valid || !(line.value >= 0) || isinf(line.value))
			continue;
		if (!only && !prometheus_line_label(&line, "model_name", name, sizeof(name)))
			continue;
		x = list_model(l, only ? only : name);
		if (!x)
			continue;
		/* A server with several engines has one series per engine. */
		x->tokens[d] = (isnan(x->tokens[d]) ? 0 : x->tokens[d]) + line.value;
		found++;
	}
	return found;
}

/* True if the arguments of the process have this option with this value. */
static bool process_has_option(const struct root *root, int64_t pid, const char *option,
			       const char *value)
{
	char command[8192], path[64];
	long n;

	root_path(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	n = root_read(root, path, command, sizeof(command));
	for (long at = 0; at < n;) {
		const char *arg = command + at;

		at += (long)strlen(arg) + 1;
		if (strcmp(arg, option) == 0 && at < n && strcmp(command + at, value) == 0)
			return true;
	}
	return false;
}

/* Returns the process of a model, which has this option with this value in its command line.
 * Returns NULL if there is none. */
static const struct token_process *find_process(const struct token_ask *a, const char *option,
						const char *value)
{
	for (unsigned i = 0; i < a->q->processes; i++)
		if (process_has_option(a->root, a->q->process[i].pid, option, value))
			return &a->q->process[i];
	return NULL;
}

static void answer_why(struct token_ask *a, enum token_result result, const char *advice)
{
	a->ret->result = result;
	snprintf(a->ret->why, sizeof(a->ret->why), "%.150s%s%.80s", a->call.message,
		 *advice ? "; " : "", advice);
}

/* Reads the counters of one server. Returns false if they cannot be read. */
static bool read_counters(struct token_ask *a, const char *path, const char *only)
{
	const char *advice = token_kinds[a->q->kind].text, *text;
	size_t n;
	int rc = worker_get(&a->call, path);

	if (rc == -GW_E_PERM) {
		answer_why(a, TOKEN_OFF, ""); /* The message names token_file. */
	} else if (rc == -GW_E_NOSUPPORT) {
		answer_why(a, TOKEN_OFF, advice);
	} else if (rc) {
		answer_why(a, TOKEN_UNREAD, "");
	} else {
		text = worker_http_body(a->call.http, &n);
		if (token_source_read(a->q->kind, text ? text : "", only, &a->ret->list))
			return true;
		worker_fail(&a->call, 0, "GET %.100s%.*s has no token counters",
			    worker_http_base(a->call.http), (int)strcspn(path, "?"), path);
		answer_why(a, TOKEN_OFF, advice);
	}
	return false;
}

/* True if the llama.cpp server sleeps. Older versions wake up when their counters are read. */
static bool server_sleeps(struct token_ask *a)
{
	struct json_doc *r;
	bool sleeps;

	if (worker_get_json(&a->call, "/props", &r) != 0)
		return false;
	sleeps = json_doc_true(r, "is_sleeping");
	json_doc_free(r);
	return sleeps;
}

/* Requests the list of models. Returns NULL if there is no list. */
static struct json_doc *get_list(struct token_ask *a)
{
	struct json_doc *r = NULL;

	if (model_list_get(&a->call, &r) != 0)
		answer_why(a, TOKEN_FAILED, "");
	return r;
}

static void read_model_counters(struct token_ask *a, const char *model)
{
	char path[MODEL_NAME * 3 + 64];
	struct buf b;

	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, "/metrics?autoload=false&model=");
	url_escape(&b, model);
	read_counters(a, path, model);
}

/* Lists the models of a llama.cpp server. If the server is a router, each loaded model has its
 * own process with --alias NAME. */
static void list_llamacpp(struct token_ask *a)
{
	struct json_doc *r = get_list(a);
	struct listed_model m;

	for (size_t i = 0; model_list_at(WORKER_LLAMACPP, r, i, &m); i++) {
		const struct token_process *p;
		struct model_report *x =
			m.state < MODEL_LOADING ? NULL : list_model(&a->ret->list, m.name);

		if (!x)
			continue;
		if (m.state == MODEL_SINGLE) {
			if (a->q->count && !server_sleeps(a))
				read_counters(a, "/metrics", x->model);
			break;
		}
		p = find_process(a, "--alias", m.name);
		x->pid = p ? p->pid : 0;
		if (a->q->count && m.state == MODEL_LOADED && (!p || p->active))
			read_model_counters(a, x->model);
	}
	json_doc_free(r);
}

/* Reads the counters directly from a server behind llama-swap, because a request through
 * llama-swap would load a model that was just unloaded. Only servers of this machine are
 * asked. */
static void read_upstream(struct token_ask *a, const char *proxy, const char *model)
{
	static const char *const local[] = { "http://localhost:", "http://127.0.0.1:",
					     "http://[::1]:" };
	struct policy_worker upstream = a->worker;
	struct worker_http *http = a->call.http;
	bool own = false;

	for (unsigned i = 0; proxy && i < COUNT(local); i++)
		own = own || strncmp(proxy, local[i], strlen(local[i])) == 0;
	if (!own) {
		worker_fail(&a->call, 0,
			    "llama-swap does not report an address of %.80s on "
			    "this machine",
			    model);
		answer_why(a, TOKEN_OFF, "");
		return;
	}
	upstream.url = proxy;
	upstream.token_file = NULL;
	a->call.worker = &upstream;
	if (worker_http_new(&upstream, a->call.deadline_ns, &a->call.http) == 0) {
		worker_http_cancel(a->call.http, a->call.cancelled);
		if (!server_sleeps(a))
			read_counters(a, "/metrics", model);
		worker_http_free(a->call.http);
	}
	a->call.http = http;
	a->call.worker = &a->worker;
}

static void list_llamaswap(struct token_ask *a)
{
	struct json_doc *r = get_list(a);
	struct listed_model m;

	for (size_t i = 0; model_list_at(WORKER_LLAMASWAP, r, i, &m); i++) {
		const char *proxy = json_doc_string(m.entry, "proxy");
		const char *port = proxy ? strrchr(proxy, ':') : NULL;
		const struct token_process *p;
		struct model_report *x = list_model(&a->ret->list, m.name);

		if (!x)
			continue;
		p = port ? find_process(a, "--port", port + 1) : NULL;
		x->pid = p ? p->pid : 0;
		if (a->q->count && m.state == MODEL_LOADED && (!p || p->active))
			read_upstream(a, proxy, x->model);
	}
	json_doc_free(r);
}

/* vLLM and SGLang have one model, and adapters for this model. The counters name the model; in
 * the list, the model is the first entry. */
static void list_openai(struct token_ask *a)
{
	struct listed_model m;
	struct json_doc *r;

	if (a->q->count && read_counters(a, "/metrics", NULL))
		return;
	if (a->ret->result == TOKEN_UNREAD) {
		a->ret->result = TOKEN_FAILED;
		return;
	}
	r = get_list(a);
	if (model_list_at(a->q->kind, r, 0, &m))
		list_model(&a->ret->list, m.name);
	json_doc_free(r);
}

static void list_names(struct token_ask *a)
{
	struct json_doc *r = get_list(a);
	struct listed_model m;

	for (size_t i = 0; model_list_at(a->q->kind, r, i, &m); i++)
		if (m.state >= MODEL_LOADING)
			list_model(&a->ret->list, m.name);
	json_doc_free(r);
}

static void list_nothing(struct token_ask *a)
{
	(void)a;
}

void token_source_ask(const struct token_query *q, const struct root *root,
		      const atomic_bool *cancelled, struct token_answer *ret)
{
	static void (*const lists[WORKER_KINDS])(struct token_ask * a) = {
#define T(symbol, list, prompt, generated, text) [WORKER_##symbol] = list_##list,
#include "token_source.def"
	};
	struct token_ask a = { .q = q, .root = root, .ret = ret };
	char message[240] = "";

	memset(ret, 0, sizeof(*ret));
	policy_worker_init(&a.worker);
	a.worker.kind = q->kind;
	a.worker.url = q->url;
	a.worker.token_file = q->token_file[0] ? q->token_file : NULL;
	a.call = (struct worker_call){ .worker = &a.worker,
				       .deadline_ns =
					       clock_mono_ns(clock_real()) + TOKEN_SOURCE_NS,
				       .message = message,
				       .message_size = sizeof(message),
				       .cancelled = cancelled };
	ret->result = q->count ? TOKEN_COUNTED : TOKEN_LISTED;
	if (worker_http_new(&a.worker, a.call.deadline_ns, &a.call.http) != 0) {
		worker_fail(&a.call, 0, "out of memory");
		answer_why(&a, TOKEN_FAILED, "");
		return;
	}
	worker_http_cancel(a.call.http, cancelled);
	lists[q->kind](&a);
	worker_http_free(a.call.http);
}
