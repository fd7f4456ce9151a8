"""Tests the companion: which clients it serves, which processes it touches, and that no request breaks it.  Processes and
users are real; libcuda.so.1 is a fake that keeps its processes in files; systemctl is a fake that records its calls."""
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import service
import support
from guarded import needs_root
from support import wait
from worker import GIB, World, ticks

pytestmark = needs_root  # runs the program as users other than our own

COMPANION = support.BUILD / "gpuward-companion"
ADAPTER = support.BUILD / "tests" / "e2e" / "adapter"
CUDA = support.BUILD / "tests" / "e2e" / "fake_cuda" / "libcuda.so.1"
NOBODY = 65534   # runs the guard
OTHER = 65533    # a stranger
OWNER = 65532    # owns the worker


def name(pid, shift=0):
    return f"{pid}:{ticks(pid) + shift}"


def as_user(uid, function):
    """Calls function in a process of that user and returns its result."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(w, function())
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        got = f.read()
    os.waitpid(pid, 0)
    return got


@functools.lru_cache(maxsize=None)
def as_packaged():
    """Returns a command prefix that keeps only the capabilities of the unit; [] if this machine does not allow that."""
    argv = ["setpriv", "--no-new-privs", "--bounding-set", "-all,+kill,+sys_ptrace,+dac_override"]
    return argv if subprocess.run([*argv, "true"], capture_output=True).returncode == 0 else []


def answer_of(s):
    """Returns everything that the peer sends.  A peer that has not read everything resets the connection after its answer."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while True:
            more = s.recv(4096)
            if not more:
                break
            got += more
    return got


class Companion:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.file = self.path / "companion.conf"
        self.socket = str(self.path / "sock")
        self.cuda = self.path / "cuda"
        self.log_path = self.path / "log"
        self.allow()
        self.cuda.mkdir()
        shutil.copy(CUDA, self.cuda / "libcuda.so.1")
        self.systemctl = self.path / "systemctl"
        self.systemctl.write_text(f"#!/bin/sh\necho \"$@\" >> {self.path}/units\nexit $(cat {self.path}/status)\n")
        self.systemctl.chmod(0o755)
        (self.path / "status").write_text("0")
        self.child = None

    def allow(self, *lines):
        self.file.write_text("\n".join([f"client {NOBODY}", *lines, ""]))
        self.file.chmod(0o600)

    def start(self):
        self.child = subprocess.Popen(
            [*as_packaged(), COMPANION, "--file", self.file, "--socket", self.socket, "--systemctl", self.systemctl],
            env=support.environment(LD_LIBRARY_PATH=self.cuda), stdin=subprocess.DEVNULL,
            stderr=open(self.log_path, "a"))
        wait(lambda: self.reachable(), "it listens")
        os.chmod(self.socket, 0o666)
        return self

    def reachable(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.socket) == 0

    def stop(self):
        self.child.terminate()
        return self.child.wait(support.TIMEOUT)

    def log(self):
        return self.log_path.read_text()

    def children(self):
        return [int(p) for p in pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()]

    def ask(self, text, uid=NOBODY):
        """Sends a request and returns the last line of the answer."""
        def talk():
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(self.socket)  # this client waits, because the maximum number of clients is already served
                s.settimeout(support.TIMEOUT)
                with contextlib.suppress(BrokenPipeError):
                    s.sendall(text if isinstance(text, bytes) else text.encode())
                return answer_of(s)
        lines = as_user(uid, talk).decode().splitlines()
        assert lines and lines[:-1] in ([], ["taken"]), lines
        return lines[-1]

    def cuda_process(self, pid, state=0):
        (self.cuda / str(pid)).write_text(str(state))

    def state(self, pid):
        return int((self.cuda / str(pid)).read_text())

    def calls(self):
        path = self.cuda / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def order(self, *words, uid=NOBODY, **worker):
        """Gives orders from an unprivileged process and returns their outcomes."""
        return json.loads(self.begin(*words, uid=uid, **worker).communicate(timeout=support.TIMEOUT)[0].splitlines()[-1])

    def begin(self, *words, uid=NOBODY, companion=True, **worker):
        argv = [self.adapter()]
        for key, value in worker.items():
            argv += [f"{key}={v}" for v in (value if isinstance(value, list) else [value])]
        if companion:
            argv.append(f"companion={self.socket}")
        return subprocess.Popen([*argv, *words], stdout=subprocess.PIPE, text=True, user=uid, group=uid,
                                extra_groups=[], env=support.environment())

    def adapter(self):
        """Copies the adapter to where every user may run it, and returns its path."""
        to = self.path / "adapter"
        if not to.exists():
            shutil.copy(ADAPTER, to)
        return to


