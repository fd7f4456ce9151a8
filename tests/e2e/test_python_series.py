"""Tests the readings, baselines, sensors and flat figures of the Python module on the simulator.

The sleeps in the programs are the work that is measured."""
import re
import shutil
import subprocess

import pytest

from support import SIMULATOR, document
from test_library import sanitized
from test_python import PYTHON, TORCH, answer, example

pytestmark = pytest.mark.skipif(
    sanitized(), reason="Python cannot load a library with a sanitizer in it")

IDLE = "idle-h200"


def test_a_sampler_has_readings_that_agree_with_its_energy():
    got = answer("""
with gpuward.sampler(interval=0.05, nvml_library=SIM) as s:
    time.sleep(0.5)
    early = [(len(a.watts), len(a.tick_ns)) for a in s.series]
    time.sleep(0.5)
a = s.series[0]
inside = [(t, w) for t, w in zip(a.seconds, a.watts)]
area = sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in zip(inside, inside[1:]))
readings = list(a)
print(json.dumps(dict(
    gpus=len(s.series), ticks=len(a.tick_ns), early=early, seconds=s.window.seconds, edges=[a.seconds[0], a.seconds[-1]],
    area=area / (a.seconds[-1] - a.seconds[0]), watts=s.window.devices[0].watts, simulated=s.simulated,
    ordered=[r.seconds for r in readings] == sorted(r.seconds for r in readings), number=len(readings) == len(a),
    figures=[r.figures for r in readings if r.figures][0], dropped=a.dropped, unix=abs(a.begin_unix - time.time()) < 60,
    again=s.series is s.series, text=repr(a))))
""")
    assert got["gpus"] == 2 and got["simulated"] is True
    assert got["ticks"] >= 10 and all(t >= 5 for _, t in got["early"])
    assert got["edges"][0] <= 0 and got["edges"][1] >= got["seconds"]
    assert got["area"] == pytest.approx(got["watts"], rel=0.1)
    assert got["ordered"] and got["number"] and got["unix"] and got["again"] and got["dropped"] == 0
    assert {"temperature_gpu_celsius", "clock_sm_hertz", "memory_used_bytes", "utilization_gpu_ratio"} <= set(got["figures"])
    assert "(simulated)" in got["text"]


def test_numpy_takes_the_arrays_without_a_copy():
    pytest.importorskip("numpy", reason="NumPy is not installed (Debian: python3-numpy)")
    got = answer("""
import gc, numpy
with gpuward.sampler(nvml_library=SIM) as s:
    time.sleep(0.3)
a = s.series[0]
watts, ns = numpy.asarray(a.watts), numpy.frombuffer(a.power_ns, dtype=numpy.uint64)
watts[0] = -1.5
shared = a.watts[0] == -1.5
del s, a
gc.collect()                                # the arrays outlive the library's memory
print(json.dumps([str(watts.dtype), str(ns.dtype), shared, len(watts) == len(ns) > 10, bool((numpy.diff(ns.astype(int)) > 0).all())]))
""")
    assert got == ["float64", "uint64", True, True, True]


def test_a_full_series_warns_and_keeps_the_energy():
    got = answer("""
import warnings
with gpuward.Meter(gpus=0, nvml_library=SIM) as m, warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with m.window("small", record=5) as w:
        time.sleep(0.5)
    w.result()
a = w.series[0]
print(json.dumps([len(a.watts), a.room, a.dropped > 10, w.joules is not None, str(caught[0].message), caught[0].filename, len(caught)]))
""")
    assert got[:4] == [5, 5, True, True]
    assert "no room for" in got[4] and "energy is complete" in got[4]
    assert got[5:] == ["<string>", 1]  # the warning names the line of the program, and appears once


def test_windows_without_a_series_and_without_a_gpu_say_so():
    got = answer("""
said = []
def refused(f):
    try:
        f()
    except (gpuward.GpuwardError, ValueError) as e:
        said.append(str(e))
m = gpuward.Meter(nvml_library=SIM)
with m.window("plain") as w:
    pass
refused(lambda: w.series)
refused(lambda: m.window("late", record=True).series)
refused(lambda: m.window("odd", record=-1))
refused(lambda: m.window("large", record=2**64 + 3))
refused(lambda: w.result(timeout=float("nan")))
with m.window("waits") as endless:
    pass
said.append(endless.result(timeout=float("inf")).validity != "no-result")
with m.window("fork", record=True) as w:
    pid = os.fork()
    if pid == 0:
        try:
            w.series
        except gpuward.GpuwardError:
            os._exit(0)
        os._exit(1)
    said.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
m.stop()
said.append(len(w.series))                  # readable after the stop
with gpuward.sampler(backend="none") as s:
    said.append(s.series)
said.append([s.series, s.window.joules, s.window.validity])
refused(lambda: gpuward.take_baseline(backend="none"))
refused(lambda: gpuward.take_baseline(kind="warm"))
print(json.dumps(said))
""", sim="two-gpus")
    assert "record=True" in got[0] and "has not begun" in got[1] and "-1 readings" in got[2]
    assert "18446744073709551619 readings, only 0 to" in got[3] and "not nan" in got[4] and got[5]
    got[3:6] = []
    assert got[3:6] == [0, 2, []]
    assert got[6] == [[], None, "no-result"]
    assert "no GPU was found" in got[7] and "no-context" in got[8]


