"""Pickles of arrays, read without letting them call anything.

A pickle is a program that names the functions to run. Here every allowed name stands for a plain record
of its arguments, and every other name is refused.
"""

import io
import pickle
import pickletools
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from feddst.errors import DataError


def load_pickle(content: bytes, name: str) -> dict[str, Any]:
    """The dictionary that a pickle of plain values and uint8 arrays holds; `name` is for messages."""
    try:
        loaded = unpickled(content, ARRAYS, encoding="bytes")
        if not isinstance(loaded, dict):
            raise ValueError("it holds no dictionary")
        return {_text(key): _plain(value) for key, value in loaded.items()}
    except Exception as error:  # damaged bytes can make the unpickler raise nearly anything
        raise DataError(f"{name}: damaged or not a CIFAR file ({error})") from None


def unpickled(content: bytes, allowed: "Names", encoding: str) -> Any:
    """What a pickle builds, with a record in place of each object that it may name. Nearly anything can be raised."""
    _refuse_leaps(content)
    return _Restricted(content, allowed, encoding).load()


def _refuse_leaps(content: bytes) -> None:
    """Raise if a memo number in a pickle exceeds the number of its steps so far.

    Real pickles number their memos in order, but the unpickler allocates memory up to any number. Lengths beyond the
    content raise here too.
    """
    for step, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument is not None and argument > step:
            raise pickle.UnpicklingError(f"it remembers a value as number {argument} in step {step}")


class Recorded:
    """What the pickle builds in place of an object: nothing but the arguments and the state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Array(Recorded):
    """Stands for an array."""

    def value(self) -> npt.NDArray[np.uint8]:
        """The array, which must be of unsigned bytes."""
        if self.kind != "u1":
            raise ValueError("an array is not of unsigned bytes")
        return self.read(np.dtype(np.uint8))

    @property
    def kind(self) -> str:
        """What its values are: `u1`, `f8`, …"""
        dtype = self.state[2]
        return _text(dtype.arguments[0]) if isinstance(dtype, _DType) else ""

    def read(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Its bytes as values of this type."""
        _, shape, _, fortran, raw = self.state
        if not isinstance(raw, bytes):
            raise ValueError("an array holds no bytes")
        return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


class _DType(Recorded):
    pass


class _Latin1(Recorded):
    """Stands for `codecs.encode`, with which Python 3 writes bytes in old protocols."""

    def __new__(cls, text: str, codec: str) -> Any:
        if codec != "latin1":
            raise ValueError(f"codec {codec!r} is not allowed")
        return text.encode("latin1")


class _Restricted(pickle.Unpickler):
    def __init__(self, content: bytes, allowed: "Names", encoding: str) -> None:
        super().__init__(io.BytesIO(content), encoding=encoding)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> type[Recorded]:
        if (module, name) not in self._allowed:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return self._allowed[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("persistent ids are not allowed")


Names = Mapping[tuple[str, str], type[Recorded]]
"""What a pickle may name, by module and name, and what stands for it."""

ARRAYS: Names = {
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _Latin1,
}
"""What arrays are pickled with."""


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _plain(value: Any) -> Any:
    return value.value() if isinstance(value, Array) else value
