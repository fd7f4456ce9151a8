/* guard_service_request: handles requests of people: operations on workers, reservations,
 * games. */
#include "guard_service_parts.h"
#include "journal_record.h"
#include "peer_process.h"
#include "recording.h"

#include "base/clock.h"
#include "device/proc.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Reservations survive a restart of the service. The store keeps each reservation with its
 * owner process and its end. When the service starts, it loads the reservations that have
 * not ended and have a living owner. This happens before the guard observes the first
 * scene, so that no worker resumes into reserved memory. */

#define KIND "guard-room" /* Kind of the documents in the store. */

#define KEEP_NS (200 * NS_PER_MS)

static void release_reservation(struct guard_service *g, uint64_t id);

static void forget_owner(struct owner *o)
{
	loop_remove(o->source);
	close(o->fd);
	*o = (struct owner){ .id = 0 };
}

static void owner_ended(void *arg, int fd, uint32_t events)
{
	struct owner *o = arg;
	struct guard_service *g = o->g;
	uint64_t id = o->id;

	(void)fd;
	(void)events;
	forget_owner(o);
	release_reservation(g, id);
}

/* Returns a free slot, or NULL. The slot of an expired reservation is freed. */
static struct owner *free_owner_slot(struct guard_service *g)
{
	char ignored[300];

	for (unsigned i = 0; i < GUARD_VIEW_ROOMS; i++) {
		struct owner *o = &g->owner[i];

		if (o->id && guard_reservation_ready(g->guard, o->id, ignored,
						     sizeof(ignored)) == -GW_E_NOENT)
			forget_owner(o);
		if (!o->id)
			return o;
	}
	return NULL;
}

/* Watches the owner process. If the kernel cannot watch the process, the reservation lasts
 * until it is released or expires. */
static void watch_owner(struct guard_service *g, uint64_t id, int fd)
{
	struct owner *o = fd >= 0 ? free_owner_slot(g) : NULL;

	if (!o || loop_add_fd(g->config.loop, fd, EPOLLIN, owner_ended, o, &o->source) != 0) {
		if (fd >= 0)
			close(fd);
		return;
	}
	o->g = g;
	o->id = id;
	o->fd = fd;
}

static void reservation_key(uint64_t id, char out[static 24])
{
	snprintf(out, 24, "%llu", (unsigned long long)id);
}

static bool find_reservation(const struct guard_service *g, uint64_t id,
			     struct guard_reservation *ret)
{
	for (unsigned i = 0; guard_reservation_at(g->guard, i, ret); i++)
		if (id && ret->id == id)
			return true;
	return false;
}

/* Returns the slot of a reservation; NULL: there is none. With id 0, returns a free slot. */
static struct guard_view_room *find_room(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_VIEW_ROOMS; i++)
		if (g->room[i].id == id)
			return &g->room[i];
	return NULL;
}

/* Writes changed documents before the client gets its answer. A disk that hangs delays the
 * answer by at most KEEP_NS. Returns false only if the documents cannot be written. After
 * KEEP_NS it returns true, because the documents may still be written later. */
static bool write_documents(struct guard_service *g)
{
	int err;

	store_commit(g->config.store);
	err = store_flush(g->config.store, KEEP_NS);
	return !err || err == -GW_E_TIMEOUT;
}

/* Stores a reservation and the key of its request in one document. With the key, the client can
 * repeat its request after a crash. */
