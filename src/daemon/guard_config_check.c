/* Checks the guard's tables: keys that a kind of worker needs or does not accept, and entries
 * that conflict. */
#include "guard_config_read.h"

#include "guard/classify.h"

#include "guard/health.h"
#include "guard/pid_lookup.h"
#include "guard/worker.h"
#include "guard/worker/checkpoint.h"

#include "base/array.h"
#include "base/suggest.h"

#include <errno.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_present(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] || e->refused[key];
}

static const char *key_name(enum guard_key key)
{
	return guard_keys[key].row.key;
}

/* Trait of the kinds with an HTTP interface, in addition to the traits of policy.h. */
#define KIND_HTTP (1U << 31)

static bool kind_is(unsigned kind, unsigned traits)
{
	return (traits & KIND_HTTP && policy_kind_url(kind)) ||
	       policy_kind_is(kind, (enum policy_trait)(traits & ~KIND_HTTP));
}

static const struct {
	enum guard_key key;
	unsigned traits; /* A kind with one of these traits may have the key. */
} kind_keys[] = {
	{ GUARD_KEY_url, KIND_HTTP | KIND_UNIT | KIND_CONTAINER },
	{ GUARD_KEY_token_file, KIND_HTTP },
	{ GUARD_KEY_model, KIND_HTTP },
	{ GUARD_KEY_level, KIND_LEVELS },
	{ GUARD_KEY_evict_command, KIND_COMMANDS },
	{ GUARD_KEY_resume_command, KIND_COMMANDS },
	{ GUARD_KEY_evict_signal, KIND_SIGNALS },
	{ GUARD_KEY_resume_signal, KIND_SIGNALS },
	{ GUARD_KEY_managed, KIND_STOPS_PROCESS },
};

static const char *kind_list(unsigned traits, char *out, size_t size)
{
	struct buf b;

	buf_init_fixed(&b, out, size);
	for (unsigned i = 0; i < WORKER_KINDS; i++)
		if (kind_is(i, traits))
			buf_addf(&b, "%s%s", b.len ? ", " : "", policy_kind_name(i));
	return out;
}

static void check_kind_keys(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	char kinds[200];

	for (unsigned i = 0; i < COUNT(kind_keys); i++) {
		enum guard_key key = kind_keys[i].key;

		if (e->given[key] && !kind_is(kind, kind_keys[i].traits))
			config_complain(r, &e->place[key],
					"%s has no effect on kind %s; it is for %s",
					key_name(key), policy_kind_name(kind),
					kind_list(kind_keys[i].traits, kinds, sizeof(kinds)));
	}
}

/* Refuses the keys for the unloading of idle models for a kind of worker that does not load its
 * model again when the next request arrives. The guard does not see the requests of clients, so
 * it cannot load the model for them. */
static void check_idle(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	static const enum guard_key keys[] = { GUARD_KEY_idle_after, GUARD_KEY_idle_w,
					       GUARD_KEY_reload_j };
	char kinds[200];

	for (unsigned i = 0; i < COUNT(keys); i++)
		if (e->given[keys[i]] && !kind_is(kind, KIND_LOADS_ON_REQUEST))
			config_complain(
				r, &e->place[keys[i]],
				"%s: kind %s does not load its model again on the next "
				"request, so the model would stay unloaded; this key is for %s",
				key_name(keys[i]), policy_kind_name(kind),
				kind_list(KIND_LOADS_ON_REQUEST, kinds, sizeof(kinds)));
}

static bool resumes(const struct guard_entry *e)
{
	const char *resume = guard_entry_text(e, GUARD_KEY_resume);

	return !e->refused[GUARD_KEY_resume] && (!resume || strcmp(resume, "restore") == 0);
}

