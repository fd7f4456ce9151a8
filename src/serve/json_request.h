/* body: the JSON object that a request carries.
 *
 * Hides jansson, whose names are those of our own writer.  Every fault is told in a sentence that
 * names the key: what is unknown is refused, not passed over. */
#ifndef GW_SERVE_JSON_REQUEST_H
#define GW_SERVE_JSON_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

struct json_request;

/* Reads an object whose keys are words of `keys`, joined by blanks; "" is an empty object.  0,
 * -GW_E_PARSE with a sentence in message, or -GW_E_NOMEM. */
int json_request_open(const char *text, size_t n, const char *keys, struct json_request **ret,
		      char *message, size_t size);
void json_request_close(struct json_request *b);

/* Each: true, and the value or what was there before where the key is absent; false: it is of
 * another kind, with a sentence in message.  Texts live as long as the body. */
bool json_request_text(struct json_request *b, const char *key, const char **ret, char *message,
		       size_t size);
bool json_request_number(struct json_request *b, const char *key, double *ret, char *message,
			 size_t size);
bool json_request_flag(struct json_request *b, const char *key, bool *ret, char *message,
		       size_t size);
/* A text, or a whole number as one. */
bool json_request_word(struct json_request *b, const char *key, const char **ret, char *message,
		       size_t size);
/* An array of texts (or of whole numbers, as text), at most max.  *ret_count: how many. */
bool json_request_texts(struct json_request *b, const char *key, const char **out, unsigned max,
			unsigned *ret_count, char *message, size_t size);
/* An object of texts, at most max. */
bool json_request_pairs(struct json_request *b, const char *key, const char **names,
			const char **values, unsigned max, unsigned *ret_count, char *message,
			size_t size);

#endif
