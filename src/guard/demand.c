/* Which processes need a GPU, by the table of GUARD-MACHINE.md (Demand), and the small history that this takes. */
#include "demand.h"

#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB         (UINT64_C(1) << 20)
#define NEW_NS      (10 * NS_PER_S) /* how long a contender counts as new or grown */
#define GROWN_BYTES (16 * MIB)      /* less is the noise of a desktop program */
#define SMALL_BYTES (256 * MIB)     /* a program that never held more exerts no pressure */
#define SURE_LOOKS  3
#define BUSY_SURE   NS_PER_S

const char *demand_kind_name(unsigned k)
{
	static const char *const name[DEMAND_KINDS] = {
		[DEMAND_NONE] = "none",
		[DEMAND_ANY] = "any process",
		[DEMAND_UNATTRIBUTED] = "unattributed memory",
		[DEMAND_PRESSURE] = "memory pressure",
		[DEMAND_UTILISATION] = "utilisation",
		[DEMAND_MEMORY] = "memory",
		[DEMAND_GAME] = "GameMode",
		[DEMAND_NOW] = "contend-now",
	};

	return k < DEMAND_KINDS ? name[k] : "?";
}

void demand_name(char out[16], const char *name)
{
	size_t n = 0;

	for (; n < 15 && name[n]; n++)
		out[n] = name[n] > ' ' && name[n] < 127 ? name[n] : '?';
	out[n] = '\0';
}

uint64_t demand_headroom(const struct policy_knobs *k, uint64_t total_bytes)
{
	double share = k->headroom_ratio * (double)total_bytes;
	uint64_t part = share > 0 ? (uint64_t)share : 0;

	return part > k->headroom_bytes ? part : k->headroom_bytes;
}

/* FNV-1a, continued from h. */
static uint64_t hash_on(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
	return h;
}

static uint64_t hash(const char *text)
{
	return hash_on(UINT64_C(14695981039346656037), text);
}

/* ---- programs ---- */

