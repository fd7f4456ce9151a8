#include "guard_verb.h"

#include "base/suggest.h"
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define OPTIONS_MAX 16

static const struct guard_verb verbs[] = {
	{ "status", READS, 0, 1, "perhaps a WORKER", "", "[WORKER]",
	  "state, reasons, hold, memory and timers of each worker" },
	{ "explain", READS, 0, 1, "perhaps a WORKER", "", "[WORKER]",
	  "why: rule, evidence, who is beside it, and what can change it and when" },
	{ "evict", ASKS, 1, 1, "a WORKER, or all", "for reason", "WORKER|all [--for TIME]",
	  "moves it off its GPU now, until resume or for that time" },
	{ "resume", ASKS, 1, 1, "a WORKER, or all", "now reason", "WORKER|all [--now]",
	  "lets it come back, after the quiet time unless --now" },
	{ "hold", HOLDS, 2, 2, "evicted or active, and a WORKER, or all", "for forever reason",
	  "evicted|active WORKER|all --for TIME|--forever",
	  "keeps it out, or lets it stay whoever needs the GPU" },
	{ "pause", PAUSES, 0, 1, "perhaps a WORKER", "for forever reason",
	  "[WORKER] --for TIME|--forever",
	  "nobody is moved for others, only for heat and faults: hold active of every worker" },
	{ "snooze", SNOOZES, 1, 2, "a time such as 30m, and perhaps a WORKER", "reason",
	  "TIME [WORKER]", "pause for a time: 30s, 30m, 2h; a bare number is seconds" },
	{ "release", ASKS, 0, 1, "perhaps a WORKER", "reason", "[WORKER]",
	  "ends holds, those of pause and snooze too" },
	{ "game", GAMES, 1, 1, "start or end, and --pid PID", "pid for reason",
	  "start|end --pid PID [--for TIME]",
	  "tells that somebody plays: workers leave until the end is told or the process "
	  "ends" },
	{ "clear", CLEARS, 1, 1, "a GPU: its index or UUID", "reason", "GPU",
	  "ends the quarantine of a GPU whose fault was seen to" },
	{ "learn", LEARNS, 0, 0, "no further word", "for", "[--for TIME]",
	  "watches an idle machine and proposes rules that ignore who is always there" },
	{ "replay", REPLAYS, 1, 1, "the file of a recording", "policy", "[--policy FILE] TRACE",
	  "decides again on a recording, without a service" },
	{ "recover", RECOVERS, 0, 0, "no further word", "", "",
	  "restores processes that a checkpoint put away and a crash left there" },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static const struct guard_verb *named(const char *word)
{
	for (size_t i = 0; word && i < VERBS; i++)
		if (strcmp(verbs[i].name, word) == 0)
			return &verbs[i];
	return NULL;
}

const struct guard_verb *guard_verb_find(const char *word)
{
	const struct guard_verb *v = named(word);
	const char *near;

	if (v)
		return v;
	near = word ? suggest(word, &verbs[0].name, VERBS, sizeof(verbs[0])) : NULL;
	if (near)
		cli_error("guard does not know '%s' (did you mean '%s'?)", word, near);
	else
		cli_error("guard%s%s%s wants status, explain, evict, resume, hold, pause, "
			  "snooze, release, game, clear, learn, replay or recover",
			  word ? " does not know '" : "", word ? word : "",
			  word ? "': it" : "");
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

bool guard_verb_takes(const struct guard_verb *v, const char *option)
{
	bool asks = v->form != REPLAYS && v->form != RECOVERS;

	return has_word(v->options, option) || (asks && has_word("address token-file", option));
}

static void list_all(void)
{
	for (size_t i = 0; i < VERBS; i++) {
		printf("  %s%s%s\n", verbs[i].name, *verbs[i].usage ? " " : "", verbs[i].usage);
		term_wrap("", 6, verbs[i].does, term_width());
	}
}

bool guard_verb_help(const char *word, const struct option *options)
{
	const struct guard_verb *v = named(word);
	struct option own[OPTIONS_MAX] = { { .name = NULL } };
	char title[200];
	unsigned n = 0;

	if (!word)
		list_all();
	if (!v)
		return !word;
	snprintf(title, sizeof(title), "gpuward guard %s: %s", v->name, v->does);
	term_wrap("", 0, title, term_width());
	printf("\nUsage: gpuward guard %s%s%s\n", v->name, *v->usage ? " " : "", v->usage);
	for (const struct option *o = options; o->name && n < OPTIONS_MAX - 1; o++)
		if (guard_verb_takes(v, o->name))
			own[n++] = *o;
	if (n) {
		printf("\nOptions:\n");
		option_help(own, term_width());
	}
	printf("\n");
	term_wrap("", 0, "gpuward guard --help lists the others; gpuward-guard(1) tells more.",
		  term_width());
	return true;
}
