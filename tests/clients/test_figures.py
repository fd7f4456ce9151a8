"""Tests that nvtop, nvitop, gpustat, btop and pynvml show the same figures as gpuward in every scenario of the
simulator."""
import json
import os
import re
import subprocess

import pytest

import client_root
import support
from client_root import SCENARIOS, frozen, run, snapshot

pytestmark = pytest.mark.skipif(client_root.missing() is not None, reason=str(client_root.missing()))
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS)

# gpuward reports these as unknown; other programs show the number that stands for "not available". Only gpuward reads
# the power limit with another call if the first fails.
SENTINELS = {"sentinels": {"power_watts", "energy_joules", "utilization_gpu_ratio", "utilization_memory_ratio", "power_limit_watts"}}

# Scenarios with process lists that cannot be compared: "mig" has one list per instance, "container" lists the reading
# process itself. pynvml 12 refuses the lists of driver 450, and reads entries of 24 bytes where driver 535.54 writes
# 32; gpuward reads both.
OTHER_LISTS = {"mig", "container", "ancient-driver", "old-driver-r535"}


def readable(document):
    """The GPUs that the driver can read."""
    return [d for d in document["devices"] if d["state"] != "lost"]


def same(ours, theirs, digits):
    if isinstance(theirs, str):
        return ours == (theirs.strip() or None)  # gpuward reports a blank name as unknown
    if ours is None or theirs is None or isinstance(ours, (str, bool)):
        return ours == theirs
    return abs(ours - theirs) <= digits


def differences(device, figures, ignore=(), digits=1e-9):
    """One sentence per figure that differs from gpuward's figure by more than `digits`."""
    return [f"GPU {device['index']} {key}: gpuward {device[key]}, the program {theirs}"
            for key, theirs in figures.items() if key not in ignore and not same(device[key], theirs, digits)]


def pids(document, index):
    return {str(p["pid"]): p["memory_bytes"] for p in document["processes"] if p["device_index"] == index}


def probed(scenario, tmp_path, script):
    """Returns the documents of gpuward and of a program in tests/clients/inside. The latter is None if no GPU can be read."""
    world = frozen(scenario, tmp_path)
    ours = snapshot(world)
    done = run(tmp_path, world, "python3", f"/mnt/inside/{script}")
    assert done.rc == 0, done.stderr
    theirs = json.loads(done.stdout)
    assert done.lacks == []
    if "error" not in theirs:
        return ours, theirs
    assert not ours["gpu_available"]
    return ours, None


@every_scenario
def test_pynvml_reads_the_same_figures_and_finds_every_function(scenario, tmp_path):
    ours, theirs = probed(scenario, tmp_path, "probe_pynvml.py")
    if not theirs:
        return
    assert len(theirs["gpus"]) == len(ours["devices"])
    assert not theirs["gpus"] or theirs["calls"] > 60
    wrong = []
    for device, gpu in zip(ours["devices"], theirs["gpus"]):
        if device["state"] == "lost":
            assert gpu == {"error": 15}
            continue
        wrong += differences(device, gpu["figures"], SENTINELS.get(scenario, ()), digits=1e-6)
        if scenario not in OTHER_LISTS and gpu["processes"] != pids(ours, device["index"]):
            wrong.append(f"GPU {device['index']}: other processes: {gpu['processes']}")
    assert wrong == []


@every_scenario
def test_nvitop_shows_the_same_figures(scenario, tmp_path):
    ours, theirs = probed(scenario, tmp_path, "probe_nvitop.py")
    if not theirs:
        return
    wrong = []
    for device, gpu in zip(ours["devices"], theirs["gpus"], strict=True):
        if device["state"] != "lost":
            wrong += differences(device, gpu["figures"], SENTINELS.get(scenario, ()), digits=1e-6)
    assert wrong == []


@every_scenario
def test_gpustat_shows_the_same_figures(scenario, tmp_path):
    world = frozen(scenario, tmp_path)
    ours = snapshot(world)
    done = run(tmp_path, world, "gpustat", "--json")
    assert done.lacks == []
    if not ours["gpu_available"] or scenario == "ancient-driver":  # gpustat's pynvml refuses driver 450
        assert done.rc != 0 or json.loads(done.stdout)["gpus"] == []
        return
    theirs = json.loads(done.stdout)["gpus"]
    wrong = []
    for device, gpu in zip(ours["devices"], theirs, strict=True):
        if device["state"] == "lost":
            continue
        mib = {"memory_used_bytes": "memory.used", "memory_total_bytes": "memory.total"}
        figures = {"name": gpu["name"], "uuid": gpu["uuid"], "temperature_gpu_celsius": gpu["temperature.gpu"]}
        wrong += differences(device, figures)
        whole = {"power_watts": gpu["power.draw"], "power_limit_watts": gpu["enforced.power.limit"],
                 **{k: None if gpu[v] is None else gpu[v] << 20 for k, v in mib.items()}}
        for key, theirs_ in whole.items():
            wrong += differences(device, {key: theirs_}, SENTINELS.get(scenario, ()), 1 << 20 if key in mib else 1)
        percent = gpu["utilization.gpu"]
        wrong += differences(device, {"utilization_gpu_ratio": None if percent is None else percent / 100},
                             SENTINELS.get(scenario, ()), 1e-6)
    assert wrong == []


