"""Tests the guard with the real llama-server on a simulated GPU: the guard's states, the states that the server
reports, and a bystander process that must not be changed."""
import contextlib
import json
import os
import signal
import threading

import pytest
import requests

import llama_server
import support
from guarded import Guarded, Recorder, configure, quick, table
from llama_server import ASLEEP, LlamaServer
from worker import GIB, Contender, World, ticks

pytestmark = pytest.mark.skipif(bool(llama_server.missing()), reason=str(llama_server.missing()))

LONG = 100_000  # tokens; their generation takes longer than any test
CONTEXT = ["-c", str(LONG + 1000)]


@pytest.fixture
def world(tmp_path):
    """A card with a bystander process. Checks at the end that the bystander runs, holds the same memory and got no
    signal."""
    world = World(tmp_path)
    with Recorder(world, tmp_path / "signals", ASLEEP, "graphics") as bystander:
        (tmp_path / "signals").touch()
        yield world
        assert bystander.child.poll() is None and world.holds(bystander.pid) == ASLEEP and bystander.signals() == []


def router(world, tmp_path, *args, models=("a", "b"), **kw):
    return LlamaServer(world, tmp_path, "--models-dir", ".", *args, models=models, **kw)


def chat(server, **values):
    return table("chat", "llamacpp", url=server.url, match_port=server.port, **values)


@contextlib.contextmanager
def guarded(world, server, held=None, text=None, **times):
    """Runs a service that guards the server, and waits until it has seen the server's memory. Checks that the server
    stays the same process."""
    with Guarded(world, text or configure(chat(server), defaults=quick(**times))) as s:
        if held is not None:
            s.settled(held, name="chat")
        yield s


@contextlib.contextmanager
def unharmed(server):
    """Checks that the server is the same process afterwards."""
    before = server.pid, ticks(server.pid)
    yield
    assert (server.pid, ticks(server.pid)) == before and server.child.poll() is None


def evicted(s, server, *states):
    s.until("evicted", name="chat")
    server.are(*states)
    assert s.worker("chat")["resident_bytes"] == 0 and server.processes() == {}


def back(s, server, held, *states):
    s.settled(held, name="chat")
    server.are(*states)


def said(s, *words):
    """Waits until the evidence of a decision contains these words."""
    s.wait(lambda: any(all(w in d["evidence"] for w in words) for d in s.decisions() if d["evidence"]), 20, s.decisions)


def proxied(server):
    """Lines of the server's log about requests that reached a model."""
    return [line for line in (server.folder.parent / "llama-server.log").read_text().splitlines() if "proxying" in line]


class Client(threading.Thread):
    """A request for this number of tokens, and its result."""

    def __init__(self, server, tokens, **body):
        super().__init__(daemon=True)
        self.server, self.tokens, self.code, self.text, self.broken = server, tokens, None, "", None
        self.body = {"prompt": "once", "n_predict": tokens, "ignore_eos": True, "model": "a", **body}

    def run(self):
        try:
            with requests.post(self.server.url + "/completion", json=self.body, stream=True, timeout=(10, 300)) as answer:
                self.code = answer.status_code
                self.text = b"".join(answer.iter_content(None)).decode()
        except requests.RequestException as e:
            self.broken = e

    def works(self):
        """Waits until the server works on the request."""
        slots = f"/slots?model={self.body['model']}&autoload=false" if self.server.router else "/slots"
        support.wait(lambda: any(slot["is_processing"] for slot in self.server.get(slots)), "a busy slot")
        return self

    def refused(self):
        """True if the client got an error, or an answer that is not whole: its last event is missing."""
        self.join(60)
        return not self.is_alive() and (self.broken or self.code != 200 or '"stop":true' not in self.text)


@contextlib.contextmanager
def working(server, tokens, **body):
    client = Client(server, tokens, **body)
    client.start()
    yield client.works()
    client.join(60)


def test_a_server_with_one_model_that_may_be_ended_answers_its_request_first(world, tmp_path):
    with LlamaServer(world, tmp_path, "-m", "a.gguf", "-c", "40000", context=40000) as server:
        times = quick(drain_s=120, budget_s=150, max_level=5, allow_kill=True)
        with guarded(world, server, 4 * GIB, configure(chat(server), defaults=times)) as s, working(server, 6000) as client:
            s.guard("evict", "chat")
            assert server.child.wait(60) == 0  # by SIGTERM, which it handles
            client.join(60)
            assert client.code == 200 and json.loads(client.text)["tokens_predicted"] == 6000


