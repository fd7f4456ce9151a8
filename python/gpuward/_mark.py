"""Marks: a program that runs under `gpuward measure` reports what it does.

Each mark is one line, written at once to the descriptor in GPUWARD_MARK_FD.  Without the variable
nothing happens, so a program can keep its marks.
"""
import contextlib
import errno
import os
import select
import time

_VARIABLE = "GPUWARD_MARK_FD"
_NAME_BYTES = 63
_closed = False  # who read the marks is gone


def _write(line):
    """One whole line or nothing.  Marks never stop the program that makes them."""
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


def _word(name):
    """A name as a single word of a line, cut to what a window's label holds."""
    word = "_".join(str(name).split())
    word = "".join(c if c.isprintable() else "?" for c in word)
    word = word.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    if not word:
        raise ValueError("a mark needs a name")
    return word


def begin(name):
    """The part called name begins now."""
    _write("begin %s %d" % (_word(name), time.monotonic_ns()))


def end(name):
    """And ends."""
    _write("end %s %d" % (_word(name), time.monotonic_ns()))


@contextlib.contextmanager
def mark(name):
    """`with gpuward.mark("prefill"):` begins and ends a part."""
    begin(name)
    try:
        yield
    finally:
        end(name)


def iteration(n=None):
    """One iteration is over.  n is its number, for people, and not how many there were: of a
    batch call it once for each, or count by tokens().
    """
    _write("iteration" if n is None else "iteration %d" % _count(n))


def tokens(n):
    """So many tokens (images, requests, ...) more were done."""
    _write("tokens %d" % _count(n))


def _count(n):
    if int(n) != n or n < 0:
        raise ValueError("%r is no count" % (n,))
    return int(n)


def under_measure():
    """True where somebody reads the marks."""
    return not _closed and os.environ.get(_VARIABLE, "").isdigit()
