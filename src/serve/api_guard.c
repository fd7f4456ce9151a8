/* Replies about the guard: its state, requests for a worker (evict, resume, hold, release),
 * operations and games. An operation on a worker starts at once and finishes later, so the
 * reply to the request has the status 202. api_guard_explain.c explains the state. */
#include "guard_doc.h"

#include "json_request.h"

#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECISIONS 20

static void write_counts(struct json *j, const struct guard_view *g)
{
	static const uint64_t none[COUNTERS_CELLS];
	const uint64_t *all = g->tally ? g->tally->all : none;
	const struct guard_view_counts *c = &g->counts;

	json_object(j, "counts");
	json_uint(j, "looks_total", c->scenes);
	json_uint(j, "looks_triggered_total", c->triggered);
	json_uint(j, "evictions_total", counters_evictions(all));
	json_uint(j, "resumes_total", all[COUNTERS_RESUMES]);
	json_uint(j, "would_evict_total", all[COUNTERS_WOULD_EVICT]);
	json_uint(j, "stuck", c->stuck);
	json_double(j, "freed_bytes_total", (double)all[COUNTERS_FREED_BYTES]);
	json_double(j, "decide_seconds_last", c->scenes ? c->decide_seconds_last : (double)NAN);
	json_double(j, "decide_seconds_max", c->scenes ? c->decide_seconds_max : (double)NAN);
	json_double(j, "free_seconds_last",
		    c->free_seconds_last > 0 ? c->free_seconds_last : (double)NAN);
	json_double(j, "free_seconds_max",
		    c->free_seconds_max > 0 ? c->free_seconds_max : (double)NAN);
	json_double(j, "idle_saved_joules", c->idle_saved_joules);
	json_double(j, "idle_spent_joules", c->idle_spent_joules);
	json_object_end(j);
}

static void write_rooms(struct json *j, const struct guard_view *g, struct guard_moment now)
{
	struct guard_reservation room;

	json_array(j, "reservations");
	for (unsigned i = 0; guard_reservation_at(g->guard, i, &room); i++) {
		if (!room.id)
			continue;
		json_object(j, NULL);
		guard_doc_room(j, &room, now);
		json_object_end(j);
	}
	json_array_end(j);
}

/* Writes the latest `limit` decisions about this worker, oldest first. With worker -1, writes
 * those about all workers. */
static void write_decisions(struct json *j, const struct guard_view *g, int worker,
			    uint64_t limit, struct guard_moment now)
{
	unsigned from = g->decisions;
	uint64_t n = 0;

	for (; from > 0 && n < limit; from--) {
		const struct guard_view_decision *d =
			&g->ring[(g->first + from - 1) % GUARD_VIEW_DECISIONS];

		n += worker < 0 || d->decision.worker == (unsigned)worker;
	}
	json_array(j, "decisions");
	for (unsigned i = from; i < g->decisions; i++) {
		const struct guard_view_decision *d =
			&g->ring[(g->first + i) % GUARD_VIEW_DECISIONS];

		if (worker < 0 || d->decision.worker == (unsigned)worker)
			guard_doc_decision(j, g, d, now);
	}
	json_array_end(j);
}

static void write_workers(struct json *j, const struct api *a, struct guard_moment now)
{
	const struct guard_view *g = a->view.guard;

	json_array(j, "workers");
	for (unsigned i = 0; i < g->policy->workers; i++) {
		json_object(j, NULL);
		guard_doc_worker(j, a, i, now);
		json_bool(j, "simulated", guard_view_simulated(g));
		json_object_end(j);
	}
	json_array_end(j);
}

void api_guard(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	struct guard_moment now = guard_moment(a);
	uint64_t limit;
	struct json j;

	if (!g || !api_number(q, r, "limit", DECISIONS, GUARD_VIEW_DECISIONS, &limit))
		return;
	api_begin(&j, a, r);
	guard_doc_mode(&j, g);
	json_bool(&j, "read_only", q->read_only);
	json_string(&j, "journal", guard_journal_text(g->journal));
	guard_doc_time(&j, "looked", g->scene ? g->scene->mono_ns : 0, now);
	write_workers(&j, a, now);
	write_rooms(&j, g, now);
	write_counts(&j, g);
	write_decisions(&j, g, -1, limit, now);
	api_end(&j);
}

