"""The C library: where it is, its structs and its functions.

Everything that must agree with the C headers is here; tests/e2e/test_python.py compares the layouts
with those of a C compiler.  Codes, causes, quantities and the members of struct gw_energy are read
from the tables of the library, so this module also works with the tables of a newer library.
"""
from __future__ import annotations

import ctypes
import ctypes.util
import math
import os
import pathlib
import sysconfig
import threading
from ctypes import (
    CDLL, CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_size_t,
    c_int64, c_uint, c_uint8, c_uint64, c_void_p, sizeof,
)
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

SONAME = "libgpuward.so.0"
NO_RESULT = 3  # GW_NO_RESULT
E_IO = 5  # GW_E_IO
E_TIMEOUT = 8  # GW_E_TIMEOUT
E_STATE = 12  # GW_E_STATE
FROM_SIMULATOR = 3  # GW_FROM_SIMULATOR
CUDA_NOT_VISIBLE = -2  # GW_CUDA_NOT_VISIBLE
TIERS_COMMON = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 6  # GW_TIERS_COMMON
TIER_STATIC = 1 << 0  # GW_TIER_STATIC
TIER_ENERGY = 1 << 3  # GW_TIER_ENERGY
PROCESS_SM = 1 << 0  # GW_PROCESS_SM
METER_PROCESSES = 1 << 1  # GW_METER_PROCESSES
FACT_TEXT, FACT_NUMBER, FACT_FLAG = range(3)  # enum gw_fact_type


class GpuwardError(Exception):
    """A call failed.  The text says what failed and why."""


class Options(Structure):
    """struct gw_options"""

    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("backend", c_char_p),
        ("nvml_library", c_char_p),
        ("root", c_char_p),
        ("deadline_ns", c_uint64),
    ]


class MeterOptions(Structure):
    """struct gw_meter_options"""

    _fields_ = [
        ("size", c_size_t),
        ("interval_ns", c_uint64),
        ("anchor_ns", c_uint64),
        ("gpus", POINTER(c_char_p)),
        ("flags", c_uint),
        ("cache_dir", c_char_p),
    ]


class GuardDecision(Structure):
    """struct gw_guard_decision"""

    _fields_ = [
        ("mono_ns", c_uint64),
        ("from", c_uint),
        ("to", c_uint),
        ("reasons", c_uint),
        ("dry", c_int),
        ("rule", c_char_p),
        ("evidence", c_char_p),
        ("text", c_char_p),
    ]


EVICT = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)
RESUME = CFUNCTYPE(c_int, c_void_p, c_uint64)
DECIDED = CFUNCTYPE(None, c_void_p, POINTER(GuardDecision))


class GuardOptions(Structure):
    """struct gw_guard_options"""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("gpus", POINTER(c_char_p)),
        ("mode", c_uint),
        ("flags", c_uint),
        ("evict", EVICT),
        ("resume", RESUME),
        ("decided", DECIDED),
        ("arg", c_void_p),
        ("min_vram_bytes", c_uint64),
        ("headroom_bytes", c_uint64),
        ("debounce_ns", c_uint64),
        ("quiet_ns", c_uint64),
        ("resident_ns", c_uint64),
        ("poll_ns", c_uint64),
        ("ignore", POINTER(c_char_p)),
        ("contend_now", POINTER(c_char_p)),
        ("contend", POINTER(c_char_p)),
    ]


class GuardStatus(Structure):
    """struct gw_guard_status"""

    _fields_ = [
        ("size", c_size_t),
        ("state", c_uint),
        ("reasons", c_uint),
        ("hold", c_uint),
        ("call", c_uint),
        ("call_deadline_ns", c_uint64),
        ("overdue", c_int),
        ("allowed", c_int),
        ("dry", c_int),
        ("blind", c_int),
        ("hung", c_int),
        ("quarantine", c_int),
        ("since_ns", c_uint64),
        ("next_ns", c_uint64),
        ("hold_until_ns", c_uint64),
        ("resident_bytes", c_uint64),
        ("need_bytes", c_uint64),
        ("residue_bytes", c_uint64),
        ("backoff_ratio", c_double),
        ("observations", c_uint64),
        ("evictions", c_uint),
        ("resumes", c_uint),
        ("would_evict", c_uint),
        ("why", c_char * 320),
    ]


