"""Tests that Zeus and CodeCarbon, run from their source, measure the same energy as gpuward for one load in one
simulated world."""
import json
import os
import pathlib
import shutil

import pytest

import client_root
import support

pytestmark = pytest.mark.skipif(client_root.missing() is not None, reason=str(client_root.missing()))

# GPU 0 is busy for 50 ms of every 100 ms, GPU 1 for ten of every fifteen seconds. Both programs read the counter, which
# has a new value every 100 ms. So each end of a window may be wrong by 100 ms, which is 0.13 % of 75 s.
SECONDS = 75
LOAD = """
[time]
begin = 20
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "square"
unit = "watts"
high = 313.4
low = 120.5
period = 0.1
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "square"
period = 15
duty = 0.667
"""


@pytest.mark.parametrize("name", ["zeus", "codecarbon"])
def test_energy_agrees_within_half_a_percent(name, tmp_path):
    source = os.environ.get(f"GPUWARD_{name.upper()}")
    if not source:
        pytest.skip(f"GPUWARD_{name.upper()} names no folder with the source of {name}")
    if not pathlib.Path(source, name, "__init__.py").exists():
        pytest.skip(f"{source} is not the source of {name}: it has no {name}/__init__.py")
    shutil.copytree(pathlib.Path(source, name), tmp_path / name / name)
    shutil.copytree(support.TOP / "python" / "gpuward", tmp_path / "gpuward")
    shutil.copy(support.BUILD / "libgpuward.so", tmp_path)
    world = tmp_path / "load.toml"
    world.write_text(LOAD)
    done = client_root.run(tmp_path, world, "python3", "/mnt/inside/probe_energy.py", name, str(SECONDS), PYTHONPATH="/mnt",
                           GPUWARD_LIBRARY="/mnt/libgpuward.so")
    assert done.rc == 0, done.stderr[-2000:]
    assert done.lacks == []
    joules = json.loads(done.stdout.splitlines()[-1])
    if "missing" in joules:
        pytest.skip(f"{name} needs the Python module {joules['missing']}, which the root folder does not have")
    print(joules)
    assert joules["ours"] == pytest.approx(joules["true"], rel=0.005)
    assert joules["other"] == pytest.approx(joules["ours"], rel=0.005)
