"""Tests gpuward measure --clean-room: the guard's workers stay off the measured GPU, and come back in every case."""
import contextlib
import datetime
import json
import os
import signal
import subprocess

import pytest

import guarded
import support
from guarded import Guarded
from service import Service
from synthetic import reader
from worker import GIB, World

SHARED = 13


@contextlib.contextmanager
def guarding(path, mode="enforce", keys=None, **kw):
    """A world with a worker on the first of its two GPUs, and a service that guards it."""
    world = World(path, more='[[gpu]]\nprofile = "rtx4090"\n')
    with guarded.held(world, "ollama", 10 * GIB, models=["llama3:8b"], **kw) as worker:
        with Guarded(world, guarded.configure(worker.table("ollama", **(keys or {})), mode=mode)) as s:
            s.world, s.held_worker, s.path_of = world, worker, path
            s.until("active")
            yield s


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    with guarding(tmp_path_factory.mktemp("room")) as service:
        yield service


@pytest.fixture
def s(room, tmp_path):
    """The worker is on its GPU, and there is no hold."""
    room.path_of = tmp_path
    yield room
    if room.worker()["hold"] != "none" or room.worker()["mask"]:
        room.guard("release", "ollama")
    back(room)


def words(s, *options, command, token=True):
    argv = ["measure", f"--simulate={s.world.scenario}", "--clean-room", "--address", s.url]
    argv += ["--token-file", s.token_file] if token else []
    return [*argv, "-o", s.path_of / "result.json", *options, "--", *command]


def measure(s, *options, command=("true",), **kw):
    done = support.gpuward(*words(s, *options, command=command, **kw))
    out = s.path_of / "result.json"
    doc = json.loads(out.read_text()) if out.exists() else None
    if doc:
        support.check("measure", doc)
    return done, doc


def start(s, *options, command=("sleep", "1000")):
    """Starts gpuward measure and waits until the command runs."""
    begun = s.path_of / "begun"
    argv = words(s, *options, command=["sh", "-c", f"echo $$ > {begun}.new; mv {begun}.new {begun}; exec \"$@\"", "sh", *command])
    child = subprocess.Popen([str(support.PROGRAM), *map(str, argv)], env=support.environment(), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    s.wait(begun.exists)
    return child


def until(worker):
    return datetime.datetime.fromisoformat(worker["hold_until_utc"].replace("Z", "+00:00"))


def back(s):
    s.wait(lambda: s.now() == "active" and s.held_worker.resident() == 10 * GIB)
    assert s.worker()["hold"] == "none"


@pytest.fixture(scope="module", autouse=True)
def killed(tmp_path_factory):
    """A measurement that is killed before the other tests begin, because the holds that it leaves take a while to expire."""
    with guarding(tmp_path_factory.mktemp("killed")) as service:
        child = start(service)
        child.kill()
        child.wait()
        child.stderr.close()
        os.kill(int((service.path_of / "begun").read_text()), signal.SIGKILL)
        yield service


def test_the_worker_is_out_while_the_command_runs_and_comes_back(s, tmp_path):
    seen = tmp_path / "seen"
    done, doc = measure(s, command=["sh", "-c", f"ls {s.world.held} > {seen}; sleep 0.3"])
    assert done.returncode == 0, done.stderr
    assert seen.read_text() == ""
    room = doc["clean_room"]
    assert room["kept"] is True and room["waited_seconds"] > 0
    assert room["workers"] == [{"name": "ollama", "state_before": "active", "hold_before": "none",
                                "hold_before_seconds": None, "held_by": "measurement", "broken": None}]
    assert "Clean room   ollama was kept off the GPUs\n" in done.stderr
    assert "foreign-process" not in [c["code"] for c in doc["runs"][0]["codes"]]
    back(s)


def test_it_comes_back_after_a_command_that_fails(s):
    done, doc = measure(s, command=["sh", "-c", "exit 7"])
    assert done.returncode == 7 and doc["clean_room"]["kept"] is True
    back(s)
    done, _ = measure(s, command=["/no/such/program"])
    assert done.returncode == 127
    back(s)


def test_a_clean_room_hold_is_a_renewed_lease_and_a_signal_ends_it(s):
    child = start(s)
    first = s.worker()
    assert first["hold"] == "evicted" and 0 < first["hold_until_seconds"] <= 12
    s.wait(lambda: until(s.worker()) - until(first) > datetime.timedelta(seconds=2))
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=support.TIMEOUT)
    assert child.returncode == 128 + signal.SIGTERM, said
    back(s)


