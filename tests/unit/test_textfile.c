/* Tests the file that node_exporter reads. */

#include "daemon/push.h"

#include "base/file.h"

#include "test.h"

#include <gpuward.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuward-textfile-XXXXXX";
static char path[256], message[512];
static struct textfile file;
static bool news;

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/gpuward.prom", folder);
	return 0;
}

static int teardown(void **state)
{
	return rmdir(folder);
}

static const char *content(void)
{
	static char text[256];
	ssize_t n = file_read(path, text, sizeof(text) - 1, message, sizeof(message));

	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

static int put(const char *text)
{
	return textfile_write(&file, text, strlen(text), &news, message, sizeof(message));
}

static unsigned files(void)
{
	DIR *d = opendir(folder);
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

TEST(the_file_is_replaced_whole_and_readable_by_others)
{
	struct stat first, second;

	assert_int_equal(textfile_init(&file, path, message, sizeof(message)), 0);
	umask(022);
	assert_int_equal(put("a 1\nb 2\n"), 0);
	assert_string_equal(content(), "a 1\nb 2\n");
	assert_int_equal(stat(path, &first), 0);
	assert_int_equal(first.st_mode & 0777, 0644);
	assert_int_equal(put("a 3\n"), 0);
	assert_string_equal(content(), "a 3\n");
	assert_int_equal(stat(path, &second), 0);
	assert_true(first.st_ino !=
		    /* a new file was made; readers of the old file are not disturbed */
		    second.st_ino);
	assert_int_equal(files(), 1);
	assert_false(news);
	textfile_done(&file);
	assert_int_equal(files(), 0);
}

TEST(a_failure_and_its_end_are_reported_once)
{
	assert_int_equal(textfile_init(&file, path, message, sizeof(message)), 0);
	/* a folder at the path makes writing fail, also for root */
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(put("a 1\n"), -GW_E_IO);
	assert_true(news);
	assert_in(message, path);
	assert_int_equal(put("a 1\n"), -GW_E_IO);
	assert_false(news);
	assert_int_equal(files(), 1); /* no temporary file is left next to the path */
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(put("a 1\n"), 0);
	assert_true(news);
	assert_string_equal(message, "");
	textfile_done(&file);
}

TEST(a_folder_that_is_not_there_is_named)
{
	assert_int_equal(
		textfile_init(&file, "/nowhere/at/all/x.prom", message, sizeof(message)), 0);
	assert_int_equal(put("a 1\n"), -GW_E_NOENT);
	assert_in(message, "/nowhere/at/all/x.prom");
	textfile_done(&file);
}

TEST(a_path_that_is_too_long_is_refused)
{
	static char longest[5000];

	memset(longest, 'x', sizeof(longest) - 1);
	assert_int_equal(textfile_init(&file, longest, message, sizeof(message)), -GW_E_SIZE);
}

TEST_MAIN(setup, teardown)
