#include "guard_state.h"

#include "guard_internal.h"

#include "base/buf.h"
#include "base/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
/* The names of enums that only recordings use. decision_text.c has the names of the other
 * enums. */
static const char *const verbs[] = { [ORDER_CLOSE] = "close", [ORDER_DRAIN] = "drain",
	[ORDER_EVICT] = "evict", [ORDER_OPEN] = "open", [ORDER_RESUME] = "resume",
	NULL };
static const char *const demands[] = {
#define D(symbol, word, name) #word,
#include "demand.def"
	NULL };
static const char *const presences[] = { [PRESENCE_UNKNOWN] = "unknown",
	[PRESENCE_GONE] = "gone", [PRESENCE_HERE] = "here", NULL };
static const char *const found[] = { [FOUND_NONE] = "none", [FOUND_UNMATCHED] = "unmatched",
	[FOUND_DISPLACED] = "displaced", [FOUND_SAME] = "same", [FOUND_OTHER] = "other",
	[FOUND_OTHER_LIVES] = "other-lives", NULL };
static const char *const phases[] = { [PHASE_NONE] = "none", [PHASE_SUSPECTED] = "suspected",
	[PHASE_RELEASED] = "released", [PHASE_SURE] = "sure", [PHASE_CALMING] = "calming",
	NULL };
static const char *const persons[] = { [PERSON_NONE] = "none", [PERSON_EVICT] = "evict",
	[PERSON_HOLD_EVICTED] = "hold-evicted", [PERSON_HOLD_ACTIVE] = "hold-active", NULL };
/* A stage is written as two lines, "intent.goal" and "intent.stage". The second one decides.
 * The first recordings of format versions 5 and 6 have only the goal of an evicted worker. */
static const char *const goals[] = { [STAGE_RUN] = "run", [STAGE_DRAIN] = "leave",
	[STAGE_UNLOAD] = "leave", [STAGE_VERIFY] = "leave", [STAGE_STUCK] = "leave",
	[STAGE_OUT] = "out", [STAGE_LOAD] = "return", [STAGE_VERIFY_UP] = "return", NULL };
static const char *const stages[] = { [STAGE_RUN] = "run", [STAGE_DRAIN] = "drain",
	[STAGE_UNLOAD] = "unload", [STAGE_VERIFY] = "verify", [STAGE_STUCK] = "stuck",
	[STAGE_OUT] = "none", [STAGE_LOAD] = "load", [STAGE_VERIFY_UP] = "verify-up", NULL };
static const char *const froms[] = { [FROM_RUN] = "run", [FROM_RETURN] = "return",
	[FROM_OUT] = "out", [FROM_STUCK] = "stuck", [FROM_ABSENT] = "absent",
	[FROM_STARTED] = "started", NULL };
static const char *const claims[] = { [CLAIM_NONE] = "none", [CLAIM_LEFT] = "left",
	[CLAIM_DRY] = "dry", [CLAIM_BACK] = "back", NULL };
static const char *const statuses[] = { [STATUS_NONE] = "none", [STATUS_WAITING] = "waiting",
	[STATUS_UNDERWAY] = "underway", [STATUS_DONE] = "done", [STATUS_FAILED] = "failed",
	NULL };
static const char *const admissions[] = { [ADMISSION_OPEN] = "open",
	[ADMISSION_CLOSED] = "closed", [ADMISSION_UNVERIFIED] = "unverified", NULL };
static const char *const requests[] = { [RESUME_NOT_REQUESTED] = "none",
	[RESUME_REQUESTED] = "resume", [RESUME_REQUESTED_NOW] = "resume-now", NULL };
static const char *const conditions[] = { "unreadable", "throttled", "display", "withheld",
	"unsettled", NULL };
#define COUNT_IS(names, n) _Static_assert(sizeof(names) / sizeof((names)[0]) == (n) + 1, #names)
COUNT_IS(verbs, ORDER_VERBS);
COUNT_IS(found, FOUND_OTHER_LIVES + 1);
COUNT_IS(goals, STAGE_VERIFY_UP + 1);
COUNT_IS(stages, STAGE_VERIFY_UP + 1);
COUNT_IS(froms, FROM_STARTED + 1);
COUNT_IS(claims, CLAIM_BACK + 1);