@pytest.fixture
def companion():
    with tempfile.TemporaryDirectory(prefix="gpuward-companion-") as path:
        os.chmod(path, 0o755)
        c = Companion(path).start()
        yield c
        if c.child.poll() is None:
            c.stop()


WORKER = """import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1], 'a').write('x'))
open(sys.argv[1], 'a').close()
while True: signal.pause()
"""


@pytest.fixture
def worker(companion):
    """A process of another user that counts its signals."""
    folder = companion.path / "worker"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    said = folder / "said"
    child = subprocess.Popen([sys.executable, "-c", WORKER, said], user=OWNER, group=OWNER, extra_groups=[],
                             env=support.environment())
    child.said = said
    wait(said.exists, "the worker runs")
    yield child
    child.kill()
    child.wait()


EXE = os.path.realpath(sys.executable)


def test_a_refusal_names_the_line_that_would_allow_it(companion, worker):
    companion.allow(f"signal exe={EXE}")
    answer = companion.ask(f"signal 10 {name(worker.pid)}\n", uid=OTHER)
    assert answer.startswith("no 4 ") and f"{companion.file}: client {OTHER}" in answer
    assert worker.said.read_text() == ""
    assert f"uid {OTHER}: request: refused" in companion.log()


def test_a_missing_file_or_one_that_others_can_write_allows_nothing(companion):
    companion.allow("unit a.service")
    companion.file.chmod(0o666)
    for uid in (0, NOBODY):
        assert "users other than root can write it" in companion.ask("unit 1000 stop a.service\n", uid=uid)
    companion.file.unlink()
    assert "nothing is allowed" in companion.ask("unit 1000 stop a.service\n", uid=0)
    assert not (companion.path / "units").exists()


def test_a_signal_reaches_an_allowed_process_and_no_other(companion, worker):
    request = f"signal 10 {name(worker.pid)}\n"
    for line in ("", "signal exe=/bin/other", f"signal exe={EXE} uid={NOBODY}", f"checkpoint exe={EXE}"):
        companion.allow(line)
        answer = companion.ask(request)
        assert answer.startswith("no 4 ") and f"{companion.file}: signal " in answer
    assert worker.said.read_text() == ""
    companion.allow(f"signal exe={EXE} uid={OWNER}")
    assert companion.ask(request) == "ok 1 "
    wait(lambda: worker.said.read_text() == "x", "the signal")
    # If one process may not be touched, the request touches none of the others.
    with subprocess.Popen(["/bin/sleep", "100"]) as other:
        answer = companion.ask(f"signal 10 {name(worker.pid)} {name(other.pid)}\n")
        assert answer.startswith("no 4 ") and "(sleep)" in answer
        assert other.poll() is None
        other.kill()
    assert worker.said.read_text() == "x"


def test_a_hostile_name_stays_on_its_line_of_the_log(companion):
    hostile = companion.path / "x\ndone\x1b[2J"
    shutil.copy("/bin/sleep", hostile)
    with subprocess.Popen([hostile, "100"]) as child:
        wait(lambda: os.readlink(f"/proc/{child.pid}/exe") == str(hostile), "it runs")
        answer = companion.ask(f"signal 10 {name(child.pid)}\n")
        child.kill()
    assert answer.startswith("no 4 ") and "(x?done?[2J)" in answer
    lines = companion.log().splitlines()
    assert len(lines) == 1 and "\x1b" not in lines[0]


def test_a_reused_pid_is_not_touched(companion, worker):
    companion.allow(f"signal exe={EXE}", f"checkpoint exe={EXE}")
    companion.cuda_process(worker.pid)
    stale = name(worker.pid, shift=1)
    assert companion.ask(f"signal 10 {stale}\n") == "ok 0 "
    assert "another process has its pid" in companion.ask(f"checkpoint 1000 {stale}\n")
    companion.cuda_process(worker.pid, 2)
    assert companion.ask(f"restore 1000 {stale}\n") == "ok 0 "
    assert companion.calls() == [] and worker.said.read_text() == ""
    assert companion.ask("signal 9 1:1\n").startswith("no 4 process 1 cannot be a target")
    assert "cannot be a target" in companion.ask(f"signal 9 {name(companion.child.pid)}\n")


