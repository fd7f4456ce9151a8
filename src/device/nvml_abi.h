/* nvml_abi: our own declarations for the part of NVML's binary interface that we use.
 *
 * The declarations follow NVIDIA's published API (version 13), so that no NVIDIA header is
 * needed to build. The simulator implements these functions and the backend calls them. This
 * file asserts the size of every struct; tests/abi compares the declarations with a real nvml.h
 * if one is installed. */
#ifndef GW_DEVICE_NVML_ABI_H
#define GW_DEVICE_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int abi_return;   /* In nvml.h this is an enum of 4 bytes. */
typedef void *abi_device; /* This type and the next two are opaque handles. */
typedef void *abi_set;
typedef void *abi_gpm_sample;

enum abi_code {
	ABI_SUCCESS = 0,
	ABI_UNINITIALIZED = 1,
	ABI_INVALID_ARGUMENT = 2,
	ABI_NOT_SUPPORTED = 3,
	ABI_NO_PERMISSION = 4,
	ABI_ALREADY_INITIALIZED = 5,
	ABI_NOT_FOUND = 6,
	ABI_INSUFFICIENT_SIZE = 7,
	ABI_INSUFFICIENT_POWER = 8,
	ABI_DRIVER_NOT_LOADED = 9,
	ABI_TIMEOUT = 10,
	ABI_IRQ_ISSUE = 11,
	ABI_LIBRARY_NOT_FOUND = 12,
	ABI_FUNCTION_NOT_FOUND = 13,
	ABI_CORRUPTED_INFOROM = 14,
	ABI_GPU_IS_LOST = 15,
	ABI_RESET_REQUIRED = 16,
	ABI_OPERATING_SYSTEM = 17,
	ABI_VERSION_MISMATCH = 18,
	ABI_IN_USE = 19,
	ABI_MEMORY = 20,
	ABI_NO_DATA = 21,
	ABI_VGPU_ECC_NOT_SUPPORTED = 22,
	ABI_INSUFFICIENT_RESOURCES = 23,
	ABI_FREQ_NOT_SUPPORTED = 24,
	ABI_ARGUMENT_VERSION_MISMATCH = 25,
	ABI_DEPRECATED = 26,
	ABI_NOT_READY = 27,
	ABI_GPU_NOT_FOUND = 28,
	ABI_INVALID_STATE = 29,
	ABI_RESET_TYPE_NOT_SUPPORTED = 30,
	ABI_UNKNOWN = 999,
};

/* Version tag of a struct: its size, and its version number n in the top byte. */
#define ABI_TAG(type, n) ((uint32_t)(sizeof(type) | ((uint32_t)(n) << 24)))

#define ABI_NO_U32 UINT32_MAX
#define ABI_NO_U64 UINT64_MAX

#define ABI_NAME_SIZE    96
#define ABI_UUID_SIZE    96
#define ABI_VERSION_SIZE 80
#define ABI_SERIAL_SIZE  30
#define ABI_VBIOS_SIZE   32
#define ABI_PART_SIZE    80

enum abi_clock { ABI_CLOCK_GRAPHICS, ABI_CLOCK_SM, ABI_CLOCK_MEMORY, ABI_CLOCK_VIDEO };
enum abi_threshold {
	ABI_THRESHOLD_SHUTDOWN,
	ABI_THRESHOLD_SLOWDOWN,
	ABI_THRESHOLD_MEMORY_MAX,
	ABI_THRESHOLD_GPU_MAX,
};
enum abi_sample_type {
	ABI_SAMPLE_POWER = 0,
	ABI_SAMPLE_GPU = 1,
	ABI_SAMPLE_MEMORY = 2,
	ABI_SAMPLE_ENCODER = 3,
	ABI_SAMPLE_DECODER = 4,
	ABI_SAMPLE_SM_CLOCK = 5,
	ABI_SAMPLE_MEMORY_CLOCK = 6,
	ABI_SAMPLE_MODULE_POWER = 7,
	ABI_SAMPLE_JPEG = 8,
	ABI_SAMPLE_OFA = 9,
};
enum abi_value_type {
	ABI_VALUE_DOUBLE,
	ABI_VALUE_U32,
	ABI_VALUE_ULONG,
	ABI_VALUE_U64,
	ABI_VALUE_I64,
	ABI_VALUE_I32,
	ABI_VALUE_U16,
};