/* U_AS and others are for a member that was renamed: `as` is its older name, which recordings
 * still have. */
#define ONE_AS(as, kind, m) { .name = as, MEMBER(kind, struct OF, m) }
#define U_AS(as, m)    ONE_AS(as, UNSIGNED, m)
#define I_AS(as, m)    ONE_AS(as, SIGNED, m)
#define D_AS(as, m)    ONE_AS(as, HEX, m)
#define T_AS(as, m)    ONE_AS(as, PLAIN, m)
#define N_AS(as, m, n) { .name = as, MEMBER(NAME, struct OF, m), .names = n }
#define B_AS(as, m, n) { .name = as, MEMBER(SET, struct OF, m), .names = n }
#define US_AS(as, m)   { .name = as, MEMBER_ARRAY(UNSIGNED, struct OF, m) }
#define TS_AS(as, m)   { .name = as, MEMBER_ARRAY(PLAIN, struct OF, m) }
#define U(m)    U_AS(#m, m) /* also for bool */
#define I(m)    I_AS(#m, m)
#define D(m)    D_AS(#m, m)
#define T(m)    T_AS(#m, m)
#define N(m, n) N_AS(#m, m, n)
#define B(m, n) B_AS(#m, m, n)
#define US(m)   US_AS(#m, m)
/* Members that consist of 64-bit words. */
#define WORDS_AS(as, m) \
	{ .name = as, .kind = MEMBER_UNSIGNED, .size = 8, .count = MEMBER_SIZE(struct OF, m) / 8, \
	  .offset = offsetof(struct OF, m) }
#define WORDS(m) WORDS_AS(#m, m)
/* One line per reason. */
#define OF_REASON(kind, m, symbol, name) ONE_AS(#m "." #name, kind, m[REASON_##symbol]),
#define CONTENDER(m) T(m.name), U(m.bytes_known), U(m.bytes), U(m.game)
#define END { 0 }

#define OF guard
static const struct member of_guard[] = {
	U(now_ns), U(scene_is_new), U_AS("looks", scenes), I(wall_offset_ns), I(utc_offset_s), I(local_s),
	I(local_floor_s), U(gpus), U(next_id), U(games), I(game.pid), T(game.name), U(stopping), I(requester), U(rate.users),
	U(demand.begun), U(demand.lives), WORDS(demand.exe), END
};
#undef OF

/* Two members are not written: "now" is a pointer that is set again from "at"; "end" influences
 * no decision. */
#define OF guard_gpu
static const struct member of_gpu[] = {
	T(uuid), I(at), U(blind), U(lost), U(clean), U(well_ns), U(seen),
	U(missing_ns), B(reasons, guard_reason_names), T(foreign), U(acted_ns), U(total_bytes),
	U(free_bytes), U(coming_bytes), U(promised), B(heat, guard_heats), T(heat_why),
#define R(symbol, name, held, rule, clears) OF_REASON(PLAIN, evidence, symbol, name)
#include "reason.def"
	END
};
#undef OF

/* policy and knobs are not written, because they come from the policy of the recording. The
 * processes that an order names are not written, because they influence no decision. */
