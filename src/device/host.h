/* host: reads the CPU utilisation, the load and the memory of the machine. */
#ifndef GW_DEVICE_HOST_H
#define GW_DEVICE_HOST_H

#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

struct host {
	const struct root *root;
	/* Clock ticks of all CPUs up to the previous reading: `busy` counts those in which a
	 * CPU was busy, `total` counts all. `total` is 0 before the first reading. */
	uint64_t busy, total;
};

struct host_report {
	double v[GW_HOST_QUANTITIES];
	uint8_t why[GW_HOST_QUANTITIES];
};

/* Initialises h. Borrows root. Takes the first CPU reading, so that the next reading can
 * compute a difference. */
void host_init(struct host *h, const struct root *root);

/* host_read() never waits. It computes CPU utilisation between this reading and the previous
 * one. If fewer than HOST_MIN_TICKS ticks lie between the two readings, CPU utilisation is
 * absent (needs_two_readings); the next call then still uses the previous reading, so that the
 * interval gets longer. */
#define HOST_MIN_TICKS 10
void host_read(struct host *h, struct host_report *ret);

/* Converts an error of root_read() and similar functions to an absence. */
enum gw_absence host_absence(long error);

/* Parses a list of CPUs such as "0-3,8,10-11" and writes the first `room` of them to cpu.
 * Returns the number of CPUs in the list, or -GW_E_PARSE. */
long host_parse_cpus(const char *text, int *cpu, unsigned room);

#endif
