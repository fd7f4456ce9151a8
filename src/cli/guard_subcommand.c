#include "guard_subcommand.h"

#include "cli.h"
#include "output.h"
#include "table.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "daemon/guard_config.h"
#include "daemon/recording.h"
#include "guard/guard_query.h"
#include "guard/policy.h"
#include "serve/timespec_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define OPTIONS_MAX 16

static const struct guard_subcommand subcommands[] = {
	{ "status", FORM_READ, 0, 1, "", "[WORKER]",
	  "show state, reasons, hold, memory and timers of each worker" },
	{ "explain", FORM_READ, 0, 1, "", "[WORKER]",
	  "explain the state of each worker: the rule, the evidence, other processes, and "
	  "what can change the state and when" },
	{ "history", FORM_HISTORY, 0, 1, "", "[WORKER]",
	  "list the latest moves: when each worker left its GPU, why, and when it returned" },
	{ "evict", FORM_REQUEST, 1, 1, "for reason", "WORKER|all [--for TIME]",
	  "move the worker off its GPU now; it stays off for TIME, or until you run resume" },
	{ "resume", FORM_REQUEST, 1, 1, "now reason", "WORKER|all [--now]",
	  "end an evict: the worker returns when no other program needs the GPU and the quiet "
	  "time is over, or immediately with --now" },
	{ "hold", FORM_HOLD, 2, 2, "for forever reason",
	  "evicted|active WORKER|all --for TIME|--forever",
	  "keep the worker off its GPU, or on it even if other programs need the GPU" },
	{ "pause", FORM_PAUSE, 0, 1, "for forever reason", "[WORKER] --for TIME|--forever",
	  "hold all workers, or the named one, active: only heat and faults move them" },
	{ "snooze", FORM_SNOOZE, 1, 2, "reason", "TIME [WORKER]",
	  "do the same as pause --for TIME; TIME is for example 30s, 30m or 2h, and a number "
	  "without a unit means seconds" },
	{ "release", FORM_REQUEST, 0, 1, "reason", "[WORKER]",
	  "end the holds of all workers, or of the named one; pause and snooze also make "
	  "holds" },
	{ "game", FORM_GAME, 1, 1, "pid for reason", "start|end --pid PID [--for TIME]",
	  "report that a game runs: workers stay off the GPUs until you report the end of the "
	  "game, or its process ends" },
	{ "mode", FORM_MODE, 0, 1, "reason", "[observe|dry-run|enforce|config]",
	  "show the mode, or set it; the mode stays set, also after a restart, until you set "
	  "another one; config sets the configured mode" },
	{ "clear", FORM_CLEAR, 1, 1, "reason", "GPU",
	  "end the quarantine of a GPU (index or UUID) after its fault is fixed" },
	{ "learn", FORM_LEARN, 0, 0, "for", "[--for TIME]",
	  "watch an idle machine and propose rules that ignore the processes that always "
	  "run" },
	{ "replay", FORM_REPLAY, 1, 1, "policy", "[--policy FILE] TRACE",
	  "repeat the decisions of the guard for a recording, without a service" },
	{ "recover", FORM_RECOVER, 0, 0, "", "",
	  "restore checkpointed processes after a crash of the service" },
};
#define SUBCOMMANDS (COUNT(subcommands))

const struct guard_subcommand *guard_subcommand_at(size_t i)
{
	return i < SUBCOMMANDS ? &subcommands[i] : NULL;
}

static const struct guard_subcommand *subcommand_named(const char *word)
{
	for (size_t i = 0; word && i < SUBCOMMANDS; i++)
		if (strcmp(subcommands[i].name, word) == 0)
			return &subcommands[i];
	return NULL;
}

/* Writes the names of all subcommands: "status, explain, ... or recover". */
static void list_names(char *out, size_t size)
{
	struct buf b;

	buf_init_fixed(&b, out, size);
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		buf_addf(&b, "%s%s",
			 i == 0                 ? ""
			 : i == SUBCOMMANDS - 1 ? " or "
						: ", ",
			 subcommands[i].name);
}

