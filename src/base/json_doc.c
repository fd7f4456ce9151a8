#include "json_doc.h"

#include "utf8.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory layout of the values of jansson 2 (libjansson.so.4). Jansson's macros compile this
 * layout into every program that uses jansson, so all versions of libjansson.so.4 have the same
 * layout. */
enum jansson_type {
	JANSSON_OBJECT,
	JANSSON_ARRAY,
	JANSSON_STRING,
	JANSSON_INTEGER,
	JANSSON_REAL,
	JANSSON_TRUE,
	JANSSON_FALSE,
	JANSSON_NULL
};
struct jansson_value {
	enum jansson_type type;
};
struct jansson_error {
	int line, column, position;
	char source[80], text[160];
};
#define JANSSON_REJECT_DUPLICATES ((size_t)1)
/* Two options of jansson: it reads integers as doubles and allows NUL in strings. */
#define JANSSON_LENIENT ((size_t)0x18)

/* clang-format off */
#define JANSSON_CALLS(C)                                                                      \
	C(struct jansson_value *, loadb, "json_loadb",                                        \
	  (const char *text, size_t n, size_t flags, struct jansson_error *error))            \
	C(void, delete, "json_delete", (struct jansson_value *v))                             \
	C(struct jansson_value *, get, "json_object_get",                                     \
	  (const struct jansson_value *v, const char *key))                                   \
	C(const char *, string, "json_string_value", (const struct jansson_value *v))         \
	C(int, set_string, "json_string_set", (struct jansson_value *v, const char *text))    \
	C(double, number, "json_number_value", (const struct jansson_value *v))               \
	C(long long, integer, "json_integer_value", (const struct jansson_value *v))          \
	C(int, equal, "json_equal",                                                           \
	  (const struct jansson_value *a, const struct jansson_value *b))                     \
	C(size_t, length, "json_array_size", (const struct jansson_value *v))                 \
	C(size_t, members, "json_object_size", (const struct jansson_value *v))               \
	C(struct jansson_value *, at, "json_array_get", (const struct jansson_value *v, size_t i)) \
	C(void *, first, "json_object_iter", (struct jansson_value *v))                       \
	C(void *, next, "json_object_iter_next", (struct jansson_value *v, void *iter))       \
	C(const char *, key, "json_object_iter_key", (void *iter))                            \
	C(struct jansson_value *, member, "json_object_iter_value", (void *iter))
/* clang-format on */

static struct {
#define POINTER(type, name, symbol, args) type(*name) args;
	JANSSON_CALLS(POINTER)
#undef POINTER
	char missing[160]; /* why jansson cannot be used, or "" */
} jansson;                 /* one per process; the library is never unloaded */
static pthread_once_t jansson_once = PTHREAD_ONCE_INIT;

#ifdef GPUWARD_JANSSON_ARCHIVE
/* jansson is linked statically. Each of its names gets the prefix "linked_", because jansson
 * and json.h use some of the same names. */
#define DECLARE(type, name, symbol, args) \
	extern type linked_##name args __asm__("linked_" symbol);
JANSSON_CALLS(DECLARE)
#undef DECLARE

static void jansson_load(void)
{
#define LINK(type, name, symbol, args) jansson.name = linked_##name;
	JANSSON_CALLS(LINK)
#undef LINK
}
#else
static void jansson_load(void)
{
	void *library = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(jansson.missing, sizeof(jansson.missing),
			 "libjansson.so.4 is needed to read JSON: install libjansson4");
		return;
	}
#define LOAD(type, name, symbol, args)                                        \
	p = dlsym(library, symbol);                                           \
	memcpy(&jansson.name, &p, sizeof(p));                                 \
	if (!p)                                                               \
		snprintf(jansson.missing, sizeof(jansson.missing),            \
			 "libjansson.so.4 of this machine lacks %s: install " \
			 "libjansson 2.7 or newer",                           \
			 symbol);
	JANSSON_CALLS(LOAD)
