/* amdgpu: the backend for AMD GPUs, which reads the files of the kernel driver.
 *
 * pcie_bw is never read, because the read sleeps for a second. gpu_metrics is read only for the
 * energy counter of Instinct boards. On an APU, power is the power of the whole package,
 * including the CPU. */
#include "drm.h"

static const struct drm_row rows[] = {
	/* Rows of the tier FAST. The form DRM_NONZERO skips the 0 W of the second die of an
	 * MI250, because the first die reports the power of both dies. */
	{ GW_Q_POWER, DRM_HWMON, "power1_average", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER, DRM_HWMON, "power1_input", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_AVERAGE, DRM_HWMON, "power1_average", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_INSTANT, DRM_HWMON, "power1_input", NULL, DRM_NONZERO, 1e-6, 1e10 },
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
	/* Rows of the tier SLOW. */
	{ GW_Q_TEMPERATURE_MEMORY, DRM_HWMON, "temp%u_input", "mem", DRM_NUMBER, 1e-3, 250e3 },
	/* Rows of the tier ENERGY. The counter has units of 2^-16 J. */
	{ GW_Q_ENERGY, DRM_PCI, "gpu_metrics", NULL, DRM_OWN, 1.0 / 65536, 0 },
	/* Rows of the tier HEALTH. */
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power1_cap", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_FAN_SPEED, DRM_HWMON, "pwm1", NULL, DRM_NUMBER, 1.0 / 255, 255 },
	{ GW_Q_FAN_SPEED_RPM, DRM_HWMON, "fan1_input", NULL, DRM_NUMBER, 1, 1e5 },
	{ GW_Q_PCIE_GENERATION, DRM_LINK, "current_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH, DRM_LINK, "current_link_width", NULL, DRM_NONZERO, 1, 64 },
	{ GW_Q_PCIE_REPLAYS, DRM_PCI, "pcie_replay_count", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_ECC_CORRECTED, DRM_PCI, "ras/umc_err_count", NULL, DRM_CORRECTED, 1, 0 },
	{ GW_Q_ECC_UNCORRECTED, DRM_PCI, "ras/umc_err_count", NULL, DRM_UNCORRECTED, 1, 0 },
	{ GW_Q_BAR1_TOTAL, DRM_PCI, "mem_info_vis_vram_total", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_BAR1_USED, DRM_PCI, "mem_info_vis_vram_used", NULL, DRM_NUMBER, 1, 1e15 },
	/* Rows of the tier STATIC. */
	{ GW_Q_POWER_LIMIT_MIN, DRM_HWMON, "power1_cap_min", NULL, DRM_NUMBER, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT_MAX, DRM_HWMON, "power1_cap_max", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT_DEFAULT, DRM_HWMON, "power1_cap_default", NULL, DRM_NONZERO, 1e-6,
	  1e10 },
	{ GW_Q_CLOCK_SM_MAX, DRM_PCI, "pp_dpm_sclk", NULL, DRM_LEVEL_MAX, 1e6, 1e5 },
	{ GW_Q_CLOCK_MEMORY_MAX, DRM_PCI, "pp_dpm_mclk", NULL, DRM_LEVEL_MAX, 1e6, 1e5 },
	{ GW_Q_PCIE_GENERATION_MAX, DRM_LINK, "max_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH_MAX, DRM_LINK, "max_link_width", NULL, DRM_NONZERO, 1, 64 },
	{ GW_Q_TEMPERATURE_SLOWDOWN, DRM_HWMON, "temp%u_crit", "edge", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_SLOWDOWN, DRM_HWMON, "temp%u_crit", "junction", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_SHUTDOWN, DRM_HWMON, "temp%u_emergency", "edge", DRM_NUMBER, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_SHUTDOWN, DRM_HWMON, "temp%u_emergency", "junction", DRM_NUMBER,
	  1e-3, 250e3 },
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
	{ 0x73a5, "AMD Radeon RX 6950 XT" },
	{ 0x73bf, "AMD Radeon RX 6800/6900" },
	{ 0x73df, "AMD Radeon RX 6700/6750" },
	{ 0x73ef, "AMD Radeon RX 6650 XT" },
	{ 0x73ff, "AMD Radeon RX 6600" },
	{ 0x743f, "AMD Radeon RX 6400/6500" },
	{ 0x744c, "AMD Radeon RX 7900" },
	{ 0x747e, "AMD Radeon RX 7700/7800" },
	{ 0x7480, "AMD Radeon RX 7600" },
	{ 0x7550, "AMD Radeon RX 9070" },
	{ 0x7551, "AMD Radeon AI PRO R9700" },
	{ 0x7590, "AMD Radeon RX 9060 XT" },
	{ 0x738c, "AMD Instinct MI100" },
	{ 0x7408, "AMD Instinct MI250X" },
	{ 0x740c, "AMD Instinct MI250" },
	{ 0x740f, "AMD Instinct MI210" },
	{ 0x74a0, "AMD Instinct MI300A" },
	{ 0x74a1, "AMD Instinct MI300X" },
	{ 0x74a2, "AMD Instinct MI308X" },
	{ 0x74a5, "AMD Instinct MI325X" },
	{ 0x1636, "AMD Radeon Graphics (Renoir)" },
	{ 0x1638, "AMD Radeon Graphics (Cezanne)" },
	{ 0x164e, "AMD Radeon Graphics (Raphael)" },
	{ 0x15bf, "AMD Radeon Graphics (Phoenix)" },
	{ 0x1900, "AMD Radeon Graphics (Hawk Point)" },
	{ 0x150e, "AMD Radeon 880M/890M (Strix)" },
	{ 0x1586, "AMD Radeon 8050S/8060S (Strix Halo)" },
	{ 0x13c0, "AMD Radeon Graphics (Granite Ridge)" },
	{ 0x163f, "AMD Radeon Graphics (Van Gogh)" },
	{ 0 },
};

/* PCI device ids of the upstream ports of the PCIe switches on Vega 10 and Navi boards. */
static const uint32_t switches[] = { 0x1470, 0x1478, 0 };

/* The position of the energy counter in gpu_metrics, by version and size. The version alone is
 * not enough, because version 1.6 has two layouts with different sizes. */
static const struct {
	uint8_t format, content;
	uint16_t size;
	uint8_t offset;
} metrics[] = {
	{ 1, 3, 120, 24 },  { 1, 4, 288, 24 },  { 1, 5, 360, 88 },  { 1, 6, 384, 88 },
	{ 1, 6, 1664, 16 }, { 1, 7, 2208, 24 }, { 1, 8, 3872, 24 },
};

/* On MI200 boards, the energy counter in version 1.3 of gpu_metrics works. On Radeon boards,
 * the same field is 0 or in an unknown unit, and on MI100 the counter stops. */
static bool has_counter_in_v1_3(uint32_t device)
{
	return device == 0x7408 || device == 0x740c || device == 0x740f;
}

/* Reads the energy counter of an Instinct board from the binary file gpu_metrics, which begins
 * with its size and version. The numbers are little-endian, as on every machine with such a
 * board. */
static long read_energy(const struct device *d, const struct drm_row *row, double *ret)
{
	const struct drm_device *dd = d->priv;
	unsigned char b[128];
	uint64_t v = 0;
	long n = drm_read_bytes(d, row->place, row->file, (char *)b, sizeof(b));

	if (n < 0)
		return n;
	for (unsigned i = 0; n > 4 && i < COUNT(metrics); i++) {
		if (metrics[i].format != b[2] || metrics[i].content != b[3] ||
		    metrics[i].size != (b[0] | b[1] << 8) || metrics[i].offset + 8 > n ||
		    (b[3] == 3 && !has_counter_in_v1_3(dd->gpu.device)))
			continue;
		for (unsigned byte = 8; byte-- > 0;)
			v = v << 8 | b[metrics[i].offset + byte];
		*ret = (double)v;
		/* If the driver has no value, it sets all bits. */
		return v > 0 && v < UINT64_MAX ? 0 : -GW_E_NOENT;
	}
	return -GW_E_NOENT;
}

static const char *const drivers[] = { "amdgpu", NULL };

static const struct drm_vendor amd = {
	.vendor = PCI_VENDOR_AMD,
	.brand = "AMD",
	.driver = drivers,
	.row = rows,
	.text = texts,
	.name = names,
	.unique_id = "unique_id",
	.board_switch = switches,
	.derived_memory = GW_Q_MEMORY_FREE,
	.read_own = read_energy,
};

DRM_BACKEND(amdgpu, GW_VENDOR_AMD, &amd, rows);
