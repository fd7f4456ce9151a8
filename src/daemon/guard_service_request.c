/* guarding_ask: what people ask of the guard, and the processes that room is kept for. */
#include "guard_service_parts.h"

#include "guard_text.h"
#include "peer_process.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP_NS (200 * NS_PER_MS)

static uint64_t audit(struct guard_service *g, const char *who, const char *what)
{
	return guard_service_log(g, "info", "%s (asked by %s)", what, who);
}

/* Was accepted: whoever asked can follow it. */
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

/* Who is told that it is so may rely on it: his wish is in the file before he is answered.  A disk that
 * hangs holds us up no longer than this; then, and where nothing can be kept, the answer says so. */
static void keep_wish(struct guard_service *g, char *message, size_t size)
{
	uint64_t now = guarding_time_ns(g), until = now + KEEP_NS;

	for (; g->writing && now < until; now = guarding_time_ns(g)) {
		if (store_flush(g->config.store, until - now) == -GW_E_TIMEOUT)
			break;
		guard_service_written(g, now);
	}
	if (!store_lasting(g->config.store))
		snprintf(message, size,
			 "nothing is kept in a file: a restart of the service forgets it");
	else if (g->failed || g->unkept)
		snprintf(message, size,
			 "the journal cannot be written (%.100s): a restart of the service "
			 "forgets it",
			 store_state(g->config.store));
	else if (g->writing)
		snprintf(message, size,
			 "the disk has not taken it yet: it is lost if the machine ends now");
}

static int ask(void *engine, int worker, enum guard_request what, uint64_t ttl_ns,
	       const struct guard_asker *by, char *message, size_t size)
{
	struct guard_service *g = engine;
	int err;

	guard_service_for(g, by->uid);
	err = guard_service_operation(g, worker, what, ttl_ns, message, size);
	for (unsigned i = 0; !err && i < g->settings->policy.workers; i++)
		if (worker < 0 || i == (unsigned)worker)
			begin_operation(g, i, what, by->who);
	guard_service_pump(g);
	if (!err)
		keep_wish(g, message, size);
	scene_thread_trigger(g->looker);
	return err;
}

static int find_process(int64_t *pid, const struct guard_asker *by, uint64_t *ret_start_ticks,
			char *message, size_t size)
{
	struct root root;
	int err = root_open(&root, NULL);

	if (err)
		return err;
	err = peer_process_process(&root, *pid, by, pid, ret_start_ticks, message, size);
	root_close(&root);
	return err;
}

static int reserve(void *engine, const char *gpu, uint64_t bytes, int64_t pid, uint64_t ttl_ns,
		   const struct guard_asker *by, uint64_t *ret_id, char *message, size_t size)
{
	struct guard_service *g = engine;
	uint64_t start_ticks = 0;
	char text[160];
	int fd = -1, err;

	if (pid > 0) {
		err = find_process(&pid, by, &start_ticks, message, size);
		if (err)
			return err;
		fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	}
	guard_service_for(g, by->uid);
	err = guard_service_reserve(g, gpu, bytes, pid, ttl_ns, ret_id);
	if (!err) {
		guard_service_room_made(g, *ret_id, fd, start_ticks);
		snprintf(text, sizeof(text), "room for %.0f MiB is wanted",
			 (double)bytes / 1048576);
		audit(g, by->who, text);
	} else if (fd >= 0) {
		close(fd);
	}
	guard_service_pump(g);
	scene_thread_trigger(g->looker);
	return err;
}

static int reserved(void *engine, uint64_t id, char *message, size_t size)
{
	struct guard_service *g = engine;

	return guard_reservation_ready(g->guard, id, message, size);
}

static void release_room(void *engine, uint64_t id)
{
	guard_service_room_release(engine, id);
}

/* A user whose workers left too often waits with games as with every other wish. */
static int may_play(struct guard_service *g, int64_t *pid, const struct guard_asker *by,
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
	root_close(&root);
	if (err)
		return err;
	return guard_user_wait_ns(g->guard, by->uid, guarding_time_ns(g)) ? -GW_E_PERM : 0;
}

/* It is in the file before it is answered, unless the disk takes its time. */
static void keep_game(struct guard_service *g, int64_t pid, bool kept)
{
	int err = kept ? store_flush(g->config.store, KEEP_NS) : -GW_E_SIZE;

	if (!store_lasting(g->config.store) || (err && err != -GW_E_TIMEOUT))
		guard_service_log(g, "warning",
				  "the game of process %lld could not be kept in the file: a "
				  "restart of the service forgets it",
				  (long long)pid);
}

static int game(void *engine, int64_t *pid, uint64_t ttl_ns, const struct guard_asker *by,
		char *message, size_t size)
{
	struct guard_service *g = engine;
	uint64_t start_ticks;
	int err = may_play(g, pid, by, &start_ticks, message, size);
	bool kept = false;
	char text[80];

	if (err)
		return err;
	guard_service_for(g, by->uid);
	err = guard_inputs_game(g->beside, *pid, start_ticks, ttl_ns, by->uid, by->who, &kept);
	guard_service_for(g, -1); /* where nothing began */
	snprintf(text, sizeof(text), "process %lld plays", (long long)*pid);
	if (!err) {
		audit(g, by->who, text);
		keep_game(g, *pid, kept);
	} else if (err == -GW_E_ARG)
		snprintf(message, size, "process %lld has ended", (long long)*pid);
	return err;
}

static int game_end(void *engine, int64_t pid, const struct guard_asker *by)
{
	struct guard_service *g = engine;

	return guard_inputs_game_end(g->beside, pid, by->uid);
}

const struct guard_view_ops guarding_ops = { ask,
					     reserve,
					     reserved,
					     release_room,
					     game,
					     game_end,
					     guard_service_clear,
					     guard_text_policy };
