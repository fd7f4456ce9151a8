"""Tests the Python module: its structs match those of C, its windows measure, and an unknown value is never 0."""
import ast
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from support import BUILD, SIMULATOR, TIMEOUT, TOP, document, environment
from test_library import find, installed, run, sanitized  # noqa: F401 (a fixture)

LIBRARY = BUILD / "libgpuward.so"
PYTHON = TOP / "python"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PYTHON))

from gpuward import _guard, _native, _snapshot  # noqa: E402

pytestmark = pytest.mark.skipif(
    sanitized(), reason="Python cannot load a library with a sanitizer in it")


def has_meter():
    return not sanitized() and hasattr(ctypes.CDLL(str(LIBRARY)), "gw_meter_start")


meter = pytest.mark.skipif(not has_meter(), reason="the library has no gw_meter_start yet")

HEAD = f"import json, os, sys, time, gpuward\nSIM = {str(SIMULATOR)!r}\n"


def python(code, sim="two-gpus", rc=0, pass_fds=(), **env):
    """Runs code in a separate Python process, on the simulator if the code uses SIM."""
    env = {"PYTHONPATH": PYTHON, "PYTHONDONTWRITEBYTECODE": 1, "GPUWARD_LIBRARY": LIBRARY,
           "GPUWARD_SIM": sim, **env}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + code], capture_output=True, text=True,
        timeout=TIMEOUT, env=environment(**env), pass_fds=pass_fds)
    assert done.returncode == rc, done.stdout + done.stderr
    return done


def answer(code, **kw):
    """Runs code and returns the value that it passed to json.dumps."""
    done = python(code, **kw)
    assert done.stderr == ""
    return json.loads(done.stdout)


HEADERS = "".join((TOP / "include" / name).read_text() for name in ("gpuward.h", "gpuward-guard.h"))


def compiled(tmp_path, body):
    source, program = tmp_path / "ask.c", tmp_path / "ask"
    source.write_text("#include <gpuward-guard.h>\n#include <stdio.h>\nint main(void)\n{\n"
                      + body + "\treturn 0;\n}\n")
    run("gcc", "-std=c11", f"-I{TOP}/include", source, "-o", program)
    return run(program)


def test_structs_are_laid_out_as_in_c(tmp_path):
    lines, mine = [], []
    for name, struct in _native.STRUCTS.items():
        lines.append(f'\tprintf("{name} %zu\\n", sizeof(struct {name}));\n')
        mine.append(f"{name} {ctypes.sizeof(struct)}")
        for field, kind in struct._fields_:
            member = f"((struct {name} *)0)->{field}"
            lines.append(f'\tprintf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, '
                         f"{field}), sizeof({member}));\n")
            at = getattr(struct, field).offset
            mine.append(f"{name}.{field} {at} {ctypes.sizeof(kind)}")
    assert compiled(tmp_path, "".join(lines)).splitlines() == mine


def test_numbers_are_those_of_the_header(tmp_path):
    names = {"GW_FIELD_INDEX": _native.FIELD_INDEX, "GW_FIELD_FLAG": _native.FIELD_FLAG,
             "GW_FIELD_NUMBER": _native.FIELD_NUMBER, "GW_FIELD_LIST": _native.FIELD_LIST,
             "GW_VALIDITIES": _native.NO_RESULT + 1, "GW_NO_RESULT": _native.NO_RESULT, "GW_E_TIMEOUT": _native.E_TIMEOUT,
             "GW_E_IO": _native.E_IO, "GW_E_STATE": _native.E_STATE,
             "GW_GUARD_OBSERVE": _guard.MODES.index("observe"),
             "GW_GUARD_HEALTH": 1 << _guard.FLAGS.index("health"),
             "GW_GUARD_SIMULATED": 1 << _guard.FLAGS.index("simulated"),
             "GW_REQUEST_HOLD_EVICTED": _guard.REQUESTS.index("hold evicted"),
             "GW_REQUEST_RESUME_NOW": _guard.REQUESTS.index("resume now"),
             "GW_HOLD_ACTIVE": _guard.HOLDS.index("active"),
             "GW_CALL_RESUME": _guard.CALLS.index("resume"),
             "GW_FROM_SIMULATOR": _native.FROM_SIMULATOR, "GW_CUDA_NOT_VISIBLE": _native.CUDA_NOT_VISIBLE,
             "GW_TIERS_COMMON": _native.TIERS_COMMON, "GW_TIER_ENERGY": _native.TIER_ENERGY,
             "GW_TIER_STATIC": _native.TIER_STATIC, "GW_PROCESS_SM": _native.PROCESS_SM,
             "GW_KIND_FLAG": _snapshot.KIND_FLAG, "GW_KIND_ENUM": _snapshot.KIND_ENUM,
             "GW_KIND_MASK": _snapshot.KIND_MASK}
    out = compiled(tmp_path, "".join(f'\tprintf("%d\\n", (int){n});\n' for n in names))
    assert [int(l) for l in out.split()] == list(names.values())


