"""Readjust in the kernels against that of tensors: the same leave and enter, whatever is equal or no number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from feddst import _native
from feddst.clients.steps import Readjust
from feddst.clients.steps.readjust import readjust
from feddst.core import count_active, packed, positions_of

POINT = (1, 1, 1, 1, 0, 0)
SHAPES = {"conv": (6, 2, 3, 3), "wide": (60, 150), "last": (4, 60)}
BIASES = {"conv": 6, "wide": 60, "last": 4}
IMAGES = 21


def network() -> _native.Network:
    """A convolution with stride and padding, and a layer of 9,000 weights: enough to guess by a sample."""
    layers = [
        ("convolution", 6, (3, 3, 2, 2, 1, 1), True, True),
        ("relu", 0, POINT, False, True),
        ("linear", 60, POINT, True, True),
        ("relu", 0, POINT, False, True),
        ("linear", 4, POINT, True, True),
    ]
    return _native.Network((2, 9, 9), layers)


@dataclass(frozen=True)
class Case:
    """What shares of their weights layers hold (None: no mask), lose, and have in the end, and how they are held."""

    held: tuple[float | None, ...]
    lost: tuple[float, ...] = (0.2, 0.2, 0.2)
    ends: tuple[float, ...] = (0.5, 0.5, 0.5)
    dense: tuple[bool, ...] | None = None
    grid: float = 0.0  # weights are multiples of it
    spoilt: bool = False  # one is no number


CASES = {
    "sparse": Case((0.4, 0.2, 0.5), ends=(0.4, 0.2, 0.5)),
    "few of many": Case((0.4, 0.2, 0.5), (0.02, 0.02, 0.02), (0.4, 0.2, 0.5)),
    "nothing leaves": Case((0.4, 0.2, 0.5), (0.0, 0.0, 0.0), (0.5, 0.3, 0.6)),
    "nothing stays": Case((0.4, 0.2, 0.5), (1.0, 1.0, 1.0)),
    "nothing there": Case((0.0, 0.0, 0.5)),
    "all there in the end": Case((0.4, 0.2, 0.5), ends=(1.0, 1.0, 1.0)),
    "above its budget": Case((0.9, 0.8, 0.9), ends=(0.3, 0.3, 0.3)),
    "by dense kernels": Case((0.4, 0.2, 0.5), dense=(True, True, True)),
    "by dense kernels, nothing there": Case((0.0, 0.0, 0.5), dense=(True, True, True)),
    "by sparse kernels": Case((1.0, 0.9, 1.0), dense=(False, False, False)),
    "a layer without a mask": Case((None, 0.2, None)),
    "equal sizes": Case((0.4, 0.2, 0.5), grid=0.25),
    "equal sizes, by dense kernels": Case((0.7, 0.8, 0.8), grid=0.25, dense=(True, True, True)),
    "no number": Case((0.4, 0.2, 0.5), spoilt=True),
}


@dataclass
class Client:
    """A client's weights, masks and two slots, as Adam has them, and its images, of which half are empty."""

    params: dict[str, Tensor]
    slots: tuple[dict[str, Tensor], dict[str, Tensor]]
    masks: dict[str, Tensor]
    biases: list[NDArray[np.float32]]
    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, case: Case, seed: int) -> "Client":
        draws = np.random.default_rng(seed)
        params, masks = dict[str, Tensor](), dict[str, Tensor]()
        slots = dict[str, Tensor](), dict[str, Tensor]()
        for (name, shape), held in zip(SHAPES.items(), case.held, strict=True):
            values = draws.normal(size=shape) * 0.3
            values = np.round(values / case.grid) * case.grid if case.grid else values
            keeps = np.ones(shape, bool) if held is None else draws.random(shape) < held
            params[name] = torch.from_numpy((values * keeps).astype(np.float32))
            for slot in slots:
                slot[name] = torch.from_numpy((draws.normal(size=shape) * keeps).astype(np.float32))
            if held is not None:
                masks[name] = torch.from_numpy(keeps)
        if case.spoilt:
            params["wide"].view(-1)[positions_of(masks)["wide"][7]] = torch.nan
        inputs = draws.normal(size=(IMAGES, 2, 9, 9)).astype(np.float32)
        inputs[:, :, :, :5] = 0
        biases = [draws.normal(size=size).astype(np.float32) for size in BIASES.values()]
        return cls(params, slots, masks, biases, inputs, draws.integers(0, 4, IMAGES))

    def orders(self, case: Case) -> Readjust:
        lost, ends = (dict(zip(SHAPES, shares, strict=True)) for shares in (case.lost, case.ends))
        budgets = {name: round(ends[name] * mask.numel()) for name, mask in self.masks.items()}
        return Readjust(1, {name: round(lost[name] * budget) for name, budget in budgets.items()}, budgets)


