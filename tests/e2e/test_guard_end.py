"""The end of a service whose guard has moved workers, and what its recording says of such a run."""
import json
import signal
import time

import support
from guarded import SHORT, Guarded, held
from worker import GIB, Contender, Process

QUIET = SHORT.replace("quiet_s = 0.3", "quiet_s = 60")


def config(tables, mode="enforce", guard=""):
    return f'[guard]\nmode = "{mode}"\nsimulated = true\n{guard}\n{QUIET}\n{tables}'


def test_all_that_fit_together_come_back_at_the_end(world):
    with held(world, "Ollama", 4 * GIB, models=["a"]) as a, held(world, "Ollama", 5 * GIB, models=["b"]) as b:
        with Guarded(world, config(a.table("a", "ollama") + b.table("b", "ollama"))) as s:
            for name in "ab":
                s.until("active", name=name)
            with Contender(world, 12 * GIB):
                s.wait(lambda: not a.resident() and not b.resident())
                for name in "ab":
                    s.until("evicted", name=name)
            for name in "ab":
                s.until("quiet", name=name)
            s.stop()
            assert "gpuward stopped" in s.messages().splitlines()[-1]  # what was done before is told before
            assert (a.resident(), b.resident()) == (4 * GIB, 5 * GIB)
            s.start()
            for name in "ab":
                s.until("active", name=name)
                now = s.worker(name)
                assert (now["evictions_total"], now["resumes_total"]) == (1, 1)


def test_the_end_of_a_service_that_only_tells_waits_for_nobody(world):
    with held(world, "Ollama", 4 * GIB, models=["a"]) as a:
        with Guarded(world, config(a.table("a", "ollama"), mode="dry-run")) as s:
            s.until("active", name="a")
            with Contender(world, 18 * GIB):
                s.until("evicted", name="a")
            s.until("quiet", name="a")
            began = time.monotonic()
            s.stop()
            assert time.monotonic() - began < 9  # it would wait 10 s for an answer
        assert a.resident() == 4 * GIB and not a.asked("POST")


def test_who_was_not_unloaded_yet_takes_work_again_at_the_end(world):
    with held(world, "VLLM", 8 * GIB) as v:
        v.busy = 1
        text = config(v.table("v", "vllm")).replace("budget_s = 4", "budget_s = 40")
        with Guarded(world, text.replace("drain_s = 1", "drain_s = 30")) as s:
            s.until("active", name="v")
            with Contender(world, 18 * GIB):
                s.wait(lambda: v.paused)
                s.stop()
            assert not v.paused and v.resident() == 8 * GIB
            assert "service ends" in s.messages()


def test_an_eviction_under_way_at_the_end_is_waited_for_and_undone(world, tmp_path):
    with Process(world, ["/bin/sleep", "1000"]) as p:
        world.hold(p.pid, 8 * GIB)
        (tmp_path / "w.pid").write_text(f"{p.pid}\n")
        mark = world.held / str(p.pid)
        back = f"echo {8 * GIB} compute > {mark}.t && mv {mark}.t {mark}"
        table = (f'[[worker]]\nname = "w"\nkind = "exec"\nmatch.pidfile = "{tmp_path}/w.pid"\n'
                 f'evict_command = ["/bin/sh", "-c", "until test -e {tmp_path}/go; do sleep 0.1; done; rm -f {mark}"]\n'
                 f'resume_command = ["/bin/sh", "-c", "{back}"]\n')
        with Guarded(world, config(table).replace("budget_s = 4", "budget_s = 30")) as s:
            s.until("active", name="w")
            with Contender(world, 18 * GIB):
                s.until("evict", name="w")
            time.sleep(1)  # it is seen to be gone
            s.child.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert s.child.poll() is None
            (tmp_path / "go").touch()
            s.child.wait(support.TIMEOUT)
            assert world.holds(p.pid) == 8 * GIB
            assert "verify to evicted" in s.messages()


def decided(text, name):
    keys = ("from", "to", "mask", "rule", "evidence")
    return [[d[k] for k in keys] for d in map(json.loads, text.splitlines()) if d["worker"] == name]


def parts(trace):
    """The beginning of a recording and its last whole scene."""
    lines = trace.read_text().rpartition("\n")[0].splitlines()
    head = next(i for i, line in enumerate(lines) if line[1] == "\t")
    end = max(i for i, line in enumerate(lines) if line[:2] == "E\t")
    start = max(i for i, line in enumerate(lines[:end]) if line[:2] == lines[head][:2])
    return "\n".join(lines[:head]), "\n".join(lines[start:end + 1])


def test_a_recording_begins_with_what_the_journal_knew_and_names_its_workers(world, tmp_path):
    trace = tmp_path / "trace"
    with held(world, "Ollama", 4 * GIB, models=["a"]) as a, held(world, "Ollama", 5 * GIB, models=["b"]) as b:
        tables = [a.table("a", "ollama", "priority = 1"), b.table("b", "ollama", "priority = 2")]
        text = config("".join(tables), guard=f'record = "{trace}"')
        with Guarded(world, text) as s:
            for name in "ab":
                s.until("active", name=name)
            s.guard("hold", "evicted", "b", "--for", "1h")
            s.until("evicted", name="b")
            s.stop(signal.SIGKILL)
            trace.unlink()
            s.start()
            s.until("evicted", name="b")
            s.guard("release", "b")
            s.until("active", name="b")
            was = s.decisions()
            files = [open(s.config).read()]
            files.append(files[0].replace("".join(tables), tables[1] + tables[0]))
            assert files[0] != files[1]
            s.wait(lambda: str(4 * GIB) in parts(trace)[1] and str(5 * GIB) in parts(trace)[1])
            for text in files:  # who is who does not depend on where they stand
                told = s.post("/api/v1/guard/simulate", token=True,
                              json={"trace": "\n".join(parts(trace)) + "\n", "policy": text, "seconds": 1}).json()
                assert {w["name"]: w["need_bytes"] for w in told["workers"]} == {"a": 4 * GIB, "b": 5 * GIB}
    for i, text in enumerate(files):
        home = tmp_path / f"home{i}"
        (home / ".config/gpuward").mkdir(parents=True)
        (home / ".config/gpuward/gpuward.toml").write_text(text)
        done = support.gpuward("guard", "replay", trace, "--json", "--quiet",
                               env=support.environment(GPUWARD_CONFIG_ROOT=tmp_path / "none", HOME=home))
        assert done.returncode == 0, done.stderr
        for name in "ab":
            seen = decided("\n".join(map(json.dumps, was)), name)
            assert decided(done.stdout, name)[:len(seen)] == seen
    assert ["reconcile", "evicted"] in [d[:2] for d in decided(done.stdout, "b")]
