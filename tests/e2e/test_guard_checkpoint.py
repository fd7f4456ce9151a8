"""Tests checkpoints: how long they take, the advice that makes them faster, and gpuward guard recover, which restores processes
that a killed service left checkpointed.  The driver is a fake libcuda whose processes continue when the program that called it ends
(fake_cuda)."""
import contextlib
import json
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import threading

import pytest

import service
import support
from guarded import Guarded, configure, table
from worker import GIB, Contender, ticks

CUDA = support.BUILD / "tests" / "e2e" / "fake_cuda" / "libcuda.so.1"
CONFIG = configure(table("w", "checkpoint", match_name="holder", max_level=3))


class Driver:
    """The fake driver.  It keeps the state of each process in a file next to the library."""

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
                with contextlib.suppress(ValueError, OSError):  # the state of the process is being written, or does not exist yet
                    world.hold(p.pid, 0 if driver.state(p.pid) == 2 else size)
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield p
        finally:
            over.set()
            thread.join()


def recover(s, driver=None, *args, card=None, more=""):
    """Runs recover as the unit does: after the service, with its configuration.  card is the world that NVML shows."""
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
    """A service that was killed after it had checkpointed its worker."""
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
        done = recover(s, driver)  # a second call does nothing
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
            assert f"process {p.pid} of worker w is not restored: the process needs 4096 MiB on GPU-51" in done.stderr
            assert driver.state(p.pid) == 2
        done = recover(s, driver, card=world)
        assert done.returncode == 0, done.stderr
        service.Service.wait(lambda: world.holds(p.pid) == 4 * GIB)
        with Contender(world, 19 * GIB):  # a process that was restored needs no further memory
            assert recover(s, driver, card=world).returncode == 0


def test_memory_of_an_already_restored_process_is_not_counted_as_free(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p), Contender(world, 1 * GIB) as back, Contender(world, 21 * GIB):
        driver.knows(back.pid)
        record = journal(s)["w"]
        record["put_away"].insert(0, [back.pid, ticks(back.pid)])
        change(s, record)
        r = recover(s, driver, card=world)
        assert r.returncode != 0 and f"process {p.pid} of worker w is not restored: the process needs" in r.stderr
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
        assert "of worker w is not restored: the process needs" in r.stderr and "of worker x" not in r.stderr
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
        assert recover(s, driver).returncode == 0  # with the driver, the process is restored
        assert driver.state(p.pid) == 0