#define OF guard_worker
static const struct member of_worker[] = {
	N(dry, guard_dry_names), N(presence, presences), N_AS("door", admission, admissions), U(record_due), U(unsettled),
	N(observed.found, found), WORDS(observed.root), U(observed.roots),
	U(observed.roots_recorded), U(observed.match_changed), U(observed.seen_ns),
	U(observed.by_device), U(observed.gpus), U(observed.home), U(observed.bytes),
	US(observed.held), U(observed.need_bytes), US(observed.need_on), U(observed.dry_bytes),
	N(demand.phase, phases), U(demand.pressing), N(demand.strongest.kind, demands),
	U(demand.strongest.urgent), U(demand.strongest.more_bytes), I_AS("demand.strongest.pid", demand.strongest.contender.pid),
	CONTENDER(demand.strongest.contender), I(demand.strongest.uid), T(demand.strongest.rule), T(demand.strongest.evidence),
	I(demand.gpu), U(demand.since_ns), U(demand.calm_ns), U(demand.scenes),
	U(demand.calm_scenes), U(demand.damped_until_ns), U(demand.limited_ns),
	U(demand.unlimited_scenes),
	B(reasons.mask, guard_reason_names), T(reasons.contention_rule), N(reasons.person, persons),
	I(reasons.contender.pid), CONTENDER(reasons.contender),
	U(reasons.until_ns), U(reasons.until_wall_ns), U(reasons.manual_wall_ns), U(reasons.record_wall_ns), U(reasons.reservations),
	U(reasons.battery_ns),
#define R(symbol, name, held, rule, clears) OF_REASON(UNSIGNED, reasons.since_ns, symbol, name)
#include "reason.def"
#define R(symbol, name, held, rule, clears) OF_REASON(PLAIN, reasons.evidence, symbol, name)
#include "reason.def"
	N_AS("intent.goal", intent.stage, goals), N(intent.stage, stages), N(intent.from, froms),
	N(intent.claim, claims), U(intent.real), U(intent.level), U(intent.tries),
	U(intent.deadline_ns), U(intent.budget_ns), U(intent.begun_ns), U(intent.freed_ns),
	U(intent.base_bytes), U(intent.base_free), U(intent.base_others),
	U(intent.least_bytes), U(intent.residue_bytes), WORDS(intent.put_away), U(intent.put_away_count),
	U(order.what.id), N(order.what.verb, verbs), U(order.what.worker), U(order.what.level),
	U(order.what.deadline_ns), U(order.what.bytes), T(order.what.gpus),
	T(order.what.reason), U(order.what.start), N(order.status, statuses),
	U(order.answered), U(order.retry_ns), N(order.admission_before, admissions),
	D(backoff.quiet_factor), US(backoff.flap), US(backoff.reload), U(backoff.flaps),
	U(backoff.reloads), U(backoff.storm), U(backoff.resident_ns), U(backoff.failed_ns),
	U(backoff.resume_ns), U(backoff.check_ns), B(backoff.blocked, guard_block_names),
	N(backoff.request, requests),
	U(idle.unload), U(idle.busy), U(idle.wants_figure), U(idle.since_ns), U(idle.figure_ns),
	U(idle.asked_ns), U(idle.bytes), U(idle.after_ns), D(idle.idle_w), D(idle.reload_j),
	N(report.state, guard_state_names), U_AS("report.since_ns", since_ns), T(report.rule),
	T_AS("report.why", report.evidence), U(report.cause_at), B_AS("report.notices", conditions, conditions),
	B(report.masked, guard_reason_names), N(report.result, guard_result_names), U(report.level),
	U(report.freed_bytes), B(report.blocked, guard_block_names), U_AS("report.unreachable", report.kind), U(report.last),
	U(report.evictions), U(report.resumes), U(report.would_evict), END
};
#undef OF

#define OF reservation
static const struct member of_reservation[] = {
	U(id), I(gpu), U(bytes), U(until_ns), I(pid), I(uid), U(most_bytes), END
};
#undef OF

#define OF demand_life
static const struct member of_life[] = {
	I(pid), U(start_ticks), U(gpu), U(exe), U(first_ns), U(grown_ns), U(mark_bytes),
	U(peak_bytes), D(busy_ratio), U(busy_ns), U(seen), END
};
#undef OF

#define OF rate_user
static const struct member of_user[] = { I(uid), US(at_ns), U(count), END };
#undef OF

/* Format version 4 wrote some members in another way. Reasons and heat were numbers. These
 * numbers are still valid, because they are part of the library's ABI and never change. A
 * worker had a state and 25 flags, which are converted to the present enums; its other members
 * had other names. */
