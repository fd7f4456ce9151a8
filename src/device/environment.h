/* environment: the facts about a machine that a published result should carry. */
#ifndef GW_DEVICE_ENVIRONMENT_H
#define GW_DEVICE_ENVIRONMENT_H

#include "base/clock.h"
#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>

/* "docker", "podman", "kubernetes", "lxc", "systemd-nspawn", "containerd", "wsl" or "" (and a
 * VM is told apart by environment_vm).  Reads /.dockerenv, /run/.containerenv, environ of pid 1
 * where allowed, /proc/1/cgroup, /proc/self/mountinfo, /proc/version. */
void environment_container(const struct root *root, char *out, size_t size);

/* "kvm", "vmware", "hyper-v", "xen", "virtualbox", "firecracker", "qemu", ... or "" for bare
 * metal, from DMI, the hypervisor flag and /sys/hypervisor. */
void environment_vm(const struct root *root, char *out, size_t size);

bool environment_is_wsl(const struct root *root);

/* Version of the NVIDIA kernel module that is loaded, and whether it is the open one.  0,
 * -GW_E_NOENT (none is), -GW_E_PARSE or another error of reading; out is "" on failure. */
long environment_nvidia_module(const struct root *root, char *out, size_t size, bool *ret_open);

/* Facts of GW_FACT_*; see gw_environment_*() in gpuward.h.  Sections, in this order:
 * "host" (hostname, time_utc, kernel, os, architecture, container, virtual_machine, wsl,
 * uptime_seconds, boot_id), "cpu" (model, vendor, sockets, cores, threads, governor,
 * frequency_max_hertz), "ram" (total_bytes), "nvidia" (driver_version as the kernel module
 * says, module_kind open or proprietary; absent not_present without the module), "tool"
 * (name, version), "rapl" (one number per domain: its name as key, energy in joules). */
int environment_collect(const struct root *root, const struct clock *clock,
			struct gw_environment **ret);

#endif
