"""A11 of the acceptance list (docs/GUARD.md): the service is killed at every write of its journal.

A life is: somebody comes, leaves; a person holds the worker out, lets it go.  In each life the service dies at another
write, before it, after it, or in the midst of it, and is started again.  Whenever it died, the worker is evicted twice,
brought back twice, and held when a person was told so.
"""
import concurrent.futures
import os
import re
import time

import pytest
import requests

import guarded
import support
from guarded import Guarded
from worker import GIB, Contender, World

SHIM = support.BUILD / "tests" / "e2e" / "libkill_at_write.so"
TEXT = """
[guard]
mode = "enforce"
simulated = true
poll_ms = 100
[guard.defaults]
quiet_s = 0.2
min_resident_s = 0
post_action_s = 0
verify_s = 2
drain_s = 0.5
"""
MOST = 20  # there are fewer writes in a life


class Mortal(Guarded):
    """Dies once, at a write of its journal."""

    def __init__(self, world, text, when, n):
        super().__init__(world, text)
        self.deaths = 0
        self.tally = os.path.join(self.path, "writes")
        self.env.update(LD_PRELOAD=str(SHIM), KILL_AT=str(n), KILL_WHEN=when, KILL_LOG=self.tally)

    def start(self, ready=True):
        try:
            return super().start(ready)
        except AssertionError:  # it died before it listened, or was ready
            return self

    def live(self):
        """Starts it again if it has died."""
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

    def reach(self, true, what):
        end = time.monotonic() + support.TIMEOUT
        while True:
            self.live()
            try:
                if true():
                    return
            except requests.RequestException:
                pass
            assert time.monotonic() < end, (what, {k: self.worker().get(k) for k in ("state", "mask", "hold", "why")}, self.course())
            time.sleep(0.02)

    def ask(self, method, path, **kw):
        kw.setdefault("timeout", 20)
        return super().ask(method, path, **kw)

    def tell(self, what, **body):
        """True: the service said that it is so."""
        try:
            return self.post(f"/api/v1/guard/workers/ollama/{what}", token=True, json=body).status_code < 300
        except requests.RequestException:
            return False

    def course_of_writes(self):
        """w: a record was written, s: what was written is on the disk."""
        return open(self.tally).read() if os.path.exists(self.tally) else ""

    def writes(self):
        return self.course_of_writes().count("w")


def asked(w, out):
    return sum(p == "/api/generate" and (b.get("keep_alive") == 0) == out for m, p, b in list(w.calls))


def wish(s, hold, what, **body):
    """What a person asks; who was told that it is so need not ask twice."""
    if s.tell(what, **body):
        return
    s.reach(lambda: s.now() not in (None, "reconcile"), what)
    if s.worker()["hold"] != hold:
        assert s.tell(what, **body)


def life(path, when, n):
    path.mkdir()
    world = World(path)
    with guarded.held(world, "Ollama", 10 * GIB, models=["llama3:8b"]) as w:
        with Mortal(world, TEXT + w.table("ollama", "ollama"), when, n) as s:
            s.reach(lambda: s.now() == "active", "active at first")
            with Contender(world, 8 * GIB):
                s.reach(lambda: s.now() == "evicted" and w.resident() == 0, "evicted")
            s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "back")
            assert (asked(w, out=True), asked(w, out=False)) == (1, 1), (when, n, w.calls)
            wish(s, "evicted", "hold", state="evicted", ttl_s=0)
            s.reach(lambda: s.now() == "evicted" and w.resident() == 0, "held")
            s.reach(lambda: s.worker()["hold"] == "evicted" and s.worker()["mask"] == ["manual"], "held, and said")
            wish(s, None, "release")
            s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "back again")
            time.sleep(0.3)
            s.live()
            s.reach(lambda: s.now() == "active" and w.resident() == 10 * GIB, "stays")
            assert (asked(w, out=True), asked(w, out=False)) == (2, 2), (when, n, w.calls)
            return s.deaths, s.writes()


