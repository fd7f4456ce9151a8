/* trial: what would be decided if this were so?  Pure: a guard of its own, which acts on nothing.
 *
 * It sees the scene before, once, so that workers are known and whoever is not in it counts as new; and
 * then the scene itself, again and again, for a while.  What the running guard remembers (holds, timers,
 * who came when) is not part of it. */
#ifndef GW_GUARD_WHAT_IF_H
#define GW_GUARD_WHAT_IF_H

#include "guard_query.h"

#define WHAT_IF_SCENES 300 /* at most so many, however long it is to last */

struct what_if;

/* Of p, which is borrowed, all but its mode counts.  It begins at the time of day of s.  0 or -GW_E_NOMEM. */
int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret);
void what_if_free(struct what_if *t);

/* Runs it for span_ns, or WHAT_IF_SCENES.  each gets every decision; its mono_ns counts from the beginning. */
void what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d), void *arg);

/* After it: for guard_status() and guard_verdicts(). */
const struct guard *what_if_guard(const struct what_if *t);
unsigned what_if_looks(const struct what_if *t);
uint64_t what_if_span_ns(const struct what_if *t); /* what it lasted */

/* A scene that somebody made up has no scene before: *out is s without whom the policy does not know as its
 * own or the machine's, and their memory is free. */
void what_if_before(const struct policy *p, const struct scene *s, struct scene *out);

#endif
