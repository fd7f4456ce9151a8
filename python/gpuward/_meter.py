"""Meters and windows; the package's docstring explains them."""
from __future__ import annotations

import os
import threading
import time
import weakref
from ctypes import byref, c_char_p, c_void_p, sizeof
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _native
from ._native import GpuwardError, number, text

WAIT_SECONDS = 10.0  # every known driver covers the end of a window within two seconds


class Interval(NamedTuple):
    """A value and the interval that contains the true value with 95 % probability; an end may be unknown."""

    low: Optional[float]
    best: float
    high: Optional[float]

    def __float__(self) -> float:
        return float(self.best)

    def __str__(self) -> str:
        return "%.6g [%s]" % (
            self.best, ", ".join("?" if x is None else "%.6g" % x for x in (self.low, self.high)))

    def over(self, n: float) -> Interval:
        """The same for one of n."""
        low, high = (None if x is None else x / n for x in (self.low, self.high))
        return Interval(low, self.best / n, high)


def _interval(c: Any) -> Optional[Interval]:
    return None if number(c.best) is None else Interval(number(c.low), c.best, number(c.high))


class Energy:
    """Energy of one GPU over one window: every field of struct gw_energy; None: unknown.

    joules, low, high     joules and the interval around them; `interval` has all three
    relative              the interval without the error of the board's sensor: to compare
                          runs on this board
    watts                 mean power, the same as power_mean if there are samples
    validity, codes       "valid", "suspect", "invalid" or "no-result", and why; `why` has the
                          sentences
    meter, rung, verdict  the readings that it is based on
    budget                {contribution: joules} to the uncertainty
    throttle_seconds      {cause: seconds} that the clocks were held back
    simulated             True: the GPU and its figures are not real
    """

    simulated: bool
    interval: Optional[Interval]
    relative: Optional[Interval]
    joules: Optional[float]
    low: Optional[float]
    high: Optional[float]
    why: Dict[str, str]
    codes: Tuple[str, ...]
    device: int
    seconds: float
    validity: str

    def __init__(self, address: int, simulated: bool = False) -> None:
        fields = _native.energy(address)
        self.__dict__.update(fields)
        self.simulated = simulated
        self.interval = _interval(fields["joules"])
        self.relative = _interval(fields["relative"])
        self.joules, self.low, self.high = (
            (self.interval.best, self.interval.low, self.interval.high)
            if self.interval else (None, None, None))
        self.why = _native.codes(fields["codes"])
        self.codes = tuple(self.why)

    @property
    def watts(self) -> Optional[float]:
        return self.joules / self.seconds if self.joules is not None and self.seconds else None

    if TYPE_CHECKING:  # the other fields get their names from the library's table
        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        return "<gpuward.Energy gpu %d%s: %s, %s>" % (
            self.device, " (simulated)" if self.simulated else "",
            "unknown" if self.joules is None else "%s J" % (self.interval,),
            " ".join((self.validity,) + self.codes),
        )


class Result:
    """Energy of all GPUs of a meter over one window; returned by Window.result()."""

    def __init__(self, label: str, seconds: float, devices: List[Energy], reason: Optional[Tuple[str, str]]) -> None:
        self.label = label
        self.seconds = seconds
        self.devices = devices
        self.simulated = any(d.simulated for d in devices)
        self.why: Dict[str, str] = {}
        for d in devices:
            self.why.update(d.why)
        if not devices and reason:
            self.why = dict([reason])
        self.codes = tuple(self.why)
        words = _native.validities()
        self.validity = max((d.validity for d in devices), default=words[-1], key=words.index)
        self.interval = self._sum()

    def _sum(self) -> Optional[Interval]:
        """Sum of all devices; unknown if one is unknown.  Low ends and high ends are added, so the
        interval is right also if the errors of the boards are equal."""
        parts = [d.interval for d in self.devices if d.interval]
        if not parts or len(parts) != len(self.devices):
            return None
        lows, highs = [p.low for p in parts if p.low is not None], [p.high for p in parts if p.high is not None]
        return Interval(sum(lows) if len(lows) == len(parts) else None, sum(p.best for p in parts),
                        sum(highs) if len(highs) == len(parts) else None)


