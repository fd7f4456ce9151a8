/* guarding_room: who room is kept for, over a restart of the service, too.
 *
 * A reservation is a document of the store with its owner's identity and its end.  On a start those whose owner lives
 * and whose time is not over are taken up again before the guard looks: a worker that left for one does not come back
 * into it. */
#include "guard_service_parts.h"

#include "guard_record.h"

#include "base/clock.h"
#include "device/proc.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIND "guard-room" /* of its documents in the store */

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

/* One whose reservation ended by its time leaves its place. */
static struct owner *place_for_owner(struct guard_service *g)
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

/* Where the kernel cannot watch it, the room lasts until it is released or its time is over. */
static void watch_owner(struct guard_service *g, uint64_t id, int fd)
{
	struct owner *o = fd >= 0 ? place_for_owner(g) : NULL;

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

static void name_of(uint64_t id, char out[static 24])
{
	snprintf(out, 24, "%llu", (unsigned long long)id);
}

static bool find(const struct guard_service *g, uint64_t id, struct guard_reservation *ret)
{
	for (unsigned i = 0; guard_reservation_at(g->guard, i, ret); i++)
		if (id && ret->id == id)
			return true;
	return false;
}

static void note(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (!g->room[i]) {
			g->room[i] = id;
			return;
		}
}

static void keep(struct guard_service *g, uint64_t id, uint64_t start_ticks)
{
	struct guard_room_record r = { .start_ticks = start_ticks };
	uint64_t now = guarding_time_ns(g);
	struct buf text;
	char name[24];

	if (!find(g, id, &r.room))
		return;
	if (r.room.until_ns != UINT64_MAX)
		r.until_wall_ns = clock_wall_ns(g->config.clock) +
				  (r.room.until_ns > now ? r.room.until_ns - now : 0);
	name_of(id, name);
	buf_init(&text, 4096);
	guard_room_write(&text, &r);
	if (text.err || store_keep(g->config.store, KIND, name, text.p, text.len) != 0)
		guard_service_log(
			g, "warning",
			"reservation %s could not be kept in the file: it ends with this "
			"run of the service",
			name);
	else
		note(g, id);
	store_commit(g->config.store);
	buf_done(&text);
}

static void forget(struct guard_service *g, uint64_t *id)
{
	char name[24];

	name_of(*id, name);
	store_forget(g->config.store, KIND, name);
	*id = 0;
}

void guard_service_rooms_tick(struct guard_service *g)
{
	struct guard_reservation room;

	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (g->room[i] && !find(g, g->room[i], &room))
			forget(g, &g->room[i]);
}

/* ---- reservations ---- */

void guard_service_room_made(struct guard_service *g, uint64_t id, int fd, uint64_t start_ticks)
{
	watch_owner(g, id, fd);
	keep(g, id, start_ticks);
}

void guard_service_room_release(struct guard_service *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (id && g->owner[i].id == id)
			forget_owner(&g->owner[i]);
	guard_service_release(g, id);
	guard_service_rooms_tick(g);
	guard_service_pump(g);
	scene_thread_trigger(g->looker);
}

/* ---- those of an earlier run ---- */

/* Has it none, or one who lives?  *ret_fd is his; -1: none. */
static bool find_owner(const struct guard_room_record *r, int *ret_fd)
{
	uint64_t start = 0;
	struct root root;
	int err;

	*ret_fd = -1;
	if (r->room.pid <= 0)
		return true;
	if (root_open(&root, NULL) != 0)
		return false;
	*ret_fd = (int)syscall(SYS_pidfd_open, (pid_t)r->room.pid, 0);
	err = proc_start_ticks(&root, r->room.pid, &start); /* after: now it is nobody else */
	root_close(&root);
	return err == 0 && start == r->start_ticks;
}

static void take_up(void *arg, const char *id, const char *json)
{
	struct guard_service *g = arg;
	uint64_t wall = clock_wall_ns(g->config.clock), now = guarding_time_ns(g);
	struct guard_room_record r;
	int fd = -1;
	bool lasts = guard_room_read(json, &r) == 0 &&
		     (!r.until_wall_ns || r.until_wall_ns > wall) && find_owner(&r, &fd);

	r.room.until_ns = r.until_wall_ns ? now + (r.until_wall_ns - wall) : UINT64_MAX;
	if (!lasts || guard_service_reserve_again(g, &r.room) != 0) {
		if (fd >= 0)
			close(fd);
		store_forget(g->config.store, KIND, id);
		return;
	}
	note(g, r.room.id);
	watch_owner(g, r.room.id, fd);
	guard_service_log(g, "info", "room for %.0f MiB on %s is still kept (reservation %s)",
			  (double)r.room.bytes / 1048576, r.room.gpu, id);
}

void guard_service_rooms_open(struct guard_service *g)
{
	store_kept(g->config.store, KIND, GUARD_SERVICE_OWNERS, take_up, g);
}

void guard_service_rooms_close(struct guard_service *g)
{
	for (unsigned i = 0; i < GUARD_SERVICE_OWNERS; i++)
		if (g->owner[i].id)
			forget_owner(&g->owner[i]);
}
