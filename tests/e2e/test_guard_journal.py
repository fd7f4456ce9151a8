"""Tests what the guard remembers after the end, a crash or a restart of the service, and how two services share a GPU."""
import concurrent.futures
import contextlib
import datetime
import json
import os
import re
import signal
import sqlite3
import time

import pytest
import requests

import support
from guarded import Guarded, Recorder, by_signal, configure, held, quick, table
from service import Service
from worker import GIB, UUID, Contender, Process, World, ticks

SHIM = support.BUILD / "tests" / "e2e" / "libkill_at_write.so"
with_shim = pytest.mark.skipif(not SHIM.exists(), reason=f"{SHIM.name} is not built")
MOST = 20  # more than the number of writes in one life
SIZE = 8 * GIB


def test_a11_a_killed_service_knows_which_worker_it_evicted(s, world, worker):
    with Contender(world, 8 * GIB):
        s.until("evicted")
        s.restart(signal.SIGKILL)
        s.until("evicted", "quiet")  # one observation is not enough to see demand
        s.observes()
        s.until("evicted")
        assert worker.resident() == 0
        assert len(worker.acted()) == 1  # neither brought back nor evicted twice
    s.back(worker)
    assert len(worker.acted()) == 2  # the model was loaded again with the notes that were written before the service died


def test_a11_a_hold_outlives_the_service(s, worker):
    s.guard("hold", "evicted", "ollama", "--forever")
    s.until("evicted")
    s.restart(signal.SIGKILL)
    s.until("evicted")
    assert s.worker()["hold"] == "evicted"
    s.guard("release", "ollama")
    s.back(worker)


def test_times_do_not_grow_when_the_clock_is_set_back(world, worker):
    month = support.other_clock("+30d")
    with Guarded(world, configure(("ollama", worker)), env=month) as s:
        room = {"gpu": 0, "bytes": GIB, "ttl_s": 300}  # refused until the GPU is found
        s.wait(lambda: s.post("/api/v1/guard/reservations", token=True, json=room).status_code == 201)
        assert s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"state": "evicted", "ttl_s": 600}).ok
        s.until("evicted")
        for name in month:
            del s.env[name]
        s.restart(signal.SIGKILL)
        s.until("evicted")
        left = datetime.datetime.fromisoformat(s.worker()["hold_until_utc"].replace("Z", "+00:00")).timestamp() - time.time()
        assert 500 < left < 601
        assert 250 < s.reservations()[0]["until_seconds"] <= 300


@pytest.mark.parametrize("what, body, state", [
    ("hold", {"state": "evicted", "ttl_s": 3600}, "evicted"), ("hold", {"state": "evicted", "ttl_s": 0}, "evicted"),
    ("hold", {"state": "active", "ttl_s": 3600}, "active"), ("evict", {"ttl_s": 3600}, "evicted")])
def test_what_a_person_set_outlives_a_killed_service(s, worker, what, body, state):
    def seen(near):
        w = s.worker()
        asked = s.get("/api/v1/guard/explain?worker=ollama").text
        return [w["hold"], near(w["hold_until_utc"]), "requested by a client with the token: upgrade of the model" in asked] + \
            [[r[k] for k in ("reason", "rule", "evidence", "clears")] + [near(r["since_utc"]), near(r["clears_utc"])]
             for r in w["reasons"]]
    s.post(f"/api/v1/guard/workers/ollama/{what}", token=True, json={"reason": "upgrade of the model", **body})
    s.until(state)
    # When the service starts, it converts times to the monotonic clock and back: on a busy machine they change by some 10 ms.
    at = lambda utc: utc and datetime.datetime.fromisoformat(utc.replace("Z", "+00:00")).timestamp()
    before = seen(lambda utc: utc and pytest.approx(at(utc), abs=1))
    assert before[2] and (body["ttl_s"] > 0) == (before[1] is not None or isinstance(before[-1], list) and before[-1][-1] is not None)
    s.restart(signal.SIGKILL)
    s.until(state)
    assert seen(at) == before


LEAVES = ["active", "suspect", "drain", "evict", "verify", "evicted"]
RETURNS = ["evicted", "quiet", "precheck", "resume", "verify-up", "active"]


