/* The NVML calls that read the values of a device. */
#include <math.h>
#include <string.h>

#include "abi.h"

#include "base/clock.h"

#define HAS(trait) (c->d->p.traits & (trait))

/* The time over which the driver computes utilisation. */
#define UTILIZATION_NS NS_PER_S

static double device_milliwatts(struct device *d)
{
	sensor_refresh(&d->sensor, &d->history, d->now_ns);
	return 1e3 * (d->sensor.p.power_is_instant ? d->sensor.instant_w : d->sensor.average_w);
}

static double fan_percent(const struct device *d)
{
	double celsius = history_celsius(&d->history, d->now_ns);

	return celsius < 50 ? 0 : fmin(30 + (celsius - 50) * 2, 100);
}

static double pcie_generation(const struct device *d)
{
	/* Idle consumer cards reduce their link speed. */
	return device_pstate(d) >= 8 ? 1 : d->p.pcie_generation;
}

/* Returns the speed of one lane in MT/s. */
static double pcie_megabits(double generation)
{
	return generation < 3 ? 2500 * generation : 8000 * exp2(generation - 3);
}

#define LIMITS !HAS(TRAIT_NO_LIMIT)

U32_CALL(nvmlDeviceGetIndex, true, c->d->id.index)
U32_CALL(nvmlDeviceGetMinorNumber, true, c->d->id.minor)
U32_CALL(nvmlDeviceGetArchitecture, true, c->d->p.chip.architecture)
U32_CALL(nvmlDeviceGetNumGpuCores, true, c->d->p.chip.cores)
U32_CALL(nvmlDeviceGetBrand, true, HAS(TRAIT_ECC) ? 14 : 5)
U32_CALL(nvmlDeviceGetVirtualizationMode, true, c->d->p.virtualization)
U32_CALL(nvmlDeviceGetPersistenceMode, true, c->d->set.persistence)
U32_CALL(nvmlDeviceGetComputeMode, true, c->d->set.compute_mode)
U32_CALL(nvmlDeviceGetDisplayActive, true, HAS(TRAIT_DISPLAY) != 0)
U32_CALL(nvmlDeviceGetDisplayMode, true, HAS(TRAIT_DISPLAY) != 0)
U32_CALL(nvmlDeviceGetPowerUsage, true, device_milliwatts(c->d))
U32_CALL(nvmlDeviceGetEnforcedPowerLimit, LIMITS, c->d->set.limit_w * 1e3)
U32_CALL(nvmlDeviceGetPowerManagementLimit, LIMITS, c->d->set.limit_w * 1e3)
U32_CALL(nvmlDeviceGetPowerManagementDefaultLimit, LIMITS, c->d->p.limit.default_w * 1e3)
U32_CALL(nvmlDeviceGetPowerManagementMode, LIMITS, 1)
U32_CALL(nvmlDeviceGetPerformanceState, true, device_pstate(c->d))
U32_CALL(nvmlDeviceGetPowerState, true, device_pstate(c->d))
U32_CALL(nvmlDeviceGetNumFans, c->d->p.fans != 0, c->d->p.fans)
U32_CALL(nvmlDeviceGetFanSpeed, c->d->p.fans != 0, fan_percent(c->d))
U32_CALL(nvmlDeviceGetCurrPcieLinkGeneration, true, pcie_generation(c->d))
U32_CALL(nvmlDeviceGetCurrPcieLinkWidth, true, c->d->p.pcie_width)
U32_CALL(nvmlDeviceGetMaxPcieLinkGeneration, true, c->d->p.pcie_generation)
U32_CALL(nvmlDeviceGetMaxPcieLinkWidth, true, c->d->p.pcie_width)
U32_CALL(nvmlDeviceGetGpuMaxPcieLinkGeneration, true, c->d->p.pcie_generation)
U32_CALL(nvmlDeviceGetPcieSpeed, true, pcie_megabits(pcie_generation(c->d)))
/* NVML's number for a link speed is the PCIe generation that has this speed. */
U32_CALL(nvmlDeviceGetPcieLinkMaxSpeed, true, c->d->p.pcie_generation)
U32_CALL(nvmlDeviceGetBoardId, true, c->d->id.bus << 8)
U32_CALL(nvmlDeviceGetMultiGpuBoard, true, 0)
U32_CALL(nvmlDeviceGetBusType, true, 2)     /* PCI Express */
U32_CALL(nvmlDeviceGetPowerSource, true, 0) /* AC power, no battery */
U32_CALL(nvmlDeviceGetDefaultEccMode, HAS(TRAIT_ECC), 1)
U32_CALL(nvmlDeviceGetPcieReplayCounter, true, c->d->errors.replays)
U32_CALL(nvmlDeviceGetRetiredPagesPendingStatus, HAS(TRAIT_ECC) && !HAS(TRAIT_ROWS), 0)
U32_CALL(nvmlDeviceGetMaxMigDeviceCount, true, HAS(TRAIT_MIG) ? 7 : 0)
U32_CALL(nvmlDeviceGetGpuInstanceId, c->mig != NULL, c->mig->gpu_instance)
U32_CALL(nvmlDeviceGetComputeInstanceId, c->mig != NULL, c->mig->compute_instance)
U32_CALL(nvmlDeviceIsMigDeviceHandle, true, c->mig != NULL)
U32_CALL(nvmlDeviceGetAccountingMode, true, c->d->set.accounting)
U32_CALL(nvmlDeviceGetAccountingBufferSize, true, 4000)

