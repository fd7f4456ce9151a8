/* notify: shows a desktop notification when a worker has left the GPU, has returned to it, or
 * did not leave it.
 *
 * The command reads the event stream of the service. A message of the stream only says that
 * something is new; the decisions themselves come from GET /api/v1/guard. Notifications are
 * sent over the session bus (org.freedesktop.Notifications). */
#include "cli.h"
#include "output.h"
#include "client.h"
#include "remote.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/utf8.h"
#include "daemon/bus_connection.h"

#include <gpuward.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOTES   "org.freedesktop.Notifications"
#define SHOWN   32 /* notifications that are remembered; the buttons of older ones do nothing */
#define WAIT_MS 2000 /* longest wait until the bus accepts a message */

/* Serial numbers of the first calls on the bus. Notifications have the numbers from S_NOTES
 * on. */
enum { S_HELLO = 1, S_MATCH, S_NOTES };

/* A notification that was sent. */
struct shown {
	uint32_t serial; /* serial number of the call; 0: this place is free */
	uint32_t id;     /* id of the notification on the desktop; 0: not known yet */
	char tag[64];    /* name of the worker */
};

struct desktop {
	struct bus_connection bus;
	uint32_t serial; /* serial number of the next call */
	struct shown shown[SHOWN];
	unsigned next;     /* index in shown[] for the next notification, modulo SHOWN */
	char refusal[200]; /* error of the last notification; "": it was shown */
	/* Called when the button of a notification with this tag was pressed. */
	void (*pressed)(void *arg, const char *tag);
	void *arg;
};

/* Writes the address of the session bus: the one in DBUS_SESSION_BUS_ADDRESS or, if that is not
 * set, the socket "bus" in the folder XDG_RUNTIME_DIR (default: /run/user/UID). Returns false
 * if the address cannot be used. */
static bool session_address(struct bus_address *ret)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	char path[200];

	if (run && *run == '/')
		snprintf(path, sizeof(path), "%s/bus", run);
	else
		snprintf(path, sizeof(path), "/run/user/%u/bus", (unsigned)getuid());
	return bus_address_read(ret, getenv("DBUS_SESSION_BUS_ADDRESS"), path);
}

