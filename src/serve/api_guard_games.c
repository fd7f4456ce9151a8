/* Processes registered as games: workers leave the GPUs until they exit. */
#include "json_request.h"
#include "guard_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void game(struct json *j, const struct guard_view_game *g, struct guard_moment now)
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
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_array(&j, "games");
	for (unsigned i = 0; g->games && i < GUARD_VIEW_GAMES; i++) {
		if (!g->games[i].pid)
			continue;
		json_object(&j, NULL);
		game(&j, &g->games[i], guard_moment(a));
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	json_end(&j);
}

struct game_request {
	double pid, ttl_s; /* ttl_s NAN: as long as the process */
	const char *reason;
};

static bool read_game(struct json_request *b, struct game_request *w, char *message,
		      size_t size)
{
	if (!json_request_number(b, "pid", &w->pid, message, size) ||
	    !json_request_number(b, "ttl_s", &w->ttl_s, message, size) ||
	    !json_request_text(b, "reason", &w->reason, message, size))
		return false;
	if (!(w->pid >= 1 && w->pid <= INT32_MAX && w->pid == floor(w->pid)))
		snprintf(message, size, "\"pid\" is required and must be a process id");
	else if (!isnan(w->ttl_s) && !(w->ttl_s > 0 && w->ttl_s <= GUARD_TTL_MOST_S))
		snprintf(message, size, "\"ttl_s\" must be above 0 and at most %.0f",
			 GUARD_TTL_MOST_S);
	else if (strlen(w->reason) > GUARD_REASON_MAX)
		snprintf(message, size, "\"reason\" is longer than %d bytes", GUARD_REASON_MAX);
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
		reply_problem(r, 400, "bad-body", "Set ttl_s.",
			      "this kernel cannot report the exit of process %.0f", w->pid);
}

static void game_begin(const struct api *a, const struct request *q, struct reply *r,
		       const struct guard_view *g, const struct game_request *w)
{
	uint64_t ttl_ns = isnan(w->ttl_s) ? UINT64_MAX : (uint64_t)(w->ttl_s * 1e9);
	char who[256], where[64], message[256] = "";
	int64_t pid = (int64_t)w->pid;
	struct json j;
	int err;

	guard_doc_who(q, w->reason, who, sizeof(who));
	err = a->view.guard_ops->game(a->view.guarding, &pid, ttl_ns,
				      &(struct guard_asker){ who, q->uid, q->peer_pid, 0 },
				      message, sizeof(message));
	if (err) {
		game_refused(a, g, q, r, err, message, w);
		return;
	}
	snprintf(where, sizeof(where), "/api/v1/guard/games/%lld", (long long)pid);
	reply_header(r, "Location", where);
	r->status = 201;
	json_init(&j, &r->body, false);
	api_head(&j, a);
	for (unsigned i = 0; g->games && i < GUARD_VIEW_GAMES; i++)
		if (g->games[i].pid == pid)
			game(&j, &g->games[i], guard_moment(a));
	json_object_end(&j);
	json_end(&j);
}

void api_guard_game(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_may_ask(a, q, r);
	struct game_request w = { .pid = NAN, .ttl_s = NAN, .reason = "" };
	char message[256] = "";
	struct json_request *b;

	if (!g)
		return;
	if (json_request_open(q->body, q->size, "pid ttl_s reason", &b, message,
			      sizeof(message)) != 0) {
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
		return;
	}
	if (read_game(b, &w, message, sizeof(message)))
		game_begin(a, q, r, g, &w);
	else
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
	json_request_close(b);
}

void api_guard_game_end(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char *end;
	int64_t pid;
	int err;

	if (!guard_doc_may_ask(a, q, r))
		return;
	pid = strtoll(q->arg[0], &end, 10);
	err = *end ? -GW_E_NOENT
		   : a->view.guard_ops->game_end(
			     a->view.guarding, pid,
			     &(struct guard_asker){ q->who, q->uid, q->peer_pid, 0 });
	if (err == -GW_E_PERM) {
		reply_problem(r, 403, "not-yours",
			      "Use the account that registered it, or send the token.",
			      "another user registered the game of process %.32s", q->arg[0]);
		return;
	}
	if (err) {
		reply_problem(r, 404, "no-such-game", "GET /api/v1/guard/games lists them.",
			      "process \"%.32s\" is not registered as a game", q->arg[0]);
		return;
	}
	r->status = 204;
}
