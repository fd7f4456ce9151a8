#include "guard/worker/http.h"

#include "base/clock.h"
#include "base/file.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loaded once and never unloaded, because curl_global_init() must run exactly once, before
 * every other call. */
struct curl_library curl_library;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_load_once(void)
{
	struct curl_library *c = &curl_library;
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(c->why, sizeof(c->why),
			 "libcurl.so.4 is needed for HTTP requests: install libcurl4");
		return;
	}
#define LOOK_UP(type, name, symbol, args) \
	p = dlsym(library, symbol);       \
	memcpy(&c->name, &p, sizeof(p));  \
	if (!p)                           \
		snprintf(c->why, sizeof(c->why), "this libcurl.so.4 has no %s", symbol);
	CURL_CALLS(LOOK_UP)
#undef LOOK_UP
	if (!c->why[0] && c->global_init(CURL_GLOBAL_EVERYTHING) != 0)
		snprintf(c->why, sizeof(c->why), "libcurl.so.4 cannot be initialised");
}

/* Loads libcurl.so.4 at the first call; several threads may call this function. Returns 0, or
 * -GW_E_NOSUPPORT with a sentence. */
static int curl_load(char *message, size_t size)
{
	pthread_once(&curl_once, curl_load_once);
	if (!curl_library.why[0])
		return 0;
	snprintf(message, size, "%s", curl_library.why);
	return -GW_E_NOSUPPORT;
}

