/* capacity: computes how much GPU memory is available, now and in the past, and on which GPU a
 * number of bytes fits. Pure. */
#ifndef GW_GUARD_CAPACITY_H
#define GW_GUARD_CAPACITY_H

#include "guard.h"
#include "health.h"

/* The history of a GPU's available bytes: one point per second for 10 min, per minute for 24 h,
 * per ten minutes for 7 days. */
struct capacity;

/* Creates a history and allocates all its memory, 96 KiB. Returns 0 or -GW_E_NOMEM. */
int capacity_new(struct capacity **ret);
void capacity_free(struct capacity *c);
/* Adds a value. Ignores a value that is not later than the previous value. */
void capacity_add(struct capacity *c, uint64_t mono_ns, uint64_t available_bytes);

struct capacity_past {
	uint64_t min_bytes, max_bytes; /* not set if mean_bytes is NAN */
	double mean_bytes;             /* NAN: nothing was recorded */
	double slope_bytes_per_s;      /* slope of the last ten minutes; NAN: too few values */
	/* seconds until no byte is available at that slope; NAN: never, or unknown */
	double full_s;
	uint64_t span_ns; /* how much of the requested span was recorded */
};
/* Summarises the last span_ns before now_ns, at most 7 days. */
void capacity_past(struct capacity *c, uint64_t now_ns, uint64_t span_ns,
		   struct capacity_past *ret);

enum capacity_fit {
	FIT_NOW,
	FIT_AFTER_EVICTION,
	FIT_NEVER,
	FIT_UNKNOWN, /* the memory of the GPU is unknown */
};
struct capacity_gpu { /* the facts about a GPU that the functions below need */
	char uuid[96];
	bool known; /* total_bytes and free_bytes are known */
	uint64_t total_bytes, free_bytes;
	uint64_t headroom_bytes; /* memory that must stay free */
	uint64_t reserved_bytes; /* memory that is reserved and not allocated yet */
	bool quarantine;         /* the GPU has a fault */
	bool blind;              /* the processes of the GPU cannot be read */
	bool warm;               /* the GPU is too warm for workers to return */
	double margin_c;         /* degrees up to the thermal limit; NAN: unknown */
	struct {                 /* workers on the GPU, lowest priority first */
		char name[64];
		uint64_t bytes; /* GPU memory that the worker holds */
		double seconds; /* expected duration of the worker's eviction; NAN: unknown */
		bool movable;   /* the guard may evict the worker */
	} worker[POLICY_WORKERS];
	unsigned workers;
};
struct capacity_answer {
	enum capacity_fit fit;
	uint64_t needed_bytes, available_bytes;
	unsigned evict[POLICY_WORKERS], evicts; /* workers to evict: positions in worker[] */
	double seconds; /* time until the bytes fit; 0: they fit now; NAN: never, or unknown */
	char why[240];  /* explains the answer */
};
/* Returns the free memory minus headroom and reservations; 0 if the memory is unknown. */
uint64_t capacity_available(const struct capacity_gpu *g);
/* Computes whether the bytes fit, and which workers must be evicted for that, the lowest
 * priority first. ret->seconds is a sum, because workers leave one after the other. */
void capacity_fit(const struct capacity_gpu *g, uint64_t bytes, struct capacity_answer *ret);
/* Sorts the GPUs, the best first: order[i] is a position in g, and answers[i] belongs to g[i].
 * GPUs where the bytes fit now are better than GPUs where workers must be evicted. In each of
 * the two groups, a GPU with fewer bytes left over is better. If these are equal, a GPU with a
 * larger thermal margin is better. Returns the number of GPUs that can take the bytes. Other
 * GPUs, and GPUs that are in quarantine, blind or warm, follow in order[]; their answers say
 * why. */
unsigned capacity_place(const struct capacity_gpu *g, unsigned n, uint64_t bytes,
			unsigned *order, struct capacity_answer *answers);

#endif
