/* guard_recorder: the only file of the service that changes the guard. Every input of the guard
 * passes through this module and is recorded, so that a recording explains every decision.
 *
 * A file that has grown to its limit is renamed to FILE.1. The next file begins with the whole
 * state of the guard. */
#include "guard_service_parts.h"

#include "recording.h"

#include "guard/guard_input.h"
#include "guard/guard_state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One of this many scenes is written whole, and the others as changes. Whole scenes make it
 * possible to read a part of the file alone. */
#define WHOLE_SCENES 600

struct guard_recorder {
	struct guard *guard;
	struct recording_file file;
	bool rename_failed; /* A rename failed and was already logged. */
	struct buf line;
	struct scene last; /* The last scene that was recorded. */
	unsigned scenes;   /* Number of scenes since the last whole scene was written. */
};

static bool is_recording(const struct guard_service *g)
{
	return g->recorder->file.fd >= 0;
}

/* Writes the line to the recording. If writing fails, the recording ends and the guard
 * continues. */
static void write_line(struct guard_service *g)
{
	struct guard_recorder *t = g->recorder;

	if (is_recording(g) &&
	    (t->line.err || recording_file_add(&t->file, t->line.p, t->line.len) != 0)) {
		guard_service_log(g, "warning",
				  "%.400s cannot be written (%s): recording stops; it "
				  "continues when the configuration is read again (SIGHUP)",
				  g->settings->record,
				  t->line.err ? "no memory" : strerror(errno));
		recording_file_close(&t->file);
	}
	buf_clear(&t->line);
}

/* Adds a line to the recording, if a file is open. write is a function of recording.h. */
#define RECORD(g, write, ...)                                     \
	do {                                                      \
		if (is_recording(g)) {                            \
			write(&(g)->recorder->line, __VA_ARGS__); \
			write_line(g);                            \
		}                                                 \
	} while (0)

/* Returns the record of a worker, or NULL. The record comes from the guard, or before the first
 * scene from the journal. */
static const struct guard_record *record_of(const struct guard_service *g, const char *name,
					    const struct guard_service_records *kept,
					    struct guard_record *now)
{
	const struct policy *p = &g->settings->policy;

	for (unsigned i = 0; i < p->workers; i++)
		if (strcmp(p->worker[i].name, name) == 0 &&
		    guard_worker_record(g->guard, i, now) == 0)
			return now;
	for (unsigned i = 0; kept && i < kept->count; i++)
		if (strcmp(kept->record[i].worker, name) == 0)
			return &kept->record[i];
	return NULL;
}

/* Writes the workers and their records. */
static void write_workers(struct guard_service *g, const struct policy *p,
			  const struct guard_service_records *kept)
{
	for (unsigned i = 0; i < p->workers; i++) {
		struct guard_record now;

		recording_worker(&g->recorder->line, i, p->worker[i].name,
				 record_of(g, p->worker[i].name, kept, &now));
	}
}

static void write_gpu_inputs(struct buf *out, const struct guard_gpu_inputs *t, uint64_t now)
{
	for (unsigned r = 0; r < GUARD_REASONS; r++)
		if (t->reasons >> r & 1)
			recording_reason(out, t->gpu, (enum guard_reason)r, true,
					 t->evidence[r], now);
	if (t->heat)
		recording_heat(out, t->gpu, t->heat, t->heat_why, now);
	if (t->foreign)
		recording_foreign(out, t->gpu, t->foreign, now);
}

/* Writes the inputs that the guard received earlier and that still apply. Used when a recording
 * begins while the guard runs. */
static void write_standing(struct guard_service *g, uint64_t now)
{
	struct buf *out = &g->recorder->line;
	struct guard_reservation room;
	struct guard_gpu_inputs in;
	struct scene_game game;

	for (unsigned i = 0; guard_reservation_at(g->guard, i, &room); i++)
		if (room.id)
			recording_reserve_restore(out, &room);
	for (unsigned i = 0; guard_gpu_inputs(g->guard, i, &in); i++)
		write_gpu_inputs(out, &in, now);
	if (guard_game_count(g->guard, &game))
		recording_games(out, guard_game_count(g->guard, &game), &game, now);
}

