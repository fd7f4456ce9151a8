/* json_doc: reads JSON; no other module calls a JSON parser.
 *
 * It hides jansson, which is loaded when the first document is read, so that our library needs
 * only libc. A document cannot be changed, and only one thread at a time may use it. */
#ifndef GW_BASE_JSON_DOC_H
#define GW_BASE_JSON_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_doc; /* a document, or a value in it */

enum json_doc_type {
	JSON_DOC_ABSENT, /* There is no value at the path. */
	JSON_DOC_NULL,
	JSON_DOC_BOOL,
	JSON_DOC_NUMBER,
	JSON_DOC_STRING,
	JSON_DOC_ARRAY,
	JSON_DOC_OBJECT
};

/* Parse text. Return 0, and the caller owns *ret. Otherwise return -GW_E_PARSE or
 * -GW_E_NOSUPPORT (libjansson is missing) with a sentence in message: "not JSON: line 1, column
 * 8: ...". A repeated key is an error only in json_doc_new_strict(), which is for bodies of
 * requests and for the stored entries of manage_doc.c. */
int json_doc_new(const char *text, size_t n, struct json_doc **ret, char *message, size_t size);
int json_doc_new_strict(const char *text, size_t n, struct json_doc **ret, char *message,
			size_t size);
/* json_doc_new_lenient() is for results that other programs may have written. It also accepts
 * integers of any size and strings with NUL, and returns the position of an error. */
struct json_doc_error {
	int line, column; /* from 1 */
	char text[160];
};
int json_doc_new_lenient(const char *text, size_t n, struct json_doc **ret,
			 struct json_doc_error *error);
/* Replaces control characters in all strings of r, but not in keys, as utf8_clean() does. Use
 * it for a document whose texts will be printed. Returns 0 or -GW_E_NOMEM. */
int json_doc_clean(struct json_doc *r);
/* Frees a whole document, with all values in it. NULL is allowed. */
void json_doc_free(struct json_doc *r);

/* A path consists of keys separated by dots; the path "" means r itself. If a value is missing
 * or has another type, the functions return NULL, 0 or false. */
const struct json_doc *json_doc_get(const struct json_doc *r, const char *path);
enum json_doc_type json_doc_type(const struct json_doc *r, const char *path);
static inline bool json_doc_is_number(const struct json_doc *r, const char *path)
{
	return json_doc_type(r, path) == JSON_DOC_NUMBER;
}
const char *json_doc_string(const struct json_doc *r, const char *path);
double json_doc_number(const struct json_doc *r, const char *path);
/* Returns a number, or NAN if there is none. */
double json_doc_figure(const struct json_doc *r, const char *path);
/* Copies a string, or "" if there is none. A string that is too long is cut. */
void json_doc_copy(const struct json_doc *r, const char *path, char *out, size_t size);
bool json_doc_true(const struct json_doc *r, const char *path);
/* Reads a number without fraction and exponent that fits into int64_t; false for anything
 * else. */
bool json_doc_integer(const struct json_doc *r, const char *path, int64_t *ret);
/* Returns an integer from 0 to max; 0 for anything else, such as a value of a damaged file. */
static inline uint64_t json_doc_uint(const struct json_doc *r, const char *path, int64_t max)
{
	int64_t n;

	return json_doc_integer(r, path, &n) && n >= 0 && n <= max ? (uint64_t)n : 0;
}

/* Writes the first line of the error text in a server's answer, without control characters. If
 * the answer is not JSON, the answer itself is the error text. Writes "" if there is no error
 * text. */
void json_doc_error_text(const char *answer, size_t n, char *out, size_t size);

/* True if all values of a and b are equal. */
bool json_doc_equal(const struct json_doc *a, const struct json_doc *b);

/* Returns the number of elements of an array or of members of an object. */
size_t json_doc_count(const struct json_doc *r, const char *path);
const struct json_doc *json_doc_at(const struct json_doc *r, const char *path, size_t i);

/* Moves to the next member of object r: start with *iter NULL. Returns false after the last
 * member. */
bool json_doc_next(const struct json_doc *r, void **iter, const char **ret_key,
		   const struct json_doc **ret_value);

#endif
