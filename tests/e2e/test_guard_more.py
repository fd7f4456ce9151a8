"""Games that are told of, and the kernel's log, through the real service."""
import os
import subprocess
import time

import requests

import service
import support
from guarded import Guarded, configure
from worker import UUID, World

PCI = "0000:06:00"  # of the first simulated GPU


# ---- games


def sleeper():
    return subprocess.Popen(["/bin/sleep", "1000"])


def test_workers_leave_until_the_last_game_is_over(world, worker):
    with Guarded(world, configure(("ollama", worker))) as s, sleeper() as one, sleeper() as two:
        try:
            s.until("active")
            s.guard("game", "start", "--pid", str(one.pid), "--reason", "gamemode")
            s.guard("game", "start", "--pid", str(two.pid))
            s.guard("game", "start", "--pid", str(two.pid))  # again is not twice
            s.until("evicted")
            assert s.worker()["mask"] == ["contention"]
            assert any("2 games are told of" in (d["evidence"] or "") or "1 game is" in (d["evidence"] or "")
                       for d in s.decisions())
            games = s.get("/api/v1/guard/games").json()["games"]
            assert {g["pid"] for g in games} == {one.pid, two.pid} and all(g["until_seconds"] is None for g in games)
            s.guard("game", "end", "--pid", str(one.pid))
            time.sleep(1)
            assert s.now() == "evicted"
            two.kill()  # it crashed: nobody says so
            two.wait()
            s.until("active")
            assert s.get("/api/v1/guard/games").json()["games"] == []
            s.guard("game", "end", "--pid", str(one.pid), code=support.FAILED)
            s.guard("game", "start", "--pid", str(os.getpid()), "--for", "1s")  # over with its time
            s.wait(lambda: s.worker()["evictions_total"] == 2)
            s.until("active")
            s.guard("game", "start", "--pid", "2147483647", code=support.FAILED)  # nobody's
            for words in (("start",), ("start", "--pid", "x"), ("pause", "--pid", "1"), ()):
                s.guard("game", *words, code=support.USAGE)
        finally:
            one.kill()
            two.kill()


# ---- the kernel's log


def rooted(path, lines):
    """A root like the machine's own, with a log of its own."""
    root = path / "root"
    (root / "dev").mkdir(parents=True)
    for name in ("proc", "sys", "etc", "run"):
        (root / name).symlink_to("/" + name)
    (root / "dev" / "kmsg").write_text("".join(line + "\n" for line in lines))
    return root


def xid(number, pci=PCI, us=None):
    us = int(time.monotonic() * 1e6) if us is None else us
    return f"3,1,{us},-;NVRM: Xid (PCI:{pci}): {number}, pid=1, name=x, text"


def watched(path, lines, profile="h200", **kw):
    made = World(path, profile=profile)
    root = rooted(path, lines)
    return root, service.Service(made.scenario, "--root", root, config='[guard]\nmode = "observe"\n', token=True, **kw)


def health(s):
    return s.get(f"/api/v1/health/gpus/{UUID}").json()


def test_xids_of_before_the_start_are_counted_and_quarantine_nothing(tmp_path):
    loaded = "5,1,1000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04"
    root, s = watched(tmp_path, [xid(79, us=10), loaded, xid(62), xid(13, "0000:77:00"), xid(13)])
    with s:
        s.wait(lambda: health(s)["xids_before_start"] == 2)
        h = health(s)
        assert (h["level"], h["xids_total"], h["last_xid_before_start"]["xid"]) == ("ok", 0, 13)
        assert h["last_xid_before_start_at_seconds"] < 60
        assert s.get("/api/v1/health").json()["kernel_log"] == "ok"
        with open(root / "dev" / "kmsg", "a") as f:
            f.write(xid(62) + "\n")
        s.wait(lambda: health(s)["quarantine"])
        assert health(s)["xids_total"] == 1 and "Xid 62" in health(s)["why"]


