/* unattributed_use: reports a GPU that is busy although no process is listed on it, or memory
 * that belongs to no listed process.
 *
 * The result is only a sentence: such memory does not count as demand and moves no worker. If
 * other processes are invisible (in a namespace), nothing is reported. */
#ifndef GW_GUARD_UNATTRIBUTED_USE_H
#define GW_GUARD_UNATTRIBUTED_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unattributed_use_facts {
	double busy_ratio;         /* utilisation of the GPU; NAN: unknown */
	unsigned processes;        /* processes that are listed on the GPU */
	double unattributed_bytes; /* NAN: unknown */
	bool hidden;               /* other processes may be invisible */
};

struct unattributed_use { /* begins zeroed */
	/* busy_ns: since when the GPU is busy without a process; memory_ns: since when memory
	 * belongs to no process; 0: not at present */
	uint64_t busy_ns, memory_ns;
};

/* Adds one reading. why: one sentence about a condition that has lasted for ten seconds, or
 * "". */
void unattributed_use_update(struct unattributed_use *g, const struct unattributed_use_facts *f,
			     uint64_t now_ns, char *why, size_t size);

#endif
