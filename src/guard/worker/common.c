#include "guard/worker/common.h"

#include "guard/classify.h"
#include "guard/pid_lookup.h"
#include "guard/process_cache.h"

#include "base/clock.h"
#include "base/json.h"
#include "device/proc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_NS (250 * NS_PER_MS)

int worker_fail(const struct worker_call *c, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->message, c->message_size, fmt, ap);
	va_end(ap);
	return error;
}

static int error_of_status(int status)
{
	switch (status) {
	case 401:
	case 403: return -GW_E_PERM;
	case 404:
	case 405:
	case 501: return -GW_E_NOSUPPORT;
	case 409:
	case 423:
	case 429:
	case 503: return -GW_E_STATE;
	default: return status >= 200 && status < 300 ? 0 : -GW_E_IO;
	}
}

static const char *hint_of_status(int status)
{
	if (status == 401 || status == 403)
		return "; check the worker's token_file";
	return status >= 300 && status < 400 ? "; redirects are not followed" : "";
}

static int worker_request(struct worker_call *c, const char *method, const char *path,
			  const char *body)
{
	const char *answer;
	char text[120];
	size_t n;
	int status,
		rc = worker_http_do(c->http, method, path, body, c->message, c->message_size);

	if (rc)
		return rc;
	status = worker_http_status(c->http);
	rc = error_of_status(status);
	if (rc == 0)
		return 0;
	answer = worker_http_body(c->http, &n);
	json_doc_error_text(answer, n, text, sizeof(text));
	worker_http_scrub(c->http, text);
	return worker_fail(c, rc, "%s %.100s%.*s answers %d%s%s%s", method,
			   worker_http_base(c->http), (int)strcspn(path, "?"), path, status,
			   text[0] ? ": " : "", text, hint_of_status(status));
}

int worker_get(struct worker_call *c, const char *path)
{
	return worker_request(c, "GET", path, NULL);
}

int worker_post(struct worker_call *c, const char *path, const char *body)
{
	return worker_request(c, "POST", path, body);
}

int worker_get_json(struct worker_call *c, const char *path, struct json_doc **ret)
{
	const char *text;
	char why[160];
	size_t n;
	int rc = worker_get(c, path);

	if (rc)
		return rc;
	text = worker_http_body(c->http, &n);
	rc = json_doc_new(text, n, ret, why, sizeof(why));
	if (rc)
		worker_fail(c, rc, "GET %.100s%.*s: %s", worker_http_base(c->http),
			    (int)strcspn(path, "?"), path, why);
	return rc == -GW_E_PARSE ? -GW_E_IO : rc;
}

int worker_busy(struct worker_call *c, const struct worker_ops *ops, bool *ret_busy)
{
	struct json_doc *r;
	int rc = worker_get_json(c, ops->busy_path, &r);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy = ops->busy(r);
	json_doc_free(r);
	return 0;
}

int worker_post_field(struct worker_call *c, const char *path, const char *key,
		      const char *value)
{
	char text[WORKER_MODEL * JSON_ESCAPE_MAX + 128];
	struct buf b;
	struct json j;

	buf_init_fixed(&b, text, sizeof(text));
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, key, value);
	json_object_end(&j);
	return worker_post(c, path, text);
}

int worker_post_all(struct worker_call *c, const struct worker_post *posts)
{
	int rc = 0;

	for (; posts->path && !rc; posts++) {
		rc = worker_post(c, posts->path, posts->body);
		if (rc == -GW_E_NOSUPPORT && posts->optional)
			rc = 0;
	}
	if (!rc)
		c->message[0] = '\0';
	return rc;
}

bool worker_said(const struct worker_call *c, const char *words)
{
	size_t n;
	const char *text = worker_http_body(c->http, &n);

	return worker_http_status(c->http) >= 400 && n && strcasestr(text, words);
}

bool worker_pause(const struct worker_call *c)
{
	struct timespec t = clock_timespec(PAUSE_NS);

	if (worker_is_cancelled(c) || clock_mono_ns(clock_real()) + PAUSE_NS >= c->deadline_ns)
		return false;
	nanosleep(&t, NULL);
	return true;
}

bool worker_noted(const struct worker_call *c, const char *key, unsigned i, char *out,
		  size_t size)
{
	size_t n = strlen(key);

	for (const char *line = c->notes; *line; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n");

		if (len > n && strncmp(line, key, n) == 0 && line[n] == ' ' && i-- == 0) {
			snprintf(out, size, "%.*s", (int)(len - n - 1), line + n + 1);
			return true;
		}
		if (!line[len])
			break;
	}
	return false;
}

bool worker_is_noted(const struct worker_call *c, const char *key, const char *value)
{
	char have[WORKER_MODEL];

	for (unsigned i = 0; worker_noted(c, key, i, have, sizeof(have)); i++)
		if (strcmp(have, value) == 0)
			return true;
	return false;
}

