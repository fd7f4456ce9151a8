/* Tests busy GPUs without a process, and memory without an owner. */
#include "guard/gpu_use.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test.h"

#define S   NS_PER_S
#define GIB 1073741824.

static char why[160];

static void looks(struct unattributed_use *g, struct unattributed_use_facts f, unsigned from_s,
		  unsigned to_s)
{
	for (unsigned s = from_s; s <= to_s; s++)
		unattributed_use_update(g, &f, (100 + s) * S, why, sizeof(why));
}

TEST(a_busy_gpu_without_a_process_is_reported_after_ten_seconds)
{
	struct unattributed_use g = { 0 };
	struct unattributed_use_facts f = { .busy_ratio = 1, .unattributed_bytes = 0 };

	looks(&g, f, 0, 9);
	assert_string_equal(why, "");
	looks(&g, f, 10, 10);
	assert_in(why, "although no process is listed");
	f.processes = 1;
	looks(&g, f, 11, 11);
	assert_string_equal(why, "");
	f.processes = 0;
	looks(&g, f, 12, 20);
	assert_string_equal(why, ""); /* the ten seconds begin again */
}

TEST(memory_without_an_owner_is_reported_with_its_size)
{
	struct unattributed_use g = { 0 };
	struct unattributed_use_facts f = { .busy_ratio = 0,
					    .processes = 2,
					    .unattributed_bytes = 3 * GIB };

	looks(&g, f, 0, 10);
	assert_in(why, "3072 MiB");
	f.unattributed_bytes = 100 * 1048576.;
	looks(&g, f, 11, 30);
	assert_string_equal(why, "");
}

TEST(unknown_or_hidden_use_is_not_reported)
{
	struct unattributed_use g = { 0 };

	looks(&g,
	      (struct unattributed_use_facts){ .busy_ratio = NAN, .unattributed_bytes = NAN },
	      0, 20);
	assert_string_equal(why, "");
	looks(&g,
	      (struct unattributed_use_facts){
		      .busy_ratio = 1, .unattributed_bytes = 3 * GIB, .hidden = true },
	      21, 50);
	assert_string_equal(why, "");
}

TEST_MAIN(NULL, NULL)
