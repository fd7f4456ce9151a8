/* Writes the configuration as a commented TOML file and as JSON. */
#include "config_read.h"

#include "guard_config_read.h"

#include "base/number.h"
#include "base/text.h"

#include <ctype.h>
#include <string.h>

static void add_quoted(struct buf *out, const char *s)
{
	buf_addc(out, '"');
	for (; s && *s; s++) {
		if (*s == '"' || *s == '\\')
			buf_addf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20 || *s == 0x7f)
			buf_addf(out, "\\u%04x", (unsigned)(unsigned char)*s);
		else
			buf_addc(out, *s);
	}
	buf_addc(out, '"');
}

void config_value_print(struct buf *out, const struct config_row *row,
			const struct config_value *v)
{
	char text[NUMBER_SIZE];

	switch (row->type) {
	case CONFIG_BOOL: buf_adds(out, v->yes ? "true" : "false"); break;
	case CONFIG_COUNT: buf_addf(out, "%llu", (unsigned long long)v->count); break;
	case CONFIG_NUMBER:
		number_format(v->number, text);
		buf_adds(out, text);
		break;
	case CONFIG_DURATION:
	case CONFIG_BYTES:
		buf_addc(out, '"');
		config_number_print(out, row, v->count);
		buf_addc(out, '"');
		break;
	case CONFIG_TEXT:
	case CONFIG_CHOICE: add_quoted(out, v->text); break;
	case CONFIG_LIST:
		buf_addc(out, '[');
		for (unsigned i = 0; i < v->list.count; i++) {
			buf_adds(out, i ? ", " : "");
			add_quoted(out, v->list.item[i]);
		}
		buf_addc(out, ']');
	}
}

static void add_place(struct buf *out, const struct config_place *p)
{
	if (p->from == CONFIG_STANDARD)
		buf_adds(out, "default");
	else if (p->from == CONFIG_FILE)
		buf_addf(out, "%s:%u:%u", p->name, p->line, p->column);
	else
		buf_adds(out, p->name);
}

/* Adds text with control characters replaced, because a newline in a path would end the
 * comment. */
