/* Explains in sentences why a worker is in its state. The sentences describe the reasons with
 * their begin and end, other processes, and what a person can do. */
#include "guard_doc.h"

#include "base/number.h"
#include "device/workload.h"
#include "guard/demand.h"
#include "guard/pid_lookup.h"
#include "guard/process_cache.h"
#include "guard/worker.h"
#include "measure/model_energy.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of a full container id. The name of a container is usually shorter. */
#define CONTAINER_ID 64
#define CONTENDERS   8

static void explain_say(struct json *j, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void explain_say(struct json *j, const char *fmt, ...)
{
	char text[768];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_string(j, NULL, text);
}

/* True if the text ends with a full stop. Some evidence is a complete sentence, and then no
 * full stop may be added. */
static bool ends_well(const char *text)
{
	return *text && text[strlen(text) - 1] == '.';
}

static double seconds_to(uint64_t at_ns, uint64_t now_ns)
{
	return at_ns > now_ns ? (double)(at_ns - now_ns) * 1e-9 : 0;
}

/* Writes a duration in seconds as text: "12 s", "3 min", "1 h 30 min". */
static const char *span_text(double s, char out[static 32])
{
	unsigned long min = (unsigned long)rint(s / 60);

	if (s < 120)
		snprintf(out, 32, "%.0f s", s);
	else if (min < 60)
		snprintf(out, 32, "%lu min", min);
	else if (min % 60 == 0 || min > 24 * 60)
		snprintf(out, 32, "%lu h", min / 60);
	else
		snprintf(out, 32, "%lu h %lu min", min / 60, min % 60);
	return out;
}

/* Writes what ends a reason and when: "when ...; at the earliest in 5 min, 2026-..." or "in 1
 * h, or earlier with ...". */
static void ends_text(const struct guard_explanation *why, struct guard_moment now, char *out,
		      size_t size)
{
	char time[CLOCK_RFC3339_SIZE], left[32];

	if (why->clears_ns <= now.mono_ns) { /* The time is unknown, or it has passed. */
		snprintf(out, size, "%s", why->clears);
		return;
	}
	span_text(seconds_to(why->clears_ns, now.mono_ns), left);
	if (*why->earlier) {
		snprintf(out, size, "in %s, or earlier %s", left, why->earlier);
		return;
	}
	clock_format_rfc3339(now.wall_ns + (why->clears_ns - now.mono_ns), time);
	snprintf(out, size, "%s; at the earliest in %s, %s", why->clears, left, time);
}

static void say_reasons(struct json *j, const struct guard_view *g, unsigned worker,
			const struct guard_status *s, struct guard_moment now)
{
	struct guard_explanation why;
	char since[32], end[256];

	if (!s->mask && s->state == STATE_SUSPECT)
		explain_say(j,
			    "No reason is active yet, but another process may need the "
			    "worker's GPU: %s.",
			    s->why);
	else if (!s->mask)
		explain_say(j, "No reason against the worker is active.");
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!guard_doc_explain(g, worker, r, now, &why))
			continue;
		ends_text(&why, now, end, sizeof(end));
		explain_say(j,
			    "Reason against the worker%s: %s, for %s. Rule: %s. Evidence: %s%s "
			    "Ends %s.",
			    why.masked ? " (the hold masks it)" : "", guard_reason_name(r),
			    span_text(seconds_to(now.mono_ns, why.since_ns), since), why.rule,
			    *why.evidence ? why.evidence : "none",
			    ends_well(why.evidence) ? "" : ".", end);
	}
}

static void say_overrides(struct json *j, const struct guard_view *g, unsigned worker,
			  const struct guard_status *s, uint64_t now_ns)
{
	char until[64] = "until it is released", left[32];

	if (s->hold_until_ns)
		snprintf(until, sizeof(until), "for %s more",
			 span_text(seconds_to(s->hold_until_ns, now_ns), left));
	if (s->hold == HOLD_ACTIVE)
		explain_say(
			j,
			"Override: the worker is held active %s, requested by %s. Contention, "
			"reservations, schedules, battery, budget and idling do not move it; "
			"heat and faults do.",
			until, guard_view_requested_by(g, worker));
	/* If the reason "manual" is set, say_reasons() has already written about the hold. */
	else if (!(s->mask >> REASON_MANUAL & 1))
		explain_say(j, "No override is active.");
}

