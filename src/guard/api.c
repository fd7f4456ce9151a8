/* gw_guard_*: starts and stops a guard, and serves the program's calls while the guard's thread
 * runs. */
#include "api.h"

#include "guard_input.h"
#include "guard_query.h"

#include "base/sized.h"
#include "device/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The public enums have the same numbers as the internal ones. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(GW_WORKER_RECONCILE, STATE_RECONCILE);
SAME(GW_WORKER_ACTIVE, STATE_ACTIVE);
SAME(GW_WORKER_SUSPECT, STATE_SUSPECT);
SAME(GW_WORKER_DRAIN, STATE_DRAIN);
SAME(GW_WORKER_EVICT, STATE_EVICT);
SAME(GW_WORKER_VERIFY, STATE_VERIFY);
SAME(GW_WORKER_EVICTED, STATE_EVICTED);
SAME(GW_WORKER_QUIET, STATE_QUIET);
SAME(GW_WORKER_PRECHECK, STATE_PRECHECK);
SAME(GW_WORKER_RESUME, STATE_RESUME);
SAME(GW_WORKER_VERIFY_UP, STATE_VERIFY_UP);
SAME(GW_WORKER_STUCK, STATE_STUCK);
SAME(GW_WORKER_ABSENT, STATE_ABSENT);
SAME(GW_WORKER_STATES, GUARD_STATES);
#define R(symbol, name, held, rule, clears) SAME(GW_REASON_##symbol, REASON_##symbol);
#include "reason.def"
SAME(GW_WORKER_REASONS, GUARD_REASONS);
SAME(GW_REQUEST_EVICT, REQUEST_EVICT);
SAME(GW_REQUEST_RESUME_NOW, REQUEST_RESUME_NOW);
SAME(GW_HOLD_ACTIVE, HOLD_ACTIVE);

const char *gw_worker_state_name(unsigned state)
{
	return guard_state_name(state);
}

const char *gw_worker_reason_name(unsigned reason)
{
	return guard_reason_name(reason);
}

/* The functions up to guard_api_policy() convert the options to a policy with one worker. */

#define ALL_FLAGS                                                                       \
	(GW_GUARD_ANY | GW_GUARD_NAMED | GW_GUARD_UNATTRIBUTED | GW_GUARD_LEAVE_BLIND | \
	 GW_GUARD_HEALTH | GW_GUARD_SIMULATED)

#define POLL_LEAST_NS NS_PER_MS /* least value of the option poll_ns */

/* Copies the given options and sets defaults for the options that were not given. Returns 0 or
 * -GW_E_ARG. */
static int guard_api_options(struct gw_ctx *ctx, const struct gw_guard_options *given,
			     struct gw_guard_options *ret)
{
	unsigned unknown;

	if (!sized_read(ret, sizeof(*ret), SIZED_FIRST(struct gw_guard_options, contend),
			given))
		return context_fail_size(ctx, "gw_guard_options", given->size, sizeof(*ret));
	unknown = ret->flags & ~(unsigned)ALL_FLAGS;
	if (!ret->name)
		ret->name = "worker";
	if (!ret->name[0])
		return context_fail(ctx, -GW_E_ARG, "gw_guard_options.name is empty");
	if ((unsigned)ret->mode > GW_GUARD_OBSERVE)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_guard_options.mode is %u; there is no such mode",
				    (unsigned)ret->mode);
	if (unknown)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_guard_options.flags has the unknown bits 0x%x",
				    unknown);
	if (ret->flags & GW_GUARD_ANY && ret->flags & GW_GUARD_NAMED)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_guard_options.flags has both GW_GUARD_ANY and "
				    "GW_GUARD_NAMED; use one of them");
	if (ret->poll_ns && ret->poll_ns < POLL_LEAST_NS)
		return context_fail(
			ctx, -GW_E_ARG,
			"gw_guard_options.poll_ns is %llu; it must be 0 or at least "
			"1 ms",
			(unsigned long long)ret->poll_ns);
	return 0;
}

static enum guard_mode mode_of(enum gw_guard_mode mode)
{
	return mode == GW_GUARD_ENFORCE   ? GUARD_ENFORCE
	       : mode == GW_GUARD_DRY_RUN ? GUARD_DRY_RUN
					  : GUARD_OBSERVE;
}

