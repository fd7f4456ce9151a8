"""The guard when things go wrong: drivers that fail, hang or lose a GPU, workers that reload, a daemon that is killed."""
import os
import re
import signal
import time

import pytest
import requests

import support
from guarded import SHORT, Guarded, configure
from worker import GIB, Contender, Fault, Worker, World

LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"


def at(tmp_path, more="", gpu=""):
    return World(tmp_path, more=more, gpu=gpu)


def resident(s, w, size=10 * GIB):
    return lambda: s.now() == "active" and w.resident() == size


# ---- A4, A10: who comes and goes


def test_a04_who_comes_and_goes_often_makes_the_guard_patient(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        for _ in range(4):
            s.wait(resident(s, worker))
            with Contender(world, 12 * GIB):
                s.until("evicted")
        assert s.worker()["backoff"] >= 2
        assert "quiet period" in s.guard("explain").stdout
        s.wait(resident(s, worker))


def test_a_client_that_loads_the_model_again_does_not_get_far(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 8 * GIB):
        s.until("evicted")
        requests.post(worker.url + "/api/generate", json={"model": "llama3:8b"}, timeout=support.TIMEOUT)
        s.wait(lambda: len([c for c in worker.acted() if '"keep_alive": 0' in c]) == 2)
        s.wait(lambda: s.now() == "evicted" and worker.resident() == 0)


def test_only_as_many_leave_as_it_takes_lowest_priority_first(world):
    with Worker(world, models=["a:1b"], size=6 * GIB) as a, Worker(world, models=["b:1b"], size=6 * GIB) as b:
        text = configure(("a", a), ("b", b)).replace('name = "a"', 'name = "a"\npriority = 5')
        with Guarded(world, text) as s:
            for w in "ab":
                s.wait(lambda w=w: s.worker(w).get("resident_bytes") == 6 * GIB)
            with Contender(world, 10 * GIB):  # nobody knows how much it will want: all leave
                for w in "ab":
                    s.until("evicted", name=w)
            for w in (a, b):
                s.wait(lambda w=w: w.resident() == 6 * GIB)
            for w in "ab":
                s.until("active", name=w)
            before = len(a.acted())
            with Contender(world, 10 * GIB):  # now it is known
                s.until("evicted", name="b")
                time.sleep(1)
                assert s.now("a") in ("active", "suspect") and len(a.acted()) == before and b.resident() == 0
            s.until("active", name="b")


# ---- A12: how far it goes


def test_with_leave_to_kill_a_stubborn_worker_is_ended_and_nobody_else(world):
    text = SHORT + "max_level = 6\nallow_kill = true\n"
    with Worker(world, keeps=True) as w, Guarded(world, configure(("ollama", w), defaults=text)) as s:
        s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
        with Contender(world, 8 * GIB) as c:
            s.wait(lambda: w.resident() == 0)
            assert c.child.poll() is None


# ---- A13, A15: several reasons


def test_a13_one_reason_that_ends_does_not_bring_back_through_another(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
            s.guard("hold", "evicted", "ollama", "--for", "1h")
            s.wait(lambda: sorted(s.worker()["mask"]) == ["contention", "manual"])
        s.wait(lambda: s.worker()["mask"] == ["manual"])
        time.sleep(1.5)
        assert s.now() == "evicted" and worker.resident() == 0
        s.guard("release", "ollama")
        s.wait(resident(s, worker))


def test_a_schedule_keeps_a_worker_out(world, worker):
    more = '[[schedule]]\nworker = "ollama"\nevict = "daily 00:00-24:00"\n'
    with Guarded(world, configure(("ollama", worker), more=more)) as s:
        s.until("evicted")
        assert s.worker()["mask"] == ["schedule"] and worker.resident() == 0


def test_a15_a_hot_gpu_is_left_and_a_hold_does_not_help(tmp_path):
    world = at(tmp_path, gpu="ambient_c = 80")
    with Worker(world) as w:
        more = "[health]\ntemp_override_c = 60\ninterval_s = 0.2\n"
        with Guarded(world, configure(("ollama", w), more=more)) as s:
            s.wait(lambda: s.worker()["mask"] is not None)
            s.guard("hold", "active", "ollama", "--forever")
            s.until("evicted")
            assert s.worker()["mask"] == ["thermal"] and w.resident() == 0
            hot, = s.worker()["reasons"]
            assert re.match(r"GPU-\S+: Too hot: \d+ C above its limit .*, at \d+ C", hot["evidence"]), hot
            assert "[health]" in hot["rule"] and not hot["masked"]
            told = [e["text"] for e in s.get("/api/v1/events").json()["events"] if e["kind"] == "health"]
            assert told and not any(".." in t for t in told), told


# ---- A16: faults of the GPU


def test_a16_a_fatal_xid_puts_a_gpu_into_quarantine(tmp_path):
    world = at(tmp_path, more='[[timeline]]\nat = 4\ndo = "xid"\ndata = 79\n')
    with Worker(world) as w:
        more = "[health]\ninterval_s = 0.2\nclean_s = 300\n"
        with Guarded(world, configure(("ollama", w), more=more)) as s:
            s.wait(lambda: s.worker()["mask"] == ["health"])
            s.until("evicted")
            assert "Xid 79" in s.get("/api/v1/events").text
            s.wait(lambda: s.get("/api/v1/health/gpus/0").json()["clears_seconds"])
            left = s.get("/api/v1/health/gpus/0").json()["clears_seconds"]
            sick, = s.worker()["reasons"]  # the guard says of its end what health does
            assert "clean for 300 s" in sick["clears"] and left - 10 < sick["clears_seconds"] <= left, (sick, left)
            told = " ".join(s.guard("explain").stdout.split())
            assert re.search(r"clean for 300 s, .*at the earliest in [45] min", told), told
            done = s.guard("clear", "0", "--reason", "reseated")  # long before it would end by itself
            assert done.returncode == 0 and "not in quarantine" in done.stdout, done.stderr
            s.wait(lambda: s.worker()["mask"] == [] and resident(s, w)())
            assert "quarantine cleared (requested by token: reseated)" in s.get("/api/v1/events").text


def test_a16_an_application_error_moves_nobody(tmp_path):
    world = at(tmp_path, more='[[timeline]]\nat = 2\ndo = "xid"\ndata = 13\n')
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: "Xid 13" in s.get("/api/v1/events").text)
        time.sleep(1)
        assert s.worker()["mask"] == [] and w.acted() == []


def test_a16_a_fault_older_than_the_service_is_found(tmp_path):
    world = World(tmp_path, gpu="recovery_action = 1", profile="h200")
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker()["mask"] == ["health"])
        assert not any(e.get("kind") == "xid" for e in s.get("/api/v1/events").json()["events"])
        got = s.post("/api/v1/health/gpus/0/clear", json={}, token=True)  # its cause is not past
        assert got.status_code == 409 and "reset the GPU" in got.json()["detail"]
        assert s.get("/api/v1/health/gpus/0").json()["quarantine"] is True


