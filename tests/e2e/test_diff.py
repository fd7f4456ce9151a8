"""Tests diff: it shows what differs between two measurements, and does not show what is equal."""
import json
import math
import os
import re
import shutil
import statistics

import pytest

from support import FAILED, FIXTURES, OK, TOP, USAGE, check, environment, gpuward
from synthetic import needs_reader, result, save

pytestmark = needs_reader
RECORDED = FIXTURES / "bundle-h200"
WIDE = environment(COLUMNS=200)


def diff(*args, code=OK, env=WIDE, **kw):
    done = gpuward("diff", *args, env=env, **kw)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def document(*args):
    doc = json.loads(diff(*args, "--json").stdout)
    check("diff", doc)
    return doc


def rows(doc, section=None):
    return {(r["device"], r["key"]): r for r in doc["rows"] if section in (None, r["section"])}


def gpu(**more):
    """The environment of one GPU."""
    return {"index": 0, "uuid": "GPU-11111111-2222-3333-4444-555555555555", "name": "NVIDIA H200",
            "vbios_version": "96.00.A5.00.1A", "persistence_mode": True, "power_limit_watts": 700,
            "clock_sm_max_hertz": 1980000000, **more}


def measured(changes=(), device=None, **kw):
    doc = result(iterations=None, **kw)
    doc["environment"]["devices"] = [gpu(**(device or {}))]
    for path, value in changes:
        at = doc
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
    return doc


def bundle(folder, doc):
    """The recorded bundle, with this result."""
    shutil.copytree(RECORDED, folder)
    (folder / "result.json").write_text(json.dumps(doc))
    return folder


def test_every_kind_of_difference_is_shown_and_nothing_else(tmp_path):
    first = ("runs", 0, "devices", 0)
    a = save(tmp_path, "a.json", measured(power=300))
    b = save(tmp_path, "b.json", measured([
        (("environment", "host", "kernel"), "6.12.0"),
        (("environment", "cpu", "governor"), "performance"),
        (("tags", "batch"), "16"),
        ((*first, "temperature_celsius", "begin"), 55),
        ((*first, "clock_sm_mean_hertz"), 1700000000),
        ((*first, "sensor", "origin"), "active"),
        ((*first, "processes", 0, "name"), "ollama"),
    ], device={"persistence_mode": False, "power_limit_watts": 500}, power=320,
        codes=("throttle-power",)))
    doc = document(a, b)
    got = {(r["section"], r["key"]): (r["state"], r["a"], r["b"]) for r in doc["rows"]}
    assert got[("environment", "host.kernel")] == ("differs", "6.1.0", "6.12.0")
    assert got[("environment", "cpu.governor")] == ("unknown", None, "performance")
    assert got[("gpu", "persistence_mode")] == ("differs", "yes", "no")
    assert got[("gpu", "power_limit_watts")] == ("differs", 700, 500)
    assert got[("settings", "tags.batch")] == ("differs", "8", "16")
    assert got[("sensor", "origin")] == ("differs", "assumed", "active")
    assert got[("codes", "throttle-power")] == ("differs", None, "3.1 s of 12.5 s (24.8 %)")
    assert got[("processes", "processes.python3_joules")][2] is None
    assert got[("processes", "processes.ollama_joules")][1] is None
    assert got[("figures", "temperature_celsius.begin")] == ("differs", 40, 55)
    assert got[("figures", "clock_sm_mean_hertz")][0] == "differs"
    assert got[("figures", "throttle.power_cap_ratio")] == ("differs", 0, 0.25)
    quiet = {"host.os", "name", "temperature_celsius.max", "ring.period_seconds", "label"}
    assert not quiet & {key for _, key in got}
    everything = {r["key"] for r in document("--all", a, b)["rows"]}
    assert quiet <= everything
    assert doc["count"] == document("--all", a, b)["count"]


