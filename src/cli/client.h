/* client: one request to an HTTP server, and its answer.
 *
 * HTTP/1.1 without TLS, over TCP or a UNIX socket, one request a connection, a deadline, an
 * answer of at most 16 MiB, whole or in pieces.  It follows no redirection. */
#ifndef GW_CLI_CLIENT_H
#define GW_CLI_CLIENT_H

#include "deadline_wait.h"

#include "base/buf.h"

#include <stdint.h>

#define CLIENT_ANSWER_MAX (16u << 20)

struct client_request {
	const char *address; /* "HOST:PORT" or "unix:PATH" */
	const char *method, *path;
	const char *accept;                      /* what kind of document   */
	const char *token;                       /* NULL or "": none        */
	const char *body;                        /* JSON; NULL: none        */
	const struct deadline_wait_asker *asker; /* who may end the waiting; NULL: nobody */
};

/* 0 whatever the status is, and the body is added to *ret_body, whose limit holds; else
 * -GW_E_NOENT (nobody listens), -GW_E_NODEV (no such host), -GW_E_ARG (no address), -GW_E_PERM,
 * -GW_E_TIMEOUT, -GW_E_STATE (somebody asked us to end), -GW_E_SIZE, -GW_E_IO or -GW_E_PARSE
 * (it is no answer of HTTP). */
int client_ask(const struct client_request *q, uint64_t timeout_ns, int *ret_status,
	       struct buf *ret_body);

/* The same in two steps, for who has something to do meanwhile: 0 and *ret_fd, which
 * client_answer() closes. */
int client_send(const struct client_request *q, uint64_t timeout_ns, int *ret_fd);
int client_answer(int fd, uint64_t timeout_ns, int *ret_status, struct buf *ret_body);

#endif
