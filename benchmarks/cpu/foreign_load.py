"""Whether a machine was quiet while something was measured on it."""

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""Of the numbers in the first line of /proc/stat: idle, and waiting for input or output."""

_COUNTED = 8
"""Of the same: those after these are parts of others."""


class ForeignLoad:
    """Processor time of other processes since its making, this one and its children that have ended left out."""

    def __init__(self) -> None:
        self._began = _ticks()
        self._own = _own_seconds()

    def share(self) -> float | None:
        """The share of all processor time that others had; None without Linux's /proc/stat."""
        ended = _ticks()
        if self._began is None or ended is None:
            return None
        busy, all_of_it = (after - before for before, after in zip(self._began, ended, strict=True))
        own = (_own_seconds() - self._own) * os.sysconf("SC_CLK_TCK")
        return max(0.0, busy - own) / max(1, all_of_it)


def _ticks() -> tuple[int, int] | None:
    """Ticks of all processors since the start: those at work, and all."""
    try:
        words = _STAT.read_text().splitlines()[0].split()[1 : 1 + _COUNTED]
    except OSError:
        return None
    ticks = list(map(int, words))
    return sum(ticks) - sum(ticks[place] for place in _IDLE), sum(ticks)


def _own_seconds() -> float:
    return sum(os.times()[:4])
