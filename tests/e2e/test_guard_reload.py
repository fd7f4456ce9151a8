"""SIGHUP gives a running guard another configuration: workers that are in both go on as they were."""
import shutil
import time

import guarded
import support
from guarded import SHORT, Guarded, give
from worker import GIB, Contender, Fault, Worker, World

OFTEN = "poll_ms = 50\n"


def configure(*workers, guard="", **kw):
    return guarded.configure(*workers, guard=OFTEN + guard, **kw)


def events(s, kind="guard"):
    return [e["text"] for e in s.get("/api/v1/events?limit=1000").json()["events"] if e["kind"] == kind]


def heard(s, words):
    s.wait(lambda: any(words in t for t in events(s)))


def names(s):
    return [w["name"] for w in s.get("/api/v1/guard").json()["workers"]]


def test_a_worker_that_is_in_both_goes_on_as_it_was(world, worker):
    text = configure(("ollama", worker), defaults=SHORT.replace("quiet_s = 0.3", "quiet_s = 600"))
    with Guarded(world, text) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
        s.until("quiet")
        before = s.worker()
        told = len(worker.acted())
        give(s, configure(("ollama", worker)))
        heard(s, "uses the new configuration: 1 worker, 0 added, 0 removed")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)  # 0.3 s instead of 600
        assert s.worker()["evictions_total"] == before["evictions_total"] == 1
        assert len(worker.acted()) == told + 1
        assert "reconcile" not in s.course()[s.course().index("evicted"):]
        assert s.worker()["need_bytes"] == before["need_bytes"]


def test_a_hold_is_kept_over_a_reload(world, worker):
    text = configure(("ollama", worker))
    with Guarded(world, text) as s:
        s.until("active")
        s.guard("hold", "evicted", "ollama", "--for", "1h")
        s.until("evicted")
        give(s, text + '[[rule]]\nmatch.name = "sleep"\naction = "ignore"\n')
        heard(s, "uses the new configuration")
        time.sleep(0.5)
        assert s.now() == "evicted" and s.worker()["hold"] == "evicted"
        with Contender(world, 8 * GIB):  # nobody counts it any more
            s.guard("release", "ollama")
            s.until("active")
            time.sleep(0.5)
            assert s.now() == "active"


def test_the_first_worker_comes_and_the_last_goes(world, worker):
    none = f'[guard]\nmode = "enforce"\nsimulated = true\n{OFTEN}{SHORT}'
    with Guarded(world, none) as s:
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        assert names(s) == []
        with Contender(world, 8 * GIB):
            give(s, configure(("ollama", worker)))
            s.until("evicted")
        s.until("active")
        give(s, none)
        s.wait(lambda: names(s) == [])
        assert s.get("/api/v1/guard/workers/ollama").status_code == 404
        with Contender(world, 8 * GIB):
            time.sleep(0.5)
            assert worker.resident() == 10 * GIB
        metrics = s.get("/metrics").text
        assert "gpu_evictions_total" in metrics and 'worker="ollama"' not in metrics
        assert s.get("/api/v1/guard").json()["counts"]["evictions_total"] == 1


def test_a_worker_that_goes_while_it_is_out_is_told_of_and_comes_back_when_named_again(world, worker):
    with_it = configure(("ollama", worker))
    without = f'[guard]\nmode = "enforce"\nsimulated = true\n{OFTEN}{SHORT}'
    with Guarded(world, with_it) as s:
        s.until("active")
        s.guard("hold", "evicted", "ollama", "--for", "1h")
        s.until("evicted")
        give(s, without)
        heard(s, "worker ollama was removed from the configuration while it is evicted (level 2)")
        s.wait(lambda: names(s) == [])
        assert worker.resident() == 0
        s.restart()  # what is kept of it outlives the service
        give(s, with_it)
        s.until("evicted")
        assert s.worker()["hold"] == "evicted" and 0 < s.worker()["hold_until_seconds"] <= 3600
        s.guard("release", "ollama")
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


