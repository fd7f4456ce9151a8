/* Names the processes and GPUs of an order. No other process is touched when the order is
 * carried out. */
#include "guard_internal.h"

#include <string.h>

/* Adds a process and returns its entry. Returns NULL if the process is already there, if the
 * order is full, or if the start time is unknown: then the process could be mistaken for
 * another. */
static struct guard_target *add_target(struct guard_order *o, struct proc_id id)
{
	if (!id.start_ticks)
		return NULL;
	for (unsigned i = 0; i < o->targets; i++)
		if (proc_id_equal(o->target[i].id, id))
			return NULL;
	if (o->targets == GUARD_TARGETS) {
		o->more = true;
		return NULL;
	}
	o->target[o->targets].id = id;
	return &o->target[o->targets++];
}

static bool is_below(const struct scene_process *p, int64_t pid)
{
	for (unsigned i = 0; i < SCENE_ANCESTORS && p->ancestor[i]; i++)
		if (p->ancestor[i] == pid)
			return true;
	return false;
}

/* Notes whether the process belongs to the worker by its own match or by an ancestor. */
static void mark_target(const struct scene *s, unsigned worker, const struct scene_process *p,
			struct guard_target *t)
{
	t->itself = true;
	for (unsigned i = 0; i < s->roots; i++) {
		const struct scene_root *r = &s->root[i];

		if (!scene_root_of(r, worker))
			continue;
		if (is_below(p, r->id.pid) || (scene_is(p, r) && r->how == ROOT_KEPT))
			t->itself = false;
		if (scene_is(p, r))
			t->print = r->print;
	}
}

static void name_roots(const struct scene *s, struct guard_order *o)
{
	for (unsigned i = 0; i < s->roots && o->roots < GUARD_ROOTS; i++) {
		if (!scene_root_of(&s->root[i], o->worker))
			continue;
		o->root[o->roots].id = s->root[i].id;
		o->root[o->roots++].print = s->root[i].print;
	}
}

static void name_processes(const struct guard *g, const struct guard_worker *w,
			   struct guard_order *o)
{
	if (o->verb == ORDER_RESUME && w->intent.put_away_count) {
		for (unsigned i = 0; i < w->intent.put_away_count; i++)
			(void)add_target(o, w->intent.put_away[i]);
		return;
	}
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];
		struct guard_target *t = NULL;

		if (g->verdict[i].class == CLASS_WORKER &&
		    g->verdict[i].worker == (int)o->worker && !p->orphan)
			t = add_target(o, p->id);
		if (t)
			mark_target(&g->scene, o->worker, p, t);
	}
}

static void name_gpus(const struct guard *g, const struct guard_worker *w,
		      struct guard_order *o)
{
	size_t len = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		if (!has(w->observed.home, i) ||
		    len + strlen(g->gpu[i].uuid) + 2 > sizeof(o->gpus))
			continue;
		text_fit(o->gpus + len, sizeof(o->gpus) - len, "%s%s", len ? "," : "",
			 g->gpu[i].uuid);
		len += strlen(o->gpus + len);
	}
}

void guard_name_targets(const struct guard *g, const struct guard_worker *w,
			struct guard_order *o)
{
	name_gpus(g, w, o);
	name_roots(&g->scene, o);
	name_processes(g, w, o);
}
