#include "device/environment.h"

#include "tree.h"
#include "test.h"

static struct tree t;
static struct clock_stepped clock_at;

static int setup(void **state)
{
	tree_init(&t);
	clock_stepped_init(&clock_at, 0, UINT64_C(1769860800123000000));
	return 0;
}

static int teardown(void **state)
{
	tree_done(&t);
	return 0;
}

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown

TEST(recognises_containers)
{
	static const struct {
		struct tree_row file[2];
		const char *want;
	} row[] = {
		{ { { "proc/1/cgroup", "0::/init.scope\n" } }, "" },
		{ { { ".dockerenv", "" } }, "docker" },
		{ { { "run/.containerenv", "" } }, "podman" },
		{ { { ".dockerenv", "" }, { "run/secrets/kubernetes.io/x", "" } },
		  "kubernetes" },
		{ { { "run/systemd/container", "lxc\n" } }, "lxc" },
		{ { { "run/systemd/container", "systemd-nspawn\n" } }, "systemd-nspawn" },
		{ { { "proc/1/cgroup", "0::/docker/0123\n" } }, "docker" },
		{ { { "proc/1/cgroup", "4:cpu:/kubepods/pod1/docker-12\n" } }, "kubernetes" },
		{ { { "proc/1/cgroup", "0::/lxc.payload.web/init.scope\n" } }, "lxc" },
		{ { { "proc/1/cgroup", "0::/machine.slice/libpod-12.scope\n" } }, "podman" },
		{ { { "proc/1/cgroup", "0::/system.slice/containerd.service/x\n" } },
		  "containerd" },
		{ { { "proc/1/cgroup",
		      "0::/machine.slice/systemd-nspawn@a.service/payload\n" } },
		  "systemd-nspawn" },
		{ { { "proc/self/mountinfo", "1 2 0:5 / /proc rw - proc proc rw\n"
					     "3 2 8:1 /var/lib/docker/containers/12/hostname "
					     "/etc/hostname rw - ext4 /d rw\n" } },
		  "docker" },
		{ { { "proc/self/mountinfo", "3 2 8:1 /var/lib/kubelet/pods/12/etc-hosts "
					     "/etc/hosts rw - ext4 /d rw\n" } },
		  "kubernetes" },
		{ { { "proc/self/mountinfo", "3 2 0:4 / / rw - overlay overlay "
					     "rw,upperdir=/var/lib/containers/storage/x\n" } },
		  "podman" },
		{ { { "proc/self/mountinfo",
		      "3 2 0:9 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n" } },
		  "lxc" },
		/* the host of a container is not a container */
		{ { { "proc/self/mountinfo",
		      "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		      "3 1 0:4 / /var/lib/docker/overlay2/12/merged rw - overlay overlay "
		      "rw,upperdir=/var/lib/docker/overlay2/12/diff\n"
		      "4 1 0:5 / /var/lib/docker/containers/12/mounts/shm rw - tmpfs shm "
		      "rw\n" } },
		  "" },
		{ { { "proc/version",
		      "Linux version 5.15.90.1-microsoft-standard-WSL2 (x@y) #1\n" } },
		  "wsl" },
		{ { { "proc/version",
		      "Linux version 5.15.90.1-microsoft-standard-WSL2 (x@y) #1\n" },
		    { ".dockerenv", "" } },
		  "docker" },
		{ { { "proc/version", "Linux version 5.15.0-azure (b@microsoft.com) #1\n" } },
		  "" },
	};
	char out[32];

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		for (int f = 0; f < 2 && row[i].file[f].path; f++)
			tree_put(&t, row[i].file[f].path, row[i].file[f].text);
		environment_container(&t.root, out, sizeof(out));
		if (strcmp(out, row[i].want) != 0)
			fail_msg("row %zu (%s): \"%s\", not \"%s\"", i, row[i].file[0].path,
				 out, row[i].want);
		tree_done(&t);
		tree_init(&t);
	}
}

