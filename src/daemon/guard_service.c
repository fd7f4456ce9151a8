#include "guard_service_parts.h"

#include "base/clock.h"
#include "guard/scene.h"
#include "guard/process_cache.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RESTORE_NS (10 * NS_PER_S)
/* Time between two scenes if no worker is configured. In this case, only clients use the
 * scenes. */
#define UNUSED_SCENE_NS (30 * NS_PER_S)
/* Time to the next scene if no worker is configured, but a process opened or closed a GPU. The
 * driver lists a process up to 0.3 s after the process opened a GPU (measured on an H200). */
#define OPENED_SCENE_NS NS_PER_S
/* Maximum time for which the service, when it ends, observes the workers that it has just
 * resumed. */
#define LAST_SCENE_NS NS_PER_S
/* Shortest and longest pause before the guard is started again after a failure. */
#define START_LEAST_NS (5 * NS_PER_S)
#define START_MOST_NS  (60 * NS_PER_S)

uint64_t guard_service_real_ns(void)
{
	return clock_mono_ns(clock_real());
}

uint64_t guard_service_log(struct guard_service *g, const char *severity, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return g->config.emit(
		g->config.arg,
		&(struct view_event){ .kind = "guard", .severity = severity, .text = text });
}

#define SCENES_KEY "guard-all/looks" /* Store key of the number of scenes. */

/* Returns a hash of the processes on the GPUs. Two different sets almost certainly have
 * different hashes. */
static uint64_t process_set(const struct scene *s)
{
	uint64_t sum = s->processes;

	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *p = &s->process[i];
		uint64_t x = (uint64_t)p->id.pid * UINT64_C(0x9e3779b97f4a7c15) ^
			     p->id.start_ticks * UINT64_C(0xc2b2ae3d27d4eb4f) ^ p->gpu;

		x ^= x >> 29;
		/* A sum, because the order of the processes does not matter. */
		sum += x * UINT64_C(0xbf58476d1ce4e5b9);
	}
	return sum;
}

/* Calls processes_changed() if the set of processes on the GPUs has changed. Does not report a
 * process that only opens a GPU, because monitoring programs open GPUs every few seconds.
 * Returns true if a GPU was opened or closed since the last scene. */
static bool follow_processes(struct guard_service *g, const struct scene *s)
{
	const uint64_t before = g->view.counts.triggered, set = process_set(s);
	struct scene_builder_stats built;

	scene_thread_stats(g->scenes, &built, &g->view.counts.triggered);
	if (set != g->gpus.process_set && g->config.processes_changed)
		g->config.processes_changed(g->config.arg);
	g->gpus.process_set = set;
	return g->view.counts.triggered != before;
}

static uint64_t scene_ready(void *arg, const struct scene *s, bool *ret_utilisation)
{
	struct guard_service *g = arg;
	uint64_t before = g->journal.decided, now;
	bool opened;

	g->view.scene = s;
	g->counts.scenes++;
	opened = follow_processes(g, s);
	guard_service_lock_look(g, s);
	guard_service_observe(g, s);
	guard_service_update_mps(g);
	guard_reload_try(g);
	guard_service_pump(g);
	now = guard_service_time_ns(g);
	if (g->journal.decided != before) {
		double seconds = (double)(now - s->mono_ns) * 1e-9;

		g->view.counts.decide_seconds_last = seconds;
		g->view.counts.decide_seconds_max =
			fmax(g->view.counts.decide_seconds_max, seconds);
	}
	if (!g->settings->policy.workers)
		return now + (opened ? OPENED_SCENE_NS : UNUSED_SCENE_NS);
	*ret_utilisation = guard_wants_utilisation(g->guard);
	return guard_next_scene_ns(g->guard, now);
}

void guard_service_look(struct guard_service *g, uint64_t age_ns)
{
	const struct scene *s = g->view.scene;

	if (!g->settings->policy.workers && !g->paused && s &&
	    guard_service_real_ns() > s->mono_ns + age_ns)
		scene_thread_look(g->scenes);
}

