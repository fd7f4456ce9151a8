"""Tests the guard over HTTP in a running service: documents, requests, operations, simulation and metrics.

GPUWARD_EXAMPLES=DIR writes the answers there, as examples of /openapi.json (see api_examples.py).
"""
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest
import requests
from prometheus_client import parser

import guarded
from guarded import held, rule
from service import EVERY_METRIC, Service
from support import TIMEOUT
from worker import GIB

GUARD = "/api/v1/guard"
OLLAMA = GUARD + "/workers/ollama"
ROOMS = GUARD + "/reservations"
SIMULATE = GUARD + "/simulate"
FREED = {"worker": "ollama", "level": "2", "result": "freed"}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with guarded.service(tmp_path_factory.mktemp("guard"), env=EVERY_METRIC) as s:
        yield guarded.ready(s)


@pytest.fixture
def calm(live):
    """Removes holds and reservations of earlier tests."""
    assert live.post(OLLAMA + "/release", token=True).status_code == 202
    for room in live.get(GUARD).json()["reservations"]:
        assert live.ask("DELETE", ROOMS + "/" + room["id"], token=True).status_code == 204
    return live


def worker(s):
    return s.get(OLLAMA).json()


def metrics(s):
    """Returns {(name, labels as a frozen set): value} of /metrics."""
    families = parser.text_string_to_metric_families(s.get("/metrics").text)
    return {(x.name, frozenset(x.labels.items())): x.value for f in families for x in f.samples}


