#include "environment.h"

#include "host.h"
#include "rapl.h"

#include "base/array.h"
#include "base/root.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define FACTS_FIXED 32 /* maximum number of entries, not counting RAPL's */
#define DOMAINS_MAX 64
#define CORES_MAX   4096

struct row {
	struct gw_fact fact;
	char key[64];
	char text[256];
};

struct gw_environment {
	unsigned count;
	struct row row[FACTS_FIXED + DOMAINS_MAX];
};

void gw_environment_free(struct gw_environment *env)
{
	free(env);
}

unsigned gw_environment_count(const struct gw_environment *env)
{
	return env->count;
}

const struct gw_fact *gw_environment_get(const struct gw_environment *env, unsigned i)
{
	return i < env->count ? &env->row[i].fact : NULL;
}

static struct row *add_fact(struct gw_environment *env, const char *section, const char *key,
			    enum gw_fact_type type, enum gw_absence why)
{
	struct row *r = &env->row[env->count++];

	assert(env->count <= COUNT(env->row));
	snprintf(r->key, sizeof(r->key), "%s", key);
	r->fact = (struct gw_fact){
		.section = section, .key = r->key, .type = type, .absence = why
	};
	return r;
}

/* Adds a string. If text is "", the entry is absent with reason `why`. */
static void add_text(struct gw_environment *env, const char *section, const char *key,
		     const char *text, enum gw_absence why)
{
	struct row *r = add_fact(env, section, key, GW_FACT_TEXT, text[0] ? GW_HAVE : why);

	if (!text[0])
		return;
	utf8_clean(r->text, sizeof(r->text), text);
	r->fact.text = r->text;
}

static void add_number(struct gw_environment *env, const char *section, const char *key,
		       double v, enum gw_absence why)
{
	add_fact(env, section, key, GW_FACT_NUMBER, why)->fact.number =
		why == GW_HAVE ? v : NAN;
}

static void add_file(struct gw_environment *env, const struct root *root, const char *section,
		     const char *key, const char *path)
{
	char text[256];
	long n = root_read_line(root, path, text, sizeof(text));

	add_text(env, section, key, text, n < 0 ? host_absence(n) : GW_ABSENT_NO_DATA);
}

static bool os_name(const struct root *root, const char *path, char *out, size_t size)
{
	static const char key[] = "PRETTY_NAME=";
	struct lines l;
	char *line;

	out[0] = '\0';
	if (lines_open(&l, root, path) < 0)
		return false;
	while (!out[0] && (line = lines_next(&l))) {
		char *value = line + sizeof(key) - 1;
		size_t n;

		if (strncmp(line, key, sizeof(key) - 1) != 0)
			continue;
		n = strlen(value);
		if (n >= 2 && (*value == '"' || *value == '\'') && value[n - 1] == *value) {
			value[n - 1] = '\0';
			value++;
		}
		snprintf(out, size, "%s", value);
	}
	lines_close(&l);
	return out[0] != '\0';
}

static void add_architecture(struct gw_environment *env, const struct root *root)
{
	char text[64];
	struct utsname u;

	/* The file exists since Linux 6.1. uname() is correct only for the real root. */
	if (root_read_line(root, "proc/sys/kernel/arch", text, sizeof(text)) <= 0 &&
	    root->real && uname(&u) == 0)
		snprintf(text, sizeof(text), "%.63s", u.machine);
	add_text(env, "host", "architecture", text, GW_ABSENT_NO_DATA);
}

static void add_uptime(struct gw_environment *env, const struct root *root)
{
	char text[64];
	unsigned long long seconds;
	unsigned hundredths;
	long n = root_read(root, "proc/uptime", text, sizeof(text));
	bool good = n > 0 && sscanf(text, "%llu.%2u", &seconds, &hundredths) == 2;

	add_number(env, "host", "uptime_seconds",
		   good ? (double)seconds + hundredths / 100.0 : 0,
		   good    ? GW_HAVE
		   : n < 0 ? host_absence(n)
			   : GW_ABSENT_INVALID);
}

/* Adds the type of virtual machine; "none" means bare metal. If neither DMI nor the processor
 * data can be read, the value is absent. */
static void add_vm(struct gw_environment *env, const struct root *root)
{
	char text[64];

	environment_vm(root, text, sizeof(text));
	if (!text[0] && (root_exists(root, "sys/class/dmi/id/sys_vendor") ||
			 root_exists(root, "proc/cpuinfo")))
		snprintf(text, sizeof(text), "none");
	add_text(env, "host", "virtual_machine", text, GW_ABSENT_NO_DATA);
}

