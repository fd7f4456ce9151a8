"""Tests that texts of a hostile service do not reach the terminal as control characters.

A server stands between the program and a real service, and adds an escape sequence to the texts of each reply.
"""
import hashlib
import http.server
import json
import re
import threading

import pytest
import requests

import support
from fake_prometheus import FakePrometheus, nodes
from guarded import Guarded, configure
from worker import GIB, Contender, Worker, World

POISON = "\x1b]0;x\x07\x9b31m\x7f\u202e"
SHOWN = "?]0;x??31m??"  # the escape sequence after utf8_clean()
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# A program decides by words, numbers and ids. The mode "texts" leaves these as they are, so that the program does not
# end before it prints the other texts.
WORD = re.compile(r"[\w.:/+-]*")
NAMES = {"name", "namespace", "user", "label", "set_by", "requested_by", "command", "part", "level", "hold", "rail", "model"}


def poisoned(value, mode, key=None):
    if isinstance(value, dict):
        return {k: poisoned(v, mode, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, mode, key) for v in value]
    if not isinstance(value, str) or (mode == "texts" and WORD.fullmatch(value) and key not in NAMES):
        return value
    return value + POISON


class Liar:
    """Forwards each request to a service and adds POISON to texts of the reply: to all ("all"), or to all except words ("texts")."""

    def __init__(self, service, mode):
        self.asked = []
        liar = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k: v for k, v in self.headers.items() if k not in ("Host", "Connection")}
                liar.asked.append(f"{self.command} {self.path}")
                got = requests.request(self.command, service.url + self.path, data=body, headers=headers, timeout=support.TIMEOUT)
                data = got.content
                if data and "json" in got.headers.get("Content-Type", ""):
                    data = json.dumps(poisoned(got.json(), mode), ensure_ascii=False).encode()
                elif data:
                    data = data.replace(b"\n", POISON.encode() + b"\n")
                self.send_response(got.status_code)
                self.send_header("Content-Type", got.headers.get("Content-Type", "text/plain"))
                if got.status_code != 204:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def real(tmp_path_factory):
    """A service with an evicted worker, a contender, a hold, a mode that was set, and a reservation."""
    path = tmp_path_factory.mktemp("real")
    world = World(path)
    with Worker(world) as worker, Guarded(world, configure(("ollama", worker))) as s:
        s.world = world
        s.settled()
        s.guard("hold", "evicted", "ollama", "--forever", "--reason", "maintenance")
        s.until("evicted")
        s.guard("mode", "dry-run")
        s.reserve(GIB)
        with Contender(world, GIB) as contender:
            s.wait(lambda: contender.pid in s.classes())
            yield s


COMMANDS = [line.split() for line in """
guard status
guard status ollama
guard status nothing
guard explain
guard explain ollama
guard history
guard history ollama
guard evict ollama
guard evict all
guard resume ollama --now
guard release ollama
guard hold evicted ollama --for 60
guard hold active ollama --for 60
guard hold active all --forever
guard snooze 30s
guard pause --for 30s
guard clear 0
guard clear 99
guard mode
guard mode enforce
guard mode config
guard game start --pid 1 --for 10s
guard game end --pid 1
guard learn --for 1s
run --vram 1G -- true
run --vram 999G -- true
jobs
jobs --running
snapshot -v
measure --service -- true
measure --clean-room -- true
doctor
""".strip().splitlines()]
IN_JSON = ["guard status", "guard explain", "guard history", "guard mode", "guard evict", "jobs", "snapshot", "measure --service"]


@pytest.mark.parametrize("mode", ["all", "texts"])
def test_no_control_character_of_a_reply_is_printed(real, tmp_path, mode):
    with Liar(real, mode) as liar:
        env = support.environment(HOME=tmp_path, GPUWARD_ADDRESS=liar.url, GPUWARD_TOKEN_FILE=real.token_file,
                                  GPUWARD_SIM=real.world.scenario, GPUWARD_PUSH_URL="http://127.0.0.1:9/x")
        shown = set()
        for command in COMMANDS:
            done = support.gpuward(*command, env=env, cwd=tmp_path)
            name = " ".join(command)
            assert liar.asked, name
            liar.asked.clear()
            assert not CONTROL.search(done.stdout + done.stderr), (name, done.stdout, done.stderr)
            assert "(null)" not in done.stdout + done.stderr, (name, done.stdout, done.stderr)
            if SHOWN in done.stdout + done.stderr:
                shown.add(" ".join(command[:2]))
            if any(name.startswith(words) for words in IN_JSON):
                done = support.gpuward(*command[:1], "--json", *command[1:], env=env, cwd=tmp_path)
                assert not CONTROL.search(done.stdout + done.stderr), (name, done.stdout)
                if done.stdout:
                    json.loads(done.stdout)
        assert not {"guard status", "guard explain", "guard clear", "guard mode", "guard evict", "jobs", "measure --service"} - shown


