"""Tests which metrics the service serves: the default set and its limits, metrics.include and metrics.exclude, the
names of dcgm-exporter as its dashboard queries them, and the count of failed initialisations."""
import collections
import re
import signal
import subprocess

import pytest

import engine
import support
from engine import PROMETHEUS, eventually
from service import EVERY_METRIC, Service
from support import TOP, gpuward
from worker import Fault

PER_GPU, PER_NODE = 60, 60
ALL = {l.split(" ")[0] for l in (TOP / "tests/golden/metric-names.txt").read_text().splitlines()}
DEFAULT = {l.split(" ")[0] for l in (TOP / "tests/golden/metric-names-default.txt").read_text().splitlines()}

# Every query of grafana/dcgm-exporter-dashboard.json of dcgm-exporter 4.5.3 (github.com/NVIDIA/dcgm-exporter), by
# metric, function and factor. Each query selects by the labels instance and gpu.
DASHBOARD = [
    ("DCGM_FI_DEV_GPU_TEMP", "{}"),
    ("DCGM_FI_DEV_GPU_TEMP", "avg({})"),
    ("DCGM_FI_DEV_POWER_USAGE", "{}"),
    ("DCGM_FI_DEV_POWER_USAGE", "sum({})"),
    ("DCGM_FI_DEV_SM_CLOCK", "{} * 1000000"),
    ("DCGM_FI_DEV_GPU_UTIL", "{}"),
    ("DCGM_FI_DEV_FB_USED", "{}"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{}"),
]
# Names of etc/default-counters.csv of the same release that NVML can read.
COUNTERS = """SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL
MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS
ROW_REMAP_FAILURE""".split()
PROFILING = "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE SM_ACTIVE".split()


def world(tmp_path, count, profile="h100", more=""):
    path = tmp_path / "world.toml"
    path.write_text(f'[[gpu]]\nprofile = "{profile}"\ncount = {count}\n[[gpu.load]]\nkind = "constant"\nlevel = 0.5\n' + more)
    return path


def page(s):
    return s.get("/metrics").text


def series(text):
    return [l.rsplit(" ", 1)[0] for l in text.splitlines() if l and not l.startswith("#")]


def families(text):
    return {l.split("{")[0] for l in series(text)}


def settled(s):
    """Waits for a page that has the figures that need several readings."""
    return s.wait(lambda: (t := page(s)) and "gpuward_energy_joules_total{" in t and "gpuward_gpu_temperature_margin" in t and t)


@pytest.mark.parametrize("count", [1, 8, 64])
def test_the_default_set_is_within_its_bounds(tmp_path, count):
    with Service(world(tmp_path, count)) as s:
        found = series(settled(s))
    per = collections.Counter(m[1] if (m := re.search(r'\bgpu="(\d+)"', l)) else "node" for l in found)
    assert per.pop("node") <= PER_NODE
    assert len(per) == count and max(per.values()) <= PER_GPU
    assert {l.split("{")[0] for l in found} <= DEFAULT


@pytest.mark.parametrize("profile", ["h200", "a100", "rtx4090", "t4", "v100", "k40"])
def test_every_board_is_within_the_bound(tmp_path, profile):
    with Service(world(tmp_path, 1, profile)) as s:
        s.wait(lambda: "gpuward_energy_joules_total{" in page(s))
        assert sum('gpu="0"' in l for l in series(page(s))) <= PER_GPU


def test_a_reload_changes_what_is_served(tmp_path):
    with Service(world(tmp_path, 2), config="[metrics]\n") as s:
        assert families(settled(s)) <= DEFAULT

        def reload(text):
            with open(s.config, "w") as f:
                f.write("[metrics]\n" + text)
            s.child.send_signal(signal.SIGHUP)
        reload('include = ["driver_calls", "gpuward_gpu_cores", "gpuward_gpu_pcie_*"]\nexclude = ["host", "gpuward_gpus"]\n')
        s.wait(lambda: "gpuward_gpu_cores" in page(s))
        names = families(page(s))
        assert {"gpuward_nvml_calls_total", "gpuward_gpu_pcie_replays_total"} <= names
        assert "gpuward_gpus" not in names and not any(n.startswith("gpuward_host_") for n in names)
        # a name has priority over a group, and a group over a pattern
        reload('include = ["gpuward_gpu_power_watts", "ecc"]\nexclude = ["*", "core"]\n')
        s.wait(lambda: "gpuward_up" not in page(s))
        names = families(page(s))
        assert "gpuward_gpu_power_watts" in names and "gpuward_gpu_ecc_mode" in names
        assert all(n == "gpuward_gpu_power_watts" or re.match(r"gpuward_gpu_(ecc|remapped)_", n) for n in names)


def test_everything_is_served_if_asked_for(tmp_path):
    with Service(world(tmp_path, 1), env=EVERY_METRIC) as s:
        s.wait(lambda: "gpuward_gpu_gpm_tensor_active_ratio" in page(s))
        text = settled(s)
    assert len(re.findall(r"^gpuward_gpu_state{", text, re.M)) == 7  # one series per word
    assert {"gpuward_nvml_calls_total", "gpuward_guard_mode", "gpuward_gpu_memory_unattributed_bytes"} <= families(text) <= ALL
    assert "DCGM" not in text


def test_a_family_that_is_not_served_leaves_no_sample_under_another_name(tmp_path):
    def shapes(text):
        """Returns {(name, names of its labels)} of a page."""
        return {(l.split("{")[0], tuple(re.findall(r'[{,](\w+)="', l))) for l in series(text)}
    config = "[metrics]\nprocesses = 4\n"
    process = '[[gpu.process]]\nname = "train"\nmemory = "1 GiB"\n'
    with Service(world(tmp_path, 2, more=process), config=config) as s:
        s.wait(lambda: 'kind="none"' in page(s))
        names, parts = sorted(families(settled(s))), set()
        for some in (names[i:i + 16:2] for i in (*range(0, len(names), 16), *range(1, len(names), 16))):
            with open(s.config, "w") as f:
                f.write(config + f"exclude = {some}\n")
            s.child.send_signal(signal.SIGHUP)
            s.wait(lambda: not families(page(s)) & set(some), 20, lambda: families(page(s)) & set(some))
            parts |= shapes(page(s))
        with open(s.config, "w") as f:
            f.write(config)
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: parts <= shapes(page(s)), 20, lambda: parts - shapes(page(s)))


