#include "daemon/guard_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SECOND   UINT64_C(1000000000)

static void make_policy(struct policy *p)
{
	policy_init(p);
	p->mode = GUARD_ENFORCE;
	policy_worker_init(&p->worker[0]);
	p->worker[0].name = "one";
	p->worker[0].kind = WORKER_EXEC;
	p->workers = 1;
}

/* Feeds every line of text; the first error. */
static int feed(struct guard_trace *t, char *text)
{
	int err = 0;

	for (char *line = strtok(text, "\n"); line && !err; line = strtok(NULL, "\n"))
		err = guard_trace_line(t, line);
	return err;
}

static void what_is_written_is_read(void **state)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct scene *s = calloc(1, sizeof(*s));
	struct guard_trace *t;
	struct guard_decision d;
	struct buf out;
	uint64_t wall_ns;
	bool held = false;

	(void)state;
	make_policy(p);
	buf_init(&out, 1 << 20);
	guard_trace_begin(&out, 0);
	s->mono_ns = SECOND;
	s->wall_ns = 100 * SECOND;
	scene_write(&out, s);
	guard_trace_ask(&out, 0, ASK_HOLD_EVICTED, UINT64_MAX, 2 * SECOND);
	guard_trace_outcome(
		&out, &(struct guard_outcome){ .order = 1, .ok = true, .message = "a\tb" },
		2 * SECOND);
	guard_trace_reason(&out, "GPU-1", REASON_THERMAL, true, "hot", 3 * SECOND);
	guard_trace_trust(&out, "GPU-1", 3 * SECOND);
	guard_trace_heat(&out, "GPU-1", HEAT_WARM, "warm", 3 * SECOND);
	guard_trace_reserve(&out, NULL, 1 << 20, 7, 0, 3 * SECOND);
	guard_trace_release(&out, 9, 4 * SECOND);
	guard_trace_games(&out, 2, 4 * SECOND);
	guard_trace_economy(&out, 0, UINT64_MAX, 43, (double)NAN, 4 * SECOND);
	guard_trace_economy(&out, 7, 60 * SECOND, 43, 2000, 4 * SECOND);
	assert_int_equal(out.err, 0);
	assert_int_equal(guard_trace_new(p, false, &t), 0);
	assert_int_equal(feed(t, out.p), 0);
	while (guard_trace_decision(t, &d, &wall_ns))
		if (strcmp(d.rule, "hold evicted") == 0) {
			held = true;
			assert_int_equal(wall_ns, 101 * SECOND);
		}
	assert_true(held);
	assert_int_equal(guard_trace_counts(t).scenes, 1);
	assert_int_equal(guard_trace_counts(t).runs, 1);
	guard_trace_free(t);
	buf_done(&out);
	free(s);
	free(p);
}

/* The guard that wrote it had given numbers before; the one that reads it begins with 1. */
static void numbers_of_a_later_run_are_those_of_its_own(void **state)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct scene *s = calloc(1, sizeof(*s));
	struct guard_trace *t;
	struct guard_room room;
	struct buf out;

	(void)state;
	make_policy(p);
	buf_init(&out, 1 << 20);
	guard_trace_begin(&out, 100);
	s->mono_ns = SECOND;
	s->gpus = 1;
	snprintf(s->gpu[0].uuid, sizeof(s->gpu[0].uuid), "GPU-1");
	s->gpu[0].memory_known = true;
	s->gpu[0].total_bytes = s->gpu[0].free_bytes = UINT64_C(1) << 34;
	scene_write(&out, s);
	guard_trace_reserve(&out, NULL, 1 << 20, 7, 0, 3 * SECOND);
	guard_trace_reserve(&out, NULL, 1 << 21, 7, 0, 3 * SECOND);
	guard_trace_release(&out, 101, 4 * SECOND);
	guard_trace_release(&out, 2, 4 * SECOND); /* of the run before */
	assert_int_equal(guard_trace_new(p, false, &t), 0);
	assert_int_equal(feed(t, out.p), 0);
	assert_true(guard_room(guard_trace_guard(t), 0, &room));
	assert_int_equal(room.id, 0);
	assert_true(guard_room(guard_trace_guard(t), 1, &room));
	assert_int_equal(room.id, 2);
	guard_trace_free(t);
	buf_done(&out);
	free(s);
	free(p);
}

static void lines_that_say_nothing_are_refused(void **state)
{
	static const char *const lines[] = {
		"begin\t2",
		"heat\t1\tGPU-1\t4\twhy",
		"heat\t1\tGPU-1\t1",
		"trust\tnow\tGPU-1",
		"trust\t1",
		"begin\t1\tlate",
		"begin\t12",
		"hello",
		"outcome",
		"outcome\t1\t2\t1\t0\t0",
		"outcome\t1\t2\tyes\t0\t0\tdone",
		"outcome\t-1\t2\t1\t0\t0\tdone",
		"ask\t1\t0\t99\t0",
		"ask\t1\t0\t0",
		"for\t1",
		"for\t1\troot",
		"reason\t1\tGPU-1\t99\t1\thot",
		"reserve\t1\tmuch\t0\t0\t",
		"release\t1",
		"release\t1\t2\t3",
		"release\t1\t2\t3\t4\t5\t6\t7\t8\t9",
		"G\tGPU-1",
	};
	struct policy *p = calloc(1, sizeof(*p));
	struct guard_trace *t;

	(void)state;
	make_policy(p);
	assert_int_equal(guard_trace_new(p, false, &t), 0);
	for (size_t i = 0; i < COUNT(lines); i++)
		if (guard_trace_line(t, lines[i]) != -GW_E_PARSE)
			fail_msg("'%s' was taken", lines[i]);
	assert_int_equal(guard_trace_line(t, ""), 0);
	guard_trace_free(t);
	free(p);
}

static void who_asked_too_often_is_refused_again(void **state)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct guard_decision d;
	struct guard_trace *t;
	struct buf out;
	uint64_t wall_ns;
	unsigned evicted = 0;

	(void)state;
	make_policy(p);
	p->user_evictions = 1;
	buf_init(&out, 1 << 16);
	guard_trace_begin(&out, 0);
	for (uint64_t i = 1; i <= 3; i++) {
		guard_trace_for(&out, 1000, i * SECOND);
		guard_trace_ask(&out, 0, ASK_EVICT, 0, i * SECOND);
	}
	assert_int_equal(guard_trace_new(p, false, &t), 0);
	assert_int_equal(feed(t, out.p), 0);
	while (guard_trace_decision(t, &d, &wall_ns))
		evicted += strcmp(d.rule, "evict command") == 0;
	assert_int_equal(evicted, 1);
	guard_trace_free(t);
	buf_done(&out);
	free(p);
}

static void a_worker_that_is_not_there_any_more_was_not_asked(void **state)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct guard_trace *t;
	struct guard_decision d;
	uint64_t wall_ns;

	(void)state;
	make_policy(p);
	assert_int_equal(guard_trace_new(p, true, &t), 0);
	assert_int_equal(guard_trace_line(t, "ask\t5\t3\t0\t0"), 0);
	assert_false(guard_trace_decision(t, &d, &wall_ns));
	guard_trace_free(t);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(numbers_of_a_later_run_are_those_of_its_own),
		cmocka_unit_test(lines_that_say_nothing_are_refused),
		cmocka_unit_test(who_asked_too_often_is_refused_again),
		cmocka_unit_test(a_worker_that_is_not_there_any_more_was_not_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