def test_every_compared_fact_is_in_a_result(tmp_path):
    """If a path were in no result, it would never make a row, and no other test would notice."""
    device = "runs.0.devices.0."
    where = {"gpu": "environment.devices.0.", "figures": device, "throttles": device, "sensor": device + "sensor."}
    done = gpuward("measure", "--simulate", "-o", tmp_path / "r.json", "--", "sleep", "0.1")
    assert done.returncode == OK, done.stderr
    doc = json.loads((tmp_path / "r.json").read_text())
    tables = re.findall(r"diff_fields_(\w+)\[\] = \{(.*?)\n\};", (TOP / "src/cli/diff_fields.h").read_text(), re.S)
    paths = [where.get(name, "") + path for name, rows in tables for path in re.findall(r'\{ "([^"]+)",', rows)]
    energy = (TOP / "include/gpuward/energy.def").read_text()
    paths += [device + key for key, title in re.findall(
        r'^GW_\w+\(\w+, \w+, "([^"]*)",[^)]*?\bDIFF(?:_RATIO)?\(\s*("[^"]+")', energy, re.M)]
    sensor = (TOP / "src/measure/sensor.def").read_text()
    paths += [where["sensor"] + key for key in re.findall(r'^SENSOR\w*\(.*?"([^"]+)", DIFF', sensor, re.M)]
    words = (TOP / "include/gpuward/words.def").read_text()
    paths += [f"{device}throttle.{key}_seconds" for key in re.findall(r'^GW_THROTTLE\(\w+, "(\w+)"', words, re.M)]
    assert len(tables) == 6 and len(paths) > 90
    for path in paths:
        at = doc
        for key in path.split("."):
            assert at is None or key.isdigit() or key in at, path
            at = at and at[int(key) if key.isdigit() else key]


def test_energies_are_judged_by_the_uncertainty_of_their_ratio(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300, u=0.002))
    for power, state in ((300, "equal"), (300.6, "cannot-tell"), (306, "cannot-tell")):
        doc = document(a, save(tmp_path, "b.json", measured(power=power, u=0.002)))
        row = rows(doc)[(None, "energy_joules")]
        assert doc["energy"] == row["state"] == state
        assert row["change_ratio"] == pytest.approx(power / 300 - 1)
        # The gain is in both energies and cancels in the change.
        reach = math.log1p(row["change_interval"]["high"]) - math.log1p(row["change_ratio"])
        offset = 2.5 * abs(1 / 300 - 1 / power)
        assert reach == pytest.approx(1.96 * math.sqrt(2 * 0.002**2 + offset**2), rel=1e-3)
        wide = row["a_interval"]
        assert (wide["high"] - wide["low"]) / wide["best"] > 0.09
    # No verdict, however large the difference: one run each does not show how much runs vary.
    assert row["change_interval"]["low"] > 0 and "A and B have one run each, so the variation between runs is unknown" in doc["sentence"]
    assert "more than is uncertain" not in diff(a, tmp_path / "b.json").stdout


def test_one_run_against_trials_is_judged_by_their_scatter(tmp_path):
    once = save(tmp_path, "b.json", measured(power=306, u=0.0002))
    for spread, state in ((0.0005, "differs"), (0.1, "cannot-tell")):
        doc = document(save(tmp_path, "a.json", measured(power=300, trials=4, spread=spread, u=0.0002)), once)
        assert doc["energy"] == state
        assert rows(doc)[(None, "energy_net_joules")]["state"] == state
        assert any(n.startswith("B has one run, which is assumed to vary") for n in doc["notes"])
        assert any("geometric means" in n for n in doc["notes"])
    turned = document(once, tmp_path / "a.json")
    assert any(n.startswith("A has one run, which is assumed to vary") for n in turned["notes"])


