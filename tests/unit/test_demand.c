/* Tests the demand predicate: which process counts, from when, and how much memory it will
 * take. */
#include "guard/demand.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#define S   NS_PER_S
#define MS  NS_PER_MS
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct place {
	struct demand d;
	struct policy p;
	struct scene s;
	struct verdict v[SCENE_PROCESSES];
};

static struct place *begin(uint64_t total, uint64_t used)
{
	struct place *o = calloc(1, sizeof(*o));

	assert_non_null(o);
	policy_init(&o->p);
	o->p.unknown_contends = true;
	o->p.rules = 1;
	o->p.rule[0] = (struct policy_rule){ .match = { .name = "now*", .uid = -1 },
					     .action = GUARD_CONTEND_NOW,
					     .text = "now" };
	o->p.workers = 1;
	policy_worker_init(&o->p.worker[0]);
	o->p.worker[0].name = o->p.worker[0].match.name = "w0";
	o->s.mono_ns = 100 * S;
	o->s.gpus = 1;
	o->s.gpu[0] = (struct scene_gpu){ .uuid = "GPU-0",
					  .total_bytes = total,
					  .used_bytes = used,
					  .free_bytes = total - used,
					  .memory_known = true };
	return o;
}

static struct scene_process *add(struct place *o, const char *name, int64_t pid, uint64_t bytes)
{
	struct scene_process *p = &o->s.process[o->s.processes++];

	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->id.pid = pid;
	p->id.start_ticks = 5;
	p->bytes = bytes;
	p->bytes_known = true;
	p->sm_ratio = NAN;
	p->type = GW_PROCESS_COMPUTE;
	return p;
}

static struct demand_case look(struct place *o, uint64_t later_ns)
{
	struct demand_case c;

	o->s.mono_ns += later_ns;
	classify(&o->p, &o->s, o->v);
	demand_observe(&o->d, &o->s, o->v);
	demand_judge(&o->d, &o->p, &o->p.standard, &o->s, o->v, 0, &c);
	return c;
}

TEST(memory_counts_from_the_threshold_on)
{
	struct place *o = begin(24 * GIB, GIB);
	struct scene_process *p = add(o, "job", 7, 512 * MIB - 1);

	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	p->bytes++;
	assert_int_equal(look(o, S).kind, DEMAND_MEMORY);
	p->bytes_known = false; /* unknown memory does not count */
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	free(o);
}

TEST(only_recent_utilisation_is_demand)
{
	struct place *o = begin(24 * GIB, GIB);
	struct scene_process *p = add(o, "job", 7, 20 * MIB);
	struct demand_case c;

	p->sm_ratio = 0.09;
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	p->sm_ratio = 0.5;
	c = look(o, S);
	assert_int_equal(c.kind, DEMAND_UTILISATION);
	assert_in(c.evidence, "pid 7 job 20 MiB 50 % on GPU-0, free 23552 MiB");
	p->sm_ratio = NAN; /* utilisation was not read this time */
	assert_int_equal(look(o, 2 * S).kind, DEMAND_UTILISATION);
	assert_int_equal(look(o, 2 * S).kind, DEMAND_NONE);
	p->sm_ratio = 0.5;
	p->bytes_known = false; /* unknown memory counts if the process uses the GPU */
	assert_int_equal(look(o, S).kind, DEMAND_UTILISATION);
	free(o);
}

TEST(small_processes_are_demand_while_they_are_new_or_grow_and_memory_is_low)
{
	struct place *o = begin(12 * GIB, 11 * GIB);
	struct scene_process *p;

	assert_int_equal(look(o, 0).kind, DEMAND_NONE);
	p = add(o, "job", 7, 14 * MIB);
	assert_int_equal(look(o, S).kind, DEMAND_PRESSURE);
	assert_int_equal(look(o, 9 * S).kind, DEMAND_PRESSURE);
	assert_int_equal(look(o, 2 * S).kind, DEMAND_NONE);
	p->bytes += 5 * MIB;
	assert_int_equal(look(o, S).kind, DEMAND_NONE); /* noise */
	p->bytes += 40 * MIB;
	assert_int_equal(look(o, S).kind, DEMAND_PRESSURE);
	o->s.gpu[0].free_bytes = 4 * GIB;
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	free(o);
}

TEST(a_contender_that_was_there_before_the_guard_is_not_new)
{
	struct place *o = begin(12 * GIB, 11 * GIB);

	add(o, "terminal", 7, 38 * MIB);
	assert_int_equal(look(o, 0).kind, DEMAND_NONE);
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	free(o);
}

