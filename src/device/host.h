/* host: the machine around the GPUs: CPU, memory, RAPL energy domains. */
#ifndef GW_DEVICE_HOST_H
#define GW_DEVICE_HOST_H

#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

struct host {
	const struct root *root;
	uint64_t busy, total; /* ticks of the previous reading; total 0: none yet */
};

struct host_report {
	double v[GW_HOST_QUANTITIES];
	uint8_t why[GW_HOST_QUANTITIES];
};

/* Borrows root.  Takes the first CPU reading, so that the next one has something to differ
 * from. */
void host_init(struct host *h, const struct root *root);

/* Never waits: CPU utilisation is the difference to the previous reading; with fewer than
 * HOST_MIN_TICKS ticks in between it is absent (needs_two_readings) and the previous reading
 * stays, so the next call has a longer one. */
#define HOST_MIN_TICKS 10
void host_read(struct host *h, struct host_report *ret);

/* Why a file of the machine could not be read, from the error of root_read() and its like. */
enum gw_absence host_absence(long error);

/* An energy counter of the CPU side.  RAPL through powercap. */
struct rapl_domain {
	char name[32];      /* "package-0", "dram", "psys", "core", ...         */
	char path[96];      /* below root, of the domain's folder               */
	int package;        /* -1: none (psys)                                  */
	uint64_t range_uj;  /* the counter wraps here; 0 unknown                */
	uint64_t energy_uj; /* now, when why is GW_HAVE                         */
	enum gw_absence why;
};

/* Fills at most cap domains, in the order of their paths; returns how many there are.  Zones
 * that are told twice (intel-rapl and intel-rapl-mmio of the same package and name) are
 * listed once.  A domain that may not be read is listed with no_permission. */
unsigned rapl_list(const struct root *root, struct rapl_domain *out, unsigned cap);

#endif
