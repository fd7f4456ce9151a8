/* http_message: HTTP/1.1 requests and answers as text, for clients without TLS.
 *
 * Pure: the caller has the connection and closes it after one answer.  An answer may have a
 * Content-Length, chunks, or end with the connection. */
#ifndef GW_BASE_HTTP_MESSAGE_H
#define GW_BASE_HTTP_MESSAGE_H

#include "base/buf.h"

struct http_message {
	const char *method, *path, *host;
	const char *accept; /* media type */
	const char *token;  /* NULL or "": none */
	const char *body;   /* JSON; NULL: none */
};

void http_message_write(struct buf *out, const struct http_message *m);

/* Has the announced end of the answer arrived?  False if it announced none. */
bool http_message_complete(const struct buf *answer);

/* Reads a complete answer, and adds its body to *ret_body.  0 for any status; -GW_E_PARSE: not
 * HTTP, or truncated; -GW_E_SIZE or -GW_E_NOMEM: of *ret_body. */
int http_message_read(const struct buf *answer, int *ret_status, struct buf *ret_body);

#endif