TEST(a_program_that_was_small_before_is_no_demand)
{
	struct place *o = begin(12 * GIB, 11 * GIB);

	look(o, 0);
	add(o, "tool", 7, 100 * MIB);
	/* the program was never seen before */
	assert_int_equal(look(o, S).kind, DEMAND_PRESSURE);
	o->s.processes = 0;
	look(o, S);
	add(o, "tool", 8, 100 * MIB);
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	o->s.process[0].bytes = 300 * MIB; /* now the process is larger than before */
	assert_int_equal(look(o, S).kind, DEMAND_PRESSURE);
	free(o);
}

TEST(with_any_a_hidden_process_that_may_be_the_worker_is_no_demand)
{
	struct place *o = begin(24 * GIB, GIB);
	struct scene_process *p = add(o, "python3", 7, 6 * GIB);

	o->p.any = true;
	p->veiled = true;
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	p->veiled = false;
	assert_int_equal(look(o, S).kind, DEMAND_MEMORY);
	p->bytes = MIB;
	assert_int_equal(look(o, S).kind, DEMAND_ANY);
	free(o);
}

TEST(what_a_program_took_before_is_what_it_will_take)
{
	struct place *o = begin(24 * GIB, GIB);

	add(o, "render", 7, 6 * GIB);
	assert_true(look(o, 0).more_bytes == UINT64_MAX);
	o->s.process[0].bytes = 9 * GIB;
	look(o, S);
	o->s.processes = 0;
	look(o, S);
	add(o, "render", 8, GIB);
	assert_int_equal(look(o, S).more_bytes, 8 * GIB);
	o->p.any = true; /* with `any`, the size of the contender does not matter */
	assert_true(look(o, S).more_bytes == UINT64_MAX);
	o->p.any = false;
	assert_int_equal(look(o, S).more_bytes, 8 * GIB);
	add(o, "other", 9, GIB); /* the size of one of the two contenders is unknown */
	assert_true(look(o, S).more_bytes == UINT64_MAX);
	free(o);
}

TEST(a_program_that_takes_more_than_ever_before_is_unknown)
{
	struct place *o = begin(24 * GIB, GIB);
	struct scene_process *p = add(o, "job", 7, 7 * GIB);

	assert_true(look(o, S).more_bytes == UINT64_MAX); /* first run of the program */
	o->s.processes = 0;
	look(o, S);
	p = add(o, "job", 8, GIB);
	assert_true(look(o, S).more_bytes == 6 * GIB);
	p->bytes = 7 * GIB + 512 * MIB; /* slightly more than before, as runs differ */
	assert_true(look(o, S).more_bytes == 0);
	p->bytes = 13 * GIB;
	assert_true(look(o, S).more_bytes == UINT64_MAX);
	o->s.processes = 0;
	look(o, S);
	add(o, "job", 9, GIB);
	assert_true(look(o, S).more_bytes == 12 * GIB);
	free(o);
}

/* Runs exe with this command line and this much memory until it ends. */
static void lived(struct place *o, const char *exe, const char *command, uint64_t bytes)
{
	struct scene_process *p = add(o, strrchr(exe, '/') + 1, 7, bytes);

	snprintf(p->exe, sizeof(p->exe), "%s", exe);
	snprintf(p->command, sizeof(p->command), "%s", command);
	look(o, S);
	o->s.processes = 0;
	look(o, S);
}

TEST(scripts_of_one_interpreter_are_programs_of_their_own)
{
	static const struct {
		const char *exe, *first, *second;
		bool known;
	} row[] = {
		{ "/usr/bin/python3.11", "python3 a.py", "python3 a.py", true },
		{ "/usr/bin/python3.11", "python3 a.py", "python3 b.py", false },
		{ "/usr/bin/python3.11", "", "", false },
		{ "/opt/wine/bin/wine64-preloader", "a.exe", "b.exe", false },
		{ "/usr/bin/bash", "bash a", "bash b", false },
		{ "/usr/bin/javascriptish", "a", "b", true },
		{ "/opt/game", "game --new", "game --load 7", true },
	};

	for (unsigned i = 0; i < COUNT_OF(row); i++) {
		struct place *o = begin(24 * GIB, GIB);
		struct scene_process *p;

		lived(o, row[i].exe, row[i].first, 8 * GIB);
		p = add(o, strrchr(row[i].exe, '/') + 1, 8, 4 * GIB);
		snprintf(p->exe, sizeof(p->exe), "%s", row[i].exe);
		snprintf(p->command, sizeof(p->command), "%s", row[i].second);
		assert_true(look(o, S).more_bytes == (row[i].known ? 4 * GIB : UINT64_MAX));
		free(o);
	}
}

