/* classify: who is who among the processes of a scene (GUARD-MACHINE.md, Who is who).  Pure.
 *
 * In this order: we ourselves, a worker's, an orphan, what a rule of the user's says, a program of the
 * machine (system.def), and then the profile.  With policy.any all that is left after the rules contends,
 * the desktop too. */
#ifndef GW_GUARD_CLASSIFY_H
#define GW_GUARD_CLASSIFY_H

#include "scene.h"

enum guard_class {
	CLASS_SELF,
	CLASS_WORKER,
	CLASS_SYSTEM,
	CLASS_IGNORED, /* a rule says ignore, or watch (then its action is that) */
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
	int also;       /* another worker that it is as much; -1: none */
	int rule;       /* of the policy; -1: built in or the profile's */
	const char *why; /* a few words: "rule 3 (gpuward.toml:41)", "built in: gnome-shell" */
	bool maybe_worker; /* of an UNKNOWN: it cannot be seen that it is not a worker's */
};

/* A policy whose regular expressions are compiled: whoever classifies ten times a second keeps one.
 * Borrows the policy.  0 or -GW_E_NOMEM; an expression that does not compile matches nobody (whoever reads
 * the configuration has refused it). */
struct classifier;
int classifier_new(const struct policy *p, struct classifier **ret);
void classifier_free(struct classifier *c);

/* One verdict a process, in order. */
void classifier_run(const struct classifier *c, const struct scene *s, struct verdict *ret);

/* The same for once. */
void classify(const struct policy *p, const struct scene *s, struct verdict *ret);

/* Whose process it is: position of the worker, or -1.  Below the nearest of several roots; of several
 * workers equally near the first of the policy. */
int classifier_worker(const struct classifier *c, const struct scene *s,
		      const struct scene_process *p);

/* Does what the worker is known by, but for pidfile and port, hold for p?  Bytes, utilisation, type and
 * GPU are asked only where on_gpu. */
bool classifier_fits(const struct classifier *c, const struct scene *s, unsigned worker,
		     const struct scene_process *p, bool on_gpu);

/* One field each, as a match has it: * and ? stand for others; the kernel's 15 bytes of a longer name. */
bool classify_name_fits(const char *pattern, const char *name);
bool classify_exe_fits(const char *pattern, const char *exe);

/* Is the control group at path of this unit, or below it?  "ollama" means "ollama.service".  The unit is the
 * system's, or with user one of a user's manager; what a unit names below itself is neither. */
bool classify_in_unit(const char *path, const char *unit, bool user);

/* Of a process that is of two workers (verdict.also): a sentence, at most 200 bytes. */
void classify_conflict(const struct policy *p, const struct scene_process *one,
		       const struct verdict *v, char *out, size_t size);

#endif
