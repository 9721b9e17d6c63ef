"""Sparse files are read as if a stranger had made them: what is damaged or hostile is refused, in one way."""

import json
import zlib
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from feddst.errors import CheckpointError, OptionError
from feddst.export.sparse import is_sparse, read_sparse, sparse_bytes
from feddst.runtime.tensorfile import pack, unpack

DRAWS = torch.Generator().manual_seed(2)
MASKS = {"w": torch.rand(6, 9, generator=DRAWS) < 0.3}
PARAMS = {"w": torch.randn(6, 9, generator=DRAWS) * MASKS["w"], "b": torch.randn(6, generator=DRAWS)}
BUFFERS = {"seen": torch.tensor(7), "flags": torch.tensor([True, False]), "mean": torch.randn(6, generator=DRAWS)}
ABOUT = json.dumps({"format": 1, "network": None})


def written(values: str = "float32") -> bytes:
    return sparse_bytes(PARAMS, BUFFERS, MASKS, ABOUT, values=values, round=3, seed=0)


def read(content: bytes) -> tuple[dict[str, Tensor], str]:
    tensors, metadata = unpack(content)
    return read_sparse(tensors, metadata)


def altered(change: Any) -> bytes:
    """The file with another list of tensors, and the checksum that belongs to it."""
    tensors, metadata = unpack(written())
    listed = json.loads(metadata["layout"])
    text = json.dumps(change(listed))
    whole = f"{metadata['feddst']}\n{text}".encode("utf-8", "surrogatepass")
    return pack(tensors, {**metadata, "layout": text, "crc32": f"{zlib.crc32(whole):08x}"})


def test_everything_comes_back() -> None:
    tensors, about = read(written())
    assert about == ABOUT
    assert tensors.keys() == PARAMS.keys() | BUFFERS.keys()
    for name, value in {**PARAMS, **BUFFERS}.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_file_is_refused_or_the_same(data: st.DataObject) -> None:
    whole = bytearray(written(data.draw(st.sampled_from(["float32", "q4"]))))
    intact, _ = read(bytes(whole))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    try:
        tensors, metadata = unpack(bytes(whole[:end]))
        assume(is_sparse(metadata))
        tensors, about = read_sparse(tensors, metadata)
    except CheckpointError:
        return
    assert about == ABOUT
    assert all(torch.equal(value, intact[name]) for name, value in tensors.items())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda listed: {}, "the list of its tensors is none"),
        (lambda listed: [1, *listed], "not described as it should be"),
        (lambda listed: [["params", "b", [2**33], "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [2**30, 2**30], "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [0, 2**31, 2**31], "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [-1], "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [True], "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", "6", "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [1] * 65, "float32"], *listed[1:]], "no sensible shape"),
        (lambda listed: [["params", "b", [6], "int64"], *listed[1:]], "unknown dtype 'int64'"),
        (lambda listed: [["params", "b", [6], "load"], *listed[1:]], "unknown dtype 'load'"),
        (lambda listed: [["params", "\ud800", [6], "float32"], *listed[1:]], "not a parameter or buffer with a name"),
        (lambda listed: [["gradient", "b", [6], "float32"], *listed[1:]], "not a parameter or buffer with a name"),
        (lambda listed: listed[::-1], "not in their order"),
        (lambda listed: [*listed, listed[-1]], "not in their order"),
        (lambda listed: [["params", "b", [2**31], "float32"], *listed[1:]], "at most 4,294,967,295 can be sent"),
        (lambda listed: [["params", "b", [2**26], "float32"], *listed[1:]], "bytes would unpack to 268"),
        (lambda listed: [["params", "b", [7], "float32"], *listed[1:]], "its payload is refused: .* for another model"),
    ],
)
def test_a_list_of_tensors_that_lies_is_refused_before_anything_is_made(change: Any, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        read(altered(change))


def test_a_description_that_was_changed_is_noticed() -> None:
    tensors, metadata = unpack(written())
    with pytest.raises(CheckpointError, match="the checksum of its description"):
        read_sparse(tensors, {**metadata, "feddst": "{}"})


@pytest.mark.parametrize("payload", [torch.zeros(3), torch.zeros(3, 2, dtype=torch.uint8)])
def test_a_payload_that_is_none_is_refused(payload: Tensor) -> None:
    _, metadata = unpack(written())
    with pytest.raises(CheckpointError, match="one payload of bytes"):
        read_sparse({"payload": payload}, metadata)


def test_a_model_of_next_to_nothing_is_not_written_so_that_nobody_could_read_it() -> None:
    size = 5000
    nothing = torch.zeros(size, size)
    with pytest.raises(OptionError, match=r"format must be another: .* more than 1024 times as many"):
        sparse_bytes({"w": nothing}, {}, {"w": nothing.bool()}, ABOUT, values="float32", round=0, seed=0)


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"cannot be written as a sparse file: .* not a number"):
        sparse_bytes({"b": torch.tensor([1.0, float("nan")])}, {}, {}, ABOUT, values="float32", round=0, seed=0)
