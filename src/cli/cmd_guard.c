/* guard: shows what the guard of the service does and why, and sends requests to the guard. */
#include "cli.h"
#include "guard_subcommand.h"
#include "output.h"
#include "remote.h"
#include "table.h"

#include "base/clock.h"
#include "guard/policy.h"
#include "base/json_doc.h"
#include "base/utf8.h"
#include "serve/timespec_parse.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ALL      "all"
#define WHY_SIZE 700 /* size in bytes of the text in the column WHY */

#define NO_WORKER                                                                             \
	"No [[worker]] is configured, so there is nothing that the guard could move. To add " \
	"workers, run sudo gpuward setup, or see gpuward.toml(5).\n"

struct given {
	struct remote_flags remote;
	uint64_t for_ns;
	bool forever, now;
	bool temporary; /* the subcommand is pause or snooze */
	bool changed;   /* the service accepted the request for at least one worker */
	/* Why the service could not store a request on its disk. "": all requests are
	 * stored. */
	char unsaved[200];
	const char *reason, *policy, *pid;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(DURATION, 0, "for", AT(for_ns), "TIME",
		   "evict: the worker may return after TIME; hold, pause: the hold ends after "
		   "TIME; game: the game counts as ended after TIME; learn: watch the machine "
		   "for TIME (default: 1m)"),
	OPTION_ROW(FLAG, 0, "forever", AT(forever), NULL,
		   "hold, pause: the hold lasts until you run gpuward guard release"),
	OPTION_ROW(FLAG, 0, "now", AT(now), NULL,
		   "resume: the worker returns immediately. Without --now, the worker waits "
		   "until no other program needs the GPU and the quiet time is over, and it "
		   "does not return while it is held evicted"),
	OPTION_ROW(TEXT, 0, "reason", AT(reason), "TEXT",
		   "your reason, which the service records in its events"),
	OPTION_ROW(TEXT, 0, "pid", AT(pid), "PID",
		   "game: the process of the game. The game is over when this process ends"),
	OPTION_ROW(TEXT, 0, "policy", AT(policy), "FILE",
		   "replay: decide with the workers and rules of this configuration file, as a "
		   "dry run"),
	REMOTE_OPTIONS(remote),
	OPTION_END,
};

/* The indices of the service's GPUs, to print "GPU 0" instead of a UUID. */
struct gpu_names {
	struct {
		char uuid[96];
		int64_t index;
	} gpu[64];
	unsigned count;
};

/* Reads the indices of the GPUs. If the service refuses the request, the list is empty, and
 * UUIDs are printed. Returns an exit code. */
static int read_gpu_names(struct remote *r, struct gpu_names *ret)
{
	int code = remote_request_any(r, "GET", "/api/v1/devices", NULL);

	ret->count = 0;
	if (code != EXIT_OK || r->status != 200)
		return code;
	for (size_t i = 0; i < json_doc_count(r->reply, "devices") && ret->count < 64; i++) {
		const struct json_doc *d = json_doc_at(r->reply, "devices", i);
		const char *uuid = json_doc_string(d, "uuid");

		if (!uuid || !json_doc_integer(d, "index", &ret->gpu[ret->count].index))
			continue;
		snprintf(ret->gpu[ret->count++].uuid, sizeof(ret->gpu[0].uuid), "%s", uuid);
	}
	return EXIT_OK;
}

/* If the text begins with a time in UTC, adds the same time as local time to out. Returns the
 * length of the time in the text, or 0 if there is none. */
static size_t add_local_time(struct buf *out, const char *text)
{
	const size_t least = strlen("2026-11-18T12:34:27Z");
	char utc[40], local[48];
	const char *end = strchr(text, 'Z');
	struct tm tm;
	uint64_t ns;
	time_t s;

	if (!end || (size_t)(end - text) + 1 < least || end - text > 30 || text[10] != 'T')
		return 0;
	snprintf(utc, sizeof(utc), "%.*s", (int)(end + 1 - text), text);
	if (timespec_parse(utc, 0, &ns) != 0)
		return 0;
	s = (time_t)(ns / NS_PER_S);
	if (!localtime_r(&s, &tm) || !strftime(local, sizeof(local), "%F %T %Z", &tm))
		return 0;
	buf_adds(out, local);
	return (size_t)(end + 1 - text);
}

