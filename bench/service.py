"""Measures what the service costs and how fast it answers JSON, on the simulator.

Peers: nginx with one worker that serves the same bytes from a file, and a Python server (FastAPI under uvicorn) that answers
the same JSON.  bench/run metrics has the same for /metrics."""
import json
import os
import re
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import page
from peers import TOP, Nginx, Service, cpu_seconds, fetch, free_port, rss_mib, wait_for, wrk

MIB = 1 << 20

PYTHON_SERVER = """
import json, sys
import fastapi, uvicorn
app = fastapi.FastAPI()
answer = json.load(open(sys.argv[2]))
@app.get("/api/gpu/devices")
async def devices():
    return answer
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""


class Python:
    def __init__(self, body):
        self.dir = tempfile.mkdtemp()
        path = os.path.join(self.dir, "answer.json")
        with open(path, "wb") as f:
            f.write(body)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.child = subprocess.Popen(["/usr/bin/python3", "-c", PYTHON_SERVER, str(port), path])
        self.pid = self.child.pid

    def __enter__(self):
        wait_for(self.url + "/api/gpu/devices")
        return self

    def __exit__(self, *args):
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def requests(table, build, quick):
    """Measures JSON answers of the servers in turn: requests per second and the 99th percentile of the latency."""
    seconds, rounds = (1, 3) if quick else (2, 7)
    with Service(build, "eight-gpus") as s:
        body = fetch(s.url + "/api/gpu/devices")
        with Nginx({"api/gpu/devices": body}) as n:
            page.compare(table, "json", f"/api/gpu/devices, 8 GPUs, {len(body) / 1000:.1f} kB", "nginx",
                         page.turns(s, n, "/api/gpu/devices", seconds, rounds), 1.0)
        with Python(body) as p:
            page.compare(table, "json", "  the same JSON", "FastAPI, uvicorn", page.turns(s, p, "/api/gpu/devices", seconds, rounds), 20)


def start(table, build, quick):
    """Measures the time from the start to the first answer and to the first reading, in turn with nginx."""
    alive, ready, peer = [], [], []
    for _ in range(5 if quick else 15):
        with Service(build, "h200") as s:
            took = time.monotonic() - s.begin
        ready.append(took * 1e9)
        begin = time.monotonic()
        with Nginx({"file": b"file"}):
            peer.append((time.monotonic() - begin) * 1e9)
        s = Service(build, "h200")
        wait_for(s.url + "/healthz")
        alive.append((time.monotonic() - s.begin) * 1e9)
        s.__exit__()
    table.turns("service", "start to the first answer", "ns", "nginx", alive, peer, 50e6, "value")
    table.turns("service", "  until the GPUs are read", "ns", "nginx", ready, peer)


def follow(url, count):
    """Starts clients that read a stream.  Returns a function that ends them."""
    host, port = url[7:].split(":")
    socks = []
    for _ in range(count):
        s = socket.create_connection((host, int(port)))
        s.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        s.setblocking(False)
        socks.append(s)
    stop = threading.Event()
    got = [0]

    def read():
        poll = select.epoll()
        by = {s.fileno(): s for s in socks}
        for fd in by:
            poll.register(fd, select.EPOLLIN)
        while not stop.is_set():
            for fd, _ in poll.poll(0.2):
                try:
                    data = by[fd].recv(65536)
                except OSError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                got[0] += data.count(b"event: tick")
    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def end():
        stop.set()
        thread.join()
        for s in socks:
            s.close()
    return end, got


def streams(table, build, quick):
    seconds = 8 if quick else 20
    for count, target in ((8, None), (1000, 0.05)):
        share, memory, rate = stream_cost(build, count, seconds)
        table.row("service", f"CPU with {count} event streams, 2 GPUs", share, "share", target=target, of="value")
        table.row("service", "  memory (RSS)", memory * MIB, "bytes")
        table.row("service", "  messages per second of each", round(rate, 2), "")


def stream_cost(build, count, seconds, scenario="two-gpus"):
    """Measures `count` open streams.  Returns the share of a core, MiB, and messages per second and stream."""
    with Service(build, scenario) as s:
        end, got = follow(s.url, count)
        time.sleep(2)  # the start of the streams is not measured
        before, ticks, at = cpu_seconds(s.pid), got[0], time.monotonic()
        time.sleep(seconds)
        span = time.monotonic() - at
        out = (cpu_seconds(s.pid) - before) / span, rss_mib(s.pid), (got[0] - ticks) / span / count
        end()
        return out


def memory(table, build, quick):
    for scenario, label, target in (("h200", "1 GPU", 10), ("eight-gpus", "8 GPUs", None)):
        with Service(build, scenario) as s:
            time.sleep(3)
            table.row("service", f"memory (RSS), {label}, no clients", rss_mib(s.pid) * MIB, "bytes", target=target and target * MIB,
                      of="value")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "history.db")
        with Service(build, "eight-gpus") as s:
            uuids = [x["uuid"] for x in json.loads(fetch(s.url + "/api/v1/devices"))["devices"]]
        subprocess.run([os.path.join(build, "bench", "bench-fill"), path, "86400", *uuids], check=True)
        with Service(build, "eight-gpus", state=path) as s:
            end, _ = follow(s.url, 8)
            for u in uuids:
                fetch(f"{s.url}/api/v1/series?gpu={u}&quantity=power_watts&from=-24h")
            time.sleep(5)
            table.row("service", "memory (RSS), 8 GPUs, 24 h of history, 8 streams", rss_mib(s.pid) * MIB, "bytes", target=16 * MIB,
                      of="value")
            table.row("service", "  its database", os.path.getsize(path), "bytes")
            end()


def calls(url):
    return sum(c["count"] for c in json.loads(fetch(url + "/api/v1/self"))["calls"])


def scrapers(table, build, quick):
    """Checks that 50 scraping clients cause no more driver calls than one client that scrapes once per second."""
    seconds = 40  # some figures are read every ten seconds
    slow = os.path.join(TOP, "tests", "e2e", "sixteen-slow.toml")
    for scenario, label in (("eight-gpus", "8 GPUs"), (slow, "16 GPUs, 5 ms per call")):
        with Service(build, scenario) as s:
            wait_for(s.url + "/readyz")
            begin, a = time.monotonic(), 0
            while time.monotonic() < begin + seconds + 2:
                if not a and time.monotonic() > begin + 2:
                    at, a = time.monotonic(), calls(s.url)
                fetch(s.url + "/metrics")
                time.sleep(1)
            quiet = (calls(s.url) - a) / (time.monotonic() - at)
            at, a = time.monotonic(), calls(s.url)
            _, p99 = wrk(s.url + "/metrics", seconds, 50)
            loud = (calls(s.url) - a) / (time.monotonic() - at)
        table.row("service", f"driver calls, 50 scrapers, {label}", loud, "per s", "one scraper", quiet, 1.1)
        table.row("service", "  p99 of a scrape", p99 * 1e9, "ns")


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024


def pod(table, build, quick):
    """Measures peak memory with the requests of a cluster: a scrape every 15 s, a stream, and a user who reads the page."""
    seconds = 30 if quick else 120
    for scenario in ("h200", "eight-gpus", "sixty-four"):
        with Service(build, scenario) as s:
            uuids = [x["uuid"] for x in json.loads(fetch(s.url + "/api/v1/devices"))["devices"]]
            end, _ = follow(s.url, 1)
            used, at = cpu_seconds(s.pid), time.monotonic()
            for _ in range(max(2, seconds // 15)):
                body = fetch(s.url + "/metrics", {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text"})
                for path in ("/", "/api/v1/snapshot", "/api/v1/processes", "/api/v1/guard", "/api/v1/self"):
                    fetch(s.url + path)
                for u in uuids:
                    fetch(f"{s.url}/api/v1/series?gpu={u}&quantity=power_watts&from=-1h")
                time.sleep(15)
            span = time.monotonic() - at
            end()
            table.row("pod", f"peak memory, {len(uuids)} GPU{'s'[:len(uuids) > 1]}", peak_mib(s.pid) * MIB, "bytes")
            table.row("pod", "  memory (RSS) at the end", rss_mib(s.pid) * MIB, "bytes")
            table.row("pod", "  CPU", (cpu_seconds(s.pid) - used) / span, "share")
            table.row("pod", "  bytes of a scrape, gzip", len(body), "")


def section(table, build, quick):
    if shutil.which("nginx") and shutil.which("wrk"):
        requests(table, build, quick)
        scrapers(table, build, quick)
    else:
        table.skip("nginx and wrk", "tools/deps bench")
    for part in (start, memory, streams):
        part(table, build, quick)
