"""Marks: a program that runs under `gpuward measure` reports what it does.

Each mark is one line, which is written at once to the file descriptor in GPUWARD_MARK_FD.  Without this variable
the functions do nothing, so a program can keep its marks.
"""
from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from typing import Iterator, Optional

_VARIABLE = "GPUWARD_MARK_FD"
_NAME_BYTES = 63
_closed = False  # True: gpuward measure no longer reads marks


def _write(line: str) -> None:
    """Writes one whole line or nothing.  A failure never stops the program."""
    global _closed
    number = os.environ.get(_VARIABLE, "")
    if _closed or not number.isdigit():
        return
    data = line.encode() + b"\n"
    while data:
        try:
            data = data[os.write(int(number), data):]
        except BlockingIOError:
            select.select([], [int(number)], [], 1.0)
        except OSError as e:
            if e.errno == errno.EINTR:
                continue
            _closed = True
            return


def _word(name: object) -> str:
    """Returns the name as one word, cut to the length of a window's label."""
    word = "_".join(str(name).split())
    word = "".join(c if c.isprintable() else "?" for c in word)
    word = word.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    if not word:
        raise ValueError("the name of a mark must not be empty")
    return word


def begin(name: object) -> None:
    """Marks the begin of the part with this name."""
    _write("begin %s %d" % (_word(name), time.monotonic_ns()))


def end(name: object) -> None:
    """Marks the end of the part with this name."""
    _write("end %s %d" % (_word(name), time.monotonic_ns()))


@contextlib.contextmanager
def mark(name: object) -> Iterator[None]:
    """`with gpuward.mark("prefill"):` marks the block as a part."""
    begin(name)
    try:
        yield
    finally:
        end(name)


def iteration(n: Optional[int] = None) -> None:
    """Marks the end of one iteration.  n is the number of this iteration, not a count: for a batch, call
    iteration() once per item, or call tokens().
    """
    _write("iteration" if n is None else "iteration %d" % _count(n))


def tokens(n: int) -> None:
    """Adds n tokens (images, requests, ...) to the count."""
    _write("tokens %d" % _count(n))


def _count(n: int) -> int:
    if int(n) != n or n < 0:
        raise ValueError("a count must be a whole number of at least 0, not %r" % (n,))
    return int(n)


def under_measure() -> bool:
    """Returns True if the program runs under `gpuward measure`."""
    return not _closed and os.environ.get(_VARIABLE, "").isdigit()
