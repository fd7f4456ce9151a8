"""Programs that the benchmarks start, and what they cost: the service, nginx, programs of a root folder, wrk."""
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request

sys.dont_write_bytecode = True

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fetch(url, headers=None):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=10) as r:
        return r.read()


def wait_for(url, seconds=20):
    end = time.monotonic() + seconds
    while True:
        try:
            return fetch(url)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


def cpu_seconds(pid):
    """Returns the user and system time of all threads of a process, including ended ones, with nanosecond resolution."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid() returns


def rss_mib(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def pss_bytes(pid):
    """Returns the resident memory; a page that n processes share counts as 1/n (PSS)."""
    return int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1]) * 1024


def stop(child):
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class Service:
    """gpuward serve on a simulated machine."""

    def __init__(self, build, scenario, *args, state=None, env=None):
        self.dir = tempfile.mkdtemp()
        self.begin = time.monotonic()
        self.child = subprocess.Popen(
            [os.path.join(build, "gpuward"), "serve", f"--simulate={scenario}", "--listen", "127.0.0.1:0",
             "--history", state or os.path.join(self.dir, "history.db"), *args],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **(env or {}), "XDG_CONFIG_HOME": self.dir})
        line = self.child.stdout.readline()
        self.url = re.search(r"http://\S+", line).group(0).rstrip("/")
        self.pid = self.child.pid

    def __enter__(self):
        wait_for(self.url + "/readyz")
        return self

    def __exit__(self, *args):
        stop(self.child)
        shutil.rmtree(self.dir, ignore_errors=True)


class Nginx:
    """nginx with one worker that serves these bodies from files; gzip: the value of its gzip directives."""

    def __init__(self, bodies, gzip="gzip off;"):
        self.dir = tempfile.mkdtemp()
        os.chmod(self.dir, 0o755)
        self.first = next(iter(bodies))
        for name, body in bodies.items():
            os.makedirs(os.path.dirname(os.path.join(self.dir, name)), exist_ok=True)
            with open(os.path.join(self.dir, name), "wb") as f:
                f.write(body)
        self.port = free_port()
        conf = os.path.join(self.dir, "nginx.conf")
        with open(conf, "w") as f:
            f.write(textwrap.dedent(f"""
                worker_processes 1; daemon off; pid {self.dir}/pid; error_log /dev/null;
                events {{ worker_connections 4096; }}
                http {{ access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on; {gzip}
                        open_file_cache max=100; default_type text/plain;
                        client_body_temp_path {self.dir}/a; proxy_temp_path {self.dir}/b;
                        fastcgi_temp_path {self.dir}/c; uwsgi_temp_path {self.dir}/d; scgi_temp_path {self.dir}/e;
                        server {{ listen 127.0.0.1:{self.port}; root {self.dir}; }} }}
                """))
        self.child = subprocess.Popen(["nginx", "-c", conf, "-p", self.dir], stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        wait_for(f"{self.url}/{self.first}")
        # nginx's master process only waits: measure its worker process
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as f:
            self.pid = int(f.read().split()[0])
        return self

    def __exit__(self, *args):
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def wrk(url, seconds, connections=64, headers=()):
    """Returns requests per second, and the 99th percentile of the latency in seconds."""
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *(w for h in headers for w in ("-H", h)),
                          url], capture_output=True, text=True, check=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    p99, unit = re.search(r"99%\s+([\d.]+)(us|ms|s|m)", out).groups()
    if "Non-2xx" in out:
        sys.exit(f"{url}: {out}")
    return rate, float(p99) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]


# ---- programs of Debian sid, in a root folder as tests/clients/run uses it

PACKAGES = ("nvtop", "python3-pynvml", "python3-prometheus-client")
REMEDY = "run it as root with the network (mmdebstrap makes a root folder, build/peers), or set GPUWARD_CLIENTS_ROOT"


@functools.cache
def root_folder():
    """Returns the root folder with the peers, or None.  The first call makes the folder, which takes a minute."""
    root = os.environ.get("GPUWARD_CLIENTS_ROOT")
    if os.geteuid() != 0 or (root and not os.path.isdir(root)):
        return None
    root = root or os.path.join(TOP, "build", "peers")
    if not os.path.isdir(root):
        os.makedirs(os.path.dirname(root), exist_ok=True)
        done = subprocess.run([os.path.join(TOP, "tests", "debian-root"), root, "main,contrib,non-free,non-free-firmware", *PACKAGES])
        if done.returncode:
            return None
    return root


def here(needs):
    """Returns True if this machine has what `needs` names: a program, or Python modules, as "module NAME, NAME"."""
    if needs.startswith("module "):
        return subprocess.run(["/usr/bin/python3", "-c", f"import {needs[7:]}"], capture_output=True).returncode == 0
    return shutil.which(needs) is not None


def on_simulator(build, folder, scenario, needs, *argv, env=None):
    """Returns the command that runs a program on the simulator: on this machine if it has what `needs` names (see here()),
    else in the root folder; None if neither has it.  scenario is a file in the folder, or the name of a built-in scenario."""
    env, name = dict(env or {}), os.path.basename(scenario)
    if here(needs):
        env.update({"GPUWARD_SIM": scenario, "LD_LIBRARY_PATH": os.path.join(build, "sim"), "XDG_CONFIG_HOME": folder})
        return ["env", *(f"{k}={v}" for k, v in env.items()), *argv]
    root = root_folder()
    if not root:
        return None
    there = (f"usr/lib/python3/dist-packages/{needs[7:].split(',')[0]}.py" if needs.startswith("module ") else f"usr/bin/{needs}")
    if not os.path.exists(os.path.join(root, there)):
        return None
    shutil.copy(os.path.join(build, "sim", "libnvidia-ml.so.1"), folder)
    env["GPUWARD_SIM"] = "/mnt/" + name if os.sep in scenario else scenario
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/mnt", "LD_LIBRARY_PATH": "/mnt", **env}
    return [os.path.join(TOP, "tests", "in-root"), root, folder, *(f"{k}={v}" for k, v in env.items()),
            *(a.replace(folder, "/mnt") for a in argv)]
