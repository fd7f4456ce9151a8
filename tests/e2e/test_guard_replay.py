"""A recording has all that the guard was told: what it decided then is decided again, to the byte."""
import json
import re
import shutil
import signal
import time

import guarded
import support
from guarded import Guarded, configure, settled
from worker import GIB, Contender, Worker

ROOMS = "/api/v1/guard/reservations"
KEYS = ("worker", "from", "to", "mask", "dry_run", "rule", "evidence")


def reserve(s, **kw):
    done = s.post(ROOMS, token=True, json={"bytes": 20 * GIB, "ttl_s": 600, **kw})
    assert done.status_code == 201, done.text
    return done.json()["id"]


def give(s, text):
    guarded.give(s, text)
    s.wait(lambda: "uses the new configuration" in s.messages())


def replayed(trace, home):
    """By what the recording says, where there is no configuration."""
    home.mkdir(exist_ok=True)
    done = support.gpuward("guard", "replay", trace, "--json", "--quiet",
                           env=support.environment(GPUWARD_CONFIG_ROOT=home / "none", HOME=home))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_same(s, trace, home):
    """What the service has decided, and what follows from its recording; the service may go on meanwhile, and the file
    comes a little after it."""
    was = s.decisions()
    s.wait(lambda: len(replayed(trace, home)) >= len(was))
    now = replayed(trace, home)
    assert was and [[d[k] for k in KEYS] for d in now[:len(was)]] == [[d[k] for k in KEYS] for d in was]


def test_another_service_that_acts_is_in_the_recording(world, worker, tmp_path):  # noqa: F811
    run = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
    trace = tmp_path / "trace"
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, configure(("ollama", worker)), env=run) as first:
        settled(first)
        with Guarded(world, text, env=run) as second:
            second.wait(lambda: second.now() == "active" and "only observes" in second.messages())
            second.guard("evict", "ollama")
            second.wait(lambda: second.now() == "evicted")
            assert worker.resident() == 10 * GIB
            assert any(d["dry_run"] for d in second.decisions())
            assert_same(second, trace, tmp_path / "home")


def test_a_room_of_an_earlier_run_is_in_the_recording(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    with Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"')) as s:
        settled(s)
        s.kept(reserve(s))
        s.until("evicted")
        s.stop(signal.SIGKILL)
        trace.unlink()
        s.start()
        s.wait(lambda: "continues" in s.messages())
        s.wait(lambda: s.now() not in (None, "reconcile"))
        time.sleep(1)
        assert worker.resident() == 0
        assert_same(s, trace, tmp_path / "home")


def test_a_recording_goes_on_over_another_configuration(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, text) as s:
        settled(s)
        room = reserve(s)
        s.until("evicted")
        other = text.replace("quiet_s = 0.3", "quiet_s = 0.6")  # told by decisions, as are numbers of rules
        assert other != text
        give(s, other + '[[rule]]\nmatch.name = "sleep"\naction = "contend-now"\n')
        time.sleep(1)
        assert s.now() == "evicted"
        assert_same(s, trace, tmp_path / "home")
        assert s.ask("DELETE", f"{ROOMS}/{room}", token=True).status_code == 204
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        with Contender(world, 1 << 20):
            s.wait(lambda: any("rule 1 (" in (d["rule"] or "") for d in s.decisions()))
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert_same(s, trace, tmp_path / "home")
        assert trace.read_text().count("begin\t") == 1
        assert str(s.token_file) not in trace.read_text()
        trace.rename(tmp_path / "old")  # turned over: a file that is not there any more is made anew
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: trace.exists() and trace.read_text().startswith("begin\t"))


