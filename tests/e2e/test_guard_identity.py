"""Tests which process is a worker: how the guard finds it, what it reports if it does not, and that it never touches another
process."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import support
from guarded import AS_NOBODY, IGNORE_SLEEP, NOBODY, Guarded, Recorder, by_signal, configure, held, needs_root, quick, rule, table
from worker import GIB, UUID, Contender, Process, Worker, World

# A program that records its signals with its current name, and runs another program (exec) when a file exists.
BECOMES = """
import os, signal, sys, time
name, log, flag = sys.argv[1:]
out = open(log, "a", buffering=1)
for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, lambda n, _: out.write(f"{name} {n}\\n"))
print("ready", flush=True)
while name == "worker":
    time.sleep(0.02)  # between two looks for the file
    if os.path.exists(flag):
        os.execv(sys.executable, [sys.executable, sys.argv[0], "game", log, flag])
while True:
    signal.pause()
"""

UNSEEN = "cannot see enough of other users' processes"
KILL = quick(max_level=6, allow_kill=True)


def matched(worker, **match):
    """Returns a configuration that finds the worker only by this match."""
    return configure(table("ollama", "ollama", url=worker.url, **match))


def test_explain_shows_which_process_a_match_should_find(world, worker):
    with Guarded(world, matched(worker, match_unit="ollama.service")) as s:
        s.until("absent")
        said = " ".join(s.guard("explain", "ollama").stdout.split())
        assert "no process is in unit ollama.service" in said
        assert "Without a match, the worker is the process that listens at " + worker.url in said
        runner, = worker.runners()
        assert f"The worker may be pid {runner} " in said and "worker.py runner" in said and "not on the worker's GPU" not in said
        learned = s.guard("learn", "--for", "1s")
        assert "[[rule]]" not in learned.stdout and "this process may be the worker ollama, which the guard cannot find" in learned.stderr
        doc = json.loads(s.guard("learn", "--for", "1s", "--json", "--quiet").stdout)
        assert doc["rules"] == [] and doc["may_be_workers"][0]["worker"] == "ollama"
        s.reload(matched(worker, match_command="worker.py (serve|runner)"))  # as explain showed
        s.until("active")


def test_a_reload_with_another_match_is_explained_by_that_match(s, worker):
    for match, why in (({"match_unit": "ollama.service"}, "no process is in unit ollama.service"),
                       ({"match_name": "no-such"}, "no process is called no-such"),
                       ({"match_command": "no-such-[0-9]"}, "no command line matches no-such-[0-9]")):
        s.reload(matched(worker, **match))
        s.wait(lambda: why in s.worker()["why"])
        assert s.now() == "absent"
    s.reload(matched(worker))
    s.until("active")
    assert worker.acted() == []


def test_a_reservation_for_a_process_ends_with_it(s):
    ask = f"{support.PROGRAM} guard {{}} --address {s.url}"
    done = s.cli("run", "--vram", "20G", "--", "sh", "-c", ask.format("explain") + "; " + ask.format("status --json"))
    said = " ".join(done.stdout.split())
    assert "Ends when the reservation is released or its process ends." in said and "at the earliest" not in said
    room, = json.loads(done.stdout[done.stdout.index("{"):])["reservations"]
    assert room["pid"] and room["until_utc"] is room["until_seconds"] is None
    assert s.post("/api/v1/guard/reservations", token=True, json={"bytes": GIB, "ttl_s": 0}).status_code == 400


def evicted(s, world, w):
    s.wait(lambda: signal.SIGUSR1 in w.signals())
    world.hold(w.pid, 0)
    s.until("evicted", name="w")


def test_a_process_that_became_another_program_is_not_signalled(world, tmp_path):
    program, log, flag = (tmp_path / n for n in ("b.py", "log", "flag"))
    program.write_text(BECOMES)
    w = table("w", "signal", match_command="b.py worker", evict_signal="SIGUSR1", resume_signal="SIGUSR2")
    p = Process(world, [sys.executable, str(program), "worker", str(log), str(flag)], stdout=subprocess.PIPE, text=True)
    try:
        assert p.child.stdout.readline() == "ready\n"
        world.hold(p.pid, 8 * GIB)
        with Guarded(world, configure(w, defaults=KILL)) as s:
            s.until("active", name="w")
            flag.touch()
            assert p.child.stdout.readline() == "ready\n"
            s.guard("evict", "w")  # before the guard has observed the other program
            s.wait(lambda: s.classes()[p.pid] == "contender")
            s.until("absent", name="w")
            assert log.read_text() == "" and p.child.poll() is None
    finally:
        p.end(signal.SIGKILL)
        p.child.stdout.close()


@pytest.fixture
def signalled(world, tmp_path):
    """A process with 8 GiB that records its signals, and its pidfile."""
    with Recorder(world, tmp_path / "signals", 8 * GIB) as w:
        (tmp_path / "pid").write_text(f"{w.pid}\n")
        yield w, tmp_path / "pid"


@pytest.mark.parametrize("for_good", (False, True))
@pytest.mark.deep
def test_an_evicted_worker_is_not_lost_while_its_pidfile_is_empty(world, signalled, for_good):
    w, pidfile = signalled
    with Guarded(world, configure(by_signal(pidfile), more=IGNORE_SLEEP)) as s:
        s.until("active", name="w")
        s.guard("evict", "w")
        evicted(s, world, w)
        with Contender(world, 20 * GIB) as c:  # a rule ignores this process, but it leaves too little memory
            s.wait(lambda: s.classes().get(c.pid) == "ignored")
            s.guard("resume", "w")
            s.wait(lambda: any(d["rule"] == "may not return yet" for d in s.decisions()))
            pidfile.write_text("")
            s.observes(2.5)  # the pidfile is read once per second
            if not for_good:
                pidfile.write_text(f"{w.pid}\n")
            assert s.now("w") == "evicted"
        s.wait(lambda: signal.SIGUSR2 in w.signals())
        assert not any(d["to"] == "absent" for d in s.decisions())


def test_a_worker_that_a_wrong_configuration_does_not_find_returns_with_the_right_one(world, signalled):
    w, pidfile = signalled
    right = configure(by_signal(pidfile))
    with Guarded(world, right) as s:
        s.until("active", name="w")
        with Contender(world, 4 * GIB):
            evicted(s, world, w)
            s.reload(right.replace(str(pidfile), f"{pidfile}-typo"))
            s.until("absent", name="w")
            events = [e for e in s.get("/api/v1/events").json()["events"] if "still runs and is evicted" in e["text"]]
            assert [e["severity"] for e in events] == ["warning"]
        s.reload(right)
        s.wait(lambda: signal.SIGUSR2 in w.signals())
        assert "its process ended" not in s.messages()


def test_a02_a_runner_in_its_own_session_belongs_to_the_worker(world):
    with Worker(world, detached=True) as w, Guarded(world, configure(("ollama", w))) as s:
        s.settled()
        assert os.getsid(w.runners()[0]) != os.getsid(w.pid)
        s.observes()
        assert s.course() == ["active"] and w.acted() == []


def test_a_server_that_is_not_configured_is_never_called(world, worker):
    with Worker(world, models=["other:1b"], size=4 * GIB) as other:
        text = configure(("ollama", worker), more=rule("ignore", name="python3"))
        with Guarded(world, text) as s:
            s.until("active")
            with Contender(world, 8 * GIB):
                s.until("evicted")
                assert other.resident() == 4 * GIB
            s.until("active")
        assert other.calls() == []
        assert other.child.poll() is None


def test_a_process_that_two_workers_match_is_reported_once(world):
    """One worker matches the program, the other the name.  Only at run time can the guard see that both match one process."""
    two = [table("one", "checkpoint", match_exe="*/sleep"), table("two", "checkpoint", match_name="sleep*")]
    with Guarded(world, configure(*two, mode="observe")) as s, Contender(world, GIB) as c:
        says = f"process {c.pid} (sleep) matches worker one and worker two: narrow the match of one of them"
        s.reports(says)
        for name in ("one", "two"):
            assert f"Conflict: {says}" in " ".join(s.guard("explain", name).stdout.split())
        s.observes()
        assert s.events().count(says) == 1


def reborn(world, pid, path, size):
    """Returns a recorder with this pid, or None if a pid cannot be chosen on this machine."""
    last = "/proc/sys/kernel/ns_last_pid"
    for _ in range(50):
        try:
            with open(last, "w") as f:
                f.write(str(pid - 1))
        except OSError:
            return None
        new = Recorder(world, path)
        if new.pid == pid:
            world.hold(pid, size)
            return new
        new.end()
    return None


def test_a06_a_process_id_that_is_used_again_is_another_process(world, tmp_path):
    """The guard may kill the worker, but not a later process with its pid: that process is a contender."""
    first = Recorder(world, tmp_path / "first")
    keeps = held(world, "ollama", 10 * GIB, process=first, models=["m"], keeps=True)
    with keeps as w, held(world, "ollama", 4 * GIB, models=["n"]) as o:
        with Guarded(world, configure(w.table("w"), o.table("o"), defaults=KILL)) as s:
            s.until("active", name="w")
            first.end()
            s.until("absent", name="w")
            second = reborn(world, first.pid, tmp_path / "second", 8 * GIB)
            if second is None:
                pytest.skip("process ids cannot be chosen here")
            with second:
                s.until("evicted", name="o")  # for the other worker it is a contender
                assert s.now("w") == "absent"
                s.guard("evict", "w")
                s.observes()
                assert second.signals() == [] and second.child.poll() is None
                assert s.classes()[second.pid] == "contender"


def test_a_process_that_is_younger_than_its_pidfile_is_no_worker(world, signalled):
    w, pidfile = signalled
    before = time.time() - 10
    os.utime(pidfile, (before, before))
    with Guarded(world, configure(by_signal(pidfile), defaults=KILL)) as s:
        s.until("absent", name="w")
        assert s.classes()[w.pid] == "contender"
        os.utime(pidfile)
        s.until("active", name="w")
        assert s.classes()[w.pid] == "worker"
    assert not w.signals()


def test_process_1_and_the_parents_of_the_service_are_no_workers(world, signalled):
    other, pidfile = signalled
    for pid in (1, os.getpid()):
        pidfile.write_text(f"{pid}\n")
        with Guarded(world, configure(by_signal(pidfile), defaults=KILL)) as s:
            s.until("absent", name="w")
            s.wait(lambda: s.classes().get(other.pid) == "contender")
    assert not other.signals()


def test_a_command_that_prints_without_end_is_ended(world, tmp_path):
    exe = shutil.copy("/bin/sleep", tmp_path / "holder")
    w = table("w", "exec", match_exe=exe, evict_command=["/usr/bin/yes", str(tmp_path)], resume_command=["/bin/true"])
    with Contender(world, 10 * GIB, exe=exe), Guarded(world, configure(w)) as s:
        s.until("active", name="w")
        s.guard("evict", "w")
        s.wait(lambda: subprocess.run(["pgrep", "-f", f"yes {tmp_path}"], stdout=subprocess.DEVNULL).returncode == 0)
        s.logs("not done in time")


def test_the_shortest_hold_ends_and_half_a_process_id_is_refused(s):
    r = s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"ttl_s": 1e-10})
    assert r.status_code < 300, r.text
    s.wait(lambda: s.worker()["hold"] == "none")
    r = s.post("/api/v1/guard/reservations", token=True, json={"bytes": GIB, "ttl_s": 10, "pid": 1.5})
    assert r.status_code == 400 and "pid" in r.text


@pytest.mark.parametrize("pid, why", [(1, "never exits"), (2, "kernel thread"), (None, "belongs to the worker ollama")])
def test_a_process_of_the_system_or_of_a_worker_is_no_game(s, worker, pid, why):
    pid = pid or worker.pid
    if pid == 2 and not (os.path.exists("/proc/2/comm") and open("/proc/2/comm").read() == "kthreadd\n"):
        pytest.skip("there is no kernel thread here")
    games = "/api/v1/guard/games"
    done = s.post(games, token=True, json={"pid": pid})
    assert done.status_code == 400 and why in done.json()["detail"], done.text
    s.observes()
    assert worker.acted() == [] and s.get(games).json()["games"] == []


def test_a_process_id_with_the_start_of_another_is_refused(s, worker):
    body = {"bytes": 16 * GIB, "pid": os.getpid(), "start_ticks": 1}
    done = s.post("/api/v1/guard/reservations", token=True, json=body)
    assert done.status_code == 400 and "UNIX socket" in done.json()["detail"], done.text
    assert s.reservations() == [] and worker.acted() == []


HOSTILE = [b"a\nlevel=error x", b'"quote\\', b"\x1b[2J\x1b]0;t\x07", b"\xff\xfe\xc3(", b"<script>alert(1)</script>",
           b"abcdefghijklmn\xc3\xa9", b"$(touch pwned);`id`", b"%s%n{}\t\r"]


def clean(data):
    """Returns data as text.  Asserts that it has no character that would control a terminal."""
    shown = data.decode("utf-8")  # strict
    assert not [c for c in shown if ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160], shown
    return shown


def test_hostile_names_of_processes_are_only_names(world, worker, tmp_path):
    trace = tmp_path / "trace"
    place = os.fsencode(tmp_path / "bin")
    os.mkdir(place)
    with contextlib.ExitStack() as stack:
        s = stack.enter_context(Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"')))
        s.until("active")
        for name in HOSTILE:
            path = shutil.copy("/bin/sleep", os.path.join(place, name.replace(b"/", b"_")))
            child = stack.enter_context(Process(world, [path, "1000"]))
            world.hold(child.pid, GIB)
        s.until("evicted")
        s.wait(lambda: len(s.processes()) == len(HOSTILE))
        for where in ("/api/v1/guard", f"/api/v1/guard/gpus/{UUID}", "/api/v1/guard/explain", "/api/v1/events",
                      "/api/v1/guard/workers/ollama"):
            json.loads(clean(s.get(where).content))
        for line in clean(s.get("/metrics").content).splitlines():
            assert line.startswith("#") or line.rpartition(" ")[2].replace(".", "").replace("-", "") != ""
            assert "touch" not in line and "alert(" not in line  # no label has a name or a command
        env = dict(env=support.environment(), capture_output=True, timeout=support.TIMEOUT)
        for words in (("status",), ("explain",), ("explain", "--json"), ("status", "--json")):
            done = subprocess.run([str(support.PROGRAM), "guard", *words, "--address", s.url], **env)
            assert done.returncode == 0
            clean(done.stdout)
        shutil.copy(s.config, tmp_path / "policy.toml")
        with open(os.path.join(s.path, "log"), "rb") as f:
            log = clean(f.read())
        assert all(line.startswith("time=") for line in log.splitlines()), log
        for more in ((), ("--json",)):
            done = subprocess.run([str(support.PROGRAM), "guard", "replay", "--policy", str(tmp_path / "policy.toml"),
                                   str(trace), "--quiet", *more], **env)
            assert done.returncode == 0, done.stderr
            shown = clean(done.stdout)
        assert all(json.loads(line)["worker"] == "ollama" for line in shown.splitlines()) and "evicted" in shown
    assert not os.path.exists("pwned")


class Inside(Guarded):
    def stop(self, how=signal.SIGKILL):
        return super().stop(signal.SIGKILL)  # unshare passes on no other signal


def test_a18_in_a_namespace_memory_without_a_process_is_demand(tmp_path):
    if subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no pid namespace can be made here")
    world = World(tmp_path)
    pidfile, other = tmp_path / "pid", tmp_path / "other"
    w = table("w", "exec", match_pidfile=pidfile, resume="never",
              evict_command=["/bin/sh", "-c", f"rm -f {world.held}/$(cat {pidfile})"])
    s = Inside(world, configure(w, guard='profile = "container"'))
    s.argv = ["unshare", "-p", "-f", "--mount-proc", "--kill-child=KILL", "/bin/sh", "-c",
              f'sleep 1000 & echo $! > {pidfile}; echo "{10 * GIB} compute" > {world.held}/$!; '
              f'sleep 1000 & echo $! > {other}; exec "$@"', "sh"] + s.argv
    with s:
        s.settled(10 * GIB, "w")
        assert int(pidfile.read_text()) < 100  # a pid of the namespace
        world.hold(int(other.read_text()), 8 * GIB, "hidden")
        s.until("evicted", name="w")
        gpu = s.get(f"/api/v1/guard/gpus/{UUID}").json()
        assert gpu["hidden_processes"] is True and gpu["unattributed_bytes"] is not None
        said = [d for d in s.decisions() if d["to"] == "drain"]
        assert said and "unattributed" in said[-1]["rule"] + said[-1]["evidence"]


def test_a_program_in_a_pid_namespace_is_known_by_its_socket(world, worker, tmp_path):
    """In the namespace, gpuward run has pid 1 or 2.  The service finds its pid in its own namespace."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespaces here")
    address = f"unix:{tmp_path}/socket"
    with Guarded(world, configure(("ollama", worker)), "--listen", address) as s:
        s.settled()
        child = subprocess.Popen([*unshare, str(support.PROGRAM), "run", "--address", address, "--token-file",
                                  s.token_file, "--vram", "16G", "--", "sleep", "1000"], env=support.environment())
        pid = 0
        try:
            s.wait(lambda: s.reservations() != [])
            pid = s.reservations()[0]["pid"]
            assert pid > 2 and b"run" in open(f"/proc/{pid}/cmdline", "rb").read()
            s.until("evicted")
        finally:
            child.kill()
            child.wait()
            if pid:
                os.kill(pid, signal.SIGKILL)
        s.wait(lambda: s.reservations() == [])
        s.wait(lambda: worker.resident() == 10 * GIB)


