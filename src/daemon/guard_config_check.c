/* What is wrong with the guard's tables: keys that a kind does not have or cannot do without, and entries that
 * get in each other's way. */
#include "guard_config_read.h"

#include "guard/health.h"

#include "base/suggest.h"

#include <errno.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *text(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] ? e->value[key].text : NULL;
}

static bool is_there(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] || e->refused[key];
}

static const char *key_name(enum guard_key key)
{
	return guard_keys[key].row.key;
}

/* ---- what a kind has and needs ---- */

/* Of kinds that are asked over HTTP; beside the traits of policy.h. */
#define KIND_HTTP (1U << 31)

static bool kind_is(unsigned kind, unsigned traits)
{
	return (traits & KIND_HTTP && policy_kind_url(kind)) ||
	       policy_kind_is(kind, (enum policy_trait)(traits & ~KIND_HTTP));
}

static const struct {
	enum guard_key key;
	unsigned traits; /* of the kinds that may have it */
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
					"%s means nothing to kind %s; it is for %s",
					key_name(key), policy_kind_name(kind),
					kind_list(kind_keys[i].traits, kinds, sizeof(kinds)));
	}
}

/* Whoever is unloaded for idling must come back by itself when somebody asks it: nobody else would know. */
static void check_idle(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	static const enum guard_key keys[] = { GUARD_KEY_idle_after, GUARD_KEY_idle_w,
					       GUARD_KEY_reload_j };
	char kinds[200];

	for (unsigned i = 0; i < COUNT(keys); i++)
		if (e->given[keys[i]] && !kind_is(kind, KIND_LOADS_ON_REQUEST))
			config_complain(r, &e->place[keys[i]],
					"%s: kind %s does not load its model again when it is "
					"asked, and would stay unloaded; it is for %s",
					key_name(keys[i]), policy_kind_name(kind),
					kind_list(KIND_LOADS_ON_REQUEST, kinds, sizeof(kinds)));
}

static bool comes_back(const struct guard_entry *e)
{
	const char *resume = text(e, GUARD_KEY_resume);

	return !e->refused[GUARD_KEY_resume] && (!resume || strcmp(resume, "restore") == 0);
}

static const struct {
	enum policy_trait trait; /* of the kinds that need it */
	enum guard_key key;
	bool to_come_back; /* only where it does */
	const char *what;
} needs[] = {
	{ KIND_UNIT, GUARD_KEY_match_unit, false, "the unit that is stopped and started" },
	{ KIND_CONTAINER, GUARD_KEY_match_container, false,
	  "the container that is stopped and started" },
	{ KIND_COMMANDS, GUARD_KEY_evict_command, false, "the program that frees the GPU" },
	{ KIND_COMMANDS, GUARD_KEY_resume_command, true,
	  "the program that takes it again, or resume = \"lazy\" or \"never\"" },
	{ KIND_SIGNALS, GUARD_KEY_evict_signal, false, "the signal that frees the GPU" },
	{ KIND_SIGNALS, GUARD_KEY_resume_signal, true,
	  "the signal that takes it again, or resume = \"lazy\" or \"never\"" },
};

static void check_needs(struct config_reader *r, const struct guard_entry *e, unsigned kind)
{
	for (unsigned i = 0; i < COUNT(needs); i++)
		if (kind_is(kind, needs[i].trait) && !is_there(e, needs[i].key) &&
		    (!needs[i].to_come_back || comes_back(e)))
			config_complain(r, &e->at, "a worker of kind %s needs %s: %s",
					policy_kind_name(kind), key_name(needs[i].key),
					needs[i].what);
	if (kind_is(kind, KIND_NEEDS_MODEL) && comes_back(e) && !is_there(e, GUARD_KEY_model))
		config_warn(r, &e->at,
			    "kind %s cannot tell what it had loaded: give model, or resume = "
			    "\"lazy\"",
			    policy_kind_name(kind));
}

/* ---- levels ---- */

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
				"max_level = %u ends the worker's process, which needs "
				"allow_kill = true",
				most);
	if (most < 5 && e->given[GUARD_KEY_allow_kill] && e->value[GUARD_KEY_allow_kill].yes)
		config_warn(r, &e->place[GUARD_KEY_allow_kill],
			    "allow_kill changes nothing below max_level = 5, and it is %u",
			    most);
	if (e->given[GUARD_KEY_max_level] && most < own && own > 2)
		config_complain(r, &e->place[GUARD_KEY_max_level],
				"max_level = %u forbids all that kind %s can do: it acts at "
				"level %u",
				most, policy_kind_name(kind), own);
}

/* ---- workers ---- */

