/* diff_fields: the fields that diff compares in two results: path, title and tolerance.
 * Only diff.c includes it. */
#ifndef GW_CLI_DIFF_FIELDS_H
#define GW_CLI_DIFF_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

struct diff_field {
	/* Path of the field. The comment above each table says where the path starts. */
	const char *path;
	const char *title; /* The title to print. NULL: the field is not compared. */
	double apart; /* Tolerance: two values count as equal if they differ by at most this. */
	/* True: `apart` is a ratio of the larger value. False: it has the unit of the field. */
	bool share;
};

/* In each table, a row with path NULL is the last. */

/* The paths start at the top of the result document. */
static const struct diff_field diff_fields_settings[] = {
	{ "label", "label", 0, false },
	{ "command_name", "command", 0, false },
	{ "command", "command line", 0, false },
	{ "model_size_bytes", "model size", 0, false },
	{ "iterations", "iterations", 0, false },
	{ "tokens", "tokens", 0, false },
	{ "runs.0.baseline_kind", "baseline", 0, false },
	{ "clean_room.kept", "clean room, kept", 0, false },
	{ "service", "measured by the service at", 0, false },
	{ NULL, NULL, 0, false },
};
static const struct diff_field diff_fields_environment[] = {
	{ "tool.version", "gpuward version", 0, false },
	{ "environment.host.hostname", "machine", 0, false },
	{ "environment.host.os", "system", 0, false },
	{ "environment.host.kernel", "kernel", 0, false },
	{ "environment.host.architecture", "architecture", 0, false },
	{ "environment.host.container", "container", 0, false },
	{ "environment.host.virtual_machine", "virtual machine", 0, false },
	{ "environment.host.wsl", "WSL", 0, false },
	{ "environment.cpu.model", "CPU", 0, false },
	{ "environment.cpu.sockets", "sockets", 0, false },
	{ "environment.cpu.threads", "CPU threads", 0, false },
	{ "environment.cpu.governor", "CPU governor", 0, false },
	{ "environment.cpu.frequency_max_hertz", "CPU clock, maximum", 0, false },
	{ "environment.ram.total_bytes", "memory", 0, false },
	{ "environment.source.backend", "backend", 0, false },
	{ "environment.source.driver_version", "driver", 0, false },
	{ "environment.source.cuda_driver_version", "CUDA version of the driver", 0, false },
	{ "environment.source.nvml_version", "NVML", 0, false },
	{ "environment.nvidia.module_kind", "kernel module", 0, false },
	{ NULL, NULL, 0, false },
};
/* The paths start at one GPU in the environment of a result. */
static const struct diff_field diff_fields_gpu[] = {
	{ "name", "name", 0, false },
	{ "uuid", "UUID", 0, false },
	{ "pci_bus_id", "PCI id", 0, false },
	{ "vbios_version", "VBIOS", 0, false },
	{ "driver_version", "driver", 0, false },
	{ "memory_total_bytes", "memory", 0, false },
	{ "persistence_mode", "persistence mode", 0, false },
	{ "compute_mode", "compute mode", 0, false },
	{ "ecc_mode", "ECC", 0, false },
	{ "mig_mode", "MIG", 0, false },
	{ "virtualization_mode", "virtualization", 0, false },
	{ "display_active", "display active", 0, false },
	{ "power_limit_watts", "power limit", 0, false },
	{ "power_limit_default_watts", "power limit, default", 0, false },
	{ "power_limit_max_watts", "power limit, maximum", 0, false },
	{ "clock_graphics_application_hertz", "application clock", 0, false },
	{ "clock_sm_max_hertz", "SM clock, maximum", 0, false },
	{ "clock_memory_max_hertz", "memory clock, maximum", 0, false },
	{ "pcie_generation", "PCIe generation", 0, false },
	{ "pcie_width_lanes", "PCIe lanes", 0, false },
	{ "remapped_rows_uncorrectable", "remapped rows", 0, false },
	{ NULL, NULL, 0, false },
};
/* The paths start at a GPU in a run.  The values are means over the usable runs. */
static const struct diff_field diff_fields_figures[] = {
#define NO_DIFF                                         NULL, 0, false
#define DIFF(title, tolerance)                          title, tolerance, false
#define DIFF_RATIO(title, ratio)                        title, ratio, true
#define GW_FIELD(kind, member, key, help, diff)         { key, diff },
#define GW_WORD(list, member, key, missing, help, diff) { key, diff },
#define GW_LIST(list, member, key, help, diff)          { key, diff },
#include <gpuward/energy.def>
	{ "power_limit_watts", "power limit", 0, false },
	{ "baseline.kind", "baseline", 0, false },
	{ "baseline.power_watts", "idle power", 1, false },
	{ NULL, NULL, 0, false },
};
/* The paths start at a GPU in a run.  The values are shares of the run's time.  The tolerance
 * is 0.01, because throttling for 1 % of the time also raises a code. */
static const struct diff_field diff_fields_throttles[] = {
#define GW_THROTTLE(symbol, key, help) \
	{ "throttle." key "_seconds", "throttled by " help, 0.01, false },
#include <gpuward/words.def>
	{ NULL, NULL, 0, false },
};
/* The paths start at the sensor of one GPU. */
static const struct diff_field diff_fields_sensor[] = {
#define SENSOR(kind, file, member, key, diff)  { key, diff },
#define SENSOR_IN(kind, part, name, key, diff) { key, diff },
#include "measure/sensor.def"
	{ NULL, NULL, 0, false },
};

#endif
