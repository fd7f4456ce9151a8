"""Tests workers of every kind with a real service: everything that can go wrong with their servers (row a10 of
docs/GUARD-MACHINE.md), a service that is killed while a worker unloads, and containers.  Each kind is a row of
fake_workers.KINDS.
"""
import contextlib
import json
import os
import pathlib
import secrets
import shlex
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest
import requests

import fake_workers as fake
import support
from fake_workers import KINDS
from guarded import Guarded, by_signal, configure, held, quick, table
from worker import GIB, Contender, Process, World

SIZE = 8 * GIB
LAZY = [k for k in KINDS if KINDS[k].lazy]
BUSY = [k for k in KINDS if KINDS[k].shows_work]


class Company:
    """One service that guards a worker of each kind for each fault.  All faults are tested in one run."""

    def __init__(self, path, drain=0.5, budget=6, kinds=KINDS, modes=("",), size=SIZE, **more):
        self.world = World(path, profile="h200")
        self.stack = contextlib.ExitStack()
        self.times = quick(quiet_s=0.2, verify_s=1, drain_s=drain, budget_s=budget)
        self.size = size
        self.kind = {f"{k}{m}": k for m in modes for k in kinds}
        self.mode = {f"{k}{m}": m for m in modes for k in kinds}
        self.names = list(self.kind)
        self.fakes = {}
        for n, k in self.kind.items():
            self.fakes[n] = held(self.world, k, size, models=KINDS[k].models[:1], keeps=self.mode[n] == "-keeps", **more)

    def __enter__(self):
        for w in self.fakes.values():
            self.stack.enter_context(w)
        text = configure(*(w.table(n) for n, w in self.fakes.items()), defaults=self.times)
        self.s = self.stack.enter_context(Guarded(self.world, text))
        self.all("active", resident=self.size)
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def path(self, name):
        return KINDS[self.kind[name]].path

    def states(self):
        return {w["name"]: w for w in self.s.get("/api/v1/guard").json()["workers"]}

    def of(self, mode):
        return [n for n in self.names if self.mode[n] == mode]

    def all(self, state, resident=None, but=(), mode=None):
        """Waits until all are in this state."""
        names = [n for n in self.names if self.kind[n] not in but and mode in (None, self.mode[n])]

        def there():
            now = self.states()
            return all(now[n]["state"] == state and (resident is None or self.fakes[n].resident() == resident)
                       for n in names)
        self.s.wait(there, 40, lambda: {n: (w["state"], self.fakes[n].resident() >> 30) for n, w in self.states().items()})

    def order(self, what, names=None):
        for n in names or self.names:
            assert self.s.post(f"/api/v1/guard/workers/{n}/{what}", token=True, json={}).status_code < 300

    def leave(self):
        self.order("evict")

    def asked(self, mode="", within=float("inf")):
        """Returns how often each worker was asked to leave, within a number of seconds after the first time."""
        def count(n):
            w = self.fakes[n]
            at = [t for t, (m, p, _) in zip(w.times, w.calls) if m == "POST" and p.partition("?")[0] == self.path(n)]
            return sum(t - at[0] < within for t in at)
        return {n: count(n) for n in self.of(mode)}

    def each(self, number, mode=""):
        return dict.fromkeys(self.of(mode), number)

    def fail(self, failure, mode=""):
        for n in self.of(mode):
            self.fakes[n].fail[self.path(n)] = failure()

    def said(self, name):
        return [d for d in self.s.decisions() if d["worker"] == name]


def untouched(c):
    for n, w in c.fakes.items():
        assert w.process.child.poll() is None, n  # max_level 2: no process is ended


def test_a10_every_kind_leaves_and_comes_back(tmp_path):
    with Company(tmp_path) as c:
        c.leave()
        c.all("evicted", resident=0)
        assert c.asked() == c.each(1)
        c.order("resume")
        c.all("active", resident=SIZE, but=LAZY)
        for k in LAZY:  # lazy workers are resumed, but load only when a client asks
            c.s.until("active", name=k)
            assert c.fakes[k].resident() == 0
        assert all(w["evictions_total"] == 1 for w in c.states().values())
        untouched(c)


