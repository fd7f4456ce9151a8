"""The examples do what they say, on the simulator."""
import json
import subprocess
import sys

import pytest

from support import BUILD, OK, PROGRAM, SIMULATOR, TIMEOUT, TOP, environment, gpuward

EXAMPLES = TOP / "examples"
PRECISIONS = ("fp32", "fp16", "int8")
WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "int8": 1}


def lacking(*commands):
    """The commands that the built program does not have."""
    helped = gpuward("--help").stdout.splitlines()
    have = {line.split()[0] for line in helped if line.startswith("  ") and line.split()}
    return [c for c in commands if c not in have]


def run(*words, **changes):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=TIMEOUT,
        env=environment(**changes))


def window(*words, **changes):
    return run(BUILD / "examples" / "window", *words, LD_LIBRARY_PATH=SIMULATOR.parent,
               XDG_CACHE_HOME="/nonexistent", **changes)


def test_the_window_example_prints_joules_with_an_interval():
    done = window("1.5", GPUWARD_SIM="h200")
    assert done.returncode == OK, done.stderr
    mark, *lines = [l for l in done.stdout.splitlines() if not l.startswith("\t")]
    assert mark == "SIMULATED: no figure is real"
    assert [l.split(",")[0] for l in lines] == ["all", "second half"]
    for line, seconds in zip(lines, (1.5, 0.75)):
        words = line.replace("(", "").replace(")", "").replace(";", "").split("GPU 0:")[1].split()
        best, low, high = float(words[0]), float(words[2]), float(words[4])
        assert low < best < high
        # The load of this scenario draws 690 to 700 W; a busy machine may stretch the sleep.
        assert 600 * seconds < best < 750 * float(words[6])
    assert "counter+ring" in done.stdout


def test_the_window_example_bears_a_machine_without_a_gpu():
    done = window("0.1", GPUWARD_SIM="no-gpu")
    assert (done.returncode, done.stdout) == (OK, "this machine has no GPU\n")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_size_of_the_layer_follows_from_its_precision(precision):
    done = run(sys.executable, EXAMPLES / "precision" / "infer.py", precision, "--model-bytes",
               FAST="1")
    assert done.stdout.strip() == str(512 * 512 * WEIGHT_BYTES[precision])


def test_the_precision_example_compares_three_results(tmp_path):
    missing = lacking("measure", "compare")
    if missing:
        pytest.skip(f"the program has no command {' or '.join(missing)} yet")
    done = run(EXAMPLES / "precision" / "run.sh", "--simulate=idle-h200", FAST="1",
               OUT=tmp_path, GPUWARD=PROGRAM,
               PYTHON=sys.executable, XDG_CACHE_HOME=tmp_path, COLUMNS="200")
    assert done.returncode == OK, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.strip()]
    assert [r[0] for r in rows if r[1:] == ["(inference)"]] == list(PRECISIONS)
    for precision in PRECISIONS:
        result = json.loads((tmp_path / f"{precision}.json").read_text())
        assert result["label"] == precision
        assert result["iterations"] == 400
        assert result["model_size_bytes"] == 512 * 512 * WEIGHT_BYTES[precision]
        (once,) = result["runs"]
        assert once["latency_seconds"] == pytest.approx(once["seconds"] / 400)
        # Marks that a busy machine reads many at a time have no times of their own.
        assert once["latency_p50_seconds"] is None or once["latency_p50_seconds"] > 0
        assert once["energy_joules"]["low"] < once["energy_joules"]["best"]
        assert [w["label"] for w in once["windows"]] == ["warm-up", "inference"]
        assert once["part"] == "inference" and once["iterations"] == 400
        assert once["seconds"] == once["windows"][1]["seconds"]
