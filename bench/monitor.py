"""Compares gpuward top with nvtop on the same simulated machine, each on a terminal of tmux, at two readings per second.

gpuward top is measured twice: once it reads from the driver, once from a service.  CPU and memory are those of the program, not of tmux.
Targets: 0.5 % of a core and 12 MiB."""
import contextlib
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time

import peers

CASES = (("demo", "2 GPUs", (80, 24)), ("demo", "2 GPUs", (200, 60)), ("eight-gpus", "8 GPUs", (80, 24)),
         ("eight-gpus", "8 GPUs", (200, 60)))


@contextlib.contextmanager
def on_terminal(folder, name, size, command):
    """Runs a command on a terminal of this size and yields its pid."""
    tmux = ["tmux", "-S", os.path.join(folder, name), "-f", "/dev/null"]
    line = "exec env LC_ALL=C.UTF-8 TERM=screen " + " ".join(shlex.quote(str(w)) for w in command)
    subprocess.run([*tmux, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), line], check=True)
    try:
        pid = int(subprocess.check_output([*tmux, "list-panes", "-F", "#{pane_pid}"]))
        time.sleep(3)  # the program's start is not measured
        if not pathlib.Path(f"/proc/{pid}/stat").exists():
            raise RuntimeError(f"{line} has ended")
        yield pid
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True)


def section(table, build, quick):
    rounds, seconds = (2, 4) if quick else (5, 6)
    if not shutil.which("tmux"):
        table.skip("tmux, without which there is no terminal", "tools/deps bench")
        return
    program, missing = os.path.join(build, "gpuward"), False
    for scenario, gpus, size in CASES:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            service = stack.enter_context(peers.Service(build, scenario))
            commands = {"driver": [program, "top", f"--simulate={scenario}"],
                        "service": [program, "top", "--address", service.url[7:]]}
            other = peers.on_simulator(build, folder, scenario, "nvtop", "nvtop", "-d", "5", env={"TERM": "screen"})
            if other:
                commands["nvtop"] = other
            missing = missing or not other
            pids = {n: stack.enter_context(on_terminal(folder, n, size, c)) for n, c in commands.items()}
            share, memory = {n: [] for n in pids}, {n: [] for n in pids}
            for _ in range(rounds):  # all programs run at the same time, so that other work on the machine affects all of them
                before, at = {n: peers.cpu_seconds(p) for n, p in pids.items()}, time.monotonic()
                time.sleep(seconds)
                for n, p in pids.items():
                    share[n].append((peers.cpu_seconds(p) - before[n]) / (time.monotonic() - at))
                    memory[n].append(peers.rss_mib(p) * (1 << 20))
        where = f"{gpus}, {size[0]}x{size[1]}"
        for n, label in (("driver", "top from the driver"), ("service", "top from the service")):
            for values, unit, target, what in ((share, "share", 0.005, f"{label}, {where}"), (memory, "bytes", 12 << 20, "  memory (RSS)")):
                if other:
                    table.turns("top", what, unit, "nvtop", values[n], values["nvtop"], target, "value")
                else:
                    table.row("top", what, statistics.median(values[n]), unit, target=target, of="value")
    if missing:
        table.skip("nvtop", peers.REMEDY)
