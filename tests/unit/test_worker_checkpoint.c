/* Tests checkpoints of real processes, with a libcuda that follows the driver's rules. */
#include "fake_checkpoint/fake_checkpoint.h"
#include "tree.h"

#include "guard/worker.h"
#include "guard/worker/checkpoint.h"

#include "base/clock.h"

#include "device/proc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SETUP each
#include "test.h"

#define CHILDREN 3

static struct fake_checkpoint *fake;
static struct root root;
static pid_t child[CHILDREN];
static struct policy_worker worker;
static struct guard_order order;
static char notes[WORKER_NOTES_SIZE], message[200];
static struct worker_call call;

static int setup(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	fake = library ? dlsym(library, "fake_checkpoint") : NULL;
	for (unsigned i = 0; i < CHILDREN; i++) {
		child[i] = fork();
		if (child[i] == 0)
			for (;;)
				pause();
	}
	return fake && root_open(&root, NULL) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	for (unsigned i = 0; i < CHILDREN; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	root_close(&root);
	return 0;
}

static int each(void **state)
{
	memset(fake, 0, sizeof(*fake));
	memset(&order, 0, sizeof(order));
	for (unsigned i = 0; i < CHILDREN; i++) {
		fake->process[i].pid = child[i];
		order.target[i].id.pid = child[i];
		if (proc_start_ticks(&root, child[i], &order.target[i].id.start_ticks) != 0)
			return -1;
	}
	order.targets = 1;
	order.level = 3;
	order.bytes = 1 << 20;
	notes[0] = '\0';
	worker = (struct policy_worker){ .name = "w", .kind = WORKER_CHECKPOINT };
	call = (struct worker_call){ .worker = &worker,
				     .order = &order,
				     .notes = notes,
				     .notes_size = sizeof(notes),
				     .message = message,
				     .message_size = sizeof(message),
				     .deadline_ns = clock_mono_ns(clock_real()) + 5 * NS_PER_S,
				     .facts = { 1, 0, 0 },
				     .root = &root };
	return 0;
}

static int evict(void)
{
	return worker_all.of(WORKER_CHECKPOINT)->evict(&call);
}

static int resume(void)
{
	return worker_all.of(WORKER_CHECKPOINT)->resume(&call);
}

TEST(a_process_is_checkpointed_and_restored)
{
	assert_int_equal(evict(), 0);
	assert_int_equal(fake->process[0].state, 2);
	assert_true(fake->timeout_ms > 1000 && fake->timeout_ms <= 5000);
	order.targets = 0; /* the driver does not list the process now */
	assert_int_equal(resume(), 0);
	assert_int_equal(fake->process[0].state, 0);
	assert_string_equal(fake->calls, "lock 0, checkpoint 0, restore 0, unlock 0, ");
	assert_int_equal(fake->process[1].state, 0);
}

TEST(the_order_alone_is_enough_to_restore)
{
	assert_int_equal(evict(), 0);
	notes[0] = '\0';
	assert_int_equal(resume(), 0);
	assert_int_equal(fake->process[0].state, 0);
}

TEST(an_eviction_made_twice_does_nothing_more)
{
	assert_int_equal(evict(), 0);
	assert_int_equal(evict(), 0);
	assert_string_equal(fake->calls, "lock 0, checkpoint 0, ");
	assert_int_equal(fake->process[0].state, 2);
}

TEST(a_checkpoint_that_cannot_succeed_is_refused_before_any_call)
{
	static const struct {
		struct worker_facts facts;
		unsigned targets;
		uint64_t bytes;
		const char *words;
	} rows[] = {
		{ { 0, 0, 0 }, 1, 1, "persistence mode is off" },
		{ { -1, 0, 0 }, 1, 1, "is unknown" },
		{ { 1, 1, 0 }, 1, 1, "MPS" },
		{ { 1, 0, 1 }, 1, 1, "MIG" },
		{ { 1, 0, 0 }, 0, 1, "none of its processes" },
		{ { 1, 0, 0 }, 2, 1, "several of its processes" },
		{ { 1, 0, 0 }, 1, UINT64_C(1) << 60, "GiB of host memory, and only" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		call.facts = rows[i].facts;
		order.targets = rows[i].targets;
		order.bytes = rows[i].bytes;
		assert_int_equal(evict(), -GW_E_NOSUPPORT);
		assert_in(message, rows[i].words);
	}
	call.facts = (struct worker_facts){ 1, 0, 0 };
	order.targets = 1;
	order.bytes = 1;
	order.more = true;
	assert_int_equal(evict(), -GW_E_NOSUPPORT);
	assert_in(message, "the journal can record only 64");
	order.more = false;
	assert_string_equal(fake->calls, "");
	assert_string_equal(notes, "");
}

/* A control group with 10 GiB on a machine with 64 GiB free. */
TEST(a_limit_of_its_control_group_counts_as_host_memory)
{
#define GIB (UINT64_C(1) << 30)
	static const struct tree_row rows[] = {
		{ "proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable:   67108864 kB\n" },
		{ "proc/4711/stat",
		  "4711 (w) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2\n" },
		{ "proc/4711/status", "Name:\tw\nTgid:\t4711\nPid:\t4711\n" },
		{ "proc/4711/cgroup", "0::/box/inner\n" },
		{ "sys/fs/cgroup/box/inner/memory.max", "max\n" },
		{ "sys/fs/cgroup/box/inner/memory.current", "1\n" },
		{ "sys/fs/cgroup/box/memory.max", "10737418240\n" },
		{ "sys/fs/cgroup/box/memory.current", "9663676416\n" },
		{ "sys/fs/cgroup/box/memory.stat",
		  "anon 5\nfile 4294967296\ninactive_file 7\n" },
		{ 0 },
	};
	struct tree t;

	tree_init(&t);
	tree_fill(&t, "", rows);
	call.root = &t.root;
	fake->process[0].pid = 4711;
	order.target[0].id.pid = 4711;
	order.target[0].id.start_ticks = 987654;
	/* 6 GiB of GPU memory need 6.6 GiB of host memory (HOST_RATIO). Only 5 GiB are free: 1 GiB
	 * is unused, and 4 GiB are file cache. */
	order.bytes = 6 * GIB;
	assert_int_equal(evict(), -GW_E_NOSUPPORT);
	assert_in(message, "6.6 GiB");
	assert_in(message, "5.0 GiB are free");
	order.bytes = 4 * GIB;
	assert_int_equal(evict(), 0);
	tree_put(&t, "proc/meminfo", "nothing\n");
	assert_int_equal(evict(), -GW_E_NOSUPPORT);
	assert_in(message, "cannot be read");
	tree_done(&t);
}

TEST(all_are_locked_before_the_first_checkpoint)
{
	order.targets = 3;
	worker.level = 2;
	assert_int_equal(evict(), 0);
	assert_memory_equal(fake->calls, "lock 0, lock 1, lock 2, checkpoint ", 35);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fake->process[i].state, 2);
}

/* The fake driver ends no call before three are under way. */
TEST(the_processes_of_a_worker_are_moved_at_the_same_time)
{
	order.targets = 3;
	worker.level = 2;
	fake->together = 3;
	assert_int_equal(evict(), 0);
	fake->underway = 0;
	assert_int_equal(resume(), 0); /* the notes name each process a second time */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fake->process[i].state, 0);
	assert_int_equal(fake->underway, 3);
}