class CInterval(Structure):
    """struct gw_interval"""

    _fields_ = [("low", c_double), ("best", c_double), ("high", c_double)]


WORD = CFUNCTYPE(c_char_p, c_uint)


class EnergyField(Structure):
    """struct gw_energy_field"""

    _fields_ = [
        ("member", c_char_p),
        ("key", c_char_p),
        ("kind", c_uint),
        ("offset", c_size_t),
        ("count", c_uint),
        ("missing", c_uint),
        ("name", WORD),
    ]


# The values of enum gw_field_kind, and how to read such a member of struct gw_energy at an address.
(FIELD_INDEX, FIELD_TIME, FIELD_FLAG, FIELD_COUNT, FIELD_CODES, FIELD_NUMBER, FIELD_INTERVAL,
 FIELD_WORD, FIELD_LIST) = range(9)
READERS: Dict[int, Callable[[Any, int], Any]] = {
    FIELD_INDEX: lambda f, at: c_uint.from_address(at).value,
    FIELD_TIME: lambda f, at: c_uint64.from_address(at).value,
    FIELD_FLAG: lambda f, at: bool(c_int.from_address(at).value),
    FIELD_COUNT: lambda f, at: c_uint64.from_address(at).value,
    FIELD_CODES: lambda f, at: c_uint64.from_address(at).value,
    FIELD_NUMBER: lambda f, at: number(c_double.from_address(at).value),
    FIELD_INTERVAL: lambda f, at: CInterval.from_address(at),
    FIELD_WORD: lambda f, at: text(f.name(c_uint.from_address(at).value)),
    FIELD_LIST: lambda f, at: {
        text(f.name(i)): number(v) for i, v in enumerate((c_double * f.count).from_address(at))
    },
}


SIZES = {FIELD_INTERVAL: 24, FIELD_LIST: 16 * 8}  # in bytes; members of other kinds have 4 or 8 bytes


class CodeInfo(Structure):
    """struct gw_code_info"""

    _fields_ = [("key", c_char_p), ("sentence", c_char_p), ("level", c_uint)]


class CauseInfo(Structure):
    """struct gw_cause_info"""

    _fields_ = [
        ("key", c_char_p),
        ("sentence", c_char_p),
        ("remedy", c_char_p),
        ("severity", c_uint),
    ]


class QuantityInfo(Structure):
    """struct gw_quantity_info"""

    _fields_ = [("key", c_char_p), ("help", c_char_p), ("kind", c_uint), ("tier", c_uint)]


class Status(Structure):
    """struct gw_status"""

    _fields_ = [
        ("backend", c_char_p),
        ("cause", c_uint),
        ("message", c_char_p),
        ("library_path", c_char_p),
        ("driver_version", c_char_p),
        ("nvml_version", c_char_p),
        ("cuda_version", c_char_p),
        ("missing_symbols", c_char_p),
        ("simulated", c_int),
        ("retry_ns", c_uint64),
        ("opens", c_uint),
    ]


class CDevice(Structure):
    """struct gw_device"""

    _fields_ = [
        ("index", c_uint),
        ("vendor", c_uint),
        ("provenance", c_uint),
        ("state", c_uint),
        ("cause", c_uint),
        ("message", c_char_p),
        ("backend", c_char_p),
        ("begin_ns", c_uint64),
        ("end_ns", c_uint64),
        ("cuda_ordinal", c_int),
        ("mig_count", c_uint),
        ("mig", c_void_p),
        ("text_count", c_uint),
        ("value_count", c_uint),
        ("text", POINTER(c_char_p)),
        ("text_absence", POINTER(c_uint8)),
        ("value", POINTER(c_double)),
        ("value_absence", POINTER(c_uint8)),
        ("reported_margin_c", c_double),
    ]


