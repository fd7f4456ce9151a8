"""A worker that is as real as possible without a GPU: a server process with the API of an inference server, and a child
process (runner) for each loaded model.  A runner writes into the simulated world how much memory it holds.

    with Worker(world, models=["llama3:8b"]) as w:
        w.url, w.pid        # the server process
        w.calls()           # ["POST /api/generate", ...]: the requests that it got
        w.resident()        # bytes that its runners hold

The simulated world reads the memory of processes from a folder (docs/SIMULATOR.md, `follow`).  World makes this folder
and the scenario.  Contender is a process that is not a worker.  As a program, this file is the server or a runner.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve()
GIB = 1 << 30
UUID = "GPU-51000000-51d0-4000-8000-000000000001"


def ticks(pid):
    """Returns the start time of a process, in ticks since the boot."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class World:
    """A simulated card of 24 GiB.  Real processes hold its memory: a file for each of them says how much."""

    def __init__(self, path, more="", gpu="", profile="rtx4090"):
        self.held = pathlib.Path(path) / "held"
        self.held.mkdir()
        self.scenario = pathlib.Path(path) / "world.toml"
        self.scenario.write_text(f'[[gpu]]\nprofile = "{profile}"\nfollow = "{self.held}"\n{gpu}\n{more}')

    def hold(self, pid, size, kind="compute"):
        """Sets the memory that pid holds.  The file is replaced in one step, so that no reader sees a part of it."""
        if size == 0:
            (self.held / str(pid)).unlink(missing_ok=True)
            return
        new = self.held / f".{pid}-{threading.get_ident()}"
        new.write_text(f"{size} {kind}\n")
        new.rename(self.held / str(pid))

    def holds(self, pid):
        try:
            return int((self.held / str(pid)).read_text().split()[0])
        except FileNotFoundError:
            return 0


class Fault:
    """A fault of the driver. `text` is the part of the scenario that describes it; the block of `with` begins and ends it."""

    def __init__(self, path, what, *calls):
        self.file = pathlib.Path(path) / "fault"
        self.text = "".join(f'[[fault]]\ncall = "{c}"\n{what}\nwhile = "{self.file}"\n' for c in calls)

    def __enter__(self):
        self.file.touch()

    def __exit__(self, *exc):
        self.file.unlink()


class Process:
    def __init__(self, world, argv, **kw):
        self.world = world
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **kw)
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.end()

    def end(self, how=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(how)
        self.child.wait()
        self.world.hold(self.pid, 0)


class Contender(Process):
    """Another process with memory on the card; exe is the file that it runs."""

    def __init__(self, world, size, kind="compute", exe="/bin/sleep"):
        super().__init__(world, [str(exe), "1000"])
        world.hold(self.pid, size, kind)


class Worker(Process):
    """A running worker.  keeps: it answers with success but frees nothing.  detached: its runners have their own session."""

    def __init__(self, world, kind="Ollama", models=("llama3:8b",), size=10 * GIB, keeps=False, detached=False,
                 port=0):
        self.log = world.held.parent / f"calls-{time.monotonic_ns()}"
        argv = [sys.executable, str(HERE), "serve", "--world", str(world.held.parent), "--kind", kind, "--bytes",
                str(size), "--log", str(self.log), "--port", str(port)]
        argv += [f"--model={m}" for m in models]
        argv += ["--keeps"] * keeps + ["--detached"] * detached
        super().__init__(world, argv, stdout=subprocess.PIPE, text=True)
        self.url = self.child.stdout.readline().strip()
        assert self.url.startswith("http://"), "the worker did not start"

    def end(self, how=signal.SIGTERM):
        super().end(how)
        self.child.stdout.close()

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def acted(self):
        """Returns the requests that change something."""
        return [c for c in self.calls() if c.startswith("POST")]

    def runners(self):
        return [int(p.name) for p in self.world.held.iterdir()
                if p.name.isdigit() and p.read_text().split()[2:] == [str(self.pid)]]

    def resident(self):
        return sum(self.world.holds(pid) for pid in self.runners())


def runner(args):
    """Holds memory until a signal ends it.  With generations, there are processes between server and runner, as in real servers."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    if args.generations:
        argv = [sys.executable, str(HERE), "runner", "--world", args.world, "--bytes", str(args.bytes), "--server",
                str(args.server), "--generations", str(args.generations - 1)]
        child = subprocess.Popen(argv + ["--detached"] * args.detached, start_new_session=args.detached)

        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        sys.exit(child.wait())
    path = pathlib.Path(args.world) / "held" / str(os.getpid())

    def leave(*_):
        path.unlink(missing_ok=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    new = path.with_name("." + path.name)
    new.write_text(f"{args.bytes} compute {args.server}\n")
    new.rename(path)
    while os.getppid() != 1:
        time.sleep(0.2)  # until a signal ends it, or the test has died
    leave()


def serve(args):
    import fake_workers

    base = getattr(fake_workers, args.kind)
    running = {}

    class Real(base):
        """A server in which each loaded model is a process.  Unloading a model ends its process."""

        def load(self, model):
            super().load(model)
            if model not in running:
                argv = [sys.executable, str(HERE), "runner", "--world", args.world, "--bytes", str(args.bytes),
                        "--server", str(os.getpid()), "--generations", "1"]
                running[model] = subprocess.Popen(argv + ["--detached"] * args.detached, stdout=subprocess.DEVNULL)

        def unload(self, model=None):
            super().unload(model)
            for m in [m for m in running if m not in self.loaded]:
                child = running.pop(m)
                child.terminate()
                child.wait()

        def respond(self, method, path, query, body, headers):
            with open(args.log, "a") as f:
                f.write(f"{method} {path} {json.dumps(body)}\n")
            return super().respond(method, path, query, body, headers)

        def serve(self):
            return fake_workers.Server(("127.0.0.1", args.port), fake_workers.Handler)

    own = {} if args.kind in ("VLLM", "SGLang") else {"known": args.model}
    with Real(keeps=args.keeps, **own) as w:
        for model in args.model:
            w.load(model)
        print(w.url, flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        w.keeps = False
        w.unload()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("serve", "runner"))
    p.add_argument("--world", required=True)
    p.add_argument("--bytes", type=int, required=True)
    p.add_argument("--kind", default="Ollama")
    p.add_argument("--model", action="append", default=[])
    p.add_argument("--log")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--server", type=int, default=0)
    p.add_argument("--generations", type=int, default=0)
    p.add_argument("--keeps", action="store_true")
    p.add_argument("--detached", action="store_true")
    args = p.parse_args()
    if args.what == "serve":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    return {"serve": serve, "runner": runner}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
