"""Tests the HTTP server with correct, invalid and hostile requests.

The tests use tests/e2e/http_server, which serves a few small answers with the code of `gpuward serve`.  Its deadlines are
short.  No test asserts a time shorter than TIMEOUT.
"""
import contextlib
import gzip
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import time

import pytest

import support
from support import wait

SERVER = support.BUILD / "tests" / "e2e" / "http_server"
SANITIZED = SERVER.exists() and b"__asan_init" in SERVER.read_bytes()  # needs its own memory
TIMEOUT = 20
TOKEN = "0123456789abcdef-token"

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="built without the service")


class Server:
    def __init__(self, pass_fds=(), **options):
        self.process = subprocess.Popen(
            [str(SERVER), *(f"{k}={v}" for k, v in options.items())], pass_fds=pass_fds,
            stdout=subprocess.PIPE, encoding="utf-8", env=support.environment())
        self.lines = []
        while (line := self.process.stdout.readline()) and line != "ready\n":
            self.lines.append(line.strip())

    @property
    def address(self):
        host, port = self.lines[0].split("//")[1].rsplit(":", 1)
        return host.strip("[]"), int(port)

    def connect(self):
        return socket.create_connection(self.address, timeout=TIMEOUT)

    def raw(self, data, read=True):
        """Sends bytes and returns the whole answer."""
        with self.connect() as s:
            with contextlib.suppress(ConnectionError):
                s.sendall(data)
            return drain(s) if read else b""

    def ask(self, path, method="GET", headers=(), body=b"", host=None):
        host = host or "%s:%d" % self.address
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return parse(self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body))

    def counts(self):
        return self.ask("/counts").json

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(l.split()[1]) for l in f if l.startswith("VmRSS"))

    def alive(self):
        return self.process.poll() is None and self.ask("/alive").status == 200

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.stdout.close()


def drain(s):
    out = b""
    with contextlib.suppress(ConnectionError, socket.timeout):
        while piece := s.recv(65536):
            out += piece
    return out


