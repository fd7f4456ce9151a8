"""Runs real NVML programs in a root folder, on a simulated machine whose time stands still.

    world = frozen("mixed", tmp_path)        the same figures at every reading, for each program
    done = run(tmp_path, world, "gpustat", "--json")
    done.stdout, done.lacks                  lacks: functions of NVML that the program looked up and did not find

Each program starts its own world, so only a world whose time stands still shows all programs the same figures."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import types

import support

ROOT = os.environ.get("GPUWARD_CLIENTS_ROOT")
HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = sorted(p.stem for p in (support.TOP / "sim" / "scenarios").glob("*.toml"))
# The second at which the time of a scenario stops, if it is not 60: before a call hangs, while a GPU is lost, while all
# processes exist, before a MIG instance is removed.
STOP = {"hung-call": 2, "lost-gpu": 10, "crowd": 5, "mig": 20, "driver-reload": 5}


def missing():
    """Returns why the programs cannot run; None: they can."""
    if not ROOT:
        return "GPUWARD_CLIENTS_ROOT names no root folder (tests/clients/run makes one)"
    if not pathlib.Path(ROOT, "usr/bin/nvtop").exists():
        return f"{ROOT} has no nvtop; tests/clients/run makes a root folder"
    if os.geteuid() != 0:
        return "chroot needs root"
    return None


def frozen(scenario, folder):
    """Writes a copy of the scenario in which time stands still."""
    text = (support.TOP / "sim" / "scenarios" / f"{scenario}.toml").read_text()
    text = re.sub(r"^\[time\]\n(?:[^\[\n].*\n|\n)*", "", text, flags=re.M)
    return stopped(text, STOP.get(scenario, 60), folder / f"{scenario}.toml")


def stopped(text, second, path):
    path.write_text(f'[time]\nmode = "stepped"\nbegin = {second}\nwall = 1700000000\n\n{text}')
    return path


def hidden(world):
    """The functions that the driver of this scenario does not have."""
    found = re.search(r"^missing = \[(.*?)\]", world.read_text(), re.M | re.S)
    return set(re.findall(r'"(\w+)"', found.group(1))) if found else set()


def snapshot(world):
    done = support.gpuward("snapshot", f"--simulate={world}", "--json")
    return json.loads(done.stdout)


def command(folder, world, *argv, **variables):
    """The command line that runs argv in the root, with the folder at /mnt and the simulator as its NVML.

    The dynamic linker writes into /mnt/linker.PID which libraries it loads and which symbols it does not find."""
    shutil.copy(support.SIMULATOR, folder)
    shutil.copytree(HERE / "inside", folder / "inside", dirs_exist_ok=True)
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm-256color", "HOME": "/mnt", "GPUWARD_SIM": f"/mnt/{world.name}",
           "LD_LIBRARY_PATH": "/mnt", "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": "/mnt/linker", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return [str(support.TOP / "tests" / "in-root"), ROOT, str(folder), *(f"{k}={v}" for k, v in env.items()), *argv]


def linker(folder, world):
    """Returns the functions that the program looked up in NVML and did not find, except those that the scenario hides.
    Checks that the program loaded the simulator."""
    text = "".join(p.read_text(errors="replace") for p in folder.glob("linker.*"))
    assert "calling init: /mnt/libnvidia-ml.so.1" in text, "the program did not load the simulator"
    return sorted(set(re.findall(r"undefined symbol: (nvml\w+)", text)) - hidden(world))


def run(folder, world, *argv, **variables):
    done = subprocess.run(command(folder, world, *argv, **variables), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=support.TIMEOUT * 2)
    assert done.returncode >= 0, f"{argv[0]} ended by signal {-done.returncode}: {done.stderr[-2000:]}"
    return types.SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr, lacks=linker(folder, world))