#define OF guard
static const struct member of_old_guard[] = {
	I_AS("asker", requester), END
};
#undef OF
#define OF guard_gpu
static const struct member of_old_gpu[] = {
	U(reasons), U(heat), TS_AS("evidence", evidence), END
};
#undef OF
#define OF guard_state_old
static const struct member of_old_state[] = { U(state), END };
#undef OF
#define OF guard_worker
static const struct member of_old_worker[] = {
	U(dry), U_AS("rematched", observed.match_changed), U_AS("delta", observed.by_device),
	WORDS_AS("root", observed.root), U_AS("roots", observed.roots), U_AS("recalled", observed.roots_recorded),
	U_AS("seen_ns", observed.seen_ns), U_AS("gpus", observed.gpus), U_AS("home", observed.home),
	U_AS("bytes", observed.bytes), US_AS("held", observed.held),
	US_AS("need_on", observed.need_on), U_AS("need_bytes", observed.need_bytes),
	U_AS("pretended", observed.dry_bytes),
	U_AS("mask", reasons.mask), TS_AS("evidence", reasons.evidence),
	US_AS("reason_ns", reasons.since_ns), T_AS("cause", reasons.contention_rule),
	U_AS("reserved", reasons.reservations), U_AS("battery_ns", reasons.battery_ns),
	U_AS("hold", reasons.person), U_AS("until_ns", reasons.until_ns),
	U_AS("until_wall_ns", reasons.until_wall_ns),
	U_AS("demand.kind", demand.strongest.kind), U_AS("demand.urgent", demand.strongest.urgent),
	U_AS("demand.more_bytes", demand.strongest.more_bytes), I_AS("demand.pid", demand.strongest.contender.pid),
	I_AS("demand.uid", demand.strongest.uid), T_AS("demand.rule", demand.strongest.rule),
	T_AS("demand.evidence", demand.strongest.evidence), U_AS("against", demand.pressing),
	U_AS("against_ns", demand.since_ns), U_AS("calm_ns", demand.calm_ns), U_AS("against_looks", demand.scenes),
	U_AS("calm_looks", demand.calm_scenes), U_AS("quiet_looks", demand.unlimited_scenes),
	U_AS("limited_ns", demand.limited_ns), I_AS("where", demand.gpu),
	U_AS("idle", idle.unload), U_AS("works", idle.busy), U_AS("wants_figure", idle.wants_figure),
	U_AS("idle_ns", idle.since_ns), U_AS("figure_ns", idle.figure_ns), U_AS("idle_bytes", idle.bytes),
	U_AS("idle_after_ns", idle.after_ns), U_AS("asked_ns", idle.asked_ns), D_AS("idle_w", idle.idle_w),
	D_AS("reload_j", idle.reload_j),
	U_AS("order.id", order.what.id), U_AS("order.verb", order.what.verb), U_AS("order.worker", order.what.worker),
	U_AS("order.level", order.what.level), U_AS("order.deadline_ns", order.what.deadline_ns),
	U_AS("order.bytes", order.what.bytes), T_AS("order.gpus", order.what.gpus),
	T_AS("order.reason", order.what.reason), U_AS("order.start", order.what.start),
	U_AS("answered", order.answered), U_AS("retry_ns", order.retry_ns),
	U_AS("level", intent.level), U_AS("tries", intent.tries), U_AS("deadline_ns", intent.deadline_ns),
	U_AS("budget_ns", intent.budget_ns), U_AS("base_bytes", intent.base_bytes), U_AS("base_free", intent.base_free),
	U_AS("base_others", intent.base_others), U_AS("begun_ns", intent.begun_ns), U_AS("freed_ns", intent.freed_ns),
	U_AS("residue_bytes", intent.residue_bytes), WORDS_AS("put_away", intent.put_away),
	U_AS("put_away_count", intent.put_away_count),
	U_AS("storm", backoff.storm), US_AS("flap", backoff.flap), US_AS("reload", backoff.reload),
	U_AS("flaps", backoff.flaps), U_AS("reloads", backoff.reloads), D_AS("backoff", backoff.quiet_factor),
	U_AS("check_ns", backoff.check_ns), U_AS("resume_after_ns", backoff.resume_ns),
	U_AS("resume_backoff_ns", backoff.failed_ns), U_AS("resident_until_ns", backoff.resident_ns),
	U_AS("blocked", backoff.blocked), U_AS("last", unsettled), U_AS("dirty", record_due),
	U_AS("since_ns", since_ns), U_AS("masked", report.masked), U_AS("ended", report.result),
	U_AS("ended_level", report.level), U_AS("ended_bytes", report.freed_bytes),
	U_AS("ended_blocked", report.blocked), U_AS("astray", report.kind),
	U_AS("evictions", report.evictions), U_AS("resumes", report.resumes), U_AS("would_evict", report.would_evict),
	T_AS("why", report.evidence), END
};
#undef OF