static void check_required(struct config_reader *r, const struct guard_entry *e,
			   enum guard_key key)
{
	if (!is_there(e, key))
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
			"nothing says which process this worker is%s: give match.unit, "
			"match.port, match.pidfile, match.exe or another match",
			url ? ", and its url is on another machine" : "");
}

/* Says everybody who has a name. */
static bool means_everybody(const char *pattern)
{
	return pattern && pattern[0] && pattern[strspn(pattern, "*/")] == '\0';
}

/* Likewise of an expression: it finds texts that have nothing in common. */
static bool finds_everybody(const char *expression)
{
	static const char *const texts[] = { "a", "Z", "0", "/", "-" };
	size_t found = 0, n = sizeof(texts) / sizeof(texts[0]);
	regex_t re;

	if (!expression || regcomp(&re, expression, REG_EXTENDED | REG_NOSUB) != 0)
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
		if (keys[i] == GUARD_KEY_match_command ? finds_everybody(text(e, keys[i]))
						       : means_everybody(text(e, keys[i])))
			config_complain(r, &e->place[keys[i]],
					"%s = \"%s\" would make every process this worker, and "
					"all would be moved for it: say which one it is",
					key_name(keys[i]), text(e, keys[i]));
}

static void check_worker(struct config_reader *r, const struct guard_entry *e)
{
	int kind = guard_entry_kind(e);

	check_required(r, e, GUARD_KEY_name);
	check_required(r, e, GUARD_KEY_kind);
	check_breadth(r, e);
	if (e->given[GUARD_KEY_priority] &&
	    e->value[GUARD_KEY_priority].number != (int)e->value[GUARD_KEY_priority].number)
		config_complain(r, &e->place[GUARD_KEY_priority],
				"priority must be a whole number");
	if (e->given[GUARD_KEY_managed] && e->value[GUARD_KEY_managed].yes &&
	    text(e, GUARD_KEY_resume) && strcmp(text(e, GUARD_KEY_resume), "never") == 0)
		config_complain(r, &e->place[GUARD_KEY_managed],
				"managed starts the worker and resume = \"never\" does not; "
				"they exclude each other");
	if (kind < 0)
		return;
	check_kind_keys(r, e, (unsigned)kind);
	check_needs(r, e, (unsigned)kind);
	check_levels(r, e, (unsigned)kind);
	check_idle(r, e, (unsigned)kind);
	check_identity(r, e);
}

/* ---- entries beside each other ---- */

/* "line 3", or with the file where that is another. */
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

/* Is whatever one pattern fits fitted by the other?  Where * is all that the wider one has, what stands for any in the
 * narrower one can only be taken by a *.  Of names the kernel keeps 15 bytes: a longer one is cut before it is compared. */
static bool wider(const char *a, const char *b, unsigned key)
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
	       (is_pattern(key) && wider(text(a, key), text(b, key), key));
}

/* Does whatever b matches, match a?  Then all that a asks for, b asks for too. */
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

/* One process alone listens on a port or has its number in a file; all of a unit is its worker's. */
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
		return covers(b, a) ? "the same match" : "matches of which one is the wider";
	if (guard_entry_matches(b, true) && covers(b, a))
		return "matches of which one is the wider";
	return NULL;
}

/* Each would move what the other has. */
static void warn_same_url(struct config_reader *r, const struct guard_entry *a,
			  const struct guard_entry *b, const char *line)
{
	const char *url = guard_entry_http(a), *other = guard_entry_http(b);

	if (url && other && strcmp(url, other) == 0)
		config_warn(
			r, &b->at,
			"this worker and the one in %s answer at the same url, %.100s: what "
			"is told to one is told to both",
			line, url);
}

