"""Tests --calibrate: the energy of a sensor with known errors is corrected with an external meter without errors."""
import csv
import datetime
import hashlib
import json
import os
import random
import re
import sys

import pytest

from support import FAILED, OK, USAGE, carry_baselines, check, environment, gpuward

GAIN, OFFSET = 0.94, 9.0  # the sensor reports GAIN x true power + OFFSET
LAG = 0.7

SCENARIO = f"""
[[gpu]]
profile = "h200"
noise = 0.01
[gpu.sensor]
gain = {GAIN}
offset_w = {OFFSET}
[[gpu.load]]
kind = "steps"
unit = "watts"
points = [[0, 150], [0.9, 400], [1.7, 250], [2.9, 600], [3.6, 200], [4.3, 500]]
period = 5
"""

# The measured command: it runs for a while and then writes what an external meter without errors would have recorded.
METER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_calibrate import outside, write
time.sleep(float(sys.argv[4]))
write(sys.argv[3], outside(sys.argv[2]))
"""


def clocks(bundle):
    """Returns how many seconds the wall clock is ahead of the times of the readings."""
    text = open(f"{bundle}/manifest.toml").read()
    wall = re.search(r"created = (\S+)Z", text).group(1)
    mono = int(re.search(r"monotonic_ns = (\d+)", text).group(1))
    return datetime.datetime.fromisoformat(wall + "+00:00").timestamp() - mono * 1e-9


def true_power(bundle):
    """Returns (seconds on the monotonic clock, watts) of the samples, without the errors of the sensor."""
    lines = [l.split() for l in open(f"{bundle}/gpu0.events") if l[:2] == "P\t" and l[-1] == "\n"]
    return [(int(w[1]) * 1e-9, (float(w[2]) - OFFSET) / GAIN) for w in lines]


def outside(bundle, every=0.25, lag=LAG, change=lambda w: w):
    """Returns points (unix seconds, watts) of a meter that reports means with a delay."""
    power, ahead, points = true_power(bundle), clocks(bundle), []
    at = power[0][0]
    while at + every < power[-1][0]:
        inside = [w for t, w in power if at <= t < at + every]
        if inside:
            points.append((at + every / 2 + lag + ahead, change(sum(inside) / len(inside))))
        at += every
    return points


def write(path, points, head=("timestamp", "outlet", "watts")):
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(head)
        for t, w in points:
            stamp = datetime.datetime.fromtimestamp(t, datetime.timezone.utc).isoformat()
            out.writerow((stamp, 3, f"{w:.3f}"))
    return path


def utc(t):
    return datetime.datetime.fromtimestamp(t, datetime.timezone.utc)


def truth(bundle):
    """Returns the joules between the two edges of the run: the trapezoid rule on the true power."""
    events = [l.split("\t") for l in open(f"{bundle}/gpu0.events")]
    begin = next(int(e[1]) for e in events if e[0] == "O") * 1e-9
    end = next(int(e[1]) for e in events if e[0] == "X") * 1e-9
    power, joules = [(t - 0.017, w) for t, w in true_power(bundle)], 0.0  # the delay of the ring
    for (t0, w0), (t1, w1) in zip(power, power[1:]):
        a, b = max(t0, begin), min(t1, end)
        if b > a:
            joules += (w0 + w1) / 2 * (b - a)
    return joules


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate")
    (folder / "off.toml").write_text(SCENARIO)
    (folder / "meter.py").write_text(METER)
    bundle, trace = folder / "run", folder / "pdu.csv"
    done = gpuward("measure", f"--simulate={folder / 'off.toml'}", "--bundle", bundle, "--calibrate", trace,
                   "--calibrate-keep", "--iterations", "100", "--", "/usr/bin/python3", folder / "meter.py",
                   str(__file__.rpartition("/")[0]), bundle, trace, "9",
                   env=environment(XDG_CACHE_HOME=folder / "cache", PYTHONPATH=":".join(sys.path)))
    assert done.returncode == OK, done.stderr
    doc = json.loads((bundle / "result.json").read_text())
    check("measure", doc)
    return folder, bundle, trace, doc, done


def recompute(*args, code=OK):
    done = gpuward("recompute", *args)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def width(band):
    return band["high"] - band["low"]


@pytest.mark.deep
def test_corrected_joules_hold_the_truth_in_a_narrower_interval(measured):
    _, bundle, _, doc, _ = measured
    device = doc["runs"][0]["devices"][0]
    energy, raw = device["energy_joules"], device["energy_raw_joules"]
    true = truth(bundle)
    assert energy["low"] <= true <= energy["high"]
    assert abs(raw / true - 1) > 0.02  # otherwise there would be nothing to correct
    assert width(energy) < 0.5 * 2 * 1.96 * 0.025 * raw
    assert device["power_watts"]["mean"] * doc["runs"][0]["seconds"] == pytest.approx(raw, rel=0.02)
    per = doc["runs"][0]["energy_per_iteration_joules"]
    assert per["best"] == pytest.approx(energy["best"] / 100)
    assert sum(p["joules"] for p in device["processes"] or [] if p["joules"]) == \
        pytest.approx(energy["best"] if device["processes"] else 0, rel=1e-3)


def test_the_fit_is_recorded(measured):
    _, bundle, trace, doc, done = measured
    fit, sensor = doc["calibration"], doc["runs"][0]["devices"][0]["sensor"]
    assert abs(fit["gain"] - 1 / GAIN) < 5 * fit["gain_uncertainty"] + 0.003
    assert abs(fit["offset_watts"] + OFFSET / GAIN) < 3
    assert abs(fit["lag_seconds"] - LAG) < 0.1
    assert fit["correlation"] > 0.99 and fit["points"] >= 20 and fit["notes"] == []
    assert fit["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert (bundle / "calibration.csv").read_bytes() == trace.read_bytes()
    assert sensor["calibrated"] and sensor["gain"] == fit["gain"]
    assert sensor["pivot_watts"] == fit["pivot_watts"]
    assert "Calibrated" in done.stderr and "uncalibrated energy" in done.stderr


def test_a_stored_calibration_is_used_by_the_next_measurement(measured):
    folder, _, _, doc, _ = measured
    env = environment(XDG_CACHE_HOME=folder / "cache")
    done = gpuward("measure", f"--simulate={folder / 'off.toml'}", "--json", "--", "sleep", "1", env=env)
    again = json.loads(done.stdout)
    check("measure", again)
    device, fit = again["runs"][0]["devices"][0], doc["calibration"]
    assert again["calibration"] is None and device["sensor"]["calibrated"]
    assert "stored calibration: gain" in done.stderr
    assert device["energy_joules"]["best"] == pytest.approx(
        fit["gain"] * device["energy_raw_joules"] + fit["offset_watts"] * again["runs"][0]["seconds"])
    shown = gpuward("characterise", "--show", f"--simulate={folder / 'off.toml'}", env=env).stdout
    assert "by an external meter" in shown


def test_ab_uses_the_offset_uncertainty_of_a_stored_calibration(measured):
    folder = measured[0]

    def offset(**env):
        done = gpuward("ab", f"--simulate={folder / 'off.toml'}", "--json", "--quiet", "--pairs-max=2", "--aa-pairs=0", "--warmup=0",
                       "--no-cooldown", "--", "sleep", "0.2", "--", "sleep", "0.2", env=environment(**env))
        return json.loads(done.stdout)["config"]["offset_watts"]

    calibrated = offset(XDG_CACHE_HOME=folder / "cache")
    assert offset(XDG_CACHE_HOME=folder / "none") == 2.5 and 0 < calibrated < 2.5


def test_a_bundle_is_calibrated_later(measured):
    folder, bundle, trace, doc, _ = measured
    found = json.loads(recompute("--json", "--calibrate", trace, bundle).stdout)
    window = found["windows"][0]
    assert window["same"]  # the recorded readings give the same result as before
    assert window["energy_raw_joules"] == doc["runs"][0]["devices"][0]["energy_raw_joules"]
    assert window["energy_joules"]["low"] <= truth(bundle) <= window["energy_joules"]["high"]
    assert found["calibration"]["gain"] == pytest.approx(doc["calibration"]["gain"], rel=0.01)
    text = recompute("--calibrate", trace, bundle).stdout
    assert "calibrated by" in text
    plain = json.loads(recompute("--json", bundle).stdout)
    assert plain["calibration"] is None
    assert plain["windows"][0]["energy_joules"]["best"] == window["energy_raw_joules"]


def test_accuracy_of_the_outside_meter_is_in_the_interval(measured):
    _, bundle, trace, _, _ = measured
    widths = []
    for accuracy in ("0", "1%", "5"):
        found = json.loads(recompute("--json", "--calibrate", trace, "--calibrate-accuracy", accuracy,
                                     bundle).stdout)
        widths.append(width(found["windows"][0]["energy_joules"]) / found["windows"][0]["then_joules"])
    assert widths[0] < widths[1] < widths[2]
    assert widths[2] > 2 * 0.049


def test_other_forms_of_a_trace_are_read(measured, tmp_path):
    _, bundle, _, _, _ = measured
    points = outside(bundle)
    want = None
    for head, row in (("# a PDU\nunix_s;x;power_w", "{t:.3f};;{w:.3f}"), ("time\tpower", "{iso}\t{w:.3f}"),
                      ('"Timestamp","Power"', '"{iso}","{w:.3f}"'), ("Time (UTC),Power (W)", "{plain},{w:.3f}"),
                      ("time_utc,Power [W]", "{plain},{w:.3f}")):
        path = tmp_path / "trace.csv"
        path.write_text("\ufeff" + head + "\r\n" + "".join(
            row.format(t=t, w=w, iso=utc(t).isoformat(), plain=f"{utc(t):%Y-%m-%d %H:%M:%S.%f}") + "\r\n"
            for t, w in points) + "nonsense\r\n")
        fit = json.loads(recompute("--json", "--calibrate", path, bundle).stdout)["calibration"]
        want = want or fit["gain"]
        assert fit["gain"] == pytest.approx(want, rel=1e-3)
        assert fit["lines_passed_over"] == 1 and "ignored" in fit["notes"][0]


def test_a_meter_of_the_whole_host_is_noted(measured, tmp_path):
    _, bundle, _, _, _ = measured
    path = write(tmp_path / "host.csv", outside(bundle, change=lambda w: w + 230))
    fit = json.loads(recompute("--json", "--calibrate", path, bundle).stdout)["calibration"]
    assert fit["more_than_the_gpu"] and fit["offset_watts"] == 0
    assert fit["fitted_offset_watts"] == pytest.approx(230 - OFFSET / GAIN, abs=5)
    assert fit["gain"] == pytest.approx(1 / GAIN, rel=0.02)
    assert "measures more than the GPU" in fit["notes"][0]
    assert fit["gain_uncertainty"] >= 0.05, "the gain includes the losses of the power supply"


def test_what_cannot_be_used_is_refused_in_a_sentence(measured, tmp_path):
    _, bundle, _, _, _ = measured
    points = outside(bundle)
    turned = [(t, w) for (t, _), (_, w) in zip(points, [(0, 100 + 97 * k * k % 501) for k in range(len(points))])]
    cases = {
        "late": ([(t + 7200, w) for t, w in points], "does not overlap the measurement: it begins"),
        "few, long ago": ([(t - 7200, w) for t, w in points[:2]], "does not overlap the measurement: it ends"),
        "few": (points[:6], "6 points of the trace"),
        "other": (turned, "does not follow the power"),
        "kilowatts": ([(t, w / 1000) for t, w in points], "its unit is watts"),
    }
    for name, (given, word) in cases.items():
        path = write(tmp_path / f"{name}.csv", given)
        done = recompute("--calibrate", path, bundle, code=FAILED)
        assert word in done.stderr and done.stdout == "", done.stderr
    head = write(tmp_path / "head.csv", points, head=("when", "outlet", "amperes"))
    assert "has no column for time" in recompute("--calibrate", head, bundle, code=FAILED).stderr
    (tmp_path / "local.csv").write_text("time,watts\n2026-01-31 12:00:00,300\n")
    said = recompute("--calibrate", tmp_path / "local.csv", bundle, code=FAILED).stderr
    assert "2026-01-31 12:00:00; name the column time_utc" in said and "RFC 3339" in said
    for word in ("312,5", "0.3 kW", "1,234", "300 VA"):
        (tmp_path / "comma.csv").write_text("time;watts\n" + "".join(f"{t:.3f};{word}\n" for t, _ in points))
        assert "with a decimal point" in recompute("--calibrate", tmp_path / "comma.csv", bundle, code=FAILED).stderr
    assert "No such file" in recompute("--calibrate", tmp_path / "none", bundle, code=FAILED).stderr


def test_a_bad_head_is_refused_before_anything_is_measured(tmp_path):
    trace, mark = tmp_path / "x.csv", tmp_path / "ran"
    words = ("measure", "--simulate=h200", "--calibrate", trace, "--", "touch", mark)
    trace.write_text("when,amperes\n1,2\n")
    done = gpuward(*words)
    assert done.returncode == FAILED and "has no column for time" in done.stderr and "nothing was measured" in done.stderr
    assert not mark.exists()
    for early in ("", "# of the PDU\n", "time,pow"):  # the program that writes the file has only begun
        trace.write_text(early)
        gpuward(*words)
        assert mark.exists()
        mark.unlink()


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = gpuward("measure", "--simulate=h200", "--calibrate", tmp_path / "pipe", "--", "sleep", "0.1")
    assert done.returncode == USAGE and "is not a regular file" in done.stderr


def test_a_result_that_cannot_be_calibrated_is_not_lost(tmp_path):
    trace = write(tmp_path / "old.csv", [(1e9 + k, 300) for k in range(60)])
    done = gpuward("measure", "--simulate=h200", "--json", "--calibrate", trace, "--", "sleep", "0.4")
    assert done.returncode == FAILED and "the result is not calibrated" in done.stderr
    assert "with --bundle you could use gpuward recompute --calibrate" in done.stderr
    doc = json.loads(done.stdout)
    assert doc["calibration"] is None and doc["runs"][0]["energy_joules"]["best"] > 0
    assert not doc["runs"][0]["devices"][0]["sensor"]["calibrated"]


def test_power_that_stands_still_gives_the_offset_alone(tmp_path):
    bundle = tmp_path / "run"
    scene = tmp_path / "still.toml"
    scene.write_text(SCENARIO.partition("[[gpu.load]]")[0] +
                     '[[gpu.load]]\nkind = "constant"\nunit = "watts"\nlevel = 400\n')
    gpuward("measure", f"--simulate={scene}", "--bundle", bundle, "--", "sleep", "4.5")
    path = write(tmp_path / "still.csv", outside(bundle))
    found = json.loads(recompute("--json", "--calibrate", path, bundle).stdout)
    fit = found["calibration"]
    assert fit["offset_alone"] and fit["gain"] == 1 and fit["correlation"] is None
    assert "varied too little" in fit["notes"][0]
    energy = found["windows"][0]["energy_joules"]
    assert energy["low"] <= truth(bundle) <= energy["high"]


def test_points_that_scatter_give_the_offset_alone_and_another_reason(measured, tmp_path):
    chance = random.Random(1)
    path = write(tmp_path / "rough.csv", outside(measured[1], change=lambda w: w + chance.gauss(0, 50)))
    fit = json.loads(recompute("--json", "--calibrate", path, measured[1]).stdout)["calibration"]
    assert fit["offset_alone"] and fit["correlation"] > 0.9
    assert "compared with the scatter of the points, the power varied too little to determine the gain" in fit["notes"][0]


# The measured command: it writes what another meter shows every 0.1 s, at least 32 points.
STEADY = """
import sys, time
end, points = time.time() + 3.2, []
while time.time() < end or len(points) < 32:
    points.append(f"{time.time():.3f},500\\n")
    time.sleep(0.1)
