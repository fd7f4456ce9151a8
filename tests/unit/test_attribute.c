/* Tests the energy of processes: every joule is counted exactly once. */
#include "seed.h"

#include "measure/attribute.h"

#include <math.h>
#include <time.h>

#define ROUNDS 2000

static void assert_near(double have, double want)
{
	if (fabs(have - want) <= 1e-9 * fmax(1, fabs(want)))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static struct attribute_use use(int64_t pid, double sm_ratio)
{
	struct attribute_use u = { .id = { pid, 1000 }, .sm_ratio = sm_ratio };

	snprintf(u.name, sizeof(u.name), "p%lld", (long long)pid);
	return u;
}

static const struct attribute_row *row(const struct attribute *a, int64_t pid, uint64_t start)
{
	for (unsigned i = 0; i < a->count; i++)
		if (a->row[i].id.pid == pid && a->row[i].id.start_ticks == start)
			return &a->row[i];
	return NULL;
}

static double joules_of(const struct attribute *a, int64_t pid)
{
	const struct attribute_row *r = row(a, pid, 1000);

	return r ? r->joules : NAN;
}

static double added_up(const struct attribute *a)
{
	double sum = 0;

	for (unsigned i = 0; i < a->count; i++)
		sum += a->row[i].joules;
	return sum + a->idle_joules + a->unattributed_joules;
}

static double added_backwards(const struct attribute *a)
{
	double sum = a->unattributed_joules + a->idle_joules;

	for (unsigned i = a->count; i > 0; i--)
		sum += a->row[i - 1].joules;
	return sum;
}

TEST(a_single_process_gets_the_energy_above_idle)
{
	struct attribute_use u = use(7, NAN);
	struct attribute a;

	attribute_init(&a, 78, 120);
	assert_int_equal(attribute_add(&a, 700, 1, &u, 1, false), 0);
	assert_int_equal(attribute_finish(&a, 700), 0);
	assert_int_equal(a.count, 1);
	assert_near(joules_of(&a, 7), 622);
	assert_near(a.idle_joules, 78);
	assert_near(a.unattributed_joules, 0);
	assert_int_equal(a.row[0].how, ATTRIBUTE_MEASURED);
	assert_string_equal(a.row[0].name, "p7");
	assert_near(a.row[0].seconds, 1);
}

TEST(energy_is_shared_among_processes)
{
	static const struct {
		const char *name;
		double idle_w, context_w, joules; /* of one second */
		unsigned uses;
		double sm[3], share[3], idle, unattributed;
		bool hidden;
		enum attribute_how how;
	} rows[] = {
		/* 78 J idle, 42 J for three contexts, 400 J by utilisation */
		{ "by utilisation",
		  78,
		  120,
		  520,
		  3,
		  { 0.6, 0.2, 0 },
		  { 314, 114, 14 },
		  78,
		  0,
		  false,
		  ATTRIBUTE_MODELLED },
		{ "no utilisation",
		  100,
		  NAN,
		  500,
		  2,
		  { NAN, NAN },
		  { 200, 200 },
		  100,
		  0,
		  false,
		  ATTRIBUTE_EQUAL_SPLIT },
		{ "one unknown utilisation",
		  0,
		  0,
		  300,
		  3,
		  { 0.3, 0.1, NAN },
		  { 150, 50, 100 },
		  0,
		  0,
		  false,
		  ATTRIBUTE_EQUAL_SPLIT },
		{ "idle processes",
		  78,
		  120,
		  200,
		  2,
		  { 0, 0 },
		  { 21, 21 },
		  78,
		  80,
		  false,
		  ATTRIBUTE_MODELLED },
		{ "no processes", 78, 120, 100, 0, { 0 }, { 0 }, 78, 22, false, 0 },
		{ "hidden processes", 78, 120, 300, 1, { 1 }, { NAN }, 0, 300, true, 0 },
		{ "unknown idle power",
		  NAN,
		  120,
		  300,
		  1,
		  { 1 },
		  { 300 },
		  0,
		  0,
		  false,
		  ATTRIBUTE_MEASURED },
		{ "context power below idle",
		  100,
		  90,
		  200,
		  2,
		  { 0.5, 0 },
		  { 100, 0 },
		  100,
		  0,
		  false,
		  ATTRIBUTE_MODELLED },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct attribute_use u[3];
		struct attribute a;

		print_message("%s\n", rows[i].name);
		for (unsigned n = 0; n < 3; n++)
			u[n] = use(n + 1, rows[i].sm[n]);
		attribute_init(&a, rows[i].idle_w, rows[i].context_w);
		assert_int_equal(a.idle_known, !isnan(rows[i].idle_w));
		assert_int_equal(a.context_known,
				 !isnan(rows[i].idle_w) && !isnan(rows[i].context_w));
		attribute_add(&a, rows[i].joules, 1, u, rows[i].uses, rows[i].hidden);
		attribute_finish(&a, rows[i].joules);
		assert_int_equal(a.count, rows[i].hidden ? 0 : rows[i].uses);
		for (unsigned n = 0; n < a.count; n++) {
			assert_near(joules_of(&a, n + 1), rows[i].share[n]);
			assert_int_equal(a.row[n].how, rows[i].how);
		}
		assert_near(a.idle_joules, rows[i].idle);
		assert_near(a.unattributed_joules, rows[i].unattributed);
	}
}

TEST(power_below_idle_leaves_nothing_to_share)
{
	struct attribute_use u[] = { use(1, 0.5), use(2, 0.5) };
	struct attribute a;

	attribute_init(&a, 78, 120);
	attribute_add(&a, 60, 1, u, 2, false);
	/* 90 W are less than 120 W, the idle power with contexts: the two contexts share the 12
	 * J above 78 J */
	attribute_add(&a, 90, 1, u, 2, false);
	attribute_finish(&a, 150);
	assert_near(a.idle_joules, 138);
	assert_near(joules_of(&a, 1), 6);
	assert_near(joules_of(&a, 2), 6);
}

TEST(a_pid_used_again_is_another_process)
{
	struct attribute_use first = use(5, NAN), second = use(5, NAN);
	struct attribute a;

	second.id.start_ticks = 2000;
	attribute_init(&a, 0, 0);
	attribute_add(&a, 100, 1, &first, 1, false);
	attribute_add(&a, 300, 1, &second, 1, false);
	attribute_finish(&a, 400);
	assert_int_equal(a.count, 2);
	assert_near(row(&a, 5, 1000)->joules, 100);
	assert_near(row(&a, 5, 2000)->joules, 300);
	assert_int_equal(a.row[0].id.start_ticks, 2000);
}

TEST(a_process_listed_twice_counts_once)
{
	struct attribute_use u[] = { use(1, 0.25), use(1, NAN), use(2, 0.25), use(1, 0.25) };
	struct attribute a;

	attribute_init(&a, 0, 40);
	attribute_add(&a, 240, 1, u, 4, false);
	attribute_finish(&a, 240);
	assert_int_equal(a.count, 2);
	assert_near(joules_of(&a, 1), 120);
	assert_near(joules_of(&a, 2), 120);
	assert_int_equal(a.row[0].how, ATTRIBUTE_MODELLED);

	attribute_init(&a, 0, 40);
	/* the process is listed twice, but there is no other process */
	attribute_add(&a, 240, 1, u, 2, false);
	attribute_finish(&a, 240);
	assert_int_equal(a.count, 1);
	assert_int_equal(a.row[0].how, ATTRIBUTE_MEASURED);
}

TEST(an_impossible_utilisation_is_unknown)
{
	static const double bad[] = { 1.01, 100, -0.1, INFINITY, -INFINITY };

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct attribute_use u[] = { use(1, bad[i]), use(2, 0.5) };
		struct attribute a;

		attribute_init(&a, 0, 0);
		attribute_add(&a, 100, 1, u, 2, false);
		attribute_finish(&a, 100);
		assert_near(joules_of(&a, 1), 50);
		assert_int_equal(a.row[0].how, ATTRIBUTE_EQUAL_SPLIT);
	}
}

