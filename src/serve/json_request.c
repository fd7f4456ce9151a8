#include "json_request.h"

#include "base/json_doc.h"
#include "base/suggest.h"

#include <gpuward.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX  16
#define TEXTS_MAX 64

struct json_request {
	struct json_doc *root;
	char text[TEXTS_MAX][24]; /* whole numbers in the body, converted to strings */
	unsigned texts;
	char message[256]; /* why the body is invalid */
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

/* True if every key is in the list `keys`. If not, writes the message. */
static bool keys_known(const struct json_doc *root, const char *keys, char *message,
		       size_t size)
{
	const char *key, *word[KEYS_MAX], *near;
	char list[128];
	const struct json_doc *value;
	void *iter = NULL;
	size_t n;

	snprintf(list, sizeof(list), "%s", keys);
	n = split_words(list, word);
	while (json_doc_next(root, &iter, &key, &value)) {
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
	char why[200];
	int err;

	if (!b)
		return -GW_E_NOMEM;
	err = json_doc_new_strict(n ? text : "{}", n ? n : 2, &b->root, why, sizeof(why));
	if (err)
		snprintf(message, size, "the body is %s", why);
	else if (json_doc_type(b->root, "") != JSON_DOC_OBJECT)
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
	json_doc_free(b->root);
	free(b);
}

bool json_request_wrong(struct json_request *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b->message, sizeof(b->message), fmt, ap);
	va_end(ap);
	return false;
}

const char *json_request_message(const struct json_request *b)
{
	return b->message;
}

/* Returns the value of a key; NULL if the key is absent or null. */
static const struct json_doc *request_value(const struct json_request *b, const char *key)
{
	const struct json_doc *v = json_doc_get(b->root, key);

	return json_doc_type(v, "") == JSON_DOC_NULL ? NULL : v;
}

bool json_request_text(struct json_request *b, const char *key, const char **ret)
{
	const struct json_doc *v = request_value(b, key);

	if (!v)
		return true;
	if (json_doc_type(v, "") != JSON_DOC_STRING)
		return json_request_wrong(b, "\"%s\" must be a string", key);
	*ret = json_doc_string(v, "");
	return true;
}

bool json_request_number(struct json_request *b, const char *key, double *ret)
{
	const struct json_doc *v = request_value(b, key);

	if (!v)
		return true;
	if (!json_doc_is_number(v, ""))
		return json_request_wrong(b, "\"%s\" must be a number", key);
	*ret = json_doc_number(v, "");
	return true;
}

bool json_request_flag(struct json_request *b, const char *key, bool *ret)
{
	const struct json_doc *v = request_value(b, key);

	if (!v)
		return true;
	if (json_doc_type(v, "") != JSON_DOC_BOOL)
		return json_request_wrong(b, "\"%s\" must be true or false", key);
	*ret = json_doc_true(v, "");
	return true;
}

/* Returns the string, or a whole number as a string; NULL: neither. */
static const char *as_text(struct json_request *b, const struct json_doc *v)
{
	int64_t n;

	if (json_doc_type(v, "") == JSON_DOC_STRING)
		return json_doc_string(v, "");
	if (!json_doc_integer(v, "", &n) || b->texts == TEXTS_MAX)
		return NULL;
	snprintf(b->text[b->texts], sizeof(b->text[0]), "%" PRId64, n);
	return b->text[b->texts++];
}

bool json_request_word(struct json_request *b, const char *key, const char **ret)
{
	const struct json_doc *v = request_value(b, key);

	if (!v)
		return true;
	*ret = as_text(b, v);
	return *ret || json_request_wrong(b, "\"%s\" must be a string or a whole number", key);
}

bool json_request_texts(struct json_request *b, const char *key, const char **out, unsigned max,
			unsigned *ret_count)
{
	const struct json_doc *v = request_value(b, key);
	size_t n = json_doc_count(v, "");

	if (!v)
		return true;
	if (json_doc_type(v, "") != JSON_DOC_ARRAY)
		return json_request_wrong(b, "\"%s\" must be an array of strings", key);
	if (n > max)
		return json_request_wrong(b, "\"%s\" must have at most %u elements", key, max);
	for (size_t i = 0; i < n; i++) {
		out[i] = as_text(b, json_doc_at(v, "", i));
		if (!out[i])
			return json_request_wrong(b, "\"%s\" must be an array of strings", key);
	}
	*ret_count = (unsigned)n;
	return true;
}

bool json_request_pairs(struct json_request *b, const char *key, const char **names,
			const char **values, unsigned max, unsigned *ret_count)
{
	const struct json_doc *v = request_value(b, key), *value;
	const char *name;
	void *iter = NULL;
	unsigned n = 0;

	if (!v)
		return true;
	if (json_doc_type(v, "") != JSON_DOC_OBJECT)
		return json_request_wrong(b, "\"%s\" must be an object of strings", key);
	if (json_doc_count(v, "") > max)
		return json_request_wrong(b, "\"%s\" must have at most %u members", key, max);
	while (json_doc_next(v, &iter, &name, &value)) {
		if (json_doc_type(value, "") != JSON_DOC_STRING)
			return json_request_wrong(b, "\"%s\" must be an object of strings",
						  key);
		names[n] = name;
		values[n++] = json_doc_string(value, "");
	}
	*ret_count = n;
	return true;
}
