"""Tests faults of the driver and of the GPU: a guard that cannot read a GPU moves nothing, and workers leave a GPU that is
hot or broken."""
import os
import re
import time

import pytest
import requests

import service
import support
from guarded import BY_HEAT, Guarded, configure
from worker import GIB, UUID, Contender, Fault, Worker, World

LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
XID = '[[timeline]]\nat = {}\ndo = "xid"\ndata = {}\n'
PCI = "0000:06:00"  # PCI id of the first simulated GPU


def test_a07_a_blind_guard_keeps_still_and_sees_again(tmp_path):
    fault = Fault(tmp_path, "code = 999", LISTS)
    world = World(tmp_path, more=fault.text)
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.settled()
        with fault:
            s.wait(lambda: s.worker()["blind"])
            s.wait(lambda: re.search(r"^gpuward_guard_blind\{[^}]*uuid=\"GPU-[^}]*\} 1$", s.get("/metrics").text, re.M))
            assert w.acted() == []
        s.wait(lambda: not s.worker()["blind"] and s.now() == "active")
        assert w.acted() == []
        with Contender(world, 8 * GIB):
            s.until("evicted")


def test_a07_a_driver_that_is_loaded_again_moves_no_worker(tmp_path):
    world = World(tmp_path, more='[[timeline]]\nat = 2\ndo = "reload"\nlength = 2\nversion = "580.200.01"\n')
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.until("active")
        s.reports("580.200.01")  # the driver was away and is back
        s.wait(lambda: s.now() == "active" and not s.worker()["blind"])
        assert w.acted() == [] and w.resident() == 10 * GIB
        with Contender(world, 8 * GIB):
            s.until("evicted")


@pytest.mark.parametrize("code, word", [(18, "different versions"), (999, "unknown error")])
def test_a07_a_driver_that_fails_altogether_moves_no_worker(tmp_path, code, word):
    """Error 18: another version of the driver was installed.  Error 999: a container without device nodes."""
    fault = Fault(tmp_path, f"code = {code}", "*", "nvmlInit_v2")
    world = World(tmp_path, more=fault.text)
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.settled()
        with fault:
            s.wait(lambda: s.worker()["blind"])
            s.logs(word)
        s.wait(lambda: not s.worker()["blind"] and s.now() == "active")
        assert s.worker()["mask"] == [] and w.acted() == [] and "evicted" not in s.course()


