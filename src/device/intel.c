/* intel: Intel GPUs, through the files of the i915 and xe kernel drivers.
 *
 * The drivers count energy but do not report power, so power is computed from the energy
 * between two readings. The drivers also have no file for utilisation and used memory, so
 * drm_client_use() sums the values that the drivers report per client. The files lmem_* exist
 * only in Intel's own package of i915, not in Linux itself. */
#include "drm.h"

static const struct drm_row rows[] = {
	/* Rows of the tier FAST. */
	{ GW_Q_MEMORY_TOTAL, DRM_CARD, "lmem_total_bytes", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_MEMORY_TOTAL, DRM_PCI, "tile0/physical_vram_size_bytes", NULL, DRM_NUMBER, 1,
	  1e15 },
	{ GW_Q_MEMORY_FREE, DRM_CARD, "lmem_avail_bytes", NULL, DRM_NUMBER, 1, 1e15 },
	{ GW_Q_TEMPERATURE_GPU, DRM_HWMON, "temp%u_input", "pkg", DRM_NUMBER, 1e-3, 250e3 },
	{ GW_Q_TEMPERATURE_GPU, DRM_HWMON, "temp1_input", NULL, DRM_NUMBER, 1e-3, 250e3 },
	{ GW_Q_CLOCK_GRAPHICS, DRM_CARD, "gt_act_freq_mhz", NULL, DRM_NUMBER, 1e6, 1e5 },
	{ GW_Q_CLOCK_GRAPHICS, DRM_CARD, "gt/gt0/rps_act_freq_mhz", NULL, DRM_NUMBER, 1e6,
	  1e5 },
	{ GW_Q_CLOCK_GRAPHICS, DRM_PCI, "tile0/gt0/freq0/act_freq", NULL, DRM_NUMBER, 1e6,
	  1e5 },
	/* Rows of the tier SLOW. */
	{ GW_Q_TEMPERATURE_MEMORY, DRM_HWMON, "temp%u_input", "vram", DRM_NUMBER, 1e-3, 250e3 },
	/* Rows of the tier ENERGY. xe labels the counter of the whole board "card". Arc A
	 * boards have only the counter of the package: with xe it has the label "pkg", with
	 * i915 it has no label. */
	{ GW_Q_ENERGY, DRM_HWMON, "energy%u_input", "card", DRM_COUNTER, 1e-6, 0 },
	{ GW_Q_ENERGY, DRM_HWMON, "energy%u_input", "pkg", DRM_COUNTER, 1e-6, 0 },
	{ GW_Q_ENERGY, DRM_HWMON, "energy1_input", NULL, DRM_NONZERO, 1e-6, 0 },
	/* Rows of the tier HEALTH. The sustained limit (max) is used; the limit for bursts
	 * (cap) is used only if max is missing. */
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power1_max", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power%u_max", "pkg", DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power1_cap", NULL, DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_POWER_LIMIT, DRM_HWMON, "power%u_cap", "pkg", DRM_NONZERO, 1e-6, 1e10 },
	{ GW_Q_FAN_SPEED_RPM, DRM_HWMON, "fan1_input", NULL, DRM_NUMBER, 1, 1e5 },
	{ GW_Q_PCIE_GENERATION, DRM_LINK, "current_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH, DRM_LINK, "current_link_width", NULL, DRM_NONZERO, 1, 64 },
	/* Rows of the tier STATIC. */
	{ GW_Q_POWER_LIMIT_DEFAULT, DRM_HWMON, "power1_rated_max", NULL, DRM_NONZERO, 1e-6,
	  1e10 },
	{ GW_Q_POWER_LIMIT_DEFAULT, DRM_HWMON, "power%u_rated_max", "pkg", DRM_NONZERO, 1e-6,
	  1e10 },
	{ GW_Q_CLOCK_SM_MAX, DRM_CARD, "gt_RP0_freq_mhz", NULL, DRM_NUMBER, 1e6, 1e5 },
	{ GW_Q_CLOCK_SM_MAX, DRM_PCI, "tile0/gt0/freq0/rp0_freq", NULL, DRM_NUMBER, 1e6, 1e5 },
	{ GW_Q_PCIE_GENERATION_MAX, DRM_LINK, "max_link_speed", NULL, DRM_SPEED, 1, 0 },
	{ GW_Q_PCIE_WIDTH_MAX, DRM_LINK, "max_link_width", NULL, DRM_NONZERO, 1, 64 },
	{ GW_Q_TEMPERATURE_SLOWDOWN, DRM_HWMON, "temp%u_crit", "pkg", DRM_NONZERO, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_SHUTDOWN, DRM_HWMON, "temp%u_emergency", "pkg", DRM_NONZERO, 1e-3,
	  250e3 },
	{ GW_Q_TEMPERATURE_MEMORY_MAX, DRM_HWMON, "temp%u_crit", "vram", DRM_NONZERO, 1e-3,
	  250e3 },
	{ 0 },
};

static const struct drm_text texts[] = { { 0 } };

static const struct drm_name names[] = {
	{ 0x56a0, "Intel Arc A770" },
	{ 0x56a1, "Intel Arc A750" },
	{ 0x56a2, "Intel Arc A580" },
	{ 0x56a5, "Intel Arc A380" },
	{ 0x56a6, "Intel Arc A310" },
	{ 0x5690, "Intel Arc A770M" },
	{ 0x56c0, "Intel Data Center GPU Flex 170" },
	{ 0x56c1, "Intel Data Center GPU Flex 140" },
	{ 0x0bd5, "Intel Data Center GPU Max 1550" },
	{ 0x0bda, "Intel Data Center GPU Max 1100" },
	{ 0xe20b, "Intel Arc B580" },
	{ 0xe20c, "Intel Arc B570" },
	{ 0xe223, "Intel Graphics (Battlemage G31)" },
	{ 0x64a0, "Intel Arc Graphics 130V/140V (Lunar Lake)" },
	{ 0x9a49, "Intel Iris Xe Graphics (Tiger Lake)" },
	{ 0x46a6, "Intel Iris Xe Graphics (Alder Lake)" },
	{ 0x4680, "Intel UHD Graphics 770 (Alder Lake)" },
	{ 0xa780, "Intel UHD Graphics 770 (Raptor Lake)" },
	{ 0x7d55, "Intel Arc Graphics (Meteor Lake)" },
	{ 0 },
};

/* If the time between the readings were shorter than this, the computed power would depend
 * mostly on the step size of the counter. */
#define POWER_MIN_NS (10 * NS_PER_MS)

/* Computes the mean power since the previous reading. */
static void derive_power(struct device *d)
{
	struct drm_device *dd = d->priv;
	uint64_t now = clock_mono_ns(d->backend->env->clock);
	double energy_j;
	long err = drm_read_quantity(d, GW_Q_ENERGY, &energy_j);

	if (err < 0) {
		report_miss(&d->r, GW_Q_POWER, drm_absence(err));
		return;
	}
	report_miss(&d->r, GW_Q_POWER, GW_ABSENT_FIRST_READING);
	if (dd->energy_ns && now - dd->energy_ns < POWER_MIN_NS)
		return;
	/* A smaller value means that the driver was reset or the counter wrapped. */
	if (dd->energy_ns && energy_j >= dd->energy_j)
		report_set(&d->r, GW_Q_POWER,
			   (energy_j - dd->energy_j) * 1e9 / (double)(now - dd->energy_ns));
	dd->energy_j = energy_j;
	dd->energy_ns = now;
}

/* PCI device ids of the upstream ports of the PCIe switches on the boards: 4fa0 on Arc A750,
 * e2ff on Battlemage. 4fa1 (other Arc A boards) has not been verified on a board. */
static const uint32_t switches[] = { 0x4fa0, 0x4fa1, 0xe2ff, 0 };

static const char *const drivers[] = { "i915", "xe", NULL };

static const struct drm_vendor intel = {
	.vendor = PCI_VENDOR_INTEL,
	.brand = "Intel",
	.driver = drivers,
	.row = rows,
	.text = texts,
	.name = names,
	.derived_memory = GW_Q_MEMORY_USED,
	.board_switch = switches,
	.derive = derive_power,
	.use_from_clients = true,
};

DRM_BACKEND(intel, GW_VENDOR_INTEL, &intel, rows);