def test_a_bad_file_changes_nothing(world, worker):
    text = configure(("ollama", worker))
    with Guarded(world, text) as s:
        s.until("active")
        give(s, text.replace('kind = "ollama"', 'kind = "olama"'))
        s.wait(lambda: "the old one stays in use" in s.messages())
        assert "olama" in s.messages()
        with Contender(world, 8 * GIB):
            s.until("evicted")


def test_enforce_after_dry_run_does_what_was_only_told(world, worker):
    dry = configure(("ollama", worker), mode="dry-run")
    with Guarded(world, dry) as s, Contender(world, 8 * GIB):
        s.until("evicted", "quiet")
        assert worker.resident() == 10 * GIB
        give(s, configure(("ollama", worker)))
        s.wait(lambda: s.now() == "evicted" and worker.resident() == 0)
        give(s, dry)  # it is out, and nobody may bring it back
        s.wait(lambda: "brings it back" in s.worker()["why"])
        assert s.now() == "evicted" and worker.resident() == 0
        give(s, configure(("ollama", worker)))
        s.wait(lambda: s.now() == "evicted" and "brings it back" not in s.worker()["why"])
        give(s, configure(("ollama", worker), more='[[rule]]\nmatch.name = "sleep"\naction = "ignore"\n'))
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


def test_workers_change_places(world):
    with Worker(world, size=2 * GIB) as a, Worker(world, size=3 * GIB) as b:
        both = [("a", a), ("b", b)]
        with Guarded(world, configure(*both)) as s:
            for name, size in (("a", 2 * GIB), ("b", 3 * GIB)):
                s.wait(lambda n=name, z=size: s.now(n) == "active" and s.worker(n)["resident_bytes"] == z)
            s.guard("hold", "evicted", "b", "--for", "1h")
            s.until("evicted", name="b")
            give(s, configure(*reversed(both)))
            s.wait(lambda: names(s) == ["b", "a"])
            s.wait(lambda: s.now("a") == "active" and s.now("b") == "evicted")
            assert {d["worker"] for d in s.decisions() if d["to"] == "evicted"} == {"b"}
            s.guard("release", "b")
            s.wait(lambda: s.now("b") == "active" and b.resident() == 3 * GIB)
            assert a.acted() == [] and a.resident() == 2 * GIB


def test_an_order_under_way_ends_before_the_tables_change(world, tmp_path):
    """A hook that takes its time: until it has ended the old configuration counts."""
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/said\ntest $1 = evict && "
                    f"{{ until test -e {tmp_path}/go; do sleep 0.05; done; rm -f {world.held}/$2; }}\ntest $1 = resume && echo {2 * GIB} compute > {world.held}/$2\nexit 0\n")
    hook.chmod(0o755)
    with Contender(world, 2 * GIB, exe=shutil.copy("/bin/sleep", tmp_path / "holder")) as holder:
        text = f"""[guard]
mode = "enforce"
simulated = true
{OFTEN}{SHORT.replace("budget_s = 4", "budget_s = 60")}
[[worker]]
name = "w"
kind = "exec"
match.name = "holder"
evict_command = ["{hook}", "evict", "{holder.pid}"]
resume_command = ["{hook}", "resume", "{holder.pid}"]
"""
        with Guarded(world, text) as s:
            s.until("active", name="w")
            s.guard("hold", "evicted", "w", "--for", "1h")
            s.wait(lambda: (tmp_path / "said").exists())
            give(s, text.replace('"resume"', '"other"'))
            s.wait(lambda: "was reloaded" in s.messages())
            assert not any("uses the new configuration" in t for t in events(s))
            (tmp_path / "go").touch()
            heard(s, "uses the new configuration")
            s.until("evicted", name="w")
            assert (tmp_path / "said").read_text() == "evict\n"
            s.guard("release", "w")
            s.wait(lambda: (tmp_path / "said").read_text() == "evict\nother\n")


