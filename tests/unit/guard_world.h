/* A simulated world for tests of the guard, in stepped time: GPUs with memory, workers that
 * hold memory and carry out orders or fail, guests that come and go at given times, and a disk
 * for records. */
#ifndef GUARD_WORLD_H
#define GUARD_WORLD_H

#include "guard/guard_input.h"
#include "guard/guard_query.h"

#include "base/clock.h"

#include "test.h"

#include <limits.h>
#include <math.h>

#define S      NS_PER_S
#define MS     NS_PER_MS
#define MINUTE (60 * S)
#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)

#define WORLD_GPUS    4
#define WORLD_WORKERS 4
#define WORLD_GUESTS  8
#define WORLD_START   (1000 * S)
/* A Wednesday at noon UTC: 2026-01-07. */
#define WORLD_WALL (UINT64_C(1767787200) * S)

/* How a worker carries out orders. */
struct world_conduct {
	unsigned fails;      /* this many evictions fail                      */
	bool refuses;        /* it refuses drains and evictions, also when they are repeated */
	unsigned lies;       /* this many evictions report success, but free nothing */
	unsigned fail_level; /* orders up to this level fail                  */
	bool silent, busy;   /* silent: never answers an order; busy: has requests in flight */
	bool wont_return;    /* resumes fail                                  */
	bool returns_empty;  /* resumes report success, but load nothing      */
	bool deaf;           /* it does not answer an order to resume         */
	bool lists;          /* it lists its models as loaded after a resume  */
	uint64_t returns;    /* bytes that the worker holds after a resume; 0: as in `load` */
};

struct world_worker {
	bool alive;
	bool unfound;  /* it runs, but is not found */
	bool unlisted; /* its process is on the GPU, but not yet among the roots */
	int64_t pid;
	uint64_t start_ticks;
	uint64_t load[WORLD_GPUS]; /* memory that it holds when it runs */
	bool resident;
	uint64_t residue; /* memory that stays on its first GPU after an eviction */
	bool unknown;     /* the size of its memory is unknown */
	struct world_conduct acts;
	unsigned verbs[ORDER_VERBS], levels[8];
	bool closed, has_order;
	bool asleep;       /* it reported an eviction as done, and was not resumed since */
	bool reports_load; /* its utilisation is known when it is read */
	double works;
};

struct world_guest {
	const char *name;
	unsigned gpu;
	uint64_t bytes, from_ns, until_ns; /* until_ns 0: no end */
	uint64_t on_ns, off_ns;            /* alternates on and off; 0: always on */
	unsigned type;
	double sm_ratio;
	bool unknown, orphan;
	int64_t uid; /* 0: root */
};

struct world {
	struct policy p;
	struct guard *g;
	struct scene s;
	uint64_t now;
	int utc_offset_s;
	int64_t wall_step_ns; /* how far the wall clock was set */
	bool adaptive;        /* steps follow guard_next_scene_ns() */
	uint64_t step_ns;
	struct {
		bool on_battery;
		bool no_memory,
			/* no_memory, no_lists: the driver no longer reports memory or process
			 * lists */
			no_lists;
		unsigned games;
		uint64_t host_free; /* 0: enough */
	} host;
	unsigned gpus;
	uint64_t total[WORLD_GPUS];
	enum scene_health health[WORLD_GPUS];
	unsigned errors[WORLD_GPUS];
	bool simulated, gone[WORLD_GPUS];
	bool display[WORLD_GPUS];
	/* Memory that is allocated on GPU 0 after the GPU's memory was read and before the
	 * process lists are read. */
	uint64_t missed_bytes;
	struct world_worker w[WORLD_WORKERS];
	struct world_guest guest[WORLD_GUESTS];
	unsigned guests;
	struct guard_outcome outcome[WORLD_WORKERS];
	unsigned outcomes;
	struct {
		struct guard_record disk[WORLD_WORKERS];
		unsigned on_disk, writes;
		unsigned cut_at;  /* the machine dies at this write; 0: never */
		bool cut_written; /* true: after the write; false: before it */
		bool dead;
		/* called when the order of a worker is fetched; NULL: nothing */
		void (*fetched)(const struct world *o, unsigned worker);
	} journal;
	struct {
		struct guard_decision *said;
		size_t says, room;
	} log;
	unsigned orders;
};

