"""Tests gpuward fleet and GET /api/v1/fleet with a real Prometheus and a real VictoriaMetrics that scrape simulated
services, and with a fake Prometheus that has faults."""
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.request

import pytest

import engine
import support
from fake_prometheus import GIB, NOW, FakePrometheus, key_of, nodes
from support import FAILED, OK, TOP, USAGE, gpuward, wait

PARTIAL, NO_ROOM = 4, 14
VICTORIA = shutil.which("victoria-metrics", path="/usr/bin:/bin")
GOLDEN = TOP / "tests" / "golden"


def fleet(url, *options, **more):
    return gpuward("fleet", "--prometheus", url, *options, **more)


def fleet_json(url, *options, code=OK):
    got = fleet(url, "--json", *options)
    assert got.returncode == code, got
    document = json.loads(got.stdout)
    support.check("fleet", document)
    return document


@pytest.fixture
def fake():
    with FakePrometheus() as e:
        yield e


# ---- real engines

SCENARIOS = {"a": "two-gpus", "b": "eight-gpus", "c": "lost-gpu"}


def own_figures(address):
    """Power, memory and number of GPUs from the service's own metrics."""
    text = engine.metrics(address)

    def values(name):
        return [float(v) for v in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, flags=re.M)]

    return {"power_watts": sum(values("gpuward_gpu_power_watts")), "memory_total_bytes": sum(values("gpuward_gpu_memory_total_bytes")),
            "memory_used_bytes": sum(values("gpuward_gpu_memory_used_bytes")), "gpus_up": sum(values("gpuward_gpu_up")),
            "available": sorted(values("gpuward_capacity_available_bytes"))}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three simulated nodes: {name: address}."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(engine.serving(tmp_path_factory.mktemp(name), scenario)) for name, scenario in SCENARIOS.items()}


@pytest.fixture(scope="module")
def prometheus_url(cluster, tmp_path_factory):
    home = tmp_path_factory.mktemp("prometheus")
    down = f"127.0.0.1:{support.free_port()}"
    # A second job also scrapes node b, and a target that never answers. There are no recording rules.
    with engine.prometheus(home, cluster, rules=(), jobs=[("twice/gpuward", {"b": cluster["b"], "d": down})]) as ask:
        wait(lambda: len(ask.values("up")) == 5 and len(ask.values("gpuward_up")) == 4, "a scrape by both jobs")
        wait(lambda: len(ask.values("count by (instance) (increase(gpuward_energy_joules_total[1m]) > 0)")) == 3, "energy")
        yield ask.url


def check_nodes(document, cluster):
    found = {n["node"]: n for n in document["nodes"]}
    assert set(found) >= set(cluster)
    for name, address in cluster.items():
        own = own_figures(address)
        assert found[name]["memory_total_bytes"] == own["memory_total_bytes"]
        assert found[name]["power_watts"] == pytest.approx(own["power_watts"], rel=0.5)  # the load moves between the scrapes
        assert found[name]["energy_joules"] > 0
    return found


def test_the_figures_of_a_real_prometheus_are_those_of_the_services(cluster, prometheus_url):
    document = fleet_json(prometheus_url, "--range", "5m")
    found = check_nodes(document, cluster)
    # Node b is scraped by two jobs and counts once; node d is down and its figures are unknown.
    assert found["b"]["gpus"] == 8 and found["b"]["state"] == "ok"
    assert found["d"]["state"] == "down" and found["d"]["gpus"] is None and found["d"]["power_watts"] is None
    assert document["total"]["nodes"] == 4 and document["total"]["nodes_down"] == 1 and document["total"]["gpus"] == 12
    assert document["attention"][0]["node"] == "d" and document["attention"][0]["reason"] == "down"
    assert document["simulated"] is True and document["gpus_simulated"] >= 12 and not document["problems"]
    assert abs(document["engine_clock_ahead_seconds"]) < 30
    total = sum(w["energy_joules"] for w in document["workloads"])
    assert 0 < total <= 1.05 * document["total"]["energy_joules"]
    assert sum(w["share_ratio"] for w in document["workloads"]) == pytest.approx(1, abs=0.02)
    assert document["models"] == []