#define REASONS                                                                      \
	(ABI_REASON_IDLE | ABI_REASON_APPLICATION_CLOCKS | ABI_REASON_SW_POWER_CAP | \
	 ABI_REASON_HW_SLOWDOWN | ABI_REASON_SYNC_BOOST | ABI_REASON_SW_THERMAL |    \
	 ABI_REASON_HW_THERMAL | ABI_REASON_POWER_BRAKE | ABI_REASON_DISPLAY)

U64_CALL(nvmlDeviceGetTotalEnergyConsumption, !c->d->sensor.p.no_counter,
	 device_counter_mj(c->d))
U64_CALL(nvmlDeviceGetCurrentClocksEventReasons, true, c->d->control.reasons)
U64_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, true, c->d->control.reasons)
U64_CALL(nvmlDeviceGetSupportedClocksEventReasons, true, REASONS)
U64_CALL(nvmlDeviceGetSupportedClocksThrottleReasons, true, REASONS)
U64_CALL(nvmlDeviceGetSupportedEventTypes, true, HAS(TRAIT_ROWS) ? 0xFF9F : 0x1F)

PAIR_CALL(nvmlDeviceGetPowerManagementLimitConstraints, uint32_t, LIMITS,
	  c->d->p.limit.min_w * 1e3, c->d->p.limit.max_w * 1e3)

/* True if the caller has no permission to read the memory of the whole board: in MIG mode, only
 * privileged callers have this permission. */
static bool is_forbidden(const struct ctx *c)
{
	return c->d->mig_enabled && c->mig == NULL && !c->w->privileged;
}

DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, (struct abi_memory_v2 * out), out)
{
	uint64_t total, reserved;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (out->version != ABI_TAG(struct abi_memory_v2, 2))
		return ABI_ARGUMENT_VERSION_MISMATCH;
	if (HAS(TRAIT_SHARED_MEMORY) || is_forbidden(c))
		return HAS(TRAIT_SHARED_MEMORY) ? ABI_NOT_SUPPORTED : ABI_NO_PERMISSION;
	total = c->mig != NULL ? c->mig->bytes : device_total_bytes(c->d);
	reserved = c->mig != NULL ? 0 : device_reserved_bytes(c->d);
	out->used = abi_u64(c, device_used_bytes(c->d, c->mig));
	out->total = abi_u64(c, total);
	out->reserved = abi_u64(c, reserved);
	out->free = abi_u64(c, total - reserved - out->used);
	return ABI_SUCCESS;
}