def test_a_process_that_the_driver_refuses_does_not_stop_the_others(world, driver, tmp_path):
    with killed(world, driver, tmp_path) as (s, p), held(world, driver, tmp_path) as other:
        record = journal(s)["w"]
        ticks = int(pathlib.Path(f"/proc/{other.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        record["put_away"].insert(0, [other.pid, ticks])
        change(s, record)
        (driver.path / str(other.pid)).unlink()  # now the driver does not know this process
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
        assert driver.state(p.pid) == 2  # this is not the process of the record


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


# ---- how long a checkpoint takes ----

PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def explained(s):
    return " ".join(s.guard("explain", "w").stdout.split())


def figures(size, always, otherwise):
    """Returns the estimate for `size` on this machine, from the figures of an H200."""
    mode = "always" if PAGES.exists() and "[always]" in PAGES.read_text() else "madvise"
    seconds = size / (16.6 * GIB) * (always if mode == "always" else otherwise)
    return f"takes about {seconds:.1f} s ({size / GIB:.1f} GiB), estimated from figures of an H200 with transparent_hugepage={mode}"


def says(text, word, last):
    """Returns True if a sentence has the figures of the JSON.  Seconds are rounded to ms in JSON, and to a tenth in the sentence."""
    cause = f" {last['cause']}" if last.get("cause") else ""
    found = re.search(rf"The worker last {word} at [\d-]+ [\d:]+ \S+{re.escape(cause)}: 4\.0 GiB in ([0-9.]+) s(?:, ([0-9.]+) GiB/s)?\.", text)
    assert last["level"] == 3 and last["bytes"] / last["bytes_per_second"] == pytest.approx(last["seconds"], abs=0.0006)
    if not found or float(found[1]) != pytest.approx(last["seconds"], abs=0.051):
        return False
    if found[1] == "0.0":
        return found[2] is None  # a move that took no time has no rate
    return float(found[2]) == pytest.approx(last["bytes_per_second"] / GIB, abs=0.051)


def moved(s, command, state):
    s.guard(command, "w")
    s.until(state, name="w")
    return s.worker("w")


def test_explain_estimates_a_checkpoint_and_shows_the_rate_of_the_last_one(world, driver, tmp_path):
    with held(world, driver, tmp_path), Guarded(world, CONFIG, env=driver.env) as s:
        s.settled(4 * GIB, name="w")
        text = explained(s)
        assert "Leaving " + figures(4 * GIB, 5.4, 7.9) in text and "the first move after a boot is slower" in text
        assert "A checkpoint of the worker needs 4.4 GiB of free host memory; " in text and "The worker last " not in text
        w = moved(s, "evict", "evicted")
        assert w["leave"]["last"]["bytes"] == 4 * GIB and w["return"]["estimate_basis"] == "h200_figures"
        text = explained(s)
        assert "Returning " + figures(4 * GIB, 2.5, 3.4) in text
        assert says(text, "left its GPU", w["leave"]["last"])
        s.guard("resume", "w", "--now")
        s.settled(4 * GIB, name="w")
        w, text = s.worker("w"), explained(s)
        assert says(text, "returned", w["return"]["last"])
        assert w["leave"]["estimate_seconds"] == pytest.approx(w["leave"]["last"]["seconds"], abs=0.002)
        assert "Leaving takes about" in text and "estimated from 1 earlier move of this worker." in text


def test_the_moves_of_a_worker_are_known_after_a_restart(world, driver, tmp_path):
    with held(world, driver, tmp_path), Guarded(world, CONFIG, env=driver.env) as s:
        s.settled(4 * GIB, name="w")
        moved(s, "evict", "evicted")
        s.guard("resume", "w", "--now")
        s.settled(4 * GIB, name="w")
        before = s.worker("w")
        s.restart(signal.SIGTERM)
        s.settled(4 * GIB, name="w")
        after = s.worker("w")
        assert before["leave"] == after["leave"] and before["return"] == after["return"]
        assert after["leave"]["estimate_basis"] == after["return"]["estimate_basis"] == "own_moves"


@pytest.mark.parametrize("stored", [
    "", "[]", '{"leave": 3}', '{"leave": [{"bytes": -1, "ns": 5, "level": 3}, null, {"bytes": 7}]}',
    '{"leave": [{"bytes": 99999999999999999999, "ns": 1e300, "level": 99, "pages": 77, "simulated": "yes"}]}'],
    ids=["empty", "a list", "no list", "no bytes or no time", "too large"])
def test_a_damaged_record_of_moves_is_ignored(world, driver, tmp_path, stored):
    with held(world, driver, tmp_path), Guarded(world, CONFIG, env=driver.env) as s:
        s.settled(4 * GIB, name="w")
        s.stop()
        with contextlib.closing(sqlite3.connect(s.state)) as db, db:
            db.execute("INSERT INTO document(kind, id, json) VALUES('move', 'w', ?)", (stored,))
        s.start()
        s.settled(4 * GIB, name="w")
        w = s.worker("w")
        assert w["leave"]["last"] is None and w["leave"]["estimate_basis"] == "h200_figures"
        assert moved(s, "evict", "evicted")["leave"]["last"]["bytes"] == 4 * GIB


OTHER_PAGES = subprocess.run(["unshare", "--mount", "mount", "--bind", PAGES, PAGES], capture_output=True, text=True)
ADVICE = ("with \"always\": on an H200, moving 16.6 GiB to the host took 5.4 s instead of 7.9 s, and moving them back to the GPU "
          "took 2.5 s instead of 3.4 s, with 76 thousand page faults instead of 4.4 million. The first checkpoint in a virtual machine "
          "takes 2.4 s more.")


@pytest.mark.skipif(OTHER_PAGES.returncode != 0, reason=f"no other page mode can be shown: {OTHER_PAGES.stderr.strip()}")
@pytest.mark.parametrize("mode, advised", [("always", False), ("madvise", True), ("never", True)])
@pytest.mark.parametrize("kind", ["checkpoint", "signal"])
def test_config_check_and_doctor_recommend_large_pages_for_a_checkpoint_worker(tmp_path, mode, advised, kind):
    file, enabled = tmp_path / "etc" / "gpuward" / "gpuward.toml", tmp_path / "enabled"
    file.parent.mkdir(parents=True)
    signals = {"evict_signal": "SIGUSR1", "resume_signal": "SIGUSR2"} if kind == "signal" else {}
    file.write_text(configure(table("w", kind, match_name="holder", max_level=3, **signals)))
    enabled.write_text(" ".join(f"[{m}]" if m == mode else m for m in ("always", "madvise", "never")) + "\n")

    def run(*args):
        return subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind "{enabled}" {PAGES} && exec "$@"', "sh",
                               support.PROGRAM, *args], capture_output=True, text=True, timeout=support.TIMEOUT,
                              env=support.environment(GPUWARD_CONFIG_ROOT=tmp_path, HOME=tmp_path))
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if text.startswith("kind"))
    advised = advised and kind == "checkpoint"
    done = run("config", "check")
    assert done.returncode == 0
    assert (f'{file}:{line}:8: warning: transparent_hugepage is "{mode}"' in done.stderr) == advised, done.stderr
    warnings = [w["message"] for w in json.loads(run("config", "check", "--json").stdout)["warnings"]]
    assert any(ADVICE in w and w.endswith("tee /etc/tmpfiles.d/transparent-hugepage.conf") for w in warnings) == advised, warnings
    done = run("doctor", "--simulate=two-gpus")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0 and (f'note transparent_hugepage is "{mode}"' in text) == (ADVICE in text) == advised, done.stdout
    assert "Nothing to fix." in text