static void say_last(struct json *j, const struct guard_view *g, unsigned worker)
{
	const struct guard_view_decision *d = guard_view_last_decision(g, worker);
	char time[CLOCK_RFC3339_SIZE];
	const char *evidence;

	if (!d) {
		explain_say(j, "There was no decision about the worker since the service "
			       "started.");
		return;
	}
	evidence = d->decision.evidence;
	clock_format_rfc3339(d->wall_ns, time);
	explain_say(j, "Last decision, %s: %s to %s. Rule: %s. Evidence: %s%s%s", time,
		    guard_state_name(d->decision.from), guard_state_name(d->decision.to),
		    *d->decision.rule ? d->decision.rule : "none",
		    *evidence ? evidence : "none", ends_well(evidence) ? "" : ".",
		    d->decision.dry ? " Dry run: nothing was done." : "");
}

/* Writes whether the guard moves the worker off the GPU because of this process, and why. */
static void relation_text(const struct guard_relation *b, char *out, size_t size)
{
	if (!b->here)
		snprintf(out, size, "not on the worker's GPU");
	else if (b->kind == DEMAND_NONE)
		snprintf(out, size, "no demand: below min_vram (%.0f MiB) and not busy",
			 (double)b->min_vram_bytes / MIB);
	else if (b->against && b->most_bytes == UINT64_MAX &&
		 (b->kind == DEMAND_MEMORY || b->kind == DEMAND_PRESSURE))
		snprintf(out, size,
			 "needs the GPU: %s; it is a new program, and how much it will need is "
			 "unknown, so the worker leaves even if enough memory is free",
			 demand_kind_name(b->kind));
	else if (b->against)
		snprintf(out, size, "needs the GPU: %s", demand_kind_name(b->kind));
	else if (b->most_bytes != UINT64_MAX)
		snprintf(out, size,
			 "known to use at most %.0f MiB, which fits next to the worker",
			 (double)b->most_bytes / MIB);
	else
		snprintf(out, size, "does not move the worker");
}

static void say_contender(struct json *j, const struct guard_view *g, unsigned worker,
			  const struct scene *s, unsigned i, const char *rule)
{
	const struct scene_process *p = &s->process[i];
	char busy[32] = "", size[32] = "an unknown amount", what[200];
	struct guard_relation b;

	guard_relation(g->guard, worker, i, &b);
	relation_text(&b, what, sizeof(what));
	if (p->bytes_known)
		snprintf(size, sizeof(size), "%.0f MiB", (double)p->bytes / MIB);
	if (!isnan(p->sm_ratio))
		snprintf(busy, sizeof(busy), ", %.0f %% busy", p->sm_ratio * 100);
	explain_say(j, "%s: pid %lld %s with %s%s on %s (%s); %s.",
		    b.kind == DEMAND_NONE ? "Other process" : "Contender", (long long)p->id.pid,
		    p->name, size, busy, s->gpu[p->gpu].uuid, rule, what);
}

/* Writes one sentence per contender, including contenders that do not move the worker. */
static void say_contenders(struct json *j, const struct guard_view *g, unsigned worker)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	unsigned n = 0;

	for (unsigned i = 0; i < s->processes && n < CONTENDERS; i++) {
		if (v[i].class != CLASS_CONTENDER || s->process[i].gpu >= s->gpus)
			continue;
		say_contender(j, g, worker, s, i, v[i].why ? v[i].why : "the profile");
		n++;
	}
	if (!n)
		explain_say(j, "No contender is on any GPU.");
}

/* True if process i may be a worker that was not found. A process that only uses graphics is
 * not an inference server. */
static bool may_be_worker(const struct scene *s, const struct verdict *v, unsigned i)
{
	return (v[i].class == CLASS_CONTENDER || v[i].class == CLASS_UNKNOWN) &&
	       s->process[i].gpu < s->gpus &&
	       s->process[i].type & ~(unsigned)GW_PROCESS_GRAPHICS;
}

/* Writes the name of the system unit that owns a control group, or "" if no system unit owns
 * it. */
static void unit_of(const char *cgroup, char *out, size_t size)
{
	struct cgroup_unit u;

	*out = '\0';
	if (cgroup_unit_find(cgroup, &u) && !cgroup_unit_is_of_user(&u))
		(void)cgroup_unit_service(&u, out, size);
}

/* Writes the command, control group and unit of a process that may be the worker. A person
 * copies these values into the worker's match keys. */