/* Field ids of nvmlDeviceGetFieldValues. */
enum abi_field {
	ABI_FIELD_LIMITED_POWER = 74,
	ABI_FIELD_LIMITED_THERMAL = 75,
	ABI_FIELD_LIMITED_SYNC_BOOST = 76,
	ABI_FIELD_MEMORY_TEMPERATURE = 82,
	ABI_FIELD_ENERGY = 83,
	ABI_FIELD_PCIE_REPLAYS = 94,
	ABI_FIELD_PCIE_REPLAY_ROLLOVERS = 95,
	ABI_FIELD_NVLINK_TX = 138,
	ABI_FIELD_NVLINK_RX = 139,
	ABI_FIELD_REMAPPED_CORRECTABLE = 142,
	ABI_FIELD_REMAPPED_UNCORRECTABLE = 143,
	ABI_FIELD_REMAPPED_PENDING = 144,
	ABI_FIELD_REMAPPED_FAILURE = 145,
	ABI_FIELD_POWER_AVERAGE = 185,
	ABI_FIELD_POWER_INSTANT = 186,
	ABI_FIELD_POWER_MIN = 187,
	ABI_FIELD_POWER_MAX = 188,
	ABI_FIELD_POWER_DEFAULT = 189,
	ABI_FIELD_POWER_ENFORCED = 190,
	ABI_FIELD_ENERGY_2 = 191,
	ABI_FIELD_POWER_REQUESTED = 192,
	ABI_FIELD_TLIMIT_SHUTDOWN = 193,
	ABI_FIELD_TLIMIT_SLOWDOWN = 194,
	ABI_FIELD_TLIMIT_MEMORY_MAX = 195,
	ABI_FIELD_TLIMIT_GPU_MAX = 196,
	ABI_FIELD_PCIE_SENT = 197,
	ABI_FIELD_PCIE_RECEIVED = 198,
	ABI_FIELD_RECOVERY_ACTION = 230,
	ABI_FIELD_LIMITED_THERMAL_SOFTWARE = 269,
	ABI_FIELD_LIMITED_THERMAL_HARDWARE = 270,
	ABI_FIELD_LIMITED_POWER_BRAKE = 271,
};
enum abi_power_scope { ABI_SCOPE_GPU, ABI_SCOPE_MODULE, ABI_SCOPE_MEMORY };

enum abi_reason {
	ABI_REASON_IDLE = 0x1,
	ABI_REASON_APPLICATION_CLOCKS = 0x2,
	ABI_REASON_SW_POWER_CAP = 0x4,
	ABI_REASON_HW_SLOWDOWN = 0x8,
	ABI_REASON_SYNC_BOOST = 0x10,
	ABI_REASON_SW_THERMAL = 0x20,
	ABI_REASON_HW_THERMAL = 0x40,
	ABI_REASON_POWER_BRAKE = 0x80,
	ABI_REASON_DISPLAY = 0x100,
};

enum abi_event {
	ABI_EVENT_ECC_SINGLE = 0x1,
	ABI_EVENT_ECC_DOUBLE = 0x2,
	ABI_EVENT_PSTATE = 0x4,
	ABI_EVENT_XID = 0x8,
	ABI_EVENT_CLOCK = 0x10,
	ABI_EVENT_POWER_SOURCE = 0x80,
	ABI_EVENT_MIG_CHANGE = 0x100,
	ABI_EVENT_ECC_STORM = 0x200,
	ABI_EVENT_DRAM_RETIRED = 0x400,
	ABI_EVENT_DRAM_RETIRE_FAILED = 0x800,
	ABI_EVENT_POISON = 0x1000,
	ABI_EVENT_POISON_FATAL = 0x2000,
	ABI_EVENT_GPU_UNAVAILABLE = 0x4000,
	ABI_EVENT_RECOVERY_ACTION = 0x8000,
};

