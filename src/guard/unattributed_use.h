/* ghost: use of a GPU that nobody is seen to make: busy without a process, memory without an owner.
 *
 * Nothing follows from it but a sentence: such memory is no demand and nobody is moved for it.  Where
 * others cannot be seen at all (a namespace), nothing is said either. */
#ifndef GW_GUARD_UNATTRIBUTED_USE_H
#define GW_GUARD_UNATTRIBUTED_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unattributed_use_facts {
	double busy_ratio;         /* of the whole GPU; NAN: unknown */
	unsigned processes;        /* that are listed on it */
	double unattributed_bytes; /* NAN: unknown */
	bool hidden;               /* there may be others whom we cannot see */
};

struct unattributed_use {            /* begins zeroed */
	uint64_t busy_ns, memory_ns; /* since when; 0: it is not so */
};

/* "", or one sentence about what has been so for ten seconds. */
void unattributed_use_look(struct unattributed_use *g, const struct unattributed_use_facts *f,
			   uint64_t now_ns, char *why, size_t size);

#endif
