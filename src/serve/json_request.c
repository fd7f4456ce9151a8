#include "json_request.h"

#include "base/buf.h"
#include "base/json_doc.h"
#include "base/suggest.h"

#include <gpuward.h>

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 64

struct json_request {
	struct json_doc *root;
	char text[TEXTS_MAX][24]; /* whole numbers of the body, converted to strings */
	unsigned texts;
	char message[256]; /* why the body is invalid */
};

size_t json_request_words(const char *list, struct json_request_words *ret)
{
	size_t n = 0;

	assert(strlen(list) < sizeof(ret->text));
	snprintf(ret->text, sizeof(ret->text), "%s", list);
	for (char *at = ret->text, *end; *at; at = end) {
		assert(n < JSON_REQUEST_KEYS);
		end = at + strcspn(at, " ");
		if (*end)
			*end++ = '\0';
		ret->word[n++] = at;
	}
	return n;
}

bool json_request_keys_known(const struct json_doc *o, const char *const *keys, size_t n,
			     const char *where, char *message, size_t size)
{
	const char *key, *near;
	const struct json_doc *value;
	struct buf out;
	void *iter = NULL;

	while (json_doc_next(o, &iter, &key, &value)) {
		bool found = false;

		for (size_t i = 0; i < n; i++)
			found = found || strcmp(keys[i], key) == 0;
		if (found)
			continue;
		buf_init_fixed(&out, message, size);
		buf_addf(&out, "%s%sunknown key \"%.64s\"; ", where, *where ? ": " : "", key);
		near = suggest(key, keys, n, sizeof(keys[0]));
		if (near)
			buf_addf(&out, "did you mean \"%s\"?", near);
		else
			buf_adds(&out, n ? "the keys are " : "no key is accepted");
		for (size_t i = 0; i < n && !near; i++)
			buf_addf(&out, "%s%s", i ? ", " : "", keys[i]);
		return false;
	}
	return true;
}

int json_request_open(const char *text, size_t n, const char *keys, struct json_request **ret,
		      char *message, size_t size)
{
	struct json_request *b = calloc(1, sizeof(*b));
	struct json_request_words list;
	char why[200];
	int err;

	if (!b)
		return -GW_E_NOMEM;
	err = json_doc_new_strict(n ? text : "{}", n ? n : 2, &b->root, why, sizeof(why));
	if (err)
		snprintf(message, size, "the body is %s", why);
	else if (json_doc_type(b->root, "") != JSON_DOC_OBJECT)
		snprintf(message, size, "the body must be an object");
	else if (json_request_keys_known(b->root, list.word, json_request_words(keys, &list),
					 "the body", message, size)) {
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

bool json_request_text(struct json_request *b, const char *key, size_t max, const char **ret)
{
	const struct json_doc *v = request_value(b, key);

	if (!v)
		return true;
	if (json_doc_type(v, "") != JSON_DOC_STRING)
		return json_request_wrong(b, "\"%s\" must be a string", key);
	if (max && strlen(json_doc_string(v, "")) > max)
		return json_request_wrong(b, "\"%s\" is longer than %zu bytes", key, max);
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

/* Returns the value as a string if it is a string or a whole number, else NULL. */
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
