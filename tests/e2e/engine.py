"""A real Prometheus and a real Alertmanager on loopback, with the packaged rules, for tests.

    with serving(home, "two-gpus") as address, prometheus(home, {"a": address}) as ask:
        ask.values("gpuward_gpu_up")

scaled() makes every duration of a rule file shorter, so that an alert "for 10m" fires after seconds.
"""
import contextlib
import http.server
import json
import re
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

import support
from support import PROGRAM, TIMEOUT, TOP, environment, gpuward

PROMETHEUS = shutil.which("prometheus", path="/usr/bin:/bin")
ALERTMANAGER = shutil.which("prometheus-alertmanager", path="/usr/bin:/bin")
RULES = TOP / "packaging" / "prometheus"


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as r:
        return r.headers, r.read().decode()


def eventually(look, what):
    """Waits until look() returns a value that is not None or empty, and returns it. Network errors are ignored."""
    return support.wait(look, what, ignore=(OSError, urllib.error.URLError))


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@contextlib.contextmanager
def running(home, *argv):
    """Runs a program until the end of the block. Its output goes to the file log."""
    with (home / "log").open("w") as log:
        process = subprocess.Popen([str(a) for a in argv], env=environment(HOME=home), stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                stop(process)


@contextlib.contextmanager
def serving(home, scenario, *options, processes=None):
    """Runs `gpuward serve` on a scenario and yields its address. Appends its process to processes."""
    if gpuward("serve", "--help").returncode != 0:
        pytest.skip("this gpuward has no serve")
    address = f"127.0.0.1:{support.free_port()}"
    if "--history" not in options:
        options += ("--history", "none")
    with running(home, PROGRAM, "serve", f"--simulate={scenario}", "--listen", address, "--interval", "500ms",
                 *options) as process:
        if processes is not None:
            processes.append(process)
        eventually(lambda: "gpuward_up 1" in metrics(address), "the first reading")
        yield address


def metrics(address):
    return get(f"http://{address}/metrics")[1]


def scaled(text, factor):
    """Returns the text of rules or of a configuration with each duration multiplied by factor."""
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return re.sub(r"\b(\d+)([smhd])\b", lambda m: f"{round(int(m[1]) * seconds[m[2]] * factor * 1000)}ms", text)


@contextlib.contextmanager
def prometheus(home, nodes, interval="1s", rules=None, alertmanager=None, evaluate=None, jobs=(), options=()):
    """Runs a Prometheus that scrapes the nodes, {instance: address}, and further jobs, (name, nodes). Yields a function
    that sends queries."""
    if not PROMETHEUS:
        pytest.skip("prometheus is not installed")
    files = [str(f) for f in ((RULES / "gpuward.rules.yml", RULES / "alerts.yml") if rules is None else rules)]
    port = support.free_port()
    (home / "prometheus.yml").write_text(json.dumps({  # JSON is valid YAML
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": evaluate or interval},
        "rule_files": files,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []},
        "scrape_configs": [{"job_name": job, "static_configs": [
            {"targets": [address], "labels": {"instance": name}} for name, address in targets.items()]}
            for job, targets in (("gpuward", nodes), *jobs)]}))

    def ask(path, **query):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        answer = json.loads(get(url)[1])
        assert answer["status"] == "success"
        return answer["data"]

    def values(expression):
        return [(r["metric"], float(r["value"][1]))
                for r in ask("query", query=expression)["result"]]

    ask.values, ask.url = values, f"http://127.0.0.1:{port}"
    with running(home, PROMETHEUS, f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}",
                 f"--web.listen-address=127.0.0.1:{port}", *options):
        eventually(lambda: len([v for _, v in values('up{job="gpuward"}') if v == 1]) == len(nodes),
                   "a scrape of every node")
        yield ask


class Receiver:
    """A webhook that keeps the messages from Alertmanager: (receiver, message)."""

    def __init__(self):
        messages = self.messages = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((self.path.strip("/"), json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()

    def firing(self):
        """Returns [(receiver, instance, names of the alerts)], one row per message that reports a fault."""
        return [(where, m["groupLabels"].get("instance"), sorted(a["labels"]["alertname"] for a in m["alerts"]))
                for where, m in list(self.messages) if m["status"] == "firing"]


@contextlib.contextmanager
def alertmanager(home, receiver, factor):
    """Runs an Alertmanager with the packaged configuration and scaled durations, and yields its address."""
    if not ALERTMANAGER:
        pytest.skip("prometheus-alertmanager is not installed")
    text = scaled((RULES / "alertmanager.yml").read_text(), factor)
    (home / "alertmanager.yml").write_text(text.replace("127.0.0.1:9095", receiver.address))
    address = f"127.0.0.1:{support.free_port()}"
    with running(home, ALERTMANAGER, f"--config.file={home / 'alertmanager.yml'}", f"--storage.path={home / 'data'}",
                 f"--web.listen-address={address}", "--cluster.listen-address="):
        eventually(lambda: get(f"http://{address}/-/ready"), "Alertmanager")
        yield address
