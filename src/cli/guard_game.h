/* guard_game: gpuward guard game start|end: tells the guard that somebody plays. */
#ifndef GW_CLI_GUARD_GAME_H
#define GW_CLI_GUARD_GAME_H

#include "cli.h"
#include "remote.h"

#include <stdbool.h>
#include <stdint.h>

/* Whose game it is, in the words of the command line: a number, or -1 having said what is
 * wrong. */
int64_t guard_game_pid(const char *text);

/* for_ns 0: as long as the process.  An exit code. */
int guard_game(const struct cli *c, struct remote *r, bool start, int64_t pid, uint64_t for_ns,
	       const char *reason);

#endif
