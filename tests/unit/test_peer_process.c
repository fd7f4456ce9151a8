/* Tests which process is meant by a pid that a peer sent, and which peer may register it as a
 * game. */
#include "daemon/peer_process.h"

#include "tree.h"
#include "test.h"

#include <gpuward.h>

static struct tree t;
static char message[256];

static void process(int pid, const char *flags, int uid, const char *numbers)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "proc/%d/stat", pid);
	snprintf(text, sizeof(text),
		 "%d (a (b) c) S 1 1 1 0 -1 %s 1 2 3 4 5 6 7 8 20 0 1 0 %d 1000 2000\n", pid,
		 flags, 100 + pid);
	tree_put(&t, path, text);
	snprintf(path, sizeof(path), "proc/%d/status", pid);
	snprintf(text, sizeof(text),
		 "Name:\tx\nTgid:\t%d\nPid:\t%d\nPPid:\t1\nUid:\t%d\t%d\t%d\t%d\nNSpid:\t%s\n",
		 pid, pid, uid, uid, uid, uid, numbers);
	tree_put(&t, path, text);
}

static int setup(void **state)
{
	tree_init(&t);
	process(1, "4194560", 0, "1");
	process(7, "2129984", 0, "7");             /* kworker */
	process(50, "4194560", 1000, "50");        /* of a user */
	process(60, "4194560", 1001, "60");        /* of another user */
	process(70, "4194560", 1000, "70\t7");     /* in a container; its pid there is 7 */
	process(80, "4194560", 1000, "80\t12\t1"); /* in nested containers: pid 12, then 1 */
	return 0;
}

static int teardown(void **state)
{
	tree_done(&t);
	return 0;
}

static int find(int64_t named, int64_t peer, int64_t *ret)
{
	uint64_t start = 0;
	int err = peer_process_find(&t.root, named,
				    &(struct guard_client){ "uid 1000", 1000, peer, 0, NULL },
				    ret, &start, message, sizeof(message));

	if (!err)
		assert_int_equal(start, 100 + *ret);
	return err;
}

TEST(a_pid_is_read_in_the_namespace_of_the_peer)
{
	const struct {
		/* `is`: the pid in our namespace; 0: the pid must be refused */
		int64_t named, peer, is;
		const char *says;
	} rows[] = {
		{ 50, -1, 50, NULL },
		{ 50, 60, 50, NULL }, /* a peer in our namespace may name another process */
		{ 7, 70, 70, NULL },  /* a peer in a container may name itself */
		{ 1, 80, 80, NULL },  /* the first process of its container */
		{ 50, 70, 0,
		  "another PID namespace" }, /* not the process that the peer means */
		{ 7, 0, 0,
		  "another PID namespace" }, /* the peer is in a namespace above ours */
		{ 99, -1, 0, "sees no process 99" },
		{ 7, -1, 0, "kernel thread" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t pid = 0;
		int err = find(rows[i].named, rows[i].peer, &pid);

		assert_int_equal(err, rows[i].is ? 0 : -GW_E_ARG);
		if (rows[i].is)
			assert_int_equal(pid, rows[i].is);
		else
			assert_in(message, rows[i].says);
	}
}

TEST(a_pid_of_another_process_here_is_refused)
{
	uint64_t start;
	int64_t pid;

	assert_int_equal(peer_process_find(&t.root, 50,
					   &(struct guard_client){ "token", -1, -1, 150, NULL },
					   &pid, &start, message, sizeof(message)),
			 0);
	assert_int_equal(peer_process_find(&t.root, 50,
					   &(struct guard_client){ "token", -1, -1, 151, NULL },
					   &pid, &start, message, sizeof(message)),
			 -GW_E_ARG);
	assert_in(message, "UNIX socket");
}

/* Returns 0 if this user may register this pid as a game; the client's name has no effect. */
static int plays(int64_t pid, int64_t uid)
{
	return peer_process_game(&t.root, pid,
				 &(struct guard_client){ "uid 7: steam", uid, -1, 0, NULL },
				 message, sizeof(message));
}

TEST(only_owner_root_and_token_may_register_a_game)
{
	assert_int_equal(plays(50, 1000), 0);
	assert_int_equal(plays(60, 1000), -GW_E_PERM);
	assert_in(message, "does not belong to uid 1000");
	assert_int_equal(plays(60, 0), 0);
	assert_int_equal(plays(60, -1), 0);
}

TEST(init_and_the_service_own_no_game_and_no_reservation)
{
	int64_t pid;

	assert_int_equal(find(1, -1, &pid), -GW_E_ARG);
	assert_in(message, "process 1 is init");
	process(getpid(), "4194560", 0, "4711");
	assert_int_equal(find(getpid(), -1, &pid), -GW_E_ARG);
	assert_in(message, "is gpuward itself");
}

TEST_MAIN(setup, teardown)
