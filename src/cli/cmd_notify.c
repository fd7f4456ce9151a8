/* notify: shows on the desktop what the guard did: a worker left the GPU, came back, or did not
 * leave.
 *
 * It follows the event stream of the service.  A message of the stream only says that something
 * is new; the decisions come from GET /api/v1/guard, as data. */
#include "cli.h"
#include "output.h"
#include "client.h"
#include "desktop_notification.h"
#include "remote.h"

#include "base/clock.h"
#include "base/http_message.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOLD_NS      (7200 * NS_PER_S)
#define CONNECT_NS   (5 * NS_PER_S)
#define RETRY_NS     NS_PER_S
#define RETRY_MAX_NS (30 * NS_PER_S)
#define DECISIONS    "/api/v1/guard?limit=128"

struct given {
	struct remote_flags remote;
	uint64_t hold_ns;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(DURATION, 0, "hold", AT(hold_ns), "TIME",
		   "how long the button keeps a worker off its GPU (default: 2h)"),
	REMOTE_OPTIONS(remote),
	OPTION_END,
};

struct notifier {
	struct remote remote;
	struct desktop *desktop; /* NULL: not connected */
	int stream;              /* socket of the event stream; -1: not connected */
	/* how many bytes of "\ndata:" match the end of what was read so far */
	unsigned matched;
	/* retry_ns: when to connect again; 0: immediately */
	uint64_t hold_ns, retry_ns, wait_ns;
	int64_t last; /* id of the latest decision that was handled */
	bool begun, quiet, lost_printed;
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

static bool text_is(const struct json_doc *d, const char *key, const char *text)
{
	const char *s = json_doc_string(d, key);

	return s && strcmp(s, text) == 0;
}

/* Writes the contender with the most memory on the GPU of the decision, as " for game.exe";
 * writes "" if no contender is known. */
static void contender_text(struct notifier *n, const char *uuid, char *out, size_t size)
{
	const char *best = NULL;
	double most = -1;
	char path[200], message[300];

	out[0] = '\0';
	snprintf(path, sizeof(path), "/api/v1/guard/gpus/%.100s", uuid);
	if (remote_request(&n->remote, "GET", path, NULL, CONNECT_NS, message,
			   sizeof(message)) != 0 ||
	    n->remote.status != 200)
		return;
	for (size_t i = 0; i < json_doc_count(n->remote.reply, "processes"); i++) {
		const struct json_doc *p = json_doc_at(n->remote.reply, "processes", i);
		double bytes = json_doc_number(p, "memory_bytes");

		if (!text_is(p, "class", "contender") || !(bytes > most))
			continue;
		most = bytes;
		best = json_doc_string(p, "name");
	}
	if (best && *best) {
		char name[61];

		utf8_clean(name, sizeof(name), best);
		snprintf(out, size, " for %s", name);
	}
}

/* One decision that people want to see; copied, because later requests replace the reply. */
struct news {
	char worker[64], uuid[100], detail[300];
	enum { NEWS_LEFT, NEWS_WOULD_LEAVE, NEWS_BACK, NEWS_STUCK } what;
	double freed_bytes, seconds; /* seconds NAN: unknown */
	bool contention;
};

/* Reads a decision. Returns false if a person need not know about it. */
static bool read_news(const struct json_doc *d, struct news *ret)
{
	const char *worker = json_doc_string(d, "worker"), *uuid = json_doc_string(d, "uuid"),
		   *evidence = json_doc_string(d, "evidence");
	const bool dry = json_doc_true(d, "dry_run");

	*ret = (struct news){ .seconds = json_doc_number(d, "freed_seconds") };
	if (!worker)
		return false;
	if (text_is(d, "to", "evicted") && text_is(d, "result", "freed") && !dry)
		ret->what = NEWS_LEFT;
	else if (text_is(d, "to", "evicted") && text_is(d, "from", "verify") && dry)
		ret->what = NEWS_WOULD_LEAVE;
	else if (text_is(d, "to", "active") && text_is(d, "from", "verify-up") && !dry)
		ret->what = NEWS_BACK;
	else if (text_is(d, "to", "stuck") && !text_is(d, "from", "stuck") && !dry)
		ret->what = NEWS_STUCK;
	else
		return false;
	ret->freed_bytes = json_doc_number(d, "freed_bytes");
	for (size_t i = 0; i < json_doc_count(d, "mask"); i++) {
		const char *reason = json_doc_string(json_doc_at(d, "mask", i), "");

		ret->contention |= reason && strcmp(reason, "contention") == 0;
	}
	utf8_clean(ret->worker, sizeof(ret->worker), worker);
	utf8_clean(ret->uuid, sizeof(ret->uuid), uuid ? uuid : "");
	utf8_clean(ret->detail, sizeof(ret->detail), evidence ? evidence : "");
	return true;
}

static int show_news(struct notifier *n, const struct news *w)
{
	char title[200], body[500], bytes[16], who[80] = "", time[24], button[64];

	if (w->contention && *w->uuid && w->what != NEWS_BACK)
		contender_text(n, w->uuid, who, sizeof(who));
	snprintf(button, sizeof(button), "Keep it off for %s",
		 figure_span(time, (double)n->hold_ns * 1e-9));
	figure_bytes(bytes, w->freed_bytes);
	switch (w->what) {
	case NEWS_LEFT:
		snprintf(title, sizeof(title), "%s left the GPU%s", w->worker, who);
		if (w->seconds > 0)
			snprintf(body, sizeof(body), "%s freed in %.1f s", bytes, w->seconds);
		else
			snprintf(body, sizeof(body), "%s freed", bytes);
		break;
	case NEWS_WOULD_LEAVE:
		snprintf(title, sizeof(title), "%s would leave the GPU%s", w->worker, who);
		snprintf(body, sizeof(body),
			 "Dry run: nothing was moved. To let the guard act: sudo gpuward guard "
			 "mode enforce");
		break;
	case NEWS_BACK:
		snprintf(title, sizeof(title), "%s is back on the GPU", w->worker);
		snprintf(body, sizeof(body), "%s", w->detail);
		break;
	default:
		snprintf(title, sizeof(title), "%s did not leave the GPU%s", w->worker, who);
		snprintf(body, sizeof(body), "%s. Details: gpuward guard explain %s", w->detail,
			 w->worker);
	}
	if (!n->quiet)
		printf("%s: %s\n", title, body);
	fflush(stdout);
	return desktop_show(n->desktop, w->worker, title, body,
			    w->what == NEWS_WOULD_LEAVE || w->what == NEWS_STUCK ? NULL
										 : button);
}

/* Returns true if the service has numbered its decisions from the beginning again, because it
 * was started with another state folder. */
static bool numbers_restarted(const struct notifier *n, size_t decisions)
{
	int64_t id, latest = 0;

	for (size_t i = 0; i < decisions; i++)
		if (json_doc_integer(json_doc_at(n->remote.reply, "decisions", i), "id", &id) &&
		    id > latest)
			latest = id;
	return latest > 0 && latest < n->last;
}

/* Fetches the decisions and shows the new ones.  At the start only remembers the latest.
 * Returns false if a connection is lost. */
static bool fetch_news(struct notifier *n)
{
	struct news *news;
	unsigned count = 0;
	char message[300];
	size_t all;
	bool good = true;

	if (remote_request(&n->remote, "GET", DECISIONS, NULL, CONNECT_NS, message,
			   sizeof(message)) != 0)
		return false;
	if (n->remote.status != 200) { /* the guard has not started: it has decided nothing */
		n->begun = true;
		return true;
	}
	all = json_doc_count(n->remote.reply, "decisions");
	if (numbers_restarted(n, all))
		n->last = 0;
	news = calloc(all + 1, sizeof(*news));
	for (size_t i = 0; news && i < all; i++) {
		const struct json_doc *d = json_doc_at(n->remote.reply, "decisions", i);
		int64_t id = 0;

		if (!json_doc_integer(d, "id", &id) || id <= n->last)
			continue;
		n->last = id;
		count += n->begun && read_news(d, &news[count]);
	}
	n->begun = true;
	for (unsigned i = 0; news && i < count && good; i++)
		good = show_news(n, &news[i]) == 0;
	free(news);
	return good;
}

static void hold_worker(void *arg, const char *worker)
{
	struct notifier *n = arg;
	char message[400], clean[400], title[200], time[24];
	struct buf path, body;
	struct json j;

	buf_init(&path, 1024);
	buf_adds(&path, "/api/v1/guard/workers/");
	url_escape(&path, worker);
	buf_adds(&path, "/hold");
	buf_init(&body, 1024);
	json_init(&j, &body, false);
	json_object(&j, NULL);
	json_string(&j, "state", "evicted");
	json_double(&j, "ttl_s", (double)n->hold_ns * 1e-9);
	json_string(&j, "reason", "desktop notification");
	json_object_end(&j);
	json_end(&j);
	if (remote_request(&n->remote, "POST", path.p, body.p, CONNECT_NS, message,
			   sizeof(message)) == 0) {
		message[0] = '\0';
		if (n->remote.status >= 400)
			remote_refusal(&n->remote, message, sizeof(message));
	}
	buf_done(&path);
	buf_done(&body);
	if (*message)
		snprintf(title, sizeof(title), "%s is not held", worker);
	else
		snprintf(title, sizeof(title), "%s stays off the GPU for %s", worker,
			 figure_span(time, (double)n->hold_ns * 1e-9));
	utf8_clean(clean, sizeof(clean), message);
	if (!n->quiet)
		printf("%s%s%s\n", title, *clean ? ": " : "", clean);
	fflush(stdout);
	(void)desktop_show(n->desktop, worker, title,
			   *clean ? clean : "To end that: gpuward guard release", NULL);
}

static void stream_close(struct notifier *n)
{
	if (n->stream >= 0)
		close(n->stream);
	n->stream = -1;
	n->wait_ns = n->wait_ns ? n->wait_ns * 2 : RETRY_NS;
	n->wait_ns = n->wait_ns < RETRY_MAX_NS ? n->wait_ns : RETRY_MAX_NS;
	n->retry_ns = now_ns() + n->wait_ns;
}

static void stream_open(struct notifier *n)
{
	const struct client_request q = { .address = n->remote.address,
					  .method = "GET",
					  .path = "/api/v1/guard/events",
					  .accept = "text/event-stream" };

	n->matched = 0;
	/* Decisions from before the start of this program are not shown; decisions that were
	 * made while the stream was interrupted are shown. */
	if ((!n->begun && !fetch_news(n)) || client_send(&q, CONNECT_NS, &n->stream) != 0) {
		n->stream = -1;
		stream_close(n);
		if (!n->lost_printed && !n->quiet)
			cli_error("no service answers on %s; waiting for it",
				  n->remote.address);
		n->lost_printed = true;
	}
}

/* Reads the stream.  Returns 1 if it has a new message, 0 if not, -1 if it has ended. */
static int stream_read(struct notifier *n)
{
	/* "data:" counts only at the beginning of a line */
	static const char mark[] = "\ndata:";
	char part[4096];
	ssize_t got = recv(n->stream, part, sizeof(part), MSG_DONTWAIT);
	int found = 0;

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	for (ssize_t i = 0; i < got; i++) {
		n->matched = part[i] == mark[n->matched] ? n->matched + 1 : part[i] == mark[0];
		if (n->matched == sizeof(mark) - 1) {
			found = 1;
			n->matched = 0;
		}
	}
	return got == 0 ? -1 : found;
}

/* Handles the data that the stream has received. If the stream has ended because the service
 * restarts, opens it again. */
static void stream_handle(struct notifier *n)
{
	int got = stream_read(n);

	if (got < 0) {
		stream_close(n);
		return;
	}
	n->wait_ns = 0;
	n->lost_printed = false;
	if (got > 0 && !fetch_news(n))
		stream_close(n);
}

static int follow(struct notifier *n)
{
	while (!stop_requested()) {
		struct pollfd fd[2] = { { desktop_fd(n->desktop), POLLIN, 0 },
					{ -1, POLLIN, 0 } };
		uint64_t now = now_ns();

		if (n->stream < 0 && now >= n->retry_ns) {
			stream_open(n);
			/* fetch the decisions that were made while there was no stream */
			if (n->stream >= 0 && !fetch_news(n))
				stream_close(n);
		}
		fd[1].fd = n->stream;
		now = now_ns();
		if (poll(fd, 2,
			 n->stream >= 0      ? -1
			 : n->retry_ns > now ? (int)((n->retry_ns - now) / NS_PER_MS) + 1
					     : 0) < 0 &&
		    errno != EINTR)
			return cli_fail("cannot wait: %s", strerror(errno));
		if (fd[1].revents)
			stream_handle(n);
		if (fd[0].revents && desktop_handle(n->desktop, hold_worker, n) != 0)
			return cli_fail("the connection to the session bus is lost");
		if (*desktop_refusal(n->desktop))
			return cli_fail("the desktop refuses notifications: %s; is a "
					"notification service running?",
					desktop_refusal(n->desktop));
	}
	return EXIT_OK;
}

static int notify_run(struct cli *c)
{
	const struct given *g = c->own;
	struct notifier n = { .stream = -1,
			      .hold_ns = g->hold_ns ? g->hold_ns : HOLD_NS,
			      .quiet = c->quiet };
	char message[400];
	int code = remote_open(&n.remote, &g->remote);

	stop_catch();
	if (code == EXIT_OK && desktop_open(&n.desktop, message, sizeof(message)) != 0)
		code = cli_fail("%s", message);
	if (code == EXIT_OK)
		code = follow(&n);
	if (n.stream >= 0)
		close(n.stream);
	desktop_close(n.desktop);
	remote_close(&n.remote);
	return code;
}

const struct command command_notify = {
	.name = "notify",
	.summary = "show on the desktop what the guard did",
	.description =
		"Follows the service and shows a desktop notification when a worker left the "
		"GPU, "
		"came back, or did not leave. A button keeps the worker off the GPU for the "
		"time of --hold; it needs the token of the service. Runs until it is stopped; "
		"the user "
		"unit gpuward-notify.service starts it with the desktop.",
	.examples = "  gpuward notify\n"
		    "  systemctl --user enable --now gpuward-notify\n",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = notify_run,
};
