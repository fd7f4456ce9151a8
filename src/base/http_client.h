/* http_client: sends HTTP and HTTPS requests to other servers with libcurl.
 *
 * libcurl.so.4 is loaded with the first request. The module follows no redirect and uses no
 * proxy of the environment, because another server would then get the secret. No message
 * contains the secret. */
#ifndef GW_BASE_HTTP_CLIENT_H
#define GW_BASE_HTTP_CLIENT_H

#include "base/buf.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keeps the connection open between requests. Set all members to 0 before the first request.
 * Only one thread may use it at a time. */
struct http_client {
	void *handle;
	char error[256];
};

enum http_login {
	HTTP_LOGIN_BEARER,    /* "Authorization: Bearer SECRET" */
	HTTP_LOGIN_ADMIN_KEY, /* "x-admin-key: SECRET" */
	HTTP_LOGIN_BASIC,     /* "Authorization: Basic", with user and SECRET as the password */
};

/* Members that are 0 or NULL are not used, unless their comment says otherwise. */
struct http_request {
	const char *url;     /* required; begins with http:// or https:// */
	const char *socket;  /* path of a UNIX socket that is used instead of the url's host */
	const char *ca_file; /* certificates to trust; NULL or "": the system's */
	const char *const *headers; /* ends with NULL */
	enum http_login login;
	const char *user, *secret; /* secret: NULL or "": no login */
	const void *body;          /* NULL: GET; otherwise POST */
	size_t body_size;
	uint64_t timeout_ns; /* for the whole request; 0 fails with -GW_E_TIMEOUT */
	/* Time limit for connecting. It can be shorter than timeout_ns, because a server that
	 * does not accept a connection will not answer, but a busy server may answer late. */
	uint64_t connect_ns;
	/* An answer that does not fit is cut. Without this flag, such an answer is an error. */
	bool first_bytes;
	/* For answers that do not end, such as a stream of events: the answer is complete when
	 * it contains this text and ends with an empty line. */
	const char *until_text;
	/* The request is cancelled within about a second after *cancelled is true, or after the
	 * monotonic time *until_ns. Other threads may change both. */
	const atomic_bool *cancelled;
	const _Atomic uint64_t *until_ns;
};

struct http_result {
	int status;             /* HTTP status; 0: there is no complete answer */
	uint64_t retry_after_s; /* 0: the server did not send Retry-After */
	char why[300];          /* why there is no answer; never contains the url */
};

/* Sends a request and writes the body of the answer to *answer. Returns 0 if the server
 * answered, with any HTTP status. Otherwise writes a text to ret->why and returns
 * -GW_E_TIMEOUT, -GW_E_SIZE (*answer is full), -GW_E_IO (refused, broken or cancelled),
 * -GW_E_ARG (invalid url), -GW_E_NOMEM, or -GW_E_NOSUPPORT (libcurl cannot be used). */
int http_client_send(struct http_client *c, const struct http_request *q, struct buf *answer,
		     struct http_result *ret);

/* Closes the connection. */
void http_client_close(struct http_client *c);

#endif
