/* Tests the thread that takes scenes, with a scene builder that does nothing. */
#include "daemon/scene_thread.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#define LONGEST_NS (10 * NS_PER_S)

int scene_builder_new(struct gw_ctx *ctx, const struct policy *p, struct scene_builder **ret)
{
	*ret = NULL;
	return 0;
}

void scene_builder_free(struct scene_builder *l)
{
}

int scene_builder_policy(struct scene_builder *l, const struct policy *p)
{
	return 0;
}

void scene_builder_recall(struct scene_builder *l, const struct scene_builder_formers *f)
{
}

int scene_builder_take(struct scene_builder *l, struct scene *ret, bool utilisation)
{
	return 0;
}

void scene_builder_stats(const struct scene_builder *l, struct scene_builder_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
}

int scene_builder_watch_fd(const struct scene_builder *l)
{
	return -1;
}

bool scene_builder_has_workers(const struct scene_builder *l)
{
	return true;
}

bool scene_builder_triggered(struct scene_builder *l)
{
	return false;
}

static atomic_uint waits; /* how often the thread began to wait */

uint64_t scene_builder_trigger_due_ns(const struct scene_builder *l)
{
	waits++;
	return 0;
}

struct seen {
	struct scene_thread *k;
	unsigned looks;
	bool ask; /* requests another scene while the first is handled */
};

/* While the first scene is handled, no free scene is available for another one. If the thread
 * waits twice after a request, it looked for a free scene in between. */
static uint64_t came(void *arg, const struct scene *s, bool *ret_utilisation)
{
	struct seen *seen = arg;

	*ret_utilisation = false;
	if (++seen->looks == 1 && seen->ask)
		for (unsigned i = 0; i < 2; i++) {
			unsigned before = waits;

			scene_thread_trigger(seen->k);
			while (waits == before)
				usleep(1000);
		}
	return UINT64_MAX;
}

static unsigned looks(bool ask, uint64_t longest_ns)
{
	struct seen seen = { .ask = ask };
	uint64_t until = clock_mono_ns(clock_real()) + longest_ns;
	struct loop *l;

	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(scene_thread_new(l, NULL, NULL,
					  &(struct scene_builder_formers){ .count = 0 }, came,
					  &seen, &seen.k),
			 0);
	while (seen.looks < 2 && clock_mono_ns(clock_real()) < until)
		loop_once(l, 50 * NS_PER_MS);
	assert_int_equal(scene_thread_free(seen.k, LONGEST_NS), 0);
	loop_free(l);
	return seen.looks;
}

TEST(a_scene_requested_while_another_is_handled_is_taken)
{
	assert_int_equal(looks(true, LONGEST_NS), 2);
}

TEST(without_a_request_only_one_scene_is_taken)
{
	/* a duration, because nothing may happen in it */
	assert_int_equal(looks(false, NS_PER_S / 2), 1);
}

TEST_MAIN(NULL, NULL)