static void store_reservation(struct guard_service *g, const struct guard_view_room *room)
{
	struct guard_room_record r = { .start_ticks = room->start_ticks,
				       .wall_ns = clock_wall_ns(g->config.clock),
				       .key = room->key,
				       .granted = room->granted };
	uint64_t now = guard_service_time_ns(g);
	struct buf text;
	char name[24];
	bool kept;

	if (!find_reservation(g, room->id, &r.room))
		return;
	if (r.room.until_ns != UINT64_MAX)
		r.until_wall_ns =
			r.wall_ns + (r.room.until_ns > now ? r.room.until_ns - now : 0);
	reservation_key(room->id, name);
	buf_init(&text, 4096);
	guard_room_write(&text, &r);
	kept = !text.err &&
	       store_put_document(g->config.store, KIND, name, text.p, text.len) == 0;
	if (!write_documents(g) || !kept)
		guard_service_log(
			g, "warning",
			"reservation %s cannot be stored; it is lost when the service restarts",
			name);
	buf_done(&text);
}

static void remove_reservation(struct guard_service *g, struct guard_view_room *r)
{
	char name[24];

	reservation_key(r->id, name);
	store_delete_document(g->config.store, KIND, name);
	*r = (struct guard_view_room){ .id = 0 };
}

void guard_service_rooms_tick(struct guard_service *g)
{
	struct guard_reservation room;

	for (unsigned i = 0; i < GUARD_VIEW_ROOMS; i++)
		if (g->room[i].id && !find_reservation(g, g->room[i].id, &room))
			remove_reservation(g, &g->room[i]);
}

static void release_reservation(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_VIEW_ROOMS; i++)
		if (id && g->owner[i].id == id)
			forget_owner(&g->owner[i]);
	guard_service_release(g, id);
	guard_service_rooms_tick(g);
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
}

static void op_release(void *engine, uint64_t id)
{
	struct guard_service *g = engine;

	release_reservation(g, id);
	if (!write_documents(g))
		guard_service_log(g, "warning",
				  "the end of reservation %llu cannot be stored (%.100s); the "
				  "reservation may exist again after a restart",
				  (unsigned long long)id, store_state(g->config.store));
}

/* True if there is no owner, or if the owner is alive. *ret_fd is the owner's pidfd, or -1
 * if there is none. */
static bool check_owner(const struct guard_room_record *r, int *ret_fd)
{
	*ret_fd = -1;
	return r->room.pid <= 0 ||
	       peer_process_open((struct proc_id){ r->room.pid, r->start_ticks }, ret_fd) == 0;
}

static void load_reservation(void *arg, const char *id, const char *json)
{
	struct guard_service *g = arg;
	uint64_t wall = clock_wall_ns(g->config.clock), now = guard_service_time_ns(g);
	struct guard_view_room *slot = find_room(g, 0);
	struct guard_room_record r;
	int fd = -1;
	bool lasts = guard_room_read(json, &r) == 0 && check_owner(&r, &fd);
	uint64_t left = guard_time_left(r.until_wall_ns, r.wall_ns, wall);

	lasts = lasts && slot && (left || !r.until_wall_ns);
	r.room.until_ns = r.until_wall_ns ? now + left : UINT64_MAX;
	if (lasts && r.room.uid > 0)
		guard_service_for(g, r.room.uid);
	if (!lasts || guard_service_reserve_again(g, &r.room) != 0) {
		if (fd >= 0)
			close(fd);
		store_delete_document(g->config.store, KIND, id);
		return;
	}
	*slot = (struct guard_view_room){ .id = r.room.id,
					  .key = r.key,
					  .start_ticks = r.start_ticks,
					  .granted = r.granted };
	watch_owner(g, r.room.id, fd);
	guard_service_log(g, "info",
			  "reservation %s of %.0f MiB on %s continues after the restart of the "
			  "service",
			  id, (double)r.room.bytes / 1048576, r.room.gpu);
}

void guard_service_rooms_open(struct guard_service *g)
{
	store_each_document(g->config.store, KIND, GUARD_VIEW_ROOMS, load_reservation, g);
}

void guard_service_rooms_close(struct guard_service *g)
{
	for (unsigned i = 0; i < GUARD_VIEW_ROOMS; i++)
		if (g->owner[i].id)
			forget_owner(&g->owner[i]);
}

