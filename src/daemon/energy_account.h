/* energy_account: counts the energy and the errors of each GPU, shares the energy among the
 * processes, and sums it per workload. The engine calls all parts once per tick. */
#ifndef GW_DAEMON_ENERGY_ACCOUNT_H
#define GW_DAEMON_ENERGY_ACCOUNT_H

#include "store.h"
#include "workload_names.h"

#include "serve/view.h"

/* gpu_count: the counters of one GPU. The counters are stored under the UUID of the GPU and
 * continue after a restart. A GPU without a UUID has no stored counters. */
struct gpu_count {
	char uuid[96]; /* "" if the GPU has no UUID. */
	/* Joules and measured seconds before the current meter started, including earlier runs
	 * of the service. */
	double base_j, base_s;
};

/* Sets g and v to the stored counters of a GPU. uuid is NULL if the GPU has no UUID. */
void gpu_count_load(struct gpu_count *g, struct store *store, const char *uuid,
		    struct view_device *v);
/* Adds the stored counters to g and v. Call it when the store becomes readable after the
 * start. *ret_joules and *ret_seconds are the stored energy and its measured time. */
void gpu_count_add_stored(struct gpu_count *g, struct store *store, struct view_device *v,
			  double *ret_joules, double *ret_seconds);
/* These functions add the state change, the errors or the energy of a tick to the counters in v
 * and in the store. joules and seconds are the totals of the current meter, or 0 if there is no
 * meter. */
void gpu_count_state_change(const struct gpu_count *g, struct store *store,
			    struct view_device *v);
void gpu_count_errors(const struct gpu_count *g, struct store *store, const struct gw_device *d,
		      struct view_device *v);
void gpu_count_energy(const struct gpu_count *g, struct store *store, double joules,
		      double seconds, uint64_t wall_ns, struct view_device *v);

/* process_account: computes the energy and the recent history of each process on the GPUs.
 *
 * The engine calls it once per tick, after the energy counters of the view are set. It owns the
 * rows that the view points to. */

struct process_account;

/* devices is the maximum number of GPUs. Returns NULL if out of memory. */
struct process_account *process_account_new(unsigned devices);
void process_account_free(struct process_account *a);

/* Forgets everything about the GPU at position i, because another GPU has this position now. */
void process_account_reset(struct process_account *a, unsigned i);

/* Adds to the counter of GPU i the energy that earlier runs of the service counted. */
void process_account_shift(struct process_account *a, unsigned i, double joules,
			   double seconds);

/* Adds one tick: sets v->process, and the shares and the history of each view_device. hidden
 * is true if the service cannot see processes outside its pid namespace. */
void process_account_tick(struct process_account *a, struct view *v, struct view_device *device,
			  bool hidden);

/* workload_account: finds the workloads of the processes on the GPUs, and counts their energy,
 * also over restarts of the service.
 *
 * The engine calls it once per tick, after process_account_tick(). The state of a GPU is one
 * document in the store. The document contains the value of the GPU's energy counter and is
 * stored in the same transaction as this counter. The counter may have grown after the last
 * document. After a restart, that energy is idle energy if no process used the GPU at the time
 * of the document; otherwise it is unattributed. So no joule is lost or counted twice. */
struct workload_account;

struct workload_account_config {
	double keep_s;    /* Seconds for which an ended workload keeps its row. */
	unsigned history; /* Maximum number of stored workloads. */
};

/* devices is the maximum number of GPUs. names is borrowed; if it is NULL, names come only
 * from the control group. log is called when the state of a GPU becomes too large for the
 * store. Returns NULL if out of memory. */
struct workload_account *workload_account_new(unsigned devices, struct store *store,
					      struct workload_names *names,
					      const struct workload_account_config *config,
					      void (*log)(void *arg, const char *sentence),
					      void *arg);
void workload_account_free(struct workload_account *a);
void workload_account_configure(struct workload_account *a,
				const struct workload_account_config *config);

/* Call it when another GPU takes position i. Stores the workloads of the old GPU and loads the
 * workloads of the new GPU. uuid is NULL if the new GPU has no UUID. counter_j is the stored
 * energy counter of the new GPU in joules. */
void workload_account_begin(struct workload_account *a, unsigned i, const char *uuid,
			    double counter_j);
/* Adds the stored workloads of GPU i. Call it when the store becomes readable after the start.
 * counter_j has the same meaning as above. */
void workload_account_late(struct workload_account *a, unsigned i, double counter_j);

/* Adds one tick: sets v->workloads and v->process_workload. */
void workload_account_tick(struct workload_account *a, struct view *v);

/* Adds the state of each GPU that has changed to the next commit of the store. If all is true,
 * adds the state of every GPU; the service calls it in this way when the service ends. */
void workload_account_save(struct workload_account *a, bool all);

#endif