#undef LOAD
}
#endif

/* Returns the value at path. A struct json_doc is a jansson value under our own name. */
static struct jansson_value *json_doc_value(const struct json_doc *r, const char *path)
{
	return (struct jansson_value *)json_doc_get(r, path);
}

static int json_doc_parse(const char *text, size_t n, size_t flags, struct json_doc **ret,
			  struct json_doc_error *error)
{
	struct jansson_error e = { .line = 0 };
	struct jansson_value *v;

	*error = (struct json_doc_error){ 1, 1, "" };
	pthread_once(&jansson_once, jansson_load);
	if (jansson.missing[0]) {
		snprintf(error->text, sizeof(error->text), "%s", jansson.missing);
		return -GW_E_NOSUPPORT;
	}
	v = jansson.loadb(text, n, flags, &e);
	if (!v) {
		error->line = e.line > 0 ? e.line : 1;
		error->column = e.column > 0 ? e.column : 1;
		/* The error text quotes the document, which may contain control characters. */
		utf8_clean(error->text, sizeof(error->text), e.text);
		return -GW_E_PARSE;
	}
	*ret = (struct json_doc *)v;
	return 0;
}

static int json_doc_parse_text(const char *text, size_t n, size_t flags, struct json_doc **ret,
			       char *message, size_t size)
{
	struct json_doc_error e;
	int err = json_doc_parse(text, n, flags, ret, &e);

	if (err == -GW_E_PARSE)
		snprintf(message, size, "not JSON: line %d, column %d: %s", e.line, e.column,
			 e.text);
	else if (err)
		snprintf(message, size, "%s", e.text);
	return err;
}

int json_doc_new(const char *text, size_t n, struct json_doc **ret, char *message, size_t size)
{
	return json_doc_parse_text(text, n, 0, ret, message, size);
}

int json_doc_new_strict(const char *text, size_t n, struct json_doc **ret, char *message,
			size_t size)
{
	return json_doc_parse_text(text, n, JANSSON_REJECT_DUPLICATES, ret, message, size);
}

int json_doc_new_lenient(const char *text, size_t n, struct json_doc **ret,
			 struct json_doc_error *error)
{
	return json_doc_parse(text, n, JANSSON_LENIENT, ret, error);
}

static int clean_string(struct jansson_value *v)
{
	const char *text = jansson.string(v);
	size_t size = strlen(text) + 1;
	char *clean = malloc(size);
	int err = 0;

	if (!clean)
		return -GW_E_NOMEM;
	utf8_clean(clean, size, text);
	if (strcmp(clean, text) != 0 && jansson.set_string(v, clean) != 0)
		err = -GW_E_NOMEM;
	free(clean);
	return err;
}

static int clean_value(struct jansson_value *v)
{
	int err = 0;

	if (v->type == JANSSON_STRING)
		return clean_string(v);
	if (v->type == JANSSON_OBJECT)
		for (void *i = jansson.first(v); !err && i; i = jansson.next(v, i))
			err = clean_value(jansson.member(i));
	if (v->type == JANSSON_ARRAY)
		for (size_t i = 0; !err && i < jansson.length(v); i++)
			err = clean_value(jansson.at(v, i));
	return err;
}

int json_doc_clean(struct json_doc *r)
{
	return clean_value((struct jansson_value *)r);
}

void json_doc_free(struct json_doc *r)
{
	if (r)
		jansson.delete((struct jansson_value *)r);
}

const struct json_doc *json_doc_get(const struct json_doc *r, const char *path)
{
	const struct jansson_value *v = (const struct jansson_value *)r;
	char key[64];

	while (v && *path) {
		size_t n = strcspn(path, ".");

		if (n >= sizeof(key))
			return NULL;
		memcpy(key, path, n);
		key[n] = '\0';
		v = jansson.get(v, key);
		path += n + (path[n] == '.');
	}
	return (const struct json_doc *)v;
}

