/* A policy as data: its defaults, its kinds of workers, its texts.
 *
 * Copying and comparing walk the lists that the structs are made of (policy.h). */
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

/* What a member is; WHERE is a text that says where something was said, ARRAY has structs or texts. */
enum type { PLAIN, REAL, TEXT, WHERE, ARGV, STRUCT, ARRAY };

struct member {
	enum type type;
	size_t offset, size;     /* of an array: of one of it */
	const struct member *of; /* of a struct and of an array: ends with size 0 */
	size_t count;            /* of an array: where it stands how many there are */
};

/* clang-format off */
/* By its C type, so that a text cannot pass for a number; one that is not here does not compile. */
#define TYPE(m)                            \
	_Generic((m),                      \
		const char *: TEXT,        \
		const char *const *: ARGV, \
		double: REAL,              \
		bool: PLAIN,               \
		int: PLAIN,                \
		unsigned: PLAIN,           \
		int64_t: PLAIN,            \
		uint64_t: PLAIN)
#define AT(name) offsetof(struct OF, name), sizeof(((struct OF *)0)->name)

#define V(type, name) { TYPE(((struct OF *)0)->name), AT(name), NULL, 0 },
#define W(name)       { WHERE, AT(name), NULL, 0 },
#define S(of, name)   { STRUCT, AT(name), of##_members, 0 },
#define A(type, of, name, most, count)                                  \
	{ ARRAY, offsetof(struct OF, name), sizeof(type), of##_members, \
	  offsetof(struct OF, count) },
#define END { PLAIN, 0, 0, NULL, 0 }
#define MEMBERS(LIST) { LIST(V, W, S, A) END }
/* clang-format on */

static const struct member text_members[] = { { TEXT, 0, sizeof(char *), NULL, 0 }, END };

#define OF policy_match
static const struct member match_members[] = MEMBERS(POLICY_MATCH);
#undef OF
#define OF policy_knobs
static const struct member knobs_members[] = MEMBERS(POLICY_KNOBS);
#undef OF
#define OF policy_span
static const struct member span_members[] = MEMBERS(POLICY_SPAN);
#undef OF
#define OF policy_rule
static const struct member rule_members[] = MEMBERS(POLICY_RULE);
#undef OF
#define OF policy_worker
static const struct member worker_members[] = MEMBERS(POLICY_WORKER);
#undef OF
#define OF policy
static const struct member policy_members[] = MEMBERS(POLICY_ALL);
#undef OF

static unsigned count_of(const struct member *m, const void *of)
{
	return *(const unsigned *)(const void *)((const char *)of + m->count);
}

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

static bool same(const struct member *m, const void *a, const void *b);

static bool same_array(const struct member *m, const void *a, const void *b)
{
	const char *x = (const char *)a + m->offset, *y = (const char *)b + m->offset;
	unsigned n = count_of(m, a);

	if (n != count_of(m, b))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (!same(m->of, x + i * m->size, y + i * m->size))
			return false;
	return true;
}

static bool same_member(const struct member *m, const void *of_a, const void *of_b)
{
	const void *a = (const char *)of_a + m->offset, *b = (const char *)of_b + m->offset;

	switch (m->type) {
	case PLAIN: return memcmp(a, b, m->size) == 0;
	case REAL: return same_real(*(const double *)a, *(const double *)b);
	case TEXT: return text_same(*(const char *const *)a, *(const char *const *)b);
	case WHERE: return true;
	case ARGV:
		return same_argv(*(const char *const *const *)a,
				 *(const char *const *const *)b);
	case STRUCT: return same(m->of, a, b);
	case ARRAY: return same_array(m, of_a, of_b);
	}
	return false;
}

static bool same(const struct member *m, const void *a, const void *b)
{
	while (m->size && same_member(m, a, b))
		m++;
	return m->size == 0;
}

bool policy_match_same(const struct policy_match *a, const struct policy_match *b)
{
	return same(match_members, a, b);
}

bool policy_same(const struct policy *a, const struct policy *b)
{
	return same(policy_members, a, b);
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
	if (!*text)
		return true;
	*text = policy_keep(p, *text, strlen(*text));
	return *text != NULL;
}

static bool own_argv(struct policy *p, const char *const **argv)
{
	const char **copy;
	size_t n = 0;

	if (!*argv)
		return true;
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

static bool own(struct policy *p, const struct member *m, void *of);

static bool own_array(struct policy *p, const struct member *m, void *of)
{
	for (unsigned i = 0; i < count_of(m, of); i++)
		if (!own(p, m->of, (char *)of + m->offset + i * m->size))
			return false;
	return true;
}

static bool own_member(struct policy *p, const struct member *m, void *of)
{
	void *at = (char *)of + m->offset;

	switch (m->type) {
	case PLAIN:
	case REAL: return true;
	case TEXT:
	case WHERE: return own_text(p, at);
	case ARGV: return own_argv(p, at);
	case STRUCT: return own(p, m->of, at);
	case ARRAY: return own_array(p, m, of);
	}
	return false;
}

static bool own(struct policy *p, const struct member *m, void *of)
{
	while (m->size && own_member(p, m, of))
		m++;
	return m->size == 0;
}

int policy_copy(struct policy *ret, const struct policy *p)
{
	*ret = *p;
	ret->memory = NULL;
	if (own(ret, policy_members, ret))
		return 0;
	policy_done(ret);
	return -GW_E_NOMEM;
}
