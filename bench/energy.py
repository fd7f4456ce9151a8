"""The energy of fast loads by the methods in use, next to the true energy, which only the simulator knows.

    bench/run energy              the summary
    bench/energy.py [SECONDS]     each wave

One simulated H200 per wave; its sensors agree with recordings of a real H200 within 5 % (tests/unit/test_sim_h200.c).  All
methods measure the same windows at the same time: mean of the power once per second; trapezoid of power ten times per second,
1 s mean or instant value; difference of the energy counter (Zeus and CodeCarbon do that where there is a counter); gpuward.  If
GPUWARD_TEST_DATA names the folder of the recordings, the polling methods are also applied to these, against the counter."""
import csv
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import peers

# on, off, in ms
WAVES = ((10, 10), (25, 25), (50, 50), (20, 80), (80, 20), (100, 100), (250, 250), (600, 1400), (1000, 1000), (3000, 4000))
METHODS = ("power, 1 Hz", "power, 10 Hz", "instant, 10 Hz", "counter")
GPU = """
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "square"
unit = "watts"
high = 520
low = 120.5
period = {period}
duty = {duty}
"""


class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("stamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
                ("type", ctypes.c_int), ("code", ctypes.c_int), ("value", ctypes.c_ulonglong)]


class Driver:
    """NVML and the true figures of the simulator."""

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.gpuward_sim_true_joules.restype = ctypes.c_double
        self.lib.nvmlInit_v2()
        self.gpu = [ctypes.c_void_p() for _ in WAVES]
        for i, d in enumerate(self.gpu):
            self.lib.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(d))

    def power(self, i):
        mw = ctypes.c_uint()
        self.lib.nvmlDeviceGetPowerUsage(self.gpu[i], ctypes.byref(mw))
        return mw.value / 1e3

    def instant(self, i):
        f = Field(id=186)
        self.lib.nvmlDeviceGetFieldValues(self.gpu[i], 1, ctypes.byref(f))
        return (f.value & 0xffffffff) / 1e3

    def counter(self, i):
        mj = ctypes.c_ulonglong()
        self.lib.nvmlDeviceGetTotalEnergyConsumption(self.gpu[i], ctypes.byref(mj))
        return mj.value / 1e3

    def true(self, i):
        return self.lib.gpuward_sim_true_joules(i)


