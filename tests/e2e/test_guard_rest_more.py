"""Operations, simulation, the log and counts of the guard, in a running service."""
import shutil
import subprocess

import pytest

import guarded
from service import Service
from test_guard_rest import GIB, GUARD, OLLAMA, metric

SIMULATE = GUARD + "/simulate"
FREED = {"worker": "ollama", "level": "2", "result": "freed"}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with guarded.service(tmp_path_factory.mktemp("guard")) as s:
        yield guarded.looked(s)


def simulated(s, status=200, **body):
    got = s.post(SIMULATE, token=True, json=body)
    assert got.status_code == status, got.text
    return got.json()


# ---- operations

def test_an_eviction_can_be_followed_until_it_is_done_and_is_counted_for_ever(tmp_path):
    with guarded.leaving(tmp_path, 4 * GIB, after=0.5, state=str(tmp_path / "state")) as s:
        got = s.post(OLLAMA + "/evict", token=True)
        where = got.headers["Location"]
        assert got.json()["operation"]["state"] == "running"
        again = s.post(OLLAMA + "/evict", token=True)
        assert again.headers["Location"] == where, "to ask again is not to begin again"
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
        guarded.looked(s)
        assert metric(s, "gpuward_guard_evictions_total", **FREED) == 1
        assert metric(s, "gpuward_guard_freed_bytes_total", worker="ollama") == 4 * GIB
        assert s.get(where).status_code == 404


def test_the_log_tells_at_what_temperature_workers_leave(tmp_path):
    calls = ", ".join(f'"nvmlDeviceGet{c}"' for c in ("MarginTemperature", "TemperatureThreshold"))
    (tmp_path / "world.toml").write_text(f"[driver]\nmissing = [{calls}]\n" + guarded.WORLD.format(memory="4 GiB"))
    with Service(tmp_path / "world.toml", token=True, config=guarded.config()) as s:
        guarded.looked(s)
        s.wait(lambda: s.get("/api/v1/health/gpus/0").json()["margin_source"] == "fallback")
        s.post(OLLAMA + "/evict", token=True)
        s.wait(lambda: "reason=manual" in s.messages())
        line = next(m for m in s.messages().splitlines() if "reason=manual" in m)
        assert "threshold=85" in line.split(), line


def test_a_wish_that_another_takes_the_place_of_has_failed(live):
    first = live.post(OLLAMA + "/evict", token=True).headers["Location"]
    then = live.post(OLLAMA + "/release", token=True).json()["operation"]
    assert then["state"] == "done" and then["what"] == "release"
    got = live.get(first).json()
    assert got["state"] == "failed" and then["id"] in got["message"]


# ---- simulation

def test_a_game_that_would_come_would_move_the_worker_and_nothing_happens(live):
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


def test_a_world_of_its_own_is_judged_without_anybody_of_now(live):
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
                             more='[[rule]]\nmatch.name = "game"\naction = "ignore"\n')
    got = simulated(live, processes=game, policy=lenient)
    assert [(w["name"], w["evicted"]) for w in got["workers"]] == [("other", False), ("ollama", False)]
    classes = {p["name"]: p["class"] for p in got["gpus"][0]["processes"]}
    assert (classes["ollama"], classes["game"]) == ("worker", "ignored")
    assert simulated(live, processes=game)["workers"][0]["evicted"]
    wrong = simulated(live, 400, policy="[guard]\nmod = 1\n")["detail"]
    assert wrong.startswith("policy:2") and "mod" in wrong


def test_an_answer_about_a_gpu_can_be_sent_as_a_question(live):
    there = live.get(GUARD + "/gpus/0").json()
    got = simulated(live, gpus=[{"memory_total_bytes": there["memory_total_bytes"]}], processes=there["processes"])
    assert [p["class"] for p in got["gpus"][0]["processes"]] == [p["class"] for p in there["processes"]]


