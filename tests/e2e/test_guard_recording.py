"""Tests that a recording has every input of the guard, so that a replay makes the same decisions, byte for byte."""
import json
import re
import shutil
import signal

import pytest

import support
from guarded import Guarded, configure, held, keys, quick, rule, table
from worker import GIB, Contender, Process, Worker

KEYS = ("worker", "from", "to", "mask", "dry_run", "rule", "evidence")


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace"


def replay(trace, *args, config=None):
    """Returns the output of `gpuward guard replay`. config is the only configuration file, if any."""
    home = trace.parent / f"home-{config.stem if config else 'empty'}"
    (home / ".config/gpuward").mkdir(parents=True, exist_ok=True)
    if config:
        shutil.copy(config, home / ".config/gpuward/gpuward.toml")
    done = support.gpuward("guard", "replay", *args, trace, "--json", "--quiet",
                           env=support.environment(GPUWARD_CONFIG_ROOT=home / "none", HOME=home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def replayed(trace, **kw):
    return [json.loads(line) for line in replay(trace, **kw).splitlines()]


def kept(decisions, name=None):
    """Returns the compared parts of the decisions, for one worker or for all."""
    return [[d[k] for k in KEYS] for d in decisions if name in (None, d["worker"])]


def assert_same(s, trace):
    """Asserts that a replay makes the decisions of the service.  The service continues meanwhile, and its file may lag a little."""
    was = s.decisions()
    s.wait(lambda: len(replayed(trace)) >= len(was))
    assert was and kept(replayed(trace))[:len(was)] == kept(was)


def assert_ends_alike(s, trace):
    """Asserts the same for a recording that began while the guard ran: its replay makes only the last decisions."""
    was, now = s.decisions(), replayed(trace)
    assert len(now) >= 3 and kept(now) == kept(was[-len(now):])


def reload(s, text):
    s.reload(text)
    s.logs("uses the new configuration")


def test_a14_a_recording_replays_to_the_same_decisions(world, worker, trace, tmp_path):
    with Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"')) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.back(worker)
        s.guard("hold", "evicted", "ollama", "--for", "1h")
        s.until("evicted")
        was = s.decisions()
        eager, patient = (tmp_path / f"{n}.toml" for n in ("eager", "patient"))
        shutil.copy(s.config, eager)
        assert kept(replayed(trace, config=eager))[:len(was)] == kept(was)
    assert (trace.stat().st_mode & 0o777) == 0o600
    patient.write_text(eager.read_text().replace("[guard.defaults]", "[guard.defaults]\n" + keys(
        min_vram="9GiB", headroom="1MiB", headroom_percent=0)))
    assert '"contention"' not in replay(trace, "--policy", patient)
    assert '"contention"' in replay(trace, "--policy", eager)
    assert replay(trace, "--policy", eager) == replay(trace, "--policy", eager)


@pytest.mark.deep
def test_a_recording_grows_as_the_guide_says(s, worker, trace):
    """Checks the bytes per second in docs/GUARD.md. Each scene is a line, and there are ten scenes per second."""
    text = " ".join((support.TOP / "docs/GUARD.md").read_text().split())
    said = re.search(r"it grows by (\d+) to (\d+) bytes per second, or (\d+) to (\d+) MB per day", text)
    least, most, *days = map(int, said.groups())
    assert days == [round(n * 86400 / 1e6) for n in (least, most)]
    reload(s, configure(("ollama", worker), guard=f'record = "{trace}"'))
    scenes = lambda: [line for line in trace.read_text().splitlines() if re.match(r"D\t", line)]
    s.wait(lambda: len(scenes()) > 10)
    begin, lines = trace.stat().st_size, len(trace.read_text().splitlines())
    s.wait(lambda: len(trace.read_text().splitlines()) > lines + 60)
    size, now = trace.stat().st_size, len(trace.read_text().splitlines())
    assert least <= 10 * (size - begin) / (now - lines) <= most


def test_a_file_that_is_no_recording_is_refused(tmp_path, worker):
    policy = tmp_path / "gpuward.toml"
    policy.write_text(configure(("ollama", worker)))
    bad = tmp_path / "bad"
    bad.write_text("begin\t1\noutcome\tx\n")
    done = support.gpuward("guard", "replay", "--policy", policy, bad)
    assert done.returncode == 1 and "bad:2: this is not a line of a guard recording" in done.stderr
    for data, words in ((b"", "is empty: it is not a guard recording; name the file that record ="),
                        (b"\n\n", "has only empty lines: it is not a guard recording"), (b"\x7fELF\0\1\2", "has no complete line"),
                        (b"\n\x7fELF\0\1\2", "has no complete line: it is not a guard recording"),
                        (b"begin\t1\0\n", ":1: this is not a line of a guard recording")):
        bad.write_bytes(data)
        done = support.gpuward("guard", "replay", "--policy", policy, bad)
        assert done.returncode == 1 and words in done.stderr and done.stdout == "", done
    for name, words in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        done = support.gpuward("guard", "replay", "--policy", policy, name)
        assert done.returncode == 1 and f"cannot read {name}: {words}" in done.stderr


def test_another_service_that_acts_is_in_the_recording(world, worker, trace, tmp_path):
    run = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, configure(("ollama", worker)), env=run) as first:
        first.settled()
        with Guarded(world, text, env=run) as second:
            second.wait(lambda: second.now() == "active" and "only observes" in second.messages())
            second.guard("evict", "ollama")
            second.wait(lambda: second.now() == "evicted")
            assert worker.resident() == 10 * GIB
            assert any(d["dry_run"] for d in second.decisions())
            assert_same(second, trace)


def test_a_reservation_from_an_earlier_run_is_in_the_recording(world, worker, trace):
    with Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"')) as s:
        s.settled()
        s.kept(s.reserve(20 * GIB)["id"])
        s.until("evicted")
        s.stop(signal.SIGKILL)
        trace.unlink()
        s.start()
        s.logs("continues")
        s.wait(lambda: s.now() not in (None, "reconcile"))
        s.observes()
        assert worker.resident() == 0
        assert_same(s, trace)


def test_a_recording_goes_on_over_another_configuration(world, worker, trace, tmp_path):
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, text) as s:
        s.settled()
        room = s.reserve(20 * GIB)["id"]
        s.until("evicted")
        other = text.replace("quiet_s = 0.3", "quiet_s = 0.6")  # decisions contain this time and the numbers of rules
        assert other != text
        reload(s, other + rule("contend-now", name="sleep"))
        s.observes()
        assert s.now() == "evicted"
        assert_same(s, trace)
        s.release(room)
        s.back(worker)
        with Contender(world, 1 << 20):
            s.wait(lambda: any("rule 1 (" in (d["rule"] or "") for d in s.decisions()))
        s.back(worker)
        assert_same(s, trace)
        words = (line.split("\t")[0] for line in trace.read_text().splitlines())
        assert [w for w in words if w in ("begin", "swap", "swapped")] == ["begin", "swap", "swapped"]
        assert str(s.token_file) not in trace.read_text()
        trace.rename(tmp_path / "old")  # as logrotate does: a file that is missing is made again
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: trace.exists() and trace.read_text().startswith("begin\t"))


