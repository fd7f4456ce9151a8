#include "what_if.h"

#include "guard_input.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* start of every run; always the same, so that decisions can be repeated */
#define BEGIN_NS (3600 * NS_PER_S)

struct what_if {
	struct policy policy;
	struct guard *guard;
	struct scene before, scene;
	unsigned scenes;
	uint64_t span_ns;
};

int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret)
{
	struct what_if *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -GW_E_NOMEM;
	t->policy = *p; /* its strings are borrowed */
	t->policy.mode = GUARD_DRY_RUN;
	t->before = *before;
	t->scene = *s;
	t->before.mono_ns = t->scene.mono_ns = BEGIN_NS;
	err = guard_new(&t->policy, NULL, 0, &t->guard);
	if (err) {
		free(t);
		return err;
	}
	*ret = t;
	return 0;
}

void what_if_free(struct what_if *t)
{
	if (t)
		guard_free(t->guard);
	free(t);
}

static void what_if_observe(struct what_if *t, struct scene *s, uint64_t mono_ns,
			    uint64_t begin_ns,
			    void (*each)(void *arg, const struct guard_decision *d), void *arg)
{
	struct guard_decision d;
	struct guard_record record;
	struct guard_order order;

	s->wall_ns += mono_ns - s->mono_ns;
	s->mono_ns = mono_ns;
	guard_observe(t->guard, s);
	while (guard_next_decision(t->guard, &d)) {
		d.mono_ns -= begin_ns;
		if (each)
			each(arg, &d);
	}
	while (guard_next_record(t->guard, &record))
		;
	while (guard_next_order(t->guard, &order))
		;
}

bool what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d),
		 bool (*more)(void *arg), void *arg)
{
	uint64_t begin = BEGIN_NS, now = begin;

	/* The scene before is observed one second earlier, so that no timer still runs. */
	what_if_observe(t, &t->before, begin - NS_PER_S, begin, NULL, NULL);
	for (; now - begin <= span_ns && t->scenes < WHAT_IF_SCENES; t->scenes++) {
		uint64_t next;

		if (more && !more(arg))
			return false;
		t->span_ns = now - begin;
		what_if_observe(t, &t->scene, now, begin, each, arg);
		next = guard_next_scene_ns(t->guard, now);
		now = next == UINT64_MAX ? now + NS_PER_S : next;
	}
	return true;
}

const struct guard *what_if_guard(const struct what_if *t)
{
	return t->guard;
}

unsigned what_if_scenes(const struct what_if *t)
{
	return t->scenes;
}

uint64_t what_if_span_ns(const struct what_if *t)
{
	return t->span_ns;
}

static void free_memory(struct scene *s, const struct scene_process *p)
{
	struct scene_gpu *g = &s->gpu[p->gpu];
	uint64_t bytes = p->bytes_known && p->bytes <= g->used_bytes ? p->bytes : 0;

	g->used_bytes -= bytes;
	g->free_bytes += bytes;
}

void what_if_before(const struct policy *p, const struct scene *s, struct scene *out)
{
	struct verdict *v = calloc(SCENE_PROCESSES, sizeof(*v));
	unsigned kept = 0;

	*out = *s;
	if (v)
		classify(p, s, v);
	for (unsigned i = 0; v && i < s->processes; i++) {
		if (v[i].class == CLASS_WORKER || v[i].class == CLASS_SELF ||
		    v[i].class == CLASS_SYSTEM || v[i].class == CLASS_IGNORED)
			out->process[kept++] = s->process[i];
		else if (s->process[i].gpu < s->gpus)
			free_memory(out, &s->process[i]);
	}
	if (v)
		out->processes = kept;
	free(v);
}
