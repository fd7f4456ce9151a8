"""Tests a program that links libgpuward and has callbacks for the guard: real processes on a simulated card, in real time."""
import json
import subprocess
import sys
import time

import pytest

from support import BUILD, SIMULATOR, TIMEOUT, TOP, environment, wait
from test_library import sanitized
from worker import GIB, Contender

LIBRARY = BUILD / "libgpuward.so"
python = pytest.mark.skipif(sanitized(), reason="Python cannot load a library with a sanitizer in it")

HEAD = """
import json, os, pathlib, sys, threading, time
import gpuward

path = pathlib.Path(sys.argv[1]) / str(os.getpid())

def say(*words):
    print(json.dumps(words), flush=True)

def hold(size):
    new = path.with_name("." + path.name)
    new.write_text("%d" % size)
    new.rename(path) if size else (new.unlink(), path.unlink(missing_ok=True))

def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, g.status()
        time.sleep(0.01)  # between two looks at the condition

SIZE = 10 << 30
options = dict(nvml_library=sys.argv[2], simulated=True, debounce=0.1, quiet=0.4, poll=0.05, name="chat")
hold(SIZE)
"""


class Program:
    """A Python program that guards itself, the lines of JSON that it prints, and the memory that it holds."""

    def __init__(self, world, code):
        self.world = world
        env = environment(PYTHONPATH=TOP / "python", PYTHONDONTWRITEBYTECODE=1, GPUWARD_LIBRARY=LIBRARY,
                          GPUWARD_SIM=world.scenario)
        self.child = subprocess.Popen(
            [sys.executable, "-c", HEAD + code, str(world.held), str(SIMULATOR)], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()

    def read(self):
        line = self.child.stdout.readline()
        assert line, self.child.stderr.read()
        return json.loads(line)

    def ends(self):
        rest, err = self.child.communicate(timeout=TIMEOUT)
        assert self.child.returncode == 0, rest + err
        return [json.loads(line) for line in rest.splitlines()], err


def test_the_example_leaves_for_a_contender_and_comes_back(world):
    env = environment(LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=world.scenario)
    child = subprocess.Popen([BUILD / "examples" / "guarded", "8192", "60", world.held], env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1)
    lines = []

    def until(word):
        while not lines or word not in lines[-1]:
            lines.append(child.stdout.readline())
            assert lines[-1], "".join(lines) + child.stderr.read()
    try:
        until("to active")
        assert world.holds(child.pid) == 8 * GIB
        with Contender(world, 12 * GIB):
            until("evict: 8192 MiB, freed")
            assert world.holds(child.pid) == 0
            until("to evicted")
        until("resume: loaded")
        assert world.holds(child.pid) == 8 * GIB
        until("to active")
        child.terminate()
        rest, _ = child.communicate(timeout=TIMEOUT)
        assert child.returncode == 0
        assert rest.splitlines()[-1].endswith(" steps")
    finally:
        child.kill()
        child.communicate()
    assert world.holds(child.pid) == 0


@python
def test_a_python_program_leaves_and_comes_back(world):
    code = """
def evict(size, seconds):
    hold(0)
    say("evict", size, 0 < seconds <= 10, threading.current_thread() is threading.main_thread())

def resume(seconds):
    hold(SIZE)
    say("resume", 0 < seconds <= 120)

with gpuward.guard(evict, resume, **options) as g:
    until(lambda: g.status().state == "active")
    say("active", g.allowed, g.wait(0))
    until(lambda: not g.allowed)
    until(lambda: g.status().evictions == 1)
    s = g.status()
    say("out", s.state in ("evicted", "quiet"), list(s.reasons), s.need_bytes, g.wait(0.01))
    say("waited", g.wait(30))
    until(lambda: g.status().state == "active")
    s = g.status()
    say("back", s.resumes, list(s.reasons), s.resident_bytes)
say("stopped", g.allowed)
hold(0)
"""
    with Program(world, code) as p:
        assert p.read() == ["active", True, True]
        with Contender(world, 12 * GIB):
            assert p.read() == ["evict", 10 * GIB, True, False]
            assert p.read() == ["out", True, ["contention"], 10 * GIB, False]
        rest, err = p.ends()
    assert rest == [["resume", True], ["waited", True], ["back", 1, [], 10 * GIB], ["stopped", True]]
    assert err == ""


@python
def test_a_callback_that_raises_or_returns_not_now_is_called_again(world):
    code = """
calls = []

def evict(size, seconds):
    calls.append(size)
    if len(calls) == 1:
        raise RuntimeError("the model is busy")
    if len(calls) == 2:
        return False
    hold(0)

with gpuward.guard(evict, lambda seconds: hold(SIZE), **options) as g:
    until(lambda: g.status().state == "active")
    g.evict()
    until(lambda: g.status().state == "evicted")
    say(len(calls), str(g.error), list(g.status().reasons))
    try:
        g.hold("active", 0)
    except ValueError as e:
        say("refused")
    g.resume(now=True)
    until(lambda: g.status().state == "active")
hold(0)
"""
    with Program(world, code) as p:
        rest, err = p.ends()
    assert rest[0] == [3, "the model is busy", ["manual"]]
    assert "RuntimeError: the model is busy" in err


@python
def test_a_callback_that_hangs_does_not_keep_the_program_from_ending(world):
    code = """
begun, never = threading.Event(), threading.Event()

def evict(size, seconds):
    begun.set()
    never.wait()

g = gpuward.guard(evict, lambda seconds: None, **options).start()
until(lambda: g.status().state == "active")
g.evict()
begun.wait(30)
s = g.status()
say(s.call, s.overdue, g.allowed)
say(g.stop(timeout=0.2), g.allowed)
hold(0)
"""
    begin = time.monotonic()
    with Program(world, code) as p:
        rest, _ = p.ends()
    assert rest == [["evict", False, False], [False, True]]
    assert time.monotonic() - begin < TIMEOUT / 2


@python
def test_a_slow_callback_is_waited_for_by_stop(world):
    code = """
begun = threading.Event()

def evict(size, seconds):
    begun.set()
    time.sleep(0.5)  # it is slow
    hold(0)
    say("freed")

g = gpuward.Guard(evict, **options)
with g:
    until(lambda: g.status().state == "active")
    g.evict()
    begun.wait(30)
say("stopped")
"""
    with Program(world, code) as p:
        rest, _ = p.ends()
    assert rest == [["freed"], ["stopped"]]


@python
def test_a_program_without_callbacks_watches_whether_it_may(world):
    code = """
with gpuward.guard(**options) as g:
    until(lambda: g.status().state == "active")
    say("ready")
    until(lambda: not g.allowed)
    hold(0)
    say("left", g.wait(30))
    hold(SIZE)
hold(0)
"""
    with Program(world, code) as p:
        assert p.read() == ["ready"]
        with Contender(world, 12 * GIB):
            wait(lambda: p.child.poll() is not None or not world.holds(p.pid))
        rest, _ = p.ends()
    assert rest == [["left", True]]


@python
def test_without_a_gpu_the_guard_is_blind_and_reports_why(world):
    world.scenario.write_text("[driver]\nversion = \"580.159.04\"\n")
    code = """
with gpuward.guard(print, print, **options) as g:
    until(lambda: g.status().observations)
    s = g.status()
    say(s.blind, s.allowed, s.why.split(":")[0])
hold(0)
"""
    with Program(world, code) as p:
        rest, _ = p.ends()
    assert rest == [[True, True, "no GPU is visible"]]


@python
def test_other_threads_may_wait_and_ask_while_it_is_stopped(world):
    code = """
def watch():
    while running:
        g.wait(0.05)
        g.allowed
        try:
            g.status()
        except gpuward.GpuwardError as e:
            assert str(e) == "the guard is not running"

running = True
g = gpuward.guard(lambda size, seconds: hold(0), lambda seconds: hold(SIZE), **options)
threads = [threading.Thread(target=watch) for _ in range(4)]
for t in threads:
    t.start()
for i in range(10):
    g.start()
    if i % 2:
        g.evict()
        until(lambda: not g.allowed)
    assert g.stop()
    hold(SIZE)
running = False
for t in threads:
    t.join()
say("over")
hold(0)
"""
    with Program(world, code) as p:
        rest, err = p.ends()
    assert (rest, err) == ([["over"]], "")


@python
def test_after_fork_the_guard_is_the_parents(world):
    code = """
with gpuward.guard(lambda size, seconds: hold(0), lambda seconds: hold(SIZE), **options) as g:
    until(lambda: g.status().state == "active")
    child = os.fork()
    if child == 0:
        try:
            g.status()
        except gpuward.GpuwardError as e:
            say("child", g.allowed, g.stop(), str(e))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", g.status().state)
hold(0)
"""
    with Program(world, code) as p:
        rest, _ = p.ends()
    assert rest == [["child", True, True, "the guard is not running"], ["parent", "active"]]


@python
@pytest.mark.parametrize("wrong, error", [
    ('mode="loud"', "ValueError"), ("quiet=-1", "ValueError"), ("poll=1e-6", "GpuwardError"),
    ('ignore=["x"] * 65', "GpuwardError"), ('name=""', "GpuwardError"),
])
def test_what_makes_no_sense_is_refused(world, wrong, error):
    code = f"""
try:
    gpuward.guard(nvml_library=sys.argv[2], {wrong}).start()
except (ValueError, gpuward.GpuwardError) as e:
    say(type(e).__name__)
hold(0)
"""
    with Program(world, code) as p:
        rest, _ = p.ends()
    assert rest == [[error]]
