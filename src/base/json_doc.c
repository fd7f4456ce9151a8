#include "json_doc.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct json_value; /* jansson's json_t */

/* Functions of jansson 2, as its documentation gives them; types are told by what the functions
 * answer, so that no struct of it is known here. */
/* clang-format off */
#define JANSSON_CALLS(C)                                                                  \
	C(struct json_value *, loadb, "json_loadb",                                       \
	  (const char *text, size_t n, size_t flags, void *error))                        \
	C(void, delete, "json_delete", (struct json_value *v))                            \
	C(struct json_value *, get, "json_object_get",                                    \
	  (const struct json_value *v, const char *key))                                  \
	C(const char *, string, "json_string_value", (const struct json_value *v))        \
	C(double, number, "json_number_value", (const struct json_value *v))              \
	C(size_t, count, "json_array_size", (const struct json_value *v))                 \
	C(struct json_value *, at, "json_array_get", (const struct json_value *v, size_t i)) \
	C(struct json_value *, yes, "json_true", (void))                                  \
	C(size_t, dump, "json_dumpb",                                                     \
	  (const struct json_value *v, char *out, size_t size, size_t flags))
/* clang-format on */

struct jansson {
#define POINTER(type, name, symbol, args) type(*name) args;
	JANSSON_CALLS(POINTER)
#undef POINTER
	char why[160];
};

static struct jansson jansson; /* one for the process, never let go */
static pthread_once_t jansson_once = PTHREAD_ONCE_INIT;

static void load_jansson(void)
{
	void *library = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(jansson.why, sizeof(jansson.why),
			 "libjansson.so.4 is needed to read what workers answer: "
			 "install libjansson4");
		return;
	}
#define LOOK_UP(type, name, symbol, args)                                                    \
	p = dlsym(library, symbol);                                                          \
	memcpy(&jansson.name, &p, sizeof(p));                                                \
	if (!p)                                                                              \
		snprintf(jansson.why, sizeof(jansson.why), "this libjansson.so.4 has no %s", \
			 symbol);
	JANSSON_CALLS(LOOK_UP)
#undef LOOK_UP
}

static const struct json_value *value(const struct json_doc *r)
{
	return (const struct json_value *)r;
}

int json_doc_new(const char *text, size_t n, struct json_doc **ret, char *message, size_t size)
{
	struct json_value *v;

	pthread_once(&jansson_once, load_jansson);
	if (jansson.why[0]) {
		snprintf(message, size, "%s", jansson.why);
		return -GW_E_NOSUPPORT;
	}
	v = jansson.loadb(text, n, 0, NULL);
	if (!v) {
		snprintf(message, size, "the answer is no JSON");
		return -GW_E_PARSE;
	}
	*ret = (struct json_doc *)v;
	return 0;
}

void json_doc_free(struct json_doc *r)
{
	if (r)
		jansson.delete((struct json_value *)r);
}

const struct json_doc *json_doc_get(const struct json_doc *r, const char *path)
{
	const struct json_value *v = value(r);
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

const char *json_doc_string(const struct json_doc *r, const char *path)
{
	return jansson.string(value(json_doc_get(r, path)));
}

double json_doc_number(const struct json_doc *r, const char *path)
{
	return jansson.number(value(json_doc_get(r, path)));
}

bool json_doc_is_number(const struct json_doc *r, const char *path)
{
	const size_t any = 0x200; /* JSON_ENCODE_ANY: no array and no object too */
	const struct json_doc *v = json_doc_get(r, path);
	char text[64] = ""; /* what does not fit is none, and stays out */

	return v && jansson.dump(value(v), text, sizeof(text) - 1, any) > 0 &&
	       (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
}

bool json_doc_true(const struct json_doc *r, const char *path)
{
	const struct json_doc *v = json_doc_get(r, path);

	return v && value(v) == jansson.yes(); /* there is one true, not one for each place */
}

size_t json_doc_count(const struct json_doc *r, const char *path)
{
	return jansson.count(value(json_doc_get(r, path)));
}

const struct json_doc *json_doc_at(const struct json_doc *r, const char *path, size_t i)
{
	return (const struct json_doc *)jansson.at(value(json_doc_get(r, path)), i);
}
