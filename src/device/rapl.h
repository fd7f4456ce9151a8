/* rapl: energy counters of CPU packages and their memory.
 *
 * Two ways to one set of counters: files of powercap, and the power PMU of perf where those
 * cannot be had.  Both are of the whole machine, never of a process.  What is hidden here: zones
 * that are told twice (by register and by memory, or once for each die of a package that has
 * one counter), where a counter wraps, and what lies inside what: core and uncore are parts of
 * their package, psys is more than the packages and is never added to them. */
#ifndef GW_DEVICE_RAPL_H
#define GW_DEVICE_RAPL_H

#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* An energy counter of powercap, as it stands. */
struct rapl_domain {
	char name[32];      /* "package-0", "dram", "psys", "core", ...         */
	char path[96];      /* below root, of the domain's folder               */
	int package;        /* -1: none (psys)                                  */
	int die;            /* -1: its package has but one, or none is told     */
	uint64_t range_uj;  /* the counter wraps here; 0 unknown                */
	uint64_t energy_uj; /* now, when why is GW_HAVE                         */
	enum gw_absence why;
};

/* Fills at most cap domains, in the order of their paths; returns how many there are.  Zones
 * that are told twice (intel-rapl and intel-rapl-mmio of the same package and name) are
 * listed once.  A domain that may not be read is listed with no_permission. */
unsigned rapl_list(const struct root *root, struct rapl_domain *out, unsigned cap);

/* ---- joules since a moment ---- */

#define RAPL_COUNTERS_MAX 64

enum rapl_kind {
	RAPL_PACKAGE,
	RAPL_DRAM,
	RAPL_INSIDE,   /* core, uncore: in their package already */
	RAPL_PLATFORM, /* psys: holds the packages              */
	RAPL_OTHER,
};

struct rapl_counter {
	struct rapl_domain d; /* energy_uj, why: as found by rapl_open(); of perf: no range */
	enum rapl_kind kind;
	double joules;       /* since rapl_open(), when why is GW_HAVE                     */
	enum gw_absence why; /* of the last reading                                        */
	unsigned wraps;
	/* Its own: */
	bool perf, based; /* based: what was at the beginning is known */
	int fd;
	uint64_t last;
	double joules_each; /* of a count */
};

struct rapl { /* caller's memory, about 13 KiB */
	const struct root *root;
	struct rapl_counter counter[RAPL_COUNTERS_MAX];
	unsigned count;
	unsigned doubles; /* counters that were told more than once and are counted once */
};

/* Finds the counters and takes their first reading: powercap, or where no package of that can
 * be read the power PMU.  Borrows root.  Finding none is no error: count is 0. */
void rapl_open(struct rapl *r, const struct root *root);
void rapl_close(struct rapl *r);

/* Adds to each counter what was used since the last reading.  No allocation; costs some file
 * reads, so once a second and at the edges of a measurement, not faster.  Twice within one turn
 * of the counter, which takes a minute or more: two turns look like one.  A reading that fails is
 * made good by the next; a counter that could not be read at rapl_open(), or that went back and
 * does not say where it wraps, stays absent. */
void rapl_read(struct rapl *r);

/* What the host used since rapl_open(), as of the last reading: packages and their memory. */
struct rapl_total {
	double joules;       /* NAN where why is not GW_HAVE                              */
	enum gw_absence why; /* not_present: this machine has none                        */
	enum gw_absence
		dram_why;    /* GW_HAVE: memory is in it; not_present: it is not          */
	enum gw_cause cause; /* GW_CAUSE_RAPL_PERMISSION, or none                         */
	const char *remedy;  /* how to mend that; "" where nothing helps                  */
	char missing[128];   /* the file that could not be read, or ""                    */
};
struct rapl_total rapl_total(const struct rapl *r);

#endif
