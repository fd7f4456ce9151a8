"""Where the library cannot be loaded, nvidia-smi is asked (R1.2, R2.7)."""
import os
import pathlib

import pytest

from support import COMMANDS, FIXTURES, NO_GPU, PARTIAL, document, environment, gpuward

FAKE = FIXTURES / "nvidia-smi"
HAS_NVIDIA = pathlib.Path("/dev/nvidiactl").exists()
NOT_HERE = pytest.mark.skipif(HAS_NVIDIA, reason="this machine's NVML would be found first")


def with_fake(mood="ok", **more):
    return environment(PATH=f"{FAKE}:/usr/bin:/bin", FAKE_SMI=mood, **more)


@NOT_HERE
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_found_without_being_asked_for(command):
    doc = document(command, env=with_fake())
    assert doc["source"]["backend"] == "nvidia-smi"
    if "devices" in doc:
        assert [d["provenance"] for d in doc["devices"]] == ["text", "text"]
        assert [d["name"] for d in doc["devices"]] == ["NVIDIA H200", 'Quadro, the "second"']


@pytest.mark.parametrize("command", COMMANDS)
def test_it_can_be_asked_for(command):
    doc = document(command, "--backend=nvidia-smi", env=with_fake())
    assert doc["source"]["backend"] == "nvidia-smi"


def test_a_missing_value_is_null_with_a_reason():
    first, second = document("snapshot", "--backend=nvidia-smi", env=with_fake())["devices"]
    assert first["power_watts"] == 75.34
    assert first["memory_total_bytes"] == 143771 * 2**20
    assert first["utilization_gpu_ratio"] == 0.37
    assert second["absent"]["power_watts"] == "not_supported"
    assert second["absent"]["utilization_gpu_ratio"] == "no_permission"
    assert second["utilization_memory_ratio"] is None


def test_old_versions_that_know_fewer_columns_are_asked_for_less():
    first = document("snapshot", "--backend=nvidia-smi", env=with_fake("old"))["devices"][0]
    assert first["power_watts"] == 75.34


@pytest.mark.parametrize(
    "mood,cause,code",
    [
        ("no_driver", "no_driver", NO_GPU),
        ("mismatch", "version_mismatch", NO_GPU),
        ("none", "no_gpu", NO_GPU),
        ("silent", "driver_error", NO_GPU),
    ],
)
def test_its_complaints_become_causes(mood, cause, code):
    doc = document("list", "--backend=nvidia-smi", env=with_fake(mood), code=code)
    assert doc["source"]["cause"] == cause
    assert doc["devices"] == []


def test_a_lost_gpu_is_partial():
    doc = document("snapshot", "--backend=nvidia-smi", env=with_fake("lost"), code=PARTIAL)
    assert [d["state"] for d in doc["devices"]] == ["ok", "lost"]


def test_one_that_hangs_is_given_up():
    doc = document(
        "list", "--backend=nvidia-smi", "--timeout=200ms", env=with_fake("hang"), code=NO_GPU
    )
    assert doc["source"]["cause"] == "stalled"
    assert "nvidia-smi" in doc["source"]["message"]


def test_it_is_not_run_where_the_library_answers(tmp_path):
    log = tmp_path / "log"
    document("snapshot", "--simulate", "--backend=auto", env=with_fake(FAKE_SMI_LOG=log))
    assert not log.exists()


def test_one_run_answers_for_all_gpus(tmp_path):
    log = tmp_path / "log"
    doc = document("list", "--backend=nvidia-smi", env=with_fake(FAKE_SMI_LOG=log))
    assert [d["memory_total_bytes"] for d in doc["devices"]] == [143771 * 2**20] * 2
    assert len(log.read_text().splitlines()) == 1


@NOT_HERE
@pytest.mark.skipif(os.path.exists("/usr/bin/nvidia-smi"), reason="there is one here")
def test_a_missing_nvidia_smi_is_reported():
    doc = document("list", "--backend=nvidia-smi", code=NO_GPU)
    assert doc["source"]["cause"] == "no_nvidia_smi"


def test_it_does_not_stand_in_for_a_library_that_was_named(tmp_path):
    log = tmp_path / "log"
    doc = document(
        "list", "--nvml-library=/etc/passwd", env=with_fake(FAKE_SMI_LOG=log), code=NO_GPU
    )
    assert doc["source"]["cause"] == "bad_library"
    assert not log.exists()
