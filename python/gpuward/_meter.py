"""Meters, windows and samplers.  The docstring of the package shows how to use them."""
from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from ctypes import byref, c_void_p, sizeof
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Type, Union

from . import _baseline, _native
from ._baseline import Baseline, Net
from ._interval import Interval
from ._native import GpuwardError, Path, number, text
from ._series import Sensor, Series, sensor_of

Selectors = _native.Names

WAIT_SECONDS = 10.0  # with every known driver, the last sample of a window comes within two seconds
RECORD_MOST = 2**31 - 1  # maximum of record=, because size_t has 32 bits on some machines


def _wait_ns(seconds: float) -> int:
    """Converts seconds to the timeout of gw_window_wait().  A number that is too large means no limit."""
    if seconds != seconds:
        raise ValueError("a timeout must be a number of seconds, not %r" % (seconds,))
    return int(max(0, seconds) * 1e9) if seconds < 10**9 else 2**64 - 1


def _interval(c: Any) -> Optional[Interval]:
    return None if number(c.best) is None else Interval(number(c.low), c.best, number(c.high))


class Energy:
    """Energy of one GPU over one window, with every field of struct gw_energy.  An unknown figure is None.

    joules            energy
    low, high         ends of the 95 % interval of the energy
    interval          an Interval with low, best and high
    relative          an Interval without the error of the board's sensor, to compare runs on this board
    watts             energy divided by time
    validity          "valid", "suspect", "invalid" or "no-result"
    codes             what is wrong or worth knowing, as words
    why               {code: sentence}
    meter             the meter that gave the energy
    rung              the sources that the GPU offers
    verdict           whether the energy counter and the power samples agree
    budget            {contribution: joules} to the uncertainty
    throttle_seconds  {cause: seconds} in which the clocks were reduced
    simulated         True if the GPU is simulated
    """

    device: int
    seconds: float
    validity: str

    def __init__(self, address: int, running: _Running) -> None:
        figures = _native.energy(address)
        self.__dict__.update(figures)
        self._copy = _native.energy_copy(address)
        self._running = running
        self.simulated: bool = running.simulated[self.device]
        self.interval = _interval(figures["joules"])
        self.relative = _interval(figures["relative"])
        whole = self.interval
        self.joules: Optional[float] = whole.best if whole else None
        self.low: Optional[float] = whole.low if whole else None
        self.high: Optional[float] = whole.high if whole else None
        self.why: Dict[str, str] = _native.codes(figures["codes"])
        self.codes: Tuple[str, ...] = tuple(self.why)

    def __getattr__(self, name: str) -> Any:  # lets type checkers accept all members of struct gw_energy
        raise AttributeError("struct gw_energy has no member %s" % name)

    def net(self, before: Baseline, after: Optional[Baseline] = None) -> Net:
        """Returns the energy above a baseline.  `before` was taken before the window; `after`, if given, was taken after
        it, and the mean of both is used.  Call net() before the meter is stopped."""
        with self._running.lock:
            if self._running.stopped or self._running.pid != os.getpid():
                raise GpuwardError("the meter was stopped; call net() while it runs")
            return _baseline.apply(self._running.handle, self._running.ctx, self._copy, before, after)

    @property
    def watts(self) -> Optional[float]:
        return self.joules / self.seconds if self.joules is not None and self.seconds else None

    def __repr__(self) -> str:
        return "<gpuward.Energy gpu %d%s: %s, %s>" % (
            self.device, " (simulated)" if self.simulated else "",
            "unknown" if self.joules is None else "%s J" % (self.interval,),
            " ".join((self.validity,) + self.codes),
        )


def _sum_of(parts: Sequence[Optional[Interval]]) -> Optional[Interval]:
    """Returns the sum of intervals; None if one is unknown.  Low ends and high ends are added, so the sum is also right
    if all boards have the same error."""
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts):
        return None
    lows, highs = [p.low for p in known], [p.high for p in known]
    return Interval(None if None in lows else sum(x for x in lows if x is not None), sum(p.best for p in known),
                    None if None in highs else sum(x for x in highs if x is not None))


