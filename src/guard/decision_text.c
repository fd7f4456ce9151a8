/* This file has the names of states, reasons and results, the sentences about decisions and
 * modes, the queue of decisions, and the time of a worker's next change. If the queue is full,
 * a new decision replaces the oldest one. */
#include "guard_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const guard_reason_names[GUARD_REASONS + 1] = {
#define R(symbol, name, held, rule, clears) [REASON_##symbol] = #name,
#include "reason.def"
};

const char *const guard_state_names[GUARD_STATES + 1] = {
	[STATE_RECONCILE] = "reconcile", [STATE_ACTIVE] = "active",
	[STATE_SUSPECT] = "suspect",     [STATE_DRAIN] = "drain",
	[STATE_EVICT] = "evict",         [STATE_VERIFY] = "verify",
	[STATE_EVICTED] = "evicted",     [STATE_QUIET] = "quiet",
	[STATE_PRECHECK] = "precheck",   [STATE_RESUME] = "resume",
	[STATE_VERIFY_UP] = "verify-up", [STATE_STUCK] = "stuck",
	[STATE_ABSENT] = "absent",
};

const char *const guard_dry_names[GUARD_DRIES + 1] = {
	[DRY_NOT] = "no",
	[DRY_MODE] = "mode",
	[DRY_FOREIGN] = "another-service",
	[DRY_SIMULATED] = "simulated",
};

const char *const guard_result_names[GUARD_RESULTS + 1] = {
	[RESULT_NONE] = "none",           [RESULT_FREED] = "freed",
	[RESULT_NOT_FREED] = "not-freed", [RESULT_FAILED] = "failed",
	[RESULT_WITHHELD] = "withheld",
};

const char *const guard_block_names[GUARD_BLOCKS + 1] = {
	[BLOCK_BACKOFF] = "backoff", [BLOCK_ROOM] = "room",         [BLOCK_UNKNOWN] = "unknown",
	[BLOCK_THERMAL] = "thermal", [BLOCK_HOST] = "host-memory",  [BLOCK_GONE] = "gone",
	[BLOCK_DEMAND] = "demand",   [BLOCK_TURN] = "turn",         [BLOCK_BUSY] = "busy",
	[BLOCK_NEVER] = "never",     [BLOCK_ENDPOINT] = "endpoint",
};

const char *const guard_holds[] = { "none", "evicted", "active", NULL };
const char *const guard_heats[] = { "throttle", "warm", NULL };

const char *guard_reason_name(unsigned r)
{
	return r < GUARD_REASONS ? guard_reason_names[r] : "?";
}

const char *guard_state_name(unsigned s)
{
	return s < GUARD_STATES ? guard_state_names[s] : "?";
}

const char *guard_dry_name(unsigned d)
{
	return d != DRY_NOT && d < GUARD_DRIES ? guard_dry_names[d] : NULL;
}

const char *guard_result_name(unsigned r)
{
	return r < GUARD_RESULTS ? guard_result_names[r] : "?";
}

const char *guard_block_name(unsigned b)
{
	return b < GUARD_BLOCKS ? guard_block_names[b] : "?";
}

const char *guard_block_text(enum guard_block b)
{
	static const char *const text[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = "it waits after a failed resume",
		[BLOCK_UNKNOWN] = "the free memory of its GPU is unknown",
		[BLOCK_THERMAL] = "its GPU is too warm",
		[BLOCK_HOST] = "too little host memory is free",
		[BLOCK_GONE] = "its process does not run",
		[BLOCK_DEMAND] = "another process needs its GPU",
		[BLOCK_BUSY] = "it has not finished its last order",
		[BLOCK_NEVER] = "resume is \"never\" in its configuration",
	};

	return text[b];
}

void guard_mask_text(uint32_t mask, const char *between, char *out, size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(mask & BIT(r)) || len + 16 > size)
			continue;
		text_fit(out + len, size - len, "%s%s", len ? between : "",
			 guard_reason_name(r));
		len += strlen(out + len);
	}
}

/* Writes which process the worker's match looked for and did not find. */
void guard_sought_text(const struct guard_worker *w, char *out, size_t size)
{
	const struct policy_match *m = &w->policy->match;

	if (m->unit)
		text_fit(out, size, "no process is in unit %.80s", m->unit);
	else if (m->container)
		text_fit(out, size, "no process is in container %.80s", m->container);
	else if (m->pidfile)
		text_fit(out, size, "no process has the pid in %.120s", m->pidfile);
	else if (m->port)
		text_fit(
			out, size,
			"no process listens on port %u, or gpuward has no right to see it: for "
			"processes of other users gpuward needs root, or CAP_SYS_PTRACE and "
			"CAP_DAC_READ_SEARCH; or use match.unit",
			m->port);
	else if (m->cgroup)
		text_fit(out, size, "no process is in control group %.120s", m->cgroup);
	else if (m->exe)
		text_fit(out, size,
			 "no process runs %.120s, or gpuward has no right to see it: for "
			 "processes of other users gpuward needs root or CAP_SYS_PTRACE",
			 m->exe);
	else if (m->name)
		text_fit(out, size, "no process is called %.40s", m->name);
	else if (m->command)
		text_fit(out, size, "no command line matches %.120s", m->command);
	else
		text_fit(out, size, "no process was found");
}