static const struct {
	enum policy_trait trait; /* The kinds with this trait need the key. */
	enum guard_key key;
	bool to_resume; /* The key is needed only if the guard resumes the worker. */
	const char *what;
} needs[] = {
	{ KIND_UNIT, GUARD_KEY_match_unit, false, "the unit that is stopped and started" },
	{ KIND_CONTAINER, GUARD_KEY_match_container, false,
	  "the container that is stopped and started" },
	{ KIND_COMMANDS, GUARD_KEY_evict_command, false, "the program that frees the GPU" },
	{ KIND_COMMANDS, GUARD_KEY_resume_command, true,
	  "the program that makes the worker use the GPU again; or set resume to \"lazy\" or "
	  "\"never\"" },
	{ KIND_SIGNALS, GUARD_KEY_evict_signal, false, "the signal that frees the GPU" },
	{ KIND_SIGNALS, GUARD_KEY_resume_signal, true,
	  "the signal that makes the worker use the GPU again; or set resume to \"lazy\" or "
	  "\"never\"" },
};

static void check_needs(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	for (unsigned i = 0; i < COUNT(needs); i++)
		if (kind_is(kind, needs[i].trait) && !is_present(e, needs[i].key) &&
		    (!needs[i].to_resume || resumes(e)))
			config_complain(r, &e->at, "a worker of kind %s needs %s: %s",
					policy_kind_name(kind), key_name(needs[i].key),
					needs[i].what);
	if (kind_is(kind, KIND_NEEDS_MODEL) && resumes(e) && !is_present(e, GUARD_KEY_model))
		config_warn(r, &e->at,
			    "kind %s does not report which file it has loaded: set model to "
			    "the file to load again; without model, the server loads the file "
			    "with which it was started",
			    policy_kind_name(kind));
}

static const struct config_place *level_place(const struct config_reader *r,
					      const struct guard_entry *e)
{
	const struct config_place *standard = &r->m->place[CONFIG_ID_guard_defaults_max_level];

	if (e->given[GUARD_KEY_max_level])
		return &e->place[GUARD_KEY_max_level];
	return standard->from == CONFIG_STANDARD ? &e->at : standard;
}

static void check_levels(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	unsigned most = guard_entry_max_level(r->c, e), own = policy_kind_level(kind);

	if (e->refused[GUARD_KEY_max_level] || e->refused[GUARD_KEY_allow_kill])
		return;
	if (most >= 5 && !guard_entry_allow_kill(r->c, e))
		config_complain(r, level_place(r, e),
				"max_level = %u lets the guard terminate the worker's "
				"process: this needs allow_kill = true",
				most);
	if (most < 5 && e->given[GUARD_KEY_allow_kill] && e->value[GUARD_KEY_allow_kill].yes)
		config_warn(r, &e->place[GUARD_KEY_allow_kill],
			    "allow_kill has no effect below max_level = 5, and max_level is %u",
			    most);
	if (e->given[GUARD_KEY_max_level] && most < own && own > 2)
		config_complain(r, &e->place[GUARD_KEY_max_level],
				"max_level = %u forbids everything that kind %s can do: this "
				"kind acts at level %u",
				most, policy_kind_name(kind), own);
}

static void check_required(struct config_reader *r, const struct guard_entry *e,
			   enum guard_key key)
{
	if (!is_present(e, key))
		config_complain(r, &e->at, "this [[%s]] needs %s: %s",
				guard_table_names[e->table], key_name(key),
				guard_keys[key].row.help);
}

static void check_identity(struct config_reader *r, const struct guard_entry *e)
{
	bool url = guard_entry_http(e) != NULL && e->given[GUARD_KEY_url];

	if (guard_entry_matches(e, true) || guard_entry_port(e) || e->refused[GUARD_KEY_url])
		return;
	config_complain(r, url ? &e->place[GUARD_KEY_url] : &e->at,
			"no key identifies the process of this worker%s: set match.unit, "
			"match.port, match.pidfile, match.exe or another match",
			url ? ", and its url is on another machine" : "");
}

