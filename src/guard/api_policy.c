/* Converts the options of a program to a policy with one worker, and selects its GPUs in a scene. */
#include "api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_FLAGS                                                                       \
	(GW_GUARD_ANY | GW_GUARD_NAMED | GW_GUARD_UNATTRIBUTED | GW_GUARD_LEAVE_BLIND | \
	 GW_GUARD_HEALTH | GW_GUARD_SIMULATED)

#define POLL_LEAST_NS NS_PER_MS

int guard_api_options(const struct gw_guard_options *given, struct gw_guard_options *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (given) {
		if (given->size < sizeof(size_t) || given->size % sizeof(size_t))
			return -GW_E_ARG;
		memcpy(ret, given, given->size < sizeof(*ret) ? given->size : sizeof(*ret));
	}
	if (!ret->name)
		ret->name = "worker";
	if (!ret->name[0] || (unsigned)ret->mode > GW_GUARD_OBSERVE ||
	    ret->flags & ~(unsigned)ALL_FLAGS || (ret->poll_ns && ret->poll_ns < POLL_LEAST_NS))
		return -GW_E_ARG;
	return 0;
}

/* ---- options -> policy ---- */

static enum guard_mode mode_of(enum gw_guard_mode mode)
{
	return mode == GW_GUARD_ENFORCE   ? GUARD_ENFORCE
	       : mode == GW_GUARD_DRY_RUN ? GUARD_DRY_RUN
					  : GUARD_OBSERVE;
}

static void take_numbers(const struct gw_guard_options *o, struct policy_knobs *k)
{
	const struct {
		uint64_t given, *knob;
	} row[] = {
		{ o->min_vram_bytes, &k->min_vram_bytes },
		{ o->debounce_ns, &k->debounce_ns },
		{ o->quiet_ns, &k->quiet_ns },
		{ o->resident_ns, &k->resident_ns },
		{ o->headroom_bytes, &k->headroom_bytes },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (row[i].given)
			*row[i].knob = row[i].given;
	if (o->headroom_bytes)
		k->headroom_ratio = 0; /* exactly this much, also on a large board */
}

static int take_gpus(const char *const *gpus, struct policy_worker *w)
{
	for (; gpus && *gpus; gpus++) {
		if (!**gpus)
			return -GW_E_ARG;
		if (w->gpu_count == POLICY_GPUS)
			return -GW_E_SIZE;
		w->gpus[w->gpu_count++] = *gpus;
	}
	return 0;
}

static int take_names(struct policy *p, const char *const *names, enum guard_action action,
		      const char *word)
{
	char text[64];

	for (; names && *names; names++) {
		struct policy_rule *r = &p->rule[p->rules];

		if (!**names)
			return -GW_E_ARG;
		if (p->rules == POLICY_RULES)
			return -GW_E_SIZE;
		snprintf(text, sizeof(text), "%s %.40s", word, *names);
		*r = (struct policy_rule){ .match = { .name = *names, .uid = -1 },
					   .action = action,
					   .text = policy_keep(p, text, strlen(text)) };
		if (!r->text)
			return -GW_E_NOMEM;
		p->rules++;
	}
	return 0;
}

static int policy_fill(const struct gw_guard_options *o, struct policy *p)
{
	struct policy_worker *w = &p->worker[0];
	int err;

	p->mode = mode_of(o->mode);
	p->any = o->flags & GW_GUARD_ANY;
	p->unknown_contends = !(o->flags & GW_GUARD_NAMED);
	p->by_unattributed = o->flags & GW_GUARD_UNATTRIBUTED;
	p->evict_when_blind = o->flags & GW_GUARD_LEAVE_BLIND;
	p->simulated_too = o->flags & GW_GUARD_SIMULATED;
	p->restore_on_stop = false;
	p->user_evictions = 0; /* no limit per user: the program is the only worker */
	p->poll_ns = o->poll_ns;
	take_numbers(o, &p->standard);
	policy_worker_init(w);
	w->name = o->name;
	w->kind = WORKER_CALLBACK;
	w->resume = o->resume ? RESUME_RESTORE : RESUME_LAZY;
	w->text = "this program";
	p->workers = 1;
	err = take_gpus(o->gpus, w);
	if (!err)
		err = take_names(p, o->ignore, GUARD_IGNORE, "ignore");
	if (!err)
		err = take_names(p, o->contend_now, GUARD_CONTEND_NOW, "contend-now");
	if (!err)
		err = take_names(p, o->contend, GUARD_CONTEND, "contend");
	return err;
}

int guard_api_policy(const struct gw_guard_options *o, struct policy *ret)
{
	struct policy *p = malloc(sizeof(*p)); /* too large for a caller's small stack */
	int err = p ? 0 : -GW_E_NOMEM;

	if (err)
		return err;
	policy_init(p);
	err = policy_fill(o, p);
	if (!err)
		err = policy_copy(ret, p);
	policy_done(p);
	free(p);
	return err;
}

/* ---- its GPUs ---- */

static bool is_its(const struct policy_worker *w, const struct scene_gpu *u)
{
	for (unsigned i = 0; i < w->gpu_count; i++)
		if (scene_gpu_matches(u, w->gpus[i]))
			return true;
	return false;
}

void guard_api_narrow(struct scene *s, const struct policy_worker *w)
{
	unsigned place[SCENE_GPUS], gpus = 0, processes = 0;

	if (!w->gpu_count)
		return;
	for (unsigned i = 0; i < s->gpus; i++) {
		place[i] = is_its(w, &s->gpu[i]) ? gpus : SCENE_GPUS;
		if (place[i] == SCENE_GPUS)
			continue;
		if (gpus != i)
			s->gpu[gpus] = s->gpu[i];
		gpus++;
	}
	for (unsigned i = 0; i < s->processes; i++) {
		unsigned at =
			s->process[i].gpu < s->gpus ? place[s->process[i].gpu] : SCENE_GPUS;

		if (at == SCENE_GPUS)
			continue;
		if (processes != i)
			s->process[processes] = s->process[i];
		s->process[processes++].gpu = at;
	}
	s->gpus = gpus;
	s->processes = processes;
}
