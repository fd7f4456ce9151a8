#include "gpu_tree.h"

#define ARC "0000:03:00.0/"
#define IGP "0000:00:02.0/"

static int setup(void **state)
{
	world_init(&backend_intel);
	return 0;
}

#define TEST_SETUP    setup
#define TEST_TEARDOWN world_teardown

static const struct tree_row arc_i915[] = {
	{ ARC "vendor", "0x8086\n" },
	{ ARC "device", "0x56a0\n" },
	{ ARC "class", "0x030000\n" },
	{ ARC "driver", "-> ../../drivers/i915" },
	{ ARC "power/runtime_status", "active\n" },
	{ ARC "current_link_speed", "2.5 GT/s PCIe\n" },
	{ ARC "current_link_width", "1\n" },
	{ ARC "drm/card1/gt_act_freq_mhz", "2400\n" },
	{ ARC "drm/card1/gt_RP0_freq_mhz", "2450\n" },
	{ ARC "drm/card1/lmem_total_bytes", "17079205888\n" },
	{ ARC "drm/card1/lmem_avail_bytes", "16000000000\n" },
	{ ARC "drm/renderD129/dev", "226:129\n" },
	{ ARC "hwmon/hwmon5/name", "i915_gt0\n" },
	{ ARC "hwmon/hwmon5/energy1_input", "1\n" },
	{ ARC "hwmon/hwmon4/name", "i915\n" },
	{ ARC "hwmon/hwmon4/energy1_input", "5000000\n" },
	{ ARC "hwmon/hwmon4/power1_max", "190000000\n" },
	{ ARC "hwmon/hwmon4/power1_rated_max", "228000000\n" },
	{ ARC "hwmon/hwmon4/temp1_input", "41000\n" },
	{ ARC "hwmon/hwmon4/fan1_input", "850\n" },
	{ 0 },
};

TEST(reads_an_arc_under_i915)
{
	world_fill(PCI, arc_i915);
	world_put("proc/uptime", "1\n");
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_int_equal(r->vendor, GW_VENDOR_INTEL);
	assert_text(r, GW_T_NAME, "Intel Arc A770");
	assert_text(r, GW_T_UUID, "PCI-0000:03:00.0");
	assert_value(r, GW_Q_ENERGY, 5);
	assert_value(r, GW_Q_POWER_LIMIT, 190);
	assert_value(r, GW_Q_POWER_LIMIT_DEFAULT, 228);
	assert_value(r, GW_Q_TEMPERATURE_GPU, 41);
	assert_value(r, GW_Q_FAN_SPEED_RPM, 850);
	assert_value(r, GW_Q_CLOCK_GRAPHICS, 2400e6);
	assert_value(r, GW_Q_CLOCK_SM_MAX, 2450e6);
	assert_value(r, GW_Q_MEMORY_TOTAL, 17079205888.0);
	assert_value(r, GW_Q_MEMORY_FREE, 16000000000.0);
	assert_value(r, GW_Q_MEMORY_USED, 1079205888.0);
	assert_value(r, GW_Q_PCIE_GENERATION, 1);
	assert_absent(r, GW_Q_UTILIZATION_GPU, GW_ABSENT_FIRST_READING);
	assert_absent(r, GW_Q_TEMPERATURE_MEMORY, GW_ABSENT_NOT_SUPPORTED);
}

TEST(power_is_the_energy_between_two_readings)
{
	world_fill(PCI, arc_i915);
	world_open(1);
	r = world_read(0, GW_TIER_FAST);
	assert_absent(r, GW_Q_POWER, GW_ABSENT_FIRST_READING);
	clock_step(&w->clock, 500 * NS_PER_MS);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "35000000\n");
	r = world_read(0, GW_TIER_FAST);
	assert_value(r, GW_Q_POWER, 60);
	/* read again too soon: there is no value, and the next reading covers the whole time */
	clock_step(&w->clock, NS_PER_MS);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "36000000\n");
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_POWER, GW_ABSENT_FIRST_READING);
	clock_step(&w->clock, 99 * NS_PER_MS);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "37000000\n");
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_POWER, 20);
	/* the counter starts over */
	clock_step(&w->clock, NS_PER_S);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "1000000\n");
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_POWER, GW_ABSENT_FIRST_READING);
	clock_step(&w->clock, NS_PER_S);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "3000000\n");
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_POWER, 2);
	/* the GPU was suspended in between, so the energy of that time does not show the
	 * current power */
	world_put(PCI ARC "power/runtime_status", "suspended\n");
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_POWER, GW_ABSENT_ASLEEP);
	world_put(PCI ARC "power/runtime_status", "active\n");
	clock_step(&w->clock, NS_PER_S);
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_POWER, GW_ABSENT_FIRST_READING);
}

TEST(a_counter_below_zero_is_invalid)
{
	world_fill(PCI, arc_i915);
	world_put(PCI ARC "hwmon/hwmon4/energy1_input", "-6\n");
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_absent(r, GW_Q_ENERGY, GW_ABSENT_INVALID);
	assert_absent(r, GW_Q_POWER, GW_ABSENT_INVALID);
}

