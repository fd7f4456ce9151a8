#include "guard/policy.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define SECOND UINT64_C(1000000000)

TEST(defaults_are_as_specified)
{
	struct policy p;

	policy_init(&p);
	assert_int_equal(p.mode, GUARD_OBSERVE);
	assert_int_equal(p.standard.debounce_ns, 300000000);
	assert_int_equal(p.standard.quiet_ns, 30 * SECOND);
	assert_int_equal(p.standard.resident_ns, 60 * SECOND);
	assert_int_equal(p.standard.drain_ns, 10 * SECOND);
	assert_int_equal(p.standard.verify_ns, 5 * SECOND);
	assert_int_equal(p.standard.budget_ns, 30 * SECOND);
	assert_int_equal(p.standard.post_ns, 15 * SECOND);
	assert_int_equal(p.standard.headroom_bytes, UINT64_C(2) << 30);
	assert_true(p.standard.headroom_ratio == 0.1);
	assert_int_equal(p.standard.min_vram_bytes, 512 << 20);
	assert_true(p.standard.util_ratio == 0.1);
	assert_int_equal(p.standard.util_ns, 3 * SECOND);
	assert_int_equal(p.standard.max_level, 2);
	assert_false(p.standard.allow_kill);
	assert_int_equal(p.rules + p.workers, 0);
	assert_true(p.restore_on_stop);
	assert_false(p.any || p.evict_when_blind || p.simulated_too || p.unknown_contends);
	assert_int_equal(p.poll_ns, 0);
	policy_done(&p);
}

TEST(a_worker_has_its_own_value_or_the_standard_one)
{
	struct policy_worker w;

	policy_worker_init(&w);
	assert_int_equal(policy_number(w.knobs.quiet_ns, 30 * SECOND), 30 * SECOND);
	w.knobs.quiet_ns = 0;
	assert_int_equal(policy_number(w.knobs.quiet_ns, 30 * SECOND), 0);
	assert_int_equal(w.match.uid, -1);
	assert_true(isnan(w.knobs.headroom_ratio) && isnan(w.knobs.util_ratio));
}

TEST(every_kind_is_found_by_its_name)
{
	for (unsigned i = 0; i < WORKER_KINDS; i++) {
		assert_non_null(policy_kind_name(i));
		assert_int_equal(policy_kind_find(policy_kind_name(i)), i);
		assert_in_range(policy_kind_level(i), 2, 4);
	}
	assert_null(policy_kind_name(WORKER_KINDS));
	assert_null(policy_kind_url(WORKER_KINDS));
	assert_int_equal(policy_kind_find("olama"), -GW_E_NOENT);
	assert_string_equal(policy_kind_url(WORKER_OLLAMA), "http://127.0.0.1:11434");
	assert_null(policy_kind_url(WORKER_SYSTEMD));
}

#define ALL 0x7fU

static const struct {
	const char *text;
	unsigned days, from, to;
} good[] = {
	{ "Fri-Sun 18:00-23:00", 0x70, 18 * 60, 23 * 60 },
	{ "18:00-23:00", ALL, 18 * 60, 23 * 60 },
	{ "daily 22:30-06:00", ALL, 22 * 60 + 30, 6 * 60 },
	{ "DAILY 8:05-9:00", ALL, 8 * 60 + 5, 9 * 60 },
	{ "mon,wed,FRI 00:00-24:00", 0x15, 0, 24 * 60 },
	{ "Sat-Mon 01:00-02:00", 0x61, 60, 120 },
	{ "Mon-Tue, Saturday 1:00 - 2:00 ", 0x23, 60, 120 },
	{ "Sun 22:00-00:00", 0x40, 22 * 60, 0 },
	{ "Thu-Thu 01:00-02:00", 0x08, 60, 120 },
	{ "Thu-Wed 01:00-02:00", ALL, 60, 120 },
};

TEST(spans_are_read)
{
	struct policy_span s[POLICY_SPANS];
	char message[200] = "";

	for (unsigned i = 0; i < COUNT_OF(good); i++) {
		assert_int_equal(
			policy_spans_read(good[i].text, s, 0, message, sizeof(message)), 1);
		assert_int_equal(s[0].days, good[i].days);
		assert_int_equal(s[0].from_min, good[i].from);
		assert_int_equal(s[0].to_min, good[i].to);
	}
	assert_int_equal(policy_spans_read("Mon 1:00-2:00; Tue 3:00-4:00", s, 1, message,
					   sizeof(message)),
			 2);
	assert_int_equal(s[2].days, 2);
	assert_int_equal(s[2].from_min, 180);
}