@pytest.mark.parametrize("reply", ["{}", '{"workers": [{}], "decisions": [{}], "workloads": [{}], "devices": [{}], "gpus": [{}]}'])
def test_a_reply_without_texts_is_readable(tmp_path, reply):
    """Each text can be missing."""
    class Empty:
        url = "http://127.0.0.1:9"
    body = json.dumps({"schema_version": 1, **json.loads(reply)}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *args):
            pass
    with Liar(Empty, "all") as liar:
        liar.server.RequestHandlerClass = Handler
        (tmp_path / "token").write_text("x")
        env = support.environment(HOME=tmp_path, GPUWARD_ADDRESS=liar.url, GPUWARD_TOKEN_FILE=tmp_path / "token", GPUWARD_SIM="demo")
        for command in COMMANDS:
            done = support.gpuward(*command, env=env, cwd=tmp_path)
            assert done.returncode >= 0 and "(null)" not in done.stdout + done.stderr, (command, done)


def test_top_shows_no_control_character_of_a_reply(real, tmp_path):
    with Liar(real, "texts") as liar:
        top = support.Terminal(160, "top", "--address", liar.url, HOME=tmp_path)
        out = top.read(until=b"?]0;x??31m??")
        top.write(b"q")
        rest, code = top.end()
        assert code == support.OK and not re.search("[\x07\x7f-\x9f\u202e]|\x1b\\]", out + rest), out + rest


def test_no_control_character_of_prometheus_is_printed():
    for keep in ((), ("__name__", "direction", "instance", "reason")):
        rows = {key: [({k: v if k in keep else v + POISON for k, v in labels.items()}, value) for labels, value in all_rows]
                for key, all_rows in {**nodes(cluster="c"), "attention": [({"instance": "n1", "uuid": "u", "reason": "hot", "state": "lost"}, 3)],
                                      "idle": [({"instance": "n1"}, 2)]}.items()}
        with FakePrometheus(rows) as prometheus:
            for fault in (None, (400, "application/json", json.dumps({"status": "error", "error": POISON}).encode()),
                          (200, "text/html", POISON.encode()), (500, "text/plain", POISON.encode())):
                prometheus.more = {"warnings": [POISON]}
                prometheus.fault = lambda query: fault  # pylint: disable=cell-var-from-loop
                for options in ([], ["--fits", "1G"], ["--json"]):
                    done = support.gpuward("fleet", "--prometheus", prometheus.url, *options)
                    out = done.stdout.replace("\\u", "") + done.stderr
                    assert not CONTROL.search(out), (options, fault, out)


# ---- files

MARKUP = POISON + "<script>alert(1)</script>\"'&\\]]>"
ON_RESULTS = [line.split() for line in """
compare A B
compare -v A B
compare A
compare --format=markdown A B
compare --format=csv A B
compare --format=latex A B
compare --format=sentence A B
compare --json A B
compare --across-gpus A B
compare --reference=none A B
diff A B
diff --all -v A B
diff --json A B
report A B
report --across-gpus A B
plot A B
plot A
""".strip().splitlines()]


def poisoned_keys(value, key=None):
    """Adds MARKUP to all texts that are not words, and to the names of unknown members."""
    if isinstance(value, dict):
        return {**{k: poisoned_keys(v, k) for k, v in value.items()}, "extra" + MARKUP: MARKUP}
    if isinstance(value, list):
        return [poisoned_keys(v, key) for v in value]
    return value + MARKUP if isinstance(value, str) and (key in NAMES or not WORD.fullmatch(value)) else value


def hostile_results(doc):
    """Returns results in which one text is hostile, then some with all texts hostile."""
    def paths(value, at=()):
        if isinstance(value, str):
            yield at
        elif isinstance(value, (dict, list)):
            for k, v in value.items() if isinstance(value, dict) else enumerate(value):
                yield from paths(v, (*at, k))
    for path in paths(doc):
        copy = json.loads(json.dumps(doc))
        place = copy
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] += MARKUP
        yield path, copy
    yield "texts", poisoned_keys(doc)