/* Copies a sentence from the service and makes it easier to read: writes local times, "GPU 0"
 * instead of a UUID and one unit for sizes, and leaves out the name of a setting. */
static const char *plain_text(const struct gpu_names *g, const char *in, char *out, size_t size)
{
	static const char setting[] = " (unknown = contend)";
	char sizes[4096];
	struct buf b;

	in = figure_sizes(sizes, sizeof(sizes), in);
	buf_init_fixed(&b, out, size);
	while (*in) {
		size_t n = in[0] >= '1' && in[0] <= '9' ? add_local_time(&b, in) : 0;

		if (!n && strncmp(in, setting, strlen(setting)) == 0)
			n = strlen(setting);
		for (unsigned i = 0; !n && i < g->count; i++)
			if (strncmp(in, g->gpu[i].uuid, strlen(g->gpu[i].uuid)) == 0) {
				n = strlen(g->gpu[i].uuid);
				buf_addf(&b, "GPU %lld", (long long)g->gpu[i].index);
			}
		if (!n) {
			buf_add(&b, in, 1);
			n = 1;
		}
		in += n;
	}
	return out;
}

static const struct table_column columns[] = {
	{ "WORKER", 0, false, false }, { "STATE", 0, false, false },
	{ "SINCE", 2, true, false },   { "REASONS", 1, false, false },
	{ "HOLD", 1, false, false },   { "MEMORY", 1, true, false },
	{ "NEED", 3, true, false },    { "NEXT", 2, true, false },
	{ "WHY", 4, false, true },     { NULL, 0, false, false },
};
enum column { WORKER, STATE, SINCE, REASONS, HOLD, MEMORY, NEED, NEXT, WHY };

/* Sets a cell to the time at `key`, such as "12 s", "3 min" or "2.5 h", or to "-" if there is
 * none. */
static void add_time(struct table *t, unsigned column, const struct json_doc *w,
		     const char *key)
{
	char text[16];

	table_set(t, column, TERM_PLAIN, "%s", figure_span(text, json_doc_figure(w, key)));
}

static enum term_style state_style(const char *state)
{
	if (strcmp(state, "active") == 0)
		return TERM_GOOD;
	if (strcmp(state, "stuck") == 0)
		return TERM_BAD;
	return strcmp(state, "absent") == 0 ? TERM_DIM : TERM_WARN;
}

static void add_reasons(struct table *t, const struct json_doc *w)
{
	char text[TABLE_CELL];
	struct buf b;

	buf_init_fixed(&b, text, sizeof(text));
	for (size_t i = 0; i < json_doc_count(w, "mask"); i++)
		buf_addf(&b, "%s%s", i ? "," : "",
			 reply_text(json_doc_at(w, "mask", i), "", "?"));
	if (b.len)
		table_set(t, REASONS, TERM_PLAIN, "%s", text);
}

static void add_hold(struct table *t, const struct json_doc *w)
{
	const char *hold = reply_text(w, "hold", "none");
	double left = json_doc_number(w, "hold_until_seconds");
	char text[16];

	if (strcmp(hold, "none") == 0)
		return;
	if (left > 0)
		table_set(t, HOLD, TERM_MARK, "%s, %s left", hold, figure_span(text, left));
	else
		table_set(t, HOLD, TERM_MARK, "%s, no end", hold);
}

static void add_bytes(struct table *t, unsigned column, const struct json_doc *w,
		      const char *key)
{
	char text[16];

	table_set(t, column, TERM_PLAIN, "%s", figure_bytes(text, json_doc_figure(w, key)));
}

/* Writes why the worker is in its state. Returns NULL if that is unknown. */
static const char *why_text(const struct gpu_names *g, const struct json_doc *w, char *out,
			    size_t size)
{
	const char *summary = json_doc_string(w, "summary");

	return summary ? plain_text(g, summary, out, size) : NULL;
}

static void add_worker(struct table *t, const struct gpu_names *g, const struct json_doc *w,
		       bool narrow)
{
	char text[WHY_SIZE];
	const char *state = reply_text(w, "state", "?"),
		   *why = why_text(g, w, text, sizeof(text));

	table_row(t);
	table_set(t, WORKER, TERM_BOLD, "%s", reply_text(w, "name", "?"));
	table_set(t, STATE, state_style(state), "%s%s",
		  json_doc_true(w, "hypothetical") ? "would be: " : "", state);
	add_time(t, SINCE, w, "since_seconds");
	add_reasons(t, w);
	add_hold(t, w);
	add_bytes(t, MEMORY, w, "resident_bytes");
	add_bytes(t, NEED, w, "need_bytes");
	add_time(t, NEXT, w, "next_seconds");
	if (why && !narrow)
		table_set(t, WHY, TERM_PLAIN, "%s", why);
}