class Answer:
    def __init__(self, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            assert name.lower() not in self.headers, f"{name} is there twice"
            self.headers[name.lower()] = value
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


def parse(data):
    assert data, "no answer"
    head, _, body = data.partition(b"\r\n\r\n")
    return Answer(head, body)


@contextlib.contextmanager
def serving(**options):
    server = Server(**options)
    try:
        yield server
    finally:
        assert server.stop() == 0


@pytest.fixture(scope="module")
def server():
    with serving(tick_ms=0) as s:
        yield s
        assert s.alive()


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\nsecond line\n")
    path.chmod(0o600)
    return path


def bearer(token=TOKEN):
    return [f"Authorization: Bearer {token}"]


def test_get_and_head_have_the_same_headers(server):
    get = server.ask("/tick")
    assert get.status == 200 and len(get.body) == 1024
    for path in ("/tick", "/", "/alive", "/text", "/echo/a"):
        get, head = server.ask(path), server.ask(path, "HEAD")
        assert head.status == 200 and head.body == b""
        assert head.headers["content-length"] == str(len(get.body))
        assert head.headers["content-type"] == get.headers["content-type"]


def test_every_reply_has_the_security_headers(server):
    for path in ("/tick", "/", "/nothing", "/echo/%zz", "/problem/503"):
        for _ in range(2):
            got = server.ask(path).headers
            assert got["x-content-type-options"] == "nosniff"
            assert got["referrer-policy"] == "no-referrer"
            assert got["x-frame-options"] == "DENY"
            assert "cache-control" in got
    policy = server.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_keep_alive_and_pipelined_requests_are_answered_in_order(server):
    head = b"GET /echo/%d HTTP/1.1\r\nHost: localhost\r\n"
    with server.connect() as s:
        s.sendall(b"".join(head % i + b"\r\n" for i in range(20)) + head % 20 +
                  b"Connection: close\r\n\r\n")
        got = drain(s)
    assert [i for i in range(21) if b'"a":"%d"' % i in got] == list(range(21))
    assert got.count(b"HTTP/1.1 200") == 21


def test_an_unchanged_reply_is_304(server):
    for path in ("/tick", "/"):
        first = server.ask(path)
        tag = first.headers["etag"]
        for given in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = server.ask(path, headers=[f"If-None-Match: {given}"])
            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == tag
        assert server.ask(path, headers=['If-None-Match: "other"']).status == 200


def tag(s):
    return s.ask("/tick").headers["etag"]


def test_a_tick_changes_the_etag():
    with serving(tick_ms=50) as s:
        first = tag(s)
        wait(lambda: tag(s) != first)


def test_a_large_answer_is_whole_though_its_reader_is_slow_and_its_tick_over():
    lines = b"".join(b"%06d\n" % i for i in range(400000))
    with serving(tick_ms=50) as s:
        s.ask("/large")  # a second request in the same tick is answered from the cache
        with s.connect() as slow, s.connect() as gone:
            for c in (slow, gone):
                c.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            gone.recv(1000)
            gone.close()
            first = tag(s)
            wait(lambda: tag(s) != first)
            got = parse(drain(slow))
        assert len(got.body) == int(got.headers["content-length"])
        assert got.body.startswith(lines) and got.body[len(lines):].startswith(b"tick ")
        fds = len(os.listdir(f"/proc/{s.process.pid}/fd"))
        for _ in range(12):  # no pages and no descriptors are left behind
            s.ask("/large", method="HEAD")
        assert len(os.listdir(f"/proc/{s.process.pid}/fd")) < fds + 6


def test_gzip_when_it_is_asked_for(server):
    plain = server.ask("/tick")
    for wish in ("gzip", "br, gzip;q=0.5", "*"):
        packed = server.ask("/tick", headers=[f"Accept-Encoding: {wish}"])
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
        assert packed.headers["etag"] != plain.headers["etag"]
        assert "Accept-Encoding" in packed.headers["vary"]
    for wish in ("gzip;q=0", "br", "identity", "", "gzip;q=0, *"):
        assert "content-encoding" not in server.ask("/tick", headers=[f"Accept-Encoding: {wish}"]).headers
    small = server.ask("/text", headers=["Accept-Encoding: gzip"])
    assert "content-encoding" not in small.headers
    same = server.ask("/tick", headers=["Accept-Encoding: gzip",
                                        f"If-None-Match: {packed.headers['etag']}"])
    assert same.status == 304


def test_accept_that_excludes_it_is_406(server):
    for wish in ("text/html", "application/json;q=0", "image/*", "application/json;q=0, */*"):
        for _ in range(2):
            assert server.ask("/tick", headers=[f"Accept: {wish}"]).status == 406, wish
    for wish in ("*/*", "application/*", "text/html, application/json;q=0.1", "text/html, */*;q=0.1", ""):
        assert server.ask("/tick", headers=[f"Accept: {wish}"]).status == 200, wish


def test_a_route_that_chooses_its_type_is_kept_for_each_accept(server):
    for _ in range(2):
        assert server.ask("/text").headers["content-type"].startswith("text/plain")
        other = server.ask("/text", headers=["Accept: application/openmetrics-text"])
        assert other.headers["content-type"].startswith("application/openmetrics-text")
        assert "Accept" in other.headers["vary"].replace("Accept-Encoding", "")


def test_parameters_are_decoded(server):
    got = server.ask("/echo/a%20b/and/%C3%A4?x=1%2B2+3").json
    assert (got["a"], got["b"], got["x"]) == ("a b", "ä", "1+2 3")
    assert server.ask("/rest/a/b/c").json["a"] == "a/b/c"
    assert server.ask("/echo/a?x").json["x"] == ""
    assert server.ask("/echo/a?y=1").json["x"] == "(none)"


def test_request_ids(server):
    assert server.ask("/tick", headers=["X-Request-Id: mine-1"]).headers["x-request-id"] == "mine-1"
    assert server.ask("/nothing", headers=["X-Request-Id: mine-2"]).headers["x-request-id"] == "mine-2"
    for bad in ("a b", "x" * 65, "a\tb", "<script>"):
        assert server.ask("/echo/a", headers=[f"X-Request-Id: {bad}"]).headers["x-request-id"] != bad
    ids = {server.ask("/nothing").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_a_slow_handler_answers_and_clients_may_leave(server):
    assert server.ask("/later").json == {"tries": 3, "memory": "kept"}
    for _ in range(20):  # these clients do not wait for their answer
        server.raw(b"GET /later?tries=5 HTTP/1.1\r\nHost: localhost\r\n\r\n", read=False)
    assert server.ask("/later?tries=9").json["tries"] == 9


def test_unknown_paths_are_404_problems(server):
    for path in ("/nothing", "/tick/", "//tick", "/echo/", "/echo", "/Tick", "/echo/a/and/"):
        got = server.ask(path)
        assert got.status == 404, path
        assert got.headers["content-type"] == "application/problem+json"
        assert got.json["status"] == 404 and got.json["detail"] and got.json["type"]


@pytest.mark.parametrize("path", [
    "/rest/../tick", "/rest/..", "/rest/%2e%2e/tick", "/rest/.%2E", "/rest/./a", "/../../etc/passwd",
    "/echo/a%2Fb", "/echo/%2f..%2f", "/echo/%", "/echo/%4", "/echo/%zz", "/echo/%00", "/echo/a%0ab",
    "/echo/%ff", "/echo/%c0%af", "/echo/a?x=%", "/echo/a?x=%00", "/echo/a?%zz=1",
    "http://localhost/tick", "tick", "*", "/echo/a b",
])
def test_paths_that_cannot_be_read_are_400(server, path):
    assert server.ask(path).status == 400


def test_long_paths_and_queries(server):
    assert server.ask("/echo/" + "a" * 2000).status == 200
    assert server.ask("/echo/" + "%41" * 1000).status == 200
    assert server.ask("/echo/a?" + "&".join(f"p{i}=1" for i in range(100))).status == 400
    assert server.ask("/echo/" + "a" * 20000).status in (400, 414, 431)


def test_wrong_methods_are_405_with_allow(server):
    for path, method, allow in (("/tick", "POST", "GET, HEAD, OPTIONS"), ("/tick", "PATCH", "GET, HEAD, OPTIONS"),
                                ("/change", "GET", "POST, PUT, OPTIONS"), ("/change", "BREW", "POST, PUT, OPTIONS"),
                                ("/echo/a", "DELETE", "GET, HEAD, OPTIONS")):
        got = server.ask(path, method)
        assert (got.status, got.headers["allow"]) == (405, allow)
    got = server.ask("/change", "OPTIONS")
    assert (got.status, got.headers["allow"], got.body) == (204, "POST, PUT, OPTIONS", b"")
    assert server.ask("/nothing", "BREW").status == 404


def post(extra, body=b"{}", path="/open", version="1.1", host="Host: localhost\r\n"):
    return (f"POST {path} HTTP/{version}\r\n{host}Content-Type: application/json\r\n"
            f"{extra}\r\n").encode() + body


SMUGGLED = b"GET /echo/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("extra", [
    "Content-Length: 2\r\nContent-Length: 2\r\n",
    "Content-Length: 2\r\nContent-Length: 40\r\n",
    "Content-Length: 0\r\ncontent-length: 40\r\n",
    "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Content-Length: +2\r\n", "Content-Length: -2\r\n", "Content-Length: 2, 2\r\n", "Content-Length: 0x2\r\n",
    "Content-Length: 2 2\r\n", "Content-Length: \r\n",
])
def test_lengths_that_contradict_are_400_and_end_the_connection(server, extra):
    got = server.raw(post(extra) + SMUGGLED)
    assert parse(got).status == 400
    assert b"smuggled" not in got and b"200 OK" not in got