# ---- A7, A8, A9: the driver


def test_a07_a_blind_guard_keeps_still_and_sees_again(tmp_path):
    fault = Fault(tmp_path, "code = 999", LISTS)
    world = at(tmp_path, more=fault.text)
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
        with fault:
            s.wait(lambda: s.worker()["blind"])
            s.wait(lambda: re.search(r"^gpuward_guard_blind\{[^}]*uuid=\"GPU-[^}]*\} 1$", s.get("/metrics").text, re.M))
            assert w.acted() == []
        s.wait(lambda: not s.worker()["blind"] and s.now() == "active")
        assert w.acted() == []
        with Contender(world, 8 * GIB):
            s.until("evicted")


def test_a08_a_call_that_hangs_holds_nobody_else_up(tmp_path):
    fault = Fault(tmp_path, "hang = true", LISTS)
    world = at(tmp_path, more=fault.text)
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
        threads = len(os.listdir(f"/proc/{s.child.pid}/task"))
        with fault:
            s.wait(lambda: s.worker()["hung"])
            took = []
            for path in ("/healthz", "/metrics") * 8:
                begin = time.monotonic()
                assert requests.get(s.url + path, timeout=support.TIMEOUT).status_code == 200
                took.append(time.monotonic() - begin)
            assert sorted(took)[len(took) // 2] < 0.1, took  # the median: this machine may be busy
            assert len(os.listdir(f"/proc/{s.child.pid}/task")) <= threads + 1  # one is stuck, and no more
            assert w.acted() == []
        s.wait(lambda: not s.worker()["hung"] and s.now() == "active")


def test_a09_a_lost_gpu_takes_only_its_own_worker_with_it(tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    lost = Fault(tmp_path, "gpu = 1\ncode = 15", "*")
    world = at(tmp_path, more=f'[[gpu]]\nprofile = "rtx4090"\nfollow = "{second}/held"\n{lost.text}')
    other = World(second)
    with Worker(world) as a, Worker(other) as b:
        more = "[health]\ninterval_s = 0.2\n"
        with Guarded(world, configure(("a", a), ("b", b), more=more)) as s:
            for w in "ab":
                s.wait(lambda w=w: s.worker(w).get("resident_bytes") == 10 * GIB)
            with lost:
                s.wait(lambda: s.worker("b")["quarantine"] or "health" in s.worker("b")["mask"])
                time.sleep(1)
                assert s.worker("a")["mask"] == [] and not s.worker("a")["quarantine"] and s.now("a") == "active"
                assert a.acted() == [] and a.resident() == 10 * GIB


# ---- A11: killed at any moment


@pytest.mark.parametrize("tenths", [0, 2, 3, 4, 5, 6, 8, 12])
def test_a11_a_daemon_killed_while_it_evicts_finds_what_is_true(world, worker, tenths):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            time.sleep(tenths / 10)
            s.restart(signal.SIGKILL)
            s.wait(lambda: s.now() == "evicted" and worker.resident() == 0)
            assert len(worker.acted()) == 1  # nobody is evicted twice
        s.wait(resident(s, worker))


@pytest.mark.parametrize("tenths", [1, 3, 4, 5, 6, 8])
def test_a11_a_daemon_killed_while_it_brings_back_does_so_once(world, worker, tenths):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        time.sleep(tenths / 10)
        s.restart(signal.SIGKILL)
        s.wait(resident(s, worker))
        loads = [c for c in worker.acted() if '"keep_alive"' not in c]
        assert 1 <= len(loads) <= 2 and len(worker.runners()) == 1