@pytest.mark.parametrize("state", LEAVES[:-1])  # test_a11_a_killed_service_knows_which_worker_it_evicted kills it in the last
def test_a11_a_service_killed_while_it_evicts_finds_what_is_true(s, world, worker, state):
    with Contender(world, 8 * GIB):
        s.until(*LEAVES[LEAVES.index(state):])  # or until a later state, if the worker changed before the request arrived
        s.restart(signal.SIGKILL)
        s.wait(lambda: s.now() == "evicted" and worker.resident() == 0)
        assert len(worker.acted()) == 1  # the worker is not evicted twice
    s.back(worker)


@pytest.mark.parametrize("state", RETURNS)
def test_a11_a_service_killed_while_it_brings_back_does_so_once(s, world, worker, state):
    with Contender(world, 8 * GIB):
        s.until("evicted")
    s.until(*RETURNS[RETURNS.index(state):])
    s.restart(signal.SIGKILL)
    s.back(worker)
    loads = [c for c in worker.acted() if '"keep_alive": 0' not in c]
    assert 1 <= len(loads) <= 2 and len(worker.runners()) == 1


# The service is killed at every write of its journal.
#
# In each life of the service a contender comes and goes, and a person requests the hold "evicted" and releases it.  Each
# life ends at another write: before the write, after it, or in the middle.  No matter where it ends, the worker is evicted
# twice and brought back twice, and it is held as soon as the service has confirmed the hold.


class Mortal(Guarded):
    """A service that is killed once, at a write of its journal."""

    def __init__(self, world, text, when, n):
        super().__init__(world, text)
        self.deaths = 0
        self.tally = os.path.join(self.path, "writes")
        self.env.update(LD_PRELOAD=str(SHIM), KILL_AT=str(n), KILL_WHEN=when, KILL_LOG=self.tally)

    def start(self, ready=True):
        try:
            return super().start(ready)
        except AssertionError:  # the service died before it listened, or before it was ready
            return self

    def live(self):
        """Starts the service again if it has died."""
        if self.child.poll() is None:
            return
        assert self.child.returncode == -9, self.messages()
        self.deaths += 1
        assert self.deaths == 1, "it died twice"
        self.env["KILL_AT"] = "0"
        if self.url:
            self.restart()
        else:
            self.start()

    def wait(self, true, seconds=support.TIMEOUT, what="the condition"):
        return Service.wait(lambda: self.live() or true(), seconds, what)

    def reach(self, true, what):
        self.wait(true, what=lambda: (what, {k: self.worker().get(k) for k in ("state", "mask", "hold", "why")}, self.course()))

    def ask(self, method, path, **kw):
        kw.setdefault("timeout", 20)
        try:
            return super().ask(method, path, **kw)
        except requests.ConnectionError:
            if method != "GET":
                raise
            self.live()  # it was killed at its write, or closed the connection while the request was on its way
            return super().ask(method, path, **kw)

    def request(self, what, **body):
        """Sends a request; returns True if the service confirms it."""
        try:
            return self.post(f"/api/v1/guard/workers/ollama/{what}", token=True, json=body).status_code < 300
        except requests.RequestException:
            return False

    def course_of_writes(self):
        """Returns the order of writes: w for a written record, s when the written data is on the disk."""
        return open(self.tally).read() if os.path.exists(self.tally) else ""

    def writes(self):
        return self.course_of_writes().count("w")


def asked(w, out):
    return sum(p == "/api/generate" and (b.get("keep_alive") == 0) == out for m, p, b in list(w.calls))


def insist(s, hold, what, **body):
    """Repeats a request if the service died before it confirmed the request."""
    if s.request(what, **body):
        return
    s.reach(lambda: s.now() not in (None, "reconcile"), what)
    if s.worker()["hold"] != hold:
        assert s.request(what, **body)


