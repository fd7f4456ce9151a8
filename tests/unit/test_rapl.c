/* Tests RAPL on small trees. The source is included to replace perf's counters by files. */
#include "test.h"

#define RAPL_PERF_OPEN fake_perf_open

static int fake_perf_open(uint32_t type, uint64_t config, int cpu);

#include "device/rapl.c"

#include "tree.h"

#include <glob.h>
#include <sys/mman.h>
#include <time.h>

static struct tree t;
static struct rapl r;

/* The events that were opened on the fake PMU, and their counters. */
static struct {
	uint32_t type;
	uint64_t config;
	int cpu, fd;
} perf[16];
static unsigned perfs;
static int perf_refusal; /* an errno */

static int fake_perf_open(uint32_t type, uint64_t config, int cpu)
{
	if (perf_refusal) {
		errno = perf_refusal;
		return -1;
	}
	assert_true(perfs < 16);
	perf[perfs].type = type;
	perf[perfs].config = config;
	perf[perfs].cpu = cpu;
	perf[perfs].fd = memfd_create("counter", MFD_CLOEXEC);
	return perf[perfs++].fd;
}

static void perf_set(unsigned i, uint64_t count)
{
	assert_int_equal(pwrite(perf[i].fd, &count, sizeof(count), 0), sizeof(count));
	lseek(perf[i].fd, 0, SEEK_SET);
}

static int setup(void **state)
{
	tree_init(&t);
	memset(&r, 0, sizeof(r));
	perfs = 0;
	perf_refusal = 0;
	return 0;
}

static int teardown(void **state)
{
	rapl_close(&r);
	tree_done(&t);
	return 0;
}

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown

#define ZONE(n) "sys/class/powercap/" n

static const struct tree_row two_packages[] = {
	{ ZONE("intel-rapl/enabled"), "1\n" },
	{ ZONE("intel-rapl:0/name"), "package-0\n" },
	{ ZONE("intel-rapl:0/energy_uj"), "262143328850\n" },
	{ ZONE("intel-rapl:0/max_energy_range_uj"), "262143328850\n" },
	{ ZONE("intel-rapl:0:0/name"), "dram\n" },
	{ ZONE("intel-rapl:0:0/energy_uj"), "1000\n" },
	{ ZONE("intel-rapl:1/name"), "package-1\n" },
	{ ZONE("intel-rapl:1/energy_uj"), "2000\n" },
	{ ZONE("intel-rapl:1:0/name"), "dram\n" },
	{ ZONE("intel-rapl:1:0/energy_uj"), "3000\n" },
	{ ZONE("intel-rapl:2/name"), "psys\n" },
	{ ZONE("intel-rapl:2/energy_uj"), "4000\n" },
	{ ZONE("intel-rapl-mmio:0/name"), "package-0\n" },
	{ ZONE("intel-rapl-mmio:0/energy_uj"), "262143328850\n" },
	{ ZONE("intel-rapl-mmio:0:0/name"), "dram\n" },
	{ ZONE("intel-rapl-mmio:0:0/energy_uj"), "1000\n" },
	{ 0 },
};

TEST(lists_energy_domains_once_each)
{
	static const struct {
		const char *name;
		int package;
	} want[] = {
		{ "package-0", 0 }, { "dram", 0 },  { "package-1", 1 },
		{ "dram", 1 },      { "psys", -1 },
	};
	struct rapl_domain d[8];

	tree_fill(&t, "", two_packages);
	assert_int_equal(rapl_list(&t.root, d, 8), 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_string_equal(d[i].name, want[i].name);
		assert_int_equal(d[i].package, want[i].package);
		assert_int_equal(d[i].why, GW_HAVE);
		assert_null(strstr(d[i].path, "mmio"));
	}
	assert_true(d[0].energy_uj == UINT64_C(262143328850));
	assert_true(d[0].range_uj == UINT64_C(262143328850));
	assert_int_equal(d[1].range_uj, 0);
	assert_string_equal(d[3].path, ZONE("intel-rapl:1:0"));
	memset(d, 0, sizeof(d));
	assert_int_equal(rapl_list(&t.root, d, 1), 5);
	assert_string_equal(d[1].name, "");
}