TEST(after_a_failed_reading_processes_are_not_considered_ended)
{
	struct place *o = begin(12 * GIB, 11 * GIB);

	look(o, 0);
	add(o, "job", 7, 14 * MIB);
	look(o, S);
	o->s.processes = 0;
	o->s.gpu[0].errors = 1;
	look(o, S);
	assert_int_equal(o->d.lives, 1);
	o->s.gpu[0].errors = 0;
	look(o, S);
	assert_int_equal(o->d.lives, 0);
	free(o);
}

TEST(games_and_unattributed_memory_are_demand)
{
	struct place *o = begin(24 * GIB, 2 * GIB);
	struct demand_case c;

	assert_int_equal(look(o, 0).kind, DEMAND_NONE);
	o->p.by_unattributed = true;
	c = look(o, S);
	assert_int_equal(c.kind, DEMAND_UNATTRIBUTED);
	assert_in(c.evidence, "2048 MiB on GPU-0");
	/* now 1.5 GiB of the memory are known to be the worker's */
	add(o, "w0", 7, 2 * GIB - 512 * MIB);
	assert_int_equal(look(o, S).kind, DEMAND_NONE);
	o->s.game_clients = 1;
	c = look(o, S);
	assert_int_equal(c.kind, DEMAND_GAME);
	assert_true(c.urgent);
	free(o);
}

TEST(only_some_demand_is_urgent)
{
	struct place *o = begin(24 * GIB, 2 * GIB);

	add(o, "job", 7, GIB);
	assert_false(look(o, 0).urgent);
	o->s.process[0].type = GW_PROCESS_GRAPHICS;
	assert_true(look(o, S).urgent);
	o->s.process[0].type = GW_PROCESS_COMPUTE;
	add(o, "now", 8, MIB);
	assert_true(look(o, S).urgent);
	assert_int_equal(look(o, S).kind, DEMAND_NOW);
	free(o);
}

TEST(demand_is_sure_after_enough_scenes_and_time)
{
	struct policy p;
	const struct {
		enum demand_kind kind;
		uint64_t held_ns;
		unsigned looks;
		bool sure;
	} row[] = {
		{ DEMAND_MEMORY, 300 * MS, 2, false },
		{ DEMAND_MEMORY, 299 * MS, 9, false },
		{ DEMAND_MEMORY, 300 * MS, 3, true },
		{ DEMAND_PRESSURE, 300 * MS, 3, true },
		{ DEMAND_UTILISATION, S - 1, 20, false },
		{ DEMAND_UTILISATION, S, 3, true },
		{ DEMAND_NOW, 0, 1, true },
		{ DEMAND_NONE, 9 * S, 99, false },
	};

	policy_init(&p);
	for (unsigned i = 0; i < COUNT_OF(row); i++) {
		struct demand_case c = { .kind = row[i].kind };

		assert_int_equal(demand_sure(&c, &p.standard, row[i].held_ns, row[i].looks),
				 row[i].sure);
	}
}

TEST(names_of_the_world_are_made_printable)
{
	struct place *o = begin(24 * GIB, 2 * GIB);
	struct demand_case c;

	add(o, "\x1b[31m;rm -rf\n%s", 7, GIB);
	c = look(o, 0);
	assert_string_equal(c.contender.name, "?[31m;rm -rf?%s");
	for (const char *p = c.evidence; *p; p++)
		assert_in_range((unsigned char)*p, ' ', '~');
	free(o);
}

TEST(a_storm_of_processes_stays_in_its_bounds)
{
	struct place *o = begin(24 * GIB, 2 * GIB);
	char name[16];

	for (unsigned round = 0; round < 20; round++) {
		o->s.processes = 0;
		for (unsigned i = 0; i < SCENE_PROCESSES; i++) {
			snprintf(name, sizeof(name), "p%u", round * 1000 + i % 400);
			add(o, name, 10 + round * 2000 + i, MIB);
		}
		look(o, 100 * MS);
		assert_int_equal(o->d.lives, SCENE_PROCESSES);
	}
	o->s.processes = 0;
	look(o, S);
	assert_int_equal(o->d.lives, 0);
	free(o);
}

TEST_MAIN(NULL, NULL)
