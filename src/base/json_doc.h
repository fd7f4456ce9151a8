/* json_doc: reads JSON.
 *
 * jansson does, loaded when the first document is read: the library needs libc alone, and a parser is not
 * written by hand. */
#ifndef GW_BASE_JSON_DOC_H
#define GW_BASE_JSON_DOC_H

#include <stdbool.h>
#include <stddef.h>

struct json_doc; /* a document, or a value in it */

/* 0 and the caller owns *ret; -GW_E_PARSE or -GW_E_NOSUPPORT (no libjansson), with a sentence. */
int json_doc_new(const char *text, size_t n, struct json_doc **ret, char *message, size_t size);
void json_doc_free(struct json_doc *r); /* of a document; NULL is fine */

/* Path: keys parted by dots; "" is r itself.  What is not there, or of another kind: NULL, 0, false. */
const struct json_doc *json_doc_get(const struct json_doc *r, const char *path);
const char *json_doc_string(const struct json_doc *r, const char *path);
double json_doc_number(const struct json_doc *r, const char *path);
bool json_doc_is_number(const struct json_doc *r, const char *path);
bool json_doc_true(const struct json_doc *r, const char *path);
size_t json_doc_count(const struct json_doc *r, const char *path); /* of an array */
const struct json_doc *json_doc_at(const struct json_doc *r, const char *path, size_t i);

#endif
