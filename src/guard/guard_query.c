/* Computes when the next scene is due, the status of a worker, and what the guard would decide
 * in another scene. */
#include "guard_internal.h"

#include <stdlib.h>
#include <string.h>

static bool gpus_sleep(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) &&
		    (!g->gpu[i].now || g->gpu[i].now->health != SCENE_ASLEEP))
			return false;
	return w->observed.gpus != 0;
}

/* True if the worker does not change its state soon, unless something happens. */
static bool is_at_rest(const struct guard_worker *w)
{
	switch (worker_state(w)) {
	case STATE_ACTIVE:
	case STATE_EVICTED:
	case STATE_QUIET:
	case STATE_ABSENT:
	case STATE_STUCK: return true;
	default: return false;
	}
}

/* True if the worker is at rest, and its GPUs sleep. */
static bool is_asleep(const struct guard *g, const struct guard_worker *w)
{
	return is_at_rest(w) && gpus_sleep(g, w) && !worker_has_order(w);
}

/* Returns the time between scenes while the GPUs of the worker sleep; UINT64_MAX: only an event
 * can change the worker. A worker that is out may return without an event, for example when a
 * schedule ends. */
static uint64_t asleep_interval(const struct guard_worker *w)
{
	const bool returns = worker_is_out(w) && (w->presence != PRESENCE_GONE ||
						  w->policy->managed || worker_is_moved(w));

	return returns ? ASLEEP_NS : UINT64_MAX;
}

static uint64_t scene_interval(const struct guard *g, const struct guard_worker *w)
{
	const uint64_t quick = 100 * NS_PER_MS;
	const uint64_t poll = g->p->poll_ns;

	if (is_asleep(g, w))
		return asleep_interval(w);
	if (!is_at_rest(w))
		return poll && poll < quick ? poll : quick;
	if (poll)
		return poll;
	return worker_state(w) == STATE_ACTIVE && w->observed.bytes ? quick : NS_PER_S;
}

/* Makes a span up to 10 % longer or shorter, so that scenes do not always show a periodic
 * process in the same phase. The same now_ns gives the same result. */
static uint64_t jitter(uint64_t span_ns, uint64_t now_ns)
{
	uint64_t h = (now_ns ^ now_ns >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> 40;

	return span_ns - span_ns / 10 + span_ns / 5 * (h & 1023) / 1023;
}

/* Returns the earliest known time after now_ns at which a scene must be taken: when a suspected
 * demand becomes sure. While the GPUs of a worker sleep, a scene is also taken when the
 * worker's state changes or its hold ends. UINT64_MAX: there is no such time. */
static uint64_t due_ns(const struct guard *g, uint64_t now_ns)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < g->workers; i++) {
		const struct guard_worker *w = &g->worker[i];
		const uint64_t end = w->reasons.until_ns; /* FOR_EVER: no hold ends */
		uint64_t due = 0;

		if (worker_state(w) == STATE_SUSPECT)
			due = w->demand.since_ns + w->knobs.debounce_ns;
		else if (is_asleep(g, w))
			due = guard_next_change(g, w);
		if (due > now_ns && due < first)
			first = due;
		if (is_asleep(g, w) && end > now_ns && end < first)
			first = end;
	}
	return first;
}

uint64_t guard_next_scene_ns(const struct guard *g, uint64_t now_ns)
{
	uint64_t least = g->workers ? UINT64_MAX : NS_PER_S, due = due_ns(g, now_ns);

	if (!g->scenes)
		return now_ns;
	for (unsigned i = 0; i < g->workers; i++) {
		uint64_t ns = scene_interval(g, &g->worker[i]);

		least = ns < least ? ns : least;
	}
	if (least == UINT64_MAX)
		return due;
	/* A configured interval is used exactly. */
	least = now_ns + (least == g->p->poll_ns ? least : jitter(least, now_ns));
	return due < least ? due : least;
}