# The longest test comes first, so that the others run in parallel. The guard tries a stuck server again after 30 s.
def test_a_stopped_server_is_reported_and_evicted_when_it_runs_again(world, tmp_path):
    with router(world, tmp_path) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB) as s, Contender(world, 14 * GIB, exe="/bin/sleep"):
            os.kill(server.pid, signal.SIGSTOP)
            s.until("stuck", name="chat")
            said(s, "no answer in time")
            os.kill(server.pid, signal.SIGCONT)
            evicted(s, server, "unloaded", "unloaded")


def test_two_models_leave_for_a_contender_and_come_back(world, tmp_path):
    with router(world, tmp_path, models=("a", "b", "c")) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB) as s:
            with Contender(world, 14 * GIB) as contender:
                evicted(s, server, "unloaded", "unloaded", "unloaded")
                assert contender.child.poll() is None
                assert s.classes()[contender.pid] == "contender"
            back(s, server, 8 * GIB, "loaded", "loaded", "unloaded")
            assert s.course("chat")[-1] == "active" and "stuck" not in s.course("chat")
            for model in "ab":
                assert server.complete("it works again", 20, model=model)[1] == 20


def test_a_request_in_flight_is_answered_whole_before_its_model_leaves(world, tmp_path):
    with router(world, tmp_path, "-c", "40000", context=40000) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB, drain_s=120, budget_s=150) as s, working(server, 6000) as client:
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            client.join(60)
            assert client.code == 200 and json.loads(client.text)["tokens_predicted"] == 6000
            assert "drain" in s.course("chat")


@pytest.mark.parametrize("stream", [False, True], ids=["at once", "streamed"])
def test_a_request_longer_than_the_drain_time_ends_with_an_error(world, tmp_path, stream):
    with router(world, tmp_path, *CONTEXT, context=LONG + 1000) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB, drain_s=0.5, budget_s=30) as s, working(server, LONG, stream=stream) as client:
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            assert client.refused(), (client.code, client.text[-300:])
            assert "stuck" not in s.course("chat")
            s.guard("resume", "chat")
            back(s, server, 8 * GIB, "loaded", "loaded")


def test_a_model_that_is_wanted_again_while_it_stops_is_loaded_again(world, tmp_path):
    with router(world, tmp_path, *CONTEXT, context=LONG + 1000) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB, drain_s=0.2, budget_s=30) as s, working(server, LONG) as client:
            first = server.processes()
            s.guard("evict", "chat")
            s.wait(lambda: {"evict", "verify", "evicted"} & set(s.course("chat")))
            s.guard("resume", "chat", "--now")
            s.wait(lambda: s.now("chat") == "active" and len(server.processes()) == 2 and
                   not set(first.values()) & set(server.processes().values()))
            back(s, server, 8 * GIB, "loaded", "loaded")
            assert client.refused()


def test_a_sleeping_model_is_not_woken_by_questions_and_leaves_asleep(world, tmp_path):
    with router(world, tmp_path, "--metrics", "--sleep-idle-seconds", "2") as server, unharmed(server):
        server.load("a")
        server.get("/slots?model=a&autoload=false")
        asked = proxied(server)
        assert asked, "a question that reaches the model is in the log"
        text = configure(chat(server), defaults=quick(), more="[models]\ninterval_s = 0.2\n")
        with guarded(world, server, text=text) as s:
            server.are("sleeping", "unloaded")
            s.settled(ASLEEP, name="chat")
            asked = proxied(server)
            s.observes(3)
            assert server.status() == {"a": "sleeping", "b": "unloaded"}
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            assert proxied(server) == asked, "a question reached the sleeping model"
            s.guard("resume", "chat")
            s.until("active", name="chat")
            server.are("sleeping", "unloaded")