class Unprivileged(Guarded):
    """A service with the rights of the packaged one: it cannot see the programs and ports of other users' processes."""

    def __init__(self, world, config, capabilities=None):
        super().__init__(world, config)
        more = [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"] if capabilities else []
        self.argv = [*AS_NOBODY, *more, "--", *self.argv]
        for path in (self.path, self.token_file, self.config):
            os.chown(path, NOBODY, NOBODY)


def by_port(url, mode="enforce"):
    """Returns a configuration with a worker that is found by its port, and a rule that needs the path of a program."""
    return configure(table("ollama", "ollama", url=url), mode=mode, guard='unknown = "contend"', defaults="",
                     more=rule("contend-now", exe="*/games/*"))


@pytest.fixture
def place():
    """A world and a program in a folder that every user may read."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        games = pathlib.Path(d) / "games"
        games.mkdir()
        shutil.copy("/bin/sleep", games / "game")
        d = pathlib.Path(d)
        (d / "world").mkdir()
        yield World(d / "world"), games / "game"


@needs_root
def test_a_process_that_cannot_be_identified_is_reported_and_is_no_contender(place):
    world, game = place
    with Worker(world, size=4 * GIB) as w, Contender(world, 2 * GIB, exe=game) as g:
        runner, = support.wait(w.runners)
        with Unprivileged(world, by_port(w.url)) as s:
            s.wait(lambda: runner in s.processes() and g.pid in s.processes())
            seen = s.processes()
            assert seen[runner]["class"] == "unknown" and seen[runner]["may_be_worker"] and not seen[runner]["program_seen"]
            assert seen[g.pid]["class"] == "unknown"
            event = next(t for t in s.events() if UNSEEN in t)
            assert "worker ollama (by port)" in event and "(match.exe)" in event and "CAP_SYS_PTRACE" in event
            assert UNSEEN in s.messages()
            s.until("absent")
            assert re.search(r"identified by its port.*match\.unit", " ".join(s.guard("explain").stdout.split()))
            learned = s.guard("learn", "--for", "1s")
            assert "[[rule]]" not in learned.stdout and "may be the worker ollama" in learned.stderr
        assert w.acted() == []


@needs_root
def test_learn_names_what_the_service_can_match(place):
    world, game = place
    with Contender(world, 2 * GIB, kind="graphics", exe=game) as g:
        with Unprivileged(world, configure(table("w", "systemd", match_unit="w.service"), mode="observe")) as s:
            s.wait(lambda: g.pid in s.processes())
            assert 'match.name = "game"' in s.guard("learn", "--for", "1s").stdout
            assert UNSEEN not in s.messages()


@needs_root
def test_with_two_capabilities_all_processes_are_identified(place):
    world, game = place
    with Worker(world, size=4 * GIB) as w, Contender(world, 2 * GIB, exe=game) as g:
        runner, = support.wait(w.runners)
        with Unprivileged(world, by_port(w.url, "dry-run"), capabilities="+sys_ptrace,+dac_read_search") as s:
            s.wait(lambda: s.processes().get(runner, {}).get("class") == "worker")
            s.wait(lambda: s.processes().get(g.pid, {}).get("action") == "contend-now")
            assert UNSEEN not in s.messages()


def test_doctor_run_by_root_shows_what_an_unprivileged_service_would_miss(tmp_path):
    etc = tmp_path / "etc" / "gpuward"
    etc.mkdir(parents=True)
    (etc / "gpuward.toml").write_text(by_port("http://127.0.0.1:11434"))
    env = support.environment(GPUWARD_CONFIG_ROOT=tmp_path)
    rows = support.gpuward("doctor", "--json", "--backend=none", env=env)
    message = next(p for p in json.loads(rows.stdout)["privileges"] if p["privilege"] == "programs")["message"]
    assert "worker ollama (by port)" in message and "(match.exe)" in message
