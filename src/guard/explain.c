/* Explains each reason of a worker on request: its rule, its evidence and what ends it. */
#include "guard_internal.h"

#include <string.h>

static const char *process_name(const struct guard *g, int64_t pid)
{
	for (unsigned i = 0; pid > 0 && i < g->scene.processes; i++)
		if (g->scene.process[i].id.pid == pid)
			return g->scene.process[i].name;
	return "";
}

static void reservation_text(const struct guard *g, const struct reservation *r, char *out,
			     size_t size)
{
	char owner[64] = "no process";

	if (r->pid > 0)
		demand_process_text(r->pid, process_name(g, r->pid), owner, sizeof(owner));
	text_fit(out, size, "reservation %llu: %llu MiB on %.48s for %s",
		 (unsigned long long)r->id, (unsigned long long)(r->bytes / MIB),
		 g->gpu[r->gpu].uuid, owner);
}

void guard_reservations_text(const struct guard *g, const struct guard_worker *w, char *out,
			     size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++) {
		if (!(w->reasons.reservations & BIT(i)) || !g->reservation[i].id ||
		    len + 4 > size)
			continue;
		text_fit(out + len, size - len, "%s", len ? "; " : "");
		len += strlen(out + len);
		reservation_text(g, &g->reservation[i], out + len, size - len);
		len += strlen(out + len);
	}
}

static void set_rule(struct guard_explanation *e, const char *rule)
{
	text_fit(e->rule, sizeof(e->rule), "%s", rule);
}

/* Adds a condition that ends a reason. Only the condition with the latest time is kept, because
 * all must be met. A condition without a known time counts as the latest. */
static void add_end(struct guard_explanation *e, const char *clears, uint64_t ns)
{
	if (*e->clears && ns && (!e->clears_ns || ns < e->clears_ns))
		return;
	e->clears_ns = ns;
	text_fit(e->clears, sizeof(e->clears), "%s", clears);
}

/* Adds what ends a reason of the worker's GPUs, in the words of the module that set the
 * reason. */
static void add_ends_of_gpus(const struct guard *g, const struct guard_worker *w,
			     enum guard_reason r, struct guard_explanation *e)
{
	char answers[120];

	text_fit(answers, sizeof(answers),
		 "when its GPU has answered for %llu s, or by gpuward guard clear",
		 (unsigned long long)(WELL_NS / NS_PER_S));
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];

		if (!has(w->observed.gpus, i))
			continue;
		if (r == REASON_HEALTH && u->lost)
			add_end(e, answers, u->well_ns ? u->well_ns + WELL_NS : 0);
		if (u->reasons & BIT(r))
			add_end(e,
				*u->end[r].clears ? u->end[r].clears : "when the reason ends",
				u->end[r].ns);
	}
}

static void explain_reserved(const struct guard *g, const struct guard_worker *w,
			     struct guard_explanation *e)
{
	bool owned = false;
	char clears[80];

	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++) {
		const struct reservation *r = &g->reservation[i];

		if (!(w->reasons.reservations & BIT(i)) || !r->id)
			continue;
		owned = owned || r->pid > 0;
		e->clears_ns = r->until_ns > e->clears_ns ? r->until_ns : e->clears_ns;
	}
	if (e->clears_ns == FOR_EVER)
		e->clears_ns = 0;
	text_fit(clears, sizeof(clears), "when the reservation is released%s%s",
		 !owned         ? ""
		 : e->clears_ns ? ", its process ends"
				: " or its process ends",
		 e->clears_ns ? " or its time is over" : "");
	text_fit(e->clears, sizeof(e->clears), "%s", clears);
	text_fit(e->earlier, sizeof(e->earlier), "if the reservation is released%s",
		 owned ? " or its process ends" : "");
}

static void explain_manual(const struct guard_worker *w, struct guard_explanation *e)
{
	const struct worker_reasons *r = &w->reasons;

	set_rule(e, r->evidence[REASON_MANUAL]);
	text_fit(e->evidence, sizeof(e->evidence), "requested by a person");
	e->clears_ns = r->until_ns == FOR_EVER ? 0 : r->until_ns;
	text_fit(e->clears, sizeof(e->clears), "%s%s",
		 r->person == PERSON_EVICT ? "when the worker is resumed or released"
					   : "when the hold is released",
		 e->clears_ns ? ", or the given time is over" : "");
	text_fit(e->earlier, sizeof(e->earlier), "with gpuward guard release %.40s",
		 w->policy->name);
}

