#include "option.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/suggest.h"
#include "base/number.h"
#include "daemon/config.h"
#include "term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	const struct option_table *tables;
	char *error;
	size_t size;
};

/* The result of option_find(). */
struct option_match {
	const struct option *option; /* NULL: no option has this name */
	char *at;                    /* address of the value in the target struct */
};

static struct option_match option_find(const struct parser *p, const char *name, size_t len,
				       char letter)
{
	for (const struct option_table *t = p->tables; t->options; t++)
		for (const struct option *o = t->options; o->name; o++)
			if (name ? strlen(o->name) == len && strncmp(o->name, name, len) == 0
				 : o->letter == letter)
				return (struct option_match){ o,
							      (char *)t->target + o->offset };
	return (struct option_match){ NULL, NULL };
}

static int option_unknown(const struct parser *p, const char *name, size_t len)
{
	const char *names[256];
	char word[64];
	const char *near;
	unsigned n = 0;

	for (const struct option_table *t = p->tables; t->options; t++)
		for (const struct option *o = t->options; o->name && n < 256; o++)
			names[n++] = o->name;
	snprintf(word, sizeof(word), "%.*s", (int)len, name);
	near = suggest(word, names, n, sizeof(names[0]));
	if (near)
		snprintf(p->error, p->size, "unknown option '--%s' (did you mean '--%s'?)",
			 word, near);
	else
		snprintf(p->error, p->size, "unknown option '--%s'", word);
	return -1;
}

int option_duration(const char *text, uint64_t *ret_ns)
{
	double ns;

	if (!unit_parse(text, unit_times, &ns) || ns > 1e18)
		return -1;
	*ret_ns = (uint64_t)(ns + 0.5);
	return 0;
}