/* Returns true if at least one worker is in a dry run for this reason. */
static bool any_dry_for(const struct json_doc *r, const char *why)
{
	for (size_t i = 0; i < json_doc_count(r, "workers"); i++)
		if (reply_is(json_doc_at(r, "workers", i), "dry_run_why", why))
			return true;
	return false;
}

/* Prints notes about the mode. The notes stand above the table, because a reader needs them to
 * understand the table. */
static void print_mode(const struct json_doc *r)
{
	const char *mode = reply_text(r, "mode", "enforce"),
		   *journal = reply_text(r, "journal", "ok"),
		   *no_gpu = json_doc_string(json_doc_at(r, "workers", 0), "memory_reason");
	unsigned width = term_table_width();
	char text[400];

	if (no_gpu) {
		snprintf(text, sizeof(text), "The guard cannot decide: %s.", no_gpu);
		term_wrap("", 0, text, width);
	}
	if (strcmp(mode, "enforce") != 0 && json_doc_count(r, "workers")) {
		snprintf(text, sizeof(text),
			 "Mode %s: decisions are recorded, but no worker is moved.%s", mode,
			 json_doc_string(r, "mode_note")
				 ? ""
				 : " To let the guard act, run gpuward guard mode enforce.");
		term_wrap("", 0, text, width);
	}
	if (!reply_is(r, "mode_set.mode", reply_text(r, "mode_configured", "")))
		guard_mode_print_set(r);
	if (any_dry_for(r, "another-service"))
		term_wrap("", 0,
			  "Another service controls the GPUs of some workers: their decisions "
			  "are recorded, but this service does not move them.",
			  width);
	if (json_doc_string(r, "mode_note") && json_doc_count(r, "workers"))
		term_wrap("", 0, json_doc_string(r, "mode_note"), width);
	if (strcmp(journal, "ok") != 0)
		printf("Journal: %s.\n", journal);
}

/* Returns true if the worker has this name. NULL and "all" match every worker. */
static bool is_wanted(const struct json_doc *w, const char *name)
{
	return !name || strcmp(name, ALL) == 0 || reply_is(w, "name", name);
}

static void fill_table(struct table *t, const struct gpu_names *g, const struct remote *r,
		       const char *name, bool narrow)
{
	table_init(t, columns);
	for (size_t i = 0; i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);

		if (is_wanted(w, name))
			add_worker(t, g, w, narrow);
	}
}

/* Prints a table without the column WHY, for a narrow terminal. The text of that column is
 * printed below the row of each worker. */
static void print_narrow(const struct table *t, const struct gpu_names *g,
			 const struct remote *r, const char *name)
{
	char why_buf[WHY_SIZE];
	struct buf text;
	const char *line, *end;
	size_t i = 0;

	buf_init(&text, 1u << 20);
	table_format(t, term_width(), true, &text);
	for (line = text.p; text.len && (end = strchr(line, '\n')); line = end + 1) {
		const struct json_doc *w = NULL;
		const char *why;

		for (; line != text.p && i < json_doc_count(r->reply, "workers") && !w; i++)
			if (is_wanted(json_doc_at(r->reply, "workers", i), name))
				w = json_doc_at(r->reply, "workers", i);
		printf("%.*s\n", (int)(end - line), line);
		why = w ? why_text(g, w, why_buf, sizeof(why_buf)) : NULL;
		if (why)
			term_wrap("", 2, why, term_width());
	}
	buf_done(&text);
}

static void print_table(const struct gpu_names *g, const struct remote *r, const char *name)
{
	struct table t;

	fill_table(&t, g, r, name, false);
	if (table_width(&t) <= term_table_width()) {
		table_print(&t, term_table_width());
	} else {
		table_done(&t);
		fill_table(&t, g, r, name, true);
		print_narrow(&t, g, r, name);
	}
	table_done(&t);
}

/* Prints for each worker the limit that now prevents the guard from moving it: another service,
 * a display, or the hourly limit on the evictions of a user. */
