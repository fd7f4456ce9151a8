"""Nobody is touched who is not a worker: numbers that were given away, notes of another start of the machine, damaged records."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

from guarded import SHORT, Guarded, Recorder, configure
from worker import GIB, UUID, Contender, Worker, ticks

KILL = SHORT + "max_level = 6\nallow_kill = true\n"


def text(table, defaults=SHORT):
    return f'[guard]\nmode = "enforce"\nsimulated = true\npoll_ms = 100\n{defaults}\n{table}'


def by_signal(pidfile):
    return (f'[[worker]]\nname = "w"\nkind = "signal"\nmatch.pidfile = "{pidfile}"\n'
            'evict_signal = "SIGUSR1"\nresume_signal = "SIGUSR2"\n')


def wait(true, what, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def classes(s):
    return {p["pid"]: p["class"] for p in s.get(f"/api/v1/guard/gpus/{UUID}").json()["processes"]}


def test_one_younger_than_a_pidfile_is_a_stranger_to_a_service_that_starts(world, tmp_path):
    pidfile = tmp_path / "pid"
    stranger = Recorder(world, tmp_path / "stranger", 8 * GIB)
    try:
        pidfile.write_text(f"{stranger.pid}\n")
        before = time.time() - 10
        os.utime(pidfile, (before, before))
        with Guarded(world, text(by_signal(pidfile), KILL)) as s:
            s.until("absent", name="w")
            assert classes(s)[stranger.pid] == "contender"
            os.utime(pidfile)
            s.until("active", name="w")
            assert classes(s)[stranger.pid] == "worker"
        assert not stranger.signals()
    finally:
        stranger.end()


def test_the_first_process_and_those_who_started_us_are_no_workers(world, tmp_path):
    pidfile = tmp_path / "pid"
    other = Recorder(world, tmp_path / "other", 8 * GIB)
    try:
        for pid in (1, os.getpid()):
            pidfile.write_text(f"{pid}\n")
            with Guarded(world, text(by_signal(pidfile), KILL)) as s:
                s.until("absent", name="w")
                wait(lambda: classes(s).get(other.pid) == "contender", "it is seen")
        assert not other.signals()
    finally:
        other.end()


@pytest.mark.parametrize("boot", [None, "another"])
def test_notes_that_name_a_stranger_are_not_followed(world, tmp_path, boot):
    pidfile = tmp_path / "pid"
    w, by = Recorder(world, tmp_path / "w", 10 * GIB), Recorder(world, tmp_path / "by", 0)
    pidfile.write_text(f"{w.pid}\n")
    s = Guarded(world, text(by_signal(pidfile)))
    try:
        s.start()
        s.until("active", name="w")
        s.guard("hold", "evicted", "w", "--for", "1h")
        wait(lambda: signal.SIGUSR1 in w.signals(), "the signal to leave")
        world.hold(w.pid, 0)
        s.until("evicted", name="w")
        s.stop(signal.SIGKILL)
        with contextlib.closing(sqlite3.connect(s.state)) as db, db:
            record = json.loads(db.execute("SELECT json FROM document WHERE kind='guard'").fetchone()[0])
            here = f"process {w.pid} {ticks(w.pid)}"
            assert here in record["notes"] and "boot " in record["notes"]
            record["notes"] = (record["notes"].replace(here, f"process {by.pid} {ticks(by.pid)}") if not boot
                               else record["notes"].replace("boot ", f"boot {boot}-"))
            db.execute("UPDATE document SET json=? WHERE kind='guard'", (json.dumps(record),))
        s.start()
        s.until("evicted", name="w")
        s.guard("release", "w")
        wait(lambda: signal.SIGUSR2 in w.signals(), "who is found by its pidfile is told to come back")
        assert not by.signals()
        s.stop()
    finally:
        w.end()
        by.end()


def test_a_command_that_says_something_without_end_is_ended(world, tmp_path):
    exe = tmp_path / "holder"
    shutil.copy("/bin/sleep", exe)
    table = (f'[[worker]]\nname = "w"\nkind = "exec"\nmatch.exe = "{exe}"\nevict_command = ["/usr/bin/yes", "{tmp_path}"]\n'
             'resume_command = ["/bin/true"]\n')
    running = lambda: subprocess.run(["pgrep", "-f", f"yes {tmp_path}"], stdout=subprocess.DEVNULL).returncode == 0
    with Contender(world, 10 * GIB, exe=exe), Guarded(world, text(table)) as s:
        s.until("active", name="w")
        s.guard("evict", "w")
        wait(running, "it runs")
        wait(lambda: "not done in time" in s.messages(), "it is ended", 40)


def test_a_damaged_record_does_no_harm(world):
    with Worker(world) as w:
        s = Guarded(world, configure(("ollama", w)))
        s.start()
        s.until("active")
        s.stop()
        with contextlib.closing(sqlite3.connect(s.state)) as db, db:
            record = json.loads(db.execute("SELECT json FROM document WHERE kind='guard'").fetchone()[0])
            record.update(hold=77, level=-3, mask=1 << 31, need_bytes=-1, put_away=[[-1, -1], "x"], gpus=[[1, -1], None])
            db.execute("UPDATE document SET json=? WHERE kind='guard'", (json.dumps(record),))
        s.start()
        s.until("active")
        assert s.get("/api/v1/guard/workers/ollama").json()["hold"] == "none"
        s.stop()


def test_those_that_went_from_the_configuration_do_not_hide_one_that_is_in_it(world):
    with Worker(world) as w:
        s = Guarded(world, configure(("ollama", w)))
        s.start()
        s.until("active")
        s.guard("hold", "evicted", "ollama", "--forever")
        s.until("evicted")
        s.stop(signal.SIGKILL)
        with contextlib.closing(sqlite3.connect(s.state)) as db, db:
            record = json.loads(db.execute("SELECT json FROM document WHERE kind='guard'").fetchone()[0])
            for i in range(200):
                record["worker"] = f"gone{i}"
                db.execute("INSERT INTO document(kind, id, json) VALUES('guard', ?, ?)", (record["worker"], json.dumps(record)))
        s.start()
        s.until("evicted")
        assert s.worker()["hold"] == "evicted"
        s.stop()


def test_the_least_time_is_not_without_end_and_half_a_process_is_none(world):
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.until("active")
        r = s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"ttl_s": 1e-10})
        assert r.status_code < 300, r.text
        wait(lambda: s.worker()["hold"] == "none", "it is over")
        r = s.post("/api/v1/guard/reservations", token=True, json={"bytes": GIB, "ttl_s": 10, "pid": 1.5})
        assert r.status_code == 400 and "pid" in r.text
