/* Makes a policy from checked configuration entries, and applies the presets of a profile. */
#include "guard_config.h"

#include "guard_config_read.h"

#include "base/array.h"
#include "device/tables.h"

#include <gpuward.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *profile;
	enum config_id id;
	const char *value;
} presets[] = {
	{ "desktop", CONFIG_ID_guard_mode, "enforce" },
	{ "desktop", CONFIG_ID_guard_unknown, "contend" },
	{ "desktop", CONFIG_ID_device_require_nvml, "true" },
	{ "server", CONFIG_ID_guard_mode, "observe" },
	{ "server", CONFIG_ID_health_enabled, "true" },
	{ "container", CONFIG_ID_guard_mode, "enforce" },
	{ "container", CONFIG_ID_guard_by_unattributed, "true" },
	{ "container", CONFIG_ID_device_require_nvml, "false" },
};

static unsigned file_order(const struct config_memory *m, const struct config_place *p)
{
	unsigned i = 0;

	while (p->from == CONFIG_FILE && i < m->files && strcmp(m->file[i], p->name) != 0)
		i++;
	return p->from == CONFIG_FILE ? i : CONFIG_FILES_MAX;
}

/* Warns if a setting overrides the profile, but is in a file that is read before the file with
 * the profile. The user may have forgotten this setting and wonder why the profile has no
 * effect. There is no warning for a setting in the same file as the profile or in a later file,
 * because the user intends it. */
static void warn_overridden(struct config_reader *r, const struct config_row *row,
			    const char *value)
{
	const struct config_place *at = &r->m->place[row - config_rows];
	const struct config_place *profile = &r->m->place[CONFIG_ID_guard_profile];
	struct config_value is, wanted;
	struct buf b;
	char entry_text[100];

	config_value_get(r->c, row, &is);
	if (at->from != CONFIG_FILE || file_order(r->m, at) >= file_order(r->m, profile) ||
	    !config_value_text(r, row, at, value, &wanted) ||
	    config_value_same(row, &is, &wanted))
		return;
	buf_init_fixed(&b, entry_text, sizeof(entry_text));
	config_value_print(&b, row, &is);
	config_warn(r, at,
		    "%s = %s is set here, so the profile \"%s\" (%.200s) does not set it to "
		    "%s; remove this line, or move it next to the profile",
		    row->key, entry_text, r->c->guard_profile, profile->name, value);
}

/* Applies the presets of the profile. The recorded place of each preset is the place of the
 * setting `profile`. */
void guard_config_profile(struct config_reader *r)
{
	const struct config_place *at = &r->m->place[CONFIG_ID_guard_profile];

	for (unsigned i = 0; i < COUNT(presets); i++) {
		const struct config_row *row = &config_rows[presets[i].id];
		struct config_place *place = &r->m->place[presets[i].id];
		struct config_value v;

		if (!r->c->guard_profile || r->bad[presets[i].id] ||
		    strcmp(r->c->guard_profile, presets[i].profile) != 0)
			continue;
		if (place->from != CONFIG_STANDARD) {
			warn_overridden(r, row, presets[i].value);
		} else if (config_value_text(r, row, at, presets[i].value, &v)) {
			config_value_set(r->c, row, &v);
			*place = *at;
		}
	}
}

int guard_entry_kind(const struct guard_entry *e)
{
	return e->given[GUARD_KEY_kind] ? policy_kind_find(e->value[GUARD_KEY_kind].text)
					: -GW_E_NOENT;
}

/* Returns the URL of the worker, or NULL if it has none. */
static const char *guard_entry_url(const struct guard_entry *e)
{
	int kind = guard_entry_kind(e);

	if (e->given[GUARD_KEY_url])
		return e->value[GUARD_KEY_url].text;
	return kind >= 0 && !e->refused[GUARD_KEY_url] ? policy_kind_url((unsigned)kind) : NULL;
}

const char *guard_entry_http(const struct guard_entry *e)
{
	const char *url = guard_entry_url(e);

	return url && strncmp(url, "http", 4) == 0 ? url : NULL;
}

