/* attribute: whose the joules of one GPU were.
 *
 * Pure: it is fed intervals of about a second, each with the energy that the device took and
 * who was on it, and splits them into rows that add up to the device.  What cannot be laid at
 * somebody's door is a row too (`unattributed`), never spread over those who were seen.
 *
 * An interval is split as follows, each step from what the one before left over:
 *   idle       what the board takes without anybody on it, no_context_w
 *   one alone  everything else is its own: measured
 *   several    what having contexts costs (context_w - no_context_w), in equal parts; the
 *              rest by the mean SM utilisation of each over the interval: modelled.  One whose
 *              utilisation is not known is given an equal part of the rest, and the others
 *              share what is left; every share of that interval is then a guess: equal-split
 *   nobody     unattributed
 * No share is ever below 0.  The caller's memory, of a fixed size; nothing is allocated. */
#ifndef GW_MEASURE_ATTRIBUTE_H
#define GW_MEASURE_ATTRIBUTE_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTRIBUTE_ROWS 64

/* How a share was found, best first. */
enum attribute_how {
	ATTRIBUTE_MEASURED,
	ATTRIBUTE_MODELLED,
	ATTRIBUTE_EQUAL_SPLIT,
	ATTRIBUTE_HOWS
};

/* One process on the device during an interval; pid and start_ticks are who it is. */
struct attribute_use {
	int64_t pid;
	uint64_t start_ticks; /* 0: unknown */
	double sm_ratio;      /* mean over the interval, 0 to 1; anything else: unknown */
	char name[32];
};

struct attribute_row {
	int64_t pid;
	uint64_t start_ticks;
	char name[32];
	double joules;
	double seconds;         /* of intervals that it was there in */
	enum attribute_how how; /* the weakest used */
};

struct attribute {
	double no_context_w, context_w; /* NAN: unknown */
	bool idle_known;    /* false: idle_joules is 0 because the idle power is not known, and
			       the processes carry it */
	bool context_known; /* false: nothing was split as the cost of having a context */
	bool crowded;       /* there were more processes than rows: theirs is unattributed */
	double seconds;
	double idle_joules, unattributed_joules;
	unsigned count;
	struct attribute_row row[ATTRIBUTE_ROWS];
};

/* "measured", "modelled", "equal-split"; "" past the end. */
const char *attribute_how_name(unsigned how);

/* Idle power of the device without a context and with idle ones; NAN (or below 0): unknown. */
void attribute_init(struct attribute *a, double no_context_w, double context_w);

/* One interval: the joules that the device took in these seconds, and who was on it.  A process
 * that is listed twice counts once, with the larger utilisation of the two.  hidden: there may
 * be others that cannot be seen (MIG, another pid namespace), so all of it is unattributed.
 * Rows are given to who comes first.  0, or -GW_E_ARG: no energy or time that can be, and
 * nothing is added. */
int attribute_add(struct attribute *a, double joules, double seconds,
		  const struct attribute_use *uses, size_t n, bool hidden);

/* Ends it: scales every row so that processes, idle and unattributed add up to energy_total_joules to
 * the last bit, in whatever order they are added, and sorts the processes, most joules first.
 * Where no energy was added all of it is unattributed.  0, or -GW_E_ARG: no energy that can be,
 * and the rows are left as they were added.  Nothing may be added after it. */
int attribute_finish(struct attribute *a, double energy_total_joules);

#endif
