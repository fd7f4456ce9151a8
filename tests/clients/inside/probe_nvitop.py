"""Prints as JSON the figures of every GPU that nvitop reads, with the names of gpuward snapshot."""
import json
import sys

from nvitop import Device, NA
from nvitop.api import libnvml


def known(value, factor=1):
    return None if value is NA or value == "N/A" else value * factor


try:
    devices = Device.all()
except libnvml.NVMLError as e:
    print(json.dumps({"error": str(e)}))
    sys.exit(0)
out = []
for d in devices:
    out.append({"figures": {
        "name": known(d.name()),
        "uuid": known(d.uuid()),
        "power_watts": known(d.power_usage(), 1e-3),
        "power_limit_watts": known(d.power_limit(), 1e-3),
        "memory_total_bytes": known(d.memory_total()),
        "memory_used_bytes": known(d.memory_used()),
        "memory_free_bytes": known(d.memory_free()),
        "utilization_gpu_ratio": known(d.gpu_utilization(), 0.01),
        "utilization_memory_ratio": known(d.memory_utilization(), 0.01),
        "utilization_encoder_ratio": known(d.encoder_utilization(), 0.01),
        "utilization_decoder_ratio": known(d.decoder_utilization(), 0.01),
        "temperature_gpu_celsius": known(d.temperature()),
        "fan_speed_ratio": known(d.fan_speed(), 0.01),
        "clock_sm_hertz": known(d.sm_clock(), 1000000),
        "clock_graphics_hertz": known(d.graphics_clock(), 1000000),
        "clock_memory_hertz": known(d.memory_clock(), 1000000),
        "clock_video_hertz": known(d.video_clock(), 1000000),
        "performance_state": known(d.performance_state()),
        "ecc_uncorrected_errors": known(d.total_volatile_uncorrected_ecc_errors()),
    }, "processes": {pid: known(p.gpu_memory()) for pid, p in d.processes().items()}})
print(json.dumps({"gpus": out}))
