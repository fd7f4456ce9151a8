#include "gpu_tree.h"

#define CARD "0000:03:00.0/"

static int setup(void **state)
{
	world_init(&backend_amdgpu);
	return 0;
}

#define TEST_SETUP    setup
#define TEST_TEARDOWN world_teardown

static const struct tree_row discrete[] = {
	{ CARD "vendor", "0x1002\n" },
	{ CARD "device", "0x744c\n" },
	{ CARD "class", "0x030000\n" },
	{ CARD "driver", "-> ../../drivers/amdgpu" },
	{ CARD "power/runtime_status", "active\n" },
	{ CARD "unique_id", "f0e1d2c3b4a59687\n" },
	{ CARD "vbios_version", "113-D70401-00\n" },
	{ CARD "gpu_busy_percent", "37\n" },
	{ CARD "mem_busy_percent", "12\n" },
	{ CARD "mem_info_vram_total", "25753026560\n" },
	{ CARD "mem_info_vram_used", "1073741824\n" },
	{ CARD "pp_dpm_sclk", "0: 500Mhz \n1: 1500Mhz *\n2: 2526Mhz \n" },
	{ CARD "pp_dpm_mclk", "0: 96Mhz *\n1: 1249Mhz \n" },
	{ CARD "current_link_speed", "16.0 GT/s PCIe\n" },
	{ CARD "current_link_width", "16\n" },
	{ CARD "max_link_speed", "32.0 GT/s PCIe\n" },
	{ CARD "max_link_width", "16\n" },
	{ CARD "pcie_replay_count", "3\n" },
	{ CARD "ras/umc_err_count", "ue: 1\nce: 12\n" },
	{ CARD "drm/card1/dev", "226:1\n" },
	{ CARD "drm/renderD129/dev", "226:129\n" },
	{ CARD "hwmon/hwmon4/name", "amdgpu\n" },
	{ CARD "hwmon/hwmon4/power1_average", "87000000\n" },
	{ CARD "hwmon/hwmon4/power1_cap", "300000000\n" },
	{ CARD "hwmon/hwmon4/power1_cap_min", "0\n" },
	{ CARD "hwmon/hwmon4/power1_cap_max", "350000000\n" },
	{ CARD "hwmon/hwmon4/power1_cap_default", "310000000\n" },
	{ CARD "hwmon/hwmon4/temp1_label", "edge\n" },
	{ CARD "hwmon/hwmon4/temp1_input", "45000\n" },
	{ CARD "hwmon/hwmon4/temp1_crit", "100000\n" },
	{ CARD "hwmon/hwmon4/temp1_emergency", "105000\n" },
	{ CARD "hwmon/hwmon4/temp2_label", "junction\n" },
	{ CARD "hwmon/hwmon4/temp2_input", "55000\n" },
	{ CARD "hwmon/hwmon4/temp3_label", "mem\n" },
	{ CARD "hwmon/hwmon4/temp3_input", "62000\n" },
	{ CARD "hwmon/hwmon4/fan1_input", "712\n" },
	{ CARD "hwmon/hwmon4/pwm1", "51\n" },
	{ 0 },
};

static void open_discrete(void)
{
	world_fill(PCI, discrete);
	world_open(1);
}