/* Returns the port of a URL on this machine, or 0 if the URL is on another machine. */
static unsigned local_port(const char *url)
{
	static const char *const local[] = { "127.", "localhost", "[::1]" };
	bool tls = strncmp(url, "https://", 8) == 0;
	const char *host = url + (tls ? 8 : 7);
	size_t n = strcspn(host, "/");
	const char *colon = memrchr(host, ':', n);
	bool ours = false;

	for (unsigned i = 0; i < COUNT(local); i++)
		ours = ours || strncmp(host, local[i], strlen(local[i])) == 0;
	if (!ours)
		return 0;
	if (colon && colon[1] >= '0' && colon[1] <= '9' &&
	    !memchr(colon, ']', n - (size_t)(colon - host)))
		return (unsigned)strtoul(colon + 1, NULL, 10);
	return tls ? 443 : 80;
}

bool guard_entry_matches(const struct guard_entry *e, bool identity)
{
	for (unsigned k = GUARD_KEY_match_unit; k <= GUARD_KEY_match_gpu; k++)
		if ((e->given[k] || e->refused[k]) && !(identity && k == GUARD_KEY_match_uid))
			return true;
	return false;
}

unsigned guard_entry_port(const struct guard_entry *e)
{
	const char *url = guard_entry_http(e);

	if (e->given[GUARD_KEY_match_port])
		return (unsigned)e->value[GUARD_KEY_match_port].count;
	return url && !guard_entry_matches(e, true) ? local_port(url) : 0;
}

/* Returns the highest level at which the worker may be evicted: max_level of the entry, or else
 * the default. If the lowest level of the kind is above 2 and above the default, that lowest
 * level is also allowed, because the user chose the kind. */
unsigned guard_entry_max_level(const struct config *c, const struct guard_entry *e)
{
	int kind = guard_entry_kind(e);
	unsigned own = kind >= 0 ? policy_kind_level((unsigned)kind) : 0;
	unsigned most = (unsigned)c->guard_defaults_max_level;

	if (e->given[GUARD_KEY_max_level])
		return (unsigned)e->value[GUARD_KEY_max_level].count;
	return own > 2 && most < own ? own : most;
}

bool guard_entry_allow_kill(const struct config *c, const struct guard_entry *e)
{
	return e->given[GUARD_KEY_allow_kill] ? e->value[GUARD_KEY_allow_kill].yes
					      : c->guard_defaults_allow_kill;
}

int guard_signal(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} signals[] = {
		{ "SIGHUP", SIGHUP },   { "SIGINT", SIGINT },     { "SIGQUIT", SIGQUIT },
		{ "SIGUSR1", SIGUSR1 }, { "SIGUSR2", SIGUSR2 },   { "SIGTERM", SIGTERM },
		{ "SIGCONT", SIGCONT }, { "SIGURG", SIGURG },     { "SIGALRM", SIGALRM },
		{ "SIGPIPE", SIGPIPE }, { "SIGWINCH", SIGWINCH }, { "SIGKILL", SIGKILL },
		{ "SIGSTOP", SIGSTOP }, { "SIGTSTP", SIGTSTP },
	};

	for (unsigned i = 0; i < COUNT(signals); i++)
		if (strcmp(name, signals[i].name) == 0)
			return signals[i].number;
	return 0;
}

/* Settings of [guard.defaults] and their members in struct policy_knobs. */
struct knob {
	enum config_id id;
	enum guard_key key;
	enum { KNOB_SCALED, KNOB_BYTES, KNOB_RATIO, KNOB_COUNT, KNOB_BOOL } how;
	double scale; /* Factor that converts the setting to nanoseconds. */
	size_t offset;
};

#define K(key, how, scale, member)                                           \
	{                                                                    \
		CONFIG_ID_guard_defaults_##key, GUARD_KEY_##key, how, scale, \
			offsetof(struct policy_knobs, member)                \
	}
static const struct knob knobs[] = {
	K(debounce_ms, KNOB_SCALED, 1e6, debounce_ns),
	K(quiet_s, KNOB_SCALED, 1e9, quiet_ns),
	K(min_resident_s, KNOB_SCALED, 1e9, resident_ns),
	K(drain_s, KNOB_SCALED, 1e9, drain_ns),
	K(verify_s, KNOB_SCALED, 1e9, verify_ns),
	K(budget_s, KNOB_SCALED, 1e9, budget_ns),
	K(post_action_s, KNOB_SCALED, 1e9, post_ns),
	K(headroom, KNOB_BYTES, 0, headroom_bytes),
	K(headroom_percent, KNOB_RATIO, 0, headroom_ratio),
	K(min_vram, KNOB_BYTES, 0, min_vram_bytes),
	K(util_percent, KNOB_RATIO, 0, util_ratio),
	K(util_s, KNOB_SCALED, 1e9, util_ns),
	K(max_level, KNOB_COUNT, 0, max_level),
	K(allow_kill, KNOB_BOOL, 0, allow_kill),
};