TEST(a_row_has_the_weakest_method_of_its_intervals)
{
	struct attribute_use u[] = { use(1, 0.5), use(2, 0.5) };
	struct attribute a;

	attribute_init(&a, 0, 0);
	attribute_add(&a, 100, 1, u, 1, false);
	assert_int_equal(row(&a, 1, 1000)->how, ATTRIBUTE_MEASURED);
	attribute_add(&a, 100, 1, u, 2, false);
	assert_int_equal(row(&a, 1, 1000)->how, ATTRIBUTE_MODELLED);
	u[0].sm_ratio = u[1].sm_ratio = NAN;
	attribute_add(&a, 100, 1, u, 2, false);
	attribute_add(&a, 100, 1, u, 1, false);
	assert_int_equal(row(&a, 1, 1000)->how, ATTRIBUTE_EQUAL_SPLIT);
}

TEST(more_processes_than_rows_are_unattributed)
{
	struct attribute_use u[ATTRIBUTE_ROWS + 36];
	struct attribute a;

	for (size_t i = 0; i < COUNT_OF(u); i++)
		u[i] = use((int64_t)i + 1, 0.01);
	attribute_init(&a, 0, 0);
	attribute_add(&a, 1000, 1, u, COUNT_OF(u), false);
	attribute_finish(&a, 1000);
	assert_int_equal(a.count, ATTRIBUTE_ROWS);
	assert_near(a.unattributed_joules, 360);
	assert_near(joules_of(&a, 1), 10);
}

