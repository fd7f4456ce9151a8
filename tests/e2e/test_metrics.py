"""Tests the metrics of every scenario with the programs that will read them: promtool and both parsers of
python3-prometheus-client.  Names are compared with tests/golden, and packaging/ may use only these names.

GPUWARD_GOLDEN=write writes the list of names and the table of docs/METRICS.md again: names are an
interface, so rows are only ever added.
"""
import functools
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from support import BUILD, SENTINELS, SIMULATOR, TIMEOUT, TOP, environment, scenarios

DUMP = BUILD / "tests" / "unit" / "metrics_dump"
GOLDEN = TOP / "tests" / "golden" / "metric-names.txt"
NEEDED = TOP / "tests" / "golden" / "metrics-needed.txt"
DEFAULT = TOP / "tests" / "golden" / "metric-names-default.txt"
PACKAGING = TOP / "packaging"
# Metrics of models. Their names are fixed even if the service does not export them.
MODELS = {"gpuward_model_energy_joules_total", "gpuward_model_tokens_total"}
PROMTOOL = shutil.which("promtool", path="/usr/bin:/bin")
AMTOOL = shutil.which("amtool", path="/usr/bin:/bin")
SCRAPED = {"up", "scrape_duration_seconds", "ALERTS"}  # series that Prometheus itself makes

pytestmark = pytest.mark.skipif(not DUMP.exists(), reason=f"{DUMP} is not built")
with_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool (package prometheus) is missing")


def dump(*args, **kw):
    done = subprocess.run([DUMP, *args], env=environment(), timeout=TIMEOUT, encoding="utf-8",
                          capture_output=True, **kw)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.lru_cache(maxsize=None)
def pages(scenario):
    return dump("-t", "3", "-i", "*", SIMULATOR, scenario).split("\f")


def page(scenario):
    return pages(scenario)[0]


@functools.lru_cache(maxsize=None)
def names():
    """Returns the frozen names: {name: (type, labels)}."""
    rows = (re.fullmatch(r"(\S+) (\w+) \{(.*)\}", l) for l in GOLDEN.read_text().splitlines())
    return {m[1]: (m[2], tuple(filter(None, m[3].split(",")))) for m in rows}