TEST(keeps_a_mapped_domain_that_nothing_else_provides)
{
	struct rapl_domain d[2];

	tree_put(&t, ZONE("intel-rapl-mmio:0/name"), "package-0\n");
	tree_put(&t, ZONE("intel-rapl-mmio:0/energy_uj"), "5\n");
	assert_int_equal(rapl_list(&t.root, d, 2), 1);
	assert_int_equal(d[0].energy_uj, 5);
}

TEST(lists_an_unreadable_domain)
{
	struct rapl_domain d[2];

	tree_put(&t, ZONE("intel-rapl:0/name"), "package-0\n");
	tree_put(&t, ZONE("intel-rapl:0/energy_uj"), "many\n");
	/* what a container shows if its runtime hides the counters */
	tree_put(&t, ZONE("intel-rapl:1"), "-> ../../devices/virtual/powercap/gone");
	assert_int_equal(rapl_list(&t.root, d, 2), 2);
	assert_int_equal(d[0].why, GW_ABSENT_INVALID);
	assert_string_equal(d[1].name, "intel-rapl:1");
	assert_int_equal(d[1].why, GW_ABSENT_NOT_PRESENT);
}

TEST(a_domain_without_permission_has_its_reason)
{
	struct rapl_domain d;

	tree_put(&t, ZONE("intel-rapl:0/name"), "package-0\n");
	tree_put(&t, ZONE("intel-rapl:0/energy_uj"), "5\n");
	tree_forbid(&t, ZONE("intel-rapl:0/energy_uj"));
	assert_int_equal(rapl_list(&t.root, &d, 1), 1);
	tree_allow();
	assert_string_equal(d.name, "package-0");
	assert_int_equal(d.why, GW_ABSENT_NO_PERMISSION);
}

TEST(finds_no_domains_on_a_machine_without)
{
	assert_int_equal(rapl_list(&t.root, NULL, 0), 0);
}

static void put_uj(const char *zone, uint64_t uj)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "sys/class/powercap/%s/energy_uj", zone);
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)uj);
	tree_put(&t, path, text);
}

static void put_zone(const char *zone, const char *name, uint64_t uj, uint64_t range)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "sys/class/powercap/%s/name", zone);
	tree_put(&t, path, name);
	snprintf(path, sizeof(path), "sys/class/powercap/%s/max_energy_range_uj", zone);
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)range);
	tree_put(&t, path, text);
	put_uj(zone, uj);
}

static void assert_joules(double want)
{
	struct rapl_total total = rapl_total(&r);

	if (total.why != GW_HAVE)
		fail_msg("absent: %s %s", gw_absence_key(total.why), total.missing);
	if (!(fabs(total.joules - want) <= 1e-9 * fabs(want)))
		fail_msg("%.9g J instead of %.9g", total.joules, want);
}

#define RANGE UINT64_C(262143328850)

TEST(packages_and_memory_are_added_and_subdomains_are_not)
{
	tree_fill(&t, "", two_packages);
	put_zone("intel-rapl:0:1", "core\n", 50, RANGE);
	put_zone("intel-rapl:0:2", "uncore\n", 50, RANGE);
	rapl_open(&r, &t.root);
	rapl_read(&r);
	assert_joules(0);
	put_uj("intel-rapl:0:0", 1000 + 1000000);
	put_uj("intel-rapl:0:1", 50 + 700000000); /* in the package */
	put_uj("intel-rapl:0:2", 50 + 700000000);
	put_uj("intel-rapl:1", 2000 + 20000000);
	put_uj("intel-rapl:1:0", 3000 + 300000);
	put_uj("intel-rapl:2", 4000 + 900000000);      /* psys */
	put_uj("intel-rapl-mmio:0:0", 1000 + 1000000); /* reported twice */
	rapl_read(&r);
	assert_joules(1 + 20 + 0.3);
	assert_int_equal(rapl_total(&r).dram_why, GW_HAVE);
	assert_int_equal(r.count, 7);
}

