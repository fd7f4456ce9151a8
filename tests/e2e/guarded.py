"""A service with a guard that acts on simulated GPUs, for tests.

    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        s.guard("evict", "ollama")
"""
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import fake_workers
import support
from service import Service
from worker import GIB, UUID, Process, World

QUICK = {"quiet_s": 0.3, "min_resident_s": 0, "post_action_s": 0, "verify_s": 1.5, "drain_s": 1, "budget_s": 4}


def keys(**values):
    """Returns the lines of a TOML table; the argument match_NAME becomes the key match.NAME."""
    return "".join(f"{k.replace('match_', 'match.')} = {json.dumps(v, default=str)}\n" for k, v in values.items())


def quick(**changes):
    """Returns [guard.defaults] with short times."""
    return "[guard.defaults]\n" + keys(**{**QUICK, **changes})


def table(name, kind, **values):
    return "[[worker]]\n" + keys(name=name, kind=kind, **values)


def rule(action, **match):
    return "[[rule]]\n" + keys(**{f"match_{k}": v for k, v in match.items()}, action=action)


def configure(*workers, mode="enforce", guard="", defaults=quick(), more=""):
    """Returns a configuration. workers has TOML tables, or pairs (name, Worker) for an Ollama."""
    tables = (w if isinstance(w, str) else table(w[0], "ollama", url=w[1].url) for w in workers)
    return f'[guard]\nmode = "{mode}"\nsimulated = true\n{guard}\n{defaults}\n' + "".join(tables) + more


IGNORE_SLEEP = rule("ignore", name="sleep")  # a Contender runs /bin/sleep
BY_HEAT = "[health]\ntemp_override_c = {}\ninterval_s = 0.2\n"


class Guarded(Service):
    """A running service with a guard, and functions that query it."""

    def __init__(self, world, config, *args, **kw):
        super().__init__(world.scenario, *args, config=config, token=True, **kw)

    def now(self, name="ollama"):
        return self.worker(name)["state"]

    def worker(self, name="ollama"):
        answer = self.get(f"/api/v1/guard/workers/{name}")
        return answer.json() if answer.status_code == 200 else {"state": None, "mask": None}

    def until(self, *states, name="ollama"):
        self.wait(lambda: self.now(name) in states)

    def back(self, w, size=10 * GIB, name="ollama"):
        """Waits until a worker is active and holds all its memory again."""
        self.wait(lambda: self.now(name) == "active" and w.resident() == size)

    def settled(self, size=10 * GIB, name="ollama"):
        """Waits until the guard has observed a worker with all its memory."""
        self.wait(lambda: self.now(name) == "active" and self.worker(name)["resident_bytes"] == size)

    def observes(self, seconds=0.8, scenes=2):
        """Waits until the guard has observed more scenes, at least one of them after this time. If the guard wanted to act, it has acted.

        A duration is needed, because the tests check that nothing happens, and the quiet times of a guard are durations."""
        def status():
            return self.get("/api/v1/guard").json()
        def observed():
            now = status()
            at = now["looked_utc"]
            return (now["counts"]["looks_total"] >= last and at and
                    datetime.datetime.fromisoformat(at.replace("Z", "+00:00")) > end)
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        last = status()["counts"]["looks_total"] + scenes
        self.wait(observed)

    def decisions(self):
        return self.get("/api/v1/guard?limit=128").json()["decisions"]

    def course(self, name="ollama"):
        """Returns the states of a worker in the order in which it reached them."""
        return [d["to"] for d in self.decisions() if d["worker"] == name and d["from"] != d["to"]]

    def reservations(self):
        return self.get("/api/v1/guard").json()["reservations"]

    def reserve(self, size, **body):
        """Reserves memory and returns the reservation."""
        done = self.post("/api/v1/guard/reservations", token=True, json={"bytes": size, "ttl_s": 600, **body})
        assert done.status_code == 201, done.text
        return done.json()

    def release(self, reservation):
        assert self.ask("DELETE", f"/api/v1/guard/reservations/{reservation}", token=True).status_code == 204

    def processes(self, gpu=UUID):
        """Returns the processes on a GPU as the guard classifies them, by pid."""
        got = self.get(f"/api/v1/guard/gpus/{gpu}")
        return {p["pid"]: p for p in got.json()["processes"]} if got.status_code == 200 else {}

    def classes(self):
        return {pid: p["class"] for pid, p in self.processes().items()}

    def events(self, kind=None):
        """Returns the texts of the events."""
        events = self.get("/api/v1/events?limit=1000").json()["events"]
        return [e["text"] for e in events if kind in (None, e["kind"])]

    def logs(self, words):
        """Waits until the log has these words."""
        self.wait(lambda: words in self.messages())

    def reports(self, words):
        """Waits until an event has these words."""
        self.wait(lambda: any(words in t for t in self.events()))

    def write(self, text):
        with open(self.config, "w") as f:
            f.write(text)

    def reload(self, text):
        """Writes another configuration and makes the running service read it."""
        self.write(text)
        self.child.send_signal(signal.SIGHUP)

    def guard(self, *args, code=support.OK):
        return self.cli("guard", *args, code=code)

    def cli(self, command, *args, code=support.OK, **kw):
        done = support.gpuward(command, "--address", self.url, "--token-file", self.token_file, *args, **kw)
        assert done.returncode == code, done.stdout + done.stderr
        return done


