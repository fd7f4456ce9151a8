/* guard_state: everything that a guard knows, as lines.  A recording that begins while the guard runs begins with them.
 *
 * A guard that read them decides exactly what the guard that wrote them decides.  Recordings of form 4 and older have
 * other members with the same content; guard_state_old.c maps them. */
#ifndef GW_GUARD_GUARD_STATE_H
#define GW_GUARD_GUARD_STATE_H

#include "guard.h"

struct buf;

/* Have all decisions been fetched?  Only then are the lines complete. */
bool guard_state_complete(const struct guard *g);
/* Adds prefix before each line.  Before the first scene there is nothing to write. */
void guard_state_write(struct buf *out, const char *prefix, const struct guard *g);

/* What lines of form 4 said of a worker, until all of them are read. */
struct guard_state_old {
	unsigned state;
	uint64_t flags; /* by their position in guard_state_old.c */
};

struct guard_state_reader { /* begins zeroed */
	bool old;
	struct guard_state_old worker[POLICY_WORKERS];
};

/* The next line without prefix and newline, for a guard with the same policy; the first line makes it forget what it
 * knows.  0 or -GW_E_PARSE; 1 after the last line. */
int guard_state_read(struct guard_state_reader *r, struct guard *g, const char *line);

/* guard_state_old.c: a line of a worker, and what follows from all of them.  0 or -GW_E_PARSE. */
struct guard_worker;
int guard_state_old_line(struct guard_state_old *o, struct guard_worker *w, const char *line);
int guard_state_old_end(const struct guard_state_old *o, struct guard_worker *w);

#endif
