/* One round of a guard inside a program, and the calls of the program's callbacks.
 *
 * A round has three sections: driver calls without the lock, decisions with the lock, and
 * reports to the program without the lock. */
#include "api.h"

#include "guard_input.h"
#include "guard_query.h"

#include "device/context.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORTS 32 /* maximum number of decisions that are reported per round */

static uint64_t now_ns(const struct gw_guard *g)
{
	return clock_mono_ns(g->ctx->clock);
}

/* Reads the health of the program's GPUs, each at the interval that health.h asks for, and
 * passes it to the guard as heat and reasons. */

struct gpu_health {
	char uuid[96];
	struct health *health;
	uint64_t due_ns;
};

struct guard_api_health {
	struct gw_snapshot *snap;
	struct health_options options;
	struct gpu_health gpu[SCENE_GPUS];
	unsigned gpus;
};

int guard_api_health_new(struct gw_ctx *ctx, struct guard_api_health **ret)
{
	struct guard_api_health *h = calloc(1, sizeof(*h));
	int err = h ? gw_snapshot_new(ctx, &h->snap) : -GW_E_NOMEM;

	if (err) {
		free(h);
		return err;
	}
	health_options_init(&h->options);
	*ret = h;
	return 0;
}

void guard_api_health_free(struct guard_api_health *h)
{
	if (!h)
		return;
	for (unsigned i = 0; i < h->gpus; i++)
		health_free(h->gpu[i].health);
	gw_snapshot_free(h->snap);
	free(h);
}

/* Returns the entry of a GPU, and adds it if it is missing. NULL: there are too many GPUs, or
 * memory is exhausted; the next scene tries again. */
static struct gpu_health *health_of_gpu(struct guard_api_health *h, const char *uuid)
{
	struct gpu_health *p;

	for (unsigned i = 0; i < h->gpus; i++)
		if (strcmp(h->gpu[i].uuid, uuid) == 0)
			return &h->gpu[i];
	if (h->gpus == SCENE_GPUS)
		return NULL;
	p = &h->gpu[h->gpus];
	if (health_new(&h->options, &p->health) != 0)
		return NULL;
	snprintf(p->uuid, sizeof(p->uuid), "%s", uuid);
	p->due_ns = 0;
	h->gpus++;
	return p;
}

static void read_device(struct guard_api_health *h, struct gpu_health *p, uint64_t now_ns)
{
	for (unsigned i = 0; i < gw_snapshot_device_count(h->snap); i++) {
		const struct gw_device *d = gw_snapshot_device(h->snap, i);
		const char *is = gw_device_text(d, GW_T_UUID);

		if (!is || strcmp(is, p->uuid) != 0)
			continue;
		health_read(p->health, d, now_ns);
		p->due_ns = now_ns + health_interval_ns(p->health);
	}
}

/* Returns the entry of a GPU if the GPU is due, and adds the entry if it is missing. NULL: the
 * GPU is not due, or health_of_gpu() returned NULL. */
static struct gpu_health *get_due(struct guard_api_health *h, const char *uuid, uint64_t now_ns)
{
	struct gpu_health *p = health_of_gpu(h, uuid);

	return p && now_ns >= p->due_ns ? p : NULL;
}

/* Reads the health of those GPUs in s that are due. It calls the driver, so the caller must not
 * hold a lock. */
static void guard_api_health_read(struct guard_api_health *h, const struct scene *s,
				  uint64_t now_ns)
{
	struct gpu_health *due = NULL;

	for (unsigned i = 0; !due && i < s->gpus; i++)
		due = get_due(h, s->gpu[i].uuid, now_ns);
	if (!due || gw_snapshot_take(h->snap, GW_TIERS_COMMON) != 0)
		return;
	for (unsigned i = 0; i < s->gpus; i++) {
		due = get_due(h, s->gpu[i].uuid, now_ns);
		if (due)
			read_device(h, due, now_ns);
	}
}

/* Passes the last readings to the guard. */
static void guard_api_health_apply(struct guard_api_health *h, struct guard *g, uint64_t now_ns)
{
	for (unsigned i = 0; i < h->gpus; i++) {
		struct gpu_health *p = &h->gpu[i];
		struct health_meaning m;

		health_meaning(p->health, now_ns, &m);
		guard_set_heat(g, p->uuid, m.heat, m.heat_why);
		for (unsigned r = 0; r < HEALTH_REASONS; r++) {
			const struct health_finding *f = &m.reason[r].found;

			guard_set_reason(g, p->uuid, m.reason[r].reason, m.reason[r].on, f->why,
					 now_ns);
			guard_set_reason_end(g, p->uuid, m.reason[r].reason, f->clears,
					     f->clears_ns);
		}
	}
}

/* The action calls these callbacks on one of its own threads. */

