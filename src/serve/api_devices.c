/* Replies about GPUs, their health, their processes, free memory and the machine, at the time
 * of the latest reading. Also clears a quarantine on request. The keys and types of the two
 * short documents (/api/gpu/devices and /api/gpu/driver) never change. */
#include "api_parts.h"
#include "guard_doc.h"
#include "json_request.h"
#include "render_sensor.h"

#include "base/number.h"
#include "measure/meter.h"
#include "measure/process_energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes the totals that the service counts for a GPU: energy, state changes, errors. */
static void write_counted(struct json *j, const struct api *a, unsigned i)
{
	const struct view_device *d = i < a->view.devices ? &a->view.device[i] : NULL;
	uint64_t now = api_now(a);
	/* False: the totals of earlier runs could not be read, so no total is known. */
	bool known = a->view.self.counts_known;

	json_double(j, "energy_joules_total", d && known ? d->energy_joules : (double)NAN);
	json_double(j, "energy_measured_seconds_total",
		    d && known ? d->energy_seconds : (double)NAN);
	json_time(j, "energy_since_utc", d && known ? d->energy_since_ns : 0);
	if (d && d->seen_ns)
		json_double(j, "seen_age_seconds",
			    now > d->seen_ns ? (double)(now - d->seen_ns) / 1e9 : 0);
	else
		json_null(j, "seen_age_seconds");
	json_bool(j, "metered", d && d->meter >= 0);
	json_uint_if(j, "state_changes_total", known, d ? d->state_changes : 0);
	json_object(j, "errors_total");
	for (unsigned why = 1; why < GW_ABSENCES; why++)
		if (view_is_error(why))
			json_uint_if(j, gw_absence_key(why), known, d ? d->errors[why] : 0);
	json_object_end(j);
}

/* A reply that is being written, about the GPUs that ?gpu= names. */
struct about {
	struct json j;
	struct render_filter f;
	const struct render_filter *filter;
};

/* Begins a reply. Returns false after an error reply. */
static bool begins(struct about *b, const struct api *a, const struct request *q,
		   struct reply *r)
{
	json_init(&b->j, &r->body, false);
	return api_has_reading(a, r) && api_filter(a, q, r, &b->f, &b->filter);
}

#define USE_WAIT_NS (25 * NS_PER_MS)
#define USE_WAITS   12

void api_look(const struct api *a)
{
	if (a->view.ops && a->view.ops->look)
		a->view.ops->look(a->view.engine, false);
}

bool api_waits_for_use(const struct api *a, const struct request *q, struct reply *r)
{
	const struct gw_process_list *list = a->view.processes;
	bool unread = false;

	for (unsigned i = 0; i < gw_process_list_count(list) && !unread; i++)
		unread = gw_process_list_get(list, i)->sm_absence == GW_ABSENT_NOT_READ;
	if (!unread || !a->view.ops || !a->view.ops->look || q->tries >= USE_WAITS)
		return false;
	a->view.ops->look(a->view.engine, true);
	reply_again(r, api_now(a) + USE_WAIT_NS);
	return true;
}

static struct render_process_list api_process_list(const struct api *a)
{
	api_look(a);
	return (struct render_process_list){ a->view.processes, a->view.process,
					     a->view.process_workload };
}

void api_snapshot(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_process_list processes = { .list = NULL };
	struct about b;
	bool wanted;

	if (!api_flag(q, r, "processes", true, &wanted) || !begins(&b, a, q, r))
		return;
	if (wanted)
		processes = api_process_list(a);
	render_snapshot(&b.j, a->view.snap, processes, b.filter);
	json_end(&b.j);
}

void api_devices(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct about b;
	unsigned n;

	if (!begins(&b, a, q, r))
		return;
	n = gw_snapshot_device_count(a->view.snap);
	render_head(&b.j, a->view.snap);
	json_uint(&b.j, "count", n);
	json_array(&b.j, "devices");
	for (unsigned i = 0; i < n; i++) {
		if (!render_shows(b.filter, i))
			continue;
		render_device(&b.j, gw_snapshot_device(a->view.snap, i));
		write_counted(&b.j, a, i);
		json_object_end(&b.j);
	}
	json_array_end(&b.j);
	render_source(&b.j, a->view.snap);
	api_end(&b.j);
}