int curl_prepare(void **handle, const struct curl_callbacks *x, char *message, size_t size)
{
	const struct curl_library *c = &curl_library;

	if (curl_load(message, size) != 0)
		return -GW_E_NOSUPPORT;
	if (!*handle)
		*handle = c->easy_init();
	if (!*handle) {
		snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	c->setopt(*handle, CURL_NOSIGNAL, 1L);
	c->setopt(*handle, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
	c->setopt(*handle, CURL_PROXY, "");
	c->setopt(*handle, CURL_USERAGENT, "gpuward/" GPUWARD_VERSION);
	c->setopt(*handle, CURL_ERRORBUFFER, x->error);
	c->setopt(*handle, CURL_WRITEFUNCTION, x->receive);
	c->setopt(*handle, CURL_WRITEDATA, x->receive_arg);
	c->setopt(*handle, CURL_XFERINFOFUNCTION, x->check);
	c->setopt(*handle, CURL_XFERINFODATA, x->check_arg);
	c->setopt(*handle, CURL_NOPROGRESS, x->check ? 0L : 1L);
	return 0;
}

/* Time limit for connecting. It is shorter than the limit for an answer, because a server that
 * does not accept a connection will not answer, but a busy server may answer late. */
#define CONNECT_MS 3000

struct worker_http {
	const struct policy_worker *worker;
	uint64_t deadline_ns;
	const char *socket;
	bool admin_key, token_read;
	const atomic_bool *cancelled;
	const char *until; /* text of worker_http_until(); NULL: none */
	bool complete;     /* the answer contains the text `until` */
	char token[SECRET_MAX];
	void *handle;
	struct buf body;
	int status;
	char error[CURL_ERROR_SIZE_];
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
	if (h->handle)
		curl_library.cleanup(h->handle);
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
	char *found;

	if (n == 0)
		return;
	while ((found = strstr(text, h->token)))
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
		snprintf(message, size, "url \"%s\" must begin with http:// or https://",
			 url ? url : "");
		return -GW_E_ARG;
	}
	if (memchr(host, '@', strcspn(host, "/?#"))) {
		snprintf(message, size, "url contains a password; use token_file instead");
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

static size_t receive_body(char *p, size_t one, size_t n, void *ctx)
{
	struct worker_http *h = ctx;

	(void)one;
	buf_add(&h->body, p, n);
	h->complete = h->until && !h->body.err && h->body.len > 2 &&
		      strcmp(h->body.p + h->body.len - 2, "\n\n") == 0 &&
		      strstr(h->body.p, h->until);
	return h->body.err || h->complete ? 0 : n;
}

/* Returns the headers of a request; NULL: out of memory. */
static struct curl_slist *request_headers(const struct worker_http *h, const char *body)
{
	struct curl_slist *list = curl_library.slist_append(NULL, "Accept: application/json");
	struct curl_slist *more = list;
	char line[sizeof(h->token) + 32];

	if (list && body)
		more = curl_library.slist_append(list, "Content-Type: application/json");
	if (more && h->token[0] && !h->socket) { /* a container engine must not get the token */
		snprintf(line, sizeof(line), "%s%s",
			 h->admin_key ? "x-admin-key: " : "Authorization: Bearer ", h->token);
		more = curl_library.slist_append(list, line);
		explicit_bzero(line, sizeof(line));
	}
	if (!more && list)
		curl_library.slist_free(list);
	return more ? list : NULL;
}

/* libcurl calls this function about once per second. The result 1 ends the request. */
static int check_cancelled(void *ctx, int64_t down_all, int64_t down, int64_t up_all,
			   int64_t up)
{
	const struct worker_http *h = ctx;

	(void)down_all;
	(void)down;
	(void)up_all;
	(void)up;
	return atomic_load(h->cancelled);
}

static void set_method(struct worker_http *h, const char *method, const char *body)
{
	if (strcmp(method, "GET") == 0) {
		curl_library.setopt(h->handle, CURL_HTTPGET, 1L);
		return;
	}
	curl_library.setopt(h->handle, CURL_POST, 1L);
	curl_library.setopt(h->handle, CURL_POSTFIELDSIZE, (long)(body ? strlen(body) : 0));
	curl_library.setopt(h->handle, CURL_POSTFIELDS, body ? body : "");
}

static int transport_failed(const struct worker_http *h, int code, const char *what,
			    char *message, size_t size)
{
	const char *where = h->socket ? h->socket : h->worker->url;

	if (h->body.err == -GW_E_SIZE)
		snprintf(message, size, "%s: the answer to %s is longer than 1 MiB", where,
			 what);
	else if (code == CURL_TIMED_OUT)
		snprintf(message, size, "%s: %s: no answer in time", where, what);
	else
		snprintf(message, size, "%s: %s: %s", where, what,
			 h->error[0] ? h->error : curl_library.strerror(code));
	switch (code) {
	case CURL_TIMED_OUT: return -GW_E_TIMEOUT;
	case CURL_UNSUPPORTED:
	case CURL_MALFORMED: return -GW_E_ARG;
	case CURL_NO_MEMORY: return -GW_E_NOMEM;
	default: return -GW_E_IO;
	}
}

static int open_handle(struct worker_http *h, char *message, size_t size)
{
	const struct curl_callbacks x = { h->error, receive_body, h,
					  h->cancelled ? check_cancelled : NULL, h };
	int err = curl_prepare(&h->handle, &x, message, size);

	if (err)
		return err;
	curl_library.setopt(h->handle, CURL_UNIX_SOCKET, h->socket);
	return read_token(h, message, size);
}

int worker_http_do(struct worker_http *h, const char *method, const char *path,
		   const char *body, char *message, size_t size)
{
	char url[2048], what[160];
	struct curl_slist *list;
	long status = 0, ms = (long)clock_ms_until(clock_real(), h->deadline_ns);
	int rc = full_url(h, path, url, sizeof(url), message, size);

	snprintf(what, sizeof(what), "%s %.*s", method, (int)strcspn(path, "?"), path);
	if (!rc)
		rc = open_handle(h, message, size);
	if (rc)
		return rc;
	buf_clear(&h->body);
	h->error[0] = '\0';
	h->status = 0;
	h->complete = false;
	if (ms == 0)
		return transport_failed(h, CURL_TIMED_OUT, what, message, size);
	list = request_headers(h, body);
	if (!list)
		return -GW_E_NOMEM;
	curl_library.setopt(h->handle, CURL_URL, url);
	curl_library.setopt(h->handle, CURL_HTTPHEADER, list);
	curl_library.setopt(h->handle, CURL_TIMEOUT_MS, ms);
	curl_library.setopt(h->handle, CURL_CONNECT_MS,
			    ms < CONNECT_MS ? ms : (long)CONNECT_MS);
	set_method(h, method, body);
	rc = curl_library.perform(h->handle);
	curl_library.setopt(h->handle, CURL_HTTPHEADER, (struct curl_slist *)NULL);
	curl_library.slist_free(list);
	if (rc && !h->complete)
		return transport_failed(h, rc, what, message, size);
	curl_library.getinfo(h->handle, CURL_RESPONSE_CODE, &status);
	h->status = (int)status;
	return 0;
}