def test_a_worker_that_comes_back_with_fewer_models_stays(tmp_path):
    """The worker has three models of 6 GiB. Its user unloads one of them, and another one no longer loads."""
    world = World(tmp_path, profile="h200")
    with held(world, "llamacpp", 6 * GIB, per_model=True, models=["a", "b", "c"]) as w:
        with Guarded(world, configure(w.table("w"), defaults=quick(quiet_s=0.2))) as s:
            s.until("active", name="w")
            s.wait(lambda: s.get("/api/v1/guard/workers/w").json()["resident_bytes"] == 18 * GIB)
            w.unload("c")
            w.settle()
            s.wait(lambda: s.get("/api/v1/guard/workers/w").json()["resident_bytes"] == 12 * GIB)
            w.broken.append("b")
            for what, state in (("evict", "evicted"), ("resume", "active")):
                assert s.post(f"/api/v1/guard/workers/w/{what}", token=True, json={}).status_code < 300
                s.until(state, name="w")
            assert w.loaded == ["a"] and w.asked().count("/models/unload") == 2
            assert s.get("/api/v1/guard/workers/w").json()["evictions_total"] == 1
            said = [d["evidence"] for d in s.decisions()]
            assert "1 of 2 models loaded again; not loaded: b" in said, said
            assert "its models are loaded; it held 12288 MiB before, now 6144 MiB" in said, said


@pytest.mark.parametrize("kind", ["llamacpp", "ollama"])
def test_a_contender_does_not_wait_for_a_model_that_loads(tmp_path, kind):
    world = World(tmp_path, profile="h200")
    model = KINDS[kind].models[0]
    with held(world, kind, 8 * GIB, models=[model]) as w:
        with Guarded(world, configure(w.table("w"), defaults=quick(quiet_s=0.2))) as s:
            def ask(what):
                assert s.post(f"/api/v1/guard/workers/w/{what}", token=True, json={}).status_code < 300
            s.until("active", name="w")
            ask("evict")
            s.until("evicted", name="w")
            before = len(w.asked("POST"))
            w.loads_at_once = False
            w.fail["/api/generate"] = fake.times(1, fake.hang)
            ask("resume")
            s.wait(lambda: len(w.asked("POST")) > before)
            begin = time.monotonic()
            ask("evict")
            s.until("evicted", name="w")
            assert time.monotonic() - begin < 30 and w.loaded == []
            w.loads_at_once = True
            ask("resume")
            s.until("active", name="w")
            assert w.loaded == [model], "its notes are kept"


def test_a10_5xx_is_tried_twice_more_a_refusal_is_not_and_a_slow_one_is_waited_for(tmp_path):
    with Company(tmp_path, modes=("-403", "-500", "-slow"), size=4 * GIB) as c:
        for code in (403, 500):
            c.fail(lambda code=code: fake.status(code), f"-{code}")
        c.fail(lambda: fake.slow(0.4), "-slow")
        c.leave()
        c.all("evicted", resident=0, mode="-slow")
        assert c.asked("-slow") == c.each(1, "-slow")
        for code in (403, 500):
            c.all("stuck", resident=4 * GIB, mode=f"-{code}")
            now = c.states()
            for n in c.of(f"-{code}"):
                assert str(code) in now[n]["why"] and now[n]["evictions_total"] == 0, now[n]
        c.s.observes()  # the next request comes after 30 s, not before
        for code in (403, 500):
            assert c.asked(f"-{code}", within=25) == c.each(3 if code == 500 else 1, f"-{code}")
        untouched(c)


@pytest.mark.deep
def test_a10_refused_and_not_freed_are_stuck_and_the_third_try_may_succeed(tmp_path):
    with Company(tmp_path, modes=("-twice", "-gone", "-keeps"), size=4 * GIB) as c:
        c.fail(lambda: fake.times(2, fake.status(500)), "-twice")
        for n in c.of("-gone"):
            c.fakes[n].server.shutdown()
            c.fakes[n].server.server_close()
            c.fakes[n].server.shutdown = lambda: None
        c.leave()
        c.all("evicted", resident=0, mode="-twice")
        assert c.asked("-twice") == c.each(3, "-twice")
        for mode in ("-gone", "-keeps"):  # status 200 does not prove that memory was freed
            c.all("stuck", resident=4 * GIB, mode=mode)
        now = c.states()
        for n in c.of("-keeps"):
            assert (now[n]["residue_bytes"], now[n]["evictions_total"]) == (4 * GIB, 0)
        untouched(c)