TEST(reads_a_battlemage_under_xe)
{
	static const struct tree_row xe[] = {
		{ ARC "vendor", "0x8086\n" },
		{ ARC "device", "0xe20b\n" },
		{ ARC "class", "0x030000\n" },
		{ ARC "driver", "-> ../../drivers/xe" },
		{ ARC "tile0/gt0/freq0/act_freq", "2850\n" },
		{ ARC "tile0/gt0/freq0/rp0_freq", "2900\n" },
		{ ARC "tile0/physical_vram_size_bytes", "12884901888\n" },
		{ ARC "drm/card0/dev", "226:0\n" },
		{ ARC "hwmon/hwmon2/name", "xe\n" },
		{ ARC "hwmon/hwmon2/energy1_label", "card\n" },
		{ ARC "hwmon/hwmon2/energy1_input", "7000000\n" },
		{ ARC "hwmon/hwmon2/energy2_label", "pkg\n" },
		{ ARC "hwmon/hwmon2/energy2_input", "4000000\n" },
		{ ARC "hwmon/hwmon2/power1_cap", "190000000\n" },
		{ ARC "hwmon/hwmon2/temp2_label", "pkg\n" },
		{ ARC "hwmon/hwmon2/temp2_input", "47000\n" },
		{ ARC "hwmon/hwmon2/temp3_label", "vram\n" },
		{ ARC "hwmon/hwmon2/temp3_input", "52000\n" },
		{ 0 },
	};

	world_fill(PCI, xe);
	world_put("proc/uptime", "1\n");
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_text(r, GW_T_NAME, "Intel Arc B580");
	assert_value(r, GW_Q_ENERGY, 7);
	assert_value(r, GW_Q_POWER_LIMIT, 190);
	assert_value(r, GW_Q_TEMPERATURE_GPU, 47);
	assert_value(r, GW_Q_TEMPERATURE_MEMORY, 52);
	assert_value(r, GW_Q_CLOCK_GRAPHICS, 2850e6);
	assert_value(r, GW_Q_CLOCK_SM_MAX, 2900e6);
	assert_value(r, GW_Q_MEMORY_TOTAL, 12884901888.0);
	assert_absent(r, GW_Q_MEMORY_FREE, GW_ABSENT_NOT_SUPPORTED);
	assert_value(r, GW_Q_MEMORY_USED, 0); /* no process has the GPU open */
}

#define XE(id, memory, busy, total)                                     \
	"drm-driver:\txe\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t" id \
	"\ndrm-resident-local0:\t" memory "\ndrm-cycles-ccs:\t" busy    \
	"\ndrm-total-cycles-ccs:\t" total "\n"

TEST(clients_that_come_and_go_keep_the_utilisation_right)
{
	world_fill(PCI, arc_i915);
	tree_remove(&w->tree, PCI ARC "drm/card1/lmem_avail_bytes");
	world_put("proc/7/fd/3", "-> /dev/dri/renderD129");
	world_put("proc/7/fdinfo/3", XE("1", "1 MiB", "900", "1000"));
	world_open(1);
	clock_step(&w->clock, NS_PER_S);
	world_put("proc/7/fdinfo/3", XE("1", "1 MiB", "1400", "2000"));
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU, 0.5);
	assert_value(r = &w->b.slot[0]->r, GW_Q_MEMORY_USED, 1 << 20);
	/* the client ends, and a new client has worked since its start */
	clock_step(&w->clock, NS_PER_S);
	tree_remove(&w->tree, "proc/7");
	world_put("proc/8/fd/3", "-> /dev/dri/renderD129");
	world_put("proc/8/fdinfo/3", XE("2", "2 MiB", "250", "3000"));
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU, 0.25);
	assert_value(r, GW_Q_MEMORY_USED, 2 << 20);
	/* no client is left, then a client returns; in between, the GPU's clock was unknown */
	clock_step(&w->clock, NS_PER_S);
	tree_remove(&w->tree, "proc/8");
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU, 0);
	assert_value(r, GW_Q_MEMORY_USED, 0);
	clock_step(&w->clock, NS_PER_S);
	world_put("proc/8/fd/3", "-> /dev/dri/renderD129");
	world_put("proc/8/fdinfo/3", XE("3", "99999 MiB", "10", "5000"));
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU,
		      GW_ABSENT_FIRST_READING);
	/* more memory than the board has */
	assert_absent(r, GW_Q_MEMORY_USED, GW_ABSENT_INVALID);
	/* the GPU was suspended, so the figure starts again */
	world_put(PCI ARC "power/runtime_status", "suspended\n");
	world_read(0, GW_TIER_FAST);
	world_put(PCI ARC "power/runtime_status", "active\n");
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU,
		      GW_ABSENT_FIRST_READING);
}