TEST(reads_the_environment_of_the_first_process)
{
	static const char environ[] = "HOME=/\0container=lxc\0xcontainer=docker";
	char out[32];

	tree_bytes(&t, "proc/1/environ", environ, sizeof(environ));
	environment_container(&t.root, out, sizeof(out));
	assert_string_equal(out, "lxc");
	tree_forbid(&t, "proc/1/environ");
	environment_container(&t.root, out, sizeof(out));
	tree_allow();
	assert_string_equal(out, "");
}

#define DMI(file) "sys/class/dmi/id/" file
#define GUEST     "processor\t: 0\nflags\t\t: fpu sse hypervisor lahf_lm\n\nprocessor\t: 1\n"

TEST(recognises_virtual_machines)
{
	static const struct {
		struct tree_row file[3];
		const char *want;
	} row[] = {
		{ { { "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse\n" } }, "" },
		{ { { DMI("sys_vendor"), "Dell Inc.\n" }, { DMI("product_name"), "XPS 13\n" } },
		  "" },
		{ { { DMI("sys_vendor"), "QEMU\n" }, { DMI("product_name"), "Standard PC\n" } },
		  "qemu" },
		{ { { DMI("sys_vendor"), "QEMU\n" },
		    { DMI("product_name"), "KVM Virtual Machine\n" } },
		  "kvm" },
		{ { { DMI("sys_vendor"), "Red Hat\n" }, { DMI("product_name"), "KVM\n" } },
		  "kvm" },
		{ { { DMI("sys_vendor"), "VMware, Inc.\n" } }, "vmware" },
		{ { { DMI("sys_vendor"), "innotek GmbH\n" },
		    { DMI("product_name"), "VirtualBox\n" } },
		  "virtualbox" },
		{ { { DMI("sys_vendor"), "Microsoft Corporation\n" },
		    { DMI("product_name"), "Virtual Machine\n" } },
		  "hyper-v" },
		{ { { DMI("sys_vendor"), "Microsoft Corporation\n" },
		    { DMI("product_name"), "Surface Laptop 3\n" } },
		  "" },
		{ { { DMI("sys_vendor"), "Amazon EC2\n" },
		    { DMI("product_name"), "p5.48xlarge\n" } },
		  "kvm" },
		{ { { DMI("sys_vendor"), "Amazon EC2\n" },
		    { DMI("product_name"), "c5.metal\n" } },
		  "" },
		{ { { "sys/hypervisor/type", "xen\n" }, { "proc/cpuinfo", GUEST } }, "xen" },
		{ { { "sys/hypervisor/type", "xen\n" },
		    { "proc/xen/capabilities", "control_d\n" } },
		  "" },
		{ { { "proc/cpuinfo", GUEST } }, "unknown-hypervisor" },
		{ { { "proc/cpuinfo", GUEST },
		    { "sys/firmware/acpi/tables/DSDT", "DSDTxxxxxxFIRECKFCVMDSDT" } },
		  "firecracker" },
		{ { { "proc/cpuinfo", GUEST },
		    { "proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n" } },
		  "hyper-v" },
		{ { { "proc/cpuinfo", "processor: 0\nflags: fpu\n\nflags: fpu hypervisor\n" } },
		  "" },
	};
	char out[32];

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		for (int f = 0; f < 3 && row[i].file[f].path; f++)
			tree_put(&t, row[i].file[f].path, row[i].file[f].text);
		environment_vm(&t.root, out, sizeof(out));
		if (strcmp(out, row[i].want) != 0)
			fail_msg("row %zu (%s): \"%s\", not \"%s\"", i, row[i].file[0].text,
				 out, row[i].want);
		tree_done(&t);
		tree_init(&t);
	}
}

static const struct gw_fact *fact(const struct gw_environment *env, const char *section,
				  const char *key)
{
	for (unsigned i = 0; i < gw_environment_count(env); i++) {
		const struct gw_fact *f = gw_environment_get(env, i);

		if (strcmp(f->section, section) == 0 && strcmp(f->key, key) == 0)
			return f;
	}
	fail_msg("no fact %s.%s", section, key);
	return NULL;
}

static void assert_text(const struct gw_environment *env, const char *section, const char *key,
			const char *want)
{
	const struct gw_fact *f = fact(env, section, key);

	assert_int_equal(f->type, GW_FACT_TEXT);
	assert_int_equal(f->absence, GW_HAVE);
	assert_string_equal(f->text, want);
}

