#include "profile.h"

#include <string.h>

/* The ring and the counter as measured on an H200 (driver 580); other chips override these
 * values. */
/* clang-format off */
#define RING_OF(count, gap)                                                                   \
	.ring.entries = (count), .ring.gap_ms = (gap), .ring.age_ms = 10,                   \
	.ring.jitter_ms = 0, .ring.delay_ms = 3.5, .ring.filter_ms = 13.5
#define RING RING_OF(119, 20)
#define COUNTER .gain = 1, .tick_ms = 100, .tick_lag_ms = 5
/* Average power over 1 s and a short instant value; nvmlDeviceGetPowerUsage returns the
 * average. */
#define MEANS(window, lag)                                                                    \
	.period_ms = 100, .average_ms = 1000, .average_lag_ms = 20, .instant_ms = (window),   \
	.instant_lag_ms = (lag), COUNTER
#define MEAN_AND_INSTANT(window, lag) MEANS(window, lag), RING
/* Average and instant value on Hopper, made from samples; the numbers are fitted to
 * measurements on an H200. */
#define SAMPLED                                                                               \
	MEAN_AND_INSTANT(25, 10), .sample.gap_ms = 20, .sample.age_ms = 8, .sample.filter_ms = 10, \
		.own_time = true
/* Average, instant and nvmlDeviceGetPowerUsage return the same value. */
#define ONE_VALUE(period, window)                                                             \
	.period_ms = (period), .average_ms = (window), .instant_ms = (window),                \
	.average_lag_ms = 5, .instant_lag_ms = 5, .power_is_instant = true, COUNTER, RING

/* Kepler and Maxwell: one low-passed power value; no energy counter, no field values and no
 * ring. */
#define LOW_PASS(period, constant)                                                            \
	.period_ms = (period), .low_pass_ms = (constant), .power_is_instant = true,           \
	.no_average = true, .no_instant = true, .no_counter = true, .no_ring = true, COUNTER, \
	RING

#define DATA_CENTRE (TRAIT_ECC | TRAIT_ROWS | TRAIT_MIG | TRAIT_MEMORY_SENSOR)
#define HOPPER                                                                                \
	(DATA_CENTRE | TRAIT_GPM | TRAIT_TLIMIT | TRAIT_MEMORY_POWER | TRAIT_PCIE_COUNTERS)

/* Order of the values in braces: chip is architecture, compute capability and cores; limit is
 * minimum, maximum and default; mhz is SM when idle, SM, memory and video; heat begins with
 * ambient temperature, degrees per watt and time constant. */
