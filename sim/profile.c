#include "profile.h"

#include <string.h>

/* The ring and the counter as measured on an H200 (driver 580); other chips differ in what
 * a row says after it. */
/* clang-format off */
#define RING                                                                                  \
	.ring_entries = 119, .ring_gap_ms = 20, .ring_age_ms = 10, .ring_jitter_ms = 0,       \
	.ring_delay_ms = 3.5, .ring_filter_ms = 13.5
#define COUNTER .gain = 1, .tick_ms = 100, .tick_lag_ms = 5
/* 1 s mean beside a short instant value; PowerUsage is the mean. */
#define MEAN_AND_INSTANT(window, lag)                                                         \
	.period_ms = 100, .average_ms = 1000, .average_lag_ms = 20, .instant_ms = (window),   \
	.instant_lag_ms = (lag), COUNTER, RING
/* The same as a Hopper makes it (fitted to recordings of an H200). */
#define SAMPLED                                                                               \
	MEAN_AND_INSTANT(25, 10), .sample_ms = 20, .sample_age_ms = 8, .sample_filter_ms = 10
/* One value for everything. */
#define ONE_VALUE(period, window)                                                             \
	.period_ms = (period), .average_ms = (window), .instant_ms = (window),                \
	.average_lag_ms = 5, .instant_lag_ms = 5, .power_is_instant = true, COUNTER, RING

#define DATA_CENTRE (TRAIT_ECC | TRAIT_ROWS | TRAIT_MIG | TRAIT_MEMORY_SENSOR)
#define HOPPER                                                                                \
	(DATA_CENTRE | TRAIT_GPM | TRAIT_TLIMIT | TRAIT_MEMORY_POWER | TRAIT_PCIE_COUNTERS)