const struct guard_subcommand *guard_subcommand_find(const char *word)
{
	const struct guard_subcommand *v = subcommand_named(word);
	const char *near;
	char names[256];

	if (v)
		return v;
	near = word ? suggest(word, &subcommands[0].name, SUBCOMMANDS, sizeof(subcommands[0]))
		    : NULL;
	list_names(names, sizeof(names));
	if (near)
		cli_error("unknown subcommand 'guard %s' (did you mean '%s'?)", word, near);
	else
		cli_error("%s%s%s; give %s",
			  word ? "unknown subcommand 'guard " : "a subcommand is missing",
			  word ? word : "", word ? "'" : "", names);
	return NULL;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

bool guard_subcommand_takes(const struct guard_subcommand *v, const char *option)
{
	bool remote = v->form != FORM_REPLAY && v->form != FORM_RECOVER;

	return has_word(v->options, option) ||
	       (remote && has_word("address token-file", option));
}

static void print_subcommands(void)
{
	for (size_t i = 0; i < SUBCOMMANDS; i++) {
		printf("  %s%s%s\n", subcommands[i].name, *subcommands[i].usage ? " " : "",
		       subcommands[i].usage);
		term_wrap("", 6, subcommands[i].description, term_width());
	}
}

/* Returns the part of an option's help that is about the subcommand `name`. Some help texts
 * have one part per subcommand: "evict, hold: meaning; learn: meaning". Writes the part to out;
 * returns `help` itself if the text has no such parts. */
static const char *help_for(const char *name, const char *help, char *out, size_t size)
{
	for (const char *p = help; *p;) {
		const char *colon = strstr(p, ": "), *end = strstr(p, "; ");
		const char *at = strstr(p, name);

		end = end ? end : p + strlen(p);
		if (!colon || colon > end)
			break;
		if (at && at < colon) {
			snprintf(out, size, "%.*s", (int)(end - colon - 2), colon + 2);
			return out;
		}
		p = end + strspn(end, "; ");
	}
	return help;
}

bool guard_subcommand_help(const char *word, const struct option *options)
{
	const struct guard_subcommand *v = subcommand_named(word);
	struct option own[OPTIONS_MAX] = { { .name = NULL } };
	char title[200], help[OPTIONS_MAX][200];
	unsigned n = 0;

	if (!word)
		print_subcommands();
	if (!v)
		return !word;
	snprintf(title, sizeof(title), "gpuward guard %s: %s", v->name, v->description);
	term_wrap("", 0, title, term_width());
	printf("\nUsage: gpuward guard %s%s%s\n", v->name, *v->usage ? " " : "", v->usage);
	for (const struct option *o = options; o->name && n < OPTIONS_MAX - 1; o++)
		if (guard_subcommand_takes(v, o->name)) {
			own[n] = *o;
			own[n].help = help_for(v->name, o->help, help[n], sizeof(help[n]));
			n++;
		}
	if (n) {
		printf("\nOptions:\n");
		option_help(own, term_width());
	}
	printf("\n");
	if (guard_subcommand_takes(v, "for"))
		term_wrap("", 0,
			  "TIME is for example 30s, 10m or 2h; a number without a unit means "
			  "seconds.",
			  term_width());
	term_wrap("", 0,
		  "For the other subcommands, see gpuward guard --help and gpuward-guard(1).",
		  term_width());
	return true;
}

int64_t guard_game_pid(const char *text)
{
	char *end;
	long v = text ? strtol(text, &end, 10) : 0;

	if (text && *text && !*end && v > 0 && v <= INT32_MAX)
		return v;
	if (text)
		cli_error("--pid takes a process id, not '%s'", text);
	else
		cli_error("--pid is missing: give the process id of the game (in a GameMode "
			  "script: --pid $PPID)");
	return -1;
}

static int start_game(const struct cli *c, struct remote *r, int64_t pid, uint64_t for_ns,
		      const char *reason)
{
	struct remote_body body;
	struct json *j = remote_body_begin(&body);
	int code;

	json_int(j, "pid", pid);
	if (for_ns)
		json_double(j, "ttl_s", (double)for_ns * 1e-9);
	if (reason)
		json_string(j, "reason", reason);
	code = remote_request_ok(r, "POST", "/api/v1/guard/games", remote_body_end(&body));
	remote_body_done(&body);
	if (code == EXIT_OK && c->json)
		return remote_print(r);
	if (code == EXIT_OK && !c->quiet)
		printf("workers stay off the GPUs until process %lld ends%s\n", (long long)pid,
		       for_ns ? " or the time of --for is over" : "");
	return code;
}

int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason)
{
	char path[64];
	int code;

	if (start)
		return start_game(c, r, pid, for_ns, reason);
	snprintf(path, sizeof(path), "/api/v1/guard/games/%lld", (long long)pid);
	code = remote_request_ok(r, "DELETE", path, NULL);
	if (code == EXIT_OK && !c->quiet && !c->json)
		printf("the game of process %lld has ended\n", (long long)pid);
	return code;
}