def test_a_truncated_file_is_noticed_at_once_and_holds_back_no_other_model(world, tmp_path):
    with router(world, tmp_path) as server, unharmed(server):
        server.load("a", "b")
        files = {f: f.read_bytes() for f in server.folder.glob("*.gguf")}
        with guarded(world, server, 8 * GIB) as s:
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            for file, content in files.items():
                file.write_bytes(content[:len(content) // 2])
            s.guard("resume", "chat")
            said(s, "did not load")
            server.are("unloaded", "unloaded")
            (server.folder / "b.gguf").write_bytes(files[server.folder / "b.gguf"])
            s.guard("resume", "chat", "--now")
            back(s, server, 4 * GIB, "unloaded", "loaded")
            said(s, "1 of 2 models loaded again; not loaded: a")


def test_a_model_that_replaced_another_returns_alone(world, tmp_path):
    with router(world, tmp_path, "--models-max", "1") as server, unharmed(server):
        server.load("a")
        with guarded(world, server, 4 * GIB) as s:
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            assert server.complete("a client loads the other model", 20, model="b")[1] == 20
            s.wait(lambda: s.course("chat").count("evicted") == 2)
            evicted(s, server, "unloaded", "unloaded")
            s.guard("resume", "chat")
            back(s, server, 4 * GIB, "unloaded", "loaded")
            said(s, "1 of 2 models loaded again; not loaded: a")


def test_a_missing_key_is_reported_at_once_and_with_the_key_the_models_move(world, tmp_path):
    token = tmp_path / "token"
    token.write_text("live-key-123\n")
    with router(world, tmp_path, key="live-key-123") as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB) as s:
            s.guard("evict", "chat")
            said(s, "401", "token_file")
            s.until("stuck", name="chat")
            server.are("loaded", "loaded")
            s.guard("release", "chat")
            s.settled(8 * GIB, name="chat")
            s.reload(configure(chat(server, token_file=token), defaults=quick()))
            s.logs("the configuration was reloaded")
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")
            s.guard("resume", "chat")
            back(s, server, 8 * GIB, "loaded", "loaded")
            assert "live-key-123" not in s.messages() + json.dumps(s.decisions()) + str(s.events())


def test_a_server_with_one_model_refuses_at_once(world, tmp_path):
    with LlamaServer(world, tmp_path, "-m", "a.gguf") as server, unharmed(server):
        with guarded(world, server, 4 * GIB) as s:
            s.guard("evict", "chat")
            s.until("stuck", name="chat")
            said(s, "serves a single model")
            assert len(server.get("/v1/models")["data"]) == 1 and server.complete("still here", 20)[1] == 20


def test_a_stopped_process_of_a_model_is_evicted(world, tmp_path):
    with router(world, tmp_path) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB, budget_s=30) as s:
            os.kill(server.processes()["a"], signal.SIGSTOP)
            s.guard("evict", "chat")
            evicted(s, server, "unloaded", "unloaded")  # the server kills the model's process after 10 s
            assert "stuck" not in s.course("chat")
            s.guard("resume", "chat")
            back(s, server, 8 * GIB, "loaded", "loaded")


def test_a_server_that_is_restarted_while_its_models_are_out_gets_them_back(world, tmp_path):
    with router(world, tmp_path) as server:
        server.load("a", "b")
        with guarded(world, server, 8 * GIB) as s:
            with Contender(world, 14 * GIB):
                evicted(s, server, "unloaded", "unloaded")
                server.restart()
                s.observes()
                assert s.now("chat") == "evicted"
                server.are("unloaded", "unloaded")
            back(s, server, 8 * GIB, "loaded", "loaded")


def test_models_that_are_out_come_back_after_gpuward_was_killed(world, tmp_path):
    with router(world, tmp_path) as server, unharmed(server):
        server.load("a", "b")
        with guarded(world, server, 8 * GIB) as s:
            with Contender(world, 14 * GIB):
                evicted(s, server, "unloaded", "unloaded")
                s.restart(signal.SIGKILL)
                s.until("evicted", name="chat")
                server.are("unloaded", "unloaded")
            back(s, server, 8 * GIB, "loaded", "loaded")


@pytest.mark.parametrize("mode", ["single model", "router"])
def test_measure_counts_the_tokens_of_the_answers(world, tmp_path, mode):
    args = ["-m", "a.gguf"] if mode == "single model" else ["--models-dir", "."]
    with LlamaServer(world, tmp_path, *args, "--metrics", models=("a", "b")) as server, unharmed(server):
        url = server.url + "/metrics"
        if server.router:
            server.load("a")
            url += "?model=a"
        body = json.dumps({"prompt": "x", "n_predict": 700, "ignore_eos": True, "model": "a"})
        out = tmp_path / "result.json"
        done = support.gpuward("measure", f"--simulate={world.scenario}", "-o", out, "--count-url", url, "--", "curl", "-s",
                               "-o", tmp_path / "answer", "-d", body, server.url + "/completion")
        assert done.returncode == 0, done.stderr
        run = json.loads(out.read_text())["runs"][0]
        assert run["tokens"] == json.loads((tmp_path / "answer").read_text())["tokens_predicted"] == 700
        assert run["energy_per_token_joules"]["best"] > 0
        if server.router:  # reading counters must not load a model
            done = support.gpuward("measure", f"--simulate={world.scenario}", "--count-url", server.url + "/metrics?model=b",
                                   "--", "true")
            assert done.returncode != 0 and "not loaded" in done.stderr, done.stderr
            assert server.status() == {"a": "loaded", "b": "unloaded"}
