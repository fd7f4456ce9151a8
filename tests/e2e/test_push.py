"""Tests the push of metrics with a real Prometheus, a real VictoriaMetrics, and receivers that check the protocol or
misbehave."""
import collections
import contextlib
import math
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import threading
import time
import zlib

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

import support
from push_receiver import Receiver
from service import Service
from support import gpuward

INTERVAL = 0.1
TICKS = "gpuward_ticks_total", frozenset()


def config(url, queue, *more):
    lines = ["[service]", 'interval = "0.2s"', "[push]", f'url = "{url}"', f"interval_s = {INTERVAL}", f'queue_dir = "{queue}"']
    return "\n".join([*lines, *more]) + "\n"


@contextlib.contextmanager
def pushing(url, queue, *more, **kw):
    with Service("two-gpus", config=config(url, queue, *more), **kw) as s:
        yield s


def figure(s, name):
    for line in s.get("/metrics").text.splitlines():
        if line.startswith(f"gpuward_push_{name} "):
            return float(line.split()[1])
    return None


def health(s):
    return next(l for l in s.get("/readyz?verbose").text.splitlines() if "] push" in l)


def records(queue):
    """Returns the time of each valid record in the queue's files, which push_queue.c describes."""
    times = []
    for path in sorted(pathlib.Path(queue).glob("*.queue")):
        data, at = path.read_bytes(), 0
        while at + 32 <= len(data):
            magic, crc, n, _, ms = struct.unpack_from("<IIIIQ", data, at)
            if magic != 0x50757747 or zlib.crc32(data[at + 8:at + 32 + n]) != crc:
                break
            times.append(ms)
            at += 32 + n
    return times


# ---- real servers ----

