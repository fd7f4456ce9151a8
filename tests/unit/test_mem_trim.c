/* Memory that a library cleared is returned to the kernel, and the library's contents stay the
 * same. */

#include "base/mem_trim.h"

#include "test.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t (*size)(void);
static void (*start)(void);
static char *(*at)(size_t i);

static int open_library(void **state)
{
	void *lib = dlopen(CLEARING, RTLD_NOW);

	if (!lib)
		return -1;
	*(void **)&size = dlsym(lib, "clearing_size");
	*(void **)&start = dlsym(lib, "clearing_start");
	*(void **)&at = dlsym(lib, "clearing_at");
	return 0;
}

/* Returns how many pages of the table are in memory. */
static size_t resident(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
	uintptr_t from = ((uintptr_t)at(0) + page - 1) / page * page;

	for (uintptr_t p = from; p + page <= (uintptr_t)at(0) + size(); p += page) {
		unsigned char is;

		assert_int_equal(mincore((void *)p, page, &is), 0);
		n += is & 1;
	}
	return n;
}

TEST(cleared_pages_go_and_read_as_zero)
{
	size_t before, given;

	start();
	before = resident();
	given = mem_trim_unused((const void *)(uintptr_t)start);
	assert_true(before * (size_t)sysconf(_SC_PAGESIZE) > size() / 2);
	assert_true(given > size() - (size_t)(4 * sysconf(_SC_PAGESIZE)));
	assert_true(resident() < 4);
	for (size_t i = 0; i < size(); i += 997)
		assert_int_equal(*at(i), 0);
}

TEST(written_pages_stay)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	start();
	*at(5 * page + 17) = 7; /* a byte in a page of zeros */
	memset(at(900 * page), 3, 3 * page);
	*at(size() - 1) = 9;
	*at(0) = 1;
	mem_trim_unused((const void *)(uintptr_t)start);
	assert_int_equal(*at(0), 1);
	assert_int_equal(*at(5 * page + 17), 7);
	assert_int_equal(*at(5 * page + 18), 0);
	for (size_t i = 0; i < 3 * page; i++)
		assert_int_equal(*at(900 * page + i), 3);
	assert_int_equal(*at(size() - 1), 9);
}

TEST(released_pages_can_be_written)
{
	start();
	mem_trim_unused((const void *)(uintptr_t)start);
	memset(at(0), 5, size());
	assert_int_equal(mem_trim_unused((const void *)(uintptr_t)start), 0);
	for (size_t i = 0; i < size(); i += 4093)
		assert_int_equal(*at(i), 5);
}

TEST(an_address_in_no_library_gives_nothing)
{
	int here = 0;

	assert_int_equal(mem_trim_unused(&here), 0);
	assert_int_equal(mem_trim_unused(NULL), 0);
}

TEST_MAIN(open_library, NULL)
