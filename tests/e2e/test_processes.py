"""Tests the figures of each process: utilisation, CPU, run time, energy and history, in every document that lists
processes."""
import json
import math
import re
import socket
import subprocess
import sys

import pytest
import requests

from service import Service
from support import OK, SIMULATOR, document, environment, gpuward, wait

PARTS = ("earlier_joules", "processes_joules", "former_processes_joules", "idle_joules", "unattributed_joules")
GPU = """
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "constant"
level = 0.5
"""


def scenario(tmp_path, *processes, head=GPU):
    path = tmp_path / "scenario.toml"
    path.write_text(head + "".join(f"[[gpu.process]]\n{p}\n" for p in processes))
    return path


def closes(doc):
    """Checks that the energy of each GPU is the sum of its parts; the energy of the listed processes is one part."""
    for part in doc["device_energy"]:
        total = part["energy_joules_total"]
        if total is None:
            continue
        assert math.isclose(sum(part[k] or 0 for k in PARTS), total, rel_tol=1e-9)
        mine = [p["energy_joules"] for p in doc["processes"] if p["device_index"] == part["device_index"]]
        assert math.isclose(sum(e or 0 for e in mine), part["processes_joules"], rel_tol=1e-9, abs_tol=1e-6)
    return doc


def processes(s):
    return closes(s.get("/api/v1/processes").json())


def named(doc, name):
    return next((p for p in doc["processes"] if p["name"] == name), None)


def utilisation_calls(s):
    calls = s.get("/api/v1/self").json()["calls"]
    return sum(c["count"] for c in calls if c["name"] == "nvmlDeviceGetProcessUtilization")


def test_the_energy_of_a_gpu_is_shared_among_its_processes(tmp_path):
    world = scenario(tmp_path, 'name = "long"\nmemory = "8 GiB"\nshare = 0.75',
                     'name = "short"\nmemory = "1 GiB"\nshare = 0.25\nuntil = 8')
    with Service(world) as s:
        wait(lambda: (p := named(processes(s), "short")) and (p["energy_joules"] or 0) > 0 and p["power_watts"], "energy")
        doc = processes(s)
        long, short = named(doc, "long"), named(doc, "short")
        assert long["energy_method"] == short["energy_method"] == "modelled"
        assert long["power_watts"] / short["power_watts"] == pytest.approx(3, rel=0.1)
        assert long["utilization_sm_ratio"] == pytest.approx(0.375, abs=0.05)
        # The driver lists both processes, but /proc does not have them, as if they were in another pid namespace.
        assert long["orphan"] and set(long["absent"].values()) == {"no_data"} and {"cpu_used_cores", "uid", "unit"} < set(long["absent"])
        wait(lambda: named(processes(s), "short") is None, "the end of a process")
        doc = processes(s)
        assert doc["device_energy"][0]["former_processes_joules"] >= short["energy_joules"]
        assert named(doc, "long")["energy_joules"] > long["energy_joules"]
        before = doc["device_energy"][0]["energy_joules_total"]
        s.restart()
        wait(lambda: (processes(s)["device_energy"][0]["energy_joules_total"] or 0) > before, "more energy")
        assert processes(s)["device_energy"][0]["earlier_joules"] >= before


def test_utilisation_is_read_only_while_someone_looks(tmp_path):
    world = scenario(tmp_path, 'name = "alone"\nmemory = "8 GiB"')
    s = Service(world, config='[guard]\nunknown = "watch"\n')  # otherwise the guard reads the utilisation
    s.start(ready=False)
    try:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] >= 4)
        assert utilisation_calls(s) == 0
        alone = named(processes(s), "alone")  # the first answer already has the figure
        assert alone["utilization_sm_ratio"] is not None
        assert utilisation_calls(s) > 0
        # A process that is alone on its GPU gets all energy; no utilisation is needed for that.
        wait(lambda: (named(processes(s), "alone")["energy_joules"] or 0) > 0, "energy")
        assert named(processes(s), "alone")["energy_method"] == "measured"
    finally:
        s.__exit__()