def test_a_vllm_that_freed_its_memory_and_failed_is_evicted(tmp_path):
    world = World(tmp_path)
    with held(world, "vllm", SIZE, asserts=True) as w, Guarded(world, configure(w.table("vllm"), defaults=quick())) as s:
        s.settled(SIZE, name="vllm")
        s.guard("evict", "vllm")
        s.until("evicted", name="vllm")
        s.guard("resume", "vllm")
        s.until("verify-up", name="vllm")  # vLLM reports success but holds no memory, so it is not back
        assert w.resident() == 0 and w.asked().count("/wake_up") == 1


def test_a10_a_worker_that_hangs_costs_its_budget_and_delays_no_other(tmp_path):
    with Company(tmp_path, budget=4) as c:
        first, *others, last = c.names
        c.fail(lambda: fake.hang)
        c.fakes[last].fail.clear()
        c.order("evict", [first, last, *others])
        c.s.until("evicted", name=last)
        c.all("stuck", resident=SIZE, but=(last,))
        course = [(d["worker"], d["to"]) for d in c.s.decisions()]
        assert course.index((last, "evicted")) < course.index((first, "stuck")), course
        untouched(c)


def test_a10_a_reload_storm_is_named_after_three(tmp_path):
    """Clients load the model again as soon as it is evicted.  The guard reports this from the third time on."""
    with Company(tmp_path, kinds=("ollama", "llamacpp", "comfy")) as c:
        c.leave()
        for n in range(1, 4):
            c.all("evicted", resident=0)
            assert c.asked() == c.each(n)
            for w in c.fakes.values():
                w.load(w.known[0])
                w.settle()
            c.s.wait(lambda n=n: all(t > n for t in c.asked().values()) or
                     all("reload-storm" in str(c.said(k)) for k in c.names))
        for k in c.names:
            c.s.wait(lambda k=k: "reload-storm" in str(c.said(k)))
        untouched(c)


def test_a10_work_in_flight_is_waited_for(tmp_path):
    with Company(tmp_path, drain=30, kinds=BUSY, busy=1) as c:
        c.leave()
        for k in BUSY:
            c.s.until("drain", name=k)
        c.s.observes()
        assert c.asked() == c.each(0) and {c.s.now(k) for k in BUSY} == {"drain"}
        for w in c.fakes.values():
            w.busy = 0
        c.all("evicted", resident=0)


def test_a10_a_drain_that_does_not_end_is_cut_off(tmp_path):
    with Company(tmp_path, drain=0.6, kinds=BUSY, busy=1) as c:
        c.leave()
        c.all("evicted", resident=0)


# KoboldCpp as processes: a manager ends its server process and forks another for each load; during a load the port is
# closed.
KOBOLD = """
import os, pathlib, signal, socket, sys, time
import fake_workers as fake
held, size = pathlib.Path(sys.argv[1]), sys.argv[2]
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
targets, target = os.pipe()

class Server(fake.Kobold):
    def serve(self):
        return fake.Server(("127.0.0.1", port), fake.Handler)
    def start(self, name):
        os.write(target, name.encode())

def serve(name):
    mine = held / str(os.getpid())
    signal.signal(signal.SIGTERM, lambda *_: (mine.unlink(missing_ok=True), os._exit(0)))
    time.sleep(0.5)  # simulates the load
    if name != "unload_model":
        new = held / f".{os.getpid()}"
        new.write_text(size + " compute")
        new.rename(mine)
    with Server(models=[] if name == "unload_model" else ["big.kcpps"]) as s:
        print(port, flush=True)
        signal.pause()

name = "initial_model"
while True:
    child = os.fork()
    if not child:
        serve(name)
        os._exit(0)
    name = os.read(targets, 100).decode()
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
"""


def test_kobold_restarts_its_server_process_and_is_no_other_worker(world):
    """The worker is found by the port of its server process, because the configuration has no other condition."""
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
    with Process(world, [sys.executable, "-c", KOBOLD, str(world.held), str(SIZE)], stdout=subprocess.PIPE, env=env,
                 start_new_session=True) as w:
        def holds():
            return sum(world.holds(int(p.name)) for p in world.held.iterdir() if p.name.isdigit())
        url = "http://127.0.0.1:%d" % int(w.child.stdout.readline())
        try:
            with Guarded(world, configure(table("w", "kobold", url=url), defaults=quick(quiet_s=0.2))) as s:
                s.settled(SIZE, name="w")
                for _ in range(2):
                    with Contender(world, 14 * GIB):
                        s.until("evicted", name="w")
                        assert holds() == 14 * GIB
                        s.wait(lambda: requests.get(url + "/api/extra/version", timeout=1).ok)  # the server listens again
                        s.observes(3)  # nothing may follow
                        assert s.now("w") == "evicted"
                    s.settled(SIZE, name="w")
                assert "absent" not in s.course("w"), [(d["to"], d["rule"], d["evidence"]) for d in s.decisions()]
                assert s.worker("w")["evictions_total"] == 2
        finally:
            os.killpg(w.pid, signal.SIGKILL)
            w.child.stdout.close()


