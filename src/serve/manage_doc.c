#include "manage_doc.h"

#include "base/json.h"
#include "base/json_doc.h"
#include "base/suggest.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void manage_entry_id(const struct manage_entry *e, char out[static MANAGE_DOC_ID_SIZE])
{
	snprintf(out, MANAGE_DOC_ID_SIZE, "%s/%s", e->uuid, manage_info(e->what)->word);
}

void manage_value_write(struct json *j, const char *key, enum manage_what what,
			const double v[2])
{
	char mode[32];

	json_object(j, key);
	switch (what) {
	case MANAGE_PERSISTENCE:
		if (isnan(v[0]))
			json_null(j, "enabled");
		else
			json_bool(j, "enabled", v[0] != 0);
		break;
	case MANAGE_POWER_LIMIT: json_double(j, "watts", v[0]); break;
	case MANAGE_COMPUTE_MODE:
		manage_text(what, v, mode, sizeof(mode));
		json_string(j, "mode", isnan(v[0]) ? NULL : mode);
		break;
	case MANAGE_CLEAR_ECC:
		json_double(j, "corrected_errors", v[0]);
		json_double(j, "uncorrected_errors", v[1]);
		break;
	default: json_double(j, "min_hertz", v[0]); json_double(j, "max_hertz", v[1]);
	}
	json_object_end(j);
}

void manage_entry_write(struct buf *out, const struct manage_entry *e)
{
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "uuid", e->uuid);
	json_string(&j, "setting", manage_info(e->what)->word);
	manage_value_write(&j, "before", e->what, e->before);
	manage_value_write(&j, "after", e->what, e->after);
	if (!isnan(e->earlier[0]))
		manage_value_write(&j, "earlier", e->what, e->earlier);
	json_string(&j, "who", e->who);
	json_time(&j, "time_utc", e->wall_ns);
	json_uint(&j, "wall_ns", e->wall_ns);
	json_object_end(&j);
	json_end(&j);
}

/* One key of a setting's value. */
struct key {
	const char *name;
	int at; /* index in manage_change.value */
};
static const struct key keys[MANAGE_WHATS][2] = {
	[MANAGE_PERSISTENCE] = { { "enabled", 0 } },
	[MANAGE_POWER_LIMIT] = { { "watts", 0 } },
	[MANAGE_COMPUTE_MODE] = { { "mode", 0 } },
	[MANAGE_GPU_CLOCKS] = { { "min_hertz", 0 }, { "max_hertz", 1 } },
	[MANAGE_MEMORY_CLOCKS] = { { "min_hertz", 0 }, { "max_hertz", 1 } },
};

/* Words for GW_Q_COMPUTE_MODE, by value. Value 1 (exclusive_thread) is obsolete. */
static const char *const modes[] = { "default", NULL, "prohibited", "exclusive_process" };
#define MODES (sizeof(modes) / sizeof(modes[0]))

static const char *wanted_type(enum manage_what what)
{
	switch (what) {
	case MANAGE_PERSISTENCE: return "true or false";
	case MANAGE_COMPUTE_MODE: return "\"default\", \"exclusive_process\" or \"prohibited\"";
	default: return "a number";
	}
}

static bool read_one(enum manage_what what, const struct json_doc *v, double *ret)
{
	if (what == MANAGE_PERSISTENCE) {
		*ret = json_doc_true(v, "");
		return json_doc_type(v, "") == JSON_DOC_BOOL;
	}
	if (what != MANAGE_COMPUTE_MODE) {
		*ret = json_doc_number(v, "");
		return json_doc_is_number(v, "");
	}
	for (size_t i = 0; json_doc_string(v, "") && i < MODES; i++)
		if (modes[i] && strcmp(modes[i], json_doc_string(v, "")) == 0) {
			*ret = (double)i;
			return true;
		}
	return false;
}

static int read_kept(enum manage_what what, const struct json_doc *o, double ret[2])
{
	ret[0] = ret[1] = NAN;
	if (json_doc_type(o, "") != JSON_DOC_OBJECT)
		return -GW_E_PARSE;
	for (unsigned i = 0; i < manage_info(what)->values; i++) {
		const struct json_doc *v = json_doc_get(o, keys[what][i].name);

		if (!v || (json_doc_type(v, "") != JSON_DOC_NULL &&
			   !read_one(what, v, &ret[keys[what][i].at])))
			return -GW_E_PARSE;
	}
	return 0;
}

