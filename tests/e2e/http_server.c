/* A small server that uses src/serve/http.c, for tests of the HTTP layer itself.
 *
 *   http_server KEY=VALUE...   listen=, token=, cert=, key=, hosts=, origins=, insecure=1,
 *                              connections=, streams=, header_ms=, body_ms=, idle_ms=,
 *                              beat_ms=,
 *                              tick_ms= (0: never), size= of /tick, fd= of a socket to take
 *                              over,
 *                              log=1 (a line for each answer)
 *
 * Prints one line per address, then serves until SIGTERM; on SIGHUP the token is read again. */
#include "base/clock.h"
#include "base/loop.h"
#include "serve/http.h"
#include "serve/stream.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct server {
	struct loop *loop;
	struct http *http;
	struct stream *stream;
	struct loop_source *timer;
	struct http_config config;
	uint64_t tick_ns, ticks;
	size_t size;
};

static void answer_tick(void *arg, const struct request *q, struct reply *r)
{
	struct server *s = arg;

	(void)q;
	buf_addf(&r->body, "{\"tick\":%llu,\"pad\":\"", (unsigned long long)s->ticks);
	while (r->body.len + 3 < s->size)
		buf_addc(&r->body, (char)('a' + r->body.len % 26));
	buf_adds(&r->body, "\"}\n");
}

static void answer_alive(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	(void)q;
	r->type = "text/plain; charset=utf-8";
	buf_adds(&r->body, "ok\n");
}

static void answer_page(void *arg, const struct request *q, struct reply *r)
{
	static const char page[] = "<!doctype html><title>page</title>\n";

	(void)arg;
	(void)q;
	reply_static(r, "text/html; charset=utf-8", page, sizeof(page) - 1, NULL, 0);
}

static void answer_text(void *arg, const struct request *q, struct reply *r)
{
	const char *accept = request_header(q, "Accept");

	(void)arg;
	r->type = accept && strstr(accept, "openmetrics")
			  ? "application/openmetrics-text; version=1.0.0"
			  : "text/plain; version=0.0.4";
	buf_addf(&r->body, "# %s\n", r->type);
}

/* Writes a body that is large enough to be sent without copying, and to be still on its way to
 * a slow reader at the next tick. */
static void answer_large(void *arg, const struct request *q, struct reply *r)
{
	const struct server *s = arg;

	(void)q;
	r->type = "text/plain";
	for (unsigned i = 0; i < 400000; i++)
		buf_addf(&r->body, "%06u\n", i);
	buf_addf(&r->body, "tick %" PRIu64 "\n", s->ticks);
}

static void answer_echo(void *arg, const struct request *q, struct reply *r)
{
	const char *x = request_param(q, "x");

	(void)arg;
	buf_addf(&r->body,
		 "{\"path\":\"%s\",\"a\":\"%s\",\"b\":\"%s\",\"x\":\"%s\",\"size\":%zu,\"uid\":"
		 "%lld,\"who\":"
		 "\"%s\"}\n",
		 q->path, q->arg[0] ? q->arg[0] : "", q->arg[1] ? q->arg[1] : "",
		 x ? x : "(none)", q->size, (long long)q->uid, q->who);
}

static void answer_later(void *arg, const struct request *q, struct reply *r)
{
	const char *tries = request_param(q, "tries");
	char *text = *q->memory;

	(void)arg;
	if (!text)
		text = *q->memory = strdup("kept");
	if (q->tries < (tries ? (unsigned)atoi(tries) : 3)) {
		reply_again(r, clock_mono_ns(clock_real()) + 20 * NS_PER_MS);
		return;
	}
	buf_addf(&r->body, "{\"tries\":%u,\"memory\":\"%s\"}\n", q->tries, text);
}

static void answer_problem(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_problem(r, atoi(q->arg[0]), "test", "Do \"something\" else.", "It is %s.",
		      q->arg[0]);
}