class Result:
    """Energy of all GPUs of a meter over one window; returned by Window.result()."""

    def __init__(self, label: str, seconds: float, devices: List[Energy], reason: Optional[Tuple[str, str, str]],
                 series: Optional[List[Series]] = None) -> None:
        self.label = label
        self.seconds = seconds
        self.devices = devices
        self.series = series  # None: the window was not recorded
        self.simulated = any(d.simulated for d in devices)
        self.why: Dict[str, str] = {}
        for d in devices:
            self.why.update(d.why)
        self.remedy = ""
        if not devices and reason:
            self.why, self.remedy = {reason[0]: reason[1]}, reason[2]
        self.codes = tuple(self.why)
        words = _native.validities()
        self.validity = max((d.validity for d in devices), default=words[-1], key=words.index)
        self.interval = _sum_of([d.interval for d in devices])


class Window:
    """A time interval in which energy is measured; made by Meter.window().

    A window begins with its `with` block (or begin()) and ends with the block (or end()).  Begin and end do
    not wait; the first access to a figure waits for the last sample.

    joules, low, high   energy of all GPUs of the meter together, and its 95 % interval; None if unknown, never 0
    seconds             length of the window
    watts               mean power of all GPUs together
    validity            the worst validity of a GPU
    codes               the codes of all GPUs; without a GPU, the cause
    why                 {code: sentence}
    remedy              without a GPU: what to do; otherwise ""
    devices             one Energy per GPU
    series              one Series per GPU, if the window is recorded; also readable while the window is open
    simulated           True if a GPU is simulated
    """

    def __init__(self, meter: Meter, label: str, record: Union[bool, int] = False) -> None:
        if not 0 <= record <= RECORD_MOST:
            raise ValueError("a window cannot record %r readings, only 0 to %d" % (record, RECORD_MOST))
        self.label = label
        self._meter = meter
        self._record = record
        self._lock = threading.RLock()
        self._handle: Optional[c_void_p] = None
        self._running: Any = None  # the _Running of the meter, set by begin()
        self._finalizer: Any = None
        self._pid: Optional[int] = None
        self._result: Optional[Result] = None
        self._state = "new"
        self._begin = self._end = 0.0  # give the length of the window on a machine without GPUs

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
            return self  # this is a copy in a forked child; the parent ends the window
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

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.end()

    def result(self, timeout: float = WAIT_SECONDS) -> Result:
        """Returns all figures.  Waits at most timeout seconds (math.inf: without a limit) for the samples that cover
        the end of the window.  If the samples do not arrive in time, `codes` contains "truncated"."""
        if self._result is None and self._pid is not None and self._pid != os.getpid():
            raise GpuwardError("window %r belongs to the parent process; read its figures there" % self.label)
        with self._lock:
            if self._result is None:
                if self._state != "ended":
                    raise GpuwardError("window %r has not ended" % self.label)
                self._result = self._meter._read(self._running, self, timeout)
            return self._result

    @property
    def series(self) -> List[Series]:
        """The readings of each GPU, in the order of `devices`: the readings so far, or all readings if the window has
        ended.  While the window is open, each access copies the readings again."""
        if not self._record:
            raise GpuwardError("window %r is not recorded: open it with record=True" % self.label)
        with self._lock:
            if self._state == "new":
                raise GpuwardError("window %r has not begun" % self.label)
            if self._state == "open" and self._pid == os.getpid():
                return self._meter._series(self._running, self)
            return self.result().series or []

    def net(self, before: Union[Baseline, Sequence[Baseline]],
            after: Union[None, Baseline, Sequence[Baseline]] = None) -> Net:
        """Returns the energy above a baseline, of all GPUs together.  For several GPUs, give a list with one baseline
        per GPU in the order of `devices`.  The meter must still run."""
        devices = self.result().devices
        first = [before] if isinstance(before, Baseline) else list(before)
        last: List[Optional[Baseline]] = [None] * len(devices)
        if after is not None:
            last = [after] if isinstance(after, Baseline) else list(after)
        if not len(first) == len(last) == len(devices):
            raise ValueError("the window has %d GPUs; give one baseline per GPU" % len(devices))
        nets = [d.net(b, a) for d, b, a in zip(devices, first, last)]
        whole = _sum_of([n.interval for n in nets])
        base = [n.baseline_joules for n in nets]
        return Net(whole, None if whole is None else max(0.0, whole.best), whole is not None and whole.best < 0,
                   None if None in base or not base else sum(x for x in base if x is not None))

    def per(self, n: float) -> Optional[Interval]:
        """Returns the joules per item for n items, with the interval; None if unknown."""
        if not n > 0:
            raise ValueError("the number of items must be above 0, not %r" % (n,))
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
    def remedy(self) -> str:
        return self.result().remedy

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

    def __init__(self, meter: Meter) -> None:
        lib = _native.library()
        self.pid = os.getpid()
        self.stopped = False
        self.count: int
        self.reason: Optional[Tuple[str, str, str]]
        self.simulated: List[bool]
        self.lock = threading.RLock()
        self.live: weakref.WeakSet[Window] = weakref.WeakSet()  # windows whose figures were not read yet
        self.handles: Set[int] = set()  # addresses of the windows in the library
        self.ctx: c_void_p = _native.open_context(meter._nvml_library, meter._backend)
        self.handle: c_void_p = c_void_p()
        try:
            lib.check(
                lib.meter_start(self.ctx, byref(meter._options()), byref(self.handle)),
                "the meter could not be started" + meter._selection(), self.ctx,
            )
            self.count = lib.meter_device_count(self.handle)
            self.reason, self.simulated = self._look(lib)
        except BaseException:
            lib.close(self.ctx)
            raise

    def _look(self, lib: Any) -> Tuple[Optional[Tuple[str, str, str]], List[bool]]:
        """Returns why there is no GPU and what to do (None: there is a GPU), and which GPUs are simulated."""
        snap = c_void_p()
        lib.check(lib.snapshot_new(self.ctx, byref(snap)), "the GPUs could not be read", self.ctx)
        try:
            lib.check(lib.snapshot_take(snap, 0), "the GPUs could not be read", self.ctx)
            status = lib.snapshot_status(snap).contents
            key, sentence, remedy = _native.cause(status.cause)
            reason = None if self.count else (key, text(status.message) or sentence, remedy)
            return reason, [self._simulated(lib, snap, i) for i in range(self.count)]
        finally:
            lib.snapshot_free(snap)

    def _simulated(self, lib: Any, snap: Any, i: int) -> bool:
        device = lib.snapshot_device(snap, lib.meter_device(self.handle, i))
        return bool(device) and device.contents.provenance == _native.FROM_SIMULATOR

    def free_window(self, handle: int) -> None:
        with self.lock:
            if handle in self.handles:
                self.handles.discard(handle)
                _native.library().window_free(c_void_p(handle))

    def stop(self) -> None:
        lib = _native.library()
        with self.lock:
            if self.stopped:
                return
            self.stopped = True
            self.handles.clear()  # meter_stop() frees the windows
            if lib.meter_stop(self.handle) == 0:  # an error means that a hanging driver call still uses the context
                lib.close(self.ctx)