/* Sends the authentication and the first calls. Returns 0 or -GW_E_IO. */
static int greet(struct desktop *d)
{
	char text[BUS_OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_connection_hello(&d->bus, &out, S_HELLO);
	bus_write_match(&out, S_MATCH,
			"type='signal',interface='" NOTES "',member='ActionInvoked'");
	d->serial = S_NOTES;
	return bus_connection_send(&d->bus, &out, WAIT_MS);
}

static void desktop_close(struct desktop *d)
{
	if (d)
		bus_connection_close(&d->bus);
	free(d);
}

/* Connects to the session bus. Returns 0, or a negative error with a sentence in message. */
static int desktop_open(struct desktop **ret, char *message, size_t size)
{
	struct desktop *d = calloc(1, sizeof(*d));
	struct bus_address a;

	if (!d) {
		snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	d->bus = (struct bus_connection)BUS_CONNECTION_CLOSED;
	if (!session_address(&a))
		snprintf(message, size,
			 "DBUS_SESSION_BUS_ADDRESS names no socket that gpuward can use "
			 "(unix:path= or unix:abstract=)");
	else if (bus_connection_open(&d->bus, &a, false) != 0)
		snprintf(message, size,
			 "the session bus at %s cannot be reached (%s); run gpuward notify in "
			 "a desktop session",
			 a.a.sun_path[0] ? a.a.sun_path : a.a.sun_path + 1, strerror(errno));
	else if (greet(d) != 0)
		snprintf(message, size,
			 "the session bus does not accept the connection; run gpuward notify "
			 "in a desktop session");
	else {
		*ret = d;
		return 0;
	}
	desktop_close(d);
	return -GW_E_IO;
}

/* Copies a text. Replaces control characters, invalid UTF-8 and the characters of markup,
 * because other programs choose the names of processes. The bus closes the connection after
 * invalid UTF-8. */
static void copy_plain(char *out, size_t size, const char *text)
{
	utf8_clean(out, size, text);
	for (; (out = strpbrk(out, "<>&")); out++)
		*out = '_';
}

/* Returns the id of the latest notification with this tag; 0: none. */
static uint32_t latest_id(const struct desktop *d, const char *tag)
{
	for (unsigned i = 1; i <= SHOWN; i++) {
		const struct shown *s = &d->shown[(d->next + SHOWN - i) % SHOWN];

		if (s->serial && strcmp(s->tag, tag) == 0)
			return s->id;
	}
	return 0;
}

/* Shows a notification. The notification replaces the latest one with the same tag. `button` is
 * the label of a button, or NULL. Returns 0, or -GW_E_IO if the connection is lost. */
static int desktop_show(struct desktop *d, const char *tag, const char *summary,
			const char *body, const char *button)
{
	static const struct bus_method notify = { NOTES, "/org/freedesktop/Notifications",
						  NOTES, "Notify" };
	const char *const actions[] = { button ? "hold" : NULL, button, NULL };
	const uint32_t replaces = latest_id(d, tag);
	struct shown *s = &d->shown[d->next++ % SHOWN];
	char title[200], line[600], text[BUS_OUT_SIZE];
	struct bus_call c;
	struct buf out;

	*s = (struct shown){ .serial = d->serial++ };
	snprintf(s->tag, sizeof(s->tag), "%s", tag);
	copy_plain(title, sizeof(title), summary);
	copy_plain(line, sizeof(line), body);
	buf_init_fixed(&out, text, sizeof(text));
	bus_call_begin(&c, &out, s->serial, &notify, "susssasa{sv}i");
	bus_put_text(&c, "gpuward");
	bus_put_u32(&c, replaces);
	bus_put_text(&c, "video-display");
	bus_put_text(&c, title);
	bus_put_text(&c, line);
	bus_put_texts(&c, actions);
	bus_put_no_pairs(&c);
	bus_put_u32(&c, UINT32_MAX); /* -1: the desktop decides how long it is shown */
	bus_call_end(&c);
	return bus_connection_send(&d->bus, &out, WAIT_MS);
}

/* Handles the reply to a notification: stores the id of the notification, or the error. */
static void take_answer(struct desktop *d, const struct bus_message *m)
{
	for (unsigned i = 0; i < SHOWN; i++) {
		if (!d->shown[i].serial || d->shown[i].serial != m->reply_to)
			continue;
		if (m->type == BUS_REPLY)
			(void)bus_read_u32(m, &d->shown[i].id);
		snprintf(d->refusal, sizeof(d->refusal), "%s",
			 m->type == BUS_ERROR ? (m->error ? m->error : "unknown error") : "");
	}
}

/* Handles a signal of the bus: calls pressed() if a button was pressed. */
static void take_signal(const struct desktop *d, const struct bus_message *m)
{
	const char *action;
	uint32_t id;

	if (!m->member || strcmp(m->member, "ActionInvoked") != 0 ||
	    bus_read_u32_text(m, &id, &action) != 0 || strcmp(action, "hold") != 0)
		return;
	for (unsigned i = 0; i < SHOWN; i++)
		if (d->shown[i].serial && id && d->shown[i].id == id) {
			d->pressed(d->arg, d->shown[i].tag);
			return;
		}
}

static bool desktop_handle(void *arg, const struct bus_message *m)
{
	struct desktop *d = arg;

	if (m->type == BUS_SIGNAL)
		take_signal(d, m);
	else
		take_answer(d, m);
	return true;
}

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
	/* How many characters of "\ndata:" the last received characters match. */
	unsigned matched;
	uint64_t hold_ns;  /* value of --hold */
	uint64_t retry_ns; /* time at which to connect to the stream again */
	uint64_t wait_ns;  /* last wait before connecting; the wait doubles each time */
	int64_t last;      /* id of the latest decision that was handled */
	bool begun;        /* `last` is known, so decisions with a higher id are new */
	bool quiet;
	bool lost_printed; /* the user knows that no service answers */
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* Writes which contender on this GPU uses the most memory, such as " for game.exe". Writes ""
 * if no contender is known. */
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

		if (!reply_is(p, "class", "contender") || !(bytes > most))
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

/* A decision for which a notification is shown. It is a copy, because later requests replace
 * the reply. */
struct news {
	char worker[64], uuid[100], detail[300];
	enum { NEWS_LEFT, NEWS_WOULD_LEAVE, NEWS_BACK, NEWS_STUCK } what;
	double freed_bytes, seconds; /* seconds: how long the move took; NAN: unknown */
	bool contention;
};

/* Reads a decision. Returns false if no notification is needed for it. */
static bool read_news(const struct json_doc *d, struct news *ret)
{
	const char *worker = json_doc_string(d, "worker");
	const bool dry = json_doc_true(d, "dry_run");

	*ret = (struct news){ .seconds = json_doc_number(d, "freed_seconds") };
	if (!worker)
		return false;
	if (reply_is(d, "to", "evicted") && reply_is(d, "result", "freed") && !dry)
		ret->what = NEWS_LEFT;
	else if (reply_is(d, "to", "evicted") && reply_is(d, "from", "verify") && dry)
		ret->what = NEWS_WOULD_LEAVE;
	else if (reply_is(d, "to", "active") && reply_is(d, "from", "verify-up") && !dry)
		ret->what = NEWS_BACK;
	else if (reply_is(d, "to", "stuck") && !reply_is(d, "from", "stuck") && !dry)
		ret->what = NEWS_STUCK;
	else
		return false;
	ret->freed_bytes = json_doc_number(d, "freed_bytes");
	ret->contention = reply_has(d, "mask", "contention");
	utf8_clean(ret->worker, sizeof(ret->worker), worker);
	utf8_clean(ret->uuid, sizeof(ret->uuid), reply_text(d, "uuid", ""));
	utf8_clean(ret->detail, sizeof(ret->detail), reply_text(d, "evidence", ""));
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

/* Returns true if the ids of the decisions have started from the beginning again. This happens
 * when the service is started with another state folder. */
static bool numbers_restarted(const struct notifier *n, size_t decisions)
{
	int64_t id, latest = 0;

	for (size_t i = 0; i < decisions; i++)
		if (json_doc_integer(json_doc_at(n->remote.reply, "decisions", i), "id", &id) &&
		    id > latest)
			latest = id;
	return latest > 0 && latest < n->last;
}

/* Fetches the decisions and shows the new ones. The first call only stores the id of the latest
 * one. Returns false if a connection is lost. */
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
	/* the guard has not started, so there are no decisions */
	if (n->remote.status != 200) {
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

/* Requests the hold "evicted" for a worker, after its button was pressed. */
static void hold_worker(void *arg, const char *worker)
{
	struct notifier *n = arg;
	char message[400], clean[400], title[200], time[24];
	char path[REMOTE_PATH];
	struct remote_body body;
	struct json *j = remote_body_begin(&body);

	json_string(j, "state", "evicted");
	json_double(j, "ttl_s", (double)n->hold_ns * 1e-9);
	json_string(j, "reason", "desktop notification");
	if (remote_request(&n->remote, "POST",
			   remote_path(path, REMOTE_WORKERS, worker, "/hold"),
			   remote_body_end(&body), CONNECT_NS, message, sizeof(message)) == 0) {
		message[0] = '\0';
		if (n->remote.status >= 400)
			remote_refusal(&n->remote, message, sizeof(message));
	}
	remote_body_done(&body);
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
			   *clean ? clean : "To end the hold: gpuward guard release", NULL);
}

/* Closes the stream, and sets the time of the next attempt to open it. */
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
	/* Do not show decisions from before the start of this program. Decisions that were made
	 * while the stream was interrupted are shown later. */
	if ((!n->begun && !fetch_news(n)) || client_send(&q, CONNECT_NS, &n->stream) != 0) {
		n->stream = -1;
		stream_close(n);
		if (!n->lost_printed && !n->quiet)
			cli_error("no service answers on %s; notify waits for it",
				  n->remote.address);
		n->lost_printed = true;
	}
}

/* Reads the stream. Returns 1 if there was a message, 0 if not, or -1 if the stream has
 * ended. */
static int stream_read(struct notifier *n)
{
	/* A message contains "data:" at the beginning of a line. */
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

/* Handles the data that has arrived on the stream. Closes the stream if it has ended, for
 * example because the service restarts; follow() then opens it again. */
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
		struct pollfd fd[2] = { { n->desktop->bus.fd, POLLIN, 0 }, { -1, POLLIN, 0 } };
		uint64_t now = now_ns();

		if (n->stream < 0 && now >= n->retry_ns) {
			stream_open(n);
			/* Fetch the decisions that were made while there was no stream. */
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
			return cli_fail("cannot wait for events: %s", strerror(errno));
		if (fd[1].revents)
			stream_handle(n);
		if (fd[0].revents &&
		    bus_connection_read(&n->desktop->bus, desktop_handle, n->desktop) != 0)
			return cli_fail("the connection to the session bus is lost; start "
					"gpuward notify again");
		if (*n->desktop->refusal)
			return cli_fail("the desktop refuses notifications: %s; check that a "
					"notification service is running",
					n->desktop->refusal);
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
	if (code == EXIT_OK) {
		n.desktop->pressed = hold_worker;
		n.desktop->arg = &n;
		code = follow(&n);
	}
	if (n.stream >= 0)
		close(n.stream);
	desktop_close(n.desktop);
	remote_close(&n.remote);
	return code;
}

const struct command command_notify = {
	.name = "notify",
	.summary = "show desktop notifications when the guard moves workers",
	.description =
		"Shows a desktop notification when a worker has left the GPU, has returned to "
		"it, or did not leave it. A button in the notification keeps the worker off "
		"the GPU for the time of --hold; this needs the token of the service. Runs "
		"until it is stopped. The user unit gpuward-notify.service starts it with the "
		"desktop.",
	.examples = "  gpuward notify\n"
		    "  systemctl --user enable --now gpuward-notify\n",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = notify_run,
};