TEST(a_counter_that_wraps_goes_on)
{
	unsigned seed = (unsigned)time(NULL);
	double truth = 0;
	uint64_t at = RANGE - 5000000;

	printf("seed %u\n", seed);
	srand(seed);
	put_zone("intel-rapl:0", "package-0\n", at, RANGE);
	rapl_open(&r, &t.root);
	for (int i = 0; i < 300; i++) {
		/* less than one wrap of the counter */
		uint64_t used = (uint64_t)rand() * 97 % (RANGE - 1);

		truth += (double)used * 1e-6;
		at = (at + used) % RANGE;
		put_uj("intel-rapl:0", at);
		rapl_read(&r);
		assert_true(fabs(rapl_total(&r).joules - truth) < 1e-6 * truth + 1e-9);
	}
	assert_true(r.counter[0].wraps > 50);
}

TEST(a_counter_that_goes_back_without_a_range_is_absent)
{
	put_zone("intel-rapl:0", "package-0\n", 5000000, 0);
	rapl_open(&r, &t.root);
	put_uj("intel-rapl:0", 6000000);
	rapl_read(&r);
	assert_joules(1);
	put_uj("intel-rapl:0", 100);
	rapl_read(&r);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_INVALID);
	assert_true(isnan(rapl_total(&r).joules));
	put_uj("intel-rapl:0", 7000000); /* energy that was lost stays lost */
	rapl_read(&r);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_INVALID);
}

TEST(a_counter_beyond_its_range_is_absent)
{
	put_zone("intel-rapl:0", "package-0\n", 9000, 5000);
	rapl_open(&r, &t.root);
	put_uj("intel-rapl:0", 10);
	rapl_read(&r);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_INVALID);
}

TEST(a_failed_reading_is_recovered_by_the_next)
{
	put_zone("intel-rapl:0", "package-0\n", 1000000, RANGE);
	rapl_open(&r, &t.root);
	tree_put(&t, ZONE("intel-rapl:0/energy_uj"), "oops\n");
	rapl_read(&r);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_INVALID);
	assert_string_equal(rapl_total(&r).missing,
			    "/sys/class/powercap/intel-rapl:0/energy_uj");
	put_uj("intel-rapl:0", 4000000);
	rapl_read(&r);
	assert_joules(3);
}

TEST(an_unreadable_host_is_null_and_names_the_remedy)
{
	struct rapl_total total;

	put_zone("intel-rapl:0", "package-0\n", 1000000, RANGE);
	put_zone("intel-rapl:1", "package-1\n", 1000000, RANGE);
	tree_forbid(&t, ZONE("intel-rapl:1/energy_uj"));
	rapl_open(&r, &t.root);
	rapl_read(&r);
	tree_allow();
	total = rapl_total(&r);
	/* the energy of a part of the host is not the energy of the host */
	assert_true(isnan(total.joules));
	assert_int_equal(total.why, GW_ABSENT_NO_PERMISSION);
	assert_int_equal(total.cause, GW_CAUSE_RAPL_PERMISSION);
	assert_in(total.remedy, "chmod");
	assert_in(total.remedy, "udev");
	assert_string_equal(total.missing, "/sys/class/powercap/intel-rapl:1/energy_uj");
	assert_int_equal(r.counter[0].why, GW_HAVE);
	rapl_read(&r); /* the counter is readable now, but the energy before is unknown */
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NO_PERMISSION);
}

TEST(unreadable_memory_makes_the_total_unknown)
{
	put_zone("intel-rapl:0", "package-0\n", 1000000, RANGE);
	put_zone("intel-rapl:0:0", "dram\n", 1000000, RANGE);
	tree_forbid(&t, ZONE("intel-rapl:0:0/energy_uj"));
	rapl_open(&r, &t.root);
	tree_allow();
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NO_PERMISSION);
	assert_int_equal(rapl_total(&r).dram_why, GW_ABSENT_NO_PERMISSION);
}

TEST(without_memory_counters_the_packages_are_the_total)
{
	put_zone("intel-rapl:0", "package-0\n", 0, RANGE);
	rapl_open(&r, &t.root);
	put_uj("intel-rapl:0", 2500000);
	rapl_read(&r);
	assert_joules(2.5);
	assert_int_equal(rapl_total(&r).dram_why, GW_ABSENT_NOT_PRESENT);
}

