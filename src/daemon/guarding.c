#include "guarding_parts.h"

#include "base/clock.h"
#include "guard/scene.h"
#include "guard/sight.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RESTORE_NS   (10 * NS_PER_S)
#define LAST_LOOK_NS NS_PER_S /* for who came back to be seen */

uint64_t guarding_now_ns(void)
{
	return clock_mono_ns(clock_real());
}

uint64_t guarding_tell(struct guarding *g, const char *severity, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return g->config.tell(
		g->config.arg,
		&(struct view_event){ .kind = "guard", .severity = severity, .text = text });
}

/* ---- what is seen ---- */

static uint64_t came(void *arg, const struct scene *s, bool *ret_utilisation)
{
	struct guarding *g = arg;
	uint64_t before = g->decided, now;

	g->view.scene = s;
	g->view.counts.looks++;
	guarding_lock_look(g, s);
	guarding_look(g, s);
	guarding_swap_try(g);
	guarding_pump(g);
	now = guarding_time_ns(g);
	if (g->decided != before) {
		double seconds = (double)(now - s->mono_ns) * 1e-9;

		g->view.counts.decide_seconds_last = seconds;
		g->view.counts.decide_seconds_max =
			fmax(g->view.counts.decide_seconds_max, seconds);
	}
	*ret_utilisation = guard_wants_utilisation(g->guard);
	return guard_next_look(g->guard, now);
}

static void outcomes(void *arg, int fd, uint32_t events)
{
	struct guarding *g = arg;
	struct guard_outcome o;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	while (action_next_outcome(g->action, &o))
		guarding_outcome(g, &o);
	guarding_swap_try(g);
	guarding_pump(g);
	looker_now(g->looker);
}

void guarding_tick(struct guarding *g, const struct view *v)
{
	guarding_devices_tick(g, v);
	guarding_rooms_tick(g);
	beside_tick(g->beside, g->guard, v);
	if (v->let_go != g->paused) {
		g->paused = v->let_go;
		looker_pause(g->looker, g->paused);
	}
	guarding_swap_try(g);
	guarding_pump(g);
}

/* ---- the view ---- */

static void count(struct guarding *g)
{
	struct guard_view_counts *c = &g->view.counts;
	struct look_stats looks;

	c->stuck = 0;
	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		struct guard_status s;

		if (guard_status(g->guard, i, &s) == 0)
			c->stuck += s.state == STATE_STUCK;
	}
	looker_stats(g->looker, &looks, &c->triggered);
}

const struct guard_view *guarding_view(struct guarding *g)
{
	count(g);
	g->view.policy = &g->settings->policy;
	g->view.guard = g->guard;
	g->view.health = g->health;
	g->view.capacity = g->capacity;
	g->view.evictions = g->evictions;
	g->view.devices = g->devices;
	g->view.ring = g->ring;
	g->view.tally = &g->tally;
	g->view.operations = &g->operations;
	beside_show(g->beside, &g->view);
	guarding_journal_view(g);
	return &g->view;
}

/* ---- beginning and end ---- */

static int open_guard(struct guarding *g, const struct guarding_records *r)
{
	int err = guarding_teller_new(g, r);

	if (err)
		return err;
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		guarding_give_notes(g, r, i);
	guarding_rooms_open(g);
	guarding_tell_missing(g, r);
	return 0;
}

static int open_looker(struct guarding *g, const struct guarding_records *r)
{
	struct look_formers formers;

	guarding_formers(r, &g->settings->policy, &formers);
	return looker_new(g->config.loop, g->config.ctx, &g->settings->policy, &formers, came,
			  g, &g->looker);
}

static int open_all(struct guarding *g)
{
	struct guarding_records *r = NULL;
	int err = g->outcome_fd < 0 ? -GW_E_IO
				    : action_new(&g->settings->policy, &worker_all,
						 g->outcome_fd, &g->action);

	if (!err)
		err = guarding_records_read(g, &r);
	if (!err)
		err = open_guard(g, r);
	if (!err)
		err = guarding_beside_open(g);
	if (!err)
		err = guarding_journal_open(g);
	if (!err)
		err = loop_add_fd(g->config.loop, g->outcome_fd, EPOLLIN, outcomes, g,
				  &g->outcome_source);
	if (!err)
		err = open_looker(g, r);
	free(r);
	return err ? err : guarding_events_open(g);
}