/* Version 1 counts reserved memory as used. */
DEVICE_CALL(nvmlDeviceGetMemoryInfo, (struct abi_memory * out), out)
{
	uint64_t total, used;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (HAS(TRAIT_SHARED_MEMORY) || is_forbidden(c))
		return HAS(TRAIT_SHARED_MEMORY) ? ABI_NOT_SUPPORTED : ABI_NO_PERMISSION;
	total = c->mig != NULL ? c->mig->bytes : device_total_bytes(c->d);
	used = device_used_bytes(c->d, c->mig) +
	       (c->mig != NULL ? 0 : device_reserved_bytes(c->d));
	*out = (struct abi_memory){ abi_u64(c, total), abi_u64(c, total - used),
				    abi_u64(c, used) };
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetBAR1MemoryInfo, (struct abi_bar1 * out), out)
{
	uint64_t total;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (c->d->p.bar1_mib == 0)
		return ABI_NOT_SUPPORTED;
	/* An instance's share of the BAR is the same as its share of the memory. */
	total = c->mig == NULL ? c->d->p.bar1_mib << 20
			       : (c->d->p.bar1_mib << 20) / 8 * c->mig->slices;
	*out = (struct abi_bar1){ abi_u64(c, total), abi_u64(c, total - (UINT64_C(1) << 20)),
				  abi_u64(c, UINT64_C(1) << 20) };
	return ABI_SUCCESS;
}

static double clock_mhz(const struct device *d, uint32_t kind)
{
	double sm = history_at(&d->history, d->now_ns)->clock;

	if (kind == ABI_CLOCK_MEMORY)
		return d->p.mhz.memory > 0 ? device_memory_mhz(d) : (double)NAN;
	return kind == ABI_CLOCK_VIDEO ? sm * d->p.mhz.video / d->p.mhz.sm : sm;
}

static double max_clock_mhz(const struct device *d, uint32_t kind)
{
	if (kind == ABI_CLOCK_MEMORY)
		return d->p.mhz.memory > 0 ? d->p.mhz.memory : (double)NAN;
	return kind == ABI_CLOCK_VIDEO ? d->p.mhz.video : d->p.mhz.sm;
}

/* Returns the application clock; NAN on GeForce cards, which have none. */
static double given_clock_mhz(const struct device *d, uint32_t kind)
{
	return d->p.traits & TRAIT_ECC ? max_clock_mhz(d, kind) : (double)NAN;
}

/* Only Windows has driver models. */
#define MODEL_CALL(symbol)                                                              \
	DEVICE_CALL(symbol, (uint32_t * current, uint32_t * pending), current, pending) \
	{                                                                               \
		return current == NULL && pending == NULL ? ABI_INVALID_ARGUMENT        \
							  : ABI_NOT_SUPPORTED;          \
	}
MODEL_CALL(nvmlDeviceGetDriverModel)
MODEL_CALL(nvmlDeviceGetDriverModel_v2)

/* Lists the clocks from `most` down to `least`, in steps of 15 MHz as on an H200. */
static abi_return list_clocks(double most, double least, uint32_t *count, uint32_t *mhz)
{
	const double step = 15;
	const uint32_t n = (uint32_t)((most - least) / step) + 1, room = *count;

	*count = n;
	if (mhz == NULL || room < n)
		return ABI_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; i < n; i++)
		mhz[i] = (uint32_t)(most - step * i);
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetSupportedMemoryClocks, (uint32_t * count, uint32_t *mhz), count, mhz)
{
	const double only = c->d->p.mhz.memory;

	if (count == NULL)
		return ABI_INVALID_ARGUMENT;
	return only > 0 ? list_clocks(only, only, count, mhz) : ABI_NOT_SUPPORTED;
}

DEVICE_CALL(nvmlDeviceGetSupportedGraphicsClocks,
	    (uint32_t memory_mhz, uint32_t *count, uint32_t *mhz), memory_mhz, count, mhz)
{
	if (count == NULL)
		return ABI_INVALID_ARGUMENT;
	if (!(c->d->p.mhz.memory > 0))
		return ABI_NOT_SUPPORTED;
	if (memory_mhz != (uint32_t)c->d->p.mhz.memory)
		return ABI_NOT_FOUND;
	return list_clocks(c->d->p.mhz.sm, 345, count, mhz);
}

static double die_c(const struct device *d, uint32_t kind)
{
	(void)kind;
	return floor(history_celsius(&d->history, d->now_ns));
}

static double threshold_c(const struct device *d, uint32_t kind)
{
	int celsius[8] = { d->p.heat.shutdown_c, d->p.heat.slowdown_c, d->p.heat.memory_max_c,
			   d->p.heat.gpu_max_c };

	return celsius[kind] != 0 ? celsius[kind] : (double)NAN;
}