open(sys.argv[1], "w").write("unix_s,power_w\\n" + "".join(points))
"""


def test_net_energy_does_not_know_the_gain_that_the_calibration_does_not(tmp_path):
    """A constant 500 W and a sensor that reads 4 % too low: the fitted offset is not valid at the power of the baseline."""
    env = environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    head = '[time]\nbegin = 600\n[[gpu]]\nprofile = "h200"\nnoise = 0\n[gpu.sensor]\ngain = 0.96\n'
    idle, busy = tmp_path / "idle.toml", tmp_path / "busy.toml"
    idle.write_text(head)
    busy.write_text(head + '[[gpu.load]]\nkind = "constant"\nunit = "watts"\nlevel = 500\n')
    assert gpuward("baseline", f"--simulate={idle}", "--time=2s", env=env).returncode == 0
    carry_baselines(env, idle, busy)
    done = gpuward("measure", f"--simulate={busy}", "--json", "--baseline=kept", "--calibrate", tmp_path / "x.csv",
                   "--", sys.executable, "-c", STEADY, tmp_path / "x.csv", env=env)
    doc = json.loads(done.stdout)
    [run] = doc["runs"]
    assert doc["calibration"]["offset_alone"]
    above = 500 - run["devices"][0]["baseline"]["power_watts"] / 0.96
    gross, net = run["energy_joules"], run["energy_net_joules"]
    assert gross["low"] <= 500 * run["seconds"] <= gross["high"]
    assert net["low"] <= above * run["seconds"] <= net["high"]
    assert width(net) / 2 > 1.96 * 0.025 * 0.9 * net["best"]


def test_calibration_options_without_an_effect_are_refused(tmp_path):
    for words, sentence in ((["measure", "--simulate=two-gpus", "--calibrate", "x.csv", "--", "true"], "with one GPU"),
                            (["measure", "--calibrate-keep", "--", "true"], "needs --calibrate"),
                            (["measure", "--calibrate=x", "--calibrate-accuracy=lots", "--", "true"], "a percentage"),
                            (["recompute", "--device", "1", tmp_path], "needs --calibrate")):
        done = gpuward(*words)
        assert done.returncode == USAGE and sentence in done.stderr, done.stderr
