/* json: writes JSON to a buf, with its commas, nesting (at most JSON_DEPTH levels) and escapes.
 *
 * Each invalid byte of UTF-8 is replaced by U+FFFD. Numbers are the shortest text that reads
 * back to the same double; a number that is not finite becomes null. Wrong use, such as a key
 * outside an object, fails an assertion. */
#ifndef GW_BASE_JSON_H
#define GW_BASE_JSON_H

#include "buf.h"

#include <stdint.h>

#define JSON_DEPTH 32

struct json {
	struct buf *out;
	bool pretty;
	unsigned depth;
	bool first;            /* No value has been written at the present level yet. */
	char kind[JSON_DEPTH]; /* '{' or '[' for each open level */
	const char *next;      /* key that json_next_key() has set, or NULL */
};

/* Begins a document in out (borrowed). If pretty is set, the document has line breaks and each
 * level is indented by two spaces. */
void json_init(struct json *j, struct buf *out, bool pretty);

/* Ends the document with a newline. Returns 0 or the error of the buf. */
int json_end(struct json *j);

/* Sets the key (borrowed) of the next value. This key is used if the value is written with key
 * NULL. So a function that writes a whole document can also write it as a member of another
 * document. */
void json_next_key(struct json *j, const char *key);

/* In these and all functions below, key is NULL for an element of an array and for the document
 * itself. */
void json_object(struct json *j, const char *key);
void json_object_end(struct json *j);
void json_array(struct json *j, const char *key);
void json_array_end(struct json *j);

void json_string(struct json *j, const char *key, const char *s); /* writes null if s is NULL */
void json_bool(struct json *j, const char *key, bool v);
void json_int(struct json *j, const char *key, int64_t v);
void json_uint(struct json *j, const char *key, uint64_t v);
void json_double(struct json *j, const char *key, double v);
void json_null(struct json *j, const char *key);
/* Writes the time as a string (RFC 3339), or null if wall_ns is 0. */
void json_time(struct json *j, const char *key, uint64_t wall_ns);

/* Writes a value that is already JSON, unchanged. The value must be well-formed. */
void json_raw(struct json *j, const char *key, const char *value);

/* Writes the character at s (not NUL), escaped as in a JSON string, in at most JSON_ESCAPE_MAX
 * bytes. Returns the number of bytes that the character has in s. */
#define JSON_ESCAPE_MAX 6
size_t json_escape(struct buf *out, const char *s);

/* Write the value if `known` is true, otherwise null. */
static inline void json_uint_if(struct json *j, const char *key, bool known, uint64_t v)
{
	known ? json_uint(j, key, v) : json_null(j, key);
}

static inline void json_int_if(struct json *j, const char *key, bool known, int64_t v)
{
	known ? json_int(j, key, v) : json_null(j, key);
}

/* Begins an object and returns true if `known`; otherwise writes null and returns false. */
static inline bool json_object_if(struct json *j, const char *key, bool known)
{
	known ? json_object(j, key) : json_null(j, key);
	return known;
}

#endif
