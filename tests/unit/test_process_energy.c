/* Tests how the service counts the energy of processes and keeps their recent history. */
#include "seed.h"

#include "measure/process_energy.h"

#include <math.h>
#include <string.h>

#define S UINT64_C(1000000000)

static struct process_energy e;

static struct attribute_use use(int64_t pid, uint64_t start, double sm_ratio)
{
	return (struct attribute_use){ .id = { pid, start }, .sm_ratio = sm_ratio };
}

static struct process_energy_sums sums(void)
{
	struct process_energy_sums s;

	process_energy_sum(&e, &s);
	return s;
}

static void assert_near(double have, double want)
{
	if (fabs(have - want) <= 1e-9 * fmax(1, fabs(want)))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static void assert_closes(double counter)
{
	const struct process_energy_sums s = sums();

	assert_near(s.processes_joules + s.former_joules + s.idle_joules +
			    s.unattributed_joules + s.earlier_joules,
		    counter);
}

static double joules_of(int64_t pid, uint64_t start)
{
	double ratio;
	const struct attribute_row *r =
		process_energy_find(&e, (struct proc_id){ pid, start }, &ratio);

	return r ? r->joules : NAN;
}

static double ratio_of(int64_t pid, uint64_t start)
{
	double ratio;

	process_energy_find(&e, (struct proc_id){ pid, start }, &ratio);
	return ratio;
}

TEST(a_process_alone_gets_what_the_counter_gains)
{
	const struct attribute_use one = use(10, 5, NAN);

	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 1000, 7, &one, 1, false); /* an earlier run counted 1000 J */
	assert_near(joules_of(10, 5), 0);
	assert_true(isnan(ratio_of(10, 5)));
	for (unsigned i = 1; i <= 20; i++)
		process_energy_add(&e, 1000 + 300. * i, 7 + i, &one, 1, false);
	assert_near(joules_of(10, 5), 6000);
	assert_near(process_energy_step(&e, one.id), 300);
	assert_near(ratio_of(10, 5), 1);
	assert_near(sums().earlier_joules, 1000);
	assert_closes(7000);
	process_energy_shift(&e, 50, 2); /* the store became readable late */
	process_energy_add(&e, 7350, 30, &one, 1, false);
	assert_near(joules_of(10, 5), 6300);
	assert_near(ratio_of(10, 5), 1);
	assert_closes(7350);
}

TEST(a_process_that_left_is_former_and_keeps_its_energy_when_it_returns)
{
	struct attribute_use both[] = { use(10, 5, 0.75), use(11, 6, 0.25) };

	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 0, 0, both, 2, false);
	process_energy_add(&e, 400, 1, both, 2, false);
	assert_near(joules_of(10, 5), 300);
	process_energy_add(&e, 500, 2, &both[1], 1, false);
	assert_near(sums().former_joules, 300);
	assert_near(sums().processes_joules, 200);
	assert_near(ratio_of(10, 5), 0.6); /* share of the energy of the last seconds */
	process_energy_add(&e, 900, 3, both, 2, false);
	assert_near(sums().former_joules, 0);
	assert_near(joules_of(10, 5), 600);
	assert_closes(900);
}

TEST(a_reused_pid_is_another_process)
{
	struct attribute_use first = use(10, 5, NAN), second = use(10, 99, NAN);

	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 0, 0, &first, 1, false);
	process_energy_add(&e, 100, 1, &first, 1, false);
	process_energy_add(&e, 130, 2, &second, 1, false);
	assert_near(joules_of(10, 5), 100);
	assert_near(joules_of(10, 99), 30);
	/* The row of a process without a start time is dropped when the process leaves. */
	first = use(20, 0, NAN);
	process_energy_add(&e, 140, 3, &first, 1, false);
	process_energy_add(&e, 150, 4, &second, 1, false);
	assert_true(isnan(joules_of(20, 0)));
	process_energy_add(&e, 155, 5, &first, 1, false);
	assert_near(joules_of(20, 0), 5);
	assert_closes(155);
}

TEST(energy_of_hidden_processes_is_unattributed_and_the_rows_stay)
{
	const struct attribute_use one = use(10, 0, NAN);

	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 0, 0, &one, 1, false);
	process_energy_add(&e, 100, 1, &one, 1, false);
	process_energy_add(&e, 150, 2, NULL, 0, true); /* the list could not be read */
	assert_near(joules_of(10, 0), 100);
	assert_near(sums().processes_joules, 100);
	assert_near(sums().unattributed_joules, 50);
	process_energy_add(&e, NAN, NAN, &one, 1, false); /* no reading: nothing changes */
	assert_closes(150);
}

TEST(a_counter_that_falls_shares_nothing)
{
	const struct attribute_use one = use(10, 5, NAN);

	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 1000, 10, &one, 1, false);
	process_energy_add(&e, 1100, 11, &one, 1, false);
	process_energy_add(&e, 40, 1, &one, 1, false);
	assert_near(joules_of(10, 5), 100);
	assert_closes(40);
	process_energy_add(&e, 60, 2, &one, 1, false);
	assert_near(joules_of(10, 5), 120);
	assert_closes(60);
}

