"""Tests which workloads use the GPUs, how much energy is charged to them, and that the sum is the counter of the
GPU."""
import json
import math
import os
import re
import signal
import sqlite3

import pytest
import requests

from machine_tree import GPU, Machine
from support import gpuward, wait

PARTS = ("workloads_joules", "idle_joules", "unattributed_joules", "former_joules", "earlier_joules")
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0.slice/" \
      "cri-containerd-" + "ab" * 32 + ".scope"
HOSTILE = "evil\x1b[31m\"<img src=x onerror=alert(1)>\\\n{}"


def workloads(s):
    """Returns the document. Checks that the parts of each GPU add up; the rows are one of the parts."""
    doc = s.get("/api/v1/workloads").json()
    for gpu in doc["devices"]:
        if gpu["energy_joules_total"] is None:
            continue
        assert math.isclose(sum(gpu[k] for k in PARTS), gpu["energy_joules_total"], rel_tol=1e-9, abs_tol=1e-6), gpu
        rows = [d["energy_joules"] or 0 for w in doc["workloads"] for d in w["devices"]
                if d["device_index"] == gpu["device_index"]]
        assert math.isclose(sum(rows), gpu["workloads_joules"], rel_tol=1e-9, abs_tol=1e-6)
    return doc


def named(s, name):
    return next((w for w in workloads(s)["workloads"] if w["name"] == name), None)


def joules(s, name):
    w = named(s, name)
    return (w or {}).get("energy_joules") or 0


def series(s, family):
    """Returns {labels: value} of a metric."""
    found = re.findall(r"^%s\{(.*)\} (\S+)$" % family, s.get("/metrics").text, re.M)
    return {labels: float(v) for labels, v in found}


def counters(s):
    return {(family, labels): v for family in ("gpuward_workload_energy_joules_total", "gpuward_workload_gpu_seconds_total")
            for labels, v in series(s, family).items()}


def metrics_close(s):
    """Checks that the series of each GPU add up to its energy. One page has both, so they belong to one reading."""
    text = s.get("/metrics").text
    totals = dict(re.findall(r'^gpuward_energy_joules_total\{uuid="([^"]*)".*\} (\S+)$', text, re.M))
    for uuid, total in totals.items():
        rows = re.findall(r'^gpuward_workload_energy_joules_total\{uuid="%s".*\} (\S+)$' % uuid, text, re.M)
        assert math.isclose(sum(map(float, rows)), float(total), rel_tol=1e-6, abs_tol=1e-3), rows
    return totals


