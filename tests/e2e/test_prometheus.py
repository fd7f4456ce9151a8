"""A real Prometheus scrapes the service, with the packaged rules loaded."""
import contextlib
import json
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from prometheus_client.openmetrics import parser as openmetrics

import support
from support import PROGRAM, TIMEOUT, TOP, environment, gpuward
from worker import Fault

PROMETHEUS = shutil.which("prometheus", path="/usr/bin:/bin")
RULES = TOP / "packaging" / "prometheus"

NAMES = TOP / "tests" / "golden" / "metric-names.txt"


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as r:
        return r.headers, r.read().decode()


def eventually(look, what):
    """The first answer of look() that is not None or empty; errors of the network mean: not yet."""
    return support.wait(look, what, ignore=(OSError, urllib.error.URLError))


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@contextlib.contextmanager
def serving(home, scenario, *options):
    """`gpuward serve` over a scenario; its address."""
    if gpuward("serve", "--help").returncode != 0:
        pytest.skip("this gpuward has no serve")
    address = f"127.0.0.1:{support.free_port()}"
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [PROGRAM, "serve", f"--simulate={scenario}", "--listen", address, "--history", "none",
             "--interval", "500ms", *options],
            env=environment(HOME=home), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(lambda: "gpuward_up 1" in metrics(address), "the first reading")
            yield address
        finally:
            stop(process)


def metrics(address):
    return get(f"http://{address}/metrics")[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service"), "two-gpus") as address:
        yield address


@contextlib.contextmanager
def scraping(home, service):
    """Prometheus that scrapes a service each second; a function that asks it."""
    if not PROMETHEUS:
        pytest.skip("prometheus is not installed")
    config = home / "prometheus.yml"
    config.write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{RULES}/gpuward.rules.yml, {RULES}/alerts.yml]
scrape_configs:
  - job_name: gpuward
    static_configs: [{{targets: ["{service}"]}}]