static void say_candidate(struct json *j, const struct scene *s, const struct scene_process *p)
{
	char unit[160], size[32] = "an unknown amount";

	unit_of(p->cgroup, unit, sizeof(unit));
	if (p->bytes_known)
		snprintf(size, sizeof(size), "%.0f MiB", (double)p->bytes / MIB);
	explain_say(j,
		    "The worker may be pid %lld %s with %s on %s: command \"%s\", control "
		    "group %s%s%s%s.",
		    (long long)p->id.pid, p->name, size, s->gpu[p->gpu].uuid, p->command,
		    *p->cgroup ? p->cgroup : "unknown", *unit ? ", unit " : "", unit,
		    *unit ? "" : " (no system unit)");
}

/* Writes the match keys that are configured: "match.name and match.uid". If none is configured,
 * writes the keys that can be added. */
static void match_keys(const struct policy_match *m, char *out, size_t size)
{
	const struct {
		bool set;
		const char *key;
	} keys[] = { { m->unit, "unit" },     { m->pidfile, "pidfile" },
		     { m->port, "port" },     { m->name, "name" },
		     { m->exe, "exe" },       { m->command, "command" },
		     { m->cgroup, "cgroup" }, { m->container, "container" },
		     { m->uid >= 0, "uid" } };
	unsigned left = 0;
	struct buf b;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		left += keys[i].set;
	buf_init_fixed(&b, out, size);
	if (!left)
		buf_adds(&b, "match.command, match.cgroup or match.unit");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!keys[i].set)
			continue;
		left--;
		buf_addf(&b, "match.%s%s", keys[i].key, left > 1 ? ", " : left ? " and " : "");
	}
}

/* If the worker was not found, lists the processes that may be this worker. If the worker does
 * run, its match keys are wrong, and these sentences show the right values. */
static void say_candidates(struct json *j, const struct guard_view *g, unsigned worker)
{
	const struct policy_worker *w = &g->policy->worker[worker];
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	bool url = w->url && !w->match.port && strncmp(w->url, "http", 4) == 0;
	char keys[160];
	unsigned n = 0;

	match_keys(&w->match, keys, sizeof(keys));
	if (w->match.container && strlen(w->match.container) < CONTAINER_ID)
		explain_say(j,
			    "The name of the worker's container, %.100s, has not been resolved "
			    "by the container engine (%.100s); see the service's events.",
			    w->match.container, worker_engine(w) ? worker_engine(w) : "none");
	for (unsigned i = 0; i < s->processes && n < CONTENDERS; i++) {
		if (!may_be_worker(s, v, i))
			continue;
		if (!n++)
			explain_say(j,
				    "If the worker runs, its match is wrong: %s must match one "
				    "of the worker's processes%s%.100s%s.",
				    keys,
				    url ? ". Without a match, the worker is the process that "
					  "listens at "
					: "",
				    url ? w->url : "",
				    url && !(proc_visibility_now() & PROC_VISIBILITY_PORTS)
					    ? ", but this service may not see the ports of "
					      "other users"
					    : "");
		say_candidate(j, s, &s->process[i]);
	}
	if (!n)
		explain_say(j, "No process on a GPU can be this worker.");
}

static void say_conflicts(struct json *j, const struct guard_view *g, int worker)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	char text[200];

	for (unsigned i = 0; i < s->processes; i++) {
		if (v[i].also < 0 || (v[i].worker != worker && v[i].also != worker))
			continue;
		classify_conflict(g->policy, &s->process[i], &v[i], text, sizeof(text));
		explain_say(j,
			    "Conflict: %s; until then the process belongs to the first worker.",
			    text);
		return;
	}
}

static void say_games(struct json *j, const struct guard_view *g, struct guard_moment now)
{
	char since[32], until[64], left[32];

	for (unsigned i = 0; g->games && i < GUARD_VIEW_GAMES; i++) {
		const struct guard_view_game *x = &g->games[i];

		if (x->pid <= 0)
			continue;
		snprintf(until, sizeof(until), "until it exits");
		if (x->until_ns != UINT64_MAX)
			snprintf(until, sizeof(until), "for %s more at most",
				 span_text(seconds_to(x->until_ns, now.mono_ns), left));
		explain_say(j, "Game: pid %lld, registered %s ago, valid %s; requested by %s.",
			    (long long)x->pid,
			    span_text(seconds_to(now.mono_ns, x->since_ns), since), until,
			    *x->who ? x->who : "unknown");
	}
}

/* Returns the time at which the last of the active reasons ends. Returns 0 if the end of one of
 * them is unknown. */
