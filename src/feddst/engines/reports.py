"""What a client sends beside its weights: gradients, Hessian-vector products, signs."""

import threading
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feddst.engines.base import Job
from feddst.errors import DivergenceError, ModelError
from feddst.protocol import Report, Tensors, generator
from feddst.protocol.minibatches import Indices, balanced

_ATTENTION = threading.Lock()


class Differentiable(Protocol):
    """A client whose model autograd can go through."""

    job: Job

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]: ...


class Reporting(Differentiable, Protocol):
    """What reports need of a client."""

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
    job, of = client.job, (client.job.seed, client.job.broadcast.round, client.job.client)
    chosen = reported_images(job.labels.cpu().numpy(), report, job.work.local.batch, *of)
    images = torch.from_numpy(chosen).to(job.inputs.device)
    if report.kind == "hessian-gradient":
        return hessian_gradient(client, images, report.temperature)
    if report.kind == "sign":
        refuse_frozen(client.differentiable()[0])
    gradient = client.mean_gradient(images, report.temperature)
    return signs(gradient, report.bound, *of) if report.kind == "sign" else gradient


def reported_images(labels: Indices, report: Report, batch: int, seed: int, round: int, client: int) -> Indices:
    """Which of a client's images, which have these labels, a report is made from."""
    draws = generator(seed, f"images of {report.kind}", round, client)
    if report.images == "all":
        return np.arange(len(labels))
    if report.images == "minibatch":
        return draws.permutation(len(labels))[:batch].astype(np.int64, copy=False)
    return balanced(labels, batch, draws)


def hessian_gradient(client: Differentiable, images: Tensor, temperature: float) -> dict[str, Tensor]:
    """Hg: the gradient of g·v for v = g held still."""
    module, params = client.differentiable()
    module.eval()
    # Attention's faster kernels have no second derivative; the choice is one for all threads.
    with _ATTENTION, sdpa_kernel(SDPBackend.MATH):
        outputs = module(client.job.inputs[images]) / temperature
    loss = F.cross_entropy(outputs, client.job.labels[images])
    trained = {name: value for name, value in params.items() if value.requires_grad}
    weights = list(trained.values())
    first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    product = torch.stack([(g * g.detach()).sum() for g in first]).sum()
    second = torch.autograd.grad(product, weights, materialize_grads=True)
    module.train()
    still = {name: torch.zeros_like(value) for name, value in params.items()}
    return still | {name: value.detach() for name, value in zip(trained, second, strict=True)}


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
