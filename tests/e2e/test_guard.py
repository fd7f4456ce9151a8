"""The guard through the real service: workers that are real process trees on a simulated card.

Times in the configuration are short; nothing here asserts how long something took, only that it came.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import guarded
import support
from guarded import SHORT, Guarded, configure
from worker import GIB, UUID, Contender, Worker


def in_order(wanted, seen):
    """Is wanted a part of seen, in its order?"""
    rest = iter(seen)
    return all(s in rest for s in wanted)


# ---- A3: somebody comes and goes


def test_a03_a_contender_moves_the_worker_and_it_comes_back(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB) as game:
            s.until("evicted")
            assert worker.resident() == 0
            assert [json.loads(c.split(" ", 2)[2])["keep_alive"] for c in worker.acted()] == [0]
            assert s.worker()["mask"] == ["contention"]
            assert any(str(game.pid) in (d["evidence"] or "") for d in s.decisions())
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert in_order(["suspect", "drain", "evict", "verify", "evicted", "quiet", "precheck", "resume", "verify-up",
                         "active"], s.course())
        assert s.worker()["evictions_total"] == 1
        assert len(worker.acted()) == 2


def test_a03_the_original_keys_evict_for_any_other_process(world, worker):
    text = configure(("ollama", worker)).replace('mode = "enforce"', "auto_evict_for_user_apps = true\n"
                                                 'process_check_interval_secs = 1\ndemand = "any"')
    text += '[[rule]]\nmatch.name = "Xorg"\naction = "ignore"\n'  # a screen is on it: without a rule nothing is done
    with Guarded(world, text) as s:
        s.until("active")
        with Contender(world, 8 << 20):
            s.until("evicted")
        s.until("active")


def test_a_small_process_moves_nobody(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 64 << 20):
        s.until("active")
        time.sleep(1.5)
        assert s.course() == ["active"] and worker.acted() == []


# ---- A1: the desktop


def test_a01_the_desktop_alone_never_evicts(world, worker, tmp_path):
    """Programs of the desktop are known by name and place: these have both."""
    names = ["Xorg", "gnome-shell", "kwin_wayland"]
    held = [("/usr/local/bin/" + n) for n in names]
    if not os.access("/usr/local/bin", os.W_OK) or any(os.path.exists(p) for p in held):
        pytest.skip("no programs can be put into /usr/local/bin here")
    with contextlib.ExitStack() as stack:
        for path in held:
            stack.callback(os.unlink, path)
            shutil.copy("/bin/sleep", path)
        text = configure(("ollama", worker), guard="")
        s = stack.enter_context(Guarded(world, text))
        s.until("active")
        for path in held:
            stack.enter_context(Contender(world, 2 * GIB, "graphics", exe=path))
        s.wait(lambda: len(s.get(f"/api/v1/guard/gpus/{UUID}").json()["processes"]) >= 4)
        time.sleep(1.5)
        found = s.get(f"/api/v1/guard/gpus/{UUID}").json()["processes"]
        assert sorted(p["class"] for p in found) == ["system"] * 3 + ["worker"]
        assert s.course() == ["active"] and worker.acted() == []


def test_a_program_that_took_a_desktops_name_is_not_immune(world, worker, tmp_path):
    fake = tmp_path / "Xorg"
    shutil.copy("/bin/sleep", fake)
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB, exe=fake):
            s.until("evicted")


# ---- A2: who belongs to a worker


def test_a02_a_runner_in_a_session_of_its_own_is_the_workers(world):
    with Worker(world, detached=True) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
        assert os.getsid(w.runners()[0]) != os.getsid(w.pid)
        time.sleep(1)
        assert s.course() == ["active"] and w.acted() == []


def test_only_the_worker_that_is_named_is_asked_anything(world, worker):
    with Worker(world, models=["other:1b"], size=4 * GIB) as other:
        text = configure(("ollama", worker), more='[[rule]]\nmatch.name = "python3"\naction = "ignore"\n')
        with Guarded(world, text) as s:
            s.until("active")
            with Contender(world, 8 * GIB):
                s.until("evicted")
                assert other.resident() == 4 * GIB
            s.until("active")
        assert other.calls() == []
        assert other.child.poll() is None


def test_a_contender_is_never_touched(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 8 * GIB) as c:
        s.until("evicted")
        time.sleep(0.5)
        assert c.child.poll() is None
        with open(f"/proc/{c.pid}/status") as f:
            assert re.search(r"^State:\tS", f.read(), re.M)


# ---- what goes wrong


def test_a_worker_that_says_yes_and_frees_nothing_is_stuck(world):
    with Worker(world, keeps=True) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
        with Contender(world, 8 * GIB):
            s.until("stuck")
            assert s.worker()["residue_bytes"] == 10 * GIB
            assert "evicted" not in s.course()
            assert "stuck" in s.guard("status").stdout
        assert w.child.poll() is None and w.resident() == 10 * GIB  # max_level 2: no signal ever


@pytest.mark.parametrize("back", ["resume", "release", "contender goes"])
def test_a_worker_that_sleeps_without_freeing_is_woken(world, back):
    """Some releases of vLLM free little when they sleep: stuck, but asleep, and it must not be left so."""
    with guarded.held(world, "VLLM", 6 * GIB, keeps=True) as w, contextlib.ExitStack() as guests:
        text = configure() + w.table("vllm", "vllm")
        with Guarded(world, text) as s:
            s.until("active", name="vllm")
            if back == "contender goes":
                guests.enter_context(Contender(world, 8 * GIB))
            else:
                s.guard("evict", "vllm")
            s.until("stuck", name="vllm")
            assert w.level == 1 and w.paused
            if back == "contender goes":
                guests.close()
            else:
                s.guard(back, "vllm", *(["--now"] if back == "resume" else []))
            s.until("active", name="vllm")
            s.wait(lambda: w.level == 0 and not w.paused)
            assert "/wake_up" in w.asked("POST")


def test_a_worker_that_died_is_absent_and_then_found_again(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        port = int(worker.url.rsplit(":", 1)[1])
        worker.end()
        s.until("absent")
        with Worker(world, port=port):
            s.until("active")


@pytest.mark.parametrize("mode", ["dry-run", "observe"])
def test_a14_without_enforce_nothing_is_done(world, worker, mode):
    with Guarded(world, configure(("ollama", worker), mode=mode)) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            if mode == "dry-run":
                s.wait(lambda: s.worker()["would_evict_total"] == 1)
                assert any(d["dry_run"] for d in s.decisions())
            time.sleep(1.5)
        assert worker.acted() == [] and worker.resident() == 10 * GIB
        assert f"Mode {mode}" in s.guard("status").stdout


# ---- A11: the daemon dies


def test_a11_a_killed_daemon_knows_whom_it_evicted(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
            s.restart(signal.SIGKILL)
            s.until("evicted", "quiet")
            time.sleep(2)
            s.until("evicted")  # after one look nobody can say that there is demand
            assert worker.resident() == 0
            assert len(worker.acted()) == 1  # neither brought back nor evicted twice
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert len(worker.acted()) == 2  # with what was noted before it died


def test_a11_a_hold_outlives_the_daemon(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        s.guard("hold", "evicted", "ollama", "--forever")
        s.until("evicted")
        s.restart(signal.SIGKILL)
        s.until("evicted")
        assert s.worker()["hold"] == "evicted"
        s.guard("release", "ollama")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


def test_a_service_that_ends_lets_workers_come_back(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("quiet", "precheck", "resume", "verify-up", "active")
        assert s.stop() == 0
        s.wait(lambda: worker.resident() == 10 * GIB)


# ---- what people ask


def test_evict_and_resume_by_hand(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        assert "asked to evict" in s.guard("evict", "ollama", "--reason", "maintenance").stdout
        s.until("evicted")
        assert s.worker()["mask"] == ["manual"]
        assert "maintenance" in s.get("/api/v1/events").text
        s.guard("resume", "all")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


def test_a_worker_that_is_held_active_stays(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        s.guard("hold", "active", "ollama", "--for", "1h")
        with Contender(world, 8 * GIB):
            time.sleep(1.5)
            assert worker.resident() == 10 * GIB and worker.acted() == []
            assert s.now() == "active"
            said = s.guard("explain", "ollama").stdout
            assert "held active" in said and "stays active until the hold ends" in said and "until another process needs" not in said
            done = s.guard("evict", "ollama", code=1)
            assert "release it first" in done.stderr
            s.guard("release", "ollama")
            s.until("evicted")


def test_resume_now_does_not_wait_for_quiet(world, worker):
    with Guarded(world, configure(("ollama", worker), defaults=SHORT.replace("quiet_s = 0.3", "quiet_s = 600"))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("quiet")
        s.guard("resume", "ollama", "--now")
        s.until("active")


def test_status_and_explain_tell_it_all(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 8 * GIB) as c:
        s.until("evicted")
        table = s.guard("status").stdout
        assert table.startswith(" SIMULATED ") and re.search(r"^WORKER +STATE", table, re.M)
        assert re.search(r"^ollama +evicted.*contention", table, re.M)
        doc = json.loads(s.guard("status", "--json").stdout)
        assert [w["name"] for w in doc["workers"]] == ["ollama"]
        one = json.loads(s.guard("status", "ollama", "--json").stdout)
        assert one["name"] == "ollama" and one["state"] == "evicted"
        text = s.guard("explain").stdout
        assert f"pid {c.pid} sleep" in text and "contention" in text
        assert json.loads(s.guard("explain", "--json").stdout)["workers"][0]["sentences"]


def test_while_drivers_are_let_go_the_guard_rests(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        assert s.post("/api/v1/let-go", token=True).status_code < 300
        time.sleep(1.2)
        with Contender(world, 8 * GIB):
            time.sleep(1.5)
            assert worker.acted() == []
            assert s.post("/api/v1/resume", token=True).status_code < 300
            s.until("evicted")


def test_what_changes_something_needs_the_token(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        env = support.environment(GPUWARD_ADDRESS=s.url, GPUWARD_CONFIG_ROOT=s.path)
        done = support.gpuward("guard", "evict", "ollama", env=env)
        assert done.returncode == 1 and "--token-file" in done.stderr
        assert support.gpuward("guard", "status", env=env).returncode == 0
        env["GPUWARD_TOKEN_FILE"] = s.token_file
        assert support.gpuward("guard", "evict", "ollama", env=env).returncode == 0
        s.until("evicted")


def test_the_service_is_found_on_its_unix_socket(world, worker, tmp_path):
    socket = tmp_path / "gpuward.sock"
    with Guarded(world, configure(("ollama", worker)), "--listen", f"unix:{socket}") as s:
        s.until("active")
        done = support.gpuward("guard", "status", "--address", f"unix:{socket}")
        assert done.returncode == 0 and "ollama" in done.stdout


@pytest.mark.parametrize("args, word", [
    ((), "wants status, explain"),
    (("statsu",), "did you mean 'status'"),
    (("evict",), "wants a WORKER"),
    (("hold", "evicted", "ollama"), "--for TIME"),
    (("hold", "evicted", "ollama", "--for", "1h", "--forever"), "--for TIME"),
    (("hold", "gone", "ollama", "--for", "1h"), "evicted or active"),
    (("status", "--now"), "--now means nothing to guard status"),
    (("replay",), "the file of a recording"),
])
def test_wrong_usage_is_told(args, word):
    done = support.gpuward("guard", *args)
    assert done.returncode == support.USAGE and word in done.stderr


def test_a_service_that_is_not_there_is_named(tmp_path):
    done = support.gpuward("guard", "status", "--address", "127.0.0.1:1")
    assert done.returncode == 1 and "no service listens on 127.0.0.1:1" in done.stderr
    done = support.gpuward("guard", "status", "--address", f"unix:{tmp_path}/none")
    assert done.returncode == 1 and "no service listens" in done.stderr


def test_a_worker_of_another_name_is_suggested(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        assert "ollama" in s.guard("evict", "olama", code=1).stderr


def test_learn_proposes_rules_that_then_hold(world, worker):
    with Contender(world, 600 << 20):
        with Guarded(world, configure(("ollama", worker), mode="observe")) as s:
            s.wait(lambda: s.now() not in (None, "reconcile"))
            rules = s.guard("learn", "--for", "1s").stdout
            assert 'action = "ignore"' in rules and "sleep" in rules
        with Guarded(world, configure(("ollama", worker), more=rules)) as s:
            s.until("active")
            time.sleep(1.2)
            assert s.course() == ["active"]


def test_recover_without_anybody_put_away(tmp_path):
    env = support.environment(HOME=tmp_path, XDG_STATE_HOME=tmp_path, GPUWARD_CONFIG_ROOT=tmp_path)
    done = support.gpuward("guard", "recover", env=env)
    assert (done.returncode, done.stdout) == (0, "no process is put away\n")


# ---- A14: recorded and replayed


def replayed(*args):
    done = support.gpuward("guard", "replay", *args, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a14_a_recording_replays_to_the_same_bytes(world, worker, tmp_path):
    trace = tmp_path / "trace"
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, text) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        s.guard("hold", "evicted", "ollama", "--for", "1h")
        s.until("evicted")
        was = s.decisions()
        env = support.environment(GPUWARD_CONFIG_ROOT=tmp_path / "none", HOME=s.path)
        os.makedirs(os.path.join(s.path, ".config/gpuward"))
        shutil.copy(s.config, os.path.join(s.path, ".config/gpuward/gpuward.toml"))
        done = support.gpuward("guard", "replay", trace, "--json", "--quiet", env=env)
        config = open(s.config).read()
    assert done.returncode == 0, done.stderr
    now = [json.loads(line) for line in done.stdout.splitlines()]
    keys = ("worker", "from", "to", "mask", "rule", "evidence")
    assert [[d[k] for k in keys] for d in now[:len(was)]] == [[d[k] for k in keys] for d in was]
    assert (trace.stat().st_mode & 0o777) == 0o600

    patient = tmp_path / "patient.toml"
    patient.write_text(config.replace("[guard.defaults]", '[guard.defaults]\nmin_vram = "9GiB"\nheadroom = "1MiB"\n'
                                      "headroom_percent = 0"))
    eager = tmp_path / "eager.toml"
    eager.write_text(config)
    assert '"contention"' not in replayed("--policy", patient, trace)
    assert '"contention"' in replayed("--policy", eager, trace)
    assert replayed("--policy", eager, trace) == replayed("--policy", eager, trace)


def test_a_file_that_is_no_recording_is_refused(tmp_path, worker):
    policy = tmp_path / "gpuward.toml"
    policy.write_text(configure(("ollama", worker)))
    bad = tmp_path / "bad"
    bad.write_text("begin\t1\noutcome\tx\n")
    done = support.gpuward("guard", "replay", "--policy", policy, bad)
    assert done.returncode == 1 and "bad:2: this is no line of a recording" in done.stderr
    done = support.gpuward("guard", "replay", "--policy", policy, tmp_path / "none")
    assert done.returncode == 1 and "none cannot be read" in done.stderr


# ---- run


def test_run_makes_room_and_gives_it_back(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        guarded.settled(s)
        done = s.cli("run", "--vram", "16G", "--", "sh", "-c",
                     f"ls {world.held}; echo $GPUWARD_GPU $CUDA_VISIBLE_DEVICES; exit 7", code=7)
        assert done.stdout == f"{UUID} {UUID}\n"  # nobody held anything when it ran
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        assert s.get("/api/v1/guard").json()["reservations"] == []


def test_run_moves_nobody_where_there_is_room(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        s.cli("run", "--vram", "4G", "--gpu", "0", "--", "true")
        assert worker.acted() == []


def test_what_is_never_there_is_told_at_once(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        for how in ([], ["--wait", "10m"]):
            done = s.cli("run", "--vram", "100G", *how, "--", "true", code=14)
            assert "never: needs 100.0 GiB, and the largest GPU has 24.0 GiB" in done.stderr
            assert "retry" not in done.stderr
        assert worker.acted() == [] and s.get("/api/v1/guard").json()["reservations"] == []


def test_run_waits_for_others_to_leave(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 12 * GIB):
            s.until("evicted")
            argv = [str(support.PROGRAM), "run", "--address", s.url, "--token-file", s.token_file, "--vram", "18G",
                    "--wait", "1m", "--", "echo", "here"]
            child = subprocess.Popen(argv, env=support.environment(), stdout=subprocess.PIPE, text=True)
            time.sleep(1)
            assert child.poll() is None
        assert child.communicate(timeout=support.TIMEOUT)[0] == "here\n"
        assert child.returncode == 0


def test_a_program_that_cannot_be_started(world, worker, tmp_path):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        s.cli("run", "--vram", "1G", "--", "no-such-program-here", code=127)
        plain = tmp_path / "plain"
        plain.write_text("")
        s.cli("run", "--vram", "1G", "--", plain, code=126)
        assert s.get("/api/v1/guard").json()["reservations"] == []


def started(s, *argv):
    child = subprocess.Popen([str(support.PROGRAM), "run", "--address", s.url, "--token-file", s.token_file, "--vram",
                              "16G", "--", *argv], env=support.environment())
    s.until("evicted")
    s.wait(lambda: s.get("/api/v1/guard").json()["reservations"] != [])
    return child


def test_signals_reach_the_program(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        child = started(s, "sh", "-c", f"touch {s.path}/runs; exec sleep 1000")
        s.wait(lambda: os.path.exists(f"{s.path}/runs"))
        child.terminate()
        assert child.wait(support.TIMEOUT) == 128 + signal.SIGTERM
        s.until("active")


def test_who_is_killed_loses_its_room(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        child = started(s, "sleep", "30")
        child.kill()
        child.wait()
        s.wait(lambda: s.get("/api/v1/guard").json()["reservations"] == [])
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


@pytest.mark.parametrize("args, word", [
    (("--", "true"), "--vram SIZE"),
    (("--vram", "much", "--", "true"), "10G or 512MiB"),
    (("--vram", "10", "--", "true"), "with its unit"),
    (("--vram", "1G"), "wants a command"),
    (("--vram", "1G", "--gpu", "0,1", "--", "true"), "one GPU"),
    (("--vram", "1G", "--json", "--", "true"), "no JSON"),
])
def test_wrong_usage_of_run_is_told(args, word):
    done = support.gpuward("run", *args)
    assert done.returncode == support.USAGE and word in done.stderr
