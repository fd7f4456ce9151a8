/* The configuration as a commented TOML file and as JSON. */
#include "config_read.h"

#include <ctype.h>
#include <string.h>

static void add_place(struct buf *out, const struct config_place *p)
{
	if (p->from == CONFIG_STANDARD)
		buf_adds(out, "default");
	else if (p->from == CONFIG_FILE)
		buf_addf(out, "%s:%u:%u", p->name, p->line, p->column);
	else
		buf_adds(out, p->name);
}

/* A path may hold what must not stand in a comment. */
static void comment(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_addc(out, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void add_origin(struct buf *out, const struct config_place *p)
{
	struct buf place;

	buf_init(&place, 8192);
	add_place(&place, p);
	buf_adds(out, "  # ");
	comment(out, place.p);
	buf_done(&place);
}

static void print_help(struct buf *out, const struct config_row *row)
{
	buf_addf(out, "# %c%s", toupper((unsigned char)row->help[0]), row->help + 1);
	if (row->choices)
		buf_addf(out, " (%s)", row->choices);
	buf_addc(out, '\n');
}

void config_print(struct buf *out, const struct config *c, bool origin)
{
	const struct config_memory *m = c->memory;
	const char *section = "";

	buf_adds(out, "# The configuration of gpuward serve; see gpuward.toml(5).\n");
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		struct config_value v;

		if (strcmp(section, row->section) != 0)
			buf_addf(out, "\n[%s]\n", row->section);
		section = row->section;
		print_help(out, row);
		config_value_get(c, row, &v);
		buf_addf(out, "%s = ", row->key);
		config_value_print(out, row, &v);
		if (origin)
			add_origin(out, &m->place[i]);
		buf_addc(out, '\n');
	}
}

/* ---- JSON ---- */

static void value(struct json *j, const struct config_row *row, const struct config_value *v)
{
	switch (row->type) {
	case CONFIG_BOOL: json_bool(j, row->key, v->yes); break;
	case CONFIG_COUNT:
	case CONFIG_BYTES: json_uint(j, row->key, v->count); break;
	case CONFIG_NUMBER: json_double(j, row->key, v->number); break;
	case CONFIG_DURATION: json_double(j, row->key, (double)v->count / 1e9); break;
	case CONFIG_TEXT:
	case CONFIG_CHOICE: json_string(j, row->key, v->text); break;
	case CONFIG_LIST:
		json_array(j, row->key);
		for (unsigned i = 0; i < v->list.count; i++)
			json_string(j, NULL, v->list.item[i]);
		json_array_end(j);
	}
}

static void origin_of(struct json *j, const struct config_row *row,
		      const struct config_place *p)
{
	struct buf place;

	buf_init(&place, 8192);
	add_place(&place, p);
	json_string(j, row->key, place.p);
	buf_done(&place);
}

static void sections(struct json *j, const struct config *c, bool origins)
{
	const struct config_memory *m = c->memory;

	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		struct config_value v;

		if (i == 0 || strcmp(row[-1].section, row->section) != 0)
			json_object(j, row->section);
		config_value_get(c, row, &v);
		if (origins)
			origin_of(j, row, &m->place[i]);
		else
			value(j, row, &v);
		if (i + 1 == CONFIG_ROWS || strcmp(row[1].section, row->section) != 0)
			json_object_end(j);
	}
}

void config_json(struct json *j, const struct config *c)
{
	json_object(j, "values");
	sections(j, c, false);
	json_object_end(j);
	json_object(j, "origins");
	sections(j, c, true);
	json_object_end(j);
}
