/* process_account: computes the energy and the recent history of each process on the GPUs.
 *
 * The engine calls it once per tick, after the energy counters of the view are set. It owns the
 * rows that the view points to. */
#ifndef GW_DAEMON_PROCESS_ACCOUNT_H
#define GW_DAEMON_PROCESS_ACCOUNT_H

#include "serve/view.h"

struct process_account;

/* devices: the largest number of GPUs. Returns NULL if out of memory. */
struct process_account *process_account_new(unsigned devices);
void process_account_free(struct process_account *a);

/* Forgets what is known about the GPU at position i, because another GPU has this position
 * now. */
void process_account_reset(struct process_account *a, unsigned i);

/* Adds the energy that an earlier run of the service counted to the counter of GPU i. */
void process_account_shift(struct process_account *a, unsigned i, double joules,
			   double seconds);

/* Adds one tick: sets v->process, and the shares and the history of each view_device. hidden:
 * processes outside our pid namespace are invisible. */
void process_account_tick(struct process_account *a, struct view *v, struct view_device *device,
			  bool hidden);

#endif