/* Who wonders why a worker is absent or a rule never holds finds it in the log and among the events. */
static void tell_sight(struct guarding *g, const struct policy *p)
{
	char text[SIGHT_TEXT];

	if (sight_missing(p, sight_now(), text))
		guarding_tell(g, "warning", "%s", text);
}

void guarding_fit(struct guarding *g, struct guard_settings *s)
{
	tell_sight(g, &s->policy);
	if (!store_shared(g->config.store) || s->policy.mode != GUARD_ENFORCE)
		return;
	s->policy.mode = GUARD_OBSERVE;
	guarding_tell(g, "warning",
		      "another gpuward guards with this file: this one observes; stop one of "
		      "the two");
}

int guarding_new(const struct guarding_config *config, struct guarding **ret)
{
	struct guarding *g = calloc(1, sizeof(*g));
	struct guard_settings *settings = malloc(sizeof(*settings));
	int err;

	if (!g || !settings) {
		guard_settings_done(config->settings);
		free(settings);
		free(g);
		return -GW_E_NOMEM;
	}
	*settings = *config->settings;
	g->config = *config;
	if (!g->config.clock)
		g->config.clock = clock_real();
	g->settings = settings;
	guarding_fit(g, settings);
	event_queue_init(&g->heard);
	g->event_fd = -1;
	g->outcome_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = open_all(g);
	if (err) {
		guarding_free(g, 0);
		return err;
	}
	guarding_record_open(g);
	*ret = g;
	return 0;
}

static bool is_back_unseen(const struct guarding *g)
{
	struct guard_status s;

	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (guard_status(g->guard, i, &s) == 0 && s.state == STATE_VERIFY_UP && !s.dry)
			return true;
	return false;
}

/* Who came back is looked at once more, so that it is known and counted.  Nothing new is begun. */
static void look_last(struct guarding *g)
{
	uint64_t until = guarding_time_ns(g) + LAST_LOOK_NS;

	g->ending = true;
	if (!g->looker || !is_back_unseen(g))
		return;
	looker_now(g->looker);
	while (is_back_unseen(g) && guarding_time_ns(g) < until) {
		clock_sleep_until(g->config.clock, guarding_time_ns(g) + GUARDING_LOOK_NS);
		looker_take(g->looker);
		guarding_written(g, guarding_time_ns(g));
	}
}

/* Its record is kept, by which the next start knows what it is owed. */
static void tell_left(struct guarding *g)
{
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (guard_ending(g->guard, i))
			guarding_tell(
				g, "warning",
				"worker %s: the service ends before an order was answered: "
				"it may stay out or take no work; the next start brings it "
				"back",
				g->settings->policy.worker[i].name);
}

/* Workers that may come back are let come back: for at most some seconds. */
static void restore(struct guarding *g)
{
	uint64_t until = guarding_time_ns(g) + RESTORE_NS;
	struct guard_outcome o;

	guarding_stop(g);
	guarding_pump(g);
	while (guard_returning(g->guard) && guarding_time_ns(g) < until) {
		clock_sleep_until(g->config.clock, guarding_time_ns(g) + GUARDING_LOOK_NS);
		guarding_written(g, guarding_time_ns(g));
		while (action_next_outcome(g->action, &o)) {
			guarding_outcome(g, &o);
			if (g->looker)
				looker_now(g->looker);
		}
		if (g->looker)
			looker_take(g->looker);
		guarding_pump(g);
	}
	tell_left(g);
}

int guarding_free(struct guarding *g, uint64_t timeout_ns)
{
	int err = 0;

	if (!g)
		return 0;
	guarding_swap_drop(g);
	if (g->action && g->guard) {
		restore(g);
		look_last(g);
	}
	if (g->looker)
		err = looker_free(g->looker, timeout_ns);
	if (!err) {
		g->looker = NULL;
		err = guarding_events_stop(g);
	}
	if (g->action && action_free(g->action, timeout_ns) != 0)
		err = -GW_E_STATE;
	if (err)
		return err;
	loop_remove(g->timer);
	loop_remove(g->outcome_source);
	if (g->outcome_fd >= 0)
		close(g->outcome_fd);
	guarding_events_close(g);
	guarding_devices_close(g);
	guarding_rooms_close(g);
	guarding_lock_close(g);
	beside_free(g->beside);
	guarding_swap_close(g);
	guarding_teller_free(g);
	guard_settings_done(g->settings);
	free(g->settings);
	event_queue_done(&g->heard);
	free(g);
	return 0;
}
