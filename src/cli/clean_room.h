/* clean_room: keeps the guard's workers off the GPUs that are measured.
 *
 * Each worker that may be on one of them is held evicted through the service, as gpuward guard
 * hold does, and only these: nothing else is touched.  A hold of ours is a lease: it is short,
 * a thread renews it, and it ends by itself where we are killed.  Who is held or evicted by
 * somebody else already is left as he is, and never released; where such a hold ends meanwhile,
 * ours takes its place.  One that somebody else released or changed is no longer ours. */
#ifndef GW_CLI_CLEAN_ROOM_H
#define GW_CLI_CLEAN_ROOM_H

#include "cli.h"
#include "remote.h"
#include "runner.h"

#include "serve/render_result.h"

/* Options of a command that has it. */
struct clean_room_flags {
	const char *wait; /* NULL: no clean room */
	struct remote_flags remote;
};
#define CLEAN_ROOM_OPTIONS(type, member)                                                      \
	{ "clean-room",                                                                       \
	  0,                                                                                  \
	  OPTION_OPTIONAL,                                                                    \
	  offsetof(type, member.wait),                                                        \
	  "TIME",                                                                             \
	  "the service's guard holds its workers off these GPUs meanwhile; wait so long for " \
	  "them to leave (default: 1m)",                                                      \
	  NULL,                                                                               \
	  "1m" },                                                                             \
		REMOTE_OPTIONS_OF(type, member.remote)

struct clean_room;

/* Are they in order?  EXIT_OK or EXIT_USAGE, having said why. */
int clean_room_check(const struct clean_room_flags *f);

/* Holds the workers and waits until they are out.  EXIT_OK and *ret, also where none was asked
 * for; else an exit code, having said why, and nobody is held.  The meter of the runner has
 * started, and its signals are ours: one that comes ends the waiting.  *ret is to be ended with
 * clean_room_free(). */
int clean_room_new(const struct cli *c, const struct clean_room_flags *f, struct runner *runner,
		   struct clean_room **ret);

/* Lets them come back, and says where the room was not kept.  Once: later calls do nothing. */
void clean_room_end(struct clean_room *r);

/* After the end: what is to be told of it, until it is freed.  NULL is fine. */
const struct measured_room *clean_room_told(const struct clean_room *r);

/* "ollama was held off": for a line of a result. */
void clean_room_line(const struct measured_worker *w, char *out, size_t size);

void clean_room_free(struct clean_room *r); /* ends it; NULL is fine */

#endif
