"""Tests that every command writes a valid document in every built-in scenario."""
import functools
import json

import pytest

import support

from support import (
    COMMANDS,
    NO_GPU,
    OK,
    PARTIAL,
    check,
    document,
    environment,
    gpuward,
    scenarios,
)

# Scenarios without a usable driver. In all others every GPU answers in the first second.
CAUSES = {
    "no-driver": ("no_driver", NO_GPU),
    "version-mismatch": ("version_mismatch", NO_GPU),
    "stub": ("stub_library", NO_GPU),
    "no-gpu": ("no_gpu", OK),
}


@functools.lru_cache(maxsize=None)
def run(command, name):
    return gpuward(command, f"--simulate={name}", "--json")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", scenarios())
class TestEveryScenario:
    def test_is_valid_and_marked_simulated(self, name, command):
        doc = json.loads(run(command, name).stdout)
        check(command, doc)
        assert doc["source"]["simulated"] is True
        for d in doc.get("devices", []):
            assert d["provenance"] == "simulated"

    def test_has_the_documented_exit_code_and_cause(self, name, command):
        cause, code = CAUSES.get(name, (None, OK))
        done = run(command, name)
        assert done.returncode == code
        doc = json.loads(done.stdout)
        assert doc["source"]["cause"] == cause
        if "devices" in doc:
            assert bool(doc["devices"]) == (name not in CAUSES)

    def test_the_first_line_of_text_output_is_marked_simulated(self, name, command):
        if name == "slow-open" and command != "list":
            pytest.skip("each opening takes a second and a half")
        done = gpuward(command, f"--simulate={name}", "--color=never")
        assert "SIMULATED" in done.stdout.splitlines()[0]
        assert done.returncode == CAUSES.get(name, (None, OK))[1]
        if command == "list" and done.returncode == NO_GPU:  # the reason is on standard error, because scripts read the table
            assert len(done.stdout.splitlines()) == 1 and done.stderr.strip()
        elif name != "stub":  # a real nvidia-smi prints an error, too
            assert done.stderr == ""


def test_there_are_scenarios_to_test():
    assert len(scenarios()) >= 33
    assert set(CAUSES) < set(scenarios())


def test_simulate_alone_is_the_demo():
    doc = document("list", "--simulate")
    assert [d["name"] for d in doc["devices"]] == ["NVIDIA H200"] * 2


def test_sixty_four_gpus_are_all_there():
    doc = document("list", "--simulate=sixty-four")
    assert doc["count"] == 64
    assert len({d["uuid"] for d in doc["devices"]}) == 64


def test_mig_instances_have_memory_of_their_own():
    doc = document("list", "--simulate=mig")
    instances = doc["devices"][0]["mig_devices"]
    assert [m["index"] for m in instances] == [0, 1, 4]
    for m in instances:
        assert m["memory_used_bytes"] + m["memory_free_bytes"] == m["memory_total_bytes"]
        assert m["energy_scope"] == "whole board"


def test_sentinels_are_null_with_a_reason():
    device = document("snapshot", "--simulate=sentinels")["devices"][0]
    for key in ("power_watts", "energy_joules", "utilization_gpu_ratio"):
        assert device[key] is None
        assert device["absent"][key] == "invalid_value"
    assert device["temperature_gpu_celsius"] is not None


def test_names_with_special_characters_are_unchanged_in_json():
    names = [d["name"] for d in document("list", "--simulate=odd-names")["devices"]]
    assert names[0] == 'NVIDIA "Test" <b>GPU</b> & Söhne, 型番 7'


def test_one_lost_gpu_is_partial_and_the_other_answers(scenario):
    lost = scenario(
        '[[gpu]]\nprofile = "h100"\ncount = 2\n'
        '[[timeline]]\nat = 0\ndo = "lose"\ngpu = 1\n'
    )
    doc = document("snapshot", lost, code=PARTIAL)
    assert [d["state"] for d in doc["devices"]] == ["ok", "lost"]
    assert doc["devices"][1]["absent"]["power_watts"] == "lost"
    assert doc["gpu_available"] is True
    text = gpuward("snapshot", lost)
    assert text.returncode == PARTIAL
    assert "GPU 1 is lost" in text.stdout
    only_good = gpuward("snapshot", lost, "--gpu=0")
    assert only_good.returncode == OK
    assert "lost" not in only_good.stdout


