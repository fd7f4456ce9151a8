"""Tests gpuward baseline on the simulator: baselines are measured, stored, refused, shown and removed."""
import json
import pathlib
import re
import signal
import subprocess

import pytest

from support import (
    FAILED, NO_GPU, OK, PROGRAM, TIMEOUT, USAGE, check, document, environment, gpuward, on_terminal, until_caught,
)

IDLE = "--simulate=idle-h200"
SHORT = ("--time", "2s")


@pytest.fixture
def env(tmp_path):
    return environment(XDG_CACHE_HOME=tmp_path / "cache")


def kept(env):
    """Returns the stored baseline files; each scenario has its own folder."""
    folder = pathlib.Path(env["XDG_CACHE_HOME"], "gpuward/baseline")
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_an_idle_gpu_has_one_and_it_is_kept(env):
    [b] = document("baseline", IDLE, *SHORT, env=env)["baselines"]
    assert b["kept"] and b["message"] is None
    assert b["kind"] == "no-context"
    assert abs(b["power_watts"] - 80) < 3
    assert b["duration_seconds"] == 2
    assert b["half_width_watts"] > b["standard_error_watts"] > 0
    assert len(kept(env)) == 1
    shown = document("baseline", IDLE, "--show", env=env)["baselines"]
    assert [s["kind"] for s in shown] == ["no-context", "context-idle", "hot-idle"]
    assert shown[0]["power_watts"] == b["power_watts"]
    assert shown[0]["taken_utc"] == b["taken_utc"]
    assert shown[1]["power_watts"] is None
    assert shown[1]["message"] == "no baseline of this GPU and kind is stored"


def test_runs_of_one_result_are_shown_above_idle_as_one_mean(env, tmp_path):
    document("baseline", IDLE, *SHORT, env=env)
    out = tmp_path / "r.json"
    done = gpuward("measure", IDLE, "--trials=3", "--no-cooldown", "-o", out, "--", "sleep", "0.3", env=env)
    net = [r["energy_net_joules"]["best"] for r in json.loads(out.read_text())["runs"]]
    said = re.search(r"^Above idle +(-?[\d.]+) (?:±|\+-) ([\d.]+) J \(no-context baseline of", done.stderr, re.M)
    assert done.returncode == OK and said, done.stderr
    assert abs(float(said[1]) - sum(net) / 3) < 0.1 and float(said[2]) > 0


def test_a_baseline_of_a_scenario_is_used_for_that_scenario_alone(env, tmp_path):
    [b] = document("baseline", IDLE, *SHORT, env=env)["baselines"]
    [path] = kept(env)
    assert path.startswith("simulated-"), "the folder of the baselines of real GPUs has no such prefix"
    shown = lambda *options: document("baseline", *options, "--show", env=env)
    assert shown(IDLE)["baselines"][0]["power_watts"] == b["power_watts"]
    assert shown(IDLE)["source"]["simulated"] is True
    other = tmp_path / "other.toml"
    for begin in (1, 2):  # the same card, UUID and driver; but a changed file is another scenario
        other.write_text(f'[time]\nbegin = {begin}\n[[gpu]]\nprofile = "h200"\n')
        doc = shown(f"--simulate={other}")
        assert doc["baselines"][0]["device_uuid"] == b["device_uuid"]
        assert doc["baselines"][0]["message"] == "no baseline of this GPU and kind is stored"
        out = tmp_path / "r.json"
        assert gpuward("measure", f"--simulate={other}", "-o", out, "--", "true", env=env).returncode == OK
        assert json.loads(out.read_text())["runs"][0]["baseline_kind"] is None
        document("baseline", f"--simulate={other}", *SHORT, env=env)


def test_kinds_are_kept_apart(env):
    document("baseline", IDLE, *SHORT, env=env)
    document("baseline", IDLE, *SHORT, "--kind=hot-idle", env=env)
    shown = document("baseline", IDLE, "--show", env=env)["baselines"]
    assert [s["kept"] for s in shown] == [True, False, True]
    [one] = document("baseline", IDLE, "--show", "--kind=hot-idle", env=env)["baselines"]
    assert one["kind"] == "hot-idle" and one["kept"]


def test_a_process_on_the_gpu_is_named_and_nothing_is_kept(env):
    done = gpuward("baseline", "--simulate", *SHORT, env=env)
    assert done.returncode == FAILED
    assert "no no-context baseline of GPU 0 was stored: the GPU was not idle: python train.py (pid" in done.stderr
    assert "no no-context baseline of GPU 1 was stored" in done.stderr
    assert kept(env) == []


def test_json_of_a_busy_gpu_names_the_process(env):
    done = gpuward("baseline", "--simulate", "--gpu=0", *SHORT, "--json", env=env)
    assert done.returncode == FAILED
    doc = json.loads(done.stdout)
    check("baseline", doc)
    [b] = doc["baselines"]
    assert not b["kept"]
    assert "python train.py" in b["message"]
    assert "baseline-contended" in b["codes"]


