#include "render.h"

#include "view.h"

#include "base/array.h"
#include "base/json_doc.h"
#include "base/utf8.h"
#include "device/tables.h"
#include "device/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOULES_PER_KWH 3.6e6

bool render_shows(const struct render_filter *filter, unsigned device)
{
	return !filter || device >= sizeof(filter->selected) || filter->selected[device];
}

void render_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && *text ? text : NULL);
}

void render_head(struct json *j, const struct gw_snapshot *snap)
{
	json_object(j, NULL);
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(j, "time_utc", gw_snapshot_wall_ns(snap));
	json_double(j, "monotonic_seconds", (double)gw_snapshot_mono_ns(snap) / 1e9);
}

void render_kept_head(struct json *j, const char *kind, const char *version, uint64_t wall_ns,
		      bool simulated)
{
	json_object(j, NULL);
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(j, "kind", kind);
	json_object(j, "tool");
	json_string(j, "name", "gpuward");
	json_string(j, "version", version ? version : gw_version());
	json_object_end(j);
	json_time(j, "time", wall_ns);
	json_bool(j, "simulated", simulated);
}

void render_source(struct json *j, const struct gw_snapshot *snap)
{
	const struct gw_status *s = gw_snapshot_status(snap);
	const struct gw_cause_info *c = gw_cause_info(s->cause);

	json_object(j, "source");
	json_string(j, "backend", s->backend);
	json_bool(j, "simulated", s->simulated);
	json_string(j, "cause", s->cause == GW_CAUSE_NONE ? NULL : c->key);
	render_text(j, "message", s->message);
	json_string(j, "remedy", s->cause == GW_CAUSE_NONE ? NULL : c->remedy);
	json_string(j, "driver_version", s->driver_version);
	json_string(j, "cuda_driver_version", s->cuda_version);
	json_string(j, "nvml_version", s->nvml_version);
	json_string(j, "nvml_library", s->library_path);
	json_object_end(j);
}

static void mask_names(struct json *j, const char *key, unsigned quantity, double value)
{
	char text[256];
	char *word = text, *end;

	json_array(j, key);
	if (gw_quantity_name(quantity, value, text, sizeof(text)) == 0)
		while (*word) {
			end = word + strcspn(word, ",");
			if (*end)
				*end++ = '\0';
			json_string(j, NULL, word);
			word = end;
		}
	json_array_end(j);
}

static void write_value(struct json *j, unsigned quantity, double v)
{
	const struct gw_quantity_info *q = gw_quantity_info(quantity);
	char text[64];

	switch (q->kind) {
	case GW_KIND_FLAG: json_bool(j, q->key, v != 0); break;
	case GW_KIND_MASK: mask_names(j, q->key, quantity, v); break;
	case GW_KIND_ENUM:
		json_string(j, q->key,
			    gw_quantity_name(quantity, v, text, sizeof(text)) == 0 ? text
										   : NULL);
		break;
	default: json_double(j, q->key, v);
	}
}

/* Writes the processes on a MIG instance. The driver reports only the GPU instance of a
 * process, so all compute instances of one GPU instance list the same processes. */
static void write_mig_pids(struct json *j, const struct gw_mig *m, unsigned device,
			   const struct gw_process_list *list)
{
	if (!list || m->gpu_instance < 0 || gw_process_list_absence(list, device) != GW_HAVE)
		return;
	json_array(j, "pids");
	for (unsigned i = 0; i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		if (p->device == device && p->mig_gpu_instance == m->gpu_instance)
			json_int(j, NULL, p->pid);
	}
	json_array_end(j);
}

