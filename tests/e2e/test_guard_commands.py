"""Tests the commands gpuward guard and gpuward run, and their answers."""
import http.server
import json
import datetime
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import guarded
import support
from guarded import AS_NOBODY, NOBODY, Guarded, configure, needs_root, quick, table
from service import Service
from worker import GIB, UUID, Contender, Worker, World

MIB = 1 << 20


def reason(s, name):
    return next(r for r in s.worker()["reasons"] if r["reason"] == name)


def shown(why):
    """Returns a reason of the API as guard status shows it."""
    for raw, plain in ((UUID, "GPU 0"), (" (unknown = contend)", "")):
        why = why.replace(raw, plain)
    return re.sub(r"(?<=[ (])(\d{4,}) MiB", lambda m: f"{int(m[1]) / 1024:.1f} GiB", why).replace(" 0 MiB", " 0 B")


def explained(s, *parts):
    text = " ".join(s.guard("explain", "ollama").stdout.split())
    for part in parts:
        assert part in text, text
    return text


def test_evict_and_resume_by_hand(s, worker):
    assert "requested evict" in s.guard("evict", "ollama", "--reason", "maintenance").stdout
    s.until("evicted")
    assert s.worker()["mask"] == ["manual"]
    assert "maintenance" in s.get("/api/v1/events").text
    s.guard("resume", "all")
    s.back(worker)


def test_a_command_says_that_it_waits_for_a_silent_service():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        child = support.started("guard", "status", "--address", address)
        try:
            assert child.stderr.readline() == f"gpuward: waiting for the service on {address}\n"
        finally:
            child.kill()
            child.communicate()


def test_a_worker_that_is_held_active_stays(s, world, worker):
    s.guard("hold", "active", "ollama", "--for", "1h")
    shown = s.guard("status").stdout
    assert "active, 1 h left" in shown and shown.count("hold active") == 1
    with Contender(world, 8 * GIB):
        s.observes()
        assert worker.resident() == 10 * GIB and worker.acted() == []
        assert s.now() == "active"
        said = s.guard("explain", "ollama").stdout
        assert "held active" in said and "stays active until the hold ends" in said and "until another process needs" not in said
        done = s.guard("evict", "ollama", code=1)
        assert "run gpuward guard release ollama" in " ".join(done.stderr.split())
        s.guard("release", "ollama")
        s.until("evicted")


def test_the_program_for_which_a_worker_left_is_named_while_it_runs_and_afterwards(s, world, worker):
    with Contender(world, 8 * GIB) as game:
        s.until("evicted")
        cause = f"for sleep (pid {game.pid}, 8.0 GiB)"
        assert f"{cause}; " in " ".join(s.guard("status").stdout.split())
    s.back(worker)
    assert f"it had left {cause}" in " ".join(s.guard("status").stdout.split())
    assert re.search(rf"The worker last left its GPU at [\d-]+ [\d:]+ \S+ {re.escape(cause)}: 10.0 GiB in", " ".join(s.guard("explain").stdout.split()))
    assert s.worker()["leave"]["last"]["cause"] == cause
    left, back = s.guard("history", "ollama").stdout.splitlines()[-2:]
    assert re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d +ollama +left its GPU {re.escape(cause)}; 10.0 GiB freed in", left), left
    assert re.search(r"ollama +is back: 10.0 GiB", back), back
    assert "did you mean" in s.guard("history", "olama", code=1).stderr


def test_resume_now_does_not_wait_for_the_quiet_time(world, worker):
    with Guarded(world, configure(("ollama", worker), defaults=quick(quiet_s=600))) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("quiet")
        s.guard("resume", "ollama", "--now")
        s.until("active")