static uint64_t reasons_end(const struct guard_view *g, unsigned worker,
			    struct guard_moment now)
{
	struct guard_explanation why;
	uint64_t last = 0;

	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!guard_doc_explain(g, worker, r, now, &why) || why.masked)
			continue;
		if (!why.clears_ns)
			return 0;
		last = why.clears_ns > last ? why.clears_ns : last;
	}
	return last;
}

static void say_next(struct json *j, const struct guard_view *g, unsigned worker,
		     const struct guard_status *s, struct guard_moment now)
{
	const uint64_t now_ns = now.mono_ns, end = reasons_end(g, worker, now);
	char left[32];

	if (s->hold == HOLD_ACTIVE && s->state == STATE_ACTIVE)
		explain_say(
			j,
			"The worker stays active until the hold ends, unless heat or a fault "
			"moves it.");
	else if (s->next_ns > now_ns && s->next_ns - now_ns < 120 * NS_PER_S)
		explain_say(j, "Next possible automatic change: in %.1f s.",
			    seconds_to(s->next_ns, now_ns));
	else if (s->next_ns > now_ns || end > now_ns)
		explain_say(
			j, "Next possible automatic change: in %s.",
			span_text(seconds_to(s->next_ns > now_ns ? s->next_ns : end, now_ns),
				  left));
	else if (s->state == STATE_ACTIVE)
		explain_say(j, "The worker stays active until another process needs the GPU.");
	else if (s->mask)
		explain_say(
			j,
			"The state changes when the reasons above end; no timer is running.");
	else
		explain_say(
			j,
			"The state changes when the facts above change; no timer is running.");
}

static void say_mode(struct json *j, const struct guard_view *g, const struct guard_status *s)
{
	if (s->dry == DRY_MODE)
		explain_say(j, "The mode is %s: decisions are logged, but nothing is done.",
			    guard_modes[g->policy->mode]);
	/* This sentence does not name the other service, because the sentence "Limit: ..."
	 * does. */
	if (s->dry == DRY_FOREIGN)
		explain_say(j, "Another service controls the worker's GPUs: decisions are "
			       "logged, but nothing is done.");
	if ((s->dry == DRY_SIMULATED || s->dry == DRY_MODE) && guard_doc_mode_note(g))
		explain_say(j, "%s", guard_doc_mode_note(g));
}

/* If a person has set the mode at run time, writes who did so and when. */
static void say_chosen_mode(struct json *j, const struct guard_view *g)
{
	const struct guard_view_mode *m = g->mode;
	char time[CLOCK_RFC3339_SIZE], text[500];

	if (!m || !m->chosen || m->mode == m->configured)
		return;
	clock_format_rfc3339(m->wall_ns, time);
	guard_mode_text(&(struct guard_mode_set){ guard_modes[m->mode], m->who, time,
						  guard_modes[m->configured] },
			text, sizeof(text));
	explain_say(j, "%s", text);
}

static void say_history(struct json *j, const struct guard_status *s)
{
	if (*s->limit)
		explain_say(j, "Limit: %s.", s->limit);
	if (s->storm)
		explain_say(j, "Reload storm: clients of the worker loaded it three times in "
			       "five minutes while it was evicted. Stop the clients, or let "
			       "the guard stop the worker's unit (kind = \"systemd\").");
	/* The quiet time matters only for a worker that was evicted because of a contender. */
	if (s->backoff > 1 && s->mask >> REASON_CONTENTION & 1 &&
	    (s->state == STATE_EVICTED || s->state == STATE_QUIET))
		explain_say(j,
			    "The worker was evicted often: it waits %.1f times the quiet "
			    "time before it resumes.",
			    s->backoff);
}

/* Writes why the worker's pidfile is not trusted. Reads the pidfile below the real root even if
 * the GPUs are simulated, because the workers are real processes of this machine. */
static void say_pidfile(struct json *j, const struct policy_match *m)
{
	struct root root = { .fd = -1 };
	struct pidfile file;

	if (m->pidfile && root_open(&root, "/") == 0 &&
	    pidfile_read(&root, m->pidfile, &file) == -GW_E_STATE)
		explain_say(j,
			    "The guard does not trust the worker's pidfile %.200s: "
			    "%s; " PIDFILE_REMEDY ".",
			    m->pidfile, file.fault);
	root_close(&root);
}

