/* The reading half of guard_record, with jansson, whose names are those of base/json.h. */
#include "journal_record.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define BYTES_MAX (INT64_C(1) << 60)
#define NOBODY    INT64_MAX /* a start time that no process has */

/* What a damaged file says instead of a number in its bounds is 0. */
static uint64_t bounded(const json_t *v, int64_t max)
{
	json_int_t n = json_integer_value(v);

	return n >= 0 && n <= max ? (uint64_t)n : 0;
}

static uint64_t number(const json_t *o, const char *key, int64_t max)
{
	return bounded(json_object_get(o, key), max);
}

/* Of another start of the machine: whoever has that number and time now is a stranger. */
static bool is_old(const json_t *o)
{
	const char *boot = json_string_value(json_object_get(o, "boot"));
	char now[64];

	guard_record_boot(now);
	return boot && boot[0] && now[0] && strcmp(boot, now) != 0;
}

static void read_put_away(const json_t *list, bool old, struct guard_record *r)
{
	size_t n = json_array_size(list);

	for (size_t i = 0;
	     i < n && r->put_away_count < sizeof(r->put_away) / sizeof(r->put_away[0]); i++) {
		const json_t *pair = json_array_get(list, i);
		uint64_t pid = bounded(json_array_get(pair, 0), INT32_MAX);
		uint64_t ticks = bounded(json_array_get(pair, 1), INT64_MAX);

		if (pid <= 1 || !ticks)
			continue;
		r->put_away[r->put_away_count].pid = (int64_t)pid;
		r->put_away[r->put_away_count++].start_ticks = old ? NOBODY : ticks;
	}
}

static void read_roots(const json_t *list, struct guard_record *r)
{
	size_t n = json_array_size(list);

	for (size_t i = 0; i < n && r->roots < GUARD_ROOTS; i++) {
		const json_t *pair = json_array_get(list, i);
		uint64_t pid = bounded(json_array_get(pair, 0), INT32_MAX);

		if (pid <= 1)
			continue;
		r->root[r->roots].pid = (int64_t)pid;
		r->root[r->roots++].start_ticks = bounded(json_array_get(pair, 1), INT64_MAX);
	}
}

static void read_gpus(const json_t *list, struct guard_record *r)
{
	size_t n = json_array_size(list);

	for (size_t i = 0; i < n && r->gpus < sizeof(r->gpu) / sizeof(r->gpu[0]); i++) {
		const json_t *pair = json_array_get(list, i);
		const char *uuid = json_string_value(json_array_get(pair, 0));

		if (!uuid || !uuid[0])
			continue;
		snprintf(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", uuid);
		r->gpu[r->gpus++].need_bytes = bounded(json_array_get(pair, 1), BYTES_MAX);
	}
}

static void text_of(const json_t *o, const char *key, char *out, size_t size)
{
	const char *said = json_string_value(json_object_get(o, key));

	snprintf(out, size, "%s", said ? said : "");
}

int guard_record_read(const char *text, struct guard_record *ret,
		      struct guard_record_more *more)
{
	json_t *o = json_loads(text, 0, NULL);
	const char *worker = json_string_value(json_object_get(o, "worker"));

	if (!worker) {
		json_decref(o);
		return -GW_E_PARSE;
	}
	memset(ret, 0, sizeof(*ret));
	snprintf(ret->worker, sizeof(ret->worker), "%s", worker);
	ret->mask =
		(uint32_t)number(o, "mask", UINT32_MAX) & ((UINT32_C(1) << GUARD_REASONS) - 1);
	ret->level = (unsigned)number(o, "level", 6);
	ret->evicted = json_is_true(json_object_get(o, "evicted"));
	ret->need_bytes = number(o, "need_bytes", BYTES_MAX);
	ret->hold = (enum guard_hold)number(o, "hold", HOLD_ACTIVE);
	ret->hold_until_wall_ns = number(o, "hold_until_wall_ns", INT64_MAX);
	ret->wall_ns = number(o, "wall_ns", INT64_MAX);
	read_gpus(json_object_get(o, "gpus"), ret);
	more->past = is_old(o);
	read_put_away(json_object_get(o, "put_away"), more->past, ret);
	if (!more->past)
		read_roots(json_object_get(o, "roots"), ret);
	text_of(o, "kind", more->kind, sizeof(more->kind));
	text_of(o, "notes", more->notes, sizeof(more->notes));
	json_decref(o);
	return 0;
}

int guard_room_read(const char *text, struct guard_room_record *ret)
{
	json_t *o = json_loads(text, 0, NULL);
	const char *gpu = json_string_value(json_object_get(o, "gpu"));

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->room.gpu, sizeof(ret->room.gpu), "%s", gpu ? gpu : "");
	ret->room.id = number(o, "id", INT64_MAX);
	ret->room.bytes = number(o, "bytes", BYTES_MAX);
	ret->room.pid = (int64_t)number(o, "pid", INT32_MAX);
	ret->start_ticks = number(o, "start_ticks", INT64_MAX);
	ret->until_wall_ns = number(o, "until_wall_ns", INT64_MAX);
	json_decref(o);
	return *ret->room.gpu && ret->room.id && ret->room.bytes ? 0 : -GW_E_PARSE;
}

int guard_game_read(const char *text, struct guard_game_record *ret)
{
	json_t *o = json_loads(text, 0, NULL);
	const json_t *uid = json_object_get(o, "uid");
	bool good = o && !is_old(o);

	memset(ret, 0, sizeof(*ret));
	ret->game.pid = (int64_t)number(o, "pid", INT32_MAX);
	ret->game.uid = json_is_integer(uid) ? json_integer_value(uid) : -1;
	ret->game.since_ns = number(o, "since_ns", INT64_MAX);
	ret->game.until_ns =
		json_object_get(o, "until_ns") ? number(o, "until_ns", INT64_MAX) : UINT64_MAX;
	ret->start_ticks = number(o, "start_ticks", INT64_MAX);
	text_of(o, "who", ret->game.who, sizeof(ret->game.who));
	json_decref(o);
	return good && ret->game.pid > 1 && ret->start_ticks ? 0 : -GW_E_PARSE;
}