def test_the_age_of_an_eviction_before_the_start_is_unknown(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.settled()
        s.guard("evict", "ollama")
        s.until("evicted")
        s.guard("mode", "dry-run")
        s.restart()
        s.wait(lambda: s.worker()["mask"] == ["manual"])
        shown = s.guard("status").stdout
        assert re.search(r"^ollama +evicted +- +manual", shown, re.M), shown
        text = " ".join(s.guard("explain", "ollama").stdout.split())
        assert "ollama is evicted and holds 0 B." in text, text


@pytest.fixture
def workers(world):
    with Worker(world, size=4 * GIB) as a, Worker(world, size=4 * GIB) as b:
        Service.wait(lambda: a.resident() == b.resident() == 4 * GIB)
        yield [("a", a), ("b", b)]


@pytest.fixture
def both(world, workers):
    """A service that guards the workers a and b."""
    with Guarded(world, configure(*workers)) as s:
        for name, _ in workers:
            s.until("active", name=name)
        yield s


def test_while_the_guard_is_paused_no_worker_moves_and_the_status_shows_why(world, workers, both):
    s = both
    said = s.guard("pause", "--forever", "--reason", "a demonstration").stdout
    assert "to end this, run gpuward guard release" in said
    with Contender(world, 14 * GIB):
        s.wait(lambda: all("hold active masks contention" in s.worker(n)["why"] for n in ("a", "b")))
        assert all(w.acted() == [] for _, w in workers)
        shown = s.guard("status").stdout
        assert "active, no end" in shown
        assert [re.sub(r"masks contention: pid \d+ .*", "", s.worker(n)["why"]) for n in ("a", "b")] == ["hold active "] * 2
        s.restart()  # the hold continues after the service ends
        s.wait(lambda: s.worker("a")["hold"] == "active")
        assert all(w.acted() == [] for _, w in workers)
        s.guard("release")
        s.until("evicted", name="a")
    s.until("active", name="a")


def test_a_snooze_ends_when_its_time_is_over(world, workers, both):
    s = both
    began = time.monotonic()
    assert "For 2 s, only heat and faults move workers off the GPU" in s.guard("snooze", "1.5s").stdout
    left = s.worker("b")["hold_until_seconds"]
    assert 0 < left <= 1.5 if left is not None else time.monotonic() - began > 1.5
    with Contender(world, 14 * GIB):
        s.wait(lambda: any(w.acted() for _, w in workers))
        assert time.monotonic() - began > 1.5
        s.until("evicted", name="a")
        assert s.worker("a")["hold"] == "none"


def test_a_hold_evicted_shows_its_reason_and_why(both):
    s = both
    s.guard("evict", "a")
    s.until("evicted", name="a")
    s.guard("hold", "evicted", "a", "--for", "1h")
    s.wait(lambda: s.worker("a")["hold"] == "evicted")
    shown = s.cli("guard", "status", env=support.environment(COLUMNS=120)).stdout
    row = next(line for line in shown.split("\n") if line.startswith("a "))
    assert re.search(r"manual +evicted, 1 h left .* 1 h +at the request of a client with the token$", row.rstrip()), shown  # each fact is said once
    text = " ".join(s.guard("explain", "a").stdout.split())
    assert "Ends in 1 h, or earlier with gpuward guard release a." in text and "at the earliest" not in text, text
    assert re.search(r"a has been evicted for \d+ s and holds", text), text
    assert s.worker("a")["why"] == "at the request of a client with the token"


def test_without_a_journal_a_hold_says_that_it_is_lost_at_a_restart(world, worker):
    with Guarded(world, configure(("ollama", worker)), "--history", "none") as s:
        s.until("active")
        for words in (["hold", "active", "ollama", "--for", "1h"], ["snooze", "2h"], ["evict", "ollama"], ["release"]):
            code = support.FAILED if words[0] == "evict" else support.OK
            said = s.guard(*words, code=code).stderr
            assert ("the request is lost when the service restarts" in said) == (code == support.OK), said
        assert json.loads(s.guard("hold", "active", "ollama", "--forever", "--json").stdout)["hold"] == "active"


def test_one_worker_alone_can_be_snoozed(world, workers, both):
    s = both
    assert "b: requested hold active for 10 min; its state is now active" in s.guard("snooze", "10m", "b").stdout
    assert (s.worker("a")["hold"], s.worker("b")["hold"]) == ("none", "active")
    with Contender(world, 14 * GIB):
        s.until("evicted", name="a")
        assert s.now("b") in ("active", "suspect") and workers[1][1].acted() == []
    s.guard("release", "b")
    assert s.worker("b")["hold"] == "none"


def test_a_hold_replaces_the_opposite_hold(s, worker):
    s.guard("hold", "active", "ollama", "--for", "1h")
    said = " ".join(s.guard("hold", "evicted", "ollama", "--for", "2h").stdout.split())
    assert "requested hold evicted for 2 h; this replaced its hold active, which would have lasted 1 h more" in said, said
    s.until("evicted")
    s.guard("hold", "active", "ollama", "--for", "1h")
    s.back(worker)
    assert "requested release; this ended its hold active, which would have lasted 1 h more; its state is now active" in " ".join(s.guard("release", "ollama").stdout.split())
    assert s.guard("release").stdout == "ollama: no hold to end, so nothing was changed\n"
    s.guard("evict", "ollama")
    assert "requested release" in s.guard("release").stdout, "a release also ends an eviction"
    s.back(worker)


def test_a_pause_does_not_replace_a_hold_evicted(both):
    s = both
    s.guard("hold", "evicted", "a", "--for", "1h")
    done = s.guard("pause", "--for", "10m", code=support.FAILED)
    assert "a is held evicted for 1 h more; to end this hold, run gpuward guard release a" in " ".join(done.stderr.split())
    assert (s.worker("a")["hold"], s.worker("b")["hold"]) == ("evicted", "active")


def test_without_a_gpu_status_and_explain_say_so_and_memory_is_unknown(bare):
    config = '[guard]\nmode = "enforce"\n' + table("model", "exec", match_name="sleep", evict_command=["/bin/true"],
                                                  resume_command=["/bin/true"])
    with Service("", *bare, config=config, token=True, simulate=False) as s:
        def guard(*args):
            return " ".join(support.gpuward("guard", "--address", s.url, *args).stdout.split())
        s.wait(lambda: "absent" in guard("status"))
        said = guard("status")
        assert "no GPU can be read: " in said and "none was read yet" not in said and "0 B" not in said
        assert re.search(r"model absent \d+ s - - - ", said), said
        w = s.get("/api/v1/guard/workers/model").json()
        assert (w["resident_bytes"], w["need_bytes"], w["residue_bytes"]) == (None, None, None)
        assert w["memory_reason"].startswith("no GPU can be read: ")
        said = guard("explain")
        assert "The GPU memory of the worker is unknown" in said and "no GPU can be read: " in said and "MiB" not in said
        assert "gpuward_guard_resident_bytes{" not in s.get("/metrics").text


def test_status_and_explain_show_state_reason_and_contender(s, world):
    with Contender(world, 8 * GIB) as c:
        s.until("evicted")
        shown = s.guard("status").stdout
        assert shown.startswith(" SIMULATED ") and re.search(r"^WORKER +STATE", shown, re.M)
        assert re.search(r"^ollama +evicted.*contention", shown, re.M)
        doc = json.loads(s.guard("status", "--json").stdout)
        assert [w["name"] for w in doc["workers"]] == ["ollama"]
        one = json.loads(s.guard("status", "ollama", "--json").stdout)
        assert one["name"] == "ollama" and one["state"] == "evicted"
        text = s.guard("explain").stdout
        assert f"pid {c.pid} sleep" in text and "contention" in text
        assert json.loads(s.guard("explain", "--json").stdout)["workers"][0]["sentences"]


def test_the_match_of_an_absent_worker_is_named_by_its_own_keys(world):
    hooks = {"evict_command": ["/bin/true"], "resume_command": ["/bin/true"]}
    workers = (table("named", "exec", match_name="no-such", match_uid=4242, **hooks),
               table("in-unit", "exec", match_unit="no-such.service", **hooks))
    with Guarded(world, configure(*workers)) as s, Contender(world, 8 * GIB) as c:
        s.wait(lambda: c.pid in s.processes())
        for name, keys in (("named", "match.name and match.uid"), ("in-unit", "match.unit")):
            text = " ".join(s.guard("explain", name).stdout.split())
            assert f"its match is wrong: {keys} must match one of the worker's processes." in text, text
            assert re.search(rf"{name} has been absent for \d+ s", text), text


@pytest.mark.parametrize("head, body", [("200 OK", b'{"mode":"en'), ("200 OK", b"hello"), ("200 OK", b'{"models":[1,null]}'),
                                        ("200 OK", b"[]"), ("307 Temporary Redirect", b"")])
def test_a_server_that_is_not_gpuward_is_never_success(tmp_path, head, body):
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.wfile.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            self.close_connection = True

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = ("--address", f"127.0.0.1:{server.server_port}")
        for command in (("guard", "mode", "enforce"), ("guard", "mode"), ("guard", "status"), ("jobs",)):
            done = support.gpuward(*command, *at)
            assert done.returncode == support.FAILED and "is not a gpuward service" in done.stderr, (command, done.stderr)
        server.shutdown()


def test_the_help_of_a_subcommand_explains_its_own_options():
    for name, meaning in (("evict", "--for TIME the worker may return after TIME"), ("hold", "--for TIME the hold ends after TIME"),
                          ("learn", "--for TIME watch the machine for TIME (default: 1m)"),
                          ("resume", "--now the worker returns immediately.")):
        text = " ".join(support.gpuward("guard", name, "--help").stdout.split())
        assert meaning in text, text
        assert ("a number without a unit means seconds" in text) == ("--for TIME" in text), text


def test_a_game_is_named_and_a_small_neighbour_is_no_contender(s, world):
    with Contender(world, 300 * MIB) as browser, subprocess.Popen(["/bin/sleep", "1000"]) as game:
        s.guard("game", "start", "--pid", str(game.pid), "--reason", "steam")
        s.until("evicted")
        explained(s, "Reason against the worker: contention", "Rule: registered game", f"Evidence: 1 game is registered: pid {game.pid} sleep", f"Game: pid {game.pid}, registered",
                  f"Other process: pid {browser.pid} sleep with 300 MiB", "no demand: below min_vram (512 MiB)")
        game.kill()


def test_a_reservation_and_a_hold_are_explained_with_their_end(s):
    room = s.reserve(16 * GIB)
    s.until("evicted")
    why = reason(s, "reserved")
    assert f"reservation {room['id']}: 16384 MiB on {UUID}" in why["evidence"] and 500 < why["clears_seconds"] < 601
    text = explained(s, "or earlier if the reservation is released.")
    assert re.search(r"Next possible automatic change: in (10|9|8) min\.", text), text
    assert "hold evicted for 10 s" in s.guard("hold", "evicted", "ollama", "--for", "10").stdout
    s.guard("hold", "evicted", "ollama", "--for", "1h")
    left = r"(1 h|5\d min)"
    shown = s.guard("status").stdout
    assert re.search(f"evicted, {left} left", shown) and "manual,reserved" in shown
    assert re.search(r"^Reserved: 16\.0 GiB on GPU 0, ends in (10|9) min\.$", shown, re.M), shown
    text = " ".join(explained(s, "Reason against the worker: manual").split())
    assert re.search(rf"Rule: hold evicted\. .* Ends in {left}, or earlier with gpuward guard release ollama\.", text) and "Override" not in text, text


def test_a_reservation_is_shown_while_the_worker_is_out(s):
    s.guard("evict", "ollama")
    s.until("evicted")
    s.reserve(20 * GIB, pid=os.getpid())
    assert f"Reserved: 20.0 GiB on GPU 0 for pid {os.getpid()}, ends in" in s.guard("status").stdout
    s.guard("resume", "ollama")
    s.wait(lambda: f"of which 20480 MiB are reserved for pid {os.getpid()}" in s.worker()["why"])
    assert s.worker()["mask"] == []


def test_a_schedule_reason_shows_its_hours(world, worker):
    hours = '[[schedule]]\nworker = "ollama"\nevict = ["00:00-24:00"]\n'
    with Guarded(world, configure(("ollama", worker), more=hours)) as s:
        s.until("evicted")
        assert reason(s, "schedule")["evidence"] == "in its schedule, daily 00:00-24:00"
        assert reason(s, "schedule")["clears"] == "when the span is over"


def test_the_end_of_a_schedule_counts_a_change_of_the_clocks(world, worker):
    """The clocks go forward by an hour within the span, so it lasts an hour less."""
    now = datetime.datetime.now(datetime.timezone.utc)
    change, end = now + datetime.timedelta(hours=2), now + datetime.timedelta(hours=5)
    zone = f"AAA0BBB-1,{change.timetuple().tm_yday - 1}/{change:%H:%M:%S},{(change.timetuple().tm_yday + 180) % 365}/0"
    hours = f'[[schedule]]\nworker = "ollama"\nevict = ["{now:%H:%M}-{end:%H:%M}"]\n'
    with Guarded(world, configure(("ollama", worker), more=hours), env={"TZ": zone}) as s:
        s.until("evicted")
        clears = datetime.datetime.fromisoformat(reason(s, "schedule")["clears_utc"].replace("Z", "+00:00"))
        assert abs(clears - end.replace(second=0, microsecond=0) + datetime.timedelta(hours=1)).total_seconds() < 2, (clears, zone)


def test_a_contender_that_is_known_to_fit_is_explained(s, world, worker):
    with Contender(world, 6 * GIB):
        s.until("evicted")
    s.back(worker)
    with Contender(world, 6 * GIB) as again:
        s.wait(lambda: str(again.pid) in s.guard("explain").stdout)
        explained(s, "known to use at most 6.0 GiB, which fits next to the worker")
        assert s.now() == "active"


def test_an_absent_worker_is_explained_by_its_match(world):
    with Guarded(world, configure(table("ollama", "vllm", url="http://127.0.0.1:9", match_unit="vllm.service"))) as s:
        s.until("absent")
        assert "no process is in unit vllm.service" in s.worker()["why"]


def test_a_dry_run_shows_would_be_and_the_memory_that_is_held(world, worker):
    with Guarded(world, configure(("ollama", worker), mode="dry-run")) as s:
        s.until("active")
        said = s.guard("evict", "ollama").stdout
        assert said.endswith(" (mode dry-run: the worker is not moved)\n"), said
        s.until("evicted")
        shown = s.guard("status").stdout
        assert "would be: evicted" in shown and "10.0 GiB" in shown and "10.0 GiB would be free" in shown
        explained(s, "ollama would have been evicted for", "holds 10.0 GiB")
        metrics = s.get("/metrics").text
        assert f'gpuward_guard_resident_bytes{{worker="ollama"}} {10 * GIB}' in metrics
        assert "\ngpuward_guard_time_to_free_seconds" not in metrics
        assert worker.resident() == 10 * GIB and worker.acted() == []
        said = s.cli("run", "--vram", "18G", "--", "true", code=14).stderr
        assert "the guard is in dry-run: no worker leaves" in said and "retry" not in said


def test_on_simulated_gpus_nothing_is_done_unless_it_is_configured(world, worker):
    text = configure(("ollama", worker)).replace("simulated = true\n", "")
    with Guarded(world, text) as s:
        s.until("active")
        note = "The GPUs are simulated: in every mode, decisions are recorded, but no worker is moved. To let the guard act, set simulated = true"
        says = lambda *words: " ".join(s.guard(*words).stdout.split())
        assert note in says("status") and note in says("explain")
        assert note in says("mode") and "workers leave" not in says("mode")
        assert note in says("mode", "dry-run") and note in says("explain")
        assert note in says("status") and "run gpuward guard mode enforce" not in says("status")
        assert note in says("mode", "enforce")
        assert "(simulated GPUs: the worker is not moved)" in s.guard("evict", "ollama").stdout
        s.until("evicted")
        assert "would be: evicted" in s.guard("status").stdout and worker.acted() == []


def test_the_reason_in_the_status_is_never_truncated(world, worker):
    with Guarded(world, configure(("ollama", worker), mode="dry-run")) as s:
        s.until("active")
        with Contender(world, 8 * GIB) as game:
            s.wait(lambda: f"pid {game.pid}" in (s.worker()["why"] or "") or s.now() == "evicted")
            s.guard("hold", "evicted", "ollama", "--for", "2h", "--reason", "x")
            s.until("evicted")
            why = shown(s.worker()["why"])
            assert why in s.guard("status").stdout, "a pipe has no columns"
            narrow = s.cli("guard", "status", env={"COLUMNS": "60"}).stdout
            assert " ".join(narrow.split()).endswith(" ".join(why.split())), narrow
            assert all(len(line) <= 60 for line in narrow.splitlines()), narrow


def test_confirmations_and_moves_are_wrapped_at_words(s, world, worker):
    def narrow(*args):
        lines = s.cli("guard", *args, env={"COLUMNS": "60"}).stdout.splitlines()
        assert all(len(line) <= 60 for line in lines), lines
        return lines

    assert " ".join(narrow("snooze", "1h")) == (
        "ollama: requested hold active for 1 h; its state is now active For 1 h, only heat and faults move workers off "
        "the GPU; to end this, run gpuward guard release.")
    assert " ".join(narrow("release", "ollama")) == (
        "ollama: requested release; this ended its hold active, which would have lasted 1 h more; its state is now active")
    with Contender(world, 8 * GIB) as game:
        s.until("evicted")
        cause = f"for sleep (pid {game.pid}, 8.0 GiB)"
    s.back(worker)
    shown = narrow("history")
    assert cause in " ".join(" ".join(shown).split()) and "…" not in " ".join(shown)
    head = next(n for n, line in enumerate(shown) if "MOVE" in line)
    begin = shown[head].index("MOVE")
    further = [line for line in shown[head + 1:] if not line.startswith("20")]
    assert further and all(line[:begin].isspace() and line[begin] != " " for line in further), shown


def test_a_worker_or_gpu_that_does_not_exist_is_refused_with_those_that_do(s):
    done = s.guard("status", "olama", code=support.FAILED)
    assert 'no worker "olama"; did you mean "ollama"?' in done.stderr and done.stdout == ""
    assert "ollama" in s.guard("evict", "olama", code=1).stderr
    assert s.guard("evict", "nosuch", code=1).stderr == 'gpuward: no worker "nosuch"; there is ollama\n'
    assert "unknown subcommand 'guard foo'" in s.guard("foo", code=support.USAGE).stderr
    assert json.loads(s.guard("learn", "--json", "--for", "1s", "--quiet").stdout)["rules"] == []
    done = s.cli("run", "--vram", "1G", "--gpu", "5", "--", "true", code=support.FAILED)
    assert f"there is GPU 0 ({UUID})" in done.stderr


def test_without_workers_the_status_is_one_sentence(world):
    with Guarded(world, '[guard]\nmode = "enforce"\n') as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        said = s.guard("status").stdout
        assert said.endswith("No [[worker]] is configured, so there is nothing that the guard could move. To add workers, run sudo gpuward setup, or "
                             "see gpuward.toml(5).\n")
    with Guarded(world, '[guard]\nmode = "dry-run"\n') as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        assert "mode enforce" not in s.guard("status").stdout  # there is nothing to move


def test_learn_proposes_rules_that_then_hold(world, worker):
    with Contender(world, 600 << 20):
        with Guarded(world, configure(("ollama", worker), mode="observe")) as s:
            s.wait(lambda: s.now() not in (None, "reconcile"))
            rules = s.guard("learn", "--for", "1s").stdout
            assert 'action = "ignore"' in rules and "sleep" in rules
        with Guarded(world, configure(("ollama", worker), more=rules)) as s:
            s.until("active")
            s.observes()
            assert s.course() == ["active"]


def test_learn_never_ignores_a_current_contender(world, worker):
    with Contender(world, 600 << 20) as c:
        with Guarded(world, configure(("ollama", worker))) as s:
            s.until("evicted")
            done = s.guard("learn", "--for", "1s")
            assert done.stdout == "" and "no rule for sleep: worker ollama is off its GPU now because of this process" in done.stderr
            doc = json.loads(s.guard("learn", "--for", "1s", "--json").stdout)
            assert doc["rules"] == [] and doc["contenders"] == [{"name": "sleep", "worker": "ollama", "rule": None}]
        more = guarded.rule("contend", name="sleep")
        with Guarded(world, configure(("ollama", worker), mode="observe", more=more)) as s:
            s.wait(lambda: any(p["pid"] == c.pid for p in s.get("/api/v1/guard/gpus/0").json().get("processes", [])))
            done = s.guard("learn", "--for", "1s")
            assert done.stdout == "" and re.search(r"no rule for sleep: rule 1 .* already makes it a contender", done.stderr)


def test_learn_ignores_none_of_several_current_contenders(world, worker, tmp_path):
    second = tmp_path / "second"
    shutil.copy("/bin/sleep", second)
    with Contender(world, 800 << 20), Contender(world, 600 << 20, exe=second):
        with Guarded(world, configure(("ollama", worker))) as s:
            s.until("evicted")
            done = s.guard("learn", "--for", "1s")
            assert done.stdout == "" and "no rule for sleep: " in done.stderr and "no rule for second: " in done.stderr, done


def test_without_a_worker_explain_says_how_to_add_one(tmp_path):
    with Guarded(World(tmp_path), configure()) as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        said = s.guard("explain").stdout
        assert "No [[worker]] is configured" in said
        example = said[said.index("[[worker]]\n"):]
        (tmp_path / "gpuward.toml").write_text(example)
        assert support.gpuward("config", "check", tmp_path / "gpuward.toml").returncode == 0


def test_a_snooze_never_shortens_a_hold_and_a_hold_names_what_it_replaces(s, worker):
    s.guard("hold", "active", "ollama", "--forever")
    assert s.guard("snooze", "30m").stdout.startswith("ollama: already held active until it is released, so nothing was changed")
    assert s.worker()["hold_until_seconds"] is None
    said = s.guard("hold", "active", "ollama", "--for", "1h").stdout
    assert "requested hold active for 1 h; this replaced its hold active, which had no end" in said
    assert s.guard("pause", "--for", "10m").stdout == "ollama: already held active for 1 h more, so nothing was changed\n"
    s.guard("pause", "--for", "3h")  # longer than the hold
    assert s.worker()["hold_until_seconds"] > 7200


def test_a_hold_keeps_its_begin_and_its_reason_over_kill_9(s, worker):
    s.guard("hold", "evicted", "ollama", "--forever", "--reason", "maintenance of the card")
    s.until("evicted")
    before = reason(s, "manual")
    assert before["evidence"] == "requested by a client with the token: maintenance of the card"
    s.kept("maintenance of the card")
    s.restart()
    s.wait(lambda: s.worker()["mask"] == ["manual"])
    after = reason(s, "manual")
    assert after["evidence"] == before["evidence"] and after["since_utc"][:19] == before["since_utc"][:19]
    explained(s, "maintenance of the card")


def test_recover_where_no_process_is_checkpointed(tmp_path):
    env = support.environment(HOME=tmp_path, XDG_STATE_HOME=tmp_path, GPUWARD_CONFIG_ROOT=tmp_path)
    done = support.gpuward("guard", "recover", env=env)
    assert (done.returncode, done.stdout) == (0, "no process is checkpointed\n")
    assert json.loads(support.gpuward("guard", "recover", "--json", env=env).stdout)["processes"] == []


@pytest.mark.parametrize("args, word", [
    (("guard",), "give status, explain"),
    (("guard", "statsu"), "did you mean 'status'"),
    (("guard", "evict"), "usage: gpuward guard evict WORKER"),
    (("guard", "hold", "evicted", "ollama"), "--for TIME"),
    (("guard", "hold", "evicted", "ollama", "--for", "1h", "--forever"), "--for TIME"),
    (("guard", "hold", "gone", "ollama", "--for", "1h"), "evicted or active"),
    (("guard", "status", "--now"), "guard status does not take --now"),
    (("guard", "replay"), "usage: gpuward guard replay"),
    (("guard", "pause"), "--forever"),
    (("guard", "pause", "--for", "1h", "--forever"), "--forever"),
    (("guard", "pause", "a", "b", "--for", "1h"), "usage: gpuward guard pause [WORKER]"),
    (("guard", "snooze"), "usage: gpuward guard snooze TIME"),
    (("guard", "snooze", "a"), "a time such as 30m"),
    (("guard", "snooze", "0s"), "a time such as 30m"),
    (("guard", "snooze", "30m", "--for", "1h"), "guard snooze does not take --for"),
    (("guard", "snoze", "30m"), "did you mean 'snooze'"),
    (("run", "--", "true"), "--vram SIZE"),
    (("run", "--vram", "much", "--", "true"), "10G or 512MiB"),
    (("run", "--vram", "10", "--", "true"), "with a unit"),
    (("run", "--vram", "1G"), "a command is missing"),
    (("run", "--vram", "1G", "--gpu", "0,1", "--", "true"), "one GPU"),
    (("run", "--vram", "1G", "--json", "--", "true"), "no JSON"),
])
def test_wrong_usage_is_refused(args, word):
    done = support.gpuward(*args)
    assert done.returncode == support.USAGE and word in done.stderr


def test_the_help_of_each_verb_shows_its_arguments():
    listed = support.gpuward("guard", "--help").stdout
    for words in ("hold evicted|active WORKER|all", "game start|end --pid PID", "snooze TIME [WORKER]", "clear GPU",
                  "replay [--policy FILE] TRACE"):
        assert f"\n  {words}" in listed
        own = support.gpuward("guard", words.split()[0], "--help").stdout
        assert f"Usage: gpuward guard {words}" in own
    own = support.gpuward("guard", "snooze", "--help").stdout
    assert "--reason" in own and "--policy" not in own and "--forever" not in own


def test_a_command_that_changes_something_needs_the_token(s):
    env = support.environment(GPUWARD_ADDRESS=s.url, GPUWARD_CONFIG_ROOT=s.path)
    done = support.gpuward("guard", "evict", "ollama", env=env)
    assert done.returncode == 1 and "--token-file" in done.stderr
    assert support.gpuward("guard", "status", env=env).returncode == 0
    env["GPUWARD_TOKEN_FILE"] = s.token_file
    assert support.gpuward("guard", "evict", "ollama", env=env).returncode == 0
    s.until("evicted")


def test_the_service_is_found_on_its_unix_socket(world, worker, tmp_path):
    address = f"unix:{tmp_path}/gpuward.sock"
    with Guarded(world, configure(("ollama", worker)), "--listen", address) as s:
        s.until("active")
        done = support.gpuward("guard", "status", "--address", address)
        assert done.returncode == 0 and "ollama" in done.stdout


def test_a_service_that_is_not_there_is_named(tmp_path):
    done = support.gpuward("guard", "status", "--address", "127.0.0.1:1")
    assert done.returncode == 1 and "no service listens on 127.0.0.1:1" in done.stderr
    done = support.gpuward("guard", "status", "--address", f"unix:{tmp_path}/none")
    assert done.returncode == 1 and "no service listens" in done.stderr


def test_a_token_that_belongs_to_another_service_does_no_harm(world, worker, tmp_path):
    """The service has no token, and listens on TCP and on a UNIX socket."""
    token = tmp_path / "token"
    token.write_text("of-another-service-1234567890\n")
    token.chmod(0o600)
    sock = f"unix:{tmp_path}/socket"
    with Service(world.scenario, "--listen", sock, config=configure(("ollama", worker))) as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)

        def ask(address, *words, code=support.OK, named=True):
            argv = ["--address", address] + (["--token-file", str(token)] if named else [])
            done = support.gpuward("guard", *words, *argv)
            assert done.returncode == code, done.stdout + done.stderr
            return done
        assert "ollama" in ask(s.url, "status").stdout
        assert "this service has none" in ask(s.url, "evict", "ollama", code=support.FAILED).stderr
        assert ("(set token_file in [service], or use a UNIX socket as root)"
                in ask(s.url, "evict", "ollama", code=support.FAILED, named=False).stderr)
        assert "requested hold" in ask(sock, "hold", "active", "ollama", "--forever").stdout


