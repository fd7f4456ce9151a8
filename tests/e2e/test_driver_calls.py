"""Tests how much driver time the service needs: calls per second on the simulator, multiplied by the cost of each call
on an H200.

A budget is in microseconds of driver time per second for one GPU with one process. A test fails if a change makes the
service read more than its clients need."""
import json
import re
import time

import pytest

import guarded
from machine_tree import Machine
from service import Service
from support import TOP
from worker import GIB, Process, World

COSTS = TOP / "tests" / "unit" / "h200_cost.def"
READINGS = 6  # a service without clients reads every 10 s, and the expensive values every 30 s


def cost_table(column):
    text = COSTS.read_text()
    rows = {m[1]: float(m[2 + column]) for m in re.finditer(r'^COST\("(\w+)", (\d+), (\d+)\)', text, re.M)}
    other = float(re.search(r"^COST_OTHER\((\d+)\)", text, re.M)[1])
    assert len(rows) > 10
    return lambda call: rows.get(call, other)


def calls(s):
    """Returns the number of calls so far by name, and the time. The service counts this request as a client's."""
    doc = s.get("/api/v1/self").json()
    return {c["name"]: c["count"] for c in doc["calls"]}, time.monotonic()


def reading(s):
    """Returns the number of the latest reading. A health probe does not count as a request of a client."""
    return int(re.search(r"reading (\d+),", s.get("/healthz?verbose").text)[1])


def age(s):
    """Returns the age of the latest reading in seconds."""
    return float(re.search(r"reading \d+, ([\d.]+) s old", s.get("/healthz?verbose").text)[1])


def rests(s):
    return "every 10 s" in s.get("/healthz?verbose").text


def leave(s):
    """Waits until the service has forgotten the last request."""
    s.wait(lambda: rests(s))
    readings(s, 1)  # the next reading may come at once


def readings(s, n):
    """Waits for n more readings."""
    last = reading(s) + n
    s.wait(lambda: reading(s) >= last, 120)


def spent(s, use, loaded=True):
    """Returns the driver time in microseconds per second while use() runs, and the calls per second."""
    before, begin = calls(s)
    use()
    after, end = calls(s)
    cost = cost_table(int(loaded))
    rates = {name: (n - before.get(name, 0)) / (end - begin) for name, n in after.items()}
    total = sum(rate * cost(name) for name, rate in rates.items())
    print(f"{total:.0f} us/s;", ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items() if rate >= 0.1))
    return total, rates


@pytest.mark.deep
def test_a_service_that_nobody_watches_needs_little_driver_time():
    with Service("h200") as s:
        leave(s)
        total, rates = spent(s, lambda: readings(s, READINGS))
        assert total <= 1300  # 0.13 % of a core
        assert "nvmlDeviceGetProcessUtilization" not in rates or rates["nvmlDeviceGetProcessUtilization"] < 0.05
        assert rates["nvmlDeviceGetMemoryInfo_v2"] < 0.4

        def scrape():  # with the request of calls(), the service gets a request about every 20 s
            for _ in range(2):
                readings(s, 2)
                begin = time.time()
                page = s.get("/metrics").text
                # a scrape waits for a new reading, unless the last reading is less than a second old
                assert float(re.search(r"^gpuward_last_tick_timestamp_seconds (\S+)$", page, re.M)[1]) >= begin - 1.1
            readings(s, 1)
        leave(s)
        total, rates = spent(s, scrape)
        assert total <= 1900


@pytest.mark.deep
def test_a_request_to_a_service_that_rests_gets_a_new_reading():
    with Service("h200") as s:
        for path in ("/api/v1/snapshot", "/api/v1/devices", "/api/v1/processes", "/api/gpu/devices"):
            leave(s)
            s.wait(lambda: 2 < age(s) < 7)  # too old for an answer, and the next reading is not due soon
            before, asked = reading(s), time.monotonic()
            doc = s.get(path).json()
            assert reading(s) == before + 1 and doc.get("monotonic_seconds", asked) >= asked, path


@pytest.mark.deep
def test_a_program_that_only_opens_a_gpu_does_not_wake_the_service(tmp_path):
    """Programs such as nvidia-smi open the GPUs every few seconds. Only a process that then uses a GPU is followed."""
    machine = Machine(tmp_path).process(4001, "/train.service", "from = 30")
    node = machine.root / "dev" / "nvidia0"
    node.parent.mkdir()
    node.touch()
    with machine.serve() as s:
        s.wait(lambda: rests(s))
        last = reading(s) + 2

        def opened():
            node.read_text()
            assert rests(s) or reading(s) >= last
            return reading(s) >= last
        s.wait(opened, 60)  # 10 to 20 s after the start: no process is on the GPU
        s.wait(lambda: node.read_text() or not rests(s), 60)  # the process has begun to use the GPU
        assert s.get("/api/v1/guard").json()["counts"]["looks_triggered_total"] > 2


@pytest.mark.deep
def test_a_page_gets_every_tick_and_its_calls_are_bounded():
    with Service("h200") as s:
        s.wait(lambda: rests(s))

        def follow():
            with s.get("/api/v1/events?topics=tick", headers={"Accept": "text/event-stream"}, stream=True) as r:
                ticks = 0
                for line in r.iter_lines():
                    ticks += line.startswith(b"data:") and "devices" in json.loads(line[5:])
                    if ticks == 12:
                        return
        total, rates = spent(s, follow)
        assert total <= 4500
        assert rates["nvmlDeviceGetMemoryInfo_v2"] < 1.5  # all clients share the readings
        s.wait(lambda: rests(s))  # the page is closed


@pytest.mark.deep
def test_a_guarded_worker_is_observed_often_at_a_bounded_cost(tmp_path):
    world = World(tmp_path, profile="h200")
    with Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, 4 * GIB)
        (tmp_path / "pid").write_text(f"{p.pid}\n")
        worker = guarded.table("ollama", "exec", match_pidfile=tmp_path / "pid", evict_command=["/bin/true"],
                               resume_command=["/bin/true"])
        with guarded.Guarded(world, guarded.configure(worker)) as s:
            s.until("active")
            check_guarded(s)


def check_guarded(s):
    # At ten readings per second the caches are warm, so a call costs as little as on an idle card.
    total, rates = spent(s, lambda: readings(s, 10), loaded=False)
    # The test requested the processes at the start, so the utilisation is still read: subtract its cost.
    total -= rates["nvmlDeviceGetProcessUtilization"] * cost_table(0)("nvmlDeviceGetProcessUtilization")
    assert 8 < rates["nvmlDeviceGetMemoryInfo_v2"] < 14
    assert total <= 4500
    assert not rests(s)
