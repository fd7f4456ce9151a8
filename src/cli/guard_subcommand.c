#include "guard_subcommand.h"

#include "base/suggest.h"
#include "cli.h"
#include "base/json.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 16

static const struct guard_subcommand subcommands[] = {
	{ "status", FORM_READ, 0, 1, "", "[WORKER]",
	  "shows state, reasons, hold, memory and timers of each worker" },
	{ "explain", FORM_READ, 0, 1, "", "[WORKER]",
	  "explains the state: rule, evidence, other processes, and what can change it and "
	  "when" },
	{ "evict", FORM_REQUEST, 1, 1, "for reason", "WORKER|all [--for TIME]",
	  "moves the worker off its GPU now, until resume or for TIME" },
	{ "resume", FORM_REQUEST, 1, 1, "now reason", "WORKER|all [--now]",
	  "lets the worker return: after the quiet time, or immediately with --now" },
	{ "hold", FORM_HOLD, 2, 2, "for forever reason",
	  "evicted|active WORKER|all --for TIME|--forever",
	  "keeps the worker off its GPU, or on it even if other programs need the GPU" },
	{ "pause", FORM_PAUSE, 0, 1, "for forever reason", "[WORKER] --for TIME|--forever",
	  "holds all workers, or the named one, active: only heat and faults move them" },
	{ "snooze", FORM_SNOOZE, 1, 2, "reason", "TIME [WORKER]",
	  "pauses for TIME: 30s, 30m, 2h; a bare number is seconds" },
	{ "release", FORM_REQUEST, 0, 1, "reason", "[WORKER]",
	  "ends holds, also those of pause and snooze" },
	{ "game", FORM_GAME, 1, 1, "pid for reason", "start|end --pid PID [--for TIME]",
	  "reports that a game runs: workers leave until you report its end or the process "
	  "ends" },
	{ "clear", FORM_CLEAR, 1, 1, "reason", "GPU",
	  "ends the quarantine of a GPU (index or UUID) after its fault is fixed" },
	{ "learn", FORM_LEARN, 0, 0, "for", "[--for TIME]",
	  "watches an idle machine and proposes rules that ignore the processes that always "
	  "run" },
	{ "replay", FORM_REPLAY, 1, 1, "policy", "[--policy FILE] TRACE",
	  "repeats the decisions for a recording, without a service" },
	{ "recover", FORM_RECOVER, 0, 0, "", "",
	  "restores checkpointed processes after a crash of the service" },
};
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

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

const struct guard_subcommand *guard_subcommand_find(const char *word)
{
	const struct guard_subcommand *v = subcommand_named(word);
	const char *near;

	if (v)
		return v;
	near = word ? suggest(word, &subcommands[0].name, SUBCOMMANDS, sizeof(subcommands[0]))
		    : NULL;
	if (near)
		cli_error("unknown subcommand 'guard %s' (did you mean '%s'?)", word, near);
	else
		cli_error("%s%s%s; give status, explain, evict, resume, hold, pause, snooze, "
			  "release, game, clear, learn, replay or recover",
			  word ? "unknown subcommand 'guard " : "a subcommand is missing",
			  word ? word : "", word ? "'" : "");
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

bool guard_subcommand_help(const char *word, const struct option *options)
{
	const struct guard_subcommand *v = subcommand_named(word);
	struct option own[OPTIONS_MAX] = { { .name = NULL } };
	char title[200];
	unsigned n = 0;

	if (!word)
		print_subcommands();
	if (!v)
		return !word;
	snprintf(title, sizeof(title), "gpuward guard %s: %s", v->name, v->description);
	term_wrap("", 0, title, term_width());
	printf("\nUsage: gpuward guard %s%s%s\n", v->name, *v->usage ? " " : "", v->usage);
	for (const struct option *o = options; o->name && n < OPTIONS_MAX - 1; o++)
		if (guard_subcommand_takes(v, o->name))
			own[n++] = *o;
	if (n) {
		printf("\nOptions:\n");
		option_help(own, term_width());
	}
	printf("\n");
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
		cli_error("--pid PID is missing: the process of the game (in a GameMode "
			  "script: --pid $PPID)");
	return -1;
}

static int start_game(const struct cli *c, struct remote *r, int64_t pid, uint64_t for_ns,
		      const char *reason)
{
	struct buf body;
	struct json j;
	int code;

	buf_init(&body, 4096);
	json_init(&j, &body, false);
	json_object(&j, NULL);
	json_int(&j, "pid", pid);
	if (for_ns)
		json_double(&j, "ttl_s", (double)for_ns * 1e-9);
	if (reason)
		json_string(&j, "reason", reason);
	json_object_end(&j);
	json_end(&j);
	code = remote_request_ok(r, "POST", "/api/v1/guard/games", body.p);
	buf_done(&body);
	if (code == EXIT_OK && c->json)
		return output_print(r->body.p, r->body.len);
	if (code == EXIT_OK && !c->quiet)
		printf("workers stay off the GPUs until process %lld ends%s\n", (long long)pid,
		       for_ns ? " or the time is up" : "");
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
	code = remote_request_ok(r, "DELETE", path, NULL); /* the reply is empty */
	if (code == EXIT_OK && !c->quiet && !c->json)
		printf("the game of process %lld has ended\n", (long long)pid);
	return code;
}
