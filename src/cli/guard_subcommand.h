/* guard_subcommand: the table of the subcommands of `gpuward guard`, and the larger subcommands.
 *
 * A row has the arguments, the options and the description; help and errors are made from
 * it.  guard_learn.c and guard_recover.c have the subcommands of their names. */
#ifndef GW_CLI_GUARD_SUBCOMMAND_H
#define GW_CLI_GUARD_SUBCOMMAND_H

#include "cli.h"
#include "remote.h"

enum guard_form {
	FORM_READ,
	FORM_HISTORY,
	FORM_REQUEST,
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

/* Finds a subcommand.  If there is none of that name, prints an error and returns NULL. */
const struct guard_subcommand *guard_subcommand_find(const char *word);

/* Returns true if the subcommand takes the option of this name. */
bool guard_subcommand_takes(const struct guard_subcommand *v, const char *option);

/* Prints the help of one subcommand with its options, or the list of all (word NULL).  Returns
 * false if there is no such subcommand. */
bool guard_subcommand_help(const char *word, const struct option *options);

/* Parses the --pid of `gpuward guard game`.  If it is wrong, prints an error and returns -1. */
int64_t guard_game_pid(const char *text);

/* Carries out `gpuward guard game start` or `end`.  for_ns 0: until the process ends.  Returns
 * an exit code. */
int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason);

/* Prints the mode of the guard and who set it, or sets the mode.  word: a mode, "config" for
 * the configured mode, or NULL to print the mode.  Returns an exit code. */
int guard_mode(const struct cli *c, struct remote *r, const char *word, const char *reason);

/* If the reply has mode_set, prints that a person set the mode; otherwise prints nothing. */
void guard_mode_print_set(const struct json_doc *reply);

/* Prints the latest moves of all workers, or of the named worker: when it left its GPU, why, and
 * when it was back.  Returns an exit code. */
int guard_history(const struct cli *c, struct remote *r, const char *name);

/* Watches an idle machine for this long, then prints rules that ignore the processes that
 * always run.  Returns an exit code. */
int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns);

/* Repeats the decisions for a recording, without a service or a GPU.  trace: a file written by
 * [guard] record.  policy: a configuration to decide by, as a dry run.  If policy is NULL, uses
 * the policy of the recording, or else of the service, and the recorded outcomes.  Returns an
 * exit code. */
int guard_replay(const struct cli *c, const char *policy, const char *trace);

/* Restores checkpointed processes that a crashed service could not restore.  Reads the journal
 * of the service and prints what was done.  Returns an exit code. */
int guard_recover(struct cli *c);

#endif
