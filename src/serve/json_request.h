/* json_request: reads the JSON object in a request body.
 *
 * Every error names the key; unknown keys are refused. */
#ifndef GW_SERVE_JSON_REQUEST_H
#define GW_SERVE_JSON_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

struct json_doc;
struct json_request;

#define JSON_REQUEST_KEYS 16 /* maximum number of words in a list */
/* maximum of a whole number, such as bytes: a double represents all of them exactly */
#define JSON_REQUEST_WHOLE_MOST 9.0e15

struct json_request_words {
	const char *word[JSON_REQUEST_KEYS];
	char text[128];
};

/* Splits a list of words at the spaces. Returns the number of words. The list must fit into
 * *ret. */
size_t json_request_words(const char *list, struct json_request_words *ret);

/* True if every key of an object is one of the n keys. If one key of the object is not, writes
 * a message with the most similar of the n keys, or with all n keys if none is similar. The
 * message begins with the text `where`, which names the place of the object. If `where` is "",
 * the message names no place. */
bool json_request_keys_known(const struct json_doc *o, const char *const *keys, size_t n,
			     const char *where, char *message, size_t size);

/* Reads a text that must be a JSON object. The object may have only the keys in `keys`, which
 * are separated by spaces. If `keys` is "", the object must be empty. Free *ret with
 * json_request_close(). Returns 0, -GW_E_PARSE with a message, or -GW_E_NOMEM. */
int json_request_open(const char *text, size_t n, const char *keys, struct json_request **ret,
		      char *message, size_t size);
void json_request_close(struct json_request *b);

/* The next functions read the value of a key. If the key is absent, they leave *ret unchanged
 * and return true. If the value has the right type, they set *ret and return true. Otherwise
 * they return false, and json_request_message() returns the error. The strings are valid until
 * json_request_close(). */
/* Reads a string of at most max bytes. If max is 0, the string may have any length. */
bool json_request_text(struct json_request *b, const char *key, size_t max, const char **ret);
bool json_request_number(struct json_request *b, const char *key, double *ret);
bool json_request_flag(struct json_request *b, const char *key, bool *ret);
/* Reads a string, or a whole number as a string. */
bool json_request_word(struct json_request *b, const char *key, const char **ret);
/* Reads an array of at most max strings (or whole numbers as strings). */
bool json_request_texts(struct json_request *b, const char *key, const char **out, unsigned max,
			unsigned *ret_count);
/* Reads an object with at most max members, all of them strings. */
bool json_request_pairs(struct json_request *b, const char *key, const char **names,
			const char **values, unsigned max, unsigned *ret_count);

/* Sets the error message. Always returns false. */
bool json_request_wrong(struct json_request *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
const char *json_request_message(const struct json_request *b);

#endif