static void outcomes_ready(void *arg, int fd, uint32_t events)
{
	struct guard_service *g = arg;
	struct guard_outcome o;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	while (action_next_outcome(g->action, &o))
		guard_service_outcome(g, &o);
	guard_reload_try(g);
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
}

/* Stores the counters that continue after a restart. Before that, once, when the store is
 * readable, adds the stored values to the counters. */
static void keep_counts(struct guard_service *g)
{
	struct guard_view_counts *c = &g->view.counts;
	struct store *s = g->config.store;

	if (!store_count_known(s))
		return;
	if (!g->counts.loaded) {
		g->counts.scenes += (uint64_t)store_count(s, SCENES_KEY);
		c->events_lost += (uint64_t)store_count(s, "guard-all/driver_events_lost");
		g->counts.loaded = true;
	}
	c->scenes = g->counts.scenes;
	store_set_count(s, SCENES_KEY, (double)c->scenes);
	store_set_count(s, "guard-all/driver_events_lost", (double)c->events_lost);
}

void guard_service_tick(struct guard_service *g, const struct view *v)
{
	keep_counts(g);
	guard_service_devices_tick(g, v);
	guard_service_events_check(g);
	guard_service_rooms_tick(g);
	guard_inputs_tick(g->inputs, v);
	if (v->let_go != g->paused) {
		g->paused = v->let_go;
		scene_thread_pause(g->scenes, g->paused);
	}
	guard_reload_try(g);
	guard_service_pump(g);
}

static void update_counts(struct guard_service *g)
{
	struct guard_view_counts *c = &g->view.counts;

	c->stuck = 0;
	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		struct guard_status s;

		if (guard_status(g->guard, i, &s) == 0)
			c->stuck += s.state == STATE_STUCK;
	}
}

const struct guard_view *guard_service_view(struct guard_service *g)
{
	update_counts(g);
	g->view.policy = &g->settings->policy;
	g->mode.configured = g->settings->configured;
	g->view.mode = &g->mode;
	g->view.guard = g->guard;
	g->view.health = g->gpus.health;
	g->view.capacity = g->gpus.capacity;
	g->view.evictions = g->gpus.evictions;
	g->view.devices = g->gpus.count;
	g->view.ring = g->journal.ring;
	g->view.tally = &g->tally;
	g->view.moves = &g->moves;
	g->view.operations = &g->operations;
	g->view.requested = g->requested;
	g->view.rooms = g->room;
	guard_inputs_show(g->inputs, &g->view);
	guard_service_journal_view(g);
	return &g->view;
}

static int open_guard(struct guard_service *g, const struct guard_service_records *r)
{
	int err = guard_recorder_new(g, r);

	if (err)
		return err;
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		guard_service_give_notes(g, r, i);
	guard_service_rooms_open(g);
	guard_service_log_missing(g, r);
	return 0;
}

static int open_all(struct guard_service *g)
{
	struct guard_service_records *r = NULL;
	struct scene_builder_formers formers;
	int err = g->outcome_fd < 0 ? -GW_E_IO
				    : action_new(&g->settings->policy, &worker_all,
						 g->outcome_fd, &g->action);

	if (!err)
		err = guard_service_records_read(g, &r);
	if (!err)
		err = open_guard(g, r);
	if (!err)
		err = guard_inputs_new(g, &g->inputs);
	if (!err)
		err = guard_service_journal_open(g);
	if (!err)
		err = loop_add_fd(g->config.loop, g->outcome_fd, EPOLLIN, outcomes_ready, g,
				  &g->outcome_source);
	if (!err) {
		guard_service_formers(r, &g->settings->policy, &formers);
		err = scene_thread_new(g->config.loop, g->config.ctx, &g->settings->policy,
				       &formers, scene_ready, g, &g->scenes);
	}
	free(r);
	return err ? err : guard_service_events_open(g);
}

