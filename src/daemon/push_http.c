#include "push_http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/http_client.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_NS (10 * NS_PER_S)

struct push_http {
	const struct push_server *server;
	const _Atomic uint64_t *until_ns;
	struct http_client client;
};

int push_http_new(const struct push_server *server, const _Atomic uint64_t *until_ns,
		  struct push_http **ret)
{
	struct push_http *h = calloc(1, sizeof(*h));

	if (!h)
		return -GW_E_NOMEM;
	h->server = server;
	h->until_ns = until_ns;
	*ret = h;
	return 0;
}

void push_http_free(struct push_http *h)
{
	if (!h)
		return;
	http_client_close(&h->client);
	free(h);
}

/* Data that the server rejects is dropped. If the server rejects the sender or the address
 * (401, 403, 404, a redirect), the data is kept, and it is sent after a person has fixed the
 * setting. */
enum push_verdict push_http_verdict(int status)
{
	static const int refused[] = { 400, 406, 409, 411, 413, 414, 415, 422, 431 };

	if (status >= 200 && status < 300)
		return PUSH_ACCEPTED;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (status == refused[i])
			return PUSH_REFUSED;
	return PUSH_AGAIN;
}

/* Writes a sentence about an answer. The sentence contains the first line of the reason that
 * the server gave. */
static void describe_answer(const struct push_server *s, const char *why, struct push_answer *a)
{
	char words[300];

	utf8_clean(words, sizeof(words), a->body);
	words[strcspn(words, "\r\n")] = '\0';
	if (a->status == 0)
		snprintf(a->message, sizeof(a->message), "%.200s: %s", s->url, why);
	else if (a->status == 401 || a->status == 403)
		snprintf(a->message, sizeof(a->message),
			 "%.200s: the server refuses the request with status %d: check "
			 "push.token_file, "
			 "or push.user and push.password_file",
			 s->url, a->status);
	else if (push_http_verdict(a->status) == PUSH_AGAIN && a->status < 429)
		snprintf(a->message, sizeof(a->message),
			 "%.200s: status %d: check push.url; %s", s->url, a->status, words);
	else
		snprintf(a->message, sizeof(a->message), "%.200s: status %d: %s", s->url,
			 a->status, *words ? words : "the server gives no reason");
}

/* Reads the token or the password. Returns 0, or an error with a sentence. */
static int read_secret(const struct push_server *s, char secret[static SECRET_MAX],
		       struct push_answer *a)
{
	secret[0] = '\0';
	if (*s->token_file)
		return secret_read_for(s->token_file, "push.token_file", secret, a->message,
				       sizeof(a->message));
	if (*s->user)
		return secret_read_for(s->password_file, "push.password_file", secret,
				       a->message, sizeof(a->message));
	return 0;
}

void push_http_post(struct push_http *h, enum push_protocol protocol, const char *p, size_t n,
		    uint64_t timeout_ns, struct push_answer *ret)
{
	static const char *const remote_write[] = { "Content-Type: application/x-protobuf",
						    "Content-Encoding: snappy",
						    "X-Prometheus-Remote-Write-Version: 0.1.0",
						    NULL };
	static const char *const otlp[] = { "Content-Type: application/x-protobuf",
					    "Content-Encoding: gzip", NULL };
	const struct push_server *s = h->server;
	char secret[SECRET_MAX];
	const struct http_request q = {
		.url = s->url,
		.ca_file = s->ca_file,
		.headers = protocol == PUSH_OTLP ? otlp : remote_write,
		.login = *s->token_file ? HTTP_LOGIN_BEARER : HTTP_LOGIN_BASIC,
		.user = s->user,
		.secret = secret,
		.body = p,
		.body_size = n,
		.timeout_ns = timeout_ns,
		.connect_ns = CONNECT_NS,
		.first_bytes = true,
		.until_ns = h->until_ns,
	};
	struct http_result result;
	struct buf body;
	int err;

	*ret = (struct push_answer){ .status = 0 };
	if (read_secret(s, secret, ret) != 0)
		return;
	buf_init_fixed(&body, ret->body, sizeof(ret->body));
	err = http_client_send(&h->client, &q, &body, &result);
	explicit_bzero(secret, sizeof(secret));
	/* Without a complete answer the server may or may not have stored the batch. So the
	 * batch is sent again. If the server has already stored a sample, it ignores the second
	 * copy. */
	ret->n = body.len;
	ret->status = result.status;
	ret->retry_after_s = result.retry_after_s;
	if (err == -GW_E_NOSUPPORT)
		snprintf(ret->message, sizeof(ret->message), "%s", result.why);
	else
		describe_answer(s, result.why, ret);
}