/* Makes an eviction of the second child on another thread. */
static int second_rc;
static char second_message[200];
static void *evict_second(void *arg)
{
	static char second_notes[WORKER_NOTES_SIZE];
	static struct guard_order second_order;
	struct worker_call second = call;

	(void)arg;
	second_order = order;
	second_order.target[0] = order.target[1];
	second.order = &second_order;
	second.notes = second_notes;
	second.message = second_message;
	second_rc = worker_all.of(WORKER_CHECKPOINT)->evict(&second);
	return NULL;
}

/* 10 GiB are free. The first checkpoint needs 6.6 GiB of them and waits in the driver. */
TEST(two_checkpoints_do_not_count_the_same_free_memory)
{
	struct tree t;
	char path[64], text[256];
	pthread_t thread;

	tree_init(&t);
	tree_put(&t, "proc/meminfo", "MemAvailable:   10485760 kB\n");
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "proc/%d/stat", child[i]);
		assert_true(root_read(&root, path, text, sizeof(text)) > 0);
		tree_put(&t, path, text);
	}
	call.root = &t.root;
	order.bytes = 6 * GIB;
	fake->together = 2;
	assert_int_equal(pthread_create(&thread, NULL, evict_second, NULL), 0);
	while (__atomic_load_n(&fake->underway, __ATOMIC_SEQ_CST) == 0)
		usleep(1000);
	/* the second checkpoint waits until the first has ended */
	assert_int_equal(evict(), -GW_E_STATE);
	assert_in(message, "other checkpoints that run now need 6.6 GiB");
	order.bytes = 1 * GIB; /* both checkpoints fit and run together */
	assert_int_equal(evict(), 0);
	pthread_join(thread, NULL);
	assert_int_equal(second_rc, 0);
	order.bytes = 6 * GIB;
	order.targets = 0;
	assert_int_equal(resume(), 0);
	order.targets = 1;
	assert_int_equal(evict(), 0); /* no checkpoint claims memory any more */
	tree_done(&t);
}

