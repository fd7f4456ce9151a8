/* Reads [[worker]], [[rule]] and [[schedule]] of a file into entries, and checks each value
 * that has a format: addresses, paths, expressions, signals. */
#include "guard_config_read.h"

#include "base/array.h"
#include "base/suggest.h"
#include "device/tables.h"
#include "guard/classify.h"

#include <gpuward.h>

#include <ctype.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const guard_table_names[GUARD_TABLES] = { "worker", "rule", "schedule" };

static const unsigned most_entries[GUARD_TABLES] = { POLICY_WORKERS, POLICY_RULES, 64 };

#define WORKER   (1U << GUARD_WORKER)
#define RULE     (1U << GUARD_RULE)
#define SCHEDULE (1U << GUARD_SCHEDULE)

const struct guard_key_row guard_keys[GUARD_KEYS] = {
#define G(id, of, key, type, least, most, choices, help) \
	{ of, { NULL, key, CONFIG_##type, NULL, least, most, choices, NULL, help, 0 } },
#include "guard_config.def"
#define O(...)
#define F(...)
#define D(key, type, standard, least, most, choices, flag, help) \
	{ WORKER, { NULL, #key, CONFIG_##type, NULL, least, most, choices, NULL, help, 0 } },
#include "config.def"
#undef O
};

static bool has_key(enum guard_table t, unsigned key)
{
	return guard_keys[key].of >> t & 1;
}

static const char match[] = "match.";
#define MATCH (sizeof(match) - 1)

/* True if n has the name of this key. in_match is true if n is in the match table of the
 * entry, not in the entry itself. */
static bool is_named(unsigned key, bool in_match, const struct toml_node *n)
{
	const char *name = guard_keys[key].row.key;
	bool key_in_match = strncmp(name, match, MATCH) == 0;

	return key_in_match == in_match && toml_is_key(n, name + (in_match ? MATCH : 0));
}

static int find_key(enum guard_table t, bool in_match, const struct toml_node *n)
{
	for (unsigned i = 0; i < GUARD_KEYS; i++)
		if (has_key(t, i) && is_named(i, in_match, n))
			return (int)i;
	return -1;
}

static const char *nearest(enum guard_table t, const char *name)
{
	const char *keys[GUARD_KEYS];
	unsigned n = 0;

	for (unsigned i = 0; i < GUARD_KEYS; i++)
		if (has_key(t, i))
			keys[n++] = guard_keys[i].row.key;
	return suggest(name, keys, n, sizeof(keys[0]));
}

static const char *other_table(bool in_match, const struct toml_node *n)
{
	for (unsigned t = 0; t < GUARD_TABLES; t++)
		if (find_key(t, in_match, n) >= 0)
			return guard_table_names[t];
	return NULL;
}

/* Returns the key match.NAME for NAME, or NULL if there is no such key. An error message
 * suggests this key: a user who writes "port" probably means "match.port". */
static const char *find_in_match(enum guard_table t, const char *name)
{
	char full[CONFIG_SHOWN_MAX + MATCH];

	snprintf(full, sizeof(full), "%s%s", match, name);
	for (unsigned i = 0; i < GUARD_KEYS; i++)
		if (has_key(t, i) && strcmp(guard_keys[i].row.key, full) == 0)
			return guard_keys[i].row.key;
	return NULL;
}

static void unknown_key(struct config_reader *r, const struct guard_entry *e, bool in_match,
			const struct config_place *at, const struct toml_node *n)
{
	char key[CONFIG_SHOWN_MAX], name[CONFIG_SHOWN_MAX + MATCH], meant[CONFIG_MEANT_MAX];
	const char *table = guard_table_names[e->table], *other = other_table(in_match, n);
	char sections[CONFIG_SECTIONS_MAX];
	const char *inner;

	snprintf(name, sizeof(name), "%s%s", in_match ? match : "", config_key_shown(n, key));
	inner = find_in_match(e->table, name);
	if (other)
		config_complain(r, at, "\"%s\" belongs in [[%s]], not in [[%s]]", name, other,
				table);
	else if (!in_match && !inner && config_sections(n, sections))
		config_complain(r, at,
				"\"%s\" belongs in %s, not in [[%s]]: a key belongs to the "
				"heading above it",
				name, sections, table);
	else
		config_complain(r, at, "no such key \"%s\" in [[%s]]%s", name, table,
				config_meant(inner ? inner : nearest(e->table, name), meant));
}

/* Reads one value. evict may be one string instead of an array. */
static bool read_value(struct config_reader *r, unsigned key, const struct config_place *at,
		       const struct toml_node *n, struct config_value *ret)
{
	const struct config_row *row = &guard_keys[key].row;
	struct config_row text = *row;

	if (key != GUARD_KEY_evict || n->type != TOML_STRING)
		return config_value_node(r, row, at, n, ret);
	text.type = CONFIG_TEXT;
	if (!config_value_node(r, &text, at, n, ret))
		return false;
	ret->list.item[0] = ret->text;
	ret->list.count = ret->text != NULL;
	ret->text = NULL;
	return true;
}

static bool is_empty(const struct config_row *row, const struct config_value *v)
{
	if (row->type == CONFIG_TEXT || row->type == CONFIG_CHOICE)
		return !v->text;
	return row->type == CONFIG_LIST && v->list.count == 0;
}

static void read_key(struct config_reader *r, struct guard_entry *e, unsigned key,
		     const struct toml_node *n)
{
	const struct config_row *row = &guard_keys[key].row;
	const struct config_place at = { CONFIG_FILE, e->at.name, n->line, n->column };

	e->place[key] = at;
	e->given[key] = read_value(r, key, &at, n, &e->value[key]);
	if (e->given[key] && is_empty(row, &e->value[key])) {
		config_complain(r, &at, "%s is empty: set a value or remove the key", row->key);
		e->given[key] = false;
	}
	e->refused[key] = !e->given[key];
}

static void read_keys(struct config_reader *r, struct guard_entry *e, bool in_match,
		      const struct toml_node *top)
{
	for (const struct toml_node *n = top->child; n; n = n->next) {
		const struct config_place at = { CONFIG_FILE, e->at.name, n->key_line,
						 n->key_column };
		int key = find_key(e->table, in_match, n);

		if (key >= 0)
			read_key(r, e, (unsigned)key, n);
		else if (in_match || !toml_is_key(n, "match") || e->table == GUARD_SCHEDULE)
			unknown_key(r, e, in_match, &at, n);
		else if (n->type == TOML_TABLE)
			read_keys(r, e, true, n);
		else
			config_complain(r, &at,
					"match must be a table: write match.name = \"...\"");
	}
}

static unsigned count_entries(const struct config_memory *m, enum guard_table t)
{
	unsigned n = 0;

	for (const struct guard_entry *e = m->entries; e; e = e->next)
		n += e->table == t;
	return n;
}

static void append_entry(struct config_memory *m, struct guard_entry *e)
{
	struct guard_entry **end = &m->entries;

	while (*end)
		end = &(*end)->next;
	*end = e;
}

static void read_entry(struct config_reader *r, enum guard_table t, const char *file,
		       const struct toml_node *n)
{
	const struct config_place at = { CONFIG_FILE, file, n->line, n->column };
	struct guard_entry *e;

	if (n->type != TOML_TABLE) {
		config_complain(r, &at, "\"%s\" must be an array of tables ([[%s]])",
				guard_table_names[t], guard_table_names[t]);
		return;
	}
	e = calloc(1, sizeof(*e));
	if (!e) {
		config_fail(r, -GW_E_NOMEM, &at,
			    "out of memory while reading the configuration");
		return;
	}
	e->table = t;
	e->number = count_entries(r->m, t) + 1;
	e->at = at;
	append_entry(r->m, e);
	read_keys(r, e, false, n);
}

static void read_array(struct config_reader *r, enum guard_table t, const char *file,
		       const struct toml_node *array)
{
	for (const struct toml_node *n = array->child; n; n = n->next) {
		const struct config_place at = { CONFIG_FILE, file, n->line, n->column };

		if (count_entries(r->m, t) == most_entries[t]) {
			config_complain(r, &at, "at most %u [[%s]] are allowed",
					most_entries[t], guard_table_names[t]);
			return;
		}
		read_entry(r, t, file, n);
	}
}

bool guard_config_array(struct config_reader *r, const char *file, const struct toml_node *n)
{
	const struct config_place at = { CONFIG_FILE, file, n->key_line, n->key_column };

	for (unsigned t = 0; t < GUARD_TABLES; t++) {
		const char *name = guard_table_names[t];

		if (!toml_is_key(n, name))
			continue;
		if (n->type == TOML_ARRAY)
			read_array(r, t, file, n);
		else
			config_complain(
				r, &at,
				"write [[%s]], with two brackets: there may be several, "
				"and GUARD.md shows a file that works",
				name);
		return true;
	}
	return false;
}

const char *guard_config_meant(const char *name, char out[static CONFIG_MEANT_MAX])
{
	const char *near = suggest(name, guard_table_names, GUARD_TABLES, sizeof(near));

	out[0] = '\0';
	if (near)
		snprintf(out, CONFIG_MEANT_MAX, "; did you mean [[%s]]?", near);
	return out;
}

void guard_config_free(struct config_memory *m)
{
	while (m->entries) {
		struct guard_entry *next = m->entries->next;

		free(m->entries);
		m->entries = next;
	}
}

#define WRONG 200

/* Checks the name, which is used in URLs and file names. */
static const char *check_name(const char *s, char out[static WRONG])
{
	(void)out;
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return "a name has letters, digits, dots, dashes and underscores";
	return strlen(s) > 63 ? "a name has at most 63 bytes" : NULL;
}

static bool is_part(const char *at, size_t n, const char *name)
{
	return n == strlen(name) && memcmp(at, name, n) == 0;
}

/* Returns the position in the path at which the API path of the worker begins, or NULL. The
 * part before that position may belong to a proxy. */
static const char *worker_path(const char *path)
{
	while (*path) {
		const char *part = path + strspn(path, "/");
		size_t n = strcspn(part, "/");
		bool last = !part[n + strspn(part + n, "/")];

		if (is_part(part, n, "v1") ||
		    (last && (is_part(part, n, "api") || is_part(part, n, "sdapi"))))
			return path;
		path = part + n;
	}
	return NULL;
}

/* Refuses a path such as /v1. Clients use http://HOST:PORT/v1. But the guard appends its own
 * paths to the URL, and these paths must not be below /v1. */
static const char *check_url_path(const char *url, const char *path, char out[static WRONG])
{
	const char *more = worker_path(path);

	if (!more)
		return NULL;
	snprintf(out, WRONG, "write \"%.*s\", without %.40s: the guard appends its own paths",
		 (int)(more - url < 80 ? more - url : 80), url, more);
	return out;
}

static const char *check_http(const char *url, char out[static WRONG])
{
	const char *s = url, *wrong;
	bool tls = strncmp(s, "https://", 8) == 0;
	char host[300];

	if (!tls && strncmp(s, "http://", 7) != 0)
		return "write http://HOST:PORT or https://HOST:PORT";
	s += tls ? 8 : 7;
	if (strpbrk(s, "@?# \t"))
		return "remove the user name, query, fragment (#) and spaces from the URL; a "
		       "token belongs in token_file";
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			return "it has characters that are not allowed in a URL";
	snprintf(host, sizeof(host), "%.*s", (int)strcspn(s, "/"), s);
	if (!*host || *host == ':')
		return "the host is missing";
	/* A URL without a port uses the default port of the scheme. */
	if (!strchr(host[0] == '[' ? host + strcspn(host, "]") : host, ':'))
		snprintf(host + strlen(host), sizeof(host) - strlen(host), ":80");
	wrong = config_check_address(host);
	return wrong ? wrong : check_url_path(url, s + strcspn(s, "/"), out);
}

/* Checks the url of a worker of kind systemd. This url names the systemd manager of the
 * unit. */
static const char *check_manager(const char *s, char out[static WRONG])
{
	(void)out;
	if (strcmp(s, "user") == 0)
		return NULL;
	if (strncmp(s, "user@", 5) == 0 && s[5] && s[5] != '-' &&
	    !s[5 + strspn(s + 5, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				 "0123456789._-")])
		return NULL;
	return "for a unit it selects the systemd manager: write \"user\" or \"user@NAME\", or "
	       "remove it for the system manager";
}

static const char *check_engine(const char *s, char out[static WRONG])
{
	(void)out;
	if (strncmp(s, "unix:///", 8) == 0 && s[8])
		return NULL;
	return "for a container it is the socket of the container engine: write "
	       "\"unix:///PATH\"";
}

static const char *check_path(const char *s, char out[static WRONG])
{
	(void)out;
	return *s == '/' ? NULL : "write an absolute path";
}

static const char *check_exe(const char *s, char out[static WRONG])
{
	(void)out;
	return *s == '/' || *s == '*' ? NULL
				      : "write an absolute path, or a pattern that begins "
					"with *, because it is compared with the whole path of "
					"the program";
}

static const char *check_comm(const char *s, char out[static WRONG])
{
	size_t least = 0;

	for (const char *p = s; *p; p++)
		least += *p != '*';
	if (least <= 15)
		return NULL;
	snprintf(out, WRONG,
		 "the kernel keeps 15 bytes of a process name, so this never matches; write "
		 "\"%.15s\", or use match.exe",
		 s);
	return out;
}

static const char *check_regex(const char *s, char out[static WRONG])
{
	const char *fault = classify_pattern_fault(s);
	char why[100];
	regex_t re;
	int rc;

	if (fault)
		return fault;
	rc = regcomp(&re, s, REG_EXTENDED | REG_NOSUB);
	if (rc == 0) {
		regfree(&re);
		return NULL;
	}
	regerror(rc, &re, why, sizeof(why));
	snprintf(out, WRONG, "not an extended regular expression: %s", why);
	return out;
}

static const char *check_unit(const char *s, char out[static WRONG])
{
	static const char *const ends[] = { ".service", ".scope", ".slice" };

	for (unsigned i = 0; i < COUNT(ends); i++)
		if (strlen(s) > strlen(ends[i]) &&
		    strcmp(s + strlen(s) - strlen(ends[i]), ends[i]) == 0)
			return strchr(s, '/') ? "a unit has no / in its name" : NULL;
	snprintf(out, WRONG, "write the unit with its suffix, such as \"%.60s.service\"", s);
	return out;
}

static const char *check_container(const char *s, char out[static WRONG])
{
	(void)out;
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return "an id or a name has letters, digits, dots, dashes and "
			       "underscores";
	return NULL;
}

/* Refuses SIGSTOP, because a stopped process keeps its memory on the GPU, and SIGKILL, because
 * terminating the process is an eviction level. */
static const char *check_signal(const char *s, char out[static WRONG])
{
	int n = guard_signal(s);

	if (n == SIGKILL)
		return "SIGKILL terminates the worker: use max_level = 6 with allow_kill = "
		       "true";
	if (n == SIGSTOP || n == SIGTSTP)
		return "this signal frees no memory: a stopped process keeps its memory on the "
		       "GPU";
	if (n)
		return NULL;
	snprintf(out, WRONG, "unknown signal: write for example SIGUSR1");
	return out;
}

static const struct {
	enum guard_key key;
	const char *(*wrong)(const char *s, char out[static WRONG]);
} forms[] = {
	{ GUARD_KEY_name, check_name },
	{ GUARD_KEY_token_file, check_path },
	{ GUARD_KEY_evict_signal, check_signal },
	{ GUARD_KEY_resume_signal, check_signal },
	{ GUARD_KEY_match_unit, check_unit },
	{ GUARD_KEY_match_pidfile, check_path },
	{ GUARD_KEY_match_name, check_comm },
	{ GUARD_KEY_match_exe, check_exe },
	{ GUARD_KEY_match_command, check_regex },
	{ GUARD_KEY_match_container, check_container },
};

void guard_config_refuse(struct config_reader *r, struct guard_entry *e, enum guard_key key,
			 const char *value, const char *why)
{
	config_complain(r, &e->place[key], "%s: \"%.100s\": %s", guard_keys[key].row.key, value,
			why);
	e->given[key] = false;
	e->refused[key] = true;
}

/* Checks url. Its meaning depends on the kind of worker. */
static void check_url(struct config_reader *r, struct guard_entry *e)
{
	const char *value = guard_entry_text(e, GUARD_KEY_url), *why;
	int kind = guard_entry_kind(e);
	char out[WRONG];

	if (!value)
		return;
	if (kind >= 0 && policy_kind_is((unsigned)kind, KIND_UNIT))
		why = check_manager(value, out);
	else if (kind >= 0 && policy_kind_is((unsigned)kind, KIND_CONTAINER))
		why = check_engine(value, out);
	else
		why = check_http(value, out);
	if (why)
		guard_config_refuse(r, e, GUARD_KEY_url, value, why);
}

static void check_forms(struct config_reader *r, struct guard_entry *e)
{
	char out[WRONG];

	for (unsigned i = 0; i < COUNT(forms); i++) {
		const char *value = guard_entry_text(e, forms[i].key);
		const char *why = value ? forms[i].wrong(value, out) : NULL;

		if (why)
			guard_config_refuse(r, e, forms[i].key, value, why);
	}
}

static void check_program(struct config_reader *r, struct guard_entry *e, enum guard_key key)
{
	if (e->given[key] && e->value[key].list.item[0][0] != '/')
		guard_config_refuse(r, e, key, e->value[key].list.item[0],
				    "write the absolute path of the program: there is no shell "
				    "to search for it");
}

static void check_types(struct config_reader *r, struct guard_entry *e)
{
	const struct config_list *l = &e->value[GUARD_KEY_match_type].list;

	for (unsigned i = 0; e->given[GUARD_KEY_match_type] && i < l->count; i++)
		if (!process_type_named(l->item[i]))
			guard_config_refuse(r, e, GUARD_KEY_match_type, l->item[i],
					    "types are compute, graphics and mps");
}

#define DIGITS "0123456789"
#define HEX    DIGITS "abcdefABCDEF"

static bool is_made_of(const char *s, const char *set)
{
	return s[strspn(s, set)] == '\0';
}

/* True if s has the format of a GPU selector. The check compares s with `none`, a GPU that does
 * not exist. So gw_device_matches() returns a negative number only if the format is wrong. An
 * index of more than three digits counts as a typing error. */
static bool is_gpu_selector(const char *s)
{
	static const struct gw_device none = { .index = UINT32_MAX, .cuda_ordinal = -1 };

	return gw_device_matches(&none, s) >= 0 && (!is_made_of(s, DIGITS) || strlen(s) <= 3);
}

static void warn_gpu(struct config_reader *r, const struct guard_entry *e, enum guard_key key,
		     const char *s)
{
	if (!is_gpu_selector(s))
		config_warn(r, &e->place[key],
			    "%s: \"%.60s\" does not look like a GPU: write an index, a UUID "
			    "(GPU-...), a PCI id, cuda:N, visible or all",
			    guard_keys[key].row.key, s);
}

static void check_gpus(struct config_reader *r, const struct guard_entry *e)
{
	const struct config_list *l = &e->value[GUARD_KEY_gpus].list;

	for (unsigned i = 0; e->given[GUARD_KEY_gpus] && i < l->count; i++)
		warn_gpu(r, e, GUARD_KEY_gpus, l->item[i]);
	if (e->given[GUARD_KEY_match_gpu])
		warn_gpu(r, e, GUARD_KEY_match_gpu, guard_entry_text(e, GUARD_KEY_match_gpu));
}

/* Warns if match.container of a rule is not an id, because the rule then never matches. Also
 * warns about an id of less than 4 characters. The beginning of an id is enough for a match, so
 * such a short id matches many containers. */
static void check_short(struct config_reader *r, const struct guard_entry *e)
{
	const char *s = guard_entry_text(e, GUARD_KEY_match_container);

	if (s && e->table == GUARD_RULE && !is_made_of(s, HEX))
		config_warn(r, &e->place[GUARD_KEY_match_container],
			    "match.container: a rule compares container ids, and \"%s\" is not "
			    "an id, so the rule never matches",
			    s);
	if (s && strlen(s) < 4 && is_made_of(s, HEX))
		config_warn(r, &e->place[GUARD_KEY_match_container],
			    "match.container: this matches every container whose id begins "
			    "with \"%s\": write more of the id",
			    s);
}

void guard_config_forms(struct config_reader *r, struct guard_entry *e)
{
	check_forms(r, e);
	check_url(r, e);
	check_program(r, e, GUARD_KEY_evict_command);
	check_program(r, e, GUARD_KEY_resume_command);
	check_types(r, e);
	check_gpus(r, e);
	check_short(r, e);
}
