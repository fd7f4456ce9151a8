/* demand: does somebody need a GPU (GUARD-MACHINE.md, Needs)?  Pure, in a fixed amount of memory.
 *
 * Remembers of each contender on each GPU when it came, when it last grew and how busy it was, and of
 * each program the most it ever held, from which its need is predicted when it comes again.  Whether
 * a worker must leave for it is for the guard to say. */
#ifndef GW_GUARD_DEMAND_H
#define GW_GUARD_DEMAND_H

#include "classify.h"

#include "base/text.h"

#define DEMAND_EXES 256

/* Weakest first. */
enum demand_kind {
	DEMAND_NONE,
	DEMAND_ANY,          /* preset any: somebody is there       */
	DEMAND_UNATTRIBUTED, /* memory that nobody owns             */
	DEMAND_PRESSURE,     /* little is free and somebody is new  */
	DEMAND_UTILISATION,
	DEMAND_MEMORY,
	DEMAND_GAME, /* GameMode has clients                */
	DEMAND_NOW,  /* a rule says contend-now             */
	DEMAND_KINDS
};
const char *demand_kind_name(unsigned k);

struct demand_case {
	enum demand_kind kind;
	bool urgent; /* a rule's, a game's or a graphics client's: nothing damps it */
	/* What the contenders are still expected to take; UINT64_MAX: not known, or not a matter of
	 * memory. */
	uint64_t more_bytes;
	int64_t pid; /* of the strongest; 0: nobody's */
	int64_t uid; /* likewise; -1: not known */
	char rule[64];
	char evidence[200];
};

struct demand_life {
	int64_t pid;
	uint64_t start_ticks, gpu, exe;
	uint64_t first_ns, grown_ns; /* 0: it was there before us */
	uint64_t mark_bytes;         /* growth is counted from here */
	uint64_t peak_bytes;
	double busy_ratio;
	uint64_t busy_ns; /* when that was told; 0: never */
	bool seen;
};

/* A program by the hash of its path; of an interpreter also of the command line. */
struct demand_exe {
	uint64_t exe;
	uint64_t peak_bytes; /* of lives that ended */
	uint64_t used_ns;
};

struct demand {
	bool begun;
	struct demand_life life[SCENE_PROCESSES];
	unsigned lives;
	struct demand_exe exe[DEMAND_EXES];
};

/* Takes a look into the history.  d begins zeroed. */
void demand_look(struct demand *d, const struct scene *s, const struct verdict *v);

/* The strongest case on a GPU (position in the scene that was last looked at) by the numbers k, none
 * of which is left open. */
void demand_judge(const struct demand *d, const struct policy *p, const struct policy_knobs *k,
		  const struct scene *s, const struct verdict *v, unsigned gpu,
		  struct demand_case *ret);

/* What one process of the scene asks for, and the most that its program ever held (UINT64_MAX: not known). */
enum demand_kind demand_of(const struct demand *d, const struct policy *p,
			   const struct policy_knobs *k, const struct scene *s,
			   const struct verdict *v, unsigned process, uint64_t *ret_most);

/* Debounce met, for a case that has held for `held_ns` in `samples` looks? */
bool demand_sure(const struct demand_case *c, const struct policy_knobs *k, uint64_t held_ns,
		 unsigned samples);

/* max(bytes, ratio of the board) */
uint64_t demand_headroom(const struct policy_knobs *k, uint64_t total_bytes);

/* Names of processes are the world's: this makes one printable. */
void demand_name(char out[16], const char *name);

#endif
