/* what_if: computes what the guard would decide in a scene. Pure: it uses a separate guard that
 * acts on nothing.
 *
 * This guard first observes an earlier scene once, so that workers are known and other
 * processes count as new. Then it observes the scene itself for a while. Holds, timers and the
 * history of the running guard do not count. */
#ifndef GW_GUARD_WHAT_IF_H
#define GW_GUARD_WHAT_IF_H

#include "guard_query.h"

#define WHAT_IF_SCENES 300 /* maximum number of scenes, however long the span is */

struct what_if;

/* p is borrowed; its mode is not used. The run begins at the time of day of s. Returns 0 or
 * -GW_E_NOMEM. */
int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret);
void what_if_free(struct what_if *t);

/* Runs for span_ns, or for WHAT_IF_SCENES scenes. Calls `each` with every decision; the
 * decision's mono_ns counts from the beginning of the run. Calls `more` before every scene; NULL:
 * no limit. Returns false if `more` returned false, which ends the run. */
bool what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d),
		 bool (*more)(void *arg), void *arg);

/* Returns the guard after the run, for guard_status() and guard_verdicts(). */
const struct guard *what_if_guard(const struct what_if *t);
unsigned what_if_scenes(const struct what_if *t);
uint64_t what_if_span_ns(const struct what_if *t); /* how long it ran */

/* Makes an earlier scene for an invented scene s. It keeps the processes of workers, of this
 * program, of the system, and those that a rule ignores. All other processes are left out, and
 * their memory is free. */
void what_if_before(const struct policy *p, const struct scene *s, struct scene *out);

#endif
