/* classify: finds the class of each process of a scene: this program, a worker, a contender and
 * others (GUARD-MACHINE.md, Classes of processes). Pure.
 *
 * The first of these that fits decides: this program, a worker, orphans, a rule of the user,
 * processes that may be a worker, programs of the desktop (system.def). The profile decides
 * about all others. With policy.any, programs of the desktop and all others are contenders. */
#ifndef GW_GUARD_CLASSIFY_H
#define GW_GUARD_CLASSIFY_H

#include "scene.h"

enum guard_class {
	CLASS_SELF, /* this program */
	CLASS_WORKER,
	CLASS_SYSTEM,  /* a program of the desktop (system.def) */
	CLASS_IGNORED, /* a rule has the action ignore or watch */
	CLASS_CONTENDER,
	CLASS_ORPHAN, /* the driver lists the process, but the kernel does not */
	/* no rule matches the process, and the profile does not make it a contender */
	CLASS_UNKNOWN,
	GUARD_CLASSES
};
const char *guard_class_name(unsigned c);

struct verdict {
	enum guard_class class;
	/* for CONTENDER: contend or contend-now; for other classes: watch or ignore */
	enum guard_action action;
	/* for WORKER: the worker's position in the policy; for other classes: -1 */
	int worker;
	int also; /* a second worker that matches equally well; -1: none */
	int rule; /* position of the rule that decided; -1: no rule of the policy decided */
	const char *why; /* what decided, such as "rule 3 (gpuward.toml:41)" */
	/* for UNKNOWN: the program is hidden, so the process may be a worker */
	bool maybe_worker;
};

/* The process that causes a demand. */
struct contender {
	int64_t pid; /* 0: no process causes the demand, or the process is unknown */
	char name[SCENE_NAME_BYTES + 1]; /* by text_clean(); "": unknown */
	bool bytes_known;
	uint64_t bytes; /* GPU memory that the process held at that time */
	bool game;      /* the process is registered as a game */
};

/* A policy with its compiled regular expressions, to classify many scenes. Borrows the policy.
 * An expression that does not compile matches nothing; the reader of the configuration already
 * refuses such an expression. Returns 0 or -GW_E_NOMEM. */
struct classifier;
int classifier_new(const struct policy *p, struct classifier **ret);
void classifier_free(struct classifier *c);

/* Writes one verdict per process, in the order of the scene. */
void classifier_run(const struct classifier *c, const struct scene *s, struct verdict *ret);

/* Does the same as classifier_run() for a single scene, without a classifier. */
void classify(const struct policy *p, const struct scene *s, struct verdict *ret);

/* Returns the worker with the root process that is nearest to p; -1: none. If several workers
 * have the same distance, returns the first in the policy. */
int classifier_worker(const struct classifier *c, const struct scene *s,
		      const struct scene_process *p);

/* True if p fits the worker's match, apart from pidfile and port. Bytes, utilisation, type and
 * GPU are compared only if on_gpu is true. s is used only for these four. */
bool classifier_fits(const struct classifier *c, const struct scene *s, unsigned worker,
		     const struct scene_process *p, bool on_gpu);

/* Compares the command line of p with all patterns and stores the results in p. Later
 * classifications by the same policy use these results. The scene thread calls this function,
 * because one match can take 15 ms, and the main thread must not wait for hundreds of
 * matches. */
void classifier_match_command(const struct classifier *c, struct scene_process *p);

/* Returns why an extended regular expression is refused, as the end of a sentence; NULL: the
 * expression is accepted. Back-references are refused, because a match could take hours.
 * Without them, the time for one match grows with two numbers: the length of the command line
 * (at most 159 bytes), and the square of the number of atoms that are repeated or match several
 * characters. With at most 48 such atoms, the slowest match took 15 ms (test_classify.c). */
#define CLASSIFY_PATTERN_MAX  1000
#define CLASSIFY_PATTERN_WIDE 48
const char *classify_pattern_fault(const char *pattern);

/* True if the pattern fits the name of a process, or the path of its program. Patterns may use
 * the wildcards * and ?. The kernel cuts a name to 15 bytes, so a longer pattern is compared by
 * its first 15 bytes. */
bool classify_name_fits(const char *pattern, const char *name);
bool classify_exe_fits(const char *pattern, const char *exe);

/* True if path is the control group of this unit, or a group below it. "ollama" means
 * "ollama.service". The unit belongs to the system or, if `user` is true, to the service
 * manager of a user. A group that a unit creates below itself does not count as a unit,
 * whatever its name is. */
bool classify_in_unit(const char *path, const char *unit, bool user);

/* Writes a sentence of at most 200 bytes about a process that belongs to two workers
 * (verdict.also). */
void classify_conflict(const struct policy *p, const struct scene_process *one,
		       const struct verdict *v, char *out, size_t size);

/* True if a worker shares its GPU through NVIDIA's multi-process service (MPS). A process that
 * uses MPS cannot be checkpointed, because its memory belongs to the MPS server. v has one
 * verdict per process of s. */
bool classify_mps_serves_worker(const struct scene *s, const struct verdict *v);

#endif
