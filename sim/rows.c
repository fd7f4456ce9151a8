#include "rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/suggest.h"

int rows_fail(struct rows *r, const struct toml_node *node, const char *format, ...)
{
	int n = snprintf(r->error, r->error_size, "%s:%u:%u: ", r->name, node->line,
			 node->column);
	va_list ap;

	va_start(ap, format);
	if (n > 0 && (size_t)n < r->error_size)
		vsnprintf(r->error + n, r->error_size - (size_t)n, format, ap);
	va_end(ap);
	return -1;
}

int rows_want(struct rows *r, const struct toml_node *node, const char *what)
{
	return rows_fail(r, node, "'%s' must be %s, not %s",
			 node->key != NULL ? node->key : "list", what,
			 toml_type_name(node->type));
}

bool rows_number(const struct toml_node *node, double *number)
{
	if (node->type == TOML_INTEGER)
		*number = (double)node->v.integer;
	else if (node->type == TOML_FLOAT && isfinite(node->v.real))
		*number = node->v.real;
	else
		return false;
	return true;
}

int rows_bytes(struct rows *r, const struct toml_node *node, uint64_t *out)
{
	double v;

	if (node->type == TOML_INTEGER && node->v.integer >= 0) {
		*out = (uint64_t)node->v.integer;
		return 0;
	}
	if (node->type != TOML_STRING)
		return rows_want(r, node, "bytes such as \"10 GiB\"");
	if (!unit_parse(node->v.string.text, unit_sizes, &v) || v >= 0x1p60)
		return rows_fail(r, node,
				 "'%s' is not a number of bytes; write it as \"10 GiB\"",
				 node->v.string.text);
	*out = (uint64_t)v;
	return 0;
}

static int read_choice(struct rows *r, const struct toml_node *node, const struct key *k,
		       unsigned *out)
{
	const char *near;
	size_t n = 0;

	if (node->type != TOML_STRING)
		return rows_want(r, node, "a word");
	for (; k->words[n] != NULL; n++) {
		if (strcmp(k->words[n], node->v.string.text) == 0) {
			*out = (unsigned)n;
			return 0;
		}
	}
	near = suggest(node->v.string.text, k->words, n, sizeof(k->words[0]));
	return rows_fail(r, node, "'%s' cannot be '%s'; did you mean '%s'?", k->name,
			 node->v.string.text, near != NULL ? near : k->words[0]);
}

static int read_text(struct rows *r, const struct toml_node *node, const struct key *k,
		     char *out)
{
	if (node->type != TOML_STRING)
		return rows_want(r, node, "a string");
	if ((double)node->v.string.len >= k->max)
		return rows_fail(r, node, "'%s' is longer than %d bytes", k->name,
				 (int)k->max - 1);
	memcpy(out, node->v.string.text, node->v.string.len + 1);
	return 0;
}

/* Reads a value of any kind that consists of a single number. */
static int read_number(struct rows *r, const struct toml_node *node, const struct key *k,
		       void *at)
{
	double v, low = k->min, high = k->max;

	if (k->kind == KEY_SECONDS || k->kind == KEY_STEP)
		high = high > 0 ? high : 1e9;
	if (k->kind == KEY_STEP)
		low = -high;
	if (!rows_number(node, &v))
		return rows_want(r, node, "a number");
	if ((k->kind == KEY_UINT || k->kind == KEY_INT) && node->type != TOML_INTEGER)
		return rows_want(r, node, "a whole number");
	if (v < low || v > high)
		return rows_fail(r, node, "'%s' is %g; it must be from %g to %g", k->name, v,
				 low, high);
	switch (k->kind) {
	case KEY_UINT: *(unsigned *)at = (unsigned)v; break;
	case KEY_INT: *(int *)at = (int)v; break;
	case KEY_SECONDS: *(uint64_t *)at = (uint64_t)llround(v * 1e9); break;
	case KEY_STEP: *(int64_t *)at = llround(v * 1e9); break;
	default: *(double *)at = v; break;
	}
	return 0;
}

static int read_each(struct rows *r, const struct toml_node *list,
		     int (*each)(struct rows *r, const struct toml_node *table))
{
	if (list->type != TOML_ARRAY)
		return rows_want(r, list, "a list of tables");
	for (const struct toml_node *c = list->child; c != NULL; c = c->next)
		if (each(r, c) != 0)
			return -1;
	return 0;
}

static size_t count_keys(const struct key *k)
{
	size_t n = 0;

	while (k[n].name != NULL)
		n++;
	return n;
}

static int read_value(struct rows *r, const struct toml_node *node, const struct key *k,
		      void *target)
{
	void *at = (char *)target + k->offset;

	switch (k->kind) {
	case KEY_BOOL:
		if (node->type != TOML_BOOL)
			return rows_want(r, node, "true or false");
		*(bool *)at = node->v.boolean;
		return 0;
	case KEY_BYTES: return rows_bytes(r, node, at);
	case KEY_BITS:
		if (node->type != TOML_INTEGER)
			return rows_want(r, node, "a whole number");
		*(uint64_t *)at = (uint64_t)node->v.integer;
		return 0;
	case KEY_TEXT: return read_text(r, node, k, at);
	case KEY_CHOICE: return read_choice(r, node, k, at);
	case KEY_READ: return k->read(r, node, target);
	case KEY_EACH: return read_each(r, node, k->each);
	case KEY_TABLE: return rows_table(r, node, k->table, count_keys(k->table), target);
	case KEY_SKIP: return 0;
	default: return read_number(r, node, k, at);
	}
}

int rows_table(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	       void *target)
{
	if (table->type != TOML_TABLE)
		return rows_want(r, table, "a table");
	for (const struct toml_node *c = table->child; c != NULL; c = c->next) {
		const struct key *k = NULL;
		const char *near;

		for (size_t i = 0; i < n && k == NULL; i++)
			if (strcmp(keys[i].name, c->key) == 0)
				k = &keys[i];
		if (k != NULL) {
			if (read_value(r, c, k, target) != 0)
				return -1;
			continue;
		}
		near = suggest(c->key, &keys[0].name, n, sizeof(keys[0]));
		return rows_fail(
			r, &(struct toml_node){ .line = c->key_line, .column = c->key_column },
			"unknown key '%s'%s%s%s", c->key,
			near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
			near != NULL ? "'?" : "");
	}
	return 0;
}

int rows_some(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	      void *target)
{
	for (size_t i = 0; i < n; i++) {
		const struct toml_node *node = toml_get(table, keys[i].name);
		struct toml_node only, holder;

		if (node == NULL)
			continue;
		only = *node;
		only.next = NULL;
		holder = *table;
		holder.child = &only;
		if (rows_table(r, &holder, keys, n, target) != 0)
			return -1;
	}
	return 0;
}
