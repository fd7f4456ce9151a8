#include "guard_state.h"

#include "guard_internal.h"
#include "struct_text.h"

#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

/* clang-format off */
#define SIZE(m) ((unsigned)sizeof(((struct OF *)0)->m))
#define ONE(kind, m)        { #m, kind, SIZE(m), 1, offsetof(struct OF, m) }
#define MANY(kind, m)       { #m, kind, SIZE(m[0]), SIZE(m) / SIZE(m[0]), offsetof(struct OF, m) }
#define U(m)  ONE(STRUCT_TEXT_UNSIGNED, m)   /* enums and bools, too */
#define I(m)  ONE(STRUCT_TEXT_SIGNED, m)
#define D(m)  ONE(STRUCT_TEXT_REAL, m)
#define T(m)  ONE(STRUCT_TEXT_TEXT, m)
#define US(m) MANY(STRUCT_TEXT_UNSIGNED, m)
#define TS(m) MANY(STRUCT_TEXT_TEXT, m)
/* Structs of 64 bits each. */
#define WORDS(m) { #m, STRUCT_TEXT_UNSIGNED, 8, SIZE(m) / 8, offsetof(struct OF, m) }
#define END { NULL, STRUCT_TEXT_UNSIGNED, 0, 0, 0 }

#define OF guard
static const struct struct_text_member of_guard[] = {
	U(now_ns), U(looked), U(looks), I(wall_offset_ns), I(utc_offset_s), I(local_s),
	I(local_floor_s), U(gpus), U(next_id), U(games), U(stopping), I(asker), U(rate.users),
	U(demand.begun), U(demand.lives), WORDS(demand.exe), END
};
#undef OF

#define OF guard_gpu /* but now, which is found by at, and end, by which nothing is decided */
static const struct struct_text_member of_gpu[] = {
	T(uuid), I(at), U(blind), U(hung), U(lost), U(stale), U(clean), U(well_ns), U(seen),
	U(missing_ns), U(reasons), TS(evidence), T(foreign), U(acted_ns), U(free_bytes),
	U(coming_bytes), U(promised), U(heat), T(heat_why), END
};
#undef OF

#define OF guard_worker /* but policy and knobs, which the policy says, and what of its order is only for whoever acts */
static const struct struct_text_member of_worker[] = {
	U(state), U(since_ns), U(dry), U(rematched), U(present), U(delta), WORDS(root), U(roots),
	U(recalled), U(replaced), U(lingers), U(barred), U(seen_ns), U(starting), U(gpus), U(home), U(bytes),
	US(held), US(need_on), U(need_bytes), U(mask), TS(evidence), US(reason_ns), T(cause),
	U(pretended), U(demand.kind), U(demand.urgent), U(demand.more_bytes), I(demand.pid),
	I(demand.uid), T(demand.rule), T(demand.evidence), U(against), U(against_ns), U(calm_ns),
	U(against_looks), U(calm_looks), U(contention), U(manual), U(override), U(reserved),
	U(battery_ns), U(hold), U(until_ns), U(until_wall_ns), U(idle), U(works), U(wants_figure),
	U(idle_ns), U(figure_ns), U(idle_bytes), U(idle_after_ns), U(asked_ns), D(idle_w),
	D(reload_j), U(order.id), U(order.verb), U(order.worker), U(order.level),
	U(order.deadline_ns), U(order.bytes), T(order.gpus), T(order.reason), U(order.start),
	U(fresh), U(pending), U(answered), U(retry_ns), U(level), U(tries), U(deadline_ns),
	U(budget_ns), U(ajar), U(evicted), U(closed), U(drained), U(storm), U(virtual_out),
	U(astray), U(owed), U(returning), U(stayed), U(told), U(base_bytes), U(base_free),
	U(base_others), U(begun_ns), U(freed_ns), U(residue_bytes), US(flap), US(reload), U(flaps),
	U(reloads), D(backoff), WORDS(put_away), U(put_away_count), U(last), U(asked), U(check_ns),
	U(resume_after_ns), U(resume_backoff_ns), U(resident_until_ns), U(blocked), U(frozen),
	U(throttled), U(damped), U(dirty), U(masked), U(screen), U(withheld), U(quiet_looks),
	U(limited_ns), I(where), U(ended), U(ended_level), U(ended_bytes), U(ended_blocked),
	U(evictions), U(resumes), U(would_evict), T(why), T(gone), END
};
#undef OF

