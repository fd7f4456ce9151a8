/* Any value of CUDA_VISIBLE_DEVICES, and any marks of a measured command: no crash; every GPU
 * has a number, is hidden or unknown, and no number is used twice. Without MIG instances the
 * numbers are 0 to 3. */
#include "text.h"

#include "cli/progress_marks.h"
#include "device/cuda_visible.h"

static void check_visible(const char *list, const char *order)
{
	static const char *const mig[] = { "MIG-aaaa-1", "MIG-aaaa-2", NULL };
	struct cuda_visible_gpu gpu[4] = { { .uuid = "GPU-aaaa", .name = "H200", .mig = mig },
					   { .uuid = "GPU-aabb", .name = "H200" },
					   { .uuid = "GPU-bbbb", .name = "A10" },
					   { .name = "H200" } };
	bool instances = strstr(list, "MIG-") != NULL;

	cuda_visible_resolve(list, order, gpu, 4);
	for (unsigned i = 0; i < 4; i++) {
		if (gpu[i].ordinal < CUDA_VISIBLE_HIDDEN || (gpu[i].ordinal > 3 && !instances))
			abort();
		for (unsigned k = 0; k < i; k++)
			if (gpu[i].ordinal >= 0 && gpu[i].ordinal == gpu[k].ordinal)
				abort();
	}
}

static void check_marks(const char *text, size_t size)
{
	static struct progress_marks m;

	progress_marks_init(&m, NULL, NULL, 1000);
	progress_marks_feed(&m, text, size / 2, 2000);
	progress_marks_feed(&m, text + size / 2, size - size / 2, 3000);
	if (m.count > PROGRESS_MARKS_WINDOWS)
		abort();
	progress_marks_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	check_visible(text, NULL);
	check_visible(text, "PCI_BUS_ID");
	check_marks(text, size);
	free(text);
	return 0;
}