class Window:
    """A time interval whose energy is measured; made by Meter.window().

    It begins with `with` (or begin()) and ends with the block (or end()).  Both return at once; the
    first figure that is read afterwards waits for the last sample.

    joules, low, high   of all GPUs of the meter together; None if unknown, never 0
    seconds, watts      its length and the mean power
    validity, codes     of the worst GPU, and all codes; why: {code: sentence}
    devices             an Energy for each GPU
    simulated           True: one of its GPUs is not real
    """

    def __init__(self, meter: Meter, label: str) -> None:
        self.label = label
        self._meter = meter
        self._lock = threading.RLock()
        self._handle: Any = None
        self._running: Any = None
        self._finalizer: Any = None
        self._pid: Optional[int] = None
        self._result: Optional[Result] = None
        self._state = "new"
        self._begin = self._end = 0.0  # for a machine without GPUs

    # ---- begin and end

    def begin(self) -> Window:
        with self._lock:
            if self._state != "new":
                raise GpuwardError("window %r has already begun" % self.label)
            self._handle = self._meter._open_window(self)
            self._pid = os.getpid()
            self._begin = time.monotonic()
            self._state = "open"
        return self

    def end(self) -> Window:
        if self._pid is not None and self._pid != os.getpid():
            return self  # a copy in a child: the parent ends it
        with self._lock:
            if self._state == "new":
                raise GpuwardError("window %r has not begun" % self.label)
            if self._state == "open":
                self._state = "ended"
                self._end = time.monotonic()
                lib = _native.library()
                lib.check(lib.window_close(self._handle, 0), "the window could not be closed", self._running.ctx)
        return self

    def __enter__(self) -> Window:
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    # ---- figures

    def result(self, timeout: float = WAIT_SECONDS) -> Result:
        """All figures.  Waits at most timeout seconds for the samples that cover the end; `codes` name
        what is missing then."""
        if self._result is None and self._pid is not None and self._pid != os.getpid():
            raise GpuwardError("window %r belongs to the parent process" % self.label)
        with self._lock:
            if self._result is None:
                if self._state != "ended":
                    raise GpuwardError("window %r has not ended" % self.label)
                self._result = self._meter._read(self._running, self, timeout)
            return self._result

    def per(self, n: float) -> Optional[Interval]:
        """Joules per item for n items, with the interval; None if unknown."""
        if not n > 0:
            raise ValueError("a window of %r items has no energy per item" % (n,))
        whole = self.result().interval
        return None if whole is None else whole.over(n)

    @property
    def interval(self) -> Optional[Interval]:
        return self.result().interval

    @property
    def joules(self) -> Optional[float]:
        whole = self.interval
        return None if whole is None else whole.best

    @property
    def low(self) -> Optional[float]:
        whole = self.interval
        return None if whole is None else whole.low

    @property
    def high(self) -> Optional[float]:
        whole = self.interval
        return None if whole is None else whole.high

    @property
    def seconds(self) -> float:
        return self.result().seconds

    @property
    def watts(self) -> Optional[float]:
        whole, seconds = self.interval, self.seconds
        return whole.best / seconds if whole is not None and seconds else None

    @property
    def validity(self) -> str:
        return self.result().validity

    @property
    def codes(self) -> Tuple[str, ...]:
        return self.result().codes

    @property
    def why(self) -> Dict[str, str]:
        return self.result().why

    @property
    def devices(self) -> List[Energy]:
        return self.result().devices

    @property
    def simulated(self) -> bool:
        return self.result().simulated

    def __repr__(self) -> str:
        if self._result is None:
            return "<gpuward.Window %r: %s>" % (self.label, self._state)
        known = "unknown" if self.joules is None else "%s J" % (self.interval,)
        words = (self.validity,) + self.codes
        return "<gpuward.Window %r%s: %s in %.6g s, %s>" % (
            self.label, " (simulated)" if self.simulated else "", known, self.seconds,
            " ".join(words))


