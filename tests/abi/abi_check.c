/* abi_check: compares our description of NVML's binary interface with NVIDIA's header. Every
 * row is a compile-time assertion. The script `run` defines ABSENT_name for each name that the
 * header does not have. A row about such a name asserts nothing, so that the check works with
 * older and newer headers. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* a plain name is version 1, as in the library */
#include <nvml.h>

#include "absent.h"
#include "device/nvml_abi.h"

#include <stdio.h>

#define SECOND(a, b, ...) b
#define SECOND_OF(...)    SECOND(__VA_ARGS__, ~)

/* Expands to HOLDS. If probe is ABSENT_name and the script defined it (as "~, SKIPS"), expands
 * to SKIPS. */
#define PRESENT(probe)         SECOND_OF(probe, HOLDS)
#define HOLDS(condition, text) _Static_assert(__COUNTER__ >= 0 && (condition), text);
#define SKIPS(condition, text)

#define SAME(ours, real) \
	PRESENT(ABSENT_##real)((long long)(ours) == (long long)(real), #ours " is " #real)

#define SIZE(ours, real) \
	PRESENT(ABSENT_##real)(sizeof(ours) == sizeof(real), #ours " has the size of " #real)

#define AT(ours, member, real, real_member)                                       \
	SECOND_OF(ABSENT_##real, PRESENT(ABSENT_##real_member))                   \
	(offsetof(ours, member) == offsetof(real, real_member) &&                 \
		 sizeof(((ours *)0)->member) == sizeof(((real *)0)->real_member), \
	 #ours "." #member " is " #real "." #real_member)

#define FUNCTION(symbol, args)                                                \
	PRESENT(ABSENT_##symbol)                                              \
	(__builtin_types_compatible_p(__typeof__(symbol), nvmlReturn_t args), \
	 #symbol " takes " #args)

/* These rows are not statements; clang-format would join them. */
/* clang-format off */

SIZE(abi_return, nvmlReturn_t)
SAME(ABI_SUCCESS, NVML_SUCCESS)
SAME(ABI_UNINITIALIZED, NVML_ERROR_UNINITIALIZED)
SAME(ABI_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT)
SAME(ABI_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED)
SAME(ABI_NO_PERMISSION, NVML_ERROR_NO_PERMISSION)
SAME(ABI_ALREADY_INITIALIZED, NVML_ERROR_ALREADY_INITIALIZED)
SAME(ABI_NOT_FOUND, NVML_ERROR_NOT_FOUND)
SAME(ABI_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE)
SAME(ABI_INSUFFICIENT_POWER, NVML_ERROR_INSUFFICIENT_POWER)
SAME(ABI_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED)
SAME(ABI_TIMEOUT, NVML_ERROR_TIMEOUT)
SAME(ABI_IRQ_ISSUE, NVML_ERROR_IRQ_ISSUE)
SAME(ABI_LIBRARY_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND)
SAME(ABI_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND)
SAME(ABI_CORRUPTED_INFOROM, NVML_ERROR_CORRUPTED_INFOROM)
SAME(ABI_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST)
SAME(ABI_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED)
SAME(ABI_OPERATING_SYSTEM, NVML_ERROR_OPERATING_SYSTEM)
SAME(ABI_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH)
SAME(ABI_IN_USE, NVML_ERROR_IN_USE)
SAME(ABI_MEMORY, NVML_ERROR_MEMORY)
SAME(ABI_NO_DATA, NVML_ERROR_NO_DATA)
SAME(ABI_VGPU_ECC_NOT_SUPPORTED, NVML_ERROR_VGPU_ECC_NOT_SUPPORTED)
SAME(ABI_INSUFFICIENT_RESOURCES, NVML_ERROR_INSUFFICIENT_RESOURCES)
SAME(ABI_FREQ_NOT_SUPPORTED, NVML_ERROR_FREQ_NOT_SUPPORTED)
SAME(ABI_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
SAME(ABI_DEPRECATED, NVML_ERROR_DEPRECATED)
SAME(ABI_NOT_READY, NVML_ERROR_NOT_READY)
SAME(ABI_GPU_NOT_FOUND, NVML_ERROR_GPU_NOT_FOUND)
SAME(ABI_INVALID_STATE, NVML_ERROR_INVALID_STATE)
SAME(ABI_RESET_TYPE_NOT_SUPPORTED, NVML_ERROR_RESET_TYPE_NOT_SUPPORTED)
SAME(ABI_UNKNOWN, NVML_ERROR_UNKNOWN)

SAME(ABI_NAME_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE)
SAME(ABI_UUID_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE)
SAME(ABI_VERSION_SIZE, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)
SAME(ABI_VERSION_SIZE, NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE)
SAME(ABI_SERIAL_SIZE, NVML_DEVICE_SERIAL_BUFFER_SIZE)
SAME(ABI_VBIOS_SIZE, NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE)
SAME(ABI_PART_SIZE, NVML_DEVICE_PART_NUMBER_BUFFER_SIZE)

SAME(ABI_CLOCK_GRAPHICS, NVML_CLOCK_GRAPHICS)
SAME(ABI_CLOCK_SM, NVML_CLOCK_SM)
SAME(ABI_CLOCK_MEMORY, NVML_CLOCK_MEM)
SAME(ABI_CLOCK_VIDEO, NVML_CLOCK_VIDEO)
SAME(ABI_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
SAME(ABI_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
SAME(ABI_THRESHOLD_MEMORY_MAX, NVML_TEMPERATURE_THRESHOLD_MEM_MAX)
SAME(ABI_THRESHOLD_GPU_MAX, NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
SAME(ABI_SAMPLE_POWER, NVML_TOTAL_POWER_SAMPLES)
SAME(ABI_SAMPLE_GPU, NVML_GPU_UTILIZATION_SAMPLES)
SAME(ABI_SAMPLE_MEMORY, NVML_MEMORY_UTILIZATION_SAMPLES)
SAME(ABI_SAMPLE_ENCODER, NVML_ENC_UTILIZATION_SAMPLES)
SAME(ABI_SAMPLE_DECODER, NVML_DEC_UTILIZATION_SAMPLES)
SAME(ABI_SAMPLE_SM_CLOCK, NVML_PROCESSOR_CLK_SAMPLES)
SAME(ABI_SAMPLE_MEMORY_CLOCK, NVML_MEMORY_CLK_SAMPLES)
SAME(ABI_SAMPLE_MODULE_POWER, NVML_MODULE_POWER_SAMPLES)
SAME(ABI_SAMPLE_JPEG, NVML_JPG_UTILIZATION_SAMPLES)
SAME(ABI_SAMPLE_OFA, NVML_OFA_UTILIZATION_SAMPLES)
SAME(ABI_VALUE_DOUBLE, NVML_VALUE_TYPE_DOUBLE)
SAME(ABI_VALUE_U32, NVML_VALUE_TYPE_UNSIGNED_INT)
SAME(ABI_VALUE_ULONG, NVML_VALUE_TYPE_UNSIGNED_LONG)
SAME(ABI_VALUE_U64, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
SAME(ABI_VALUE_I64, NVML_VALUE_TYPE_SIGNED_LONG_LONG)
SAME(ABI_VALUE_I32, NVML_VALUE_TYPE_SIGNED_INT)
SAME(ABI_VALUE_U16, NVML_VALUE_TYPE_UNSIGNED_SHORT)
SAME(ABI_SCOPE_GPU, NVML_POWER_SCOPE_GPU)
SAME(ABI_SCOPE_MODULE, NVML_POWER_SCOPE_MODULE)
SAME(ABI_SCOPE_MEMORY, NVML_POWER_SCOPE_MEMORY)

/* Numbers that the tables of nvml_read.c and tables.c use without a name. */
SAME(0, NVML_TEMPERATURE_GPU)
SAME(0, NVML_PCIE_UTIL_TX_BYTES)
SAME(1, NVML_PCIE_UTIL_RX_BYTES)
SAME(0, NVML_MEMORY_ERROR_TYPE_CORRECTED)
SAME(1, NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
SAME(0, NVML_VOLATILE_ECC)
SAME(1, NVML_AGGREGATE_ECC)
SAME(2, NVML_DEVICE_ARCH_KEPLER)
SAME(3, NVML_DEVICE_ARCH_MAXWELL)
SAME(4, NVML_DEVICE_ARCH_PASCAL)
SAME(5, NVML_DEVICE_ARCH_VOLTA)
SAME(6, NVML_DEVICE_ARCH_TURING)
SAME(7, NVML_DEVICE_ARCH_AMPERE)
SAME(8, NVML_DEVICE_ARCH_ADA)
SAME(9, NVML_DEVICE_ARCH_HOPPER)
SAME(10, NVML_DEVICE_ARCH_BLACKWELL)
SAME(0, NVML_COMPUTEMODE_DEFAULT)
SAME(2, NVML_COMPUTEMODE_PROHIBITED)
SAME(3, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
SAME(0, NVML_GPU_VIRTUALIZATION_MODE_NONE)
SAME(1, NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH)
SAME(2, NVML_GPU_VIRTUALIZATION_MODE_VGPU)
SAME(3, NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU)
SAME(4, NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA)
SAME(1, NVML_GPM_SUPPORT_VERSION)
SAME(1, NVML_GPM_METRICS_GET_VERSION)

SAME(ABI_FIELD_LIMITED_POWER, NVML_FI_DEV_PERF_POLICY_POWER)
SAME(ABI_FIELD_LIMITED_THERMAL, NVML_FI_DEV_PERF_POLICY_THERMAL)
SAME(ABI_FIELD_LIMITED_SYNC_BOOST, NVML_FI_DEV_PERF_POLICY_SYNC_BOOST)
SAME(ABI_FIELD_MEMORY_TEMPERATURE, NVML_FI_DEV_MEMORY_TEMP)
SAME(ABI_FIELD_ENERGY, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
SAME(ABI_FIELD_PCIE_REPLAYS, NVML_FI_DEV_PCIE_REPLAY_COUNTER)
SAME(ABI_FIELD_PCIE_REPLAY_ROLLOVERS, NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER)
SAME(ABI_FIELD_NVLINK_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
SAME(ABI_FIELD_NVLINK_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
SAME(ABI_FIELD_REMAPPED_CORRECTABLE, NVML_FI_DEV_REMAPPED_COR)
SAME(ABI_FIELD_REMAPPED_UNCORRECTABLE, NVML_FI_DEV_REMAPPED_UNC)
SAME(ABI_FIELD_REMAPPED_PENDING, NVML_FI_DEV_REMAPPED_PENDING)
SAME(ABI_FIELD_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_FAILURE)
SAME(ABI_FIELD_POWER_AVERAGE, NVML_FI_DEV_POWER_AVERAGE)
SAME(ABI_FIELD_POWER_INSTANT, NVML_FI_DEV_POWER_INSTANT)
SAME(ABI_FIELD_POWER_MIN, NVML_FI_DEV_POWER_MIN_LIMIT)
SAME(ABI_FIELD_POWER_MAX, NVML_FI_DEV_POWER_MAX_LIMIT)
SAME(ABI_FIELD_POWER_DEFAULT, NVML_FI_DEV_POWER_DEFAULT_LIMIT)
SAME(ABI_FIELD_POWER_ENFORCED, NVML_FI_DEV_POWER_CURRENT_LIMIT)
SAME(ABI_FIELD_ENERGY_2, NVML_FI_DEV_ENERGY)
SAME(ABI_FIELD_POWER_REQUESTED, NVML_FI_DEV_POWER_REQUESTED_LIMIT)
SAME(ABI_FIELD_TLIMIT_SHUTDOWN, NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT)
SAME(ABI_FIELD_TLIMIT_SLOWDOWN, NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT)
SAME(ABI_FIELD_TLIMIT_MEMORY_MAX, NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT)
SAME(ABI_FIELD_TLIMIT_GPU_MAX, NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT)
SAME(ABI_FIELD_PCIE_SENT, NVML_FI_DEV_PCIE_COUNT_TX_BYTES)
SAME(ABI_FIELD_PCIE_RECEIVED, NVML_FI_DEV_PCIE_COUNT_RX_BYTES)
SAME(ABI_FIELD_RECOVERY_ACTION, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)

/* Headers of CUDA 12.9 and 13.0 number these three 251 to 253; later headers have the
 * numbers below. Both are accepted. */
#define MOVED(ours, real)                                                             \
	PRESENT(ABSENT_##real)                                                        \
	((int)(ours) == (int)(real) || (int)(ours)-18 == (int)(real), #ours " is " #real)
MOVED(ABI_FIELD_LIMITED_THERMAL_SOFTWARE, NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN)
MOVED(ABI_FIELD_LIMITED_THERMAL_HARDWARE, NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN)
MOVED(ABI_FIELD_LIMITED_POWER_BRAKE, NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN)

SAME(ABI_REASON_IDLE, nvmlClocksThrottleReasonGpuIdle)
SAME(ABI_REASON_APPLICATION_CLOCKS, nvmlClocksThrottleReasonApplicationsClocksSetting)
SAME(ABI_REASON_SW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap)
SAME(ABI_REASON_HW_SLOWDOWN, nvmlClocksThrottleReasonHwSlowdown)
SAME(ABI_REASON_SYNC_BOOST, nvmlClocksThrottleReasonSyncBoost)
SAME(ABI_REASON_SW_THERMAL, nvmlClocksThrottleReasonSwThermalSlowdown)
SAME(ABI_REASON_HW_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown)
SAME(ABI_REASON_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown)
SAME(ABI_REASON_DISPLAY, nvmlClocksThrottleReasonDisplayClockSetting)

SAME(ABI_EVENT_ECC_SINGLE, nvmlEventTypeSingleBitEccError)
SAME(ABI_EVENT_ECC_DOUBLE, nvmlEventTypeDoubleBitEccError)
SAME(ABI_EVENT_PSTATE, nvmlEventTypePState)
SAME(ABI_EVENT_XID, nvmlEventTypeXidCriticalError)
SAME(ABI_EVENT_CLOCK, nvmlEventTypeClock)
SAME(ABI_EVENT_POWER_SOURCE, nvmlEventTypePowerSourceChange)
SAME(ABI_EVENT_MIG_CHANGE, nvmlEventMigConfigChange)
SAME(ABI_EVENT_ECC_STORM, nvmlEventTypeSingleBitEccErrorStorm)
SAME(ABI_EVENT_DRAM_RETIRED, nvmlEventTypeDramRetirementEvent)
SAME(ABI_EVENT_DRAM_RETIRE_FAILED, nvmlEventTypeDramRetirementFailure)
SAME(ABI_EVENT_POISON, nvmlEventTypeNonFatalPoisonError)
SAME(ABI_EVENT_POISON_FATAL, nvmlEventTypeFatalPoisonError)
SAME(ABI_EVENT_GPU_UNAVAILABLE, nvmlEventTypeGpuUnavailableError)
SAME(ABI_EVENT_RECOVERY_ACTION, nvmlEventTypeGpuRecoveryAction)

SAME(ABI_GPM_SM_ACTIVE, NVML_GPM_METRIC_SM_UTIL)
SAME(ABI_GPM_SM_OCCUPANCY, NVML_GPM_METRIC_SM_OCCUPANCY)
SAME(ABI_GPM_TENSOR, NVML_GPM_METRIC_ANY_TENSOR_UTIL)
SAME(ABI_GPM_DRAM, NVML_GPM_METRIC_DRAM_BW_UTIL)
SAME(ABI_GPM_FP64, NVML_GPM_METRIC_FP64_UTIL)
SAME(ABI_GPM_FP32, NVML_GPM_METRIC_FP32_UTIL)
SAME(ABI_GPM_FP16, NVML_GPM_METRIC_FP16_UTIL)

SAME(ABI_TAG(struct abi_memory_v2, 2), nvmlMemory_v2)
SAME(ABI_TAG(struct abi_temperature, 1), nvmlTemperature_v1)
SAME(ABI_TAG(struct abi_margin, 1), nvmlMarginTemperature_v1)
SAME(ABI_TAG(struct abi_fan_rpm, 1), nvmlFanSpeedInfo_v1)
SAME(ABI_TAG(struct abi_repair, 1), nvmlRepairStatus_v1)
SAME(ABI_TAG(struct abi_sram_status, 1), nvmlEccSramErrorStatus_v1)
SAME(ABI_TAG(struct abi_power_value_v2, 2), nvmlPowerValue_v2)
SAME(ABI_TAG(struct abi_process_detail_list, 1), nvmlProcessDetailList_v1)

SIZE(abi_device, nvmlDevice_t)
SIZE(abi_set, nvmlEventSet_t)
SIZE(abi_gpm_sample, nvmlGpmSample_t)

SAME(ABI_TAG(struct abi_pci_ext, 1), nvmlPciInfoExt_v1)
SIZE(struct abi_pci_ext, nvmlPciInfoExt_v1_t)
AT(struct abi_pci_ext, base_class, nvmlPciInfoExt_v1_t, baseClass)
AT(struct abi_pci_ext, bus_id, nvmlPciInfoExt_v1_t, busId)
SIZE(struct abi_capture, nvmlFBCStats_t)
SIZE(struct abi_pci, nvmlPciInfo_t)
AT(struct abi_pci, bus_id_legacy, nvmlPciInfo_t, busIdLegacy)
AT(struct abi_pci, domain, nvmlPciInfo_t, domain)
AT(struct abi_pci, bus, nvmlPciInfo_t, bus)
AT(struct abi_pci, device, nvmlPciInfo_t, device)
AT(struct abi_pci, device_id, nvmlPciInfo_t, pciDeviceId)
AT(struct abi_pci, subsystem_id, nvmlPciInfo_t, pciSubSystemId)
AT(struct abi_pci, bus_id, nvmlPciInfo_t, busId)

SIZE(struct abi_memory, nvmlMemory_t)
AT(struct abi_memory, total, nvmlMemory_t, total)
AT(struct abi_memory, free, nvmlMemory_t, free)
AT(struct abi_memory, used, nvmlMemory_t, used)

SIZE(struct abi_memory_v2, nvmlMemory_v2_t)
AT(struct abi_memory_v2, version, nvmlMemory_v2_t, version)
AT(struct abi_memory_v2, total, nvmlMemory_v2_t, total)
AT(struct abi_memory_v2, reserved, nvmlMemory_v2_t, reserved)
AT(struct abi_memory_v2, free, nvmlMemory_v2_t, free)
AT(struct abi_memory_v2, used, nvmlMemory_v2_t, used)

SIZE(struct abi_bar1, nvmlBAR1Memory_t)
AT(struct abi_bar1, total, nvmlBAR1Memory_t, bar1Total)
AT(struct abi_bar1, free, nvmlBAR1Memory_t, bar1Free)
AT(struct abi_bar1, used, nvmlBAR1Memory_t, bar1Used)

SIZE(struct abi_utilization, nvmlUtilization_t)
AT(struct abi_utilization, gpu, nvmlUtilization_t, gpu)
AT(struct abi_utilization, memory, nvmlUtilization_t, memory)

SIZE(union abi_value, nvmlValue_t)
AT(union abi_value, d, nvmlValue_t, dVal)
AT(union abi_value, u32, nvmlValue_t, uiVal)
AT(union abi_value, ul, nvmlValue_t, ulVal)
AT(union abi_value, u64, nvmlValue_t, ullVal)
AT(union abi_value, i64, nvmlValue_t, sllVal)
AT(union abi_value, i32, nvmlValue_t, siVal)
AT(union abi_value, u16, nvmlValue_t, usVal)

SIZE(struct abi_field_value, nvmlFieldValue_t)
AT(struct abi_field_value, field, nvmlFieldValue_t, fieldId)
AT(struct abi_field_value, scope, nvmlFieldValue_t, scopeId)
AT(struct abi_field_value, timestamp_us, nvmlFieldValue_t, timestamp)
AT(struct abi_field_value, latency_us, nvmlFieldValue_t, latencyUsec)
AT(struct abi_field_value, type, nvmlFieldValue_t, valueType)
AT(struct abi_field_value, code, nvmlFieldValue_t, nvmlReturn)
AT(struct abi_field_value, value, nvmlFieldValue_t, value)

SIZE(struct abi_sample, nvmlSample_t)
AT(struct abi_sample, timestamp_us, nvmlSample_t, timeStamp)
AT(struct abi_sample, value, nvmlSample_t, sampleValue)

SIZE(struct abi_process_v1, nvmlProcessInfo_v1_t)
AT(struct abi_process_v1, pid, nvmlProcessInfo_v1_t, pid)
AT(struct abi_process_v1, memory, nvmlProcessInfo_v1_t, usedGpuMemory)

SIZE(struct abi_process_v2, nvmlProcessInfo_v2_t)
AT(struct abi_process_v2, pid, nvmlProcessInfo_v2_t, pid)
AT(struct abi_process_v2, memory, nvmlProcessInfo_v2_t, usedGpuMemory)
AT(struct abi_process_v2, gpu_instance, nvmlProcessInfo_v2_t, gpuInstanceId)
AT(struct abi_process_v2, compute_instance, nvmlProcessInfo_v2_t, computeInstanceId)

SIZE(struct abi_process_detail, nvmlProcessDetail_v1_t)
AT(struct abi_process_detail, pid, nvmlProcessDetail_v1_t, pid)
AT(struct abi_process_detail, memory, nvmlProcessDetail_v1_t, usedGpuMemory)
AT(struct abi_process_detail, gpu_instance, nvmlProcessDetail_v1_t, gpuInstanceId)
AT(struct abi_process_detail, compute_instance, nvmlProcessDetail_v1_t, computeInstanceId)
AT(struct abi_process_detail, protected_memory, nvmlProcessDetail_v1_t,
   usedGpuCcProtectedMemory)

SIZE(struct abi_process_detail_list, nvmlProcessDetailList_v1_t)
AT(struct abi_process_detail_list, version, nvmlProcessDetailList_v1_t, version)
AT(struct abi_process_detail_list, mode, nvmlProcessDetailList_v1_t, mode)
AT(struct abi_process_detail_list, count, nvmlProcessDetailList_v1_t, numProcArrayEntries)
AT(struct abi_process_detail_list, processes, nvmlProcessDetailList_v1_t, procArray)

SIZE(struct abi_process_utilization, nvmlProcessUtilizationSample_t)
AT(struct abi_process_utilization, pid, nvmlProcessUtilizationSample_t, pid)
AT(struct abi_process_utilization, timestamp_us, nvmlProcessUtilizationSample_t, timeStamp)
AT(struct abi_process_utilization, sm, nvmlProcessUtilizationSample_t, smUtil)
AT(struct abi_process_utilization, memory, nvmlProcessUtilizationSample_t, memUtil)
AT(struct abi_process_utilization, encoder, nvmlProcessUtilizationSample_t, encUtil)
AT(struct abi_process_utilization, decoder, nvmlProcessUtilizationSample_t, decUtil)

SIZE(struct abi_event_data, nvmlEventData_t)
AT(struct abi_event_data, device, nvmlEventData_t, device)
AT(struct abi_event_data, type, nvmlEventData_t, eventType)
AT(struct abi_event_data, data, nvmlEventData_t, eventData)
AT(struct abi_event_data, gpu_instance, nvmlEventData_t, gpuInstanceId)
AT(struct abi_event_data, compute_instance, nvmlEventData_t, computeInstanceId)

SIZE(struct abi_temperature, nvmlTemperature_v1_t)
AT(struct abi_temperature, version, nvmlTemperature_v1_t, version)
AT(struct abi_temperature, sensor, nvmlTemperature_v1_t, sensorType)
AT(struct abi_temperature, celsius, nvmlTemperature_v1_t, temperature)

SIZE(struct abi_margin, nvmlMarginTemperature_v1_t)
AT(struct abi_margin, version, nvmlMarginTemperature_v1_t, version)
AT(struct abi_margin, celsius, nvmlMarginTemperature_v1_t, marginTemperature)

SIZE(struct abi_fan_rpm, nvmlFanSpeedInfo_v1_t)
AT(struct abi_fan_rpm, version, nvmlFanSpeedInfo_v1_t, version)
AT(struct abi_fan_rpm, fan, nvmlFanSpeedInfo_v1_t, fan)
AT(struct abi_fan_rpm, rpm, nvmlFanSpeedInfo_v1_t, speed)

SIZE(struct abi_repair, nvmlRepairStatus_v1_t)
AT(struct abi_repair, version, nvmlRepairStatus_v1_t, version)
AT(struct abi_repair, channel, nvmlRepairStatus_v1_t, bChannelRepairPending)
AT(struct abi_repair, tpc, nvmlRepairStatus_v1_t, bTpcRepairPending)

SIZE(struct abi_sram_status, nvmlEccSramErrorStatus_v1_t)
AT(struct abi_sram_status, version, nvmlEccSramErrorStatus_v1_t, version)
AT(struct abi_sram_status, counter[0], nvmlEccSramErrorStatus_v1_t, aggregateUncParity)
AT(struct abi_sram_status, counter[10], nvmlEccSramErrorStatus_v1_t, aggregateUncBucketOther)
AT(struct abi_sram_status, threshold_exceeded, nvmlEccSramErrorStatus_v1_t,
   bThresholdExceeded)

SIZE(struct abi_gpm_support, nvmlGpmSupport_t)
AT(struct abi_gpm_support, version, nvmlGpmSupport_t, version)
AT(struct abi_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice)

SIZE(struct abi_gpm_metric_value, nvmlGpmMetric_t)
AT(struct abi_gpm_metric_value, id, nvmlGpmMetric_t, metricId)
AT(struct abi_gpm_metric_value, code, nvmlGpmMetric_t, nvmlReturn)
AT(struct abi_gpm_metric_value, value, nvmlGpmMetric_t, value)

/* The array is longer in every newer header. NVML reads as many entries as numMetrics says. */
AT(struct abi_gpm_metrics, version, nvmlGpmMetricsGet_t, version)
AT(struct abi_gpm_metrics, count, nvmlGpmMetricsGet_t, numMetrics)
AT(struct abi_gpm_metrics, first, nvmlGpmMetricsGet_t, sample1)
AT(struct abi_gpm_metrics, second, nvmlGpmMetricsGet_t, sample2)
PRESENT(ABSENT_nvmlGpmMetricsGet_t)
(offsetof(struct abi_gpm_metrics, metric) == offsetof(nvmlGpmMetricsGet_t, metrics),
 "abi_gpm_metrics.metric is nvmlGpmMetricsGet_t.metrics")

SIZE(struct abi_power_value_v2, nvmlPowerValue_v2_t)
AT(struct abi_power_value_v2, version, nvmlPowerValue_v2_t, version)
AT(struct abi_power_value_v2, scope, nvmlPowerValue_v2_t, powerScope)
AT(struct abi_power_value_v2, milliwatts, nvmlPowerValue_v2_t, powerValueMw)

SIZE(struct abi_row_histogram, nvmlRowRemapperHistogramValues_t)
AT(struct abi_row_histogram, max, nvmlRowRemapperHistogramValues_t, max)
AT(struct abi_row_histogram, high, nvmlRowRemapperHistogramValues_t, high)
AT(struct abi_row_histogram, partial, nvmlRowRemapperHistogramValues_t, partial)
AT(struct abi_row_histogram, low, nvmlRowRemapperHistogramValues_t, low)
AT(struct abi_row_histogram, none, nvmlRowRemapperHistogramValues_t, none)

SIZE(struct abi_mig_attributes, nvmlDeviceAttributes_t)
AT(struct abi_mig_attributes, multiprocessors, nvmlDeviceAttributes_t, multiprocessorCount)
AT(struct abi_mig_attributes, copy_engines, nvmlDeviceAttributes_t, sharedCopyEngineCount)
AT(struct abi_mig_attributes, decoders, nvmlDeviceAttributes_t, sharedDecoderCount)
AT(struct abi_mig_attributes, encoders, nvmlDeviceAttributes_t, sharedEncoderCount)
AT(struct abi_mig_attributes, jpeg, nvmlDeviceAttributes_t, sharedJpegCount)
AT(struct abi_mig_attributes, ofa, nvmlDeviceAttributes_t, sharedOfaCount)
AT(struct abi_mig_attributes, gpu_instance_slices, nvmlDeviceAttributes_t,
   gpuInstanceSliceCount)
AT(struct abi_mig_attributes, compute_instance_slices, nvmlDeviceAttributes_t,
   computeInstanceSliceCount)
AT(struct abi_mig_attributes, memory_mb, nvmlDeviceAttributes_t, memorySizeMB)

SIZE(struct abi_accounting, nvmlAccountingStats_t)
AT(struct abi_accounting, gpu_utilization, nvmlAccountingStats_t, gpuUtilization)
AT(struct abi_accounting, memory_utilization, nvmlAccountingStats_t, memoryUtilization)
AT(struct abi_accounting, max_memory, nvmlAccountingStats_t, maxMemoryUsage)
AT(struct abi_accounting, time_ms, nvmlAccountingStats_t, time)
AT(struct abi_accounting, start_us, nvmlAccountingStats_t, startTime)
AT(struct abi_accounting, running, nvmlAccountingStats_t, isRunning)
AT(struct abi_accounting, reserved, nvmlAccountingStats_t, reserved)

/* Our table has void * for these, because the layout of the entries is detected at run time. */
FUNCTION(nvmlDeviceGetComputeRunningProcesses,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *))
FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))
FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))
FUNCTION(nvmlDeviceGetGraphicsRunningProcesses,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *))
FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v2,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))
FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v3,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))
FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *))
FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v2,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))
FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v3,
	 (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))
FUNCTION(nvmlDeviceGetConfComputeMemSizeInfo, (nvmlDevice_t, nvmlConfComputeMemSizeInfo_t *))
#define LOOSE_compute_v1   ~, 1
#define LOOSE_compute_v2   ~, 1
#define LOOSE_compute_v3   ~, 1
#define LOOSE_graphics_v1  ~, 1
#define LOOSE_graphics_v2  ~, 1
#define LOOSE_graphics_v3  ~, 1
#define LOOSE_mps_v1       ~, 1
#define LOOSE_mps_v2       ~, 1
#define LOOSE_mps_v3       ~, 1
#define LOOSE_conf_compute ~, 1
#define LOOSE(name)        SECOND_OF(LOOSE_##name, 0)

	/* clang-format on */

	static void report(const char *header, int assertions)
{
	printf("abi: %d assertions hold against %s (API %d)\n", assertions, header,
	       NVML_API_VERSION);
#ifdef NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN
	if (NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN != 269)
		printf("abi: note: this header numbers the thermal and brake counters from "
		       "%d, ours from 269\n",
		       NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN);
#endif
}

/* The whole table of calls with the header's names: the compiler reports every difference of
 * types. Nothing may be included below this. */
#define struct
#define uint32_t       unsigned int
#define uint64_t       unsigned long long
#define abi_return     nvmlReturn_t
#define abi_device     nvmlDevice_t
#define abi_set        nvmlEventSet_t
#define abi_gpm_sample nvmlGpmSample_t

#define abi_pci                 nvmlPciInfo_t
#define abi_memory              nvmlMemory_t
#define abi_memory_v2           nvmlMemory_v2_t
#define abi_bar1                nvmlBAR1Memory_t
#define abi_utilization         nvmlUtilization_t
#define abi_field_value         nvmlFieldValue_t
#define abi_sample              nvmlSample_t
#define abi_process_detail_list nvmlProcessDetailList_t
#define abi_process_utilization nvmlProcessUtilizationSample_t
#define abi_event_data          nvmlEventData_t
#define abi_temperature         nvmlTemperature_t
#define abi_margin              nvmlMarginTemperature_t
#define abi_fan_rpm             nvmlFanSpeedInfo_t
#define abi_repair              nvmlRepairStatus_t
#define abi_sram_status         nvmlEccSramErrorStatus_t
#define abi_gpm_support         nvmlGpmSupport_t
#define abi_gpm_metrics         nvmlGpmMetricsGet_t
#define abi_power_value_v2      nvmlPowerValue_v2_t
#define abi_row_histogram       nvmlRowRemapperHistogramValues_t

#define N(name, symbol, args)                                                                \
	PRESENT(ABSENT_##symbol)                                                             \
	(LOOSE(name) || __builtin_types_compatible_p(__typeof__(symbol), nvmlReturn_t args), \
	 #symbol " takes " #args)
/* clang-format off */
NVML_CALLS(N)
PRESENT(ABSENT_nvmlErrorString)
(__builtin_types_compatible_p(__typeof__(nvmlErrorString), const char *(nvmlReturn_t)),
 "nvmlErrorString takes a code and returns a text")
	/* clang-format on */

	int main(int argc, char **argv)
{
	report(argc > 1 ? argv[1] : "nvml.h", __COUNTER__);
	return 0;
}
