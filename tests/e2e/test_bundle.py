"""Tests bundles: written during the measurement, recomputed, replayed; after a kill, on a full disk, and damaged."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from service import Service
from support import FIXTURES, gpuward, environment, PROGRAM


def measure(folder, *args, command=("sleep", "0.6"), **kw):
    return gpuward("measure", "--simulate=two-gpus", "--bundle", str(folder), *args, "--", *command, **kw)


def test_a_bundle_gives_the_same_joules_to_the_bit(tmp_path):
    bundle = tmp_path / "run"
    done = measure(bundle, "--label", "a \"b\"\tc", "--trials", "2")
    assert done.returncode == 0, done.stderr
    again = gpuward("recompute", "--json", str(bundle))
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert found["whole"] and found["finished"] and found["bad_lines"] == 0
    assert len(found["windows"]) == 4
    assert all(w["recorded"] and w["same"] for w in found["windows"])
    result = json.loads((bundle / "result.json").read_text())
    for run in result["runs"]:
        for d in run["devices"]:
            assert any(w["energy_joules"]["best"] == d["energy_joules"]["best"]
                       for w in found["windows"] if w["device"] == d["index"])
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=bundle).returncode == 0


def test_windows_that_a_program_marks_are_in_the_bundle(tmp_path):
    bundle = tmp_path / "run"
    # The part that is measured takes 0.3 s.
    script = ("import os,time; f=os.fdopen(int(os.environ['GPUWARD_MARK_FD']),'w',1);"
              "print('begin part', file=f); time.sleep(.3); print('end part', file=f)")
    done = measure(bundle, command=("/usr/bin/python3", "-c", script))
    assert done.returncode == 0, done.stderr
    found = json.loads(gpuward("recompute", "--json", str(bundle)).stdout)
    assert {w["label"] for w in found["windows"]} >= {"part"}
    assert all(w["same"] for w in found["windows"])


def test_a_killed_measurement_keeps_what_was_read(tmp_path):
    bundle = tmp_path / "run"
    child = subprocess.Popen([PROGRAM, "measure", "--simulate=two-gpus", "--bundle", str(bundle), "--",
                              "sleep", "30"], env=environment(), stderr=subprocess.DEVNULL,
                             start_new_session=True)

    def windows():
        done = gpuward("recompute", "--json", str(bundle))
        return json.loads(done.stdout)["windows"] if done.stdout else []
    # the files have enough readings to compute an energy
    Service.wait(lambda: len(windows()) == 2 and all(w["energy_joules"]["best"] for w in windows()))
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    again = gpuward("recompute", "--json", str(bundle))
    found = json.loads(again.stdout)
    assert not found["finished"]
    assert "is incomplete" in again.stderr
    for w in found["windows"]:
        assert w["cut"] and w["validity"] == "invalid" and "truncated" in w["codes"]
        assert w["energy_joules"]["best"] > 0


def test_a_full_disk_is_reported_and_the_summary_is_printed(tmp_path):
    bundle = tmp_path / "run"
    bundle.mkdir()
    (bundle / "in the way").touch()
    done = measure(bundle)
    assert done.returncode == 1 and "not empty" in done.stderr


def test_recompute_shows_trials_and_runs_that_failed_for_other_reasons(tmp_path):
    bundle, once = tmp_path / "run", tmp_path / "count"
    script = f"echo x >>{once}; sleep 0.2; [ $(wc -l <{once}) -lt 4 ]"  # run 1 is the warm-up; run 4, the third trial, fails
    measure(bundle, "--warmup=1", "--trials=4", "--trial=5", "--no-cooldown", command=("sh", "-c", script))
    doc = json.loads(gpuward("recompute", "--json", bundle).stdout)
    assert doc["simulated"] is True
    seen = [(w["label"], w["trial"], w["run_validity"]) for w in doc["windows"] if w["device"] == 0]
    assert [s[:2] for s in seen] == [("warm-up", None), ("sh", 5), ("sh", 6), ("sh", 7)]
    assert [s[2] == "invalid" for s in seen] == [False, False, False, True]
    text = gpuward("recompute", bundle).stdout
    assert text.splitlines()[0].strip() == "SIMULATED  these GPUs are not real"
    lines = [line.split() for line in text.splitlines() if " sh " in line]
    assert [line[2] for line in lines[:3]] == ["5", "6", "7"]
    assert "invalid: child-failed" in text and text.count("child-failed") == 2  # two GPUs
    assert gpuward("replay", bundle).stdout.count("# SIMULATED: the power is not that of a real GPU") == 2


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    for path, word in ((tmp_path, "manifest.toml"), (tmp_path / "none", "manifest.toml"),
                       ("/dev/null", "/dev/null is not a bundle: a bundle is the folder that gpuward measure --bundle writes")):
        done = gpuward("recompute", str(path))
        assert done.returncode == 1 and word in done.stderr
    (tmp_path / "manifest.toml").write_text("schema = 7\n")
    done = gpuward("recompute", str(tmp_path))
    assert done.returncode == 1 and "newer" in done.stderr
    assert gpuward("recompute").returncode == 2
    assert gpuward("replay").returncode == 2
    assert gpuward("replay", "--device", "x", str(tmp_path)).returncode == 2


def test_points_of_a_replay_have_no_more_digits_than_a_millionth(tmp_path):
    bundle = FIXTURES / "bundle-h200"
    text = gpuward("replay", str(bundle)).stdout
    numbers = [n for pair in re.findall(r"\[([\d.e+-]+), ([\d.e+-]+)\]", text) for n in pair]
    assert len(numbers) > 100
    assert [n for n in numbers if len(n.partition(".")[2]) > 6 or "e" in n] == []


def test_a_replay_refuses_a_changed_bundle_and_times_that_go_back(tmp_path):
    bundle = tmp_path / "run"
    shutil.copytree(FIXTURES / "bundle-h200", bundle)
    assert gpuward("replay", str(bundle)).returncode == 0
    events = bundle / "gpu0.events"
    lines = events.read_text().splitlines(keepends=True)
    power = [i for i, line in enumerate(lines) if line.startswith("P")]
    lines[power[3]], lines[power[5]] = lines[power[5]], lines[power[3]]
    events.write_text("".join(lines))
    done = gpuward("replay", str(bundle))
    assert done.returncode == 1 and done.stdout == ""
    assert f"{events} was changed after it was written" in done.stderr
    (bundle / "SHA256SUMS").unlink()
    done = gpuward("replay", str(bundle))
    assert done.returncode == 1 and done.stdout == ""
    assert "the times of GPU 0's power samples go back" in done.stderr


@pytest.mark.parametrize("command", ["replay", "report", "plot", "compare"])
def test_an_output_inside_the_bundle_is_refused(tmp_path, command):
    bundle, link = tmp_path / "run", tmp_path / "link"
    assert measure(bundle, "--gpu", "0").returncode == 0
    before = {f.name: f.read_bytes() for f in bundle.iterdir()}
    link.symlink_to(bundle / "manifest.toml")
    for out in bundle / "manifest.toml", bundle / "new", f"{tmp_path}/./run/gpu0.events", link:
        done = gpuward(command, str(bundle), "-o", str(out))
        assert done.returncode == 2 and f"{out} is inside the bundle {bundle} and would change it" in done.stderr
        assert {f.name: f.read_bytes() for f in bundle.iterdir()} == before
    done = gpuward(command, ".", "-o", "new", cwd=bundle)
    assert done.returncode == 2 and "is inside the bundle ." in done.stderr
    assert gpuward(command, str(bundle), "-o", str(tmp_path / "out")).returncode == 0


def test_a_replayed_bundle_is_measured_again(tmp_path):
    bundle, again = tmp_path / "run", tmp_path / "again.toml"
    assert measure(bundle, "--gpu", "0").returncode == 0
    assert gpuward("replay", str(bundle), "-o", str(again)).returncode == 0
    first = json.loads((bundle / "result.json").read_text())["runs"][0]["devices"][0]
    done = gpuward("measure", f"--simulate={again}", "--json", "--", "sleep", "0.6")
    second = json.loads(done.stdout)["runs"][0]["devices"][0]
    assert abs(second["power_watts"]["mean"] / first["power_watts"]["mean"] - 1) < 0.1