static int read_entry(const struct json_doc *doc, const char *id, struct manage_entry *e)
{
	const char *slash = strrchr(id, '/');
	const struct json_doc *earlier = json_doc_get(doc, "earlier");
	const char *who = json_doc_string(doc, "who");
	int64_t wall_ns;

	if (!slash || (size_t)(slash - id) >= sizeof(e->uuid))
		return -GW_E_PARSE;
	*e = (struct manage_entry){ .what = manage_find(slash + 1), .earlier = { NAN, NAN } };
	memcpy(e->uuid, id, (size_t)(slash - id));
	if (e->what >= MANAGE_WHATS || manage_info(e->what)->values == 0 ||
	    read_kept(e->what, json_doc_get(doc, "before"), e->before) != 0 ||
	    read_kept(e->what, json_doc_get(doc, "after"), e->after) != 0 ||
	    (earlier && read_kept(e->what, earlier, e->earlier) != 0))
		return -GW_E_PARSE;
	if (who)
		utf8_clean(e->who, sizeof(e->who), who);
	if (json_doc_integer(doc, "wall_ns", &wall_ns))
		e->wall_ns = (uint64_t)wall_ns;
	return 0;
}

int manage_entry_read(const char *id, const char *json, struct manage_entry *ret)
{
	struct json_doc *doc = NULL;
	struct manage_entry e = { 0 };
	char unused[200];
	int err = json_doc_new_strict(json, strlen(json), &doc, unused, sizeof(unused));

	if (!err)
		err = read_entry(doc, id, &e);
	json_doc_free(doc);
	if (!err)
		*ret = e;
	return err;
}

/* Returns false for a clock that is not a whole number of MHz, because the driver requires
 * that. Returns true for all other settings. Also returns true for a clock that is out of
 * range, because another check refuses such a clock. */
static bool is_whole(enum manage_what what, double v)
{
	if (manage_info(what)->values != 2 || !(v >= 0 && v < 1e15))
		return true;
	return v == (double)(uint64_t)(v / 1e6) * 1e6;
}

static int unknown_key(const char *name, const struct manage_change *o, char *message,
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

static int read_key(const char *name, const struct json_doc *v, struct manage_change *o,
		    char *message, size_t size)
{
	if (strcmp(name, "keep") == 0) {
		o->keep = json_doc_true(v, "");
		if (json_doc_type(v, "") == JSON_DOC_BOOL)
			return 0;
		snprintf(message, size, "\"keep\" must be true or false");
		return -GW_E_ARG;
	}
	for (unsigned i = 0; i < manage_info(o->what)->values; i++) {
		const struct key *k = &keys[o->what][i];

		if (strcmp(name, k->name) != 0)
			continue;
		if (!read_one(o->what, v, &o->value[k->at]))
			snprintf(message, size, "\"%s\" must be %s", name,
				 wanted_type(o->what));
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

static int read_body(const struct json_doc *doc, struct manage_change *o, char *message,
		     size_t size)
{
	const struct json_doc *v;
	const char *name;
	void *iter = NULL;

	o->value[0] = o->value[1] = NAN;
	o->keep = false;
	while (json_doc_next(doc, &iter, &name, &v)) {
		int err = read_key(name, v, o, message, size);

		if (err)
			return err;
	}
	for (unsigned i = 0; i < manage_info(o->what)->values; i++) {
		const struct key *k = &keys[o->what][i];

		if (!isnan(o->value[k->at]))
			continue;
		snprintf(message, size, "%s needs \"%s\": %s", manage_info(o->what)->word,
			 k->name, wanted_type(o->what));
		return -GW_E_ARG;
	}
	return 0;
}

int manage_body_read(const char *body, size_t size, struct manage_change *o, char *message,
		     size_t message_size)
{
	struct json_doc *doc = NULL;
	char why[200];
	int err = json_doc_new_strict(body, size, &doc, why, sizeof(why));

	if (err) {
		snprintf(message, message_size, "the body is %s", why);
		return -GW_E_PARSE;
	}
	if (json_doc_type(doc, "") == JSON_DOC_OBJECT) {
		err = read_body(doc, o, message, message_size);
	} else {
		snprintf(message, message_size, "the body must be a JSON object");
		err = -GW_E_PARSE;
	}
	json_doc_free(doc);
	return err;
}
