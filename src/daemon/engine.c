#include "engine.h"

#include "guard_service.h"
#include "energy_account.h"
#include "device_events.h"
#include "reader.h"
#include "settings.h"
#include "token_counter.h"

#include "device/context.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEVICES_MAX   256
#define TEXT_MAX      400
#define GONE_AGAIN_NS (5 * NS_PER_S)
/* After a request that shows processes, the reader reads the SM utilisation of every process
 * during this time. The time is longer than the usual interval between two scrapes. */
#define LOOK_NS (35 * NS_PER_S)
/* If two requests of clients come within this time, the reader reads at the configured
 * interval. If no request has come for this time, the reader reads less often. */
#define WATCH_NS (5 * NS_PER_S)
/* Interval at which the engine checks whether the store has written the counters. If the disk
 * is slow, the view is published after STORED_MAX_NS, even if its counters are not written
 * yet. */
#define STORED_CHECK_NS NS_PER_MS
#define STORED_MAX_NS   (300 * NS_PER_MS)
/* What the engine remembers about a GPU between ticks. */
struct gpu_state {
	struct gpu_count count;
	struct gpu_events events;
};

struct engine {
	struct engine_config config;
	struct reader *reader;
	struct settings *settings;
	struct guard_start guard_start;
	/* NULL if there is no guard, or if the guard has not started yet. */
	struct guard_service *guarding;
	/* Counts the tokens of the inference servers. NULL if there is no guard, because only
	 * the guard knows these servers. */
	struct token_counter *tokens;
	const struct clock *clock;
	struct view view;
	/* Array of DEVICES_MAX elements. device[i] and gpu[i] belong to the same GPU. */
	struct view_device *device;
	struct gpu_state *gpu;
	struct process_account *account;
	struct workload_names *names; /* NULL if the memory was not sufficient. */
	struct workload_account *workloads;
	struct metering *metering; /* The meter that the view uses. NULL if there is none. */
	bool retiring;
	struct driver_events driver;
	/* Number of failed attempts to initialise NVML that the context had counted at the last
	 * tick. */
	unsigned long init_failures;
	char unopened[400]; /* The last logged reason why the GPUs could not be opened. */
	/* Monotonic time of the last event "a driver is being removed". 0 if there was none. */
	uint64_t gone_ns;
	/* Monotonic time of the last request of a client. 0 if there was none. */
	uint64_t watched_ns;
	struct loop_source *stored_timer;
	/* Monotonic time at which the view is published even if its counters are not stored. 0
	 * if no view waits to be published. */
	uint64_t stored_by_ns;
};

uint64_t engine_emit(void *arg, const struct view_event *given)
{
	struct engine *e = arg;
	struct view_event x = *given;

	x.wall_ns = clock_wall_ns(e->clock);
	x.simulated = view_simulated(&e->view);
	x.id = store_add_event(e->config.store, &x);
	/* Pass the event to the store's thread now. Otherwise, after kill -9, another event
	 * could get the same id. */
	store_commit(e->config.store);
	e->config.happened(e->config.arg, &x);
	return x.id;
}

void engine_event(struct engine *e, const char *kind, const char *uuid, const char *severity,
		  const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	engine_emit(e,
		    &(struct view_event){
			    .kind = kind, .uuid = uuid, .severity = severity, .text = text });
}

/* The context counts the failed attempts to initialise NVML. Adds the attempts that failed
 * since the last tick to the stored counter. */
static void count_init_failures(struct engine *e)
{
	unsigned long n = atomic_load(&e->view.ctx->init_failures);

	if (n == e->init_failures)
		return;
	e->view.init_failures += n - e->init_failures;
	e->init_failures = n;
	store_set_count(e->config.store, "init_failures", (double)e->view.init_failures);
}

/* Prepares position i for another GPU: clears the data of the old GPU and loads the stored
 * counters of the new GPU. */
