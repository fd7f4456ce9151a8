"""What the guard says: why, since when and until when, what is only pretended, and what a person can do about it."""
import contextlib
import json
import os
import re
import subprocess

import service
import support
from guarded import Guarded, configure
from worker import GIB, UUID, Contender

MIB = 1 << 20


def reason(s, name):
    return next(r for r in s.worker()["reasons"] if r["reason"] == name)


def explained(s, *parts):
    text = s.guard("explain", "ollama").stdout
    for part in parts:
        assert part in text, text
    return text


# ---- why

def test_a_game_is_named_and_a_small_neighbour_is_no_contender(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 300 * MIB) as browser, \
            subprocess.Popen(["/bin/sleep", "1000"]) as game:
        s.until("active")
        s.guard("game", "start", "--pid", str(game.pid), "--reason", "steam")
        s.until("evicted")
        explained(s, "Reason against it: contention", "Rule: GameMode", f"Game: pid {game.pid} plays",
                  f"Other process: pid {browser.pid} sleep with 300 MiB", "no demand: below min_vram (512 MiB)")
        game.kill()


def test_a_reservation_a_hold_and_hours_say_who_and_until_when(world, worker):
    hours = '[[schedule]]\nworker = "ollama"\nevict = ["00:00-24:00"]\n'
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        room = s.post("/api/v1/guard/reservations", token=True, json={"bytes": 16 * GIB, "ttl_s": 600}).json()
        s.until("evicted")
        why = reason(s, "reserved")
        assert f"reservation {room['id']}: 16384 MiB on {UUID}" in why["evidence"] and 500 < why["clears_seconds"] < 601
        text = explained(s, "or its time is over")
        assert re.search(r"Next possible automatic change: in (10|9|8) min\.", text), text
        s.guard("hold", "evicted", "ollama", "--for", "1h")
        left = r"(1 h|5\d min) more"
        assert re.search(f"evicted, {left}", s.guard("status").stdout)
        assert re.search(rf"Override: it is held evicted for {left}\.", explained(s, "Reason against it: manual"))
    with Guarded(world, configure(("ollama", worker), more=hours)) as s:
        s.until("evicted")
        assert reason(s, "schedule")["evidence"] == "in its quiet hours, daily 00:00-24:00"
        assert reason(s, "schedule")["clears"] == "when the span is over"


def test_who_is_known_to_fit_is_told_so(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        with Contender(world, 6 * GIB):
            s.until("evicted")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)
        with Contender(world, 6 * GIB) as again:
            s.wait(lambda: str(again.pid) in s.guard("explain").stdout)
            explained(s, "known: at most 6144 MiB, fits next to it")
            assert s.now() == "active"


def test_one_who_is_not_there_is_told_by_what_was_sought(world, tmp_path):
    text = ('[guard]\nmode = "enforce"\nsimulated = true\n[[worker]]\nname = "ollama"\nkind = "vllm"\n'
            'url = "http://127.0.0.1:9"\nmatch.unit = "vllm.service"\n')
    with Guarded(world, text) as s:
        s.until("absent")
        assert "no process is in unit vllm.service" in s.worker()["why"]


# ---- what is only pretended

def test_a_dry_run_says_would_be_and_tells_the_memory_that_is_held(world, worker):
    with Guarded(world, configure(("ollama", worker), mode="dry-run")) as s:
        s.until("active")
        said = s.guard("evict", "ollama").stdout
        assert said.endswith(" (mode dry-run: nothing is done)\n"), said
        s.until("evicted")
        table = s.guard("status").stdout
        assert "would be: evicted" in table and "10.0 GiB" in table and "10240 MiB would be free" in table
        explained(s, "ollama would be in state evicted", "holds 10240 MiB")
        metrics = s.get("/metrics").text
        assert f'gpuward_guard_resident_bytes{{worker="ollama"}} {10 * GIB}' in metrics
        assert "\ngpuward_guard_time_to_free_seconds" not in metrics
        assert worker.resident() == 10 * GIB and worker.acted() == []
        said = s.cli("run", "--vram", "18G", "--", "true", code=14).stderr
        assert "the guard is in dry-run: no worker leaves" in said and "retry" not in said


