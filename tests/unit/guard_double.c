/* Stands for policy.c and classify.c in tests of the guard's decisions: the defaults of guard.md §8,
 * and classes by name alone.  "w3" is worker 3, "now..." a contender by contend-now. */
#include "guard/classify.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

void policy_init(struct policy *p)
{
	memset(p, 0, sizeof(*p));
	p->mode = GUARD_ENFORCE;
	p->unknown_contends = true;
	p->unattributed_bytes = 512 * MIB;
	p->throttle_c = 5;
	p->evict_c = 2;
	p->clear_c = 5;
	p->standard = (struct policy_knobs){ .debounce_ns = 300 * NS_PER_MS,
					     .quiet_ns = 30 * NS_PER_S,
					     .resident_ns = 60 * NS_PER_S,
					     .drain_ns = 10 * NS_PER_S,
					     .verify_ns = 5 * NS_PER_S,
					     .budget_ns = 30 * NS_PER_S,
					     .post_ns = 15 * NS_PER_S,
					     .headroom_bytes = 2048 * MIB,
					     .headroom_ratio = 0.1,
					     .min_vram_bytes = 512 * MIB,
					     .util_ratio = 0.1,
					     .util_ns = 3 * NS_PER_S,
					     .max_level = 2 };
}

uint64_t policy_ns(uint64_t own, uint64_t standard)
{
	return own == UINT64_MAX ? standard : own;
}

static bool in_span(const struct policy_span *s, unsigned day, unsigned minute)
{
	unsigned before = (day + 6) % 7;

	if (s->to_min > s->from_min)
		return (s->days >> day & 1) && minute >= s->from_min && minute < s->to_min;
	return ((s->days >> day & 1) && minute >= s->from_min) ||
	       ((s->days >> before & 1) && minute < s->to_min);
}

bool policy_in_schedule(const struct policy_worker *w, const struct tm *local)
{
	unsigned day = (unsigned)(local->tm_wday + 6) % 7;
	unsigned minute = (unsigned)(local->tm_hour * 60 + local->tm_min);

	for (unsigned i = 0; i < w->schedules; i++)
		if (in_span(&w->schedule[i], day, minute))
			return true;
	return false;
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

static enum guard_class class_of(const struct policy *p, const struct scene_process *q)
{
	if (q->orphan)
		return CLASS_ORPHAN;
	if (q->self)
		return CLASS_SELF;
	if (q->name[0] == 'w' && q->name[1] >= '0' && q->name[1] <= '9')
		return CLASS_WORKER;
	if (begins(q->name, "Xorg") || begins(q->name, "gnome-"))
		return CLASS_SYSTEM;
	if (begins(q->name, "ignored"))
		return CLASS_IGNORED;
	return p->unknown_contends ? CLASS_CONTENDER : CLASS_UNKNOWN;
}

void classify(const struct policy *p, const struct scene *s, struct verdict *ret)
{
	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *q = &s->process[i];
		struct verdict *v = &ret[i];

		*v = (struct verdict){ .class = class_of(p, q), .worker = -1, .rule = -1 };
		v->why = "by name";
		v->action = GUARD_WATCH;
		if (v->class == CLASS_WORKER)
			v->worker = atoi(q->name + 1);
		if (v->class == CLASS_CONTENDER)
			v->action = begins(q->name, "now") ? GUARD_CONTEND_NOW : GUARD_CONTEND;
	}
}
