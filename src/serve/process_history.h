/* process_history: keeps memory, utilisation and power of the largest processes on one GPU for
 * the last quarter of an hour, in memory only.
 *
 * Each process has a ring of steps of ten seconds; a step holds the mean of its readings.
 * Memory is bounded: if all rings are in use, a new process takes the ring of a process that
 * left or of a smaller process. The functions are pure: the caller passes the time. */
#ifndef GW_SERVE_PROCESS_HISTORY_H
#define GW_SERVE_PROCESS_HISTORY_H

#include "base/proc_id.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define PROCESS_HISTORY_ROWS    16
#define PROCESS_HISTORY_POINTS  90
#define PROCESS_HISTORY_STEP_NS UINT64_C(10000000000)

enum process_history_figure {
	PROCESS_HISTORY_MEMORY, /* bytes */
	PROCESS_HISTORY_SM,     /* ratio */
	PROCESS_HISTORY_POWER,  /* watts */
	PROCESS_HISTORY_FIGURES
};

/* Returns the key of a figure in JSON, such as "memory_bytes". */
const char *process_history_key(unsigned figure);

struct process_history_row {
	struct proc_id id;
	int gpu_instance; /* -1: none */
	char name[64];
	uint64_t first, last; /* numbers of the first and last step with a reading */
	double bytes;         /* memory at the last reading; 0: unknown */
	struct {
		unsigned count;                     /* readings in the last step */
		float mean[PROCESS_HISTORY_POINTS]; /* by number of the step; NAN: unknown */
	} figure[PROCESS_HISTORY_FIGURES];
};

struct process_history {
	struct process_history_row *row[PROCESS_HISTORY_ROWS]; /* NULL: not used */
};

/* One reading of a process; NAN: unknown. */
struct process_history_reading {
	struct proc_id id;
	int gpu_instance;
	const char *name; /* NULL: unknown */
	double value[PROCESS_HISTORY_FIGURES];
};

/* Adds a reading at a monotonic time. Call it once per process and reading, then
 * process_history_forget(). Out of memory: the process has no history. */
void process_history_add(struct process_history *h, uint64_t now_ns,
			 const struct process_history_reading *r);

/* Frees the rings without a reading in the kept time. */
void process_history_forget(struct process_history *h, uint64_t now_ns);
void process_history_done(struct process_history *h);

/* Returns the mean of a figure in a step; NAN: unknown, or not kept. */
double process_history_at(const struct process_history_row *r, unsigned figure, uint64_t step);

#endif