static int set_choice(const struct parser *p, struct option_match f, const char *value)
{
	const struct option *o = f.option;
	const char *near;
	struct buf b;
	unsigned n = 0;

	for (; o->choices[n]; n++) {
		if (strcmp(o->choices[n], value) == 0) {
			memcpy(f.at, &o->choices[n], sizeof(o->choices[n]));
			return 0;
		}
	}
	near = suggest(value, o->choices, n, sizeof(o->choices[0]));
	buf_init_fixed(&b, p->error, p->size);
	buf_addf(&b, "--%s takes ", o->name);
	for (unsigned i = 0; i < n; i++)
		buf_addf(&b, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", o->choices[i]);
	buf_addf(&b, ", not '%.60s'", value);
	if (near)
		buf_addf(&b, " (did you mean '%s'?)", near);
	return -1;
}

static int add_items(const struct parser *p, struct option_match f, const char *value)
{
	struct option_list *l = (struct option_list *)(void *)f.at;
	const struct option *o = f.option;

	for (;;) {
		size_t len = strcspn(value, ",");

		if (l->count == OPTION_LIST_MAX || l->used + len + 1 > sizeof(l->text)) {
			snprintf(p->error, p->size,
				 "--%s has too many values, or they are too long", o->name);
			return -1;
		}
		if (len == 0) {
			snprintf(p->error, p->size, "--%s has an empty value", o->name);
			return -1;
		}
		l->item[l->count++] = l->text + l->used;
		memcpy(l->text + l->used, value, len);
		l->text[l->used + len] = '\0';
		l->used += len + 1;
		if (!value[len])
			return 0;
		value += len + 1;
	}
}

static int set_number(const struct parser *p, struct option_match f, const char *value)
{
	const struct option *o = f.option;
	const char *end;
	double v = number_parse(value, &end);

	if (o->type == OPTION_COUNT &&
	    (end == value || *end || v != floor(v) || !(v >= o->least && v <= o->most))) {
		snprintf(p->error, p->size,
			 "--%s takes a whole number from %.0f to %.0f, not '%s'", o->name,
			 o->least, o->most, value);
		return -1;
	}
	if (o->type == OPTION_CELSIUS &&
	    (end == value || (*end && strcmp(end, "C") != 0) || !(v >= 0 && v <= 120))) {
		snprintf(p->error, p->size,
			 "--%s takes degrees Celsius from 0 to 120, not '%s'", o->name, value);
		return -1;
	}
	memcpy(f.at, &v, sizeof(v));
	return 0;
}

static int option_set(const struct parser *p, struct option_match f, const char *value)
{
	uint64_t ns;

	switch (f.option->type) {
	case OPTION_FLAG: *(bool *)f.at = true; return 0;
	case OPTION_TEXT:
	case OPTION_OPTIONAL: memcpy(f.at, &value, sizeof(value)); return 0;
	case OPTION_CHOICE: return set_choice(p, f, value);
	case OPTION_LIST: return add_items(p, f, value);
	case OPTION_COUNT:
	case OPTION_CELSIUS: return set_number(p, f, value);
	case OPTION_DURATION:
		if (option_duration(value, &ns) != 0 || ns == 0) {
			snprintf(p->error, p->size,
				 "--%s takes a time such as 100ms, 5s, 2m or 2h, not '%s'",
				 f.option->name, value);
			return -1;
		}
		memcpy(f.at, &ns, sizeof(ns));
		return 0;
	}
	return -1;
}

/* Parses "--name", "--name=value" or "--name value". `word` begins after the dashes. Returns 1
 * if `next` is the value, 0 if it is not, or -1 after an error. */
static int parse_long(const struct parser *p, const char *word, const char *next)
{
	size_t len = strcspn(word, "=");
	const char *value = word[len] ? word + len + 1 : NULL;
	const struct option_match f = option_find(p, word, len, 0);
	const struct option *o = f.option;

	if (!o)
		return option_unknown(p, word, len);
	if (o->type == OPTION_FLAG && value) {
		snprintf(p->error, p->size, "--%s takes no value", o->name);
		return -1;
	}
	if (o->type == OPTION_FLAG)
		return option_set(p, f, NULL);
	if (o->type == OPTION_OPTIONAL)
		return option_set(p, f, value ? value : o->fallback);
	if (value)
		return option_set(p, f, value);
	if (!next) {
		snprintf(p->error, p->size, "--%s needs a value (%s)", o->name, o->metavar);
		return -1;
	}
	return option_set(p, f, next) == 0 ? 1 : -1;
}

/* Parses "-x", several flags as "-xy", "-i 5s" or "-i5s". Returns the same as parse_long(). */
static int parse_short(const struct parser *p, const char *word, const char *next)
{
	for (; *word; word++) {
		const struct option_match f = option_find(p, NULL, 0, *word);
		const struct option *o = f.option;

		if (!o) {
			snprintf(p->error, p->size, "unknown option '-%c'", *word);
			return -1;
		}
		if (o->type == OPTION_FLAG || (o->type == OPTION_OPTIONAL && !word[1])) {
			if (option_set(p, f, o->fallback) != 0)
				return -1;
			continue;
		}
		if (word[1])
			return option_set(p, f, word + 1 + (word[1] == '='));
		if (!next) {
			snprintf(p->error, p->size, "-%c needs a value (%s)", *word,
				 o->metavar);
			return -1;
		}
		return option_set(p, f, next) == 0 ? 1 : -1;
	}
	return 0;
}

int option_parse(int *argc, char **argv, const struct option_table *tables, bool ahead,
		 char *error, size_t size)
{
	const struct parser p = { tables, error, size };
	int words = 0, i = 1;

	for (; i < *argc; i++) {
		char *word = argv[i];
		const char *next = i + 1 < *argc ? argv[i + 1] : NULL;
		int used = 0;

		if (strcmp(word, "--") == 0) {
			i++;
			break;
		}
		if (strncmp(word, "--", 2) == 0)
			used = parse_long(&p, word + 2, next);
		else if (word[0] == '-' && word[1])
			used = parse_short(&p, word + 1, next);
		else if (ahead)
			break;
		else
			argv[1 + words++] = word;
		if (used < 0)
			return -1;
		i += used;
	}
	while (i < *argc)
		argv[1 + words++] = argv[i++];
	*argc = words + 1;
	argv[*argc] = NULL;
	return 0;
}

void option_defaults(const struct option *table, void *target)
{
	for (const struct option *o = table; o->name; o++) {
		double v = o->type == OPTION_COUNT ? o->otherwise : NAN;

		if (o->type == OPTION_COUNT || o->type == OPTION_CELSIUS)
			memcpy((char *)target + o->offset, &v, sizeof(v));
	}
}

bool option_given(const struct option *o, const void *target)
{
	const char *at = (const char *)target + o->offset;
	const char *text;
	uint64_t ns;
	double v;

	switch (o->type) {
	case OPTION_FLAG: return *(const bool *)at;
	case OPTION_LIST: return ((const struct option_list *)(const void *)at)->count > 0;
	case OPTION_DURATION: memcpy(&ns, at, sizeof(ns)); return ns != 0;
	case OPTION_COUNT:
	case OPTION_CELSIUS: memcpy(&v, at, sizeof(v)); return !isnan(v) && v != o->otherwise;
	default: memcpy(&text, at, sizeof(text)); return text != NULL;
	}
}

unsigned option_config_flags(const struct option *table, const void *target,
			     struct config_flag *out, unsigned max)
{
	unsigned n = 0;

	for (const struct option *o = table; o->name; o++) {
		const void *at = (const char *)target + o->offset;
		const struct option_list *list = at;

		if (!option_given(o, target))
			continue;
		for (unsigned i = 0; o->type == OPTION_LIST && i < list->count && n < max; i++)
			out[n++] = (struct config_flag){ o->name, list->item[i] };
		if (o->type != OPTION_LIST && n < max)
			out[n++] = (struct config_flag){
				o->name,
				o->type == OPTION_FLAG ? "true" : *(const char *const *)at,
			};
	}
	return n;
}

const struct option *option_without_value(const struct option_table *tables)
{
	for (const struct option_table *t = tables; t->options; t++) {
		for (const struct option *o = t->options; o->name; o++) {
			const char *value;

			if (o->type != OPTION_OPTIONAL)
				continue;
			memcpy(&value, (const char *)t->target + o->offset, sizeof(value));
			if (value && value == o->fallback)
				return o;
		}
	}
	return NULL;
}

void option_help(const struct option *table, unsigned width)
{
	for (const struct option *o = table; o->name; o++) {
		char left[64], letter[8] = "   ", help[512];
		const char *open = o->type == OPTION_OPTIONAL ? "[=" : " ";

		if (o->letter)
			snprintf(letter, sizeof(letter), "-%c,", o->letter);
		snprintf(left, sizeof(left), "  %s --%s%s%s%s", letter, o->name,
			 o->metavar ? open : "", o->metavar ? o->metavar : "",
			 o->type == OPTION_OPTIONAL ? "]" : "");
		snprintf(help, sizeof(help), "%s", o->help);
		if (o->type == OPTION_COUNT && !isnan(o->otherwise))
			snprintf(help, sizeof(help), "%s (default: %.0f)", o->help,
				 o->otherwise);
		term_wrap(left, 30, help, width);
	}
}
