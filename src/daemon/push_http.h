/* push_http: sends records to the server of the push with base/http_client.h.
 *
 * The connection stays open between requests. Every request reads the token or password from
 * its file, so that a changed token is used at once; no message contains the token or password.
 * Only one thread may use a push_http. */
#ifndef GW_DAEMON_PUSH_HTTP_H
#define GW_DAEMON_PUSH_HTTP_H

#include "push_encode.h"

#include <stdatomic.h>

#define PUSH_PATH_MAX 1024

struct push_server {
	char url[PUSH_PATH_MAX], user[PUSH_TEXT_MAX];
	/* Paths. "" if there is none. */
	char token_file[PUSH_PATH_MAX], password_file[PUSH_PATH_MAX], ca_file[PUSH_PATH_MAX];
};

struct push_answer {
	int status;             /* HTTP status. 0 if there was no answer. */
	uint64_t retry_after_s; /* 0 if the server did not send Retry-After. */
	char body[4096];        /* The first bytes of the answer. */
	size_t n;
	char message[600]; /* What happened, in one sentence. */
};

struct push_http;

/* Borrows server. A running request is cancelled at the monotonic time *until_ns. Another
 * thread may change *until_ns; libcurl checks it about once per second. Returns 0 or
 * -GW_E_NOMEM. */
int push_http_new(const struct push_server *server, const _Atomic uint64_t *until_ns,
		  struct push_http **ret);
void push_http_free(struct push_http *h);

/* Sends one request and waits for the answer. */
void push_http_post(struct push_http *h, enum push_protocol protocol, const char *p, size_t n,
		    uint64_t timeout_ns, struct push_answer *ret);

/* What to do with a batch after an answer. */
enum push_verdict {
	PUSH_ACCEPTED,
	/* Keep the batch. The server, the network or the configuration is at fault. */
	PUSH_AGAIN,
	PUSH_REFUSED, /* Drop the batch. The server will never accept this data. */
};
enum push_verdict push_http_verdict(int status);

#endif