static double fan_of(const struct device *d, uint32_t kind)
{
	return kind < d->p.fans ? fan_percent(d) : (double)NAN;
}

/* Returns the PCIe throughput in KB/s; an idle device has about 1 MB/s. */
static double pcie_kb(const struct device *d, uint32_t kind)
{
	return 900 + (kind == 0 ? 2.0e5 : 1.4e6) *
			     history_mean_load(&d->history, d->now_ns, 20000000);
}

static double encoder_capacity(const struct device *d, uint32_t kind)
{
	(void)d;
	(void)kind;
	return 100;
}

/* Answers a call that returns one number for a `kind`. Returns code 2 (invalid argument) unless
 * kind is below `limit`, and code 3 (not supported) if value() returns NAN. */
static abi_return by_kind(const struct ctx *c, uint32_t kind, uint32_t limit, uint32_t *out,
			  double (*value)(const struct device *d, uint32_t kind))
{
	double v;

	if (out == NULL || kind >= limit)
		return ABI_INVALID_ARGUMENT;
	v = value(c->d, kind);
	if (isnan(v))
		return ABI_NOT_SUPPORTED;
	*out = abi_u32(c, v);
	return ABI_SUCCESS;
}

#define KIND_CALL(symbol, limit, value)                                 \
	DEVICE_CALL(symbol, (uint32_t kind, uint32_t * out), kind, out) \
	{                                                               \
		return by_kind(c, kind, limit, out, value);             \
	}
KIND_CALL(nvmlDeviceGetClockInfo, 4, clock_mhz)
KIND_CALL(nvmlDeviceGetMaxClockInfo, 4, max_clock_mhz)
KIND_CALL(nvmlDeviceGetApplicationsClock, 4, given_clock_mhz)
KIND_CALL(nvmlDeviceGetTemperature, 1, die_c)
KIND_CALL(nvmlDeviceGetTemperatureThreshold, 8, threshold_c)
KIND_CALL(nvmlDeviceGetFanSpeed_v2, 16, fan_of)
KIND_CALL(nvmlDeviceGetPcieThroughput, 2, pcie_kb)
KIND_CALL(nvmlDeviceGetDefaultApplicationsClock, 4, given_clock_mhz)
KIND_CALL(nvmlDeviceGetMaxCustomerBoostClock, 4, given_clock_mhz)
KIND_CALL(nvmlDeviceGetTargetFanSpeed, 16, fan_of)
KIND_CALL(nvmlDeviceGetEncoderCapacity, 3, encoder_capacity)

/* `which` selects the clock: 0 the current one, 1 the application clock, 2 its default, 3 the
 * maximum. */
DEVICE_CALL(nvmlDeviceGetClock, (uint32_t kind, uint32_t which, uint32_t *out), kind, which,
	    out)
{
	return which > 3 ? ABI_INVALID_ARGUMENT
			 : by_kind(c, kind, 4, out, which == 0 ? clock_mhz : given_clock_mhz);
}

PAIR_CALL(nvmlDeviceGetMinMaxFanSpeed, uint32_t, c->d->p.fans != 0, 30, 100)

/* No simulated process has an encoder session or captures a screen. */
DEVICE_CALL(nvmlDeviceGetEncoderStats,
	    (uint32_t * sessions, uint32_t *average_fps, uint32_t *average_latency), sessions,
	    average_fps, average_latency)
{
	if (!sessions || !average_fps || !average_latency)
		return ABI_INVALID_ARGUMENT;
	*sessions = *average_fps = *average_latency = abi_u32(c, 0);
	return ABI_SUCCESS;
}

STRUCT_CALL(nvmlDeviceGetFBCStats, struct abi_capture, true, abi_u32(c, 0), abi_u32(c, 0),
	    abi_u32(c, 0))

#define NO_SESSIONS_CALL(symbol)                                                 \
	DEVICE_CALL(symbol, (uint32_t * count, void *sessions), count, sessions) \
	{                                                                        \
		(void)sessions;                                                  \
		if (count == NULL)                                               \
			return ABI_INVALID_ARGUMENT;                             \
		*count = 0;                                                      \
		return ABI_SUCCESS;                                              \
	}
