"""Checkpoint files: the same format as the safetensors package's, and safe to read whatever they hold."""

import contextlib
import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from feddst.errors import CheckpointError
from feddst.runtime.tensorfile import pack, unpack

TENSORS = {
    "weights": torch.randn(3, 4, 2).transpose(0, 2),
    "mask": torch.tensor([[True, False], [False, True]]),
    "seen": torch.tensor(7),
    "nothing": torch.zeros(0, 3),
    "half": torch.randn(5).half(),
    "brain": torch.randn(3).bfloat16(),
    "double": torch.randn(2).double(),
    **{str(kind): torch.tensor([1, 2, 3], dtype=kind) for kind in (torch.uint8, torch.int8, torch.int16, torch.int32)},
}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        value.dtype == other[name].dtype and torch.equal(value, other[name]) for name, value in one.items()
    )


def described(**entry: Any) -> bytes:
    """A file with one tensor of 4 bytes, described as the test says."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def test_what_goes_in_comes_out() -> None:
    tensors, metadata = unpack(pack(TENSORS, {"about": "ä"}))
    assert same(tensors, TENSORS)
    assert metadata == {"about": "ä"}


def test_files_are_exchanged_with_the_package_both_ways() -> None:
    assert same(load(pack(TENSORS, {"a": "b"})), TENSORS)
    theirs = save({name: value.contiguous() for name, value in TENSORS.items()}, {"a": "b"})
    tensors, metadata = unpack(theirs)
    assert same(tensors, TENSORS)
    assert metadata == {"a": "b"}


def test_tensors_may_share_memory() -> None:
    shared = torch.arange(6.0)
    tensors, _ = unpack(pack({"a": shared, "b": shared[2:4]}, {}))
    tensors["a"].zero_()
    assert tensors["b"].tolist() == [2.0, 3.0]


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="'z' cannot be kept: its dtype is"):
        pack({"z": torch.zeros(1, dtype=torch.complex64)}, {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cut short"),
        (b"\x01\x00", "cut short"),
        ((2**63).to_bytes(8, "little") + b"{}", "cut short"),
        ((4).to_bytes(8, "little") + b"{]}]", "not JSON"),
        ((10**5).to_bytes(8, "little") + b"[" * 10**5, "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not a table"),
        ((20).to_bytes(8, "little") + b'{"__metadata__":[1]}', "metadata are not texts"),
        (described(dtype="F99"), "unknown dtype 'F99'"),
        (described(dtype=["F32"]), "unknown dtype"),
        (described(shape=[-1]), "no sensible shape"),
        (described(shape=[True]), "no sensible shape"),
        (described(shape=[1.0]), "no sensible shape"),
        (described(shape="1"), "no sensible shape"),
        (described(shape=[2]), "needs 8 bytes, but has 4"),
        (described(shape=[2**40, 2**40]), "bytes, but has 4"),
        (described(shape=[0, 2**62, 2**62], data_offsets=[0, 0]), "take 0 bytes, but there are 4"),
        (described(shape=[10**18] * 50_000), "no sensible shape"),
        (described(shape=[1] * 100), "no sensible shape"),
        (described(data_offsets=[4, 8]), "begins at byte 4, not at 0"),
        (described(data_offsets=[0, 4, 8]), "no sensible shape and place"),
        (described(more=1), "not described as it should be"),
        (described() + b"x", "take 4 bytes, but there are 5"),
        (described()[:-1], "take 4 bytes, but there are 3"),
        (described(dtype="BOOL", shape=[4])[:-1] + b"\x02", "truth values other than 0 and 1"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        unpack(content)


def test_a_shape_that_no_tensor_can_have_is_refused() -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}).encode()
    with pytest.raises(CheckpointError, match="no sensible shape"):
        unpack(len(header).to_bytes(8, "little") + header)


@given(st.data())
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(pack({"a": torch.ones(2), "b": torch.tensor([True])}, {"feddst": "{}"}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CheckpointError):
        unpack(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
