/* Tests that the energy of all workloads and of the other parts, such as idle energy, adds up
 * to the counter of the GPU, whatever the processes, the counter and the service do. */
#include "seed.h"

#include "measure/process_energy.h"
#include "measure/workload_energy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define S    UINT64_C(1000000000)
#define GPUS 2

static struct workload_energy e;
static unsigned ended;
static double ended_joules;

static void note_ended(void *arg, const struct workload_energy *x, unsigned row)
{
	struct workload_row sum;

	(void)arg;
	workload_energy_sum(x, row, &sum);
	assert_int_equal(sum.processes, 0);
	ended++;
	ended_joules += sum.joules;
}

static void begin(void)
{
	ended = 0;
	ended_joules = 0;
	assert_int_equal(workload_energy_init(&e, GPUS, note_ended, NULL), 0);
}

static struct workload job(unsigned number)
{
	struct workload w = { .kind = WORKLOAD_SLURM };

	snprintf(w.id, sizeof(w.id), "%u", number);
	snprintf(w.name, sizeof(w.name), "%u", number);
	snprintf(w.space, sizeof(w.space), "alice");
	return w;
}

static struct workload_use use(const struct workload *w, double joules)
{
	return (struct workload_use){ .workload = w,
				      .user = "alice",
				      .step_joules = joules,
				      .how = ATTRIBUTE_MODELLED,
				      .memory_bytes = 1e9,
				      .sm_ratio = NAN,
				      .power_w = joules };
}

static void assert_near(double have, double want)
{
	/* sums of up to a million joules leave rounding errors, even if the counter is 0 now */
	if (fabs(have - want) <= 1e-9 * fmax(1000, fabs(want)))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static void tick(unsigned gpu, double counter_j, uint64_t wall_ns,
		 const struct workload_use *uses, size_t n)
{
	workload_energy_tick(&e, gpu,
			     &(struct workload_step){ .counter_j = counter_j,
						      .seconds = 1,
						      .wall_ns = wall_ns,
						      .processes_known = true,
						      .still = n == 0 },
			     uses, n);
}

/* Checks that the sum of the rows and the sum of the series are both equal to the counter. */
static void assert_closes(unsigned gpu, double counter_j)
{
	double rows = 0, series = workload_energy_series_other(&e, gpu);

	for (unsigned r = 0; r < WORKLOAD_RESTS; r++) {
		rows += workload_energy_rest(&e, gpu, r);
		series += e.gpu[gpu].rest_j[r];
	}
	for (unsigned i = 0; i < e.count; i++) {
		if (e.row[i].gpu != gpu)
			continue;
		assert_true(e.row[i].joules >= 0);
		assert_true(e.row[i].alone_joules <= e.row[i].joules * (1 + 1e-12));
		rows += e.row[i].joules;
		if (e.row[i].has_series)
			series += e.row[i].joules - e.row[i].series_from_j;
	}
	assert_near(rows, counter_j);
	assert_near(series, counter_j);
}

static const struct workload_row *row_of(unsigned gpu, const struct workload *w)
{
	for (unsigned i = 0; i < e.count; i++)
		if (e.row[i].gpu == gpu && workload_equal(&e.row[i].workload, w))
			return &e.row[i];
	return NULL;
}

TEST(a_process_that_changes_its_group_is_charged_to_both_workloads)
{
	const struct workload a = job(1), b = job(2);
	struct workload_use u = use(&a, 0);

	begin();
	tick(0, 1000, 100 * S, &u, 1);
	for (unsigned i = 1; i <= 10; i++) {
		u = use(i <= 4 ? &a : &b, 50);
		tick(0, 1000 + 50. * i, (100 + i) * S, &u, 1);
	}
	assert_near(row_of(0, &a)->joules, 200);
	assert_near(row_of(0, &b)->joules, 300);
	assert_near(row_of(0, &a)->alone_joules, 200);
	assert_int_equal(row_of(0, &a)->how, ATTRIBUTE_MEASURED);
	assert_int_equal(row_of(0, &a)->processes, 0);
	assert_int_equal(row_of(0, &a)->end_wall_ns, 104 * S);
	assert_int_equal(row_of(0, &b)->begin_wall_ns, 105 * S);
	assert_near(row_of(0, &b)->gpu_seconds, 6);
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_EARLIER), 1000);
	assert_closes(0, 1500);
	workload_energy_done(&e);
}