# A program that frees its memory on one signal, kills the service and then continues; on the other signal it takes the
# memory again.
BY_SIGNAL = """
import os, signal, sys
held, victim = sys.argv[1:]
mine = os.path.join(held, str(os.getpid()))
def leave(*_):
    os.unlink(mine)
    if os.path.exists(victim):
        os.kill(int(open(victim).read()), 9)
        os.unlink(victim)
def come(*_):
    open(mine, "w").write(str(8 << 30) + " compute")
signal.signal(signal.SIGUSR1, leave)
signal.signal(signal.SIGUSR2, come)
come()
print("ready", flush=True)
while True:
    signal.pause()
"""


def killed_and_back(s, world, holds):
    """A contender comes, the service is killed during the eviction and started again; the contender goes, and the worker is
    as before."""
    with Contender(world, 4 * GIB):
        assert s.child.wait(support.TIMEOUT) == -signal.SIGKILL
        assert holds() == 0
        s.restart()
        s.until("evicted", name="w")
    s.wait(lambda: s.now("w") == "active", seconds=30)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.deep
def test_a_server_comes_back_after_its_unloading_killed_the_service(world, kind):
    """The notes about the worker were in the journal before the call, so a worker of each kind comes back as it was."""
    victims = []
    w = held(world, kind, SIZE)
    answer = w.respond

    def respond(*request):
        try:
            return answer(*request)
        finally:
            if victims and not w.resident():
                os.kill(victims.pop(), signal.SIGKILL)
    w.respond = respond
    with w, Guarded(world, configure(w.table("w", **KINDS[kind].keys))) as s:
        before = list(w.loaded)
        s.until("active", name="w")
        victims.append(s.child.pid)
        killed_and_back(s, world, w.resident)
        assert KINDS[kind].lazy or (w.loaded == before and w.resident() == SIZE)
        assert not getattr(w, "garbage", False), "its weights are not the old ones"


def test_a_process_comes_back_after_its_signal_killed_the_service(world, tmp_path):
    victim, pidfile = tmp_path / "victim", tmp_path / "pid"
    with Process(world, [sys.executable, "-c", BY_SIGNAL, str(world.held), str(victim)], stdout=subprocess.PIPE) as w:
        w.child.stdout.readline()
        pidfile.write_text(f"{w.pid}\n")
        with Guarded(world, configure(by_signal(pidfile))) as s:
            s.until("active", name="w")
            victim.write_text(str(s.child.pid))
            killed_and_back(s, world, lambda: world.holds(w.pid))
            assert world.holds(w.pid) == SIZE
        w.child.stdout.close()


def test_a_command_that_kills_the_service_is_followed_by_the_resume_command(world, tmp_path):
    victim, pidfile = tmp_path / "victim", tmp_path / "pid"
    with Process(world, ["/bin/sleep", "1000"]) as w:
        world.hold(w.pid, SIZE)
        pidfile.write_text(f"{w.pid}\n")
        mine = shlex.quote(str(world.held / str(w.pid)))
        out = f"rm -f {mine}; test -e {victim} && kill -9 $(cat {victim}) && rm {victim}; true"
        by_command = table("w", "exec", match_pidfile=pidfile, evict_command=["/bin/sh", "-c", out],
                           resume_command=["/bin/sh", "-c", f"echo {SIZE} compute > {mine}"])
        with Guarded(world, configure(by_command)) as s:
            s.until("active", name="w")
            victim.write_text(str(s.child.pid))
            killed_and_back(s, world, lambda: world.holds(w.pid))
            assert world.holds(w.pid) == SIZE


def contained(path, name):
    """Returns the configuration of a container worker. name: its name or id. The socket of its engine is path/engine."""
    return configure(table("ollama", "container", url=f"unix://{path}/engine", match_container=name),
                     defaults=quick(verify_s=5, drain_s=10, budget_s=30))


