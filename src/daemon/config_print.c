/* Writes the configuration as a commented TOML file and as JSON. */
#include "config_read.h"

#include "base/number.h"
#include "base/text.h"

#include <ctype.h>
#include <string.h>

/* ---- in the struct ---- */

void config_value_set(struct config *c, const struct config_row *row,
		      const struct config_value *v)
{
	void *at = (char *)c + row->offset;

	switch (row->type) {
	case CONFIG_BOOL: *(bool *)at = v->yes; break;
	case CONFIG_COUNT:
	case CONFIG_DURATION:
	case CONFIG_BYTES: *(uint64_t *)at = v->count; break;
	case CONFIG_NUMBER: *(double *)at = v->number; break;
	case CONFIG_TEXT:
	case CONFIG_CHOICE: *(const char **)at = v->text; break;
	case CONFIG_LIST: *(struct config_list *)at = v->list; break;
	}
}

void config_value_get(const struct config *c, const struct config_row *row,
		      struct config_value *ret)
{
	const void *at = (const char *)c + row->offset;

	*ret = (struct config_value){ 0 };
	switch (row->type) {
	case CONFIG_BOOL: ret->yes = *(const bool *)at; break;
	case CONFIG_COUNT:
	case CONFIG_DURATION:
	case CONFIG_BYTES: ret->count = *(const uint64_t *)at; break;
	case CONFIG_NUMBER: ret->number = *(const double *)at; break;
	case CONFIG_TEXT:
	case CONFIG_CHOICE: ret->text = *(const char *const *)at; break;
	case CONFIG_LIST: ret->list = *(const struct config_list *)at; break;
	}
}

bool config_value_same(const struct config_row *row, const struct config_value *a,
		       const struct config_value *b)
{
	if (row->type == CONFIG_BOOL)
		return a->yes == b->yes;
	if (row->type == CONFIG_NUMBER)
		return a->number == b->number;
	if (row->type == CONFIG_TEXT || row->type == CONFIG_CHOICE)
		return text_same(a->text, b->text);
	if (row->type != CONFIG_LIST)
		return a->count == b->count;
	for (unsigned i = 0; i < CONFIG_LIST_MAX; i++)
		if (!text_same(a->list.item[i], b->list.item[i]))
			return false;
	return true;
}

/* ---- as TOML ---- */

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

/* ---- the file ---- */

static void add_place(struct buf *out, const struct config_place *p)
{
	if (p->from == CONFIG_STANDARD)
		buf_adds(out, "default");
	else if (p->from == CONFIG_FILE)
		buf_addf(out, "%s:%u:%u", p->name, p->line, p->column);
	else
		buf_adds(out, p->name);
}

/* Replaces control characters of a path, which would end the comment. */
static void add_comment(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_addc(out, (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

void config_origin_print(struct buf *out, const struct config_place *p)
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
		buf_adds(out,
			 "# Commented values are the defaults; remove the # to change one.\n");
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

/* ---- JSON ---- */

void config_value_json(struct json *j, const char *key, const struct config_row *row,
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

void config_origin_json(struct json *j, const char *key, const struct config_place *p)
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
