#!/usr/bin/env python3
"""A PyTorch program that leaves the GPU when another process needs it, and returns afterwards.

    PYTHONPATH=python python3 python/examples/pytorch_guard.py [GIB [SECONDS]]

Holds GIB of GPU memory (default: 4) for SECONDS (default: 60) and works on it.  Start another program on the GPU:
the weights move to host memory, and move back when the GPU has been quiet for five seconds.
"""
import sys
import threading
import time

try:
    import torch
except ImportError:
    sys.exit("pytorch_guard.py: PyTorch is not installed; examples/guarded.c works without it")

import gpuward


class Worker:
    def __init__(self, gib):
        self.lock = threading.Lock()  # a step holds this lock, so evict() waits for the end of the step
        self.steps = 0
        self.weights = torch.arange(int(gib * 2**30 / 8), dtype=torch.int64, device="cuda")

    def evict(self, size, seconds):
        with self.lock:
            self.weights = self.weights.cpu()
            torch.cuda.empty_cache()  # without this call, PyTorch keeps the freed memory for itself
        print("moved to host memory: about %d MiB" % (size >> 20), flush=True)

    def resume(self, seconds):
        with self.lock:
            self.weights = self.weights.cuda()
        print("moved back to the GPU, after %d steps" % self.steps, flush=True)

    def step(self):
        with self.lock:
            if self.weights.is_cuda:  # evict() may have run in between
                self.weights.roll(1).sum().item()
                self.steps += 1
        time.sleep(0.05)


def main():
    if not torch.cuda.is_available():
        sys.exit("pytorch_guard.py: PyTorch finds no GPU here")
    worker = Worker(float(sys.argv[1]) if len(sys.argv) > 1 else 4)
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 60)
    with gpuward.guard(worker.evict, worker.resume, name="pytorch", quiet=5,
                       decided=lambda text: print(text, flush=True)) as guard:
        while time.monotonic() < until:
            if guard.wait(0.2):
                worker.step()
        print(guard.status())
    whole = worker.weights.cuda()
    good = bool((whole == torch.arange(len(whole), device="cuda")).all())
    print("%d steps, weights %s" % (worker.steps, "as they were" if good else "damaged"))


if __name__ == "__main__":
    main()
