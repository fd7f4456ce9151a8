"""A worker that is not found: what is said of it, what helps, and that another configuration is told of as it is."""
import json

import pytest

import guarded
import service
import support
from guarded import SHORT, Guarded
from worker import GIB, Worker, World

HEAD = '[guard]\nmode = "enforce"\nsimulated = true\npoll_ms = 50\nunknown = "contend"\n' + SHORT
OLLAMA = '[[worker]]\nname = "ollama"\nkind = "ollama"\nurl = "{url}"\n{match}\n'


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def worker(world):
    with Worker(world, size=8 * GIB) as w:
        service.Service.wait(lambda: w.resident() == 8 * GIB)
        yield w


def text(worker, match):
    return HEAD + OLLAMA.format(url=worker.url, match=match)


def give(s, worker, match):
    guarded.give(s, text(worker, match))


def test_explain_says_what_a_match_would_have_to_fit(world, worker):
    with Guarded(world, text(worker, 'match.unit = "ollama.service"')) as s:
        s.until("absent")
        said = " ".join(s.guard("explain", "ollama").stdout.split())
        assert "no process is in unit ollama.service" in said
        assert "Without a match it is the process that listens at " + worker.url in said
        runner, = worker.runners()
        assert f"It may be pid {runner} " in said and "worker.py runner" in said and "not on its GPU" not in said
        learned = s.guard("learn", "--for", "1s")
        assert "[[rule]]" not in learned.stdout and "it may be worker ollama, which is absent" in learned.stderr
        doc = json.loads(s.guard("learn", "--for", "1s", "--json", "--quiet").stdout)
        assert doc["rules"] == [] and doc["may_be_workers"][0]["worker"] == "ollama"
        give(s, worker, 'match.command = "worker.py (serve|runner)"')  # of what explain showed
        s.until("active")


def test_a_reload_with_another_match_says_what_is_sought_now(world, worker):
    with Guarded(world, text(worker, "")) as s:
        s.until("active")
        for match, why in (('match.unit = "ollama.service"', "no process is in unit ollama.service"),
                           ('match.name = "no-such"', "no process is called no-such"),
                           ('match.command = "no-such-[0-9]"', "no command line matches no-such-[0-9]")):
            give(s, worker, match)
            s.wait(lambda: why in s.worker()["why"])
            assert s.now() == "absent"
        give(s, worker, "")
        s.until("active")
        assert worker.acted() == []


def test_room_for_a_process_ends_with_it_and_not_in_a_year(world, worker):
    with Guarded(world, text(worker, "")) as s:
        guarded.settled(s, 8 * GIB)
        done = s.cli("run", "--vram", "20G", "--", "sh", "-c",
                     f"{support.PROGRAM} guard explain --address {s.url}; {support.PROGRAM} guard status --json --address {s.url}")
        said = " ".join(done.stdout.split())
        assert "Ends when it is given back, its process ends." in said and "at the earliest" not in said
        room, = json.loads(done.stdout[done.stdout.index("{"):])["reservations"]
        assert room["pid"] and room["until_utc"] is room["until_seconds"] is None
        assert s.post("/api/v1/guard/reservations", token=True, json={"bytes": GIB, "ttl_s": 0}).status_code == 400