/* True if the wildcard pattern matches every process. */
static bool matches_all(const char *pattern)
{
	return pattern && pattern[0] && pattern[strspn(pattern, "*/")] == '\0';
}

/* True if the regular expression matches five strings that have nothing in common. Such an
 * expression probably matches every process. */
static bool regex_matches_all(const char *expression)
{
	static const char *const texts[] = { "a", "Z", "0", "/", "-" };
	size_t found = 0, n = sizeof(texts) / sizeof(texts[0]);
	regex_t re;

	if (!expression || classify_pattern_fault(expression) ||
	    regcomp(&re, expression, REG_EXTENDED | REG_NOSUB) != 0)
		return false;
	while (found < n && regexec(&re, texts[found], 0, NULL, 0) == 0)
		found++;
	regfree(&re);
	return found == n;
}

static void check_breadth(struct config_reader *r, const struct guard_entry *e)
{
	static const enum guard_key keys[] = { GUARD_KEY_match_name, GUARD_KEY_match_exe,
					       GUARD_KEY_match_cgroup,
					       GUARD_KEY_match_command };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i] == GUARD_KEY_match_command
			    ? regex_matches_all(guard_entry_text(e, keys[i]))
			    : matches_all(guard_entry_text(e, keys[i])))
			config_complain(
				r, &e->place[keys[i]],
				"%s = \"%s\" matches every process, and the guard would treat "
				"all of them as this worker: be more specific",
				key_name(keys[i]), guard_entry_text(e, keys[i]));
}

/* Warns if the process name is the only condition that identifies the worker. This is not an
 * error, because no better condition exists for some workers. */
static void warn_name_alone(struct config_reader *r, const struct guard_entry *e)
{
	if (!e->given[GUARD_KEY_match_name])
		return;
	for (unsigned k = GUARD_KEY_match_unit; k <= GUARD_KEY_match_gpu; k++)
		if (k != GUARD_KEY_match_name && e->given[k])
			return;
	config_warn(r, &e->place[GUARD_KEY_match_name],
		    "any user can start a process with this name, and the guard would treat it "
		    "as this worker: add match.unit, match.exe, match.cgroup or match.uid");
}

static void check_worker(struct config_reader *r, const struct guard_entry *e)
{
	int kind = guard_entry_kind(e);

	check_required(r, e, GUARD_KEY_name);
	check_required(r, e, GUARD_KEY_kind);
	check_breadth(r, e);
	warn_name_alone(r, e);
	if (e->given[GUARD_KEY_priority] &&
	    e->value[GUARD_KEY_priority].number != (int)e->value[GUARD_KEY_priority].number)
		config_complain(r, &e->place[GUARD_KEY_priority],
				"priority must be a whole number");
	if (e->given[GUARD_KEY_managed] && e->value[GUARD_KEY_managed].yes &&
	    guard_entry_text(e, GUARD_KEY_resume) &&
	    strcmp(guard_entry_text(e, GUARD_KEY_resume), "never") == 0)
		config_complain(r, &e->place[GUARD_KEY_managed],
				"managed = true starts the worker, but resume = \"never\" "
				"forbids that; change one of them");
	if (kind < 0)
		return;
	check_kind_keys(r, e, (unsigned)kind);
	check_needs(r, e, (unsigned)kind);
	check_levels(r, e, (unsigned)kind);
	check_idle(r, e, (unsigned)kind);
	check_identity(r, e);
}

/* Writes "line 3", or "FILE:3" if the entry is in another file. */
static const char *line_of(const struct guard_entry *e, const struct guard_entry *from,
			   char *out, size_t size)
{
	if (strcmp(e->at.name, from->at.name) == 0)
		snprintf(out, size, "line %u", e->at.line);
	else
		snprintf(out, size, "%.150s:%u", e->at.name, e->at.line);
	return out;
}

static bool same_value(const struct guard_entry *a, const struct guard_entry *b, unsigned key)
{
	return config_value_same(&guard_keys[key].row, &a->value[key], &b->value[key]);
}

