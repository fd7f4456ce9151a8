/* http: sends requests to workers with base/http_client.h, with a deadline.
 *
 * Answers have at most 1 MiB. The token comes from the worker's token_file and never appears in
 * a message. */
#ifndef GW_GUARD_WORKER_HTTP_H
#define GW_GUARD_WORKER_HTTP_H

#include "guard/policy.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WORKER_HTTP_MAX (1u << 20)

struct worker_http;

/* Prepares the requests of one order. Borrows w and opens nothing yet. Returns 0 or
 * -GW_E_NOMEM. */
int worker_http_new(const struct policy_worker *w, uint64_t deadline_ns,
		    struct worker_http **ret);
void worker_http_free(struct worker_http *h);

/* Sends the token as "x-admin-key: TOKEN" instead of "Authorization: Bearer TOKEN". */
void worker_http_admin_key(struct worker_http *h);

/* Sends the following requests to the UNIX socket of a container engine, or to the worker's url
 * if path is NULL. Borrows path. */
void worker_http_socket(struct worker_http *h, const char *path);

/* Changes the deadline of the following requests, on CLOCK_MONOTONIC. */
void worker_http_deadline(struct worker_http *h, uint64_t deadline_ns);

/* Ends a request soon after *cancelled is set. Borrows cancelled; NULL: never. */
void worker_http_cancel(struct worker_http *h, const atomic_bool *cancelled);

/* For answers that do not end, such as a stream of events: the following requests are complete
 * when the answer contains this text and ends with an empty line. NULL: a request is complete
 * when its answer ends. Borrows text. */
void worker_http_until(struct worker_http *h, const char *text);

/* Sends a request. method is "GET" or "POST", path begins with a slash, body is NULL or JSON.
 * Returns 0 for every HTTP status; -GW_E_TIMEOUT, -GW_E_IO (refused, broken, too long),
 * -GW_E_ARG (the url), -GW_E_PERM (the token cannot be read) or -GW_E_NOSUPPORT (no libcurl),
 * with a sentence. */
int worker_http_do(struct worker_http *h, const char *method, const char *path,
		   const char *body, char *message, size_t size);

/* Returns the beginning of a request's URL, before the path: the worker's url, or "" for a
 * socket. */
const char *worker_http_base(const struct worker_http *h);

/* Return the status and the body of the last answer. */
int worker_http_status(const struct worker_http *h);
const char *worker_http_body(const struct worker_http *h, size_t *ret_len);

/* Replaces the token by asterisks in a text that the worker sent. */
void worker_http_scrub(const struct worker_http *h, char *text);

#endif
