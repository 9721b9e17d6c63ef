"""Updates under each value codec: bytes, speed and error."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.wire.entropy import value_bits
from benchmarks.wire.updates import Exchange
from feddst.core import count_active, packed, positions_of
from feddst.stopwatch import Timing, timed
from feddst.wire import CODECS, Reference, WireConfig, decode_update, encode_update, general_codecs
from feddst.wire.header import read_header
from feddst.wire.payload import counts_of
from feddst.wire.quantise import Quantiser

FEWEST_ENCODES, MOST_ENCODES = 5, 100
ENOUGH_VALUES = 1_000_000
"""The squared error is averaged over so many encodings that so many values have been encoded, within these bounds."""


@dataclass(frozen=True)
class Sizes:
    """A payload in bytes, by what they are for; `framing` is header and padding."""

    payload: int
    values: int
    mask: int
    buffers: int
    framing: int


@dataclass(frozen=True)
class Error:
    """Mean squares over all values: of the error, measured and expected, and of the change that is sent."""

    encodes: int
    measured: float
    expected: float | None
    change: float


@dataclass(frozen=True)
class ValueRow:
    """One update with one codec. `bound` is the entropy in bits; `gathered` encodes from dense tensors."""

    network: str
    level: float
    codec: str
    packing: Literal["plain", "deflate"]
    values: int
    sizes: Sizes
    bound: float
    error: Error
    encode: Timing
    gathered: Timing
    decode: Timing

    @property
    def bits(self) -> float:
        """Bits of the payload for each value."""
        return 8 * self.sizes.payload / self.values

    def speed(self, timing: Timing) -> float:
        """Megabytes of float32 in a second."""
        return megabytes(self.values) / timing.median


@dataclass(frozen=True)
class CopyRow:
    """The same values as float32, moved without us: memcpy, and numpy's own files in memory, of `file` bytes."""

    network: str
    level: float
    values: int
    file: int
    memcpy: Timing
    save: Timing
    load: Timing

    def speed(self, timing: Timing) -> float:
        """Megabytes of float32 in a second."""
        return megabytes(self.values) / timing.median


def value_rows(exchanged: Exchange, repeats: int) -> Iterator[ValueRow]:
    """Every codec that carries weights, plain; those that quantise also deflated."""
    for name, codec in general_codecs().items():
        plain = WireConfig(values=name)
        error = _error(exchanged, plain)
        yield _row(exchanged, plain, error, repeats)
        if isinstance(codec, Quantiser):
            yield _row(exchanged, replace(plain, packing="deflate"), error, repeats)


def value_row(exchanged: Exchange, codec: str, repeats: int) -> ValueRow:
    """One codec, plain."""
    wire = WireConfig(values=codec)
    return _row(exchanged, wire, _error(exchanged, wire), repeats)


def copy_row(exchanged: Exchange, repeats: int) -> CopyRow:
    """What the same values cost without us."""
    source = torch.cat([value.reshape(-1) for value in exchanged.update.params.values()]).numpy()
    target = np.empty_like(source)
    file = _saved(source).getvalue()
    return CopyRow(
        exchanged.network,
        exchanged.level,
        exchanged.values,
        file=len(file),
        memcpy=timed(lambda: np.copyto(target, source), repeats),
        save=timed(lambda: _saved(source), repeats),
        load=timed(lambda: np.load(BytesIO(file)), repeats),
    )


def megabytes(values: int) -> float:
    """What values take as float32."""
    return 4 * values / 1e6


def encoded(exchanged: Exchange, wire: WireConfig, client: int = 0) -> bytes:
    """The update's payload, rounded by the random numbers of this client."""
    return encode_update(exchanged.update, replace(exchanged.task, wire=wire, client=client))


def value_section(exchanged: Exchange, codec: str) -> tuple[memoryview, list[int]]:
    """The update's values as bytes, before any packing, and how many each tensor has."""
    payload = memoryview(encoded(exchanged, WireConfig(values=codec)))
    header, _ = read_header(payload)
    return payload[len(payload) - header.value_bytes :], counts_of(exchanged.layout, count_active(exchanged.sent))


def _row(exchanged: Exchange, wire: WireConfig, error: Error, repeats: int) -> ValueRow:
    task = replace(exchanged.task, wire=wire)
    payload = encoded(exchanged, wire)
    return ValueRow(
        network=exchanged.network,
        level=exchanged.level,
        codec=wire.values,
        packing=wire.packing,
        values=exchanged.values,
        sizes=_sizes(exchanged, payload),
        bound=value_bits(CODECS[wire.values], *value_section(exchanged, wire.values)),
        error=error,
        encode=timed(lambda: encoded(exchanged, wire), repeats),
        gathered=timed(lambda: _encoded_from_dense(exchanged, wire), repeats),
        decode=timed(lambda: decode_update(payload, task), repeats),
    )


def _encoded_from_dense(exchanged: Exchange, wire: WireConfig) -> bytes:
    """All that a client does after its training, with nothing worked out before."""
    params = packed(exchanged.dense, positions_of(exchanged.sent))
    fresh = exchanged.task.read_as(Reference(exchanged.reference.broadcast))
    return encoded(replace(exchanged, update=replace(exchanged.update, params=params), task=fresh), wire)


def _sizes(exchanged: Exchange, payload: bytes) -> Sizes:
    header, _ = read_header(memoryview(payload))
    buffers = exchanged.layout.buffer_bytes
    framing = len(payload) - header.mask_bytes - header.value_bytes - buffers
    return Sizes(len(payload), header.value_bytes, header.mask_bytes, buffers, framing)


def _error(exchanged: Exchange, wire: WireConfig) -> Error:
    task, codec = replace(exchanged.task, wire=wire), CODECS[wire.values]
    before = exchanged.reference.values
    changes = [value.reshape(-1) - before[name].reshape(-1) for name, value in exchanged.update.params.items()]
    encodes = min(max(FEWEST_ENCODES, ENOUGH_VALUES // exchanged.values), MOST_ENCODES)
    squares = 0.0
    for client in range(encodes):
        received = decode_update(encoded(exchanged, wire, client), task).params
        squares += sum(_squares(received[name] - value) for name, value in exchanged.update.params.items())
    return Error(
        encodes=encodes,
        measured=squares / encodes / exchanged.values,
        expected=codec.expected_squared_error(changes) if isinstance(codec, Quantiser) else None,
        change=sum(map(_squares, changes)) / exchanged.values,
    )


def _squares(values: torch.Tensor) -> float:
    return float(values.double().square().sum())


def _saved(values: NDArray[np.float32]) -> BytesIO:
    file = BytesIO()
    np.save(file, values)
    return file
