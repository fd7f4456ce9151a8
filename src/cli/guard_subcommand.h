/* guard_subcommand: the table of the subcommands of `gpuward guard`, and the functions of the
 * larger subcommands.
 *
 * A row contains the arguments, the options and the description of a subcommand; help and error
 * messages are made from it. The subcommands learn and recover are in guard_learn.c and
 * guard_recover.c. */
#ifndef GW_CLI_GUARD_SUBCOMMAND_H
#define GW_CLI_GUARD_SUBCOMMAND_H

#include "cli.h"
#include "remote.h"

/* Which function carries out a subcommand. */
enum guard_form {
	FORM_READ, /* status and explain */
	FORM_HISTORY,
	FORM_REQUEST, /* a request with the name of the subcommand: evict, resume, release */
	FORM_HOLD,
	FORM_PAUSE,
	FORM_SNOOZE,
	FORM_GAME,
	FORM_MODE,
	FORM_CLEAR,
	FORM_LEARN,
	FORM_REPLAY,
	FORM_RECOVER
};

struct guard_subcommand {
	const char *name;
	enum guard_form form;
	int least, most;     /* smallest and largest number of arguments */
	const char *options; /* options that the subcommand takes, separated by blanks */
	const char *usage, *description;
};

/* Returns subcommand number i, or NULL after the last. */
const struct guard_subcommand *guard_subcommand_at(size_t i);

/* Finds a subcommand. word may be NULL. If there is no such subcommand, prints an error and
 * returns NULL. */
const struct guard_subcommand *guard_subcommand_find(const char *word);

/* Returns true if the subcommand takes the option with this name. */
bool guard_subcommand_takes(const struct guard_subcommand *v, const char *option);

/* Prints the help of the subcommand `word`, or the list of all subcommands if word is NULL.
 * `options` is the table of the command guard. Returns false if there is no such subcommand. */
bool guard_subcommand_help(const char *word, const struct option *options);

/* Parses the value of --pid for `gpuward guard game`. If the value is missing (NULL) or wrong,
 * prints an error and returns -1. */
int64_t guard_game_pid(const char *text);

/* Carries out `gpuward guard game start` or `gpuward guard game end`. The game ends when its
 * process ends, or after for_ns if for_ns is not 0. Returns an exit code. */
int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason);

/* If word is NULL, prints the mode of the guard and who set it. Otherwise sets the mode; the
 * word "config" means the configured mode. Returns an exit code. */
int guard_mode(const struct cli *c, struct remote *r, const char *word, const char *reason);

/* If a person set the mode at run time (the reply has mode_set), prints who set it, and when.
 * Otherwise prints nothing. */
void guard_mode_print_set(const struct json_doc *reply);

/* Prints the latest moves of all workers, or of the worker `name`: when it left its GPU, why,
 * and when it returned. Returns an exit code. */
int guard_history(const struct cli *c, struct remote *r, const char *name);

/* Watches an idle machine for the time for_ns, then prints rules with which the guard ignores
 * the processes that always run. Returns an exit code. */
int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns);

/* Repeats the decisions of the guard for a recording, without a service or a GPU. `trace` is a
 * recording, which the setting guard.record writes. `policy` is a configuration file; the
 * decisions are then a dry run with its workers and rules. If policy is NULL, uses the recorded
 * outcomes and the policy in the recording; if the recording has no policy, uses that of the
 * service. Returns an exit code. */
int guard_replay(const struct cli *c, const char *policy, const char *trace);

/* Restores the processes that were checkpointed when the service crashed. Finds them in the
 * journal of the service and prints what was done. Returns an exit code. */
int guard_recover(struct cli *c);

#endif
