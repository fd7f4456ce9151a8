"""Tests the tokens and the energy of each model on the inference servers (GET /api/v1/models, /metrics)."""
import contextlib
import re
import shutil
import signal

import pytest

import fake_workers
from guarded import Guarded, configure, table
from worker import GIB, Process, World

LOAD = '[[gpu.load]]\nkind = "constant"\nlevel = 0.5\n'
QUICK = "[models]\ninterval_s = 0.3\n"
FOREVER = "while :; do /bin/sleep 1; done"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, gpu=LOAD)


def program(tmp_path, name):
    """Makes a program with its own name, so that the guard finds its processes."""
    path = tmp_path / name
    if not path.exists():
        shutil.copy("/bin/dash", path)
    return path


def process(world, exe, *args, size=4 * GIB):
    """A process of a server: it holds memory on the card and works, because the card is busy."""
    p = Process(world, [str(exe), "-c", FOREVER, *args])
    world.hold(p.pid, size)
    return p


def server(name, kind, fake, exe, **more):
    return table(name, kind, url=fake.url, match_exe=exe, **more)


def models(s):
    """Rows by worker and model. Reading the processes makes the service read their utilisation."""
    s.get("/api/v1/processes")
    doc = s.get("/api/v1/models").json()
    return {(m["worker"], m["model"]): m for m in doc["models"]}, {w["worker"]: w for w in doc["workers"]}


def row(s, worker, model):
    return models(s)[0].get((worker, model))


def generated(s, worker, model):
    found = row(s, worker, model)
    return found and found["generated_tokens"]


def joules(rows, worker):
    return sum(m["energy_joules"] for (w, _), m in rows.items() if w == worker)


def asked(fake, path="/metrics"):
    return [p for p in fake.asked("GET") if p.split("?")[0] == path]


def series(s, name):
    """{labels: value} of a metric."""
    found = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", s.get("/metrics").text, re.M)
    return {labels: float(value) for labels, value in found}


def test_each_model_of_a_router_has_its_tokens_and_the_energy_of_its_process(world, tmp_path):
    exe = program(tmp_path, "llama-server")
    with contextlib.ExitStack() as stack:
        fake = stack.enter_context(fake_workers.LlamaCpp(models=["a", 'b "x" \\ é'], known=["c"], sleeping=["d"]))
        fake.tokens = {"a": [5, 100], 'b "x" \\ é': [7, 1000]}
        for model in ("a", 'b "x" \\ é', "d"):
            stack.enter_context(process(world, exe, "llama-server", "--alias", model))
        config = configure(server("chat", "llamacpp", fake, exe), mode="dry-run", more=QUICK)
        with Guarded(world, config) as s:
            s.wait(lambda: row(s, "chat", "a") and asked(fake))
            s.wait(lambda: generated(s, "chat", "a") is not None)
            assert generated(s, "chat", "a") == 0  # earlier tokens belong to no measured energy
            fake.tokens = {"a": [15, 150], 'b "x" \\ é': [7, 1600]}
            s.wait(lambda: generated(s, "chat", "a") == 50 and generated(s, "chat", 'b "x" \\ é') == 600)
            fake.tokens["a"] = [3, 20]  # the server restarted, so its counters are small
            s.wait(lambda: generated(s, "chat", "a") == 70)
            rows, workers = models(s)
            assert rows["chat", "a"]["prompt_tokens"] == 13 and rows["chat", "a"]["method"] == "own process"
            assert rows["chat", "d"]["generated_tokens"] is None and rows["chat", "d"]["loaded"]
            assert rows["chat", "a"]["energy_method"] in ("modelled", "equal-split")
            span = rows["chat", "a"]["since_start"]
            assert span["joules_per_token"] == pytest.approx(span["joules"] / 70)
            # the three processes had equal shares; all energy was charged to a model or waits for its tokens
            shares = [rows["chat", m]["energy_joules"] for m in ("a", 'b "x" \\ é', "d")]
            assert min(shares) > 0 and max(shares) == pytest.approx(min(shares), rel=0.05)
            counted = {f'worker="chat",model="a",direction="{d}"': n for d, n in (("prompt", 13), ("generated", 70))}
            assert counted.items() <= series(s, "gpuward_model_tokens_total").items()
            assert any('model="b \\"x\\" \\\\ é"' in k for k in series(s, "gpuward_model_energy_joules_total"))
            before = rows["chat", "a"]["energy_joules"]
            s.restart()
            s.wait(lambda: row(s, "chat", "a"))
            assert generated(s, "chat", "a") == 70 and row(s, "chat", "a")["energy_joules"] >= before
            s.wait(lambda: row(s, "chat", "a")["loaded"])
            fake.tokens["a"] = [3, 25]
            s.wait(lambda: generated(s, "chat", "a") == 75)
        assert not fake.woken and sorted(fake.loaded) == ["a", 'b "x" \\ é'] and not fake.asked("POST")
        assert all("autoload=false" in p and "model=d" not in p for p in asked(fake))


