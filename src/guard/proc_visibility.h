/* sight: what this process may see of other users' processes, and what of a policy needs more.
 *
 * A service without rights reads name, arguments and control group of everybody.  Which program a process runs it sees
 * with CAP_SYS_PTRACE alone, and who listens on a port (whose open file that is) with CAP_DAC_READ_SEARCH beside it.  What
 * cannot be seen fits no match: a worker that is known by it is absent, and a rule never holds. */
#ifndef GW_GUARD_PROC_VISIBILITY_H
#define GW_GUARD_PROC_VISIBILITY_H

#include "policy.h"

enum sight { PROC_VISIBILITY_PROGRAMS = 1, PROC_VISIBILITY_PORTS = 2, PROC_VISIBILITY_ALL = 3 };

unsigned proc_visibility_now(void); /* set of enum sight, by the capabilities of now */

/* What worker is known by, and cannot be seen by: "port" or "program"; NULL: nothing. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned sight);

/* A sentence without full stop that names workers and rules, and what to do; false: nothing is missing. */
#define PROC_VISIBILITY_TEXT 600
bool proc_visibility_missing(const struct policy *p, unsigned sight,
			     char out[static PROC_VISIBILITY_TEXT]);

/* What to do, for other sentences. */
extern const char sight_remedy[];

#endif