class CSeries(Structure):
    """struct gw_series"""

    _fields_ = [
        ("begin_ns", c_uint64),
        ("begin_wall_ns", c_uint64),
        ("room", c_size_t),
        ("dropped", c_uint64),
        ("power_count", c_size_t),
        ("power_ns", c_void_p),
        ("power_w", c_void_p),
        ("tick_count", c_size_t),
        ("tick_ns", c_void_p),
        ("figure_count", c_uint),
        ("figure_quantity", POINTER(c_uint)),
        ("figure", POINTER(c_void_p)),
    ]


class CSensor(Structure):
    """struct gw_sensor"""

    _fields_ = [
        ("size", c_size_t),
        ("rung", c_uint),
        ("origin", c_char_p),
        ("model", c_char_p),
        ("period_s", c_double),
        ("window_s", c_double),
        ("lag_s", c_double),
        ("look_ratio", c_double),
        ("counter_absence", c_uint),
        ("counter_tick_s", c_double),
        ("counter_lag_s", c_double),
        ("calibrated", c_int),
        ("gain", c_double),
        ("offset_w", c_double),
        ("gain_u", c_double),
        ("offset_u_w", c_double),
        ("wall_ns", c_uint64),
    ]


class CBaseline(Structure):
    """struct gw_baseline"""

    _fields_ = [
        ("kind", c_uint),
        ("uuid", c_char_p),
        ("power_w", c_double),
        ("u_w", c_double),
        ("seconds", c_double),
        ("temperature_c", c_double),
        ("limit_w", c_double),
        ("wall_ns", c_uint64),
        ("codes", c_uint64),
        ("evidence", c_char_p),
        ("simulated", c_int),
    ]


PROGRESS = CFUNCTYPE(c_int, c_void_p, c_double, c_double, c_double)


class BaselineOptions(Structure):
    """struct gw_baseline_options"""

    _fields_ = [
        ("size", c_size_t),
        ("kind", c_uint),
        ("max_s", c_double),
        ("min_s", c_double),
        ("half_width_w", c_double),
        ("progress", PROGRESS),
        ("arg", c_void_p),
    ]


class NetEnergy(Structure):
    """struct gw_net_energy"""

    _fields_ = [
        ("size", c_size_t),
        ("baseline_joules", c_double),
        ("net", CInterval),
        ("adjusted_joules", c_double),
        ("floored", c_int),
    ]


class Fact(Structure):
    """struct gw_fact"""

    _fields_ = [
        ("section", c_char_p),
        ("key", c_char_p),
        ("type", c_uint),
        ("absence", c_uint),
        ("text", c_char_p),
        ("number", c_double),
    ]


class CProcess(Structure):
    """struct gw_process"""

    _fields_ = [
        ("device", c_uint),
        ("type", c_uint),
        ("pid", c_int64),
        ("start_ticks", c_uint64),
        ("parent", c_int64),
        ("uid", c_int64),
        ("user", c_char_p),
        ("name", c_char_p),
        ("command", c_char_p),
        ("cgroup", c_char_p),
        ("container", c_char_p),
        ("orphan", c_int),
        ("mig_gpu_instance", c_int),
        ("memory_absence", c_uint),
        ("memory_bytes", c_int64),
        ("unit", c_char_p),
        ("run_seconds", c_double),
        ("sm_absence", c_uint),
        ("sm_ratio", c_double),
        ("cpu_absence", c_uint),
        ("cpu_cores", c_double),
    ]


