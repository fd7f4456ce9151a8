"""Tests gpuward characterise: what it measures on a simulated GPU, what it stores, and what it refuses.

The measurement runs once for the whole file, because it takes half a minute of real time.
"""
import json

import pytest

from support import (FAILED, NO_GPU, OK, PARTIAL, USAGE, Terminal, check, document, environment, gpuward)

WORLD = """
[time]
begin = 5
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "constant"
level = 0.5
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("characterise")


@pytest.fixture(scope="module")
def world(place):
    path = place / "world.toml"
    path.write_text(WORLD)
    return f"--simulate={path}"


@pytest.fixture(scope="module")
def cache(place):
    return environment(XDG_CACHE_HOME=place / "cache")


def test_ctrl_c_clears_the_progress_line_and_says_so(world, tmp_path):
    t = Terminal(100, "characterise", world, XDG_CACHE_HOME=tmp_path)
    t.read(b"%)")
    t.write(b"\x03")
    out, code = t.end()
    assert code == 130
    assert out.endswith("\r\033[Kgpuward: interrupted; the values of the GPU that was being measured are not saved\n"), out
    assert not any(tmp_path.rglob("*.toml"))


@pytest.fixture(scope="module")
def learned(world, cache):
    return document("characterise", world, env=cache)


def test_values_that_cannot_be_saved_are_shown_and_it_fails(world, tmp_path):
    (tmp_path / "gpuward").touch()  # a file instead of the folder
    done = gpuward("characterise", world, env=environment(XDG_CACHE_HOME=tmp_path))
    assert done.returncode == FAILED
    assert "ring, " not in done.stderr and "entries" in done.stdout
    assert "GPU 0: its values could not be saved: " in done.stderr


def only_file(place):
    files = [p for p in (place / "cache").rglob("*") if p.is_file()]
    assert len(files) == 1, files  # no temporary file is left
    return files[0]


def test_without_learning_typical_values_are_used_and_marked(world, tmp_path):
    doc = document("characterise", "--show", world, env=environment(XDG_CACHE_HOME=tmp_path))
    d = doc["devices"][0]
    assert d["provenance"] == "simulated"
    assert d["support"]["energy_joules"] == "have"
    assert d["support"]["power_instant_watts"] == "have"
    assert d["sensor"]["origin"] == "assumed"
    assert d["sensor"]["learned_utc"] is None
    assert d["path"] is None and d["message"] is None
    assert d["sensor"]["ring"]["window_seconds"] == 0.0135
    assert d["sensor"]["ring"]["call_p50_seconds"] is None
    assert d["sensor"]["instant"]["message"].startswith("assumed")
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_each_period_is_from_a_hundred_changes_or_has_a_reason(learned):
    s = learned["devices"][0]["sensor"]
    assert s["origin"] == "passive"
    for source in ("ring", "instant", "average"):
        assert s[source]["supported"]
        assert (s[source]["changes"] >= 100) == (s[source]["message"] is None)
        assert s[source]["call_p50_seconds"] <= s[source]["call_p99_seconds"]
    assert s["ring"]["period_seconds"] == pytest.approx(0.02, rel=0.02)
    assert s["ring"]["entries"] == 119
    assert s["ring"]["span_seconds"] == pytest.approx(2.36, rel=0.01)
    assert s["ring"]["wall_clock_stamps"]
    assert s["counter"]["tick_seconds"] == pytest.approx(0.1, rel=0.05)
    assert s["counter"]["call_p50_seconds"] is not None


def test_the_counter_is_compared_with_the_ring_at_every_rate(learned):
    rates = learned["devices"][0]["sensor"]["counter"]["rates"]
    assert len(rates) >= 4
    spacing = [r["every_seconds"] for r in rates[:4]]
    assert spacing == sorted(spacing, reverse=True)
    for r in rates:
        assert r["difference_ratio"] == pytest.approx(
            r["counter_watts"] / r["reference_watts"] - 1, abs=1e-9)


def test_what_was_learned_is_kept_and_shown_again(learned, place, world, cache):
    path = only_file(place)
    assert learned["devices"][0]["path"] == str(path)
    again = document("characterise", "--show", world, env=cache)
    assert again["devices"][0]["sensor"] == learned["devices"][0]["sensor"]
    text = gpuward("characterise", "--show", world, env=cache)
    assert text.returncode == OK
    for word in ("ring", "instant", "average", "counter", "changes", "ticks", str(path)):
        assert word in text.stdout


def test_a_file_that_was_changed_is_ignored_with_a_note(learned, place, world, cache):
    path = only_file(place)
    good = path.read_text()
    path.write_text(good.replace("gain = 1", "gain = 2"))
    d = document("characterise", "--show", world, env=cache)["devices"][0]
    path.write_text(good)
    assert d["sensor"]["origin"] == "assumed"
    assert d["sensor"]["gain"] == 1
    assert str(path) in d["message"] and "hash" in d["message"]


def test_another_driver_is_learned_again(learned, place, cache):
    path = place / "newer.toml"
    path.write_text('[driver]\nversion = "590.1"\n' + WORLD)
    doc = document("characterise", "--show", f"--simulate={path}", env=cache)
    assert doc["devices"][0]["sensor"]["origin"] == "assumed"


def test_no_load_is_put_on_a_simulated_gpu(world, cache):
    done = gpuward("characterise", "--active", world, env=cache)
    assert done.returncode == FAILED
    assert "simulated" in done.stderr
    doc = json.loads(gpuward("characterise", "--active", "--json", world, env=cache).stdout)
    check("characterise", doc)
    assert doc["devices"][0]["sensor"] is None
    assert "simulated" in doc["devices"][0]["message"]


def test_showing_and_loading_exclude_each_other(world):
    done = gpuward("characterise", "--show", "--active", world)
    assert done.returncode == USAGE


def test_without_a_gpu_there_is_nothing_to_learn(bare):
    done = gpuward("characterise", "--json", *bare)
    assert done.returncode == NO_GPU
    doc = json.loads(done.stdout)
    check("characterise", doc)
    assert doc["devices"] == []


def test_unsupported_sensor_values_have_a_reason(scenario):
    world = scenario('[[gpu]]\nprofile = "p100"\n')
    d = document("characterise", "--show", world)["devices"][0]
    assert d["support"]["energy_joules"] == "not_supported"
    assert d["sensor"]["counter"]["supported"] is False
    assert set(d["sensor"]["counter"]["absent"].values()) == {"not_supported"}


def test_other_gpus_are_shown_next_to_a_lost_one(scenario):
    world = scenario('[time]\nbegin = 2\n[[gpu]]\ncount = 2\n'
                     '[[timeline]]\nat = 1\ndo = "lose"\ngpu = 1\n')
    done = gpuward("characterise", "--show", "--json", world)
    assert done.returncode == PARTIAL
    first, second = json.loads(done.stdout)["devices"]
    assert first["sensor"] is not None
    assert second["sensor"] is None and second["message"]


def test_show_succeeds_without_a_cache_folder(world):
    done = gpuward("characterise", "--show", world,
                   env=environment(HOME=None, XDG_CACHE_HOME=None))
    assert done.returncode == OK