#define OF reservation
static const struct struct_text_member of_room[] = {
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

/* What there are several of: those that `count` tells of, or all places. */
#define AT(m)     offsetof(struct guard, m), sizeof(((struct guard *)0)->m[0])
#define PLACES(m) (unsigned)(sizeof(((struct guard *)0)->m) / sizeof(((struct guard *)0)->m[0]))
#define COUNT(m)  offsetof(struct guard, m) /* unsigned */
#define ALL       SIZE_MAX
static const struct {
	const char *name;
	const struct struct_text_member *member;
	size_t offset, size;
	unsigned places;
	size_t count;
} parts[] = {
	{ "gpu", of_gpu, AT(gpu), PLACES(gpu), COUNT(gpus) },
	{ "worker", of_worker, AT(worker), PLACES(worker), COUNT(workers) },
	{ "room", of_room, AT(reservation), PLACES(reservation), ALL },
	{ "life", of_life, AT(demand.life), PLACES(demand.life), COUNT(demand.lives) },
	{ "user", of_user, AT(rate.user), PLACES(rate.user), COUNT(rate.users) },
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

/* ---- writing ---- */

bool guard_state_complete(const struct guard *g)
{
	return !g->waiting;
}

static unsigned there(const struct guard *g, unsigned part)
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

	if (!g->looked)
		return;
	buf_addf(out, "%sbegin\n", prefix);
	snprintf(head, sizeof(head), "%sguard\t", prefix);
	struct_text_write(out, head, of_guard, g);
	for (unsigned i = 0; i < PARTS; i++)
		for (unsigned k = 0; k < there(g, i); k++) {
			snprintf(head, sizeof(head), "%s%s\t%u\t", prefix, parts[i].name, k);
			struct_text_write(out, head, parts[i].member,
					  (const char *)g + parts[i].offset +
						  k * parts[i].size);
		}
	write_scene(out, prefix, &g->scene);
	buf_addf(out, "%send\n", prefix);
}

/* ---- reading ---- */

/* Nothing is known but the policy. */
static int begin(struct guard *g)
{
	const struct policy *p = g->p;

	memset(g, 0, sizeof(*g));
	g->p = p;
	g->workers = p->workers < POLICY_WORKERS ? p->workers : POLICY_WORKERS;
	for (unsigned i = 0; i < g->workers; i++) {
		guard_bind(g, &g->worker[i], &p->worker[i]);
		/* What has no line is zero. */
		g->worker[i].idle_after_ns = 0;
		g->worker[i].idle_w = g->worker[i].reload_j = 0;
	}
	guard_rank(g);
	return 0;
}

static int read_part(struct guard *g, unsigned part, const char *rest)
{
	char *end;
	unsigned long at = strtoul(rest, &end, 10);

	if (*rest < '0' || *rest > '9' || *end != '\t' || at >= parts[part].places)
		return -GW_E_PARSE;
	return struct_text_read(parts[part].member,
				(char *)g + parts[part].offset + at * parts[part].size,
				end + 1);
}

/* Positions that a damaged file has past the end would be read there. */
static bool is_sound_worker(const struct guard *g, const struct guard_worker *w)
{
	return w->state < GUARD_STATES && w->dry < GUARD_DRIES && w->ended < GUARD_RESULTS &&
	       w->demand.kind < DEMAND_KINDS && w->order.verb <= ORDER_NOTIFY &&
	       w->hold <= HOLD_ACTIVE && w->roots <= GUARD_ROOTS &&
	       w->put_away_count <= GUARD_TARGETS && w->level < GUARD_LEVELS &&
	       w->ended_level < GUARD_LEVELS && w->where >= 0 &&
	       (!w->where || w->where < (int)g->gpus);
}

static bool is_sound(const struct guard *g)
{
	bool is = g->looked && g->gpus <= SCENE_GPUS && g->demand.lives <= SCENE_PROCESSES &&
		  g->rate.users <= RATE_USERS && !g->scene.reading;

	for (unsigned i = 0; is && i < g->gpus; i++)
		is = g->gpu[i].at < (int)g->scene.gpus;
	for (unsigned i = 0; is && i < GUARD_RESERVATIONS; i++)
		is = !g->reservation[i].id ||
		     (g->reservation[i].gpu >= 0 && g->reservation[i].gpu < (int)g->gpus);
	for (unsigned i = 0; is && i < g->workers; i++)
		is = is_sound_worker(g, &g->worker[i]);
	return is;
}

static int end(struct guard *g)
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

	if (!strcmp(line, "begin"))
		return begin(g);
	if (!strcmp(line, "end"))
		return end(g);
	if (!strncmp(line, "scene\t", 6))
		return scene_read(&g->scene, rest) < 0 ? -GW_E_PARSE : 0;
	if (!strncmp(line, "guard\t", 6))
		return struct_text_read(of_guard, g, rest);
	for (unsigned i = 0; i < PARTS; i++)
		if (strlen(parts[i].name) == n && !memcmp(line, parts[i].name, n))
			return read_part(g, i, rest);
	return -GW_E_PARSE;
}