static void begin_device(struct engine *e, unsigned i, const char *uuid)
{
	struct view_device *v = &e->device[i];
	struct gpu_state *s = &e->gpu[i];

	memset(v, 0, sizeof(*v));
	memset(s, 0, sizeof(*s));
	v->meter = -1;
	process_account_reset(e->account, i);
	gpu_count_load(&s->count, e->config.store, uuid, v);
	workload_account_begin(e->workloads, i, uuid, s->count.base_j);
}

/* Handles a store that becomes readable after the start: adds the stored counters to the counts
 * since the start. */
static void recall_late(struct engine *e)
{
	e->view.init_failures += (uint64_t)store_count(e->config.store, "init_failures");
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		struct gpu_state *s = &e->gpu[i];
		double joules, seconds;

		if (!s->events.known || !s->count.uuid[0])
			continue;
		gpu_count_add_stored(&s->count, e->config.store, &e->device[i], &joules,
				     &seconds);
		process_account_shift(e->account, i, joules, seconds);
		workload_account_late(e->workloads, i, joules);
	}
	settings_restore(e->settings);
	engine_event(e, "service", NULL, "info",
		     "the history is readable now: the counters of earlier runs continue, and "
		     "GPU settings that an earlier run left changed are restored");
}

static void save_reading(struct engine *e, unsigned i, const struct gw_device *d)
{
	double value[VIEW_HISTORIES];
	bool any = false;

	for (unsigned h = 0; h < VIEW_HISTORIES; h++) {
		value[h] = NAN;
		any |= gw_device_value(d, view_history_quantity[h], &value[h]) == GW_HAVE;
	}
	if (any && e->gpu[i].count.uuid[0])
		store_add_reading(e->config.store, e->gpu[i].count.uuid,
				  gw_snapshot_wall_ns(e->view.snap), value);
}

static void count_energy(struct engine *e, unsigned i)
{
	struct metering *m = e->metering;
	bool measured = m && i < m->count && !m->device[i].hung;
	double joules = 0, seconds = 0;

	if (measured)
		joules = metering_joules(m, i, &seconds);
	e->device[i].meter = measured ? (int)i : -1;
	gpu_count_energy(&e->gpu[i].count, e->config.store, joules, seconds,
			 clock_wall_ns(e->clock), &e->device[i]);
}

static void follow_device(struct engine *e, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(e->view.snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	struct view_device *v = &e->device[i];
	struct gpu_state *s = &e->gpu[i];

	if (!s->events.known || (uuid && strcmp(uuid, s->count.uuid) != 0))
		begin_device(e, i, uuid);
	uuid = s->count.uuid[0] ? s->count.uuid : NULL;
	if (gpu_events_follow_state(&s->events, e, &e->view, i, uuid))
		gpu_count_state_change(&s->count, e->config.store, v);
	if (d->state == GW_DEVICE_OK) {
		v->seen_ns = d->end_ns;
		save_reading(e, i, d);
	}
	gpu_count_errors(&s->count, e->config.store, d, v);
	gpu_events_follow_queries(&s->events, e, &e->view, i, uuid);
	count_energy(e, i);
}

static const char unmetered[] =
	"the energy of the GPUs is not measured: out of memory or threads; gpuward tries again";

/* Call it before the meter is replaced. Adds the energy that the meter measured to the
 * totals. */
static void keep_meter_energy(struct engine *e)
{
	double seconds;

	for (unsigned i = 0; i < e->view.devices && i < e->metering->count; i++) {
		e->gpu[i].count.base_j += metering_joules(e->metering, i, &seconds);
		e->gpu[i].count.base_s += seconds;
	}
	e->metering = NULL;
}

static void follow_meter(struct engine *e, const struct reading *r)
{
	if (r->unmetered && !e->view.problems.meter)
		engine_event(e, "service", NULL, "error", "%s", unmetered);
	else if (!r->unmetered && e->view.problems.meter)
		engine_event(e, "service", NULL, "info",
			     "the energy of the GPUs is measured now");
	e->view.problems.meter = r->unmetered ? unmetered : NULL;
	if (!r->retire) {
		e->retiring = false;
		e->metering = r->metering;
		e->view.meter = r->metering ? r->metering->meter : NULL;
		return;
	}
	if (e->retiring)
		return;
	if (e->metering) {
		e->config.meter_gone(e->config.arg);
		keep_meter_energy(e);
		e->view.meter = NULL;
	}
	/* If the queue is full, the next reading tries again. */
	e->retiring = reader_send_request(e->reader, READER_RETIRED) == 0;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	if (!dir)
		return 0;
	for (const struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* Reads memory and threads from lines such as "VmRSS:     1234 kB". */
static void read_status(struct view_self *ret)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long v;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "VmRSS: %lu", &v) == 1)
			ret->rss_bytes = (uint64_t)v * 1024;
		else if (sscanf(line, "VmHWM: %lu", &v) == 1)
			ret->rss_peak_bytes = (uint64_t)v * 1024;
		else if (sscanf(line, "Threads: %lu", &v) == 1)
			ret->threads = (unsigned)v;
	}
	if (f)
		fclose(f);
}

