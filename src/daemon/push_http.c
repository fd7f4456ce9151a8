#include "push_http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "guard/worker/http.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 10000
#define HEADER_MAX (SECRET_MAX + 64)

struct push_http {
	const struct push_server *server;
	const _Atomic uint64_t *until_ns;
	void *handle;
	char error[CURL_ERROR_SIZE_];
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
	if (h->handle)
		curl_library.cleanup(h->handle);
	free(h);
}

/* If the server rejects the data, the data is dropped. If it rejects the sender or the address
 * (401, 403, 404, a redirect), the data is kept and sent after the setting is fixed. */
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

static size_t receive_answer(char *p, size_t one, size_t n, void *arg)
{
	struct push_answer *a = arg;
	size_t room = sizeof(a->body) - 1 - a->n, part = n < room ? n : room;

	(void)one;
	memcpy(a->body + a->n, p, part);
	a->n += part;
	a->body[a->n] = '\0';
	/* The rest of the answer is not needed. The time limit ends an endless answer. */
	return n;
}

static int check_until(void *arg, int64_t down_all, int64_t down, int64_t up_all, int64_t up)
{
	const struct push_http *h = arg;

	(void)down_all;
	(void)down;
	(void)up_all;
	(void)up;
	return clock_mono_ns(clock_real()) >= atomic_load(h->until_ns);
}

static struct curl_slist *add_header(struct curl_slist *list, const char *line)
{
	struct curl_slist *more = list ? curl_library.slist_append(list, line) : NULL;

	if (!more && list)
		curl_library.slist_free(list);
	return more;
}

static struct curl_slist *make_headers(enum push_protocol protocol, const char *token)
{
	static const char *const remote_write[] = { "Content-Encoding: snappy",
						    "X-Prometheus-Remote-Write-Version: 0.1.0",
						    NULL };
	static const char *const otlp[] = { "Content-Encoding: gzip", NULL };
	const char *const *more = protocol == PUSH_OTLP ? otlp : remote_write;
	struct curl_slist *list =
		curl_library.slist_append(NULL, "Content-Type: application/x-protobuf");
	char line[HEADER_MAX];

	for (; *more; more++)
		list = add_header(list, *more);
	/* With this header, libcurl does not wait for "100 Continue" before it sends the
	 * body. */
	list = add_header(list, "Expect:");
	if (*token) {
		snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
		list = add_header(list, line);
		explicit_bzero(line, sizeof(line));
	}
	return list;
}

/* Prepares the handle. Returns 0, or an error with the reason in a->message. */
static int prepare_handle(struct push_http *h, struct push_answer *a)
{
	const struct curl_callbacks x = { h->error, receive_answer, a, check_until, h };
	int err = curl_prepare(&h->handle, &x, a->message, sizeof(a->message));

	if (err)
		return err;
	curl_library.setopt(h->handle, CURL_URL, h->server->url);
	if (*h->server->ca_file)
		curl_library.setopt(h->handle, CURL_CAINFO, h->server->ca_file);
	return 0;
}

static void set_body(struct push_http *h, const char *p, size_t n, uint64_t timeout_ns)
{
	const struct curl_library *c = &curl_library;
	long ms = (long)(timeout_ns / NS_PER_MS);

	c->setopt(h->handle, CURL_TIMEOUT_MS, ms);
	c->setopt(h->handle, CURL_CONNECT_MS, ms < CONNECT_MS ? ms : (long)CONNECT_MS);
	c->setopt(h->handle, CURL_POST, 1L);
	c->setopt(h->handle, CURL_POSTFIELDSIZE, (long)n);
	c->setopt(h->handle, CURL_POSTFIELDS, p);
}

/* Writes the sentence for an answer, with the first line of the server's reason. */
static void describe_answer(const struct push_server *s, int rc, const char *error,
			    struct push_answer *a)
{
	char words[300];

	utf8_clean(words, sizeof(words), a->body);
	words[strcspn(words, "\r\n")] = '\0';
	if (a->status == 0 && rc == CURL_TIMED_OUT)
		snprintf(a->message, sizeof(a->message), "%.200s: no answer in time", s->url);
	else if (a->status == 0)
		snprintf(a->message, sizeof(a->message), "%.200s: %s", s->url,
			 *error ? error : curl_library.strerror(rc));
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

/* Sets the password for basic authentication, or reads the token. Returns 0, or an error with a
 * sentence. */
static int authorise(struct push_http *h, char token[static SECRET_MAX], struct push_answer *a)
{
	const struct push_server *s = h->server;
	char secret[SECRET_MAX], pair[SECRET_MAX + PUSH_TEXT_MAX];
	int err;

	token[0] = '\0';
	if (*s->token_file)
		return secret_read_for(s->token_file, "push.token_file", token, a->message,
				       sizeof(a->message));
	if (!*s->user)
		return 0;
	err = secret_read_for(s->password_file, "push.password_file", secret, a->message,
			      sizeof(a->message));
	if (!err) {
		snprintf(pair, sizeof(pair), "%s:%s", s->user, secret);
		curl_library.setopt(h->handle, CURL_USERPWD, pair);
	}
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(pair, sizeof(pair));
	return err;
}

void push_http_post(struct push_http *h, enum push_protocol protocol, const char *p, size_t n,
		    uint64_t timeout_ns, struct push_answer *ret)
{
	struct curl_slist *list;
	char token[SECRET_MAX];
	int64_t after = 0;
	long status = 0;
	int rc;

	*ret = (struct push_answer){ .status = 0 };
	if (prepare_handle(h, ret) != 0 || authorise(h, token, ret) != 0)
		return;
	list = make_headers(protocol, token);
	explicit_bzero(token, sizeof(token));
	if (!list) {
		snprintf(ret->message, sizeof(ret->message), "out of memory for a request");
		return;
	}
	h->error[0] = '\0';
	set_body(h, p, n, timeout_ns);
	curl_library.setopt(h->handle, CURL_HTTPHEADER, list);
	rc = curl_library.perform(h->handle);
	curl_library.setopt(h->handle, CURL_HTTPHEADER, (struct curl_slist *)NULL);
	curl_library.setopt(h->handle, CURL_POSTFIELDS, "");
	curl_library.slist_free(list);
	curl_library.getinfo(h->handle, CURL_RESPONSE_CODE, &status);
	/* Without a complete answer the server may or may not have stored the batch. So the
	 * batch is sent again; a server ignores a sample that it already has. */
	ret->status = rc == 0 ? (int)status : 0;
	if (rc == 0 && curl_library.getinfo(h->handle, CURL_RETRY_AFTER, &after) == 0 &&
	    after > 0)
		ret->retry_after_s = (uint64_t)after;
	describe_answer(h->server, rc, h->error, ret);
}