def test_a_context_idle_baseline_needs_a_process_of_ours_with_a_context(env, scenario):
    done = gpuward("baseline", IDLE, *SHORT, "--kind=context-idle", env=env)
    assert done.returncode == FAILED
    assert "was stored: the process that should have a context on the GPU has none" in done.stderr
    assert "--pid" in done.stderr
    own = scenario('[[gpu]]\nprofile = "h200"\n[[gpu.process]]\npid = "self"\nshare = 0\n')
    [b] = document("baseline", own, *SHORT, "--kind=context-idle", env=env)["baselines"]
    assert b["kept"] and abs(b["power_watts"] - 124) < 3


def test_a_process_named_with_pid_counts_as_our_context(env, scenario):
    holder = subprocess.Popen(["sleep", str(TIMEOUT)])
    try:
        world = scenario(
            f'[[gpu]]\nprofile = "h200"\n[[gpu.process]]\npid = {holder.pid}\nshare = 0\n'
        )
        args = ("baseline", world, *SHORT, "--kind=context-idle")
        assert gpuward(*args, env=env).returncode == FAILED
        assert gpuward(*args, f"--pid={holder.pid}", env=env).returncode == OK
    finally:
        holder.kill()
        holder.wait()


def test_a_damaged_file_is_ignored_and_named(env):
    document("baseline", IDLE, *SHORT, env=env)
    [name] = kept(env)
    path = env["XDG_CACHE_HOME"] + "/gpuward/baseline/" + name
    with open(path, "r+") as f:
        f.truncate(100)
    [b] = document("baseline", IDLE, "--show", "--kind=no-context", env=env)["baselines"]
    assert not b["kept"] and b["message"] == f"{path} is damaged and was ignored"


def test_a_baseline_that_is_too_old_is_not_shown(env):
    document("baseline", IDLE, *SHORT, env=env)
    args = ("baseline", IDLE, "--show", "--kind=no-context")
    [b] = document(*args, "--ttl=1ms", env=env)["baselines"]
    assert not b["kept"] and "old" in b["message"]
    [b] = document(*args, env=env)["baselines"]
    assert b["kept"]


def test_clear_forgets(env):
    document("baseline", IDLE, *SHORT, env=env)
    done = gpuward("baseline", IDLE, "--clear", "--gpu=0", env=env)
    assert (done.returncode, done.stdout) == (OK, "1 baseline deleted\n")
    assert kept(env) == []


def test_a_folder_that_cannot_be_written_is_reported(env):
    env["XDG_CACHE_HOME"] = "/proc/none"
    done = gpuward("baseline", IDLE, *SHORT, env=env)
    assert done.returncode == FAILED
    assert "/proc/none cannot be created" in done.stderr


def test_ctrl_c_ends_it_and_keeps_nothing(env):
    p = subprocess.Popen([str(PROGRAM), "baseline", IDLE], env=env, stderr=subprocess.PIPE, text=True)
    until_caught(p, signal.SIGINT)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=TIMEOUT)
    assert p.returncode == 128 + signal.SIGINT
    assert "interrupted before the baseline was known" in err
    assert kept(env) == []


def test_a_terminal_shows_the_progress_of_a_baseline(env):
    out, code = on_terminal(80, "baseline", IDLE, *SHORT, XDG_CACHE_HOME=env["XDG_CACHE_HOME"])
    assert code == OK
    assert "0 s of at most 2 s" in out and "no-context" in out
    quiet, _ = on_terminal(80, "baseline", IDLE, *SHORT, "-q", XDG_CACHE_HOME=env["XDG_CACHE_HOME"])
    assert "of at most" not in quiet


@pytest.mark.parametrize(
    "args",
    [("--time=1s",), ("--time=11m",), ("--show", "--clear"), ("--kind=warm",), ("--pid=me",)],
)
def test_wrong_usage(env, args):
    assert gpuward("baseline", IDLE, *args, env=env).returncode == USAGE


def test_no_gpu_is_reported(env, bare):
    done = gpuward("baseline", *bare, env=env)
    assert done.returncode == NO_GPU
    assert "no GPU was found" in done.stderr


@pytest.mark.parametrize("command", ["list", "baseline", "doctor"])
def test_without_a_gpu_the_simulator_is_named_once(command):
    done = gpuward(command)
    if "o GPU was found" not in done.stdout + done.stderr:
        pytest.skip("this machine has a GPU")
    assert (done.stdout + done.stderr).count("To try it on simulated GPUs, add --simulate.") == 1, done
    for option in ("--quiet", "--json", "--simulate=no-gpu"):
        quiet = gpuward(command, option)
        assert "To try it" not in quiet.stdout + quiet.stderr, quiet
