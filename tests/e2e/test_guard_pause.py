"""pause and snooze: nobody is moved for others until their time is over or somebody says release."""
import time

import pytest

import service
import support
from guarded import Guarded, configure
from worker import GIB, Contender, Worker


@pytest.fixture
def workers(world):
    with Worker(world, size=4 * GIB) as a, Worker(world, size=4 * GIB) as b:
        service.Service.wait(lambda: a.resident() == b.resident() == 4 * GIB)
        yield [("a", a), ("b", b)]


@pytest.fixture
def s(world, workers):
    with Guarded(world, configure(*workers)) as running:
        for name, _ in workers:
            running.until("active", name=name)
        yield running


def test_while_it_is_paused_nobody_moves_and_the_status_says_why(world, workers, s):
    said = s.guard("pause", "--forever", "--reason", "a demonstration").stdout
    assert "to end this, run gpuward guard release" in said
    with Contender(world, 14 * GIB):
        s.wait(lambda: all("hold active masks contention" in s.worker(n)["why"] for n in ("a", "b")))
        assert all(w.acted() == [] for _, w in workers)
        table = s.guard("status").stdout
        assert "active, no end" in table and "hold active masks contention" in table
        s.restart()  # it outlives the service
        s.wait(lambda: s.worker("a")["hold"] == "active")
        assert all(w.acted() == [] for _, w in workers)
        s.guard("release")
        s.until("evicted", name="a")
    s.until("active", name="a")


def test_a_snooze_ends_by_itself(world, workers, s):
    began = time.monotonic()
    assert "For 2 s only heat and faults move workers" in s.guard("snooze", "1.5s").stdout
    left = s.worker("b")["hold_until_seconds"]
    assert 0 < left <= 1.5 if left is not None else time.monotonic() - began > 1.5
    with Contender(world, 14 * GIB):
        s.wait(lambda: any(w.acted() for _, w in workers))
        assert time.monotonic() - began > 1.5
        s.until("evicted", name="a")
        assert s.worker("a")["hold"] == "none"


def test_one_alone_can_be_snoozed(world, workers, s):
    assert "b: requested hold active for 10 min; its state is now active" in s.guard("snooze", "10m", "b").stdout
    assert (s.worker("a")["hold"], s.worker("b")["hold"]) == ("none", "active")
    with Contender(world, 14 * GIB):
        s.until("evicted", name="a")
        assert s.now("b") in ("active", "suspect") and workers[1][1].acted() == []
    s.guard("release", "b")
    assert s.worker("b")["hold"] == "none"


def test_one_that_is_held_evicted_stays_so_and_that_is_told(world, workers, s):
    s.guard("hold", "evicted", "a", "--for", "1h")
    done = s.guard("pause", "--for", "10m", code=support.FAILED)
    assert "a is held evicted: release it first" in done.stderr
    assert (s.worker("a")["hold"], s.worker("b")["hold"]) == ("evicted", "active")


@pytest.mark.parametrize("words,why", [
    (["pause"], "--forever"), (["pause", "--for", "1h", "--forever"], "--forever"), (["snooze"], "usage: gpuward guard snooze TIME"),
    (["snooze", "a"], "a time such as 30m"), (["snooze", "0s"], "a time such as 30m"),
    (["snooze", "30m", "--for", "1h"], "--for has no effect"), (["pause", "a", "b", "--for", "1h"], "usage: gpuward guard pause [WORKER]"),
    (["snoze", "30m"], "did you mean 'snooze'")])
def test_without_an_end_or_with_a_wrong_word_it_is_refused(words, why):
    done = support.gpuward("guard", *words)
    assert done.returncode == support.USAGE and why in done.stderr


def test_each_word_of_guard_tells_what_stands_after_it():
    listed = support.gpuward("guard", "--help").stdout
    for words in ("hold evicted|active WORKER|all", "game start|end --pid PID", "snooze TIME [WORKER]", "clear GPU",
                  "replay [--policy FILE] TRACE"):
        assert f"\n  {words}" in listed
        own = support.gpuward("guard", words.split()[0], "--help").stdout
        assert f"Usage: gpuward guard {words}" in own
    own = support.gpuward("guard", "snooze", "--help").stdout
    assert "--reason" in own and "--policy" not in own and "--forever" not in own