TEST(reads_all_of_a_discrete_gpu)
{
	world_fill(PCI, discrete);
	world_put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
	world_open(1);
	assert_true(w->b.open);
	assert_int_equal(w->b.cause, GW_CAUSE_NONE);
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_int_equal(r->vendor, GW_VENDOR_AMD);
	assert_int_equal(r->provenance, GW_FROM_SIMULATOR);
	assert_text(r, GW_T_NAME, "AMD Radeon RX 7900");
	assert_text(r, GW_T_UUID, "AMD-f0e1d2c3b4a59687");
	assert_text(r, GW_T_PCI, "0000:03:00.0");
	assert_text(r, GW_T_VBIOS, "113-D70401-00");
	assert_text(r, GW_T_DRIVER, "6.1.0-18-amd64");
	assert_int_equal(r->text_why[GW_T_SERIAL], GW_ABSENT_NOT_SUPPORTED);
	assert_value(r, GW_Q_POWER, 87);
	assert_value(r, GW_Q_POWER_AVERAGE, 87);
	assert_absent(r, GW_Q_POWER_INSTANT, GW_ABSENT_NOT_SUPPORTED);
	assert_value(r, GW_Q_POWER_LIMIT, 300);
	assert_value(r, GW_Q_POWER_LIMIT_MIN, 0);
	assert_value(r, GW_Q_POWER_LIMIT_MAX, 350);
	assert_value(r, GW_Q_POWER_LIMIT_DEFAULT, 310);
	assert_value(r, GW_Q_UTILIZATION_GPU, 0.37);
	assert_value(r, GW_Q_UTILIZATION_MEMORY, 0.12);
	assert_value(r, GW_Q_MEMORY_TOTAL, 25753026560.0);
	assert_value(r, GW_Q_MEMORY_USED, 1073741824.0);
	assert_value(r, GW_Q_MEMORY_FREE, 24679284736.0);
	assert_absent(r, GW_Q_MEMORY_RESERVED, GW_ABSENT_NOT_SUPPORTED);
	assert_value(r, GW_Q_TEMPERATURE_GPU, 45);
	assert_value(r, GW_Q_TEMPERATURE_MEMORY, 62);
	assert_value(r, GW_Q_TEMPERATURE_SLOWDOWN, 100);
	assert_value(r, GW_Q_TEMPERATURE_SHUTDOWN, 105);
	assert_value(r, GW_Q_CLOCK_GRAPHICS, 1500e6);
	assert_value(r, GW_Q_CLOCK_SM, 1500e6);
	assert_value(r, GW_Q_CLOCK_MEMORY, 96e6);
	assert_value(r, GW_Q_CLOCK_SM_MAX, 2526e6);
	assert_value(r, GW_Q_CLOCK_MEMORY_MAX, 1249e6);
	assert_value(r, GW_Q_FAN_SPEED_RPM, 712);
	assert_value(r, GW_Q_FAN_SPEED, 0.2);
	assert_value(r, GW_Q_PCIE_GENERATION, 4);
	assert_value(r, GW_Q_PCIE_GENERATION_MAX, 5);
	assert_value(r, GW_Q_PCIE_WIDTH, 16);
	assert_value(r, GW_Q_PCIE_REPLAYS, 3);
	assert_value(r, GW_Q_ECC_CORRECTED, 12);
	assert_value(r, GW_Q_ECC_UNCORRECTED, 1);
	assert_absent(r, GW_Q_ENERGY, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(r->begin_ns, NS_PER_S);
}

TEST(never_reads_the_file_that_takes_a_second)
{
	/* clang-format off */
	static const char *const allowed[] = {
		"vendor", "device", "class", "unique_id", "vbios_version", "gpu_busy_percent",
		"mem_busy_percent", "mem_info_vram_total", "mem_info_vram_used", "pp_dpm_sclk",
		"pp_dpm_mclk", "current_link_speed", "power", "current_link_width",
		"max_link_speed", "max_link_width", "pcie_replay_count", "drm", "hwmon", NULL,
	};
	/* clang-format on */
	struct witness eye;

	world_fill(PCI, discrete);
	world_put(PCI CARD "pcie_bw", "1 2 256\n");
	witness_init(&eye);
	witness_watch(&eye, &w->tree, PCI CARD);
	world_open(1);
	world_read(0, GW_TIERS_ALL);
	assert_true(witness_ask(&eye, allowed) > 10);
}

TEST(keeps_an_apu_without_memory_files)
{
	static const struct tree_row apu[] = {
		{ CARD "vendor", "0x1002\n" },
		{ CARD "device", "0xabcd\n" },
		{ CARD "class", "0x030000\n" },
		{ CARD "driver", "-> ../../drivers/amdgpu" },
		{ CARD "gpu_busy_percent", "5\n" },
		{ CARD "unique_id", "0000000000000000\n" },
		{ CARD "hwmon/hwmon0/name", "nvme\n" },
		{ CARD "hwmon/hwmon1/name", "amdgpu\n" },
		{ CARD "hwmon/hwmon1/power1_input", "15000000\n" },
		{ CARD "hwmon/hwmon1/temp1_input", "51000\n" },
		{ CARD "hwmon/hwmon1/freq1_label", "sclk\n" },
		{ CARD "hwmon/hwmon1/freq1_input", "400000000\n" },
		{ 0 },
	};

	world_fill(PCI, apu);
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_text(r, GW_T_NAME, "AMD GPU 0xabcd");
	assert_text(r, GW_T_UUID, "PCI-0000:03:00.0");
	assert_value(r, GW_Q_POWER, 15);
	assert_value(r, GW_Q_POWER_INSTANT, 15);
	assert_absent(r, GW_Q_POWER_AVERAGE, GW_ABSENT_NOT_SUPPORTED);
	assert_value(r, GW_Q_TEMPERATURE_GPU, 51);
	assert_value(r, GW_Q_CLOCK_GRAPHICS, 400e6);
	assert_absent(r, GW_Q_MEMORY_TOTAL, GW_ABSENT_NOT_SUPPORTED);
	assert_absent(r, GW_Q_MEMORY_USED, GW_ABSENT_NOT_SUPPORTED);
	assert_absent(r, GW_Q_MEMORY_FREE, GW_ABSENT_NOT_SUPPORTED);
}

TEST(one_bad_file_makes_one_figure_absent)
{
	static const struct {
		const char *file, *text;
		unsigned q;
	} bad[] = {
		{ "gpu_busy_percent", "101\n", GW_Q_UTILIZATION_GPU },
		{ "gpu_busy_percent", "-1\n", GW_Q_UTILIZATION_GPU },
		{ "gpu_busy_percent", "", GW_Q_UTILIZATION_GPU },
		{ "gpu_busy_percent", "3 4\n", GW_Q_UTILIZATION_GPU },
		{ "hwmon/hwmon4/power1_average", "18446744073709551615\n", GW_Q_POWER },
		{ "hwmon/hwmon4/temp1_input", "N/A\n", GW_Q_TEMPERATURE_MEMORY },
		{ "pp_dpm_mclk", "0: 96Mhz\n1: 1249Mhz\n", GW_Q_CLOCK_MEMORY },
		{ "current_link_speed", "Unknown\n", GW_Q_PCIE_GENERATION },
		{ "mem_info_vram_used", "99999999999999\n", GW_Q_MEMORY_FREE },
	};
	char path[128];

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		world_fill(PCI, discrete);
		snprintf(path, sizeof(path), PCI CARD "%s", bad[i].file);
		world_put(path, bad[i].text);
		world_open(1);
		r = world_read(0, GW_TIERS_ALL);
		assert_int_equal(r->state, GW_DEVICE_OK);
		if (bad[i].q == GW_Q_TEMPERATURE_MEMORY) {
			assert_value(r, GW_Q_TEMPERATURE_GPU,
				     /* the junction temperature is used, because temp1_input is
				      * not readable */
				     55);
			assert_value(r, bad[i].q, 62);
		} else {
			assert_absent(r, bad[i].q, GW_ABSENT_INVALID);
		}
		assert_value(r, GW_Q_POWER_LIMIT, 300);
	}
}

