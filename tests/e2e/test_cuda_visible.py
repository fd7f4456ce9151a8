"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA understands them (R1.7)."""
import pytest

from support import NO_GPU, document, environment, gpuward


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