/* True if pattern a certainly matches everything that pattern b matches. The function passes b
 * to fnmatch() as the text, which reads the wildcards of b as plain characters. So if b has
 * wildcards, `*` is the only wildcard allowed in a: `?` or `[` would match only one character.
 * Returns false if b has a `[`. Also returns false if b is a process name of more than 15
 * bytes, because the kernel keeps only 15. */
static bool pattern_covers(const char *a, const char *b, unsigned key)
{
	const bool plain = !b[strcspn(b, "*?[")];

	if (strchr(b, '[') || (key == GUARD_KEY_match_name && strlen(b) > 15))
		return false;
	return (plain || !a[strcspn(a, "?[")]) && fnmatch(a, b, FNM_NOESCAPE) == 0;
}

static bool is_pattern(unsigned key)
{
	return key == GUARD_KEY_match_name || key == GUARD_KEY_match_exe ||
	       key == GUARD_KEY_match_cgroup;
}

static bool covers_key(const struct guard_entry *a, const struct guard_entry *b, unsigned key)
{
	return same_value(a, b, key) ||
	       (is_pattern(key) &&
		pattern_covers(guard_entry_text(a, key), guard_entry_text(b, key), key));
}

/* True if entry a matches everything that entry b matches: b has every condition of a, with the
 * same or a narrower value. */
static bool covers(const struct guard_entry *a, const struct guard_entry *b)
{
	for (unsigned k = GUARD_KEY_match_unit; k <= GUARD_KEY_match_gpu; k++) {
		if (a->refused[k] || b->refused[k])
			return false;
		if (a->given[k] && !(b->given[k] && covers_key(a, b, k)))
			return false;
	}
	return true;
}

/* Returns a text that says why two workers would be the same process, or NULL if they may
 * differ. Only one process can listen on a port, a pidfile has the pid of only one process, and
 * a unit can belong to only one worker. */
static const char *same_process(const struct guard_entry *a, const struct guard_entry *b)
{
	if (guard_entry_port(a) && guard_entry_port(a) == guard_entry_port(b))
		return "the same port";
	if (a->given[GUARD_KEY_match_pidfile] && b->given[GUARD_KEY_match_pidfile] &&
	    same_value(a, b, GUARD_KEY_match_pidfile))
		return "the same match.pidfile";
	if (a->given[GUARD_KEY_match_unit] && b->given[GUARD_KEY_match_unit] &&
	    same_value(a, b, GUARD_KEY_match_unit))
		return "the same match.unit";
	if (guard_entry_matches(a, true) && covers(a, b))
		return covers(b, a) ? "the same match"
				    : "overlapping matches (one includes the other)";
	if (guard_entry_matches(b, true) && covers(b, a))
		return "overlapping matches (one includes the other)";
	return NULL;
}

/* Warns if two workers have the same url, because an order to one worker reaches both
 * workers. */
static void warn_same_url(struct config_reader *r, const struct guard_entry *a,
			  const struct guard_entry *b, const char *line)
{
	const char *url = guard_entry_http(a), *other = guard_entry_http(b);

	if (url && other && strcmp(url, other) == 0)
		config_warn(r, &b->at,
			    "this worker and the one in %s have the same url, %.100s: each "
			    "order reaches both",
			    line, url);
}

static void check_worker_pair(struct config_reader *r, const struct guard_entry *a,
			      const struct guard_entry *b)
{
	const char *name = guard_entry_text(a, GUARD_KEY_name), *same = same_process(a, b);
	char line[200];

	line_of(a, b, line, sizeof(line));
	if (name && guard_entry_text(b, GUARD_KEY_name) &&
	    strcmp(name, guard_entry_text(b, GUARD_KEY_name)) == 0)
		config_complain(r, &b->place[GUARD_KEY_name],
				"the worker name \"%s\" is already used in %s", name, line);
	if (same)
		config_complain(
			r, &b->at,
			"this worker and the one in %s would be the same process: they have "
			"%s; use a different match.unit, match.port or match.command",
			line, same);
	else
		warn_same_url(r, a, b, line);
}

