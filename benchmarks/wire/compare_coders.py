"""Our coders beside a range coder (constriction) and zstd: bytes and milliseconds for masks and quantised values.

    pip install constriction zstandard
    python -m benchmarks.wire.compare_coders --out results/wire-coders.json

Masks are sets of numbers: which weights a mask keeps, and which of them leave and enter when a client readjusts it,
after training on made-up images and, for the smaller network, on the bundled digits.
Ours codes the gaps between the members (feddst.wire.bits); the range coder codes one bit for each number with the
probability of a one in that set; zlib and zstd are given the bitmap. Quantised values are the value section of a real
update: ours is deflate with Huffman's code alone; the range coder codes each tensor's levels with their own
frequencies, the scales as they are; zstd is given the section. How many members a set has, and the frequencies, are
counted for none. What each coder decodes is compared with what it was given. One core; medians.
"""

import argparse
import importlib
import importlib.util
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.wire.entropy import choice_bits, entropy, levels_of, value_bits
from benchmarks.wire.updates import Exchange, NetworkName, answered, exchange
from benchmarks.wire.values import value_section
from feddst.data import federate
from feddst.methods import FedDST
from feddst.models import initial_model, make_module, network
from feddst.runtime import RunConfig
from feddst.runtime.machine import commit, machine
from feddst.sparsity import Sparsity, Timetable
from feddst.stopwatch import one_thread, timed
from feddst.wire import CODECS, ClientTask, Message, Reference
from feddst.wire.bits import BitReader, pack, read_sets, write_sets
from feddst.wire.quantise import Quantiser

NEEDED = ("constriction", "zstandard")
NETWORKS: tuple[NetworkName, ...] = ("mnist-cnn", "resnet18")
LEVEL = 0.8
ALPHAS = (0.01, 0.05)
QUANTISERS = ("q4", "q2")
ZSTD_LEVELS = (3, 19)
REPEATS = 20

Members = NDArray[np.int64]
Sets = Sequence[tuple[int, Members]]
Decode = Callable[[bytes], Any]


@dataclass(frozen=True)
class Row:
    """One coder on one input. `entropy` and `bytes` are bytes."""

    network: str
    what: str
    symbols: int
    coder: str
    bytes: int
    entropy: float
    encode_ms: float
    decode_ms: float


@dataclass(frozen=True)
class Coder:
    """A way to turn one input into bytes and back."""

    name: str
    encode: Callable[[], bytes]
    decode: Decode
    same: Callable[[Any], bool]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the record")
    args = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"missing: {', '.join(missing)}; pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    if args.out is not None and args.out.exists():
        print(f"{args.out} exists already", file=sys.stderr)
        return 2
    rows: list[Row] = []
    with one_thread():
        for row in measured():
            print(_told(row), flush=True)
            rows.append(row)
    if args.out is not None:
        record = {
            "command": "python -m benchmarks.wire.compare_coders",
            "commit": commit(),
            "machine": machine() | {name: version(name) for name in NEEDED},
            "rows": [asdict(row) for row in rows],
        }
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def _told(row: Row) -> str:
    ratio = row.bytes / row.entropy
    times = f"encode {row.encode_ms:8.2f} ms, decode {row.decode_ms:8.2f} ms"
    return f"{row.network:10} {row.what:19} {row.coder:12} {row.bytes:9,} bytes, {ratio:.3f} of the entropy, {times}"


def measured() -> Iterator[Row]:
    """All rows."""
    for name in NETWORKS:
        plain = exchange(name, LEVEL, seed=0)
        yield from _mask_rows(name, "whole mask", _whole(plain))
        for alpha in ALPHAS:
            yield from _mask_rows(name, f"difference α={alpha:g}", _moved(exchange(name, LEVEL, 0, alpha)))
        for codec in QUANTISERS:
            yield from _value_rows(plain, codec)
    for alpha in ALPHAS:
        yield from _mask_rows("mnist-cnn", f"MNIST digits α={alpha:g}", _moved(_on_digits(alpha)))


def _on_digits(alpha: float) -> Exchange:
    """A client's round as the paper has it, on the bundled digits."""
    config = RunConfig()
    federation = federate(config.data, seed=0)
    data = federation.dataset
    module = make_module(lambda: network(config.model, data.input_shape, data.num_classes), seed=0)
    method = FedDST(sparsity=Sparsity(level=LEVEL), readjust=Timetable(alpha=alpha, every=1, decay="constant"))
    state = method.init(initial_model(module), seed=0)
    message = Message().read_as(Reference(method.broadcast(state, 0)))
    task = ClientTask(0, 0, method.plan(state, 0), message, federation.data_of(0).load())
    return answered("mnist-cnn", LEVEL, module, task)


def _whole(sent: Exchange) -> Sets:
    return [(mask.numel(), np.flatnonzero(mask.numpy())) for mask in sent.sent.values()]


