"""The readings of a window, as arrays that NumPy takes without a copy, and the sensor that made them."""
from __future__ import annotations

import math
from array import array
from ctypes import c_char
from typing import Any, Dict, Iterator, NamedTuple, Optional

from . import _native
from ._native import number, text


class Reading(NamedTuple):
    """One power sample, or one tick with its figures."""

    seconds: float  # since the begin of the window
    watts: Optional[float]  # None for a tick
    figures: Optional[Dict[str, Optional[float]]]  # None for a power sample


def _copy(kind: str, address: Optional[int], count: int) -> Any:
    """Copies `count` numbers of 8 bytes from an address in the library into a Python array."""
    out = array(kind)
    if count and address:
        out.frombytes((c_char * (8 * count)).from_address(address))
    return out


class Series:
    """The readings of one GPU during a recorded window.

    watts             power of each power sample, including the last one before the window and the first one after it
    power_ns          time of each power sample (monotonic, corrected for the sensor's lag)
    figures           {key: array} with one value per tick; the keys are those of gpuward-quantities(7)
    tick_ns           time of each tick (monotonic)
    begin_ns          start of the window on the monotonic clock
    begin_unix        start of the window in seconds since 1970
    dropped           number of readings for which there was no room; 0: the series is complete
    room              maximum number of power samples, and maximum number of ticks
    gpu               number of the GPU in the meter
    simulated         True if the GPU is simulated

    The arrays are of the type array.array and belong to this object: numpy.asarray(s.watts) shares
    their memory.  An unknown figure is nan in an array.  `for reading in series` yields samples and
    ticks in the order of time, with None for an unknown figure.
    """

    def __init__(self, c: Any, gpu: int, simulated: bool) -> None:
        """Copies a struct gw_series, because the library frees it with its window."""
        lib = _native.library()
        self.gpu = gpu
        self.simulated = simulated
        self.begin_ns: int = c.begin_ns
        self.begin_unix: float = c.begin_wall_ns * 1e-9
        self.room: int = c.room
        self.dropped: int = c.dropped
        self.power_ns: array[int] = _copy("Q", c.power_ns, c.power_count)
        self.watts: array[float] = _copy("d", c.power_w, c.power_count)
        self.tick_ns: array[int] = _copy("Q", c.tick_ns, c.tick_count)
        self.figures: Dict[str, array[float]] = {
            text(lib.quantity_info(c.figure_quantity[i]).contents.key):
                _copy("d", c.figure[i], c.tick_count)
            for i in range(c.figure_count)
        }

    @property
    def seconds(self) -> array[float]:
        """Times of the power samples in seconds since the begin of the window."""
        return array("d", ((t - self.begin_ns) * 1e-9 for t in self.power_ns))

    @property
    def tick_seconds(self) -> array[float]:
        """Times of the ticks in seconds since the begin of the window."""
        return array("d", ((t - self.begin_ns) * 1e-9 for t in self.tick_ns))

    def __len__(self) -> int:
        return len(self.power_ns) + len(self.tick_ns)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Reading]:
        p = t = 0
        while p < len(self.power_ns) or t < len(self.tick_ns):
            if t == len(self.tick_ns) or (p < len(self.power_ns) and self.power_ns[p] <= self.tick_ns[t]):
                yield Reading((self.power_ns[p] - self.begin_ns) * 1e-9, self.watts[p], None)
                p += 1
            else:
                figures = {k: None if math.isnan(v[t]) else v[t] for k, v in self.figures.items()}
                yield Reading((self.tick_ns[t] - self.begin_ns) * 1e-9, None, figures)
                t += 1

    def __repr__(self) -> str:
        return "<gpuward.Series gpu %d%s: %d power samples, %d ticks%s>" % (
            self.gpu, " (simulated)" if self.simulated else "", len(self.power_ns), len(self.tick_ns),
            ", %d dropped" % self.dropped if self.dropped else "")


class Sensor(NamedTuple):
    """What is known about the power sensor of a GPU; times in seconds; None: unknown."""

    source: str  # "counter+ring", "polled", ...: the sources that the GPU offers
    origin: str  # "assumed", or measured by `gpuward characterise`: "passive", "active"
    model: str  # "boxcar": mean over `window`; "lowpass": filter with the time constant `window`
    period: Optional[float]  # time between new values
    window: Optional[float]  # averaging window of one value, or the time constant
    lag: Optional[float]  # delay of the values; Series.power_ns is corrected for it
    look_ratio: Optional[float]  # part of the time in which the sensor measures
    counter_tick: Optional[float]  # time between updates of the energy counter; None: there is no counter
    counter_lag: Optional[float]  # at an update, the counter's value is this old
    calibrated: bool  # True if the sensor was compared with an external meter
    gain: Optional[float]  # true power is gain x reading + offset
    offset: Optional[float]
    measured_unix: Optional[float]  # when the sensor was measured; None: it is assumed

    @property
    def assumed(self) -> bool:
        """True if the sensor of this GPU was not measured; typical values are used."""
        return self.origin == "assumed"


def sensor_of(c: Any) -> Sensor:
    """Makes a Sensor from a struct gw_sensor."""
    return Sensor(
        text(_native.library().rung_name(c.rung)), text(c.origin), text(c.model), number(c.period_s),
        number(c.window_s), number(c.lag_s), number(c.look_ratio), number(c.counter_tick_s),
        number(c.counter_lag_s), bool(c.calibrated), number(c.gain), number(c.offset_w),
        c.wall_ns * 1e-9 if c.wall_ns else None)
