"""A worker is who the configuration finds now, and one that was moved out is not lost while it is not found."""
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from guarded import Guarded, Recorder
from test_guard_identity import KILL, by_signal, classes, text, wait
from worker import GIB, Contender, Process

# Writes down the signals that it gets with what it is then; becomes something else when a file is there.
BECOMES = """
import os, signal, sys, time
name, log, flag = sys.argv[1:]
out = open(log, "a", buffering=1)
for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, lambda n, _: out.write(f"{name} {n}\\n"))
print("ready", flush=True)
while name == "worker":
    time.sleep(0.02)
    if os.path.exists(flag):
        os.execv(sys.executable, [sys.executable, sys.argv[0], "game", log, flag])
while True:
    signal.pause()
"""
IGNORED = '[[rule]]\nmatch.name = "sleep"\naction = "ignore"\n'


def evicted(s, world, w):
    wait(lambda: signal.SIGUSR1 in w.signals(), "the signal to leave")
    world.hold(w.pid, 0)
    s.until("evicted", name="w")


def test_one_that_became_another_program_is_not_signalled(world, tmp_path):
    program, log, flag = (tmp_path / n for n in ("b.py", "log", "flag"))
    program.write_text(BECOMES)
    match = 'match.command = "b.py worker"'
    table = by_signal("/none").replace('match.pidfile = "/none"', match)
    assert match in table
    p = Process(world, [sys.executable, str(program), "worker", str(log), str(flag)], stdout=subprocess.PIPE, text=True)
    try:
        assert p.child.stdout.readline() == "ready\n"
        world.hold(p.pid, 8 * GIB)
        with Guarded(world, text(table, KILL)) as s:
            s.until("active", name="w")
            flag.touch()
            assert p.child.stdout.readline() == "ready\n"
            s.guard("evict", "w")  # before the guard has seen it
            wait(lambda: classes(s)[p.pid] == "contender", "it is seen as what it is")
            s.until("absent", name="w")
            assert log.read_text() == "" and p.child.poll() is None
    finally:
        p.end(signal.SIGKILL)
        p.child.stdout.close()


@pytest.mark.parametrize("for_good", (False, True))
def test_a_pidfile_that_is_empty_loses_nobody(world, tmp_path, for_good):
    pidfile = tmp_path / "pid"
    w = Recorder(world, tmp_path / "w", 8 * GIB)
    pidfile.write_text(f"{w.pid}\n")
    try:
        with Guarded(world, text(by_signal(pidfile)) + IGNORED) as s:
            s.until("active", name="w")
            s.guard("evict", "w")
            evicted(s, world, w)
            with Contender(world, 20 * GIB) as c:  # ignored, but there is no room
                wait(lambda: classes(s).get(c.pid) == "ignored", "it is seen")
                s.guard("resume", "w")
                wait(lambda: any(d["rule"] == "resume_blocked" for d in s.decisions()), "there is no room")
                pidfile.write_text("")
                time.sleep(2.5)  # it is read once a second
                if not for_good:
                    pidfile.write_text(f"{w.pid}\n")
                assert s.now("w") == "evicted"
            wait(lambda: signal.SIGUSR2 in w.signals(), "the signal to return")
            assert not any(d["to"] == "absent" for d in s.decisions())
    finally:
        w.end()


def test_one_that_a_wrong_configuration_does_not_find_comes_back_with_the_right_one(world, tmp_path):
    pidfile = tmp_path / "pid"
    w = Recorder(world, tmp_path / "w", 8 * GIB)
    pidfile.write_text(f"{w.pid}\n")
    right = text(by_signal(pidfile))
    try:
        with Guarded(world, right) as s:
            def reload(words):
                pathlib.Path(s.config).write_text(words)
                s.child.send_signal(signal.SIGHUP)
            s.until("active", name="w")
            with Contender(world, 4 * GIB):
                evicted(s, world, w)
                reload(right.replace(str(pidfile), str(tmp_path / "typo")))
                s.until("absent", name="w")
                told = [e for e in s.get("/api/v1/events").json()["events"] if "lives and is out" in e["text"]]
                assert [e["severity"] for e in told] == ["warning"]
            reload(right)
            wait(lambda: signal.SIGUSR2 in w.signals(), "the signal to return")
            assert "its process ended" not in s.messages()
    finally:
        w.end()