/* Writes why the tokens of the worker's models are not counted, and what to do. */
static void say_tokens(struct json *j, const struct model_energy *m, const char *worker)
{
	for (unsigned i = 0; m && i < m->workers; i++)
		if (m->worker[i].present && m->worker[i].why[0] &&
		    strcmp(m->worker[i].name, worker) == 0)
			explain_say(j, "The tokens of the worker's models are not counted: %s.",
				    m->worker[i].why);
}

/* Writes the sentences of guard_doc_move_sentence(). */
static void say_moves(struct json *j, const struct guard_view *g, unsigned worker,
		      const struct guard_status *s, const char *no_gpu)
{
	char text[400];

	for (unsigned i = 0;
	     guard_doc_move_sentence(g, worker, s, no_gpu, i, text, sizeof(text)); i++)
		if (*text)
			explain_say(j, "%s", text);
}

/* True if the name of the state can end a sentence such as "it has been evicted". */
static bool state_is_adjective(enum guard_state s)
{
	return s == STATE_ACTIVE || s == STATE_SUSPECT || s == STATE_EVICTED ||
	       s == STATE_STUCK || s == STATE_ABSENT;
}

/* Writes the state of the worker, and for how long the worker has been in this state. The time
 * is unknown if the worker was evicted before the service started and the mode forbids resuming
 * it. */
static void say_state(struct json *j, const char *name, const struct guard_status *s,
		      struct guard_moment now, const char *holds)
{
	const bool would = guard_view_hypothetical(s);
	const char *in = state_is_adjective(s->state) ? "" : "in state ",
		   *state = guard_state_name(s->state);
	char span[32];

	if (s->since_ns)
		explain_say(j, "%s %s been %s%s for %s%s.", name, would ? "would have" : "has",
			    in, state, span_text(seconds_to(now.mono_ns, s->since_ns), span),
			    holds);
	else
		explain_say(j, "%s %s %s%s%s.", name, would ? "would be" : "is", in, state,
			    holds);
}

static void write_explain(struct json *j, const struct api *a, unsigned worker,
			  struct guard_moment now)
{
	const struct guard_view *g = a->view.guard;
	const char *name = g->policy->worker[worker].name, *no_gpu;
	char text[300], holds[64] = "";
	struct guard_status s;

	if (guard_status(g->guard, worker, &s) != 0)
		return;
	json_object(j, NULL);
	guard_doc_worker(j, a, worker, now);
	json_bool(j, "simulated", guard_view_simulated(g));
	json_array(j, "sentences");
	no_gpu = guard_doc_no_gpu(a, text, sizeof(text));
	if (!no_gpu)
		snprintf(holds, sizeof(holds), " and holds %.0f MiB",
			 (double)s.resident_bytes / MIB);
	say_state(j, name, &s, now, holds);
	if (no_gpu)
		explain_say(j,
			    "The GPU memory of the worker is unknown, and the guard cannot "
			    "decide: %s.",
			    no_gpu);
	say_mode(j, g, &s);
	say_chosen_mode(j, g);
	if (s.state == STATE_ABSENT &&
	    proc_visibility_lacks(g->policy, worker, proc_visibility_now()))
		explain_say(j,
			    "The worker is identified by its %s, but this service lacks the "
			    "privilege to see it for processes of other users: %s.",
			    proc_visibility_lacks(g->policy, worker, proc_visibility_now()),
			    proc_visibility_remedy);
	say_pidfile(j, &g->policy->worker[worker].match);
	say_reasons(j, g, worker, &s, now);
	say_last(j, g, worker);
	if (s.state == STATE_ABSENT)
		say_candidates(j, g, worker);
	else
		say_contenders(j, g, worker);
	say_conflicts(j, g, (int)worker);
	say_games(j, g, now);
	say_history(j, &s);
	say_overrides(j, g, worker, &s, now.mono_ns);
	say_next(j, g, worker, &s, now);
	say_moves(j, g, worker, &s, no_gpu);
	say_tokens(j, a->view.models, name);
	json_array_end(j);
	json_object_end(j);
}

void api_guard_explain(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	const char *name = request_param(q, "worker");
	struct guard_moment now = guard_moment(a);
	struct json j;
	int only = -1;

	if (!g || (name && (only = guard_doc_find(g, r, name)) < 0))
		return;
	api_begin(&j, a, r);
	guard_doc_mode(&j, g);
	json_array(&j, "workers");
	for (unsigned i = 0; i < g->policy->workers; i++)
		if (only < 0 || i == (unsigned)only)
			write_explain(&j, a, i, now);
	json_array_end(&j);
	api_end(&j);
}
