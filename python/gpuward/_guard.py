"""The guard of this program.  It calls evict() when another process needs the GPU, and resume() afterwards.

    def evict(size, seconds):           # runs on a thread of the library
        with lock:                      # waits for the running job
            model.to("cpu")
            torch.cuda.empty_cache()

    def resume(seconds):
        with lock:
            model.to("cuda")

    with gpuward.guard(evict, resume, name="chat") as g:
        for job in jobs:
            g.wait()                    # waits until this program may use the GPU
            with lock:
                run(job)
"""
from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import weakref
from ctypes import byref, c_void_p, sizeof
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type

from . import _native
from ._native import GpuwardError, Names, Path, text

Evict = Callable[[int, float], Any]  # bytes, seconds
Resume = Callable[[float], Any]  # seconds

MODES = ("enforce", "dry-run", "observe")  # enum gw_guard_mode
FLAGS = ("any", "named", "unattributed", "leave_blind", "health", "simulated")  # gw_guard_flag
REQUESTS = ("evict", "resume", "hold evicted", "hold active", "release", "resume now")  # gw_guard_request
HOLDS = (None, "evicted", "active")  # enum gw_worker_hold
CALLS = (None, "evict", "resume")  # enum gw_worker_call
FOR_EVER = (1 << 64) - 1  # UINT64_MAX: no time limit
DEADLINE_NS = 5 * 10**9  # time limit of one driver call
STOP_SECONDS = 10.0

_left: List[_Running] = []  # guards that must stay in memory, because a callback has not returned


class GuardStatus:
    """State of the worker, with every field of struct gw_guard_status.  Sets and enums are words.

    state       "active", "evicted", ...
    reasons     why the worker may not run, such as ("contention",)
    why         state and reasons as a sentence
    call        "evict" or "resume" while that callback runs; otherwise None
    overdue     True if that callback runs longer than its deadline
    """

    state: str
    reasons: Tuple[str, ...]
    hold: Optional[str]
    call: Optional[str]
    why: str
    overdue: bool
    allowed: bool

    def __init__(self, lib: Any, c: Any) -> None:
        for name, _ in _native.GuardStatus._fields_[1:]:
            setattr(self, name, getattr(c, name))
        for name in ("overdue", "allowed", "dry", "blind", "hung", "quarantine"):
            setattr(self, name, bool(getattr(c, name)))
        self.state = text(lib.worker_state_name(c.state))
        self.reasons = _reasons(lib, c.reasons)
        self.hold = HOLDS[c.hold]
        self.call = CALLS[c.call]
        self.why = text(c.why)

    def __repr__(self) -> str:
        return "<gpuward.GuardStatus %s: %s>" % (
            " ".join((self.state,) + self.reasons), self.why)


def _reasons(lib: Any, bits: int) -> Tuple[str, ...]:
    return tuple(text(lib.worker_reason_name(i)) for i in range(32) if bits >> i & 1)


def _ns(seconds: Optional[float], what: str) -> int:
    if seconds is None:
        return 0
    if not 0 <= seconds <= 10**9:
        raise ValueError("%s must be 0 to 10**9 seconds, not %r" % (what, seconds))
    return max(1, int(round(seconds * 1e9)))


def _left_seconds(deadline_ns: int) -> float:
    return max(0.0, (deadline_ns - time.monotonic_ns()) * 1e-9)