static const struct {
	const char *text, *says;
} bad[] = {
	{ "", "the time is missing" },
	{ "Fri", "the time is missing" },
	{ "Fri 18:00", "the end is missing" },
	{ "Fri 18:00-", "the end is missing" },
	{ "24:30-25:00", "24:30 is out of range: a day has 00:00 to 23:59" },
	{ "24:00-25:00", "24:00 is out of range: a day has 00:00 to 23:59" },
	{ "18:00-24:30", "24:30 is out of range: a day has 00:00 to 24:00" },
	{ "18:60-19:00", "18:60 is out of range" },
	{ "18:00-18:00", "the span is empty" },
	{ "00:00-00:00", "the span is empty" },
	{ "Fry 18:00-19:00", "\"Fry\" is not a day: use Mon" },
	{ "Frid 18:00-19:00", "\"Frid\" is not a day" },
	{ "Mo-Fr 18:00-19:00", "\"Mo\" is not a day" },
	{ "Mon-Foo 18:00-19:00", "\"Foo\" is not a day" },
	{ "Mon-18:00-19:00", "a day is missing before \"18:00-19:00\"" },
	{ ",Mon 18:00-19:00", "a day is missing before" },
	{ "Mon, 18:00-19:00", "a day is missing before" },
	{ "18-19", "\"18\" is not a time" },
	{ "18:0-19:00", "\"18:0\" is not a time" },
	{ "018:00-19:00", "\"018:00\" is not a time" },
	{ "6pm-7pm", "\"6pm\" is not a time" },
	{ "18:00-19:00 Fri", "unexpected text after the span: \"Fri\"" },
	{ "18:00-19:00;", "the time is missing" },
	{ "1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;"
	  "1:00-2:00",
	  "a worker has at most 8 spans" },
};

TEST(an_impossible_span_is_refused_with_what_is_wrong)
{
	struct policy_span s[POLICY_SPANS];
	char message[200];

	for (unsigned i = 0; i < COUNT_OF(bad); i++) {
		message[0] = '\0';
		assert_int_equal(policy_spans_read(bad[i].text, s, 0, message, sizeof(message)),
				 -GW_E_PARSE);
		if (strncmp(message, bad[i].says, strlen(bad[i].says)) != 0)
			fail_msg("\"%s\" says: %s", bad[i].text, message);
	}
}

static struct policy_worker worker_out(const char *spans)
{
	struct policy_worker w;
	char message[200];
	int n;

	policy_worker_init(&w);
	n = policy_spans_read(spans, w.schedule, 0, message, sizeof(message));
	assert_true(n > 0);
	w.schedules = (unsigned)n;
	return w;
}

static struct tm berlin(time_t t)
{
	struct tm tm;

	/* The time zone rule written out, for machines without the time zone database. */
	bool known = access("/usr/share/zoneinfo/Europe/Berlin", R_OK) == 0;