void api_device(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct json j;
	int i;

	if (!api_has_reading(a, r) || (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	json_init(&j, &r->body, false);
	render_device(&j, gw_snapshot_device(a->view.snap, (unsigned)i));
	write_counted(&j, a, (unsigned)i);
	json_int(&j, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(&j, "time_utc", gw_snapshot_wall_ns(a->view.snap));
	json_bool(&j, "simulated", view_simulated(&a->view));
	api_end(&j);
}

/* Writes the energy of a GPU and the five parts that add up to it: energy from before the
 * accounting began, energy of processes on the GPU, energy of processes that left the GPU, idle
 * energy, and unattributed energy. */
static void device_energy(struct json *j, const struct api *a, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(a->view.snap, i);
	const struct view_device *v = &a->view.device[i];
	const struct process_energy_sums *s = &v->shares;
	/* Without the counts of earlier runs, the total is unknown, and so is the energy from
	 * before the accounting began. */
	const bool total = s->known && a->view.self.counts_known;

	json_object(j, NULL);
	json_uint(j, "device_index", d->index);
	json_string(j, "device_uuid", gw_device_text(d, GW_T_UUID));
	json_double(j, "energy_joules_total", total ? v->energy_joules : (double)NAN);
	json_double(j, "earlier_joules", total ? s->earlier_joules : (double)NAN);
	json_double(j, "processes_joules", s->known ? s->processes_joules : (double)NAN);
	json_double(j, "former_processes_joules", s->known ? s->former_joules : (double)NAN);
	json_double(j, "idle_joules", s->known && s->idle_known ? s->idle_joules : (double)NAN);
	json_double(j, "unattributed_joules", s->known ? s->unattributed_joules : (double)NAN);
	json_object_end(j);
}

void api_processes(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_process_list processes;
	struct about b;

	if (!begins(&b, a, q, r) ||
	    !api_was_read(a->view.processes, r, "the processes have not been listed yet"))
		return;
	if (api_waits_for_use(a, q, r))
		return;
	processes = api_process_list(a);
	render_head(&b.j, a->view.snap);
	render_processes(&b.j, processes, a->view.snap, b.filter);
	json_array(&b.j, "device_energy");
	for (unsigned i = 0; i < a->view.devices; i++)
		if (render_shows(b.filter, i))
			device_energy(&b.j, a, i);
	json_array_end(&b.j);
	render_source(&b.j, a->view.snap);
	api_end(&b.j);
}

static void past_figure(struct json *j, const struct process_history_row *row, unsigned figure,
			uint64_t first, uint64_t last)
{
	json_array(j, process_history_key(figure));
	for (uint64_t step = first; step <= last; step++)
		json_double(j, NULL, process_history_at(row, figure, step));
	json_array_end(j);
}

static void past_process(struct json *j, const struct api *a, unsigned device,
			 const struct process_history_row *row)
{
	const struct gw_device *d = gw_snapshot_device(a->view.snap, device);
	const uint64_t mono_ns = gw_snapshot_mono_ns(a->view.snap);
	const uint64_t now = mono_ns / PROCESS_HISTORY_STEP_NS;
	const double begin_s = (double)(gw_snapshot_wall_ns(a->view.snap) - mono_ns) * 1e-9;
	uint64_t first = row->first;

	if (first + PROCESS_HISTORY_POINTS <= now)
		first = now - PROCESS_HISTORY_POINTS + 1;
	json_object(j, NULL);
	json_uint(j, "device_index", d->index);
	json_string(j, "device_uuid", gw_device_text(d, GW_T_UUID));
	json_int(j, "pid", row->id.pid);
	json_uint_if(j, "start_ticks", row->id.start_ticks, row->id.start_ticks);
	if (row->gpu_instance >= 0)
		json_int(j, "gpu_instance", row->gpu_instance);
	render_text(j, "name", row->name);
	json_array(j, "time");
	for (uint64_t step = first; step <= row->last; step++)
		json_double(j, NULL,
			    round((begin_s + (double)(step * PROCESS_HISTORY_STEP_NS) * 1e-9) *
				  1e3) /
				    1e3);
	json_array_end(j);
	for (unsigned f = 0; f < PROCESS_HISTORY_FIGURES; f++)
		past_figure(j, row, f, first, row->last);
	json_object_end(j);
}

void api_processes_history(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct about b;

	if (!begins(&b, a, q, r))
		return;
	api_look(a);
	render_head(&b.j, a->view.snap);
	json_double(&b.j, "step_seconds", (double)PROCESS_HISTORY_STEP_NS * 1e-9);
	json_array(&b.j, "processes");
	for (unsigned i = 0; i < a->view.devices; i++)
		for (unsigned k = 0; k < PROCESS_HISTORY_ROWS && a->view.device[i].past; k++)
			if (a->view.device[i].past->row[k] && render_shows(b.filter, i))
				past_process(&b.j, a, i, a->view.device[i].past->row[k]);
	json_array_end(&b.j);
	render_source(&b.j, a->view.snap);
	api_end(&b.j);
}

void api_environment(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct about b;

	if (!begins(&b, a, q, r) ||
	    !api_was_read(a->view.env, r, "the description of the machine is not ready yet"))
		return;
	render_environment(&b.j, a->view.env, a->view.snap, b.filter);
	json_end(&b.j);
}

static void sensor_of(struct json *j, const struct api *a, unsigned i)
{
	unsigned position = gw_meter_device(a->view.meter, i);
	const struct gw_device *d = gw_snapshot_device(a->view.snap, position);
	struct energy_setup set = meter_setup(a->view.meter, i);

	if (!d)
		return;
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	json_string(j, "uuid", gw_device_text(d, GW_T_UUID));
	json_string(j, "name", gw_device_text(d, GW_T_NAME));
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	sensor_json(j, "sensor", &set.sensor);
	json_object_end(j);
}

void api_sensors(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct json j;

	(void)q;
	if (!api_has_reading(a, r))
		return;
	json_init(&j, &r->body, false);
	render_head(&j, a->view.snap);
	json_array(&j, "devices");
	for (unsigned i = 0; a->view.meter && i < gw_meter_device_count(a->view.meter); i++)
		sensor_of(&j, a, i);
	json_array_end(&j);
	render_source(&j, a->view.snap);
	api_end(&j);
}

/* Writes a whole number. In the keys of these short documents, "mb" means 2^20 bytes, because
 * existing clients expect this. */
static void write_whole(struct json *j, const char *key, const struct gw_device *d,
			unsigned quantity, double unit)
{
	double v;

	if (gw_device_value(d, quantity, &v) == GW_HAVE)
		json_int(j, key, (int64_t)llround(v / unit));
	else
		json_null(j, key);
}

static void short_device(struct json *j, const struct gw_device *d)
{
	const char *name = gw_device_text(d, GW_T_NAME);

	json_object(j, NULL);
	json_uint(j, "index", d->index);
	/* Clients expect a string here, never null. */
	json_string(j, "name", name ? name : "unknown GPU");
	write_whole(j, "total_memory_mb", d, GW_Q_MEMORY_TOTAL, MIB);
	write_whole(j, "free_memory_mb", d, GW_Q_MEMORY_FREE, MIB);
	write_whole(j, "used_memory_mb", d, GW_Q_MEMORY_USED, MIB);
	write_whole(j, "utilization_percent", d, GW_Q_UTILIZATION_GPU, 0.01);
	write_whole(j, "temperature_c", d, GW_Q_TEMPERATURE_GPU, 1);
	json_bool(j, "is_available", d->state == GW_DEVICE_OK);
	render_text(j, "error_message", d->message);
	json_object_end(j);
}

void api_gpu_devices(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct gw_snapshot *snap = a->view.tick ? a->view.snap : NULL;
	unsigned n = snap ? gw_snapshot_device_count(snap) : 0;
	struct json j;

	(void)q;
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_array(&j, "devices");
	for (unsigned i = 0; i < n; i++)
		short_device(&j, gw_snapshot_device(snap, i));
	json_array_end(&j);
	json_uint(&j, "count", n);
	api_end(&j);
}

/* Returns why the driver versions are unknown; NULL if they are known. */
static const char *no_versions(const struct api *a, char *out, size_t size)
{
	const struct gw_status *s;

	if (!a->view.tick || !a->view.snap)
		return view_stale(&a->view, api_now(a), out, size);
	s = gw_snapshot_status(a->view.snap);
	/* If all GPUs are lost or closed, the driver may be unloaded, so no version is
	 * reported. */
	if (a->view.devices && !view_answers(&a->view))
		return gw_snapshot_device(a->view.snap, 0)->message;
	if (s->driver_version || s->nvml_version)
		return NULL;
	return *s->message ? s->message : "no NVIDIA driver is in use";
}

void api_gpu_driver(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char out[512];
	const char *why = no_versions(a, out, sizeof(out));
	const struct gw_status *s = why ? NULL : gw_snapshot_status(a->view.snap);
	struct json j;

	(void)q;
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_string(&j, "driver_version", s ? s->driver_version : NULL);
	json_string(&j, "cuda_driver_version", s ? s->cuda_version : NULL);
	json_string(&j, "nvml_version", s ? s->nvml_version : NULL);
	if (why)
		json_string(&j, "error_message", why);
	api_end(&j);
}

static const struct {
	const char *key;
	uint64_t span_ns;
} spans[] = {
	{ "last_10m", 600 * NS_PER_S },
	{ "last_24h", 86400 * NS_PER_S },
	{ "last_7d", 7 * 86400 * NS_PER_S },
};
#define SPANS (sizeof(spans) / sizeof(spans[0]))

static void write_past(struct json *j, struct capacity *c, uint64_t now_ns)
{
	struct capacity_past p = { .slope_bytes_per_s = NAN, .full_s = NAN };

	json_object(j, "past");
	for (size_t i = 0; i < SPANS; i++) {
		if (c)
			capacity_past(c, now_ns, spans[i].span_ns, &p);
		if (!json_object_if(j, spans[i].key, c && !isnan(p.mean_bytes)))
			continue;
		json_uint(j, "min_bytes", p.min_bytes);
		json_double(j, "mean_bytes", rint(p.mean_bytes));
		json_uint(j, "max_bytes", p.max_bytes);
		json_double(j, "span_seconds", (double)p.span_ns * 1e-9);
		json_object_end(j);
	}
	json_object_end(j);
	json_double(j, "slope_bytes_per_second", p.slope_bytes_per_s);
	json_double(j, "full_seconds", p.full_s);
}

static void write_workers(struct json *j, const struct capacity_gpu *c)
{
	json_array(j, "workers");
	for (unsigned i = 0; i < c->workers; i++) {
		json_object(j, NULL);
		json_string(j, "name", c->worker[i].name);
		json_uint(j, "bytes", c->worker[i].bytes);
		json_double(j, "free_seconds", c->worker[i].seconds);
		json_bool(j, "movable", c->worker[i].movable);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_one(struct json *j, const struct api *a, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(a->view.snap, i);
	const struct guard_view *g = a->view.guard;
	double total = api_figure(d, GW_Q_MEMORY_TOTAL), used = api_figure(d, GW_Q_MEMORY_USED);
	double free_bytes = api_figure(d, GW_Q_MEMORY_FREE), unattributed = NAN;
	const struct scene *s;
	struct capacity_gpu c;
	int at;

	guard_view_capacity(&a->view, i, &c);
	guard_verdicts(g->guard, &s);
	at = guard_view_gpu(s, c.uuid);
	if (at >= 0)
		unattributed = guard_view_unattributed(s, (unsigned)at);
	json_uint(j, "index", d->index);
	render_text(j, "uuid", c.uuid);
	json_double(j, "total_bytes", total);
	json_double(j, "used_bytes", used);
	json_double(j, "free_bytes", free_bytes);
	json_uint(j, "headroom_bytes", c.headroom_bytes);
	json_uint(j, "reserved_bytes", c.reserved_bytes);
	json_double(j, "available_bytes",
		    c.known ? (double)capacity_available(&c) : (double)NAN);
	json_double(j, "unattributed_bytes", unattributed);
	guard_doc_old_names(j, total, used, free_bytes);
	json_bool(j, "blind", c.blind);
	json_bool(j, "quarantine", c.quarantine);
	json_bool(j, "warm", c.warm);
	json_double(j, "margin_celsius", c.margin_c);
	write_past(j, i < g->devices ? g->capacity[i] : NULL, api_now(a));
	write_workers(j, &c);
}

void api_capacity(void *arg, const struct request *q, struct reply *r)
{
	guard_doc_gpus(arg, q, r, NULL, write_one);
}

struct question {
	uint64_t bytes;
	unsigned n, able;
	unsigned device[SCENE_GPUS]; /* index of the GPU in the view */
	unsigned order[SCENE_GPUS];
	struct capacity_gpu gpu[SCENE_GPUS];
	struct capacity_answer answer[SCENE_GPUS];
};

static const char *fit_word(enum capacity_fit fit)
{
	static const char *const words[] = { "now", "after-eviction", "never", "unknown" };

	return words[fit];
}

/* Writes whether the requested bytes fit on the k-th GPU, and which workers must be evicted. */
static void write_answer(struct json *j, const struct api *a, const struct question *x,
			 unsigned k)
{
	const struct capacity_answer *y = &x->answer[k];

	json_uint(j, "index", gw_snapshot_device(a->view.snap, x->device[k])->index);
	render_text(j, "uuid", x->gpu[k].uuid);
	json_string(j, "fit", fit_word(y->fit));
	json_double(j, "available_bytes",
		    x->gpu[k].known ? (double)y->available_bytes : (double)NAN);
	json_array(j, "evict");
	for (unsigned i = 0; i < y->evicts; i++)
		json_string(j, NULL, x->gpu[k].worker[y->evict[i]].name);
	json_array_end(j);
	json_double(j, "seconds", y->seconds);
	render_text(j, "why", y->why);
}

static void write_placement(struct json *j, const struct api *a, const struct question *x)
{
	json_array(j, "placement");
	for (unsigned i = 0; i < x->n; i++) {
		json_object(j, NULL);
		json_bool(j, "possible", i < x->able);
		write_answer(j, a, x, x->order[i]);
		json_object_end(j);
	}
	json_array_end(j);
}

/* Returns the best answer of all GPUs. If no GPU is known to have space, but the memory of one
 * GPU is unknown, the best answer is unknown. */
static enum capacity_fit best_fit(const struct question *x)
{
	if (x->able)
		return x->answer[x->order[0]].fit;
	for (unsigned i = 0; i < x->n; i++)
		if (x->answer[i].fit == FIT_UNKNOWN)
			return FIT_UNKNOWN;
	return FIT_NEVER;
}

static void fit_document(const struct api *a, const struct question *x, struct reply *r)
{
	struct json j;

	api_begin(&j, a, r);
	json_uint(&j, "needed_bytes", x->bytes);
	json_string(&j, "fit", fit_word(best_fit(x)));
	json_string(&j, "uuid", x->able ? x->gpu[x->order[0]].uuid : NULL);
	write_placement(&j, a, x);
	api_end(&j);
}

void api_capacity_fit(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_filter f;
	const struct render_filter *filter;
	struct question *x;
	uint64_t bytes;

	if (!guard_doc_there(a, r) || !api_has_reading(a, r) ||
	    !api_filter(a, q, r, &f, &filter) ||
	    !api_number(q, r, "bytes", 0, INT64_MAX, &bytes))
		return;
	if (!bytes) {
		reply_problem(r, 400, "bad-parameter", "Use ?bytes=8589934592 for 8 GiB.",
			      "the parameter bytes is required and must be above 0");
		return;
	}
	x = calloc(1, sizeof(*x)); /* The struct is too large for the stack. */
	if (!x) {
		api_no_memory(r);
		return;
	}
	x->bytes = bytes;
	for (unsigned i = 0; i < gw_snapshot_device_count(a->view.snap); i++) {
		if (!render_shows(filter, i) || x->n == SCENE_GPUS)
			continue;
		x->device[x->n] = i;
		guard_view_capacity(&a->view, i, &x->gpu[x->n++]);
	}
	x->able = capacity_place(x->gpu, x->n, bytes, x->order, x->answer);
	fit_document(a, x, r);
	free(x);
}

static void last_xid(struct json *j, const char *key, const struct health *h, unsigned xid)
{
	if (!json_object_if(j, key, xid))
		return;
	json_uint(j, "xid", xid);
	json_string(j, "class", xid_class_name(health_xid_class(h, xid)));
	json_string(j, "text", xid_text(xid));
	json_object_end(j);
}

static void write_known_health(struct json *j, const struct health *h,
			       const struct health_status *s, bool read_log,
			       struct guard_moment now)
{
	json_string(j, "level", health_level_name(s->level));
	json_string(j, "heat", health_level_name(s->heat));
	json_bool(j, "thermal", s->thermal);
	json_bool(j, "quarantine", s->quarantine);
	json_double(j, "margin_celsius", s->margin_c);
	render_text(j, "margin_source", s->margin_source);
	json_double(j, "evict_at_celsius", s->evict_at_c);
	guard_doc_time(j, "since", s->since_ns, now);
	guard_doc_time(j, "clears", s->worst.clears_ns > now.mono_ns ? s->worst.clears_ns : 0,
		       now);
	json_uint(j, "xids_total", s->xids);
	last_xid(j, "last_xid", h, s->last_xid);
	json_double(j, "xids_before_start", read_log ? s->past_xids : (double)NAN);
	last_xid(j, "last_xid_before_start", h, s->last_past_xid);
	guard_doc_time(j, "last_xid_before_start_at", s->last_past_ns, now);
	render_text(j, "why", s->worst.why);
	render_text(j, "advice", s->worst.advice);
}

/* Writes null for all values, because the health of the GPU is not monitored. */
static void write_unknown_health(struct json *j, struct guard_moment now)
{
	static const char *const keys[] = { "level",           "heat",
					    "thermal",         "quarantine",
					    "margin_celsius",  "margin_source",
					    "evict_at_celsius" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		json_null(j, keys[i]);
	guard_doc_time(j, "since", 0, now);
	guard_doc_time(j, "clears", 0, now);
	json_null(j, "xids_total");
	json_null(j, "last_xid");
	json_null(j, "xids_before_start");
	json_null(j, "last_xid_before_start");
	guard_doc_time(j, "last_xid_before_start_at", 0, now);
	json_string(j, "why", "the health of this GPU is not monitored");
	json_string(j, "advice", "Set enabled = true in [health].");
	json_null(j, "ghost");
}

static void write_health(struct json *j, const struct api *a, unsigned i)
{
	const struct guard_moment now = guard_moment(a);
	const struct gw_device *d = gw_snapshot_device(a->view.snap, i);
	const struct guard_view *g = a->view.guard;
	struct health_status s;

	json_uint(j, "index", d->index);
	json_string(j, "uuid", gw_device_text(d, GW_T_UUID));
	json_string(j, "name", gw_device_text(d, GW_T_NAME));
	json_string(j, "state", gw_device_state_name(d->state));
	if (i >= g->devices || !g->health[i]) {
		write_unknown_health(j, now);
		return;
	}
	health_status(g->health[i], now.mono_ns, &s);
	write_known_health(j, g->health[i], &s,
			   g->kernel_log && strcmp(g->kernel_log, "ok") == 0, now);
	render_text(j, "ghost", g->ghost ? g->ghost[i] : "");
}

/* Returns the worst level of all monitored GPUs; NULL: none is monitored. */
static const char *worst_level(const struct api *a, uint64_t now_ns)
{
	const struct guard_view *g = a->view.guard;
	unsigned n = gw_snapshot_device_count(a->view.snap);
	int level = -1;

	for (unsigned i = 0; i < n && i < g->devices; i++) {
		struct health_status s;

		if (!g->health[i])
			continue;
		health_status(g->health[i], now_ns, &s);
		level = (int)s.level > level ? (int)s.level : level;
	}
	return level < 0 ? NULL : health_level_name((unsigned)level);
}

static void write_health_head(struct json *j, const struct api *a)
{
	json_string(j, "level", worst_level(a, guard_moment(a).mono_ns));
	json_string(j, "xid_catalogue", xid_table_version());
	json_string(j, "kernel_log", a->view.guard->kernel_log);
}

void api_health(void *arg, const struct request *q, struct reply *r)
{
	guard_doc_gpus(arg, q, r, write_health_head, write_health);
}

static void reply_health(const struct api *a, unsigned i, struct reply *r)
{
	struct json j;

	api_begin(&j, a, r);
	write_health(&j, a, i);
	api_end(&j);
}

void api_health_gpu(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	int i;

	if (guard_doc_there(a, r) && api_has_reading(a, r) &&
	    (i = api_find(a, r, 404, q->arg[0])) >= 0)
		reply_health(a, (unsigned)i, r);
}

static void clear_quarantine(const struct api *a, const struct request *q, struct reply *r,
			     unsigned i, const char *reason)
{
	const char *uuid = gw_device_text(gw_snapshot_device(a->view.snap, i), GW_T_UUID);
	char message[256] = "", who[256];
	int err;

	guard_doc_who(q, reason, who, sizeof(who));
	err = a->view.guard_ops->clear(a->view.guarding, uuid ? uuid : "", who, message,
				       sizeof(message));
	if (!err)
		reply_health(a, i, r);
	else if (err == -GW_E_STATE)
		reply_problem(r, 409, "not-past",
			      "Fix the cause first. The quarantine then ends automatically, or "
			      "you can clear it.",
			      "the cause of the quarantine still exists: %s", message);
	else
		reply_problem(r, 404, "not-watched", "Set enabled = true in [health].",
			      "the health of this GPU is not monitored");
}

void api_health_clear(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const char *reason = "";
	struct json_request *b;
	int i;

	if (!guard_doc_may_ask(a, r) || !api_has_reading(a, r) ||
	    (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	b = api_body(q, r, "reason");
	if (!b)
		return;
	if (!json_request_text(b, "reason", GUARD_REASON_MAX, &reason))
		reply_problem(r, 400, "bad-body", NULL, "%s", json_request_message(b));
	else
		clear_quarantine(a, q, r, (unsigned)i, reason);
	json_request_close(b);
}