def trapezoid(points):
    """points: (time, watts)."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))


class Poll(threading.Thread):
    """Reads one figure of every GPU so many times per second."""

    def __init__(self, read, hertz):
        super().__init__(daemon=True)
        self.read, self.apart, self.over = read, 1 / hertz, threading.Event()
        self.points = [[] for _ in WAVES]
        self.start()

    def take(self):
        for i, p in enumerate(self.points):
            p.append((time.monotonic(), self.read(i)))

    def run(self):
        begin = time.monotonic()
        while True:
            self.take()
            if self.over.wait(max(0, begin + len(self.points[0]) * self.apart - time.monotonic())):
                break
        self.take()

    def stop(self):
        self.over.set()
        self.join()
        return self.points


def one_window(meter, driver, seconds):
    """{method: joules of each GPU}, and the true joules."""
    polls = {"power, 1 Hz": Poll(driver.power, 1), "power, 10 Hz": Poll(driver.power, 10), "instant, 10 Hz": Poll(driver.instant, 10)}
    with meter.window("wave") as window:
        begin, before = time.monotonic(), [driver.counter(i) for i in range(len(WAVES))]
        true = [driver.true(i) for i in range(len(WAVES))]
        time.sleep(seconds)  # the length of the measurement
        true = [driver.true(i) - t for i, t in enumerate(true)]
        span = time.monotonic() - begin
        out = {"counter": [driver.counter(i) - b for i, b in enumerate(before)]}
    for name, poll in polls.items():
        points = poll.stop()
        out[name] = [statistics.mean(w for _, w in p) * span if name == "power, 1 Hz"
                     else trapezoid(p) * span / (p[-1][0] - p[0][0]) for p in points]
    out["gpuward"] = [e.joules for e in sorted(window.energies, key=lambda e: e.device)]
    return out, true


def probe(seconds, windows):
    """Runs with the simulator as its NVML: prints {method: [relative error of each window] for each wave}."""
    import gpuward
    driver = Driver()
    errors = {m: [[] for _ in WAVES] for m in (*METHODS, "gpuward")}
    with gpuward.Meter() as meter:
        for k in range(windows):
            got, true = one_window(meter, driver, seconds + 0.137 * k)  # other ends of the waves in each window
            for m, values in got.items():
                for i, v in enumerate(values):
                    errors[m][i].append(v / true[i] - 1)
    print(json.dumps(errors))


def simulated(build, seconds, windows):
    with tempfile.TemporaryDirectory() as folder:
        scenario = os.path.join(folder, "waves.toml")
        with open(scenario, "w") as f:
            f.write("[time]\nbegin = 20\n" + "".join(GPU.format(period=(a + b) / 1e3, duty=a / (a + b)) for a, b in WAVES))
        done = subprocess.run(["/usr/bin/python3", "-B", __file__, "--probe", str(seconds), str(windows)], capture_output=True, text=True,
                              env={**os.environ, "GPUWARD_SIM": scenario, "LD_LIBRARY_PATH": os.path.join(build, "sim"),
                                   "GPUWARD_LIBRARY": os.path.join(build, "libgpuward.so"), "XDG_STATE_HOME": folder,
                                   "PYTHONPATH": os.path.join(peers.TOP, "python")})
    if done.returncode:
        raise RuntimeError(f"bench/energy.py: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rms(values):
    return math.sqrt(statistics.mean(v * v for v in values))


def recorded(folder):
    """{recording: {method: worst relative error against the counter over all phases of the polls}}."""
    out = {}
    for name in ("sq0.02", "sq0.15", "step"):
        path = os.path.join(folder, "h200", name + ".csv")
        if not os.path.exists(path):
            continue
        with open(path) as f:
            rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(f)]
        t0, t1 = rows[0]["t_monotonic_s"], rows[-1]["t_monotonic_s"]
        joules = (rows[-1]["energy_counter_mj"] - rows[0]["energy_counter_mj"]) / 1e3
        out[name] = {}
        for method, column, hertz in (("power, 1 Hz", "power_average_mw", 1), ("power, 10 Hz", "power_average_mw", 10),
                                      ("instant, 10 Hz", "power_instant_mw", 10)):
            errors = []
            for phase in range(20):
                points, next_s = [], t0 + phase / 20 / hertz
                for r in rows:
                    if r["t_monotonic_s"] >= next_s:
                        points.append((r["t_monotonic_s"], r[column] / 1e3))
                        next_s += 1 / hertz
                mean = statistics.mean(w for _, w in points) if hertz == 1 else trapezoid(points) / (points[-1][0] - points[0][0])
                errors.append(mean * (t1 - t0) / joules - 1)
            out[name][method] = max(errors, key=abs)
    return out


def section(table, build, quick):
    errors = simulated(build, *((3, 3) if quick else (5, 12)))
    ours = [rms(e) for e in errors["gpuward"]]
    for m in METHODS:
        theirs = [rms(e) for e in errors[m]]
        table.row("energy", f"rms error of windows, median of {len(WAVES)} waves", statistics.median(ours), "error", m,
                  statistics.median(theirs))
        table.row("energy", "  of the worst wave", max(ours), "error", m, max(theirs), 0.01, "value")
    data = recorded(os.environ.get("GPUWARD_TEST_DATA", ""))
    for name, methods in data.items():
        for m, error in methods.items():
            table.row("energy", f"recorded {name}: worst error of {m}", error, "error")


def main():
    if sys.argv[1:2] == ["--probe"]:
        return probe(float(sys.argv[2]), int(sys.argv[3]))
    names = ("gpuward", "counter", "instant, 10 Hz", "power, 10 Hz", "power, 1 Hz")
    errors = simulated(os.path.join(peers.TOP, "build"), float(sys.argv[1]) if len(sys.argv) > 1 else 5, 12)
    print("| on/off, ms | " + " | ".join(names) + " |\n|---" * 1 + "|---" * len(names) + "|")
    for i, (on, off) in enumerate(WAVES):
        print(f"| {on}/{off} | " + " | ".join(f"{100 * rms(errors[m][i]):.2f} %" for m in names) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
