#include "guard_state.h"

#include "guard_internal.h"
#include "struct_text.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
/* The names of enums that only recordings use. decision_text.c has the others. */
static const char *const verbs[] = { [ORDER_CLOSE] = "close", [ORDER_DRAIN] = "drain",
	[ORDER_EVICT] = "evict", [ORDER_OPEN] = "open", [ORDER_RESUME] = "resume",
	NULL };
static const char *const demands[] = { [DEMAND_NONE] = "none", [DEMAND_ANY] = "any",
	[DEMAND_UNATTRIBUTED] = "unattributed", [DEMAND_PRESSURE] = "pressure",
	[DEMAND_UTILISATION] = "utilisation", [DEMAND_MEMORY] = "memory",
	[DEMAND_GAME] = "game", [DEMAND_NOW] = "now", NULL };
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
/* A stage has two lines, "intent.goal" and then "intent.stage", which decides. */
static const char *const goals[] = { [STAGE_RUN] = "run", [STAGE_DRAIN] = "leave",
	[STAGE_UNLOAD] = "leave", [STAGE_VERIFY] = "leave", [STAGE_STUCK] = "leave",
	[STAGE_OUT] = "out", [STAGE_LOAD] = "return", [STAGE_VERIFY_UP] = "return", NULL };
static const char *const stages[] = { [STAGE_RUN] = "run", [STAGE_DRAIN] = "drain",
	[STAGE_UNLOAD] = "unload", [STAGE_VERIFY] = "verify", [STAGE_STUCK] = "stuck",
	[STAGE_OUT] = "none", [STAGE_LOAD] = "load", [STAGE_VERIFY_UP] = "verify-up", NULL };