static void write_begin(struct guard_service *g)
{
	const struct policy *p = &g->settings->policy;
	struct guard_service_records *kept = NULL;

	if (guard_service_records_read(g, &kept) != 0)
		guard_service_log(
			g, "warning",
			"out of memory: the recording begins without the journal's records");
	recording_begin(&g->recorder->line, guard_last_id(g->guard), p->mode);
	recording_policy(&g->recorder->line, p);
	write_workers(g, p, kept);
	write_standing(g, guard_service_time_ns(g));
	recording_state(&g->recorder->line, g->guard);
	free(kept);
	g->recorder->last.whole = false;
	write_line(g);
}

static void begin_file(struct guard_service *g)
{
	const char *path = g->settings->record;

	if (recording_file_open(&g->recorder->file, path) == 0)
		write_begin(g);
	else
		guard_service_log(g, "warning",
				  "%.400s cannot be opened (%s): nothing is recorded", path,
				  errno == EINVAL || errno == ENXIO ? "it is a pipe"
				  : errno == EPERM ? "other users can change it or its folder"
						   : strerror(errno));
}

void guard_service_record_open(struct guard_service *g)
{
	if (recording_file_in_place(&g->recorder->file, g->settings->record))
		return;
	recording_file_close(&g->recorder->file);
	if (g->settings->record)
		begin_file(g);
}

static void move_away(struct guard_service *g)
{
	const char *path = g->settings->record;

	if (recording_file_move(&g->recorder->file, path) == 0)
		return;
	if (!g->recorder->rename_failed)
		guard_service_log(g, "warning",
				  "%.400s cannot be renamed to the same name with .1 (%s); the "
				  "recording starts again and its earlier lines are lost",
				  path, strerror(errno));
	g->recorder->rename_failed = true;
}

/* Starts the next file if this file has reached its size limit. The next file begins with the
 * state of the guard. Therefore this is called before a scene, when all decisions were
 * fetched. */
static void turn_over(struct guard_service *g)
{
	struct recording_file *f = &g->recorder->file;
	uint64_t limit = g->settings->record_limit;

	if (!is_recording(g) || !f->regular || !limit || f->size < limit ||
	    !guard_state_complete(g->guard))
		return;
	if (recording_file_in_place(f, g->settings->record))
		move_away(g);
	recording_file_close(f);
	begin_file(g);
}

int guard_recorder_new(struct guard_service *g, const struct guard_service_records *r)
{
	struct guard_recorder *t = calloc(1, sizeof(*t));
	int err = t ? guard_new(&g->settings->policy, r->record, r->count, &t->guard)
		    : -GW_E_NOMEM;

	if (err) {
		free(t);
		return err;
	}
	t->file.fd = -1;
	buf_init(&t->line,
		 (size_t)SCENE_LINE_MAX * (SCENE_PROCESSES + SCENE_GPUS + SCENE_ROOTS + 2));
	g->recorder = t;
	g->guard = t->guard;
	return 0;
}

void guard_recorder_free(struct guard_service *g)
{
	if (!g->recorder)
		return;
	recording_file_close(&g->recorder->file);
	buf_done(&g->recorder->line);
	guard_free(g->recorder->guard);
	free(g->recorder);
	g->recorder = NULL;
	g->guard = NULL;
}

int guard_service_change(struct guard_service *g, const struct guard_settings *next,
			 const struct guard_service_records *r)
{
	struct guard_recorder *t = g->recorder;
	uint64_t now = guard_service_time_ns(g);
	bool goes_on = recording_file_in_place(&t->file, next->record);
	int err;

	assert(r);
	if (goes_on) {
		recording_swap(&t->line);
		recording_policy(&t->line, &next->policy);
		write_workers(g, &next->policy, r);
		recording_swapped(&t->line, next->policy.mode, now);
	}
	err = guard_change_policy(t->guard, &next->policy, r->record, r->count, now);
	if (goes_on && !err)
		write_line(g);
	buf_clear(&t->line);
	return err;
}

void guard_service_observe(struct guard_service *g, const struct scene *s)
{
	struct guard_recorder *t = g->recorder;

	turn_over(g);
	if (is_recording(g)) {
		if (++t->scenes >= WHOLE_SCENES)
			t->last.whole = false;
		if (!t->last.whole)
			t->scenes = 0;
		scene_write_change(&t->line, s, &t->last);
		write_line(g);
	}
	guard_observe(t->guard, s);
}

/* Returns the worker that waits for the outcome of this order, or -1 if no worker waits for it
 * any more. */
static int worker_of(const struct guard_service *g, uint64_t order)
{
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (order && guard_order_pending(g->guard, i) == order)
			return (int)i;
	return -1;
}