class _Running:
    """A started meter of one process, with the handles of its windows."""

    def __init__(self, meter):
        lib = _native.library()
        self.pid = os.getpid()
        self.stopped = False
        self.lock = threading.RLock()
        self.live = weakref.WeakSet()  # windows with figures that are still in the library
        self.handles = set()
        self.ctx = _native.open_context(meter._nvml_library, meter._backend)
        self.handle = c_void_p()
        try:
            options, keep = meter._options()
            lib.check(
                lib.meter_start(self.ctx, byref(options), byref(self.handle)),
                "the meter could not be started" + meter._selection(), self.ctx,
            )
            del keep
            self.count = lib.meter_device_count(self.handle)
            self.reason, self.simulated = self._look(lib)
        except BaseException:
            lib.close(self.ctx)
            raise

    def _look(self, lib):
        """Why there is no GPU, or None, and which of them are simulated."""
        snap = c_void_p()
        lib.check(lib.snapshot_new(self.ctx, byref(snap)), "the GPUs could not be read", self.ctx)
        try:
            lib.check(lib.snapshot_take(snap, 0), "the GPUs could not be read", self.ctx)
            status = lib.snapshot_status(snap).contents
            key, sentence = _native.cause(status.cause)
            reason = None if self.count else (key, text(status.message) or sentence)
            return reason, [self._simulated(lib, snap, i) for i in range(self.count)]
        finally:
            lib.snapshot_free(snap)

    def _simulated(self, lib, snap, i):
        device = lib.snapshot_device(snap, lib.meter_device(self.handle, i))
        return bool(device) and device.contents.provenance == _native.FROM_SIMULATOR

    def free_window(self, handle):
        with self.lock:
            if handle in self.handles:
                self.handles.discard(handle)
                _native.library().window_free(c_void_p(handle))

    def stop(self):
        lib = _native.library()
        with self.lock:
            if self.stopped:
                return
            self.stopped = True
            self.handles.clear()  # freed with the meter
            lib.meter_stop(self.handle)
            lib.close(self.ctx)


def _forget(running, handle):
    """A window was deleted before its figures were read."""
    if running.pid == os.getpid():
        running.free_window(handle)


def _abandon(running):
    """A meter was deleted, or the program ends, without stop()."""
    if running.pid == os.getpid():
        running.stop()


