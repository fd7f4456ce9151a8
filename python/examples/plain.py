#!/usr/bin/env python3
"""Measures the energy of two parts of a program, one inside the other.  Needs no other package.

    PYTHONPATH=python python3 python/examples/plain.py
"""
import sys
import time

import gpuward


def work(seconds):
    """A placeholder for the work of the program on the GPU."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with gpuward.mark("step"):
            time.sleep(0.1)
        gpuward.iteration()


def show(w):
    if w.joules is None:
        print("%s: %.2f s, energy unknown" % (w.label, w.seconds))
    else:
        figures = (w.label, w.seconds, w.interval, w.watts, w.validity)
        print("%s: %.2f s, %s J, %.1f W, %s" % figures)
    for code, sentence in w.why.items():
        print("    %s: %s" % (code, sentence))


def main():
    try:
        with gpuward.window("all") as whole:
            work(0.5)
            with gpuward.window("second half") as half:
                work(0.5)
    except gpuward.GpuwardError as e:
        sys.exit("plain.py: %s" % e)
    if whole.simulated:
        print("SIMULATED: no figure is real")
    show(whole)
    show(half)


if __name__ == "__main__":
    main()
