/* clean_room: keeps the guard's workers off the measured GPUs.
 *
 * It holds each worker that may be on such a GPU evicted through the service, as `gpuward guard
 * hold` does.  Each hold is a lease: it is short, a thread renews it, and it ends if gpuward is
 * killed.  A worker that someone else already holds or evicts is left unchanged and never
 * released; if that hold ends, ours replaces it.  If someone else releases or changes our hold,
 * we leave it so. */
#ifndef GW_CLI_CLEAN_ROOM_H
#define GW_CLI_CLEAN_ROOM_H

#include "cli.h"
#include "remote.h"
#include "runner.h"

#include "serve/render_result.h"

/* Options of a command with --clean-room. */
struct clean_room_flags {
	const char *wait; /* NULL: no clean room */
	struct remote_flags remote;
};
#define CLEAN_ROOM_OPTIONS(type, member)                                               \
	OPTION_OPTIONAL_ROW(0, "clean-room", offsetof(type, member.wait), "TIME",      \
			    "let the guard of the service hold its workers off these " \
			    "GPUs; wait up to TIME for them to leave (default: 1m)",   \
			    "1m"),                                                     \
		REMOTE_OPTIONS_OF(type, member.remote)

struct clean_room;

/* Checks the options.  Returns EXIT_OK or EXIT_USAGE. */
int clean_room_check(const struct clean_room_flags *f);

/* Holds the workers and waits until they have left.  Returns EXIT_OK (with *ret NULL if none
 * was requested), or an exit code; then no worker is held.  The meter of the runner has
 * started; a signal to the runner ends the wait.  Free *ret with clean_room_free(). */
int clean_room_new(const struct cli *c, const struct clean_room_flags *f, struct runner *runner,
		   struct clean_room **ret);

/* Releases the workers and reports those that did not stay away.  Later calls do nothing. */
void clean_room_end(struct clean_room *r);

/* Returns the record for the result; valid after clean_room_end() until clean_room_free().  r
 * may be NULL. */
const struct measured_room *clean_room_record(const struct clean_room *r);

/* Prints a row per worker: "ollama was held off".  r may be NULL; indent: as term_row(). */
void clean_room_print(const struct measured_room *r, unsigned indent);

void clean_room_free(struct clean_room *r); /* ends it; r may be NULL */

#endif