static inline void world_init(struct world *o, unsigned gpus, unsigned workers)
{
	static const char *const name[] = { "w0", "w1", "w2", "w3" };

	memset(o, 0, sizeof(*o));
	policy_init(&o->p);
	o->p.mode = GUARD_ENFORCE;
	o->p.unknown_contends = true;
	o->p.restore_on_stop = false;
	o->p.rules = 2;
	o->p.rule[0] =
		(struct policy_rule){ { .name = "now*", .uid = -1 }, GUARD_CONTEND_NOW, "now" };
	o->p.rule[1] = (struct policy_rule){ { .name = "ignored*", .uid = -1 },
					     GUARD_IGNORE,
					     "ignored" };
	o->now = WORLD_START;
	o->step_ns = 100 * MS;
	o->gpus = gpus;
	for (unsigned i = 0; i < WORLD_GPUS; i++)
		o->total[i] = 12 * GIB;
	o->p.workers = workers;
	for (unsigned i = 0; i < workers; i++) {
		struct policy_worker *w = &o->p.worker[i];

		policy_worker_init(w);
		w->name = name[i];
		w->kind = WORKER_OLLAMA;
		w->knobs.max_level = UINT_MAX; /* use the value of [guard.defaults] */
		o->w[i] = (struct world_worker){
			.alive = true, .resident = true, .pid = 100 + i, .start_ticks = 7
		};
		o->w[i].load[0] = 8 * GIB;
	}
}

static inline void world_begin(struct world *o)
{
	assert_int_equal(guard_new(&o->p, o->journal.on_disk ? o->journal.disk : NULL,
				   o->journal.on_disk, &o->g),
			 0);
}

static inline void world_done(struct world *o)
{
	guard_free(o->g);
	free(o->log.said);
}

static inline struct world_guest *world_guest(struct world *o, const char *name, unsigned gpu,
					      uint64_t bytes, uint64_t from_ns,
					      uint64_t until_ns)
{
	struct world_guest *t = &o->guest[o->guests++];

	assert_true(o->guests <= WORLD_GUESTS);
	*t = (struct world_guest){ .name = name,
				   .gpu = gpu,
				   .bytes = bytes,
				   .from_ns = WORLD_START + from_ns,
				   .until_ns = until_ns ? WORLD_START + until_ns : UINT64_MAX,
				   .type = GW_PROCESS_COMPUTE,
				   .sm_ratio = NAN };
	return t;
}

static inline void world_process(struct world *o, const char *name, int64_t pid, uint64_t start,
				 unsigned gpu, uint64_t bytes, const struct world_guest *t)
{
	struct scene_process *p = &o->s.process[o->s.processes++];

	memset(p, 0, sizeof(*p));
	p->id.pid = pid;
	p->id.start_ticks = start;
	p->gpu = gpu;
	p->bytes = bytes;
	p->bytes_known = !t || !t->unknown;
	p->type = t ? t->type : GW_PROCESS_COMPUTE;
	p->sm_ratio = t ? t->sm_ratio : (double)NAN;
	p->orphan = t && t->orphan;
	p->uid = t ? t->uid : 0;
	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->exe, sizeof(p->exe), "/usr/bin/%s", name);
	o->s.gpu[gpu].used_bytes += bytes;
}

static inline void world_see_workers(struct world *o)
{
	for (unsigned i = 0; i < o->p.workers; i++) {
		struct world_worker *w = &o->w[i];

		if (!w->alive)
			continue;
		if (!w->unlisted)
			o->s.root[o->s.roots++] =
				(struct scene_root){ .worker = i,
						     .how = w->unfound ? ROOT_FORMER
								       : ROOT_FOUND,
						     .id.pid = w->pid,
						     .id.start_ticks = w->start_ticks };
		for (unsigned k = 0; k < o->gpus; k++) {
			uint64_t bytes = w->resident ? w->load[k] : k == 0 ? w->residue : 0;

			if (!bytes || o->health[k] == SCENE_LOST || o->gone[k] || o->errors[k])
				continue;
			world_process(o, o->p.worker[i].name, w->pid, w->start_ticks, k, bytes,
				      NULL);
			o->s.process[o->s.processes - 1].bytes_known = !w->unknown;
			if (w->reports_load && guard_wants_utilisation(o->g))
				o->s.process[o->s.processes - 1].sm_ratio = w->works;
		}
	}
}

static inline void world_see_guests(struct world *o)
{
	for (unsigned i = 0; i < o->guests; i++) {
		const struct world_guest *t = &o->guest[i];
		uint64_t age = o->now - t->from_ns, cycle = t->on_ns + t->off_ns, turn = 0;

		if (!t->name || o->now < t->from_ns || o->now >= t->until_ns)
			continue;
		if (cycle && age % cycle >= t->on_ns)
			continue;
		if (cycle)
			turn = age / cycle;
		if (o->health[t->gpu] != SCENE_LOST && !o->gone[t->gpu] && !o->errors[t->gpu])
			world_process(o, t->name, (int64_t)(1000 + 1000 * i + turn), 50 + turn,
				      t->gpu, t->bytes, t);
	}
}