def started(s, *words):
    return subprocess.Popen([support.PROGRAM, "run", "--address", s.url, "--token-file", s.token_file, *words],
                            env=support.environment(), stdout=subprocess.PIPE, text=True)


def test_run_makes_room_and_gives_it_back(s, world, worker):
    done = s.cli("run", "--vram", "16G", "--", "sh", "-c",
                 f"ls {world.held}; echo $GPUWARD_GPU $CUDA_VISIBLE_DEVICES; exit 7", code=7)
    assert done.stdout == f"{UUID} {UUID}\n"  # ls printed nothing: no process held memory when it ran
    s.back(worker)
    assert s.reservations() == []


def test_run_moves_no_worker_where_there_is_room(s, worker):
    s.cli("run", "--vram", "4G", "--gpu", "0", "--", "true")
    assert worker.acted() == []


def test_more_memory_than_any_gpu_has_is_refused_at_once(s, worker):
    for how in ([], ["--wait", "10m"]):
        done = s.cli("run", "--vram", "100G", *how, "--", "true", code=14)
        assert "not enough GPU memory: 100.0 GiB requested, but the largest GPU has only 24.0 GiB" in done.stderr
        assert "retry" not in done.stderr
    assert worker.acted() == [] and s.reservations() == []


def test_run_waits_for_others_to_leave(s, world):
    with Contender(world, 12 * GIB):
        s.until("evicted")
        child = started(s, "--vram", "18G", "--wait", "1m", "--", "echo", "here")
        s.observes()
        assert child.poll() is None
    assert child.communicate(timeout=support.TIMEOUT)[0] == "here\n"
    assert child.returncode == 0