enum abi_gpm_metric {
	ABI_GPM_GRAPHICS = 1,
	ABI_GPM_SM_ACTIVE = 2,
	ABI_GPM_SM_OCCUPANCY = 3,
	ABI_GPM_TENSOR = 5,
	ABI_GPM_DRAM = 10,
	ABI_GPM_FP64 = 11,
	ABI_GPM_FP32 = 12,
	ABI_GPM_FP16 = 13,
};
#define ABI_GPM_METRICS_MAX 210

struct abi_pci {
	char bus_id_legacy[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};
/* Versions 1 and 2 of struct abi_pci. They end after `reserved`, so they are shorter than
 * version 3. */
struct abi_pci_v2 {
	char bus_id[16];
	uint32_t domain, bus, device, device_id, subsystem_id, reserved[4];
};
struct abi_pci_ext {
	uint32_t version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
	char bus_id[32];
};
struct abi_capture {
	uint32_t sessions, average_fps, average_latency;
};
struct abi_memory {
	uint64_t total, free, used;
};
struct abi_memory_v2 {
	uint32_t version;
	uint64_t total, reserved, free, used;
};
struct abi_bar1 {
	uint64_t total, free, used;
};
struct abi_utilization {
	uint32_t gpu, memory;
};
union abi_value {
	double d;
	uint32_t u32;
	unsigned long ul;
	uint64_t u64;
	int64_t i64;
	int32_t i32;
	uint16_t u16;
};
struct abi_field_value {
	uint32_t field, scope;
	int64_t timestamp_us, latency_us;
	int32_t type;
	abi_return code;
	union abi_value value;
};
struct abi_sample {
	uint64_t timestamp_us;
	union abi_value value;
};
struct abi_process_v1 {
	uint32_t pid;
	uint64_t memory;
};
/* The _v2 calls fill this struct, and on most drivers the _v3 calls do, too. */
struct abi_process_v2 {
	uint32_t pid;
	uint64_t memory;
	uint32_t gpu_instance, compute_instance;
};
struct abi_process_detail {
	uint32_t pid;
	uint64_t memory;
	uint32_t gpu_instance, compute_instance;
	uint64_t protected_memory;
};
struct abi_process_detail_list {
	uint32_t version, mode, count;
	struct abi_process_detail *processes;
};
struct abi_process_utilization {
	uint32_t pid;
	uint64_t timestamp_us;
	uint32_t sm, memory, encoder, decoder;
};
struct abi_event_data {
	abi_device device;
	uint64_t type, data;
	uint32_t gpu_instance, compute_instance;
};
struct abi_temperature {
	uint32_t version, sensor;
	int32_t celsius;
};
struct abi_margin {
	uint32_t version;
	int32_t celsius;
};
struct abi_fan_rpm {
	uint32_t version, fan, rpm;
};
struct abi_repair {
	uint32_t version, channel, tpc;
};
struct abi_sram_status {
	uint32_t version;
	uint64_t counter[11];
	uint32_t threshold_exceeded;
};
struct abi_gpm_support {
	uint32_t version, supported;
};
struct abi_gpm_metric_value {
	uint32_t id;
	abi_return code;
	double value;
	const char *short_name, *long_name, *unit;
};
struct abi_gpm_metrics {
	uint32_t version, count;
	abi_gpm_sample first, second;
	struct abi_gpm_metric_value metric[ABI_GPM_METRICS_MAX];
};
struct abi_power_value_v2 {
	uint32_t version;
	uint8_t scope;
	uint32_t milliwatts;
};
struct abi_row_histogram {
	uint32_t max, high, partial, low, none;
};
struct abi_mig_attributes { /* nvmlDeviceAttributes_t */
	uint32_t multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
	uint32_t gpu_instance_slices, compute_instance_slices;
	uint64_t memory_mb;
};
struct abi_accounting {
	uint32_t gpu_utilization, memory_utilization;
	uint64_t max_memory, time_ms, start_us;
	uint32_t running, reserved[5];
};

#define ABI_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " is " #size " bytes")
#define ABI_AT(type, member, at) \
	_Static_assert(offsetof(type, member) == (at), #type "." #member " is at " #at)
ABI_SIZE(struct abi_pci, 68);
ABI_AT(struct abi_pci, bus_id, 36);
ABI_SIZE(struct abi_pci_v2, 52);
ABI_SIZE(struct abi_pci_ext, 64);
ABI_SIZE(struct abi_memory, 24);
ABI_SIZE(struct abi_memory_v2, 40);
ABI_AT(struct abi_memory_v2, total, 8);
ABI_SIZE(struct abi_bar1, 24);
ABI_SIZE(struct abi_utilization, 8);
ABI_SIZE(union abi_value, 8);
ABI_SIZE(struct abi_field_value, 40);
ABI_AT(struct abi_field_value, timestamp_us, 8);
ABI_AT(struct abi_field_value, code, 28);
ABI_AT(struct abi_field_value, value, 32);
ABI_SIZE(struct abi_sample, 16);
ABI_SIZE(struct abi_process_v1, 16);
ABI_SIZE(struct abi_process_v2, 24);
ABI_SIZE(struct abi_process_detail, 32);
ABI_SIZE(struct abi_process_detail_list, 24);
ABI_AT(struct abi_process_detail_list, processes, 16);
ABI_SIZE(struct abi_process_utilization, 32);
ABI_AT(struct abi_process_utilization, timestamp_us, 8);
ABI_AT(struct abi_process_utilization, sm, 16);
ABI_AT(struct abi_process_utilization, decoder, 28);
ABI_SIZE(struct abi_event_data, 32);
ABI_SIZE(struct abi_temperature, 12);
ABI_SIZE(struct abi_margin, 8);
ABI_SIZE(struct abi_fan_rpm, 12);
ABI_SIZE(struct abi_repair, 12);
ABI_SIZE(struct abi_sram_status, 104);
ABI_AT(struct abi_sram_status, threshold_exceeded, 96);
ABI_SIZE(struct abi_gpm_support, 8);
ABI_SIZE(struct abi_gpm_metric_value, 40);
ABI_SIZE(struct abi_gpm_metrics, 8424);
ABI_SIZE(struct abi_power_value_v2, 12);
ABI_SIZE(struct abi_row_histogram, 20);
ABI_SIZE(struct abi_mig_attributes, 40);
ABI_SIZE(struct abi_accounting, 56);

/* Lists every call that we use or plan to use, as N(name in our table, symbol, arguments); all
 * of them return abi_return. The backend makes function pointers from this list, and the
 * simulator makes functions. If a call has an older version, both are listed, newest first. In
 * addition there is const char *nvmlErrorString(abi_return). */
#define NVML_CALLS(N)                                                                         \
	N(init, nvmlInit_v2, (void))                                                          \
	N(shutdown, nvmlShutdown, (void))                                                     \
	N(driver_version, nvmlSystemGetDriverVersion, (char *, uint32_t))                     \
	N(nvml_version, nvmlSystemGetNVMLVersion, (char *, uint32_t))                         \
	N(cuda_version, nvmlSystemGetCudaDriverVersion, (int *))                              \
	N(count, nvmlDeviceGetCount_v2, (uint32_t *))                                         \
	N(by_index, nvmlDeviceGetHandleByIndex_v2, (uint32_t, abi_device *))                  \
	N(by_uuid, nvmlDeviceGetHandleByUUID, (const char *, abi_device *))                   \
	N(name, nvmlDeviceGetName, (abi_device, char *, uint32_t))                            \
	N(uuid, nvmlDeviceGetUUID, (abi_device, char *, uint32_t))                            \
	N(serial, nvmlDeviceGetSerial, (abi_device, char *, uint32_t))                        \
	N(vbios, nvmlDeviceGetVbiosVersion, (abi_device, char *, uint32_t))                   \
	N(part_number, nvmlDeviceGetBoardPartNumber, (abi_device, char *, uint32_t))          \
	N(pci, nvmlDeviceGetPciInfo_v3, (abi_device, struct abi_pci *))                       \
	N(minor, nvmlDeviceGetMinorNumber, (abi_device, uint32_t *))                          \
	N(architecture, nvmlDeviceGetArchitecture, (abi_device, uint32_t *))                  \
	N(cores, nvmlDeviceGetNumGpuCores, (abi_device, uint32_t *))                          \
	N(capability, nvmlDeviceGetCudaComputeCapability, (abi_device, int *, int *))         \
	N(virtualization, nvmlDeviceGetVirtualizationMode, (abi_device, uint32_t *))          \
	N(persistence, nvmlDeviceGetPersistenceMode, (abi_device, uint32_t *))                \
	N(compute_mode, nvmlDeviceGetComputeMode, (abi_device, uint32_t *))                   \
	N(display_active, nvmlDeviceGetDisplayActive, (abi_device, uint32_t *))               \
	N(memory_v2, nvmlDeviceGetMemoryInfo_v2, (abi_device, struct abi_memory_v2 *))        \
	N(memory, nvmlDeviceGetMemoryInfo, (abi_device, struct abi_memory *))                 \
	N(bar1, nvmlDeviceGetBAR1MemoryInfo, (abi_device, struct abi_bar1 *))                 \
	N(power, nvmlDeviceGetPowerUsage, (abi_device, uint32_t *))                           \
	N(fields, nvmlDeviceGetFieldValues, (abi_device, int, struct abi_field_value *))      \
	N(energy, nvmlDeviceGetTotalEnergyConsumption, (abi_device, uint64_t *))              \
	N(enforced_limit, nvmlDeviceGetEnforcedPowerLimit, (abi_device, uint32_t *))          \
	N(power_limit, nvmlDeviceGetPowerManagementLimit, (abi_device, uint32_t *))           \
	N(default_limit, nvmlDeviceGetPowerManagementDefaultLimit, (abi_device, uint32_t *))  \
	N(limit_range, nvmlDeviceGetPowerManagementLimitConstraints,                          \
	  (abi_device, uint32_t *, uint32_t *))                                               \
	N(clock, nvmlDeviceGetClockInfo, (abi_device, uint32_t, uint32_t *))                  \
	N(max_clock, nvmlDeviceGetMaxClockInfo, (abi_device, uint32_t, uint32_t *))           \
	N(given_clock, nvmlDeviceGetApplicationsClock, (abi_device, uint32_t, uint32_t *))    \
	N(pstate, nvmlDeviceGetPerformanceState, (abi_device, uint32_t *))                    \
	N(reasons, nvmlDeviceGetCurrentClocksEventReasons, (abi_device, uint64_t *))          \
	N(reasons_old, nvmlDeviceGetCurrentClocksThrottleReasons, (abi_device, uint64_t *))   \
	N(temperature_v, nvmlDeviceGetTemperatureV, (abi_device, struct abi_temperature *))   \
	N(temperature, nvmlDeviceGetTemperature, (abi_device, uint32_t, uint32_t *))          \
	N(threshold, nvmlDeviceGetTemperatureThreshold, (abi_device, uint32_t, uint32_t *))   \
	N(margin, nvmlDeviceGetMarginTemperature, (abi_device, struct abi_margin *))          \
	N(fan_count, nvmlDeviceGetNumFans, (abi_device, uint32_t *))                          \
	N(fan, nvmlDeviceGetFanSpeed_v2, (abi_device, uint32_t, uint32_t *))                  \
	N(fan_old, nvmlDeviceGetFanSpeed, (abi_device, uint32_t *))                           \
	N(fan_rpm, nvmlDeviceGetFanSpeedRPM, (abi_device, struct abi_fan_rpm *))              \
	N(utilization, nvmlDeviceGetUtilizationRates, (abi_device, struct abi_utilization *)) \
	N(encoder, nvmlDeviceGetEncoderUtilization, (abi_device, uint32_t *, uint32_t *))     \
	N(decoder, nvmlDeviceGetDecoderUtilization, (abi_device, uint32_t *, uint32_t *))     \
	N(jpeg, nvmlDeviceGetJpgUtilization, (abi_device, uint32_t *, uint32_t *))            \
	N(ofa, nvmlDeviceGetOfaUtilization, (abi_device, uint32_t *, uint32_t *))             \
	N(pcie_rate, nvmlDeviceGetPcieThroughput, (abi_device, uint32_t, uint32_t *))         \
	N(pcie_generation, nvmlDeviceGetCurrPcieLinkGeneration, (abi_device, uint32_t *))     \
	N(pcie_width, nvmlDeviceGetCurrPcieLinkWidth, (abi_device, uint32_t *))               \
	N(pcie_generation_max, nvmlDeviceGetMaxPcieLinkGeneration, (abi_device, uint32_t *))  \
	N(pcie_width_max, nvmlDeviceGetMaxPcieLinkWidth, (abi_device, uint32_t *))            \
	N(pcie_replays, nvmlDeviceGetPcieReplayCounter, (abi_device, uint32_t *))             \
	N(ecc_mode, nvmlDeviceGetEccMode, (abi_device, uint32_t *, uint32_t *))               \
	N(ecc_errors, nvmlDeviceGetTotalEccErrors,                                            \
	  (abi_device, uint32_t, uint32_t, uint64_t *))                                       \
	N(remapped_rows, nvmlDeviceGetRemappedRows,                                           \
	  (abi_device, uint32_t *, uint32_t *, uint32_t *, uint32_t *))                       \
	N(row_histogram, nvmlDeviceGetRowRemapperHistogram,                                   \
	  (abi_device, struct abi_row_histogram *))                                           \
	N(pages_pending, nvmlDeviceGetRetiredPagesPendingStatus, (abi_device, uint32_t *))    \
	N(repair, nvmlDeviceGetRepairStatus, (abi_device, struct abi_repair *))               \
	N(sram_status, nvmlDeviceGetSramEccErrorStatus,                                       \
	  (abi_device, struct abi_sram_status *))                                             \
	N(compute_v3, nvmlDeviceGetComputeRunningProcesses_v3,                                \
	  (abi_device, uint32_t *, void *))                                                   \
	N(compute_v2, nvmlDeviceGetComputeRunningProcesses_v2,                                \
	  (abi_device, uint32_t *, void *))                                                   \
	N(compute_v1, nvmlDeviceGetComputeRunningProcesses, (abi_device, uint32_t *, void *)) \
	N(graphics_v3, nvmlDeviceGetGraphicsRunningProcesses_v3,                              \
	  (abi_device, uint32_t *, void *))                                                   \
	N(graphics_v2, nvmlDeviceGetGraphicsRunningProcesses_v2,                              \
	  (abi_device, uint32_t *, void *))                                                   \
	N(graphics_v1, nvmlDeviceGetGraphicsRunningProcesses,                                 \
	  (abi_device, uint32_t *, void *))                                                   \
	N(mps_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3,                                 \
	  (abi_device, uint32_t *, void *))                                                   \
	N(mps_v2, nvmlDeviceGetMPSComputeRunningProcesses_v2,                                 \
	  (abi_device, uint32_t *, void *))                                                   \
	N(mps_v1, nvmlDeviceGetMPSComputeRunningProcesses, (abi_device, uint32_t *, void *))  \
	N(process_detail, nvmlDeviceGetRunningProcessDetailList,                              \
	  (abi_device, struct abi_process_detail_list *))                                     \
	N(conf_compute, nvmlDeviceGetConfComputeMemSizeInfo, (abi_device, void *))            \
	N(process_name, nvmlSystemGetProcessName, (uint32_t, char *, uint32_t))               \
	N(process_utilization, nvmlDeviceGetProcessUtilization,                               \
	  (abi_device, struct abi_process_utilization *, uint32_t *, uint64_t))               \
	N(samples, nvmlDeviceGetSamples,                                                      \
	  (abi_device, uint32_t, uint64_t, uint32_t *, uint32_t *, struct abi_sample *))      \
	N(event_set_create, nvmlEventSetCreate, (abi_set *))                                  \
	N(event_types, nvmlDeviceGetSupportedEventTypes, (abi_device, uint64_t *))            \
	N(event_register, nvmlDeviceRegisterEvents, (abi_device, uint64_t, abi_set))          \
	N(event_wait, nvmlEventSetWait_v2, (abi_set, struct abi_event_data *, uint32_t))      \
	N(event_set_free, nvmlEventSetFree, (abi_set))                                        \
	N(mig_mode, nvmlDeviceGetMigMode, (abi_device, uint32_t *, uint32_t *))               \
	N(mig_max, nvmlDeviceGetMaxMigDeviceCount, (abi_device, uint32_t *))                  \
	N(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex,                                  \
	  (abi_device, uint32_t, abi_device *))                                               \
	N(gpu_instance, nvmlDeviceGetGpuInstanceId, (abi_device, uint32_t *))                 \
	N(compute_instance, nvmlDeviceGetComputeInstanceId, (abi_device, uint32_t *))         \
	N(gpm_support, nvmlGpmQueryDeviceSupport, (abi_device, struct abi_gpm_support *))     \
	N(gpm_alloc, nvmlGpmSampleAlloc, (abi_gpm_sample *))                                  \
	N(gpm_free, nvmlGpmSampleFree, (abi_gpm_sample))                                      \
	N(gpm_get, nvmlGpmSampleGet, (abi_device, abi_gpm_sample))                            \
	N(gpm_metrics, nvmlGpmMetricsGet, (struct abi_gpm_metrics *))                         \
	NVML_SETTERS(N)

/* Calls that change the device. Only the code that manages settings uses them, never code that
 * measures. */
#define NVML_SETTERS(N)                                                                   \
	N(set_power_limit_v2, nvmlDeviceSetPowerManagementLimit_v2,                       \
	  (abi_device, struct abi_power_value_v2 *))                                      \
	N(set_power_limit, nvmlDeviceSetPowerManagementLimit, (abi_device, uint32_t))     \
	N(set_persistence, nvmlDeviceSetPersistenceMode, (abi_device, uint32_t))          \
	N(set_compute_mode, nvmlDeviceSetComputeMode, (abi_device, uint32_t))             \
	N(clear_ecc, nvmlDeviceClearEccErrorCounts, (abi_device, uint32_t))               \
	N(set_gpu_clocks, nvmlDeviceSetGpuLockedClocks, (abi_device, uint32_t, uint32_t)) \
	N(reset_gpu_clocks, nvmlDeviceResetGpuLockedClocks, (abi_device))                 \
	N(set_memory_clocks, nvmlDeviceSetMemoryLockedClocks,                             \
	  (abi_device, uint32_t, uint32_t))                                               \
	N(reset_memory_clocks, nvmlDeviceResetMemoryLockedClocks, (abi_device))

/* A library that exports this symbol is a simulator; its devices are marked as simulated
 * everywhere. Its value is a NUL-terminated string such as "gpuward-sim 0.1.0". */
#define NVML_SIMULATOR_MARK "gpuward_simulator"

#endif
