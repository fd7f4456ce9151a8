"""Tests that one fault causes one notification. Simulated nodes have faults; a real Prometheus and a real Alertmanager
use the packaged rules, alerts, grouping and inhibition. Only the durations are changed: they are 40 times shorter."""
import contextlib
import json
import os
import re
import subprocess

import pytest

import engine
from engine import RULES, eventually, get, scaled
from worker import Fault

FACTOR = 1 / 40
# Long enough that a wrong further alert would fire: the window and the "for" of GpuQueryErrors, and the longest "for"
# of the alerts about nodes that are down.
AFTERMATH_S, SOON_S = 15 * 60 * FACTOR, 5 * 60 * FACTOR

CARDS = """
[time]
begin = 60
[[gpu]]
profile = "h100"
count = 2
[[gpu.load]]
kind = "constant"
level = 0.5
"""
HOT = """
[time]
begin = 120
[[gpu]]
profile = "h100"
ambient_c = 62
noise = 0
[[gpu.load]]
kind = "constant"
level = 0.9
"""
BUSY = """
[time]
begin = 60
[[gpu]]
profile = "h200"
limit_w = 400
[[gpu.load]]
kind = "constant"
level = 1
"""
PENDING = '[[gpu]]\nprofile = "h100"\nremap_pending = 1\nremapped = 1\n'
EXPECTED = {  # node: receiver and alert
    "lost": ("page", "GpuDown"),
    "hang": ("page", "GpuAllDown"),
    "ecc": ("page", "GpuEccUncorrected"),
    "hot": ("ticket", "GpuThrottledByHeat"),
    "pending": ("ticket", "GpuRowsPending"),
    "killed": ("ticket", "GpuwardDown"),
    "full": ("ticket", "GpuwardStoreDown"),
}


class Node:
    """A simulated node. Its fault, if any, begins with `with node.fault`."""

    def __init__(self, stack, path, world, fault=None, options=()):
        path.mkdir()
        self.fault = Fault(path, *fault) if fault else None
        (path / "world.toml").write_text(world + (self.fault.text if fault else ""))
        processes = []
        self.address = stack.enter_context(
            engine.serving(path, path / "world.toml", *options, processes=processes))
        self.process = processes[0]


@contextlib.contextmanager
def small_disk(place):
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", place],
                                      capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(place):
    with contextlib.suppress(OSError), (place / "filler").open("ab", buffering=0) as f:
        while f.write(bytes(4096)):
            pass


@pytest.mark.deep
def test_each_fault_is_notified_once_and_a_busy_gpu_never(tmp_path):
    with contextlib.ExitStack() as stack:
        if not engine.PROMETHEUS or not engine.ALERTMANAGER:
            pytest.skip("prometheus or prometheus-alertmanager is not installed")
        disk = stack.enter_context(small_disk(tmp_path / "disk"))

        def node(name, world, fault=None, *options):
            return Node(stack, tmp_path / name, world, fault, options)

        nodes = {
            "lost": node("lost", CARDS, ("gpu = 1\ncode = 15", "*")),
            "hang": node("hang", CARDS, ("hang = true", "*")),
            "ecc": node("ecc", CARDS, ("gpu = 1\nvalue = 1", "nvmlDeviceGetTotalEccErrors")),
            "hot": node("hot", HOT),
            "pending": node("pending", PENDING),
            "killed": node("killed", CARDS),
            "full": node("full", CARDS, None, "--history", disk / "history.db"),
            "busy": node("busy", BUSY),
            "fine": node("fine", CARDS, ("gpu = 1\nhang = true", "nvmlDeviceGetPowerUsage")),
            "fine2": node("fine2", CARDS),
        }
        receiver = stack.enter_context(engine.Receiver())
        for name in ("rules", "alertmanager", "prometheus"):
            (tmp_path / name).mkdir()
        rules = []
        for name in ("gpuward.rules.yml", "alerts.yml"):
            rules.append(tmp_path / "rules" / name)
            text = scaled((RULES / name).read_text(), FACTOR)
            # The service reads these counters every 10 s, so a window must be longer.
            rules[-1].write_text(re.sub(r"(limited_\w+_seconds_total)\[\w+\]", r"\1[25s]", text))
        manager = stack.enter_context(engine.alertmanager(tmp_path / "alertmanager", receiver, FACTOR))
        ask = stack.enter_context(engine.prometheus(
            tmp_path / "prometheus", {n: node.address for n, node in nodes.items()}, "1s", rules, manager,
            "500ms"))

        def evaluated():
            """Returns the time of the newest evaluation of the rules."""
            found = ask.values("max(timestamp(instance:gpuward_gpu_down:count))")
            return found and found[0][1]

        def settled(since, aftermath):
            """True if the rules were evaluated for long enough, and no alert is pending or waits for its
            notification."""
            if evaluated() - since < aftermath:
                return False
            if any(a["state"] == "pending" for a in ask("alerts")["alerts"]):
                return False
            notified = {a["fingerprint"] for _, m in list(receiver.messages) for a in m["alerts"]}
            active = json.loads(get(f"http://{manager}/api/v2/alerts")[1])
            return all(a["fingerprint"] in notified or a["status"]["state"] == "suppressed" for a in active)

        # All faults begin at the same time, each on its own node.
        eventually(lambda: len(ask.values('gpuward_gpu_ecc_uncorrected_errors_total{instance="ecc"} == 0')) == 2,
                   "a reading before the error")
        eventually(evaluated, "an evaluation before the error")
        for name in ("lost", "hang", "ecc"):
            stack.enter_context(nodes[name].fault)
        fill(disk)
        nodes["killed"].process.kill()
        begun = evaluated()
        eventually(lambda: {i for _, i, _ in receiver.firing()} >= set(EXPECTED), lambda: str(receiver.firing()))
        eventually(lambda: settled(begun, AFTERMATH_S), lambda: str(ask("alerts")["alerts"]))
        assert ask.values('uuid:gpuward_gpu_limited_power:ratio5m{instance="busy"} > 0.5')
        got = sorted(receiver.firing(), key=str)
        assert got == sorted(((where, n, [alert]) for n, (where, alert) in EXPECTED.items()), key=str)

        # The same fault on many nodes is one more notification, not one per node.
        seen = len(receiver.firing())
        stack.enter_context(nodes["fine"].fault)  # the third node with a GPU that does not answer
        nodes["fine2"].process.kill()
        nodes["busy"].process.kill()  # the third node that does not answer
        begun = evaluated()
        many = ["GpuDownOnManyNodes", "GpuwardDownOnManyNodes"]
        eventually(lambda: {n for _, _, names in receiver.firing() for n in names} >= set(many), lambda: str(many))
        eventually(lambda: settled(begun, SOON_S), lambda: str(ask("alerts")["alerts"]))
        got = receiver.firing()[seen:]
        assert sorted(sum((names for _, _, names in got), [])) == many
        assert all(where == "page" and instance is None for where, instance, _ in got)
