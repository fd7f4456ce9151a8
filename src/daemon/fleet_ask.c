#include "fleet_ask.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "guard/worker/http.h"

#include <gpuward.h>

#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000
#define QUERY_MAX  (64 * 1024)
#define HEADER_MAX (SECRET_MAX + 64)

struct asker {
	const struct fleet_server *server;
	const atomic_bool *stop;
	uint64_t until_ns, timeout_ns;
	void *handle;
	struct curl_slist *headers;
	struct buf query, body, reply;
	char url[FLEET_URL_MAX + 32], error[CURL_ERROR_SIZE_];
};

static size_t asker_receive(char *p, size_t one, size_t n, void *arg)
{
	struct asker *a = arg;

	(void)one;
	buf_add(&a->reply, p, n);
	return a->reply.err ? 0 : n;
}

static int asker_check_stop(void *arg, int64_t down_all, int64_t down, int64_t up_all,
			    int64_t up)
{
	const struct asker *a = arg;

	(void)down_all;
	(void)down;
	(void)up_all;
	(void)up;
	return a->stop && atomic_load(a->stop);
}

/* Reads the token and makes the headers. Returns 0, or an error with a sentence. */
static int make_headers(struct asker *a, char *message, size_t size)
{
	char token[SECRET_MAX], line[HEADER_MAX];
	struct curl_slist *more;
	int err;

	a->headers = curl_library.slist_append(NULL, "Accept: application/json");
	more = a->headers ? curl_library.slist_append(a->headers, "Expect:") : NULL;
	if (more && *a->server->token_file) {
		err = secret_read_for(a->server->token_file, "the token file", token, message,
				      size);
		if (err)
			return err;
		token[strcspn(token, " \t")] = '\0';
		snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
		more = curl_library.slist_append(a->headers, line);
		explicit_bzero(line, sizeof(line));
		explicit_bzero(token, sizeof(token));
	}
	if (more)
		return 0;
	snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
	return -GW_E_NOMEM;
}

static int asker_open(struct asker *a, char *message, size_t size)
{
	const struct curl_callbacks x = { a->error, asker_receive, a, asker_check_stop, a };
	size_t n = strlen(a->server->url);
	int err = curl_prepare(&a->handle, &x, message, size);

	if (!err)
		err = make_headers(a, message, size);
	if (err)
		return err;
	while (n && a->server->url[n - 1] == '/')
		n--;
	snprintf(a->url, sizeof(a->url), "%.*s/api/v1/query", (int)n, a->server->url);
	curl_library.setopt(a->handle, CURL_URL, a->url);
	curl_library.setopt(a->handle, CURL_HTTPHEADER, a->headers);
	if (*a->server->ca_file)
		curl_library.setopt(a->handle, CURL_CAINFO, a->server->ca_file);
	return 0;
}

static void asker_close(struct asker *a)
{
	if (a->handle)
		curl_library.cleanup(a->handle);
	if (a->headers)
		curl_library.slist_free(a->headers);
	buf_done(&a->query);
	buf_done(&a->body);
	buf_done(&a->reply);
}

/* Writes why a request got no answer. */
static void describe_transport(const struct asker *a, int rc, char *out, size_t size)
{
	if (a->reply.err == -GW_E_SIZE)
		snprintf(out, size, "the answer is larger than %u MiB", FLEET_REPLY_MAX >> 20);
	else if (rc == CURL_TIMED_OUT)
		snprintf(out, size, "no answer within %.0f s", (double)a->timeout_ns / 1e9);
	else if (rc == CURL_ABORTED)
		snprintf(out, size, "the request was cancelled");
	else
		snprintf(out, size, "%s", *a->error ? a->error : curl_library.strerror(rc));
}

/* Writes why the server refused the query: the reason from its reply, and what to do. */
static void describe_status(const struct asker *a, long status, char *out, size_t size)
{
	char words[200];

	json_doc_error_text(a->reply.p, a->reply.len, words, sizeof(words));
	if (!*words)
		snprintf(words, sizeof(words), "Prometheus gives no reason");
	if (status == 401 || status == 403)
		snprintf(
			out, size, "refused with status %ld: %s: %s", status, words,
			*a->server->token_file
				? "check that the token in the token file is right and allows "
				  "queries"
				: "a token is needed; name its file with --token-file, or with "
				  "token_file in [fleet]");
	else if (status == 404)
		snprintf(out, size,
			 "status 404 at %s: the path is wrong; the address of Mimir, for "
			 "example, is http://HOST/prometheus",
			 a->url);
	else if (status >= 300 && status < 400)
		snprintf(out, size,
			 "status %ld: the address redirects to another one, perhaps to a login "
			 "page; use the address of Prometheus itself",
			 status);
	else
		snprintf(out, size, "status %ld: %s", status, words);
}

