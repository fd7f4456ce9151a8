/* rapl: energy counters of CPU packages and their memory, for the whole machine.
 *
 * There are two ways to read the same counters: the files of powercap, and the power PMU of
 * perf if powercap is not readable. This module hides that counters wrap, and that one counter
 * can appear as two or more zones (through the register and through memory, or once per die of
 * its package). It also hides that counters overlap: the package counter includes core and
 * uncore; psys includes the packages, so it is never added to them. */
#ifndef GW_DEVICE_RAPL_H
#define GW_DEVICE_RAPL_H

#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* An energy counter of powercap with its current value. */
struct rapl_domain {
	char name[32];      /* "package-0", "dram", "psys", "core", ... */
	char path[96];      /* folder of the domain, below root */
	int package;        /* -1: none (psys) */
	int die;            /* -1: unknown, or the package has only one die */
	uint64_t range_uj;  /* After this value, the counter restarts at 0. 0: unknown. */
	uint64_t energy_uj; /* current value, if `why` is GW_HAVE */
	enum gw_absence why;
};

/* Fills at most cap domains, in the order of their paths, and returns how many there are. A
 * zone that exists twice (intel-rapl and intel-rapl-mmio with the same package and name) is
 * listed once. A domain that we have no permission to read has reason no_permission. */
unsigned rapl_list(const struct root *root, struct rapl_domain *out, unsigned cap);

#define RAPL_COUNTERS_MAX 64

enum rapl_kind {
	RAPL_PACKAGE,
	RAPL_DRAM,
	RAPL_INSIDE,   /* core and uncore, which are parts of their package */
	RAPL_PLATFORM, /* psys, which includes the packages */
	RAPL_OTHER,
};

struct rapl_counter {
	/* The domain as rapl_open() has read it. A counter of perf has no range. */
	struct rapl_domain d;
	enum rapl_kind kind;
	double joules;       /* since rapl_open(), if `why` is GW_HAVE */
	enum gw_absence why; /* why the last reading has no value; GW_HAVE: it has a value */
	unsigned wraps;      /* how often the counter wrapped since rapl_open() */
	/* Only rapl.c uses the members below. */
	bool perf;          /* This is a counter of the power PMU, not of powercap. */
	bool based;         /* The value at the start is known. */
	int fd;             /* for perf: the open counter; -1: not open */
	uint64_t last;      /* last value of the counter */
	double joules_each; /* joules per count */
};

/* The counters of the machine. The struct is in the caller's memory and has about 13 KiB. */
struct rapl {
	const struct root *root;
	struct rapl_counter counter[RAPL_COUNTERS_MAX];
	unsigned count;
};

/* Finds the counters and reads them once: powercap or, if no package is readable there, the
 * power PMU. Borrows root. If there is no counter, count is 0; this is not an error. */
void rapl_open(struct rapl *r, const struct root *root);
void rapl_close(struct rapl *r);

/* Adds what each counter counted since the last reading. Allocates nothing. It reads some
 * files, so call it once per second and at the start and end of a measurement, not more often.
 * Call it at least twice in the time in which a counter wraps (a minute or more), because two
 * wraps look like one. If a reading fails, the next one includes the energy of both intervals.
 * A counter that rapl_open() could not read, or that decreased without a known range, stays
 * absent. */
void rapl_read(struct rapl *r);

/* Energy of the host from rapl_open() to the last reading: packages and their memory. */
struct rapl_total {
	double joules;       /* NAN if `why` is not GW_HAVE */
	enum gw_absence why; /* GW_ABSENT_NOT_PRESENT if the machine has no counters */
	/* GW_HAVE if the memory is included, GW_ABSENT_NOT_PRESENT if it has no counter. */
	enum gw_absence dram_why;
	enum gw_cause cause; /* GW_CAUSE_RAPL_PERMISSION, or none */
	const char *remedy;  /* how to fix the cause; "": there is no remedy */
	char missing[128];   /* the file that could not be read, or "" */
};
struct rapl_total rapl_total(const struct rapl *r);

#endif
