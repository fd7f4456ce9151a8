/* guard_mode: the mode that a person sets while the service runs.
 *
 * It is state, not configuration: a document in the store that outlives restarts and reloads,
 * until a person returns to the configured mode. A change takes effect like a reload that only
 * changes the mode, so that an order under way finishes first and a recording has the change. */
#include "guard_service_parts.h"

#include "base/json.h"
#include "base/json_doc.h"

#include <stdio.h>
#include <string.h>

#define KIND "guard-mode" /* kind of the document in the store */
#define ID   "mode"

static bool mode_find(const char *word, enum guard_mode *ret)
{
	for (unsigned m = 0; word && guard_modes[m]; m++) {
		if (strcmp(guard_modes[m], word) != 0)
			continue;
		*ret = (enum guard_mode)m;
		return true;
	}
	return false;
}

static void load_mode(void *arg, const char *id, const char *json)
{
	struct guard_view_mode *m = arg;
	struct json_doc *o = NULL;
	char ignored[160];
	int64_t wall_ns = 0;

	(void)id;
	if (json_doc_new(json, strlen(json), &o, ignored, sizeof(ignored)) != 0)
		return;
	if (mode_find(json_doc_string(o, "mode"), &m->mode)) {
		const char *who = json_doc_string(o, "who");

		m->chosen = true;
		if (json_doc_integer(o, "wall_ns", &wall_ns) && wall_ns > 0)
			m->wall_ns = (uint64_t)wall_ns;
		snprintf(m->who, sizeof(m->who), "%s", who ? who : "");
	}
	json_doc_free(o);
}

void guard_mode_load(struct guard_service *g)
{
	store_each_document(g->config.store, KIND, 1, load_mode, &g->mode);
	if (g->mode.chosen)
		guard_service_log(g, "info",
				  "the guard's mode is %s, set at run time by %s; gpuward "
				  "guard mode config returns to the configured mode",
				  guard_modes[g->mode.mode], g->mode.who);
}

void guard_mode_fit(const struct guard_service *g, struct guard_settings *s)
{
	s->policy.mode = g->mode.chosen ? g->mode.mode : s->configured;
}

static void store_mode(struct guard_service *g)
{
	char text[2048];
	struct buf out;
	struct json j;

	buf_init_fixed(&out, text, sizeof(text));
	json_init(&j, &out, false);
	json_object(&j, NULL);
	json_string(&j, "mode", guard_modes[g->mode.mode]);
	json_string(&j, "who", g->mode.who);
	json_uint(&j, "wall_ns", g->mode.wall_ns);
	json_object_end(&j);
	json_end(&j);
	if (out.err || store_put_document(g->config.store, KIND, ID, out.p, out.len) != 0)
		g->journal.failed = true;
}

void guard_mode_choose(struct guard_service *g, const enum guard_mode *mode, const char *who)
{
	g->mode = (struct guard_view_mode){ .configured = g->settings->configured };
	if (mode) {
		g->mode.chosen = true;
		g->mode.mode = *mode;
		g->mode.wall_ns = clock_wall_ns(g->config.clock);
		snprintf(g->mode.who, sizeof(g->mode.who), "%s", who);
		store_mode(g);
	} else {
		store_delete_document(g->config.store, KIND, ID);
	}
	g->journal.writing = true;
	guard_service_commit(g);
}
