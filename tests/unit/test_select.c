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

TEST(a_name_finds_its_gpu_or_does_not_or_is_refused)
{
	static const struct {
		const char *name;
		int want;
	} rows[] = {
		{ "3", 1 },
		{ "GPU-f8e3b71f-2abc-6446-6013-c34ab1ef9bee", 1 },
		{ "gpu-F8E3B71F", 1 },
		{ "f8e3", 1 },
		{ "0000:65:00.0", 1 },
		{ "00000000:65:00.0", 1 },
		{ "65:00.0", 1 },
		{ "cuda:1", 1 },
		{ "visible", 1 },
		{ "MIG-11111111-2222-3333-4444-555555555555", 1 },
		{ "0", 0 },
		{ "33", 0 },
		{ "GPU-aaaa", 0 },
		{ "f8e4", 0 },
		{ "0000:66:00.0", 0 },
		{ "66:00.0", 0 },
		{ "cuda:0", 0 },
		{ "f8e3b71f-2abc-6446-6013-c34ab1ef9bee-1", 0 },
		{ "", -GW_E_ARG },
		{ "zz", -GW_E_ARG },
		{ "-1", -GW_E_ARG },
		{ "cuda:", -GW_E_ARG },
		{ "cuda:x", -GW_E_ARG },
		{ "first", -GW_E_ARG },
		{ "0x1", -GW_E_ARG },
		{ NULL, -GW_E_ARG },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (gw_device_matches(&gpu, rows[i].name) != rows[i].want)
			fail_msg("%s", rows[i].name);
}

TEST_MAIN(NULL, NULL)
