/* attribute: divides the energy of one GPU among its processes.
 *
 * It takes intervals of about a second, each with the energy of the device and the processes on
 * it, and splits this energy into rows that add up to the energy of the device. Energy that
 * cannot be assigned is its own row (`unattributed`) and is never spread over the visible
 * processes. Pure: nothing is allocated, and no share is below 0. */
#ifndef GW_MEASURE_ATTRIBUTE_H
#define GW_MEASURE_ATTRIBUTE_H

#include "base/proc_id.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTRIBUTE_ROWS 64

/* How a share was found, best first. */
enum attribute_how {
	ATTRIBUTE_MEASURED, /* the process was alone on the device */
	/* the energy was divided among several processes by their utilisation */
	ATTRIBUTE_MODELLED,
	/* there were several processes; the utilisation of at least one is unknown */
	ATTRIBUTE_EQUAL_SPLIT,
	ATTRIBUTE_HOWS
};

/* One process on the device during an interval. */
struct attribute_use {
	struct proc_id id;
	/* mean SM utilisation over the interval, 0 to 1; any other value means unknown */
	double sm_ratio;
	char name[32];
};

struct attribute_row {
	struct proc_id id;
	char name[32];
	double joules;
	double seconds;         /* time of the intervals in which the process was present */
	enum attribute_how how; /* the least accurate method that was used for this process */
};

struct attribute {
	/* idle power of the device without and with idle contexts; NAN: unknown */
	double no_context_w, context_w;
	/* If the idle power is unknown, idle_joules is 0, and the shares of the processes
	 * include the idle energy. */
	bool idle_known;
	/* If the idle power with contexts is unknown, the cost of contexts is not separated. */
	bool context_known;
	double seconds; /* duration of all intervals */
	/* Energy that belongs to no process: the energy of the idle board, and energy of
	 * unknown origin. If there are more processes than rows, the energy of those without a
	 * row is unattributed. */
	double idle_joules, unattributed_joules;
	unsigned count;
	struct attribute_row row[ATTRIBUTE_ROWS];
};

/* Returns "measured", "modelled" or "equal-split"; "" for a number past the last method. */
const char *attribute_how_name(unsigned how);

/* Sets the idle power of the device without and with idle contexts; NAN (or below 0):
 * unknown. */
void attribute_init(struct attribute *a, double no_context_w, double context_w);

/* Adds one interval: the joules of the device in these seconds, and its processes.
 * - The idle energy of the board, no_context_w x seconds, is subtracted first.
 * - A single process gets all of the remaining energy (measured).
 * - Several processes share the cost of having contexts (context_w - no_context_w) in equal
 *   parts. They share the energy above this cost in proportion to their mean SM utilisation
 *   (modelled).
 * - If the utilisation of a process is unknown, this process gets an equal part of the energy
 *   above the cost. Every share of the interval is then a guess (equal-split).
 * - Without a process the remaining energy is unattributed.
 * - If hidden is true, there may be processes that we cannot see (MIG, another pid namespace).
 *   All energy of the interval is then unattributed.
 *
 * A process that is listed twice gets one share, by its larger utilisation. If there are more
 * processes than rows, the first processes get the rows. Returns 0, or -GW_E_ARG for impossible
 * values; nothing is added then. */
int attribute_add(struct attribute *a, double joules, double seconds,
		  const struct attribute_use *uses, size_t n, bool hidden);

/* Ends the attribution: scales every row so that the rows, idle_joules and unattributed_joules
 * add up to total_joules to the last bit in any order, and sorts the processes, most joules
 * first. If no energy was added, everything is unattributed. Returns 0, or -GW_E_ARG for an
 * impossible total; then the rows are unchanged. Do not add intervals afterwards. */
int attribute_finish(struct attribute *a, double total_joules);

#endif