static uint64_t audit(struct guard_service *g, const char *who, const char *what)
{
	return guard_service_log(g, "info", "%s (requested by %s)", what, who);
}

void guard_service_set_requested(struct guard_service *g, const char *worker, const char *by)
{
	struct guard_view_requested *slot = NULL;

	for (unsigned i = 0; i < POLICY_WORKERS; i++) {
		struct guard_view_requested *r = &g->requested[i];

		if (strcmp(r->worker, worker) == 0) {
			slot = r;
			break;
		}
		/* The slot of a worker that a reload removed counts as free. */
		if (!slot && policy_find_worker(&g->settings->policy, r->worker) < 0)
			slot = r;
	}
	if (!slot)
		return;
	snprintf(slot->worker, sizeof(slot->worker), "%s", worker);
	snprintf(slot->by, sizeof(slot->by), "%s", by);
}

const char *guard_service_requested(const struct guard_service *g, const char *worker)
{
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (strcmp(g->requested[i].worker, worker) == 0)
			return g->requested[i].by;
	return "";
}

/* Stores who requested a hold or an eviction. If a hold keeps the worker evicted, a later
 * eviction request does not replace the stored requester of the hold, because the hold is
 * stronger than the eviction. */
static void note_requester(struct guard_service *g, unsigned worker, enum guard_request what,
			   const char *who)
{
	struct guard_status s;

	if (what == REQUEST_HOLD_ACTIVE || what == REQUEST_HOLD_EVICTED ||
	    (what == REQUEST_EVICT && guard_status(g->guard, worker, &s) == 0 &&
	     s.hold != HOLD_EVICTED))
		guard_service_set_requested(g, g->settings->policy.worker[worker].name, who);
}

/* Begins an operation for an accepted request. The client can follow the operation. */
static void begin_operation(struct guard_service *g, unsigned worker, enum guard_request what,
			    const char *who)
{
	const char *name = g->settings->policy.worker[worker].name;
	struct guard_status s;
	char text[160];
	uint64_t id;

	snprintf(text, sizeof(text), "worker %s: %s", name, guard_operation_word(what));
	id = audit(g, who, text);
	if (guard_status(g->guard, worker, &s) == 0 &&
	    !guard_operation_running(&g->operations, name, what))
		guard_operation_begin(&g->operations, id, name, what, &s,
				      clock_wall_ns(g->config.clock));
}

/* Stores a request before the client gets its answer, because the client relies on a positive
 * answer. A disk that hangs delays the answer by at most KEEP_NS. If the request is not stored,
 * the message says this. */
static void store_request(struct guard_service *g, char *message, size_t size)
{
	uint64_t now = guard_service_time_ns(g), until = now + KEEP_NS;

	for (; g->journal.writing && now < until; now = guard_service_time_ns(g)) {
		if (store_flush(g->config.store, until - now) == -GW_E_TIMEOUT)
			break;
		guard_service_written(g, now);
	}
	if (!store_lasting(g->config.store))
		snprintf(message, size,
			 "there is no journal file; the request is lost when the service "
			 "restarts");
	else if (g->journal.last == WRITE_HANGS)
		snprintf(message, size,
			 "the disk does not finish a write; the request is lost if the service "
			 "stops now");
	else if (g->journal.last == WRITE_FAILED || g->journal.unsaved)
		snprintf(message, size,
			 "the journal cannot be written (%.100s); the request is lost when the "
			 "service restarts",
			 store_state(g->config.store));
	else if (g->journal.writing)
		snprintf(message, size,
			 "the request is not on disk yet; it is lost if the machine stops now");
}

static int op_request(void *engine, int worker, enum guard_request what, uint64_t ttl_ns,
		      const struct guard_client *by, char *message, size_t size)
{
	struct guard_service *g = engine;
	int err;

	guard_service_for(g, by->uid);
	err = guard_service_operation(g, worker, what, ttl_ns, message, size);
	for (unsigned i = 0; !err && i < g->settings->policy.workers; i++)
		if (worker < 0 || i == (unsigned)worker) {
			note_requester(g, i, what, by->who);
			begin_operation(g, i, what, by->who);
		}
	guard_service_pump(g);
	if (!err)
		store_request(g, message, size);
	scene_thread_trigger(g->scenes);
	return err;
}

