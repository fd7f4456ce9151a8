#include "workload_account.h"

#include "serve/workload_doc.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND_STATE       "workload-energy"
#define ACCOUNT_GPUS_MAX 256 /* maximum number of GPUs with a stored document */

struct account_gpu {
	char uuid[96]; /* "": the GPU has none, and nothing is stored */
	/* since the last save, more than the idle energy changed. A restore counts what the
	 * counter gained on an empty GPU as idle energy, so that need not be saved. */
	bool changed;
	struct log_latch too_large;
};

struct workload_account {
	struct workload_account_config config;
	struct store *store;
	struct workload_names *names;
	void (*log)(void *arg, const char *sentence);
	void *log_arg;
	struct workload_energy energy;
	struct account_gpu *gpu;
	unsigned gpus;
	const struct view *view; /* during a tick */
	uint64_t tick_ns;
	struct workload *workload; /* one per process of the list */
	unsigned workload_cap;
	struct workload_use *use; /* the processes of one GPU */
	unsigned use_cap;
};

/* Stores an ended workload. */
static void account_ended(void *arg, const struct workload_energy *e, unsigned row)
{
	struct workload_account *a = arg;
	char id[WORKLOAD_DOC_ID];
	struct buf text;
	struct json j;

	for (unsigned i = 0; i < e->count; i++)
		if (workload_row_same(&e->row[i], &e->row[row]))
			a->gpu[e->row[i].gpu].changed = true;
	if (!a->config.history || !a->view)
		return;
	workload_doc_id(e, row, id);
	buf_init(&text, VIEW_DOCUMENT_MAX);
	json_init(&j, &text, false);
	workload_doc_write(&j, a->view, e, row);
	if (json_end(&j) == 0)
		store_put_row(a->store, WORKLOAD_DOC_ENDED, id, text.p, text.len,
			      a->config.history);
	buf_done(&text);
}

struct workload_account *workload_account_new(unsigned devices, struct store *store,
					      struct workload_names *names,
					      const struct workload_account_config *config,
					      void (*log)(void *arg, const char *sentence),
					      void *arg)
{
	struct workload_account *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->store = store;
	a->names = names;
	a->config = *config;
	a->log = log;
	a->log_arg = arg;
	a->gpus = devices;
	a->gpu = calloc(devices, sizeof(*a->gpu));
	if (!a->gpu || workload_energy_init(&a->energy, devices, account_ended, a) != 0) {
		free(a->gpu);
		free(a);
		return NULL;
	}
	return a;
}

void workload_account_free(struct workload_account *a)
{
	if (!a)
		return;
	workload_energy_done(&a->energy);
	free(a->gpu);
	free(a->workload);
	free(a->use);
	free(a);
}

void workload_account_configure(struct workload_account *a,
				const struct workload_account_config *config)
{
	a->config = *config;
}

/* ---- the store ---- */

/* Logs once that the state of a GPU does not fit. Only names of hundreds of bytes with control
 * characters, which JSON writes as six bytes each, make WORKLOAD_ROWS_MAX rows so large. */
static void account_too_large(struct workload_account *a, struct account_gpu *g, bool on)
{
	char line[400];

	if (!log_latch(&g->too_large, on) || !on)
		return;
	snprintf(
		line, sizeof(line),
		"workloads: the state of GPU %s is larger than %u KiB and is not stored; after "
		"a restart, the energy of its workloads since the last stored state would be "
		"unattributed; use a smaller workloads.keep_s, or shorter names of workloads",
		g->uuid, VIEW_DOCUMENT_MAX >> 10);
	a->log(a->log_arg, line);
}

static void account_save(struct workload_account *a, unsigned i, bool all)
{
	struct account_gpu *g = &a->gpu[i];
	struct buf text;

	/* until the file is readable, its document must not be replaced */
	if (!*g->uuid || (!g->changed && !all) || !a->energy.gpu[i].begun ||
	    !store_count_known(a->store))
		return;
	buf_init(&text, VIEW_DOCUMENT_MAX);
	workload_doc_save(&text, &a->energy, i);
	account_too_large(a, g, text.err != 0);
	if (!text.err && store_put_row(a->store, KIND_STATE, g->uuid, text.p, text.len,
				       ACCOUNT_GPUS_MAX) == 0)
		g->changed = false;
	buf_done(&text);
}

void workload_account_save(struct workload_account *a, bool all)
{
	for (unsigned i = 0; i < a->gpus; i++)
		account_save(a, i, all);
}

struct account_load {
	struct workload_account *a;
	unsigned i;
	double counter_j;
	bool found;
};

static void account_load_document(void *arg, const char *id, const char *json)
{
	struct account_load *l = arg;

	if (!l->found && strcmp(id, l->a->gpu[l->i].uuid) == 0)
		l->found = workload_doc_load(&l->a->energy, l->i, json, strlen(json),
					     l->counter_j) == 0;
}

