/* what_if: what would the guard decide in this scene?  Pure: a separate guard that acts on nothing.
 *
 * It observes the scene before once, so that workers are known and other processes count as new, and then the scene itself
 * for a while.  Holds, timers and the history of the running guard are not part of it. */
#ifndef GW_GUARD_WHAT_IF_H
#define GW_GUARD_WHAT_IF_H

#include "guard_query.h"

#define WHAT_IF_SCENES 300 /* at most, however long it is to last */

struct what_if;

/* p is borrowed; its mode does not count.  Begins at the time of day of s.  0 or -GW_E_NOMEM. */
int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret);
void what_if_free(struct what_if *t);

/* Runs for span_ns, or WHAT_IF_SCENES.  each is called with every decision; its mono_ns counts from the beginning. */
void what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d), void *arg);

/* Afterwards, for guard_status() and guard_verdicts(). */
const struct guard *what_if_guard(const struct what_if *t);
unsigned what_if_scenes(const struct what_if *t);
uint64_t what_if_span_ns(const struct what_if *t); /* how long it ran */

/* A scene before s, for a scene that was made up: without processes that are neither workers nor of the machine, and with
 * their memory free. */
void what_if_before(const struct policy *p, const struct scene *s, struct scene *out);

#endif