static void count_self(struct engine *e, const struct reading *r)
{
	struct view_self *s = &e->view.self;

	s->cpu_seconds = cpu_seconds();
	read_status(s);
	if (e->view.tick % 10 == 1) /* Counting the descriptors is the most expensive part. */
		s->descriptors = count_entries("/proc/self/fd");
	s->wakeups = loop_wakeups(e->config.loop);
	s->ticks++;
	s->ticks_missed = r->missed;
	s->program = r->program;
	s->tick_seconds = (double)(r->end_ns - r->begin_ns) * 1e-9;
	s->tick_max_seconds = fmax(s->tick_max_seconds, s->tick_seconds);
	s->store_bytes = store_bytes(e->config.store);
	s->store_dropped = store_dropped(e->config.store);
	s->store_problem = store_problem(e->config.store);
	s->counts_known = store_count_known(e->config.store);
}

/* Called when the set of processes on the GPUs changed. The reader then reads at the configured
 * interval for WATCH_NS, so that the energy is divided among the processes that used it. */
static void processes_change(void *arg)
{
	struct engine *e = arg;

	reader_watch(e->reader, clock_mono_ns(e->clock) + WATCH_NS, true);
}

static void begin_guard(struct engine *e)
{
	const struct guard_service_config config = { .loop = e->config.loop,
						     .clock = e->clock,
						     .store = e->config.store,
						     .ctx = e->view.ctx,
						     .emit = engine_emit,
						     .processes_changed = processes_change,
						     .arg = e };
	int err;

	e->guarding = guard_start_try(&e->guard_start, &config, e->view.tick == 1);
	e->view.problems.guard = *e->guard_start.why ? e->guard_start.why : NULL;
	if (!e->guarding)
		return;
	e->view.guard_ops = &guard_service_ops;
	e->view.guarding = e->guarding;
	err = token_counter_new(
		&(struct token_counter_config){ .loop = e->config.loop,
						.store = e->config.store,
						.interval_s = e->config.settings.models_s,
						.emit = engine_emit,
						.arg = e },
		&e->tokens);
	if (err)
		engine_event(e, "service", NULL, "error",
			     "the tokens of inference servers are not counted: %s",
			     gw_strerror(err));
}

/* Called when the GPUs could not be opened. Logs each cause once; the reader tries again. */
static void engine_cannot_open(void *arg, const char *why)
{
	struct engine *e = arg;
	char text[sizeof(e->unopened)];

	snprintf(text, sizeof(text), "the GPUs cannot be read: %s; gpuward tries again", why);
	if (strcmp(text, e->unopened) != 0)
		engine_event(e, "service", NULL, "error", "%s", text);
	snprintf(e->unopened, sizeof(e->unopened), "%s", text);
	e->view.unopened = e->unopened;
	e->config.changed(e->config.arg);
	e->config.ticked(e->config.arg);
}