def test_a_program_that_cannot_be_started(s, tmp_path):
    s.cli("run", "--vram", "1G", "--", "no-such-program-here", code=127)
    plain = tmp_path / "plain"
    plain.write_text("")
    s.cli("run", "--vram", "1G", "--", plain, code=126)
    assert s.reservations() == []


def test_signals_reach_the_program(s):
    child = started(s, "--vram", "16G", "--", "sh", "-c", f"touch {s.path}/runs; exec sleep 1000")
    s.wait(lambda: os.path.exists(f"{s.path}/runs"))
    child.terminate()
    assert child.wait(support.TIMEOUT) == 128 + signal.SIGTERM
    s.until("active")


def test_the_reservation_of_a_killed_program_ends(s, worker):
    child = started(s, "--vram", "16G", "--", "sleep", "30")
    s.wait(lambda: s.now() == "evicted" and s.reservations() != [])
    child.kill()
    child.wait()
    s.wait(lambda: s.reservations() == [])
    s.back(worker)


@pytest.fixture(scope="module")
def home():
    with tempfile.TemporaryDirectory() as d:
        os.chown(d, NOBODY, NOBODY)
        yield pathlib.Path(d)


@pytest.fixture(scope="module")
def served():
    """A service with a token that only root may read, and a model of 10 GiB."""
    with tempfile.TemporaryDirectory() as d, subprocess.Popen(["/bin/sleep", "1000"]) as model:
        world = World(d)
        world.hold(model.pid, 10 * GIB)
        pidfile = pathlib.Path(d) / "pid"
        pidfile.write_text(f"{model.pid}\n")
        worker = table("model", "exec", match_pidfile=pidfile, resume_command=["/bin/true"],
                       evict_command=["/bin/rm", "-f", str(world.held / str(model.pid))])
        try:
            with Service(world.scenario, token=True, config=guarded.config(worker=worker)) as s:
                yield guarded.ready(s)
        finally:
            model.kill()