def test_reservations_last_over_a_reload(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, Contender(world, 1 << 20) as owner:
        s.wait(lambda: s.now() == "active" and s.worker()["resident_bytes"] == 10 * GIB)
        done = s.post("/api/v1/guard/reservations", token=True,
                      json={"bytes": 16 * GIB, "ttl_s": 600, "pid": owner.pid})
        assert done.status_code in (201, 202), done.text
        s.until("evicted")
        assert s.worker()["mask"] == ["reserved"]
        give(s, configure(("ollama", worker), more='[[rule]]\nmatch.name = "nobody"\naction = "ignore"\n'))
        heard(s, "uses the new configuration")
        time.sleep(0.4)
        assert s.now() == "evicted" and s.worker()["mask"] == ["reserved"]
        owner.end()
        s.until("active")


def test_a_cap_that_is_another_is_told(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s:
        s.until("active")
        give(s, configure(("ollama", worker), guard="power_cap_w = 90000"))
        heard(s, "uses the new configuration: 1 worker, 0 added, 0 removed")


def test_health_that_is_no_longer_watched_is_no_reason_any_more(world, worker):
    hot = "[health]\ntemp_override_c = 30\ninterval_s = 0.2\n"
    with Guarded(world, configure(("ollama", worker), more=hot)) as s:
        s.wait(lambda: s.now() == "evicted" and s.worker()["mask"] == ["thermal"])
        give(s, configure(("ollama", worker), more="[health]\nenabled = false\n"))
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB)


def test_a_recording_goes_on_under_the_new_configuration(world, worker, tmp_path):
    trace = tmp_path / "trace"
    text = configure(("ollama", worker), guard=f'record = "{trace}"')
    with Guarded(world, text) as s:
        s.until("active")
        with Contender(world, 8 * GIB):
            s.until("evicted")
            give(s, text + '[[rule]]\nmatch.name = "nobody"\naction = "ignore"\n')
            heard(s, "uses the new configuration")
        s.until("active")
    lines = trace.read_text().splitlines()
    assert [line.split("\t")[0] for line in lines if line.startswith(("begin", "swap"))] == ["begin", "swap", "swapped"]
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    done = support.gpuward("guard", "replay", "--policy", str(policy), str(trace))
    assert done.returncode == support.OK, done.stderr
    assert "evicted" in done.stdout, done.stdout


def test_a_driver_that_hangs_holds_no_reload_up(tmp_path):
    fault = Fault(tmp_path, "hang = true", "nvmlDeviceGetComputeRunningProcesses_v3")
    world = World(tmp_path, more=fault.text)
    with Worker(world, size=10 * GIB) as w:
        one = configure(("ollama", w))
        with Guarded(world, one) as s:
            s.wait(lambda: s.worker().get("resident_bytes") == 10 * GIB)
            with fault:
                s.wait(lambda: s.worker()["hung"])
                for i in range(5):
                    give(s, one + f'[[rule]]\nmatch.name = "nobody{i}"\naction = "ignore"\n')
                    assert s.get("/api/v1/guard").status_code == 200
                    time.sleep(0.1)
            s.wait(lambda: s.now() == "active" and not s.worker()["hung"])
            with Contender(world, 8 * GIB):
                s.until("evicted")


def test_fifty_reloads_while_somebody_comes_and_goes(world, worker):
    one = configure(("ollama", worker))
    two = f'{one}[[worker]]\nname = "other"\nkind = "signal"\nevict_signal = "USR1"\nresume_signal = "USR2"\n' \
          f'match.name = "nobody"\n[[rule]]\nmatch.name = "nobody"\naction = "ignore"\n'
    with Guarded(world, one) as s:
        s.until("active")
        child = None
        for i in range(50):
            give(s, two if i % 2 == 0 else one)
            for path in ("/api/v1/guard", "/metrics", "/api/v1/guard/explain", "/api/v1/guard/workers/ollama"):
                assert s.get(path).status_code == 200
            if i % 10 == 2:
                child = Contender(world, 8 * GIB)
            if i % 10 == 8 and child:
                child.end()
                child = None
            time.sleep(0.05)
        if child:
            child.end()
        s.wait(lambda: s.now() == "active" and worker.resident() == 10 * GIB and names(s) == ["ollama"])
        acted = worker.acted()
        assert len(acted) % 2 == 0  # who was moved came back
        assert s.worker()["evictions_total"] == len(acted) // 2
        give(s, two)
        assert s.stop() == 0  # also when one has only just been read
        assert "Sanitizer" not in s.messages()