class Engine:
    """Prometheus or VictoriaMetrics. It keeps its port and its folder when it is stopped and started again."""

    def __init__(self, kind, home):
        self.kind, self.home, self.port = kind, home, support.free_port()
        self.program = shutil.which(kind, path="/usr/bin:/bin")
        if not self.program:
            pytest.skip(f"{kind} is not installed")
        self.url = f"http://127.0.0.1:{self.port}/api/v1/write"
        self.child = None
        (home / "prometheus.yml").write_text("global: {}\n")

    def start(self):
        words = {"prometheus": [f"--config.file={self.home}/prometheus.yml", f"--storage.tsdb.path={self.home}/data",
                                f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver"],
                 "victoria-metrics": [f"-storageDataPath={self.home}/data", f"-httpListenAddr=127.0.0.1:{self.port}",
                                      "-search.latencyOffset=0s", "-memory.allowedBytes=67108864"]}
        with (self.home / "log").open("a") as log:
            self.child = subprocess.Popen([self.program, *words[self.kind]], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        ready = {"prometheus": "/-/ready", "victoria-metrics": "/health"}[self.kind]
        support.wait(lambda: requests.get(f"http://127.0.0.1:{self.port}{ready}", timeout=5).ok, "the engine",
                     ignore=(requests.RequestException,))

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(support.TIMEOUT)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *args):
        if self.child.poll() is None:
            self.stop()

    def query(self, text):
        answer = requests.get(f"http://127.0.0.1:{self.port}/api/v1/query", params={"query": text, "nocache": 1}, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def times(self, series="gpuward_up", since="1h"):
        return [round(float(t) * 1000) for r in self.query(f"{series}[{since}]") for t, _ in r["values"]]


def page(s):
    """Returns {series: value} of /metrics; a series is its name and its labels."""
    return {(x.name, frozenset((k, v) for k, v in x.labels.items() if v)): x.value
            for family in text_string_to_metric_families(s.get("/metrics").text) for x in family.samples}


@pytest.fixture(params=["prometheus", "victoria-metrics"])
def engine(request, tmp_path):
    home = tmp_path / "engine"
    home.mkdir()
    with Engine(request.param, home) as e:
        yield e


@pytest.mark.deep
def test_an_engine_has_the_series_and_values_of_the_page_and_they_end_with_the_service(engine, tmp_path):
    ours = {"job": "gpuward", "instance": "node7", "cluster": "west"}
    with pushing(engine.url, tmp_path / "q", 'instance = "node7"', 'labels = ["cluster=west"]') as s:
        s.wait(lambda: figure(s, "last_success_timestamp_seconds"))

        def stored():
            """Returns {series: its values of the last seconds}."""
            out = {}
            for r in engine.query('{job="gpuward"}[10s]'):
                labels = dict(r["metric"])
                assert ours.items() <= labels.items()
                out[labels.pop("__name__"), frozenset(labels.items() - ours.items())] = [float(v) for _, v in r["values"]]
            return out

        def differs():
            """Returns {series: (page, stored)} of values that do not change between two pages and that the engine stored
            differently or not at all. VictoriaMetrics keeps about 12 digits."""
            before = page(s)
            s.wait(lambda: max(stored().get(TICKS, [0])) > before[TICKS])
            got, after = stored(), page(s)
            # the request for the page is itself a connection
            constant = {k for k in before if before[k] == after.get(k) and k[0] != "gpuward_http_connections"}
            assert len(constant) > len(before) / 2
            return {k: (before[k], got.get(k)) for k in constant
                    if not any(math.isclose(v, before[k], rel_tol=1e-10) for v in got.get(k, []))}

        s.wait(lambda: page(s).keys() == stored().keys(), what=lambda: f"only one has: {page(s).keys() ^ stored().keys()}")
        left = differs()

        def equal():
            """An engine may show the new samples of some series later, so each series must be equal at least once."""
            now = differs()
            for k in left.keys() - now.keys():
                del left[k]
            return not left

        s.wait(equal, what=lambda: f"page and engine differ: {left}")
        assert figure(s, "dropped_total") == 0
    # the series are stale; otherwise the last values would stay for five minutes
    support.wait(lambda: engine.query('{job="gpuward"}') == [], "the end of all series")


@pytest.mark.deep
def test_an_outage_with_a_kill_loses_no_record(engine, tmp_path):
    queue = tmp_path / "q"
    with pushing(engine.url, queue) as s:
        s.wait(lambda: figure(s, "sent_total"))
        engine.stop()
        s.wait(lambda: "-" in health(s)[:3])
        s.wait(lambda: len(records(queue)) >= 240)  # an hour of pages at the default interval
        s.stop(signal.SIGKILL)
        made = records(queue)
        s.start()
        s.wait(lambda: len(records(queue)) >= len(made) + 20)
        assert figure(s, "queue_bytes") > 0
        made = records(queue)
        engine.start()
        s.wait(lambda: health(s).endswith("ok"))
        s.wait(lambda: set(made) <= set(engine.times()), what=lambda: f"missing: {set(made) - set(engine.times())}")
        assert figure(s, "failures_total") > 0
        assert figure(s, "dropped_total") == 0


@pytest.mark.deep
def test_a_node_that_was_away_for_a_week_pushes_again(engine, tmp_path):
    """VictoriaMetrics takes the samples of last week. Prometheus refuses them, because it has newer samples. They are
    dropped and reported, and the samples of today arrive."""
    queue, state = tmp_path / "q", tmp_path / "history.db"
    week = support.other_clock("-7d")
    with pushing(engine.url, tmp_path / "other", 'instance = "other"') as other:
        other.wait(lambda: figure(other, "sent_total"))
    engine.stop()
    with pushing(engine.url, queue, state=state, env=week) as s:
        s.wait(lambda: len(records(queue)) >= 10)
        s.stop(signal.SIGKILL)
        made = records(queue)
    assert max(made) < (time.time() - 6 * 86400) * 1000
    engine.start()
    with pushing(engine.url, queue, 'instance = "away"', state=state) as s:
        s.wait(lambda: len(set(engine.times('gpuward_up{instance="away"}'))) >= 5)
        s.wait(lambda: health(s) == "[+] push ok")
        if engine.kind == "prometheus":
            s.wait(lambda: figure(s, "dropped_total") > 0 and "out of bounds" in s.messages())
        else:
            assert figure(s, "dropped_total") == 0
            s.wait(lambda: set(made) <= set(engine.times(since="10d")))

        def energy():  # the energy since the return, less than two H100s at their limit use in an hour
            return engine.query('sum(increase(gpuward_energy_joules_total{instance="away"}[1h]))')
        joules = float(s.wait(energy)[0]["value"][1])
        assert 0 <= joules < 2 * 700 * 3600


def test_records_that_prometheus_has_already_do_not_cost_the_others(tmp_path):
    """The state on disk is older than the state of the server, as after kill -9 between the answer and its record."""
    queue = tmp_path / "q"
    home = tmp_path / "engine"
    home.mkdir()
    with Engine("prometheus", home) as e:
        with pushing(e.url, queue) as s:
            s.wait(lambda: len(set(e.times())) >= 5)
            s.stop(signal.SIGKILL)
            (queue / "state").unlink()
            known = set(e.times())
            s.start()
            s.wait(lambda: len(set(e.times()) - known) >= 5)
            assert "out of order" in s.messages()
            assert known <= set(e.times())


# ---- receivers that check and misbehave ----

def test_retries_keep_every_record_in_order(tmp_path):
    """A server returns errors, garbage or a slow answer. Nothing is lost, and the order stays the same."""
    hold = threading.Event()
    answers = collections.deque([(500, {}, b"oops"), (429, {"Retry-After": "1"}, b"later"), b"\x00garbage\r\n\r\n", b"", (503, {}, b""),
                                 (301, {"Location": "http://127.0.0.1:1/"}, b""), (404, {}, b"no such page"), (401, {}, b"who?")])

    def answer(headers, samples):
        if answers:
            return answers.popleft()
        hold.wait(support.TIMEOUT)
        return 204, {}, b""

    queue = tmp_path / "q"
    with Receiver(answer) as r, pushing(r.url, queue) as s:
        s.wait(lambda: "status 401" in health(s))
        assert "check push.token_file" in health(s)
        s.wait(lambda: not answers and len(r.requests) >= 9)
        # A request hangs: the service answers, and records reach the disk.
        n = len(records(queue))
        s.wait(lambda: len(records(queue)) >= n + 5)
        assert s.get("/readyz").status_code == 200
        made = records(queue)
        hold.set()
        s.wait(lambda: made[-1] in r.times() and health(s) == "[+] push ok")
        assert r.times()[:len(made)] == made
        assert figure(s, "dropped_total") == 0
        assert figure(s, "failures_total") == 8
        log = s.messages()
        assert log.count("samples wait in the queue") == 1 and "accepts samples again" in log


def test_data_that_the_server_refuses_is_dropped_and_named_once(tmp_path):
    """One record is bad: the batch that contains it is sent again record by record, and only the bad one is lost."""
    queue, bad, refused = tmp_path / "q", [], set()

    def answer(headers, samples):
        if not bad:
            return 503, {}, b""
        if bad[0] in {t for _, _, t in samples}:
            refused.add(sum(t == bad[0] for _, _, t in samples))
            return 400, {}, b"sample too old\nand more"
        return 204, {}, b""

    with Receiver(answer) as r, pushing(r.url, queue) as s:
        s.wait(lambda: len(records(queue)) >= 5)
        made = records(queue)
        bad.append(made[1])
        s.wait(lambda: made[-1] in r.times())
        assert [t for t in r.times() if t <= made[-1]] == [t for t in made if t != bad[0]]
        s.wait(lambda: "samples were dropped" in s.messages())
        assert s.messages().count("status 400: sample too old") == 1
        assert {figure(s, "dropped_total")} == refused
        s.wait(lambda: health(s) == "[+] push ok")


@pytest.mark.parametrize("how", ["token", "password"])
def test_a_secret_is_sent_and_read_again_when_it_changes(tmp_path, how):
    secret = tmp_path / "secret"
    secret.write_text("the-old-one\n")
    want = {"token": "Bearer the-new-one", "password": "Basic bWU6dGhlLW5ldy1vbmU="}[how]
    more = [f'token_file = "{secret}"'] if how == "token" else ['user = "me"', f'password_file = "{secret}"']

    def answer(headers, samples):
        return (204, {}, b"") if headers["Authorization"] == want else (401, {}, b"")

    with Receiver(answer) as r, pushing(r.url, tmp_path / "q", *more) as s:
        s.wait(lambda: "status 401" in health(s))
        made = records(tmp_path / "q")
        secret.write_text("the-new-one\n")
        s.wait(lambda: set(made) <= set(r.times()))
        assert "the-old" not in s.messages() + s.get("/readyz?verbose").text
        secret.unlink()
        s.wait(lambda: "cannot be read" in health(s))


def test_a_wrong_certificate_is_refused_and_the_right_one_accepted(tmp_path):
    tls = support.make_certificate(tmp_path)
    with Receiver(tls=tls) as r:
        with pushing(r.url, tmp_path / "q") as s:
            s.wait(lambda: "certificate" in health(s))
            assert not r.requests
            made = records(tmp_path / "q")
        with pushing(r.url, tmp_path / "q", f'ca_file = "{tls[0]}"') as s:
            s.wait(lambda: health(s) == "[+] push ok")
            s.wait(lambda: set(made) <= set(r.times()))  # the records of the first service arrive
            pathlib.Path(tls[0]).unlink()
            os.mkfifo(tls[0])  # libcurl would wait at it for ever
            s.wait(lambda: "is not a regular file" in health(s))


@pytest.fixture
def small_disk(tmp_path):
    where = tmp_path / "disk"
    where.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", where], capture_output=True).returncode:
        pytest.skip("a small file system needs root")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


@pytest.mark.deep
def test_a_full_disk_drops_the_oldest_and_never_stops_the_push(small_disk):
    up = threading.Event()

    def answer(headers, samples):
        return (204, {}, b"") if up.is_set() else (503, {}, b"")

    with Receiver(answer) as r, pushing(r.url, small_disk / "q", 'queue_bytes = "64MiB"') as s:
        s.wait(lambda: figure(s, "dropped_total"))
        assert s.get("/readyz").status_code == 200
        with (small_disk / "full").open("wb") as f, contextlib.suppress(OSError):
            while True:  # fills the disk to the last byte
                f.write(bytes(65536))
                f.flush()
        s.wait(lambda: "No space left" in s.messages())
        up.set()
        s.wait(lambda: figure(s, "queue_bytes") == 0)
        n = len(r.times())
        s.wait(lambda: len(r.times()) >= n + 5)
        times = r.times()
        assert times == sorted(times)


def test_otlp_has_the_metrics_of_the_page(tmp_path):
    partial = threading.Event()

    def answer(headers, metrics):  # partial_success { rejected_data_points: 2, error_message: "no" }
        return 200, {}, b"\x0a\x06\x08\x02\x12\x02no" if partial.is_set() else b""

    with Receiver(answer) as r, pushing(r.url, tmp_path / "q", 'protocol = "otlp"', 'labels = ["cluster=west"]') as s:
        def equal():
            before, r.metrics[:] = page(s), []
            s.wait(lambda: [m for m in r.metrics if m[1] == "process_threads"])  # the page is complete
            got = {(name, frozenset(labels.items())): value
                   for _, name, _, _, points in list(r.metrics) for labels, value, _, _ in points}
            after = page(s)
            constant = {k for k in before if before[k] == after.get(k) and k[0] != "gpuward_http_connections"}
            measured = any(name == "gpuward_energy_joules_total" for name, _ in got)  # absent until energy was measured
            return measured and before.keys() == after.keys() == got.keys() and all(got[k] == before[k] for k in constant)

        s.wait(equal)
        resource, _, kind, unit, _ = next(m for m in r.metrics if m[1] == "gpuward_energy_joules_total")
        assert (resource["service.name"], resource["cluster"], kind, unit) == ("gpuward", "west", "sum", "J")
        assert resource["host.name"] == os.uname().nodename == resource["service.instance.id"]
        assert {m[2] for m in r.metrics if m[1] == "gpuward_gpu_power_watts"} == {"gauge"}
        assert figure(s, "dropped_total") == 0
        partial.set()
        s.wait(lambda: (figure(s, "dropped_total") or 0) >= 4)
        s.wait(lambda: "the server rejected 2 of" in s.messages())
    resource, name, _, _, points = r.metrics[-1]
    assert {value for _, value, _, _ in points} == {None}  # the last message only ends the series


def test_a_reload_starts_changes_and_stops_the_push(tmp_path):
    with Receiver() as one, Receiver() as two, Service("two-gpus", config="") as s:
        assert figure(s, "sent_total") is None
        for r in (one, two):
            pathlib.Path(s.config).write_text(config(r.url, tmp_path / "q"))
            s.child.send_signal(signal.SIGHUP)
            s.wait(lambda: len(r.times()) >= 3)
        pathlib.Path(s.config).write_text("")
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: figure(s, "sent_total") is None)
        assert one.times()[0] < two.times()[0]


def test_a_reload_does_not_wait_for_a_server_that_hangs(tmp_path):
    """Until the old request ends, the service reads the GPUs and answers requests."""
    begun, end = threading.Event(), threading.Event()

    def answer(headers, samples):
        begun.set()
        end.wait(support.TIMEOUT)
        return b""

    def is_connected():
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(row[1].endswith(f":{hangs.port:04X}") and row[3] == "01" for row in rows)

    def ticks():
        return s.get("/api/v1/self").json()["ticks"]

    queue = tmp_path / "q"
    with Receiver() as good, Receiver(answer) as hangs, pushing(hangs.url, queue) as s:
        s.wait(lambda: begun.is_set() and len(records(queue)) >= 3)
        made = records(queue)
        assert is_connected()
        pathlib.Path(s.config).write_text(config(good.url, queue, 'labels = ["cluster=west"]'))
        before = ticks()
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: not is_connected())
        assert ticks() >= before + 3 and "the configuration was reloaded" in s.messages()
        s.wait(lambda: set(made) <= set(good.times()) and health(s) == "[+] push ok")
        s.wait(lambda: [l for l, _, _ in list(good.samples) if l.get("cluster") == "west"])
        times = good.times()
        assert times == sorted(times)
        assert figure(s, "dropped_total") == 0
        end.set()