LENIENT = (  # heads that another program may parse differently
    b"Content-Length : %d\r\n", b"Content-Length\t: %d\r\n", b"X: y\r\nContent-Length: %d\r\n x\r\n",
    b"Content-Length: %d\r\n x\r\n", b"Content-Length: %d\r\n\t\r\n", b"X: a\r\n \r\n",
    b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n", b"Content Length: %d\r\n", b"X(y): %d\r\n",
    b"X: a\0b\r\n", b"X: a\0\0\0b\r\n", b"X: a\0\r\n", b"X\0y: a\r\n", b"X: a\rb\r\n", b"X: a\x01b\r\n", b"X: a\x7f\r\n",
    b"X: a\nY: b\r\n", b"X: a\n", b"X: a\r\n\nY: b\r\n", b": a\r\n", b"X\xe4: a\r\n", b"Accept: a\0b\r\n",
)


@pytest.mark.parametrize("line", LENIENT)
def test_a_head_that_can_be_read_in_two_ways_is_400_and_ends_the_connection(server, line):
    line = line % len(SMUGGLED) if b"%d" in line else line
    for first in (b"POST /open HTTP/1.1\r\n", b"GET /tick HTTP/1.1\r\n"):
        for head in (b"Host: localhost\r\n" + line, line + b"Host: localhost\r\n",
                     b"Host: localhost\r\n" + line + b"Content-Type: application/json\r\n"):
            got = server.raw(first + head + b"\r\n" + SMUGGLED)
            assert parse(got).status == 400 and got.count(b"HTTP/1.1 ") == 1
            assert b"smuggled" not in got and b"\r\nConnection: close\r\n" in got


@pytest.mark.parametrize("head", [
    b"GET /tick HTTP/1.1\nHost: localhost\r\n\r\n", b"GET /tick HTTP/1.1\r\nHost: localhost\r\n\n",
    b"GET /tick HTTP/1.1\nHost: localhost\n\n", b"GET  /tick HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /tick HTTP/1.0\n\n", b"GET /tick HTTP/1.0\r\n\n",
])
def test_lines_of_a_head_end_with_cr_and_lf(server, head):
    got = server.raw(head + SMUGGLED)
    assert parse(got).status == 400 and b"smuggled" not in got


def test_request_headers_in_pieces_or_with_unusual_syntax_are_read(server):
    odd = (b"GET /echo/a?x=1&y HTTP/1.1\r\nHost:\t localhost \t\r\nX:\r\nY: \r\nZ!#$%&'*+-.^_`|~0: \xe4 \t: x\r\n"
           b"Cookie: a=b; c\r\nX: again\r\nConnection: close\r\n\r\n").replace(b" \t\r\nX:", b"\r\nX:")
    assert parse(server.raw(odd)).json["x"] == "1"
    long = odd.replace(b"X: again", b"X: " + b"again" * 800)
    for step in (1, 7, 500):
        with server.connect() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            text = odd if step == 1 else long
            for i in range(0, len(text), step):
                s.sendall(text[i:i + step])
            assert parse(drain(s)).status == 200
    with server.connect() as s:  # libmicrohttpd has already read a part of the next request, and moves it to the front of its buffer
        s.sendall(long.replace(b"Connection: close\r\n", b"") * 5 + odd)
        assert drain(s).count(b"HTTP/1.1 200") == 6


