/* clean_room: keeps the guard's workers off the measured GPUs during a measurement. It requests
 * a hold from the service for each worker that may use such a GPU, as `gpuward guard hold`
 * does. Each hold is a short lease that a thread renews, so the hold ends soon if gpuward is
 * killed. A hold by someone else is never changed or released; when it ends, gpuward requests a
 * hold of its own. If someone else releases gpuward's hold or holds the worker active, gpuward
 * does not request its hold again. */
#ifndef GW_CLI_CLEAN_ROOM_H
#define GW_CLI_CLEAN_ROOM_H

#include "cli.h"
#include "remote.h"
#include "runner.h"

#include "serve/render_result.h"

/* Options of a command with --clean-room. */
struct clean_room_flags {
	const char *wait; /* Value of --clean-room. NULL: the option is not given. */
	struct remote_flags remote;
};
#define CLEAN_ROOM_OPTIONS(type, member)                                               \
	OPTION_OPTIONAL_ROW(0, "clean-room", offsetof(type, member.wait), "TIME",      \
			    "let the guard of the service keep its workers off these " \
			    "GPUs; wait up to TIME for them to leave (default: 1m)",   \
			    "1m"),                                                     \
		REMOTE_OPTIONS_OF(type, member.remote)

struct clean_room;

/* Checks the options.  Returns EXIT_OK or EXIT_USAGE. */
int clean_room_check(const struct clean_room_flags *f);

/* Requests the hold "evicted" for the workers and waits until they have left. The meter of the
 * runner must have started; a signal to the runner ends the wait. Returns EXIT_OK with *ret,
 * which is NULL if --clean-room is not given. Otherwise returns an exit code, and no worker is
 * held. Free *ret with clean_room_free(). */
int clean_room_new(const struct cli *c, const struct clean_room_flags *f, struct runner *runner,
		   struct clean_room **ret);

/* Releases the workers and reports those that did not stay away.  Later calls do nothing. */
void clean_room_end(struct clean_room *r);

/* Returns the record for the result.  It is valid from clean_room_end() to clean_room_free().
 * r may be NULL. */
const struct measured_room *clean_room_record(const struct clean_room *r);

/* Prints a row per worker: "ollama was kept off the GPUs". r may be NULL; indent has the same
 * meaning as in term_row(). */
void clean_room_print(const struct measured_room *r, unsigned indent);

void clean_room_free(struct clean_room *r); /* Also calls clean_room_end(). r may be NULL. */

#endif
