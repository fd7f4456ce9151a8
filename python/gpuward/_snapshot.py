"""snapshot(), processes(), resources() and environment(): the current state of the GPUs and the machine."""
from __future__ import annotations

import os
import threading
from ctypes import byref, c_double, c_void_p, create_string_buffer

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _native
from ._native import Path, text

DEADLINE_NS = 5 * 10**9  # a driver that hangs must not block the caller
NOT_READ = "not_read"  # the figure was not requested; it is omitted, as in `gpuward snapshot`
KIND_FLAG, KIND_ENUM, KIND_MASK = 2, 3, 4  # enum gw_kind


class _Open:
    """A context and a snapshot, which are kept between calls, because opening a driver takes long."""

    def __init__(self, nvml_library: Optional[Path], backend: Optional[str]) -> None:
        lib = _native.library()
        self.ctx = _native.open_context(nvml_library, backend, DEADLINE_NS)
        self.snap = c_void_p()
        self.processes: Optional[c_void_p] = None  # made by the first processes()
        lib.check(lib.snapshot_new(self.ctx, byref(self.snap)), "the snapshot could not be created", self.ctx)


_lock = threading.Lock()
_open: Dict[Tuple[Optional[str], Optional[str]], _Open] = {}


def _fork() -> None:
    global _lock
    _lock = threading.Lock()  # at fork(), another thread may have held the old lock
    _open.clear()  # these contexts belong to the parent


os.register_at_fork(after_in_child=_fork)


def _rows(info: Any) -> Iterator[Tuple[int, str, int]]:
    """Yields number, key and kind of each quantity of a table."""
    n = 0
    while True:
        row = info(n)
        if not row:
            return
        yield n, text(row.contents.key), row.contents.kind
        n += 1


def _value(lib: Any, quantity: int, kind: int, value: float) -> Any:
    if kind == KIND_FLAG:
        return value != 0
    if kind not in (KIND_ENUM, KIND_MASK):
        return int(value) if value == int(value) and abs(value) >= 2**31 else value
    out = create_string_buffer(256)
    lib.check(lib.quantity_name(quantity, value, out, len(out)), "the library has no name for the value of a figure")
    words = out.value.decode()
    return words if kind == KIND_ENUM else [w for w in words.split(",") if w]


def _device(lib: Any, d: Any) -> Dict[str, Any]:
    absent = {}
    if d.cuda_ordinal < 0:
        absent["cuda_ordinal"] = "not_visible" if d.cuda_ordinal == _native.CUDA_NOT_VISIBLE else "order_unknown"
    doc = {
        "index": d.index,
        "vendor": text(lib.vendor_name(d.vendor)),
        "backend": text(d.backend),
        "provenance": text(lib.provenance_name(d.provenance)),
        "state": text(lib.device_state_name(d.state)),
        "cause": _native.cause(d.cause)[0] if d.cause else None,
        "message": text(d.message) or None,
        "cuda_ordinal": d.cuda_ordinal if d.cuda_ordinal >= 0 else None,
    }
    for i in range(d.text_count):
        key = text(lib.text_key(i))
        doc[key] = None
        if d.text_absence[i]:
            absent[key] = text(lib.absence_key(d.text_absence[i]))
        else:
            doc[key] = text(d.text[i])
    for i, key, kind in _rows(lib.quantity_info):
        if i >= d.value_count:
            break
        why = text(lib.absence_key(d.value_absence[i]))
        if why == NOT_READ:
            continue
        doc[key] = None
        if d.value_absence[i]:
            absent[key] = why
        else:
            doc[key] = _value(lib, i, kind, d.value[i])
    doc["absent"] = absent
    return doc


def _host(lib: Any, snap: Any) -> Dict[str, Any]:
    doc: Dict[str, Any] = {}
    absent: Dict[str, str] = {}
    for i, key, _ in _rows(lib.host_quantity_info):
        value = c_double()
        why = lib.snapshot_host(snap, i, byref(value))
        doc[key] = None if why else value.value
        if why:
            absent[key] = text(lib.absence_key(why))
    doc["absent"] = absent
    return doc