void guard_service_fit(struct guard_service *g, struct guard_settings *s)
{
	char text[PROC_VISIBILITY_TEXT];

	s->policy.mode = g->mode.chosen ? g->mode.mode : s->configured;
	/* Warn if the service may not read a property of processes that the policy needs.
	 * Without the property, a worker seems absent or a rule never matches. */
	if (proc_visibility_missing(&s->policy, proc_visibility_now(), text))
		guard_service_log(g, "warning", "%s", text);
	if (!store_shared(g->config.store) || s->policy.mode != GUARD_ENFORCE)
		return;
	s->policy.mode = GUARD_OBSERVE;
	guard_service_log(g, "warning",
			  "another gpuward uses the same journal: this gpuward only observes; "
			  "stop one of the two services");
}

/* Starts the guard. Needs an open context. Returns 0, -GW_E_NOMEM or -GW_E_IO. */
static int guard_service_new(const struct guard_service_config *config,
			     struct guard_service **ret)
{
	struct guard_service *g = calloc(1, sizeof(*g));
	struct guard_settings *settings = malloc(sizeof(*settings));
	int err;

	if (!g || !settings) {
		guard_settings_done(config->settings);
		free(settings);
		free(g);
		return -GW_E_NOMEM;
	}
	/* These facts are unknown until the first reading. */
	g->gpus.facts = (struct worker_facts){ -1, -1, -1 };
	*settings = *config->settings;
	g->config = *config;
	if (!g->config.clock)
		g->config.clock = clock_real();
	g->settings = settings;
	guard_mode_load(g);
	guard_service_fit(g, settings);
	g->outcome_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = event_queue_init(&g->driver.events);
	if (!err)
		err = open_all(g);
	if (err) {
		guard_service_free(g, 0);
		return err;
	}
	guard_service_record_open(g);
	*ret = g;
	return 0;
}

void guard_start_set(struct guard_start *s, struct guard_settings *settings)
{
	guard_start_done(s);
	s->settings = *settings;
	s->waits = true;
}

void guard_start_done(struct guard_start *s)
{
	if (s->waits)
		guard_settings_done(&s->settings);
	s->waits = false;
}

__attribute__((format(printf, 3, 4))) static void
log_start(const struct guard_service_config *config, const char *severity, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	config->emit(
		config->arg,
		&(struct view_event){ .kind = "guard", .severity = severity, .text = text });
}

/* Logs the first failure, and sets the time of the next attempt. */
static void start_failed(struct guard_start *s, const struct guard_service_config *config,
			 int err)
{
	s->pause_ns = !s->pause_ns ? START_LEAST_NS : 2 * s->pause_ns;
	if (s->pause_ns > START_MOST_NS)
		s->pause_ns = START_MOST_NS;
	s->at_ns = clock_mono_ns(config->clock) + s->pause_ns;
	if (!*s->why)
		log_start(config, "error", "cannot start the guard: %s; gpuward tries again",
			  gw_strerror(err));
	snprintf(s->why, sizeof(s->why), "the guard cannot be started: %s; gpuward tries again",
		 gw_strerror(err));
}

struct guard_service *guard_start_try(struct guard_start *s,
				      const struct guard_service_config *config, bool first)
{
	struct guard_service_config with = *config;
	/* The guard gets a copy of the settings, because the next attempt needs the settings if
	 * this attempt fails. */
	struct guard_settings copy;
	struct guard_service *g = NULL;
	int err;

	if (!s->waits || clock_mono_ns(config->clock) < s->at_ns)
		return NULL;
	/* The guard needs its journal, because the journal lists the workers that an earlier
	 * run evicted. */
	if (!store_count_known(config->store)) {
		if (first)
			log_start(config, "warning",
				  "the guard has not started because its journal is not "
				  "readable yet: %s",
				  store_state(config->store));
		return NULL;
	}
	err = guard_settings_copy(&copy, &s->settings);
	if (!err) {
		with.settings = &copy;
		err = guard_service_new(&with, &g);
	}
	if (err) {
		start_failed(s, config, err);
		return NULL;
	}
	guard_start_done(s);
	if (*s->why)
		log_start(config, "info", "the guard has started");
	s->why[0] = '\0';
	return g;
}