static void write_mig(struct json *j, const struct gw_device *d, unsigned device,
		      const struct gw_process_list *list)
{
	json_array(j, "mig_devices");
	for (unsigned i = 0; i < d->mig_count; i++) {
		const struct gw_mig *m = d->mig[i];
		bool have = m->memory_absence == GW_HAVE;

		json_object(j, NULL);
		json_uint(j, "index", m->index);
		json_string(j, "uuid", m->uuid);
		render_text(j, "name", m->name);
		json_int_if(j, "gpu_instance", m->gpu_instance >= 0, m->gpu_instance);
		json_int_if(j, "compute_instance", m->compute_instance >= 0,
			    m->compute_instance);
		json_int_if(j, "memory_total_bytes", have, m->memory_total_bytes);
		json_int_if(j, "memory_used_bytes", have, m->memory_used_bytes);
		json_int_if(j, "memory_free_bytes", have, m->memory_free_bytes);
		json_string(j, "memory_absent",
			    have ? NULL : gw_absence_key(m->memory_absence));
		json_string(j, "energy_scope", "whole board");
		write_mig_pids(j, m, device, list);
		json_object_end(j);
	}
	json_array_end(j);
}

/* True if a value with this absence was requested but is not available. */
static bool missing(uint8_t absence)
{
	return absence != GW_HAVE && absence != GW_ABSENT_NOT_READ;
}

static void write_absent(struct json *j, const struct gw_device *d)
{

	json_object(j, "absent");
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (missing(d->text_absence[t]))
			json_string(j, gw_text_key(t), gw_absence_key(d->text_absence[t]));
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (missing(d->value_absence[q]))
			json_string(j, gw_quantity_info(q)->key,
				    gw_absence_key(d->value_absence[q]));
	if (d->cuda_ordinal < 0)
		json_string(j, "cuda_ordinal",
			    d->cuda_ordinal == GW_CUDA_NOT_VISIBLE ? "not_visible"
								   : "order_unknown");
	json_object_end(j);
}

/* Writes a GPU, and leaves its object open. If list is NULL, the processes were not
 * requested. */
static void write_device(struct json *j, const struct gw_device *d, unsigned device,
			 const struct gw_process_list *list)
{
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (d->text_absence[t] != GW_ABSENT_NOT_READ)
			json_string(j, gw_text_key(t), gw_device_text(d, t));
	json_string(j, "vendor", gw_vendor_name(d->vendor));
	json_string(j, "backend", d->backend);
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	json_string(j, "state", gw_device_state_name(d->state));
	json_string(j, "cause",
		    d->cause == GW_CAUSE_NONE ? NULL : gw_cause_info(d->cause)->key);
	render_text(j, "message", d->message);
	json_int_if(j, "cuda_ordinal", d->cuda_ordinal >= 0, d->cuda_ordinal);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (d->value_absence[q] == GW_HAVE)
			write_value(j, q, d->value[q]);
		else if (missing(d->value_absence[q]))
			json_null(j, gw_quantity_info(q)->key);
	write_mig(j, d, device, list);
	write_absent(j, d);
}

void render_device(struct json *j, const struct gw_device *d)
{
	write_device(j, d, 0, NULL);
}

void render_figure(struct json *j, const struct gw_device *d, unsigned quantity)
{
	double v;

	if (gw_device_value(d, quantity, &v) == GW_HAVE)
		write_value(j, quantity, v);
	else
		json_null(j, gw_quantity_info(quantity)->key);
}

static void write_devices(struct json *j, const struct gw_snapshot *snap,
			  const struct gw_process_list *list,
			  const struct render_filter *filter)
{
	json_array(j, "devices");
	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++)
		if (render_shows(filter, i)) {
			write_device(j, gw_snapshot_device(snap, i), i, list);
			json_object_end(j);
		}
	json_array_end(j);
}

/* The next two functions write a summary of nine figures for simple clients. The summary
 * describes the first GPU that responds; its key gpu_count shows whether there are more GPUs.
 * "gb" means 2^30 bytes, as in the programs that use these keys. */

static void write_resource(struct json *j, const struct gw_snapshot *snap, unsigned resource)
{
	const struct gw_quantity_info *row = gw_resource_info(resource);
	double v = NAN;

	gw_snapshot_resource(snap, resource, &v);
	if (row->kind == GW_KIND_FLAG)
		json_bool(j, row->key, v != 0);
	else
		json_double(j, row->key, v);
}

