#include "fleet_ask.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/http_client.h"
#include "base/http_message.h"
#include "base/json_doc.h"

#include <gpuward.h>

#include <stdio.h>
#include <string.h>

#define CONNECT_NS (5 * NS_PER_S)
#define QUERY_MAX  (64 * 1024)

struct asker {
	const struct fleet_server *server;
	const atomic_bool *stop;
	uint64_t until_ns, timeout_ns;
	struct http_client client;
	struct buf query, body, reply;
	char url[FLEET_URL_MAX + 32], token[SECRET_MAX];
};

/* Makes the url and reads the token. Returns 0, or an error; then message has a sentence. */
static int asker_open(struct asker *a, char *message, size_t size)
{
	size_t n = strlen(a->server->url);
	int err = 0;

	while (n && a->server->url[n - 1] == '/')
		n--;
	snprintf(a->url, sizeof(a->url), "%.*s/api/v1/query", (int)n, a->server->url);
	if (*a->server->token_file)
		err = secret_read_for(a->server->token_file, "the token file", a->token,
				      message, size);
	a->token[strcspn(a->token, " \t")] = '\0';
	return err;
}

static void asker_close(struct asker *a)
{
	http_client_close(&a->client);
	explicit_bzero(a->token, sizeof(a->token));
	buf_done(&a->query);
	buf_done(&a->body);
	buf_done(&a->reply);
}

/* Writes why the server refused the query: the reason from its reply, and what to do. */
static void describe_status(const struct asker *a, int status, char *out, size_t size)
{
	char words[200];

	json_doc_error_text(a->reply.p, a->reply.len, words, sizeof(words));
	if (!*words)
		snprintf(words, sizeof(words), "Prometheus gives no reason");
	if (status == 401 || status == 403)
		snprintf(
			out, size, "refused with status %d: %s: %s", status, words,
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
			 "status %d: the address redirects to another one, perhaps to a login "
			 "page; use the address of Prometheus itself",
			 status);
	else
		snprintf(out, size, "status %d: %s", status, words);
}

enum asker_outcome {
	ASKER_GO_ON,
	ASKER_STOP, /* Further queries would fail for the same reason. */
};

static enum asker_outcome asker_query(struct asker *a, struct fleet *f, enum fleet_query q,
				      char *problem, size_t size)
{
	static const char *const headers[] = { "Accept: application/json", NULL };
	uint64_t now_ns = clock_mono_ns(clock_real()), left_ns;
	struct http_request request;
	struct http_result result;
	int err;

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
	request = (struct http_request){ .url = a->url,
					 .ca_file = a->server->ca_file,
					 .headers = headers,
					 .secret = a->token,
					 .body = a->body.p,
					 .body_size = a->body.len,
					 .timeout_ns = left_ns,
					 .connect_ns = CONNECT_NS,
					 .cancelled = a->stop };
	err = http_client_send(&a->client, &request, &a->reply, &result);
	if (err == -GW_E_TIMEOUT)
		snprintf(problem, size, "no answer within %.0f s", (double)a->timeout_ns / 1e9);
	else if (err)
		snprintf(problem, size, "%s", result.why);
	if (err)
		return a->reply.err ? ASKER_GO_ON : ASKER_STOP;
	if (result.status == 200) {
		fleet_take(f, q, a->reply.p, a->reply.len);
		snprintf(problem, size, "%s", f->answer[q].problem);
		return ASKER_GO_ON;
	}
	describe_status(a, result.status, problem, size);
	return result.status < 500 && result.status != 400 && result.status != 422 &&
			       result.status != 429
		       ? ASKER_STOP
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
