/* http_check: what a request may look like.
 *
 * Pure functions over the texts of a request: paths, queries, Host, and the headers by which client
 * and server agree on a form.  Whatever they are given, they neither read past its end nor fail. */
#ifndef GW_SERVE_HTTP_CHECK_H
#define GW_SERVE_HTTP_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes %XX; out has room for strlen(raw) + 1 and may be raw itself.  NULL, or the sentence why it
 * is refused: digits that are none, a NUL or a control character, what is no UTF-8. */
const char *check_decode(const char *raw, char *out);

/* Decodes a path: also refuses what does not begin with '/', an encoded '/', and the segments "." and
 * "..". */
const char *check_path(const char *raw, char *out);

/* "name", "name:80", "[::1]:80": the name without brackets, in lower case; port 0 when there is
 * none.  False: it is no host. */
#define CHECK_HOST_SIZE 256
bool check_host(const char *text, char host[static CHECK_HOST_SIZE], unsigned *ret_port);

/* Digits and nothing else, at most UINT64_MAX. */
bool check_length(const char *text, uint64_t *ret);

/* The name of a header: a token of RFC 9110, so no blank before its colon. */
bool check_token(const char *name, size_t n);

/* The value of a header: no control character but the tab. */
bool check_value(const char *value, size_t n);

/* Does Accept (NULL: everything) take this media type?  Parameters of the type do not count. */
bool check_accepts(const char *accept, const char *type);

/* Does Accept-Encoding (NULL: nothing but the plain form) take gzip? */
bool check_gzip(const char *encoding);

/* Is etag ("\"...\"") in If-None-Match?  Compared weakly, as RFC 9110 has it. */
bool check_etag(const char *match, const char *etag);

/* An id that can be repeated in a header and a log line: at most 64 letters, digits and -_.:/+= */
bool check_id(const char *id);

/* Is a Content-Type of JSON? */
bool check_json(const char *type);

#endif