static uint64_t scale(double v, double scale)
{
	return (uint64_t)(v * scale + 0.5);
}

static void set_knob(struct policy_knobs *to, const struct knob *k,
		     const struct config_value *v)
{
	void *at = (char *)to + k->offset;

	switch (k->how) {
	case KNOB_SCALED: *(uint64_t *)at = scale(v->number, k->scale); break;
	case KNOB_BYTES: *(uint64_t *)at = v->count; break;
	case KNOB_RATIO: *(double *)at = v->number / 100; break;
	case KNOB_COUNT: *(unsigned *)at = (unsigned)v->count; break;
	case KNOB_BOOL: *(bool *)at = v->yes; break;
	}
}

static void standard_knobs(const struct config *c, struct policy_knobs *to)
{
	for (unsigned i = 0; i < COUNT(knobs); i++) {
		struct config_value v;

		config_value_get(c, &config_rows[knobs[i].id], &v);
		set_knob(to, &knobs[i], &v);
	}
}

static void worker_knobs(const struct config *c, const struct guard_entry *e,
			 struct policy_knobs *to)
{
	for (unsigned i = 0; i < COUNT(knobs); i++)
		if (e->given[knobs[i].key])
			set_knob(to, &knobs[i], &e->value[knobs[i].key]);
	to->max_level = guard_entry_max_level(c, e);
	to->allow_kill = guard_entry_allow_kill(c, e);
}

static unsigned entry_choice(const struct guard_entry *e, enum guard_key key, unsigned standard)
{
	const char *p = guard_keys[key].row.choices, *entry_text = e->value[key].text;

	if (!e->given[key])
		return standard;
	for (unsigned i = 0;; i++, p++) {
		size_t n = strcspn(p, "|");

		if (strlen(entry_text) == n && memcmp(p, entry_text, n) == 0)
			return i;
		p += n;
		if (!*p)
			return standard;
	}
}

/* Borrows the strings of the entry; policy_copy() copies them later. */
static void make_match(const struct guard_entry *e, struct policy_match *m)
{
	*m = (struct policy_match){
		.name = guard_entry_text(e, GUARD_KEY_match_name),
		.exe = guard_entry_text(e, GUARD_KEY_match_exe),
		.command = guard_entry_text(e, GUARD_KEY_match_command),
		.cgroup = guard_entry_text(e, GUARD_KEY_match_cgroup),
		.container = guard_entry_text(e, GUARD_KEY_match_container),
		.pidfile = guard_entry_text(e, GUARD_KEY_match_pidfile),
		.unit = guard_entry_text(e, GUARD_KEY_match_unit),
		.gpu = guard_entry_text(e, GUARD_KEY_match_gpu),
		.uid = -1,
		.vram_ge = e->value[GUARD_KEY_match_vram_ge].count,
		.util_ge = e->value[GUARD_KEY_match_util_ge].number / 100,
	};
	if (e->given[GUARD_KEY_match_uid])
		m->uid = (int64_t)e->value[GUARD_KEY_match_uid].count;
	for (unsigned i = 0; i < e->value[GUARD_KEY_match_type].list.count; i++)
		m->type |= process_type_named(e->value[GUARD_KEY_match_type].list.item[i]);
}

static const char *entry_source(struct policy *p, const struct guard_entry *e, const char *what)
{
	const char *slash = strrchr(e->at.name, '/');
	char line[200];

	snprintf(line, sizeof(line), "%.80s (%.80s:%u)", what, slash ? slash + 1 : e->at.name,
		 e->at.line);
	return policy_keep(p, line, strlen(line));
}

static bool make_rule(struct policy *p, const struct guard_entry *e)
{
	struct policy_rule *rule = &p->rule[p->rules++];
	char what[40];

	make_match(e, &rule->match);
	rule->action = entry_choice(e, GUARD_KEY_action, GUARD_WATCH);
	snprintf(what, sizeof(what), "rule %u", e->number);
	rule->text = entry_source(p, e, what);
	return rule->text != NULL;
}