const struct profile profiles[] = {
	{ .key = "h200", .name = "NVIDIA H200", .part = "900-2G520-0040-000",
	  .vbios = "96.00.A5.00.1A", .traits = HOPPER,
	  .chip = { 9, 9, 0, 16896 },
	  .device_id = 0x233510DE, .subsystem_id = 0x18BF10DE,
	  .memory_mib = 143771, .reserved_kib = 629824, .bar1_mib = 262144,
	  .idle_w = 80, .context_w = 124, .max_w = 780,
	  .limit = { 200, 700, 700 },
	  .mhz = { 900, 1980, 3201, 1545 },
	  .pcie_generation = 5, .pcie_width = 16, .virtualization = 1,
	  .heat = { 35.3, 0.0343, 12, .shutdown_c = 95, .slowdown_c = 89, .memory_max_c = 95,
		    .gpu_max_c = 87 },
	  .sensor = { SAMPLED } },
	{ .key = "h100", .name = "NVIDIA H100 80GB HBM3", .part = "900-2G520-0000-000",
	  .vbios = "96.00.74.00.01", .traits = HOPPER,
	  .chip = { 9, 9, 0, 16896 },
	  .device_id = 0x233010DE, .subsystem_id = 0x16C110DE,
	  .memory_mib = 81559, .reserved_kib = 600 * 1024, .bar1_mib = 131072,
	  .idle_w = 70, .context_w = 115, .max_w = 740,
	  .limit = { 200, 700, 700 },
	  .mhz = { 345, 1980, 2619, 1545 },
	  .pcie_generation = 5, .pcie_width = 16,
	  .heat = { 30, 0.045, 12, .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95,
		    .gpu_max_c = 87 },
	  .sensor = { SAMPLED } },
	{ .key = "a100", .name = "NVIDIA A100-SXM4-80GB", .part = "692-2G506-0212-002",
	  .vbios = "92.00.45.00.05", .traits = DATA_CENTRE,
	  .chip = { 7, 8, 0, 6912 },
	  .device_id = 0x20B210DE, .subsystem_id = 0x147F10DE,
	  .memory_mib = 81920, .reserved_kib = 640 * 1024, .bar1_mib = 131072,
	  .idle_w = 62, .context_w = 85, .max_w = 430,
	  .limit = { 100, 400, 400 },
	  .mhz = { 210, 1410, 1593, 1290 },
	  .pcie_generation = 4, .pcie_width = 16,
	  .heat = { 27, 0.09, 15, .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95,
		    .gpu_max_c = 85 },
	  .sensor = { ONE_VALUE(100, 25), .no_average = true } },
	{ .key = "rtx4090", .name = "NVIDIA GeForce RTX 4090", .part = "900-1G136-2530-000",
	  .vbios = "95.02.18.80.5F", .traits = TRAIT_TLIMIT | TRAIT_DISPLAY,
	  .chip = { 8, 8, 9, 16384 },
	  .device_id = 0x268410DE, .subsystem_id = 0x889D1043,
	  .memory_mib = 24564, .reserved_kib = 361 * 1024, .bar1_mib = 32768,
	  .idle_w = 18, .context_w = 55, .max_w = 470,
	  .limit = { 150, 600, 450 },
	  .mhz = { 210, 3105, 10501, 2415 },
	  .fans = 3, .pcie_generation = 4, .pcie_width = 16, .idle_pstate = 8,
	  .heat = { 29, 0.09, 25, .shutdown_c = 99, .slowdown_c = 96, .memory_max_c = 105,
		    .gpu_max_c = 90 },
	  .sensor = { MEAN_AND_INSTANT(100, 10), .read_loss_ms = 16 } },
	{ .key = "t4", .name = "Tesla T4", .part = "900-2G183-0000-001",
	  .vbios = "90.04.96.00.01", .traits = TRAIT_ECC,
	  .chip = { 6, 7, 5, 2560 },
	  .device_id = 0x1EB810DE, .subsystem_id = 0x12A210DE,
	  .memory_mib = 15360, .reserved_kib = 440 * 1024, .bar1_mib = 256,
	  .idle_w = 9, .context_w = 27, .max_w = 78,
	  .limit = { 60, 70, 70 },
	  .mhz = { 300, 1590, 5001, 1470 },
	  .pcie_generation = 3, .pcie_width = 16, .idle_pstate = 8,
	  .heat = { 30, 0.6, 40, .shutdown_c = 96, .slowdown_c = 93, .memory_max_c = 0,
		    .gpu_max_c = 85 },
	  .sensor = { ONE_VALUE(100, 100) } },
	{ .key = "p100", .name = "Tesla P100-PCIE-16GB", .part = "900-2H400-0000-000",
	  .vbios = "86.00.41.00.05", .traits = TRAIT_ECC,
	  .chip = { 4, 6, 0, 3584 },
	  .device_id = 0x15F810DE, .subsystem_id = 0x118F10DE,
	  .memory_mib = 16384, .reserved_kib = 106 * 1024, .bar1_mib = 16384,
	  .idle_w = 26, .context_w = 32, .max_w = 260,
	  .limit = { 125, 250, 250 },
	  .mhz = { 405, 1328, 715, 1189 },
	  .pcie_generation = 3, .pcie_width = 16,
	  .heat = { 28, 0.16, 30, .shutdown_c = 85, .slowdown_c = 82, .memory_max_c = 0,
		    .gpu_max_c = 80 },
	  .sensor = { ONE_VALUE(20, 10), .no_counter = true } },
	{ .key = "a10", .name = "NVIDIA A10", .part = "900-2G133-0000-000",
	  .vbios = "94.02.5C.00.01", .traits = TRAIT_ECC | TRAIT_ROWS,
	  .chip = { 7, 8, 6, 9216 },
	  .device_id = 0x223610DE, .subsystem_id = 0x148210DE,
	  .memory_mib = 23028, .reserved_kib = 500 * 1024, .bar1_mib = 32768,
	  .idle_w = 16, .context_w = 58, .max_w = 165,
	  .limit = { 100, 150, 150 },
	  .mhz = { 210, 1695, 6251, 1545 },
	  .pcie_generation = 4, .pcie_width = 16, .idle_pstate = 8,
	  .heat = { 30, 0.25, 30, .shutdown_c = 98, .slowdown_c = 95, .memory_max_c = 0,
		    .gpu_max_c = 88 },
	  .sensor = { MEANS(100, 10), RING_OF(100, 1000) } },
	{ .key = "v100", .name = "Tesla V100-SXM2-32GB", .part = "900-2G503-0010-000",
	  .vbios = "88.00.91.00.01", .traits = TRAIT_ECC | TRAIT_MEMORY_SENSOR,
	  .chip = { 5, 7, 0, 5120 },
	  .device_id = 0x1DB510DE, .subsystem_id = 0x124910DE,
	  .memory_mib = 32768, .reserved_kib = 260 * 1024, .bar1_mib = 32768,
	  .idle_w = 40, .context_w = 55, .max_w = 320,
	  .limit = { 150, 300, 300 },
	  .mhz = { 135, 1530, 877, 1372 },
	  .pcie_generation = 3, .pcie_width = 16,
	  .heat = { 28, 0.12, 25, .shutdown_c = 90, .slowdown_c = 87, .memory_max_c = 85,
		    .gpu_max_c = 83 },
	  .sensor = { ONE_VALUE(20, 10) } },
	{ .key = "k40", .name = "Tesla K40m", .part = "900-22081-0040-000",
	  .vbios = "80.80.3E.00.01", .traits = TRAIT_ECC,
	  .chip = { 2, 3, 5, 2880 },
	  .device_id = 0x102310DE, .subsystem_id = 0x097E10DE,
	  .memory_mib = 11441, .reserved_kib = 60 * 1024, .bar1_mib = 16384,
	  .idle_w = 20, .context_w = 62, .max_w = 240,
	  .limit = { 180, 235, 235 },
	  .mhz = { 324, 745, 3004, 540 },
	  .pcie_generation = 3, .pcie_width = 16, .idle_pstate = 8,
	  .heat = { 28, 0.2, 30, .shutdown_c = 95, .slowdown_c = 90, .memory_max_c = 0,
		    .gpu_max_c = 85 },
	  .sensor = { LOW_PASS(100, 300) } },
	{ .key = "gh200", .name = "NVIDIA GH200 480GB", .part = "900-2G530-0060-000",
	  .vbios = "96.00.A0.00.01", .traits = HOPPER | TRAIT_MODULE,
	  .chip = { 9, 9, 0, 16896 },
	  .device_id = 0x234210DE, .subsystem_id = 0x16EB10DE,
	  .memory_mib = 97871, .reserved_kib = 620 * 1024, .bar1_mib = 131072,
	  .idle_w = 85, .context_w = 130, .max_w = 720,
	  .limit = { 100, 900, 900 },
	  .mhz = { 345, 1980, 2619, 1530 },
	  .pcie_generation = 5, .pcie_width = 16,
	  .heat = { 28, 0.045, 12, .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95,
		    .gpu_max_c = 87 },
	  .sensor = { SAMPLED, .module_w = 90 } },
	{ .key = "laptop", .name = "NVIDIA GeForce RTX 4070 Laptop GPU", .part = NULL,
	  .vbios = "95.06.24.00.7A", .traits = TRAIT_TLIMIT | TRAIT_NO_LIMIT,
	  .chip = { 8, 8, 9, 4608 },
	  .device_id = 0x282010DE, .subsystem_id = 0x161D1043,
	  .memory_mib = 8188, .reserved_kib = 227 * 1024, .bar1_mib = 8192,
	  .idle_w = 3, .context_w = 14, .max_w = 110,
	  .limit = { 5, 115, 100 },
	  .mhz = { 210, 2370, 8001, 1900 },
	  .pcie_generation = 4, .pcie_width = 8, .idle_pstate = 8,
	  .heat = { 38, 0.4, 20, .shutdown_c = 105, .slowdown_c = 102, .memory_max_c = 105,
		    .gpu_max_c = 87 },
	  .sensor = { MEAN_AND_INSTANT(100, 10) } },
	{ .key = "spark", .name = "NVIDIA GB10", .part = NULL,
	  .vbios = "9A.0B.0E.00.00",
	  .traits = TRAIT_SHARED_MEMORY | TRAIT_TLIMIT | TRAIT_NO_LIMIT,
	  .chip = { 10, 12, 1, 6144 },
	  .device_id = 0x2E1210DE, .subsystem_id = 0x000010DE,
	  .memory_mib = 124610, .bar1_mib = 0,
	  .idle_w = 4, .context_w = 11, .max_w = 90,
	  .limit = { 5, 140, 140 },
	  .mhz = { 208, 3003, 0, 2400 },
	  .pcie_generation = 1, .pcie_width = 1, .idle_pstate = 8,
	  .heat = { 34, 0.4, 25, .shutdown_c = 99, .slowdown_c = 96, .memory_max_c = 0,
		    .gpu_max_c = 90 },
	  .sensor = { ONE_VALUE(100, 100), .no_ring = true } },
};
/* clang-format on */
const unsigned n_profiles = sizeof(profiles) / sizeof(profiles[0]);

const struct profile *profile_find(const char *key)
{
	for (unsigned i = 0; i < n_profiles; i++)
		if (strcmp(profiles[i].key, key) == 0)
			return &profiles[i];
	return NULL;
}