TEST(a_machine_without_counters_reports_that)
{
	struct rapl_total total;

	rapl_open(&r, &t.root);
	rapl_read(&r);
	total = rapl_total(&r);
	assert_int_equal(r.count, 0);
	assert_true(isnan(total.joules));
	assert_int_equal(total.why, GW_ABSENT_NOT_PRESENT);
	assert_int_equal(total.cause, GW_CAUSE_NONE);
	assert_string_equal(total.remedy, "");
	assert_string_equal(total.missing, "");
}

TEST(dies_that_show_one_counter_are_counted_once)
{
	put_zone("intel-rapl:0", "package-0-die-0\n", 123456789, RANGE);
	put_zone("intel-rapl:1", "package-0-die-1\n", 123456789, RANGE);
	put_zone("intel-rapl:2", "package-1-die-0\n", 123456789, RANGE); /* another package */
	put_zone("intel-rapl:3", "package-1-die-1\n", 123456790, RANGE); /* another counter */
	put_zone("intel-rapl:0:0", "dram\n", 77, RANGE);
	put_zone("intel-rapl:1:0", "dram\n", 77, RANGE);
	put_zone("intel-rapl:2:0", "dram\n", 5, RANGE);
	put_zone("intel-rapl:3:0", "dram\n", 78, RANGE);
	rapl_open(&r, &t.root);
	assert_int_equal(r.count, 6);
	for (unsigned i = 0; i < 4; i++) {
		char zone[32];

		snprintf(zone, sizeof(zone), "intel-rapl:%u", i);
		put_uj(zone, 123456790 + 1000000);
		snprintf(zone, sizeof(zone), "intel-rapl:%u:0", i);
		put_uj(zone, 78 + 100000);
	}
	rapl_read(&r);
	assert_joules(1.000001 * 2 + 1 + 0.100001 + 0.100073 + 0.1);
}

TEST(zones_of_one_name_are_counted_once)
{
	put_zone("intel-rapl:0", "package-0\n", 1000, RANGE);
	put_zone("intel-rapl:1", "package-0\n", 5000, RANGE);
	rapl_open(&r, &t.root);
	put_uj("intel-rapl:0", 1001000);
	put_uj("intel-rapl:1", 1005000);
	rapl_read(&r);
	assert_joules(1);
}

static const struct tree_row pmu[] = {
	{ PMU "/type", "21\n" },
	{ PMU "/cpumask", "0,28\n" },
	{ PMU "/events/energy-pkg", "event=0x02\n" },
	{ PMU "/events/energy-pkg.scale", "2.3283064365386962890625e-10\n" },
	{ PMU "/events/energy-pkg.unit", "Joules\n" },
	{ PMU "/events/energy-ram", "event=0x03\n" },
	{ PMU "/events/energy-ram.scale", "2.3283064365386962890625e-10\n" },
	{ PMU "/events/energy-psys", "event=0x05\n" },
	{ "sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n" },
	{ "sys/devices/system/cpu/cpu0/topology/die_id", "0\n" },
	{ "sys/devices/system/cpu/cpu28/topology/physical_package_id", "1\n" },
	{ "sys/devices/system/cpu/cpu28/topology/die_id", "0\n" },
	{ "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n" },
	{ 0 },
};

static void open_pmu(void)
{
	tree_fill(&t, "", pmu);
	t.root.real = true;
}

TEST(the_power_pmu_is_read_where_powercap_is_not)
{
	open_pmu();
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 4);
	assert_int_equal(perf[0].type, 21);
	assert_int_equal(perf[0].config, 2);
	assert_int_equal(perf[1].cpu, 28);
	assert_int_equal(perf[2].config, 3);
	for (unsigned i = 0; i < 4; i++)
		perf_set(i, (i + 1) * (UINT64_C(1) << 32)); /* 1 + 2 + 3 + 4 J */
	rapl_read(&r);
	assert_joules(10);
	assert_int_equal(rapl_total(&r).dram_why, GW_HAVE);
	assert_string_equal(r.counter[1].d.name, "package-1");
}

TEST(powercap_goes_first)
{
	open_pmu();
	put_zone("intel-rapl:0", "package-0\n", 0, RANGE);
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 0);
	assert_int_equal(r.count, 1);
}