def _forget(running: _Running, handle: int) -> None:
    """Frees the window in the library.  Runs if a Window is deleted before its figures are read."""
    if running.pid == os.getpid():
        running.free_window(handle)


def _abandon(running: _Running) -> None:
    """Stops the meter.  Runs if a Meter is deleted, or the program ends, without stop()."""
    if running.pid == os.getpid():
        running.stop()


class Meter:
    """Measures GPUs from its first window (or start()) until stop().

    gpus          one or several selectors such as "0", "GPU-51d0" or "cuda:1"; None: all GPUs
    interval      seconds between readings of clocks, temperature, ...; None: 0.1
    nvml_library  path of libnvidia-ml.so.1; None: search for it
    backend       "auto", "nvml", "amdgpu", ...; None: "auto"
    processes     True: read the processes on the GPUs once per second.  A process that is neither this one nor
                  its child gives a window the code foreign-process

    Windows may be nested, may overlap and may be used from several threads.  After fork() the
    child's copy starts a meter of its own when it is next used.
    """

    def __init__(self, gpus: Selectors = None, interval: Optional[float] = None,
                 nvml_library: Optional[Path] = None, backend: Optional[str] = None,
                 processes: bool = True) -> None:
        if isinstance(gpus, (str, int)):
            gpus = [gpus]
        self._gpus = None if gpus is None else [str(g) for g in gpus]
        if self._gpus is not None and not self._gpus:
            raise ValueError("the list gpus is empty; name a GPU, or leave gpus out to measure all GPUs")
        if interval is not None and not 0 < interval <= 3600:
            raise ValueError("interval must be above 0 and at most 3600 seconds, not %r" % (interval,))
        self._interval_ns = 0 if interval is None else int(round(interval * 1e9))
        self._nvml_library = nvml_library
        self._backend = backend
        self._processes = processes
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._running: Optional[_Running] = None
        self._stopped = False

    def _options(self) -> Any:
        return _native.MeterOptions(
            size=sizeof(_native.MeterOptions), interval_ns=self._interval_ns, gpus=_native.names(self._gpus),
            flags=_native.METER_PROCESSES if self._processes else 0)

    def _selection(self) -> str:
        return "" if self._gpus is None else " on " + ", ".join(self._gpus)

    def _here(self) -> None:
        """Resets the meter in a forked child, because the running meter belongs to the parent."""
        if self._pid != os.getpid():
            self._lock = threading.RLock()
            self._running = None
            self._stopped = False
            self._pid = os.getpid()

    def start(self) -> Meter:
        """Starts the meter now instead of at the first window, because loading the driver takes time."""
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

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.stop()

    def _started(self) -> _Running:
        self.start()
        running = self._running
        if running is None:
            raise GpuwardError("the meter was stopped")
        return running

    def __len__(self) -> int:
        """Number of GPUs that the meter measures."""
        return self._started().count

    def __bool__(self) -> bool:
        return True

    def window(self, label: str = "", record: Union[bool, int] = False) -> Window:
        """Returns a Window that begins with its `with` block.  record=True keeps its readings for `series`: at most
        262,144 power samples and 262,144 ticks per GPU.  record=N keeps at most N of each."""
        return Window(self, label, record)

    def sensors(self) -> List[Sensor]:
        """Returns what is known about the power sensor of each GPU."""
        lib, running = _native.library(), self._started()
        out = []
        with running.lock:
            if running.stopped:
                raise GpuwardError("the meter was stopped")
            for i in range(running.count):
                c = _native.CSensor(size=sizeof(_native.CSensor))
                lib.check(lib.meter_sensor(running.handle, i, byref(c)), "the sensor of GPU %d could not be read" % i, running.ctx)
                out.append(sensor_of(c))
        return out

    def _open_window(self, window: Window) -> c_void_p:
        self.start()
        lib = _native.library()
        with self._lock:
            running = self._started()
            handle = c_void_p()
            label = str(window.label).encode("utf-8", "replace").replace(b"\0", b"?")
            if window._record:
                points = 0 if window._record is True else window._record
                result = lib.window_open_recorded(running.handle, label, 0, points, byref(handle))
            else:
                result = lib.window_open(running.handle, label, 0, byref(handle))
            lib.check(result, "window %r could not be opened" % window.label, running.ctx)
            assert handle.value is not None
            with running.lock:
                running.handles.add(handle.value)
                running.live.add(window)
            window._finalizer = weakref.finalize(window, _forget, running, handle.value)
            window._finalizer.atexit = False
            window._running = running
            return handle

    @staticmethod
    def _series(running: _Running, window: Window) -> List[Series]:
        """Copies the readings of a recorded window.  Needs the window's lock."""
        lib, out = _native.library(), []
        with running.lock:
            if running.stopped:
                raise GpuwardError("the meter was stopped before the readings were read")
            for i in range(running.count):
                c = lib.window_series(window._handle, i)
                if c:
                    out.append(Series(c.contents, i, running.simulated[i]))
        return out

    @staticmethod
    def _read(running: _Running, window: Window, timeout: float) -> Result:
        """Reads the figures, then frees the window in the library.  Needs the window's lock."""
        lib = _native.library()
        if running.stopped:
            raise GpuwardError("the meter was stopped before the figures were read")
        result = lib.window_wait(window._handle, _wait_ns(timeout))
        if result < 0 and result != -_native.E_TIMEOUT:
            lib.check(result, "window %r has no result" % window.label, running.ctx)
        devices: List[Energy] = []
        seconds: Optional[float] = None
        for i in range(running.count):
            energy = lib.window_energy(window._handle, i)
            if energy:
                devices.append(Energy(energy, running))
                seconds = devices[-1].seconds
        series = Meter._series(running, window) if window._record else None
        window._finalizer.detach()
        running.live.discard(window)
        if window._handle is not None and window._handle.value is not None:
            running.free_window(window._handle.value)
        window._handle = None
        if seconds is None:
            seconds = window._end - window._begin
        _warn_dropped(window.label, series or [])
        return Result(window.label, seconds, devices, running.reason, series)


