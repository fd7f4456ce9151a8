/* Tests the load through libcuda, with a fake library that records its calls. */
#include "fake_cuda/fake_cuda.h"

#include "measure/cuda.h"

#include "test.h"

#include <dlfcn.h>

static struct fake_cuda *fake;
static struct clock_stepped stepped;

static int setup(void **state)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	fake = library ? dlsym(library, "fake_cuda") : NULL;
	return fake ? 0 : -1;
}

static int each(void **state)
{
	memset(fake, 0, sizeof(*fake));
	unsetenv("FAKE_CUDA_FAIL");
	clock_stepped_init(&stepped, 5 * NS_PER_S, 0);
	return 0;
}

#define TEST_SETUP each

TEST(a_load_fills_half_of_the_gpu_for_the_time_it_is_given)
{
	struct cuda_load *c;
	char message[256] = "";
	uint64_t begin = 0;

	assert_int_equal(
		cuda_load_open("0000:06:00.0", &stepped.clock, &c, message, sizeof(message)),
		0);
	assert_string_equal(fake->pci, "0000:06:00.0");
	assert_int_equal(fake->running, 0); /* the warm-up kernel has ended */
	assert_int_equal(cuda_load_on(c, 70 * NS_PER_MS, &begin), 0);
	assert_int_equal(begin, 5 * NS_PER_S);
	assert_int_equal(fake->for_ns, 70 * NS_PER_MS);
	assert_int_equal(fake->blocks * fake->threads, 132 * 1024);
	assert_int_equal(fake->running, 1); /* the caller did not wait for the kernel */
	assert_int_equal(cuda_load_on(c, NS_PER_MS, &begin), 0);
	assert_int_equal(fake->launches, 3);
	assert_int_equal(cuda_load_idle(c), 0);
	assert_int_equal(fake->running, 0);
	cuda_load_close(c);
	assert_int_equal(fake->contexts, 0);
}

TEST(every_failed_call_gives_a_message_and_leaves_nothing_open)
{
	static const char *const calls[] = {
		"cuInit",           "cuDeviceGetByPCIBusId", "cuCtxCreate_v2",
		"cuModuleLoadData", "cuModuleGetFunction",   "cuLaunchKernel",
		"cuCtxSynchronize"
	};

	for (size_t i = 0; i < COUNT_OF(calls); i++) {
		struct cuda_load *c = NULL;
		char message[256] = "";

		setenv("FAKE_CUDA_FAIL", calls[i], 1);
		assert_true(cuda_load_open("0000:06:00.0", &stepped.clock, &c, message,
					   sizeof(message)) < 0);
		assert_null(c);
		assert_in(message, "CUDA");
		assert_int_equal(fake->contexts, 0);
	}
}

TEST(a_load_ends_when_it_is_stopped)
{
	struct cuda_drive d;
	char message[256] = "";
	uint64_t begin = 0;

	cuda_drive_init(&d, &stepped.clock);
	assert_int_equal(d.drive.open(d.drive.ctx, "0000:06:00.0", message, sizeof(message)),
			 0);
	assert_int_equal(d.drive.on(d.drive.ctx, 5 * NS_PER_S + 42, &begin), 0);
	assert_int_equal(fake->for_ns, 42);
	assert_int_equal(fake->launches, 2);
	assert_int_equal(d.drive.on(d.drive.ctx, 4 * NS_PER_S, &begin), 0); /* too late */
	assert_int_equal(fake->launches, 2);
	setenv("FAKE_CUDA_FAIL", "cuLaunchKernel", 1);
	assert_int_equal(d.drive.on(d.drive.ctx, 6 * NS_PER_S, &begin), -GW_E_IO);
	d.drive.close(d.drive.ctx);
	assert_int_equal(fake->contexts, 0);
}

TEST_MAIN(setup, NULL)
