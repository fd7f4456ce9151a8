"""Tests gpuward notify, which shows the guard's moves as desktop notifications: on a real bus with a fake desktop."""
import http.server
import json
import shutil
import struct
import subprocess
import threading

import pytest

import logind
import support
from guarded import Guarded, configure
from worker import GIB, Contender

pytestmark = pytest.mark.skipif(not shutil.which("dbus-daemon"), reason="dbus-daemon is not installed")
NAME, PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"


class Reader:
    """Reads a body by its signature; alignment counts from the beginning of the body."""

    def __init__(self, body):
        self.body, self.at = body, 0

    def number(self):
        self.at += -self.at % 4
        self.at += 4
        return struct.unpack_from("<I", self.body, self.at - 4)[0]

    def text(self):
        n = self.number()
        s = self.body[self.at:self.at + n].decode()
        assert self.body[self.at + n] == 0
        self.at += n + 1
        return s

    def texts(self):
        n = self.number()
        end, found = self.at + n, []
        while self.at < end:
            found.append(self.text())
        assert self.at == end
        return found


class Desktop(logind.Logind):
    """A fake desktop. shown has [(id, replaced id, summary, body, actions)]."""

    def __init__(self, bus, refuses=False):
        self.shown, self.refuses, self.changed = [], refuses, threading.Condition()
        logind.Client.__init__(self, bus)
        self.bus("RequestName", logind.pad(logind.text(NAME), 4) + struct.pack("<I", 0), signature="su")
        threading.Thread(target=self.run, daemon=True).start()

    def heard(self, m, serial):
        if m[1] != logind.CALL or b"Notify\0" not in m:
            return
        assert b"susssasa{sv}i\0" in m
        sender = m[m.rindex(b"\x07\x01s\0"):][8:].split(b"\0")[0].decode()
        body, _, fields = struct.unpack("<III", m[4:16])
        r = Reader(m[16 + (fields + 7 & ~7):])
        app, replaces, icon, summary, text, actions = r.text(), r.number(), r.text(), r.text(), r.text(), r.texts()
        assert r.number() == 0  # no hints
        r.at += -r.at % 8
        assert r.number() == 0xffffffff and r.at == body and app == "gpuward" and icon
        # The reply comes first: before the reply, the program does not know the number of its notification.
        self.say(logind.REPLY, struct.pack("<I", len(self.shown) + 1), destination=sender, reply_to=serial, signature="u")
        with self.changed:
            self.shown.append((len(self.shown) + 1, replaces, summary, text, actions))
            self.changed.notify_all()

    def wait(self, words):
        """Waits for the first notification with these words in its summary, and returns it."""
        def found():
            return next((s for s in self.shown if words in s[2]), None)
        with self.changed:
            assert self.changed.wait_for(found, support.TIMEOUT), self.shown
            return found()

    def press(self, number):
        self.say(logind.SIGNAL, struct.pack("<I", number) + logind.text("hold"), path=PATH, interface=NAME,
                 member="ActionInvoked", signature="us")


class Notifier:
    def __init__(self, s, bus, *args):
        self.argv = [str(support.PROGRAM), "notify", "--address", s.url, "--token-file", s.token_file, *args]
        self.env = support.environment(DBUS_SESSION_BUS_ADDRESS=bus.address)

    def __enter__(self):
        self.child = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
        return self

    def __exit__(self, *args):
        self.child.terminate()
        self.said = self.child.communicate(timeout=support.TIMEOUT)[0]
        assert self.child.returncode == support.OK, self.said


class FakeService(http.server.ThreadingHTTPServer):
    """A fake service. The test sets its decisions and writes its event stream. asked: [(method, path)]"""

    daemon_threads = True

    def __init__(self, tmp_path):
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.token_file = str(tmp_path / "token")
        (tmp_path / "token").write_text("token-of-the-fake-service\n")
        (tmp_path / "token").chmod(0o600)
        self.asked, self.decisions, self.processes, self.stream = [], [], [], None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fetches(self):
        return self.asked.count(("GET", "/api/v1/guard?limit=128"))

    def write(self, text):
        self.stream.write(text.encode())
        self.stream.flush()


class FakeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, kind, body=None):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body or b"")
        self.wfile.flush()

    def do_GET(self):
        self.server.asked.append((self.command, self.path))
        if self.path.endswith("/events"):
            self.reply("text/event-stream")
            self.server.stream = self.wfile
            threading.Event().wait()  # the thread ends with the tests
        self.reply("application/json", json.dumps({"decisions": self.server.decisions, "processes": self.server.processes}).encode())
        self.close_connection = True

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


def follows(s):
    """Waits until a client follows the event stream."""
    s.wait(lambda: s.get("/api/v1/self").json()["http"]["streams"] > 0)