def test_a_deleted_queue_folder_is_reported_and_made_again(tmp_path):
    queue = tmp_path / "q"
    up = threading.Event()
    up.set()

    def answer(headers, samples):
        return (204, {}, b"") if up.is_set() else (503, {}, b"")

    with Receiver(answer) as r, pushing(r.url, queue) as s:
        s.wait(lambda: len(r.times()) >= 2)
        shutil.rmtree(queue)
        queue.write_text("now a file\n")
        s.wait(lambda: "the queue cannot take records" in health(s))
        assert health(s).startswith(f"[-] push the queue cannot take records: {queue}")
        assert "set push.queue_dir to another folder" in health(s)
        n = len(r.times())
        s.wait(lambda: len(r.times()) >= n + 3)  # a server that answers still gets everything
        up.clear()
        s.wait(lambda: "status 503" in health(s) and "the queue cannot take records" in health(s))
        up.set()
        queue.unlink()
        s.wait(lambda: health(s) == "[+] push ok" and records(queue))
        assert s.messages().count("the queue cannot take records") == 1
        assert "push: the queue takes records again" in s.messages()
        up.clear()
        s.wait(lambda: len(records(queue)) >= 5)
        shutil.rmtree(queue)
        s.wait(lambda: "of the push queue was deleted or replaced; gpuward made it again" in s.messages())
        s.wait(lambda: len(records(queue)) >= 5)
        made = records(queue)
        up.set()
        s.wait(lambda: set(made) <= set(r.times()))
        assert figure(s, "dropped_total") > 0