def _warn_dropped(label: str, series: List[Series]) -> None:
    dropped = sum(s.dropped for s in series)
    if dropped:
        level, frame = 1, sys._getframe()
        while frame.f_back and frame.f_globals.get("__name__", "").startswith(__package__ + "."):
            level, frame = level + 1, frame.f_back  # the warning names the line of the caller
        warnings.warn("window %r: there was no room for %d readings after the first %d, so its series ends early; its "
                      "energy is complete.  Open the window with a larger record=" % (label, dropped, max(s.room for s in series)),
                      RuntimeWarning, stacklevel=level)


class Sampler:
    """Reads GPUs at an interval while its `with` block runs; made by sampler().

    series              one Series per GPU; also readable while the block runs
    window              the Window of the block, which has its energy
    """

    def __init__(self, interval: Optional[float] = None, gpus: Selectors = None, record: Union[bool, int] = True,
                 nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> None:
        self._meter = Meter(gpus, interval, nvml_library, backend)
        self.window = self._meter.window("sampler", record)

    def start(self) -> Sampler:
        self.window.begin()
        return self

    def stop(self) -> None:
        """Stops reading the GPUs.  `series` and the energy stay readable."""
        self.window.end()
        self.window.result()
        self._meter.stop()

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.stop()

    @property
    def series(self) -> List[Series]:
        return self.window.series

    @property
    def simulated(self) -> bool:
        return any(s.simulated for s in self.series)

    def __repr__(self) -> str:
        return "<gpuward.Sampler: %s>" % (self.window._state,)


def sampler(interval: Optional[float] = None, gpus: Selectors = None, record: Union[bool, int] = True,
            nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> Sampler:
    """`with gpuward.sampler(interval=0.1) as s:` reads the GPUs while the block runs; then `s.series` has the
    readings.  Every new value of the power sensor is read.  The other figures are read every `interval` seconds
    (None: 0.1).  record is the maximum number of power samples and of ticks; True: 262,144.
    """
    return Sampler(interval, gpus, record, nvml_library, backend)


_lock = threading.Lock()
_default: Optional[Meter] = None


def default_meter() -> Meter:
    """Returns the meter of gpuward.window().  It measures all GPUs, starts at its first use and stops at exit."""
    global _default
    with _lock:
        if _default is None:
            _default = Meter()
        return _default


def window(label: str = "", record: Union[bool, int] = False) -> Window:
    """Returns a Window of the default meter.  record is the same as for Meter.window()."""
    return default_meter().window(label, record)


def _fork() -> None:
    global _lock, _default
    _lock = threading.Lock()  # at fork(), another thread may have held the old lock
    _default = None


os.register_at_fork(after_in_child=_fork)
