/* Tests the set with real processes that live and end. */
#include "guard/process_cache.h"

#include "device/proc.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "test.h"

static struct root root;
static struct pidfd_set alive;

static int begin(void **state)
{
	assert_int_equal(root_open(&root, NULL), 0);
	pidfd_set_init(&alive, &root);
	return 0;
}

static int end(void **state)
{
	pidfd_set_done(&alive);
	root_close(&root);
	return 0;
}

static bool has_pidfds(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static pid_t child(uint64_t *ret_start)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	assert_int_equal(proc_start_ticks(&root, pid, ret_start), 0);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(a_process_is_in_the_set_until_it_ends)
{
	uint64_t start;
	pid_t pid = child(&start);

	if (!has_pidfds())
		skip();
	assert_false(pidfd_set_keep(&alive, (struct proc_id){ pid, start }));
	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	for (unsigned i = 0; i < 3; i++) {
		pidfd_set_poll(&alive);
		assert_true(pidfd_set_keep(&alive, (struct proc_id){ pid, start }));
		assert_false(pidfd_set_keep(&alive, (struct proc_id){ pid, start + 1 }));
	}
	end_child(pid);
	pidfd_set_poll(&alive);
	assert_false(pidfd_set_keep(&alive, (struct proc_id){ pid, start }));
}

TEST(a_zombie_has_ended)
{
	uint64_t start;
	pid_t pid = child(&start);
	siginfo_t info;

	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	pidfd_set_poll(&alive);
	assert_false(pidfd_set_keep(&alive, (struct proc_id){ pid, start }));
	waitpid(pid, NULL, 0);
}

TEST(a_reused_pid_is_not_added)
{
	uint64_t start;
	pid_t pid = child(&start);

	pidfd_set_add(&alive, (struct proc_id){ pid, start - 1 });
	assert_false(pidfd_set_keep(&alive, (struct proc_id){ pid, start - 1 }));
	assert_int_equal(alive.count, 0);
	end_child(pid);
}

TEST(a_process_that_is_not_asked_for_is_removed)
{
	uint64_t start;
	pid_t pid = child(&start);

	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	/* adding counts as a request, so only the second call removes the process */
	pidfd_set_poll(&alive);
	pidfd_set_poll(&alive);
	assert_int_equal(alive.count, 0);
	end_child(pid);
}

TEST(living_processes_are_found_in_any_order)
{
	enum { MANY = 20 };
	uint64_t start[MANY];
	pid_t pid[MANY];

	if (!has_pidfds())
		skip();
	for (unsigned i = 0; i < MANY; i++) {
		pid[i] = child(&start[i]);
		pidfd_set_add(&alive, (struct proc_id){ pid[i], start[i] });
	}
	for (unsigned i = 0; i < MANY; i += 2)
		end_child(pid[i]);
	pidfd_set_poll(&alive);
	for (unsigned i = MANY; i-- > 0;)
		assert_int_equal(pidfd_set_keep(&alive, (struct proc_id){ pid[i], start[i] }),
				 i % 2);
	for (unsigned i = 1; i < MANY; i += 2)
		end_child(pid[i]);
}

TEST(below_another_root_the_set_stays_empty)
{
	struct root other = root;
	uint64_t start;

	other.real = false;
	pidfd_set_init(&alive, &other);
	assert_int_equal(proc_start_ticks(&root, getpid(), &start), 0);
	pidfd_set_add(&alive, (struct proc_id){ getpid(), start });
	assert_false(pidfd_set_keep(&alive, (struct proc_id){ getpid(), start }));
}

TEST_MAIN(NULL, NULL)
