/* gpu_use: checks over time how a GPU is used. budget_update() decides whether the GPU exceeds
 * its power cap, or its energy cap for today. unattributed_use_update() reports a GPU that is
 * used although no listed process uses it. Pure. */
#ifndef GW_GUARD_GPU_USE_H
#define GW_GUARD_GPU_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The power cap is exceeded when the power stays above it for five seconds, so a short peak
 * does not count. The energy cap is exceeded from the moment the day's energy is used up until
 * the next day. The excess ends when power and energy have stayed within their caps for one
 * minute. If returning workers cause a new excess, this time is doubled, up to ten minutes. */

struct budget_options {
	double power_w;  /* 0: no cap */
	double energy_j; /* per day; 0: no cap */
};

struct budget_input {
	uint64_t now_ns;
	double power_w;  /* NAN: unknown */
	double energy_j; /* energy counter of the GPU, which never falls; NAN: unknown */
	int64_t day;     /* number of the local day */
};

struct budget {        /* state of one GPU; begins zeroed */
	bool begun;    /* day and base_j are set */
	bool over;     /* a cap is exceeded */
	int64_t day;   /* day of the last input */
	double base_j; /* energy_j when the day, or the service, began */
	/* since when the power is above its cap; 0: it is not */
	uint64_t high_ns;
	/* since when no cap is exceeded, while `over` is still true; 0: a cap is exceeded */
	uint64_t under_ns;
	uint64_t cleared_ns; /* when the last excess ended; 0: never */
	uint64_t wait_ns;    /* how long all caps must be kept before an excess ends */
};

/* Adds one input. True if a cap is exceeded; why says which. Else why is "". */
bool budget_update(struct budget *b, const struct budget_options *o,
		   const struct budget_input *in, char *why, size_t size);

/* Unattributed use is a GPU that is busy although no process is listed on it, or memory that
 * belongs to no listed process. It is only reported: it does not count as demand and moves no
 * worker. If other processes are invisible (in a namespace), nothing is reported. */

struct unattributed_use_facts {
	double busy_ratio;         /* utilisation of the GPU; NAN: unknown */
	unsigned processes;        /* processes that are listed on the GPU */
	double unattributed_bytes; /* used memory without a process; NAN: unknown */
	bool hidden;               /* other processes may be invisible */
};

struct unattributed_use {   /* state of one GPU; begins zeroed */
	uint64_t busy_ns;   /* since when the GPU is busy without a process; 0: it is not */
	uint64_t memory_ns; /* since when memory belongs to no process; 0: none does */
};

/* Adds one reading. why: one sentence about a condition that has lasted for ten seconds, or
 * "". */
void unattributed_use_update(struct unattributed_use *g, const struct unattributed_use_facts *f,
			     uint64_t now_ns, char *why, size_t size);

#endif