NO_SESSIONS_CALL(nvmlDeviceGetEncoderSessions)
NO_SESSIONS_CALL(nvmlDeviceGetFBCSessions)

/* Defines a call that fills a struct that starts with a version tag. */
#define TAGGED_CALL(symbol, type, number, can, fill)          \
	DEVICE_CALL(symbol, (type * out), out)                \
	{                                                     \
		if (out == NULL)                              \
			return ABI_INVALID_ARGUMENT;          \
		if (out->version != ABI_TAG(type, number))    \
			return ABI_ARGUMENT_VERSION_MISMATCH; \
		if (!(can))                                   \
			return ABI_NOT_SUPPORTED;             \
		fill;                                         \
		return ABI_SUCCESS;                           \
	}

static void fill_sram_status(const struct ctx *c, struct abi_sram_status *out)
{
	for (size_t i = 0; i < sizeof(out->counter) / sizeof(out->counter[0]); i++)
		out->counter[i] = abi_u64(c, 0);
	out->threshold_exceeded = abi_u32(c, 0);
}

TAGGED_CALL(nvmlDeviceGetTemperatureV, struct abi_temperature, 1, out->sensor == 0,
	    out->celsius = (int32_t)abi_u32(c, die_c(c->d, 0)))
TAGGED_CALL(nvmlDeviceGetMarginTemperature, struct abi_margin, 1, HAS(TRAIT_TLIMIT),
	    out->celsius = (int32_t)abi_u64(c, (uint64_t)(c->d->p.heat.gpu_max_c -
							  (int32_t)die_c(c->d, 0))))
TAGGED_CALL(nvmlDeviceGetFanSpeedRPM, struct abi_fan_rpm, 1, out->fan < c->d->p.fans,
	    out->rpm = abi_u32(c, fan_percent(c->d) * 30))
TAGGED_CALL(nvmlDeviceGetRepairStatus, struct abi_repair, 1, HAS(TRAIT_ROWS),
	    (out->channel = abi_u32(c, 0), out->tpc = abi_u32(c, 0)))
TAGGED_CALL(nvmlDeviceGetSramEccErrorStatus, struct abi_sram_status, 1, HAS(TRAIT_ROWS),
	    fill_sram_status(c, out))

DEVICE_CALL(nvmlDeviceGetUtilizationRates, (struct abi_utilization * out), out)
{
	double share;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	share = history_mean_load(&c->d->history, c->d->now_ns, UTILIZATION_NS);
	out->gpu = abi_u32(c, 100 * share);
	out->memory = abi_u32(c, 55 * share);
	return ABI_SUCCESS;
}

