/* http: requests to workers, with a deadline, over libcurl.
 *
 * libcurl.so.4 is loaded when the first request is made; without it requests fail with a sentence.
 * Only http and https, no redirects, no proxy of the environment, answers of at most 1 MiB.  The token
 * comes from the worker's token_file and is in no message. */
#ifndef GW_GUARD_WORKER_HTTP_H
#define GW_GUARD_WORKER_HTTP_H

#include "guard/policy.h"

#include "base/buf.h"

#define WORKER_HTTP_MAX (1u << 20)

struct worker_http;

/* For one order to one worker, which is borrowed.  Nothing is opened yet.  0 or -GW_E_NOMEM. */
int worker_http_new(const struct policy_worker *w, uint64_t deadline_ns,
		    struct worker_http **ret);
void worker_http_free(struct worker_http *h);

/* The token goes as "x-admin-key: TOKEN" instead of "Authorization: Bearer TOKEN". */
void worker_http_admin_key(struct worker_http *h);

/* Requests go to the UNIX socket of an engine instead of the worker's url.  path is borrowed. */
void worker_http_socket(struct worker_http *h, const char *path);

/* No request lasts longer than this, on CLOCK_MONOTONIC, until it is set again. */
void worker_http_deadline(struct worker_http *h, uint64_t deadline_ns);

/* method "GET" or "POST"; path begins with a slash; body NULL or JSON.  0 whatever the status is;
 * -GW_E_TIMEOUT, -GW_E_IO (refused, broken, too long), -GW_E_ARG (the url), -GW_E_PERM (the token cannot
 * be read), -GW_E_NOSUPPORT (no libcurl), with a sentence. */
int worker_http_do(struct worker_http *h, const char *method, const char *path,
		   const char *body, char *message, size_t size);

/* What stands before the path of a request: the worker's url, "" of a socket. */
const char *worker_http_base(const struct worker_http *h);

/* Of the last answer. */
int worker_http_status(const struct worker_http *h);
const char *worker_http_body(const struct worker_http *h, size_t *ret_len);

/* Takes the token out of a text that a worker sent. */
void worker_http_scrub(const struct worker_http *h, char *text);

/* s as a part of a path or query. */
void worker_http_escape(struct buf *out, const char *s);

#endif