static void check_worker_pair(struct config_reader *r, const struct guard_entry *a,
			      const struct guard_entry *b)
{
	const char *name = text(a, GUARD_KEY_name), *same = same_process(a, b);
	char line[200];

	line_of(a, b, line, sizeof(line));
	if (name && text(b, GUARD_KEY_name) && strcmp(name, text(b, GUARD_KEY_name)) == 0)
		config_complain(r, &b->place[GUARD_KEY_name],
				"there is a worker \"%s\" already, in %s", name, line);
	if (same)
		config_complain(r, &b->at,
				"this worker and the one in %s would be one process: they have "
				"%s; tell them apart with another match.unit, match.port or "
				"match.command",
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
				"this rule is never reached: the one in %s matches all that it "
				"matches, and the first counts; put this one before it",
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

/* ---- rules and schedules ---- */

static void check_rule(struct config_reader *r, const struct guard_entry *e)
{
	check_required(r, e, GUARD_KEY_action);
	if (!guard_entry_matches(e, false))
		config_complain(r, &e->at,
				"this rule is of nobody: give match.name, match.exe or another "
				"match; what becomes of all others is unknown in [guard]");
}

static unsigned worker_names(const struct config_reader *r, const char *names[POLICY_WORKERS])
{
	unsigned n = 0;

	for (const struct guard_entry *e = r->m->entries; e; e = e->next)
		if (e->table == GUARD_WORKER && text(e, GUARD_KEY_name))
			names[n++] = text(e, GUARD_KEY_name);
	return n;
}

static void check_schedule_worker(struct config_reader *r, struct guard_entry *e)
{
	const char *names[POLICY_WORKERS], *name = text(e, GUARD_KEY_worker);
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

/* How many spans; 0 having complained. */
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

static bool is_of(const struct guard_entry *schedule, const char *worker)
{
	const char *name = text(schedule, GUARD_KEY_worker);

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
			if (!is_of(e, names[i]))
				continue;
			if (total[i] <= POLICY_SPANS && total[i] + n > POLICY_SPANS)
				config_complain(
					r, &e->place[GUARD_KEY_evict],
					"worker \"%s\" would have %u spans; it may have "
					"%d",
					names[i], total[i] + n, POLICY_SPANS);
			total[i] += n;
		}
	}
}

/* ---- settings ---- */

static bool understood(const struct config_reader *r, enum config_id a, enum config_id b)
{
	return !r->bad[a] && !r->bad[b];
}

static void check_order(struct config_reader *r, enum config_id larger, enum config_id smaller,
			double a, double b)
{
	const struct config_place *at = &r->m->place[smaller];

	if (a >= b || !understood(r, larger, smaller))
		return;
	config_complain(r, at->from == CONFIG_STANDARD ? &r->m->place[larger] : at,
			"%s (%g) must not be more than %s (%g): the nearer to the limit, the "
			"more is done",
			config_rows[smaller].key, b, config_rows[larger].key, a);
}

static void check_xids(struct config_reader *r)
{
	const struct config_list *l = &r->c->health_xid;
	struct xid_rule rule;

	_Static_assert(CONFIG_LIST_MAX <= HEALTH_XIDS, "all that can be written has a place");
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

#define SOCKET_PATH 108 /* of an address, with its end */

static void check_paths(struct config_reader *r)
{
	const char *dir = r->c->guard_state_dir, *socket = r->c->guard_companion;

	if (dir && *dir != '/')
		config_complain(r, &r->m->place[CONFIG_ID_guard_state_dir],
				"state_dir: \"%.100s\": write the whole path, from /", dir);
	if (socket && *socket && (*socket != '/' || strlen(socket) >= SOCKET_PATH))
		config_complain(
			r, &r->m->place[CONFIG_ID_guard_companion],
			"companion: \"%.120s\": write the whole path of a socket, from /, in "
			"less than 108 bytes",
			socket);
}

/* Without these one would wonder why nothing is ever moved. */
static void warn_idle(struct config_reader *r)
{
	const struct config_place *mode = &r->m->place[CONFIG_ID_guard_mode];
	const struct guard_entry *e = r->m->entries;

	if (r->bad[CONFIG_ID_guard_mode] || r->bad[CONFIG_ID_guard_profile])
		return;
	while (e && e->table != GUARD_WORKER)
		e = e->next;
	/* What could not be read may have had one. */
	if (!e && !r->faults->errors && strcmp(r->c->guard_mode, "observe") != 0)
		config_warn(r, mode,
			    "mode is \"%s\" and there is no [[worker]]: nothing is ever moved; "
			    "name who may be, gpuward.toml(5) says how",
			    r->c->guard_mode);
	if (e && mode->from == CONFIG_STANDARD)
		config_warn(r, &e->at,
			    "workers are watched and never moved: set mode in [guard] to "
			    "\"enforce\", \"dry-run\" or \"observe\", or set a profile");
}

void guard_config_check(struct config_reader *r)
{
	check_health(r);
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

/* The service starts without it, and then cannot speak to the worker. */
void guard_config_check_files(struct config_reader *r)
{
	for (const struct guard_entry *e = r->m->entries; e; e = e->next) {
		const char *path =
			e->table == GUARD_WORKER ? text(e, GUARD_KEY_token_file) : NULL;

		if (path && access(path, R_OK) != 0)
			config_warn(r, &e->place[GUARD_KEY_token_file],
				    "token_file: %.200s cannot be read: %s%s", path,
				    strerror(errno),
				    errno == EACCES ? " (by this user; can the service's?)"
						    : "");
	}
}