# The structs with their names in C, for the test that compares the layouts.
STRUCTS = {
    "gw_options": Options,
    "gw_meter_options": MeterOptions,
    "gw_interval": CInterval,
    "gw_energy_field": EnergyField,
    "gw_code_info": CodeInfo,
    "gw_cause_info": CauseInfo,
    "gw_quantity_info": QuantityInfo,
    "gw_status": Status,
    "gw_device": CDevice,
    "gw_guard_decision": GuardDecision,
    "gw_guard_options": GuardOptions,
    "gw_guard_status": GuardStatus,
    "gw_series": CSeries,
    "gw_sensor": CSensor,
    "gw_baseline": CBaseline,
    "gw_baseline_options": BaselineOptions,
    "gw_net_energy": NetEnergy,
    "gw_fact": Fact,
    "gw_process": CProcess,
}

# For each function of the library: the type of its result, then the types of its arguments.
FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "gw_version": (c_char_p,),
    "gw_strerror": (c_char_p, c_int),
    "gw_ctx_error": (c_char_p, c_void_p),
    "gw_quantity_info": (POINTER(QuantityInfo), c_uint),
    "gw_host_quantity_info": (POINTER(QuantityInfo), c_uint),
    "gw_text_key": (c_char_p, c_uint),
    "gw_quantity_name": (c_int, c_uint, c_double, c_char_p, c_size_t),
    "gw_absence_key": (c_char_p, c_uint),
    "gw_cause_info": (POINTER(CauseInfo), c_uint),
    "gw_vendor_name": (c_char_p, c_uint),
    "gw_provenance_name": (c_char_p, c_uint),
    "gw_device_state_name": (c_char_p, c_uint),
    "gw_open": (c_int, POINTER(Options), POINTER(c_void_p)),
    "gw_close": (None, c_void_p),
    "gw_snapshot_new": (c_int, c_void_p, POINTER(c_void_p)),
    "gw_snapshot_free": (None, c_void_p),
    "gw_snapshot_take": (c_int, c_void_p, c_uint),
    "gw_snapshot_status": (POINTER(Status), c_void_p),
    "gw_snapshot_mono_ns": (c_uint64, c_void_p),
    "gw_snapshot_wall_ns": (c_uint64, c_void_p),
    "gw_snapshot_device_count": (c_uint, c_void_p),
    "gw_snapshot_device": (POINTER(CDevice), c_void_p, c_uint),
    "gw_snapshot_host": (c_uint, c_void_p, c_uint, POINTER(c_double)),
    "gw_snapshot_resource": (c_uint, c_void_p, c_uint, POINTER(c_double)),
    "gw_snapshot_main_device": (POINTER(CDevice), c_void_p),
    "gw_resource_info": (POINTER(QuantityInfo), c_uint),
    "gw_environment_new": (c_int, c_void_p, POINTER(c_void_p)),
    "gw_environment_free": (None, c_void_p),
    "gw_environment_count": (c_uint, c_void_p),
    "gw_environment_get": (POINTER(Fact), c_void_p, c_uint),
    "gw_process_list_new": (c_int, c_void_p, POINTER(c_void_p)),
    "gw_process_list_want": (c_int, c_void_p, c_uint),
    "gw_process_list_take": (c_int, c_void_p),
    "gw_process_list_count": (c_uint, c_void_p),
    "gw_process_list_get": (POINTER(CProcess), c_void_p, c_uint),
    "gw_process_list_absence": (c_uint, c_void_p, c_uint),
    "gw_code_info": (POINTER(CodeInfo), c_uint),
    "gw_validity_name": (c_char_p, c_uint),
    "gw_energy_field": (POINTER(EnergyField), c_uint),
    "gw_meter_start": (c_int, c_void_p, POINTER(MeterOptions), POINTER(c_void_p)),
    "gw_meter_stop": (c_int, c_void_p),
    "gw_meter_device_count": (c_uint, c_void_p),
    "gw_meter_device": (c_uint, c_void_p, c_uint),
    "gw_window_open": (c_int, c_void_p, c_char_p, c_uint64, POINTER(c_void_p)),
    "gw_window_close": (c_int, c_void_p, c_uint64),
    "gw_window_wait": (c_int, c_void_p, c_uint64),
    "gw_window_energy": (c_void_p, c_void_p, c_uint),
    "gw_window_free": (None, c_void_p),
    "gw_window_open_recorded": (c_int, c_void_p, c_char_p, c_uint64, c_size_t, POINTER(c_void_p)),
    "gw_window_series": (POINTER(CSeries), c_void_p, c_uint),
    "gw_rung_name": (c_char_p, c_uint),
    "gw_meter_sensor": (c_int, c_void_p, c_uint, POINTER(CSensor)),
    "gw_baseline_take": (c_int, c_void_p, c_uint, POINTER(BaselineOptions), POINTER(POINTER(CBaseline))),
    "gw_baseline_load": (c_int, c_void_p, c_uint, c_uint, c_double, c_char_p, POINTER(POINTER(CBaseline))),
    "gw_baseline_save": (c_int, c_void_p, POINTER(CBaseline), c_char_p),
    "gw_baseline_free": (None, POINTER(CBaseline)),
    "gw_baseline_kind_name": (c_char_p, c_uint),
    "gw_baseline_apply": (c_int, c_void_p, c_void_p, POINTER(CBaseline), POINTER(CBaseline), POINTER(NetEnergy)),
    "gw_worker_state_name": (c_char_p, c_uint),
    "gw_worker_reason_name": (c_char_p, c_uint),
    "gw_guard_start": (c_int, c_void_p, POINTER(GuardOptions), POINTER(c_void_p)),
    "gw_guard_stop": (c_int, c_void_p, c_uint64),
    "gw_guard_allowed": (c_int, c_void_p),
    "gw_guard_wait": (c_int, c_void_p, c_uint64),
    "gw_guard_request": (c_int, c_void_p, c_uint, c_uint64),
    "gw_guard_status": (c_int, c_void_p, POINTER(GuardStatus)),
}



