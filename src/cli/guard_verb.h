/* guard_verb: the words of `gpuward guard`, each once: what stands after it, which options mean
 * something to it, and what it does.  Help and refusals are made of them. */
#ifndef GW_CLI_GUARD_VERB_H
#define GW_CLI_GUARD_VERB_H

#include "option.h"

#include <stdbool.h>

enum guard_form {
	READS,
	ASKS,
	HOLDS,
	PAUSES,
	SNOOZES,
	GAMES,
	CLEARS,
	LEARNS,
	REPLAYS,
	RECOVERS
};

struct guard_verb {
	const char *name;
	enum guard_form form;
	int least, most; /* words after it */
	const char *wants;
	const char *options; /* that mean something to it */
	const char *usage, *does;
};

/* NULL having said why. */
const struct guard_verb *guard_verb_find(const char *word);

/* Does the option, by its name, mean anything to it? */
bool guard_verb_takes(const struct guard_verb *v, const char *option);

/* For --help: a verb with those of the options that it takes, or with word NULL the list of
 * all.  False, having printed nothing: there is no such verb. */
bool guard_verb_help(const char *word, const struct option *options);

#endif