def test_the_stream_the_history_and_the_metrics_have_the_figures(tmp_path):
    world = scenario(tmp_path, 'name = "one"\nmemory = "8 GiB"\nshare = 0.5', 'name = "two"\nmemory = "1 GiB"\nshare = 0.5')
    with Service(world, config="[metrics]\nprocesses = 1\n") as s:
        wait(lambda: named(processes(s), "one")["power_watts"], "power")
        with requests.get(s.url + "/api/v1/events?topics=tick", headers={"Accept": "text/event-stream"}, stream=True,
                          timeout=30) as r:
            tick = next(json.loads(line[6:]) for line in r.iter_lines(decode_unicode=True) if line.startswith("data: "))
        assert [p["memory_bytes"] for p in tick["processes"]] == [8 << 30, 1 << 30]
        assert all(p["energy_joules"] > 0 and p["utilization_sm_ratio"] > 0 for p in tick["processes"])

        def past():
            rows = s.get("/api/v1/processes/history").json()["processes"]
            return rows and any(rows[0]["power_watts"]) and rows
        first = wait(past, "history")[0]
        assert first["name"] == "one" and first["memory_bytes"][-1] == 8 << 30
        assert len({len(first[k]) for k in ("time", "memory_bytes", "utilization_sm_ratio", "power_watts")}) == 1
        assert s.get("/api/v1/processes/history?gpu=7").status_code == 404

        text = s.get("/metrics").text
        for family in ("memory_bytes", "utilization_sm_ratio", "power_watts", "energy_joules"):
            found = [x for x in text.splitlines() if x.startswith(f"gpuward_process_{family}{{")]
            assert len(found) == 2 and 'name="one"' in found[0] and 'name="other"' in found[1], found


def test_metrics_have_no_processes_unless_they_are_configured():
    with Service("two-gpus") as s:
        assert "gpuward_process_" not in s.get("/metrics").text


def test_a_real_process_has_cpu_run_time_and_a_row_of_its_own(tmp_path):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        world = scenario(tmp_path, f'pid = {busy.pid}\nmemory = "1 GiB"')
        with Service(world) as s:
            mine = wait(lambda: next((p for p in processes(s)["processes"] if (p["cpu_used_cores"] or 0) > 0), None), "CPU")
            assert mine["pid"] == busy.pid and mine["cpu_used_cores"] < 1.5 and mine["run_seconds"] > 0
            assert not mine["orphan"] and "cpu_used_cores" not in mine["absent"]
    finally:
        busy.kill()
        busy.wait()


def test_thousands_of_processes_keep_the_sum_and_the_memory_bounded(tmp_path):
    world = scenario(tmp_path, *(f'name = "job{i}"\nmemory = "1 MiB"\ncount = {n}\nshare = 0.02' for i, n in enumerate((9, 9, 9, 9, 1900, 1900))))
    with Service(world, config="[metrics]\nprocesses = 3\n") as s:
        wait(lambda: any(p["energy_joules"] for p in processes(s)["processes"]), "energy")
        doc = processes(s)
        kept = [p for p in doc["processes"] if p["energy_joules"] is not None]
        assert len(doc["processes"]) >= 900 and len(kept) == 63
        assert {p["absent"]["energy_joules"] for p in doc["processes"] if p["energy_joules"] is None} == {"too_many"}
        assert len(s.get("/api/v1/processes/history").json()["processes"]) == 16
        closes(doc)
        shown = lambda: [x for x in s.get("/metrics").text.splitlines() if x.startswith("gpuward_process_energy_joules{")]
        wait(shown, "energy in the metrics")
        lines = shown()
        assert len(lines) == 3 and all(float(x.rpartition(" ")[2]) > 0 for x in lines), lines


def test_odd_names_are_harmless_in_every_view(tmp_path):
    name = r'name = "\u001b]0;evil\u0007\"} 1\n#<b>"' + '\nmemory = "1 GiB"'
    world = scenario(tmp_path, name)
    table = gpuward("snapshot", f"--simulate={world}").stdout
    assert "\x1b]" not in table and "\x07" not in table and "<b>" in table
    with Service(world, config="[metrics]\nprocesses = 3\n") as s:
        shown = processes(s)["processes"][0]["name"]
        assert "\x1b" not in shown and "\x07" not in shown and "evil" in shown
        wait(lambda: s.get("/api/v1/processes/history").json()["processes"], "history")
        assert s.get("/api/v1/processes/history").json()["processes"][0]["name"] == shown
        lines = [x for x in s.get("/metrics").text.splitlines() if x.startswith("gpuward_process_memory_bytes{")]
        assert len(lines) == 2 and r'\"} 1' in lines[0]


def test_a_snapshot_shows_mig_instances_with_their_processes():
    text = gpuward("snapshot", "--simulate=mig").stdout
    assert "MIG 3g.71gb  40.0 GiB / 69.0 GiB          1" in text
    assert "MIG 1g.18gb       0 B / 16.0 GiB          0" in text
    doc = document("snapshot", "--simulate=mig")
    serve = named(doc, "serve")
    assert {m["gpu_instance"]: len(m["pids"]) for m in doc["devices"][0]["mig_devices"]} == {1: 1, 5: 1, 9: 0}
    assert doc["devices"][0]["mig_devices"][0]["pids"] == [serve["pid"]] and serve["gpu_instance"] == 1
    assert serve["absent"]["utilization_sm_ratio"] == "not_supported"
    assert serve["absent"]["energy_joules"] == "needs_service"
    with Service("mig") as s:
        s.wait(lambda: processes(s)["device_energy"][0]["unattributed_joules"])
        assert named(processes(s), "serve")["absent"]["energy_joules"] == "not_supported"


