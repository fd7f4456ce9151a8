"""Tests the tokens and the energy of each model with the real llama-server on a simulated GPU."""
import pytest

import llama_server
from guarded import Guarded, configure, table
from llama_server import LlamaServer
from worker import World

pytestmark = pytest.mark.skipif(bool(llama_server.missing()), reason=str(llama_server.missing()))

LOAD = '[[gpu.load]]\nkind = "constant"\nlevel = 0.5\n'


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, gpu=LOAD)


def guarded(world, server):
    worker = table("chat", "llamacpp", url=server.url, match_port=server.port)
    return Guarded(world, configure(worker, mode="observe", more="[models]\ninterval_s = 0.3\n"))


def models(s):
    s.get("/api/v1/processes")  # after this request, the service reads the utilisation of the processes
    return {m["model"]: m for m in s.get("/api/v1/models").json()["models"]}


def tokens(s, model):
    m = models(s).get(model)
    return m and (m["prompt_tokens"], m["generated_tokens"])


def add(*pairs):
    return tuple(map(sum, zip(*pairs)))


def test_a_single_server_counts_the_tokens_of_its_answers(world, tmp_path):
    with LlamaServer(world, tmp_path, "-m", "a.gguf", "--metrics") as server:
        first = server.complete("before gpuward starts", 10)
        assert first[1] == 10
        with guarded(world, server) as s:
            name = s.wait(lambda: next(iter(models(s)), None))
            s.wait(lambda: tokens(s, name) == (0, 0))
            sums = add(*(server.complete(f"request number {i}", 50 + i) for i in range(3)))
            s.wait(lambda: tokens(s, name) == sums)
            m = models(s)[name]
            assert m["method"] == "only model" and m["energy_joules"] > 0
            assert m["since_start"]["joules_per_token"] == pytest.approx(m["since_start"]["joules"] / sums[1])
            s.restart()
            s.wait(lambda: tokens(s, name) == sums and models(s)[name]["loaded"])
            s.wait(lambda: models(s)[name]["since_start"]["joules"] > 0)
            more = server.complete("after the restart", 30)
            s.wait(lambda: tokens(s, name) == add(sums, more))


def test_a_router_with_two_models_is_counted_for_each_and_loads_nothing(world, tmp_path):
    with LlamaServer(world, tmp_path, "--models-dir", ".", "--metrics", models=("a", "b", "c")) as server:
        server.load("a")
        with guarded(world, server) as s:
            s.wait(lambda: tokens(s, "a") == (0, 0))
            server.load("b")
            s.wait(lambda: tokens(s, "b") == (0, 0))
            one = server.complete("for the first model", 40, model="a")
            two = server.complete("for the second", 70, model="b")
            s.wait(lambda: tokens(s, "a") == one and tokens(s, "b") == two)
            s.wait(lambda: all(models(s)[m]["method"] == "own process" for m in ("a", "b")))
            server.post("/models/unload", model="a")  # the server loses its counters, but the service keeps its totals
            s.wait(lambda: not models(s)["a"]["loaded"])
            server.load("a")
            again = server.complete("again", 60, model="a")
            s.wait(lambda: tokens(s, "a") == add(one, again))
            assert server.status() == {"a": "loaded", "b": "loaded", "c": "unloaded"}


def test_a_sleeping_model_stays_asleep(world, tmp_path):
    with LlamaServer(world, tmp_path, "-m", "a.gguf", "--metrics", "--sleep-idle-seconds", "2") as server:
        with guarded(world, server) as s:
            name = s.wait(lambda: next(iter(models(s)), None))
            s.wait(lambda: tokens(s, name) is not None)
            server.complete("work", 20)
            # another process uses the card, so the service asks the server; this must not keep the server awake
            s.wait(lambda: server.get("/props")["is_sleeping"])
            before = models(s)[name]["energy_joules"]
            s.wait(lambda: models(s)[name]["energy_joules"] > before)
            assert server.get("/props")["is_sleeping"]


def test_a_server_without_metrics_is_named_with_the_remedy(world, tmp_path):
    with LlamaServer(world, tmp_path, "-m", "a.gguf") as server, guarded(world, server) as s:
        s.wait(lambda: any("start llama-server with --metrics" in e for e in s.events()))
        s.wait(lambda: any(m["energy_joules"] > 0 for m in models(s).values()))
        assert [m["generated_tokens"] for m in models(s).values()] == [None]