@contextlib.contextmanager
def mortal(path, when, n, defaults=quick(quiet_s=0.2, verify_s=2, drain_s=0.5, budget_s=30), record=None, **kw):
    """A worker and its service, which dies or fails at its n-th write."""
    world = World(path)
    process = Recorder(world, record) if record else None
    with held(world, "ollama", 10 * GIB, process=process, models=["m"], **kw) as w:
        with Mortal(world, configure(w.table("ollama"), defaults=defaults), when, n) as s:
            yield world, w, s


def life(path, when, n):
    path.mkdir()
    with mortal(path, when, n) as (world, w, s):
        s.reach(lambda: s.now() == "active", "active at first")
        with Contender(world, 8 * GIB):
            s.reach(lambda: s.now() == "evicted" and w.resident() == 0, "evicted")
        s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "back")
        assert (asked(w, out=True), asked(w, out=False)) == (1, 1), (when, n, w.calls)
        insist(s, "evicted", "hold", state="evicted", ttl_s=0)
        s.reach(lambda: s.now() == "evicted" and w.resident() == 0, "held")
        s.reach(lambda: s.worker()["hold"] == "evicted" and s.worker()["mask"] == ["manual"], "held, and said")
        insist(s, None, "release")
        s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "back again")
        s.observes(0.3)
        s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "stays")
        assert (asked(w, out=True), asked(w, out=False)) == (2, 2), (when, n, w.calls)
        return s.deaths, s.writes()


@with_shim
@pytest.mark.parametrize("when, every", [("before", 1), ("after", 1), ("torn", 4)])
@pytest.mark.deep
def test_a11_killed_at_every_write_of_its_journal(tmp_path, when, every):
    numbers = list(range(1, MOST + 1, every))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        lives = dict(zip(numbers, pool.map(lambda n: life(tmp_path / f"{when}-{n}", when, n), numbers)))
    # How many writes there are depends on timing; the first dozen are always there.
    assert all(deaths == 1 for n, (deaths, _) in lives.items() if n <= 12), lives
    assert all(deaths or writes < n for n, (deaths, writes) in lives.items()), lives


@with_shim
def test_a11_a_record_is_on_the_disk_before_its_order_is_given(tmp_path):
    with mortal(tmp_path, "never", 1000) as (_, _, s):
        s.until("active")
        before = s.course_of_writes()
        assert s.request("hold", state="evicted", ttl_s=0)
        # the record of the next order may be written now, so the end does not matter
        assert re.match("s*w+s", s.course_of_writes()[len(before):]), (before, s.course_of_writes())
        s.until("evicted")
        s.wait(lambda: re.fullmatch("s*(w+s+)+", s.course_of_writes()))
        assert s.course_of_writes().count("ws") >= 3, s.course_of_writes()


@with_shim
def test_on_a_full_disk_nothing_above_level_2_is_done(tmp_path):
    """The guard asks the worker to unload, but does not end it, and the status says why."""
    kill = quick(max_level=6, allow_kill=True, budget_s=5)
    with mortal(tmp_path, "full", 1, defaults=kill, keeps=True, record=tmp_path / "signals") as (_, w, s):
        s.until("active")
        assert s.request("evict")
        s.until("stuck")
        assert asked(w, out=True) >= 1
        assert w.process.signals() == [] and w.process.child.poll() is None
        assert "journal cannot be written" in s.worker()["why"] + s.get("/api/v1/guard").text


