/* Handles reservations of GPU memory. Workers leave the GPU until the reserved memory is free,
 * and the reply waits until the memory is free. */
#include "json_request.h"
#include "guard_doc.h"

#include "base/number.h"
#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TTL_S     300.0 /* used if the request has no ttl_s */
#define POLL_NS   (20 * NS_PER_MS)
#define WAIT_MOST 60.0

struct reservation_request {
	const char *gpu, *reason;
	double bytes, ttl_s, pid, start_ticks, wait_s;
};

struct reservation_wait {
	uint64_t id, until_ns;
	/* The client repeats a request, and the reservation of that request exists. */
	bool again;
	bool named; /* The request names a GPU. */
};

static bool find_reservation(const struct guard_view *g, uint64_t id,
			     struct guard_reservation *ret)
{
	for (unsigned i = 0; guard_reservation_at(g->guard, i, ret); i++)
		if (ret->id == id)
			return id != 0;
	return false;
}

/* Returns the number of bytes on the GPU of the reservation that are free and not reserved for
 * others; NAN: unknown. */
static double free_for(const struct guard_view *g, const struct guard_reservation *room)
{
	const struct scene *s;
	struct guard_reservation other;
	double left;
	int at;

	guard_verdicts(g->guard, &s);
	at = guard_view_gpu(s, room->gpu);
	if (at < 0 || !s->gpu[at].memory_known)
		return (double)NAN;
	left = (double)s->gpu[at].free_bytes;
	for (unsigned i = 0; guard_reservation_at(g->guard, i, &other); i++)
		if (other.id && other.id != room->id && strcmp(other.gpu, room->gpu) == 0)
			left -= (double)other.left_bytes;
	return left > 0 ? left : 0;
}

/* Returns the total memory of the named GPU, or of the largest one; NAN: unknown. */
static double largest_gpu(const struct guard_view *g, const struct guard_reservation *room,
			  bool named)
{
	const struct scene *s;
	double most = (double)NAN;

	guard_verdicts(g->guard, &s);
	for (unsigned i = 0; i < s->gpus; i++) {
		if (named && strcmp(s->gpu[i].uuid, room->gpu) != 0)
			continue;
		if (!s->gpu[i].memory_known)
			return (double)NAN;
		most = fmax(most, (double)s->gpu[i].total_bytes);
	}
	return most;
}

/* If no worker can leave in this mode or state of the guard, returns a text that says why. A
 * retry would then fail too. NULL: workers can leave. */
static const char *why_none_leaves(const struct guard_view *g)
{
	static const char *const why[GUARD_DRIES] = {
		[DRY_MODE] = ", and the guard only observes: no worker leaves",
		[DRY_FOREIGN] = ", and another service controls the GPUs (gpuward guard status "
				"names it): no worker leaves",
		[DRY_SIMULATED] = ", and the GPUs are simulated: no worker leaves (set "
				  "simulated = true in [guard] to act)",
	};
	enum guard_dry dry = DRY_NOT;
	struct guard_status s;

	if (g->policy->mode == GUARD_DRY_RUN)
		return ", and the guard is in dry-run: no worker leaves";
	if (g->policy->mode == GUARD_OBSERVE)
		return why[DRY_MODE];
	for (unsigned i = 0; i < g->policy->workers; i++) {
		if (guard_status(g->guard, i, &s) != 0 || !s.dry)
			return NULL;
		dry = s.dry;
	}
	return why[dry];
}

/* True if no other request for the same reservation waits longer than this request. There can
 * be several: if a client repeats its request, the repeated request can wait longer than the
 * first. */
static bool is_last_waiter(const struct guard_view *g, const struct reservation_wait *w)
{
	for (unsigned i = 0; g->rooms && i < GUARD_VIEW_ROOMS; i++)
		if (g->rooms[i].id == w->id)
			return g->rooms[i].wait_until_ns <= w->until_ns;
	return true;
}

/* Replies 409 with the free and the total memory, so that the client can request less, use
 * another GPU, or try later. If in_vain is true, a later attempt would fail too, so the reply
 * has no Retry-After. */
