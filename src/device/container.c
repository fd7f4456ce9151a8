/* What kind of machine this is: a container, a virtual machine, WSL.  None of it needs rights;
 * where we have them we see a little more. */
#include "environment.h"

#include "base/lines.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- container ---- */

struct word {
	const char *in;   /* found in a text ... */
	const char *name; /* ... says this       */
};

/* Writes the name of the first row that is found in text; the rows are in order of precedence:
 * a pod is also a containerd or docker container. */
static bool name_by(const struct word *row, size_t n, const char *text, char *out, size_t size)
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
	static const struct word file[] = {
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

/* What a container manager says to the init it starts: "container=NAME". */
static const struct word managers[] = {
	{ "kube", "kubernetes" },       { "systemd-nspawn", "systemd-nspawn" },
	{ "podman", "podman" },         { "docker", "docker" },
	{ "containerd", "containerd" }, { "lxc", "lxc" }, /* and lxc-libvirt */
};

static bool container_by_init(const struct root *root, char *out, size_t size)
{
	char text[4096];
	long n;

	/* systemd as the first process keeps what it was told where everyone can read it. */
	if (root_read_line(root, "run/systemd/container", text, sizeof(text)) > 0 &&
	    name_by(managers, COUNT(managers), text, out, size))
		return true;
	n = root_read(root, "proc/1/environ", text, sizeof(text));
	for (long i = 0; i < n; i += (long)strlen(text + i) + 1)
		if (strncmp(text + i, "container=", 10) == 0)
			return name_by(managers, COUNT(managers), text + i, out, size);
	return false;
}

static bool container_by_cgroup(const struct root *root, char *out, size_t size)
{
	static const struct word group[] = {
		{ "kubepods", "kubernetes" },   { "libpod", "podman" },
		{ "/docker/", "docker" },       { "/docker-", "docker" },
		{ "containerd", "containerd" }, { "/lxc/", "lxc" },
		{ "/lxc.payload", "lxc" },      { "systemd-nspawn@", "systemd-nspawn" },
	};
	char text[8192];

	return root_read(root, "proc/1/cgroup", text, sizeof(text)) > 0 &&
	       name_by(group, COUNT(group), text, out, size);
}

/* Is this line of mountinfo ("id parent device source place ...") of a place that runtimes
 * lay something over? */
static bool is_laid_over(const char *line)
{
	static const char *const over[] = { "/", "/etc/hostname", "/etc/hosts",
					    "/etc/resolv.conf", "/proc/cpuinfo" };
	char place[64];

	if (sscanf(line, "%*s %*s %*s %*s %63s", place) != 1)
		return false;
	for (size_t i = 0; i < COUNT(over); i++)
		if (strcmp(place, over[i]) == 0)
			return true;
	return false;
}

/* Only mounts that a runtime lays over its container's own files count: the host of a container
 * sees mounts of its storage too. */
static bool container_by_mounts(const struct root *root, char *out, size_t size)
{
	static const struct word source[] = {
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
		found = is_laid_over(line) && name_by(source, COUNT(source), line, out, size);
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
	/* Only the release: who built a kernel may have "microsoft" in his address. */
	if (root_read(root, "proc/version", text, sizeof(text)) <= 0 ||
	    sscanf(text, "Linux version %127s", release) != 1)
		return false;
	return strcasestr(release, "microsoft") || strstr(release, "WSL");
}

/* ---- virtual machine ---- */

static bool hypervisor_flag(const struct root *root)
{
	struct lines l;
	bool found = false;
	char *line;

	if (lines_open(&l, root, "proc/cpuinfo") < 0)
		return false;
	/* One block tells for all: a blank line ends it. */
	while (!found && (line = lines_next(&l)) && line[0])
		found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor");
	lines_close(&l);
	return found;
}

static bool vm_by_dmi(const struct root *root, char *out, size_t size)
{
	static const char *const file[] = { "product_name", "sys_vendor", "bios_vendor" };
	static const struct word maker[] = {
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
	/* Amazon's bare metal says the same maker. */
	return !strstr(text, ".metal") && name_by(maker, COUNT(maker), text, out, size);
}

static bool vm_by_firecracker(const struct root *root)
{
	char text[256];

	/* It has no DMI; its ACPI tables carry its name where we may read them. */
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
		return; /* the domain that owns the machine */
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
