/* A policy as data: its defaults, its kinds of workers, its texts.
 *
 * Members are listed once, by what they are: copying and comparing walk the same lists, so that neither
 * can forget one that the other knows. */
#include "policy.h"

#include "economy.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SECOND   UINT64_C(1000000000)
#define MIB      (UINT64_C(1) << 20)

/* ---- kinds ---- */

static const struct {
	const char *name, *url;
	unsigned level, traits;
} kinds[WORKER_KINDS] = {
#define K(symbol, name, url, level, traits, help) { #name, url, level, traits },
#include "kind.def"
};

const char policy_kind_choices[] =
#define K(symbol, name, url, level, traits, help) "|" #name
#define I(symbol, name, url, level, traits, help)
#include "kind.def"
	;

const char *policy_kind_name(unsigned kind)
{
	return kind < WORKER_KINDS ? kinds[kind].name : NULL;
}

int policy_kind_find(const char *name)
{
	for (int i = 0; i < WORKER_KINDS; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return i;
	return -GW_E_NOENT;
}

const char *policy_kind_url(unsigned kind)
{
	return kind < WORKER_KINDS ? kinds[kind].url : NULL;
}

unsigned policy_kind_level(unsigned kind)
{
	return kind < WORKER_KINDS ? kinds[kind].level : 0;
}

bool policy_kind_is(unsigned kind, enum policy_trait trait)
{
	return kind < WORKER_KINDS && (kinds[kind].traits & trait);
}

/* ---- numbers ---- */

void policy_init(struct policy *p)
{
	*p = (struct policy){
		.unattributed_bytes = 512 * MIB,
		.user_evictions = 12,
		.restore_on_stop = true,
		.standard = {
			.debounce_ns = SECOND * 3 / 10,
			.quiet_ns = 30 * SECOND,
			.resident_ns = 60 * SECOND,
			.drain_ns = 10 * SECOND,
			.verify_ns = 5 * SECOND,
			.budget_ns = 30 * SECOND,
			.post_ns = 15 * SECOND,
			.headroom_bytes = 2048 * MIB,
			.headroom_ratio = 0.1,
			.min_vram_bytes = 512 * MIB,
			.util_ratio = 0.1,
			.util_ns = 3 * SECOND,
			.max_level = 2,
		},
	};
}

void policy_worker_init(struct policy_worker *w)
{
	*w = (struct policy_worker){
		.match.uid = -1,
		.idle_w = ECONOMY_IDLE_W,
		.reload_j = NAN,
		.knobs = {
			.debounce_ns = UINT64_MAX,
			.quiet_ns = UINT64_MAX,
			.resident_ns = UINT64_MAX,
			.drain_ns = UINT64_MAX,
			.verify_ns = UINT64_MAX,
			.budget_ns = UINT64_MAX,
			.post_ns = UINT64_MAX,
			.headroom_bytes = UINT64_MAX,
			.headroom_ratio = NAN,
			.min_vram_bytes = UINT64_MAX,
			.util_ratio = NAN,
			.util_ns = UINT64_MAX,
			.max_level = 2,
		},
	};
}

uint64_t policy_number(uint64_t own, uint64_t standard)
{
	return own == UINT64_MAX ? standard : own;
}

/* ---- members ---- */

/* What a member is; WHERE is a text that says where something was said. */
enum type { TEXT, WHERE, ARGV, INT, U64, REAL, BOOL };

struct member {
	enum type type;
	size_t offset;
};

#define M(type, of, member)                       \
	{                                         \
		type, offsetof(struct of, member) \
	}

static const struct member match_members[] = {
	M(TEXT, policy_match, name),      M(TEXT, policy_match, exe),
	M(TEXT, policy_match, command),   M(TEXT, policy_match, cgroup),
	M(TEXT, policy_match, container), M(TEXT, policy_match, pidfile),
	M(TEXT, policy_match, unit),      M(TEXT, policy_match, gpu),
	M(INT, policy_match, port),       M(U64, policy_match, uid),
	M(INT, policy_match, type),       M(U64, policy_match, vram_ge),
	M(REAL, policy_match, util_ge),
};

static const struct member knob_members[] = {
	M(U64, policy_knobs, debounce_ns),     M(U64, policy_knobs, quiet_ns),
	M(U64, policy_knobs, resident_ns),     M(U64, policy_knobs, drain_ns),
	M(U64, policy_knobs, verify_ns),       M(U64, policy_knobs, budget_ns),
	M(U64, policy_knobs, post_ns),         M(U64, policy_knobs, headroom_bytes),
	M(REAL, policy_knobs, headroom_ratio), M(U64, policy_knobs, min_vram_bytes),
	M(REAL, policy_knobs, util_ratio),     M(U64, policy_knobs, util_ns),
	M(INT, policy_knobs, max_level),       M(BOOL, policy_knobs, allow_kill),
};

static const struct member worker_members[] = {
	M(TEXT, policy_worker, name),         M(TEXT, policy_worker, url),
	M(TEXT, policy_worker, token_file),   M(TEXT, policy_worker, model),
	M(ARGV, policy_worker, evict_argv),   M(ARGV, policy_worker, resume_argv),
	M(INT, policy_worker, evict_signal),  M(INT, policy_worker, resume_signal),
	M(INT, policy_worker, gpu_count),     M(INT, policy_worker, kind),
	M(INT, policy_worker, priority),      M(INT, policy_worker, resume),
	M(BOOL, policy_worker, managed),      M(INT, policy_worker, level),
	M(INT, policy_worker, schedules),     M(BOOL, policy_worker, ac_only),
	M(BOOL, policy_worker, idle_economy), M(U64, policy_worker, idle_after_ns),
	M(REAL, policy_worker, idle_w),       M(REAL, policy_worker, reload_j),
	M(WHERE, policy_worker, text),
};

static const struct member rule_members[] = {
	M(INT, policy_rule, action),
	M(WHERE, policy_rule, text),
};

static const struct member span_members[] = {
	M(INT, policy_span, days),
	M(INT, policy_span, from_min),
	M(INT, policy_span, to_min),
};

static const struct member policy_members[] = {
	M(INT, policy, mode),
	M(BOOL, policy, any),
	M(BOOL, policy, unknown_contends),
	M(BOOL, policy, by_unattributed),
	M(U64, policy, unattributed_bytes),
	M(INT, policy, user_evictions),
	M(BOOL, policy, evict_when_blind),
	M(BOOL, policy, restore_on_stop),
	M(U64, policy, poll_ns),
	M(INT, policy, rules),
	M(INT, policy, workers),
	M(BOOL, policy, simulated_too),
	M(TEXT, policy, companion),
};

_Static_assert(sizeof(enum guard_mode) == sizeof(unsigned), "enums are compared as INT");

/* ---- comparing ---- */

static bool same_argv(const char *const *a, const char *const *b)
{
	if (!a || !b)
		return a == b;
	while (*a && text_same(*a, *b))
		a++, b++;
	return text_same(*a, *b);
}

static bool same_real(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b;
}

static bool same_member(enum type type, const void *a, const void *b)
{
	switch (type) {
	case TEXT: return text_same(*(const char *const *)a, *(const char *const *)b);
	case WHERE: return true;
	case ARGV:
		return same_argv(*(const char *const *const *)a,
				 *(const char *const *const *)b);
	case INT: return *(const unsigned *)a == *(const unsigned *)b;
	case U64: return *(const uint64_t *)a == *(const uint64_t *)b;
	case REAL: return same_real(*(const double *)a, *(const double *)b);
	case BOOL: return *(const bool *)a == *(const bool *)b;
	}
	return false;
}

static bool same(const struct member *m, size_t n, const void *a, const void *b)
{
	for (; n > 0; n--, m++)
		if (!same_member(m->type, (const char *)a + m->offset,
				 (const char *)b + m->offset))
			return false;
	return true;
}

#define SAME(members, a, b) same(members, COUNT(members), a, b)

static bool same_worker(const struct policy_worker *a, const struct policy_worker *b)
{
	if (!SAME(worker_members, a, b) || !SAME(match_members, &a->match, &b->match) ||
	    !SAME(knob_members, &a->knobs, &b->knobs))
		return false;
	for (unsigned i = 0; i < a->gpu_count; i++)
		if (!text_same(a->gpus[i], b->gpus[i]))
			return false;
	for (unsigned i = 0; i < a->schedules; i++)
		if (!SAME(span_members, &a->schedule[i], &b->schedule[i]))
			return false;
	return true;
}

bool policy_match_same(const struct policy_match *a, const struct policy_match *b)
{
	return SAME(match_members, a, b);
}

bool policy_same(const struct policy *a, const struct policy *b)
{
	if (!SAME(policy_members, a, b) || !SAME(knob_members, &a->standard, &b->standard))
		return false;
	for (unsigned i = 0; i < a->rules; i++)
		if (!SAME(rule_members, &a->rule[i], &b->rule[i]) ||
		    !SAME(match_members, &a->rule[i].match, &b->rule[i].match))
			return false;
	for (unsigned i = 0; i < a->workers; i++)
		if (!same_worker(&a->worker[i], &b->worker[i]))
			return false;
	return true;
}

/* ---- copying ---- */

struct chunk {
	struct chunk *next;
	char text[];
};

static void *take(struct policy *p, size_t n)
{
	struct chunk *c = malloc(sizeof(*c) + n);

	if (!c)
		return NULL;
	c->next = p->memory;
	p->memory = c;
	return c->text;
}

const char *policy_keep(struct policy *p, const char *text, size_t n)
{
	char *copy = take(p, n + 1);

	if (copy) {
		memcpy(copy, text, n);
		copy[n] = '\0';
	}
	return copy;
}

void policy_done(struct policy *p)
{
	struct chunk *c = p->memory;

	while (c) {
		struct chunk *next = c->next;

		free(c);
		c = next;
	}
	*p = (struct policy){ 0 };
}

static bool own_text(struct policy *p, const char **text)
{
	if (*text)
		*text = policy_keep(p, *text, strlen(*text));
	return *text != NULL;
}

static bool own_argv(struct policy *p, const char *const **argv)
{
	const char **copy;
	size_t n = 0;

	while ((*argv)[n])
		n++;
	copy = take(p, (n + 1) * sizeof(*copy));
	if (!copy)
		return false;
	memcpy(copy, *argv, (n + 1) * sizeof(*copy));
	*argv = copy;
	for (size_t i = 0; i < n; i++)
		if (!own_text(p, &copy[i]))
			return false;
	return true;
}

static bool own(struct policy *p, const struct member *m, size_t n, void *of)
{
	for (; n > 0; n--, m++) {
		void *at = (char *)of + m->offset;

		if (m->type == TEXT || m->type == WHERE) {
			if (*(const char **)at && !own_text(p, at))
				return false;
		} else if (m->type == ARGV) {
			if (*(const char *const **)at && !own_argv(p, at))
				return false;
		}
	}
	return true;
}

#define OWN(p, members, of) own(p, members, COUNT(members), of)

static bool own_all(struct policy *p)
{
	if (!OWN(p, policy_members, p))
		return false;
	for (unsigned i = 0; i < p->rules; i++)
		if (!OWN(p, rule_members, &p->rule[i]) ||
		    !OWN(p, match_members, &p->rule[i].match))
			return false;
	for (unsigned i = 0; i < p->workers; i++) {
		struct policy_worker *w = &p->worker[i];

		if (!OWN(p, worker_members, w) || !OWN(p, match_members, &w->match))
			return false;
		for (unsigned k = 0; k < w->gpu_count; k++)
			if (!own_text(p, &w->gpus[k]))
				return false;
	}
	return true;
}

int policy_copy(struct policy *ret, const struct policy *p)
{
	*ret = *p;
	ret->memory = NULL;
	if (own_all(ret))
		return 0;
	policy_done(ret);
	return -GW_E_NOMEM;
}