def test_threads_and_kernel_threads_are_refused(companion, worker):
    companion.allow("signal uid=0", f"signal uid={OWNER}")
    second = pathlib.Path("/proc/2/comm")  # a container has no kernel threads
    if second.exists() and second.read_text() == "kthreadd\n":
        assert "a kernel thread" in companion.ask(f"signal 10 {name(2)}\n", uid=0)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        said = companion.ask(f"signal 10 {name(thread.native_id)}\n", uid=0)
    finally:
        over.set()
        thread.join()
    assert f"is a thread of process {os.getpid()}: use that pid" in said, said


def test_units_are_stopped_and_started_where_a_line_names_them(companion):
    answer = companion.ask("unit 5000 stop sshd.service\n")
    assert answer.startswith("no 4 ") and f"{companion.file}: unit sshd.service" in answer
    assert not (companion.path / "units").exists()
    companion.allow("unit w.service")
    assert companion.ask("unit 5000 stop w.service\n") == "ok 1 "
    assert companion.order("evict:4", kind="systemd", unit="w.service")["ok"]
    assert companion.order("resume", kind="systemd", unit="w.service")["ok"]
    words = (companion.path / "units").read_text().splitlines()
    assert words == [f"--no-ask-password --quiet {verb} -- w.service" for verb in ("stop", "stop", "start")]
    (companion.path / "status").write_text("5")
    outcome = companion.order("evict:4", kind="systemd", unit="w.service")
    assert not outcome["ok"] and "exit status 5" in outcome["message"]
    outcome = companion.order("evict:4", kind="systemd", unit="sshd.service")
    assert not outcome["ok"] and "unit sshd.service" in outcome["message"]


def test_the_unprivileged_guard_signals_another_users_worker(companion, worker):
    said = dict(kind="signal", evict_signal=10, pid=worker.pid)
    alone = companion.order("evict", companion=False, **said)
    assert not alone["ok"] and "CAP_KILL or guard.companion" in alone["message"]
    refused = companion.order("evict", **said)
    assert not refused["ok"] and str(companion.file) in refused["message"]
    companion.allow(f"signal uid={OWNER}")
    assert companion.order("evict", **said)["ok"]
    wait(lambda: worker.said.read_text() == "x", "the signal")
    assert companion.order("evict:6", allow_kill=1, **said)["ok"]
    assert worker.wait(support.TIMEOUT) == -signal.SIGTERM


def test_a_process_is_checkpointed_and_restored(companion, worker):
    companion.allow(f"checkpoint exe={EXE} uid={OWNER}")
    companion.cuda_process(worker.pid)
    said = dict(kind="checkpoint", pid=worker.pid, persistence=1, bytes=1 << 20)
    out = companion.order("evict:3", **said)
    assert out["ok"], out
    assert companion.state(worker.pid) == 2
    assert companion.order("resume", notes=out["notes"], kind="checkpoint")["ok"]
    assert companion.state(worker.pid) == 0
    assert companion.calls() == [f"{c} {worker.pid}" for c in ("lock", "checkpoint", "restore", "unlock")]
    assert f"uid {NOBODY}: checkpoint of process {worker.pid}: done" in companion.log()


def test_all_are_locked_before_one_is_checkpointed(companion, worker):
    companion.allow(f"checkpoint exe={EXE}", "checkpoint exe=" + os.path.realpath("/bin/sleep"))
    with subprocess.Popen(["/bin/sleep", "100"]) as second:
        pids = [worker.pid, second.pid]
        for pid in pids:
            companion.cuda_process(pid)
        assert companion.ask(f"checkpoint 5000 {' '.join(map(name, pids))}\n") == "ok 2 "
        calls = companion.calls()
        assert calls[:2] == [f"lock {p}" for p in pids]
        assert sorted(calls[2:]) == sorted(f"checkpoint {p}" for p in pids)  # all at the same time, in any order
        assert companion.ask(f"restore 5000 {' '.join(map(name, pids))}\n") == "ok 2 "
        second.kill()