/* Evicts three processes, of which the second fails: all run again. */
static void check_undone(int want)
{
	order.targets = 3;
	worker.level = 2;
	assert_int_equal(evict(), want);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fake->process[i].state, 0);
}

TEST(a_failed_lock_leaves_none_locked)
{
	fake->process[1].fail_lock = 909;
	check_undone(-GW_E_TIMEOUT);
	assert_string_equal(fake->calls, "lock 0, lock 1, unlock 0, ");
}

TEST(managed_memory_fails_half_way_and_is_undone)
{
	fake->process[0].fail_put_away = 801;
	assert_int_equal(evict(), -GW_E_NOSUPPORT);
	assert_in(message, "managed");
	assert_string_equal(fake->calls, "lock 0, checkpoint 0, unlock 0, ");
	assert_int_equal(fake->process[0].state, 0);
}

TEST(a_failure_restores_the_processes_before_it)
{
	fake->process[1].fail_put_away = 999;
	check_undone(-GW_E_IO);
	assert_in(message, "999");
}

TEST(another_users_process_needs_root)
{
	fake->process[0].fail_state = 304;
	assert_int_equal(evict(), -GW_E_PERM);
	assert_in(message, "root");
	assert_string_equal(fake->calls, "");
}

TEST(a_reused_pid_is_not_touched)
{
	struct proc_id t = { child[0], order.target[0].id.start_ticks + 1 };

	order.target[0].id.start_ticks++;
	assert_int_equal(evict(), -GW_E_STATE);
	fake->process[0].state = 2;
	assert_int_equal(checkpoint_restore(&root, &t, 1, message, sizeof(message)), 0);
	assert_int_equal(fake->process[0].state, 2);
	assert_string_equal(fake->calls, "");
}

TEST(foreign_states_are_not_changed)
{
	for (int s = 1; s < 9; s++) {
		if (s == 2)
			continue;
		fake->process[0].state = s;
		assert_int_equal(evict(), -GW_E_STATE);
		assert_string_equal(fake->calls, "");
	}
	for (int s = 3; s < 9; s++) {
		fake->process[0].state = s;
		assert_int_equal(resume(), 0);
		assert_string_equal(fake->calls, "");
	}
}

TEST(recovery_restores_checkpointed_and_locked_processes)
{
	struct proc_id t[CHILDREN + 1];

	for (unsigned i = 0; i < CHILDREN; i++)
		t[i] = (struct proc_id){ child[i], order.target[i].id.start_ticks };
	t[CHILDREN] = (struct proc_id){ 0x7ffffff0, 5 }; /* has ended */
	fake->process[0].state = 2;
	fake->process[1].state = 1;
	fake->process[2].state = 0;
	assert_int_equal(checkpoint_restore(&root, t, CHILDREN + 1, message, sizeof(message)),
			 0);
	/* each process has its own thread, so only the order of the calls for 0 is certain */
	assert_int_equal(strlen(fake->calls), strlen("restore 0, unlock 0, unlock 1, "));
	assert_in(fake->calls, "unlock 1, ");
	assert_in(strstr(fake->calls, "restore 0, "), "unlock 0, ");
}

TEST(recovery_continues_after_a_failure)
{
	struct proc_id t[2];

	for (unsigned i = 0; i < 2; i++) {
		t[i] = (struct proc_id){ child[i], order.target[i].id.start_ticks };
		fake->process[i].state = 2;
	}
	fake->process[0].fail_restore = 2;
	assert_int_equal(checkpoint_restore(&root, t, 2, message, sizeof(message)), -GW_E_IO);
	assert_in(message, "restored: CUDA error 2");
	/* the process is still checkpointed and was not unlocked */
	assert_int_equal(fake->process[0].state, 2);
	assert_int_equal(fake->process[1].state, 0);
}

TEST(a_past_deadline_is_not_an_unlimited_lock)
{
	call.deadline_ns = 1;
	assert_int_equal(evict(), 0);
	assert_int_equal(fake->timeout_ms, 1);
	assert_int_equal(fake->process[0].state, 2); /* the checkpoint is complete, too */
}

TEST_MAIN(setup, teardown)
