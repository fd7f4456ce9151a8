/* http_check: validates the texts of a request: paths, queries, Host and the headers of content
 * negotiation.
 *
 * The functions are pure and safe for any input. */
#ifndef GW_SERVE_HTTP_CHECK_H
#define GW_SERVE_HTTP_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes %XX. out must have space for strlen(raw) + 1 bytes; it may be the same memory as raw.
 * Returns NULL, or why the text is refused: bad digits, NUL or control characters, invalid
 * UTF-8. */
const char *check_decode(const char *raw, char *out);

/* Decodes a path like check_decode(). Also refuses a path that does not begin with '/', an
 * encoded '/', and the segments "." and "..". */
const char *check_path(const char *raw, char *out);

/* Splits "name", "name:80" or "[::1]:80" into name and port. host gets the name, without
 * brackets and in lower case. *ret_port is 0 if the text has no port. Returns false if the text
 * is not a host. */
#define CHECK_HOST_SIZE 256
bool check_host(const char *text, char host[static CHECK_HOST_SIZE], unsigned *ret_port);

/* Reads a number. Returns false if the text has other characters than digits, or if the number
 * is above UINT64_MAX. */
bool check_length(const char *text, uint64_t *ret);

/* True for a valid header name: a token of RFC 9110, which has no space. */
bool check_token(const char *name, size_t n);

/* True for a valid header value: no control characters except tab. */
bool check_value(const char *value, size_t n);

/* True if Accept (NULL: everything) allows this media type. Parameters of the type are
 * ignored. */
bool check_accepts(const char *accept, const char *type);

/* True if Accept prefers this media type to the usual media type of the route. It does if the q
 * of this type is higher. It also does if both have the same q and Accept names this type
 * itself, not only a range that contains it. */
bool check_prefers(const char *accept, const char *type, const char *usual);

/* True if the header Accept-Encoding allows gzip. False if the header is absent (NULL). */
bool check_gzip(const char *encoding);

/* True if the list If-None-Match contains the etag, which includes its quotes. Uses the weak
 * comparison of RFC 9110. */
bool check_etag(const char *match, const char *etag);

/* True if the id is safe in a header and a log line: at most 64 letters, digits and -_.:/+= */
bool check_id(const char *id);

/* True if this Content-Type (NULL: absent) is application/json, without parameters or with
 * charset=utf-8. */
bool check_json(const char *type);

#endif
