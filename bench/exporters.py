"""Compares exporters on the same simulated machine: gpuward, a Python exporter, and nvidia-smi started for each scrape.

All three run at the same time and are scraped in turn, with gzip, as Prometheus does.  gpuward reads, integrates and stores
power between scrapes and serves everything that it knows; the peers read seventeen figures per GPU and only when scraped."""
import contextlib
import http.client
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import peers

APART = 0.12  # seconds between scrapes; gpuward keeps a finished page for 0.1 s
HEADERS = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"}
SCENARIO = """
[time]
begin = 10
[[gpu]]
profile = "a100"
count = {gpus}
[[gpu.load]]
kind = "square"
high = 0.9
period = 3
[[gpu.process]]
name = "mpi-rank"
memory = "30 GiB"
"""


class Server:
    """An exporter that listens on a port."""

    def __init__(self, name, pid, port):
        self.name, self.pid = name, pid
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def scrape(self):
        begin = time.monotonic()
        self.connection.request("GET", "/metrics", headers=HEADERS)
        answer = self.connection.getresponse()
        self.bytes = len(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{self.name}: status {answer.status}")
        return time.monotonic() - begin

    def cpu(self):
        return peers.cpu_seconds(self.pid)

    def memory(self):
        return peers.pss_bytes(self.pid)


class Fork:
    """Does what nvidia_gpu_exporter does at each scrape, but without its HTTP server."""

    def __init__(self, program, library, scenario):
        self.name, self.used, self.program, self.library = "nvidia-smi method", 0.0, program, library
        self.env = {**os.environ, "GPUWARD_SIM": scenario}

    def scrape(self):
        begin = time.monotonic()
        out, into = os.pipe()
        pid = os.posix_spawn(self.program, [self.program, self.library], self.env,
                             file_actions=[(os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_CLOSE, out)])
        os.close(into)
        while os.read(out, 65536):
            pass
        os.close(out)
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"{self.program}: wait status {status}")
        self.used += usage.ru_utime + usage.ru_stime
        return time.monotonic() - begin

    def cpu(self):
        return self.used

    def memory(self):
        done = subprocess.run([self.program, self.library, "peak"], env=self.env, capture_output=True, text=True, check=True)
        return int(done.stdout.split()[-1]) * 1024


@contextlib.contextmanager
def all_of(build, gpus):
    """Starts the exporters that can run on this machine and yields them, gpuward first."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o755)
        scenario = os.path.join(folder, "machine.toml")
        with open(scenario, "w") as f:
            f.write(SCENARIO.format(gpus=gpus))
        ours = stack.enter_context(peers.Service(build, scenario))
        found = [Server("gpuward", ours.pid, int(ours.url.rsplit(":", 1)[1]))]
        script, port = os.path.join(folder, "python_exporter.py"), peers.free_port()
        shutil.copy(os.path.join(peers.TOP, "bench", "python_exporter.py"), script)
        command = peers.on_simulator(build, folder, scenario, "module pynvml, prometheus_client",
                                     "/usr/bin/python3", "-B", script, str(port))
        if command:
            child = subprocess.Popen(command)
            stack.callback(peers.stop, child)
            peers.wait_for(f"http://127.0.0.1:{port}/metrics", 60)
            found.append(Server("Python", child.pid, port))
        smi = os.path.join(build, "bench", "bench-smi")
        if os.path.exists(smi):
            found.append(Fork(smi, os.path.join(build, "sim", "libnvidia-ml.so.1"), scenario))
        yield found


def paced(exporters, times, apart):
    """Scrapes the exporters in turn; the order rotates.  Returns the latencies and the CPU seconds
    of each exporter, and the wall seconds."""
    took, before, begin = [[] for _ in exporters], [e.cpu() for e in exporters], time.monotonic()
    for i in range(times):
        for j in range(len(exporters)):
            k = (i + j) % len(exporters)
            took[k].append(exporters[k].scrape())
        time.sleep(max(0, begin + (i + 1) * apart - time.monotonic()))
    return took, [e.cpu() - b for e, b in zip(exporters, before)], time.monotonic() - begin


def measured(build, gpus, rounds, seconds, scrapes):
    """Returns {name: {figure: [value of each round]}}, and the bytes of one scrape as the figure "bytes"."""
    with all_of(build, gpus) as exporters:
        result = {e.name: {k: [] for k in ("share", "scrape", "p50", "p99", "memory")} for e in exporters}
        paced(exporters, 3, 1)
        for _ in range(rounds):
            before, at = [e.cpu() for e in exporters], time.monotonic()
            time.sleep(seconds)
            idle = [(e.cpu() - b) / (time.monotonic() - at) for e, b in zip(exporters, before)]
            _, cpu, wall = paced(exporters, seconds, 1)
            for e, c in zip(exporters, cpu):
                result[e.name]["share"].append(c / wall)
            took, cpu, wall = paced(exporters, scrapes, APART)
            for e, t, c, rest in zip(exporters, took, cpu, idle):
                r, t = result[e.name], sorted(t)
                r["scrape"].append(max(c - rest * wall, 0) / scrapes * 1e9)
                r["p50"].append(statistics.median(t) * 1e9)
                r["p99"].append(t[min(len(t) - 1, int(len(t) * 0.99))] * 1e9)
                r["memory"].append(e.memory())
        for e in exporters:
            result[e.name]["bytes"] = getattr(e, "bytes", None)
        return result


# Each row: name, title, unit, and the target for the ratio to the Python exporter (None: no target).
FIGURES = (("share", "CPU, one scrape per second", "share", None), ("scrape", "  CPU of one scrape", "ns", 1),
           ("p50", "  time of a scrape, p50", "ns", 1), ("p99", "  time of a scrape, p99", "ns", None),
           ("memory", "  memory (PSS)", "bytes", None))


def section(table, build, quick):
    rounds, seconds, scrapes = (2, 3, 30) if quick else (3, 6, 80)
    for gpus in (1, 8, 64):
        result = measured(build, gpus, rounds, seconds, scrapes)
        ours = result.pop("gpuward")
        if "Python" not in result and gpus == 1:
            table.skip("Python exporter: no pynvml with prometheus_client", peers.REMEDY)
        for name, theirs in result.items():
            for key, figure, unit, target in FIGURES:
                table.turns("exporter", f"{figure}, {gpus} GPU{'s' if gpus > 1 else ''}", unit, name, ours[key], theirs[key],
                            target if name == "Python" else None)
