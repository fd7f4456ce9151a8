"""What lasts over a restart of the service, what two services make of one GPU, and whose word counts."""
import os
import signal
import subprocess
import time

import pytest

import support
from guarded import Guarded, configure, settled
from worker import GIB, Contender

ROOMS = "/api/v1/guard/reservations"
GAMES = "/api/v1/guard/games"


def rooms(s):
    return s.get("/api/v1/guard").json()["reservations"]


def test_a_reservation_lasts_as_long_as_its_owner_whatever_becomes_of_the_service(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 1 << 20) as owner:
        settled(s)
        done = s.post(ROOMS, token=True, json={"bytes": 16 * GIB, "ttl_s": 600, "pid": owner.pid})
        assert done.status_code == 201, done.text
        s.until("evicted")
        s.wait(lambda: s.get("/api/v1/guard").json()["journal"] == "ok")
        s.kept(done.json()["id"])
        s.restart(signal.SIGKILL)
        s.wait(lambda: [r["id"] for r in rooms(s)] == [done.json()["id"]])
        assert "continues" in s.messages()
        time.sleep(1)
        assert worker.resident() == 0 and s.now() != "active"
        owner.end()
        s.wait(lambda: rooms(s) == [])
        s.wait(lambda: worker.resident() == 10 * GIB)


def test_a_reservation_ends_with_an_owner_that_ended_meanwhile(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        with Contender(world, 1 << 20) as owner:
            settled(s)
            done = s.post(ROOMS, token=True, json={"bytes": 16 * GIB, "ttl_s": 600, "pid": owner.pid})
            assert done.status_code == 201, done.text
            s.kept(done.json()["id"])
            s.stop(signal.SIGKILL)
        s.start()
        s.wait(lambda: worker.resident() == 10 * GIB and s.now() == "active")
        assert rooms(s) == []


def test_of_two_services_with_files_of_their_own_one_acts(world, worker, tmp_path):
    run = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
    with Guarded(world, configure(("ollama", worker)), env=run) as first:
        settled(first)
        with Guarded(world, configure(("ollama", worker)), env=run) as second:
            second.until("active")
            second.wait(lambda: "only observes" in second.messages())
            assert f"process {first.child.pid}" in second.messages()
            assert f"process {first.child.pid}" in second.worker()["rail"]
            assert (second.worker()["dry_run_why"], first.worker()["dry_run_why"]) == ("another-service", None)
            told = second.guard("evict", "ollama").stdout, second.guard("status").stdout, second.guard("explain").stdout
            for text in told:
                assert "nother service acts on" in text and "imulated" not in text, text
            time.sleep(0.7)
            assert worker.resident() == 10 * GIB and worker.acted() == []
            second.guard("release", "ollama")
            with Contender(world, 8 * GIB):
                first.until("evicted")
                assert len(worker.acted()) == 1
            settled(first)
            first.stop()
            second.wait(lambda: "no other gpuward guards" in second.messages())
            second.guard("evict", "ollama")
            second.wait(lambda: worker.resident() == 0)
            assert second.worker()["rail"] is None


@pytest.mark.parametrize("pid, why", [(1, "never exits"), (2, "kernel thread")])
def test_nobody_says_that_the_system_plays(world, worker, pid, why):
    if pid == 2 and not (os.path.exists("/proc/2/comm") and open("/proc/2/comm").read() == "kthreadd\n"):
        pytest.skip("no kernel thread is to be seen here")
    with Guarded(world, configure(("ollama", worker))) as s:
        settled(s)
        done = s.post(GAMES, token=True, json={"pid": pid})
        assert done.status_code == 400 and why in done.json()["detail"], done.text
        time.sleep(0.5)
        assert worker.acted() == [] and s.get(GAMES).json()["games"] == []


def test_in_a_container_of_its_own_a_program_is_known_by_who_it_is(world, worker, tmp_path):
    """gpuward run is process 1 there, or 2; the service looks for it where it is."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespaces here")
    socket = tmp_path / "socket"
    with Guarded(world, configure(("ollama", worker)), "--listen", f"unix:{socket}") as s:
        settled(s)
        child = subprocess.Popen([*unshare, str(support.PROGRAM), "run", "--address", f"unix:{socket}", "--token-file",
                                  s.token_file, "--vram", "16G", "--", "sleep", "1000"], env=support.environment())
        pid = 0
        try:
            s.wait(lambda: rooms(s) != [])
            pid = rooms(s)[0]["pid"]
            assert pid > 2 and b"run" in open(f"/proc/{pid}/cmdline", "rb").read()
            s.until("evicted")
        finally:
            child.kill()
            child.wait()
            if pid:
                os.kill(pid, signal.SIGKILL)
        s.wait(lambda: rooms(s) == [])
        s.wait(lambda: worker.resident() == 10 * GIB)


def test_a_number_of_somebody_else_is_refused(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        settled(s)
        done = s.post(ROOMS, token=True, json={"bytes": 16 * GIB, "pid": os.getpid(), "start_ticks": 1})
        assert done.status_code == 400 and "UNIX socket" in done.json()["detail"], done.text
        assert rooms(s) == [] and worker.acted() == []


def test_of_two_services_with_one_file_the_second_observes(world, worker):
    """No lock of a GPU tells them of each other: simulated ones have none without a runtime folder."""
    text = configure(("ollama", worker))
    with Guarded(world, text) as one, Contender(world, 1 << 20) as guest:
        settled(one)
        with Guarded(world, text, state=one.state) as two:
            two.until("active")
            assert two.get("/api/v1/guard").json()["mode"] == "observe"
            assert "another gpuward uses the same journal: this one only observes" in two.messages()
            world.hold(guest.pid, 8 * GIB)
            one.until("evicted")
            two.wait(lambda: worker.resident() == 0)
            assert len(worker.acted()) == 1  # the other told it nothing
            world.hold(guest.pid, 0)
            one.wait(lambda: one.now() == "active" and worker.resident() == 10 * GIB)
            assert len(worker.acted()) == 2
