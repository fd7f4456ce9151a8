"""Compares usual methods of measuring the energy of fast loads with the true energy, which only the simulator knows.

    bench/run energy              the summary
    bench/energy.py [SECONDS]     each wave

Each wave runs on its own simulated H200; its sensors agree with recordings of a real H200 within 5 % (tests/unit/test_sim_h200.c).  All
methods measure the same windows at the same time:
- the mean of power readings once per second
- the trapezoid rule on power readings ten times per second (1 s mean, or instant value)
- the difference of the energy counter, as in Zeus and CodeCarbon if there is a counter
- gpuward

If there are recordings of a real H200 (GPUWARD_TEST_DATA, or ../shared/data), the same methods are applied to them.  For
gpuward, `gpuward recompute` reads bundles that are made from the recordings.  The recordings have no samples of the driver's ring, so gpuward has the
instant value and the counter, as on a card without a ring.  The reference is the counter; between two of its ticks, the
recorded bursts show how its energy is distributed."""
import bisect
import csv
import ctypes
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import peers

# Square waves: time on and time off, in ms.
WAVES = ((10, 10), (25, 25), (50, 50), (20, 80), (80, 20), (75, 75), (100, 100), (250, 250), (600, 1400), (1000, 1000), (3000, 4000))
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
    """Returns the integral of points, a list of (time, watts)."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))


class Poll(threading.Thread):
    """Reads one figure of every GPU at a fixed rate."""

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
    """Returns {method: joules of each GPU}, and the true joules."""
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
    out["gpuward"] = [e.joules for e in sorted(window.devices, key=lambda e: e.device)]
    return out, true


def probe(seconds, windows):
    """Runs with the simulator as NVML.  Prints, for each wave, {method: [relative error of each window]}."""
    import gpuward
    try:  # real-time priority, because every method errs if other work delays the edges of a window
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pass
    driver = Driver()
    errors = {m: [[] for _ in WAVES] for m in (*METHODS, "gpuward")}
    with gpuward.Meter() as meter:
        for k in range(windows):
            got, true = one_window(meter, driver, seconds + 0.137 * k)  # each window ends at another phase of the waves
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


# ---- recordings

# Name, label, and watts while the load is on and off.  These watts show how the joules of one counter tick are distributed
# over the tick.
RECORDINGS = (("sq0.02", "10/10 ms", 780, 200), ("sq0.15", "75/75 ms", 810, 130), ("step", "idle, then busy", 725, 126))
WINDOW_S, APART_S = 2.0, 0.053  # length of a window; time between the starts of two windows, which is no multiple of a period
COUNTER_LAG_S = 0.008  # fitted to the recordings, tests/unit/h200.c
BUNDLE = os.path.join(peers.TOP, "tests", "fixtures", "bundle-h200")
SETUP = """schema = 1
uuid = "GPU-00000000-0000-0000-0000-000000000200"
name = "NVIDIA H200"
driver = "580.159.04"
shape = "instant"
spacing_s = 0.1125
window_s = 0.025
lag_s = 0.0125
look_ratio = 0.25
limit_w = 700.0
interval_s = 0.1
counter = true
mig = false
"""


class Recording:
    def __init__(self, path, on_w, off_w):
        with open(path + "-load.txt") as f:
            lines = [line.split() for line in f]
        self.bursts = [(float(w[1]), float(w[2])) for w in lines if w[0] == "ON"] or [tuple(float(w[1]) for w in lines[:2])]
        self.on_w, self.off_w = on_w, off_w
        with open(path + ".csv") as f:
            rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(f)]
        self.t = [r["t_monotonic_s"] for r in rows]
        self.average = [r["power_average_mw"] / 1e3 for r in rows]
        self.instant = [r["power_instant_mw"] / 1e3 for r in rows]
        self.counter = [r["energy_counter_mj"] / 1e3 for r in rows]
        self.ticks = [(t - COUNTER_LAG_S, after) for t, before, after in zip(self.t[1:], self.counter, self.counter[1:])
                      if after != before]

    def at(self, values, t):
        """Returns the value of a reading at this time."""
        return values[bisect.bisect_right(self.t, t) - 1]

    def true(self, t):
        """Returns the joules at this time: the counter at a tick; between two ticks, interpolated with the recorded bursts."""
        i = bisect.bisect_right(self.ticks, (t, math.inf))
        (t0, j0), (t1, j1) = self.ticks[i - 1], self.ticks[i]
        return j0 + (j1 - j0) * self.load(t0, t) / self.load(t0, t1)

    def load(self, t0, t1):
        on = sum(max(0, min(t1, b) - max(t0, a)) for a, b in self.bursts)
        return self.off_w * (t1 - t0) + (self.on_w - self.off_w) * on

    def windows(self):
        first, last = self.ticks[0][0] + 0.3, self.ticks[-1][0] - 0.4 - WINDOW_S
        return [first + k * APART_S for k in range(int((last - first) / APART_S) + 1)]

    def methods(self, begin):
        """Returns {method: joules of the window that begins at `begin`} for the methods other than gpuward."""
        end = begin + WINDOW_S
        polls = {n: [(t, self.at(v, t)) for t in (begin + WINDOW_S * k / 20 for k in range(21))]
                 for n, v in (("power", self.average), ("instant", self.instant))}
        return {"counter": self.at(self.counter, end) - self.at(self.counter, begin),
                "nvidia-smi -lms 100": statistics.mean(w for _, w in polls["power"]) * WINDOW_S,
                "power, 10 Hz": trapezoid(polls["power"]), "instant, 10 Hz": trapezoid(polls["instant"])}

    def bundle(self, folder, begin):
        """Writes the bundle that gpuward measure would have written for the window."""
        def ns(t):
            return round(t * 1e9)

        def read(t):
            i = bisect.bisect_left(self.t, t)
            return self.t[i], f"C\t{ns(self.t[i])}\t{ns(self.t[i + 1]) - 1}\t{self.counter[i]:.3f}"
        end = begin + WINDOW_S
        events = [(begin, f"O\t{ns(begin)}\t1\t-\tall"), (end, f"X\t{ns(end)}\t1"), (end + 0.35, f"R\t{ns(end + 0.35)}\t1\t0"),
                  read(begin), read(end)]
        events += [(t, f"P\t{ns(t)}\t{self.at(self.instant, t):.3f}") for t in (begin - 0.2 + 0.1125 * k for k in range(22))
                   if t < end + 0.3]
        for name in ("gpu0.sensor.toml", "manifest.toml"):
            shutil.copy(os.path.join(BUNDLE, name), folder)
        for name, text in (("gpu0.setup.toml", SETUP), ("windows.tsv", ""),
                           ("gpu0.events", "# gpuward events 1\n" + "\n".join(e for _, e in sorted(events)) + "\n")):
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)


def recorded(build):
    """Returns {recording: {method: [relative error of each window]}}; {} if there are no recordings."""
    data = os.path.join(os.environ.get("GPUWARD_TEST_DATA") or os.path.join(peers.TOP, "..", "shared", "data"), "h200")
    out = {}
    for name, label, on_w, off_w in RECORDINGS:
        path = os.path.join(data, name)
        if not os.path.exists(path + ".csv"):
            continue
        r, out[label] = Recording(path, on_w, off_w), {}
        for begin in r.windows():
            got, true = r.methods(begin), r.true(begin + WINDOW_S) - r.true(begin)
            with tempfile.TemporaryDirectory() as folder:
                r.bundle(folder, begin)
                done = subprocess.run([os.path.join(build, "gpuward"), "recompute", "--json", folder], capture_output=True, text=True)
                if not done.stdout:
                    raise RuntimeError(f"gpuward recompute: {done.stderr}")
                got["gpuward"] = json.loads(done.stdout)["windows"][0]["energy_joules"]["best"]
            for m, joules in got.items():
                out[label].setdefault(m, []).append(joules / true - 1)
    return out


def section(table, build, quick):
    errors = simulated(build, *((3, 3) if quick else (5, 12)))
    ours = [rms(e) for e in errors["gpuward"]]
    for m in METHODS:
        theirs = [rms(e) for e in errors[m]]
        table.row("energy", f"rms error of windows, median of {len(WAVES)} waves", statistics.median(ours), "error", m,
                  statistics.median(theirs))
        table.row("energy", "  of the worst wave", max(ours), "error", m, max(theirs), 0.01, "value")
    data = recorded(build)
    if not data:
        table.skip("recordings of an H200", "set GPUWARD_TEST_DATA to the folder that has h200/sq0.02.csv")
    for label, methods in data.items():
        ours = methods.pop("gpuward")
        for m, theirs in methods.items():
            table.row("energy", f"recorded {label}: rms error, {WINDOW_S:g} s", rms(ours), "error", m, rms(theirs))
            table.row("energy", "  of the worst window", max(map(abs, ours)), "error", m, max(map(abs, theirs)))


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