def test_a_scene_of_a_recording_is_a_world(tmp_path):
    record = tmp_path / "guard.trace"
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB"))
    with guarded.Service(scenario, token=True, config=guarded.config(more=f'record = "{record}"')) as s:
        guarded.looked(s)
        s.wait(lambda: record.read_text().count("\n") > 10)
        lines = record.read_text()[:8000].rpartition("\n")[0]
        got = simulated(s, trace=lines, processes=[{"name": "game", "memory_bytes": 6 * GIB}])
        assert got["workers"][0]["evicted"]


@pytest.mark.parametrize("body, word", [
    ({"processes": [{"memory_bytes": 1}]}, "processes[0]"), ({"processes": [{"name": "a", "gpu": 7}]}, "gpu"),
    ({"processes": [{"name": "a", "worker": "nobody"}]}, "worker"), ({"seconds": -1}, "seconds"),
    ({"process": []}, "did you mean"), ({"gpus": []}, "gpus"), ({"gpus": [{}]}, "memory_total_bytes"),
    ({"gpus": [1]}, "gpus[0]"), ({"processes": [3]}, "processes[0]"), ({"trace": "g\tx"}, "trace"),
    ({"processes": [{"name": "a", "types": ["3d"]}]}, "types"), ({"trace": ""}, "whole"),
    ({"processes": [{"name": "x" * 40}]}, "name")])
def test_a_question_that_makes_no_sense_is_refused_by_name(live, body, word):
    assert word in simulated(live, 400, **body)["detail"]


# ---- guard rails

def test_on_a_gpu_with_a_screen_the_desktop_alone_moves_nobody_and_the_remedy_is_told(tmp_path):
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB"))
    with guarded.Service(scenario, token=True, config=guarded.config(more='demand = "any"')) as s:
        guarded.looked(s)
        s.wait(lambda: "result=withheld" in s.messages())
        worker = s.get(OLLAMA).json()
        assert (worker["state"], worker["evictions_total"]) == ("active", 0)
        assert worker["would_evict_total"] == 1 and "guard learn" in worker["rail"]
        said = s.get(GUARD + "/explain?worker=ollama").json()["workers"][0]["sentences"]
        assert any(x.startswith("Guard rail: a screen is on GPU-") for x in said), said
        # Whom a person wants gone goes all the same.
        assert s.post(OLLAMA + "/evict", token=True).json()["state"] == "drain"


def test_room_that_is_asked_for_again_with_its_key_is_the_same_room(live):
    rooms, key = GUARD + "/reservations", {"Idempotency-Key": "render-7"}
    first = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    again = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["Location"] == first.headers["Location"]
    assert live.post(rooms, token=True, headers=key, json={"bytes": 2 * GIB}).status_code == 422
    assert len(live.get(GUARD).json()["reservations"]) == 1
    assert live.ask("DELETE", first.headers["Location"], token=True).status_code == 204
    anew = live.post(rooms, token=True, headers=key, json={"bytes": GIB})
    assert anew.status_code == 201
    assert live.ask("DELETE", anew.headers["Location"], token=True).status_code == 204


def test_a_process_that_is_not_there_can_have_no_room(live):
    got = live.post(GUARD + "/reservations", token=True, json={"bytes": 1, "pid": 2**31 - 1})
    assert got.status_code == 400 and "process" in got.json()["detail"]


# ---- metrics

def test_xids_are_counted_by_number_over_restarts_and_the_page_is_clean(tmp_path):
    scenario = tmp_path / "world.toml"
    scenario.write_text(guarded.WORLD.format(memory="4 GiB")
                        + "".join(f'[[timeline]]\nat = {t}\ndo = "xid"\ndata = {x}\n' for t, x in ((2, 13), (3, 31), (3, 13))))
    with guarded.Service(scenario, token=True, config=guarded.config(), state=str(tmp_path / "state")) as s:
        guarded.looked(s)
        s.wait(lambda: 'xid="31"' in s.get("/metrics").text and metric(s, "gpuward_gpu_xid_total", xid="13") >= 2)
        before = metric(s, "gpuward_gpu_xid_total", xid="13")
        text = s.get("/metrics").text
        if shutil.which("promtool"):
            got = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
            assert got.returncode == 0, got.stdout + got.stderr
        s.restart()
        guarded.looked(s)
        assert metric(s, "gpuward_gpu_xid_total", xid="13") >= before