static void print_limits(const struct remote *r, const char *name)
{
	for (size_t i = 0; i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);
		const char *limit = json_doc_string(w, "rail");

		if (is_wanted(w, name) && limit)
			printf("%s: %s.\n", reply_text(w, "name", "?"), limit);
	}
}

/* Prints the reserved memory. A worker has the reason "reserved" only if it was on the GPU when
 * the reservation was made, but the reservation also keeps other workers from returning. */
static void print_reservations(const struct gpu_names *g, const struct json_doc *reply)
{
	for (size_t i = 0; i < json_doc_count(reply, "reservations"); i++) {
		const struct json_doc *r = json_doc_at(reply, "reservations", i);
		double left = json_doc_number(r, "until_seconds");
		char bytes[16], gpu[WHY_SIZE], span[16];
		int64_t pid;

		printf("Reserved: %s on %s", figure_bytes(bytes, json_doc_number(r, "bytes")),
		       plain_text(g, reply_text(r, "gpu", "?"), gpu, sizeof(gpu)));
		if (json_doc_integer(r, "pid", &pid))
			printf(" for pid %lld", (long long)pid);
		if (left > 0)
			printf(", ends in %s", figure_span(span, left));
		printf(".\n");
	}
}

static void print_simulated(const struct json_doc *reply)
{
	if (json_doc_true(reply, "simulated"))
		term_print_simulated(stdout);
}

static int print_status(struct cli *c, struct remote *r, const char *name)
{
	bool one = name && strcmp(name, ALL) != 0;
	/* Request the named worker first: if its name is unknown, the service suggests a
	 * similar name. */
	char path[REMOTE_PATH];
	int code = one ? remote_request_ok(r, "GET",
					   remote_path(path, REMOTE_WORKERS, name, ""), NULL)
		       : EXIT_OK;
	struct gpu_names gpus;

	if (code == EXIT_OK && !c->json)
		code = read_gpu_names(r, &gpus);
	if (code == EXIT_OK && (!one || !c->json))
		code = remote_request_ok(r, "GET", "/api/v1/guard", NULL);
	if (code != EXIT_OK || c->json)
		return code == EXIT_OK ? remote_print(r) : code;
	print_simulated(r->reply);
	if (!c->quiet)
		print_mode(r->reply);
	if (json_doc_count(r->reply, "workers") == 0) {
		printf(NO_WORKER);
		return EXIT_OK;
	}
	print_table(&gpus, r, name);
	if (!c->quiet) {
		print_limits(r, name);
		print_reservations(&gpus, r->reply);
	}
	return EXIT_OK;
}

static int print_explanation(struct cli *c, struct remote *r, const char *name)
{
	bool one = name && strcmp(name, ALL) != 0;
	char path[REMOTE_PATH];
	struct gpu_names gpus;
	int code = c->json ? EXIT_OK : read_gpu_names(r, &gpus);

	if (code == EXIT_OK)
		code = remote_request_ok(
			r, "GET",
			one ? remote_path(path, "/api/v1/guard/explain?worker=", name, "")
			    : "/api/v1/guard/explain",
			NULL);
	if (code != EXIT_OK || c->json)
		return code == EXIT_OK ? remote_print(r) : code;
	print_simulated(r->reply);
	if (json_doc_count(r->reply, "workers") == 0)
		printf(NO_WORKER "A worker in the configuration:\n\n"
				 "  [[worker]]\n  name = \"ollama\"\n  kind = \"ollama\"\n");
	for (size_t i = 0; i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);

		if (i)
			putchar('\n');
		for (size_t k = 0; k < json_doc_count(w, "sentences"); k++) {
			const char *text = reply_text(json_doc_at(w, "sentences", k), "", "");
			char plain[4096];

			term_wrap("", k ? 2 : 0, plain_text(&gpus, text, plain, sizeof(plain)),
				  term_width());
		}
	}
	return EXIT_OK;
}

/* Sends a POST request. Its body contains --for, --forever, --now and --reason, and the state
 * if it is not NULL. Returns an exit code. */
static int send_change(struct remote *r, const char *path, const struct given *g,
		       const char *state)
{
	struct remote_body body;
	struct json *j = remote_body_begin(&body);
	int code;

	if (state)
		json_string(j, "state", state);
	if (g->for_ns)
		json_double(j, "ttl_s", (double)g->for_ns * 1e-9);
	else if (g->forever)
		json_int(j, "ttl_s", 0);
	if (g->now)
		json_bool(j, "force", true);
	if (g->reason)
		json_string(j, "reason", g->reason);
	code = remote_request_ok(r, "POST", path, remote_body_end(&body));
	remote_body_done(&body);
	return code;
}

