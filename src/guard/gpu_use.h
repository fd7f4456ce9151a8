/* gpu_use: checks over time how a GPU is used. budget_update() finds whether the GPU exceeds
 * its power cap or its energy cap for the day. unattributed_use_update() finds a GPU that is
 * used although no listed process uses it. Pure. */
#ifndef GW_GUARD_GPU_USE_H
#define GW_GUARD_GPU_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The power cap is exceeded when the power has been above it for five seconds, so that a short
 * peak does not count. The energy cap is exceeded when the energy of the day reaches it, and
 * stays exceeded until the next day. The state "exceeded" ends when power and energy have
 * stayed within their caps for one minute. If a cap is exceeded again soon, because workers
 * returned, this time is doubled, up to ten minutes. */

struct budget_options {
	double power_w;  /* power cap; 0: none */
	double energy_j; /* energy cap per day; 0: none */
};

struct budget_input {
	uint64_t now_ns;
	double power_w;  /* power of the GPU now; NAN: unknown */
	bool asleep;     /* the GPU is suspended, so it has almost no power */
	double energy_j; /* energy counter of the GPU, which never decreases; NAN: unknown */
	int64_t day;     /* a number that differs for each day, by local time */
};

struct budget {        /* state of one GPU; begins zeroed */
	bool begun;    /* day and base_j are set */
	bool over;     /* a cap is exceeded, or was exceeded less than wait_ns ago */
	int64_t day;   /* day of the last input */
	double base_j; /* energy_j when the day began, or when the service started */
	/* since when the power is above its cap; 0: the power is not above its cap */
	uint64_t high_ns;
	/* while `over`: since when no cap is exceeded; 0: a cap is exceeded, or this is
	 * unknown */
	uint64_t under_ns;
	uint64_t cleared_ns; /* when `over` last became false; 0: never */
	uint64_t wait_ns;    /* `over` ends after no cap was exceeded for this time */
};

/* Adds one input. Returns true if a cap is exceeded, and writes why; otherwise writes "". */
bool budget_update(struct budget *b, const struct budget_options *o,
		   const struct budget_input *in, char *why, size_t size);

/* Unattributed use means that a GPU is busy although no process is listed on it, or that used
 * memory belongs to no listed process. It is only reported: it is not a demand and moves no
 * worker. If other processes may be invisible (in a namespace), nothing is reported. */

struct unattributed_use_facts {
	double busy_ratio;         /* utilisation of the GPU; NAN: unknown */
	unsigned processes;        /* processes that are listed on the GPU */
	double unattributed_bytes; /* used memory without a process; NAN: unknown */
	bool hidden;               /* other processes may be invisible */
};

struct unattributed_use {   /* state of one GPU; begins zeroed */
	uint64_t busy_ns;   /* since when the GPU is busy without a process; 0: it is not */
	uint64_t memory_ns; /* since when much memory belongs to no process; 0: none does */
};

/* Adds one reading. Writes a sentence if one of the two conditions has lasted for ten seconds;
 * otherwise writes "". */
void unattributed_use_update(struct unattributed_use *g, const struct unattributed_use_facts *f,
			     uint64_t now_ns, char *why, size_t size);

#endif
