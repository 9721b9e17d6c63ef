"""What a client sends beside its weights: gradients, Hessian-vector products, signs."""

import threading
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feddst.engines.base import Job
from feddst.errors import ModelError, TrainingError
from feddst.protocol import Report, Tensors, generator
from feddst.protocol.minibatches import balanced

_ATTENTION = threading.Lock()


class Reporting(Protocol):
    """What reports need of a client."""

    job: Job

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]: ...

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]: ...


def make_reports(client: Reporting) -> dict[str, Tensors]:
    """Everything that the client's work asks it to report, by kind, for the parameters that travel."""
    sent = client.job.broadcast.params
    found: dict[str, Tensors] = {}
    for report in client.job.work.report:
        tensors = _tensors(client, report)
        found[report.kind] = {name: value.cpu() for name, value in tensors.items() if name in sent}
    return found


def _tensors(client: Reporting, report: Report) -> Tensors:
    images = _images(client.job, report)
    if report.kind == "hessian-gradient":
        return _hessian_gradient(client, images, report.temperature)
    if report.kind == "sign":
        _refuse_frozen(client)
    gradient = client.mean_gradient(images, report.temperature)
    return _signs(client.job, gradient, report.bound) if report.kind == "sign" else gradient


def _images(job: Job, report: Report) -> Tensor:
    count = len(job.labels)
    draws = generator(job.seed, f"images of {report.kind}", job.broadcast.round, job.client)
    if report.images == "all":
        chosen = np.arange(count)
    elif report.images == "minibatch":
        chosen = draws.permutation(count)[: job.work.local.batch]
    else:
        chosen = balanced(job.labels.cpu().numpy(), job.work.local.batch, draws)
    return torch.from_numpy(chosen).to(job.inputs.device)


def _hessian_gradient(client: Reporting, images: Tensor, temperature: float) -> dict[str, Tensor]:
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


def _refuse_frozen(client: Reporting) -> None:
    for name, value in client.differentiable()[1].items():
        if not value.requires_grad:
            raise ModelError(f"{name} is frozen, but a vote is +1 or −1: it would be moved")


def _signs(job: Job, gradient: Tensors, bound: float) -> dict[str, Tensor]:
    """+1 with probability (b + g)/2b and otherwise −1, for each weight; drawn in the order of names."""
    draws = generator(job.seed, "signs", job.broadcast.round, job.client)
    signs: dict[str, Tensor] = {}
    for name, g in sorted(gradient.items()):
        if not torch.isfinite(g).all():
            raise TrainingError(
                f"client {job.client} diverged in round {job.broadcast.round}: its gradient of {name} is not finite"
            )
        uniform = torch.from_numpy(draws.random(tuple(g.shape), dtype=np.float32)).to(g.device)
        chance = (1 + (g.float() / bound).clamp(-1, 1)) / 2
        signs[name] = torch.where(uniform < chance, 1.0, -1.0)
    return signs
