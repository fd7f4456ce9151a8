"""Baselines: the idle power of a GPU, and the energy above it."""
from __future__ import annotations

import os
import weakref
from ctypes import POINTER, byref, c_void_p, sizeof
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union
from contextlib import contextmanager

from . import _native
from ._interval import Interval
from ._native import GpuwardError, Path, number, text

KINDS = ("no-context", "context-idle", "hot-idle")  # enum gw_baseline_kind
Progress = Callable[[float, float, Optional[float]], Any]


class Net(NamedTuple):
    """Energy above a baseline, in joules."""

    interval: Optional[Interval]  # may be below 0; None: unknown
    adjusted: Optional[float]  # the best value, never below 0
    floored: bool  # True: the best value was below 0
    baseline_joules: Optional[float]  # energy that the idle GPU would have used in the same time

    @property
    def joules(self) -> Optional[float]:
        return None if self.interval is None else self.interval.best


class Baseline:
    """The idle power of one GPU; made by take_baseline() or load_baseline().

    watts               mean power
    error               standard error of the mean power; None: unknown
    seconds             duration of the measurement
    kind                "no-context", "context-idle" or "hot-idle"
    temperature         degrees Celsius during the measurement; None: unknown
    limit               power limit in watts during the measurement; None: unknown
    taken_unix          when the baseline was measured, in seconds since 1970
    codes               what was wrong with the measurement, as words
    why                 {code: sentence}
    evidence            what used the GPU; "": nothing
    uuid                UUID of the GPU
    simulated           True if the GPU is simulated
    """

    def __init__(self, handle: Any) -> None:
        c = handle.contents
        self._handle = handle
        weakref.finalize(self, _native.library().baseline_free, handle).atexit = False
        self.kind: str = text(_native.library().baseline_kind_name(c.kind))
        self.uuid: str = text(c.uuid)
        self.watts: float = c.power_w
        self.error: Optional[float] = number(c.u_w)
        self.seconds: float = c.seconds
        self.temperature = number(c.temperature_c)
        self.limit = number(c.limit_w)
        self.taken_unix: float = c.wall_ns * 1e-9
        self.why = _native.codes(c.codes)
        self.codes: Tuple[str, ...] = tuple(self.why)
        self.evidence: str = text(c.evidence)
        self.simulated = bool(c.simulated)

    def save(self, folder: Optional[Path] = None) -> None:
        """Stores the baseline below the folder; None: in the folder of `gpuward baseline`. A baseline of a GPU that was
        not idle is refused. A baseline of a simulated GPU needs a folder."""
        lib = _native.library()
        lib.check(lib.baseline_save(None, self._handle, _native.encode(folder)), "the baseline was not stored", None)

    def __repr__(self) -> str:
        error = "" if self.error is None else " ± %.2g (standard error)" % self.error
        return "<gpuward.Baseline %s%s: %.2f W%s, %s>" % (
            self.uuid, " (simulated)" if self.simulated else "", self.watts, error,
            " ".join((self.kind,) + self.codes))


def _kind(name: str) -> int:
    if name not in KINDS:
        raise ValueError("the kind of a baseline must be one of %s, not %r" % (", ".join(KINDS), name))
    return KINDS.index(name)


@contextmanager
def _meter(gpu: Union[int, str], nvml_library: Optional[Path], backend: Optional[str]) -> Iterator[Tuple[Any, Any]]:
    """Starts a meter that measures one GPU and reads its processes; stops the meter at the end of the block."""
    lib = _native.library()
    ctx, meter = _native.open_context(nvml_library, backend), c_void_p()
    stopped = 0
    try:
        options = _native.MeterOptions(
            size=sizeof(_native.MeterOptions), flags=_native.METER_PROCESSES, gpus=_native.names(gpu))
        lib.check(lib.meter_start(ctx, byref(options), byref(meter)), "the baseline of GPU %s is not available" % gpu, ctx)
        try:
            yield ctx, meter
        finally:
            stopped = lib.meter_stop(meter)
    finally:
        if stopped == 0:  # an error means that a driver call has not returned and still uses the context
            lib.close(ctx)


