/* guard_service_reservations: reservations of GPU memory, which survive a restart of the
 * service.
 *
 * The store keeps each reservation with its owner process and its end. When the service starts,
 * it loads the reservations that have not ended and have a living owner. This happens before
 * the guard observes the first scene, so that no worker resumes into reserved memory. */
#include "guard_service_parts.h"

#include "journal_record.h"
#include "peer_process.h"

#include "base/clock.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KIND "guard-room" /* kind of the documents in the store */

/* ---- owners ---- */

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
	guard_service_room_release(g, id);
}

/* Returns a free slot, or NULL. The slot of an expired reservation is freed. */
static struct owner *free_owner_slot(struct guard_service *g)
{
	char ignored[300];

	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++) {
		struct owner *o = &g->owner[i];

		if (o->id && guard_reservation_ready(g->guard, o->id, ignored,
						     sizeof(ignored)) == -GW_E_NOENT)
			forget_owner(o);
		if (!o->id)
			return o;
	}
	return NULL;
}

/* Watches the owner process. If the kernel cannot watch it, the reservation lasts until it is
 * released or expires. */
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

/* ---- the store ---- */

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

static void note_stored(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (!g->room[i]) {
			g->room[i] = id;
			return;
		}
}

static void store_reservation(struct guard_service *g, uint64_t id, uint64_t start_ticks)
{
	struct guard_room_record r = { .start_ticks = start_ticks };
	uint64_t now = guard_service_time_ns(g);
	struct buf text;
	char name[24];

	if (!find_reservation(g, id, &r.room))
		return;
	if (r.room.until_ns != UINT64_MAX)
		r.until_wall_ns = clock_wall_ns(g->config.clock) +
				  (r.room.until_ns > now ? r.room.until_ns - now : 0);
	reservation_key(id, name);
	buf_init(&text, 4096);
	guard_room_write(&text, &r);
	if (text.err || store_put_document(g->config.store, KIND, name, text.p, text.len) != 0)
		guard_service_log(
			g, "warning",
			"reservation %s cannot be stored; it is lost when the service restarts",
			name);
	else
		note_stored(g, id);
	store_commit(g->config.store);
	buf_done(&text);
}

static void remove_reservation(struct guard_service *g, uint64_t *id)
{
	char name[24];

	reservation_key(*id, name);
	store_delete_document(g->config.store, KIND, name);
	*id = 0;
}

void guard_service_rooms_tick(struct guard_service *g)
{
	struct guard_reservation room;

	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (g->room[i] && !find_reservation(g, g->room[i], &room))
			remove_reservation(g, &g->room[i]);
}

/* ---- reservations ---- */

void guard_service_room_made(struct guard_service *g, uint64_t id, int fd, uint64_t start_ticks)
{
	watch_owner(g, id, fd);
	store_reservation(g, id, start_ticks);
}

void guard_service_room_release(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (id && g->owner[i].id == id)
			forget_owner(&g->owner[i]);
	guard_service_release(g, id);
	guard_service_rooms_tick(g);
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
}

/* ---- reservations of an earlier run ---- */

/* True if there is no owner, or if the owner is alive. *ret_fd is the owner's pidfd; -1:
 * none. */
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
	struct guard_room_record r;
	int fd = -1;
	bool lasts = guard_room_read(json, &r) == 0 &&
		     (!r.until_wall_ns || r.until_wall_ns > wall) && check_owner(&r, &fd);

	r.room.until_ns = r.until_wall_ns ? now + (r.until_wall_ns - wall) : UINT64_MAX;
	if (!lasts || guard_service_reserve_again(g, &r.room) != 0) {
		if (fd >= 0)
			close(fd);
		store_delete_document(g->config.store, KIND, id);
		return;
	}
	note_stored(g, r.room.id);
	watch_owner(g, r.room.id, fd);
	guard_service_log(g, "info", "reservation %s of %.0f MiB on %s continues", id,
			  (double)r.room.bytes / 1048576, r.room.gpu);
}

void guard_service_rooms_open(struct guard_service *g)
{
	store_each_document(g->config.store, KIND, GUARD_SERVICE_OWNERS, load_reservation, g);
}

void guard_service_rooms_close(struct guard_service *g)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (g->owner[i].id)
			forget_owner(&g->owner[i]);
}
