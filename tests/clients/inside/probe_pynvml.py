"""Prints as JSON the figures of every GPU that pynvml reads, with the names of gpuward snapshot.

Then it calls every function of pynvml that needs only a GPU as argument, so that the linker records missing
functions."""
import inspect
import json
import sys

import pynvml as n

CLOCKS = {"graphics": n.NVML_CLOCK_GRAPHICS, "sm": n.NVML_CLOCK_SM, "memory": n.NVML_CLOCK_MEM, "video": n.NVML_CLOCK_VIDEO}


def value(call, *args):
    """Returns the result of the call; None: NVML returns an error."""
    try:
        return call(*args)
    except (n.NVMLError, n.NVMLLibraryMismatchError):  # NVMLLibraryMismatchError: pynvml refuses an old driver
        return None


def scaled(number, factor):
    return None if number is None else number * factor


def figures(h):
    memory = value(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2) or value(n.nvmlDeviceGetMemoryInfo, h)
    rates = value(n.nvmlDeviceGetUtilizationRates, h)
    limits = value(n.nvmlDeviceGetPowerManagementLimitConstraints, h) or (None, None)
    bar1 = value(n.nvmlDeviceGetBAR1MemoryInfo, h)
    thresholds = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
    out = {
        "name": n.nvmlDeviceGetName(h),
        "uuid": n.nvmlDeviceGetUUID(h),
        "pci_bus_id": n.nvmlDeviceGetPciInfo(h).busId.lower()[4:],
        "vbios_version": value(n.nvmlDeviceGetVbiosVersion, h),
        "serial": value(n.nvmlDeviceGetSerial, h),
        "power_watts": scaled(value(n.nvmlDeviceGetPowerUsage, h), 1e-3),
        "power_limit_watts": scaled(value(n.nvmlDeviceGetEnforcedPowerLimit, h), 1e-3),
        "power_limit_min_watts": scaled(limits[0], 1e-3),
        "power_limit_max_watts": scaled(limits[1], 1e-3),
        "power_limit_default_watts": scaled(value(n.nvmlDeviceGetPowerManagementDefaultLimit, h), 1e-3),
        "energy_joules": scaled(value(n.nvmlDeviceGetTotalEnergyConsumption, h), 1e-3),
        "memory_total_bytes": memory and memory.total,
        "memory_used_bytes": memory and memory.used,
        "memory_free_bytes": memory and memory.free,
        "memory_reserved_bytes": getattr(memory, "reserved", None),
        "bar1_total_bytes": bar1 and bar1.bar1Total,
        "bar1_used_bytes": bar1 and bar1.bar1Used,
        "utilization_gpu_ratio": rates and rates.gpu / 100,
        "utilization_memory_ratio": rates and rates.memory / 100,
        "utilization_encoder_ratio": scaled((value(n.nvmlDeviceGetEncoderUtilization, h) or [None])[0], 0.01),
        "utilization_decoder_ratio": scaled((value(n.nvmlDeviceGetDecoderUtilization, h) or [None])[0], 0.01),
        "temperature_gpu_celsius": value(n.nvmlDeviceGetTemperature, h, n.NVML_TEMPERATURE_GPU),
        "fan_speed_ratio": scaled(value(n.nvmlDeviceGetFanSpeed, h), 0.01),
        "pcie_generation": value(n.nvmlDeviceGetCurrPcieLinkGeneration, h),
        "pcie_width_lanes": value(n.nvmlDeviceGetCurrPcieLinkWidth, h),
        "pcie_generation_max": value(n.nvmlDeviceGetMaxPcieLinkGeneration, h),
        "pcie_replays": value(n.nvmlDeviceGetPcieReplayCounter, h),
        "ecc_corrected_errors": value(n.nvmlDeviceGetTotalEccErrors, h, 0, 0),
        "ecc_uncorrected_errors": value(n.nvmlDeviceGetTotalEccErrors, h, 1, 0),
        "minor_number": value(n.nvmlDeviceGetMinorNumber, h),
    }
    for name, kind in CLOCKS.items():
        out[f"clock_{name}_hertz"] = scaled(value(n.nvmlDeviceGetClockInfo, h, kind), 1000000)
    for name, kind in thresholds.items():
        out[f"temperature_{name}_celsius"] = value(n.nvmlDeviceGetTemperatureThreshold, h, kind)
    return out


def processes(h):
    """{pid: bytes} from all process lists."""
    out = {}
    for call in (n.nvmlDeviceGetComputeRunningProcesses, n.nvmlDeviceGetGraphicsRunningProcesses, n.nvmlDeviceGetMPSComputeRunningProcesses):
        for p in value(call, h) or []:
            out[p.pid] = p.usedGpuMemory
    return out


def call_all(h):
    """Calls the functions that need no argument or one GPU. Returns their number."""
    calls = 0
    for name, f in vars(n).items():
        if not name.startswith(("nvmlDeviceGet", "nvmlDeviceValidate", "nvmlSystemGet", "nvmlUnitGetCount", "nvmlGpmQuery", "nvmlGetExcluded")):
            continue
        needs = [p.name for p in inspect.signature(f).parameters.values() if p.default is p.empty] if inspect.isfunction(f) else None
        if needs in ([], ["handle"], ["device"]) and "HandleBy" not in name:
            value(f, *[h][:len(needs)])
            calls += 1
    return calls


try:
    n.nvmlInit()
except n.NVMLError as e:
    print(json.dumps({"error": e.value}))
    sys.exit(0)
gpus = []
for i in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(i)
    try:
        gpus.append({"figures": figures(handle), "processes": processes(handle)})
    except n.NVMLError as e:
        gpus.append({"error": e.value})
    calls = call_all(handle) if i == 0 else calls
print(json.dumps({"driver_version": n.nvmlSystemGetDriverVersion(), "gpus": gpus, "calls": calls if gpus else None}))