/* Copies the URL without trailing slashes, because paths are appended to it. */
static const char *make_url(struct policy *p, const char *url)
{
	size_t n = strlen(url);

	while (n > 0 && url[n - 1] == '/')
		n--;
	return policy_keep(p, url, n);
}

static const char *const *entry_argv(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] ? e->value[key].list.item : NULL;
}

static bool make_worker(const struct config *c, struct policy *p, const struct guard_entry *e)
{
	struct policy_worker *w = &p->worker[p->workers++];
	const struct config_list *gpus = &e->value[GUARD_KEY_gpus].list;
	const char *url = guard_entry_url(e);
	char what[100];

	policy_worker_init(w);
	w->name = guard_entry_text(e, GUARD_KEY_name);
	w->kind = (enum policy_kind)guard_entry_kind(e);
	w->url = url ? make_url(p, url) : NULL;
	w->token_file = guard_entry_text(e, GUARD_KEY_token_file);
	w->model = guard_entry_text(e, GUARD_KEY_model);
	w->evict_argv = entry_argv(e, GUARD_KEY_evict_command);
	w->resume_argv = entry_argv(e, GUARD_KEY_resume_command);
	if (e->given[GUARD_KEY_evict_signal])
		w->evict_signal = guard_signal(guard_entry_text(e, GUARD_KEY_evict_signal));
	if (e->given[GUARD_KEY_resume_signal])
		w->resume_signal = guard_signal(guard_entry_text(e, GUARD_KEY_resume_signal));
	for (; w->gpu_count < gpus->count && w->gpu_count < POLICY_GPUS; w->gpu_count++)
		w->gpus[w->gpu_count] = gpus->item[w->gpu_count];
	make_match(e, &w->match);
	w->match.port = guard_entry_port(e);
	w->priority = (int)e->value[GUARD_KEY_priority].number;
	/* The guard cannot load a model for a kind that loads only on request. */
	w->resume = entry_choice(e, GUARD_KEY_resume,
				 policy_kind_is(w->kind, KIND_CANNOT_LOAD) ? RESUME_LAZY
									   : RESUME_RESTORE);
	w->managed = e->value[GUARD_KEY_managed].yes;
	w->level = (unsigned)e->value[GUARD_KEY_level].count;
	w->ac_only = e->value[GUARD_KEY_ac_only].yes;
	w->idle_economy =
		c->guard_idle_economy && policy_kind_is(w->kind, KIND_LOADS_ON_REQUEST);
	if (e->given[GUARD_KEY_idle_after])
		w->idle_after_ns = scale(e->value[GUARD_KEY_idle_after].number, 1e9);
	if (e->given[GUARD_KEY_idle_w])
		w->idle_w = e->value[GUARD_KEY_idle_w].number;
	if (e->given[GUARD_KEY_reload_j])
		w->reload_j = e->value[GUARD_KEY_reload_j].number;
	worker_knobs(c, e, &w->knobs);
	snprintf(what, sizeof(what), "[[worker]] %s", w->name);
	w->text = entry_source(p, e, what);
	return w->text && (!url || w->url);
}

static void make_schedule(struct policy *p, const struct guard_entry *e)
{
	const struct config_list *spans = &e->value[GUARD_KEY_evict].list;
	const char *name = guard_entry_text(e, GUARD_KEY_worker);
	char message[200];

	for (unsigned i = 0; i < p->workers; i++) {
		struct policy_worker *w = &p->worker[i];

		if (!name || (strcmp(name, "*") != 0 && strcmp(name, w->name) != 0))
			continue;
		for (unsigned k = 0; k < spans->count; k++) {
			int n = policy_spans_read(spans->item[k], w->schedule, w->schedules,
						  message, sizeof(message));

			w->schedules += n > 0 ? (unsigned)n : 0;
		}
	}
}

static bool make_entries(const struct config *c, struct policy *p)
{
	const struct config_memory *m = c->memory;

	for (const struct guard_entry *e = m->entries; e; e = e->next) {
		if (e->table == GUARD_WORKER && !make_worker(c, p, e))
			return false;
		if (e->table == GUARD_RULE && !make_rule(p, e))
			return false;
	}
	/* Make the schedules after all workers, because a [[schedule]] may come before its
	 * worker in the file. */
	for (const struct guard_entry *e = m->entries; e; e = e->next)
		if (e->table == GUARD_SCHEDULE)
			make_schedule(p, e);
	return true;
}