void guard_decision_text(const struct guard_decision *d, const char *worker, const char *dry,
			 char out[static GUARD_DECISION_TEXT])
{
	text_fit(out, GUARD_DECISION_TEXT, "%s%s%sworker %s: %s to %s%s%s%s%s%s",
		 d->dry ? "(" : "", d->dry ? dry : "", d->dry ? ") " : "", worker,
		 guard_state_name(d->from), guard_state_name(d->to), *d->rule ? ", " : "",
		 d->rule, *d->evidence ? " (" : "", d->evidence, *d->evidence ? ")" : "");
}

void guard_mode_text(const struct guard_mode_set *m, char *out, size_t size)
{
	text_fit(
		out, size,
		"The mode was set to %s at run time by %s at %s; the configuration says %s. To "
		"use the configured mode again, run gpuward guard mode config.",
		m->mode, m->who, m->time_utc, m->configured);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint64_t guard_next_change(const struct guard *g, const struct guard_worker *w)
{
	const struct worker_demand *d = &w->demand;
	const uint32_t mask = worker_kept_out(w);

	switch (worker_state(w)) {
	case STATE_SUSPECT:
		return d->damped_until_ns ? d->damped_until_ns
					  : d->since_ns + w->knobs.debounce_ns;
	case STATE_QUIET: return d->calm_ns + worker_quiet_ns(w);
	case STATE_DRAIN:
	case STATE_VERIFY:
	case STATE_VERIFY_UP: return w->intent.deadline_ns;
	case STATE_EVICT: return w->intent.budget_ns;
	case STATE_STUCK:
		return mask ? w->order.retry_ns
			    : later(w->backoff.check_ns, w->backoff.resume_ns);
	case STATE_EVICTED:
	case STATE_ABSENT:
		if (!mask)
			return later(w->backoff.check_ns, w->backoff.resume_ns);
		if (mask == BIT(REASON_MANUAL) && w->reasons.until_ns != FOR_EVER)
			return w->reasons.until_ns;
		return 0;
	case STATE_ACTIVE:
		if (w->observed.bytes && w->idle.after_ns != UINT64_MAX &&
		    !(w->conditions & CONDITION_THROTTLED))
			return w->idle.since_ns + w->idle.after_ns;
		return 0;
	case STATE_RESUME: return worker_has_order(w) ? w->order.what.deadline_ns : g->now_ns;
	default: return 0;
	}
}

/* Returns the GPU that a decision is about; -1: no GPU. */
static int decision_gpu(const struct guard *g, const struct guard_worker *w)
{
	uint64_t set = w->observed.home ? w->observed.home : w->observed.gpus;

	if (w->demand.pressing && g->gpu[w->demand.gpu].now)
		return w->demand.gpu;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(set, i) && g->gpu[i].now)
			return (int)i;
	return -1;
}

static void set_gpu(const struct guard *g, const struct guard_worker *w,
		    struct guard_decision *d)
{
	int slot = decision_gpu(g, w);
	const struct guard_gpu *u = slot < 0 ? NULL : &g->gpu[slot];

	d->temperature_c = (double)NAN;
	if (!u)
		return;
	text_fit(d->gpu, sizeof(d->gpu), "%s", u->uuid);
	d->index = u->now->index;
	d->temperature_c = u->now->temperature_c;
	for (unsigned i = 0; i < g->scene.processes; i++)
		d->others += (int)g->scene.process[i].gpu == u->at &&
			     g->verdict[i].class != CLASS_SELF &&
			     g->verdict[i].class != CLASS_WORKER;
}

void guard_report_as(struct guard *g, struct guard_worker *w, enum guard_state from,
		     enum guard_state to, const char *rule, const char *fmt, ...)
{
	struct guard_queue *q = &g->queue;
	struct worker_report *r = &w->report;
	struct guard_decision *d = &q->decision[(q->first + q->count) % GUARD_DECISIONS];
	va_list ap;

	if (q->count == GUARD_DECISIONS)
		q->first = (q->first + 1) % GUARD_DECISIONS;
	else
		q->count++;
	guard_note_since(g, w);
	memset(d, 0, sizeof(*d)); /* clears the padding too: tests compare the bytes */
	d->mono_ns = g->now_ns;
	d->worker = worker_number(g, w);
	d->from = from;
	d->to = to;
	d->mask = w->reasons.mask;
	d->dry = w->dry || r->result == RESULT_WITHHELD;
	d->next_ns = to == STATE_PRECHECK ? 0 : guard_next_change(g, w);
	set_gpu(g, w, d);
	d->result = r->result;
	d->level = r->level;
	d->freed_bytes = r->freed_bytes;
	d->freed_ns = r->result == RESULT_FREED ? w->intent.freed_ns : 0;
	d->blocked = r->blocked;
	d->kind = r->last = r->kind;
	r->result = RESULT_NONE;
	r->level = r->blocked = 0;
	r->freed_bytes = 0;
	r->kind = DECISION_OTHER;
	r->state = to;
	text_fit(d->rule, sizeof(d->rule), "%s", rule);
	va_start(ap, fmt);
	(void)vsnprintf(d->evidence, sizeof(d->evidence), fmt, ap);
	va_end(ap);
	text_fit(r->rule, sizeof(r->rule), "%s", d->rule);
	text_fit(r->evidence, sizeof(r->evidence), "%s", d->evidence);
	r->cause_at = 0;
}