@pytest.mark.parametrize("word, said", [
    ("healt", 'include: "healt" is neither a metric nor a group of metrics; did you mean "health"?'),
    ("gpuward_gpu_powr_watts", 'did you mean "gpuward_gpu_power_watts"?'),
    ("gpuward_energy_joules", 'did you mean "gpuward_energy_joules_total"?'),
    ("nothing*", 'include: no metric matches "nothing*"; gpuward-metrics(7) lists the names'),
])
def test_a_wrong_word_is_refused_with_a_suggestion(tmp_path, word, said):
    path = tmp_path / "gpuward.toml"
    path.write_text(f'[metrics]\ninclude = ["{word}"]\n')
    done = gpuward("config", "check", path)
    assert done.returncode == 2 and f"{path}:2:1: " in done.stderr and said in done.stderr


def test_the_energy_tier_and_gpm_are_not_read_unless_they_are_needed(tmp_path):
    with Service(world(tmp_path, 1), env={"GPUWARD_METRICS_INCLUDE": "driver_calls"}) as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 3)
        assert "Gpm" not in page(s)
    with Service(world(tmp_path, 1), env={"GPUWARD_METRICS_INCLUDE": "driver_calls", "GPUWARD_METRICS_DCGM": "true"}) as s:
        s.wait(lambda: 'call="nvmlGpmSampleGet"' in page(s))


# ---- the names of dcgm-exporter ----

@pytest.fixture(scope="module")
def dcgm(tmp_path_factory):
    where = tmp_path_factory.mktemp("dcgm")
    with Service(world(where, 2), env={"GPUWARD_METRICS_DCGM": "true", "NODE_NAME": "node-1"}) as s:
        yield s


@pytest.fixture(scope="module")
def prometheus(dcgm, tmp_path_factory):
    with engine.prometheus(tmp_path_factory.mktemp("prometheus"), {"node-1": dcgm.url.split("//")[1]}) as ask:
        yield ask


@pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed")
@pytest.mark.parametrize("metric, shape", DASHBOARD)
def test_a_query_of_the_dcgm_dashboard_returns_data(prometheus, metric, shape):
    # the variables of the dashboard: label_values(DCGM_FI_DEV_GPU_TEMP, instance) and (..., gpu)
    temperatures = eventually(lambda: prometheus.values("DCGM_FI_DEV_GPU_TEMP"), "a scrape")
    instance = "|".join(sorted({m["instance"] for m, _ in temperatures}))
    gpu = "|".join(sorted({m["gpu"] for m, _ in temperatures}))
    assert gpu == "0|1"
    query = shape.format(f'{metric}{{instance=~"{instance}", gpu=~"{gpu}"}}')
    found = eventually(lambda: prometheus.values(query), query)
    assert len(found) == (1 if "(" in shape else 2) and all(v >= 0 for _, v in found)
    assert shape != "{}" or {m["gpu"] for m, _ in found} == {"0", "1"}