static const char *const froms[] = { [FROM_RUN] = "run", [FROM_OUT] = "out",
	 [FROM_STUCK] = "stuck", [FROM_ABSENT] = "absent",
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
static const char *const heats[] = { "throttle", "warm", NULL };
#define COUNT_IS(names, n) _Static_assert(sizeof(names) / sizeof((names)[0]) == (n) + 1, #names)
COUNT_IS(verbs, ORDER_VERBS);
COUNT_IS(demands, DEMAND_KINDS);
COUNT_IS(found, FOUND_OTHER_LIVES + 1);
COUNT_IS(goals, STAGE_VERIFY_UP + 1);
COUNT_IS(stages, STAGE_VERIFY_UP + 1);
COUNT_IS(froms, FROM_STARTED + 1);
COUNT_IS(claims, CLAIM_BACK + 1);

#define SIZE(m) ((unsigned)sizeof(((struct OF *)0)->m))
#define ONE_AS(as, kind, m, names) { as, kind, SIZE(m), 1, offsetof(struct OF, m), names }
#define ONE(kind, m, names) ONE_AS(#m, kind, m, names)
#define MANY_AS(as, kind, m) { as, kind, SIZE(m[0]), SIZE(m) / SIZE(m[0]), offsetof(struct OF, m), NULL }
#define MANY(kind, m) MANY_AS(#m, kind, m)
#define U(m)    ONE(STRUCT_TEXT_UNSIGNED, m, NULL) /* also for bool */
/* For a member that was renamed: `as` is its older name, which recordings still have. */
#define U_AS(as, m) ONE_AS(as, STRUCT_TEXT_UNSIGNED, m, NULL)
#define I(m)    ONE(STRUCT_TEXT_SIGNED, m, NULL)
#define D(m)    ONE(STRUCT_TEXT_REAL, m, NULL)
#define T(m)    ONE(STRUCT_TEXT_TEXT, m, NULL)
#define N(m, n) ONE(STRUCT_TEXT_NAME, m, n)
#define B(m, n) ONE(STRUCT_TEXT_SET, m, n)
#define US(m)   MANY(STRUCT_TEXT_UNSIGNED, m)
/* Members that consist of 64-bit words. */
#define WORDS_AS(as, m) { as, STRUCT_TEXT_UNSIGNED, 8, SIZE(m) / 8, offsetof(struct OF, m), NULL }
#define WORDS(m) WORDS_AS(#m, m)
/* One line per reason. */
#define OF_REASON(kind, m, symbol, name) \
	{ #m "." #name, kind, SIZE(m[0]), 1, offsetof(struct OF, m[REASON_##symbol]), NULL },
#define END { NULL, STRUCT_TEXT_UNSIGNED, 0, 0, 0, NULL }

#define OF guard
static const struct struct_text_member of_guard[] = {
	U(now_ns), U_AS("looked", has_scene), U_AS("looks", scenes), I(wall_offset_ns), I(utc_offset_s), I(local_s),
	I(local_floor_s), U(gpus), U(next_id), U(games), T(game), U(stopping), I(requester), U(rate.users),
	U(demand.begun), U(demand.lives), WORDS(demand.exe), END
};
#undef OF

/* Two members are not written: "now" is a pointer that is set again from "at"; "end" influences
 * no decision. */
#define OF guard_gpu
static const struct struct_text_member of_gpu[] = {
	T(uuid), I(at), U(blind), U(lost), U(clean), U(well_ns), U(seen),
	U(missing_ns), B(reasons, guard_reason_names), T(foreign), U(acted_ns), U(free_bytes),
	U(coming_bytes), U(promised), B(heat, heats), T(heat_why),
#define R(symbol, name, held, rule, clears) OF_REASON(STRUCT_TEXT_TEXT, evidence, symbol, name)
#include "reason.def"
	END
};
#undef OF

/* policy and knobs are not written, because they come from the policy of the recording. The
 * processes that an order names are not written, because they influence no decision. */
#define OF guard_worker
static const struct struct_text_member of_worker[] = {
	N(dry, guard_dry_names), N(presence, presences), ONE_AS("door", STRUCT_TEXT_NAME, admission, admissions), U(record_due), U(unsettled),
	N(observed.found, found), WORDS(observed.root), U(observed.roots),
	U(observed.roots_recorded), U(observed.match_changed), U(observed.seen_ns),
	U(observed.by_device), U(observed.gpus), U(observed.home), U(observed.bytes),
	US(observed.held), U(observed.need_bytes), US(observed.need_on), U(observed.dry_bytes),
	N(demand.phase, phases), U(demand.pressing), N(demand.strongest.kind, demands),
	U(demand.strongest.urgent), U(demand.strongest.more_bytes), I(demand.strongest.pid),
	I(demand.strongest.uid), T(demand.strongest.rule), T(demand.strongest.evidence),
	I(demand.gpu), U(demand.since_ns), U(demand.calm_ns), U(demand.scenes),
	U(demand.calm_scenes), U(demand.damped_until_ns), U(demand.limited_ns),
	U(demand.unlimited_scenes),
	B(reasons.mask, guard_reason_names), T(reasons.contention_rule), N(reasons.person, persons),
	U(reasons.until_ns), U(reasons.until_wall_ns), U(reasons.manual_wall_ns), U(reasons.reservations),
	U(reasons.battery_ns),
#define R(symbol, name, held, rule, clears) OF_REASON(STRUCT_TEXT_UNSIGNED, reasons.since_ns, symbol, name)
#include "reason.def"
#define R(symbol, name, held, rule, clears) OF_REASON(STRUCT_TEXT_TEXT, reasons.evidence, symbol, name)
#include "reason.def"
	ONE_AS("intent.goal", STRUCT_TEXT_NAME, intent.stage, goals), N(intent.stage, stages), N(intent.from, froms),
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
	N(report.state, guard_state_names), ONE_AS("report.since_ns", STRUCT_TEXT_UNSIGNED, since_ns, NULL), T(report.rule),
	ONE_AS("report.why", STRUCT_TEXT_TEXT, report.evidence, NULL), U(report.cause_at), ONE_AS("report.notices", STRUCT_TEXT_SET, conditions, conditions),
	B(report.masked, guard_reason_names), N(report.result, guard_result_names), U(report.level),
	U(report.freed_bytes), B(report.blocked, guard_block_names), U(report.unreachable),
	U(report.evictions), U(report.resumes), U(report.would_evict), END
};
#undef OF

#define OF reservation
static const struct struct_text_member of_reservation[] = {
	U(id), I(gpu), U(bytes), U(until_ns), I(pid), U(most_bytes), END
};
#undef OF

#define OF demand_life
static const struct struct_text_member of_life[] = {
	I(pid), U(start_ticks), U(gpu), U(exe), U(first_ns), U(grown_ns), U(mark_bytes),
	U(peak_bytes), D(busy_ratio), U(busy_ns), U(seen), END
};
#undef OF

#define OF rate_user
static const struct struct_text_member of_user[] = { I(uid), US(at_ns), U(count), END };
#undef OF

/* clang-format on */

/* The arrays in struct guard that are written. count: offset of the number of used entries; ALL:
 * every entry is written. */
#define AT(m)     offsetof(struct guard, m), sizeof(((struct guard *)0)->m[0])
#define PLACES(m) (unsigned)(sizeof(((struct guard *)0)->m) / sizeof(((struct guard *)0)->m[0]))
#define COUNT(m)  offsetof(struct guard, m) /* unsigned */
#define ALL       SIZE_MAX
enum { PART_GPU, PART_WORKER, PART_RESERVATION, PART_LIFE, PART_USER, PARTS };
static const struct {
	const char *name;
	const struct struct_text_member *member;
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

	if (!g->has_scene)
		return;
	buf_addf(out, "%sbegin\tnames\n", prefix);
	snprintf(head, sizeof(head), "%sguard\t", prefix);
	struct_text_write(out, head, of_guard, g);
	for (unsigned i = 0; i < PARTS; i++)
		for (unsigned k = 0; k < part_count(g, i); k++) {
			snprintf(head, sizeof(head), "%s%s\t%u\t", prefix, parts[i].name, k);
			struct_text_write(out, head, parts[i].member,
					  (const char *)g + parts[i].offset +
						  k * parts[i].size);
		}
	write_scene(out, prefix, &g->scene);
	buf_addf(out, "%send\n", prefix);
}

/* Resets the guard to zero and keeps only its policy. */
static void state_begins(struct guard *g)
{
	const struct policy *p = g->p;

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
}

static int read_part(struct guard *g, unsigned part, const char *rest)
{
	char *end;
	unsigned long at = strtoul(rest, &end, 10);
	void *of;

	if (*rest < '0' || *rest > '9' || *end != '\t' || at >= parts[part].places)
		return -GW_E_PARSE;
	of = (char *)g + parts[part].offset + at * parts[part].size;
	return struct_text_read(parts[part].member, of, end + 1) ? -GW_E_PARSE : 0;
}

/* True if all positions and counts are within their arrays. A damaged file may have others. */
static bool is_sound(const struct guard *g)
{
	bool is = g->has_scene && g->gpus <= SCENE_GPUS && g->demand.lives <= SCENE_PROCESSES &&
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

static int state_ends(struct guard *g)
{
	if (!is_sound(g))
		return -GW_E_PARSE;
	for (unsigned i = 0; i < g->gpus; i++)
		g->gpu[i].now = g->gpu[i].at < 0 ? NULL : &g->scene.gpu[g->gpu[i].at];
	classify(g->p, &g->scene, g->verdict);
	return 1;
}

int guard_state_read(struct guard *g, const char *line)
{
	size_t n = strcspn(line, "\t");
	const char *rest = line + n + (line[n] == '\t');

	if (!strcmp(line, "begin\tnames")) {
		state_begins(g);
		return 0;
	}
	if (!strcmp(line, "end"))
		return state_ends(g);
	if (!strncmp(line, "scene\t", 6))
		return scene_read(&g->scene, rest) < 0 ? -GW_E_PARSE : 0;
	if (!strncmp(line, "guard\t", 6))
		return struct_text_read(of_guard, g, rest) ? -GW_E_PARSE : 0;
	for (unsigned i = 0; i < PARTS; i++)
		if (strlen(parts[i].name) == n && !memcmp(line, parts[i].name, n))
			return read_part(g, i, rest);
	return -GW_E_PARSE;
}
