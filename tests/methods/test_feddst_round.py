"""One FedDST round with two clients on a three-layer network, worked out on paper.

The network is three 2×2 linear layers in a row (the last with biases), no non-linearity, so with weights W₁, W₂,
W₃ and input x the logits are W₃W₂W₁x + b. Every layer starts as [[1, ¼], [⅛, 1]], the budget is two weights a
layer, and so the first mask is the diagonal. All images are x = (1, 1): the logits are (1, 1), the softmax is
exactly (½, ½), and every number below is exact in binary.

Client A has one image of class 0, client B three of class 1; one epoch, one minibatch, lr ½, no L2.

A trains. At the logits the gradient is δ = (−½, ½); it is the same below each layer, since the layers are the
identity there, and so is each layer's input (1, 1). Diagonal weights move by −½·δ to (1.25, 0.75), the biases to
(¼, −¼).
A drops one weight of each layer (α₁ = ½ of two): the 0.75 at [1,1]. Now h₁ = (1.25, 0), h₂ = (1.25², 0), and with
some 0 < q < 1 the gradient at the logits is (−q, q).
  W₃: gradient (−q, q)ᵀ·(1.25², 0): of the inactive, only [1,0] is not zero, and grows.
  W₂: δ₂ = W₃ᵀ(−q, q) = (−1.25q, 0), times (1.25, 0): zero at all inactive weights. [1,1] was held, and comes back.
  W₁: δ₁ = W₂ᵀδ₂ = (−1.25²q, 0), times (1, 1): [0,1] is not zero, and grows.
A ends with W₁ = {00: 1.25, 01: 0}, W₂ = {00: 1.25, 11: 0}, W₃ = {00: 1.25, 10: 0}.

B is A with the classes exchanged: W₁ = {11: 1.25, 10: 0}, W₂ = {11: 1.25, 00: 0}, W₃ = {11: 1.25, 01: 0}, and
biases (−¼, ¼).

The server: in W₁ and W₃ each weight has one holder, so the means are 1.25 on the diagonal and 0 off it; two are
kept, the diagonal. In W₂ both clients hold both: 00 is (1·1.25 + 3·0)/4 = 0.3125, 11 is (1·0 + 3·1.25)/4 =
0.9375. The biases are (1·¼ − 3·¼)/4 = −⅛ and ⅛.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from feddst.clients.client import finished
from feddst.clients.reference import train_client
from feddst.clients.steps import Readjust
from feddst.core import Examples, InitialModel, Layer, LocalTraining, ServerState, SparseSum, Update
from feddst.methods import FedDST
from feddst.models import initial_model
from feddst.sparsity import Sparsity, Timetable
from feddst.wire import ClientTask, Message, Reference

METHOD = FedDST(
    local=LocalTraining(epochs=1, batch=8, lr=0.5, momentum=0.9, l2=0.0),
    sparsity=Sparsity(0.5, "uniform"),
    readjust=Timetable(alpha=0.5, every=1, until=100),
)
FIRST, SECOND, THIRD = "0.weight", "1.weight", "2.weight"


def network() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    with torch.no_grad():
        for layer in module:
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(torch.tensor([[1.0, 0.25], [0.125, 1.0]]))
        last = module[2]
        assert isinstance(last, nn.Linear)
        last.bias.zero_()
    return module


def client(state: ServerState, which: int, images: int) -> Update:
    examples = Examples(torch.ones(images, 2), torch.full((images,), which))
    message = Message().read_as(Reference(METHOD.broadcast(state, which)))
    task = ClientTask(which, state.seed, METHOD.plan(state, which), message, examples)
    return finished(train_client(network(), task))[0]


def entries(update: Update, name: str) -> dict[str, float]:
    """The weights a client holds, by their place in the matrix."""
    assert update.masks is not None
    places = update.masks[name].nonzero().tolist()
    return {f"{i}{j}": value for (i, j), value in zip(places, update.params[name].tolist(), strict=True)}


def test_the_first_mask_is_the_diagonal() -> None:
    state = METHOD.init(initial_model(network()), seed=0)
    for name in (FIRST, SECOND, THIRD):
        assert torch.equal(state.masks[name], torch.eye(2, dtype=torch.bool))
        assert torch.equal(state.params[name], torch.eye(2))


def test_both_clients_train_drop_and_grow() -> None:
    state = METHOD.init(initial_model(network()), seed=0)
    a, b = client(state, 0, images=1), client(state, 1, images=3)
    assert entries(a, FIRST) == {"00": 1.25, "01": 0.0}
    assert entries(a, SECOND) == {"00": 1.25, "11": 0.0}
    assert entries(a, THIRD) == {"00": 1.25, "10": 0.0}
    assert a.params["2.bias"].tolist() == [0.25, -0.25]
    assert entries(b, FIRST) == {"11": 1.25, "10": 0.0}
    assert entries(b, SECOND) == {"11": 1.25, "00": 0.0}
    assert entries(b, THIRD) == {"11": 1.25, "01": 0.0}
    assert b.params["2.bias"].tolist() == [-0.25, 0.25]


def test_the_server_averages_over_holders_and_prunes_back() -> None:
    state = METHOD.init(initial_model(network()), seed=0)
    total = SparseSum(state.masks)
    total.add(client(state, 1, images=3))
    total.add(client(state, 0, images=1))
    after = METHOD.aggregate(state, total)
    assert after.round == 2
    diagonal = torch.eye(2, dtype=torch.bool)
    assert all(torch.equal(after.masks[name], diagonal) for name in (FIRST, SECOND, THIRD))
    assert _equal(after.params[FIRST], [[1.25, 0.0], [0.0, 1.25]])
    assert _equal(after.params[SECOND], [[0.3125, 0.0], [0.0, 0.9375]])
    assert _equal(after.params[THIRD], [[1.25, 0.0], [0.0, 1.25]])
    assert _equal(after.params["2.bias"], [-0.125, 0.125])


def _equal(value: Tensor, expected: list[list[float]] | list[float]) -> bool:
    return torch.equal(value, torch.tensor(expected))


MNIST = InitialModel(
    {
        name: torch.zeros(shape)
        for name, shape in (
            ("conv1.weight", (10, 1, 5, 5)),
            ("conv1.bias", (10,)),
            ("conv2.weight", (20, 10, 5, 5)),
            ("conv2.bias", (20,)),
            ("fc1.weight", (50, 5120)),
            ("fc1.bias", (50,)),
            ("fc2.weight", (10, 50)),
            ("fc2.bias", (10,)),
        )
    },
    layers=(
        Layer("conv1.weight", (10, 1, 5, 5), 10),
        Layer("conv2.weight", (20, 10, 5, 5), 20),
        Layer("fc1.weight", (50, 5120), 50),
        Layer("fc2.weight", (10, 50), 10),
    ),
)


@pytest.mark.parametrize(("dropped", "expected"), [("share", [3, 48, 2560, 7]), ("resolved", [2, 50, 2560, 5])])
def test_the_published_code_drops_what_its_distribution_leaves_less(dropped: Any, expected: list[int]) -> None:
    """MNIST's network with α = 0.05: at S = 0.8 layers keep 65, 953, 51204 and 143, at 0.81 63, 903, 48644 and 138.

    The second convolution, say, has 5020 weights and biases, of which 4066.1 and 4116.9 are left out.
    """
    table = Timetable(alpha=0.05, every=10, decay="constant", counting="published", dropped=dropped)
    method = FedDST(sparsity=Sparsity(0.8, "erk-published"), readjust=table)
    state = replace(method.init(MNIST, seed=0), round=2)
    assert list(state.budgets.values()) == [65, 953, 51204, 143]
    orders = method.plan(state, 0).step(Readjust)
    assert orders is not None
    assert list(orders.drop.values()) == expected
    assert orders.budgets == state.budgets
    assert method.plan(replace(state, round=3), 0).step(Readjust) is None