def test_units_and_labels_are_those_of_dcgm_exporter(dcgm):
    text = dcgm.wait(lambda: (t := page(dcgm)) and "DCGM_FI_PROF_DRAM_ACTIVE{" in t and
                     'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1"' in t and t)
    rows = {(m[1], m[2]): (m[3], float(m[4])) for m in re.finditer(r'^(DCGM_\w+){gpu="(\d)",(.*)} (\S+)$', text, re.M)}
    assert {n for n, _ in rows} >= {f"DCGM_FI_DEV_{c}" for c in COUNTERS} | {f"DCGM_FI_PROF_{c}" for c in PROFILING}
    own = {m[1]: float(m[2]) for m in re.finditer(r'^(\w+){uuid="[^"]*",gpu="0"} (\S+)$', text, re.M)}
    pairs = [("DEV_POWER_USAGE", "gpu_power_watts", 1), ("DEV_SM_CLOCK", "gpuward_gpu_clock_sm_hertz", 1e-6),
             ("DEV_GPU_UTIL", "gpu_utilization_percent", 1), ("DEV_FB_FREE", "gpu_memory_free_bytes", 2 ** -20),
             ("DEV_GPU_TEMP", "gpu_temperature_celsius", 1),
             ("DEV_TOTAL_ENERGY_CONSUMPTION", "gpuward_energy_joules_total", 1000)]
    for theirs, ours, factor in pairs:
        assert rows["DCGM_FI_" + theirs, "0"][1] == pytest.approx(own[ours] * factor, rel=1e-6), theirs
    assert 0 < rows["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0"][1] <= 1
    labels = dict(re.findall(r'(\w+)="([^"]*)"', rows["DCGM_FI_DEV_GPU_TEMP", "1"][0]))
    assert list(labels) == ["UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname", "DCGM_FI_DRIVER_VERSION"]
    assert labels["UUID"].startswith("GPU-") and labels["device"] == "nvidia1" and labels["modelName"].startswith("NVIDIA H100")
    assert re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0", labels["pci_bus_id"])
    assert labels["Hostname"] == labels["hostname"] == "node-1"


def test_memory_is_per_instance_and_energy_once_per_board():
    with Service("mig", env={"GPUWARD_METRICS_DCGM": "true"}) as s:
        text = s.wait(lambda: (t := page(s)) and "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{" in t and t)
    used = re.findall(r'^DCGM_FI_DEV_FB_USED{gpu="(\d+)",.*GPU_I_PROFILE="([^"]+)",GPU_I_ID="(\d+)"}', text, re.M)
    assert used and len(used) == len(set(used)) == len(re.findall(r"^gpuward_mig_memory_used_bytes{", text, re.M))
    boards = re.findall(r'^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="(\d+)"', text, re.M)
    assert len(boards) == len(set(boards))


def test_a_profiling_value_that_cannot_be_read_is_absent(tmp_path):
    with Service(world(tmp_path, 1, "a100"), env={"GPUWARD_METRICS_DCGM": "true"}) as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 3)
        assert "DCGM_FI_DEV_GPU_TEMP{" in page(s) and "DCGM_FI_PROF" not in page(s)


# ---- failed initialisations ----

@pytest.mark.deep
def test_a_driver_that_fails_and_then_works_is_counted_per_failure(tmp_path):
    fault = Fault(tmp_path, "code = 9", "nvmlInit_v2")
    config = "[service]\ninterval = '100ms'\n[metrics]\ninclude = ['driver_calls']\n"
    value = lambda text, name: float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])  # noqa: E731
    with fault:
        s = Service(world(tmp_path, 1, more=fault.text), config=config)
        s.start(ready=False)
        s.wait(lambda: value(page(s), "nvml_init_failures_total") >= 4)
    try:
        s.wait(lambda: "gpuward_nvml_up 1" in page(s))
        failures = value(page(s), "nvml_init_failures_total")
        tried = sum(float(v) for v in re.findall(r'^gpuward_nvml_call_errors_total{call="nvmlInit\w*"} (\S+)$', page(s), re.M))
        assert failures == tried
        ticks = s.get("/api/v1/self").json()["ticks"]
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > ticks + 5)
        assert value(page(s), "nvml_init_failures_total") == value(page(s), "gpuward_nvml_init_failures_total") == failures
    finally:
        s.__exit__()
