#include "process_account.h"

#include "base/array.h"
#include "serve/process_energy.h"
#include "serve/process_history.h"

#include <math.h>
#include <stdlib.h>

struct account_gpu {
	struct process_energy *energy; /* NULL: the GPU was never measured */
	struct process_history history;
	bool hidden; /* there may be processes that we cannot see */
};

struct process_account {
	struct account_gpu *gpu;
	unsigned gpus;
	struct view_process *process; /* one per process of the list */
	unsigned process_cap;
	struct attribute_use *use; /* the processes of one GPU */
	unsigned use_cap;
};

struct process_account *process_account_new(unsigned devices)
{
	struct process_account *a = calloc(1, sizeof(*a));

	if (a)
		a->gpu = calloc(devices, sizeof(*a->gpu));
	if (!a || !a->gpu) {
		free(a);
		return NULL;
	}
	a->gpus = devices;
	return a;
}

void process_account_reset(struct process_account *a, unsigned i)
{
	free(a->gpu[i].energy);
	a->gpu[i].energy = NULL;
	process_history_done(&a->gpu[i].history);
}

void process_account_free(struct process_account *a)
{
	if (!a)
		return;
	for (unsigned i = 0; i < a->gpus; i++)
		process_account_reset(a, i);
	free(a->gpu);
	free(a->process);
	free(a->use);
	free(a);
}

void process_account_shift(struct process_account *a, unsigned i, double joules, double seconds)
{
	if (a->gpu[i].energy)
		process_energy_shift(a->gpu[i].energy, joules, seconds);
}

static struct proc_id account_id(const struct gw_process *p)
{
	return (struct proc_id){ .pid = p->pid, .start_ticks = p->start_ticks };
}

/* Collects the processes on GPU i. Returns their number, or -GW_E_NOMEM. */
static int account_uses(struct process_account *a, const struct gw_process_list *list,
			unsigned i)
{
	unsigned n = 0;

	if (array_reserve(&a->use, &a->use_cap, gw_process_list_count(list), sizeof(*a->use)))
		return -GW_E_NOMEM;
	for (unsigned k = 0; k < gw_process_list_count(list); k++) {
		const struct gw_process *p = gw_process_list_get(list, k);

		if (p->device == i)
			a->use[n++] = (struct attribute_use){
				.id = account_id(p),
				.sm_ratio = p->sm_absence == GW_HAVE ? p->sm_ratio : (double)NAN
			};
	}
	return (int)n;
}

/* True if processes may be missing: the GPU has MIG instances, or a real GPU is shared with
 * another pid namespace. */
static bool account_hides(const struct view *v, unsigned i, bool hidden)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	double mig = 0;

	(void)gw_device_value(d, GW_Q_MIG_MODE, &mig);
	return d->mig_count > 0 || mig != 0 || (hidden && d->provenance != GW_FROM_SIMULATOR);
}

static void account_share(struct process_account *a, const struct view *v, unsigned i,
			  struct view_device *d, bool hidden)
{
	struct account_gpu *g = &a->gpu[i];
	const bool known = gw_process_list_absence(v->processes, i) == GW_HAVE;
	const int n = known ? account_uses(a, v->processes, i) : 0;

	g->hidden = account_hides(v, i, hidden);
	if (!g->energy && !isnan(d->energy_joules)) {
		g->energy = malloc(sizeof(*g->energy));
		if (g->energy)
			/* the service has no baseline: shares include the idle power */
			process_energy_init(g->energy, NAN, NAN);
	}
	d->shares.known = false;
	if (!g->energy)
		return;
	process_energy_add(g->energy, d->energy_joules, d->energy_seconds, a->use,
			   n > 0 ? (size_t)n : 0, g->hidden || !known || n < 0);
	process_energy_sum(g->energy, &d->shares);
}

/* Returns why the energy of a process on GPU g is unknown. */
static enum gw_absence account_absence(const struct account_gpu *g, const struct gw_device *d)
{
	double watts;
	enum gw_absence why;

	if (g->hidden)
		return GW_ABSENT_NOT_SUPPORTED;
	if (g->energy)
		return GW_ABSENT_TOO_MANY;
	why = d ? gw_device_value(d, GW_Q_POWER, &watts) : GW_ABSENT_NO_DATA;
	return why == GW_HAVE ? GW_ABSENT_FIRST_READING : why;
}

static struct view_process account_energy(const struct account_gpu *g,
					  const struct gw_device *d, const struct gw_process *p)
{
	double ratio = NAN, watts = NAN;
	const struct attribute_row *r =
		g->energy && !g->hidden ? process_energy_find(g->energy, account_id(p), &ratio)
					: NULL;

	if (!r)
		return (struct view_process){ account_absence(g, d), NAN, NAN,
					      ATTRIBUTE_EQUAL_SPLIT, NAN };
	if (d)
		(void)gw_device_value(d, GW_Q_POWER, &watts);
	return (struct view_process){ GW_HAVE, r->joules, ratio * watts, r->how,
				      process_energy_step(g->energy, account_id(p)) };
}

static void account_remember(struct process_account *a, const struct view *v, unsigned k)
{
	const struct gw_process *p = gw_process_list_get(v->processes, k);
	const struct view_process *e = &a->process[k];
	struct process_history_reading r = { .id = account_id(p),
					     .gpu_instance = p->mig_gpu_instance,
					     .name = p->name };

	r.value[PROCESS_HISTORY_MEMORY] =
		p->memory_absence == GW_HAVE ? (double)p->memory_bytes : (double)NAN;
	r.value[PROCESS_HISTORY_SM] = p->sm_absence == GW_HAVE ? p->sm_ratio : (double)NAN;
	r.value[PROCESS_HISTORY_POWER] = e->absence == GW_HAVE ? e->power_w : (double)NAN;
	process_history_add(&a->gpu[p->device].history, gw_snapshot_mono_ns(v->snap), &r);
}

void process_account_tick(struct process_account *a, struct view *v, struct view_device *device,
			  bool hidden)
{
	const unsigned count = gw_process_list_count(v->processes);

	v->process = NULL;
	for (unsigned i = 0; i < v->devices; i++)
		account_share(a, v, i, &device[i], hidden);
	if (array_reserve(&a->process, &a->process_cap, count + 1, sizeof(*a->process)) != 0)
		return; /* the next tick tries again */
	for (unsigned k = 0; k < count; k++) {
		const struct gw_process *p = gw_process_list_get(v->processes, k);

		a->process[k] = (struct view_process){ GW_ABSENT_NOT_READ, NAN, NAN,
						       ATTRIBUTE_EQUAL_SPLIT, NAN };
		if (p->device >= v->devices)
			continue;
		a->process[k] = account_energy(&a->gpu[p->device],
					       gw_snapshot_device(v->snap, p->device), p);
		account_remember(a, v, k);
	}
	for (unsigned i = 0; i < v->devices; i++) {
		process_history_forget(&a->gpu[i].history, gw_snapshot_mono_ns(v->snap));
		device[i].past = &a->gpu[i].history;
	}
	v->process = a->process;
}
