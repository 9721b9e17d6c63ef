"""A round under way, by hand: what it makes of results that can be used, of those that cannot, and of partial sums."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from feddst.clients.steps import Readjust
from feddst.core import (
    Broadcast,
    ClientPlan,
    Examples,
    LocalTraining,
    Masks,
    ServerState,
    SparseSum,
    Update,
    packed,
    positions_of,
)
from feddst.data import Dataset, federate
from feddst.models import make_module
from feddst.runtime import RunConfig
from feddst.runtime.rounds import NAMED, Round
from feddst.runtime.run import Run
from feddst.wire import (
    BroadcastEncoder,
    ClientResult,
    ClientTask,
    MaskHistory,
    WireConfig,
    encode_update,
    mask_bytes,
)

from .conftest import small_network

Configure = Callable[..., RunConfig]


def mask(*kept: int) -> Tensor:
    """One of four weights that keeps these."""
    return torch.isin(torch.arange(4), torch.tensor(kept))


MASKS = {"w": mask(0, 1)}
STATE = ServerState(3, 0, {"w": torch.tensor([1.0, 2.0, 0.0, 0.0]), "b": torch.tensor([0.5])}, masks=MASKS)
LOCAL = LocalTraining()
MOVING = ClientPlan(LOCAL, (Readjust(1, {"w": 1}, {"w": 2}),))
"""Lets a client change one of the two weights that it keeps."""


@pytest.fixture
def history() -> MaskHistory:
    return MaskHistory(8)


@pytest.fixture
def opened(history: MaskHistory) -> Callable[..., Round]:
    """A round whose clients, 10, 11, …, have four images each, and are sent the weights that these masks keep."""

    def begin(
        *masks: Masks, plan: ClientPlan = MOVING, wire: WireConfig | None = None, count_holders: bool = False
    ) -> Round:
        wire, encoders, tasks = wire or WireConfig(), dict[int, BroadcastEncoder](), list[ClientTask]()
        for client, held in enumerate(masks, 10):
            if id(held) not in encoders:
                sent = Broadcast(STATE.round, STATE.params, masks=held)
                encoders[id(held)] = BroadcastEncoder(sent, wire, history, seed=0)
            images = Examples(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
            tasks.append(ClientTask(client, 0, plan, encoders[id(held)].message_for(client), images, wire=wire))
        return Round(STATE, tasks, history, partial(SparseSum, count_holders=count_holders), began=0.0)

    return begin


def update(
    task: ClientTask, w: Sequence[float], b: float = 0.0, *, weight: int = 4, masks: Masks | None = None
) -> Update:
    """An answer with these weights, of which one holds what its masks keep."""
    held = positions_of(task.sent.broadcast.masks if masks is None else masks)
    params = packed({"w": torch.tensor(w), "b": torch.tensor([b])}, held)
    return Update(task.client, STATE.round, weight, params, masks=masks)


def answer(task: ClientTask, *values: float, loss: float = 0.5, **others: object) -> ClientResult:
    """What comes from a client that is honest: four values, the last two of which are not held as a rule."""
    return ClientResult(encode_update(update(task, values, **others), task), loss=loss)  # type: ignore[arg-type]


# What can be used.


def test_a_payload_is_read_and_added_up_and_its_receipt_is_kept(opened: Callable[..., Round]) -> None:
    round = opened(MASKS)
    came = answer(round.tasks[0], 3.0, 4.0, 0.0, 0.0, b=1.0)
    assert came.payload is not None
    assert round.take(0, came)
    assert round.results == {0: ClientResult(size=len(came.payload), weight=4, loss=0.5)}
    assert (round.total.updates, round.total.weight, round.refusals, round.diverged) == (1, 4, [], 0)
    assert round.total.mean()["w"].tolist() == [3.0, 4.0, 0.0, 0.0]
    assert round.total.mean()["b"].tolist() == [1.0]


def test_a_result_counts_once_and_before_the_round_is_closed(opened: Callable[..., Round]) -> None:
    round = opened(MASKS, MASKS)
    came = answer(round.tasks[0], 3.0, 4.0, 0.0, 0.0)
    assert round.take(0, came)
    with pytest.raises(RuntimeError, match="round 3: a result of client 10 was handed in twice, or too late"):
        round.take(0, came)
    round.open = False
    with pytest.raises(RuntimeError, match="client 11 was handed in twice, or too late"):
        round.take(1, answer(round.tasks[1], 3.0, 4.0, 0.0, 0.0))
    assert round.total.updates == 1


def test_a_mask_of_the_clients_own_is_in_the_receipt(opened: Callable[..., Round]) -> None:
    round = opened(MASKS)
    came = answer(round.tasks[0], 3.0, 0.0, 4.0, 0.0, masks={"w": mask(0, 2)})
    assert came.payload is not None
    assert round.take(0, came)
    found = round.results[0]
    assert (found.own, found.size) == ({"w": 2}, len(came.payload))
    assert 0 < found.mask_bytes == mask_bytes(came.payload)
    assert round.total.votes()["w"].tolist() == [4, 0, 4, 0]


def test_the_sum_is_the_same_in_whatever_order_results_come(opened: Callable[..., Round]) -> None:
    """w: (1·1 + 3·5)/4 = 4 and (1·2 + 3·6)/4 = 5; b: (1·1 + 3·3)/4 = 2.5. The loss: (1·0.5 + 3·0.1)/4 = 0.2."""
    for order in ((0, 1), (1, 0)):
        round = opened(MASKS, MASKS)
        one, two = round.tasks
        results = [
            answer(one, 1.0, 2.0, 0.0, 0.0, b=1.0, weight=1),
            answer(two, 5.0, 6.0, 0.0, 0.0, b=3.0, weight=3, loss=0.1),
        ]
        assert [round.take(place, results[place]) for place in order] == [True, True]
        assert round.total.mean()["w"].tolist() == [4.0, 5.0, 0.0, 0.0]
        assert round.total.mean()["b"].tolist() == [2.5]
        assert [(task.client, found.weight) for task, found in round.answers()] == [(10, 1), (11, 3)]
        assert round.mean_loss() == pytest.approx(0.2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_clients_that_were_sent_different_masks_add_up_where_they_hold_something(
    order: Sequence[int], opened: Callable[..., Round]
) -> None:
    """w0: 10 and 12 hold it, (4·2 + 2·8)/6 = 4; w1: 10 alone; w2: 11 alone; w3: 11 and 12, (1·3 + 2·9)/3 = 7."""
    round = opened(MASKS, {"w": mask(2, 3)}, {"w": mask(0, 3)}, count_holders=True)
    values = [(2.0, 6.0, 0.0, 0.0), (0.0, 0.0, 1.0, 3.0), (8.0, 0.0, 0.0, 9.0)]
    for place in order:
        assert round.take(place, answer(round.tasks[place], *values[place], weight=(4, 1, 2)[place]))
    assert all(round.results[place].own is None for place in order)  # they are as they were sent
    assert round.total.mean()["w"].tolist() == [4.0, 6.0, 1.0, 7.0]
    assert round.total.votes()["w"].tolist() == [6, 4, 1, 3]
    assert round.total.held()["w"].tolist() == [True] * 4
    # Of 10's two weights 11 lacks both and 12 one, of 11's 10 both and 12 one, of 12's either one: 8 of 12.
    assert round.total.apart() == {"w": pytest.approx(8 / 12)}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_layer_may_be_sent_whole_to_one_client_and_in_part_to_another(
    order: Sequence[int], opened: Callable[..., Round]
) -> None:
    """w0 and w1: (4·1 + 4·3)/8 and (4·2 + 4·4)/8; w2 and w3 are held by the second client alone."""
    ways: list[tuple[Masks, Masks]] = [(MASKS, {}), ({}, MASKS)]
    for masks in ways:
        round = opened(*masks)
        whole = masks.index({})
        values = {whole: (3.0, 4.0, 5.0, 6.0), 1 - whole: (1.0, 2.0, 0.0, 0.0)}
        for place in order:
            assert round.take(place, answer(round.tasks[place], *values[place]))
        assert round.total.mean()["w"].tolist() == [2.0, 3.0, 5.0, 6.0]
        assert round.total.votes()["w"].tolist() == [8, 8, 4, 4]


def test_what_the_broadcast_rounded_is_not_the_servers_loss(opened: Callable[..., Round]) -> None:
    """A client that sends back what it got leaves the server's own weights, though they were sent in few bits."""
    round = opened(MASKS, wire=WireConfig(download="q2"))
    [task] = round.tasks
    got = {name: value.reshape(-1) for name, value in task.sent.broadcast.params.items()}
    assert got["w"].tolist() != STATE.params["w"].tolist()
    assert round.take(0, answer(task, *got["w"].tolist(), b=float(got["b"])))
    for name, value in round.total.mean().items():
        torch.testing.assert_close(value, STATE.params[name], rtol=1e-6, atol=1e-7)


