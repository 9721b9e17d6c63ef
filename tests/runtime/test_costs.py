"""The cost formulas, on the MNIST network's numbers and on small ones by hand."""

import pytest
import torch

from feddst.clients.steps import Growth, Readjust, Report
from feddst.core import Broadcast, ClientPlan, LocalTraining
from feddst.methods import FedAvgM, FedDST, RandomMask
from feddst.models import ModelConfig, initial_model, make_module, multiply_adds, network
from feddst.runtime.costs import Forward, Ledger, Traffic
from feddst.wire import Reference

PARAMS = {"w": torch.ones(10), "b": torch.ones(2)}
HALF = {"w": torch.arange(10) < 5}
SENT = Reference(Broadcast(round=1, params=PARAMS, masks=HALF))
WORK = ClientPlan(LocalTraining())
OWN = {"w": 5}


def ledger(accounting: str = "paper") -> Ledger:
    return Ledger(accounting, {"w": 10}, {"w": 100})  # type: ignore[arg-type]


def test_the_papers_formula_by_hand() -> None:
    costs = ledger()
    assert costs.upload_price(SENT, WORK, None) == 32 * 12 // 2  # 32(1−S)n with S = ½ and n = 12
    assert costs.upload_price(SENT, WORK, OWN) == 32 * 12 // 2 + 12
    costs.book_upload(0, 7)
    costs.book_upload(0, 7)
    assert costs.upload_bits == 14


def test_the_published_formula_by_hand() -> None:
    costs = ledger("published")
    assert costs.upload_price(SENT, WORK, None) == 32 * (5 + 2)  # active weights and biases
    assert costs.upload_price(SENT, WORK, OWN) == 32 * 7 + 5  # a mask costs (1−S)·10
    costs.book_download(0, costs.download_price(SENT))
    assert costs.download_bits == 32 * 7 + 10  # and the whole of it on the way down


def test_published_costs_are_overwritten_between_evaluations() -> None:
    costs = ledger("published")
    for bits in (100, 90):
        costs.book_upload(0, bits)
        costs.close_round(mask_moved=False, scheduled_evaluation=False)
    costs.book_upload(1, 50)
    assert costs.upload_bits == 90 + 50
    costs.close_round(mask_moved=False, scheduled_evaluation=True)
    costs.book_upload(0, 100)
    assert costs.upload_bits == 90 + 50 + 100


def test_a_mask_goes_down_at_first_and_when_it_has_moved() -> None:
    costs, charges = ledger(), []
    for moved in (False, True, False):
        before = costs.download_bits
        costs.book_download(0, costs.download_price(SENT))
        charges.append(costs.download_bits - before)
        costs.close_round(mask_moved=moved, scheduled_evaluation=False)
    assert charges == [192 + 12, 192, 192 + 12]


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
    costs.book_upload(3, 100)
    costs.book_download(3, costs.download_price(SENT))
    costs.close_round(mask_moved=True, scheduled_evaluation=False)
    restored = ledger("published")
    restored.restore(costs.as_dict())
    for one in (costs, restored):
        one.book_upload(3, 120)
        one.book_download(3, one.download_price(SENT))
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
        sent = Reference(method.broadcast(method.init(model, 0)))
        costs = Ledger("paper", sizes, multiply_adds(module, torch.zeros(1, 1, 28, 28)))
        for client in range(20):
            costs.book_upload(client, costs.upload_price(sent, WORK, None))
        bits[method.name] = costs.upload_bits
    n = 261_840
    assert bits == {"fedavgm": 20 * 32 * n, "randommask": 20 * 32 * n // 5, "feddst": 20 * 32 * n // 5}


def test_sixteen_bits_cost_half_by_the_papers_formula_and_all_by_the_published_one() -> None:
    for formula, share in (("paper", 2), ("published", 1)):
        whole, half = ledger(formula), ledger(formula)
        half.up_width = 16
        assert whole.upload_price(SENT, WORK, None) == share * half.upload_price(SENT, WORK, None)
