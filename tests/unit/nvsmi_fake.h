/* nvsmi_fake: runs the nvidia-smi backend with the fake program of tests/fixtures/nvidia-smi,
 * which is first in PATH. The source of the backend is included, so that the test can set its
 * deadline. */
#ifndef TESTS_NVSMI_FAKE_H
#define TESTS_NVSMI_FAKE_H

#include "base/clock.h"

/* Time limit of one run, in real time. Only tests in which the program hangs make it short,
 * because a busy machine may need seconds to start the script. */
static uint64_t fake_deadline_ns;
#define DEADLINE_NS fake_deadline_ns
#include "device/nvsmi.c"

#include "test.h"

#include <unistd.h>

/* The table of backends refers to all backends; only nvidia-smi is tested here. */
const struct backend_ops backend_nvml, backend_amdgpu, backend_intel;

static struct clock_stepped now;
static struct root root;
static struct backend_env env;
static struct backend b;
static char log_path[64];

static void mood(const char *name)
{
	setenv("FAKE_SMI", name, 1);
	fake_deadline_ns = strcmp(name, "hang") == 0 ? 300 * NS_PER_MS : 60 * NS_PER_S;
}

static int start(void **state)
{
	int fd;

	strcpy(log_path, "/tmp/gpuward-nvsmi-XXXXXX");
	fd = mkstemp(log_path);
	assert_true(fd >= 0);
	close(fd);
	setenv("FAKE_SMI_LOG", log_path, 1);
	unsetenv("FAKE_SMI_TICKS");
	unsetenv("FAKE_SMI_DAY");
	mood("ok");
	clock_stepped_init(&now, 1000 * NS_PER_S, 1000 * NS_PER_S); /* 00:16:40 of 1970 */
	assert_int_equal(root_open(&root, NULL), 0);
	env = (struct backend_env){ .clock = &now.clock, .root = &root, .flags = GW_OPEN_EXEC };
	memset(&b, 0, sizeof(b));
	b.ops = &backend_nvsmi;
	b.env = &env;
	return 0;
}

static int finish(void **state)
{
	b.ops->close(&b);
	backend_done(&b);
	root_close(&root);
	return unlink(log_path);
}

#define NVSMI_TEST(name) TEST_WITH(name, start, finish)

static int put_fake_first(void **state)
{
	char path[8192];

	snprintf(path, sizeof(path), "%s/tests/fixtures/nvidia-smi:%s",
		 getenv("GPUWARD_TEST_SOURCE") ? getenv("GPUWARD_TEST_SOURCE") : ".",
		 getenv("PATH"));
	return setenv("PATH", path, 1);
}

#endif