def take_baseline(gpu: Union[int, str] = 0, kind: str = "no-context", seconds: float = 30.0, min_seconds: float = 10.0,
                  half_width: float = 1.0, progress: Optional[Progress] = None,
                  nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> Baseline:
    """Measures the idle power of a GPU until its 95 % interval is at most ± `half_width` watts, but for at least
    `min_seconds` and at most `seconds`.

    kind is "no-context" (nothing uses the GPU), "context-idle" (this program has a context and is idle) or
    "hot-idle" (just after a load).  If something used the GPU, `codes` and `evidence` of the result
    say so.  progress(seconds, watts, half_width) is called once per second; if it returns False,
    the measurement ends and this function raises GpuwardError.
    """
    if not seconds >= 2:
        raise ValueError("seconds must be at least 2, not %r" % (seconds,))
    if not min_seconds >= 0:
        raise ValueError("min_seconds must be 0 or more, not %r" % (min_seconds,))
    if not half_width >= 0:
        raise ValueError("half_width must be 0 watts or more, not %r" % (half_width,))
    lib = _native.library()
    raised: List[BaseException] = []

    def step(_: Any, elapsed: float, watts: float, width: float) -> int:
        try:
            return 1 if progress and progress(elapsed, watts, number(width)) is False else 0
        except BaseException as e:  # noqa: B902 (also Ctrl-C: no exception may reach the library)
            raised.append(e)
            return 1

    options = _native.BaselineOptions(
        size=sizeof(_native.BaselineOptions), kind=_kind(kind), max_s=seconds, min_s=min_seconds,
        half_width_w=half_width, progress=_native.PROGRESS(step))
    handle = POINTER(_native.CBaseline)()
    with _meter(gpu, nvml_library, backend) as (ctx, meter):
        result = lib.baseline_take(meter, 0, byref(options), byref(handle))
        if raised:
            if result == 0:
                lib.baseline_free(handle)
            raise raised[0]
        lib.check(result, "the idle power of GPU %s was not measured" % gpu, ctx)
    return Baseline(handle)


def load_baseline(gpu: Union[int, str] = 0, kind: str = "no-context", max_age: float = 3600.0,
                  folder: Optional[Path] = None, nvml_library: Optional[Path] = None,
                  backend: Optional[str] = None) -> Baseline:
    """Loads a stored baseline of a GPU.  The driver, the power limit and the persistence mode must be the same as
    now, the temperature may differ by at most 10 degrees, and the baseline may be at most max_age seconds old.  Raises
    GpuwardError if there is no such baseline; the message says how a stored baseline differs."""
    if not max_age > 0:
        raise ValueError("max_age must be above 0 seconds, not %r" % (max_age,))
    lib = _native.library()
    handle = POINTER(_native.CBaseline)()
    with _meter(gpu, nvml_library, backend) as (ctx, meter):
        lib.check(lib.baseline_load(meter, 0, _kind(kind), max_age, _native.encode(folder), byref(handle)),
                  "GPU %s" % gpu, ctx)
    return Baseline(handle)


def apply(meter: Any, ctx: Any, energy: Any, before: Baseline, after: Optional[Baseline]) -> Net:
    """Returns the energy above a baseline, or above the mean of two.  energy is a copy of a struct gw_energy."""
    lib = _native.library()
    c = _native.NetEnergy(size=sizeof(_native.NetEnergy))
    lib.check(lib.baseline_apply(meter, energy, before._handle, after._handle if after else None, byref(c)),
              "the energy above the baseline cannot be computed", ctx)
    known = number(c.net.best) is not None
    return Net(Interval(number(c.net.low), c.net.best, number(c.net.high)) if known else None,
               number(c.adjusted_joules), bool(c.floored), number(c.baseline_joules))
