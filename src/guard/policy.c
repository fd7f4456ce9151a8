/* This file has the kinds of workers, the defaults of a policy, and schedules. It copies and
 * compares policies with the lists of members from which policy.h makes the structs. */
#include "policy.h"

#include "idle.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

const char *const guard_modes[] = { "observe", "dry-run", "enforce", NULL };
const char *const guard_actions[] = { "ignore", "watch", "contend", "contend-now", NULL };

static const struct {
	const char *name, *url;
	unsigned level, stop_s, traits;
} kinds[WORKER_KINDS] = {
#define K(symbol, name, url, level, stop_s, traits, help) { #name, url, level, stop_s, traits },
#include "kind.def"
};

const char policy_kind_choices[] =
#define K(symbol, name, url, level, stop_s, traits, help) "|" #name
#define I(symbol, name, url, level, stop_s, traits, help)
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

uint64_t policy_kind_stop_ns(unsigned kind)
{
	return kind < WORKER_KINDS ? kinds[kind].stop_s * NS_PER_S : 0;
}

bool policy_kind_is(unsigned kind, enum policy_trait traits)
{
	return kind < WORKER_KINDS && (kinds[kind].traits & traits);
}

void policy_init(struct policy *p)
{
	*p = (struct policy){
		.unattributed_bytes = 512 * MIB,
		.user_evictions = 12,
		.restore_on_stop = true,
		.standard = {
			.debounce_ns = NS_PER_S * 3 / 10,
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
			.max_level = LEVEL_UNLOAD,
		},
	};
}

enum type {
	PLAIN, /* an integer, a bool or an enum */
	REAL,
	TEXT,
	WHERE, /* a string that says where something is configured; it is not compared */
	ARGV,  /* a list of strings, ended by NULL */
	STRUCT,
	ARRAY, /* an array of structs or of strings */
};

struct member {
	enum type type;
	size_t offset, size; /* size of the member, or of one element of an array */
	/* for STRUCT and ARRAY: the members of the struct or element; size 0 ends the list */
	const struct member *of;
	size_t count; /* for ARRAY: offset of the number of elements */
};

/* clang-format off */
/* Returns the enum type of a member from its C type. A C type that is not listed does not
 * compile. */
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

void policy_worker_init(struct policy_worker *w)
{
	*w = (struct policy_worker){
		.match.uid = -1,
		.idle_w = ECONOMY_IDLE_W,
		.reload_j = NAN,
		.knobs.max_level = LEVEL_UNLOAD,
	};
	for (const struct member *m = knobs_members; m->size; m++) {
		void *at = (char *)&w->knobs + m->offset;

		if (m->type == REAL)
			*(double *)at = NAN;
		else if (m->size == sizeof(uint64_t))
			*(uint64_t *)at = UINT64_MAX;
	}
}

uint64_t policy_number(uint64_t own, uint64_t standard)
{
	return own == UINT64_MAX ? standard : own;
}

void policy_knobs_resolve(struct policy_knobs *k, const struct policy_knobs *standard)
{
	for (const struct member *m = knobs_members; m->size; m++) {
		void *at = (char *)k + m->offset;
		const void *from = (const char *)standard + m->offset;

		if (m->type == REAL
			    ? isnan(*(double *)at)
			    : m->size == sizeof(uint64_t) && *(uint64_t *)at == UINT64_MAX)
			memcpy(at, from, m->size);
	}
	if (k->max_level == UINT_MAX)
		k->max_level = standard->max_level;
}

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

static bool member_same(const struct member *m, const void *a, const void *b);

static bool same_array(const struct member *m, const void *a, const void *b)
{
	const char *x = (const char *)a + m->offset, *y = (const char *)b + m->offset;
	unsigned n = count_of(m, a);

	if (n != count_of(m, b))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (!member_same(m->of, x + i * m->size, y + i * m->size))
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
	case STRUCT: return member_same(m->of, a, b);
	case ARRAY: return same_array(m, of_a, of_b);
	}
	return false;
}

static bool member_same(const struct member *m, const void *a, const void *b)
{
	while (m->size && same_member(m, a, b))
		m++;
	return m->size == 0;
}

