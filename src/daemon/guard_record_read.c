/* The reading half of guard_record, with jansson, whose names are those of base/json.h. */
#include "guard_record.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void read_put_away(const json_t *list, struct guard_record *r)
{
	size_t n = json_array_size(list);

	for (size_t i = 0; i < n && i < sizeof(r->put_away) / sizeof(r->put_away[0]); i++) {
		const json_t *pair = json_array_get(list, i);

		r->put_away[i].pid = json_integer_value(json_array_get(pair, 0));
		r->put_away[i].start_ticks =
			(uint64_t)json_integer_value(json_array_get(pair, 1));
		r->put_away_count++;
	}
}

static void read_gpus(const json_t *list, struct guard_record *r)
{
	size_t n = json_array_size(list);

	for (size_t i = 0; i < n && i < sizeof(r->gpu) / sizeof(r->gpu[0]); i++) {
		const json_t *pair = json_array_get(list, i);
		const char *uuid = json_string_value(json_array_get(pair, 0));

		snprintf(r->gpu[i].uuid, sizeof(r->gpu[i].uuid), "%s", uuid ? uuid : "");
		r->gpu[i].need_bytes = (uint64_t)json_integer_value(json_array_get(pair, 1));
		r->gpus++;
	}
}

int guard_record_read(const char *text, struct guard_record *ret, char *notes, size_t size)
{
	json_t *o = json_loads(text, 0, NULL);
	const char *worker = json_string_value(json_object_get(o, "worker"));
	const char *said = json_string_value(json_object_get(o, "notes"));

	if (!worker) {
		json_decref(o);
		return -GW_E_PARSE;
	}
	memset(ret, 0, sizeof(*ret));
	snprintf(ret->worker, sizeof(ret->worker), "%s", worker);
	ret->mask = (uint32_t)number(o, "mask");
	ret->level = (unsigned)number(o, "level");
	ret->evicted = json_is_true(json_object_get(o, "evicted"));
	ret->need_bytes = number(o, "need_bytes");
	ret->hold = (enum guard_hold)number(o, "hold");
	ret->hold_until_wall_ns = number(o, "hold_until_wall_ns");
	ret->wall_ns = number(o, "wall_ns");
	read_gpus(json_object_get(o, "gpus"), ret);
	read_put_away(json_object_get(o, "put_away"), ret);
	snprintf(notes, size, "%s", said ? said : "");
	json_decref(o);
	return 0;
}

int guard_room_read(const char *text, struct guard_room_record *ret)
{
	json_t *o = json_loads(text, 0, NULL);
	const char *gpu = json_string_value(json_object_get(o, "gpu"));

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->room.gpu, sizeof(ret->room.gpu), "%s", gpu ? gpu : "");
	ret->room.id = number(o, "id");
	ret->room.bytes = number(o, "bytes");
	ret->room.pid = (int64_t)number(o, "pid");
	ret->start_ticks = number(o, "start_ticks");
	ret->until_wall_ns = number(o, "until_wall_ns");
	json_decref(o);
	return *ret->room.gpu && ret->room.id && ret->room.bytes ? 0 : -GW_E_PARSE;
}