def test_strange_files_in_the_queue_folder_are_named_and_do_not_delay(tmp_path):
    queue = tmp_path / "q"
    queue.mkdir()
    os.mkfifo(queue / "0000000000000001.queue")
    with (queue / "0000000000000002.queue").open("wb") as f:
        f.truncate(1 << 40)
    (queue / "0000000000000003.queue").write_bytes(b"garbage" * 100)
    with Receiver() as r, pushing(r.url, queue) as s:
        s.wait(lambda: len(r.times()) >= 3)
        log = s.messages()
        assert f"{queue}/0000000000000001.queue is not a file of the push queue (it is not a regular file) and is ignored" in log
        assert f"{queue}/0000000000000002.queue is not a file of the push queue (it is too large) and is ignored" in log
        assert f"700 bytes of {queue}/0000000000000003.queue are damaged" in log
        s.wait(lambda: figure(s, "queue_bytes") == 0)
        assert s.stop() == 0
    assert (queue / "0000000000000001.queue").is_fifo() and (queue / "0000000000000002.queue").stat().st_size == 1 << 40


def test_two_services_do_not_share_a_queue(tmp_path):
    with Receiver() as r, pushing(r.url, tmp_path / "q"), pushing(r.url, tmp_path / "q") as second:
        second.wait(lambda: "another process uses the push queue" in health(second))
        assert "set push.queue_dir to another folder; nothing is pushed until then" in health(second)
        second.wait(lambda: figure(second, "dropped_total"))
        assert second.messages().count("another process uses the push queue") == 1
        assert figure(second, "sent_total") == 0
    with Receiver() as r, pushing(r.url, tmp_path / "q") as first, pushing(r.url, tmp_path / "q") as second:
        first.stop()
        second.wait(lambda: health(second) == "[+] push ok")  # the queue is free now