static void assert_number(const struct gw_environment *env, const char *section,
			  const char *key, double want)
{
	const struct gw_fact *f = fact(env, section, key);

	assert_int_equal(f->type, GW_FACT_NUMBER);
	assert_int_equal(f->absence, GW_HAVE);
	assert_true(f->number > want - 1e-6 && f->number < want + 1e-6);
}

#define CPU(n) "sys/devices/system/cpu/" n

static const struct tree_row machine[] = {
	{ "proc/sys/kernel/hostname", "node-7\n" },
	{ "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n" },
	{ "proc/sys/kernel/arch", "x86_64\n" },
	{ "proc/sys/kernel/random/boot_id", "0f0f\n" },
	{ "proc/uptime", "1234.56 99.0\n" },
	{ "proc/meminfo", "MemTotal: 1024 kB\n" },
	{ "proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\n"
			  "model name\t: AMD EPYC \x01 9654\nflags\t\t: fpu\n\n" },
	{ "etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n" },
	{ CPU("online"), "0-3\n" },
	{ CPU("cpu0/topology/physical_package_id"), "0\n" },
	{ CPU("cpu0/topology/core_id"), "0\n" },
	{ CPU("cpu1/topology/physical_package_id"), "0\n" },
	{ CPU("cpu1/topology/core_id"), "1\n" },
	{ CPU("cpu2/topology/physical_package_id"), "1\n" },
	{ CPU("cpu2/topology/core_id"), "0\n" },
	{ CPU("cpu3/topology/physical_package_id"), "1\n" },
	{ CPU("cpu3/topology/core_id"), "0\n" },
	{ CPU("cpufreq/policy0/scaling_governor"), "performance\n" },
	{ CPU("cpufreq/policy0/cpuinfo_max_freq"), "3700000\n" },
	{ CPU("cpufreq/policy1/scaling_governor"), "performance\n" },
	{ CPU("cpufreq/policy1/cpuinfo_max_freq"), "2400000\n" },
	{ "proc/driver/nvidia/version",
	  "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  "
	  "(dvs)\n"
	  "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n" },
	{ "sys/class/powercap/intel-rapl:0/name", "package-0\n" },
	{ "sys/class/powercap/intel-rapl:0/energy_uj", "1500000\n" },
	{ "sys/class/powercap/intel-rapl:0:0/name", "dram\n" },
	{ "sys/class/powercap/intel-rapl:0:0/energy_uj", "2000000\n" },
	{ "sys/class/powercap/intel-rapl:1/name", "package-1\n" },
	{ "sys/class/powercap/intel-rapl:1/energy_uj", "x\n" },
	{ "sys/class/powercap/intel-rapl:1:0/name", "dram\n" },
	{ "sys/class/powercap/intel-rapl:1:0/energy_uj", "3000000\n" },
	{ 0 },
};

TEST(collects_what_a_result_should_carry)
{
	struct gw_environment *env;

	tree_fill(&t, "", machine);
	assert_int_equal(environment_collect(&t.root, &clock_at.clock, &env), 0);
	assert_text(env, "host", "hostname", "node-7");
	assert_text(env, "host", "time_utc", "2026-01-31T12:00:00.123Z");
	assert_text(env, "host", "kernel", "6.1.0-18-amd64");
	assert_text(env, "host", "os", "Debian GNU/Linux 12 (bookworm)");
	assert_text(env, "host", "architecture", "x86_64");
	assert_text(env, "host", "container", "none");
	assert_text(env, "host", "virtual_machine", "none");
	assert_int_equal(fact(env, "host", "wsl")->type, GW_FACT_FLAG);
	assert_true(fact(env, "host", "wsl")->number == 0);
	assert_number(env, "host", "uptime_seconds", 1234.56);
	assert_text(env, "host", "boot_id", "0f0f");
	assert_text(env, "cpu", "model", "AMD EPYC ? 9654");
	assert_text(env, "cpu", "vendor", "AuthenticAMD");
	assert_number(env, "cpu", "sockets", 2);
	assert_number(env, "cpu", "cores", 3);
	assert_number(env, "cpu", "threads", 4);
	assert_text(env, "cpu", "governor", "performance");
	assert_number(env, "cpu", "frequency_max_hertz", 3.7e9);
	assert_number(env, "ram", "total_bytes", 1024 * 1024);
	assert_text(env, "nvidia", "driver_version", "580.65.06");
	assert_text(env, "nvidia", "module_kind", "open");
	assert_text(env, "tool", "name", "gpuward");
	assert_number(env, "rapl", "package-0", 1.5);
	assert_number(env, "rapl", "dram", 2);
	assert_int_equal(fact(env, "rapl", "package-1")->absence, GW_ABSENT_INVALID);
	assert_number(env, "rapl", "package-1-dram", 3);
	assert_null(gw_environment_get(env, gw_environment_count(env)));
	gw_environment_free(env);
}