const struct profile profiles[] = {
	{ .key = "h200", .name = "NVIDIA H200", .part = "900-2G520-0040-000",
	  .vbios = "96.00.A5.00.1A", .traits = HOPPER,
	  .architecture = 9, .major = 9, .cores = 16896,
	  .device_id = 0x233510DE, .subsystem_id = 0x18BF10DE,
	  .memory_mib = 143771, .reserved_kib = 629824, .bar1_mib = 262144,
	  .idle_w = 80, .context_w = 124, .max_w = 780,
	  .limit_min_w = 200, .limit_max_w = 700, .limit_w = 700,
	  .idle_sm_mhz = 900, .sm_mhz = 1980, .memory_mhz = 3201, .video_mhz = 1545,
	  .pcie_generation = 5, .pcie_width = 16, .virtualization = 1,
	  .ambient_c = 35.3, .c_per_w = 0.0343, .thermal_s = 12,
	  .shutdown_c = 95, .slowdown_c = 89, .memory_max_c = 95, .gpu_max_c = 87,
	  .sensor = { SAMPLED } },
	{ .key = "h100", .name = "NVIDIA H100 80GB HBM3", .part = "900-2G520-0000-000",
	  .vbios = "96.00.74.00.01", .traits = HOPPER,
	  .architecture = 9, .major = 9, .cores = 16896,
	  .device_id = 0x233010DE, .subsystem_id = 0x16C110DE,
	  .memory_mib = 81559, .reserved_kib = 600 * 1024, .bar1_mib = 131072,
	  .idle_w = 70, .context_w = 115, .max_w = 740,
	  .limit_min_w = 200, .limit_max_w = 700, .limit_w = 700,
	  .idle_sm_mhz = 345, .sm_mhz = 1980, .memory_mhz = 2619, .video_mhz = 1545,
	  .pcie_generation = 5, .pcie_width = 16,
	  .ambient_c = 30, .c_per_w = 0.045, .thermal_s = 12,
	  .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95, .gpu_max_c = 87,
	  .sensor = { SAMPLED } },
	{ .key = "a100", .name = "NVIDIA A100-SXM4-80GB", .part = "692-2G506-0212-002",
	  .vbios = "92.00.45.00.05", .traits = DATA_CENTRE,
	  .architecture = 7, .major = 8, .cores = 6912,
	  .device_id = 0x20B210DE, .subsystem_id = 0x147F10DE,
	  .memory_mib = 81920, .reserved_kib = 640 * 1024, .bar1_mib = 131072,
	  .idle_w = 62, .context_w = 85, .max_w = 430,
	  .limit_min_w = 100, .limit_max_w = 400, .limit_w = 400,
	  .idle_sm_mhz = 210, .sm_mhz = 1410, .memory_mhz = 1593, .video_mhz = 1290,
	  .pcie_generation = 4, .pcie_width = 16,
	  .ambient_c = 27, .c_per_w = 0.09, .thermal_s = 15,
	  .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95, .gpu_max_c = 85,
	  .sensor = { ONE_VALUE(100, 25), .no_average = true } },
	{ .key = "rtx4090", .name = "NVIDIA GeForce RTX 4090", .part = "900-1G136-2530-000",
	  .vbios = "95.02.18.80.5F", .traits = TRAIT_TLIMIT | TRAIT_DISPLAY,
	  .architecture = 8, .major = 8, .minor = 9, .cores = 16384,
	  .device_id = 0x268410DE, .subsystem_id = 0x889D1043,
	  .memory_mib = 24564, .reserved_kib = 361 * 1024, .bar1_mib = 32768,
	  .idle_w = 18, .context_w = 55, .max_w = 470,
	  .limit_min_w = 150, .limit_max_w = 600, .limit_w = 450,
	  .idle_sm_mhz = 210, .sm_mhz = 3105, .memory_mhz = 10501, .video_mhz = 2415,
	  .fans = 3, .pcie_generation = 4, .pcie_width = 16, .idle_pstate = 8,
	  .ambient_c = 29, .c_per_w = 0.09, .thermal_s = 25,
	  .shutdown_c = 99, .slowdown_c = 96, .memory_max_c = 105, .gpu_max_c = 90,
	  .sensor = { MEAN_AND_INSTANT(100, 10), .read_loss_ms = 16 } },
	{ .key = "t4", .name = "Tesla T4", .part = "900-2G183-0000-001",
	  .vbios = "90.04.96.00.01", .traits = TRAIT_ECC,
	  .architecture = 6, .major = 7, .minor = 5, .cores = 2560,
	  .device_id = 0x1EB810DE, .subsystem_id = 0x12A210DE,
	  .memory_mib = 15360, .reserved_kib = 440 * 1024, .bar1_mib = 256,
	  .idle_w = 9, .context_w = 27, .max_w = 78,
	  .limit_min_w = 60, .limit_max_w = 70, .limit_w = 70,
	  .idle_sm_mhz = 300, .sm_mhz = 1590, .memory_mhz = 5001, .video_mhz = 1470,
	  .pcie_generation = 3, .pcie_width = 16, .idle_pstate = 8,
	  .ambient_c = 30, .c_per_w = 0.6, .thermal_s = 40,
	  .shutdown_c = 96, .slowdown_c = 93, .memory_max_c = 0, .gpu_max_c = 85,
	  .sensor = { ONE_VALUE(100, 100) } },
	{ .key = "p100", .name = "Tesla P100-PCIE-16GB", .part = "900-2H400-0000-000",
	  .vbios = "86.00.41.00.05", .traits = TRAIT_ECC,
	  .architecture = 4, .major = 6, .cores = 3584,
	  .device_id = 0x15F810DE, .subsystem_id = 0x118F10DE,
	  .memory_mib = 16384, .reserved_kib = 106 * 1024, .bar1_mib = 16384,
	  .idle_w = 26, .context_w = 32, .max_w = 260,
	  .limit_min_w = 125, .limit_max_w = 250, .limit_w = 250,
	  .idle_sm_mhz = 405, .sm_mhz = 1328, .memory_mhz = 715, .video_mhz = 1189,
	  .pcie_generation = 3, .pcie_width = 16,
	  .ambient_c = 28, .c_per_w = 0.16, .thermal_s = 30,
	  .shutdown_c = 85, .slowdown_c = 82, .memory_max_c = 0, .gpu_max_c = 80,
	  .sensor = { ONE_VALUE(20, 10), .no_counter = true } },
	{ .key = "gh200", .name = "NVIDIA GH200 480GB", .part = "900-2G530-0060-000",
	  .vbios = "96.00.A0.00.01", .traits = HOPPER | TRAIT_MODULE,
	  .architecture = 9, .major = 9, .cores = 16896,
	  .device_id = 0x234210DE, .subsystem_id = 0x16EB10DE,
	  .memory_mib = 97871, .reserved_kib = 620 * 1024, .bar1_mib = 131072,
	  .idle_w = 85, .context_w = 130, .max_w = 720,
	  .limit_min_w = 100, .limit_max_w = 900, .limit_w = 900,
	  .idle_sm_mhz = 345, .sm_mhz = 1980, .memory_mhz = 2619, .video_mhz = 1530,
	  .pcie_generation = 5, .pcie_width = 16,
	  .ambient_c = 28, .c_per_w = 0.045, .thermal_s = 12,
	  .shutdown_c = 92, .slowdown_c = 89, .memory_max_c = 95, .gpu_max_c = 87,
	  .sensor = { SAMPLED } },
	{ .key = "laptop", .name = "NVIDIA GeForce RTX 4070 Laptop GPU", .part = NULL,
	  .vbios = "95.06.24.00.7A", .traits = TRAIT_TLIMIT | TRAIT_NO_LIMIT,
	  .architecture = 8, .major = 8, .minor = 9, .cores = 4608,
	  .device_id = 0x282010DE, .subsystem_id = 0x161D1043,
	  .memory_mib = 8188, .reserved_kib = 227 * 1024, .bar1_mib = 8192,
	  .idle_w = 3, .context_w = 14, .max_w = 110,
	  .limit_min_w = 5, .limit_max_w = 115, .limit_w = 100,
	  .idle_sm_mhz = 210, .sm_mhz = 2370, .memory_mhz = 8001, .video_mhz = 1900,
	  .pcie_generation = 4, .pcie_width = 8, .idle_pstate = 8,
	  .ambient_c = 38, .c_per_w = 0.4, .thermal_s = 20,
	  .shutdown_c = 105, .slowdown_c = 102, .memory_max_c = 105, .gpu_max_c = 87,
	  .sensor = { MEAN_AND_INSTANT(100, 10) } },
	{ .key = "spark", .name = "NVIDIA GB10", .part = NULL,
	  .vbios = "9A.0B.0E.00.00",
	  .traits = TRAIT_SHARED_MEMORY | TRAIT_TLIMIT | TRAIT_NO_LIMIT,
	  .architecture = 10, .major = 12, .minor = 1, .cores = 6144,
	  .device_id = 0x2E1210DE, .subsystem_id = 0x000010DE,
	  .memory_mib = 124610, .bar1_mib = 0,
	  .idle_w = 4, .context_w = 11, .max_w = 90,
	  .limit_min_w = 5, .limit_max_w = 140, .limit_w = 140,
	  .idle_sm_mhz = 208, .sm_mhz = 3003, .memory_mhz = 0, .video_mhz = 2400,
	  .pcie_generation = 1, .pcie_width = 1, .idle_pstate = 8,
	  .ambient_c = 34, .c_per_w = 0.4, .thermal_s = 25,
	  .shutdown_c = 99, .slowdown_c = 96, .memory_max_c = 0, .gpu_max_c = 90,
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