TEST(a_long_name_is_cut)
{
	struct attribute_use u = use(1, 1);
	struct attribute a;

	memset(u.name, 'x', sizeof(u.name)); /* without a NUL at the end */
	attribute_init(&a, 0, 0);
	attribute_add(&a, 1, 1, &u, 1, false);
	assert_int_equal(strlen(a.row[0].name), sizeof(a.row[0].name) - 1);
}

TEST(each_method_has_a_name)
{
	assert_string_equal(attribute_how_name(ATTRIBUTE_MEASURED), "measured");
	assert_string_equal(attribute_how_name(ATTRIBUTE_MODELLED), "modelled");
	assert_string_equal(attribute_how_name(ATTRIBUTE_EQUAL_SPLIT), "equal-split");
	assert_string_equal(attribute_how_name(99), "");
}

TEST(impossible_energy_changes_nothing)
{
	static const struct {
		double joules, seconds;
	} bad[] = { { NAN, 1 }, { -1, 1 }, { INFINITY, 1 },
		    { 1, NAN }, { 1, -1 }, { 1, INFINITY } };
	struct attribute_use u = use(1, 1);
	struct attribute a, before;

	attribute_init(&a, 10, 20);
	attribute_add(&a, 100, 1, &u, 1, false);
	before = a;
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(attribute_add(&a, bad[i].joules, bad[i].seconds, &u, 1, false),
				 -GW_E_ARG);
	assert_int_equal(attribute_finish(&a, NAN), -GW_E_ARG);
	assert_int_equal(attribute_finish(&a, -1), -GW_E_ARG);
	assert_memory_equal(&a, &before, sizeof(a));
}

TEST(rows_are_scaled_to_the_total)
{
	struct attribute_use u[] = { use(1, 0.75), use(2, 0.25) };
	struct attribute a;

	attribute_init(&a, 100, 100);
	attribute_add(&a, 500, 1, u, 2, false);
	attribute_finish(&a, 1000);
	assert_near(joules_of(&a, 1), 600);
	assert_near(joules_of(&a, 2), 200);
	assert_near(a.idle_joules, 200);

	attribute_init(&a, 100, 100);
	attribute_add(&a, 500, 1, u, 2, false);
	attribute_finish(&a, 0);
	assert_true(added_up(&a) == 0);
}

TEST(a_total_without_intervals_is_unattributed)
{
	struct attribute_use u = use(1, 1);
	struct attribute a;

	attribute_init(&a, 10, 20);
	attribute_finish(&a, 42);
	assert_true(a.unattributed_joules == 42);

	attribute_init(&a, 0, 0);
	/* the split needs a factor that is too large for a double */
	attribute_add(&a, 5e-324, 1, &u, 1, false);
	attribute_finish(&a, 1e9);
	assert_true(a.unattributed_joules == 1e9);
}

struct interval {
	double joules, seconds;
	struct attribute_use use[12];
	size_t n;
	bool hidden;
};

struct story {
	double no_context_w, context_w;
	struct interval interval[20];
	size_t n;
};

static double uniform(uint64_t *s)
{
	return (double)(next(s) >> 11) * 0x1p-53;
}

/* Makes an interval with at most eight processes. Two of the possible processes have the same
 * pid and different start times. */