TEST(perf_is_used_where_powercap_refuses)
{
	open_pmu();
	put_zone("intel-rapl:0", "package-0\n", 0, RANGE);
	tree_forbid(&t, ZONE("intel-rapl:0/energy_uj"));
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 4);
	rapl_close(&r);
	perfs = 0;
	perf_refusal = EACCES;
	rapl_open(&r, &t.root);
	tree_allow();
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NO_PERMISSION);
	assert_in(rapl_total(&r).remedy, "chmod"); /* the easier remedy */
}

TEST(perf_that_refuses_names_its_own_remedy)
{
	open_pmu();
	perf_refusal = EACCES;
	rapl_open(&r, &t.root);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NO_PERMISSION);
	assert_int_equal(rapl_total(&r).cause, GW_CAUSE_RAPL_PERMISSION);
	assert_in(rapl_total(&r).remedy, "perf_event_paranoid");
	assert_string_equal(rapl_total(&r).missing, "/" PMU "/events/energy-pkg");
	rapl_close(&r);
	perf_refusal = ENOENT;
	rapl_open(&r, &t.root);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NOT_SUPPORTED);
}

TEST(chiplets_of_one_package_are_one_counter_of_perf)
{
	open_pmu();
	tree_put(&t, "sys/devices/system/cpu/cpu28/topology/physical_package_id", "0\n");
	tree_put(&t, "sys/devices/system/cpu/cpu28/topology/die_id", "1\n");
	tree_put(&t, "proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
	tree_remove(&t, PMU "/events/energy-ram");
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 1);
	perf_set(0, UINT64_C(5) << 32);
	rapl_read(&r);
	assert_joules(5);
	assert_int_equal(rapl_total(&r).dram_why, GW_ABSENT_NOT_PRESENT);
	rapl_close(&r);
	perfs = 0;
	tree_put(&t, "proc/cpuinfo", "vendor_id\t: GenuineIntel\n"); /* one counter per die */
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 2);
}

TEST(another_machines_files_open_no_counter_of_this_one)
{
	tree_fill(&t, "", pmu);
	rapl_open(&r, &t.root);
	assert_int_equal(perfs, 0);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NOT_PRESENT);
}

TEST(invalid_pmu_values_are_absent_not_zero)
{
	static const struct tree_row bad[] = {
		{ PMU "/events/energy-pkg", "umask=0x02\n" },
		{ PMU "/events/energy-pkg.scale", "one\n" },
		{ PMU "/events/energy-pkg.scale", "-1\n" },
		{ PMU "/events/energy-pkg.scale", "nan\n" },
	};

	for (unsigned i = 0; i < COUNT_OF(bad); i++) {
		open_pmu();
		tree_put(&t, bad[i].path, bad[i].text);
		rapl_open(&r, &t.root);
		rapl_read(&r);
		assert_int_equal(rapl_total(&r).why, GW_ABSENT_INVALID);
		rapl_close(&r);
		perfs = 0;
	}
	open_pmu();
	tree_put(&t, PMU "/cpumask", "all of them\n");
	rapl_open(&r, &t.root);
	assert_int_equal(rapl_total(&r).why, GW_ABSENT_NOT_PRESENT);
}

TEST(the_real_machine_has_joules_or_a_reason)
{
	bool readable = false;
	struct rapl_total total;
	struct root real;
	glob_t zones = { 0 };

	glob("/sys/class/powercap/intel-rapl*/energy_uj", 0, NULL, &zones);
	for (size_t i = 0; i < zones.gl_pathc; i++)
		readable |= access(zones.gl_pathv[i], R_OK) == 0;

	assert_int_equal(root_open(&real, NULL), 0);
	perf_refusal = ENODEV;
	rapl_open(&r, &real);
	rapl_read(&r);
	total = rapl_total(&r);
	assert_int_equal(total.why == GW_HAVE, readable);
	assert_int_equal(total.why == GW_ABSENT_NO_PERMISSION, zones.gl_pathc && !readable);
	assert_int_equal(isnan(total.joules), !readable);
	assert_false(total.joules < 0 || total.joules > 1e6);
	globfree(&zones);
	rapl_close(&r);
	root_close(&real);
}

TEST_MAIN(NULL, NULL)