def number(text, unit):
    return None if text is None else float(text.removesuffix(unit))


@every_scenario
def test_nvtop_shows_the_same_figures(scenario, tmp_path):
    world = frozen(scenario, tmp_path)
    ours = snapshot(world)
    done = run(tmp_path, world, "nvtop", "--snapshot")
    assert done.lacks == []
    if scenario == "odd-names":
        assert "Söhne" in done.stdout  # nvtop does not escape a quote in a name, so its output is not valid JSON
        return
    if not ours["gpu_available"]:
        assert done.rc != 0 or "device_name" not in done.stdout
        return
    wrong = []
    for device, gpu in zip(readable(ours), json.loads(done.stdout), strict=True):
        wrong += differences(device, {"name": gpu["device_name"], "temperature_gpu_celsius": number(gpu["temp"], "C"),
                                      "clock_graphics_hertz": (number(gpu["gpu_clock"], "MHz") or 0) * 1e6})
        wrong += differences(device, {"power_watts": number(gpu["power_draw"], "W")}, SENTINELS.get(scenario, ()), 1)
        percent = number(gpu["gpu_util"], "%")
        wrong += differences(device, {"utilization_gpu_ratio": None if percent is None else percent / 100},
                             SENTINELS.get(scenario, ()), 1e-6)
    assert wrong == []


def screen(socket):
    return subprocess.run(["tmux", "-S", socket, "capture-pane", "-p"], capture_output=True, text=True).stdout


@every_scenario
def test_btop_starts_and_shows_the_gpu(scenario, tmp_path):
    world = frozen(scenario, tmp_path)
    ours = snapshot(world)
    socket = str(tmp_path / "tmux")
    (tmp_path / "btop").mkdir()
    (tmp_path / "btop" / "btop.conf").write_text('shown_boxes = "cpu gpu0"\nupdate_ms = 200\n')
    argv = client_root.command(tmp_path, world, "btop", "--force-utf", XDG_CONFIG_HOME="/mnt")
    subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "50", *argv], check=True,
                   env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    try:
        device = readable(ours)[0] if readable(ours) else None
        if device is None:
            support.wait(lambda: "cpu" in screen(socket), "the screen of btop")
        else:
            # btop hides the row with the temperature if the utilisation is unknown, as with MIG.
            shown = rf"GPU .*{device['temperature_gpu_celsius']:.0f}°C" if not device["mig_mode"] else \
                rf"PWR .*{device['power_watts']:.0f}W"
            support.wait(lambda: re.search(shown, screen(socket)), f"{shown} in btop")
            assert "gpu0" in screen(socket)
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], check=False)
    assert client_root.linker(tmp_path, world) == []


def test_processes_that_exist_are_shown_with_their_memory(tmp_path):
    child = subprocess.Popen(["sleep", "600"])
    try:
        world = client_root.stopped(f'[[gpu]]\nprofile = "h100"\n[[gpu.load]]\nkind = "constant"\n[[gpu.process]]\n'
                                    f'pid = {child.pid}\nmemory = "3 GiB"\n', 20, tmp_path / "process.toml")
        expected = {str(child.pid): 3 << 30}
        assert pids(snapshot(world), 0) == expected
        for probe in ("pynvml", "nvitop"):
            done = run(tmp_path, world, "python3", f"/mnt/inside/probe_{probe}.py")
            assert json.loads(done.stdout)["gpus"][0]["processes"] == expected, probe
        gpu = json.loads(run(tmp_path, world, "gpustat", "--json").stdout)["gpus"][0]
        assert [(p["pid"], p["gpu_memory_usage"], p["command"]) for p in gpu["processes"]] == [(child.pid, 3 << 10, "sleep")]
    finally:
        child.kill()
        child.wait()


def test_a_function_that_the_simulator_lacks_is_noticed(tmp_path):
    gpu = '[[gpu]]\nprofile = "h100"\n'
    whole = client_root.stopped(gpu, 20, tmp_path / "whole.toml")
    lacking = client_root.stopped('[driver]\nmissing = ["nvmlDeviceGetTemperature"]\n' + gpu, 20, tmp_path / "lacking.toml")
    run(tmp_path, lacking, "gpustat", "--json")
    assert client_root.linker(tmp_path, whole) == ["nvmlDeviceGetTemperature"]


@pytest.mark.skipif(not os.path.lexists(f"{client_root.ROOT}/usr/bin/nvidia-smi"), reason="the root folder has no nvidia-smi")
def test_nvidia_smi_refuses_a_library_without_private_functions(tmp_path):
    """If this fails, nvidia-smi may have become a client like the others; see docs/SIMULATOR.md."""
    text = '[driver]\nversion = "550.163.01"\nnvml = "12.550.163.01"\ncuda = 12040\n[[gpu]]\nprofile = "h100"\n'
    world = client_root.stopped(text, 20, tmp_path / "driver-550.toml")
    done = run(tmp_path, world, "nvidia-smi")
    assert "Mismatch in versions between nvidia-smi and NVML" in done.stdout
    assert done.lacks == ["nvmlInternalGetExportTable"]