static void account_load(struct workload_account *a, unsigned i, double counter_j)
{
	struct account_load l = { a, i, counter_j, false };

	if (!*a->gpu[i].uuid)
		return;
	store_each_document(a->store, KIND_STATE, ACCOUNT_GPUS_MAX, account_load_document, &l);
	if (!l.found)
		workload_energy_restore(&a->energy, i, NULL, counter_j);
	a->gpu[i].changed = true;
}

void workload_account_begin(struct workload_account *a, unsigned i, const char *uuid,
			    double counter_j)
{
	account_save(a, i, true);
	workload_energy_reset(&a->energy, i);
	snprintf(a->gpu[i].uuid, sizeof(a->gpu[i].uuid), "%s", uuid ? uuid : "");
	account_load(a, i, counter_j);
}

void workload_account_late(struct workload_account *a, unsigned i, double counter_j)
{
	account_load(a, i, counter_j);
}

/* ---- a tick ---- */

static void account_find_workload(const struct workload_account *a, const struct gw_process *p,
				  struct workload *ret)
{
	if (a->names)
		workload_names_resolve(a->names, p, ret);
	else
		workload_from_cgroup(p->cgroup, (long)p->uid, ret);
}

static double account_known(enum gw_absence absence, double v)
{
	return absence == GW_HAVE ? v : (double)NAN;
}

static struct workload_use account_use(const struct view *v, unsigned k)
{
	const struct gw_process *p = gw_process_list_get(v->processes, k);
	const struct view_process *e = &v->process[k];

	return (struct workload_use){
		.workload = &v->process_workload[k],
		.user = p->user,
		.step_joules = account_known(e->absence, e->step_joules),
		.absence = e->absence,
		.how = e->how,
		.memory_bytes = account_known(p->memory_absence, (double)p->memory_bytes),
		.sm_ratio = account_known(p->sm_absence, p->sm_ratio),
		.power_w = account_known(e->absence, e->power_w),
	};
}

/* True if the readings show that the GPU was idle. */
static bool account_is_still(const struct gw_device *d)
{
	double ratio = NAN;

	return gw_device_value(d, GW_Q_UTILIZATION_GPU, &ratio) == GW_HAVE && ratio == 0;
}

static void account_gpu_tick(struct workload_account *a, const struct view *v, unsigned i,
			     double seconds)
{
	const struct workload_step step = {
		.counter_j = v->device[i].energy_joules,
		.seconds = seconds,
		.wall_ns = gw_snapshot_wall_ns(v->snap),
		.processes_known =
			gw_process_list_absence(v->processes, i) == GW_HAVE && v->process,
		.still = account_is_still(gw_snapshot_device(v->snap, i)),
	};
	const struct workload_gpu *g = &a->energy.gpu[i], before = *g;
	size_t n = 0;

	for (unsigned k = 0; step.processes_known && k < gw_process_list_count(v->processes);
	     k++)
		if (gw_process_list_get(v->processes, k)->device == i)
			a->use[n++] = account_use(v, k);
	workload_energy_tick(&a->energy, i, &step, a->use, n);
	a->gpu[i].changed |=
		n > 0 || g->was_empty != before.was_empty ||
		g->rest_j[WORKLOAD_UNATTRIBUTED] != before.rest_j[WORKLOAD_UNATTRIBUTED];
}

/* Finds the workload of each process. Returns false if out of memory. */
static bool account_find_workloads(struct workload_account *a, struct view *v)
{
	const unsigned n = gw_process_list_count(v->processes);

	v->process_workload = NULL;
	if (array_reserve(&a->workload, &a->workload_cap, n + 1, sizeof(*a->workload)) != 0 ||
	    array_reserve(&a->use, &a->use_cap, n + 1, sizeof(*a->use)) != 0)
		return false;
	for (unsigned k = 0; k < n; k++)
		account_find_workload(a, gw_process_list_get(v->processes, k), &a->workload[k]);
	v->process_workload = a->workload;
	return true;
}

void workload_account_tick(struct workload_account *a, struct view *v)
{
	const uint64_t now = gw_snapshot_mono_ns(v->snap);
	const double seconds =
		a->tick_ns && now > a->tick_ns ? (double)(now - a->tick_ns) * 1e-9 : 0;

	v->workloads = &a->energy;
	if (!account_find_workloads(a, v))
		return; /* the energy of this tick becomes unattributed */
	a->view = v;
	for (unsigned i = 0; i < v->devices; i++)
		account_gpu_tick(a, v, i, seconds);
	workload_energy_age(&a->energy, gw_snapshot_wall_ns(v->snap), a->config.keep_s);
	a->view = NULL;
	a->tick_ns = now;
	/* At every tick, in the same transaction as the counters of the GPUs. If a counter were
	 * lower after kill -9, Prometheus would take this for a reset and count the whole value
	 * again. */
	workload_account_save(a, false);
}