class _Running:
    """A started guard and its callbacks.  It has no reference to the Guard, so that a Guard can be deleted."""

    def __init__(self, evict: Any, resume: Any, decided: Any, nvml_library: Optional[Path],
                 backend: Optional[str], options: Tuple[Any, Any]) -> None:
        self.pid = os.getpid()
        self.handle: Optional[c_void_p] = c_void_p()
        self.users = 0  # number of threads that are calling the library with the handle
        self.free = threading.Condition()
        self.ctx: Any = None
        self.error: Optional[Exception] = None
        self._keep = options  # keeps the lists alive that the options point to
        c = options[0]
        if evict:
            c.evict = _native.EVICT(
                lambda _, size, deadline: self._call(evict, size, _left_seconds(deadline)))
        if resume:
            c.resume = _native.RESUME(
                lambda _, deadline: self._call(resume, _left_seconds(deadline)))
        if decided:
            c.decided = _native.DECIDED(lambda _, d: self._call(decided, text(d.contents.text)))
        lib = _native.library()
        self.ctx = _native.open_context(nvml_library, backend, DEADLINE_NS)
        try:
            lib.check(lib.guard_start(self.ctx, byref(c), byref(self.handle)),
                      "the guard could not be started", self.ctx)
        except BaseException:
            lib.close(self.ctx)
            raise

    def _call(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls a callback.  Returns 0, or -E_STATE if the callback returns False ("not now").  An exception is a
        failure: it is stored and printed, and the result is -E_IO."""
        try:
            answer = function(*arguments)
        except Exception as e:  # noqa: B902 (no exception may reach the library)
            self.error = e
            traceback.print_exc(file=sys.stderr)
            return -_native.E_IO
        return -_native.E_STATE if answer is False else 0

    def use(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of the library on the guard.  Returns None if the guard has ended."""
        if self.pid != os.getpid():
            return None  # this is a forked child; the guard belongs to the parent
        with self.free:
            handle = self.handle
            if handle is None:
                return None
            self.users += 1
        try:
            return function(handle, *arguments)
        finally:
            with self.free:
                self.users -= 1
                self.free.notify_all()

    def stop(self, seconds: Optional[float]) -> bool:
        """Stops the guard.  Returns False if a callback has not returned; the library then still uses the guard."""
        lib = _native.library()
        if self.pid != os.getpid():
            return True
        with self.free:
            handle, self.handle = self.handle, None
            self.free.wait_for(lambda: self.users == 0)
        if handle is None:
            return True
        result = lib.guard_stop(handle, _ns(seconds, "a timeout"))
        if result == -_native.E_STATE:
            _left.append(self)
            return False
        if result < 0:
            self.handle = handle
            raise GpuwardError("a callback cannot stop the guard that calls it")
        lib.close(self.ctx)
        return True


def _abandon(running: _Running) -> None:
    """Stops the guard.  Runs if a Guard is deleted, or the program ends, without stop()."""
    if running.handle is not None:
        running.stop(STOP_SECONDS)


class Guard:
    """Guards this program from start() (or `with`) until stop().

    evict(size, seconds)  must free all GPU memory of the program, about `size` bytes, within `seconds`.  If it
                          returns False ("not now"), the guard calls it again.  None: the program polls `allowed`
    resume(seconds)       must allocate the memory again.  None: the program does so when it is allowed to
    decided(text)         is called with a sentence about each decision
    name                  name of the worker in decisions
    gpus                  GPUs on which the program is guarded: index, UUID or its beginning, PCI id, ...; None: all
                          GPUs on which the program holds memory
    mode                  "enforce", "dry-run" or "observe"
    any                   True: every other process is a contender, however little memory it uses
    named                 True: only processes in contend and contend_now are contenders
    unattributed          True: memory that no visible process owns counts as a contender; useful in a container
    leave_blind           True: leave a GPU that cannot be read
    health                True: leave a GPU that is too hot or needs a reset
    simulated             True: also act on simulated GPUs
    min_vram, headroom               limits in bytes; None: the default
    debounce, quiet, resident, poll  times in seconds; None: the default
    ignore, contend_now, contend     names of processes; they may contain * and ?
    nvml_library, backend            the same as for Meter

    The callbacks run on a thread of the library, one at a time.  If a callback raises an exception, the guard
    prints it, stores it in `error` and tries again.
    """

    def __init__(self, evict: Optional[Evict] = None, resume: Optional[Resume] = None, *,
                 decided: Optional[Callable[[str], Any]] = None, name: str = "worker", gpus: Names = None,
                 mode: str = "enforce", any: bool = False, named: bool = False, unattributed: bool = False,
                 leave_blind: bool = False, health: bool = False, simulated: bool = False,
                 min_vram: Optional[int] = None, headroom: Optional[int] = None, debounce: Optional[float] = None,
                 quiet: Optional[float] = None, resident: Optional[float] = None, poll: Optional[float] = None,
                 ignore: Names = None, contend_now: Names = None, contend: Names = None,
                 nvml_library: Optional[Path] = None, backend: Optional[str] = None) -> None:
        if mode not in MODES:
            raise ValueError("mode is %r, but must be one of %s" % (mode, ", ".join(MODES)))
        given = dict(any=any, named=named, unattributed=unattributed, leave_blind=leave_blind,
                     health=health, simulated=simulated)
        lists = [_native.names(v) for v in (gpus, ignore, contend_now, contend)]
        self._options = _native.GuardOptions(
            size=sizeof(_native.GuardOptions), name=str(name).encode(), gpus=lists[0],
            mode=MODES.index(mode), flags=sum(1 << i for i, f in enumerate(FLAGS) if given[f]),
            min_vram_bytes=min_vram or 0, headroom_bytes=headroom or 0,
            debounce_ns=_ns(debounce, "debounce"), quiet_ns=_ns(quiet, "quiet"),
            resident_ns=_ns(resident, "resident"), poll_ns=_ns(poll, "poll"),
            ignore=lists[1], contend_now=lists[2], contend=lists[3])
        self._keep = lists
        self._calls = (evict, resume, decided)
        self._nvml = (nvml_library, backend)
        self._lock = threading.RLock()
        self._running: Optional[_Running] = None

    def start(self) -> Guard:
        with self._lock:
            if self._running is None:
                self._running = _Running(
                    *self._calls, *self._nvml, (self._options, self._keep))
                weakref.finalize(self, _abandon, self._running)
        return self

    def stop(self, timeout: float = STOP_SECONDS) -> bool:
        """Stops the guard and calls no callback.  Returns False if a running callback did not return within the timeout
        in seconds."""
        with self._lock:
            running = self._running
            ended = running.stop(timeout) if running else True
            self._running = None
        return ended

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.stop()

    def _use(self, function: Callable[..., Any], *arguments: Any) -> Any:
        running = self._running
        result = running.use(function, *arguments) if running else None
        if result is None:
            raise GpuwardError("the guard is not running")
        return result

    @property
    def allowed(self) -> bool:
        """True if the program may use the GPU now.  Also True while the guard does not run.  The call is fast."""
        running = self._running
        return running is None or bool(running.use(_native.library().guard_allowed) != 0)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the program may use the GPU.  Returns False if the timeout in seconds has passed."""
        ns = FOR_EVER if timeout is None else _ns(timeout, "a timeout")
        # Waits in short steps, so that Ctrl-C works.
        until = time.monotonic() + ns * 1e-9
        while not self.allowed:
            left, running = until - time.monotonic(), self._running
            if left <= 0:
                return False
            if running:  # None: another thread has just stopped the guard
                running.use(_native.library().guard_wait, int(min(left, 0.2) * 1e9))
        return True

    def status(self) -> GuardStatus:
        """Returns a GuardStatus."""
        lib = _native.library()
        c = _native.GuardStatus(size=sizeof(_native.GuardStatus))
        lib.check(self._use(lib.guard_status, byref(c)), "the status of the guard could not be read")
        return GuardStatus(lib, c)

    @property
    def error(self) -> Optional[Exception]:
        """The last exception of a callback, or None."""
        return self._running.error if self._running else None

    def _request(self, what: str, ns: int = 0) -> None:
        lib, running = _native.library(), self._running
        result = self._use(lib.guard_request, REQUESTS.index(what), ns)
        lib.check(result, what, running.ctx if running else False)

    def evict(self, seconds: Optional[float] = None) -> None:
        """Requests that the program leaves the GPU now, for this many seconds or until resume()."""
        self._request("evict", _ns(seconds, "an eviction"))

    def resume(self, now: bool = False) -> None:
        """Requests a return to the GPU; now=True: without the quiet time."""
        self._request("resume now" if now else "resume")

    def hold(self, how: str, seconds: Optional[float] = None) -> None:
        """Requests that the program stays "evicted" or "active" for this many seconds; None: until release()."""
        if how not in HOLDS[1:]:
            raise ValueError("a hold must be \"evicted\" or \"active\", not %r" % (how,))
        self._request("hold " + how, FOR_EVER if seconds is None else _ns(seconds, "a hold"))

    def release(self) -> None:
        """Ends a hold."""
        self._request("release")

    def __repr__(self) -> str:
        return "<gpuward.Guard %r: %s>" % (
            text(self._options.name), self.status() if self._running else "not running")


def guard(evict: Optional[Evict] = None, resume: Optional[Resume] = None, **options: Any) -> Guard:
    """`with gpuward.guard(evict, resume) as g:` guards the block; the options are those of Guard."""
    return Guard(evict, resume, **options)