/* An interpreter is identified by what it runs. */
static bool is_interpreter(const char *file)
{
	static const char *const names[] = { "python", "pypy", "node",   "nodejs", "deno",
					     "bun",    "java", "dotnet", "mono",   "sh",
					     "bash",   "dash", "zsh",    "fish",   "perl",
					     "ruby",   "php",  "lua",    "luajit", "julia",
					     "R",      "wine", "proton" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = strlen(names[i]);
		char next = strncmp(file, names[i], n) == 0 ? file[n] : 'x';

		/* python3.11, wine64-preloader */
		if (!((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z')))
			return true;
	}
	return false;
}

/* Which program it is; 0: unknown. */
static uint64_t program_of(const struct scene_process *p)
{
	const char *path = p->exe[0] ? p->exe : p->name, *slash = strrchr(path, '/');
	uint64_t id = hash(path);

	if (!is_interpreter(slash ? slash + 1 : path))
		return id;
	return p->command[0] ? hash_on(id, p->command) : 0;
}

/* ---- history ---- */

static struct demand_life *life_find(const struct demand *d, const struct scene_process *p,
				     uint64_t gpu)
{
	for (unsigned i = 0; i < d->lives; i++) {
		const struct demand_life *l = &d->life[i];

		if (l->pid == p->pid && l->start_ticks == p->start_ticks && l->gpu == gpu)
			return (struct demand_life *)l;
	}
	return NULL;
}

static const struct demand_exe *known_exe(const struct demand *d, uint64_t exe)
{
	for (unsigned i = 0; exe && i < DEMAND_EXES; i++)
		if (d->exe[i].used_ns && d->exe[i].exe == exe)
			return &d->exe[i];
	return NULL;
}

/* Keeps the peak of a process that ended; the oldest program is dropped. */
static void life_end(struct demand *d, const struct demand_life *l, uint64_t now_ns)
{
	struct demand_exe *e = (struct demand_exe *)known_exe(d, l->exe);

	if (!l->exe)
		return;
	if (!e) {
		e = &d->exe[0];
		for (unsigned i = 1; i < DEMAND_EXES; i++)
			if (d->exe[i].used_ns < e->used_ns)
				e = &d->exe[i];
		*e = (struct demand_exe){ .exe = l->exe };
	}
	if (l->peak_bytes > e->peak_bytes)
		e->peak_bytes = l->peak_bytes;
	e->used_ns = now_ns;
}

static struct demand_life *life_begin(struct demand *d, const struct scene_process *p,
				      uint64_t gpu, uint64_t now_ns)
{
	if (d->lives == SCENE_PROCESSES)
		return NULL;

	struct demand_life *l = &d->life[d->lives++];

	*l = (struct demand_life){ .pid = p->pid,
				   .start_ticks = p->start_ticks,
				   .gpu = gpu,
				   .exe = program_of(p),
				   .first_ns = d->begun ? now_ns : 0,
				   .mark_bytes = p->bytes_known ? p->bytes : 0 };
	return l;
}

static void life_update(struct demand_life *l, const struct scene_process *p, uint64_t now_ns)
{
	l->seen = true;
	if (!isnan(p->sm_ratio)) {
		l->busy_ratio = p->sm_ratio;
		l->busy_ns = now_ns;
	}
	if (!p->bytes_known)
		return;
	if (p->bytes >= l->mark_bytes + GROWN_BYTES) {
		l->grown_ns = now_ns;
		l->mark_bytes = p->bytes;
	}
	if (p->bytes > l->peak_bytes)
		l->peak_bytes = p->bytes;
}

/* Was its GPU read this time?  A process that a failed reading does not show has not ended. */
static bool was_read(const struct scene *s, uint64_t gpu)
{
	for (unsigned i = 0; i < s->gpus; i++)
		if (hash(s->gpu[i].uuid) == gpu)
			return (s->gpu[i].health == SCENE_OK ||
				s->gpu[i].health == SCENE_ASLEEP) &&
			       !s->gpu[i].errors;
	return false;
}

/* Updates known processes; with `fresh` new ones, too. */
static void update_lives(struct demand *d, const struct scene *s, const struct verdict *v,
			 bool fresh)
{
	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *p = &s->process[i];

		if (v[i].class != CLASS_CONTENDER || p->gpu >= s->gpus)
			continue;

		uint64_t gpu = hash(s->gpu[p->gpu].uuid);
		struct demand_life *l = life_find(d, p, gpu);

		if (!l && fresh)
			l = life_begin(d, p, gpu, s->mono_ns);
		if (l && !l->seen)
			life_update(l, p, s->mono_ns);
	}
}

void demand_observe(struct demand *d, const struct scene *s, const struct verdict *v)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < d->lives; i++)
		d->life[i].seen = false;
	update_lives(d, s, v, false);
	/* Processes that ended make room for new ones. */
	for (unsigned i = 0; i < d->lives; i++) {
		if (d->life[i].seen || !was_read(s, d->life[i].gpu))
			d->life[kept++] = d->life[i];
		else
			life_end(d, &d->life[i], s->mono_ns);
	}
	d->lives = kept;
	update_lives(d, s, v, true);
	d->begun = true;
}

/* ---- demand ---- */

static bool is_recent(uint64_t then_ns, uint64_t now_ns, uint64_t span_ns)
{
	return then_ns && now_ns - then_ns <= span_ns;
}

static bool exerts_pressure(const struct demand *d, const struct demand_life *l,
			    uint64_t now_ns)
{
	const struct demand_exe *e = known_exe(d, l->exe);

	if (!is_recent(l->first_ns, now_ns, NEW_NS) && !is_recent(l->grown_ns, now_ns, NEW_NS))
		return false;
	/* A program is not expected to take more than it took when it was observed from its start to its end. */
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

/* What it will still allocate if it does as before. */
static uint64_t expected_bytes(const struct demand *d, enum demand_kind kind,
			       const struct scene_process *p, const struct demand_life *l)
{
	const struct demand_exe *e = l ? known_exe(d, l->exe) : NULL;

	if ((kind != DEMAND_MEMORY && kind != DEMAND_PRESSURE) || !e || !p->bytes_known)
		return UINT64_MAX;
	/* Runs of one program differ a little; one that takes much more does something else. */
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
	char name[16], held[32] = "unknown memory", busy[24] = "";

	demand_name(name, p->name);
	if (p->bytes_known)
		text_fit(held, sizeof(held), "%llu MiB", (unsigned long long)(p->bytes / MIB));
	if (l && l->busy_ns)
		text_fit(busy, sizeof(busy), " %.0f %%", 100 * l->busy_ratio);
	c->kind = kind;
	c->pid = p->pid;
	c->uid = p->uid;
	text_fit(c->rule, sizeof(c->rule), "%s, %s", demand_kind_name(kind),
		 v->why ? v->why : "no rule");
	text_fit(c->evidence, sizeof(c->evidence), "pid %lld %s %s%s on %.48s, free %llu MiB",
		 (long long)p->pid, name, held, busy, g->uuid,
		 (unsigned long long)(g->free_bytes / MIB));
}

static void raise_case(struct demand_case *c, enum demand_kind kind, const char *evidence)
{
	c->more_bytes = UINT64_MAX;
	c->urgent = c->urgent || kind == DEMAND_GAME;
	if (c->kind >= kind)
		return;
	c->kind = kind;
	c->pid = 0;
	c->uid = -1;
	text_fit(c->rule, sizeof(c->rule), "%s", demand_kind_name(kind));
	text_fit(c->evidence, sizeof(c->evidence), "%s", evidence);
}

/* Memory in use that no listed process holds; 0 if the bytes of one are unknown. */
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
	char text[160];

	if (s->game_clients) {
		text_fit(text, sizeof(text), "%u game%s registered", s->game_clients,
			 s->game_clients == 1 ? " is" : "s are");
		raise_case(c, DEMAND_GAME, text);
	}
	if (p->by_unattributed && s->gpu[gpu].memory_known &&
	    unattributed(s, gpu) > p->unattributed_bytes) {
		text_fit(text, sizeof(text), "%llu MiB on %.48s belong to no visible process",
			 (unsigned long long)(unattributed(s, gpu) / MIB), s->gpu[gpu].uuid);
		raise_case(c, DEMAND_UNATTRIBUTED, text);
	}
}

