/* capacity: how much memory is truly free, now and lately, and what would fit.  Pure. */
#ifndef GW_GUARD_CAPACITY_H
#define GW_GUARD_CAPACITY_H

#include "guard.h"
#include "health.h"

struct capacity; /* of one GPU: available bytes at 1 s for 10 min, 10 s for 24 h, 60 s for 7 days */

/* Its memory is taken at the start.  0 or -GW_E_NOMEM. */
int capacity_new(struct capacity **ret);
void capacity_free(struct capacity *c);
/* What is not later than the one before is left out. */
void capacity_add(struct capacity *c, uint64_t mono_ns, uint64_t available_bytes);

/* Kept as float: right within 1/16 777 216. */
struct capacity_past {
	uint64_t min_bytes, max_bytes; /* of no account where mean_bytes is NAN */
	double mean_bytes;             /* NAN: nothing is known of that time */
	double slope_bytes_per_s;      /* of the last ten minutes; NAN: too little */
	double full_s;                 /* until nothing is left at that slope; NAN: never */
	uint64_t span_ns;              /* of what is known: at most what was asked for */
};
/* The last span_ns before now_ns.  One thread at a time. */
void capacity_past(struct capacity *c, uint64_t now_ns, uint64_t span_ns,
		   struct capacity_past *ret);

enum capacity_fit { FIT_NOW, FIT_AFTER_EVICTION, FIT_NEVER };
struct capacity_gpu { /* what is asked of each GPU */
	char uuid[96];
	uint64_t total_bytes, free_bytes, headroom_bytes, reserved_bytes;
	bool known, quarantine, blind, warm;
	double margin_c;
	struct { /* workers on it, lowest priority first */
		char name[64];
		uint64_t bytes;
		double seconds; /* expected to free it; NAN unknown */
		bool movable;
	} worker[POLICY_WORKERS];
	unsigned workers;
};
struct capacity_answer {
	enum capacity_fit fit;
	uint64_t needed_bytes, available_bytes;
	unsigned evict[POLICY_WORKERS], evicts; /* positions in worker[] */
	double seconds;                         /* until it fits; 0 now; NAN unknown */
	char why[240];
};
/* Free less headroom and reservations; 0 where nothing is known. */
uint64_t capacity_available(const struct capacity_gpu *g);
/* Evicts from the lowest priority up, and nobody who could stay without it failing.  Seconds are a
 * sum: workers leave one after the other. */
void capacity_fit(const struct capacity_gpu *g, uint64_t bytes, struct capacity_answer *ret);
/* Best GPU first; order[i]: position in g, answers[i] is of g[i].  Those in quarantine, blind or
 * warm are left out; then what fits now, then what leaves least over, then the larger margin.  How
 * many can take it at all: the others stand behind them in order[], with their reasons. */
unsigned capacity_place(const struct capacity_gpu *g, unsigned n, uint64_t bytes,
			unsigned *order, struct capacity_answer *answers);

#endif
