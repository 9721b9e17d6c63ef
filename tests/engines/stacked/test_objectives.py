"""Every objective in several methods: the stacked engine beside the reference, and one client beside plain PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import feddst
from feddst.core import Batch
from feddst.runtime.loop import Silent

DRAWS = torch.Generator().manual_seed(8)
CLIENTS, EACH = 3, 6


def numbers(*shape: int) -> Tensor:
    return torch.randn(CLIENTS * EACH + 6, *shape, generator=DRAWS)


def answers(*shape: int) -> Tensor:
    return torch.randint(0, 2, (CLIENTS * EACH + 6, *shape), generator=DRAWS)


class Pixels(nn.Module):
    """A score for each of two classes at each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.tanh(self.first(images)))
        return outputs


class Words(nn.Module):
    """A score for each of five words at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 5)

    def forward(self, text: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(self.words(text)))).movedim(-1, 1)  # type: ignore[no-any-return]


class TwoInputs(nn.Module):
    """A number from a vector and a scalar, given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 1)

    def forward(self, vector: Tensor, scalar: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.tanh(self.first(torch.cat([vector, scalar], dim=1))))
        return outputs


def dense(outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def padded() -> Tensor:
    targets = torch.randint(0, 5, (CLIENTS * EACH + 6, 6), generator=DRAWS)
    targets[::3, 4:] = -100
    return targets


def quartic(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).pow(4).mean()


@dataclass(frozen=True)
class Task:
    """Inputs, targets, a network, options of `local`, and the same loss in plain PyTorch."""

    inputs: Batch
    targets: Tensor
    network: Callable[[], nn.Module]
    local: dict[str, Any]
    plain: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[..., Tensor] | None = None


WEIGHTS = torch.tensor([1.0, 3.0])
TASKS = {
    "cross-entropy": Task(
        numbers(4),
        answers(),
        dense(2),
        {"class_weights": (1.0, 3.0), "label_smoothing": 0.1},
        lambda o, t: F.cross_entropy(o, t, WEIGHTS, label_smoothing=0.1),
    ),
    "binary": Task(
        numbers(4), answers(), dense(1), {}, lambda o, t: F.binary_cross_entropy_with_logits(o[:, 0], t.float())
    ),
    "multi-label": Task(
        numbers(4), answers(3).float(), dense(3), {}, lambda o, t: F.binary_cross_entropy_with_logits(o, t)
    ),
    "squared-error": Task(numbers(4), numbers(), dense(1), {}, lambda o, t: F.mse_loss(o[:, 0], t)),
    "absolute-error": Task(numbers(4), numbers(2), dense(2), {}, F.l1_loss),
    "huber": Task(
        numbers(4), numbers(), dense(1), {"huber_delta": 0.3}, lambda o, t: F.huber_loss(o[:, 0], t, delta=0.3)
    ),
    "segmentation": Task(numbers(1, 5, 5), answers(5, 5), Pixels, {}, F.cross_entropy),
    "tokens": Task(torch.randint(0, 5, (CLIENTS * EACH + 6, 6), generator=DRAWS), padded(), Words, {}, F.cross_entropy),
    "two inputs": Task(
        {"vector": numbers(3), "scalar": numbers(2)},
        numbers(),
        TwoInputs,
        {"objective": "squared-error"},
        lambda o, t: F.mse_loss(o[:, 0], t),
    ),
    "a function": Task(numbers(4), numbers(), dense(1), {"lr": 0.001}, quartic, quartic),
}


def data_of(task: Task, clients: int = CLIENTS) -> feddst.Federation:
    """Each client's own examples, and six to test on."""

    def part(first: int, last: int) -> tuple[Any, Tensor]:
        inputs = task.inputs
        if isinstance(inputs, dict):
            return {name: value[first:last] for name, value in inputs.items()}, task.targets[first:last]
        assert isinstance(inputs, Tensor)
        return inputs[first:last], task.targets[first:last]

    own = [part(client * EACH, (client + 1) * EACH) for client in range(clients)]
    return feddst.Federation.from_clients(own, part(CLIENTS * EACH, CLIENTS * EACH + 6))


def run(name: str, engine: str, method: str, clients: int = CLIENTS, **options: Any) -> feddst.Result:
    task = TASKS[name]
    local = {"objective": name if " " not in name else "cross-entropy", "batch": 4, "epochs": 2, **task.local}
    if task.loss is not None:
        local = {"batch": 4, "epochs": 2, **task.local}
    config = feddst.configure(
        method=method,
        rounds=2,
        eval_every=2,
        cohort={"size": clients},
        local={**local, **options.pop("local", {})},
        engine={"kind": engine, "workers": 1},
        data={"clients": clients},
        **options,
    )
    torch.manual_seed(3)
    return feddst.run(config, model=task.network(), data=data_of(task, clients), loss=task.loss, watcher=Silent())


@pytest.mark.parametrize("method", ["fedavg", "feddst", "snip"])
@pytest.mark.parametrize("name", TASKS)
def test_side_by_side_as_one_after_another(name: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"readjust": {"every": 1}} if method == "feddst" else {}
    one, other = (run(name, engine, method, **options) for engine in ("reference", "stacked"))
    assert "one client after another" not in caplog.text
    theirs = other.model.state_dict()
    for key, value in one.model.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-3, atol=1e-5)
    assert one.rows[-1].loss == pytest.approx(other.rows[-1].loss, rel=1e-3)
    if method != "fedavg":
        assert one.rows[-1].density < 0.5
        assert all(
            (value[~one.masks[key]] == 0).all() for key, value in one.model.state_dict().items() if key in one.masks
        )


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_one_client_beside_plain_pytorch(name: str, sparse: bool) -> None:
    """One client, one epoch, one minibatch a round: a step of SGD on the whole of its data, by hand."""
    task = TASKS[name]
    local = {"batch": 64, "epochs": 1, "momentum": 0.0, "l2": 0.0, "lr": 0.05}
    found = run(name, "reference", "randommask" if sparse else "fedavg", 1, local=local)
    torch.manual_seed(3)
    module = task.network()
    masks = {key: mask.float() for key, mask in found.masks.items()}
    assert bool(masks) == sparse
    records = data_of(task, 1).client_data(0)
    for key, value in module.named_parameters():
        value.data.mul_(masks.get(key, 1.0))
    for _ in range(2):
        inputs = records.inputs
        outputs = module(**inputs) if isinstance(inputs, dict) else module(inputs)
        loss = task.plain(outputs, records.targets)  # type: ignore[arg-type]
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        for (key, value), gradient in zip(module.named_parameters(), gradients, strict=True):
            value.data.sub_(0.05 * gradient * masks.get(key, 1.0))
    for key, value in module.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[key], value, rtol=1e-6, atol=1e-6)


def test_inputs_may_be_a_tuple() -> None:
    """The same network and numbers by place, not by name: the same weights."""
    named = run("two inputs", "reference", "feddst")
    task = TASKS["two inputs"]
    assert isinstance(task.inputs, dict)
    inputs = tuple(task.inputs.values())
    own = [
        (tuple(one[c * EACH : (c + 1) * EACH] for one in inputs), task.targets[c * EACH : (c + 1) * EACH])
        for c in range(CLIENTS)
    ]
    test = tuple(one[CLIENTS * EACH :] for one in inputs), task.targets[CLIENTS * EACH :]
    torch.manual_seed(3)
    placed = feddst.run(
        named.config, model=TwoInputs(), data=feddst.Federation.from_clients(own, test), watcher=Silent()
    )
    for key, value in named.model.state_dict().items():
        assert torch.equal(value, placed.model.state_dict()[key])
