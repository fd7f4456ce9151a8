"""Tests machines without a GPU, with only nvidia-smi, with AMD or Intel GPUs, and which GPUs CUDA would see."""
import datetime
import json
import os
import pathlib
import re
import shutil
import threading
import time

import pytest

from support import COMMANDS, FIXTURES, NO_GPU, OK, PARTIAL, document, environment, gpuward

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


FAKE = FIXTURES / "nvidia-smi"
HAS_NVIDIA = pathlib.Path("/dev/nvidiactl").exists()
NOT_HERE = pytest.mark.skipif(HAS_NVIDIA, reason="this machine's NVML would be found first")


def with_fake(mood="ok", **more):
    return environment(PATH=f"{FAKE}:/usr/bin:/bin", FAKE_SMI=mood, **more)


@NOT_HERE
@pytest.mark.parametrize("command", COMMANDS)
def test_nvidia_smi_is_used_without_being_selected(command):
    doc = document(command, env=with_fake())
    assert doc["source"]["backend"] == "nvidia-smi"
    if "devices" in doc:
        assert [d["provenance"] for d in doc["devices"]] == ["text", "text"]
        assert [d["name"] for d in doc["devices"]] == ["NVIDIA H200", 'Quadro, the "second"']


@pytest.mark.parametrize("command", COMMANDS)
def test_the_nvidia_smi_backend_can_be_selected(command):
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
def test_errors_of_nvidia_smi_become_causes(mood, cause, code):
    doc = document("list", "--backend=nvidia-smi", env=with_fake(mood), code=code)
    assert doc["source"]["cause"] == cause
    assert doc["devices"] == []


def test_a_lost_gpu_is_partial():
    doc = document("snapshot", "--backend=nvidia-smi", env=with_fake("lost"), code=PARTIAL)
    assert [d["state"] for d in doc["devices"]] == ["ok", "lost"]


def test_an_nvidia_smi_that_hangs_is_given_up():
    doc = document(
        "list", "--backend=nvidia-smi", "--timeout=200ms", env=with_fake("hang"), code=NO_GPU
    )
    assert doc["source"]["cause"] == "stalled"
    assert "nvidia-smi" in doc["source"]["message"]


def test_nvidia_smi_is_not_run_if_nvml_works(tmp_path):
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


def test_nvidia_smi_does_not_replace_a_library_given_by_name(tmp_path):
    log = tmp_path / "log"
    doc = document(
        "list", "--nvml-library=/etc/passwd", env=with_fake(FAKE_SMI_LOG=log), code=NO_GPU
    )
    assert doc["source"]["cause"] == "bad_library"
    assert not log.exists()