def test_a_checkpoint_goes_on_after_a_hangup_and_after_sigterm(companion, worker):
    companion.allow(f"checkpoint exe={EXE}")
    companion.cuda_process(worker.pid)
    hold = companion.cuda / "hold"
    hold.touch()
    said = dict(kind="checkpoint", pid=worker.pid, persistence=1, bytes=1 << 20)
    guard = companion.begin("evict:3", **said)
    wait(lambda: f"holding {worker.pid}" in companion.calls(), "it is under way")
    # Meanwhile no other request may use that process; requests for other processes are served.
    assert "in use by another request" in companion.ask(f"restore 1000 {name(worker.pid)}\n")
    guard.kill()
    guard.communicate()
    companion.child.terminate()
    status = pathlib.Path(f"/proc/{companion.child.pid}/status")  # shows that the signal is no longer pending
    wait(lambda: not int(re.search(r"ShdPnd:\s*(\w+)", status.read_text())[1], 16), "the signal to be taken")
    assert companion.child.poll() is None
    hold.unlink()
    assert companion.child.wait(support.TIMEOUT) == 0
    assert companion.state(worker.pid) == 2


def test_a_checkpoint_that_is_killed_half_way_is_reported_and_undone(companion, worker):
    companion.allow(f"checkpoint exe={EXE}")
    companion.cuda_process(worker.pid)
    hold = companion.cuda / "hold"
    hold.touch()
    said = dict(kind="checkpoint", pid=worker.pid, persistence=1, bytes=1 << 20, deadline_ms=30000)
    guard = companion.begin("evict:3", **said)
    wait(lambda: f"holding {worker.pid}" in companion.calls(), "it is under way")
    for pid in companion.children():
        os.kill(pid, signal.SIGKILL)
    outcome = json.loads(guard.communicate(timeout=support.TIMEOUT)[0])
    assert not outcome["ok"] and outcome["retry"] and "ended before it answered" in outcome["message"]
    assert companion.state(worker.pid) == 0  # not left locked
    hold.unlink()
    assert companion.order("evict:3", **said)["ok"]
    assert companion.state(worker.pid) == 2


def test_a_missing_companion_is_reported_with_the_unit_that_starts_it(companion):
    companion.stop()
    outcome = companion.order("evict:4", kind="systemd", unit="w.service")
    assert not outcome["ok"] and "gpuward-companion.socket" in outcome["message"]
    companion.start()
    os.chmod(companion.socket, 0o600)
    outcome = companion.order("evict:4", kind="systemd", unit="w.service")
    assert not outcome["ok"] and "may not connect to the companion" in outcome["message"]


@pytest.mark.parametrize("answer, retry, words", [
    (b"", True, "ended before it answered"),
    (b"taken\n", True, "ended before it answered"),
    (b"taken\nperhaps\n", True, "ended before it answered"),
    (b"x" * 9000, True, "ended before it answered"),
    (b"no 8 \x1b[31mlate\n", False, "?[31mlate"),
    (b"no 12 busy\n", True, "busy"),
    (None, False, "did not answer in time"),
])
def test_the_guard_survives_invalid_answers_of_the_companion(companion, answer, retry, words):
    """With answer None the companion sends nothing and keeps the connection open."""
    companion.stop()
    os.unlink(companion.socket)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(companion.socket)
        os.chmod(companion.socket, 0o666)
        listening.listen()
        guard = companion.begin("evict:4", kind="systemd", unit="w.service", deadline_ms=60000 if answer is not None else 300)
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(4096).endswith(b" stop w.service\n")
            if answer is not None:
                with contextlib.suppress(BrokenPipeError):
                    connection.sendall(answer)
                connection.close()
            outcome = json.loads(guard.communicate(timeout=support.TIMEOUT)[0])
    assert not outcome["ok"] and outcome["retry"] == retry and words in outcome["message"], outcome


@pytest.mark.parametrize("text", [
    b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\n", b"unit 1 stop a.service\nunit 1 stop b.service\n",
    b"checkpoint 1 2:3", b"signal 9 -1:5\n", b"unit 1 stop $(reboot).service\n", b"x" * 5000, b"x" * 4096,
    b"unit 1 stop " + b"a" * 3000 + b".service\n",
], ids=range(10))
def test_garbage_is_refused(companion, text):
    companion.allow("unit a.service")
    def half():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(support.TIMEOUT)
            s.connect(companion.socket)
            s.sendall(text)
            s.shutdown(socket.SHUT_WR)
            return answer_of(s)
    assert as_user(NOBODY, half).startswith(b"no 1 ")
    assert not (companion.path / "units").exists()


def test_a_request_that_does_not_come_whole_is_given_up(companion):
    companion.allow("unit a.service")
    begun = time.monotonic()
    assert "the request is incomplete" in companion.ask("unit 1000 stop a.serv")
    assert time.monotonic() - begun > 1
    assert companion.ask("unit 1000 stop a.service\n") == "ok 1 "