def assert_safe(done, what):
    text = done.stdout + done.stderr
    if "<svg" in done.stdout:  # in markup, a change of the direction ends with its element
        assert "<script>alert" not in text and "]]>" not in text, (what, text)
        text = re.sub("[\u061c\u200e-\u200f\u2028-\u202e\u2066-\u2069\r]", "", text)
    assert done.returncode >= 0 and not CONTROL.search(text), (what, CONTROL.search(text), text)


def test_no_control_character_of_a_result_is_printed(tmp_path):
    names = {}
    for name in "AB":
        names[name] = tmp_path / f"{name}.json"
        done = support.gpuward("measure", "--simulate=two-gpus", "--trials=2", "--no-cooldown", "--label", name, "-o", names[name], "--", "true")
        assert done.returncode in (0, 4), done.stderr
    original = json.loads(names["B"].read_text())
    for where, doc in hostile_results(original):
        names["B"].write_text(json.dumps(doc))
        for command in ON_RESULTS:
            if where == "texts" or command[1:] in (["A", "B"], ["--all", "-v", "A", "B"]):
                assert_safe(support.gpuward(*(names.get(w, w) for w in command)), (where, command))


ON_BUNDLES = [line.split() for line in """
recompute BUNDLE
recompute -v BUNDLE
recompute --json BUNDLE
replay BUNDLE
diff BUNDLE OTHER
diff --all BUNDLE OTHER
compare BUNDLE OTHER
report BUNDLE
""".strip().splitlines()]


def seal(bundle):
    """Writes SHA256SUMS again."""
    names = sorted(p.name for p in bundle.iterdir() if p.name != "SHA256SUMS")
    (bundle / "SHA256SUMS").write_text("".join(f"{hashlib.sha256((bundle / n).read_bytes()).hexdigest()}  {n}\n" for n in names))


@pytest.mark.parametrize("result", [True, False])
def test_no_control_character_of_a_bundle_is_printed(tmp_path, result):
    names = {"BUNDLE": tmp_path / "run", "OTHER": tmp_path / "other"}
    for path in names.values():
        done = support.gpuward("measure", "--simulate=two-gpus", "--label", "a label", "--bundle", path, "--", "true")
        assert done.returncode in (0, 4), done.stderr
        if not result:
            (path / "result.json").unlink()
    bundle = names["BUNDLE"]
    escaped = POISON.replace("\x1b", "\\u001b").replace("\x07", "\\u0007").replace("\x7f", "\\u007f")
    changes = [(p.name, m.span(), p.read_text()) for p in sorted(bundle.iterdir()) if p.suffix in (".toml", ".tsv", ".events")
               for m in re.finditer(r'(?<=")[^"\n]*(?=")' if p.suffix == ".toml" else r"[^\t\n]+", p.read_text())
               if p.suffix != ".events" or m.start() < 300]
    assert len(changes) > 20
    for name, (_, end), text in changes:
        for poison in {escaped, POISON} if name.endswith(".toml") else {POISON}:
            (bundle / name).write_text(text[:end] + poison + text[end:])
            for sealed in (True, False):
                if sealed:
                    seal(bundle)
                for command in ON_BUNDLES if sealed else ON_BUNDLES[:1]:
                    assert_safe(support.gpuward(*(names.get(w, w) for w in command)), (name, text[:end], command))
        (bundle / name).write_text(text)


def test_no_control_character_of_a_recording_is_printed(tmp_path):
    trace = tmp_path / "trace"
    world = World(tmp_path)
    with Worker(world) as worker, Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"')) as s:
        s.settled()
        with Contender(world, 8 * GIB):
            s.until("evicted")
    text = trace.read_text()
    hostile = tmp_path / "hostile"
    plain = support.gpuward("guard", "replay", trace)
    assert plain.returncode == 0 and "sleep" in plain.stdout, plain
    for poison in (POISON, "\x1b]0;x\x07", "\x9b31m"):
        for word in sorted(set(re.findall(r"[^\t\n]+", text)), key=len)[:400]:
            if not re.fullmatch(r"[\d.]+", word):
                hostile.write_text(re.sub(rf"(?<![^\t\n]){re.escape(word)}(?![^\t\n])", lambda m: m[0] + poison, text))
                for options in ([], ["--json"]):
                    assert_safe(support.gpuward("guard", "replay", *options, hostile), (word, options))
    hostile.write_text(text.replace("\tsleep\t", "\tsleep\x1b[31m\t"))  # a name of a process has at most 15 bytes
    done = support.gpuward("guard", "replay", hostile)
    assert_safe(done, "names")
    assert "sleep?[31m" in done.stdout, done
