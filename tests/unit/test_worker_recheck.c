/* Tests whether a process still belongs to its worker, in a small /proc. */
#include "tree.h"

#include "guard/worker/common.h"

#include "guard/process_cache.h"

#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "test.h"

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
	tree_init(&tree);
	memset(&worker, 0, sizeof(worker));
	worker.match.uid = -1;
	call = (struct worker_call){ .worker = &worker, .root = &tree.root };
	put_process(500, 50, "python3 serve");
	target = (struct guard_target){ .id.pid = 500, .id.start_ticks = 50, .itself = true };
	assert_int_equal(process_cache_fingerprint(&tree.root, 500, &target.print), 0);
	return 0;
}

static int end(void **state)
{
	tree_done(&tree);
	return 0;
}

TEST(a_process_that_does_not_match_does_not_belong)
{
	worker.match.command = "serve";
	assert_true(worker_process_belongs(&call, &target));
	assert_true(worker_process_matches(&call, &target));
	put_process(500, 50, "python3 game");
	assert_false(worker_process_belongs(&call, &target));
	assert_false(worker_process_matches(&call, &target));
	put_process(500, 51, "python3 serve"); /* another process with the same pid */
	assert_false(worker_process_belongs(&call, &target));
}

TEST(a_process_below_a_root_may_be_any_program)
{
	worker.match.command = "serve";
	target.itself = false;
	put_process(500, 50, "python3 runner");
	assert_true(worker_process_belongs(&call, &target));
}

TEST(an_unreadable_process_does_not_belong_now)
{
	worker.match.command = "serve";
	tree_remove(&tree, "proc/500");
	assert_false(worker_process_belongs(&call, &target));
}

TEST(a_process_named_by_the_pidfile_belongs)
{
	worker.match.pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 50, "python3 serve: 17 requests");
	assert_true(worker_process_belongs(&call, &target));
	worker.match.command = "serve"; /* the other conditions must still match */
	put_process(500, 50, "python3 game");
	assert_false(worker_process_belongs(&call, &target));
}

TEST(a_process_does_not_belong_if_others_can_write_the_pidfile)
{
	worker.match.pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	assert_true(worker_process_belongs(&call, &target));
	assert_int_equal(fchmodat(tree.root.fd, "run", 0777, 0), 0);
	assert_false(worker_process_belongs(&call, &target));
}

TEST(a_process_does_not_belong_if_the_pidfile_names_another)
{
	worker.match.pidfile = "/run/w.pid";
	put_process(600, 60, "python3 serve");
	tree_put(&tree, "run/w.pid", "600\n");
	assert_false(worker_process_belongs(&call, &target));
}

TEST(with_an_empty_pidfile_it_must_be_the_same_program)
{
	worker.match.pidfile = "/run/w.pid";
	assert_true(worker_process_belongs(&call, &target));
	tree_put(&tree, "run/w.pid", "");
	assert_true(worker_process_belongs(&call, &target));
	tree_put(&tree, "run/w.pid", "4000000\n");
	assert_true(worker_process_belongs(&call, &target));
	put_process(500, 50, "python3 game");
	assert_false(worker_process_belongs(&call, &target));
	target.print = 0;
	assert_false(worker_process_belongs(&call, &target));
}

TEST(a_process_that_closed_its_port_belongs_only_if_its_program_is_the_same)
{
	worker.match.port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	put_process(500, 50, "python3 serve: 17 requests");
	assert_true(worker_process_belongs(&call, &target));
	tree_put(&tree, "proc/500/fd/3", "-> pipe:[333]");
	assert_false(worker_process_belongs(&call, &target));
	put_process(500, 50, "python3 serve");
	assert_true(worker_process_belongs(&call, &target));
}

TEST_MAIN(NULL, NULL)