@pytest.mark.parametrize("target", [b"/tick\0/x", b"/tick\0", b"/\0tick", b"/tick\0?x=1", b"/tick?a\0b=1", b"/tick?a=1\0", b"/tick?a=1\0&b=2",
                                    b"/echo/a?\0"])
def test_a_nul_in_the_target_is_400(server, target):
    got = server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLED)
    assert parse(got).status == 400 and b"smuggled" not in got


@pytest.mark.parametrize("target", ["/echo/a?", "/echo/a?&", "/echo/a?x=1&", "/echo/a?x", "/echo/a?x=", "/echo/a?&&x=1", "/echo/a?x==&=", "/echo/a?x+y=%20"])
def test_an_odd_query_is_read(server, target):
    assert server.ask(target).status == 200


def test_request_headers_of_every_length_get_an_answer(server):
    begin = b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for head in (b"X: ", b"X: y\r\n"):
        seen = []
        for n in range(200, 14000, 97):
            fill = head + b"a" * (n - len(head)) + b"\r\n" if head == b"X: " else head * (n // len(head))
            seen.append(parse(server.raw(begin + fill + b"\r\n")).status)
        assert set(seen) == {200, 431} and seen == sorted(seen)


def test_what_the_library_refuses_is_counted():
    with serving(tick_ms=0) as s:
        before = s.counts()
        assert parse(s.raw(b"GET /tick HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n")).status == 431
        assert parse(s.raw(b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n")).status == 414
        assert parse(s.raw(post("Content-Length: -1\r\n"))).status == 400
        assert parse(s.raw(post("Transfer-Encoding: chunked\r\n", b"zz\r\n"))).status == 400
        assert parse(s.raw(b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n")).status == 505
        after = s.counts()
        assert (after["4xx"] - before["4xx"], after["5xx"] - before["5xx"]) == (4, 1)
        assert after["torn"] == before["torn"]


def test_a_get_with_a_body_is_refused(server):
    got = server.raw(b"GET /tick HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED)
    assert parse(got).status == 400 and got.count(b"HTTP/1.1 ") == 1


def test_bodies(server):
    kind = ["Content-Type: application/json; charset=utf-8"]
    assert server.ask("/open", "POST", kind, b"{}").json["size"] == 2
    assert server.ask("/open", "POST", kind, b"x" * 65536).json["size"] == 65536
    assert server.ask("/open", "POST", kind, b"x" * 65537).status == 413
    assert server.ask("/open", "POST").json["size"] == 0
    text = "Content-Type: text/plain"
    for other in ([], [text], ["Content-Type: application/jsonx"], [*kind, text], [text, *kind], [*kind, *kind],
                  ["Content-Type: application/json; charset=utf-16"]):
        assert server.ask("/open", "POST", other, b"{}").status == 415
    assert parse(server.raw(post("Content-Length: 99999999999999999999999\r\n"))).status in (400, 413)
    expect = server.raw(post("Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n"))
    assert b"100 Continue" in expect and b'"size":2' in expect


def test_chunks(server):
    ending = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
    assert b'"size":5' in server.raw(post(ending, b"2\r\n{}\r\n3\r\nabc\r\n0\r\n\r\n"))
    for bad in (b"zz\r\n", b"-1\r\n", b"2\r\n{}x\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n"):
        assert parse(server.raw(post(ending, bad))).status in (400, 413), bad


def test_a_body_of_chunks_that_never_ends_is_413(server):
    before = server.rss_kib()
    with server.connect() as s:
        s.sendall(post("Transfer-Encoding: chunked\r\n", b""))
        got = b""
        try:
            for _ in range(4000):  # 64 MB, if the server accepted them
                s.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            pytest.fail("the server accepted the whole body")
        except ConnectionError:
            got = drain(s)
    assert got == b"" or parse(got).status == 413
    assert parse(server.raw(post("Transfer-Encoding: chunked\r\nConnection: close\r\n",
                                 b"1\r\nx\r\n" * 70000 + b"0\r\n\r\n"))).status == 413
    assert SANITIZED or server.rss_kib() - before < 4096


GARBAGE = (
    b"\0" * 5000, b"\r\n" * 5000, b"GET\r\n\r\n", b"GET /\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 50,
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


def test_garbage_requests_do_not_stop_the_server():
    with serving(header_ms=300, idle_ms=300) as s:
        for data in (*GARBAGE, *(os.urandom(4096) for _ in range(20))):
            got = s.raw(data)
            assert got == b"" or parse(got).status >= 400, data[:40]
        assert s.alive()


def test_huge_headers_are_refused(server):
    before = server.rss_kib()
    for line in (b"X: " + b"a" * (1 << 20), b"\r\n".join(b"X-%d: a" % i for i in range(60000)),
                 b"a" * (1 << 20)):
        got = server.raw(b"GET /tick HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
        assert got == b"" or parse(got).status in (400, 413, 431)
    got = server.ask("/tick", headers=["Cookie: " + "c" * 3000])
    assert got.status == 200
    assert SANITIZED or server.rss_kib() - before < 4096


def test_only_configured_or_local_host_headers_are_accepted():
    with serving(hosts="gpu.example,other.example") as s:
        port = s.address[1]
        for good in ("localhost", f"localhost:{port}", "LOCALHOST", "127.0.0.1", "[::1]:80", "127.1.2.3",
                     "gpu.example", "GPU.example:1", "other.example"):
            for path in ("/tick", "/echo/a"):
                assert s.ask(path, host=good).status == 200, good
        for bad in ("evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", "xgpu.example"):
            for path in ("/tick", "/echo/a"):
                got = s.ask(path, host=bad)
                assert got.status == 421 and "service.hosts" in got.json["remedy"], bad
        for bad in ("a b", "localhost:99999", "localhost:x", "[::1", "[zz]", "a/b", "user@localhost"):
            assert s.ask("/tick", host=bad).status == 400, bad
        assert parse(s.raw(b"GET /tick HTTP/1.1\r\nConnection: close\r\n\r\n")).status == 400
        assert parse(s.raw(b"GET /tick HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n")).status == 400
        assert parse(s.raw(b"GET /tick HTTP/1.0\r\n\r\n")).status == 200


def test_without_a_token_nothing_can_be_changed(server):
    got = server.ask("/change", "POST")
    assert got.status == 403 and "token_file" in got.json["remedy"]
    assert server.ask("/tick", headers=bearer()).status == 401


def test_a_valid_token_is_accepted_and_others_are_refused(token):
    with serving(token=token) as s:
        got = s.ask("/change", "POST")
        assert got.status == 401 and got.headers["www-authenticate"].startswith("Bearer")
        got = s.ask("/change", "POST", bearer())
        assert got.status == 200 and (got.json["who"], got.json["uid"]) == ("token", -1)
        for bad in (TOKEN + "x", TOKEN[:-1], "", "second line"):
            assert s.ask("/tick", headers=bearer(bad)).status == 401
        assert s.ask("/tick", headers=["Authorization: Basic eDp5"]).status == 401
        assert s.ask("/tick").status == 200
        token.write_text("another-token-of-some-length\n")
        s.process.send_signal(signal.SIGHUP)
        assert s.process.stdout.readline().startswith("reload: 0")
        assert s.ask("/change", "POST", bearer()).status == 401
        assert s.ask("/change", "POST", bearer("another-token-of-some-length")).status == 200
        token.write_text("short")
        s.process.send_signal(signal.SIGHUP)
        assert "shorter than 16" in s.process.stdout.readline()
        assert s.ask("/change", "POST", bearer("another-token-of-some-length")).status == 200
        token.unlink()
        for said in ("reload: 0 service.token_file is no longer set", "reload: 0 \n"):  # once
            s.process.send_signal(signal.SIGHUP)
            assert s.process.stdout.readline().startswith(said)
        assert s.ask("/change", "POST", bearer("another-token-of-some-length")).status == 401
        assert s.ask("/change", "POST").status == 403


def test_guessing_tokens_is_slowed(token):
    with serving(token=token) as s:
        seen = [s.ask("/tick", headers=bearer("x" * 20)) for _ in range(12)]
        assert [a.status for a in seen] == [401] * 10 + [429] * 2
        assert int(seen[-1].headers["retry-after"]) > 0
        assert s.ask("/change", "POST", bearer()).status == 200  # the owner is not locked out
        assert s.ask("/tick", headers=bearer("x" * 20)).status == 429
        assert s.ask("/tick").status == 200


def test_a_page_of_another_origin_may_not_send_anything_but_get(server):
    """This also holds without a token: the route /open needs none."""
    host, port = server.address
    body, kind = b"{}", "Content-Type: application/json"
    for origin, status in ((f"http://{host}:{port}", 200), ("null", 403), (f"http://{host}:{port + 1}", 403),
                           (f"http://{host}", 403), ("https://evil.example", 403), ("", 403),
                           (f"file://{host}:{port}", 403), (f"://{host}:{port}", 403)):
        assert server.ask("/open", "POST", [kind, f"Origin: {origin}"], body).status == status, origin
    twice = [kind, "Origin: https://evil.example", f"Origin: http://{host}:{port}"]
    assert server.ask("/open", "POST", twice, body).status == 400
    assert server.ask("/tick", headers=["Origin: null"]).status == 200


def test_two_idempotency_keys_are_refused(server):
    keys = ["Idempotency-Key: a", "idempotency-key: b"]
    for headers, status in ((keys[:1], 200), (keys, 400), (keys[:1] * 2, 400)):
        got = server.ask("/open", "POST", ["Content-Type: application/json", *headers], b"{}")
        assert got.status == status, headers
    assert b"Idempotency-Key occurs twice" in got.body


def test_other_origins_may_not_change_anything(token):
    with serving(token=token, origins="https://dash.example") as s:
        own = "http://%s:%d" % s.address
        for origin, status in ((own, 200), ("https://dash.example", 200), ("https://evil.example", 403), ("null", 403)):
            got = s.ask("/change", "POST", bearer() + [f"Origin: {origin}"])
            assert got.status == status, origin
        allowed = "access-control-allow-origin"
        assert s.ask("/tick", headers=["Origin: https://dash.example"]).headers[allowed] == "https://dash.example"
        assert allowed not in s.ask("/tick", headers=["Origin: https://evil.example"]).headers
        assert "Origin" in s.ask("/tick").headers["vary"]
        ask = ["Access-Control-Request-Method: POST"]
        got = s.ask("/change", "OPTIONS", ask + ["Origin: https://dash.example"])
        assert got.status == 204 and "POST" in got.headers["access-control-allow-methods"]
        assert allowed not in s.ask("/change", "OPTIONS", ask + ["Origin: https://evil.example"]).headers
    with serving() as s:
        assert allowed not in s.ask("/tick", headers=["Origin: https://dash.example"]).headers


def test_a_unix_socket_knows_the_user_of_its_client(tmp_path):
    path = tmp_path / "socket"
    with serving(listen=f"unix:{path}") as s:
        assert s.lines == [f"unix:{path}"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as c:
            c.settimeout(TIMEOUT)
            c.connect(str(path))
            c.sendall(post("Content-Length: 2\r\nConnection: close\r\n", path="/change", host="Host: any\r\n"))
            got = parse(drain(c)).json
            assert (got["who"], got["uid"]) == (f"uid {os.geteuid()}", os.geteuid())
        second = Server(listen=f"unix:{path}")
        assert second.process.wait(TIMEOUT) == 2 and "another program uses this socket" in second.lines[0]
        second.process.stdout.close()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as left:  # as after a crash
        left.bind(str(path))
    with serving(listen=f"unix:{path}"):
        pass
    path.write_text("precious")
    refused = Server(listen=f"unix:{path}")
    assert refused.process.wait(TIMEOUT) == 2 and "not a socket" in refused.lines[0]
    refused.process.stdout.close()
    assert path.read_text() == "precious"


def test_a_service_does_not_remove_the_unix_socket_of_another(tmp_path):
    path = tmp_path / "socket"
    with contextlib.ExitStack() as second:
        with serving(listen=f"unix:{path}"):
            path.unlink()
            second.enter_context(serving(listen=f"unix:{path}"))
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(path))
    assert not path.exists()


@pytest.fixture
def certificate(tmp_path):
    return support.make_certificate(tmp_path)


def ask_tls(server, cert, request):
    context = ssl.create_default_context(cafile=cert)
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as s:
        s.sendall(request)
        return parse(drain(s))


def test_tls(certificate, token):
    cert, key = certificate
    request = b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(cert=cert, key=key) as s:
        assert s.lines[0].startswith("https://")
        assert len(ask_tls(s, cert, request).body) == 1024
        got = s.raw(request)  # without TLS
        assert b"200" not in got
        with s.connect():  # a client without a handshake
            assert ask_tls(s, cert, request).status == 200
    with serving(listen="0.0.0.0:0", cert=cert, key=key, token=token) as s:
        assert ask_tls(s, cert, request).status == 200


def test_a_new_certificate_is_used_after_a_reload(certificate, tmp_path):
    cert, key = certificate
    request = b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    old = tmp_path / "old.pem"
    shutil.copy(cert, old)
    with serving(cert=cert, key=key) as s, follow_tls(s, old):
        support.make_certificate(tmp_path)
        s.process.send_signal(signal.SIGHUP)
        assert s.process.stdout.readline().startswith("reload: 0")
        assert ask_tls(s, cert, request).status == 200
        with pytest.raises(ssl.SSLError):
            ask_tls(s, old, request)
        good = cert.read_text()
        cert.write_text("no certificate\n")
        s.process.send_signal(signal.SIGHUP)
        assert "certificate" in s.process.stdout.readline()
        (tmp_path / "good.pem").write_text(good)
        assert ask_tls(s, tmp_path / "good.pem", request).status == 200


@contextlib.contextmanager
def follow_tls(server, cert):
    context = ssl.create_default_context(cafile=cert)
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as s:
        s.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        events(s, b"event: tick")
        yield s


def test_a_socket_that_is_given_is_used():
    with socket.create_server(("127.0.0.1", 0)) as given:
        with serving(pass_fds=[given.fileno()], fd=given.fileno()) as s:
            assert s.address == given.getsockname()
            assert s.alive()
    with socket.socket() as given:  # this socket does not listen
        s = Server(pass_fds=[given.fileno()], fd=given.fileno())
        assert s.process.wait(TIMEOUT) == 2 and "not a listening socket" in s.lines[0]
        s.process.stdout.close()
    with socket.create_server(("0.0.0.0", 0)) as given:
        s = Server(pass_fds=[given.fileno()], fd=given.fileno())
        assert s.process.wait(TIMEOUT) == 2 and "service.insecure" in s.lines[0]
        s.process.stdout.close()


def test_every_answer_is_logged():
    with serving(log=1, tick_ms=0) as s:
        for path, line in (("/tick", "log: 200 /tick anyone - 1024 ok\n"), ("/tick", "log: 200 /tick anyone - 1024 ok\n"),
                           ("/no%20thing", "log: 404 /no thing anyone - ")):
            s.ask(path)
            assert s.process.stdout.readline().startswith(line)


def test_a_token_does_not_change_the_content_of_a_reply(token):
    with serving(token=token, tick_ms=0) as s:
        for _ in range(2):
            tags = {s.ask("/tick", headers=h).headers["etag"]
                    for h in ((), bearer(), ["X-Request-Id: a"], ["Origin: http://x.example"])}
            assert len(tags) == 1
        assert s.ask("/tick", headers=bearer() + ["Accept: text/html"]).status == 406


def refused(**options):
    s = Server(**options)
    assert s.process.wait(TIMEOUT) == 2
    s.process.stdout.close()
    return s.lines[0]


def test_what_is_not_safe_or_not_possible_is_refused_with_a_sentence(server, token, certificate, tmp_path):
    cert, key = certificate
    for options in ({}, {"token": token}, {"cert": cert, "key": key}):
        text = refused(listen="0.0.0.0:0", **options)
        assert "0.0.0.0" in text and "service.insecure" in text and "token_file" in text and "tls_cert" in text
    with serving(listen="0.0.0.0:0", insecure=1) as s:
        assert s.address[0] == "0.0.0.0"
    text = refused(listen="%s:%d" % server.address)
    assert "%s:%d" % server.address in text and "another program uses this port" in text
    assert "HOST:PORT" in refused(listen="9490")
    assert "does not have that address" in refused(listen="203.0.113.7:9490", insecure=1)
    token.chmod(0o644)
    assert "other users can read" in refused(token=token)
    assert "absent" in refused(token=tmp_path / "absent")
    assert "must both be set" in refused(cert=cert)
    assert "certificate" in refused(cert=key, key=key)


def test_a_client_that_sends_byte_by_byte_is_cut_and_others_are_served():
    with serving(header_ms=700, body_ms=700, idle_ms=1000) as s:
        drips = [s.connect() for _ in range(200)]
        for i, d in enumerate(drips):
            d.sendall(b"GET /tick HTTP/1.1\r\n" if i % 2 else post("Content-Length: 50\r\n", b""))
        cut = set()

        def drip():
            for i, d in enumerate(drips):
                if i in cut:
                    continue
                try:
                    d.send(b"X" if i % 2 == 0 else b"X-A: b\r\n")
                except ConnectionError:
                    cut.add(i)
            assert s.ask("/alive").status == 200
            return len(cut) == len(drips)
        wait(drip, "the end of all these connections")
        for d in drips:
            d.close()
        assert s.counts()["timeouts"] >= 200


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_client_that_never_ends_the_handshake_is_cut_and_costs_little(certificate):
    cert, key = certificate
    request = b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(cert=cert, key=key, header_ms=2000, tick_ms=50) as s:
        before = cpu_seconds(s)
        half = [s.connect() for _ in range(50)]
        for c in half:
            c.sendall(bytes.fromhex("16030102000100"))  # the beginning of a TLS ClientHello
        first = ask_tls(s, cert, request)
        end = time.monotonic() + TIMEOUT
        while ask_tls(s, cert, request).body == first.body:
            assert time.monotonic() < end, "other timers wait for ever"
        for c in half:
            assert drain(c) == b"" and time.monotonic() < end, "the connection is still open"
        assert SANITIZED or cpu_seconds(s) - before < 1.5  # a loop without a pause would use two seconds
        for c in half:
            c.close()


def test_an_idle_connection_is_closed_and_a_slow_reader_is_cut():
    with serving(header_ms=500, body_ms=500, idle_ms=500, size=8 << 20) as s:
        with s.connect() as idle, s.connect() as deaf:
            idle.sendall(b"GET /alive HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(b"GET /tick HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert drain(idle).endswith(b"ok\n")
            wait(lambda: s.counts()["connections"] == 1)


IDLE = b"GET /alive HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNUSED = {  # bytes after which a connection stays open but unused, and whether they get an answer
    "silent": (b"", False),
    "half a head": (b"GET /tick HTTP/1.1\r\nHost: lo", False),
    "half a body": (b"POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{", False),
    "idle": (IDLE, True),
}


@pytest.mark.parametrize("unused", UNUSED)
def test_unused_connections_do_not_block_other_clients(unused, tmp_path):
    text, answered = UNUSED[unused]
    with serving(connections=50, streams=0) as s:
        many = []
        for _ in range(120):
            c = s.connect()
            c.sendall(text)
            assert not answered or c.recv(4096)
            many.append(c)
        for path in ("/alive", "/tick", "/echo/a"):
            assert s.ask(path).status == 200
        assert s.counts()["connections"] <= 50 + 8
        for c in many:
            c.close()


def test_the_connection_that_is_idle_longest_is_closed_first():
    with serving(connections=10, streams=10) as s:
        idle = [s.connect() for _ in range(10)]
        for c in idle:
            c.sendall(IDLE)
            assert c.recv(4096)
        idle[0].sendall(IDLE)  # used again, so now the second one is idle for the longest time
        assert idle[0].recv(4096)
        assert s.ask("/tick").status == 200
        assert idle[1].recv(4096) == b""
        idle[0].sendall(IDLE)
        assert idle[0].recv(4096).startswith(b"HTTP/1.1 200")
        for c in idle:
            c.close()


def test_many_connections_at_once_do_not_exceed_the_limit():
    with serving(connections=20, streams=20) as s:
        streams = [follow(s) for _ in range(20)]
        for c in streams:
            events(c, b"retry")
        s.process.send_signal(signal.SIGSTOP)  # so that all are accepted together
        probes = [socket.create_connection(s.address, TIMEOUT, ("127.0.0.2", 0)) for _ in range(19)]  # from another address
        for c in probes:
            c.sendall(b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        s.process.send_signal(signal.SIGCONT)
        assert not [got for got in map(drain, probes) if got.startswith(b"HTTP/1.1 200")]
        for c in streams + probes:
            c.close()


def test_with_all_places_in_use_health_and_the_unix_socket_are_answered(tmp_path):
    with serving(connections=100, streams=100, listen=f"127.0.0.1:0,unix:{tmp_path}/s") as s:
        streams = [follow(s) for _ in range(84)]  # 16 places are kept for the UNIX socket
        for c in streams:
            events(c, b"retry")
        refused = s.ask("/tick")
        assert refused.status == 503 and "service.connections" in refused.json["remedy"]
        for _ in range(20):
            assert s.ask("/alive").status == 200
        probes = [s.connect() for _ in range(30)]  # connections to the health check that send no request
        assert s.ask("/alive").status == 200
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(tmp_path / "s"))
            local.sendall(b"GET /tick HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert parse(drain(local)).status == 200
        for c in streams + probes:
            c.close()
        wait(lambda: s.ask("/tick").status == 200)


def test_three_thousand_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3200:
        pytest.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3200), hard))
    try:
        with serving(connections=1000) as s:
            many = [s.connect() for _ in range(3000)]
            assert s.alive()
            assert s.counts()["connections"] <= 1000 + 64
            if not SANITIZED:
                assert s.rss_kib() < 24 * 1024
            for c in many:
                c.close()
            assert s.alive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def events(sock, until):
    got = b""
    while until not in got:
        piece = sock.recv(65536)
        assert piece, got
        got += piece
    return got


def follow(server, headers=""):
    s = server.connect()
    s.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    return s


def push(server, number, text=b'{"n":1}'):
    got = server.ask(f"/push?id={number}", "POST", ["Content-Type: application/json"], text)
    assert got.status == 202
    return got.json["followers"]


def test_a_stream_can_be_resumed(server):
    with follow(server) as one:
        events(one, b"retry: 2000")
        push(server, 1)
        assert b'event: event\ndata: {"n":1}' in events(one, b"id: 1\n")
        push(server, 2)
        push(server, 3)
        events(one, b"id: 3\n")
    with follow(server, "Last-Event-ID: 1\r\n") as two:
        got = events(two, b"id: 3\n")
        assert b"id: 1\n" not in got and b"id: 2\n" in got
    head = server.ask("/events", "HEAD")
    assert head.status == 200 and head.headers["content-type"].startswith("text/event-stream")
    assert server.ask("/events", headers=["Accept: application/json"]).status == 406


def test_a_client_that_missed_too_much_is_informed(server):
    for i in range(10, 14):
        push(server, i, b'"' + b"x" * 30000 + b'"')
    with follow(server, "Last-Event-ID: 9\r\n") as s:
        got = events(s, b"id: 13\n")
        assert b"event: gap\n" in got and b"id: 10\n" not in got


def test_streams_have_their_own_limit_and_beat():
    with serving(streams=3, beat_ms=100, tick_ms=0) as s:
        open_ = [follow(s) for _ in range(3)]
        for c in open_:
            events(c, b"\r\n:\n\n\r\n")
        got = s.ask("/events")
        assert got.status == 503 and "retry-after" in got.headers
        for c in open_:
            c.close()
        wait(lambda: s.counts()["streams"] == 0)


def test_a_follower_that_does_not_read_is_cut():
    with serving(beat_ms=200, tick_ms=0) as s:
        with follow(s) as deaf, follow(s) as well:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            before = s.rss_kib()
            for i in range(1, 200):
                push(s, i, b'"' + b"x" * 20000 + b'"')
                events(well, b"id: %d\n" % i)
            if not SANITIZED:
                assert s.rss_kib() - before < 2048

            def cut(number=iter(range(200, 100000))):
                push(s, i := next(number))
                events(well, b"id: %d\n" % i)
                return s.counts()["streams"] == 1
            wait(cut)


def test_the_server_stops_without_waiting_for_clients():
    with serving(tick_ms=0) as s:
        held = [follow(s) for _ in range(20)]
        waiting = [s.connect() for _ in range(20)]
        for c in waiting:
            c.sendall(b"GET /later?tries=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait(lambda: s.counts()["streams"] == 20)
    for c in held + waiting:
        c.close()