#define MODE_PATH "/api/v1/guard/mode"

void guard_mode_print_set(const struct json_doc *reply)
{
	const struct guard_mode_set m = { json_doc_string(reply, "mode_set.mode"),
					  reply_text(reply, "mode_set.set_by", "?"),
					  reply_text(reply, "mode_set.time_utc", "?"),
					  reply_text(reply, "mode_configured", "?") };
	char text[700];

	if (!m.mode)
		return;
	guard_mode_text(&m, text, sizeof(text));
	term_wrap("", 0, text, term_table_width());
}

/* Prints what the current mode means for workers. Returns false if a new mode was set but does
 * not apply yet. */
static bool print_mode_meaning(const struct json_doc *reply)
{
	const char *mode = reply_text(reply, "mode", "unknown"),
		   *wanted = json_doc_string(reply, "mode_set.mode"), *note;
	bool later;

	note = json_doc_string(reply, "mode_note");
	printf("mode %s: %s\n", mode,
	       strcmp(mode, guard_modes[GUARD_ENFORCE]) == 0 && !note
		       ? "workers leave when another program needs their GPU"
		       : "decisions are recorded, but no worker is moved");
	if (note)
		term_wrap("", 0, note, term_table_width());
	later = wanted && strcmp(wanted, mode) != 0;
	if (later)
		printf("mode %s applies as soon as the current move of a worker has finished; "
		       "if it does not apply, see the events of the service\n",
		       wanted);
	return !later;
}

/* Prints the workers that are off the GPU and stay off, because in this mode the guard does not
 * resume them. */
static void print_stranded(struct remote *r)
{
	char names[400] = "", text[1000];
	struct buf b;
	unsigned n = 0;

	if (remote_request_ok(r, "GET", "/api/v1/guard", NULL) != EXIT_OK)
		return;
	buf_init_fixed(&b, names, sizeof(names));
	for (size_t i = 0; i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);

		if (json_doc_true(w, "stays_evicted"))
			buf_addf(&b, "%s%s", n++ ? ", " : "", reply_text(w, "name", "?"));
	}
	if (n == 0)
		return;
	snprintf(text, sizeof(text),
		 "%s: already off the GPU, and gpuward does not bring %s back in this mode. To "
		 "bring %s back, run gpuward guard mode enforce. A server that still runs may "
		 "load its model with the next request; a unit or container that was stopped "
		 "stays stopped.",
		 names, n == 1 ? "it" : "them", n == 1 ? "it" : "them");
	term_wrap("", 0, text, term_table_width());
}

static int check_mode(const char *word)
{
	const char *names[8];
	unsigned n = 0;
	const char *near;

	for (; guard_modes[n]; n++) {
		names[n] = guard_modes[n];
		if (strcmp(word, names[n]) == 0)
			return EXIT_OK;
	}
	names[n++] = "config";
	if (strcmp(word, "config") == 0)
		return EXIT_OK;
	near = suggest(word, names, n, sizeof(names[0]));
	return cli_usage("guard mode takes observe, dry-run, enforce or config, not '%s'%s%s%s",
			 word, near ? " (did you mean '" : "", near ? near : "",
			 near ? "'?)" : "");
}

static int send_mode(struct remote *r, const char *word, const char *reason)
{
	struct remote_body body;
	struct json *j;
	int code;

	if (strcmp(word, "config") == 0)
		return remote_request_ok(r, "DELETE", MODE_PATH, NULL);
	j = remote_body_begin(&body);
	json_string(j, "mode", word);
	if (reason)
		json_string(j, "reason", reason);
	code = remote_request_ok(r, "PUT", MODE_PATH, remote_body_end(&body));
	remote_body_done(&body);
	return code;
}