def test_a_lost_gpu_needs_attention(prometheus_url):
    def lost():
        rows = [a for a in fleet_json(prometheus_url)["attention"] if a["node"] == "c" and a["reason"] == "down"]
        return rows and rows[0]

    row = wait(lost, "the GPU that falls off the bus")  # the scenario repeats this
    assert row["gpu"] == "1" and row["state"] == "lost" and "reset" in row["remedy"]


def test_where_a_job_fits_follows_from_the_services(cluster, prometheus_url):
    best = own_figures(cluster["a"])["available"]
    document = fleet_json(prometheus_url, "--fits", "30G", "--gpus", "2", "--node", "^a$")
    assert len(best) == 2 and [p["node"] for p in document["fits"]["places"]] == ["a"]
    assert sorted(g["available_bytes"] for g in document["fits"]["places"][0]["gpus"]) == best
    nowhere = fleet(prometheus_url, "--fits", "900G")
    assert nowhere.returncode == NO_ROOM and "No node has 900.0 GiB available on 1 GPU." in nowhere.stdout


def test_nodes_and_jobs_are_selected(prometheus_url):
    assert {n["node"] for n in fleet_json(prometheus_url, "--node", "a|b")["nodes"]} == {"a", "b"}
    assert {n["node"] for n in fleet_json(prometheus_url, "--job", "twice/gpuward")["nodes"]} == {"b", "d"}
    got = fleet(prometheus_url, "--node", "(")
    assert got.returncode == FAILED and "missing closing" in got.stderr


def test_the_table_of_a_real_prometheus_names_every_part(prometheus_url):
    text = fleet(prometheus_url, env={"COLUMNS": "80"}).stdout
    for part in ("SIMULATED", "4 nodes (3 up, 1 down)", "NEEDS ATTENTION", "NODES", "WORKLOADS", "gpuward_model_energy_joules_total"):
        assert part in text, text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.deep
def test_victoriametrics_answers_the_same_queries(cluster, tmp_path):
    if not VICTORIA:
        pytest.skip("victoria-metrics is not installed")
    port = support.free_port()
    (tmp_path / "scrape.yml").write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [
        {"job_name": "gpuward", "static_configs": [{"targets": [a], "labels": {"instance": n}} for n, a in cluster.items()]}]}))
    url = f"http://127.0.0.1:{port}"
    with engine.running(tmp_path, VICTORIA, f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={tmp_path / 'data'}",
                        f"-promscrape.config={tmp_path / 'scrape.yml'}", "-search.latencyOffset=0s", "-memory.allowedBytes=200MB"):
        def complete():
            got = fleet(url, "--json", "--range", "5m")
            document = json.loads(got.stdout) if got.returncode == OK else None
            good = document and len(document["nodes"]) == 3 and all(n["energy_joules"] and n["gpus"] for n in document["nodes"])
            return good and document

        document = wait(complete, "three nodes with energy")
        support.check("fleet", document)
        check_nodes(document, cluster)
        assert not document["problems"] and document["total"]["gpus"] == 12