static void reply_insufficient(const struct api *a, const struct guard_view *g,
			       const struct reservation_wait *w, const char *detail,
			       bool in_vain, struct reply *r)
{
	struct guard_reservation room = { .id = 0 };
	double retry = fmax(rint((double)g->policy->standard.quiet_ns * 1e-9), 1);
	double total, now_free;
	char text[400];
	struct json j;
	bool never;

	find_reservation(g, w->id, &room);
	now_free = free_for(g, &room);
	total = largest_gpu(g, &room, w->named);
	never = (double)room.bytes > total;
	if (is_last_waiter(g, w))
		a->view.guard_ops->release(a->view.guarding, w->id);
	snprintf(text, sizeof(text), "%.0f", retry);
	if (never || in_vain)
		retry = (double)NAN;
	else
		reply_header(r, "Retry-After", text);
	snprintf(text, sizeof(text), "%s", detail);
	if (never)
		snprintf(text, sizeof(text), "%.1f GiB requested, but %s has only %.1f GiB",
			 (double)room.bytes / GIB, w->named ? "this GPU" : "the largest GPU",
			 total / GIB);
	r->status = 409;
	r->type = "application/problem+json";
	buf_clear(&r->body);
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_string(&j, "type", "tag:gpuward,2026:insufficient_vram");
	json_string(&j, "title", "Conflict");
	json_int(&j, "status", 409);
	json_string(&j, "detail", text);
	json_string(&j, "remedy",
		    never ? "Request less: GET /api/v1/capacity shows what is available."
			  : "Try again later, request less, or use another GPU: GET "
			    "/api/v1/capacity/fit.");
	json_string(&j, "code", "insufficient_vram");
	render_text(&j, "gpu", room.gpu);
	json_uint(&j, "needed", room.bytes);
	json_double(&j, "available", now_free);
	json_uint(&j, "available_at_most", room.most_bytes);
	json_bool(&j, "never", never);
	json_bool(&j, "simulated", view_simulated(&a->view));
	json_double(&j, "retry_after_s", retry);
	api_end(&j);
}

static void reply_made(const struct api *a, const struct guard_view *g,
		       const struct reservation_wait *w, const char *message, struct reply *r)
{
	struct guard_reservation room = { .id = 0 };
	char where[64];
	struct json j;

	find_reservation(g, w->id, &room);
	snprintf(where, sizeof(where), "/api/v1/guard/reservations/%llu",
		 (unsigned long long)w->id);
	reply_header(r, "Location", where);
	r->status = w->again ? 200 : 201;
	api_begin(&j, a, r);
	guard_doc_room(&j, &room, guard_moment(a));
	render_text(&j, "why", message);
	api_end(&j);
}

static void check_reservation(const struct api *a, const struct guard_view *g,
			      const struct reservation_wait *w, struct reply *r)
{
	uint64_t now = api_now(a);
	char message[256] = "", text[400];
	const char *stays = why_none_leaves(g);
	int got = a->view.guard_ops->reserved(a->view.guarding, w->id, w->until_ns, message,
					      sizeof(message));

	if (got == 1) {
		reply_made(a, g, w, message, r);
	} else if (got == -GW_E_NOENT) {
		reply_problem(r, 409, "reservation-ended",
			      "Send the request again if the memory is still needed.",
			      "the reservation ended while this request waited for the memory: "
			      "its process exited, it was released, or its ttl_s is over");
	} else if (got == 0 && !stays && now < w->until_ns) {
		reply_again(r, now + POLL_NS);
	} else {
		if (got == 0 && stays) /* Remove ": workers leave", because no worker leaves. */
			message[strcspn(message, ":")] = '\0';
		snprintf(text, sizeof(text), "%s%s", message,
			 got != 0 ? ""
			 : stays  ? stays
				  : ", but not in time");
		reply_insufficient(a, g, w, text, got == 0 && stays, r);
	}
}

static bool read_reservation(struct json_request *b, struct reservation_request *w)
{
	if (!json_request_word(b, "gpu", &w->gpu) ||
	    !json_request_number(b, "bytes", &w->bytes) ||
	    !json_request_number(b, "ttl_s", &w->ttl_s) ||
	    !json_request_number(b, "pid", &w->pid) ||
	    !json_request_number(b, "start_ticks", &w->start_ticks) ||
	    !json_request_number(b, "wait_s", &w->wait_s) ||
	    !json_request_text(b, "reason", GUARD_REASON_MAX, &w->reason))
		return false;
	if (!(w->bytes >= 1 && w->bytes <= JSON_REQUEST_WHOLE_MOST))
		json_request_wrong(b, "\"bytes\" is required and must be from 1 to %.0f",
				   JSON_REQUEST_WHOLE_MOST);
	else if (!(w->ttl_s > 0 && w->ttl_s <= GUARD_TTL_MOST_S) &&
		 !(w->ttl_s == 0 && w->pid > 0))
		json_request_wrong(
			b,
			"\"ttl_s\" must be above 0 and at most %.0f; with \"pid\" it may be "
			"0, and the reservation then ends when that process exits",
			GUARD_TTL_MOST_S);
	else if (!(w->wait_s >= 0 && w->wait_s <= WAIT_MOST))
		json_request_wrong(b, "\"wait_s\" must be from 0 to %.0f", WAIT_MOST);
	else if (!(w->pid >= 0 && w->pid <= INT32_MAX && w->pid == floor(w->pid)))
		json_request_wrong(b, "\"pid\" must be a process id");
	else if (!(w->start_ticks >= 0 && w->start_ticks <= JSON_REQUEST_WHOLE_MOST))
		json_request_wrong(b, "\"start_ticks\" must be a number, 0 or above");
	else
		return true;
	return false;
}

/* Returns the reservation that a request with this key made. Returns NULL if there is no such
 * reservation, or if it no longer exists. */
static const struct guard_view_room *known_key(const struct guard_view *g,
					       const struct guard_view_key *key)
{
	struct guard_reservation room;

	for (unsigned i = 0; g->rooms && i < GUARD_VIEW_ROOMS; i++)
		if (g->rooms[i].id && strcmp(g->rooms[i].key.key, key->key) == 0 &&
		    find_reservation(g, g->rooms[i].id, &room))
			return &g->rooms[i];
	return NULL;
}