def as_user(home, *args, code=0, address=None):
    env = support.environment(HOME=home, GPUWARD_CONFIG_ROOT="/nowhere", GPUWARD_ADDRESS=address or "127.0.0.1:1")
    done = subprocess.run([*AS_NOBODY, "--", support.PROGRAM, *map(str, args)], env=env, cwd="/", capture_output=True, text=True,
                          timeout=support.TIMEOUT)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@needs_root
def test_without_the_token_the_program_is_not_started_and_the_remedy_is_printed(served, home):
    done = as_user(home, "run", "--vram", "1G", "--", "echo", "played", code=1, address=served.url)
    assert done.stdout == "" and "~/.config/gpuward/token" in done.stderr


@needs_root
@pytest.mark.parametrize("there, why", [(True, "This request needs the token"), (False, "no service listens on")])
def test_with_anyway_a_game_starts_in_any_case(served, home, there, why):
    done = as_user(home, "run", "--vram", "1G", "--anyway", "--", "sh", "-c", "echo played ${GPUWARD_GPU-nowhere}; exit 7",
                   code=7, address=served.url if there else None)
    assert done.stdout == "played nowhere\n"
    assert why in done.stderr and "sh is started nevertheless because of --anyway" in done.stderr


@needs_root
def test_a_user_with_the_token_in_an_own_file_may_do_it(served, home):
    """The commands of GUARD.md, "A user of the desktop"."""
    folder = home / ".config" / "gpuward"
    subprocess.run([*AS_NOBODY, "install", "-d", "-m", "700", folder], check=True)
    subprocess.run(["install", "-o", str(NOBODY), "-m", "600", served.token_file, folder / "token"], check=True)
    never = as_user(home, "run", "--vram", "100G", "--anyway", "--", "echo", "played", address=served.url)
    assert never.stdout == "played\n" and "not enough GPU memory" in never.stderr
    done = as_user(home, "run", "--vram", "16G", "--", "sh", "-c", "echo played on $GPUWARD_GPU", address=served.url)
    assert done.stdout.startswith("played on GPU-") and done.stderr == ""
    said = as_user(home, "guard", "game", "start", "--pid", os.getpid(), address=served.url)
    assert "workers stay off the GPUs until" in said.stdout
    said = as_user(home, "guard", "game", "end", "--pid", os.getpid(), address=served.url)
    assert said.stdout == f"the game of process {os.getpid()} has ended\n"


