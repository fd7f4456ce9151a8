"""Tests SIGHUP, which gives a running guard another configuration: a worker in both configurations keeps its state."""
import shutil

import pytest

import support

from guarded import BY_HEAT, IGNORE_SLEEP, Guarded, configure, quick, rule, table
from worker import GIB, Contender, Fault, Worker, World

CHANGED = "uses the new configuration"


def names(s):
    return [w["name"] for w in s.get("/api/v1/guard").json()["workers"]]


def test_a_worker_that_is_in_both_goes_on_as_it_was(world, worker):
    text = configure(("ollama", worker), defaults=quick(quiet_s=600))
    with Guarded(world, text) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("quiet")
        before = s.worker()
        acted = len(worker.acted())
        s.reload(configure(("ollama", worker)))
        s.reports(CHANGED + ": 1 worker, 0 added, 0 removed")
        s.back(worker)  # after 0.3 s of quiet time, not 600 s
        assert s.worker()["evictions_total"] == before["evictions_total"] == 1
        assert len(worker.acted()) == acted + 1
        assert "reconcile" not in s.course()[s.course().index("evicted"):]
        # the need is known from the first scene after the return
        s.wait(lambda: s.worker()["need_bytes"] == before["need_bytes"])


def test_a_hold_is_kept_over_a_reload(s, world, worker):
    s.guard("hold", "evicted", "ollama", "--for", "1h")
    s.until("evicted")
    s.reload(configure(("ollama", worker), more=IGNORE_SLEEP))
    s.reports(CHANGED)
    s.observes()
    assert s.now() == "evicted" and s.worker()["hold"] == "evicted"
    with Contender(world, 8 * GIB):  # a rule of the new configuration ignores it
        s.guard("release", "ollama")
        s.until("active")
        s.observes()
        assert s.now() == "active"


def test_a_reload_may_add_the_first_worker_and_remove_the_last(world, worker):
    with Guarded(world, configure()) as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        assert names(s) == []
        with Contender(world, 8 * GIB):
            s.reload(configure(("ollama", worker)))
            s.until("evicted")
        s.until("active")
        s.reload(configure())
        s.wait(lambda: names(s) == [])
        assert s.get("/api/v1/guard/workers/ollama").status_code == 404
        with Contender(world, 8 * GIB):
            s.ticks()
            assert worker.resident() == 10 * GIB
        metrics = s.get("/metrics").text
        assert "gpu_evictions_total" in metrics and 'worker="ollama"' not in metrics
        assert s.get("/api/v1/guard").json()["counts"]["evictions_total"] == 1


def test_an_evicted_worker_that_is_removed_is_reported_and_returns_when_it_is_configured_again(s, worker):
    s.guard("hold", "evicted", "ollama", "--for", "1h")
    s.until("evicted")
    s.reload(configure())
    s.reports("worker ollama was removed from the configuration while it is evicted (level 2)")
    s.wait(lambda: names(s) == [])
    assert worker.resident() == 0
    s.restart()  # the worker's record stays after the service ends
    s.reload(configure(("ollama", worker)))
    s.until("evicted")
    assert s.worker()["hold"] == "evicted" and 0 < s.worker()["hold_until_seconds"] <= 3600
    s.guard("release", "ollama")
    s.back(worker)


def test_a_bad_file_changes_nothing(s, world, worker):
    s.reload(configure(table("ollama", "olama", url=worker.url)))
    s.logs("the old one stays in use")
    assert "olama" in s.messages()
    with Contender(world, 8 * GIB):
        s.until("evicted")


def test_enforce_after_dry_run_does_what_was_only_decided(world, worker):
    dry = configure(("ollama", worker), mode="dry-run")
    with Guarded(world, dry) as s, Contender(world, 8 * GIB):
        s.until("evicted", "quiet")
        assert worker.resident() == 10 * GIB
        s.reload(configure(("ollama", worker)))
        s.wait(lambda: s.now() == "evicted" and worker.resident() == 0)
        s.reload(dry)  # the worker is evicted, and a dry run does not bring it back
        s.wait(lambda: "this mode resumes no worker" in s.worker()["why"])
        assert s.now() == "evicted" and worker.resident() == 0
        s.reload(configure(("ollama", worker)))
        s.wait(lambda: s.now() == "evicted" and "this mode resumes no worker" not in s.worker()["why"])
        s.reload(configure(("ollama", worker), more=IGNORE_SLEEP))
        s.back(worker)


