#include "device/cuda_visible.h"

#include "test.h"

#define H CUDA_VISIBLE_HIDDEN
#define U CUDA_VISIBLE_UNKNOWN

#define A "GPU-1aa00000-0000-0000-0000-000000000000"
#define B "GPU-1ab00000-0000-0000-0000-000000000000"
#define C "GPU-2cc00000-0000-0000-0000-000000000000"

static const char *const instances[] = { "MIG-11111111-1111", "MIG-22222222-2222", NULL };

struct row {
	const char *list, *order;
	int want[3];
};

static void check(const struct row *row, size_t rows, const char *last_name)
{
	for (size_t r = 0; r < rows; r++) {
		struct cuda_visible_gpu gpu[3] = {
			{ A, "NVIDIA H200", NULL, 99 },
			{ B, "NVIDIA H200", NULL, 99 },
			{ C, last_name, instances, 99 },
		};

		cuda_visible_resolve(row[r].list, row[r].order, gpu, 3);
		for (int i = 0; i < 3; i++)
			if (gpu[i].ordinal != row[r].want[i])
				fail_msg("\"%s\": GPU %d is %d, not %d", row[r].list, i,
					 gpu[i].ordinal, row[r].want[i]);
	}
}

#define CHECK(rows, name) check(rows, sizeof(rows) / sizeof((rows)[0]), name)

TEST(numbers_identical_gpus_as_cuda_does)
{
	static const struct row row[] = {
		{ NULL, NULL, { 0, 1, 2 } },
		{ "0", NULL, { 0, H, H } },
		{ "2,0", NULL, { 1, H, 0 } },
		{ "2, 0 ", NULL, { 1, H, 0 } },
		{ A, NULL, { 0, H, H } },
		{ B ",0", NULL, { 1, 0, H } },
		{ "GPU-2", NULL, { H, H, 0 } },
		{ "GPU-1ab,GPU-1aa", NULL, { 1, 0, H } },
		{ "MIG-22222222-2222", NULL, { H, H, 0 } },
		{ "MIG-" C "/3/0", NULL, { H, H, 0 } },
		{ "1,MIG-11111111-1111,MIG-22222222-2222,0", NULL, { 3, 0, 1 } },
	};

	CHECK(row, "NVIDIA H200");
}

TEST(hides_what_cuda_hides)
{
	static const struct row row[] = {
		{ "", NULL, { H, H, H } },
		{ "-1", NULL, { H, H, H } },
		{ "none", NULL, { H, H, H } },
		{ "NoDevFiles", NULL, { H, H, H } },
		{ "1,-1,0", NULL, { H, 0, H } },
		{ "1,3,0", NULL, { H, 0, H } },
		{ "1,99999999999999999999999,0", NULL, { H, 0, H } },
		{ "1,,0", NULL, { H, 0, H } },
		{ "1,0x0", NULL, { H, 0, H } },
		{ "0,GPU-1a,2", NULL, { 0, H, H } }, /* "GPU-1a" matches two GPUs */
		{ "GPU-9", NULL, { H, H, H } },
		{ A "0", NULL, { H, H, H } },
		{ "MIG-9", NULL, { H, H, H } },
		{ "MIG-" A "/1/0", NULL, { H, H, H } }, /* this GPU has no MIG instances */
		{ "0,0", NULL, { H, H, H } },
		{ "1,2," B, NULL, { H, H, H } },
	};

	CHECK(row, "NVIDIA H200");
}

TEST(the_order_of_different_gpus_is_unknown)
{
	static const struct row row[] = {
		{ NULL, NULL, { U, U, U } },
		{ NULL, "FASTEST_FIRST", { U, U, U } },
		{ NULL, "PCI_BUS_ID", { 0, 1, 2 } },
		{ "1", NULL, { U, U, U } },
		{ "1", "PCI_BUS_ID", { H, 0, H } },
		{ C ",1", NULL, { U, U, 0 } },
		{ "1," C, NULL, { U, U, 1 } },
		{ B "," C, NULL, { H, 0, 1 } },
		{ "-1", NULL, { H, H, H } },
		{ "7", NULL, { H, H, H } },
		{ "", NULL, { H, H, H } },
		{ "0,00", NULL, { H, H, H } }, /* one GPU is named twice */
		{ "0,1,2," A, NULL, { H, H, H } },
	};

	CHECK(row, "NVIDIA T400");
	CHECK(row, NULL);
}

TEST(the_order_of_a_single_gpu_is_known)
{
	struct cuda_visible_gpu gpu = { 0 };

	cuda_visible_resolve(NULL, NULL, &gpu, 1);
	assert_int_equal(gpu.ordinal, 0);
	cuda_visible_resolve("0", NULL, &gpu, 1);
	assert_int_equal(gpu.ordinal, 0);
	cuda_visible_resolve("GPU-1", NULL, &gpu, 1);
	assert_int_equal(gpu.ordinal, CUDA_VISIBLE_HIDDEN);
	cuda_visible_resolve("0", NULL, NULL, 0);
}

TEST_MAIN(NULL, NULL)