static inline void world_scene(struct world *o)
{
	struct scene *s = &o->s;

	s->mono_ns = o->now;
	s->wall_ns = WORLD_WALL + (o->now - WORLD_START) + (uint64_t)o->wall_step_ns;
	s->utc_offset_s = o->utc_offset_s;
	s->on_battery = o->host.on_battery;
	s->host_free_bytes = o->host.host_free ? o->host.host_free : 16 * GIB;
	s->gpus = s->processes = s->roots = 0;
	s->game_clients = o->host.games;
	for (unsigned i = 0; i < o->gpus; i++) {
		struct scene_gpu *u = &s->gpu[s->gpus];

		if (o->gone[i])
			continue;
		s->gpus++;
		memset(u, 0, sizeof(*u));
		snprintf(u->uuid, sizeof(u->uuid), "GPU-%u", i);
		snprintf(u->pci, sizeof(u->pci), "0000:%02x:00.0", i);
		u->index = i;
		u->cuda = (int)i;
		u->health = o->health[i];
		u->errors = o->errors[i];
		u->simulated = o->simulated;
		u->display = o->display[i];
		u->total_bytes = o->total[i];
		u->memory_known = u->health == SCENE_OK && !u->errors && !o->host.no_memory;
		u->hidden = o->host.no_lists;
		u->margin_c = 40;
		u->temperature_c = 47;
	}
	world_see_workers(o);
	world_see_guests(o);
	if (s->gpus)
		s->gpu[0].used_bytes -= o->missed_bytes;
	for (unsigned i = 0; i < s->gpus; i++)
		s->gpu[i].free_bytes = s->gpu[i].used_bytes < s->gpu[i].total_bytes
					       ? s->gpu[i].total_bytes - s->gpu[i].used_bytes
					       : 0;
}

static inline bool world_evict(struct world_worker *w, const struct guard_order *d)
{
	w->levels[d->level]++;
	if (d->level <= w->acts.fail_level || (w->acts.refuses && d->level < LEVEL_STOP))
		return false;
	if (w->acts.fails) {
		w->acts.fails -= w->acts.fails != UINT_MAX;
		return false;
	}
	w->asleep = true;
	if (w->acts.lies) {
		w->acts.lies -= w->acts.lies != UINT_MAX;
		return true;
	}
	w->resident = false;
	if (d->level >= 4)
		w->alive = false;
	return true;
}

static inline bool world_resume(struct world_worker *w)
{
	if (w->acts.wont_return)
		return false;
	if (!w->alive) { /* the worker starts again as another process */
		w->pid += 10;
		w->start_ticks++;
	}
	w->alive = true;
	w->asleep = false;
	w->resident = w->resident || !w->acts.returns_empty;
	if (w->acts.returns)
		w->load[0] = w->acts.returns;
	return true;
}

static inline void world_obey(struct world *o, const struct guard_order *d)
{
	struct world_worker *w = &o->w[d->worker];
	struct guard_outcome *r = &o->outcome[o->outcomes];
	bool ok = true;

	assert_false(w->has_order); /* one at a time */
	o->orders++;
	w->has_order = true;
	w->verbs[d->verb]++;
	*r = (struct guard_outcome){ .order = d->id };
	switch (d->verb) {
	case ORDER_CLOSE: w->closed = true; break;
	case ORDER_OPEN: w->closed = false; break;
	case ORDER_DRAIN: ok = !w->acts.refuses; break;
	case ORDER_EVICT: ok = world_evict(w, d); break;
	case ORDER_RESUME: ok = !w->acts.deaf && world_resume(w); break;
	default: break;
	}
	r->ending = d->verb == ORDER_RESUME && w->acts.deaf    ? ENDING_NO_ANSWER
		    : !ok && w->acts.refuses                   ? ENDING_REFUSED
		    : !ok                                      ? ENDING_FAILED
		    : d->verb == ORDER_DRAIN && w->acts.busy   ? ENDING_IN_FLIGHT
		    : d->verb == ORDER_RESUME && w->acts.lists ? ENDING_LISTED
							       : ENDING_DONE;
	if (!ok)
		snprintf(r->message, sizeof(r->message), "HTTP 500");
	if (!w->acts.silent)
		o->outcomes++;
}

static inline void world_write(struct world *o, const struct guard_record *r)
{
	unsigned i = 0;

	if (++o->journal.writes == o->journal.cut_at && !o->journal.cut_written) {
		o->journal.dead = true;
		return;
	}
	while (i < o->journal.on_disk && strcmp(o->journal.disk[i].worker, r->worker))
		i++;
	o->journal.disk[i] = *r;
	o->journal.on_disk = i < o->journal.on_disk ? o->journal.on_disk : i + 1;
	o->journal.dead = o->journal.dead || o->journal.writes == o->journal.cut_at;
}

