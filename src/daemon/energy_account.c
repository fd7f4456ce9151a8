#include "energy_account.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "measure/process_energy.h"
#include "serve/workload_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A larger stored time is reduced to this value, so that the time in nanoseconds fits into 64
 * bits. */
#define SINCE_MAX_S 1e10
/* On a machine without a working hardware clock, the wall-clock time can be wrong for some
 * minutes after the start. */
#define CLOCK_SET_S 300

static void count_key(char *out, size_t size, const char *what, const char *uuid,
		      const char *more)
{
	snprintf(out, size, "%s/%s%s%s", what, uuid, *more ? "/" : "", more);
}

static double count_load(struct store *store, const char *what, const char *uuid,
			 const char *more)
{
	char key[256];

	count_key(key, sizeof(key), what, uuid, more);
	return store_count(store, key);
}

static void count_save(const struct gpu_count *g, struct store *store, const char *what,
		       const char *more, double v)
{
	char key[256];

	if (!g->uuid[0])
		return;
	count_key(key, sizeof(key), what, g->uuid, more);
	store_set_count(store, key, v);
}

static void since_save(const struct gpu_count *g, struct store *store, double seconds)
{
	char key[256];

	if (!g->uuid[0])
		return;
	count_key(key, sizeof(key), "energy", g->uuid, "since");
	store_replace_count(store, key, seconds);
}

static uint64_t time_before(uint64_t wall_ns, double seconds)
{
	return seconds * 1e9 < (double)wall_ns ? wall_ns - (uint64_t)(seconds * 1e9) : 0;
}

void gpu_count_add_stored(struct gpu_count *g, struct store *store, struct view_device *v,
			  double *ret_joules, double *ret_seconds)
{
	*ret_joules = count_load(store, "energy", g->uuid, "joules");
	*ret_seconds = count_load(store, "energy", g->uuid, "seconds");
	g->base_j += *ret_joules;
	g->base_s += *ret_seconds;
	if (*ret_seconds > 0)
		v->energy_since_ns =
			(uint64_t)(fmin(count_load(store, "energy", g->uuid, "since"),
					SINCE_MAX_S) *
				   1e9);
	v->state_changes += (uint64_t)count_load(store, "state_changes", g->uuid, "");
	for (unsigned a = 0; a < GW_ABSENCES; a++)
		if (view_is_error(a))
			v->errors[a] += (uint64_t)count_load(store, "errors", g->uuid,
							     gw_absence_key(a));
}

void gpu_count_load(struct gpu_count *g, struct store *store, const char *uuid,
		    struct view_device *v)
{
	double joules, seconds;

	*g = (struct gpu_count){ .base_j = 0 };
	snprintf(g->uuid, sizeof(g->uuid), "%s", uuid ? uuid : "");
	if (uuid)
		gpu_count_add_stored(g, store, v, &joules, &seconds);
}

void gpu_count_state_change(const struct gpu_count *g, struct store *store,
			    struct view_device *v)
{
	if (!g->uuid[0])
		return;
	v->state_changes++;
	count_save(g, store, "state_changes", "", (double)v->state_changes);
}

void gpu_count_errors(const struct gpu_count *g, struct store *store, const struct gw_device *d,
		      struct view_device *v)
{
	for (unsigned a = 0; a < GW_ABSENCES; a++) {
		uint64_t before = v->errors[a];

		if (!view_is_error(a))
			continue;
		for (unsigned q = 0; q < d->value_count; q++)
			v->errors[a] += d->value_absence[q] == a;
		if (v->errors[a] != before)
			count_save(g, store, "errors", gw_absence_key(a), (double)v->errors[a]);
	}
}