static void explain_contention(const struct guard_worker *w, struct guard_explanation *e)
{
	const struct worker_demand *d = &w->demand;
	const uint64_t quiet = worker_quiet_ns(w);

	e->contender = w->reasons.contender;
	if (w->reasons.contention_rule[0])
		set_rule(e, w->reasons.contention_rule);
	text_fit(e->clears, sizeof(e->clears), "%.3g s after the last demand",
		 (double)quiet * 1e-9);
	e->clears_ns = d->pressing || !d->calm_scenes ? 0 : d->calm_ns + quiet;
}

static void explain_battery(const struct guard *g, const struct guard_worker *w,
			    struct guard_explanation *e)
{
	if (!g->scene.on_battery)
		e->clears_ns = w->reasons.battery_ns + AC_NS;
	text_fit(e->clears, sizeof(e->clears), "after %llu s on mains power",
		 (unsigned long long)(AC_NS / NS_PER_S));
}

static void explain_schedule(const struct guard *g, const struct guard_worker *w,
			     struct guard_explanation *e)
{
	const int64_t left_s = policy_schedule_left_s(w->policy, g->local_s);

	add_end(e, "when the span is over",
		left_s < 0 ? 0 : g->now_ns + (uint64_t)left_s * NS_PER_S);
}

bool guard_explain(const struct guard *g, unsigned worker, enum guard_reason r,
		   struct guard_explanation *ret)
{
	static const struct {
		const char *rule, *clears;
	} texts[GUARD_REASONS] = {
#define R(symbol, name, held, rule, clears) { rule, clears },
#include "reason.def"
	};
	const struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers || r >= GUARD_REASONS || !(w->reasons.mask & BIT(r)))
		return false;
	*ret = (struct guard_explanation){ .since_ns = w->reasons.since_ns[r],
					   .masked = !(worker_kept_out(w) & BIT(r)) };
	text_fit(ret->evidence, sizeof(ret->evidence), "%s", w->reasons.evidence[r]);
	set_rule(ret, texts[r].rule);
	if (texts[r].clears)
		add_end(ret, texts[r].clears, 0);
	switch (r) {
	case REASON_CONTENTION: explain_contention(w, ret); break;
	case REASON_MANUAL: explain_manual(w, ret); break;
	case REASON_THERMAL:
	case REASON_HEALTH: add_ends_of_gpus(g, w, r, ret); break;
	case REASON_SCHEDULE: explain_schedule(g, w, ret); break;
	case REASON_BATTERY: explain_battery(g, w, ret); break;
	case REASON_BLIND:
		text_fit(ret->clears, sizeof(ret->clears), "after %d good readings",
			 CLEAN_SCENES);
		break;
	case REASON_RESERVED: explain_reserved(g, w, ret); break;
	case REASON_IDLE:
		if (w->policy->idle_after_ns)
			set_rule(ret, "idle_after");
		break;
	default: break;
	}
	return true;
}

void guard_cause(const struct guard_worker *w, char text[240], const char **ret_rule,
		 const char **ret_evidence)
{
	const struct worker_reasons *of = &w->reasons;
	uint32_t mask = worker_kept_out(w);
	bool past = mask & BIT(REASON_CONTENTION) && !w->demand.pressing;

	*ret_rule = "no reason left";
	*ret_evidence = "";
	if (past && mask == BIT(REASON_CONTENTION)) {
		*ret_rule = "quiet time";
		text_fit(text, 240, "no demand now; the last demand was: %s",
			 of->evidence[REASON_CONTENTION]);
		*ret_evidence = text;
		return;
	}
	if (past)
		mask &= ~BIT(REASON_CONTENTION);
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(mask & BIT(r)))
			continue;
		*ret_rule = r == REASON_CONTENTION && of->contention_rule[0]
				    ? of->contention_rule
				    : guard_reason_name(r);
		*ret_evidence = of->evidence[r];
		return;
	}
}