def test_the_scatter_of_net_energy_is_included(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300, trials=4, spread=0.1))
    b = save(tmp_path, "b.json", measured(power=330, trials=4, spread=0.1, seed=9))
    net = rows(document(a, b))[(None, "energy_net_joules")]
    assert net["state"] == "cannot-tell" and net["change_interval"]["low"] < 0 < net["change_interval"]["high"]
    runs = [r["energy_net_joules"] for r in measured(power=300, trials=4, spread=0.1)["runs"]]
    shared = statistics.mean(r["high"] - r["best"] for r in runs)
    reach = math.hypot(shared, 3.182446 * statistics.stdev(r["best"] for r in runs) / 2)
    assert net["a"] == pytest.approx(statistics.mean(r["best"] for r in runs))
    assert net["a_interval"]["high"] - net["a"] == pytest.approx(reach, rel=1e-5)


def test_on_another_gpu_the_gain_does_not_cancel(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300))
    b = save(tmp_path, "b.json", measured(power=306, uuid="GPU-other"))
    doc = document(a, b)
    assert doc["energy"] == "cannot-tell"
    assert any("different GPUs" in n for n in doc["notes"])


def calibrated(doc, gain=1.06, **more):
    for run in doc["runs"]:
        for d in run["devices"]:
            d["sensor"].update({"calibrated": True, "gain": gain, "offset_watts": -9, "gain_uncertainty": 0.001,
                                "offset_uncertainty_watts": 0.2, "pivot_watts": 300,
                                "reference_uncertainty": 0.005, **more})
    return doc


def test_gpus_are_matched_by_uuid_and_shown_by_their_index(tmp_path):
    for name, gpus in (("a", "12"), ("b", "32"), ("c", "3")):
        done = gpuward("measure", "--simulate=eight-gpus", *[f"--gpu={g}" for g in gpus], "-q",
                       "-o", tmp_path / f"{name}.json", "--", "sleep", "0.1")
        assert done.returncode == OK, done.stderr
    said = rows(document(tmp_path / "a.json", tmp_path / "b.json", "--all"))
    assert {device for device, _ in said} == {None, 1, 2}
    assert said[(2, "uuid")]["state"] == "equal" and said[(1, "uuid")]["state"] == "differs"
    assert said[(1, "foreign-process")]["a"] and said[(1, "foreign-process")]["b"], "both had one"
    doc = document(tmp_path / "c.json", tmp_path / "b.json", "--all")
    assert [n for n in doc["notes"] if "sums" in n] == ["Power and energy of B are sums over 2 GPUs."]
    said = rows(doc)
    assert {device for device, _ in said} == {None, 2, 3}
    assert said[(3, "uuid")]["state"] == "equal" and said[(2, "uuid")]["a"] is None


def test_calibrated_against_uncalibrated_the_gain_does_not_cancel(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300))
    b = save(tmp_path, "b.json", calibrated(measured(power=306)))
    doc = document(a, b)
    assert doc["energy"] == "cannot-tell"
    assert any("different calibrations" in n for n in doc["notes"])
    assert rows(doc, "sensor")[(0, "gain")]["b"] == 1.06
    trials = {"trials": 4, "spread": 0.0005}
    a = save(tmp_path, "a.json", calibrated(measured(power=300, **trials)))
    b = save(tmp_path, "b.json", calibrated(measured(power=306, seed=9, **trials)))
    assert document(a, b)["energy"] == "differs"
    b = save(tmp_path, "b.json", measured(power=306, seed=9, **trials))
    assert document(a, b)["energy"] == "cannot-tell"


def test_trials_are_compared_by_their_scatter(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300, trials=5, spread=0.001))
    b = save(tmp_path, "b.json", measured(power=303, trials=5, spread=0.001, seed=9))
    assert document(a, b)["energy"] == "differs"
    b = save(tmp_path, "b.json", measured(power=303, trials=5, spread=0.1, seed=9))
    assert document(a, b)["energy"] == "cannot-tell"