int guard_mode(const struct cli *c, struct remote *r, const char *word, const char *reason)
{
	const char *journal;
	bool applies;
	int code = word ? check_mode(word) : EXIT_OK;

	if (code == EXIT_OK)
		code = word ? send_mode(r, word, reason)
			    : remote_request_ok(r, "GET", "/api/v1/guard", NULL);
	if (code != EXIT_OK)
		return code;
	if (c->json)
		return remote_print(r);
	journal = reply_text(r->reply, "journal", "ok");
	applies = !c->quiet && print_mode_meaning(r->reply);
	if (!c->quiet && !word)
		guard_mode_print_set(r->reply);
	if (word && strcmp(journal, "ok") != 0)
		cli_error("note: %s", journal);
	if (applies) /* do this last, because it replaces the reply */
		print_stranded(r);
	return EXIT_OK;
}

static const struct table_column history_columns[] = {
	{ "TIME", 0, false, false },
	{ "WORKER", 0, false, false },
	{ "MOVE", 0, false, TABLE_WRAP },
	{ NULL, 0, false, false },
};
enum history_column { MOVE_TIME, MOVE_WORKER, MOVE_TEXT };

/* Writes a sentence about a move that ended with this decision. Returns false if the decision
 * did not end a move. */
static bool move_text(const struct json_doc *d, char *out, size_t size)
{
	const bool dry = json_doc_true(d, "dry_run");
	const char *cause = reply_text(d, "cause", ""), *gap = *cause ? " " : "";
	const double seconds = json_doc_number(d, "freed_seconds");
	char bytes[16], took[32] = "", evidence[400];

	figure_sizes(evidence, sizeof(evidence), reply_text(d, "evidence", ""));
	if (reply_is(d, "to", "evicted") && reply_is(d, "result", "freed")) {
		if (seconds > 0)
			snprintf(took, sizeof(took), " in %.1f s", seconds);
		snprintf(out, size, "%s its GPU%s%s; %s%s freed%s",
			 dry ? "would have left" : "left", gap, cause, dry ? "dry run, " : "",
			 dry ? "nothing was"
			     : figure_bytes(bytes, json_doc_number(d, "freed_bytes")),
			 took);
	} else if (reply_is(d, "to", "stuck") && !reply_is(d, "from", "stuck"))
		snprintf(out, size, "did not leave its GPU%s%s; %s", gap, cause, evidence);
	else if (reply_is(d, "to", "active") && reply_is(d, "from", "verify-up"))
		snprintf(out, size, "%s back: %s", dry ? "would be" : "is", evidence);
	else
		return false;
	return true;
}

static void add_move(struct table *t, const struct json_doc *d, const char *text)
{
	struct tm tm;
	char time[40];
	uint64_t ns;
	time_t s;

	table_row(t);
	table_set(t, MOVE_WORKER, TERM_BOLD, "%s", reply_text(d, "worker", "?"));
	table_set(t, MOVE_TEXT, TERM_PLAIN, "%s", text);
	if (timespec_parse(reply_text(d, "time_utc", ""), 0, &ns) != 0)
		return;
	s = (time_t)(ns / NS_PER_S);
	if (localtime_r(&s, &tm) && strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &tm))
		table_set(t, MOVE_TIME, TERM_PLAIN, "%s", time);
}

int guard_history(const struct cli *c, struct remote *r, const char *name)
{
	char path[REMOTE_PATH], text[600];
	struct table t;
	size_t moves = 0;
	int code = name ? remote_request_ok(r, "GET",
					    remote_path(path, REMOTE_WORKERS, name, ""), NULL)
			: EXIT_OK;

	if (code == EXIT_OK && (!name || !c->json))
		code = remote_request_ok(r, "GET", "/api/v1/guard?limit=128", NULL);
	if (code != EXIT_OK || c->json)
		return code == EXIT_OK ? remote_print(r) : code;
	if (json_doc_true(r->reply, "simulated"))
		term_print_simulated(stdout);
	table_init(&t, history_columns);
	for (size_t i = 0; i < json_doc_count(r->reply, "decisions"); i++) {
		const struct json_doc *d = json_doc_at(r->reply, "decisions", i);

		if ((name && !reply_is(d, "worker", name)) || !move_text(d, text, sizeof(text)))
			continue;
		add_move(&t, d, text);
		moves++;
	}
	if (moves)
		table_print(&t, term_table_width());
	else
		printf("No worker has left its GPU since the service started.\n");
	table_done(&t);
	return EXIT_OK;
}

