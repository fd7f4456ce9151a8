"""A recording has all that the guard was told: what it decided then is decided again, to the byte."""
import json
import re
import signal
import time

import support
from test_guard import Guarded, configure, world, worker  # noqa: F401
from worker import GIB, Contender

ROOMS = "/api/v1/guard/reservations"
KEYS = ("worker", "from", "to", "mask", "dry_run", "rule", "evidence")


def settled(s):
    s.wait(lambda: s.now() == "active" and s.worker()["resident_bytes"] == 10 * GIB)


def reserve(s, **kw):
    done = s.post(ROOMS, token=True, json={"bytes": 20 * GIB, "ttl_s": 600, **kw})
    assert done.status_code == 201, done.text
    return done.json()["id"]


def give(s, text):
    with open(s.config, "w") as f:
        f.write(text)
    s.child.send_signal(signal.SIGHUP)
    s.wait(lambda: "goes by the new configuration" in s.messages())


def replayed(trace, home, text):
    """By the configuration that the service has: without --policy."""
    place = home / ".config/gpuward"
    place.mkdir(parents=True, exist_ok=True)
    (place / "gpuward.toml").write_text(text)
    done = support.gpuward("guard", "replay", trace, "--json", "--quiet",
                           env=support.environment(GPUWARD_CONFIG_ROOT=home / "none", HOME=home))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_same(s, trace, home):
    """What the service has decided, and what follows from its recording; the service may go on meanwhile."""
    was = s.decisions()
    now = replayed(trace, home, open(s.config).read())
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
        s.wait(lambda: "is still kept" in s.messages())
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
        other = text.replace("quiet_s = 0.3", "quiet_s = 0.6")
        assert other != text
        give(s, other)
        time.sleep(1)
        assert s.now() == "evicted"
        assert_same(s, trace, tmp_path / "home")
        assert s.ask("DELETE", f"{ROOMS}/{room}", token=True).status_code == 204
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert_same(s, trace, tmp_path / "home")
        assert trace.read_text().count("begin\t") == 1
        trace.rename(tmp_path / "old")  # turned over: a file that is not there any more is made anew
        s.child.send_signal(signal.SIGHUP)
        s.wait(trace.exists)
        assert trace.read_text().startswith("begin\t")


def test_a_recording_that_begins_late_begins_with_what_stands(world, worker, tmp_path):  # noqa: F811
    trace = tmp_path / "trace"
    text = configure(("ollama", worker))
    with Guarded(world, text) as s:
        settled(s)
        reserve(s)
        s.until("evicted")
        give(s, configure(("ollama", worker), guard=f'record = "{trace}"'))
        s.wait(trace.exists)
        time.sleep(1)
        assert s.now() == "evicted"
        now = replayed(trace, tmp_path / "home", open(s.config).read())
        assert now[-1]["to"] == "evicted" and "resume" not in {d["to"] for d in now}  # as after a restart
        assert "room\t" in trace.read_text().partition("\nS\t")[0]


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
            told = s.post("/api/v1/guard/simulate", token=True, json={"trace": "\n".join(lines[:2] + part), "seconds": 1})
            assert told.status_code == 200, told.text
            gone = s.post("/api/v1/guard/simulate", token=True, json={"trace": "D\t1\t0\n", "seconds": 1})
            assert gone.status_code == 400 and "no whole scene" in gone.text
        assert_same(s, trace, tmp_path / "home")


# These change no decision.
FETCHED = {"guard_next_order", "guard_next_decision", "guard_next_record", "guard_free", "guard_reason_ends"}


def test_whatever_the_guard_can_be_told_is_told_recorded_and_read_in_one_place_each():
    """A function of guard.h that changes the guard: the service calls it where it is recorded, a replay where it is read."""
    text = re.sub(r"/\*.*?\*/", "", (support.TOP / "src/guard/guard.h").read_text(), flags=re.S)
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
    assert callers == {name: {"guarding_trace.c", "guard_trace_read.c"} for name in told - {"guard_number_from"}}
