/* json_doc: reads JSON; the only interface to a JSON parser in the program.
 *
 * It hides jansson, which is loaded when the first document is read: the library needs only libc.  A
 * document is immutable, and one thread at a time may use it. */
#ifndef GW_BASE_JSON_DOC_H
#define GW_BASE_JSON_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_doc; /* a document, or a value in it */

enum json_doc_type {
	JSON_DOC_ABSENT, /* the path leads nowhere */
	JSON_DOC_NULL,
	JSON_DOC_BOOL,
	JSON_DOC_NUMBER,
	JSON_DOC_STRING,
	JSON_DOC_ARRAY,
	JSON_DOC_OBJECT
};

/* Parses text.  0 and the caller owns *ret; -GW_E_PARSE or -GW_E_NOSUPPORT (libjansson is missing)
 * with a sentence in message: "not JSON: line 1, column 8: ...".  A repeated key is an error only for
 * the strict one, which is for requests and our own files. */
int json_doc_new(const char *text, size_t n, struct json_doc **ret, char *message, size_t size);
int json_doc_new_strict(const char *text, size_t n, struct json_doc **ret, char *message,
			size_t size);
/* For results, which other programs may have written: numbers of any size and texts with NUL are read, too,
 * and an error has its place. */
struct json_doc_error {
	int line, column; /* from 1 */
	char text[160];
};
int json_doc_new_lenient(const char *text, size_t n, struct json_doc **ret,
			 struct json_doc_error *error);
void json_doc_free(struct json_doc *r); /* only of a whole document; NULL is fine */

/* A path is keys separated by dots; "" is r itself.  A value that is missing or has another type
 * yields NULL, 0 or false. */
const struct json_doc *json_doc_get(const struct json_doc *r, const char *path);
enum json_doc_type json_doc_type(const struct json_doc *r, const char *path);
static inline bool json_doc_is_number(const struct json_doc *r, const char *path)
{
	return json_doc_type(r, path) == JSON_DOC_NUMBER;
}
const char *json_doc_string(const struct json_doc *r, const char *path);
double json_doc_number(const struct json_doc *r, const char *path);
bool json_doc_true(const struct json_doc *r, const char *path);
/* A number without fraction and exponent that fits; false: anything else. */
bool json_doc_integer(const struct json_doc *r, const char *path, int64_t *ret);

/* Are both the same in every value? */
bool json_doc_equal(const struct json_doc *a, const struct json_doc *b);

size_t json_doc_count(const struct json_doc *r, const char *path); /* of an array or object */
const struct json_doc *json_doc_at(const struct json_doc *r, const char *path, size_t i);

/* Steps through the members of object r: start with *iter NULL; false after the last. */
bool json_doc_next(const struct json_doc *r, void **iter, const char **ret_key,
		   const struct json_doc **ret_value);

#endif
