/* guard_state: all that a guard knows, as lines: a recording that begins while it runs begins with them.
 *
 * Fed with the same, one that read them decides what the one that wrote them decides, to the bit.  Not a part of the
 * library. */
#ifndef GW_GUARD_GUARD_STATE_H
#define GW_GUARD_GUARD_STATE_H

#include "guard.h"

struct buf;

/* Has it said all that it decided?  Only then are the lines all of it. */
bool guard_state_complete(const struct guard *g);
/* Adds prefix before each line; after a look, else there is nothing to be added. */
void guard_state_write(struct buf *out, const char *prefix, const struct guard *g);
/* The next line without prefix and newline, of a guard with the same policy that was told nothing, or whatever: with the
 * first line it knows nothing any more.  0 or -GW_E_PARSE; whole with the last line, whose answer is 1. */
int guard_state_read(struct guard *g, const char *line);

#endif