def test_a_person_sees_that_a_worker_left_and_holds_it_with_the_button(s, world, worker, tmp_path):
    s.settled()
    with logind.Bus(tmp_path) as bus, Desktop(bus) as desktop, Notifier(s, bus, "--hold", "90m") as n:
        follows(s)
        with Contender(world, 8 * GIB):
            number, _, summary, text, actions = desktop.wait("left the GPU")
            assert summary == "ollama left the GPU for sleep"
            assert text.startswith("10.0 GiB freed in ") and text.endswith(" s")
            assert actions == ["hold", "Keep it off for 1.5 h"]
        number, replaces, summary, _, actions = desktop.wait("is back on the GPU")
        assert replaces == 1 and actions[0] == "hold"
        desktop.press(number)
        assert desktop.wait("stays off the GPU for 1.5 h")[1] == number
        s.until("evicted")
        held = s.worker()
        assert held["hold"] == "evicted" and 5000 < held["hold_until_seconds"] <= 5400
    assert "ollama left the GPU for sleep" in n.said


def test_each_worker_has_its_own_time_and_only_a_message_is_news(tmp_path):
    with FakeService(tmp_path) as s, logind.Bus(tmp_path) as bus, Desktop(bus) as desktop, Notifier(s, bus):
        support.wait(lambda: s.fetches() == 2 and s.stream, "the stream and what happened before it")
        s.decisions = [{"id": i, "worker": f"w{i}", "from": "verify", "to": "evicted", "result": "freed", "dry_run": False,
                        "mask": [], "freed_bytes": i << 30, "freed_seconds": seconds}
                       for i, seconds in ((1, 0.5), (2, 7.25), (3, None))]
        s.write('event: guard\ndata: {"text": "data: data:"}\n\n')
        assert desktop.wait("w3 left")[3] == "3.0 GiB freed"
        assert desktop.wait("w1 left")[3] == "1.0 GiB freed in 0.5 s"
        assert desktop.wait("w2 left")[3] == "2.0 GiB freed in 7.2 s"
        s.write(": a comment with data: is no message\n\n")
        desktop.press(desktop.wait("w1 left")[0])
        support.wait(lambda: ("POST", "/api/v1/guard/workers/w1/hold") in s.asked, "the button, after the comment was read")
        assert s.fetches() == 3


def test_foreign_text_is_cleaned_and_numbers_that_begin_again_are_news(tmp_path):
    """A name that is cut inside a character is not UTF-8, and the bus would close the connection."""
    def left(number, worker):
        return {"id": number, "worker": worker, "uuid": "GPU-1", "from": "verify", "to": "evicted", "result": "freed",
                "dry_run": False, "mask": ["contention"], "freed_bytes": 1 << 30, "freed_seconds": 1}
    with FakeService(tmp_path) as s, logind.Bus(tmp_path) as bus, Desktop(bus) as desktop:
        with Notifier(s, bus) as n:
            support.wait(lambda: s.fetches() == 2 and s.stream, "the stream and what happened before it")
            s.processes = [{"class": "contender", "memory_bytes": 5, "name": "x" + "é" * 60}]
            s.decisions = [left(50, "first")]
            s.write("data: {}\n\n")
            assert desktop.wait("first left")[2] == "first left the GPU for x" + "é" * 29
            s.processes = [{"class": "contender", "memory_bytes": 5, "name": "a\x1b[31m<b>\x07"}]
            s.decisions = [left(1, "second\x1b]0;t\x07")]  # a service with an empty state folder
            s.write("data: {}\n\n")
            assert desktop.wait("second")[2] == "second?]0;t? left the GPU for a?[31m_b_?"
            s.decisions.append(left(2, "third"))
            s.write("data: {}\n\n")
            desktop.wait("third left")
        assert len(desktop.shown) == 3
    assert "second?]0;t? left the GPU for a?[31m<b>?: 1.0 GiB" in n.said and "\x1b" not in n.said


def test_it_connects_again_after_the_service_was_killed_and_says_what_a_dry_run_would_do(world, worker, tmp_path):
    with Guarded(world, configure(("ollama", worker), mode="dry-run")) as s, logind.Bus(tmp_path) as bus, \
            Desktop(bus) as desktop, Notifier(s, bus):
        s.settled()
        follows(s)
        s.restart()
        s.settled()
        follows(s)
        with Contender(world, 8 * GIB):
            _, _, summary, text, actions = desktop.wait("would leave")
        assert summary == "ollama would leave the GPU for sleep" and "Dry run" in text and actions == []
        assert all("would leave" in shown[2] for shown in desktop.shown)


def test_a_button_without_the_token_and_a_missing_bus_are_explained(s, world, worker, tmp_path):
    s.settled()
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-token-of-this-service\n")
    wrong.chmod(0o600)
    with logind.Bus(tmp_path) as bus:
        with Desktop(bus) as desktop, Notifier(s, bus, "--token-file", str(wrong)):
            follows(s)
            with Contender(world, 8 * GIB):
                desktop.press(desktop.wait("left the GPU")[0])
                assert "refuses" in desktop.wait("is not held")[3]
    gone = subprocess.run([str(support.PROGRAM), "notify", "--address", s.url], capture_output=True, text=True,
                          env=support.environment(DBUS_SESSION_BUS_ADDRESS=bus.address), timeout=support.TIMEOUT)
    assert gone.returncode == support.FAILED and "session bus" in gone.stderr
