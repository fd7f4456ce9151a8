/* workload_energy: counts the energy, time and memory of each workload on each GPU.
 *
 * It sums the joules of the processes (process_energy.h) per GPU and workload, so a process
 * that moves to another control group is charged to the new workload from then on. The rows of
 * a GPU and its rests (enum workload_rest) always add up to the energy counter of the GPU.
 * Memory is bounded: the rows of a workload that ended some time ago are freed, and their
 * joules are added to WORKLOAD_FORMER. */
#ifndef GW_MEASURE_WORKLOAD_ENERGY_H
#define GW_MEASURE_WORKLOAD_ENERGY_H

#include "device/workload.h"
#include "attribute.h"

#include <gpuward.h>

#define WORKLOAD_ROWS_MAX 512
/* Number of rows per GPU with a series of their own in the metrics. All other rows are summed
 * in one series. */
#define WORKLOAD_SERIES_MAX 20
/* The series of an ended workload exists for at least this time, even if another workload needs
 * a series. */
#define WORKLOAD_SERIES_S 60

/* Energy of a GPU that no row contains. */
enum workload_rest {
	WORKLOAD_IDLE,         /* No process was on the GPU, and the GPU was idle. */
	WORKLOAD_UNATTRIBUTED, /* It is unknown which process used the energy. */
	WORKLOAD_FORMER,       /* Energy of ended workloads whose rows were freed. */
	WORKLOAD_EARLIER,      /* Energy from before the service began to count. */
	WORKLOAD_RESTS
};

/* One workload on one GPU. A part of a workload (a container of a pod, a step of a job) has a
 * row of its own. */
struct workload_row {
	struct workload workload;
	char user[32]; /* user of its first process; "": unknown */
	unsigned gpu;
	/* Wall time of the first and of the last tick with a process. */
	uint64_t begin_wall_ns, end_wall_ns;
	/* Time in which the workload had a process on the GPU. */
	double gpu_seconds;
	double joules; /* energy that was charged to the workload */
	/* The part of `joules` that was charged while no other workload was on the GPU. */
	double alone_joules;
	/* Energy of the whole GPU while other workloads were on it too. */
	double shared_joules;
	enum attribute_how how; /* the least exact method by which energy was charged */
	bool charged;           /* Energy was charged. False: `absence` says why not. */
	double charged_seconds; /* the part of gpu_seconds for which energy was charged */
	enum gw_absence absence;
	double memory_peak_bytes; /* highest memory_bytes so far; NAN: unknown */
	/* sm_sum: sum of sm_ratio times seconds; sm_seconds: sum of these seconds */
	double sm_sum, sm_seconds;
	unsigned processes; /* number of processes on the GPU now; 0: none */
	/* Sums over the processes of the last tick that had a process. NAN: unknown for at
	 * least one process. */
	double memory_bytes, sm_ratio, power_w;
	/* Used by the metrics. The series of the row contains the joules above
	 * series_from_j. */
	bool has_series;
	double series_from_j;
};

struct workload_gpu {
	bool begun;       /* The counter was read at least once. */
	bool was_empty;   /* No process was on the GPU at the last tick. */
	double counter_j; /* energy counter at the last tick */
	/* Energy that no row contains. WORKLOAD_FORMER has only energy that was in a series of
	 * a row. */
	double rest_j[WORKLOAD_RESTS];
	/* Energy that was never in a series of a row: the energy of rows that were freed
	 * without a series, and the energy that a row used before it got a series. */
	double other_j;
};

struct workload_energy;
/* Called before the rows of an ended workload are freed. `row` is one of these rows. */
typedef void workload_ended_fn(void *arg, const struct workload_energy *e, unsigned row);

struct workload_energy {
	struct workload_row *row;
	unsigned count, cap;
	struct workload_gpu *gpu;
	unsigned gpus;
	workload_ended_fn *ended;
	void *arg;
};

/* One process on a GPU at a tick. */
struct workload_use {
	const struct workload *workload;
	const char *user;        /* NULL: unknown */
	double step_joules;      /* joules since the last tick; NAN: unknown, see `absence` */
	enum gw_absence absence; /* why the energy is unknown */
	enum attribute_how how;
	double memory_bytes, sm_ratio, power_w; /* NAN: unknown */
};

/* One tick of a GPU. Its processes are a separate argument of workload_energy_tick(). */
struct workload_step {
	double counter_j; /* energy counter of the GPU; NAN: unknown */
	double seconds;   /* time since the last tick */
	uint64_t wall_ns;
	bool processes_known; /* The process list was read. False: `uses` is empty. */
	bool still;           /* The readings show that the GPU was idle. */
};

/* Returns 0 or -GW_E_NOMEM. ended may be NULL. */
int workload_energy_init(struct workload_energy *e, unsigned gpus, workload_ended_fn *ended,
			 void *arg);
void workload_energy_done(struct workload_energy *e);

/* Forgets GPU i; the caller has stored its rows. */
void workload_energy_reset(struct workload_energy *e, unsigned i);

/* Adds the tick s of GPU i with the n processes in `uses`. Charges each step_joules to the row
 * of its workload, and the remaining increase of the counter to WORKLOAD_IDLE or
 * WORKLOAD_UNATTRIBUTED. If the counter decreased, nothing is charged, and the decrease is
 * subtracted from WORKLOAD_EARLIER. The energy of a workload for which no row is free is added
 * to WORKLOAD_UNATTRIBUTED. */
void workload_energy_tick(struct workload_energy *e, unsigned i, const struct workload_step *s,
			  const struct workload_use *uses, size_t n);

/* Frees the rows of workloads that ended more than keep_s seconds ago. Call it after the ticks
 * of all GPUs. */
void workload_energy_age(struct workload_energy *e, uint64_t wall_ns, double keep_s);

/* Restores the rests and the counter that an earlier run stored for GPU i;
 * workload_energy_restore_row() restores the rows. counter_j is the counter at the end of that
 * run; it is at least stored->counter_j. The difference is idle energy if the GPU was empty
 * when the run stored its state, otherwise unattributed energy. `stored` is NULL if nothing was
 * stored. May also be called after the first ticks, if the store became readable late. */
void workload_energy_restore(struct workload_energy *e, unsigned i,
			     const struct workload_gpu *stored, double counter_j);
/* Returns false if no row was free; the joules of the row are then added to WORKLOAD_FORMER. */
bool workload_energy_restore_row(struct workload_energy *e, const struct workload_row *row);

/* Returns the joules of a rest. All rests and rows together add up to the counter. */
double workload_energy_rest(const struct workload_energy *e, unsigned i,
			    enum workload_rest rest);
/* For metrics: returns the joules of GPU i that are in no series of a row. Three parts add up
 * to the counter: this value, (joules - series_from_j) of every row with a series, and every
 * rest_j of the GPU. None of these values decreases while its row exists. */
double workload_energy_series_other(const struct workload_energy *e, unsigned i);

/* Returns the word for a rest, which JSON and metrics use. */
const char *workload_rest_word(enum workload_rest rest);

/* Sums the rows of a workload over all GPUs. memory_peak_bytes is the sum of the peaks;
 * sm_ratio is the mean over the GPUs with a process; `user`, `gpu` and `has_series` are not
 * set. */
void workload_energy_sum(const struct workload_energy *e, unsigned row,
			 struct workload_row *ret);

/* True if two rows belong to the same workload and the same part of it. */
bool workload_row_same(const struct workload_row *a, const struct workload_row *b);

#endif
