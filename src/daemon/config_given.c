/* Settings from the environment and the command line. */
#include "config_read.h"

#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the environment ---- */

void config_variable(const struct config_row *row, char out[static CONFIG_NAME_MAX])
{
	bool bare = strcmp(row->section, "service") == 0;

	snprintf(out, CONFIG_NAME_MAX, "GPUWARD_%s%s%s", bare ? "" : row->section,
		 bare ? "" : "_", row->key);
	for (char *p = out; *p; p++)
		*p = *p == '.' ? '_' : (char)toupper((unsigned char)*p);
}

/* Variables that other parts of the program read. */
static const char *const other_variables[] = {
	"GPUWARD_SIM",         "GPUWARD_SIM_LIBRARY", "GPUWARD_MARK_FD",
	"GPUWARD_LIBRARY",     "GPUWARD_BUILD",       "GPUWARD_GOLDEN",
	"GPUWARD_CONFIG_ROOT", "GPUWARD_ADDRESS",     "GPUWARD_GPU",
};
#define OTHERS (sizeof(other_variables) / sizeof(other_variables[0]))

static void unknown_variable(struct config_reader *r, const char *word)
{
	char names[CONFIG_ROWS][CONFIG_NAME_MAX], meant[CONFIG_MEANT_MAX];
	const struct config_place at = { CONFIG_VARIABLE, word, 0, 0 };
	const char *known[CONFIG_ROWS + OTHERS];

	if (strncmp(word, "GPUWARD_TEST_", 13) == 0)
		return;
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		config_variable(&config_rows[i], names[i]);
		known[i] = names[i];
	}
	memcpy(known + CONFIG_ROWS, other_variables, sizeof(other_variables));
	for (unsigned i = 0; i < CONFIG_ROWS + OTHERS; i++)
		if (strcmp(known[i], word) == 0)
			return;
	config_warn(r, &at, "unknown setting, ignored%s",
		    config_meant(suggest(word, known, CONFIG_ROWS + OTHERS, sizeof(known[0])),
				 meant));
}

static void unknown_variables(struct config_reader *r)
{
	for (char **e = environ; e && *e; e++) {
		char word[CONFIG_NAME_MAX];

		if (strncmp(*e, "GPUWARD_", 8) != 0)
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(*e, "="), *e);
		unknown_variable(r, word);
	}
}

void config_variables_read(struct config_reader *r)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		char name[CONFIG_NAME_MAX];
		struct config_place at = { CONFIG_VARIABLE, name, 0, 0 };
		struct config_value v;
		const char *text;

		config_variable(&config_rows[i], name);
		text = getenv(name);
		/* An empty variable counts as not set; container files often have them. */
		if (!text || !*text || !config_value_text(r, &config_rows[i], &at, text, &v))
			continue;
		config_value_set(r->c, &config_rows[i], &v);
		r->m->place[i] = at;
		r->m->place[i].name = config_keep(r, name, strlen(name));
	}
	unknown_variables(r);
}

/* ---- flags ---- */

/* Finds a row by its flag or by "section.key". */
static const struct config_row *find_flag(const char *name)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		size_t n = strlen(row->section);

		if (row->flag && strcmp(row->flag, name) == 0)
			return row;
		if (strncmp(row->section, name, n) == 0 && name[n] == '.' &&
		    strcmp(row->key, name + n + 1) == 0)
			return row;
	}
	return NULL;
}

/* A list flag that is given again appends. */
static void append(struct config_reader *r, const struct config_row *row,
		   const struct config_place *at, struct config_value *v)
{
	struct config_value before;
	const unsigned id = (unsigned)(row - config_rows);

	if (row->type != CONFIG_LIST || r->given[id].from != CONFIG_FLAG)
		return;
	config_value_get(r->c, row, &before);
	if (before.list.count + v->list.count > CONFIG_LIST_MAX) {
		config_complain(r, at, "must be a list of at most %d items", CONFIG_LIST_MAX);
		return;
	}
	memcpy(before.list.item + before.list.count, v->list.item,
	       v->list.count * sizeof(v->list.item[0]));
	before.list.count += v->list.count;
	*v = before;
}

static void read_flag(struct config_reader *r, const struct config_flag *f)
{
	const struct config_row *row = find_flag(f->name);
	struct config_place at = { CONFIG_FLAG, NULL, 0, 0 };
	struct config_value v;
	char name[CONFIG_NAME_MAX];

	snprintf(name, sizeof(name), "%s%s", row && !row->flag ? "" : "--", f->name);
	at.name = name;
	if (!row) {
		config_complain(r, &at, "no such setting");
		return;
	}
	if (!config_value_text(r, row, &at, f->value ? f->value : "true", &v))
		return;
	append(r, row, &at, &v);
	config_value_set(r->c, row, &v);
	at.name = config_keep(r, name, strlen(name));
	r->given[row - config_rows] = at;
	r->m->place[row - config_rows] = at;
}

void config_flags_read(struct config_reader *r, const struct config_flag *flags, unsigned n)
{
	memset(r->given, 0, sizeof(r->given));
	for (unsigned i = 0; i < n; i++)
		read_flag(r, &flags[i]);
}