TEST(a_file_without_permission_makes_its_figure_absent)
{
	open_discrete();
	tree_forbid(&w->tree, PCI CARD "hwmon/hwmon4/power1_average");
	r = world_read(0, GW_TIERS_ALL);
	tree_allow();
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_absent(r, GW_Q_POWER, GW_ABSENT_NO_PERMISSION);
	assert_value(r, GW_Q_TEMPERATURE_GPU, 45);
}

TEST(a_gpu_without_any_readable_file_is_denied)
{
	static const struct tree_row closed[] = {
		{ CARD "vendor", "0x1002\n" },
		{ CARD "class", "0x030000\n" },
		{ CARD "driver", "-> ../../drivers/amdgpu" },
		{ CARD "gpu_busy_percent", "5\n" },
		{ 0 },
	};

	world_fill(PCI, closed);
	world_open(1);
	tree_forbid(&w->tree, PCI CARD "gpu_busy_percent");
	r = world_read(0, GW_TIERS_ALL);
	tree_allow();
	assert_int_equal(r->state, GW_DEVICE_DENIED);
	assert_int_equal(r->cause, GW_CAUSE_NO_PERMISSION);
	world_put(PCI CARD "gpu_busy_percent", "5\n");
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
}

TEST(leaves_a_sleeping_gpu_alone)
{
	static const char *const allowed[] = { "vendor",         "device", "class",
					       "runtime_status", "power",  NULL };
	struct usage_list l = { 0 };
	struct witness eye;
	int err;

	world_fill(PCI, discrete);
	world_put(PCI CARD "power/runtime_status", "suspended\n");
	world_put("proc/77/fdinfo/5", "");
	witness_init(&eye);
	witness_watch(&eye, &w->tree, PCI CARD);
	witness_watch(&eye, &w->tree, PCI CARD "power");
	witness_watch(&eye, &w->tree, PCI CARD "hwmon/hwmon4");
	witness_watch(&eye, &w->tree, PCI CARD "drm");
	world_open(1);
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(backend_amdgpu.processes(w->b.slot[0], &l, &err), GW_ABSENT_ASLEEP);
	assert_true(witness_ask(&eye, allowed) > 0);
	assert_true(w->b.open);
	assert_int_equal(r->state, GW_DEVICE_ASLEEP);
	assert_int_equal(r->cause, GW_CAUSE_ASLEEP);
	assert_text(r, GW_T_PCI, "0000:03:00.0");
	assert_text(r, GW_T_NAME, "AMD Radeon RX 7900");
	assert_int_equal(r->text_why[GW_T_UUID], GW_ABSENT_ASLEEP);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		assert_absent(r, q, GW_ABSENT_ASLEEP);
}

