/* guard_state: writes and reads everything that a guard knows, as lines. A recording that
 * begins while the guard runs begins with these lines.
 *
 * A guard that has read the lines decides exactly what the guard that wrote them decides.
 * Recordings of format version 4 and older have other members with the same content; these
 * members are converted. */
#ifndef GW_GUARD_GUARD_STATE_H
#define GW_GUARD_GUARD_STATE_H

#include "guard.h"

struct buf;

/* True if all decisions were fetched. Only then are the lines complete. */
bool guard_state_complete(const struct guard *g);
/* Writes the lines, each with the prefix before it. Before the first scene there is nothing to
 * write. */
void guard_state_write(struct buf *out, const char *prefix, const struct guard *g);

/* State and flags of a worker in format version 4, until all lines are read and converted. */
struct guard_state_old {
	unsigned state;
	uint64_t flags; /* a set of the flags that guard_state.c lists */
};

struct guard_state_reader { /* begins zeroed */
	bool old;           /* the lines have format version 4 or older */
	struct guard_state_old worker[POLICY_WORKERS];
};

/* Reads a game as format versions 6 to 9 wrote it: "pid 4711 game.exe"; "": unknown. */
void guard_state_old_game(const char *text, struct scene_game *ret);

/* Reads the next line, without prefix and newline, into a guard with the same policy. The first
 * line resets the guard. Returns 0 or -GW_E_PARSE; 1 after the last line. */
int guard_state_read(struct guard_state_reader *r, struct guard *g, const char *line);

#endif