	setenv("TZ", known ? "Europe/Berlin" : "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
	localtime_r(&t, &tm);
	return tm;
}

static time_t utc(int year, int mon, int day, int hour, int min)
{
	struct tm tm = { .tm_year = year - 1900,
			 .tm_mon = mon - 1,
			 .tm_mday = day,
			 .tm_hour = hour,
			 .tm_min = min };

	return timegm(&tm);
}

static bool out_at(const struct policy_worker *w, time_t t)
{
	struct tm tm = berlin(t);

	return policy_in_schedule(w, &tm);
}

/* Returns the minutes between two times in which the schedule applies, and how often it
 * began. */
static unsigned minutes_out(const struct policy_worker *w, time_t from, time_t to,
			    unsigned *ret_begun)
{
	unsigned n = 0;
	bool was = false;

	*ret_begun = 0;
	for (time_t t = from; t < to; t += 60) {
		bool is = out_at(w, t);

		n += is;
		*ret_begun += is && !was;
		was = is;
	}
	return n;
}

TEST(a_span_holds_from_its_first_minute_to_before_its_last)
{
	struct policy_worker w = worker_out("Fri-Sun 18:00-23:00");

	/* 2026-01-02 is a Friday; Berlin is an hour ahead. */
	assert_false(out_at(&w, utc(2026, 1, 2, 16, 59)));
	assert_true(out_at(&w, utc(2026, 1, 2, 17, 0)));
	assert_true(out_at(&w, utc(2026, 1, 2, 21, 59)));
	assert_false(out_at(&w, utc(2026, 1, 2, 22, 0)));
	assert_true(out_at(&w, utc(2026, 1, 4, 20, 0)));
	assert_false(out_at(&w, utc(2026, 1, 5, 20, 0)));
}

TEST(a_span_may_reach_into_the_next_day_and_week)
{
	struct policy_worker w = worker_out("Sun 22:00-06:00");
	unsigned begun;

	assert_true(out_at(&w, utc(2026, 1, 4, 21, 0)));
	assert_true(out_at(&w, utc(2026, 1, 5, 4, 59)));
	assert_false(out_at(&w, utc(2026, 1, 5, 5, 0)));
	assert_false(out_at(
		/* Sunday morning would belong to a span of Saturday */
		&w, utc(2026, 1, 4, 3, 0)));
	assert_int_equal(minutes_out(&w, utc(2026, 1, 1, 0, 0), utc(2026, 1, 15, 0, 0), &begun),
			 2 * 8 * 60);
	assert_int_equal(begun, 2);
}

TEST(a_whole_day_has_no_gap)
{
	struct policy_worker w = worker_out("Sat,Sun 00:00-24:00");
	unsigned begun;

	assert_int_equal(
		minutes_out(&w, utc(2026, 1, 5, 0, 0), utc(2026, 1, 12, 12, 0), &begun),
		2 * 24 * 60);
	assert_int_equal(begun, 1);
}

struct span {
	const char *span;
	unsigned minutes, begun;
};

static void check_spans(const struct span *rows, unsigned n, time_t from, time_t to)
{
	for (unsigned i = 0; i < n; i++) {
		struct policy_worker w = worker_out(rows[i].span);
		unsigned begun;

		assert_int_equal(minutes_out(&w, from, to, &begun), rows[i].minutes);
		assert_int_equal(begun, rows[i].begun);
	}
}

/* On 2026-03-29 the clock of Berlin goes from 01:59 to 03:00. */
TEST(a_skipped_hour_still_ends)
{
	static const struct span rows[] = {
		/* the end is skipped: the span ends at 03:00 */
		{ "Sun 01:00-02:30", 60, 1 },
		{ "Sun 02:15-02:45", 0, 0 }, /* the whole span is skipped */
		/* the beginning is skipped: the span begins at 03:00 */
		{ "Sun 02:30-04:00", 60, 1 },
		{ "Sat 22:00-06:00", 7 * 60, 1 }, /* the span is an hour shorter */
		{ "Sat 23:00-02:00", 3 * 60, 1 }, /* the span ends when the clock jumps */
		{ "Sun 00:00-24:00", 23 * 60, 1 },
	};

	check_spans(rows, COUNT_OF(rows), utc(2026, 3, 28, 11, 0), utc(2026, 3, 30, 11, 0));
}

/* On 2026-10-25 the clock of Berlin goes from 02:59 back to 02:00. */
TEST(an_hour_that_occurs_twice_counts_both_times)
{
	static const struct span rows[] = {
		{ "Sun 01:00-04:00", 4 * 60, 1 },
		{ "Sat 22:00-06:00", 9 * 60, 1 },
		{ "Sun 02:00-03:00", 2 * 60, 1 },
		{ "Sun 03:00-04:00", 60, 1 },
		{ "Sun 00:00-02:00", 2 * 60, 1 },
		{ "Sun 00:00-24:00", 25 * 60, 1 },
		/* An end within the repeated hour is reached twice. */
		{ "Sun 01:00-02:30", 2 * 60, 2 },
	};

	check_spans(rows, COUNT_OF(rows), utc(2026, 10, 24, 10, 0), utc(2026, 10, 26, 11, 0));
}

/* In every time zone the wall clock decides, and a repeated minute gives the same result. */
TEST(only_the_wall_clock_minute_matters)
{
	struct policy_worker w = worker_out("daily 01:30-02:45; Sun 23:00-01:00");
	int seen[7][24 * 60];

	memset(seen, -1, sizeof(seen));
	for (time_t t = utc(2026, 1, 1, 0, 0); t < utc(2027, 1, 1, 0, 0); t += 15 * 60) {
		struct tm tm = berlin(t);
		int *s = &seen[tm.tm_wday][tm.tm_hour * 60 + tm.tm_min];
		int is = policy_in_schedule(&w, &tm);

		assert_true(*s == -1 || *s == is);
		*s = is;
	}
	assert_int_equal(seen[0][90], 1);
	assert_int_equal(seen[0][165], 0);
	assert_int_equal(seen[1][45], 1);
	assert_int_equal(seen[2][45], 0);
}

static const char *const evict[] = { "/usr/bin/a", "b c", NULL };

static void fill(struct policy *p)
{
	struct policy_worker *w = &p->worker[0];

	policy_init(p);
	p->workers = 2;
	p->rules = 1;
	policy_worker_init(w);
	w->name = "one";
	w->url = "http://h:1";
	w->token_file = "/t";
	w->model = "m";
	w->text = "[[worker]] one (a:1)";
	w->evict_argv = evict;
	w->gpus[0] = "GPU-1";
	w->gpu_count = 1;
	w->match.unit = "u.service";
	policy_worker_init(&p->worker[1]);
	p->worker[1].name = "two";
	p->worker[1].schedule[0] = (struct policy_span){ 1, 2, 3 };
	p->worker[1].schedules = 1;
	p->rule[0] = (struct policy_rule){
		.match = { .name = "x",
			   .exe = "/y",
			   .command = "z",
			   .cgroup = "c",
			   .uid = -1,
			   .container = "d",
			   .gpu = "0",
			   .util_ge = 0.5 },
		.action = GUARD_CONTEND,
		.text = "rule 1 (a:9)",
	};
}

TEST(a_copy_owns_its_texts)
{
	struct policy p, copy, again;

	fill(&p);
	assert_int_equal(policy_copy(&copy, &p), 0);
	assert_true(policy_same(&p, &copy));
	assert_string_equal(copy.worker[0].evict_argv[1], "b c");
	assert_null(copy.worker[0].evict_argv[2]);
	assert_null(copy.worker[0].resume_argv);
	assert_true(copy.worker[0].evict_argv != evict);
	assert_true(copy.worker[0].evict_argv[0] != evict[0]);
	assert_true(copy.worker[0].gpus[0] != p.worker[0].gpus[0]);
	assert_true(copy.worker[0].text != p.worker[0].text);
	assert_true(copy.rule[0].match.command != p.rule[0].match.command);
	assert_string_equal(copy.rule[0].text, "rule 1 (a:9)");
	/* A copy outlives its original. */
	assert_int_equal(policy_copy(&again, &copy), 0);
	policy_done(&copy);
	assert_true(policy_same(&p, &again));
	policy_done(&again);
	policy_done(&p);
}

/* Changes one member of the policy; the cases cover every type. */
static void change(struct policy *p, unsigned which)
{
	switch (which) {
	case 0: p->mode = GUARD_ENFORCE; break;
	case 1: p->any = true; break;
	case 2: p->standard.quiet_ns++; break;
	case 3: p->standard.util_ratio = 0.2; break;
	case 4: p->worker[0].url = NULL; break;
	case 5: p->worker[0].evict_argv = NULL; break;
	case 6: p->worker[0].gpus[0] = "GPU-2"; break;
	case 7: p->worker[0].match.unit = "v.service"; break;
	case 8: p->worker[1].schedule[0].to_min = 4; break;
	case 9: p->worker[1].knobs.headroom_ratio = 0; break;
	case 10: p->rule[0].match.util_ge = 0; break;
	case 11: p->rule[0].action = GUARD_IGNORE; break;
	case 12: p->workers = 1; break;
	case 13: p->worker[1].match.uid = 0; break;
	case 14: p->worker[1].knobs.allow_kill = true; break;
	case 15: p->companion = "/s"; break;
	default: p->poll_ns = 5; break;
	}
}

TEST(policies_differ_by_content_and_not_by_place)
{
	struct policy a, b;

	fill(&a);
	for (unsigned i = 0; i < 17; i++) {
		fill(&b);
		assert_true(policy_same(&a, &b));
		change(&b, i);
		assert_false(policy_same(&a, &b));
		assert_false(policy_same(&b, &a));
	}
	fill(&b);
	b.worker[0].text = "elsewhere";
	b.rule[0].text = NULL;
	assert_true(policy_same(&a, &b));
}

/* A member of a policy with one rule and one worker. */
struct place {
	const char *name;
	size_t offset;
	enum { NUMBER, WORD, WORDS, WHERE } is;
};

/* clang-format off */
#define IS(m) \
	_Generic((m), const char *: WORD, const char *const *: WORDS, default: NUMBER)
#define V(type, m) { #m, BASE + offsetof(struct OF, m), IS(((struct OF *)0)->m) },
#define W(m)       { #m, BASE + offsetof(struct OF, m), WHERE },
#define S(of, m)
#define A(type, of, m, most, n) { #n, BASE + offsetof(struct OF, n), NUMBER },
static const struct place places[] = {
#define OF policy
#define BASE 0
	POLICY_ALL(V, W, S, A)
#undef OF
#undef BASE
#define OF policy_knobs
#define BASE offsetof(struct policy, standard)
	POLICY_KNOBS(V, W, S, A)
#undef BASE
#define BASE offsetof(struct policy, worker[0].knobs)
	POLICY_KNOBS(V, W, S, A)
#undef OF
#undef BASE
#define OF policy_rule
#define BASE offsetof(struct policy, rule)
	POLICY_RULE(V, W, S, A)
#undef OF
#undef BASE
#define OF policy_worker
#define BASE offsetof(struct policy, worker)
	POLICY_WORKER(V, W, S, A)
#undef OF
#undef BASE
#define OF policy_match
#define BASE offsetof(struct policy, worker[0].match)
	POLICY_MATCH(V, W, S, A)
#undef BASE
#define BASE offsetof(struct policy, rule[0].match)
	POLICY_MATCH(V, W, S, A)
#undef OF
#undef BASE
#define OF policy_span
#define BASE offsetof(struct policy, worker[0].schedule)
	POLICY_SPAN(V, W, S, A)
#undef OF
#undef BASE
	{ "gpus", offsetof(struct policy, worker[0].gpus), WORD },
};

/* Asserts that no struct has a member that its list does not have. */
#define LISTED(of, LIST) \
	_Static_assert(sizeof(struct of) == sizeof(struct { POLICY_FIELDS(LIST) }), #of)
LISTED(policy_match, POLICY_MATCH);
LISTED(policy_rule, POLICY_RULE);
LISTED(policy_span, POLICY_SPAN);
LISTED(policy_knobs, POLICY_KNOBS);
LISTED(policy_worker, POLICY_WORKER);
_Static_assert(sizeof(struct policy) == sizeof(struct { POLICY_FIELDS(POLICY_ALL) void *memory; }),
	       "policy");
/* clang-format on */

static const char *const words[] = { "one", "two", NULL }, *const others[] = { "one", NULL };

static void *at(struct policy *p, const struct place *m)
{
	return (char *)p + m->offset;
}

static void fill_all(struct policy *p)
{
	memset(p, 0, sizeof(*p));
	p->rules = p->workers = p->worker[0].gpu_count = p->worker[0].schedules = 1;
	for (unsigned i = 0; i < COUNT_OF(places); i++) {
		if (places[i].is == WORD || places[i].is == WHERE)
			*(const char **)at(p, &places[i]) = "word";
		else if (places[i].is == WORDS)
			*(const char *const **)at(p, &places[i]) = words;
	}
}

static void alter(struct policy *p, const struct place *m)
{
	if (m->is == WORD || m->is == WHERE)
		*(const char **)at(p, m) = "other";
	else if (m->is == WORDS)
		*(const char *const **)at(p, m) = others;
	else
		*(unsigned char *)at(p, m) ^= 1;
}

TEST(no_member_is_forgotten_when_policies_are_compared)
{
	static struct policy a, b;

	fill_all(&a);
	for (unsigned i = 0; i < COUNT_OF(places); i++) {
		fill_all(&b);
		assert_true(policy_same(&a, &b));
		alter(&b, &places[i]);
		if (policy_same(&a, &b) != (places[i].is == WHERE))
			fail_msg("%s, the %u. member", places[i].name, i);
	}
}

TEST(a_copy_borrows_no_text)
{
	static struct policy p, copy;

	fill_all(&p);
	assert_int_equal(policy_copy(&copy, &p), 0);
	for (unsigned i = 0; i < COUNT_OF(places); i++) {
		const char **was = at(&p, &places[i]), **is = at(&copy, &places[i]);

		if (places[i].is != NUMBER && *is == *was)
			fail_msg("%s, the %u. member", places[i].name, i);
	}
	assert_true(policy_same(&p, &copy));
	assert_string_equal(copy.worker[0].text, "word");
	assert_true(copy.worker[0].evict_argv[1] != words[1]);
	policy_done(&copy);
}

TEST_MAIN(NULL, NULL)