bool worker_note(struct worker_call *c, const char *key, const char *value)
{
	/* after long notes, short ones such as "unrecorded 1" must still fit */
	const size_t spare = strlen(value) > 1 ? 32 : 0;
	size_t used = strlen(c->notes), n = strlen(key) + strlen(value) + 2;

	if (worker_is_noted(c, key, value))
		return true;
	if (strlen(value) >= WORKER_MODEL || strpbrk(value, "\r\n") ||
	    used + n + spare >= c->notes_size)
		return false;
	snprintf(c->notes + used, c->notes_size - used, "%s %s\n", key, value);
	return true;
}

void worker_note_model(struct worker_call *c, const char *name)
{
	if (!worker_note(c, "model", name))
		worker_note(c, "unrecorded", "1");
}

void worker_forget(struct worker_call *c, const char *key)
{
	size_t n = strlen(key);
	char *line = c->notes;

	while (*line) {
		char *next = line + strcspn(line, "\n");

		next += *next == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			memmove(line, next, strlen(next) + 1);
		else
			line = next;
	}
}

void worker_note_process(struct worker_call *c, struct proc_id id)
{
	char text[64];

	snprintf(text, sizeof(text), "%" PRId64 " %" PRIu64, id.pid, id.start_ticks);
	worker_note(c, "process", text);
}

unsigned worker_noted_processes(const struct worker_call *c, struct proc_id *ret, unsigned most)
{
	unsigned n = 0;
	char text[64];

	for (unsigned i = 0; n < most && worker_noted(c, "process", i, text, sizeof(text)); i++)
		n += sscanf(text, "%" SCNd64 " %" SCNu64, &ret[n].pid, &ret[n].start_ticks) ==
		     2;
	return n;
}

void worker_note_asked(struct worker_call *c)
{
	worker_note(c, "asked", "1");
}

/* What a resume reports about models that worker_note_model() could not record. */
static const char *unrecorded_text(const struct worker_call *c)
{
	return worker_is_noted(c, "unrecorded", "1")
		       ? "; the names of more models did not fit into the record: these models "
			 "load when a client requests them"
		       : "";
}

int worker_none_noted(const struct worker_call *c)
{
	if (*unrecorded_text(c))
		return worker_ok(c, "no model loaded again%s", unrecorded_text(c));
	if (!c->order->bytes || worker_is_noted(c, "asked", "1"))
		return worker_ok(
			c,
			"no model was loaded when the worker was evicted; to load one at each "
			"resume, set the key model");
	return worker_fail(c, -GW_E_NOSUPPORT,
			   "the record of the loaded model is lost: load the model by hand, "
			   "and set the key model so that it is loaded the next time");
}

int worker_load_noted(struct worker_call *c,
		      int (*load)(struct worker_call *c, const char *model))
{
	char model[WORKER_MODEL], first[200] = "", failed[100] = "";
	unsigned i, loaded = 0, loading = 0;
	size_t n = 0;
	int rc, error = 0;

	if (c->worker->resume == RESUME_LAZY)
		return 0;
	if (!worker_noted(c, "model", 0, model, sizeof(model)) && c->worker->model)
		worker_note(c, "model", c->worker->model);
	if (!worker_noted(c, "model", 0, model, sizeof(model)))
		return worker_none_noted(c);
	for (i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++) {
		rc = load(c, model);
		if (worker_is_cancelled(c)) /* the notes stay for the next resume */
			return worker_fail(c, -GW_E_STATE, "the worker must leave again");
		loaded += rc == 0;
		loading += rc > 0;
		if (rc >= 0)
			continue;
		n += (size_t)snprintf(failed + n, sizeof(failed) - n, "%s%.40s",
				      n ? ", " : "; not loaded: ", model);
		n = n < sizeof(failed) ? n : sizeof(failed) - 1;
		if (!error && !worker_said(c, "not found")) {
			error = rc;
			snprintf(first, sizeof(first), "%s", c->message);
		}
	}
	if (error && !loaded && !loading)
		return worker_fail(c, error, "%s", first);
	c->listed = !loading && !*unrecorded_text(c);
	return worker_ok(c, "%u of %u models loaded again%s%s%s", loaded, i, failed,
			 loading ? "; the others are loading" : "", unrecorded_text(c));
}

/* True if the process fits all parts of the worker's match apart from pidfile and port. True
 * also if the match has only a pidfile or a port. */