#define FLAGS(F) \
	F(present) F(replaced) F(lingers) F(barred) F(starting) F(contention) F(manual) F(override) \
	F(fresh) F(pending) F(ajar) F(evicted) F(closed) F(drained) F(virtual_out) F(owed) \
	F(returning) F(stayed) F(told) F(asked) F(frozen) F(throttled) F(damped) F(screen) \
	F(withheld)
#define F(name) FLAG_##name,
enum { FLAGS(F) OLD_FLAGS };
#undef F
#define F(name) #name,
static const char *const old_flags[] = { FLAGS(F) };
#undef F
/* clang-format on */

/* The arrays in struct guard that are written. count is the offset of the number of used
 * entries; with ALL, every entry is written. */
#define AT(m)     offsetof(struct guard, m), sizeof(((struct guard *)0)->m[0])
#define PLACES(m) (unsigned)(sizeof(((struct guard *)0)->m) / sizeof(((struct guard *)0)->m[0]))
#define COUNT(m)  offsetof(struct guard, m) /* unsigned */
#define ALL       SIZE_MAX
enum { PART_GPU, PART_WORKER, PART_RESERVATION, PART_LIFE, PART_USER, PARTS };
static const struct {
	const char *name;
	const struct member *member;
	size_t offset, size;
	unsigned places;
	size_t count;
} parts[PARTS] = {
	[PART_GPU] = { "gpu", of_gpu, AT(gpu), PLACES(gpu), COUNT(gpus) },
	[PART_WORKER] = { "worker", of_worker, AT(worker), PLACES(worker), COUNT(workers) },
	[PART_RESERVATION] = { "room", of_reservation, AT(reservation), PLACES(reservation),
			       ALL },
	[PART_LIFE] = { "life", of_life, AT(demand.life), PLACES(demand.life),
			COUNT(demand.lives) },
	[PART_USER] = { "user", of_user, AT(rate.user), PLACES(rate.user), COUNT(rate.users) },
};

bool guard_state_complete(const struct guard *g)
{
	return !g->queue.count;
}

static unsigned part_count(const struct guard *g, unsigned part)
{
	return parts[part].count == ALL
		       ? parts[part].places
		       : *(const unsigned *)((const char *)g + parts[part].count);
}