static void take_numbers(const struct gw_guard_options *o, struct policy_knobs *k)
{
	const struct {
		uint64_t given, *knob;
	} row[] = {
		{ o->min_vram_bytes, &k->min_vram_bytes },
		{ o->debounce_ns, &k->debounce_ns },
		{ o->quiet_ns, &k->quiet_ns },
		{ o->resident_ns, &k->resident_ns },
		{ o->headroom_bytes, &k->headroom_bytes },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (row[i].given)
			*row[i].knob = row[i].given;
	if (o->headroom_bytes)
		/* the headroom is exactly headroom_bytes, even if 10 % of the memory is more */
		k->headroom_ratio = 0;
}

static int take_gpus(struct gw_ctx *ctx, const char *const *gpus, struct policy_worker *w)
{
	if (gpus && !*gpus)
		return context_fail(
			ctx, -GW_E_ARG,
			"gw_guard_options.gpus is an empty list; name a GPU, or use "
			"NULL for every GPU");
	for (; gpus && *gpus; gpus++) {
		if (!**gpus)
			return context_fail(ctx, -GW_E_ARG,
					    "gw_guard_options.gpus has an empty selector");
		if (w->gpu_count == POLICY_GPUS)
			return context_fail(ctx, -GW_E_SIZE,
					    "gw_guard_options.gpus has more than %d selectors",
					    POLICY_GPUS);
		w->gpus[w->gpu_count++] = *gpus;
	}
	return 0;
}

/* Returns a minimum length: every name that matches the pattern is at least this long. Does not
 * count the pattern from the first '[' on. */
static size_t shortest_match(const char *pattern)
{
	size_t n = 0;

	for (; *pattern && *pattern != '['; pattern++)
		n += *pattern != '*';
	return n;
}

static int take_names(struct gw_ctx *ctx, struct policy *p, const char *const *names,
		      enum guard_action action, const char *word)
{
	char text[64];

	for (; names && *names; names++) {
		struct policy_rule *r = &p->rule[p->rules];

		if (!**names)
			return context_fail(ctx, -GW_E_ARG,
					    "the %s list of gw_guard_options has an empty name",
					    word);
		if (shortest_match(*names) > SCENE_NAME_BYTES)
			return context_fail(
				ctx, -GW_E_ARG,
				"the %s list of gw_guard_options has \"%.64s\", which "
				"can never match: it is longer than the %d bytes of a "
				"name that the kernel stores",
				word, *names, SCENE_NAME_BYTES);
		if (p->rules == POLICY_RULES)
			return context_fail(
				ctx, -GW_E_SIZE,
				"the lists of gw_guard_options have more than %d names",
				POLICY_RULES);
		snprintf(text, sizeof(text), "%s %.40s", word, *names);
		*r = (struct policy_rule){ .match = { .name = *names, .uid = -1 },
					   .action = action,
					   .text = policy_keep(p, text, strlen(text)) };
		if (!r->text)
			return -GW_E_NOMEM;
		p->rules++;
	}
	return 0;
}

static int policy_fill(struct gw_ctx *ctx, const struct gw_guard_options *o, struct policy *p)
{
	struct policy_worker *w = &p->worker[0];
	int err;

	p->mode = mode_of(o->mode);
	p->any = o->flags & GW_GUARD_ANY;
	p->unknown_contends = !(o->flags & GW_GUARD_NAMED);
	p->by_unattributed = o->flags & GW_GUARD_UNATTRIBUTED;
	p->evict_when_blind = o->flags & GW_GUARD_LEAVE_BLIND;
	p->simulated_too = o->flags & GW_GUARD_SIMULATED;
	p->restore_on_stop = false;
	p->user_evictions = 0; /* no limit per user: this program is the only worker */
	p->poll_ns = o->poll_ns;
	take_numbers(o, &p->standard);
	policy_worker_init(w);
	w->name = o->name;
	w->kind = WORKER_CALLBACK;
	w->resume = o->resume ? RESUME_RESTORE : RESUME_LAZY;
	w->text = "this program";
	p->workers = 1;
	err = take_gpus(ctx, o->gpus, w);
	if (!err)
		err = take_names(ctx, p, o->ignore, GUARD_IGNORE, "ignore");
	if (!err)
		err = take_names(ctx, p, o->contend_now, GUARD_CONTEND_NOW, "contend-now");
	if (!err)
		err = take_names(ctx, p, o->contend, GUARD_CONTEND, "contend");
	return err;
}

/* Makes a policy with one worker from the options. Free *ret with policy_done(). Returns 0,
 * -GW_E_ARG, -GW_E_SIZE or -GW_E_NOMEM. */
static int guard_api_policy(struct gw_ctx *ctx, const struct gw_guard_options *o,
			    struct policy *ret)
{
	/* on the heap, because a policy is too large for the stack of a small thread */
	struct policy *p = malloc(sizeof(*p));
	int err;

	if (!p)
		return -GW_E_NOMEM;
	policy_init(p);
	err = policy_fill(ctx, o, p);
	if (!err)
		err = policy_copy(ret, p);
	policy_done(p);
	free(p);
	return err;
}

static bool is_its(const struct policy_worker *w, const struct scene_gpu *u)
{
	for (unsigned i = 0; i < w->gpu_count; i++)
		if (scene_gpu_matches(u, w->gpus[i]))
			return true;
	return false;
}

void guard_api_narrow(struct scene *s, const struct policy_worker *w)
{
	unsigned place[SCENE_GPUS], gpus = 0, processes = 0;

	if (!w->gpu_count)
		return;
	for (unsigned i = 0; i < s->gpus; i++) {
		place[i] = is_its(w, &s->gpu[i]) ? gpus : SCENE_GPUS;
		if (place[i] == SCENE_GPUS)
			continue;
		if (gpus != i)
			s->gpu[gpus] = s->gpu[i];
		gpus++;
	}
	for (unsigned i = 0; i < s->processes; i++) {
		unsigned at =
			s->process[i].gpu < s->gpus ? place[s->process[i].gpu] : SCENE_GPUS;

		if (at == SCENE_GPUS)
			continue;
		if (processes != i)
			s->process[processes] = s->process[i];
		s->process[processes++].gpu = at;
	}
	s->gpus = gpus;
	s->processes = processes;
}

static int open_parts(struct gw_guard *g)
{
	struct worker_callbacks callbacks = guard_api_callbacks;
	int err;

	callbacks.ctx = g;
	err = mailbox_init(&g->box, MAILBOX_WAKE_FD);
	if (err)
		return err;
	g->observer.scene = calloc(1, sizeof(*g->observer.scene));
	if (!g->observer.scene)
		return -GW_E_NOMEM;
	err = gw_snapshot_new(g->ctx, &g->observer.snap);
	if (!err)
		err = scene_builder_new(g->ctx, &g->policy, &g->observer.builder);
	if (!err)
		err = guard_new(&g->policy, NULL, 0, &g->guard);
	if (!err)
		err = action_new(&g->policy, &worker_own, g->box.wake_fd, &g->action);
	if (!err)
		err = action_set_callbacks(g->action, 0, &callbacks);
	if (!err && g->options.flags & GW_GUARD_HEALTH)
		err = guard_api_health_new(g->ctx, &g->observer.health);
	return err;
}

int guard_api_new(struct gw_ctx *ctx, const struct gw_guard_options *options,
		  struct gw_guard **ret)
{
	struct gw_guard *g = calloc(1, sizeof(*g));
	int err = g ? guard_api_options(ctx, options, &g->options) : -GW_E_NOMEM;

	if (!err)
		err = guard_api_policy(ctx, &g->options, &g->policy);
	if (err) {
		if (g)
			policy_done(&g->policy);
		free(g);
		return err;
	}
	g->ctx = ctx;
	atomic_init(&g->allowed, 1);
	err = open_parts(g);
	if (err) {
		guard_api_free(g, 0);
		return err;
	}
	*ret = g;
	return 0;
}

static void run(void *arg)
{
	struct gw_guard *g = arg;

	while (!mailbox_stopping(&g->box))
		guard_api_wait(g, guard_api_round(g));
}

/* Holds the lock, so that the thread cannot call the program before guard_api_is_caller() can
 * recognise the thread. */
static int start_thread(struct gw_guard *g)
{
	int err;

	mailbox_lock(&g->box);
	err = mailbox_start(&g->box, 0, run, NULL, g);
	mailbox_unlock(&g->box);
	return err;
}

int gw_guard_start(struct gw_ctx *ctx, const struct gw_guard_options *options,
		   struct gw_guard **ret_guard)
{
	struct gw_guard *g;
	int err;

	if (!ctx || !ret_guard)
		return context_fail_null(ctx, ctx ? "ret_guard" : "ctx");
	err = guard_api_new(ctx, options, &g);
	if (err == -GW_E_ARG || err == -GW_E_SIZE) /* the context already has the message */
		return err;
	if (err)
		return context_fail(ctx, err, NULL);
	err = start_thread(g);
	if (err) {
		guard_api_free(g, 0);
		return context_fail(ctx, err, NULL);
	}
	*ret_guard = g;
	return 0;
}

/* Returns the monotonic time that is ns from now, limited to what a timespec holds. */
static uint64_t from_now(uint64_t ns)
{
	uint64_t now = clock_mono_ns(clock_real());

	return ns < INT64_MAX - now ? now + ns : INT64_MAX;
}

int guard_api_free(struct gw_guard *g, uint64_t timeout_ns)
{
	if (action_free(g->action, timeout_ns) != 0)
		return -GW_E_STATE;
	guard_api_health_free(g->observer.health);
	guard_free(g->guard);
	scene_builder_free(g->observer.builder);
	gw_snapshot_free(g->observer.snap);
	free(g->observer.scene);
	mailbox_done(&g->box);
	policy_done(&g->policy);
	free(g);
	return 0;
}

static int stop_failed(struct gw_guard *g)
{
	return context_fail(g->ctx, -GW_E_STATE,
			    "a callback or a driver call has not returned, so the guard "
			    "cannot be freed");
}

int gw_guard_stop(struct gw_guard *g, uint64_t timeout_ns)
{
	uint64_t until = from_now(timeout_ns), now;

	if (!g)
		return 0;
	if (guard_api_is_caller(g))
		return context_fail(g->ctx, -GW_E_ARG,
				    "a callback cannot stop the guard that calls it");
	if (mailbox_stop(&g->box, timeout_ns) != 0) /* the thread still uses g */
		return stop_failed(g);
	now = clock_mono_ns(clock_real());
	if (guard_api_free(g, until > now ? until - now : 0) != 0)
		return stop_failed(g);
	return 0;
}

int gw_guard_allowed(const struct gw_guard *g)
{
	return g ? atomic_load(&g->allowed) : 1;
}

int gw_guard_wait(struct gw_guard *g, uint64_t timeout_ns)
{
	const uint64_t until = from_now(timeout_ns);
	int err;

	if (gw_guard_allowed(g))
		return 0;
	mailbox_lock(&g->box);
	while (!atomic_load(&g->allowed) && mailbox_wait_news(&g->box, until))
		;
	err = atomic_load(&g->allowed) ? 0 : -GW_E_TIMEOUT;
	mailbox_unlock(&g->box);
	return err ? context_fail(g->ctx, err, "the worker may not use the GPU yet") : 0;
}

int gw_guard_request(struct gw_guard *g, enum gw_guard_request what, uint64_t ttl_ns)
{
	char text[300] = "";
	int err;

	if (!g)
		return context_fail_null(NULL, "guard");
	if ((unsigned)what > GW_REQUEST_RESUME_NOW)
		return context_fail(g->ctx, -GW_E_ARG, "there is no gw_guard_request %u",
				    (unsigned)what);
	mailbox_lock(&g->box);
	err = guard_request(g->guard, 0, (enum guard_request)what, ttl_ns,
			    clock_mono_ns(g->ctx->clock), text, sizeof(text));
	g->observe_now = true;
	mailbox_unlock(&g->box);
	mailbox_wake(&g->box);
	return err ? context_fail(g->ctx, err, "%s", text) : 0;
}

static void fill_status(struct gw_guard *g, struct gw_guard_status *ret)
{
	struct guard_status s;

	guard_status(g->guard, 0, &s);
	*ret = (struct gw_guard_status){
		.state = (enum gw_worker_state)s.state,
		.reasons = s.mask,
		.hold = (enum gw_worker_hold)s.hold,
		.call = g->callback.call,
		.call_deadline_ns = g->callback.call ? g->callback.deadline_ns : 0,
		.overdue = g->callback.call &&
			   clock_mono_ns(g->ctx->clock) > g->callback.deadline_ns,
		.allowed = atomic_load(&g->allowed),
		.dry = guard_api_is_dry(g),
		.blind = s.blind || g->no_gpu[0],
		.hung = s.hung,
		.quarantine = s.quarantine,
		.since_ns = s.since_ns,
		.next_ns = s.next_ns,
		.hold_until_ns = s.hold ? s.hold_until_ns : 0,
		.resident_bytes = s.resident_bytes,
		.need_bytes = s.need_bytes,
		.residue_bytes = s.residue_bytes,
		.backoff_ratio = s.backoff,
		.observations = g->scenes,
		.evictions = s.evictions,
		.resumes = s.resumes,
		.would_evict = s.would_evict,
	};
	if (ret->overdue)
		snprintf(ret->why, sizeof(ret->why),
			 "the %s callback has not returned by its deadline; %s",
			 g->callback.call == GW_CALL_EVICT ? "evict" : "resume", s.why);
	else
		snprintf(ret->why, sizeof(ret->why), "%s", g->no_gpu[0] ? g->no_gpu : s.why);
}

int gw_guard_status(struct gw_guard *g, struct gw_guard_status *ret_status)
{
	struct gw_guard_status s;

	if (!g || !ret_status)
		return context_fail_null(g ? g->ctx : NULL, g ? "ret_status" : "guard");
	mailbox_lock(&g->box);
	fill_status(g, &s);
	mailbox_unlock(&g->box);
	return sized_write(ret_status, &s, sizeof(s), SIZED_FIRST(struct gw_guard_status, why))
		       ? 0
		       : context_fail_size(g->ctx, "gw_guard_status", ret_status->size,
					   sizeof(s));
}
