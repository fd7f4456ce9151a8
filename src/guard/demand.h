/* demand: finds the processes that need a GPU (GUARD-MACHINE.md, Demand). The module is pure,
 * and its memory has a fixed size.
 *
 * The module remembers for each contender when the contender appeared, when it last grew and
 * how busy it was. It also remembers the most memory that each program ever held: this memory
 * predicts what the program needs when it runs again. The guard decides whether a worker must
 * leave. */
#ifndef GW_GUARD_DEMAND_H
#define GW_GUARD_DEMAND_H

#include "classify.h"

#include "base/text.h"

#define DEMAND_EXES 256 /* number of programs of which the peak memory is remembered */

/* Weakest first. */
enum demand_kind {
#define D(symbol, word, name) DEMAND_##symbol,
#include "demand.def"
	DEMAND_KINDS
};
const char *demand_kind_name(unsigned k);

struct demand_case {
	enum demand_kind kind; /* the strongest kind */
	/* the demand comes from a contend-now rule, a game or a graphics process, so it does
	 * not have to wait */
	bool urgent;
	/* bytes that the contenders are expected to allocate in addition; UINT64_MAX: unknown,
	 * or the demand is not about memory */
	uint64_t more_bytes;
	struct contender contender; /* the strongest contender */
	int64_t uid;                /* its user; -1: unknown */
	char rule[64]; /* the kind of demand, and the rule that makes the process a contender */
	char evidence[200]; /* the process, its bytes and its GPU, as text */
};

/* A contender on one GPU, while it lives. In the comments of this struct, "it" is the
 * contender. */
struct demand_life {
	int64_t pid;
	uint64_t start_ticks;
	uint64_t gpu;        /* demand_hash() of the GPU's UUID */
	uint64_t exe;        /* demand_exe.exe of its program; 0: unknown */
	uint64_t first_ns;   /* when it appeared; 0: it was in the first scene */
	uint64_t grown_ns;   /* when it last grew; 0: never */
	uint64_t mark_bytes; /* its bytes when it appeared, or when it last grew */
	uint64_t peak_bytes; /* the most bytes that it held */
	double busy_ratio;   /* its last known utilisation */
	uint64_t busy_ns;    /* when busy_ratio was read; 0: not yet */
	bool seen;           /* it is in the present scene */
};

/* A program, identified by a hash of its path. For an interpreter the hash includes the command
 * line. */
struct demand_exe {
	uint64_t exe;
	uint64_t peak_bytes; /* the most memory that an ended process of this program held */
	uint64_t used_ns;    /* when its last process ended; 0: this entry is unused */
};

struct demand {
	bool begun; /* at least one scene was observed */
	struct demand_life life[SCENE_PROCESSES];
	unsigned lives;
	struct demand_exe exe[DEMAND_EXES];
};

uint64_t demand_hash(const char *text);
/* Returns the entry of a process on a GPU; NULL: there is none. gpu is demand_hash() of the
 * GPU's UUID. */
struct demand_life *demand_life_find(const struct demand *d, const struct scene_process *p,
				     uint64_t gpu);
const struct demand_exe *demand_exe_find(const struct demand *d, uint64_t exe);
/* Adds a scene to the history. Before the first call, all bytes of d must be zero. */
void demand_observe(struct demand *d, const struct scene *s, const struct verdict *v);

/* Finds the strongest demand on a GPU, by the worker's thresholds k. gpu: the position of the
 * GPU in s, the last scene. */
void demand_judge(const struct demand *d, const struct policy *p, const struct policy_knobs *k,
		  const struct scene *s, const struct verdict *v, unsigned gpu,
		  struct demand_case *ret);

/* Returns the kind of demand of one process. Sets *ret_most to the most memory that its program
 * ever held (UINT64_MAX: unknown). */
enum demand_kind demand_of(const struct demand *d, const struct policy *p,
			   const struct policy_knobs *k, const struct scene *s,
			   const struct verdict *v, unsigned process, uint64_t *ret_most);

/* True if the demand is sure after it has lasted for held_ns and was found in this number of
 * scenes. */
bool demand_sure(const struct demand_case *c, const struct policy_knobs *k, uint64_t held_ns,
		 unsigned scenes);

/* Returns the larger of headroom_bytes and headroom_ratio of the board's memory. */
uint64_t demand_headroom(const struct policy_knobs *k, uint64_t total_bytes);

/* Writes a process as "pid 4711 game.exe". The name is cleaned by text_clean(). */
void demand_process_text(int64_t pid, const char *name, char *out, size_t size);

#endif