void guard_service_outcome(struct guard_service *g, const struct guard_outcome *o)
{
	uint64_t now = guard_service_time_ns(g);

	RECORD(g, recording_outcome, o, worker_of(g, o->order), now);
	guard_outcome(g->recorder->guard, o, now);
}

void guard_service_stop(struct guard_service *g)
{
	uint64_t now = guard_service_time_ns(g);

	RECORD(g, recording_stop, guard_orders_underway(g->guard), now);
	guard_stop(g->recorder->guard, now);
}

void guard_service_for(struct guard_service *g, int64_t uid)
{
	RECORD(g, recording_requester, uid, guard_service_time_ns(g));
	guard_set_requester(g->recorder->guard, uid);
}

int guard_service_operation(struct guard_service *g, int worker, enum guard_request what,
			    uint64_t ttl_ns, char *message, size_t size)
{
	uint64_t now = guard_service_time_ns(g);

	RECORD(g, recording_request, worker, what, ttl_ns, now);
	return guard_request(g->recorder->guard, worker, what, ttl_ns, now, message, size);
}

int guard_service_reserve(struct guard_service *g, const char *gpu, uint64_t bytes, int64_t pid,
			  uint64_t ttl_ns, uint64_t *ret_id)
{
	uint64_t now = guard_service_time_ns(g);
	int err = guard_reserve(g->recorder->guard, gpu, bytes, pid, ttl_ns, now, ret_id);

	RECORD(g, recording_reserve, gpu, bytes, pid, ttl_ns, err ? 0 : *ret_id, now);
	return err;
}

int guard_service_reserve_again(struct guard_service *g, const struct guard_reservation *room)
{
	int err = guard_reserve_restore(g->recorder->guard, room);

	if (!err)
		RECORD(g, recording_reserve_restore, room);
	return err;
}

void guard_service_release(struct guard_service *g, uint64_t id)
{
	uint64_t now = guard_service_time_ns(g);

	RECORD(g, recording_release, id, now);
	guard_release(g->recorder->guard, id, now);
}

void guard_service_reason(struct guard_service *g, const char *uuid, enum guard_reason r,
			  bool on, const char *why, uint64_t now)
{
	RECORD(g, recording_reason, uuid, r, on, why, now);
	guard_set_reason(g->recorder->guard, uuid, r, on, why, now);
}

void guard_service_heat(struct guard_service *g, const char *uuid, unsigned heat,
			const char *why, uint64_t now)
{
	RECORD(g, recording_heat, uuid, heat, why, now);
	guard_set_heat(g->recorder->guard, uuid, heat, why);
}

int guard_service_trust(struct guard_service *g, const char *uuid, uint64_t now)
{
	RECORD(g, recording_trust, uuid, now);
	return guard_trust_gpu(g->recorder->guard, uuid, now);
}

void guard_service_foreign(struct guard_service *g, const char *uuid, const char *holder)
{
	uint64_t now = guard_service_time_ns(g);

	RECORD(g, recording_foreign, uuid, holder, now);
	guard_set_foreign(g->recorder->guard, uuid, holder, now);
}

void guard_service_games(struct guard_service *g, unsigned count,
			 const struct scene_game *latest)
{
	RECORD(g, recording_games, count, latest, guard_service_time_ns(g));
	guard_set_games(g->recorder->guard, count, latest);
}

void guard_service_economy(struct guard_service *g, unsigned worker, uint64_t after_ns,
			   double idle_w, double reload_j)
{
	RECORD(g, recording_idle_economy, worker, after_ns, idle_w, reload_j,
	       guard_service_time_ns(g));
	guard_set_idle_economy(g->recorder->guard, worker, after_ns, idle_w, reload_j);
}

bool guard_service_next_order(struct guard_service *g, struct guard_order *ret)
{
	const bool fetched = guard_next_order(g->recorder->guard, ret);

	if (fetched)
		RECORD(g, recording_fetched, ret->worker, guard_service_time_ns(g));
	return fetched;
}

bool guard_service_next_decision(void *service, struct guard_decision *ret)
{
	const struct guard_service *g = service;

	return guard_next_decision(g->recorder->guard, ret);
}

bool guard_service_next_record(void *service, struct guard_record *ret)
{
	const struct guard_service *g = service;

	return guard_next_record(g->recorder->guard, ret);
}

void guard_service_reason_ends(struct guard_service *g, const char *uuid, enum guard_reason r,
			       const char *clears, uint64_t clears_ns)
{
	guard_set_reason_end(g->recorder->guard, uuid, r, clears, clears_ns);
}