def metric(s, name, **labels):
    found = [v for (n, l), v in metrics(s).items() if n == name and labels.items() <= dict(l).items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def simulated(s, status=200, **body):
    got = s.post(SIMULATE, token=True, json=body)
    assert got.status_code == status, got.text
    return got.json()


def test_the_guard_shows_its_mode_and_its_workers(calm):
    doc = calm.get(GUARD).json()
    assert (doc["mode"], doc["journal"]) == ("enforce", "ok")
    assert [w["name"] for w in doc["workers"]] == ["ollama"]
    assert doc["workers"][0]["resident_bytes"] == 4 * GIB
    assert doc["looked_seconds"] < TIMEOUT
    assert doc["decisions"][0]["to"] == "active"
    # the counter is shown when the store has written it
    calm.wait(lambda: calm.get(GUARD).json()["counts"]["looks_total"] > 0)


def test_limit_bounds_the_decisions(calm):
    assert calm.get(GUARD + "?limit=0").json()["decisions"] == []
    assert len(calm.get(GUARD + "?limit=1").json()["decisions"]) == 1
    assert calm.get(GUARD + "?limit=129").status_code == 400


def test_a_gpu_shows_each_process_with_class_and_rule(calm):
    doc = calm.get(GUARD + "/gpus/0").json()
    by_name = {p["name"]: p for p in doc["processes"]}
    assert by_name["ollama"]["class"] == "worker" and by_name["ollama"]["worker"] == "ollama"
    assert by_name["Xorg"]["class"] == "system" and "Xorg" in by_name["Xorg"]["rule"]
    held = sum(p["memory_bytes"] for p in doc["processes"])
    assert held + doc["unattributed_bytes"] == doc["memory_used_bytes"]
    assert doc["total_memory_mb"] == round(doc["memory_total_bytes"] / 2**20)
    assert doc["gpu_vram_gb"] == pytest.approx(doc["memory_total_bytes"] / 2**30, abs=0.01)
    assert doc["available_bytes"] == doc["memory_free_bytes"] - doc["headroom_bytes"]


def test_a_name_that_is_nearly_right_is_suggested(calm):
    got = calm.get(GUARD + "/workers/olama")
    assert got.status_code == 404 and '"ollama"' in got.json()["detail"]


def test_explain_shows_rule_timers_and_overrides(calm):
    said = calm.get(GUARD + "/explain?worker=ollama").json()["workers"][0]["sentences"]
    assert any("No override is active" in x for x in said)
    calm.post(OLLAMA + "/hold", token=True, json={"state": "active", "ttl_s": 500})
    doc = calm.get(GUARD + "/explain").json()["workers"][0]
    said = " ".join(doc["sentences"])
    assert "held active for" in said and "Last decision" in said
    assert 400 < doc["hold_until_seconds"] <= 500


def test_health_shows_level_and_margin(calm):
    doc = calm.get("/api/v1/health").json()
    gpu = calm.get("/api/v1/health/gpus/0").json()
    assert doc["level"] == gpu["level"] == "ok" and gpu["quarantine"] is False
    assert gpu["margin_celsius"] > 0 and gpu["margin_source"] == "margin"
    now = calm.get("/api/v1/snapshot").json()["devices"][0]["temperature_gpu_celsius"]
    assert abs(now + gpu["margin_celsius"] - 2 - gpu["evict_at_celsius"]) <= 3
    assert gpu["xids_total"] == 0 and gpu["last_xid"] is None


def test_capacity_has_its_metrics(calm):
    calm.wait(lambda: any(name == "gpuward_capacity_available_min_bytes" for name, _ in metrics(calm)))
    gpu = calm.get("/api/v1/capacity?gpu=0").json()["gpus"][0]
    assert metric(calm, "gpuward_capacity_available_bytes") == gpu["available_bytes"]
    assert metric(calm, "gpuward_capacity_headroom_bytes") == gpu["headroom_bytes"] > 0
    assert metric(calm, "gpuward_capacity_reserved_bytes") == gpu["reserved_bytes"]
    assert metric(calm, "gpuward_capacity_available_min_bytes") <= gpu["total_bytes"]
    assert metric(calm, "gpuward_capacity_evictable_bytes") == sum(w["bytes"] for w in gpu["workers"] if w["movable"])


def test_capacity_is_free_less_what_is_kept_back(calm):
    gpu = calm.get("/api/v1/capacity?gpu=0").json()["gpus"][0]
    assert gpu["available_bytes"] == gpu["free_bytes"] - gpu["headroom_bytes"] - gpu["reserved_bytes"]
    calm.wait(lambda: calm.get("/api/v1/capacity").json()["gpus"][0]["past"]["last_10m"] is not None)
    past = calm.get("/api/v1/capacity").json()["gpus"][0]["past"]["last_10m"]
    assert past["min_bytes"] <= past["mean_bytes"] <= past["max_bytes"] <= gpu["total_bytes"]


@pytest.mark.parametrize("gib,fit,evict", [(1, "now", []), (20, "after-eviction", ["ollama"]), (90, "never", [])])
def test_fit(calm, gib, fit, evict):
    doc = calm.get(f"/api/v1/capacity/fit?bytes={gib * GIB}").json()
    assert doc["fit"] == doc["placement"][0]["fit"] == fit
    assert doc["placement"][0]["evict"] == evict and doc["placement"][0]["why"]
    assert (doc["uuid"] is None) == (fit == "never")


def test_a_hold_is_shown_and_released(calm):
    got = calm.post(OLLAMA + "/hold", token=True, json={"state": "active", "ttl_s": 0, "reason": "a demo"})
    assert got.status_code == 202 and got.json()["hold"] == "active" and got.json()["replaced_hold"] is None
    again = calm.post(OLLAMA + "/hold", token=True, json={"state": "active", "ttl_s": 500}).json()["replaced_hold"]
    assert again == {"hold": "active", "hold_until_utc": None, "hold_until_seconds": None}
    again = calm.post(OLLAMA + "/hold", token=True, json={"state": "active", "ttl_s": 0, "reason": "a demo"}).json()["replaced_hold"]
    assert again["hold"] == "active" and 0 < again["hold_until_seconds"] <= 500 and again["hold_until_utc"]
    assert got.json()["hold_until_seconds"] is None  # without end
    assert calm.post(OLLAMA + "/evict", token=True).status_code == 409
    assert any("a demo" in e["text"] for e in calm.get(GUARD + "/events").json()["events"])
    calm.wait(lambda: metric(calm, "gpuward_guard_hold", hold="active") == 1)
    assert calm.post(OLLAMA + "/release", token=True).json()["hold"] == "none"


@pytest.mark.parametrize("verb,body", [
    ("hold", {}), ("hold", {"ttl_s": -1}), ("hold", {"ttl_s": 1, "state": "gone"}), ("evict", {"ttl_s": "1h"}),
    ("evict", {"force": True}), ("resume", {"force": 1}), ("resume", {"ttl_s": 5}), ("release", {"state": "active"}),
    ("evict", {"why": "x"}), ("evict", {"reason": "x" * 121})])
def test_an_invalid_guard_request_is_refused_and_changes_nothing(calm, verb, body):
    before = worker(calm)
    got = calm.post(f"{OLLAMA}/{verb}", token=True, json=body)
    assert got.status_code == 400 and len(got.json()["detail"]) > 10
    assert (worker(calm)["hold"], worker(calm)["mask"]) == (before["hold"], before["mask"])


def test_without_the_token_nothing_can_be_changed(calm):
    for verb in ("evict", "resume", "hold", "release"):
        assert calm.post(f"{OLLAMA}/{verb}", json={"ttl_s": 5}).status_code == 401
    assert calm.post(ROOMS, json={"bytes": 1}).status_code == 401
    assert worker(calm)["hold"] == "none" and calm.get(GUARD).json()["reservations"] == []


def test_an_eviction_by_hand_is_begun_and_counted(tmp_path):
    with guarded.leaving(tmp_path, 4 * GIB) as s:
        others = metric(s, "gpu_other_processes_count")
        assert others == 1  # Xorg, not the worker
        got = s.post(OLLAMA + "/evict", token=True, json={"reason": "a test"})
        assert got.status_code == 202 and got.json()["mask"] == ["manual"]
        assert got.headers["Location"] == f"{GUARD}/operations/{got.json()['operation']['id']}"
        s.wait(lambda: worker(s)["state"] in ("evicted", "absent"))
        assert worker(s)["resident_bytes"] == 0
        s.wait(lambda: metric(s, "gpuward_guard_suspend_reason", reason="manual") == 1)
        s.wait(lambda: metric(s, "gpu_evictions_total") == 1)
        assert metric(s, "gpuward_guard_evictions_total", worker="ollama", level="2", result="freed") == 1
        assert metric(s, "gpuward_guard_freed_bytes_total", worker="ollama") == 4 << 30
        s.wait(lambda: s.get(GUARD).json()["counts"]["evictions_total"] == 1)
        assert metric(s, "gpuward_guard_time_to_free_seconds") > 0


def test_an_eviction_can_be_followed_until_it_is_done_and_is_counted_for_ever(tmp_path):
    with guarded.leaving(tmp_path, 4 * GIB, after=0.5, state=str(tmp_path / "state")) as s:
        got = s.post(OLLAMA + "/evict", token=True)
        where = got.headers["Location"]
        assert got.json()["operation"]["state"] == "running"
        again = s.post(OLLAMA + "/evict", token=True)
        assert again.headers["Location"] == where, "the second request returns the operation of the first"
        s.wait(lambda: s.get(where).json()["state"] != "running")
        done = s.get(where).json()
        assert (done["state"], done["what"], done["worker"]) == ("done", "evict", "ollama"), done
        assert done["ended_utc"] >= done["since_utc"] and "MiB" in done["message"]
        s.wait(lambda: metric(s, "gpuward_guard_evictions_total", **FREED) == 1)
        line = next(m for m in s.messages().splitlines() if "result=freed" in m)
        for key in ("gpu=0", "uuid=GPU-", "worker=ollama", "other_processes=1", "temperature=", "threshold=",
                    "reason=manual", "state=evicted", "level=2", f"freed_bytes={4 * GIB}"):
            assert key in line, (key, line)
        s.restart()
        guarded.ready(s)
        assert metric(s, "gpuward_guard_evictions_total", **FREED) == 1
        assert metric(s, "gpuward_guard_freed_bytes_total", worker="ollama") == 4 * GIB
        assert s.get(where).status_code == 404


def test_the_log_has_the_temperature_at_which_workers_leave(tmp_path):
    calls = ", ".join(f'"nvmlDeviceGet{c}"' for c in ("MarginTemperature", "TemperatureThreshold"))
    (tmp_path / "world.toml").write_text(f"[driver]\nmissing = [{calls}]\n" + guarded.WORLD.format(memory="4 GiB"))
    with Service(tmp_path / "world.toml", token=True, config=guarded.config()) as s:
        guarded.ready(s)
        s.wait(lambda: s.get("/api/v1/health/gpus/0").json()["margin_source"] == "fallback")
        s.post(OLLAMA + "/evict", token=True)
        s.wait(lambda: "reason=manual" in s.messages())
        line = next(m for m in s.messages().splitlines() if "reason=manual" in m)
        assert "threshold=85" in line.split(), line


def test_a_request_that_another_one_replaces_has_failed(live):
    first = live.post(OLLAMA + "/evict", token=True).headers["Location"]
    then = live.post(OLLAMA + "/release", token=True).json()["operation"]
    assert then["state"] == "done" and then["what"] == "release"
    got = live.get(first).json()
    assert got["state"] == "failed" and then["id"] in got["message"]


def test_on_a_gpu_with_a_screen_the_desktop_alone_moves_no_worker(tmp_path):
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB"))
    with Service(scenario, token=True, config=guarded.config(more='demand = "any"')) as s:
        guarded.ready(s)
        s.wait(lambda: "result=withheld" in s.messages())
        worker = s.get(OLLAMA).json()
        assert (worker["state"], worker["evictions_total"]) == ("active", 0)
        assert worker["would_evict_total"] == 1 and "guard learn" in worker["rail"]
        said = s.get(GUARD + "/explain?worker=ollama").json()["workers"][0]["sentences"]
        assert any(x.startswith("Limit: GPU-") and "drives a display" in x for x in said), said
        # The limit does not stop an eviction that a person requests.
        assert s.post(OLLAMA + "/evict", token=True).json()["state"] == "drain"


def test_free_memory_is_reserved_at_once_and_released(calm):
    got = calm.post(ROOMS, token=True, json={"gpu": 0, "bytes": GIB, "ttl_s": 50})
    assert got.status_code == 201, got.text
    room = got.json()
    assert room["bytes"] == room["left_bytes"] == GIB and 0 < room["until_seconds"] <= 50
    assert got.headers["Location"] == ROOMS + "/" + room["id"]
    assert calm.get("/api/v1/capacity").json()["gpus"][0]["reserved_bytes"] == GIB
    assert calm.ask("DELETE", ROOMS + "/" + room["id"], token=True).status_code == 204
    assert calm.ask("DELETE", ROOMS + "/" + room["id"], token=True).status_code == 404
    assert calm.get("/api/v1/capacity").json()["gpus"][0]["reserved_bytes"] == 0


def test_a_reservation_that_is_impossible_is_refused_with_numbers(calm):
    got = calm.post(ROOMS, token=True, json={"bytes": 90 * GIB})
    doc = got.json()
    assert got.status_code == 409 and doc["code"] == "insufficient_vram"
    assert doc["needed"] == 90 * GIB > doc["available_at_most"] >= doc["available"]
    assert doc["never"] and doc["detail"] == "90.0 GiB requested, but the largest GPU has only 24.0 GiB"
    assert doc["retry_after_s"] is None and "Retry-After" not in got.headers, "waiting does not help"
    assert calm.get(GUARD).json()["reservations"] == []


def test_memory_reserved_for_others_is_not_available(calm):
    first = calm.post(ROOMS, token=True, json={"bytes": 4 * GIB}).json()
    got = calm.post(ROOMS, token=True, json={"bytes": 23 * GIB, "wait_s": 0})
    doc = got.json()
    assert got.status_code == 409 and not doc["never"]
    assert doc["available"] <= doc["available_at_most"], doc
    assert doc["retry_after_s"] == float(got.headers["Retry-After"]) >= 1
    assert calm.ask("DELETE", ROOMS + "/" + first["id"], token=True).status_code == 204


def test_a_reservation_for_a_process_that_the_service_cannot_see_is_refused(calm):
    got = calm.post(ROOMS, token=True, json={"bytes": GIB, "pid": 2 ** 22 + 5})
    assert got.status_code == 400 and "namespace" in got.json()["detail"] and "pid" in got.json()["remedy"]
    assert calm.get(GUARD).json()["reservations"] == []


@pytest.mark.parametrize("body", [{}, {"bytes": 0}, {"bytes": 1, "ttl_s": 0}, {"bytes": 1, "wait_s": 61},
                                  {"bytes": 1, "pid": -1}, {"bytes": 1, "gpu": 99}, {"bytes": 1, "gpus": 0}])
def test_a_reservation_that_makes_no_sense_is_refused(calm, body):
    assert calm.post(ROOMS, token=True, json=body).status_code == 400


def test_the_answer_waits_until_the_worker_has_left(tmp_path):
    """The order is carried out at once, and the memory becomes free later."""
    with guarded.leaving(tmp_path, 18 * GIB, after=1) as s:
        got = s.post(ROOMS, token=True, json={"bytes": 12 * GIB})
        assert got.status_code == 201, got.text
        assert s.get(GUARD + "/gpus/0").json()["memory_free_bytes"] >= 12 * GIB
        assert "reserved" in worker(s)["mask"]


def test_a_guard_that_only_observes_reserves_nothing(tmp_path):
    with guarded.service(tmp_path, memory="18 GiB", mode="dry-run") as s:
        guarded.ready(s)
        got = s.post(ROOMS, token=True, json={"bytes": 12 * GIB})
        assert got.status_code == 409 and got.json()["detail"].endswith("the guard is in dry-run: no worker leaves")
        assert got.json()["retry_after_s"] is None and "Retry-After" not in got.headers


def test_a_reservation_with_the_same_key_is_the_same(live):
    rooms, key = GUARD + "/reservations", {"Idempotency-Key": "render-7"}
    first = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    again = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["Location"] == first.headers["Location"]
    assert live.post(rooms, token=True, headers=key, json={"bytes": 2 * GIB}).status_code == 422
    assert len(live.get(GUARD).json()["reservations"]) == 1
    assert live.ask("DELETE", first.headers["Location"], token=True).status_code == 204
    third = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    assert third.status_code == 201
    assert live.ask("DELETE", third.headers["Location"], token=True).status_code == 204


def test_a_reservation_for_init_or_the_service_is_refused(live):
    for pid in (1, live.child.pid):
        got = live.post(GUARD + "/reservations", token=True, json={"bytes": 1, "pid": pid, "ttl_s": 0})
        assert got.status_code == 400 and f"process {pid} is" in got.json()["detail"], got.text


def test_a_reservation_for_a_process_that_does_not_exist_is_refused(live):
    got = live.post(GUARD + "/reservations", token=True, json={"bytes": 1, "pid": 2**31 - 1})
    assert got.status_code == 400 and "process" in got.json()["detail"]


def test_a_what_if_with_a_game_shows_an_eviction_but_moves_nothing(live):
    live.post(OLLAMA + "/release", token=True)
    live.wait(lambda: live.get(OLLAMA).json()["state"] == "active")
    before = live.get(GUARD).json()
    got = simulated(live, processes=[{"name": "game", "memory_bytes": 6 * GIB}])
    assert got["workers"][0]["evicted"] and 0 < got["workers"][0]["evicted_after_seconds"] < 1
    classes = {p["name"]: p["class"] for p in got["gpus"][0]["processes"]}
    assert classes == {"ollama": "worker", "Xorg": "system", "game": "contender"}
    after = live.get(GUARD).json()
    assert [d["id"] for d in after["decisions"]] == [d["id"] for d in before["decisions"]]
    assert after["workers"][0]["state"] == "active"


def test_a_simulated_world_is_judged_without_the_current_processes(live):
    gpus = [{"memory_total_bytes": 24 * GIB}]
    mine = {"name": "server", "worker": "ollama", "memory_bytes": 8 * GIB}
    small = {"name": "tool", "memory_bytes": 20 << 20, "uid": 1000, "types": ["compute", "graphics"]}
    got = simulated(live, gpus=gpus, processes=[mine, small], seconds=3)
    assert not got["workers"][0]["evicted"] and got["workers"][0]["need_bytes"] == 8 * GIB
    assert [p["class"] for p in got["gpus"][0]["processes"]] == ["worker", "contender"]
    assert got["gpus"][0]["memory_free_bytes"] == 16 * GIB - (20 << 20)
    assert got == simulated(live, gpus=gpus, processes=[mine, small], seconds=3) | {"time_utc": got["time_utc"]}


def test_another_configuration_can_be_tried_before_it_is_used(live):
    game = [{"name": "game", "memory_bytes": 6 * GIB}]
    lenient = guarded.config(worker='[[worker]]\nname = "other"\nkind = "ollama"\nmatch.name = "other"\n' + guarded.WORKER,
                             more=rule("ignore", name="game"))
    got = simulated(live, processes=game, policy=lenient)
    assert [(w["name"], w["evicted"]) for w in got["workers"]] == [("other", False), ("ollama", False)]
    classes = {p["name"]: p["class"] for p in got["gpus"][0]["processes"]}
    assert (classes["ollama"], classes["game"]) == ("worker", "ignored")
    assert simulated(live, processes=game)["workers"][0]["evicted"]
    wrong = simulated(live, 400, policy="[guard]\nmod = 1\n")["detail"]
    assert wrong.startswith("policy:2") and "mod" in wrong


def test_the_document_of_a_gpu_can_be_sent_as_a_what_if(live):
    there = live.get(GUARD + "/gpus/0").json()
    got = simulated(live, gpus=[{"memory_total_bytes": there["memory_total_bytes"]}], processes=there["processes"])
    assert [p["class"] for p in got["gpus"][0]["processes"]] == [p["class"] for p in there["processes"]]


def test_a_scene_of_a_recording_can_be_used_for_a_what_if(tmp_path):
    record = tmp_path / "guard.trace"
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB"))
    with Service(scenario, token=True, config=guarded.config(more=f'record = "{record}"')) as s:
        guarded.ready(s)
        s.wait(lambda: record.read_text().count("\n") > 10)
        lines = record.read_text()[:8000].rpartition("\n")[0]
        got = simulated(s, trace=lines, processes=[{"name": "game", "memory_bytes": 6 * GIB}])
        assert got["workers"][0]["evicted"]


@pytest.mark.parametrize("body, word", [
    ({"processes": [{"memory_bytes": 1}]}, "processes[0]"), ({"processes": [{"name": "a", "gpu": 7}]}, "gpu"),
    ({"processes": [{"name": "a", "worker": "nobody"}]}, "worker"), ({"seconds": -1}, "seconds"),
    ({"process": []}, "did you mean"), ({"gpus": []}, "gpus"), ({"gpus": [{}]}, "memory_total_bytes"),
    ({"gpus": [1]}, "gpus[0]"), ({"processes": [3]}, "processes[0]"), ({"trace": "g\tx"}, "trace"),
    ({"processes": [{"name": "a", "types": ["3d"]}]}, "types"), ({"trace": ""}, "complete"),
    ({"processes": [{"name": "x" * 40}]}, "name")])
def test_an_invalid_what_if_is_refused_with_the_name_of_the_field(live, body, word):
    assert word in simulated(live, 400, **body)["detail"]


def test_decisions_are_streamed_and_nothing_else(calm):
    got = requests.get(calm.url + GUARD + "/events", headers={"Accept": "text/event-stream"}, stream=True,
                       timeout=TIMEOUT)
    assert got.headers["Content-Type"].startswith("text/event-stream")
    threading.Timer(0.2, calm.post, [OLLAMA + "/hold"],
                    {"token": True, "json": {"state": "active", "ttl_s": 9}}).start()
    for line in got.iter_lines(decode_unicode=True):
        assert not line.startswith("event:") or line == "event: event"
        if line.startswith("data:"):
            assert json.loads(line[5:])["kind"] == "guard"
            break
    got.close()


def test_one_state_of_a_worker_is_1(calm):
    states = {dict(l)["state"]: v for (n, l), v in metrics(calm).items() if n == "gpuward_guard_state"}
    assert len(states) == 13 and sum(states.values()) == 1


def test_metrics_agree_with_the_json_documents(calm):
    gpu = calm.get(GUARD + "/gpus/0").json()
    assert metric(calm, "gpuward_gpu_memory_unattributed_bytes") == gpu["unattributed_bytes"]
    assert metric(calm, "gpuward_guard_processes", **{"class": "worker"}) == 1
    assert metric(calm, "gpuward_gpu_thermal_margin_celsius") > 0
    assert metric(calm, "gpuward_gpu_health", level="ok") == 1
    assert metric(calm, "gpuward_gpu_quarantine") == 0
    assert metric(calm, "gpuward_guard_mode", mode="enforce") == 1
    assert metric(calm, "gpuward_guard_resident_bytes", worker="ollama") == 4 * GIB


def test_xids_are_counted_by_number_over_restarts_and_the_page_is_clean(tmp_path):
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB")
                        + "".join(f'[[timeline]]\nat = {t}\ndo = "xid"\ndata = {x}\n' for t, x in ((2, 13), (3, 31), (3, 13))))
    with Service(scenario, token=True, config=guarded.config(), state=str(tmp_path / "state")) as s:
        guarded.ready(s)
        s.wait(lambda: 'xid="31"' in s.get("/metrics").text and metric(s, "gpuward_gpu_xid_total", xid="13") >= 2)
        before = metric(s, "gpuward_gpu_xid_total", xid="13")
        text = s.get("/metrics").text
        if shutil.which("promtool"):
            got = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
            assert got.returncode == 0, got.stdout + got.stderr
        s.restart()
        guarded.ready(s)
        assert metric(s, "gpuward_gpu_xid_total", xid="13") >= before