TEST(recognises_a_gpu_that_wakes_and_sleeps)
{
	world_fill(PCI, discrete);
	world_put(PCI CARD "power/runtime_status", "suspended\n");
	world_open(1);
	world_put(PCI CARD "power/runtime_status", "active\n");
	r = world_read(0, GW_TIER_FAST);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_text(r, GW_T_UUID, "AMD-f0e1d2c3b4a59687");
	assert_value(r, GW_Q_POWER, 87);
	assert_value(r, GW_Q_POWER_LIMIT_MAX, 350);
	world_put(PCI CARD "power/runtime_status", "suspended\n");
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_ASLEEP);
	assert_absent(r, GW_Q_POWER, GW_ABSENT_ASLEEP);
	assert_value(r, GW_Q_POWER_LIMIT_MAX, 350);
	world_open(1);
	world_put(PCI CARD "power/runtime_status", "active\n");
	world_open(1);
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_POWER, 87);
}

TEST(wakes_a_gpu_when_the_flag_is_set)
{
	world_fill(PCI, discrete);
	world_put(PCI CARD "power/runtime_status", "suspended\n");
	w->env.flags = GW_OPEN_WAKE;
	world_open(1);
	assert_value(world_read(0, GW_TIER_FAST), GW_Q_POWER, 87);
}

TEST(notices_a_gpu_that_disappears_and_returns)
{
	struct usage_list l = { 0 };
	int err;

	open_discrete();
	assert_value(world_read(0, GW_TIERS_ALL), GW_Q_POWER, 87);
	tree_remove(&w->tree, PCI CARD);
	r = world_read(0, GW_TIER_FAST);
	assert_int_equal(r->state, GW_DEVICE_LOST);
	assert_int_equal(r->cause, GW_CAUSE_GPU_LOST);
	assert_absent(r, GW_Q_POWER, GW_ABSENT_LOST);
	assert_absent(r, GW_Q_POWER_LIMIT_MAX, GW_ABSENT_LOST);
	assert_int_equal(backend_amdgpu.processes(w->b.slot[0], &l, &err), GW_ABSENT_LOST);
	assert_false(atomic_load(&w->b.reopen));
	world_open(1);
	assert_false(w->b.open);
	assert_int_equal(w->b.cause, GW_CAUSE_GPU_LOST);

	open_discrete();
	r = world_read(0, GW_TIERS_ALL);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_value(r, GW_Q_POWER, 87);
}