static void add_host(struct gw_environment *env, const struct root *root,
		     const struct clock *clock)
{
	char text[256], time[CLOCK_RFC3339_SIZE];

	add_file(env, root, "host", "hostname", "proc/sys/kernel/hostname");
	clock_format_rfc3339(clock_wall_ns(clock), time);
	add_text(env, "host", "time_utc", time, GW_ABSENT_ERROR);
	add_file(env, root, "host", "kernel", "proc/sys/kernel/osrelease");
	if (!os_name(root, "etc/os-release", text, sizeof(text)))
		os_name(root, "usr/lib/os-release", text, sizeof(text));
	add_text(env, "host", "os", text, GW_ABSENT_NO_DATA);
	add_architecture(env, root);
	environment_container(root, text, sizeof(text));
	add_text(env, "host", "container", text[0] ? text : "none", GW_ABSENT_ERROR);
	add_vm(env, root);
	add_fact(env, "host", "wsl", GW_FACT_FLAG, GW_HAVE)->fact.number =
		environment_is_wsl(root);
	add_uptime(env, root);
	add_file(env, root, "host", "boot_id", "proc/sys/kernel/random/boot_id");
}

/* Counts distinct sockets and cores in the kernel's topology files, because /proc/cpuinfo has
 * them only on x86. Returns false if the kernel does not report them. */
static bool count_topology(const struct root *root, unsigned *sockets, unsigned *cores)
{
	uint64_t seen[CORES_MAX];
	DIR *dir = root_opendir(root, "sys/devices/system/cpu");
	struct dirent *e;

	*sockets = *cores = 0;
	while (dir && *cores < CORES_MAX && (e = readdir(dir))) {
		char path[96];
		int64_t package, core;
		unsigned cpu;
		bool new_core = true, new_socket = true;

		if (sscanf(e->d_name, "cpu%u", &cpu) != 1)
			continue;
		root_path(path, sizeof(path),
			  "sys/devices/system/cpu/cpu%u/topology/physical_package_id", cpu);
		if (root_read_i64(root, path, &package) < 0 || package < 0)
			continue;
		root_path(path, sizeof(path), "sys/devices/system/cpu/cpu%u/topology/core_id",
			  cpu);
		if (root_read_i64(root, path, &core) < 0)
			continue;
		for (unsigned i = 0; i < *cores; i++) {
			new_socket = new_socket && seen[i] >> 32 != (uint64_t)package;
			new_core = new_core &&
				   seen[i] != ((uint64_t)package << 32 | (uint32_t)core);
		}
		*sockets += new_socket;
		if (new_core)
			seen[(*cores)++] = (uint64_t)package << 32 | (uint32_t)core;
	}
	if (dir)
		closedir(dir);
	return *cores > 0 && *cores < CORES_MAX;
}

/* Adds the governor of all frequency policies ("mixed" if they differ) and the highest
 * frequency that a CPU supports. */
static void add_frequency(struct gw_environment *env, const struct root *root)
{
	DIR *dir = root_opendir(root, "sys/devices/system/cpu/cpufreq");
	char governor[64] = "";
	int64_t max_khz = 0;
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char path[96], text[64];
		int64_t khz;
		unsigned policy;

		if (sscanf(e->d_name, "policy%u", &policy) != 1)
			continue;
		root_path(path, sizeof(path),
			  "sys/devices/system/cpu/cpufreq/policy%u/scaling_governor", policy);
		if (root_read_line(root, path, text, sizeof(text)) > 0)
			snprintf(governor, sizeof(governor), "%s",
				 governor[0] && strcmp(governor, text) != 0 ? "mixed" : text);
		root_path(path, sizeof(path),
			  "sys/devices/system/cpu/cpufreq/policy%u/cpuinfo_max_freq", policy);
		if (root_read_i64(root, path, &khz) == 0 && khz > max_khz)
			max_khz = khz;
	}
	if (dir)
		closedir(dir);
	add_text(env, "cpu", "governor", governor, GW_ABSENT_NOT_PRESENT);
	add_number(env, "cpu", "frequency_max_hertz", (double)max_khz * 1e3,
		   max_khz > 0 ? GW_HAVE : GW_ABSENT_NOT_PRESENT);
}

/* Writes the value of a "key : value" line in the first block of /proc/cpuinfo; "" if
 * missing. */