static void write_flat(struct json *j, const struct gw_snapshot *snap)
{
	const struct gw_device *d = gw_snapshot_main_device(snap);
	const char *name = d ? gw_device_text(d, GW_T_NAME) : NULL;
	double v;

	for (unsigned r = 0; r < GW_RESOURCES; r++) {
		write_resource(j, snap, r);
		if (r == GW_R_GPU_AVAILABLE)
			json_string(j, "gpu_name", name);
	}
	json_object(j, "absent");
	if (!name)
		json_string(
			j, "gpu_name",
			gw_absence_key(d ? gw_device_text_absence(d, GW_T_NAME)
					 : gw_snapshot_resource(snap, GW_R_GPU_VRAM_GB, &v)));
	for (unsigned r = 0; r < GW_RESOURCES; r++)
		if (gw_snapshot_resource(snap, r, &v) != GW_HAVE)
			json_string(j, gw_resource_info(r)->key,
				    gw_absence_key(gw_snapshot_resource(snap, r, &v)));
	json_object_end(j);
}

static void write_host(struct json *j, const struct gw_snapshot *snap)
{
	double v;

	json_object(j, "host");
	for (unsigned h = 0; h < GW_HOST_QUANTITIES; h++)
		if (gw_snapshot_host(snap, h, &v) == GW_HAVE)
			json_double(j, gw_host_quantity_info(h)->key, v);
		else
			json_null(j, gw_host_quantity_info(h)->key);
	json_object(j, "absent");
	for (unsigned h = 0; h < GW_HOST_QUANTITIES; h++)
		if (gw_snapshot_host(snap, h, &v) != GW_HAVE)
			json_string(j, gw_host_quantity_info(h)->key,
				    gw_absence_key(gw_snapshot_host(snap, h, &v)));
	json_object_end(j);
	json_object_end(j);
}

void render_process_types(struct json *j, unsigned type)
{
	json_array(j, "types");
	for (unsigned i = 0; process_type_name(i); i++)
		if (type & 1u << i)
			json_string(j, NULL, process_type_name(i));
	json_array_end(j);
}

bool render_read_types(const struct json_doc *types, unsigned *ret)
{
	bool known = true;

	*ret = 0;
	for (size_t i = 0; i < json_doc_count(types, ""); i++) {
		const char *word = json_doc_string(json_doc_at(types, "", i), "");
		const unsigned type = word ? process_type_named(word) : 0;

		known = known && type;
		*ret |= type;
	}
	return known;
}

enum gw_absence render_read_absence(const char *key)
{
	for (unsigned i = 1; key && i < GW_ABSENCES; i++)
		if (strcmp(gw_absence_key(i), key) == 0)
			return (enum gw_absence)i;
	return GW_ABSENT_NO_DATA;
}

void render_workload_keys(struct json *j, const struct workload *w)
{
	json_string(j, "kind", workload_kind_word(w->kind));
	render_text(j, "id", w->id);
	render_text(j, "namespace", w->space);
	render_text(j, "name", w->name);
	render_text(j, "part", w->part);
}

static void write_process_workload(struct json *j, const struct workload *w)
{
	if (!json_object_if(j, "workload", w != NULL))
		return;
	render_workload_keys(j, w);
	json_object_end(j);
}

/* Writes the reasons for those missing values that would identify a process. If the control
 * group is unknown, container and unit get the same reason, because they are unknown too. If
 * the control group is known, a null container or unit means that the process is in none. */
