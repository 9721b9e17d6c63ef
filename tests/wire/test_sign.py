"""One bit a vote: exact for +1 and −1, and refused for anything else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddst.clients.steps import Report
from feddst.core import Broadcast, ClientPlan, Examples, LocalTraining, Update, generator
from feddst.errors import OptionError, WireError
from feddst.options import updated
from feddst.runtime import RunConfig
from feddst.wire import (
    ClientTask,
    Message,
    Reference,
    WireConfig,
    decode_update,
    encode_update,
    largest_update,
    nominal_bits,
)
from feddst.wire.sign import Sign

CODEC = Sign()
votes = st.lists(st.lists(st.sampled_from([1.0, -1.0]), max_size=20), max_size=4)


def encoded(*tensors: list[float]) -> bytes:
    return CODEC.encode([torch.tensor(values) for values in tensors], generator(0, "test"))


def test_five_votes_by_hand() -> None:
    # From the lowest bit: + − − of the first tensor, + + of the second, three zeros.
    assert encoded([1, -1, -1], [1, 1]) == bytes([0b00011001])
    assert [part.tolist() for part in CODEC.decode(memoryview(b"\x19"), [3, 2])] == [[1, -1, -1], [1, 1]]


@given(votes)
def test_votes_come_back_as_they_were(tensors: list[list[float]]) -> None:
    data, counts = encoded(*tensors), [len(values) for values in tensors]
    assert len(data) == CODEC.size(counts) == (sum(counts) + 7) // 8
    found = CODEC.decode(memoryview(data), counts)
    assert [part.tolist() for part in found] == tensors
    assert all(part.dtype is torch.float32 for part in found)


def test_a_vote_is_one_bit() -> None:
    assert nominal_bits("sign") == 1


@pytest.mark.parametrize("value", [0.0, 0.5, -1.5, 2.0, np.inf, np.nan])
def test_what_is_no_vote_is_not_sent(value: float) -> None:
    with pytest.raises(WireError, match="carries \\+1 and −1 and nothing else"):
        encoded([1, -1], [1, value])


@pytest.mark.parametrize("last", [0b00100000, 0b10000000])
def test_bits_after_the_last_vote_are_refused(last: int) -> None:
    with pytest.raises(WireError, match="the bits after the last sign are not zero"):
        CODEC.decode(memoryview(bytes([0b11111 | last])), [5])


def test_an_update_of_votes_is_a_header_and_a_bit_a_weight() -> None:
    reference = Reference(Broadcast(3, {"w": torch.zeros(10, 10), "b": torch.zeros(1)}))
    plan, wire = ClientPlan(LocalTraining(), (Report("sign"),), train=False), WireConfig(values="sign")
    signs = torch.where(torch.arange(100) % 3 == 0, 1.0, -1.0).reshape(10, 10)
    update = Update(5, 3, 1, {}, extra={"sign": {"b": torch.ones(1), "w": signs}})
    one = Examples(targets=torch.zeros(1, dtype=torch.int64))
    task = ClientTask(5, 0, plan, Message().read_as(reference), one, wire=wire)
    assert task.largest_weight == 1
    payload = encode_update(update, task)
    assert len(payload) == largest_update(task) == 48 + 13
    found = decode_update(payload, task)
    assert not found.params
    assert torch.equal(found.extra["sign"]["w"], signs)
    assert found.extra["sign"]["b"].tolist() == [1]


@pytest.mark.parametrize(
    ("option", "method"), [("wire.values", "feddst"), ("wire.download", "feddst"), ("wire.download", "sign-sgd")]
)
def test_weights_are_never_sent_as_signs(option: str, method: str) -> None:
    config = updated(RunConfig(), {"method": method, option: "sign"})
    with pytest.raises(OptionError, match=f"{option} must be one of float32, .* for {method}, got 'sign'"):
        config.check()


def test_a_method_of_votes_needs_no_option_for_it() -> None:
    updated(RunConfig(), {"method": "sign-sgd"}).check()
    updated(RunConfig(), {"method": "sign-sgd", "wire.values": "sign"}).check()