static void cpuinfo_field(const char *text, const char *key, char *out, size_t size)
{
	size_t n = strlen(key);

	out[0] = '\0';
	for (const char *line = text; line && *line && *line != '\n';) {
		const char *end = strchr(line, '\n');
		const char *colon = line + n + strspn(line + n, " \t");

		if (strncmp(line, key, n) == 0 && *colon == ':') {
			colon += 1 + strspn(colon + 1, " \t");
			snprintf(out, size, "%.*s",
				 (int)(end ? end - colon : (long)strlen(colon)), colon);
			return;
		}
		line = end ? end + 1 : NULL;
	}
}

/* Adds the value of the first of `keys` that /proc/cpuinfo has; the name of the key depends on
 * the CPU architecture. */
static void add_cpuinfo(struct gw_environment *env, const char *text, const char *key,
			const char *const *keys)
{
	char value[256] = "";

	for (; *keys && !value[0]; keys++)
		cpuinfo_field(text, *keys, value, sizeof(value));
	add_text(env, "cpu", key, value, GW_ABSENT_NO_DATA);
}

static void add_cpu(struct gw_environment *env, const struct root *root,
		    const struct host_report *host)
{
	static const char *const model[] = { "model name", "cpu model", "cpu", "uarch", NULL };
	static const char *const vendor[] = { "vendor_id", "CPU implementer", "mvendorid",
					      NULL };
	char text[8192];
	unsigned sockets, cores;
	bool known = count_topology(root, &sockets, &cores);
	enum gw_absence why = known ? GW_HAVE : GW_ABSENT_NO_DATA;

	root_read(root, "proc/cpuinfo", text, sizeof(text));
	add_cpuinfo(env, text, "model", model);
	add_cpuinfo(env, text, "vendor", vendor);
	add_number(env, "cpu", "sockets", sockets, why);
	add_number(env, "cpu", "cores", cores, why);
	add_number(env, "cpu", "threads", host->v[GW_H_CPU_COUNT],
		   (enum gw_absence)host->why[GW_H_CPU_COUNT]);
	add_frequency(env, root);
}

/* Parses "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..." or
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...". */
long environment_nvidia_module(const struct root *root, char *out, size_t size, bool *ret_open)
{
	char text[512];
	long n = root_read(root, "proc/driver/nvidia/version", text, sizeof(text));
	const char *p = strstr(text, "Kernel Module");

	out[0] = '\0';
	if (n < 0)
		return n;
	while (p && (p = strchr(p, ' '))) {
		unsigned major, minor;

		p += strspn(p, " ");
		if (sscanf(p, "%u.%u", &major, &minor) != 2)
			continue;
		snprintf(out, size, "%.*s", (int)strspn(p, "0123456789."), p);
		*ret_open = strstr(text, "Open Kernel Module") != NULL;
		return 0;
	}
	return -GW_E_PARSE;
}

static void add_nvidia(struct gw_environment *env, const struct root *root)
{
	bool open = false;
	char version[32];
	long err = environment_nvidia_module(root, version, sizeof(version), &open);
	enum gw_absence why = err == -GW_E_PARSE ? GW_ABSENT_INVALID : host_absence(err);
	const char *kind = open ? "open" : "proprietary";

	add_text(env, "nvidia", "driver_version", version, why);
	add_text(env, "nvidia", "module_kind", version[0] ? kind : "", why);
}

static bool has_key(const struct gw_environment *env, const char *section, const char *key)
{
	for (unsigned i = 0; i < env->count; i++)
		if (strcmp(env->row[i].fact.section, section) == 0 &&
		    strcmp(env->row[i].key, key) == 0)
			return true;
	return false;
}

/* Adds one number per RAPL domain. Each package has a domain "dram". The key of the first of
 * these domains is "dram"; a later one gets "package-N-dram" or, if that is not unique, the
 * name of its folder. */
static void add_rapl(struct gw_environment *env, const struct root *root)
{
	struct rapl_domain d[DOMAINS_MAX];
	unsigned n = rapl_list(root, d, DOMAINS_MAX);

	for (unsigned i = 0; i < n && i < DOMAINS_MAX; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%.31s", d[i].name);
		if (has_key(env, "rapl", key))
			snprintf(key, sizeof(key), "package-%d-%.31s", d[i].package, d[i].name);
		if (has_key(env, "rapl", key))
			snprintf(key, sizeof(key), "%.63s", strrchr(d[i].path, '/') + 1);
		add_number(env, "rapl", key, (double)d[i].energy_uj * 1e-6, d[i].why);
	}
	if (n == 0)
		add_number(env, "rapl", "package-0", 0, GW_ABSENT_NOT_PRESENT);
}

