"""A worker in a container, known by the container's name: the engine is asked which one that is.

The engine is a server that speaks Docker's API on a socket; its containers are real processes in real control groups
with the names that Docker gives them.
"""
import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from guarded import Guarded
from worker import GIB, Contender

CONFIG = """
[guard]
mode = "enforce"
simulated = true
[guard.defaults]
quiet_s = 0.3
min_resident_s = 0
post_action_s = 0
[[worker]]
name = "ollama"
kind = "container"
url = "unix://{socket}"
match.container = "{name}"
"""


def groups():
    """Where control groups can be made."""
    for line in open("/proc/mounts"):
        _, where, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(where, os.W_OK):
            return pathlib.Path(where)
    pytest.skip("no control group can be made here")


class Container:
    """One that the engine has; it runs or not."""

    def __init__(self, world, size):
        self.world, self.size = world, size
        self.id = secrets.token_hex(32)
        self.group = groups() / f"docker-{self.id}.scope"
        self.group.mkdir()
        self.process = None

    def start(self):
        self.process = Contender(self.world, 0)
        (self.group / "cgroup.procs").write_text(str(self.process.pid))
        self.world.hold(self.process.pid, self.size)

    def stop(self):
        if self.process:
            self.process.end()
        self.process = None

    def remove(self):
        self.stop()
        self.group.rmdir()


class Engine:
    """containers: by name."""

    def __init__(self, path, containers):
        engine = self
        self.containers, self.asked, self.path = containers, [], str(path)

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                _, _, what, verb = self.path.split("?")[0].split("/")
                engine.asked.append(f"{self.command} {what[:12]} {verb}")
                found = [c for name, c in engine.containers.items() if what in (name, c.id)]
                if found and verb in ("start", "stop"):
                    getattr(found[0], verb)()
                body = json.dumps({"Id": found[0].id, "Name": "/x"}, separators=(",", ":")) if found else "{}"
                self.send_response(404 if not found else 204 if verb != "json" else 200)
                self.end_headers()
                if verb == "json":
                    self.wfile.write(body.encode())

            do_GET = do_POST = answer

            def address_string(self):
                return "engine"

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
        os.path.exists(self.path) and os.unlink(self.path)


@pytest.fixture
def container(world):
    c = Container(world, 10 * GIB)
    c.start()
    yield c
    c.remove()


def test_a_container_is_known_by_its_name_and_comes_back_after_a_restart_of_the_service(world, container, tmp_path):
    config = CONFIG.format(socket=tmp_path / "engine", name="llm")
    history = str(tmp_path / "history.db")
    with Engine(tmp_path / "engine", {"llm": container}) as engine:
        with Guarded(world, config, state=history) as s:
            s.until("active")
            with Contender(world, 13 * GIB):
                s.until("evicted")
                assert container.process is None
                assert f"POST {container.id[:12]} stop" in engine.asked
            s.wait(lambda: s.now() == "active" and container.process)
            other = Contender(world, 13 * GIB)
            s.until("evicted")
        with other, Guarded(world, config, state=history) as s:
            s.until("evicted")
            assert container.process is None
            other.end()
            s.wait(lambda: s.now() == "active" and container.process)


def test_one_that_is_made_anew_under_the_same_name_is_found(world, container, tmp_path):
    again = Container(world, 10 * GIB)
    try:
        with Engine(tmp_path / "engine", {"llm": container}) as engine, \
                Guarded(world, CONFIG.format(socket=tmp_path / "engine", name="llm")) as s:
            s.until("active")
            container.stop()
            s.until("absent")
            engine.containers["llm"] = again
            again.start()
            s.child.send_signal(signal.SIGHUP)  # names are asked for anew
            s.until("active")
    finally:
        again.remove()


def told(s, part):
    return any(part in e["text"] for e in s.get("/api/v1/events").json()["events"])


def test_a_name_that_nobody_knows_and_an_engine_that_is_not_there_are_told(world, container, tmp_path):
    config = CONFIG.format(socket=tmp_path / "engine", name="lm")
    with Guarded(world, config) as s:
        s.wait(lambda: told(s, f"container lm: no answer from {tmp_path}/engine (No such file or directory)"))
        s.until("absent")
    with Engine(tmp_path / "engine", {"llm": container}), Guarded(world, config) as s:
        s.wait(lambda: told(s, f"container lm: the engine at {tmp_path}/engine has no container of that name"))
        s.until("absent")
        assert "no process is in container lm" in s.worker()["why"]


def test_an_engine_that_never_ends_is_left(world, container, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine"))
        listener.listen()

        def talk():
            with contextlib.suppress(OSError):
                peer = listener.accept()[0]
                while True:
                    peer.sendall(b"x" * 65536)
        threading.Thread(target=talk, daemon=True).start()
        with Guarded(world, CONFIG.format(socket=tmp_path / "engine", name="lm")) as s:
            s.wait(lambda: told(s, f"container lm: the engine at {tmp_path}/engine sent an answer that gpuward does not understand"))


def test_an_id_needs_no_engine_to_be_found(world, container, tmp_path):
    config = CONFIG.format(socket=tmp_path / "none", name=container.id)
    with Guarded(world, config) as s:
        s.until("active")
        s.guard("evict", "ollama")
        s.wait(lambda: "there is no socket of an engine at" in (s.worker()["why"] or ""))