def test_a_request_without_a_client_is_not_begun(companion, worker):
    companion.allow("unit a.service", f"signal exe={EXE}", f"checkpoint exe={EXE}")
    companion.cuda_process(worker.pid)
    requests = ["unit 1000 stop a.service\n", f"signal 10 {name(worker.pid)}\n", f"checkpoint 1000 {name(worker.pid)}\n"]
    companion.child.send_signal(signal.SIGSTOP)
    for text in requests:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(companion.socket)
            s.sendall(text.encode())
    companion.child.send_signal(signal.SIGCONT)
    wait(lambda: companion.log().count("the client closed the connection") == 3, "all three are refused")
    assert not (companion.path / "units").exists()
    assert worker.said.read_text() == "" and companion.calls() == []


def test_a_flood_of_connections_is_bounded_and_over_when_it_ends(companion):
    companion.allow("unit a.service")
    most = 0
    connections = []
    for i in range(1000):
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect(companion.socket)
            s.send(b"unit ")
        connections.append(s)
        most = max(most, len(companion.children())) if i % 50 == 0 else most
    assert 0 < most <= 16
    for s in connections:
        s.close()
    assert companion.ask("unit 1000 stop a.service\n") == "ok 1 "
    wait(lambda: companion.children() == [], "none is left")
    assert companion.child.poll() is None


def test_systemd_hands_over_the_socket(companion):
    """The test passes the socket as systemd does: descriptor 3, LISTEN_PID and LISTEN_FDS."""
    companion.stop()
    companion.allow("unit a.service")
    os.unlink(companion.socket)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(companion.socket)
        os.chmod(companion.socket, 0o666)
        s.listen()
        wrapper = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), " \
                  "LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])"
        companion.child = subprocess.Popen(
            [sys.executable, "-c", wrapper, str(s.fileno()), COMPANION, "--file", companion.file, "--systemctl",
             companion.systemctl], pass_fds=[s.fileno()], env=support.environment())
        assert companion.ask("unit 1000 start a.service\n") == "ok 1 "
        assert companion.stop() == 0
    done = subprocess.run([COMPANION], capture_output=True, text=True, timeout=support.TIMEOUT)
    assert done.returncode == 1 and "--socket" in done.stderr


CONFIG = """
[guard]
mode = "enforce"
simulated = true
companion = "{socket}"
[guard.defaults]
quiet_s = 0.3
min_resident_s = 0
post_action_s = 0
verify_s = 2
drain_s = 0
budget_s = 30
[[worker]]
name = "w"
kind = "checkpoint"
match.name = "python3*"
match.uid = {uid}
max_level = 3
"""


class Unprivileged(service.Service):
    """A service that runs as NOBODY in a folder of NOBODY.  A checkpointed process leaves the simulated card."""

    def __init__(self, world, companion):
        self.text = CONFIG.format(socket=companion.socket, uid=OWNER)
        super().__init__(world.scenario, config=self.text, token=True)
        for path in [self.path, *(os.path.join(self.path, f) for f in os.listdir(self.path))]:
            os.chown(path, NOBODY, NOBODY)
        self.argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *self.argv]

    def state_of(self, name="w"):
        got = self.get(f"/api/v1/guard/workers/{name}")
        return got.json()["state"] if got.status_code == 200 else None

    def recover(self):
        """Runs gpuward guard recover as the unit does: same user, same configuration."""
        etc = pathlib.Path(self.path, "root", "etc", "gpuward")
        etc.mkdir(parents=True)
        (etc / "gpuward.toml").write_text(f'[history]\npath = "{self.state}"\n{self.text}')
        env = support.environment(HOME=self.path, GPUWARD_CONFIG_ROOT=pathlib.Path(self.path, "root"))
        return support.gpuward("guard", "recover", env=env, user=NOBODY, group=NOBODY, extra_groups=[])


@pytest.fixture
def world(companion):
    folder = companion.path / "world"
    folder.mkdir()
    return World(folder)


