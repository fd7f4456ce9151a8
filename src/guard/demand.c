/* Finds the processes that need a GPU, by the table of GUARD-MACHINE.md (Demand). */
#include "demand.h"

#include "base/clock.h"
#include "base/number.h"

#define NEW_NS (10 * NS_PER_S) /* how long a contender counts as new or grown */
/* a program that never held more than this does not count for DEMAND_PRESSURE */
#define SMALL_BYTES (256 * MIB)
#define SURE_SCENES 3        /* a sure demand lasted this many scenes, and debounce_ns */
#define BUSY_SURE   NS_PER_S /* a demand by utilisation is sure after this time */

const char *demand_kind_name(unsigned k)
{
	static const char *const names[] = {
#define D(symbol, word, name) name,
#include "demand.def"
	};

	return k < DEMAND_KINDS ? names[k] : "?";
}

void demand_process_text(int64_t pid, const char *name, char *out, size_t size)
{
	char clean[SCENE_NAME_BYTES + 1];

	text_clean(clean, sizeof(clean), name);
	text_fit(out, size, "pid %lld%s%s", (long long)pid, *clean ? " " : "", clean);
}

uint64_t demand_headroom(const struct policy_knobs *k, uint64_t total_bytes)
{
	double share = k->headroom_ratio * (double)total_bytes;
	uint64_t part = share > 0 ? (uint64_t)share : 0;

	return part > k->headroom_bytes ? part : k->headroom_bytes;
}

static bool is_recent(uint64_t then_ns, uint64_t now_ns, uint64_t span_ns)
{
	return then_ns && now_ns - then_ns <= span_ns;
}

static bool exerts_pressure(const struct demand *d, const struct demand_life *l,
			    uint64_t now_ns)
{
	const struct demand_exe *e = demand_exe_find(d, l->exe);

	if (!is_recent(l->first_ns, now_ns, NEW_NS) && !is_recent(l->grown_ns, now_ns, NEW_NS))
		return false;
	/* A program that never held much in earlier runs is not expected to take more. */
	return !e || e->peak_bytes > SMALL_BYTES || l->peak_bytes > SMALL_BYTES;
}

static enum demand_kind kind_of(const struct demand *d, const struct policy_knobs *k,
				const struct scene_process *p, const struct verdict *v,
				const struct demand_life *l, bool tight, uint64_t now_ns)
{
	if (v->action == GUARD_CONTEND_NOW)
		return DEMAND_NOW;
	if (p->bytes_known && p->bytes >= k->min_vram_bytes)
		return DEMAND_MEMORY;
	if (l && is_recent(l->busy_ns, now_ns, k->util_ns) && l->busy_ratio >= k->util_ratio)
		return DEMAND_UTILISATION;
	if (tight && l && exerts_pressure(d, l, now_ns))
		return DEMAND_PRESSURE;
	return DEMAND_NONE;
}

/* Returns the bytes that the process will allocate in addition if it behaves like earlier
 * runs. */
static uint64_t expected_bytes(const struct demand *d, enum demand_kind kind,
			       const struct scene_process *p, const struct demand_life *l)
{
	const struct demand_exe *e = l ? demand_exe_find(d, l->exe) : NULL;

	if ((kind != DEMAND_MEMORY && kind != DEMAND_PRESSURE) || !e || !p->bytes_known)
		return UINT64_MAX;
	/* Two runs of the same work differ by less than a tenth in memory. A process that
	 * already holds more than that does other work, so the earlier peak predicts
	 * nothing. */
	if (p->bytes > e->peak_bytes + e->peak_bytes / 10)
		return UINT64_MAX;
	return e->peak_bytes > p->bytes ? e->peak_bytes - p->bytes : 0;
}

static void add_more(struct demand_case *c, uint64_t more)
{
	c->more_bytes = more == UINT64_MAX || c->more_bytes == UINT64_MAX
				? UINT64_MAX
				: c->more_bytes + more;
}

static void describe(struct demand_case *c, enum demand_kind kind, const struct scene *s,
		     const struct scene_process *p, const struct verdict *v,
		     const struct demand_life *l)
{
	const struct scene_gpu *g = &s->gpu[p->gpu];
	char process[48], held[32] = "unknown memory", busy[24] = "";

	demand_process_text(p->id.pid, p->name, process, sizeof(process));
	if (p->bytes_known)
		text_fit(held, sizeof(held), "%llu MiB", (unsigned long long)(p->bytes / MIB));
	if (l && l->busy_ns)
		text_fit(busy, sizeof(busy), " %.0f %%", 100 * l->busy_ratio);
	c->kind = kind;
	c->contender = (struct contender){ .pid = p->id.pid,
					   .bytes_known = p->bytes_known,
					   .bytes = p->bytes };
	text_clean(c->contender.name, sizeof(c->contender.name), p->name);
	c->uid = p->uid;
	text_fit(c->rule, sizeof(c->rule), "%s, %s", demand_kind_name(kind),
		 v->why ? v->why : "no rule");
	text_fit(c->evidence, sizeof(c->evidence), "%s %s%s on %.48s, free %llu MiB", process,
		 held, busy, g->uuid, (unsigned long long)(g->free_bytes / MIB));
}

