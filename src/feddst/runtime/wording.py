"""Numbers as a person would say them."""

from collections.abc import Mapping

from feddst.runtime.metrics import MIB, Accounting

WAYS: Mapping[Accounting, str] = {
    "measured": "measured",
    "paper": "by the paper's formula",
    "published": "as the published code adds it up",
}
"""How an upload was counted, in words."""
NOTHING = "–"
"""In place of a missing number."""
_FLOPS = {"GFLOPs": 1e9, "MFLOPs": 1e6, "kFLOPs": 1e3}
"""Units, the largest first."""


def percent(share: float, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{100 * share:.{decimals}f} %"


def size(bits: float) -> str:
    """A number of bits in MiB, or in KiB where that would be nearly none."""
    return f"{1024 * bits / MIB:,.1f} KiB" if 0 < bits < MIB / 10 else f"{bits / MIB:,.1f} MiB"


def forward_pass(sparse: int | None, dense: int | None) -> str:
    """The FLOPs of a forward pass as the model is, and as a dense one; empty if they were not counted."""
    if sparse is None or not dense:
        return ""
    unit, scale = next((unit, scale) for unit, scale in _FLOPS.items() if dense >= scale or scale == 1e3)
    without = "" if sparse == dense else f"; {dense / scale:,.2f} if it were dense"
    return f"{sparse / scale:,.2f} {unit} for one input{without}"


def counted(number: int, thing: str) -> str:
    """A number of things, in the plural where it belongs."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
