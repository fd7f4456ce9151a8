"""Results as `gpuward measure` writes them, computed from a model instead of measured.

    result(label="fp16", power=300.0, seconds=12.5, iterations=1000)   one file, as a dict
    save(folder, name, result(...))                                   its path
Every figure follows from the arguments, so a test knows what compare must say.
"""
import json
import math
import random

import pytest

from support import gpuward

UUID = "GPU-11111111-2222-3333-4444-555555555555"
CODES = {
    "throttle-power": ("suspect", "the power limit slowed the clocks"),
    "child-failed": ("invalid", "the program ended with an error"),
    "short": ("suspect", "the window is shorter than 10 s or has fewer than 10 independent samples"),
}


def reader():
    """Returns True if the program can read results.  Without libjansson it cannot, and says so."""
    done = gpuward("compare", "/dev/null")
    assert done.returncode == 1
    return "libjansson" not in done.stderr


needs_reader = pytest.mark.skipif(not reader(), reason="no libjansson here")


def band(best, u):
    """Returns the 95 % interval around best; u is the relative standard uncertainty."""
    if best is None:
        return None
    return {"low": max(0.0, best * (1 - 1.96 * u)), "best": best, "high": best * (1 + 1.96 * u)}


def each(energy, count, u):
    """Returns the energy per iteration or token; its interval includes gain and offset, as that of energy_joules does."""
    return band(energy / count, math.hypot(u, 0.025)) if count else None


def worst(codes):
    levels = [CODES[c][0] for c in codes]
    return "invalid" if "invalid" in levels else "suspect" if levels else "valid"


def wave(power, seconds, seed, lead=1.0, step=0.02, idle=80.0):
    """Returns the power of a typical load over time: idle, a rise, bursts around the mean, idle again."""
    r = random.Random(seed)
    t, w = [], []
    for i in range(int((seconds + 2 * lead) / step)):
        at = i * step - lead
        busy = 0 <= at < seconds
        burst = 0.12 * power * math.sin(2 * math.pi * at / 1.7)
        t.append(round(i * step, 6))
        w.append(round((power + burst if busy else idle) + r.gauss(0, 3), 3))
    return {"t_seconds": t, "watts": w, "begin_seconds": -lead}


def ticks(seconds, throttled, lead=1.0, step=0.1, start=40.0):
    n = int((seconds + 2 * lead) / step)
    at = [i * step - lead for i in range(n)]
    warm = [start + 14 * (1 - math.exp(-max(0.0, a) / 6)) for a in at]
    held = [throttled and seconds * 0.4 < a < seconds * 0.65 for a in at]
    return {
        "t_seconds": [round(i * step, 6) for i in range(n)],
        "temperature_celsius": [round(v) for v in warm],
        "clock_sm_hertz": [1410000000 if h else 1980000000 for h in held],
        "utilization_ratio": [0.98 if 0 <= a < seconds else 0.0 for a in at],
        "memory_used_bytes": [2000000000] * n,
        "throttle": ["power_cap" if h else "" for h in held],
    }


def device(index, power, seconds, codes, uuid, name, driver, u, seed, series, simulated):
    energy = power * seconds
    throttled = "throttle-power" in codes
    return {
        "index": index, "uuid": uuid, "name": name,
        "provenance": "simulated" if simulated else "driver", "driver_version": driver,
        "validity": worst(codes), "codes": list(codes),
        "meter": "counter", "rung": "counter+ring", "verdict": "agree",
        "energy_joules": band(energy, math.hypot(u, 0.025)),
        "energy_relative_joules": band(energy, u),
        "energy_net_joules": band(energy - 78.2 * seconds, u),
        "energy_adjusted_joules": max(0.0, energy - 78.2 * seconds),
        "energy_adjusted_was_floored": energy < 78.2 * seconds,
        "baseline": {"kind": "no-context", "power_watts": 78.2,
                     "standard_uncertainty_watts": 0.1, "age_seconds": 120.0, "seconds": 12.0},
        "uncertainty_absolute_joules": energy * math.hypot(u, 0.025),
        "uncertainty_relative_joules": energy * u,
        "budget_joules": {"edges": energy * u, "gaps": 0.0, "coverage": 0.0, "residual": 0.0,
                          "gain": energy * 0.025, "offset": 2.5 * seconds},
        "counter_joules": energy, "samples_joules": energy * 1.0002, "residual_ratio": 0.0002,
        "anchor_ratio": 1.0, "gap_joules": 0.0,
        "power_watts": {"mean": power, "sd": 12.0, "min": power - 40, "max": power + 40,
                        "p5": power - 20, "p50": power, "p95": power + 20},
        "samples": {"expected": int(seconds * 50), "collected": int(seconds * 50), "missed": 0,
                    "longest_gap_seconds": 0.03, "coverage_ratio": 1.0, "spacing_seconds": 0.02},
        "ticks": {"expected": int(seconds * 10), "collected": int(seconds * 10), "missed": 0},
        "throttle": {"source": "counters", "power_cap_seconds": 0.25 * seconds * throttled,
                     "sync_boost_seconds": 0.0, "thermal_software_seconds": 0.0,
                     "thermal_hardware_seconds": 0.0, "power_brake_seconds": 0.0,
                     "joules": 0.25 * energy * throttled},
        "temperature_celsius": {"begin": 40, "end": 52, "max": 53},
        "clock_sm_mean_hertz": 1980000000, "utilization_mean_ratio": 0.98,
        "memory_used_max_bytes": 2000000000, "load_period_seconds": None,
        "power_limit_watts": 700,
        "sensor": {
            "uuid": uuid, "driver_version": driver, "vbios_version": "96.00.A5.00.1A",
            "origin": "assumed", "learned_utc": None, "scope": "board", "calibrated": False,
            "ring": {"supported": True, "model": "lowpass", "entries": 119,
                     "period_seconds": 0.02, "window_seconds": 0.0135, "lag_seconds": 0.017},
            "instant": {"supported": True, "model": "boxcar", "period_seconds": 0.1,
                        "window_seconds": 0.025, "lag_seconds": 0.0125},
            "counter": {"supported": True, "tick_seconds": 0.099, "safe_seconds": 1},
        },
        "processes": [
            {"pid": 4711, "start_ticks": 123, "name": "python3", "joules": energy * 0.75,
             "how": "measured"},
            {"name": "idle", "joules": energy * 0.25, "how": "measured"},
            {"name": "unattributed", "joules": 0.0, "how": "measured"},
        ],
        "series": {
            "power": wave(power, seconds, seed) if series
            else {"t_seconds": [], "watts": [], "begin_seconds": None},
            "ticks": ticks(seconds, throttled) if series
            else {"t_seconds": [], "temperature_celsius": [], "clock_sm_hertz": [],
                  "utilization_ratio": [], "memory_used_bytes": [], "throttle": []},
        },
    }