static void call_enter(struct gw_guard *g, enum gw_worker_call call, uint64_t deadline_ns)
{
	mailbox_lock(&g->box);
	g->callback.call = call;
	g->callback.deadline_ns = deadline_ns;
	g->callback.caller = pthread_self();
	mailbox_unlock(&g->box);
}

static void call_leave(struct gw_guard *g)
{
	mailbox_lock(&g->box);
	g->callback.call = GW_CALL_NONE;
	mailbox_unlock(&g->box);
}

/* Calls the program's evict callback. A program without this callback polls gw_guard_allowed();
 * then the next scenes show whether the worker left. */
static int call_evict(void *ctx, uint64_t bytes, uint64_t deadline_ns)
{
	struct gw_guard *g = ctx;
	int rc;

	if (!g->options.evict)
		return 0;
	call_enter(g, GW_CALL_EVICT, deadline_ns);
	rc = g->options.evict(g->options.arg, bytes, deadline_ns);
	call_leave(g);
	return rc;
}

static int call_resume(void *ctx, uint64_t deadline_ns)
{
	struct gw_guard *g = ctx;
	int rc;

	call_enter(g, GW_CALL_RESUME, deadline_ns);
	rc = g->options.resume(g->options.arg, deadline_ns);
	call_leave(g);
	return rc;
}

const struct worker_callbacks guard_api_callbacks = { call_evict, call_resume, NULL };

bool guard_api_is_caller(struct gw_guard *g)
{
	bool is;

	mailbox_lock(&g->box);
	is = (g->callback.call && pthread_equal(g->callback.caller, pthread_self())) ||
	     (g->box.started && pthread_equal(g->box.thread[0], pthread_self()));
	mailbox_unlock(&g->box);
	return is;
}

bool guard_api_is_dry(const struct gw_guard *g)
{
	return g->policy.mode != GUARD_ENFORCE || (g->simulated && !g->policy.simulated_too);
}

static bool may_run(const struct gw_guard *g)
{
	struct guard_status s;

	if (guard_api_is_dry(g) || guard_status(g->guard, 0, &s) != 0)
		return true;
	switch (s.state) {
	case STATE_RECONCILE: return s.mask == 0;
	/* allowed, because in this state some programs load their model themselves */
	case STATE_VERIFY_UP: return true;
	case STATE_ACTIVE:
	case STATE_SUSPECT: return !g->closed;
	default: return false;
	}
}

static bool next_record(void *ctx, struct guard_record *ret)
{
	return guard_next_record(((struct gw_guard *)ctx)->guard, ret);
}

static bool next_order(void *ctx, struct guard_order *ret)
{
	return guard_next_order(((struct gw_guard *)ctx)->guard, ret);
}

static bool start_order(void *ctx, const struct guard_order *o, struct guard_outcome *out)
{
	struct gw_guard *g = ctx;
	int err = action_order(g->action, o);

	if (o->verb == ORDER_CLOSE || o->verb == ORDER_OPEN)
		g->closed = o->verb == ORDER_CLOSE;
	out->ending = err == -GW_E_STATE ? ENDING_BUSY : ENDING_FAILED;
	snprintf(out->message, sizeof(out->message), "%s",
		 err == -GW_E_STATE ? "a callback has not returned" : "cannot start a thread");
	return !err;
}

static void take_outcome(void *ctx, const struct guard_outcome *o)
{
	struct gw_guard *g = ctx;

	guard_outcome(g->guard, o, now_ns(g));
}

/* The pump reports no decisions: report_decisions() does that later, without the lock. It
 * stores no records: there is no journal. */
static const struct guard_pump pump = {
	.next_record = next_record,
	.next_order = next_order,
	.start = start_order,
	.outcome = take_outcome,
};

/* Carries out what the guard decided after the last input, and updates whether the worker may
 * run. */
static void carry_out(struct gw_guard *g)
{
	int may;

	guard_pump(&pump, g);
	may = may_run(g);
	if (atomic_exchange(&g->allowed, may) != may)
		mailbox_notify(&g->box);
}

static void take_outcomes(struct gw_guard *g)
{
	struct guard_outcome o;

	while (action_next_outcome(g->action, &o)) {
		guard_outcome(g->guard, &o, now_ns(g));
		g->observe_now = true;
		carry_out(g);
	}
}

static void take_scene(struct gw_guard *g, const char *no_gpu)
{
	g->simulated = false;
	for (unsigned i = 0; i < g->observer.scene->gpus; i++)
		g->simulated = g->simulated || g->observer.scene->gpu[i].simulated;
	snprintf(g->no_gpu, sizeof(g->no_gpu), "%s", no_gpu);
	g->scenes++;
	guard_observe(g->guard, g->observer.scene);
	if (g->observer.health)
		guard_api_health_apply(g->observer.health, g->guard, now_ns(g));
}

