/* look_process: rows of the drivers' lists become processes: who each is by /proc, which lines are one process, and
 * which are ours or a worker's. */
#include "scene_builder_parts.h"

#include "base/utf8.h"

#include <limits.h>
#include <math.h>

/* How far p is below pid; 0: it is that; FAR: it is not. */
#define FAR UINT_MAX

static unsigned generations(const struct scene_process *p, int64_t pid)
{
	if (p->pid == pid)
		return 0;
	for (unsigned i = 0; i < SCENE_ANCESTORS && p->ancestor[i]; i++)
		if (p->ancestor[i] == pid)
			return i + 1;
	return FAR;
}

/* Of a container's first process everybody is a child: that says nothing. */
static unsigned below_us(const struct scene_builder *l, const struct scene_process *p)
{
	return l->self > 1 ? generations(p, l->self) : FAR;
}

static bool is_ours(const struct scene_builder *l, const struct scene_process *p)
{
	return (l->cgroup[0] && proc_in_cgroup(p->cgroup, l->cgroup)) || below_us(l, p) != FAR;
}

static struct scene_process *add_process(struct scene_builder *l, const struct row *r,
					 const struct scene_process *is,
					 struct process_cache *who)
{
	struct scene *s = l->scene;
	struct scene_process *p = &s->process[s->processes];

	l->of[s->processes] = who;
	l->instance[s->processes++] = r->instance;
	*p = *is;
	p->gpu = r->gpu;
	p->type = r->type;
	p->bytes = r->bytes;
	p->bytes_known = r->bytes_known;
	p->sm_ratio = r->sm_ratio;
	return p;
}

/* Of whom nothing is known but what the driver says. */
static void add_nameless(struct scene_builder *l, const struct row *r, bool orphan)
{
	struct scene_process *p = add_process(
		l, r, &(const struct scene_process){ .pid = r->listed, .uid = -1 }, NULL);

	p->orphan = orphan;
	utf8_clean(p->name, sizeof(p->name), r->name);
}

/* Another line of the same process: a thread of it tells the same bytes, an instance of the board
 * others. */
static bool joined(struct scene_builder *l, const struct row *r, int64_t pid)
{
	for (unsigned i = 0; l->threads && i < l->scene->processes; i++) {
		struct scene_process *p = &l->scene->process[i];

		if (p->pid != pid || p->gpu != r->gpu || p->orphan)
			continue;
		p->type |= r->type;
		p->bytes_known |= r->bytes_known;
		if (l->instance[i] != r->instance)
			p->bytes += r->bytes;
		else if (r->bytes > p->bytes)
			p->bytes = r->bytes;
		if (isnan(p->sm_ratio) || r->sm_ratio > p->sm_ratio)
			p->sm_ratio = r->sm_ratio;
		return true;
	}
	return false;
}

/* A process of the simulator's that never was in /proc. */
static bool is_simulated(const struct scene_builder *l, const struct row *r,
			 const struct process_cache *w)
{
	return l->scene->gpu[r->gpu].simulated && r->name[0] && !w->listed_start;
}

static void name_row(struct scene_builder *l, const struct row *r, bool foreign)
{
	struct process_cache *w;

	if (foreign) {
		add_nameless(l, r, true);
		return;
	}
	w = process_cache_find(l->who, r->listed, l->scene->mono_ns);
	if (!w) {
		l->left_out++;
		return;
	}
	if (w->state == PROCESS_FOUND) {
		l->threads |= w->is.pid != r->listed || r->instance >= 0;
		if (!joined(l, r, w->is.pid))
			add_process(l, r, &w->is, w);
	} else if (is_simulated(l, r, w) || w->state == PROCESS_ORPHAN) {
		add_nameless(l, r, !is_simulated(l, r, w));
	} else {
		l->vanished++;
	}
}

static unsigned below_root(const struct scene *s, const struct scene_process *p,
			   unsigned worker)
{
	unsigned best = FAR;

	for (unsigned i = 0; i < s->roots; i++) {
		unsigned n = scene_root_of(&s->root[i], worker) ? generations(p, s->root[i].pid)
								: FAR;

		best = n < best ? n : best;
	}
	return best;
}

/* What was below a worker's root stays the worker's when its parents die: then it is a root itself.  A root is one by
 * what it is: when it becomes another program, it is nobody's. */
static int worker_of(struct scene_builder *l, const struct scene_process *p,
		     struct process_cache *w)
{
	struct scene *s = l->scene;
	int worker = classifier_worker(l->classifier, s, p);

	if (worker >= 0) {
		unsigned n = below_root(s, p, (unsigned)worker);

		if (w && n != 0 && n != FAR)
			w->worker = worker;
		return worker;
	}
	if (!w || w->worker < 0 || s->roots == SCENE_ROOTS)
		return -1;
	s->root[s->roots++] = (struct scene_root){ .worker = (unsigned)w->worker,
						   .how = ROOT_KEPT,
						   .pid = p->pid,
						   .start_ticks = p->start_ticks };
	return w->worker;
}

/* A worker that we started is a worker, and we below a worker are we: the nearer counts. */
static bool is_self(const struct scene_builder *l, const struct scene_process *p, int worker)
{
	unsigned root;

	if (p->orphan)
		return false;
	if (l->self && p->pid == l->self)
		return worker < 0 || !policy_kind_is(l->policy->worker[worker].kind, KIND_SELF);
	if (worker < 0)
		return is_ours(l, p);
	root = below_root(l->scene, p, (unsigned)worker);
	return below_us(l, p) < (root == FAR ? 0 : root);
}

void scene_builder_mark_ours(struct scene_builder *l)
{
	struct scene *s = l->scene;

	for (unsigned i = 0; i < s->processes; i++) {
		struct scene_process *p = &s->process[i];

		p->self = is_self(l, p, worker_of(l, p, l->of[i]));
	}
}

void scene_builder_name_rows(struct scene_builder *l)
{
	l->threads = false;
	for (unsigned i = 0; i < l->rows; i++)
		name_row(l, &l->row[i], l->foreign);
	l->scene->left_out = l->left_out;
	l->all_left_out += l->left_out;
}