def _source(s: Any) -> Dict[str, Any]:
    return {
        "backend": text(s.backend),
        "cause": _native.cause(s.cause)[0] if s.cause else None,
        "message": text(s.message) or None,
        "nvml_library": text(s.library_path),
        "driver_version": text(s.driver_version),
        "nvml_version": text(s.nvml_version),
        "cuda_version": text(s.cuda_version),
        "simulated": bool(s.simulated),
    }


def _take(nvml_library: Optional[Path], backend: Optional[str], tiers: int) -> _Open:
    """Takes a snapshot with the kept context.  Needs _lock."""
    lib = _native.library()
    key = (str(nvml_library) if nvml_library else None, backend)
    if key not in _open:
        _open[key] = _Open(nvml_library, backend)
    opened = _open[key]
    lib.check(lib.snapshot_take(opened.snap, tiers), "the GPUs could not be read", opened.ctx)
    return opened


def snapshot(nvml_library: Optional[Path] = None, backend: Optional[str] = None, energy: bool = False) -> Dict[str, Any]:
    """Returns a dict with `source` (the open backend, or why none is open), `host` and `devices`.

    Figures have the keys of gpuward-quantities(7).  An unknown figure is None, and
    `absent` has the reason under the same key.  energy=True also reads the energy counter, which
    takes milliseconds.
    """
    lib = _native.library()
    with _lock:
        snap = _take(nvml_library, backend, _native.TIERS_COMMON | (_native.TIER_ENERGY if energy else 0)).snap
        return {
            "monotonic_ns": lib.snapshot_mono_ns(snap),
            "wall_ns": lib.snapshot_wall_ns(snap),
            "source": _source(lib.snapshot_status(snap).contents),
            "host": _host(lib, snap),
            "devices": [
                _device(lib, lib.snapshot_device(snap, i).contents)
                for i in range(lib.snapshot_device_count(snap))
            ],
        }