/* Returns a note that says why the request does not move the worker, or "" if the request moves
 * the worker. */
static const char *no_effect_note(const struct json_doc *w, char *out, size_t size)
{
	if (!json_doc_true(w, "dry_run"))
		return "";
	if (reply_is(w, "dry_run_why", "simulated"))
		snprintf(out, size, " (simulated GPUs: the worker is not moved)");
	else if (reply_is(w, "dry_run_why", "another-service"))
		snprintf(out, size,
			 " (another service controls its GPUs: the worker is not moved)");
	else
		snprintf(out, size, " (mode %s: the worker is not moved)",
			 reply_text(w, "mode", "unknown"));
	return out;
}

/* The hold of a worker before a request. */
struct earlier {
	char hold[16];  /* "none", "active" or "evicted" */
	double left_s;  /* time until the hold ends; INFINITY: it has no end */
	bool requested; /* a person holds the worker, or has evicted it */
};

static int read_earlier(struct remote *r, const char *name, struct earlier *ret)
{
	char path[REMOTE_PATH];
	int code =
		remote_request_ok(r, "GET", remote_path(path, REMOTE_WORKERS, name, ""), NULL);
	double left;

	if (code != EXIT_OK)
		return code;
	left = json_doc_number(r->reply, "hold_until_seconds");
	snprintf(ret->hold, sizeof(ret->hold), "%s", reply_text(r->reply, "hold", "none"));
	ret->left_s = left > 0 ? left : (double)INFINITY;
	ret->requested =
		strcmp(ret->hold, "none") != 0 || reply_has(r->reply, "mask", "manual");
	return EXIT_OK;
}

static const char *earlier_text(const struct earlier *e, char out[static 48])
{
	char span[16];

	if (isinf(e->left_s))
		snprintf(out, 48, "held %s until it is released", e->hold);
	else
		snprintf(out, 48, "held %s for %s more", e->hold, figure_span(span, e->left_s));
	return out;
}

/* Writes the hold that a request has ended or replaced, such as "hold active, which would have
 * lasted 5 s more". */
static const char *ended_text(const struct earlier *e, char out[static 64])
{
	char span[16];

	if (isinf(e->left_s))
		snprintf(out, 64, "hold %s, which had no end", e->hold);
	else
		snprintf(out, 64, "hold %s, which would have lasted %s more", e->hold,
			 figure_span(span, e->left_s));
	return out;
}

/* Returns true if the subcommand is pause or snooze and the worker is already held active for
 * longer. These subcommands never shorten a hold. */
static bool is_held_longer(const struct cli *c, const struct earlier *e)
{
	const struct given *g = c->own;

	return g->temporary && strcmp(e->hold, "active") == 0 &&
	       e->left_s >= (g->for_ns ? (double)g->for_ns * 1e-9 : (double)INFINITY);
}

/* Stores why the service could not write the request to its journal. with_service() prints the
 * reason once for all workers. */
static void note_unsaved(struct given *g, const struct json_doc *reply)
{
	const char *journal = reply_text(reply, "journal", "ok");

	if (strcmp(journal, "ok") != 0)
		snprintf(g->unsaved, sizeof(g->unsaved), "%s", journal);
}

/* Prints one sentence, which is wrapped on a terminal. */
__attribute__((format(printf, 1, 2))) static void print_sentence(const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	term_wrap("", 0, text, term_table_width());
}