static void write_missing_identity(struct json *j, const struct gw_process *p)
{
	const struct {
		const char *key;
		bool known;
	} row[] = {
		{ "start_ticks", p->start_ticks },
		{ "parent_pid", p->parent > 0 },
		{ "name", p->name },
		{ "command", p->command },
		{ "uid", p->uid >= 0 },
		{ "user", p->user },
		{ "cgroup", p->cgroup },
		{ "container", p->container || p->cgroup },
		{ "unit", p->unit || p->cgroup },
	};

	for (size_t i = 0; i < COUNT(row); i++)
		if (!row[i].known)
			json_string(j, row[i].key, gw_absence_key(GW_ABSENT_NO_DATA));
}

/* Writes the figures of a process, and the reasons for missing figures. */
static void write_process_figures(struct json *j, const struct gw_process *p,
				  const struct view_process *energy, bool workload_known)
{
	static const struct view_process none = { .absence = GW_ABSENT_NEEDS_SERVICE };
	const struct view_process *e = energy ? energy : &none;
	const enum gw_absence why = e->absence;
	const double watts = why == GW_HAVE ? e->power_w : (double)NAN;
	const struct {
		const char *key;
		double v;
		enum gw_absence why;
	} row[] = {
		{ "utilization_sm_ratio", p->sm_ratio, p->sm_absence },
		{ "cpu_used_cores", p->cpu_cores, p->cpu_absence },
		{ "run_seconds", p->run_seconds,
		  isnan(p->run_seconds) ? GW_ABSENT_NO_DATA : GW_HAVE },
		{ "energy_joules", why == GW_HAVE ? e->energy_joules : 0, why },
		{ "power_watts", watts,
		  why == GW_HAVE && isnan(watts) ? GW_ABSENT_FIRST_READING : why },
	};

	for (size_t i = 0; i < COUNT(row); i++)
		json_double(j, row[i].key, row[i].why == GW_HAVE ? row[i].v : (double)NAN);
	json_string(j, "energy_method", why == GW_HAVE ? attribute_how_name(e->how) : NULL);
	json_object(j, "absent");
	write_missing_identity(j, p);
	for (size_t i = 0; i < COUNT(row); i++)
		if (row[i].why != GW_HAVE)
			json_string(j, row[i].key, gw_absence_key(row[i].why));
	if (!workload_known)
		json_string(j, "workload",
			    gw_absence_key(why == GW_ABSENT_NEEDS_SERVICE ? why
									  : GW_ABSENT_NO_DATA));
	json_object_end(j);
}

static void write_process(struct json *j, const struct render_process_list *list, unsigned i,
			  const struct gw_snapshot *snap)
{
	const struct gw_process *p = gw_process_list_get(list->list, i);
	const struct view_process *energy = list->energy ? &list->energy[i] : NULL;
	const bool known =
		list->workload && energy && energy->absence != GW_ABSENT_NEEDS_SERVICE;
	const struct workload *workload = known ? &list->workload[i] : NULL;
	const struct gw_device *d = gw_snapshot_device(snap, p->device);

	json_object(j, NULL);
	json_uint(j, "device_index", d ? d->index : p->device);
	json_string(j, "device_uuid", d ? gw_device_text(d, GW_T_UUID) : NULL);
	json_int(j, "pid", p->pid);
	json_uint_if(j, "start_ticks", p->start_ticks, p->start_ticks);
	json_int_if(j, "parent_pid", p->parent > 0, p->parent);
	render_process_types(j, p->type);
	json_string(j, "name", p->name);
	json_string(j, "command", p->command);
	json_int_if(j, "uid", p->uid >= 0, p->uid);
	json_string(j, "user", p->user);
	json_string(j, "cgroup", p->cgroup);
	json_string(j, "container", p->container);
	json_string(j, "unit", p->unit);
	write_process_workload(j, workload);
	json_bool(j, "orphan", p->orphan);
	if (p->mig_gpu_instance >= 0)
		json_int(j, "gpu_instance", p->mig_gpu_instance);
	json_int_if(j, "memory_bytes", p->memory_absence == GW_HAVE, p->memory_bytes);
	json_string(j, "memory_absent",
		    p->memory_absence == GW_HAVE ? NULL : gw_absence_key(p->memory_absence));
	write_process_figures(j, p, energy, known);
	json_object_end(j);
}

