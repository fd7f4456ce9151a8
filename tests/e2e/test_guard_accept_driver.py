"""A7 of the acceptance list (docs/GUARD.md) where the whole driver is away for a while."""
import pytest

import guarded
from guarded import Guarded
from test_guard_accept import text
from worker import GIB, Contender, Fault, World


def test_a07_a_driver_that_is_loaded_anew_moves_nobody(tmp_path):
    world = World(tmp_path, more='[[timeline]]\nat = 2\ndo = "reload"\nlength = 2\nversion = "580.200.01"\n')
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        with Guarded(world, text(w.table("ollama", "ollama"))) as s:
            s.until("active")
            s.wait(lambda: "580.200.01" in s.get("/api/v1/events").text)  # it was away and is back
            s.wait(lambda: s.now() == "active" and not s.worker()["blind"])
            assert [c for c in w.asked("POST")] == [] and w.resident() == 10 * GIB
            with Contender(world, 8 * GIB):
                s.until("evicted")


@pytest.mark.parametrize("code, word", [(18, "different versions"), (999, "unknown error")])
def test_a07_a_driver_that_fails_altogether_blinds_and_moves_nobody(tmp_path, code, word):
    """18: another version was installed; 999: a container whose device nodes are gone."""
    fault = Fault(tmp_path, f"code = {code}", "*", "nvmlInit_v2")
    world = World(tmp_path, more=fault.text)
    with guarded.held(world, "Ollama", 10 * GIB, models=["m"]) as w:
        with Guarded(world, text(w.table("ollama", "ollama"))) as s:
            s.until("active")
            with fault:
                s.wait(lambda: s.worker()["blind"])
                s.wait(lambda: word in s.messages())
            s.wait(lambda: not s.worker()["blind"] and s.now() == "active")
            assert s.worker()["mask"] == [] and w.asked("POST") == [] and "evicted" not in s.course()
