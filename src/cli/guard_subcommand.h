/* guard_verb: the table of the subcommands of `gpuward guard`, and the subcommand `game`.
 *
 * A row has the arguments, the options and the description; help and errors are made from
 * it. */
#ifndef GW_CLI_GUARD_SUBCOMMAND_H
#define GW_CLI_GUARD_SUBCOMMAND_H

#include "option.h"
#include "cli.h"
#include "remote.h"

#include <stdbool.h>
#include <stdint.h>

enum guard_form {
	VERB_READ,
	VERB_REQUEST,
	VERB_HOLD,
	VERB_PAUSE,
	VERB_SNOOZE,
	VERB_GAME,
	VERB_CLEAR,
	VERB_LEARN,
	VERB_REPLAY,
	VERB_RECOVER
};

struct guard_verb {
	const char *name;
	enum guard_form form;
	int least, most;     /* number of arguments */
	const char *options; /* the options that it takes, separated by blanks */
	const char *usage, *description;
};

/* Returns NULL, after printing an error, if there is no such subcommand. */
const struct guard_verb *guard_verb_find(const char *word);

/* Returns true if the subcommand takes the option of this name. */
bool guard_verb_takes(const struct guard_verb *v, const char *option);

/* For --help: prints one subcommand and its options, or the list of all (word NULL).  Returns
 * false if there is no such subcommand. */
bool guard_verb_help(const char *word, const struct option *options);

/* gpuward guard game start|end.  guard_game_pid() parses --pid; it returns -1 if that is wrong,
 * after printing an error. */
int64_t guard_game_pid(const char *text);

/* for_ns 0: until the process ends.  Returns an exit code. */
int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason);

#endif