def test_ctrl_c_ends_it_too(s):
    child = start(s)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=support.TIMEOUT)
    assert child.returncode == 128 + signal.SIGINT, said
    back(s)


def test_a_hold_that_was_there_before_is_left(s):
    s.guard("hold", "evicted", "ollama", "--forever")
    s.until("evicted")
    done, doc = measure(s)
    assert done.returncode == 0
    assert doc["clean_room"]["workers"][0]["held_by"] == "others"
    assert doc["clean_room"]["workers"][0]["hold_before"] == "evicted"
    assert "ollama was kept off the GPUs (someone else already held it)" in done.stderr
    assert (s.worker()["hold"], s.worker()["hold_until_utc"], s.now()) == ("evicted", None, "evicted")
    s.guard("release", "ollama")
    back(s)
    s.guard("evict", "ollama")  # until it is resumed
    s.until("evicted")
    _, doc = measure(s)
    assert doc["clean_room"]["workers"][0]["hold_before"] == "manual"
    assert s.now() == "evicted" and s.worker()["mask"] == ["manual"]


def test_when_the_hold_of_someone_else_ends_the_run_places_its_own(s):
    s.guard("hold", "evicted", "ollama", "--for", "2s")
    s.until("evicted")
    child = start(s)
    s.wait(lambda: (w := s.worker())["hold"] == "evicted" and w["hold_until_seconds"] > 3)
    child.terminate()
    child.communicate(timeout=support.TIMEOUT)
    back(s)


@pytest.mark.parametrize("longer", [True, False], ids=["longer", "until the same time"])
def test_a_hold_that_another_request_replaced_is_left_alone(s, longer):
    child = start(s)
    s.guard("hold", "evicted", "ollama", "--for", "1h" if longer else f"{s.worker()['hold_until_seconds']:.1f}s")
    child.terminate()
    child.communicate(timeout=support.TIMEOUT)
    assert s.worker()["hold"] == "evicted" and (not longer or s.worker()["hold_until_seconds"] > 3000)


def test_a_worker_that_was_released_is_not_held_again(s):
    child = start(s, command=["sleep", "1000"])
    s.guard("release", "ollama")
    s.until("active")
    child.terminate()
    _, said = child.communicate(timeout=support.TIMEOUT)
    doc = json.loads((s.path_of / "result.json").read_text())
    support.check("measure", doc)
    assert doc["clean_room"]["kept"] is False
    assert "someone released it, " in doc["clean_room"]["workers"][0]["broken"]
    assert "the GPUs may not have been kept free of workers: worker ollama: someone released it" in said
    back(s)


def test_a_clean_room_that_was_lost_changes_the_exit_status(s):
    go = s.path_of / "go"
    child = start(s, command=["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"])
    s.guard("release", "ollama")
    s.until("active")
    go.touch()
    child.communicate(timeout=support.TIMEOUT)
    assert child.returncode == SHARED
    if reader():
        said = " ".join(support.gpuward("compare", s.path_of / "result.json").stdout.split())
        assert "the clean room was not kept: worker ollama: someone released it" in said


def test_a_service_that_ends_meanwhile_leaves_it_unknown(tmp_path):
    with guarding(tmp_path) as s:
        child = start(s)
        s.stop(signal.SIGKILL)
        child.terminate()
        _, said = child.communicate(timeout=support.TIMEOUT)
    room = json.loads((tmp_path / "result.json").read_text())["clean_room"]
    assert room["kept"] is False and "the service did not answer at the end" in room["workers"][0]["broken"]
    assert "their holds expire" in said


def test_a_worker_of_another_gpu_stays_where_it_is(tmp_path):
    with guarding(tmp_path, keys={"gpus": ["0"]}) as s:
        done, doc = measure(s, "--gpu=1")
        assert done.returncode == 0 and doc["clean_room"]["workers"] == []
        assert "no worker of the guard uses these GPUs, so none has to leave" in done.stderr
        assert s.worker()["evictions_total"] == 0 and s.now() == "active"
        _, doc = measure(s, "--gpu=0")
        assert [w["name"] for w in doc["clean_room"]["workers"]] == ["ollama"]
        back(s)


def test_a_worker_that_is_where_it_should_not_be_leaves_too(tmp_path):
    with guarding(tmp_path, keys={"gpus": ["1"]}) as s:
        _, doc = measure(s, "--gpu=0")
        assert [w["name"] for w in doc["clean_room"]["workers"]] == ["ollama"]


