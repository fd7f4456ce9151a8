#include "guard/worker/http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/http_client.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limit for connecting. It is shorter than the limit for an answer. A server that does not
 * accept a connection will not answer, but a busy server that accepts it may answer late. */
#define CONNECT_NS (3 * NS_PER_S)

struct worker_http {
	const struct policy_worker *worker;
	uint64_t deadline_ns;
	const char *socket;
	bool admin_key, token_read;
	const atomic_bool *cancelled;
	const char *until; /* text of worker_http_until(); NULL: none */
	char token[SECRET_MAX];
	struct http_client client;
	struct buf body;
	int status;
};

int worker_http_new(const struct policy_worker *w, uint64_t deadline_ns,
		    struct worker_http **ret)
{
	struct worker_http *h = calloc(1, sizeof(*h));

	if (!h)
		return -GW_E_NOMEM;
	h->worker = w;
	h->deadline_ns = deadline_ns;
	buf_init(&h->body, WORKER_HTTP_MAX + 1);
	*ret = h;
	return 0;
}

void worker_http_free(struct worker_http *h)
{
	if (!h)
		return;
	http_client_close(&h->client);
	explicit_bzero(h->token, sizeof(h->token));
	buf_done(&h->body);
	free(h);
}

void worker_http_admin_key(struct worker_http *h)
{
	h->admin_key = true;
}

void worker_http_socket(struct worker_http *h, const char *path)
{
	h->socket = path;
}

void worker_http_deadline(struct worker_http *h, uint64_t deadline_ns)
{
	h->deadline_ns = deadline_ns;
}

void worker_http_cancel(struct worker_http *h, const atomic_bool *cancelled)
{
	h->cancelled = cancelled;
}

void worker_http_until(struct worker_http *h, const char *text)
{
	h->until = text;
}

const char *worker_http_base(const struct worker_http *h)
{
	return h->socket || !h->worker->url ? "" : h->worker->url;
}

int worker_http_status(const struct worker_http *h)
{
	return h->status;
}

const char *worker_http_body(const struct worker_http *h, size_t *ret_len)
{
	*ret_len = h->body.len;
	return h->body.p;
}

static int read_token(struct worker_http *h, char *message, size_t size)
{
	const char *path = h->worker->token_file;

	if (!path || h->token_read)
		return 0;
	if (secret_read_for(path, "token_file", h->token, message, size) != 0)
		return -GW_E_PERM;
	h->token_read = true;
	return 0;
}

void worker_http_scrub(const struct worker_http *h, char *text)
{
	size_t n = strlen(h->token);

	for (char *found = text; n > 0 && (found = strstr(found, h->token)); found += n)
		memset(found, '*', n);
}

/* Refuses credentials in the url, because the url appears in messages. */
static int check_url(const char *url, char *message, size_t size)
{
	const char *host = !url                               ? NULL
			   : strncmp(url, "http://", 7) == 0  ? url + 7
			   : strncmp(url, "https://", 8) == 0 ? url + 8
							      : NULL;

	if (!host || !*host || *host == '/' || strpbrk(url, " \t\r\n")) {
		snprintf(message, size,
			 "url \"%s\" must be http:// or https:// and a host, without spaces",
			 url ? url : "");
		return -GW_E_ARG;
	}
	if (memchr(host, '@', strcspn(host, "/?#"))) {
		snprintf(message, size,
			 "url contains a user name or password; use token_file instead");
		return -GW_E_ARG;
	}
	return 0;
}

static int full_url(const struct worker_http *h, const char *path, char *out, size_t out_size,
		    char *message, size_t size)
{
	const char *base = h->socket ? "http://localhost" : h->worker->url;
	size_t n;
	int rc = check_url(base, message, size);

	if (rc)
		return rc;
	n = strlen(base);
	while (n > 0 && base[n - 1] == '/')
		n--;
	if ((size_t)snprintf(out, out_size, "%.*s%s", (int)n, base, path) < out_size)
		return 0;
	snprintf(message, size, "url is too long");
	return -GW_E_ARG;
}

int worker_http_do(struct worker_http *h, const char *method, const char *path,
		   const char *body, char *message, size_t size)
{
	const char *const headers[] = { "Accept: application/json",
					body ? "Content-Type: application/json" : NULL, NULL };
	const bool post = strcmp(method, "POST") == 0;
	char url[2048];
	struct http_request q = {
		.url = url,
		.socket = h->socket,
		.headers = headers,
		.login = h->admin_key ? HTTP_LOGIN_ADMIN_KEY : HTTP_LOGIN_BEARER,
		/* a container engine must not get the token */
		.secret = h->socket ? NULL : h->token,
		.body = body || !post ? body : "",
		.body_size = body ? strlen(body) : 0,
		.timeout_ns = clock_ms_until(clock_real(), h->deadline_ns) * NS_PER_MS,
		.connect_ns = CONNECT_NS,
		.until_text = h->until,
		.cancelled = h->cancelled,
	};
	struct http_result result;
	int rc = full_url(h, path, url, sizeof(url), message, size);

	h->status = 0;
	if (!rc)
		rc = read_token(h, message, size);
	if (rc)
		return rc;
	rc = http_client_send(&h->client, &q, &h->body, &result);
	h->status = result.status;
	if (rc == -GW_E_NOSUPPORT)
		snprintf(message, size, "%s", result.why);
	else if (rc)
		snprintf(message, size, "%s: %s %.*s: %s",
			 h->socket ? h->socket : h->worker->url, method,
			 (int)strcspn(path, "?"), path, result.why);
	return rc == -GW_E_SIZE ? -GW_E_IO : rc;
}
