/* Parses valid and invalid records, and reads a log from a file. */
#include "guard/kernel_log.h"

#include "measure/stat.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

TEST(a_record_of_an_xid_is_parsed)
{
	static const struct {
		const char *line, *pci;
		unsigned xid;
		uint64_t ns;
	} rows[] = {
		{ "3,1234,5678901,-;NVRM: Xid (PCI:0000:0b:00): 79, pid='<unknown>', "
		  "name=<unknown>, GPU has fallen off the bus.",
		  "0000:0b:00", 79, UINT64_C(5678901000) },
		{ "6,1,0,-,caller=T1;NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception",
		  "0000:01:00", 13, 0 },
		{ "6,1,2,c;NVRM: Xid (0000:C1:00): 31", "0000:c1:00", 31, 2000 },
		{ "6,1,2,-;NVRM: Xid (PCI:0002:C1:00.0): 48, DBE", "0002:c1:00", 48, 2000 },
		{ "6,1,2,-;NVRM: Xid (PCI:00010000:01:00): 119, x", "10000:01:00", 119, 2000 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct kernel_log_record r;

		assert_int_equal(kernel_log_parse(rows[i].line, &r), KERNEL_LOG_XID);
		assert_string_equal(r.pci, rows[i].pci);
		assert_int_equal(r.xid, rows[i].xid);
		assert_int_equal(r.mono_ns, rows[i].ns);
	}
}

TEST(other_records_are_ignored)
{
	static const char *const lines[] = {
		"",
		";",
		"6",
		"6,1,2,-",
		"6,1,2;NVRM: Xid (PCI:0000:01:00): 79",
		"x,1,2,-;NVRM: Xid (PCI:0000:01:00): 79",
		"6,1,99999999999999999999999,-;NVRM: Xid (PCI:0000:01:00): 79",
		"6,1,2,-;usb: Xid (PCI:0000:01:00): 79",
		"6,1,2,-;program said NVRM: Xid (PCI:0000:01:00): 79",
		"6,1,2,-;NVRM: Xid (PCI:0000:01): 79",
		"6,1,2,-;NVRM: Xid (PCI:zzzz:01:00): 79",
		"6,1,2,-;NVRM: Xid (PCI:0000:01:00.): 79",
		"6,1,2,-;NVRM: Xid (PCI:0000:01:00) 79",
		"6,1,2,-;NVRM: Xid (PCI:0000:01:00): ",
		"6,1,2,-;NVRM: Xid (PCI:0000:01:00): -1",
		"6,1,2,-;NVRM: Xid (PCI:0000:01:00): 99999999999",
		" SUBSYSTEM=pci",
	};
	struct kernel_log_record r;

	for (size_t i = 0; i < COUNT_OF(lines); i++)
		assert_int_equal(kernel_log_parse(lines[i], &r), KERNEL_LOG_OTHER);
}

TEST(the_loading_of_the_driver_is_parsed)
{
	struct kernel_log_record r;

	assert_int_equal(kernel_log_parse("5,9,3000000,-;NVRM: loading NVIDIA UNIX Open Kernel "
					  "Module for x86_64  580.159.04",
					  &r),
			 KERNEL_LOG_LOADED);
	assert_int_equal(r.mono_ns, UINT64_C(3000000000));
	assert_int_equal(kernel_log_parse("5,9,3,-;NVRM: loading NVIDIA UNIX x86_64 Kernel "
					  "Module  470.1",
					  &r),
			 KERNEL_LOG_LOADED);
}

TEST(the_length_of_the_pci_domain_does_not_matter)
{
	assert_true(kernel_log_same_pci("0000:0b:00", "0000:0B:00.0"));
	assert_true(kernel_log_same_pci("0000:0b:00", "00000000:0b:00.0"));
	assert_false(kernel_log_same_pci("0000:0b:00", "0000:0c:00.0"));
	assert_false(kernel_log_same_pci("0000:0b:00", "0001:0b:00.0"));
	assert_false(kernel_log_same_pci("0000:0b:00", ""));
}

/* Changes, cuts and moves bytes of a record. The parser must return a number in range or
 * nothing. */
TEST(mutated_records_do_not_crash_the_parser)
{
	static const char good[] = "3,1234,5678901,-;NVRM: Xid (PCI:0000:0b:00): 79, pid=1";
	struct random r;
	unsigned understood = 0;

	random_init(&r, 20260815);
	for (unsigned i = 0; i < 200000; i++) {
		char *line = malloc(sizeof(good)); /* so that a sanitizer finds an overrun */
		struct kernel_log_record got = { 0 };
		unsigned changes = (unsigned)(random_next(&r) % 4);

		assert_non_null(line);
		memcpy(line, good, sizeof(good));
		for (unsigned k = 0; k < changes; k++)
			line[random_next(&r) % (sizeof(good) - 1)] =
				(char)(random_next(&r) % 255 + 1);
		if (random_next(&r) % 8 == 0)
			line[random_next(&r) % sizeof(good)] = '\0';
		if (kernel_log_parse(line, &got) == KERNEL_LOG_XID) {
			understood++;
			assert_true(strlen(got.pci) >= 10);
		}
		free(line);
	}
	assert_true(understood > 1000);
}

static char folder[] = "/tmp/gpuward-kernel-log-XXXXXX";

static int make(void **state)
{
	char path[100];

	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/dev", folder);
	return mkdir(path, 0700);
}

static int unmake(void **state)
{
	char path[100];

	snprintf(path, sizeof(path), "%s/dev/kmsg", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/dev", folder);
	rmdir(path);
	return rmdir(folder);
}

static void add(const char *text, size_t n)
{
	char path[100];
	FILE *f;

	snprintf(path, sizeof(path), "%s/dev/kmsg", folder);
	f = fopen(path, "a");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}

static void adds(const char *text)
{
	add(text, strlen(text));
}

TEST_WITH(a_log_is_read_to_its_end_and_followed, make, unmake)
{
	struct kernel_log_record r;
	enum kernel_log_kind kind;
	struct kernel_log *k;
	struct root root;
	char why[200];

	adds("6,1,100,-;Linux version 6.18\n"
	     "5,2,200,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580\n"
	     "3,3,300,-;NVRM: Xid (PCI:0000:01:00): 13, x\n SUBSYSTEM=pci\n"
	     " DEVICE=+pci:0000:01:00.0\n3,4,400,-;NVRM: Xid (PCI:00");
	assert_int_equal(root_open(&root, folder), 0);
	assert_int_equal(kernel_log_open(&root, &k, why, sizeof(why)), 0);
	assert_true(kernel_log_next(k, &kind, &r));
	assert_int_equal(kind, KERNEL_LOG_LOADED);
	assert_true(kernel_log_next(k, &kind, &r));
	assert_int_equal(kind, KERNEL_LOG_XID);
	assert_int_equal(r.xid, 13);
	assert_false(kernel_log_next(k, &kind, &r));
	adds("00:01:00): 79, y\n");
	assert_true(kernel_log_next(k, &kind, &r));
	assert_int_equal(r.xid, 79);
	assert_false(kernel_log_next(k, &kind, &r));
	kernel_log_close(k);
	root_close(&root);
}

TEST_WITH(an_overlong_line_is_skipped, make, unmake)
{
	struct kernel_log_record r;
	enum kernel_log_kind kind;
	struct kernel_log *k;
	struct root root;
	char why[200], *big = malloc(100000);

	assert_non_null(big);
	memset(big, 'a', 100000);
	memset(big + 100, 0, 50);
	add(big, 100000);
	adds("\n3,4,400,-;NVRM: Xid (PCI:0000:01:00): 62, y\n");
	assert_int_equal(root_open(&root, folder), 0);
	assert_int_equal(kernel_log_open(&root, &k, why, sizeof(why)), 0);
	assert_true(kernel_log_next(k, &kind, &r));
	assert_int_equal(r.xid, 62);
	assert_false(kernel_log_next(k, &kind, &r));
	kernel_log_close(k);
	root_close(&root);
	free(big);
}

TEST_WITH(a_missing_log_is_reported, make, unmake)
{
	struct kernel_log *k;
	struct root root;
	char why[200] = "";

	assert_int_equal(root_open(&root, folder), 0);
	assert_int_equal(kernel_log_open(&root, &k, why, sizeof(why)), -GW_E_NOENT);
	assert_in(why, "/dev/kmsg");
	root_close(&root);
	kernel_log_close(NULL);
}

TEST_MAIN(NULL, NULL)