@pytest.mark.deep
def test_a_real_prometheus_keeps_a_pusher_that_is_gone_and_forgets_a_removed_target(cluster, tmp_path):
    pushers = {}
    home = tmp_path / "engine"
    home.mkdir()
    options = ("--web.enable-remote-write-receiver", "--web.enable-lifecycle")
    with engine.prometheus(home, {"a": cluster["a"], "removed": cluster["b"]}, rules=(), options=options) as ask, contextlib.ExitStack() as stack:
        for name in ("killed", "stopped"):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "gpuward.toml").write_text(
                f'[push]\nurl = "{ask.url}/api/v1/write"\ninterval_s = 1\nqueue_dir = "{folder / "queue"}"\ninstance = "{name}"\n')
            processes = pushers[name] = []
            stack.enter_context(engine.serving(folder, "two-gpus", "--config", str(folder / "gpuward.toml"), processes=processes))
        wait(lambda: len(ask.values("count by (instance) (increase(gpuward_energy_joules_total[1m]) > 0)")) == 4, "energy of four nodes")
        assert {n["node"]: n["state"] for n in fleet_json(ask.url)["nodes"]} == dict.fromkeys(["a", "killed", "removed", "stopped"], "ok")
        engine.stop(pushers["stopped"][0])
        settings = json.loads((home / "prometheus.yml").read_text())
        del settings["scrape_configs"][0]["static_configs"][1]
        (home / "prometheus.yml").write_text(json.dumps(settings))
        urllib.request.urlopen(urllib.request.Request(f"{ask.url}/-/reload", method="POST"), timeout=support.TIMEOUT)

        def settled():
            document = fleet_json(ask.url)
            return {n["node"]: n["state"] for n in document["nodes"]} == {"a": "ok", "killed": "ok", "stopped": "gone"} and document

        document = wait(settled, "the nodes after the reload")
        row = next(n for n in document["nodes"] if n["node"] == "stopped")
        assert row["energy_joules"] > 0 and row["power_watts"] is None and document["gpus_simulated"] >= 6
        assert [(a["node"], a["reason"]) for a in document["attention"]] == [("stopped", "gone")]


# ---- the text

def hostile():
    rows = nodes(2)
    evil = "\x1b[31mred\u202e\n<img src=x onerror=alert(1)>"
    rows["targets"].append(({"job": "gpuward", "instance": evil}, 0))
    rows["workloads"].append(({"kind": evil, "namespace": evil, "name": evil}, 9e6))
    rows["model_energy"].append(({"model": evil}, 9))
    rows["attention"] = [({"instance": evil, "uuid": evil, "gpu": evil, "reason": "hot", "state": evil}, 3),
                         ({"instance": "n1", "uuid": "x", "gpu": "0", "reason": "unheard-of"}, 99)]
    return rows


def busy():
    """A fleet with all problems: down and stale nodes, faults, idle GPUs."""
    rows = nodes(4)
    rows["targets"][3] = ({"job": "gpuward", "instance": "n4"}, 0)
    rows["now"] = [r for r in rows["now"] if r[0]["instance"] != "n4"]
    rows["now"] = [(labels, 7) if labels == {"__name__": "gpuward_gpu_up", "instance": "n1"} else (labels, v) for labels, v in rows["now"]]
    rows["age"][2] = ({"job": "gpuward", "instance": "n3"}, 4000)
    rows["down"] = [({"instance": "n1"}, 1)]
    rows["idle"] = [({"instance": "n2"}, 3)]
    rows["idle_watts"] = [({"instance": "n2"}, 360)]
    gpu = {"instance": "n1", "gpu": "5", "uuid": "GPU-n1-5"}
    rows["attention"] = [({**gpu, "reason": "down", "state": "lost"}, 9), ({**gpu, "reason": "quarantine"}, 5),
                         ({"instance": "n2", "gpu": "0", "uuid": "GPU-n2-0", "reason": "ecc"}, 7)]
    rows["workloads"].append(({"kind": "kubernetes", "namespace": "research", "name": "train-0-with-a-name-that-is-very-long"}, 8e6))
    return rows


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_looks_as_expected(columns):
    with FakePrometheus(busy()) as e:
        got = fleet(e.url, env={"COLUMNS": str(columns), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})
        text = got.stdout + fleet(e.url, "--fits", "40G", "--gpus", "2", env={"COLUMNS": str(columns), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}).stdout
    assert got.returncode == OK and max(map(len, text.splitlines())) <= columns
    path = GOLDEN / f"fleet-{columns}.txt"
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_hostile_labels_reach_neither_the_terminal_nor_break_json():
    with FakePrometheus(hostile()) as e:
        text = fleet(e.url, env={"LANG": "C.UTF-8"}).stdout
        assert "\x1b" not in text and "\u202e" not in text and "red" in text
        document = fleet_json(e.url)
    assert any("onerror" in n["node"] for n in document["nodes"])
    assert [a["reason"] for a in document["attention"]] == ["down", "hot"]