void render_processes(struct json *j, struct render_process_list processes,
		      const struct gw_snapshot *snap, const struct render_filter *filter)
{
	const struct gw_process_list *list = processes.list;

	json_array(j, "processes");
	for (unsigned i = 0; i < gw_process_list_count(list); i++)
		if (render_shows(filter, gw_process_list_get(list, i)->device))
			write_process(j, &processes, i, snap);
	json_array_end(j);
	/* The GPUs without a process list, with the reason. */
	json_object(j, "processes_absent");
	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const char *uuid = gw_device_text(gw_snapshot_device(snap, i), GW_T_UUID);
		enum gw_absence why = gw_process_list_absence(list, i);

		if (why != GW_HAVE && uuid && render_shows(filter, i))
			json_string(j, uuid, gw_absence_key(why));
	}
	json_object_end(j);
}

/* Returns the row of a process in the reply; NULL: there is none. The search begins at row
 * `hint`, because that is probably the row of the process. */
static const struct json_doc *find_row(const struct json_doc *doc, const struct gw_process *p,
				       const char *uuid, size_t hint)
{
	const size_t n = json_doc_count(doc, "processes");

	for (size_t i = 0; uuid && i < n; i++) {
		const struct json_doc *d = json_doc_at(doc, "processes", (hint + i) % n);
		const char *of = json_doc_string(d, "device_uuid");
		int64_t pid, ticks;

		if (!json_doc_integer(d, "start_ticks", &ticks))
			ticks = 0;
		if (json_doc_integer(d, "pid", &pid) && pid == p->pid && of &&
		    (uint64_t)ticks == p->start_ticks && strcmp(of, uuid) == 0)
			return d;
	}
	return NULL;
}

static struct view_process read_energy(const struct json_doc *d)
{
	const char *method = d ? json_doc_string(d, "energy_method") : NULL;
	struct view_process e = { .absence = GW_ABSENT_NEEDS_SERVICE };

	if (!d)
		return e;
	e.energy_joules = json_doc_figure(d, "energy_joules");
	e.power_w = json_doc_figure(d, "power_watts");
	e.absence = isnan(e.energy_joules)
			    ? render_read_absence(json_doc_string(d, "absent.energy_joules"))
			    : GW_HAVE;
	for (unsigned how = 0; method && how < ATTRIBUTE_HOWS; how++)
		if (strcmp(attribute_how_name(how), method) == 0)
			e.how = how;
	return e;
}

bool render_read_workload(const struct json_doc *d, struct workload *ret)
{
	const char *kind = json_doc_string(d, "kind");
	bool known = false;

	*ret = (struct workload){ .kind = WORKLOAD_NONE };
	for (unsigned k = 0; kind && k < WORKLOAD_KINDS; k++)
		if (strcmp(workload_kind_word(k), kind) == 0) {
			ret->kind = k;
			known = true;
		}
	json_doc_copy(d, "id", ret->id, sizeof(ret->id));
	json_doc_copy(d, "namespace", ret->space, sizeof(ret->space));
	json_doc_copy(d, "name", ret->name, sizeof(ret->name));
	json_doc_copy(d, "part", ret->part, sizeof(ret->part));
	return known;
}

static bool make_room(struct render_process_rows *r, unsigned rows)
{
	if (rows <= r->rows)
		return true;
	render_process_rows_done(r);
	r->energy = calloc(rows, sizeof(*r->energy));
	r->workload = calloc(rows, sizeof(*r->workload));
	r->rows = r->energy && r->workload ? rows : 0;
	return r->rows;
}

void render_process_rows_done(struct render_process_rows *r)
{
	free(r->energy);
	free(r->workload);
	*r = (struct render_process_rows){ .rows = 0 };
}

int render_read_processes(const struct json_doc *doc, const struct gw_snapshot *snap,
			  struct render_process_rows *rows, struct render_process_list *known)
{
	const unsigned n = gw_process_list_count(known->list);