def test_workers_keep_their_state_when_their_order_in_the_file_changes(world):
    with Worker(world, size=2 * GIB) as a, Worker(world, size=3 * GIB) as b:
        both = [("a", a), ("b", b)]
        with Guarded(world, configure(*both)) as s:
            s.settled(2 * GIB, "a")
            s.settled(3 * GIB, "b")
            s.guard("hold", "evicted", "b", "--for", "1h")
            s.until("evicted", name="b")
            s.reload(configure(*reversed(both)))
            s.wait(lambda: names(s) == ["b", "a"])
            s.wait(lambda: s.now("a") == "active" and s.now("b") == "evicted")
            assert {d["worker"] for d in s.decisions() if d["to"] == "evicted"} == {"b"}
            s.guard("release", "b")
            s.back(b, 3 * GIB, "b")
            assert a.acted() == [] and a.resident() == 2 * GIB


def test_an_order_under_way_ends_before_the_tables_change(world, tmp_path):
    """A hook runs for a while.  The old configuration stays in force until the hook has ended."""
    said = tmp_path / "said"
    hook = tmp_path / "hook"
    hook.write_text(f"""#!/bin/sh
echo $1 >> {said}
test $1 = evict && {{ until test -e {tmp_path}/go; do sleep 0.05; done; rm -f {world.held}/$2; }}
test $1 = resume && echo {2 * GIB} compute > {world.held}/$2
exit 0
""")
    hook.chmod(0o755)
    with Contender(world, 2 * GIB, exe=shutil.copy("/bin/sleep", tmp_path / "holder")) as holder:
        commands = {f"{word}_command": [str(hook), word, str(holder.pid)] for word in ("evict", "resume")}
        text = configure(table("w", "exec", match_name="holder", **commands), defaults=quick(budget_s=60))
        with Guarded(world, text) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.wait(said.exists)
            s.reload(text.replace('"resume"', '"other"'))
            s.wait(lambda: "was reloaded" in s.messages())
            assert not any(CHANGED in t for t in s.events("guard"))
            (tmp_path / "go").touch()
            s.reports(CHANGED)
            s.until("evicted", name="w")
            assert said.read_text() == "evict\n"
            s.guard("release", "w")
            s.wait(lambda: said.read_text() == "evict\nother\n")


def test_reservations_last_over_a_reload(s, world, worker):
    with Contender(world, 1 << 20) as owner:
        s.reserve(16 * GIB, pid=owner.pid)
        s.until("evicted")
        assert s.worker()["mask"] == ["reserved"]
        s.reload(configure(("ollama", worker), more=rule("ignore", name="nobody")))
        s.reports(CHANGED)
        s.observes()
        assert s.now() == "evicted" and s.worker()["mask"] == ["reserved"]
        owner.end()
        s.until("active")


def test_another_power_cap_is_a_new_configuration(s, worker):
    s.reload(configure(("ollama", worker), guard="power_cap_w = 90000"))
    s.reports(CHANGED + ": 1 worker, 0 added, 0 removed")


def test_health_that_is_no_longer_watched_is_no_reason_any_more(world, worker):
    with Guarded(world, configure(("ollama", worker), more=BY_HEAT.format(30))) as s:
        s.wait(lambda: s.now() == "evicted" and s.worker()["mask"] == ["thermal"])
        s.reload(configure(("ollama", worker), more="[health]\nenabled = false\n"))
        s.back(worker)


def test_a_driver_that_hangs_holds_no_reload_up(tmp_path):
    fault = Fault(tmp_path, "hang = true", "nvmlDeviceGetComputeRunningProcesses_v3")
    world = World(tmp_path, more=fault.text)
    with Worker(world, size=10 * GIB) as w:
        one = configure(("ollama", w))
        with Guarded(world, one) as s:
            s.settled()
            with fault:
                s.wait(lambda: s.worker()["hung"])
                for i in range(5):
                    s.reload(one + rule("ignore", name=f"nobody{i}"))
                    assert s.get("/api/v1/guard").status_code == 200
            s.wait(lambda: s.now() == "active" and not s.worker()["hung"])
            with Contender(world, 8 * GIB):
                s.until("evicted")