TEST(the_limits_of_a_shared_share_are_known)
{
	const struct workload a = job(1), b = job(2);
	struct workload_use u[2] = { use(&a, 30), use(&b, 70) };
	const struct workload_row *r;

	begin();
	tick(0, 0, 1 * S, NULL, 0);
	tick(0, 100, 2 * S, u, 2);
	u[0] = use(&a, 40);
	tick(0, 140, 3 * S, u, 1);
	r = row_of(0, &a);
	assert_near(r->joules, 70);
	assert_near(r->alone_joules, 40);
	/* the workload used at least 40 J (alone) and at most 140 J (with the shared 100 J) */
	assert_near(r->shared_joules, 100);
	assert_int_equal(r->how, ATTRIBUTE_MODELLED);
	assert_closes(0, 140);
	workload_energy_done(&e);
}

TEST(energy_without_a_process_is_idle_only_if_the_gpu_did_nothing)
{
	const struct workload a = job(1);
	const struct workload_use u = use(&a, 5);
	struct workload_step s = {
		.counter_j = 50, .seconds = 1, .wall_ns = 9 * S, .processes_known = true
	};

	begin();
	tick(0, 0, 1 * S, NULL, 0);
	tick(0, 10, 2 * S, NULL, 0);
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_IDLE), 10);
	tick(0, 15, 3 * S, &u, 1);
	tick(0, 25, 4 * S, NULL, 0); /* the process that left may have used a part */
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_UNATTRIBUTED), 10);
	tick(0, 30, 5 * S, NULL, 0);
	workload_energy_tick(&e, 0, &s, NULL, 0); /* busy, and no process is listed */
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_IDLE), 15);
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_UNATTRIBUTED), 30);
	s.processes_known = false;
	s.counter_j = 60;
	workload_energy_tick(&e, 0, &s, NULL, 0);
	assert_near(workload_energy_rest(&e, 0, WORKLOAD_UNATTRIBUTED), 40);
	assert_closes(0, 60);
	workload_energy_done(&e);
}