def groups():
    """A folder in which control groups can be made."""
    for line in open("/proc/mounts"):
        _, where, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(where, os.W_OK):
            return pathlib.Path(where)
    pytest.skip("no control group can be made here")


class Container:
    """A container of the engine, running or stopped."""

    def __init__(self, world, size):
        self.world, self.size = world, size
        self.id = secrets.token_hex(32)
        self.group = groups() / f"docker-{self.id}.scope"
        self.group.mkdir()
        self.process = None

    def start(self):
        self.process = Contender(self.world, 0)
        (self.group / "cgroup.procs").write_text(str(self.process.pid))
        self.world.hold(self.process.pid, self.size)

    def stop(self):
        if self.process:
            self.process.end()
        self.process = None

    def remove(self):
        self.stop()
        self.group.rmdir()


class Engine:
    """A fake container engine.  containers maps names to containers."""

    def __init__(self, path, containers):
        engine = self
        self.containers, self.asked, self.path = containers, [], str(path)

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                _, _, what, verb = self.path.split("?")[0].split("/")
                engine.asked.append(f"{self.command} {what[:12]} {verb}")
                found = [c for name, c in engine.containers.items() if what in (name, c.id)]
                if found and verb in ("start", "stop"):
                    getattr(found[0], verb)()
                body = json.dumps({"Id": found[0].id, "Name": "/x"}, separators=(",", ":")) if found else "{}"
                self.send_response(404 if not found else 204 if verb != "json" else 200)
                self.end_headers()
                if verb == "json":
                    self.wfile.write(body.encode())

            do_GET = do_POST = answer

            def address_string(self):
                return "engine"

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
        os.path.exists(self.path) and os.unlink(self.path)


@pytest.fixture
def container(world):
    c = Container(world, 10 * GIB)
    c.start()
    yield c
    c.remove()


def test_a_container_is_known_by_its_name_and_comes_back_after_a_restart_of_the_service(world, container, tmp_path):
    config = contained(tmp_path, "llm")
    history = str(tmp_path / "history.db")
    with Engine(tmp_path / "engine", {"llm": container}) as engine:
        with Guarded(world, config, state=history) as s:
            s.until("active")
            with Contender(world, 13 * GIB):
                s.until("evicted")
                assert container.process is None
                assert f"POST {container.id[:12]} stop" in engine.asked
            s.wait(lambda: s.now() == "active" and container.process)
            other = Contender(world, 13 * GIB)
            s.until("evicted")
        with other, Guarded(world, config, state=history) as s:
            s.until("evicted")
            assert container.process is None
            other.end()
            s.wait(lambda: s.now() == "active" and container.process)


def test_a_container_that_is_made_again_under_its_name_is_found(world, container, tmp_path):
    again = Container(world, 10 * GIB)
    try:
        with Engine(tmp_path / "engine", {"llm": container}) as engine, \
                Guarded(world, contained(tmp_path, "llm")) as s:
            s.until("active")
            container.stop()
            s.until("absent")
            engine.containers["llm"] = again
            again.start()
            s.child.send_signal(signal.SIGHUP)  # names are resolved again
            s.until("active")
    finally:
        again.remove()


def test_an_unknown_name_and_an_engine_that_is_missing_are_reported(world, container, tmp_path):
    config = contained(tmp_path, "lm")
    with Guarded(world, config) as s:
        s.reports(f"container lm: no answer from {tmp_path}/engine (No such file or directory)")
        s.until("absent")
    with Engine(tmp_path / "engine", {"llm": container}), Guarded(world, config) as s:
        s.reports(f"container lm: the engine at {tmp_path}/engine has no container of that name")
        s.until("absent")
        assert "no process is in container lm" in s.worker()["why"]


def test_a_container_engine_with_an_endless_answer_is_given_up(world, container, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine"))
        listener.listen()

        def talk():
            with contextlib.suppress(OSError):
                peer = listener.accept()[0]
                while True:
                    peer.sendall(b"x" * 65536)
        threading.Thread(target=talk, daemon=True).start()
        with Guarded(world, contained(tmp_path, "lm")) as s:
            s.reports(f"container lm: the engine at {tmp_path}/engine sent an answer that gpuward does not understand")


def test_a_container_id_is_matched_without_the_engine(world, container, tmp_path):
    config = contained(tmp_path, container.id)
    with Guarded(world, config) as s:
        s.until("active")
        s.guard("evict", "ollama")
        s.wait(lambda: "there is no socket of a container engine at" in (s.worker()["why"] or ""))