void api_guard_worker(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	struct guard_moment now = guard_moment(a);
	struct json j;
	int w;

	if (!g || (w = guard_doc_find(g, r, q->arg[0])) < 0)
		return;
	api_begin(&j, a, r);
	json_string(&j, "mode", guard_modes[g->policy->mode]);
	guard_doc_worker(&j, a, (unsigned)w, now);
	write_decisions(&j, g, w, DECISIONS, now);
	api_end(&j);
}

static void write_memory(struct json *j, const struct scene *s, unsigned at,
			 const struct capacity_gpu *c)
{
	const struct scene_gpu *x = &s->gpu[at];
	double total = x->memory_known ? (double)x->total_bytes : (double)NAN;
	double used = x->memory_known ? (double)x->used_bytes : (double)NAN;
	double free_bytes = x->memory_known ? (double)x->free_bytes : (double)NAN;

	json_double(j, "memory_total_bytes", total);
	json_double(j, "memory_used_bytes", used);
	json_double(j, "memory_free_bytes", free_bytes);
	json_double(j, "unattributed_bytes", guard_view_unattributed(s, at));
	json_uint(j, "headroom_bytes", c->headroom_bytes);
	json_uint(j, "reserved_bytes", c->reserved_bytes);
	json_double(j, "available_bytes",
		    c->known ? (double)capacity_available(c) : (double)NAN);
	guard_doc_old_names(j, total, used, free_bytes);
}

