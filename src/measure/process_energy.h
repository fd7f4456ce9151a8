/* process_energy: counts the energy of each process on one GPU while the service runs, and
 * keeps the recent history of the largest processes (process_history_*, below).
 *
 * It follows the energy counter of the GPU and divides each increase among the processes that
 * are on the GPU (attribute.h). Memory is bounded: when a row is needed, the row of an exited
 * process is freed, and its energy is added to `former`. The rows, `former`, the idle energy,
 * the unattributed energy and the energy from before the first reading always add up to the
 * counter. */
#ifndef GW_MEASURE_PROCESS_ENERGY_H
#define GW_MEASURE_PROCESS_ENERGY_H

#include "base/clock.h"
#include "base/proc_id.h"
#include "attribute.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* Number of processes with a row of their own. One more row sums all other processes. */
#define PROCESS_ENERGY_ROWS (ATTRIBUTE_ROWS - 1)

struct process_energy {
	struct attribute shares;
	struct process_energy_row {
		double begin_j; /* value of the counter when the row began */
		/* Joules of the row at the two times of process_energy.mark_j. */
		double mark_j[2];
		double before_j; /* joules of the row before the last process_energy_add() */
		/* Number of the last process_energy_add() (counted in `steps`) in which the
		 * process was present. */
		uint64_t seen;
	} row[ATTRIBUTE_ROWS]; /* same indices as shares.row */
	uint64_t steps;
	/* mark_j: joules of the counter at two recent times, the older one first. mark_s:
	 * seconds of the counter at the newer time. A share of the power is the mean since the
	 * older time, because the joules of a GPU arrive in batches. */
	double mark_j[2], mark_s;
	double former_joules;  /* joules of rows that were freed */
	double earlier_joules; /* value of the counter at the first process_energy_add() */
	double counter_j, counter_s;
	bool begun;
};

/* The parts of the counter. They add up to its value. */
struct process_energy_sums {
	double processes_joules, former_joules, idle_joules, unattributed_joules;
	double earlier_joules;
	/* False: the shares of the processes include the idle power of the GPU. */
	bool idle_known;
	bool known; /* False: no energy was counted yet. */
};

/* no_context_w and context_w are the idle power of the GPU without and with a CUDA context, as
 * in attribute_init(). */
void process_energy_init(struct process_energy *e, double no_context_w, double context_w);

/* Divides the increase of the counter since the last call among the processes that are on the
 * GPU now. The first call only stores the counter. `uses` has each process once. If `hidden` is
 * true, there may be processes that are not in `uses`, as in attribute_add(). If there are more
 * than PROCESS_ENERGY_ROWS processes, the part of those without a row is unattributed. If the
 * counter decreased, nothing is divided, and the next call continues from the new value. */
void process_energy_add(struct process_energy *e, double counter_j, double counter_s,
			const struct attribute_use *uses, size_t n, bool hidden);

/* Adds to the counter the joules and seconds that an earlier run of the service counted. */
void process_energy_shift(struct process_energy *e, double joules, double seconds);

/* Returns the row of a process; NULL: the process has no row. Sets *ret_ratio to the process's
 * share of the GPU's energy in about the last 3 to 6 s; NAN: unknown. */
const struct attribute_row *process_energy_find(const struct process_energy *e,
						struct proc_id id, double *ret_ratio);

/* Returns the joules that the last process_energy_add() gave to a process; NAN: the process has
 * no row. */
double process_energy_step(const struct process_energy *e, struct proc_id id);

/* Sums the energy of the processes that are present, and the other parts of the counter. */
void process_energy_sum(const struct process_energy *e, struct process_energy_sums *ret);

/* process_history: keeps memory, utilisation and power of the largest processes on one GPU for
 * the last 15 minutes, in memory only.
 *
 * Each process has a ring of steps of ten seconds; a step holds the mean of its readings.
 * Memory is bounded: if all rings are in use, a new process takes the ring of a process that
 * exited or that uses less memory. The functions are pure: the caller passes the time. */

#define PROCESS_HISTORY_ROWS    16
#define PROCESS_HISTORY_POINTS  90
#define PROCESS_HISTORY_STEP_NS (10 * NS_PER_S)

enum process_history_figure {
	PROCESS_HISTORY_MEMORY, /* bytes */
	PROCESS_HISTORY_SM,     /* share of time in which multiprocessors were busy, 0 to 1 */
	PROCESS_HISTORY_POWER,  /* watts */
	PROCESS_HISTORY_FIGURES
};

/* Returns the key of a figure in JSON, such as "memory_bytes". */
const char *process_history_key(unsigned figure);

struct process_history_row {
	struct proc_id id;
	int gpu_instance; /* GPU instance (MIG); -1: none */
	char name[64];
	uint64_t first, last; /* numbers of the first and last step with a reading */
	double bytes;         /* memory at the last reading; 0: unknown */
	struct {
		unsigned count; /* number of readings in the last step */
		/* Mean of each step, at index step number modulo PROCESS_HISTORY_POINTS. NAN:
		 * unknown. */
		float mean[PROCESS_HISTORY_POINTS];
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

/* Adds a reading. For each reading of the GPU, call it once per process, then
 * process_history_forget() once. If there is no memory, the process has no history. */
void process_history_add(struct process_history *h, uint64_t now_ns,
			 const struct process_history_reading *r);

/* Frees the rings without a reading in the last 15 minutes. */
void process_history_forget(struct process_history *h, uint64_t now_ns);
void process_history_done(struct process_history *h);

/* Returns the mean of a figure in a step; NAN: unknown, or no longer stored. */
double process_history_at(const struct process_history_row *r, unsigned figure, uint64_t step);

#endif
