/* Converts values of settings from TOML and from strings, checks their range, and stores
 * them. */
#include "config_read.h"

#include "base/array.h"
#include "base/number.h"
#include "base/suggest.h"
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Offset and size of the member of struct config_value that holds the value, for each type. */
static const struct {
	size_t offset, size;
} members[] = {
#define MEMBER(name)                                                                          \
	{                                                                                     \
		offsetof(struct config_value, name), sizeof(((struct config_value *)0)->name) \
	}
	[CONFIG_BOOL] = MEMBER(yes),       [CONFIG_COUNT] = MEMBER(count),
	[CONFIG_DURATION] = MEMBER(count), [CONFIG_BYTES] = MEMBER(count),
	[CONFIG_NUMBER] = MEMBER(number),  [CONFIG_TEXT] = MEMBER(text),
	[CONFIG_CHOICE] = MEMBER(text),    [CONFIG_LIST] = MEMBER(list),
#undef MEMBER
};

void config_value_set(struct config *c, const struct config_row *row,
		      const struct config_value *v)
{
	memcpy((char *)c + row->offset, (const char *)v + members[row->type].offset,
	       members[row->type].size);
}

void config_value_get(const struct config *c, const struct config_row *row,
		      struct config_value *ret)
{
	*ret = (struct config_value){ 0 };
	memcpy((char *)ret + members[row->type].offset, (const char *)c + row->offset,
	       members[row->type].size);
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

static const char *const wanted[] = {
	[CONFIG_BOOL] = "true or false",
	[CONFIG_COUNT] = "a whole number",
	[CONFIG_NUMBER] = "a number",
	[CONFIG_DURATION] = "a time such as \"1s\" or \"500ms\", or a number of seconds",
	[CONFIG_BYTES] = "a size such as \"512MiB\", or a number of bytes",
	[CONFIG_TEXT] = "a string",
	[CONFIG_CHOICE] = "a string",
	[CONFIG_LIST] = "an array of strings",
};

/* Marks the setting as refused. Does nothing for a row of the guard's tables, because such a
 * row is not in config_rows. */
static void note_bad(struct config_reader *r, const struct config_row *row)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (row == &config_rows[i])
			r->bad[i] = true;
}

/* Reports a refused value. The message names the key only for a file, because variables and
 * flags already name it. */
