#include "journal_record.h"

#include "base/json.h"
#include "base/json_doc.h"
#include "base/root.h"

#include <stdio.h>
#include <string.h>

/* Writes the id of this boot, or "" if it is unknown. */
static void guard_record_boot(char out[static 64])
{
	struct root root;

	out[0] = '\0';
	if (root_open(&root, NULL) != 0)
		return;
	if (root_read_line(&root, "proc/sys/kernel/random/boot_id", out, 64) < 0)
		out[0] = '\0';
	root_close(&root);
}

static void add_processes(struct json *j, const char *key, const struct proc_id *id, unsigned n)
{
	json_array(j, key);
	for (unsigned i = 0; i < n; i++) {
		json_array(j, NULL);
		json_int(j, NULL, id[i].pid);
		json_uint(j, NULL, id[i].start_ticks);
		json_array_end(j);
	}
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
	json_uint(&j, "manual_wall_ns", r->manual_wall_ns);
	json_uint(&j, "wall_ns", r->wall_ns);
	json_array(&j, "gpus");
	for (unsigned i = 0; i < r->gpus; i++) {
		json_array(&j, NULL);
		json_string(&j, NULL, r->gpu[i].uuid);
		json_uint(&j, NULL, r->gpu[i].need_bytes);
		json_array_end(&j);
	}
	json_array_end(&j);
	json_string(&j, "boot", boot); /* Pids are only valid within one boot. */
	add_processes(&j, "put_away", r->put_away, r->put_away_count);
	add_processes(&j, "roots", r->root, r->roots);
	json_string(&j, "kind", more->kind);
	json_string(&j, "requested_by", more->requested_by);
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
	json_int(&j, "uid", r->room.uid);
	json_uint(&j, "start_ticks", r->start_ticks);
	json_uint(&j, "until_wall_ns", r->until_wall_ns);
	json_uint(&j, "wall_ns", r->wall_ns);
	json_string(&j, "key", r->key.key);
	json_string(&j, "body", r->key.body);
	json_bool(&j, "granted", r->granted);
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

#define BYTES_MAX (INT64_C(1) << 60)
#define NOBODY    INT64_MAX /* A start time that no process has. */

/* Returns NULL if text is not JSON. */
static struct json_doc *parse_object(const char *text)
{
	struct json_doc *o = NULL;
	char message[160];

	return json_doc_new(text, strlen(text), &o, message, sizeof(message)) == 0 ? o : NULL;
}

/* Returns element i of an array, with the same checks as json_doc_uint(). */
static uint64_t number_at(const struct json_doc *list, size_t i, int64_t max)
{
	return json_doc_uint(json_doc_at(list, "", i), "", max);
}

/* True if the record is from an earlier boot. A process that has the recorded pid and start
 * time in this boot is a different process. */
static bool is_old(const struct json_doc *o)
{
	const char *boot = json_doc_string(o, "boot");
	char now[64];

	guard_record_boot(now);
	return boot && boot[0] && now[0] && strcmp(boot, now) != 0;
}

/* Reads pairs of pid and start time. Skips invalid pids and start times below least_ticks.
 * Returns the number of processes in ret. */
static unsigned read_processes(const struct json_doc *list, uint64_t least_ticks,
			       struct proc_id *ret, unsigned most)
{
	const size_t n = json_doc_count(list, "");
	unsigned count = 0;

	for (size_t i = 0; i < n && count < most; i++) {
		const struct json_doc *pair = json_doc_at(list, "", i);
		const struct proc_id id = { (int64_t)number_at(pair, 0, INT32_MAX),
					    number_at(pair, 1, INT64_MAX) };

		if (id.pid > 1 && id.start_ticks >= least_ticks)
			ret[count++] = id;
	}
	return count;
}

static void read_gpus(const struct json_doc *list, struct guard_record *r)
{
	size_t n = json_doc_count(list, "");

	for (size_t i = 0; i < n && r->gpus < sizeof(r->gpu) / sizeof(r->gpu[0]); i++) {
		const struct json_doc *pair = json_doc_at(list, "", i);
		const char *uuid = json_doc_string(json_doc_at(pair, "", 0), "");

		if (!uuid || !uuid[0])
			continue;
		snprintf(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", uuid);
		r->gpu[r->gpus++].need_bytes = number_at(pair, 1, BYTES_MAX);
	}
}

int guard_record_read(const char *text, struct guard_record *ret,
		      struct guard_record_more *more)
{
	struct json_doc *o = parse_object(text);
	const char *worker = json_doc_string(o, "worker");

	if (!worker) {
		json_doc_free(o);
		return -GW_E_PARSE;
	}
	memset(ret, 0, sizeof(*ret));
	snprintf(ret->worker, sizeof(ret->worker), "%s", worker);
	ret->mask = (uint32_t)json_doc_uint(o, "mask", UINT32_MAX) &
		    ((UINT32_C(1) << GUARD_REASONS) - 1);
	ret->level = (unsigned)json_doc_uint(o, "level", 6);
	ret->evicted = json_doc_true(o, "evicted");
	ret->need_bytes = json_doc_uint(o, "need_bytes", BYTES_MAX);
	ret->hold = (enum guard_hold)json_doc_uint(o, "hold", HOLD_ACTIVE);
	ret->hold_until_wall_ns = json_doc_uint(o, "hold_until_wall_ns", INT64_MAX);
	ret->manual_wall_ns = json_doc_uint(o, "manual_wall_ns", INT64_MAX);
	ret->wall_ns = json_doc_uint(o, "wall_ns", INT64_MAX);
	read_gpus(json_doc_get(o, "gpus"), ret);
	more->past = is_old(o);
	ret->put_away_count =
		read_processes(json_doc_get(o, "put_away"), 1, ret->put_away, GUARD_TARGETS);
	for (unsigned i = 0; more->past && i < ret->put_away_count; i++)
		ret->put_away[i].start_ticks = NOBODY;
	if (!more->past)
		ret->roots =
			read_processes(json_doc_get(o, "roots"), 0, ret->root, GUARD_ROOTS);
	json_doc_copy(o, "kind", more->kind, sizeof(more->kind));
	json_doc_copy(o, "requested_by", more->requested_by, sizeof(more->requested_by));
	json_doc_copy(o, "notes", more->notes, sizeof(more->notes));
	json_doc_free(o);
	return 0;
}

int guard_room_read(const char *text, struct guard_room_record *ret)
{
	struct json_doc *o = parse_object(text);

	memset(ret, 0, sizeof(*ret));
	json_doc_copy(o, "gpu", ret->room.gpu, sizeof(ret->room.gpu));
	ret->room.id = json_doc_uint(o, "id", INT64_MAX);
	ret->room.bytes = json_doc_uint(o, "bytes", BYTES_MAX);
	ret->room.pid = (int64_t)json_doc_uint(o, "pid", INT32_MAX);
	if (!json_doc_integer(o, "uid", &ret->room.uid))
		ret->room.uid = -1;
	ret->start_ticks = json_doc_uint(o, "start_ticks", INT64_MAX);
	ret->until_wall_ns = json_doc_uint(o, "until_wall_ns", INT64_MAX);
	ret->wall_ns = json_doc_uint(o, "wall_ns", INT64_MAX);
	json_doc_copy(o, "key", ret->key.key, sizeof(ret->key.key));
	json_doc_copy(o, "body", ret->key.body, sizeof(ret->key.body));
	ret->granted = json_doc_true(o, "granted");
	json_doc_free(o);
	return *ret->room.gpu && ret->room.id && ret->room.bytes ? 0 : -GW_E_PARSE;
}

int guard_game_read(const char *text, struct guard_game_record *ret)
{
	struct json_doc *o = parse_object(text);
	bool good = o && !is_old(o);

	memset(ret, 0, sizeof(*ret));
	ret->game.pid = (int64_t)json_doc_uint(o, "pid", INT32_MAX);
	if (!json_doc_integer(o, "uid", &ret->game.uid))
		ret->game.uid = -1;
	ret->game.since_ns = json_doc_uint(o, "since_ns", INT64_MAX);
	ret->game.until_ns = json_doc_get(o, "until_ns")
				     ? json_doc_uint(o, "until_ns", INT64_MAX)
				     : UINT64_MAX;
	ret->start_ticks = json_doc_uint(o, "start_ticks", INT64_MAX);
	json_doc_copy(o, "who", ret->game.who, sizeof(ret->game.who));
	json_doc_free(o);
	return good && ret->game.pid > 1 && ret->start_ticks ? 0 : -GW_E_PARSE;
}