MACHINES = [
    ("amd-discrete", "amd", "amdgpu", "ok"),
    ("intel-arc", "intel", "intel", "ok"),
    ("amd-asleep", "amd", "amdgpu", "asleep"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("tree,vendor,backend,state", MACHINES)
class TestAnotherVendor:
    def test_a_gpu_is_listed_with_its_vendor(self, tree, vendor, backend, state, command):
        doc = document(command, "--root", FIXTURES / tree)
        assert doc["source"]["backend"] == backend
        for d in doc.get("devices", []):
            assert (d["vendor"], d["backend"], d["state"]) == (vendor, backend, state)
            assert d["cuda_ordinal"] is None
        assert len(doc.get("devices", [0])) == 1

    def test_output_for_another_root_is_marked_simulated(self, tree, vendor, backend, state, command):
        doc = document(command, "--root", FIXTURES / tree)
        assert doc["source"]["simulated"] is True
        assert all(d["provenance"] == "simulated" for d in doc.get("devices", []))
        assert "SIMULATED" in gpuward(command, "--root", FIXTURES / tree).stdout


def test_an_amd_gpu_has_its_figures():
    doc = document("snapshot", "--root", FIXTURES / "amd-discrete")
    d = doc["devices"][0]
    assert d["power_watts"] > 0
    assert d["memory_total_bytes"] == d["memory_used_bytes"] + d["memory_free_bytes"]
    assert d["temperature_gpu_celsius"] > 0
    assert doc["gpu_available"] is True
    assert doc["cuda_available"] is False
    assert [p["pid"] for p in doc["processes"]] == [4242]


def test_a_list_shows_the_memory_of_an_amd_gpu():
    assert document("list", "--root", FIXTURES / "amd-discrete")["devices"][0]["memory_total_bytes"]
    assert "MEMORY" in gpuward("list", "--root", FIXTURES / "amd-discrete").stdout


def test_an_intel_gpu_has_its_figures():
    d = document("snapshot", "--root", FIXTURES / "intel-arc")["devices"][0]
    assert d["name"] == "Intel Arc A770"
    assert d["temperature_gpu_celsius"] > 0


def test_energy_of_an_intel_gpu_is_measured_with_its_counter(tmp_path):
    root = tmp_path / "root"
    shutil.copytree(FIXTURES / "intel-arc", root, symlinks=True)
    counter = root / "sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon4/energy1_input"
    counter.write_text(f"{10**12}\n")
    done = threading.Event()
    begun = time.monotonic()

    def count():  # 100 W
        with open(counter, "r+") as f:
            while not done.wait(0.002):
                f.seek(0)
                f.write(f"{10**12 + int(1e8 * (time.monotonic() - begun))}\n")
                f.flush()

    thread = threading.Thread(target=count)
    thread.start()
    try:
        result = json.loads(gpuward("measure", "--json", "--root", root, "--", "sleep", "2").stdout)
    finally:
        done.set()
        thread.join()
    run = result["runs"][0]
    energy = run["devices"][0]
    assert energy["rung"] == "sysfs"
    assert run["power_mean_watts"] == pytest.approx(100, rel=0.1)
    assert energy["counter_joules"] == pytest.approx(energy["samples_joules"], rel=0.1)


def test_a_sleeping_gpu_is_not_woken_and_every_value_is_absent_as_asleep():
    doc = document("snapshot", "--root", FIXTURES / "amd-asleep")
    d = doc["devices"][0]
    assert d["absent"]["power_watts"] == "asleep"
    assert doc["gpu_available"] is False
    assert doc["gpu_count"] == 1
    assert set(doc["absent"].values()) == {"asleep"}
    text = gpuward("snapshot", "--root", FIXTURES / "amd-asleep", env=environment(COLUMNS=200))
    assert text.returncode == OK
    assert "asleep" in text.stdout


def test_doctor_notes_the_sleeping_gpu():
    findings = document("doctor", "--root", FIXTURES / "amd-asleep")["findings"]
    assert ("asleep", "note") in [(f["cause"], f["severity"]) for f in findings]


def test_only_the_requested_backend_searches_for_gpus():
    doc = document("list", "--root", FIXTURES / "amd-discrete", "--backend=intel", code=NO_GPU)
    assert doc["devices"] == []


def ordinals(scenario, **env):
    doc = document("list", f"--simulate={scenario}", env=environment(**env))
    return [d["cuda_ordinal"] for d in doc["devices"]]


def indices(*args, **env):
    doc = document("list", *args, env=environment(**env))
    return [d["index"] for d in doc["devices"]]


def test_without_a_list_every_gpu_of_one_kind_has_its_index():
    assert ordinals("eight-gpus") == list(range(8))


def test_a_list_of_indices_numbers_in_its_own_order():
    assert ordinals("eight-gpus", CUDA_VISIBLE_DEVICES="3,1") == [None, 1, None, 0] + [None] * 4


def test_a_list_ends_at_the_first_entry_that_names_no_gpu():
    assert ordinals("eight-gpus", CUDA_VISIBLE_DEVICES="2,9,4") == [None, None, 0] + [None] * 5


@pytest.mark.parametrize("nothing", ["", "-1", "NoDevFiles", "1,1"])
def test_a_list_that_hides_all_hides_all(nothing):
    doc = document("list", "--simulate", env=environment(CUDA_VISIBLE_DEVICES=nothing))
    assert [d["absent"]["cuda_ordinal"] for d in doc["devices"]] == ["not_visible"] * 2
    done = gpuward(
        "list", "--simulate", "--gpu=visible", env=environment(CUDA_VISIBLE_DEVICES=nothing)
    )
    assert done.returncode == NO_GPU
    assert "no such GPU" in done.stderr


def test_uuids_and_their_beginnings_are_understood():
    uuids = [d["uuid"] for d in document("list", "--simulate")["devices"]]
    assert ordinals("demo", CUDA_VISIBLE_DEVICES=uuids[1]) == [None, 0]
    assert ordinals("demo", CUDA_VISIBLE_DEVICES=f"{uuids[1][:12]}, {uuids[0]}") == [1, 0]


def test_a_mig_instance_makes_its_board_visible():
    device = document("list", "--simulate=mig")["devices"][0]
    uuid = device["mig_devices"][1]["uuid"]
    assert ordinals("mig", CUDA_VISIBLE_DEVICES=uuid) == [0]
    assert indices("--simulate=mig", "--gpu", uuid) == [0]


def test_gpu_visible_selects_what_cuda_would_see():
    assert indices("--simulate=eight-gpus", "--gpu=visible", CUDA_VISIBLE_DEVICES="5,2") == [2, 5]


def test_cuda_n_selects_by_the_number_that_cuda_gives():
    env = {"CUDA_VISIBLE_DEVICES": "5,2"}
    assert indices("--simulate=eight-gpus", "--gpu=cuda:0", **env) == [5]
    assert indices("--simulate=eight-gpus", "--gpu=cuda:1", **env) == [2]
    done = gpuward("list", "--simulate=eight-gpus", "--gpu=cuda:2", env=environment(**env))
    assert done.returncode == NO_GPU


def test_among_unlike_gpus_the_order_of_cuda_is_not_guessed():
    doc = document("list", "--simulate=mixed")
    assert len(doc["devices"]) > 1
    assert {d["absent"]["cuda_ordinal"] for d in doc["devices"]} == {"order_unknown"}


def test_in_pci_order_unlike_gpus_have_numbers():
    got = ordinals("mixed", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert got == list(range(len(got)))
    assert ordinals("mixed", CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="1")[1] == 0