static void value_refuse(struct config_reader *r, const struct config_row *row,
			 const struct config_place *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void value_refuse(struct config_reader *r, const struct config_row *row,
			 const struct config_place *at, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	note_bad(r, row);
	if (at->from == CONFIG_FILE)
		config_complain(r, at, "%s must be %s", row->key, text);
	else
		config_complain(r, at, "must be %s", text);
}

/* Prints v in the largest unit that gives a whole number. */
static void print_scaled(struct buf *out, uint64_t v, const struct unit *units)
{
	const struct unit *u = units;

	while (v == 0 ? strcmp(u->name, "s") != 0 && strcmp(u->name, "B") != 0
		      : v % (uint64_t)u->size != 0)
		u++;
	buf_addf(out, "%llu%s", (unsigned long long)(v / (uint64_t)u->size), u->name);
}

void config_number_print(struct buf *out, const struct config_row *row, uint64_t v)
{
	print_scaled(out, v, row->type == CONFIG_BYTES ? unit_sizes : unit_times);
}

/* Writes a number that is in the unit of row->least. Durations and sizes get the largest unit
 * that gives a whole number, such as "500ms". */
static void config_number_show(const struct config_row *row, double v, char *out, size_t size)
{
	struct buf b;
	char text[NUMBER_SIZE];

	buf_init_fixed(&b, out, size);
	if (row->type == CONFIG_DURATION && v >= 0 && v < 1e9) {
		print_scaled(&b, (uint64_t)(v * 1e9 + 0.5), unit_times);
	} else if (row->type == CONFIG_BYTES && v >= 0 && v < 1e18) {
		print_scaled(&b, (uint64_t)v, unit_sizes);
	} else {
		number_format(v, text);
		buf_adds(&b, text);
	}
}

/* Reads a number, with or without a unit. *ret is in the unit of row->least and row->most:
 * seconds, bytes or none. Returns false if text is not a number. */
static bool config_number_read(const struct config_row *row, const char *text, double *ret)
{
	static const struct unit plain[] = { { "", 1 }, { NULL, 0 } };
	const char *end;

	switch (row->type) {
	case CONFIG_DURATION:
		if (!unit_parse(text, unit_times, ret))
			return false;
		*ret /= 1e9;
		return true;
	case CONFIG_BYTES: return unit_parse(text, unit_sizes, ret);
	case CONFIG_COUNT:
		end = text + strspn(text, "0123456789");
		return *text && !*end && unit_parse(text, plain, ret);
	default:
		*ret = number_parse(text, &end);
		/* number_parse() accepts hexadecimal numbers, but settings do not. */
		return end != text && !*end && isfinite(*ret) && !strpbrk(text, "xX");
	}
}

/* Reports an error and returns false if v is out of range. v is in the unit of row->least and
 * row->most. */
static bool in_range(struct config_reader *r, const struct config_row *row,
		     const struct config_place *at, double v)
{
	char least[40], most[40], is[40];

	if (v >= row->least && v <= row->most)
		return true;
	config_number_show(row, row->least, least, sizeof(least));
	config_number_show(row, row->most, most, sizeof(most));
	config_number_show(row, fabs(v) < 1e300 ? v : copysign(1e300, v), is, sizeof(is));
	value_refuse(r, row, at, "from %s to %s, not %s", least, most, is);
	return false;
}

static bool take_number(struct config_reader *r, const struct config_row *row,
			const struct config_place *at, double v, struct config_value *ret)
{
	if (!in_range(r, row, at, v))
		return false;
	ret->number = v;
	if (row->type == CONFIG_NUMBER)
		return true; /* A NUMBER may be negative; therefore ret->count is not set. */
	ret->count = (uint64_t)(row->type == CONFIG_DURATION ? v * 1e9 + 0.5 : v);
	return true;
}

static bool take_text(struct config_reader *r, const char *text, size_t n,
		      struct config_value *ret)
{
	ret->text = n ? config_keep(r, text, n) : NULL;
	return n == 0 || ret->text;
}

/* Splits "a|b|c" into words, stored in mem. */
#define WORDS_MAX 32
static unsigned split_choices(const char *choices, char *mem, size_t size,
			      const char *words[WORDS_MAX])
{
	unsigned n = 0;

	snprintf(mem, size, "%s", choices);
	for (char *save, *w = strtok_r(mem, "|", &save); w && n < WORDS_MAX;
	     w = strtok_r(NULL, "|", &save))
		words[n++] = w;
	return n;
}

static bool take_choice(struct config_reader *r, const struct config_row *row,
			const struct config_place *at, const char *text,
			struct config_value *ret)
{
	char mem[256], list[320], meant[CONFIG_MEANT_MAX];
	const char *words[WORDS_MAX];
	unsigned n = split_choices(row->choices, mem, sizeof(mem), words);
	struct buf b;

	for (unsigned i = 0; i < n; i++)
		if (strcmp(words[i], text) == 0)
			return take_text(r, text, strlen(text), ret);
	buf_init_fixed(&b, list, sizeof(list));
	for (unsigned i = 0; i < n; i++)
		buf_addf(&b, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
	value_refuse(r, row, at, "%s, not \"%.60s\"%s", list, text,
		     config_meant(suggest(text, words, n, sizeof(words[0])), meant));
	return false;
}

static bool add_item(struct config_reader *r, const struct config_row *row,
		     const struct config_place *at, const char *text, size_t n,
		     struct config_list *list)
{
	if (n == 0) {
		value_refuse(r, row, at, "a list without empty items");
		return false;
	}
	if (list->count == CONFIG_LIST_MAX) {
		value_refuse(r, row, at, "a list of at most %d items", CONFIG_LIST_MAX);
		return false;
	}
	list->item[list->count] = config_keep(r, text, n);
	return list->item[list->count++] != NULL;
}

static bool has_nul(const struct toml_node *n)
{
	return memchr(n->v.string.text, '\0', n->v.string.len) != NULL;
}

static bool wrong_type(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const struct toml_node *n)
{
	value_refuse(r, row, at, "%s, not %s %s", wanted[row->type],
		     strchr("aeiou", *toml_type_name(n->type)) ? "an" : "a",
		     toml_type_name(n->type));
	return false;
}

/* Reports a list item that is not a string. If the item is a number, it is most often a GPU
 * index without quotes. */
static bool no_item(struct config_reader *r, const struct config_row *row,
		    const struct config_place *at, const struct toml_node *n)
{
	if (n->type == TOML_INTEGER)
		value_refuse(r, row, at, "an array of strings: write \"%lld\", in quotes",
			     (long long)n->v.integer);
	else if (n->type == TOML_STRING)
		value_refuse(r, row, at, "an array of strings without NUL characters");
	else
		value_refuse(r, row, at, "an array of strings, but has %s %s",
			     strchr("aeiou", *toml_type_name(n->type)) ? "an" : "a",
			     toml_type_name(n->type));
	return false;
}

static bool list_node(struct config_reader *r, const struct config_row *row,
		      const struct config_place *at, const struct toml_node *n,
		      struct config_value *ret)
{
	if (n->type != TOML_ARRAY)
		return wrong_type(r, row, at, n);
	for (const struct toml_node *i = n->child; i; i = i->next) {
		struct config_place there = *at;

		there.line = i->line;
		there.column = i->column;
		if (i->type != TOML_STRING || has_nul(i))
			return no_item(r, row, &there, i);
		if (!add_item(r, row, &there, i->v.string.text, i->v.string.len, &ret->list))
			return false;
	}
	return true;
}

static bool string_node(struct config_reader *r, const struct config_row *row,
			const struct config_place *at, const struct toml_node *n,
			struct config_value *ret)
{
	if (has_nul(n)) {
		value_refuse(r, row, at, "a string without NUL characters");
		return false;
	}
	if (row->type == CONFIG_TEXT)
		return take_text(r, n->v.string.text, n->v.string.len, ret);
	return config_value_text(r, row, at, n->v.string.text, ret);
}

bool config_value_node(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const struct toml_node *n,
		       struct config_value *ret)
{
	static const unsigned takes[] = {
		[CONFIG_BOOL] = 1U << TOML_BOOL,
		[CONFIG_COUNT] = 1U << TOML_INTEGER,
		[CONFIG_NUMBER] = 1U << TOML_INTEGER | 1U << TOML_FLOAT,
		[CONFIG_DURATION] = 1U << TOML_INTEGER | 1U << TOML_FLOAT | 1U << TOML_STRING,
		[CONFIG_BYTES] = 1U << TOML_INTEGER | 1U << TOML_STRING,
		[CONFIG_TEXT] = 1U << TOML_STRING,
		[CONFIG_CHOICE] = 1U << TOML_STRING,
		[CONFIG_LIST] = 1U << TOML_ARRAY,
	};

	*ret = (struct config_value){ 0 };
	if (!(takes[row->type] & 1U << n->type))
		return wrong_type(r, row, at, n);
	switch (n->type) {
	case TOML_BOOL: ret->yes = n->v.boolean; return true;
	case TOML_INTEGER: return take_number(r, row, at, (double)n->v.integer, ret);
	case TOML_FLOAT:
		if (isfinite(n->v.real))
			return take_number(r, row, at, n->v.real, ret);
		value_refuse(r, row, at, "a finite number");
		return false;
	case TOML_STRING: return string_node(r, row, at, n, ret);
	default: return list_node(r, row, at, n, ret);
	}
}

static bool bool_text(const char *text, bool *ret)
{
	static const char *const words[] = {
		"false", "true", "no", "yes", "off", "on", "0", "1"
	};

	for (unsigned i = 0; i < COUNT(words); i++)
		if (strcasecmp(words[i], text) == 0) {
			*ret = i % 2 == 1;
			return true;
		}
	return false;
}

static bool list_text(struct config_reader *r, const struct config_row *row,
		      const struct config_place *at, const char *text, struct config_value *ret)
{
	for (;;) {
		size_t n = strcspn(text, ",");

		if (!add_item(r, row, at, text, n, &ret->list))
			return false;
		if (!text[n])
			return true;
		text += n + 1;
	}
}

bool config_value_text(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const char *text,
		       struct config_value *ret)
{
	double v;

	*ret = (struct config_value){ 0 };
	switch (row->type) {
	case CONFIG_TEXT: return take_text(r, text, strlen(text), ret);
	case CONFIG_CHOICE: return take_choice(r, row, at, text, ret);
	case CONFIG_LIST: return list_text(r, row, at, text, ret);
	case CONFIG_BOOL:
		if (bool_text(text, &ret->yes))
			return true;
		break;
	default:
		if (config_number_read(row, text, &v))
			return take_number(r, row, at, v, ret);
	}
	value_refuse(r, row, at, "%s, not \"%.60s\"", wanted[row->type], text);
	return false;
}

/* Converts the text of the row's default. The text has the syntax of a file, except that a
 * string has no quotes. */
bool config_value_standard(struct config_reader *r, const struct config_row *row,
			   struct config_value *ret)
{
	const struct config_place at = { CONFIG_STANDARD, NULL, 0, 0 };
	struct toml_error err;
	struct toml *doc;
	char line[512];
	bool good;
	int rc;

	if (row->type != CONFIG_LIST)
		return config_value_text(r, row, &at, row->standard, ret);
	snprintf(line, sizeof(line), "v = %s", row->standard);
	rc = toml_parse(line, strlen(line), &doc, &err);
	if (rc) {
		config_fail(r, rc, &at,
			    "a built-in default is invalid: this is a defect of gpuward, "
			    "please report it");
		return false;
	}
	good = config_value_node(r, row, &at, toml_top(doc)->child, ret);
	toml_free(doc);
	return good;
}