static void answer_events(void *arg, const struct request *q, struct reply *r)
{
	const char *last = request_header(q, "Last-Event-ID");
	struct server *s = arg;

	reply_stream(r, s->stream, last ? strtoull(last, NULL, 10) : UINT64_MAX,
		     STREAM_TICK | STREAM_EVENT);
}

static void answer_push(void *arg, const struct request *q, struct reply *r)
{
	const char *id = request_param(q, "id");
	struct server *s = arg;
	struct http_counts c;

	http_counts(s->http, &c);
	stream_push(s->stream, STREAM_EVENT, "event", id ? strtoull(id, NULL, 10) : 1, q->body,
		    q->size);
	r->status = 202;
	buf_addf(&r->body, "{\"followers\":%u}\n", c.streams);
}

static void answer_counts(void *arg, const struct request *q, struct reply *r)
{
	struct server *s = arg;
	struct http_counts c;

	(void)q;
	http_counts(s->http, &c);
	buf_addf(&r->body,
		 "{\"4xx\":%llu,\"5xx\":%llu,\"accepted\":%llu,\"refused\":%llu,\"timeouts\":%"
		 "llu,\"connections\":%u,"
		 "\"streams\":%u,\"torn\":%llu,\"wakeups\":%llu}\n",
		 (unsigned long long)c.requests[4], (unsigned long long)c.requests[5],
		 (unsigned long long)c.accepted, (unsigned long long)c.refused,
		 (unsigned long long)c.timeouts, c.connections, c.streams,
		 (unsigned long long)c.requests[0], (unsigned long long)loop_wakeups(s->loop));
}

static const struct route routes[] = {
	{ HTTP_GET, "/tick", answer_tick, ROUTE_TICK },
	{ HTTP_GET, "/alive", answer_alive, ROUTE_ALIVE },
	{ HTTP_GET, "/", answer_page, ROUTE_STATIC },
	{ HTTP_GET, "/large", answer_large, ROUTE_TICK },
	{ HTTP_GET, "/text", answer_text, ROUTE_TICK | ROUTE_TEXT },
	{ HTTP_GET, "/echo/{a}", answer_echo, 0 },
	{ HTTP_GET, "/echo/{a}/and/{b}", answer_echo, 0 },
	{ HTTP_GET, "/rest/*", answer_echo, 0 },
	{ HTTP_POST, "/change", answer_echo, ROUTE_CHANGE },
	{ HTTP_PUT, "/change", answer_echo, ROUTE_CHANGE },
	{ HTTP_POST, "/open", answer_echo, 0 },
	{ HTTP_POST, "/push", answer_push, 0 },
	{ HTTP_GET, "/later", answer_later, 0 },
	{ HTTP_GET, "/problem/{status}", answer_problem, 0 },
	{ HTTP_GET, "/events", answer_events, 0 },
	{ HTTP_GET, "/counts", answer_counts, ROUTE_ALIVE },
};

static void log_answer(void *arg, const struct request *q, const struct reply *r,
		       double seconds)
{
	(void)arg;
	printf("log: %d %s %s %s %zu %s\n", r->status, q->path, q->who,
	       request_header(q, "User-Agent") ? "agent" : "-", r->body.len,
	       seconds >= 0 && seconds < 60 ? "ok" : "odd");
	fflush(stdout);
}

static void on_tick(void *arg, uint64_t now_ns)
{
	struct server *s = arg;
	char json[64];
	int n = snprintf(json, sizeof(json), "{\"tick\":%llu}", (unsigned long long)++s->ticks);

	http_tick(s->http);
	stream_push(s->stream, STREAM_TICK, "tick", 0, json, (size_t)n);
	loop_set_time(s->timer, now_ns + s->tick_ns);
}

static void on_signal(void *arg, int signal)
{
	struct server *s = arg;
	char message[512];

	/* If the token file was deleted, behave as if the setting was removed, too. */
	if (s->config.token_file && access(s->config.token_file, F_OK) != 0)
		s->config.token_file = NULL;
	if (signal == SIGHUP)
		printf("reload: %d %s\n",
		       http_reload(s->http, &s->config, message, sizeof(message)), message);
	else
		loop_stop(s->loop);
	fflush(stdout);
}