static int request_one(struct cli *c, struct remote *r, const char *verb, const char *state,
		       const char *name)
{
	struct given *g = c->own;
	struct earlier earlier = { "none", NAN, false };
	const bool release = strcmp(verb, "release") == 0;
	char text[96], span[16], after[32], before[64], path[REMOTE_PATH];
	int code = state || release ? read_earlier(r, name, &earlier) : EXIT_OK;

	if (code != EXIT_OK)
		return code;
	if (is_held_longer(c, &earlier)) {
		if (c->json)
			return remote_print(r);
		print_sentence("%s: already %s, so nothing was changed", name,
			       earlier_text(&earlier, before));
		return EXIT_OK;
	}
	if (release && !earlier.requested && !c->json) {
		if (!c->quiet)
			print_sentence("%s: no hold to end, so nothing was changed", name);
		return EXIT_OK;
	}
	if (g->temporary && strcmp(earlier.hold, "evicted") == 0)
		return cli_fail("%s is %s; to end this hold, run gpuward guard release %s",
				name, earlier_text(&earlier, before), name);
	snprintf(after, sizeof(after), "/%s", verb);
	code = send_change(r, remote_path(path, REMOTE_WORKERS, name, after), g, state);
	g->changed |= code == EXIT_OK;
	if (code == EXIT_OK)
		note_unsaved(g, r->reply);
	if (code == EXIT_OK && c->json)
		return remote_print(r);
	if (code == EXIT_OK && !c->quiet) {
		const char *now = json_doc_string(r->reply, "state");

		print_sentence(
			"%s: requested %s%s%s%s%s%s%s; its state %s %s%s", name, verb,
			state ? " " : "", state ? state : "", g->for_ns ? " for " : "",
			g->for_ns ? figure_span(span, (double)g->for_ns * 1e-9) : "",
			strcmp(earlier.hold, "none") == 0 ? ""
			: release                         ? "; this ended its "
							  : "; this replaced its ",
			strcmp(earlier.hold, "none") == 0 ? "" : ended_text(&earlier, before),
			now && json_doc_true(r->reply, "hypothetical") ? "would be" : "is now",
			now ? now : "unknown", no_effect_note(r->reply, text, sizeof(text)));
	}
	return code;
}

static int request_workers(struct cli *c, struct remote *r, const char *verb, const char *state,
			   const char *name)
{
	char names[POLICY_WORKERS][128];
	size_t n;
	int code;

	if (strcmp(name, ALL) != 0)
		return request_one(c, r, verb, state, name);
	code = remote_request_ok(r, "GET", "/api/v1/guard", NULL);
	if (code != EXIT_OK)
		return code;
	n = json_doc_count(r->reply, "workers");
	n = n < POLICY_WORKERS ? n : POLICY_WORKERS;
	if (n == 0)
		return cli_fail("the service has no [[worker]]: nothing was changed");
	for (size_t i = 0; i < n; i++)
		snprintf(names[i], sizeof(names[i]), "%s",
			 reply_text(json_doc_at(r->reply, "workers", i), "name", "?"));
	for (size_t i = 0; i < n; i++) {
		int one = request_one(c, r, verb, state, names[i]);

		code = one != EXIT_OK ? one : code;
	}
	return code;
}

static int clear_gpu(struct cli *c, struct remote *r, const char *gpu)
{
	char path[REMOTE_PATH];
	int code = send_change(r, remote_path(path, "/api/v1/health/gpus/", gpu, "/clear"),
			       c->own, NULL);

	if (code != EXIT_OK || c->json)
		return code == EXIT_OK ? remote_print(r) : code;
	if (!c->quiet)
		printf("%s: not in quarantine now; health: %s\n",
		       reply_text(r->reply, "uuid", gpu),
		       reply_text(r->reply, "level", "unknown"));
	return EXIT_OK;
}

/* Rejects wrong arguments, and options that the subcommand does not take. Returns an exit
 * code. */
static int check_arguments(const struct cli *c, const struct guard_subcommand *v)
{
	const struct given *g = c->own;
	uint64_t ns;

	for (const struct option *o = options; strcmp(o->name, "address") != 0; o++)
		if (option_given(o, g) && !guard_subcommand_takes(v, o->name))
			return cli_usage("guard %s does not take --%s: leave it out", v->name,
					 o->name);
	if (c->argc - 1 < v->least || c->argc - 1 > v->most)
		return cli_usage("usage: gpuward guard %s %s", v->name, v->usage);
	if (v->form == FORM_GAME && strcmp(c->argv[1], "start") != 0 &&
	    strcmp(c->argv[1], "end") != 0)
		return cli_usage("guard game takes start or end, not '%s'", c->argv[1]);
	if (v->form == FORM_GAME)
		return guard_game_pid(g->pid) > 0 ? EXIT_OK : EXIT_USAGE;
	if (v->form == FORM_HOLD && strcmp(c->argv[1], "evicted") != 0 &&
	    strcmp(c->argv[1], "active") != 0)
		return cli_usage("guard hold takes evicted or active, not '%s'", c->argv[1]);
	if (v->form == FORM_SNOOZE && (option_duration(c->argv[1], &ns) != 0 || ns == 0))
		return cli_usage("guard snooze takes a time such as 30m or 2h, not '%s'",
				 c->argv[1]);
	if ((v->form == FORM_HOLD || v->form == FORM_PAUSE) && !g->for_ns == !g->forever)
		return cli_usage("guard %s needs an end: give --for TIME or --forever",
				 v->name);
	return EXIT_OK;
}

