/* amdgpu: AMD GPUs, read from the files of the kernel driver.
 *
 * Two files are never read: pcie_bw, because the read sleeps for a second, and gpu_metrics,
 * because its layout changes with its version. On an APU, power is the power of the whole
 * package, including the CPU. */
#include "drm.h"

static const struct drm_row rows[] = {
	/* FAST */
	{ GW_Q_POWER, DRM_HWMON, "power1_average", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER, DRM_HWMON, "power1_input", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER_AVERAGE, DRM_HWMON, "power1_average", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER_INSTANT, DRM_HWMON, "power1_input", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_MEMORY_TOTAL, DRM_PCI, "mem_info_vram_total", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_MEMORY_USED, DRM_PCI, "mem_info_vram_used", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_UTILIZATION_GPU, DRM_PCI, "gpu_busy_percent", NULL, DRM_NUMBER, 1e-2, 100 },
	{ GW_Q_UTILIZATION_MEMORY, DRM_PCI, "mem_busy_percent", NULL, DRM_NUMBER, 1e-2, 100 },
	{ GW_Q_TEMPERATURE_GPU, DRM_HWMON, "temp%u_input", "edge", DRM_NUMBER, 1e-3, 250e3 },
	{ GW_Q_TEMPERATURE_GPU, DRM_HWMON, "temp%u_input", "junction", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_GPU, DRM_HWMON, "temp1_input", NULL, DRM_NUMBER, 1e-3, 250e3 },
	{ GW_Q_CLOCK_GRAPHICS, DRM_HWMON, "freq%u_input", "sclk", DRM_NUMBER, 1, 1e11 },
	{ GW_Q_CLOCK_GRAPHICS, DRM_PCI, "pp_dpm_sclk", NULL, DRM_LEVEL, 1e6, 1e5 },
	{ GW_Q_CLOCK_SM, DRM_HWMON, "freq%u_input", "sclk", DRM_NUMBER, 1, 1e11 },
	{ GW_Q_CLOCK_SM, DRM_PCI, "pp_dpm_sclk", NULL, DRM_LEVEL, 1e6, 1e5 },
	{ GW_Q_CLOCK_MEMORY, DRM_HWMON, "freq%u_input", "mclk", DRM_NUMBER, 1, 1e11 },
	{ GW_Q_CLOCK_MEMORY, DRM_PCI, "pp_dpm_mclk", NULL, DRM_LEVEL, 1e6, 1e5 },
	/* SLOW */
	{ GW_Q_TEMPERATURE_MEMORY, DRM_HWMON, "temp%u_input", "mem", DRM_NUMBER, 1e-3, 250e3 },
	/* HEALTH */
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power1_cap", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_FAN_SPEED, DRM_HWMON, "pwm1", NULL, DRM_NUMBER, 1.0 / 255, 255 },
	{ GW_Q_FAN_SPEED_RPM, DRM_HWMON, "fan1_input", NULL, DRM_NUMBER, 1, 1e5 },
	{ GW_Q_PCIE_GENERATION, DRM_PCI, "current_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH, DRM_PCI, "current_link_width", NULL, DRM_NUMBER, 1, 64 },
	{ GW_Q_PCIE_REPLAYS, DRM_PCI, "pcie_replay_count", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_ECC_CORRECTED, DRM_PCI, "ras/umc_err_count", NULL, DRM_CORRECTED, 1, 0 },
	{ GW_Q_ECC_UNCORRECTED, DRM_PCI, "ras/umc_err_count", NULL, DRM_UNCORRECTED, 1, 0 },
	{ GW_Q_BAR1_TOTAL, DRM_PCI, "mem_info_vis_vram_total", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_BAR1_USED, DRM_PCI, "mem_info_vis_vram_used", NULL, DRM_NUMBER, 1, 1e15 },
	/* STATIC */
	{ GW_Q_POWER_LIMIT_MIN, DRM_HWMON, "power1_cap_min", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT_MAX, DRM_HWMON, "power1_cap_max", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT_DEFAULT, DRM_HWMON, "power1_cap_default", NULL, DRM_NUMBER, 1e-6,
	  1e10 },
	{ GW_Q_CLOCK_SM_MAX, DRM_PCI, "pp_dpm_sclk", NULL, DRM_LEVEL_MAX, 1e6, 1e5 },
	{ GW_Q_CLOCK_MEMORY_MAX, DRM_PCI, "pp_dpm_mclk", NULL, DRM_LEVEL_MAX, 1e6, 1e5 },
	{ GW_Q_PCIE_GENERATION_MAX, DRM_PCI, "max_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH_MAX, DRM_PCI, "max_link_width", NULL, DRM_NUMBER, 1, 64 },
	{ GW_Q_TEMPERATURE_SLOWDOWN, DRM_HWMON, "temp%u_crit", "edge", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_SHUTDOWN, DRM_HWMON, "temp%u_emergency", "edge", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_MEMORY_MAX, DRM_HWMON, "temp%u_crit", "mem", DRM_NUMBER, 1e-3,
	  250e3 },
	{ 0 },
};

static const struct drm_text texts[] = {
	{ GW_T_NAME, "product_name" },
	{ GW_T_SERIAL, "serial_number" },
	{ GW_T_VBIOS, "vbios_version" },
	{ GW_T_PART_NUMBER, "product_number" },
	{ 0 },
};

/* Only server boards report their own name; this table has the names of other common boards. */
static const struct drm_name names[] = {
	{ 0x67df, "AMD Radeon RX 470/480/570/580/590" },
	{ 0x687f, "AMD Radeon RX Vega" },
	{ 0x66af, "AMD Radeon VII" },
	{ 0x731f, "AMD Radeon RX 5600/5700" },
	{ 0x73bf, "AMD Radeon RX 6800/6900" },
	{ 0x73df, "AMD Radeon RX 6700/6750" },
	{ 0x73ff, "AMD Radeon RX 6600" },
	{ 0x744c, "AMD Radeon RX 7900" },
	{ 0x747e, "AMD Radeon RX 7700/7800" },
	{ 0x7480, "AMD Radeon RX 7600" },
	{ 0x7550, "AMD Radeon RX 9070" },
	{ 0x738c, "AMD Instinct MI100" },
	{ 0x7408, "AMD Instinct MI250X" },
	{ 0x740f, "AMD Instinct MI210" },
	{ 0x74a0, "AMD Instinct MI300A" },
	{ 0x74a1, "AMD Instinct MI300X" },
	{ 0x1636, "AMD Radeon Graphics (Renoir)" },
	{ 0x1638, "AMD Radeon Graphics (Cezanne)" },
	{ 0x164e, "AMD Radeon Graphics (Raphael)" },
	{ 0x15bf, "AMD Radeon Graphics (Phoenix)" },
	{ 0 },
};

static const char *const drivers[] = { "amdgpu", NULL };

static const struct drm_vendor amd = {
	.vendor = PCI_VENDOR_AMD,
	.brand = "AMD",
	.driver = drivers,
	.row = rows,
	.text = texts,
	.name = names,
	.unique_id = "unique_id",
	.derived_memory = GW_Q_MEMORY_FREE,
};

DRM_BACKEND(amdgpu, GW_VENDOR_AMD, &amd, rows);