static void add_comment(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_addc(out, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void config_origin_print(struct buf *out, const struct config_place *p)
{
	struct buf place;

	buf_init(&place, 8192);
	add_place(&place, p);
	buf_adds(out, "  # ");
	add_comment(out, place.p);
	buf_done(&place);
}

static void print_help(struct buf *out, const struct config_row *row)
{
	buf_addf(out, "# %c%s", toupper((unsigned char)row->help[0]), row->help + 1);
	if (row->choices)
		buf_addf(out, " (%s)", row->choices);
	buf_addc(out, '\n');
}

static void guard_config_print(struct buf *out, const struct config_memory *m, bool origin)
{
	for (const struct guard_entry *e = m->entries; e; e = e->next) {
		buf_addf(out, "\n[[%s]]\n", guard_table_names[e->table]);
		for (unsigned k = 0; k < GUARD_KEYS; k++) {
			const struct config_row *row = &guard_keys[k].row;

			if (!e->given[k])
				continue;
			buf_addf(out, "%s = ", row->key);
			config_value_print(out, row, &e->value[k]);
			if (origin)
				config_origin_print(out, &e->place[k]);
			buf_addc(out, '\n');
		}
	}
}

enum print_form { PLAIN, ORIGIN, EXAMPLE };

static void print_row(struct buf *out, const struct config *c, unsigned i,
		      enum print_form print_form)
{
	const struct config_memory *m = c->memory;
	const struct config_row *row = &config_rows[i];
	struct config_value v;

	print_help(out, row);
	config_value_get(c, row, &v);
	if (print_form == EXAMPLE && m->place[i].from == CONFIG_STANDARD)
		buf_addc(out, '#');
	buf_addf(out, "%s = ", row->key);
	config_value_print(out, row, &v);
	if (print_form == ORIGIN)
		config_origin_print(out, &m->place[i]);
	buf_addc(out, '\n');
}

static void print_config(struct buf *out, const struct config *c, enum print_form print_form)
{
	const char *section = "";

	buf_adds(out, "# The configuration of gpuward serve; see gpuward.toml(5).\n");
	if (print_form == EXAMPLE)
		buf_adds(out, "# The values after a # are the defaults; remove the # to change "
			      "one.\n");
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		if (strcmp(section, config_rows[i].section) != 0)
			buf_addf(out, "\n[%s]\n", config_rows[i].section);
		section = config_rows[i].section;
		print_row(out, c, i, print_form);
	}
	guard_config_print(out, c->memory, print_form == ORIGIN);
}

void config_print(struct buf *out, const struct config *c, bool origin)
{
	print_config(out, c, origin ? ORIGIN : PLAIN);
}

void config_print_example(struct buf *out, const struct config *c)
{
	print_config(out, c, EXAMPLE);
}

static void config_value_json(struct json *j, const char *key, const struct config_row *row,
			      const struct config_value *v)
{
	switch (row->type) {
	case CONFIG_BOOL: json_bool(j, key, v->yes); break;
	case CONFIG_COUNT:
	case CONFIG_BYTES: json_uint(j, key, v->count); break;
	case CONFIG_NUMBER: json_double(j, key, v->number); break;
	case CONFIG_DURATION: json_double(j, key, (double)v->count / 1e9); break;
	case CONFIG_TEXT:
	case CONFIG_CHOICE: json_string(j, key, v->text); break;
	case CONFIG_LIST:
		json_array(j, key);
		for (unsigned i = 0; i < v->list.count; i++)
			json_string(j, NULL, v->list.item[i]);
		json_array_end(j);
	}
}

static void config_origin_json(struct json *j, const char *key, const struct config_place *p)
{
	struct buf place;

	buf_init(&place, 8192);
	add_place(&place, p);
	json_string(j, key, place.p);
	buf_done(&place);
}

static void json_sections(struct json *j, const struct config *c, bool origins)
{
	const struct config_memory *m = c->memory;

	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		struct config_value v;

		if (i == 0 || strcmp(row[-1].section, row->section) != 0)
			json_object(j, row->section);
		config_value_get(c, row, &v);
		if (origins)
			config_origin_json(j, row->key, &m->place[i]);
		else
			config_value_json(j, row->key, row, &v);
		if (i + 1 == CONFIG_ROWS || strcmp(row[1].section, row->section) != 0)
			json_object_end(j);
	}
}

static const char *const plural[GUARD_TABLES] = { "workers", "rules", "schedules" };

/* Writes the keys in the order of guard_config.def, in which the keys of the table `match` are
 * contiguous. */
static void entry_json(struct json *j, const struct guard_entry *e)
{
	static const char match[] = "match.";
	bool in_match = false;

	json_object(j, NULL);
	for (unsigned k = 0; k < GUARD_KEYS; k++) {
		const struct config_row *row = &guard_keys[k].row;
		bool of_match = e->table != GUARD_SCHEDULE &&
				strncmp(row->key, match, strlen(match)) == 0;

		if (of_match && !in_match)
			json_object(j, "match");
		else if (in_match && !of_match)
			json_object_end(j);
		in_match = of_match;
		if (e->given[k])
			config_value_json(j, row->key + (of_match ? strlen(match) : 0), row,
					  &e->value[k]);
	}
	config_origin_json(j, "origin", &e->at);
	json_object_end(j);
}

static void guard_config_json(struct json *j, const struct config_memory *m)
{
	for (unsigned t = 0; t < GUARD_TABLES; t++) {
		json_array(j, plural[t]);
		for (const struct guard_entry *e = m->entries; e; e = e->next)
			if (e->table == t)
				entry_json(j, e);
		json_array_end(j);
	}
}

void config_json(struct json *j, const struct config *c)
{
	json_object(j, "values");
	json_sections(j, c, false);
	json_object_end(j);
	json_object(j, "origins");
	json_sections(j, c, true);
	json_object_end(j);
	guard_config_json(j, c->memory);
}
