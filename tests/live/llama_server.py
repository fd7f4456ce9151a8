"""Runs the real llama-server with tiny models, as a process on the simulated GPU.

    with LlamaServer(world, tmp_path, "-m", "a.gguf", "--metrics") as server:
        server.complete("hello", 20)
"""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading

import requests

import support
import tiny_gguf
from worker import GIB

ROOT = os.environ.get("GPUWARD_LIVE_ROOT")
PROGRAM = os.environ.get("LLAMA_SERVER") or (None if ROOT else shutil.which("llama-server"))


def missing():
    """Returns why llama-server cannot run; None: it can."""
    if PROGRAM:
        return None if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} is no program"
    if ROOT:
        return None if pathlib.Path(ROOT, "usr/bin/llama-server").exists() else f"no llama-server below {ROOT}"
    return "no llama-server in PATH; set LLAMA_SERVER or GPUWARD_LIVE_ROOT (tests/live/run)"


def command(folder):
    """Returns the command that runs llama-server with `folder` as its working folder."""
    if PROGRAM:
        return ["sh", "-c", f'cd "{folder}" && exec "{os.path.abspath(PROGRAM)}" "$@"', "sh"]
    # The process gets its own mount namespace, so that nothing stays mounted. The process keeps its pid.
    inside = f'mount --bind /proc "{ROOT}/proc" && mount --bind "{folder}" "{ROOT}/mnt" && cd "{ROOT}" && ' \
             f'exec chroot "{ROOT}" sh -c \'cd /mnt && exec llama-server "$@"\' sh "$@"'
    return ["unshare", "--mount", "sh", "-c", inside, "sh"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


ASLEEP = 300 << 20  # memory that the context of a sleeping model keeps on the card


class LlamaServer:
    """models: names of the models to make. Each process of the server that has loaded a model holds memory on the card;
    a sleeping model holds little. key: the API key that clients must send."""

    def __init__(self, world, folder, *args, models=("a",), size=4 * GIB, key=None, context=tiny_gguf.CTX):
        self.world, self.size, self.held, self.key = world, size, {}, key
        self.folder = folder / "models"
        self.folder.mkdir()
        for name in models:
            tiny_gguf.write(self.folder / f"{name}.gguf", context)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.argv = command(self.folder) + ["--port", str(self.port), "-t", "1", *args, *(["--api-key", key] if key else [])]
        self.router = "--models-dir" in args
        self.stop = threading.Event()

    def start(self):
        self.log = open(self.folder.parent / "llama-server.log", "a")
        self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pid = self.child.pid
        support.wait(lambda: requests.get(self.url + "/health").status_code == 200, "llama-server",
                     ignore=(requests.RequestException,))

    def end(self, how=signal.SIGTERM):
        children = self.processes().values()
        for pid in (self.pid, *children) if self.child.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.child.send_signal(how)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.log.close()
        support.wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children), "the models' processes")

    def restart(self):
        self.end()
        self.start()

    def __enter__(self):
        self.start()
        self.thread = threading.Thread(target=self.mirror, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()
        self.end()
        for pid in self.held:
            self.world.hold(pid, 0)

    def processes(self):
        """The children of a router by their model."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                argv = (path / "cmdline").read_bytes().decode().split("\0")
            except (OSError, ValueError):
                continue
            if parent == self.pid and "--alias" in argv:
                found[argv[argv.index("--alias") + 1]] = int(path.name)
        return found

    def holding(self):
        """Returns the memory of each process, from the state that the server reports for its model. A stopping model
        holds all its memory. A loading model holds only its context, because a broken file fails before its weights are
        on the card."""
        if not self.router:
            return {self.pid: self.size}
        processes = self.processes()
        try:
            status = self.status(timeout=0.5) if processes else {}
        except (requests.RequestException, KeyError, TypeError):  # the server is stopped or is ending
            return {pid: self.held.get(pid, self.size) for pid in processes.values()}
        return {pid: ASLEEP if status[name] in ("sleeping", "loading") else self.size for name, pid in processes.items()}

    def mirror(self):
        """Keeps the memory on the simulated card equal to the memory of the running processes."""
        while not self.stop.wait(0.05):
            now = self.holding()
            for pid in now.keys() | self.held.keys():
                if now.get(pid) != self.held.get(pid):
                    self.world.hold(pid, now.get(pid, 0))
            self.held = now

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def post(self, path, **body):
        answer = requests.post(self.url + path, json=body, timeout=60, headers=self.headers())
        answer.raise_for_status()
        return answer.json()

    def get(self, path, timeout=60):
        return requests.get(self.url + path, timeout=timeout, headers=self.headers()).json()

    def complete(self, prompt, tokens, **more):
        """Generates tokens. Returns (prompt tokens, generated tokens) from the answer."""
        d = self.post("/completion", prompt=prompt, n_predict=tokens, ignore_eos=True, cache_prompt=False, **more)
        return d["tokens_evaluated"], d["tokens_predicted"]

    def status(self, timeout=60):
        """The state of each model in the server's own words."""
        return {m["id"]: m["status"]["value"] for m in self.get("/models", timeout)["data"]}

    def are(self, *states):
        """Waits until the models have these states, in the order of their names, in both lists of the server."""
        def listed(path):
            return tuple(m["status"]["value"] for m in sorted(self.get(path)["data"], key=lambda m: m["id"]))
        support.wait(lambda: listed("/models") == listed("/v1/models") == states, lambda: f"{states} in {self.status()}")

    def load(self, *models):
        for model in models:
            self.post("/models/load", model=model)
        for model in models:
            support.wait(lambda: self.status()[model] == "loaded", f"{model} in llama-server")