def test_an_invalid_run_is_shown_and_decides_nothing(tmp_path):
    a = save(tmp_path, "a.json", measured(power=300))
    b = save(tmp_path, "b.json", measured(power=600, codes=("child-failed",)))
    doc = document(a, b)
    row = rows(doc)[(None, "energy_joules")]
    assert doc["energy"] == "unknown" and "no valid run" in doc["sentence"]
    assert row["b"] == pytest.approx(600 * 12.5) and row["change_ratio"] is None
    assert any(n.startswith("B has no valid run") for n in doc["notes"])


def test_a_bundle_with_itself_differs_in_nothing():
    doc = document(RECORDED, RECORDED)
    assert doc["energy"] == "equal"
    assert doc["count"]["differs"] == doc["count"]["cannot-tell"] == doc["count"]["unknown"] == 0
    assert doc["count"]["equal"] > 30
    assert {r["key"] for r in doc["rows"]} == {"energy_joules", "seconds", "power_mean_watts"}


def test_the_interval_that_only_a_bundle_records_is_no_difference(tmp_path):
    folder = bundle(tmp_path / "b", measured())
    setup = folder / "gpu0.setup.toml"
    setup.write_text(setup.read_text().replace("interval_s = 0.0", "interval_s = 0.1"))
    key = (None, "interval_seconds")
    assert rows(document("--all", folder, folder), "settings")[key]["state"] == "equal"
    assert key not in rows(document("--all", folder, save(tmp_path, "r.json", measured())), "settings")


def test_a_bundle_without_a_result_is_computed_from_its_readings():
    doc = document("--all", RECORDED, RECORDED)
    assert doc["a"]["remade"] and "no result.json" in doc["a"]["notes"][0]
    again = json.loads(gpuward("recompute", "--json", RECORDED).stdout)["windows"][0]
    row = rows(doc)[(None, "energy_joules")]
    assert row["a"] == again["energy_joules"]["best"]
    assert row["a_interval"] == pytest.approx(again["energy_joules"])
    assert rows(doc, "settings")[(None, "label")]["a"] == "40 ms on, 163 ms off"
    assert rows(doc, "gpu")[(0, "name")]["a"] == "NVIDIA H200"