def test_lists_are_bounded(fake):
    fake.rows = nodes(50)
    text = fleet(fake.url, "--top", "5").stdout
    assert "45 more nodes are not shown; a larger --top shows them" in text and "n50 " in text and "n1 " not in text
    assert any("topk(7, sum by (kind, namespace, name)" in q for q in fake.queries)
    assert len(fake.queries) <= 15


# ---- what is asked

def test_the_base_path_the_token_and_the_range_are_sent(fake, tmp_path):
    (tmp_path / "token").write_text("s3cret-token\n")
    got = fleet(f"{fake.url}/prometheus/", "--token-file", tmp_path / "token", "--range", "7d", "--job", 'a"b\\c')
    assert got.returncode == OK, got
    assert set(fake.paths) == {"/prometheus/api/v1/query"}
    assert {h["Authorization"] for h in fake.headers} == {"Bearer s3cret-token"}
    assert any("[604800s]" in q for q in fake.queries)
    assert all('job=~"a\\"b\\\\c"' in q for q in fake.queries)


def test_a_token_file_that_is_a_pipe_or_can_be_replaced_is_refused(fake, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = fleet(fake.url, "--token-file", tmp_path / "pipe")  # no program writes to the pipe
    assert got.returncode == FAILED and "pipe is not a regular file" in got.stderr, got
    (tmp_path / "long").write_text("x" * 2000)
    got = fleet(fake.url, "--token-file", tmp_path / "long")
    assert got.returncode == FAILED and "is longer than 1023 characters" in got.stderr and "xxx" not in got.stderr, got
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "token").write_text("s3cret-token\n")
    got = fleet(fake.url, "--token-file", shared / "token")
    assert got.returncode == FAILED and "other users can replace the token file" in got.stderr, got
    assert fake.queries == []


def test_the_configuration_and_the_environment_name_the_engine(fake, tmp_path):
    (tmp_path / "gpuward.toml").write_text(f'[fleet]\nprometheus = "{fake.url}"\njob = "mine"\n')
    folder = tmp_path / "gpuward"
    folder.mkdir()
    (tmp_path / "gpuward.toml").rename(folder / "gpuward.toml")
    assert gpuward("fleet", env={"XDG_CONFIG_HOME": tmp_path}).returncode == OK
    assert 'job=~"mine"' in fake.queries[0]
    assert gpuward("fleet", env={"GPUWARD_FLEET_PROMETHEUS": fake.url}).returncode == OK


@pytest.mark.parametrize("options, words", [
    ((), "the address of Prometheus is missing"),
    (("--prometheus", "prometheus:9090"), "must begin with http://"),
    (("--prometheus", "http://"), "the host is missing"),
    (("--prometheus", "http://me:secret@host"), "contains a password"),
    (("--prometheus", "http://host/?a=b"), "without ? and #"),
    (("--prometheus", "http://host", "--range", "1s"), "from 1m to 31d"),
    (("--prometheus", "http://host", "--fits", "40"), "with its unit, such as 40G"),
    (("--prometheus", "http://host", "--gpus", "2"), "--gpus needs --fits"),
])
def test_wrong_options_get_a_sentence(options, words):
    got = gpuward("fleet", *options)
    assert got.returncode == USAGE and words in got.stderr and "secret" not in got.stderr


# ---- faults of the engine

def test_an_engine_that_is_down_is_named():
    url = f"http://127.0.0.1:{support.free_port()}"
    got = fleet(url)
    assert got.returncode == FAILED and url in got.stderr and "onnect" in got.stderr and got.stdout == ""


def test_a_slow_engine_is_given_up_and_what_is_known_is_shown(fake):
    release = threading.Event()

    def slow(query):
        if key_of(query) == "energy":
            release.wait(support.TIMEOUT)

    fake.fault = slow
    got = fleet(fake.url, "--deadline", "2s")
    document = json.loads(fleet(fake.url, "--deadline", "2s", "--json").stdout)
    release.set()
    assert got.returncode == PARTIAL and "Energy unknown: no answer within 2 s" in got.stdout and "n1" in got.stdout
    assert {p["query"] for p in document["problems"]} == {"energy", "workloads", "workload_sum", "model_energy", "model_tokens"}
    assert document["total"]["energy_joules"] is None and document["total"]["power_watts"] > 0