/* Returns false if the request has no Idempotency-Key. */
static bool read_key(const struct request *q, struct guard_view_key *ret)
{
	const char *key = request_header(q, "Idempotency-Key");

	if (!key)
		return false;
	sha256_hex(key, strlen(key), ret->key);
	sha256_hex(q->body, q->size, ret->body);
	return true;
}

/* Handles a request with a key that was used before: replies with the reservation of the first
 * request, continues to wait, or refuses a request that has the same key but another body.
 * Returns false if the request is new. */
static bool continue_request(const struct api *a, const struct request *q, struct reply *r,
			     const struct guard_view *g, double wait_s, bool named)
{
	struct guard_view_key key;
	const struct guard_view_room *room = read_key(q, &key) ? known_key(g, &key) : NULL;
	struct reservation_wait *wait;

	if (!room)
		return false;
	if (strcmp(key.body, room->key.body) != 0) {
		reply_problem(r, 422, "key-used", "Use another Idempotency-Key.",
			      "this Idempotency-Key was used with a different request");
		return true;
	}
	wait = malloc(sizeof(*wait));
	if (!wait)
		return false;
	*wait = (struct reservation_wait){ .id = room->id,
					   .until_ns = api_now(a) + (uint64_t)(wait_s * 1e9),
					   .named = named,
					   .again = true };
	*q->memory = wait;
	check_reservation(a, g, wait, r);
	return true;
}

static void refuse_reservation(const struct api *a, const struct guard_view *g,
			       const struct request *q, struct reply *r, int err,
			       const char *message)
{
	if (err == -GW_E_PERM)
		guard_doc_too_often(a, g, q, r, "");
	else if (err == -GW_E_SIZE)
		reply_problem(r, 429, "too-many-reservations",
			      "Delete some: DELETE /api/v1/guard/reservations/ID.",
			      "the maximum number of reservations is reached");
	else if (err == -GW_E_ARG)
		reply_problem(r, 400, "no-such-process",
			      "Use the process id as the service sees it, or omit \"pid\": the "
			      "reservation then lasts until you delete it or ttl_s is over.",
			      "%s", message);
	else
		api_was_read(NULL, r, "the guard has not observed this GPU yet");
}

static void begin_reservation(const struct api *a, const struct request *q, struct reply *r,
			      const struct guard_view *g, const struct reservation_request *w)
{
	struct guard_view_key key;
	struct reservation_wait *wait;
	const char *uuid = NULL;
	char name[256], message[256] = "";
	int i, err;

	if (w->gpu) {
		if (!api_has_reading(a, r) || (i = api_find(a, r, 400, w->gpu)) < 0)
			return;
		uuid = gw_device_text(gw_snapshot_device(a->view.snap, (unsigned)i), GW_T_UUID);
	}
	guard_doc_who(q, w->reason, name, sizeof(name));
	wait = malloc(sizeof(*wait));
	err = wait ? a->view.guard_ops->reserve(
			     a->view.guarding, uuid, (uint64_t)w->bytes, (int64_t)w->pid,
			     /* Round up, because 0 means unlimited. */
			     (uint64_t)ceil(w->ttl_s * 1e9),
			     &(struct guard_client){ name, q->uid, q->peer_pid,
						     (uint64_t)w->start_ticks,
						     read_key(q, &key) ? &key : NULL },
			     &wait->id, message, sizeof(message))
		   : -GW_E_NOMEM;
	if (err) {
		free(wait);
		refuse_reservation(a, g, q, r, err, message);
		return;
	}
	*q->memory = wait;
	wait->again = false;
	wait->named = w->gpu != NULL;
	wait->until_ns = api_now(a) + (uint64_t)(w->wait_s * 1e9);
	check_reservation(a, g, wait, r);
}

void api_guard_reserve(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_may_ask(a, r);
	struct reservation_request w = { .reason = "", .ttl_s = TTL_S, .wait_s = WAIT_MOST };
	struct json_request *b;

	if (!g)
		return;
	if (*q->memory) {
		check_reservation(a, g, *q->memory, r);
		return;
	}
	b = api_body(q, r, "gpu bytes ttl_s pid start_ticks wait_s reason");
	if (!b)
		return;
	if (!read_reservation(b, &w))
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	else if (!continue_request(a, q, r, g, w.wait_s, w.gpu != NULL))
		begin_reservation(a, q, r, g, &w);
	json_request_close(b);
}

void api_guard_unreserve(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_may_ask(a, r);
	struct guard_reservation room;
	uint64_t id;

	if (!g)
		return;
	if (!number_id(q->arg[0], &id) || !find_reservation(g, id, &room)) {
		reply_problem(r, 404, "no-such-reservation",
			      "GET /api/v1/guard lists the reservations.",
			      "no reservation \"%.64s\"; it may have ended", q->arg[0]);
		return;
	}
	a->view.guard_ops->release(a->view.guarding, id);
	r->status = 204;
}