@pytest.mark.deep
def test_fifty_reloads_while_a_contender_comes_and_goes(s, world, worker):
    one = configure(("ollama", worker))
    two = configure(("ollama", worker), table("other", "signal", match_name="nobody", evict_signal="USR1", resume_signal="USR2"),
                    more=rule("ignore", name="nobody"))
    for i in range(50):
        s.reload(two if i % 2 == 0 else one)
        for path in ("/api/v1/guard", "/metrics", "/api/v1/guard/explain", "/api/v1/guard/workers/ollama"):
            assert s.get(path).status_code == 200
        if i % 10 == 2:
            child = Contender(world, 8 * GIB)
        if i % 10 == 8:
            child.end()
        s.observes(0, scenes=1)
    s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB and names(s) == ["ollama"])
    acted = worker.acted()
    assert len(acted) % 2 == 0  # the worker returned after each eviction
    assert s.worker()["evictions_total"] == len(acted) // 2
    s.reload(two)
    assert s.stop() == 0  # also if the service has only just read a file
    assert "Sanitizer" not in s.messages()


@pytest.mark.parametrize("mode", ["dry-run", "observe"])
def test_a_worker_that_is_out_when_the_mode_changes_stays_out_until_enforce(mode, world, worker):
    with Guarded(world, configure(("ollama", worker), mode="enforce")) as s:
        s.settled()
        assert "off the GPU" not in s.guard("mode", "enforce").stdout
        with Contender(world, 8 * GIB):
            s.until("evicted")
            said = " ".join(s.guard("mode", mode).stdout.split())
            assert f"mode {mode}: decisions are recorded" in said
            assert "ollama: already off the GPU" in said and "run gpuward guard mode enforce" in said
        s.observes(1.5)  # longer than the quiet time, after which the worker would return
        w = s.worker()
        assert (w["state"], w["stays_evicted"], worker.resident()) == ("evicted", True, 0)
        status = s.guard("status").stdout
        assert "would be" not in status and "evicted" in status, status
        assert "to resume it, run gpuward guard mode enforce" in " ".join(s.guard("explain", "ollama").stdout.split())
        assert "already off the GPU" in " ".join(s.guard("mode").stdout.split())
        assert "off the GPU" not in s.guard("mode", "enforce").stdout
        s.back(worker)
        assert not s.worker()["stays_evicted"]
        s.guard("mode", mode)
        # larger than the contender that is known to fit; in this mode the eviction is only a decision
        with Contender(world, 14 * GIB):
            s.until("evicted")
            assert not s.worker()["stays_evicted"] and "would be: evicted" in s.guard("status").stdout


def test_a_mode_set_at_run_time_outlives_reload_and_kill_and_returns_to_the_configured_one(world, worker):
    text = configure(("ollama", worker), mode="dry-run")
    with Guarded(world, text) as s:
        s.settled()
        assert "mode dry-run: decisions are recorded" in s.guard("mode").stdout
        assert "did you mean 'enforce'" in s.guard("mode", "enforced", code=support.USAGE).stderr
        assert "mode enforce: workers leave" in s.guard("mode", "enforce", "--reason", "tonight").stdout
        state = s.get("/api/v1/guard").json()
        assert (state["mode"], state["mode_configured"], state["mode_set"]["set_by"]) == ("enforce", "dry-run", "a client with the token: tonight")
        with Contender(world, 8 * GIB):
            s.until("evicted")
            assert worker.resident() == 0
            s.restart()  # kill -9 while the worker is evicted
            s.until("evicted")
            assert s.get("/api/v1/guard").json()["mode"] == "enforce"
            s.reload(configure(("ollama", worker), mode="observe", more=IGNORE_SLEEP))
            s.reports(CHANGED)
            assert s.get("/api/v1/guard").json()["mode"] == "enforce"
        s.back(worker)
        for said in (s.guard("status"), s.guard("explain", "ollama"), s.guard("mode")):
            said = " ".join(said.stdout.split())
            assert "set to enforce at run time by a client with the token: tonight at 20" in said
            assert "the configuration says observe" in said and "guard mode config" in said
        s.guard("mode", "enforce", "--reason", "red \x1b[31m\x9b")
        for said in (s.guard("status"), s.guard("mode"), s.guard("explain", "ollama")):
            assert "red ?[31m?" in " ".join(said.stdout.split()) and "\x1b" not in said.stdout, said.stdout
        assert "mode observe" in s.guard("mode", "config").stdout
        s.restart()
        s.settled()
        state = s.get("/api/v1/guard").json()
        assert (state["mode"], state["mode_set"]) == ("observe", None)
        with Contender(world, 8 * GIB):
            s.observes()
            assert worker.resident() == 10 * GIB