/* Writes why no GPU is visible; "" if one is visible. */
static void explain_absence(struct gw_guard *g, unsigned seen, char *out, size_t size)
{
	const struct gw_status *s;

	out[0] = '\0';
	if (g->observer.scene->gpus)
		return;
	if (seen) {
		snprintf(out, size, "none of the GPUs selected in gw_guard_options is present");
		return;
	}
	s = gw_snapshot_take(g->observer.snap, GW_TIER_STATIC) == 0
		    ? gw_snapshot_status(g->observer.snap)
		    : NULL;
	snprintf(out, size, "no GPU is visible%s%.150s", s && *s->message ? ": " : "",
		 s ? s->message : "");
}

/* Returns true if a scene is due, and clears the request for one. */
static bool take_due_scene(struct gw_guard *g)
{
	bool due;

	mailbox_lock(&g->box);
	due = g->observe_now || now_ns(g) >= g->observer.due_ns;
	g->observe_now = false;
	mailbox_unlock(&g->box);
	return due;
}

static void observe_now(struct gw_guard *g)
{
	char no_gpu[200];
	unsigned seen;
	uint64_t now;

	if (scene_builder_take(g->observer.builder, g->observer.scene,
			       g->observer.utilisation) != 0) {
		g->observer.due_ns = now_ns(g) + NS_PER_S; /* out of memory: try later */
		return;
	}
	seen = g->observer.scene->gpus;
	guard_api_narrow(g->observer.scene, &g->policy.worker[0]);
	explain_absence(g, seen, no_gpu, sizeof(no_gpu));
	if (g->observer.health)
		guard_api_health_read(g->observer.health, g->observer.scene, now_ns(g));
	mailbox_lock(&g->box);
	take_scene(g, no_gpu);
	carry_out(g);
	now = now_ns(g);
	g->observer.due_ns = guard_next_scene_ns(g->guard, now);
	if (g->observer.due_ns == UINT64_MAX && scene_builder_watch_fd(g->observer.builder) < 0)
		g->observer.due_ns = now + API_EVERY_NS;
	g->observer.utilisation = guard_wants_utilisation(g->guard);
	mailbox_unlock(&g->box);
}

static void report_decision(struct gw_guard *g, const struct guard_decision *d)
{
	char text[GUARD_DECISION_TEXT];

	guard_decision_text(d, g->policy.worker[0].name, "nothing is done", text);
	g->options.decided(g->options.arg, &(struct gw_guard_decision){
						   .mono_ns = d->mono_ns,
						   .from = (enum gw_worker_state)d->from,
						   .to = (enum gw_worker_state)d->to,
						   .reasons = d->mask,
						   .dry = d->dry,
						   .rule = d->rule,
						   .evidence = d->evidence,
						   .text = text,
					   });
}

static void report_decisions(struct gw_guard *g)
{
	struct guard_decision d;
	bool more = true;

	for (unsigned i = 0; more && i < REPORTS; i++) {
		mailbox_lock(&g->box);
		more = guard_next_decision(g->guard, &d);
		mailbox_unlock(&g->box);
		if (more && g->options.decided)
			report_decision(g, &d);
	}
}

uint64_t guard_api_round(struct gw_guard *g)
{
	mailbox_lock(&g->box);
	take_outcomes(g);
	carry_out(g); /* carries out the requests since the last round */
	mailbox_unlock(&g->box);
	if (take_due_scene(g))
		observe_now(g);
	report_decisions(g);
	return g->observer.due_ns;
}

static uint64_t earliest_wake(const struct gw_guard *g, uint64_t due_ns, uint64_t now)
{
	uint64_t waits = scene_builder_trigger_due_ns(g->observer.builder);

	if (now < g->observer.often_until_ns && due_ns > now + SCENE_BUILDER_OFTEN_NS)
		due_ns = now + SCENE_BUILDER_OFTEN_NS;
	return waits && waits < due_ns ? waits : due_ns;
}

void guard_api_wait(struct gw_guard *g, uint64_t due_ns)
{
	const uint64_t now = now_ns(g), until = earliest_wake(g, due_ns, now);
	const uint64_t ns = until > now ? until - now : 0;
	struct pollfd fd[2] = { { g->box.wake_fd, POLLIN, 0 },
				{ scene_builder_watch_fd(g->observer.builder), POLLIN, 0 } };
	const struct timespec t = clock_timespec(ns);
	const bool often = now < g->observer.often_until_ns;

	if (ppoll(fd, fd[1].fd >= 0 ? 2 : 1, until == UINT64_MAX ? NULL : &t, NULL) > 0 &&
	    fd[0].revents)
		mailbox_clear(g->box.wake_fd);
	if (fd[1].fd >= 0 &&
	    (fd[1].revents || scene_builder_trigger_due_ns(g->observer.builder)) &&
	    scene_builder_triggered(g->observer.builder)) {
		g->observer.often_until_ns = now_ns(g) + SCENE_BUILDER_AFTER_OPEN_NS;
		g->observer.due_ns = 0;
	} else if (often && now_ns(g) >= until) {
		g->observer.due_ns = 0;
	}
}
