"""A worker for tests/gpu/guard: holds memory with a pattern, works on it, and answers signals.

  guard_worker.py worker GIB    on SIGUSR1 moves its memory to the host, on SIGUSR2 back to the GPU
  guard_worker.py plain GIB     the same, but handles no signals: for checkpoints
  guard_worker.py family GIB    like worker, with two children that also use the GPU and two that only load data
  guard_worker.py contender GIB SECONDS

Prints a line for each action, with its time (monotonic)."""
import os
import signal
import sys
import time

import torch

kind, gib = sys.argv[1], float(sys.argv[2])


def say(*words):
    print(f"{time.monotonic():.6f}", *words, flush=True)


def fill():
    n = int(gib * 2**30 / 8)
    return torch.arange(n, dtype=torch.int64, device="cuda")


def good(x):
    """Returns whether the pattern is unchanged. Checks it in parts, which needs little memory."""
    step = 1 << 25
    for at in range(0, x.numel(), step):
        part = x[at:at + step]
        if not torch.equal(part, torch.arange(at, at + part.numel(), dtype=torch.int64, device="cuda")):
            return False
    return True


say("start", os.getpid())
data = fill()
torch.cuda.synchronize()
say("holds", torch.cuda.memory_allocated())
if kind == "contender":
    time.sleep(float(sys.argv[3]))
    say("ends")
    os._exit(0)

asked = []
if kind == "family":  # loaders are forked before there is a context; the two children start a new interpreter
    import subprocess
    for _ in range(2):
        subprocess.Popen([sys.executable, __file__, "contender", "0.7", "600"], stdout=subprocess.DEVNULL,
                         preexec_fn=lambda: __import__("ctypes").CDLL(None).prctl(1, signal.SIGKILL))
    loader = iter(torch.utils.data.DataLoader(range(10 ** 9), num_workers=2))
if kind in ("worker", "family"):
    signal.signal(signal.SIGUSR1, lambda *a: asked.append("out"))
    signal.signal(signal.SIGUSR2, lambda *a: asked.append("back"))
signal.signal(signal.SIGTERM, lambda *a: asked.append("end"))
kept, rounds, last = None, 0, time.monotonic()
while True:
    what = asked.pop(0) if asked else None
    if what == "out" and data is not None:
        kept = True
        data = None
        torch.cuda.empty_cache()
        say("out")
    elif what == "back" and data is None:
        data = fill()
        torch.cuda.synchronize()
        say("back")
    elif what == "end":
        say("end", "pattern", good(data) if data is not None else "away", "rounds", rounds)
        os._exit(0)
    if data is not None:
        data[:1024].clone().sum().item()
        rounds += 1
        now = time.monotonic()
        if now - last > 1:
            say("gap", f"{now - last:.3f}")
        last = now
    time.sleep(0.01)