enum asker_outcome {
	ASKER_GO_ON,
	ASKER_STOP, /* Further queries would fail for the same reason. */
};

static enum asker_outcome asker_query(struct asker *a, struct fleet *f, enum fleet_query q,
				      char *problem, size_t size)
{
	const struct curl_library *c = &curl_library;
	uint64_t now_ns = clock_mono_ns(clock_real()), left_ns;
	long status = 0;
	int rc;

	if (now_ns + NS_PER_MS >= a->until_ns) {
		snprintf(problem, size,
			 "not sent, because the earlier queries took all %.0f s; set a longer "
			 "--deadline",
			 (double)a->timeout_ns / 1e9);
		return ASKER_STOP;
	}
	left_ns = a->until_ns - now_ns;
	buf_clear(&a->query);
	buf_clear(&a->body);
	buf_clear(&a->reply);
	fleet_query_write(&a->query, q, &f->question);
	buf_adds(&a->body, "query=");
	url_escape(&a->body, a->query.p);
	buf_addf(&a->body, "&timeout=%llus",
		 (unsigned long long)((left_ns + NS_PER_S - 1) / NS_PER_S));
	if (a->query.err || a->body.err) {
		snprintf(problem, size,
			 "the query is too long: use shorter expressions for --job and "
			 "--node");
		return ASKER_STOP;
	}
	a->error[0] = '\0';
	c->setopt(a->handle, CURL_TIMEOUT_MS, (long)(left_ns / NS_PER_MS));
	c->setopt(a->handle, CURL_CONNECT_MS, (long)CONNECT_MS);
	c->setopt(a->handle, CURL_POST, 1L);
	c->setopt(a->handle, CURL_POSTFIELDSIZE, (long)a->body.len);
	c->setopt(a->handle, CURL_POSTFIELDS, a->body.p);
	rc = c->perform(a->handle);
	if (rc) {
		describe_transport(a, rc, problem, size);
		return a->reply.err ? ASKER_GO_ON : ASKER_STOP;
	}
	c->getinfo(a->handle, CURL_RESPONSE_CODE, &status);
	if (status == 200) {
		fleet_take(f, q, a->reply.p, a->reply.len);
		snprintf(problem, size, "%s", f->answer[q].problem);
		return ASKER_GO_ON;
	}
	describe_status(a, status, problem, size);
	return status < 500 && status != 400 && status != 422 && status != 429 ? ASKER_STOP
									       : ASKER_GO_ON;
}

int fleet_ask(const struct fleet_server *s, const struct fleet_question *x, uint64_t timeout_ns,
	      const atomic_bool *stop, struct fleet **ret)
{
	struct asker a = { .server = s,
			   .stop = stop,
			   .timeout_ns = timeout_ns,
			   .until_ns = clock_mono_ns(clock_real()) + timeout_ns };
	struct fleet *f = fleet_new(s->url, x);
	uint64_t wall_ns = clock_wall_ns(clock_real());
	enum asker_outcome outcome = ASKER_GO_ON;
	char problem[600] = "";
	int err;

	if (!f)
		return -GW_E_NOMEM;
	buf_init(&a.query, QUERY_MAX);
	buf_init(&a.body, 3 * QUERY_MAX);
	buf_init(&a.reply, FLEET_REPLY_MAX);
	if (asker_open(&a, problem, sizeof(problem)) != 0)
		outcome = ASKER_STOP;
	for (unsigned q = 0; q < FLEET_QUERIES; q++) {
		if (outcome == ASKER_GO_ON)
			outcome = asker_query(&a, f, q, problem, sizeof(problem));
		if (!f->answer[q].doc)
			fleet_fail(f, q, problem);
	}
	asker_close(&a);
	err = fleet_make(f, wall_ns);
	if (err)
		fleet_free(f);
	else
		*ret = f;
	return err;
}
