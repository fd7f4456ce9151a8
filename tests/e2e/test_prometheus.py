"""Tests the metrics and the packaged rules with a real Prometheus that scrapes the service."""
import contextlib
import re
import subprocess

import pytest
from prometheus_client.openmetrics import parser as openmetrics

import engine
import test_metrics
from engine import PROMETHEUS, RULES, eventually, get, metrics, scaled, serving
from support import TIMEOUT, TOP
from worker import Fault

NAMES = TOP / "tests" / "golden" / "metric-names.txt"


# Durations of the rules are shorter, so that a figure over 30 minutes exists after 12 seconds.
FACTOR = 1 / 150
# A process holds memory on an idle GPU.
HELD = """
[[gpu]]
profile = "h100"
count = 2
[[gpu.process]]
name = "notebook"
memory = "30 GiB"
"""
SM = "gpuward_workload_utilization_sm_ratio"
# {part of an expression: what these nodes would need for a result}. The query must work, but its result may be empty.
EMPTY = {
    "ALERTS": "an alert that fires",
    "gpu_down:count{job=~\".*\"} > 0": "a GPU that does not answer",
    "limited_thermal:ratio5m{job=~\".*\"} > 0": "a GPU that heat slows",
    "sm_ratio:avg5m": "the utilisation of processes",
    f"(avg_over_time({SM}[2000ms]))": "the utilisation of processes",
    "up{job=~\"(.+/)?gpuward\"} == 0": "a node that does not answer",
}
# {metric: the case in which the page of a default service has it}.
ABSENT = {
    "gpuward_gpu_retired_pages_pending": "a board before Ampere",
    "gpuward_guard_blind": "a worker",
    "gpuward_guard_evictions_total": "a worker",
    "gpuward_guard_journal_up": "a worker",
    "gpuward_guard_state": "a worker",
    SM: "a driver that was asked for the utilisation of processes",
    "gpuward_guard_suspend_reason": "a worker",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three services with their default metrics: {instance: address}."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, world in {"a": "two-gpus", "b": "power-cap", "held": HELD}.items():
            home = tmp_path_factory.mktemp(name)
            if name == "held":
                (home / "world.toml").write_text(world)
                world = home / "world.toml"
            found[name] = stack.enter_context(serving(home, world))
        yield found


@pytest.fixture(scope="module")
def service(nodes):
    return nodes["a"]


@pytest.fixture(scope="module")
def prometheus(nodes, tmp_path_factory):
    """Runs a Prometheus that scrapes the nodes. Yields a function that sends queries."""
    home = tmp_path_factory.mktemp("prometheus")
    rules = [home / "gpuward.rules.yml", home / "alerts.yml"]
    for path in rules:
        path.write_text(scaled((RULES / path.name).read_text(), FACTOR))
    with engine.prometheus(home, nodes, "500ms", rules) as ask:
        yield ask


def test_the_scrape_is_healthy(nodes, prometheus):
    targets = prometheus("targets")["activeTargets"]
    assert {t["labels"]["instance"]: (t["health"], t["lastError"]) for t in targets} == dict.fromkeys(nodes, ("up", ""))


def test_its_values_are_those_of_the_page(service, prometheus):
    page = metrics(service)
    totals = [l for l in page.splitlines() if l.startswith("gpuward_gpu_memory_total_bytes{")]
    assert len(totals) == 2
    scraped = prometheus.values('gpuward_gpu_memory_total_bytes{instance="a"}')
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
    # Prometheus requests OpenMetrics, which names a counter without its suffix.
    energy = known.get("gpuward_energy_joules_total") or known["gpuward_energy_joules"]
    assert energy[0]["type"] == "counter" and energy[0]["help"]


def test_energy_and_ticks_grow(prometheus):
    def grown(metric):
        only = metric + '{instance="a"}'
        first = dict((m.get("uuid"), v) for m, v in prometheus.values(only))
        return eventually(lambda: all(v > first[m.get("uuid")] for m, v in prometheus.values(only)), metric)

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
    assert not firing


def test_recorded_series_appear(prometheus):
    found = eventually(lambda: prometheus.values('uuid:gpuward_gpu_power_watts:avg5m{instance="a"}'), "a record")
    assert len(found) == 2 and all(v > 0 for _, v in found)


def queries(nodes):
    """Returns {expression: where it is} of every rule, alert and panel, with the variables of Grafana replaced."""
    found = {}
    for name in ("gpuward.rules.yml", "alerts.yml"):
        for rule in test_metrics.load_rules(name):
            found[scaled(rule["expr"], FACTOR)] = f"{name} {rule.get('record') or rule['alert']}"
            if "record" in rule:
                found[rule["record"]] = name
    values = {"instance": "held", "job": ".*", "kind": ".*", "namespace": ".*", "name": ".*", "__range": "10s",
              "__rate_interval": "3s"}
    for uid, board in test_metrics.load_boards().items():
        for panel in board["panels"]:
            for t in panel.get("targets", []):
                text = scaled(t["expr"], FACTOR)
                found[re.sub(r"\$(\w+)", lambda m: values[m[1]], text)] = f"{uid}: {panel['title']}"
    return found


@pytest.mark.deep
def test_every_query_of_rules_and_dashboards_works(nodes, prometheus):
    rules = {r["record"]: r["expr"] for r in test_metrics.load_rules("gpuward.rules.yml")}

    def expand(expression):
        """Returns the expression, and the expressions of the records that it reads."""
        below = [expand(rules[m]) for m in test_metrics.named(expression) if m in rules]
        return " ".join([expression, *below])

    def may_be_empty(expression, where):
        whole = expand(expression)
        return ("alerts.yml" in where or any(e in whole for e in EMPTY)
                or any(m in whole for m in test_metrics.MODELS | set(ABSENT) - {SM}))

    all_of_them = queries(nodes)
    assert len(all_of_them) > 150
    for expression in all_of_them:
        prometheus("query", query=expression)  # fails if the expression is wrong
    wanted = {e: w for e, w in all_of_them.items() if not may_be_empty(e, w)}
    assert len(wanted) > 100

    def missing():
        return {w: e for e, w in wanted.items() if not prometheus("query", query=e)["result"]}
    eventually(lambda: not missing(), lambda: f"data for {missing()}")


def test_a_default_service_has_what_rules_and_dashboards_need(nodes):
    page = "".join(metrics(address) for address in nodes.values())
    exported = set(re.findall(r"^(\w+)", page, re.M))
    missing = set(test_metrics.needed()) - exported - test_metrics.MODELS
    assert missing <= set(ABSENT), f"not on the page by default: {missing - set(ABSENT)}"


def test_the_format_follows_the_accept_header(service):
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