@with_shim
def test_the_status_shows_at_once_that_a_request_is_not_stored(tmp_path):
    with mortal(tmp_path, "full", 0) as (_, _, s):
        s.until("active")
        reply = s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"ttl_s": 0}).json()
        assert "lost when the service restarts" in reply["journal"]
        assert "cannot be written" in s.get("/api/v1/guard").json()["journal"]
        s.until("evicted")
        assert "cannot be written" in s.get("/api/v1/guard").json()["journal"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_history_that_is_no_file_is_reported_and_delays_nothing(world, worker, tmp_path, make):
    state = tmp_path / "history.db"
    make(state)
    with Guarded(world, configure(("ollama", worker)), state=str(state)) as s:
        s.until("active")
        assert f"{state} is a directory, a pipe or a device" in s.messages()
        assert s.get("/api/v1/guard").json()["journal"].startswith("there is no journal file")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("active")


@contextlib.contextmanager
def journal(s):
    """Yields the database of a service that has ended, and the record of its worker. Writes the record back."""
    with contextlib.closing(sqlite3.connect(s.state)) as db, db:
        record = json.loads(db.execute("SELECT json FROM document WHERE kind='guard'").fetchone()[0])
        yield db, record
        db.execute("UPDATE document SET json=? WHERE kind='guard' AND id=?", (json.dumps(record), record["worker"]))


def test_a_damaged_record_does_no_harm(s):
    s.stop()
    with journal(s) as (_, record):
        record.update(hold=77, level=-3, mask=1 << 31, need_bytes=-1, put_away=[[-1, -1], "x"], gpus=[[1, -1], None])
    s.start()
    s.until("active")
    assert s.worker()["hold"] == "none"


def test_records_of_removed_workers_do_not_hide_a_configured_worker(s):
    s.guard("hold", "evicted", "ollama", "--forever")
    s.until("evicted")
    s.stop(signal.SIGKILL)
    with journal(s) as (db, record):
        for i in range(200):
            row = json.dumps({**record, "worker": f"gone{i}"})
            db.execute("INSERT INTO document(kind, id, json) VALUES('guard', ?, ?)", (f"gone{i}", row))
    s.start()
    s.until("evicted")
    assert s.worker()["hold"] == "evicted"


@pytest.mark.parametrize("boot", [None, "another"])
def test_notes_that_name_a_foreign_process_are_ignored(world, tmp_path, boot):
    pidfile = tmp_path / "pid"
    with Recorder(world, tmp_path / "w", 10 * GIB) as w, Recorder(world, tmp_path / "by") as by:
        pidfile.write_text(f"{w.pid}\n")
        with Guarded(world, configure(by_signal(pidfile))) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.wait(lambda: signal.SIGUSR1 in w.signals())
            world.hold(w.pid, 0)
            s.until("evicted", name="w")
            s.stop(signal.SIGKILL)
            with journal(s) as (_, record):
                here, there = (f"process {p.pid} {ticks(p.pid)}" for p in (w, by))
                assert here in record["notes"] and "boot " in record["notes"]
                change = ("boot ", f"boot {boot}-") if boot else (here, there)
                record["notes"] = record["notes"].replace(*change)
            s.start()
            s.until("evicted", name="w")
            s.guard("release", "w")
            s.wait(lambda: signal.SIGUSR2 in w.signals())  # its pidfile finds it
            assert not by.signals()


LOST = "its process still runs and is evicted"


def restart_with(s, text, how=signal.SIGKILL):
    s.write(text)
    s.restart(how)


def is_lost(s):
    """Returns True if the worker is evicted and the present configuration does not find it."""
    return s.now("w") == "absent" and LOST in s.worker("w")["why"]


def hold_evicted(s):
    s.until("active", name="w")
    s.guard("hold", "evicted", "w", "--for", "1h")
    s.until("evicted", name="w")


def files(w):
    """Two configurations of a worker: one that finds it, and one that does not."""
    right = configure(w.table("w"))
    wrong = right.replace(f'match.pidfile = "{w.pidfile}"', 'match.name = "no-such-name"')
    assert right != wrong
    return right, wrong


def test_a_restart_with_a_wrong_match_keeps_what_is_out(world):
    with held(world, "ollama", SIZE, models=["a"]) as w:
        right, wrong = files(w)
        with Guarded(world, right) as s:
            hold_evicted(s)
            for how in (signal.SIGKILL, signal.SIGTERM):  # at the second restart the worker is already lost
                restart_with(s, wrong, how)
                s.wait(lambda: is_lost(s))
            assert LOST in " ".join(s.guard("explain", "w").stdout.split()) and LOST in s.messages()
            assert s.worker("w")["hold"] == "evicted" and w.resident() == 0
            s.reload(right)
            s.until("evicted", name="w")
            s.guard("release", "w")
            s.back(w, SIZE, "w")


def test_a_corrected_configuration_brings_the_worker_back_at_the_next_start(world):
    with held(world, "ollama", SIZE, models=["a"]) as w:
        right, wrong = files(w)
        with Guarded(world, right) as s, Contender(world, 4 * GIB):
            s.until("evicted", name="w")
            restart_with(s, wrong)
            s.wait(lambda: is_lost(s))
            restart_with(s, right)
            s.until("evicted", name="w")


def test_an_evicted_worker_that_ended_meanwhile_is_not_kept(world):
    with held(world, "ollama", SIZE, models=["a"]) as w:
        right, wrong = files(w)
        with Guarded(world, right) as s:
            hold_evicted(s)
            restart_with(s, wrong)
            s.wait(lambda: is_lost(s))
            w.process.end()
            s.wait(lambda: "its process ended" in s.worker("w")["why"])


def test_a_worker_that_was_removed_from_the_file_is_reported_at_the_start(world):
    with held(world, "vllm", SIZE) as w:
        right, wrong = files(w)
        with Guarded(world, right) as s:
            hold_evicted(s)
            restart_with(s, configure())
            s.logs("worker w was removed from the configuration while it is evicted (level 2): wake it (vLLM: POST /wake_up")
            restart_with(s, wrong)  # the configuration names the worker again, but does not find it
            s.wait(lambda: is_lost(s))
            s.reload(right)
            s.until("evicted", name="w")
            s.guard("release", "w")
            s.back(w, SIZE, "w")
            restart_with(s, configure(), signal.SIGTERM)  # no worker is evicted
            s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
            assert s.messages().count("was removed from the configuration while it is evicted") == 1


def games(s):
    return s.get("/api/v1/guard/games").json()["games"]


def playing(s):
    return sorted(g["pid"] for g in games(s))


def test_a_game_is_still_played_after_a_restart(s, world, worker):
    with Contender(world, 0) as game, Contender(world, 0) as over, Contender(world, 0) as short:
        for p in (game, over):
            s.guard("game", "start", "--pid", str(p.pid))
        s.guard("game", "start", "--pid", str(short.pid), "--for", "1s")
        s.until("evicted")
        since = games(s)[0]["since_utc"]
        s.stop(signal.SIGKILL)
        over.end()
        acted = len(worker.acted())
        s.start()
        s.wait(lambda: playing(s) == [game.pid])  # the registration of `short` ends after a second
        assert games(s)[0]["since_utc"][:16] == since[:16]
        s.logs(f"process {game.pid} is still registered as a game")
        s.until("evicted")
        s.observes()  # observes for longer than the quiet time
        assert s.now() == "evicted" and len(worker.acted()) == acted and worker.resident() == 0
        s.restart(signal.SIGTERM)  # the games also continue after a second restart
        s.wait(lambda: playing(s) == [game.pid])
        game.end()
        s.wait(lambda: playing(s) == [])
        s.until("active")
        s.restart(signal.SIGTERM)
        s.wait(lambda: s.get("/api/v1/guard/games").status_code == 200)
        assert playing(s) == []


def test_a_game_that_was_ended_is_not_played_after_a_restart(s, world):
    with Contender(world, 0) as game:
        s.guard("game", "start", "--pid", str(game.pid))
        s.until("evicted")
        s.guard("game", "end", "--pid", str(game.pid))
        s.until("active")
        s.restart()
        s.wait(lambda: s.get("/api/v1/guard/games").status_code == 200)
        assert playing(s) == []


def test_a_reservation_lasts_as_long_as_its_process_also_over_a_restart(s, world, worker):
    with Contender(world, 1 << 20) as owner:
        room = s.reserve(16 * GIB, pid=owner.pid)["id"]
        s.until("evicted")
        s.wait(lambda: s.get("/api/v1/guard").json()["journal"] == "ok")
        s.restart(signal.SIGKILL)
        s.wait(lambda: [r["id"] for r in s.reservations()] == [room])
        assert "continues" in s.messages()
        s.observes()
        assert worker.resident() == 0 and s.now() != "active"
        owner.end()
        s.wait(lambda: s.reservations() == [])
        s.wait(lambda: worker.resident() == 10 * GIB)


def test_a_reservation_has_the_same_key_after_a_restart(s):
    def reserve(size):
        return s.post("/api/v1/guard/reservations", token=True, json={"bytes": size}, headers={"Idempotency-Key": "render-7"})
    first = reserve(GIB)
    assert first.status_code == 201
    s.restart(signal.SIGKILL)
    s.wait(lambda: [r["id"] for r in s.reservations()] == [first.json()["id"]])
    again = reserve(GIB)
    assert again.status_code == 200 and again.headers["Location"] == first.headers["Location"], again.text
    assert reserve(2 * GIB).status_code == 422
    s.observes()  # a new reservation needs a scene
    s.release(first.json()["id"])
    assert reserve(2 * GIB).status_code == 201


def test_a_repeated_request_does_not_end_a_reservation_that_is_in_use(s, world, worker):
    def reserve():
        return s.post("/api/v1/guard/reservations", token=True, json={"bytes": 12 * GIB, "ttl_s": 600},
                      headers={"Idempotency-Key": "render-7"})

    def in_use():
        gpu = s.get(f"/api/v1/guard/gpus/{UUID}")
        return gpu.status_code == 200 and gpu.json()["memory_free_bytes"] < 5 * GIB
    s.settled()
    first = reserve()
    assert first.status_code == 201, first.text
    with Contender(world, 20 * GIB):
        for _ in range(2):
            s.wait(in_use)
            again = reserve()
            assert again.status_code == 200 and again.headers["Location"] == first.headers["Location"], again.text
            assert [r["id"] for r in s.reservations()] == [first.json()["id"]]
            s.restart(signal.SIGKILL)


def test_a_reservation_that_was_refused_or_released_does_not_come_back(s, world, worker):
    for _ in range(2):
        assert s.post("/api/v1/guard/reservations", token=True, json={"bytes": 1 << 50}).status_code == 409
        s.restart(signal.SIGKILL)
        s.observes()
        assert s.reservations() == []
        s.release(s.reserve(1 << 20)["id"])
        s.restart(signal.SIGKILL)
        s.observes()
        assert s.reservations() == [] and "continues" not in s.messages()


def test_a_reservation_ends_with_a_process_that_ended_meanwhile(s, world, worker):
    with Contender(world, 1 << 20) as owner:
        s.kept(s.reserve(16 * GIB, pid=owner.pid)["id"])
        s.stop(signal.SIGKILL)
    s.start()
    s.back(worker)
    assert s.reservations() == []


def test_a_service_that_ends_lets_workers_come_back(s, world, worker):
    with Contender(world, 8 * GIB):
        s.until("evicted")
    s.until("quiet", "precheck", "resume", "verify-up", "active")
    assert s.stop() == 0
    s.wait(lambda: worker.resident() == 10 * GIB)


def test_all_that_fit_together_come_back_at_the_end(world):
    with held(world, "ollama", 4 * GIB, models=["a"]) as a, held(world, "ollama", 5 * GIB, models=["b"]) as b:
        with Guarded(world, configure(a.table("a"), b.table("b"), defaults=quick(quiet_s=60))) as s:
            for name in "ab":
                s.until("active", name=name)
            with Contender(world, 12 * GIB):
                s.wait(lambda: not a.resident() and not b.resident())
                for name in "ab":
                    s.until("evicted", name=name)
            for name in "ab":
                s.until("quiet", name=name)
            s.stop()
            assert "gpuward stopped" in s.messages().splitlines()[-1]  # everything else was logged before
            assert (a.resident(), b.resident()) == (4 * GIB, 5 * GIB)
            s.start()
            for name in "ab":
                s.until("active", name=name)
                now = s.worker(name)
                assert (now["evictions_total"], now["resumes_total"]) == (1, 1)


def test_in_a_dry_run_the_end_of_the_service_waits_for_no_worker(world):
    with held(world, "ollama", 4 * GIB, models=["a"]) as a:
        with Guarded(world, configure(a.table("a"), mode="dry-run", defaults=quick(quiet_s=60))) as s:
            s.until("active", name="a")
            with Contender(world, 18 * GIB):
                s.until("evicted", name="a")
            s.until("quiet", name="a")
            began = time.monotonic()
            s.stop()
            assert time.monotonic() - began < 9  # a request to the worker would wait 10 s for an answer
        assert a.resident() == 4 * GIB and not a.asked("POST")


def test_a_worker_that_was_only_paused_takes_work_again_at_the_end(world):
    with held(world, "vllm", 8 * GIB) as v:
        v.busy = 1
        with Guarded(world, configure(v.table("v"), defaults=quick(budget_s=40, drain_s=30))) as s:
            s.until("active", name="v")
            with Contender(world, 18 * GIB):
                s.wait(lambda: v.paused)
                s.stop()
            assert not v.paused and v.resident() == 8 * GIB
            assert "service ends" in s.messages()


def test_an_eviction_under_way_at_the_end_is_waited_for_and_undone(world, tmp_path):
    with Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, 8 * GIB)
        (tmp_path / "w.pid").write_text(f"{p.pid}\n")
        mark = world.held / str(p.pid)
        back = f"echo {8 * GIB} compute > {mark}.t && mv {mark}.t {mark}"
        leave = f"until test -e {tmp_path}/go; do sleep 0.1; done; rm -f {mark}"
        w = table("w", "exec", match_pidfile=tmp_path / "w.pid", evict_command=["/bin/sh", "-c", leave],
                  resume_command=["/bin/sh", "-c", back])
        with Guarded(world, configure(w, defaults=quick(quiet_s=60, budget_s=30))) as s:
            s.until("active", name="w")
            with Contender(world, 18 * GIB) as c:
                s.until("evict", name="w")
            s.wait(lambda: c.pid not in s.processes())
            s.child.send_signal(signal.SIGTERM)
            s.logs("signal=")
            assert s.child.poll() is None
            (tmp_path / "go").touch()
            s.child.wait(support.TIMEOUT)
            assert world.holds(p.pid) == 8 * GIB
            assert "verify to evicted" in s.messages()