def test_workers_that_change_places_come_and_go_are_replayed_as_they_were(world, worker, trace, tmp_path):
    game = shutil.copy("/bin/sleep", tmp_path / "game")
    with Worker(world, size=2 * GIB) as b:
        def text(*workers):
            return configure(*workers, guard=f'record = "{trace}"\npoll_ms = 50\nunknown = "watch"',
                             more=rule("contend-now", name="game"))
        one, two = ("ollama", worker), ("b", b)
        with Guarded(world, text(one)) as s:
            s.settled()
            for n, pair in enumerate(((two, one), (one, two), (two,), (two, one)), 1):
                def all_are(state, pair=pair):
                    s.wait(lambda: all(s.now(name) == state for name, _ in pair))
                s.reload(text(*pair))
                s.wait(lambda n=n: s.messages().count("uses the new configuration") == n)
                all_are("active")
                with Contender(world, 4 * GIB, exe=game):
                    all_are("evicted")
                all_are("active")
            was = kept(s.decisions(), "b")  # the decisions of the other worker were removed with it
            assert len(was) > 20 and kept(replayed(trace), "b")[-len(was):] == was
            assert {d["worker"] for d in replayed(trace)} == {"ollama", "b"}


def test_a_recording_that_reached_its_limit_is_renamed_and_goes_on(world, worker, trace, tmp_path):
    old = tmp_path / "trace.1"
    text = configure(("ollama", worker), guard=f'record = "{trace}"\nrecord_limit = "8 KB"\npoll_ms = 20')
    with Guarded(world, text) as s:
        s.settled()
        with Contender(world, 8 * GIB):
            s.until("evicted")
            s.wait(old.exists)
            reload(s, text.replace("8 KB", "1 GB"))  # so that the new file is not renamed, too
            assert "\nstate\tend\n" in trace.read_text()
            assert max(trace.stat().st_size, old.stat().st_size) < 200 << 10
        s.back(worker)
        assert_ends_alike(s, trace)  # its replay begins where the file begins
        for file in (trace, old):  # with another policy, a replay begins as after a restart
            done = support.gpuward("guard", "replay", "--policy", s.config, file)
            assert done.returncode == support.OK and "ollama: " in done.stdout, done.stderr
        assert trace.stat().st_mode & 0o777 == old.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(world, worker):
    with Guarded(world, configure(("ollama", worker), guard='record = "/dev/full"')) as s:
        s.settled()
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("active")
        assert s.messages().count("/dev/full cannot be written") == 1


