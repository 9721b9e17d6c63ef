"""What a client sends beside its weights: gradients, their squares, Hessian-vector products, signs."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feddst.clients.squares import Squares
from feddst.clients.task import Job
from feddst.core import LocalTraining, Masks, Report, Tensors, generator, minibatches
from feddst.core.minibatches import Indices, balanced
from feddst.errors import DivergenceError, ModelError

_ATTENTION = threading.Lock()


class Differentiable(Protocol):
    """A client whose model autograd can go through."""

    job: Job

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]: ...


class Reporting(Differentiable, Protocol):
    """What reports need of a client."""

    squares: Squares
    settled: Masks

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]: ...


def make_reports(client: Reporting) -> dict[str, Tensors]:
    """Everything that the client's work asks it to report, by kind, for the parameters that travel."""
    sent = client.job.broadcast.params
    found: dict[str, Tensors] = {}
    for report in client.job.work.report:
        tensors = _tensors(client, report)
        found[report.kind] = {name: value.cpu() for name, value in tensors.items() if name in sent}
    return found


def _tensors(client: Reporting, report: Report) -> Tensors:
    if report.kind == "squared-gradient":
        return client.squares.mean(client.job.broadcast.params)
    if report.kind == "kept":
        return {name: _kept(value, client.settled.get(name)) for name, value in client.job.broadcast.params.items()}
    job, of = client.job, (client.job.seed, client.job.broadcast.round, client.job.client)
    batches = [
        torch.from_numpy(batch).to(job.inputs.device)
        for batch in reported_batches(job.labels.cpu().numpy(), report, job.work.local, *of)
    ]
    if report.kind == "hessian-gradient":
        return hessian_gradient(client, batches, report)
    if report.kind == "sign":
        refuse_frozen(client.differentiable()[0])
    gradient = client.mean_gradient(torch.cat(batches), report.temperature)
    return signs(gradient, report.bound, *of) if report.kind == "sign" else gradient


def _kept(value: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(value.shape) if mask is None else mask.float()


def reported_batches(
    labels: Indices, report: Report, local: LocalTraining, seed: int, round: int, client: int
) -> list[Indices]:
    """Which of a client's images, which have these labels, a report is made from: as a rule one batch."""
    draws = generator(seed, f"images of {report.kind}", round, client)
    if report.images == "all":
        return [np.arange(len(labels))]
    if report.images == "minibatch":
        return [draws.permutation(len(labels))[: local.batch].astype(np.int64, copy=False)]
    if report.images == "minibatches":
        return minibatches(len(labels), replace(local, epochs=1), seed, round, client)[0]
    return [balanced(labels, local.batch, draws)]


def hessian_gradient(client: Differentiable, batches: Sequence[Tensor], report: Report) -> dict[str, Tensor]:
    """Hg: the gradient of g·v for v = g held still."""
    module, params = client.differentiable()
    module.eval()
    loss = torch.stack([_loss(module, client.job, batch, report.temperature) for batch in batches]).sum()
    chosen = {name: value for name, value in params.items() if value.requires_grad and _within(name, report)}
    weights = list(chosen.values())
    first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    product = torch.stack([(g * g.detach()).sum() for g in first]).sum()
    second = torch.autograd.grad(product, weights, materialize_grads=True)
    module.train()
    still = {name: torch.zeros_like(value) for name, value in params.items()}
    return still | {name: value.detach() for name, value in zip(chosen, second, strict=True)}


def _loss(module: nn.Module, job: Job, images: Tensor, temperature: float) -> Tensor:
    """The mean loss on some images, of which there are second derivatives."""
    # Attention's faster kernels have none; the choice is one for all threads.
    with _ATTENTION, sdpa_kernel(SDPBackend.MATH):
        outputs = module(job.inputs[images]) / temperature
    return F.cross_entropy(outputs, job.labels[images])


def _within(name: str, report: Report) -> bool:
    return not report.within or name in report.within


def refuse_frozen(module: nn.Module) -> None:
    """Raise if a parameter is not trained."""
    for name, value in module.named_parameters():
        if not value.requires_grad:
            raise ModelError(f"{name} is frozen, but a vote is +1 or −1: it would be moved")


def signs(gradient: Tensors, bound: float, seed: int, round: int, client: int) -> dict[str, Tensor]:
    """+1 with probability (b + g)/2b and otherwise −1, for each weight; drawn in the order of names."""
    draws = generator(seed, "signs", round, client)
    votes: dict[str, Tensor] = {}
    for name, g in sorted(gradient.items()):
        if not torch.isfinite(g).all():
            raise DivergenceError(f"client {client} diverged in round {round}: its gradient of {name} is not finite")
        uniform = torch.from_numpy(draws.random(tuple(g.shape), dtype=np.float32)).to(g.device)
        chance = (1 + (g.float() / bound).clamp(-1, 1)) / 2
        votes[name] = torch.where(uniform < chance, 1.0, -1.0)
    return votes