def resources(nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> Dict[str, Any]:
    """Returns single figures of the machine in one dict, for programs that can handle only one GPU.

    gpu_available, gpu_name, gpu_count, gpu_total_vram_gb, gpu_used_vram_gb, ... describe the first GPU
    that answers and have the keys of `gpuward snapshot --json`; cpu_utilization_ratio, ram_used_bytes,
    ... describe the host.  An unknown figure is None, and `absent` has the reason under the same
    key. CPU utilisation is the mean since the previous call; the first call has no CPU utilisation.
    """
    lib = _native.library()
    with _lock:
        snap = _take(nvml_library, backend, _native.TIERS_COMMON).snap
        doc: Dict[str, Any] = {"gpu_name": None}
        absent: Dict[str, str] = {}
        for i, key, kind in _rows(lib.resource_info):
            value = c_double()
            why = lib.snapshot_resource(snap, i, byref(value))
            doc[key] = None if why else value.value != 0 if kind == KIND_FLAG else value.value
            if why:
                absent[key] = text(lib.absence_key(why))
        main = lib.snapshot_main_device(snap)
        device = _device(lib, main.contents) if main else {"name": None, "absent": {"name": absent["gpu_vram_gb"]}}
        doc["gpu_name"] = device["name"]
        if doc["gpu_name"] is None:
            absent["gpu_name"] = device["absent"]["name"]
        doc["gpu_count"] = int(doc["gpu_count"])
        host = _host(lib, snap)
        absent.update(host.pop("absent"))
        doc.update(host)
        doc["absent"] = absent
        return doc


def environment(nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> Dict[str, Dict[str, Any]]:
    """Returns the facts about the machine that are stored with a result: {section: {key: value}}, as `gpuward env
    --json` prints them.  An unknown fact is None, and `absent` of its section has the reason.
    """
    lib = _native.library()
    doc: Dict[str, Dict[str, Any]] = {}
    with _lock:
        opened = _take(nvml_library, backend, 0)
        env = c_void_p()
        lib.check(lib.environment_new(opened.ctx, byref(env)), "the machine could not be described", opened.ctx)
        try:
            for i in range(lib.environment_count(env)):
                fact = lib.environment_get(env, i).contents
                section = doc.setdefault(text(fact.section), {"absent": {}})
                key = text(fact.key)
                section[key] = None
                if fact.absence:
                    section["absent"][key] = text(lib.absence_key(fact.absence))
                elif fact.type == _native.FACT_TEXT:
                    section[key] = text(fact.text)
                elif fact.type == _native.FACT_FLAG:
                    section[key] = fact.number != 0
                else:
                    section[key] = int(fact.number) if fact.number == int(fact.number) else fact.number
        finally:
            lib.environment_free(env)
    return doc


class Process(NamedTuple):
    """A process on a GPU.  The attributes have the names of the keys in `gpuward snapshot --json`.  An unknown
    figure is None, and `absent` has the reason under its name.  A fact that does not exist, such as the container of
    a process outside containers, is None without a reason."""

    device_index: int
    device_uuid: Optional[str]
    pid: int
    start_ticks: Optional[int]  # pid and start_ticks together identify the process
    parent_pid: Optional[int]
    types: Tuple[str, ...]  # "compute", "graphics", "mps"
    name: Optional[str]
    command: Optional[str]
    uid: Optional[int]
    user: Optional[str]
    cgroup: Optional[str]
    container: Optional[str]
    unit: Optional[str]  # systemd service or scope
    orphan: bool  # True: the driver lists the process, but /proc does not have it
    gpu_instance: Optional[int]  # id of the MIG GPU instance
    memory_bytes: Optional[int]  # GPU memory of the process
    utilization_sm_ratio: Optional[float]  # 0 to 1; mean since the previous call, over at least 3 s and at most 60 s
    cpu_used_cores: Optional[float]  # CPU time per second since the previous call; 1 is one busy core
    run_seconds: Optional[float]  # time since the process started
    absent: Dict[str, str]


class ProcessList(List[Process]):
    """A list of processes.  `absent` has {UUID: reason} for each GPU with a missing or incomplete list."""

    absent: Dict[str, str]


PROCESS_TYPES = ("compute", "graphics", "mps")  # enum gw_process_type


def _process(lib: Any, p: Any, device: Any) -> Process:
    figures = {
        "memory_bytes": (p.memory_bytes, p.memory_absence),
        "utilization_sm_ratio": (p.sm_ratio, p.sm_absence),
        "cpu_used_cores": (p.cpu_cores, p.cpu_absence),
    }
    absent = {key: text(lib.absence_key(why)) for key, (_, why) in figures.items() if why}
    run_seconds = _native.number(p.run_seconds)
    if run_seconds is None:
        absent["run_seconds"] = "no_data"
    return Process(
        device_index=device["index"], device_uuid=device["uuid"], pid=p.pid, start_ticks=p.start_ticks or None,
        parent_pid=p.parent if p.parent > 0 else None,
        types=tuple(word for i, word in enumerate(PROCESS_TYPES) if p.type >> i & 1),
        name=text(p.name), command=text(p.command), uid=p.uid if p.uid >= 0 else None, user=text(p.user),
        cgroup=text(p.cgroup), container=text(p.container), unit=text(p.unit), orphan=bool(p.orphan),
        gpu_instance=p.mig_gpu_instance if p.mig_gpu_instance >= 0 else None, run_seconds=run_seconds, absent=absent,
        **{key: None if why else value for key, (value, why) in figures.items()},
    )


def processes(nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> ProcessList:
    """Returns the processes on the GPUs, each once per GPU.

    CPU utilisation is the mean since the previous call; the first call has none.  Only a running service knows the
    energy of a process: GET /api/v1/processes.
    """
    lib = _native.library()
    with _lock:
        opened = _take(nvml_library, backend, _native.TIER_STATIC)
        if opened.processes is None:
            made = c_void_p()
            lib.check(lib.process_list_new(opened.ctx, byref(made)), "the process list could not be created", opened.ctx)
            lib.check(lib.process_list_want(made, _native.PROCESS_SM), "the utilisation of processes could not be requested", opened.ctx)
            opened.processes = made
        listed = opened.processes
        lib.check(lib.process_list_take(listed), "the processes could not be read", opened.ctx)
        devices = [_device(lib, lib.snapshot_device(opened.snap, i).contents)
                   for i in range(lib.snapshot_device_count(opened.snap))]
        rows = (lib.process_list_get(listed, i).contents for i in range(lib.process_list_count(listed)))
        found = ProcessList(_process(lib, p, devices[p.device]) for p in rows if p.device < len(devices))
        reasons = ((d["uuid"], lib.process_list_absence(listed, i)) for i, d in enumerate(devices))
        found.absent = {uuid: text(lib.absence_key(why)) for uuid, why in reasons if why and uuid}
        return found
