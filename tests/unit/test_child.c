#include "here.h"
#include "test.h"

#include "base/child.h"
#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SH(script) ((const char *const[]){ "/bin/sh", "-c", script, NULL })

static uint64_t in_s(uint64_t s)
{
	return clock_mono_ns(clock_real()) + s * NS_PER_S;
}

static unsigned descriptors_before;

static int count_before(void **state)
{
	descriptors_before = open_descriptors();
	return 0;
}

/* Checks after every test that no descriptor is open and no child is left to wait for. */
static int nothing_is_left(void **state)
{
	assert_int_equal(open_descriptors(), descriptors_before);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return 0;
}

#define CHILD_TEST(name) TEST_WITH(name, count_before, nothing_is_left)

static struct child c;

static void assert_line(const char *want)
{
	const char *line;

	assert_int_equal(child_line(&c, in_s(10), &line), 1);
	assert_string_equal(line, want);
}

CHILD_TEST(returns_lines)
{
	const char *line;

	assert_int_equal(child_start(&c, SH("printf 'one\\n\\nthree'"), NULL), 0);
	assert_line("one");
	assert_line("");
	assert_line("three");
	assert_int_equal(child_line(&c, in_s(10), &line), 0);
	assert_int_equal(child_line(&c, in_s(10), &line), 0);
	child_stop(&c);
}

CHILD_TEST(skips_a_line_that_is_too_long)
{
	const char *line;

	assert_int_equal(child_start(&c,
				     SH("echo a; printf '%09999d\\n' 0; echo b; "
					"printf '%04094d\\n' 0; printf '%04096d' 0"),
				     NULL),
			 0);
	assert_line("a");
	assert_line("b");
	assert_int_equal(child_line(&c, in_s(10), &line), 1);
	assert_int_equal(strlen(line), 4094);
	assert_int_equal(child_line(&c, in_s(10), &line), 0);
	child_stop(&c);
}

CHILD_TEST(a_line_waits_no_longer_than_its_deadline)
{
	const char *line;

	assert_int_equal(child_start(&c, SH("printf half; exec sleep 60"), NULL), 0);
	assert_int_equal(child_line(&c, clock_mono_ns(clock_real()), &line), -GW_E_TIMEOUT);
	child_stop(&c);
}