TEST(asks_to_be_reopened_when_a_gpu_returns)
{
	open_discrete();
	tree_remove(&w->tree, PCI CARD);
	world_read(0, GW_TIER_FAST);
	world_fill(PCI, discrete);
	world_put(PCI CARD "unique_id", "1111222233334444\n");
	world_read(0, GW_TIER_FAST);
	assert_true(atomic_load(&w->b.reopen));
	world_open(2); /* another board is in the same slot */
	assert_int_equal(w->b.slot[0]->r.state, GW_DEVICE_LOST);
	assert_text(&w->b.slot[1]->r, GW_T_UUID, "AMD-1111222233334444");
	assert_int_equal(world_read(0, GW_TIER_FAST)->state, GW_DEVICE_LOST);
}

TEST(gives_the_reason_when_there_is_no_gpu)
{
	world_open(0);
	assert_false(w->b.open);
	assert_int_equal(w->b.cause, GW_CAUSE_NO_GPU);
	world_fill(PCI, discrete);
	world_put(PCI CARD "driver", "-> ../../drivers/vfio-pci");
	world_open(0);
	assert_int_equal(w->b.cause, GW_CAUSE_NO_GPU);
	assert_in(w->b.message, "vfio-pci");
}

TEST(uses_the_slower_link_of_board_and_slot)
{
	for (const struct tree_row *row = discrete; row->path; row++) {
		char path[128];

		snprintf(path, sizeof(path), "sys/devices/pci0000:00/0000:00:01.0/%s",
			 row->path);
		world_put(path, row->text);
	}
	world_put("sys/devices/pci0000:00/0000:00:01.0/max_link_speed", "8.0 GT/s PCIe\n");
	world_put("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "16\n");
	world_put(PCI "0000:03:00.0",
		  "-> ../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0");
	world_open(1);
	r = &w->b.slot[0]->r;
	assert_value(r, GW_Q_PCIE_GENERATION_MAX, 3);
	assert_value(r, GW_Q_PCIE_WIDTH_MAX, 16);
}

TEST(puts_two_gpus_in_bus_order)
{
	char path[128];

	for (const struct tree_row *row = discrete; row->path; row++) {
		snprintf(path, sizeof(path), PCI "0000:c3:00.0/%s", row->path + strlen(CARD));
		world_put(path, row->text);
	}
	world_put(PCI "0000:c3:00.0/unique_id", "0000000000000007\n");
	world_fill(PCI, discrete);
	world_open(2);
	assert_text(&w->b.slot[0]->r, GW_T_PCI, "0000:03:00.0");
	assert_text(&w->b.slot[1]->r, GW_T_UUID, "AMD-0000000000000007");
	assert_int_equal(w->b.slot[1]->r.index, 1);
}

#define PDEV "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\n"

static const struct tree_row people[] = {
	/* a game: two nodes of one client, and a second client */
	{ "proc/100/fd/0", "-> /dev/null" },
	{ "proc/100/fd/5", "-> /dev/dri/renderD129" },
	{ "proc/100/fdinfo/5", PDEV "drm-client-id:\t7\ndrm-memory-vram:\t2048 KiB\n"
				    "drm-engine-gfx:\t123 ns\ndrm-engine-compute:\t0 ns\n" },
	{ "proc/100/fd/6", "-> /dev/dri/renderD129" },
	{ "proc/100/fdinfo/6", PDEV "drm-client-id:\t7\ndrm-memory-vram:\t2048 KiB\n" },
	{ "proc/100/fd/7", "-> /dev/dri/card1" },
	{ "proc/100/fdinfo/7", PDEV "drm-client-id:\t8\ndrm-memory-vram:\t1 MiB\n"
				    "drm-resident-vram:\t512 KiB\ndrm-total-vram:\t9 MiB\n" },
	/* the same client number in another process is another client */
	{ "proc/200/fd/3", "-> /dev/dri/renderD129" },
	{ "proc/200/fdinfo/3", PDEV "drm-client-id:\t7\ndrm-total-vram:\t4096\n"
				    "drm-memory-gtt:\t8 MiB\ndrm-engine-compute:\t55 ns\n" },
	/* ROCm */
	{ "proc/300/fd/3", "-> /dev/kfd" },
	{ "proc/300/fd/4", "-> /dev/dri/renderD129" },
	{ "proc/300/fdinfo/4", PDEV "drm-client-id:\t9\ndrm-memory-vram:\t3 KiB\n" },
	/* on another GPU */
	{ "proc/400/fd/3", "-> /dev/dri/renderD128" },
	{ "proc/400/fdinfo/3", "drm-pdev:\t0000:04:00.0\ndrm-client-id:\t1\n" },
	/* an old driver that reports nothing, for this process and for another one */
	{ "proc/500/fd/3", "-> /dev/dri/card1" },
	{ "proc/500/fdinfo/3", "pos:\t0\nflags:\t02\n" },
	{ "proc/501/fd/3", "-> /dev/dri/card0" },
	{ "proc/501/fdinfo/3", "pos:\t0\n" },
	/* not a device node: its fdinfo is not read */
	{ "proc/600/fd/3", "-> /tmp/renderD129" },
	{ "proc/600/fdinfo/3", PDEV "drm-client-id:\t9\n" },
	{ "proc/self/fd/3", "-> /dev/dri/renderD129" },
	{ "proc/self/fdinfo/3", PDEV "drm-client-id:\t9\n" },
	{ 0 },
};

static const struct usage *find(const struct usage_list *l, int64_t pid)
{
	for (unsigned i = 0; i < l->count; i++)
		if (l->p[i].pid == pid)
			return &l->p[i];
	fail_msg("no process %d", (int)pid);
	return NULL;
}

TEST(lists_each_process_once_with_its_clients_memory)
{
	struct usage_list l = { 0 };
	int err = 1;

	world_fill(PCI, discrete);
	world_fill("", people);
	world_open(1);
	assert_int_equal(backend_amdgpu.processes(w->b.slot[0], &l, &err), GW_HAVE);
	assert_int_equal(err, 0);
	assert_int_equal(l.count, 4);
	assert_int_equal(find(&l, 100)->memory_bytes, (2048 + 512) * 1024);
	assert_int_equal(find(&l, 100)->type, GW_PROCESS_GRAPHICS);
	assert_int_equal(find(&l, 100)->gpu_instance, -1);
	assert_int_equal(find(&l, 200)->memory_bytes, 4096);
	assert_int_equal(find(&l, 200)->type, GW_PROCESS_COMPUTE);
	assert_int_equal(find(&l, 300)->memory_bytes, 3072);
	assert_int_equal(find(&l, 300)->type, GW_PROCESS_COMPUTE);
	assert_int_equal(find(&l, 500)->memory_why, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(find(&l, 500)->type, GW_PROCESS_GRAPHICS);
	usage_done(&l);
}

TEST(reports_that_processes_of_other_users_are_hidden)
{
	struct usage_list l = { 0 };
	enum gw_absence why;
	int err;

	world_fill(PCI, discrete);
	world_fill("", people);
	world_open(1);
	tree_forbid(&w->tree, "proc/200/fd");
	why = backend_amdgpu.processes(w->b.slot[0], &l, &err);
	tree_allow();
	assert_int_equal(fchmodat(w->tree.root.fd, "proc/200/fd", 0755, 0), 0);
	assert_int_equal(why, GW_ABSENT_NO_PERMISSION);
	assert_int_equal(l.count, 3);
	usage_done(&l);
}

TEST_MAIN(NULL, NULL)