static void raise_case(struct demand_case *c, enum demand_kind kind, const char *evidence,
		       const struct scene_game *game)
{
	c->more_bytes = UINT64_MAX;
	c->urgent = c->urgent || kind == DEMAND_GAME;
	if (c->kind >= kind)
		return;
	c->kind = kind;
	c->contender = (struct contender){ .pid = game->pid, .game = kind == DEMAND_GAME };
	text_clean(c->contender.name, sizeof(c->contender.name), game->name);
	c->uid = -1;
	text_fit(c->rule, sizeof(c->rule), "%s", demand_kind_name(kind));
	text_fit(c->evidence, sizeof(c->evidence), "%s", evidence);
}

/* Returns the used memory that no listed process holds; 0 if a process has unknown bytes. */
static uint64_t unattributed(const struct scene *s, unsigned gpu)
{
	uint64_t known = 0;

	for (unsigned i = 0; i < s->processes; i++) {
		if (s->process[i].gpu != gpu)
			continue;
		if (!s->process[i].bytes_known)
			return 0;
		known += s->process[i].bytes;
	}
	return s->gpu[gpu].used_bytes > known ? s->gpu[gpu].used_bytes - known : 0;
}

static void judge_gpu(const struct policy *p, const struct scene *s, unsigned gpu,
		      struct demand_case *c)
{
	char text[160], game[48] = "";

	if (s->game_clients) {
		if (s->game.pid)
			demand_process_text(s->game.pid, s->game.name, game, sizeof(game));
		text_fit(text, sizeof(text), "%u game%s registered%s%s", s->game_clients,
			 s->game_clients == 1 ? " is" : "s are", *game ? ": " : "", game);
		raise_case(c, DEMAND_GAME, text, &s->game);
	}
	if (p->by_unattributed && s->gpu[gpu].memory_known &&
	    unattributed(s, gpu) > p->unattributed_bytes) {
		text_fit(text, sizeof(text), "%llu MiB on %.48s belong to no visible process",
			 (unsigned long long)(unattributed(s, gpu) / MIB), s->gpu[gpu].uuid);
		raise_case(c, DEMAND_UNATTRIBUTED, text, &(struct scene_game){ .pid = 0 });
	}
}

static enum demand_kind judge_process(const struct demand *d, const struct policy *p,
				      const struct policy_knobs *k,
				      const struct scene_process *q, const struct verdict *v,
				      const struct demand_life *l, bool tight, uint64_t now_ns)
{
	enum demand_kind kind;

	if (v->class != CLASS_CONTENDER)
		return DEMAND_NONE;
	kind = kind_of(d, k, q, v, l, tight, now_ns);
	return kind == DEMAND_NONE && p->any ? DEMAND_ANY : kind;
}

static bool is_tight(const struct policy_knobs *k, const struct scene_gpu *g)
{
	return g->memory_known && g->free_bytes < demand_headroom(k, g->total_bytes);
}

enum demand_kind demand_of(const struct demand *d, const struct policy *p,
			   const struct policy_knobs *k, const struct scene *s,
			   const struct verdict *v, unsigned process, uint64_t *ret_most)
{
	const struct scene_process *q = &s->process[process];
	const struct scene_gpu *g = &s->gpu[q->gpu];
	const struct demand_life *l = demand_life_find(d, q, demand_hash(g->uuid));
	const struct demand_exe *e = l ? demand_exe_find(d, l->exe) : NULL;

	*ret_most = !e ? UINT64_MAX : e->peak_bytes > q->bytes ? e->peak_bytes : q->bytes;
	return judge_process(d, p, k, q, &v[process], l, is_tight(k, g), s->mono_ns);
}

void demand_judge(const struct demand *d, const struct policy *p, const struct policy_knobs *k,
		  const struct scene *s, const struct verdict *v, unsigned gpu,
		  struct demand_case *ret)
{
	const struct scene_gpu *g = &s->gpu[gpu];
	uint64_t id = demand_hash(g->uuid);
	bool tight = is_tight(k, g);

	*ret = (struct demand_case){ .uid = -1 };
	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *q = &s->process[i];
		const struct demand_life *l;
		enum demand_kind kind;

		if (q->gpu != gpu)
			continue;
		l = demand_life_find(d, q, id);
		kind = judge_process(d, p, k, q, &v[i], l, tight, s->mono_ns);
		if (kind == DEMAND_NONE)
			continue;
		/* With demand = "any" the worker must leave even if the process would fit next
		 * to it. */
		add_more(ret, p->any ? UINT64_MAX : expected_bytes(d, kind, q, l));
		ret->urgent = ret->urgent || kind == DEMAND_NOW ||
			      (kind != DEMAND_ANY && (q->type & GW_PROCESS_GRAPHICS));
		if (kind > ret->kind)
			describe(ret, kind, s, q, &v[i], l);
	}
	judge_gpu(p, s, gpu, ret);
}

bool demand_sure(const struct demand_case *c, const struct policy_knobs *k, uint64_t held_ns,
		 unsigned scenes)
{
	switch (c->kind) {
	case DEMAND_NONE: return false;
	case DEMAND_NOW: return true;
	case DEMAND_UTILISATION: return held_ns >= BUSY_SURE;
	default: return scenes >= SURE_SCENES && held_ns >= k->debounce_ns;
	}
}
