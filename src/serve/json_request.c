#include "json_request.h"

#include "base/suggest.h"

#include <gpuward.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX  16
#define TEXTS_MAX 64

struct json_request {
	json_t *root;
	char text[TEXTS_MAX][24]; /* numbers of arrays as texts */
	unsigned texts;
};

/* Splits a list into words; returns their number. */
static size_t split_words(char *list, const char **out)
{
	size_t n = 0;

	for (char *end; *list && n < KEYS_MAX; list = end) {
		end = list + strcspn(list, " ");
		if (*end)
			*end++ = '\0';
		out[n++] = list;
	}
	return n;
}

/* Checks that every key is known; else writes the error. */
static bool keys_known(json_t *root, const char *keys, char *message, size_t size)
{
	const char *key, *word[KEYS_MAX], *near;
	char list[128];
	json_t *value;
	size_t n;

	snprintf(list, sizeof(list), "%s", keys);
	n = split_words(list, word);
	json_object_foreach(root, key, value)
	{
		bool found = false;

		for (size_t i = 0; i < n; i++)
			found = found || strcmp(word[i], key) == 0;
		if (found)
			continue;
		near = suggest(key, word, n, sizeof(word[0]));
		snprintf(message, size, "unknown key \"%.64s\" in the body%s%s%s", key,
			 near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
		return false;
	}
	return true;
}

int json_request_open(const char *text, size_t n, const char *keys, struct json_request **ret,
		      char *message, size_t size)
{
	struct json_request *b = calloc(1, sizeof(*b));
	json_error_t e;

	if (!b)
		return -GW_E_NOMEM;
	b->root = n ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &e) : json_loads("{}", 0, &e);
	if (!b->root)
		snprintf(message, size, "the body is not JSON: line %d, column %d: %s", e.line,
			 e.column, e.text);
	else if (!json_is_object(b->root))
		snprintf(message, size, "the body must be an object");
	else if (keys_known(b->root, keys, message, size)) {
		*ret = b;
		return 0;
	}
	json_request_close(b);
	return -GW_E_PARSE;
}

void json_request_close(struct json_request *b)
{
	if (!b)
		return;
	json_decref(b->root);
	free(b);
}

static bool wrong(const char *key, const char *what, char *message, size_t size)
{
	snprintf(message, size, "\"%s\" must be %s", key, what);
	return false;
}

bool json_request_text(struct json_request *b, const char *key, const char **ret, char *message,
		       size_t size)
{
	json_t *v = json_object_get(b->root, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_string(v))
		return wrong(key, "a text", message, size);
	*ret = json_string_value(v);
	return true;
}

bool json_request_number(struct json_request *b, const char *key, double *ret, char *message,
			 size_t size)
{
	json_t *v = json_object_get(b->root, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_number(v))
		return wrong(key, "a number", message, size);
	*ret = json_number_value(v);
	return true;
}

bool json_request_flag(struct json_request *b, const char *key, bool *ret, char *message,
		       size_t size)
{
	json_t *v = json_object_get(b->root, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_boolean(v))
		return wrong(key, "true or false", message, size);
	*ret = json_is_true(v);
	return true;
}

/* A text, or a whole number as text; NULL: neither. */
static const char *as_text(struct json_request *b, json_t *v)
{
	if (json_is_string(v))
		return json_string_value(v);
	if (!json_is_integer(v) || b->texts == TEXTS_MAX)
		return NULL;
	snprintf(b->text[b->texts], sizeof(b->text[0]), "%lld",
		 (long long)json_integer_value(v));
	return b->text[b->texts++];
}

bool json_request_word(struct json_request *b, const char *key, const char **ret, char *message,
		       size_t size)
{
	json_t *v = json_object_get(b->root, key);

	if (!v || json_is_null(v))
		return true;
	*ret = as_text(b, v);
	return *ret || wrong(key, "a text or a whole number", message, size);
}

bool json_request_texts(struct json_request *b, const char *key, const char **out, unsigned max,
			unsigned *ret_count, char *message, size_t size)
{
	json_t *v = json_object_get(b->root, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_array(v))
		return wrong(key, "an array of texts", message, size);
	if (json_array_size(v) > max)
		return wrong(key, "a shorter array", message, size);
	for (size_t i = 0; i < json_array_size(v); i++) {
		out[i] = as_text(b, json_array_get(v, i));
		if (!out[i])
			return wrong(key, "an array of texts", message, size);
	}
	*ret_count = (unsigned)json_array_size(v);
	return true;
}

bool json_request_pairs(struct json_request *b, const char *key, const char **names,
			const char **values, unsigned max, unsigned *ret_count, char *message,
			size_t size)
{
	json_t *v = json_object_get(b->root, key), *value;
	const char *name;
	unsigned n = 0;

	if (!v || json_is_null(v))
		return true;
	if (!json_is_object(v))
		return wrong(key, "an object of texts", message, size);
	if (json_object_size(v) > max)
		return wrong(key, "a smaller object", message, size);
	json_object_foreach(v, name, value)
	{
		if (!json_is_string(value))
			return wrong(key, "an object of texts", message, size);
		names[n] = name;
		values[n++] = json_string_value(value);
	}
	*ret_count = n;
	return true;
}