static void engine_watch(void *arg, enum view_watch how)
{
	struct engine *e = arg;
	const uint64_t now = clock_mono_ns(e->clock);
	const bool once = how != VIEW_WATCH_TICKS;
	const bool again = once && e->watched_ns && now - e->watched_ns < WATCH_NS;

	if (once)
		e->watched_ns = now;
	reader_watch(e->reader, !once || again ? now + WATCH_NS : 0,
		     once && view_rests(&e->view, now, false));
	if (how == VIEW_WATCH_SCENE && e->guarding)
		guard_service_look(e->guarding, e->view.interval_ns);
}

/* Calls `ticked` when the counters of the view are stored. */
static void publish(void *arg, uint64_t now_ns)
{
	struct engine *e = arg;

	if (!store_settled(e->config.store) && now_ns < e->stored_by_ns) {
		loop_set_time(e->stored_timer, now_ns + STORED_CHECK_NS);
		return;
	}
	e->stored_by_ns = 0;
	loop_set_time(e->stored_timer, 0);
	e->config.ticked(e->config.arg);
}

static void engine_tick(void *arg, const struct reading *r)
{
	struct engine *e = arg;
	struct view *v = &e->view;
	uint64_t now;

	v->tick++;
	v->unopened = NULL;
	follow_meter(e, r);
	v->snap = r->snap;
	v->processes = r->processes;
	v->env = r->env;
	v->ctx = r->ctx;
	v->let_go = r->let_go;
	v->pace.next_ns = r->pace_ns;
	v->pace.full = r->full;
	v->requests.done = r->requests_done;
	v->requests.error = r->request_error;
	v->devices = gw_snapshot_device_count(r->snap);
	if (v->devices > DEVICES_MAX)
		v->devices = DEVICES_MAX;
	if (store_news(e->config.store))
		recall_late(e);
	count_init_failures(e);
	driver_events_follow(&e->driver, e, v, r);
	for (unsigned i = 0; i < v->devices; i++)
		follow_device(e, i);
	process_account_tick(e->account, v, e->device,
			     proc_in_child_namespace(&v->ctx->root) == 1);
	workload_account_tick(e->workloads, v);
	count_self(e, r);
	if (v->tick == 1)
		/* Restore settings that an earlier run may have left changed. */
		settings_restore(e->settings);
	if (e->guard_start.waits)
		begin_guard(e);
	if (e->guarding) {
		guard_service_tick(e->guarding, v);
		v->guard = guard_service_view(e->guarding);
		if (v->guard->policy->workers)
			engine_watch(e, VIEW_WATCH_TICKS);
	}
	if (e->tokens)
		token_counter_tick(e->tokens, v);
	e->config.changed(e->config.arg);
	store_commit(e->config.store);
	now = clock_mono_ns(e->clock);
	/* If the previous view still waits to be published, its time limit also applies to this
	 * view. */
	if (!e->stored_by_ns)
		e->stored_by_ns = now + STORED_MAX_NS;
	publish(e, now);
}

static int op_history(void *arg, const char *uuid, unsigned quantity, uint64_t from_wall_ns,
		      uint64_t to_wall_ns, uint64_t step_ns, struct view_point *out,
		      unsigned max, uint64_t *ret_step_ns)
{
	struct engine *e = arg;

	for (unsigned h = 0; h < VIEW_HISTORIES; h++)
		if (view_history_quantity[h] == quantity)
			return store_history(e->config.store, uuid, h, from_wall_ns, to_wall_ns,
					     step_ns, out, max, ret_step_ns);
	return -GW_E_NOSUPPORT;
}

static int op_events(void *arg, uint64_t after, unsigned max,
		     void (*each)(void *arg, const struct view_event *x), void *each_arg)
{
	struct engine *e = arg;

	if (after == UINT64_MAX)
		after = store_events_after(e->config.store, max);
	return store_events(e->config.store, after, max, each, each_arg);
}

static int op_put_document(void *arg, const char *kind, const char *id, const char *json,
			   size_t size)
{
	struct engine *e = arg;

	return store_put_document(e->config.store, kind, id, json, size);
}

