"""Numbers as a person would say them."""

from feddst.experiment.metrics import MIB, Row


def percent(share: float, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{100 * share:.{decimals}f} %"


def mib(row: Row) -> str:
    """The upload so far."""
    return f"{row.upload_bits / MIB:,.1f} MiB"


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
