/* classify: who is who among the processes of a scene (guard.md §4).  Pure. */
#ifndef GW_GUARD_CLASSIFY_H
#define GW_GUARD_CLASSIFY_H

#include "scene.h"

enum guard_class {
	CLASS_SELF,
	CLASS_WORKER,
	CLASS_SYSTEM,
	CLASS_IGNORED,
	CLASS_CONTENDER,
	CLASS_ORPHAN,
	CLASS_UNKNOWN, /* no rule, and the profile does not make it a contender */
	GUARD_CLASSES
};
const char *guard_class_name(unsigned c);

struct verdict {
	enum guard_class class;
	enum guard_action
		action; /* of a CONTENDER: contend or contend-now; of others: watch or ignore */
	int worker;     /* of a WORKER: which; else -1 */
	int rule;       /* of the policy; -1: built in or the profile's */
	const char *why; /* a few words: "rule 3 (gpuward.toml:41)", "built in: gnome-shell" */
};

/* One verdict a process, in order. */
void classify(const struct policy *p, const struct scene *s, struct verdict *ret);

/* What is wrong with a policy that can be seen on a scene: two workers match one process.  How many
 * sentences, each at most 200 bytes. */
unsigned classify_conflicts(const struct policy *p, const struct scene *s, char out[][200],
			    unsigned max);

#endif