@pytest.mark.parametrize("answer, words", [
    ((200, "text/html", b"<html>Please log in</html>"), "not from Prometheus; it begins with \"<html>Please log in"),
    ((200, "application/json", b"\x00\xff{{{"), "not from Prometheus"),
    ((200, "application/json", b""), "not from Prometheus"),
    ((200, "application/json", b'{"status":"success"}'), "no data.result"),
    ((200, "application/json", b'{"status":"error","error":"out of cheese"}'), "out of cheese"),
    ((200, "application/json", b"[" * (9 << 20)), "longer than 8 MiB"),
    ((401, "text/plain", b"no org id"), "refused with status 401: no org id: a token is needed"),
    ((403, "application/json", b'{"status":"error","error":"tenant x may not read"}'), "tenant x may not read"),
    ((404, "text/plain", b"404 page not found"), "the path is wrong; the address of Mimir"),
    ((302, "text/html", b""), "redirects to another one, perhaps to a login page"),
    ((503, "text/plain", b"starting"), "status 503: starting"),
])
def test_a_useless_answer_is_explained(fake, answer, words):
    fake.fault = lambda query: answer
    got = fleet(fake.url)
    assert got.returncode == FAILED and words in got.stderr and fake.url in got.stderr, got


def test_one_failed_query_leaves_the_rest(fake):
    fake.fault = lambda q: (422, "application/json", b'{"status":"error","error":"query processing would load too many samples"}') \
        if key_of(q) == "workloads" else None
    got = fleet(fake.url)
    assert got.returncode == PARTIAL and "Workloads unknown: status 422: query processing would load too many samples" in got.stdout
    assert "llama-70b" in got.stdout