static void write_scene(struct buf *out, const char *prefix, const struct scene *s)
{
	struct buf text;
	char *line, *rest = NULL;

	buf_init(&text, (size_t)SCENE_LINE_MAX * (s->processes + s->gpus + s->roots + 4));
	scene_write(&text, s);
	out->err = out->err ? out->err : text.err;
	for (line = strtok_r(text.p, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		buf_addf(out, "%sscene\t%s\n", prefix, line);
	buf_done(&text);
}

void guard_state_write(struct buf *out, const char *prefix, const struct guard *g)
{
	char head[64];

	if (!g->scenes)
		return;
	buf_addf(out, "%sbegin\tnames\n", prefix);
	snprintf(head, sizeof(head), "%sguard\t", prefix);
	members_write(out, head, of_guard, g);
	for (unsigned i = 0; i < PARTS; i++)
		for (unsigned k = 0; k < part_count(g, i); k++) {
			snprintf(head, sizeof(head), "%s%s\t%u\t", prefix, parts[i].name, k);
			members_write(out, head, parts[i].member,
				      (const char *)g + parts[i].offset + k * parts[i].size);
		}
	write_scene(out, prefix, &g->scene);
	buf_addf(out, "%send\n", prefix);
}

/* Resets the guard to zero and keeps only its policy. */
static int state_begins(struct guard_state_reader *r, struct guard *g, bool old)
{
	const struct policy *p = g->p;

	memset(r, 0, sizeof(*r));
	r->old = old;
	memset(g, 0, sizeof(*g));
	g->p = p;
	g->workers = p->workers < POLICY_WORKERS ? p->workers : POLICY_WORKERS;
	for (unsigned i = 0; i < g->workers; i++) {
		guard_bind(g, &g->worker[i], &p->worker[i]);
		/* A member without a line is zero. */
		g->worker[i].idle.after_ns = 0;
		g->worker[i].idle.idle_w = g->worker[i].idle.reload_j = 0;
	}
	guard_rank(g);
	return 0;
}

/* Reads a line of a worker in format version 4. Returns 0 or -GW_E_PARSE. */
static int old_worker_read(struct guard_state_old *o, struct guard_worker *w, const char *line)
{
	size_t n = strcspn(line, "\t");
	int err;

	/* The text "gone", the cause of the eviction, is skipped: it is built when needed. */
	if (!strncmp(line, "gone\t", 5))
		return 0;
	for (unsigned i = 0; i < OLD_FLAGS; i++)
		if (strlen(old_flags[i]) == n && !memcmp(old_flags[i], line, n)) {
			o->flags |= UINT64_C(1) << i;
			return strcmp(line + n, "\t1") == 0 ? 0 : -GW_E_PARSE;
		}
	err = members_read(line, of_old_state, o);
	if (err == -GW_E_NOENT)
		err = members_read(line, of_old_worker, w);
	return err ? -GW_E_PARSE : 0;
}

#define IS(name) (o->flags >> FLAG_##name & 1)

static void old_found(const struct guard_state_old *o, struct worker_observed *s)
{
	if (!IS(present))
		s->found = IS(barred)    ? FOUND_DISPLACED
			   : IS(lingers) ? FOUND_UNMATCHED
					 : FOUND_NONE;
	else
		s->found = !IS(replaced) ? FOUND_SAME
			   : IS(lingers) ? FOUND_OTHER_LIVES
					 : FOUND_OTHER;
	/* Recordings of format version 4 lack the replaced root processes. Pid 0, which matches
	 * no process, takes their place. */
	if (IS(replaced)) {
		s->root[0] = (struct proc_id){ .pid = 0 };
		s->roots = 1;
	}
}

/* Returns the stage of a worker in the state reconcile, precheck or absent. The flags say
 * whether the worker came to this state during an eviction or a return. */
static enum worker_stage old_stage(const struct guard_state_old *o)
{
	return !IS(evicted)    ? STAGE_RUN
	       : IS(returning) ? STAGE_LOAD
	       : IS(stayed)    ? STAGE_STUCK
			       : STAGE_OUT;
}

static void old_intent(const struct guard_state_old *o, struct worker_intent *i)
{
	static const enum worker_stage stage[GUARD_STATES] = {
		[STATE_DRAIN] = STAGE_DRAIN,   [STATE_EVICT] = STAGE_UNLOAD,
		[STATE_VERIFY] = STAGE_VERIFY, [STATE_STUCK] = STAGE_STUCK,
		[STATE_EVICTED] = STAGE_OUT,   [STATE_QUIET] = STAGE_OUT,
		[STATE_RESUME] = STAGE_LOAD,   [STATE_VERIFY_UP] = STAGE_VERIFY_UP,
	};

	i->stage = stage[o->state];
	if (!i->stage && o->state != STATE_ACTIVE && o->state != STATE_SUSPECT)
		i->stage = old_stage(o);
	i->from = FROM_RUN;
	if (stage_returns(i->stage))
		i->from = !IS(evicted)    ? IS(starting) ? FROM_ABSENT : FROM_STARTED
			  : IS(stayed)    ? FROM_STUCK
			  : IS(returning) ? FROM_OUT
					  : FROM_RUN;
	else if (stage[o->state] && stage_leaves(i->stage) && IS(returning))
		i->from = FROM_OUT;
	i->claim = IS(told) ? CLAIM_LEFT : IS(virtual_out) ? CLAIM_DRY : CLAIM_NONE;
}

static void old_reasons(const struct guard_state_old *o, struct guard_worker *w)
{
	/* version 4 wrote the number of a guard_hold here */
	const unsigned hold = w->reasons.person;

	w->reasons.person = hold == HOLD_EVICTED  ? PERSON_HOLD_EVICTED
			    : hold == HOLD_ACTIVE ? PERSON_HOLD_ACTIVE
			    : IS(manual)          ? PERSON_EVICT
						  : PERSON_NONE;
	w->demand.phase = o->state == STATE_SUSPECT
				  ? IS(contention) ? PHASE_RELEASED : PHASE_SUSPECTED
			  : !IS(contention)         ? PHASE_NONE
			  : o->state == STATE_QUIET ? PHASE_CALMING
						    : PHASE_SURE;
	w->demand.damped_until_ns = IS(damped) ? w->intent.deadline_ns : 0;
}

/* Converts a worker of format version 4 after its last line. Returns 0 or -GW_E_PARSE. */
static int old_worker_end(const struct guard_state_old *o, struct guard_worker *w)
{
	if (o->state >= GUARD_STATES || (unsigned)w->reasons.person > HOLD_ACTIVE ||
	    w->dry >= GUARD_DRIES || w->report.result >= GUARD_RESULTS ||
	    w->demand.strongest.kind >= DEMAND_KINDS || w->order.what.verb > ORDER_VERBS)
		return -GW_E_PARSE;
	if (w->order.what.verb == ORDER_VERBS) /* an order without an effect */
		w->order.what.verb = ORDER_CLOSE;
	w->presence = o->state == STATE_RECONCILE ? PRESENCE_UNKNOWN
		      : o->state == STATE_ABSENT  ? PRESENCE_GONE
						  : PRESENCE_HERE;
	old_found(o, &w->observed);
	old_intent(o, &w->intent);
	w->intent.real = IS(owed) || ((IS(evicted) || IS(closed)) && !w->dry);
	w->admission = !IS(closed) ? ADMISSION_OPEN
		       : IS(ajar)  ? ADMISSION_UNVERIFIED
				   : ADMISSION_CLOSED;
	old_reasons(o, w);
	w->order.status = IS(fresh)     ? STATUS_WAITING
			  : IS(pending) ? STATUS_UNDERWAY
			  : IS(drained) ? STATUS_DONE
					: STATUS_NONE;
	w->backoff.request = IS(override) ? RESUME_REQUESTED_NOW
			     : IS(asked)  ? RESUME_REQUESTED
					  : RESUME_NOT_REQUESTED;
	w->report.state = (enum guard_state)o->state;
	w->conditions = (IS(frozen) ? CONDITION_UNREADABLE : 0) |
			(IS(throttled) ? CONDITION_THROTTLED : 0) |
			(IS(screen) ? CONDITION_DISPLAY : 0) |
			(IS(withheld) ? CONDITION_WITHHELD : 0);
	return 0;
}

static int read_part(struct guard_state_reader *r, struct guard *g, unsigned part,
		     const char *rest)
{
	char *end;
	unsigned long at = strtoul(rest, &end, 10);
	int err = -GW_E_NOENT;
	void *of;

	if (*rest < '0' || *rest > '9' || *end != '\t' || at >= parts[part].places)
		return -GW_E_PARSE;
	of = (char *)g + parts[part].offset + at * parts[part].size;
	if (r->old && part == PART_WORKER)
		return old_worker_read(&r->worker[at], of, end + 1);
	/* skip what only older versions wrote: facts that follow from other members, and an
	 * order without an effect */
	if (part == PART_GPU && (!strncmp(end, "\thung\t", 6) || !strncmp(end, "\tstale\t", 7)))
		return 0;
	if (part == PART_WORKER && !strcmp(end, "\torder.what.verb\tnotify"))
		return 0;
	if (r->old && part == PART_GPU)
		err = members_read(end + 1, of_old_gpu, of);
	if (err == -GW_E_NOENT)
		err = members_read(end + 1, parts[part].member, of);
	return err ? -GW_E_PARSE : 0;
}

/* True if all positions and counts are within their arrays. In a damaged file they may be
 * outside. */
static bool is_sound(const struct guard *g)
{
	bool is = g->scenes && g->gpus <= SCENE_GPUS && g->demand.lives <= SCENE_PROCESSES &&
		  g->rate.users <= RATE_USERS && !g->scene.reading;

	for (unsigned i = 0; is && i < g->gpus; i++)
		is = g->gpu[i].at < (int)g->scene.gpus;
	for (unsigned i = 0; is && i < GUARD_RESERVATIONS; i++)
		is = !g->reservation[i].id ||
		     (g->reservation[i].gpu >= 0 && g->reservation[i].gpu < (int)g->gpus);
	for (unsigned i = 0; is && i < g->workers; i++) {
		const struct guard_worker *w = &g->worker[i];

		is = w->intent.level < GUARD_LEVELS &&
		     w->intent.put_away_count <= GUARD_TARGETS &&
		     w->observed.roots <= GUARD_ROOTS && w->report.level < GUARD_LEVELS &&
		     w->demand.gpu >= 0 && w->report.cause_at <= strlen(w->report.evidence) &&
		     (!w->demand.gpu || w->demand.gpu < (int)g->gpus);
	}
	return is;
}

static int state_ends(struct guard_state_reader *r, struct guard *g)
{
	for (unsigned i = 0; r->old && i < g->workers; i++)
		if (old_worker_end(&r->worker[i], &g->worker[i]) != 0)
			return -GW_E_PARSE;
	if (!is_sound(g))
		return -GW_E_PARSE;
	for (unsigned i = 0; i < g->workers; i++) {
		if (g->worker[i].intent.from == FROM_RETURN)
			g->worker[i].intent.from = FROM_OUT;
		/* before format version 10, only this rule said that the return was blocked */
		if (!strcmp(g->worker[i].report.rule, "resume_blocked"))
			g->worker[i].report.last = DECISION_RESUME_BLOCKED;
	}
	for (unsigned i = 0; i < g->gpus; i++)
		g->gpu[i].now = g->gpu[i].at < 0 ? NULL : &g->scene.gpu[g->gpu[i].at];
	classify(g->p, &g->scene, g->verdict);
	return 1;
}

void guard_state_old_game(const char *text, struct scene_game *ret)
{
	uint64_t pid;

	*ret = (struct scene_game){ .pid = 0 };
	if (!text_read_word(&text, "pid ") || !text_read_number(&text, INT64_MAX, &pid))
		return;
	ret->pid = (int64_t)pid;
	text_fit(ret->name, sizeof(ret->name), "%s", text + (*text == ' '));
}

static int read_guard(struct guard_state_reader *r, struct guard *g, const char *rest)
{
	int err = r->old ? members_read(rest, of_old_guard, g) : -GW_E_NOENT;

	/* earlier versions also wrote "looked", which is true if "looks" is not 0 */
	if (!strncmp(rest, "looked\t", 7))
		return 0;
	if (!strncmp(rest, "game\t", 5)) {
		guard_state_old_game(rest + 5, &g->game);
		return 0;
	}
	if (err == -GW_E_NOENT)
		err = members_read(rest, of_guard, g);
	return err ? -GW_E_PARSE : 0;
}

int guard_state_read(struct guard_state_reader *r, struct guard *g, const char *line)
{
	size_t n = strcspn(line, "\t");
	const char *rest = line + n + (line[n] == '\t');

	if (!strcmp(line, "begin") || !strcmp(line, "begin\tnames"))
		return state_begins(r, g, !*rest);
	if (!strcmp(line, "end"))
		return state_ends(r, g);
	if (!strncmp(line, "scene\t", 6))
		return scene_read(&g->scene, rest) < 0 ? -GW_E_PARSE : 0;
	if (!strncmp(line, "guard\t", 6))
		return read_guard(r, g, rest);
	for (unsigned i = 0; i < PARTS; i++)
		if (strlen(parts[i].name) == n && !memcmp(line, parts[i].name, n))
			return read_part(r, g, i, rest);
	return -GW_E_PARSE;
}