def test_a_recording_that_begins_late_begins_with_all_that_is_known(s, worker, trace):
    room = s.reserve(20 * GIB)["id"]
    s.until("evicted")
    reload(s, configure(("ollama", worker), guard=f'record = "{trace}"'))
    s.wait(trace.exists)
    s.release(room)
    s.until("active")
    assert_ends_alike(s, trace)
    assert "room\t" in trace.read_text().partition("\nS\t")[0]


def test_an_old_recording_needs_a_configuration(tmp_path, trace):
    trace.write_text("begin\t3\t0\t2\nworker\t0\tollama\ngames\t5\t0\n")
    done = support.gpuward("guard", "replay", trace, env=support.environment(GPUWARD_CONFIG_ROOT=tmp_path / "none",
                                                                            HOME=tmp_path))
    assert done.returncode == support.USAGE and "has no [[worker]]" in done.stderr


def test_observations_without_a_change_need_few_bytes(world, worker, trace):
    with Guarded(world, configure(("ollama", worker), guard=f'record = "{trace}"\npoll_ms = 20')) as s:
        s.settled()

        def scenes():
            return sum(line[:2] in ("E\t", "D\t") for line in trace.read_text().splitlines())
        before, size = scenes(), trace.stat().st_size
        s.wait(lambda: scenes() > before + 40)
        assert (trace.stat().st_size - size) / (scenes() - before) < 200  # a whole scene has about 900 bytes
        with Contender(world, 8 * GIB):
            s.until("evicted")
            # simulate also accepts a part of a recording: it skips changes to a scene that is not in the part.
            lines = trace.read_text().rpartition("\n")[0].splitlines()
            at = max(i for i, line in enumerate(lines) if line.startswith("S\t"))
            part = lines[at - 1:] if lines[at - 1].startswith("D\t") else ["D\t1\t0", *lines[at:]]
            who = [line for line in lines if line.startswith(("begin\t", "worker\t"))]
            good = s.post("/api/v1/guard/simulate", token=True, json={"trace": "\n".join(who + part), "seconds": 1})
            assert good.status_code == 200, good.text
            gone = s.post("/api/v1/guard/simulate", token=True, json={"trace": "D\t1\t0\n", "seconds": 1})
            assert gone.status_code == 400 and "no complete scene" in gone.text
        assert_same(s, trace)


def test_a_simulated_policy_compares_the_command_lines_with_its_own_patterns(world):
    """The running rules and those of the request have different patterns at the same position."""
    with Guarded(world, configure(more=rule("watch", command="sleep"))) as s, Contender(world, 1 * GIB) as c:
        s.wait(lambda: s.processes().get(c.pid, {}).get("class") == "ignored")
        for pattern, expected in (("nothing-matches", "contender"), ("sl[e]+p", "ignored")):
            policy = configure(more=rule("watch", command=pattern))
            got = s.post("/api/v1/guard/simulate", token=True, json={"policy": policy, "seconds": 1}).json()
            assert {p["pid"]: p["class"] for g in got["gpus"] for p in g["processes"]}[c.pid] == expected