@pytest.mark.parametrize("struct", ["gw_guard_options", "gw_guard_status"])
def test_every_field_of_the_struct_is_mirrored(struct):
    header = HEADERS
    body = re.search(r"^struct %s \{\n(.*?)^\};" % struct, header, re.M | re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # a pointer to a function becomes its name
    names = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body)
    assert [f for f, _ in _native.STRUCTS[struct]._fields_] == names


def test_every_field_of_the_energy_is_read_where_c_has_it(tmp_path):
    fields = list(_native.energy_fields())
    rows = [(_native.text(f.member), f.offset) for f in fields]
    out = compiled(tmp_path, "".join(
        f'\tprintf("{name} %zu\\n", offsetof(struct gw_energy, {name}));\n' for name, _ in rows))
    assert out.splitlines() == [f"{name} {at}" for name, at in rows]
    assert len(rows) > 40 and {f.kind for f in fields} == set(_native.READERS)


def test_functions_are_in_the_header_with_as_many_arguments():
    header = re.sub(r"/\*.*?\*/", "", HEADERS, flags=re.S)
    for name, (_, *arguments) in _native.FUNCTIONS.items():
        found = re.search(rf"\b{name}\(([^)]*)\);", header)
        assert found, name
        inside = found.group(1).strip()
        assert len(arguments) == (0 if inside == "void" else inside.count(",") + 1), name


