"""A value with its uncertainty."""
from __future__ import annotations

from typing import NamedTuple, Optional


class Interval(NamedTuple):
    """A value and the interval that contains the true value with 95 % probability."""

    low: Optional[float]
    best: float
    high: Optional[float]

    def __float__(self) -> float:
        return float(self.best)

    def __str__(self) -> str:
        return "%.6g [%s]" % (
            self.best, ", ".join("?" if x is None else "%.6g" % x for x in (self.low, self.high)))

    def over(self, n: float) -> Interval:
        """Returns the interval divided by n, such as the energy per item."""
        return Interval(None if self.low is None else self.low / n, self.best / n,
                        None if self.high is None else self.high / n)
