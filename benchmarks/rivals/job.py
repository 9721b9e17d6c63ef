"""The job of all rivals, how a client trains, and the two files between the bench and a framework's script."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

Client = tuple[Tensor, Tensor]
"""Inputs float [images, *shape] and labels int64 [images]."""

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "Conv2d": ("in_channels", "out_channels", "kernel_size"),
    "MaxPool2d": ("kernel_size", "stride"),
    "Linear": ("in_features", "out_features"),
    "ReLU": (),
    "Flatten": (),
}
"""The kinds of layer that can be written down, and what each is made from."""


@dataclass(frozen=True)
class Training:
    """What a client does with its images in a round."""

    epochs: int = 10
    batch: int = 32
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.001


@dataclass(frozen=True)
class Layer:
    """A layer of a network by name: a kind of `torch.nn`, and what it is made from."""

    name: str
    kind: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Rounds of federated averaging in which every client takes part; `rounds` are timed, one before them is not.

    `workers` is how many cores there are. Where it is `tuned`, clients train as fast as PyTorch can be made to on a
    CPU, else in the usual way.
    """

    layers: tuple[Layer, ...]
    weights: dict[str, NDArray[np.float32]]
    clients: tuple[tuple[NDArray[np.float32], NDArray[np.int64]], ...]
    training: Training
    rounds: int
    workers: int
    tuned: bool

    def network(self) -> nn.Sequential:
        """The network with its initial weights."""
        module = nn.Sequential()
        for layer in self.layers:
            module.add_module(layer.name, getattr(nn, layer.kind)(**layer.arguments))
        module.load_state_dict({name: torch.from_numpy(value) for name, value in self.weights.items()})
        return module

    def trainee(self) -> nn.Module:
        """The same, to be trained by `train`."""
        return fast_layout(self.network()) if self.tuned else self.network()

    def client(self, number: int) -> Client:
        """One client's images, as `train` wants them, and labels."""
        inputs, labels = (torch.from_numpy(array) for array in self.clients[number])
        return channels_last(inputs) if self.tuned else inputs, labels

    def train(self, module: nn.Module, client: Client) -> None:
        """Train a module on a client's images, in place."""
        train_client(module, client, self.training, fused=self.tuned)


def make_job(
    module: nn.Sequential, clients: Sequence[Client], training: Training, rounds: int, workers: int, *, tuned: bool
) -> Job:
    """A job for a chain of layers that `_ARGUMENTS` knows, with their other settings as PyTorch has them."""
    return Job(
        layers=tuple(_described(name, layer) for name, layer in module.named_children()),
        weights={name: value.detach().numpy() for name, value in module.state_dict().items()},
        clients=tuple((inputs.numpy(), labels.numpy()) for inputs, labels in clients),
        training=training,
        rounds=rounds,
        workers=workers,
        tuned=tuned,
    )


def write_job(job: Job, path: str | Path) -> None:
    """Write a job as an .npz file."""
    about = {
        "layers": [asdict(layer) for layer in job.layers],
        "training": asdict(job.training),
        "clients": len(job.clients),
        "rounds": job.rounds,
        "workers": job.workers,
        "tuned": job.tuned,
    }
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about))}
    arrays |= {f"weight {name}": value for name, value in job.weights.items()}
    for number, (inputs, labels) in enumerate(job.clients):
        arrays |= {f"inputs {number}": inputs, f"labels {number}": labels}
    np.savez(path, **arrays)


@lru_cache(maxsize=1)
def read_job(path: str) -> Job:
    """The job in a file; a process that asks again gets the one it has."""
    with np.load(path) as file:
        about = json.loads(str(file["about"]))
        return Job(
            layers=tuple(Layer(**layer) for layer in about["layers"]),
            weights={name.partition(" ")[2]: file[name] for name in file.files if name.startswith("weight ")},
            clients=tuple((file[f"inputs {n}"], file[f"labels {n}"]) for n in range(about["clients"])),
            training=Training(**about["training"]),
            rounds=about["rounds"],
            workers=about["workers"],
            tuned=about["tuned"],
        )


def train_client(
    module: nn.Module, client: Client, training: Training, draws: torch.Generator | None = None, *, fused: bool = True
) -> None:
    """SGD with momentum, in place; images are shuffled in every epoch, by `draws` or PyTorch's own."""
    inputs, labels = client
    optimizer = torch.optim.SGD(
        module.parameters(),
        lr=training.lr,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        fused=fused or None,
    )
    for _ in range(training.epochs):
        order = torch.randperm(len(labels), generator=draws)
        for batch in torch.split(order, training.batch):
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(module(inputs[batch]), labels[batch]))
            optimizer.step()


def channels_last(inputs: Tensor) -> Tensor:
    """Images in the layout in which PyTorch's CPU convolutions and pools are fastest; other inputs as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def fast_layout(module: nn.Module) -> nn.Module:
    """The module, with its convolutions' weights channels last too."""
    for parameter in module.parameters():
        parameter.data = channels_last(parameter.data)
    return module


def accuracy(module: nn.Module, clients: Sequence[Client]) -> float:
    """The share of all clients' images that a network gets right, to show that it has learnt something."""
    with torch.no_grad():
        right = sum(int((module(inputs).argmax(dim=1) == labels).sum()) for inputs, labels in clients)
    return right / sum(len(labels) for _, labels in clients)


def write_report(path: str, job: Job, module: nn.Module, seconds: Sequence[float]) -> None:
    """Write the results of a job: the seconds of its timed rounds, and its last model's accuracy."""
    clients = [job.client(number) for number in range(len(job.clients))]
    Path(path).write_text(json.dumps({"seconds": list(seconds), "accuracy": accuracy(module, clients)}))


def _described(name: str, layer: nn.Module) -> Layer:
    kind = type(layer).__name__
    if kind not in _ARGUMENTS:
        raise TypeError(f"layer {name} is a {kind}; a job can have {', '.join(_ARGUMENTS)}")
    arguments = {argument: getattr(layer, argument) for argument in _ARGUMENTS[kind]}
    described = Layer(name, kind, arguments)
    made = getattr(nn, kind)(**arguments)
    if repr(made) != repr(layer):
        raise TypeError(f"layer {name}, {layer}, has settings that a job cannot have")
    return described