static void make_interval(uint64_t *s, struct interval *in)
{
	in->seconds = next(s) % 10 == 0 ? 0 : 0.5 + uniform(s);
	in->joules = next(s) % 10 == 0 ? 0 : uniform(s) * 700 * in->seconds;
	in->hidden = next(s) % 10 == 0;
	in->n = next(s) % (COUNT_OF(in->use) + 1);
	for (size_t i = 0; i < in->n; i++) {
		uint64_t who = next(s) % 8, kind = next(s) % 6;

		in->use[i] = use(who == 7 ? 6 : (int64_t)who, uniform(s));
		in->use[i].id.start_ticks = who == 7 ? 2000 : 1000;
		if (kind == 0)
			in->use[i].sm_ratio = NAN;
		else if (kind <= 2)
			in->use[i].sm_ratio = 0;
	}
}

static void make_story(uint64_t *s, struct story *t)
{
	t->no_context_w = next(s) % 4 ? uniform(s) * 200 : NAN;
	t->context_w = next(s) % 4 ? uniform(s) * 250 : NAN;
	t->n = 1 + next(s) % COUNT_OF(t->interval);
	for (size_t i = 0; i < t->n; i++)
		make_interval(s, &t->interval[i]);
}

static void feed_story(const struct story *t, struct attribute *a)
{
	attribute_init(a, t->no_context_w, t->context_w);
	for (size_t i = 0; i < t->n; i++) {
		const struct interval *in = &t->interval[i];

		assert_int_equal(
			attribute_add(a, in->joules, in->seconds, in->use, in->n, in->hidden),
			0);
	}
}

/* The result of a second, slower implementation of the rules of attribute.c: sums of the
 * processes 0 to 7 over all intervals. */
struct slow {
	long double joules[8], idle, unattributed;
	int how[8]; /* -1: never present */
};

static void slow_interval(const struct story *t, const struct interval *in, struct slow *out)
{
	bool there[8] = { false };
	double ratio[8];
	unsigned heads = 0, known = 0;
	long double left = in->joules, context = 0, sum = 0, rest;

	if (in->hidden) {
		out->unattributed += left;
		return;
	}
	for (unsigned w = 0; w < 8; w++)
		ratio[w] = NAN;
	for (size_t i = 0; i < in->n; i++) {
		const struct attribute_use *u = &in->use[i];
		unsigned w = u->id.start_ticks == 2000 ? 7 : (unsigned)u->id.pid;

		there[w] = true;
		if (!isnan(u->sm_ratio) && !(ratio[w] > u->sm_ratio))
			ratio[w] = u->sm_ratio;
	}
	for (unsigned w = 0; w < 8; w++) {
		heads += there[w];
		known += there[w] && !isnan(ratio[w]);
		sum += there[w] && !isnan(ratio[w]) ? (long double)ratio[w] : 0;
	}
	if (!isnan(t->no_context_w)) {
		long double idle = (long double)t->no_context_w * in->seconds;

		idle = idle < left ? idle : left;
		out->idle += idle;
		left -= idle;
	}
	if (heads == 0)
		out->unattributed += left;
	if (heads > 1 && t->context_w > t->no_context_w) {
		context = ((long double)t->context_w - t->no_context_w) * in->seconds;
		context = context < left ? context : left;
	}
	rest = left - context;
	if (heads > 1 && known && sum == 0)
		out->unattributed += rest * known / heads;
	for (unsigned w = 0; w < 8; w++) {
		int how = heads == 1       ? ATTRIBUTE_MEASURED
			  : known == heads ? ATTRIBUTE_MODELLED
					   : ATTRIBUTE_EQUAL_SPLIT;

		if (!there[w])
			continue;
		if (heads == 1)
			out->joules[w] += left;
		else if (isnan(ratio[w]))
			out->joules[w] += context / heads + rest / heads;
		else
			out->joules[w] += context / heads +
					  (sum > 0 ? rest * known / heads * ratio[w] / sum : 0);
		if (how > out->how[w])
			out->how[w] = how;
	}
}

static void assert_as_slow(const struct attribute *a, const struct slow *s)
{
	unsigned seen = 0;

	assert_near(a->idle_joules, (double)s->idle);
	assert_near(a->unattributed_joules, (double)s->unattributed);
	for (unsigned w = 0; w < 8; w++) {
		const struct attribute_row *r =
			row(a, w == 7 ? 6 : (int64_t)w, w == 7 ? 2000 : 1000);

		assert_true(!r == (s->how[w] < 0));
		if (!r)
			continue;
		seen++;
		assert_near(r->joules, (double)s->joules[w]);
		assert_int_equal(r->how, s->how[w]);
	}
	assert_int_equal(a->count, seen);
}