def parts(trace):
    """Returns the beginning of a recording and its last complete scene."""
    lines = trace.read_text().rpartition("\n")[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line[1] == "\t")
    end = max(i for i, line in enumerate(lines) if line[:2] == "E\t")
    start = max(i for i, line in enumerate(lines[:end]) if line[:2] == lines[head][:2])
    return "\n".join(lines[:head]), "\n".join(lines[start:end + 1])


def test_a_recording_begins_with_what_the_journal_knew_and_names_its_workers(world, trace, tmp_path):
    with held(world, "ollama", 4 * GIB, models=["a"]) as a, held(world, "ollama", 5 * GIB, models=["b"]) as b:
        tables = [a.table("a", priority=1), b.table("b", priority=2)]
        orders = [configure(*t, guard=f'record = "{trace}"', defaults=quick(quiet_s=60)) for t in (tables, tables[::-1])]
        with Guarded(world, orders[0]) as s:
            for name in "ab":
                s.until("active", name=name)
            s.guard("hold", "evicted", "b", "--for", "1h")
            s.until("evicted", name="b")
            s.stop(signal.SIGKILL)
            trace.unlink()
            s.start()
            s.until("evicted", name="b")
            s.guard("release", "b")
            s.until("active", name="b")
            was = s.decisions()
            s.wait(lambda: str(4 * GIB) in parts(trace)[1] and str(5 * GIB) in parts(trace)[1])
            for text in orders:  # workers are known by name, not by their order
                got = s.post("/api/v1/guard/simulate", token=True,
                              json={"trace": "\n".join(parts(trace)) + "\n", "policy": text, "seconds": 1}).json()
                assert {w["name"]: w["need_bytes"] for w in got["workers"]} == {"a": 4 * GIB, "b": 5 * GIB}
    for i, text in enumerate(orders):
        config = tmp_path / f"{i}.toml"
        config.write_text(text)
        now = replayed(trace, config=config)
        for name in "ab":
            seen = kept(was, name)
            assert kept(now, name)[:len(seen)] == seen
    assert ["b", "reconcile", "evicted"] in [d[:3] for d in kept(now)]


def test_a_replay_of_a_service_that_stopped_during_an_order_makes_the_same_decisions(world, trace, tmp_path):
    order = tmp_path / "order"
    with Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, 10 * GIB)
        (tmp_path / "pid").write_text(f"{p.pid}\n")
        leave = f"touch {order}; sleep 1; rm {world.held}/{p.pid}"
        text = configure(table("w", "exec", match_pidfile=tmp_path / "pid", evict_command=["/bin/sh", "-c", leave],
                               resume_command=["/bin/true"]), guard=f'record = "{trace}"', defaults=quick(drain_s=0))
        with Guarded(world, text) as s, Contender(world, 8 * GIB):
            s.wait(order.exists)
            s.stop()
            said = [d for d in replayed(trace) if d["from"] != d["to"]]
            assert [d["to"] for d in said][-2:] == ["verify", "evicted"]


# These change no decision.
FETCHED = {"guard_next_order", "guard_next_decision", "guard_next_record", "guard_free", "guard_set_reason_end"}


def test_each_input_of_the_guard_is_recorded_in_one_place_and_read_in_one_place():
    """Each function of guard_input.h that changes the guard is called in two places: where it is recorded, and in a replay."""
    text = re.sub(r"/\*.*?\*/", "", (support.TOP / "src/guard/guard_input.h").read_text(), flags=re.S)
    inputs = set(re.findall(r"\b(guard_\w+)\(\s*struct guard \*g\b", text)) - FETCHED
    assert len(inputs) > 12 and "guard_set_foreign" in inputs
    callers = {}
    for layer in ("serve", "daemon", "cli"):
        for path in (support.TOP / "src" / layer).glob("*.c"):
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            for name in inputs & set(re.findall(r"\b(guard_\w+)\(", code)):
                callers.setdefault(name, set()).add(path.name)
    # Only a replay makes a guard that continues from the state of a recorded guard.
    assert callers.pop("guard_set_last_id") == callers.pop("guard_set_fetched") == {"recording_read.c"}
    assert callers == {name: {"guard_recorder.c", "recording_read.c"} for name in inputs - {"guard_set_last_id", "guard_set_fetched"}}