def test_of_two_services_with_files_of_their_own_one_acts(world, worker, tmp_path):
    run = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
    with Guarded(world, configure(("ollama", worker)), env=run) as first:
        first.settled()
        with Guarded(world, configure(("ollama", worker)), env=run) as second:
            second.until("active")
            second.logs("only observes")
            assert f"process {first.child.pid}" in second.messages()
            assert f"process {first.child.pid}" in second.worker()["rail"]
            assert (second.worker()["dry_run_why"], first.worker()["dry_run_why"]) == ("another-service", None)
            for words in (["evict", "ollama"], ["status"], ["explain"]):
                text = second.guard(*words).stdout
                assert re.search("nother service (acts for|controls)", text) and "imulated" not in text, text
            second.observes()
            assert worker.resident() == 10 * GIB and worker.acted() == []
            second.guard("release", "ollama")
            with Contender(world, 8 * GIB):
                first.until("evicted")
                assert len(worker.acted()) == 1
            first.settled()
            first.stop()
            second.logs("no other gpuward guards")
            second.guard("evict", "ollama")
            second.wait(lambda: worker.resident() == 0)
            assert second.worker()["rail"] is None


def test_of_two_services_with_one_file_the_second_observes(world, worker):
    """Simulated GPUs have no lock without a runtime folder, so the file alone can show that there are two."""
    text = configure(("ollama", worker))
    with Guarded(world, text) as one, Contender(world, 1 << 20) as guest:
        one.settled()
        with Guarded(world, text, state=one.state) as two:
            two.until("active")
            assert two.get("/api/v1/guard").json()["mode"] == "observe"
            assert "another gpuward uses the same journal: this gpuward only observes" in two.messages()
            assert two.messages().count("is in use by another gpuward") == 1
            assert "history is kept in a file" in one.messages()
            assert "history is kept in a file" not in two.messages()
            two.guard("evict", "ollama")
            two.observes()
            assert worker.acted() == []
            world.hold(guest.pid, 8 * GIB)
            one.until("evicted")
            two.wait(lambda: worker.resident() == 0)
            assert len(worker.acted()) == 1  # the second service did nothing
            world.hold(guest.pid, 0)
            one.back(worker)
            assert len(worker.acted()) == 2