	if (n == 0)
		return 0;
	if (!make_room(rows, n))
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < n; i++) {
		const struct gw_process *p = gw_process_list_get(known->list, i);
		const struct gw_device *device = gw_snapshot_device(snap, p->device);
		const char *uuid = device ? gw_device_text(device, GW_T_UUID) : NULL;
		const struct json_doc *d = find_row(doc, p, uuid, i);

		rows->energy[i] = read_energy(d);
		render_read_workload(json_doc_get(d, "workload"), &rows->workload[i]);
	}
	known->energy = rows->energy;
	known->workload = rows->workload;
	return 0;
}

void render_list(struct json *j, const struct gw_snapshot *snap,
		 const struct render_filter *filter)
{
	render_head(j, snap);
	json_uint(j, "count", gw_snapshot_device_count(snap));
	write_devices(j, snap, NULL, filter);
	render_source(j, snap);
	json_object_end(j);
}

void render_snapshot(struct json *j, const struct gw_snapshot *snap,
		     struct render_process_list processes, const struct render_filter *filter)
{
	render_head(j, snap);
	write_flat(j, snap);
	write_host(j, snap);
	write_devices(j, snap, processes.list, filter);
	if (processes.list)
		render_processes(j, processes, snap, filter);
	render_source(j, snap);
	json_object_end(j);
}

static void write_fact(struct json *j, const struct gw_fact *f)
{
	if (f->absence != GW_HAVE)
		json_null(j, f->key);
	else if (f->type == GW_FACT_TEXT)
		json_string(j, f->key, f->text);
	else if (f->type == GW_FACT_FLAG)
		json_bool(j, f->key, f->number != 0);
	else
		json_double(j, f->key, f->number);
}

static void write_section(struct json *j, const struct gw_environment *env, unsigned from,
			  unsigned to)
{
	json_object(j, gw_environment_get(env, from)->section);
	for (unsigned i = from; i < to; i++)
		write_fact(j, gw_environment_get(env, i));
	json_object(j, "absent");
	for (unsigned i = from; i < to; i++) {
		const struct gw_fact *f = gw_environment_get(env, i);

		if (f->absence != GW_HAVE)
			json_string(j, f->key, gw_absence_key(f->absence));
	}
	json_object_end(j);
	json_object_end(j);
}

void render_environment(struct json *j, const struct gw_environment *env,
			const struct gw_snapshot *snap, const struct render_filter *filter)
{
	unsigned n = gw_environment_count(env), from = 0;

	render_head(j, snap);
	for (unsigned i = 1; i <= n; i++) {
		if (i < n && strcmp(gw_environment_get(env, i)->section,
				    gw_environment_get(env, from)->section) == 0)
			continue;
		write_section(j, env, from, i);
		from = i;
	}
	write_devices(j, snap, NULL, filter);
	render_source(j, snap);
	json_object_end(j);
}

static void write_privileges(struct json *j, const struct render_privilege *p, unsigned n)
{
	if (n > 0)
		json_array(j, "privileges");
	for (unsigned i = 0; i < n; i++) {
		json_object(j, NULL);
		json_string(j, "privilege", p[i].key);
		json_bool(j, "have", p[i].state == PRIVILEGE_THERE);
		json_string(j, "feature", p[i].feature);
		json_string(j, "message", p[i].message);
		json_string(j, "remedy", p[i].state == PRIVILEGE_THERE ? "" : p[i].remedy);
		json_object_end(j);
	}
	if (n > 0)
		json_array_end(j);
}

