#!/usr/bin/env python3
"""Measures the joules per item of a PyTorch model.

    PYTHONPATH=python python3 python/examples/pytorch_window.py [--seconds 15]

A useful figure needs three things.  The warm-up is outside the window, because the first calls choose kernels, and
clocks and temperature rise.  The program waits for the GPU before the window ends, because calls return before their
work is done.  The window is long enough for the sensor (10 s or more).
"""
import argparse
import sys
import time

import gpuward


def model_and_batch(torch, device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)
    )
    return model.to(device).eval(), torch.randn(256, 4096, device=device)


def run(torch, model, batch, wait, seconds):
    """Runs batches until the time is over. Returns their number."""
    n, until = 0, time.monotonic() + seconds
    with torch.inference_mode():
        while time.monotonic() < until:
            model(batch)
            wait()  # without this wait, the queue grows faster than the GPU works
            n += 1
            gpuward.iteration()
    return n


def measure(torch, options):
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    wait = torch.cuda.synchronize if cuda else lambda: None
    if not cuda:
        print("PyTorch sees no GPU: the model runs on the CPU, and the energy of the CPU is not measured here")
    model, batch = model_and_batch(torch, device)
    run(torch, model, batch, wait, options.warm_up)
    with gpuward.Meter(gpus="cuda:0" if cuda else None) as meter:
        with meter.window("inference") as w:
            batches = run(torch, model, batch, wait, options.seconds)
            wait()
        show(w, batches * batch.shape[0])


def show(w, items):
    print("%d items in %.2f s: %.1f items/s" % (items, w.seconds, items / w.seconds))
    if w.joules is None:
        print("energy unknown: %s" % "; ".join(w.why.values()))
    else:
        figures = (w.interval, w.per(items), w.watts, w.validity)
        print("%s J, %s J per item, %.1f W, %s" % figures)
    for code, sentence in w.why.items():
        print("    %s: %s" % (code, sentence))


def main():
    options = argparse.ArgumentParser(description="Joules per item of a PyTorch model.")
    options.add_argument("--seconds", type=float, default=15.0, help="length of the window")
    options.add_argument("--warm-up", type=float, default=5.0, help="seconds of work before the window")
    options = options.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("pytorch_window.py: PyTorch is not installed; plain.py works without it")
    try:
        measure(torch, options)
    except gpuward.GpuwardError as e:
        sys.exit("pytorch_window.py: %s" % e)


if __name__ == "__main__":
    main()