void api_guard_gpu(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	const struct scene *s;
	struct capacity_gpu c;
	struct json j;
	int i, at;

	if (!g || !api_has_reading(a, r) || (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	guard_verdicts(g->guard, &s);
	guard_view_capacity(&a->view, (unsigned)i, &c);
	at = guard_view_gpu(s, c.uuid);
	if (at < 0) {
		api_was_read(NULL, r, "the guard has not observed this GPU yet");
		return;
	}
	api_begin(&j, a, r);
	json_string(&j, "uuid", c.uuid);
	json_uint(&j, "index", gw_snapshot_device(a->view.snap, (unsigned)i)->index);
	json_string(&j, "state", scene_health_name(s->gpu[at].health));
	guard_doc_time(&j, "looked", s->mono_ns, guard_moment(a));
	json_bool(&j, "hidden_processes", s->gpu[at].hidden);
	json_double(&j, "temperature_celsius", s->gpu[at].temperature_c);
	json_double(&j, "margin_celsius", s->gpu[at].margin_c);
	write_memory(&j, s, (unsigned)at, &c);
	guard_doc_processes(&j, g, (unsigned)at);
	api_end(&j);
}

enum verb { EVICT, RESUME, HOLD, RELEASE };
static const char *const verb_word[] = { "evict", "resume", "hold", "release" };

struct worker_request {
	double ttl_s; /* NAN: the body has no ttl_s */
	const char *reason, *state;
	bool force;
};

static bool refuse_key(struct json_request *b, const char *key, enum verb verb)
{
	return json_request_wrong(b, "\"%s\" is not allowed for %s", key, verb_word[verb]);
}

static bool read_request(struct json_request *b, enum verb verb, struct worker_request *w)
{
	if (!json_request_number(b, "ttl_s", &w->ttl_s) ||
	    !json_request_text(b, "reason", GUARD_REASON_MAX, &w->reason) ||
	    !json_request_text(b, "state", 0, &w->state) ||
	    !json_request_flag(b, "force", &w->force))
		return false;
	if (!isnan(w->ttl_s) && verb != EVICT && verb != HOLD)
		return refuse_key(b, "ttl_s", verb);
	if (w->state && verb != HOLD)
		return refuse_key(b, "state", verb);
	if (w->force && verb != RESUME)
		return refuse_key(b, "force", verb);
	if (!isnan(w->ttl_s) && !(w->ttl_s >= 0 && w->ttl_s <= GUARD_TTL_MOST_S))
		json_request_wrong(b, "\"ttl_s\" must be from 0 (unlimited) to %.0f seconds",
				   GUARD_TTL_MOST_S);
	else if (verb == HOLD && isnan(w->ttl_s))
		json_request_wrong(
			b, "a hold needs \"ttl_s\": the number of seconds, or 0 for unlimited");
	else if (w->state && strcmp(w->state, "evicted") != 0 &&
		 strcmp(w->state, "active") != 0)
		json_request_wrong(b, "\"state\" must be \"evicted\" or \"active\"");
	else
		return true;
	return false;
}

static enum guard_request request_kind(enum verb verb, const struct worker_request *w)
{
	switch (verb) {
	case EVICT: return REQUEST_EVICT;
	case RESUME: return w->force ? REQUEST_RESUME_NOW : REQUEST_RESUME;
	case RELEASE: return REQUEST_RELEASE;
	default:
		return w->state && strcmp(w->state, "active") == 0 ? REQUEST_HOLD_ACTIVE
								   : REQUEST_HOLD_EVICTED;
	}
}

/* Writes the members of an operation. */
static void write_operation(struct json *j, const struct guard_operation *o)
{
	char id[24];

	snprintf(id, sizeof(id), "%llu", (unsigned long long)o->id);
	json_string(j, "id", id);
	json_string(j, "state", guard_operation_state_name(o->state));
	json_string(j, "worker", o->worker);
	json_string(j, "what", guard_operation_word(o->what));
	json_time(j, "since_utc", o->since_wall_ns);
	json_time(j, "ended_utc", o->ended_wall_ns);
	render_text(j, "message", o->message);
}

/* Writes the hold that the request replaced, because the client may not know that another
 * person had set this hold. */
static void replaced_hold(struct json *j, const struct guard_status *before,
			  struct guard_moment now)
{
	if (!json_object_if(j, "replaced_hold", before && before->hold != HOLD_NONE))
		return;
	json_string(j, "hold", guard_holds[before->hold]);
	guard_doc_time(j, "hold_until", before->hold_until_ns, now);
	json_object_end(j);
}

/* Replies 202. `unsaved` says why the request is not in the journal; "": the request is in the
 * journal. `before` is the status of the worker before a new hold; NULL: the request is not a
 * hold. */
static void reply_accepted(const struct api *a, const struct guard_view *g, unsigned worker,
			   const struct guard_status *before, const char *unsaved,
			   struct reply *r)
{
	const struct guard_operation *o =
		guard_operation_latest(g->operations, g->policy->worker[worker].name);
	char where[64];
	struct json j;

	if (o) {
		snprintf(where, sizeof(where), "/api/v1/guard/operations/%llu",
			 (unsigned long long)o->id);
		reply_header(r, "Location", where);
	}
	r->status = 202;
	api_begin(&j, a, r);
	json_string(&j, "mode", guard_modes[g->policy->mode]);
	guard_doc_worker(&j, a, worker, guard_moment(a));
	replaced_hold(&j, before, guard_moment(a));
	json_string(&j, "journal", *unsaved ? unsaved : "ok");
	if (json_object_if(&j, "operation", o)) {
		write_operation(&j, o);
		json_object_end(&j);
	}
	api_end(&j);
}

static void reply_held(const struct guard_view *g, int worker, struct reply *r,
		       const char *message)
{
	char remedy[160];

	snprintf(remedy, sizeof(remedy),
		 "POST /api/v1/guard/workers/%.64s/release ends the hold.",
		 g->policy->worker[worker].name);
	reply_problem(r, 409, "held", remedy, "%s", message);
}

static void send_request(const struct api *a, const struct request *q, struct reply *r,
			 const struct guard_view *g, int worker, enum verb verb,
			 const struct worker_request *w)
{
	char message[256] = "", name[256];
	struct guard_status before = { .hold = HOLD_NONE };
	/* Round up, because 0 means unlimited. */
	uint64_t ttl = isnan(w->ttl_s) ? 0 : (uint64_t)ceil(w->ttl_s * 1e9);
	int err;

	if (verb == HOLD && ttl == 0)
		ttl = UINT64_MAX;
	guard_doc_who(q, w->reason, name, sizeof(name));
	(void)guard_status(g->guard, (unsigned)worker, &before);
	err = a->view.guard_ops->request(
		a->view.guarding, worker, request_kind(verb, w), ttl,
		&(struct guard_client){ name, q->uid, q->peer_pid, 0, NULL }, message,
		sizeof(message));
	if (!err)
		reply_accepted(a, g, (unsigned)worker, verb == HOLD ? &before : NULL, message,
			       r);
	else if (err == -GW_E_STATE)
		reply_held(g, worker, r, message);
	else if (err == -GW_E_PERM)
		guard_doc_too_often(a, g, q, r, message);
	else
		reply_problem(r, err == -GW_E_NOENT ? 404 : 400, "not-accepted", NULL, "%s",
			      *message ? message : gw_strerror(err));
}

static void handle_request(const struct api *a, const struct request *q, struct reply *r,
			   enum verb verb)
{
	const struct guard_view *g = guard_doc_may_ask(a, r);
	struct worker_request w = { .ttl_s = (double)NAN, .reason = "" };
	struct json_request *b;
	int worker;

	if (!g || (worker = guard_doc_find(g, r, q->arg[0])) < 0)
		return;
	b = api_body(q, r, "ttl_s reason force state");
	if (!b)
		return;
	if (read_request(b, verb, &w))
		send_request(a, q, r, g, worker, verb, &w);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	json_request_close(b);
}

void api_guard_evict(void *arg, const struct request *q, struct reply *r)
{
	handle_request(arg, q, r, EVICT);
}

void api_guard_resume(void *arg, const struct request *q, struct reply *r)
{
	handle_request(arg, q, r, RESUME);
}

void api_guard_hold(void *arg, const struct request *q, struct reply *r)
{
	handle_request(arg, q, r, HOLD);
}

void api_guard_release(void *arg, const struct request *q, struct reply *r)
{
	handle_request(arg, q, r, RELEASE);
}

static void answer_mode(const struct api *a, const struct request *q, struct reply *r,
			const enum guard_mode *mode, const char *reason)
{
	const struct guard_view *g = a->view.guard;
	char message[256] = "", who[256];
	struct json j;
	int err;

	guard_doc_who(q, reason, who, sizeof(who));
	err = a->view.guard_ops->set_mode(
		a->view.guarding, mode,
		&(struct guard_client){ who, q->uid, q->peer_pid, 0, NULL }, message,
		sizeof(message));
	if (err) {
		reply_problem(r, 503, "not-accepted", NULL, "%s", gw_strerror(err));
		return;
	}
	api_begin(&j, a, r);
	guard_doc_mode(&j, g);
	json_string(&j, "journal", *message ? message : "ok");
	api_end(&j);
}

static bool read_mode(struct json_request *b, enum guard_mode *ret, const char **ret_reason)
{
	const char *word = NULL;

	if (!json_request_text(b, "mode", 0, &word) ||
	    !json_request_text(b, "reason", GUARD_REASON_MAX, ret_reason))
		return false;
	for (unsigned m = 0; word && guard_modes[m]; m++) {
		*ret = (enum guard_mode)m;
		if (strcmp(word, guard_modes[m]) == 0)
			return true;
	}
	return json_request_wrong(b, "\"mode\" is required and must be \"observe\", "
				     "\"dry-run\" or \"enforce\"");
}

void api_guard_set_mode(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const char *reason = "";
	struct json_request *b;
	enum guard_mode mode;

	if (!guard_doc_may_ask(a, r) || !(b = api_body(q, r, "mode reason")))
		return;
	if (read_mode(b, &mode, &reason))
		answer_mode(a, q, r, &mode, reason);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	json_request_close(b);
}

void api_guard_reset_mode(void *arg, const struct request *q, struct reply *r)
{
	if (guard_doc_may_ask(arg, r))
		answer_mode(arg, q, r, NULL, "");
}

void api_guard_operation(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	const struct guard_operation *o;
	struct json j;
	uint64_t id;

	if (!g)
		return;
	o = number_id(q->arg[0], &id) ? guard_operation_find(g->operations, id) : NULL;
	if (!o) {
		reply_problem(
			r, 404, "no-such-operation",
			"GET /api/v1/guard/workers/NAME shows the state of the worker.",
			"there is no operation \"%.64s\"; the service keeps only the latest %d "
			"operations since its start",
			q->arg[0], GUARD_OPERATIONS);
		return;
	}
	api_begin(&j, a, r);
	write_operation(&j, o);
	api_end(&j);
}

static void write_game(struct json *j, const struct guard_view_game *g, struct guard_moment now)
{
	json_int(j, "pid", g->pid);
	guard_doc_time(j, "since", g->since_ns, now);
	guard_doc_time(j, "until", g->until_ns, now);
	json_string(j, "asked_by", g->who);
}

void api_guard_games(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	struct json j;

	(void)q;
	if (!g)
		return;
	api_begin(&j, a, r);
	json_array(&j, "games");
	for (unsigned i = 0; g->games && i < GUARD_VIEW_GAMES; i++) {
		if (!g->games[i].pid)
			continue;
		json_object(&j, NULL);
		write_game(&j, &g->games[i], guard_moment(a));
		json_object_end(&j);
	}
	json_array_end(&j);
	api_end(&j);
}

struct game_request {
	double pid, ttl_s; /* ttl_s NAN: the game lasts until the process exits */
	const char *reason;
};

static bool read_game(struct json_request *b, struct game_request *w)
{
	if (!json_request_number(b, "pid", &w->pid) ||
	    !json_request_number(b, "ttl_s", &w->ttl_s) ||
	    !json_request_text(b, "reason", GUARD_REASON_MAX, &w->reason))
		return false;
	if (!(w->pid >= 1 && w->pid <= INT32_MAX && w->pid == floor(w->pid)))
		json_request_wrong(b, "\"pid\" is required and must be a process id");
	else if (!isnan(w->ttl_s) && !(w->ttl_s > 0 && w->ttl_s <= GUARD_TTL_MOST_S))
		json_request_wrong(b, "\"ttl_s\" must be above 0 and at most %.0f",
				   GUARD_TTL_MOST_S);
	else
		return true;
	return false;
}

static void game_refused(const struct api *a, const struct guard_view *g,
			 const struct request *q, struct reply *r, int err, const char *message,
			 const struct game_request *w)
{
	if (err == -GW_E_PERM && *message)
		reply_problem(r, 403, "not-yours",
			      "Use the account that owns the process, or send the token.", "%s",
			      message);
	else if (err == -GW_E_PERM)
		guard_doc_too_often(a, g, q, r, "");
	else if (err == -GW_E_SIZE)
		reply_problem(r, 429, "too-many-games",
			      "Unregister some: DELETE /api/v1/guard/games/PID.",
			      "the limit of %d registered games is reached", GUARD_VIEW_GAMES);
	else if (err == -GW_E_ARG)
		reply_problem(r, 400, "no-such-process",
			      "Use the process id as the service sees it.", "%s", message);
	else
		reply_problem(r, 400, "bad-body",
			      "Set ttl_s, so that the game ends after that time.",
			      "this kernel cannot report the exit of process %.0f", w->pid);
}

static void game_begin(const struct api *a, const struct request *q, struct reply *r,
		       const struct guard_view *g, const struct game_request *w)
{
	uint64_t ttl_ns = isnan(w->ttl_s) ? UINT64_MAX : (uint64_t)ceil(w->ttl_s * 1e9);
	char who[256], where[64], message[256] = "";
	int64_t pid = (int64_t)w->pid;
	struct json j;
	int err;

	guard_doc_who(q, w->reason, who, sizeof(who));
	err = a->view.guard_ops->game(
		a->view.guarding, &pid, ttl_ns,
		&(struct guard_client){ who, q->uid, q->peer_pid, 0, NULL }, message,
		sizeof(message));
	if (err) {
		game_refused(a, g, q, r, err, message, w);
		return;
	}
	snprintf(where, sizeof(where), "/api/v1/guard/games/%lld", (long long)pid);
	reply_header(r, "Location", where);
	r->status = 201;
	api_begin(&j, a, r);
	for (unsigned i = 0; g->games && i < GUARD_VIEW_GAMES; i++)
		if (g->games[i].pid == pid)
			write_game(&j, &g->games[i], guard_moment(a));
	api_end(&j);
}

void api_guard_game(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_may_ask(a, r);
	struct game_request w = { .pid = NAN, .ttl_s = NAN, .reason = "" };
	struct json_request *b;

	if (!g)
		return;
	b = api_body(q, r, "pid ttl_s reason");
	if (!b)
		return;
	if (read_game(b, &w))
		game_begin(a, q, r, g, &w);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	json_request_close(b);
}

void api_guard_game_end(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	uint64_t pid;
	int err = -GW_E_NOENT;

	if (!guard_doc_may_ask(a, r))
		return;
	if (number_id(q->arg[0], &pid) && pid <= INT32_MAX)
		err = a->view.guard_ops->game_end(
			a->view.guarding, (int64_t)pid,
			&(struct guard_client){ q->who, q->uid, q->peer_pid, 0, NULL });
	if (err == -GW_E_PERM) {
		reply_problem(r, 403, "not-yours",
			      "Use the account that registered the game, or send the token.",
			      "another user registered the game of process %.32s", q->arg[0]);
		return;
	}
	if (err) {
		reply_problem(r, 404, "no-such-game",
			      "GET /api/v1/guard/games lists the games.",
			      "process \"%.32s\" is not registered as a game", q->arg[0]);
		return;
	}
	r->status = 204;
}