TEST(more_processes_than_rows_share_one_unattributed_part)
{
	static struct attribute_use many[500];

	for (unsigned i = 0; i < 500; i++)
		many[i] = use(100 + i, 1, i < 10 ? 0.05 : 0.0);
	many[499].sm_ratio = 0.5; /* this process has no row */
	process_energy_init(&e, NAN, NAN);
	process_energy_add(&e, 0, 0, many, 500, false);
	process_energy_add(&e, 1000, 1, many, 500, false);
	assert_near(joules_of(100, 1), 50);
	assert_true(isnan(joules_of(100 + 499, 1)));
	assert_near(sums().unattributed_joules, 500);
	assert_closes(1000);
}

TEST(five_thousand_short_processes_always_add_up_to_the_counter)
{
	uint64_t seed = seed_of_run();
	double counter = 0, seconds = 0, found = 0;

	process_energy_init(&e, 20, 25);
	for (unsigned i = 0; i < 5000; i++) {
		struct attribute_use uses[8];
		size_t n = next(&seed) % 9;

		for (size_t k = 0; k < n; k++) /* each process lives for a few steps */
			uses[k] =
				use((int64_t)(i / 3 + k * 4000 + 1),
				    next(&seed) % 2 ? 0 : i / 3 + 1,
				    next(&seed) % 5 ? (double)(next(&seed) % 101) / 100 : NAN);
		counter += (double)(next(&seed) % 1000);
		seconds += 1;
		process_energy_add(&e, counter, seconds, uses, n, next(&seed) % 50 == 0);
		assert_true(e.shares.count <= PROCESS_ENERGY_ROWS);
		assert_closes(counter);
		for (unsigned k = 0; k < e.shares.count; k++)
			assert_true(e.shares.row[k].joules >= 0);
	}
	for (unsigned k = 0; k < e.shares.count; k++)
		found += e.shares.row[k].joules;
	assert_true(found > 0 && sums().former_joules > found);
}

/* ---- the past ---- */

static struct process_history h;

static void see(uint64_t now_ns, int64_t pid, double bytes, double watts)
{
	const struct process_history_reading r = { .id = { pid, 1 },
						   .gpu_instance = -1,
						   .name = "p",
						   .value = { bytes, NAN, watts } };

	process_history_add(&h, now_ns, &r);
	process_history_forget(&h, now_ns);
}

static const struct process_history_row *ring_of(int64_t pid)
{
	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++)
		if (h.row[i] && h.row[i]->id.pid == pid)
			return h.row[i];
	return NULL;
}

TEST(a_step_of_the_past_is_the_mean_of_its_readings)
{
	const struct process_history_row *r;

	see(100 * S, 1, 1000, NAN);
	see(101 * S, 1, 2000, 50);
	see(102 * S, 1, 3000, 70);
	see(125 * S, 1, 8000, 90);
	r = ring_of(1);
	assert_near(process_history_at(r, PROCESS_HISTORY_MEMORY, 10), 2000);
	assert_near(process_history_at(r, PROCESS_HISTORY_POWER, 10), 60);
	assert_true(isnan(process_history_at(r, PROCESS_HISTORY_SM, 10)));
	assert_true(isnan(process_history_at(r, PROCESS_HISTORY_MEMORY, 11)));
	assert_near(process_history_at(r, PROCESS_HISTORY_MEMORY, 12), 8000);
	assert_true(isnan(process_history_at(r, PROCESS_HISTORY_MEMORY, 13)));
	/* A quarter of an hour later the old steps are overwritten, not shown again. */
	see(125 * S + PROCESS_HISTORY_POINTS * PROCESS_HISTORY_STEP_NS, 1, 1, NAN);
	assert_true(isnan(process_history_at(r, PROCESS_HISTORY_MEMORY, 12)));
	assert_true(isnan(process_history_at(r, PROCESS_HISTORY_POWER, 13)));
	process_history_done(&h);
}

TEST(the_largest_processes_have_a_past_and_the_memory_is_bounded)
{
	/* all processes are present at the same time */
	for (int64_t pid = 1; pid <= 5000; pid++)
		see(100 * S, pid, (double)pid, NAN);
	assert_null(ring_of(1));
	assert_non_null(ring_of(5000));
	assert_non_null(ring_of(5001 - PROCESS_HISTORY_ROWS));
	/* A small process takes the place of a process that left. */
	see(120 * S, 6000, 1, NAN);
	assert_non_null(ring_of(6000));
	assert_null(ring_of(5001 - PROCESS_HISTORY_ROWS));
	/* After a quarter of an hour the other processes have no ring. */
	see(120 * S + PROCESS_HISTORY_POINTS * PROCESS_HISTORY_STEP_NS, 7000, 1, NAN);
	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++)
		assert_true(!h.row[i] || h.row[i]->id.pid == 7000);
	process_history_done(&h);
}

TEST_MAIN(NULL, NULL)
