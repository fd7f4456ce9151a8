"""A small replacement for `gpuward serve`: the same paths, with data from `gpuward snapshot --watch`.

Use it to work on the web page without the service, and for rare cases (a history of weeks, a driver that hangs on demand).
It has no security, no cache and no database.

    tests/e2e/mock_service.py [--port N] [--simulate SCENARIO] [--token T] [--past SECONDS]
"""
import argparse
import http.server
import itertools
import json
import math
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import support

CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
       "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
TICK_KEYS = (
    "uuid", "index", "state", "power_watts", "power_limit_watts", "temperature_gpu_celsius",
    "utilization_gpu_ratio", "utilization_memory_ratio", "memory_used_bytes",
    "memory_total_bytes", "clock_sm_hertz", "clock_event_reasons")
HISTORY = ("power_watts", "power_limit_watts", "temperature_gpu_celsius",
           "temperature_memory_celsius", "utilization_gpu_ratio", "utilization_memory_ratio",
           "memory_used_bytes", "clock_sm_hertz", "clock_memory_hertz", "fan_speed_ratio")
SPAN = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


def utc(t):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t % 1 * 1000):03d}Z"


class Model:
    """The latest snapshot, the history, the events and the windows."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.snapshot = None
        self.ticks = 0
        self.past = {}
        self.events = []
        self.windows = {}
        self.ids = itertools.count(1)
        self.energy = {}
        self.followers = set()
        self.started = time.time()

    def invent_past(self, device, now):
        """Returns an invented history with a gap: a point per second for the last ten minutes, and a point per minute before that."""
        points = self.past.setdefault(device["uuid"], [])
        times = [now - s for s in range(600, 0, -1)]
        times = [now - s for s in range(int(self.options.past), 600, -60)] + times
        for t in times:
            if 0.42 < (now - t) / self.options.past < 0.47:
                continue
            wave = 0.5 + 0.5 * math.sin(t / 700 + device["index"]) * math.sin(t / 97)
            point = {k: device.get(k) for k in HISTORY}
            for key, low in (("power_watts", 90), ("temperature_gpu_celsius", 34)):
                if point[key] is not None:
                    point[key] = low + (point[key] - low) * wave
            if point["utilization_gpu_ratio"] is not None:
                point["utilization_gpu_ratio"] = wave
            points.append((t, point))

    def report(self, kind, severity, text, uuid=None):
        event = {"id": next(self.ids), "time_utc": utc(time.time()), "kind": kind,
                 "uuid": uuid, "severity": severity, "text": text}
        self.events.append(event)
        self.push("event", event, event["id"])

    def push(self, name, data, number=None):
        head = f"id: {number}\n" if number else ""
        message = f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
        for follower in list(self.followers):
            follower.put(message)

    def tick(self):
        keys = lambda d: {**{k: d[k] for k in TICK_KEYS},
                          "energy_joules_total": self.energy.get(d["uuid"])}
        s = self.snapshot
        return {"tick": self.ticks, "time_utc": s["time_utc"], "let_go": False,
                "ready": not self.options.hang, "devices": [keys(d) for d in s["devices"]],
                "host": s["host"]}

    def take(self, snapshot):
        now = time.time()
        with self.lock:
            first, self.snapshot, self.ticks = self.snapshot is None, snapshot, self.ticks + 1
            for d in snapshot["devices"]:
                if first:
                    self.invent_past(d, now)
                self.past.setdefault(d["uuid"], []).append((now, {k: d.get(k) for k in HISTORY}))
                if d["power_watts"] is not None:
                    self.energy[d["uuid"]] = self.energy.get(d["uuid"], 0.0) + d["power_watts"]
            if first:
                self.report("service", "info", "The service has started.")
            self.push("tick", self.tick())

    def follow(self):
        command = [str(support.PROGRAM), "snapshot", "--json", "--watch=1s",
                   f"--simulate={self.options.simulate}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env=support.environment()) as child:
            for line in child.stdout:
                self.take(json.loads(line))

    def series(self, query):
        begin, step, end = query.get("from", "-15m"), float(query.get("step", 1)), float(query.get("to", "inf"))
        start = time.time() - float(begin[1:-1]) * SPAN[begin[-1]] if begin[0] == "-" else float(begin)
        out = []
        for uuid in query["gpu"].split(",") if "gpu" in query else list(self.past):
            for quantity in query["quantity"].split(","):
                buckets = {}
                for t, point in self.past.get(uuid, []):
                    value = point.get(quantity)
                    if start <= t <= end and value is not None:
                        buckets.setdefault(t // step * step, []).append(value)
                times = sorted(buckets)
                out.append({"gpu": uuid, "quantity": quantity, "step_seconds": step,
                            "time": times,
                            "mean": [sum(buckets[t]) / len(buckets[t]) for t in times],
                            "min": [min(buckets[t]) for t in times],
                            "max": [max(buckets[t]) for t in times]})
        return {"series": out}

    def window(self, w):
        end = w["end"] or time.time()
        joules = sum(self.energy.get(u, 0) - w["energy"].get(u, 0) for u in w["devices"])
        joules = w["joules"] if w["end"] else joules
        return {"schema_version": 1, "id": w["id"], "label": w["label"], "state": "ended" if w["end"] else "open",
                "begin_time": utc(w["begin"]), "end_time": w["end"] and utc(w["end"]),
                "seconds": end - w["begin"],
                "energy_joules": {"low": joules * 0.97, "best": joules, "high": joules * 1.03},
                "validity": "suspect" if end - w["begin"] < 10 else "valid",
                "codes": ["short", "foreign-process"] if end - w["begin"] < 10 else [],
                "devices": [{"index": d["index"], "uuid": d["uuid"]}
                            for d in self.snapshot["devices"] if d["uuid"] in w["devices"]]}

    def start_window(self, body):
        devices = body.get("gpus") or [d["uuid"] for d in self.snapshot["devices"]]
        w = {"id": f"w{next(self.ids)}", "label": body.get("label", ""), "begin": time.time(),
             "end": None, "devices": devices, "energy": dict(self.energy), "joules": 0}
        self.windows[w["id"]] = w
        self.push("window", self.window(w))
        return self.window(w)

    def stop_window(self, name):
        w = self.windows[name]
        w["joules"] = self.window(w)["energy_joules"]["best"]
        w["end"] = time.time()
        self.push("window", self.window(w))
        return self.window(w)

    def self_cost(self):
        calls = [{"name": n, "count": self.ticks * c, "errors": 0,
                  "seconds_total": self.ticks * c * s, "seconds_max": s * 3}
                 for n, c, s in (("nvmlDeviceGetFieldValues", 2, 4.1e-4),
                                 ("nvmlDeviceGetComputeRunningProcesses", 2, 2.2e-4),
                                 ("nvmlDeviceGetUtilizationRates", 2, 4e-5),
                                 ("nvmlDeviceGetMemoryInfo_v2", 2, 2.5e-5),
                                 ("nvmlDeviceGetTemperature", 2, 1.9e-5))]
        up = time.time() - self.started
        return {"cpu_seconds": up * 0.0021, "rss_bytes": 6912000, "rss_peak_bytes": 7340032,
                "wakeups": int(up * 3), "ticks": self.ticks, "ticks_missed": 0,
                "uptime_seconds": up, "cpu_mean_ratio": 0.0021,
                "store": {"bytes": 0, "dropped": 0, "state": self.options.store},
                "tick_seconds": 0.0011, "tick_max_seconds": 0.0042, "threads": 3,
                "start_utc": utc(self.started), "calls": calls}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = files = None

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json", status=200):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", CSP)
        self.end_headers()
        self.wfile.write(body)

    def problem(self, status, detail, kind="problem"):
        self.answer({"type": f"tag:gpuward,2026:{kind}", "status": status, "title": "Problem",
                     "detail": detail}, "application/problem+json", status)

    def stream(self, query):
        mine = queue.Queue()
        topics = query.get("topics", "tick,event,window").split(",")
        after = int(query.get("after", 1 << 62))
        with self.model.lock:
            for e in self.model.events:
                if e["id"] > after and "event" in topics:
                    mine.put(f"id: {e['id']}\nevent: event\ndata: {json.dumps(e)}\n\n".encode())
            self.model.followers.add(mine)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(mine.get())
        except OSError:
            self.model.followers.discard(mine)

    def file(self, path):
        name = {"/": "index.html", "/docs": "docs.html"}.get(path, path.lstrip("/"))
        found = (self.files / name).resolve()
        if self.files in found.parents and found.is_file():
            return self.answer(found.read_bytes(), TYPES[found.suffix])
        return self.problem(404, f"There is no {path}.")

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        m = self.model
        if url.path == "/api/v1/events" and "event-stream" in self.headers.get("Accept", ""):
            return self.stream(query)
        with m.lock:
            plain = {
                "/api/v1/snapshot": lambda: m.snapshot,
                "/api/v1/devices": lambda: {"devices": [
                    {**d, "energy_measured_seconds_total": time.time() - m.started, "energy_since_utc": utc(m.started)}
                    for d in m.snapshot["devices"]]},
                "/api/v1/processes": lambda: {"processes": m.snapshot["processes"]},
                "/api/v1/environment": lambda: {"host": {"hostname": "mock"}},
                "/api/v1/events": lambda: {"events": m.events[-int(query.get("limit", 100)):]},
                "/api/v1/self": m.self_cost,
                "/api/v1/health": lambda: {"gpus": []},
                "/api/v1/guard": lambda: {"workers": [], "reservations": []},
                "/api/v1/windows": lambda: {"windows": [m.window(w) for w in m.windows.values()]},
                "/api/v1/series": lambda: m.series(query),
                "/openapi.json": lambda: OPENAPI,
            }
            if url.path == "/readyz":
                if m.options.hang:
                    return self.problem(503, "nvmlDeviceGetPowerUsage has not returned for 12 s.")
                return self.answer({"ready": True})
            if url.path in plain:
                if m.snapshot is None:
                    return self.problem(503, "Nothing was read yet.")
                return self.answer(plain[url.path]())
            window = m.windows.get(url.path.removeprefix("/api/v1/windows/"))
            if window:
                return self.answer(m.window(window))
        return self.file(url.path)

    def may_change(self):
        token, given = self.model.options.token, self.headers.get("Authorization")
        if not token or given == f"Bearer {token}":
            return True
        self.problem(401, "this service requires the token for energy windows",
                     "wrong-token" if given else "token-needed")
        return False

    def do_DELETE(self):
        if not self.may_change():
            return None
        with self.model.lock:
            gone = self.model.windows.pop(self.path.removeprefix("/api/v1/windows/"), None)
        return self.answer(b"") if gone else self.problem(404, f"There is no {self.path}.")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.may_change():
            return None
        parts = self.path.strip("/").split("/")
        with self.model.lock:
            if parts == ["api", "v1", "windows"]:
                return self.answer(self.model.start_window(json.loads(body or "{}")), status=201)
            if parts[:3] == ["api", "v1", "windows"] and parts[4:] == ["stop"]:
                return self.answer(self.model.stop_window(parts[3]))
        return self.problem(404, f"There is no {self.path}.")


OPENAPI = {
    "openapi": "3.1.0", "info": {"title": "gpuward", "version": "0"},
    "paths": {"/api/v1/snapshot": {"get": {"summary": "The machine and its GPUs now",
                                           "tags": ["state"],
                                           "responses": {"200": {"description": "a snapshot"}}}}}}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--simulate", default="demo")
    p.add_argument("--token", default="")
    p.add_argument("--past", type=float, default=3 * 3600)
    p.add_argument("--store", default="ok", help="the state of the history that the service reports")
    p.add_argument("--hang", action="store_true", help="report that a driver call has not returned")
    model = Model(p.parse_args())
    Handler.model = model
    Handler.files = pathlib.Path(tempfile.mkdtemp()).resolve()
    try:
        subprocess.run([str(support.TOP / "tools" / "assets"), "unpack",
                        str(support.BUILD / "web" / "npm"), str(Handler.files)], check=True)
        threading.Thread(target=model.follow, daemon=True).start()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", model.options.port), Handler)
        server.daemon_threads = True
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(Handler.files)


if __name__ == "__main__":
    sys.exit(main())
