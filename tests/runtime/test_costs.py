"""The cost formulas, on the MNIST network's numbers and on small ones by hand."""

from collections.abc import Mapping

import pytest
import torch

from feddst.clients.steps import Growth, LotteryPruning, Readjust, Report
from feddst.core import Broadcast, ClientPlan, Examples, LocalTraining
from feddst.methods import FedAvgM, FedDST, RandomMask
from feddst.models import ModelConfig, initial_model, make_module, multiply_adds, network
from feddst.runtime.costs import Forward, Ledger, Traffic
from feddst.wire import ClientResult, ClientTask, Message, Reference

PARAMS = {"w": torch.ones(10), "b": torch.ones(2)}
HALF = {"w": torch.arange(10) < 5}
SENT = Reference(Broadcast(round=1, params=PARAMS, masks=HALF))
WORK = ClientPlan(LocalTraining())
OWN = {"w": 5}
CAME = ClientResult(size=100, mask_bytes=20, weight=1)
"""The receipt for an update that could be used, under the masks that were sent."""


def task_for(client: int, plan: ClientPlan = WORK, sent: Reference = SENT) -> ClientTask:
    """A task of a client with two images."""
    examples = Examples(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))
    return ClientTask(client, 0, plan, Message().read_as(sent), examples)


def came(own: Mapping[str, int] | None = None, *, weight: int = 1, loss: float = 0.5) -> ClientResult:
    """What came of a client's training."""
    return ClientResult(size=100, mask_bytes=20, weight=weight, own=own, loss=loss)


def ledger(accounting: str = "paper") -> Ledger:
    return Ledger(accounting, {"w": 10}, {"w": 100})  # type: ignore[arg-type]


def test_the_papers_formula_by_hand() -> None:
    costs = ledger()
    assert costs.upload_price(SENT, WORK, None) == 32 * 12 // 2  # 32(1−S)n with S = ½ and n = 12
    assert costs.upload_price(SENT, WORK, OWN) == 32 * 12 // 2 + 12
    costs.book_result(task_for(0), CAME)
    costs.book_result(task_for(0), CAME)
    assert costs.upload_bits == 2 * 192


def test_the_published_formula_by_hand() -> None:
    costs = ledger("published")
    assert costs.upload_price(SENT, WORK, None) == 32 * (5 + 2)  # active weights and biases
    assert costs.upload_price(SENT, WORK, OWN) == 32 * 7 + 5  # a mask costs (1−S)·10
    costs.book_sent(0, (100, 20), SENT)
    assert costs.download_bits == 32 * 7 + 10  # and the whole of it on the way down


def test_published_costs_are_overwritten_between_evaluations() -> None:
    """A whole update with a mask costs 229, one without 224, and one of biases alone 64."""
    costs, biases = ledger("published"), ClientPlan(LocalTraining(), keep=frozenset({"w"}))
    for own in (OWN, None):
        costs.book_result(task_for(0), came(own))
        costs.close_round(mask_moved=False, scheduled_evaluation=False)
    costs.book_result(task_for(1, biases), CAME)
    assert costs.upload_bits == 224 + 64
    costs.close_round(mask_moved=False, scheduled_evaluation=True)
    costs.book_result(task_for(0), came(OWN))
    assert costs.upload_bits == 224 + 64 + 229


def test_a_mask_goes_down_at_first_and_when_it_has_moved() -> None:
    costs, charges = ledger(), []
    for moved in (False, True, False):
        before = costs.download_bits
        costs.book_sent(0, (100, 20), SENT)
        charges.append(costs.download_bits - before)
        costs.close_round(mask_moved=moved, scheduled_evaluation=False)
    assert charges == [192 + 12, 192, 192 + 12]


def test_a_mask_of_the_clients_own_is_charged_when_it_travels() -> None:
    """Whatever became of the server's: that one is charged after the first round only if it has moved."""
    costs, charges = ledger(), []
    for mask_bytes in (20, 0, 20):
        before = costs.download_bits
        costs.book_sent(0, (100, mask_bytes), SENT, own_masks=True)
        charges.append(costs.download_bits - before)
        costs.close_round(mask_moved=False, scheduled_evaluation=False)
    assert charges == [192 + 12, 192, 192 + 12]


def test_what_was_sent_and_what_came_are_booked_by_hand() -> None:
    costs = ledger()
    costs.book_sent(0, (70, 3), SENT)
    costs.book_sent(1, (80, 0), SENT)
    assert costs.down == Traffic(total=150, masks=3, headers=2 * 48)
    costs.book_result(task_for(0), came())
    assert costs.up == Traffic(total=100, masks=20, headers=48)
    # Ten epochs over two images, 600 FLOPs each if it were dense, and half of them as it is.
    assert (costs.flops_dense, costs.flops_sparse) == (10 * 2 * 600, 10 * 2 * 300)
    # A refused update took as much to make, came, and was not taken apart; it is worth no bits.
    costs.book_result(task_for(1), came(weight=0))
    assert costs.up == Traffic(total=200, masks=20, headers=48)
    assert (costs.flops_dense, costs.upload_bits) == (2 * 10 * 2 * 600, 192)
    # Of a client that failed nothing is known but what came of it.
    costs.book_result(task_for(2), ClientResult.failed("it fell over", size=5))
    assert costs.up.total == 205
    assert (costs.flops_dense, costs.upload_bits) == (2 * 10 * 2 * 600, 192)


