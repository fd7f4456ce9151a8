/* Tests which parts of a policy need privileges, and the message about them. */
#include "guard/process_cache.h"

#include <string.h>

#define TEST_SETUP setup
#include "test.h"

static struct policy policy;

static int setup(void **state)
{
	memset(&policy, 0, sizeof(policy));
	return 0;
}

static struct policy_match *worker(const char *name)
{
	struct policy_worker *w = &policy.worker[policy.workers++];

	w->name = name;
	return &w->match;
}

TEST(public_fields_need_no_privileges)
{
	char text[PROC_VISIBILITY_TEXT];

	worker("unit")->unit = "u.service";
	worker("group")->cgroup = "/g";
	worker("words")->command = "serve";
	worker("file")->pidfile = "/run/p";
	policy.rule[policy.rules++].match.name = "game";
	assert_false(proc_visibility_missing(&policy, 0, text));
}

TEST(ports_need_more_than_programs)
{
	worker("port")->port = 11434;
	worker("program")->exe = "/srv/*";
	assert_string_equal(proc_visibility_lacks(&policy, 0, 0), "port");
	assert_string_equal(proc_visibility_lacks(&policy, 1, 0), "program");
	assert_string_equal(proc_visibility_lacks(&policy, 0, PROC_VISIBILITY_PROGRAMS),
			    "port");
	assert_null(proc_visibility_lacks(&policy, 1, PROC_VISIBILITY_PROGRAMS));
	assert_null(proc_visibility_lacks(&policy, 0, PROC_VISIBILITY_ALL));
	policy.worker[0].match.unit = "u.service"; /* a match by unit needs no privilege */
	assert_null(proc_visibility_lacks(&policy, 0, 0));
}

TEST(the_sentence_names_some_and_counts_the_rest)
{
	char text[PROC_VISIBILITY_TEXT];

	worker("ollama")->port = 11434;
	for (unsigned i = 0; i < 6; i++) {
		policy.rule[i].match.exe = "/x";
		policy.rule[i].text = "rule 7 (gpuward.toml:41)";
	}
	policy.rules = 6;
	assert_true(proc_visibility_missing(&policy, 0, text));
	assert_in(text, "worker ollama (by port), rule 7 (gpuward.toml:41)");
	assert_in(text, " and 3 more: use match.unit");
	assert_in(text, "CAP_DAC_READ_SEARCH, if it has to find a worker by its port");
	assert_false(proc_visibility_missing(&policy, PROC_VISIBILITY_ALL, text));
}

TEST_MAIN(NULL, NULL)