def candidates() -> List[str]:
    """Returns the paths and names under which to look for the library, best first."""
    given = os.environ.get("GPUWARD_LIBRARY")
    if given:  # the user named the library: use no other
        return [given]
    here = pathlib.Path(__file__).resolve().parent
    found = [here / "libgpuward.so", here / SONAME]
    found.append(here.parent.parent / "build" / "libgpuward.so")
    # Installed: PREFIX/lib/python3/dist-packages/gpuward and PREFIX/lib/TRIPLET/libgpuward.so.0
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    for up in list(here.parents)[2:5]:
        found += [up / SONAME, up / triplet / SONAME, up / "lib64" / SONAME]
    paths = [str(p) for p in found if p.exists()]
    by_name = ctypes.util.find_library("gpuward")
    return paths + [n for n in (by_name, SONAME) if n]


def _load() -> Tuple[CDLL, str]:
    tried: List[str] = []
    for place in candidates():
        try:
            return CDLL(place, use_errno=True), place
        except OSError as e:
            tried.append("%s (%s)" % (place, e))
    raise GpuwardError(
        "libgpuward was not found: install gpuward, build it (make build), or name it in "
        "GPUWARD_LIBRARY; tried " + "; ".join(tried)
    )


class Library:
    """The loaded library.  Its functions are attributes; their names lack the prefix gw_."""

    def __init__(self) -> None:
        self._dll, self.path = _load()
        for name, (result, *arguments) in FUNCTIONS.items():
            setattr(self, name[3:], self._function(name, result, arguments))

    def __getattr__(self, name: str) -> Any:  # only for names that __init__ did not set
        raise AttributeError("defect of the gpuward module: its table FUNCTIONS has no gw_%s" % name)

    def _function(self, name: str, result: Any, arguments: List[Any]) -> Any:
        try:
            function: Any = getattr(self._dll, name)
        except AttributeError:
            return self._missing(name)
        function.restype = result
        function.argtypes = arguments
        return function

    def _missing(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any) -> Any:
            raise GpuwardError(
                "%s has no function %s, because it is older than this module; update the library" % (self.path, name)
            )

        return refuse

    def check(self, result: int, what: str, ctx: Any = False) -> int:
        """Raises GpuwardError if the result is negative.  The text of the error is `what` and a sentence: the last error
        of ctx; if ctx is None, the error of gw_open(); if ctx is False, the phrase for the error code."""
        if result < 0:
            sentence = "" if ctx is False else text(self.ctx_error(ctx))
            raise GpuwardError("%s: %s" % (what, sentence or text(self.strerror(result))))
        return result