int policy_find_worker(const struct policy *p, const char *name)
{
	for (unsigned i = 0; i < p->workers; i++)
		if (strcmp(p->worker[i].name, name) == 0)
			return (int)i;
	return -1;
}

bool policy_match_same(const struct policy_match *a, const struct policy_match *b)
{
	return member_same(match_members, a, b);
}

bool policy_same(const struct policy *a, const struct policy *b)
{
	return member_same(policy_members, a, b);
}

struct chunk {
	struct chunk *next;
	char text[];
};

static void *allocate(struct policy *p, size_t n)
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
	char *copy = allocate(p, n + 1);

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
	copy = allocate(p, (n + 1) * sizeof(*copy));
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

#define ALL_DAYS 0x7fU

static const char *const days[7] = { "monday", "tuesday",  "wednesday", "thursday",
				     "friday", "saturday", "sunday" };

/* A schedule that is being read. p: the text that is not read yet. message: for an error. */
struct reading {
	const char *p;
	char *message;
	size_t size;
};

static bool refuse(struct reading *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static bool refuse(struct reading *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->message, r->size, fmt, ap);
	va_end(ap);
	return false;
}

static void skip_blanks(struct reading *r)
{
	while (*r->p == ' ' || *r->p == '\t')
		r->p++;
}

static bool read_char(struct reading *r, char c)
{
	skip_blanks(r);
	if (*r->p != c)
		return false;
	r->p++;
	skip_blanks(r);
	return true;
}

static size_t word_length(const char *p)
{
	size_t n = 0;

	while (isalpha((unsigned char)p[n]))
		n++;
	return n;
}

/* Reads "Fri" or "Friday". */
static bool read_day(struct reading *r, unsigned *ret)
{
	size_t n = word_length(r->p);

	for (unsigned i = 0; i < 7; i++)
		if (strncasecmp(r->p, days[i], n) == 0 && (n == 3 || n == strlen(days[i]))) {
			*ret = i;
			r->p += n;
			return true;
		}
	if (n == 0)
		return refuse(r, "a day is missing before \"%.20s\"", r->p);
	return refuse(r,
		      "\"%.*s\" is not a day: use Mon, Tue, Wed, Thu, Fri, Sat, Sun or daily",
		      (int)(n < 20 ? n : 20), r->p);
}

/* Reads "Fri" or "Fri-Mon". Monday follows Sunday. */
static bool read_day_range(struct reading *r, unsigned *set)
{
	unsigned from, to;

	if (!read_day(r, &from))
		return false;
	to = from;
	if (read_char(r, '-') && !read_day(r, &to))
		return false;
	for (unsigned d = from;; d = (d + 1) % 7) {
		*set |= 1U << d;
		if (d == to)
			return true;
	}
}

static bool read_days(struct reading *r, unsigned *ret)
{
	size_t n = word_length(r->p);

	*ret = 0;
	if (n == 0 && *r->p != ',') {
		*ret = ALL_DAYS;
		return true;
	}
	if (n == 5 && strncasecmp(r->p, "daily", n) == 0) {
		*ret = ALL_DAYS;
		r->p += n;
		return true;
	}
	do {
		if (!read_day_range(r, ret))
			return false;
	} while (read_char(r, ','));
	return true;
}

static bool read_digits(const char **p, unsigned least, unsigned most, unsigned *ret)
{
	unsigned n = 0;

	for (*ret = 0; n < most && isdigit((unsigned char)**p); n++)
		*ret = *ret * 10 + (unsigned)(*(*p)++ - '0');
	return n >= least && !isdigit((unsigned char)**p);
}

/* Reads "18:00". "24:00" is allowed only as the end of a span. */
static bool read_time(struct reading *r, bool end, unsigned *ret)
{
	const char *start = r->p;
	unsigned hour, min;

	if (!*start || *start == ';')
		return refuse(r, "the %s is missing: write for example \"Fri-Sun 18:00-23:00\"",
			      end ? "end" : "time");
	if (!read_digits(&r->p, 1, 2, &hour) || *r->p++ != ':' ||
	    !read_digits(&r->p, 2, 2, &min))
		return refuse(r, "\"%.*s\" is not a time: write HH:MM, such as 18:00-23:00",
			      (int)(strcspn(start, " -;") < 20 ? strcspn(start, " -;") : 20),
			      start);
	if (hour > 24 || min > 59 || (hour == 24 && (min > 0 || !end)))
		return refuse(r, "%.*s is out of range: a day has 00:00 to %s",
			      (int)(r->p - start), start, end ? "24:00" : "23:59");
	*ret = hour * 60 + min;
	return true;
}

