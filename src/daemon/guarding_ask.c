/* guarding_ask: what people ask of the guard, and the processes that room is kept for. */
#include "guarding_parts.h"

#include "guard_trace.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static void audit(struct guarding *g, const char *who, const char *what)
{
	guarding_tell(g, "info", "%s (asked by %s)", what, who);
}

static int ask(void *engine, int worker, enum guard_ask what, uint64_t ttl_ns, const char *who,
	       char *message, size_t size)
{
	static const char *const words[] = { "evict",       "resume",  "hold evicted",
					     "hold active", "release", "resume now" };
	struct guarding *g = engine;
	uint64_t now = guarding_now_ns();
	char text[160];
	int err;

	if (g->record_fd >= 0) {
		guard_trace_ask(&g->line, worker, what, ttl_ns, now);
		guarding_record(g);
	}
	err = guard_ask(g->guard, worker, what, ttl_ns, now, message, size);
	if (!err) {
		snprintf(text, sizeof(text), "worker %s: %s",
			 worker < 0 ? "(all)" : g->settings->policy.worker[worker].name,
			 words[what]);
		audit(g, who, text);
	}
	guarding_pump(g);
	looker_now(g->looker);
	return err;
}

static void release_room(void *engine, uint64_t id);

static void forget_owner(struct owner *o)
{
	loop_remove(o->source);
	close(o->fd);
	*o = (struct owner){ .id = 0 };
}

static void owner_ended(void *arg, int fd, uint32_t events)
{
	struct owner *o = arg;
	struct guarding *g = o->g;
	uint64_t id = o->id;

	(void)fd;
	(void)events;
	forget_owner(o);
	release_room(g, id);
}

/* One whose reservation ended by its time leaves its place. */
static struct owner *place_for_owner(struct guarding *g)
{
	char ignored[300];

	for (unsigned i = 0; i < GUARDING_OWNERS; i++) {
		struct owner *o = &g->owner[i];

		if (o->id &&
		    guard_reserved(g->guard, o->id, ignored, sizeof(ignored)) == -GW_E_NOENT)
			forget_owner(o);
		if (!o->id)
			return o;
	}
	return NULL;
}

/* Where the kernel cannot watch it, the room lasts until it is released or its time is over. */
static void watch_owner(struct guarding *g, uint64_t id, int fd)
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

static int reserve(void *engine, const char *gpu, uint64_t bytes, int64_t pid, uint64_t ttl_ns,
		   const char *who, uint64_t *ret_id)
{
	struct guarding *g = engine;
	uint64_t now = guarding_now_ns();
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1, err;
	char text[160];

	if (fd < 0 && pid > 0 && errno == ESRCH)
		return -GW_E_ARG; /* nobody is there to have it */
	if (g->record_fd >= 0) {
		guard_trace_reserve(&g->line, gpu, bytes, pid, ttl_ns, now);
		guarding_record(g);
	}
	err = guard_reserve(g->guard, gpu, bytes, pid, ttl_ns, now, ret_id);
	if (!err) {
		watch_owner(g, *ret_id, fd);
		snprintf(text, sizeof(text), "room for %.0f MiB is wanted",
			 (double)bytes / 1048576);
		audit(g, who, text);
	} else if (fd >= 0) {
		close(fd);
	}
	guarding_pump(g);
	looker_now(g->looker);
	return err;
}

static int reserved(void *engine, uint64_t id, char *message, size_t size)
{
	struct guarding *g = engine;

	return guard_reserved(g->guard, id, message, size);
}

static void release_room(void *engine, uint64_t id)
{
	struct guarding *g = engine;
	uint64_t now = guarding_now_ns();

	for (unsigned i = 0; i < GUARDING_OWNERS; i++)
		if (id && g->owner[i].id == id)
			forget_owner(&g->owner[i]);
	if (g->record_fd >= 0) {
		guard_trace_release(&g->line, id, now);
		guarding_record(g);
	}
	guard_release(g->guard, id, now);
	guarding_pump(g);
	looker_now(g->looker);
}

static int game(void *engine, int64_t pid, uint64_t ttl_ns, const char *who)
{
	struct guarding *g = engine;
	int err = beside_game(g->beside, pid, ttl_ns, who);
	char text[80];

	snprintf(text, sizeof(text), "process %lld plays", (long long)pid);
	if (!err)
		audit(g, who, text);
	return err;
}

static int game_end(void *engine, int64_t pid)
{
	struct guarding *g = engine;

	return beside_game_end(g->beside, pid);
}

const struct guard_view_ops guarding_ops = { ask,          reserve, reserved,
					     release_room, game,    game_end };

void guarding_ask_close(struct guarding *g)
{
	for (unsigned i = 0; i < GUARDING_OWNERS; i++)
		if (g->owner[i].id)
			forget_owner(&g->owner[i]);
}