TEST(the_split_equals_a_brute_force_one)
{
	uint64_t seed = seed_of_run();

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct slow slow = { .how = { -1, -1, -1, -1, -1, -1, -1, -1 } };
		struct story t;
		struct attribute a;

		make_story(&seed, &t);
		feed_story(&t, &a);
		for (size_t i = 0; i < t.n; i++)
			slow_interval(&t, &t.interval[i], &slow);
		assert_as_slow(&a, &slow);
	}
}

TEST(rows_always_add_up_and_are_never_negative)
{
	uint64_t seed = seed_of_run();

	for (unsigned round = 0; round < ROUNDS; round++) {
		double total, known = 0;
		struct story t;
		struct attribute a;

		make_story(&seed, &t);
		feed_story(&t, &a);
		for (size_t i = 0; i < t.n; i++)
			known += t.interval[i].joules;
		assert_near(added_up(&a), known);
		total = next(&seed) % 3 ? known * (1 + (uniform(&seed) - 0.5) * 0.1)
					: ldexp(uniform(&seed), (int)(next(&seed) % 60) - 20);
		assert_int_equal(attribute_finish(&a, total), 0);
		assert_true(added_up(&a) == total);
		assert_true(added_backwards(&a) == total);
		assert_true(a.idle_joules >= 0 && a.unattributed_joules >= 0);
		for (unsigned i = 0; i < a.count; i++) {
			assert_true(a.row[i].joules >= 0);
			assert_true(i == 0 || a.row[i].joules <= a.row[i - 1].joules);
		}
	}
}

/* Correcting only the largest value cannot make this sum exact, because each addition rounds
 * to an even digit. */
TEST(the_sum_is_exact_despite_rounding)
{
	static const double joules[] = { 1.5914483197271085e-05, 1.0966415166195969e-05,
					 8.5906939428616655e-06, 2.2600317928046517e-06,
					 4.9656394667936343e-07, 4.9520097992873541e-07,
					 1.8606496343936892e-07, 0 };
	double total = 0.00010282858492125932;
	struct attribute a;

	attribute_init(&a, NAN, NAN);
	for (size_t i = 0; i < COUNT_OF(joules); i++) {
		struct attribute_use u = use((int64_t)i, NAN);

		attribute_add(&a, joules[i], 1, &u, 1, false);
	}
	attribute_add(&a, total - 3.9e-5, 1, NULL, 0, false);
	attribute_finish(&a, total);
	assert_true(added_up(&a) == total);
}

static void shuffle_uses(uint64_t *seed, struct interval *in)
{
	for (size_t i = in->n; i > 1; i--) {
		size_t k = next(seed) % i;
		struct attribute_use u = in->use[i - 1];

		in->use[i - 1] = in->use[k];
		in->use[k] = u;
	}
}

TEST(the_order_of_processes_does_not_matter)
{
	uint64_t seed = seed_of_run();

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct story t;
		struct attribute a, b;

		make_story(&seed, &t);
		feed_story(&t, &a);
		for (size_t i = t.n; i > 1; i--) {
			size_t k = next(&seed) % i;
			struct interval in = t.interval[i - 1];

			t.interval[i - 1] = t.interval[k];
			t.interval[k] = in;
		}
		for (size_t i = 0; i < t.n; i++)
			shuffle_uses(&seed, &t.interval[i]);
		feed_story(&t, &b);
		assert_int_equal(a.count, b.count);
		assert_near(a.idle_joules, b.idle_joules);
		assert_near(a.unattributed_joules, b.unattributed_joules);
		for (unsigned i = 0; i < a.count; i++) {
			const struct attribute_row *r =
				row(&b, a.row[i].id.pid, a.row[i].id.start_ticks);

			assert_non_null(r);
			assert_near(a.row[i].joules, r->joules);
			assert_near(a.row[i].seconds, r->seconds);
			assert_int_equal(a.row[i].how, r->how);
		}
	}
}

TEST_MAIN(NULL, NULL)
