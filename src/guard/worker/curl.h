/* curl: loads libcurl when the first request needs it, and sets the options that all requests
 * have in common.
 *
 * The requests to workers (http.h), the push of metrics (daemon/push_http.h) and the queries to
 * the nodes of a fleet (daemon/fleet_ask.h) use this module. */
#ifndef GW_GUARD_WORKER_CURL_H
#define GW_GUARD_WORKER_CURL_H

#include "guard/worker/curl_abi.h"

#include <stddef.h>
#include <stdint.h>

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

/* Its members are valid after curl_load() returned 0. */
extern struct curl_library curl_library;

/* Loads libcurl.so.4 at the first call; threads may call it. Returns 0, or -GW_E_NOSUPPORT with
 * a sentence. */
int curl_load(char *message, size_t size);

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
