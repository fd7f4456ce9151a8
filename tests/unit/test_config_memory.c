/* Loads a configuration again and again; each time another allocation fails. Loading must
 * return an error and leak nothing. */
#include "daemon/guard_config.h"

#include "alloc_fail.h"
#include "tree.h"
#include "test.h"

#include <gpuward.h>

/* Returns the number of allocations; `expected` is the result when none fails. */
static unsigned until_done(const char *path, int expected)
{
	const struct config_flag flags[] = { { "listen", "127.0.0.1:1" },
					     { "log-level", "debug" } };
	char message[4096];
	struct config c;
	int err;

	for (unsigned i = 0; i < 10000; i++) {
		allocations = 0;
		fail_at = i + 1;
		err = config_load(&c, path, flags, 2, message, sizeof(message));
		if (allocations < fail_at) {
			fail_at = 0;
			assert_int_equal(err, expected);
			config_done(&c);
			return i;
		}
		fail_at = 0;
		assert_true(err < 0);
		assert_null(c.memory);
	}
	return 0;
}

TEST(a_failed_allocation_is_an_error)
{
	struct tree t;
	char path[200];

	tree_init(&t);
	setenv("GPUWARD_INTERVAL", "2s", 1);
	setenv("GPUWARD_LISEN", "x", 1);
	tree_put(&t, "a.toml", "[service]\nhosts = [\"a\", \"b\"]\ntoken_file = \"t\"\n");
	snprintf(path, sizeof(path), "%s/a.toml", t.path);
	assert_true(until_done(path, 0) > 20);
	tree_put(&t, "a.toml", "[service]\nhots = [\"a\", \"b\"]\nlisten = [\"a\"]\n");
	assert_true(until_done(path, -GW_E_PARSE) > 20);
	tree_done(&t);
}

static const char guarded[] =
	"[guard]\nmode = \"enforce\"\nstate_dir = \"/s\"\n"
	"[[worker]]\nname = \"o\"\nkind = \"ollama\"\ngpus = [\"0\"]\nmatch.uid = 3\n"
	"[[worker]]\nname = \"e\"\nkind = \"exec\"\nmatch.exe = \"/e\"\nresume = \"lazy\"\n"
	"evict_command = [\"/a\", \"b\"]\n"
	"[[rule]]\nmatch.name = \"x\"\naction = \"ignore\"\n"
	"[[schedule]]\nworker = \"o\"\nevict = \"1:00-2:00\"\n";

TEST(without_memory_there_is_no_policy)
{
	char path[200], message[4096];
	struct guard_settings s;
	struct config c;
	struct tree t;
	unsigned i;

	tree_init(&t);
	tree_put(&t, "g.toml", guarded);
	snprintf(path, sizeof(path), "%s/g.toml", t.path);
	assert_true(until_done(path, 0) > 40);
	assert_int_equal(config_load(&c, path, NULL, 0, message, sizeof(message)), 0);
	for (i = 0; i < 1000; i++) {
		int err;

		allocations = 0;
		fail_at = i + 1;
		err = guard_config_make(&c, &s);
		if (allocations < fail_at)
			break;
		assert_int_equal(err, -GW_E_NOMEM);
		assert_null(s.policy.memory);
		assert_int_equal(s.policy.workers, 0);
	}
	fail_at = 0;
	assert_in_range(i, 15, 999);
	assert_int_equal(s.policy.workers, 2);
	guard_settings_done(&s);
	config_done(&c);
	tree_done(&t);
}

TEST_MAIN(NULL, NULL)