def test_a_snapshot_has_the_energy_of_processes_if_a_service_runs(tmp_path):
    world = scenario(tmp_path, 'name = "long"\nmemory = "8 GiB"\nshare = 0.75', 'name = "short"\nmemory = "1 GiB"\nshare = 0.25')
    with Service(world) as s:
        wait(lambda: (p := named(processes(s), "long")) and (p["energy_joules"] or 0) > 1 and p["power_watts"], "energy")
        before = named(processes(s), "long")["energy_joules"]
        # As with real GPUs, no option says where the figures come from.
        env = environment(LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=world, GPUWARD_ADDRESS=s.url)
        long = named(document("snapshot", env=env), "long")
        assert long["energy_joules"] >= before and long["power_watts"] > 0 and long["energy_method"] == "modelled"
        assert long["workload"]["kind"] == "none" and not {"energy_joules", "workload"} & set(long["absent"])
        text = gpuward("snapshot", env=env).stdout
        assert re.search(r"SM +MEMORY +ENERGY", text) and re.search(r"8\.0 GiB +[0-9.]+ k?J ", text), text
        # The service does not know this process.
        other = scenario(tmp_path, 'pid = 4000077\nname = "other"\nmemory = "8 GiB"')
        unknown = named(document("snapshot", env=env | {"GPUWARD_SIM": str(other)}), "other")
        assert unknown["workload"] is None and unknown["absent"]["workload"] == "needs_service"
        for option in ("--direct", "--simulate=h200"):
            assert document("snapshot", option, env=env)["processes"][0]["absent"]["energy_joules"] == "needs_service"


def test_a_snapshot_does_not_need_the_service(tmp_path):
    world = scenario(tmp_path, 'name = "long"\nmemory = "8 GiB"')
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, never replies
        port = silent.getsockname()[1]
        for address in (f"127.0.0.1:{port}", "127.0.0.1:1", f"unix:{tmp_path}/none", "https://127.0.0.1", "?"):
            r = gpuward("snapshot", "--json", env=environment(LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=world,
                                                                GPUWARD_ADDRESS=address))
            assert r.returncode == OK and r.stderr == "", (address, r)
            long = named(json.loads(r.stdout), "long")
            assert long["absent"]["energy_joules"] == "needs_service" and long["memory_bytes"] == 8 << 30


def test_cpu_is_in_a_snapshot_when_it_is_asked_for(tmp_path):
    world = scenario(tmp_path, 'pid = "self"\nmemory = "1 GiB"')
    plain, asked = (document("snapshot", f"--simulate={world}", *more) for more in ([], ["--cpu"]))
    assert plain["processes"][0]["absent"]["cpu_used_cores"] == "needs_two_readings"
    assert asked["host"]["cpu_utilization_ratio"] is not None
    assert asked["processes"][0]["cpu_used_cores"] > 0
    assert asked["processes"][0]["utilization_sm_ratio"] > 0


@pytest.mark.parametrize("length, shown", [(240, True), (270, False)])
def test_a_long_control_group_is_cut_between_two_names(tmp_path, length, shown):
    middle = "x" * 200 + "/" + "y" * length
    path = f"/{middle}/job_123456789"
    folder = tmp_path / "proc/4242"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\nTgid:\t4242\nUid:\t0\t0\t0\t0\n")
    (folder / "stat").write_text("4242 (x) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2000\n")
    (folder / "cgroup").write_text(f"0::{path}{'' if shown else '0' * 40}\n")
    world = scenario(tmp_path, 'pid = 4242\nmemory = "1 GiB"')
    doc = json.loads(gpuward("snapshot", "--json", f"--simulate={world}", "--root", str(tmp_path)).stdout)
    assert doc["processes"][0]["cgroup"] == (path if shown else "/" + middle)


def test_every_value_of_a_process_that_is_null_has_a_reason(tmp_path):
    world = scenario(tmp_path, 'pid = 4000000\nmemory = "1 GiB"')
    hidden, = document("snapshot", f"--simulate={world}")["processes"]
    missing = {k for k, v in hidden.items() if v is None} - {"memory_absent", "energy_method"}
    assert missing == set(hidden["absent"]) >= {"start_ticks", "command", "uid", "user", "cgroup", "container", "unit"}
    world = scenario(tmp_path, 'pid = "self"\nmemory = "1 GiB"')
    seen, = document("snapshot", f"--simulate={world}")["processes"]
    assert seen["cgroup"] and not {"start_ticks", "command", "uid", "container", "unit"} & set(seen["absent"])