int environment_collect(const struct root *root, const struct clock *clock,
			struct gw_environment **ret)
{
	struct gw_environment *env = calloc(1, sizeof(*env));
	struct host_report report;
	struct host host;

	if (!env)
		return -GW_E_NOMEM;
	host_init(&host, root);
	host_read(&host, &report);
	add_host(env, root, clock);
	add_cpu(env, root, &report);
	add_number(env, "ram", "total_bytes", report.v[GW_H_RAM_TOTAL],
		   (enum gw_absence)report.why[GW_H_RAM_TOTAL]);
	add_nvidia(env, root);
	add_text(env, "tool", "name", "gpuward", GW_ABSENT_ERROR);
	add_text(env, "tool", "version", GPUWARD_VERSION, GW_ABSENT_ERROR);
	add_rapl(env, root);
	*ret = env;
	return 0;
}

struct pattern {
	const char *in;   /* string to search for in the text */
	const char *name; /* the result if the text contains it */
};

/* Writes the name of the first row with a pattern that occurs in text. The rows are in order of
 * precedence, because a pod is also a containerd or docker container. */
static bool name_by_pattern(const struct pattern *row, size_t n, const char *text, char *out,
			    size_t size)
{
	for (size_t i = 0; i < n; i++) {
		if (!strstr(text, row[i].in))
			continue;
		snprintf(out, size, "%s", row[i].name);
		return true;
	}
	return false;
}

static bool container_by_file(const struct root *root, char *out, size_t size)
{
	static const struct pattern file[] = {
		{ "run/secrets/kubernetes.io", "kubernetes" },
		{ "var/run/secrets/kubernetes.io", "kubernetes" },
		{ "run/.containerenv", "podman" },
		{ ".dockerenv", "docker" },
	};

	for (size_t i = 0; i < COUNT(file); i++) {
		if (!root_exists(root, file[i].in))
			continue;
		snprintf(out, size, "%s", file[i].name);
		return true;
	}
	return false;
}

/* Values of "container=NAME", which a container manager passes to the init process. */
static const struct pattern managers[] = {
	{ "kube", "kubernetes" },       { "systemd-nspawn", "systemd-nspawn" },
	{ "podman", "podman" },         { "docker", "docker" },
	{ "containerd", "containerd" }, { "lxc", "lxc" }, /* also for "lxc-libvirt" */
};

static bool container_by_init(const struct root *root, char *out, size_t size)
{
	char text[4096];
	long n;

	/* If systemd is process 1, it stores the value of "container=" in a file that everyone
	 * can read. */
	if (root_read_line(root, "run/systemd/container", text, sizeof(text)) > 0 &&
	    name_by_pattern(managers, COUNT(managers), text, out, size))
		return true;
	n = root_read(root, "proc/1/environ", text, sizeof(text));
	for (long i = 0; i < n; i += (long)strlen(text + i) + 1)
		if (strncmp(text + i, "container=", 10) == 0)
			return name_by_pattern(managers, COUNT(managers), text + i, out, size);
	return false;
}

static bool container_by_cgroup(const struct root *root, char *out, size_t size)
{
	static const struct pattern group[] = {
		{ "kubepods", "kubernetes" },   { "libpod", "podman" },
		{ "/docker/", "docker" },       { "/docker-", "docker" },
		{ "containerd", "containerd" }, { "/lxc/", "lxc" },
		{ "/lxc.payload", "lxc" },      { "systemd-nspawn@", "systemd-nspawn" },
	};
	char text[8192];

	return root_read(root, "proc/1/cgroup", text, sizeof(text)) > 0 &&
	       name_by_pattern(group, COUNT(group), text, out, size);
}

/* True if this line of mountinfo ("id parent device source place ...") describes a place that
 * container runtimes mount over. */
static bool is_mounted_over(const char *line)
{
	static const char *const places[] = { "/", "/etc/hostname", "/etc/hosts",
					      "/etc/resolv.conf", "/proc/cpuinfo" };
	char place[64];

	if (sscanf(line, "%*s %*s %*s %*s %63s", place) != 1)
		return false;
	for (size_t i = 0; i < COUNT(places); i++)
		if (strcmp(place, places[i]) == 0)
			return true;
	return false;
}

/* Finds the container runtime in the list of mounts. Only mounts over the container's own files
 * count: the mounts of the container storage are visible on the host, too. */