def test_a08_a_call_that_hangs_delays_nothing_else(tmp_path):
    fault = Fault(tmp_path, "hang = true", LISTS)
    world = World(tmp_path, more=fault.text)
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.settled()
        threads = len(os.listdir(f"/proc/{s.child.pid}/task"))
        with fault:
            s.wait(lambda: s.worker()["hung"])
            took = []
            for path in ("/healthz", "/metrics") * 8:
                begin = time.monotonic()
                assert requests.get(s.url + path, timeout=support.TIMEOUT).status_code == 200
                took.append(time.monotonic() - begin)
            assert sorted(took)[len(took) // 2] < 0.1, took  # the median: this machine may be busy
            assert len(os.listdir(f"/proc/{s.child.pid}/task")) <= threads + 1  # one thread is stuck, and no more
            assert w.acted() == []
        s.wait(lambda: not s.worker()["hung"] and s.now() == "active")


def test_a09_a_lost_gpu_takes_only_its_own_worker_with_it(tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    lost = Fault(tmp_path, "gpu = 1\ncode = 15", "*")
    world = World(tmp_path, more=f'[[gpu]]\nprofile = "rtx4090"\nfollow = "{second}/held"\n{lost.text}')
    other = World(second)
    with Worker(world) as a, Worker(other) as b:
        more = "[health]\ninterval_s = 0.2\n"
        with Guarded(world, configure(("a", a), ("b", b), more=more)) as s:
            for w in "ab":
                s.settled(10 * GIB, w)
            with lost:
                s.wait(lambda: s.worker("b")["quarantine"] or "health" in s.worker("b")["mask"])
                s.observes()
                assert s.worker("a")["mask"] == [] and not s.worker("a")["quarantine"] and s.now("a") == "active"
                assert a.acted() == [] and a.resident() == 10 * GIB


def test_a15_a_hot_gpu_is_left_and_a_hold_does_not_help(tmp_path):
    world = World(tmp_path, gpu="ambient_c = 80")
    with Worker(world) as w:
        with Guarded(world, configure(("ollama", w), more=BY_HEAT.format(60))) as s:
            s.wait(lambda: s.worker()["mask"] is not None)
            s.guard("hold", "active", "ollama", "--forever")
            s.until("evicted")
            assert s.worker()["mask"] == ["thermal"] and w.resident() == 0
            hot, = s.worker()["reasons"]
            assert re.match(r"GPU-\S+: Too hot: \d+ C above its limit .*, at \d+ C", hot["evidence"]), hot
            assert "[health]" in hot["rule"] and not hot["masked"]
            texts = s.events("health")
            assert texts and not any(".." in t for t in texts), texts


def test_a16_a_fatal_xid_puts_a_gpu_into_quarantine(tmp_path):
    world = World(tmp_path, more=XID.format(4, 79))
    with Worker(world) as w:
        more = "[health]\ninterval_s = 0.2\nclean_s = 300\n"
        with Guarded(world, configure(("ollama", w), more=more)) as s:
            s.wait(lambda: s.worker()["mask"] == ["health"])
            s.until("evicted")
            assert "Xid 79" in s.get("/api/v1/events").text
            s.wait(lambda: s.get("/api/v1/health/gpus/0").json()["clears_seconds"])
            left = s.get("/api/v1/health/gpus/0").json()["clears_seconds"]
            sick, = s.worker()["reasons"]  # the guard and health report the same end
            assert "no problem for 300 s" in sick["clears"] and left - 10 < sick["clears_seconds"] <= left, (sick, left)
            said = " ".join(s.guard("explain").stdout.split())
            assert re.search(r"no problem for 300 s, .*at the earliest in [45] min", said), said
            done = s.guard("clear", "0", "--reason", "reseated")  # long before the 300 s are over
            assert done.returncode == 0 and "not in quarantine" in done.stdout, done.stderr
            s.back(w)
            assert s.worker()["mask"] == []
            assert "quarantine cleared (requested by a client with the token: reseated)" in s.get("/api/v1/events").text


def test_a16_an_application_error_moves_no_worker(tmp_path):
    world = World(tmp_path, more=XID.format(2, 13))
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.reports("Xid 13")
        s.observes()
        assert s.worker()["mask"] == [] and w.acted() == []


def test_a_driver_without_events_is_logged_with_what_remains(tmp_path):
    world = World(tmp_path, more='[[fault]]\ncall = "nvmlDeviceGetSupportedEventTypes"\ncode = 3\n')
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.reports("no events of the NVIDIA driver arrive, because no GPU of this driver reports events now; "
                  "Xids are read from the kernel log only")
        s.observes()
        assert s.get("/api/v1/events").text.count("no events of the NVIDIA driver") == 1


def test_a16_a_fault_older_than_the_service_is_found(tmp_path):
    world = World(tmp_path, gpu="recovery_action = 1", profile="h200")
    with Worker(world) as w, Guarded(world, configure(("ollama", w))) as s:
        s.wait(lambda: s.worker()["mask"] == ["health"])
        assert not any(e.get("kind") == "xid" for e in s.get("/api/v1/events").json()["events"])
        got = s.post("/api/v1/health/gpus/0/clear", json={}, token=True)  # its cause still exists
        assert got.status_code == 409 and "reset the GPU" in got.json()["detail"]
        assert s.get("/api/v1/health/gpus/0").json()["quarantine"] is True


def rooted(path, lines):
    """A root folder like that of the machine, with its own kernel log."""
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


def test_xids_from_before_the_start_are_counted_and_quarantine_nothing(tmp_path):
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


def test_an_xid_from_both_driver_and_log_is_counted_once(tmp_path):
    made = World(tmp_path, profile="h200", more=XID.format(2, 31))
    root = rooted(tmp_path, [])
    with service.Service(made.scenario, "--root", root, config='[guard]\nmode = "observe"\n', token=True) as s:
        s.wait(lambda: health(s)["xids_total"] == 1)
        with open(root / "dev" / "kmsg", "a") as f:
            f.write(xid(31) + "\n" + xid(13) + "\n")
        s.wait(lambda: health(s)["last_xid"]["xid"] == 13)
        assert health(s)["xids_total"] == 2


def test_a_log_that_cannot_be_read_is_reported(tmp_path):
    root, s = watched(tmp_path, [])
    (root / "dev" / "kmsg").unlink()
    with s:
        s.wait(lambda: s.get("/api/v1/health").status_code == 200)
        assert "/dev/kmsg" in s.get("/api/v1/health").json()["kernel_log"]
        assert health(s)["xids_before_start"] is None