""")
    port = support.free_port()
    log = (home / "log").open("w")
    process = subprocess.Popen(
        [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={home / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        env=environment(HOME=home), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(path, **query):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        answer = json.loads(get(url)[1])
        assert answer["status"] == "success"
        return answer["data"]

    def values(expression):
        return [(r["metric"], float(r["value"][1]))
                for r in ask("query", query=expression)["result"]]

    ask.values = values
    try:
        eventually(lambda: [v for _, v in values('up{job="gpuward"}') if v == 1], "a scrape")
        yield ask
    finally:
        stop(process)
        log.close()


@pytest.fixture(scope="module")
def prometheus(service, tmp_path_factory):
    with scraping(tmp_path_factory.mktemp("prometheus"), service) as ask:
        yield ask


def test_the_scrape_is_healthy(prometheus):
    (target,) = prometheus("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


def test_its_values_are_those_of_the_page(service, prometheus):
    page = metrics(service)
    totals = [l for l in page.splitlines() if l.startswith("gpuward_gpu_memory_total_bytes{")]
    assert len(totals) == 2
    scraped = prometheus.values("gpuward_gpu_memory_total_bytes")
    assert sorted(v for _, v in scraped) == sorted(float(l.rsplit(" ", 1)[1]) for l in totals)
    assert {m["gpu"] for m, _ in scraped} == {"0", "1"}
    assert all(m["uuid"].startswith("GPU-") for m, _ in scraped)


def test_every_series_of_the_page_is_stored(service, prometheus):
    page = metrics(service)
    wanted = {l.split("{")[0].split(" ")[0] for l in page.splitlines() if not l.startswith("#")}
    stored = set(prometheus("label/__name__/values"))
    assert wanted <= stored, wanted - stored


def test_types_and_help_arrive(prometheus):
    known = eventually(lambda: prometheus("metadata"), "metadata")
    # It asks for OpenMetrics, which names a counter without its suffix.
    energy = known.get("gpuward_energy_joules_total") or known["gpuward_energy_joules"]
    assert energy[0]["type"] == "counter" and energy[0]["help"]


def test_energy_and_ticks_grow(prometheus):
    def grown(metric):
        first = dict((m.get("uuid"), v) for m, v in prometheus.values(metric))
        return eventually(
            lambda: all(v > first[m.get("uuid")] for m, v in prometheus.values(metric)), metric)

    assert grown("gpuward_ticks_total")
    assert grown("gpuward_energy_joules_total")


def test_prometheus_loads_the_rules_without_errors(prometheus):
    def judged():
        groups = prometheus("rules")["groups"]
        rules = [r for g in groups for r in g["rules"]]
        return rules if all(r["health"] == "ok" for r in rules) else None

    rules = eventually(judged, "an evaluation of every rule")
    assert {r["type"] for r in rules} == {"recording", "alerting"}
    firing = {r["name"] for r in rules if r.get("state") == "firing"}
    assert firing <= {"GpuLimitedByPower"}


def test_recorded_series_appear(prometheus):
    found = eventually(lambda: prometheus.values("uuid:gpuward_gpu_power_watts:avg5m"), "a record")
    assert len(found) == 2 and all(v > 0 for _, v in found)


def test_the_form_follows_accept(service):
    url = f"http://{service}/metrics"
    headers, text = get(url)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# EOF" not in text
    headers, text = get(url, Accept="application/openmetrics-text;version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_the_page_is_clean_and_has_the_frozen_names(service):
    page = metrics(service)
    if PROMETHEUS:
        done = subprocess.run(["/usr/bin/promtool", "check", "metrics"], input=page,
                              capture_output=True, encoding="utf-8", timeout=TIMEOUT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    frozen = {l.split(" ")[0] for l in NAMES.read_text().splitlines()}
    assert set(re.findall(r"^(\w+)", page, re.M)) <= frozen
    strict = get(f"http://{service}/metrics", Accept="application/openmetrics-text")[1]
    assert len(list(openmetrics.text_string_to_metric_families(strict))) > 80


def test_a_gpu_with_a_hanging_call_has_no_figures_and_the_other_has(tmp_path):
    def gpu(page, metric):
        return set(re.findall(rf'^{metric}{{.*gpu="(\d)".*}}', page, re.M))

    def stalled():
        page = metrics(address)
        up = dict(re.findall(r'^gpuward_gpu_up{.*gpu="(\d)"} (\d)$', page, re.M))
        return page if up == {"0": "1", "1": "0"} else None

    hang = Fault(tmp_path, "gpu = 1\nhang = true", "nvmlDeviceGetComputeRunningProcesses_v3")
    world = tmp_path / "world.toml"
    world.write_text('[[gpu]]\nprofile = "h100"\ncount = 2\n[[gpu.load]]\nkind = "constant"\nlevel = 0.5\n' + hang.text)
    with serving(tmp_path, world) as address:
        eventually(lambda: gpu(metrics(address), "gpuward_energy_joules_total") == {"0", "1"}, "both")
        assert gpu(metrics(address), "gpuward_gpu_power_watts") == {"0", "1"}
        with hang:
            page = eventually(stalled, "the hang")
    assert gpu(page, "gpuward_gpu_power_watts") == {"0"}
    assert gpu(page, "gpuward_energy_joules_total") == {"0", "1"}
    assert gpu(page, "gpuward_gpu_info") == {"0", "1"}
    assert re.search(r'^gpuward_gpu_state{.*gpu="1",state="stalled"} 1$', page, re.M)


def test_the_textfile_is_the_page_and_goes_with_the_service(tmp_path):
    path = tmp_path / "gpuward.prom"
    with serving(tmp_path, "two-gpus", "--textfile", path) as address:
        eventually(path.exists, "the file")

        def heads(text):
            return [l for l in text.splitlines() if l.startswith("# TYPE")]
        eventually(lambda: heads(metrics(address)) == heads(path.read_text()), "the file of the same reading")
    assert not path.exists()
