"""gpuward guard recover: processes that a service which was killed left put away.  The journal is the one that it wrote; the driver
is a libcuda whose processes outlive the programs that ask it (fake_cuda)."""
import contextlib
import json
import pathlib
import shutil
import signal
import sqlite3
import threading

import pytest

import service
import support
from guarded import Guarded, configure, table
from worker import GIB, Contender, ticks

CUDA = support.BUILD / "tests" / "e2e" / "fake_cuda" / "libcuda.so.1"
CONFIG = configure(table("w", "checkpoint", match_name="holder", max_level=3))


class Driver:
    """What it knows of each process is in a file next to the library."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        shutil.copy(CUDA, self.path / "libcuda.so.1")
        self.env = {"LD_LIBRARY_PATH": str(self.path)}

    def knows(self, pid):
        (self.path / str(pid)).write_text("0")

    def state(self, pid):
        return int((self.path / str(pid)).read_text() or -1)

    def calls(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "calls").read_text().splitlines()
        return []


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path / "cuda")


@contextlib.contextmanager
def held(world, driver, tmp_path, size=4 * GIB):
    """A process with memory on the card while it is not checkpointed."""
    over = threading.Event()
    program = tmp_path / "holder"
    if not program.exists():
        shutil.copy("/bin/sleep", program)
    with Contender(world, size, exe=program) as p:
        driver.knows(p.pid)

        def follow():
            while not over.wait(0.02):
                with contextlib.suppress(ValueError, OSError):  # it is being written, or not known
                    world.hold(p.pid, 0 if driver.state(p.pid) == 2 else size)
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield p
        finally:
            over.set()
            thread.join()


def recover(s, driver=None, *args, card=None, more=""):
    """As the unit runs it: after the service, with its configuration; card: the world in which NVML is."""
    etc = pathlib.Path(s.path, "root", "etc", "gpuward")
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "gpuward.toml").write_text(f'[history]\npath = "{s.state}"\n{CONFIG}{more}')
    env = support.environment(HOME=s.path, GPUWARD_CONFIG_ROOT=pathlib.Path(s.path, "root"),
                              **(driver.env if driver else {}))
    if card:
        env |= {"GPUWARD_SIM": str(card.scenario), "LD_LIBRARY_PATH": f"{driver.path}:{support.BUILD / 'sim'}"}
    return support.gpuward("guard", "recover", *args, env=env)


def journal(s):
    with contextlib.closing(sqlite3.connect(s.state)) as db:
        return {i: json.loads(j) for i, j in db.execute("SELECT id, json FROM document WHERE kind='guard'")}


def change(s, record):
    with contextlib.closing(sqlite3.connect(s.state)) as db, db:
        db.execute("UPDATE document SET json=? WHERE kind='guard' AND id='w'", (json.dumps(record),))


@contextlib.contextmanager
def killed(world, driver, tmp_path):
    """A service that put its worker away and was killed then."""
    with held(world, driver, tmp_path) as p, Guarded(world, CONFIG, env=driver.env) as s:
        s.until("active", name="w")
        s.guard("hold", "evicted", "w", "--for", "1h")
        s.until("evicted", name="w")
        assert driver.state(p.pid) == 2 and world.holds(p.pid) == 0
        s.stop(signal.SIGKILL)
        assert [pid for pid, _ in journal(s)["w"]["put_away"]] == [p.pid]
        yield s, p


def test_a_process_that_a_killed_service_checkpointed_comes_back(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        done = recover(s, driver)
        assert (done.returncode, done.stdout) == (0, "all processes are restored (1)\n"), done.stderr
        assert driver.state(p.pid) == 0
        assert driver.calls() == [f"{c} {p.pid}" for c in ("lock", "checkpoint", "restore", "unlock")]
        service.Service.wait(lambda: world.holds(p.pid) == 4 * GIB)
        done = recover(s, driver)  # once more does nothing
        assert done.returncode == 0 and len(driver.calls()) == 4


def test_a_worker_with_a_pidfile_is_checkpointed_and_comes_back(world, driver, tmp_path):
    pidfile = tmp_path / "pid"
    with held(world, driver, tmp_path) as p:
        pidfile.write_text(f"{p.pid}\n")
        with Guarded(world, CONFIG.replace('match.name = "holder"', f'match.pidfile = "{pidfile}"'), env=driver.env) as s:
            s.until("active", name="w")
            s.guard("evict", "w")
            s.until("evicted", name="w")
            assert driver.state(p.pid) == 2
            s.guard("resume", "w", "--now")
            s.until("active", name="w")
            assert driver.state(p.pid) == 0 and world.holds(p.pid) == 4 * GIB


def test_a_mistake_in_the_configuration_does_not_keep_a_process_checkpointed(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        done = recover(s, driver, more="[log]\nlevle = 3\n")
        assert (done.returncode, done.stdout) == (0, "all processes are restored (1)\n"), done.stderr
        assert driver.state(p.pid) == 0
        assert "note: the configuration has a mistake" in done.stderr and 'no such key "levle"' in done.stderr


def test_without_its_journal_no_process_is_reported_as_restored(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        done = recover(s, driver, more="[log\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert "fix the configuration and run this again" in done.stderr
        assert driver.state(p.pid) == 2
        assert recover(s, driver).returncode == 0


def test_without_free_memory_it_stays_checkpointed(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        with Contender(world, 21 * GIB):
            done = recover(s, driver, card=world)
            assert done.returncode == 1
            assert f"process {p.pid} of worker w is not restored: it needs 4096 MiB on GPU-51" in done.stderr
            assert driver.state(p.pid) == 2
        done = recover(s, driver, card=world)
        assert done.returncode == 0, done.stderr
        service.Service.wait(lambda: world.holds(p.pid) == 4 * GIB)
        with Contender(world, 19 * GIB):  # one that is back needs no room
            assert recover(s, driver, card=world).returncode == 0


def test_memory_of_an_already_restored_process_is_not_counted_as_free(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p), Contender(world, 1 * GIB) as back, Contender(world, 21 * GIB):
        driver.knows(back.pid)
        record = journal(s)["w"]
        record["put_away"].insert(0, [back.pid, ticks(back.pid)])
        change(s, record)
        r = recover(s, driver, card=world)
        assert r.returncode != 0 and f"process {p.pid} of worker w is not restored: it needs" in r.stderr
        assert driver.state(p.pid) != 0


def test_no_room_for_one_worker_is_no_reason_against_another(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p), Contender(world, 1 * GIB) as back, Contender(world, 21 * GIB):
        driver.knows(back.pid)
        record = journal(s)["w"]
        record.update(worker="x", put_away=[[back.pid, ticks(back.pid)]], need_bytes=1 << 20,
                      gpus=[[uuid, 1 << 20] for uuid, _ in record["gpus"]])
        with contextlib.closing(sqlite3.connect(s.state)) as db, db:
            db.execute("INSERT INTO document(kind, id, json) VALUES('guard', 'x', ?)", (json.dumps(record),))
        r = recover(s, driver, card=world)
        assert "of worker w is not restored: it needs" in r.stderr and "of worker x" not in r.stderr
        assert driver.state(p.pid) != 0


def test_a_process_from_before_a_reboot_is_not_restored(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        record = journal(s)["w"]
        assert record["boot"] == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record["boot"] = "another"
        change(s, record)
        before = driver.calls()
        r = recover(s, driver, card=world)
        assert r.returncode == 0 and f"process {p.pid} of worker w ended" in r.stdout, (r.stdout, r.stderr)
        assert driver.calls() == before


def test_a_service_that_starts_again_brings_it_back_itself(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        s.start()
        s.until("evicted", name="w")
        assert driver.state(p.pid) == 2
        s.guard("release")
        s.wait(lambda: s.now("w") == "active" and driver.state(p.pid) == 0)


def test_without_a_driver_each_process_is_reported_and_the_record_kept(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        before = journal(s)
        done = recover(s)
        assert done.returncode == 1 and done.stdout == ""
        assert f"process {p.pid} of worker w is not restored: " in done.stderr and "libcuda" in done.stderr
        assert "1 of 1 processes are not restored" in done.stderr
        assert journal(s) == before and driver.state(p.pid) == 2
        assert recover(s, driver).returncode == 0  # when that is fixed
        assert driver.state(p.pid) == 0


def test_a_process_that_the_driver_refuses_does_not_stop_the_others(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p), held(world, driver, tmp_path) as other:
        record = journal(s)["w"]
        ticks = int(pathlib.Path(f"/proc/{other.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        record["put_away"].insert(0, [other.pid, ticks])
        change(s, record)
        (driver.path / str(other.pid)).unlink()  # the driver knows nothing of it
        done = recover(s, driver)
        (driver.path / str(other.pid)).write_text("0")
        assert done.returncode == 1
        assert f"process {other.pid} of worker w is not restored: " in done.stderr
        assert driver.state(p.pid) == 0


def test_a_process_that_ended_or_has_another_start_time_is_left_alone(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p):
        record = journal(s)["w"]
        record["put_away"] = [[p.pid, record["put_away"][0][1] - 1], [2 ** 22 + 1, 5]]
        change(s, record)
        done = recover(s, driver)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (f"process {p.pid} of worker w ended, and another process has its pid now: "
                               f"nothing to restore\nprocess {2 ** 22 + 1} of worker w ended: nothing to restore\n")
        assert driver.state(p.pid) == 2  # not the one that was meant


def test_a_service_that_starts_with_a_wrong_match_keeps_its_checkpoint(world, driver, tmp_path):
    other = shutil.copy("/bin/sleep", tmp_path / "another")
    with killed(world, driver, tmp_path) as (s, p), Contender(world, GIB, exe=other):
        for name, said in (("nobody", "its process still runs and is evicted"), ("another", "run gpuward guard recover")):
            with open(s.config, "w") as f:
                f.write(CONFIG.replace('match.name = "holder"', f'match.name = "{name}"'))
            s.start()
            s.wait(lambda w=said: s.now("w") == "absent" and w in s.worker("w")["why"])
            assert s.stop() == 0
            assert [pid for pid, _ in journal(s)["w"]["put_away"]] == [p.pid] and driver.state(p.pid) == 2
        done = recover(s, driver)
        assert (done.returncode, driver.state(p.pid)) == (0, 0), done.stderr


def test_a_worker_that_was_removed_from_the_configuration_is_restored(world, driver, tmp_path):
    with held(world, driver, tmp_path) as p, Guarded(world, CONFIG, env=driver.env) as s:
        s.until("active", name="w")
        s.guard("hold", "evicted", "w", "--for", "1h")
        s.until("evicted", name="w")
        with open(s.config, "w") as f:
            f.write(CONFIG[:CONFIG.index("[[worker]]")])
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: "run gpuward guard recover to resume it" in s.messages())
        done = recover(s, driver)  # the service runs, and no longer knows the worker
        assert (done.returncode, done.stderr) == (0, "") and driver.state(p.pid) == 0
        assert s.get("/api/v1/events").status_code == 200 and s.stop() == 0


def test_a_journal_that_cannot_be_read_is_not_taken_for_an_empty_one(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, _):
        for path in pathlib.Path(s.path).glob("history.db*"):
            path.unlink()
        pathlib.Path(s.state).mkdir()
        done = recover(s, driver)
        assert done.returncode == 1 and "journal" in done.stderr, done.stdout + done.stderr


def test_a_client_of_mps_is_not_checkpointed(tmp_path, driver):
    scenario = tmp_path / "mps.toml"
    scenario.write_text('[[gpu]]\nprofile = "h200"\npersistence = true\n'
                        '[[gpu.process]]\nname = "holder"\ntype = "mps"\nmemory = "10 GiB"\n')
    with service.Service(scenario, config=CONFIG, token=True, env=driver.env) as s:
        s.wait(lambda: s.get("/api/v1/guard/workers/w").json().get("resident_bytes") == 10 * GIB)
        s.post("/api/v1/guard/workers/w/evict", token=True, json={})
        s.wait(lambda: "a client of MPS cannot be checkpointed" in s.get("/api/v1/guard/workers/w").text)
        assert driver.calls() == []
