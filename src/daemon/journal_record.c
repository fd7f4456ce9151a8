#include "journal_record.h"

#include "base/json.h"
#include "base/root.h"

void guard_record_boot(char out[static 64])
{
	struct root root;

	out[0] = '\0';
	if (root_open(&root, NULL) != 0)
		return;
	if (root_read_line(&root, "proc/sys/kernel/random/boot_id", out, 64) < 0)
		out[0] = '\0';
	root_close(&root);
}

static void add_process(struct json *j, int64_t pid, uint64_t start_ticks)
{
	json_array(j, NULL);
	json_int(j, NULL, pid);
	json_uint(j, NULL, start_ticks);
	json_array_end(j);
}

void guard_record_write(struct buf *out, const struct guard_record *r,
			const struct guard_record_more *more)
{
	struct json j;
	char boot[64];

	guard_record_boot(boot);
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "worker", r->worker);
	json_uint(&j, "mask", r->mask);
	json_uint(&j, "level", r->level);
	json_bool(&j, "evicted", r->evicted);
	json_uint(&j, "need_bytes", r->need_bytes);
	json_uint(&j, "hold", r->hold);
	json_uint(&j, "hold_until_wall_ns", r->hold_until_wall_ns);
	json_uint(&j, "wall_ns", r->wall_ns);
	json_array(&j, "gpus");
	for (unsigned i = 0; i < r->gpus; i++) {
		json_array(&j, NULL);
		json_string(&j, NULL, r->gpu[i].uuid);
		json_uint(&j, NULL, r->gpu[i].need_bytes);
		json_array_end(&j);
	}
	json_array_end(&j);
	json_string(&j, "boot", boot); /* in which processes have a meaning */
	json_array(&j, "put_away");
	for (unsigned i = 0; i < r->put_away_count; i++)
		add_process(&j, r->put_away[i].pid, r->put_away[i].start_ticks);
	json_array_end(&j);
	json_array(&j, "roots");
	for (unsigned i = 0; i < r->roots; i++)
		add_process(&j, r->root[i].pid, r->root[i].start_ticks);
	json_array_end(&j);
	json_string(&j, "kind", more->kind);
	json_string(&j, "notes", more->notes);
	json_object_end(&j);
	json_end(&j);
}

void guard_room_write(struct buf *out, const struct guard_room_record *r)
{
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_uint(&j, "id", r->room.id);
	json_string(&j, "gpu", r->room.gpu);
	json_uint(&j, "bytes", r->room.bytes);
	json_int(&j, "pid", r->room.pid);
	json_uint(&j, "start_ticks", r->start_ticks);
	json_uint(&j, "until_wall_ns", r->until_wall_ns);
	json_object_end(&j);
	json_end(&j);
}

void guard_game_write(struct buf *out, const struct guard_game_record *r)
{
	struct json j;
	char boot[64];

	guard_record_boot(boot);
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "boot", boot);
	json_int(&j, "pid", r->game.pid);
	json_uint(&j, "start_ticks", r->start_ticks);
	json_int(&j, "uid", r->game.uid);
	json_uint(&j, "since_ns", r->game.since_ns);
	if (r->game.until_ns != UINT64_MAX)
		json_uint(&j, "until_ns", r->game.until_ns);
	json_string(&j, "who", r->game.who);
	json_object_end(&j);
	json_end(&j);
}
