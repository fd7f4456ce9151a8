/* http_message: writes HTTP/1.1 requests and reads answers, for clients without TLS.
 *
 * It does no I/O: the caller owns the connection and closes it after one answer. An answer ends
 * as its Content-Length or its chunks say, or else when the connection ends. */
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

/* True if the answer announced its length and has arrived completely. False if it announced no
 * length. */
bool http_message_complete(const struct buf *answer);

/* Reads a complete answer and adds its body to *ret_body. Returns 0 for any status;
 * -GW_E_PARSE: not HTTP, or truncated; -GW_E_SIZE or -GW_E_NOMEM: the error of *ret_body. */
int http_message_read(const struct buf *answer, int *ret_status, struct buf *ret_body);

/* Appends s with percent-encoding (RFC 3986), for use in a path, a query or a form. */
void url_escape(struct buf *out, const char *s);

#endif