@pytest.mark.parametrize("path", sorted(PYTHON.rglob("*.py")), ids=lambda p: p.name)
def test_python_3_8_understands_it(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_no_other_package_is_needed():
    own = {m.split(".")[0] for m in answer("print(json.dumps(sorted(sys.modules)))")}
    # modules that the Python of this machine loads for every program
    there = {m.split(".")[0] for m in json.loads(run(sys.executable, "-c", "import json, sys; print(json.dumps(list(sys.modules)))"))}
    allowed = set(sys.stdlib_module_names) | {"gpuward"} | there
    assert {m for m in own if not m.startswith("_")} <= allowed


def test_a_library_that_is_not_there_is_named():
    done = python("gpuward.snapshot()", rc=1, GPUWARD_LIBRARY="/nowhere/libgpuward.so")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gpuward._native.GpuwardError: libgpuward was not found")
    assert "/nowhere/libgpuward.so" in last and "GPUWARD_LIBRARY" in last


def test_a_library_next_to_the_module_is_used(tmp_path):
    shutil.copytree(PYTHON / "gpuward", tmp_path / "gpuward",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(LIBRARY, tmp_path / "gpuward" / "libgpuward.so")
    got = answer("print(json.dumps([gpuward.library_path(), gpuward.library_version()]))",
                 PYTHONPATH=tmp_path, GPUWARD_LIBRARY=None)
    assert got == [str(tmp_path / "gpuward" / "libgpuward.so"), "0.1.0"]


def test_the_version_of_the_module_is_that_of_the_package_and_of_the_library():
    packaged = re.search(r'^version = "(.*)"$', (PYTHON / "pyproject.toml").read_text(), re.M).group(1)
    assert answer("print(json.dumps([gpuward.__version__, gpuward.library_version()]))") == [packaged, packaged]


@pytest.mark.parametrize("scenario, code", [("no-gpu", "no_gpu"), ("no-driver", "no_driver")])
def test_a_window_without_a_gpu_names_the_cause_and_the_remedy(scenario, code):
    got = answer("with gpuward.window('a') as w: pass\nprint(json.dumps([w.joules, w.validity, w.codes, w.devices, len(w.why[w.codes[0]]), len(w.remedy)]))",
                 LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=scenario)
    assert got[:4] == [None, "no-result", [code], []] and got[4] > 10 and got[5] > 10


def test_an_installed_module_finds_the_installed_library(installed):  # noqa: F811
    module = find(installed, "_native.py").parent
    got = answer("print(json.dumps(gpuward.library_path()))", PYTHONPATH=module.parent,
                 GPUWARD_LIBRARY=None)
    assert pathlib.Path(got).is_relative_to(installed)


SYSTEM = "/usr/bin/python3"  # what python3 means after make install


@pytest.mark.skipif(not os.path.exists(SYSTEM), reason="no Python of the system here")
def test_python_finds_the_installed_module_without_pythonpath(installed):  # noqa: F811
    """Python searches its usual folders below DESTDIR, without PYTHONPATH."""
    code = ("import sys; sys.path[:0] = [sys.argv[1] + p for p in sys.path]\n"
            "import gpuward; print(gpuward.__file__, gpuward.library_path())")
    done = subprocess.run([SYSTEM, "-I", "-B", "-c", code, str(installed)], capture_output=True, text=True,
                          timeout=TIMEOUT, env=environment())
    assert done.returncode == 0, done.stderr
    assert all(pathlib.Path(p).is_relative_to(installed) for p in done.stdout.split())


@pytest.mark.skipif(not os.path.exists(SYSTEM), reason="no Python of the system here")
@pytest.mark.parametrize("prefix", ("/usr", "/usr/local", "/opt/gpuward"))
def test_the_folder_for_modules_is_in_pythons_search_path(prefix):
    done = subprocess.run([SYSTEM, "-I", PYTHON / "folder.py", prefix], capture_output=True, text=True,
                          timeout=TIMEOUT, env=environment())
    looks = subprocess.run([SYSTEM, "-I", "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True,
                           text=True, timeout=TIMEOUT, env=environment()).stdout.split("\n")
    folder = done.stdout.strip()
    assert folder.startswith(prefix + "/lib")
    assert (folder in looks) == (done.returncode == 0) == (prefix != "/opt/gpuward")


@pytest.mark.parametrize("sim", ["two-gpus", "sentinels", "old-driver-r535"])
def test_a_snapshot_has_what_the_program_shows(sim):
    theirs = document("snapshot", f"--simulate={sim}")
    mine = answer("print(json.dumps(gpuward.snapshot(nvml_library=SIM, energy=True)))", sim=sim)
    assert mine["source"]["simulated"] is True
    assert set(mine["host"]) == set(theirs["host"])
    assert len(mine["devices"]) == len(theirs["devices"])
    for a, b in zip(mine["devices"], theirs["devices"]):
        assert set(a) <= set(b)
        assert {k: type(v) for k, v in a.items() if isinstance(v, (str, bool, list))} == {
            k: type(b[k]) for k in a if isinstance(b[k], (str, bool, list))}
        for key in ("index", "name", "uuid", "state", "cause", "cuda_ordinal", "ecc_mode_current",
                    "memory_total_bytes", "architecture"):
            assert a.get(key) == b.get(key), key
        assert a["absent"] == {k: v for k, v in b["absent"].items() if k in a}
        assert set(a["absent"]) == {k for k, v in a.items() if v is None} - {"cause", "message"}


@pytest.mark.parametrize("sim", ["two-gpus", "mig"])
def test_processes_are_those_that_the_program_shows(sim):
    theirs = document("snapshot", f"--simulate={sim}")
    mine = answer("""
for call in range(2):
    rows = gpuward.processes(nvml_library=SIM)
print(json.dumps([rows.absent, [p._asdict() for p in rows]]))""", sim=sim)
    assert mine[0] == theirs["processes_absent"] and len(mine[1]) == len(theirs["processes"]) > 0
    for a, b in zip(mine[1], theirs["processes"]):
        assert set(a) <= set(b) | {"gpu_instance"}
        for key in set(a) - {"absent", "utilization_sm_ratio", "cpu_used_cores", "run_seconds"}:
            assert a[key] == b.get(key), key
        assert (a["utilization_sm_ratio"] is None) == (b["utilization_sm_ratio"] is None)
        assert a["absent"].get("utilization_sm_ratio") == b["absent"].get("utilization_sm_ratio")
        figures = ("memory_bytes", "utilization_sm_ratio", "cpu_used_cores", "run_seconds")
        assert set(a["absent"]) == {k for k in figures if a[k] is None}


def test_a_process_of_this_machine_has_cpu_after_two_calls(tmp_path):
    world = tmp_path / "world.toml"
    world.write_text('[[gpu]]\nprofile = "h200"\n[[gpu.process]]\npid = "self"\nmemory = "1 GiB"\n')
    first, second = answer("""
rows = []
for call in range(2):
    row, = gpuward.processes(nvml_library=SIM)
    rows.append(row._asdict())
    time.sleep(0.05)
print(json.dumps(rows))""", sim=world)
    assert first["absent"]["cpu_used_cores"] == "needs_two_readings" and first["pid"] == second["pid"]
    assert second["cpu_used_cores"] >= 0 and second["run_seconds"] > 0 and not second["orphan"]
    assert second["memory_bytes"] == 1 << 30 and second["start_ticks"] > 0


def test_processes_without_a_gpu_are_none():
    assert answer("print(json.dumps(gpuward.processes(backend='none')))") == []


def test_a_snapshot_without_a_gpu_has_a_cause():
    got = answer("print(json.dumps(gpuward.snapshot(backend='none')))")
    assert got["devices"] == []
    assert got["source"]["cause"] and got["source"]["message"]


def test_an_unknown_backend_raises_an_error_with_a_sentence():
    done = python("gpuward.snapshot(backend='abacus')", rc=1)
    assert "GpuwardError: the GPUs could not be opened: " in done.stderr.splitlines()[-1]


# Windows.
# The sleeps in these programs are the work that is measured.

SHOW = """
def show(w):
    return {k: getattr(w, k) for k in ("label", "joules", "low", "high", "seconds", "watts",
            "validity", "codes")}
"""


@meter
def test_a_window_has_energy_for_every_gpu():
    got = answer(SHOW + """
with gpuward.Meter(nvml_library=SIM) as m:
    with m.window("whole") as w:
        time.sleep(1.2)
    fields = [f.member.decode() for f in gpuward._native.energy_fields()]
    print(json.dumps([show(w),
                      [[d.joules, d.low, d.high, d.watts, d.power_mean] for d in w.devices],
                      [hasattr(d, f) for d in w.devices for f in fields], w.per(10),
                      [sorted(d.budget) for d in w.devices], len(m),
                      [w.simulated] + [d.simulated for d in w.devices], repr(w), repr(w.devices)]))
""")
    w, devices, fields, per, budgets, count, simulated, *shown = got
    assert simulated == [True] * 3
    assert re.match(r"<gpuward.Window 'whole' \(simulated\): [\d.]+ \[[\d.]+, [\d.]+\] J in [\d.]+ s, ", shown[0])
    assert re.match(r"\[<gpuward.Energy gpu 0 \(simulated\): [\d.]+ \[", shown[1])
    assert count == 2 and len(devices) == 2
    assert all(fields)
    assert w["label"] == "whole"
    assert 1.2 <= w["seconds"] < 30
    assert w["joules"] == pytest.approx(sum(d[0] for d in devices))
    assert w["low"] == pytest.approx(sum(d[1] for d in devices))
    assert w["low"] <= w["joules"] <= w["high"]
    assert w["watts"] == pytest.approx(w["joules"] / w["seconds"])
    assert per == pytest.approx([w["low"] / 10, w["joules"] / 10, w["high"] / 10])
    assert w["validity"] in ("valid", "suspect")
    for joules, low, high, watts, mean in devices:
        assert low <= joules <= high
        assert watts == pytest.approx(mean, rel=0.25)
    assert "edges" in budgets[0]


@meter
def test_the_watts_of_an_idle_gpu_agree_with_its_power_reading():
    got = answer("""
with gpuward.Meter(nvml_library=SIM, interval=0.05) as m, m.window() as w:
    time.sleep(1.5)
power = gpuward.snapshot(nvml_library=SIM)["devices"][0]["power_watts"]
print(json.dumps([w.watts, power]))
""", sim="idle-h200")
    assert got[0] == pytest.approx(got[1], rel=0.2)


@meter
def test_windows_nest_overlap_and_outlive_their_meter():
    got = answer("""
m = gpuward.Meter(nvml_library=SIM, gpus="0")
a, b = m.window("a").begin(), m.window("b")
with m.window("c") as c:
    b.begin()
    time.sleep(0.6)
a.end()
time.sleep(0.3)
b.end()
left = m.window("left").begin()
m.stop()
print(json.dumps([[w.label, w.joules, w.seconds] for w in (a, b, c, left)]))
""")
    (_, a, a_s), (_, b, b_s), (_, c, c_s), (label, _, _) = got
    assert b > a * 0.9 and b > c and a >= c * 0.99
    assert b_s > c_s and a_s >= c_s
    assert label == "left"


@meter
def test_threads_share_a_meter():
    got = answer("""
import threading
with gpuward.Meter(nvml_library=SIM) as m:
    out = []
    def work(i):
        with m.window(str(i)) as w:
            time.sleep(0.5)
        out.append(w.watts)
    all = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in all]
    [t.join() for t in all]
print(json.dumps(out))
""")
    assert len(got) == 8 and all(j > 0 for j in got)
    assert max(got) < 1.5 * min(got)


@meter
def test_a_forked_child_gets_its_own_meter():
    got = answer("""
m = gpuward.Meter(nvml_library=SIM).start()
w = m.window("parent").begin()
r, out = os.pipe()
pid = os.fork()
if pid == 0:
    w.end()
    try:
        w.joules
        refused = False
    except gpuward.GpuwardError as e:
        refused = "parent" in str(e)
    with m.window("child") as c:
        time.sleep(0.4)
    os.write(out, json.dumps([refused, c.joules]).encode())
    m.stop()
    os._exit(0)
os.close(out)
child = json.loads(os.read(r, 1000))
os.waitpid(pid, 0)
w.end()
print(json.dumps([child, w.joules]))
""")
    (refused, child), parent = got
    assert refused is True
    assert 0 < child < parent


@meter
def test_without_a_gpu_the_energy_is_none_with_a_reason():
    got = answer(SHOW + """
with gpuward.Meter(backend="none") as m:
    with m.window("x") as w:
        time.sleep(0.01)
    print(json.dumps([show(w), w.per(3), w.why, len(m), w.devices]))
""")
    w, per, why, count, devices = got
    assert count == 0 and devices == [] and per is None
    assert w["joules"] is None and w["low"] is None and w["watts"] is None
    assert w["seconds"] >= 0.01
    assert w["codes"] and list(why) == w["codes"] and all(why.values())
    assert w["validity"] not in ("valid", "suspect", "invalid")


@meter
def test_the_default_meter_is_made_once_and_stopped_at_exit():
    got = answer("""
with gpuward.window("a"):
    pass
with gpuward.window("b") as b:
    pass
print(json.dumps(gpuward.default_meter() is b._meter))
""")
    assert got is True


@meter
def test_an_exception_in_the_block_passes_and_the_window_has_ended():
    got = answer("""
m = gpuward.Meter(nvml_library=SIM)
try:
    with m.window("x") as w:
        raise KeyError("mine")
except KeyError:
    pass
print(json.dumps([w.seconds >= 0]))
""")
    assert got == [True]


@meter
@pytest.mark.parametrize("code, sentence", [
    ("gpuward.Meter(nvml_library=SIM, gpus='7').start()", "on 7: "),
    ("gpuward.Meter(nvml_library=SIM).window('w').begin().joules", "'w' has not ended"),
    ("gpuward.Meter(nvml_library=SIM).window('w').joules", "'w' has not ended"),
    ("gpuward.Meter(nvml_library=SIM).window('w').end()", "'w' has not begun"),
    ("gpuward.Meter(nvml_library=SIM).window('w').begin().begin()", "has already begun"),
    ("m = gpuward.Meter(nvml_library=SIM); m.stop(); m.window().begin()", "was stopped"),
    ("gpuward.Meter(gpus=[])", "the list gpus is empty"),
    ("gpuward.Meter(interval=-1)", "interval must be above 0"),
    ("gpuward.Meter(nvml_library=SIM).window().begin().end().per(0)", "must be above 0"),
])
def test_a_failed_python_call_raises_an_error_with_a_sentence(code, sentence):
    done = python(code, rc=1)
    assert sentence in done.stderr.splitlines()[-1]


@pytest.mark.skipif(has_meter(), reason="the library has a meter")
def test_a_library_without_a_meter_is_reported():
    done = python("gpuward.Meter(nvml_library=SIM).start()", rc=1)
    assert "has no gw_meter_start" in done.stderr.splitlines()[-1]


def marked(code):
    r, w = os.pipe()
    try:
        python(code, pass_fds=(w,), GPUWARD_MARK_FD=w)
        os.close(w)
        return os.read(r, 65536).decode().splitlines()
    finally:
        os.close(r)


def test_marks_are_lines_of_the_protocol():
    lines = marked("""
with gpuward.mark("prefill"):
    gpuward.iteration()
    gpuward.iteration(7)
gpuward.begin("two words\\n")
gpuward.tokens(128)
gpuward.end("two words\\n")
gpuward.begin("x" * 100)
assert gpuward.under_measure()
""")
    stamps = [int(l.split()[2]) for l in lines if l.startswith(("begin", "end"))]
    assert stamps == sorted(stamps)
    assert [re.sub(r" \d{6,}$", " T", l) for l in lines] == [
        "begin prefill T", "iteration", "iteration 7", "end prefill T", "begin two_words T",
        "tokens 128", "end two_words T", f"begin {'x' * 63} T"]


def test_without_a_reader_marks_do_nothing():
    python("gpuward.begin('a'); gpuward.end('a'); gpuward.tokens(1); gpuward.iteration()\n"
           "assert not gpuward.under_measure()", GPUWARD_MARK_FD=None)
    python("gpuward.begin('a'); gpuward.tokens(1)", GPUWARD_MARK_FD="999")
    python("gpuward.begin('a')", GPUWARD_MARK_FD="rubbish")
    r, w = os.pipe()
    os.close(r)
    try:
        python("gpuward.begin('a'); gpuward.end('a')", pass_fds=(w,), GPUWARD_MARK_FD=w)
    finally:
        os.close(w)


@pytest.mark.parametrize("code", ["gpuward.tokens(-1)", "gpuward.tokens(1.5)",
                                  "gpuward.begin('')", "gpuward.iteration(-2)"])
def test_a_mark_that_makes_no_sense_is_refused(code):
    assert "ValueError" in python(code, rc=1).stderr.splitlines()[-1]


def example(name, *args, **env):
    return subprocess.run(
        [sys.executable, str(PYTHON / "examples" / name), *args], capture_output=True, text=True,
        timeout=TIMEOUT,
        env=environment(**{"PYTHONPATH": PYTHON, "PYTHONDONTWRITEBYTECODE": 1,
                           "GPUWARD_LIBRARY": LIBRARY, **env}))


@meter
def test_the_plain_example_runs_with_and_without_a_gpu():
    done = example("plain.py")
    assert done.returncode == 0, done.stderr
    assert re.match(r"all: 1\.\d+ s, ", done.stdout)
    done = example("plain.py", LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM="idle-h200")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SIMULATED: no figure is real\nall: ")
    assert re.search(r"second half: 0\.\d+ s, [\d.]+ \[[\d.]+, [\d.]+\] J", done.stdout)


def test_the_pytorch_example_reports_what_is_missing():
    done = example("pytorch_window.py", "--seconds", "0.2", "--warm-up", "0.1")
    if done.returncode == 0:
        assert "items in" in done.stdout
    else:
        assert re.fullmatch(r"pytorch_window\.py: .*\n", done.stderr)


# A fake torch with only what the example uses, as on a machine without a GPU.
TORCH = """
import contextlib
class Tensor:
    shape = (256, 4096)
class Model:
    def to(self, device): return self
    def eval(self): return self
    def __call__(self, batch): return batch
class cuda:
    is_available = staticmethod(lambda: False)
class nn:
    Linear = staticmethod(lambda *a: None)
    ReLU = staticmethod(lambda: None)
    Sequential = staticmethod(lambda *a: Model())
device = str
manual_seed = lambda n: None
randn = lambda *a, device: Tensor()
inference_mode = contextlib.nullcontext
"""


@meter
def test_the_pytorch_example_runs_on_a_machine_without_cuda(tmp_path):
    (tmp_path / "torch.py").write_text(TORCH)
    done = example("pytorch_window.py", "--seconds", "0.2", "--warm-up", "0.1",
                   PYTHONPATH=f"{tmp_path}:{PYTHON}")
    assert done.returncode == 0, done.stderr
    assert "PyTorch sees no GPU" in done.stdout and "items in" in done.stdout


@meter
def test_another_process_on_the_gpu_is_reported_as_by_measure():
    code = """
found = {}
for processes in (True, False):
    with gpuward.Meter(nvml_library=SIM, processes=processes) as m:
        with m.window("a") as w:
            time.sleep(0.3)
    found[processes] = "foreign-process" in w.codes
with gpuward.Meter(nvml_library=SIM) as m, m.window("a") as w:
    time.sleep(0.3)
print(json.dumps([found[True], found[False], "foreign-process" in w.codes]))
"""
    assert answer(code, sim="h200") == [True, False, True]
