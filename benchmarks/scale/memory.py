"""How much memory this process has, and has had, as Linux counts it."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

from feddst.errors import OptionError

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> int:
    """Bytes of this process in memory now."""
    return _bytes("VmRSS")


def peak() -> int:
    """The most bytes of this process in memory since `forget_peak`."""
    return _bytes("VmHWM")


def forget_peak() -> None:
    """Begin anew with what is in memory now; raises `OptionError` where the system cannot."""
    try:
        _RESET.write_text("5")
    except OSError:
        raise OptionError(f"peaks of memory are measured with {_RESET}, which cannot be used here") from None


def tidy() -> None:
    """Give back what is free: Python's garbage, and what malloc keeps for later."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _bytes(name: str) -> int:
    [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:")]
    return 1024 * int(line.split()[1])
