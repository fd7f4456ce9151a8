/* The files of the page as tools/assets put them into the program. */
#include "serve/asset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct asset *find(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

static void the_table_has_what_the_page_asks_for(void **state)
{
	static const char *const paths[] = { "/",
					     "/assets/app.js",
					     "/assets/style.css",
					     "/assets/words.js",
					     "/assets/icon.svg",
					     "/docs" };

	(void)state;
	if (asset_count == 0)
		skip(); /* -Dpage=disabled */
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		assert_non_null(find(paths[i]));
}

static void paths_are_in_order_and_none_is_there_twice(void **state)
{
	(void)state;
	for (unsigned i = 1; i < asset_count; i++)
		assert_true(strcmp(assets[i - 1].path, assets[i].path) < 0);
}

static size_t said_size(const struct asset *a)
{
	const unsigned char *e = a->gz_end;

	return e[-4] | (size_t)e[-3] << 8 | (size_t)e[-2] << 16 | (size_t)e[-1] << 24;
}

static void every_file_is_gzipped_and_small_ones_are_plain_too(void **state)
{
	(void)state;
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

static void a_page_is_html_and_a_script_is_javascript(void **state)
{
	const struct asset *page = find("/"), *script = find("/assets/app.js");

	(void)state;
	if (!page)
		skip();
	assert_string_equal(page->type, "text/html; charset=utf-8");
	assert_memory_equal(page->data, "<!doctype html>", 15);
	assert_string_equal(script->type, "text/javascript; charset=utf-8");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_has_what_the_page_asks_for),
		cmocka_unit_test(paths_are_in_order_and_none_is_there_twice),
		cmocka_unit_test(every_file_is_gzipped_and_small_ones_are_plain_too),
		cmocka_unit_test(a_page_is_html_and_a_script_is_javascript),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