# What cannot.


def test_a_payload_that_cannot_be_read_is_refused_named_and_counted(
    opened: Callable[..., Round], history: MaskHistory, caplog: pytest.LogCaptureFixture
) -> None:
    round = opened(MASKS, MASKS)
    good = answer(round.tasks[0], 3.0, 4.0, 0.0, 0.0)
    assert round.take(0, good)
    assert history.held_by(11)
    assert not round.take(1, ClientResult(b"nonsense", loss=0.25))
    found = round.results[1]
    assert (found.payload, found.size, found.weight, found.loss, found.diverged) == (None, 8, 0, 0.25, False)
    assert "has 8 bytes" in found.failure
    assert round.refusals == [f"client 11: {found.failure}"]
    assert f"round 3: the update of client 11 was refused: {found.failure}" in caplog.text
    assert (round.total.updates, round.diverged, round.missing()) == (1, 0, [])
    assert (bool(history.held_by(10)), history.held_by(11)) == (True, b"")
    assert round.mean_loss() == 0.5  # a refused client's loss does not count


def test_weights_that_are_far_from_those_that_were_sent_have_diverged(opened: Callable[..., Round]) -> None:
    round = opened(MASKS, MASKS, MASKS)
    for place in (0, 1):
        assert not round.take(place, answer(round.tasks[place], 1e6, 0.0, 0.0, 0.0))
        assert "away from those that were sent" in round.results[place].failure
    assert (round.diverged, round.mostly_diverged) == (2, True)
    assert round.take(2, answer(round.tasks[2], 3.0, 4.0, 0.0, 0.0))
    assert round.mostly_diverged