static bool container_by_mounts(const struct root *root, char *out, size_t size)
{
	static const struct pattern source[] = {
		{ "/kubelet/pods/", "kubernetes" },   { "/containers/storage/", "podman" },
		{ "/overlay-containers/", "podman" }, { "/docker/", "docker" },
		{ "containerd", "containerd" },       { "fuse.lxcfs", "lxc" },
	};
	struct lines l;
	bool found = false;
	char *line;

	if (lines_open(&l, root, "proc/self/mountinfo") < 0)
		return false;
	while (!found && (line = lines_next(&l)))
		found = is_mounted_over(line) &&
			name_by_pattern(source, COUNT(source), line, out, size);
	lines_close(&l);
	return found;
}

void environment_container(const struct root *root, char *out, size_t size)
{
	out[0] = '\0';
	if (!container_by_file(root, out, size) && !container_by_init(root, out, size) &&
	    !container_by_cgroup(root, out, size) && !container_by_mounts(root, out, size) &&
	    environment_is_wsl(root))
		snprintf(out, size, "wsl");
}

bool environment_is_wsl(const struct root *root)
{
	char text[512], release[128];

	if (root_exists(root, "proc/sys/fs/binfmt_misc/WSLInterop"))
		return true;
	/* Search only the release, because later parts of the text contain the builder's
	 * address, in which "microsoft" may occur. */
	if (root_read(root, "proc/version", text, sizeof(text)) <= 0 ||
	    sscanf(text, "Linux version %127s", release) != 1)
		return false;
	return strcasestr(release, "microsoft") || strstr(release, "WSL");
}

static bool hypervisor_flag(const struct root *root)
{
	struct lines l;
	bool found = false;
	char *line;

	if (lines_open(&l, root, "proc/cpuinfo") < 0)
		return false;
	/* Only the first block is read; it ends at a blank line. */
	while (!found && (line = lines_next(&l)) && line[0])
		found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
	lines_close(&l);
	return found;
}

static bool vm_by_dmi(const struct root *root, char *out, size_t size)
{
	static const char *const file[] = { "product_name", "sys_vendor", "bios_vendor" };
	static const struct pattern vendor[] = {
		{ "VirtualBox", "virtualbox" },
		{ "innotek", "virtualbox" },
		{ "VMware", "vmware" },
		{ "VMW", "vmware" },
		{ "Virtual Machine\nMicrosoft", "hyper-v" },
		{ "HVM domU", "xen" },
		{ "Xen", "xen" },
		{ "Parallels", "parallels" },
		{ "BHYVE", "bhyve" },
		{ "Bochs", "bochs" },
		{ "Apple Virtualization", "apple" },
		{ "Firecracker", "firecracker" },
		{ "Cloud Hypervisor", "cloud-hypervisor" },
		{ "KVM", "kvm" },
		{ "Google Compute Engine", "kvm" },
		{ "OpenStack", "kvm" },
		{ "Droplet", "kvm" },
		{ "Amazon EC2", "kvm" },
		{ "QEMU", "qemu" },
	};
	char path[64], text[512];
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < COUNT(file); i++) {
		char line[128];

		root_path(path, sizeof(path), "sys/class/dmi/id/%s", file[i]);
		root_read_line(root, path, line, sizeof(line));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\n", line);
	}
	/* Amazon's bare metal machines have the same vendor name as its virtual machines. */
	return !strstr(text, ".metal") &&
	       name_by_pattern(vendor, COUNT(vendor), text, out, size);
}

static bool vm_by_firecracker(const struct root *root)
{
	char text[256];

	/* Firecracker has no DMI. Its ACPI tables contain its name, but usually only root can
	 * read them. */
	if (root_read(root, "sys/firmware/acpi/tables/DSDT", text, sizeof(text)) > 16 &&
	    memcmp(text + 10, "FIRECK", 6) == 0)
		return true;
	root_read(root, "proc/sys/kernel/osrelease", text, sizeof(text));
	return strcasestr(text, "firecracker") != NULL;
}

void environment_vm(const struct root *root, char *out, size_t size)
{
	char text[256];

	out[0] = '\0';
	root_read(root, "proc/xen/capabilities", text, sizeof(text));
	if (strstr(text, "control_d"))
		return; /* Xen's dom0 controls the machine and is not a guest. */
	if (vm_by_dmi(root, out, size))
		return;
	if (root_read_line(root, "sys/hypervisor/type", text, sizeof(text)) > 0)
		snprintf(out, size, "%s", text);
	else if (vm_by_firecracker(root))
		snprintf(out, size, "firecracker");
	else if (environment_is_wsl(root))
		snprintf(out, size, "hyper-v");
	else if (hypervisor_flag(root))
		snprintf(out, size, "unknown-hypervisor");
}
