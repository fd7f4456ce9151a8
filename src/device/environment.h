/* environment: collects the facts about the machine (kernel, CPU, driver and so on) that are
 * stored with a result. */
#ifndef GW_DEVICE_ENVIRONMENT_H
#define GW_DEVICE_ENVIRONMENT_H

#include "base/clock.h"
#include "base/root.h"

#include <gpuward.h>

#include <stdbool.h>

/* Writes "docker", "podman", "kubernetes", "lxc", "systemd-nspawn", "containerd", "wsl" or "".
 * Virtual machines are not containers: see environment_vm(). Reads /.dockerenv,
 * /run/.containerenv, the environment of pid 1 if allowed, /proc/1/cgroup, /proc/self/mountinfo
 * and /proc/version. */
void environment_container(const struct root *root, char *out, size_t size);

/* Writes "kvm", "vmware", "hyper-v", "xen", "virtualbox", "firecracker", "qemu", ... or "" for
 * bare metal, from DMI, the hypervisor flag and /sys/hypervisor. */
void environment_vm(const struct root *root, char *out, size_t size);

bool environment_is_wsl(const struct root *root);

/* Gets the version of the loaded NVIDIA kernel module, and whether it is the open module.
 * Returns 0, -GW_E_NOENT (not loaded), -GW_E_PARSE or another read error; out is "" on
 * failure. */
long environment_nvidia_module(const struct root *root, char *out, size_t size, bool *ret_open);

/* Collects the entries of gw_environment_*() in gpuward.h. Sections, in this order: "host"
 * (hostname, time_utc, kernel, os, architecture, container, virtual_machine, wsl,
 * uptime_seconds, boot_id), "cpu" (model, vendor, sockets, cores, threads, governor,
 * frequency_max_hertz), "ram" (total_bytes), "nvidia" (driver_version of the kernel module,
 * module_kind open or proprietary; not_present without the module), "tool" (name, version),
 * "rapl" (one number per domain: its name as key, energy in joules). */
int environment_collect(const struct root *root, const struct clock *clock,
			struct gw_environment **ret);

#endif