def test_a_gpu_that_is_lost_while_it_is_sampled_ends_the_series(tmp_path):
    world = tmp_path / "lost.toml"
    world.write_text('[[gpu]]\nprofile = "h200"\n[[timeline]]\nat = 1.5\ndo = "lose"\n')
    got = answer("""
with gpuward.sampler(nvml_library=SIM) as s:
    def lost():
        a = s.series[0]
        watts = a.figures["power_watts"]
        return len(watts) and (watts[-1] != watts[-1] or time.monotonic_ns() - a.tick_ns[-1] > 1e9)
    until = time.monotonic() + 20
    while not lost() and time.monotonic() < until:
        time.sleep(0.05)
a = s.series[0]
print(json.dumps([len(a.tick_ns) > 0, s.window.codes, max(a.watts or [0]) < 1000]))
""", sim=world)
    assert got[0] and "gpu-lost" in got[1] and got[2]


def test_a_baseline_is_taken_stored_loaded_and_applied(tmp_path):
    got = answer(f"""
steps = []
b = gpuward.take_baseline(seconds=3, min_seconds=2, half_width=50, nvml_library=SIM, progress=lambda *a: steps.append(a))
b.save({str(tmp_path)!r})
c = gpuward.load_baseline(folder={str(tmp_path)!r}, nvml_library=SIM)
with gpuward.Meter(nvml_library=SIM) as m:
    with m.window("idle") as w:
        time.sleep(0.5)
    net, two = w.net(c), w.devices[0].net(b, c)
    refused = ""
    try:
        w.net([b, c])
    except ValueError as e:
        refused = str(e)
try:
    w.net(b)
except gpuward.GpuwardError as e:
    refused += str(e)
said = []
for f in (lambda: b.save(), lambda: gpuward.load_baseline(kind="hot-idle", folder={str(tmp_path)!r}, nvml_library=SIM),
          lambda: gpuward.take_baseline(seconds=1, nvml_library=SIM),
          lambda: gpuward.take_baseline(nvml_library=SIM, progress=lambda *a: False)):
    try:
        f()
    except (gpuward.GpuwardError, ValueError) as e:
        said.append(str(e))
try:
    gpuward.take_baseline(nvml_library=SIM, progress=lambda *a: 1 / 0)
except ZeroDivisionError:
    said.append("raised")
print(json.dumps(dict(steps=len(steps), watts=[b.watts, c.watts], kind=b.kind, codes=b.codes, simulated=b.simulated,
    gross=w.joules, net=net.interval, base=net.baseline_joules, adjusted=net.adjusted, two=two.joules,
    seconds=w.seconds, refused=refused, said=said, text=repr(b))))
""", sim=IDLE)
    assert got["steps"] >= 2 and got["kind"] == "no-context" and got["codes"] == [] and got["simulated"]
    assert got["watts"][0] == got["watts"][1] > 10
    assert got["base"] == pytest.approx(got["watts"][0] * got["seconds"], rel=1e-6)
    low, best, high = got["net"]
    assert best == pytest.approx(got["gross"] - got["base"], abs=1e-6) and low < best < high
    assert re.search(r" W ± [\d.e-]+ \(standard error\), no-context>", got["text"]), got["text"]
    assert got["adjusted"] == max(0, best) and got["two"] == pytest.approx(best, abs=1e-6)
    assert "one baseline per GPU" in got["refused"] and "meter was stopped" in got["refused"]
    assert "simulated GPU" in got["said"][0] and "no baseline of this GPU and kind is stored" in got["said"][1]
    assert "seconds must be at least 2, not 1" in got["said"][2] and "progress function" in got["said"][3] and got["said"][4] == "raised"


def test_the_sensor_says_that_it_is_assumed():
    got = answer("""
with gpuward.Meter(gpus=1, nvml_library=SIM) as m:
    (s,) = m.sensors()
print(json.dumps([s._asdict(), s.assumed]))
""")
    s, assumed = got
    assert assumed and s["origin"] == "assumed" and s["source"] == "counter+ring" and s["measured_unix"] is None
    assert s["period"] > 0 and s["window"] > 0 and s["lag"] > 0 and s["gain"] == 1


FLAT = ("gpu_available", "gpu_name", "gpu_count", "gpu_total_vram_gb", "gpu_used_vram_gb", "gpu_free_vram_gb",
        "gpu_utilization_percent", "gpu_temperature_c", "gpu_vram_gb", "cuda_available")


