#include "base/http_client.h"

#include "base/clock.h"
#include "base/curl_abi.h"
#include "base/file.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
	C(void, reset, "curl_easy_reset", (void *handle))                           \
	C(int, setopt, "curl_easy_setopt", (void *handle, int option, ...))         \
	C(int, getinfo, "curl_easy_getinfo", (void *handle, int info, ...))         \
	C(int, perform, "curl_easy_perform", (void *handle))                        \
	C(void, cleanup, "curl_easy_cleanup", (void *handle))                       \
	C(const char *, strerror, "curl_easy_strerror", (int code))                 \
	C(struct curl_slist *, slist_append, "curl_slist_append",                   \
	  (struct curl_slist *list, const char *text))                              \
	C(void, slist_free, "curl_slist_free_all", (struct curl_slist *list))
/* clang-format on */

/* Loaded once and never unloaded, because curl_global_init() must run exactly once, before
 * every other call. */
static struct {
#define POINTER(type, name, symbol, args) type(*name) args;
	CURL_CALLS(POINTER)
#undef POINTER
	char why[200]; /* why libcurl cannot be used; "": it can be used */
} curl;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_load(void)
{
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(curl.why, sizeof(curl.why),
			 "libcurl.so.4 is needed for HTTP requests: install libcurl4");
		return;
	}
#define LOOK_UP(type, name, symbol, args)  \
	p = dlsym(library, symbol);        \
	memcpy(&curl.name, &p, sizeof(p)); \
	if (!p)                            \
		snprintf(curl.why, sizeof(curl.why), "this libcurl.so.4 has no %s", symbol);
	CURL_CALLS(LOOK_UP)
#undef LOOK_UP
	if (!curl.why[0] && curl.global_init(CURL_GLOBAL_EVERYTHING) != 0)
		snprintf(curl.why, sizeof(curl.why), "libcurl.so.4 cannot be initialised");
}

/* What the callbacks of libcurl need. */
struct http_transfer {
	const struct http_request *request;
	struct buf *answer;
	bool complete; /* the answer contains until_text */
};

static size_t http_receive(char *p, size_t one, size_t n, void *arg)
{
	struct http_transfer *t = arg;
	const struct http_request *q = t->request;
	struct buf *b = t->answer;
	size_t room = b->max - 1 - b->len;

	(void)one;
	buf_add(b, p, q->first_bytes && n > room ? room : n);
	t->complete = q->until_text && !b->err && b->len > 2 &&
		      strcmp(b->p + b->len - 2, "\n\n") == 0 && strstr(b->p, q->until_text);
	return b->err || t->complete ? 0 : n;
}

/* libcurl calls this function about once per second. The result 1 ends the request. */
static int http_check(void *arg, int64_t down_all, int64_t down, int64_t up_all, int64_t up)
{
	const struct http_request *q = ((const struct http_transfer *)arg)->request;

	(void)down_all;
	(void)down;
	(void)up_all;
	(void)up;
	return (q->cancelled && atomic_load(q->cancelled)) ||
	       (q->until_ns && clock_mono_ns(clock_real()) >= atomic_load(q->until_ns));
}

/* Adds a header. Returns false if there is no memory. */
static bool http_add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *more = curl.slist_append(*list, line);

	if (more)
		*list = more;
	return more;
}

/* Makes the headers of a request. Returns false if there is no memory. */
static bool http_make_headers(const struct http_request *q, struct curl_slist **list)
{
	/* With this header, libcurl does not wait for "100 Continue" before it sends the
	 * body. */
	bool good = http_add_header(list, "Expect:");
	char line[SECRET_MAX + 32];

	for (const char *const *h = q->headers; good && h && *h; h++)
		good = http_add_header(list, *h);
	if (good && q->secret && *q->secret && q->login != HTTP_LOGIN_BASIC) {
		snprintf(line, sizeof(line), "%s%s",
			 q->login == HTTP_LOGIN_ADMIN_KEY ? "x-admin-key: "
							  : "Authorization: Bearer ",
			 q->secret);
		good = http_add_header(list, line);
		explicit_bzero(line, sizeof(line));
	}
	return good;
}

static void http_set_options(struct http_client *c, const struct http_request *q,
			     struct http_transfer *t, struct curl_slist *headers)
{
	uint64_t connect_ns =
		q->connect_ns && q->connect_ns < q->timeout_ns ? q->connect_ns : q->timeout_ns;