def bytes_of(masks: dict[str, Tensor]) -> list[NDArray[np.uint8] | None]:
    return [masks[name].numpy().view(np.uint8) if name in masks else None for name in SHAPES]


def begun(net: _native.Network, client: Client, case: Case, isa: str) -> _native.Session:
    structure = _native.Structure(net, bytes_of(client.masks), case.dense)
    session = _native.Session(net, isa)
    session.load(_native.Weights(structure, arrays(client.params), client.biases), len(client.slots))
    for number, slot in enumerate(client.slots):
        session.load_slot(number, arrays(slot), client.biases)
    return session


def arrays(tensors: dict[str, Tensor]) -> list[Any]:
    return [tensors[name].numpy() for name in SHAPES]


@pytest.mark.parametrize("isa", _native.supported())
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_leave_and_enter(name: str, seed: int, isa: str) -> None:
    case, net, order = CASES[name], network(), np.arange(IMAGES)
    client = Client.of(case, seed)
    orders, session = client.orders(case), begun(net, client, case, isa)
    active = count_active(client.masks)
    moves = [orders.exchange(layer, active[layer]) if layer in orders.drop else None for layer in SHAPES]
    found = {layer: torch.empty(SHAPES[layer], dtype=torch.bool) for layer in orders.drop}
    session.readjust(client.inputs, client.labels, order, moves, bytes_of(found))

    def scores() -> dict[str, Tensor]:
        """Of the weights as they are now, those that have left being zero."""
        gradient = {layer: torch.empty(shape) for layer, shape in SHAPES.items()}
        other, biases = begun(net, client, case, isa), [np.empty(size, np.float32) for size in BIASES.values()]
        other.mean_gradient(client.inputs, client.labels, order, 1.0, arrays(gradient), biases)
        return {layer: value.abs()[None] for layer, value in gradient.items()}

    params, masks, slots = _alone(client.params), _alone(client.masks), [_alone(slot) for slot in client.slots]
    wanted = {layer: mask[0] for layer, mask in readjust(params, slots, masks, orders, scores).items()}
    assert all(torch.equal(found[layer], wanted[layer]) for layer in found)
    assert count_active(found) == orders.budgets

    for expected, slot in ((client.params, None), (client.slots[0], 0), (client.slots[1], 1)):
        stored = {layer: torch.empty(shape) for layer, shape in SHAPES.items()}
        session.store(arrays(stored), [np.empty(size, np.float32) for size in BIASES.values()], slot)
        for layer, value in expected.items():
            assert np.array_equal(stored[layer].numpy(), value.numpy(), equal_nan=True)
    values = packed(client.params, positions_of(wanted))
    row = [part for name, bias in zip(SHAPES, client.biases, strict=True) for part in (values[name].reshape(-1), bias)]
    assert np.array_equal(session.packed(bytes_of(wanted)), np.concatenate(row), equal_nan=True)


def _alone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value[None] for name, value in tensors.items()}
