/* Processes that live and end, real ones: what is known of them without asking /proc. */
#include "guard/process_cache.h"

#include "device/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct root root;
static struct pidfd_set alive;

static int begin(void **state)
{
	(void)state;
	assert_int_equal(root_open(&root, NULL), 0);
	pidfd_set_init(&alive, &root);
	return 0;
}

static int end(void **state)
{
	(void)state;
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

static void who_lives_is_known_until_it_ends(void **state)
{
	uint64_t start;
	pid_t pid = child(&start);

	(void)state;
	if (!has_pidfds())
		skip();
	assert_false(pidfd_set_has(&alive, (struct proc_id){ pid, start }));
	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	for (unsigned i = 0; i < 3; i++) {
		pidfd_set_poll(&alive);
		assert_true(pidfd_set_has(&alive, (struct proc_id){ pid, start }));
		assert_false(pidfd_set_has(&alive, (struct proc_id){ pid, start + 1 }));
	}
	end_child(pid);
	pidfd_set_poll(&alive);
	assert_false(pidfd_set_has(&alive, (struct proc_id){ pid, start }));
}

static void one_that_waits_for_its_parent_has_ended(void **state)
{
	uint64_t start;
	pid_t pid = child(&start);
	siginfo_t info;

	(void)state;
	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	pidfd_set_poll(&alive);
	assert_false(pidfd_set_has(&alive, (struct proc_id){ pid, start }));
	waitpid(pid, NULL, 0);
}

static void another_with_the_number_is_not_kept(void **state)
{
	uint64_t start;
	pid_t pid = child(&start);

	(void)state;
	pidfd_set_add(&alive, (struct proc_id){ pid, start - 1 });
	assert_false(pidfd_set_has(&alive, (struct proc_id){ pid, start - 1 }));
	assert_int_equal(alive.count, 0);
	end_child(pid);
}

static void who_is_not_asked_for_is_let_go(void **state)
{
	uint64_t start;
	pid_t pid = child(&start);

	(void)state;
	pidfd_set_add(&alive, (struct proc_id){ pid, start });
	pidfd_set_poll(&alive); /* it was wanted when it was kept */
	pidfd_set_poll(&alive);
	assert_int_equal(alive.count, 0);
	end_child(pid);
}

static void of_many_those_that_live_are_found_in_any_order(void **state)
{
	enum { MANY = 20 };
	uint64_t start[MANY];
	pid_t pid[MANY];

	(void)state;
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
		assert_int_equal(pidfd_set_has(&alive, (struct proc_id){ pid[i], start[i] }),
				 i % 2);
	for (unsigned i = 1; i < MANY; i += 2)
		end_child(pid[i]);
}

static void in_a_tree_of_files_nobody_is_known(void **state)
{
	struct root other = root;
	uint64_t start;

	(void)state;
	other.real = false;
	pidfd_set_init(&alive, &other);
	assert_int_equal(proc_start_ticks(&root, getpid(), &start), 0);
	pidfd_set_add(&alive, (struct proc_id){ getpid(), start });
	assert_false(pidfd_set_has(&alive, (struct proc_id){ getpid(), start }));
}

#define row(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(who_lives_is_known_until_it_ends),
		row(one_that_waits_for_its_parent_has_ended),
		row(another_with_the_number_is_not_kept),
		row(who_is_not_asked_for_is_let_go),
		row(of_many_those_that_live_are_found_in_any_order),
		row(in_a_tree_of_files_nobody_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
