"""AMD and Intel GPUs out of trees of /proc and /sys (R1.2, R1.8)."""
import pytest

from support import COMMANDS, FIXTURES, NO_GPU, OK, document, environment, gpuward

MACHINES = [
    ("amd-discrete", "amd", "amdgpu", "ok"),
    ("intel-arc", "intel", "intel", "ok"),
    ("amd-asleep", "amd", "amdgpu", "asleep"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("tree,vendor,backend,state", MACHINES)
class TestAnotherVendor:
    def test_is_listed_with_its_vendor(self, tree, vendor, backend, state, command):
        doc = document(command, "--root", FIXTURES / tree)
        assert doc["source"]["backend"] == backend
        for d in doc.get("devices", []):
            assert (d["vendor"], d["backend"], d["state"]) == (vendor, backend, state)
            assert d["cuda_ordinal"] is None
        assert len(doc.get("devices", [0])) == 1

    def test_says_that_another_root_is_not_real(self, tree, vendor, backend, state, command):
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


def test_a_sleeping_gpu_is_left_asleep_and_every_figure_says_so():
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


def test_only_the_backend_that_is_asked_for_looks():
    doc = document("list", "--root", FIXTURES / "amd-discrete", "--backend=intel", code=NO_GPU)
    assert doc["devices"] == []