static bool read_span(struct reading *r, struct policy_span *ret)
{
	skip_blanks(r);
	if (!read_days(r, &ret->days))
		return false;
	skip_blanks(r);
	if (!read_time(r, false, &ret->from_min))
		return false;
	if (!read_char(r, '-'))
		return refuse(r,
			      "the end is missing: write for example \"Fri-Sun 18:00-23:00\"");
	if (!read_time(r, true, &ret->to_min))
		return false;
	skip_blanks(r);
	if (*r->p && *r->p != ';')
		return refuse(
			r, "unexpected text after the span: \"%.20s\"; separate spans with ';'",
			r->p);
	if (ret->from_min == ret->to_min)
		return refuse(r, "the span is empty: it begins and ends at the same time; a "
				 "whole day is 00:00-24:00");
	return true;
}

int policy_spans_read(const char *text, struct policy_span *span, unsigned n, char *message,
		      size_t size)
{
	struct reading r = { text, message, size };
	unsigned first = n;

	do {
		struct policy_span s;

		if (!read_span(&r, &s))
			return -GW_E_PARSE;
		if (n == POLICY_SPANS) {
			refuse(&r, "a worker has at most %d spans", POLICY_SPANS);
			return -GW_E_PARSE;
		}
		span[n++] = s;
	} while (read_char(&r, ';'));
	return (int)(n - first);
}

bool policy_in_schedule(const struct policy_worker *w, const struct tm *local)
{
	const unsigned now = (unsigned)(local->tm_hour * 60 + local->tm_min);
	const unsigned today = (unsigned)(local->tm_wday + 6) % 7;
	const unsigned yesterday = (today + 6) % 7;

	for (unsigned i = 0; i < w->schedules; i++) {
		const struct policy_span *s = &w->schedule[i];
		bool begun = (s->days >> today & 1) && now >= s->from_min;

		if (s->to_min > s->from_min) {
			if (begun && now < s->to_min)
				return true;
		} else if (begun || ((s->days >> yesterday & 1) && now < s->to_min)) {
			return true;
		}
	}
	return false;
}

static bool in_schedule_at(const struct policy_worker *w, int64_t local_s)
{
	time_t t = (time_t)local_s;
	struct tm local;

	return gmtime_r(&t, &local) && policy_in_schedule(w, &local);
}

int64_t policy_schedule_left_s(const struct policy_worker *w, int64_t local_s)
{
	const int64_t day_s = 86400, midnight = local_s - local_s % day_s;
	int64_t first = INT64_MAX;

	for (unsigned i = 0; i < w->schedules; i++)
		for (int day = 0; day <= 7; day++) {
			int64_t end =
				midnight + day * day_s + 60 * (int64_t)w->schedule[i].to_min;

			if (end > local_s && end < first && !in_schedule_at(w, end))
				first = end;
		}
	return first == INT64_MAX ? -1 : first - local_s;
}

void policy_schedule_text(const struct policy_worker *w, int64_t local_s, char *out,
			  size_t size)
{
	static const char *const name[7] = { "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun" };
	char on[40] = "";

	out[0] = '\0';
	for (unsigned i = 0; i < w->schedules; i++) {
		const struct policy_span *s = &w->schedule[i];
		struct policy_worker one = { .schedule = { *s }, .schedules = 1 };

		if (!in_schedule_at(&one, local_s))
			continue;
		for (unsigned d = 0; s->days != ALL_DAYS && d < 7; d++)
			if (s->days >> d & 1)
				snprintf(on + strlen(on), sizeof(on) - strlen(on), "%s%s",
					 *on ? "," : "", name[d]);
		snprintf(out, size, "%s %02u:%02u-%02u:%02u", *on ? on : "daily",
			 s->from_min / 60, s->from_min % 60, s->to_min / 60, s->to_min % 60);
		return;
	}
}