def test_two_servers_on_one_card_share_its_energy(world, tmp_path):
    """vLLM has counters, Ollama has none. Charged and waiting energy add up to the energy of the processes."""
    one, two = program(tmp_path, "vllm-engine"), program(tmp_path, "ollama-runner")
    with contextlib.ExitStack() as stack:
        vllm = stack.enter_context(fake_workers.VLLM())
        ollama = stack.enter_context(fake_workers.Ollama(models=["llama3:8b"]))
        config = configure(server("big", "vllm", vllm, one), server("small", "ollama", ollama, two), mode="observe", more=QUICK)
        s = stack.enter_context(Guarded(world, config))
        pids = [stack.enter_context(process(world, exe)).pid for exe in (one, two)]
        s.wait(lambda: row(s, "big", "org/served") and row(s, "small", "llama3:8b"))
        s.wait(lambda: generated(s, "big", "org/served") is not None)
        vllm.tokens["org/served"] = [(10, 100), (20, 200)]  # two engines
        s.wait(lambda: generated(s, "big", "org/served") == 300)
        s.wait(lambda: row(s, "small", "llama3:8b")["method"] == "only model")  # the first energy of this model is charged
        assert row(s, "small", "llama3:8b")["tokens_absent"] == "Ollama has no token counter"
        assert row(s, "small", "llama3:8b")["last_minute"]["joules_per_token_absent"] == "the tokens are unknown"
        ollama.load("qwen:1b")  # two models and no counter: it is unknown which model works
        s.wait(lambda: row(s, "small", ""))
        assert row(s, "small", "")["method"] == "no model"

        def closes():
            rows, workers = models(s)
            energy = {p["pid"]: p["energy_joules"] for p in s.get("/api/v1/processes").json()["processes"]}
            sums = [joules(rows, w) + workers[w]["waiting_joules"] for w in ("big", "small")]
            # the guard may find a worker one tick after the driver lists its process
            return all(0.8 * energy[pid] < have <= energy[pid] * 1.001 for pid, have in zip(pids, sums))
        s.wait(closes)
        assert s.get("/api/v1/models").json()["simulated"] is True


def test_a_server_without_counters_is_reported_once_and_asked_rarely(world, tmp_path):
    exe = program(tmp_path, "llama-server")
    with fake_workers.LlamaCpp(models=["a"], router=False) as fake, process(world, exe):
        fake.metrics = False
        with Guarded(world, configure(server("chat", "llamacpp", fake, exe), mode="observe", more=QUICK)) as s:
            s.wait(lambda: models(s)[1].get("chat", {}).get("tokens_absent"))
            why = models(s)[1]["chat"]["tokens_absent"]
            assert "answers 501" in why and "start llama-server with --metrics" in why
            s.wait(lambda: len(asked(fake, "/models")) > 4 and joules(models(s)[0], "chat") > 0)
            assert len(asked(fake)) == 1
            assert sum("tokens are not counted" in e for e in s.events()) == 1
            assert row(s, "chat", "a")["method"] == "only model"
            assert "--metrics" in s.guard("explain", "chat").stdout