COMPLETE = {
    "bash": """source <({program} completion bash)
while IFS= read -r line; do
	COMP_WORDS=($line) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()
	[[ $line == *" " ]] && COMP_WORDS+=("") && COMP_CWORD=$((COMP_CWORD + 1))
	_gpuward
	echo "${{COMPREPLY[*]}}"
done
""",
    "fish": """{program} completion fish | source
while read -l line
	echo (complete -C $line | string split -f1 \\t)
end
""",
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_completion_knows_subcommands_workers_metrics_and_fields(s, worker, tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "gpuward").symlink_to(support.PROGRAM)
    asked = {
        "gpuward guard ": {"status", "evict", "resume", "hold", "pause", "snooze", "release", "game"},
        "gpuward guard sno": {"snooze"},
        "gpuward guard evict ": {"all", "ollama"},
        "gpuward guard hold ": {"evicted", "active", "all", "ollama"},
        "gpuward guard game ": {"start", "end"},
        "gpuward guard mode ": {"observe", "dry-run", "enforce", "config"},
        "gpuward compare --metric la": {"latency"},
        "gpuward compare --metric latency,po": {"latency,power"},
        "gpuward log --fields elapsed": {"elapsed_seconds"},
        "gpuward completion ": {"bash", "zsh", "fish"},
    }
    env = support.environment(PATH=f"{tmp_path}:/usr/bin:/bin", GPUWARD_ADDRESS=s.url, HOME=tmp_path)
    script = COMPLETE[shell].format(program=support.PROGRAM)
    done = subprocess.run([shell, "-c", script], input="\n".join(asked) + "\n", capture_output=True, text=True, env=env,
                          timeout=support.TIMEOUT)
    got = [set(line.split()) for line in done.stdout.splitlines()]
    assert len(got) == len(asked), done.stdout + done.stderr
    for (line, words), offered in zip(asked.items(), got):
        assert words <= offered if line == "gpuward guard " else words == offered, (line, offered)