static inline void world_fetch(struct world *o)
{
	struct guard_record r;
	struct guard_order d;
	struct guard_decision said;

	while (!o->journal.dead && guard_next_record(o->g, &r))
		world_write(o, &r);
	while (!o->journal.dead && guard_next_order(o->g, &d)) {
		if (o->journal.fetched)
			o->journal.fetched(o, d.worker);
		world_obey(o, &d);
	}
	while (guard_next_decision(o->g, &said)) {
		if (o->log.says == o->log.room) {
			o->log.room = o->log.room ? 2 * o->log.room : 256;
			o->log.said = realloc(o->log.said, o->log.room * sizeof(said));
			assert_non_null(o->log.said);
		}
		o->log.said[o->log.says++] = said;
	}
}

/* The guard is killed and starts again; the machine and its workers continue. */
static inline void world_restart(struct world *o)
{
	guard_free(o->g);
	o->outcomes = 0;
	for (unsigned i = 0; i < o->p.workers; i++)
		o->w[i].has_order = false;
	o->journal.dead = false;
	o->journal.cut_at = 0;
	world_begin(o);
}

static inline void world_step(struct world *o)
{
	struct guard_outcome done[WORLD_WORKERS];
	unsigned n = o->outcomes;

	memcpy(done, o->outcome, sizeof(done));
	o->outcomes = 0;
	for (unsigned i = 0; i < o->p.workers; i++)
		o->w[i].has_order = o->w[i].has_order && o->w[i].acts.silent;
	for (unsigned i = 0; i < n; i++)
		guard_outcome(o->g, &done[i], o->now);
	world_scene(o);
	guard_observe(o->g, &o->s);
	world_fetch(o);
	if (o->journal.dead)
		world_restart(o);
	o->now = o->adaptive ? guard_next_scene_ns(o->g, o->now) : o->now + o->step_ns;
}

static inline void world_run(struct world *o, uint64_t span_ns)
{
	uint64_t end = o->now + span_ns;

	while (o->now < end)
		world_step(o);
}

static inline void world_until(struct world *o, uint64_t ns)
{
	while (o->now < WORLD_START + ns)
		world_step(o);
}

static inline struct guard_status world_status(const struct world *o, unsigned worker)
{
	struct guard_status s;

	assert_int_equal(guard_status(o->g, worker, &s), 0);
	return s;
}

static inline enum guard_state world_state(const struct world *o, unsigned worker)
{
	return world_status(o, worker).state;
}

/* Returns how often a decision was made. NULL and GUARD_STATES match any value. */
static inline unsigned world_decided(const struct world *o, unsigned worker,
				     enum guard_state from, enum guard_state to,
				     const char *rule)
{
	unsigned n = 0;

	for (size_t i = 0; i < o->log.says; i++) {
		const struct guard_decision *d = &o->log.said[i];

		n += d->worker == worker && (from == GUARD_STATES || d->from == from) &&
		     (to == GUARD_STATES || d->to == to) &&
		     (!rule || !strncmp(d->rule, rule, strlen(rule)));
	}
	return n;
}

static inline const struct guard_decision *world_last(const struct world *o, const char *rule)
{
	for (size_t i = o->log.says; i-- > 0;)
		if (!strncmp(o->log.said[i].rule, rule, strlen(rule)))
			return &o->log.said[i];
	return NULL;
}

static inline int world_ask(struct world *o, int worker, enum guard_request what,
			    uint64_t ttl_ns)
{
	char message[200];
	int r = guard_request(o->g, worker, what, ttl_ns, o->now, message, sizeof(message));

	world_fetch(o);
	return r;
}

static inline void world_print(const struct world *o)
{
	for (size_t i = 0; i < o->log.says; i++)
		print_message("%8.1f w%u %s -> %s mask %x: %s: %s\n",
			      (double)(o->log.said[i].mono_ns - WORLD_START) / 1e9,
			      o->log.said[i].worker, guard_state_name(o->log.said[i].from),
			      guard_state_name(o->log.said[i].to), o->log.said[i].mask,
			      o->log.said[i].rule, o->log.said[i].evidence);
}

/* Defines a test with a world o. `begin` makes the world and `end` removes it. */
#define WORLD_TEST(name, label, begin, end)                                           \
	static void name(struct world *o);                                            \
	static void name##_run(void **state)                                          \
	{                                                                             \
		struct world o;                                                       \
		begin;                                                                \
		name(&o);                                                             \
		end;                                                                  \
	}                                                                             \
	__attribute__((constructor)) static void name##_add(void)                     \
	{                                                                             \
		test_add(__LINE__,                                                    \
			 (struct CMUnitTest){ label, name##_run, NULL, NULL, NULL }); \
	}                                                                             \
	static void name(struct world *o)

#endif
