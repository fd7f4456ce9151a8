/* guard_why: why a worker is kept out, reason by reason, and what the processes beside it mean to it.
 *
 * The machine keeps facts; the words, rules and ends of each reason (GUARD-MACHINE.md, Reasons) are made of them when
 * somebody asks. */
#include "guard_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define DAY_S INT64_C(86400)

/* ---- hours ---- */

static bool in_span(const struct policy_span *s, int64_t local_s)
{
	struct policy_worker one = { .schedule = { *s }, .schedules = 1 };
	time_t t = (time_t)local_s;
	struct tm local;

	return gmtime_r(&t, &local) && policy_in_schedule(&one, &local);
}

static void days_text(unsigned days, char *out, size_t size)
{
	static const char *const name[] = { "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun" };
	size_t len = 0;

	text_fit(out, size, "%s", days == 0x7f ? "daily" : "");
	for (unsigned i = 0; days != 0x7f && i < 7; i++) {
		if (!(days >> i & 1))
			continue;
		text_fit(out + len, size - len, "%s%s", len ? "," : "", name[i]);
		len += strlen(out + len);
	}
}

static void span_text(const struct policy_span *s, char *out, size_t size)
{
	char days[40];

	days_text(s->days, days, sizeof(days));
	text_fit(out, size, "%s %02u:%02u-%02u:%02u", days, s->from_min / 60, s->from_min % 60,
		 s->to_min / 60, s->to_min % 60);
}

static bool in_any(const struct policy_worker *p, int64_t local_s)
{
	for (unsigned i = 0; i < p->schedules; i++)
		if (in_span(&p->schedule[i], local_s))
			return true;
	return false;
}

/* The first end of a span that no other span covers; 0: there is none within a week. */
static uint64_t schedule_end(const struct guard *g, const struct guard_worker *w)
{
	const struct policy_worker *p = w->policy;
	int64_t midnight = g->local_s - g->local_s % DAY_S, first = INT64_MAX;

	for (unsigned i = 0; i < p->schedules; i++)
		for (int day = 0; day <= 7; day++) {
			int64_t end =
				midnight + day * DAY_S + 60 * (int64_t)p->schedule[i].to_min;

			if (end > g->local_s && end < first && !in_any(p, end))
				first = end;
		}
	return first == INT64_MAX ? 0 : g->now_ns + (uint64_t)(first - g->local_s) * NS_PER_S;
}

void guard_span_text(const struct guard *g, const struct guard_worker *w, char *out,
		     size_t size)
{
	char span[64] = "";

	for (unsigned i = 0; i < w->policy->schedules && !*span; i++)
		if (in_span(&w->policy->schedule[i], g->local_s))
			span_text(&w->policy->schedule[i], span, sizeof(span));
	text_fit(out, size, "in its quiet hours, %s", span);
}

static void why_schedule(const struct guard *g, const struct guard_worker *w,
			 struct guard_explanation *ret)
{
	text_fit(ret->rule, sizeof(ret->rule), "[[schedule]]");
	ret->clears_ns = schedule_end(g, w);
	text_fit(ret->clears, sizeof(ret->clears), "when the span is over");
}

/* ---- reservations ---- */

static const char *name_of(const struct guard *g, int64_t pid)
{
	for (unsigned i = 0; pid > 0 && i < g->scene.processes; i++)
		if (g->scene.process[i].pid == pid)
			return g->scene.process[i].name;
	return "";
}

static void reservation_text(const struct guard *g, const struct reservation *r, char *out,
			     size_t size)
{
	char owner[64] = "nobody's process", name[16];

	demand_name(name, name_of(g, r->pid));
	if (r->pid > 0)
		text_fit(owner, sizeof(owner), "pid %lld%s%s", (long long)r->pid,
			 *name ? " " : "", name);
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

static void why_reserved(const struct guard *g, const struct guard_worker *w,
			 struct guard_explanation *ret)
{
	bool owned = false;

	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++) {
		const struct reservation *r = &g->reservation[i];

		if (!(w->reasons.reservations & BIT(i)) || !r->id)
			continue;
		owned = owned || r->pid > 0;
		if (r->until_ns > ret->clears_ns)
			ret->clears_ns = r->until_ns;
	}
	if (ret->clears_ns == FOR_EVER)
		ret->clears_ns = 0;
	text_fit(ret->rule, sizeof(ret->rule), "reservation");
	text_fit(ret->clears, sizeof(ret->clears), "when it is given back%s%s",
		 owned ? ", its process ends" : "",
		 ret->clears_ns ? " or its time is over" : "");
}

/* ---- the others ---- */

static void why_contention(const struct guard *g, const struct guard_worker *w,
			   struct guard_explanation *ret)
{
	const uint64_t quiet = worker_quiet_ns(w);

	(void)g;
	text_fit(ret->rule, sizeof(ret->rule), "%s",
		 w->reasons.contention_rule[0] ? w->reasons.contention_rule : "contention");
	text_fit(ret->clears, sizeof(ret->clears), "%.3g s after the last need",
		 (double)quiet * 1e-9);
	ret->clears_ns =
		w->demand.pressing || !w->demand.calm_scenes ? 0 : w->demand.calm_ns + quiet;
}

static void why_manual(const struct guard *g, const struct guard_worker *w,
		       struct guard_explanation *ret)
{
	(void)g;
	text_fit(ret->rule, sizeof(ret->rule), "%s", w->reasons.evidence[REASON_MANUAL]);
	text_fit(ret->evidence, sizeof(ret->evidence), "a person asked for it");
	ret->clears_ns = w->reasons.until_ns == FOR_EVER ? 0 : w->reasons.until_ns;
	text_fit(ret->clears, sizeof(ret->clears), "%s%s",
		 w->reasons.person == PERSON_EVICT ? "when it is resumed or released"
						   : "when it is released",
		 ret->clears_ns ? ", or its time is over" : "");
}