#define LINE_BYTES_MAX (16u << 20)

/* Largest number of decisions that wait until the time of the first scene is known. */
#define WAITING_MOST 64

struct replay_decision {
	struct guard_decision decision;
	char worker[64]; /* name of the worker */
};

struct replay {
	const struct cli *cli;
	const char *path;
	struct guard_settings settings;
	/* why the configuration of the service has no policy; "": it has one */
	char missing[4000];
	struct recording_reader *trace;
	struct buf out; /* the text of one output line */
	struct replay_decision waiting[WAITING_MOST];
	unsigned waiting_count;
};

/* Reads the policy from the configuration file at path. If path is NULL, reads the
 * configuration of the service. The policy of the service is used only if the recording has
 * none, so an error is then not printed but stored in r->missing. Returns an exit code. */
static int read_policy(struct replay *r, const char *path)
{
	struct config c;
	int err = config_load(&c, path, NULL, 0, r->missing, sizeof(r->missing));

	if (!err) {
		err = guard_config_make(&c, &r->settings);
		config_done(&c);
		if (err)
			return cli_fail("%s", gw_strerror(err));
		if (!r->settings.policy.workers)
			snprintf(r->missing, sizeof(r->missing),
				 "%s has no [[worker]], so there is nothing to decide",
				 path ? path : "the configuration");
	}
	if (!path)
		return EXIT_OK;
	r->settings.policy.mode = GUARD_DRY_RUN;
	if (*r->missing)
		cli_error("%s", r->missing);
	return *r->missing ? EXIT_USAGE : EXIT_OK;
}

/* Writes one decision as JSON. `time` is NULL if the time is unknown. */
static void write_json(struct replay *r, const struct replay_decision *from, const char *time)
{
	const struct guard_decision *d = &from->decision;
	struct json j;

	json_init(&j, &r->out, false);
	json_object(&j, NULL);
	json_string(&j, "time_utc", time);
	json_string(&j, "worker", from->worker);
	json_string(&j, "from", guard_state_name(d->from));
	json_string(&j, "to", guard_state_name(d->to));
	json_array(&j, "mask");
	for (unsigned i = 0; i < GUARD_REASONS; i++)
		if (d->mask >> i & 1)
			json_string(&j, NULL, guard_reason_name(i));
	json_array_end(&j);
	json_bool(&j, "dry_run", d->dry);
	json_string(&j, "rule", *d->rule ? d->rule : NULL);
	json_string(&j, "evidence", *d->evidence ? d->evidence : NULL);
	json_object_end(&j);
	json_end(&j);
}

static void write_text(struct replay *r, const struct replay_decision *from, const char *time)
{
	const struct guard_decision *d = &from->decision;
	char text[1200], clean[1200];

	snprintf(text, sizeof(text), "%s  %s: %s to %s%s%s%s%s%s", time, from->worker,
		 guard_state_name(d->from), guard_state_name(d->to), *d->rule ? ", " : "",
		 d->rule, *d->evidence ? " (" : "", d->evidence, *d->evidence ? ")" : "");
	utf8_clean(clean, sizeof(clean), text);
	buf_addf(&r->out, "%s\n", clean);
}

static void print_decision(struct replay *r, const struct replay_decision *d)
{
	const uint64_t wall_ns = recording_wall_ns(r->trace, d->decision.mono_ns);
	char time[CLOCK_RFC3339_SIZE];

	if (wall_ns)
		clock_format_rfc3339(wall_ns, time);
	buf_clear(&r->out);
	if (r->cli->json)
		write_json(r, d, wall_ns ? time : NULL);
	else
		write_text(r, d, wall_ns ? time : "(time unknown)");
	fputs(r->out.p, stdout);
}

static void print_waiting(struct replay *r)
{
	for (unsigned i = 0; i < r->waiting_count; i++)
		print_decision(r, &r->waiting[i]);
	r->waiting_count = 0;
}

