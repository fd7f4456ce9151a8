#include "base/root.h"

#include "test.h"

#include <gpuward.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

	for (size_t i = 0; i < COUNT_OF(names); i++)
		unlinkat(root.fd, names[i], 0);
	unlinkat(root.fd, "sys", AT_REMOVEDIR);
	root_close(&root);
	assert_int_equal(root.fd, -1);
	root_close(&root);
	return rmdir(folder);
}

#define ROOT_TEST(name) TEST_WITH(name, make_tree, remove_tree)

ROOT_TEST(reads_a_file_whole_or_cut)
{
	char out[32];

	assert_int_equal(root_read(&root, "sys/a", out, sizeof(out)), 11);
	assert_string_equal(out, "one\ntwo \n\t\n");
	assert_int_equal(root_read(&root, "sys/a", out, 4), 3);
	assert_string_equal(out, "one");
	assert_int_equal(root_read(&root, "sys/a", out, 1), 0);
	assert_string_equal(out, "");
}

ROOT_TEST(a_line_has_no_blanks_at_its_end)
{
	char out[32];

	assert_int_equal(root_read_line(&root, "sys/a", out, sizeof(out)), 7);
	assert_string_equal(out, "one\ntwo");
	put("sys/n", " \n");
	assert_int_equal(root_read_line(&root, "sys/n", out, sizeof(out)), 0);
	assert_string_equal(out, "");
}

ROOT_TEST(a_failed_read_returns_the_reason)
{
	char out[32] = "junk";
	struct root none;

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

ROOT_TEST(reads_numbers_and_nothing_else)
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

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t v = 99;

		put("sys/n", rows[i].text);
		assert_int_equal(root_read_i64(&root, "sys/n", &v), rows[i].rc);
		assert_true(v == (rows[i].rc ? 99 : rows[i].want));
	}
	assert_int_equal(root_read_i64(&root, "sys/none", &(int64_t){ 0 }), -GW_E_NOENT);
}

ROOT_TEST(reads_links_and_their_last_name)
{
	char out[64];

	assert_int_equal(root_readlink(&root, "sys/driver", out, sizeof(out)), 28);
	assert_string_equal(out, "../../bus/pci/drivers/nvidia");
	assert_int_equal(root_readlink_base(&root, "sys/driver", out, sizeof(out)), 6);
	assert_string_equal(out, "nvidia");
	assert_int_equal(root_readlink_base(&root, "sys/bare", out, sizeof(out)), 4);
	assert_string_equal(out, "bare");
	assert_int_equal(root_readlink(&root, "sys/none", out, sizeof(out)), -GW_E_NOENT);
	assert_string_equal(out, "");
}

ROOT_TEST(finds_out_what_exists)
{
	assert_true(root_exists(&root, "sys/a"));
	assert_true(root_exists(&root, "sys"));
	assert_false(root_exists(&root, "sys/none"));
}

ROOT_TEST(walks_a_directory)
{
	DIR *d = root_opendir(&root, "sys");
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	assert_int_equal(n, 3);
	assert_null(root_opendir(&root, "sys/none"));
	assert_null(root_opendir(&root, "sys/a"));
}

TEST(the_real_root_has_proc)
{
	struct root real;
	char path[64];

	assert_int_equal(root_open(&real, NULL), 0);
	assert_true(real.real);
	assert_true(root_exists(&real, root_path(path, sizeof(path), "proc/%s/stat", "self")));
	root_close(&real);
}

TEST_MAIN(NULL, NULL)