static bool rest_fits(const struct worker_call *c, const struct guard_target *t)
{
	struct scene_process p;
	struct policy *policy;
	struct classifier *k = NULL;
	bool fits = false;

	if (process_cache_read(c->root, t->id.pid, &p) != 0 || p.id.pid != t->id.pid ||
	    p.id.start_ticks != t->id.start_ticks)
		return false;
	policy = calloc(1, sizeof(*policy));
	if (policy) {
		policy->worker[0] = *c->worker;
		policy->workers = 1;
		fits = classifier_new(policy, &k) == 0 &&
		       classifier_fits(k, NULL, 0, &p, false);
	}
	classifier_free(k);
	free(policy);
	return fits;
}

bool worker_process_matches(const struct worker_call *c, const struct guard_target *t)
{
	return policy_match_searches(&c->worker->match) && rest_fits(c, t);
}

static bool is_same_program(const struct worker_call *c, const struct guard_target *t)
{
	uint64_t print;

	return t->print && process_cache_fingerprint(c->root, t->id.pid, &print) == 0 &&
	       print == t->print;
}

/* True if the pidfile is trusted, and names the process of t or no living process. While a
 * pidfile is being written it is empty; then the process still belongs to the worker if it runs
 * the same program as before. */
static bool pidfile_allows(const struct worker_call *c, const struct guard_target *t)
{
	struct pidfile file;
	uint64_t start;

	if (pidfile_read(c->root, c->worker->match.pidfile, &file) == 0) {
		if (file.pid == t->id.pid)
			return true;
		if (proc_start_ticks(c->root, file.pid, &start) == 0 &&
		    proc_lives(c->root, file.pid, start) != 0)
			return false;
	}
	return !file.fault && is_same_program(c, t);
}

bool worker_process_belongs(const struct worker_call *c, const struct guard_target *t)
{
	const struct policy_match *m = &c->worker->match;

	if (!t->itself)
		return true;
	if (m->pidfile && !pidfile_allows(c, t))
		return false;
	if (!m->pidfile && m->port && !port_owner_is(c->root, m->port, t->id.pid) &&
	    !is_same_program(c, t))
		return false;
	return rest_fits(c, t);
}

/* Kind "callback": the guard calls functions of its own program, which free GPU memory and
 * allocate it again. */

static int callback_result(const struct worker_call *c, int rc, const char *what)
{
	if (rc == -GW_E_STATE)
		return worker_fail(
			c, rc,
			"the %s callback of the program is busy; the guard calls it again",
			what);
	if (rc)
		return worker_fail(c, rc > 0 ? -GW_E_IO : rc,
				   "the %s callback of the program failed (%d)", what, rc);
	return 0;
}

static int callback_evict(struct worker_call *c)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->evict)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no evict callback is registered for this worker");
	return callback_result(c, b->evict(b->ctx, c->order->bytes, c->deadline_ns), "evict");
}

static int callback_resume(struct worker_call *c)
{
	const struct worker_callbacks *b = c->callbacks;

	if (!b || !b->resume)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no resume callback is registered for this worker");
	return callback_result(c, b->resume(b->ctx, c->deadline_ns), "resume");
}

const struct worker_ops worker_callback = { .evict = callback_evict,
					    .resume = callback_resume };

/* The set for a program that guards itself: only the kind "callback". */

static const struct worker_ops *callback_of(enum policy_kind kind)
{
	(void)kind;
	return &worker_callback;
}

static const struct worker_ops *callback_stopper(const struct policy_worker *w)
{
	(void)w;
	return NULL;
}

const struct worker_set worker_own = { .of = callback_of, .stopper = callback_stopper };

/* The set of every kind, for the service. */

static const struct worker_ops *const adapters[WORKER_KINDS] = {
#define K(symbol, name, url, level, stop_s, traits, help) &worker_##name,
#include "guard/kind.def"
};

static const struct worker_ops *worker_adapter(enum policy_kind kind)
{
	return adapters[kind];
}

/* Returns the adapter that can stop the worker; NULL: none. */
static const struct worker_ops *worker_stopper(const struct policy_worker *w)
{
	if (policy_kind_is(w->kind, KIND_UNIT | KIND_CONTAINER))
		return adapters[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}

static int worker_begin(struct worker_call *c)
{
	int rc = worker_http_new(c->worker, c->deadline_ns, &c->http);

	if (!rc)
		worker_http_cancel(c->http, c->cancelled);
	return rc;
}

static void worker_started(struct worker_call *c)
{
	worker_http_socket(c->http, NULL);
}

static void worker_end(struct worker_call *c)
{
	worker_http_free(c->http);
}

const struct worker_set worker_all = {
	.of = worker_adapter,
	.stopper = worker_stopper,
	.kill = worker_kill,
	.begin = worker_begin,
	.started = worker_started,
	.end = worker_end,
	.get = worker_get,
	.post_all = worker_post_all,
	.busy = worker_busy,
	.load_noted = worker_load_noted,
};