/* Prints the decisions that the latest line of the recording caused. Decisions before the first
 * scene are kept until that scene is read, because only a scene contains the date. */
static void print_decisions(struct replay *r)
{
	struct guard_decision d;
	uint64_t wall_ns;

	while (recording_next_decision(r->trace, &d, &wall_ns)) {
		struct replay_decision *next = &r->waiting[r->waiting_count++];

		next->decision = d;
		snprintf(next->worker, sizeof(next->worker), "%s",
			 recording_reader_policy(r->trace)->worker[d.worker].name);
		if (wall_ns || r->waiting_count == WAITING_MOST)
			print_waiting(r);
	}
	if (recording_wall_ns(r->trace, 0))
		print_waiting(r);
}

static FILE *open_recording(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return NULL;
	}
	return file_fopen(path);
}

static int read_lines(struct replay *r, FILE *f)
{
	struct buf line;
	unsigned long number = 0, entries = 0; /* entries: lines that are not empty */
	int err = 0, more;

	buf_init(&line, LINE_BYTES_MAX);
	/* If the last line has no newline, ignore it: the service ended while it wrote this
	 * line. */
	while (!err && (more = file_read_line(f, &line)) != 0) {
		number++;
		entries += line.len > 0;
		/* A new run begins: print the decisions that still wait, without a time. */
		if (strncmp(line.p, "begin\t", 6) == 0)
			print_waiting(r);
		err = more < 0                     ? more
		      : strlen(line.p) != line.len ? -GW_E_PARSE
						   : recording_read(r->trace, line.p);
		if (!err)
			print_decisions(r);
	}
	print_waiting(r);
	if (!err && !entries) {
		cli_error("%s %s: it is not a guard recording; name the file that record = "
			  "\"FILE\" in [guard] sets",
			  r->path,
			  line.len ? "has no complete line"
			  : number ? "has only empty lines"
				   : "is empty");
		err = -GW_E_PARSE;
	} else if (err == -GW_E_NOENT)
		cli_error("%s", r->missing);
	else if (err)
		cli_error(
			"%s:%lu: %s", r->path, number,
			err == -GW_E_PARSE ? "this is not a line of a guard recording; name "
					     "the file that record = \"FILE\" in [guard] sets"
			: err == -GW_E_NOSUPPORT ? "a newer gpuward wrote this recording; "
						   "replay it with that version"
			: err == -GW_E_SIZE
				? "this line is longer than 16 MiB: it is not a guard recording"
				: gw_strerror(err));
	buf_done(&line);
	return err == -GW_E_NOENT ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_OK;
}

static void print_summary(const struct replay *r)
{
	struct recording_counts n = recording_counts(r->trace);
	const struct guard *g = recording_reader_guard(r->trace);
	unsigned evictions = 0, would = 0;
	char text[300];

	for (unsigned i = 0; g && i < recording_reader_policy(r->trace)->workers; i++) {
		struct guard_status s;

		if (guard_status(g, i, &s) != 0)
			continue;
		evictions += s.evictions;
		would += s.would_evict;
	}
	snprintf(text, sizeof(text),
		 "%llu observations in %llu run%s of the service; last run: %u eviction%s "
		 "carried out, and %u only decided in a dry run",
		 (unsigned long long)n.scenes, (unsigned long long)n.runs,
		 n.runs == 1 ? "" : "s", evictions, evictions == 1 ? "" : "s", would);
	term_error_line("", text);
}

int guard_replay(const struct cli *c, const char *policy, const char *trace)
{
	struct replay r = { .cli = c, .path = trace };
	FILE *f = NULL;
	int code = read_policy(&r, policy);

	buf_init(&r.out, 16384);
	if (code == EXIT_OK &&
	    recording_reader_new(&r.settings.policy, policy != NULL, &r.trace) != 0)
		code = cli_no_memory();
	if (code == EXIT_OK && !(f = open_recording(trace)))
		code = cli_fail("cannot read %s: %s", trace, file_strerror(errno));
	if (code == EXIT_OK)
		code = read_lines(&r, f);
	if (code == EXIT_OK && !c->quiet)
		print_summary(&r);
	if (f)
		fclose(f);
	recording_reader_free(r.trace);
	guard_settings_done(&r.settings);
	buf_done(&r.out);
	return code;
}