def test_half_of_those_who_answered_are_not_most_of_them(opened: Callable[..., Round]) -> None:
    round = opened(MASKS, MASKS, MASKS, MASKS)
    round.take(0, ClientResult.failed("its loss is nan", diverged=True))
    assert round.mostly_diverged
    round.take(1, answer(round.tasks[1], 3.0, 4.0, 0.0, 0.0))
    round.take(2, ClientResult.failed("no node serves it now", asked=False))
    assert not round.mostly_diverged


def test_a_failure_is_kept_as_it_came_and_names_its_client_once(opened: Callable[..., Round]) -> None:
    round = opened(MASKS, MASKS)
    failures = [ClientResult.failed("it fell over", size=70), ClientResult.failed("client 11 diverged", diverged=True)]
    assert [round.take(place, one) for place, one in enumerate(failures)] == [False, False]
    assert round.results == dict(enumerate(failures))
    assert round.refusals == ["client 10: it fell over", "client 11 diverged"]
    assert (round.total.updates, round.diverged, round.mean_loss()) == (0, 1, None)
    assert not any(found.worked for _, found in round.answers())


def test_only_the_first_refusals_are_warned_of(opened: Callable[..., Round], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    round = opened(*[MASKS] * (NAMED + 2))
    for place in range(NAMED + 2):
        round.take(place, ClientResult.failed("it fell over"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * NAMED + [logging.INFO] * 2
    assert len(round.refusals) == NAMED + 2


def test_who_was_not_asked_has_not_answered_and_is_not_refused(
    opened: Callable[..., Round], history: MaskHistory, caplog: pytest.LogCaptureFixture
) -> None:
    round = opened(MASKS, MASKS, MASKS)
    unasked = ClientResult.failed("no node serves it now", asked=False)
    assert not round.take(1, unasked)
    assert round.take(0, answer(round.tasks[0], 3.0, 4.0, 0.0, 0.0))
    assert "round 3: client 11 was not asked: no node serves it now" in caplog.text
    assert [(task.client, found) for task, found in round.unasked()] == [(11, unasked)]
    assert [task.client for task, _ in round.answers()] == [10]
    assert round.missing() == [11, 12]  # nothing has come of the last one at all
    assert round.refusals == []
    assert history.held_by(11)  # that is for the end of the round


def test_a_sum_that_is_full_takes_no_more_and_the_round_goes_on(opened: Callable[..., Round]) -> None:
    """The sums hold n·|w| up to 2⁴²; one of 2⁴⁰·3.99 leaves too little room for 4·8e9."""
    wire = WireConfig(max_change=0)
    round = opened(MASKS, MASKS, wire=wire)
    full = SparseSum(MASKS)
    full.add(Update(9, 3, 2**40, {"w": torch.tensor([3.99, 0.0]), "b": torch.zeros(1)}))
    round.merge(full)
    assert not round.take(0, answer(round.tasks[0], 8e9, 0.0, 0.0, 0.0))
    assert round.results[0].failure == "the weights of this round's updates are too large to average"
    assert round.take(1, answer(round.tasks[1], 2.0, 0.0, 0.0, 0.0))
    assert (round.total.updates, round.total.weight) == (2, 2**40 + 4)


# Partial sums.


@pytest.mark.parametrize("way", [[(0, 1, 2)], [(0, 1), 2], [2, (0, 1)], [(2,), (1,), (0,)], [1, 0, 2]], ids=str)
def test_partial_sums_and_payloads_add_up_in_any_order(
    way: Sequence[int | tuple[int, ...]], opened: Callable[..., Round]
) -> None:
    """Three clients of weight 4 send w0 = 1, 2 and 6: their mean is 3. Those in a tuple are added up by an engine."""
    round, values = opened(MASKS, MASKS, MASKS), [(w0, 0.0, 0.0, 0.0) for w0 in (1.0, 2.0, 6.0)]
    for places in way:
        if isinstance(places, int):
            round.take(places, answer(round.tasks[places], *values[places]))
            continue
        total = round.empty_sum(places[0])
        for place in places:
            total.add(update(round.tasks[place], values[place]))
            round.take(place, ClientResult(size=90, weight=4, loss=0.5))
        round.merge(total)
    assert round.total.mean()["w"].tolist() == [3.0, 0.0, 0.0, 0.0]
    assert (round.total.updates, round.total.weight) == (3, 12)
    assert round.total.votes()["w"].tolist() == [12, 12, 0, 0]
    assert [found.weight for _, found in round.answers()] == [4, 4, 4]


def test_partial_sums_of_different_masks_add_up_where_they_hold_something(opened: Callable[..., Round]) -> None:
    """w0: (4·1 + 2·4)/6 = 2; w1 is the first client's, w3 the second's; what they hold apart is half of each."""
    other = {"w": mask(0, 3)}
    for order in ((0, 1), (1, 0)):
        round = opened(MASKS, other, count_holders=True)
        values, weights = [(1.0, 5.0, 0.0, 0.0), (4.0, 0.0, 0.0, 7.0)], (4, 2)
        for place in order:
            total = round.empty_sum(place)
            assert total.masks is (MASKS, other)[place]
            total.add(update(round.tasks[place], values[place], weight=weights[place]))
            round.merge(total)
        assert round.total.mean()["w"].tolist() == [2.0, 5.0, 0.0, 7.0]
        assert round.total.votes()["w"].tolist() == [6, 4, 0, 2]
        assert round.total.apart() == {"w": pytest.approx(0.5)}


# What is known at the end.


def test_a_round_without_tasks_has_an_empty_sum(opened: Callable[..., Round]) -> None:
    round = opened()
    assert (round.total.updates, round.total.masks is STATE.masks, round.number) == (0, True, 3)
    assert (round.missing(), round.mean_loss(), round.mostly_diverged) == ([], None, False)


def test_movement_by_hand(opened: Callable[..., Round]) -> None:
    for after, moved in (({"w": mask(0, 2, 3)}, (2, 1)), ({"w": mask(0, 1)}, (0, 0))):
        round = opened(MASKS)
        round.note_movement(after)
        assert (round.moved, round.mask_moved) == ({"w": moved}, moved != (0, 0))
    round = opened(MASKS)
    round.note_movement({"w": MASKS["w"], "b": torch.ones(1, dtype=torch.bool)})
    assert round.mask_moved  # another layer is masked now


def test_the_loss_of_clients_that_only_report_is_none(opened: Callable[..., Round]) -> None:
    round = opened(MASKS, plan=replace(MOVING, steps=(), train=False))
    [task] = round.tasks
    payload = encode_update(Update(task.client, STATE.round, 4, {}), task)
    assert round.take(0, ClientResult(payload, loss=0.0))
    assert (round.mean_loss(), round.total.updates) == (None, 1)


def test_what_comes_late_is_counted_and_left_alone(small_config: Configure, small_data: Dataset) -> None:
    """Of four clients one fails, with 5 bytes, and two answers come late, with 70 and 30."""
    config = small_config(rounds=2, eval_every=5)
    federation, module = federate(config.data, config.seed, small_data), make_module(small_network, config.seed)
    run = Run(config, federation, module, untrusted=True)
    tasks = run.open_round()
    assert not run.round.take(0, ClientResult.failed("it fell over", size=5))
    run.receive_late(70)
    run.receive_late(30)
    assert (run.round.late, len(run.round.results)) == (2, 1)
    assert run.round.missing() == [task.client for task in tasks[1:]]
    assert not run.close_round()
    row = run.record([])
    assert (row.late, row.refused, row.missing, row.clients) == (2, 1, 3, 0)
    assert (row.upload_bytes, row.upload_header_bytes) == (105, 0)