bool guard_wants_utilisation(const struct guard *g)
{
	for (unsigned i = 0; g->scenes && i < g->scene.processes; i++)
		if (g->verdict[i].class == CLASS_CONTENDER)
			return true;
	return g->scenes && guard_idle_wants(g);
}

bool guard_blind(const struct guard *g, const char *gpu)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (strcmp(g->gpu[i].uuid, gpu) == 0)
			return g->gpu[i].blind;
	return false;
}

static void set_why(const struct guard_worker *w, struct guard_status *s)
{
	const struct worker_report *r = &w->report;
	char masked[120], all[sizeof(r->rule) + sizeof(r->evidence) + 2];
	const char *rest = r->cause_at ? r->evidence + r->cause_at : all;

	text_fit(all, sizeof(all), "%s%s%s", r->rule, *r->rule && *r->evidence ? ": " : "",
		 r->evidence);
	text_fit(s->why, sizeof(s->why), "%s", all);
	if (w->reasons.mask == worker_kept_out(w))
		return;
	guard_mask_text(w->reasons.mask & ~worker_kept_out(w), ", ", masked, sizeof(masked));
	text_fit(s->why, sizeof(s->why), "hold active masks %s%s%s", masked, *rest ? ": " : "",
		 rest);
}

int guard_status(const struct guard *g, unsigned worker, struct guard_status *ret)
{
	const struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers)
		return -GW_E_NOENT;
	*ret = (struct guard_status){
		.state = worker_state(w),
		.mask = w->reasons.mask,
		.hold = worker_hold(w),
		.hold_until_ns = w->reasons.until_ns == FOR_EVER ? 0 : w->reasons.until_ns,
		.since_ns = w->since_ns,
		.next_ns = guard_next_change(g, w),
		.resident_bytes = w->observed.bytes + w->observed.dry_bytes,
		.need_bytes = w->observed.need_bytes,
		.residue_bytes = worker_state(w) == STATE_STUCK ? w->observed.bytes
				 : worker_is_out(w)             ? w->intent.residue_bytes
								: 0,
		.freed_ns = w->intent.freed_ns,
		.backoff = w->backoff.quiet_factor,
		.evictions = w->report.evictions,
		.resumes = w->report.resumes,
		.would_evict = w->report.would_evict,
		.dry = w->dry,
		.stays_evicted = worker_resume_forbidden(w),
		.storm = w->backoff.storm,
		.decided = w->report.last,
	};
	for (unsigned i = 0; i < g->gpus; i++) {
		if (!has(w->observed.gpus, i))
			continue;
		ret->blind = ret->blind || g->gpu[i].blind;
		ret->hung = ret->hung || gpu_is_hung(&g->gpu[i]);
		ret->quarantine = ret->quarantine || g->gpu[i].lost ||
				  (g->gpu[i].reasons & BIT(REASON_HEALTH));
	}
	set_why(w, ret);
	guard_limit_text(g, w, ret->limit, sizeof(ret->limit));
	return 0;
}

const struct verdict *guard_verdicts(const struct guard *g, const struct scene **ret_scene)
{
	if (ret_scene)
		*ret_scene = &g->scene;
	return g->verdict;
}

bool guard_resume_is_obsolete(const struct guard *g, unsigned worker)
{
	const struct guard_worker *w = &g->worker[worker];

	return worker < g->workers && w->order.status == STATUS_UNDERWAY &&
	       w->order.what.verb == ORDER_RESUME && stage_leaves(w->intent.stage);
}

void guard_relation(const struct guard *g, unsigned worker, unsigned process,
		    struct guard_relation *ret)
{
	const struct guard_worker *w = &g->worker[worker];