def test_a_bundle_that_was_cut_off_is_compared_as_far_as_it_goes(tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(RECORDED, cut)
    (cut / "SHA256SUMS").unlink()
    (cut / "windows.tsv").unlink()
    lines = (cut / "gpu0.events").read_text().splitlines(keepends=True)
    (cut / "gpu0.events").write_text("".join(lines[:400]) + "P\t12")
    doc = document(RECORDED, cut)
    row = rows(doc)[(None, "energy_joules")]
    assert doc["energy"] == "unknown" and 0 < row["b"] < row["a"]
    assert rows(doc, "codes")[(0, "truncated")]["a"] is None
    assert any("is incomplete" in n for n in doc["b"]["notes"])
    assert any("truncated" in n for n in doc["b"]["notes"])


def test_changed_files_are_named(tmp_path):
    other = bundle(tmp_path / "b", measured())
    (other / "manifest.toml").write_text((other / "manifest.toml").read_text() + "# x\n")
    assert any("manifest.toml was changed after it was written" in n
               for n in document(RECORDED, other)["b"]["notes"])


def test_what_can_be_read_of_a_damaged_bundle_is_used(tmp_path):
    newer = bundle(tmp_path / "newer", measured())
    (newer / "manifest.toml").write_text("schema = 7\n")
    doc = document(newer, newer)
    assert not doc["a"]["remade"] and "newer" in doc["a"]["notes"][0]
    half = bundle(tmp_path / "half", measured())
    text = (half / "result.json").read_text()
    (half / "result.json").write_text(text[: len(text) // 2])
    doc = document(half, RECORDED)
    assert doc["a"]["remade"] and "not a valid JSON document" in doc["a"]["notes"][0]
    assert doc["energy"] == "equal"


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "manifest.toml").write_text("schema = 7\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no result")
    for path, word in (("newer", "schema 7 is newer"), ("empty", "manifest.toml"),
                       ("text", "not a result"), ("none", "No such file")):
        done = diff(RECORDED, tmp_path / path, code=FAILED)
        assert done.stdout == "" and word in done.stderr and done.stderr.count("\n") == 1
    for args in ((), (RECORDED,), (RECORDED, RECORDED, RECORDED)):
        assert "needs two bundles" in diff(*args, code=USAGE).stderr


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path):
    doc = measured([(("environment", "host", "kernel"), "\x1b[31mred\x1b[0m")], label="a\x1b]0;x\x07")
    done = diff("--all", save(tmp_path, "a.json", doc), RECORDED)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("width", range(60, 110, 5))
def test_the_names_of_figures_are_whole(tmp_path, width):
    a = save(tmp_path, "a.json", result("a", power=300, tokens=500))
    b = save(tmp_path, "b.json", result("b", power=300.1, tokens=500))
    out = diff(a, b, env=environment(COLUMNS=width)).stdout
    assert "\nPer iteration " in out and "\nPer token " in out and "…" not in out


@pytest.mark.parametrize("without", ["A", "B"])
def test_a_baseline_that_only_one_result_has_is_reported(tmp_path, without):
    bare = measured([(("runs", 0, "energy_net_joules"), None), (("runs", 0, "baseline_kind"), None)])
    other = measured(power=310)
    pair = (bare, other) if without == "A" else (other, bare)
    a, b = (save(tmp_path, f"{n}.json", doc) for n, doc in zip("ab", pair))
    has = "B" if without == "A" else "A"
    said = f"Only {has} has a baseline, so net energies cannot be compared; gross energies can. Measure {without} again"
    assert said in diff(a, b).stdout and any(said in n for n in document(a, b)["notes"])
    assert "has a baseline" not in diff(save(tmp_path, "c.json", measured()), save(tmp_path, "d.json", other)).stdout


def test_an_uncertainty_that_is_a_share_is_a_percentage(tmp_path):
    a = save(tmp_path, "a.json", calibrated(measured(), reference_uncertainty=0.0051021345))
    b = save(tmp_path, "b.json", calibrated(measured(), reference_uncertainty=0.0102))
    assert re.search(r"reference uncertainty +0.51 % +1.02 %", diff(a, b).stdout)


def test_units_are_those_of_compare(tmp_path):
    for name, seconds in (("a", 5.015), ("b", 5.5)):
        with open(tmp_path / f"{name}.json", "w") as f:
            doc = result(name, seconds=seconds, size=500e6 if name == "a" else 250e6, trials=3, spread=0.01)
            for i, run in enumerate(doc["runs"]):
                run["latency_seconds"] *= 1 + 0.01 * i
            json.dump(doc, f)
    shown = gpuward("diff", "a.json", "b.json", cwd=tmp_path, env=environment(COLUMNS=200)).stdout
    table = gpuward("compare", "a.json", "b.json", cwd=tmp_path, env=environment(COLUMNS=200)).stdout
    for words in ("500 MB", "250 MB", *re.findall(r"[0-9.]+ ms", table)):
        assert words in shown, (words, shown)
    assert re.search(r"Latency +5\.\d{3} ms ±0\.\d{3} +5\.\d{3} ms", shown), shown


@pytest.mark.parametrize("width", [60, 200])
def test_text_is_as_it_was(tmp_path, width):
    """GPUWARD_GOLDEN=write writes it again; read the difference before you commit it."""
    path = TOP / "tests" / "golden" / f"diff-{width}.txt"
    bundle(tmp_path / "monday", measured(power=300, label="fp16"))
    bundle(tmp_path / "tuesday", measured(
        [(("environment", "host", "kernel"), "6.12.0"), (("command_name",), "python3.13")],
        device={"persistence_mode": False}, power=320, label="fp16", codes=("throttle-power",)))
    done = diff("monday", "tuesday", cwd=tmp_path, env=environment(COLUMNS=width))
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        path.write_text(done.stdout)
    assert done.stdout == path.read_text()
    assert max(len(line) for line in done.stdout.splitlines()) <= width