CHILD_TEST(returns_the_exit_status)
{
	int status = -1;
	char out[16];

	assert_int_equal(child_start(&c, SH("exit 3"), NULL), 0);
	assert_int_equal(child_wait(&c, in_s(10), &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	assert_int_equal(child_wait(&c, in_s(10), &status), 0); /* waiting twice works */
	child_stop(&c);
	assert_int_equal(child_run(SH("exit 200"), in_s(10), out, sizeof(out)), 200);
	assert_int_equal(child_run(SH("kill -TERM $$"), in_s(10), out, sizeof(out)),
			 128 + SIGTERM);
}

CHILD_TEST(output_that_does_not_fit_is_an_error_even_if_it_has_nul_bytes)
{
	char out[8];

	assert_int_equal(child_run(SH("printf 1234567"), in_s(10), out, sizeof(out)), 0);
	assert_string_equal(out, "1234567");
	assert_int_equal(child_run(SH("printf 12345678; printf '%0200000d' 0"), in_s(10), out,
				   sizeof(out)),
			 -GW_E_SIZE);
	assert_string_equal(out, "1234567");
	assert_int_equal(child_run(SH("printf '1\\0002345678'"), in_s(10), out, sizeof(out)),
			 -GW_E_SIZE);
}

CHILD_TEST(output_that_nobody_wants_is_discarded)
{
	assert_int_equal(child_run(SH("printf '%0200000d' 0; exit 4"), in_s(10), NULL, 0), 4);
}

CHILD_TEST(returns_an_error_when_it_cannot_be_started)
{
	assert_int_equal(child_start(&c, (const char *const[]){ "/no/such", NULL }, NULL),
			 -GW_E_NOENT);
	assert_int_equal(
		child_start(&c, (const char *const[]){ "gpuward-no-such", NULL }, NULL),
		-GW_E_NOENT);
	assert_int_equal(child_start(&c, (const char *const[]){ "/etc/passwd", NULL }, NULL),
			 -GW_E_PERM);
}

CHILD_TEST(searches_the_path)
{
	char out[16];

	assert_int_equal(child_run((const char *const[]){ "echo", "hi", NULL }, in_s(10), out,
				   sizeof(out)),
			 0);
	assert_string_equal(out, "hi\n");
}

static bool is_running(long pid)
{
	char path[32], text[256] = "";
	FILE *f;
	bool running;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	running = fgets(text, sizeof(text), f) && !strstr(text, ") Z") && !strstr(text, ") X");
	fclose(f);
	return running;
}

/* Checks that a grandchild has ended. The test cannot wait for it; init reaps it shortly after
 * its end. */
static void assert_is_gone(long pid)
{
	uint64_t deadline = in_s(10);

	while (is_running(pid))
		assert_true(clock_mono_ns(clock_real()) < deadline);
}

CHILD_TEST(a_deadline_ends_the_whole_group)
{
	char out[64];
	uint64_t begin = clock_mono_ns(clock_real());
	const char *script = "sleep 60 & echo $!; trap '' TERM; wait";

	assert_int_equal(child_run(SH(script), begin + 200 * NS_PER_MS, out, sizeof(out)),
			 -GW_E_TIMEOUT);
	assert_true(clock_mono_ns(clock_real()) - begin < 5 * NS_PER_S);
	assert_true(strtol(out, NULL, 10) > 0);
	assert_is_gone(strtol(out, NULL, 10));
}

CHILD_TEST(a_grandchild_that_holds_the_pipe_does_not_block)
{
	char out[64];

	assert_int_equal(child_run(SH("sleep 60 & echo $!"), in_s(30), out, sizeof(out)), 0);
	assert_is_gone(strtol(out, NULL, 10));
}

CHILD_TEST(endless_output_ends_at_the_deadline)
{
	const char *line;
	char out[64];
	const char *endless = "while :; do printf '%09999d' 0; done";

	assert_int_equal(child_run((const char *const[]){ "yes", NULL },
				   clock_mono_ns(clock_real()) + 50 * NS_PER_MS, out,
				   sizeof(out)),
			 -GW_E_TIMEOUT);
	assert_int_equal(child_start(&c, SH(endless), NULL), 0);
	assert_int_equal(child_line(&c, clock_mono_ns(clock_real()) + 50 * NS_PER_MS, &line),
			 -GW_E_TIMEOUT);
	child_stop(&c);
}

CHILD_TEST(inherits_no_descriptors)
{
	char out[256];
	int leaky = fcntl(0, F_DUPFD, 57); /* without FD_CLOEXEC */

	assert_true(leaky >= 57);
	assert_int_equal(
		child_run(SH("cd /proc/self/fd && echo *; readlink 0; exec ls -l 2 >&1"),
			  in_s(10), out, sizeof(out)),
		0);
	close(leaky);
	assert_in(out, "/dev/null\n");
	*strchr(out, '\n') =
		/* keep only the list of descriptors, because the times in the other lines may
		 * also contain 57 */
		'\0';
	assert_null(strstr(out, "57"));
}

CHILD_TEST(starts_with_default_signals_and_its_own_group)
{
	char out[512], *line;
	sigset_t block, before;

	sigemptyset(&block);
	sigaddset(&block, SIGTERM);
	sigprocmask(SIG_BLOCK, &block, &before);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(child_run((const char *const[]){ "grep", "-E", "^Sig(Blk|Ign)",
							  "/proc/self/status", NULL },
				   in_s(10), out, sizeof(out)),
			 0);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	line = strstr(out, "SigBlk:");
	assert_non_null(line);
	assert_int_equal(strtoul(line + 7, NULL, 16), 0);
	line = strstr(out, "SigIgn:");
	assert_non_null(line);
	/* libc uses the signals 32 and 33 itself. */
	assert_int_equal(strtoul(line + 7, NULL, 16) & 0x7fffffff, 0);
	assert_int_equal(child_run(SH("read a b c d pgrp e < /proc/self/stat; "
				      "test $pgrp = $$ && echo own"),
				   in_s(10), out, sizeof(out)),
			 0);
	assert_string_equal(out, "own\n");
}

CHILD_TEST(variables_override_the_environment)
{
	const char *const extra[] = { "GPUWARD_A=new", "GPUWARD_B=2", NULL };

	setenv("GPUWARD_A", "old", 1);
	setenv("GPUWARD_AB", "kept", 1);
	assert_int_equal(
		child_start(&c,
			    SH("echo $GPUWARD_A $GPUWARD_B $GPUWARD_AB; env | grep -c WARD_A="),
			    extra),
		0);
	assert_line("new 2 kept");
	assert_line("1");
	child_stop(&c);
	unsetenv("GPUWARD_A");
	unsetenv("GPUWARD_AB");
}

CHILD_TEST(works_in_a_program_that_ignores_its_children)
{
	char out[16];

	signal(SIGCHLD, SIG_IGN);
	assert_int_equal(child_run(SH("echo hi"), in_s(10), out, sizeof(out)), 0);
	signal(SIGCHLD, SIG_DFL);
	assert_string_equal(out, "hi\n");
}

TEST(finds_out_whether_a_program_exists_without_starting_it)
{
	assert_true(child_exists("sh"));
	assert_true(child_exists("/bin/sh"));
	assert_false(child_exists("no-such-program-here"));
	assert_false(child_exists("/no/such/program"));
}

TEST_MAIN(NULL, NULL)
