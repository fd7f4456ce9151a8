/* Converts workers in recordings of format version 4: a state and 25 flags become today's
 * enums. */
#include "guard_state.h"

#include "guard_internal.h"
#include "struct_text.h"

#include <string.h>

/* clang-format off */
/* The flags of format version 4. */
#define FLAGS(F) \
	F(present) F(replaced) F(lingers) F(barred) F(starting) F(contention) F(manual) F(override) \
	F(fresh) F(pending) F(ajar) F(evicted) F(closed) F(drained) F(virtual_out) F(owed) \
	F(returning) F(stayed) F(told) F(asked) F(frozen) F(throttled) F(damped) F(screen) \
	F(withheld)
#define F(name) FLAG_##name,
enum { FLAGS(F) OLD_FLAGS };
#undef F
#define F(name) #name,
static const char *const flags[] = { FLAGS(F) };
#undef F

/* The other members in version 4, and today's members with the same content. */
#define SIZE(m) ((unsigned)sizeof(((struct guard_worker *)0)->m))
#define AS(old, kind, m) { #old, STRUCT_TEXT_##kind, SIZE(m), 1, offsetof(struct guard_worker, m), NULL }
#define ALL(old, kind, m) \
	{ #old, STRUCT_TEXT_##kind, SIZE(m[0]), SIZE(m) / SIZE(m[0]), offsetof(struct guard_worker, m), NULL }
#define WORDS(old, m) { #old, STRUCT_TEXT_UNSIGNED, 8, SIZE(m) / 8, offsetof(struct guard_worker, m), NULL }
#define U(old, m) AS(old, UNSIGNED, m)
static const struct struct_text_member members[] = {
	U(dry, dry), U(rematched, observed.match_changed), U(delta, observed.by_device),
	WORDS(root, observed.root), U(roots, observed.roots), U(recalled, observed.roots_recorded),
	U(seen_ns, observed.seen_ns), U(gpus, observed.gpus), U(home, observed.home),
	U(bytes, observed.bytes), ALL(held, UNSIGNED, observed.held),
	ALL(need_on, UNSIGNED, observed.need_on), U(need_bytes, observed.need_bytes),
	U(pretended, observed.dry_bytes),
	U(mask, reasons.mask), ALL(evidence, TEXT, reasons.evidence),
	ALL(reason_ns, UNSIGNED, reasons.since_ns), AS(cause, TEXT, reasons.contention_rule),
	U(reserved, reasons.reservations), U(battery_ns, reasons.battery_ns),
	U(hold, reasons.person), U(until_ns, reasons.until_ns),
	U(until_wall_ns, reasons.until_wall_ns),
	U(demand.kind, demand.strongest.kind), U(demand.urgent, demand.strongest.urgent),
	U(demand.more_bytes, demand.strongest.more_bytes), AS(demand.pid, SIGNED, demand.strongest.pid),
	AS(demand.uid, SIGNED, demand.strongest.uid), AS(demand.rule, TEXT, demand.strongest.rule),
	AS(demand.evidence, TEXT, demand.strongest.evidence), U(against, demand.pressing),
	U(against_ns, demand.since_ns), U(calm_ns, demand.calm_ns), U(against_looks, demand.scenes),
	U(calm_looks, demand.calm_scenes), U(quiet_looks, demand.unlimited_scenes),
	U(limited_ns, demand.limited_ns), AS(where, SIGNED, demand.gpu),
	U(idle, idle.unload), U(works, idle.busy), U(wants_figure, idle.wants_figure),
	U(idle_ns, idle.since_ns), U(figure_ns, idle.figure_ns), U(idle_bytes, idle.bytes),
	U(idle_after_ns, idle.after_ns), U(asked_ns, idle.asked_ns), AS(idle_w, REAL, idle.idle_w),
	AS(reload_j, REAL, idle.reload_j),
	U(order.id, order.what.id), U(order.verb, order.what.verb), U(order.worker, order.what.worker),
	U(order.level, order.what.level), U(order.deadline_ns, order.what.deadline_ns),
	U(order.bytes, order.what.bytes), AS(order.gpus, TEXT, order.what.gpus),
	AS(order.reason, TEXT, order.what.reason), U(order.start, order.what.start),
	U(answered, order.answered), U(retry_ns, order.retry_ns),
	U(level, intent.level), U(tries, intent.tries), U(deadline_ns, intent.deadline_ns),
	U(budget_ns, intent.budget_ns), U(base_bytes, intent.base_bytes), U(base_free, intent.base_free),
	U(base_others, intent.base_others), U(begun_ns, intent.begun_ns), U(freed_ns, intent.freed_ns),
	U(residue_bytes, intent.residue_bytes), WORDS(put_away, intent.put_away),
	U(put_away_count, intent.put_away_count),
	U(storm, backoff.storm), ALL(flap, UNSIGNED, backoff.flap), ALL(reload, UNSIGNED, backoff.reload),
	U(flaps, backoff.flaps), U(reloads, backoff.reloads), AS(backoff, REAL, backoff.quiet_factor),
	U(check_ns, backoff.check_ns), U(resume_after_ns, backoff.resume_ns),
	U(resume_backoff_ns, backoff.failed_ns), U(resident_until_ns, backoff.resident_ns),
	U(blocked, backoff.blocked), U(last, unsettled), U(dirty, record_due),
	U(since_ns, report.since_ns), U(masked, report.masked), U(ended, report.result),
	U(ended_level, report.level), U(ended_bytes, report.freed_bytes),
	U(ended_blocked, report.blocked), U(astray, report.unreachable),
	U(evictions, report.evictions), U(resumes, report.resumes), U(would_evict, report.would_evict),
	AS(why, TEXT, report.why), { NULL, STRUCT_TEXT_UNSIGNED, 0, 0, 0, NULL }
};
static const struct struct_text_member of_state[] = {
	{ "state", STRUCT_TEXT_UNSIGNED, sizeof(unsigned), 1, offsetof(struct guard_state_old, state), NULL },
	{ NULL, STRUCT_TEXT_UNSIGNED, 0, 0, 0, NULL }
};
/* clang-format on */

int guard_state_old_line(struct guard_state_old *o, struct guard_worker *w, const char *line)
{
	size_t n = strcspn(line, "\t");
	int err;

	/* skipped, because this string is made again when needed */
	if (!strncmp(line, "gone\t", 5))
		return 0;
	for (unsigned i = 0; i < OLD_FLAGS; i++)
		if (strlen(flags[i]) == n && !memcmp(flags[i], line, n)) {
			o->flags |= UINT64_C(1) << i;
			return strcmp(line + n, "\t1") == 0 ? 0 : -GW_E_PARSE;
		}
	err = struct_text_read(of_state, o, line);
	if (err == -GW_E_NOENT)
		err = struct_text_read(members, w, line);
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
	/* version 4 did not keep the earlier processes: pid 0 matches no process */
	if (IS(replaced)) {
		s->root[0] = (struct proc_id){ .pid = 0 };
		s->roots = 1;
	}
}

static void set_intent(struct worker_intent *i, enum worker_goal goal, enum worker_stage stage,
		       enum worker_from from)
{
	i->goal = goal;
	i->stage = stage;
	i->from = from;
}

static void old_intent(const struct guard_state_old *o, struct worker_intent *i)
{
	static const enum worker_stage stage[] = {
		[STATE_DRAIN] = STAGE_DRAIN,   [STATE_EVICT] = STAGE_UNLOAD,
		[STATE_VERIFY] = STAGE_VERIFY, [STATE_STUCK] = STAGE_STUCK,
		[STATE_RESUME] = STAGE_LOAD,   [STATE_VERIFY_UP] = STAGE_VERIFY_UP,
	};
	const enum worker_from back = !IS(evicted) ? IS(starting) ? FROM_ABSENT : FROM_STARTED
				      : IS(stayed) ? FROM_STUCK
				      : IS(returning) ? FROM_OUT
						      : FROM_RUN;

	switch (o->state) {
	case STATE_ACTIVE:
	case STATE_SUSPECT: set_intent(i, GOAL_RUN, STAGE_NONE, FROM_RUN); break;
	case STATE_DRAIN:
	case STATE_EVICT:
	case STATE_VERIFY:
	case STATE_STUCK:
		set_intent(i, GOAL_LEAVE, stage[o->state],
			   IS(returning) ? FROM_RETURN : FROM_RUN);
		break;
	case STATE_RESUME:
	case STATE_VERIFY_UP: set_intent(i, GOAL_RETURN, stage[o->state], back); break;
	case STATE_EVICTED:
	case STATE_QUIET: set_intent(i, GOAL_OUT, STAGE_NONE, FROM_RUN); break;
	default:
		if (!IS(evicted))
			set_intent(i, GOAL_RUN, STAGE_NONE, FROM_RUN);
		else if (IS(returning))
			set_intent(i, GOAL_RETURN, STAGE_LOAD, back);
		else if (IS(stayed))
			set_intent(i, GOAL_LEAVE, STAGE_STUCK, FROM_RUN);
		else
			set_intent(i, GOAL_OUT, STAGE_NONE, FROM_RUN);
	}
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

int guard_state_old_end(const struct guard_state_old *o, struct guard_worker *w)
{
	if (o->state >= GUARD_STATES || (unsigned)w->reasons.person > HOLD_ACTIVE ||
	    w->dry >= GUARD_DRIES || w->report.result >= GUARD_RESULTS ||
	    w->demand.strongest.kind >= DEMAND_KINDS || w->order.what.verb > ORDER_NOTIFY)
		return -GW_E_PARSE;
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
	w->report.notices =
		(IS(frozen) ? NOTICE_UNREADABLE : 0) | (IS(throttled) ? NOTICE_THROTTLED : 0) |
		(IS(screen) ? NOTICE_DISPLAY : 0) | (IS(withheld) ? NOTICE_WITHHELD : 0);
	return 0;
}