def test_workers_that_change_places_come_and_go_are_replayed_as_they_were(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    game = shutil.copy("/bin/sleep", tmp_path / "game")
    with Worker(world, size=2 * GIB) as b:
        def text(*workers):
            return configure(*workers, guard=f'record = "{trace}"\npoll_ms = 50\nunknown = "watch"',
                             more='[[rule]]\nmatch.name = "game"\naction = "contend-now"\n')
        one, two = ("ollama", worker), ("b", b)
        with Guarded(world, text(one)) as s:
            settled(s)
            for n, workers in enumerate(((two, one), (one, two), (two,), (two, one))):
                with open(s.config, "w") as f:
                    f.write(text(*workers))
                s.child.send_signal(signal.SIGHUP)
                s.wait(lambda k=n: s.messages().count("uses the new configuration") == k + 1)
                s.wait(lambda w=workers: all(s.now(name) == "active" for name, _ in w))
                with Contender(world, 4 * GIB, exe=game):
                    s.wait(lambda w=workers: all(s.now(name) == "evicted" for name, _ in w))
                s.wait(lambda w=workers: all(s.now(name) == "active" for name, _ in w))
            was = [d for d in s.decisions() if d["worker"] == "b"]  # who was gone took his decisions with him
            now = [d for d in replayed(trace, tmp_path / "home") if d["worker"] == "b"]
            assert len(was) > 20
            assert [[d[k] for k in KEYS] for d in now[-len(was):]] == [[d[k] for k in KEYS] for d in was]
            assert {d["worker"] for d in replayed(trace, tmp_path / "home")} == {"ollama", "b"}


def assert_ends_alike(s, trace, home):
    """Of a recording that began while the guard ran, when it is at rest."""
    was, now = s.decisions(), replayed(trace, home)
    assert len(now) >= 3 and [[d[k] for k in KEYS] for d in now] == [[d[k] for k in KEYS] for d in was[-len(now):]]


def test_a_recording_that_has_grown_is_turned_over_and_goes_on(world, worker, tmp_path):  # noqa: F811
    trace, old = tmp_path / "trace", tmp_path / "trace.1"
    text = configure(("ollama", worker), guard=f'record = "{trace}"\nrecord_limit = "8 KB"\npoll_ms = 20')
    with Guarded(world, text) as s:
        settled(s)
        with Contender(world, 8 * GIB):
            s.until("evicted")
            s.wait(old.exists)
            give(s, text.replace("8 KB", "1 GB"))  # so that it stays
            assert "\nstate\tend\n" in trace.read_text()
            assert max(trace.stat().st_size, old.stat().st_size) < 200 << 10
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert_ends_alike(s, trace, tmp_path / "home")  # from its own beginning
        for file in (trace, old):  # by another one it begins as after a restart
            done = support.gpuward("guard", "replay", "--policy", s.config, file)
            assert done.returncode == support.OK and "ollama: " in done.stdout, done.stderr
        assert trace.stat().st_mode & 0o777 == old.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(world, worker, tmp_path):  # noqa: F811
    with Guarded(world, configure(("ollama", worker), guard='record = "/dev/full"')) as s:
        settled(s)
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("active")
        assert s.messages().count("/dev/full cannot be written") == 1


def test_a_recording_that_begins_late_begins_with_all_that_is_known(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    text = configure(("ollama", worker))
    with Guarded(world, text) as s:
        settled(s)
        room = reserve(s)
        s.until("evicted")
        give(s, configure(("ollama", worker), guard=f'record = "{trace}"'))
        s.wait(trace.exists)
        assert s.ask("DELETE", f"{ROOMS}/{room}", token=True).status_code == 204
        s.until("active")
        assert_ends_alike(s, trace, tmp_path / "home")
        assert "room\t" in trace.read_text().partition("\nS\t")[0]


def test_an_old_recording_needs_a_configuration(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("begin\t3\t0\t2\nworker\t0\tollama\ngames\t5\t0\n")
    done = support.gpuward("guard", "replay", trace, env=support.environment(GPUWARD_CONFIG_ROOT=tmp_path / "none",
                                                                            HOME=tmp_path))
    assert done.returncode == support.USAGE and "names no worker" in done.stderr


def test_looks_that_change_nothing_take_little_room(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    with Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"\npoll_ms = 20')) as s:
        settled(s)
        looks = lambda: sum(line[:2] in ("E\t", "D\t") for line in trace.read_text().splitlines())  # noqa: E731
        before, size = looks(), trace.stat().st_size
        s.wait(lambda: looks() > before + 40)
        assert (trace.stat().st_size - size) / (looks() - before) < 200  # a whole one has some 900 bytes
        with Contender(world, 8 * GIB):
            s.until("evicted")
            # A part of it is a world for simulate, too: changes of a scene that was cut off are passed over.
            lines = trace.read_text().rpartition("\n")[0].splitlines()
            at = max(i for i, line in enumerate(lines) if line.startswith("S\t"))
            part = lines[at - 1:] if lines[at - 1].startswith("D\t") else ["D\t1\t0", *lines[at:]]
            who = [line for line in lines if line.startswith(("begin\t", "worker\t"))]
            told = s.post("/api/v1/guard/simulate", token=True, json={"trace": "\n".join(who + part), "seconds": 1})
            assert told.status_code == 200, told.text
            gone = s.post("/api/v1/guard/simulate", token=True, json={"trace": "D\t1\t0\n", "seconds": 1})
            assert gone.status_code == 400 and "no complete scene" in gone.text
        assert_same(s, trace, tmp_path / "home")


# These change no decision.
FETCHED = {"guard_next_order", "guard_next_decision", "guard_next_record", "guard_free", "guard_reason_ends"}


def test_whatever_the_guard_can_be_told_is_told_recorded_and_read_in_one_place_each():
    """A function of guard_feed.h that changes the guard: the service calls it where it is recorded, a replay where it is read."""
    text = re.sub(r"/\*.*?\*/", "", (support.TOP / "src/guard/guard_feed.h").read_text(), flags=re.S)
    told = set(re.findall(r"\b(guard_\w+)\(\s*struct guard \*g\b", text)) - FETCHED
    assert len(told) > 12 and "guard_foreign" in told
    callers = {}
    for layer in ("serve", "daemon", "cli"):
        for path in (support.TOP / "src" / layer).glob("*.c"):
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            for name in told & set(re.findall(r"\b(guard_\w+)\(", code)):
                callers.setdefault(name, set()).add(path.name)
    # A guard that goes on where another was is made by whoever reads alone.
    assert callers.pop("guard_number_from") == {"guard_trace_read.c"}
    assert callers == {name: {"guard_recorder.c", "guard_trace_read.c"} for name in told - {"guard_number_from"}}
