"""Whether this installation has compiled kernels, and which instruction set they use."""

import importlib
import os
from functools import cache

from feddst.errors import OptionError
from feddst.options import one_of

ISA_VARIABLE = "FEDDST_ISA"
"""Names an instruction set to use instead of the best that the processor has."""


@cache
def why_missing() -> str:
    """Why there are no compiled kernels; empty if there are."""
    try:
        importlib.import_module("feddst._native")
    except ImportError as error:
        return f"feddst was installed without its compiled kernels ({error})"
    return ""


def chosen_isa() -> str:
    """The instruction set to use; there must be compiled kernels."""
    from feddst import _native

    supported = _native.supported()
    name = os.environ.get(ISA_VARIABLE, "") or supported[0]
    if name not in supported:
        raise OptionError(f"{ISA_VARIABLE} must be {one_of(supported)} on this processor, got {name!r}")
    return name