enum json_doc_type json_doc_type(const struct json_doc *r, const char *path)
{
	static const enum json_doc_type types[] = {
		[JANSSON_OBJECT] = JSON_DOC_OBJECT, [JANSSON_ARRAY] = JSON_DOC_ARRAY,
		[JANSSON_STRING] = JSON_DOC_STRING, [JANSSON_INTEGER] = JSON_DOC_NUMBER,
		[JANSSON_REAL] = JSON_DOC_NUMBER,   [JANSSON_TRUE] = JSON_DOC_BOOL,
		[JANSSON_FALSE] = JSON_DOC_BOOL,    [JANSSON_NULL] = JSON_DOC_NULL,
	};
	const struct jansson_value *v = json_doc_value(r, path);

	return v ? types[v->type] : JSON_DOC_ABSENT;
}

const char *json_doc_string(const struct json_doc *r, const char *path)
{
	const struct jansson_value *v = json_doc_value(r, path);

	return v ? jansson.string(v) : NULL;
}

double json_doc_number(const struct json_doc *r, const char *path)
{
	const struct jansson_value *v = json_doc_value(r, path);

	return v ? jansson.number(v) : 0;
}

double json_doc_figure(const struct json_doc *r, const char *path)
{
	return json_doc_is_number(r, path) ? json_doc_number(r, path) : (double)NAN;
}

void json_doc_copy(const struct json_doc *r, const char *path, char *out, size_t size)
{
	const char *s = json_doc_string(r, path);

	snprintf(out, size, "%s", s ? s : "");
}

bool json_doc_integer(const struct json_doc *r, const char *path, int64_t *ret)
{
	const struct jansson_value *v = json_doc_value(r, path);

	if (!v || v->type != JANSSON_INTEGER)
		return false;
	*ret = jansson.integer(v);
	return true;
}

bool json_doc_true(const struct json_doc *r, const char *path)
{
	const struct jansson_value *v = json_doc_value(r, path);

	return v && v->type == JANSSON_TRUE;
}

size_t json_doc_count(const struct json_doc *r, const char *path)
{
	const struct jansson_value *v = json_doc_value(r, path);

	if (!v)
		return 0;
	return v->type == JANSSON_OBJECT ? jansson.members(v) : jansson.length(v);
}

const struct json_doc *json_doc_at(const struct json_doc *r, const char *path, size_t i)
{
	const struct jansson_value *v = json_doc_value(r, path);

	return v ? (const struct json_doc *)jansson.at(v, i) : NULL;
}

bool json_doc_next(const struct json_doc *r, void **iter, const char **ret_key,
		   const struct json_doc **ret_value)
{
	struct jansson_value *v = json_doc_value(r, "");

	if (!v)
		return false;
	*iter = *iter ? jansson.next(v, *iter) : jansson.first(v);
	if (!*iter)
		return false;
	*ret_key = jansson.key(*iter);
	*ret_value = (const struct json_doc *)jansson.member(*iter);
	return true;
}

bool json_doc_equal(const struct json_doc *a, const struct json_doc *b)
{
	return jansson.equal((const struct jansson_value *)a, (const struct jansson_value *)b);
}

void json_doc_error_text(const char *answer, size_t n, char *out, size_t size)
{
	/* Where servers put the error text. In order: OpenAI's format and llama.cpp; Ollama;
	 * FastAPI; container engines; FastAPI with an error in OpenAI's format. */
	static const char *const paths[] = { "error.message", "error", "detail", "message",
					     "detail.error.message" };
	struct json_doc *r = NULL;
	const char *found = NULL;
	char line[160], unused[160];

	if (json_doc_new(answer, n, &r, unused, sizeof(unused)) == 0)
		for (size_t i = 0; !found && i < sizeof(paths) / sizeof(*paths); i++)
			found = json_doc_string(r, paths[i]);
	snprintf(line, sizeof(line), "%s", found ? found : r ? "" : answer);
	json_doc_free(r);
	line[strcspn(line, "\r\n")] = '\0';
	utf8_clean(out, size, line);
}