static abi_return engine_utilization(const struct ctx *c, uint32_t *percent,
				     uint32_t *period_us, size_t member)
{
	double sum = 0, share;

	if (percent == NULL || period_us == NULL)
		return ABI_INVALID_ARGUMENT;
	if (c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	for (size_t i = 0; member != 0 && i < c->d->n_processes; i++)
		if (process_alive(&c->d->processes[i], c->d->now_ns)) {
			memcpy(&share, (const char *)&c->d->processes[i] + member,
			       sizeof(share));
			sum += share;
		}
	*percent = abi_u32(c, fmin(100 * sum, 100));
	*period_us = 167000;
	return ABI_SUCCESS;
}

#define ENGINE_CALL(symbol, member)                                                         \
	DEVICE_CALL(symbol, (uint32_t * percent, uint32_t * period_us), percent, period_us) \
	{                                                                                   \
		return engine_utilization(c, percent, period_us, member);                   \
	}
ENGINE_CALL(nvmlDeviceGetEncoderUtilization, offsetof(struct process, encoder))
ENGINE_CALL(nvmlDeviceGetDecoderUtilization, offsetof(struct process, decoder))
ENGINE_CALL(nvmlDeviceGetJpgUtilization, 0)
ENGINE_CALL(nvmlDeviceGetOfaUtilization, 0)

PAIR_CALL(nvmlDeviceGetEccMode, uint32_t, HAS(TRAIT_ECC), 1, 1)

static uint64_t ecc_errors(const struct device *d, uint32_t kind, uint32_t counter)
{
	return (kind == 0 ? d->errors.ecc_corrected : d->errors.ecc_uncorrected) -
	       d->errors.ecc_cleared[counter][kind];
}

DEVICE_CALL(nvmlDeviceGetTotalEccErrors, (uint32_t kind, uint32_t counter, uint64_t *out), kind,
	    counter, out)
{
	if (out == NULL || kind > 1 || counter > 1)
		return ABI_INVALID_ARGUMENT;
	if (!HAS(TRAIT_ECC))
		return ABI_NOT_SUPPORTED;
	*out = abi_u64(c, ecc_errors(c->d, kind, counter));
	return ABI_SUCCESS;
}

/* All simulated errors are in the DRAM; the caches have none. */
DEVICE_CALL(nvmlDeviceGetMemoryErrorCounter,
	    (uint32_t kind, uint32_t counter, uint32_t place, uint64_t *out), kind, counter,
	    place, out)
{
	enum { DRAM = 2, SRAM = 7, PLACES };

	if (out == NULL || kind > 1 || counter > 1 || place >= PLACES)
		return ABI_INVALID_ARGUMENT;
	if (!HAS(TRAIT_ECC) || (place != DRAM && place != SRAM))
		return ABI_NOT_SUPPORTED;
	*out = abi_u64(c, place == DRAM ? ecc_errors(c->d, kind, counter) : 0);
	return ABI_SUCCESS;
}

/* Cards that remap rows do not retire pages. On the other cards, no page has been retired. */
static abi_return no_retired_pages(const struct ctx *c, uint32_t cause, uint32_t *count)
{
	if (count == NULL || cause > 1)
		return ABI_INVALID_ARGUMENT;
	if (!HAS(TRAIT_ECC) || HAS(TRAIT_ROWS))
		return ABI_NOT_SUPPORTED;
	*count = 0;
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetRetiredPages, (uint32_t cause, uint32_t *count, uint64_t *addresses),
	    cause, count, addresses)
{
	(void)addresses;
	return no_retired_pages(c, cause, count);
}

DEVICE_CALL(nvmlDeviceGetRetiredPages_v2,
	    (uint32_t cause, uint32_t *count, uint64_t *addresses, uint64_t *times), cause,
	    count, addresses, times)
{
	(void)addresses;
	(void)times;
	return no_retired_pages(c, cause, count);
}

DEVICE_CALL(nvmlDeviceGetRemappedRows,
	    (uint32_t * correctable, uint32_t *uncorrectable, uint32_t *pending,
	     uint32_t *failed),
	    correctable, uncorrectable, pending, failed)
{
	if (!correctable || !uncorrectable || !pending || !failed)
		return ABI_INVALID_ARGUMENT;
	if (!HAS(TRAIT_ROWS) || c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	*correctable = abi_u32(c, 0);
	*uncorrectable = abi_u32(c, c->d->errors.remapped);
	*pending = abi_u32(c, c->d->errors.remap_pending);
	*failed = abi_u32(c, c->d->errors.remap_failed);
	return ABI_SUCCESS;
}

STRUCT_CALL(nvmlDeviceGetRowRemapperHistogram, struct abi_row_histogram, HAS(TRAIT_ROWS),
	    abi_u32(c, 3072 - c->d->errors.remapped), abi_u32(c, c->d->errors.remapped),
	    abi_u32(c, 0), abi_u32(c, 0), abi_u32(c, 0))

DEVICE_CALL(nvmlDeviceGetConfComputeMemSizeInfo, (void *out), out)
{
	(void)out;
	return ABI_NOT_SUPPORTED;
}

STRUCT_CALL(nvmlDeviceGetConfComputeProtectedMemoryUsage, struct abi_memory, true,
	    abi_u64(c, 0), abi_u64(c, 0), abi_u64(c, 0))

DEVICE_CALL(nvmlDeviceGetViolationStatus, (uint32_t kind, struct abi_violation *out), kind, out)
{
	if (out == NULL || kind > 2)
		return ABI_INVALID_ARGUMENT;
	*out = (struct abi_violation){ abi_us(c, c->now_ns), c->d->control.limited_ns[kind] };
	return ABI_SUCCESS;
}