static int op_each_document(void *arg, const char *kind, unsigned max,
			    void (*each)(void *arg, const char *id, const char *json),
			    void *each_arg)
{
	struct engine *e = arg;

	return store_each_document(e->config.store, kind, max, each, each_arg);
}

static int op_request(void *arg, enum view_request what)
{
	struct engine *e = arg;
	int err = reader_send_request(e->reader,
				      what == VIEW_LET_GO ? READER_LET_GO : READER_RESUME);

	return err ? err : (int)++e->view.requests.made;
}

static int op_find_documents(void *arg, const struct view_find *f, view_found_fn *each,
			     void *each_arg)
{
	struct engine *e = arg;

	return store_find_documents(e->config.store, f, each, each_arg);
}

static void op_delete_document(void *arg, const char *kind, const char *id)
{
	struct engine *e = arg;

	store_delete_document(e->config.store, kind, id);
	/* Write the deletion now. If it were written at the next tick, kill -9 before that tick
	 * would undo it. */
	store_commit(e->config.store);
}

static int op_manage(void *arg, const struct manage_change *change)
{
	struct engine *e = arg;

	return e->config.settings.manage ? settings_change(e->settings, change)
					 : -GW_E_NOSUPPORT;
}

static int op_managed(void *arg, int ticket, struct manage_result *ret)
{
	struct engine *e = arg;

	return settings_result(e->settings, ticket, ret);
}

static bool op_stored(void *arg)
{
	struct engine *e = arg;

	return store_settled(e->config.store);
}

static const char *op_store_problem(void *arg)
{
	struct engine *e = arg;

	return store_problem(e->config.store);
}

static void op_look(void *arg, bool now)
{
	struct engine *e = arg;

	reader_look(e->reader, clock_mono_ns(e->clock) + LOOK_NS, now);
}

static const struct view_ops operations = {
	.history = op_history,
	.events = op_events,
	.emit = engine_emit,
	.put_document = op_put_document,
	.each_document = op_each_document,
	.find_documents = op_find_documents,
	.delete_document = op_delete_document,
	.request = op_request,
	.manage = op_manage,
	.managed = op_managed,
	.look = op_look,
	.watch = engine_watch,
	.stored = op_stored,
	.store_problem = op_store_problem,
};

static void emit_manage(void *arg, const char *uuid, const char *severity, const char *text)
{
	engine_event(arg, "manage", uuid, severity, "%s", text);
}

const struct view *engine_view(struct engine *e)
{
	return &e->view;
}

void engine_configure(struct engine *e, const struct engine_settings *settings)
{
	e->config.settings = *settings;
	e->view.interval_ns = settings->interval_ns;
	reader_set_interval(e->reader, settings->interval_ns);
	reader_set_profile(e->reader, settings->profile);
	workload_account_configure(e->workloads, &settings->workloads);
	if (e->tokens)
		token_counter_set_interval(e->tokens, settings->models_s);
}

void engine_moved(struct engine *e, bool gone)
{
	uint64_t now = clock_mono_ns(e->clock);

	/* The kernel reports a removal several times for each GPU of a driver. Emit only one
	 * event. */
	if (gone && !e->view.let_go && e->view.devices > 0 &&
	    (!e->gone_ns || now - e->gone_ns > GONE_AGAIN_NS)) {
		e->gone_ns = now;
		engine_event(e, "service", NULL, "warning",
			     "a GPU or its driver is being removed; the drivers are released "
			     "and opened again in a few seconds");
	}
	/* If the queue is full, a later scan finds the change. */
	reader_send_request(e->reader, gone ? READER_GONE : READER_CAME);
}

void engine_set_guard(struct engine *e, struct guard_settings *settings)
{
	if (e->guarding) {
		guard_service_reload(e->guarding, settings);
		return;
	}
	guard_start_set(&e->guard_start, settings);
}