@contextlib.contextmanager
def following(world, companion, pid):
    """Keeps the process's memory on the simulated card while the process is not checkpointed."""
    over = threading.Event()

    def follow():
        while not over.wait(0.02):
            with contextlib.suppress(ValueError):  # the file is being written
                world.hold(pid, 0 if companion.state(pid) == 2 else 10 * GIB)
    world.hold(pid, 10 * GIB)
    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_service_without_privileges_moves_a_worker_and_recovers_after_a_crash(companion, worker, world):
    companion.allow(f"checkpoint exe={EXE} uid={OWNER}")
    companion.cuda_process(worker.pid)
    with following(world, companion, worker.pid), Unprivileged(world, companion) as s:
        s.wait(lambda: s.state_of() == "active")
        assert s.post("/api/v1/guard/workers/w/evict", token=True, json={"ttl_s": 600}).status_code == 202
        s.wait(lambda: s.state_of() == "evicted")
        assert companion.state(worker.pid) == 2
        s.stop(signal.SIGKILL)
        done = s.recover()
        assert (done.returncode, done.stdout) == (0, "all processes are restored (1)\n"), done.stderr
        assert companion.state(worker.pid) == 0
        assert f"uid {NOBODY}: restore of process {worker.pid}: done" in companion.log()


@pytest.mark.deep
def test_when_the_companion_refuses_the_service_shows_the_missing_line(companion, worker, world):
    companion.cuda_process(worker.pid)
    with following(world, companion, worker.pid), Unprivileged(world, companion) as s:
        s.wait(lambda: s.state_of() == "active")
        s.post("/api/v1/guard/workers/w/evict", token=True, json={"ttl_s": 600})
        s.wait(lambda: f"{companion.file}: checkpoint " in s.get("/api/v1/guard?limit=128").text)
        # When the fault is fixed at run time, the next try succeeds.
        companion.allow(f"checkpoint exe={EXE} uid={OWNER}")
        s.wait(lambda: s.state_of() == "evicted")


def privileges(companion, uid, socket):
    """Returns the privileges that gpuward doctor reports to this user. The result does not depend on the GPUs of the machine."""
    etc = companion.path / "root" / "etc" / "gpuward"
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "gpuward.toml").write_text(f'[guard]\ncompanion = "{socket}"\n' if socket else "")
    env = support.environment(GPUWARD_CONFIG_ROOT=companion.path / "root", LD_LIBRARY_PATH=companion.cuda)
    done = support.gpuward("doctor", "--json", "--backend=none", env=env, user=uid, group=uid, extra_groups=[])
    doc = json.loads(done.stdout)
    support.check("doctor", doc)
    return {p["privilege"]: p for p in doc["privileges"]}


def test_doctor_sums_up_what_is_missing(companion):
    env = support.environment(GPUWARD_CONFIG_ROOT=companion.path / "root", LD_LIBRARY_PATH=companion.cuda)
    done = support.gpuward("doctor", "--backend=none", env=env, user=NOBODY, group=NOBODY, extra_groups=[])
    end = " ".join(done.stdout.split("No problems found. ")[1].split())
    missing = done.stdout.count("\nmissing ")
    assert missing > 2 and end.startswith(f"{missing} permissions are missing: companion, signal, unit"), done.stdout
    assert "Nothing to fix" not in done.stdout


def has_cuda():
    try:
        return ctypes.CDLL("libcuda.so.1") is not None
    except OSError:
        return False


@pytest.mark.skipif(has_cuda(), reason="this machine has the NVIDIA driver")
def test_doctor_does_not_call_a_missing_gpu_a_missing_permission():
    done = support.gpuward("doctor", "--backend=none")
    said = " ".join(done.stdout.split())
    assert 'note kind "checkpoint" for workers of other users: this machine has no NVIDIA GPU' in said
    assert "Install NVIDIA driver" not in said and "checkpoint." not in said.split("inotify")[1]


def test_doctor_names_each_right_that_is_missing(companion):
    mine = privileges(companion, NOBODY, companion.socket)
    assert all(mine[p]["have"] for p in ("companion", "signal", "unit", "checkpoint", "device_opens"))
    assert not mine["programs"]["have"] and "match.unit" in mine["programs"]["remedy"]
    strangers = privileges(companion, OTHER, companion.socket)
    assert f"client {OTHER}" in strangers["companion"]["message"]
    for name in ("companion", "signal", "unit", "checkpoint"):
        assert not strangers[name]["have"] and strangers[name]["remedy"]
    alone = privileges(companion, NOBODY, None)
    assert "CAP_KILL" in alone["signal"]["message"] and "guard.companion" in alone["signal"]["remedy"]
    companion.stop()
    gone = privileges(companion, NOBODY, companion.socket)
    assert "gpuward-companion.socket" in gone["companion"]["message"]
    assert f"uid {NOBODY}" not in companion.log(), "doctor sends no request"
