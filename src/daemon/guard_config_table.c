/* Reads [[worker]], [[rule]] and [[schedule]] of a file into entries. */
#include "guard_config_read.h"

#include "base/suggest.h"

#include <gpuward.h>

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

/* ---- names ---- */

static bool has_key(enum guard_table t, unsigned key)
{
	return guard_keys[key].of >> t & 1;
}

static const char match[] = "match.";
#define MATCH (sizeof(match) - 1)

/* True if n has the name of this key. in_match: n is in the match table of the entry, not in
 * the entry itself. */
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

/* ---- unknown keys ---- */

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

/* Returns the key match.NAME for NAME, for an error message: with "port" the user probably
 * meant "match.port". */
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

/* ---- values ---- */

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

/* ---- entries ---- */

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
				"and docs/GUARD.md shows a file that works",
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