_lock = threading.Lock()
_library: Optional[Library] = None


def library() -> Library:
    """Returns the library, which the first call loads."""
    global _library
    with _lock:
        if _library is None:
            _library = Library()
        return _library


def _fork() -> None:
    global _lock
    _lock = threading.Lock()  # at fork(), another thread may have held the old lock


os.register_at_fork(after_in_child=_fork)



def text(value: Optional[bytes]) -> Any:
    """Converts a string of the library; None stays None."""
    return None if value is None else value.decode("utf-8", "replace")


def number(value: float) -> Optional[float]:
    """Returns the number, or None for nan, which means unknown."""
    return None if math.isnan(value) else value


def cause(code: int) -> Tuple[str, str, str]:
    """Returns the key, the sentence and the remedy of an enum gw_cause."""
    info = library().cause_info(code).contents
    return text(info.key), text(info.sentence), text(info.remedy)


def codes(bits: int) -> Dict[str, str]:
    """Converts a set of codes to {key: sentence}, in the order of their numbers."""
    out: Dict[str, str] = {}
    for i in range(64):
        if bits >> i & 1:
            info = library().code_info(i)
            if info:
                out[text(info.contents.key)] = text(info.contents.sentence)
            else:
                out["code-%d" % i] = "the library has no sentence for this code"
    return out


def energy_fields() -> Iterator[Any]:
    """Yields the descriptions of the members of struct gw_energy."""
    i = 0
    while True:
        field = library().energy_field(i)
        if not field:
            return
        yield field.contents
        i += 1


def validities() -> List[str]:
    """Returns the words of enum gw_validity, best first."""
    return [text(library().validity_name(i)) for i in range(NO_RESULT + 1)]


def energy(address: int) -> Dict[str, Any]:
    """Converts the struct gw_energy at an address to {member: value}; None means unknown."""
    return {
        text(f.member): READERS[f.kind](f, address + f.offset)
        for f in energy_fields() if f.kind in READERS
    }


def energy_copy(address: int) -> Any:
    """Copies the struct gw_energy at an address, with the size that it has in the library."""
    size = max(f.offset + SIZES.get(f.kind, 8) for f in energy_fields())
    return ctypes.create_string_buffer(ctypes.string_at(address, size), size + 64)


Path = Union[str, "os.PathLike[str]"]


def open_context(nvml_library: Optional[Path] = None, backend: Optional[str] = None, deadline_ns: int = 0) -> c_void_p:
    """Opens a struct gw_ctx.  Close it with library().close()."""
    lib = library()
    options = Options(
        size=sizeof(Options),
        backend=encode(backend),
        nvml_library=encode(nvml_library),
        deadline_ns=deadline_ns,
    )
    ctx = c_void_p()
    lib.check(lib.open(byref(options), byref(ctx)), "the GPUs could not be opened", None)
    return ctx


Names = Union[None, int, str, Iterable[Union[int, str]]]


def names(values: Names) -> Any:
    """Converts one or several names to a NULL-terminated list of C strings; None stays None."""
    if values is None:
        return None
    if isinstance(values, (str, int)):
        values = [values]
    found = [str(v).encode() for v in values]
    return (c_char_p * (len(found) + 1))(*found, None)


def encode(value: Optional[Path]) -> Optional[bytes]:
    return None if value is None else os.fsencode(value)