def test_tls_needs_the_right_certificate(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
    with FakePrometheus(certificate=(cert, key)) as e:
        refused = fleet(e.url)
        assert refused.returncode == FAILED and "certificate" in refused.stderr
        assert fleet(e.url, "--ca-file", cert).returncode == OK


def test_an_engine_without_gpuward_says_so(fake):
    fake.rows = {}
    got = fleet(fake.url)
    assert got.returncode == FAILED and f"Prometheus at {fake.url} has no metric gpuward_up: add a scrape_config" in got.stderr


def test_clocks_apart_and_old_readings_are_reported(fake):
    fake.ahead = 300
    fake.rows["age"] = [({"job": "gpuward", "instance": "n1"}, 150), ({"job": "gpuward", "instance": "n2"}, -90),
                        ({"job": "gpuward", "instance": "n3"}, 119)]
    document = fleet_json(fake.url)
    assert [n["state"] for n in document["nodes"]] == ["stale", "ahead", "ok"]
    assert "The clock of Prometheus is 300 s ahead of the clock of this machine" in document["remarks"][0]
    assert [(a["node"], a["reason"]) for a in document["attention"]] == [("n1", "stale"), ("n2", "ahead")]


def test_a_counter_that_went_back_makes_no_energy(fake):
    # After a database of last week was restored, Prometheus counts the whole value as an increase.
    limit = NOW["gpuward_gpu_power_limit_watts"] * 86400
    fake.rows["energy"] = [({"instance": "n1"}, 3 * limit), ({"instance": "n2"}, 1.2 * limit), ({"instance": "n3"}, 5)]
    document = fleet_json(fake.url)
    assert [n["energy_joules"] for n in document["nodes"]] == [None, 1.2 * limit, 5]
    assert document["nodes"][0]["energy_problem"] and document["total"]["energy_nodes"] == 2
    assert document["total"]["energy_joules"] == pytest.approx(1.2 * limit + 5)


def test_a_node_that_stopped_pushing_is_gone_and_one_with_a_driver_that_hangs_is_stale(fake):
    names = ("crashed", "hangs", "old", "stopped")
    fake.rows["age"] += [({"job": "gpuward", "instance": name}, age) for name, age in zip(names, (130, 130, 3000, 3))]
    fake.rows["now"] += [({"__name__": metric, "instance": name}, value) for name, up in (("crashed", 1), ("hangs", 0))
                         for metric, value in {**NOW, "gpuward_up": up}.items()]
    fake.rows["energy"] += [({"instance": "old"}, 7e6)]
    document = fleet_json(fake.url)
    found = {n["node"]: n for n in document["nodes"]}
    assert [found[name]["state"] for name in names] == ["gone", "stale", "gone", "gone"]
    assert found["crashed"]["power_watts"] is None and found["old"]["energy_joules"] == 7e6
    remedies = {a["node"]: a["remedy"] for a in document["attention"]}
    assert set(remedies) == set(names) and "is the node on" in remedies["old"] and "driver call" in remedies["hangs"]


def test_gpus_that_count_twice_and_incomplete_answers_are_remarked(fake):
    fake.rows["capacity"].append(({"instance": "n1-by-address", "gpu": "0", "uuid": "GPU-n1-0"}, GIB))
    fake.more = {"warnings": ["store gateway timed out"]}
    remarks = fleet_json(fake.url)["remarks"]
    assert len(remarks) == 2 and "same UUID" in remarks[0] and "store gateway timed out" in remarks[1]
    assert "pushed and scraped" in remarks[0] and "Simulated" not in remarks[0]
    fake.rows["simulated"] = [({"simulated": "true"}, 1), ({"simulated": "false"}, 24)]  # one simulated GPU must not hide a real duplicate
    remarks = fleet_json(fake.url)["remarks"]
    assert "same UUID" in remarks[0] and "Simulated machines can" in remarks[0]


@pytest.mark.parametrize("simulated, real, mark", [(0, 24, None), (24, 0, " SIMULATED  these GPUs are not real"),
                                                   (8, 16, " SIMULATED  some of these GPUs are not real")])
def test_the_mark_says_whether_all_gpus_are_simulated(fake, simulated, real, mark):
    fake.rows["simulated"] = [({"simulated": word}, n) for word, n in (("true", simulated), ("false", real)) if n]
    document = fleet_json(fake.url)
    assert (document["gpus_simulated"], document["gpus_real"]) == (simulated, real)
    for options in ((), ("--fits", "10GiB")):
        first = fleet(fake.url, *options).stdout.splitlines()[0]
        assert first == mark if mark else "SIMULATED" not in first


def test_a_share_is_never_above_one_and_unknown_without_the_sum(fake):
    for total, shares in ((5e6, [1, 0.2]), (4.99e6, [1, 1e6 / 4.99e6]), (1e6, [None, 1]), (0, [None, None])):
        fake.rows["workload_sum"] = [({}, total)]
        assert [w["share_ratio"] for w in fleet_json(fake.url)["workloads"]] == pytest.approx(shares)
    assert "The shares are unknown" in fleet(fake.url).stdout


def test_values_that_are_no_numbers_are_unknown(fake):
    fake.rows["utilization"] = [({"instance": "n1"}, "NaN"), ({"instance": "n2"}, "+Inf"), ({"instance": "n3"}, "12abc")]
    assert [n["utilization_ratio"] for n in fleet_json(fake.url)["nodes"]] == [None] * 3


HOSTILE = ("1e308", "+Inf", "-Inf", "NaN", "18446744073709551616", "-1", "-1e308", "1e-320", "1e16")


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_becomes_nonsense(fake, value):
    good = fake.rows
    fake.rows = {**good, "attention": [({"instance": "n1", "uuid": "u", "gpu": "0", "reason": "hot"}, 3)],
                 **{k: [({"instance": "n1"}, 1)] for k in ("idle", "idle_watts", "down")}}
    good = dict(fake.rows)
    for keys in [[key] for key in good] + [list(good)]:
        fake.rows = {**good, **{key: [(labels, value) for labels, _ in good[key]] for key in keys}}
        for options in ([], ["--fits", "40G"]):
            done = fleet(fake.url, *options)
            if done.returncode == FAILED and keys == list(good):  # no node is left
                assert "cannot be right" in done.stderr
                continue
            assert done.returncode in (OK, NO_ROOM) and not re.search(r"\b-?(nan|inf)\b|\d{20}", done.stdout), (keys, done.stdout)
            assert "runtime error" not in done.stderr, done.stderr
            document = json.loads(fleet(fake.url, "--json", *options).stdout)
            assert all(0 <= v < 1e22 for k, v in figures(document)
                       if k not in ("age_seconds", "engine_clock_ahead_seconds")), (keys, document)
            if value not in ("1e-320", "1e16") and not (value == "-1" and keys == ["age"]):
                assert "cannot be right" in " ".join(document["remarks"]), (keys, document)


def figures(value, key=None):
    if isinstance(value, (dict, list)):
        for k, v in value.items() if isinstance(value, dict) else ((key, v) for v in value):
            yield from figures(v, k)
    elif isinstance(value, (int, float)):
        yield key, value


def test_the_clock_of_a_hostile_prometheus_has_no_300_digits(fake):
    fake.ahead = 1e300
    assert not re.search(r"\d{20}", fleet(fake.url).stdout)


# ---- the service

@contextlib.contextmanager
def service(home, url, *lines):
    (home / "gpuward.toml").write_text("\n".join([f'[fleet]\nprometheus = "{url}"', *lines]) if url else "")
    with engine.serving(home, "two-gpus", "--config", str(home / "gpuward.toml")) as address:
        yield address


def get(address, path="/api/v1/fleet"):
    connection = http.client.HTTPConnection(address, timeout=support.TIMEOUT)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def test_the_service_without_an_engine_says_how_to_name_one(tmp_path):
    with service(tmp_path, None) as address:
        status, problem = get(address)
        assert status == 404 and "[fleet]" in problem["remedy"] and problem["type"].endswith("not-configured")
        assert get(address, "/api/v1/self")[1]["fleet"] is False


def test_the_service_asks_once_for_many_clients(fake, tmp_path):
    with service(tmp_path, fake.url) as address:
        assert fake.queries == []  # no client has requested the fleet
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(get(address))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [status for status, _ in replies] == [200] * 8 and len(fake.queries) == 15
        document = replies[0][1]
        support.check("fleet", document)
        assert document["error"] is None and document["age_seconds"] < 10 and len(document["nodes"]) == 3
        status, document = get(address, "/api/v1/fleet?fits=40GiB&gpus=2&top=1")
        assert status == 200 and len(document["fits"]["places"]) == 1 and document["fits"]["nodes"] == 3
        assert get(address, "/api/v1/fleet?fits=much")[0] == 400
        assert get(address, "/api/v1/self")[1]["fleet"] is True
        assert len(fake.queries) == 15


def test_the_service_stays_quick_and_says_that_its_figures_are_old(fake, tmp_path):
    release = threading.Event()
    with service(tmp_path, fake.url) as address:
        assert get(address)[0] == 200
        fake.fault = lambda query: (500, "text/plain", b"disk full")

        def failed():
            status, document = get(address)
            assert status == 200  # the figures of the last successful queries
            return document["error"] and document

        document = wait(failed, "the request after ten seconds")
        assert "disk full" in document["error"] and document["age_seconds"] >= 10 and len(document["nodes"]) == 3
        fake.fault = lambda query: release.wait(support.TIMEOUT) and None
        assert "gpuward_up" in engine.metrics(address)  # other requests are not blocked
    release.set()


def test_the_service_reports_an_engine_that_never_answered(tmp_path):
    url = f"http://127.0.0.1:{support.free_port()}"
    with service(tmp_path, url) as address:
        status, problem = get(address)
        assert status == 503 and url in problem["detail"]


def test_the_configuration_refuses_a_wrong_address(tmp_path):
    (tmp_path / "gpuward.toml").write_text('[fleet]\nprometheus = "prom:9090"\n')
    got = gpuward("config", "check", "--config", tmp_path / "gpuward.toml")
    assert got.returncode != OK and "fleet.prometheus: it must begin with http://" in got.stdout + got.stderr
