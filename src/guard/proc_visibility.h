/* proc_visibility: finds what this process can see of other users' processes, and which parts
 * of a policy need more privileges.
 *
 * Name, arguments and control group are visible to everyone. Reading the program needs
 * CAP_SYS_PTRACE; finding the owner of a port (by open files) needs CAP_DAC_READ_SEARCH in
 * addition. A hidden value never matches: a worker that would be found by the value is absent,
 * and a rule that uses the value never applies. */
#ifndef GW_GUARD_PROC_VISIBILITY_H
#define GW_GUARD_PROC_VISIBILITY_H

#include "policy.h"

enum proc_visibility {
	PROC_VISIBILITY_PROGRAMS = 1,
	PROC_VISIBILITY_PORTS = 2,
	PROC_VISIBILITY_ALL = 3
};

/* Returns a set of enum proc_visibility, by the current capabilities. */
unsigned proc_visibility_now(void);

/* Returns which part of the worker's match is not visible: "port" or "program"; NULL: all
 * needed parts are visible. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned visible);

/* Writes a sentence without full stop that names the workers and rules that need more
 * privileges, and what to do. False: there are no such workers or rules. */
#define PROC_VISIBILITY_TEXT 600
bool proc_visibility_missing(const struct policy *p, unsigned visible,
			     char out[static PROC_VISIBILITY_TEXT]);

/* The advice in the sentence of proc_visibility_missing(), for other messages. */
extern const char proc_visibility_remedy[];

#endif
