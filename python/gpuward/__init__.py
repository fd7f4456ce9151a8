"""gpuward: measures the energy of a part of your code on the GPU, with its uncertainty.

    import gpuward

    with gpuward.window("prefill") as w:
        model(batch)
        torch.cuda.synchronize()        # the GPU still works when the call returns
    print(w.joules, w.low, w.high, w.validity, w.codes)
    print(w.per(batch.size(0)))         # joules per item, with the interval

A window does not slow the program down: threads of libgpuward read the GPUs, and the first access
to a figure waits for the last sample.  Windows may be nested, may overlap and may be used in
threads.  An unknown figure is None, never 0, and `codes` and `why` say why.  On a machine without
a GPU all figures are None, and `remedy` says what to do.

    gpuward.Meter(gpus="0", interval=0.1)    your own meter: with gpuward.Meter() as m, then m.window("a")
    gpuward.sampler(interval=0.1)            reads the GPUs while a block runs; s.series has the readings
    gpuward.window("a", record=True)         a window that keeps its readings in w.series
    gpuward.take_baseline(), load_baseline() measure and load the idle power; w.net(baseline) is the energy above it
    gpuward.snapshot()                       all current figures of all GPUs, as a dict
    gpuward.processes()                      the processes on the GPUs, with memory and SM utilisation
    gpuward.resources()                      single figures of the first GPU: gpu_name, gpu_used_vram_gb, ...
    gpuward.environment()                    facts about the machine: kernel, CPU, driver, ...
    gpuward.guard(evict, resume)             calls your functions when another process needs the GPU
    gpuward.mark(name), begin, end,          report to `gpuward measure` what the program does; they do
    gpuward.iteration, tokens                nothing if the program is not being measured

The module searches for libgpuward in GPUWARD_LIBRARY, next to this module, in the build folder of the
source tree and in the library folders of the system.  Failures raise GpuwardError.
"""
from __future__ import annotations

from ._baseline import Baseline, Net, load_baseline, take_baseline
from ._guard import Guard, GuardStatus, guard
from ._mark import begin, end, iteration, mark, tokens, under_measure
from ._interval import Interval
from ._meter import Energy, Meter, Result, Sampler, Window, default_meter, sampler, window
from ._native import GpuwardError, library as _library
from ._series import Reading, Sensor, Series
from ._snapshot import Process, ProcessList, environment, processes, resources, snapshot

__all__ = [
    "Baseline", "Energy", "GpuwardError", "Guard", "GuardStatus", "Interval", "Meter", "Net", "Process",
    "ProcessList", "Reading", "Result", "Sampler", "Sensor", "Series", "Window", "begin", "default_meter", "end", "environment",
    "guard", "iteration", "library_path", "library_version", "load_baseline", "mark", "processes", "resources",
    "sampler", "snapshot", "take_baseline", "tokens", "under_measure", "window", "__version__",
]

__version__ = "0.1.0"  # version of this module; library_version() returns the version of the library


def library_version() -> str:
    """Returns the version of the loaded library, such as "1.2.3"."""
    return str(_library().version().decode())


def library_path() -> str:
    """Returns the path of the loaded library."""
    return _library().path
