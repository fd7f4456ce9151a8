"""Prints as JSON, in joules: the energy of one simulated load as gpuward measures it, as Zeus or CodeCarbon measures
it, and the true energy.

    probe_energy.py zeus|codecarbon SECONDS"""
import contextlib
import ctypes
import json
import sys
import time

import gpuward

name, seconds = sys.argv[1], float(sys.argv[2])
sys.path.insert(0, f"/mnt/{name}")
try:
    if name == "zeus":
        from zeus.monitor import ZeusMonitor
    else:
        from codecarbon import OfflineEmissionsTracker
except ModuleNotFoundError as e:
    print(json.dumps({"missing": e.name}))
    sys.exit(0)

sim = ctypes.CDLL("libnvidia-ml.so.1")  # gpuward and the other program load the same library, so that all see one simulated machine
sim.gpuward_sim_true_joules.restype = ctypes.c_double


@contextlib.contextmanager
def measured(out):
    """Zeus or CodeCarbon measures the block; out["other"] has the joules of both GPUs."""
    if name == "zeus":
        monitor = ZeusMonitor(gpu_indices=[0, 1])
        monitor.begin_window("load", sync_execution=False)  # there is no framework to synchronise with
        yield
        out["other"] = sum(monitor.end_window("load", sync_execution=False).gpu_energy.values())
        return
    tracker = OfflineEmissionsTracker(country_iso_code="FRA", measure_power_secs=1, save_to_file=False, log_level="error")
    tracker.start()
    yield
    tracker.stop()
    out["other"] = tracker.final_emissions_data.gpu_energy * 3.6e6


def true_joules():
    return sum(sim.gpuward_sim_true_joules(i) for i in range(2))


result = {}
with gpuward.Meter() as meter:
    with measured(result):
        with meter.window("load") as window:
            before = true_joules()
            time.sleep(seconds)  # duration of the measurement
            result["true"] = true_joules() - before
    result["ours"] = window.joules
print(json.dumps(result))