def test_a_comparison_has_a_clean_room_too(s, tmp_path):
    seen, out = tmp_path / "seen", tmp_path / "ab.json"
    look = ["sh", "-c", f"ls {s.world.held} >> {seen}; sleep 0.05"]
    done = support.gpuward("ab", f"--simulate={s.world.scenario}", "--clean-room", "--address", s.url, "--token-file",
                           s.token_file, "--pairs-max=2", "--aa-pairs=0", "--no-cooldown", "-o", out, "--", *look, "--", *look)
    assert done.returncode == 0, done.stderr
    doc = json.loads(out.read_text())
    support.check("ab", doc)
    assert seen.read_text() == "" and doc["clean_room"]["kept"] is True
    assert doc["clean_room"]["workers"][0]["held_by"] == "measurement"
    assert "ollama was kept off the GPUs" in done.stdout
    back(s)


def refused(s, *options, code=support.FAILED, **kw):
    done, doc = measure(s, *options, command=["touch", s.path_of / "started"], **kw)
    assert done.returncode == code and doc is None and not (s.path_of / "started").exists(), done.stderr
    return done.stderr


def test_a_worker_that_is_held_active_stays_and_nothing_is_measured(s):
    s.guard("hold", "active", "ollama", "--forever")
    assert "someone holds worker ollama active" in refused(s, code=SHARED)
    assert s.worker()["hold"] == "active" and s.now() == "active"


def test_a_worker_that_does_not_leave(tmp_path):
    with guarding(tmp_path, keeps=True) as s:
        said = refused(s, "--clean-room=1s", code=SHARED)
        assert "worker ollama did not leave within 1s (it is " in said
        assert "wait longer with --clean-room=TIME; nothing was measured" in said
        assert s.worker()["hold"] == "none"
        # A signal ends the wait for the worker.
        argv = words(s, "--clean-room=1h", command=["touch", tmp_path / "started"])
        child = subprocess.Popen([str(support.PROGRAM), *map(str, argv)], env=support.environment(),
                                 stderr=subprocess.DEVNULL)
        s.wait(lambda: s.worker()["hold"] == "evicted")
        child.send_signal(signal.SIGINT)
        assert child.wait(support.TIMEOUT) == 128 + signal.SIGINT
        assert s.worker()["hold"] == "none" and not (tmp_path / "started").exists()


def test_a_guard_that_does_not_act(tmp_path):
    with guarding(tmp_path, mode="dry-run") as s:
        assert "the guard does not move worker ollama in mode dry-run; set mode = \"enforce\" in [guard]" in refused(s)
        assert s.worker()["hold"] == "none"


def test_without_a_token_it_is_refused(s):
    said = refused(s, token=False)
    assert "cannot move worker ollama off the GPU: the service refuses the request: " in said and "with --token-file" in said


def test_a_service_that_does_not_know_the_gpu_is_another_machines(s):
    other = s.path_of / "other.toml"
    other.write_text('[[gpu]]\nprofile = "h200"\nuuid = "GPU-99999999-0000-4000-8000-000000000001"\n')
    assert "does not guard GPU 0" in refused(s, f"--simulate={other}")
    assert s.now() == "active" and s.worker()["hold"] == "none"


def test_without_a_service_or_workers_there_is_no_clean_room(tmp_path):
    done = support.gpuward("measure", "--simulate=h200", "--clean-room", "--address=127.0.0.1:1", "--", "true")
    assert done.returncode == support.FAILED and "no service listens on 127.0.0.1:1" in done.stderr
    assert "--clean-room needs the guard of gpuward serve; nothing was measured" in done.stderr
    with Service("h200", token=True) as service:
        done = support.gpuward("measure", "--simulate=h200", "--clean-room", "--address", service.url, "--", "true")
    assert done.returncode == support.FAILED and "the guard has no [[worker]] to move off the GPUs" in done.stderr


@pytest.mark.parametrize("given, said", [
    (["--clean-room=soon"], "--clean-room takes a time such as 30s or 5m"),
    (["--clean-room=0"], "--clean-room takes a time such as 30s or 5m"),
    (["--address=localhost:1"], "--address needs --"),
    (["--token-file=x"], "--token-file needs --"),
])
def test_wrong_usage_runs_nothing(given, said):
    done = support.gpuward("measure", "--simulate=h200", *given, "--", "true")
    assert done.returncode == support.USAGE and said in done.stderr


def test_after_kill_9_the_hold_ends_by_itself(killed):
    now = killed.worker()
    assert now["hold"] == "none" or 0 < now["hold_until_seconds"] <= 12
    back(killed)
