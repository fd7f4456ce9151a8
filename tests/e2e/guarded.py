"""A service whose guard acts on simulated GPUs, for tests."""
import contextlib
import signal
import subprocess
import sys

import support
import worker
from service import Service

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
WORKER = """
[[worker]]
name = "ollama"
kind = "exec"
match.name = "ollama"
evict_command = ["/bin/true"]
resume_command = ["/bin/true"]
"""


def config(mode="enforce", worker=WORKER, more=""):
    return f'[guard]\nmode = "{mode}"\nsimulated = true\n{more}\n{worker}'


def service(directory, memory="4 GiB", mode="enforce", **kw):
    """memory: what the worker holds, and never lets go."""
    scenario = directory / "world.toml"
    scenario.write_text(WORLD.format(memory=memory))
    return Service(scenario, token=True, config=config(mode), **kw)


@contextlib.contextmanager
def leaving(directory, size, after=0, **kw):
    """The same with a worker that lets go, so many seconds after it was told to."""
    world = worker.World(directory, gpu=XORG)
    with worker.Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, size)
        (directory / "pid").write_text(f"{p.pid}\n")
        table = WORKER.replace('match.name = "ollama"', f'match.pidfile = "{directory}/pid"').replace(
            '["/bin/true"]', f'["/bin/sh", "-c", "(sleep {after}; rm {world.held}/{p.pid}) > /dev/null 2>&1 &"]', 1)
        with Service(world.scenario, token=True, config=config(worker=table), **kw) as s:
            yield looked(s)


def looked(s):
    """Waits until the guard knows its workers."""
    def there():
        got = s.get("/api/v1/guard")
        return got.status_code == 200 and all(w["state"] != "reconcile" for w in got.json()["workers"])
    s.wait(there)
    return s


# ---- with workers that are processes (worker.py)

SHORT = """
[guard.defaults]
quiet_s = 0.3
min_resident_s = 0
post_action_s = 0
verify_s = 1.5
drain_s = 1
budget_s = 4
"""


def configure(*workers, mode="enforce", guard="", defaults=SHORT, more=""):
    text = f'[guard]\nmode = "{mode}"\nsimulated = true\n{guard}\n{defaults}\n'
    for name, w in workers:
        text += f'[[worker]]\nname = "{name}"\nkind = "ollama"\nurl = "{w.url}"\n'
    return text + more


class Guarded(Service):
    """A service with a guard, and what it says."""

    def __init__(self, world, config, *args, **kw):
        super().__init__(world.scenario, *args, config=config, token=True, **kw)

    def now(self, name="ollama"):
        return self.worker(name)["state"]

    def worker(self, name="ollama"):
        answer = self.get(f"/api/v1/guard/workers/{name}")
        return answer.json() if answer.status_code == 200 else {"state": None, "mask": None}

    def until(self, *states, name="ollama"):
        self.wait(lambda: self.now(name) in states)

    def decisions(self):
        return self.get("/api/v1/guard?limit=128").json()["decisions"]

    def course(self, name="ollama"):
        """The states that it came to, one after the other."""
        return [d["to"] for d in self.decisions() if d["worker"] == name and d["from"] != d["to"]]

    def guard(self, *args, code=support.OK):
        return self.cli("guard", *args, code=code)

    def cli(self, command, *args, code=support.OK, **kw):
        done = support.gpuward(command, "--address", self.url, "--token-file", self.token_file, *args, **kw)
        assert done.returncode == code, done.stdout + done.stderr
        return done


def settled(s, size=10 * worker.GIB):
    """Waits until its worker is there with all that it holds."""
    s.wait(lambda: s.now() == "active" and s.worker()["resident_bytes"] == size)


def give(s, text):
    """Another file, read by the running service."""
    with open(s.config, "w") as f:
        f.write(text)
    s.child.send_signal(signal.SIGHUP)


# A process that writes down each signal that it gets, and lives on.
RECORDER = """
import signal, sys
log = open(sys.argv[1], "a", buffering=1)
for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, lambda n, _: log.write(f"{n}\\n"))
print("ready", flush=True)
while True:
    signal.pause()
"""


class Recorder(worker.Process):
    """kind: what it holds bytes as; signals() tells what it got."""

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


def held(world, kind, size, process=None, **kw):
    """A fake worker whose models are memory of a process of its own: cheap, and as the driver sees it real.

    Its server is a thread of the test, its process sleeps; worker.py has one where both are one tree.
    """
    import fake_workers

    class Held(getattr(fake_workers, kind)):
        def __enter__(self):
            self.process = process or worker.Process(world, ["/bin/sleep", "1000"])
            self.pid = self.process.pid
            self.pidfile = world.held.parent / f"pid-{self.pid}"
            self.pidfile.write_text(f"{self.pid}\n")
            self.settle()
            return super().__enter__()

        def __exit__(self, *exc):
            super().__exit__(*exc)
            self.process.end()

        def settle(self):
            world.hold(self.pid, size if self.loaded else 0)

        def respond(self, *args):
            try:
                return super().respond(*args)
            finally:
                self.settle()

        def resident(self):
            return world.holds(self.pid)

        def table(self, name, kind, more=""):
            return (f'[[worker]]\nname = "{name}"\nkind = "{kind}"\nurl = "{self.url}"\n'
                    f'match.pidfile = "{self.pidfile}"\n{more}\n')
    return Held(**kw)