	*ret = (struct guard_relation){ .kind = DEMAND_NONE };
	if (worker >= g->workers || process >= g->scene.processes ||
	    g->scene.process[process].gpu >= g->scene.gpus)
		return;
	ret->kind = demand_of(&g->demand, g->p, &w->knobs, &g->scene, g->verdict, process,
			      &ret->most_bytes);
	ret->against = w->demand.pressing;
	ret->min_vram_bytes = w->knobs.min_vram_bytes;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.home, i) &&
		    g->gpu[i].at == (int)g->scene.process[process].gpu)
			ret->here = true;
}

/* Every run begins at this time, so that the same scene gives the same decisions. */
#define BEGIN_NS (3600 * NS_PER_S)

struct what_if {
	struct policy policy;
	struct guard *guard;
	struct scene before, scene;
	unsigned scenes;
	uint64_t span_ns;
};

int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret)
{
	struct what_if *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -GW_E_NOMEM;
	t->policy = *p; /* its strings are borrowed */
	t->policy.mode = GUARD_DRY_RUN;
	t->before = *before;
	t->scene = *s;
	t->before.mono_ns = t->scene.mono_ns = BEGIN_NS;
	err = guard_new(&t->policy, NULL, 0, &t->guard);
	if (err) {
		free(t);
		return err;
	}
	*ret = t;
	return 0;
}

void what_if_free(struct what_if *t)
{
	if (t)
		guard_free(t->guard);
	free(t);
}

static void what_if_observe(struct what_if *t, struct scene *s, uint64_t mono_ns,
			    uint64_t begin_ns,
			    void (*each)(void *arg, const struct guard_decision *d), void *arg)
{
	struct guard_decision d;
	struct guard_record record;
	struct guard_order order;

	s->wall_ns += mono_ns - s->mono_ns;
	s->mono_ns = mono_ns;
	guard_observe(t->guard, s);
	while (guard_next_decision(t->guard, &d)) {
		d.mono_ns -= begin_ns;
		if (each)
			each(arg, &d);
	}
	while (guard_next_record(t->guard, &record))
		;
	while (guard_next_order(t->guard, &order))
		;
}

bool what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d),
		 bool (*more)(void *arg), void *arg)
{
	uint64_t begin = BEGIN_NS, now = begin;

	/* The earlier scene is observed one second before the run, so that no timer that it
	 * starts still runs. */
	what_if_observe(t, &t->before, begin - NS_PER_S, begin, NULL, NULL);
	for (; now - begin <= span_ns && t->scenes < WHAT_IF_SCENES; t->scenes++) {
		uint64_t next;

		if (more && !more(arg))
			return false;
		t->span_ns = now - begin;
		what_if_observe(t, &t->scene, now, begin, each, arg);
		next = guard_next_scene_ns(t->guard, now);
		now = next == UINT64_MAX ? now + NS_PER_S : next;
	}
	return true;
}

const struct guard *what_if_guard(const struct what_if *t)
{
	return t->guard;
}

unsigned what_if_scenes(const struct what_if *t)
{
	return t->scenes;
}

uint64_t what_if_span_ns(const struct what_if *t)
{
	return t->span_ns;
}

static void free_memory(struct scene *s, const struct scene_process *p)
{
	struct scene_gpu *g = &s->gpu[p->gpu];
	uint64_t bytes = p->bytes_known && p->bytes <= g->used_bytes ? p->bytes : 0;

	g->used_bytes -= bytes;
	g->free_bytes += bytes;
}

void what_if_before(const struct policy *p, const struct scene *s, struct scene *out)
{
	struct verdict *v = calloc(SCENE_PROCESSES, sizeof(*v));
	unsigned kept = 0;

	*out = *s;
	if (v)
		classify(p, s, v);
	for (unsigned i = 0; v && i < s->processes; i++) {
		if (v[i].class == CLASS_WORKER || v[i].class == CLASS_SELF ||
		    v[i].class == CLASS_SYSTEM || v[i].class == CLASS_IGNORED)
			out->process[kept++] = s->process[i];
		else if (s->process[i].gpu < s->gpus)
			free_memory(out, &s->process[i]);
	}
	if (v)
		out->processes = kept;
	free(v);
}
