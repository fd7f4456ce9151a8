/* Tests which strings select a GPU (gw_device_matches()). */
#include "test.h"

#include <gpuward.h>

static const char *const texts[GW_TEXTS] = {
	[GW_T_UUID] = "GPU-f8e3b71f-2abc-6446-6013-c34ab1ef9bee",
	[GW_T_PCI] = "0000:65:00.0",
};
static const uint8_t have[GW_TEXTS]; /* all GW_HAVE */
static const struct gw_mig first = { .uuid = "MIG-11111111-2222-3333-4444-555555555555" };
static const struct gw_mig *const mig[] = { &first };

static const struct gw_device gpu = { .index = 3,
				      .cuda_ordinal = 1,
				      .mig_count = 1,
				      .mig = mig,
				      .text_count = GW_TEXTS,
				      .text = texts,
				      .text_absence = have };

TEST(each_name_of_a_gpu_finds_it)
{
	static const char *const names[] = {
		"3",
		"GPU-f8e3b71f-2abc-6446-6013-c34ab1ef9bee",
		"gpu-F8E3B71F",
		"f8e3",
		"0000:65:00.0",
		"00000000:65:00.0",
		"65:00.0",
		"cuda:1",
		"visible",
		"MIG-11111111-2222-3333-4444-555555555555",
	};

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (gw_device_matches(&gpu, names[i]) != 1)
			fail_msg("%s", names[i]);
}

TEST(other_names_do_not_select_the_gpu)
{
	static const char *const names[] = { "0",
					     "33",
					     "GPU-aaaa",
					     "f8e4",
					     "0000:66:00.0",
					     "66:00.0",
					     "cuda:0",
					     "f8e3b71f-2abc-6446-6013-c34ab1ef9bee-1" };

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (gw_device_matches(&gpu, names[i]) != 0)
			fail_msg("%s", names[i]);
}

TEST(names_that_cannot_be_a_gpu_are_refused)
{
	static const char *const names[] = {
		"", "zz", "-1", "cuda:", "cuda:x", "first", "0x1"
	};

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (gw_device_matches(&gpu, names[i]) != -GW_E_ARG)
			fail_msg("%s", names[i]);
	assert_int_equal(gw_device_matches(&gpu, NULL), -GW_E_ARG);
}

TEST_MAIN(NULL, NULL)