static int find_process(int64_t *pid, const struct guard_client *by, uint64_t *ret_start_ticks,
			char *message, size_t size)
{
	struct root root;
	int err = root_open(&root, NULL);

	if (err)
		return err;
	err = peer_process_find(&root, *pid, by, pid, ret_start_ticks, message, size);
	root_close(&root);
	return err;
}

/* Stores a new reservation with the key of its request. */
static void note_reservation(struct guard_service *g, uint64_t id, uint64_t start_ticks,
			     const struct guard_view_key *key)
{
	struct guard_view_room *room;
	char ignored[300];

	guard_service_rooms_tick(g); /* Frees the slots of reservations that ended. */
	room = find_room(g, 0);
	if (!room)
		return;
	*room = (struct guard_view_room){
		.id = id,
		.start_ticks = start_ticks,
		.granted = guard_reservation_ready(g->guard, id, ignored, sizeof(ignored)) == 1
	};
	if (key)
		room->key = *key;
	store_reservation(g, room);
}

static int op_reserve(void *engine, const char *gpu, uint64_t bytes, int64_t pid,
		      uint64_t ttl_ns, const struct guard_client *by, uint64_t *ret_id,
		      char *message, size_t size)
{
	struct guard_service *g = engine;
	uint64_t start_ticks = 0;
	char text[160];
	int fd = -1, err;

	if (pid > 0) {
		err = find_process(&pid, by, &start_ticks, message, size);
		if (err)
			return err;
		if (peer_process_open((struct proc_id){ pid, start_ticks }, &fd) != 0) {
			snprintf(message, size,
				 "process %lld has ended; nothing is reserved for it",
				 (long long)pid);
			return -GW_E_ARG;
		}
	}
	guard_service_for(g, by->uid);
	err = guard_service_reserve(g, gpu, bytes, pid, ttl_ns, ret_id);
	if (!err) {
		watch_owner(g, *ret_id, fd);
		note_reservation(g, *ret_id, start_ticks, by->key);
		snprintf(text, sizeof(text), "new reservation of %.0f MiB",
			 (double)bytes / 1048576);
		audit(g, by->who, text);
	} else if (fd >= 0) {
		close(fd);
	}
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
	return err;
}

/* `granted` becomes true when the reserved memory is free, and it stays true when the client
 * then uses the memory. After a restart, only a repeated request needs `granted`, so it is
 * stored only for a request with a key. */
static int op_reserved(void *engine, uint64_t id, uint64_t until_ns, char *message, size_t size)
{
	struct guard_service *g = engine;
	struct guard_view_room *room = find_room(g, id);
	int got = guard_reservation_ready(g->guard, id, message, size);

	if (!id || !room || got == -GW_E_NOENT)
		return got;
	if (room->wait_until_ns < until_ns)
		room->wait_until_ns = until_ns;
	if (got == 1 && !room->granted) {
		room->granted = true;
		if (*room->key.key)
			store_reservation(g, room);
	} else if (got != 1 && room->granted) {
		snprintf(message, size, "the memory was free when the reservation was granted");
		got = 1;
	}
	return got;
}

/* Returns 0, or -GW_E_ARG if the process belongs to a worker. With such a game, the worker
 * would have to leave the GPU for its own process. */
