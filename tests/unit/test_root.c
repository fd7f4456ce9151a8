#include "base/root.h"

#include <gpuward.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static struct root root;

static void put(const char *name, const char *text)
{
	int fd = openat(root.fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int make_tree(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/gpuward-root-XXXXXX");
	assert_non_null(mkdtemp(folder));
	assert_int_equal(root_open(&root, folder), 0);
	assert_false(root.real);
	assert_int_equal(mkdirat(root.fd, "sys", 0700), 0);
	put("sys/a", "one\ntwo \n\t\n");
	assert_int_equal(symlinkat("../../bus/pci/drivers/nvidia", root.fd, "sys/driver"), 0);
	assert_int_equal(symlinkat("bare", root.fd, "sys/bare"), 0);
	return 0;
}

static int remove_tree(void **state)
{
	static const char *const names[] = { "sys/a", "sys/driver", "sys/bare", "sys/n" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(root.fd, names[i], 0);
	unlinkat(root.fd, "sys", AT_REMOVEDIR);
	root_close(&root);
	assert_int_equal(root.fd, -1);
	root_close(&root);
	return rmdir(folder);
}

static void reads_a_file_whole_or_cut(void **state)
{
	char out[32];

	(void)state;
	assert_int_equal(root_read(&root, "sys/a", out, sizeof(out)), 11);
	assert_string_equal(out, "one\ntwo \n\t\n");
	assert_int_equal(root_read(&root, "sys/a", out, 4), 3);
	assert_string_equal(out, "one");
	assert_int_equal(root_read(&root, "sys/a", out, 1), 0);
	assert_string_equal(out, "");
}

static void a_line_has_no_blanks_at_its_end(void **state)
{
	char out[32];

	(void)state;
	assert_int_equal(root_read_line(&root, "sys/a", out, sizeof(out)), 7);
	assert_string_equal(out, "one\ntwo");
	put("sys/n", " \n");
	assert_int_equal(root_read_line(&root, "sys/n", out, sizeof(out)), 0);
	assert_string_equal(out, "");
}

static void says_why_it_cannot_read(void **state)
{
	char out[32] = "junk";
	struct root none;

	(void)state;
	assert_int_equal(root_read(&root, "sys/none", out, sizeof(out)), -GW_E_NOENT);
	assert_string_equal(out, "");
	assert_int_equal(root_read(&root, "sys/a/b", out, sizeof(out)), -GW_E_NOENT);
	strcpy(out, "junk");
	assert_int_equal(root_read(&root, "sys", out, sizeof(out)), -GW_E_IO);
	assert_string_equal(out, "");
	if (geteuid() != 0) {
		put("sys/n", "1");
		fchmodat(root.fd, "sys/n", 0, 0);
		assert_int_equal(root_read(&root, "sys/n", out, sizeof(out)), -GW_E_PERM);
	}
	assert_int_equal(root_open(&none, "/no/such/root"), -GW_E_NOENT);
}

static void reads_numbers_and_nothing_else(void **state)
{
	static const struct {
		const char *text;
		int rc;
		int64_t want;
	} rows[] = {
		{ "42\n", 0, 42 },
		{ "-7\n", 0, -7 },
		{ "0x10de\n", 0, 0x10de },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "9223372036854775808", -GW_E_PARSE, 0 },
		{ "", -GW_E_PARSE, 0 },
		{ "0x", -GW_E_PARSE, 0 },
		{ "12 W", -GW_E_PARSE, 0 },
		{ "unknown", -GW_E_PARSE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t v = 99;

		put("sys/n", rows[i].text);
		assert_int_equal(root_read_i64(&root, "sys/n", &v), rows[i].rc);
		assert_true(v == (rows[i].rc ? 99 : rows[i].want));
	}
	assert_int_equal(root_read_i64(&root, "sys/none", &(int64_t){ 0 }), -GW_E_NOENT);
}

static void reads_links_and_their_last_name(void **state)
{
	char out[64];

	(void)state;
	assert_int_equal(root_readlink(&root, "sys/driver", out, sizeof(out)), 28);
	assert_string_equal(out, "../../bus/pci/drivers/nvidia");
	assert_int_equal(root_readlink_base(&root, "sys/driver", out, sizeof(out)), 6);
	assert_string_equal(out, "nvidia");
	assert_int_equal(root_readlink_base(&root, "sys/bare", out, sizeof(out)), 4);
	assert_string_equal(out, "bare");
	assert_int_equal(root_readlink(&root, "sys/none", out, sizeof(out)), -GW_E_NOENT);
	assert_string_equal(out, "");
}

static void tells_what_exists(void **state)
{
	(void)state;
	assert_true(root_exists(&root, "sys/a"));
	assert_true(root_exists(&root, "sys"));
	assert_false(root_exists(&root, "sys/none"));
}

static void walks_a_directory(void **state)
{
	DIR *d = root_opendir(&root, "sys");
	unsigned n = 0;

	(void)state;
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	assert_int_equal(n, 3);
	assert_null(root_opendir(&root, "sys/none"));
	assert_null(root_opendir(&root, "sys/a"));
}

static void the_real_root_has_proc(void **state)
{
	struct root real;
	char path[64];

	(void)state;
	assert_int_equal(root_open(&real, NULL), 0);
	assert_true(real.real);
	assert_true(root_exists(&real, root_path(path, sizeof(path), "proc/%s/stat", "self")));
	root_close(&real);
}

#define ROOT_TEST(f) cmocka_unit_test_setup_teardown(f, make_tree, remove_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ROOT_TEST(reads_a_file_whole_or_cut),
		ROOT_TEST(a_line_has_no_blanks_at_its_end),
		ROOT_TEST(says_why_it_cannot_read),
		ROOT_TEST(reads_numbers_and_nothing_else),
		ROOT_TEST(reads_links_and_their_last_name),
		ROOT_TEST(tells_what_exists),
		ROOT_TEST(walks_a_directory),
		cmocka_unit_test(the_real_root_has_proc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