def samples(text):
    """Yields (name, labels as written, value) of each sample of a page in text format."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            keys = tuple(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels))
            yield name, keys, series, float(value)


def test_names_types_and_labels_are_as_frozen():
    got = dump("-l")
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        GOLDEN.write_text(got)
    assert got == GOLDEN.read_text()


def test_the_default_set_is_as_frozen():
    got = dump("-d")
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        DEFAULT.write_text(got)
    assert got == DEFAULT.read_text()
    assert {l.split(" ")[0] for l in got.splitlines()} < set(names())


def test_the_manual_lists_every_name():
    head = "| name | type | labels | group | default | what it is |\n|---|---|---|---|---|---|\n"
    path = TOP / "docs" / "METRICS.md"
    before, found, table = path.read_text().partition(head)
    assert found
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        table = dump("-m")
        path.write_text(before + head + table)
    assert table == dump("-m")


def test_the_manual_lists_every_group():
    head = "| group | what it has | metrics | in the default set |\n|---|---|---|---|\n"
    path = TOP / "docs" / "METRICS.md"
    before, found, rest = path.read_text().partition(head)
    table, end, after = rest.partition("\n\n")
    assert found and end
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        table = dump("-g").rstrip("\n")
        path.write_text(before + head + table + end + after)
    assert table + "\n" == dump("-g")


def test_the_manual_page_lists_every_name():
    page = BUILD / "docs" / "man" / "gpuward-metrics.7.scd"
    if not page.exists():
        pytest.skip("the manual pages are not built: scdoc is missing")
    found = re.findall(r"^\*(\S+)\* \((\w+)(?:; (\S+))?; \w+(?:\\_\w+)?(?:, \w+)?\)$", page.read_text(), re.M)
    listed = {n.replace("\\", ""): (l or "").replace("\\", "") for n, _, l in found}
    assert listed == {n: ",".join(l) for n, (_, l) in names().items()}


@pytest.mark.parametrize("scenario", scenarios())
def test_samples_have_the_frozen_names_and_labels(scenario):
    seen = set()
    for name, keys, series, value in samples(page(scenario)):
        assert name in names(), name
        assert keys == names()[name][1], series
        assert series not in seen
        seen.add(series)
        assert not any(abs(value - s) <= s * 1e-15 for s in SENTINELS), series
        if name.endswith("_ratio") and "fan" not in name:
            assert 0 <= value <= 1, series


@with_promtool
@pytest.mark.parametrize("scenario", scenarios())
def test_promtool_accepts_the_metrics(scenario):
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page(scenario), encoding="utf-8",
                          capture_output=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("scenario", scenarios())
def test_both_parsers_read_the_same(scenario):
    plain = {}
    for family in parser.text_string_to_metric_families(page(scenario)):
        assert family.documentation
        for s in family.samples:
            plain[s.name, tuple(sorted(s.labels.items()))] = family.type
    strict = {}
    for family in openmetrics.text_string_to_metric_families(pages(scenario)[1]):
        assert family.documentation
        if family.type == "counter" or family.type == "gauge":
            assert not family.unit or family.name.endswith("_" + family.unit)
        for s in family.samples:
            strict[s.name, tuple(sorted(s.labels.items()))] = family.type
    assert set(plain) == set(strict)
    for (name, labels), kind in strict.items():
        want = names()[name][0]
        assert kind == {"untyped": "unknown"}.get(want, want) or (kind, want) == ("info", "gauge")


def test_odd_names_come_through_unharmed():
    families = parser.text_string_to_metric_families(page("odd-names"))
    info = next(f for f in families if f.name == "gpuward_gpu_info")
    assert any('"Test" <b>GPU</b> & S\u00f6hne' in s.labels["name"] for s in info.samples)


def test_metrics_of_simulated_gpus_are_marked():
    lines = [l for l in page("two-gpus").splitlines() if l.startswith("gpuward_gpu_info{")]
    assert len(lines) == 2
    assert all('simulated="true"' in l for l in lines)


def test_without_a_driver_there_is_no_series_of_a_gpu():
    found = {name: value for name, _, _, value in samples(page("no-driver"))}
    assert found["gpuward_nvml_up"] == 0
    assert found["gpuward_gpus"] == 0
    assert not any(n.startswith(("gpuward_gpu_", "gpuward_mig_")) for n in found)
    assert found["nvml_init_failures_total"] == found["gpuward_nvml_init_failures_total"] == 2  # metrics_dump.c
    assert found["gpuward_host_ram_total_bytes"] > 0


def test_process_memory_is_bounded_and_has_no_pid():
    text = page("crowd")
    lines = [l for l in text.splitlines() if l.startswith("gpuward_process_memory_bytes{")]
    assert 1 < len(lines) <= 4
    assert sum('name="other"' in l for l in lines) == 1
    assert "pid=" not in text and "command=" not in text


def named(expression):
    """Returns the metrics that a PromQL expression names."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    words = re.findall(r"(?<![\w:$])[a-zA-Z_:][\w:]*(?!\w*\s*\()", bare)
    return {w for w in words if "_" in w or ":" in w or w in SCRAPED}


def load_rules(name):
    groups = yaml.safe_load((PACKAGING / "prometheus" / name).read_text())["groups"]
    return [r for g in groups for r in g["rules"]]


def load_boards():
    return {p.stem: json.loads(p.read_text()) for p in sorted((PACKAGING / "grafana").glob("*.json"))}


def panel_queries(board):
    return [t["expr"] for p in board["panels"] for t in p.get("targets", [])]


def known():
    """Rules and dashboards may use only the default set, so that they work without any setting."""
    recorded = {r["record"] for r in load_rules("gpuward.rules.yml")}
    default = {l.split(" ")[0] for l in DEFAULT.read_text().splitlines()}
    return default | recorded | SCRAPED | MODELS


def needed():
    """Returns {metric of /metrics: rules, alerts and dashboards that read it}."""
    readers = {"rules": [r["expr"] for r in load_rules("gpuward.rules.yml")],
               "alerts": [r["expr"] for r in load_rules("alerts.yml")]}
    readers.update((uid, panel_queries(board)) for uid, board in load_boards().items())
    found = {}
    for reader, expressions in readers.items():
        for metric in set().union(*map(named, expressions)):
            if ":" not in metric and metric not in SCRAPED:
                found.setdefault(metric, []).append(reader)
    return found


def test_the_metrics_that_rules_and_dashboards_need_are_listed():
    text = "".join(f"{metric} {','.join(readers)}\n" for metric, readers in sorted(needed().items()))
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        NEEDED.write_text(text)
    assert text == NEEDED.read_text()
    default = {l.split(" ")[0] for l in DEFAULT.read_text().splitlines()}
    assert set(needed()) <= default | MODELS, "a rule or a panel needs a metric that is off by default"


def test_expressions_are_read_for_their_names():
    text = 'sum without (uuid) (rate(a_b_total{x="c_d"}[5m])) > on (job) up and time() - e_f'
    assert named(text) == {"a_b_total", "up", "e_f"}


@pytest.mark.parametrize("file", ["gpuward.rules.yml", "alerts.yml"])
def test_rules_name_what_there_is(file):
    for rule in load_rules(file):
        found = named(rule["expr"])
        assert found and found <= known(), rule


def test_every_alert_has_words_a_test_and_a_section_of_the_manual():
    cases = (PACKAGING / "prometheus" / "alerts.test.yml").read_text()
    manual = (TOP / "docs" / "FLEET.md").read_text()
    for rule in load_rules("alerts.yml"):
        name, severity = rule["alert"], rule["labels"]["severity"]
        assert severity in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert re.search(r"\bType (on the node|in Prometheus)", rule["annotations"]["description"]), name
        assert rule["annotations"]["runbook"] == f"docs/FLEET.md#{name.lower()}"
        assert f"\n### {name}\n" in manual
        wait = {None: "at once", "30s": "30 s"}.get(rule.get("for")) or rule["for"].replace("m", " min")
        assert f"| [{name}](#{name.lower()}) | {severity} | {wait} |" in manual
        assert rule["keep_firing_for"] == "5m"
        assert f'alertname="{name}"' in cases


def test_inhibition_names_alerts_that_exist():
    config = yaml.safe_load((PACKAGING / "prometheus" / "alertmanager.yml").read_text())
    alerts = {r["alert"] for r in load_rules("alerts.yml")}
    for rule in config["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            words = re.search(r'"(.*)"', matcher)[1]
            assert words == "(Gpu|Guard).*" or set(words.split("|")) <= alerts, matcher
    assert {r["receiver"] for r in [config["route"], *config["route"]["routes"]]} == {
        r["name"] for r in config["receivers"]}


@pytest.mark.skipif(not AMTOOL, reason="amtool (package prometheus-alertmanager) is missing")
def test_amtool_accepts_the_configuration():
    done = subprocess.run([AMTOOL, "check-config", PACKAGING / "prometheus" / "alertmanager.yml"], encoding="utf-8",
                          env=environment(), capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr


@with_promtool
@pytest.mark.parametrize("command", [
    ("check", "rules", "gpuward.rules.yml", "alerts.yml"),
    ("test", "rules", "gpuward.rules.test.yml", "gpuward.day.test.yml", "alerts.test.yml"),
])
@pytest.mark.deep
def test_promtool_accepts_the_rules(command):
    done = subprocess.run([PROMTOOL, *command], cwd=PACKAGING / "prometheus", encoding="utf-8",
                          capture_output=True, timeout=5 * TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboards_are_up_to_date():
    done = subprocess.run([TOP / "tools" / "dashboards", "--check"], encoding="utf-8", capture_output=True,
                          timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("uid", ["gpuward", "gpuward-fleet", "gpuward-workload"])
def test_the_dashboards_name_what_there_is_and_are_bounded(uid):
    board = load_boards()[uid]
    assert board["uid"] == uid
    variables = {v["name"]: v for v in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in board["panels"]:
        assert not panel.get("repeat")
        for t in panel.get("targets", []):
            assert t["datasource"]["uid"] == "${datasource}"
            found = named(t["expr"])
            assert found and found <= known(), t["expr"]
            assert set(re.findall(r"\$(\w+)", t["expr"])) <= {*variables, "__range", "__rate_interval"}
            # A query shows one node, one figure, or the 20 largest values; never one series per GPU of the fleet.
            assert 'instance="$instance"' in t["expr"] or re.match(r"(topk\(20, |(sum|avg|count|quantile)\b)", t["expr"])
    for v in variables.values():
        if v["type"] == "query":
            metric = re.match(r"label_values\((\w+)", v["definition"])[1]
            assert metric in known()
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
    others = set(load_boards()) - {uid}
    assert {l["url"] for l in board["links"]} == {f"/d/{other}" for other in others}