static void check_rule_pair(struct config_reader *r, const struct guard_entry *a,
			    const struct guard_entry *b)
{
	char line[200];

	if (guard_entry_matches(a, false) && covers(a, b))
		config_complain(r, &b->at,
				"this rule has no effect: the rule in %s already matches "
				"everything that this rule matches, and the first match "
				"counts; move this rule before that one",
				line_of(a, b, line, sizeof(line)));
}

static void check_pairs(struct config_reader *r)
{
	for (const struct guard_entry *b = r->m->entries; b; b = b->next)
		for (const struct guard_entry *a = r->m->entries; a != b; a = a->next) {
			if (a->table != b->table)
				continue;
			if (b->table == GUARD_WORKER)
				check_worker_pair(r, a, b);
			if (b->table == GUARD_RULE)
				check_rule_pair(r, a, b);
		}
}

static void check_rule(struct config_reader *r, const struct guard_entry *e)
{
	check_required(r, e, GUARD_KEY_action);
	if (!guard_entry_matches(e, false))
		config_complain(
			r, &e->at,
			"this rule has no match: set match.name, match.exe or another match; "
			"the key unknown in [guard] decides about all other processes");
}

static unsigned worker_names(const struct config_reader *r, const char *names[POLICY_WORKERS])
{
	unsigned n = 0;

	for (const struct guard_entry *e = r->m->entries; e; e = e->next)
		if (e->table == GUARD_WORKER && guard_entry_text(e, GUARD_KEY_name))
			names[n++] = guard_entry_text(e, GUARD_KEY_name);
	return n;
}