def test_each_workload_is_charged_and_the_sum_is_the_counter(tmp_path):
    m = Machine(tmp_path).process(5001, "/system.slice/llm.service", "share = 0.5").process(5002, POD, "share = 0.25")
    m.process(5003, "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "share = 0.25")
    m.process(5004, "/", "share = 0.0").text += GPU + '[[gpu.process]]\npid = 5001\nmemory = "1 GiB"\n'
    with m.serve() as s:
        wait(lambda: joules(s, "llm.service") > 50 and joules(s, "4711") > 10, "energy")
        doc = workloads(s)
        kinds = {w["kind"]: w for w in doc["workloads"]}
        assert set(kinds) == {"unit", "kubernetes", "slurm", "none"}
        unit = kinds["unit"]
        assert unit["state"] == "running" and unit["simulated"] and unit["user"] and unit["end_utc"] is None
        assert [d["device_index"] for d in unit["devices"]] == [0, 1]
        assert unit["devices"][0]["energy_method"] == "modelled"
        assert unit["devices"][0]["split_uncertainty_ratio"] is None
        assert unit["devices"][0]["absent"]["split_uncertainty_ratio"] == "shared_gpu"
        # the unit is alone on the second GPU, so its share is the whole counter
        alone = unit["devices"][1]
        assert alone["energy_method"] == "measured" and alone["split_uncertainty_ratio"] == 0
        assert alone["energy_low_joules"] == pytest.approx(alone["energy_joules"]) == alone["energy_high_joules"]
        for w in doc["workloads"]:
            assert w["energy_low_joules"] <= w["energy_joules"] * 1.000001 <= w["energy_high_joules"] * 1.00001
            assert w["memory_bytes"] == w["processes"] << 30 and w["gpu_seconds"] > 0
        assert kinds["slurm"]["id"] == "4711" and kinds["slurm"]["part"]
        p = next(p for p in s.get("/api/v1/processes").json()["processes"] if p["pid"] == 5003)
        assert p["workload"]["kind"] == "slurm" and p["workload"]["id"] == "4711"
        metrics_close(s)
        with requests.get(s.url + "/api/v1/events?topics=tick", headers={"Accept": "text/event-stream"}, stream=True,
                          timeout=30) as r:
            tick = next(json.loads(x[6:]) for x in r.iter_lines(decode_unicode=True) if x.startswith("data: "))
        assert {(w["kind"], w["device_index"]) for w in tick["workloads"]} == \
            {("unit", 0), ("unit", 1), ("kubernetes", 0), ("slurm", 0), ("none", 0)}


def test_a_process_that_changes_its_group_is_charged_to_the_new_workload(tmp_path):
    m = Machine(tmp_path).process(5001, "/system.slice/old.service")
    with m.serve() as s:
        wait(lambda: joules(s, "old.service") > 20, "energy")
        m.move(5001, "/system.slice/new.service")
        wait(lambda: joules(s, "new.service") > 20, "energy of the new workload")
        old = named(s, "old.service")
        assert old["state"] == "ended" and old["energy_joules"] > 20
        s.ticks(2)
        assert named(s, "old.service")["energy_joules"] == old["energy_joules"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.deep
def test_counters_continue_and_the_sum_closes_after_a_restart(tmp_path, how):
    m = Machine(tmp_path).process(5001, "/system.slice/a.service").process(5002, "/system.slice/b.service", "until = 6")
    with m.serve("[workloads]\nkeep_s = 4\n") as s:
        wait(lambda: joules(s, "b.service") > 0 and joules(s, "a.service") > 50, "energy")
        before = counters(s)
        s.ticks(2)
        total = workloads(s)["devices"][0]["energy_joules_total"]
        s.restart(how)
        wait(lambda: (workloads(s)["devices"][0]["energy_joules_total"] or 0) > total, "more energy")
        metrics_close(s)
        after = counters(s)
        assert len(before) > 4 and {k: (v, after[k]) for k, v in before.items() if after[k] < v} == {}
        # an ended workload is stored once, with its energy, and stays in the sum
        job = wait(lambda: next((w for w in s.get("/api/v1/workloads/history").json()["workloads"]
                                 if w["name"] == "b.service"), None), "the end of b")
        wait(lambda: named(s, "b.service") is None, "b to be stored")
        assert workloads(s)["devices"][0]["former_joules"] >= job["energy_joules"] * 0.999999
        s.restart()
        stored = s.wait(lambda: s.get("/api/v1/workloads/history?name=b*&kind=unit&since=-1h").json()["workloads"])
        assert len(stored) == len({w["begin_utc"] for w in stored}) >= 1
        assert stored[0]["state"] == "ended" and stored[0]["end_utc"] and stored[0]["simulated"]
        workloads(s)


def test_gpuward_jobs_lists_ended_and_running_workloads(tmp_path):
    m = Machine(tmp_path).process(5001, "/system.slice/long-running-inference-server-of-a-team.service")
    m.process(5002, "/system.slice/short.service", "until = 4")
    with m.serve("[workloads]\nkeep_s = 1\n[energy]\nprice_per_kwh = 0.3\nprice_currency = \"EUR\"\n") as s:
        at = ("--address", s.url.split("//")[1])
        wait(lambda: any(w["name"] == "short.service" and w["state"] == "ended"
                         for w in json.loads(gpuward("jobs", *at, "--json").stdout)["workloads"]), "an ended workload")
        for width in ("80", "160"):
            out = gpuward("jobs", *at, env={"COLUMNS": width}).stdout
            assert all(len(line) <= int(width) for line in out.splitlines()), out
            table = out.splitlines()
            assert "SIMULATED" in table[0] and "short" in table[2] and "running" in table[3]
            assert "EUR" in out and "% of the" in out and "unattributed" in out
        assert "short" not in gpuward("jobs", *at, "--running").stdout
        assert "short" in gpuward("jobs", *at, "--name", "sh?rt*", "--since", "1h").stdout
        assert gpuward("jobs", *at, "--kind", "slurm").stdout.splitlines()[1].startswith("No workload")
        bad = gpuward("jobs", *at, "--kind", "slrum")
        assert bad.returncode == 2 and "did you mean 'slurm'" in bad.stderr
        assert "is not a time" in gpuward("jobs", *at, "--since", "yesterday").stderr


def test_hostile_names_are_harmless_in_every_view(tmp_path):
    m = Machine(tmp_path).process(5001, f"/system.slice/{HOSTILE.splitlines()[0]}.service")
    with m.serve() as s:
        wait(lambda: any(w["energy_joules"] for w in workloads(s)["workloads"]), "energy")
        text = s.get("/metrics").text
        assert "\x1b" not in text.replace("\\x1b", "")
        for line in text.splitlines():
            if line.startswith("gpuward_workload"):
                assert re.fullmatch(r'\w+\{(\w+="(\\.|[^"\\])*",?)*\} \S+', line), line
        out = gpuward("jobs", "--address", s.url.split("//")[1])
        assert out.returncode == 0 and "\x1b" not in out.stdout
        metrics_close(s)


@pytest.mark.deep
def test_many_short_jobs_keep_the_history_and_the_labels_bounded(tmp_path):
    m = Machine(tmp_path)
    for k in range(60):
        m.process(6000 + k, f"/system.slice/job{k}.service", f"share = 0.01\nfrom = {k * 0.2:.1f}\nuntil = {k * 0.2 + 3:.1f}")
    with m.serve("[workloads]\nkeep_s = 1\nhistory = 10\n[service]\ninterval = \"200ms\"\n") as s:
        seen = set()

        def done():
            page = series(s, "gpuward_workload_gpu_seconds_total")
            assert len(page) <= 20
            seen.update(page)
            metrics_close(s)
            doc = workloads(s)
            return len(seen) > 20 and not doc["workloads"]
        wait(done, "the end of all jobs")
        s.wait(lambda: len(s.get("/api/v1/workloads/history").json()["workloads"]) == 10)
        with sqlite3.connect(f"file:{s.state}?mode=ro", uri=True) as db:
            wait(lambda: db.execute("SELECT count(*) FROM document WHERE kind='workload'").fetchone()[0] == 10, "the limit")
        assert os.path.getsize(s.state) < 1 << 20


@pytest.mark.deep
def test_a_hundred_thousand_stored_workloads_are_searched_in_part(tmp_path):
    m = Machine(tmp_path).process(5001, "/system.slice/a.service", "until = 1")
    with m.serve("[workloads]\nkeep_s = 1\nhistory = 100000\n") as s:
        def history(query):
            return s.get(f"/api/v1/workloads/history?{query}").json()
        row = wait(lambda: not workloads(s)["workloads"] and history("")["workloads"], "a stored workload")[0]
        s.stop()
        with sqlite3.connect(s.state) as db:
            db.executemany("INSERT INTO document(kind, id, json) VALUES('workload', ?, ?)", (
                (f"{1700000000000 + k:016}-slurm-{k:016x}",
                 json.dumps({**row, "kind": "slurm", "id": str(k), "name": f"job{k}"}, separators=(",", ":")))
                for k in range(99_999)))
        s.start()
        wait(lambda: s.get("/api/v1/workloads/history").status_code == 200, "the first reading")
        doc = history("kind=slurm&limit=5000")
        assert [w["name"] for w in doc["workloads"]] == [f"job{k}" for k in range(94_999, 99_999)]
        assert doc["left_out"] == 94_999 and not doc["truncated"] and doc["remedy"] is None
        doc = history("name=job9999*&limit=2")
        assert [w["name"] for w in doc["workloads"]] == ["job99997", "job99998"] and doc["left_out"] == 7
        assert doc["truncated"] and "since" in doc["remedy"]
        assert history("name=job7")["workloads"] == []
        assert [w["name"] for w in history("kind=unit")["workloads"]] == [row["name"]]
        assert "5000" in s.get("/api/v1/workloads/history?limit=5001").json()["detail"]
        out = gpuward("jobs", "--address", s.url.split("//")[1], "--name", "job7").stdout
        assert "No workload matches" in out and "later --since" in out
