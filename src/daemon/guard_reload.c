/* guard_reload: replaces the configuration of a running guard.
 *
 * An order that is running finishes with the old configuration. The new configuration waits
 * until no order is running; after HOLD_BACK_NS no new orders start. After the change, a driver
 * call of the scene thread may still use the old policy. So the old settings are freed only
 * when that thread uses the new policy. A mode that a person sets takes effect in the same
 * way. */
#include "guard_service_parts.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/text.h"
#include "device/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If a reload has waited this long, no new orders start, so that the reload can take place. */
#define HOLD_BACK_NS (5 * NS_PER_S)
/* If a reload has waited this long, new orders start again, because a contender may need a
 * GPU. */
#define GIVE_UP_NS (20 * NS_PER_S)

struct retired {
	struct guard_settings *settings;
	struct retired *next;
};

static void settings_free(struct guard_settings *s)
{
	if (s)
		guard_settings_done(s);
	free(s);
}

/* Returns a text that says how a person can resume a worker that the guard no longer manages. A
 * negative kind means that the kind is unknown. */
static const char *how_to_resume(int kind)
{
	static const struct {
		enum policy_trait trait;
		const char *text;
	} ways[] = {
		{ KIND_ATOMIC, "run gpuward guard recover to resume it" },
		{ KIND_UNIT, "start its unit to resume it" },
		{ KIND_CONTAINER, "start its container to resume it" },
		{ KIND_COMMANDS, "run its resume_command to resume it" },
		{ KIND_SIGNALS, "send its resume_signal to resume it" },
		{ KIND_NEEDS_MODEL,
		  "load its model in the admin panel of KoboldCpp to resume it" },
		{ KIND_NEEDS_WAKE,
		  "wake it (vLLM: POST /wake_up, then /resume; SGLang: POST "
		  "/resume_memory_occupation, then /continue_generation) or restart it" },
		{ KIND_LOADS_ON_REQUEST, "it loads again on the next request" },
	};

	for (unsigned i = 0; kind >= 0 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (policy_kind_is((unsigned)kind, ways[i].trait))
			return ways[i].text;
	return kind < 0 ? "resume it by hand" : "load its model again to resume it";
}

static void log_gone(struct guard_service *g, const struct guard_record *r, int kind)
{
	guard_service_log(
		g, "warning",
		"worker %s was removed from the configuration while it is evicted "
		"(level %u): %s, or add the worker to the configuration again, and the "
		"guard resumes it",
		r->worker, r->level, how_to_resume(kind));
}

/* True if the worker of this record may still be evicted. After a reboot, no worker is evicted.
 * If an eviction of this kind of worker stops the process, the worker may still be stopped. A
 * worker of another kind may still be evicted if one of the recorded processes still runs, or
 * if the record has no process. */
static bool may_be_evicted(const struct root *root, const struct guard_record *r,
			   const struct guard_record_more *more, int kind)
{
	if (more->past)
		return false;
	if (kind >= 0 && policy_kind_is((unsigned)kind, KIND_STOPS_PROCESS))
		return true;
	for (unsigned i = 0; i < r->roots; i++)
		if (proc_lives(root, r->root[i].pid, r->root[i].start_ticks) != 0)
			return true;
	return !r->roots;
}

void guard_service_log_missing(struct guard_service *g, const struct guard_service_records *r)
{
	struct root root;

	if (root_open(&root, NULL) != 0)
		return;
	for (unsigned i = 0; i < r->count; i++) {
		const struct guard_record *one = &r->record[i];
		int kind = policy_kind_find(r->more[i].kind);

		if (!one->evicted || policy_find_worker(&g->settings->policy, one->worker) >= 0)
			continue;
		if (may_be_evicted(&root, one, &r->more[i], kind))
			log_gone(g, one, kind);
		else if (one->hold == HOLD_NONE)
			guard_service_forget(g, one->worker);
	}
	root_close(&root);
}

/* Records of the workers that the new configuration removes. The records are copied before the
 * policy changes. */
struct leaving {
	struct guard_record record[POLICY_WORKERS];
	enum policy_kind kind[POLICY_WORKERS];
	unsigned count;
};

static void list_leaving(const struct guard_service *g, struct leaving *l)
{
	const struct policy *old = &g->settings->policy;

	for (unsigned i = 0; i < old->workers; i++) {
		if (policy_find_worker(&g->reload.next->policy, old->worker[i].name) >= 0 ||
		    guard_worker_record(g->guard, i, &l->record[l->count]) != 0)
			continue;
		l->kind[l->count++] = old->worker[i].kind;
	}
}

/* Handles a worker that the new configuration removed. If the worker is evicted or held, its
 * record stays in the store, because a person may later resume the worker or configure it
 * again. */
static void part_with_worker(struct guard_service *g, const struct guard_record *r,
			     enum policy_kind kind)
{
	if (!r->evicted && r->hold == HOLD_NONE) {
		guard_service_forget(g, r->worker);
		return;
	}
	if (guard_service_store_record(g, r) != 0)
		guard_service_log(g, "error",
				  "the record of worker %s, which was removed from the "
				  "configuration, cannot be stored: the journal is full",
				  r->worker);
	if (r->evicted)
		log_gone(g, r, (int)kind);
}

static void move_decisions(struct guard_service *g, const int *now)
{
	const struct guard_view *v = &g->view;
	unsigned n = 0;

	for (unsigned i = 0; i < v->decisions; i++) {
		struct guard_view_decision d =
			g->journal.ring[(v->first + i) % GUARD_VIEW_DECISIONS];

		if (now[d.decision.worker] < 0)
			continue;
		d.decision.worker = (unsigned)now[d.decision.worker];
		g->journal.ring[(v->first + n++) % GUARD_VIEW_DECISIONS] = d;
	}
	g->view.decisions = n;
}

static bool same_settings(const struct guard_settings *a, const struct guard_settings *b)
{
	return policy_same(&a->policy, &b->policy) && a->health_enabled == b->health_enabled &&
	       memcmp(&a->health, &b->health, sizeof(a->health)) == 0 &&
	       a->health_interval_ns == b->health_interval_ns &&
	       a->capacity_enabled == b->capacity_enabled &&
	       memcmp(&a->budget, &b->budget, sizeof(a->budget)) == 0 &&
	       text_same(a->record, b->record) && a->record_limit == b->record_limit;
}

static void release_retired(struct guard_service *g)
{
	while (g->reload.retired) {
		struct retired *r = g->reload.retired;

		g->reload.retired = r->next;
		settings_free(r->settings);
		free(r);
	}
}

static void apply_settings(struct guard_service *g, struct retired *place,
			   const struct guard_service_records *records)
{
	struct guard_settings *old = g->settings, *next = g->reload.next;
	int now[POLICY_WORKERS], from[POLICY_WORKERS];
	struct scene_builder_formers formers;
	unsigned fresh = 0, left = 0;
	bool news = !same_settings(old, next);

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		now[i] = i < old->policy.workers
				 ? policy_find_worker(&next->policy, old->policy.worker[i].name)
				 : -1;
	for (unsigned i = 0; i < next->policy.workers; i++) {
		from[i] = policy_find_worker(&old->policy, next->policy.worker[i].name);
		fresh += from[i] < 0;
	}
	for (unsigned i = 0; i < old->policy.workers; i++)
		left += now[i] < 0;
	move_decisions(g, now);
	if (g->journal.unsaved) /* The worker indices changed. Mark all records as unsaved. */
		g->journal.unsaved = UINT32_MAX;
	action_policy(g->action, &next->policy, from);
	guard_service_formers(records, &next->policy, &formers);
	scene_thread_policy(g->scenes, &next->policy, &formers);
	g->settings = next;
	g->reload.next = NULL;
	guard_counts_load(&g->tally, g->config.store, &next->policy);
	guard_moves_load(&g->moves, g->config.store, &next->policy);
	for (unsigned i = 0; i < next->policy.workers; i++)
		if (from[i] < 0)
			guard_service_give_notes(g, records, i);
	guard_service_record_open(g);
	*place = (struct retired){ old, g->reload.retired };
	g->reload.retired = place;
	guard_service_health_swapped(g);
	if (news && g->reload.mode_only)
		guard_service_log(g, "info", "the guard's mode is now %s",
				  guard_modes[next->policy.mode]);
	else if (news)
		guard_service_log(g, "info",
				  "the guard uses the new configuration: %u worker%s, %u "
				  "added, %u removed",
				  next->policy.workers, next->policy.workers == 1 ? "" : "s",
				  fresh, left);
}

/* All memory and data that the change needs. All of it is prepared first, so that the change
 * itself cannot fail halfway. */
struct change {
	struct retired *place;
	struct guard_service_records *records;
	struct leaving *leaving;
	struct guard_inputs_parts *inputs;
};

static int prepare_change(struct guard_service *g, struct change *c)
{
	int err;

	c->place = malloc(sizeof(*c->place));
	c->leaving = calloc(1, sizeof(*c->leaving));
	if (!c->place || !c->leaving)
		return -GW_E_NOMEM;
	err = guard_service_records_read(g, &c->records);
	if (!err)
		err = guard_inputs_prepare(g->reload.next, &c->inputs);
	if (err)
		return err;
	list_leaving(g, c->leaving);
	return guard_service_change(g, g->reload.next, c->records);
}

static void swap_settings(struct guard_service *g)
{
	struct change c = { .place = NULL };
	int err;

	guard_service_log_decisions(g);
	err = prepare_change(g, &c);
	if (err) {
		guard_service_log(g, "error", "the guard keeps the old configuration: %s",
				  gw_strerror(err));
		guard_reload_drop(g);
		free(c.inputs);
		free(c.place);
	} else {
		guard_inputs_change(g->inputs, c.inputs);
		for (unsigned i = 0; i < c.leaving->count; i++)
			part_with_worker(g, &c.leaving->record[i], c.leaving->kind[i]);
		apply_settings(g, c.place, c.records);
		/* The scene in the view comes from the scene thread and has the old worker
		 * indices. */
		if (g->view.scene)
			guard_verdicts(g->guard, &g->view.scene);
		guard_service_view(g);
	}
	guard_service_commit(g);
	free(c.records);
	free(c.leaving);
}

bool guard_reload_waits(const struct guard_service *g)
{
	uint64_t waited = g->reload.next ? guard_service_time_ns(g) - g->reload.since_ns : 0;

	return waited > HOLD_BACK_NS && waited < GIVE_UP_NS;
}

static void log_waiting(struct guard_service *g)
{
	if (g->reload.logged || guard_service_time_ns(g) - g->reload.since_ns < GIVE_UP_NS)
		return;
	g->reload.logged = true;
	guard_service_log(g, "warning",
			  "the guard still uses the old configuration, because an order has "
			  "not finished; the new one applies when the order finishes");
}

void guard_reload_try(struct guard_service *g)
{
	if (g->reload.retired && g->scenes && scene_thread_settled(g->scenes))
		release_retired(g);
	if (!g->reload.next || g->journal.writing)
		return;
	if (!action_idle(g->action) || guard_orders_underway(g->guard))
		log_waiting(g);
	else
		swap_settings(g);
}

/* Takes ownership of next, which malloc() returned. */
static void replace_settings(struct guard_service *g, struct guard_settings *next)
{
	guard_service_fit(g, next);
	if (!g->reload.next)
		g->reload.since_ns = guard_service_time_ns(g);
	settings_free(g->reload.next);
	g->reload.next = next;
	g->reload.logged = false;
	guard_reload_try(g);
	guard_service_pump(g);
}

void guard_service_reload(struct guard_service *g, struct guard_settings *settings)
{
	struct guard_settings *next = malloc(sizeof(*next));

	if (!next) {
		guard_settings_done(settings);
		guard_service_log(g, "error", "the guard keeps the old configuration: %s",
				  gw_strerror(-GW_E_NOMEM));
		return;
	}
	*next = *settings;
	g->reload.mode_only = false;
	replace_settings(g, next);
}

void guard_reload_mode(struct guard_service *g)
{
	const struct guard_settings *from = g->reload.next ? g->reload.next : g->settings;
	struct guard_settings *next = malloc(sizeof(*next));

	if (!next || guard_settings_copy(next, from) != 0) {
		free(next);
		guard_service_log(g, "error",
				  "the guard keeps its mode until the service restarts: %s",
				  gw_strerror(-GW_E_NOMEM));
		return;
	}
	g->reload.mode_only = !g->reload.next || g->reload.mode_only;
	replace_settings(g, next);
}

void guard_reload_drop(struct guard_service *g)
{
	settings_free(g->reload.next);
	g->reload.next = NULL;
}

void guard_reload_close(struct guard_service *g)
{
	guard_reload_drop(g);
	release_retired(g);
}

/* The mode that a person sets is state, not configuration. The mode is a document in the store.
 * It stays after restarts and reloads, until a person returns to the configured mode. A change
 * of the mode takes effect like a reload that only changes the mode. So a running order
 * finishes first, and the change is recorded. */

#define MODE_KIND "guard-mode" /* Kind of the document in the store. */
#define MODE_ID   "mode"

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
	store_each_document(g->config.store, MODE_KIND, 1, load_mode, &g->mode);
	if (g->mode.chosen)
		guard_service_log(g, "info",
				  "the guard's mode is %s, set at run time by %s; gpuward "
				  "guard mode config returns to the configured mode",
				  guard_modes[g->mode.mode], g->mode.who);
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
	if (out.err ||
	    store_put_document(g->config.store, MODE_KIND, MODE_ID, out.p, out.len) != 0)
		g->journal.last = WRITE_FAILED;
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
		store_delete_document(g->config.store, MODE_KIND, MODE_ID);
	}
	g->journal.writing = true;
	guard_service_commit(g);
}
