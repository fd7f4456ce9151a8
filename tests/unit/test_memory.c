/* Tests the readers of files when there is no memory: allocation n fails, for n = 1, 2, 3, ...
 * until the reader makes fewer than n allocations. The sources are included with malloc()
 * renamed, so that only their allocations fail. */
#include "test.h"

#include <gpuward.h>

static int until_failure; /* 0: never */

static bool fails_now(void)
{
	return until_failure > 0 && --until_failure == 0;
}

static void *unreliable_malloc(size_t n)
{
	return fails_now() ? NULL : malloc(n);
}

static void *unreliable_calloc(size_t n, size_t size)
{
	return fails_now() ? NULL : calloc(n, size);
}

static void *unreliable_realloc(void *p, size_t n)
{
	return fails_now() ? NULL : realloc(p, n);
}

#define malloc  unreliable_malloc
#define calloc  unreliable_calloc
#define realloc unreliable_realloc
#include "base/buf.c"
#include "base/toml.c"
#include "base/toml_tree.c"
#undef malloc
#undef calloc
#undef realloc

/* Makes a document that needs several blocks and a larger index. */
static char *large_document(void)
{
	struct buf b;
	char *text;

	buf_init(&b, 1 << 20);
	for (int i = 0; i < 200; i++)
		buf_addf(&b,
			 "[[rows]]\nkey%d.\"quoted\" = [1, 2.5, 'text', {a.b = 2026-01-31}]\n",
			 i);
	text = strdup(b.p);
	buf_done(&b);
	return text;
}

TEST(toml_survives_every_failed_allocation)
{
	char *text = large_document();
	int n = 0, rc;

	do {
		struct toml_error err;
		struct toml *doc = NULL;

		until_failure = ++n;
		rc = toml_parse(text, strlen(text), &doc, &err);
		assert_true(rc == 0 ? doc != NULL : rc == -GW_E_NOMEM && !doc);
		toml_free(doc);
	} while (rc != 0);
	until_failure = 0;
	assert_true(n > 10); /* more than 10 allocations were made, and each failed once */
	free(text);
}

TEST(buf_keeps_its_text_when_memory_runs_out)
{
	struct buf b;

	buf_init(&b, 1 << 20);
	until_failure = 1;
	buf_adds(&b, "x");
	assert_int_equal(b.err, -GW_E_NOMEM);
	assert_string_equal(b.p, "");
	buf_clear(&b);
	buf_adds(&b, "kept");
	until_failure = 1;
	buf_addf(&b, "%01000d", 0);
	until_failure = 0;
	assert_int_equal(b.err, -GW_E_NOMEM);
	assert_string_equal(b.p, "kept");
	buf_adds(&b, "ignored");
	assert_string_equal(b.p, "kept");
	buf_done(&b);
}

TEST_MAIN(NULL, NULL)