static void make_guard(const struct config *c, struct policy *p)
{
	policy_init(p);
	for (unsigned m = 0; guard_modes[m]; m++)
		if (strcmp(c->guard_mode, guard_modes[m]) == 0)
			p->mode = m;
	p->any = strcmp(c->guard_demand, "any") == 0;
	p->unknown_contends = strcmp(c->guard_unknown, "contend") == 0;
	p->by_unattributed = c->guard_by_unattributed;
	p->unattributed_bytes = c->guard_unattributed_limit;
	p->user_evictions = (unsigned)c->guard_user_evictions;
	p->evict_when_blind = strcmp(c->guard_on_blind, "evict") == 0;
	p->restore_on_stop = strcmp(c->guard_on_stop, "restore") == 0;
	p->poll_ns = scale(c->guard_poll_ms, 1e6);
	p->simulated_too = c->guard_simulated;
	p->companion = c->guard_companion && *c->guard_companion ? c->guard_companion : NULL;
	standard_knobs(c, &p->standard);
}

static void make_health(const struct config *c, struct guard_settings *ret)
{
	ret->health_enabled = c->health_enabled;
	ret->health_interval_ns = scale(c->health_interval_s, 1e9);
	ret->health = (struct health_options){
		.xids = c->health_xid.count,
		.warn_c = c->health_warn_c,
		.throttle_c = c->health_throttle_c,
		.evict_c = c->health_evict_c,
		.clear_c = c->health_clear_c,
		.clear_ns = scale(c->health_clear_s, 1e9),
		.critical = (unsigned)c->health_critical,
		.absolute_c = c->health_temp_override_c > 0 ? c->health_temp_override_c : NAN,
		.fallback_c = c->health_fallback_c,
		.clean_ns = scale(c->health_clean_s, 1e9),
	};
	for (unsigned i = 0; i < c->health_xid.count; i++)
		/* This cannot fail, because config_check() has already read the item. */
		(void)xid_rule_read(c->health_xid.item[i], &ret->health.xid[i]);
}

int guard_config_make(const struct config *c, struct guard_settings *ret)
{
	struct policy *draft = calloc(1, sizeof(*draft));
	bool good = draft != NULL;

	*ret = (struct guard_settings){ .capacity_enabled = c->capacity_enabled };
	make_health(c, ret);
	ret->budget =
		(struct budget_options){ c->guard_power_cap_w, c->guard_energy_cap_wh * 3600 };
	if (good) {
		make_guard(c, draft);
		good = make_entries(c, draft) && policy_copy(&ret->policy, draft) == 0;
		policy_done(draft);
	}
	free(draft);
	ret->configured = ret->policy.mode;
	ret->record_limit = c->guard_record_limit;
	if (good && c->guard_record) {
		ret->record =
			policy_keep(&ret->policy, c->guard_record, strlen(c->guard_record));
		good = ret->record != NULL;
	}
	if (good)
		return 0;
	guard_settings_done(ret);
	return -GW_E_NOMEM;
}

int guard_settings_copy(struct guard_settings *ret, const struct guard_settings *s)
{
	*ret = *s;
	if (policy_copy(&ret->policy, &s->policy) != 0)
		return -GW_E_NOMEM;
	if (s->record)
		ret->record = policy_keep(&ret->policy, s->record, strlen(s->record));
	if (!s->record || ret->record)
		return 0;
	guard_settings_done(ret);
	return -GW_E_NOMEM;
}

void guard_settings_done(struct guard_settings *s)
{
	policy_done(&s->policy);
	*s = (struct guard_settings){ 0 };
}

int guard_policy_parse(const char *toml, size_t n, struct policy *ret, char *message,
		       size_t size)
{
	struct guard_settings s;
	char lines[2000] = "";
	struct config c;
	int err = config_load_text(&c, "policy", toml, n, lines, sizeof(lines));

	if (err) {
		snprintf(message, size, "%.*s", (int)strcspn(lines, "\n"), lines);
		return err == -GW_E_NOMEM ? err : -GW_E_PARSE;
	}
	err = guard_config_make(&c, &s);
	config_done(&c);
	/* The other members of s point only to memory of the policy, so there is nothing else
	 * to free. */
	*ret = s.policy;
	return err;
}