def test_an_evicted_or_sleeping_server_is_not_asked(world, tmp_path):
    exe = program(tmp_path, "llama-server")
    with fake_workers.LlamaCpp(models=["a"]) as fake, process(world, exe, "x", "--alias", "a") as p:
        fake.tokens["a"] = [1, 1]
        with Guarded(world, configure(server("chat", "llamacpp", fake, exe), more=QUICK)) as s:
            s.wait(lambda: generated(s, "chat", "a") is not None)
            s.guard("evict", "chat")
            world.hold(p.pid, 300 << 20)  # only the CUDA context stays on the GPU
            s.until("evicted", name="chat")
            fake.calls.clear()
            before = joules(models(s)[0], "chat")
            s.wait(lambda: joules(models(s)[0], "chat") > before)  # the energy of the server is still counted
            assert not asked(fake) and "a" not in fake.loaded


@pytest.mark.parametrize("failure", ["hang", "endless", "garbage", "refused"])
def test_a_server_that_misbehaves_disturbs_nobody(world, tmp_path, failure):
    exe = program(tmp_path, "llama-server")
    with fake_workers.LlamaCpp(models=["a"], router=False) as fake, process(world, exe):
        bad = {"hang": fake_workers.hang, "endless": fake_workers.endless, "refused": fake_workers.drop,
               "garbage": fake_workers.status(200, b"llamacpp:tokens_predicted_total{ 12\n\0\xff")}
        fake.fail["/metrics"] = bad[failure]
        with Guarded(world, configure(server("chat", "llamacpp", fake, exe), mode="observe", more=QUICK)) as s:
            s.wait(lambda: models(s)[1].get("chat", {}).get("tokens_absent"))
            s.wait(lambda: joules(models(s)[0], "chat") > 0)
            assert generated(s, "chat", "a") is None
            assert s.get("/readyz").status_code == 200
            assert s.stop() == 0


def test_servers_are_not_asked_if_the_configuration_says_so(world, tmp_path):
    exe = program(tmp_path, "llama-server")
    with fake_workers.LlamaCpp(models=["a"], router=False) as fake, process(world, exe):
        config = configure(server("chat", "llamacpp", fake, exe), mode="observe", more="[models]\ninterval_s = 0\n")
        with Guarded(world, config) as s:
            s.wait(lambda: models(s)[1].get("chat", {}).get("waiting_joules"))
            s.observes()
            assert not fake.calls
            s.stop(signal.SIGTERM)


@pytest.mark.deep
def test_a_worker_that_is_renamed_again_and_again_takes_no_energy_from_another(world, tmp_path):
    """There are places for 32 workers; a new worker may take only the place of a removed one."""
    one, two = program(tmp_path, "vllm-engine"), program(tmp_path, "ollama-runner")
    with fake_workers.VLLM() as vllm, fake_workers.Ollama(models=["a"]) as ollama, process(world, one), process(world, two):
        def config(name):
            return configure(server("stays", "vllm", vllm, one), server(name, "ollama", ollama, two), mode="observe",
                             more="[models]\ninterval_s = 0\n")
        with Guarded(world, config("name0")) as s:
            for i in range(1, 35):
                s.reload(config(f"name{i}"))
                s.wait(lambda: joules(models(s)[0], f"name{i}") > 0 or models(s)[1].get(f"name{i}", {}).get("waiting_joules"))
            before = joules(models(s)[0], "stays")
            s.wait(lambda: joules(models(s)[0], "stays") > before and joules(models(s)[0], "name34") > 0)
            rows, workers = models(s)
            assert set(workers) == {"stays", "name34"}


def test_llama_swap_is_asked_for_its_list_and_the_server_behind_it_for_counters(world, tmp_path):
    exe = program(tmp_path, "llama-server")
    with fake_workers.LlamaCpp(models=["x"], router=False) as behind, fake_workers.LlamaSwap(models=["m"]) as fake:
        fake.proxy["m"] = behind.url
        with process(world, exe, "x", "--port", behind.url.rpartition(":")[2]):
            with Guarded(world, configure(server("swap", "llamaswap", fake, exe), mode="observe", more=QUICK)) as s:
                s.wait(lambda: generated(s, "swap", "m") is not None)
                behind.tokens["x"] = [4, 40]
                s.wait(lambda: generated(s, "swap", "m") == 40)
                s.wait(lambda: row(s, "swap", "m")["method"] == "own process")  # when its first energy is charged
        assert {p.split("?")[0] for p in fake.asked()} == {"/running"}
