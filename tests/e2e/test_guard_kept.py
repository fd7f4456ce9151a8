"""What the guard keeps over a restart: workers that are out, whatever the file says by then, and who plays."""
import signal
import time

import guarded
from guarded import SHORT, Guarded, configure, give
from worker import GIB, Contender, Process, Worker

SIZE = 8 * GIB
HEAD = f'[guard]\nmode = "enforce"\nsimulated = true\npoll_ms = 50\n{SHORT}\n'
RIGHT, WRONG = 'match.pidfile = "{}"', 'match.name = "nobody"'


def write(s, text):
    with open(s.config, "w") as f:
        f.write(text)


def restart_with(s, text, how=signal.SIGKILL):
    write(s, text)
    s.restart(how)


def heard(s, words):
    s.wait(lambda: words in s.messages())


def is_astray(s, name="w"):
    w = s.worker(name)
    return w["state"] == "absent" and "its process lives and is out" in w["why"]


def test_a_restart_with_a_wrong_match_keeps_what_is_out(world):
    with guarded.held(world, "Ollama", SIZE, models=["a"]) as w:
        right = HEAD + w.table("w", "ollama")
        wrong = right.replace(RIGHT.format(w.pidfile), WRONG)
        assert wrong != right
        with Guarded(world, right) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.until("evicted", name="w")
            for how in (signal.SIGKILL, signal.SIGTERM):  # also of one that was astray before
                restart_with(s, wrong, how)
                s.wait(lambda: is_astray(s))
            assert "its process lives and is out" in s.guard("explain", "w").stdout
            assert "its process lives and is out" in s.messages()
            assert s.worker("w")["hold"] == "evicted" and w.resident() == 0
            give(s, right)
            s.until("evicted", name="w")
            s.guard("release", "w")
            s.wait(lambda: s.now("w") == "active" and w.resident() == SIZE)


def test_a_right_file_at_the_next_start_brings_it_back(world):
    with guarded.held(world, "Ollama", SIZE, models=["a"]) as w:
        right = HEAD + w.table("w", "ollama")
        with Guarded(world, right) as s, Contender(world, 4 * GIB):
            s.until("evicted", name="w")
            restart_with(s, right.replace(RIGHT.format(w.pidfile), WRONG))
            s.wait(lambda: is_astray(s))
            restart_with(s, right)
            s.until("evicted", name="w")


def test_one_that_ended_meanwhile_is_not_kept(world):
    with guarded.held(world, "Ollama", SIZE, models=["a"]) as w:
        right = HEAD + w.table("w", "ollama")
        with Guarded(world, right) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.until("evicted", name="w")
            restart_with(s, right.replace(RIGHT.format(w.pidfile), WRONG))
            s.wait(lambda: is_astray(s))
            w.process.end()
            s.wait(lambda: "its process ended" in s.worker("w")["why"])


def test_a_worker_that_was_taken_out_of_the_file_is_told_of_at_the_start(world):
    with guarded.held(world, "VLLM", SIZE) as w:
        with_it = HEAD + w.table("w", "vllm")
        with Guarded(world, with_it) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.until("evicted", name="w")
            restart_with(s, HEAD)
            heard(s, "worker w was removed from the configuration while it is evicted (level 2): wake it (vLLM: POST /wake_up")
            restart_with(s, with_it.replace(RIGHT.format(w.pidfile), WRONG))  # named again, and not found
            s.wait(lambda: is_astray(s))
            give(s, with_it)
            s.until("evicted", name="w")
            s.guard("release", "w")
            s.wait(lambda: s.now("w") == "active" and w.resident() == SIZE)
            restart_with(s, HEAD, signal.SIGTERM)  # nobody is out
            s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
            assert s.messages().count("was removed from the configuration while it is evicted") == 1


# ---- who plays


def playing(s):
    return sorted(g["pid"] for g in s.get("/api/v1/guard/games").json()["games"])


def test_a_game_is_still_played_after_a_restart(world):
    with Worker(world) as w, Process(world, ["/bin/sleep", "1000"]) as game, \
            Process(world, ["/bin/sleep", "1000"]) as over, Process(world, ["/bin/sleep", "1000"]) as short, \
            Guarded(world, configure(("ollama", w), guard="poll_ms = 50")) as s:
        s.until("active")
        for p in (game, over):
            s.guard("game", "start", "--pid", str(p.pid))
        s.guard("game", "start", "--pid", str(short.pid), "--for", "1s")
        s.until("evicted")
        since = s.get("/api/v1/guard/games").json()["games"][0]["since_utc"]
        s.stop(signal.SIGKILL)
        over.end()
        time.sleep(1)
        told = len(w.acted())
        s.start()
        s.wait(lambda: playing(s) == [game.pid])
        assert s.get("/api/v1/guard/games").json()["games"][0]["since_utc"][:16] == since[:16]
        heard(s, f"process {game.pid} is still registered as a game")
        s.until("evicted")
        time.sleep(1)  # more than the quiet time
        assert s.now() == "evicted" and len(w.acted()) == told and w.resident() == 0
        s.restart(signal.SIGTERM)  # and after another
        s.wait(lambda: playing(s) == [game.pid])
        game.end()
        s.wait(lambda: playing(s) == [])
        s.until("active")
        s.restart(signal.SIGTERM)
        s.wait(lambda: s.get("/api/v1/guard/games").status_code == 200)
        assert playing(s) == []


def test_a_game_that_was_ended_is_not_played_after_a_restart(world):
    with Worker(world) as w, Process(world, ["/bin/sleep", "1000"]) as game, \
            Guarded(world, configure(("ollama", w), guard="poll_ms = 50")) as s:
        s.until("active")
        s.guard("game", "start", "--pid", str(game.pid))
        s.until("evicted")
        s.guard("game", "end", "--pid", str(game.pid))
        s.until("active")
        s.restart()
        s.wait(lambda: s.get("/api/v1/guard/games").status_code == 200)
        assert playing(s) == []