/* With demand = "any" every process counts that is neither the service's, a worker's nor ignored by a rule. */
static bool counts_as_any(const struct policy *p, const struct verdict *v)
{
	return p->any && v->class != CLASS_SELF && v->class != CLASS_WORKER &&
	       v->class != CLASS_IGNORED && v->class != CLASS_ORPHAN;
}

static enum demand_kind judge_process(const struct demand *d, const struct policy *p,
				      const struct policy_knobs *k,
				      const struct scene_process *q, const struct verdict *v,
				      const struct demand_life *l, bool tight, uint64_t now_ns)
{
	enum demand_kind kind = DEMAND_NONE;

	if (v->class == CLASS_CONTENDER)
		kind = kind_of(d, k, q, v, l, tight, now_ns);
	return kind == DEMAND_NONE && counts_as_any(p, v) ? DEMAND_ANY : kind;
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
	const struct demand_life *l = life_find(d, q, hash(g->uuid));
	const struct demand_exe *e = l ? known_exe(d, l->exe) : NULL;

	*ret_most = !e ? UINT64_MAX : e->peak_bytes > q->bytes ? e->peak_bytes : q->bytes;
	return judge_process(d, p, k, q, &v[process], l, is_tight(k, g), s->mono_ns);
}

void demand_judge(const struct demand *d, const struct policy *p, const struct policy_knobs *k,
		  const struct scene *s, const struct verdict *v, unsigned gpu,
		  struct demand_case *ret)
{
	const struct scene_gpu *g = &s->gpu[gpu];
	uint64_t id = hash(g->uuid);
	bool tight = is_tight(k, g);

	*ret = (struct demand_case){ .uid = -1 };
	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *q = &s->process[i];
		const struct demand_life *l;
		enum demand_kind kind;

		if (q->gpu != gpu ||
		    (v[i].class != CLASS_CONTENDER && !counts_as_any(p, &v[i])))
			continue;
		l = life_find(d, q, id);
		kind = judge_process(d, p, k, q, &v[i], l, tight, s->mono_ns);
		if (kind == DEMAND_NONE)
			continue;
		/* With demand = "any" it does not matter whether both fit. */
		add_more(ret,
			 counts_as_any(p, &v[i]) ? UINT64_MAX : expected_bytes(d, kind, q, l));
		ret->urgent = ret->urgent || kind == DEMAND_NOW ||
			      (kind != DEMAND_ANY && (q->type & GW_PROCESS_GRAPHICS));
		if (kind > ret->kind)
			describe(ret, kind, s, q, &v[i], l);
	}
	judge_gpu(p, s, gpu, ret);
}

bool demand_sure(const struct demand_case *c, const struct policy_knobs *k, uint64_t held_ns,
		 unsigned samples)
{
	switch (c->kind) {
	case DEMAND_NONE: return false;
	case DEMAND_NOW: return true;
	case DEMAND_UTILISATION: return held_ns >= BUSY_SURE;
	default: return samples >= SURE_LOOKS && held_ns >= k->debounce_ns;
	}
}
