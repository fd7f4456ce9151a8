/* http: sends requests to workers over libcurl, with a deadline.
 *
 * libcurl.so.4 is loaded with the first request; without it requests fail with a sentence. Only
 * http and https are used, without redirects and without a proxy from the environment; answers
 * have at most 1 MiB. The token comes from the worker's token_file and never appears in a
 * message. */
#ifndef GW_GUARD_WORKER_HTTP_H
#define GW_GUARD_WORKER_HTTP_H

#include "guard/policy.h"
#include "guard/worker/curl_abi.h"

#include "base/buf.h"

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

/* Returns what precedes the path of a request: the worker's url, or "" for a socket. */
const char *worker_http_base(const struct worker_http *h);

/* Return the status and the body of the last answer. */
int worker_http_status(const struct worker_http *h);
const char *worker_http_body(const struct worker_http *h, size_t *ret_len);

/* Replaces the token by asterisks in a text that the worker sent. */
void worker_http_scrub(const struct worker_http *h, char *text);

/* libcurl is loaded when the first request needs it. The push of metrics (daemon/push_http.h) and
 * the queries to the nodes of a fleet (daemon/fleet_ask.h) use these functions too. */

enum {
#define NUMBER(ours, theirs, value) ours = value,
	CURL_NUMBERS(NUMBER)
#undef NUMBER
};

struct curl_slist;

/* clang-format off */
#define CURL_CALLS(C)                                                               \
	C(int, global_init, "curl_global_init", (long flags))                       \
	C(void *, easy_init, "curl_easy_init", (void))                              \
	C(int, setopt, "curl_easy_setopt", (void *handle, int option, ...))         \
	C(int, getinfo, "curl_easy_getinfo", (void *handle, int info, ...))         \
	C(int, perform, "curl_easy_perform", (void *handle))                        \
	C(void, cleanup, "curl_easy_cleanup", (void *handle))                       \
	C(const char *, strerror, "curl_easy_strerror", (int code))                 \
	C(struct curl_slist *, slist_append, "curl_slist_append",                   \
	  (struct curl_slist *list, const char *text))                              \
	C(void, slist_free, "curl_slist_free_all", (struct curl_slist *list))
/* clang-format on */

struct curl_library {
#define POINTER(type, name, symbol, args) type(*name) args;
	CURL_CALLS(POINTER)
#undef POINTER
	char why[200]; /* why libcurl cannot be used; "": it can be used */
};

/* Its members are valid after curl_prepare() returned 0. */
extern struct curl_library curl_library;

/* The functions that libcurl calls during a request, and their data. */
struct curl_callbacks {
	char *error; /* CURL_ERROR_SIZE_ bytes for libcurl's sentence about a failure */
	/* Takes n bytes of the answer. A result other than n ends the request. */
	size_t (*receive)(char *p, size_t one, size_t n, void *arg);
	void *receive_arg;
	/* Called about once per second. A result other than 0 ends the request. NULL: none. */
	int (*check)(void *arg, int64_t down_all, int64_t down, int64_t up_all, int64_t up);
	void *check_arg;
};

/* Creates *handle if it is NULL, and sets the options of every request: only http and https, no
 * signals, no redirects, and no proxy from the environment, because a proxy would see the
 * token. Loads libcurl first. Returns 0, or an error with a sentence. Free the handle with
 * curl_library.cleanup(). */
int curl_prepare(void **handle, const struct curl_callbacks *x, char *message, size_t size);

#endif