TEST(lists_every_fact_on_an_empty_machine)
{
	static const struct {
		const char *section, *key;
	} want[] = {
		{ "host", "hostname" },
		{ "host", "kernel" },
		{ "host", "os" },
		{ "host", "architecture" },
		{ "host", "virtual_machine" },
		{ "host", "uptime_seconds" },
		{ "host", "boot_id" },
		{ "cpu", "model" },
		{ "cpu", "vendor" },
		{ "cpu", "sockets" },
		{ "cpu", "cores" },
		{ "cpu", "threads" },
		{ "cpu", "governor" },
		{ "cpu", "frequency_max_hertz" },
		{ "ram", "total_bytes" },
		{ "nvidia", "driver_version" },
		{ "nvidia", "module_kind" },
		{ "rapl", "package-0" },
	};
	struct gw_environment *env;

	assert_int_equal(environment_collect(&t.root, &clock_at.clock, &env), 0);
	for (size_t i = 0; i < COUNT_OF(want); i++) {
		const struct gw_fact *f = fact(env, want[i].section, want[i].key);

		assert_int_not_equal(f->absence, GW_HAVE);
		assert_null(f->text);
	}
	assert_int_equal(fact(env, "nvidia", "driver_version")->absence, GW_ABSENT_NOT_PRESENT);
	assert_int_equal(fact(env, "rapl", "package-0")->absence, GW_ABSENT_NOT_PRESENT);
	gw_environment_free(env);
	gw_environment_free(NULL);
}

TEST(knows_the_proprietary_module_and_mixed_governors)
{
	struct gw_environment *env;

	tree_fill(&t, "", machine);
	tree_put(&t, "proc/driver/nvidia/version",
		 "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 "
		 "01:15:15 UTC\n");
	tree_put(&t, CPU("cpufreq/policy1/scaling_governor"), "powersave\n");
	assert_int_equal(environment_collect(&t.root, &clock_at.clock, &env), 0);
	assert_text(env, "nvidia", "driver_version", "535.104.05");
	assert_text(env, "nvidia", "module_kind", "proprietary");
	assert_text(env, "cpu", "governor", "mixed");
	gw_environment_free(env);
	tree_put(&t, "proc/driver/nvidia/version", "NVRM version: none\n");
	assert_int_equal(environment_collect(&t.root, &clock_at.clock, &env), 0);
	assert_int_equal(fact(env, "nvidia", "driver_version")->absence, GW_ABSENT_INVALID);
	assert_int_equal(fact(env, "nvidia", "module_kind")->absence, GW_ABSENT_INVALID);
	gw_environment_free(env);
}

TEST(collects_on_the_real_machine)
{
	struct gw_environment *env;
	struct root real;

	assert_int_equal(root_open(&real, NULL), 0);
	assert_int_equal(environment_collect(&real, clock_real(), &env), 0);
	assert_int_equal(fact(env, "host", "kernel")->absence, GW_HAVE);
	assert_int_equal(fact(env, "host", "architecture")->absence, GW_HAVE);
	assert_true(fact(env, "cpu", "threads")->number >= 1);
	gw_environment_free(env);
	root_close(&real);
}

TEST_MAIN(NULL, NULL)