/* Requests the hold "active" for the named worker, or for all workers if name is "all", so that
 * they stay on the GPU when other programs need it. */
static int pause_workers(struct cli *c, struct remote *r, const char *name)
{
	struct given *g = c->own;
	char time[16];
	int code;

	g->temporary = true;
	code = request_workers(c, r, "hold", "active", name);
	if (code == EXIT_OK && g->changed && !c->quiet && !c->json)
		print_sentence("%s%s, only heat and faults move %s off the GPU; to end this, "
			       "run gpuward guard release.",
			       g->for_ns ? "For " : "From now on",
			       g->for_ns ? figure_span(time, (double)g->for_ns * 1e-9) : "",
			       strcmp(name, ALL) == 0 ? "workers" : "it");
	return code;
}

/* Carries out a subcommand that needs the service. Returns an exit code. */
static int with_service(struct cli *c, const struct guard_subcommand *v)
{
	struct given *g = c->own;
	const char *name =
		c->argc > (v->form == FORM_SNOOZE ? 2 : 1) ? c->argv[c->argc - 1] : NULL;
	struct remote r;
	int code = remote_open(&r, &g->remote);

	if (code != EXIT_OK)
		;
	else if (v->form == FORM_LEARN)
		code = guard_learn(c, &r, g->for_ns ? g->for_ns : 60 * NS_PER_S);
	else if (v->form == FORM_GAME)
		code = guard_game(c, &r, strcmp(name, "start") == 0, guard_game_pid(g->pid),
				  g->for_ns, g->reason);
	else if (v->form == FORM_MODE)
		code = guard_mode(c, &r, name, g->reason);
	else if (v->form == FORM_CLEAR)
		code = clear_gpu(c, &r, name);
	else if (v->form == FORM_HISTORY)
		code = guard_history(c, &r, name && strcmp(name, ALL) != 0 ? name : NULL);
	else if (v->form == FORM_READ)
		code = strcmp(v->name, "status") == 0 ? print_status(c, &r, name)
						      : print_explanation(c, &r, name);
	else if (v->form == FORM_SNOOZE && option_duration(c->argv[1], &g->for_ns) != 0)
		code = EXIT_USAGE;
	else if (v->form == FORM_PAUSE || v->form == FORM_SNOOZE)
		code = pause_workers(c, &r, name ? name : ALL);
	else
		code = request_workers(c, &r, v->name, v->form == FORM_HOLD ? c->argv[1] : NULL,
				       name ? name : ALL);
	remote_close(&r);
	if (*g->unsaved)
		cli_error("note: %s", g->unsaved);
	return code;
}

static int guard_run(struct cli *c)
{
	const struct given *g = c->own;
	const struct guard_subcommand *v =
		guard_subcommand_find(c->argc > 0 ? c->argv[0] : NULL);
	int code = v ? check_arguments(c, v) : EXIT_USAGE;

	if (code != EXIT_OK)
		return code;
	if (v->form == FORM_REPLAY)
		return guard_replay(c, g->policy, c->argv[1]);
	if (v->form == FORM_RECOVER)
		return guard_recover(c);
	return with_service(c, v);
}

static bool guard_help(const char *word)
{
	return guard_subcommand_help(word, options);
}

const struct command command_guard = {
	.name = "guard",
	.summary = "control the guard, which frees a GPU that another program needs",
	.description =
		"Queries and controls the guard of gpuward serve. Subcommands that change "
		"something need the token of the service. replay and recover work without a "
		"service. For more, see gpuward guard SUBCOMMAND --help. Subcommands:",
	.examples = "  gpuward guard status\n"
		    "  gpuward guard explain ollama\n"
		    "  gpuward guard history\n"
		    "  gpuward guard hold active ollama --for 2h\n"
		    "  gpuward guard snooze 30m\n"
		    "  gpuward guard resume all --now\n"
		    "  gpuward guard replay --policy new.toml guard.trace\n",
	.arguments = "SUBCOMMAND ...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.help = guard_help,
	.run = guard_run,
};