@pytest.mark.parametrize("sim", ["two-gpus", "sentinels", "no-driver"])
def test_resources_and_environment_are_those_of_the_program(sim):
    code = 3 if sim == "no-driver" else 0
    theirs, env = (document(c, f"--simulate={sim}", code=code) for c in ("snapshot", "env"))
    mine, machine = answer(
        "print(json.dumps([gpuward.resources(nvml_library=SIM), gpuward.environment(nvml_library=SIM)]))", sim=sim)
    for key in FLAT:
        assert mine[key] == theirs[key], key
    assert {k: v for k, v in mine["absent"].items() if k in FLAT} == theirs["absent"]
    assert set(mine) == set(FLAT) | set(theirs["host"])
    for section in machine:
        assert set(machine[section]) == set(env[section]), section
        assert machine[section]["absent"] == env[section]["absent"]
    assert machine["cpu"] == env["cpu"] and machine["host"]["kernel"] == env["host"]["kernel"]


@pytest.mark.skipif(not shutil.which("mypy"), reason="no mypy here (Debian: mypy)")
def test_the_type_hints_are_right(tmp_path):
    """Checks the type hints in the module, and those that a program sees."""
    program = tmp_path / "program.py"
    program.write_text("""import gpuward
with gpuward.sampler(interval=0.1) as s:
    pass
watts: float = s.series[0].watts[0]
with gpuward.window("a", record=True) as w:
    pass
joules: float = w.joules
""")
    base = ["mypy", "--strict", f"--cache-dir={tmp_path}/cache"]
    done = subprocess.run([*base, PYTHON / "gpuward"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*base, program], capture_output=True, text=True, env={"MYPYPATH": str(PYTHON), "PATH": "/usr/bin:/bin"})
    assert done.stdout.count("error:") == 1 and 'Optional[float]' in done.stdout, done.stdout  # joules may be None


# Fakes only the functions that the examples use; each call takes a little time.
TRAINING = TORCH + """
import time
class Tensor:
    shape = (512, 2048)
    def __sub__(self, other): return self
    def square(self): return self
    def mean(self): return self
    def backward(self): time.sleep(0.02)
randn = lambda *a, device: Tensor()
Model.parameters = lambda self: []
class optim:
    class SGD:
        def __init__(self, parameters, lr): pass
        def zero_grad(self): pass
        def step(self): pass
"""
VLLM = """
import time
class SamplingParams:
    def __init__(self, max_tokens, ignore_eos): self.n = max_tokens
class Output:
    def __init__(self, n): self.token_ids = [0] * n
class Request:
    def __init__(self, n): self.outputs = [Output(n)]
class LLM:
    def __init__(self, model): pass
    def generate(self, prompts, parameters):
        time.sleep(0.1)
        return [Request(parameters.n) for _ in prompts]
"""
TRANSFORMERS = """
import time
class Inputs(dict):
    def to(self, device): return self
class AutoTokenizer:
    pad_token = None
    eos_token = "."
    @classmethod
    def from_pretrained(cls, model, padding_side): return cls()
    def __call__(self, prompts, return_tensors, padding): return Inputs(input_ids=[[1, 2, 3]] * len(prompts))
class AutoModelForCausalLM:
    device = "cpu"
    @classmethod
    def from_pretrained(cls, model, device_map, torch_dtype): return cls()
    def generate(self, input_ids, max_new_tokens, min_new_tokens):
        time.sleep(0.1)
        return [row + [0] * max_new_tokens for row in input_ids]
"""


def simulated(tmp_path, name, *args, **modules):
    for module, text in modules.items():
        (tmp_path / f"{module}.py").write_text(text)
    return example(name, *args, PYTHONPATH=f"{tmp_path}:{PYTHON}", LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=IDLE)


def test_the_training_example_reports_joules_per_step_above_idle(tmp_path):
    csv = tmp_path / "power.csv"
    done = simulated(tmp_path, "pytorch_train.py", "--steps", "20", "--warm-up", "1", "--idle", "2", "--csv", csv, torch=TRAINING)
    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout and "20 steps in" in done.stdout
    assert " J per step, " in done.stdout and "above idle: " in done.stdout and "at most" in done.stdout
    assert len(csv.read_text().splitlines()) > 10
    (tmp_path / "torch.py").write_text("raise ImportError")
    assert "PyTorch is not installed" in simulated(tmp_path, "pytorch_train.py").stderr


def test_the_generate_example_counts_tokens_of_either_engine(tmp_path):
    done = simulated(tmp_path, "generate.py", "tiny", "--tokens", "4", "--rounds", "3", transformers=TRANSFORMERS)
    assert done.returncode == 0, done.stderr
    assert "transformers: 192 tokens in" in done.stdout and " J per token, " in done.stdout
    done = simulated(tmp_path, "generate.py", "tiny", "--tokens", "2", "--rounds", "1", vllm=VLLM)
    assert "vllm: 32 tokens in" in done.stdout, done
    (tmp_path / "vllm.py").write_text("raise ImportError('no vLLM')")
    done = simulated(tmp_path, "generate.py", "tiny", "--engine", "vllm")
    assert done.returncode == 1 and done.stderr == "generate.py: not installed: vllm (no vLLM)\n"