TEST(a_figure_that_one_process_does_not_have_is_unknown_for_the_workload)
{
	const struct workload a = job(1);
	struct workload_use u[2] = { use(&a, NAN), use(&a, NAN) };

	begin();
	u[0].absence = u[1].absence = GW_ABSENT_NOT_SUPPORTED;
	u[1].memory_bytes = NAN;
	u[0].sm_ratio = u[1].sm_ratio = 0.25;
	tick(0, 100, 1 * S, u, 2);
	assert_true(isnan(row_of(0, &a)->memory_bytes));
	assert_true(isnan(row_of(0, &a)->memory_peak_bytes));
	assert_near(row_of(0, &a)->sm_ratio, 0.5);
	u[1].sm_ratio = NAN;
	tick(0, 100, 2 * S, u, 2);
	assert_true(isnan(row_of(0, &a)->sm_ratio));
	assert_near(row_of(0, &a)->sm_seconds, 1);
	assert_false(row_of(0, &a)->charged);
	assert_int_equal(row_of(0, &a)->absence, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(row_of(0, &a)->processes, 2);
	workload_energy_done(&e);
}

TEST(a_workload_ends_when_it_left_all_gpus)
{
	const struct workload a = job(1);
	const struct workload_use u = use(&a, 10);
	struct workload_row sum;

	begin();
	for (unsigned i = 0; i <= 400; i++) {
		const bool first = i < 20, second = i < 60;

		tick(0, 10. * i, (1000 + i) * S, &u, first ? 1 : 0);
		tick(1, 10. * i, (1000 + i) * S, &u, second ? 1 : 0);
		workload_energy_age(&e, (1000 + i) * S, 300);
		assert_closes(0, 10. * i);
		assert_closes(1, 10. * i);
		if (i == 358) {
			assert_non_null(row_of(0, &a));
			workload_energy_sum(&e, 0, &sum);
			assert_int_equal(sum.end_wall_ns, 1059 * S);
			assert_near(sum.gpu_seconds, 80);
		}
	}
	assert_null(row_of(0, &a));
	assert_null(row_of(1, &a));
	assert_int_equal(ended, 1);
	assert_near(ended_joules, 190 + 590); /* the first tick of a GPU charges nothing */
	assert_near(workload_energy_rest(&e, 1, WORKLOAD_FORMER), 590);
	workload_energy_done(&e);
}

TEST(a_running_workload_stays_even_if_ended_ones_are_not_kept)
{
	const struct workload a = job(1);
	const struct workload_use u = use(&a, 10);

	begin();
	for (unsigned i = 0; i < 20; i++) {
		tick(0, 10. * i, (1000 + i) * S, &u, 1);
		workload_energy_age(&e, (1000 + i) * S, 0);
		assert_non_null(row_of(0, &a));
	}
	tick(0, 200, 1020 * S, NULL, 0);
	workload_energy_age(&e, 1020 * S, 0);
	assert_null(row_of(0, &a));
	assert_int_equal(ended, 1);
	workload_energy_done(&e);
}

TEST(five_thousand_short_jobs_in_an_hour_keep_memory_and_labels_bounded)
{
	double counter = 0;

	begin();
	tick(0, 0, 1000 * S, NULL, 0);
	for (unsigned t = 1; t <= 3600; t++) {
		struct workload w[3];
		struct workload_use u[3];
		unsigned n = 0, series = 0;
		double former = e.gpu[0].rest_j[WORKLOAD_FORMER],
		       other = workload_energy_series_other(&e, 0);

		for (unsigned k = t * 5000 / 3600 - 1; k <= t * 5000 / 3600; k++) {
			w[n] = job(k);
			u[n] = use(&w[n], 100);
			n++;
		}
		counter += 200;
		tick(0, counter, (1000 + t) * S, u, n);
		workload_energy_age(&e, (1000 + t) * S, 300);
		assert_closes(0, counter);
		assert_true(e.count <= WORKLOAD_ROWS_MAX);
		for (unsigned i = 0; i < e.count; i++)
			series += e.row[i].has_series;
		assert_true(series <= WORKLOAD_SERIES_MAX);
		/* counters do not fall */
		assert_true(e.gpu[0].rest_j[WORKLOAD_FORMER] >= former - 1e-6);
		assert_true(workload_energy_series_other(&e, 0) >= other - 1e-6);
	}
	assert_true(ended > 4000);
	workload_energy_done(&e);
}

TEST(a_workload_with_the_labels_of_an_ended_one_takes_over_its_series)
{
	struct workload a = job(1), b = job(2);
	struct workload_use u = use(&a, 10);

	begin();
	snprintf(b.name, sizeof(b.name), "%s", a.name); /* a pod that was created again */
	tick(0, 0, 1 * S, &u, 1);
	tick(0, 10, 2 * S, &u, 1);
	u = use(&b, 7);
	tick(0, 17, 3 * S, &u, 1);
	assert_false(row_of(0, &a)->has_series);
	assert_true(row_of(0, &b)->has_series);
	assert_near(row_of(0, &b)->joules - row_of(0, &b)->series_from_j, 7);
	assert_near(row_of(0, &a)->joules, 10);
	assert_closes(0, 17);
	workload_energy_done(&e);
}

/* ---- compared with the energy of processes, with restarts ---- */

#define PROCESSES 300

struct world {
	uint64_t s;
	struct process_energy share;
	double counter, counter_s;
	struct {
		bool on;
		struct proc_id id;
		unsigned job;
	} process[PROCESSES];
	/* rows of the last save */
	struct workload_row row[WORKLOAD_ROWS_MAX];
	unsigned rows;
	struct workload_gpu gpu;
	bool saved;
};
static struct world w;

static void world_processes(void)
{
	const unsigned crowd = next(&w.s) % 8 == 0 ? PROCESSES : 40;

	for (unsigned k = 0; k < PROCESSES; k++) {
		const unsigned dice = (unsigned)(next(&w.s) % 100);

		if (w.process[k].on && dice < 15)
			w.process[k].on = false;
		else if (!w.process[k].on && k < crowd && dice < 20)
			w.process[k].on = true,
			w.process[k].id =
				(struct proc_id){ (int64_t)(k + 1), next(&w.s) % 1000 + 1 },
			w.process[k].job = (unsigned)(next(&w.s) % 700);
		else if (w.process[k].on && dice < 20)
			/* another control group */
			w.process[k].job = (unsigned)(next(&w.s) % 700);
	}
}

static void world_tick(uint64_t wall_ns)
{
	static struct workload_use uses[PROCESSES];
	static struct workload jobs[PROCESSES];
	struct attribute_use shared[PROCESSES];
	const bool hidden = next(&w.s) % 20 == 0;
	struct workload_step step = { .seconds = 1, .wall_ns = wall_ns };
	size_t n = 0;

	for (unsigned k = 0; k < PROCESSES; k++) {
		if (!w.process[k].on)
			continue;
		shared[n] =
			(struct attribute_use){ .id = w.process[k].id,
						.sm_ratio = (double)(next(&w.s) % 101) / 100 };
		jobs[n++] = job(w.process[k].job);
	}
	process_energy_add(&w.share, w.counter, w.counter_s, shared, n, hidden);
	for (size_t k = 0; k < n; k++)
		uses[k] = use(&jobs[k], process_energy_step(&w.share, shared[k].id));
	step.counter_j = w.counter;
	step.processes_known = !hidden;
	step.still = next(&w.s) % 2;
	workload_energy_tick(&e, 0, &step, uses, hidden ? 0 : n);
	workload_energy_age(&e, wall_ns, 30);
}

static void world_save(void)
{
	w.rows = e.count;
	memcpy(w.row, e.row, e.count * sizeof(*e.row));
	w.gpu = e.gpu[0];
	w.saved = true;
}

/* Simulates kill -9 and a restart: the counter keeps its value from the last tick, but the rows go
 * back to the last save. */
static void world_restart(bool late)
{
	const double counter = w.counter;

	workload_energy_done(&e);
	begin();
	process_energy_init(&w.share, NAN, NAN);
	if (late) { /* the store becomes readable after some ticks */
		w.counter = w.counter_s = 0;
		for (unsigned i = 0; i < 5; i++) {
			w.counter += (double)(next(&w.s) % 100);
			w.counter_s++;
			world_tick((5000 + i) * S);
			assert_closes(0, w.counter);
		}
		process_energy_shift(&w.share, counter, 0);
		w.counter += counter;
	}
	workload_energy_restore(&e, 0, w.saved ? &w.gpu : NULL, counter);
	for (unsigned i = 0; i < w.rows; i++)
		workload_energy_restore_row(&e, &w.row[i]);
	if (w.saved || late)
		assert_closes(0, w.counter);
}

TEST(rows_and_rests_add_up_to_the_counter_whatever_happens)
{
	memset(&w, 0, sizeof(w));
	w.s = seed_of_run();
	begin();
	process_energy_init(&w.share, NAN, NAN);
	for (unsigned t = 0; t < 4000; t++) {
		const unsigned dice = (unsigned)(next(&w.s) % 1000);

		world_processes();
		w.counter += (double)(next(&w.s) % 100000) / 100;
		w.counter_s++;
		if (dice < 5)
			w.counter *= (double)(next(&w.s) % 100) / 100; /* the counter fell */
		world_tick((10000 + t) * S);
		assert_closes(0, w.counter);
		assert_true(e.count <= WORKLOAD_ROWS_MAX);
		if (t % 10 == 0)
			world_save();
		if (dice >= 5 && dice < 15) /* perhaps the counter fell after the last save */
			world_restart(dice < 10);
	}
	workload_energy_done(&e);
}

TEST_MAIN(NULL, NULL)
