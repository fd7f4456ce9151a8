/* http_message: writes HTTP/1.1 requests and reads answers, for clients without TLS.
 *
 * It does no I/O: the caller owns the connection and closes it after one answer. The
 * Content-Length or the last chunk shows where an answer ends. If an answer has neither, it
 * ends when the server closes the connection. */
#ifndef GW_BASE_HTTP_MESSAGE_H
#define GW_BASE_HTTP_MESSAGE_H

#include "base/buf.h"

struct http_message {
	const char *method, *path, *host;
	const char *accept; /* media type */
	const char *token;  /* Bearer token. NULL or "": no Authorization header is sent. */
	const char *body;   /* JSON document. NULL: the request has no body. */
};

void http_message_write(struct buf *out, const struct http_message *m);

/* True if the answer has arrived completely. Also false if the end of the answer is unknown,
 * because the answer has neither a Content-Length nor chunks. */
bool http_message_complete(const struct buf *answer);

/* Reads a complete answer and adds its body to *ret_body. Returns 0, whatever the status is;
 * -GW_E_PARSE if the answer is not HTTP or is truncated; -GW_E_SIZE or -GW_E_NOMEM if the body
 * does not fit in *ret_body. */
int http_message_read(const struct buf *answer, int *ret_status, struct buf *ret_body);

/* Appends s with percent-encoding (RFC 3986), for use in a path, a query or a form. */
void url_escape(struct buf *out, const char *s);

#endif
