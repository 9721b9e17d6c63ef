"""The records that engines carry: messages, written when somebody asks for them, clients' tasks, and their results."""

import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from feddst.clients.steps import LotteryPruning
from feddst.core import Broadcast, ClientData, ClientPlan, Examples, LocalTraining
from feddst.wire import BroadcastEncoder, ClientResult, ClientTask, MaskHistory, Message, Reference, WireConfig

SENT = Broadcast(7, {"w": torch.tensor([[1.0, 0.0], [0.0, 2.0]])}, masks={"w": torch.eye(2, dtype=torch.bool)})
BITMAP = bytes([0b10011])
"""A flag for `w`, which has a mask, then its four weights, the lowest bit first."""


class Scribe(BroadcastEncoder):
    """An encoder that counts how often it writes: what a client holds, backwards, behind a mark."""

    def __init__(self) -> None:
        self.reference = Reference(SENT)
        self.asked: list[bytes] = []

    def payload(self, held: bytes) -> bytes:
        self.asked.append(held)
        return b">" + held[::-1]

    def sizes(self, message: Message) -> tuple[int, int]:
        return 10 + len(message.held), len(message.held)


def test_a_message_is_written_once_and_when_somebody_asks_for_it() -> None:
    scribe = Scribe()
    message = Message(held=b"abc", encoder=scribe)
    assert message.sizes == (13, 3)
    assert message.reference is scribe.reference
    assert not message.written
    assert scribe.asked == []
    assert message.payload == b">cba"
    assert message.payload == b">cba"
    assert message.written
    assert scribe.asked == [b"abc"]


def test_a_message_that_has_arrived_says_nothing_before_it_is_read() -> None:
    message = Message(b"bytes", b"held")
    assert message.written
    with pytest.raises(ValueError, match="this message has not been read yet"):
        _ = message.reference
    reference = Reference(SENT)
    read = message.read_as(reference)
    assert read.reference is reference
    assert (read.payload, read.held) == (b"bytes", b"held")
    with pytest.raises(ValueError, match="not been read"):
        _ = message.reference


def test_what_was_read_goes_before_what_the_encoder_says() -> None:
    read = Message(held=b"abc", encoder=Scribe()).read_as(other := Reference(SENT))
    assert read.reference is other
    assert read.encoder is not None
    assert read.encoder.reference is not other


def test_to_another_process_go_the_bytes_alone() -> None:
    scribe = Scribe()
    there = pickle.loads(pickle.dumps(Message(held=b"abc", encoder=scribe).read_as(Reference(SENT))))
    assert (there.payload, there.held, there.encoder) == (b">cba", b"abc", None)
    assert scribe.asked == [b"abc"]
    with pytest.raises(ValueError, match="not been read"):
        _ = there.reference


def test_a_broadcasts_message_by_hand() -> None:
    """The second goes to a client that holds the mask already: of 48 bytes of header and two values there is no mask.

    The first has it as positions: the flag, γ of 2 in three bits, and two positions among four as a bitmap, since
    4·2 > 4: eight bits, a byte, and seven of padding.
    """
    history = MaskHistory(8)
    first, second = (BroadcastEncoder(SENT, WireConfig(), history, seed=0).message_for(3) for _ in range(2))
    assert (first.held, second.held) == (b"", BITMAP)
    assert (first.sizes, second.sizes) == ((48 + 8 + 8, 1), (48 + 8, 0))
    assert (len(first.payload), len(second.payload)) == (64, 56)
    assert torch.equal(first.reference.broadcast.params["w"], SENT.params["w"])


class Elsewhere(ClientData):
    """Ten examples that are not here."""

    def __len__(self) -> int:
        return 10

    def load(self, draw: tuple[int, int, int] | None = None) -> Examples:
        return Examples(torch.arange(10.0)[:, None], torch.arange(10))


TASK = ClientTask(3, 5, ClientPlan(LocalTraining(batch=4)), Message().read_as(Reference(SENT)), Elsewhere())


def test_a_task_knows_its_round_and_what_its_draws_are_keyed_by() -> None:
    assert TASK.sent.broadcast is SENT
    assert TASK.round == 7
    assert TASK.draw == (5, 7, 3)
    later = TASK.read_as(Reference(replace(SENT, round=8)))
    assert (later.round, later.draw, TASK.round) == (8, (5, 8, 3), 7)


def test_its_data_are_loaded_by_whoever_trains_on_them() -> None:
    with pytest.raises(AssertionError):
        _ = TASK.examples
    here = TASK.with_data(TASK.data.load())
    assert here.examples.classes.tolist() == list(range(10))
    assert (here.client, here.seed, here.plan, here.message) == (3, 5, TASK.plan, TASK.message)


@pytest.mark.parametrize(("weigh_by", "weight"), [("images", 10), ("batches", 3), ("equal", 1)])
def test_the_most_that_it_may_weigh_follows_from_its_plan_and_its_data(weigh_by: Any, weight: int) -> None:
    """Ten images are three minibatches of at most four."""
    local = replace(TASK.plan.local, weigh_by=weigh_by)
    assert replace(TASK, plan=ClientPlan(local)).largest_weight == weight


def test_images_that_are_held_out_do_not_weigh() -> None:
    plan = TASK.plan.adding(LotteryPruning(threshold=0.5, prune=0.2, held_out=0.3, budgets={"w": 1}))
    task = replace(TASK, plan=plan)
    assert (TASK.trained_on, task.trained_on, task.largest_weight) == (10, 7, 7)


def test_its_encoder_is_on_the_server_alone() -> None:
    task = replace(TASK, message=Message(encoder=(scribe := Scribe())))
    assert task.encoder is scribe
    there = pickle.loads(pickle.dumps(task))
    assert (there.client, there.seed, there.plan, len(there.data)) == (3, 5, TASK.plan, 10)
    assert there.message.payload == b">"
    with pytest.raises(AssertionError):
        _ = there.encoder


def test_a_client_that_got_to_its_end_has_worked_whatever_became_of_its_update() -> None:
    assert ClientResult(b"bytes", loss=0.5).worked
    assert replace(ClientResult(b"bytes", loss=0.5), payload=None, failure="refused").worked
    assert not ClientResult(b"bytes").worked
    assert math.isnan(ClientResult().loss)


def test_a_failure_has_no_update_and_no_weight() -> None:
    late = ClientResult.failed("came too late", size=12)
    assert (late.failure, late.size, late.weight, late.payload) == ("came too late", 12, 0, None)
    assert late.asked
    assert not late.diverged
    assert not late.worked
    assert not ClientResult.failed("is gone", asked=False).asked
    assert ClientResult.failed("its loss is nan", diverged=True).diverged
    assert not ClientResult(b"bytes").failure
