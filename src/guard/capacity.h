/* capacity: how much GPU memory is available, now and in the past, and what would fit.
 * Pure. */
#ifndef GW_GUARD_CAPACITY_H
#define GW_GUARD_CAPACITY_H

#include "guard.h"
#include "health.h"

/* The available bytes of one GPU: every second for 10 min, 10 s for 24 h, 60 s for 7 days. */
struct capacity;

/* Allocates all its memory.  0 or -GW_E_NOMEM. */
int capacity_new(struct capacity **ret);
void capacity_free(struct capacity *c);
/* Ignores a value that is not later than the one before. */
void capacity_add(struct capacity *c, uint64_t mono_ns, uint64_t available_bytes);

/* Stored as float: exact to 1/16 777 216. */
struct capacity_past {
	uint64_t min_bytes, max_bytes; /* not set if mean_bytes is NAN */
	double mean_bytes;             /* NAN: nothing was recorded */
	double slope_bytes_per_s;      /* of the last ten minutes; NAN: too few values */
	double full_s;    /* seconds until none is available at that slope; NAN: never */
	uint64_t span_ns; /* that was recorded; at most the requested one */
};
/* The last span_ns before now_ns.  One thread at a time. */
void capacity_past(struct capacity *c, uint64_t now_ns, uint64_t span_ns,
		   struct capacity_past *ret);

enum capacity_fit { FIT_NOW, FIT_AFTER_EVICTION, FIT_NEVER };
struct capacity_gpu { /* input, per GPU */
	char uuid[96];
	uint64_t total_bytes, free_bytes, headroom_bytes, reserved_bytes;
	bool known, quarantine, blind, warm;
	double margin_c;
	struct { /* workers on it, lowest priority first */
		char name[64];
		uint64_t bytes;
		double seconds; /* that its eviction will take; NAN: unknown */
		bool movable;
	} worker[POLICY_WORKERS];
	unsigned workers;
};
struct capacity_answer {
	enum capacity_fit fit;
	uint64_t needed_bytes, available_bytes;
	unsigned evict[POLICY_WORKERS], evicts; /* positions in worker[] */
	double seconds;                         /* until it fits; 0: now; NAN: unknown */
	char why[240];
};
/* Free memory less headroom and reservations; 0 if it is unknown. */
uint64_t capacity_available(const struct capacity_gpu *g);
/* Evicts from the lowest priority up, and only workers that must leave for it to fit.  seconds
 * is a sum: workers leave one after the other. */
void capacity_fit(const struct capacity_gpu *g, uint64_t bytes, struct capacity_answer *ret);
/* Orders the GPUs, best first: order[i] is a position in g, answers[i] belongs to g[i].  Those
 * that fit now come first, then those with the least left over, then those with the larger
 * thermal margin.  Returns how many can take it; the others follow in order[] with their
 * reasons, as do GPUs that are in quarantine, blind or warm. */
unsigned capacity_place(const struct capacity_gpu *g, unsigned n, uint64_t bytes,
			unsigned *order, struct capacity_answer *answers);

#endif
