"""gpuward: energy of a stretch of code on the GPU, with its uncertainty.

    import gpuward

    with gpuward.window("prefill") as w:
        model(batch)
        torch.cuda.synchronize()        # the GPU works on after the call returns
    print(w.joules, w.low, w.high, w.validity, w.codes)
    print(w.per(batch.size(0)))         # joules per item, with the interval

A window takes no time of the program: the GPUs are read by threads of libgpuward, and the first
figure that is asked for waits until the last sample has come.  Windows may be nested, may overlap
and may be used in threads.  What is not known is None, never 0, and `codes` and `why` say why; on
a machine without a GPU that is all there is.

    gpuward.Meter(gpus="0", interval=0.1)    your own meter: with Meter() as m: m.window("a")
    gpuward.snapshot()                       all figures of all GPUs now, as a dict
    gpuward.guard(evict, resume)             calls back when another process needs the GPU
    gpuward.mark(name), begin, end,          marks for `gpuward measure`; without it they do
    gpuward.iteration, tokens                nothing

The module searches libgpuward in GPUWARD_LIBRARY, next to this module, in the build folder of the
source tree and in the library folders of the system.  Failures raise GpuwardError.
"""
from ._guard import Guard, GuardStatus, guard
from ._mark import begin, end, iteration, mark, tokens, under_measure
from ._meter import Energy, Interval, Meter, Result, Window, default_meter, window
from ._native import GpuwardError, library as _library
from ._snapshot import snapshot

__all__ = [
    "Energy", "GpuwardError", "Guard", "GuardStatus", "Interval", "Meter", "Result", "Window",
    "begin", "default_meter", "end", "guard", "iteration", "library_path", "library_version",
    "mark", "snapshot", "tokens", "under_measure", "window",
]


def library_version():
    """Version of the library that runs, such as "1.2.3"."""
    return _library().version().decode()


def library_path():
    """The library that was loaded."""
    return _library().path