static void check_schedule_worker(struct config_reader *r, struct guard_entry *e)
{
	const char *names[POLICY_WORKERS], *name = guard_entry_text(e, GUARD_KEY_worker);
	unsigned n = worker_names(r, names);
	char meant[CONFIG_MEANT_MAX];

	if (!name || strcmp(name, "*") == 0)
		return;
	for (unsigned i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return;
	config_complain(r, &e->place[GUARD_KEY_worker], "there is no worker \"%.63s\"%s", name,
			config_meant(suggest(name, names, n, sizeof(names[0])), meant));
	e->refused[GUARD_KEY_worker] = true;
}

/* Returns the number of time spans. If one of them is invalid, reports the error and returns
 * 0. */
static unsigned count_spans(struct config_reader *r, struct guard_entry *e)
{
	const struct config_list *l = &e->value[GUARD_KEY_evict].list;
	struct policy_span span[POLICY_SPANS];
	char message[200];
	unsigned n = 0;

	for (unsigned i = 0; e->given[GUARD_KEY_evict] && i < l->count; i++) {
		int got = policy_spans_read(l->item[i], span, n, message, sizeof(message));

		if (got < 0) {
			guard_config_refuse(r, e, GUARD_KEY_evict, l->item[i], message);
			return 0;
		}
		n += (unsigned)got;
	}
	return n;
}

static bool schedule_applies(const struct guard_entry *schedule, const char *worker)
{
	const char *name = guard_entry_text(schedule, GUARD_KEY_worker);

	return name && (strcmp(name, "*") == 0 || strcmp(name, worker) == 0);
}

static void check_schedules(struct config_reader *r)
{
	unsigned total[POLICY_WORKERS] = { 0 };
	const char *names[POLICY_WORKERS];
	unsigned workers = worker_names(r, names);

	for (struct guard_entry *e = r->m->entries; e; e = e->next) {
		unsigned n;

		if (e->table != GUARD_SCHEDULE)
			continue;
		check_required(r, e, GUARD_KEY_worker);
		check_required(r, e, GUARD_KEY_evict);
		check_schedule_worker(r, e);
		n = count_spans(r, e);
		for (unsigned i = 0; i < workers; i++) {
			if (!schedule_applies(e, names[i]))
				continue;
			if (total[i] <= POLICY_SPANS && total[i] + n > POLICY_SPANS)
				config_complain(r, &e->place[GUARD_KEY_evict],
						"worker \"%s\" has %u time spans; at most %d "
						"are allowed",
						names[i], total[i] + n, POLICY_SPANS);
			total[i] += n;
		}
	}
}

static void check_order(struct config_reader *r, enum config_id larger, enum config_id smaller,
			double a, double b)
{
	const struct config_place *at = &r->m->place[smaller];

	if (a >= b || !config_both_valid(r, larger, smaller))
		return;
	config_complain(r, at->from == CONFIG_STANDARD ? &r->m->place[larger] : at,
			"%s (%g) must not be more than %s (%g): the stronger reaction must "
			"begin nearer to the limit",
			config_rows[smaller].key, b, config_rows[larger].key, a);
}

static void check_xids(struct config_reader *r)
{
	const struct config_list *l = &r->c->health_xid;
	struct xid_rule rule;

	_Static_assert(CONFIG_LIST_MAX <= HEALTH_XIDS, "every configured item fits");
	for (unsigned i = 0; i < l->count; i++)
		if (xid_rule_read(l->item[i], &rule) != 0)
			config_complain(r, &r->m->place[CONFIG_ID_health_xid],
					"xid: \"%.60s\": write NUMBER=CLASS, such as "
					"109=restart_app; gpuward.toml(5) has the classes",
					l->item[i]);
}

static void check_health(struct config_reader *r)
{
	const struct config *c = r->c;
	double t = c->health_temp_override_c;

	if (t > 0 && t < 30)
		config_complain(r, &r->m->place[CONFIG_ID_health_temp_override_c],
				"temp_override_c must be 0 or from 30 to 120, not %g", t);
	check_xids(r);
	check_order(r, CONFIG_ID_health_warn_c, CONFIG_ID_health_throttle_c, c->health_warn_c,
		    c->health_throttle_c);
	check_order(r, CONFIG_ID_health_throttle_c, CONFIG_ID_health_evict_c,
		    c->health_throttle_c, c->health_evict_c);
}

#define POLL_LEAST_MS 1 /* A shorter interval would only keep a processor busy. */

static void check_poll(struct config_reader *r)
{
	double ms = r->c->guard_poll_ms;

	if (ms > 0 && ms < POLL_LEAST_MS)
		config_complain(r, &r->m->place[CONFIG_ID_guard_poll_ms],
				"poll_ms must be 0 or from %d to 3600000, not %g",
				POLL_LEAST_MS, ms);
}

#define SOCKET_PATH 108 /* Size of sun_path. */

static void check_paths(struct config_reader *r)
{
	const char *dir = r->c->guard_state_dir, *socket = r->c->guard_companion;

	if (dir && *dir != '/')
		config_complain(r, &r->m->place[CONFIG_ID_guard_state_dir],
				"state_dir: \"%.100s\": write an absolute path", dir);
	if (socket && *socket && (*socket != '/' || strlen(socket) >= SOCKET_PATH))
		config_complain(r, &r->m->place[CONFIG_ID_guard_companion],
				"companion: \"%.120s\": write the absolute path of a socket "
				"with less than 108 bytes",
				socket);
}

/* Warns if the guard can never move a worker with this configuration. */
static void warn_idle(struct config_reader *r)
{
	const struct config_place *mode = &r->m->place[CONFIG_ID_guard_mode];
	const struct guard_entry *e = r->m->entries;

	if (r->bad[CONFIG_ID_guard_mode] || r->bad[CONFIG_ID_guard_profile])
		return;
	while (e && e->table != GUARD_WORKER)
		e = e->next;
	/* After an error, a [[worker]] may be in a part that was not read. */
	if (!e && !r->faults->errors && strcmp(r->c->guard_mode, "observe") != 0)
		config_warn(r, mode,
			    "mode is \"%s\" but there is no [[worker]], so nothing is ever "
			    "moved; add workers as described in gpuward.toml(5)",
			    r->c->guard_mode);
	if (e && mode->from == CONFIG_STANDARD)
		config_warn(r, &e->at,
			    "workers are observed but never moved: to move them, set mode = "
			    "\"enforce\" in [guard], or set a profile; \"dry-run\" only "
			    "reports what would be moved, and \"observe\" hides this warning");
}

void guard_config_check(struct config_reader *r)
{
	check_health(r);
	check_poll(r);
	check_paths(r);
	for (struct guard_entry *e = r->m->entries; e; e = e->next) {
		guard_config_forms(r, e);
		if (e->table == GUARD_WORKER)
			check_worker(r, e);
		else if (e->table == GUARD_RULE)
			check_rule(r, e);
	}
	check_pairs(r);
	check_schedules(r);
	warn_idle(r);
}

/* Warns if the guard would not trust the pidfile. This is not an error, because the user who
 * runs this check may not be the service's user. */
static void warn_pidfile(struct config_reader *r, const struct guard_entry *e)
{
	const char *path = guard_entry_text(e, GUARD_KEY_match_pidfile);
	struct root root = { .fd = -1 };
	struct pidfile file;

	if (path && root_open(&root, "/") == 0 &&
	    pidfile_read(&root, path, &file) == -GW_E_STATE)
		config_warn(r, &e->place[GUARD_KEY_match_pidfile],
			    "the guard does not trust the pidfile %.200s: %s; %s", path,
			    file.fault, PIDFILE_REMEDY);
	root_close(&root);
}

/* Warns if the guard would refuse to run the hook as root. */
static void warn_hook(struct config_reader *r, const struct guard_entry *e, enum guard_key key)
{
	const char *path = e->given[key] ? worker_hook_unsafe(e->value[key].list.item) : NULL;

	if (path)
		config_warn(r, &e->place[key],
			    "%s: the guard does not run %.200s as root, because other users "
			    "can change it or its folder: " WORKER_HOOK_REMEDY,
			    key_name(key), path);
}

/* If this machine uses small memory pages and a worker is checkpointed, recommends larger
 * pages. Warns only once, at the first such worker, because the setting applies to the whole
 * machine. */
static void warn_pages(struct config_reader *r, const struct guard_entry *e)
{
	char advice[MOVE_ADVICE_SIZE];

	while (e && (e->table != GUARD_WORKER || guard_entry_kind(e) < 0 ||
		     !move_is_checkpoint((unsigned)guard_entry_kind(e))))
		e = e->next;
	if (e && move_pages_advice(host_memory_pages_now(), advice))
		config_warn(r, &e->place[GUARD_KEY_kind], "%s", advice);
}

/* Checks the pidfile, the hooks and the token_file of each worker. Reports only warnings,
 * because the service can start without these files. Without the token_file, for example, it
 * only cannot authenticate to the worker. */
void guard_config_check_files(struct config_reader *r)
{
	warn_pages(r, r->m->entries);
	for (const struct guard_entry *e = r->m->entries; e; e = e->next) {
		const char *path;

		if (e->table != GUARD_WORKER)
			continue;
		warn_pidfile(r, e);
		warn_hook(r, e, GUARD_KEY_evict_command);
		warn_hook(r, e, GUARD_KEY_resume_command);
		path = guard_entry_text(e, GUARD_KEY_token_file);
		if (path && access(path, R_OK) != 0)
			config_warn(r, &e->place[GUARD_KEY_token_file],
				    "cannot read token_file %.200s: %s%s", path,
				    strerror(errno),
				    errno == EACCES
					    ? " (make sure that the service's user can read it)"
					    : "");
	}
}