def test_an_xid_that_driver_and_log_tell_is_counted_once(tmp_path):
    made = World(tmp_path, profile="h200", more='[[timeline]]\nat = 2\ndo = "xid"\ndata = 31\n')
    root = rooted(tmp_path, [])
    with service.Service(made.scenario, "--root", root, config='[guard]\nmode = "observe"\n', token=True) as s:
        s.wait(lambda: health(s)["xids_total"] == 1)
        with open(root / "dev" / "kmsg", "a") as f:
            f.write(xid(31) + "\n" + xid(13) + "\n")
        s.wait(lambda: health(s)["last_xid"]["xid"] == 13)
        assert health(s)["xids_total"] == 2


def test_a_log_that_cannot_be_read_is_said(tmp_path):
    root, s = watched(tmp_path, [])
    (root / "dev" / "kmsg").unlink()
    with s:
        s.wait(lambda: s.get("/api/v1/health").status_code == 200)
        assert "/dev/kmsg" in s.get("/api/v1/health").json()["kernel_log"]
        assert health(s)["xids_before_start"] is None


# ---- models that idle


def test_a_model_that_idles_is_unloaded_and_comes_back_when_it_is_asked_for(world, worker):
    text = configure(("ollama", worker)) + 'resume = "lazy"\nidle_after = 1.5\nidle_w = 30\nreload_j = 600\n'
    with Guarded(world, text) as s:
        s.until("evicted")
        assert s.worker()["mask"] == ["idle"] and worker.resident() == 0
        said = [d for d in s.decisions() if d["rule"] == "idle"][0]
        assert "at 30 W" in said["evidence"] and "600 J" in said["evidence"]
        calls = len(worker.acted())
        time.sleep(1)
        assert s.now() == "evicted" and len(worker.acted()) == calls  # it is left in peace
        requests.post(worker.url + "/api/generate", json={"model": "llama3:8b"}, timeout=10).raise_for_status()
        s.wait(lambda: s.now() == "active" or s.worker()["evictions_total"] == 2)
        s.wait(lambda: s.worker()["evictions_total"] == 2 and s.now() == "evicted")
        rules = [d["rule"] for d in s.decisions()]
        assert "asked for" in rules and "reload-storm" not in rules and "reloaded while evicted" not in rules


def test_only_kinds_that_load_by_themselves_may_be_unloaded_for_idling(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[[worker]]\nname = "v"\nkind = "vllm"\nidle_after = 60\n')
    done = support.gpuward("config", "check", str(path))
    assert done.returncode != support.OK
    assert "does not load its model on the next request" in done.stdout + done.stderr


# ---- caps


def test_a_gpu_that_used_its_energy_has_its_worker_taken_off_and_a_restart_forgets_nothing(world, worker):
    text = configure(("ollama", worker), guard="energy_cap_wh = 0.01")
    with Guarded(world, text) as s:
        s.until("evicted")
        assert s.worker()["mask"] == ["budget"]
        assert any("are allowed" in (d["evidence"] or "") for d in s.decisions())
        s.stop()
        s.start()
        s.until("evicted")
        time.sleep(1.5)
        assert s.worker()["mask"] == ["budget"] and "resume" not in s.course()


# ---- who matches two


def test_a_process_of_two_workers_is_told_once(world):
    """One goes by the program and one by the name: that both mean one process shows only when it is there."""
    table = '[[worker]]\nname = "{}"\nkind = "checkpoint"\nmatch.{}\n'
    config = ('[guard]\nmode = "observe"\n' + table.format("one", 'exe = "*/sleep"') +
              table.format("two", 'name = "sleep*"'))
    with Guarded(world, config) as s, sleeper() as child:
        try:
            world.hold(child.pid, 1 << 30)
            says = f"process {child.pid} (sleep) matches worker one and worker two: narrow the match of one of them"

            def told():
                return [e for e in s.get("/api/v1/events").json()["events"] if e["text"] == says]
            s.wait(told)
            for name in ("one", "two"):
                assert f"Conflict: {says}" in " ".join(s.guard("explain", name).stdout.split())
            time.sleep(1.5)
            assert len(told()) == 1
        finally:
            child.kill()