def test_who_trains_under_a_mask_of_its_own_is_charged_for_that() -> None:
    """Two weights of ten cost a fifth of an image's 600 FLOPs: 120. One of the two images is held out."""
    own, moved = ledger(), ledger()
    lottery = LotteryPruning(threshold=0.5, prune=0.5, held_out=0.5, budgets={"w": 2})
    local = LocalTraining(epochs=1)
    own.book_result(task_for(0, ClientPlan(local, (lottery,))), came({"w": 2}))
    assert (own.flops_dense, own.flops_sparse) == (600, 120)
    # One that only moves weights trained, at least at first, under the mask that it was sent.
    moved.book_result(task_for(0, ClientPlan(local)), came({"w": 2}))
    assert moved.flops_sparse == 2 * 300


def test_extra_tensors_cost_thirty_two_bits_a_value() -> None:
    asked = ClientPlan(LocalTraining(), (Report("gradient"),), train=False)
    assert ledger().upload_price(SENT, asked, None) == 32 * 12


@pytest.mark.parametrize("accounting", ["paper", "published"])
def test_orders_bound_what_comes_back(accounting: str) -> None:
    costs, local, readjustment = ledger(accounting), LocalTraining(), Readjust(1, {"w": 1}, {"w": 5})
    assert costs.upload_bound(SENT, ClientPlan(local)) == costs.upload_price(SENT, WORK, None)
    moved = costs.upload_bound(SENT, ClientPlan(local, (readjustment,)))
    assert moved == costs.upload_price(SENT, WORK, OWN)
    assert costs.upload_bound(SENT, ClientPlan(local, (Report("gradient"),), train=False)) == 32 * 12
    assert costs.upload_bound(SENT, ClientPlan(local, keep=frozenset({"w"}))) == 32 * 2


def test_training_flops_by_hand() -> None:
    costs, plan = ledger(), ClientPlan(LocalTraining(epochs=3))
    costs.charge_training(plan, OWN, images=2)
    assert (costs.flops_dense, costs.flops_sparse) == (2 * 3 * 600, 2 * 3 * 300)
    readjusting = ClientPlan(LocalTraining(epochs=1), (Readjust(1, {"w": 1}, {"w": 5}, Growth()),))
    costs.charge_training(readjusting, OWN, images=2)
    # Two images at 300, and the growth gradient over two: 100·(2·½ + 2·½ + 2) = 400 each.
    assert costs.flops_sparse == 1800 + 600 + 800


def test_a_forward_pass_by_hand() -> None:
    costs = Ledger("paper", {"w": 10, "v": 4}, {"w": 100, "v": 8, "embedded": 6})
    # Half of w and a quarter of v: 50 + 2 + 6 multiply-adds of 114, two FLOPs each.
    assert costs.forward({"w": 5, "v": 1}) == Forward(dense=228, sparse=116)
    assert costs.forward({}) == Forward(dense=228, sparse=228)


def test_a_saved_ledger_goes_on_as_if_nothing_had_happened() -> None:
    costs = ledger("published")
    costs.book_result(task_for(3), CAME)
    costs.book_sent(3, (100, 20), SENT)
    costs.close_round(mask_moved=True, scheduled_evaluation=False)
    restored = ledger("published")
    restored.restore(costs.as_dict())
    for one in (costs, restored):
        one.book_result(task_for(3), came(OWN))
        one.book_sent(3, (100, 20), SENT)
    assert restored == costs


def test_payloads_are_taken_apart_and_what_cannot_be_used_is_not() -> None:
    sent = Traffic()
    for payload, mask in ((100, 20), (80, 0)):
        sent.add(payload, mask)
    sent.add_unused(7)
    assert sent == Traffic(total=187, masks=20, headers=2 * 48)


def test_a_ledger_saved_before_headers_were_counted_goes_on() -> None:
    costs = ledger()
    costs.up.add(100, 20)
    saved = costs.as_dict()
    for way in ("up", "down"):
        del saved[way]["headers"]
    restored = ledger()
    restored.restore(saved)
    restored.up.add(100, 0)
    assert restored.up == Traffic(total=200, masks=20, headers=48)


def test_a_round_of_the_papers_mnist_job() -> None:
    module = make_module(lambda: network(ModelConfig(), (1, 28, 28), 10), 0)
    model = initial_model(module)
    sizes = {layer.name: layer.size for layer in model.layers}
    bits = {}
    for method in (FedAvgM(), RandomMask(), FedDST()):
        sent = Reference(method.broadcast(method.init(model, 0), 0))
        costs = Ledger("paper", sizes, multiply_adds(module, torch.zeros(1, 1, 28, 28)))
        for client in range(20):
            costs.book_result(task_for(client, sent=sent), CAME)
        bits[method.name] = costs.upload_bits
    n = 261_840
    assert bits == {"fedavgm": 20 * 32 * n, "randommask": 20 * 32 * n // 5, "feddst": 20 * 32 * n // 5}


def test_sixteen_bits_cost_half_by_the_papers_formula_and_all_by_the_published_one() -> None:
    for formula, share in (("paper", 2), ("published", 1)):
        whole, half = ledger(formula), ledger(formula)
        half.up_width = 16
        assert whole.upload_price(SENT, WORK, None) == share * half.upload_price(SENT, WORK, None)
