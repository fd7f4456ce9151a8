/* proc_visibility: what this process can see of other users' processes, and which parts of a
 * policy need more.
 *
 * Name, arguments and control group are visible to everyone.  The program needs CAP_SYS_PTRACE;
 * the owner of a port (its open files) needs CAP_DAC_READ_SEARCH in addition.  What is hidden
 * never matches: a worker that is found by it is absent, and such a rule never holds. */
#ifndef GW_GUARD_PROC_VISIBILITY_H
#define GW_GUARD_PROC_VISIBILITY_H

#include "policy.h"

enum proc_visibility {
	PROC_VISIBILITY_PROGRAMS = 1,
	PROC_VISIBILITY_PORTS = 2,
	PROC_VISIBILITY_ALL = 3
};

/* Set of enum proc_visibility, by the current capabilities. */
unsigned proc_visibility_now(void);

/* What the worker is found by but is not visible: "port" or "program"; NULL: nothing. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned visible);

/* A sentence without full stop that names the workers and rules concerned, and what to do;
 * false: there are none. */
#define PROC_VISIBILITY_TEXT 600
bool proc_visibility_missing(const struct policy *p, unsigned visible,
			     char out[static PROC_VISIBILITY_TEXT]);

/* What to do, for other sentences. */
extern const char proc_visibility_remedy[];

#endif