static int check_no_worker(const struct guard_service *g, const struct root *root, int64_t pid,
			   char *message, size_t size)
{
	const struct scene *s;

	guard_verdicts(g->guard, &s);
	for (unsigned i = 0; i < s->roots; i++) {
		const struct scene_root *r = &s->root[i];

		if (r->how == ROOT_FORMER || r->worker >= g->settings->policy.workers ||
		    !proc_in_tree(root, pid, r->id.pid))
			continue;
		snprintf(message, size,
			 "process %lld belongs to the worker %s: use the pid of the game",
			 (long long)pid, g->settings->policy.worker[r->worker].name);
		return -GW_E_ARG;
	}
	return 0;
}

/* Checks whether the client may register this game. The limit of evictions per user also
 * applies to games. */
static int check_game(struct guard_service *g, int64_t *pid, const struct guard_client *by,
		      uint64_t *ret_start_ticks, char *message, size_t size)
{
	struct root root;
	int err = find_process(pid, by, ret_start_ticks, message, size);

	if (err)
		return err;
	err = root_open(&root, NULL);
	if (err)
		return err;
	err = peer_process_game(&root, *pid, by, message, size);
	if (!err)
		err = check_no_worker(g, &root, *pid, message, size);
	root_close(&root);
	if (err)
		return err;
	return guard_user_wait_ns(g->guard, by->uid, guard_service_time_ns(g)) ? -GW_E_PERM : 0;
}

/* Waits at most KEEP_NS until the game is stored, before the client gets its answer. Logs a
 * warning if the game cannot be stored. */
static void store_game(struct guard_service *g, int64_t pid, bool kept)
{
	int err = kept ? store_flush(g->config.store, KEEP_NS) : -GW_E_SIZE;

	if (!store_lasting(g->config.store) || (err && err != -GW_E_TIMEOUT))
		guard_service_log(g, "warning",
				  "the registration of game process %lld cannot be saved; "
				  "register it again if the service restarts",
				  (long long)pid);
}

static int op_game(void *engine, int64_t *pid, uint64_t ttl_ns, const struct guard_client *by,
		   char *message, size_t size)
{
	struct guard_service *g = engine;
	uint64_t start_ticks;
	int err = check_game(g, pid, by, &start_ticks, message, size);
	bool kept = false;
	char text[80];

	if (err)
		return err;
	guard_service_for(g, by->uid);
	err = guard_inputs_game(g->inputs, *pid, start_ticks, ttl_ns, by->uid, by->who, &kept);
	/* Reset the requesting user of the guard. If no game was added, the guard has not used
	 * it and would use it for its next input. */
	guard_service_for(g, -1);
	snprintf(text, sizeof(text), "process %lld is registered as a game", (long long)*pid);
	if (!err) {
		audit(g, by->who, text);
		store_game(g, *pid, kept);
	} else if (err == -GW_E_ARG)
		snprintf(message, size, "process %lld has ended", (long long)*pid);
	return err;
}

static int op_game_end(void *engine, int64_t pid, const struct guard_client *by)
{
	struct guard_service *g = engine;
	int err = guard_inputs_game_end(g->inputs, pid, by->uid);

	if (!err && !write_documents(g))
		guard_service_log(g, "warning",
				  "the end of game process %lld cannot be stored (%.100s); the "
				  "process may count as a game again after a restart",
				  (long long)pid, store_state(g->config.store));
	return err;
}

static int op_set_mode(void *engine, const enum guard_mode *mode, const struct guard_client *by,
		       char *message, size_t size)
{
	struct guard_service *g = engine;
	char text[80];

	if (mode)
		snprintf(text, sizeof(text), "the guard's mode is set to %s",
			 guard_modes[*mode]);
	else
		snprintf(text, sizeof(text), "the guard's mode is the configured one again");
	audit(g, by->who, text);
	guard_mode_choose(g, mode, by->who);
	store_request(g, message, size);
	guard_reload_mode(g);
	return 0;
}

const struct guard_view_ops guard_service_ops = {
	op_request,  op_reserve,          op_reserved, op_release,         op_game,
	op_game_end, guard_service_clear, op_set_mode, guard_policy_parse, recording_last_scene
};
