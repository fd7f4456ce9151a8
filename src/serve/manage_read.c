/* manage_read: the reading half of manage_doc, with jansson, which uses the names of
 * base/json.h: the two cannot be included together. */
#include "manage_doc.h"

#include "base/suggest.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The keys of a setting's value. */
struct key {
	const char *name;
	int at; /* index in value */
};
static const struct key keys[MANAGE_WHATS][2] = {
	[MANAGE_PERSISTENCE] = { { "enabled", 0 } },
	[MANAGE_POWER_LIMIT] = { { "watts", 0 } },
	[MANAGE_COMPUTE_MODE] = { { "mode", 0 } },
	[MANAGE_GPU_CLOCKS] = { { "min_hertz", 0 }, { "max_hertz", 1 } },
	[MANAGE_MEMORY_CLOCKS] = { { "min_hertz", 0 }, { "max_hertz", 1 } },
};

/* Values of GW_Q_COMPUTE_MODE; 1 (exclusive_thread) is obsolete. */
static const char *const modes[] = { "default", NULL, "prohibited", "exclusive_process" };
#define MODES (sizeof(modes) / sizeof(modes[0]))

static const char *wanted(enum manage_what what)
{
	switch (what) {
	case MANAGE_PERSISTENCE: return "true or false";
	case MANAGE_COMPUTE_MODE: return "\"default\", \"exclusive_process\" or \"prohibited\"";
	default: return "a number";
	}
}

static bool read_one(enum manage_what what, const json_t *v, double *ret)
{
	if (what == MANAGE_PERSISTENCE) {
		*ret = json_is_true(v);
		return json_is_boolean(v);
	}
	if (what != MANAGE_COMPUTE_MODE) {
		*ret = json_number_value(v);
		return json_is_number(v);
	}
	for (size_t i = 0; json_is_string(v) && i < MODES; i++)
		if (modes[i] && strcmp(modes[i], json_string_value(v)) == 0) {
			*ret = (double)i;
			return true;
		}
	return false;
}

/* ---- stored records ---- */

static int read_kept(enum manage_what what, const json_t *o, double ret[2])
{
	ret[0] = ret[1] = NAN;
	if (!json_is_object(o))
		return -GW_E_PARSE;
	for (unsigned i = 0; i < manage_info(what)->values; i++) {
		const json_t *v = json_object_get(o, keys[what][i].name);

		if (!v || (!json_is_null(v) && !read_one(what, v, &ret[keys[what][i].at])))
			return -GW_E_PARSE;
	}
	return 0;
}

static int read_entry(const json_t *doc, const char *id, struct manage_entry *e)
{
	const char *slash = strrchr(id, '/');
	const json_t *earlier = json_object_get(doc, "earlier"),
		     *who = json_object_get(doc, "who"),
		     *wall = json_object_get(doc, "wall_ns");

	if (!slash || (size_t)(slash - id) >= sizeof(e->uuid))
		return -GW_E_PARSE;
	*e = (struct manage_entry){ .what = manage_find(slash + 1), .earlier = { NAN, NAN } };
	memcpy(e->uuid, id, (size_t)(slash - id));
	if (e->what >= MANAGE_WHATS || manage_info(e->what)->values == 0 ||
	    read_kept(e->what, json_object_get(doc, "before"), e->before) != 0 ||
	    read_kept(e->what, json_object_get(doc, "after"), e->after) != 0 ||
	    (earlier && read_kept(e->what, earlier, e->earlier) != 0))
		return -GW_E_PARSE;
	if (json_is_string(who))
		utf8_clean(e->who, sizeof(e->who), json_string_value(who));
	if (json_is_integer(wall))
		e->wall_ns = (uint64_t)json_integer_value(wall);
	return 0;
}

int manage_entry_read(const char *id, const char *json, struct manage_entry *ret)
{
	json_t *doc = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
	struct manage_entry e;
	int err = read_entry(doc, id, &e);

	json_decref(doc);
	if (!err)
		*ret = e;
	return err;
}

/* ---- requests ---- */

/* The driver accepts whole MHz. Values out of range are refused elsewhere. */
static bool is_whole(enum manage_what what, double v)
{
	if (manage_info(what)->values != 2 || !(v >= 0 && v < 1e15))
		return true;
	return v == (double)(uint64_t)(v / 1e6) * 1e6;
}

static int unknown_key(const char *name, const struct manage_order *o, char *message,
		       size_t size)
{
	const char *known[] = { keys[o->what][0].name, keys[o->what][1].name, "keep" };
	const char *near = suggest(name, known, 3, sizeof(known[0]));
	char clean[64];

	utf8_clean(clean, sizeof(clean), name);
	snprintf(message, size, "%s has no key \"%s\"%s%s%s", manage_info(o->what)->word, clean,
		 near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
	return -GW_E_ARG;
}

static int read_key(const char *name, const json_t *v, struct manage_order *o, char *message,
		    size_t size)
{
	if (strcmp(name, "keep") == 0) {
		o->keep = json_is_true(v);
		if (json_is_boolean(v))
			return 0;
		snprintf(message, size, "\"keep\" must be true or false");
		return -GW_E_ARG;
	}
	for (unsigned i = 0; i < manage_info(o->what)->values; i++) {
		const struct key *k = &keys[o->what][i];

		if (strcmp(name, k->name) != 0)
			continue;
		if (!read_one(o->what, v, &o->value[k->at]))
			snprintf(message, size, "\"%s\" must be %s", name, wanted(o->what));
		else if (!is_whole(o->what, o->value[k->at]))
			snprintf(message, size,
				 "\"%s\" must be whole MHz: a multiple of 1000000, not %.15g",
				 name, o->value[k->at]);
		else
			return 0;
		return -GW_E_ARG;
	}
	return unknown_key(name, o, message, size);
}

static int read_body(json_t *doc, struct manage_order *o, char *message, size_t size)
{
	const char *name;
	json_t *v;

	o->value[0] = o->value[1] = NAN;
	o->keep = false;
	json_object_foreach(doc, name, v)
	{
		int err = read_key(name, v, o, message, size);

		if (err)
			return err;
	}
	for (unsigned i = 0; i < manage_info(o->what)->values; i++) {
		const struct key *k = &keys[o->what][i];

		if (!isnan(o->value[k->at]))
			continue;
		snprintf(message, size, "%s needs \"%s\": %s", manage_info(o->what)->word,
			 k->name, wanted(o->what));
		return -GW_E_ARG;
	}
	return 0;
}

int manage_body_read(const char *body, size_t size, struct manage_order *o, char *message,
		     size_t message_size)
{
	json_error_t why;
	json_t *doc = json_loadb(body, size, JSON_REJECT_DUPLICATES, &why);
	char clean[JSON_ERROR_TEXT_LENGTH];
	int err = -GW_E_PARSE;

	if (!doc) {
		utf8_clean(clean, sizeof(clean), why.text);
		snprintf(message, message_size, "the body is not JSON: line %d, column %d: %s",
			 why.line, why.column, clean);
	} else if (!json_is_object(doc)) {
		snprintf(message, message_size, "the body must be a JSON object");
	} else {
		err = read_body(doc, o, message, message_size);
	}
	json_decref(doc);
	return err;
}