void render_diagnosis(struct json *j, const struct gw_diagnosis *diagnosis,
		      const struct gw_snapshot *snap, const struct render_privilege *p,
		      unsigned n)
{
	static const char *const severity[] = { "ok", "note", "error" };

	render_head(j, snap);
	json_array(j, "findings");
	for (unsigned i = 0; i < gw_diagnosis_count(diagnosis); i++) {
		const struct gw_finding *f = gw_diagnosis_get(diagnosis, i);

		json_object(j, NULL);
		json_string(j, "cause", gw_cause_info(f->cause)->key);
		json_string(j, "severity", severity[f->severity]);
		if (f->device >= 0)
			json_uint(j, "device_index",
				  gw_snapshot_device(snap, (unsigned)f->device)->index);
		else
			json_null(j, "device_index");
		json_string(j, "message", f->detail);
		json_string(j, "remedy", gw_cause_info(f->cause)->remedy);
		json_object_end(j);
	}
	json_array_end(j);
	write_privileges(j, p, n);
	render_source(j, snap);
	json_object_end(j);
}

void render_interval(struct json *j, const char *key, const struct gw_interval *v)
{
	if (!json_object_if(j, key, !isnan(v->best)))
		return;
	json_double(j, "low", v->low);
	json_double(j, "best", v->best);
	json_double(j, "high", v->high);
	json_object_end(j);
}

/* True if a price or a carbon intensity is configured. */
static bool energy_cost_known(const struct energy_cost *c)
{
	return c->price_per_kwh > 0 || c->gco2_per_kwh > 0;
}

/* Appends the text `before`, then v with three significant digits and without an exponent, then
 * the unit. */
static void add_amount(char *out, const char *before, double v, const char *unit)
{
	int decimals = v > 0 ? 2 - (int)floor(log10(v)) : 2;
	size_t n = strlen(out);

	decimals = decimals < 0 ? 0 : decimals > 12 ? 12 : decimals;
	snprintf(out + n, ENERGY_COST_TEXT - n, "%s%s%.*f%s%s", n ? ", " : "", before, decimals,
		 v, *unit ? " " : "", unit);
}

void energy_cost_text(const struct energy_cost *c, double joules,
		      char out[static ENERGY_COST_TEXT])
{
	double kwh = joules / JOULES_PER_KWH;
	char currency[ENERGY_COST_CURRENCY + 8];

	*out = '\0';
	if (!energy_cost_known(c) || isnan(joules))
		return;
	utf8_clean(currency, sizeof(currency), c->currency);
	add_amount(out, "", kwh, "kWh");
	if (c->price_per_kwh > 0)
		add_amount(out, *currency ? "" : "price ", kwh * c->price_per_kwh, currency);
	if (c->gco2_per_kwh > 0)
		add_amount(out, "", kwh * c->gco2_per_kwh, "g CO2");
}

static double or_unknown(double rate)
{
	return rate > 0 ? rate : NAN;
}

/* Writes the interval multiplied by the factor; null if the factor is not configured. */
static void render_times(struct json *j, const char *key, const struct gw_interval *v,
			 double factor)
{
	double by = or_unknown(factor) / JOULES_PER_KWH;

	render_interval(j, key,
			&(struct gw_interval){ v->low * by, v->best * by, v->high * by });
}

static void render_rates(struct json *j, const struct energy_cost *c)
{
	json_double(j, "price_per_kwh", or_unknown(c->price_per_kwh));
	render_text(j, "price_currency", c->currency);
	json_double(j, "gco2_per_kwh", or_unknown(c->gco2_per_kwh));
}

void energy_cost_render(struct json *j, const struct energy_cost *c,
			const struct gw_interval *joules)
{
	if (!json_object_if(j, "cost", energy_cost_known(c)))
		return;
	render_times(j, "energy_kwh", joules, 1);
	render_times(j, "price", joules, c->price_per_kwh);
	render_times(j, "co2_grams", joules, c->gco2_per_kwh);
	render_rates(j, c);
	json_object_end(j);
}

void energy_cost_render_rates(struct json *j, const struct energy_cost *c)
{
	if (!json_object_if(j, "energy_cost", energy_cost_known(c)))
		return;
	render_rates(j, c);
	json_object_end(j);
}