static bool has_unverified(const struct guard_service *g)
{
	struct guard_status s;

	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (guard_status(g->guard, i, &s) == 0 && s.state == STATE_VERIFY_UP && !s.dry)
			return true;
	return false;
}

/* Observes resumed workers once more, so that they are verified and counted. No new orders
 * start. */
static void observe_last(struct guard_service *g)
{
	uint64_t until = guard_service_time_ns(g) + LAST_SCENE_NS;

	g->ending = true;
	if (!g->scenes || !has_unverified(g))
		return;
	scene_thread_trigger(g->scenes);
	while (has_unverified(g) && guard_service_time_ns(g) < until) {
		clock_sleep_until(g->config.clock,
				  guard_service_time_ns(g) + GUARD_SERVICE_LOOK_NS);
		scene_thread_take(g->scenes);
		guard_service_written(g, guard_service_time_ns(g));
	}
}

/* Logs workers with an unfinished order. The records of these workers stay in the journal, so
 * that the service resumes the workers when it starts again. */
static void log_unfinished(struct guard_service *g)
{
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (guard_unsettled(g->guard, i))
			guard_service_log(g, "warning",
					  "worker %s: the service stops before an order "
					  "finished; the worker may stay evicted or refuse "
					  "work until the service starts again and resumes it",
					  g->settings->policy.worker[i].name);
}

/* Resumes the evicted workers that may run. Waits at most RESTORE_NS until they are resumed. */
static void resume_recorded_workers(struct guard_service *g)
{
	uint64_t until = guard_service_time_ns(g) + RESTORE_NS;
	struct guard_outcome o;

	guard_service_stop(g);
	guard_service_pump(g);
	while (guard_unsettled_count(g->guard) && guard_service_time_ns(g) < until) {
		clock_sleep_until(g->config.clock,
				  guard_service_time_ns(g) + GUARD_SERVICE_LOOK_NS);
		guard_service_written(g, guard_service_time_ns(g));
		while (action_next_outcome(g->action, &o)) {
			guard_service_outcome(g, &o);
			if (g->scenes)
				scene_thread_trigger(g->scenes);
		}
		if (g->scenes)
			scene_thread_take(g->scenes);
		guard_service_pump(g);
	}
	log_unfinished(g);
}

int guard_service_free(struct guard_service *g, uint64_t timeout_ns)
{
	int err = 0;

	if (!g)
		return 0;
	guard_reload_drop(g);
	if (g->action && g->guard) {
		resume_recorded_workers(g);
		observe_last(g);
		keep_counts(g);
	}
	if (g->scenes)
		err = scene_thread_free(g->scenes, timeout_ns);
	if (!err) {
		g->scenes = NULL;
		err = guard_service_events_stop(g);
	}
	if (g->action && action_free(g->action, timeout_ns) != 0)
		err = -GW_E_STATE;
	if (err)
		return err;
	loop_remove(g->journal.timer);
	loop_remove(g->outcome_source);
	if (g->outcome_fd >= 0)
		close(g->outcome_fd);
	loop_remove(g->driver.source);
	guard_service_devices_close(g);
	guard_service_rooms_close(g);
	guard_service_lock_close(g);
	guard_inputs_free(g->inputs);
	guard_reload_close(g);
	guard_recorder_free(g);
	guard_settings_done(g->settings);
	free(g->settings);
	event_queue_done(&g->driver.events);
	free(g);
	return 0;
}