def run(trial, power, seconds, iterations, tokens, codes, u, devices):
    energy = sum(d["energy_joules"]["best"] for d in devices)
    failed = "child-failed" in codes
    return {
        "iterations": iterations, "tokens": tokens,
        "trial": trial, "begin_time": "2026-01-31T12:00:00.123Z", "seconds": seconds,
        "exit_status": 1 if failed else 0, "exit_signal": None, "validity": worst(codes),
        "codes": [
            {"code": c, "level": CODES[c][0], "sentence": CODES[c][1],
             "evidence": "3.1 s of 12.5 s (24.8 %)", "device": 0}
            for c in codes
        ],
        "energy_joules": band(energy, math.hypot(u, 0.025)),
        "energy_relative_joules": band(energy, u),
        "energy_net_joules": band(energy - 78.2 * seconds, u),
        "energy_adjusted_joules": max(0.0, energy - 78.2 * seconds),
        "energy_adjusted_was_floored": False,
        "baseline_kind": "no-context",
        "power_mean_watts": power * len(devices), "power_sd_watts": 12.0,
        "latency_seconds": seconds / iterations if iterations else None,
        "latency_p50_seconds": None, "latency_p95_seconds": None,
        "energy_per_iteration_joules": each(energy, iterations, u),
        "energy_per_token_joules": each(energy, tokens, u),
        "devices": devices,
        "host": {"joules": None, "absence": "not_present", "remedy": None, "domains": []},
        "windows": [
            {"label": "prefill", "begin_seconds": 1.0, "seconds": 0.5, "unfinished": False, "devices": [
                {"index": 0, "energy_joules": band(power * 0.5, 0.03),
                 "energy_relative_joules": band(power * 0.5, 0.01), "meter": "samples",
                 "verdict": "agree", "validity": "valid", "codes": []}]},
        ],
    }


def result(label="fp16", power=300.0, seconds=12.5, iterations=1000, tokens=None, trials=1,
           codes=(), spread=0.0, u=0.002, uuid=UUID, name="NVIDIA H200", driver="580.159.04",
           size=134217728, simulated=False, gpus=1, series=True, seed=1):
    """Returns one result. `spread` is the s.d. of ln(power) between trials. `codes` is one tuple for all trials, or a list with
    a tuple per trial."""
    r = random.Random(seed)
    runs = []
    for i in range(trials):
        mine = codes[i] if isinstance(codes, list) else codes
        p = power * math.exp(r.gauss(0, spread)) if spread else power
        devices = [
            device(k, p, seconds, mine, uuid if k == 0 else f"{uuid}-{k}", name, driver, u,
                   seed + i + k, series, simulated)
            for k in range(gpus)
        ]
        runs.append(run(i + 1, p, seconds, iterations, tokens, mine, u, devices))
    return {
        "schema_version": 1, "kind": "measurement",
        "tool": {"name": "gpuward", "version": "0.1.0"},
        "time": "2026-01-31T12:00:00.123Z", "simulated": simulated, "label": label,
        "tags": {"batch": "8"}, "model_size_bytes": size, "iterations": iterations,
        "tokens": tokens, "command_name": "python3", "command": None,
        "validity": worst([c for x in runs for c in (k["code"] for k in x["codes"])]),
        "runs": runs,
        "environment": {
            "host": {"kernel": "6.1.0", "os": "Debian GNU/Linux 12", "absent": {}},
            "cpu": {"model": "a CPU", "threads": 16, "governor": None,
                    "absent": {"governor": "not_present"}},
            "nvidia": {"driver_version": driver, "absent": {}},
        },
    }


def save(folder, name, doc):
    path = folder / name
    path.write_text(json.dumps(doc))
    return path