def test_doctor_says_whether_the_push_works(tmp_path):
    up = threading.Event()

    def answer(headers, samples):
        return (204, {}, b"") if up.is_set() else (401, {}, b"")

    def doctor():
        return " ".join(gpuward("doctor", "--simulate=two-gpus", env=env).stdout.split())

    env = support.environment(GPUWARD_CONFIG_ROOT=tmp_path, HOME=tmp_path)
    file = tmp_path / "etc" / "gpuward" / "gpuward.toml"
    file.parent.mkdir(parents=True)
    with Receiver(answer) as r, pushing(r.url, tmp_path / "q") as s:
        file.write_text(config(r.url, tmp_path / "q").replace("[service]", f'[service]\nlisten = ["{s.url[7:]}"]'))
        s.wait(lambda: "status 401" in health(s))
        assert f"PROBLEM push of metrics: {r.url}: the server refuses the request with status 401" in doctor()
        assert "Nothing to fix" not in doctor()
        up.set()
        s.wait(lambda: health(s) == "[+] push ok")
        assert "ok push of metrics: ok" in doctor()
    assert "not checked, because the service does not answer" in doctor()


@pytest.mark.parametrize("text, sentence", [
    ('url = "prometheus:9090"', "must begin with http:// or https://"),
    ('url = "http://prometheus:9090"', "the path is missing"),
    ('url = "http:///api/v1/write"', "the host is missing"),
    ('url = "http://me:secret@host/api/v1/write"', "it contains a password"),
    ('url = "http://host/a b"', "spaces"),
    ('labels = ["cluster"]', 'a label is written "name=value"'),
    ('labels = ["1a=x"]', "the name of a label must begin with a letter"),
    ('labels = ["__name__=x"]', "the name of a label must begin with a letter"),
    ('labels = ["a-b=x"]', "letters, digits and underscores"),
    ('labels = ["job=x"]', "use the setting of this name"),
    ('user = "me"', "password_file is not"),
    ('token_file = "/x"\nuser = "me"\npassword_file = "/y"', "only one of them"),
    ('protocol = "graphite"', "remote-write"),
    ("interval_s = 0", "0.1"),
    ('ca_file = "/does/not/exist"', "cannot be read"),
    ('ca_file = "/dev/null"', "is not a regular file"),
])
def test_config_check_names_what_is_wrong(tmp_path, text, sentence):
    path = tmp_path / "gpuward.toml"
    path.write_text(f"[push]\n{text}\n")
    r = gpuward("config", "check", "--config", path)
    assert r.returncode != 0
    assert sentence in r.stderr + r.stdout
    assert "secret" not in r.stderr + r.stdout