@pytest.mark.parametrize("when, every", [("before", 1), ("after", 1), ("torn", 4)])
def test_a11_killed_at_every_write_of_its_journal(tmp_path, when, every):
    if not SHIM.exists():
        pytest.skip("the shim that kills is not built")
    numbers = list(range(1, MOST + 1, every))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        lives = dict(zip(numbers, pool.map(lambda n: life(tmp_path / f"{when}-{n}", when, n), numbers)))
    # How many writes there are depends on who was faster; all of the first dozen are there, and none is past the last.
    assert [deaths for n, (deaths, _) in lives.items() if n <= 12] == [1] * len([n for n in numbers if n <= 12]), lives
    assert max(writes for _, writes in lives.values()) <= MOST, lives


def test_a11_a_record_is_on_the_disk_before_its_order_is_given(tmp_path):
    if not SHIM.exists():
        pytest.skip("the shim that counts is not built")
    world = World(tmp_path)
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        with Mortal(world, TEXT + w.table("ollama", "ollama"), "never", 1000) as s:
            s.until("active")
            assert s.tell("hold", state="evicted", ttl_s=0)
            assert re.fullmatch("s*(w+s+)+", s.course_of_writes()), s.course_of_writes()
            s.until("evicted")
            s.wait(lambda: re.fullmatch("s*(w+s+)+", s.course_of_writes()))
            assert s.course_of_writes().count("ws") >= 3, s.course_of_writes()


def test_on_a_full_disk_nothing_above_level_2_is_done(tmp_path):
    """The worker is asked to leave, which it can take back itself; it is not ended, and the status says why."""
    if not SHIM.exists():
        pytest.skip("the shim that fills the disk is not built")
    world = World(tmp_path)
    process = guarded.Recorder(world, tmp_path / "signals")
    kill = TEXT + "max_level = 6\nallow_kill = true\nbudget_s = 5\n"
    with guarded.held(world, "Ollama", 10 * GIB, process=process, models=["m"], keeps=True) as w:
        with Mortal(world, kill + w.table("ollama", "ollama"), "full", 1) as s:
            s.until("active")
            assert s.post("/api/v1/guard/workers/ollama/evict", token=True, json={}).status_code < 300
            s.until("stuck")
            assert asked(w, out=True) >= 1
            assert process.signals() == [] and process.child.poll() is None
            assert "journal cannot be written" in s.worker()["why"] + s.get("/api/v1/guard").text


def test_the_status_says_at_once_that_a_wish_is_not_kept(tmp_path):
    if not SHIM.exists():
        pytest.skip("the shim that fills the disk is not built")
    world = World(tmp_path)
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        with Mortal(world, TEXT + w.table("ollama", "ollama"), "full", 0) as s:
            s.until("active")
            told = s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"ttl_s": 0}).json()["journal"]
            assert "lost when the service restarts" in told
            assert "cannot be written" in s.get("/api/v1/guard").json()["journal"]
            s.until("evicted")
            assert "cannot be written" in s.get("/api/v1/guard").json()["journal"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_history_that_is_no_file_is_told_and_nothing_waits_for_it(tmp_path, make):
    world = World(tmp_path)
    state = tmp_path / "history.db"
    make(state)
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        with Guarded(world, TEXT + w.table("ollama", "ollama"), state=str(state)) as s:
            s.until("active")
            assert f"{state} is a directory, a pipe or a device" in s.messages()
            assert s.get("/api/v1/guard").json()["journal"].startswith("there is no journal file")
            with Contender(world, 8 * GIB):
                s.until("evicted")
            s.until("active")


def test_of_two_guards_the_second_observes(tmp_path):
    world = World(tmp_path)
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        text = TEXT + w.table("ollama", "ollama")
        with Guarded(world, text) as s, Guarded(world, text, state=s.state) as second:
            s.until("active")
            second.until("active")
            assert second.get("/api/v1/guard").json()["mode"] == "observe"
            assert "already guards" in second.messages()
            second.post("/api/v1/guard/workers/ollama/evict", token=True, json={})
            time.sleep(0.7)
            assert w.resident() == 10 * GIB and asked(w, out=True) == 0
            with Contender(world, 8 * GIB):
                s.until("evicted")
                assert asked(w, out=True) == 1
