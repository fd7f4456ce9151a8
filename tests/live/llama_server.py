"""The real llama-server, with tiny models, as a process of the simulated GPU.

    with LlamaServer(world, tmp_path, "-m", "a.gguf", "--metrics") as server:
        server.complete("hello", 20)
"""
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


def missing():
    """Why there is no llama-server; None: there is one."""
    if ROOT:
        return None if pathlib.Path(ROOT, "usr/bin/llama-server").exists() else f"no llama-server below {ROOT}"
    return None if shutil.which("llama-server") else "no llama-server in PATH; set GPUWARD_LIVE_ROOT (tests/live/run)"


def command(folder):
    """What runs llama-server with `folder` as its working folder, and how it sees that folder."""
    if not ROOT:
        return ["sh", "-c", f'cd "{folder}" && exec llama-server "$@"', "sh"]
    # A mount namespace of its own, so that nothing stays mounted. The process keeps its pid.
    inside = f'mount --bind /proc "{ROOT}/proc" && mount --bind "{folder}" "{ROOT}/mnt" && cd "{ROOT}" && ' \
             f'exec chroot "{ROOT}" sh -c \'cd /mnt && exec llama-server "$@"\' sh "$@"'
    return ["unshare", "--mount", "sh", "-c", inside, "sh"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LlamaServer:
    """models: names of the models to make. Each process of the server that has loaded a model holds memory on the card."""

    def __init__(self, world, folder, *args, models=("a",), size=4 * GIB):
        self.world, self.size, self.held = world, size, set()
        self.folder = folder / "models"
        self.folder.mkdir()
        for name in models:
            tiny_gguf.write(self.folder / f"{name}.gguf")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.argv = command(self.folder) + ["--port", str(self.port), "-t", "1", *args]
        self.stop = threading.Event()

    def __enter__(self):
        self.log = open(self.folder.parent / "llama-server.log", "w")
        self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.pid = self.child.pid
        support.wait(lambda: requests.get(self.url + "/health").status_code == 200, "llama-server",
                     ignore=(requests.RequestException,))
        self.thread = threading.Thread(target=self.mirror, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.log.close()
        for pid in self.held:
            self.world.hold(pid, 0)

    def processes(self):
        """Those that load a model: the children of a router by their model, or the server itself."""
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

    def mirror(self):
        """Keeps the simulated card equal to what runs."""
        router = "--models-dir" in self.argv
        while not self.stop.wait(0.05):
            now = set(self.processes().values()) if router else {self.pid}
            for pid in now - self.held:
                self.world.hold(pid, self.size)
            for pid in self.held - now:
                self.world.hold(pid, 0)
            self.held = now

    def post(self, path, **body):
        answer = requests.post(self.url + path, json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def get(self, path):
        return requests.get(self.url + path, timeout=60).json()

    def complete(self, prompt, tokens, **more):
        """Generates; (prompt tokens, generated tokens) by the answer."""
        d = self.post("/completion", prompt=prompt, n_predict=tokens, ignore_eos=True, cache_prompt=False, **more)
        return d["tokens_evaluated"], d["tokens_predicted"]

    def status(self):
        return {m["id"]: m["status"]["value"] for m in self.get("/models")["data"]}

    def load(self, model):
        self.post("/models/load", model=model)
        support.wait(lambda: self.status()[model] == "loaded", f"{model} in llama-server")