static const char *option(char **argv, const char *name, const char *standard)
{
	size_t n = strlen(name);

	for (; *argv; argv++)
		if (strncmp(*argv, name, n) == 0 && (*argv)[n] == '=')
			return *argv + n + 1;
	return standard;
}

static uint64_t ms(char **argv, const char *name, const char *standard)
{
	return (uint64_t)atoll(option(argv, name, standard)) * NS_PER_MS;
}

/* Splits "a,b,c" into a list that ends with NULL. */
static const char *const *list(char *text, const char **out, unsigned max)
{
	unsigned n = 0;

	for (char *rest = NULL, *p = strtok_r(text, ",", &rest); p && n < max;
	     p = strtok_r(NULL, ",", &rest))
		out[n++] = p;
	out[n] = NULL;
	return out;
}

int main(int argc, char **argv)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, 0 };
	const char *listen[9], *hosts[9], *origins[9];
	struct http_listener listener[8];
	struct loop_source *source;
	struct server s = { 0 };
	int status = 0;
	char message[512], *texts[3];

	(void)argc;
	s.tick_ns = ms(argv, "tick_ms", "1000");
	s.size = (size_t)atoll(option(argv, "size", "1024"));
	s.config = (struct http_config){
		.listener = listener,
		.token_file = option(argv, "token", NULL),
		.tls_cert = option(argv, "cert", NULL),
		.tls_key = option(argv, "key", NULL),
		.insecure = option(argv, "insecure", NULL) != NULL,
		.connections = (unsigned)atoi(option(argv, "connections", "2048")),
		.streams = (unsigned)atoi(option(argv, "streams", "1024")),
		.header_ns = ms(argv, "header_ms", "10000"),
		.body_ns = ms(argv, "body_ms", "30000"),
		.idle_ns = ms(argv, "idle_ms", "75000"),
		.beat_ns = ms(argv, "beat_ms", "0"),
		.unix_mode = 0660,
		.route = routes,
		.routes = sizeof(routes) / sizeof(routes[0]),
		.arg = &s,
		.log = option(argv, "log", NULL) ? log_answer : NULL,
	};
	list(texts[0] = strdup(option(argv, "listen", "127.0.0.1:0")), listen, 8);
	for (; listen[s.config.listeners]; s.config.listeners++)
		listener[s.config.listeners] =
			(struct http_listener){ listen[s.config.listeners],
						atoi(option(argv, "fd", "-1")) };
	s.config.hosts = list(texts[1] = strdup(option(argv, "hosts", "")), hosts, 8);
	s.config.origins = list(texts[2] = strdup(option(argv, "origins", "")), origins, 8);
	signal(SIGPIPE, SIG_IGN);
	if (loop_new(&s.loop) != 0 ||
	    loop_add_signals(s.loop, signals, on_signal, &s, &source) != 0 ||
	    loop_add_timer(s.loop, on_tick, &s, &s.timer) != 0 ||
	    stream_new(65536, &s.stream) != 0)
		return 1;
	if (http_new(s.loop, &s.config, &s.http, message, sizeof(message)) != 0) {
		printf("refused: %s\n", message);
		status = 2;
	}
	for (unsigned i = 0; status == 0 && http_address(s.http, i); i++)
		printf("%s\n", http_address(s.http, i));
	printf("ready\n");
	fflush(stdout);
	if (status == 0 && s.tick_ns)
		loop_set_time(s.timer, 1);
	if (status == 0)
		loop_run(s.loop);
	http_free(s.http);
	stream_free(s.stream);
	loop_remove(source);
	loop_remove(s.timer);
	loop_free(s.loop);
	for (unsigned i = 0; i < 3; i++)
		free(texts[i]);
	return status;
}