TEST(utilisation_is_unknown_if_a_process_is_hidden)
{
	world_fill(PCI, arc_i915);
	tree_remove(&w->tree, PCI ARC "drm/card1/lmem_avail_bytes");
	world_put("proc/7/fd/3", "-> /dev/dri/renderD129");
	world_put("proc/8/fd/3", "-> /dev/null");
	tree_forbid(&w->tree, "proc/8/fd");
	world_open(1);
	tree_allow();
	r = &w->b.slot[0]->r;
	assert_absent(r, GW_Q_UTILIZATION_GPU, GW_ABSENT_NO_PERMISSION);
	assert_absent(r, GW_Q_MEMORY_USED, GW_ABSENT_NO_PERMISSION);
	/* in a container, some processes may be invisible */
	assert_int_equal(fchmodat(w->tree.root.fd, "proc/8/fd", 0755, 0), 0);
	clock_step(&w->clock, NS_PER_S);
	world_put("proc/self/ns/pid", "-> pid:[4026532000]");
	assert_absent(world_read(0, GW_TIER_FAST), GW_Q_UTILIZATION_GPU,
		      GW_ABSENT_NO_PERMISSION);
}

static const struct tree_row integrated[] = {
	{ IGP "vendor", "0x8086\n" },
	{ IGP "device", "0x9a49\n" },
	{ IGP "class", "0x030000\n" },
	{ IGP "driver", "-> ../../drivers/i915" },
	{ IGP "power/runtime_status", "active\n" },
	{ IGP "drm/card0/gt_act_freq_mhz", "0\n" },
	{ IGP "drm/renderD128/dev", "226:128\n" },
	{ 0 },
};

TEST(keeps_an_integrated_gpu_without_sensors)
{
	world_fill(PCI, integrated);
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_value(r, GW_Q_CLOCK_GRAPHICS, 0); /* powered down: 0 MHz is a value */
	assert_absent(r, GW_Q_POWER, GW_ABSENT_NOT_SUPPORTED);
	assert_absent(r, GW_Q_ENERGY, GW_ABSENT_NOT_SUPPORTED);
	assert_absent(r, GW_Q_TEMPERATURE_GPU, GW_ABSENT_NOT_SUPPORTED);
	assert_absent(r, GW_Q_MEMORY_TOTAL, GW_ABSENT_NOT_SUPPORTED);
}

TEST(ignores_an_accelerator_with_another_driver)
{
	static const struct tree_row npu[] = {
		{ "0000:00:0b.0/vendor", "0x8086\n" },
		{ "0000:00:0b.0/class", "0x120000\n" },
		{ "0000:00:0b.0/driver", "-> ../../drivers/intel_vpu" },
		{ 0 },
	};

	world_fill(PCI, npu);
	world_fill(PCI, integrated);
	world_open(1);
	assert_text(&w->b.slot[0]->r, GW_T_PCI, "0000:00:02.0");
}

TEST(reads_one_gpu_while_the_other_sleeps)
{
	world_fill(PCI, integrated);
	world_fill(PCI, arc_i915);
	world_put(PCI ARC "power/runtime_status", "suspended\n");
	world_open(2);
	assert_int_equal(w->b.cause, GW_CAUSE_NONE);
	assert_int_equal(world_read(0, GW_TIERS_ALL)->state, GW_DEVICE_OK);
	assert_int_equal(world_read(1, GW_TIERS_ALL)->state, GW_DEVICE_ASLEEP);
}

TEST(lists_processes_of_both_drivers)
{
	static const struct tree_row people[] = {
		{ "proc/10/fd/3", "-> /dev/dri/renderD129" },
		{ "proc/10/fdinfo/3",
		  "drm-driver:\ti915\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t3\n"
		  "drm-total-local0:\t64 MiB\ndrm-resident-local0:\t32 MiB\n"
		  "drm-resident-system0:\t999 MiB\n"
		  "drm-engine-render:\t9 ns\ndrm-engine-capacity-video:\t2\n" },
		{ "proc/11/fd/3", "-> /dev/dri/renderD129" },
		{ "proc/11/fdinfo/3",
		  "drm-driver:\txe\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t4\n"
		  "drm-resident-vram0:\t1024 KiB\ndrm-resident-vram1:\t1024\n"
		  "drm-cycles-ccs:\t8\ndrm-total-cycles-ccs:\t99\n"
		  "drm-cycles-rcs:\t0\ndrm-cycles-bcs:\t7\n" },
		{ 0 },
	};
	struct usage_list l = { 0 };
	int err, compute;

	world_fill(PCI, arc_i915);
	world_fill("", people);
	world_open(1);
	assert_int_equal(backend_intel.processes(w->b.slot[0], &l, &err), GW_HAVE);
	assert_int_equal(l.count, 2);
	compute = l.p[1].pid == 11;
	assert_int_equal(l.p[!compute].memory_bytes, 32 << 20);
	assert_int_equal(l.p[!compute].type, GW_PROCESS_GRAPHICS);
	assert_int_equal(l.p[compute].memory_bytes, (1024 << 10) + 1024);
	assert_int_equal(l.p[compute].type, GW_PROCESS_COMPUTE);
	usage_done(&l);
}

TEST_MAIN(NULL, NULL)
