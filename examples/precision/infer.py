#!/usr/bin/env python3
"""One linear layer, y = x W, in fp32, fp16 or int8: the program that run.sh measures.

    infer.py fp16 --iterations 1000      runs it
    infer.py fp16 --model-bytes          prints the size of W in that precision

With PyTorch and a CUDA device the product runs on the GPU: fp32 without TF32, fp16, and int8 with int32 sums
(torch._int_mm).  Otherwise the program prints a message and computes a small product in plain Python.  This shows how
the example works, but measures nothing about the GPU.  FAST=1 makes everything small.

The program marks the part `warm-up`, the part `inference` and each iteration for `gpuward measure`.  Without `gpuward
measure` the marks have no effect.
"""
import argparse
import os
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
try:
    import gpuward
except ImportError:
    sys.exit("infer.py: the module gpuward is missing; set PYTHONPATH to its folder")

FAST = os.environ.get("FAST", "") not in ("", "0")
SIZE = 512 if FAST else 8192  # W is SIZE x SIZE, and so is the batch
BYTES = {"fp32": 4, "fp16": 2, "int8": 1}
WARM_UP = 3 if FAST else 50
STAND_IN = 24 if FAST else 64  # rows and columns of the product in plain Python


# ---- on the GPU


def cuda():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def on_gpu(torch, precision):
    """Returns a function that multiplies once and returns when the GPU is done."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.randn(SIZE, SIZE, device="cuda")
    w = torch.randn(SIZE, SIZE, device="cuda")
    if precision == "int8":
        x, w = ((t * 127 / t.abs().max()).round().to(torch.int8) for t in (x, w))
        w = w.t().contiguous().t()  # column major, because torch._int_mm needs this order
        multiply = torch._int_mm
    else:
        kind = torch.float16 if precision == "fp16" else torch.float32
        x, w = x.to(kind), w.to(kind)
        multiply = torch.matmul

    def once():
        multiply(x, w)
        torch.cuda.synchronize()

    return once


# ---- without a GPU


def rounded(v, precision):
    if precision == "int8":
        return round(v * 127)
    form = {"fp32": "<f", "fp16": "<e"}[precision]
    return struct.unpack(form, struct.pack(form, v))[0]


def stand_in(precision):
    n = STAND_IN
    rnd = random.Random(0)
    x, w = ([[rounded(rnd.uniform(-1, 1), precision) for _ in range(n)] for _ in range(n)]
            for _ in range(2))
    columns = list(zip(*w))

    def once():
        return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in x]

    return once


# ---- both


def run(once, iterations):
    with gpuward.mark("warm-up"):
        for _ in range(WARM_UP):
            once()
    with gpuward.mark("inference"):
        for _ in range(iterations):
            once()
            gpuward.iteration()


def main():
    options = argparse.ArgumentParser(description="One linear layer in three precisions.")
    options.add_argument("precision", choices=BYTES)
    options.add_argument("--iterations", type=int, default=100)
    options.add_argument("--model-bytes", action="store_true", help="print the size of W and exit")
    options = options.parse_args()
    if options.model_bytes:
        print(SIZE * SIZE * BYTES[options.precision])
        return
    torch = cuda()
    if torch is None:
        print("infer.py: PyTorch is missing or has no CUDA device: the product is computed in plain Python, "
              "and the GPU stays idle", file=sys.stderr)
        once = stand_in(options.precision)
    else:
        once = on_gpu(torch, options.precision)
    run(once, options.iterations)


if __name__ == "__main__":
    main()