/* Of several ends the last is told; one that nobody can tell is the last of all. */
static void ends_with(struct guard_explanation *ret, const char *clears, uint64_t ns)
{
	if (*ret->clears && ns && (!ret->clears_ns || ns < ret->clears_ns))
		return;
	ret->clears_ns = ns;
	text_fit(ret->clears, sizeof(ret->clears), "%s", clears);
}

/* What others found on its GPUs ends as they said. */
static void ends_as_told(const struct guard *g, const struct guard_worker *w,
			 enum guard_reason r, struct guard_explanation *ret)
{
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_end *e = &g->gpu[i].end[r];

		if (has(w->observed.gpus, i) && g->gpu[i].reasons & BIT(r))
			ends_with(ret, *e->clears ? e->clears : "when it is over", e->ns);
	}
}

static void why_thermal(const struct guard *g, const struct guard_worker *w,
			struct guard_explanation *ret)
{
	text_fit(ret->rule, sizeof(ret->rule), "[health], evict_c");
	ends_as_told(g, w, REASON_THERMAL, ret);
}

/* A GPU that did not answer must also answer for a while, whatever health says of it. */
static void why_health(const struct guard *g, const struct guard_worker *w,
		       struct guard_explanation *ret)
{
	char clears[120];

	text_fit(ret->rule, sizeof(ret->rule), "[health], quarantine");
	text_fit(clears, sizeof(clears),
		 "when it has answered for %llu s, or by gpuward guard clear",
		 (unsigned long long)(WELL_NS / NS_PER_S));
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && g->gpu[i].lost)
			ends_with(ret, clears,
				  g->gpu[i].well_ns ? g->gpu[i].well_ns + WELL_NS : 0);
	ends_as_told(g, w, REASON_HEALTH, ret);
}

static void why_battery(const struct guard *g, const struct guard_worker *w,
			struct guard_explanation *ret)
{
	text_fit(ret->rule, sizeof(ret->rule), "ac_only");
	if (!g->scene.on_battery)
		ret->clears_ns = w->reasons.battery_ns + AC_NS;
	text_fit(ret->clears, sizeof(ret->clears), "after %llu s on mains",
		 (unsigned long long)(AC_NS / NS_PER_S));
}

static void why_blind(const struct guard *g, const struct guard_worker *w,
		      struct guard_explanation *ret)
{
	(void)g;
	(void)w;
	text_fit(ret->rule, sizeof(ret->rule), "on_blind = \"evict\"");
	text_fit(ret->clears, sizeof(ret->clears), "after %d good readings", CLEAN_LOOKS);
}

static void why_budget(const struct guard *g, const struct guard_worker *w,
		       struct guard_explanation *ret)
{
	(void)g;
	(void)w;
	text_fit(ret->rule, sizeof(ret->rule), "power_cap_w or energy_cap_wh");
	text_fit(ret->clears, sizeof(ret->clears), "when it has been below for a while");
}

static void why_idle(const struct guard *g, const struct guard_worker *w,
		     struct guard_explanation *ret)
{
	(void)g;
	text_fit(ret->rule, sizeof(ret->rule), "%s",
		 w->policy->idle_after_ns ? "idle_after" : "idle_economy");
	text_fit(ret->clears, sizeof(ret->clears), "when somebody asks it for its model");
}

bool guard_explain(const struct guard *g, unsigned worker, enum guard_reason r,
		   struct guard_explanation *ret)
{
	static void (*const tell[GUARD_REASONS])(const struct guard *,
						 const struct guard_worker *,
						 struct guard_explanation *) = {
#define R(symbol, name, held) [REASON_##symbol] = why_##name,
#include "reason.def"
	};
	const struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers || r >= GUARD_REASONS || !(w->reasons.mask & BIT(r)))
		return false;
	*ret = (struct guard_explanation){ .since_ns = w->reasons.since_ns[r],
					   .masked = !(worker_kept_out(w) & BIT(r)) };
	text_fit(ret->evidence, sizeof(ret->evidence), "%s", w->reasons.evidence[r]);
	tell[r](g, w, ret);
	return true;
}

/* ---- who is beside it ---- */

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

/* ---- what is sought ---- */

/* How the worker is known, for one of whom no process is found. */
void guard_sought_text(const struct guard_worker *w, char *out, size_t size)
{
	const struct policy_match *m = &w->policy->match;

	if (m->unit)
		text_fit(out, size, "no process is in unit %.80s", m->unit);
	else if (m->container)
		text_fit(out, size, "no process is in container %.80s", m->container);
	else if (m->pidfile)
		text_fit(out, size, "no process has the number in %.120s", m->pidfile);
	else if (m->port)
		text_fit(out, size,
			 "nobody listens on port %u, or it cannot be seen: another user's "
			 "sockets need root or CAP_SYS_PTRACE; match.unit needs neither",
			 m->port);
	else if (m->cgroup)
		text_fit(out, size, "no process is in control group %.120s", m->cgroup);
	else if (m->exe)
		text_fit(out, size,
			 "no process runs %.120s, or it cannot be seen: another user's "
			 "need root or CAP_SYS_PTRACE",
			 m->exe);
	else if (m->name)
		text_fit(out, size, "no process is called %.40s", m->name);
	else if (m->command)
		text_fit(out, size, "no command line matches %.120s", m->command);
	else
		text_fit(out, size, "no process of it was found");
}
