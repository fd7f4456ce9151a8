#include "device/host.h"

#include "tree_test.h"

#include <locale.h>
#include <math.h>

/* Writes /proc/stat with these user, idle and iowait ticks; the other columns stay the same. */
static void put_ticks(unsigned user, unsigned idle, unsigned iowait)
{
	char text[256];

	snprintf(text, sizeof(text), "cpu  %u 0 50 %u %u 0 0 0 7 0\ncpu0 1 2 3 4\nintr 5\n",
		 user, idle, iowait);
	tree_put(&t, "proc/stat", text);
}

/* Checks the utilisation; NAN: absent, because it needs another reading. */
static void assert_utilization(struct host *h, double want)
{
	struct host_report r;

	host_read(h, &r);
	assert_int_equal(r.why[GW_H_CPU_UTILIZATION],
			 isnan(want) ? GW_ABSENT_FIRST_READING : GW_HAVE);
	if (!isnan(want))
		assert_true(fabs(r.v[GW_H_CPU_UTILIZATION] - want) < 1e-9);
}

TEST(utilization_is_the_difference_of_two_readings)
{
	static const struct {
		unsigned user, idle, iowait;
		double want; /* INFINITY: the host is opened here */
	} rows[] = {
		{ 1000, 5000, 100, INFINITY },
		{ 1025, 5065, 110, 0.25 },
		{ 1125, 5065, 110, 1 },
		{ 1125, 5115, 110, 0 },
		/* waits for enough ticks and uses all of them */
		{ 1000, 5000, 0, INFINITY },
		{ 1000, 5000, 0, NAN },
		{ 1009, 5000, 0, NAN },
		{ 1009, 5009, 0, 0.5 },
		/* starts over when ticks step back */
		{ 1000, 5000, 300, INFINITY },
		{ 900, 4000, 200, NAN },
		{ 950, 4050, 200, 0.5 },
		/* user and idle grew by 45 ticks, but iowait fell by 100 */
		{ 990, 4055, 100, NAN },
	};
	struct host h;

	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		put_ticks(rows[i].user, rows[i].idle, rows[i].iowait);
		if (isinf(rows[i].want))
			host_init(&h, &t.root);
		else
			assert_utilization(&h, rows[i].want);
	}
}

TEST(a_missing_host_value_has_a_reason)
{
	struct host h;
	struct host_report r;

	host_init(&h, &t.root);
	host_read(&h, &r);
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++)
		assert_int_equal(r.why[q], GW_ABSENT_NOT_PRESENT);
	tree_put(&t, "proc/stat", "nonsense\n");
	tree_put(&t, "proc/loadavg", "none\n");
	tree_put(&t, "sys/devices/system/cpu/online", "3-1\n");
	tree_put(&t, "proc/meminfo", "MemTotal:  1000 kB\n");
	host_read(&h, &r);
	assert_int_equal(r.why[GW_H_CPU_UTILIZATION], GW_ABSENT_INVALID);
	assert_int_equal(r.why[GW_H_LOAD_1M], GW_ABSENT_INVALID);
	assert_int_equal(r.why[GW_H_CPU_COUNT], GW_ABSENT_INVALID);
	assert_int_equal(r.why[GW_H_RAM_TOTAL], GW_HAVE);
	assert_int_equal(r.why[GW_H_RAM_AVAILABLE], GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(r.why[GW_H_RAM_USED], GW_ABSENT_NOT_SUPPORTED);
	tree_put(&t, "proc/meminfo", "MemTotal:  1000 kB\nMemAvailable: 1001 kB\n");
	host_read(&h, &r);
	assert_int_equal(r.why[GW_H_RAM_AVAILABLE], GW_HAVE);
	assert_int_equal(r.why[GW_H_RAM_USED], GW_ABSENT_INVALID);
	put_ticks(1, 1000, 0);
	assert_utilization(&h, NAN);
	put_ticks(101, 1300, 0);
	assert_utilization(&h, 0.25);
}

TEST(reads_memory_load_and_cores)
{
	struct host h;
	struct host_report r;

	tree_put(&t, "proc/meminfo",
		 "MemTotal:       65536 kB\nMemFree:  1 kB\nMemAvailable:   16384 kB\n"
		 "XSwapTotal: 5 kB\nSwapTotal:  4096 kB\nSwapFree: 0 kB\n");
	tree_put(&t, "proc/loadavg", "12.07 0.50 0.10 2/345 6789\n");
	tree_put(&t, "sys/devices/system/cpu/online", "0-3,8,10-11\n");
	host_init(&h, &t.root);
	setlocale(LC_ALL, "de_DE.UTF-8");
	host_read(&h, &r);
	setlocale(LC_ALL, "C");
	assert_true(r.v[GW_H_RAM_TOTAL] == 65536.0 * 1024);
	assert_true(r.v[GW_H_RAM_AVAILABLE] == 16384.0 * 1024);
	assert_true(r.v[GW_H_RAM_USED] == 49152.0 * 1024);
	assert_true(r.v[GW_H_SWAP_TOTAL] == 4096.0 * 1024);
	assert_true(r.v[GW_H_SWAP_FREE] == 0);
	assert_int_equal(r.why[GW_H_SWAP_FREE], GW_HAVE);
	assert_true(r.v[GW_H_LOAD_1M] > 12.0699 && r.v[GW_H_LOAD_1M] < 12.0701);
	assert_true(r.v[GW_H_CPU_COUNT] == 7);
}

TEST(reads_the_real_machine)
{
	struct root real;
	struct host h;
	struct host_report r;

	assert_int_equal(root_open(&real, NULL), 0);
	host_init(&h, &real);
	host_read(&h, &r);
	assert_true(h.total > 0);
	assert_true(r.v[GW_H_CPU_COUNT] >= 1);
	assert_true(r.v[GW_H_RAM_TOTAL] > 1 << 20);
	assert_true(r.v[GW_H_RAM_USED] < r.v[GW_H_RAM_TOTAL]);
	root_close(&real);
}

TEST_MAIN(NULL, NULL)