@pytest.mark.parametrize("backend", ["auto", "all", "nvml"])
def test_a_driver_without_a_gpu_is_named_with_every_backend(backend):
    """Without --simulate, so that every backend of auto and all is tried."""
    env = environment(LD_LIBRARY_PATH=support.SIMULATOR.parent, GPUWARD_SIM="no-gpu")
    doc = document("list", f"--backend={backend}", env=env, code=NO_GPU if backend == "nvml" else OK)
    assert doc["source"]["cause"] == "no_gpu"
    assert doc["source"]["message"] == "no GPU was found: the driver is loaded but reports no GPU"


def test_no_gpu_that_answers_differs_from_no_gpu(scenario):
    lost = scenario(
        '[[gpu]]\nprofile = "h100"\n[[timeline]]\nat = 0\ndo = "lose"\ngpu = 0\n'
    )
    doc = document("snapshot", lost, code=PARTIAL)
    assert doc["gpu_available"] is False
    assert doc["gpu_count"] == 1
    assert set(doc["absent"].values()) == {"lost"}


PATIENCE = "--timeout=400ms"  # long enough for the calls that do not hang

HANGS = [
    ("nvmlInit_v2", COMMANDS, NO_GPU),
    ("nvmlDeviceGetName", COMMANDS, PARTIAL),
    ("nvmlDeviceGetUtilizationRates", ("snapshot", "env", "doctor"), PARTIAL),
    ("nvmlDeviceGetComputeRunningProcesses_v3", ("snapshot",), PARTIAL),
]


@pytest.mark.parametrize(
    "call,command,code", [(call, c, code) for call, commands, code in HANGS for c in commands]
)
def test_a_hung_call_ends_and_is_named(scenario, call, command, code):
    hang = scenario(
        f'[[gpu]]\nprofile = "h100"\n[[fault]]\ncall = "{call}"\nhang = true\n'
    )
    doc = document(command, hang, PATIENCE, code=code)
    assert doc["source"]["simulated"] is True
    messages = [doc["source"]["message"]]
    messages += [d["message"] for d in doc.get("devices", [])]
    messages += [f["message"] for f in doc.get("findings", [])]
    assert any(call in m for m in messages if m)
    text = gpuward(command, hang, PATIENCE, env=environment(COLUMNS=200))
    assert text.returncode == code
    assert call in (text.stderr if command == "list" and code == NO_GPU else text.stdout)
    assert "SIMULATED" in text.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["hung-call", "slow-driver"])
def test_slow_scenarios_end_within_a_short_timeout(name, command):
    done = gpuward(command, f"--simulate={name}", "--timeout=300ms", "--json")
    check(command, json.loads(done.stdout))
    # A busy machine may be slower than the simulated driver; then a message says so.
    assert done.returncode == OK or "a driver call has not returned" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_opening_that_takes_too_long_names_the_call(command):
    doc = document(command, "--simulate=slow-open", "--timeout=500ms", code=NO_GPU)
    assert doc["source"]["cause"] == "stalled"
    assert "nvmlInit_v2" in doc["source"]["message"]


def test_a_stuck_gpu_does_not_affect_the_others(scenario):
    hang = scenario(
        '[[gpu]]\nprofile = "h100"\ncount = 3\n'
        '[[fault]]\ncall = "nvmlDeviceGetUtilizationRates"\ngpu = 1\nhang = true\n'
    )
    doc = document("snapshot", hang, "--timeout=500ms", code=PARTIAL)
    assert [d["state"] for d in doc["devices"]] == ["ok", "stalled", "ok"]
    assert doc["devices"][2]["power_watts"] > 0
