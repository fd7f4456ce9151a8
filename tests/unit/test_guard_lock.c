/* Tests that only one guard acts on each GPU. */
#include "daemon/guard_lock.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown
#include "test.h"

static char folder[64];

static int setup(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/gpuward-lock-XXXXXX");
	assert_non_null(mkdtemp(folder));
	return setenv("RUNTIME_DIRECTORY", folder, 1);
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

TEST(a_second_lock_attempt_returns_the_pid_of_the_holder)
{
	char why[300] = "";
	int fd = -1, other = -1;
	int64_t pid;

	assert_int_equal(guard_lock_take("GPU-1", &fd, &pid, why, sizeof(why)), 0);
	assert_int_equal(guard_lock_take("GPU-1", &other, &pid, why, sizeof(why)), -GW_E_STATE);
	assert_int_equal(pid, getpid());
	assert_in(why, "gpuward-guard-GPU-1.lock");
	assert_int_equal(guard_lock_take("GPU-2", &other, &pid, why, sizeof(why)), 0);
	close(other);
	close(fd);
}

TEST(closing_the_descriptor_releases_the_lock)
{
	char why[300];
	int fd = -1;
	int64_t pid;

	assert_int_equal(guard_lock_take("GPU-1", &fd, &pid, why, sizeof(why)), 0);
	close(fd);
	assert_int_equal(guard_lock_take("GPU-1", &fd, &pid, why, sizeof(why)), 0);
	close(fd);
}

TEST(a_symbolic_link_in_place_of_the_lock_file_is_not_followed)
{
	char path[160], target[160], why[300];
	struct stat st;
	int fd = -1;
	int64_t pid;

	snprintf(path, sizeof(path), "%s/gpuward-guard-GPU-1.lock", folder);
	snprintf(target, sizeof(target), "%s/victim", folder);
	assert_int_equal(symlink(target, path), 0);
	(void)guard_lock_take("GPU-1", &fd, &pid, why, sizeof(why));
	assert_int_not_equal(stat(target, &st), 0);
	if (fd >= 0)
		close(fd);
}

TEST(a_uuid_does_not_lead_out_of_the_folder)
{
	char path[160], why[300];
	struct stat st;
	int fd = -1;
	int64_t pid;

	assert_int_equal(guard_lock_take("../../x", &fd, &pid, why, sizeof(why)), 0);
	snprintf(path, sizeof(path), "%s/gpuward-guard-.._.._x.lock", folder);
	assert_int_equal(stat(path, &st), 0);
	close(fd);
}

TEST_MAIN(NULL, NULL)
