/* Tests that pages of code can leave the resident set and that the code still runs. */
#include "base/mem_trim.h"

#include "test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* Returns the resident KiB of mapped files, from a line such as "RssFile:    1234 kB". */
static unsigned long resident_file_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long kib = 0;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		(void)sscanf(line, "RssFile: %lu", &kib);
	fclose(f);
	return kib;
}

/* Reads every page of libm, so that all of them are resident. */
static void use_library(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned long from, to;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "libm") && strstr(line, " r") &&
		    sscanf(line, "%lx-%lx", &from, &to) == 2)
			for (; from < to; from += page)
				(void)*(const volatile unsigned char *)from;
	fclose(f);
}

TEST(code_that_nobody_uses_leaves_the_resident_set)
{
	unsigned long before, after;

	assert_non_null(dlopen("libm.so.6", RTLD_NOW));
	use_library();
	before = resident_file_kib();
	assert_true(mem_trim_code() > 0);
	after = resident_file_kib();
	print_message("%lu KiB of files before, %lu KiB after\n", before, after);
	assert_true(after + 400 < before);
}

TEST(code_and_variables_are_the_same_afterwards)
{
	static const char constant[] = "a constant of the program";
	static int variable = 17;
	double (*cosine)(double) = NULL;
	void *lib = dlopen("libm.so.6", RTLD_NOW);

	assert_non_null(lib);
	*(void **)&cosine = dlsym(lib, "cos");
	variable++;
	mem_trim_code();
	assert_string_equal(constant, "a constant of the program");
	assert_int_equal(variable, 18);
	assert_true(cosine(0) == 1);
	mem_trim_code();
	assert_true(fabs(cosine(1) - 0.5403023058681398) < 1e-15);
}

TEST_MAIN(NULL, NULL)
