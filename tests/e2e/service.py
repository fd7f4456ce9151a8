"""Runs the service for tests, on a free port, until the end of the block.

    with service.Service("demo") as s:
        s.get("/api/gpu/devices")          # a requests.Response
"""
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import tempfile

import requests

import support

TOKEN = "a-token-for-the-tests-0123456789"

EVERY_METRIC = {"GPUWARD_METRICS_INCLUDE": "*"}  # environment of a service that serves every metric


class Service:
    """A running service. args has further options, config the text of its configuration file. token: it requires a token."""

    def __init__(self, scenario="two-gpus", *args, config=None, token=False, state=None, env=None, listen="127.0.0.1:0",
                 simulate=True):
        self.dir = tempfile.TemporaryDirectory(prefix="gpuward-test-")
        self.path = self.dir.name
        self.state = state or os.path.join(self.path, "history.db")
        argv = [str(support.PROGRAM), "serve", "--history", self.state]
        if listen:
            argv += ["--listen", listen]
        if simulate:
            argv.append(f"--simulate={scenario}")
        if config is not None:
            self.config = os.path.join(self.path, "gpuward.toml")
            with open(self.config, "w") as f:
                f.write(config)
            argv += ["--config", self.config]
        if token:
            self.token_file = os.path.join(self.path, "token")
            with open(os.open(self.token_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(TOKEN + "\n")
            argv += ["--token-file", self.token_file]
        self.argv = argv + list(map(str, args))
        self.env = {**support.environment(HOME=self.path), **(env or {})}
        self.child = None
        self.url = None

    def start(self, ready=True):
        self.log = open(os.path.join(self.path, "log"), "a+")
        self.child = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=self.log, text=True)
        line = self.child.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if not found:
            self.child.wait(support.TIMEOUT)
            if "unix:" in line:
                return self
            raise AssertionError(f"exit {self.child.returncode}: {line}{self.messages()}")
        self.url = found.group(0).rstrip("/")
        if ready:
            self.wait(lambda: self.get("/api/v1/snapshot").status_code == 200)
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *args):
        self.stop()
        self.log.close()
        self.dir.cleanup()

    def stop(self, how=signal.SIGTERM):
        """Stops the service and returns its exit status."""
        if self.child.poll() is None:
            self.child.send_signal(how)
        try:
            self.child.wait(support.TIMEOUT)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise
        finally:
            self.child.stdout.close()
        return self.child.returncode

    def restart(self, how=signal.SIGKILL):
        port = self.url.rsplit(":", 1)[1]
        self.stop(how)
        at = self.argv.index("--listen")
        self.argv[at + 1] = "127.0.0.1:" + port
        return self.start()

    def messages(self):
        with open(os.path.join(self.path, "log")) as f:
            return f.read()

    def kept(self, *words):
        """Waits until the database has a document with these words, because only stored data survives a kill."""
        def there():
            with contextlib.suppress(sqlite3.Error), \
                    contextlib.closing(sqlite3.connect(f"file:{self.state}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT id || ' ' || json FROM document")
                return any(all(w in text for w in words) for text, in rows)
        self.wait(there)

    @staticmethod
    def wait(true, seconds=support.TIMEOUT, what="the condition"):
        """Waits until true() is true. A service that does not answer yet is not an error."""
        return support.wait(true, what, seconds, (requests.RequestException,))

    def ticks(self, n=2):
        """Waits until the service has read the GPUs n more times."""
        end = self.get("/api/v1/self").json()["ticks"] + n
        self.wait(lambda: self.get("/api/v1/self").json()["ticks"] >= end)

    def ask(self, method, path, token=False, **kw):
        headers = dict(kw.pop("headers", {}))
        if token:
            headers["Authorization"] = f"Bearer {TOKEN}"
        kw.setdefault("timeout", support.TIMEOUT)
        support.jitter()
        return requests.request(method, self.url + path, headers=headers, **kw)

    def get(self, path, **kw):
        return self.ask("GET", path, **kw)

    def post(self, path, **kw):
        return self.ask("POST", path, **kw)