void gpu_count_energy(const struct gpu_count *g, struct store *store, double joules,
		      double seconds, uint64_t wall_ns, struct view_device *v)
{
	v->energy_joules = g->base_j + joules;
	v->energy_seconds = g->base_s + seconds;
	/* If the stored start of the counting is in the future, it was stored while the clock
	 * was ahead, so replace it. If no start is stored, set the start only if no earlier run
	 * counted energy; otherwise the start stays unknown. */
	if ((v->energy_since_ns > wall_ns && seconds > CLOCK_SET_S) ||
	    (!v->energy_since_ns && g->base_s == 0 && v->energy_seconds > 0))
		v->energy_since_ns = time_before(wall_ns, v->energy_seconds);
	count_save(g, store, "energy", "joules", v->energy_joules);
	count_save(g, store, "energy", "seconds", v->energy_seconds);
	/* While the file is not readable, the store adds each new value to the value in the
	 * file. The start of the counting is a time, and the sum of two times has no meaning.
	 * So save the start only while the file is readable. */
	if (store_count_known(store))
		since_save(g, store, (double)v->energy_since_ns / 1e9);
	if (v->energy_seconds == 0 && v->energy_joules == 0)
		v->energy_joules = NAN; /* The energy was never measured. */
}

struct process_gpu {
	struct process_energy *energy; /* NULL if the GPU was never measured. */
	struct process_history history;
	bool hidden; /* There may be processes that the service cannot see. */
};

struct process_account {
	struct process_gpu *gpu;
	unsigned gpus;
	struct view_process *process; /* One row per process in the process list. */
	unsigned process_cap;
	struct attribute_use *use; /* The processes on one GPU. */
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

/* True if the process list of GPU i may be incomplete. This is possible if the GPU has MIG
 * instances, or if the GPU is real and processes of another pid namespace may use it. */
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
	struct process_gpu *g = &a->gpu[i];
	const bool known = gw_process_list_absence(v->processes, i) == GW_HAVE;
	const int n = known ? account_uses(a, v->processes, i) : 0;

	g->hidden = account_hides(v, i, hidden);
	if (!g->energy && !isnan(d->energy_joules)) {
		g->energy = malloc(sizeof(*g->energy));
		if (g->energy)
			/* The service does not measure a baseline. Therefore the shares
			 * include the idle power. */
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
static enum gw_absence account_absence(const struct process_gpu *g, const struct gw_device *d)
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

static struct view_process account_energy(const struct process_gpu *g,
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
		return; /* The next tick tries again. */
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

#define KIND_STATE       "workload-energy"
#define ACCOUNT_GPUS_MAX 256 /* Maximum number of GPUs with a stored document. */

struct account_gpu {
	char uuid[96]; /* "" if the GPU has no UUID. The state of such a GPU is not stored. */
	/* True if anything except the idle energy may have changed since the last save. A
	 * change of only the idle energy need not be saved: if no process used the GPU at the
	 * last save, the restore of the state counts all energy since that save as idle
	 * energy. */
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
	const struct view *view; /* The view of the current tick. NULL between ticks. */
	uint64_t tick_ns;
	struct workload *workload; /* One row per process in the process list. */
	unsigned workload_cap;
	struct workload_use *use; /* The processes on one GPU. */
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

/* Logs once that the state of a GPU is too large for a stored document. WORKLOAD_ROWS_MAX rows
 * are so large only if their names have hundreds of control characters, because JSON writes a
 * control character as six bytes. */
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

	/* While the file of the store is not readable, the document of this GPU in the file
	 * must not be replaced. */
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

void workload_account_late(struct workload_account *a, unsigned i, double counter_j)
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
	workload_account_late(a, i, counter_j);
}

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
		return; /* The energy of this tick becomes unattributed. */
	a->view = v;
	for (unsigned i = 0; i < v->devices; i++)
		account_gpu_tick(a, v, i, seconds);
	workload_energy_age(&a->energy, gw_snapshot_wall_ns(v->snap), a->config.keep_s);
	a->view = NULL;
	a->tick_ns = now;
	/* The state is saved at every tick, in the same transaction as the counters of the
	 * GPUs. If a counter had a lower value after kill -9 and a restart, Prometheus would
	 * assume a reset to 0 and add the whole value again. */
	workload_account_save(a, false);
}
