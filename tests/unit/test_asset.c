/* Tests the files of the web page, which tools/assets puts into the program. */
#include "serve/asset.h"

#include "test.h"

static const struct asset *find(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

TEST(the_table_has_every_file_the_page_loads)
{
	static const char *const paths[] = { "/",
					     "/assets/app.js",
					     "/assets/style.css",
					     "/assets/words.js",
					     "/assets/icon.svg",
					     "/docs" };

	if (asset_count == 0)
		skip(); /* -Dpage=disabled */
	for (size_t i = 0; i < COUNT_OF(paths); i++)
		assert_non_null(find(paths[i]));
}

TEST(paths_are_sorted_and_unique)
{
	for (unsigned i = 1; i < asset_count; i++)
		assert_true(strcmp(assets[i - 1].path, assets[i].path) < 0);
}

static size_t said_size(const struct asset *a)
{
	const unsigned char *e = a->gz_end;

	return e[-4] | (size_t)e[-3] << 8 | (size_t)e[-2] << 16 | (size_t)e[-1] << 24;
}

TEST(every_file_is_gzipped_and_small_files_are_plain_too)
{
	for (unsigned i = 0; i < asset_count; i++) {
		const struct asset *a = &assets[i];

		assert_true(a->gz_end - a->gz > 18);
		assert_memory_equal(a->gz, "\x1f\x8b\x08", 3);
		if (a->data)
			assert_int_equal(said_size(a), a->end - a->data);
		else
			assert_true(said_size(a) >= 64 * 1024);
	}
}

TEST(a_page_is_html_and_a_script_is_javascript)
{
	const struct asset *page = find("/"), *script = find("/assets/app.js");

	if (!page)
		skip();
	assert_string_equal(page->type, "text/html; charset=utf-8");
	assert_memory_equal(page->data, "<!doctype html>", 15);
	assert_string_equal(script->type, "text/javascript; charset=utf-8");
}

TEST_MAIN(NULL, NULL)
