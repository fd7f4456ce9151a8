"""A machine without a GPU is no error: an empty list, success, a stated reason (R1.2, R1.3)."""
import datetime
import re

import pytest

from support import COMMANDS, FIXTURES, OK, document, environment, gpuward

NINE = (
    "gpu_available",
    "gpu_name",
    "gpu_count",
    "gpu_total_vram_gb",
    "gpu_used_vram_gb",
    "gpu_free_vram_gb",
    "gpu_utilization_percent",
    "gpu_temperature_c",
    "gpu_vram_gb",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_succeeds_and_states_the_reason(command, bare):
    done = gpuward(command, *bare)
    assert done.returncode == OK
    assert "no gpu was found" in done.stdout.lower()
    assert done.stderr == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_json_states_the_reason_too(command, bare):
    doc = document(command, *bare)
    assert doc["schema_version"] == 1
    assert doc["source"]["cause"] == "no_gpu"
    assert doc["source"]["message"]
    assert doc["source"]["backend"] == "none"
    assert doc["source"]["simulated"] is False
    assert doc.get("devices", []) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_backend_none_finds_nothing_on_any_machine(command):
    doc = document(command, "--backend=none")
    assert doc["source"]["cause"] == "no_gpu"
    assert "was requested" in doc["source"]["message"]


@pytest.mark.parametrize("command", COMMANDS)
def test_time_is_rfc_3339_in_utc_whatever_the_time_zone(command, bare):
    before = datetime.datetime.now(datetime.timezone.utc)
    text = document(command, *bare, env=environment(TZ="Asia/Kathmandu"))["time_utc"]
    after = datetime.datetime.now(datetime.timezone.utc)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", text)
    said = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    slack = datetime.timedelta(milliseconds=2)
    assert before - slack <= said <= after + slack


def test_snapshot_has_the_nine_flat_figures_and_reasons(bare):
    doc = document("snapshot", *bare)
    assert doc["gpu_available"] is False
    assert doc["gpu_count"] == 0
    assert doc["cuda_available"] is False
    for key in NINE:
        assert key in doc
        if key not in ("gpu_available", "gpu_count"):
            assert doc[key] is None
            assert doc["absent"][key] == "not_present"
    assert doc["processes"] == []


def test_snapshot_shows_the_host_without_a_gpu():
    doc = document("snapshot", "--backend=none", "--settle", "300ms")
    assert 0 <= doc["host"]["cpu_utilization_ratio"] <= 1
    assert doc["host"]["cpu_online_cores"] >= 1
    assert 0 < doc["host"]["ram_used_bytes"] < doc["host"]["ram_total_bytes"]


def test_snapshot_as_json_does_not_wait_for_the_cpu_figure(bare):
    doc = document("snapshot", "--root", FIXTURES / "amd-discrete")
    assert doc["host"]["cpu_utilization_ratio"] is None
    assert doc["host"]["absent"]["cpu_utilization_ratio"] == "needs_two_readings"


def test_quiet_leaves_the_advice_out(bare):
    assert "Nothing to do" in gpuward("list", *bare).stdout
    quiet = gpuward("list", "--quiet", *bare)
    assert "Nothing to do" not in quiet.stdout
    assert "No GPU was found" in quiet.stdout


def test_doctor_has_nothing_to_fix(bare):
    assert "Nothing to fix." in gpuward("doctor", *bare).stdout
