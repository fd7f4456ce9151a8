"""Tests attacks of a local user on the service, the guard and the store.  Each attack worked in an earlier version.

The deep stage runs this file with the sanitizers (tools/test deep).  More attacks on HTTP are in test_http_abuse.py, more
hostile files in test_bad_input.py.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import pytest
import requests

import guarded
import support
from guarded import Guarded, by_signal, configure, table
from service import EVERY_METRIC, Service
from test_companion import companion, name  # noqa: F401, a fixture and the name of a process in a request
from worker import GIB, Process

pytestmark = pytest.mark.deep
OTHER = 4242
SANITIZED = any(word in support.PROGRAM.read_bytes() for word in (b"__asan_init", b"__tsan_init"))  # they reserve terabytes
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")

# A program that writes each signal to a file.
VICTIM = """
import pathlib, signal, sys
said = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: said.write_text("signalled"))
print("ready", flush=True)
while True:
    signal.pause()
"""


def limited(*args, files=None, cpu_s=None, bytes_=None, **kw):
    """Runs the program with limits and returns what it printed."""
    def limit():
        for what, value in ((resource.RLIMIT_NOFILE, files), (resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, bytes_)):
            if value:
                resource.setrlimit(what, (value, value))
    return subprocess.run([str(support.PROGRAM), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=support.TIMEOUT, env=support.environment(), preexec_fn=limit, **kw)


# ---- the guard ----

@needs_root
def test_a_pidfile_of_another_user_does_not_choose_who_is_signalled(world, tmp_path):
    said, folder = tmp_path / "said", tmp_path / "shared"
    folder.mkdir()
    with Process(world, [sys.executable, "-c", VICTIM, str(said)], stdout=subprocess.PIPE) as victim:
        victim.child.stdout.readline()
        world.hold(victim.pid, 10 * GIB)
        pidfile = folder / "pid"
        pidfile.write_text(f"{victim.pid}\n")
        with Guarded(world, configure(by_signal(pidfile))) as s:
            s.until("active", name="w")
            os.chown(pidfile, OTHER, OTHER)  # now the other user chooses the process
            os.chown(folder, OTHER, OTHER)
            folder.chmod(0o777)
            s.guard("evict", "w")
            s.observes()
            assert not said.exists()
            assert "does not trust the worker's pidfile" in s.guard("explain", "w").stdout
            checked = support.gpuward("config", "check", s.config)
            assert "does not trust the pidfile" in checked.stderr
        victim.child.stdout.close()


@pytest.mark.parametrize("pattern", [
    r"(.*)(.*)\1\2z", ".*a.{200}z", "((((((((((((a?)+)+)+)+)+)+)+)+)+)+)+)+z", "((a{1,255}){1,255}){1,255}"])
def test_a_pattern_that_takes_long_is_refused_at_once(tmp_path, pattern):
    file = tmp_path / "gpuward.toml"
    file.write_text(configure(table("w", "exec", match_command=pattern, evict_command=["/bin/true"])))
    done = limited("config", "check", file, cpu_s=10)
    assert done.returncode == support.USAGE and "match.command" in done.stderr, done.stderr


def test_the_slowest_pattern_does_not_stop_the_answers(world, tmp_path):
    slow = table("w", "exec", match_command=".*a.{40}z", evict_command=["/bin/true"], resume_command=["/bin/true"])
    with Guarded(world, configure(slow)) as s:
        crowd = [Process(world, [sys.executable, "-c", "import time; time.sleep(1000)", "ab" * (50 + i)]) for i in range(16)]
        try:
            for p in crowd:
                world.hold(p.pid, 1 << 20)
            s.wait(lambda: len(s.get("/api/v1/guard/gpus/0").json().get("processes", [])) >= 16)
            for _ in range(20):
                assert s.get("/healthz").elapsed.total_seconds() < 2
        finally:
            for p in crowd:
                p.end()


def test_slow_patterns_of_a_request_do_not_stop_the_answers(world):
    """A request brings its own policy and command lines.  Comparing them would take minutes."""
    chance = random.Random(1)
    policy = "[guard]\n" + "".join(guarded.rule("contend", command=f".*a.{{40}}X{chr(97 + i)}z") for i in range(16))
    crowd = [{"name": f"p{i}", "command": "".join(chance.choices("ab", k=158))} for i in range(200)]
    body = {"policy": policy, "processes": crowd, "gpus": [{"memory_total_bytes": 80 * GIB}], "seconds": 600}
    with Guarded(world, configure()) as s:
        def simulate(ret):
            with contextlib.suppress(requests.ConnectionError):  # the service ends before it answers the last request
                ret.append(s.post("/api/v1/guard/simulate", token=True, json=body, timeout=4 * support.TIMEOUT))

        got, answers = [], 0
        asks = threading.Thread(target=simulate, args=(got,))
        asks.start()
        while asks.is_alive():
            answers += s.get("/healthz", timeout=10).status_code == 200
        assert answers > 1
        assert got[0].status_code == 400 and "CPU time" in got[0].json()["detail"], got[0].text
        asks = threading.Thread(target=simulate, args=([],))
        asks.start()
        s.wait(lambda: s.get("/healthz").status_code == 200)
        s.child.send_signal(signal.SIGTERM)
        assert s.child.wait(support.TIMEOUT) == 0
        asks.join()


def test_a_name_that_begins_like_that_of_a_container_is_not_taken_for_it(world):
    """The class depends on the whole name, at a place of the path that other users cannot choose."""
    there = [("ollama", "/lxc.payload.ollama", "worker"), ("ollama-evil", "/lxc.payload.ollama-evil", "contender"),
             ("ollam", "/lxc.payload.ollam", "contender"), ("", "/lxc.payload.ollama", "contender"),
             ("ollama", "/user.slice/user-1000.slice/user@1000.service/lxc.payload.ollama", "contender")]
    crowd = [{"name": f"p{i}", "container": name, "cgroup": path} for i, (name, path, _) in enumerate(there)]
    with Guarded(world, configure(table("w", "container", match_container="ollama"))) as s:
        got = s.post("/api/v1/guard/simulate", token=True,
                     json={"gpus": [{"memory_total_bytes": 80 * GIB}], "processes": crowd, "seconds": 1})
        assert got.status_code == 200, got.text
        classes = {p["name"]: p["class"] for p in got.json()["gpus"][0]["processes"]}
        assert classes == {f"p{i}": expected for i, (_, _, expected) in enumerate(there)}


@needs_root
@pytest.mark.parametrize("line,why", [("uid=root:x", "there is no such user"), ("exe=/bin/other", "may each occur once")])
def test_the_companion_refuses_a_rule_that_could_be_misread(companion, line, why):
    companion.allow(f"signal exe={os.path.realpath(sys.executable)} {line}")
    with subprocess.Popen(["/bin/sleep", "1000"]) as victim:
        answer = companion.ask(f"signal 15 {name(victim.pid)}\n")
        assert answer.startswith("no ") and why in answer + companion.log(), answer
        assert victim.poll() is None
        victim.kill()


# ---- HTTP ----

def raw(s, data):
    where = urllib.parse.urlsplit(s.url)
    with socket.create_connection((where.hostname, where.port), timeout=support.TIMEOUT) as c:
        c.sendall(data)
        answer = b""
        while part := c.recv(4096):
            answer += part
            if b"\r\n\r\n" in answer:
                break
    return int(answer.split()[1])


def test_the_service_refuses_hostile_requests_and_answers_others():
    with Service() as s:
        host = urllib.parse.urlsplit(s.url).netloc.encode()
        head = b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n"
        assert raw(s, b"GET /healthz\0/x" + head + b"\r\n") == 400
        assert raw(s, b"GET /healthz" + head + b"X: " + b"x" * 20000 + b"\r\n\r\n") == 431
        for origin in ("null", "http://other.example", "http://localhost:1"):
            refused = s.post("/api/v1/windows", json={}, headers={"Origin": origin})
            assert refused.status_code == 403, (origin, refused.text)
        where = urllib.parse.urlsplit(s.url)
        idle = [socket.create_connection((where.hostname, where.port)) for _ in range(300)]
        for c in idle[::2]:
            c.sendall(b"POST /api/v1/windows" + head + b"Content-Length: 100\r\n\r\n{")
        assert s.get("/healthz").status_code == 200
        for c in idle:
            c.close()


# ---- drivers ----

SLOW = "".join(f'[[fault]]\ncall = "nvmlDeviceGet{call}"\ndelay = 0.3\n'
               for call in ("ClockInfo", "UtilizationRates", "PerformanceState", "PowerUsage"))


def test_a_slow_driver_is_read_with_its_age(tmp_path):
    world = tmp_path / "world.toml"
    world.write_text('[[gpu]]\nprofile = "h200"\n' + SLOW)
    with Service(world) as s:
        def reading():
            return s.get("/api/v1/snapshot").json()["devices"][0]

        s.wait(lambda: reading()["state"] == "ok")
        s.ticks(2)
        for _ in range(20):
            assert reading()["state"] == "ok" and reading()["power_watts"] > 0, reading()


def test_a_hanging_call_lets_ages_grow(tmp_path):
    """Ages are computed at the time of the request, so a GPU that is no longer read is reported as not up."""
    world = tmp_path / "world.toml"
    world.write_text('[[gpu]]\nprofile = "h200"\n[[fault]]\ncall = "nvmlDeviceGetUtilizationRates"\nfrom = 1.0\nhang = true\n')
    with Service(world, config="[device]\ntimeout = '60s'\n") as s:
        def age():
            return s.get("/api/v1/devices").json()["devices"][0]["seen_age_seconds"]

        s.wait(lambda: age() > 2.5)  # no reading for two intervals, and the call has not timed out
        assert "gpuward_gpu_up{" in s.get("/metrics").text
        assert not [line for line in s.get("/metrics").text.splitlines() if line.startswith("gpuward_gpu_up{") and line.endswith(" 1")]
        first = age()
        s.wait(lambda: age() > first)
        s.stop(signal.SIGKILL)


def test_minus_one_degree_is_absent_with_a_reason(tmp_path):
    world = tmp_path / "world.toml"
    world.write_text('[[gpu]]\nprofile = "h200"\n[[fault]]\ncall = "nvmlDeviceGetTemperatureV"\nvalue = -1\n'
                     '[[fault]]\ncall = "nvmlDeviceGetTemperature"\nvalue = -1\n')
    done = support.gpuward("snapshot", "--json", f"--simulate={world}")
    device = json.loads(done.stdout)["devices"][0]
    assert device["temperature_gpu_celsius"] is None
    assert device["absent"]["temperature_gpu_celsius"] == "invalid_value"


# ---- files, limits, words ----

def test_a_negative_version_of_the_database_is_moved_aside():
    with Service() as s:
        s.ticks(2)
        s.stop()
        with sqlite3.connect(s.state) as db:
            db.execute("PRAGMA user_version = -1")
        db.close()
        s.start()
        assert s.get("/healthz").status_code == 200
        assert ".corrupt-" in s.messages()


def test_a_removed_write_ahead_log_loses_nothing():
    with Service() as s:
        s.ticks(2)
        os.unlink(s.state + "-wal")
        window = s.post("/api/v1/windows", json={"label": "after-the-log"}).json()["id"]
        assert s.post(f"/api/v1/windows/{window}/stop").status_code == 200
        s.kept("after-the-log")  # the test, which is another process, reads it in the database
        s.restart(signal.SIGKILL)
        assert "after-the-log" in s.get("/api/v1/windows").text


def test_too_few_open_files_are_named():
    done = limited("serve", "--simulate", "--listen", "127.0.0.1:0", files=8)
    assert done.returncode != 0 and "files may be open" in done.stderr and "memory;" not in done.stderr, done.stderr


def test_an_endless_file_takes_no_memory():
    done = limited("guard", "replay", "/dev/zero", bytes_=None if SANITIZED else 1 << 30)
    assert done.returncode == support.FAILED and "memory" not in done.stderr, done.stderr


def test_a_label_sends_nothing_to_the_terminal():
    done = support.gpuward("measure", "--simulate", "--label", "a\033]0;title\007b", "--", "true")
    assert "\033]0;" not in done.stdout + done.stderr and "\007" not in done.stdout + done.stderr


def test_the_guard_counts_its_looks_over_a_restart(world):
    with Guarded(world, configure()) as s:
        def looks():
            return s.get("/api/v1/guard").json()["counts"]["looks_total"]

        s.wait(lambda: looks() >= 20)
        for how in (signal.SIGTERM, *[signal.SIGKILL] * 4):
            last = looks()
            s.wait(lambda: looks() > last)  # so that `before` was published only a moment ago
            before = looks()
            s.restart(how)
            s.ticks(2)
            assert looks() >= before, how


def lasting_counters(s):
    """Returns the counters of /metrics that continue after a restart, by series."""
    names = r"gpuward_(energy_joules|energy_measured_seconds|workload_\w+|guard_looks)_total"
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in s.get("/metrics").text.splitlines() if re.match(names, line)}


def test_a_counter_is_shown_when_it_is_stored():
    """A counter that is shown before it is stored would fall after kill -9, and Prometheus would count its whole value again."""
    shown = []

    def scrape_and_kill(s):
        begun = time.monotonic()
        shown.append(lasting_counters(s))
        s.child.kill()
        shown.append(time.monotonic() - begun < 0.25)  # a reply waits no longer than this for a slow disk

    with Service("two-gpus", env=EVERY_METRIC) as s:
        for _ in range(10):
            s.ticks(2)
            with contextlib.closing(sqlite3.connect(s.state, isolation_level=None, timeout=support.TIMEOUT)) as db:
                db.execute("BEGIN IMMEDIATE")  # the service cannot write
                s.ticks(1)
                shown.clear()
                scrape = threading.Thread(target=scrape_and_kill, args=[s])
                scrape.start()
                scrape.join(0.05)
            scrape.join()
            s.restart()
            after = lasting_counters(s)
            before, judged = shown
            if judged:
                assert before and [k for k in before if after[k] < before[k]] == []
                return
    pytest.skip("the machine is too busy")


def test_a_slow_disk_does_not_stop_the_stream():
    """While nothing can be stored, each reading is published after 0.3 s, also if the next reading comes earlier."""
    ticks = []

    def follow(url):
        with contextlib.suppress(requests.RequestException), \
                requests.get(url + "/api/v1/events", headers={"Accept": "text/event-stream"}, stream=True, timeout=support.TIMEOUT) as r:
            for line in r.iter_lines():
                if line == b"event: tick":
                    ticks.append(time.monotonic())

    with Service("two-gpus", "--interval", "100ms") as s:
        threading.Thread(target=follow, args=[s.url], daemon=True).start()
        s.wait(lambda: len(ticks) > 3)
        with contextlib.closing(sqlite3.connect(s.state, isolation_level=None, timeout=support.TIMEOUT)) as db:
            db.execute("BEGIN IMMEDIATE")  # the service cannot write, and waits 2 s before it calls this a failure
            begun = time.monotonic() + 0.2  # readings that were already stored may still arrive
            s.wait(lambda: time.monotonic() > begun + 1.5)
            late = [t for t in ticks if begun < t < begun + 1.5]
        assert late


@guarded.needs_root
def test_root_uses_no_file_that_another_user_can_replace(tmp_path):
    """History, recording and metrics in a folder of another user: links and pipes there are not followed or opened."""
    theirs = pathlib.Path(tempfile.mkdtemp(prefix="gpuward-theirs-"))
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    try:
        os.chown(theirs, guarded.NOBODY, guarded.NOBODY)
        (theirs / "trace").symlink_to(victim)
        os.mkfifo(theirs / "gpu.prom.tmp")  # opening it would block the service
        config = f'[guard]\nmode = "observe"\nrecord = "{theirs}/trace"\n' + table(
            "a", "exec", evict_command=["/bin/true"], resume_command=["/bin/true"], match_name="a")
        with Service("two-gpus", "--textfile", theirs / "gpu.prom", config=config) as s:
            s.wait(lambda: "gpuward_" in (theirs / "gpu.prom").read_text() if (theirs / "gpu.prom").exists() else False)
            s.wait(lambda: "other users can change it or its folder" in s.messages() + s.get("/api/v1/events").text)
        assert victim.read_text() == "untouched"
        with Service(state=str(theirs / "history.db")) as s:
            assert f"other users can change {theirs}/history.db or its folder" in s.messages()
        assert not (theirs / "history.db").exists() and not (theirs / "history.db.lock").exists()
        mine = theirs / "gpuward.toml"
        mine.write_text("[service]\n")
        said = support.gpuward("config", "check", mine)
        assert "what gpuward does as root" in said.stdout + said.stderr
    finally:
        shutil.rmtree(theirs)


@guarded.needs_root
def test_root_runs_no_hook_that_another_user_can_replace(world, tmp_path):
    """A program, or the script of an interpreter, in a folder of another user."""
    theirs, ran = pathlib.Path(tempfile.mkdtemp(prefix="gpuward-theirs-")), tmp_path / "ran"
    script = theirs / "evict"
    script.write_text(f"#!/bin/sh\necho evicted >> {ran}\n")
    script.chmod(0o755)
    try:
        with Process(world, [sys.executable, "-c", "import time; time.sleep(1000)", "served-here"]) as worker:
            world.hold(worker.pid, 10 * GIB)
            hooks = {"program": [str(script)], "script": ["/bin/sh", "-e", str(script)]}
            config = table("program", "exec", match_command="served-here", evict_command=hooks["program"],
                           resume_command=["/bin/true"])
            with Guarded(world, configure(config)) as s:
                s.until("active", name="program")
                os.chown(theirs, guarded.NOBODY, guarded.NOBODY)  # now the other user chooses what runs
                s.guard("evict", "program")
                s.reports(f"other users can change {script}")
                assert not ran.exists()
        for name, argv in hooks.items():
            file = tmp_path / f"{name}.toml"
            file.write_text(configure(table(name, "exec", match_unit="a.service", evict_command=argv, resume_command=["/bin/true"])))
            said = support.gpuward("config", "check", file).stderr
            assert f"evict_command: the guard does not run {script} as root" in said and "resume_command" not in said, said
    finally:
        shutil.rmtree(theirs)


@guarded.needs_root
def test_root_writes_no_queue_that_another_user_can_replace(tmp_path):
    theirs = pathlib.Path(tempfile.mkdtemp(prefix="gpuward-theirs-"))
    os.chown(theirs, guarded.NOBODY, guarded.NOBODY)
    config = f'[push]\nurl = "http://127.0.0.1:1/write"\nqueue_dir = "{theirs}/queue"\n[device]\nnvml_library = "{theirs}/nvml.so"\n'
    try:
        file = tmp_path / "gpuward.toml"
        file.write_text(config)
        said = support.gpuward("config", "check", file).stderr
        for key, path in (("queue_dir", "queue"), ("nvml_library", "nvml.so")):
            assert f"{key}: other users can change {theirs}/{path} or its folder" in said, said
        with Service(config=config.partition("[device]")[0]) as s:
            s.wait(lambda: f"other users can change the push queue in {theirs}/queue" in s.get("/readyz?verbose").text)
        assert not list(theirs.iterdir())
    finally:
        shutil.rmtree(theirs)