def test_simulated_gpus_that_nobody_asked_to_act_on_are_told(world, worker):
    text = configure(("ollama", worker)).replace("simulated = true\n", "")
    with Guarded(world, text) as s:
        s.until("active")
        assert "Simulated GPUs: what is decided is told, and nothing is done (simulated = true" in s.guard("status").stdout
        assert "(simulated GPUs: nothing is done)" in s.guard("evict", "ollama").stdout
        s.until("evicted")
        assert "would be: evicted" in s.guard("status").stdout and worker.acted() == []


# ---- the command

def test_why_is_never_cut(world, worker):
    with Guarded(world, configure(("ollama", worker), mode="dry-run")) as s:
        s.until("active")
        with Contender(world, 8 * GIB) as game:
            s.wait(lambda: f"pid {game.pid}" in (s.worker()["why"] or "") or s.now() == "evicted")
            s.guard("hold", "evicted", "ollama", "--for", "2h", "--reason", "x")
            s.until("evicted")
            why = s.worker()["why"]
            assert why in s.guard("status").stdout, "a pipe has no columns"
            narrow = s.cli("guard", "status", env={"COLUMNS": "60"}).stdout
            assert " ".join(narrow.split()).endswith(" ".join(why.split())), narrow
            assert all(len(line) <= 60 for line in narrow.splitlines()), narrow


def test_a_worker_that_there_is_not(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        done = s.guard("status", "olama", code=support.FAILED)
        assert 'no worker "olama"; did you mean "ollama"?' in done.stderr and done.stdout == ""
        assert "does not know 'foo'" in s.guard("foo", code=support.USAGE).stderr
        assert json.loads(s.guard("learn", "--json", "--for", "1s", "--quiet").stdout)["rules"] == []
        done = s.cli("run", "--vram", "1G", "--gpu", "5", "--", "true", code=support.FAILED)
        assert f"there is GPU 0 ({UUID})" in done.stderr
    with Guarded(world, '[guard]\nmode = "enforce"\n') as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        assert s.guard("status").stdout == "No [[worker]] is configured: nobody is guarded.\n"


def test_recover_tells_it_in_json(tmp_path):
    done = support.gpuward("guard", "recover", "--json", env={"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert done.returncode == support.OK, done.stderr
    assert json.loads(done.stdout)["processes"] == []


@contextlib.contextmanager
def open_service(world, worker, path):
    """Without a token, on TCP and on a UNIX socket."""
    sock = os.path.join(path, "socket")
    with service.Service(world.scenario, "--listen", f"unix:{sock}", config=configure(("ollama", worker))) as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        yield s, f"unix:{sock}"


def test_a_token_of_another_service_is_in_nobodys_way(world, worker, tmp_path):
    token = tmp_path / "token"
    token.write_text("of-another-service-1234567890\n")
    token.chmod(0o600)
    with open_service(world, worker, tmp_path) as (s, sock):
        def ask(address, *words, code=support.OK, named=True):
            argv = ["--address", address] + (["--token-file", str(token)] if named else [])
            done = support.gpuward("guard", *words, *argv)
            assert done.returncode == code, done.stdout + done.stderr
            return done
        assert "ollama" in ask(s.url, "status").stdout
        assert "This service has no token" in ask(s.url, "evict", "ollama", code=support.FAILED).stderr
        assert ("(set token_file in [service], or ask over a UNIX socket as root)"
                in ask(s.url, "evict", "ollama", code=support.FAILED, named=False).stderr)
        assert "asked to hold" in ask(sock, "hold", "active", "ollama", "--forever").stdout