	curl.reset(c->handle);
	curl.setopt(c->handle, CURL_NOSIGNAL, 1L);
	curl.setopt(c->handle, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
	curl.setopt(c->handle, CURL_PROXY, "");
	curl.setopt(c->handle, CURL_USERAGENT, "gpuward/" GPUWARD_VERSION);
	curl.setopt(c->handle, CURL_ERRORBUFFER, c->error);
	curl.setopt(c->handle, CURL_WRITEFUNCTION, http_receive);
	curl.setopt(c->handle, CURL_WRITEDATA, t);
	curl.setopt(c->handle, CURL_XFERINFOFUNCTION, http_check);
	curl.setopt(c->handle, CURL_XFERINFODATA, t);
	curl.setopt(c->handle, CURL_NOPROGRESS, q->cancelled || q->until_ns ? 0L : 1L);
	curl.setopt(c->handle, CURL_URL, q->url);
	curl.setopt(c->handle, CURL_UNIX_SOCKET, q->socket);
	curl.setopt(c->handle, CURL_HTTPHEADER, headers);
	curl.setopt(c->handle, CURL_TIMEOUT_MS, (long)(q->timeout_ns / NS_PER_MS));
	curl.setopt(c->handle, CURL_CONNECT_MS, (long)(connect_ns / NS_PER_MS));
	if (q->ca_file && *q->ca_file)
		curl.setopt(c->handle, CURL_CAINFO, q->ca_file);
	if (q->login == HTTP_LOGIN_BASIC && q->secret) {
		curl.setopt(c->handle, CURL_USERNAME, q->user);
		curl.setopt(c->handle, CURL_PASSWORD, q->secret);
	}
	if (!q->body)
		return;
	curl.setopt(c->handle, CURL_POST, 1L);
	curl.setopt(c->handle, CURL_POSTFIELDSIZE, (long)q->body_size);
	curl.setopt(c->handle, CURL_POSTFIELDS, q->body);
}

/* Writes why there is no answer. Returns the error for libcurl's code. */
static int http_failed(const struct http_client *c, int code, const struct buf *answer,
		       char *why, size_t size)
{
	int err = answer->err                                          ? answer->err
		  : code == CURL_TIMED_OUT                             ? -GW_E_TIMEOUT
		  : code == CURL_NO_MEMORY                             ? -GW_E_NOMEM
		  : code == CURL_UNSUPPORTED || code == CURL_MALFORMED ? -GW_E_ARG
								       : -GW_E_IO;

	if (err == -GW_E_SIZE)
		snprintf(why, size, "the answer is longer than %zu MiB", answer->max >> 20);
	else if (err == -GW_E_NOMEM)
		snprintf(why, size, "%s", gw_strerror(err));
	else if (err == -GW_E_TIMEOUT)
		snprintf(why, size, "no answer in time");
	else if (code == CURL_ABORTED)
		snprintf(why, size, "the request was cancelled");
	else
		snprintf(why, size, "%s", *c->error ? c->error : curl.strerror(code));
	return err;
}

int http_client_send(struct http_client *c, const struct http_request *q, struct buf *answer,
		     struct http_result *ret)
{
	struct http_transfer t = { q, answer, false };
	struct curl_slist *headers = NULL;
	struct stat file;
	int64_t after = 0;
	long status = 0;
	int code = CURL_NO_MEMORY;

	*ret = (struct http_result){ .status = 0 };
	buf_clear(answer);
	c->error[0] = '\0';
	pthread_once(&curl_once, curl_load);
	if (curl.why[0]) {
		snprintf(ret->why, sizeof(ret->why), "%s", curl.why);
		return -GW_E_NOSUPPORT;
	}
	if (q->ca_file && stat(q->ca_file, &file) == 0 && !S_ISREG(file.st_mode)) {
		/* libcurl would wait for ever at a FIFO, without regard to the time limit */
		snprintf(ret->why, sizeof(ret->why), "%.200s is not a regular file",
			 q->ca_file);
		return -GW_E_ARG;
	}
	if (!c->handle)
		c->handle = curl.easy_init();
	if (c->handle && http_make_headers(q, &headers)) {
		http_set_options(c, q, &t, headers);
		/* libcurl takes a time limit of 0 as no limit. */
		code = q->timeout_ns < NS_PER_MS ? CURL_TIMED_OUT : curl.perform(c->handle);
		curl.setopt(c->handle, CURL_HTTPHEADER, (struct curl_slist *)NULL);
	}
	curl.slist_free(headers);
	if (code && !t.complete)
		return http_failed(c, code, answer, ret->why, sizeof(ret->why));
	curl.getinfo(c->handle, CURL_RESPONSE_CODE, &status);
	ret->status = (int)status;
	if (curl.getinfo(c->handle, CURL_RETRY_AFTER, &after) == 0 && after > 0)
		ret->retry_after_s = (uint64_t)after;
	return 0;
}

void http_client_close(struct http_client *c)
{
	if (c->handle)
		curl.cleanup(c->handle);
	c->handle = NULL;
}
