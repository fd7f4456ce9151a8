/* http_check: validates the strings of a request.
 *
 * Pure functions for paths, queries, Host and the headers of content negotiation. They are safe
 * for any input. */
#ifndef GW_SERVE_HTTP_CHECK_H
#define GW_SERVE_HTTP_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes %XX. out has space for strlen(raw) + 1 bytes and may be raw itself. Returns NULL, or
 * why the string is refused: bad digits, NUL or control characters, invalid UTF-8. */
const char *check_decode(const char *raw, char *out);

/* Decodes a path: also refuses a path that does not begin with '/', an encoded '/', and the
 * segments "." and "..". */
const char *check_path(const char *raw, char *out);

/* Reads "name", "name:80" or "[::1]:80": the name without brackets, in lower case; port 0:
 * none. False: not a host. */
#define CHECK_HOST_SIZE 256
bool check_host(const char *text, char host[static CHECK_HOST_SIZE], unsigned *ret_port);

/* Reads a number of digits only, at most UINT64_MAX. */
bool check_length(const char *text, uint64_t *ret);

/* True for a valid header name: a token of RFC 9110, so no space before its colon. */
bool check_token(const char *name, size_t n);

/* True for a valid header value: no control characters except tab. */
bool check_value(const char *value, size_t n);

/* True if Accept (NULL: everything) allows this media type. Parameters of the type are
 * ignored. */
bool check_accepts(const char *accept, const char *type);

/* True if Accept-Encoding (NULL: only plain) allows gzip. */
bool check_gzip(const char *encoding);

/* True if etag ("\"...\"") is in If-None-Match, by the weak comparison of RFC 9110. */
bool check_etag(const char *match, const char *etag);

/* True if the id is safe in a header and a log line: at most 64 letters, digits and -_.:/+= */
bool check_id(const char *id);

/* True if this Content-Type is JSON. */
bool check_json(const char *type);

#endif