def _moved(readjusted: Exchange) -> Sets:
    """Which of each layer's active weights leave, and which of the others enter."""
    sets: list[tuple[int, Members]] = []
    new = readjusted.update.masks or readjusted.sent
    for name, before in readjusted.sent.items():
        old, now = before.numpy().reshape(-1), new[name].numpy().reshape(-1)
        leaving, entering = np.flatnonzero(~now[old]), np.flatnonzero(now[~old])
        sets += [(int(old.sum()), leaving), (int((~old).sum()), entering)]
    return sets


def _mask_rows(network: str, what: str, sets: Sets) -> Iterator[Row]:
    least = sum(choice_bits(size, len(members)) for size, members in sets) / 8
    bitmap = _bitmap(sets)
    packers = [_zlib(bitmap), *(_zstd(bitmap, level) for level in ZSTD_LEVELS)]
    for coder in (_gaps(sets), _range_coded_sets(sets), *packers):
        yield _row(network, what, sum(size for size, _ in sets), least, coder)


def _value_rows(sent: Exchange, name: str) -> Iterator[Row]:
    codec = CODECS[name]
    assert isinstance(codec, Quantiser)
    section, counts = value_section(sent, name)
    least = value_bits(codec, section, counts) / 8
    scales = bytes(section[: 2 * sum(-(-count // 64) for count in counts)])
    ranged = _range_coded_levels(levels_of(codec, section, counts), scales)
    coders = (_deflate(bytes(section)), ranged, *(_zstd(bytes(section), level) for level in ZSTD_LEVELS))
    for coder in coders:
        yield _row(sent.network, f"{name} values", sum(counts), least, coder)


def _row(network: str, what: str, symbols: int, least: float, coder: Coder) -> Row:
    data = coder.encode()
    if not coder.same(coder.decode(data)):
        raise SystemExit(f"{coder.name} does not give back {what} of {network}")
    encode, decode = timed(coder.encode, REPEATS), timed(lambda: coder.decode(data), REPEATS)
    return Row(network, what, symbols, coder.name, len(data), least, 1e3 * encode.median, 1e3 * decode.median)


def _gaps(sets: Sets) -> Coder:
    sizes = [(size, len(members)) for size, members in sets]
    return Coder(
        "ours",
        lambda: pack(write_sets(sets)),
        lambda data: read_sets(BitReader(data), sizes),
        lambda found: all(np.array_equal(got, members) for got, (_, members) in zip(found, sets, strict=True)),
    )


def _range_coded_sets(sets: Sets) -> Coder:
    return _range_coded([_flags(size, members) for size, members in sets], b"", 2)


def _range_coded_levels(levels: Sequence[NDArray[np.int64]], scales: bytes) -> Coder:
    alphabet = max(int(part.max()) for part in levels) + 1
    return _range_coded([part.astype(np.int32) for part in levels], scales, alphabet)


def _range_coded(parts: Sequence[NDArray[np.int32]], raw: bytes, alphabet: int) -> Coder:
    """Each part with its own frequencies; `raw` is put before them as it is."""
    stream = importlib.import_module("constriction").stream
    models = [_model(stream, part, alphabet) for part in parts]

    def encode() -> bytes:
        coder = stream.queue.RangeEncoder()
        for part, model in zip(parts, models, strict=True):
            if model is not None:
                coder.encode(part, model)
        return raw + bytes(coder.get_compressed().tobytes())

    def decode(data: bytes) -> list[NDArray[np.int32]]:
        coder = stream.queue.RangeDecoder(np.frombuffer(data[len(raw) :], dtype=np.uint32).copy())
        return [
            np.full_like(part, part[0] if len(part) else 0) if model is None else coder.decode(model, len(part))
            for part, model in zip(parts, models, strict=True)
        ]

    def same(found: list[NDArray[np.int32]]) -> bool:
        return all(np.array_equal(got, part) for got, part in zip(found, parts, strict=True))

    return Coder("range coder", encode, decode, same)


def _model(stream: Any, part: NDArray[np.int32], alphabet: int) -> Any:
    """None where all symbols are the same and nothing is sent."""
    counts = np.bincount(part, minlength=alphabet)
    if entropy(counts) == 0:
        return None
    return stream.model.Categorical((counts / counts.sum()).astype(np.float32), perfect=False)


def _deflate(section: bytes) -> Coder:
    def encode() -> bytes:
        coder = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        return coder.compress(section) + coder.flush()

    return Coder("ours", encode, lambda data: zlib.decompress(data, -15, len(section)), lambda found: found == section)


def _zlib(data: bytes) -> Coder:
    return Coder("zlib -6", lambda: zlib.compress(data, 6), zlib.decompress, lambda found: found == data)


def _zstd(data: bytes, level: int) -> Coder:
    zstandard = importlib.import_module("zstandard")
    coder, reader = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return Coder(f"zstd -{level}", lambda: bytes(coder.compress(data)), reader.decompress, lambda found: found == data)


def _bitmap(sets: Sets) -> bytes:
    return np.packbits(np.concatenate([_flags(*one) for one in sets]), bitorder="little").tobytes()


def _flags(size: int, members: Members) -> NDArray[np.int32]:
    flags = np.zeros(size, dtype=np.int32)
    flags[members] = 1
    return flags


if __name__ == "__main__":
    sys.exit(main())