static void begin_view(struct engine *e)
{
	struct store *store = e->config.store;

	e->view = (struct view){ .interval_ns = e->config.settings.interval_ns,
				 .unopened = "the drivers are being opened for the first time",
				 .device = e->device,
				 .ops = &operations,
				 .engine = e };
	e->view.init_failures = (uint64_t)store_count(store, "init_failures");
	e->view.self.start_wall_ns = clock_wall_ns(e->clock);
	e->view.self.start_mono_ns = clock_mono_ns(e->clock);
	e->view.self.store_problem = store_problem(store);
	e->view.self.counts_known = store_count_known(store);
}

static int begin_reader(struct engine *e)
{
	struct reader_config reader = { .options = e->config.options,
					.interval_ns = e->config.settings.interval_ns,
					.cache_dir = e->config.cache_dir,
					.ready = engine_tick,
					.failed = engine_cannot_open,
					.arg = e };
	int err = reader_new(e->config.loop, &reader, &e->reader);

	if (!err)
		reader_set_profile(e->reader, e->config.settings.profile);
	return err;
}

static int begin_settings(struct engine *e)
{
	struct settings_config settings = { .loop = e->config.loop,
					    .store = e->config.store,
					    .reader = e->reader,
					    .log = emit_manage,
					    .arg = e };

	return settings_new(&settings, &e->settings);
}

static void workload_warning(void *arg, const char *sentence)
{
	engine_event(arg, "service", NULL, "warning", "%s", sentence);
}

static int begin_workloads(struct engine *e)
{
	const struct workload_names_config names = {
		.loop = e->config.loop,
		.root = e->config.options->root,
		.hpc_job_mapping_dir = e->config.hpc_job_mapping_dir,
		.log = workload_warning,
		.arg = e,
	};

	(void)workload_names_new(&names, &e->names);
	e->workloads = workload_account_new(DEVICES_MAX, e->config.store, e->names,
					    &e->config.settings.workloads, workload_warning, e);
	return e->workloads ? 0 : -GW_E_NOMEM;
}

static void engine_release(struct engine *e)
{
	loop_remove(e->stored_timer);
	guard_start_done(&e->guard_start);
	workload_account_free(e->workloads);
	workload_names_free(e->names);
	process_account_free(e->account);
	free(e->device);
	free(e->gpu);
	free(e);
}

int engine_new(const struct engine_config *config, struct engine **ret)
{
	struct engine *e = calloc(1, sizeof(*e));
	int err = -GW_E_NOMEM;

	if (!e)
		return err;
	e->config = *config;
	e->clock = clock_real();
	if (config->guard)
		guard_start_set(&e->guard_start, config->guard);
	e->device = calloc(DEVICES_MAX, sizeof(*e->device));
	e->gpu = calloc(DEVICES_MAX, sizeof(*e->gpu));
	e->account = process_account_new(DEVICES_MAX);
	if (!e->device || !e->gpu || !e->account || begin_workloads(e) != 0)
		goto fail;
	store_begin_event_ids(config->store, clock_wall_ns(e->clock));
	begin_view(e);
	err = loop_add_timer(config->loop, publish, e, &e->stored_timer);
	if (err)
		goto fail;
	err = begin_reader(e);
	if (err)
		goto fail;
	err = begin_settings(e);
	if (err) {
		reader_free(e->reader, NS_PER_S);
		goto fail;
	}
	*ret = e;
	return 0;
fail:
	engine_release(e);
	return err;
}

int engine_end_guard(struct engine *e, uint64_t timeout_ns)
{
	int err;

	if (!e)
		return 0;
	token_counter_free(e->tokens, timeout_ns);
	e->tokens = NULL;
	e->view.models = NULL;
	err = guard_service_free(e->guarding, timeout_ns);
	if (!err)
		e->guarding = NULL;
	return err;
}

int engine_free(struct engine *e, uint64_t timeout_ns)
{
	int err = engine_end_guard(e, timeout_ns);

	if (!e || err)
		return err; /* The hanging thread may still use e. */
	workload_account_save(e->workloads, true);
	err = settings_close(e->settings, timeout_ns);
	if (!err)
		err = reader_free(e->reader, timeout_ns);
	if (err)
		return err; /* The hanging thread may still use e. */
	settings_free(e->settings);
	engine_release(e);
	return 0;
}
