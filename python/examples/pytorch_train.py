#!/usr/bin/env python3
"""Measures the joules of a PyTorch training step above idle, and the power over time.

    PYTHONPATH=python python3 python/examples/pytorch_train.py [--steps 200] [--csv power.csv]

The idle power is measured first, with the model on the GPU ("context-idle"). The energy above it is the energy that the
steps add. One window covers all steps, because one step is shorter than the sensor's period.
"""
import argparse
import sys
import time

import gpuward


def training_step(torch, device):
    """Returns a function that does one step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(512, 2048, device=device)

    def step():
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()

    return step


def baseline(options, cuda):
    """Returns the idle power, or None after it printed the reason."""
    if cuda:
        time.sleep(3)  # until the mean utilisation and the clocks have fallen
    try:
        found = gpuward.take_baseline("cuda:0" if cuda else 0, "context-idle" if cuda else "no-context",
                                      seconds=options.idle, min_seconds=min(10, options.idle))
    except gpuward.GpuwardError as e:
        print("idle power unknown: %s" % e)
        return None
    print("idle: %.1f W in %.0f s%s" % (found.watts, found.seconds, "; " + found.evidence if found.codes else ""))
    return None if found.codes else found


def measure(torch, options):
    cuda = torch.cuda.is_available()
    wait = torch.cuda.synchronize if cuda else lambda: None
    if not cuda:
        print("PyTorch sees no GPU: the model runs on the CPU, and the energy of the CPU is not measured here")
    step = training_step(torch, "cuda" if cuda else "cpu")
    for _ in range(options.warm_up):
        step()
    wait()
    idle = baseline(options, cuda)
    with gpuward.Meter(gpus="cuda:0" if cuda else None) as meter:
        with meter.window("training", record=True) as w:
            for _ in range(options.steps):
                step()
                gpuward.iteration()
            wait()  # calls return before their work is done
        show(w, idle, options)


def show(w, idle, options):
    if w.simulated:
        print("SIMULATED: no figure is real")
    print("%d steps in %.2f s" % (options.steps, w.seconds))
    if w.joules is None:
        print("energy unknown: %s" % "; ".join(w.why.values()))
    else:
        print("%s J per step, %s" % (w.per(options.steps), w.validity))
    if idle and len(w.devices) == 1:
        net = w.net(idle)
        print("above idle: %s J per step" % (net.interval.over(options.steps) if net.interval else "unknown",))
    for series in w.series:
        if series.watts:
            print("GPU %d: at most %.0f W" % (series.gpu, max(series.watts)))
    if options.csv and w.series:
        with open(options.csv, "w") as out:
            out.write("seconds,watts\n")
            out.writelines("%.6f,%.3f\n" % row for row in zip(w.series[0].seconds, w.series[0].watts))


def main():
    options = argparse.ArgumentParser(description="Joules of a training step of a PyTorch model.")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--warm-up", type=int, default=20, help="steps before the window")
    options.add_argument("--idle", type=float, default=30.0, help="maximum seconds for measuring the idle power")
    options.add_argument("--csv", help="write the power samples to this file")
    options = options.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("pytorch_train.py: PyTorch is not installed; plain.py works without it")
    try:
        measure(torch, options)
    except gpuward.GpuwardError as e:
        sys.exit("pytorch_train.py: %s" % e)


if __name__ == "__main__":
    main()