class Meter:
    """Measures GPUs from its first window (or start()) until stop().

    gpus          selectors such as "0", "GPU-51d0" or "cuda:1", one or several; None: all
    interval      seconds between readings of clocks, temperature, ...; None: 0.1
    nvml_library  path of libnvidia-ml.so.1; None: search for it
    backend       "auto", "nvml", "amdgpu", ...; None: auto

    Windows may be nested, may overlap and may be used from several threads.  After fork() the
    child's copy starts a meter of its own when it is next used.
    """

    def __init__(self, gpus: Union[str, int, Iterable[Union[str, int]], None] = None, interval: Optional[float] = None,
                 nvml_library: Optional[str] = None, backend: Optional[str] = None) -> None:
        if isinstance(gpus, (str, int)):
            gpus = [gpus]
        self._gpus = None if gpus is None else [str(g) for g in gpus]
        if self._gpus is not None and not self._gpus:
            raise ValueError("gpus names no GPU: leave it out to measure all")
        if interval is not None and not 0 < interval <= 3600:
            raise ValueError("an interval of %r seconds makes no sense" % (interval,))
        self._interval_ns = 0 if interval is None else int(round(interval * 1e9))
        self._nvml_library = nvml_library
        self._backend = backend
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._running: Any = None  # a _Running
        self._stopped = False

    def _options(self):
        keep = None
        options = _native.MeterOptions(
            size=sizeof(_native.MeterOptions), interval_ns=self._interval_ns)
        if self._gpus is not None:
            names = [g.encode() for g in self._gpus]
            keep = (c_char_p * (len(names) + 1))(*names, None)
            options.gpus = keep
        return options, keep

    def _selection(self):
        return "" if self._gpus is None else " on " + ", ".join(self._gpus)

    # ---- start and stop

    def _here(self):
        """Resets the meter in a forked child: what was started before fork() belongs to the parent."""
        if self._pid != os.getpid():
            self._lock = threading.RLock()
            self._running = None
            self._stopped = False
            self._pid = os.getpid()

    def start(self) -> Meter:
        """Starts now rather than at the first window.  Loading the driver takes time."""
        self._here()
        with self._lock:
            if self._stopped:
                raise GpuwardError("the meter was stopped")
            if self._running is None:
                self._running = _Running(self)
                weakref.finalize(self, _abandon, self._running)
            return self

    def stop(self) -> None:
        """Stops the meter.  Open windows end now; their figures stay readable."""
        self._here()
        with self._lock:
            running, self._running = self._running, None
            self._stopped = True
            if running is None:
                return
            for window in list(running.live):
                with window._lock:
                    window.end()
                    if window._result is None:
                        window._result = self._read(running, window, WAIT_SECONDS)
            running.stop()

    def __enter__(self) -> Meter:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __len__(self) -> int:
        """Number of GPUs that it measures."""
        return self.start()._running.count

    def __bool__(self) -> bool:
        return True

    # ---- windows

    def window(self, label: str = "") -> Window:
        """A Window that begins with its `with` block."""
        return Window(self, label)

    def _open_window(self, window):
        self.start()
        lib = _native.library()
        with self._lock:
            running = self._running
            if running is None:
                raise GpuwardError("the meter was stopped")
            handle = c_void_p()
            label = str(window.label).encode("utf-8", "replace").replace(b"\0", b"?")
            lib.check(
                lib.window_open(running.handle, label, 0, byref(handle)),
                "window %r could not be opened" % window.label, running.ctx,
            )
            with running.lock:
                running.handles.add(handle.value)
                running.live.add(window)
            window._finalizer = weakref.finalize(window, _forget, running, handle.value)
            window._finalizer.atexit = False
            window._running = running
            return handle

    @staticmethod
    def _read(running, window, timeout):
        """Reads the figures and frees the window.  The caller holds the window's lock."""
        lib = _native.library()
        if running.stopped:
            raise GpuwardError("the meter was stopped before the figures were read")
        result = lib.window_wait(window._handle, int(max(0, timeout) * 1e9))
        if result < 0 and result != -_native.E_TIMEOUT:
            lib.check(result, "window %r has no result" % window.label, running.ctx)
        devices, seconds = [], None
        for i in range(running.count):
            energy = lib.window_energy(window._handle, i)
            if energy:
                devices.append(Energy(energy, running.simulated[i]))
                seconds = devices[-1].seconds
        window._finalizer.detach()
        running.live.discard(window)
        running.free_window(window._handle.value)
        window._handle = None
        if seconds is None:
            seconds = window._end - window._begin
        return Result(window.label, seconds, devices, running.reason)


# ---- the default meter

_lock = threading.Lock()
_default: Optional[Meter] = None


def default_meter() -> Meter:
    """The meter of gpuward.window(): all GPUs, started at its first use, stopped at exit."""
    global _default
    with _lock:
        if _default is None:
            _default = Meter()
        return _default


def window(label: str = "") -> Window:
    """A Window of the default meter."""
    return default_meter().window(label)


def _fork():
    global _lock, _default
    _lock = threading.Lock()  # another thread may have held it
    _default = None


os.register_at_fork(after_in_child=_fork)
