/* Who is about to be signalled: is it still the worker's?  In a small /proc. */
#include "tree.h"

#include "guard/worker/recheck.h"

#include "guard/process_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TAIL "1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
#define TCP_HEAD \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
#define TCP_ROW                                                                             \
	"   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000" \
	"        0 333 1 0000000000000000 100 0 0 10 0\n"

static struct tree tree;
static struct policy_worker worker;
static struct guard_target target;
static struct worker_call call;

static void put_process(int64_t pid, unsigned start, const char *command)
{
	char folder[64], stat[256], status[64];
	const struct tree_row rows[] = { { "stat", stat },
					 { "status", status },
					 { "comm", "python3\n" },
					 { "exe", "-> /usr/bin/python3" },
					 { "cmdline", command },
					 { "cgroup", "0::/\n" },
					 { 0 } };

	snprintf(folder, sizeof(folder), "proc/%lld/", (long long)pid);
	snprintf(stat, sizeof(stat), "%lld (python3) S 1 " TAIL "%u 1 2\n", (long long)pid,
		 start);
	snprintf(status, sizeof(status), "Tgid:\t%lld\nUid:\t7\t7\t7\t7\n", (long long)pid);
	tree_fill(&tree, folder, rows);
}

static int begin(void **state)
{
	(void)state;
	tree_init(&tree);
	memset(&worker, 0, sizeof(worker));
	worker.match.uid = -1;
	call = (struct worker_call){ .worker = &worker, .root = &tree.root };
	put_process(500, 50, "python3 serve");
	target = (struct guard_target){ .pid = 500, .start_ticks = 50, .itself = true };
	assert_int_equal(process_cache_fingerprint(&tree.root, 500, &target.print), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	tree_done(&tree);
	return 0;
}

static void one_whose_match_fails_is_not(void **state)
{
	(void)state;
	worker.match.command = "serve";
	assert_true(recheck_belongs(&call, &target));
	assert_true(recheck_matches(&call, &target));
	put_process(500, 50, "python3 game");
	assert_false(recheck_belongs(&call, &target));
	assert_false(recheck_matches(&call, &target));
	put_process(500, 51, "python3 serve"); /* another of the same number */
	assert_false(recheck_belongs(&call, &target));
}

static void one_that_is_below_a_worker_may_be_any_program(void **state)
{
	(void)state;
	worker.match.command = "serve";
	target.itself = false;
	put_process(500, 50, "python3 runner");
	assert_true(recheck_belongs(&call, &target));
}

static void of_one_that_cannot_be_read_nothing_is_said(void **state)
{
	(void)state;
	worker.match.command = "serve";
	tree_remove(&tree, "proc/500");
	assert_false(recheck_belongs(&call, &target));
}

static void whom_its_pidfile_names_is_whatever_it_runs(void **state)
{
	(void)state;
	worker.match.pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 50, "python3 serve: 17 requests");
	assert_true(recheck_belongs(&call, &target));
	worker.match.command = "serve"; /* and the rest of the match */
	put_process(500, 50, "python3 game");
	assert_false(recheck_belongs(&call, &target));
}

static void one_whose_pidfile_names_another_is_not(void **state)
{
	(void)state;
	worker.match.pidfile = "/run/w.pid";
	put_process(600, 60, "python3 serve");
	tree_put(&tree, "run/w.pid", "600\n");
	assert_false(recheck_belongs(&call, &target));
}

static void while_its_pidfile_names_nobody_it_must_be_the_program_that_it_was(void **state)
{
	(void)state;
	worker.match.pidfile = "/run/w.pid";
	assert_true(recheck_belongs(&call, &target));
	tree_put(&tree, "run/w.pid", "");
	assert_true(recheck_belongs(&call, &target));
	tree_put(&tree, "run/w.pid", "4000000\n");
	assert_true(recheck_belongs(&call, &target));
	put_process(500, 50, "python3 game");
	assert_false(recheck_belongs(&call, &target));
	target.print = 0;
	assert_false(recheck_belongs(&call, &target));
}

static void one_that_listens_is_and_one_that_closed_its_port_must_be_who_it_was(void **state)
{
	(void)state;
	worker.match.port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	put_process(500, 50, "python3 serve: 17 requests");
	assert_true(recheck_belongs(&call, &target));
	tree_put(&tree, "proc/500/fd/3", "-> pipe:[333]");
	assert_false(recheck_belongs(&call, &target));
	put_process(500, 50, "python3 serve");
	assert_true(recheck_belongs(&call, &target));
}

#define row(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(one_whose_match_fails_is_not),
		row(one_that_is_below_a_worker_may_be_any_program),
		row(of_one_that_cannot_be_read_nothing_is_said),
		row(whom_its_pidfile_names_is_whatever_it_runs),
		row(one_whose_pidfile_names_another_is_not),
		row(while_its_pidfile_names_nobody_it_must_be_the_program_that_it_was),
		row(one_that_listens_is_and_one_that_closed_its_port_must_be_who_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
