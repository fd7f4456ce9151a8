"""A typical Python exporter, with which gpuward is compared: it reads pynvml at each scrape and uses prometheus_client.

Usage: python_exporter.py PORT

It serves fewer figures than gpuward does: seventeen per GPU, the same as bench-smi."""
import sys
import threading

import prometheus_client
import pynvml as nvml
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

GAUGES = (
    ("power_watts", lambda d: nvml.nvmlDeviceGetPowerUsage(d) / 1e3),
    ("power_limit_watts", lambda d: nvml.nvmlDeviceGetEnforcedPowerLimit(d) / 1e3),
    ("temperature_celsius", lambda d: nvml.nvmlDeviceGetTemperature(d, 0)),
    ("clock_graphics_hertz", lambda d: nvml.nvmlDeviceGetClockInfo(d, 0) * 1e6),
    ("clock_sm_hertz", lambda d: nvml.nvmlDeviceGetClockInfo(d, 1) * 1e6),
    ("clock_memory_hertz", lambda d: nvml.nvmlDeviceGetClockInfo(d, 2) * 1e6),
    ("performance_state", nvml.nvmlDeviceGetPerformanceState),
    ("clock_reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    ("pcie_generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration),
    ("pcie_width", nvml.nvmlDeviceGetCurrPcieLinkWidth),
)


class Collector:
    def __init__(self):
        nvml.nvmlInit()
        self.gpus = []
        for i in range(nvml.nvmlDeviceGetCount()):
            d = nvml.nvmlDeviceGetHandleByIndex(i)
            self.gpus.append((d, [str(i), nvml.nvmlDeviceGetUUID(d), nvml.nvmlDeviceGetName(d)]))

    def collect(self):
        labels = ["gpu", "uuid", "name"]
        family = {name: GaugeMetricFamily("gpu_" + name, name, labels=labels) for name, _ in GAUGES}
        for name in ("memory_total_bytes", "memory_used_bytes", "utilization_gpu_ratio", "utilization_memory_ratio"):
            family[name] = GaugeMetricFamily("gpu_" + name, name, labels=labels)
        energy = CounterMetricFamily("gpu_energy_joules", "energy", labels=labels)
        for d, values in self.gpus:
            for name, read in GAUGES:
                try:
                    family[name].add_metric(values, read(d))
                except nvml.NVMLError:
                    pass
            memory, use = nvml.nvmlDeviceGetMemoryInfo(d), nvml.nvmlDeviceGetUtilizationRates(d)
            family["memory_total_bytes"].add_metric(values, memory.total)
            family["memory_used_bytes"].add_metric(values, memory.used)
            family["utilization_gpu_ratio"].add_metric(values, use.gpu / 100)
            family["utilization_memory_ratio"].add_metric(values, use.memory / 100)
            energy.add_metric(values, nvml.nvmlDeviceGetTotalEnergyConsumption(d) / 1e3)
        yield from family.values()
        yield energy


prometheus_client.REGISTRY.register(Collector())
prometheus_client.start_http_server(int(sys.argv[1]), "127.0.0.1")
threading.Event().wait()