XORG = """
[[gpu.process]]
name = "Xorg"
type = "graphics"
memory = "180 MiB"
"""
WORLD = """
[[gpu]]
profile = "rtx4090"
used = "700 MiB"
[[gpu.process]]
name = "ollama"
memory = "{memory}"
""" + XORG
WORKER = table("ollama", "exec", match_name="ollama", evict_command=["/bin/true"], resume_command=["/bin/true"])


def config(mode="enforce", worker=WORKER, more=""):
    return configure(worker, mode=mode, guard=more, defaults="")


def service(directory, memory="4 GiB", mode="enforce", **kw):
    """Starts a service with a worker that holds this memory and never frees it."""
    scenario = directory / "world.toml"
    scenario.write_text(WORLD.format(memory=memory))
    return Service(scenario, token=True, config=config(mode), **kw)


@contextlib.contextmanager
def leaving(directory, size, after=0, **kw):
    """Starts a service with a worker that frees its memory a number of seconds after its eviction."""
    world = World(directory, gpu=XORG)
    with Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, size)
        (directory / "pid").write_text(f"{p.pid}\n")
        leave = f"(sleep {after}; rm {world.held}/{p.pid}) > /dev/null 2>&1 &"
        text = config(worker=table("ollama", "exec", match_pidfile=directory / "pid", resume_command=["/bin/true"],
                                   evict_command=["/bin/sh", "-c", leave]))
        with Service(world.scenario, token=True, config=text, **kw) as s:
            yield ready(s)


def ready(s):
    """Waits until the guard knows its workers."""
    def there():
        got = s.get("/api/v1/guard")
        return got.status_code == 200 and all(w["state"] != "reconcile" for w in got.json()["workers"])
    s.wait(there)
    return s


NOBODY = 65534  # the number of a user without rights
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def why_not_another_user():
    """Returns why this test run cannot start the program as another user, or None if it can."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        return "needs root to become another user"
    if subprocess.run([*AS_NOBODY, "test", "-x", str(support.PROGRAM)], check=False).returncode != 0:
        return "another user cannot enter the folder of the program; make test uses a copy elsewhere"
    return None


needs_root = pytest.mark.skipif(why_not_another_user() is not None, reason=str(why_not_another_user()))


# A program that writes each received signal to a file and does not end.
RECORDER = """
import signal, sys
log = open(sys.argv[1], "a", buffering=1)
for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, lambda n, _: log.write(f"{n}\\n"))
print("ready", flush=True)
while True:
    signal.pause()
"""


class Recorder(Process):
    """A process that holds size bytes of a GPU as kind and records its signals."""

    def __init__(self, world, path, size=0, kind="compute"):
        self.log = path
        super().__init__(world, [sys.executable, "-c", RECORDER, str(path)], stdout=subprocess.PIPE, text=True)
        assert self.child.stdout.readline() == "ready\n"
        world.hold(self.pid, size, kind)

    def signals(self):
        return [int(n) for n in self.log.read_text().split()]

    def end(self, how=signal.SIGKILL):
        super().end(how)
        self.child.stdout.close()


def by_signal(pidfile):
    """Returns a worker that the guard moves with signals."""
    return table("w", "signal", match_pidfile=pidfile, evict_signal="SIGUSR1", resume_signal="SIGUSR2")


def held(world, kind, size, process=None, per_model=False, **kw):
    """Starts a fake worker, and a process that holds the memory of its models. The (simulated) driver lists this process.

    kind is a row of fake_workers.KINDS; per_model is the size of each model.  The server is a thread of the test, and the
    process only sleeps.  (In worker.py, server and process are one tree of processes.)
    """
    class Held(fake_workers.KINDS[kind].fake):
        def __enter__(self):
            self.process = process or Process(world, ["/bin/sleep", "1000"])
            self.pid = self.process.pid
            self.pidfile = world.held.parent / f"pid-{self.pid}"
            self.pidfile.write_text(f"{self.pid}\n")
            self.settle()
            return super().__enter__()

        def __exit__(self, *exc):
            super().__exit__(*exc)
            self.process.end()

        def settle(self):
            world.hold(self.pid, size * (len(self.loaded) if per_model else bool(self.loaded)))

        def respond(self, *args):
            try:
                return super().respond(*args)
            finally:
                self.settle()

        def resident(self):
            return world.holds(self.pid)

        def table(self, name, **values):
            return table(name, kind, url=self.url, match_pidfile=self.pidfile, **values)
    return fake_workers.KINDS[kind]._replace(fake=Held).make(**kw)