@pytest.mark.skipif("GPUWARD_EXAMPLES" not in os.environ, reason="examples are not asked for")
def test_examples(calm):
    out = pathlib.Path(os.environ["GPUWARD_EXAMPLES"])

    def keep(name, got):
        assert got.status_code < 300, got.text
        (out / f"{name}.json").write_text(json.dumps(got.json()))

    for name, path in {"getGuard": "?limit=3", "getGuardGpu": "/gpus/0", "getGuardWorker": "/workers/ollama",
                       "explainGuard": "/explain?worker=ollama", "getGuardEvents": "/events?limit=2"}.items():
        keep(name, calm.get(GUARD + path))
    for name, path in {"getHealth": "health", "getHealthGpu": "health/gpus/0", "getCapacity": "capacity",
                       "getCapacityFit": f"capacity/fit?bytes={20 * GIB}"}.items():
        keep(name, calm.get("/api/v1/" + path))
    requests_ = {"holdWorker": {"state": "active", "ttl_s": 7200, "reason": "a demo"}, "releaseWorker": {},
                 "evictWorker": {"ttl_s": 1800, "reason": "rendering"}, "resumeWorker": {"force": False},
                 "reserveMemory": {"gpu": "0", "bytes": GIB, "ttl_s": 600, "reason": "rendering"}}
    for name, body in requests_.items():
        path = ROOMS if name == "reserveMemory" else f"{OLLAMA}/{name.removesuffix('Worker')}"
        keep(name, calm.post(path, token=True, json=body))
        (out / f"{name}.request.json").write_text(json.dumps(body))
